"""Partitioners that are objects, as kafka-python 3.0 has them (kafka.partitioner). Callables, of 1.4, are tested in test_producer and test_own_code."""

from __future__ import annotations

from typing import Any

import pytest

from gkafka.kafka.cluster import ClusterMetadata
from gkafka.kafka.errors import KafkaConfigurationError
from gkafka.kafka.partitioner import DefaultPartitioner, Partitioner, StickyPartitioner
from gkafka.records import murmur2
from tests.kafka.conftest import Make

LONG_MS = 60_000


class Asked(Partitioner):
    """Puts all into one partition, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.at = 0

    def partition(
        self, topic: str, key: Any, serialized_key: bytes | None, value: Any, serialized_value: bytes | None, cluster: Any
    ) -> int:
        self.asked.append((topic, key, serialized_key, value, serialized_value, type(cluster), cluster.partitions_for_topic(topic)))
        return self.at


class Told(Asked):
    """Is told of new batches, and moves on."""

    def on_new_batch(self, topic: str, cluster: Any, prev_partition: int) -> None:
        self.asked.append((topic, type(cluster), prev_partition))
        self.at = (prev_partition + 1) % 3


@pytest.fixture
def three(make_cluster: Make) -> Any:
    return make_cluster(topics={"t": 3})


def test_an_object_is_told_the_record_before_and_after_serialization(producer: Make, three: Any) -> None:
    chooses = Asked()
    chooses.at = 2
    sending = producer(three, partitioner=chooses, key_serializer=str.encode, value_serializer=lambda n: b"%d" % n)
    assert sending.send("t", 5, key="k").get(60).partition == 2
    assert chooses.asked == [("t", "k", b"k", 5, b"5", ClusterMetadata, {0, 1, 2})]
    assert sending.send("t", 5, key="k", partition=1).get(60).partition == 1
    assert len(chooses.asked) == 1, "a partition that is given needs no choice"


def test_an_object_of_no_such_class_may_take_all_or_what_3_0_gives_those(producer: Make, three: Any) -> None:
    class All:
        def partition(self, topic: str, key: Any, serialized_key: Any, value: Any, serialized_value: Any, cluster: Any) -> int:
            return 1

    class Three:
        def partition(self, topic: str, serialized_key: Any, cluster: Any) -> int:
            assert (topic, serialized_key, cluster.partitions_for_topic(topic)) == ("t", b"k", {0, 1, 2})
            return 2

    assert producer(three, partitioner=All()).send("t", b"v", key=b"k").get(60).partition == 1
    assert producer(three, partitioner=Three()).send("t", b"v", key=b"k").get(60).partition == 2


def test_an_object_is_told_of_the_batch_that_a_record_without_a_key_would_begin(producer: Make, three: Any) -> None:
    chooses = Told()
    sending = producer(three, partitioner=chooses, linger_ms=LONG_MS, batch_size=1000)
    first, second = (sending.send("t", b"v") for _ in range(2))
    assert (first.partition, second.partition) == (1, 1), "it was asked again, and the batch is open then"
    assert [one[2] for one in chooses.asked if len(one) == 3] == [0]
    assert [sending.send("t", b"x" * 400).partition for _ in range(5)] == [1, 1, 1, 2, 2], "the one that found the batch full stays"
    assert [one[2] for one in chooses.asked if len(one) == 3] == [0, 1]
    told = len(chooses.asked)
    chooses.at = 0
    assert sending.send("t", b"v", key=b"k").partition == 0
    assert len(chooses.asked) == told + 1, "a key has its partition whatever the batches"


def test_the_default_and_the_sticky_one_are_compiled(producer: Make, three: Any) -> None:
    for given in (None, DefaultPartitioner(), DefaultPartitioner, StickyPartitioner(), StickyPartitioner):
        sending = producer(three, partitioner=given, linger_ms=LONG_MS)
        assert sending.send.__func__ is not type(sending).send if hasattr(sending.send, "__func__") else True
        assert sending.send("t", b"v", key=b"foo").partition == murmur2(b"foo") % 3
        assert len({sending.send("t", b"v").partition for _ in range(20)}) == 1


def test_a_subclass_of_the_default_may_have_1_4s_call_or_3_0s_method(producer: Make, three: Any) -> None:
    class Call(DefaultPartitioner):
        def __call__(self, key: Any, every: Any, available: Any) -> int:  # type: ignore[override]
            return int(every[-1])

    class Method(DefaultPartitioner):
        def partition(self, topic: str, *args: Any) -> int:  # type: ignore[override]
            return super().partition(topic, *args) if args[1] == b"foo" else 1

    assert producer(three, partitioner=Call()).send("t", b"v", key=b"foo").get(60).partition == 2
    method = producer(three, partitioner=Method())
    assert method.send("t", b"v", key=b"foo").get(60).partition == murmur2(b"foo") % 3
    assert method.send("t", b"v", key=b"bar").get(60).partition == 1


class Cluster:
    """Has a topic of four partitions, of which some have a leader."""

    def __init__(self, led: set[int]) -> None:
        self.led = led

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return {0, 1, 2, 3} if topic == "t" else None

    def available_partitions_for_topic(self, topic: str) -> set[int]:
        return self.led


def test_the_sticky_one_stays_until_it_is_told_of_a_batch() -> None:
    sticky, cluster = StickyPartitioner(), Cluster({1, 2})
    present = sticky.partition("t", None, None, b"v", b"v", cluster)
    assert present in {1, 2}
    assert {sticky.partition("t", None, None, b"v", b"v", cluster) for _ in range(20)} == {present}
    sticky.on_new_batch("t", cluster, 3)  # type: ignore[arg-type]
    assert sticky.partition("t", None, None, b"v", b"v", cluster) == present, "another one's batch"
    sticky.on_new_batch("t", cluster, present)  # type: ignore[arg-type]
    assert sticky.partition("t", None, None, b"v", b"v", cluster) == 3 - present
    cluster.led = {3}
    assert sticky.partition("t", None, None, b"v", b"v", cluster) == 3, "its leader is gone"
    assert sticky.partition("t", "k", b"foo", b"v", b"v", cluster) == murmur2(b"foo") % 4
    with pytest.raises(ValueError, match="topic 'x' is not known"):
        sticky.partition("x", None, None, b"v", b"v", cluster)


def test_a_class_or_what_cannot_choose_is_refused(handler: str, producer: Make, three: Any) -> None:
    for bad in (Asked, object(), 5):
        with pytest.raises(KafkaConfigurationError, match=r"^partitioner=.*gkafka\.kafka\.partitioner\.Partitioner has"):
            producer(three, partitioner=bad)
