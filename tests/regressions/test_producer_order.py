"""Order: what was produced first is first in the log, whatever was tried again in between."""

from __future__ import annotations

from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.testing import Edit, Error, MockCluster
from tests.core.fakes import MetadataRequest, Rig, told
from tests.public.aids import LIMIT_S, Runner, stored_values
from tests.regressions.aids import NOT_LEADER, QUICK, TIMED_OUT, TOO_FEW_REPLICAS, Held, numbered, sent_batches

ALONE: dict[str, Any] = {"acks": 1, "max_in_flight": 1, "linger_ms": 0, "batch_bytes": 200, **QUICK}


def test_b08_a_batch_that_is_tried_again_goes_before_everything_that_waits(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    """B08 librdkafka#1092: with one request in flight, what is retried was queued behind newer messages."""
    producer = client.get_producer(**ALONE)
    producer.produce("t", b"first").result(LIMIT_S)
    held = Held(Error(NOT_LEADER))
    cluster.on("Produce", held)
    cluster.on("Produce", Error(TIMED_OUT))
    for value in numbered(60):
        producer.produce("t", value * 10)
    run.until(lambda: held.holds)
    held.released = True
    producer.flush(LIMIT_S)
    assert stored_values(cluster)[1:] == [value * 10 for value in numbered(60)]
    assert producer.stats()["retried_batches"] == 2


def test_b08_put_back_means_before_the_younger_ones() -> None:
    """B08 librdkafka#1092, in numbers: three batches fail in any order and wait in their old one."""
    for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0)):
        rig = Rig(idempotence=False)
        batches = [rig.full() for _ in range(3)]
        requests = rig.sent()
        waiting = rig.full()
        for n in order:
            rig.answer(requests[n], NOT_LEADER)
        assert list(rig.accumulator.queues["t", 0].pending) == [*batches, waiting]


def test_b09_retries_for_several_reasons_keep_the_order(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    """B09 sarama#2619: batches of a partition that fail one after the other, for different reasons and times, overtook each other."""
    producer = client.get_producer(linger_ms=0, batch_bytes=200, **QUICK)
    producer.produce("t", b"first").result(LIMIT_S)
    held = Held(Error(NOT_LEADER))
    cluster.on("Produce", held)
    for code in (TOO_FEW_REPLICAS, TIMED_OUT, NOT_LEADER, TOO_FEW_REPLICAS, TIMED_OUT, TOO_FEW_REPLICAS):
        cluster.on("Produce", Error(code))
    for value in numbered(60):
        producer.produce("t", value * 10)
    run.until(lambda: producer.stats()["requests"] == 1 + 5)
    held.released = True
    producer.flush(LIMIT_S)
    assert stored_values(cluster)[1:] == [value * 10 for value in numbered(60)]
    assert producer.stats()["retried_batches"] == 7, "the seven refusals, and none more: nothing arrived before its turn"
    assert producer.stats()["epoch_bumps"] == 0


def test_b09_retries_of_some_partitions_of_a_request_keep_the_order_of_each(connect: Any, make_cluster: Any) -> None:
    """B09 sarama#2619: some partitions of a request fail, others do not; each keeps its order."""

    def fail_half(request: Any, answer: Any) -> Any:
        for topic in answer.responses:
            for part in topic.partition_responses:
                if (part.index + request.correlation_id) % 2:
                    part.error_code, part.base_offset = TIMED_OUT, -1
        return answer

    cluster = make_cluster(topics={"t": 4})
    producer = connect(cluster).get_producer(linger_ms=1, batch_bytes=200, **QUICK)
    cluster.on("Produce", Edit(fail_half), times=12)
    for i, value in enumerate(numbered(200)):
        producer.produce("t", value * 5, partition=i % 4)
    producer.flush(LIMIT_S)
    assert producer.stats()["retried_batches"] > 4
    for p in range(4):
        assert stored_values(cluster, "t", [p]) == [value * 5 for value in numbered(200)[p::4]]


@pytest.mark.parametrize("idempotent", [True, False])
def test_b10_nothing_goes_to_the_new_leader_while_the_old_one_has_not_answered(
    connect: Any, make_cluster: Any, run: Runner, idempotent: bool
) -> None:
    """B10 kafka-python#698: a partition was not muted while a batch of it was under way, and a younger one landed before the retry.

    A new leader that has no batch of this producer takes any sequence number, so numbers alone do not keep the order.
    """
    cluster = make_cluster(brokers=2, topics={"t": 1}, replication_factor=2)
    client = connect(cluster)
    client.connect()
    old = cluster.leader("t", 0)
    options = QUICK if idempotent else {"acks": 1, "max_in_flight": 1, **QUICK}
    producer = client.get_producer(linger_ms=0, **options)
    held = Held()
    cluster.on("Produce", held, broker=old)
    producer.produce("t", b"1", partition=0)
    run.until(lambda: held.holds)
    cluster.move_leader("t", 0, 3 - old)
    client.update_cluster()
    producer.produce("t", b"2", partition=0)
    run.stays(lambda: not stored_values(cluster), 0.2)
    held.released = True
    producer.flush(LIMIT_S)
    assert stored_values(cluster) == [b"1", b"2"]
    assert [b.broker for b in sent_batches(cluster)] == [old, 3 - old, 3 - old]
    assert producer.stats()["epoch_bumps"] == 0


@pytest.mark.parametrize("idempotent", [True, False])
def test_b10_a_partition_is_muted_during_the_pause_of_a_retry_and_while_it_is_under_way(idempotent: bool) -> None:
    """B10 kafka-python#698, in numbers."""
    rig = Rig(idempotence=idempotent, max_in_flight=5 if idempotent else 1)
    first, second = rig.full(), rig.full()
    (request, *others) = rig.sent()
    for other in others:
        rig.answer(other, NOT_LEADER)
    rig.answer(request, NOT_LEADER)
    assert rig.sent() == [], "the pause lasts"
    rig.now += 5
    (again,) = rig.sent()
    assert again.batches == [first]
    rig.metadata.on_response(MetadataRequest(topics=None), told({0: 2}, epoch=2), rig.now)
    rig.full()
    assert rig.sent() == [], "another broker leads now, and the old one has not answered"
    rig.answer(again)
    assert rig.sent()[0].batches == [second]
