"""One buffer for all producers of a client: never more than the largest of them, and nobody waits for ever or out of turn."""

from __future__ import annotations

from typing import Any

from gkafka.exceptions import BufferFull
from gkafka.testing import Delay
from tests.public.aids import LIMIT_S, Clock, Runner, error_of, stored_values

SMALL: dict[str, Any] = {"buffer_bytes": 40_000, "batch_bytes": 10_000, "max_request_bytes": 10_000, "linger_ms": 0}


def fill(producer: Any, **about: Any) -> int:
    """Produce until it takes no more; how many it took."""
    for n in range(1000):
        try:
            producer.produce("t", b"x" * 900, **about)
        except BufferFull:
            return n
    raise AssertionError("it never fills")


def test_all_producers_of_a_client_share_one_buffer(connect: Any, make_cluster: Any) -> None:
    cluster = make_cluster()
    cluster.on("Produce", Delay(30), times=None)
    client = connect(cluster)
    first, second, third = (client.get_producer(max_block_ms=100, **SMALL) for _ in range(3))
    taken = fill(first)
    assert 20 < taken < 45
    with Clock() as clock:
        error = error_of(second.produce, "t", b"x" * 900)
    assert isinstance(error, BufferFull)
    assert "other producers of this client" in str(error)
    assert 0.08 < clock.seconds < 2
    assert isinstance(error_of(third.produce, "t", b"x" * 900), BufferFull)
    assert taken + fill(second) <= 45
    for producer in (first, second, third):
        error_of(producer.close, 0) if producer.stats()["unsettled_records"] else producer.close()


def test_the_largest_buffer_counts_and_each_keeps_to_its_own(connect: Any, make_cluster: Any) -> None:
    cluster = make_cluster()
    cluster.on("Produce", Delay(30), times=None)
    client = connect(cluster)
    small = client.get_producer(max_block_ms=50, **SMALL)
    large = client.get_producer(max_block_ms=50, **{**SMALL, "buffer_bytes": 120_000})
    assert fill(small) < 45
    assert 60 < fill(large) < 100, "120,000 bytes together"
    error_of(large.close, 0)
    error_of(small.close, 0)
    again = client.get_producer(max_block_ms=50, **SMALL)
    assert fill(again) > 20, "what was given up is free"
    error_of(again.close, 0)


def test_room_that_one_producer_frees_wakes_another(connect: Any, make_cluster: Any, run: Runner) -> None:
    cluster = make_cluster()
    cluster.on("Produce", Delay(0.4), times=3)
    client = connect(cluster)
    first, second = (client.get_producer(max_block_ms=LIMIT_S * 1000, **SMALL) for _ in range(2))
    sent = [first.produce("t", b"x" * 9000) for _ in range(3)]
    with Clock() as clock:
        late = [second.produce("t", b"y" * 9000) for _ in range(3)]
        assert all(d.result(LIMIT_S).offset >= 0 for d in [*sent, *late])
    assert clock.seconds < 6
    assert client.stats()["producers"][0]["buffer_bytes_free"] == 40_000
    assert len(stored_values(cluster)) == 6


def test_a_batch_that_lingers_goes_when_another_producer_needs_its_memory(connect: Any, make_cluster: Any) -> None:
    cluster = make_cluster()
    client = connect(cluster)
    patient = client.get_producer(**{**SMALL, "linger_ms": 60_000})
    deliveries = [patient.produce("t", b"x" * 9000) for _ in range(3)]
    patient.produce("t", b"x" * 4000)
    with Clock() as clock:
        other = client.get_producer(**SMALL)
        assert all(other.produce("t", b"y" * 9000).result(LIMIT_S).offset >= 0 for _ in range(4))
    assert clock.seconds < 5
    assert all(d.done() for d in deliveries)


def test_who_waits_for_room_is_served_in_turn(connect: Any, make_cluster: Any, run: Runner) -> None:
    cluster = make_cluster()
    cluster.on("Produce", Delay(0.5), times=1)
    client = connect(cluster)
    producers = [client.get_producer(max_in_flight=1, **SMALL) for _ in range(2)]
    for _ in range(4):
        producers[0].produce("t", b"x" * 9000)
    order: list[int] = []

    def wait(n: int) -> None:
        producers[n % 2].produce("t", b"%d" % n * 8000)
        order.append(n)

    line = client._cluster.memory._line
    waiting = []
    for n in range(6):
        waiting.append(run.aside(wait, n))
        run.until(lambda n=n: len(line) == n + 1)  # type: ignore[misc]
    for w in waiting:
        w.result()
    assert order == sorted(order)
    assert not line
    for producer in producers:
        producer.close()


def test_one_that_fills_its_own_small_buffer_is_in_nobodys_way(connect: Any, make_cluster: Any, run: Runner) -> None:
    cluster = make_cluster(topics={"t": 1, "free": 1})
    cluster.on("Produce", Delay(1.5), times=1)
    client = connect(cluster)
    small = client.get_producer(**SMALL)
    large = client.get_producer(**{**SMALL, "buffer_bytes": 400_000})
    for _ in range(4):
        small.produce("t", b"x" * 9000)
    blocked = run.aside(small.produce, "t", b"x" * 9000)
    run.until(lambda: client._cluster.memory.contended)
    with Clock() as clock:
        for _ in range(10):
            large.produce("free", b"y" * 9000)
    assert clock.seconds < 1.0
    assert blocked.result().result(LIMIT_S).offset >= 0


def test_memory_of_failed_records_is_given_to_others_who_need_it(connect: Any, make_cluster: Any) -> None:
    from gkafka.testing import Error

    cluster = make_cluster()
    client = connect(cluster)
    failing, other = (client.get_producer(max_block_ms=2000, **SMALL) for _ in range(2))
    cluster.on("Produce", Error(29), times=4)
    for _ in range(4):
        failing.produce("t", b"x" * 9000).exception(LIMIT_S)
    assert all(other.produce("t", b"y" * 9000).result(LIMIT_S).offset >= 0 for _ in range(4))
    error = error_of(failing.close)
    assert "only logged" in str(error)
