"""Leaders move: whoever uses a topic follows, however it learnt of it."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.testing import Delay, Edit, MockCluster
from tests.kit.clock import now
from tests.public.aids import LIMIT_S, Runner, stored_values


@pytest.mark.parametrize("handler", ["threading", "gevent"])
def test_a_topic_known_from_the_list_of_all_topics_is_followed_when_its_leader_moves(handler: str) -> None:
    with (
        MockCluster(brokers=2, topics={"t": 1}, replication_factor=2) as brokers,
        KafkaClient(brokers.bootstrap, handler=handler) as client,
    ):
        client.update_cluster()
        with client.get_producer() as producer:
            producer.produce("t", b"before", partition=0).result(60)
            start = brokers.leader("t", 0)
            brokers.move_leader("t", 0, 3 - start)
            producer.produce("t", b"after", partition=0).result(60)
        raws = list(client.fetch_stream("t", 0, 0, 2, timeout=60))
        brokers.move_leader("t", 0, start)
        again = client.fetch_raw("t", 0, 0, timeout=60)
    assert raws[-1].next_offset == 2
    assert again.high_watermark == 2


@pytest.mark.parametrize("handler", ["threading", "gevent"])
def test_a_lone_record_goes_as_soon_as_the_metadata_tells_of_its_leader(handler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its producer has nothing else to do, and must not sleep on beside the answer."""
    monkeypatch.setattr("gkafka.producerdriver.TICK_S", 100.0)
    with (
        MockCluster(brokers=2, topics={"t": 1}, replication_factor=2) as brokers,
        KafkaClient(brokers.bootstrap, handler=handler) as client,
        client.get_producer(linger_ms=0, retry_backoff_ms=1) as producer,
    ):
        producer.produce("t", b"before", partition=0).result(60)
        brokers.on("Produce", Edit(_without_leaders), times=None)
        brokers.on("Metadata", Edit(_without_leaders), times=3)
        brokers.move_leader("t", 0, 3 - brokers.leader("t", 0))
        began = now()
        producer.produce("t", b"after", partition=0).result(60)
        assert now() - began < 30, "a worker that nobody wakes sleeps until its next tick"


def _without_leaders(request: Any, answer: Any) -> Any:
    """While a leader is elected; and as brokers before Kafka 3.7 answer Produce, without a hint."""
    for topic in getattr(answer, "topics", ()):
        for partition in topic.partitions:
            partition.leader_id = -1
    for topic in getattr(answer, "responses", ()):
        for partition in topic.partition_responses:
            partition.current_leader.leader_id = -1
    return answer


# -- what a broker says beside an acknowledgement -----------------------------------------------------------------------------
def test_a_leader_on_a_broker_that_nobody_knew_is_followed_without_new_metadata(connect: Any, make_cluster: Any) -> None:
    """KIP-951: the refusal says who leads now, and where that one is."""
    cluster = make_cluster(2, replication_factor=1, topics={"t": 1})
    old = cluster.leader("t", 0)
    cluster.stop_broker(3 - old)
    client = connect(cluster.bootstrap)
    with client.get_producer(linger_ms=0) as producer:
        assert producer.produce("t", b"before").result(LIMIT_S).offset == 0
        assert list(client.brokers) == [old]
        cluster.start_broker(3 - old)
        cluster.move_leader("t", 0, 3 - old)
        cluster.on("Metadata", Delay(60), times=None)
        assert producer.produce("t", b"after").result(LIMIT_S).offset == 1
        assert producer.stats()["retried_batches"] >= 1
    assert {r.broker for r in cluster.requests("Produce")} == {1, 2}


def test_a_connection_that_the_broker_closed_while_it_was_idle_is_renewed_without_a_loss_or_an_error(
    connect: Any, cluster: MockCluster, run: Runner, caplog: pytest.LogCaptureFixture
) -> None:
    client = connect(cluster)
    with caplog.at_level(logging.WARNING), client.get_producer(linger_ms=0, retries=3) as producer:
        for n in range(5):
            deliveries = [producer.produce("t", b"%d" % (2 * n + i)) for i in range(2)]
            assert [d.result(LIMIT_S).offset for d in deliveries] == [2 * n, 2 * n + 1]
            run.until(lambda: _is_idle(client))
            cluster.close_connections()
            if n % 2:
                run.until(lambda: not _connections(client))  # it has noticed: the next record does not find out
            assert cluster.connections() == 0, "who has nothing to send does not connect"
        assert producer.produce("t", b"last").result(LIMIT_S).offset == 10
        # Five closed connections of each role are no ten failures in a row, after which each renewal would pause for seconds.
        assert all(b["failures"] <= 3 for b in client.stats()["brokers"])
    assert stored_values(cluster) == [b"%d" % n for n in range(10)] + [b"last"]
    assert not [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]


def _connections(client: KafkaClient) -> list[Any]:
    return [connection for broker in client.stats()["brokers"] for connection in broker["connections"]]


def _is_idle(client: KafkaClient) -> bool:
    """Nothing is under way, and no metadata are due: a producer that lost its connection asks for them, and need not wait for the answer."""
    under_way = [one for one in _connections(client) if one["in_flight"] or not one["open"]]
    return client.cluster.metadata.due(now()) > now() + 10 and not under_way


def test_a_throttled_producer_leaves_the_broker_alone_for_as_long_as_it_is_told(connect: Any, cluster: MockCluster) -> None:
    """KIP-219: the answer comes at once, the pause is the client's."""
    producer = connect(cluster).get_producer(linger_ms=0)
    producer.produce("t", b"0").result(LIMIT_S)

    def throttled(request: Any, response: Any) -> Any:
        response.throttle_time_ms = 700
        return response

    cluster.on("Produce", Edit(throttled))
    producer.produce("t", b"1").result(LIMIT_S)
    begun = now()
    assert producer.produce("t", b"2").result(LIMIT_S).offset == 2
    assert 0.6 < now() - begun < 30
    assert cluster.count("Produce") == 3
