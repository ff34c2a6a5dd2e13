"""A batch that cannot be made ready to send fails alone, whatever the codec raised, and the producer goes on."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.exceptions import DeliveryError, KafkaException, ProduceFailureError
from gkafka.records import compression
from gkafka.testing import Error, MockCluster
from tests.public.aids import LIMIT_S, Runner, error_of, stored_values


class OddError(Exception):
    """What no codec's documentation mentions."""


class Alarm(Exception):
    """What a signal handler of the program raises, as Celery's soft time limit does."""


@contextlib.contextmanager
def compressing(monkeypatch: pytest.MonkeyPatch, instead: Callable[[bytes], None]) -> Iterator[None]:
    """instead is called with what is to be compressed; it may raise."""
    real = compression.compress

    def compress(codec: int, data: Any, level: int | None = None) -> bytes:
        instead(bytes(data))
        return real(codec, data, level)

    with monkeypatch.context() as patch:
        for name in {"gkafka.records._pure_batch", "gkafka.records._speed"} & set(sys.modules):
            patch.setattr(sys.modules[name], "compress", compress)
        yield


@pytest.mark.parametrize("odd", [MemoryError("no memory"), OddError("odd"), ValueError()])
@pytest.mark.parametrize("idempotent", [True, False])
def test_a_batch_that_cannot_be_sealed_fails_alone(
    client: KafkaClient, cluster: MockCluster, monkeypatch: pytest.MonkeyPatch, odd: Exception, idempotent: bool
) -> None:
    producer = client.get_producer(compression="gzip", linger_ms=0, enable_idempotence=idempotent)

    def fail_bad(data: bytes) -> None:
        if b"bad" in data:
            raise odd

    with compressing(monkeypatch, fail_bad):
        assert producer.produce("t", b"good 0").result(LIMIT_S).offset == 0
        bad = producer.produce("t", b"bad")
        error = bad.exception(LIMIT_S)
        assert producer.produce("t", b"good 1").result(LIMIT_S).offset == 1
    assert isinstance(error, ProduceFailureError)
    assert error.__cause__ is odd
    assert error.persisted == "no"
    assert f"t-0: 1 record(s) could not be made ready to send (compression=gzip): {type(odd).__name__}" in str(error)
    assert "produce them again" in str(error)
    told: Any = error_of(producer.close)
    assert isinstance(told, DeliveryError)
    assert [entry.record.value for entry in told.records] == [b"bad"]
    assert stored_values(cluster) == [b"good 0", b"good 1"]


def test_of_a_request_the_batches_that_can_be_sealed_are_sent(
    connect: Any, make_cluster: Any, monkeypatch: pytest.MonkeyPatch, run: Runner
) -> None:
    cluster = make_cluster(topics={"t": 4})
    client = connect(cluster)
    producer = client.get_producer(compression="gzip", linger_ms=50)

    def fail_bad(data: bytes) -> None:
        if b"bad" in data:
            raise OddError

    with compressing(monkeypatch, fail_bad):
        deliveries = [producer.produce("t", b"bad" if p == 2 else b"good", partition=p) for p in range(4)]
        assert [type(d.exception(LIMIT_S)) for d in deliveries] == [type(None), type(None), ProduceFailureError, type(None)]
    assert isinstance(error_of(producer.close), DeliveryError)


@pytest.mark.parametrize("callable_object", [False, True])
def test_what_a_signal_handler_raises_while_a_batch_is_sealed_is_no_failure_of_the_batch(
    client: KafkaClient, cluster: MockCluster, monkeypatch: pytest.MonkeyPatch, run: Runner, callable_object: bool
) -> None:
    if run.gevent:
        pytest.skip("there the producer's worker seals")

    def strike(*_: Any) -> None:
        raise Alarm

    class Striker:
        def __call__(self, *_: Any) -> None:
            raise Alarm

    struck: list[bytes] = []

    def hit_once(data: bytes) -> None:
        if b"hit" in data and not struck:
            struck.append(data)
            signal.raise_signal(signal.SIGUSR2)

    producer = client.get_producer(compression="gzip", batch_bytes=500, linger_ms=60_000)
    producer.produce("t", b"first").result(LIMIT_S)
    before = signal.signal(signal.SIGUSR2, Striker() if callable_object else strike)
    accepted = []

    def fill() -> None:
        while len(accepted) < 100_000:  # the worker seals: this thread hears of it a moment later
            accepted.append(producer.produce("t", b"hit" * 30))

    try:
        with compressing(monkeypatch, hit_once), pytest.raises(Alarm):
            fill()
    finally:
        signal.signal(signal.SIGUSR2, before)
    producer.flush(LIMIT_S)
    assert all(d.exception(0) is None for d in accepted)
    assert len(accepted) <= len(stored_values(cluster)) - 1 <= len(accepted) + 1, "that of the call that was ended may be there, too"


def test_an_error_of_ours_says_itself_why(client: KafkaClient, monkeypatch: pytest.MonkeyPatch) -> None:
    class OursError(KafkaException):
        pass

    def fail(data: bytes) -> None:
        if data:
            raise OursError("why")

    producer = client.get_producer(compression="gzip", linger_ms=0)
    with compressing(monkeypatch, fail):
        error = producer.produce("t", b"x").exception(LIMIT_S)
    assert isinstance(error, OursError)
    error_of(producer.close)


def test_a_retry_is_the_same_bytes_in_the_same_memory(client: KafkaClient, cluster: MockCluster) -> None:
    """A batch that is stamped while its bytes are looked at takes memory once more, beyond buffer_bytes."""
    producer: Any = client.get_producer(linger_ms=60_000, retry_backoff_ms=1)
    delivery, seen = producer.produce("t", b"x"), []

    def look(request: Any) -> bool:
        seen.append(delivery.batch.wire)
        return True

    cluster.on("Produce", Error(7), times=3, when=look)
    producer.flush(LIMIT_S)
    assert len(seen) == 3
    assert all(view.obj is seen[0].obj for view in seen)
