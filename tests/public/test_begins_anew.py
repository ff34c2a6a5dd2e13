"""A producer whose machine is half changed, by an interruption or a bug: it is rebuilt before anything else is done with it."""

from __future__ import annotations

import traceback
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.core.numbering import Numbering
from gkafka.exceptions import DeliveryError, KafkaTimeoutError, ProduceFailureError
from gkafka.testing import MockCluster
from tests.public.aids import LIMIT_S, stored_values


def test_a_bug_in_the_middle_of_a_step_fails_every_record_with_its_name(client: KafkaClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch was taken out of its queue and is in no request yet."""

    def fails(*_: Any) -> None:
        raise ValueError("a bug")

    producer: Any = client.get_producer()
    monkeypatch.setattr(Numbering, "number", fails)
    error = producer.produce("t", b"x", partition=0).exception(LIMIT_S)
    assert isinstance(error, ProduceFailureError)
    assert "ValueError: a bug" in str(error)
    with pytest.raises(DeliveryError):
        producer.close(LIMIT_S)


@pytest.mark.parametrize("step", ["written", "on_answer"], ids=["of a batch", "of a producer id"])
def test_a_bug_where_an_answer_is_taken_in_is_told_at_once_and_not_repeated(
    client: KafkaClient, cluster: MockCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, step: str
) -> None:
    def fails(*_: Any) -> None:
        raise ValueError("a bug")

    producer: Any = client.get_producer()
    monkeypatch.setattr(Numbering, step, fails)
    error = producer.produce("t", b"x", partition=0).exception(LIMIT_S)
    assert isinstance(error, ProduceFailureError)
    assert "ValueError: a bug" in str(error)
    (line,) = (line for line in caplog.records if line.name == "gkafka.producerdriver" and line.levelname == "ERROR")
    assert line.exc_info is not None
    assert fails.__name__ in [entry.name for entry in traceback.extract_tb(line.exc_info[2])]
    assert producer.stats()["restarts"] == 0
    assert max(cluster.count("Produce"), cluster.count("InitProducerId")) == 1
    with pytest.raises(ProduceFailureError):
        producer.produce("t", b"y")
    with pytest.raises(DeliveryError):
        producer.close(LIMIT_S)


def test_giving_up_fails_what_an_interrupted_worker_had_in_hand(client: KafkaClient) -> None:
    producer: Any = client.get_producer(linger_ms=60_000)
    driver = producer._driver
    delivery = producer.produce("t", b"x", partition=0)
    with driver.lock:
        driver.notes.take()
        batch = next(iter(driver.accumulator.unsettled))
        driver._appender.take("t", 0)
        driver.accumulator.rolled(batch)
        batch.extra.queue.pending.clear()  # it is in hand, and in no request
        driver.worker.mark.cause = KeyboardInterrupt()
    driver.give_up(KafkaTimeoutError("close() waited, then gave it up"))
    assert isinstance(delivery.exception(LIMIT_S), KafkaTimeoutError)


def test_a_restart_keeps_the_order_of_batches_that_the_worker_had_not_seen(make_cluster: Any) -> None:
    cluster: MockCluster = make_cluster(topics={"t": 1})
    with KafkaClient(cluster.bootstrap, handler="gevent") as client:
        producer: Any = client.get_producer(linger_ms=60_000, batch_bytes=512)
        producer.produce("t", b"first").result(LIMIT_S)
        values = [b"%d" % n + b"." * 100 for n in range(6)]
        for value in values:  # more than one batch, of which the worker, a greenlet, has seen none
            producer.produce("t", value)
        assert len(producer._driver.notes.new_batches()) > 1
        producer._driver.restart()
        producer.flush(LIMIT_S)
    assert stored_values(cluster, partitions=[0]) == [b"first", *values]
