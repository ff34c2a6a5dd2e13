"""The steps of `kafka-tools doctor`: each looks at one thing, and says what it saw and what to try next. All that a step does shares its time.

An address goes through the steps of a connection, one after the other, and the first that fails ends it: what comes behind could only fail, too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from gkafka.cli.wording import in_tools_words
from gkafka.exceptions import (
    AuthenticationError,
    IllegalSaslState,
    KafkaException,
    KafkaTimeoutError,
    SocketDisconnectedError,
    TlsError,
    error_for,
)
from gkafka.hosts import is_address
from gkafka.probing import Probe
from gkafka.strangers import WEB_SERVER, certificate_text, day_of, in_the_clear, with_tls, with_web
from gkafka.wire.metadata import MetadataRequest

if TYPE_CHECKING:
    from gkafka.probing import Answer, Certificate

__all__ = ["Finding", "Limit", "Told", "advertised", "connection", "metadata"]

OK, WARN, FAIL, SKIP = "ok", "warn", "fail", "skip"
SOON_DAYS = 14
DAY_S = 86_400.0
CLIENT_CERTIFICATE = "the broker wants a certificate of this client that it knows the authority of: --ssl-certfile and --ssl-keyfile"
WEB_S = 2.0
"""How long whoever has not answered as a broker has to answer as a web server."""
SHAKE_SHARE = 0.75
"""How much of the step's time a TLS handshake has: the rest is for finding out who it is that says nothing."""
PATIENT_SHARE = 0.5
"""After so much of the step's time it is looked beside the waiting, who else might be there."""
GRACE_S = 0.5
"""A request's own time ends it, with more to tell; whoever waits for it does so a little longer."""
LOCAL = ("localhost", "127.", "0.0.0.0", "::1", "::")


class Finding(NamedTuple):
    """status: "ok", "warn", "fail", or "skip" for what could not be looked at. about: the address, topic or group. next: what to try."""

    step: str
    about: str
    status: str
    seen: str
    next: str = ""


class Told(NamedTuple):
    """What a broker says of its cluster. brokers: id -> (host, port)."""

    cluster_id: str | None
    controller: int
    brokers: dict[int, tuple[str, int]]


class Limit:
    """The time that is left for a step. now: a clock, in monotonic seconds."""

    def __init__(self, now: Callable[[], float], seconds: float) -> None:
        self._now = now
        self._begun, self._seconds = now(), seconds

    def left(self, share: float = 1.0) -> float:
        """Seconds; share: this part of them. More than none: what comes late fails as late."""
        return max(0.001, (self._begun + self._seconds - self._now()) * share)

    def after(self, share: float) -> float:
        """When this part of all of it is over."""
        return self._begun + self._seconds * share


Begin = Callable[[], Limit]
"""The time of a step that begins now."""


class Others(NamedTuple):
    """Who else than the broker that was looked for is there: the certificate of one that speaks TLS, a web server's first line."""

    certificate: Certificate | None
    web: str | None


# -- one address -----------------------------------------------------------------------------------------------------------
def connection(probe: Probe, begin: Begin, now_s: float) -> Iterator[Finding]:
    """Name, TCP, TLS, versions, SASL. The last finding fails if the address cannot be used. now_s: seconds since the epoch."""
    for step in (_resolve, _connect, _tls):
        findings = list(step(probe, begin(), now_s))
        yield from findings
        if any(finding.status == FAIL for finding in findings):
            return
    yield from _speak(probe, begin)


def _resolve(probe: Probe, limit: Limit, now_s: float) -> Iterator[Finding]:
    proxy = probe.proxy
    try:
        addresses = probe.resolve(limit.left())
    except KafkaException as exc:
        what = f"of the proxy {proxy}" if proxy else "of the broker"
        yield Finding(
            "resolve", probe.address, FAIL, str(exc), f"check the name {what}: is it spelled right, does this machine's DNS know it?"
        )
        return
    seen = ", ".join(addresses)
    yield Finding("resolve", probe.address, OK, f"the proxy {proxy} is {seen}, it looks the broker up" if proxy else seen)


def _connect(probe: Probe, limit: Limit, now_s: float) -> Iterator[Finding]:
    try:
        took_s = probe.connect(limit.left())
    except KafkaException as exc:
        yield Finding("connect", probe.address, FAIL, str(exc), _why_no_connection(str(exc)))
        return
    yield Finding("connect", probe.address, OK, f"connected in {took_s * 1000:.1f} ms")


def _why_no_connection(text: str) -> str:
    if "refused" in text:
        return "nobody listens there: is the broker running, is it the right port, does `listeners` have this address?"
    if "timed out" in text:
        return "something on the way is silent: a firewall or security group, or the wrong address"
    if "unreachable" in text or "No route" in text:
        return "there is no way there from this machine: a VPN, a route, or the wrong address"
    return "check the address and the port"


# -- TLS -------------------------------------------------------------------------------------------------------------------
def _tls(probe: Probe, limit: Limit, now_s: float) -> Iterator[Finding]:
    if not probe.uses_tls:
        return
    try:
        seen = probe.shake_hands(limit.left(SHAKE_SHARE))
    except KafkaException as exc:
        yield _tls_failed(probe, exc, limit, now_s)
        return
    cert = seen.certificate
    text = f"{seen.version}, " + (certificate_text(cert) if cert is not None else "the certificate is not checked")
    if cert is None:
        yield Finding("tls", probe.address, WARN, text, "leave tls.verify=false out, so that nobody in between can read and change all")
    elif cert.not_after - now_s < SOON_DAYS * DAY_S:
        yield Finding("tls", probe.address, WARN, text, "renew the broker's certificate before that day")
    else:
        yield Finding("tls", probe.address, OK, text)


def _tls_failed(probe: Probe, exc: KafkaException, limit: Limit, now_s: float) -> Finding:
    cert = probe.certificate(limit.left(0.5)) if isinstance(exc, TlsError) else None
    if cert is not None:
        return Finding(
            "tls", probe.address, FAIL, f"{exc}. It shows {certificate_text(cert)}", _certificate_next(probe, cert, str(exc), now_s)
        )
    if (line := probe.web_server(min(limit.left(), WEB_S))) is not None:
        return Finding("tls", probe.address, FAIL, f"a web server without TLS answers there: {line!r} ({exc})", WEB_SERVER)
    if isinstance(exc, KafkaTimeoutError) or "timed out" in str(exc):
        return Finding("tls", probe.address, FAIL, f"connected, but there is no answer to the handshake: {exc}", _silent())
    if probe.speaks_in_the_clear(limit.left()):
        there = in_the_clear(uses_sasl=probe.uses_sasl)
        return Finding("tls", probe.address, FAIL, f"{there.seen}: {exc}", in_tools_words(there.next))
    return Finding("tls", probe.address, FAIL, str(exc), "is this the port of a Kafka listener with TLS?")


def _certificate_next(probe: Probe, cert: Certificate, text: str, now_s: float) -> str:
    if cert.not_after < now_s:
        return f"renew the broker's certificate, which ended on {day_of(cert.not_after)} (this machine's clock says {day_of(now_s)})"
    if cert.not_before > now_s:
        return f"check the clocks: the certificate begins on {day_of(cert.not_before)}, and this machine's clock says {day_of(now_s)}"
    if "ostname mismatch" in text or "IP address mismatch" in text:
        return f"connect by one of these names, or give the broker a certificate that has {probe.host!r} in it"
    if "client certificate" in text or "refused the handshake" in text:
        return CLIENT_CERTIFICATE
    return f"give the certificate of its authority, {cert.issuer!r}: --ssl-cafile FILE"


# -- the protocol ----------------------------------------------------------------------------------------------------------
def _speak(probe: Probe, begin: Begin) -> Iterator[Finding]:
    limit, others = begin(), None
    with probe.opening(limit.left()) as channel:
        with contextlib.suppress(KafkaException):  # is told below
            channel.wait_open(limit.after(PATIENT_SHARE))
        if channel.versions is None and not channel.closed:  # who is asked goes on having the time to answer
            others = _others(probe, limit)
        answer = probe.outcome(channel, limit.left())
    if answer.versions is None:
        yield _no_versions(probe, answer.error, others, limit)
        return
    release = ".".join(map(str, answer.versions.release))
    yield Finding("versions", probe.address, OK, f"speaks what Kafka {release} does ({len(answer.versions.ranges)} APIs)")
    if not probe.uses_sasl:
        if answer.error is not None:
            yield Finding("versions", probe.address, FAIL, str(answer.error), "try again; the broker's log may say more")
        return
    if answer.error is None:
        yield Finding("sasl", probe.address, OK, "authenticated")
        return
    yield Finding("sasl", probe.address, FAIL, str(answer.error), _sasl_next(probe, answer.error, begin()))


def _others(probe: Probe, limit: Limit) -> Others:
    cert = None if probe.uses_tls else probe.certificate(limit.left(0.5))
    return Others(cert, None if cert is not None else probe.web_server(min(limit.left(), WEB_S), tls=probe.uses_tls))


def _no_versions(probe: Probe, error: KafkaException | None, others: Others | None, limit: Limit) -> Finding:
    text = str(error)
    if "HTTP" in text:
        return Finding("versions", probe.address, FAIL, text, WEB_SERVER)
    if probe.uses_tls and ("CERTIFICATE" in text or "certificate" in text):  # with TLS 1.3 the broker looks at ours behind the handshake
        return Finding("versions", probe.address, FAIL, text, CLIENT_CERTIFICATE)
    cert, line = _others(probe, limit) if others is None else others
    if cert is not None:
        there = with_tls(cert, uses_sasl=probe.uses_sasl)
        return Finding("versions", probe.address, FAIL, f"{there.seen} ({text})", in_tools_words(there.next))
    if line is not None:
        return Finding("versions", probe.address, FAIL, f"{with_web(line).seen} ({text})", WEB_SERVER)
    if isinstance(error, KafkaTimeoutError) or "no answer" in text:
        return Finding("versions", probe.address, FAIL, text, _silent())
    if isinstance(error, SocketDisconnectedError):
        return Finding(
            "versions", probe.address, FAIL, text, "is this the port of a Kafka listener? The broker's log says why it closes connections"
        )
    return Finding("versions", probe.address, FAIL, text, "is this the port of a Kafka listener?")


def _silent() -> str:
    return "somebody accepts connections and says nothing: a broker that hangs, a load balancer without one behind it, or another service"


def _sasl_next(probe: Probe, error: KafkaException, limit: Limit) -> str:
    offered = probe.mechanisms(limit.left(0.5))
    if not offered and (isinstance(error, IllegalSaslState) or not isinstance(error, AuthenticationError)):
        protocol = "SSL" if probe.uses_tls else "PLAINTEXT"
        return f"the listener may have no SASL: --security-protocol {protocol}, without --sasl-mechanism and the user; or the port of one with SASL"
    if not offered:
        return "check --sasl-mechanism, the user and the password"
    return f"the listener offers {', '.join(offered)}: check --sasl-mechanism, the user and the password"


# -- the cluster -----------------------------------------------------------------------------------------------------------
def metadata(probe: Probe, limit: Limit) -> tuple[Finding, Told | None]:
    """What this broker tells of its cluster."""
    answer = _asked(probe, MetadataRequest(topics=[]), limit)
    error = answer.error
    if error is None and (code := getattr(answer.response, "error_code", 0)):
        error = error_for(code, api="Metadata", broker=probe.address)
    if error is not None:
        return _no_metadata(probe, error, limit), None
    told = answer.response
    brokers = {b.node_id: (b.host, b.port) for b in told.brokers}
    cluster = Told(told.cluster_id, told.controller_id, brokers)
    if not brokers:
        return Finding(
            "metadata", probe.address, FAIL, "the broker tells of no broker, itself included", "is it just starting? Try again"
        ), None
    named = f"cluster {told.cluster_id}, " if told.cluster_id else ""
    listed = ", ".join(f"{id_} at {host}:{port}" for id_, (host, port) in sorted(brokers.items())[:10])
    seen = f"{named}{len(brokers)} broker(s): {listed}"
    if told.controller_id < 0:
        return Finding(
            "metadata", probe.address, WARN, f"{seen}; no controller", "see the log of the controllers: nothing can be changed"
        ), cluster
    return Finding("metadata", probe.address, OK, seen), cluster


def _asked(probe: Probe, request: Any, limit: Limit) -> Answer:
    """Probe.ask() with one time for the connection and the request."""
    with probe.opening(limit.left()) as channel:
        opened = probe.outcome(channel, limit.left())
        if opened.error is not None:
            return opened
        try:
            return opened._replace(response=channel.request(request, timeout_s=limit.left()).result(limit.left() + GRACE_S))
        except KafkaException as exc:
            return opened._replace(error=exc)


def _no_metadata(probe: Probe, error: KafkaException, limit: Limit) -> Finding:
    offered = probe.mechanisms(limit.left(0.5)) if isinstance(error, SocketDisconnectedError) and not probe.uses_sasl else []
    if offered:
        protocol = "SASL_SSL" if probe.uses_tls else "SASL_PLAINTEXT"
        return Finding(
            "metadata",
            probe.address,
            FAIL,
            f"{error}. The listener wants to know who the client is",
            f"--security-protocol {protocol} --sasl-mechanism {offered[0]} (it offers {', '.join(offered)})",
        )
    return Finding("metadata", probe.address, FAIL, str(error), "see the broker's log")


def advertised(probes: dict[int, Probe], limit: Limit, started_at: str) -> Iterator[Finding]:
    """Can each broker be used at the address that it is said to have? All are tried at once. started_at: the host that was given."""
    with contextlib.ExitStack() as stack:
        begun: dict[int, Any] = {}
        for id_, probe in probes.items():
            if is_address(probe.host, probe.port):
                begun[id_] = stack.enter_context(probe.opening(limit.left()))
        for id_, probe in probes.items():
            name = f"broker {id_} at {probe.address}"
            if id_ not in begun:
                yield Finding("advertised", name, FAIL, "that is no address", f"set advertised.listeners of broker {id_}")
                continue
            error = probe.outcome(begun[id_], limit.left()).error
            if error is None:
                yield Finding("advertised", name, OK, "reachable")
            else:
                yield Finding("advertised", name, FAIL, str(error), _advertised_next(id_, probe, started_at))


def _advertised_next(id_: int, probe: Probe, started_at: str) -> str:
    if probe.host.startswith(LOCAL) and not started_at.startswith(LOCAL):
        return f"broker {id_} sends clients to their own machine: set its advertised.listeners to an address that clients reach"
    return (
        f"clients are sent there whatever --bootstrap-server says: make {probe.address} reachable from here (DNS, firewall, port mapping), or "
        f"set advertised.listeners of broker {id_} to an address that is"
    )
