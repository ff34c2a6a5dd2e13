"""The brokers' side of SASL: what a client says of itself, checked as Kafka does. Not built on the client's own machines, which it is there to test."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import struct
import time
from collections.abc import Mapping
from typing import Any

from gkafka.wire.apis import Message
from gkafka.wire.sasl import SaslAuthenticateResponse, SaslHandshakeResponse

__all__ = ["ILLEGAL_STATE", "SASL_APIS", "Client", "Sasl"]

SASL_APIS = frozenset({"SaslHandshake", "SaslAuthenticate"})
UNSUPPORTED_MECHANISM, ILLEGAL_STATE, REFUSED = 33, 34, 58
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
NO_ANSWER_LEFT = (ILLEGAL_STATE, "the exchange is over")


class Sasl:
    """For `MockCluster(sasl=...)`: whom its brokers let in. Everything may be changed while they run.

    users: name -> password, for PLAIN and SCRAM. tokens: those that OAUTHBEARER accepts. mechanisms: what is offered. session_ms: Kafka's
    connections.max.reauth.ms: a client that asks anything later is cut off, unless it says anew who it is; grace_ms: but not before this much more
    has passed. iterations: of SCRAM.
    forged_signature: end SCRAM as a broker that does not know the password.
    """

    def __init__(
        self,
        users: Mapping[str, str] | None = None,
        *,
        tokens: tuple[str, ...] | list[str] = (),
        mechanisms: tuple[str, ...] = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
        session_ms: int = 0,
        grace_ms: int = 0,
        iterations: int = 4096,
        forged_signature: bool = False,
    ) -> None:
        self.users = dict(users or {})
        self.tokens = list(tokens)
        self.mechanisms = mechanisms
        self.session_ms = session_ms
        self.grace_ms = grace_ms
        self.iterations = iterations
        self.forged_signature = forged_signature
        self.accepted = 0
        """How many authentications succeeded, later ones of open connections included."""
        self.renewed = 0
        """How many of these were on open connections."""
        self.refused = 0
        self.extensions: dict[str, str] = {}
        """What came with the last token."""
        self.expired = 0
        """Connections that were cut off after their session."""


class Client:
    """What a broker knows of the client at the other end of one connection."""

    def __init__(self, rules: Sasl) -> None:
        self.bare = False
        """The next frame is a message of the mechanism without a header (SaslHandshake v0)."""
        self._rules = rules
        self._mechanism = ""
        self._is_known = False
        self._until = float("inf")
        self._scram: Scram | None = None
        self._doubted = False

    def may(self, api: str) -> bool:
        """Whether the broker listens to such a request now; it closes the connection otherwise."""
        if api in SASL_APIS:
            return True
        if not self._is_known or self._mechanism:
            return api == "ApiVersions" and not self._mechanism
        if time.monotonic() > self._until:
            self._rules.expired += 1
            return False
        return True

    def hear(self, message: Any, version: int) -> Message:
        """The answer to a request that authenticates."""
        if not hasattr(message, "auth_bytes"):
            return self._handshake(message.mechanism, version)
        said, code, text = self._step(bytes(message.auth_bytes))
        lifetime = self._rules.session_ms if code == 0 and not self._mechanism else 0
        return SaslAuthenticateResponse(error_code=code, error_message=text, auth_bytes=said, session_lifetime_ms=lifetime)

    def hear_bare(self, message: bytes) -> bytes | None:
        """The frame that answers one without a header; None: refused, the connection ends."""
        said, code, _ = self._step(message)
        self.bare = bool(self._mechanism)
        return None if code else struct.pack(">i", len(said)) + said

    def _handshake(self, mechanism: str, version: int) -> Message:
        offered = list(self._rules.mechanisms)
        if mechanism not in offered:
            self._rules.refused += 1
            return SaslHandshakeResponse(error_code=UNSUPPORTED_MECHANISM, mechanisms=offered)
        self._mechanism, self._scram, self._doubted = mechanism, None, False
        self.bare = version == 0
        return SaslHandshakeResponse(mechanisms=offered)

    def _step(self, said: bytes) -> tuple[bytes, int, str | None]:
        """Answer, error code, error text."""
        if self._mechanism == "PLAIN":
            _, name, password = [*said.decode().split("\0"), "", "", ""][:3]
            return self._end(b"", self._rules.users.get(name) == password, "Authentication failed: Invalid username or password")
        if self._mechanism == "OAUTHBEARER":
            return self._bearer(said)
        if self._mechanism in HASHES:
            return self._prove(said)
        return b"", *NO_ANSWER_LEFT

    def _end(self, said: bytes, good: bool, why: str) -> tuple[bytes, int, str | None]:
        if not good:
            self._rules.refused += 1
            self._mechanism, self._is_known = "", False
            return b"", REFUSED, why
        self._rules.accepted += 1
        self._rules.renewed += self._is_known
        self._mechanism, self._is_known = "", True
        self._until = time.monotonic() + (self._rules.session_ms + self._rules.grace_ms) / 1000 if self._rules.session_ms else float("inf")
        return said, 0, None

    def _bearer(self, said: bytes) -> tuple[bytes, int, str | None]:
        if self._doubted:
            return self._end(b"", False, json.dumps({"status": "invalid_token"}))
        _, *pairs = said.decode().split("\x01")
        told = dict(pair.split("=", 1) for pair in pairs if pair)
        if told.pop("auth", "").removeprefix("Bearer ") not in self._rules.tokens:
            self._doubted = True
            return json.dumps({"status": "invalid_token", "scope": "kafka"}).encode(), 0, None
        self._rules.extensions = told
        return self._end(b"", True, "")

    def _prove(self, said: bytes) -> tuple[bytes, int, str | None]:
        if self._scram is None:
            self._scram = Scram(self._rules, self._mechanism, said.decode())
            return self._scram.first, 0, None
        final = self._scram.final(said.decode())
        return self._end(final or b"", final is not None, "Authentication failed during authentication due to invalid credentials")


class Scram:
    """The server's half of one exchange (RFC 5802). first: what it says first."""

    def __init__(self, rules: Sasl, mechanism: str, said: str) -> None:
        self._rules = rules
        self._hash = HASHES[mechanism]
        self._bare = said.split(",", 2)[2]
        attributes = dict(pair.split("=", 1) for pair in self._bare.split(","))
        self._password = rules.users.get(attributes["n"].replace("=2C", ",").replace("=3D", "="))
        self._salt = os.urandom(16)
        self._nonce = attributes["r"] + base64.b64encode(os.urandom(12)).decode()
        self._first = f"r={self._nonce},s={base64.b64encode(self._salt).decode()},i={rules.iterations}"
        self.first = self._first.encode()

    def final(self, said: str) -> bytes | None:
        """The server's signature; None if the client does not know the password."""
        without_proof, _, proof = said.rpartition(",p=")
        if without_proof != f"c=biws,r={self._nonce}" or self._password is None:
            return None
        salted = hashlib.pbkdf2_hmac(self._hash, self._password.encode(), self._salt, self._rules.iterations)
        signed = f"{self._bare},{self._first},{without_proof}".encode()
        key = self._mac(salted, b"Client Key")
        signature = self._mac(hashlib.new(self._hash, key).digest(), signed)
        if base64.b64decode(proof) != bytes(a ^ b for a, b in zip(key, signature, strict=True)):
            return None
        server_key = b"somebody else" if self._rules.forged_signature else self._mac(salted, b"Server Key")
        return b"v=" + base64.b64encode(self._mac(server_key, signed))

    def _mac(self, key: bytes, data: bytes) -> bytes:
        return hmac.new(key, data, self._hash).digest()
