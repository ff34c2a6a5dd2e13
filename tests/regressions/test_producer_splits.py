"""Batches that are too large for the broker: split, waited for, given back once, and told record by record."""

from __future__ import annotations

from typing import Any

import pytest

from gkafka.exceptions import DeliveryError, MessageSizeTooLarge
from gkafka.testing import Error
from gkafka.testing.logs import MESSAGE_TOO_LARGE
from tests.core.fakes import Rig
from tests.public.aids import LIMIT_S, Runner, error_of, stored_values
from tests.regressions.aids import QUICK, Held, numbered


@pytest.mark.parametrize("wait", ["flush", "close"])
def test_b04_flush_waits_for_the_parts_of_a_batch(connect: Any, make_cluster: Any, run: Runner, wait: str) -> None:
    """B04 kafka#20254 (KAFKA-19479): flush() returned when the batch was split, and its parts were still to be delivered."""
    cluster = make_cluster()
    producer = connect(cluster).get_producer(linger_ms=60_000, **QUICK)
    held = Held()
    cluster.on("Produce", Error(MESSAGE_TOO_LARGE))
    cluster.on("Produce", Error(MESSAGE_TOO_LARGE))
    cluster.on("Produce", held)
    values = [value * 100 for value in numbered(8)]
    deliveries = [producer.produce("t", value) for value in values]
    waiting = run.aside(producer.flush if wait == "flush" else producer.close, LIMIT_S)
    run.until(lambda: held.holds)
    assert run.stays(lambda: waiting.running, 0.1), "parts are under way"
    assert not any(delivery.done() for delivery in deliveries)
    held.released = True
    waiting.result()
    assert all(delivery.done() for delivery in deliveries)
    assert stored_values(cluster) == values


def test_b05_splitting_ends_however_much_larger_batches_are_than_the_broker_takes(connect: Any, make_cluster: Any) -> None:
    """B05 kafka#20358 (KAFKA-8350): with batch.size far above max.message.bytes a batch was split for ever, into itself."""
    cluster = make_cluster(max_message_bytes=200)
    producer = connect(cluster).get_producer(batch_bytes=1 << 20, linger_ms=60_000, **QUICK)
    values = [value * 20 for value in numbered(500)]
    for value in values:
        producer.produce("t", value)
    producer.flush(LIMIT_S)
    assert stored_values(cluster) == values
    assert cluster.count("Produce") < 2 * 500 + 20, "a split always makes parts of fewer records"


def test_b05_a_broker_that_takes_nothing_fails_every_record_once(connect: Any, make_cluster: Any) -> None:
    """B05 kafka#20358 (KAFKA-8350): where even one record is too large there is nothing left to split."""
    cluster = make_cluster(max_message_bytes=10)
    producer = connect(cluster).get_producer(batch_bytes=1 << 20, linger_ms=60_000, **QUICK)
    for value in numbered(64):
        producer.produce("t", value)
    error = error_of(producer.flush, LIMIT_S)
    assert isinstance(error, DeliveryError)
    assert sorted(r.record.value for r in error.records) == numbered(64)
    assert {type(r.error) for r in error.records} == {MessageSizeTooLarge}
    assert cluster.count("Produce") < 2 * 64 + 10


def test_b06_a_batch_that_was_split_is_given_back_once(connect: Any, make_cluster: Any) -> None:
    """B06 kafka#7176 (KAFKA-8325): the split batch stayed in the list of those under way, expired there and was freed a second time."""
    cluster = make_cluster(max_message_bytes=1000)
    buffer = 1 << 20
    producer = connect(cluster).get_producer(
        batch_bytes=20_000, buffer_bytes=buffer, max_request_bytes=30_000, linger_ms=60_000, delivery_timeout_ms=60_000, **QUICK
    )
    for round_ in range(5):
        for value in numbered(300, round_ * 300):
            producer.produce("t", value * 10)
        producer.flush(LIMIT_S)
    stats = producer.stats()
    assert stats["delivered_records"] == 1500
    assert stats["buffer_bytes_free"] == buffer
    assert (stats["unsettled_batches"], stats["unsettled_records"]) == (0, 0)
    producer.close(LIMIT_S)
    assert stored_values(cluster) == [value * 10 for value in numbered(1500)]


def test_b06_a_batch_that_was_split_is_neither_under_way_nor_does_it_expire() -> None:
    """B06 kafka#7176 (KAFKA-8325), in numbers: what times out are its parts, each once."""
    rig = Rig(delivery_timeout_s=10.0)
    whole = rig.full(count=8, size=800)
    (request,) = rig.sent()
    assert rig.answer(request, MESSAGE_TOO_LARGE)[0] == []
    queue = rig.accumulator.queues["t", 0]
    assert whole not in queue.on_wire
    assert rig.sender.in_flight[1] == 0
    parts = list(queue.pending)
    assert [part.count for part in parts] == [4, 4]
    rig.now = 20.0
    assert [s.batch for s in rig.expired()] == parts
    assert not rig.accumulator.unsettled
    assert rig.answer(request, 0)[0] == [], "a late answer settles nothing"


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_b17_a_record_that_is_too_large_fails_alone(connect: Any, make_cluster: Any, compression: str | None) -> None:
    """B17 librdkafka#488: one record that the broker finds too large failed everything that shared its batch."""
    cluster = make_cluster(max_message_bytes=2000)
    producer = connect(cluster).get_producer(batch_bytes=1 << 20, linger_ms=60_000, compression=compression, **QUICK)
    large = b"".join(b"%x" % (n * n * 7919 % 65521) for n in range(4000))
    values = numbered(50)
    values[17] = large
    for value in values:
        producer.produce("t", value)
    error = error_of(producer.flush, LIMIT_S)
    assert isinstance(error, DeliveryError)
    assert [(r.record.value, type(r.error), r.persisted) for r in error.records] == [(large, MessageSizeTooLarge, "no")]
    assert stored_values(cluster) == [value for value in values if value != large]
