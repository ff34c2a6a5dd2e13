"""What is no Exception, raised in a worker that is an OS thread, as `PyThreadState_SetAsyncExc` does: another worker goes on, and each record is there once."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import Counter, deque
from collections.abc import Callable
from random import Random
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from gkafka import KafkaClient, records
from gkafka.callbacks import Callbacks
from gkafka.core.accumulator import Accumulator, PartitionQueue
from gkafka.exceptions import DeliveryError, ProduceFailureError
from gkafka.membership import Member
from gkafka.net.buffers import FrameReader
from gkafka.net.inbox import Inbox
from gkafka.net.reader import Reader
from gkafka.producerdriver import ProducerDriver
from gkafka.sharing import Share
from gkafka.testing import Drop, MockCluster
from tests.effort import seeds
from tests.kit.clock import during, now
from tests.public.aids import LIMIT_S, Aside, Runner, stored
from tests.public.test_interrupted import PARTITIONS, Gun, Shot
from tests.records.write_helpers import fill, some_rows

LIVES = 3


class WorkersGun(Gun):
    """Shoots at the producer's worker, but not inside the handler of concurrency."""

    def _line(self, frame: FrameType, event: str, arg: Any) -> Any:
        inside = os.sep + "handlers" + os.sep in frame.f_code.co_filename
        return self._line if inside or not on_worker() else super()._line(frame, event, arg)


def on_worker() -> bool:
    return threading.current_thread().name == "gkafka-producer"


def hit_once(kind: type, method: str, error: BaseException, patch: pytest.MonkeyPatch, calls: int = 3) -> list[str]:
    """Raise the error behind the worker's call of the method number `calls`. Returns the names of the workers that were hit."""
    whole: Callable[..., Any] = getattr(kind, method)
    hits: list[str] = []
    left = calls

    def under_fire(*args: Any) -> Any:
        nonlocal left
        found = whole(*args)
        if on_worker():
            left -= 1
            if left == 0:
                hits.append(threading.current_thread().name)
                raise error
        return found

    patch.setattr(kind, method, under_fire)
    return hits


@pytest.mark.parametrize(
    ("kind", "method"),
    [(ProducerDriver, "turn"), (ProducerDriver, "_send"), (FrameReader, "read"), (Inbox, "answer"), (ProducerDriver, "finish")],
)
def test_a_worker_that_is_hit_begins_anew_and_delivers_everything_once(
    make_cluster: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: type, method: str
) -> None:
    hits = hit_once(kind, method, Shot(), monkeypatch)
    caplog.set_level("INFO", "gkafka.producerdriver")
    values = [b"%d" % n for n in range(20)]
    for _ in during(LIMIT_S):  # a connection that is open before its worker begins has a reader of its own
        cluster: MockCluster = make_cluster(topics={"t": 1})
        with KafkaClient(cluster.bootstrap, handler="threading", reconnect_backoff_ms=1) as client:
            producer: Any = client.get_producer()
            begun = now()
            for value in values:
                assert producer.produce("t", value, partition=0).result(LIMIT_S).offset >= 0
            assert now() - begun < 25, "an answer was waited for that nobody reads"
            restarts = producer.stats()["restarts"]
            if producer._driver.worker.watched is None and not hits:
                pytest.skip("connections have readers of their own here")
        assert [record.value for record in stored(cluster)] == values
        if hits:
            break
    assert (len(hits), restarts) == (1, 1)
    assert "Shot interrupted one of its workers" in caplog.text


@pytest.mark.parametrize(
    ("kind", "method"), [(Member, "turn"), (Member, "_drive"), (Share, "_place"), (Share, "look_after")], ids=lambda about: str(about)
)
def test_a_member_whose_worker_is_hit_stays_one_and_commits(
    make_cluster: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: type, method: str
) -> None:
    whole: Callable[..., Any] = getattr(kind, method)
    hits: list[str] = []

    def under_fire(*args: Any) -> Any:
        found = whole(*args)
        if not hits and threading.current_thread() is not threading.main_thread():
            hits.append(threading.current_thread().name)
            raise Shot
        return found

    monkeypatch.setattr(kind, method, under_fire)
    cluster: MockCluster = make_cluster(topics={"t": 2})
    with KafkaClient(cluster.bootstrap, handler="threading", reconnect_backoff_ms=1) as client:
        read = 0
        begun = now()
        with client.get_producer() as producer:
            for n in range(10):
                producer.produce("t", b"%d" % n, partition=n % 2)
        with client.get_consumer("t", "g", auto_offset_reset="earliest", heartbeat_interval_ms=20) as consumer:
            while read < 10 or not hits:
                assert now() - begun < LIMIT_S
                read += len(consumer.consume_batch(10, 50))
            consumer.commit()
            assert consumer.stats()["group"]["losses"] == 0
    assert read == 10
    assert {p: entry.offset for (_, p), entry in cluster.committed("g").items()} == {0: 5, 1: 5}
    assert len(hits) == 1
    assert not [line for line in caplog.records if line.levelname in ("ERROR", "CRITICAL")], caplog.text


def test_the_connections_of_a_worker_that_is_hit_end_and_those_of_one_that_fails_are_read_on(
    make_cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frame may be half read: nobody else may read behind it."""
    ends: list[str] = []
    for name in ("cut_short", "read_on"):
        whole: Callable[..., None] = getattr(Reader, name)
        monkeypatch.setattr(
            Reader, name, lambda reader, *args, whole=whole, name=name: ends.append(f"{name} {reader._name}") or whole(reader, *args)
        )
    for error, end in ((Shot(), "cut_short"), (ValueError("a bug"), "read_on")):
        ends.clear()
        cluster: MockCluster = make_cluster(topics={"t": 1})
        with KafkaClient(cluster.bootstrap, handler="threading", reconnect_backoff_ms=1) as client, monkeypatch.context() as patch:
            producer: Any = client.get_producer()
            producer.produce("t", b"1").result(LIMIT_S)
            if producer._driver.worker.watched is None:
                pytest.skip("connections have readers of their own here")
            hit_once(ProducerDriver, "_send", error, patch, 1)
            delivery = producer.produce("t", b"2")
            failed = delivery.exception(LIMIT_S)
            assert failed is None or isinstance(failed, ProduceFailureError)  # the answer may come before the producer has ended
            assert failed is None or end == "read_on"
            Runner("threading").until(lambda: any("-produce-" in text for text in ends), LIMIT_S)
            assert [text.split(" ")[0] for text in ends if "-produce-" in text] == [end]
            with contextlib.suppress(DeliveryError):
                producer.close(LIMIT_S)


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize(
    ("kind", "method", "lines"), [(ProducerDriver, "turn", 400), (Inbox, "answer", 150), (ProducerDriver, "finish", 60)]
)
def test_a_worker_may_be_hit_at_any_line(
    make_cluster: Any, monkeypatch: pytest.MonkeyPatch, seed: int, kind: type, method: str, lines: int
) -> None:
    cluster: MockCluster = make_cluster(topics={"t": PARTITIONS})
    whole: Callable[..., Any] = getattr(kind, method)
    gun, chance = WorkersGun(), Random(seed)

    def under_fire(*args: Any) -> Any:
        if on_worker() and chance.random() < 0.3:
            with gun.aimed(chance.randrange(1, lines)):
                return whole(*args)
        return whole(*args)

    monkeypatch.setattr(kind, method, under_fire)
    for number in range(20 * LIVES):
        if number >= LIVES and len(set(gun.shots)) >= LIVES:
            break
        live(cluster, gun, number)
        if number == LIVES and not gun.shots and method == "answer":
            pytest.skip("connections have readers of their own here")
    assert len(set(gun.shots)) >= LIVES, gun.shots


def hit_late(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Return two Events: after the first the producer's worker takes no turn; after the second it is hit once, and goes on."""
    whole, held, hit = ProducerDriver.turn, threading.Event(), threading.Event()

    def late(driver: ProducerDriver) -> float | None:
        if held.is_set():
            assert hit.wait(LIMIT_S)
            held.clear()
            raise Shot
        return whole(driver)

    monkeypatch.setattr(ProducerDriver, "turn", late)
    return held, hit


def test_batches_that_a_hit_worker_had_no_notice_of_keep_their_order(make_cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some were full already, the newest is open: they are sent in this order."""
    cluster: MockCluster = make_cluster(topics={"t": 1})
    held, hit = hit_late(monkeypatch)
    values = [b"%d" % n + b"." * 60 for n in range(40)]
    with KafkaClient(cluster.bootstrap, handler="threading") as client:
        producer: Any = client.get_producer(linger_ms=1000, batch_bytes=512)
        producer.produce("t", b"first", partition=0).result(LIMIT_S)
        held.set()
        for value in values:
            producer.produce("t", value, partition=0)
        hit.set()
        producer.flush(LIMIT_S)
        assert producer.stats()["restarts"] == 1
    assert [record.value for record in stored(cluster)] == [b"first", *values]


def test_a_worker_that_is_hit_while_it_begins_anew_forgets_no_batch(make_cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster: MockCluster = make_cluster(topics={"t": PARTITIONS})
    held, hit = hit_late(monkeypatch)
    with KafkaClient(cluster.bootstrap, handler="threading") as client:
        producer: Any = client.get_producer(linger_ms=60_000)
        producer.produce("t", b"first", partition=0)
        producer.flush(LIMIT_S)
        cluster.on("Produce", Drop(), times=PARTITIONS)  # at most one request for each
        deliveries = [producer.produce("t", b"%d" % n, partition=n % PARTITIONS) for n in range(30)]
        aside = Aside(False, producer.flush, (LIMIT_S,))
        driver = producer._driver
        Runner("threading").until(lambda: sum(len(r.outgoing.batches) for r in driver.in_flight.requests) == PARTITIONS, LIMIT_S)
        held.set()
        cluster.clear_script()
        hits = hit_once(PartitionQueue, "put_back", Shot(), monkeypatch, calls=1)
        hit.set()
        driver.worker.wake()
        aside.result()
        assert hits
        assert producer.stats()["restarts"] == 2
        assert all(delivery.result(0).offset >= 0 for delivery in deliveries)
    counts = Counter(record.value for record in stored(cluster, partitions=range(PARTITIONS)))
    assert counts == dict.fromkeys((b"first", *(b"%d" % n for n in range(30))), 1)


def test_a_worker_that_cannot_begin_anew_fails_everything_at_once(make_cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster: MockCluster = make_cluster(topics={"t": 1})
    held, hit = hit_late(monkeypatch)
    with KafkaClient(cluster.bootstrap, handler="threading") as client:
        producer: Any = client.get_producer()
        producer.produce("t", b"first", partition=0).result(LIMIT_S)
        held.set()
        delivery = producer.produce("t", b"1", partition=0)
        restart, left = Accumulator.restart, [ValueError("a bug")]

        def failing(accumulator: Accumulator, batches: Any) -> None:
            if left:
                raise left.pop()
            restart(accumulator, batches)

        monkeypatch.setattr(Accumulator, "restart", failing)
        hit.set()
        assert isinstance(delivery.exception(LIMIT_S), ProduceFailureError)
        with pytest.raises(DeliveryError):
            producer.close(LIMIT_S)


def test_a_broker_whose_connection_was_cut_short_does_not_rest(make_cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has done nothing wrong."""
    cluster: MockCluster = make_cluster(topics={"t": 1})
    hits = hit_once(ProducerDriver, "_send", Shot(), monkeypatch)
    with KafkaClient(cluster.bootstrap, handler="threading", reconnect_backoff_ms=50_000, reconnect_backoff_max_ms=50_000) as client:
        producer: Any = client.get_producer()
        begun = now()
        for n in range(5):
            producer.produce("t", b"%d" % n, partition=0).result(LIMIT_S)
        assert now() - begun < 25
    assert hits


def live(cluster: MockCluster, gun: Gun, number: int) -> None:
    first = len(gun.shots)
    client = KafkaClient(cluster.bootstrap, handler="threading", reconnect_backoff_ms=1)
    producer: Any = client.get_producer(linger_ms=1, batch_bytes=512, max_request_bytes=4096, retry_backoff_ms=1)
    values = [b"%d-%d" % (number, n) + b"." * 60 for n in range(90)]
    deliveries = []
    for n, value in enumerate(values):
        deliveries.append(producer.produce("t", value, partition=n % PARTITIONS))
        if n % 30 == 29:
            begun = now()
            producer.flush(LIMIT_S)
            assert now() - begun < 25, f"after {gun.shots[first:]}"
    assert all(delivery.result(0).offset >= 0 for delivery in deliveries)
    begun = now()
    client.close(LIMIT_S)
    assert now() - begun < 25, f"after {gun.shots[first:]}"
    counts = Counter(record.value for record in stored(cluster, partitions=range(PARTITIONS)))
    assert all(counts[value] == 1 for value in values), gun.shots[first:]
    assert producer._driver.own_available == producer.config.buffer_bytes, gun.shots[first:]
    assert not [worker for worker in client.handler.workers() if worker.is_alive()]


@pytest.mark.parametrize("calls", [1, 2, 4])
def test_a_signal_that_comes_behind_a_run_of_callbacks_drops_none(monkeypatch: pytest.MonkeyPatch, calls: int) -> None:
    """A run may end before all were called, as others want their turn: the next one was not begun."""
    called: list[int] = []
    whole, left = records.call_back, [calls]

    def behind(*args: Any) -> None:
        whole(*args)
        left[0] -= 1
        if left[0] == 0:
            raise Shot

    monkeypatch.setattr(records, "call_back", behind)
    monkeypatch.setattr("gkafka.callbacks.TURN_S", 0.0)
    handler = SimpleNamespace(cooperative=True, interrupted=lambda error: True, monotonic=now, checkpoint=lambda: None)
    worker: Any = SimpleNamespace(_handler=handler)
    batch = fill(records, some_rows(4))
    due: Any = deque((index, lambda delivery: called.append(delivery.index)) for index in range(4))
    with pytest.raises(Shot):
        Callbacks._run(worker, batch, due)
    assert called == list(range(calls))
    Callbacks._run(worker, batch, due)
    assert (called, list(due)) == ([0, 1, 2, 3], [])
