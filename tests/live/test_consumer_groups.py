"""The KIP-848 machine in real groups: alone, with members of another client, with a coordinator that moves, and where there is no such thing."""

from __future__ import annotations

import itertools
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import confluent_kafka
import pytest

from gkafka.common import TopicPartition
from gkafka.core.groupstate import State
from gkafka.exceptions import InvalidRegularExpression, UnreleasedInstanceId, UnsupportedAssignor, UnsupportedVersion
from tests.effort import one_of, quick_and_thorough
from tests.kit.clock import now
from tests.live.groupdriver import ConsumerDriver, coordinating_first
from tests.live.kafka import KafkaCluster
from tests.live.pool import POOL

LIMIT_S = 60.0
PARTITIONS = 6
SESSION_S = 10.0
_numbers = itertools.count(1)


@pytest.fixture
def quick() -> KafkaCluster:
    """Brokers whose sessions are short."""
    return POOL.get(kind="short sessions")


def wait(ready: Callable[[], bool], what: Callable[[], object], limit_s: float = LIMIT_S) -> None:
    deadline = now() + limit_s
    while not ready():
        assert now() < deadline, what()
        time.sleep(0.02)


class Other:
    """A member of confluent-kafka."""

    def __init__(self, hosts: str, group: str, topic: str) -> None:
        self._consumer = confluent_kafka.Consumer({"bootstrap.servers": hosts, "group.id": group, "group.protocol": "consumer"})
        self._consumer.subscribe([topic])
        self._stops = threading.Event()
        self.owned: set[TopicPartition] = set()
        self._worker = threading.Thread(target=self._run)
        self._worker.start()

    def _run(self) -> None:
        while not self._stops.is_set():
            self._consumer.poll(0.05)
            self.owned = {TopicPartition(tp.topic, tp.partition) for tp in self._consumer.assignment()}
        self._consumer.close()

    def stop(self) -> None:
        self._stops.set()
        self._worker.join(60)


class Setting:
    """A topic, a group, its members, and a watch that sees whether two of gkafka's ever have the same partition."""

    def __init__(self, kafka: KafkaCluster) -> None:
        self.kafka = kafka
        self.topic = self.group = f"kip848-{next(_numbers)}-{uuid4().hex[:12]}"
        kafka.create_topic(self.topic, partitions=PARTITIONS)
        self.members: list[Any] = []
        self.overlaps: list[set[TopicPartition]] = []
        self._stops = threading.Event()
        self._watch = threading.Thread(target=self._look)
        self._watch.start()

    def _look(self) -> None:
        while not self._stops.wait(0.002):
            # In the order in which they may be given on: what one has given up before it was asked is not counted twice.
            has = [(m, m.owned) for m in self.members if isinstance(m, ConsumerDriver)]
            for (one, first), (other, second) in itertools.combinations(has, 2):
                if first & second & one.owned & other.owned:
                    self.overlaps.append(first & second)

    def member(self, topics: dict[str, int] | None = None, **options: Any) -> ConsumerDriver:
        wanted = {self.topic: PARTITIONS} if topics is None else topics
        options = {"session_timeout_s": SESSION_S, **options}
        made = ConsumerDriver(self.kafka.hosts, self.kafka.version, self.group, [], wanted, **options)
        self.members.append(made)
        return made

    def other(self) -> Other:
        made = Other(self.kafka.hosts, self.group, self.topic)
        self.members.append(made)
        return made

    def shared(self, *members: Any, least: int = 1, limit_s: float = LIMIT_S) -> None:
        """Waits until these have everything, each partition once, and everyone at least so many."""

        def is_shared() -> bool:
            has = [set(m.owned) for m in members]
            everything = sum(map(len, has)) == len(set().union(*has)) == PARTITIONS
            return everything and all(len(one) >= least for one in has) and all(getattr(m, "was_told", True) for m in members)

        wait(is_shared, lambda: [(m.owned, getattr(m, "group", None) and m.group.state) for m in members], limit_s)

    def end(self) -> None:
        for member in self.members:
            member.stop()
        self._stops.set()
        self._watch.join(60)
        assert self.overlaps == []


@pytest.fixture
def setting(quick: KafkaCluster) -> Iterator[Setting]:
    made = Setting(quick)
    try:
        yield made
    finally:
        made.end()


@pytest.mark.parametrize("assignor", [None, *one_of("range", "uniform")])
def test_members_come_share_go_and_die(setting: Setting, assignor: str | None) -> None:
    first = setting.member(assignor=assignor)
    setting.shared(first)
    second, third = setting.member(assignor=assignor), setting.member(assignor=assignor)
    setting.shared(first, second, third, least=2)
    epochs = [m.group.generation for m in (first, second, third)]
    second.stop()
    assert second.group.state is State.LEFT
    assert second.history[-1][0] == "revoked"
    setting.shared(first, third, least=3)
    killed_at = now()
    third.kill()
    setting.shared(first)
    assert now() - killed_at > SESSION_S - 1.0
    assert first.group.ownership.losses == 0
    assert first.group.generation > epochs[0]
    assert not any(m.problems for m in (first, second, third))


def test_a_static_member_finds_its_partitions_again(setting: Setting) -> None:
    first = setting.member()
    static = setting.member(instance_id="i")
    setting.shared(first, static, least=3)
    had, others = static.owned, first.owned
    revoked = [change for change, _ in first.history].count("revoked")
    static.stop()
    again = setting.member(instance_id="i")
    wait(lambda: again.owned == had, lambda: again.owned)
    assert first.owned == others
    assert [change for change, _ in first.history].count("revoked") == revoked


def test_a_static_member_that_was_killed_gets_its_place_when_its_session_ends(setting: Setting) -> None:
    static = setting.member(instance_id="i")
    setting.shared(static)
    static.kill()
    again = setting.member(instance_id="i")
    setting.shared(again)
    assert again.problems == []


def test_an_instance_id_that_a_living_member_has_is_refused(setting: Setting) -> None:
    static = setting.member(instance_id="i")
    setting.shared(static)
    second = setting.member(instance_id="i")
    wait(lambda: second.group.state is State.FATAL, lambda: second.group.state)
    assert isinstance(second.group.error, UnreleasedInstanceId)
    assert len(static.owned) == PARTITIONS


def test_a_member_that_was_cut_off_comes_back_at_once(setting: Setting) -> None:
    """What the coordinator knows of it is in the way of joining again, until it says good-bye (KAFKA-19233)."""
    one = setting.member()
    setting.shared(one)
    with one.lock:
        one.group._lapse()
    assert one.owned == set()
    setting.shared(one, limit_s=SESSION_S - 1)


def test_the_application_that_does_not_ask_loses_its_partitions_until_it_does(setting: Setting) -> None:
    one, other = setting.member(max_poll_interval_s=2.0), setting.member()
    setting.shared(one, other, least=3)
    one.polls = False
    setting.shared(other)
    assert one.group.state is State.AWAY
    assert one.history[-1][0] == "lost"
    one.polls = True
    setting.shared(one, other, least=3)


def test_a_pattern_finds_topics_that_come_later(setting: Setting) -> None:
    one = setting.member({}, pattern=f"{setting.topic}.*")
    setting.shared(one)
    later = f"{setting.topic}-later"
    setting.kafka.create_topic(later, partitions=2)
    wait(lambda: TopicPartition(later, 1) in one.owned, lambda: one.owned)
    assert len(one.owned) == PARTITIONS + 2


@pytest.mark.parametrize(
    ("options", "error"), [({"assignor": "tombola"}, UnsupportedAssignor), ({"pattern": "a("}, InvalidRegularExpression)]
)
def test_what_the_brokers_refuse_is_told(setting: Setting, options: Any, error: type[Exception]) -> None:
    one = setting.member(**options)
    wait(lambda: one.group.state is State.FATAL, lambda: one.group.state)
    assert isinstance(one.group.error, error), one.group.error


def test_a_member_of_another_client_shares_the_group(setting: Setting) -> None:
    ours = setting.member()
    setting.shared(ours)
    other = setting.other()
    setting.shared(ours, other, least=3)
    another = setting.member()
    setting.shared(ours, other, another, least=2)
    other.stop()
    setting.shared(ours, another, least=3)
    assert ours.group.ownership.losses == 0


@pytest.mark.parametrize("restarts", quick_and_thorough(1, 3))
def test_a_rolling_restart_costs_nothing(cluster: KafkaCluster, restarts: int) -> None:
    """F04: the coordinator moves to another broker; the group does not notice. In short only the node that coordinates is restarted."""
    made = Setting(cluster)
    try:
        members = [made.member(session_timeout_s=45.0), made.member(session_timeout_s=45.0)]
        made.shared(*members, least=3)
        before = [(m.owned, list(m.history), m.group.rebalances) for m in members]
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
        assert [(m.owned, m.history, m.group.rebalances) for m in members] == before
        assert [m.group.ownership.losses for m in members] == [0, 0]
    finally:
        made.end()


@pytest.mark.parametrize("version", one_of("3.9.1", "2.8.2"))
def test_brokers_without_such_groups_are_named_with_what_to_do(kafka: KafkaCluster, version: str) -> None:
    one = ConsumerDriver(kafka.hosts, version, "g", [], {"t": 1})
    try:
        wait(lambda: one.group.state is State.FATAL, lambda: one.group.state)
    finally:
        one.kill()
    assert isinstance(one.group.error, UnsupportedVersion)
    assert 'group_protocol="classic"' in str(one.group.error)
