"""The cluster as one client sees it: brokers, topics, and the calls that find the right broker and try again.

Metadata needs no worker of its own. Whoever waits for it, and every producer and fetch worker, calls `poll()`, which sends the request
that the machine in `gkafka.core.metadata` wants; the answer comes in on the connection's worker and wakes all who wait.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from typing import TYPE_CHECKING, Any

from gkafka.broker import CONTROL, OFFSETS, Broker
from gkafka.checks import check_name, check_text, check_topic_name
from gkafka.config import ClientConfig
from gkafka.core.backoff import Backoff
from gkafka.core.metadata import BrokerInfo, Metadata, TopicInfo, read_topics
from gkafka.core.offsets import coordinator_of, coordinator_request
from gkafka.errortexts import missing_topic, not_in_time, told_at
from gkafka.exceptions import (
    AuthenticationError,
    ClientClosedError,
    ConfigurationError,
    ConnectionFailedError,
    KafkaException,
    KafkaTimeoutError,
    LeaderNotFoundError,
    NoBrokersAvailableError,
    ProtocolError,
    ProxyError,
    RebootstrapRequired,
    SocketDisconnectedError,
    Stale,
    TlsError,
    TokenEndpointError,
    UnknownTopicError,
    UnknownTopicOrPartition,
    UnsupportedVersion,
    error_for,
    without_frames,
)
from gkafka.hosts import is_address, parse_hosts, parse_source_address, parse_zookeeper
from gkafka.logs import get_logger
from gkafka.net.buffers import BufferPool
from gkafka.net.channel import CutShort
from gkafka.net.credentials import make_credentials
from gkafka.net.looks import LOST_S
from gkafka.net.openings import Openings
from gkafka.net.options import check_client, config_of
from gkafka.oneprocess import OfOneProcess
from gkafka.sasloptions import hide_hosts, hide_tls, with_region
from gkafka.topicdict import TopicDict
from gkafka.undoing import Undoing
from gkafka.wire.apis import TooManyEntries, Versions
from gkafka.wire.metadata import RELIABLE_EPOCHS, MetadataRequest, MetadataResponse
from gkafka.wire.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

if TYPE_CHECKING:
    from gkafka.handlers import Handler
    from gkafka.membership import Member
    from gkafka.producermemory import ProducerMemory
    from gkafka.protocol.admin import ApiVersionsSpec, DescribeGroupResponse

__all__ = ["Cluster", "TopicDict"]

log = get_logger(__name__)

FIRST_TRIES = 3
"""Times that each bootstrap host is tried before a client that never had an answer gives up."""
LONG_TRY_S = 0.5
"""Who has waited for so long is told of an answer that is none without more tries."""
FINAL = (ConfigurationError, ProxyError, TlsError, TokenEndpointError, TooManyEntries)
"""What one try of a host is enough for: the next would end the same way."""
RECEIVE_BYTES = 64 * 1024
"""The buffer_size of brokers that the metadata names, as `Broker.from_metadata` has it."""
TICK_S = 1.0
"""Longest wait of a caller between two looks at what is due."""
SILENT_S = 3.0
"""How long a host may say nothing before it is looked who is there; half of the time of a call, if that is less. A busy broker answers within it."""
STRANGERS_S = 2.0
"""How long it is looked who has not answered as a broker does."""
ELECTION_S = 1.0
"""How long a call that looks goes on to ask for a leader where brokers say that there is none. That of a topic just made, or just elected, is
there by then; one that is down is not."""


def _text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name


class Cluster(OfOneProcess):
    """Brokers and topics of a Kafka cluster.

    The first six parameters are documented (reference: pykafka-2.0.4 Cluster), the next three are those of pykafka 2.8.
    hosts: comma-separated host:port; zookeeper_hosts: "host:port,host:port/chroot" of a ZooKeeper that knows the brokers, in place of hosts; times in
    milliseconds; source_address: "host:port" of the sockets.
    """

    def __init__(
        self,
        hosts: str | bytes,
        handler: Handler,
        socket_timeout_ms: float = 30 * 1000,
        offsets_channel_socket_timeout_ms: float = 10 * 1000,
        exclude_internal_topics: bool = True,
        source_address: str = "",
        zookeeper_hosts: str | None = None,
        ssl_config: Any = None,
        broker_version: str = "0.9.0",
        *,
        config: ClientConfig | None = None,
    ) -> None:
        hosts, zookeeper_hosts, ssl_config = hide_hosts(hosts), hide_hosts(zookeeper_hosts), hide_tls(ssl_config)
        source_address = hide_hosts(source_address)
        self._handler = handler
        if config is not None:
            config = with_region(config, hosts)
            check_client(config)
        self.config = config or config_of(
            "Cluster()",
            ssl_config,
            socket_timeout_ms=socket_timeout_ms,
            offsets_channel_socket_timeout_ms=offsets_channel_socket_timeout_ms,
            source_address=parse_source_address(source_address),
            broker_version=broker_version,
        )
        self._credentials = make_credentials(handler, self.config)
        self._buffers = BufferPool(handler.Mutex())  # one for all connections: its bound is the client's
        self._openings = Openings(handler)
        if zookeeper_hosts is not None:
            parse_zookeeper("zookeeper_hosts", zookeeper_hosts)  # what can be no address is told now
        self._zookeeper_hosts = None if zookeeper_hosts is None else check_text("zookeeper_hosts", zookeeper_hosts)
        self._chance = handler.random()
        self.metadata = Metadata(
            max_age_s=self.config.metadata_max_age_ms / 1000,
            max_idle_s=self.config.metadata_max_idle_ms / 1000,
            backoff=Backoff(0.1, 1.0),
            chance=self._chance,
            auto_create=self.config.auto_create_topics,
        )
        # All: whoever was to close one that was replaced may have been cut short.
        self._made: weakref.WeakSet[Broker] = weakref.WeakSet()
        self._bootstrap: list[Broker] = []
        if self._zookeeper_hosts is None:
            hosts_text = check_text("hosts", hosts) if isinstance(hosts, bytes) else hosts
            self._begin_with(parse_hosts(hosts_text, self.config.security_protocol))
        self._made_of = hosts, exclude_internal_topics
        self._topics: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()  # Topic objects in use, by name
        self._brokers: dict[int, Broker] = {}
        self._lock = handler.Mutex()
        self._round = handler.Event()
        self._asked_until = 0.0  # until when an answer may come; it counts as lost then
        self._failures: dict[str, tuple[int, KafkaException]] = {}  # of each address: times that it failed in a row, and how it did last
        self._refusals = 0
        self._refusal: AuthenticationError | None = None
        self._coordinators: dict[str, int] = {}
        self._listed_at = -float("inf")
        self.in_order = True  # False: the application was left by an exception, what it was at work on is not finished
        self.until: float | None = None
        """When a program must be done with all that it asks: calls to which it gives no time of their own share what is left."""
        self._closed = False
        self._over = handler.Event()  # close() was called: what whoever pauses between two tries waits for
        self.called = "KafkaClient"  # what its user has made: a skin's own class
        self.topic_patience_s: float | None = UNKNOWN_TOPIC_PATIENCE_S  # for a topic that is not there; None: all of the caller's time
        self.waits_for_hosts = False  # while nobody has been reached yet, or a partition has no leader; True: all of the time of the caller
        self.versions: Versions | None = None
        self._waiting: dict[str, int] = {}
        self.metadata.waiting = self._waiting
        # Producers and consumers that live on these connections: close() ends them first.
        self.engines: weakref.WeakSet[Any] = weakref.WeakSet()
        self._adopting = True
        # Members that were told to leave inside a callback of theirs, and go on behind it.
        self._leaving: weakref.WeakSet[Member] = weakref.WeakSet()
        self._memory: ProducerMemory | None = None
        # What their workers sleep on: close() wakes those whose engine was dropped without a word, too.
        self.sleepers: weakref.WeakSet[Any] = weakref.WeakSet()

    def _begin_with(self, addresses: list[tuple[str, int]]) -> None:
        self._bootstrap = [self._make_broker(-1 - i, host, port) for i, (host, port) in enumerate(addresses)]

    def _ask_zookeeper(self, deadline: float) -> None:
        """Where the brokers are, if that is to be found out."""
        if self._bootstrap or self._zookeeper_hosts is None:
            return
        from gkafka.zookeeper import brokers_of  # kazoo is imported only by those who use it

        timeout_ms = max(1.0, min(self.config.connect_timeout_ms, (deadline - self._handler.monotonic()) * 1000))
        addresses = brokers_of(self._zookeeper_hosts, self.config.security_protocol, timeout_ms, self._handler, self.check_open)
        with self._lock:
            if not self._bootstrap:
                self._begin_with(addresses)

    def _make_broker(self, id_: int, host: str, port: int) -> Broker:
        c = self.config
        made = Broker(
            id_,
            host,
            port,
            self._handler,
            c.socket_timeout_ms,
            c.offsets_channel_socket_timeout_ms,
            buffer_size=RECEIVE_BYTES,
            config=c,
            buffers=self._buffers,
            credentials=self._credentials,
            on_unreachable=self.metadata.invalidate,
            openings=self._openings,
        )
        self._made.add(made)
        return made

    def __repr__(self) -> str:
        bootstrap = getattr(self, "_bootstrap", ())  # not there yet where a traceback shows the arguments of a call that failed
        hosts = ",".join(f"{b.host}:{b.port}" for b in bootstrap)
        return f"<{type(self).__module__}.{type(self).__name__} at {id(self):#x} (hosts={hosts})>"

    def renewed(self, handler: Handler) -> Cluster:
        """The same cluster for another handler, with connections of its own."""
        hosts, exclude_internal_topics = self._made_of
        return Cluster(
            hosts, handler, exclude_internal_topics=exclude_internal_topics, zookeeper_hosts=self._zookeeper_hosts, config=self.config
        )

    # -- documented --------------------------------------------------------------------------------------------------------
    @property
    def handler(self) -> Handler:
        """The concurrency handler."""
        return self._handler

    @property
    def brokers(self) -> dict[int, Broker]:
        """Brokers by id."""
        if not self.metadata.version:
            self.ensure_listed()
        return self._brokers

    @property
    def topics(self) -> TopicDict:
        """Topics by name. What it returns keeps this cluster."""
        return TopicDict(self, self._made_of[1], self._topics)

    def update(self) -> None:
        """Refresh brokers and all topics from current metadata. Raises NoBrokersAvailableError or KafkaTimeoutError."""
        self.list_topics(self._deadline(None))
        self._listed_at = self._handler.monotonic()
        self.topics.refresh()

    def list_topics(self, deadline: float) -> None:
        """Have a list of all topics that is asked for from now on, in `metadata`; nothing is created by that. Raises as update() does."""
        with self._lock:
            listing = self.metadata.want_everything()
        self._wait(lambda: self.metadata.listings >= listing, deadline, "fresh metadata")

    def get_group_coordinator(self, consumer_group: str | bytes) -> Broker:
        """The broker that keeps the group's members and offsets. Asks anew each time."""
        group = check_name("consumer_group", consumer_group)
        return self._find_coordinator(group, self._deadline(None))

    def get_offset_manager(self, consumer_group: str | bytes) -> Broker:
        """The broker that keeps the group's offsets (the documented name)."""
        return self.get_group_coordinator(consumer_group)

    def get_managed_group_descriptions(self) -> dict[bytes, DescribeGroupResponse]:
        """All groups whose members the brokers manage: id -> a description, as `Broker.describe_groups` gives it.

        Raises the error of a broker that cannot list its groups, UnsupportedVersion before Kafka 0.9.
        """
        from gkafka.protocol.base import Names  # only for whoever asks

        found: Names[DescribeGroupResponse] = Names()
        for broker in list(self.brokers.values()):
            listed = broker.list_groups()
            error = error_for(listed.error, broker=address_of(broker), api="ListGroups")
            if error is not None:
                raise error
            if listed.groups:
                found.update(broker.describe_groups(listed.groups).groups)
        return found

    def fetch_api_versions(self) -> dict[int, ApiVersionsSpec]:
        """What a broker, any broker, speaks: API key -> the range of its versions. Before Kafka 0.10, which cannot tell: what is taken for it."""
        from gkafka.protocol.admin import ApiVersionsRequest, ApiVersionsResponse, ApiVersionsSpec

        try:
            response, _ = self.call_any(ApiVersionsRequest().to_message(), self._deadline(None))
        except UnsupportedVersion:
            versions = self.some_broker().versions
            if versions is None:
                raise
            return {key: ApiVersionsSpec(key, low, high) for key, (low, high) in versions.ranges.items()}
        return ApiVersionsResponse(response).api_versions

    # -- polling -------------------------------------------------------------------------------------------------------------
    def poll(self) -> float:
        """Send the metadata request that is due, if one is. Returns when to call again at the latest (monotonic seconds)."""
        now = self._handler.monotonic()
        with self._lock:
            if now < self._asked_until or self._closed:
                return now + TICK_S
            due = self.metadata.due(now)
            if now < due:
                return due
            broker = self._whom_to_ask(now)
            if broker is None:
                return self._next_candidate(now)
        with Undoing(self._ask_again):  # after an interruption nobody knows whether the request went out
            with self._lock:
                if now < self._asked_until:
                    return now + TICK_S
                self._asked_until = now + self.config.socket_timeout_ms / 1000 + LOST_S
                request = self.metadata.request()
            try:
                broker.send(
                    CONTROL, request, lambda r, e: self._on_metadata(broker, request, r, e), timeout_s=self.config.socket_timeout_ms / 1000
                )
            except KafkaException as exc:
                self._on_metadata(broker, request, None, exc)
        return now + TICK_S

    def _ask_again(self) -> None:
        self._asked_until = 0.0

    def _candidates(self) -> list[Broker]:
        # Known brokers first; the bootstrap hosts stay as the way back when the whole cluster has moved (B53).
        return list(dict.fromkeys([*self._brokers.values(), *self._bootstrap]))

    def _whom_to_ask(self, now: float) -> Broker | None:
        """A broker that is known, if one can be reached; else those and the hosts that were given (KIP-899): what was told may be wrong."""
        pool = [b for b in self._brokers.values() if b.ready_at <= now and not b.is_failing]
        pool = pool or [b for b in self._candidates() if b.ready_at <= now]
        return min(pool, key=lambda b: (b.is_failing, *b.load, self._chance.random()), default=None)

    def hurry(self, by: float) -> bool:
        """Have brokers that could not be reached tried again by this time at the latest. Returns whether any would have rested for longer."""
        hurried = [broker.hurry(by) for broker in self._candidates()]
        return any(hurried)

    def _next_candidate(self, now: float) -> float:
        return min((b.ready_at for b in self._candidates()), default=now + TICK_S)

    def _on_metadata(self, broker: Broker, asked: MetadataRequest, response: MetadataResponse | None, error: KafkaException | None) -> None:
        topics: Mapping[str, TopicInfo] = {}
        if response is not None:
            for read in read_topics(response, epochs=_tells_epochs(broker.versions)):
                topics = read
                self._handler.checkpoint()  # between those of 10,000 partitions others get their turns
        now = self._handler.monotonic()
        gone: list[Broker] = []
        with self._lock:
            self._asked_until = 0.0
            if response is not None and response.error_code:
                error, response = error_for(response.error_code, api="Metadata", broker=address_of(broker)), None
                gone = self._begin_anew(error)
            if response is not None and not response.brokers:
                error, response = NoBrokersAvailableError(f"{broker.host}:{broker.port} told of no broker"), None
            if response is not None and (wrong := _impossible(response)) is not None:
                text = f"{address_of(broker)}: Metadata response: {wrong}"
                error, response = ProtocolError(text, broker=address_of(broker), api="Metadata"), None
            if response is None:
                assert error is not None
                tries = self._tries(address_of(broker)) + (not isinstance(error, CutShort))
                self._failures[address_of(broker)] = (tries, without_frames(error))
                self._refusal = error if isinstance(error, AuthenticationError) else None
                self._refusals += self._refusal is not None
                if self._whom_to_ask(now) in (None, broker):  # nobody else: a broker that answers nonsense is not asked in a loop
                    self.metadata.on_failure(now)
                else:
                    self.metadata.invalidate()
            else:
                self._failures.clear()
                self._refusal = None
                self.versions = broker.versions or self.versions
                self.metadata.on_response(asked, response, now, topics)
                gone = self._follow_brokers()
            done, self._round = self._round, self._handler.Event()
        self.metadata.lines.write()
        if error is not None and not self._closed:
            # The first failure is told, the rest are counted: an hour without a broker must not fill a disk.
            tries = max(1, self._tries(address_of(broker)))
            log.log(logging.WARNING if tries == 1 else logging.DEBUG, "metadata cannot be had: %s", told_at(address_of(broker), error))
        for old in gone:
            old.close()
        if isinstance(error, UnsupportedVersion):
            # Every broker has Metadata. What this one said of its versions is believed as long as the connection is open, so that nothing could be asked
            # on it ever again.
            broker.drop_channel(CONTROL)
        done.set()
        for event in list(self.sleepers):
            event.set()  # a producer that waits for a leader need not sleep out its turn
        if response is None:
            self.poll()

    def _begin_anew(self, error: KafkaException | None) -> list[Broker]:
        """KIP-1102: a broker says that what is known is of another cluster. The hosts that were given are asked; returns whom to close."""
        if not isinstance(error, RebootstrapRequired):
            return []
        gone = [broker for broker in self._brokers.values() if broker not in self._bootstrap]
        self._brokers.clear()
        return gone

    def _follow_brokers(self) -> list[Broker]:
        """Make the Broker objects match the metadata; returns those that are gone. Called under the lock."""
        gone: list[Broker] = []
        for broker_id, broker in list(self._brokers.items()):
            info = self.metadata.brokers.get(broker_id)
            if info is None or (info.host, info.port) != (broker.host, broker.port):
                del self._brokers[broker_id]
                if broker not in self._bootstrap:
                    gone.append(broker)
        for info in self.metadata.brokers.values():
            if info.id not in self._brokers:
                self._brokers[info.id] = self._known_as(info)
        return gone

    def _known_as(self, info: BrokerInfo) -> Broker:
        """The Broker of a metadata entry: the bootstrap one, with its open connection, where it advertises the same address."""
        for broker in self._bootstrap:
            if (broker.host, broker.port) == (info.host, info.port):
                broker.is_known_as(info.id)
                return broker
        return self._make_broker(info.id, info.host, info.port)

    # -- waiting -------------------------------------------------------------------------------------------------------------
    def _deadline(self, timeout_s: float | None) -> float:
        return self._handler.monotonic() + (self.timeout_s() if timeout_s is None else timeout_s)

    def timeout_s(self) -> float:
        """How long a call may take that was given no time of its own."""
        seconds = self.config.api_timeout_ms / 1000
        return seconds if self.until is None else max(0.001, min(seconds, self.until - self._handler.monotonic()))

    def _wait(self, ready: Callable[[], bool], deadline: float, what: str) -> None:
        """Poll until ready() or the deadline. Raises KafkaTimeoutError; if no host ever answered NoBrokersAvailableError, or what all fail with."""
        self._handler.start()  # raises in a forked child, and where gevent patched the process since
        if not ready():
            self._ask_zookeeper(deadline)
        refusals, began, looked = self._refusals, self._handler.monotonic(), False
        while not ready():
            self.check_open()
            event = self._round
            due = self.poll()
            if ready():
                return
            self._raise_refusal(refusals)
            now = self._handler.monotonic()
            if not looked and (hosts := self._unknown_hosts(is_late=now - began >= min(SILENT_S, (deadline - began) / 2))):
                looked = True
                self._look_for_strangers(hosts, now + min(STRANGERS_S, max(TICK_S, deadline - now)))
                continue
            self._give_up_early(now - began)
            if now >= deadline:
                raise KafkaTimeoutError(f"{what}: not known in time{self._why()}") from self._likeliest()
            event.wait(max(0.001, min(deadline - now, due - now, TICK_S)))

    def check_open(self) -> None:
        """Raises ClientClosedError once the client is closed."""
        if self._closed:
            raise self._closed_error()

    def _closed_error(self) -> ClientClosedError:
        return ClientClosedError(f"the client was closed: make a new {self.called}")

    def _raise_refusal(self, before: int) -> None:
        """A broker refused this client since the caller began to wait, or did before and rests with all others: that does not change by waiting."""
        refusal = self._refusal if self._refusals != before else None
        if refusal is None and not self._asked_until and self._whom_to_ask(self._handler.monotonic()) is None:
            refusal = next((broker.refusal for broker in self._candidates() if broker.refusal is not None), None)
        if refusal is not None:
            raise copy(refusal) from refusal.__cause__

    def _unknown_hosts(self, *, is_late: bool) -> list[Broker]:
        """Of a client that never reached any host: those where somebody is who has not answered as a broker does. is_late: those that say nothing, too."""
        return [] if self.metadata.version else [b for b in self._bootstrap if self._is_odd(b, is_late=is_late)]

    def _is_odd(self, broker: Broker, *, is_late: bool) -> bool:
        if broker.versions is not None:
            return False
        _, error = self._failures.get(address_of(broker), (0, None))
        if error is None:
            return is_late and broker.is_silent
        if isinstance(error, ConnectionFailedError):
            return isinstance(error, TlsError) and error.has_no_tls  # else nothing but handshakes goes to who was to speak TLS
        return isinstance(error, (KafkaTimeoutError, ProtocolError, SocketDisconnectedError)) and not isinstance(error, CutShort)

    def _look_for_strangers(self, hosts: list[Broker], until: float) -> None:
        """Raises ProtocolError in the words of `kafka-tools doctor` if one of these is no broker, or not of this security_protocol. until: monotonic seconds."""
        from gkafka.probing import Probe  # only for whoever has reached nobody
        from gkafka.strangers import stranger_at

        for index, broker in enumerate(hosts):
            probe, others = Probe(self._handler, self.config, broker.host, broker.port), len(hosts) - index
            found = stranger_at(probe, lambda share: max(0.001, (until - self._handler.monotonic()) * share / others))  # noqa: B023  # called at once
            if found is not None:
                error = ProtocolError(f"{probe.address}: {found.seen}; {found.next}", broker=probe.address)
                error.hint = found.next
                raise error

    def _give_up_early(self, waited_s: float) -> None:
        """A client that never reached any host says so after a few tries of each, not at the end of a long timeout. waited_s: by who asks.

        What all of them fail with is raised as what it is, unless it is only that nobody is there.
        """
        if self.metadata.version or not self._failures:
            return
        if all(self._is_given_up(f"{b.host}:{b.port}", waited_s) for b in self._bootstrap):
            if self._refusal is not None:
                raise copy(self._refusal) from self._refusal.__cause__
            errors = [error for _, error in self._failures.values()]
            if len({type(error) for error in errors}) == 1 and _is_definite(errors[0]):
                raise self._as_one(errors) from errors[0].__cause__
            if self.waits_for_hosts:
                return
            text = f"none of the hosts answered{self._why()}; check hosts=, the port and the listener's security"
            raise NoBrokersAvailableError(text) from self._likeliest()

    def _tries(self, address: str) -> int:
        return self._failures[address][0] if address in self._failures else 0

    def _is_given_up(self, address: str, waited_s: float) -> bool:
        """Is there no use in asking it once more? What is definite and took its time, as 400,000 brokers in an answer that ends too early, is not tried again."""
        tries, error = self._failures.get(address, (0, None))
        if error is None:
            return False
        return tries >= FIRST_TRIES or isinstance(error, FINAL) or (waited_s >= LONG_TRY_S and _is_definite(error))

    def _as_one(self, errors: list[KafkaException]) -> KafkaException:
        one = copy(errors[0])
        if len(errors) > 1 and not isinstance(one, TokenEndpointError):  # that is the same at each host, and no host's fault
            one.args = (f"none of the hosts can be used{self._why()}", *one.args[1:])
        return one

    def _likeliest(self) -> KafkaException | None:
        """Of what the hosts failed with: what says most. None before there was anything."""
        errors = [error for _, error in self._failures.values()]
        return next(filter(_is_definite, errors), errors[0] if errors else None)

    def _why(self) -> str:
        """Each host and its last failure, which mostly names the host itself."""
        told = "".join(f"; {told_at(address, error)}" for address, (_, error) in sorted(self._failures.items()))
        return told or f"; no answer yet from {', '.join(map(_where_it_stands, self._bootstrap))}"

    def connect(self, timeout_s: float | None = None) -> None:
        """Reach the cluster: returns once metadata is there."""
        self.check_open()
        if self.metadata.version:
            return
        self.metadata.invalidate()
        self._wait(lambda: self.metadata.version > 0, self._deadline(timeout_s), "the cluster's metadata")

    def ensure_listed(self) -> None:
        """Have a list of all topics that is not older than metadata_max_age_ms."""
        now = self._handler.monotonic()
        if now - self._listed_at > self.config.metadata_max_age_ms / 1000:
            self.update()

    def wait_for_topic(
        self,
        name: str,
        deadline: float | None = None,
        check: Callable[[], object] = lambda: None,
        *,
        anew: bool = True,
        writes: bool = False,
    ) -> TopicInfo:
        """The topic with at least one partition known. Raises UnknownTopicOrPartition, another error of the broker, or KafkaTimeoutError.

        check: raises when the caller has no use for it any more; asked now and then, and after wake(). anew: if it was deleted the broker may make
        it again, as it may make one that never was. writes: a producer asks; the topic is kept in mind for as long as it is written to.
        """
        info = self.metadata.topic(name)
        if info is not None:
            # Known from a list of everything is not enough: only topics of interest are asked for again when their leaders move.
            self.metadata.add_topics([name], written_at=self._handler.monotonic() if writes else None)
            return info
        name = check_topic_name(name)
        deadline = self._deadline(None) if deadline is None else deadline
        self._waiting[name] = self._waiting.get(name, 0) + 1
        try:
            return self._wait_for_unknown_topic(name, deadline, check, anew, writes)
        finally:
            self._waiting[name] -= 1
            if not self._waiting[name]:
                del self._waiting[name]
                if self.metadata.topic(name) is None:
                    self.metadata.forget_topic(name)  # nobody waits for it any more: other topics' requests need not name it

    def look_for_topics(self, names: Iterable[str], patience_s: float, deadline: float | None = None) -> list[KafkaException]:
        """Ask for all of them at once, and take them into the interest. Returns an UnknownTopicError for each that is not there after patience_s, in which
        a broker may make it. Raises another error of a broker, or KafkaTimeoutError.
        """
        names = [check_topic_name(name) for name in names]
        with self._lock:
            self.metadata.add_topics(names, anew=True)
            version = self.metadata.version
        patience = self._handler.monotonic() + patience_s

        def missing() -> list[str]:
            return [name for name in names if self.metadata.topic(name) is None]

        def settled() -> bool:
            unknown = missing()
            told = [self.metadata.topic_error(name) for name in unknown]
            for name, error in zip(unknown, told, strict=True):
                if error is not None and not error.retriable:
                    raise self._topic_error(name, error)
            return not unknown or (None not in told and self.metadata.version > version and self._handler.monotonic() >= patience)

        self._wait(settled, self._deadline(None) if deadline is None else deadline, f"topics {', '.join(names)}")
        found = [(name, self.metadata.topic_error(name)) for name in missing()]
        return [self._topic_error(name, error) for name, error in found if error is not None]

    def wake(self) -> None:
        """Let everybody who waits for metadata look again."""
        with self._lock:
            done, self._round = self._round, self._handler.Event()
        done.set()

    def _wait_for_unknown_topic(self, name: str, deadline: float, check: Callable[[], object], anew: bool, writes: bool) -> TopicInfo:
        with self._lock:
            self.metadata.add_topics([name], anew=anew, written_at=self._handler.monotonic() if writes else None)
            version = self.metadata.version
        # A topic that was just created takes a moment to reach every broker; one that is not allowed or not named well never comes.
        patience_s = self.topic_patience_s
        patience = float("inf") if patience_s is None else min(deadline, self._handler.monotonic() + patience_s)

        def settled() -> bool:
            check()
            error = self.metadata.topic_error(name)
            if error is not None and self.metadata.version > version and (not error.retriable or self._handler.monotonic() >= patience):
                raise self._topic_error(name, error)
            return self.metadata.topic(name) is not None

        try:
            self._wait(settled, deadline, f"topic {name!r}")
        except KafkaTimeoutError as exc:
            error = self.metadata.topic_error(name)
            if isinstance(error, UnknownTopicOrPartition) and self.metadata.version > version:
                raise self._topic_error(name, error) from exc
            raise
        info = self.metadata.topic(name)
        return info if info is not None else self.wait_for_topic(name, deadline, check, anew=anew, writes=writes)

    def note_write(self, topic: str, at: float) -> None:
        """Note that a producer has begun a batch for the topic, which is of interest again if it was forgotten meanwhile."""
        if not self.metadata.wrote(topic, at):
            with self._lock:
                self.metadata.add_topics([topic], written_at=at)

    def ask_for(self, topics: Iterable[str], at: float) -> None:
        """Have the next request ask for topics that are not known, and let a broker make them where that is allowed: records wait for them."""
        with self._lock:
            self.metadata.add_topics(topics, written_at=at, awaited=True)

    def _topic_error(self, name: str, error: KafkaException) -> KafkaException:
        if isinstance(error, UnknownTopicOrPartition):
            why = (
                "the broker does not create it"
                if self.config.auto_create_topics
                else "with auto_create_topics=False this client has none created"
            )
            text = f"topic {name!r} does not exist on {self._addresses()}, and {why}: {missing_topic(name)}"
            return UnknownTopicError(text, topic=name, api="Metadata")
        return error

    def _addresses(self) -> str:
        return ", ".join(f"{b.host}:{b.port}" for b in self._bootstrap)

    def wait_for_leader(self, topic: str, partition: int, deadline: float, election_s: float = float("inf")) -> Broker:
        """The broker that leads a partition. election_s: how long one may be missing of which brokers say that it has no leader."""
        self.wait_for_topic(topic, deadline)
        version, patience = self.metadata.version, self._handler.monotonic() + election_s

        def known() -> bool:
            if self.metadata.leader(topic, partition) is not None:
                return True
            info = self.metadata.topic(topic)
            about: dict[str, Any] = {"topic": topic, "partition": partition, "api": "Metadata"}
            if info is not None and self.metadata.version > version:
                if partition not in info.partitions:
                    text = f"topic {topic!r} has no partition {partition}: it has 0 to {len(info.partitions) - 1}"
                    raise UnknownTopicOrPartition(text, **about)
                if self._handler.monotonic() >= patience:
                    replicas = list(info.partitions[partition].replicas)
                    text = f"{topic}-{partition} has no leader at the moment: see which of its replicas' brokers {replicas} are down"
                    raise LeaderNotFoundError(text, **about)
            self.metadata.invalidate()
            return False

        try:
            self._wait(known, deadline, f"the leader of {topic}-{partition}")
        except KafkaTimeoutError as exc:
            raise LeaderNotFoundError(self._no_leader(topic, partition) or str(exc), topic=topic, partition=partition) from exc
        leader = self.metadata.leader(topic, partition)
        broker = self._brokers.get(leader[0]) if leader is not None else None
        return broker if broker is not None else self.wait_for_leader(topic, partition, deadline, election_s)

    def _no_leader(self, topic: str, partition: int) -> str | None:
        """What to say of a partition of which the brokers tell that nobody leads it; None: they do not tell that."""
        info = self.metadata.topic(topic)
        known = info.partitions.get(partition) if info is not None else None
        if known is None or known.leader >= 0 or self._failures.keys() >= {f"{b.host}:{b.port}" for b in self._bootstrap}:
            return None
        return (
            f"{topic}-{partition} has no leader, and got none in time: see which of its replicas' brokers {list(known.replicas)} are down"
        )

    # -- calls -----------------------------------------------------------------------------------------------------------------
    def retrying(self, what: str, attempt: Callable[[], Any], deadline: float) -> Any:
        """Run attempt() until it gives an answer; errors that a retry may heal are met with a pause, the others are raised.

        When the time is over it tells what came last, but not that the last try was cut off by that.
        """
        backoff, failures = Backoff(0.1, 1.0), 0
        last: KafkaException | None = None
        while True:
            self._handler.check_fork()
            self.check_open()
            try:
                return attempt()
            except KafkaException as exc:
                failures += 1
                # A leader that cannot be reached may lead no more; who stays in touch with the others hears of it before the deadline.
                if exc.stale is Stale.METADATA or isinstance(exc, (SocketDisconnectedError, KafkaTimeoutError)):
                    self.metadata.invalidate()
                pause = backoff.pause_s(failures, self._chance)
                if not exc.retriable or (isinstance(exc, (UnknownTopicOrPartition, LeaderNotFoundError)) and exc.api == "Metadata"):
                    raise  # what the metadata do not have after fresh ones, a retry does not bring
                left = deadline - self._handler.monotonic()
                if last is None or left > 0 or not isinstance(exc, KafkaTimeoutError):
                    last = exc
                self.pause(min(pause, left))
                if pause >= left:  # the caller gave this much time, and another one may ask for less than was left
                    raise KafkaTimeoutError(not_in_time(what, last), **last.about) from last

    def pause(self, seconds: float) -> None:
        """Wait between two tries. Raises ClientClosedError as soon as the client is closed."""
        if seconds > 0:
            self.poll()
            self._over.wait(seconds)
            self.check_open()

    def call_any(self, request: Any, deadline: float, *, max_version: int | None = None) -> tuple[Any, str]:
        """Ask a broker, any broker. Returns its answer, and which it was (host:port)."""

        def attempt() -> tuple[Any, str]:
            self.connect(max(0.0, deadline - self._handler.monotonic()))
            now = self._handler.monotonic()
            broker = self._whom_to_ask(now)
            if broker is None:
                raise self._none_can_be_tried()
            return broker.call(CONTROL, request, timeout_s=self._share(deadline), max_version=max_version), address_of(broker)

        answered: tuple[Any, str] = self.retrying(request.API.name, attempt, deadline)
        return answered

    def call_controller(self, request: Any, deadline: float, *, max_version: int | None = None) -> tuple[Any, str]:
        """Ask the controller; KRaft brokers pass it on. Returns the answer, and who gave it (host:port)."""

        def attempt() -> tuple[Any, str]:
            self.connect(max(0.0, deadline - self._handler.monotonic()))
            broker = self._brokers.get(self.metadata.controller_id) or next(iter(self._brokers.values()))
            return broker.call("admin", request, timeout_s=self._share(deadline), max_version=max_version), address_of(broker)

        answered: tuple[Any, str] = self.retrying(request.API.name, attempt, deadline)
        return answered

    def _share(self, deadline: float) -> float:
        return max(0.001, min(self.config.socket_timeout_ms / 1000, deadline - self._handler.monotonic()))

    def _find_coordinator(self, group: str, deadline: float) -> Broker:
        def attempt() -> Broker:
            response, told_by = self.call_any(coordinator_request(group), deadline)
            broker = self.know_broker(*coordinator_of(response, group=group, broker=told_by))
            self._coordinators[group] = broker.id
            return broker

        found: Broker = self.retrying(f"the coordinator of group {group!r}", attempt, deadline)
        return found

    def know_broker(self, broker_id: int, host: str, port: int) -> Broker:
        """The broker at this address, as the answer to a look-up names it; the metadata may not have it yet, or its old address."""
        with self._lock:
            known = self._brokers.get(broker_id)
            if known is not None and (known.host, known.port) == (host, port):
                return known
            made = self._brokers[broker_id] = self._known_as(BrokerInfo(broker_id, host, port))
        if known is not None and known is not made and known not in self._bootstrap:
            known.close()
        return made

    def some_broker(self) -> Broker:
        """Any broker, the least busy one that may be tried now. Raises KafkaTimeoutError."""
        with self._lock:
            broker = self._whom_to_ask(self._handler.monotonic())
        if broker is None:
            raise self._none_can_be_tried()
        return broker

    def _none_can_be_tried(self) -> KafkaTimeoutError:
        return KafkaTimeoutError(f"no broker can be tried at the moment{self._why()}")

    def call_coordinator(self, group: str, request: Any, deadline: float, *, max_version: int | None = None) -> tuple[Any, str]:
        """Ask the group's coordinator once. Returns its answer, and which broker it is (host:port).

        Connection errors make it be looked up anew; raises them for the caller to retry.
        """
        broker, until = self.reach_coordinator(group, deadline)
        try:
            timeout_s = max(0.001, until - self._handler.monotonic())
            return broker.call(OFFSETS, request, timeout_s=timeout_s, max_version=max_version), address_of(broker)
        except KafkaException:
            self.forget_coordinator(group)
            raise

    def reach_coordinator(self, group: str, deadline: float) -> tuple[Broker, float]:
        """Find the group's coordinator and open the connection for offsets. Returns the broker, and until when to wait for its answer."""
        broker = self._brokers.get(self._coordinators.get(group, -1))
        if broker is None:
            broker = self._find_coordinator(group, deadline)
        now = self._handler.monotonic()
        until = now + max(0.001, min(self.config.offsets_channel_socket_timeout_ms / 1000, deadline - now))
        try:
            broker.channel(OFFSETS).wait_open(until)
        except KafkaException:
            self.forget_coordinator(group)
            raise
        return broker, until

    def forget_coordinator(self, group: str) -> None:
        """The coordinator has moved or cannot be reached."""
        self._coordinators.pop(group, None)

    def list_offsets(
        self,
        wanted: Mapping[tuple[str, int], int],
        deadline: float | None = None,
        *,
        max_offsets: int = 1,
        isolation_level: int = 0,
        records: dict[tuple[str, int], tuple[int, int]] | None = None,
        patient: bool = False,
    ) -> dict[tuple[str, int], list[int]]:
        """Offsets for timestamps: -1 the end, -2 the beginning, else ms since the epoch: the first record at or after it. -3 is the record with the
        largest timestamp (Kafka 3.0), -4 the beginning of what the broker itself has (3.5), -5 the last that is in remote storage (3.9): for a broker that does
        not know them, UnsupportedVersion.

        Brokers before 0.10.1 answer a list for a timestamp (at most max_offsets); newer ones one offset, [] where no record is that new.
        records: takes in (timestamp, leader epoch) of the records at these offsets, -1 for what the broker does not tell.
        Raises LeaderNotFoundError as soon as brokers have said for ELECTION_S that a partition has no leader. patient: of who begins to read there,
        and waits for a leader as for anything else, until the deadline; so does all of a cluster that waits_for_hosts.
        """
        deadline = self._deadline(None) if deadline is None else deadline
        election_s = float("inf") if patient or self.waits_for_hosts else ELECTION_S
        found: dict[tuple[str, int], list[int]] = {}

        def attempt() -> None:
            by_broker: dict[Broker, dict[str, ListOffsetsTopic]] = {}
            for (topic, partition), timestamp in wanted.items():
                if (topic, partition) in found:
                    continue
                broker = self.wait_for_leader(topic, partition, deadline, election_s)
                leader = self.metadata.leader(topic, partition)
                entry = by_broker.setdefault(broker, {}).setdefault(topic, ListOffsetsTopic(name=topic, partitions=[]))
                entry.partitions.append(
                    ListOffsetsPartition(
                        partition_index=partition,
                        current_leader_epoch=leader[1] if leader is not None else -1,
                        timestamp=timestamp,
                        max_num_offsets=max_offsets,
                    )
                )
            for broker, topics in by_broker.items():
                self._list_offsets_of(broker, list(topics.values()), isolation_level, deadline, found, records)

        self.retrying("offsets", attempt, deadline)
        return found

    def _list_offsets_of(
        self,
        broker: Broker,
        topics: list[ListOffsetsTopic],
        isolation_level: int,
        deadline: float,
        found: dict[tuple[str, int], list[int]],
        records: dict[tuple[str, int], tuple[int, int]] | None,
    ) -> None:
        request = ListOffsetsRequest(isolation_level=isolation_level, topics=topics)
        try:
            response = broker.call(CONTROL, request, timeout_s=self._share(deadline))
        except UnsupportedVersion:
            many = [p for topic in topics for p in topic.partitions if p.max_num_offsets > 1]
            if not many:
                raise
            for p in many:  # brokers since 0.10.1 know one offset for a time, and cannot be asked for more
                p.max_num_offsets = 1
            response = broker.call(CONTROL, request, timeout_s=self._share(deadline))
        problem: KafkaException | None = None
        for topic in response.topics:
            for p in topic.partitions:
                error = error_for(p.error_code, topic=topic.name, partition=p.partition_index, broker=address_of(broker), api="ListOffsets")
                if error is not None:
                    problem = error
                elif p.old_style_offsets:
                    found[topic.name, p.partition_index] = list(p.old_style_offsets)
                else:
                    found[topic.name, p.partition_index] = [p.offset] if p.offset >= 0 else []
                    if records is not None:
                        records[topic.name, p.partition_index] = p.timestamp, p.leader_epoch
        if problem is not None:
            raise problem

    def broker_by_id(self, broker_id: int) -> Broker | None:
        """The broker if it is known, also if only an answer to another request told of it (KIP-951)."""
        broker = self._brokers.get(broker_id)
        if broker is None and (told := self.metadata.brokers.get(broker_id)) is not None:
            broker = self.know_broker(told.id, told.host, told.port)
        return broker

    def stats(self) -> dict[str, Any]:
        """What is open and known."""
        brokers: Iterable[Broker] = self._candidates()
        return {"metadata_version": self.metadata.version, "topics": len(self.metadata.topics), "brokers": [b.stats() for b in brokers]}

    def adopt(self, engine: Any) -> None:
        """A producer or consumer lives on these connections from now on. Raises ClientClosedError once the client closes."""
        with self._lock:
            self.check_adopting()
            self.engines.add(engine)

    def check_adopting(self) -> None:
        """Raises ClientClosedError once the client closes, be it not done yet."""
        if not self._adopting:
            raise self._closed_error()

    @property
    def memory(self) -> ProducerMemory:
        """The buffer that all producers of this client share. Made when there is one: who only administers loads nothing of records."""
        if self._memory is None:
            from gkafka.producermemory import ProducerMemory

            made = ProducerMemory(self.handler)
            with self._lock:
                self._memory = self._memory or made
        return self._memory

    def stop_adopting(self) -> None:
        """The client closes: who lives on its connections now is all that there will be."""
        with self._lock:
            self._adopting = False

    @property
    def closed(self) -> bool:
        """Was it closed?"""
        return self._closed

    def leaves_later(self, member: Member) -> None:
        """It was told to leave inside a callback of its own, and says good-bye when that has returned."""
        with self._lock:
            self._leaving.add(member)

    def say_good_bye(self, timeout_s: float) -> None:
        """Of the member inside whose callback the caller is: when that has returned there will be no connection to say it."""
        if self._handler.was_forked:
            return  # the membership is the parent's
        with self._lock:
            leaving = list(self._leaving)
        for member in leaving:
            if member.in_callback:
                member.leave_at_once(timeout_s)

    def close(self) -> None:
        """Close every connection. Whoever is cut short in here leaves the rest to the next call."""
        self.stop_adopting()
        with self._lock:
            self._closed = True
            brokers = list(self._made)
        self._over.set()
        self.wake()
        for broker in brokers:
            broker.close()
        for event in list(self.sleepers):
            event.set()


def _where_it_stands(broker: Broker) -> str:
    """ "host:port", and at which step the connection to it stands."""
    standing = broker.standing
    return f"{broker.host}:{broker.port}{f': {standing}' if standing else ''}"


def _is_definite(error: KafkaException) -> bool:
    """Whether it says more than that nobody is there."""
    return isinstance(error, FINAL) or not (error.retriable or isinstance(error, NoBrokersAvailableError))


def _tells_epochs(versions: Versions | None) -> bool:
    return versions is None or versions.supports(MetadataRequest.API, RELIABLE_EPOCHS)


def _impossible(response: MetadataResponse) -> str | None:
    """What no broker can mean: where another one is said to be, a partition below 0."""
    for told in response.brokers:
        if not is_address(told.host, told.port):
            return f"broker {told.node_id} is said to be at {told.host!r} port {told.port}, which is no address"
    for topic in response.topics:
        lowest = min((partition.partition_index for partition in topic.partitions), default=0)
        if lowest < 0:
            return f"topic {str(topic.name)[:100]!r} is said to have a partition {lowest}"
    return None


def address_of(broker: Broker) -> str:
    """host:port, as errors name a broker."""
    return f"{broker.host}:{broker.port}"


UNKNOWN_TOPIC_PATIENCE_S = 5.0
