"""Memory: what a socket may still send is nobody else's."""

from __future__ import annotations

from typing import Any

from gkafka import records
from gkafka.exceptions import DeliveryError
from tests.public.aids import LIMIT_S, Runner, error_of, short_of_time, stored_values
from tests.regressions.aids import NAMED, QUICK, Held, sent_batches

MANY = 64
LARGE = 100_000


def test_b07_a_batch_that_expired_while_the_socket_sends_it_is_not_written_over(connect: Any, make_cluster: Any, run: Runner) -> None:
    """B07 kafka#21065 (KAFKA-19012): its buffer went to another topic's batch: records in the wrong topic, with a good checksum."""
    cluster = make_cluster(topics={"t": 1, "other": 1}, max_message_bytes=1 << 26, **NAMED)
    producer = connect(cluster).get_producer(
        linger_ms=300,
        batch_bytes=MANY * LARGE,
        max_request_bytes=MANY * LARGE * 2,
        buffer_bytes=MANY * LARGE * 4,
        request_timeout_ms=30_000,
        **QUICK,
    )
    for topic in ("t", "other"):
        producer.produce(topic, b"first").result(LIMIT_S)
    held = Held()
    cluster.on("Produce", held)
    producer.produce("t", b"held")
    producer.send_now()
    run.until(lambda: held.holds)
    for _ in range(MANY - 1):
        producer.produce("t", b"t" * LARGE)  # more than the kernel takes for a broker that does not read
    producer.send_now()
    with short_of_time(producer, 0.5):
        error = error_of(producer.flush, LIMIT_S)  # the records' memory goes back to the producer
    assert isinstance(error, DeliveryError)
    assert len(error.records) == MANY
    assert {r.persisted for r in error.records} == {"maybe"}
    del error
    others = [producer.produce("other", b"o" * LARGE) for _ in range(MANY)]
    producer.send_now()
    held.released = True
    run.until(lambda: len(stored_values(cluster, "t")) == 1 + MANY)
    outcomes = [delivery.exception(LIMIT_S) for delivery in others]
    for batch in sent_batches(cluster):
        assert records.crc32c(memoryview(batch.data)[21:]) == int.from_bytes(batch.data[17:21], "big"), "frozen when it was sealed"
    assert stored_values(cluster, "t") == [b"first", b"held", *[b"t" * LARGE] * (MANY - 1)]
    assert set(stored_values(cluster, "other")) <= {b"first", b"o" * LARGE}
    if any(outcomes):
        error_of(producer.flush)


def test_b07_the_bytes_that_were_handed_to_a_socket_stay_what_they_are() -> None:
    """B07 kafka#21065 (KAFKA-19012), in the appender: memory comes back when nobody looks at it any more, not when the batch is done."""
    appender: Any = records.Appender(object(), batch_bytes=4096, buffer_bytes=8192, max_record_bytes=4096, initial_bytes=4096, lock=None)

    def batch_of(topic: str, value: bytes) -> Any:
        appender.set_topic(topic, 1, 0)
        batch = appender.open(topic, 0, 0.0)
        while appender.append(topic, 0, value, None, 0, None) is not None:
            pass
        appender.roll(topic, 0)
        batch.seal(0)
        return batch

    first = batch_of("a", b"a" * 100)
    wire = first.wire
    sent = bytes(wire)
    free = appender.available
    first.fail(DeliveryError("expired", []))
    appender.release(first)
    assert appender.available == free, "the socket still has it"
    second = batch_of("b", b"b" * 100)
    assert bytes(wire) == sent
    assert appender.available == free - 4096
    del wire
    assert appender.available == free
    assert not second.done
