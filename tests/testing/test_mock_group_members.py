"""Clients that are members of groups of the mock cluster: gkafka's, on threads and on greenlets, and other people's."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.core.assignors import ASSIGNORS
from gkafka.core.groupstate import Change, GroupOptions, Tell
from gkafka.membership import Member
from gkafka.testing import Delay, Error, MockCluster
from tests.public.aids import Runner

KAFKA_PYTHON_RUNS_HERE = True
"""Its close() leaves a socket open now and then: tests/conftest.py."""
EVERYTHING = {("t", n) for n in range(4)}
Join = Callable[..., Any]


@pytest.fixture(params=["threading", "gevent"])
def run(request: pytest.FixtureRequest) -> Runner:
    return Runner(request.param)


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    with MockCluster(brokers=2, topics={"t": 4}) as made:
        yield made


@pytest.fixture
def connect(cluster: MockCluster, run: Runner) -> Iterator[Callable[[], KafkaClient]]:
    made: list[KafkaClient] = []

    def make() -> KafkaClient:
        made.append(KafkaClient(cluster.bootstrap, handler=run.name))
        return made[-1]

    yield make
    for client in made:
        client.close()


@pytest.fixture
def join(connect: Callable[[], KafkaClient]) -> Iterator[Join]:
    """Makes pykafka's managed consumers, each with a client of its own."""
    made: list[Any] = []

    def make(**options: Any) -> Any:
        options = {"heartbeat_interval_ms": 50, "rebalance_backoff_ms": 100, "auto_commit_enable": True, **options}
        made.append(connect().topics["t"].get_balanced_consumer("g", managed=True, **options))
        return made[-1]

    yield make
    for consumer in made:
        consumer.stop()


def rests(cluster: MockCluster, members: int, generation: int = 0) -> bool:
    """The group is stable, with so many members, and has divided everything."""
    group = cluster.group("g")
    if group is None or group.state != "Stable" or group.generation < generation:
        return False
    return len(group.members) == members and set(group.owners) == EVERYTHING


def beats(cluster: MockCluster, run: Runner) -> None:
    """Some heartbeats of each member arrive."""
    before = cluster.count("Heartbeat")
    run.until(lambda: cluster.count("Heartbeat") > before + 6)


# -- gkafka
def test_managed_consumers_share_a_topic_and_take_over(cluster: MockCluster, join: Join, run: Runner) -> None:
    first = join()
    assert set(first.partitions) == {0, 1, 2, 3}
    second = join()
    run.until(lambda: rests(cluster, 2) and (len(first.partitions), len(second.partitions)) == (2, 2))
    second.stop()
    run.until(lambda: rests(cluster, 1) and len(first.partitions) == 4)
    first.stop()
    assert cluster.group("g").state == "Empty"  # type: ignore[union-attr]


def test_what_was_consumed_is_committed_before_a_partition_goes(cluster: MockCluster, join: Join, connect: Any, run: Runner) -> None:
    with connect().topics["t"].get_sync_producer() as producer:
        for n in range(40):
            producer.produce(b"%d" % n)
    first = join(consumer_timeout_ms=60_000)
    found = [first.consume().value for _ in range(20)]
    second = join(consumer_timeout_ms=60_000)
    run.until(lambda: rests(cluster, 2) and (len(first.partitions), len(second.partitions)) == (2, 2))
    first.stop()
    run.until(lambda: rests(cluster, 1) and len(second.partitions) == 4)
    found += [second.consume().value for _ in range(20)]
    assert second.consume(block=False) is None
    assert sorted(found) == sorted(b"%d" % n for n in range(40)), "each once"


def test_a_managed_consumer_that_is_kicked_out_joins_again(cluster: MockCluster, join: Join, run: Runner) -> None:
    first, second = join(), join()
    run.until(lambda: rests(cluster, 2))
    gone = next(iter(cluster.group("g").members))  # type: ignore[union-attr]
    cluster.remove_member("g", gone)
    run.until(lambda: rests(cluster, 2) and (len(first.partitions), len(second.partitions)) == (2, 2))
    assert gone not in cluster.group("g").members  # type: ignore[union-attr]


def test_faults_of_the_script_reach_members(cluster: MockCluster, join: Join, run: Runner) -> None:
    consumer = join()
    run.until(lambda: rests(cluster, 1))
    cluster.on("Heartbeat", Error(27))
    run.until(lambda: rests(cluster, 1, generation=2))
    cluster.on("JoinGroup", Delay(0.3))
    cluster.on("SyncGroup", Error(27))
    cluster.rebalance("g")
    run.until(lambda: rests(cluster, 1, generation=3) and len(consumer.partitions) == 4)
    assert len(cluster.group("g").members) == 1  # type: ignore[union-attr]


def test_a_rolling_restart_of_the_coordinator_costs_no_rebalance(cluster: MockCluster, join: Join, run: Runner) -> None:
    consumers = join(), join()
    run.until(lambda: rests(cluster, 2))
    before = cluster.group("g")
    for _ in range(2):
        broker = cluster.coordinator("g")
        cluster.stop_broker(broker)
        beats(cluster, run)
        cluster.start_broker(broker)
        beats(cluster, run)
    assert rests(cluster, 2)
    assert cluster.group("g").generation == before.generation  # type: ignore[union-attr]
    assert sum(len(consumer.partitions) for consumer in consumers) == 4


class Driven:
    """A Member, and what it was told."""

    def __init__(self, client: KafkaClient, assignor: str, **options: Any) -> None:
        self.told: list[tuple[Change, set[int]]] = []
        self.problems: list[BaseException] = []
        options = {"session_timeout_s": 60.0, "rebalance_timeout_s": 60.0, "heartbeat_interval_s": 0.05, **options}
        self.member = Member(
            client.topics["t"]._cluster,
            GroupOptions("g", (ASSIGNORS[assignor],), **options),
            ["t"],
            on_change=self._on_change,
            on_problem=self.problems.append,
        )
        self.member.polled()

    def _on_change(self, tell: Tell, generation: int, member_id: str) -> None:
        self.told.append((tell.change, {tp.partition for tp in tell.partitions}))

    @property
    def has(self) -> set[int]:
        return {tp.partition for tp in self.member.delivered()}


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_members_divide_by_any_assignor(assignor: str, cluster: MockCluster, connect: Any, run: Runner) -> None:
    first, second = (Driven(connect(), assignor) for _ in range(2))
    run.until(lambda: rests(cluster, 2) and len(first.has) == len(second.has) == 2 and first.has | second.has == {0, 1, 2, 3})
    assert cluster.group("g").protocol == assignor  # type: ignore[union-attr]
    assert second.member.leave("done", 60.0)
    run.until(lambda: rests(cluster, 1) and first.has == {0, 1, 2, 3})
    assert first.member.leave("done", 60.0)
    assert [Change.LOST for change, _ in (*first.told, *second.told) if change is Change.LOST] == []
    assert first.problems == second.problems == []


def test_a_static_leader_comes_back_without_a_rebalance(cluster: MockCluster, connect: Any, run: Runner) -> None:
    """KIP-345, KIP-814"""
    first = Driven(connect(), "range", instance_id="one")
    run.until(lambda: rests(cluster, 1) and len(first.has) == 4)
    second = Driven(connect(), "range", instance_id="two")
    run.until(lambda: rests(cluster, 2) and len(first.has) == len(second.has) == 2)
    before = cluster.group("g")
    assert before is not None
    assert before.members[before.leader].instance == "one"
    first.member.abandon()
    run.until(lambda: first.member.state == "left" or not first.has)
    again = Driven(connect(), "range", instance_id="one")
    run.until(lambda: len(again.has) == 2)
    after = cluster.group("g")
    assert after is not None
    assert (after.generation, after.members[after.leader].instance) == (before.generation, "one")
    assert after.leader != before.leader
    for one in (again, second):
        one.member.leave("done", 60.0)


# -- others
class Other:
    """Another client's consumer, polled by a thread."""

    def __init__(self, consumer: Any, poll: Callable[[Any], list[Any]]) -> None:
        self.consumer = consumer
        self.found: list[tuple[int, int]] = []
        self._poll = poll
        self._going = True
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while self._going:
            self.found += self._poll(self.consumer)

    def halt(self) -> None:
        """Poll no more; the consumer stays as it is."""
        self._going = False
        self._thread.join(60)
        assert not self._thread.is_alive()

    def close(self) -> None:
        if self._going:
            self.halt()
            self.consumer.close()


def confluent_member(cluster: MockCluster, **options: Any) -> Other:
    confluent = pytest.importorskip("confluent_kafka")
    consumer = confluent.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 100,
            "session.timeout.ms": 30_000,
            "log_level": 0,
            **options,
        }
    )
    consumer.subscribe(["t"])

    def poll(consumer: Any) -> list[tuple[int, int]]:
        message = consumer.poll(0.1)
        return [] if message is None or message.error() else [(message.partition(), message.offset())]

    return Other(consumer, poll)


def kafka_python_member(cluster: MockCluster, **options: Any) -> Other:
    kafka = pytest.importorskip("kafka")
    settings = {
        "bootstrap_servers": cluster.bootstrap,
        "group_id": "g",
        "auto_offset_reset": "earliest",
        "heartbeat_interval_ms": 100,
        "session_timeout_ms": 30_000,
        "metadata_max_age_ms": 500,  # a member that leads and does not know the topic yet gives nobody a partition until it looks again
        "partition_assignment_strategy": [kafka.coordinator.assignors.range.RangePartitionAssignor],
    }
    consumer = kafka.KafkaConsumer("t", **{**settings, **options})

    def poll(consumer: Any) -> list[tuple[int, int]]:
        return [(m.partition, m.offset) for some in consumer.poll(100).values() for m in some]

    return Other(consumer, poll)


MAKERS = {"confluent": confluent_member, "kafka-python": kafka_python_member}


@pytest.fixture
def others(cluster: MockCluster) -> Iterator[Callable[..., Other]]:
    made: list[Other] = []

    def make(kind: str, **options: Any) -> Other:
        made.append(MAKERS[kind](cluster, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def fill(cluster: MockCluster, first: int, count: int = 10) -> None:
    with KafkaClient(cluster.bootstrap, handler="threading") as client, client.get_producer() as producer:
        for n in range(first, first + count):
            for partition in range(4):
                producer.produce("t", b"%d" % n, partition=partition)


def places(first: int, count: int = 10) -> list[tuple[int, int]]:
    return [(partition, n) for partition in range(4) for n in range(first, first + count)]


@pytest.mark.parametrize("kinds", [("confluent",) * 3, ("confluent", "kafka-python")], ids="-".join)
def test_other_peoples_consumers_share_a_topic_and_take_over_from_who_leaves(
    kinds: tuple[str, ...], cluster: MockCluster, others: Callable[..., Other]
) -> None:
    fill(cluster, 0)
    members = [others(kind) for kind in kinds]
    cluster.wait_for(lambda: rests(cluster, len(kinds)), 60)
    fill(cluster, 10)
    cluster.wait_for(lambda: set(places(0, 20)) <= {place for member in members for place in member.found}, 60)
    members.pop().close()
    cluster.wait_for(lambda: rests(cluster, len(kinds) - 1), 60)
    fill(cluster, 60)
    cluster.wait_for(lambda: set(places(20)) <= {place for member in members for place in member.found}, 60)


def test_a_consumer_that_goes_silent_loses_its_partitions(cluster: MockCluster, others: Callable[..., Other]) -> None:
    """librdkafka beats on its own, and leaves the group when nobody polls for max.poll.interval.ms; kafka-python's session ends here."""
    fill(cluster, 0)
    alive = others("confluent", **{"partition.assignment.strategy": "range"})
    silent = others("kafka-python", session_timeout_ms=1000)
    cluster.wait_for(lambda: rests(cluster, 2), 60)
    (name,) = [m for m, member in cluster.group("g").members.items() if "kafka-python" in member.client_id]  # type: ignore[union-attr]
    for api in ("Heartbeat", "JoinGroup", "LeaveGroup"):
        cluster.on(api, Delay(60.0), times=None, when=lambda request: "kafka-python" in (request.client_id or ""))
    cluster.wait_for(lambda: rests(cluster, 1), 60)
    assert name not in cluster.group("g").members  # type: ignore[union-attr]
    fill(cluster, 10)
    cluster.wait_for(lambda: set(places(10)) <= set(alive.found), 60)
    cluster.clear_script()
    silent.halt()
    silent.consumer.close(autocommit=False, timeout_ms=500)


def test_gkafka_shares_a_group_with_other_peoples_consumers(
    cluster: MockCluster, others: Callable[..., Other], join: Join, run: Runner
) -> None:
    members = [others("confluent", **{"partition.assignment.strategy": "range"}) for _ in range(2)]
    run.until(lambda: rests(cluster, 2), 60)
    consumer = join()
    run.until(lambda: rests(cluster, 3) and len(consumer.partitions) > 0, 60)
    for one in members:
        one.close()
    run.until(lambda: rests(cluster, 1) and len(consumer.partitions) == 4, 60)
