"""The native consumer: any number of topics, a pattern of them, or partitions; positions, pauses, commits, deserializers.

A thin skin of `gkafka.nativeconsumer`: what it adds is which partitions are read, and what counts as finished.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from gkafka.checks import (
    check_count,
    check_mapping,
    check_name,
    check_offset,
    check_partition,
    check_seconds,
    check_text,
    check_timestamp,
    check_topic_name,
    check_wait,
)
from gkafka.columnreader import joined
from gkafka.common import TopicPartition
from gkafka.config import NativeConsumerConfig
from gkafka.core.transaction import GroupMetadata
from gkafka.deserializing import Deserializers, GoBack, by_options, by_topic
from gkafka.exceptions import ConfigurationError, ConsumerStoppedException, ForkedClientError, KafkaException
from gkafka.explaining import Explanation
from gkafka.groupoffsets import starts_of
from gkafka.lifetime import ends
from gkafka.logs import get_logger
from gkafka.nativeconsumer import NativeConsumer
from gkafka.oneprocess import OfOneProcess
from gkafka.progress import Progress
from gkafka.records.columns import COLUMNS, arrow_schema, check_columns
from gkafka.sharing import Share, check_group_options
from gkafka.starter import held_weakly
from gkafka.subscribing import Subscription, look_for
from gkafka.undoing import Undoing

if TYPE_CHECKING:
    from types import TracebackType

    import pyarrow as pa

    from gkafka.cluster import Cluster
    from gkafka.records import Message

__all__ = ["Consumer"]

log = get_logger(__name__)

EARLIEST, LATEST = -2, -1
POLICIES = {"earliest": EARLIEST, "latest": LATEST, "none": None}
TICK_S = 4.0
AGAIN_S = 1.0
"""How soon partitions are tried again that could not begin."""
EXAMPLE = '{("topic", 0): 5}'
T = TypeVar("T")


class Consumer(OfOneProcess):
    """Made by client.get_consumer(). Several workers may consume at once: each record goes to one of them.

    topics: a name, names, a compiled pattern (topics that match and are made later are read, too), or None: assign() says what to read.
    group: where positions are committed. With topics, whose partitions the members of the group divide among themselves; without, partitions of
    an assignment start where the group has committed.
    """

    def __init__(self, cluster: Cluster, config: NativeConsumerConfig, *, topics: Any = None, group: str | bytes | None = None) -> None:
        self._cluster, self._config, self._handler = cluster, config, cluster.handler
        self._group = check_name("group", group) if group is not None else None
        self._subscription = Subscription(cluster, topics)
        check_group_options(config, group=self._group, sharing=self._group is not None and topics is not None)
        check_text("client_rack", config.client_rack)
        self._policy = POLICIES[config.auto_offset_reset]
        make = by_options(config.key_deserializer, config.value_deserializer)
        self._deserializers = Deserializers(cluster, make, config.on_deserialize_error, config.dead_letter)
        self._engine = NativeConsumer(cluster, config, reset_policy=self._policy, group=self._group)
        self._engine.on_close = weakref.WeakMethod(self.stop)
        self._progress = Progress(cluster.handler, self._engine, self._group)
        self._share: Share | None = None
        self._source: NativeConsumer | Share = self._engine  # what moves and stops partitions: with a group that has a say in it
        self._slice_ms = min(TICK_S * 1000, config.max_poll_interval_ms / 3)  # who waits in a call asks for messages all the time
        self._troubles = self._engine.taker.troubles
        self._hand_out_by(make, tells=config.on_deserialize_error == "raise")
        self._keeper: Any = None
        self._stopping = self._is_assigned = self._is_ended = False
        self._wake = self._handler.Event()
        cluster.sleepers.add(self._wake)
        self._engine.start()
        if topics is not None:
            with Undoing(self._engine.stop):
                self._subscribe()

    def __repr__(self) -> str:
        if not hasattr(self, "_group"):  # where a traceback shows the arguments of a call that failed
            return f"<{type(self).__module__}.{type(self).__name__} that was not made>"
        return (
            f"<{type(self).__module__}.{type(self).__name__} at {id(self):#x} (topics={str(self._subscription)!r}, group={self._group!r})>"
        )

    # -- what is read ----------------------------------------------------------------------------------------------------------
    def assign(self, partitions: Iterable[Any] | Mapping[Any, int | None], *, timeout: float | None = None) -> None:
        """Read these partitions and no others: (topic, partition) pairs, or pairs -> the offset to start from (-2 earliest, -1 latest, or None).

        Without an offset a partition starts where the group has committed, else by auto_offset_reset. timeout: seconds, for that look-up.
        """
        self._assign(partitions, timeout, may_wait=False)

    def _assign(self, partitions: Any, timeout: float | None, *, may_wait: bool) -> None:
        if self._subscription:
            raise ConfigurationError("assign() on a consumer that was given topics: make one without")
        given: dict[TopicPartition, int | None]
        if isinstance(partitions, Mapping):
            given = {
                _partition(key): None if offset is None else check_offset("offset", offset, low=EARLIEST)
                for key, offset in partitions.items()
            }
        else:
            given = dict.fromkeys(_partitions(partitions))
        self._handler.checkpoint()  # here and below: each step takes milliseconds for thousands of partitions
        self._check_running()
        deadline = self._handler.monotonic() + self._timeout_s(timeout)
        absent = self._absent(given, deadline, may_wait)
        self._handler.checkpoint()
        starts, epochs, problems = starts_of(self._engine.offsets, given, self._policy, max(0.0, deadline - self._handler.monotonic()))
        if problems and not may_wait:
            raise problems[0]
        if self._keeper is not None:
            self._progress.finish()  # of what it has had, the application wants no more
            self._progress.commit_finished(self._timeout_s(timeout))
        self._progress.forget()
        self._is_assigned = True
        if self._policy is not None:
            starts.update((tp, EARLIEST) for tp in absent if starts[tp] < 0)  # all they will hold is new
        self._engine.assign({tp: starts.get(tp) for tp in given}, epochs=epochs, may_be_absent=bool(absent))
        if self._group is not None and self._config.auto_commit is not False:
            self._start_keeper()

    def _absent(self, given: Collection[TopicPartition], deadline: float, may_wait: bool) -> list[TopicPartition]:
        """Which of the partitions are not there (yet). Unless they may be waited for, an error says so of the first."""
        topics = {tp.topic for tp in given}
        if may_wait:
            look_for(self._cluster, topics)
            known = {topic: self._cluster.metadata.topic(topic) for topic in topics}
        else:
            known = {topic: self._cluster.wait_for_topic(topic, deadline) for topic in topics}
        there = {topic: () if info is None else info.partitions for topic, info in known.items()}
        absent = [tp for tp in given if tp.partition not in there[tp.topic]]
        never = [tp for tp in absent if not may_wait or tp.partition < 0]
        if never:
            (topic, partition), has = never[0], there[never[0].topic]
            text = f"topic {topic!r} has no partition {partition}" + (f": it has {min(has)} to {max(has)}" if has else "")
            raise ConfigurationError(text, topic=topic, partition=partition)
        for topic, partition in absent:
            if there[topic]:
                log.warning("topic %r has no partition %d; it is read as soon as it is there", topic, partition)
        return absent

    def _subscribe(self) -> None:
        self._subscription.look_up()
        if self._group is not None:
            self._share = self._source = Share(
                self,
                self._cluster,
                self._config,
                self._engine,
                self._progress,
                group=self._group,
                subscription=self._subscription,
                policy=self._policy,
                on_problem=_told(weakref.ref(self)),
                keeper=self._wake,
            )
            self._start_keeper()
            return
        subscription = self._subscription
        self._engine.taker.come_back_when(lambda: subscription.is_behind)  # with it, and not by this consumer, which it would keep
        self._follow(self._policy)

    def _follow(self, start: int | None = EARLIEST) -> None:
        """Read the partitions that have come into being since: from their start, as all they hold is new. Without a policy none begins before seek()."""
        if self._share is not None or not self._subscription:
            return
        news = self._subscription.news()
        if news is None:
            return
        here = self._engine.positions()
        added = [tp for tp in self._subscription.partitions() if tp not in here]
        if added:  # several workers may be here: what is read already goes on as it is
            self._engine.add(dict.fromkeys(added, start if self._policy is not None else None))
        self._subscription.took_up(news)  # last: whoever is interrupted before has news the next time, too

    def _hand_out_by(self, make: Callable[[Message], Any] | None, *, tells: bool) -> None:
        """next_ready(): the next message if it lies at hand and nothing else is to be done first, and few_ready(most): so many of them.
        tells: of errors of deserializers, too."""
        run, taker, self._deserializers.make = self._engine.run, self._engine.taker, make
        room = self._config.consume_max_bytes
        self._several = several = partial(run.several, room) if make is None else partial(run.several_made, make, tells, room)
        one = taker.one_by(run.next, (), several) if make is None else taker.one_by(run.made, (make, tells), several)
        self.next_ready: Callable[[], Any | None] = one
        self.few_ready: Callable[[int], list[Any]] = taker.few_by(several)

    def shaping(self, shape: Callable[[list[Any]], Any]) -> tuple[Callable[[int], Any], Callable[[int | None, float | None], Any]]:
        """Return few_ready() and consume_batch(), but with what shape() makes of the records.

        Whoever is interrupted in there has none of them, and the next call gets them.
        """
        several, consume, messages = self._several, self._consume, self._messages
        return (
            self._engine.taker.few_by(lambda most: shape(several(most))),
            lambda most, timeout_ms: consume(most, timeout_ms, lambda wanted, limit_ms: messages(wanted, limit_ms, shape)),
        )

    def assignment(self) -> set[TopicPartition]:
        """The partitions that are read."""
        self._handler.check_fork()
        return set(self._engine.positions()) if self._share is None else self._share.assignment()

    # -- consuming -------------------------------------------------------------------------------------------------------------
    def consume(self, timeout_ms: float | None = None) -> Any | None:
        """The next message; None after timeout_ms (None: consume_timeout_ms) without one. Raises what consume_batch() raises."""
        if (message := self.next_ready()) is not None:
            return message
        messages = self.consume_batch(1, timeout_ms)
        return messages[0] if messages else None

    def consume_batch(self, max_messages: int | None = None, timeout_ms: float | None = None) -> list[Any]:
        """Up to max_messages (None: what is there), waiting up to timeout_ms (None: consume_timeout_ms) for the first; [] if none came.

        Calling it says that what earlier calls returned is finished: that is what the commits in the background commit. Raises errors that
        stand in the way of a partition, as CorruptRecordError, LogTruncationError and SerializationError, each with its place; nothing is
        skipped by that. With on_deserialize_error="dlq" it waits up to api_timeout_ms longer, for the dead-letter topic to have what failed.
        """
        if type(max_messages) is int and max_messages > 0 and (messages := self.few_ready(max_messages)):
            return messages
        return self._consume(max_messages, timeout_ms, self._messages)

    def consume_arrow(
        self, max_messages: int | None = None, timeout_ms: float | None = None, *, columns: Sequence[str] | None = None
    ) -> pa.RecordBatch:
        """The same as a pyarrow.RecordBatch, without a Python object per record; one without rows if nothing came.

        columns: of key, value, topic, partition, offset, timestamp (UTC), timestampType, headers; None: all but headers. Without max_messages
        some ten thousand rows at a time. Rows of one partition are in order. Needs pyarrow: `pip install 'gkafka[arrow]'`.
        """
        names = check_columns(COLUMNS if columns is None else columns)
        if self._deserializers.make is not None:
            raise ConfigurationError("consume_arrow() hands out bytes: make the consumer without key_deserializer and value_deserializer")
        schema = arrow_schema(names)  # without pyarrow nothing is taken
        pieces = self._consume(max_messages, timeout_ms, lambda wanted, limit_ms: self._engine.consume_arrow(names, wanted, limit_ms))
        return pieces[0] if pieces else joined([], schema)

    def _messages(self, wanted: int | None, limit_ms: float, shape: Callable[[list[Any]], Any] | None = None) -> Any:
        # Asked first: what comes between taking and returning could be interrupted, and nobody gets it.
        taker = self._engine.taker
        if self._deserializers.make is None:
            if shape is None:
                return self._engine.consume_batch(wanted, limit_ms)
            return taker.consume(taker.taking(shape), wanted, limit_ms)

        def deserialize(messages: list[Message], go_back: GoBack) -> tuple[Sequence[Message], list[Any]]:
            return self._deserializers.apply(go_back, messages, self._timeout_s(None))

        return taker.consume_through(deserialize, wanted, limit_ms, shape)

    def _consume(self, max_messages: int | None, timeout_ms: float | None, take: Callable[[int | None, float], list[T]]) -> list[T]:
        wanted = None if max_messages is None else check_count("max_messages", max_messages, high=(1 << 63) - 1)
        limit_ms = self._config.consume_timeout_ms if timeout_ms is None else check_seconds("timeout_ms", timeout_ms)
        self._handler.check_fork()
        self._raise_told()
        if not (self._subscription or self._is_assigned):
            raise ConfigurationError("nothing is read: call assign() first, or give topics to client.get_consumer()")
        now = self._handler.monotonic()
        deadline = now + limit_ms / 1000
        self._progress.called(now)
        while True:
            if self._share is None:
                self._follow()
            else:
                self._share.called(now)
            self._check_placed()
            now = self._handler.monotonic()
            left_ms = max(0.0, (deadline - now) * 1000)
            # In steps, so that topics that come into being are looked for.
            slice_ms = self._slice_ms if self._share is not None else min(self._slice_ms, self._subscription.patience_s() * 1000)
            taken = take(wanted, self._progress.patience_ms(min(left_ms, slice_ms), now))
            if taken:
                return taken
            now = self._handler.monotonic()
            self._progress.waited(now)
            self._raise_told()
            if now >= deadline:
                self._check_placed()
                return []

    def _check_placed(self, only: TopicPartition | None = None) -> None:
        """Raises what keeps partitions, or that one, waiting until the application says where to start."""
        if self._policy is None:
            self._engine.check_placed(only)
        if self._share is not None and (self._policy is None or only is not None):
            self._share.check_placed(only)

    def _raise_told(self) -> None:
        """What workers have met, before anything else is handed out: each once, in whichever call comes first."""
        if self._troubles:
            try:
                trouble = self._troubles.popleft()
            except IndexError:  # another call has told it
                return
            raise trouble

    def __iter__(self) -> Iterator[Any]:
        """Messages, until stop()."""
        while not self._stopping:  # `closed` only when partitions are committed and given back
            message = self.next_ready()
            if message is None:
                if self.closed:
                    return
                try:
                    messages = self.consume_batch(1, TICK_S * 1000)  # whatever consume_timeout_ms: with 0 it would go round and round
                except ConsumerStoppedException:
                    if self._stopping or self.closed:
                        return
                    raise
                message = messages[0] if messages else None
            if message is not None:
                yield message

    # -- positions -------------------------------------------------------------------------------------------------------------
    def position(self, partition: Any) -> int:
        """The offset of the next record of a (topic, partition), -1 while it is not known."""
        self._handler.check_fork()
        tp = _partition(partition)
        if self._share is not None and tp in (stood := self._share.stood()):
            return stood[tp]
        return self._engine.position(tp)

    def positions(self) -> dict[TopicPartition, int]:
        """The same for every partition."""
        self._handler.check_fork()
        here = self._engine.positions()
        return here if self._share is None else {**here, **self._share.stood()}

    def seek(self, partition: Any, offset: int) -> None:
        """Go on from an offset, or from -2 / -1 for the earliest / latest one."""
        self._handler.check_fork()
        self._source.seek(_partition(partition), check_offset("offset", offset, low=EARLIEST))

    def pause(self, partitions: Iterable[Any]) -> None:
        """Hand nothing of these out and fetch nothing of them until resume()."""
        named = _partitions(partitions)
        self._check_running()
        self._source.pause(named)

    def resume(self, partitions: Iterable[Any]) -> None:
        """Go on with paused partitions from where they stand."""
        named = _partitions(partitions)
        self._check_running()
        self._source.resume(named)

    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused."""
        self._handler.check_fork()
        return self._source.paused()

    def lag(self) -> dict[TopicPartition, int]:
        """Records between the position and the end of each partition as its broker last told it, -1 where it was not told yet."""
        self._handler.check_fork()
        return self._engine.lag()

    def explain(self) -> Explanation:
        """For each partition, in plain words and as data, why it is or is not being delivered; with a group also where its member stands."""
        self._handler.check_fork()
        found = self._engine.explain()
        return found if self._share is None else self._share.explain(found)

    def offsets_for_times(self, wanted: Mapping[Any, int], *, timeout: float | None = None) -> dict[TopicPartition, int]:
        """(topic, partition) -> ms since the epoch, to the offset of the first record at or after that; -1 where there is none.

        Raises LeaderNotFoundError as soon as brokers have said for a second that a partition has no leader.
        """
        asked = {_partition(key): check_timestamp("timestamp", at) for key, at in check_mapping("wanted", wanted, EXAMPLE).items()}
        level = 1 if self._config.isolation_level == "read_committed" else 0
        deadline = self._handler.monotonic() + self._timeout_s(timeout)
        found = self._cluster.list_offsets({(tp.topic, tp.partition): at for tp, at in asked.items()}, deadline, isolation_level=level)
        return {tp: offsets[0] if (offsets := found.get((tp.topic, tp.partition))) else -1 for tp in asked}

    # -- commits ---------------------------------------------------------------------------------------------------------------
    def commit(
        self,
        offsets: Mapping[Any, int] | None = None,
        *,
        timeout: float | None = None,
        notes: Mapping[TopicPartition, str] | None = None,
        epochs: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        """Commit where this consumer stands, or (topic, partition) -> the next offset to consume. timeout: seconds. notes: texts that the group
        keeps with offsets; epochs: of the leaders that wrote what stands before them, where this consumer does not know better.

        Raises CommitFailedError for partitions that are not this member's any more, without offsets also for those that were taken from it since
        messages were handed out last, unless all of them was committed before; when all else is committed, UnknownTopicOrPartition for a
        topic that was deleted; ConsumerStoppedException after stop(): others may have committed more since.
        """
        texts = check_mapping("notes", {} if notes is None else notes, "{('topic', 0): 'why here'}")
        written = check_mapping("epochs", {} if epochs is None else epochs, "{('topic', 0): 3}")
        beside: Any = {
            "notes": {_partition(key): check_text("notes", text) for key, text in texts.items()},
            "epochs": {_partition(key): check_count("epochs", epoch, low=-1) for key, epoch in written.items()},
        }
        self.begin_commit(offsets, timeout=timeout, **beside)()

    def begin_commit(
        self,
        offsets: Mapping[Any, int] | None = None,
        *,
        timeout: float | None = None,
        **beside: Any,
    ) -> Callable[[], None]:
        """Begin commit(): no later commit can overtake it. Return the function that does the rest.

        The caller has to call that function. beside: as `gkafka.core.commitqueue.Commit` takes it.
        """
        self._handler.check_fork()
        if self._engine.closed:
            raise ConsumerStoppedException("the consumer was stopped, which committed what was finished: commit() before stop()")
        given: Any = self.stands
        timeout_s = self._timeout_s(timeout)
        if offsets is not None:
            given = {_partition(key): check_offset("offset", o) for key, o in check_mapping("offsets", offsets, EXAMPLE).items()}
        begun = self._progress.begin_commit(given, **beside)
        finish = self._progress.finish_all if offsets is None else self._engine.offsets.finish
        return partial(finish, begun, timeout_s=timeout_s)

    def stands(self) -> dict[TopicPartition, int]:
        """Return what commit() would commit: the positions, before what a deserializer is at work on."""
        here = self._engine.stands()
        stood = {} if self._share is None else self._share.stood()
        return {**here, **self._engine.not_at_work(stood)} if stood else here

    def committed(self, partition: Any, *, timeout: float | None = None) -> int:
        """The offset that the group has committed of a (topic, partition), -1 where there is none. timeout: seconds."""
        tp = _partition(partition)
        return self._engine.offsets.committed([tp], timeout_s=self._timeout_s(timeout))[tp].offset

    def _timeout_s(self, timeout: float | None) -> float:
        return self._cluster.timeout_s() if timeout is None else check_wait("timeout", timeout)

    def group_metadata(self) -> GroupMetadata:
        """For `producer.send_offsets()`: the group, and which of its members in which generation this is (KIP-447)."""
        self._handler.check_fork()
        if self._group is None:
            raise ConfigurationError("this consumer has no group: give group=")
        generation, member_id = (-1, "") if self._share is None else self._share.identity
        return GroupMetadata(self._group, generation, member_id, self._config.group_instance_id)

    def _start_keeper(self) -> None:
        if self._keeper is None:
            due = float("inf") if self._config.auto_commit is False else 0.0
            self._keeper = self._handler.spawn_lasting(_keep_house, held_weakly(self, self._wake), due, _name="gkafka-consumer")

    # -- for skins -------------------------------------------------------------------------------------------------------------
    def hand_out(
        self, message_class: type[Message], key: Any = None, value: Any = None, make: Any = None, *, double_compressed: str = "open"
    ) -> None:
        """Messages of this class from now on; or with functions (topic, bytes) for keys and values what make(message, key, value) gives.

        double_compressed: what becomes of a message of format 0 or 1 inside a compressed one that is compressed, too: "open", "leave" it as it is
        (its value is the compressed bytes), or "skip" the outer one with a warning.
        """
        reader = self._engine.taker.reader
        reader.message_class, reader.double_compressed = message_class, double_compressed
        if key is not None or value is not None:
            self._hand_out_by(by_topic(key, value, make), tells=False)

    def tell_of_commits(self, told: Callable[[Mapping[TopicPartition, int], KafkaException | None], object]) -> None:
        """Call told(offsets, error or None) after each commit in the background."""
        self._progress.told = told

    def assign_what_may_wait(self, starts: Mapping[TopicPartition, int | None], timeout_s: float) -> None:
        """assign(), where partitions that have no start wait for seek(): until then consume calls raise NoOffsetForPartitionError."""
        self._assign(starts, timeout_s, may_wait=True)

    def tune(self, *, fetch_min_bytes: int, fetch_wait_max_ms: float, fetch_message_max_bytes: int) -> None:
        """Fetch with these values of the options from the next request on."""
        self._engine.tune(fetch_min_bytes, int(fetch_wait_max_ms), fetch_message_max_bytes)

    def check_halted(self) -> None:
        """Raises what a partition has met that waits for seek(), again, as long as it stands: for calls that have nothing to hand out."""
        self._engine.check_halted()

    def wait_for_position(self, tp: TopicPartition, timeout_s: float) -> int | None:
        """The offset of the next record, as soon as it is known; None if that takes longer."""
        deadline = self._handler.monotonic() + timeout_s
        while (position := self.position(tp)) < 0:
            left = deadline - self._handler.monotonic()
            if left <= 0:
                return None
            self._check_placed(tp)
            self._engine.wait_for_starts(min(left, TICK_S))
        return position

    def high_watermark(self, tp: TopicPartition) -> int | None:
        """The offset behind the last record, as the last fetch told it; None before."""
        self._handler.check_fork()
        return self._engine.high_watermark(tp)

    # -- life ------------------------------------------------------------------------------------------------------------------
    def abandon(self, timeout: float | None = None) -> None:
        """stop() that does not count what the last call returned as finished."""
        self._stop(timeout, in_order=False)

    def stop(self, timeout: float | None = None) -> None:
        """Commit what was handed out (with auto_commit), leave the group, stop fetching, end the workers. Idempotent.

        timeout: seconds for the commit and the good-bye, None is offsets_channel_socket_timeout_ms. What could not be told in time is logged:
        messages may then be consumed again. Called by a listener, it takes effect when that returns.
        """
        self._stop(timeout, in_order=True)

    @ends
    def _stop(self, timeout: float | None = None, *, in_order: bool) -> None:
        patience_s = self._cluster.config.offsets_channel_socket_timeout_ms / 1000 if timeout is None else check_wait("timeout", timeout)
        if self._engine.closed and (self._share is not None or self._is_ended):
            if self._share is not None:  # a listener may have stopped it, and not have returned yet
                with contextlib.suppress(ForkedClientError):
                    self._share.finish_leaving(patience_s)
            return
        self._handler.check_may_wait()
        with contextlib.suppress(ForkedClientError):  # in a child it ends what is the child's own
            self._handler.check_fork()  # raises where a hub has ended, in which its workers would have to end it
        deadline = self._handler.monotonic() + patience_s

        def left() -> float:
            return max(0.0, deadline - self._handler.monotonic())

        self._stopping = True
        in_order = in_order and self._cluster.in_order
        if self._share is None:
            self._engine.stop(patience_s)  # first: what another worker takes behind the commit would be consumed again (B24)
        self._engine.at_work.end_all()
        if in_order:
            self._progress.finish()
        try:
            self._handler.check_fork()
            if self._share is not None:
                self._share.leave(in_order=in_order, timeout_s=patience_s)
            elif self._keeper is not None:
                self._progress.commit_finished(left())
        except ForkedClientError:
            pass  # the membership is the parent's
        except KafkaException as exc:
            if self._group is not None:
                log.error("group %s: the last commit failed, messages may be consumed again: %s", self._group, exc)
        self._engine.stop(left())
        self._wake.set()
        # In a child it is the parent's: a thread that may look alive, and never ends.
        if self._keeper is not None and not self._handler.was_forked:
            self._keeper.join(min(TICK_S * 2, left()))
        self._deserializers.close(left())
        self._is_ended = True  # last: whoever is interrupted before leaves the rest to the next call

    close = stop

    @property
    def closed(self) -> bool:
        """Is it stopped?"""
        return self._engine.closed

    @property
    def _is_over(self) -> bool:
        """Is it stopped, or has the end of the interpreter taken it out of its group?"""
        return self._engine.closed or (self._share is not None and self._share.is_over)

    def _check_running(self) -> None:
        self._handler.check_fork()
        if self._engine.closed:
            raise ConsumerStoppedException("the consumer was stopped: make a new one")

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None) -> None:
        if exc_type is None:
            self.stop()
        else:  # what the last call returned was not finished
            self._stop(in_order=False)

    def stats(self) -> dict[str, Any]:
        """Counters of the engine, and of records that no deserializer could read; with a group, where its member stands."""
        self._handler.check_fork()
        found = {**self._engine.stats(), "undeserialized": self._deserializers.failed}
        return found if self._share is None else {**found, "group": self._share.stats()}


def _partition(given: Any) -> TopicPartition:
    if not isinstance(given, tuple) or len(given) != 2:
        raise ConfigurationError(f"partition={given!r}: must be (topic, partition), as in ('topic', 0)")
    return TopicPartition(check_topic_name(given[0]), check_partition("partition", given[1]))


def _partitions(given: Any) -> list[TopicPartition]:
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise ConfigurationError(f"partitions={given!r}: must be a list of (topic, partition)")
    return [_partition(one) for one in given]


def _told(me: weakref.ref[Consumer]) -> Callable[[BaseException], None]:
    """For workers: what the next call of consume() raises."""

    def tell(error: BaseException) -> None:
        consumer = me()
        if consumer is not None:
            consumer._engine.taker.tell(error)

    return tell


def _keep_house(me: weakref.ref[Consumer], due: float) -> None:
    """What is due beside the application's calls: commits, partitions that come into being. due: of the first commit, monotonic seconds."""
    while True:
        consumer = me()
        if consumer is None:
            return
        handler, wake = consumer._handler, consumer._wake
        handler.check_fork()
        wake.clear()  # before it looks: what comes from here on wakes it again
        if consumer._is_over:
            return
        try:
            if consumer._share is not None:
                consumer._share.look_after()
            if handler.monotonic() >= due:
                due = handler.monotonic() + consumer._config.auto_commit_interval_ms / 1000
                consumer._progress.commit_finished(consumer._timeout_s(None))
        except KafkaException as exc:
            if not consumer._is_over:
                log.error("group %s: %s", consumer._group, exc)
                consumer._engine.taker.tell(exc)
        looks_again = consumer._share is not None and consumer._share.has_unplaced
        if looks_again:
            wake.clear()  # the search for a place asks for metadata, and whoever hears of that wakes it
        del consumer
        # Whoever hears of fresh metadata wakes it, too, and the end of a consumer that is dropped.
        now = handler.monotonic()
        wake.wait(max(0.001, min(due, now + AGAIN_S if looks_again else handler.looks_at(now, TICK_S)) - now))
