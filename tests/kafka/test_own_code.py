"""Code that an application brings along: deserializers that fail, partitioners, assignors of kafka-python's interface, subclasses."""

from __future__ import annotations

import importlib
import sys
import warnings
from itertools import islice
from typing import Any

import pytest

from gkafka.kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition
from gkafka.kafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from gkafka.kafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata
from gkafka.kafka.errors import CommitFailedError, KafkaTimeoutError, UnknownTopicOrPartitionError
from gkafka.testing import MockCluster
from tests.kafka.conftest import Make
from tests.kafka.consuming import FIRST, GROUP, QUICK, consume, joined, last, offsets, put, until
from tests.kit.clock import now


# -- deserializers ---------------------------------------------------------------------------------------------------------
class Unreadable(Exception):
    """An application's own error."""


def failing(data: bytes) -> Any:
    """Reads numbers."""
    try:
        return int(data)
    except ValueError as exc:
        raise Unreadable(data) from exc


@pytest.mark.parametrize("iterate", [False, True])
def test_a_deserializers_own_exception_is_raised_and_nothing_is_lost(consumer: Make, cluster: MockCluster, iterate: bool) -> None:
    """Behaviour 227. As kafka-python does; the note says which record it was."""
    put(cluster, b"1", b"x", b"3")
    reading = consumer(cluster, "t", value_deserializer=failing, **QUICK)
    assert [r.value for r in consume(reading, 1)] == [1]
    for _ in range(2):
        with pytest.raises(Unreadable) as caught:
            next(reading) if iterate else until("threading", lambda: reading.poll(100))
        assert (type(caught.value), caught.value.args) == (Unreadable, (b"x",))
        assert isinstance(caught.value.__cause__, ValueError), "what it was raised from stays"
        if sys.version_info >= (3, 11):
            assert caught.value.__notes__ == ["t-0 offset 1: its deserializer failed; seek() passes it"]
    assert reading.position(FIRST) == 1
    reading.seek(FIRST, 2)
    assert [r.value for r in consume(reading, 1)] == [3]


# -- subclasses ------------------------------------------------------------------------------------------------------------
class Skipping(KafkaConsumer):
    """Passes every second record."""

    def __next__(self) -> Any:
        super().__next__()
        return super().__next__()


def test_iteration_asks_a_subclasss_next(handler: str, cluster: MockCluster) -> None:
    put(cluster, *(b"%d" % n for n in range(6)))
    with Skipping("t", bootstrap_servers=cluster.bootstrap, handler=handler, consumer_timeout_ms=60_000, **QUICK) as reading:
        assert iter(reading) is reading
        assert [r.value for r in islice(reading, 3)] == [b"1", b"3", b"5"]


# -- partitioners ----------------------------------------------------------------------------------------------------------
def test_a_partitioner_is_told_which_partitions_have_a_leader(producer: Make, make_cluster: Make, handler: str) -> None:
    cluster = make_cluster(brokers=2, topics={"t": 4}, replication_factor=1)
    asked: list[Any] = []

    def first(key: bytes | None, partitions: list[int], available: list[int]) -> int:
        asked.append((key, partitions, available))
        return available[0]

    sending = producer(cluster, partitioner=first, key_serializer=str.encode, metadata_max_age_ms=100)
    led = [p for p in range(4) if cluster.leader("t", p) == 1]
    assert sending.send("t", b"v", key="k").get(60).partition == 0
    assert asked == [(b"k", [0, 1, 2, 3], [0, 1, 2, 3])]
    cluster.stop_broker(2)

    def told() -> bool:
        assert sending.send("t", b"v", key="n").get(60).partition == led[0]
        return asked[-1] == (b"n", [0, 1, 2, 3], led)

    until(handler, told)
    assert 0 < len(led) < 4
    before = len(asked)
    assert sending.send("t", b"v", key="n", partition=led[-1]).get(60).partition == led[-1]
    assert len(asked) == before, "a partition that is given needs no choice"


@pytest.mark.parametrize(
    ("chosen", "error"), [(4, "chose 4"), (-1, "chose -1"), ("0", "chose '0'"), (None, "chose None"), (False, "chose False")]
)
def test_a_partition_that_is_none_is_refused(producer: Make, cluster: MockCluster, chosen: Any, error: str) -> None:
    with pytest.raises(ValueError, match=f"the partitioner {error}: topic 't' has the partitions 0 to 0"):
        producer(cluster, partitioner=lambda *_: chosen).send("t", b"v")


def test_a_partitioners_own_exception_is_raised(producer: Make, cluster: MockCluster) -> None:
    def fails(*_: Any) -> int:
        raise Unreadable

    with pytest.raises(Unreadable):
        producer(cluster, partitioner=fails).send("t", b"v")


# -- assignors -------------------------------------------------------------------------------------------------------------
class Everything(AbstractPartitionAssignor):
    """As it is written for 1.4: all partitions for the first member; the class is used as it is."""

    name = "everything"
    version = 0
    seen: Any = None
    told: Any = None

    @classmethod
    def assign(cls, cluster: Any, members: Any) -> Any:
        cls.seen = cluster.topics(), {member: (told.subscription, told.user_data) for member, told in members.items()}
        topics = sorted({topic for told in members.values() for topic in told.subscription})
        everything = [(topic, sorted(cluster.partitions_for_topic(topic))) for topic in topics]
        return {
            member: ConsumerProtocolMemberAssignment(cls.version, [] if number else everything, b"")
            for number, member in enumerate(sorted(members))
        }

    @classmethod
    def metadata(cls, topics: set[str]) -> Any:
        return ConsumerProtocolMemberMetadata(cls.version, sorted(topics), b"mine")

    @classmethod
    def on_assignment(cls, assignment: Any) -> None:  # type: ignore[override]  # as in 1.4: without the generation
        cls.told = assignment


def test_an_assignor_of_ones_own_makes_the_assignment(consumer: Make, make_cluster: Make, handler: str) -> None:
    """Behaviour 259: partition_assignment_strategy is a list of such."""
    Everything.told = None
    cluster = make_cluster(topics={"t": 3})
    three = [TopicPartition("t", n) for n in range(3)]
    first = joined(consumer(cluster, "t", **GROUP, partition_assignment_strategy=[Everything]), *three)
    assert [p.name for p in last(cluster, "JoinGroup").message.protocols] == ["everything"]
    seen_topics, members = Everything.seen
    assert (seen_topics, list(members.values())) == ({"t"}, [(["t"], b"mine")])
    told = until(handler, lambda: Everything.told)  # by the membership's worker, when the share is there
    assert (told.partitions(), told.version) == (three, 0)
    second = consumer(cluster, "t", **GROUP, partition_assignment_strategy=[Everything()])
    until("threading", lambda: (first.poll(10), second.poll(10), len(Everything.seen[1]) == 2)[2])
    until("threading", lambda: (first.poll(10), second.poll(10), first.assignment() | second.assignment() == set(three))[2])
    assert sorted(len(one.assignment()) for one in (first, second)) == [0, 3]


def kafka_pythons() -> dict[str, Any]:
    """kafka-python's own assignors by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        homes = ("range.RangePartitionAssignor", "roundrobin.RoundRobinPartitionAssignor", "sticky.sticky_assignor.StickyPartitionAssignor")
        homes = (*homes, "cooperative_sticky.CooperativeStickyAssignor")
        found = (
            getattr(importlib.import_module(f"kafka.coordinator.assignors.{h.rpartition('.')[0]}"), h.rpartition(".")[2]) for h in homes
        )
        return {one.__name__: one for one in found}


@pytest.mark.parametrize("name", kafka_pythons())
def test_kafka_pythons_own_assignors_divide_a_group(consumer: Make, make_cluster: Make, name: str, caplog: Any) -> None:
    assignor = kafka_pythons()[name]
    cluster = make_cluster(topics={"t": 4})
    members = [consumer(cluster, "t", **GROUP, partition_assignment_strategy=[assignor]) for _ in range(2)]

    def shared() -> bool:
        for member in members:
            member.poll(10)
        return [len(member.assignment()) for member in members] == [2, 2]

    until("threading", shared)
    put(cluster, b"a", b"b", partition=3)
    owner = next(member for member in members if TopicPartition("t", 3) in member.assignment())
    assert offsets(consume(owner, 2)) == [(3, 0), (3, 1)]
    assert "a built-in one made this assignment" not in caplog.text


@pytest.mark.parametrize("strategy", [5, "ranges", object, lambda: None, KafkaConsumer, AbstractPartitionAssignor])
def test_what_is_no_assignor_is_refused_by_the_options_name(consumer: Make, cluster: MockCluster, strategy: Any) -> None:
    with pytest.raises(TypeError, match=r"^partition_assignment_strategy: .*") as caught:
        consumer(cluster, "t", **GROUP, partition_assignment_strategy=[strategy])
    assert "assignors=" not in str(caught.value)


# -- partitions that are not there -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("call", ["beginning_offsets", "end_offsets", "offsets_for_times"])
@pytest.mark.parametrize("unknown", [TopicPartition("nope", 0), TopicPartition("t", 7)])
def test_looking_up_a_partition_that_is_not_there_is_a_timeout_as_documented_that_says_why(
    consumer: Make, make_cluster: Make, monkeypatch: pytest.MonkeyPatch, call: str, unknown: TopicPartition
) -> None:
    """Behaviour 280: KafkaTimeoutError."""
    monkeypatch.setattr("gkafka.cluster.UNKNOWN_TOPIC_PATIENCE_S", 0.2)
    reading = consumer(make_cluster(auto_create=False), request_timeout_ms=20_000, **QUICK)
    asked: Any = {unknown: 0} if call == "offsets_for_times" else [unknown]
    with pytest.raises(KafkaTimeoutError, match=unknown.topic) as caught:
        getattr(reading, call)(asked)
    assert isinstance(caught.value, UnknownTopicOrPartitionError)
    assert (caught.value.topic, caught.value.errno) == (unknown.topic, 3)


@pytest.mark.parametrize("call", ["beginning_offsets", "end_offsets", "offsets_for_times"])
def test_looking_up_a_partition_without_a_leader_ends_by_the_timeout(consumer: Make, make_cluster: Make, call: str) -> None:
    cluster = make_cluster(brokers=2, topics={"t": 2}, replication_factor=1)
    reading = consumer(cluster, request_timeout_ms=700, **QUICK)
    cluster.stop_broker(2)
    lost = next(TopicPartition("t", p) for p in range(2) if cluster.leader("t", p) < 0)
    begun = now()
    with pytest.raises(KafkaTimeoutError):
        getattr(reading, call)({lost: 0} if call == "offsets_for_times" else [lost])
    assert now() - begun < 30


@pytest.mark.parametrize("policy", ["earliest", "latest"])
def test_a_partition_that_is_assigned_and_not_there_is_read_as_soon_as_it_is(
    consumer: Make, make_cluster: Make, policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As in 1.4, where nothing is asked before poll(). All it holds by then is new."""
    cluster = make_cluster(topics={"t": 1}, auto_create=False)
    reading = consumer(cluster, **{**QUICK, "auto_offset_reset": policy}, metadata_max_age_ms=100)
    begun = now()
    absent = [TopicPartition("t", 1), TopicPartition("later", 0)]
    reading.assign([FIRST, *absent])
    assert now() - begun < 30
    assert "topic 't' has no partition 1; it is read as soon as it is there" in caplog.text
    assert "later" in caplog.text
    assert reading.assignment() == {FIRST, *absent}
    assert reading.position(FIRST) == 0
    put(cluster, b"first")
    assert [record.value for record in consume(reading, 1)] == [b"first"]
    assert reading.poll(300) == {}
    cluster.add_partitions("t", 2)
    cluster.create_topic("later", 1)
    for topic, partition in absent:
        put(cluster, b"later", topic=topic, partition=partition)
    assert {(record.topic, record.partition, record.offset) for record in consume(reading, 2)} == {("t", 1, 0), ("later", 0, 0)}


# -- commits by who reads nothing ------------------------------------------------------------------------------------------
def test_offsets_can_be_committed_for_a_group_without_reading_anything(consumer: Make, cluster: MockCluster) -> None:
    """Behaviour 282, as kafka-python: nothing was handed out, so that commit() has nothing to do; what is given is committed."""
    keeping = consumer(cluster, **GROUP)
    keeping.commit()
    assert keeping.commit_async().get(60) is not None
    assert cluster.count("OffsetCommit") == 0
    keeping.commit({FIRST: OffsetAndMetadata(7, "by hand")})
    assert tuple(keeping.committed(FIRST, metadata=True)) == (7, "by hand")
    assert keeping.commit_async({FIRST: OffsetAndMetadata(8, "")}).get(60).topics == [("t", [(0, 0)])]
    assert keeping.committed(FIRST) == 8
    assert keeping.group_metadata() == ("g", -1, "", None)
    member = joined(consumer(cluster, "t", **GROUP))
    with pytest.raises(CommitFailedError, match="the group has members"):
        keeping.commit({FIRST: OffsetAndMetadata(1, "")})
    assert member.committed(FIRST) == 8
