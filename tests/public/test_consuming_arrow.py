"""consume_arrow(): the same records as consume(), as Arrow columns; positions, commits, pauses and errors are the consumer's own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from gkafka import KafkaClient, records
from gkafka.common import TopicPartition
from gkafka.consumer import Consumer
from gkafka.exceptions import ConfigurationError, ConsumerStoppedException, CorruptRecordError
from gkafka.testing import MockCluster
from tests.public.aids import LIMIT_S, Clock, Runner, error_of, fill, read
from tests.records.handmade import TRANSACTIONAL, batch, marker, message, record, values, wrapper

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
LONG = LIMIT_S * 1000
Make = Callable[..., Consumer]


@pytest.fixture
def make(client: KafkaClient) -> Iterator[Make]:
    """Makes consumers; they are stopped at the end."""
    made: list[Consumer] = []

    def consumer(topics: Any = "t", group: str | None = None, *, of: KafkaClient | None = None, **options: Any) -> Consumer:
        made.append((of or client).get_consumer(topics, group, **{"fetch_error_backoff_ms": 10, **options}))
        return made[-1]

    yield consumer
    for each in made:
        each.stop()


def rows(consumer: Consumer, count: int, **how: Any) -> list[dict[str, Any]]:
    """The next `count` rows, whatever pieces they come in."""
    got: list[dict[str, Any]] = []
    while len(got) < count:
        piece = consumer.consume_arrow(count - len(got), LONG, **how)
        assert piece.num_rows, f"{len(got)} of {count} rows came"
        got += piece.to_pylist()
    return got


def offsets(consumer: Consumer, count: int) -> list[int]:
    return [row["offset"] for row in rows(consumer, count)]


def numbers(n: int, first: int = 0) -> list[bytes]:
    return [b"%d" % i for i in range(first, first + n)]


# -- what comes --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_the_rows_are_what_consume_batch_hands_out(client: KafkaClient, make: Make, codec: str | None) -> None:
    with client.get_producer(linger_ms=1000, compression=codec) as producer:
        for i in range(50):
            key, value = (None if i % 7 == 0 else b"k%d" % i), (None if i % 5 == 0 else b"v" * i)
            headers = [("h", b"%d" % i), ("none", None)] if i % 3 == 0 else None
            producer.produce("t", value, key=key, timestamp=1_600_000_000_000 + i, headers=headers)
    wanted = read(make(), 50)
    got = rows(make(), 50, columns=[*records.COLUMNS, "headers"])
    for m, row in zip(wanted, got, strict=True):
        assert (row["key"], row["value"], row["topic"], row["partition"]) == (m.key, m.value, "t", 0)
        assert (row["offset"], row["timestampType"]) == (m.offset, 0)
        assert round(row["timestamp"].timestamp() * 1000) == m.timestamp
        assert [(h["key"], h["value"]) for h in row["headers"] or []] == list(m.headers)


def test_the_schema_is_that_of_the_columns_also_without_rows(client: KafkaClient, make: Make) -> None:
    consumer = make()
    with Clock() as clock:
        nothing = consumer.consume_arrow(timeout_ms=80)
    assert 0.05 < clock.seconds < 30
    assert (nothing.num_rows, nothing.schema) == (0, records.arrow_schema())
    fill(client, numbers(3))
    some = consumer.consume_arrow(timeout_ms=LONG, columns=["offset", "value"])
    assert some.schema == records.arrow_schema(["offset", "value"])
    assert some.to_pydict() == {"offset": [0, 1, 2], "value": numbers(3)}


def test_partitions_that_hold_little_come_together_in_order_within_each(connect: Any, make_cluster: Any, make: Make, run: Runner) -> None:
    client = connect(make_cluster(topics={"t": 4}))
    for partition in range(4):
        fill(client, numbers(5), partition=partition)
    consumer = make(of=client)
    run.until(lambda: consumer.stats()["buffered"] == 20)
    batch = consumer.consume_arrow(timeout_ms=LONG)
    assert isinstance(batch, pa.RecordBatch)
    # With greenlets a call returns after 5 ms of work, whatever it has by then.
    assert batch.num_rows == 20 or run.gevent
    rest = rows(consumer, 20 - batch.num_rows)
    seen = [(row["partition"], row["offset"]) for row in batch.to_pylist() + rest]
    assert sorted(seen) == [(partition, offset) for partition in range(4) for offset in range(5)]
    assert all([o for p, o in seen if p == partition] == list(range(5)) for partition in range(4))
    assert (consumer.stats()["buffered"], consumer.stats()["buffered_bytes"]) == (0, 0)


def test_old_formats_come_too(cluster: MockCluster, make: Make) -> None:
    inner = [message(0, b"b", magic=1), message(1, b"c", magic=1)]
    cluster.append("t", 0, message(0, b"a", magic=0) + wrapper(inner, 2) + values(2, base_offset=3))
    got = rows(make(), 5)
    assert [row["offset"] for row in got] == [0, 1, 2, 3, 4]
    assert [row["timestampType"] for row in got] == [-1, 0, 0, 0, 0]


def test_aborted_records_are_left_out_for_read_committed_and_control_batches_always(cluster: MockCluster, make: Make) -> None:
    of_seven = values(2, producer_id=7, attributes=TRANSACTIONAL) + marker(0, 2, producer_id=7)
    cluster.append("t", 0, of_seven + values(2, base_offset=3))
    cluster.set_transactions("t", 0, aborted=[(7, 0)])
    consumer = make()
    assert offsets(consumer, 2) == [3, 4]
    assert offsets(make(isolation_level="read_uncommitted"), 4) == [0, 1, 3, 4]
    assert consumer.position(T0) == 5


# -- where it stands ---------------------------------------------------------------------------------------------------------
def test_max_messages_cuts_a_batch_and_the_position_moves_with_the_rows(client: KafkaClient, make: Make) -> None:
    fill(client, numbers(10))
    consumer = make()
    sizes, stood = [], []
    for _ in range(4):
        sizes.append(consumer.consume_arrow(3, LONG).num_rows)
        stood.append(consumer.position(T0))
    assert (sizes, stood) == ([3, 3, 3, 1], [3, 6, 9, 10])


def test_messages_and_columns_in_turn_skip_and_repeat_nothing(client: KafkaClient, make: Make) -> None:
    fill(client, numbers(60), batches=4)
    consumer = make()
    seen = []
    for turn in range(12):
        if turn % 3 == 0:
            seen += [m.offset for m in read(consumer, 5)]
        elif turn % 3 == 1:
            seen += offsets(consumer, 5)
        else:
            seen += [message.offset for message in (consumer.consume(LONG) for _ in range(2)) if message is not None]
            seen += [row["offset"] for row in rows(consumer, 3, columns=["offset"])]
    assert seen == list(range(60))
    assert (consumer.stats()["buffered"], consumer.stats()["buffered_bytes"]) == (0, 0)


def test_what_was_fetched_before_a_seek_is_not_handed_out(client: KafkaClient, make: Make) -> None:
    fill(client, numbers(20), batches=2)
    consumer = make()
    assert offsets(consumer, 3) == [0, 1, 2]
    consumer.seek(T0, 15)
    assert offsets(consumer, 5) == [15, 16, 17, 18, 19]
    consumer.seek(T0, 8)
    assert offsets(consumer, 4) == [8, 9, 10, 11]
    assert consumer.stats()["buffered"] >= 0


def test_paused_partitions_hand_out_nothing_and_go_on_where_they_stood(client: KafkaClient, make: Make) -> None:
    fill(client, numbers(10))
    consumer = make()
    assert offsets(consumer, 4) == [0, 1, 2, 3]
    consumer.pause([T0])
    assert consumer.consume_arrow(timeout_ms=50).num_rows == 0
    consumer.resume([T0])
    assert offsets(consumer, 6) == [4, 5, 6, 7, 8, 9]


def test_a_group_commits_what_was_handed_out_and_goes_on_there(client: KafkaClient, cluster: MockCluster, make: Make) -> None:
    fill(client, numbers(20), batches=2)
    with client.get_consumer("t", "g", auto_commit=False) as consumer:
        assert offsets(consumer, 7) == list(range(7))
        consumer.commit()
        assert cluster.committed("g")["t", 0].offset == 7
    with client.get_consumer("t", "g") as consumer:
        assert offsets(consumer, 6) == list(range(7, 13))
    assert cluster.committed("g")["t", 0].offset == 13, "the end of the block says that all of it is finished"


def test_columns_of_several_leaders_are_committed_with_the_epoch_of_the_last(
    client: KafkaClient, cluster: MockCluster, make: Make, run: Runner
) -> None:
    """By it whoever goes on there finds out that the log was cut (KIP-320)."""
    fill(client, [b"of the first leader"], partition=0)
    cluster.move_leader("t", 0, cluster.leader("t", 0))
    fill(client, [b"of the second leader"], partition=0)
    consumer = make("t", "g")
    run.until(lambda: consumer.stats()["buffered"] == 2)
    assert offsets(consumer, 2) == [0, 1]
    consumer.commit()
    committed = cluster.committed("g")["t", 0]
    assert (committed.offset, committed.leader_epoch) == (2, 1)


def test_auto_commit_leaves_out_what_the_last_call_returned(client: KafkaClient, cluster: MockCluster, make: Make, run: Runner) -> None:
    fill(client, numbers(10))
    consumer = make(None, "g", auto_commit_interval_ms=20)
    consumer.assign([T0])
    assert offsets(consumer, 4) == [0, 1, 2, 3]
    run.sleep(0.15)
    assert offsets(consumer, 3) == [4, 5, 6]
    run.until(lambda: ("t", 0) in cluster.committed("g") and cluster.committed("g")["t", 0].offset > 0)
    assert run.stays(lambda: cluster.committed("g")["t", 0].offset == 4)


def test_several_workers_get_rows_of_their_own(client: KafkaClient, make: Make, run: Runner) -> None:
    fill(client, numbers(300), batches=30)
    consumer = make()
    got: list[int] = []

    def work() -> None:
        while len(got) < 300:
            got.extend(consumer.consume_arrow(7, 50, columns=["offset"])["offset"].to_pylist())
            run.sleep(0)

    for worker in [run.aside(work) for _ in range(4)]:
        worker.result()
    assert sorted(got) == list(range(300))


def test_workers_that_want_messages_and_workers_that_want_columns_share_a_consumer(client: KafkaClient, make: Make, run: Runner) -> None:
    fill(client, numbers(600), batches=20)
    consumer = make()

    got: list[int] = []

    def columns() -> None:
        while len(got) < 600:
            got.extend(consumer.consume_arrow(11, 50)["offset"].to_pylist())
            run.sleep(0)

    def messages() -> None:
        while len(got) < 600:
            if (message := consumer.consume(50)) is not None:
                got.append(message.offset)
            run.sleep(0)

    for worker in [run.aside(work) for work in (columns, messages, columns, messages)]:
        worker.result()
    assert sorted(got) == list(range(600))
    assert (consumer.stats()["buffered"], consumer.stats()["buffered_bytes"]) == (0, 0)


def test_fetching_goes_on_when_a_full_queue_was_handed_out(client: KafkaClient, make: Make) -> None:
    fill(client, numbers(200), batches=20)
    consumer = make(queued_max_messages=10, fetch_message_max_bytes=200)
    assert offsets(consumer, 200) == list(range(200))


# -- what cannot be ----------------------------------------------------------------------------------------------------------
def test_rows_before_damage_come_then_its_place_is_told_and_a_seek_goes_past_it(cluster: MockCluster, make: Make) -> None:
    spoiled = bytearray(values(2, base_offset=3))
    spoiled[-2] ^= 0xFF
    cluster.append("t", 0, values(3) + bytes(spoiled) + values(2, base_offset=5))
    consumer = make()
    assert offsets(consumer, 3) == [0, 1, 2]
    for _ in range(2):
        error = error_of(consumer.consume_arrow, 10, LONG)
        assert isinstance(error, CorruptRecordError)
        assert (error.topic, error.partition, error.offset) == ("t", 0, 3)
        assert consumer.position(T0) == 3
    consumer.seek(T0, 5)
    assert offsets(consumer, 2) == [5, 6]


def test_an_empty_batch_moves_the_position(cluster: MockCluster, make: Make, run: Runner) -> None:
    cluster.append("t", 0, batch([record(0, b"a")]) + batch([], base_offset=1, last_delta=4) + values(1, base_offset=6))
    consumer = make()
    assert offsets(consumer, 2) == [0, 6]
    assert consumer.position(T0) == 7


@pytest.mark.parametrize(
    ("arguments", "named", "words"),
    [
        ((0,), {}, "max_messages=0"),
        ((True,), {}, "max_messages=True"),
        ((None, -1), {}, "timeout_ms=-1"),
        ((), {"columns": ["value", "size"]}, "'size'"),
        ((), {"columns": []}, "columns="),
        ((), {"columns": "value"}, "columns='value'"),
        ((), {"columns": ["value", "value"]}, "each once"),
        ((), {"columns": [["value"]]}, "columns="),
    ],
)
def test_arguments_that_cannot_be_are_told(make: Make, arguments: Any, named: Any, words: str) -> None:
    error = error_of(make().consume_arrow, *arguments, **named)
    assert isinstance(error, ConfigurationError)
    assert words in str(error)


def test_a_consumer_with_deserializers_hands_out_no_columns(client: KafkaClient, make: Make) -> None:
    fill(client, numbers(1))
    consumer = make(value_deserializer=int)
    assert "without key_deserializer" in str(error_of(consumer.consume_arrow, None, LONG))
    assert [m.value for m in read(consumer, 1)] == [0]


def test_without_pyarrow_its_name_is_told_and_nothing_is_taken(client: KafkaClient, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(client, numbers(2))
    consumer = make()
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "pyarrow", None)
        assert "pip install 'gkafka[arrow]'" in str(error_of(consumer.consume_arrow, None, LONG))
    assert offsets(consumer, 2) == [0, 1]


def test_a_stopped_consumer_says_so(make: Make) -> None:
    consumer = make()
    consumer.stop()
    assert isinstance(error_of(consumer.consume_arrow), ConsumerStoppedException)
