"""The consumer that the others are skins of: assigned partitions, pipelined fetches, spans of whole batches in a queue.

A record's way: the machine in `gkafka.core.fetcher` makes a request, the connection's worker reads the answer (its bytes stay one buffer),
the machine finds the spans of batches in it and makes the next request, which is sent before any of them is handed out (`gkafka.fetchdriver`).
`consume_batch()` takes records out of the oldest span, in the caller: that is where a batch is checked, decompressed and read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

from gkafka.assignment import Assignment, Parked
from gkafka.atwork import AtWork, Call, Stood
from gkafka.columnreader import joined
from gkafka.common import TopicPartition
from gkafka.config import ConsumerConfig
from gkafka.consumerqueues import Context, Queue
from gkafka.core.commitqueue import Commit
from gkafka.core.metadata import NO_TOPIC_ID
from gkafka.core.positions import Position, State
from gkafka.exceptions import (
    KafkaTimeoutError,
    NoOffsetForPartitionError,
)
from gkafka.explaining import Explanation, explain
from gkafka.fetchdriver import FetchDriver
from gkafka.groupoffsets import GroupOffsets, no_place
from gkafka.oneprocess import OfOneProcess
from gkafka.records.columns import arrow_schema
from gkafka.taking import RecordTaker

if TYPE_CHECKING:
    import pyarrow as pa

    from gkafka.cluster import Cluster
    from gkafka.records import Message

__all__ = ["NativeConsumer"]

MOST_AT_ONCE = 200
"""Queues that are made in a few milliseconds."""
Place = tuple[Position | None, int, int]
"""A position, its term then, and an offset."""
NOWHERE: Place = (None, -1, -1)


class NativeConsumer(OfOneProcess):
    """Reads assigned partitions. Several workers may consume at once: each record goes to one of them.

    reset_policy: -2 earliest, -1 latest, None raises, for a partition without a start and for an offset that is out of range.
    """

    def __init__(self, cluster: Cluster, config: ConsumerConfig, *, reset_policy: int | None = -2, group: str | None = None) -> None:
        self._cluster, self.config, self._handler = cluster, config, cluster.handler
        self._driver = FetchDriver(cluster, config, reset_policy)
        self._lock, self._filled, self._taking = self._driver.lock, self._driver.filled, self._driver.taking
        self._assignment = Assignment(self._driver)
        self.at_work = AtWork(self._driver, self._assignment)
        self.taker = RecordTaker(self._driver, self._assignment, self.at_work, config, self._handler)
        self.run = self._driver.run
        self.few_from = (-1, -1)  # of the last consumer.few_ready(): its `hand_outs`, and where the partition stood before
        self.group = group
        self.offsets = GroupOffsets(cluster, group)
        self.on_close: Callable[[], Callable[[float | None], object] | None] = lambda: (
            None
        )  # a weak reference to the end of the skin around this
        cluster.adopt(self)

    # -- what to read --------------------------------------------------------------------------------------------------------
    def assign(
        self,
        start: Mapping[TopicPartition, int | None],
        partitions: Mapping[TopicPartition, Any] | None = None,
        *,
        epochs: Mapping[TopicPartition, int] | None = None,
        may_be_absent: bool = False,
    ) -> None:
        """Read these partitions and no others. start: an offset, -2 / -1 for the earliest / latest one, or None: not before seek().

        partitions: the objects that messages show as `.partition`. epochs: of the leaders that wrote what stands before the offsets, where
        that is known: the logs are then checked before anything is read (KIP-320). may_be_absent: topics that the caller has looked for are not
        waited for; each partition is read as soon as it is there.
        """
        if not may_be_absent:
            for topic in {tp.topic for tp in start}:
                self._cluster.wait_for_topic(topic)
        driver = self._driver
        made = self._make_queues(start, partitions or {}, epochs or {})
        with self._taking, self._lock, driver.step:
            under_way = driver.clear()
            driver.add(made)
            self._assignment.left.clear()
        driver.hang_up(under_way)
        driver.kick()

    def add(
        self,
        start: Mapping[TopicPartition, int | None],
        partitions: Mapping[TopicPartition, Any] | None = None,
        *,
        epochs: Mapping[TopicPartition, int] | None = None,
        paused: bool = False,
    ) -> None:
        """Read these partitions, too; those that are read already go on as they are. paused: not before resume(). Others as of assign()."""
        for topic in {tp.topic for tp in start}:
            self._cluster.wait_for_topic(topic)
        driver = self._driver
        made = self._make_queues(start, partitions or {}, epochs or {}, paused=paused)
        with self._taking, self._lock, driver.step:
            driver.add([queue for queue in made if queue.position.tp not in driver.queues])
            for tp in start:
                self._assignment.left.pop(tp, None)
            parked = [] if paused else driver.cancel_parked(start)
        if not paused:  # else resume() does so
            driver.hang_up(parked)
            driver.kick()

    def _make_queues(
        self,
        start: Mapping[TopicPartition, int | None],
        partitions: Mapping[TopicPartition, Any],
        epochs: Mapping[TopicPartition, int],
        *,
        paused: bool = False,
    ) -> list[Queue]:
        """Under no lock, since the hub turns between them."""
        max_bytes = self._driver.shares[0].fetcher.partition_max_bytes
        made: list[Queue] = []
        for tp, offset in start.items():
            if not len(made) % MOST_AT_ONCE:
                self._handler.checkpoint()
            position = Position(tp, max_bytes)
            position.paused = paused
            if offset is None:
                position.halt(no_place(tp))
            else:
                _place(position, offset, epochs.get(tp, -1))
            made.append(Queue(position, Context(tp.topic, tp.partition, partitions.get(tp))))
        self._handler.checkpoint()
        return made

    def remove(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """Read these partitions no more; the others go on as they are. What was fetched of these is dropped.

        Returns where each stood: its position, and the epoch of the leader that wrote what stands before it.
        """
        driver = self._driver
        with self._taking, self._lock, driver.step:
            queues = [self._assignment.queue(tp) for tp in partitions]
            stood = {q.position.tp: (q.position.consumed, q.position.consumed_epoch) for q in queues}
            driver.remove(queues)
            self._assignment.left.update((q.position.tp, q.position) for q in queues)
        return stood

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Go on from an offset, or from -2 / -1 for the earliest / latest one. What was fetched before is dropped."""
        self.ask_anew(self.place(tp, offset))

    def place(self, tp: TopicPartition, offset: int) -> Parked:
        """The first half of seek(), for who holds a lock. Returns what ask_anew() is to be given behind it."""
        self.taker.check_running()
        with self._lock, self._driver.step:
            queue = self._assignment.queue(tp)
            parked = self._assignment.void(queue)
            _place(queue.position, offset)
        return parked

    def ask_anew(self, parked: Parked) -> None:
        """The second half of seek() and resume()."""
        self._driver.hang_up(parked)
        self._driver.kick()

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand nothing of these out and fetch nothing of them, until resume(). Positions stay, and so does what was fetched."""
        with self._lock:
            for queue in [self._assignment.queue(tp) for tp in partitions]:
                queue.position.paused = True

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Go on with paused partitions, from where they stand."""
        self.ask_anew(self.unpause(partitions))

    def unpause(self, partitions: Iterable[TopicPartition]) -> Parked:
        """The first half of resume(), as of place()."""
        with self._lock:
            queues = [self._assignment.queue(tp) for tp in partitions]
            parked = self._driver.cancel_parked([q.position.tp for q in queues if q.position.paused])
            for queue in queues:
                queue.position.paused = False
        self._filled.set()
        return parked

    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused."""
        return {tp for tp, q in list(self._driver.queues.items()) if q.position.paused}

    def has(self, tp: TopicPartition) -> bool:
        """Is it read?"""
        return tp in self._driver.queues

    def tune(self, min_bytes: int, wait_max_ms: int, partition_max_bytes: int) -> None:
        """What fetches ask for from the next one on."""
        with self._lock:
            for share in self._driver.shares:
                share.fetcher.tune(min_bytes, wait_max_ms, partition_max_bytes)

    def start_offsets_known(self, deadline: float) -> None:
        """Wait until every partition knows the offset that it starts from. Raises KafkaTimeoutError, or the error that is in the way."""
        queues = self._driver.queues
        while any(q.position.state is State.RESETTING for q in list(queues.values())):
            self.taker.check_running()
            self._assignment.raise_errors(starting=True)
            left = deadline - self._handler.monotonic()
            if left <= 0:
                waiting = ", ".join(f"{t}-{p}" for (t, p), q in list(queues.items()) if q.position.state is State.RESETTING)
                raise KafkaTimeoutError(f"no offset to start from was told for {waiting}")
            self._filled.clear()
            if any(q.position.state is State.RESETTING for q in list(queues.values())):
                self._driver.kick()
                self._wait_a_moment(left)
        self._assignment.raise_errors(starting=True)

    def wait_for_starts(self, seconds: float) -> None:
        """Wait until something is known that was not, a moment at most."""
        self.taker.check_running()
        self._assignment.raise_errors(starting=True)
        self._filled.clear()
        self._driver.kick()
        self._wait_a_moment(seconds)

    def _wait_a_moment(self, seconds: float) -> None:
        self._filled.wait(min(seconds, 0.1))
        self._filled.set()  # what was cleared before may have been for a worker that is about to wait for records

    def high_watermark(self, tp: TopicPartition) -> int | None:
        """The offset behind a partition's last record, as the last fetch told it; None before."""
        known = self._assignment.queue(tp).position.high_watermark
        return known if known >= 0 else None

    def position(self, tp: TopicPartition) -> int:
        """The offset of the next record that this consumer will hand out, -1 while it is not known."""
        return self._assignment.queue(tp).position.consumed

    def positions(self) -> dict[TopicPartition, int]:
        """The same for every partition."""
        return {tp: q.position.consumed for tp, q in list(self._driver.queues.items())}

    def check_placed(self, only: TopicPartition | None = None) -> None:
        """Raises NoOffsetForPartitionError for a partition, or that one, that waits for seek() because nobody said where to start."""
        for tp, queue in list(self._driver.queues.items()):
            position = queue.position
            if only in (None, tp) and position.state is State.HALTED and isinstance(position.trouble, NoOffsetForPartitionError):
                self._handler.checkpoint()  # who tries again at once would keep the hub from whoever could say it
                raise no_place(tp)

    def check_halted(self) -> None:
        """Raises what a partition has met that waits for the application, and that has nothing left to hand out: again, as long as it stands."""
        for queue in list(self._driver.queues.values()):
            position = queue.position
            if position.state is State.HALTED and position.trouble is not None and queue.is_empty and not position.paused:
                self._handler.checkpoint()
                raise copy(position.trouble)

    def stands(self) -> dict[TopicPartition, int]:
        """The same, before what deserializers are at work on."""
        with self._lock:
            return self._before_work(self.positions())

    def stands_unless_committed(self) -> dict[TopicPartition, int]:
        """stands(), but not before what was committed while a deserializer is at work before that: for commits in the background, which take back
        nothing that the application has committed. Behind a seek a commit says nothing.
        """
        with self._lock:
            return self._unless_committed(self.positions())

    def _unless_committed(self, here: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        stands = self._before_work(here.copy())
        for tp, queue in self._driver.queues.items():
            position, term, offset = self._last_taken(tp)
            if position is queue.position and term == position.term and stands[tp] < offset <= here[tp]:
                stands[tp] = offset
        return stands

    def finished(self, at_most: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Where partitions stand, before what the application was handed and has not come back for; where it has committed more by itself, that.

        at_most: the offset before older records that it still has, by partition; -1 for partitions of which nothing is to be committed.
        """
        with self._taking, self._lock:
            return self._finished(self.positions(), at_most)

    def _finished(self, here: dict[TopicPartition, int], at_most: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        # Whoever takes from `run` takes no lock: positions are read first, so that what is handed out meanwhile is not among them.
        stands, run, queues = self._before_work(here), self.run, self._driver.queues
        last, seen = run.handed_out, run.seen
        given = [each for each in self._given if each[0] > seen]
        for position, term, before, _ in (stood for _, call in given for stood in call):
            if position.tp in stands and self._position_of(position.tp) is position and position.term == term:
                stands[position.tp] = min(stands[position.tp], before)
        if last > seen and all(number != last for number, _ in given) and run.queue in queues.values():
            tp = run.queue.position.tp
            number, before = self.few_from  # else it was one record: `run` stops before the last one of a batch, behind which gaps may be
            stands[tp] = min(stands[tp], before if number == last else max(0, stands[tp] - 1))
        for tp, queue in queues.items():
            committed = self._last_taken(tp)
            own = committed[2] if committed[:2] == (queue.position, queue.position.term) else -1
            limit = min(stands[tp], at_most.get(tp, stands[tp]))
            stands[tp] = max(limit, own) if limit >= 0 else -1
        return stands

    def stands_since(self, handed_out: int) -> dict[TopicPartition, int] | None:
        """The same as long as `hand_outs` is this number; None if there was more since."""
        with self._taking:
            return self.stands_unless_committed() if self.hand_outs == handed_out else None

    def not_at_work(self, stands: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Offsets of partitions that are read no more, before what deserializers are at work on: nobody was given that, and it may fail."""
        with self._lock:
            lowest = {
                tp: min(offset, self._assignment.left[tp].consumed) if tp in self._assignment.left else offset
                for tp, offset in stands.items()
            }
            return self._before_work(lowest)

    def _before_work(self, stands: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        return self.at_work.before(stands)

    def _position_of(self, tp: TopicPartition) -> Position | None:
        return self._assignment.position_of(tp)

    @property
    def _given(self) -> list[tuple[int, Sequence[Stood]]]:
        return self.taker.given

    def put_elsewhere(self, tp: TopicPartition) -> None:
        """By the application, of a partition that is read no more: whoever is at work on it does not go back."""
        self._assignment.left.pop(tp, None)

    def epochs(self) -> dict[TopicPartition, int]:
        """For every partition the epoch of the leader that wrote what stands before the position, -1 where that is not known."""
        return {tp: q.position.consumed_epoch for tp, q in list(self._driver.queues.items())}

    def lag(self) -> dict[TopicPartition, int]:
        """Records between the position and the end of each partition as last told by its leader, -1 where it was not told yet."""
        known = {tp: q.position for tp, q in list(self._driver.queues.items())}
        return {tp: max(0, p.high_watermark - p.consumed) if p.high_watermark >= 0 <= p.consumed else -1 for tp, p in known.items()}

    def explain(self) -> Explanation:
        """For each partition, why it is or is not being delivered."""
        return Explanation(explain(self._driver, self._handler.monotonic()))

    def buffered(self) -> int:
        """Messages fetched and not handed out."""
        return sum(q.buffered for q in list(self._driver.queues.values()))

    # -- consuming -------------------------------------------------------------------------------------------------------------
    def consume_batch(self, max_messages: int | None = None, timeout_ms: float | None = None) -> list[Message]:
        """Up to max_messages records, as soon as there is one; [] if none came within timeout_ms (None: 0, what is there now).

        The records of one call are in order within each partition, and hold no more than consume_max_bytes together. They are views
        of the fetched buffer: `detach()` one to keep it without its buffer. Raises CorruptRecordError naming topic, partition and offset (nothing is skipped: seek past it to go on), and
        other errors that stand in the way of a partition; records before the error were handed out.
        """
        return self.taker.consume(self.taker.take, max_messages, timeout_ms)

    def consume_arrow(
        self, columns: tuple[str, ...], max_messages: int | None = None, timeout_ms: float | None = None
    ) -> list[pa.RecordBatch]:
        """The same as columns, without an object per record: one RecordBatch of `records.arrow_schema(columns)`, [] if nothing came.

        Rows of one partition are in order.
        """
        taker, schema = self.taker, arrow_schema(columns)

        def take(call: Call, wanted: int, until: float) -> list[pa.RecordBatch]:
            pieces = taker.take_columns(call, wanted, until, columns)
            return [joined(pieces, schema)] if pieces else pieces  # in here: who is interrupted behind it has taken nothing

        return taker.consume(take, max_messages, timeout_ms)

    @property
    def hand_outs(self) -> int:
        """How often records were handed out, or were about to be."""
        handed_out: int = self.run.handed_out
        return handed_out

    # -- committed offsets -----------------------------------------------------------------------------------------------------
    def commit(
        self,
        offsets: Mapping[TopicPartition, int] | None = None,
        *,
        background: bool = False,
        at_most: Mapping[TopicPartition, int] | None = None,
        **how: Any,
    ) -> None:
        """Commit offsets of the group: the next ones to consume. None: where this consumer stands(), in the background stands_unless_committed(),
        or with at_most what is finished(at_most), but nothing of a partition for which the application's own commit is under way.
        how: as GroupOffsets.finish takes it.
        """

        def make() -> Commit:
            if not background:
                return self.planned(self.stands() if offsets is None else offsets)
            asked = self.offsets.queue.asked()
            with self._lock:
                here = self.positions()
                stands = self._unless_committed(here) if at_most is None else self.news(self._finished(here, at_most))
            return self.planned({tp: offset for tp, offset in stands.items() if tp not in asked}, is_asked=False)

        self.offsets.finish(self.offsets.join(make, None if at_most is None else self._taking), **how)

    def planned(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        epochs: Mapping[TopicPartition, int] | None = None,
        **beside: Any,
    ) -> Commit:
        """Return a commit with what is known of the partitions. epochs: of leaders, for those that are not read now. beside: as Commit takes it."""
        known, ids = dict(epochs or {}), {}
        with self._lock:
            places = self._places(offsets)
            for tp, (position, _, offset) in places.items():
                ids[tp] = position.topic_id
                if position.consumed == offset:
                    known[tp] = position.consumed_epoch
        return Commit(offsets, epochs=known, topic_ids=ids, places=places, **beside)

    def _places(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[Position, int, int]]:
        queues = self._driver.queues
        return {tp: (queues[tp].position, queues[tp].position.term, o) for tp, o in offsets.items() if tp in queues}

    def _last_taken(self, tp: TopicPartition) -> Place:
        commit = self.offsets.queue.last.get(tp)
        return NOWHERE if commit is None else commit.places.get(tp, NOWHERE)

    def note_committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """The group has these, from which partitions have started."""
        self.offsets.queue.last.update(dict.fromkeys(offsets, self.planned(offsets)))

    def news(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Without those that the group has, as this consumer knows: there is nothing to commit of them."""
        has, places = self.offsets.queue.has, self._places(offsets)
        return {tp: o for tp, o in offsets.items() if tp not in places or self._last_taken(tp) != places[tp] or not has(tp, o)}

    # -- life ------------------------------------------------------------------------------------------------------------------
    def start(self) -> None:
        """Start the fetch workers."""
        self._driver.start()

    def fetch(self) -> None:
        """Ask for records now; the workers do so by themselves."""
        self._driver.kick()

    def stop(self, timeout: float | None = None) -> None:
        """Stop fetching and close the fetch connections. Idempotent; start() goes on with what was not handed out. timeout: seconds that it waits for
        the workers, never more than two.
        """
        self._driver.stop(timeout)

    @property
    def closed(self) -> bool:
        """Is it not running?"""
        return self._driver.stopped

    def close(self, timeout: float | None = None) -> None:
        """Stop; what the client calls when it closes. timeout: seconds for the last commit and the good-bye."""
        stop = self.on_close()
        if stop is not None:
            stop(timeout)
        self.stop(timeout)

    def stats(self) -> dict[str, Any]:
        """Counters: fetches answered, messages and bytes buffered, restarts, logs that were found cut, positions."""
        driver = self._driver
        return {
            "fetches": driver.fetches,
            "buffered": self.buffered(),
            "buffered_bytes": driver.held,
            "stall_warnings": driver.watchdog.warnings if driver.watchdog is not None else 0,
            "restarts": driver.restarts,
            "truncations": sum(share.fetcher.lookups.truncations for share in driver.shares),
            "positions": {f"{t}-{p}": o for (t, p), o in self.positions().items()},
        }


def _place(position: Position, offset: int, epoch: int = -1) -> None:
    position.term += 1
    position.topic_id = NO_TOPIC_ID  # of whatever topic has the name now
    if offset < 0:
        position.reset(offset)
        position.consumed = -1
    else:
        position.seek(offset, epoch)
