"""The membership machine in real groups: alone, with members of other clients, with brokers that go and come."""

from __future__ import annotations

import contextlib
import itertools
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest

from gkafka.common import TopicPartition
from gkafka.core.assignors import ASSIGNORS
from gkafka.core.groupstate import State
from tests.effort import one_of, quick_and_thorough
from tests.kit.clock import now
from tests.live.groupdriver import Driver, coordinating_first
from tests.live.kafka import KafkaCluster

LIMIT_S = 60.0
PARTITIONS = 8
_numbers = itertools.count(1)


def wait(ready: Callable[[], bool], what: Callable[[], object]) -> None:
    deadline = now() + LIMIT_S
    while not ready():
        if now() >= deadline:
            pytest.fail(str(what()))  # an assertion would show the first of it
        time.sleep(0.02)


class Peer:
    """A member of another client, polled by a worker of its own."""

    def __init__(self, kafka: KafkaCluster, group: str, topic: str, strategy: str, client: str) -> None:
        self._stops = threading.Event()
        self._poll, self._assigned, self._close = (
            _confluent(kafka, group, topic, strategy) if client == "confluent" else _python(kafka, group, topic)
        )
        self.owned: set[TopicPartition] = set()
        self._worker = threading.Thread(target=self._run)
        self._worker.start()

    def _run(self) -> None:
        while not self._stops.is_set():
            self._poll()
            self.owned = self._assigned()
        self._close()

    def stop(self) -> None:
        self._stops.set()
        self._worker.join(60)


def _confluent(kafka: KafkaCluster, group: str, topic: str, strategy: str) -> Any:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    settings = {"bootstrap.servers": kafka.hosts, "group.id": group, "partition.assignment.strategy": strategy, "session.timeout.ms": 6000}
    consumer = confluent_kafka.Consumer({**settings, "heartbeat.interval.ms": 500})
    consumer.subscribe([topic])
    return lambda: consumer.poll(0.05), lambda: {TopicPartition(tp.topic, tp.partition) for tp in consumer.assignment()}, consumer.close


def _python(kafka: KafkaCluster, group: str, topic: str) -> Any:
    client = pytest.importorskip("kafka")
    # It commits before it joins anew, within the time of a poll: where that is short and the machine slow it is thrown out, and may never notice.
    options: dict[str, Any] = {"heartbeat_interval_ms": 500, "metadata_max_age_ms": 1000, "enable_auto_commit": False}
    consumer = client.KafkaConsumer(bootstrap_servers=kafka.hosts, group_id=group, **options)
    # One that leads and does not know the topic yet gives nobody anything, and may never look again.
    wait(lambda: len(consumer.partitions_for_topic(topic) or ()) == PARTITIONS, lambda: "the topic is not known")
    consumer.subscribe([topic])
    return lambda: consumer.poll(2000), lambda: {TopicPartition(*tp) for tp in consumer.assignment()}, consumer.close


class Setting:
    """A topic, a group, and its members, which end with the test."""

    def __init__(self, kafka: KafkaCluster, version: str) -> None:
        self.kafka, self.version = kafka, version
        self.topic = self.group = f"members-{next(_numbers)}-{uuid4().hex[:12]}"
        kafka.create_topic(self.topic, partitions=PARTITIONS)
        self.members: list[Driver | Peer] = []

    def member(self, *names: str, **options: Any) -> Driver:
        made = Driver(self.kafka.hosts, self.version, self.group, [ASSIGNORS[name] for name in names], {self.topic: PARTITIONS}, **options)
        self.members.append(made)
        return made

    def peer(self, strategy: str, client: str) -> Peer:
        made = Peer(self.kafka, self.group, self.topic, strategy, client)
        self.members.append(made)
        return made

    def shared(self, *members: Driver | Peer, least: int = 1) -> None:
        """Waits until these have everything, each partition once, and everyone at least so many."""

        def is_shared() -> bool:
            has = [set(m.owned) for m in members]
            everything = sum(map(len, has)) == len(set().union(*has)) == PARTITIONS
            return everything and all(len(one) >= least for one in has) and all(m.was_told for m in members if isinstance(m, Driver))

        wait(is_shared, lambda: [(m.owned, m.group.state if isinstance(m, Driver) else "peer") for m in members])


@contextlib.contextmanager
def setting(kafka: KafkaCluster, version: str) -> Iterator[Setting]:
    made = Setting(kafka, version)
    try:
        yield made
    finally:
        for member in made.members:
            member.stop()


@pytest.mark.parametrize("version", ["0.10.2.2", *one_of("4.2.0", "2.8.2")])
@pytest.mark.parametrize("name", one_of("cooperative-sticky", "range"))
def test_members_come_share_go_and_die(kafka: KafkaCluster, version: str, name: str) -> None:
    with setting(kafka, version) as s:
        first = s.member(name)
        s.shared(first)
        second = s.member(name)
        third = s.member(name, instance_id="static" if version != "0.10.2.2" else None)
        s.shared(first, second, third, least=2)
        second.stop()
        assert second.group.state is State.LEFT
        s.shared(first, third, least=4)
        third.kill()
        s.shared(first)
        assert first.group.ownership.losses == 0
        assert not any(m.problems for m in (first, second, third))


@pytest.mark.parametrize("version", ["4.2.0"])
@pytest.mark.parametrize(
    ("name", "strategy", "client"),
    [
        ("range", "range", "confluent"),
        ("roundrobin", "roundrobin", "confluent"),
        ("cooperative-sticky", "cooperative-sticky", "confluent"),
        ("range", "range", "kafka-python"),
    ],
)
@pytest.mark.parametrize("leads", [True, False], ids=["gkafka leads", "the other leads"])
def test_members_of_other_clients_share_a_group(
    kafka: KafkaCluster, version: str, name: str, strategy: str, client: str, leads: bool
) -> None:
    with setting(kafka, version) as s:
        if leads:
            ours = s.member(name)
            s.shared(ours)
            other = s.peer(strategy, client)
        else:
            other = s.peer(strategy, client)
            s.shared(other)
            ours = s.member(name)
        s.shared(ours, other, least=4)
        another = s.member(name)
        s.shared(ours, other, another, least=2)
        assert (ours.group.ownership.losses, ours.problems) == (0, [])
        other.stop()
        s.shared(ours, another, least=4)


@pytest.mark.parametrize("name", one_of("cooperative-sticky", "range"))
@pytest.mark.parametrize("restarts", quick_and_thorough(1, 3))
def test_a_rolling_restart_costs_no_rebalance(cluster: KafkaCluster, name: str, restarts: int) -> None:
    """F04: the coordinator moves to another broker; the group does not notice. In short only the node that coordinates is restarted."""
    with setting(cluster, "4.2.0") as s:
        members = [s.member(name), s.member(name, session_timeout_s=10.0)]
        s.shared(*members, least=4)
        before = [m.group.rebalances for m in members]
        owned = [m.owned for m in members]
        coordinators = {m.group.requests.coordinator for m in members}
        for node in coordinating_first(cluster.nodes, members)[:restarts]:
            cluster.kill(node, signal.SIGTERM)
            wait(
                lambda at=node.id: all(m.group.requests.coordinator and m.group.requests.coordinator[0] != at for m in members),
                lambda: "no coordinator",
            )
            coordinators |= {m.group.requests.coordinator for m in members}
            cluster.restart(node)
        assert len(coordinators - {None}) > 1, "it has moved"
        s.shared(*members, least=4)
        assert [m.group.rebalances for m in members] == before
        assert [m.group.ownership.losses for m in members] == [0, 0]
        assert [m.owned for m in members] == owned
