"""One bad record among good ones (KIP-467): it fails alone, with the broker's words for it, and the others are there once and in order."""

from __future__ import annotations

import logging
from typing import Any

import pyarrow as pa
import pytest

from gkafka.exceptions import BatchRefusedError, DeliveryError, InvalidRecord, InvalidTimestamp, TransactionAbortableError
from gkafka.records import RecordColumns
from gkafka.testing import Close, StoredRecord
from tests.kit.refusing import Refuse
from tests.public.aids import LIMIT_S, Runner, error_of, stored_values

ONE_BY_ONE = {"enable_idempotence": False, "max_in_flight": 1}


@pytest.fixture(params=[{}, ONE_BY_ONE, {"compression": "gzip"}], ids=["idempotent", "plain", "gzip"])
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    chosen: dict[str, Any] = request.param
    return chosen


def test_a_record_without_a_key_fails_alone_and_the_others_are_there_in_order(
    connect: Any, make_cluster: Any, options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    cluster = make_cluster()
    cluster.on("Produce", Refuse(), times=None)
    producer = connect(cluster).get_producer(linger_ms=100, **options)
    values = [b"v%d" % i for i in range(1001)]
    deliveries = [producer.produce("t", value, None if i == 400 else b"k") for i, value in enumerate(values)]
    error = error_of(producer.flush, LIMIT_S)
    assert isinstance(error, DeliveryError)
    (lost,) = error.records
    assert (lost.record.key, lost.record.value, lost.persisted) == (None, b"v400", "no")
    told = deliveries[400].exception(0)
    assert type(told) is type(lost.error) is InvalidRecord
    assert (told.topic, told.partition, told.persisted) == ("t", 0, "no")
    assert "Compacted topic cannot accept message without key" in str(told)
    assert "a compacted topic needs a key" not in str(told), "the broker's words say it: no guess is added"
    assert told.record == lost.record
    assert stored_values(cluster) == values[:400] + values[401:]
    assert [d.result(0).offset for i, d in enumerate(deliveries) if i != 400] == list(range(1000))
    assert producer.produce("t", b"next", b"k").result(LIMIT_S).offset == 1000, "the producer goes on"
    stats = producer.stats()
    assert (stats["delivered_records"], stats["buffer_bytes_free"]) == (1001, producer.config.buffer_bytes)
    (line,) = [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]
    assert line.startswith("1 record(s) for t-0 not delivered (persisted: no): Produce t-0: error 87: Compacted topic")


def too_new(record: StoredRecord) -> str | None:
    """As Kafka: each record has words of its own."""
    return f"Timestamp {record.timestamp} of message with offset {record.offset} is out of range." if record.timestamp >= 1 << 45 else None


def test_timestamps_in_microseconds_are_told_one_by_one_and_logged_once(
    connect: Any, make_cluster: Any, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = make_cluster()
    cluster.on("Produce", Refuse(too_new, code=32), times=None)
    producer = connect(cluster).get_producer(linger_ms=60_000)
    stamps = [1_700_000_000_000_000 + i if i % 2 else 1_700_000_000_000 for i in range(40)]
    deliveries = [producer.produce("t", b"%d" % i, timestamp=stamp) for i, stamp in enumerate(stamps)]
    error = error_of(producer.flush, LIMIT_S)
    assert isinstance(error, DeliveryError)
    assert "20 record(s) were not delivered" in str(error)
    assert [entry.record.value for entry in error.records] == [b"%d" % i for i in range(1, 40, 2)]
    assert all(str(entry.record.timestamp) in str(entry.error) for entry in error.records)
    assert [d.result(0).offset for d in deliveries[::2]] == list(range(20))
    assert stored_values(cluster) == [b"%d" % i for i in range(0, 40, 2)]
    (line,) = [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]
    assert line.startswith("20 record(s) for t-0 not delivered (persisted: no): the first: ")


def test_a_single_record_has_the_class_of_its_error(connect: Any, make_cluster: Any) -> None:
    cluster = make_cluster()
    cluster.on("Produce", Refuse(too_new, code=32), times=None)
    producer = connect(cluster).get_producer(linger_ms=100)
    good = producer.produce("t", b"good")
    bad = producer.produce("t", b"bad", timestamp=1 << 50)
    assert isinstance(bad.exception(LIMIT_S), InvalidTimestamp)
    assert good.result(LIMIT_S).offset == 0
    error_of(producer.close, LIMIT_S)


def test_other_partitions_of_the_same_request_lose_nothing(connect: Any, make_cluster: Any) -> None:
    cluster = make_cluster(topics={"t": 3})
    cluster.on("Produce", Refuse(), times=None)
    producer = connect(cluster).get_producer(linger_ms=100)
    deliveries = [producer.produce("t", b"%d" % i, None if i in (4, 5, 9) else b"k", partition=i % 3) for i in range(30)]
    error = error_of(producer.flush, LIMIT_S)
    assert isinstance(error, DeliveryError)
    assert sorted(int(entry.record.value) for entry in error.records) == [4, 5, 9]
    for p in range(3):
        assert stored_values(cluster, partitions=[p]) == [b"%d" % i for i in range(p, 30, 3) if i not in (4, 5, 9)]
    assert sum(d.exception(0) is None for d in deliveries) == 27


def test_callbacks_come_once_for_each_record_with_its_own_outcome(connect: Any, make_cluster: Any, run: Runner) -> None:
    cluster = make_cluster()
    cluster.on("Produce", Refuse(), times=None)
    seen: list[tuple[bytes, str]] = []

    def done(delivery: Any) -> None:
        error = delivery.exception(0)
        seen.append((delivery.record.value, "" if error is None else type(error).__name__))

    producer = connect(cluster).get_producer(linger_ms=100, on_delivery=done)
    for i in range(20):
        producer.produce("t", b"%02d" % i, None if i % 7 == 3 else b"k")
    error_of(producer.flush, LIMIT_S)
    assert len(seen) == 20
    assert sorted(value for value, error in seen if error) == [b"03", b"10", b"17"]
    assert [value for value, error in seen if not error] == [b"%02d" % i for i in range(20) if i % 7 != 3]


def test_a_try_whose_answer_was_lost_leaves_the_others_unclear_and_says_so(connect: Any, make_cluster: Any) -> None:
    cluster = make_cluster()
    cluster.on("Produce", Close(before=True))
    cluster.on("Produce", Refuse(), times=None)
    producer = connect(cluster).get_producer(linger_ms=60_000, retry_backoff_ms=5)
    deliveries = [producer.produce("t", b"%d" % i, None if i == 1 else b"k") for i in range(3)]
    error_of(producer.flush, LIMIT_S)
    errors = [d.exception(0) for d in deliveries]
    assert [type(error) for error in errors] == [BatchRefusedError, InvalidRecord, BatchRefusedError]
    assert {getattr(error, "persisted", None) for error in errors} == {"maybe"}
    assert stored_values(cluster) == []
    assert producer.produce("t", b"next", b"k").result(LIMIT_S).offset == 0


def test_in_a_transaction_the_others_are_not_at_fault_and_it_is_done_again_without_the_bad_one(connect: Any, make_cluster: Any) -> None:
    cluster = make_cluster()
    cluster.on("Produce", Refuse(), times=None)
    producer = connect(cluster).get_producer(linger_ms=60_000, transactional_id="x")
    producer.begin_transaction()
    deliveries = [producer.produce("t", b"%d" % i, None if i == 1 else b"k") for i in range(3)]
    error = error_of(producer.commit_transaction)
    assert isinstance(error, TransactionAbortableError)
    assert isinstance(error.__cause__, InvalidRecord)
    assert [type(d.exception(0)) for d in deliveries] == [BatchRefusedError, InvalidRecord, BatchRefusedError]
    assert "not at fault" in str(deliveries[0].exception(0))
    producer.abort_transaction()
    with producer.transaction():
        for i in (0, 2):
            producer.produce("t", b"%d" % i, b"k")
    assert [r.value for r in cluster.log("t", 0, committed=True)] == [b"0", b"2"]


# -- other skins ---------------------------------------------------------------------------------------------------------
def test_a_documented_producer_reports_the_bad_message_alone(connect: Any, make_cluster: Any, run: Runner) -> None:
    cluster = make_cluster()
    cluster.on("Produce", Refuse(), times=None)
    producer = connect(cluster).topics["t"].get_producer(delivery_reports=True, linger_ms=100)
    for i in range(6):
        producer.produce(b"%d" % i, partition_key=None if i == 2 else b"k")
    reports = [producer.get_delivery_report(timeout=LIMIT_S) for _ in range(6)]
    assert [(m.value, type(error)) for m, error in reports if error is not None] == [(b"2", InvalidRecord)]
    assert stored_values(cluster) == [b"0", b"1", b"3", b"4", b"5"]
    producer.stop()


def test_columns_lose_the_bad_row_alone(connect: Any, make_cluster: Any) -> None:
    cluster = make_cluster()
    cluster.on("Produce", Refuse(), times=None)
    producer = connect(cluster).get_producer(linger_ms=100)
    keys = [None if i in (7, 99) else "k" for i in range(100)]
    producer.produce_columns("t", RecordColumns.from_arrow(pa.array([b"%d" % i for i in range(100)]), pa.array(keys, pa.binary())))
    error = error_of(producer.flush, LIMIT_S)
    assert isinstance(error, DeliveryError)
    assert [entry.record.value for entry in error.records] == [b"7", b"99"]
    assert stored_values(cluster) == [b"%d" % i for i in range(100) if i not in (7, 99)]
