"""close() of a client that is cut short, or called twice at once, or with what is no time: no accepted record is lost in silence."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from gkafka import KafkaClient, flushing
from gkafka.exceptions import ClientClosedError, ConfigurationError, DeliveryError, KafkaTimeoutError
from gkafka.testing import Delay, Drop, MockCluster
from tests.public.aids import LIMIT_S, Clock, Held, Runner, error_of, stored_values


class CutShort(BaseException):
    """What a signal handler raises, as Ctrl-C does."""


@pytest.fixture
def cut_short(run: Runner) -> Callable[[Callable[[], Any], float], None]:
    """Runs a call that must not come to its end within so many seconds: gevent.Timeout or a signal's handler ends it."""

    def by_timeout(call: Callable[[], Any], seconds: float) -> None:
        import gevent

        with pytest.raises(gevent.Timeout), gevent.Timeout(seconds):
            call()

    def by_signal(call: Callable[[], Any], seconds: float) -> None:
        def raise_it(*_: Any) -> None:
            raise CutShort

        before = signal.signal(signal.SIGUSR2, raise_it)
        main = threading.main_thread().ident
        assert main is not None
        timer = threading.Timer(seconds, signal.pthread_kill, (main, signal.SIGUSR2))
        try:
            timer.start()
            with pytest.raises(CutShort):
                call()
        finally:
            timer.join()
            signal.signal(signal.SIGUSR2, before)

    return by_timeout if run.gevent else by_signal


def test_a_close_that_is_cut_short_leaves_the_rest_to_the_next(client: KafkaClient, cluster: MockCluster, cut_short: Any) -> None:
    cluster.on("Produce", held := Held())
    producer = client.get_producer(linger_ms=1)
    delivery = producer.produce("t", b"x")
    cut_short(client.close, 0.2)
    assert not delivery.done()
    held.released = True
    client.close()
    assert delivery.result(0).offset == 0
    assert not client.handler.workers()


def test_a_stop_that_is_cut_short_leaves_the_rest_to_the_next(client: KafkaClient, cluster: MockCluster, cut_short: Any) -> None:
    cluster.on("Produce", held := Held())
    producer = client.topics["t"].get_producer(linger_ms=1)
    delivery = producer.produce(b"x")
    cut_short(producer.stop, 0.2)
    assert not delivery.done()
    held.released = True
    producer.stop()
    assert delivery.result(0).offset == 0


def test_what_a_close_that_is_cut_short_could_not_say_the_next_one_says(
    client: KafkaClient, cluster: MockCluster, cut_short: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.on("Produce", Drop(before=True), times=None)
    producer = client.get_producer(delivery_timeout_ms=300, linger_ms=1)
    producer.produce("t", b"failed")
    with monkeypatch.context() as patch:
        patch.setattr(client.handler, "stop", lambda *_: client.handler.sleep(LIMIT_S))
        cut_short(lambda: client.close(LIMIT_S), 1.5)
    error = error_of(client.close)
    assert isinstance(error, DeliveryError)
    assert [r.record.value for r in error.records] == [b"failed"]
    client.close()


def test_a_close_that_comes_while_another_one_delivers_waits_too(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    cluster.on("Produce", Delay(0.5))
    producer = client.get_producer(linger_ms=1)
    delivery = producer.produce("t", b"x")
    first = run.aside(client.close)
    run.until(lambda: producer.closed)
    client.close()
    assert delivery.done()
    first.result()


def test_a_close_that_comes_meanwhile_is_bounded_by_its_own_timeout(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    cluster.on("Produce", Drop(before=True), times=None)
    producer = client.get_producer(linger_ms=1)
    delivery = producer.produce("t", b"x")
    told: list[DeliveryError] = []

    def close(timeout: float | None) -> None:
        try:
            client.close(timeout)
        except DeliveryError as error:
            told.append(error)

    first = run.aside(close, None)
    run.until(lambda: producer.closed)
    with Clock() as clock:
        close(0.3)
    assert clock.seconds < 30
    assert delivery.done()
    first.result()
    assert [r.record.value for error in told for r in error.records] == [b"x"]


@pytest.mark.parametrize("timeout", ["5", float("nan"), [], True])
def test_a_close_with_what_is_no_time_changes_nothing(client: KafkaClient, cluster: MockCluster, timeout: Any) -> None:
    producer = client.get_producer(linger_ms=60_000)
    skin = client.topics["t"].get_producer(linger_ms=60_000)
    deliveries = [producer.produce("t", b"%d" % i) for i in range(100)]
    for call in (producer.close, producer.flush, client.close, deliveries[0].result, deliveries[0].exception, client.connect):
        error = error_of(call, timeout)
        assert isinstance(error, ConfigurationError), call
        assert f"timeout={timeout!r}" in str(error)
    deliveries += [producer.produce("t", b"more"), skin.produce(b"skin")]
    client.close()
    assert all(d.exception(0) is None for d in deliveries)
    assert len(stored_values(cluster)) == 102


def test_a_deadline_that_has_passed_is_no_time_at_all(client: KafkaClient, cluster: MockCluster) -> None:
    cluster.on("Produce", held := Held())
    producer = client.get_producer(linger_ms=1)
    delivery = producer.produce("t", b"x")
    assert isinstance(error_of(delivery.result, -0.5), KafkaTimeoutError)
    assert isinstance(error_of(producer.flush, 0), KafkaTimeoutError)
    assert isinstance(error_of(producer.close, 0), DeliveryError)
    held.released = True


@pytest.mark.parametrize("timeout", [-1, -0.001, float("-inf")])
def test_a_negative_timeout_of_flush_and_close_is_refused_and_nothing_is_given_up(
    client: KafkaClient, cluster: MockCluster, timeout: float
) -> None:
    """-1 is "for ever" elsewhere: taken for no time at all it would cost the records."""
    producer = client.get_producer(linger_ms=60_000)
    delivery = producer.produce("t", b"x")
    for call in (producer.flush, producer.close, client.close):
        error = error_of(call, timeout)
        assert isinstance(error, ConfigurationError), call
        assert f"timeout={timeout!r}: must be a number of seconds, 0 or more" in str(error)
    producer.close()
    assert delivery.result(0).offset == 0


def test_a_client_that_is_closed_has_no_topics(client: KafkaClient) -> None:
    topics = client.topics
    known = topics["t"]
    client.close()
    for look in (lambda: client.topics["t"], lambda: topics[b"t"], lambda: list(topics), lambda: "t" in topics, lambda: topics.get("t")):
        error = error_of(look)
        assert isinstance(error, ClientClosedError)
        assert "make a new KafkaClient" in str(error)
    assert known.name == "t"


def test_what_close_gave_up_says_so(client: KafkaClient, cluster: MockCluster) -> None:
    cluster.on("Produce", Drop(before=True), times=None)
    producer = client.get_producer()
    delivery = producer.produce("t", b"x")
    closed, told = error_of(producer.close, 0.3), error_of(delivery.result, 1)
    for error in (closed, told):
        assert "close() waited 0.3 s" in str(error), error
        assert "still being delivered" not in str(error)


@pytest.mark.parametrize("call", ["flush", "close"])
def test_who_waits_for_a_broker_that_does_not_answer_is_told_once(
    call: str, client: KafkaClient, cluster: MockCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As of a program that seems to stand still at its end."""
    monkeypatch.setattr(flushing, "QUIET_S", 0.1)
    cluster.on("Produce", Drop(before=True), times=None)
    producer = client.get_producer(linger_ms=60_000)
    for value in (b"x", b"y"):
        producer.produce("t", value)
    assert error_of(getattr(producer, call), 1) is not None
    told = [record.getMessage() for record in caplog.records if "flush or close waits" in record.getMessage()]
    assert len(told) == 1, caplog.text
    assert "for 2 record(s) that no broker has acknowledged" in told[0]
    assert "up to 1 s more" in told[0]


def test_a_client_that_is_closed_makes_no_producer_and_no_consumer(client: KafkaClient) -> None:
    topic = client.topics["t"]
    client.close()
    for make in (client.get_producer, topic.get_producer, topic.get_sync_producer, topic.get_simple_consumer):
        error = error_of(make)
        assert isinstance(error, ClientClosedError), (make, error)
        assert "make a new KafkaClient" in str(error)
