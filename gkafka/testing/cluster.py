"""MockCluster: Kafka brokers inside the test's own process."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

from gkafka.exceptions import ConfigurationError, error_for
from gkafka.logs import get_logger
from gkafka.testing.actions import Action
from gkafka.testing.answers import ANSWERED, Answers
from gkafka.testing.fetches import refused_fetch
from gkafka.testing.groupkeeper import GroupSeen
from gkafka.testing.logs import StoredRecord, decode
from gkafka.testing.native import Loop
from gkafka.testing.refusals import refusal
from gkafka.testing.sasl import ILLEGAL_STATE, SASL_APIS, Client, Sasl
from gkafka.testing.server import Call, Listener, Peer, parse
from gkafka.testing.state import Committed, Partition, State, Topic
from gkafka.undoing import Undoing
from gkafka.wire.adminapis import ADMIN_APIS
from gkafka.wire.apis import APIS, Api, Message, Request, Versions

__all__ = ["MockCluster", "RecordedRequest", "TransactionSeen"]

log = get_logger(__name__)
T = TypeVar("T")
HISTORY_BYTES = 64 << 20
CLOSE_S = 5.0


class RecordedRequest(NamedTuple):
    """A request as it came in. time: monotonic seconds; message: the request's own class of `gkafka.wire`."""

    api: str
    version: int
    broker: int
    time: float
    client_id: str | None
    correlation_id: int
    message: Any


class TransactionSeen(NamedTuple):
    """A transactional id at its coordinator. status: "Empty", "Ongoing", "CompleteCommit" or "CompleteAbort"; partitions: of the open one."""

    producer_id: int
    epoch: int
    status: str
    partitions: list[tuple[str, int]]


class Rule:
    """One line of the script."""

    __slots__ = ("action", "broker", "key", "left", "when")

    def __init__(self, key: int, action: Action, times: int | None, broker: int | None, when: Callable[[Request], bool] | None) -> None:
        self.key = key
        self.action = action
        self.left = times
        self.broker = broker
        self.when = when

    def fits(self, call: Call) -> bool:
        if call.request.api.key != self.key or self.left == 0 or self.broker not in (None, call.broker_id):
            return False
        return self.when is None or self.when(call.request)


class MockCluster:
    """A Kafka cluster of several brokers on loopback ports, served by one OS thread of its own. For tests: everything is in memory.

        from gkafka import KafkaClient
        from gkafka.testing import Error, MockCluster

        with MockCluster(brokers=3, topics={"orders": 4}) as cluster:
            cluster.on("Produce", Error(6))                       # the next Produce is told NOT_LEADER_OR_FOLLOWER
            with KafkaClient(cluster.bootstrap) as client:
                client.get_producer().produce("orders", b"hello", key=b"k", partition=0).result(10)
            assert [record.value for record in cluster.log("orders", 0)] == [b"hello"]
            assert len(cluster.requests("Produce")) == 2

    brokers: how many; their ids are 1, 2, ... topics: name -> number of partitions. replication_factor: of these topics (default: one
    copy, three at most where there are as many brokers). limits: api name -> the versions to serve, (lowest, highest), or None for "not
    at all"; those of administration (DescribeAcls, ...) are served only if they stand here, and by on(name, Reply(...)) alone.
    versions: serve what this release of Kafka does ("0.8.2" to "4.2"); on ApiVersions and whatever else it does not know 0.8.2
    closes the connection, and 0.9.0 is silent on it from then on, as those are. A mapping gives brokers releases of their own,
    {1: "2.7", 2: "4.2"}, and those that it leaves out the newest: a rolling upgrade, which `start_broker(2, versions="4.2")` goes on with.
    Features are those of the oldest of them, and each takes the message formats that it knows. auto_create: a topic that a Metadata
    request names comes into being. max_message_bytes: Kafka's
    message.max.bytes. transaction_version: the level of Kafka's feature of that name: 2 is KIP-890's epoch for each transaction (default: 2
    from Kafka 4.0 on, else 0). racks: where the brokers are, one after the other: a Fetch that names the rack of a follower in sync is sent
    there by the leader (KIP-392). fetch_sessions: False declines them. consumer_session_timeout_ms, consumer_heartbeat_interval_ms: Kafka's
    group.consumer.session.timeout.ms and its sibling, of the groups of KIP-848. sasl: a `Sasl`: clients must say who they are. history: how many requests `requests` remembers, 64 MiB of them at most.

    It behaves as Kafka does, and its brokers share one state, so that there is no replication lag. Served: every API of `gkafka.wire.apis` in
    every version. Transactions end at once: there is no time between a coordinator's decision and its markers.

    Groups have members, of the classic protocol or of KIP-848, not of both at a time: they join, rebalance and lose their sessions by the rules of Kafka's coordinator, except that the first member need
    not wait for others (group.initial.rebalance.delay.ms is 0) and that any session timeout is taken. `group` shows one, `rebalance` and
    `remove_member` disturb it, `move_coordinator` and `stop_broker(cluster.coordinator("g"))` let it find another coordinator:

        with MockCluster(topics={"orders": 4}) as cluster, KafkaClient(cluster.bootstrap) as client:
            consumer = client.topics["orders"].get_balanced_consumer("g", managed=True, heartbeat_interval_ms=100)
            (member,) = cluster.wait_for(lambda: cluster.group("g")).members.values()
            cluster.on("Heartbeat", Error(25))                    # it is told that nobody knows it: it joins again
            cluster.rebalance("g")

    Not there: quotas, permissions, TLS, and the conversion of batches to an older format: a
    Fetch too old for what the log holds is told UNSUPPORTED_VERSION.
    """

    def __init__(
        self,
        brokers: int = 1,
        topics: Mapping[str, int] | None = None,
        *,
        replication_factor: int | None = None,
        limits: Mapping[str, tuple[int, int] | None] | None = None,
        versions: str | Mapping[int, str] | None = None,
        auto_create: bool = True,
        default_partitions: int = 1,
        max_message_bytes: int = 1048588,
        transaction_version: int | None = None,
        racks: Sequence[str] = (),
        fetch_sessions: bool = True,
        consumer_session_timeout_ms: int = 45_000,
        consumer_heartbeat_interval_ms: int = 5_000,
        sasl: Sasl | None = None,
        history: int = 10_000,
    ) -> None:
        if brokers < 1:
            raise ConfigurationError(f"brokers={brokers}: must be 1 or more")
        ids = list(range(1, brokers + 1))
        self._factor = replication_factor if replication_factor is not None else min(3, brokers)
        self._state = State(ids)
        self._state.racks = dict(zip(ids, racks, strict=False))
        self._loop = Loop()
        self._listeners = {broker: Listener(self, broker, self._loop) for broker in ids}
        self._rules: list[Rule] = []
        self._history: deque[tuple[RecordedRequest, int]] = deque()
        self._history_limit = history
        self._history_bytes = 0
        self._counts: dict[str, int] = {}
        self._waiting: list[Callable[[], bool]] = []
        self._closed = False
        self._sasl = sasl
        self._limits = limits or {}
        self._releases = _releases(versions, ids)
        self._served = {broker: _served(release, self._limits) for broker, release in self._releases.items()}
        oldest = _oldest(self._releases.values())
        self._answers = Answers(
            self._state,
            self._listeners,
            self._served,
            cluster_id="gkafka-mock-cluster",
            auto_create=auto_create,
            default_partitions=default_partitions,
            max_message_bytes=max_message_bytes,
            newest_magic=max(map(_newest_magic, self._releases.values())),
            transaction_version=_transaction_version(oldest) if transaction_version is None else transaction_version,
            gives_sessions=fetch_sessions,
            has_consumer_groups=oldest is None or int(oldest.split(".")[0]) >= 4,
            consumer_session_s=consumer_session_timeout_ms / 1000,
            consumer_heartbeat_s=consumer_heartbeat_interval_ms / 1000,
            changed=self._changed,
            after=self._loop.after,
            wait_for_change=self._waiting.append,
        )
        with Undoing(self.close):
            self._loop.call(self._start)
            for name, count in (topics or {}).items():
                self.create_topic(name, count)

    def __enter__(self) -> MockCluster:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
        if error is None and self.errors:
            raise AssertionError(f"the mock cluster failed: {self.errors[0]!r}") from self.errors[0]

    def __repr__(self) -> str:
        return f"<MockCluster {self.bootstrap}>"

    # -- where it is
    @property
    def bootstrap(self) -> str:
        """host:port of every broker, separated by commas."""
        return ",".join(f"127.0.0.1:{listener.port}" for listener in self._listeners.values())

    @property
    def brokers(self) -> dict[int, tuple[str, int]]:
        """Broker id -> (host, port), stopped ones included."""
        return {broker: ("127.0.0.1", listener.port) for broker, listener in self._listeners.items()}

    @property
    def errors(self) -> list[BaseException]:
        """What the script's own functions raised. Leaving the `with` block raises the first of them."""
        return self._loop.errors

    def close(self) -> None:
        """Close all ports and connections and end the thread, within 5 seconds. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        self._loop.call(self._close_listeners)
        if not self._loop.stop(CLOSE_S):
            raise TimeoutError(f"the mock cluster's thread did not end within {CLOSE_S:g} s")

    # -- the script
    def on(
        self,
        api: str,
        action: Action,
        *,
        times: int | None = 1,
        broker: int | None = None,
        when: Callable[[Request], bool] | None = None,
    ) -> None:
        """Do `action` on the next `times` requests of this API (None: on all of them) instead of simply answering.

        api: its name, as "Produce". broker: only at this one. when: only for requests of which it is true. Lines of the script are tried in
        the order they were given; a request takes the first that fits.
        """
        key = _api(api).key
        self._loop.call(lambda: self._rules.append(Rule(key, action, times, broker, when)))

    def clear_script(self) -> None:
        """Forget every line of the script."""
        self._loop.call(self._rules.clear)

    # -- what happens to clusters
    def move_leader(self, topic: str, partition: int, broker: int) -> None:
        """Make a broker the leader of a partition, in a new epoch."""

        def move() -> None:
            moved = self._partition(topic, partition)
            if broker not in self._state.up:
                raise ConfigurationError(f"broker {broker} is not up: {sorted(self._state.up)} are")
            if broker not in moved.replicas:
                moved.replicas.append(broker)
            if broker not in moved.isr:
                moved.isr.append(broker)
            moved.lead(broker)

        self._change(move)

    def stop_broker(self, broker: int) -> None:
        """Close a broker's connections; its port refuses new ones. What it led goes to another replica; without one it has no leader."""

        def stop() -> None:
            self._listeners[broker].stop()
            self._state.up.discard(broker)
            self._answers.sessions[broker].forget()
            for partition in self._partitions():
                partition.broker_stopped(broker, self._state.up)
            self._answers.coordinators_changed()

        self._change(stop)

    def start_broker(self, broker: int, *, versions: str | None = None) -> None:
        """Open a stopped broker's port again, the same one. versions: it is of this release now."""

        def start() -> None:
            if versions is not None:
                self._served[broker] = _served(versions, self._limits)
                self._releases[broker] = versions
            self._open(broker)

        self._loop.call(start)

    def close_connections(self, broker: int | None = None, *, reset: bool = False) -> None:
        """Close what is connected to a broker, or to all of them; the ports stay open. reset: with a TCP RST."""

        def close() -> None:
            for listener in self._listeners.values():
                if broker in (None, listener.broker_id):
                    for peer in list(listener.peers):
                        peer.close(reset=reset)

        self._loop.call(close)

    def forget_sessions(self, broker: int | None = None) -> None:
        """Let a broker, or all of them, forget their fetch sessions, as when other clients take the room."""

        def forget() -> None:
            for broker_id, sessions in self._answers.sessions.items():
                if broker in (None, broker_id):
                    sessions.forget()

        self._loop.call(forget)

    def move_coordinator(self, key: str, broker: int) -> None:
        """Make a broker the coordinator of a group or transactional id. A group's rebalance that was under way is forgotten."""

        def move() -> None:
            self._state.coordinators[key] = broker
            self._answers.coordinators_changed()

        self._loop.call(move)

    def rebalance(self, group: str) -> None:
        """Have a group divide its partitions anew, as when somebody joins: its members hear of it by their heartbeats."""
        self._loop.call(lambda: self._answers.groups_of(group).rebalance(group))

    def remove_member(self, group: str, member: str) -> None:
        """End a member's session, by its member id or its instance id: what it says next is told UNKNOWN_MEMBER_ID, and the others rebalance."""
        self._loop.call(lambda: self._answers.groups_of(group).remove(group, member))

    def create_topic(self, name: str, partitions: int = 1, *, configs: Mapping[str, str | None] | None = None) -> None:
        """A new topic. configs: of these, message.timestamp.type=LogAppendTime has an effect here."""

        def create() -> None:
            if name in self._state.topics:
                raise ConfigurationError(f"topic {name!r} is there already")
            self._state.create(name, partitions, self._factor, dict(configs or {}))

        self._change(create)

    def delete_topic(self, name: str) -> None:
        """A topic goes, with its records."""
        self._change(lambda: self._state.topics.pop(self._topic(name).name))

    def add_partitions(self, name: str, count: int) -> None:
        """Let a topic have `count` partitions in all."""
        self._change(lambda: self._state.grow(self._topic(name), count))

    def append(self, topic: str, partition: int, data: bytes) -> None:
        """Append batches as they are, with the offsets that they hold: control batches, gaps, damage."""
        self._change(lambda: self._partition(topic, partition).log.append_raw(data))

    def set_transactions(self, topic: str, partition: int, *, aborted: list[tuple[int, int]], stable: int | None = None) -> None:
        """What a read_committed Fetch is told: (producer id, first offset) of aborted transactions, and the last stable offset."""

        def put() -> None:
            log = self._partition(topic, partition).log
            log.aborted, log.stable = list(aborted), stable

        self._change(put)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Retention: the log starts at offset `before`."""
        self._loop.call(lambda: self._partition(topic, partition).log.delete_before(before))

    def truncate(self, topic: str, partition: int, offset: int) -> None:
        """An unclean election lost everything from `offset` on."""

        self._change(lambda: self._partition(topic, partition).truncate(offset))

    # -- what is to be seen
    def log(self, topic: str, partition: int, *, committed: bool = False) -> list[StoredRecord]:
        """The records of a partition, copied out of its log. committed: without those of aborted and open transactions."""
        if committed:
            return self._loop.call(lambda: self._partition(topic, partition).log.committed())
        return decode(self.raw_log(topic, partition))

    def raw_log(self, topic: str, partition: int) -> bytes:
        """The batches of a partition, as they are stored."""
        return self._loop.call(lambda: b"".join(entry.data for entry in self._partition(topic, partition).log.entries))

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        """The offsets at which a log starts and ends (the next record's)."""
        return self._loop.call(lambda: (self._partition(topic, partition).log.start, self._partition(topic, partition).log.end))

    def leader(self, topic: str, partition: int) -> int:
        """The id of a partition's leader, -1 if there is none."""
        return self._loop.call(lambda: self._partition(topic, partition).leader)

    def committed(self, group: str) -> dict[tuple[str, int], Committed]:
        """(topic, partition) -> the offset that a group committed."""
        return self._loop.call(lambda: dict(self._state.committed.get(group, {})))

    def coordinator(self, key: str) -> int:
        """The broker that looks after a group or transactional id, -1 if it is down."""
        return self._loop.call(lambda: self._state.coordinator(key))

    def group(self, name: str) -> GroupSeen | None:
        """A group at its coordinator: generation, members, what they were assigned. None if it never was. Its offsets: `committed`."""
        return self._loop.call(lambda: self._answers.groups_of(name).seen(name))

    def transaction(self, transactional_id: str) -> TransactionSeen | None:
        """What the coordinator knows of a transactional id; None if it never heard of it."""

        def look() -> TransactionSeen | None:
            found = self._state.transactional.get(transactional_id)
            return None if found is None else TransactionSeen(found.producer_id, found.epoch, found.status, sorted(found.partitions))

        return self._loop.call(look)

    def requests(self, api: str | None = None) -> list[RecordedRequest]:
        """The requests that came, oldest first: those of one API, or all that are remembered."""
        name = None if api is None else _api(api).name
        return self._loop.call(lambda: [request for request, _ in self._history if name in (None, request.api)])

    def count(self, api: str) -> int:
        """How many requests of one API came, forgotten ones included."""
        return self._loop.call(lambda: self._counts.get(_api(api).name, 0))

    def connections(self, broker: int | None = None) -> int:
        """How many connections are open."""
        return self._loop.call(lambda: sum(len(x.peers) for x in self._listeners.values() if broker in (None, x.broker_id)))

    def wait_for(self, what: Callable[[], T], timeout_s: float = 60.0) -> T:
        """What `what()` returns, once that is true. Raises TimeoutError. Not for code that runs on a gevent hub: it blocks the thread."""
        deadline = time.monotonic() + timeout_s
        while not (found := what()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what} was not true within {timeout_s:g} s")
            time.sleep(0.005)
        return found

    def _change(self, fn: Callable[[], object]) -> None:
        def change() -> None:
            fn()
            self._changed()

        self._loop.call(change)

    # -- inside, in the cluster's thread
    def _close_listeners(self) -> None:
        for listener in self._listeners.values():
            listener.close()

    def _start(self) -> None:
        for broker in self._listeners:
            self._open(broker)

    def _open(self, broker: int) -> None:
        self._listeners[broker].open()
        self._state.up.add(broker)
        for partition in self._partitions():
            partition.broker_started(broker)
        self._answers.coordinators_changed()
        self._changed()

    def _serve(self, peer: Peer, frame: memoryview) -> None:
        if self._sasl is not None:
            peer.client = peer.client or Client(self._sasl)
            if peer.client.bare:
                said = peer.client.hear_bare(bytes(frame))
                peer.close() if said is None else peer.send(said)
                return
        request = parse(frame, self._served[peer.listener.broker_id])
        if request is None:
            if (self._releases[peer.listener.broker_id] or "").startswith("0.9"):
                peer.silence()
            else:
                peer.close()
            return
        if isinstance(request, bytes):
            peer.send(request)
            return
        if peer.client is not None and not peer.client.may(request.api.name):
            log.info("%s before the client has said who it is: closing", request.api.name)
            peer.close()
            return
        call = Call(self, peer, request)
        self._remember(call, len(frame))
        rule = next((rule for rule in self._rules if rule.fits(call)), None)
        if rule is None:
            call.act(call.send)
            return
        if rule.left is not None:
            rule.left -= 1
        rule.action.run(call)

    def _act(self, call: Call, then: Callable[[Message | None], object]) -> None:
        if call.request.api.name in SASL_APIS:
            then(
                self._refusal(call, ILLEGAL_STATE) if call.client is None else call.client.hear(call.request.message, call.request.version)
            )
            return
        self._answers.act(call, then)

    def _refusal(self, call: Call, code: int) -> Message | None:
        if call.request.api.name == "Fetch":
            return refused_fetch(self._answers, call, code)
        return refusal(call.request, code, type(error_for(code)).__doc__ or "")

    def _remember(self, call: Call, size: int) -> None:
        request = call.request
        name = request.api.name
        self._counts[name] = self._counts.get(name, 0) + 1
        entry = RecordedRequest(
            name, request.version, call.broker_id, call.arrived, request.client_id, request.correlation_id, request.message
        )
        self._history.append((entry, size))
        self._history_bytes += size
        while self._history and (len(self._history) > self._history_limit or self._history_bytes > HISTORY_BYTES):
            self._history_bytes -= self._history.popleft()[1]

    def _changed(self) -> None:
        """Long polls look again. Those that are still not served stay."""
        waiting, self._waiting[:] = list(self._waiting), []
        self._waiting[:0] = [look for look in waiting if not look()]

    def _topic(self, name: str) -> Topic:
        if name not in self._state.topics:
            raise ConfigurationError(f"there is no topic {name!r} in the mock cluster")
        return self._state.topics[name]

    def _partition(self, topic: str, index: int) -> Partition:
        return self._topic(topic).partitions[index]

    def _partitions(self) -> list[Partition]:
        return [partition for topic in self._state.topics.values() for partition in topic.partitions]


def _api(name: str) -> Api:
    known = {api.name: api for api in (*APIS.values(), *ADMIN_APIS.values())}
    if name not in known:
        raise ConfigurationError(f"there is no API {name!r} here; these are: {', '.join(sorted(known))}")
    return known[name]


def _releases(versions: str | Mapping[int, str] | None, ids: Sequence[int]) -> dict[int, str | None]:
    """Broker id -> its release; None: the newest."""
    if versions is None or isinstance(versions, str):
        return dict.fromkeys(ids, versions)
    if strange := versions.keys() - set(ids):
        raise ConfigurationError(
            f"versions={dict(versions)!r}: there is no broker {min(strange)}, the brokers are {', '.join(map(str, ids))}"
        )
    return {broker: versions.get(broker) for broker in ids}


def _oldest(releases: Iterable[str | None]) -> str | None:
    named = [release for release in releases if release is not None]
    return min(named, key=_numbers, default=None)


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split("."))


def _served(versions: str | None, limits: Mapping[str, tuple[int, int] | None]) -> dict[int, tuple[int, int]]:
    """API key -> lowest and highest version."""
    served = {api.key: (api.stable.low, api.stable.high) for api in APIS.values() if api.name in ANSWERED | SASL_APIS}
    if versions is not None:
        ranges = Versions.for_broker(versions).ranges
        served = {key: ranges[key] for key in served if key in ranges}
    for name, limit in limits.items():
        key = _api(name).key
        if limit is None:
            served.pop(key, None)
        else:
            served[key] = limit
    return served


def _transaction_version(versions: str | None) -> int:
    return 2 if versions is None or int(versions.split(".")[0]) >= 4 else 0


def _newest_magic(versions: str | None) -> int:
    """The message format of a release: 0 before 0.10, 1 before 0.11, then 2."""
    if versions is None:
        return 2
    release = _numbers(versions)
    return 0 if release < (0, 10) else 1 if release < (0, 11) else 2
