"""Connections that are shared and parted as they should be: what parks never holds up what must answer at once."""

from __future__ import annotations

from typing import Any

import pytest

from gkafka.testing import MockCluster
from tests.public.aids import LIMIT_S, Clock, Held, Runner, error_of, fill, read
from tests.public.test_consuming import Consume, consume, numbers

__all__ = ["consume"]


def test_beside_an_idle_long_poll_everything_else_answers_at_once(
    connect: Any, cluster: MockCluster, consume: Consume, run: Runner
) -> None:
    """Issue 3, point 6: beside an idle long poll produce, metadata and commit do not wait for it."""
    cluster.create_topic("quiet", 1)
    client = connect(cluster)
    fill(client, numbers(1))
    waiting = consume("g", of=client, topic="quiet", fetch_wait_max_ms=60_000)
    polling = run.aside(waiting.consume)
    run.until(lambda: cluster.count("Fetch") > 0)
    producer = client.get_producer(linger_ms=0)
    for _ in range(3):
        for call in (
            lambda: producer.produce("t", b"x").result(LIMIT_S),
            client.update_cluster,
            lambda: waiting.commit_offsets([(0, 1)]),
            lambda: client.list_offsets({("quiet", 0): -1}),
            lambda: client.fetch_raw("t", 0, 0),
        ):
            with Clock() as clock:
                call()
            assert clock.seconds < 30
    assert polling.running
    assert cluster.count("Fetch") == 1 + 3, "the long poll is still the first one"
    fill(client, [b"end"], topic="quiet")
    assert polling.result().value == b"end"


def test_two_long_polls_of_two_consumers_do_not_wait_for_each_other(connect: Any, make_cluster: Any, consume: Consume, run: Runner) -> None:
    cluster = make_cluster(topics={"quiet": 1, "t": 1})
    client = connect(cluster)
    quiet = consume(of=client, topic="quiet", fetch_wait_max_ms=60_000)
    other = consume(of=client, fetch_wait_max_ms=60_000)
    run.until(lambda: cluster.count("Fetch") >= 2)
    fill(client, numbers(5))
    with Clock() as clock:
        assert len(read(other, 5)) == 5
    assert clock.seconds < 30
    assert quiet.consume(block=False) is None


def test_a_slow_answer_to_a_producer_holds_up_nobody_else(connect: Any, cluster: MockCluster, consume: Consume, run: Runner) -> None:
    client = connect(cluster)
    fill(client, numbers(3))
    consumer = consume("g", of=client)
    cluster.on("Produce", held := Held())
    producer = client.get_producer()
    slow = producer.produce("t", b"slow")
    assert len(read(consumer, 3)) == 3
    consumer.commit_offsets()
    client.update_cluster()
    run.until(lambda: held.holds)
    assert not slow.done()
    held.released = True
    slow.result(LIMIT_S)


def test_a_slow_commit_holds_up_no_fetch_and_no_metadata(connect: Any, cluster: MockCluster, consume: Consume, run: Runner) -> None:
    client = connect(cluster)
    fill(client, numbers(3))
    consumer = consume("g", of=client)
    cluster.on("OffsetCommit", held := Held())
    committing = run.aside(consumer.commit_offsets, [(0, 1)])
    run.until(lambda: cluster.count("OffsetCommit") == 1)
    assert len(read(consumer, 3)) == 3
    client.update_cluster()
    client.list_offsets({("t", 0): -1})
    assert committing.running
    held.released = True
    committing.result()


def test_a_broker_that_is_frozen_holds_up_no_other(connect: Any, make_cluster: Any, consume: Consume, run: Runner) -> None:
    """G06, F03."""
    cluster = make_cluster(brokers=2, topics={"t": 2})
    client = connect(cluster)
    frozen = cluster.leader("t", 0)
    for p in (0, 1):
        fill(client, numbers(3), partition=p)
    consumer = consume(of=client, fetch_wait_max_ms=100)
    read(consumer, 6)
    held = Held()
    for api in ("Produce", "Fetch"):
        cluster.on(api, held, times=None, broker=frozen)
    producer = client.get_producer(linger_ms=0)
    stuck = producer.produce("t", b"stuck", partition=0)
    for i in range(20):
        producer.produce("t", b"%d" % i, partition=1).result(LIMIT_S)
    assert {m.partition_id for m in read(consumer, 20)} == {1}
    assert not stuck.done()
    cluster.clear_script()
    held.released = True
    error_of(producer.close, 0)


def test_all_producers_of_a_client_share_a_connection_and_consumers_have_their_own(
    connect: Any, cluster: MockCluster, consume: Consume
) -> None:
    client = connect(cluster)
    for _ in range(4):
        fill(client, numbers(2))
    assert cluster.connections() == 2, "control and produce"
    one, two = consume(of=client), consume(of=client)
    read(one, 8), read(two, 8)
    assert cluster.connections() == 4
    one.stop(), two.stop()
    assert cluster.wait_for(lambda: cluster.connections() == 2)


def test_clients_name_themselves(connect: Any, cluster: MockCluster) -> None:
    client = connect(cluster, client_id="crawler-7")
    fill(client, numbers(1))
    assert {r.client_id for r in cluster.requests()} == {"crawler-7"}
    assert all(r.client_id == "gkafka" for r in cluster.requests("Metadata")[:0])


@pytest.mark.parametrize("n", [3])
def test_requests_on_a_connection_are_pipelined(connect: Any, cluster: MockCluster, run: Runner, n: int) -> None:
    producer = connect(cluster).get_producer(linger_ms=0, batch_bytes=200, max_in_flight=n)
    producer.produce("t", b"the first goes alone", partition=0).result(LIMIT_S)
    cluster.on("Produce", held := Held())
    deliveries = [producer.produce("t", b"x" * 150, partition=0) for _ in range(10)]
    run.until(lambda: cluster.count("Produce") >= 2)
    run.until(lambda: producer.stats()["requests"] >= 1 + n)
    assert producer.stats()["requests"] == 1 + n
    held.released = True
    for delivery in deliveries:
        delivery.result(LIMIT_S)


def test_a_connection_that_broke_is_opened_again_after_the_backoff(connect: Any, cluster: MockCluster, run: Runner) -> None:
    client = connect(cluster, reconnect_backoff_ms=300, reconnect_backoff_max_ms=300)
    (broker,) = client.brokers.values()
    producer = client.get_producer(linger_ms=0, retry_backoff_ms=1)
    producer.produce("t", b"1").result(LIMIT_S)
    with Clock() as clock:
        cluster.stop_broker(1)
        delivery = producer.produce("t", b"2")
        run.until(lambda: broker.stats()["failures"])
        cluster.start_broker(1)
        delivery.result(LIMIT_S)
    assert 0.2 < clock.seconds < 30
