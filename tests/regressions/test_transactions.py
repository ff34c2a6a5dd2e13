"""Transactions: a commit means that everything of the transaction is there."""

from __future__ import annotations

from typing import Any

import pytest

from gkafka.exceptions import TransactionAbortableError
from gkafka.testing import Drop, Error, MockCluster
from tests.public.aids import LIMIT_S, short_of_time
from tests.regressions.aids import OUT_OF_ORDER, QUICK, numbered, sent_batches


@pytest.fixture(params=[0, 2], ids=["v1", "v2"])
def cluster(request: pytest.FixtureRequest, make_cluster: Any) -> MockCluster:
    """Both kinds of transactions: 2 is KIP-890's."""
    made: MockCluster = make_cluster(2, {"t": 1}, replication_factor=2, transaction_version=request.param)
    return made


def seen(cluster: MockCluster) -> list[bytes | None]:
    return [record.value for record in cluster.log("t", 0, committed=True)]


def test_b02_no_epoch_begins_inside_a_transaction(connect: Any, cluster: MockCluster) -> None:
    """B02 librdkafka#3575: leaders moved, a batch was out of order, a new epoch began another transaction: the commit lost what was before."""
    producer = connect(cluster).get_producer(transactional_id="x", linger_ms=0, **QUICK)

    def write(*, disturbed: bool) -> bool:
        try:
            with producer.transaction():
                for value in numbered(10):
                    producer.produce("t", value, partition=0)
                producer.flush(LIMIT_S)
                if disturbed:
                    cluster.on("Produce", Error(OUT_OF_ORDER))
                    cluster.move_leader("t", 0, 3 - cluster.leader("t", 0))
                for value in numbered(10, 10):
                    producer.produce("t", value, partition=0)
        except TransactionAbortableError:
            return False
        return True

    committed = write(disturbed=True)
    assert len({(b.producer_id, b.epoch) for b in sent_batches(cluster)}) == 1, "one transaction, one epoch"
    first = seen(cluster)
    assert first == (numbered(20) if committed else []), "all of it, or nothing"
    assert write(disturbed=False)
    assert seen(cluster) == first + numbered(20)


def test_b03_a_record_that_timed_out_here_fails_the_commit(connect: Any, cluster: MockCluster) -> None:
    """B03 librdkafka v1.5.2: a message that timed out in the producer did not fail the transaction, which committed without it."""
    producer = connect(cluster).get_producer(transactional_id="x", linger_ms=0, request_timeout_ms=5000, **QUICK)
    producer.begin_transaction()
    producer.produce("t", b"there", partition=0).result(LIMIT_S)
    cluster.on("Produce", Drop(before=True))
    with short_of_time(producer, 1.0):
        assert producer.produce("t", b"late", partition=0).exception(LIMIT_S) is not None
    with pytest.raises(TransactionAbortableError):
        producer.commit_transaction(LIMIT_S)
    producer.abort_transaction(LIMIT_S)
    assert seen(cluster) == []
    with producer.transaction():
        producer.produce("t", b"again", partition=0)
    assert seen(cluster) == [b"again"]
