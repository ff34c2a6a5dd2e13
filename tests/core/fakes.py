"""Stand-ins for the pure suites: batches without bytes, and metadata that was told by hand."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from random import Random
from typing import Any

from gkafka.core.accumulator import Accumulator, PartitionQueue
from gkafka.core.backoff import Backoff
from gkafka.core.deliverylimits import DeliveryLimits
from gkafka.core.metadata import Metadata
from gkafka.core.sender import Outgoing, Poll, Sender, SenderSettings, Settled
from gkafka.exceptions import KafkaException
from gkafka.wire.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from gkafka.wire.produce import BatchIndexAndErrorMessage, PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from gkafka.wire.txn import InitProducerIdResponse

TOPIC_ID = uuid.UUID(int=7)


def told(
    leaders: dict[int, int], *, topic: str = "t", brokers: int = 3, epoch: int = 1, error: int = 0, topic_id: uuid.UUID = TOPIC_ID
) -> MetadataResponse:
    """A metadata answer: partition -> leader."""
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=i, host="h", port=9000 + i) for i in range(1, brokers + 1)],
        controller_id=1,
        topics=[
            MetadataResponseTopic(
                name=topic,
                topic_id=topic_id,
                error_code=error,
                partitions=[
                    MetadataResponsePartition(partition_index=p, leader_id=leader, leader_epoch=epoch, replica_nodes=[1], isr_nodes=[1])
                    for p, leader in leaders.items()
                ],
            )
        ],
    )


def metadata(leaders: dict[int, int] | None = None, **about: Any) -> Metadata:
    """Metadata that knows topic "t" with these leaders."""
    known = Metadata(max_age_s=300, max_idle_s=300, backoff=Backoff(0.1, 1.0), chance=Random(1), auto_create=True)
    if leaders is not None:
        known.on_response(MetadataRequest(topics=None), told(leaders, **about), 0.0)
    return known


class FakeBatch:
    """What the sender sees of a batch."""

    def __init__(self, partition: int, *, created: float = 0.0, count: int = 10, size: int = 1000, topic: str = "t") -> None:
        self.topic, self.partition, self.created, self.count, self.size = topic, partition, created, count, size
        self.attempts, self.extra, self.sealed, self.wire, self.wire_size = 0, None, False, b"x" * size, size
        self.first, self.done, self.parts, self.parent, self.is_open = 0, False, None, None, True

    def split(self, limit: int) -> list[FakeBatch]:
        """Two halves, like the real one; or cut before the record that gkafka.records._split.before() names."""
        half, each = -limit if limit < 0 else self.count // 2, self.size // self.count
        parts = [
            FakeBatch(self.partition, created=self.created, count=n, size=n * each, topic=self.topic) for n in (half, self.count - half)
        ]
        parts[0].first, parts[1].first = self.first, self.first + half
        return parts

    def __repr__(self) -> str:
        return f"<batch {self.partition} seq={self.extra.sequence if self.extra else None}>"


class Rig:
    """A sender over fake batches, with the verbs of a test.

    strangers: no partition has a batch of this producer yet, so the first goes alone.
    """

    def __init__(
        self,
        leaders: dict[int, int] | None = None,
        *,
        idempotence: bool | None = True,
        strangers: bool = False,
        delivery_timeout_s: float = 120.0,
        retries: int | None = None,
        set_limit: Callable[[str, int], None] = lambda topic, size: None,
        **options: Any,
    ) -> None:
        self.metadata = metadata(leaders or {0: 1})
        self._known = () if strangers else tuple(leaders or {0: 1})
        self.accumulator = Accumulator()
        self.now = 0.0
        settings: dict[str, Any] = {
            "acks": -1,
            "idempotence": idempotence,
            "linger_s": 0.005,
            "batch_bytes": 4096,
            "max_request_bytes": 1 << 20,
            "max_in_flight": 5,
            "ack_timeout_s": 30.0,
            "backoff": Backoff(0.1, 1.0),
        }
        self.sender = Sender(
            self.accumulator,
            self.metadata,
            SenderSettings(**{**settings, **options}),
            DeliveryLimits(delivery_timeout_s, retries),
            roll=self._roll,
            set_limit=set_limit,
            chance=Random(1),
        )
        if idempotence:
            self.grant()

    def _roll(self, topic: str, partition: int) -> Any:
        return self.accumulator.open.get((topic, partition))

    def grant(self, producer_id: int = 77, epoch: int = 0) -> None:
        """Make it ask for a producer id, and answer."""
        probe = FakeBatch(99)
        self.accumulator.unsettled[probe] = None  # type: ignore[index]
        assert self.sender.poll(self.now).ask_producer_id
        del self.accumulator.unsettled[probe]  # type: ignore[arg-type]
        self.sender.on_producer_id(InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch), None, self.now)
        for partition in self._known:
            queue = self.accumulator.queues.setdefault(("t", partition), PartitionQueue(("t", partition)))
            queue.producer = self.sender.producer
            queue.known_to = producer_id
            queue.topic_id = self.metadata.topic_id("t")

    def open(self, partition: int = 0, **about: Any) -> Any:
        """A batch that still grows."""
        batch: Any = FakeBatch(partition, created=self.now, **about)
        self.accumulator.opened(batch)
        return batch

    def full(self, partition: int = 0, **about: Any) -> Any:
        """A batch that was rolled because it is full."""
        batch = self.open(partition, **about)
        self.accumulator.rolled(batch)
        return batch

    def poll(self) -> Poll:
        return self.sender.poll(self.now)

    def due(self) -> float:
        """When to poll again, after a poll."""
        self.poll()
        return self.sender.next_due(self.now)

    def expired(self) -> list[Settled]:
        """What a poll settles: its time is over."""
        return self.settled_by(self.poll)[0]

    def settled_by(self, step: Callable[[], Any]) -> tuple[list[Settled], Any]:
        """The outcomes that a step adds, and what it returns."""
        already = len(self.sender.outcomes.ended)
        returned = step()
        return self.sender.outcomes.ended[already:], returned

    def sent(self) -> list[Outgoing]:
        return self.poll().requests

    def answer(
        self,
        outgoing: Outgoing,
        codes: dict[int, int] | int = 0,
        *,
        offset: int = 100,
        named: dict[int, dict[int, str | None]] | None = None,
        **about: Any,
    ) -> Any:
        """The broker answers: one error code for all partitions, or one for each. named: by partition the records at fault, and its words for each."""
        rows = [
            PartitionProduceResponse(
                index=b.partition,
                error_code=codes if isinstance(codes, int) else codes.get(b.partition, 0),
                base_offset=offset,
                record_errors=[
                    BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=text)
                    for index, text in (named or {}).get(b.partition, {}).items()
                ],
            )
            for b in outgoing.batches
        ]
        response = ProduceResponse(responses=[TopicProduceResponse(name="t", topic_id=TOPIC_ID, partition_responses=rows)], **about)
        return self.settled_by(lambda: self.sender.on_answer(outgoing, response, None, self.now))

    def tell(self) -> list[Any]:
        """What a driver does with outcomes; the batches."""
        taken = self.sender.outcomes.take_ended()
        for outcome in taken:
            outcome.batch.done = True
        self.sender.outcomes.told(taken)
        return [outcome.batch for outcome in taken]

    def lose(self, outgoing: Outgoing, error: KafkaException) -> Any:
        """The connection breaks before the answer."""
        return self.settled_by(lambda: self.sender.on_answer(outgoing, None, error, self.now))
