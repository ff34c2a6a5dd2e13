"""Fetches without a consumer: whole batches as bytes, for those who decode columns instead of messages (gkafka.spark, pandas, polars)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from gkafka import records
from gkafka.broker import Broker
from gkafka.checks import check_count, check_isolation, check_offset, check_partition, check_topic_name
from gkafka.cluster import address_of
from gkafka.common import IsolationLevel, TopicPartition
from gkafka.core.backoff import Retry
from gkafka.core.fetcher import FRAME_BYTES, IDLE, wider
from gkafka.exceptions import KafkaException, KafkaTimeoutError, ProtocolError, Stale, error_for
from gkafka.logs import get_logger
from gkafka.wire.fetch import FetchPartition, FetchRequest, FetchTopic

if TYPE_CHECKING:
    from gkafka.cluster import Cluster

__all__ = ["RawFetch", "RawFetcher"]

log = get_logger(__name__)

DEFAULT_BYTES = 1 << 20


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
    ) -> Iterator[RawFetch]:
        """See KafkaClient.fetch_stream. timeout: seconds without progress before KafkaTimeoutError."""
        reader = Reader(self._cluster, topic, partition, max_bytes, isolation, max_wait_ms, 1)
        role = self._take_role()
        clean = False
        try:
            yield from reader.stream(role, start, end, timeout)
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
    ) -> None:
        self._cluster, self._handler = cluster, cluster.handler
        self._topic, self._partition = check_topic_name(topic), check_partition("partition", partition)
        self._most_bytes = max(1, cluster.config.max_response_bytes - FRAME_BYTES)
        self._max_bytes = min(check_count("max_bytes", DEFAULT_BYTES if max_bytes is None else max_bytes), self._most_bytes)
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
                answer = future.result(min(left, self._timeout_s() + 1.0))
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
            began, asked = self._handler.monotonic(), self._max_bytes
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
            elif self._max_bytes == asked and (now := self._handler.monotonic()) - began < self._max_wait_ms / 2000:
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

    def _timeout_s(self) -> float:
        return (self._cluster.config.socket_timeout_ms + self._max_wait_ms) / 1000

    def send(self, role: tuple[str, int], offset: int, deadline: float) -> tuple[Any, str]:
        """Ask the leader; returns the future of its answer, and which broker it is (host:port)."""
        broker: Broker = self._cluster.wait_for_leader(self._topic, self._partition, deadline)
        leader = self._cluster.metadata.leader(self._topic, self._partition)
        topic_id = self._cluster.metadata.topic_id(self._topic)
        part = FetchPartition(
            partition=self._partition,
            current_leader_epoch=leader[1] if leader is not None else -1,
            fetch_offset=offset,
            partition_max_bytes=self._max_bytes,
        )
        request = FetchRequest(
            max_wait_ms=self._max_wait_ms,
            min_bytes=self._min_bytes,
            max_bytes=self._max_bytes,
            isolation_level=self._isolation,
            topics=[FetchTopic(topic=self._topic, topic_id=topic_id, partitions=[part])],
        )
        return broker.channel(role).request(request, timeout_s=self._timeout_s()), address_of(broker)

    def _read(self, response: Any, offset: int, leader: str) -> RawFetch:
        about: dict[str, Any] = {"topic": self._topic, "partition": self._partition, "offset": offset, "broker": leader, "api": "Fetch"}
        error = error_for(response.error_code, **about)
        if error is not None:
            raise error
        for topic in response.responses:
            for data in topic.partitions:
                if data.partition_index == self._partition:
                    return self._result(data, offset, about)
        raise ProtocolError(f"the answer to a fetch leaves {self._topic}-{self._partition} out", **about)

    def _result(self, data: Any, offset: int, about: dict[str, Any]) -> RawFetch:
        error = error_for(data.error_code, **about)
        if error is not None:
            if error.stale is Stale.METADATA:
                self._cluster.metadata.invalidate()
            raise error
        batches = memoryview(data.records or b"")
        headers = records.scan(batches, topic=self._topic, partition=self._partition)
        if not headers and len(batches):
            tp = TopicPartition(self._topic, self._partition)
            self._max_bytes = wider(batches, self._max_bytes, self._most_bytes, tp, offset)
        aborted = tuple((a.producer_id, a.first_offset) for a in data.aborted_transactions or ())
        return RawFetch(
            batches,
            data.high_watermark,
            data.last_stable_offset,
            aborted,
            max(offset, headers[-1].next_offset) if headers else offset,
            data.log_start_offset,
        )
