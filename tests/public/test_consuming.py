"""What a consumer hands out, when it waits and when it stops."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any

import pytest

from gkafka import KafkaClient, common
from gkafka.common import OffsetType, TimestampType
from gkafka.exceptions import ConfigurationError, ConsumerStoppedException, SerializationError, TopicAuthorizationFailed
from gkafka.testing import Delay, Error, MockCluster
from tests.public.aids import LIMIT_S, Clock, Held, Runner, by_partition, error_of, fill, read
from tests.records.handmade import TRANSACTIONAL, marker, values

Consume = Callable[..., Any]


@pytest.fixture
def consume(client: KafkaClient, connect: Any) -> Any:
    """Makes consumers of topic "t"; they are stopped at the end."""
    made: list[Any] = []

    def make(group: str | None = None, *, of: KafkaClient | None = None, topic: str = "t", **options: Any) -> Any:
        made.append((of or client).topics[topic].get_simple_consumer(consumer_group=group, **options))
        return made[-1]

    yield make
    for consumer in made:
        consumer.stop()


def numbers(n: int, first: int = 0) -> list[bytes]:
    return [b"%d" % i for i in range(first, first + n)]


# -- messages ----------------------------------------------------------------------------------------------------------------
def test_a_message_comes_as_it_was_produced(client: KafkaClient, consume: Consume) -> None:
    headers: list[tuple[str, bytes | None]] = [("a", b"1"), ("a", None), ("b", b"")]
    with client.get_producer() as producer:
        producer.produce("t", b"value", b"key", timestamp=1234567890123, headers=headers)
        producer.produce("t", None)
        producer.produce("t", b"", b"")
    message, tombstone, empty = read(consume(), 3)
    assert isinstance(message, common.Message)
    assert (message.topic, message.partition_id, message.offset) == ("t", 0, 0)
    assert (message.key, message.partition_key, message.value, message.headers) == (b"key", b"key", b"value", headers)
    assert (message.timestamp, message.timestamp_type) == (1234567890123, TimestampType.CREATE_TIME)
    assert message.partition is client.topics["t"].partitions[0]
    assert (tombstone.value, tombstone.key) == (None, None)
    assert (empty.value, empty.key) == (b"", b"")
    assert "value" not in repr(message)


def test_messages_keep_their_bytes_when_more_are_read(client: KafkaClient, consume: Consume) -> None:
    """The buffers that answers are read into are used again, but not while a message is left of them."""
    fill(client, [b"%04d" % i * 100 for i in range(2000)], batches=20)
    got = read(consume(fetch_message_max_bytes=20_000), 2000)
    assert [m.value for m in got] == [b"%04d" % i * 100 for i in range(2000)]


def test_every_partition_comes_whole_and_in_order(connect: Any, make_cluster: Any, consume: Consume) -> None:
    client = connect(make_cluster(brokers=3, topics={"t": 6}))
    for p in range(6):
        fill(client, numbers(200), partition=p, batches=5)
    consumer = consume(of=client)
    got = read(consumer, 1200)
    assert by_partition(got) == {p: list(range(200)) for p in range(6)}
    assert consumer.consume(block=False) is None
    assert consumer.held_offsets == dict.fromkeys(range(6), 199)


@pytest.mark.parametrize("fetchers", [1, 3])
def test_more_fetchers_read_the_same(connect: Any, make_cluster: Any, consume: Consume, fetchers: int) -> None:
    cluster = make_cluster(brokers=3, topics={"t": 6})
    client = connect(cluster)
    for p in range(6):
        fill(client, numbers(50), partition=p)
    consumer = consume(of=client, num_consumer_fetchers=fetchers, fetch_error_backoff_ms=20)
    assert by_partition(read(consumer, 300)) == {p: list(range(50)) for p in range(6)}
    assert len([w for w in client.handler.workers() if "fetcher" in w.name]) == fetchers
    for p in range(6):
        cluster.move_leader("t", p, p % 3 + 1)
        fill(client, numbers(10), partition=p)
    assert by_partition(read(consumer, 60)) == {p: list(range(50, 60)) for p in range(6)}


def test_partitions_take_turns(connect: Any, make_cluster: Any, consume: Consume, run: Runner) -> None:
    """No partition starves behind a busy one (22)."""
    client = connect(make_cluster(topics={"t": 3}))
    for p in range(3):
        fill(client, numbers(2000), partition=p, batches=30)
    consumer = consume(of=client)
    run.until(lambda: len(client.stats()["consumers"]) == 1 and client.stats()["consumers"][0]["buffered"] >= 6000)
    order = [consumer.consume().partition_id for _ in range(6000)]
    turns = [(p, len(list(its))) for p, its in groupby(order)][:3]  # how long each is depends on the time, too
    assert {p for p, _ in turns} == {0, 1, 2}
    assert max(length for _, length in turns) < 1500


def test_only_the_partitions_asked_for(connect: Any, make_cluster: Any, consume: Consume) -> None:
    client = connect(make_cluster(topics={"t": 3}))
    for p in range(3):
        fill(client, numbers(5), partition=p)
    topic = client.topics["t"]
    for wanted in ([1], [topic.partitions[1]], {1: None}):
        consumer = consume(of=client, partitions=wanted)
        assert sorted(consumer.partitions) == [1]
        assert by_partition(read(consumer, 5)) == {1: [0, 1, 2, 3, 4]}
        assert consumer.consume(block=False) is None


def test_two_consumers_each_get_everything(client: KafkaClient, consume: Consume) -> None:
    fill(client, numbers(20))
    one, two = consume(), consume()
    assert len(read(one, 20)) == len(read(two, 20)) == 20


# -- waiting -----------------------------------------------------------------------------------------------------------------
def test_consume_without_block_returns_at_once(consume: Consume) -> None:
    consumer = consume()  # without an end to its patience
    assert consumer.consume(block=False) is None


def test_consume_waits_for_a_message_that_comes_later(client: KafkaClient, consume: Consume, run: Runner) -> None:
    consumer = consume()
    waiting = run.aside(consumer.consume)
    run.sleep(0.1)
    assert waiting.running
    fill(client, [b"x"])
    assert waiting.result().value == b"x"


def test_consume_gives_none_after_consumer_timeout_ms(consume: Consume) -> None:
    consumer = consume(consumer_timeout_ms=200)
    with Clock() as clock:
        assert consumer.consume() is None
    assert 0.15 < clock.seconds < 30
    with Clock() as clock:
        assert consumer.consume_batch(5) == []
    assert 0.15 < clock.seconds < 30
    patient = consume(consumer_timeout_ms=120_000)
    with Clock() as clock:
        assert patient.consume_batch(5, timeout_ms=0) == []
    assert clock.seconds < 60


def test_iteration_ends_when_nothing_comes_for_consumer_timeout_ms(client: KafkaClient, consume: Consume, run: Runner) -> None:
    fill(client, numbers(4))
    consumer = consume(consumer_timeout_ms=200)
    run.until(lambda: client.stats()["consumers"][0]["buffered"] == 4)
    assert [(m.offset, m.value) for m in consumer] == [(i, b"%d" % i) for i in range(4)]
    fill(client, [b"more"])
    run.until(lambda: client.stats()["consumers"][0]["buffered"] == 1)
    assert [m.value for m in consumer] == [b"more"]


def test_an_event_ends_the_wait(client: KafkaClient, consume: Consume, run: Runner) -> None:
    consumer = consume()
    event = client.handler.Event()
    waiting = run.aside(lambda: consumer.consume(unblock_event=event))
    run.sleep(0.05)
    event.set()
    assert waiting.result() is None
    fill(client, [b"x"])
    run.until(lambda: client.stats()["consumers"][0]["buffered"] == 1)
    assert consumer.consume(unblock_event=event).value == b"x", "a message that is there comes all the same"


def test_consume_batch_gives_at_most_so_many_and_what_is_there(client: KafkaClient, consume: Consume, run: Runner) -> None:
    fill(client, numbers(10))
    consumer = consume()
    run.until(lambda: client.stats()["consumers"][0]["buffered"] == 10)
    assert [m.offset for m in consumer.consume_batch(3)] == [0, 1, 2]
    assert [m.offset for m in consumer.consume_batch()] == [3, 4, 5, 6, 7, 8, 9]
    for bad in (0, -1, 1.5, "3", True):
        assert isinstance(error_of(consumer.consume_batch, bad), ConfigurationError)


def test_a_long_poll_is_answered_as_soon_as_there_is_something(client: KafkaClient, consume: Consume, run: Runner) -> None:
    consumer = consume(fetch_wait_max_ms=60_000)
    producer = client.get_producer(linger_ms=0)
    producer.produce("t", b"0").result(LIMIT_S)
    assert consumer.consume().value == b"0"
    for i in range(5):
        producer.produce("t", b"%d" % i).result(LIMIT_S)
        with Clock() as clock:
            assert consumer.consume().value == b"%d" % i
        assert clock.seconds < 30


def test_fetch_min_bytes_and_fetch_wait_max_ms_reach_the_broker(client: KafkaClient, cluster: MockCluster, consume: Consume) -> None:
    consumer = consume(fetch_min_bytes=5000, fetch_wait_max_ms=300, fetch_message_max_bytes=7777, fetch_max_bytes=88_888)
    fill(client, [b"x"])
    with Clock() as clock:
        assert consumer.consume().value == b"x"
    assert clock.seconds < 30
    request = cluster.requests("Fetch")[0].message
    assert (request.min_bytes, request.max_wait_ms, request.max_bytes) == (5000, 300, 88_888)
    assert request.topics[0].partitions[0].partition_max_bytes == 7777


def test_the_next_fetch_is_sent_before_the_last_one_is_handed_out(
    client: KafkaClient, cluster: MockCluster, consume: Consume, run: Runner
) -> None:
    fill(client, numbers(100), batches=10)
    consume(fetch_message_max_bytes=200)
    run.until(lambda: cluster.count("Fetch") and cluster.requests("Fetch")[-1].message.topics[0].partitions[0].fetch_offset == 100)


# -- bounds ------------------------------------------------------------------------------------------------------------------
def test_a_partition_with_queued_max_messages_is_not_fetched(
    client: KafkaClient, cluster: MockCluster, consume: Consume, run: Runner
) -> None:
    fill(client, numbers(2000), batches=100)
    consumer = consume(queued_max_messages=50, fetch_message_max_bytes=600)
    run.until(lambda: client.stats()["consumers"][0]["buffered"] >= 50)
    asked = cluster.count("Fetch")
    assert run.stays(lambda: client.stats()["consumers"][0]["buffered"] < 150 and cluster.count("Fetch") <= asked + 1)
    got = []
    while len(got) < 2000:
        got += consumer.consume_batch(10, 60_000)
        assert client.stats()["consumers"][0]["buffered"] < 150
    assert [m.offset for m in got] == list(range(2000))


def test_a_full_partition_does_not_stop_the_others(connect: Any, make_cluster: Any, consume: Consume, run: Runner) -> None:
    client = connect(make_cluster(topics={"t": 2}))
    fill(client, numbers(500), partition=0, batches=10)
    consumer = consume(of=client, queued_max_messages=50, fetch_wait_max_ms=60_000)
    run.until(lambda: client.stats()["consumers"][0]["buffered"] >= 50)
    fill(client, [b"x"], partition=1)

    def seen() -> bool:
        return any(m.partition_id == 1 for m in consumer.consume_batch(20))

    with Clock() as clock:
        run.until(seen)
    assert clock.seconds < 30


def test_a_record_larger_than_a_fetch_comes(client: KafkaClient, consume: Consume) -> None:
    fill(client, [b"a", b"x" * 300_000, b"b"], batches=3)
    assert [len(m.value) for m in read(consume(fetch_message_max_bytes=1000, fetch_max_bytes=1000), 3)] == [1, 300_000, 1]


def test_a_record_larger_than_a_fetch_comes_from_old_brokers_too(connect: Any, make_cluster: Any, consume: Consume) -> None:
    client = connect(make_cluster(versions="0.10.0"))
    fill(client, [b"a", b"x" * 30_000, b"b"], batches=3)
    assert [len(m.value) for m in read(consume(of=client, fetch_message_max_bytes=1000), 3)] == [1, 30_000, 1]


def test_many_partitions_share_an_answer_and_none_is_taken_for_too_large(connect: Any, make_cluster: Any, consume: Consume) -> None:
    cluster = make_cluster(topics={"t": 8})
    client = connect(cluster)
    for p in range(8):
        fill(client, [b"x" * 1000] * 60, partition=p, batches=3)
    got = read(consume(of=client, fetch_max_bytes=50_000, fetch_message_max_bytes=30_000), 480)
    assert by_partition(got) == {p: list(range(60)) for p in range(8)}
    asked = {p.partition_max_bytes for r in cluster.requests("Fetch") for t in r.message.topics for p in t.partitions}
    assert asked == {30_000}


def test_no_more_is_asked_for_than_max_response_bytes_lets_in(connect: Any, cluster: MockCluster, consume: Consume) -> None:
    client = connect(cluster, max_response_bytes=200_000)
    fill(client, [b"x" * 10_000] * 100, batches=20)
    assert len(read(consume(of=client), 100)) == 100


# -- transactions --------------------------------------------------------------------------------------------------------------
def test_records_of_aborted_transactions_are_hidden_unless_asked_for(cluster: MockCluster, consume: Consume, run: Runner) -> None:
    cluster.append("t", 0, values(2, producer_id=7, attributes=TRANSACTIONAL) + marker(0, 2, producer_id=7) + values(1, base_offset=3))
    cluster.set_transactions("t", 0, aborted=[(7, 0)])
    consumer = consume("g")
    assert [m.offset for m in read(consumer, 1)] == [3]
    assert [m.offset for m in read(consume(isolation_level="read_uncommitted"), 3)] == [0, 1, 3]


def test_positions_pass_over_what_is_hidden(cluster: MockCluster, consume: Consume, run: Runner) -> None:
    cluster.append("t", 0, values(2, producer_id=7, attributes=TRANSACTIONAL) + marker(0, 2, producer_id=7))
    cluster.set_transactions("t", 0, aborted=[(7, 0)])
    consumer = consume("g")
    run.until(lambda: consumer.held_offsets == {0: 2})
    consumer.commit_offsets()
    assert cluster.committed("g")["t", 0].offset == 3


def test_records_of_open_transactions_wait(cluster: MockCluster, consume: Consume) -> None:
    cluster.append("t", 0, values(2) + values(2, base_offset=2, producer_id=7, attributes=TRANSACTIONAL))
    cluster.set_transactions("t", 0, aborted=[], stable=2)
    consumer = consume()
    assert [m.offset for m in read(consumer, 2)] == [0, 1]
    assert consumer.consume(block=False) is None
    cluster.append("t", 0, marker(1, 4, producer_id=7))
    cluster.set_transactions("t", 0, aborted=[], stable=None)
    assert [m.offset for m in read(consumer, 2)] == [2, 3]


# -- faults --------------------------------------------------------------------------------------------------------------------
def test_errors_of_the_broker_that_pass_are_not_the_callers_business(client: KafkaClient, cluster: MockCluster, consume: Consume) -> None:
    fill(client, numbers(10))
    cluster.on("ListOffsets", Error(6))
    cluster.on("Fetch", Error(6))
    cluster.on("Fetch", Error(3))
    consumer = consume(fetch_error_backoff_ms=20)
    assert [m.offset for m in read(consumer, 10)] == list(range(10))


def test_errors_for_good_are_raised_in_the_caller(client: KafkaClient, cluster: MockCluster, consume: Consume) -> None:
    consumer = consume()
    cluster.on("Fetch", Error(29), times=None)
    error = error_of(consumer.consume)
    assert isinstance(error, TopicAuthorizationFailed)
    assert (error.topic, error.partition) == ("t", 0)
    cluster.clear_script()
    cluster.on("ListOffsets", Error(29), times=None)
    assert isinstance(error_of(consume), TopicAuthorizationFailed), "and at the start by the constructor"


def test_fetch_error_backoff_ms_is_the_pause(client: KafkaClient, cluster: MockCluster, consume: Consume, run: Runner) -> None:
    cluster.on("Fetch", Error(3), times=3)
    consume(fetch_error_backoff_ms=200)
    run.until(lambda: cluster.count("Fetch") >= 4)
    times = [r.time for r in cluster.requests("Fetch")][:4]
    assert all(later - earlier > 0.15 for earlier, later in zip(times, times[1:], strict=False))  # noqa: RUF007


def test_connections_that_break_and_leaders_that_move_lose_and_double_nothing(
    connect: Any, make_cluster: Any, consume: Consume, run: Runner
) -> None:
    cluster = make_cluster(brokers=3, topics={"t": 3}, replication_factor=3)
    client = connect(cluster, reconnect_backoff_ms=5, reconnect_backoff_max_ms=20)
    for p in range(3):
        fill(client, numbers(300), partition=p, batches=30)
    consumer = consume(of=client, fetch_message_max_bytes=300, fetch_error_backoff_ms=10)
    got: list[Any] = []
    n = 0
    while len(got) < 900:
        got += consumer.consume_batch(7, 60_000)
        n += 1
        if n % 10 == 0:
            cluster.close_connections(n // 10 % 3 + 1, reset=bool(n % 20))
        if n % 15 == 0:
            cluster.move_leader("t", n % 3, n // 15 % 3 + 1)
    assert by_partition(got) == {p: list(range(300)) for p in range(3)}


def test_a_broker_that_is_gone_for_a_while_is_found_again(client: KafkaClient, cluster: MockCluster, consume: Consume, run: Runner) -> None:
    fill(client, numbers(5))
    consumer = consume(fetch_error_backoff_ms=20)
    assert len(read(consumer, 5)) == 5
    cluster.stop_broker(1)
    assert consumer.consume_batch(1, 200) == []
    cluster.start_broker(1)
    fill(client, numbers(5, 5))
    assert [m.offset for m in read(consumer, 5)] == [5, 6, 7, 8, 9]


def test_a_broker_that_answers_late_is_waited_for(client: KafkaClient, cluster: MockCluster, consume: Consume) -> None:
    fill(client, numbers(5))
    cluster.on("Fetch", Delay(0.3))
    assert len(read(consume(), 5)) == 5


def test_while_a_broker_is_down_it_is_not_hammered(
    client: KafkaClient, cluster: MockCluster, consume: Consume, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G25: connects at most as the backoff says, and hardly any work."""
    consume(fetch_error_backoff_ms=100)
    run.until(lambda: cluster.count("Fetch") > 0)
    attempts: list[Any] = []
    connect = client.handler.create_connection
    monkeypatch.setattr(client.handler, "create_connection", lambda *a, **k: attempts.append(a) or connect(*a, **k), raising=False)
    with Clock() as clock:
        cluster.stop_broker(1)
        run.until(lambda: len(attempts) >= 5)
        made = len(attempts)
    assert clock.seconds > 0.03 * (made - 2)


# -- life ----------------------------------------------------------------------------------------------------------------------
def test_a_consumer_that_is_not_started_asks_nothing(client: KafkaClient, cluster: MockCluster, consume: Consume, run: Runner) -> None:
    """176"""
    fill(client, numbers(3))
    consumer = consume("g", auto_start=False)
    run.sleep(0.1)
    assert [cluster.count(api) for api in ("Fetch", "OffsetFetch", "ListOffsets")] == [0, 0, 0]
    assert isinstance(error_of(consumer.consume), ConsumerStoppedException)
    consumer.start()
    consumer.start()
    assert len(read(consumer, 3)) == 3


def test_a_stopped_consumer_says_so_and_begins_again(client: KafkaClient, cluster: MockCluster, consume: Consume, run: Runner) -> None:
    fill(client, numbers(5))
    consumer = consume("g")
    assert len(read(consumer, 3)) == 3
    consumer.commit_offsets()
    cluster.on("Fetch", held := Held())
    run.until(lambda: held.holds)  # the last one is counted
    consumer.stop()
    consumer.stop()
    for call in (
        consumer.consume,
        consumer.consume_batch,
        consumer.commit_offsets,
        consumer.fetch,
        consumer.fetch_offsets,
        consumer.reset_offsets,
    ):
        assert isinstance(error_of(call), ConsumerStoppedException)
    asked = cluster.count("Fetch")
    run.sleep(0.15)
    assert cluster.count("Fetch") == asked
    held.released = True
    consumer.start()
    assert [m.offset for m in read(consumer, 2)] == [3, 4]


def test_stop_ends_whoever_waits_in_consume(consume: Consume, run: Runner) -> None:
    consumer = consume()
    waiting = run.aside(consumer.consume)
    run.sleep(0.1)
    with Clock() as clock:
        consumer.stop()
        assert isinstance(error_of(waiting.result), ConsumerStoppedException)
    assert clock.seconds < 30


def test_stop_is_quick_also_in_a_long_poll(consume: Consume, cluster: MockCluster, run: Runner) -> None:
    consumer = consume(fetch_wait_max_ms=60_000)
    run.until(lambda: cluster.count("Fetch") > 0)
    with Clock() as clock:
        consumer.stop()
    assert clock.seconds < 30


def test_with_stops_it(client: KafkaClient) -> None:
    fill(client, numbers(3))
    with client.topics["t"].get_simple_consumer() as consumer:
        assert len(read(consumer, 3)) == 3
    assert isinstance(error_of(consumer.consume), ConsumerStoppedException)


def test_a_deserializer_makes_values_and_keys(client: KafkaClient, consume: Consume) -> None:
    with client.get_producer() as producer:
        producer.produce("t", b"5", b"k")
    (message,) = read(consume(deserializer=lambda value, key: (int(value), key.decode())), 1)
    assert (message.value, message.partition_key, message.key) == (5, "k", "k")
    assert (message.offset, message.partition_id, message.topic) == (0, 0, "t")


def test_a_deserializer_that_fails_skips_nothing(client: KafkaClient, consume: Consume) -> None:
    fill(client, [b"1", b"x", b"3"])
    fails = [True]

    def parse(value: bytes, key: Any) -> tuple[int, Any]:
        if value == b"x" and fails:
            raise ValueError("not a number")
        return (0 if value == b"x" else int(value)), key

    consumer = consume("g", deserializer=parse)
    got = [m.value for m in read(consumer, 1)]
    for call in (consumer.consume, consumer.consume_batch):
        error = error_of(call)
        assert isinstance(error, SerializationError)
        assert (error.topic, error.partition, error.offset) == ("t", 0, 1)
        assert isinstance(error.__cause__, ValueError)
        assert consumer.held_offsets == {0: 0}
    fails.clear()
    assert got + [m.value for m in read(consumer, 2)] == [1, 0, 3]


def test_latest_begins_behind_what_is_there(client: KafkaClient, consume: Consume) -> None:
    fill(client, numbers(5))
    consumer = consume(auto_offset_reset=OffsetType.LATEST)
    assert consumer.consume(block=False) is None
    fill(client, numbers(2, 5))
    assert [m.offset for m in read(consumer, 2)] == [5, 6]


def test_a_fetch_worker_that_dies_is_told_to_whoever_consumes(client: KafkaClient, consume: Consume, run: Runner, monkeypatch: Any) -> None:
    fill(client, numbers(5))
    consumer = consume("g")
    assert len(read(consumer, 5)) == 5
    with monkeypatch.context() as broken:
        broken.setattr("gkafka.core.fetcher.Fetcher.poll", lambda *_, **__: 1 // 0)
        error = error_of(consumer.consume_batch, 1, 5000)
    assert isinstance(error, ConsumerStoppedException)
    assert isinstance(error.__cause__, ZeroDivisionError)
    consumer.commit_offsets()
    consumer.stop()
    consumer.start()
    fill(client, numbers(2, 5))
    assert [m.offset for m in read(consumer, 2)] == [5, 6]


def test_what_was_handed_out_makes_room_for_more(client: KafkaClient) -> None:
    fill(client, [b"x" * 1000] * 200, batches=20)
    topic = client.topics["t"]
    with topic.get_simple_consumer(queued_max_bytes=30_000, fetch_message_max_bytes=12_000, consumer_timeout_ms=2000) as consumer:
        assert [m.offset for m in read(consumer, 200)] == list(range(200)), "many times what may be held"
