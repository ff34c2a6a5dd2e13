"""Steps that belong together stay together, whichever worker gets the interpreter in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gkafka import KafkaClient, ProducerInterceptor
from gkafka.net.completions import Completions
from gkafka.testing import Close, MockCluster
from tests.kit.clock import during, now
from tests.public.aids import LIMIT_S, Runner, error_of, stored_values


@pytest.mark.parametrize("second_answer_is_lost", [False, True])
def test_nothing_newer_goes_out_before_all_that_a_connection_lost_was_told(
    client: KafkaClient, cluster: MockCluster, run: Runner, monkeypatch: Any, second_answer_is_lost: bool
) -> None:
    """Else it lands before them: a broker takes any sequence number from a producer that it does not know."""
    fail_each = Completions.fail_each
    refused: list[str] = []
    (broker,) = client.brokers.values()

    def slowly(self: Completions, failed: Any) -> None:
        channel = broker._channels.get("produce")
        if failed and channel is not None and channel._completions is self:
            refused.append(str(error_of(broker.channel, "produce")))
            assert broker.ready_at > began
            run.sleep(0.1)
        fail_each(self, failed)

    monkeypatch.setattr(Completions, "fail_each", slowly)
    producer, began = client.get_producer(linger_ms=0), now()
    cluster.on("Produce", Close(before=True))
    if second_answer_is_lost:
        cluster.on("Produce", Close(before=False))
    first = producer.produce("t", b"first", partition=0)
    run.until(lambda: cluster.requests("Produce"))
    run.sleep(0.02)
    second = producer.produce("t", b"second", partition=0)
    assert (first.result(LIMIT_S).offset, second.result(LIMIT_S).offset) == (0, 1)
    assert stored_values(cluster) == [b"first", b"second"]
    assert refused
    assert all("being given up" in text for text in refused)


@pytest.mark.parametrize("call", ["flush", "close"])
def test_a_callback_of_a_record_that_is_done_is_called_although_the_producer_is_closed_at_that_moment(
    client: KafkaClient, run: Runner, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """A batch is done, and then its callbacks go to their worker: that one does not end in between."""
    producer, called, entered = client.get_producer(linger_ms=60_000), [], []
    producer.produce("t", b"0").add_done_callback(called.append)
    producer.send_now()
    run.until(lambda: called)
    hand_over = producer._driver.callbacks.add

    def slowly(*about: Any) -> None:
        entered.append(about)
        run.sleep(0.2)
        hand_over(*about)

    monkeypatch.setattr(producer._driver.callbacks, "add", slowly)
    producer.produce("t", b"1").add_done_callback(called.append)
    producer.send_now()
    run.until(lambda: entered)
    getattr(producer, call)(LIMIT_S)
    run.until(lambda: len(called) == 2)


def nothing() -> None: ...


class Watched:
    """A lock that calls `before` just before each release, and `after` just after it."""

    def __init__(self, lock: Any, *, before: Callable[[], None] = nothing, after: Callable[[], None] = nothing) -> None:
        self._lock, self._before, self._after = lock, before, after

    def __enter__(self) -> Any:
        return self._lock.__enter__()

    def __exit__(self, *about: Any) -> None:
        self._before()
        self._lock.__exit__(*about)
        self._after()


@pytest.mark.parametrize("what", ["on_delivery", "interceptors"])
def test_what_is_called_for_each_record_is_there_before_it_can_be_delivered(client: KafkaClient, run: Runner, what: str) -> None:
    """Else it would be called in the caller, and find the record's memory given back."""
    seen: list[Any] = []

    class Noting(ProducerInterceptor):
        def on_acknowledgement(self, delivery: Any) -> None:
            seen.append((delivery.record, handler.current_id()))

    def on_delivery(delivery: Any) -> None:
        seen.append((delivery.record, handler.current_id()))

    handler = client.handler
    me = handler.current_id()
    producer = client.get_producer(linger_ms=0, **({"on_delivery": on_delivery} if what == "on_delivery" else {"interceptors": [Noting()]}))
    driver: Any = producer._driver

    def send_at_once(due: float = 0.0) -> None:
        """The caller is slow and the producer's worker is not."""
        before = driver.results.settled_records
        driver.worker.signal.set()
        for _ in during(0.1, pause=0):
            if handler.current_id() != me or driver.results.settled_records != before:
                return
            run.sleep(0.002)

    producer.produce("t", b"first")
    producer.flush(LIMIT_S)
    driver.worker.wake = send_at_once
    for i in range(3):
        producer.produce("t", b"%d" % i)
    producer.flush(LIMIT_S)
    assert [record.value for record, _ in seen] == [b"first", b"0", b"1", b"2"]
    assert me not in [worker for _, worker in seen]


def test_nobody_sees_a_batch_before_its_first_record_is_in_it(connect: Any, make_cluster: Any) -> None:
    """The worker may send what it sees, and an empty batch cannot be sent."""
    producer = connect(make_cluster(topics={"t": 2})).get_producer(linger_ms=0)
    accumulator, empty, looks = producer._driver.accumulator, [], []

    def look() -> None:
        looks.append(len(accumulator.open))
        empty.extend(batch for batch in accumulator.open.values() if not batch.count)

    producer._driver.lock = Watched(producer._driver.lock, before=look)
    for i in range(20):
        producer.produce("t", b"%d" % i, partition=i % 2)
    producer.flush(LIMIT_S)
    assert any(looks)
    assert not empty


@pytest.mark.parametrize("closes", ["first", "second"])
def test_a_connection_goes_on_when_the_producer_closes_whose_worker_reads_it(
    client: KafkaClient, cluster: MockCluster, closes: str
) -> None:
    first, second = client.get_producer(), client.get_producer()
    for producer in (first, second, first, second):
        producer.produce("t", b"a").result(LIMIT_S)
    gone, there = (first, second) if closes == "first" else (second, first)
    gone.close()
    watched = there._driver.worker.watched
    assert watched is None or len(watched._by_fd) == 1, "where a worker reads connections it is one of theirs"
    for _ in range(3):
        there.produce("t", b"b").result(LIMIT_S)
    (broker,) = client.brokers.values()
    cluster.on("Produce", Close(before=True))  # and what it read is read on a new one
    there.produce("t", b"c").result(LIMIT_S)
    assert broker.has_channel("produce")
    assert stored_values(cluster) == [b"a"] * 4 + [b"b"] * 3 + [b"c"]


class NoDescriptors:
    """An alarm in a process that has no descriptor left."""

    def __init__(self, alarm: Any) -> None:
        self._alarm = alarm

    def watch(self, fd: int) -> None:
        raise OSError(24, "Too many open files")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._alarm, name)


def test_a_connection_that_cannot_be_watched_has_a_reader_of_its_own(
    connect: Any, cluster: MockCluster, caplog: pytest.LogCaptureFixture
) -> None:
    producer = connect(cluster, handler="threading").get_producer()
    watched = producer._driver.worker.watched
    if watched is None:
        pytest.skip("each connection has a reader here")
    watched.alarm = NoDescriptors(watched.alarm)
    for n in range(3):
        assert producer.produce("t", b"x").result(LIMIT_S).offset == n
    assert watched._by_fd == {}
    assert "has a reader of its own: [Errno 24] Too many open files" in caplog.text
