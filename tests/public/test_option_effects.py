"""Options whose effect no other test shows on its own. `tests/test_options.py` says which test shows which option."""

from __future__ import annotations

from typing import Any

import pytest

from gkafka.broker import Broker
from gkafka.config import ClientConfig
from gkafka.exceptions import KafkaException, KafkaTimeoutError
from gkafka.handlers import resolve_handler
from gkafka.testing import Delay, MockCluster
from tests.kit.clock import soon
from tests.kit.ports import refused_port
from tests.public.aids import LIMIT_S, Clock, Runner, error_of, fill, read, stored


@pytest.mark.parametrize("linger_ms", [0, 400])
def test_linger_ms_is_how_long_a_lone_record_waits(client: Any, cluster: MockCluster, run: Runner, linger_ms: int) -> None:
    producer = client.get_producer(linger_ms=linger_ms)
    producer.produce("t", b"warm").result(LIMIT_S)
    with Clock() as clock:
        producer.produce("t", b"x")
        run.until(lambda: len(stored(cluster)) == 2)
    assert linger_ms / 1000 - 0.02 <= clock.seconds < 30


def test_batch_bytes_is_when_a_batch_is_sent_before_its_linger(client: Any, cluster: MockCluster, run: Runner) -> None:
    producer = client.get_producer(linger_ms=60_000, batch_bytes=2000)
    producer.produce("t", b"x" * 900, partition=0)
    assert run.stays(lambda: not stored(cluster), 0.1)
    for _ in range(2):
        producer.produce("t", b"x" * 900, partition=0)
    run.until(lambda: len(stored(cluster)) >= 2)
    assert run.stays(lambda: len(stored(cluster)) == 2, 0.1), "the third one has begun a batch that lingers"
    sizes = [len(p.records) for r in cluster.requests("Produce") for t in r.message.topic_data for p in t.partition_data]
    assert max(sizes) <= 2000


def test_max_request_bytes_bounds_a_request(connect: Any, make_cluster: Any) -> None:
    cluster = make_cluster(topics={"t": 8})
    producer = connect(cluster).get_producer(linger_ms=100, max_request_bytes=5000, batch_bytes=2500, max_in_flight=1)
    for n in range(64):
        producer.produce("t", b"x" * 600, partition=n % 8)
    producer.flush(LIMIT_S)
    for request in cluster.requests("Produce"):
        assert sum(len(p.records) for t in request.message.topic_data for p in t.partition_data) <= 5000


def test_socket_timeout_ms_is_how_long_an_answer_may_take(connect: Any, cluster: MockCluster) -> None:
    client = connect(cluster, socket_timeout_ms=500)
    client.connect()
    cluster.on("ListOffsets", Delay(120))
    with Clock() as clock:
        assert client.list_offsets({("t", 0): -1}) == {("t", 0): 0}, "asked again on another connection"
    assert 0.4 < clock.seconds < 30
    assert cluster.count("ListOffsets") >= 2


def test_request_timeout_ms_of_a_consumer_is_how_long_a_fetch_may_take_beyond_its_wait(client: Any, cluster: MockCluster) -> None:
    fill(client, [b"x"])
    cluster.on("Fetch", Delay(120))
    consumer = client.topics["t"].get_simple_consumer(request_timeout_ms=300, fetch_wait_max_ms=50, fetch_error_backoff_ms=10)
    with Clock() as clock:
        assert read(consumer, 1)[0].value == b"x"
    assert 0.25 < clock.seconds < 30
    consumer.stop()


@pytest.mark.parametrize(("base", "limit"), [(40, 80), (10, 1000)])
def test_reconnect_backoff_ms_doubles_up_to_reconnect_backoff_max_ms(
    run: Runner, monkeypatch: pytest.MonkeyPatch, base: int, limit: int
) -> None:
    handler = resolve_handler(run.name)
    options = ClientConfig(reconnect_backoff_ms=base, reconnect_backoff_max_ms=limit)
    broker = Broker(1, "127.0.0.1", refused_port(), handler, 1000, 1000, config=options)
    clock = [soon(0)]
    monkeypatch.setattr(handler, "monotonic", lambda: clock[0])
    for n in range(4):
        error_of(broker.connect, 1)
        run.until(lambda: broker.ready_at > clock[0])
        expected = min(base * 2**n, limit) / 1000
        assert expected * 0.8 <= broker.ready_at - clock[0] <= expected * 1.2
        clock[0] = broker.ready_at
    monkeypatch.undo()
    broker.close()
    assert handler.stop(soon(LIMIT_S))


def test_offsets_channel_socket_timeout_ms_is_not_that_of_the_other_connections(connect: Any, cluster: MockCluster) -> None:
    client = connect(cluster, offsets_channel_socket_timeout_ms=1000, socket_timeout_ms=100_000)
    consumer = client.topics["t"].get_simple_consumer(consumer_group="g", offsets_commit_max_retries=0)
    cluster.on("OffsetCommit", Delay(120))
    with Clock() as clock:
        assert isinstance(error_of(consumer.commit_offsets, [(0, 1)]), KafkaTimeoutError)
    assert clock.seconds < 30
    consumer.stop()


def test_retry_backoff_max_ms_ends_the_doubling(client: Any, cluster: MockCluster) -> None:
    from gkafka.testing import Error

    cluster.on("Produce", Error(19), times=12)
    with Clock() as clock:
        client.get_producer(retry_backoff_ms=20, retry_backoff_max_ms=40).produce("t", b"x").result(LIMIT_S)
    assert 0.3 < clock.seconds < 30, "20 + 11 * 40 ms, with jitter; doubled again and again it would be a minute"


def test_max_block_ms_and_buffer_bytes_are_what_the_error_names(client: Any, cluster: MockCluster) -> None:
    client.topics["t"]  # max_block_ms is for the buffer alone
    producer = client.get_producer(max_block_ms=50, buffer_bytes=5000, batch_bytes=1000, max_request_bytes=5000)
    producer.produce("t", b"warm").result(LIMIT_S)
    cluster.on("Produce", Delay(120), times=None)
    errors: list[KafkaException] = []
    with Clock() as clock:
        while not errors:
            try:
                producer.produce("t", b"x" * 900)
            except KafkaException as error:
                errors.append(error)
    assert clock.seconds < 30
    assert "max_block_ms=50" in str(errors[0])
    assert "buffer_bytes=5000" in str(errors[0])
    error_of(producer.close, 0)
