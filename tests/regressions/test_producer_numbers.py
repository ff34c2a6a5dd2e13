"""Sequence numbers: an acknowledged record is there, once, and nothing that follows a failure is refused for ever."""

from __future__ import annotations

from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.exceptions import DeliveryError
from gkafka.testing import Close, Edit, Error, MockCluster
from tests.core.fakes import MetadataRequest, Rig, told
from tests.public.aids import LIMIT_S, Runner, error_of, stored_values
from tests.regressions.aids import NOT_LEADER, OUT_OF_ORDER, QUICK, TIMED_OUT, Held, gaps, numbered, sent_batches


def answered(code: int) -> Edit:
    """The broker acts, and answers this code for every partition."""

    def edit(request: Any, answer: Any) -> Any:
        for topic in answer.responses:
            for part in topic.partition_responses:
                part.error_code, part.base_offset = code, -1
        return answer

    return Edit(edit)


@pytest.mark.parametrize("missing", ["left out", "unknown", "without partitions"])
def test_b01_a_topic_that_is_missing_for_a_moment_keeps_its_numbers(client: KafkaClient, cluster: MockCluster, missing: str) -> None:
    """B01 librdkafka#3712: a restarting broker does not tell of the topic, its numbers begin anew at 0: acknowledged as duplicates, lost."""

    holes: list[None] = []

    def without(request: Any, answer: Any) -> Any:
        holes.append(None)
        for topic in answer.topics:
            topic.partitions = []
            topic.error_code = 3 if missing == "unknown" else 0
        if missing == "left out":
            answer.topics = []
        return answer

    producer = client.get_producer(linger_ms=0, **QUICK)
    told_offsets = [producer.produce("t", value).result(LIMIT_S).offset for value in numbered(3)]
    cluster.on("Metadata", Edit(without), times=2)
    cluster.on("Produce", Error(NOT_LEADER), times=None, when=lambda request: len(holes) < 2)
    deliveries = [producer.produce("t", value, partition=0) for value in numbered(5, 3)]
    told_offsets += [delivery.result(LIMIT_S).offset for delivery in deliveries]
    told_offsets += [producer.produce("t", value, partition=0).result(LIMIT_S).offset for value in numbered(3, 8)]  # numbered since
    assert stored_values(cluster) == numbered(11)
    assert told_offsets == list(range(11)), "what is acknowledged is there"
    assert len(holes) == 2, "the topic was really gone"
    assert gaps(sent_batches(cluster)) == []
    assert producer.stats()["epoch_bumps"] == 0


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_b11_a_retry_is_the_same_bytes(client: KafkaClient, cluster: MockCluster, compression: str | None) -> None:
    """B11 librdkafka#4736: a batch was built anew for its retry, with other records or times: the broker does not know it again."""
    producer = client.get_producer(linger_ms=2, batch_bytes=2000, compression=compression, **QUICK)
    cluster.on("Produce", Close(before=False))
    cluster.on("Produce", Error(NOT_LEADER), times=2)
    cluster.on("Produce", Close(before=True))
    for value in numbered(400):
        producer.produce("t", value * 3, b"k", headers=[("h", b"1")])
    producer.flush(LIMIT_S)
    assert stored_values(cluster) == [value * 3 for value in numbered(400)]
    tries: dict[tuple[int, int, int], list[bytes]] = {}
    for batch in sent_batches(cluster):
        tries.setdefault((batch.producer_id, batch.epoch, batch.sequence), []).append(batch.data)
    assert max(map(len, tries.values())) >= 4
    for number, datas in tries.items():
        assert set(datas) == {datas[0]}, number


def test_b12_a_timeout_that_the_broker_tells_does_not_mean_that_nothing_was_written(client: KafkaClient, cluster: MockCluster) -> None:
    """B12 franz-go#1217: REQUEST_TIMED_OUT was taken as "not produced", its number given to the next batch, which was deduplicated away."""
    producer = client.get_producer(linger_ms=0, retries=0, **QUICK)
    producer.produce("t", b"0").result(LIMIT_S)
    cluster.on("Produce", answered(TIMED_OUT))
    assert type(producer.produce("t", b"1").exception(LIMIT_S)).__name__ == "RequestTimedOut"
    assert [producer.produce("t", value).result(LIMIT_S).offset for value in (b"2", b"3")] == [2, 3]
    error = error_of(producer.flush)
    assert isinstance(error, DeliveryError)
    assert [(r.record.value, r.persisted) for r in error.records] == [(b"1", "maybe")]
    assert stored_values(cluster) == [b"0", b"1", b"2", b"3"]


def test_b12_a_timeout_that_the_broker_tells_is_retried_under_the_same_number(client: KafkaClient, cluster: MockCluster) -> None:
    """B12 franz-go#1217: so the broker knows it again."""
    producer = client.get_producer(linger_ms=0, **QUICK)
    cluster.on("Produce", answered(TIMED_OUT), times=3)
    deliveries = [producer.produce("t", value) for value in numbered(9)]
    assert all(delivery.exception(LIMIT_S) is None for delivery in deliveries)
    assert stored_values(cluster) == numbered(9)
    assert producer.stats()["epoch_bumps"] == 0


@pytest.mark.parametrize("written", [True, False])
def test_b13_a_batch_that_may_be_persisted_leaves_nothing_that_stops_the_next(
    client: KafkaClient, cluster: MockCluster, written: bool
) -> None:
    """B13 librdkafka#4438: a possibly persisted batch moved the expected number on, and all that followed was out of order, fatally."""
    producer = client.get_producer(linger_ms=0, retries=0, **QUICK)
    producer.produce("t", b"0").result(LIMIT_S)
    cluster.on("Produce", Close(before=not written))
    assert producer.produce("t", b"lost").exception(LIMIT_S) is not None
    for value in numbered(5, 1):
        producer.produce("t", value).result(LIMIT_S)
    error = error_of(producer.flush)
    assert isinstance(error, DeliveryError)
    assert [(r.record.value, r.persisted) for r in error.records] == [(b"lost", "maybe")]
    assert stored_values(cluster) == [b"0", *([b"lost"] if written else []), *numbered(5, 1)]
    assert producer.stats()["epoch_bumps"] == 1
    assert len(sent_batches(cluster)) == 7, "nobody was refused on the way"
    assert gaps(sent_batches(cluster)) == []


def test_b13_a_batch_that_timed_out_here_leaves_nothing_that_stops_the_next(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    """B13 librdkafka#4438, with a delivery timeout: the broker has not read it yet, and reads it after all."""
    producer = client.get_producer(linger_ms=0, delivery_timeout_ms=2000, request_timeout_ms=60_000, **QUICK)
    producer.produce("t", b"0").result(LIMIT_S)
    held = Held()
    cluster.on("Produce", held)
    late = producer.produce("t", b"late")
    assert late.exception(LIMIT_S) is not None
    held.released = True
    run.until(lambda: stored_values(cluster) == [b"0", b"late"])
    error = error_of(producer.flush)
    assert [r.persisted for r in error.records] == ["maybe"]  # type: ignore[attr-defined]
    for value in numbered(5, 1):
        producer.produce("t", value).result(LIMIT_S)
    assert stored_values(cluster) == [b"0", b"late", *numbered(5, 1)]
    assert gaps([b for b in sent_batches(cluster) if b.epoch]) == []


def test_b14_what_is_out_of_order_behind_a_lost_batch_starts_no_new_epoch(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    """B14 librdkafka#4953: at a change of leader those behind the first were out of order; taken for a loss, they doubled the first."""
    producer = client.get_producer(linger_ms=0, batch_bytes=200, **QUICK)
    producer.produce("t", b"first").result(LIMIT_S)
    held = Held(answered(NOT_LEADER))  # written, and the leader changed before it could say so
    cluster.on("Produce", held)
    cluster.on("Produce", Error(OUT_OF_ORDER), times=4)
    for value in numbered(30):
        producer.produce("t", value * 10)
    run.until(lambda: producer.stats()["requests"] == 1 + 5)
    held.released = True
    producer.flush(LIMIT_S)
    assert stored_values(cluster)[1:] == [value * 10 for value in numbered(30)]
    assert producer.stats()["epoch_bumps"] == 0


def test_b14_a_batch_that_the_old_leader_wrote_is_not_written_again_by_the_new_one(connect: Any, make_cluster: Any, run: Runner) -> None:
    """B14 librdkafka#4953: the leader goes with the acknowledgement; its follower knows the batch by its number."""
    cluster = make_cluster(brokers=3, topics={"t": 1}, replication_factor=3)
    producer = connect(cluster, reconnect_backoff_ms=5, reconnect_backoff_max_ms=20).get_producer(linger_ms=1, batch_bytes=200, **QUICK)
    for n in range(6):
        leader = cluster.leader("t", 0)
        cluster.on("Produce", Close(before=False), broker=leader)
        for value in numbered(10, n * 10):
            producer.produce("t", value, partition=0)
        run.until(lambda n=n: len(stored_values(cluster)) > n * 10)  # type: ignore[misc]
        cluster.move_leader("t", 0, leader % 3 + 1)
        producer.flush(LIMIT_S)
    assert stored_values(cluster) == numbered(60)
    assert producer.stats()["retried_batches"] >= 6
    assert producer.stats()["epoch_bumps"] == 0


def test_b15_the_numbers_go_on_when_a_broker_rejoins(connect: Any, make_cluster: Any, run: Runner) -> None:
    """B15 confluent-kafka-python#1128: after a broker left and came back the producer's numbers and the broker's did not agree any more."""
    cluster = make_cluster(brokers=2, topics={"t": 1}, replication_factor=2)
    producer = connect(cluster, reconnect_backoff_ms=5, reconnect_backoff_max_ms=20).get_producer(linger_ms=1, batch_bytes=200, **QUICK)
    sent = 0
    for _ in range(3):
        for leaves in (1, 2):
            cluster.move_leader("t", 0, leaves)
            for value in numbered(15, sent):
                producer.produce("t", value, partition=0)
            producer.flush(LIMIT_S)
            held = Held()
            cluster.on("Produce", held)
            for value in numbered(5, sent + 15):
                producer.produce("t", value, partition=0)
            run.until(lambda held=held: held.holds)  # type: ignore[misc]
            cluster.stop_broker(leaves)
            held.released = True
            for value in numbered(20, sent + 20):
                producer.produce("t", value, partition=0)
            sent += 40
            cluster.start_broker(leaves)
            producer.flush(LIMIT_S)
    assert stored_values(cluster) == numbered(sent)
    assert producer.stats()["epoch_bumps"] == 0
    assert gaps(sent_batches(cluster)) == []


def test_b15_the_numbers_belong_to_the_partition_not_to_its_leader() -> None:
    """B15 confluent-kafka-python#1128, in numbers: there and back again."""
    rig = Rig({0: 1})
    given = []
    for epoch, leader in enumerate((1, 2, 1, 3, 1), 2):
        rig.metadata.on_response(MetadataRequest(topics=None), told({0: leader}, epoch=epoch), rig.now)
        rig.full()
        (request,) = rig.sent()
        assert request.broker_id == leader
        given.append(request.batches[0].extra.sequence)
        rig.answer(request)
    assert given == [0, 10, 20, 30, 40]
