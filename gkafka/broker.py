"""A broker: its address, and the connections to it, one for each kind of work.

A Kafka broker serves one request of a connection at a time. What it may park (fetches, joins) therefore never shares a connection with
what must not wait; see `Role`. A connection opens when it is first used and again after it broke, with backoff.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from copy import copy
from typing import TYPE_CHECKING, Any

from gkafka.brokercalls import BrokerCalls, BrokerRequests
from gkafka.config import ClientConfig
from gkafka.core.backoff import Backoff, Retry
from gkafka.errortexts import told_at
from gkafka.exceptions import AuthenticationError, ConfigurationError, ConnectionFailedError, KafkaException, UnsupportedVersion
from gkafka.hosts import parse_host
from gkafka.net.buffers import BufferPool
from gkafka.net.channel import Channel, CutShort
from gkafka.net.credentials import Credentials, make_credentials
from gkafka.net.guesses import Guesses
from gkafka.net.openings import Openings, Rank
from gkafka.net.options import config_of, source_of
from gkafka.net.reader import Taker
from gkafka.sasloptions import hide_hosts, hide_tls
from gkafka.undoing import Undoing
from gkafka.wire.apis import Versions

if TYPE_CHECKING:
    from gkafka.handlers import Handler

__all__ = ["CONTROL", "OFFSETS", "PRODUCE", "Broker"]

CONTROL = "control"
"""Metadata, look-ups, administration that answers at once."""
OFFSETS = "offsets"
"""Offset commits and fetches of groups (pykafka's offsets channel, with a timeout of its own)."""
PRODUCE = "produce"
"""All producers of a client."""
SMALLEST_BUFFER = 4
"""Bytes: what tells an answer's size."""
GIVEN_UP_S = 0.01
"""When a broker whose connection is being given up is looked at again."""


class Broker(BrokerCalls):
    """One broker of a cluster.

    The first seven parameters and the two that follow are documented (reference: pykafka-2.x broker). id_: the broker's id; times in
    milliseconds; buffer_size: the receive buffer that answers start in, one for each connection; larger answers are received whole all the
    same. api_versions: what the broker speaks, so that it is not asked: a `gkafka.wire.versions.Versions`, or API key -> (oldest, newest).
    """

    def __init__(
        self,
        id_: int,
        host: str | bytes,
        port: int,
        handler: Handler,
        socket_timeout_ms: float,
        offsets_channel_socket_timeout_ms: float,
        buffer_size: int = 1024 * 1024,
        source_host: str = "",
        source_port: int = 0,
        ssl_config: Any = None,
        broker_version: str = "0.9.0",
        api_versions: Any = None,
        *,
        config: ClientConfig | None = None,
        buffers: BufferPool | None = None,
        credentials: Credentials | None = None,
        on_unreachable: Callable[[], None] | None = None,
        openings: Openings | None = None,
    ) -> None:
        ssl_config, source_host, source_port = hide_tls(ssl_config), hide_hosts(source_host), hide_hosts(source_port)
        if config is None:  # a user gives it, and not a broker
            host = hide_hosts(host)
            host = parse_host(host)
        self._id = id_
        self._host = host.decode() if isinstance(host, bytes) else host
        self._port = port
        self._handler = handler
        self._socket_timeout_ms = socket_timeout_ms
        self._offsets_timeout_ms = offsets_channel_socket_timeout_ms
        self._config = config or config_of(
            "Broker()",
            ssl_config,
            socket_timeout_ms=socket_timeout_ms,
            offsets_channel_socket_timeout_ms=offsets_channel_socket_timeout_ms,
            source_address=source_of(source_host, source_port),
            broker_version=broker_version,
        )
        if not isinstance(buffer_size, int) or buffer_size < SMALLEST_BUFFER:
            raise ConfigurationError(f"buffer_size={buffer_size!r}: must be {SMALLEST_BUFFER} bytes or more")
        self._buffer_size = buffer_size
        self._api_versions = _versions(api_versions, f"{self._host}:{port}")
        self._buffers = buffers
        self._credentials = credentials or make_credentials(handler, self._config)
        self._backoff = Backoff(self._config.reconnect_backoff_ms / 1000, self._config.reconnect_backoff_max_ms / 1000)
        self._chance = handler.random()
        self._retry = Retry()
        self._on_unreachable = on_unreachable  # what was told of where it is may be wrong
        self._openings = openings or Openings(handler)
        self._rank = Rank.NEW  # of the next connection
        self._was_reached = False
        self._last_error: KafkaException | None = None
        self._channels: dict[object, Channel] = {}
        self._request_handlers: dict[object, BrokerRequests] = {}
        self._lock = handler.Mutex()
        self._shut = False

    @classmethod
    def from_metadata(
        cls,
        metadata: Any,
        handler: Handler,
        socket_timeout_ms: float,
        offsets_channel_socket_timeout_ms: float,
        buffer_size: int = 64 * 1024,
        source_host: str = "",
        source_port: int = 0,
        ssl_config: Any = None,
        broker_version: str = "0.9.0",
        api_versions: Any = None,
    ) -> Broker:
        """A Broker from a metadata entry: anything with `id`, `host` and `port`."""
        ssl_config, source_host, source_port = hide_tls(ssl_config), hide_hosts(source_host), hide_hosts(source_port)
        return cls(
            metadata.id,
            metadata.host,
            metadata.port,
            handler,
            socket_timeout_ms,
            offsets_channel_socket_timeout_ms,
            buffer_size=buffer_size,
            source_host=source_host,
            source_port=source_port,
            ssl_config=ssl_config,
            broker_version=broker_version,
            api_versions=api_versions,
        )

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} at {id(self):#x} (host={self._host}, port={self._port}, id={self._id})>"

    # -- documented properties -----------------------------------------------------------------------------------------
    @property
    def id(self) -> int:
        """The broker's id in the cluster."""
        return self._id

    @property
    def host(self) -> str:
        """The advertised host name or address."""
        return self._host

    @property
    def port(self) -> int:
        """The advertised port."""
        return self._port

    @property
    def handler(self) -> BrokerRequests:
        """For requests of one's own outside of the commit and fetch API: a RequestHandler on the control connection."""
        return self._requests_of(CONTROL)

    @property
    def offsets_channel_handler(self) -> BrokerRequests:
        """For requests of one's own of the commit and fetch API: a RequestHandler on the offsets connection."""
        return self._requests_of(OFFSETS)

    @property
    def connected(self) -> bool:
        """Is the control connection open?"""
        return self._is_open(CONTROL)

    @property
    def offsets_channel_connected(self) -> bool:
        """Is the offsets connection open?"""
        return self._is_open(OFFSETS)

    def _is_open(self, role: object) -> bool:
        channel = self._channels.get(role)
        return channel is not None and channel.opened and not channel.closed

    # -- connections -----------------------------------------------------------------------------------------------------
    def connect(self, attempts: int = 3) -> None:
        """Open the control connection. Raises ConnectionFailedError after so many attempts."""
        self._connect(CONTROL, attempts)

    def connect_offsets_channel(self, attempts: int = 3) -> None:
        """Open the offsets connection. Raises ConnectionFailedError after so many attempts."""
        self._connect(OFFSETS, attempts)

    def _connect(self, role: object, attempts: int) -> None:
        self._handler.check_fork()
        for attempt in range(attempts):
            self._handler.sleep(max(0.0, self.ready_at - self._handler.monotonic()))
            try:
                channel = self.channel(role)
                channel.wait_open(self._handler.monotonic() + self._config.connect_timeout_ms / 1000)
                return
            except KafkaException as exc:
                if attempt + 1 == attempts or isinstance(exc, AuthenticationError):
                    raise

    @property
    def ready_at(self) -> float:
        """When this broker may be connected again, in the handler's monotonic seconds; a past time means now."""
        for channel in list(self._channels.values()):
            if channel.is_left:
                channel.close()  # if signals in a row have kept its reader from that
                return max(self._retry.not_before, self._handler.monotonic() + GIVEN_UP_S)
        return self._retry.not_before

    def hurry(self, by: float) -> bool:
        """Have it connected again by this time at the latest, if it rests for longer. Returns whether it did. One that has refused this client rests on."""
        return not isinstance(self._last_error, AuthenticationError) and self._retry.hurry(by)

    @property
    def is_failing(self) -> bool:
        """Did the last try to reach it fail, and is no connection open?"""
        return self._retry.failures > 0 and not any(channel.opened and not channel.closed for channel in list(self._channels.values()))

    @property
    def standing(self) -> str:
        """At which step the control connection stands, while it is being opened; else ""."""
        channel = self._channels.get(CONTROL)
        return "" if channel is None else channel.standing

    @property
    def is_silent(self) -> bool:
        """Is somebody there who took the control connection and has not said yet what it speaks?"""
        channel = self._channels.get(CONTROL)
        return channel is not None and channel.is_silent

    @property
    def refusal(self) -> AuthenticationError | None:
        """Why the broker did not take this client, until it may be tried again."""
        error = self._last_error
        resting = self._handler.monotonic() < self._retry.not_before
        return error if resting and isinstance(error, AuthenticationError) else None

    def channel(self, role: object, taker: Taker | None = None) -> Channel:
        """The connection for a kind of work, open or opening. taker: is offered one that is opened for this call, with its descriptor: whose worker reads it, if
        he takes it (True).

        Raises ConnectionFailedError while the pause after a failure lasts; the AuthenticationError again if it was one.
        """
        channel = self._channels.get(role)
        if channel is not None and not channel.closed:
            return channel
        with self._lock:
            channel = self._channels.get(role)
            if channel is not None and not channel.closed:
                return channel
            now = self._handler.monotonic()
            if channel is not None:
                # Whose requests were lost is still being told so: on a new connection something newer could overtake them.
                raise ConnectionFailedError(f"{self._host}:{self._port}: its connection is being given up", broker=self._id)
            if self._shut:
                raise ConnectionFailedError(f"{self._host}:{self._port}: the client was closed", broker=self._id)
            if now < self._retry.not_before:
                if isinstance(self._last_error, AuthenticationError):  # told again at once: nothing is gained by waiting for another try
                    raise copy(self._last_error) from self._last_error.__cause__
                address = f"{self._host}:{self._port}"
                raise ConnectionFailedError(told_at(address, self._last_error), broker=self._id) from self._last_error
            name = role if isinstance(role, str) else _kind(role)
            channel = Channel(
                self._handler,
                self._host,
                self._port,
                self._config,
                role=name,
                broker_id=self._id,
                on_close=_weakly(self),
                buffers=self._buffers,
                receive_bytes=self._buffer_size,
                versions=self._api_versions,
                credentials=self._credentials,
                openings=self._openings,
                rank=Rank.KNOWN if any(other.opened for other in self._channels.values()) else self._rank,
                taker=taker,
            )
            self._channels[role] = channel
        channel.start()
        return channel

    def _on_close(self, channel: Channel, error: KafkaException | None) -> None:
        if isinstance(error, CutShort):
            error = None  # it says nothing about the broker
        with self._lock:
            for role in [r for r, c in self._channels.items() if c is channel]:
                del self._channels[role]
            self._rank_next(channel, error)
            if channel.was_open:  # what closed a connection that worked is the first failure, however many there were before it
                self._retry.succeeded()
            if error is not None:
                # Without the frames that it was raised in: they hold the requests that were under way, and whoever made those.
                self._last_error = error.with_traceback(None)
                self._retry.failed(self._backoff, self._handler.monotonic(), self._chance)
        if error is not None and not channel.was_open and self._on_unreachable is not None:
            self._on_unreachable()

    def _rank_next(self, closed: Channel, error: KafkaException | None) -> None:
        if closed.was_open:
            self._rank, self._was_reached = Rank.KNOWN, True
        elif error is not None:
            self._rank = Rank.NEW if self._was_reached else Rank.FAILING

    def send(
        self,
        role: object,
        request: Any,
        on_done: Callable[[Any, KafkaException | None], None],
        *,
        timeout_s: float,
        max_version: int | None = None,
        expects_response: bool = True,
    ) -> Channel:
        """Send without waiting; on_done gets the outcome from the connection's worker. Raises only while the broker may not be tried.

        Returns that connection.
        """
        channel = self.channel(role)
        channel.send(request, on_done, timeout_s=timeout_s, max_version=max_version, expects_response=expects_response)
        return channel

    def call(
        self,
        role: object,
        request: Any,
        *,
        timeout_s: float | None = None,
        max_version: int | None = None,
    ) -> Any:
        """Send and wait for the answer. timeout_s: seconds, None: the role's socket timeout. Raises the error there was."""
        self._handler.check_fork()
        self._handler.checkpoint()  # the first request of a kind takes some ms: those of many greenlets are not made in one go
        if timeout_s is None:
            timeout_s = (self._offsets_timeout_ms if role == OFFSETS else self._socket_timeout_ms) / 1000
        future = self.channel(role).request(request, timeout_s=timeout_s, max_version=max_version)
        return future.result(timeout_s + 1.0)

    @property
    def told_versions(self) -> Versions | None:
        """What the broker last said that it speaks, on whichever connection of this client; None if it never did."""
        return Guesses.of(self._handler).told.get((self._host, self._port))

    @property
    def versions(self) -> Versions | None:
        """What the broker speaks, as one of its open connections was told; None while none is open."""
        for channel in list(self._channels.values()):
            if channel.versions is not None:
                return channel.versions
        return None

    @property
    def load(self) -> tuple[bool, int]:
        """For choosing whom to ask: (is the control connection closed?, requests under way on it)."""
        channel = self._channels.get(CONTROL)
        if channel is None or channel.closed:
            return True, 0
        return not channel.opened, channel.in_flight

    def __del__(self) -> None:
        # A client that was dropped without close(): flags only, no lock and no wait in a finalizer.
        for channel in list(getattr(self, "_channels", {}).values()):
            channel.abandon()

    def is_known_as(self, id_: int) -> None:
        """The metadata told the id of a broker that so far was only an address to start from."""
        self._id = id_

    def drop_channel(self, role: object) -> None:
        """Close one connection if it is there."""
        channel = self._channels.get(role)
        if channel is None:
            return
        with Undoing(channel.abandon):  # after a signal handler's exception nobody knows of the connection any more
            with self._lock:
                if self._channels.get(role) is channel:
                    del self._channels[role]
            channel.close()

    def doubt_again(self, role: object, what: str, error: UnsupportedVersion) -> KafkaException | None:
        """A request is too new for it. If that is by what it is only taken for: the error with which to try again, on a new connection."""
        channel = self._channels.get(role)
        doubt = channel.doubt_again(what) if channel is not None else None
        if doubt is not None:
            doubt.__cause__ = error
            self.drop_idle(role)
        return doubt

    def has_channel(self, role: object) -> bool:
        """Is there a connection for this kind of work, open or opening?"""
        channel = self._channels.get(role)
        return channel is not None and not channel.closed

    def drop_idle(self, role: object) -> None:
        """Close one connection, open or opening, that carries nothing that anyone still waits for."""
        channel = self._channels.get(role)
        now = self._handler.monotonic()
        if channel is not None and not channel.closed and not channel.is_awaited(now):
            self.drop_channel(role)

    def close(self) -> None:
        """Close every connection. What was under way on them fails. Whoever is cut short in here leaves the rest to the next call."""
        with self._lock:
            self._shut = True
            channels = list(self._channels.values())
        for channel in channels:
            channel.close()  # each is taken out as it has ended

    def stats(self) -> dict[str, Any]:
        """Open connections and what is under way on each."""
        channels: Iterable[tuple[object, Channel]] = list(self._channels.items())
        return {
            "id": self._id,
            "address": f"{self._host}:{self._port}",
            "failures": self._retry.failures,
            "connections": [{"role": c.role, "open": c.opened and not c.closed, "in_flight": c.in_flight} for _, c in channels],
        }


def _weakly(broker: Broker) -> Callable[[Channel, KafkaException | None], None]:
    """The broker's on_close, without keeping the broker: a connection's worker must not keep its client alive."""
    me = weakref.ref(broker)

    def on_close(channel: Channel, error: KafkaException | None) -> None:
        owner = me()
        if owner is not None:
            owner._on_close(channel, error)

    return on_close


def _kind(role: object) -> str:
    """What a connection is for, in logs: "group" of ("group", "member-1")."""
    return role[0] if isinstance(role, tuple) and role and isinstance(role[0], str) else "fetch"


def _versions(given: Any, peer: str) -> Versions | None:
    """What a user says of a broker. Ranges are (oldest, newest), or end so, as pykafka's (key, oldest, newest)."""
    if given is None or isinstance(given, Versions):
        return given
    try:
        ranges = {int(key): (int(spoken[-2]), int(spoken[-1])) for key, spoken in given.items()}
    except (AttributeError, TypeError, ValueError, LookupError):
        raise ConfigurationError(
            f"api_versions={given!r}: must be Versions, as Versions.for_broker('2.8'), or a mapping of API keys to (oldest, newest)"
        ) from None
    return Versions(ranges, peer)
