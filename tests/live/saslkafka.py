"""A real Kafka that asks who its clients are: one broker, a listener for each way. And the issuer of the tokens that one of them takes.

SASL     SASL_PLAINTEXT  PLAIN, SCRAM, OAUTHBEARER with tokens that nobody signed
SECURE   SASL_SSL        the same
SHORT    SASL_PLAINTEXT  the same; sessions of SESSION_MS
SIGNED   SASL_SSL        OAUTHBEARER with tokens that the issuer signed
"""

from __future__ import annotations

import base64
import json
import socket
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.kit import clock
from tests.live.kafka import KafkaCluster
from tests.live.pool import POOL
from tests.net.certificates import Certificates
from tests.net.servers import serve

__all__ = ["ODD_PASSWORD", "PASSWORD", "SESSION_MS", "USER", "Issuer", "SaslKafka", "sasl_kafka", "unsigned_token"]

USER, PASSWORD = "alice", "s3cret-of-alice"
ODD_PASSWORD = "ﬁne\u00adªs3cret"
"""SASLprep would make another one of it; Kafka does not."""
USERS = {USER: PASSWORD, "odd": ODD_PASSWORD}
SESSION_MS = 5000
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
SECURITY = "org.apache.kafka.common.security"


class Issuer:
    """Signs tokens, and gives them to whoever has its client's secret, over https. files: a folder for its public key."""

    CLIENT, SECRET = "gkafka-client", "s3cret-of-the-client"

    def __init__(self, certs: Certificates, folder: Path, stack: ExitStack) -> None:
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.keys = folder / "jwks.json"
        self.keys.write_text(json.dumps({"keys": [self._public()]}))
        self.lifetime_s = 3600.0
        self.given = 0
        context = certs.server()
        self.port = stack.enter_context(serve(self._talk, wrap=lambda conn: context.wrap_socket(conn, server_side=True)))

    def token(self, lifetime_s: float | None = None, audience: str = "kafka") -> str:
        now = clock.epoch_s()
        claims = {"sub": USER, "scope": "kafka", "aud": audience, "iss": "https://issuer.example", "iat": now - 1}
        claims["exp"] = now + (self.lifetime_s if lifetime_s is None else lifetime_s)
        signed = f"{_part({'alg': 'RS256', 'kid': 'k1', 'typ': 'JWT'})}.{_part(claims)}"
        return f"{signed}.{_base64url(self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256()))}"

    def _public(self) -> dict[str, str]:
        numbers = self._key.public_key().public_numbers()
        n, e = (_base64url(x.to_bytes((x.bit_length() + 7) // 8, "big")) for x in (numbers.n, numbers.e))
        return {"kty": "RSA", "kid": "k1", "use": "sig", "alg": "RS256", "n": n, "e": e}

    def _talk(self, conn: socket.socket) -> None:
        asked = b""
        while b"grant_type" not in asked:
            asked += conn.recv(65536)
        expected = base64.b64encode(f"{self.CLIENT}:{self.SECRET}".encode())
        if b"Basic " + expected not in asked:
            conn.sendall(_answer("401 Unauthorized", {"error": "invalid_client"}))
            return
        self.given += 1
        conn.sendall(_answer("200 OK", {"access_token": self.token(), "token_type": "Bearer", "expires_in": self.lifetime_s}))


class SaslKafka:
    """See the module. hosts: without SASL."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.certs = Certificates(folder)
        self.issuer = Issuer(self.certs, folder, stack)
        listeners = {"SASL": "SASL_PLAINTEXT", "SECURE": "SASL_SSL", "SHORT": "SASL_PLAINTEXT", "SIGNED": "SASL_SSL"}
        properties: dict[str, object] = {}
        for name in ("sasl", "secure", "short"):
            properties |= _all_mechanisms(f"listener.name.{name}")
        properties |= self._signed("listener.name.signed")
        for name in ("secure", "signed"):
            properties |= self._tls(f"listener.name.{name}")
        properties |= {f"listener.name.short.{mechanism.lower()}.connections.max.reauth.ms": SESSION_MS for mechanism in MECHANISMS}
        users = [f"{hash}=[name={name},password={password}]" for hash in MECHANISMS[1:3] for name, password in USERS.items()]
        keys = f"file://{self.issuer.keys}"
        flags = [
            f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.{what}={value}" for what, value in (("urls", keys), ("files", self.issuer.keys))
        ]
        self.cluster = stack.enter_context(
            KafkaCluster(
                "4.2.0",
                listeners=listeners,
                properties=properties,
                users=users,
                flags=[*flags, "-Dfile.encoding=UTF-8", "-Dsun.jnu.encoding=UTF-8"],
            )
        )
        (self.node,) = self.cluster.nodes
        self.hosts = self.node.address

    def port(self, listener: str) -> int:
        return self.node.listeners[listener]

    def _tls(self, prefix: str) -> dict[str, object]:
        store = self.certs.folder / "broker.store"
        store.write_text(self.certs.text("good.key") + self.certs.text("good.pem"))
        return {f"{prefix}.ssl.keystore.type": "PEM", f"{prefix}.ssl.keystore.location": store}

    def _signed(self, prefix: str) -> dict[str, object]:
        return {
            f"{prefix}.sasl.enabled.mechanisms": "OAUTHBEARER",
            f"{prefix}.oauthbearer.sasl.jaas.config": f"{SECURITY}.oauthbearer.OAuthBearerLoginModule required;",
            f"{prefix}.oauthbearer.sasl.server.callback.handler.class": f"{SECURITY}.oauthbearer.OAuthBearerValidatorCallbackHandler",
            f"{prefix}.oauthbearer.sasl.login.callback.handler.class": f"{SECURITY}.oauthbearer.internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler",
            f"{prefix}.sasl.oauthbearer.jwks.endpoint.url": f"file://{self.issuer.keys}",
            f"{prefix}.sasl.oauthbearer.expected.audience": "kafka",
            f"{prefix}.sasl.oauthbearer.expected.issuer": "https://issuer.example",
            f"{prefix}.sasl.oauthbearer.clock.skew.seconds": "0",
        }


def sasl_kafka() -> SaslKafka:
    """The one that all tests of a session share."""

    def start(ends: ExitStack) -> SaslKafka:
        return SaslKafka(Path(ends.enter_context(TemporaryDirectory(prefix="gkafka-sasl-"))), ends)

    return POOL.keep(SaslKafka, start, lambda sasl: sasl.cluster)


def _all_mechanisms(prefix: str) -> dict[str, object]:
    users = f'user_{USER}="{PASSWORD}"'
    return {
        f"{prefix}.sasl.enabled.mechanisms": ",".join(MECHANISMS),
        f"{prefix}.plain.sasl.jaas.config": f"{SECURITY}.plain.PlainLoginModule required {users};",
        f"{prefix}.scram-sha-256.sasl.jaas.config": f"{SECURITY}.scram.ScramLoginModule required;",
        f"{prefix}.scram-sha-512.sasl.jaas.config": f"{SECURITY}.scram.ScramLoginModule required;",
        f"{prefix}.oauthbearer.sasl.jaas.config": f'{SECURITY}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";',
    }


def unsigned_token(lifetime_s: float = 3600.0) -> str:
    """A token that nobody signed, which Kafka takes where it has no validator of its own. For tests only."""
    now = clock.epoch_s()
    return f"{_part({'alg': 'none'})}.{_part({'sub': USER, 'iat': now - 1, 'exp': now + lifetime_s})}."


def _part(fields: dict[str, Any]) -> str:
    return _base64url(json.dumps(fields).encode())


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _answer(status: str, fields: dict[str, Any]) -> bytes:
    body = json.dumps(fields).encode()
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
