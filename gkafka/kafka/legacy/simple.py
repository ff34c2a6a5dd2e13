"""kafka-python 0.9's SimpleConsumer (kafka.consumer.simple) on gkafka's own consumer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any

from gkafka.checks import check_count, check_flag, check_seconds
from gkafka.common import TopicPartition
from gkafka.exceptions import ConfigurationError, ConsumerStoppedException, KafkaException
from gkafka.kafka.errors import WrongTypeError
from gkafka.kafka.legacy.base import AUTO_COMMIT_INTERVAL, AUTO_COMMIT_MSG_COUNT, Consumer, telling
from gkafka.kafka.legacy.common import ConsumerFetchSizeTooSmall, start_of
from gkafka.kafka.legacy.keywords import hinting
from gkafka.kafka.legacy.reading import Reader, ends_of
from gkafka.undoing import Undoing

__all__ = ["FetchContext", "SimpleConsumer"]

FETCH_BUFFER_SIZE_BYTES = 4096
FETCH_MIN_BYTES = 4096
FETCH_MAX_WAIT_TIME = 100
FETCH_DEFAULT_BLOCK_TIMEOUT = 1
MAX_FETCH_BUFFER_SIZE_BYTES = 32768
FRAME_BYTES = 26  # of a message in 0.9's format, beside its key and value
LONGEST_WAIT_MS = 5000.0
FOR_EVER_S = 1.0  # a step of a wait without end
MOST_BYTES = 64 << 20  # of keys and values that one call collects, whatever count says


class FetchContext:
    """Within it fetches wait as the call wants it: with block for timeout seconds (None: 1) or a first byte, without it not at all."""

    def __init__(self, consumer: Any, block: bool, timeout: float | None) -> None:
        self.consumer = consumer
        self.block = block
        self.timeout = (timeout or FETCH_DEFAULT_BLOCK_TIMEOUT) * 1000 if block else None

    def __enter__(self) -> None:
        """Set fetch values based on blocking status."""
        self.orig_fetch_max_wait_time = self.consumer.fetch_max_wait_time
        self.orig_fetch_min_bytes = self.consumer.fetch_min_bytes
        if self.block:
            self.consumer.fetch_max_wait_time = self.timeout
            self.consumer.fetch_min_bytes = 1
        else:
            self.consumer.fetch_min_bytes = 0

    def __exit__(self, type: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        """Reset values."""
        self.consumer.fetch_max_wait_time = self.orig_fetch_max_wait_time
        self.consumer.fetch_min_bytes = self.orig_fetch_min_bytes


@hinting
@telling
class SimpleConsumer(Consumer):
    """Consumes a topic's partitions, all of them or those of a list; it shares them with nobody. For one worker.

    fetch_size_bytes: the broker waits until it has so much, for 100 ms at most; a call that waits takes what there is. buffer_size: bytes asked of
    each partition; when a message is larger it doubles until the message fits, up to max_buffer_size (None: as needed). A larger message raises
    ConsumerFetchSizeTooSmall, at each call, and the consumer stays before it. iter_timeout: seconds without a message after which an iteration
    ends, None is never. auto_offset_reset: where it goes on when the log does not have its offset any more, 'smallest' or 'largest'; any other value
    raises OffsetOutOfRange. The other arguments are those of Consumer. Reference: kafka-python 0.9, SimpleConsumer.
    """

    def __init__(
        self,
        client: Any,
        group: str | bytes | None,
        topic: str,
        auto_commit: bool = True,
        partitions: Iterable[int] | None = None,
        auto_commit_every_n: int | None = AUTO_COMMIT_MSG_COUNT,
        auto_commit_every_t: float | None = AUTO_COMMIT_INTERVAL,
        fetch_size_bytes: int = FETCH_MIN_BYTES,
        buffer_size: int = FETCH_BUFFER_SIZE_BYTES,
        max_buffer_size: int | None = MAX_FETCH_BUFFER_SIZE_BYTES,
        iter_timeout: float | None = None,
        auto_offset_reset: str = "largest",
    ) -> None:
        self._stopped = True
        self._fetch_min_bytes = check_count("fetch_size_bytes", fetch_size_bytes, low=0)
        self._fetch_max_wait_time: float = FETCH_MAX_WAIT_TIME
        self._buffer_size = check_count("buffer_size", buffer_size)
        self.max_buffer_size = None if max_buffer_size is None else check_count("max_buffer_size", max_buffer_size)
        if self.max_buffer_size is not None and self._buffer_size > self.max_buffer_size:
            raise ConfigurationError(f"buffer_size={buffer_size} is more than max_buffer_size={max_buffer_size}")
        self.iter_timeout = None if iter_timeout is None else check_seconds("iter_timeout", iter_timeout)
        self._reader: Reader | None = None
        self._problem: KafkaException | None = None  # for the next call
        super().__init__(client, group, topic, partitions, auto_commit, auto_commit_every_n, auto_commit_every_t)
        self._reader = Reader(
            self._client,
            reset=start_of(auto_offset_reset),
            fetch_min_bytes=max(1, self._fetch_min_bytes),
            fetch_wait_max_ms=self._fetch_max_wait_time,
            fetch_message_max_bytes=self._buffer_size,
        )
        with Undoing(self.stop):
            self._reader.assign({self._tp(p): offset for p, offset in self.offsets.items()})

    # -- how it fetches --------------------------------------------------------------------------------------------------------
    @property
    def fetch_min_bytes(self) -> int:
        """The broker waits until it has so much."""
        return self._fetch_min_bytes

    @fetch_min_bytes.setter
    def fetch_min_bytes(self, value: int) -> None:
        self._fetch_min_bytes = value
        self._tune()

    @property
    def fetch_max_wait_time(self) -> float:
        """How long it waits for that, in ms."""
        return self._fetch_max_wait_time

    @fetch_max_wait_time.setter
    def fetch_max_wait_time(self, value: float) -> None:
        self._fetch_max_wait_time = value
        self._tune()

    @property
    def buffer_size(self) -> int:
        """Bytes asked of each partition."""
        return self._buffer_size

    @buffer_size.setter
    def buffer_size(self, value: int) -> None:
        self._buffer_size = value
        self._tune()

    def _tune(self) -> None:
        if self._reader is not None:
            # Fetches run ahead of the calls: one that waits for nothing would be repeated without end, so the least is one byte.
            self._reader.consumer.tune(
                fetch_min_bytes=max(1, self._fetch_min_bytes),
                fetch_wait_max_ms=min(self._fetch_max_wait_time, LONGEST_WAIT_MS),
                fetch_message_max_bytes=self._buffer_size,
            )

    # -- consuming -------------------------------------------------------------------------------------------------------------
    def get_message(self, block: bool = True, timeout: float | None = 0.1, get_partition_info: bool | None = None) -> Any:
        """The next message as (offset, message), None if there is none.

        block: wait for it up to timeout seconds, None is for ever. get_partition_info: as (partition, (offset, message)); None: as
        provide_partition_info() says.
        """
        if get_partition_info is not None:
            check_flag("get_partition_info", get_partition_info)
        with_partition = self.partition_info if get_partition_info is None else get_partition_info
        return next(iter(self._take(1, block, timeout, with_partition)), None)

    def get_messages(self, count: int = 1, block: bool = True, timeout: float | None = 0.1) -> list[Any]:
        """Up to count messages. block: wait for so many up to timeout seconds, None is for ever; without it those that there are."""
        return self._take(check_count("count", count), block, timeout, self.partition_info)

    def __iter__(self) -> Iterator[Any]:
        """Messages, until none came for iter_timeout."""
        while not self._stopped:
            try:
                message = self.get_message(True, FOR_EVER_S if self.iter_timeout is None else self.iter_timeout)
            except ConsumerStoppedException:
                return
            if message is not None:
                yield message
            elif self.iter_timeout is not None:
                return

    def _take(self, count: int, block: bool, timeout: float | None, with_partition: bool) -> list[Any]:
        self._check_open()
        check_flag("block", block)
        wait_s = 0.0 if not block else float("inf") if timeout is None else check_seconds("timeout", timeout)
        assert self._reader is not None  # it is open
        if count == 1 and not self._waiting and self._problem is None and self._reader.take_ready(self._keep):
            return self._hand_out(1, with_partition)
        until = self._handler.monotonic() + wait_s
        with FetchContext(self, block, timeout):
            self._collect(count, until, block)
        return self._hand_out(count, with_partition)

    def _collect(self, count: int, until: float, block: bool) -> None:
        """Have count messages wait, fewer if they pass MOST_BYTES, or those that come until then. Raises what went wrong once none waits: with the next
        call, if some do.
        """
        assert self._reader is not None
        room = MOST_BYTES
        while len(self._waiting) < count and room > 0 and self._problem is None:
            before = len(self._waiting)
            left = until - self._handler.monotonic()
            try:
                wait_s = max(0.0, min(left, FOR_EVER_S))
                found = self._reader.take(count - len(self._waiting), wait_s, self._keep, self._stands)
            except ConsumerStoppedException:
                raise  # stop() has committed: what waits is for whoever goes on
            except KafkaException as exc:
                self._problem = exc
                break
            room -= sum(len(key or b"") + len(value or b"") for _, _, key, value in self._waiting[before:])
            if self._handler.monotonic() >= until and not (found and not block):
                return
        problem = self._problem
        if problem is not None and (not self._waiting or isinstance(problem, ConsumerFetchSizeTooSmall)):
            self._problem = None  # of the message that is too large the next call hears again, if it still is
            if not self._waiting:
                raise problem

    def _keep(self, messages: list[Any]) -> None:
        """Have them wait. Stays before a message that is too large."""
        kept: list[tuple[int, int, bytes | None, bytes | None]] = []
        stuck: dict[int, tuple[int, int]] = {}
        for m in messages:
            partition, offset, key, value = m.partition_id, m.offset, m.key, m.value
            if partition in stuck:
                continue
            size = FRAME_BYTES + len(key or b"") + len(value or b"")
            if size > self._buffer_size and not self._makes_room(size):
                stuck[partition] = offset, size
                continue
            kept.append((partition, offset, key, value))
        for partition, (offset, _) in stuck.items():
            assert self._reader is not None
            self._reader.consumer.seek(self._tp(partition), offset)
        self._waiting += kept  # all of them or none
        if stuck and not kept:
            partition, (offset, size) = next(iter(stuck.items()))
            text = f"{self.topic}-{partition}: the message at offset {offset} has {size} bytes, more than max_buffer_size={self.max_buffer_size}"
            raise ConsumerFetchSizeTooSmall(f"{text}: raise it, or seek past it", topic=self.topic, partition=partition, offset=offset)

    def _stands(self) -> dict[TopicPartition, int]:
        """Where the reader is to go on: after what waits."""
        return {self._tp(p): offset for p, offset in {**self.offsets, **{p: offset + 1 for p, offset, *_ in self._waiting}}.items()}

    def _makes_room(self, size: int) -> bool:
        if self.max_buffer_size is not None and size > self.max_buffer_size:
            return False
        wanted = self._buffer_size
        while wanted < size:
            wanted *= 2
        self.buffer_size = wanted if self.max_buffer_size is None else min(wanted, self.max_buffer_size)
        return True

    # -- positions -------------------------------------------------------------------------------------------------------------
    def fetch_last_known_offsets(self, partitions: Iterable[int] | None = None) -> None:
        """Go on where the group has committed. partitions: None is all of them."""
        super().fetch_last_known_offsets(partitions)
        self._move({p: self.offsets[p] for p in self._chosen(partitions)})

    def seek(self, offset: int, whence: int | None = None, partition: int | None = None) -> None:
        """Go on elsewhere, as fseek does.

        whence: 0 counts from the earliest offset there is, 1 from where this consumer stands, 2 from the end (seek(-5, 2): the last five); None:
        offset is the one to go on from. partition: of this one alone. Of several partitions 0 and 2 divide the offset among them, as kafka-python
        does; 1 moves each by it. Never before the start of a log or behind its end.
        """
        self._check_open()
        if isinstance(offset, bool) or not isinstance(offset, int):
            raise WrongTypeError(f"offset={offset!r}: must be a whole number")
        if whence not in (None, 0, 1, 2) or isinstance(whence, bool):
            raise ConfigurationError(
                f"whence={whence!r}: must be 0 (from the start), 1 (from here), 2 (from the end) or None (the offset itself)"
            )
        chosen = self._chosen(None if partition is None else [partition])
        deadline = self._handler.monotonic() + self._patience_s
        tps = [self._tp(p) for p in chosen]
        begins, ends = (ends_of(self._client, tps, which, deadline, patient=True) for which in (-2, -1))
        shares = _divided(offset, len(chosen)) if whence in (0, 2) else [offset] * len(chosen)
        target: dict[int, int] = {}
        for p, tp, share in zip(chosen, tps, shares, strict=True):
            base = 0 if whence is None else begins[tp] if whence == 0 else self.offsets[p] if whence == 1 else ends[tp]
            target[p] = max(begins[tp], min(base + share, ends[tp]))
        self.offsets.update(target)
        self._move(target)

    def _move(self, offsets: dict[int, int]) -> None:
        assert self._reader is not None
        self._problem = None
        self._waiting = [one for one in self._waiting if one[0] not in offsets]
        for partition, offset in offsets.items():
            self._reader.consumer.seek(TopicPartition(self.topic, partition), offset)

    def stop(self) -> None:
        """End, and with auto_commit commit what was handed out. Idempotent; what is cut short is finished by the next one."""
        self._stopped = True
        if self._reader is not None:
            self._reader.stop()
        super().stop()


def _divided(offset: int, parts: int) -> list[int]:
    share, rest = divmod(offset, parts) if parts else (0, 0)
    return [share + 1] * rest + [share] * (parts - rest)
