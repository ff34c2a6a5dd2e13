"""What certificate a server shows, also when it is one that no client of ours would accept: for whoever has to say what is wrong with it."""

from __future__ import annotations

import dataclasses
import ssl
from typing import Any, Final, NamedTuple

from gkafka.config import ClientConfig
from gkafka.handlers.base import Handler, Stream
from gkafka.net.stream import open_stream
from gkafka.net.tls import TlsStream, server_name
from gkafka.net.tlscontext import make_context
from gkafka.undoing import Undoing

__all__ = ["Certificate", "certificate_of", "described", "see_certificate"]

NO_CHECK_TIME: Final = 0x200000  # X509_V_FLAG_NO_CHECK_TIME of OpenSSL, which the ssl module has no name for


class Certificate(NamedTuple):
    """names: host names and addresses that it is for. Times: seconds since the epoch, of its first and last moment."""

    subject: str
    issuer: str
    names: tuple[str, ...]
    not_before: float
    not_after: float


def see_certificate(handler: Handler, host: str, port: int, *, deadline: float, config: ClientConfig) -> Certificate | None:
    """The certificate that this server shows; None if it shows none. Nothing is sent to it but handshakes.

    Two of them: the first takes any certificate, and the second, which is to read it, trusts that one alone, whatever its dates and names.
    Raises what start_tls() raises, but for the certificate.
    """
    anything = dataclasses.replace(config, tls_verify=False, allow_unverified_tls=True, ssl_context=None, ssl_cafile=None, ssl_crlfile=None)
    der = _shake_hands(handler, host, port, deadline, config, make_context(anything)).certificate_der
    if not der:
        return None
    this_one = dataclasses.replace(
        config,
        tls_verify=True,
        ssl_check_hostname=False,
        allow_unverified_tls=True,
        ssl_context=None,
        ssl_cafile=ssl.DER_cert_to_PEM_cert(der),
        ssl_crlfile=None,
    )
    context = make_context(this_one)
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN | NO_CHECK_TIME
    return certificate_of(_shake_hands(handler, host, port, deadline, config, context))


def certificate_of(stream: Stream) -> Certificate | None:
    """The certificate that a checked TLS stream was shown; None for a stream that is none."""
    found = stream.certificate if isinstance(stream, TlsStream) else {}
    return described(found) if found else None


def described(found: dict[str, Any]) -> Certificate:
    """From the form of ssl.SSLSocket.getpeercert()."""
    return Certificate(
        _name(found.get("subject", ())),
        _name(found.get("issuer", ())),
        tuple(str(value) for kind, value in found.get("subjectAltName", ()) if kind in ("DNS", "IP Address")),
        ssl.cert_time_to_seconds(found["notBefore"]),
        ssl.cert_time_to_seconds(found["notAfter"]),
    )


def _name(parts: Any) -> str:
    known = {key: value for part in parts for key, value in part}
    return str(known.get("commonName") or known.get("organizationName") or ", ".join(map(str, known.values())))


def _shake_hands(handler: Handler, host: str, port: int, deadline: float, config: ClientConfig, context: ssl.SSLContext) -> TlsStream:
    """A stream that has shaken hands and was closed."""
    plain = dataclasses.replace(config, security_protocol="PLAINTEXT")
    stream = open_stream(handler, host, port, deadline=deadline, config=plain)
    with Undoing(stream.close):
        tls = TlsStream(handler, stream, context, server_name(host), f"{host}:{port}")
        tls.handshake(deadline)
    tls.close()
    return tls
