"""client.get_consumer(): topics, patterns and partitions; positions, commits, deserializers."""

from __future__ import annotations

import copy
import json
import logging
import pickle
import re
from collections.abc import Callable
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.common import TopicPartition
from gkafka.consumer import Consumer
from gkafka.exceptions import (
    ConfigurationError,
    ConsumerStoppedException,
    GroupAuthorizationFailed,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    SerializationError,
    UnknownTopicError,
)
from gkafka.nativeproducer import NativeProducer
from gkafka.testing import Drop, Error, MockCluster
from tests.public.aids import LIMIT_S, Clock, Runner, error_of, fill, read
from tests.records.handmade import batch, record

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
Make = Callable[..., Consumer]


@pytest.fixture
def make(client: KafkaClient) -> Any:
    """Makes consumers; they are stopped at the end."""
    made: list[Consumer] = []

    def consumer(topics: Any = None, group: str | None = None, *, of: KafkaClient | None = None, **options: Any) -> Consumer:
        made.append((of or client).get_consumer(topics, group, **{"fetch_error_backoff_ms": 10, **options}))
        return made[-1]

    yield consumer
    for each in made:
        each.stop()


def numbers(n: int, first: int = 0) -> list[bytes]:
    return [b"%d" % i for i in range(first, first + n)]


def values(consumer: Consumer, count: int) -> list[Any]:
    return [message.value for message in read(consumer, count)]


def test_a_message_without_pykafkas_partition_names_the_id(make: Make, client: KafkaClient) -> None:
    """None would be printed, and taken for a partition."""
    fill(client, numbers(1))
    (message,) = read(make("t"), 1)
    assert message.partition_id in (0, 1)
    with pytest.raises(AttributeError, match=r"has no partition, here it is partition_id"):
        message.partition  # noqa: B018  # asked for
    assert not hasattr(message, "partition")


def test_who_iterates_waits_also_where_calls_do_not(client: KafkaClient, make: Make, run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """With consume_timeout_ms=0 it went round and round, at a whole CPU."""
    consumer, calls = make("t", consume_timeout_ms=0), []
    consume = consumer._engine.consume_batch
    monkeypatch.setattr(consumer._engine, "consume_batch", lambda *args: calls.append(args) or consume(*args))
    iterating = run.aside(lambda: [message.value for message in consumer])
    run.until(lambda: calls)
    run.sleep(0.3)
    fill(client, numbers(3))
    run.until(lambda: consumer.position(T0) == 3)
    consumer.stop()
    assert iterating.result() == numbers(3)
    assert len(calls) < 100


# -- what is read ------------------------------------------------------------------------------------------------------------
def test_one_topic_or_many(connect: Any, make_cluster: Any, make: Make) -> None:
    client = connect(make_cluster(topics={"t": 2, "u": 1, "v": 1}))
    for topic, partition in (T0, T1, U0):
        fill(client, numbers(5), topic=topic, partition=partition)
    one, many = make("t", of=client), make(["t", b"u", "t"], of=client)
    assert one.assignment() == {T0, T1}
    assert many.assignment() == {T0, T1, U0}
    assert sorted((m.topic, m.partition_id, m.offset) for m in read(many, 15)) == sorted((*tp, o) for tp in (T0, T1, U0) for o in range(5))
    assert len(read(one, 10)) == 10
    assert one.consume(0) is None


def test_a_pattern_reads_what_matches_and_what_comes_later(connect: Any, make_cluster: Any, make: Make, run: Runner) -> None:
    cluster = make_cluster(topics={"log-a": 1, "log-b": 1, "other-log-": 1})
    client = connect(cluster, metadata_max_age_ms=100)
    consumer = make(re.compile("log-.*"), of=client, auto_offset_reset="latest")
    assert {tp.topic for tp in consumer.assignment()} == {"log-a", "log-b"}
    cluster.create_topic("log-c", 2)
    fill(connect(cluster), numbers(3), topic="log-c", partition=1)
    assert [(m.topic, m.offset) for m in read(consumer, 3)] == [("log-c", 0), ("log-c", 1), ("log-c", 2)], (
        "from the start: all of it is new"
    )


def test_partitions_that_are_added_are_read_from_their_start(connect: Any, make_cluster: Any, make: Make) -> None:
    cluster = make_cluster()
    client = connect(cluster, metadata_max_age_ms=100)
    consumer = make("t", of=client, auto_offset_reset="latest")
    fill(client, numbers(2))
    read(consumer, 2)
    cluster.add_partitions("t", 2)
    fill(connect(cluster), numbers(3), partition=1)
    assert [(m.partition_id, m.offset) for m in read(consumer, 3)] == [(1, 0), (1, 1), (1, 2)]
    fill(client, numbers(1))
    assert [(m.partition_id, m.offset) for m in read(consumer, 1)] == [(0, 2)], "and the others go on"


def test_new_partitions_are_taken_up_by_the_next_call_if_one_was_interrupted(
    connect: Any, make_cluster: Any, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were read only once the metadata changed again."""
    cluster = make_cluster()
    client = connect(cluster)
    consumer = make("t", of=client)
    cluster.add_partitions("t", 2)
    fill(connect(cluster), numbers(3), partition=1)
    client.update_cluster()

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(consumer._engine, "add", interrupted)
        with pytest.raises(KeyboardInterrupt):
            consumer.consume_batch(timeout_ms=200)
    assert [(m.partition_id, m.offset) for m in read(consumer, 3)] == [(1, 0), (1, 1), (1, 2)]


def test_partitions_that_are_assigned(connect: Any, make_cluster: Any, make: Make, run: Runner) -> None:
    client = connect(make_cluster(topics={"t": 2, "u": 1}))
    for topic, partition in (T0, T1, U0):
        fill(client, numbers(5), topic=topic, partition=partition)
    consumer = make(of=client)
    with pytest.raises(ConfigurationError, match=r"nothing is read: call assign\(\) first"):
        consumer.consume_batch(timeout_ms=0)
    consumer.assign([("t", 1)])
    assert values(consumer, 5) == numbers(5)
    consumer.assign({("u", 0): 3, ("t", 0): -1})
    assert [(m.topic, m.offset) for m in read(consumer, 2)] == [("u", 3), ("u", 4)]
    assert consumer.assignment() == {U0, T0}
    run.until(lambda: consumer.positions() == {U0: 5, T0: 5})


@pytest.mark.parametrize(("policy", "first"), [("earliest", 0), ("latest", 5)])
def test_auto_offset_reset_is_where_it_starts(client: KafkaClient, make: Make, run: Runner, policy: str, first: int) -> None:
    fill(client, numbers(5))
    consumer = make("t", auto_offset_reset=policy)
    run.until(lambda: consumer.position(T0) == first)
    fill(client, numbers(1, 5))
    assert [m.offset for m in read(consumer, 6 - first)] == list(range(first, 6))


def test_auto_offset_reset_none_raises_where_there_is_no_offset(client: KafkaClient, cluster: MockCluster, make: Make) -> None:
    fill(client, numbers(10), batches=10)
    consumer = make(group="g", auto_offset_reset="none")
    assert type(error_of(consumer.assign, [("t", 0)])) is NoOffsetForPartitionError
    assert type(error_of(consumer.assign, [("t", 9)])) is ConfigurationError  # that one is not there
    cluster.delete_records("t", 0, 5)
    consumer.assign({T0: 2})
    assert isinstance(error_of(consumer.consume_batch, 1, LIMIT_S * 1000), OffsetOutOfRangeError)


@pytest.mark.parametrize("group", [None, "g"])
def test_topics_without_a_place_wait_for_seek(client: KafkaClient, make: Make, group: str | None) -> None:
    fill(client, numbers(5))
    consumer = make("t", group, auto_offset_reset="none")
    for _ in range(2):
        told = error_of(consumer.consume_batch, 1, LIMIT_S * 1000)
        assert type(told) is NoOffsetForPartitionError
        assert "seek()" in str(told)
    consumer.pause([T0])
    consumer.seek(T0, 3)
    assert consumer.consume_batch(timeout_ms=200) == []
    consumer.resume([T0])
    assert [m.offset for m in read(consumer, 2)] == [3, 4]


@pytest.mark.parametrize(
    "call",
    [
        lambda c: c.get_consumer([]),
        lambda c: c.get_consumer(7),
        lambda c: c.get_consumer("a b"),
        lambda c: c.get_consumer(re.compile(b"x")),
        lambda c: c.get_consumer("t", "g", heartbeat_interval_ms=6000, session_timeout_ms=6000),
        lambda c: c.get_consumer("t", "g", assignors=[]),
        lambda c: c.get_consumer("t", "g", assignors=["fair"]),
        lambda c: c.get_consumer("t", "g", assignors=[object()]),
        lambda c: c.get_consumer("t", "g", on_revoked="f"),
        lambda c: c.get_consumer("t", "g", group_protocol="consumer", assignors=["range"]),
        lambda c: c.get_consumer("t", "g", group_remote_assignor="range"),
        lambda c: c.get_consumer("t", group_instance_id="one"),
        lambda c: c.get_consumer(None, "g", max_poll_interval_ms=1000),
        lambda c: c.get_consumer("t").group_metadata(),
        lambda c: c.get_consumer("t", ""),
        lambda c: c.get_consumer("t", auto_commit=True),
        lambda c: c.get_consumer("t", auto_offset_reset="smallest"),
        lambda c: c.get_consumer("t", consume_timeout_ms=-1),
        lambda c: c.get_consumer("t", on_deserialize_error="dlq", value_deserializer=int),
        lambda c: c.get_consumer("t", dead_letter="x", value_deserializer=int),
        lambda c: c.get_consumer("t", on_deserialize_error="dlq", value_deserializer=int, dead_letter="a b"),
        lambda c: c.get_consumer("t", on_deserialize_error="skip"),
        lambda c: c.get_consumer("t", value_deserialiser=int),
        lambda c: c.get_consumer("t").assign([("t", 0)]),
        lambda c: c.get_consumer().assign("t"),
        lambda c: c.get_consumer().assign([0]),
        lambda c: c.get_consumer().assign({("t", 0): "x"}),
        lambda c: c.get_consumer("t").seek(("t", 7), 0),
        lambda c: c.get_consumer("t").consume(timeout_ms=-1),
        lambda c: c.get_consumer("t").consume_batch(0),
        lambda c: c.get_consumer("t").commit(),
        lambda c: c.get_consumer("t").offsets_for_times({"t": 0}),
    ],
)
def test_what_cannot_be_is_told_at_the_call(client: KafkaClient, call: Callable[[KafkaClient], Any]) -> None:
    with pytest.raises(ConfigurationError):
        call(client)


@pytest.mark.usefixtures("short_patience")
def test_a_topic_that_does_not_exist_is_told(connect: Any, cluster: MockCluster, make: Make) -> None:
    assert isinstance(error_of(make, "nope", of=connect(cluster, auto_create_topics=False)), UnknownTopicError)


# -- waiting, positions --------------------------------------------------------------------------------------------------------
def test_consume_waits_consume_timeout_ms_or_what_the_call_says(client: KafkaClient, make: Make) -> None:
    consumer = make("t", consume_timeout_ms=150)
    with Clock() as clock:
        assert consumer.consume() is None
    assert 0.14 < clock.seconds < 30
    patient = make("t", consume_timeout_ms=120_000)
    with Clock() as clock:
        assert patient.consume_batch(timeout_ms=0) == []
    assert clock.seconds < 60


def test_iteration_ends_with_stop(client: KafkaClient, make: Make, run: Runner) -> None:
    fill(client, numbers(3))
    consumer = make("t")
    seen: list[bytes] = []

    def iterate() -> None:
        seen.extend(message.value for message in consumer)

    reading = run.aside(iterate)
    run.until(lambda: len(seen) == 3)
    consumer.stop()
    reading.result()
    assert isinstance(error_of(consumer.consume), ConsumerStoppedException)


def test_seek_pause_resume_and_lag(client: KafkaClient, make: Make, run: Runner) -> None:
    fill(client, numbers(10))
    consumer = make("t")
    read(consumer, 4)
    assert (consumer.position(("t", 0)), consumer.lag()) == (4, {T0: 6})
    consumer.pause([("t", 0)])
    assert (consumer.paused(), consumer.consume_batch(timeout_ms=50)) == ({T0}, [])
    consumer.seek(("t", 0), 8)
    consumer.resume([T0])
    assert values(consumer, 2) == numbers(2, 8)
    consumer.seek(T0, -2)
    assert values(consumer, 10) == numbers(10)
    assert consumer.lag() == {T0: 0}


def test_offsets_for_times(client: KafkaClient, make: Make) -> None:
    with client.get_producer() as producer:
        for i in range(5):
            producer.produce("t", b"x", timestamp=1_700_000_000_000 + 1000 * i, partition=0).result(LIMIT_S)
    consumer = make("t")
    at = 1_700_000_002_500
    assert consumer.offsets_for_times({("t", 0): at}) == {T0: 3}
    assert consumer.offsets_for_times({("t", 0): at + 10_000}) == {T0: -1}
    consumer.seek(T0, consumer.offsets_for_times({("t", 0): at})[T0])
    assert [m.offset for m in read(consumer, 2)] == [3, 4]


# -- commits -------------------------------------------------------------------------------------------------------------------
def test_a_group_goes_on_where_it_has_committed(client: KafkaClient, cluster: MockCluster, make: Make) -> None:
    fill(client, numbers(10))
    first = make(group="g", auto_commit=False)
    first.assign([T0])
    read(first, 4)
    first.commit()
    read(first, 3)
    first.stop()
    assert cluster.committed("g")["t", 0].offset == 4
    second = make(group="g", auto_commit=False)
    second.assign([T0])
    assert second.committed(T0) == 4
    assert values(second, 6) == numbers(6, 4)
    second.commit({("t", 0): 9})
    assert second.committed(T0) == 9
    second.assign({T0: 2})
    assert values(second, 1) == numbers(1, 2), "an offset that is given outweighs the commit"


def committed(cluster: MockCluster) -> int:
    found = cluster.committed("g").get(("t", 0))
    return -1 if found is None else found.offset


def test_auto_commit_commits_what_the_application_has_finished_and_no_more(
    client: KafkaClient, cluster: MockCluster, make: Make, run: Runner
) -> None:
    fill(client, numbers(10))
    consumer = make(group="g", auto_commit_interval_ms=20)
    consumer.assign([T0])
    assert len(consumer.consume_batch(4, LIMIT_S * 1000)) == 4
    assert run.stays(lambda: committed(cluster) <= 0), "the four may still be worked on"
    run.sleep(0.1)
    assert len(consumer.consume_batch(3, LIMIT_S * 1000)) == 3
    run.until(lambda: committed(cluster) > 0)
    assert run.stays(lambda: committed(cluster) == 4)
    consumer.stop()
    assert cluster.committed("g")["t", 0].offset == 7, "stop() says that all of it is finished"


def test_leaving_the_block_by_an_error_commits_nothing_unfinished(client: KafkaClient, cluster: MockCluster, make: Make) -> None:
    fill(client, numbers(10))

    def work() -> None:
        with make(group="g", auto_commit_interval_ms=60_000) as consumer:
            consumer.assign([T0])
            read(consumer, 4)
            consumer._handler.sleep(0.11)
            consumer.consume_batch(3, LIMIT_S * 1000)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert cluster.committed("g")["t", 0].offset == 4


def test_closing_the_client_commits_too(connect: Any, cluster: MockCluster) -> None:
    client = connect(cluster)
    fill(client, numbers(10))
    consumer = client.get_consumer(group="g")
    consumer.assign([T0])
    read(consumer, 6)
    client.close()
    assert cluster.committed("g")["t", 0].offset == 6
    assert consumer.closed


def test_a_commit_in_the_background_that_fails_is_told(client: KafkaClient, cluster: MockCluster, make: Make, run: Runner) -> None:
    fill(client, numbers(10))
    cluster.on("OffsetCommit", Error(30), times=1)
    consumer = make(group="g", auto_commit_interval_ms=20)
    consumer.assign([T0])

    def all_day() -> None:
        while True:
            consumer.consume_batch(1, 20)

    assert isinstance(error_of(all_day), GroupAuthorizationFailed)
    assert isinstance(consumer.consume_batch(1, 20), list), "it is told once"
    run.until(lambda: committed(cluster) >= 0)


def test_the_worker_that_commits_sleeps(client: KafkaClient, make: Make, run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fresh metadata wakes everybody who waits; one who does not notice that he was woken never sleeps again."""
    consumer = make(group="g")
    consumer.assign([T0])
    simple = client.topics["t"].get_simple_consumer("g2", auto_commit_enable=True)
    looks: list[str] = []
    monkeypatch.setattr(type(simple), "_auto_commit", lambda self: looks.append("simple"))
    monkeypatch.setattr(Consumer, "closed", property(lambda self: looks.append("native") or self._engine.closed))
    client.update_cluster()
    assert run.stays(lambda: len(looks) < 100, 0.3)
    monkeypatch.undo()
    simple.stop()


# -- deserializers -------------------------------------------------------------------------------------------------------------
MIXED = [b"1", b"2", b"bad", b"4", b"worse", b"6"]


def test_key_deserializer_and_value_deserializer_make_what_is_there(client: KafkaClient, make: Make) -> None:
    with client.get_producer() as producer:
        producer.produce("t", b"7", b"k")
        producer.produce("t", None)
    number, tombstone = read(make("t", key_deserializer=bytes.decode, value_deserializer=int), 2)
    assert (number.key, number.partition_key, number.value, number.offset) == ("k", "k", 7, 0)
    assert (tombstone.key, tombstone.value, tombstone.topic) == (None, None, "t")


@pytest.mark.parametrize("simple", [False, True])
@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda message: pickle.loads(pickle.dumps(message))])
def test_a_deserialized_message_can_be_copied_and_pickled(
    client: KafkaClient, make: Make, simple: bool, again: Callable[[Any], Any]
) -> None:
    client.get_producer().produce("t", b'["v"]', b'["k"]', headers=[("h", b"1")]).result(60)
    if simple:
        consumer: Any = client.topics["t"].get_simple_consumer(
            deserializer=lambda value, key: (json.loads(value), json.loads(key)), consumer_timeout_ms=60_000
        )
    else:
        consumer = make("t", key_deserializer=json.loads, value_deserializer=json.loads)
    (message,) = read(consumer, 1)
    made = again(message)
    assert type(made) is type(message)
    assert (made.value, made.key, made.partition_key) == (["v"], ["k"], ["k"])
    assert (made.topic, made.partition_id, made.offset, made.headers) == ("t", 0, 0, message.headers)
    assert (made.value is message.value) == (again is copy.copy)
    with pytest.raises(AttributeError, match="nothing"):
        _ = made.nothing
    assert repr(message) == repr(made)
    assert repr(made).startswith("<Message t[0] offset 0, ")


def test_on_deserialize_error_raise_stays_before_the_record(client: KafkaClient, make: Make) -> None:
    fill(client, MIXED)
    consumer = make("t", value_deserializer=int)
    assert values(consumer, 2) == [1, 2]
    for _ in range(2):
        error = error_of(consumer.consume_batch, None, LIMIT_S * 1000)
        assert isinstance(error, SerializationError)
        assert (error.topic, error.partition, error.offset, type(error.__cause__)) == ("t", 0, 2, ValueError)
        assert consumer.position(T0) == 2
    consumer.seek(T0, 3)
    assert values(consumer, 1) == [4]


def test_on_deserialize_error_skip_passes_it_with_a_warning(client: KafkaClient, make: Make, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    fill(client, MIXED)
    consumer = make("t", value_deserializer=int, on_deserialize_error="skip")
    assert values(consumer, 4) == [1, 2, 4, 6]
    assert consumer.stats()["undeserialized"] == 2
    assert [("offset 2" in r.getMessage(), "offset 4" in r.getMessage()) for r in caplog.records] == [(True, False), (False, True)]
    assert "bad" not in "".join(r.getMessage().split("int()")[0] for r in caplog.records)
    assert consumer.position(T0) == 6


class Mute(ValueError):
    """An exception whose text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


def number_of(data: bytes) -> int:
    if not data.isdigit():
        raise Mute
    return int(data)


def test_an_error_without_a_text_is_told_by_its_type_and_place(client: KafkaClient, make: Make) -> None:
    fill(client, MIXED)
    consumer = make("t", value_deserializer=number_of)
    assert values(consumer, 2) == [1, 2]
    error = error_of(consumer.consume_batch, None, LIMIT_S * 1000)
    assert isinstance(error, SerializationError)
    assert str(error) == "deserializer failed on t[0] offset 2: Mute"
    assert (error.topic, error.partition, error.offset, type(error.__cause__)) == ("t", 0, 2, Mute)


@pytest.mark.parametrize("mode", ["skip", "dlq", "callable"])
def test_a_record_whose_error_has_no_text_is_passed_all_the_same(connect: Any, make_cluster: Any, make: Make, mode: str) -> None:
    cluster = make_cluster(topics={"t": 1, "dead": 1})
    client, taken = connect(cluster), []

    def take(message: Any, error: SerializationError) -> None:
        taken.append((message.offset, str(error)))

    options: dict[str, Any] = {"on_deserialize_error": "skip" if mode == "skip" else "dlq"}
    if mode != "skip":
        options["dead_letter"] = "dead" if mode == "dlq" else take
    fill(client, MIXED)
    consumer = make("t", of=client, value_deserializer=number_of, **options)
    assert values(consumer, 4) == [1, 2, 4, 6]
    texts = [f"deserializer failed on t[0] offset {offset}: Mute" for offset in (2, 4)]
    letters = [dict(r.headers)["gkafka.dead_letter.error"] for r in cluster.log("dead", 0)]
    assert letters == ([text.encode() for text in texts] if mode == "dlq" else [])
    assert taken == ([(2, texts[0]), (4, texts[1])] if mode == "callable" else [])


def test_a_dead_letter_callable_that_fails_without_a_text_is_told_by_its_type(client: KafkaClient, make: Make) -> None:
    def refuse(message: Any, error: SerializationError) -> None:
        raise Mute

    fill(client, MIXED)
    consumer = make("t", value_deserializer=number_of, on_deserialize_error="dlq", dead_letter=refuse)
    assert values(consumer, 2) == [1, 2]
    error = error_of(consumer.consume_batch, None, LIMIT_S * 1000)
    assert isinstance(error, SerializationError)
    assert str(error) == "deserializer failed on t[0] offset 2: Mute; and dead_letter did not take it: Mute"


def test_a_batch_of_nothing_but_failures_is_waited_past(client: KafkaClient, make: Make) -> None:
    fill(client, [b"x"] * 5)
    consumer = make("t", value_deserializer=int, on_deserialize_error="skip")
    assert consumer.consume_batch(timeout_ms=300) == []
    fill(client, [b"1"])
    assert values(consumer, 1) == [1]


def test_a_dead_letter_topic_has_the_record_before_it_is_passed(connect: Any, make_cluster: Any, make: Make) -> None:
    cluster = make_cluster(topics={"t": 1, "dead": 1})
    client = connect(cluster)
    with client.get_producer() as producer:
        for value in MIXED:
            producer.produce("t", value, b"key", headers=[("h", b"1")], timestamp=1234567890123)
    consumer = make("t", of=client, value_deserializer=int, on_deserialize_error="dlq", dead_letter="dead")
    assert values(consumer, 4) == [1, 2, 4, 6]
    letters = cluster.log("dead", 0)
    assert [(r.key, r.value, r.timestamp) for r in letters] == [(b"key", b"bad", 1234567890123), (b"key", b"worse", 1234567890123)]
    headers = dict(letters[0].headers)
    where = {name: headers[f"gkafka.dead_letter.{name}"] for name in ("topic", "partition", "offset")}
    assert (headers["h"], where) == (b"1", {"topic": b"t", "partition": b"0", "offset": b"2"})
    assert b"ValueError" in (headers["gkafka.dead_letter.error"] or b"")
    assert consumer.stats()["undeserialized"] == 2


def test_a_record_that_the_dead_letter_topic_does_not_take_is_not_passed(connect: Any, make_cluster: Any, make: Make) -> None:
    cluster = make_cluster(topics={"t": 1, "dead": 1})
    client = connect(cluster)
    fill(client, MIXED)
    consumer = make("t", of=client, value_deserializer=int, on_deserialize_error="dlq", dead_letter="dead")
    cluster.on("Produce", Error(29), times=2)
    assert values(consumer, 2) == [1, 2]
    error = error_of(consumer.consume_batch, None, LIMIT_S * 1000)
    assert isinstance(error, SerializationError)
    assert (error.offset, consumer.position(T0)) == (2, 2)
    assert "dead_letter did not take it" in str(error)
    cluster.clear_script()
    assert values(consumer, 2) == [4, 6]
    assert [r.value for r in cluster.log("dead", 0)] == [b"bad", b"worse"]


def test_a_dead_letter_topic_that_is_silent_is_waited_for_once(
    connect: Any, make_cluster: Any, make: Make, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For all that failed, and for what becomes of it, together."""
    flush, left = NativeProducer.flush, []

    def flush_in(producer: NativeProducer, timeout: float) -> None:
        left.append(timeout)
        flush(producer, timeout)

    cluster = make_cluster(topics={"t": 1, "dead": 1})
    client = connect(cluster, api_timeout_ms=1500)
    fill(connect(cluster), [b"bad"] * 40)
    consumer = make("t", of=client, value_deserializer=int, on_deserialize_error="dlq", dead_letter="dead")
    run.until(lambda: consumer._engine.buffered() == 40)
    cluster.on("Produce", Drop(), times=None)
    monkeypatch.setattr(NativeProducer, "flush", flush_in)
    with Clock() as clock:
        error = error_of(consumer.consume_batch, None, 200)
    monkeypatch.undo()
    assert isinstance(error, SerializationError)
    assert clock.seconds < 30, "not 40 times 1.5 s"
    assert sum(left) < 0.5, "nor has what becomes of them a time of its own"
    assert consumer.position(T0) == 0
    cluster.clear_script()
    cluster.close_connections()


def test_a_dead_letter_callable_gets_message_and_error_and_may_refuse(client: KafkaClient, make: Make) -> None:
    fill(client, MIXED)
    seen: list[tuple[int, int | None]] = []

    def bury(message: Any, error: SerializationError) -> None:
        if message.offset == 4 and len(seen) < 2:
            seen.append((-1, None))
            raise OSError("disk full")
        seen.append((message.offset, error.offset))

    consumer = make("t", value_deserializer=int, on_deserialize_error="dlq", dead_letter=bury)
    assert values(consumer, 3) == [1, 2, 4]
    error = error_of(consumer.consume_batch, None, LIMIT_S * 1000) if seen == [(2, 2)] else None
    assert values(consumer, 1) == [6]
    assert seen == [(2, 2), (-1, None), (4, 4)]
    assert error is None or isinstance(error.__cause__, OSError)


def test_whoever_is_killed_in_a_deserializer_loses_nothing(client: KafkaClient, make: Make) -> None:
    fill(client, numbers(5))
    strikes = [True]

    def strike(value: bytes) -> bytes:
        if value == b"3" and strikes:
            strikes.pop()
            raise KeyboardInterrupt
        return value

    consumer = make("t", value_deserializer=strike)

    def all_day() -> None:
        while True:
            consumer.consume_batch(timeout_ms=LIMIT_S * 1000)

    with pytest.raises(KeyboardInterrupt):
        all_day()
    assert values(consumer, 5) == numbers(5)


# -- engines under it ------------------------------------------------------------------------------------------------------------
def test_partitions_may_be_taken_away_and_given_while_others_are_read(connect: Any, make_cluster: Any, make: Make, run: Runner) -> None:
    cluster = make_cluster(topics={"t": 3})
    client = connect(cluster)
    consumer = make(of=client)
    consumer.assign({("t", p): 0 for p in range(2)})
    engine = consumer._engine
    for p in range(3):
        fill(client, numbers(10), partition=p)
    run.until(lambda: engine.buffered() == 20)
    engine.remove([T0])
    assert engine.stats()["buffered"] == 10
    engine.add({TopicPartition("t", 2): 5, T1: 0})
    got = sorted((m.partition_id, m.offset) for m in read(consumer, 15))
    assert got == [(1, o) for o in range(10)] + [(2, o) for o in range(5, 10)], "one that is there already goes on as it is"
    assert isinstance(error_of(engine.remove, [T0]), ConfigurationError)


@pytest.mark.parametrize("run", ["gevent"], indirect=True)
def test_batches_without_records_end_the_turn_of_who_reads_them(
    client: KafkaClient, cluster: MockCluster, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As compaction leaves them: others have their turns between them."""
    monkeypatch.setattr("gkafka.taking.SHARE_S", 0.0)
    empty = 20_000  # a take() passes 2,000 at most
    cluster.append("t", 0, b"".join(batch([], base_offset=n, last_delta=0) for n in range(empty)))
    cluster.append("t", 0, batch([record(0, b"value", b"key")], base_offset=empty))
    consumer = client.get_consumer("t")
    turns: list[int] = []
    handler, checkpoint = client.handler, client.handler.checkpoint

    def noted() -> None:
        turns.append(handler.current_id())
        checkpoint()

    monkeypatch.setattr(handler, "checkpoint", noted)
    assert [message.offset for message in consumer.consume_batch(10, 60_000)] == [empty]
    assert turns.count(handler.current_id()) >= 10
