"""KafkaConsumer as kafka-python 0.9 documents it (behaviours 333-349), and C11."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gkafka import kafka
from gkafka.kafka.errors import (
    IllegalStateError,
    KafkaConfigurationError,
    NoBrokersAvailable,
    UnknownTopicOrPartitionError,
    WrongTypeError,
)
from gkafka.kafka.legacy import ConsumerTimeout, KafkaConsumer, KafkaMessage, OffsetOutOfRange, OffsetsStruct
from gkafka.testing import MockCluster
from tests.kafka.legacy import Make, committed, eventually, fill
from tests.kit.clock import now


@pytest.fixture
def make(handler: str) -> Iterator[Make]:
    """Makes KafkaConsumers that read from the start and wait for a minute: make(cluster, *topics, **configs)."""
    made: list[KafkaConsumer] = []

    def consumer(cluster: MockCluster, *topics: Any, **configs: Any) -> KafkaConsumer:
        defaults = {
            "metadata_broker_list": cluster.bootstrap,
            "handler": handler,
            "auto_offset_reset": "smallest",
            "consumer_timeout_ms": 60_000,
        }
        made.append(KafkaConsumer(*topics, **{**defaults, **configs}))
        return made[-1]

    yield consumer
    for one in made:
        one.close()


@pytest.fixture
def two(make_cluster: Callable[..., MockCluster]) -> MockCluster:
    """The topics "t" and "u" with two partitions each, "v" with three."""
    return make_cluster(topics={"t": 2, "u": 2, "v": 3})


def take(consumer: KafkaConsumer, count: int) -> list[Any]:
    return [consumer.next().value for _ in range(count)]


def next_or_none(consumer: KafkaConsumer) -> Any:
    with contextlib.suppress(ConsumerTimeout):
        return consumer.next()
    return None


# -- reading ---------------------------------------------------------------------------------------------------------------
def test_without_a_group_it_is_a_tail(cluster: MockCluster, handler: str) -> None:
    """Behaviour 333."""
    fill(cluster, {0: [b"before"]})
    with KafkaConsumer("t", metadata_broker_list=cluster.bootstrap, handler=handler, consumer_timeout_ms=60_000) as consumer:
        assert consumer.offsets("fetch") == {("t", 0): 1}
        fill(cluster, {0: [b"after"]})
        message = consumer.next()
        assert message.value == b"after"
        consumer.task_done(message)
        with pytest.raises(KafkaConfigurationError, match="give group_id"):
            consumer.commit()
    assert cluster.count("OffsetCommit") == 0
    assert cluster.count("OffsetFetch") == 0


def test_three_ways_to_read(cluster: MockCluster, make: Make) -> None:
    """Behaviour 334."""
    fill(cluster, {0: [b"%d" % i for i in range(6)]})
    consumer = make(cluster, "t")
    assert [m.value for m in itertools.islice(consumer, 2)] == [b"0", b"1"]
    assert next(consumer).value == b"2"
    assert consumer.next().value == b"3"
    assert [m.value for m in consumer.fetch_messages()] == [b"4", b"5"]
    assert list(consumer.fetch_messages()) == []
    fill(cluster, {0: [b"6"]})
    assert [m.value for m in consumer.fetch_messages()] == [b"6"]


def test_messages_are_named_tuples(cluster: MockCluster, make: Make) -> None:
    """Behaviour 335."""
    fill(cluster, {0: [b"v"]})
    message = make(cluster, "t").next()
    assert message == ("t", 0, 0, None, b"v")
    assert KafkaMessage._fields == ("topic", "partition", "offset", "key", "value")
    assert (message.topic, message.partition, message.offset, message.key, message.value) == tuple(message)
    assert [type(field) for field in message] == [str, int, int, type(None), bytes]


def test_the_deserializer_makes_the_value(cluster: MockCluster, make: Make) -> None:
    """Behaviour 335."""
    fill(cluster, {0: [b"1", b"x", b"3"]})
    consumer = make(cluster, "t", deserializer_class=int)
    assert consumer.next().value == 1
    for _ in range(2):
        with pytest.raises(ValueError, match="invalid literal"):
            consumer.next()
    assert consumer.offsets("fetch") == {("t", 0): 1}


def test_fetch_messages_gives_a_generator_over_all_partitions(two: MockCluster, make: Make) -> None:
    """Behaviour 342."""
    fill(two, {0: [b"a", b"b"], 1: [b"c"]})
    fill(two, {1: [b"d"]}, topic="u")
    consumer = make(two, "t", ("u", 1), fetch_message_max_bytes=54321, fetch_min_bytes=2, fetch_wait_max_ms=77)
    batch = consumer.fetch_messages()
    assert iter(batch) is batch
    found = {(m.topic, m.partition, m.value) for m in batch}
    while len(found) < 4:
        found |= {(m.topic, m.partition, m.value) for m in consumer.fetch_messages()}
    assert found == {("t", 0, b"a"), ("t", 0, b"b"), ("t", 1, b"c"), ("u", 1, b"d")}
    request = two.requests("Fetch")[0].message
    assert (request.min_bytes, request.max_wait_ms, request.topics[0].partitions[0].partition_max_bytes) == (2, 77, 54321)


def test_a_batch_that_is_given_up_loses_nothing(cluster: MockCluster, make: Make) -> None:
    fill(cluster, {0: [b"a", b"b", b"c"]})
    consumer = make(cluster, "t")
    next(consumer.next() for _ in range(1))
    for message in consumer.fetch_messages():
        assert message.value == b"b"
        break
    assert consumer.offsets("fetch") == {("t", 0): 2}
    assert [m.value for m in consumer.fetch_messages()] == [b"c"]


def test_it_follows_the_leader(make_cluster: Callable[..., MockCluster], make: Make) -> None:
    """Behaviour 342: errors make it ask for metadata anew."""
    cluster = make_cluster(2, {"t": 1})
    fill(cluster, {0: [b"a"]})
    consumer = make(cluster, "t")
    assert consumer.next().value == b"a"
    cluster.move_leader("t", 0, 1 if cluster.leader("t", 0) != 1 else 2)
    fill(cluster, {0: [b"b"]})
    assert consumer.next().value == b"b"


def test_no_message_in_time_raises(cluster: MockCluster, make: Make) -> None:
    """Behaviour 343."""
    fill(cluster, {0: [b"a"]})
    consumer = make(cluster, "t", consumer_timeout_ms=1000)
    eventually(lambda: next_or_none(consumer), sleep=consumer._handler.sleep)
    begun = now()
    with pytest.raises(ConsumerTimeout):
        consumer.next()
    assert 1 <= now() - begun < 30
    with pytest.raises(ConsumerTimeout):
        list(consumer)
    fill(cluster, {0: [b"b"]})
    assert eventually(lambda: next_or_none(consumer), sleep=consumer._handler.sleep).value == b"b"


def test_without_a_timeout_next_waits(cluster: MockCluster, make: Make) -> None:
    """Behaviour 343: -1 is for ever."""
    consumer = make(cluster, "t", consumer_timeout_ms=-1)

    def later() -> None:
        consumer._handler.sleep(1.5)
        cluster_fill()

    def cluster_fill() -> None:
        producer = consumer._client.get_producer(linger_ms=0)
        producer.produce("t", b"late", partition=0).result(60)
        producer.close()

    consumer._handler.spawn(later)
    assert consumer.next().value == b"late"


# -- marks and commits -----------------------------------------------------------------------------------------------------
def test_only_what_is_marked_is_committed(two: MockCluster, make: Make) -> None:
    """Behaviours 336, 337."""
    fill(two, {0: [b"a", b"b", b"c"], 1: [b"d"]})
    consumer = make(two, ("t", 0), ("t", 1), group_id="g")
    messages = [consumer.next() for _ in range(4)]
    assert consumer.commit() is False
    assert committed(two) == {}
    assert consumer.task_done(next(m for m in messages if m.value == b"b"))
    assert consumer.commit() is True
    assert committed(two) == {0: 2}
    assert consumer.commit() is False
    assert consumer.offsets("commit") == {("t", 0): 2, ("t", 1): None}
    assert consumer.offsets("task_done") == {("t", 0): 1, ("t", 1): None}
    assert consumer.task_done(messages[0]._replace(topic="other")) is False


def test_the_group_goes_on_where_it_has_committed(cluster: MockCluster, make: Make) -> None:
    """Behaviour 337."""
    fill(cluster, {0: [b"a", b"b"]})
    first = make(cluster, "t", group_id="g")
    first.task_done(first.next())
    first.commit()
    second = make(cluster, "t", group_id="g", auto_offset_reset="largest")
    assert second.offsets("commit") == {("t", 0): 1}
    assert second.next().value == b"b"


def test_marks_are_committed_by_number(cluster: MockCluster, make: Make) -> None:
    """Behaviour 338."""
    fill(cluster, {0: [b"%d" % i for i in range(5)]})
    consumer = make(cluster, "t", group_id="g", auto_commit_enable=True, auto_commit_interval_messages=2)
    messages = [consumer.next() for _ in range(5)]
    consumer.task_done(messages[0])
    assert committed(cluster) == {}
    consumer.task_done(messages[1])
    assert committed(cluster) == {0: 2}
    consumer.task_done(messages[2])
    assert committed(cluster) == {0: 2}
    consumer.close()
    assert committed(cluster) == {0: 3}


def test_marks_are_committed_by_time(cluster: MockCluster, make: Make) -> None:
    """Behaviour 338."""
    fill(cluster, {0: [b"a", b"b"]})
    consumer = make(cluster, "t", group_id="g", auto_commit_enable=True, auto_commit_interval_ms=300)
    consumer.task_done(consumer.next())
    consumer.next()
    eventually(lambda: committed(cluster) == {0: 1}, sleep=consumer._handler.sleep)


def test_without_auto_commit_marks_wait_for_commit(cluster: MockCluster, make: Make) -> None:
    """Behaviour 338."""
    fill(cluster, {0: [b"a"]})
    consumer = make(cluster, "t", group_id="g", auto_commit_interval_ms=50, auto_commit_interval_messages=1)
    consumer.task_done(consumer.next())
    consumer._handler.sleep(0.3)
    consumer.close()
    assert committed(cluster) == {}


# -- settings --------------------------------------------------------------------------------------------------------------
DEFAULTS = {
    "client_id": "kafka.consumer.kafka",
    "group_id": None,
    "fetch_message_max_bytes": 1048576,
    "fetch_min_bytes": 1,
    "fetch_wait_max_ms": 100,
    "refresh_leader_backoff_ms": 200,
    "metadata_broker_list": None,
    "socket_timeout_ms": 30000,
    "auto_offset_reset": "largest",
    "auto_commit_enable": False,
    "auto_commit_interval_ms": 60000,
    "auto_commit_interval_messages": None,
    "consumer_timeout_ms": -1,
}


def test_the_documented_defaults() -> None:
    """Behaviour 339."""
    assert {name: KafkaConsumer.DEFAULT_CONFIG[name] for name in DEFAULTS} == DEFAULTS
    assert KafkaConsumer.DEFAULT_CONFIG["deserializer_class"](b"x") == b"x"
    assert KafkaConsumer is not kafka.KafkaConsumer  # C11


def test_configure_takes_the_same_settings(cluster: MockCluster, make: Make, handler: str) -> None:
    """Behaviour 340."""
    fill(cluster, {0: [b"a", b"b"]})
    consumer = make(cluster, "t", client_id="one", consumer_timeout_ms=77)
    assert consumer.next().value == b"a"
    consumer.configure(metadata_broker_list=[cluster.bootstrap], handler=handler, client_id="two", deserializer_class=bytes.decode)
    assert consumer._config["consumer_timeout_ms"] == -1
    assert consumer.next().value == "b"
    assert {r.client_id for r in cluster.requests("Fetch")} == {"one", "two"}


def test_settings_are_those_of_the_client_and_its_fetches(cluster: MockCluster, make: Make) -> None:
    consumer = make(cluster, "t", socket_timeout_ms=4321, refresh_leader_backoff_ms=123)
    assert consumer._client is not None
    assert consumer._client.cluster.config.socket_timeout_ms == 4321
    assert consumer._reader is not None
    assert (consumer._reader.consumer._config.request_timeout_ms, consumer._reader.consumer._config.fetch_error_backoff_ms) == (4321, 123)


def test_what_cannot_be_used_is_refused(cluster: MockCluster, make: Make, handler: str) -> None:
    with pytest.raises(KafkaConfigurationError, match="did you mean 'fetch_min_bytes'"):
        make(cluster, "t", fetch_min_byte=1)
    with pytest.raises(KafkaConfigurationError, match="auto_commit_enable=True needs a group"):
        make(cluster, "t", auto_commit_enable=True)
    with pytest.raises(KafkaConfigurationError, match="deserializer_class=5"):
        make(cluster, "t", deserializer_class=5)
    with pytest.raises(KafkaConfigurationError, match="socket_timeout_ms='1'"):
        make(cluster, "t", socket_timeout_ms="1")
    with pytest.raises(KafkaConfigurationError, match="consumer_timeout_ms=nan"):
        make(cluster, "t", consumer_timeout_ms=float("nan"))
    with pytest.raises(KafkaConfigurationError, match="two names"):
        make(cluster, "t", bootstrap_servers="x:1")
    with pytest.raises(NoBrokersAvailable):
        KafkaConsumer(metadata_broker_list="127.0.0.1:1", socket_timeout_ms=300, handler=handler)
    consumer = make(cluster)
    with pytest.raises(KafkaConfigurationError, match="no topics or partitions"):
        consumer.next()
    with pytest.raises(KafkaConfigurationError, match="group='x'"):
        consumer.offsets("x")
    consumer.close()
    with pytest.raises(IllegalStateError, match="closed"):
        consumer.set_topic_partitions("t")


@pytest.mark.parametrize(("policy", "first"), [("smallest", b"3"), ("largest", b"5")])
def test_out_of_range_goes_by_auto_offset_reset(cluster: MockCluster, make: Make, policy: str, first: bytes) -> None:
    """Behaviour 341."""
    fill(cluster, {0: [b"%d" % i for i in range(5)]})
    cluster.delete_records("t", 0, 3)
    consumer = make(cluster, ("t", 0, 1), auto_offset_reset=policy)
    if policy == "largest":
        assert list(consumer.fetch_messages()) == []
        eventually(
            lambda: consumer._reader is not None and consumer._reader.consumer.position(("t", 0)) == 5, sleep=consumer._handler.sleep
        )
        fill(cluster, {0: [b"5"]})
    assert consumer.next().value == first


def test_another_policy_raises(cluster: MockCluster, make: Make) -> None:
    """Behaviour 341: neither of the two. Each call does."""
    fill(cluster, {0: [b"a", b"b"]})
    cluster.delete_records("t", 0, 1)
    consumer = make(cluster, ("t", 0, 0), auto_offset_reset="error")
    begun = now()
    for _ in range(2):
        with pytest.raises(OffsetOutOfRange):
            consumer.next()
        with pytest.raises(OffsetOutOfRange):
            consumer.fetch_messages()
    assert now() - begun < 60  # none of them waits for consumer_timeout_ms, a minute each
    with pytest.raises(KafkaConfigurationError, match="does not say where"):
        make(cluster, "t", auto_offset_reset="error")


# -- offsets -----------------------------------------------------------------------------------------------------------------
def test_get_partition_offsets(cluster: MockCluster, make: Make) -> None:
    """Behaviour 344."""
    consumer = make(cluster)
    producer = consumer._client.get_producer(linger_ms=0)
    for at in (1000, 2000, 3000):
        producer.produce("t", b"v", partition=0, timestamp=at).result(60)
    cluster.delete_records("t", 0, 1)
    assert consumer.get_partition_offsets("t", 0, -1, 1) == [3]
    assert consumer.get_partition_offsets("t", 0, -2, 1) == [1]
    assert consumer.get_partition_offsets("t", 0, -2, 10) == [1]
    assert consumer.get_partition_offsets("t", 0, 2500, 10) == [2, 1]
    assert consumer.get_partition_offsets("t", 0, 2500, 1) == [2]
    assert consumer.get_partition_offsets("t", 0, 9999, 10) == [3, 1]
    assert consumer.get_partition_offsets("t", 0, 500, 10) == []
    with pytest.raises(KafkaConfigurationError, match="max_num_offsets=0"):
        consumer.get_partition_offsets("t", 0, -1, 0)


def test_offsets_are_a_copy(cluster: MockCluster, make: Make) -> None:
    """Behaviour 345."""
    fill(cluster, {0: [b"a", b"b"]})
    consumer = make(cluster, "t", group_id="g")
    tp = ("t", 0)
    nothing = {"fetch": {tp: 0}, "highwater": {tp: None}, "commit": {tp: None}, "task_done": {tp: None}}
    assert consumer.offsets() == nothing
    consumer.task_done(consumer.next())
    consumer.commit()
    assert consumer.offsets() == {"fetch": {tp: 1}, "highwater": {tp: 2}, "commit": {tp: 1}, "task_done": {tp: 0}}
    consumer.offsets("fetch").clear()
    consumer.offsets()["commit"].clear()
    assert consumer.offsets("fetch") == {tp: 1}
    assert consumer.offsets("commit") == {tp: 1}


def test_the_struct_of_offsets() -> None:
    """Behaviour 346."""
    struct = OffsetsStruct(1, 2, 3, 4)
    assert struct == (1, 2, 3, 4)
    assert (struct.fetch, struct.highwater, struct.commit, struct.task_done) == (1, 2, 3, 4)


# -- what is consumed --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("given", "read"),
    [
        (["t"], {("t", 0), ("t", 1)}),
        ([b"t"], {("t", 0), ("t", 1)}),
        ([("t", 1)], {("t", 1)}),
        ([{"t": 1}], {("t", 1)}),
        ([{"v": [0, 2]}], {("v", 0), ("v", 2)}),
        ([{"v": (1, 2)}], {("v", 1), ("v", 2)}),
        ([{"t": 0, "v": [1]}], {("t", 0), ("v", 1)}),
        (["t", ("v", 2), {"u": 0}], {("t", 0), ("t", 1), ("v", 2), ("u", 0)}),
        ([], set()),
    ],
)
def test_forms_of_topics(two: MockCluster, make: Make, given: list[Any], read: set[Any]) -> None:
    """Behaviours 347, 349."""
    consumer = make(two)
    consumer.set_topic_partitions(*given)
    assert consumer.offsets("fetch") == dict.fromkeys(read, 0)
    for topic in ("t", "u", "v"):
        fill(two, {p: [b"x"] for p in range(2 if topic != "v" else 3)}, topic=topic)
    found = [consumer.next() for _ in read]
    assert {(m.topic, m.partition) for m in found} == read


def test_forms_with_offsets(two: MockCluster, make: Make) -> None:
    """Behaviour 348, and 349 with them."""
    fill(two, {0: [b"0", b"1", b"2"], 1: [b"3", b"4"]})
    consumer = make(two, group_id="g")
    consumer.set_topic_partitions(("t", 0, 2), ("t", 1, 1))
    assert sorted(take(consumer, 2)) == [b"2", b"4"]
    consumer.set_topic_partitions({("t", 0): 1, ("t", 1): 0})
    assert consumer.offsets("fetch") == {("t", 0): 1, ("t", 1): 0}
    assert sorted(take(consumer, 4)) == [b"1", b"2", b"3", b"4"]
    consumer.set_topic_partitions({("t", 0): 2, "u": [1]}, ("v", 0, 0), "t")
    assert consumer.offsets("fetch") == {("t", 0): 0, ("t", 1): 0, ("u", 1): 0, ("v", 0): 0}


def test_an_offset_given_goes_before_the_commit(cluster: MockCluster, make: Make) -> None:
    fill(cluster, {0: [b"a", b"b", b"c"]})
    first = make(cluster, "t", group_id="g")
    first.task_done(first.next())
    first.commit()
    second = make(cluster, ("t", 0, 2), group_id="g")
    assert second.offsets("commit") == {("t", 0): 1}
    assert second.next().value == b"c"


@pytest.mark.parametrize("given", [5, ("t",), ("t", "0"), ("t", 0, "1"), {"t": "0"}, {("t", 0): "1"}, {3: 0}, ["t"], ("t", True)])
def test_other_forms_are_refused(two: MockCluster, make: Make, given: Any) -> None:
    consumer = make(two)
    with pytest.raises((WrongTypeError, KafkaConfigurationError)):
        consumer.set_topic_partitions(given)


def test_partitions_that_are_not_there_are_told(two: MockCluster, make: Make) -> None:
    consumer = make(two)
    with pytest.raises(UnknownTopicOrPartitionError, match="no partition 9"):
        consumer.set_topic_partitions(("t", 9))


# -- the end ---------------------------------------------------------------------------------------------------------------
def test_a_closed_one_hands_out_nothing_that_waited(cluster: MockCluster, make: Make) -> None:
    """It came twice: the group's next member has it, too."""
    fill(cluster, {0: [b"a", b"b", b"c", b"d"]})
    consumer = make(cluster, "t", group_id="g", auto_commit_enable=True)
    seen = []
    for message in consumer:
        seen.append(message.offset)
        consumer.task_done(message)
        if message.offset == 1:
            consumer.close()
    assert seen == [0, 1]
    assert committed(cluster) == {0: 2}
    with pytest.raises(IllegalStateError, match="KafkaConsumer is closed: make a new one"):
        consumer.next()
    assert take(make(cluster, "t", group_id="g"), 2) == [b"c", b"d"]


def test_a_batch_ends_with_its_consumer(cluster: MockCluster, make: Make) -> None:
    fill(cluster, {0: [b"a", b"b", b"c"]})
    consumer = make(cluster, "t")
    batch = consumer.fetch_messages()
    assert next(batch).offset == 0
    consumer.close()
    assert list(batch) == []
