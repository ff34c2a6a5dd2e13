"""KafkaAdminClient's calls about transactions (KIP-664)."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any, NamedTuple

from gkafka.common import TopicPartition
from gkafka.exceptions import InvalidProducerEpoch, TransactionCoordinatorFenced
from gkafka.kafka.admin.calls import Calls, member, outcomes_of
from gkafka.kafka.errors import IllegalArgumentError, WrongTypeError

__all__ = [
    "AbortTransactionSpec",
    "PartitionProducerState",
    "ProducerState",
    "TransactionCalls",
    "TransactionDescription",
    "TransactionListing",
    "TransactionState",
]

SLACK_MS = 5 * 60 * 1000


class TransactionState(str, enum.Enum):
    """States of transactions."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    UNKNOWN = "Unknown"


OVER = (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT, TransactionState.DEAD)


class TransactionListing(NamedTuple):
    """A transactional id and what its coordinator is doing."""

    transactional_id: str
    producer_id: int
    state: TransactionState


class TransactionDescription(NamedTuple):
    """transaction_start_time_ms: since the epoch, -1 where none is open. topic_partitions: of the one that is open."""

    coordinator_id: int
    state: TransactionState
    producer_id: int
    producer_epoch: int
    transaction_timeout_ms: int
    transaction_start_time_ms: int
    topic_partitions: set[TopicPartition]


class ProducerState(NamedTuple):
    """What a partition's leader knows of a producer. current_transaction_start_offset: -1 where none is open."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_transaction_start_offset: int


class PartitionProducerState(NamedTuple):
    """The producers that have lately written to a partition."""

    active_producers: list[ProducerState]


class AbortTransactionSpec(NamedTuple):
    """A transaction that hangs on a partition. coordinator_epoch: -1 for whichever the partition's leader knows."""

    topic_partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int = -1


class TransactionCalls(Calls):
    """The calls about transactions."""

    def list_transactions(
        self,
        broker_ids: Iterable[int] | None = None,
        producer_id_filters: Iterable[int] | None = None,
        state_filters: Iterable[TransactionState | str] | None = None,
        duration_filter_ms: int | None = None,
        transactional_id_pattern: str | None = None,
    ) -> dict[int, list[TransactionListing]]:
        """Transactional ids by the broker that coordinates them. Only those that fit all that is given; duration_filter_ms: open for that long (3.8),
        transactional_id_pattern: a regular expression (4.1)."""
        told = self._admin.list_transactions(
            states=[member("state_filters", one, TransactionState).value for one in state_filters or ()],
            producer_ids=producer_id_filters or (),
            running_s=None if duration_filter_ms is None else duration_filter_ms / 1000,
            pattern=transactional_id_pattern,
            timeout=self._within(),
        )
        brokers = [b.id for b in self._admin.describe_cluster(timeout=self._within()).brokers] if broker_ids is None else list(broker_ids)
        listed: dict[int, list[TransactionListing]] = {id_: [] for id_ in brokers}
        for one in told.values():
            if one.broker in listed:
                listed[one.broker].append(TransactionListing(one.transactional_id, one.producer_id, _state(one.state)))
        return listed

    def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
        """What coordinators know of transactional ids. Raises TransactionalIdNotFoundError, ..."""
        names = list(transactional_ids)
        if not names:
            return {}
        told = outcomes_of(self._admin.describe_transactions, names, timeout=self._within())
        told.raise_first()
        brokers = {f"{b.host}:{b.port}": b.id for b in self._admin.describe_cluster(timeout=self._within()).brokers}
        return {
            name: TransactionDescription(
                brokers.get(t.coordinator, -1),
                _state(t.state),
                t.producer_id,
                t.producer_epoch,
                t.timeout_ms,
                t.started_ms,
                set(t.partitions),
            )
            for name, t in told.results.items()
        }

    def describe_producers(
        self, partitions: Iterable[TopicPartition], broker_id: int | None = None
    ) -> dict[TopicPartition, PartitionProducerState]:
        """Who has lately written to partitions, as their leaders know. broker_id: must be None. Raises UnknownTopicOrPartitionError, ..."""
        if broker_id is not None:
            raise IllegalArgumentError(f"broker_id={broker_id!r}: partitions' leaders are asked; give None")
        wanted = list(partitions)
        if not wanted:
            return {}
        told = outcomes_of(self._admin.describe_producers, wanted, timeout=self._within())
        told.raise_first()
        return {tp: PartitionProducerState([ProducerState(*p) for p in found]) for tp, found in told.results.items()}

    def abort_transaction(self, spec: AbortTransactionSpec) -> None:
        """End a transaction that hangs on a partition because its coordinator has forgotten it.

        Raises InvalidTxnStateError where the producer has none open there, InvalidProducerEpochError and TransactionCoordinatorFencedError where
        the leader knows other epochs than the given ones, UnknownTopicOrPartitionError, ...
        """
        if not isinstance(spec, AbortTransactionSpec):
            raise WrongTypeError(f"spec={spec!r}: must be an AbortTransactionSpec")
        tp = spec.topic_partition
        for state in self.describe_producers([tp])[tp].active_producers:
            if state.producer_id == spec.producer_id:
                _check_epochs(spec, state)
        self._admin.abort_transaction(tp, producer_id=spec.producer_id, timeout=self._within())

    def find_hanging_transactions(
        self, broker_ids: Iterable[int] | None = None, max_transaction_timeout_ms: int = 900000
    ) -> list[dict[str, Any]]:
        """Transactions that have been open for longer than max_transaction_timeout_ms and five minutes."""
        names = sorted(one.transactional_id for listed in self.list_transactions(broker_ids).values() for one in listed)
        now_ms = int(self._client.handler.time() * 1000)
        hanging = []
        for name, found in self.describe_transactions(names).items():
            age_ms = now_ms - found.transaction_start_time_ms
            if found.state in OVER or found.transaction_start_time_ms < 0 or age_ms < max_transaction_timeout_ms + SLACK_MS:
                continue
            hanging.append(
                {
                    "transactional_id": name,
                    "producer_id": found.producer_id,
                    "producer_epoch": found.producer_epoch,
                    "state": found.state.value,
                    "age_ms": age_ms,
                    "coordinator_id": found.coordinator_id,
                    "topic_partitions": sorted(found.topic_partitions),
                }
            )
        return hanging


def _state(told: str) -> TransactionState:
    return TransactionState(told) if told in TransactionState._value2member_map_ else TransactionState.UNKNOWN


def _check_epochs(spec: AbortTransactionSpec, state: ProducerState) -> None:
    topic, partition = spec.topic_partition
    if spec.producer_epoch != state.producer_epoch:
        text = (
            f"producer_epoch={spec.producer_epoch}: producer {spec.producer_id} writes to {topic}-{partition} with {state.producer_epoch}"
        )
        raise InvalidProducerEpoch(text, topic=topic, partition=partition)
    if -1 < spec.coordinator_epoch < state.coordinator_epoch:
        text = f"coordinator_epoch={spec.coordinator_epoch}: {topic}-{partition} has heard of {state.coordinator_epoch}"
        raise TransactionCoordinatorFenced(text, topic=topic, partition=partition)
