"""A consumer's machine as its tests hold it: positions at a start, the verbs of a test, answers made by hand."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

from gkafka import records
from gkafka.common import TopicPartition
from gkafka.core.backoff import Backoff
from gkafka.core.fetcher import Asked, EpochCheck, Fetched, Fetcher, Lookup, Poll
from gkafka.core.positions import Position
from gkafka.exceptions import KafkaException
from gkafka.wire.epochs import EpochEnd, OffsetForLeaderEpochResponse, OffsetForLeaderTopicResult
from gkafka.wire.fetch import AbortedTransaction, FetchableTopicResponse, FetchPartition, FetchResponse, PartitionData
from gkafka.wire.offsets import ListOffsetsPartitionResponse, ListOffsetsResponse, ListOffsetsTopicResponse
from tests.core.fakes import TOPIC_ID, metadata
from tests.records.handmade import TRANSACTIONAL, values

OUT_OF_RANGE, UNKNOWN_TOPIC, NOT_LEADER, UNAUTHORIZED, FENCED, UNKNOWN_EPOCH, UNKNOWN_ID = 1, 3, 6, 29, 74, 75, 100
SESSION_UNKNOWN, SESSION_EPOCH = 70, 71
EARLIEST, LATEST = -2, -1
NEVER = float("inf")


def verify(buffer: Any, header: Any) -> None:
    records.Records(buffer, header, Context()).take(1)


def tp(partition: int) -> TopicPartition:
    return TopicPartition("t", partition)


class Context:
    topic, partition_id, partition = "t", 0, None


class Rig:
    """A fetcher with positions at offset 0, and the verbs of a test."""

    def __init__(self, leaders: dict[int, int] | None = None, *, start: int | None = 0, **options: Any) -> None:
        self.metadata = metadata(leaders or {0: 1})
        self.now = 100.0
        settings: dict[str, Any] = {
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "wait_max_ms": 500,
            "partition_max_bytes": 1 << 16,
            "queued_max_messages": 100,
            "read_committed": True,
            "reset_policy": EARLIEST,
            "biggest_partition_bytes": 1 << 20,
            "backoff": Backoff(0.5, 1.0),
            "chance": Random(1),
        }
        self.fetcher = Fetcher(
            self.metadata, span_at=records.span_at, control_type=records.control_type, verify=verify, **{**settings, **options}
        )
        self.errors: list[KafkaException] = []
        self.stale = False
        for partition in leaders or {0: 1}:
            position = Position(tp(partition), self.fetcher.partition_max_bytes)
            self.fetcher.positions[tp(partition)] = position
            if start is not None:
                position.seek(start)

    def __getitem__(self, partition: int) -> Position:
        return self.fetcher.positions[tp(partition)]

    def poll(self) -> Poll:
        return self.fetcher.poll(self.now)

    def asked(self) -> list[Asked]:
        return self.poll().fetches

    def check(self) -> EpochCheck:
        (check,) = self.poll().checks
        return check

    def checked(self, check: EpochCheck, ends: dict[int, tuple[int, int]], *, code: int = 0) -> list[int]:
        """ends: partition -> (epoch, its end). Returns the partitions whose queues are void."""
        rows = [EpochEnd(partition=p, leader_epoch=epoch, end_offset=end, error_code=code) for p, (epoch, end) in ends.items()]
        answer = OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult(topic="t", partitions=rows)])
        return self.take_check(check, answer, None)

    def take_check(self, check: EpochCheck, answer: OffsetForLeaderEpochResponse | None, error: KafkaException | None) -> list[int]:
        done = self.fetcher.on_checked(check, answer, error, self.now)
        self.errors += done.errors
        self.stale = done.stale
        return [position.tp.partition for position in done.void]

    def ask(self) -> Asked:
        (asked,) = self.asked()
        return asked

    def lookup(self) -> Lookup:
        (lookup,) = self.poll().lookups
        return lookup

    def answer(self, asked: Asked, parts: dict[int, Any], **about: Any) -> list[Fetched]:
        """parts: partition -> bytes, an error code, or a PartitionData."""
        rows = [part if isinstance(part, PartitionData) else data(p, part) for p, part in parts.items()]
        response = FetchResponse(responses=[FetchableTopicResponse(topic="t", topic_id=TOPIC_ID, partitions=rows)], **about)
        return self.take(asked, response, None)

    def take(self, asked: Asked, response: FetchResponse | None, error: KafkaException | None) -> list[Fetched]:
        spans: list[Fetched] = []
        self.stale = False
        for taken in self.fetcher.on_fetched(asked, response, error, self.now):
            spans += taken.spans
            self.errors += taken.errors
            self.stale |= taken.stale
        return spans

    def round(self, data: Any, **about: Any) -> list[Fetched]:
        return self.answer(self.ask(), {0: data}, **about)

    def looked_up(self, lookup: Lookup, codes_or_offsets: dict[int, int], *, code: int = 0) -> None:
        rows = [ListOffsetsPartitionResponse(partition_index=p, offset=o, error_code=code) for p, o in codes_or_offsets.items()]
        answer = ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=rows)])
        errors, self.stale = self.fetcher.on_looked_up(lookup, answer, None, self.now)
        self.errors += errors


def data(partition: int, part: bytes | int, *, high_watermark: int = 1000, **about: Any) -> PartitionData:
    code, content = (part, b"") if isinstance(part, int) else (0, part)
    return PartitionData(partition_index=partition, error_code=code, high_watermark=high_watermark, records=content, **about)


def partitions(asked: Asked) -> list[int]:
    return [p.partition for t in asked.request.topics for p in t.partitions]


def offsets(spans: Iterable[Fetched]) -> list[int]:
    """The offsets of the records that a consumer would hand out."""
    found: list[int] = []
    for fetched in spans:
        reader = records.Records(fetched.buffer, fetched.span, Context(), min_offset=fetched.skip_to)
        while got := reader.take(100):
            found += [m.offset for m in got]
    return found


class Remembering:
    """Brokers that keep fetch sessions as Kafka's do (KIP-227): what a request leaves out is as it was said last."""

    def __init__(self) -> None:
        self._sessions: dict[int, tuple[int, int, dict[int, FetchPartition]]] = {}  # broker -> id, next epoch, partition -> as last asked
        self._ids = 0

    def forget(self, broker_id: int) -> None:
        """Others took the session's place."""
        self._sessions.pop(broker_id, None)

    def take(self, asked: Asked) -> tuple[int, int, dict[int, FetchPartition]]:
        """(error code, session id, what is asked for) of a request."""
        request = asked.request
        named = {p.partition: p for t in request.topics for p in t.partitions}
        if request.session_epoch <= 0:
            if request.session_id and self._sessions.get(asked.broker_id, (0,))[0] == request.session_id:
                del self._sessions[asked.broker_id]
            if request.session_epoch < 0:
                return 0, 0, named
            self._ids += 1
            self._sessions[asked.broker_id] = (self._ids, 1, named)
            return 0, self._ids, named
        known = self._sessions.get(asked.broker_id)
        if known is None or known[0] != request.session_id:
            return SESSION_UNKNOWN, 0, {}
        if known[1] != request.session_epoch:
            return SESSION_EPOCH, 0, {}
        gone = {p for t in request.forgotten_topics_data for p in t.partitions}
        wanted = {**{p: part for p, part in known[2].items() if p not in gone}, **named}
        self._sessions[asked.broker_id] = (known[0], known[1] + 1, wanted)
        return 0, known[0], wanted


def aborted(*pairs: tuple[int, int]) -> dict[str, Any]:
    return {"aborted_transactions": [AbortedTransaction(producer_id=p, first_offset=o) for p, o in pairs]}


def txn(n: int, offset: int, producer: int, *, gzipped: bool = False) -> bytes:
    return values(n, base_offset=offset, producer_id=producer, attributes=TRANSACTIONAL | (1 if gzipped else 0))


def bad_magic(offset: int) -> bytes:
    spoiled = bytearray(values(2, base_offset=offset))
    spoiled[16] = 9
    return bytes(spoiled)
