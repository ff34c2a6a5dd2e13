"""The producer's requests: built from batches, and what an answer or its absence says of each.

Source: KIP-516 (topic ids), KIP-951 (the answer names a new leader)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gkafka.brokererrors import (
    BrokerError,
    KafkaStorageError,
    NetworkException,
    NotEnoughReplicasAfterAppend,
    NotLeaderForPartition,
    RequestTimedOut,
    UnknownBrokerError,
    UnknownError,
    error_for,
)
from gkafka.core.accumulator import Key, PartitionQueue
from gkafka.core.metadata import BrokerInfo
from gkafka.core.namedrecords import Named
from gkafka.exceptions import ConnectionFailedError, KafkaException, LeaderNotFoundError, ProtocolError
from gkafka.wire.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from gkafka.wire.templates import BatchRequest, ProduceTemplate

if TYPE_CHECKING:
    from gkafka.core.metadata import Metadata
    from gkafka.records import Batch

__all__ = ["Answer", "Outgoing", "ProduceRequests", "is_unsent", "is_unwritten", "left_out", "read_answer"]

MOST_TEMPLATES = 10_000
"""Partitions of which a request is kept; each takes about 1 KB."""
NOT_SENT = (ConnectionFailedError, LeaderNotFoundError)
"""The batch has not left: no connection was made to its leader, or there is none."""
MAYBE_WRITTEN = (UnknownError, RequestTimedOut, NetworkException, NotEnoughReplicasAfterAppend, KafkaStorageError, UnknownBrokerError)
"""Broker errors that leave open whether the batch was written."""

Answer = tuple[int, int, "KafkaException | None", Named]
"""For one batch: base offset, log append time, error, and the records that are at fault."""


class Outgoing(NamedTuple):
    """Batches for one broker, at most one of a partition.

    The driver seals them, in this order, before they go out.
    """

    broker_id: int
    batches: list[Batch]


class ProduceRequests:
    """Builds the requests of one producer.

    A request of a single batch is made from a template of its partition: only its records are new.
    """

    def __init__(self, acks: int, ack_timeout_s: float, transactional_id: str | None) -> None:
        self.acks, self._timeout_ms, self._transactional_id = acks, int(ack_timeout_s * 1000), transactional_id
        self._templates: dict[Key, ProduceTemplate] = {}

    def build(self, outgoing: Outgoing) -> ProduceRequest | BatchRequest:
        """Return the request for batches that are sealed."""
        if len(outgoing.batches) == 1 and isinstance(outgoing.batches[0].wire, memoryview):
            return self._build_from_template(outgoing.batches[0])
        return self._build_message(outgoing)

    def _build_from_template(self, batch: Batch) -> BatchRequest:
        queue: PartitionQueue = batch.extra.queue
        template = self._templates.get(queue.key)
        if template is None or (template.topic_id is not queue.topic_id and template.topic_id != queue.topic_id):
            if len(self._templates) >= MOST_TEMPLATES:
                self._templates.clear()
            template = self._templates[queue.key] = ProduceTemplate(self._build_message(Outgoing(-1, [batch])))
        return BatchRequest(template, batch.wire)

    def _build_message(self, outgoing: Outgoing) -> ProduceRequest:
        topics: dict[str, TopicProduceData] = {}
        for batch in outgoing.batches:
            topic = topics.get(batch.topic)
            if topic is None:
                topic = topics[batch.topic] = TopicProduceData(name=batch.topic, topic_id=batch.extra.queue.topic_id, partition_data=[])
            topic.partition_data.append(PartitionProduceData(index=batch.partition, records=batch.wire))
        return ProduceRequest(
            transactional_id=self._transactional_id,
            acks=self.acks,
            timeout_ms=self._timeout_ms,
            topic_data=list(topics.values()),
        )


def read_answer(outgoing: Outgoing, response: ProduceResponse, metadata: Metadata) -> dict[Key, Answer]:
    """Return what the broker says of each partition. New leaders that it names go to the metadata,
    without the lock of their owner: see `Metadata`.

    Recent versions name a topic by its id alone: the id that it had when its batches were sent.
    """
    answers: dict[Key, Answer] = {}
    named = not response.responses or bool(response.responses[0].name)
    names = {} if named else {batch.extra.queue.topic_id: batch.topic for batch in outgoing.batches}
    if response.node_endpoints:
        metadata.add_brokers(BrokerInfo(e.node_id, e.host, e.port, e.rack) for e in response.node_endpoints)
    for topic in response.responses:
        name = topic.name or names.get(topic.topic_id, "")
        for p in topic.partition_responses:
            problem = error_for(p.error_code, p.error_message, topic=name, partition=p.index, api="Produce") if p.error_code else None
            answers[name, p.index] = (p.base_offset, p.log_append_time_ms, problem, p.record_errors)
            if p.current_leader.leader_id >= 0:
                metadata.leader_moved(name, p.index, p.current_leader.leader_id, p.current_leader.leader_epoch)
    return answers


def left_out(batch: Batch, broker_id: int) -> Answer:
    """Return what stands for the answer to a batch that the broker's response does not mention."""
    text = f"broker {broker_id} left {batch.topic}-{batch.partition} out of its answer to a produce request"
    return -1, -1, ProtocolError(text, topic=batch.topic, partition=batch.partition, broker=broker_id, api="Produce"), ()


def is_unsent(error: KafkaException) -> bool:
    """Return whether the error proves that the batch never left."""
    return error.never_sent or isinstance(error, NOT_SENT)


def is_unwritten(error: KafkaException, acks: int) -> bool:
    """Return whether the error proves that this try did not write the batch.

    With acks=all NOT_LEADER_OR_FOLLOWER is no proof: a leader also answers so when it loses the
    partition while it waits for the followers. One of them has the batch, and may lead next (B14).
    """
    maybe_written = (*MAYBE_WRITTEN, NotLeaderForPartition) if acks == -1 else MAYBE_WRITTEN
    return is_unsent(error) or (isinstance(error, BrokerError) and not isinstance(error, maybe_written))
