"""A broker that takes no batch in which a record is bad, and names those, as Kafka does with a record without a key for a compacted topic (KIP-467)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gkafka.testing import Action, StoredRecord
from gkafka.testing.logs import decode
from gkafka.wire.produce import BatchIndexAndErrorMessage, PartitionProduceResponse, TopicProduceResponse

__all__ = ["Refuse", "keyless"]

INVALID_RECORD = 87


def keyless(record: StoredRecord) -> str | None:
    """What Kafka says of a record for a compacted topic; None: it takes it."""
    return "Compacted topic cannot accept message without key in topic partition t-0." if record.key is None else None


class Refuse(Action):
    """Refuse the batches with such records, and take the others. says: what the broker says of a record; None: it is a good one. code: of the answer."""

    def __init__(self, says: Callable[[StoredRecord], str | None] = keyless, *, code: int = INVALID_RECORD) -> None:
        self._says, self._code = says, code

    def run(self, call: Any) -> None:
        refused: list[TopicProduceResponse] = []
        for topic in call.request.message.topic_data:
            bad = {data.index: said for data in topic.partition_data if (said := self._named(bytes(data.records)))}
            topic.partition_data = [data for data in topic.partition_data if data.index not in bad]
            rows = [
                PartitionProduceResponse(
                    index=index,
                    error_code=self._code,
                    base_offset=-1,
                    record_errors=said,
                    error_message="One or more records have been rejected",
                )
                for index, said in bad.items()
            ]
            refused.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=rows))

        def answer(given: Any) -> None:
            if given is not None:
                given.responses += [topic for topic in refused if topic.partition_responses]
            call.send(given)

        call.act(answer)

    def _named(self, batch: bytes) -> list[BatchIndexAndErrorMessage]:
        said = [(index, self._says(record)) for index, record in enumerate(decode(batch))]
        return [BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=text) for index, text in said if text is not None]
