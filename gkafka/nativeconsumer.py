"""The consumer that the others are skins of: assigned partitions, pipelined fetches, spans of whole batches in a queue.

A record's way: the machine in `gkafka.core.fetcher` makes a request, the connection's worker reads the answer (its bytes stay one buffer),
the machine finds the spans of batches in it and makes the next request, which is sent before any of them is handed out (`gkafka.fetchdriver`).
`consume_batch()` takes records out of the oldest span, in the caller: that is where a batch is checked, decompressed and read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from gkafka import records
from gkafka.columnreader import ColumnReader
from gkafka.common import TopicPartition
from gkafka.config import ConsumerConfig
from gkafka.consumerqueues import Context, Queue
from gkafka.core.commitqueue import Commit
from gkafka.core.metadata import NO_TOPIC_ID
from gkafka.core.positions import Position, State
from gkafka.deserializing import GoBack
from gkafka.exceptions import (
    ConfigurationError,
    ConsumerStoppedException,
    KafkaException,
    KafkaTimeoutError,
    NoOffsetForPartitionError,
    ProtocolError,
    SerializationError,
    UnsupportedCodec,
)
from gkafka.explaining import Explanation, explain
from gkafka.fetchdriver import FetchDriver, Fetching
from gkafka.groupoffsets import GroupOffsets, no_place
from gkafka.logs import get_logger
from gkafka.oneprocess import OfOneProcess
from gkafka.records._double import left_compressed

if TYPE_CHECKING:
    import pyarrow as pa

    from gkafka.cluster import Cluster
    from gkafka.core.fetcher import Fetched
    from gkafka.records import BatchHeader, Message, Records, Span

__all__ = ["NativeConsumer"]

log = get_logger(__name__)

TICK_S = 4.0
LOOK_S = 0.02
"""How often it is asked whether records that are there may be handed out again."""
DEFAULT_BATCH = 1 << 30
CHUNK = 1000
MOST_TROUBLES = 100  # that nobody asks for; the oldest are forgotten
MOST_AT_ONCE = 200  # queues that are made in a few milliseconds
"""Records that are read without a look at the clock."""
RUN_S = 0.02
"""So long records are taken one by one without a look at anything else; with greenlets TURN_S, as the hub must not stand still."""
COLUMN_BYTES, TURN_COLUMN_BYTES = 4 << 20, 1 << 20
"""What becomes columns together, as it was fetched; the second with greenlets."""
ENOUGH_ROWS = 4096
"""So many rows are handed out without a look at other partitions."""
TURN_S = SHARE_S = 0.003
"""SHARE_S: with greenlets, a call hands out what it has read after so long, for the same reason: reading switches to nobody."""
READ_S = 1.0
"""A call without a timeout hands out what is there: it reads for this many seconds at most."""
T = TypeVar("T")
Stood = tuple[Position, int, int, int]
"""A position and its term; where it stood, and the epoch of what stands before that."""
Place = tuple[Position | None, int, int]
"""A position, its term then, and an offset."""
NOWHERE: Place = (None, -1, -1)
Parked = list[tuple[Fetching, int]]
"""Fetches that brokers have parked and that are not wanted any more: for FetchDriver.hang_up()."""


class Work(dict[TopicPartition, Stood]):
    """Of a call that hands out later what it has taken: where the partitions stood before.

    worker: whose call it is. No other worker takes from these partitions meanwhile: a deserializer that fails goes back, and what is behind
    that would be handed out twice. ended: the partitions whose records it has to drop. begun: the last one that it took from, where it has more.
    """

    def __init__(self, worker: int) -> None:
        super().__init__()
        self.worker = worker
        self.ended: set[TopicPartition] = set()
        self.begun: Queue | None = None

    def forget(self) -> None:
        """Nothing was taken."""
        self.clear()
        self.ended.clear()
        self.begun = None


class NativeConsumer(OfOneProcess):
    """Reads assigned partitions. Several workers may consume at once: each record goes to one of them.

    reset_policy: -2 earliest, -1 latest, None raises, for a partition without a start and for an offset that is out of range.
    """

    def __init__(self, cluster: Cluster, config: ConsumerConfig, *, reset_policy: int | None = -2, group: str | None = None) -> None:
        self._cluster, self.config, self._handler = cluster, config, cluster.handler
        self._share_of_time = SHARE_S if cluster.handler.cooperative else float("inf")
        self._driver = FetchDriver(cluster, config, reset_policy)
        self._lock, self._filled, self._order = self._driver.lock, self._driver.filled, self._driver.order
        self._taking, self.run = self._driver.taking, self._driver.run
        self._handed_out: list[Stood] = []  # by the call that is taking
        self._given: list[tuple[int, Sequence[Stood]]] = []  # by calls that `run` knows nothing of, each with its `hand_outs`
        self.few_from = (-1, -1)  # of the last consumer.few_ready(): its `hand_outs`, and where the partition stood before
        self._wants_more = False  # what that call has taken made room, or has to be fetched again
        self.group = group
        self.offsets = GroupOffsets(cluster, group)
        self.may_deliver: Callable[[], bool] | None = None
        self._delivers_until: Callable[[], float] = lambda: float("inf")
        self.comes_back: Callable[[], bool] | None = None
        # What whoever consumes must hear of first: while there is any, consume calls return at once, without a record.
        self.troubles: deque[BaseException] = deque(maxlen=MOST_TROUBLES)
        self.at_work: dict[object, Work] = {}  # by call: deserializers have it first
        self._work: Work | None = None  # of the call that is taking, if it is one of these
        self._left: dict[TopicPartition, Position] = {}  # what is read no more: whoever is at work on it may still go back
        self.message_class: type[Message] = records.Message  # of what is handed out, from the next batch on
        self.double_compressed = "open"  # of format 0 and 1; "leave": as one message, "skip"
        self._one_by_one = RUN_S if not cluster.handler.cooperative else TURN_S
        self._waked = 0  # how often wake_up() was called
        self.on_close: Callable[[], Callable[[float | None], object] | None] = lambda: (
            None
        )  # a weak reference to the end of the skin around this
        cluster.adopt(self)

    def wake_up(self) -> None:
        """By workers: consume calls return, so that whoever made them looks around."""
        self._waked += 1
        self._driver.filled.set()

    def tell(self, trouble: BaseException) -> None:
        """By workers: consume calls return, so that whoever made them tells of this first."""
        self.troubles.append(trouble)
        self.run.left = 0
        self.wake_up()

    def ask_before_delivery(self, may_deliver: Callable[[], bool] | None, until: Callable[[], float] = lambda: float("inf")) -> None:
        """may_deliver(): are the partitions, for sure, this consumer's? Asked before records are handed out; until(): how long they are, if nothing is
        heard, for a run that asks no more. None: there is nobody else.
        """
        self.may_deliver = self._driver.may_deliver = may_deliver
        self._delivers_until = until

    def come_back_when(self, comes_back: Callable[[], bool]) -> None:
        """Whoever waits in a call returns without a record when comes_back(): asked when new metadata have come, or somebody else has woken it."""
        self.comes_back = comes_back
        self._driver.cluster.sleepers.add(self._filled)

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
            self._left.clear()
        driver.hang_up(under_way)
        driver.go_on()

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
                self._left.pop(tp, None)
            parked = [] if paused else driver.cancel_parked(start)
        if not paused:  # else resume() does so
            driver.hang_up(parked)
            driver.go_on()

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
            queues = [self._queue(tp) for tp in partitions]
            stood = {q.position.tp: (q.position.consumed, q.position.consumed_epoch) for q in queues}
            driver.remove(queues)
            self._left.update((q.position.tp, q.position) for q in queues)
        return stood

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Go on from an offset, or from -2 / -1 for the earliest / latest one. What was fetched before is dropped."""
        self.ask_anew(self.place(tp, offset), at_once=True)

    def place(self, tp: TopicPartition, offset: int) -> Parked:
        """The first half of seek(), for who holds a lock. Returns what ask_anew() is to be given behind it."""
        self._check_running()
        with self._lock, self._driver.step:
            queue = self._queue(tp)
            parked = self._void(queue)
            _place(queue.position, offset)
        return parked

    def ask_anew(self, parked: Parked, *, at_once: bool = False) -> None:
        """The second half of seek() and resume(). at_once: by the caller, unless that takes long."""
        self._driver.hang_up(parked)
        if at_once:
            self._driver.kick()
        else:
            self._driver.go_on()

    def _void(self, queue: Queue) -> Parked:
        """Under the lock: what was fetched, and what went wrong behind it, is of no account any more. Returns what to hang_up()."""
        driver, tp = self._driver, queue.position.tp
        parked = driver.cancel_parked([tp])
        self._empty(queue)
        return parked

    def _empty(self, queue: Queue) -> None:
        """Under the lock: drop what was fetched, and what went wrong behind it. Whatever is there is met again."""
        driver = self._driver
        driver.empty(queue)
        for error in [e for e in driver.errors if (e.topic, e.partition) == queue.position.tp]:
            driver.errors.remove(error)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand nothing of these out and fetch nothing of them, until resume(). Positions stay, and so does what was fetched."""
        with self._lock:
            for queue in [self._queue(tp) for tp in partitions]:
                queue.position.paused = True

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Go on with paused partitions, from where they stand."""
        self.ask_anew(self.unpause(partitions))

    def unpause(self, partitions: Iterable[TopicPartition]) -> Parked:
        """The first half of resume(), as of place()."""
        with self._lock:
            queues = [self._queue(tp) for tp in partitions]
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

    def _queue(self, tp: TopicPartition) -> Queue:
        queue = self._driver.queues.get(tp)
        if queue is None:
            raise ConfigurationError(f"{tp.topic}-{tp.partition} is not assigned to this consumer", topic=tp.topic, partition=tp.partition)
        return queue

    def tune(self, min_bytes: int, wait_max_ms: int, partition_max_bytes: int) -> None:
        """What fetches ask for from the next one on."""
        with self._lock:
            for share in self._driver.shares:
                share.fetcher.tune(min_bytes, wait_max_ms, partition_max_bytes)

    def start_offsets_known(self, deadline: float) -> None:
        """Wait until every partition knows the offset that it starts from. Raises KafkaTimeoutError, or the error that is in the way."""
        queues = self._driver.queues
        while any(q.position.state is State.RESETTING for q in list(queues.values())):
            self._check_running()
            self._raise_errors(starting=True)
            left = deadline - self._handler.monotonic()
            if left <= 0:
                waiting = ", ".join(f"{t}-{p}" for (t, p), q in list(queues.items()) if q.position.state is State.RESETTING)
                raise KafkaTimeoutError(f"no offset to start from was told for {waiting}")
            self._filled.clear()
            if any(q.position.state is State.RESETTING for q in list(queues.values())):
                self._driver.kick()
                self._wait_a_moment(left)
        self._raise_errors(starting=True)

    def wait_for_starts(self, seconds: float) -> None:
        """Wait until something is known that was not, a moment at most."""
        self._check_running()
        self._raise_errors(starting=True)
        self._filled.clear()
        self._driver.kick()
        self._wait_a_moment(seconds)

    def _wait_a_moment(self, seconds: float) -> None:
        self._filled.wait(min(seconds, 0.1))
        self._filled.set()  # what was cleared before may have been for a worker that is about to wait for records

    def high_watermark(self, tp: TopicPartition) -> int | None:
        """The offset behind a partition's last record, as the last fetch told it; None before."""
        known = self._queue(tp).position.high_watermark
        return known if known >= 0 else None

    def position(self, tp: TopicPartition) -> int:
        """The offset of the next record that this consumer will hand out, -1 while it is not known."""
        return self._queue(tp).position.consumed

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

    def _note_given(self, stood: Sequence[Stood]) -> None:
        self._given = [each for each in self._given if each[0] > self.run.seen]
        self._given.append((self.run.handed_out, stood))

    def stands_since(self, handed_out: int) -> dict[TopicPartition, int] | None:
        """The same as long as `hand_outs` is this number; None if there was more since."""
        with self._taking:
            return self.stands_unless_committed() if self.hand_outs == handed_out else None

    def not_at_work(self, stands: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Offsets of partitions that are read no more, before what deserializers are at work on: nobody was given that, and it may fail."""
        with self._lock:
            lowest = {tp: min(offset, self._left[tp].consumed) if tp in self._left else offset for tp, offset in stands.items()}
            return self._before_work(lowest)

    def _before_work(self, stands: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        for work in list(self.at_work.values()):
            for tp, (position, term, offset, _) in list(work.items()):
                if tp in stands and position.term == term and self._position_of(tp) is position:
                    stands[tp] = min(stands[tp], offset)
        return stands

    def _position_of(self, tp: TopicPartition) -> Position | None:
        queue = self._driver.queues.get(tp)
        return self._left.get(tp) if queue is None else queue.position

    def put_elsewhere(self, tp: TopicPartition) -> None:
        """By the application, of a partition that is read no more: whoever is at work on it does not go back."""
        self._left.pop(tp, None)

    def end_work(self) -> dict[TopicPartition, int]:
        """What deserializers are at work on will not be handed out: go back before it. Returns where this consumer stands then."""
        driver = self._driver
        parked: Parked = []
        with self._lock, driver.step:
            for work in list(self.at_work.values()):
                for stood in list(work.values()):
                    parked += self._lower(*stood)
                work.clear()
            self.at_work.clear()
            stands = self.positions()
        self._go_on(parked)
        return stands

    def end_work_on(self, partitions: Collection[TopicPartition]) -> None:
        """end_work() of partitions that are read no more: calls that are at work on others, too, hand out what they have of those."""
        with self._lock:
            for work in list(self.at_work.values()):
                for tp in work.keys() & set(partitions):
                    self._lower(*work.pop(tp))
                    work.ended.add(tp)

    def is_at_work_on(self, partitions: Collection[TopicPartition]) -> bool:
        """Has a deserializer records of these?"""
        with self._lock:
            return any(tp in work for work in self.at_work.values() for tp in partitions)

    def _go_back(self, work: Work, tp: TopicPartition, offset: int) -> None:
        """What was taken from there on is not handed out. Nowhere, if the application or the group has put the partition elsewhere."""
        with self._lock, self._driver.step:
            if tp not in work:
                return
            position, term, before, epoch = work[tp]
            parked = self._lower(position, term, max(offset, before), epoch if offset <= before else -1)
        self._go_on(parked)

    def _lower(self, position: Position, term: int, offset: int, epoch: int) -> Parked:
        """Under the lock. Returns what to hang_up()."""
        if position.term != term:
            return []
        queue = self._driver.queues.get(position.tp)
        if queue is None or queue.position is not position:
            position.consumed, position.consumed_epoch = offset, epoch
            return []
        parked = self._void(queue)
        position.seek(offset, epoch, position.leader_epoch)
        return parked

    def _go_on(self, parked: list[tuple[Fetching, int]]) -> None:
        if not self._driver.stopped:
            self._driver.hang_up(parked)
            self._driver.go_on()

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
        return self._consume(self._take, max_messages, timeout_ms)

    def consume_through(
        self,
        deserialize: Callable[[list[Message], GoBack], tuple[Sequence[Message], list[T]]],
        max_messages: int | None,
        timeout_ms: float | None,
    ) -> list[T]:
        """What deserialize(messages, go_back) makes of the records that consume_batch() would hand out, without those of partitions of which
        end_work_on() came meanwhile. Until then nobody has them, and no commit covers them.

        deserialize(): some of the messages, and what is handed out for each. go_back(partition, offset): what was taken from there on is not handed out.
        Where deserialize() raises SerializationError it has gone back to the record; whoever is interrupted goes back by itself. Raises
        ConsumerStoppedException if end_work() came meanwhile: others go on from where it stood.
        """
        call = object()
        work = Work(self._handler.current_id())
        self.at_work[call] = work
        try:
            messages, made = deserialize(self._consume(self._take, max_messages, timeout_ms, work), partial(self._go_back, work))
            with self._taking:
                with self._lock:
                    is_ours = self.at_work.pop(call, None) is not None
                    if made:
                        self.run.handed_out += 1  # only now: a call of another worker meanwhile did not say that this is finished
                        self._note_given(list(work.values()))
                if is_ours and work.begun is not None and not self.at_work:  # with others at work, each record is one call's
                    self._allow_a_run(work.begun)
            if not is_ours:
                raise ConsumerStoppedException(
                    "the consumer was stopped while the deserializer was at work: who goes on where it stood gets these messages"
                )
            if not work.ended:
                return made
            return [item for message, item in zip(messages, made, strict=True) if (message.topic, message.partition_id) not in work.ended]
        except SerializationError as exc:
            if (exc.topic, exc.partition) in work.ended:
                return []  # it is another's to meet
            raise
        except BaseException:
            for tp, (_, _, offset, _) in list(work.items()):
                self._go_back(work, tp, offset)
            raise
        finally:
            self.at_work.pop(call, None)
            if work:
                self._filled.set()  # others may wait for what it was at work on

    def consume_arrow(
        self, columns: tuple[str, ...], max_messages: int | None = None, timeout_ms: float | None = None
    ) -> list[pa.RecordBatch]:
        """The same as columns, without an object per record: RecordBatches of `records.arrow_schema(columns)`, [] if nothing came.

        Several only where each is small. Rows of one partition are in order.
        """
        return self._consume(lambda wanted, until: self._take_columns(wanted, columns, until), max_messages, timeout_ms)

    def _consume(
        self,
        take: Callable[[int, float], list[T]],
        max_messages: int | None,
        timeout_ms: float | None,
        work: Work | None = None,
    ) -> list[T]:
        """take(wanted, until): no more than so many, of what is there; reads no further batch behind that time."""
        deadline, waked = self._handler.monotonic() + (timeout_ms or 0) / 1000, self._waked
        reads_until = deadline if timeout_ms else deadline + READ_S
        # Before anything is taken: a caller that is killed here has lost nothing. And before anything is raised: one that tries again at once would
        # keep the hub from whoever could mend it.
        self._handler.checkpoint()
        self._check_running()
        if max_messages is not None and (isinstance(max_messages, bool) or not isinstance(max_messages, int) or max_messages < 1):
            raise ConfigurationError(f"max_messages={max_messages!r}: must be a whole number, 1 or more")
        wanted = DEFAULT_BATCH if max_messages is None else max_messages
        while True:
            self._raise_errors()
            handed_out: list[Stood] = []
            try:
                with self._taking:
                    self._driver.make_whole()
                    self._handed_out, self._work, self._wants_more = handed_out, work, False
                    self.run.left = 0  # it would take what comes behind, which a deserializer that fails goes back over
                    may_take = not self.troubles and self.may_hand_out()
                    taken = take(wanted, reads_until) if may_take else []
                    if taken:
                        self.run.handed_out += 1
                        self._note_given(handed_out)
                    wants_more = self._wants_more
                if wants_more:
                    self._driver.kick()
                if taken:
                    return taken
                if work is not None:
                    work.forget()  # what was read held no record
            except BaseException:  # a signal handler's: nobody gets what was taken
                self._take_back(handed_out)
                if work is not None:
                    work.forget()
                raise
            self._raise_errors()
            now = self._handler.monotonic()
            if self.troubles or self._waked != waked:
                return []
            if now >= deadline and not (may_take and now < reads_until and self._is_any_open()):
                return []
            # Batches without records may have filled the turn: the next ones are there now, so after a turn of others they are read, too.
            self._wait_filled(max(0.0, min(deadline, self._handler.looks_at(now, TICK_S)) - now), waked)
            self._check_running()
            if self.comes_back is not None and self.comes_back():
                return []

    def few_by(self, several: Callable[[int], list[T]]) -> Callable[[int], list[T]]:
        """Return a function that gives what several(most), a method of `run`, takes.

        If a signal handler raises before the caller has it, the next call gets it. It must be a
        function of Python's own: behind a call of any other one a signal handler may raise.
        """
        run, take_back = self.run, self._take_back

        def few(most: int) -> list[T]:
            if run.queue is None:
                return []
            position = run.queue.position
            stood = position, position.term, position.consumed, position.consumed_epoch
            try:
                return several(most)
            except SerializationError:
                raise  # nothing was taken
            except BaseException:
                take_back([stood])
                raise

        return few

    def _take_back(self, handed_out: list[Stood]) -> None:
        """What a call took that was interrupted, the next one gets: with what others took since, twice rather than never."""
        with self._lock:
            self.run.left = 0
            self._driver.step.torn = True  # readers stand where nobody else does
            for position, term, before, before_epoch in handed_out:
                if position.term == term and before < position.consumed:
                    position.consumed, position.consumed_epoch = before, before_epoch

    @property
    def hand_outs(self) -> int:
        """How often records were handed out, or were about to be."""
        handed_out: int = self.run.handed_out
        return handed_out

    def may_hand_out(self) -> bool:
        """May this member still hand out what it has? Who takes from `run` asks before each time."""
        return self.may_deliver is None or self.may_deliver()

    def _allow_a_run(self, queue: Queue) -> None:
        """What consume_batch() has begun, `run` may go on with, for a moment: in a fraction of the time for each record.

        Whatever is to be looked at first ends it: an error, a trouble, a stop, a rebalance that waits for the application. Seeks and pauses it sees.
        """
        run = self.run
        run.queue, run.until = queue, min(self._handler.monotonic() + self._one_by_one, self._delivers_until())
        run.left = 0 if self._driver.errors or self._driver.stopped or self.troubles else CHUNK

    def _wait_filled(self, seconds: float, waked: int) -> None:
        """waked: as it was when the caller looked around last. What has come since then, and set what is cleared here, is not waited over."""
        self._filled.clear()
        if self._driver.errors or self._driver.stopped or self._waked != waked:
            self._filled.set()
            return
        if not self.may_hand_out():
            seconds = min(seconds, LOOK_S)  # what is there already must wait, too
        elif self._is_any_open():
            self._filled.set()  # another worker that has looked and is about to wait must see it, too
            self._handler.checkpoint()
            return
        self._handler.check_fork()
        deadline = self._handler.monotonic() + seconds
        if not self._driver.read_for(deadline):
            self._filled.wait(max(0.0, deadline - self._handler.monotonic()))
        self._handler.checkpoint()  # who filled it used this turn of the hub; what the application does now may take as long

    def _is_any_open(self) -> bool:
        """Is there something that may be handed out? Asked twice by each call that waits: without a call for each of many that are empty."""
        return any((queue.reader is not None or queue.spans) and self._is_open(queue) for queue in list(self._order))

    def _is_open(self, queue: Queue) -> bool:
        """May the caller take from it? Not while another worker's deserializer is at work on what was taken of it, unless it was put elsewhere."""
        if not queue.is_open:
            return False
        if not self.at_work:
            return True
        position, me = queue.position, self._handler.current_id()
        works = [work for work in list(self.at_work.values()) if work.worker != me]
        return all(work.get(position.tp, NOWHERE)[:2] != (position, position.term) for work in works)

    def _take(self, wanted: int, until: float) -> list[Message]:
        """Records of the partition whose turn it is, and of the next ones while there is room and time."""
        taken: list[Message] = []
        if not self._is_any_open():
            return taken
        room = self.config.consume_max_bytes
        turn_ends = self._handler.monotonic() + self._share_of_time
        for _ in range(len(self._order)):
            queue = self._order[0]
            while len(taken) < wanted and room >= 0 and self._is_open(queue):
                room = self._read(queue, wanted - len(taken), room, taken)
                now = self._handler.monotonic()
                if now >= until or now >= turn_ends:
                    wanted = len(taken)
            self._order.rotate(-1)
            if len(taken) >= wanted or room < 0:
                if self._work is None:
                    self._allow_a_run(queue)
                else:
                    self._work.begun = queue  # no run before its deserializer is done
                break
        return taken

    def _take_columns(self, wanted: int, columns: tuple[str, ...], until: float) -> list[pa.RecordBatch]:
        """Rows of the partition whose turn it is; of the next ones, too, while they are few."""
        taken: list[pa.RecordBatch] = []
        wanted_rows, rows, room = min(wanted, ENOUGH_ROWS), 0, self.config.consume_max_bytes
        turn_ends = self._handler.monotonic() + self._share_of_time
        for _ in range(len(self._order)):
            queue = self._order[0]
            while rows < wanted_rows and room >= 0 and self._is_open(queue):
                room = self._read_columns(queue, wanted - rows, room, columns, taken)
                rows = sum(piece.num_rows for piece in taken)
                now = self._handler.monotonic()
                if now >= until or now >= turn_ends:
                    wanted_rows = rows
            self._order.rotate(-1)
            if rows >= wanted_rows or room < 0:
                break
        return taken

    def _read(self, queue: Queue, wanted: int, room: int, taken: list[Message]) -> int:
        """Take from the span that is being read, or from the next one when that is read to its end.

        room: bytes that may be handed out. Returns what is left of it, -1 if the next record does not fit: it is left for the next
        call. The first record of a call is taken whatever its size.
        """
        if isinstance(queue.reader, ColumnReader):
            self._put_back(queue)
        reader = queue.reader or self._open(queue)
        if reader is None or isinstance(reader, ColumnReader):
            return room
        stood, before = stands_at(queue.position), reader.next_offset
        try:
            got = reader.take(wanted if wanted < CHUNK else CHUNK, room, 0 if taken else 1)
        except (ProtocolError, UnsupportedCodec) as exc:
            self._damaged(queue, reader, exc)
            return room
        left = reader.remaining
        if not got and left and reader.next_offset == before:
            return -1
        if self._settle(queue, reader, reader.next_offset, left, stood):
            taken += got
        return room - reader.taken_bytes

    def _read_columns(self, queue: Queue, wanted: int, room: int, columns: tuple[str, ...], taken: list[pa.RecordBatch]) -> int:
        """The same, as columns."""
        if queue.reader is not None and not (isinstance(queue.reader, ColumnReader) and queue.reader.columns == columns):
            self._put_back(queue)
        reader = queue.reader or self._open_columns(queue, columns)
        if not isinstance(reader, ColumnReader):
            return room
        stood = stands_at(queue.position)
        try:
            got = reader.take(wanted, room, 0 if taken else 1)
        except (ProtocolError, UnsupportedCodec) as exc:
            self._damaged(queue, reader, exc)
            return room
        if got is None and not reader.is_done:
            return -1
        if self._settle(queue, reader, reader.next_offset, reader.remaining, stood) and got is not None:
            taken.append(got)
        return room - reader.taken_bytes

    def _settle(self, queue: Queue, reader: Records | ColumnReader, stands: int, left: int, stood: Stood) -> bool:
        """What was just read counts as handed out, up to the offset `stands`. False: it is not wanted any more. left: what is left in the reader. stood:
        before it was read, as `run` may have gone on since.

        Nothing between here and the end of the call switches to another worker: a caller that is killed has either all or nothing.
        """
        driver = self._driver
        with self._lock:
            if queue.reader is not reader:
                return False  # another thread has sought meanwhile: this is not what is wanted any more
            if queue.is_void:  # what is left of it, nothing at least, says nothing of where the position is now
                driver.held -= queue.size
                queue.unread = 0
                queue.is_read()
                return False
            position, before = queue.position, queue.position.buffered
            self._handed_out.append(stood)
            # First: who looks at both in between finds it at work, or not taken.
            if self._work is not None and self._work.setdefault(position.tp, stood)[1] != position.term:
                self._work[position.tp] = stood
            position.consumed = max(position.consumed, stands)  # `run` may be further
            position.consumed_epoch = queue.leader_epoch
            queue.count(left)
            wants_more = before >= self.config.queued_max_messages > position.buffered
            if not left:
                was_full = driver.is_full
                driver.held -= queue.size
                queue.is_read()
                queue.catch_up()
                wants_more |= was_full and not driver.is_full
        self._wants_more |= wants_more
        return True

    def _put_back(self, queue: Queue) -> None:
        """What is being read is to be read in another way."""
        with self._lock:
            if queue.is_void:
                self._driver.held -= queue.size
                queue.is_read()
            else:
                queue.put_back()

    def _open_columns(self, queue: Queue, columns: tuple[str, ...]) -> ColumnReader | None:
        driver = self._driver
        most = TURN_COLUMN_BYTES if self._handler.cooperative else COLUMN_BYTES
        with self._lock, driver.step:
            held = queue.held
            spans = queue.next_batches(most)
            if not spans:
                driver.held -= held - queue.held
                return None
            start = max(spans[0].skip_to, queue.position.consumed)
            config = self.config
            reader = queue.reader = ColumnReader(spans, start, columns, config.consume_max_bytes, check_crcs=config.check_crcs)
            return reader

    def _open(self, queue: Queue) -> Records | None:
        driver = self._driver
        with self._lock, driver.step:
            held = queue.held
            fetched = queue.next_batch()
            if fetched is None:
                driver.held -= held - queue.held
                return None
            min_offset = max(fetched.skip_to, queue.position.consumed)
            buffer: memoryview = fetched.buffer
            span: Span | BatchHeader = fetched.span
            if self.double_compressed != "open" and fetched.span.count < 0:
                buffer, span, min_offset = self._mind_double(fetched, min_offset)
            reader = queue.reader = records.Records(
                buffer,
                span,
                queue.context,
                check_crcs=self.config.check_crcs,
                min_offset=min_offset,
                message_class=self.message_class,
            )
            return reader

    def _mind_double(self, fetched: Fetched, min_offset: int) -> tuple[memoryview, Span | BatchHeader, int]:
        """What to read of a compressed message that may hold one that is compressed, too: buffer, span, first offset."""
        topic, partition = fetched.position.tp
        buffer, span = fetched.buffer, fetched.span
        plain = left_compressed(buffer, span.first, topic, partition, check_crcs=self.config.check_crcs)
        if plain is None:
            return buffer, span, min_offset
        if self.double_compressed == "skip":
            log.warning("%s[%d] offset %d: the message is compressed twice, it is skipped", topic, partition, span.last_offset)
            return buffer, span, span.next_offset
        return memoryview(plain), records.scan(plain)[0], min_offset

    def _damaged(self, queue: Queue, reader: Records | ColumnReader, error: KafkaException) -> None:
        """A batch cannot be read: the position stays before it, the partition is fetched again after a pause, the caller is told."""
        position, driver = queue.position, self._driver
        with self._lock, driver.step:
            if queue.reader is not reader:
                return
            errors: list[KafkaException] = []
            self._empty(queue)
            position.seek(position.consumed, position.consumed_epoch, position.leader_epoch)
            driver.shares[0].fetcher.fail(position, error, self._handler.monotonic(), errors)
            driver.tell(errors)
        self._wants_more = True

    def _raise_errors(self, *, starting: bool = False) -> None:
        """Raise the first error whose partition has nothing left to hand out before it.

        starting: only one that keeps a partition from having a start. What is damaged behind it is told by consume_batch().
        """
        driver = self._driver
        for error in list(driver.errors):
            queue = driver.queues.get(TopicPartition(error.topic or "", -1 if error.partition is None else error.partition))
            if starting and all(q.position.consumed >= 0 for q in ([queue] if queue is not None else list(driver.queues.values()))):
                continue
            if queue is None or queue.is_empty:
                with self._lock:
                    if error not in driver.errors:
                        continue  # a seek has settled it
                    driver.errors.remove(error)
                raise error

    def _check_running(self) -> None:
        self._handler.check_fork()
        if self._driver.stopped:
            raise ConsumerStoppedException("the consumer was stopped: make a new one; pykafka's can also start() again")

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
        """Counters: fetches answered, messages and bytes buffered, logs that were found cut, positions."""
        driver = self._driver
        return {
            "fetches": driver.fetches,
            "buffered": self.buffered(),
            "buffered_bytes": driver.held,
            "stall_warnings": driver.watchdog.warnings if driver.watchdog is not None else 0,
            "truncations": sum(share.fetcher.lookups.truncations for share in driver.shares),
            "positions": {f"{t}-{p}": o for (t, p), o in self.positions().items()},
        }


def stands_at(position: Position) -> Stood:
    return position, position.term, position.consumed, position.consumed_epoch


def _place(position: Position, offset: int, epoch: int = -1) -> None:
    position.term += 1
    position.topic_id = NO_TOPIC_ID  # of whatever topic has the name now
    if offset < 0:
        position.reset(offset)
        position.consumed = -1
    else:
        position.seek(offset, epoch)
