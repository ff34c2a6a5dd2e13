"""Records that a broker refuses by name: which error each of them gets, and their neighbours.

A produce answer may list the records that are at fault by their index in the batch (KIP-467). None
of the batch is in the log then, and the records that are not at fault may be sent again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gkafka.brokererrors import BrokerError, InvalidRecord, error_for
from gkafka.exceptions import BatchRefusedError, KafkaException
from gkafka.wire.produce import BatchIndexAndErrorMessage

if TYPE_CHECKING:
    from gkafka.records import Batch

__all__ = ["Named", "errors_by_index", "not_at_fault", "runs"]

Named = Sequence[BatchIndexAndErrorMessage]
"""The refused records of a batch, by their index in it, with the broker's message for each."""


def errors_by_index(batch: Batch, error: KafkaException, named: Named) -> dict[int, KafkaException]:
    """Return the error of each record that the broker names. Equal messages get the same error.

    The answer has one error code for the whole batch. If it names several records, each may have
    another fault, so the code counts for none of them, as in the Java client.
    """
    places = [entry for entry in named if 0 <= entry.batch_index < batch.count]
    code = error.code if len(places) == 1 and isinstance(error, BrokerError) else InvalidRecord.code
    told: dict[str | None, KafkaException | None] = {None: error, "": error}
    for entry in places:
        text = entry.batch_index_error_message
        if text not in told:
            told[text] = error_for(code, text, topic=batch.topic, partition=batch.partition, api="Produce")
    return {entry.batch_index: told[entry.batch_index_error_message] or error for entry in places}


def runs(count: int, at_fault: dict[int, KafkaException]) -> list[tuple[int, KafkaException | None]]:
    """Divide `count` records into runs of records with the same error.

    Return the index of the first record of each run, and the error, None if not at fault.
    """
    found: list[tuple[int, KafkaException | None]] = []
    for index in range(count):
        error = at_fault.get(index)
        if not found or found[-1][1] is not error:
            found.append((index, error))
    return found


def not_at_fault(part: Batch, count: int, cause: KafkaException, obstacle: str) -> BatchRefusedError:
    """Return the error of records that are not at fault and cannot be sent again either.

    count: how many others are at fault. obstacle: why these cannot be sent again.
    """
    text = f"{part.topic}-{part.partition}: {part.count} record(s) are not at fault: the broker refused {count} other(s) of their batch ({cause}); {obstacle}"
    error = BatchRefusedError(text, topic=part.topic, partition=part.partition, api="Produce")
    error.__cause__ = cause
    return error
