"""SCRAM-SHA-256 and SCRAM-SHA-512: the password is proven, not sent, and the broker proves that it knows it, too.

As Kafka does, names and passwords are UTF-8 as they are, without SASLprep: with it, passwords that it changes would not be those that Kafka
keeps. No channel binding ("n,,"), which Kafka does not have.

Source: RFC 5802, RFC 7677, KIP-84; org.apache.kafka.common.security.scram.internals.ScramFormatter
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re

from gkafka.core.sasl import Mechanism, Refusal, remarks
from gkafka.exceptions import AuthenticationError

__all__ = ["FEWEST_ITERATIONS", "MOST_ITERATIONS", "Scram"]

FEWEST_ITERATIONS = 4096  # RFC 7677: fewer, and whoever listens finds the password cheaply
MOST_ITERATIONS = 1_000_000  # more, and a broker keeps its clients computing (CVE-2026-10143)
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
NONCE = re.compile(r"[\x21-\x2b\x2d-\x7e]+")
GS2 = "n,,"


class Scram(Mechanism):
    """One exchange. name: "SCRAM-SHA-256" or "SCRAM-SHA-512"; nonce: printable, without a comma, never used before."""

    __slots__ = ("_expected", "_first_bare", "_hash", "_nonce")
    takes_long = True

    def __init__(self, name: str, username: str, password: str, nonce: str) -> None:
        assert NONCE.fullmatch(nonce)
        super().__init__(name, password)
        self.remark = remarks({"the user name": username, "the password": password})
        self._hash = HASHES[name]
        self._nonce = nonce
        self._first_bare = f"n={_saslname(username)},r={nonce}"
        self._expected = b""  # the broker's signature, once it is known what it must be

    def first(self) -> bytes:
        return f"{GS2}{self._first_bare}".encode()

    def respond(self, challenge: bytes) -> bytes | None:
        """Takes up to half a second of computing with a broker that asks for the most iterations."""
        text = _text(challenge)
        if self._expected:
            self._check_signature(text)
            self.complete = True
            return None
        return self._prove(text)

    def _prove(self, text: str) -> bytes:
        nonce, salt, iterations = _server_first(text)
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce) or not NONCE.fullmatch(nonce):
            raise AuthenticationError("the broker's nonce does not continue ours: somebody else's answer")
        if not FEWEST_ITERATIONS <= iterations <= MOST_ITERATIONS:
            raise AuthenticationError(
                f"the broker asks for {iterations} iterations; {FEWEST_ITERATIONS} to {MOST_ITERATIONS} are accepted here, fewer are not safe"
            )
        without_proof = f"c={base64.b64encode(GS2.encode()).decode()},r={nonce}"
        signed = f"{self._first_bare},{text},{without_proof}".encode()
        salted = hashlib.pbkdf2_hmac(self._hash, self.secrets[0].encode(), salt, iterations)
        client_key = self._mac(salted, b"Client Key")
        stored_key = hashlib.new(self._hash, client_key).digest()
        signature = self._mac(stored_key, signed)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._expected = self._mac(self._mac(salted, b"Server Key"), signed)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def _check_signature(self, text: str) -> None:
        attributes = _attributes(text)
        name, value = attributes[0]
        if name == "e":
            raise Refusal(value)
        if name != "v" or not hmac.compare_digest(_decoded(value), self._expected):
            raise AuthenticationError(
                "the broker's signature is wrong: it does not know this user's password, so it is not the right broker"
            )

    def _mac(self, key: bytes, data: bytes) -> bytes:
        return hmac.new(key, data, self._hash).digest()


def _saslname(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise AuthenticationError("the broker's SCRAM message is no text") from None


def _server_first(text: str) -> tuple[str, bytes, int]:
    """Nonce, salt, iterations. Optional extensions may follow, no mandatory one (m=) may be there."""
    attributes = _attributes(text)
    names = [name for name, _ in attributes]
    if names[:1] == ["e"]:
        raise Refusal(attributes[0][1])
    if names[:3] != ["r", "s", "i"]:
        raise AuthenticationError("the broker's first SCRAM message is not r=,s=,i= in this order")
    (_, nonce), (_, salt), (_, count) = attributes[:3]
    if not re.fullmatch(r"[1-9][0-9]{0,8}", count):
        raise AuthenticationError("the broker's number of iterations is none")
    return nonce, _decoded(salt), int(count)


def _attributes(text: str) -> list[tuple[str, str]]:
    """name=value pairs, each name once."""
    pairs = [pair.partition("=") for pair in text.split(",")]
    names = [name for name, _, _ in pairs]
    if any(not re.fullmatch(r"[A-Za-z]", name) or not equals for name, equals, _ in pairs):
        raise AuthenticationError("the broker's SCRAM message is not a list of attributes")
    if len(set(names)) < len(names) or "m" in names:
        raise AuthenticationError("the broker's SCRAM message has an attribute twice, or an extension that is not known here")
    return [(name, value) for name, _, value in pairs]


def _decoded(text: str) -> bytes:
    try:
        decoded = base64.b64decode(text.encode(), validate=True)
    except (binascii.Error, ValueError):
        decoded = b""
    if not decoded:
        raise AuthenticationError("a value in the broker's SCRAM message is not base64")
    return decoded
