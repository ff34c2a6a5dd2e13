"""Batches and records that a broker finds too large: what fits arrives once and in order, what does not is told by itself."""

from __future__ import annotations

from typing import Any

import pytest

from gkafka.exceptions import DeliveryError, KafkaTimeoutError, MessageSizeTooLarge
from gkafka.testing import Close, Delay, Error
from tests.public.aids import LIMIT_S, Runner, error_of, stored_values

ONE_BY_ONE = {"enable_idempotence": False, "max_in_flight": 1}


@pytest.fixture(params=[{}, ONE_BY_ONE, {"compression": "gzip"}], ids=["idempotent", "plain", "gzip"])
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    chosen: dict[str, Any] = request.param
    return chosen


def noise(i: int, size: int = 400) -> bytes:
    """Bytes that no codec makes smaller."""
    state, out = i * 7919 + 17, bytearray()
    while len(out) < size:
        state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        out += (state >> 24).to_bytes(5, "big")
    return bytes(out[:size])


def test_a_batch_that_is_too_large_arrives_in_parts(connect: Any, make_cluster: Any, options: dict[str, Any]) -> None:
    cluster = make_cluster(max_message_bytes=3000)
    values = [noise(i) for i in range(300)]
    with connect(cluster).get_producer(batch_bytes=60_000, linger_ms=60_000, **options) as producer:
        deliveries = [producer.produce("t", value) for value in values]
        producer.flush(LIMIT_S)
        assert all(d.done() for d in deliveries), "B04: flush() waits for the parts"
        stats = producer.stats()
    assert stored_values(cluster) == values
    assert [d.result(0).offset for d in deliveries] == list(range(300))
    assert stats["delivered_records"] == 300
    assert stats["split_batches"] > 0
    assert stats["buffer_bytes_free"] == producer.config.buffer_bytes, "B06: memory is given back once"


def test_without_numbers_a_small_batch_may_overtake_the_parts_of_one_that_was_too_large(connect: Any, make_cluster: Any) -> None:
    """What was accepted is there once all the same."""
    cluster = make_cluster(max_message_bytes=3000)
    values = [noise(i) for i in range(300)]
    with connect(cluster).get_producer(batch_bytes=60_000, linger_ms=50, enable_idempotence=False) as producer:
        deliveries = [producer.produce("t", value) for value in values]
        producer.flush(LIMIT_S)
    log = stored_values(cluster)
    assert sorted(v or b"" for v in log) == sorted(values)
    assert [log[d.result(0).offset] for d in deliveries] == values


def test_later_batches_of_the_topic_are_made_smaller_at_once(connect: Any, make_cluster: Any) -> None:
    cluster = make_cluster(max_message_bytes=3000)
    with connect(cluster).get_producer(batch_bytes=30_000, linger_ms=60_000) as producer:
        for i in range(200):
            producer.produce("t", noise(i))
        producer.flush(LIMIT_S)
        splits, requests = producer.stats()["split_batches"], cluster.count("Produce")
        for i in range(200):
            producer.produce("t", noise(i))
        producer.flush(LIMIT_S)
        assert producer.stats()["split_batches"] == splits
    assert cluster.count("Produce") - requests <= 200
    assert len(stored_values(cluster)) == 400


def test_flush_waits_for_parts_that_are_split_again_while_it_waits(connect: Any, make_cluster: Any, run: Runner) -> None:
    """B04."""
    cluster = make_cluster(max_message_bytes=3000)
    cluster.on("Produce", Delay(0.05), times=None)
    producer = connect(cluster).get_producer(batch_bytes=30_000, linger_ms=60_000)
    deliveries = [producer.produce("t", noise(i)) for i in range(70)]
    waiting = run.aside(deliveries[0].result, LIMIT_S)  # ends the linger: all are in one batch
    run.until(lambda: producer.stats()["split_batches"])
    producer.flush(LIMIT_S)
    assert waiting.result().offset == 0
    assert producer.stats()["split_batches"] > 1
    assert len(stored_values(cluster)) == 70


def test_one_record_that_is_too_large_fails_alone(connect: Any, make_cluster: Any, options: dict[str, Any]) -> None:
    """B17."""
    cluster = make_cluster(max_message_bytes=3000)
    producer = connect(cluster).get_producer(batch_bytes=60_000, linger_ms=100, **options)
    values = [noise(i, 5000 if i == 33 else 100) for i in range(60)]
    deliveries = [producer.produce("t", value) for value in values]
    error = error_of(producer.flush, LIMIT_S)
    assert isinstance(error, DeliveryError)
    (lost,) = error.records
    assert lost.record.value == values[33]
    assert lost.persisted == "no"
    told = deliveries[33].exception(0)
    assert isinstance(told, MessageSizeTooLarge)
    assert (told.topic, told.persisted) == ("t", "no")
    assert "max.message.bytes" in str(told)
    assert stored_values(cluster) == values[:33] + values[34:]
    assert [d.result(0).offset for i, d in enumerate(deliveries) if i != 33] == list(range(59))
    assert producer.produce("t", b"next").result(LIMIT_S).offset == 59, "the producer goes on"


def test_a_part_whose_answer_is_lost_is_there_once(connect: Any, make_cluster: Any) -> None:
    cluster = make_cluster(max_message_bytes=3000)
    cluster.on("Produce", Error(10))
    cluster.on("Produce", Close(before=False))
    cluster.on("Produce", Close(before=True))
    values = [noise(i) for i in range(6)]
    with connect(cluster).get_producer(linger_ms=60_000, retry_backoff_ms=5) as producer:
        deliveries = [producer.produce("t", value) for value in values]
        producer.flush(LIMIT_S)
    assert stored_values(cluster) == values
    assert [d.result(0).offset for d in deliveries[3:]] == [3, 4, 5]


def test_callbacks_come_for_each_record_of_a_batch_that_was_split(connect: Any, make_cluster: Any, run: Runner) -> None:
    cluster = make_cluster(max_message_bytes=3000)
    seen: list[Any] = []
    producer = connect(cluster).get_producer(
        batch_bytes=60_000, linger_ms=50, on_delivery=lambda d: seen.append((d.record.value[:4], d.exception(0) is None))
    )
    values = [noise(i, 5000 if i == 5 else 400) for i in range(20)]
    for value in values:
        producer.produce("t", value)
    error_of(producer.flush, LIMIT_S)
    run.until(lambda: len(seen) == 20)
    assert sorted(seen) == sorted((v[:4], i != 5) for i, v in enumerate(values))


def test_who_waits_for_a_record_gets_it_as_soon_as_its_part_is_there(connect: Any, make_cluster: Any, run: Runner) -> None:
    cluster = make_cluster(max_message_bytes=3000)
    cluster.on("Produce", Delay(0.05))
    producer = connect(cluster).get_producer(batch_bytes=60_000, linger_ms=60_000, max_in_flight=1)
    deliveries = [producer.produce("t", noise(i)) for i in range(10)]
    waiting = [run.aside(d.result, LIMIT_S) for d in deliveries]
    assert [w.result().offset for w in waiting] == list(range(10))


def test_close_waits_for_the_parts_and_lists_what_it_gives_up(connect: Any, make_cluster: Any, run: Runner) -> None:
    cluster = make_cluster(max_message_bytes=3000)
    producer = connect(cluster).get_producer(batch_bytes=60_000, linger_ms=50)
    for i in range(10):
        producer.produce("t", noise(i))
    producer.close(LIMIT_S)
    assert len(stored_values(cluster)) == 10

    producer = connect(cluster).get_producer(batch_bytes=60_000, linger_ms=60_000)
    cluster.on("Produce", Error(10))
    cluster.on("Produce", Delay(30), times=None)
    deliveries = [producer.produce("t", noise(i)) for i in range(10)]
    waiting = run.aside(deliveries[0].exception, LIMIT_S)  # ends the linger: all are in one batch
    run.until(lambda: producer.stats()["split_batches"] > 0)
    error = error_of(producer.close, 0.2)
    assert isinstance(error, DeliveryError)
    assert sorted(r.record.value for r in error.records) == sorted(noise(i) for i in range(10))
    assert all(isinstance(d.exception(0), KafkaTimeoutError) for d in deliveries)
    assert isinstance(waiting.result(), KafkaTimeoutError)
