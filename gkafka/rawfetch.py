"""Fetches without a consumer: whole batches as bytes, for those who decode columns instead of messages (gkafka.spark, pandas, polars)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from gkafka import records
from gkafka.broker import Broker
from gkafka.checks import check_count, check_isolation, check_mapping, check_offset, check_partition, check_topic_id, check_topic_name
from gkafka.cluster import address_of
from gkafka.common import IsolationLevel, TopicPartition
from gkafka.core.backoff import Retry
from gkafka.core.fetcher import FRAME_BYTES, IDLE, wider
from gkafka.core.metadata import NO_TOPIC_ID
from gkafka.exceptions import (
    InconsistentTopicId,
    KafkaException,
    KafkaTimeoutError,
    ProtocolError,
    Stale,
    UnknownTopicError,
    UnknownTopicId,
    UnknownTopicOrPartition,
    error_for,
)
from gkafka.logs import get_logger
from gkafka.wire.fetch import FetchPartition, FetchRequest, FetchTopic

if TYPE_CHECKING:
    from gkafka.cluster import Cluster

__all__ = ["RawFetch", "RawFetcher", "Span"]

log = get_logger(__name__)

GONE = (UnknownTopicOrPartition, UnknownTopicId, InconsistentTopicId)
DEFAULT_BYTES = 1 << 20
TOGETHER_BYTES = 8 << 20
"""Of an answer for several partitions, where nobody says how much, if a partition alone may not have more."""


class RawFetch(NamedTuple):
    """What one fetch of a partition brought.

    batches: bytes of the answer, a truncated batch at the end possible. aborted: (producer id, first offset) pairs of aborted transactions
    in it, for READ_COMMITTED. next_offset: where the next fetch goes on; the offset that was asked if no whole batch came.
    """

    batches: memoryview
    high_watermark: int
    last_stable_offset: int
    aborted: tuple[tuple[int, int], ...]
    next_offset: int
    log_start_offset: int


class Span(NamedTuple):
    """Offsets [start, end) of a partition."""

    topic: str
    partition: int
    start: int
    end: int


class RawFetcher:
    """Fetches on connections of its own, which are used again by the next fetch or stream."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._handler = cluster, cluster.handler
        self._free: list[tuple[str, int]] = []
        self._made = 0
        self._lock = self._handler.Mutex()

    def _take_role(self) -> tuple[str, int]:
        with self._lock:
            if self._free:
                return self._free.pop()
            self._made += 1
            return ("raw", self._made)

    def _give_role(self, role: tuple[str, int]) -> None:
        with self._lock:
            self._free.append(role)

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        max_bytes: int | None,
        isolation: IsolationLevel | int | None,
        *,
        max_wait_ms: int,
        min_bytes: int,
        timeout: float | None,
    ) -> RawFetch:
        """See KafkaClient.fetch_raw."""
        reader = Reader(self._cluster, topic, partition, max_bytes, isolation, max_wait_ms, min_bytes)
        role = self._take_role()
        try:
            return reader.fetch(role, offset, self._cluster._deadline(timeout), None)
        finally:
            self._give_role(role)

    def stream(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int,
        max_bytes: int | None,
        isolation: IsolationLevel | int | None,
        *,
        max_wait_ms: int,
        timeout: float | None,
        topic_id: UUID | None,
    ) -> Iterator[RawFetch]:
        """See KafkaClient.fetch_stream. timeout: seconds without progress before KafkaTimeoutError."""
        reader = Reader(
            self._cluster, topic, partition, max_bytes, isolation, max_wait_ms, 1, NO_TOPIC_ID if topic_id is None else topic_id
        )
        with self._role() as role:
            yield from reader.stream(role, start, end, timeout)

    def streams(
        self,
        spans: Sequence[tuple[str, int, int, int]],
        max_bytes: int | None,
        isolation: IsolationLevel | int | None,
        *,
        max_wait_ms: int,
        timeout: float | None,
        max_total_bytes: int | None,
        topic_ids: Mapping[str, UUID],
    ) -> Iterator[tuple[int, RawFetch | UnknownTopicError | None]]:
        """See KafkaClient.fetch_streams."""
        asked = [Span(*span) for span in spans]
        topic_ids = check_mapping("topic_ids", topic_ids, '{"orders": uuid.UUID(...)}')
        readers = [
            Reader(self._cluster, span.topic, span.partition, max_bytes, isolation, max_wait_ms, 1, topic_ids.get(span.topic, NO_TOPIC_ID))
            for span in asked
        ]
        streams = Streams(self._cluster, asked, readers, max_total_bytes)
        with self._role() as role:
            yield from streams.run(role, timeout)

    @contextlib.contextmanager
    def _role(self) -> Iterator[tuple[str, int]]:
        """Connections for a stream, which are closed if it does not come to its end."""
        role = self._take_role()
        clean = False
        try:
            yield role
            clean = True
        finally:
            if clean:
                self._give_role(role)
            else:  # an answer may still be under way on it
                for broker in list(self._cluster._brokers.values()):
                    broker.drop_channel(role)


class Reader:
    """Fetches of one partition. max_bytes grows when a record does not fit (brokers before 0.10.1 send a part of it then)."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        partition: int,
        max_bytes: int | None,
        isolation: IsolationLevel | int | None,
        max_wait_ms: int,
        min_bytes: int,
        topic_id: UUID = NO_TOPIC_ID,
    ) -> None:
        self._cluster, self._handler = cluster, cluster.handler
        self.topic_id = check_topic_id("topic_id", topic_id)  # that it has to be; NO_TOPIC_ID: whatever has the name
        self._topic, self._partition = check_topic_name(topic), check_partition("partition", partition)
        self.most_bytes = max(1, cluster.config.max_response_bytes - FRAME_BYTES)
        self.max_bytes = min(check_count("max_bytes", DEFAULT_BYTES if max_bytes is None else max_bytes), self.most_bytes)
        self._isolation = int(check_isolation("isolation", IsolationLevel.READ_COMMITTED if isolation is None else isolation))
        self._max_wait_ms, self._min_bytes = check_count("max_wait_ms", max_wait_ms, low=0), check_count("min_bytes", min_bytes, low=0)

    def fetch(self, role: tuple[str, int], offset: int, deadline: float, pending: Any) -> RawFetch:
        """One answer. pending: what send() returned for a fetch of this offset, if there was one already."""
        offset = check_offset("offset", offset)
        sent = [pending]

        def attempt() -> RawFetch:
            future, leader = (sent.pop() if sent else None) or self.send(role, offset, deadline)
            left = max(0.0, deadline - self._handler.monotonic())
            try:
                answer = future.result(min(left, self.timeout_s + 1.0))
            except KafkaTimeoutError as exc:
                what = f"{self._topic}-{self._partition}: no answer of {leader} to a fetch from offset {offset}: {exc}"
                raise KafkaTimeoutError(what, topic=self._topic, partition=self._partition, offset=offset) from exc
            return self._read(answer, offset, leader)

        found: RawFetch = self._cluster.retrying(f"fetching {self._topic}-{self._partition} from offset {offset}", attempt, deadline)
        return found

    def stream(self, role: tuple[str, int], start: int, end: int, timeout: float | None) -> Iterator[RawFetch]:
        position, end, pending = check_offset("start", start), check_offset("end", end), None
        deadline = self._cluster._deadline(timeout)
        idle, chance = Retry(), self._handler.random()
        while position < end:
            began, asked = self._handler.monotonic(), self.max_bytes
            raw = self.fetch(role, position, deadline, pending)
            pending = None
            if raw.next_offset > position:
                idle.succeeded()
                position = raw.next_offset
                deadline = self._cluster._deadline(timeout)
                if position < end:
                    pending = self._send_ahead(role, position, deadline)
                yield raw
            elif self._handler.monotonic() >= deadline:
                raise KafkaTimeoutError(
                    f"{self._topic}-{self._partition}: no record from offset {position} on, though {end - position} were expected",
                    topic=self._topic,
                    partition=self._partition,
                    offset=position,
                )
            elif self.max_bytes == asked and (now := self._handler.monotonic()) - began < self._max_wait_ms / 2000:
                # A broker that does not park the fetch is not asked again at once.
                idle.failed(IDLE, now, chance)
                self._handler.sleep(max(0.0, min(idle.not_before, deadline) - now))

    def _send_ahead(self, role: tuple[str, int], position: int, deadline: float) -> Any:
        if self._cluster.metadata.leader(self._topic, self._partition) is None:
            return None
        try:
            return self.send(role, position, deadline)
        except KafkaException as exc:
            log.debug("%s-%d: fetching ahead: %s", self._topic, self._partition, exc)
            return None  # the next fetch sends again and meets the error in its own name

    @property
    def timeout_s(self) -> float:
        """Longest wait for an answer."""
        return (self._cluster.config.socket_timeout_ms + self._max_wait_ms) / 1000

    def send(self, role: tuple[str, int], offset: int, deadline: float) -> tuple[Any, str]:
        """Ask the leader; returns the future of its answer, and which broker it is (host:port)."""
        broker: Broker = self._cluster.wait_for_leader(self._topic, self._partition, deadline)
        if self.topic_id != NO_TOPIC_ID and made_again(self._cluster, {self._topic: self.topic_id}):
            if error := look_for(self._cluster, {self._topic: self.topic_id}, deadline).get(self._topic):
                raise error
            broker = self._cluster.wait_for_leader(self._topic, self._partition, deadline)
        topics = [FetchTopic(topic=self._topic, topic_id=self.asked_id, partitions=[self.part(offset)])]
        return broker.channel(role).request(self.request(topics, self.max_bytes), timeout_s=self.timeout_s), address_of(broker)

    @property
    def asked_id(self) -> UUID:
        """Of the topic, as requests tell it."""
        return self.topic_id if self.topic_id != NO_TOPIC_ID else self._cluster.metadata.topic_id(self._topic)

    def part(self, offset: int) -> FetchPartition:
        """What a request for this partition says of it."""
        leader = self._cluster.metadata.leader(self._topic, self._partition)
        return FetchPartition(
            partition=self._partition,
            current_leader_epoch=leader[1] if leader is not None else -1,
            fetch_offset=offset,
            partition_max_bytes=self.max_bytes,
        )

    def request(self, topics: list[FetchTopic], max_bytes: int) -> FetchRequest:
        """For these, with the rest as it was given here."""
        return FetchRequest(
            max_wait_ms=self._max_wait_ms, min_bytes=self._min_bytes, max_bytes=max_bytes, isolation_level=self._isolation, topics=topics
        )

    def _read(self, response: Any, offset: int, leader: str) -> RawFetch:
        about: dict[str, Any] = {"topic": self._topic, "partition": self._partition, "offset": offset, "broker": leader, "api": "Fetch"}
        error = error_for(response.error_code, **about)
        if error is not None:
            raise error
        for topic in response.responses:
            for data in topic.partitions:
                if data.partition_index == self._partition:
                    return self.result(data, offset, about)
        raise ProtocolError(f"the answer to a fetch leaves {self._topic}-{self._partition} out", **about)

    def result(self, data: Any, offset: int, about: dict[str, Any]) -> RawFetch:
        """What an answer holds of this partition. Raises the error that it tells."""
        error = error_for(data.error_code, **about)
        if error is not None:
            if error.stale is Stale.METADATA:
                self._cluster.metadata.invalidate()
            raise error
        batches = memoryview(data.records or b"")
        headers = records.scan(batches, topic=self._topic, partition=self._partition)
        if not headers and len(batches):
            tp = TopicPartition(self._topic, self._partition)
            self.max_bytes = wider(batches, self.max_bytes, self.most_bytes, tp, offset)
        aborted = tuple((a.producer_id, a.first_offset) for a in data.aborted_transactions or ())
        return RawFetch(
            batches,
            data.high_watermark,
            data.last_stable_offset,
            aborted,
            max(offset, headers[-1].next_offset) if headers else offset,
            data.log_start_offset,
        )


def made_again(cluster: Cluster, topic_ids: Mapping[str, UUID]) -> list[str]:
    """Those of the topics that are known by another id than this; NO_TOPIC_ID is none, as with brokers before 2.8."""
    known = cluster.metadata.topic_id
    return [name for name, wanted in topic_ids.items() if NO_TOPIC_ID != wanted != known(name) != NO_TOPIC_ID]


def look_for(cluster: Cluster, topic_ids: Mapping[str, UUID], deadline: float, *, anew: bool = False) -> dict[str, UnknownTopicError]:
    """Have metadata of all these topics, with one request. anew: those that are known may be out of date.

    Returns an error for each that is not there, or has another id, after some seconds in which all brokers may learn of it: all are waited for together. Other errors
    are left for those who ask for a partition.
    """
    if not topic_ids:
        return {}
    now, metadata = cluster.handler.monotonic(), cluster.metadata
    patience_s = deadline - now if cluster.topic_patience_s is None else min(deadline - now, cluster.topic_patience_s)
    version, doubtful = metadata.version, anew or bool(made_again(cluster, topic_ids))
    if doubtful:
        metadata.invalidate()

    def settled() -> bool:
        """A broker may tell for a while of what was there before."""
        if metadata.version == version:
            return False
        if made_again(cluster, topic_ids) and cluster.handler.monotonic() < now + patience_s:
            metadata.invalidate()
            return False
        return True

    found: dict[str, UnknownTopicError] = {}
    with contextlib.suppress(KafkaException):
        if doubtful:
            cluster._wait(settled, deadline, "the topics' ids")
        for error in cluster.look_for_topics(topic_ids, max(0.0, now + patience_s - cluster.handler.monotonic()), deadline):
            if isinstance(error, UnknownTopicError) and error.topic is not None:
                found[error.topic] = error
                metadata.forget_topic(error.topic)  # other topics' requests need not name it
    for name in made_again(cluster, topic_ids):
        text = f"topic {name!r} was deleted and made again: its id is {metadata.topic_id(name)}, and was to be {topic_ids[name]}"
        found[name] = UnknownTopicError(text, topic=name, api="Metadata")
    return found


class Asked(NamedTuple):
    """A request of several ranges. answer: its future, None if it could not be sent. numbers: of the ranges, in its order."""

    answer: Any
    numbers: list[int]


class Streams:
    """Several ranges at once: one request asks a broker for all of its partitions.

    Here goes on what meets nothing unusual. A range that needs more than that, as one with an error, a gap at its end or a record that does not fit, is left
    where it stands, for a `Reader` to go on with. Topics that are not there are found out together, before the first request and behind the last.
    """

    def __init__(self, cluster: Cluster, spans: Sequence[Span], readers: Sequence[Reader], max_total_bytes: int | None) -> None:
        self._cluster, self._spans, self._readers = cluster, spans, readers
        self._total_bytes = None if max_total_bytes is None else check_count("max_total_bytes", max_total_bytes)
        self._at = [check_offset("start", span.start) for span in spans]
        for span in spans:
            check_offset("end", span.end)
        self._doubtful: set[str] = set()  # topics that may not be there any more

    def run(self, role: tuple[str, int], timeout: float | None) -> Iterator[tuple[int, RawFetch | UnknownTopicError | None]]:
        """(number of the range, what came), or (number, None) where it is left, or (number, error) where its topic is not there."""
        wanted = [number for number, span in enumerate(self._spans) if span.start < span.end]
        lost = self._look(wanted, timeout)
        waiting, left = self._by_leader(number for number in wanted if number not in lost)
        sent = {broker: self._send(role, broker, numbers) for broker, numbers in waiting.items()}
        failed: list[int] = []
        while sent:
            for broker in list(sent):
                asked = sent.pop(broker)
                found = self._take(broker, asked)
                served = {number for number, raw in found if raw is not None}
                done = {number for number, raw in found if raw is None or self._at[number] >= self._spans[number].end}
                # Whoever got nothing comes first the next time: brokers fill an answer in the order of the request.
                numbers = [n for n in sorted(asked.numbers, key=served.__contains__) if n not in done]
                if numbers:
                    sent[broker] = self._send(role, broker, numbers)
                failed += [number for number, raw in found if raw is None]
                yield from ((number, raw) for number, raw in found if raw is not None)
        lost.update(self._look([number for number in failed if self._spans[number].topic in self._doubtful], timeout))
        for number in sorted({*left, *failed, *lost}):
            yield number, lost.get(number)

    def _look(self, numbers: Sequence[int], timeout: float | None) -> dict[int, UnknownTopicError]:
        """Those of the ranges whose topic is not there."""
        topic_ids = {self._spans[number].topic: self._readers[number].topic_id for number in numbers}
        errors = look_for(self._cluster, topic_ids, self._cluster._deadline(timeout), anew=not self._doubtful.isdisjoint(topic_ids))
        return {number: errors[topic] for number in numbers if (topic := self._spans[number].topic) in errors}

    def _by_leader(self, numbers: Iterable[int]) -> tuple[dict[Broker, list[int]], list[int]]:
        """The ranges by who is to be asked for them, and those that nobody can be: a partition stands in a request once."""
        waiting: dict[Broker, list[int]] = {}
        left: list[int] = []
        seen: set[tuple[str, int]] = set()
        for number in numbers:
            span = self._spans[number]
            leader = self._cluster.metadata.leader(span.topic, span.partition)
            broker = self._cluster._brokers.get(leader[0]) if leader is not None else None
            if broker is None or (span.topic, span.partition) in seen:
                left.append(number)
            else:
                seen.add((span.topic, span.partition))
                waiting.setdefault(broker, []).append(number)
        return waiting, left

    def _send(self, role: tuple[str, int], broker: Broker, numbers: Sequence[int]) -> Asked:
        by_topic: dict[str, list[int]] = {}
        for number in numbers:
            by_topic.setdefault(self._spans[number].topic, []).append(number)
        in_order = [number for some in by_topic.values() for number in some]
        topics = [
            FetchTopic(
                topic=name,
                topic_id=self._readers[some[0]].asked_id,
                partitions=[self._readers[number].part(self._at[number]) for number in some],
            )
            for name, some in by_topic.items()
        ]
        reader = self._readers[in_order[0]]
        room = min(reader.most_bytes, self._total_bytes or max(TOGETHER_BYTES, reader.max_bytes))
        try:
            return Asked(broker.channel(role).request(reader.request(topics, room), timeout_s=reader.timeout_s), in_order)
        except KafkaException as exc:
            log.debug("%d partitions of %s: %s", len(in_order), address_of(broker), exc)
            return Asked(None, in_order)

    def _take(self, broker: Broker, asked: Asked) -> list[tuple[int, RawFetch | None]]:
        """What an answer brought, and which ranges are left: those with errors, and those for which there is nothing although nobody before them was given
        anything."""
        about: dict[str, Any] = {"broker": address_of(broker), "api": "Fetch"}
        numbers = asked.numbers
        if asked.answer is None:
            return [(number, None) for number in numbers]
        try:
            response = asked.answer.result(self._readers[numbers[0]].timeout_s + 1.0)
            if (error := error_for(response.error_code, **about)) is not None:
                raise error
        except KafkaException as exc:
            log.debug("%d partitions of %s: %s", len(numbers), address_of(broker), exc)
            return [(number, None) for number in numbers]
        names = {self._readers[number].asked_id: self._spans[number].topic for number in numbers}
        there = {
            (topic.topic or names.get(topic.topic_id), data.partition_index): data
            for topic in response.responses
            for data in topic.partitions
        }
        found: list[tuple[int, RawFetch | None]] = []
        was_given = False
        for number in numbers:
            raw = self._result(number, there.get((self._spans[number].topic, self._spans[number].partition)), about)
            if raw is not None and raw.next_offset > self._at[number]:
                was_given = True
                self._at[number] = raw.next_offset
                found.append((number, raw))
            elif raw is None or not was_given:
                found.append((number, None))
        return found

    def _result(self, number: int, data: Any, about: dict[str, Any]) -> RawFetch | None:
        if data is None:
            return None
        span, at = self._spans[number], self._at[number]
        if made_again(self._cluster, {span.topic: self._readers[number].topic_id}):
            self._doubtful.add(span.topic)
            return None
        try:
            return self._readers[number].result(data, at, {**about, "topic": span.topic, "partition": span.partition, "offset": at})
        except KafkaException as exc:
            log.debug("%s-%d is left at offset %d: %s", span.topic, span.partition, at, exc)
            if isinstance(exc, GONE):
                self._doubtful.add(span.topic)
            return None
