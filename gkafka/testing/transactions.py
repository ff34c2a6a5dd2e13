"""Transactions as a coordinator keeps them: ids and epochs, what was added, the end and its markers.

Both kinds are here. The old one (KIP-98): partitions and groups are added before anything is sent to them, and an epoch lasts. The new one
(KIP-890, feature transaction.version 2): Produce v12 and TxnOffsetCommit v5 add by themselves, and each transaction ends its epoch. A request's
version says which kind it belongs to. Source: org.apache.kafka.coordinator.transaction.TransactionMetadata, TransactionCoordinator
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gkafka.testing.logs import Refused
from gkafka.testing.state import Committed, Partition, TransactionState
from gkafka.wire import txn
from gkafka.wire.apis import Message
from gkafka.wire.primitives import ZERO_UUID

if TYPE_CHECKING:
    from gkafka.testing.answers import Answers
    from gkafka.testing.server import Call

__all__ = ["Transactions"]

NOT_COORDINATOR, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, INVALID_ID_MAPPING = 16, 47, 48, 49
CONCURRENT_TRANSACTIONS, NOT_ATTEMPTED, PRODUCER_FENCED = 51, 55, 90
LAST_EPOCH = (1 << 15) - 2
V2_PRODUCE, V2_OFFSETS, V2_END = 12, 5, 5  # the versions whose meaning is KIP-890's


class Transactions:
    """The part of the brokers' answers that is about transactions. version: the level of the feature transaction.version."""

    def __init__(self, answers: Answers, *, changed: Callable[[], None], version: int) -> None:
        self._answers = answers
        self._changed = changed
        self._v2 = version >= 2

    # -- ids and epochs
    def init_producer_id(self, call: Call) -> Message:
        request: Any = call.request.message
        name = request.transactional_id
        state = self._answers.state
        if state.coordinator(name) != call.broker_id:
            return _no_id(NOT_COORDINATOR)
        found = state.transactional.get(name)
        if found is None:
            state.next_producer_id += 1
            found = state.transactional[name] = TransactionState(state.next_producer_id)
        code = self._claim(found, request, call.request.version)
        if code:
            return _no_id(code)
        found.timeout_ms = request.transaction_timeout_ms
        return txn.InitProducerIdResponse(producer_id=found.producer_id, producer_epoch=found.epoch)

    def _claim(self, found: TransactionState, request: Any, version: int) -> int:
        """Give the next epoch to whoever asks, unless it names an epoch that is not its any more (KIP-360)."""
        named = request.producer_id >= 0 and found.epoch >= 0
        if named and request.producer_id != found.producer_id:
            return INVALID_ID_MAPPING
        if named and request.producer_epoch != found.epoch:
            if request.producer_epoch == found.last_epoch and found.status != "Ongoing":
                return 0  # the answer to the first try was lost
            return PRODUCER_FENCED if version >= 4 else INVALID_PRODUCER_EPOCH
        if found.status == "Ongoing":
            self._finish(found, commit=False, fence=True)
            return CONCURRENT_TRANSACTIONS  # the asker tries again
        self._bump(found, last=found.epoch if named else -1)
        found.status = "Empty"
        return 0

    def _bump(self, found: TransactionState, *, last: int) -> None:
        if found.epoch >= LAST_EPOCH:
            self._answers.state.next_producer_id += 1
            found.producer_id, found.epoch, found.last_epoch = self._answers.state.next_producer_id, 0, -1
        else:
            found.epoch, found.last_epoch = found.epoch + 1, last

    def _owned(self, call: Call, name: str, producer_id: int, epoch: int, fenced: int = PRODUCER_FENCED) -> tuple[TransactionState, int]:
        """The transactional id and 0, or why the producer may not act for it."""
        found = self._answers.state.transactional.get(name, TransactionState(-1))
        if self._answers.state.coordinator(name) != call.broker_id:
            return found, NOT_COORDINATOR
        return found, _ownership(found, producer_id, epoch, fenced)

    # -- what is added
    def _open(self, found: TransactionState) -> None:
        if found.status == "Ongoing":
            return
        found.status = "Ongoing"
        found.number += 1
        number = found.number
        self._answers.after(found.timeout_ms / 1000, lambda: self._expire(found, number))

    def _expire(self, found: TransactionState, number: int) -> None:
        if found.status == "Ongoing" and found.number == number:
            self._finish(found, commit=False, fence=True)

    def add_partitions(self, call: Call) -> Message:
        request: Any = call.request.message
        if call.request.version >= 4:
            return txn.AddPartitionsToTxnResponse(
                results_by_transaction=[
                    txn.AddPartitionsToTxnResult(
                        transactional_id=t.transactional_id,
                        topic_results=self._add(call, t.transactional_id, t.producer_id, t.producer_epoch, t.topics, t.verify_only),
                    )
                    for t in request.transactions
                ]
            )
        name, producer_id, epoch = (
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
        )
        return txn.AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=self._add(call, name, producer_id, epoch, request.v3_and_below_topics, False)
        )

    def _add(
        self, call: Call, name: str, producer_id: int, epoch: int, topics: list[Any], verify_only: bool
    ) -> list[txn.AddPartitionsToTxnTopicResult]:
        fenced = PRODUCER_FENCED if call.request.version >= 2 else INVALID_PRODUCER_EPOCH
        found, code = self._owned(call, name, producer_id, epoch, fenced)
        asked = {(t.name, index): self._answers.find(t.name, ZERO_UUID, index) for t in topics for index in t.partitions}
        unknown = any(error for _, error in asked.values())
        codes = {}
        for key, (partition, error) in asked.items():
            codes[key] = code or error or (NOT_ATTEMPTED if unknown else 0)
            if codes[key] == 0 and verify_only:
                codes[key] = 0 if found.status == "Ongoing" and key in found.partitions else INVALID_TXN_STATE
            elif codes[key] == 0 and partition is not None:
                self._open(found)
                found.partitions[key] = partition
        return [
            txn.AddPartitionsToTxnTopicResult(
                name=t.name,
                results_by_partition=[
                    txn.AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=codes[t.name, index])
                    for index in t.partitions
                ],
            )
            for t in topics
        ]

    def add_offsets(self, call: Call) -> Message:
        request: Any = call.request.message
        found, code = self._owned(call, request.transactional_id, request.producer_id, request.producer_epoch)
        if not code:
            self._open(found)
            found.groups.setdefault(request.group_id, {})
        return txn.AddOffsetsToTxnResponse(error_code=code)

    def commit_offsets(self, call: Call) -> Message:
        request: Any = call.request.message
        found = self._answers.state.transactional.get(request.transactional_id, TransactionState(-1))
        code = self._offsets_code(call, request, found)
        pending = found.groups.setdefault(request.group_id, {}) if not code else {}
        topics = []
        for topic in request.topics:
            partitions = []
            for asked in topic.partitions:
                _, missing = self._answers.find(topic.name, ZERO_UUID, asked.partition_index)
                if not (code or missing):
                    pending[topic.name, asked.partition_index] = Committed(
                        asked.committed_offset, asked.committed_leader_epoch, asked.committed_metadata or ""
                    )
                partitions.append(txn.TxnOffsetCommitResponsePartition(partition_index=asked.partition_index, error_code=code or missing))
            topics.append(txn.TxnOffsetCommitResponseTopic(name=topic.name, partitions=partitions))
        return txn.TxnOffsetCommitResponse(topics=topics)

    def _offsets_code(self, call: Call, request: Any, found: TransactionState) -> int:
        if self._answers.state.coordinator(request.group_id) != call.broker_id:
            return NOT_COORDINATOR
        code = _ownership(found, request.producer_id, request.producer_epoch, INVALID_PRODUCER_EPOCH)
        if code:
            return code
        code = self._answers.groups.commit_error(
            request.group_id, request.member_id, request.group_instance_id, request.generation_id, transactional=True
        )
        if code:
            return code
        if self._v2 and call.request.version >= V2_OFFSETS:
            self._open(found)
        elif found.status != "Ongoing" or request.group_id not in found.groups:
            return INVALID_TXN_STATE
        return 0

    def pending(self, group: str) -> set[tuple[str, int]]:
        """Partitions of whose positions an open transaction has others (KIP-447)."""
        return {key for found in self._answers.state.transactional.values() for key in found.groups.get(group, ())}

    def gate(self, call: Call, partition: Partition) -> Callable[[int, int], None] | None:
        """What a leader asks before it appends a transactional batch; None for a request without a transactional id."""
        request: Any = call.request.message
        if request.transactional_id is None:
            return None
        found = self._answers.state.transactional.get(request.transactional_id, TransactionState(-1))
        key = (partition.topic, partition.index)

        def admit(producer_id: int, epoch: int) -> None:
            code = _ownership(found, producer_id, epoch, INVALID_PRODUCER_EPOCH)
            if code:
                raise Refused(code, f"producer {producer_id}, epoch {epoch}: {found.producer_id}, epoch {found.epoch} is in force")
            if self._v2 and call.request.version >= V2_PRODUCE:
                self._open(found)
                found.partitions[key] = partition
            elif found.status != "Ongoing" or key not in found.partitions:
                raise Refused(INVALID_TXN_STATE, f"{key[0]}-{key[1]} is in no open transaction of producer {producer_id}")

        return admit

    # -- the end
    def end(self, call: Call) -> Message:
        request: Any = call.request.message
        found, code = self._owned(call, request.transactional_id, request.producer_id, request.producer_epoch)
        v2 = self._v2 and call.request.version >= V2_END
        wanted = "CompleteCommit" if request.committed else "CompleteAbort"
        if v2 and code == PRODUCER_FENCED and found.status.startswith("Complete") and request.producer_epoch == found.epoch - 1:
            # Taken for a repetition, because the first answer was lost. So is the first try after the broker has ended the transaction itself.
            code = 0 if found.status == wanted else INVALID_TXN_STATE
        elif not code and found.status == "Ongoing":
            self._finish(found, commit=request.committed, bump=v2)
        elif not code and v2 and not request.committed:
            self._bump(found, last=found.epoch)  # nothing was added: the epoch ends all the same
            found.status = wanted
        elif not code and (v2 or found.status != wanted):
            code = INVALID_TXN_STATE
        if code or not v2:
            return txn.EndTxnResponse(error_code=code)
        return txn.EndTxnResponse(producer_id=found.producer_id, producer_epoch=found.epoch)

    def _finish(self, found: TransactionState, *, commit: bool, fence: bool = False, bump: bool = False) -> None:
        """Decide, and write the markers. fence: in a new epoch that nobody has. bump: in one that the answer tells."""
        owner, epoch = found.producer_id, found.epoch
        if fence or bump:
            epoch += 1  # also where it is the last one, which no producer is given
            self._bump(found, last=found.epoch if bump else -1)
        found.status = "CompleteCommit" if commit else "CompleteAbort"
        now_ms = int(time.time() * 1000)
        for partition in found.partitions.values():
            partition.log.mark(owner, epoch, commit=commit, now_ms=now_ms)
        for group, offsets in found.groups.items():
            if commit:
                self._answers.state.committed.setdefault(group, {}).update(offsets)
        found.partitions, found.groups = {}, {}
        self._changed()


def _ownership(found: TransactionState, producer_id: int, epoch: int, fenced: int) -> int:
    if found.producer_id != producer_id:
        return INVALID_ID_MAPPING
    return 0 if epoch == found.epoch else fenced


def _no_id(code: int) -> txn.InitProducerIdResponse:
    return txn.InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
