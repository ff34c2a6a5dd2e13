"""Where the faults are played: three nodes of Kafka, a door before each, and hands to kill, freeze and move them."""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import struct
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.faults.ledger import Row
from tests.faults.names import Names
from tests.faults.proxy import Door, Plan
from tests.kit.clock import now
from tests.live.jvm import free_ports
from tests.live.kafka import KafkaCluster, Node

__all__ = ["PARTITIONS", "NamedStage", "Stage", "Stuck", "ZooKeeperStage", "until"]

PARTITIONS = 3
"""Of each topic, if nothing else is said: one led by each node."""
COORDINATORS = 4
"""Partitions of __consumer_offsets and of __transaction_state in our clusters."""
PATIENCE_S = 60.0
_numbers = itertools.count(1)
# What a topic is deleted and made under must not come back by a client's asking for it.
SETTINGS = {"auto.create.topics.enable": "false", "auto.leader.rebalance.enable": "false", "log.cleaner.backoff.ms": 500}


class Stuck(AssertionError):
    """Something that has to happen did not happen in time."""


def until(what: Callable[[], Any], why: str, timeout: float = PATIENCE_S, pause: float = 0.02) -> Any:
    """What what() returns, once that is true. Raises Stuck with `why` after the timeout."""
    deadline = now() + timeout
    while not (found := what()):
        if now() > deadline:
            raise Stuck(f"{why}: not within {timeout:g} s")
        time.sleep(pause)
    return found


class Stage:
    """A cluster with doors. hosts: the way through the doors, direct: the way past them; logs: a folder for gkafka's DEBUG logs; names_file: by
    which members look names up.

    A context manager.
    """

    def __init__(self, version: str = "4.2.0", seed: int = 0) -> None:
        self.plan = Plan(seed)
        self.doors = [Door(self.plan, functools.partial(self._behind, id)) for id in (1, 2, 3)]
        self.cluster = KafkaCluster(version, brokers=3, properties=SETTINGS, doors=[door.port for door in self.doors])
        self.logs: Path | None = None
        self.names_file = ""
        self._admin: Any = None
        self._kafka_python: Any = None
        self._sizes: dict[str, int] = {}
        self._count = 3

    def _behind(self, id: int) -> tuple[str, int]:
        node = self.cluster.node(id)
        return node.host, node.behind

    def start(self) -> Stage:
        try:
            self.cluster.start()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        if self._kafka_python is not None:
            self._kafka_python.close()
        for door in self.doors:
            door.close()
        self.cluster.stop()

    def __enter__(self) -> Stage:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    @property
    def hosts(self) -> str:
        return ",".join(f"127.0.0.1:{door.port}" for door in self.doors)

    @property
    def direct(self) -> str:
        return self.cluster.hosts

    # -- topics --------------------------------------------------------------------------------------------------------
    @property
    def admin(self) -> Any:
        if self._admin is None:
            from confluent_kafka.admin import AdminClient

            self._admin = AdminClient({"bootstrap.servers": self.direct, "log_level": 0})
        return self._admin

    def new_topic(self, stem: str, partitions: int = PARTITIONS, nodes: Sequence[int] = (), **configs: object) -> str:
        name = f"{stem}-{next(_numbers)}"
        self.create_topic(name, configs, partitions, nodes)
        return name

    def create_topic(
        self, name: str, configs: Mapping[str, object] | None = None, partitions: int = PARTITIONS, nodes: Sequence[int] = ()
    ) -> None:
        """Partition p is led by node p % 3 + 1: every topic of a run is hit in the same way. nodes: those that have all of it, led by the first."""
        from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

        assignment = [list(nodes)] * partitions if nodes else self._replicas(range(partitions))
        given = {key.replace("_", "."): str(value) for key, value in (configs or {}).items()}
        made = self.admin.create_topics([NewTopic(name, partitions, replica_assignment=assignment, config=given)], request_timeout=30)
        _done(made[name], "TOPIC_ALREADY_EXISTS")
        self._sizes[name] = partitions
        self._until_led(name)

    def add_partitions(self, name: str, count: int) -> None:
        """Have the topic get as many as that."""
        from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]

        news = NewPartitions(name, count, replica_assignment=self._replicas(range(self._sizes[name], count)))
        _done(self.admin.create_partitions([news], request_timeout=30)[name], "INVALID_PARTITIONS")
        self._sizes[name] = count
        self._until_led(name)

    def _replicas(self, partitions: Sequence[int]) -> list[list[int]]:
        return [[(p + k) % self._count + 1 for k in range(self._count)] for p in partitions]

    def _until_led(self, name: str) -> None:
        until(lambda: all(self._leads(node, name) for node in self.alive()), f"every node serves {name}")

    def delete_topic(self, name: str) -> None:
        _done(self.admin.delete_topics([name], request_timeout=30)[name], "UNKNOWN_TOPIC_OR_PART")
        until(lambda: not any(node.leaders(name) for node in self.alive()), f"no node serves {name} any more")

    def _leads(self, node: Node, topic: str) -> bool:
        leaders = node.leaders(topic)
        return len(leaders) == self._sizes[topic] and min(leaders.values()) > 0

    def leaders(self, topic: str) -> dict[int, int]:
        """Partition -> node, by a node that answers."""
        return next((found for node in self.alive() if (found := node.leaders(topic))), {})

    def in_sync(self, topic: str, replicas: int = 3) -> bool:
        """Has every partition so many in-sync replicas and a leader?"""
        sizes = self._in_sync(topic)
        return bool(sizes) and min(sizes) >= replicas

    def isolated(self, topic: str) -> bool:
        """Has every leader of the topic nobody in sync?"""
        sizes = self._in_sync(topic)
        return bool(sizes) and max(sizes) == 1

    def _in_sync(self, topic: str) -> list[int]:
        """Of each partition how many replicas are in sync; nothing while one has no leader."""
        with contextlib.suppress(Exception):  # a node that is asked may be the one that is down
            known = self.admin.list_topics(topic, timeout=5).topics[topic].partitions
            if len(known) == self._sizes[topic] and all(p.leader > 0 for p in known.values()):
                return [len(p.isrs) for p in known.values()]
        return []

    def is_closed(self, topic: str) -> bool:
        """Is no transaction open, and has every replica in sync what ended the last ones?"""
        return self.ends(topic) == self.ends(topic, "read_uncommitted")

    def ends(self, topic: str, isolation: str = "read_committed") -> dict[tuple[str, int], int]:
        """(topic, partition) -> where its log ends."""
        from confluent_kafka import Consumer, KafkaException, TopicPartition

        consumer = Consumer({"bootstrap.servers": self.direct, "group.id": "truth", "log_level": 0, "isolation.level": isolation})
        found: dict[tuple[str, int], int] = {}

        def all_found() -> bool:
            for place in ((topic, p) for p in range(self._sizes[topic])):
                with contextlib.suppress(KafkaException):  # who leads has changed
                    found[place] = consumer.get_watermark_offsets(TopicPartition(*place), timeout=5)[1]
            return len(found) == self._sizes[topic]

        try:
            until(all_found, f"the ends of {topic} are known")
        finally:
            consumer.close()
        return found

    def move_leaders(self, topics: Sequence[str], turn: int) -> None:
        """Make the node after the next lead each partition: the same replicas in another order, then a preferred election."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it reads its schemas in a way that Python 3.11 calls deprecated
            from kafka import KafkaAdminClient, TopicPartition  # type: ignore[import-untyped]

            if self._kafka_python is None:
                self._kafka_python = KafkaAdminClient(bootstrap_servers=self.direct.split(","))
            wanted = {TopicPartition(t, p): [(p + k + turn) % 3 + 1 for k in range(3)] for t in topics for p in range(self._sizes[t])}
            self._kafka_python.alter_partition_reassignments(wanted)
            self._kafka_python.elect_leaders(0, list_of(wanted), raise_errors=False)

    def coordinator(self, name: str, topic: str = "__consumer_offsets") -> int:
        """The node that coordinates a group, or with `__transaction_state` a producer; -1 if none does at the moment."""
        return self.leaders(topic).get(_java_hash(name) % COORDINATORS, -1)

    # -- nodes ---------------------------------------------------------------------------------------------------------
    def alive(self) -> list[Node]:
        return [node for node in self.cluster.nodes if node.alive]

    def kill(self, id: int) -> None:
        """SIGKILL; nobody listens at its door, either."""
        self.doors[id - 1].down()
        self.cluster.kill(id)

    def restart(self, id: int) -> None:
        self.cluster.restart(id)
        self.doors[id - 1].up()

    def heal(self) -> None:
        """Everything runs and nothing is in the way. The resumed first: a node that starts needs the others."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # kafka-python leaves sockets open in cycles: they are collected here, not in somebody's test
            if self._kafka_python is not None:
                self._kafka_python.close()
                self._kafka_python = None
            gc.collect()
        self.plan.clear()
        for node in self.alive():
            self.cluster.resume(node)
        for node in self.cluster.nodes:
            if not node.alive:
                self.cluster.restart(node)
        for door in self.doors:
            door.up()
        until(lambda: all(len(node.brokers() or ()) == self._count for node in self.cluster.nodes), "every node knows of all")

    # -- the truth -----------------------------------------------------------------------------------------------------
    def dump(self, topics: Sequence[str], isolation: str = "read_uncommitted") -> list[Row]:
        """Every record of the topics as confluent-kafka shows it, each partition in the order of its offsets."""
        from confluent_kafka import Consumer, KafkaError, TopicPartition

        settings = {"bootstrap.servers": self.direct, "group.id": "truth", "enable.auto.commit": False, "check.crcs": True}
        more = {
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "log_level": 0,
            "fetch.wait.max.ms": 20,
        }
        consumer = Consumer({**settings, **more})
        rows: list[Row] = []
        try:
            going: set[Any] = {(t, p) for t in topics for p in range(self._sizes[t])}
            consumer.assign([TopicPartition(t, p, 0) for t, p in sorted(going)])
            deadline = now() + PATIENCE_S
            while going:
                if now() > deadline:
                    raise Stuck(f"reading {topics} took more than {PATIENCE_S:g} s")
                for message in consumer.consume(10_000, 0.1):
                    error: Any = message.error()
                    place: Any = (message.topic(), message.partition())
                    if error is None:
                        rows.append(Row(place[0], place[1], message.offset() or 0, _id(message.value())))
                    elif error.code() == KafkaError._PARTITION_EOF:
                        going.discard(place)
                    else:
                        raise Stuck(str(error))
        finally:
            consumer.close()
        return sorted(rows)

    def commits(self, group: str) -> list[tuple[tuple[str, int], int]]:
        """((topic, partition), offset) of every commit of the group, in the order of its coordinator's log; -1 where one was taken back."""
        from confluent_kafka import Consumer, KafkaError, TopicPartition

        settings = {"bootstrap.servers": self.direct, "group.id": "truth", "enable.auto.commit": False, "log_level": 0}
        consumer = Consumer({**settings, "enable.partition.eof": True, "auto.offset.reset": "error"})
        found: list[tuple[tuple[str, int], int]] = []
        try:
            consumer.assign([TopicPartition("__consumer_offsets", _java_hash(group) % COORDINATORS, 0)])
            deadline = now() + PATIENCE_S
            while now() < deadline:
                for message in consumer.consume(10_000, 0.1):
                    error: Any = message.error()
                    if error is not None and error.code() == KafkaError._PARTITION_EOF:
                        return found
                    if error is not None:
                        raise Stuck(str(error))
                    commit = _commit(group, message.key() or b"", message.value())
                    if commit is not None:
                        found.append(commit)
        finally:
            consumer.close()
        raise Stuck(f"reading the commits of {group} took more than {PATIENCE_S:g} s")


class NamedStage(Stage):
    """Three nodes that members find by names. home: the address at which all doors are; moves: how often they went elsewhere."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed=seed)
        self.names = Names()
        self.names_file = str(self.names.path)
        self.home, self.moves = "127.0.0.1", 0
        self._entry = Door(self.plan, self._behind_any)
        self._label = "broker"
        self.cluster = KafkaCluster("4.2.0", brokers=3, properties=SETTINGS, doors=self._advertised)
        self.names.mean(self.known_as, [self.home])

    @property
    def hosts(self) -> str:
        return f"start.test:{self._entry.port}"

    @property
    def known_as(self) -> list[str]:
        return ["start.test", *(name.partition(":")[0] for name in self._advertised)]

    @property
    def ports(self) -> list[int]:
        return [door.port for door in (self._entry, *self.doors)]

    @property
    def _advertised(self) -> list[str]:
        return [f"{self._label}-{id}.test:{door.port}" for id, door in enumerate(self.doors, 1)]

    def stop(self) -> None:
        self._entry.close()
        self.names.close()
        super().stop()

    def cut_off(self) -> None:
        """Every connection ends; new ones are welcome."""
        for door in (self._entry, *self.doors):
            door.down()
            door.up()

    def move(self, home: str) -> None:
        """To another address, with the names and ports that they have."""
        ports = self.ports
        self._leave()
        self._settle(home, ports)

    def move_and_rename(self, home: str) -> None:
        """To another address, with other names and ports; only the entry keeps its own. Each node is started anew, to tell of it."""
        entry = self._entry.port
        self._leave()
        self._label = f"moved{self.moves}"
        ports = [entry, *free_ports(len(self.doors))]
        self.cluster.advertise([f"{self._label}-{id}.test:{port}" for id, port in enumerate(ports[1:], 1)])
        for node in self.cluster.nodes:
            until(lambda: self._all_in_sync(), "all replicas are in sync")
            self.cluster.restart(node)
        self._settle(home, ports)

    def _behind_any(self) -> tuple[str, int]:
        return self._behind(self.alive()[0].id)

    def _leave(self) -> None:
        for door in (self._entry, *self.doors):
            door.close()

    def _settle(self, home: str, ports: Sequence[int]) -> None:
        self.home, self.moves = home, self.moves + 1
        self._entry = Door(self.plan, self._behind_any, ports[0], home)
        self.doors = [Door(self.plan, functools.partial(self._behind, id), port, home) for id, port in enumerate(ports[1:], 1)]
        self.names.mean(self.known_as, [home])

    def _all_in_sync(self) -> bool:
        return all(self.in_sync(topic) for topic in self._sizes)


class ZooKeeperStage(Stage):
    """One node of 2.8, the newest that is here with a ZooKeeper, and that. There are no doors."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed=seed)
        for door in self.doors:
            door.close()
        self.doors = []
        self.cluster = KafkaCluster("2.8.2", properties=SETTINGS)
        self._count = 1

    @property
    def hosts(self) -> str:
        return self.direct

    def kill(self, id: int) -> None:
        self.cluster.kill(id)

    def restart(self, id: int) -> None:
        self.cluster.restart(id)


def _done(asked: Any, already: str) -> None:
    """Wait for a call of the admin's. already: the error that says that it was done; librdkafka asks again by itself when a connection broke before the answer."""
    from confluent_kafka import KafkaException

    try:
        asked.result(30)
    except KafkaException as exc:
        if exc.args[0].name() != already:
            raise


def list_of(partitions: Mapping[Any, object]) -> dict[str, list[int]]:
    """Topic -> partitions."""
    topics: dict[str, list[int]] = {}
    for each in partitions:
        topics.setdefault(each.topic, []).append(each.partition)
    return topics


def _java_hash(text: str) -> int:
    """abs(String.hashCode()), as brokers choose a coordinator."""
    value = 0
    for char in text:
        value = (31 * value + ord(char)) & 0xFFFFFFFF
    return abs(value - (1 << 32) if value >= 1 << 31 else value)


def _commit(group: str, key: bytes, value: bytes | None) -> tuple[tuple[str, int], int] | None:
    """What a record of __consumer_offsets says, if it is a commit of the group (Kafka's OffsetCommitKey and OffsetCommitValue)."""
    version, size = struct.unpack_from(">hh", key)
    if version not in (0, 1) or key[4 : 4 + size].decode() != group:
        return None
    (more,) = struct.unpack_from(">h", key, 4 + size)
    (partition,) = struct.unpack_from(">i", key, 6 + size + more)
    offset = -1 if value is None else struct.unpack_from(">q", value, 2)[0]
    return (key[6 + size : 6 + size + more].decode(), partition), offset


def _id(value: bytes | None) -> int:
    """The id that a writer put in front of its value, -1 for anything else."""
    head = (value or b"")[:10]
    return int(head) if len(head) == 10 and head.isdigit() else -1
