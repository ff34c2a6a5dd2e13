"""Produce requests, what an answer says of each batch, and what an error proves."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from gkafka.brokererrors import InvalidRecord, NotLeaderForPartition, RequestTimedOut
from gkafka.core.accumulator import PartitionQueue
from gkafka.core.namedrecords import runs
from gkafka.core.producerequests import Outgoing, ProduceRequests, is_unsent, is_unwritten, read_answer
from gkafka.exceptions import ConnectionFailedError, KafkaException, SocketDisconnectedError
from gkafka.wire.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from tests.core.fakes import FakeBatch, metadata


def sealed(partition: int, topic_id: int) -> Any:
    """Return a batch that can be sent to the topic with this id."""
    queue = PartitionQueue(("t", partition))
    batch: Any = FakeBatch(partition)
    queue.topic_id = uuid.UUID(int=topic_id)
    queue.push(batch)
    batch.wire = memoryview(batch.wire)
    return batch


def test_requests_of_one_batch_name_the_topic_by_the_id_of_each_batch() -> None:
    """Their frames come from a template of the partition, which is made anew with the topic."""
    requests = ProduceRequests(-1, 30.0, None)
    built: Any = [requests.build(Outgoing(1, [sealed(0, topic_id)])) for topic_id in (7, 7, 8)]
    first, second, third = (b"".join(request.encode(request.newest_version(), 1, None)) for request in built)
    assert first == second
    assert uuid.UUID(int=7).bytes in first
    assert uuid.UUID(int=8).bytes in third


def test_several_batches_make_one_message_with_the_options_of_the_producer() -> None:
    request: Any = ProduceRequests(1, 1.5, "tx").build(Outgoing(1, [sealed(0, 7), sealed(1, 7)]))
    assert (request.acks, request.timeout_ms, request.transactional_id) == (1, 1500, "tx")
    assert [[p.index for p in topic.partition_data] for topic in request.topic_data] == [[0, 1]]


def test_an_answer_by_topic_id_is_read_by_the_ids_that_were_sent() -> None:
    rows = [PartitionProduceResponse(index=0, base_offset=5, error_code=0)]
    response = ProduceResponse(responses=[TopicProduceResponse(name="", topic_id=uuid.UUID(int=9), partition_responses=rows)])
    answers = read_answer(Outgoing(1, [sealed(0, 9)]), response, metadata({0: 1}))
    assert [(key, answer[0], answer[2]) for key, answer in answers.items()] == [(("t", 0), 5, None)]


@pytest.mark.parametrize(
    ("error", "acks", "unsent", "unwritten"),
    [
        (ConnectionFailedError("refused"), -1, True, True),
        (SocketDisconnectedError("gone"), -1, False, False),
        (RequestTimedOut("late"), -1, False, False),
        (InvalidRecord("bad"), -1, False, True),
        (NotLeaderForPartition("moved"), -1, False, False),
        (NotLeaderForPartition("moved"), 1, False, True),
    ],
)
def test_what_an_error_proves(error: KafkaException, acks: int, unsent: bool, unwritten: bool) -> None:
    assert (is_unsent(error), is_unwritten(error, acks)) == (unsent, unwritten)


def test_records_with_the_same_error_are_one_run() -> None:
    first, second = InvalidRecord("a"), InvalidRecord("b")
    assert runs(6, {1: first, 2: first, 3: second}) == [(0, None), (1, first), (3, second), (4, None)]
