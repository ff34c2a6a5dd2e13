"""pykafka's SimpleConsumer: all partitions of a topic, or those given; no balancing. A skin of `gkafka.nativeconsumer`.

Documented: pykafka-2.0.4 SimpleConsumer; keywords that are newer are those of pykafka 2.8.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from gkafka.checks import (
    check_count,
    check_flag,
    check_name,
    check_offset,
    check_pairs,
    check_partition,
    check_seconds,
    check_text,
    check_time,
)
from gkafka.common import OffsetType, TopicPartition
from gkafka.config import ConsumerConfig, build, check_keywords
from gkafka.core.offsets import Committed
from gkafka.deserializing import Deserializers, by_both
from gkafka.exceptions import (
    ConfigurationError,
    ConsumerStoppedException,
    ForkedClientError,
    KafkaException,
    NoPartitionsForConsumerException,
    OffsetRequestFailedError,
)
from gkafka.explaining import Explanation, stopped
from gkafka.groupoffsets import Identity
from gkafka.lifetime import ends
from gkafka.logs import get_logger
from gkafka.nativeconsumer import NativeConsumer
from gkafka.oneprocess import OfOneProcess
from gkafka.ownedpartition import OwnedPartition
from gkafka.partition import Partition
from gkafka.protocol import OffsetFetchPartitionResponse
from gkafka.starter import held_weakly
from gkafka.undoing import Undoing

if TYPE_CHECKING:
    from gkafka.cluster import Cluster
    from gkafka.records import Message
    from gkafka.topic import Topic

__all__ = ["OffsetFetchPartitionResponse", "OwnedPartition", "SimpleConsumer"]

log = get_logger(__name__)

TICK_S = 1.0
AUTO_COMMIT_INTERVAL_MS = 60 * 1000
LAST = (1 << 63) - 1
NOTHING_CONSUMED = -2
"""What held_offsets shows for a partition of which nothing was consumed and nothing is committed (pykafka's value)."""


class HeldPartition:
    """Where a SimpleConsumer stands in a partition, now. partition: which one. Attributes are those of pykafka's OwnedPartition that say so."""

    def __init__(self, consumer: SimpleConsumer, partition: Partition) -> None:
        self._consumer, self.partition = consumer, partition

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} of {self.partition!r}, next_offset={self.next_offset}>"

    @property
    def last_offset_consumed(self) -> int:
        """The offset before the next one; -1 where that is the first one, or not known."""
        return self.next_offset - 1

    @property
    def next_offset(self) -> int:
        """The offset of the next message that consume() returns of it, 0 where that is not known. pykafka's is behind the messages that wait there."""
        return max(0, self._consumer._stands().get(self.partition.id, -1))


class SimpleConsumer(OfOneProcess):
    """Consumes a topic.

    topic, cluster: what it was made from. consumer_group: only for committing and fetching offsets. partitions: Partition objects or ids,
    None is all. fetch_message_max_bytes: bytes asked of one partition in one fetch. num_consumer_fetchers: fetch workers.
    auto_commit_enable, auto_commit_interval_ms: commit in the background what was consumed. queued_max_messages: a partition that holds
    this many messages is not fetched. fetch_min_bytes, fetch_wait_max_ms: the broker waits for so much, for so long.
    fetch_error_backoff_ms: pause after an error of a partition. offsets_channel_backoff_ms, offsets_commit_max_retries: pause between
    and number of the retries of offset requests. auto_offset_reset: OffsetType.EARLIEST or LATEST, where nothing is committed and where
    the offset is out of range. consumer_timeout_ms: consume() gives None after this long without a message, -1 waits for ever.
    auto_start: start at once. reset_offset_on_start: start from auto_offset_reset whatever is committed, and commit that.
    compacted_topic: commits need not be consecutive (they never need be here). generation_id, consumer_id: for consumers that are members
    of a group. deserializer: callable (value, key) -> (value, key) for each message. reset_offset_on_fetch: False keeps consumed
    positions when offsets are fetched again at a restart.
    """

    def __init__(
        self,
        topic: Topic,
        cluster: Cluster,
        consumer_group: str | bytes | None = None,
        partitions: Iterable[Partition | int] | None = None,
        fetch_message_max_bytes: int = 1024 * 1024,
        num_consumer_fetchers: int = 1,
        auto_commit_enable: bool = False,
        auto_commit_interval_ms: int = AUTO_COMMIT_INTERVAL_MS,
        queued_max_messages: int = 2000,
        fetch_min_bytes: int = 1,
        fetch_error_backoff_ms: int = 500,
        fetch_wait_max_ms: int = 100,
        offsets_channel_backoff_ms: int = 1000,
        offsets_commit_max_retries: int = 5,
        auto_offset_reset: int = OffsetType.EARLIEST.value,
        consumer_timeout_ms: int = -1,
        auto_start: bool = True,
        reset_offset_on_start: bool = False,
        compacted_topic: bool = False,
        generation_id: int = -1,
        consumer_id: str | bytes = b"",
        deserializer: Callable[[Any, Any], tuple[Any, Any]] | None = None,
        reset_offset_on_fetch: bool = True,
        **options: Any,
    ) -> None:
        check_keywords(SimpleConsumer, options, ConsumerConfig, beside=["use_rdkafka"])
        if auto_offset_reset not in (OffsetType.EARLIEST, OffsetType.LATEST):
            raise ConfigurationError(f"auto_offset_reset={auto_offset_reset!r}: must be OffsetType.EARLIEST (-2) or OffsetType.LATEST (-1)")
        for name, number, low in (
            ("auto_commit_interval_ms", auto_commit_interval_ms, 1),
            ("offsets_channel_backoff_ms", offsets_channel_backoff_ms, 0),
            ("consumer_timeout_ms", consumer_timeout_ms, -1),
        ):
            check_seconds(name, number, low=low)
        for name, flag in (
            ("auto_commit_enable", auto_commit_enable),
            ("auto_start", auto_start),
            ("reset_offset_on_start", reset_offset_on_start),
            ("compacted_topic", compacted_topic),
            ("reset_offset_on_fetch", reset_offset_on_fetch),
        ):
            check_flag(name, flag)
        if deserializer is not None and not callable(deserializer):
            raise ConfigurationError(f"deserializer={deserializer!r}: must be a callable (value, key) -> (value, key)")
        self._config = build(
            ConsumerConfig,
            {
                "fetch_message_max_bytes": fetch_message_max_bytes,
                "num_consumer_fetchers": num_consumer_fetchers,
                "queued_max_messages": queued_max_messages,
                "fetch_min_bytes": fetch_min_bytes,
                "fetch_error_backoff_ms": fetch_error_backoff_ms,
                "fetch_wait_max_ms": fetch_wait_max_ms,
                **options,
            },
            where="SimpleConsumer()",
        )
        check_text("client_rack", self._config.client_rack)
        self._topic, self._cluster, self._handler = topic, cluster, cluster.handler
        self._group = check_name("consumer_group", consumer_group) if consumer_group is not None else None
        if auto_commit_enable and self._group is None:
            raise ConfigurationError("auto_commit_enable=True needs a consumer_group")
        if not auto_commit_enable and auto_commit_interval_ms != AUTO_COMMIT_INTERVAL_MS:
            log.warning(
                "auto_commit_interval_ms=%r: nothing is committed in the background without auto_commit_enable=True; give that, or leave it out",
                auto_commit_interval_ms,
            )
        self._auto_commit_enable, self._auto_commit_interval_ms = auto_commit_enable, auto_commit_interval_ms
        self._backoff_s, self._retries = (
            offsets_channel_backoff_ms / 1000,
            check_count("offsets_commit_max_retries", offsets_commit_max_retries, low=0),
        )
        self._auto_offset_reset, self._timeout_ms = int(auto_offset_reset), consumer_timeout_ms
        self._reset_on_start, self._reset_on_fetch, self._compacted = reset_offset_on_start, reset_offset_on_fetch, compacted_topic
        self._generation_id = check_count("generation_id", generation_id, low=-1)
        self._consumer_id = check_text("consumer_id", consumer_id)
        self._deserializers = Deserializers(cluster, None if deserializer is None else by_both(deserializer))
        self._wanted = self._check_partitions(partitions)
        self._engine: NativeConsumer | None = None
        self._one: Callable[[], Any | None] = lambda: None  # takes a message that lies at hand
        self._stood_at: dict[int, int] = {}  # partition -> next offset, where the last run ended
        self._error: KafkaException | None = None
        self._running = False
        self._committer: Any = None
        # Set by whoever balances: positions that go before what is committed, and whether the partitions are still ours to commit.
        self._resume_at: dict[int, int] = {}
        self.in_hands: dict[int, int] = {}
        """Partition -> offset before what consumers that stood in the place of this one, or this one before its stop, have handed out and the application
        has not come back for."""
        self._may_commit: Callable[[], bool] = lambda: True
        self._may_deliver: Callable[[], bool] | None = None
        self._wake = self._handler.Event()
        cluster.sleepers.add(self._wake)
        self._committed_at = self._handler.monotonic()
        if auto_start:
            self.start()

    def _check_partitions(self, partitions: Iterable[Partition | int] | None) -> list[int] | None:
        if partitions is None:
            return None
        if not isinstance(partitions, Iterable) or isinstance(partitions, (str, bytes)):
            raise ConfigurationError(f"partitions={partitions!r}: must be a list of Partition objects or ids, or None for all")
        ids = [partition_id_of(self._topic, p) for p in partitions]
        if not ids:
            raise ConfigurationError("partitions=[]: name at least one partition; None is all of them")
        known = self._topic.partitions
        for p in ids:
            if p not in known:
                raise ConfigurationError(f"partitions: topic {self._topic.name!r} has no partition {p!r}, only {sorted(known)}")
        return ids

    def __repr__(self) -> str:
        if not hasattr(self, "_group"):  # where a traceback shows the arguments of a call that failed
            return f"<{type(self).__name__} that was not made>"
        group = self._group or None
        return f"<{type(self).__module__}.{type(self).__name__} at {id(self):#x} (topic={self._topic.name}, consumer_group={group})>"

    # -- documented properties -----------------------------------------------------------------------------------------------
    @property
    def topic(self) -> Topic:
        """The topic that this consumer consumes."""
        return self._topic

    @property
    def partitions(self) -> dict[int, Partition]:
        """The partitions that this consumer consumes, by id."""
        self._handler.check_fork()
        known, engine = self._topic.partitions, self._engine
        wanted = sorted(known) if self._wanted is None else self._wanted
        # Partitions that the topic has got since are consumed from the next start() on.
        ids = wanted if engine is None else [tp.partition for tp in engine.positions()]
        return {p: known[p] for p in ids if p in known}

    @property
    def _partitions(self) -> dict[Partition, HeldPartition]:
        """Where the consumer stands, by partition: what pykafka keeps under this name, and programs use."""
        return {partition: HeldPartition(self, partition) for partition in self.partitions.values()}

    @property
    def held_offsets(self) -> dict[int, int]:
        """Partition id -> the offset of the last message consumed (documented: held offset); -2 where there is none."""
        stands = self._stands()
        return {p: offset - 1 if (offset := stands.get(p, -1)) > 0 else NOTHING_CONSUMED for p in self.partitions}

    def _stands(self) -> dict[int, int]:
        """Partition id -> the offset of the next message; -1, or nothing, where that is not known."""
        engine = self._engine
        return self._stood_at if engine is None else _by_id(engine.positions())

    @property
    def consumer_id(self) -> str:
        """This member's id in its group, "" without membership."""
        return self._consumer_id

    @property
    def generation_id(self) -> int:
        """The group's generation, -1 without membership."""
        return self._generation_id

    def _tp(self, partition: int) -> TopicPartition:
        return TopicPartition(self._topic.name, partition)

    def explain(self) -> Explanation:
        """For each partition, in plain words and as data, why it is or is not being delivered."""
        self._handler.check_fork()
        engine = self._engine
        if engine is None:
            return Explanation(stopped({self._tp(p): self._stood_at.get(p, -1) for p in self.partitions}))
        return engine.explain()

    # -- life ----------------------------------------------------------------------------------------------------------------
    def start(self) -> None:
        """Find the start offsets and begin to fetch. Called by the constructor unless auto_start=False."""
        self._handler.check_fork()
        if self._running:
            return
        partitions = self.partitions
        engine = NativeConsumer(self._cluster, self._config, reset_policy=self._auto_offset_reset, group=self._group)
        engine.taker.ask_before_delivery(self._may_deliver)
        engine.on_close = weakref.WeakMethod(self._stop)
        me = weakref.ref(self)
        engine.offsets.identity = Identity(
            self._group,
            self._generation_id,
            self._consumer_id,
            allowed=lambda: (consumer := me()) is not None and consumer._may_commit(),  # as it will be then
        )
        engine.start()
        with Undoing(self._start_failed, engine):
            starts, epochs = self._starts(engine, partitions)
            engine.assign(starts, {self._tp(p): partitions[p] for p in partitions}, epochs=epochs)
            engine.note_committed({tp: starts[tp] for tp in epochs})
            self._one = self._one_of(engine)
            self._engine, self._running = engine, True
            engine.start_offsets_known(self._deadline())
            if self._reset_on_start and self._group:
                self._commit(engine)
        if self._auto_commit_enable:
            self._setup_autocommit_worker()

    def _start_failed(self, engine: NativeConsumer) -> None:
        self._running = False
        engine.stop()

    def _deadline(self) -> float:
        return self._handler.monotonic() + self._cluster.config.api_timeout_ms / 1000

    def _starts(self, engine: NativeConsumer, partitions: Iterable[int]) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Where each partition starts (behaviours 12-19): after what is committed, else at auto_offset_reset; and the epochs of commits."""
        starts = {self._tp(p): self._auto_offset_reset for p in partitions}
        epochs: dict[TopicPartition, int] = {}
        if self._group and not self._reset_on_start:
            committed = {tp: c for tp, c in self._fetch_committed(engine, list(starts)).items() if c.offset >= 0}
            starts.update({tp: c.offset for tp, c in committed.items()})
            epochs = {tp: c.leader_epoch for tp, c in committed.items()}
        if not self._reset_on_fetch:
            held = {self._tp(p): offset for p, offset in self._stood_at.items() if self._tp(p) in starts}
            starts.update(held)
            epochs = {tp: epoch for tp, epoch in epochs.items() if tp not in held}
        resumed = {self._tp(p): offset for p, offset in self._resume_at.items() if self._tp(p) in starts}
        return {**starts, **resumed}, {tp: epoch for tp, epoch in epochs.items() if tp not in resumed}

    def _fetch_committed(self, engine: NativeConsumer, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Committed]:
        timeout_s = self._cluster.config.api_timeout_ms / 1000
        return engine.offsets.committed(partitions, timeout_s=timeout_s, tries=self._retries, backoff_s=self._backoff_s)

    def stop(self) -> None:
        """Commit if auto_commit_enable, stop fetching, end the workers. Idempotent; start() begins again."""
        self._stop(None)

    @ends
    def _stop(self, timeout: float | None, share: Collection[int] | None = None, *, finished: bool = False) -> None:
        """timeout: seconds for the commit. share: of a member at a rebalance, the partitions that it still has: nothing of others is committed.
        finished: commit what the application has come back for, also without auto_commit_enable.
        """
        engine = self._engine
        if engine is None:
            return
        self._handler.check_may_wait()
        with contextlib.suppress(ForkedClientError):  # in a child it ends what is the child's own
            self._handler.check_fork()  # raises where a hub has ended, in which its workers would have to end it
        patience_s = self._cluster.config.api_timeout_ms / 1000 if timeout is None else timeout
        deadline = self._handler.monotonic() + patience_s
        self._running = False
        self._wake.set()
        engine.stop(patience_s)  # first: what another worker takes behind the commit would be consumed again (B24)
        stands = engine.at_work.end_all()
        self._stood_at = {p: offset for p, offset in _by_id(stands).items() if offset >= 0}
        if self._auto_commit_enable and self._may_commit():
            with self._logging_failures():
                mine = {tp: o for tp, o in stands.items() if share is None or tp.partition in share}
                self._commit(engine, engine.news(mine), timeout_s=timeout)  # if there are none it asks no broker, which may be away
        if share is not None:
            if finished:
                self.commit_finished(share, timeout)
            behind = engine.finished({self._tp(p): offset for p, offset in self.in_hands.items()})
            self.in_hands = {tp.partition: offset for tp, offset in behind.items() if offset < stands[tp]}
        self._engine = None
        if self._committer is not None:
            if not self._handler.was_forked:  # in a child it is the parent's: a thread that may look alive, and never ends
                self._committer.join(min(TICK_S * 2, max(0.0, deadline - self._handler.monotonic())))
            self._committer = None

    def cleanup(self) -> None:
        """Stop (pykafka 2.8's name for giving up the partitions)."""
        self.stop()

    def __enter__(self) -> SimpleConsumer:
        return self

    def __exit__(self, exc_type: Any, exc: Any, traceback: Any) -> None:
        self.stop()

    def __del__(self) -> None:
        # Only a flag: no wait, no lock, no network. Workers hold this object weakly, and end when it is gone.
        if getattr(self, "_running", False):
            self._running = False

    def _running_engine(self) -> NativeConsumer:
        self._handler.check_fork()
        engine = self._engine
        if engine is None or not self._running:
            raise ConsumerStoppedException("the consumer is not running: call start(), or make a new one")
        return engine

    # -- consuming -----------------------------------------------------------------------------------------------------------
    def consume(self, block: bool = True, unblock_event: Any = None) -> Message | Any | None:
        """The next message, or None: after consumer_timeout_ms, at once with block=False, or when unblock_event is set.

        Raises ConsumerStoppedException after stop(), CorruptRecordError naming the place of damaged bytes, and what a worker met.
        """
        if block is not True or unblock_event is not None:
            _check_wait(block, unblock_event)
        if (message := self.next_ready()) is not None:
            return message
        self._handler.check_fork()
        messages = self._next(1, block, self._timeout_ms, unblock_event)
        return messages[0] if messages else None

    def next_ready(self) -> Any | None:
        """The next message if it lies at hand and nothing else is to be done first."""
        engine = self._engine
        if engine is None or not self._running or self._error is not None:
            return None
        if engine.taker.may_deliver is not None and not engine.taker.may_deliver():
            return None
        return self._one()

    def _one_of(self, engine: NativeConsumer) -> Callable[[], Any | None]:
        run, make, room = engine.run, self._deserializers.make, engine.config.consume_max_bytes
        if make is None:
            return engine.taker.one_by(run.next, (), partial(run.several, room))
        return engine.taker.one_by(run.made, (make, True), partial(run.several_made, make, True, room))

    def few_ready(self, most: int) -> list[Any]:
        """So many of them, [] where there are fewer."""
        engine, make = self._engine, self._deserializers.make
        if engine is None or not self._running or self._error is not None or not engine.taker.may_hand_out():
            return []
        room, queue = engine.config.consume_max_bytes, engine.run.queue
        if queue is not None:
            engine.few_from = engine.hand_outs + 1, queue.position.consumed
        several = partial(engine.run.several, room) if make is None else partial(engine.run.several_made, make, True, room)
        return engine.taker.few_by(several)(most)

    def consume_batch(self, max_messages: int | None = None, timeout_ms: float | None = None) -> list[Any]:
        """Up to max_messages (None: what is there), waiting up to timeout_ms for the first (None: consumer_timeout_ms); [] if none came."""
        if type(max_messages) is int and max_messages > 0 and (messages := self.few_ready(max_messages)):
            return messages
        wanted = None if max_messages is None else check_count("max_messages", max_messages, high=(1 << 63) - 1)
        limit_ms = self._timeout_ms if timeout_ms is None else check_seconds("timeout_ms", timeout_ms, low=-1)
        return self._next(wanted, True, limit_ms, None)

    def _next(self, wanted: int | None, block: bool, timeout_ms: float, unblock_event: Any) -> list[Any]:
        self.came_back()
        self._raise_worker_exceptions()
        engine = self._running_engine()
        slice_ms = timeout_ms if block else 0
        deadline = None if timeout_ms < 0 else self._handler.monotonic() + timeout_ms / 1000
        while True:
            if block and (timeout_ms < 0 or unblock_event is not None):
                slice_ms = 100.0 if unblock_event is not None else TICK_S * 1000
            messages = self._take(engine, wanted, slice_ms)
            if messages or not block or (deadline is not None and self._handler.monotonic() >= deadline):
                break
            if unblock_event is not None and unblock_event.is_set():
                break
            self._raise_worker_exceptions()
        return messages

    def _take(self, engine: NativeConsumer, wanted: int | None, timeout_ms: float) -> list[Any]:
        if self._deserializers.make is None:
            return engine.consume_batch(wanted, timeout_ms)
        found: list[Any] = engine.taker.consume_through(
            lambda messages, go_back: self._deserializers.apply(go_back, messages, 0), wanted, timeout_ms
        )
        return found

    def __iter__(self) -> Iterator[Any]:
        """Messages until consumer_timeout_ms passes without one."""
        while True:
            message = self.next_ready()
            if message is None:
                message = self.consume(block=True)
            if message is None:
                return
            yield message

    def fetch(self) -> None:
        """Ask for messages now (documented); the workers do so by themselves."""
        self._running_engine().fetch()

    def _raise_worker_exceptions(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    # -- offsets -------------------------------------------------------------------------------------------------------------
    def commit_offsets(self, partition_offsets: Iterable[tuple[Partition | int, int]] | None = None) -> None:
        """Commit where this consumer stands, or (partition, next offset) pairs. Raises after offsets_commit_max_retries."""
        engine = self._running_engine()
        if not self._group:
            raise ConfigurationError("commit_offsets needs a consumer_group")
        offsets = None
        if partition_offsets is not None:
            given = check_pairs("partition_offsets", partition_offsets, PAIRS)
            offsets = {self._tp(partition_id_of(self._topic, p)): check_offset("offset", offset) for p, offset in given}
        self._commit(engine, offsets)

    def _commit(
        self,
        engine: NativeConsumer,
        offsets: dict[TopicPartition, int] | None = None,
        *,
        timeout_s: float | None = None,
        background: bool = False,
        at_most: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        engine.commit(
            offsets,
            background=background,
            at_most=at_most,
            timeout_s=self._cluster.config.api_timeout_ms / 1000 if timeout_s is None else timeout_s,
            tries=self._retries,
            backoff_s=self._backoff_s,
        )
        self._committed_at = self._handler.monotonic()

    def commit_finished(self, share: Collection[int], timeout_s: float | None = None) -> None:
        """Commit of these partitions what the application has come back for, and leave the rest as it is. A failure is logged."""
        engine = self._engine
        if engine is None or not self._may_commit():
            return
        at_most = {tp: self.in_hands.get(tp.partition, LAST) if tp.partition in share else -1 for tp in engine.positions()}
        with self._logging_failures():
            self._commit(engine, timeout_s=timeout_s, background=True, at_most=at_most)

    @contextlib.contextmanager
    def _logging_failures(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as exc:
            log.error("group %s: the last commit failed, messages may be consumed again: %s", self._group, exc)

    def came_back(self) -> None:
        """The application asks for more: it has finished what it was handed before."""
        engine, self.in_hands = self._engine, {}
        if engine is not None:
            engine.run.seen = engine.hand_outs

    def fetch_offsets(self) -> list[tuple[int, OffsetFetchPartitionResponse]]:
        """(partition id, committed offset) of this consumer's partitions, and go on from there (documented)."""
        if not self._group:
            raise ConfigurationError("fetch_offsets needs a consumer_group")
        engine = self._running_engine()
        found = self._fetch_committed(engine, [self._tp(p) for p in self.partitions])
        if self._reset_on_fetch:
            for tp, committed in found.items():
                if committed.offset >= 0 and committed.offset != engine.position(tp):
                    engine.seek(tp, committed.offset)
        return [(tp.partition, OffsetFetchPartitionResponse(committed.offset, committed.metadata, 0)) for tp, committed in found.items()]

    def reset_offsets(self, partition_offsets: Iterable[tuple[Partition | int, datetime | int]] | None = None) -> None:
        """Go on from other offsets; (partition, timestamp or offset) pairs, None is auto_offset_reset for all.

        The value is EITHER a datetime (UTC if it names no zone) or a timestamp in ms, from 1,000,000,000,000 (2001) on: the first message that is not
        older, or the end of the log behind the last one (-2 earliest, -1 latest, or another special time of newer brokers; the end where there is nothing of
        the kind); OR the new offset itself. What is given stands as the next offset to consume; a consumer with a group
        commits it at once.
        Raises OffsetRequestFailedError if the look-up fails.
        """
        engine = self._running_engine()
        pairs: list[tuple[Any, Any]] = [(p, self._auto_offset_reset) for p in self.partitions]
        if partition_offsets is not None:
            pairs = check_pairs("partition_offsets", partition_offsets, PAIRS)
        self.go_on_from({partition_id_of(self._topic, p): value for p, value in pairs})
        self.came_back()
        if self._group:  # whatever auto_commit_enable says: programs rewind their groups so
            self._commit(engine)

    def go_on_from(self, places: Mapping[int, datetime | int]) -> None:
        """Partition -> timestamp or offset, as of reset_offsets(). Commits nothing."""
        engine = self._running_engine()
        wanted = {self._tp(p): check_time("offset", value) for p, value in places.items()}
        # An offset is not looked up: for that the broker would have to read a log that may be damaged.
        looked_up = {self._tp(p) for p, value in places.items() if isinstance(value, datetime) or not 0 <= value < FIRST_TIMESTAMP_MS}
        times = {(tp.topic, tp.partition): wanted[tp] for tp in looked_up}
        try:
            found = self._cluster.list_offsets(times, patient=True) if times else {}
            later = [tp for tp in looked_up if not found.get(tp)]
            if later:
                found = {**found, **self._cluster.list_offsets(dict.fromkeys(later, OffsetType.LATEST), patient=True)}
        except KafkaException as exc:
            if not exc.retriable:
                raise
            raise OffsetRequestFailedError(f"the offsets of {self._topic.name!r} could not be looked up: {exc}") from exc
        for tp, value in wanted.items():
            engine.seek(tp, found[tp][0] if tp in looked_up else value)

    # -- auto commit -----------------------------------------------------------------------------------------------------------
    def _setup_autocommit_worker(self) -> None:
        self._committer = self._handler.spawn_lasting(_auto_commit, held_weakly(self, self._wake), _name="gkafka-autocommit")

    def _auto_commit(self) -> None:
        """Commit if the interval has passed."""
        engine = self._engine  # stop() takes it away at any moment
        if not self._auto_commit_enable or engine is None or not self._may_commit():
            return
        if self._handler.monotonic() - self._committed_at < self._auto_commit_interval_ms / 1000:
            return
        self._committed_at = self._handler.monotonic()
        try:
            self._commit(engine, background=True)
        except NoPartitionsForConsumerException as exc:
            log.info("%s", exc)
        except KafkaException as exc:
            log.error("group %s: auto commit failed: %s", self._group, exc)
            self._error = exc


PAIRS = "[(partition, offset)]"


def _check_wait(block: Any, unblock_event: Any) -> None:
    check_flag("block", block)
    if unblock_event is not None and not callable(getattr(unblock_event, "is_set", None)):
        raise ConfigurationError(f"unblock_event={unblock_event!r}: must be an event, with is_set()")


def _by_id(positions: dict[TopicPartition, int]) -> dict[int, int]:
    return {tp.partition: offset for tp, offset in positions.items()}


def partition_id_of(topic: Topic, partition: Any) -> int:
    """The id of a Partition object of the topic, or of what is an id."""
    if not isinstance(partition, Partition):
        return check_partition("partition", partition)
    if partition.topic.name != topic.name:
        raise ConfigurationError(f"{partition!r} is of another topic, this consumer consumes {topic.name!r}")
    return partition.id


FIRST_TIMESTAMP_MS = 1_000_000_000_000
"""September 2001: no record has an older timestamp, no partition that many records in practice. A smaller number is meant as an offset."""


def _auto_commit(me: weakref.ref[SimpleConsumer]) -> None:
    while True:
        consumer = me()
        if consumer is None or not consumer._running:
            return
        consumer._handler.check_fork()
        consumer._wake.clear()  # before looking: stop() sets it after, and so does every news of the cluster
        if not consumer._running:
            return
        consumer._auto_commit()
        wake, seconds = consumer._wake, min(TICK_S, consumer._auto_commit_interval_ms / 1000)
        wake.clear()  # whoever hears of fresh metadata sets it, too
        if not consumer._running:
            return
        del consumer
        wake.wait(max(seconds, 0.01))
