"""One buffer for all producers of a client: never more than the largest of them, and nobody waits for ever or out of turn."""

from __future__ import annotations

import gc
import pickle
import weakref
from random import Random
from typing import Any

import pytest

from gkafka.exceptions import BufferFull, DeliveryError, ProducerStoppedException, TopicAuthorizationFailed
from gkafka.handlers.selection import resolve_handler
from gkafka.producermemory import ProducerMemory
from gkafka.testing import Delay, Error
from tests.public.aids import LIMIT_S, Clock, Runner, error_of, stored_values

SMALL: dict[str, Any] = {"buffer_bytes": 40_000, "batch_bytes": 10_000, "max_request_bytes": 10_000, "linger_ms": 0}


def ready(connect: Any, cluster: Any) -> Any:
    """A client that knows the topic: what is measured is the wait for room, not for metadata."""
    client = connect(cluster)
    assert client.topics["t"] is not None
    return client


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
    cluster.on("Produce", Delay(120), times=None)
    client = ready(connect, cluster)
    first, second, third = (client.get_producer(max_block_ms=100, **SMALL) for _ in range(3))
    taken = fill(first)
    assert 20 < taken < 45
    with Clock() as clock:
        error = error_of(second.produce, "t", b"x" * 900)
    assert isinstance(error, BufferFull)
    assert "other producers of this client" in str(error)
    assert 0.08 < clock.seconds < 30
    assert isinstance(error_of(third.produce, "t", b"x" * 900), BufferFull)
    assert taken + fill(second) <= 45
    for producer in (first, second, third):
        error_of(producer.close, 0) if producer.stats()["unsettled_records"] else producer.close()


def test_the_largest_buffer_counts_and_each_keeps_to_its_own(connect: Any, make_cluster: Any) -> None:
    cluster = make_cluster()
    cluster.on("Produce", Delay(120), times=None)
    client = ready(connect, cluster)
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
    assert clock.seconds < 30
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
    assert clock.seconds < 30
    assert all(d.done() for d in deliveries)


def test_who_waits_for_room_is_served_in_turn(connect: Any, make_cluster: Any, run: Runner) -> None:
    """The order in which records were accepted is that of their offsets, producer by producer."""
    cluster = make_cluster()
    cluster.on("Produce", Delay(0.5), times=1)
    client = connect(cluster)
    producers = [client.get_producer(max_in_flight=1, **SMALL) for _ in range(2)]
    for _ in range(4):
        producers[0].produce("t", b"x" * 9000)
    line = client._cluster.memory._line
    waiting = []
    for n in range(6):
        waiting.append(run.aside(producers[n % 2].produce, "t", b"%d" % n * 8000))
        run.until(lambda n=n: len(line) == n + 1)  # type: ignore[misc]
    offsets = [w.result().result(LIMIT_S).offset for w in waiting]
    assert offsets[0::2] == sorted(offsets[0::2])
    assert offsets[1::2] == sorted(offsets[1::2])
    assert not line
    for producer in producers:
        producer.close()


class Taker:
    """Stands for a producer: what it has free, and whether it was told to hurry."""

    def __init__(self, own: int = 100) -> None:
        self.own_available = self.available = own
        self.pressed = False

    def press(self) -> None:
        self.pressed = True

    def drop_failures(self, place: Any) -> bool:
        return bool(place.driver.available >= place.size)


def test_the_line_serves_the_first_and_lets_nobody_be_blocked_by_anothers_own_limit(run: Runner) -> None:
    memory = ProducerMemory(resolve_handler(run.name))
    full, first, second = Taker(own=0), Taker(), Taker()
    drivers: list[Any] = [full, first, second]
    for driver, share in zip(drivers, (100, 300, 200), strict=True):
        memory.join(driver, share)
    assert memory.budget.limit == 300
    places = [memory.stand_in_line(driver, 10) for driver in (drivers[0], drivers[1], drivers[2], drivers[1])]
    assert all(driver.pressed for driver in drivers)
    assert [memory.may_try(place) for place in places] == [True, True, False, False]
    memory.give_room()
    assert [place.event.is_set() for place in places] == [True, True, False, False]
    memory.step_out(places[1])
    assert [memory.may_try(place) for place in (places[0], *places[2:])] == [True, True, False]
    assert places[2].event.is_set()
    assert not places[3].event.is_set()
    for place in (places[0], *places[2:]):
        memory.step_out(place)
    assert not memory.contended
    memory.leave(drivers[1])
    assert memory.budget.limit == 200


def test_a_place_whose_caller_was_interrupted_is_in_nobodys_way(run: Runner) -> None:
    """A signal handler's exception may come between any two steps of taking a place and leaving it: only the caller holds it."""
    memory = ProducerMemory(resolve_handler(run.name))
    driver: Any = Taker()
    memory.join(driver, 100)
    lost, behind = memory.stand_in_line(driver, 10), memory.stand_in_line(driver, 10)
    assert not memory.may_try(behind)
    del lost
    assert memory.may_try(behind)
    del behind
    assert driver.pressed
    assert not memory.contended


def test_one_that_fills_its_own_small_buffer_is_in_nobodys_way(connect: Any, make_cluster: Any, run: Runner) -> None:
    cluster = make_cluster(topics={"t": 1, "free": 1})
    client = ready(connect, cluster)
    assert client.topics["free"] is not None
    small = client.get_producer(**SMALL)
    large = client.get_producer(**{**SMALL, "buffer_bytes": 400_000, "linger_ms": 60_000})
    cluster.on("Produce", Delay(60), times=None)
    for _ in range(4):
        small.produce("t", b"x" * 9000)
    blocked = run.aside(small.produce, "t", b"x" * 9000)
    run.until(lambda: client._cluster.memory.contended)
    for _ in range(10):
        large.produce("free", b"y" * 9000)
    assert blocked.running
    assert len(error_of(small.close, 0).records) == 4  # type: ignore[attr-defined]
    with pytest.raises(ProducerStoppedException):
        blocked.result()
    assert len(error_of(large.close, 0).records) == 10  # type: ignore[attr-defined]


def test_memory_of_failed_records_is_given_to_others_who_need_it(connect: Any, make_cluster: Any) -> None:
    cluster = make_cluster()
    client = ready(connect, cluster)
    failing, other = (client.get_producer(max_block_ms=20_000, **SMALL) for _ in range(2))
    cluster.on("Produce", Error(29), times=4)
    for _ in range(4):
        failing.produce("t", b"x" * 9000).exception(LIMIT_S)
    assert all(other.produce("t", b"y" * 9000).result(LIMIT_S).offset >= 0 for _ in range(4))
    error = error_of(failing.close)
    assert isinstance(error, DeliveryError)
    assert error.unlisted == 0
    assert [entry.record.value for entry in error.records] == [b"x" * 9000] * 4


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_of_what_fails_as_much_is_listed_as_there_is_room_for(
    connect: Any, make_cluster: Any, codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest; the rest, whose deliveries have told, is counted."""
    monkeypatch.setattr("gkafka.producermemory.KEPT_BYTES", 40_000)
    cluster = make_cluster()
    client = ready(connect, cluster)
    producer = client.get_producer(compression=codec, max_block_ms=20_000, **SMALL)
    cluster.on("Produce", Error(29), times=None)
    values = [Random(i).randbytes(9000) for i in range(20)]
    for i, value in enumerate(values):
        producer.produce("t", value, timestamp=1000 + i).exception(LIMIT_S)
    error = error_of(producer.close)
    assert isinstance(error, DeliveryError)
    assert "only logged: more failed than there is room for" in str(error)
    listed = len(error.records)
    assert (listed, error.unlisted) == (4, 16)
    assert [(r.record.value, r.record.timestamp) for r in error.records] == [(values[i], 1000 + i) for i in range(20 - listed, 20)]
    copied = pickle.loads(pickle.dumps(error))
    assert (copied.unlisted, len(copied.records)) == (error.unlisted, listed)


@pytest.fixture
def failing(connect: Any, make_cluster: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A client whose topic takes nothing, and that keeps four failed records of 9,000 bytes."""
    monkeypatch.setattr("gkafka.producermemory.KEPT_BYTES", 40_000)
    cluster = make_cluster()
    client = ready(connect, cluster)
    cluster.on("Produce", Error(29), times=None)
    return client


def fail(producer: Any, count: int) -> None:
    """So many records, one after the other; the timestamps number them."""
    for i in range(count):
        producer.produce("t", b"x" * 9000, timestamp=i).exception(LIMIT_S)


def told(call: Any) -> tuple[list[int], int]:
    """What the call's error lists, and how many it only counts."""
    error = error_of(call)
    assert isinstance(error, DeliveryError)
    return [entry.record.timestamp for entry in error.records], error.unlisted


def test_a_client_that_closes_counts_what_its_producers_could_not_list(failing: Any) -> None:
    for producer in [failing.get_producer(max_block_ms=20_000, **SMALL) for _ in range(3)]:
        fail(producer, 20)
    assert told(failing.close) == ([16, 17, 18, 19], 56), "of all producers the newest are kept"


def test_the_newest_failures_are_kept_whichever_producer_has_older_ones(failing: Any) -> None:
    old, new = (failing.get_producer(max_block_ms=20_000, **SMALL) for _ in range(2))
    fail(old, 6)
    fail(new, 3)
    assert [told(old.flush), told(new.flush)] == [([5], 5), ([0, 1, 2], 0)]
    fail(old, 4)  # what was told of makes room
    assert told(old.close) == ([0, 1, 2, 3], 0)
    fail(new, 4)
    assert told(new.close) == ([0, 1, 2, 3], 0), "what a producer held that was closed is not counted any more"


def test_a_producer_that_is_gone_keeps_no_room_for_what_it_did_not_tell(failing: Any, run: Runner) -> None:
    gone = failing.get_producer(max_block_ms=20_000, **SMALL)
    fail(gone, 4)
    there = weakref.ref(gone._driver.failures)
    del gone
    run.until(lambda: gc.collect() is not None and there() is None)
    other = failing.get_producer(max_block_ms=20_000, **SMALL)
    fail(other, 4)
    assert told(other.close) == ([0, 1, 2, 3], 0)


def test_what_failed_is_nothing_to_wait_behind(connect: Any, make_cluster: Any) -> None:
    """A producer that is never flushed goes on at its speed after an outage: what is untold is not ahead of the brokers."""
    cluster = make_cluster()
    client = ready(connect, cluster)
    producer = client.get_producer(linger_ms=0)
    cluster.on("Produce", Error(29), times=60)
    for _ in range(60):
        producer.produce("t", b"x" * 100_000).exception(LIMIT_S)
    assert producer.stats()["buffer_bytes_free"] == producer.config.buffer_bytes
    assert not producer._driver.pace.is_ahead()
    assert len(error_of(producer.close).records) == 60  # type: ignore[attr-defined]


def test_batches_that_wait_for_their_records_hold_nobody_back(connect: Any, make_cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are no more than there are partitions. A rest for each that is begun made writing to 200 partitions up to fifty times as slow."""
    cluster = make_cluster(topics={"t": 100})
    client = ready(connect, cluster)
    producer = client.get_producer(linger_ms=60_000, delivery_timeout_ms=120_000)
    producer.produce("t", b"x", partition=0).result(LIMIT_S)  # brokers answer
    rests: list[float] = []
    monkeypatch.setattr(client.handler, "sleep", rests.append)
    for _ in range(2):
        for partition in range(100):
            producer.produce("t", b"x" * 60_000, partition=partition)
    assert producer.stats()["unsettled_records"] == 200, "all of them wait in open batches"
    assert rests == []
    monkeypatch.undo()
    producer.flush(LIMIT_S)


def test_failures_are_listed_in_their_order_whatever_callbacks_hold(connect: Any, make_cluster: Any, run: Runner) -> None:
    cluster = make_cluster()
    client = ready(connect, cluster)
    producer = client.get_producer(max_block_ms=20_000, **SMALL)
    cluster.on("Produce", Error(29), times=None)
    begun, go_on = client.handler.Event(), client.handler.Event()
    seen: list[Any] = []

    def look(delivery: Any) -> None:
        begun.set()
        go_on.wait(LIMIT_S)
        seen.append(delivery.record.timestamp)

    deliveries = [producer.produce("t", b"x" * 9000, timestamp=0)]
    deliveries[0].add_done_callback(look)
    assert begun.wait(LIMIT_S)
    for i in range(1, 10):
        producer.produce("t", b"x" * 9000, timestamp=i).exception(LIMIT_S)
    error = error_of(producer.flush, 0.2)
    go_on.set()
    assert isinstance(error, DeliveryError)
    run.until(lambda: seen == [0])
    assert [r.record.timestamp for r in error.records] == list(range(10))
    run.until(lambda: producer.stats()["buffer_bytes_free"] == SMALL["buffer_bytes"])


@pytest.mark.parametrize("call", ["flush", "close"])
@pytest.mark.parametrize("kept", [32 << 20, 0])
def test_failures_that_all_left_the_buffer_are_told_to_who_asks(
    connect: Any, make_cluster: Any, call: str, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That there is no room for any of them is no reason to say nothing."""
    monkeypatch.setattr("gkafka.producermemory.KEPT_BYTES", kept)
    cluster = make_cluster()
    client = ready(connect, cluster)
    failing, other = (client.get_producer(max_block_ms=20_000, **SMALL) for _ in range(2))
    cluster.on("Produce", Error(29))
    failing.produce("t", b"x" * 9000).exception(LIMIT_S)
    cluster.on("Produce", Delay(0.3), times=None)  # meanwhile there is no other room than what failed
    for _ in range(4):
        other.produce("t", b"y" * 9000)
    error = error_of(getattr(failing, call))
    assert isinstance(error, DeliveryError)
    listed = [b"x" * 9000] if kept else []
    assert ([entry.record.value for entry in error.records], error.unlisted) == (listed, 1 - len(listed))
    assert f"1 record(s) were not delivered{'' if kept else ' (1 of them only logged: more failed than there is room for)'}" in str(error)
    assert isinstance(error.__cause__, TopicAuthorizationFailed)
    failing.flush(LIMIT_S)
    other.flush(LIMIT_S)
