"""From a host name to a connected stream, encrypted if the options say so."""

from __future__ import annotations

from collections.abc import Callable

from gkafka.config import ClientConfig
from gkafka.exceptions import ConnectionFailedError, KafkaTimeoutError, SocketDisconnectedError
from gkafka.handlers.base import Address, Handler, Stream
from gkafka.hosts import Proxy, parse_proxy_url
from gkafka.net.steps import NOTHING, Steps
from gkafka.undoing import Undoing

__all__ = ["open_stream"]


class _Unanswered(KafkaTimeoutError):
    """The connection is open, and nothing, or not all, came of the TLS handshake."""


def open_stream(
    handler: Handler,
    host: str,
    port: int,
    *,
    deadline: float,
    config: ClientConfig,
    made: Callable[[Stream], object] | None = None,
    steps: Steps | None = None,
) -> Stream:
    """Connect to the first address of a host that answers; with security_protocol SSL or SASL_SSL, the handshake included.

    With proxy_url it is the proxy's addresses that are tried, and the proxy finds the host. Each address gets an equal share of the time
    that is left. made: given each TCP stream before it is connected, to close it if nobody wants it any more. steps: is told where this stands. Raises ConnectionFailedError naming every address that was tried and why it failed; its subclasses TlsError and ProxyError,
    without trying further addresses, if the peer's certificate, TLS itself or the proxy is at fault.
    """
    if config.uses_tls:
        from gkafka.net.tlscontext import contexts  # ssl is imported only by those who use it

        contexts.get(handler, config)  # now: what is wrong with its files, or with the pass phrase, needs no connection to be told
    steps = Steps(handler.monotonic) if steps is None else steps
    proxy = None if config.proxy_url is None else parse_proxy_url(config.proxy_url)
    steps.at("name lookup")
    addresses = _resolve(handler, host, port, deadline) if proxy is None else _resolve_proxy(handler, proxy, host, port, deadline)
    failures: list[str] = []
    cause: OSError | None = None
    unanswered = True
    for index, address in enumerate(addresses):
        handler.checkpoint()  # many that ask for one host are answered in one turn of a hub
        now = handler.monotonic()
        try:
            until = now + (deadline - now) / (len(addresses) - index)
            return _connect(handler, host, port, address, until, config, proxy, made, steps)
        except (KafkaTimeoutError, SocketDisconnectedError, OSError) as exc:
            if isinstance(exc, ConnectionFailedError) and not exc.retriable:
                raise
            failures.append(_reason(address, exc, handler.monotonic() - now, steps).removeprefix(f"{_address_of(host, port)}: "))
            cause = exc
            unanswered = unanswered and isinstance(exc, _Unanswered)
    what = "no TLS" if unanswered else "no connection"
    raise ConnectionFailedError(f"{host}:{port}: {what}: {'; '.join(failures)}", broker=f"{host}:{port}") from cause


def _address_of(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _resolve(handler: Handler, host: str, port: int, deadline: float) -> list[Address]:
    try:
        return handler.getaddrinfo(host, port, deadline)
    except KafkaTimeoutError as exc:
        raise ConnectionFailedError(str(exc), broker=f"{host}:{port}") from exc


def _resolve_proxy(handler: Handler, proxy: Proxy, host: str, port: int, deadline: float) -> list[Address]:
    try:
        return _resolve(handler, proxy.host, proxy.port, deadline)
    except ConnectionFailedError as exc:
        raise ConnectionFailedError(f"{host}:{port}: its proxy cannot be reached: {exc}", broker=f"{host}:{port}") from exc


def _connect(
    handler: Handler,
    host: str,
    port: int,
    address: Address,
    deadline: float,
    config: ClientConfig,
    proxy: Proxy | None,
    made: Callable[[Stream], object] | None,
    steps: Steps,
) -> Stream:
    steps.heard("")
    steps.at("TCP connect")
    stream = handler.create_connection(
        address,
        deadline,
        source_address=config.source_address,
        sockopts=config.socket_options,
        keepalive_idle_s=config.keepalive_idle_s if config.keepalive else None,
        made=made,
    )
    steps.heard(NOTHING)
    if proxy is not None:
        from gkafka.net.proxy import open_tunnel  # only for those who have one

        with Undoing(stream.close):
            open_tunnel(stream, proxy, host, port, deadline, steps)
    if not config.uses_tls:
        return stream
    from gkafka.net.tls import start_tls  # ssl is imported only by those who use it

    steps.at("TLS handshake")
    try:
        return start_tls(handler, stream, host, port, deadline=deadline, config=config, heard=steps.heard)
    except KafkaTimeoutError as exc:
        raise _Unanswered(str(exc)) from exc


def _reason(address: Address, exc: OSError, seconds: float, steps: Steps) -> str:
    where = _address_of(*address[1][:2])
    if isinstance(exc, _Unanswered) and steps.last == NOTHING:
        return (
            f"{where}: TCP is open, but the TLS handshake was not answered: timed out after {seconds:.1f} s: does that listener speak TLS?"
        )
    if isinstance(exc, KafkaTimeoutError):
        return f"{where}: timed out after {seconds:.1f} s at step {steps.name}{steps.received}"
    if isinstance(exc, SocketDisconnectedError):
        return str(exc)
    return f"{where}: {exc.strerror or exc}"
