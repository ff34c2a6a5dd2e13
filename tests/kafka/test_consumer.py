"""KafkaConsumer as its documentation shows it: records, iteration, poll(), assignments, pauses (behaviours 223-230, 276-278, 292-294)."""

from __future__ import annotations

import copy
import json
import operator
import pickle
from collections.abc import Sequence
from typing import Any

import pytest

import gkafka.kafka
from gkafka import kafka
from gkafka.kafka import Deserializer, KafkaConsumer, TopicPartition
from gkafka.kafka.consumer.fetcher import ConsumerRecord
from gkafka.kafka.errors import IllegalStateError
from gkafka.testing import MockCluster
from tests.kafka.conftest import Make
from tests.kafka.consuming import FIRST, GROUP, QUICK, consume, joined, offsets, put, until
from tests.kit.clock import now
from tests.public.aids import Runner

SECOND = TopicPartition("t", 1)


def test_the_documented_imports_are_there_below_gkafka() -> None:
    """Behaviour 223."""
    from gkafka.kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from gkafka.kafka.consumer import KafkaConsumer as OfPackage
    from gkafka.kafka.errors import KafkaError

    assert kafka is gkafka.kafka
    assert OfPackage is KafkaConsumer
    assert issubclass(KafkaError, Exception)
    assert issubclass(KafkaProducer, object)
    assert TopicPartition("t", 0) == ("t", 0)


# -- records ---------------------------------------------------------------------------------------------------------------
def test_iteration_yields_named_tuples_of_raw_bytes(consumer: Make, cluster: MockCluster) -> None:
    """Behaviour 224."""
    put(cluster, b"\xff\x00v", key=b"k\xff", headers=[(b"h", b"1"), (b"n", None)])
    read = next(iter(consumer(cluster, "t", **QUICK)))
    assert (read.topic, read.partition, read.offset, read.key, read.value) == ("t", 0, 0, b"k\xff", b"\xff\x00v")
    assert (read.timestamp, read.timestamp_type, read.headers) == (1000, 0, [("h", b"1"), ("n", None)])
    assert (read.checksum, read.serialized_key_size, read.serialized_value_size, read.serialized_header_size) == (None, 2, 3, 3)


@pytest.mark.parametrize("lazy", [True, False], ids=["lazy", "deserialized"])
def test_a_record_behaves_as_a_namedtuple(consumer: Make, cluster: MockCluster, lazy: bool) -> None:
    """Behaviour 224."""
    put(cluster, b"v", key=b"k")
    (read,) = consume(consumer(cluster, "t", **QUICK, **({} if lazy else {"value_deserializer": bytes})), 1)
    whole = ("t", 0, 0, 1000, 0, b"k", b"v", [], None, 1, 1, -1)
    topic, partition, offset, *_ = read
    assert (topic, partition, offset) == ("t", 0, 0)
    assert isinstance(read, ConsumerRecord)
    assert tuple(read) == whole
    assert read == whole
    assert read == ConsumerRecord(*whole)
    assert ConsumerRecord(*whole) == read
    assert read != ConsumerRecord(*whole)._replace(offset=1)
    assert (len(read), read[6], read[-1], read[:2], b"v" in read) == (12, b"v", -1, ("t", 0), True)
    assert read._replace(value=b"w").value == b"w"
    assert read._asdict()["key"] == b"k"
    assert repr(read).startswith("ConsumerRecord(topic='t', partition=0, offset=0, timestamp=1000, timestamp_type=0, key=b'k', value=b'v'")
    assert pickle.loads(pickle.dumps(read)) == copy.copy(read) == read
    assert read._fields[:7] == ("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value")


@pytest.mark.parametrize("lazy", [True, False], ids=["lazy", "deserialized"])
def test_a_record_does_what_tuples_do(consumer: Make, cluster: MockCluster, lazy: bool) -> None:
    """Behaviour 224."""
    put(cluster, b"v", b"w", key=b"k")
    read, other = consume(consumer(cluster, "t", **QUICK, **({} if lazy else {"value_deserializer": bytes})), 2)
    whole = tuple(read)
    assert isinstance(read, tuple)
    assert issubclass(read.__class__, tuple)
    assert isinstance(read, Sequence)
    assert (operator.add(read, ("x",)), operator.add(("x",), read), operator.add(read, other)) == (
        (*whole, "x"),
        ("x", *whole),
        (*whole, *other),
    )
    assert (read * 2, 2 * read) == (whole * 2, whole * 2)
    assert sorted([other, read]) == [read, other]
    assert (read < other, read <= other, read > other, read >= other) == (True, True, False, False)
    assert list(reversed(read)) == list(reversed(whole))
    assert (read.index("t"), read.count(0), read[1:3]) == (0, whole.count(0), whole[1:3])
    assert read._make(range(12)) == type(read)._make(range(12)) == tuple(range(12))
    assert read._field_defaults == {}
    assert repr(read.timestamp_type) == "0"
    match read:
        case [topic, partition, offset, *_]:
            assert (topic, partition, offset) == ("t", 0, 0)
        case _:
            pytest.fail("no sequence")
    match read:
        case ConsumerRecord(found, 0, value=b"v"):
            assert found == "t"
        case _:
            pytest.fail("no record")
    with pytest.raises(TypeError):
        operator.add(read, ["x"])
    with pytest.raises(TypeError, match="unhashable"):
        hash(read)  # as the namedtuple of kafka-python: headers are a list


@pytest.mark.parametrize("lazy", [True, False], ids=["lazy", "deserialized"])
def test_what_c_code_wants_of_a_tuple_is_had_of_a_copy(consumer: Make, cluster: MockCluster, lazy: bool) -> None:
    """docs/kafka-python.md names what a view cannot, and that _replace() and pickle give the tuple."""
    put(cluster, b"v", key=b"k")
    (read,) = consume(consumer(cluster, "t", **QUICK, **({} if lazy else {"value_deserializer": bytes})), 1)
    assert (type(read) is ConsumerRecord) is not lazy
    for one in (read._replace(), pickle.loads(pickle.dumps(read))):
        assert type(one) is ConsumerRecord
        assert operator.mod("%s" + " %s" * 11, one).startswith("t 0 0")
        assert json.loads(json.dumps(one._replace(key="k", value="v")))[:3] == ["t", 0, 0]
    assert lazy is False or read.detach() == read


def test_values_and_keys_go_through_the_deserializers(consumer: Make, cluster: MockCluster) -> None:
    """Behaviour 227."""
    put(cluster, b"7", key=b"k")
    (read,) = consume(consumer(cluster, "t", value_deserializer=int, key_deserializer=bytes.decode, **QUICK), 1)
    assert (read.key, read.value) == ("k", 7)
    assert (read.serialized_key_size, read.serialized_value_size) == (1, 1)


def test_deserializers_are_called_for_what_is_not_there_too(consumer: Make, cluster: MockCluster) -> None:
    """As kafka-python calls them: a tombstone may mean something to a program."""
    put(cluster, b"v", None)
    read = consume(consumer(cluster, "t", value_deserializer=lambda v: v or b"gone", key_deserializer=repr, **QUICK), 2)
    assert [(r.key, r.value) for r in read] == [("None", b"v"), ("None", b"gone")]
    reading = consumer(cluster, "t", value_deserializer=lambda v: v.decode(), **QUICK)
    assert [r.value for r in consume(reading, 1)] == ["v"]
    for _ in range(2):  # nothing is lost: seek() passes it
        with pytest.raises(AttributeError):
            reading.poll(2000)
    assert reading.position(FIRST) == 1


def test_a_topic_that_is_not_there_is_read_as_soon_as_it_is(consumer: Make, make_cluster: Make, caplog: pytest.LogCaptureFixture) -> None:
    """As in kafka-python: a consumer may be started before the topic is made."""
    cluster = make_cluster(topics={}, auto_create=False)
    reading = consumer(cluster, "later", **QUICK)
    assert "topic 'later'" in caplog.text
    assert reading.subscription() == {"later"}
    assert (reading.poll(100), reading.assignment()) == ({}, set())
    cluster.create_topic("later", 1)
    put(cluster, b"1", topic="later")
    assert [r.value for r in consume(reading, 1)] == [b"1"]


def test_many_topics_that_are_not_there_are_asked_for_at_once(consumer: Make, make_cluster: Make) -> None:
    cluster = make_cluster(topics={"t": 1}, auto_create=False)
    put(cluster, b"0")
    names = [f"later-{n}" for n in range(30)]
    begun = now()
    reading = consumer(cluster, "t", *names, allow_auto_create_topics=False, **GROUP)
    assert [r.value for r in consume(reading, 1)] == [b"0"]
    assert now() - begun < 30  # it took 40 s


def test_poll_waits_as_long_as_it_is_told_where_nothing_is_read(consumer: Make, cluster: MockCluster) -> None:
    begun = now()
    assert consumer(cluster).poll(1500) == {}
    assert 1.4 <= now() - begun < 30


def test_a_deserializer_may_be_an_object_that_is_told_the_topic_and_closed(consumer: Make, cluster: MockCluster) -> None:
    """Behaviour 227."""
    closed = []

    class Shouting(Deserializer):
        def deserialize(self, topic: str, bytes_: bytes | None) -> str:
            return f"{topic}: {(bytes_ or b'').decode().upper()}"

        def close(self) -> None:
            closed.append(self)

    put(cluster, b"v")
    reading = consumer(cluster, "t", value_deserializer=Shouting(), **QUICK)
    assert consume(reading, 1)[0].value == "t: V"
    reading.close()
    assert len(closed) == 1


def test_records_stay_readable_after_the_consumer_is_closed(consumer: Make, cluster: MockCluster) -> None:
    put(cluster, b"a", b"b", key=b"k")
    reading = consumer(cluster, "t", **QUICK)
    kept = consume(reading, 2)
    reading.close()
    assert [(r.key, r.value) for r in kept] == [(b"k", b"a"), (b"k", b"b")]


# -- iteration -------------------------------------------------------------------------------------------------------------
def test_consumer_timeout_ms_ends_iteration_and_it_may_begin_again(consumer: Make, cluster: MockCluster, handler: str) -> None:
    """Behaviour 229."""
    put(cluster, b"a", b"b")
    reading = consumer(cluster, "t", consumer_timeout_ms=1000, **QUICK)
    assert [r.value for r in consume(reading, 2)] == [b"a", b"b"]
    begun = now()
    assert list(reading) == []
    with pytest.raises(StopIteration):
        next(reading)
    assert 1.9 <= now() - begun < 30
    put(cluster, b"c")
    until(handler, lambda: next(reading, None) is not None)


def test_consumer_timeout_ms_below_nothing_is_no_limit(consumer: Make, cluster: MockCluster, handler: str) -> None:
    """As in 1.4, where older programs say so with -1."""
    runner = Runner(handler)
    reading = consumer(cluster, "t", consumer_timeout_ms=-1, **QUICK)
    first = runner.aside(next, reading)
    assert runner.stays(lambda: first.running)
    put(cluster, b"late")
    assert first.result().value == b"late"


def test_consumer_timeout_ms_is_for_each_record_not_for_all(consumer: Make, cluster: MockCluster, handler: str) -> None:
    """Behaviour 229."""
    put(cluster, b"0", b"1", b"2", b"3")
    reading = consumer(cluster, "t", consumer_timeout_ms=2000, **QUICK)
    values = [record.value for record in consume(reading, 1)]
    for record in reading:
        values.append(record.value)
        Runner(handler).sleep(0.8)
    assert values == [b"0", b"1", b"2", b"3"]


def test_by_default_iteration_waits_for_ever(consumer: Make, cluster: MockCluster, handler: str) -> None:
    """Behaviour 229."""
    from tests.public.aids import Runner

    reading = consumer(cluster, "t", **QUICK)
    assert reading.config["consumer_timeout_ms"] == float("inf")
    waiting = Runner(handler).aside(next, reading)
    assert Runner(handler).stays(lambda: waiting.running, 1.3), "longer than one wait inside"
    put(cluster, b"late")
    assert waiting.result().value == b"late"


def test_iteration_ends_with_close(consumer: Make, cluster: MockCluster, handler: str) -> None:
    from tests.public.aids import Runner

    put(cluster, b"a")
    reading = consumer(cluster, "t", **QUICK)
    values = Runner(handler).aside(lambda: [r.value for r in reading])
    until(handler, lambda: reading.position(FIRST) == 1)
    reading.close()
    assert values.result() == [b"a"]


# -- what is read ----------------------------------------------------------------------------------------------------------
def test_assign_consumes_these_partitions_only(consumer: Make, make_cluster: Make) -> None:
    """Behaviour 226, 278."""
    cluster = make_cluster(topics={"foobar": 3})
    for n in range(3):
        put(cluster, b"%d" % n, topic="foobar", partition=n)
    reading = consumer(cluster, consumer_timeout_ms=300, **QUICK)
    reading.assign([TopicPartition("foobar", 2)])
    assert consume(reading, 1)[0].value == b"2"
    assert list(reading) == []
    assert reading.assignment() == {TopicPartition("foobar", 2)}
    assert reading.subscription() is None


def test_assign_replaces_and_needs_no_group(consumer: Make, make_cluster: Make) -> None:
    """Behaviour 277."""
    cluster = make_cluster(topics={"t": 2})
    put(cluster, b"0")
    put(cluster, b"1", partition=1)
    reading = consumer(cluster, group_id="g", enable_auto_commit=False, **QUICK)
    reading.assign([FIRST])
    assert offsets(consume(reading, 1)) == [(0, 0)]
    reading.assign([SECOND])
    assert reading.assignment() == {SECOND}
    assert offsets(consume(reading, 1)) == [(1, 0)]
    put(cluster, b"0")
    assert reading.poll(200) == {}
    reading.assign([])
    assert reading.assignment() == set()
    assert cluster.count("JoinGroup") == 0


@pytest.mark.parametrize("more", [{}, {"auto_offset_reset": "latest"}, {"group_id": "g"}, {"auto_offset_reset": "none"}])
def test_what_was_assigned_goes_on_where_it_stands_when_more_is(consumer: Make, make_cluster: Make, more: dict[str, Any]) -> None:
    """kafka-python keeps the place of a partition that stays, and its pause; it was looked up anew, and records were skipped or read again."""
    cluster = make_cluster(topics={"t": 2})
    put(cluster, b"0", b"1", b"2", b"3")
    reading = consumer(cluster, **{**QUICK, **more})
    reading.assign([FIRST])
    reading.seek(FIRST, 0)
    assert [r.offset for r in consume(reading, 2)] == [0, 1]
    reading.pause(FIRST)
    reading.assign([FIRST, TopicPartition("t", 1)])
    assert (reading.position(FIRST), reading.paused()) == (2, {FIRST})
    reading.resume(FIRST)
    reading.seek(TopicPartition("t", 1), 0)
    assert [r.offset for r in consume(reading, 2)] == [2, 3]


@pytest.mark.parametrize("again", [["t"], ["u", "t"]])
def test_topics_that_are_subscribed_to_again_go_on_where_they_stand(consumer: Make, make_cluster: Make, again: list[str]) -> None:
    """Without a group, as in kafka-python: with "latest" what was not read yet was skipped."""
    cluster = make_cluster(topics={"t": 1, "u": 1})
    put(cluster, b"0", b"1", b"2", b"3")
    reading = consumer(cluster, **{**QUICK, "auto_offset_reset": "latest"})
    reading.subscribe(["t"])
    joined(reading)
    reading.seek(FIRST, 0)
    assert [r.offset for r in consume(reading, 2)] == [0, 1]
    reading.subscribe(again)
    assert [r.offset for r in consume(reading, 2)] == [2, 3]


def test_the_same_topics_again_are_no_rebalance(consumer: Make, cluster: MockCluster) -> None:
    put(cluster, b"0", b"1", b"2", b"3")
    reading = consumer(cluster, "t", **{**GROUP, "enable_auto_commit": False})
    assert [r.offset for r in consume(reading, 2)] == [0, 1]
    reading.subscribe(["t"])
    assert [r.offset for r in consume(reading, 2)] == [2, 3]
    assert (cluster.count("LeaveGroup"), cluster.group("g").generation) == (0, 1)


def test_assign_and_subscribe_exclude_each_other_until_unsubscribe(consumer: Make, make_cluster: Make) -> None:
    """Behaviour 276."""
    cluster = make_cluster(topics={"t": 2})
    reading = consumer(cluster, **QUICK)
    reading.subscribe(["t"])
    with pytest.raises(IllegalStateError, match="after subscribe"):
        reading.assign([FIRST])
    assert reading.subscription() == {"t"}
    reading.unsubscribe()
    reading.assign([FIRST])
    with pytest.raises(IllegalStateError, match="after assign"):
        reading.subscribe(["t"])
    with pytest.raises(IllegalStateError, match="after assign"):
        reading.subscribe(pattern="t")
    assert reading.assignment() == {FIRST}
    reading.unsubscribe()
    reading.subscribe(["t"])
    assert reading.assignment() == {FIRST, SECOND}


def test_without_a_group_a_subscription_reads_all_partitions(consumer: Make, make_cluster: Make) -> None:
    """Behaviour 278, 301."""
    cluster = make_cluster(topics={"t": 2, "u": 1})
    put(cluster, b"u", topic="u")
    reading = consumer(cluster, "t", **QUICK)
    assert (reading.subscription(), reading.assignment()) == ({"t"}, {FIRST, SECOND})
    reading.subscribe(["u"])
    assert (reading.subscription(), reading.assignment()) == ({"u"}, {TopicPartition("u", 0)})
    assert consume(reading, 1)[0].value == b"u"
    reading.unsubscribe()
    assert (reading.subscription(), reading.assignment()) == (None, set())
    assert reading.poll(50) == {}


def test_a_pattern_consumes_every_topic_that_matches_now_and_later(consumer: Make, make_cluster: Make) -> None:
    """Behaviours 230, 301."""
    cluster = make_cluster(topics={"awesome-a": 1, "not-awesome": 1})
    put(cluster, b"a", topic="awesome-a")
    put(cluster, b"no", topic="not-awesome")
    reading = consumer(cluster, metadata_max_age_ms=150, **QUICK)
    reading.subscribe(pattern="^awesome.*")
    assert consume(reading, 1)[0].topic == "awesome-a"
    cluster.create_topic("awesome-b", 1)
    put(cluster, b"b", topic="awesome-b")
    assert consume(reading, 1)[0].topic == "awesome-b"
    assert reading.subscription() == {"awesome-a", "awesome-b"}


# -- poll ------------------------------------------------------------------------------------------------------------------
def test_poll_returns_records_by_partition_in_order(consumer: Make, make_cluster: Make) -> None:
    """Behaviour 293."""
    cluster = make_cluster(topics={"t": 3})
    for round_ in range(3):
        for n in range(3):
            put(cluster, *[b"%d-%d" % (round_, i) for i in range(4)], partition=n)
    reading = consumer(cluster, "t", **QUICK)
    got: dict[TopicPartition, list[int]] = {}
    while sum(map(len, got.values())) < 36:
        polled = reading.poll(1000, max_records=10)
        assert isinstance(polled, dict)
        assert sum(map(len, polled.values())) <= 10
        for tp, records in polled.items():
            assert isinstance(tp, TopicPartition)
            assert {(r.topic, r.partition) for r in records} == {tp}
            got.setdefault(tp, []).extend(r.offset for r in records)
    assert got == {TopicPartition("t", n): list(range(12)) for n in range(3)}


def test_poll_without_a_timeout_returns_at_once(consumer: Make, cluster: MockCluster, handler: str) -> None:
    """Behaviour 293."""
    reading = consumer(cluster, "t", **QUICK)
    begun = now()
    assert reading.poll() == {}
    assert now() - begun < 30
    put(cluster, b"v")
    polled = until(handler, reading.poll)
    assert offsets(polled[FIRST]) == [(0, 0)]


def test_poll_waits_no_longer_than_its_timeout_and_no_longer_than_needed(consumer: Make, cluster: MockCluster) -> None:
    """Behaviour 293."""
    reading = consumer(cluster, "t", **QUICK)
    begun = now()
    assert reading.poll(timeout_ms=300) == {}
    assert 0.28 <= now() - begun < 30
    put(cluster, b"v")
    begun = now()
    assert offsets(reading.poll(timeout_ms=120_000)[FIRST]) == [(0, 0)]
    assert now() - begun < 60


def test_poll_goes_on_where_the_last_one_ended(consumer: Make, cluster: MockCluster) -> None:
    """Behaviour 294."""
    put(cluster, *[b"%d" % n for n in range(6)])
    reading = consumer(cluster, "t", **QUICK)
    assert offsets(consume(reading, 2)) == [(0, 0), (0, 1)]
    assert offsets(consume(reading, 2)) == [(0, 2), (0, 3)]
    reading.seek(FIRST, 1)
    assert offsets(consume(reading, 2)) == [(0, 1), (0, 2)]


def test_paused_partitions_are_not_handed_out_until_they_are_resumed(consumer: Make, make_cluster: Make) -> None:
    """Behaviour 292."""
    cluster = make_cluster(topics={"t": 2})
    for n in range(2):
        put(cluster, b"a", b"b", partition=n)
    reading = consumer(cluster, "t", **QUICK)
    assert reading.paused() == set()
    reading.pause(FIRST)
    assert reading.paused() == {FIRST}
    assert offsets(consume(reading, 2)) == [(1, 0), (1, 1)]
    assert reading.poll(200) == {}
    assert reading.assignment() == {FIRST, SECOND}
    assert reading.subscription() == {"t"}
    reading.resume(FIRST)
    assert reading.paused() == set()
    assert offsets(consume(reading, 2)) == [(0, 0), (0, 1)]


def test_a_consumer_is_a_context_that_is_closed_and_says_what_it_is(cluster: MockCluster, handler: str) -> None:
    with KafkaConsumer("t", bootstrap_servers=cluster.bootstrap, handler=handler) as reading:
        assert repr(reading) == "<KafkaConsumer group_id=None ['t']>"
        assert reading.bootstrap_connected() is True
    assert "closed" in repr(reading)
    assert cluster.wait_for(lambda: cluster.connections() == 0)
