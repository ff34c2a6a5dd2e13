"""Who answers where a Kafka broker was looked for: a web server, a listener with TLS, or one without. `kafka-tools doctor` and every client say it alike."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gkafka.probing import Certificate, Probe

__all__ = ["Stranger", "certificate_text", "day_of", "in_the_clear", "stranger_at", "with_tls", "with_web"]

MOST_NAMES = 8
WEB_SERVER = "give the port of a Kafka listener, 9092 by default"


class Stranger(NamedTuple):
    """seen: what is there; next: what to give instead, by gkafka's names of options."""

    seen: str
    next: str


def with_web(line: str) -> Stranger:
    """A web server. line: the first of its answer."""
    return Stranger(f"a web server answers there: {line!r}", WEB_SERVER)


def with_tls(certificate: Certificate, *, uses_sasl: bool) -> Stranger:
    """A listener with TLS, of a client that has none."""
    protocol = "SASL_SSL" if uses_sasl else "SSL"
    return Stranger(
        f"this listener speaks TLS, and was spoken to in clear text. It shows {certificate_text(certificate)}",
        f"give security_protocol='{protocol}', with ssl_cafile='FILE' if the authority is not known here",
    )


def in_the_clear(*, uses_sasl: bool) -> Stranger:
    """A listener without TLS, of a client that wants it."""
    protocol = "SASL_PLAINTEXT" if uses_sasl else "PLAINTEXT"
    return Stranger(
        "a Kafka broker, but this listener speaks no TLS", f"give security_protocol='{protocol}', or the port of the listener with TLS"
    )


def stranger_at(probe: Probe, left: Callable[[float], float]) -> Stranger | None:
    """Who is at this address in place of the broker that the probe's options are for; None if nobody tells.

    left(share): seconds, this part of what is left of the time. Up to three connections are made, and a request of HTTP is sent; nothing of the
    options' goes with it.
    """
    line = probe.web_server(left(0.5))
    if line is None and probe.uses_tls:
        line = probe.web_server(left(0.5), tls=True)
    if line is not None:
        return with_web(line)
    if probe.uses_tls:
        return None  # of whoever wants TLS nothing of Kafka goes out without it, not even to find out
    certificate = probe.certificate(left(1.0))
    return None if certificate is None else with_tls(certificate, uses_sasl=probe.uses_sasl)


def certificate_text(certificate: Certificate) -> str:
    """Whose it is, for which hosts, by whom, from when to when."""
    names = ", ".join(certificate.names[:MOST_NAMES]) or "no host"
    more = f" and {len(certificate.names) - MOST_NAMES} more" if len(certificate.names) > MOST_NAMES else ""
    whose = f"the certificate of {certificate.subject!r} for {names}{more}, signed by {certificate.issuer!r}"
    return f"{whose}, valid {day_of(certificate.not_before)} to {day_of(certificate.not_after)}"


def day_of(at: float) -> str:
    """ "2026-01-31" of seconds since the epoch, UTC."""
    with contextlib.suppress(OverflowError, ValueError, OSError):
        return f"{datetime.datetime.fromtimestamp(at, datetime.timezone.utc):%Y-%m-%d}"
    return "a day beyond the calendar"
