"""Callbacks and the buffer: what a callback produces never waits for memory that is held for callbacks, and what failed waits for its own."""

from __future__ import annotations

from collections import Counter
from typing import Any

from gkafka import KafkaClient
from gkafka.exceptions import BufferFull, KafkaException
from gkafka.testing import Error, MockCluster
from tests.public.aids import LIMIT_S, Clock, Runner, error_of, stored, stored_values

BUFFER = 16_384
SMALL: dict[str, Any] = {"buffer_bytes": BUFFER, "batch_bytes": 4096, "max_request_bytes": 8192, "linger_ms": 0, "max_block_ms": 20_000}
PROMPT_S = 30.0
"""Far below max_block_ms: nobody waited for itself."""
TOPIC_AUTHORIZATION_FAILED = 29


def most_taken(client: KafkaClient, most: list[int]) -> None:
    """Note how much of the buffer all producers take together."""
    most.append(client._cluster.memory.budget.reserved)


def test_a_callback_may_produce_one_for_one_while_others_fill_the_buffer(connect: Any, make_cluster: Any) -> None:
    """Each finds its record, although the buffer is full all the time."""
    cluster = make_cluster(topics={"t": 1, "audit": 1})
    client = connect(cluster)
    seen: list[Any] = []
    most: list[int] = []

    def note(delivery: Any) -> None:
        if delivery.topic == "t":
            producer.produce("audit", delivery.record.value)
            seen.append(delivery.record)
            most_taken(client, most)

    producer = client.get_producer(on_delivery=note, **SMALL)
    values = [b"%04d" % n + b"." * 900 for n in range(300)]
    with Clock() as clock:
        for value in values:
            producer.produce("t", value)
        producer.flush(LIMIT_S)
    assert clock.seconds < 30
    assert [record.value for record in seen] == values
    producer.flush(LIMIT_S)
    assert stored_values(cluster, "audit") == values
    assert max(most) <= 2 * BUFFER


def test_a_callback_may_produce_more_than_the_buffer_holds(connect: Any, make_cluster: Any, run: Runner) -> None:
    """Of what it produced some had to let their records go: their callbacks have the result."""
    cluster = make_cluster()
    client = connect(cluster)
    most: list[int] = []
    outcome: list[Any] = []
    results: list[int] = []

    def stuff(delivery: Any) -> None:
        results.append(delivery.result(0).offset)
        if delivery.result(0).offset:
            return
        try:
            for _ in range(200):
                producer.produce("t", b"x" * 900)
                most_taken(client, most)
        except KafkaException as error:
            outcome.append(error)
        outcome.append("done")

    producer = client.get_producer(on_delivery=stuff, **SMALL)
    producer.produce("t", b"first")
    run.until(lambda: outcome)
    assert outcome == ["done"]
    producer.flush(LIMIT_S)
    assert sorted(results) == list(range(201))
    assert len(stored(cluster)) == 201
    assert BUFFER < max(most) <= 2 * BUFFER
    assert producer.stats()["buffer_bytes_free"] == BUFFER


def test_callbacks_that_produce_two_for_one_end_and_stay_bounded(connect: Any, make_cluster: Any) -> None:
    cluster = make_cluster()
    client = connect(cluster)
    most: list[int] = []
    generations: Counter[int] = Counter()
    errors: list[KafkaException] = []

    def breed(delivery: Any) -> None:
        key = int(delivery.result(0).timestamp)
        generations[key] += 1
        if key >= 8:
            return
        for _ in range(2):
            try:
                producer.produce("t", b"x" * 900, timestamp=key + 1)
            except KafkaException as error:
                errors.append(error)
            most_taken(client, most)

    producer = client.get_producer(on_delivery=breed, **SMALL)
    producer.produce("t", b"first", timestamp=1)
    with Clock() as clock:
        while sum(generations.values()) < 255 and clock.so_far < PROMPT_S:
            producer.flush(LIMIT_S)
    assert errors == []
    assert generations == {n + 1: 1 << n for n in range(8)}
    assert max(most) <= 2 * BUFFER


def test_a_callback_may_produce_again_what_failed_while_all_of_the_buffer_failed(connect: Any, make_cluster: Any, run: Runner) -> None:
    cluster = make_cluster()
    client = connect(cluster)
    assert client.topics["t"] is not None
    unseen: list[Any] = []
    most: list[int] = []
    go = client.handler.Event()

    def again(delivery: Any) -> None:
        go.wait(LIMIT_S)
        if delivery.exception(0) is None:
            return
        if delivery.record is None:
            unseen.append(delivery)
            return
        producer.produce("t", delivery.record.value)
        most_taken(client, most)

    producer = client.get_producer(on_delivery=again, enable_idempotence=False, **{**SMALL, "max_block_ms": 300})
    cluster.on("Produce", Error(TOPIC_AUTHORIZATION_FAILED), times=None)
    values = []
    for n in range(1000):
        value = b"%04d" % n + b"." * 900
        try:
            producer.produce("t", value)
        except BufferFull:
            break
        values.append(value)
    run.until(lambda: not producer.stats()["unsettled_records"])
    cluster.clear_script()
    go.set()
    run.until(lambda: len(stored(cluster)) >= len(values) or unseen)
    assert not unseen
    assert sorted(v or b"" for v in stored_values(cluster)) == values
    assert max(most) <= 2 * BUFFER
    error_of(producer.flush, LIMIT_S)


def test_callbacks_of_two_producers_may_produce_to_each_other(connect: Any, make_cluster: Any, run: Runner) -> None:
    """Neither waits for what the other's callbacks hold while the other waits for it."""
    cluster = make_cluster(topics={"t": 1, "back": 1})
    client = connect(cluster)
    producers: list[Any] = []
    errors: list[KafkaException] = []

    def to(other: int) -> Any:
        def produce(delivery: Any) -> None:
            if delivery.topic == "t":
                try:
                    producers[other].produce("back", delivery.record.value)
                except KafkaException as error:
                    errors.append(error)

        return produce

    producers += [client.get_producer(on_delivery=to(1), **SMALL), client.get_producer(on_delivery=to(0), **SMALL)]

    def fill(producer: Any) -> None:
        for _ in range(100):
            producer.produce("t", b"x" * 900)

    with Clock() as clock:
        for busy in [run.aside(fill, producer) for producer in producers]:
            busy.result(PROMPT_S)
        for _ in range(2):
            for producer in producers:
                producer.flush(LIMIT_S)
    assert clock.seconds < 30
    assert errors == []
    assert len(stored(cluster, "back")) == 200


def test_a_callback_may_produce_to_a_producer_whose_buffer_is_full_of_what_others_wait_for(
    connect: Any, make_cluster: Any, run: Runner
) -> None:
    """Whoever else waits in line waits for the callback: it goes first."""
    cluster = make_cluster()
    client = connect(cluster)
    assert client.topics["t"] is not None
    entered, go = client.handler.Event(), client.handler.Event()
    took: list[float] = []

    def callback(delivery: Any) -> None:
        if took:
            return
        entered.set()
        go.wait(LIMIT_S)
        with Clock() as clock:
            producer.produce("t", b"from the callback")
        took.append(clock.seconds)

    producer = client.get_producer(on_delivery=callback, **SMALL)
    producer.produce("t", b"first")
    assert entered.wait(LIMIT_S)
    blocked = run.aside(lambda: [producer.produce("t", b"x" * 900) for _ in range(40)])
    run.until(lambda: client._cluster.memory.contended)
    run.until(lambda: not producer.stats()["unsettled_records"])
    assert blocked.running
    go.set()
    run.until(lambda: took)
    assert took[0] < 30
    blocked.result()
    producer.flush(LIMIT_S)
    assert len(stored(cluster)) == 42


# -- what failed -----------------------------------------------------------------------------------------------------------
def fail_some(client: KafkaClient, cluster: MockCluster, run: Runner, looks: list[Any], **options: Any) -> tuple[Any, Any]:
    """A producer with three batches that failed and whose callbacks wait behind the first; the event that lets them go on."""
    assert client.topics["t"] is not None
    go = client.handler.Event()

    def look(delivery: Any) -> None:
        if not looks:
            looks.append(None)
            options.get("first", lambda: go.wait(LIMIT_S))()
            looks.pop()
        looks.append(delivery.record)

    failing = client.get_producer(on_delivery=look, **SMALL)
    cluster.on("Produce", Error(TOPIC_AUTHORIZATION_FAILED), times=3)
    for n in range(3):
        failing.produce("t", b"%d" % n * 4000).exception(LIMIT_S)
    run.until(lambda: looks)
    return failing, go


def test_what_failed_is_held_until_its_callbacks_were_called_whoever_needs_its_memory(connect: Any, make_cluster: Any, run: Runner) -> None:
    cluster = make_cluster()
    client = connect(cluster)
    looks: list[Any] = []
    failing, go = fail_some(client, cluster, run, looks)
    other = client.get_producer(**SMALL)
    busy = run.aside(lambda: [other.produce("t", b"y" * 4000).result(LIMIT_S) for _ in range(4)])
    held = run.aside(lambda: [other.produce("t", b"z" * 7000).result(LIMIT_S) for _ in range(4)])
    run.until(lambda: client._cluster.memory.contended)
    go.set()
    run.until(lambda: len(looks) == 3)
    assert [record and record.value[:1] for record in looks] == [b"0", b"1", b"2"]
    busy.result()
    held.result()
    error = error_of(failing.close)
    assert "3 record(s) were not delivered" in str(error)


def test_what_failed_is_held_for_its_callbacks_although_a_flush_told_of_it(connect: Any, make_cluster: Any, run: Runner) -> None:
    cluster = make_cluster()
    client = connect(cluster)
    looks: list[Any] = []
    failing, go = fail_some(client, cluster, run, looks)
    error: Any = error_of(failing.flush, 0.2)
    assert [entry.record.value[:1] for entry in error.records] == [b"0", b"1", b"2"]
    go.set()
    run.until(lambda: len(looks) == 3)
    assert [record and record.value[:1] for record in looks] == [b"0", b"1", b"2"]
    run.until(lambda: failing.stats()["buffer_bytes_free"] == BUFFER)
    failing.close()


def test_a_client_that_waits_for_the_memory_of_what_failed_goes_on_when_its_callbacks_were_called(
    connect: Any, make_cluster: Any, run: Runner
) -> None:
    """All of the buffer failed, nobody flushes: the next records take its place."""
    cluster = make_cluster()
    client = connect(cluster)
    assert client.topics["t"] is not None
    seen: list[Any] = []
    producer = client.get_producer(on_delivery=lambda delivery: seen.append(delivery.record), **SMALL)
    cluster.on("Produce", Error(TOPIC_AUTHORIZATION_FAILED), times=8)
    with Clock() as clock:
        for n in range(20):
            producer.produce("t", b"%02d" % n * 1900)
        error_of(producer.flush, LIMIT_S)
    assert clock.seconds < 30
    assert len(seen) == 20
    assert None not in seen
