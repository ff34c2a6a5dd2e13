"""An answer that nobody is told of: signals in a row may end the end of a connection. What waits for it is asked again."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.net.channel import Channel
from gkafka.testing import MockCluster
from tests.public.aids import fill, read

Connect = Callable[..., KafkaClient]


def lose_first(name: str, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Have the first request of that kind never be sent, and nobody be told. Returns what was lost."""
    send, lost = Channel.send, []

    def losing(self: Channel, request: Any, *how: Any, **more: Any) -> None:
        if request.API.name == name and not lost:
            lost.append(request)
        else:
            send(self, request, *how, **more)

    monkeypatch.setattr(Channel, "send", losing)
    return lost


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line.getMessage() for line in caplog.records if line.levelno >= logging.WARNING]


def test_a_fetch_whose_answer_is_lost_is_sent_again(
    connect: Connect, make_cluster: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    client = connect(make_cluster(topics={"t": 1}))
    fill(client, [b"%d" % n for n in range(10)])
    lost = lose_first("Fetch", monkeypatch)
    consumer: Any = client.get_consumer("t", auto_offset_reset="earliest", request_timeout_ms=500)
    assert [message.offset for message in read(consumer, 10)] == list(range(10))
    assert len(lost) == 1
    assert consumer.stats()["restarts"] == 1
    assert warnings(caplog) == ["the consumer begins anew, its fetches end: an answer was lost; its partitions: {'in_flight': 1}"]


def test_a_lookup_whose_answer_is_lost_is_asked_for_again(
    connect: Connect, make_cluster: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    client = connect(make_cluster(topics={"t": 1}), socket_timeout_ms=500)
    fill(client, [b"%d" % n for n in range(10)])
    lost = lose_first("ListOffsets", monkeypatch)
    consumer: Any = client.get_consumer("t", auto_offset_reset="earliest")
    assert [message.offset for message in read(consumer, 10)] == list(range(10))
    assert len(lost) == 1
    assert warnings(caplog) == ["the consumer begins anew, its fetches end: an answer was lost; its partitions: {'resetting': 1}"]


def test_metadata_whose_answer_is_lost_is_asked_for_again(connect: Connect, make_cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    client = connect(make_cluster(topics={"t": 1}), socket_timeout_ms=500)
    lost = lose_first("Metadata", monkeypatch)
    with client.get_producer(max_block_ms=20_000) as producer:
        assert producer.produce("t", b"1").result(20).offset == 0
    assert len(lost) == 1


def test_a_producer_id_whose_answer_is_lost_is_asked_for_again(
    connect: Connect, make_cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = connect(make_cluster(topics={"t": 1}))
    lost = lose_first("InitProducerId", monkeypatch)
    with client.get_producer(request_timeout_ms=500, delivery_timeout_ms=20_000) as producer:
        assert producer.produce("t", b"1").result(20).offset == 0
        assert producer.stats()["restarts"] == 0
    assert len(lost) == 1


@pytest.mark.parametrize("name", ["FindCoordinator", "EndTxn"])
def test_a_transaction_whose_answer_is_lost_ends(
    connect: Connect, make_cluster: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    cluster: MockCluster = make_cluster(topics={"t": 1})
    client = connect(cluster)
    lost = lose_first(name, monkeypatch)
    producer = client.get_producer(transactional_id="x", request_timeout_ms=500, delivery_timeout_ms=60_000)
    with producer.transaction():
        producer.produce("t", b"1")
    assert len(lost) == 1
    assert warnings(caplog) == ["transactional id 'x': an answer was lost, it is asked for again"]
    consumer: Any = client.get_consumer("t", auto_offset_reset="earliest", isolation_level="read_committed")
    assert [message.value for message in read(consumer, 1)] == [b"1"]
