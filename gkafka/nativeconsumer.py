"""The consumer that the others are skins of: assigned partitions, pipelined fetches, whole batches in a queue.

A record's way: the machine in `gkafka.core.fetcher` makes a request, the connection's worker reads the answer (its bytes stay one buffer),
the machine splits it into batches and makes the next request, which is sent before any batch is handed out. `consume_batch()` takes
records out of the oldest batch, in the caller: that is where a batch is checked, decompressed and read.
"""

from __future__ import annotations

import logging
import weakref
from collections import deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from gkafka import records
from gkafka.broker import CONTROL
from gkafka.common import TopicPartition
from gkafka.config import ConsumerConfig
from gkafka.core.backoff import Backoff
from gkafka.core.fetcher import Asked, Fetched, Fetcher, Lookup
from gkafka.core.offsets import commit_request, fetch_request, read_commit, read_fetch
from gkafka.core.positions import Position, State
from gkafka.exceptions import (
    ConfigurationError,
    ConsumerStoppedException,
    ForkedClientError,
    KafkaException,
    KafkaTimeoutError,
    ProtocolError,
    Stale,
    UnsupportedCodec,
)

if TYPE_CHECKING:
    from gkafka.cluster import Cluster
    from gkafka.records import Message, Records

__all__ = ["NativeConsumer"]

log = logging.getLogger(__name__)

TICK_S = 1.0
DEFAULT_BATCH = 1 << 30
FRAME_BYTES = 1 << 16
"""What an answer may hold beside records: so much less than max_response_bytes is asked for."""
CHUNK = 1000
"""Records that are read without a look at the clock."""
TURN_S = 0.005
"""With greenlets, a call hands out what it has read after so long: reading switches to nobody, and the hub must not stand still."""


class Context:
    """What the records of a partition have in common: what `message.topic`, `.partition_id` and `.partition` answer."""

    __slots__ = ("partition", "partition_id", "topic")

    def __init__(self, topic: str, partition_id: int, partition: Any) -> None:
        self.topic = topic
        self.partition_id = partition_id
        self.partition = partition


class Queue:
    """The batches of one partition that were fetched and not handed out, oldest first.

    reader: the one that is being read. unread: what that one still counts for in `position.buffered`.
    """

    __slots__ = ("batches", "context", "position", "reader", "unread")

    def __init__(self, position: Position, context: Context) -> None:
        self.position = position
        self.context = context
        self.batches: deque[Fetched] = deque()
        self.reader: Records | None = None
        self.unread = 0

    def clear(self) -> None:
        self.batches.clear()
        self.reader = None
        self.position.buffered = self.unread = 0

    @property
    def is_empty(self) -> bool:
        return self.reader is None and not self.batches


class Fetching:
    """One fetch worker's share: the leaders whose id falls to it, and the machine that asks them."""

    __slots__ = ("again", "fetcher", "index", "lock", "role", "sleeps_until", "wake", "worker")

    def __init__(self, index: int, role: object, fetcher: Fetcher, lock: Any, wake: Any) -> None:
        self.index = index
        self.role = role
        self.fetcher = fetcher
        self.lock = lock
        self.wake = wake
        self.worker: Any = None
        self.again = False
        self.sleeps_until = float("inf")


class NativeConsumer:
    """Reads assigned partitions. Several workers may consume at once: each record goes to one of them.

    reset_policy: -2 earliest, -1 latest, None raises, for a partition without a start and for an offset that is out of range.
    """

    def __init__(self, cluster: Cluster, config: ConsumerConfig, *, reset_policy: int | None = -2, group: str | None = None) -> None:
        self._cluster, self.config, self._handler, self._group = cluster, config, cluster.handler, group
        self._share_of_time = TURN_S if cluster.handler.cooperative else float("inf")
        self._lock = self._handler.Lock()
        # Several threads may consume: one at a time reads, each gets records of its own. Held while batches are read, never across a wait.
        self._taking = self._handler.Lock()
        self._filled = self._handler.Event()
        self._queues: dict[TopicPartition, Queue] = {}
        self._order: deque[Queue] = deque()
        self._errors: deque[KafkaException] = deque()
        self._stopped = False
        self._started = False
        self._shares = [self._make_share(i, reset_policy) for i in range(config.num_consumer_fetchers)]
        self._fetches = 0
        cluster.adopt(self)

    def _make_share(self, index: int, reset_policy: int | None) -> Fetching:
        c = self.config
        biggest = max(1, self._cluster.config.max_response_bytes - FRAME_BYTES)
        fetcher = Fetcher(
            self._cluster.metadata,
            scan=records.scan,
            control_type=records.control_type,
            verify=_verify if c.check_crcs else _trust,
            min_bytes=c.fetch_min_bytes,
            max_bytes=min(c.fetch_max_bytes, biggest),
            wait_max_ms=int(c.fetch_wait_max_ms),
            partition_max_bytes=min(c.fetch_message_max_bytes, biggest),
            queued_max_messages=c.queued_max_messages,
            read_committed=c.isolation_level == "read_committed",
            reset_policy=reset_policy,
            biggest_partition_bytes=biggest,
            backoff=Backoff(c.fetch_error_backoff_ms / 1000, max(1.0, c.fetch_error_backoff_ms / 1000)),
            chance=self._handler.random(),
        )
        # Not id(self): the next consumer may get the same one, and with it a connection that is still waiting for an answer.
        wake = self._handler.Event()
        self._cluster.sleepers.add(wake)
        return Fetching(index, object(), fetcher, self._handler.Lock(), wake)

    # -- what to read --------------------------------------------------------------------------------------------------------
    def assign(self, start: Mapping[TopicPartition, int], partitions: Mapping[TopicPartition, Any] | None = None) -> None:
        """Read these partitions and no others. start: an offset, or -2 / -1 for the earliest / latest one.

        partitions: the objects that messages show as `.partition`.
        """
        for topic in {tp.topic for tp in start}:
            self._cluster.wait_for_topic(topic)
        with self._lock:
            parked = [(share, broker_id) for share in self._shares for broker_id in share.fetcher.busy]
            for share in self._shares:
                share.fetcher.forget_requests()
                share.fetcher.positions.clear()
            self._queues.clear()
            self._order.clear()
            self._errors.clear()
            for tp, offset in start.items():
                position = Position(tp, self._shares[0].fetcher.partition_max_bytes)
                _place(position, offset)
                queue = Queue(position, Context(tp.topic, tp.partition, (partitions or {}).get(tp)))
                self._queues[tp] = queue
                self._order.append(queue)
                for share in self._shares:
                    share.fetcher.positions[tp] = position
            self._divide()
        self._hang_up(parked)
        self._kick()

    def _hang_up(self, parked: Iterable[tuple[Fetching, int | None]]) -> None:
        """Close the connections on which brokers have parked what is not wanted any more: the next fetch would wait behind it."""
        for share, broker_id in parked:
            broker = self._cluster.broker_by_id(broker_id) if broker_id is not None else None
            if broker is not None:
                broker.drop_channel(share.role)

    def _divide(self) -> None:
        """Give each leader's partitions to one of the fetch workers."""
        if len(self._shares) == 1:
            return
        for tp, queue in self._queues.items():
            leader = self._cluster.metadata.leader(*tp)
            owner = (leader[0] if leader is not None else tp.partition) % len(self._shares)
            for share in self._shares:
                if share.index == owner:
                    share.fetcher.positions[tp] = queue.position
                elif not queue.position.in_flight:
                    share.fetcher.positions.pop(tp, None)

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Go on from an offset, or from -2 / -1 for the earliest / latest one. What was fetched before is dropped."""
        self._check_running()
        with self._lock:
            queue = self._queue(tp)
            parked = [(share, share.fetcher.cancel_parked(tp)) for share in self._shares]
            queue.clear()
            _place(queue.position, offset)
            for error in [e for e in self._errors if (e.topic, e.partition) == tp]:
                self._errors.remove(error)
        self._hang_up(parked)
        self._kick()

    def _queue(self, tp: TopicPartition) -> Queue:
        queue = self._queues.get(tp)
        if queue is None:
            raise ConfigurationError(f"{tp.topic}-{tp.partition} is not assigned to this consumer", topic=tp.topic, partition=tp.partition)
        return queue

    def start_offsets_known(self, deadline: float) -> None:
        """Wait until every partition knows the offset that it starts from. Raises KafkaTimeoutError, or the error that is in the way."""
        while any(q.position.state is State.RESETTING for q in self._queues.values()):
            self._raise_errors(starting=True)
            left = deadline - self._handler.monotonic()
            if left <= 0:
                waiting = ", ".join(f"{t}-{p}" for (t, p), q in self._queues.items() if q.position.state is State.RESETTING)
                raise KafkaTimeoutError(f"no offset to start from was told for {waiting}")
            self._filled.clear()
            if any(q.position.state is State.RESETTING for q in self._queues.values()):
                self._kick()
                self._filled.wait(min(left, 0.1))
        self._raise_errors(starting=True)

    def position(self, tp: TopicPartition) -> int:
        """The offset of the next record that this consumer will hand out, -1 while it is not known."""
        return self._queue(tp).position.consumed

    def positions(self) -> dict[TopicPartition, int]:
        """The same for every partition."""
        return {tp: q.position.consumed for tp, q in self._queues.items()}

    def lag(self) -> dict[TopicPartition, int]:
        """Records between the position and the end of each partition as last told by its leader, -1 where it was not told yet."""
        known = {tp: q.position for tp, q in self._queues.items()}
        return {tp: max(0, p.high_watermark - p.consumed) if p.high_watermark >= 0 <= p.consumed else -1 for tp, p in known.items()}

    def buffered(self) -> int:
        """Messages fetched and not handed out."""
        return sum(q.position.buffered for q in self._queues.values())

    # -- consuming -------------------------------------------------------------------------------------------------------------
    def consume_batch(self, max_messages: int | None = None, timeout_ms: float | None = None) -> list[Message]:
        """Up to max_messages records, as soon as there is one; [] if none came within timeout_ms (None: 0, what is there now).

        The records of one call are in order within each partition. They are views of the fetched buffer: `detach()` one to keep it
        without its buffer. Raises CorruptRecordError naming topic, partition and offset (nothing is skipped: seek past it to go on), and
        other errors that stand in the way of a partition; records before the error were handed out.
        """
        self._check_running()
        if max_messages is not None and (isinstance(max_messages, bool) or not isinstance(max_messages, int) or max_messages < 1):
            raise ConfigurationError(f"max_messages={max_messages!r}: must be a whole number, 1 or more")
        wanted = DEFAULT_BATCH if max_messages is None else max_messages
        deadline = None
        # Before anything is taken: a caller that is killed here has lost nothing.
        self._handler.checkpoint()
        while True:
            self._raise_errors()
            with self._taking:
                taken = self._take(wanted)
            if taken:
                return taken
            self._raise_errors()
            now = self._handler.monotonic()
            deadline = now + (timeout_ms or 0) / 1000 if deadline is None else deadline
            if now >= deadline:
                return []
            self._wait_filled(min(deadline - now, TICK_S))
            self._check_running()

    def _wait_filled(self, seconds: float) -> None:
        self._filled.clear()
        if any(not q.is_empty for q in list(self._order)) or self._errors or self._stopped:
            return
        self._handler.check_fork()
        self._filled.wait(seconds)

    def _take(self, wanted: int) -> list[Message]:
        """Records of the partition whose turn it is, and of the next ones while there is room and time."""
        taken: list[Message] = []
        until = self._handler.monotonic() + self._share_of_time
        for _ in range(len(self._order)):
            queue = self._order[0]
            while len(taken) < wanted and not queue.is_empty:
                self._read(queue, wanted - len(taken), taken)
                if taken and self._handler.monotonic() >= until:
                    wanted = len(taken)
            self._order.rotate(-1)
            if len(taken) >= wanted:
                break
        return taken

    def _read(self, queue: Queue, wanted: int, taken: list[Message]) -> None:
        """Take from the batch that is being read; go on to the next one when it is empty."""
        reader = queue.reader or self._open(queue)
        if reader is None:
            return
        wanted = min(wanted, CHUNK)
        try:
            got = reader.take(wanted)
        except (ProtocolError, UnsupportedCodec) as exc:
            self._damaged(queue, reader, exc)
            return
        # Nothing between here and the end of the call switches to another worker: a caller that is killed has either all or nothing.
        with self._lock:
            if queue.reader is not reader:
                return  # another thread has sought meanwhile: this is not what is wanted any more
            position, before = queue.position, queue.position.buffered
            done = len(got) < wanted
            position.consumed = reader.next_offset if done else got[-1].offset + 1
            counted = queue.unread if done else min(len(got), queue.unread)
            position.buffered = max(0, before - counted)
            queue.unread -= counted
            if done:
                queue.reader = None
                self._catch_up(queue)
        taken += got
        if before >= self.config.queued_max_messages > position.buffered:
            self._kick()

    def _catch_up(self, queue: Queue) -> None:
        """Under the lock: if everything fetched was handed out, what the fetches passed over since (markers, aborted records) is consumed."""
        if queue.is_empty:
            queue.position.buffered = 0
            if queue.position.state is not State.RESETTING:
                queue.position.consumed = queue.position.fetch_offset

    def _open(self, queue: Queue) -> Records | None:
        with self._lock:
            if not queue.batches:
                return None
            batch = queue.batches.popleft()
            if batch.epoch != queue.position.epoch:
                return None
            queue.unread = batch.messages
            reader = queue.reader = records.Records(
                batch.buffer,
                batch.header,
                queue.context,
                check_crcs=self.config.check_crcs,
                min_offset=max(batch.skip_to, queue.position.consumed),
            )
            return reader

    def _damaged(self, queue: Queue, reader: Records, error: KafkaException) -> None:
        """A batch cannot be read: the position stays before it, the partition is fetched again after a pause, the caller is told."""
        position = queue.position
        with self._lock:
            if queue.reader is not reader:
                return
            errors: list[KafkaException] = []
            queue.clear()
            position.seek(position.consumed)
            self._shares[0].fetcher.fail(position, error, self._handler.monotonic(), errors)
            self._tell(errors)
        self._kick()

    def _tell(self, errors: Iterable[KafkaException]) -> None:
        """Under the lock: keep errors for the caller. One that waits already is not kept twice, however often it is met again."""
        for error in errors:
            kind = (type(error), error.topic, error.partition)
            if all((type(e), e.topic, e.partition) != kind for e in self._errors):
                self._errors.append(error)

    def _raise_errors(self, *, starting: bool = False) -> None:
        """Raise the first error whose partition has nothing left to hand out before it.

        starting: only one that keeps a partition from having a start. What is damaged behind it is told by consume_batch().
        """
        for error in list(self._errors):
            queue = self._queues.get(TopicPartition(error.topic or "", -1 if error.partition is None else error.partition))
            if starting and all(q.position.consumed >= 0 for q in ([queue] if queue is not None else self._queues.values())):
                continue
            if queue is None or queue.is_empty:
                with self._lock:
                    if error not in self._errors:
                        continue  # a seek has settled it
                    self._errors.remove(error)
                raise error

    def _check_running(self) -> None:
        self._handler.check_fork()
        if self._stopped:
            raise ConsumerStoppedException("the consumer was stopped: make a new one, or call start()")

    # -- fetching --------------------------------------------------------------------------------------------------------------
    def start(self) -> None:
        """Start the fetch workers."""
        self._handler.check_fork()
        with self._lock:
            if self._started:
                return
            self._started, self._stopped = True, False
        self._handler.start()
        me = weakref.ref(self)
        for share in self._shares:
            share.worker = self._handler.spawn(
                _work, me, share, self._cluster, _name=f"gkafka-fetcher-{share.index}", _on_failure=lambda error: _failed(me, error)
            )

    def _kick(self) -> None:
        """Something may have become fetchable: ask at once, whoever notices it. Nothing here waits."""
        for share in self._shares:
            self._kick_share(share)

    def _kick_share(self, share: Fetching) -> None:
        if self._drive(share) < share.sleeps_until:
            share.wake.set()

    def _drive(self, share: Fetching) -> float:
        """Send what the machine wants. One driver at a time: another one leaves a note and goes on."""
        deadline = float("inf")
        while not self._stopped and self._started:
            if not share.lock.acquire(blocking=False):
                share.again = True
                if not share.lock.acquire(blocking=False):
                    return self._handler.monotonic() + 0.005
            try:
                share.again = False
                deadline = self._drive_once(share)
            finally:
                share.lock.release()
            if not share.again:
                return deadline
        return deadline

    def _drive_once(self, share: Fetching) -> float:
        now = self._handler.monotonic()
        with self._lock:
            self._divide()
            plan = share.fetcher.poll(now)
        due = plan.deadline
        if plan.want_metadata:
            self._cluster.metadata.invalidate()
        if plan.want_metadata or self._cluster.metadata.due(now) <= now:
            due = min(due, self._cluster.poll())
        for asked in plan.fetches:
            self._fetch(share, asked)
        for lookup in plan.lookups:
            self._look_up(share, lookup)
        return due

    def _fetch(self, share: Fetching, asked: Asked) -> None:
        broker = self._cluster.broker_by_id(asked.broker_id)
        me = weakref.ref(self)  # a consumer that was dropped must not be kept by a long poll
        try:
            if broker is None:
                raise KafkaTimeoutError(f"broker {asked.broker_id} is not known any more")
            broker.send(
                share.role,
                asked.request,
                lambda response, error: _on_fetched(me, share, asked, response, error),
                timeout_s=(self.config.request_timeout_ms + asked.request.max_wait_ms) / 1000,
            )
        except KafkaException as exc:
            self._fetched(share, asked, None, exc)

    def _fetched(self, share: Fetching, asked: Asked, response: Any, error: KafkaException | None) -> None:
        with self._lock:
            batches, errors, stale = share.fetcher.on_fetched(asked, response, error, self._handler.monotonic())
            self._fetches += 1
            for batch in batches:
                queue = self._queues.get(batch.position.tp)
                if queue is not None and queue.position is batch.position:
                    queue.batches.append(batch)
            self._tell(errors)
            if stale:
                self._cluster.metadata.invalidate()
            for tp in asked.partitions:
                queue = self._queues.get(tp)
                if queue is not None:
                    self._catch_up(queue)
        share.again = True
        self._kick_share(share)
        if batches or errors:
            self._filled.set()

    def _look_up(self, share: Fetching, lookup: Lookup) -> None:
        broker = self._cluster.broker_by_id(lookup.broker_id)

        def on_done(response: Any, error: KafkaException | None) -> None:
            with self._lock:
                errors, stale = share.fetcher.on_looked_up(lookup, response, error, self._handler.monotonic())
                self._tell(errors)
                if stale:
                    self._cluster.metadata.invalidate()
                for position, _ in lookup.partitions.values():
                    if position.state is State.FETCHING and position.consumed < 0:
                        position.consumed = position.fetch_offset
            self._kick_share(share)
            self._filled.set()

        try:
            if broker is None:
                raise KafkaTimeoutError(f"broker {lookup.broker_id} is not known any more")
            broker.send(CONTROL, lookup.request, on_done, timeout_s=self._cluster.config.socket_timeout_ms / 1000)
        except KafkaException as exc:
            on_done(None, exc)

    # -- committed offsets -----------------------------------------------------------------------------------------------------
    def _group_name(self) -> str:
        if not self._group:
            raise ConfigurationError("this needs a consumer group: give consumer_group=")
        return self._group

    def commit(
        self,
        offsets: Mapping[TopicPartition, int] | None = None,
        *,
        timeout_s: float,
        tries: int | None = None,
        backoff_s: float = 0.1,
        generation_id: int = -1,
        member_id: str = "",
    ) -> None:
        """Commit offsets of the group: the next ones to consume. None: where this consumer stands. tries: None is until timeout_s."""
        group = self._group_name()
        wanted = self.positions() if offsets is None else dict(offsets)
        wanted = {tp: offset for tp, offset in wanted.items() if offset >= 0}
        if not wanted:
            return

        def attempt() -> None:
            request = commit_request(group, {tp: (o, "") for tp, o in wanted.items()}, generation_id=generation_id, member_id=member_id)
            response, coordinator = self._cluster.call_coordinator(group, request, deadline)
            for tp, error in read_commit(response, group=group, broker=coordinator).items():
                if error is None:
                    wanted.pop(tp, None)
                else:
                    self._note(error)
                    raise error
            for topic, partition in wanted:
                text = f"the answer to an offset commit leaves {topic}-{partition} out"
                raise ProtocolError(text, topic=topic, partition=partition, group=group, broker=coordinator, api="OffsetCommit")

        deadline = self._handler.monotonic() + timeout_s
        self._with_tries(f"committing offsets of group {group!r}", attempt, deadline, tries, backoff_s)

    def committed(
        self, partitions: Iterable[TopicPartition], *, timeout_s: float, tries: int | None = None, backoff_s: float = 0.1
    ) -> dict[TopicPartition, int]:
        """The group's committed offsets, -1 where there is none."""
        group = self._group_name()
        wanted = list(partitions)

        def attempt() -> dict[TopicPartition, int]:
            response, coordinator = self._cluster.call_coordinator(group, fetch_request(group, wanted, stable=True), deadline)
            found = read_fetch(response, wanted, group=group, broker=coordinator)
            for entry in found.values():
                if entry.error is not None and not _means_none(entry.error):
                    self._note(entry.error)
                    raise entry.error
            return {tp: found[tp].offset if found[tp].error is None else -1 for tp in wanted}

        deadline = self._handler.monotonic() + timeout_s
        result: dict[TopicPartition, int] = self._with_tries(f"offsets of group {group!r}", attempt, deadline, tries, backoff_s)
        return result

    def _note(self, error: KafkaException) -> None:
        if error.stale is Stale.COORDINATOR:
            self._cluster.forget_coordinator(self._group_name())

    def _with_tries(self, what: str, attempt: Any, deadline: float, tries: int | None, backoff_s: float) -> Any:
        if tries is None:
            return self._cluster.retrying(what, attempt, deadline)
        for n in range(tries + 1):
            try:
                return attempt()
            except KafkaException as exc:
                if not exc.retriable or n == tries or self._handler.monotonic() >= deadline:
                    raise
                log.info("%s: %s, again in %g s", what, exc, backoff_s)
                self._handler.sleep(backoff_s)
        return None

    @property
    def closed(self) -> bool:
        """Is it not running?"""
        return self._stopped

    def close(self, timeout: float | None = None) -> None:
        """Stop; what the client calls when it closes."""
        self.stop()

    # -- the end -----------------------------------------------------------------------------------------------------------------
    def stop(self) -> None:
        """Stop fetching and close the fetch connections. Idempotent."""
        with self._lock:
            if self._stopped or not self._started:
                self._stopped = True
                return
            self._stopped, self._started = True, False
            for queue in self._queues.values():
                queue.clear()
                if queue.position.state is State.FETCHING:
                    queue.position.seek(queue.position.consumed)  # start() goes on with what was not handed out
            for share in self._shares:
                share.fetcher.forget_requests()
        self._filled.set()
        for share in self._shares:
            share.wake.set()
            for broker in list(self._cluster._brokers.values()):
                broker.drop_channel(share.role)
        for share in self._shares:
            if share.worker is not None:
                share.worker.join(TICK_S * 2)

    def __del__(self) -> None:
        # Only flags: the workers see them (or that the consumer is gone) when they wake.
        self._stopped = True

    def stats(self) -> dict[str, Any]:
        """Counters: fetches answered, messages buffered, positions."""
        return {
            "fetches": self._fetches,
            "buffered": self.buffered(),
            "positions": {f"{t}-{p}": o for (t, p), o in self.positions().items()},
        }


def _verify(buffer: Any, header: Any) -> None:
    records.Records(buffer, header, Context("", -1, None)).take(1)


def _trust(buffer: Any, header: Any) -> None:
    """With check_crcs=False."""


def _place(position: Position, offset: int) -> None:
    if offset < 0:
        position.reset(offset)
        position.consumed = -1
    else:
        position.seek(offset)


def _means_none(error: KafkaException) -> bool:
    """Brokers before 0.9 answer "unknown topic or partition" where nothing is committed."""
    return getattr(error, "code", None) == 3


def _on_fetched(me: weakref.ref[NativeConsumer], share: Fetching, asked: Asked, response: Any, error: KafkaException | None) -> None:
    consumer = me()
    if consumer is not None and not consumer._stopped:
        consumer._fetched(share, asked, response, error)


def _failed(me: weakref.ref[NativeConsumer], error: BaseException) -> None:
    """A fetch worker was killed, or met a bug: whoever consumes is told, nobody waits for it in silence."""
    consumer = me()
    if consumer is None or consumer._stopped or isinstance(error, ForkedClientError):
        return
    log.error("a fetch worker ended by %s", type(error).__name__, exc_info=error)
    told = ConsumerStoppedException(
        f"a fetch worker of this consumer ended by {type(error).__name__}: {error}; stop() and start() it again"
    )
    told.__cause__ = error
    with consumer._lock:
        consumer._tell([told])
    consumer._filled.set()


def _work(me: weakref.ref[NativeConsumer], share: Fetching, cluster: Cluster) -> None:
    """A fetch worker: backoffs, metadata, and fetches that nobody else started. Ends with its consumer."""
    while True:
        consumer = me()
        if consumer is None or consumer._stopped:
            if consumer is None:  # it was dropped without stop(): its connections are nobody's any more
                for broker in list(cluster._brokers.values()):
                    broker.drop_channel(share.role)
            return
        handler = consumer._handler
        handler.check_fork()
        share.wake.clear()
        deadline = consumer._drive(share)
        now = handler.monotonic()
        share.sleeps_until = min(deadline, now + TICK_S)
        del consumer
        share.wake.wait(max(0.001, share.sleeps_until - now))
