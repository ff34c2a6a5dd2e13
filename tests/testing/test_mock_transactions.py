"""Transactions of the mock cluster, asked for by hand: ids, epochs, what is added, markers, and what read_committed is told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gkafka.testing import MockCluster
from gkafka.wire.apiversions import ApiVersionsRequest
from gkafka.wire.offsets import OffsetFetchRequest, OffsetFetchRequestTopic
from gkafka.wire.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gkafka.wire.txn import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.testing.client import PlainClient, batch

TRANSACTIONAL = 16
UNKNOWN_TOPIC, NOT_COORDINATOR, ILLEGAL_GENERATION, INVALID_EPOCH, INVALID_STATE, INVALID_ID, NOT_ATTEMPTED, CONCURRENT, FENCED = (
    *(3, 16, 22, 47, 48),
    *(49, 55, 51, 90),
)
UNSTABLE = 88


class Hand:
    """A producer by hand. v2: of KIP-890's kind."""

    def __init__(self, client: PlainClient, *, v2: bool, name: str = "x") -> None:
        self.client, self.v2, self.name = client, v2, name
        self.pid = self.epoch = -1
        self.sequence = 0

    def init(self, *, resume: bool = False, version: int = 5) -> int:
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=60_000)
        if resume:
            request.producer_id, request.producer_epoch = self.pid, self.epoch
        answer = self.client.ask(request, version)
        if not answer.error_code:
            self.pid, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0
        return int(answer.error_code)

    def add(self, *partitions: int, topic: str = "t", version: int = 3) -> list[int]:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.pid,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
        )
        (found,) = self.client.ask(request, version).results_by_topic_v3_and_below
        return [p.partition_error_code for p in found.results_by_partition]

    def produce(self, value: bytes, partition: int = 0, *, name: str | None = "x", version: int | None = None) -> int:
        data = batch(value, pid=self.pid, epoch=self.epoch, sequence=self.sequence, attributes=TRANSACTIONAL)
        request = ProduceRequest(
            transactional_id=name,
            acks=-1,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(index=partition, records=data)])],
        )
        answer = self.client.ask(request, version if version is not None else 12 if self.v2 else 11)
        code = int(answer.responses[0].partition_responses[0].error_code)
        self.sequence += not code
        return code

    def end(self, *, commit: bool) -> int:
        request = EndTxnRequest(transactional_id=self.name, producer_id=self.pid, producer_epoch=self.epoch, committed=commit)
        answer = self.client.ask(request, 5 if self.v2 else 4)
        if self.v2 and not answer.error_code:
            if (answer.producer_id, answer.producer_epoch) != (self.pid, self.epoch):
                self.sequence = 0
            self.pid, self.epoch = answer.producer_id, answer.producer_epoch
        return int(answer.error_code)

    def add_group(self) -> int:
        request = AddOffsetsToTxnRequest(transactional_id=self.name, producer_id=self.pid, producer_epoch=self.epoch, group_id="g")
        return int(self.client.ask(request).error_code)

    def commit_offset(self, offset: int, **member: Any) -> int:
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id="g",
            producer_id=self.pid,
            producer_epoch=self.epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name="t",
                    partitions=[TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="m")],
                )
            ],
            **member,
        )
        return int(self.client.ask(request, 5 if self.v2 else 4).topics[0].partitions[0].error_code)


@pytest.fixture(params=[0, 2], ids=["v1", "v2"])
def version(request: pytest.FixtureRequest) -> int:
    value: int = request.param
    return value


@pytest.fixture
def cluster(version: int) -> Iterator[MockCluster]:
    with MockCluster(topics={"t": 2}, transaction_version=version) as made:
        yield made


@pytest.fixture
def client(cluster: MockCluster) -> Iterator[PlainClient]:
    with PlainClient(cluster) as made:
        yield made


@pytest.fixture
def hand(client: PlainClient, version: int) -> Hand:
    made = Hand(client, v2=version == 2)
    assert made.init() == 0
    return made


def begin(hand: Hand, *partitions: int) -> None:
    """What the old kind needs before it sends."""
    if not hand.v2:
        assert set(hand.add(*(partitions or (0,)))) == {0}


def values(cluster: MockCluster, *, committed: bool = True) -> list[bytes | None]:
    return [record.value for record in cluster.log("t", 0, committed=committed)]


def test_the_feature_says_which_kind_is_switched_on(client: PlainClient, version: int) -> None:
    features = {f.name: f.max_version_level for f in client.ask(ApiVersionsRequest()).finalized_features}
    assert features == ({"transaction.version": 2} if version else {})


def test_committed_records_are_seen_and_aborted_ones_are_not(cluster: MockCluster, hand: Hand) -> None:
    for commit, value in ((True, b"a"), (False, b"b"), (True, b"c")):
        begin(hand)
        assert hand.produce(value) == 0
        assert cluster.transaction("x").status == "Ongoing"  # type: ignore[union-attr]
        assert value not in values(cluster)
        assert hand.end(commit=commit) == 0
    assert values(cluster) == [b"a", b"c"]
    assert values(cluster, committed=False) == [b"a", b"b", b"c"]
    assert cluster.offsets("t", 0) == (0, 6), "each transaction ends with a marker"
    assert hand.epoch == (3 if hand.v2 else 0)


def test_a_read_committed_fetch_stops_at_the_open_transaction_and_is_told_of_aborted_ones(
    cluster: MockCluster, client: PlainClient, hand: Hand
) -> None:
    begin(hand)
    hand.produce(b"aborted")
    hand.end(commit=False)
    begin(hand)
    hand.produce(b"open")
    client.produce(batch(b"after"))
    fetched = client.fetch(0, isolation_level=1)
    assert (fetched.last_stable_offset, fetched.high_watermark) == (2, 4)
    assert [(a.producer_id, a.first_offset) for a in fetched.aborted_transactions] == [(hand.pid, 0)]
    assert client.fetch(2, isolation_level=1).aborted_transactions == [], "it ended before this offset"
    assert client.offset(-1, isolation_level=1).offset == 2
    assert values(cluster) == []
    hand.end(commit=True)
    assert values(cluster) == [b"open", b"after"]


def test_a_batch_needs_a_transaction_that_is_open(client: PlainClient, hand: Hand) -> None:
    assert hand.produce(b"a", name=None) == INVALID_STATE
    assert hand.produce(b"a", version=11) == INVALID_STATE, "the old kind adds first, and so must whoever speaks the old version"
    assert hand.add(0) == [0]
    assert hand.produce(b"a", version=11) == 0
    assert hand.produce(b"a", partition=1, version=11) == INVALID_STATE


def test_partitions_are_added_together_or_not_at_all(client: PlainClient, hand: Hand) -> None:
    assert hand.add(0, 5) == [NOT_ATTEMPTED, UNKNOWN_TOPIC]
    assert hand.produce(b"a", version=11) == INVALID_STATE
    transaction = AddPartitionsToTxnTransaction(
        transactional_id="x",
        producer_id=hand.pid,
        producer_epoch=hand.epoch,
        verify_only=True,
        topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
    )
    for code in (INVALID_STATE, 0):
        (result,) = client.ask(AddPartitionsToTxnRequest(transactions=[transaction]), 5).results_by_transaction
        assert result.topic_results[0].results_by_partition[0].partition_error_code == code
        hand.add(0)


def test_a_new_owner_ends_the_open_transaction_and_fences_the_old_one(cluster: MockCluster, client: PlainClient, hand: Hand) -> None:
    begin(hand)
    hand.produce(b"old")
    new = Hand(client, v2=hand.v2)
    assert new.init() == CONCURRENT, "the open transaction is aborted first"
    assert new.init() == 0
    assert hand.produce(b"old") == INVALID_EPOCH
    assert hand.end(commit=True) == FENCED
    assert hand.add(0) == [FENCED]
    assert hand.add(0, version=1) == [INVALID_EPOCH]
    assert hand.init(resume=True) == FENCED
    assert hand.init(resume=True, version=3) == INVALID_EPOCH
    begin(new)
    assert new.produce(b"new") == 0
    assert new.end(commit=True) == 0
    assert values(cluster) == [b"new"]


def test_a_producer_takes_the_next_epoch_of_its_id(hand: Hand) -> None:
    """KIP-360; a repetition, because the answer was lost, gives the same."""
    before = hand.epoch
    assert hand.init(resume=True) == 0
    assert hand.epoch == before + 1
    hand.epoch = before
    assert hand.init(resume=True) == 0
    assert hand.epoch == before + 1
    hand.pid += 1000
    assert hand.init(resume=True) == INVALID_ID


def test_an_end_may_be_repeated_but_not_changed(cluster: MockCluster, hand: Hand) -> None:
    begin(hand)
    hand.produce(b"a")
    first = hand.epoch
    assert hand.end(commit=True) == 0
    after, hand.epoch = hand.epoch, first
    assert hand.end(commit=True) == 0
    assert hand.epoch == after
    hand.epoch = first
    assert hand.end(commit=False) == INVALID_STATE
    assert values(cluster) == [b"a"]


def test_an_end_without_a_transaction(hand: Hand) -> None:
    assert hand.end(commit=True) == INVALID_STATE
    before = hand.epoch
    assert hand.end(commit=False) == (0 if hand.v2 else INVALID_STATE)
    assert hand.epoch == before + hand.v2


def test_offsets_count_when_the_transaction_is_committed(cluster: MockCluster, client: PlainClient, hand: Hand) -> None:
    for commit, offset in ((False, 5), (True, 7)):
        if not hand.v2:
            assert hand.commit_offset(offset) == INVALID_STATE
            assert hand.add_group() == 0
        assert hand.commit_offset(offset) == 0
        assert cluster.committed("g") == {}
        for stable, code in ((False, 0), (True, UNSTABLE)):
            asked = OffsetFetchRequest(
                group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])], require_stable=stable
            )
            (position,) = client.ask(asked, 7).topics[0].partitions
            assert (position.committed_offset, position.error_code) == (-1, code)
        assert hand.end(commit=commit) == 0
    assert {key: c.offset for key, c in cluster.committed("g").items()} == {("t", 0): 7}


def test_offsets_of_a_member_are_refused_where_there_is_no_group(hand: Hand) -> None:
    hand.add_group()
    assert hand.commit_offset(1, generation_id=3, member_id="m") == ILLEGAL_GENERATION


def test_a_coordinator_that_moved_says_so(version: int) -> None:
    with MockCluster(brokers=2, topics={"t": 1}, transaction_version=version) as cluster:
        cluster.move_coordinator("x", 2)
        cluster.move_coordinator("g", 2)
        with PlainClient(cluster, 1) as client:
            hand = Hand(client, v2=version == 2)
            assert hand.init() == NOT_COORDINATOR
            assert hand.add(0) == [NOT_COORDINATOR]
            assert hand.add_group() == NOT_COORDINATOR
            assert hand.commit_offset(1) == NOT_COORDINATOR
            assert hand.end(commit=True) == NOT_COORDINATOR


def test_a_transaction_that_is_open_too_long_is_aborted(cluster: MockCluster, client: PlainClient, version: int) -> None:
    hand = Hand(client, v2=version == 2)
    answer = client.ask(InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=50))
    hand.pid, hand.epoch = answer.producer_id, answer.producer_epoch
    begin(hand)
    hand.produce(b"late")
    cluster.wait_for(lambda: cluster.transaction("x").status == "CompleteAbort")  # type: ignore[union-attr]
    assert hand.end(commit=True) == (INVALID_STATE if hand.v2 else FENCED)
    assert values(cluster) == []


def test_epochs_that_are_used_up_lead_to_a_new_id(cluster: MockCluster, hand: Hand) -> None:
    cluster._loop.call(lambda: setattr(cluster._state.transactional["x"], "epoch", 32766))
    first, hand.epoch = hand.pid, 32766
    begin(hand)
    hand.produce(b"a")
    assert hand.end(commit=True) == 0
    if not hand.v2:
        assert hand.init(resume=True) == 0
    assert hand.pid != first
    assert hand.epoch == 0
    begin(hand)
    assert hand.produce(b"b") == 0
    assert hand.end(commit=True) == 0
    assert values(cluster) == [b"a", b"b"]
