"""Transactions seen from outside: listed, described, and ended where their producer does not come back (KIP-664)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from gkafka.admin.arguments import by_topic, check_names, check_partitions, items_of, one_partition
from gkafka.admin.requests import RESOURCES, TRANSACTION, Subject, made_of
from gkafka.checks import check_count, check_name, check_offset, check_seconds, check_text
from gkafka.common import TopicPartition
from gkafka.exceptions import ConfigurationError, InvalidTxnState, KafkaException, error_for
from gkafka.wire.txn import InitProducerIdRequest
from gkafka.wire.txnadmin import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
    TopicRequest,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

__all__ = ["ProducerState", "TransactionDescription", "TransactionListing", "TransactionsAdmin"]


class TransactionListing(NamedTuple):
    """state: "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", ... broker: who coordinates it."""

    transactional_id: str
    producer_id: int
    state: str
    broker: int


class TransactionDescription(NamedTuple):
    """timeout_ms: what the producer asked for. started_ms: since the epoch, -1 where none is open. partitions: of the one that is open."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int
    partitions: frozenset[TopicPartition]
    coordinator: str


class ProducerState(NamedTuple):
    """What a partition's leader knows of a producer. transaction_start: the first offset of its open transaction, -1 for none.

    last_timestamp: of its last record, ms since the epoch.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_start: int


class TransactionsAdmin(Subject):
    """The calls about transactions (3.0 and newer; producers 2.8)."""

    def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        running_s: float | None = None,
        pattern: str | None = None,
        timeout: float | None = None,
    ) -> dict[str, TransactionListing]:
        """All transactional ids that the asker may describe, by themselves. Only those that fit all that is given:

        states, producer_ids: one of these. running_s: open for at least so many seconds (3.8 and newer). pattern: a regular expression of
        RE2/J that the whole id matches (4.1 and newer). Asks every broker; `errors` of an AdminError has the ids of those that did not tell,
        `results` what the others told. Raises ConfigurationError for a state that brokers do not know.
        """
        wanted = ListTransactionsRequest(
            state_filters=[check_text("states", one) for one in items_of("states", states)],
            producer_id_filters=[
                check_count("producer_ids", one, low=0, high=(1 << 63) - 1) for one in items_of("producer_ids", producer_ids)
            ],
            duration_filter=-1 if running_s is None else int(check_seconds("running_s", running_s) * 1000),
            transactional_id_pattern=None if pattern is None else check_name("pattern", pattern),
        )
        deadline = self._requests.begin(timeout)

        def read(response: Any, id_: int, broker: str) -> list[TransactionListing]:
            error = error_for(response.error_code, broker=broker, api="ListTransactions")
            if error is not None:
                raise error
            if response.unknown_state_filters:
                raise ConfigurationError(f"states: the brokers know none that are called {', '.join(response.unknown_state_filters)}")
            return [TransactionListing(t.transactional_id, t.producer_id, t.transaction_state, id_) for t in response.transaction_states]

        def by_id(told: dict[int, list[TransactionListing]]) -> dict[str, TransactionListing]:
            return {one.transactional_id: one for one in sorted(one for listed in told.values() for one in listed)}

        return made_of(lambda: self._requests.of_each_broker("listing transactions", wanted, read, deadline), by_id)

    def describe_transactions(self, transactional_ids: Iterable[str], *, timeout: float | None = None) -> dict[str, TransactionDescription]:
        """What the coordinators know. Item errors: TransactionalIdNotFound, TransactionalIdAuthorizationFailed, ..."""
        names = check_names("transactional_ids", transactional_ids)
        deadline = self._requests.begin(timeout)

        def read(response: Any, mine: list[str], broker: str) -> dict[str, TransactionDescription | KafkaException]:
            return {
                t.transactional_id: error_for(t.error_code, broker=broker, api="DescribeTransactions") or _described(t, broker)
                for t in response.transaction_states
            }

        def attempt(left: list[str]) -> dict[str, TransactionDescription | KafkaException]:
            places = self._requests.coordinators(left, TRANSACTION, deadline)
            return self._requests.by_broker(
                left, places, lambda mine: DescribeTransactionsRequest(transactional_ids=mine), read, deadline, most=RESOURCES
            )

        return self._requests.settle("describing transactions", names, attempt, deadline)

    def describe_producers(
        self, partitions: Iterable[tuple[str, int]], *, timeout: float | None = None
    ) -> dict[TopicPartition, list[ProducerState]]:
        """Who has lately written to each partition, by idempotent or transactional producers. Item errors: UnknownTopicOrPartition, ..."""
        wanted = check_partitions(partitions)
        deadline = self._requests.begin(timeout)

        def request_of(mine: list[TopicPartition]) -> DescribeProducersRequest:
            return DescribeProducersRequest(topics=[TopicRequest(name=name, partition_indexes=ids) for name, ids in by_topic(mine).items()])

        def read(response: Any, mine: list[TopicPartition], broker: str) -> dict[TopicPartition, list[ProducerState] | KafkaException]:
            found: dict[TopicPartition, list[ProducerState] | KafkaException] = {}
            for topic in response.topics:
                for p in topic.partitions:
                    about = {"topic": topic.name, "partition": p.partition_index, "broker": broker, "api": "DescribeProducers"}
                    error = error_for(p.error_code, p.error_message, **about)
                    found[TopicPartition(topic.name, p.partition_index)] = _producers(p) if error is None else error
            return found

        def attempt(left: list[TopicPartition]) -> dict[TopicPartition, list[ProducerState] | KafkaException]:
            return self._requests.by_broker(left, self._requests.leaders(left, deadline), request_of, read, deadline, most=RESOURCES)

        return self._requests.settle("describing producers", wanted, attempt, deadline)

    def abort_transaction(
        self,
        partition: tuple[str, int],
        *,
        start_offset: int | None = None,
        producer_id: int | None = None,
        timeout: float | None = None,
    ) -> ProducerState:
        """End a transaction that hangs on a partition, found by where it starts or by who writes it; returns what was aborted.

        For transactions that their coordinator does not know any more; one that it knows is ended by fence_producers(). Raises InvalidTxnState
        where no such transaction is open, UnknownTopicOrPartition, ClusterAuthorizationFailed, ...
        """
        tp = one_partition(partition)
        if (start_offset is None) == (producer_id is None):
            raise ConfigurationError("give start_offset= or producer_id=: which transaction?")
        start = None if start_offset is None else check_offset("start_offset", start_offset)
        writer = None if producer_id is None else check_count("producer_id", producer_id, low=0, high=(1 << 63) - 1)
        deadline = self._requests.begin(timeout)
        with self._requests.alone():
            producers = self.describe_producers([tp], timeout=self._requests.left(deadline))[tp]
        hanging = [p for p in producers if p.transaction_start >= 0 and (p.transaction_start == start or p.producer_id == writer)]
        if not hanging:
            said = f"from offset {start}" if start is not None else f"of producer {writer}"
            raise InvalidTxnState(f"{tp.topic}-{tp.partition}: no transaction {said} is open", topic=tp.topic, partition=tp.partition)
        marker = WritableTxnMarker(
            producer_id=hanging[0].producer_id,
            producer_epoch=hanging[0].producer_epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=tp.topic, partition_indexes=[tp.partition])],
            # A leader that has had no marker of this producer yet knows no epoch of a coordinator; 0 is older than all.
            coordinator_epoch=max(0, hanging[0].coordinator_epoch),
        )
        with self._requests.alone():
            self._mark(tp, marker, deadline)
        return hanging[0]

    def _mark(self, tp: TopicPartition, marker: WritableTxnMarker, deadline: float) -> None:
        def read(response: Any, mine: list[TopicPartition], broker: str) -> dict[TopicPartition, KafkaException | None]:
            return {
                TopicPartition(t.name, p.partition_index): error_for(
                    p.error_code, topic=t.name, partition=p.partition_index, broker=broker, api="WriteTxnMarkers"
                )
                for m in response.markers
                for t in m.topics
                for p in t.partitions
            }

        def attempt(left: list[TopicPartition]) -> dict[TopicPartition, KafkaException | None]:
            return self._requests.by_broker(
                left, self._requests.leaders(left, deadline), lambda _: WriteTxnMarkersRequest(markers=[marker]), read, deadline
            )

        self._requests.settle("aborting a transaction", [tp], attempt, deadline)

    def fence_producers(self, transactional_ids: Iterable[str], *, timeout: float | None = None) -> dict[str, tuple[int, int]]:
        """End what the producers with these ids have open, and keep them from writing on. Returns the producer id and epoch of each.

        Item errors: TransactionalIdAuthorizationFailed, ... An id that nobody used is made.
        """
        names = check_names("transactional_ids", transactional_ids)
        deadline = self._requests.begin(timeout)

        def read(response: Any, mine: list[str], broker: str) -> dict[str, tuple[int, int] | KafkaException]:
            error = error_for(response.error_code, broker=broker, api="InitProducerId")
            return {mine[0]: (response.producer_id, response.producer_epoch) if error is None else error}

        def attempt(left: list[str]) -> dict[str, tuple[int, int] | KafkaException]:
            places = self._requests.coordinators(left, TRANSACTION, deadline)
            return self._requests.by_broker(left, places, _fencing, read, deadline, most=1)  # a request has room for one

        return self._requests.settle("fencing producers", names, attempt, deadline)


def _fencing(names: list[str]) -> InitProducerIdRequest:
    return InitProducerIdRequest(transactional_id=names[0], transaction_timeout_ms=1)


def _described(t: Any, broker: str) -> TransactionDescription:
    return TransactionDescription(
        t.transactional_id,
        t.transaction_state,
        t.producer_id,
        t.producer_epoch,
        t.transaction_timeout_ms,
        t.transaction_start_time_ms,
        frozenset(TopicPartition(topic.topic, p) for topic in t.topics for p in topic.partitions),
        broker,
    )


def _producers(partition: Any) -> list[ProducerState]:
    return sorted(
        ProducerState(p.producer_id, p.producer_epoch, p.last_sequence, p.last_timestamp, p.coordinator_epoch, p.current_txn_start_offset)
        for p in partition.active_producers
    )
