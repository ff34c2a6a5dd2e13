"""What is no Exception, raised in a worker that is an OS thread, as `PyThreadState_SetAsyncExc` does: another worker goes on, and each record is there once."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable
from random import Random
from types import FrameType
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.exceptions import ProduceFailureError
from gkafka.net.buffers import FrameReader
from gkafka.net.inbox import Inbox
from gkafka.net.reader import Reader
from gkafka.producerdriver import ProducerDriver
from gkafka.testing import MockCluster
from tests.effort import seeds
from tests.kit.clock import now
from tests.public.aids import LIMIT_S, stored
from tests.public.test_interrupted import PARTITIONS, Gun, Shot

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
    cluster: MockCluster = make_cluster(topics={"t": 1})
    hits = hit_once(kind, method, Shot(), monkeypatch)
    caplog.set_level("INFO", "gkafka.producerdriver")
    with KafkaClient(cluster.bootstrap, handler="threading", reconnect_backoff_ms=1) as client:
        producer: Any = client.get_producer()
        values = [b"%d" % n for n in range(20)]
        begun = now()
        for value in values:
            assert producer.produce("t", value, partition=0).result(LIMIT_S).offset >= 0
        assert now() - begun < 25, "an answer was waited for that nobody reads"
        if not hits and method in ("read", "answer"):
            pytest.skip("connections have readers of their own here")
        assert hits
        assert producer.stats()["restarts"] == 1
    assert "Shot interrupted one of its workers" in caplog.text
    assert [record.value for record in stored(cluster)] == values


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
            assert [text.split(" ")[0] for text in ends if "-produce-" in text] == [end]


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
