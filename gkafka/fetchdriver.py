"""Drives the consumer's machine: its workers, what they send, and the queues that the answers fill.

Whoever notices that something may be fetched drives: the connection's reader after an answer, the caller who has emptied a queue, the fetch
worker when a pause ends. One drives at a time; another one leaves a note and goes on.

A signal handler's exception may end any of them between two steps; under gevent the worker and the reader, too. Whoever is hit leaves a note, and the
worker, or the one that is started in its place, makes the bookkeeping true again: what was not handed out is fetched once more.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from gkafka import records
from gkafka.broker import CONTROL
from gkafka.common import TopicPartition
from gkafka.consumerqueues import Queue
from gkafka.core.backoff import Backoff
from gkafka.core.fetcher import FRAME_BYTES, Asked, EpochCheck, Fetcher, Lookup, Poll
from gkafka.core.positions import State
from gkafka.exceptions import ConsumerStoppedException, ForkedClientError, KafkaException, KafkaTimeoutError
from gkafka.explaining import Watchdog
from gkafka.handlers.turn import Turn
from gkafka.logs import get_logger
from gkafka.records._damage import Place, corrupt, explain_crc
from gkafka.starter import held_weakly

if TYPE_CHECKING:
    from gkafka.broker import Broker
    from gkafka.cluster import Cluster
    from gkafka.config import ConsumerConfig
    from gkafka.net.channel import Channel

__all__ = ["FetchDriver", "Fetching"]

log = get_logger(__name__)

TICK_S = 4.0
END_S = 2.0
"""How long who stops waits for all workers at most: they were told, and their connections are closed."""
STUCK_S = 5.0
"""A driver that was not heard of for so long was interrupted, and again before it could leave a note of that."""
BUSY_S = 0.005
"""When a worker that found another driver at work looks again."""
MANY_LEADERS = 32
"""Of more, what they answer is looked at together: for each answer all partitions would be looked at, N times N in the end."""
MERGED_S = 0.02
"""For so long it is gathered; and so are failures, of which thousands may come at once."""
SENT_AT_ONCE = 16
"""With greenlets, requests that are made in one go: the first to a broker takes some 0.2 ms. To more leaders only the worker sends."""
STARTS_AT_ONCE = 500
"""So many partitions of a leader are asked about in one request with greenlets: what an answer says is taken in by one step."""


class Fetching:
    """One fetch worker's share: the leaders whose id falls to it, and the machine that asks them.

    turn: whose it is drives; the worker takes it as this object. under_way: broker id -> the fetch that was handed to a connection, and that. notes: of
    those who were interrupted, what they held the turn as; beat: when its last driver was heard of. gathers: the worker drives in a moment, when more
    has come.
    """

    __slots__ = ("again", "beat", "fetcher", "gathers", "index", "notes", "role", "sleeps_until", "turn", "under_way", "wake", "worker")

    def __init__(self, index: int, role: object, fetcher: Fetcher, wake: Any) -> None:
        self.index = index
        self.role = role
        self.fetcher = fetcher
        self.turn = Turn()
        self.wake = wake
        self.worker: Any = None
        self.again = False
        self.gathers = False
        self.sleeps_until = float("inf")
        self.under_way: dict[int, tuple[Asked, Channel]] = {}
        self.notes: list[object] = []
        self.beat = 0.0

    def suspect(self, who: object = None) -> None:
        """An exception from outside (a signal handler's) may have come between two steps that belong together: the worker looks."""
        self.notes.append(who)
        self.wake.set()

    def is_suspicious(self, now: float) -> bool:
        """Has somebody left a note, or not been heard of for so long that he was interrupted without leaving one?"""
        return bool(self.notes) or (self.turn.holder is not None and now - self.beat > STUCK_S)

    def gather(self) -> None:
        """What has come may wait for more: let the worker drive in a moment."""
        if not self.gathers:
            self.gathers = True
            self.wake.set()

    def is_under_way(self, asked: Asked) -> bool:
        """Is it with a connection that will tell what becomes of it?"""
        entry = self.under_way.get(asked.broker_id)
        return entry is not None and entry[0] is asked and not entry[1].closed


class Step:
    """`with lock, step:` for statements that belong together. torn: they were interrupted, so that a queue may lack what its position has passed;
    nothing may be read of any before FetchDriver.make_whole().
    """

    __slots__ = ("torn",)

    def __init__(self) -> None:
        self.torn = False

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None and not issubclass(kind, KafkaException):
            self.torn = True


class Both:
    """Two locks, one behind the other."""

    def __init__(self, first: Any, second: Any) -> None:
        self._first, self._second = first, second

    def __enter__(self) -> None:
        self._first.__enter__()
        try:
            self._second.__enter__()
        except BaseException:
            self._first.__exit__(None, None, None)
            raise

    def __exit__(self, *about: Any) -> None:
        try:
            self._second.__exit__(None, None, None)
        finally:
            self._first.__exit__(None, None, None)


class FetchDriver:
    """Workers, requests and queues of one consumer.

    lock: held for each step of the machines and of the queues, never across a wait. filled: set when there may be something to hand out.
    order: the queues, the one whose turn it is first. held: bytes in all queues. step: for what is done under the lock.
    """

    def __init__(self, cluster: Cluster, config: ConsumerConfig, reset_policy: int | None) -> None:
        self.cluster, self.config, self._handler = cluster, config, cluster.handler
        self.lock = self._handler.Mutex()
        self.filled = self._handler.Event()
        self.queues: dict[TopicPartition, Queue] = {}
        self.order: deque[Queue] = deque()
        self.errors: deque[KafkaException] = deque()
        # Several threads may consume: one at a time reads, each gets records of its own. Held while batches are read, never across a wait.
        self.taking = self._handler.Mutex()
        self.run = records.Run(self._handler.monotonic, None if records.STEPS_ARE_WHOLE else Both(self.taking, self.lock))
        self.stopped = False
        self.started = False
        self.held = 0
        self.step = Step()
        self.fetches = 0
        self.may_deliver: Callable[[], bool] | None = None  # see Taker.ask_before_delivery
        self.watchdog = Watchdog(config.stall_warning_ms / 1000) if config.stall_warning_ms else None
        self._looks_every_s = TICK_S if self.watchdog is None else min(TICK_S, self.watchdog.look_every_s)
        self._watch_at = 0.0
        self.shares = [self._make_share(i, reset_policy) for i in range(config.num_consumer_fetchers)]

    def _make_share(self, index: int, reset_policy: int | None) -> Fetching:
        c = self.config
        biggest = max(1, self.cluster.config.max_response_bytes - FRAME_BYTES)
        fetcher = Fetcher(
            self.cluster.metadata,
            span_at=records.span_at,
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
            rack=c.client_rack,
            lease_s=self.cluster.config.metadata_max_age_ms / 1000,
            starts_at_once=STARTS_AT_ONCE if self._handler.cooperative else None,
        )
        # Not id(self): the next consumer may get the same one, and with it a connection that is still waiting for an answer.
        wake = self._handler.Event()
        self.cluster.sleepers.add(wake)
        return Fetching(index, object(), fetcher, wake)

    # -- what is read, under the lock ------------------------------------------------------------------------------------------
    def clear(self) -> list[tuple[Fetching, int]]:
        """Read nothing any more. Returns whose fetches are under way: for hang_up()."""
        under_way: list[tuple[Fetching, int]] = [(share, broker_id) for share in self.shares for broker_id in share.fetcher.busy]
        for share in self.shares:
            share.fetcher.forget_requests()
            share.fetcher.positions.clear()
        for queue in self.queues.values():
            queue.clear()
        self.queues.clear()
        self.order.clear()
        self.errors.clear()
        self.held = 0
        return under_way

    def add(self, queues: Collection[Queue]) -> None:
        """Read these, too."""
        self.queues.update((queue.position.tp, queue) for queue in queues)
        self.order.extend(queues)
        for share in self.shares:
            share.fetcher.positions.update((queue.position.tp, queue.position) for queue in queues)
        self.divide()

    def remove(self, queues: Collection[Queue]) -> None:
        """Read these no more. Answers that are under way for them are dropped."""
        for queue in queues:
            self.empty(queue)
            tp = queue.position.tp
            del self.queues[tp]
            for share in self.shares:
                share.fetcher.positions.pop(tp, None)
        gone = {queue.position.tp for queue in queues}
        left = [queue for queue in self.order if queue.position.tp not in gone]
        self.order.clear()
        self.order.extend(left)
        for error in [e for e in self.errors if (e.topic, e.partition) in gone]:
            self.errors.remove(error)

    def empty(self, queue: Queue) -> None:
        """What was fetched of a partition is void."""
        self.held -= queue.held
        queue.clear()

    def make_whole(self) -> None:
        """If a step was torn: what was not handed out is fetched again."""
        if self.step.torn:
            with self.lock:
                under_way = self._forget_fetched()
            self.hang_up(under_way)

    def _forget_fetched(self) -> list[tuple[Fetching, int]]:
        """Under the lock. Returns whose fetches are under way: for hang_up()."""
        under_way: list[tuple[Fetching, int]] = [(share, broker_id) for share in self.shares for broker_id in share.fetcher.busy]
        for queue in list(self.order):
            if self.queues.get(queue.position.tp) is not queue:
                self.order.remove(queue)
        for queue in self.queues.values():
            if queue not in self.order:
                self.order.append(queue)
            queue.clear()
            position = queue.position
            if position.consumed < 0 or position.state is State.RESETTING:
                position.reset(position.reset_to)
            else:
                position.seek(position.consumed, position.consumed_epoch)
        for share in self.shares:
            share.fetcher.positions = {tp: queue.position for tp, queue in self.queues.items()}
            share.fetcher.forget_requests()
        self.held = 0
        self.step.torn = False
        return under_way

    def cancel_parked(self, partitions: Collection[TopicPartition]) -> list[tuple[Fetching, int]]:
        """Whose parked fetches must go so that the partitions need not wait behind them: for hang_up()."""
        return [(share, broker_id) for share in self.shares for broker_id in share.fetcher.cancel_parked(partitions)]

    def divide(self) -> None:
        """Give each leader's partitions to one of the fetch workers."""
        if len(self.shares) == 1:
            return
        for tp, queue in self.queues.items():
            leader = self.cluster.metadata.leader(*tp)
            owner = (leader[0] if leader is not None else tp.partition) % len(self.shares)
            for share in self.shares:
                if share.index == owner:
                    share.fetcher.positions[tp] = queue.position
                elif not queue.position.in_flight:
                    share.fetcher.positions.pop(tp, None)

    def tell(self, errors: Iterable[KafkaException]) -> None:
        """Keep errors for the caller. One that waits already is not kept twice, however often it is met again."""
        self.run.left = 0
        for error in errors:
            kind = (type(error), error.topic, error.partition)
            if all((type(e), e.topic, e.partition) != kind for e in self.errors):
                self.errors.append(error)

    def watch(self) -> None:
        """Has a partition stood still? By whichever worker comes first, at each of its looks."""
        now = self._handler.monotonic()
        if self.watchdog is not None and now >= self._watch_at:
            self._watch_at = now + self._looks_every_s / 2
            self.watchdog.look(self, now)

    def read_for(self, deadline: float) -> bool:
        """With OS threads, who waits for records of a single leader takes its answers in, so that no reader has to wake anybody. False: it cannot."""
        if self._handler.cooperative or len(self.shares) > 1:
            return False
        share = self.shares[0]
        asked = list(share.fetcher.busy)
        entry = share.under_way.get(asked[0]) if len(asked) == 1 else None
        seen = self.fetches  # another caller may clear `filled` before this one sees it
        return entry is not None and entry[1].stand_in.read_until(lambda: self.filled.is_set() or self.fetches != seen, deadline, beside=1)

    @property
    def is_full(self) -> bool:
        """Do the queues together hold as much as they may?"""
        return self.held >= self.config.queued_max_bytes

    # -- life ------------------------------------------------------------------------------------------------------------------
    def hang_up(self, parked: Iterable[tuple[Fetching, int]]) -> None:
        """Close the connections on which brokers have parked what is not wanted any more: the next fetch would wait behind it."""
        for share, broker_id in parked:
            broker = self.cluster.broker_by_id(broker_id)
            if broker is not None:
                broker.drop_channel(share.role)

    def start(self) -> None:
        """Start the fetch workers."""
        self._handler.check_fork()
        with self.lock:
            if self.started:
                return
            self.started, self.stopped = True, False
        self._handler.start()
        me = held_weakly(self, *(share.wake for share in self.shares))
        for share in self.shares:
            share.worker = self._handler.spawn_lasting(
                _work,
                me,
                share,
                weakref.ref(self.cluster),
                _name=f"gkafka-fetcher-{share.index}",
                _on_failure=lambda error: _failed(me, error),
            )

    def stop(self, timeout_s: float | None = None) -> None:
        """End the workers and close the fetch connections. What was not handed out is fetched again by the next start(). Idempotent. timeout_s: for
        the workers, if it is less than END_S.
        """
        with self.lock:
            if self.stopped or not self.started:
                self.stopped = True
                return
            self.stopped, self.started = True, False
            for queue in self.queues.values():
                self.empty(queue)
                position = queue.position
                if position.state in (State.FETCHING, State.CHECKING):
                    position.seek(position.consumed, position.consumed_epoch)
            for share in self.shares:
                share.fetcher.forget_requests()
        self.filled.set()
        for share in self.shares:
            share.wake.set()
            for broker in list(self.cluster._brokers.values()):
                broker.drop_channel(share.role)
        deadline = self._handler.monotonic() + (END_S if timeout_s is None else min(timeout_s, END_S))
        for share in self.shares:
            if share.worker is not None and not self._handler.was_forked:  # in a child it is a copy, which may look alive and never ends
                share.worker.join(max(0.0, deadline - self._handler.monotonic()))

    def __del__(self) -> None:
        # Only a flag, for whoever still has it in hand: who sleeps is woken when it is gone.
        self.stopped = True

    # -- driving ---------------------------------------------------------------------------------------------------------------
    def kick(self) -> None:
        """Something may have become fetchable: ask at once, whoever notices it. Nothing here waits, or switches to another greenlet."""
        for share in self.shares:
            self._kick_share(share)

    def go_on(self) -> None:
        """kick(); the workers do it with greenlets, since many partitions have just taken their time of this turn of the hub, and where there are
        many brokers, which takes longer than the caller may have.
        """
        if not self._handler.cooperative and len(self.cluster.metadata.brokers) <= MANY_LEADERS:
            self.kick()
            return
        for share in self.shares:
            share.wake.set()

    def _kick_share(self, share: Fetching, *, failed: bool = False) -> None:
        """failed: because of what came to nothing. Its partitions rest, and others may do so, too."""
        leaders = share.fetcher.leaders
        may_wait = failed or leaders > MANY_LEADERS
        if may_wait and (share.turn.holder is not None or self._handler.monotonic() - share.beat < MERGED_S):
            share.gather()
            return
        if self._handler.cooperative and leaders > SENT_AT_ONCE:
            share.wake.set()  # sending to all of them has to let others run, which is the worker's alone: a caller may have what nobody was given
            return
        me = object()
        try:
            if self._drive(share, me) < share.sleeps_until:
                share.wake.set()
        except BaseException:
            share.suspect(me)
            raise

    def _drive(self, share: Fetching, me: object) -> float:
        """Send what the machine wants. One driver at a time: another one leaves a note and goes on. me: what the turn is taken as."""
        deadline = float("inf")
        while not self.stopped and self.started:
            if not share.turn.take(me):
                share.again = True
                if not share.turn.take(me):
                    return self._handler.monotonic() + BUSY_S
            share.again = False
            deadline = self._drive_once(share)
            share.turn.give(me)
            if not share.again:
                return deadline
            if me is not share and share.fetcher.leaders > MANY_LEADERS:
                share.wake.set()  # notes may come faster than one look takes, and a caller would go on for ever
                return deadline
        return deadline

    def mend(self, share: Fetching) -> None:
        """On the worker: put right what an interrupted driver, or reader, left half done."""
        me, notes = object(), list(share.notes)
        holder = share.turn.holder
        if holder is not None and holder not in notes and self._handler.monotonic() - share.beat < STUCK_S:
            return  # somebody is driving: later
        share.turn.take_over(me)
        try:
            self.make_whole()
            with self.lock:
                gone = share.fetcher.restore(share.is_under_way)
            self.hang_up((share, broker_id) for broker_id in gone)
            del share.notes[: len(notes)]
            self.filled.set()  # who was interrupted may have been about to say so
        finally:
            share.turn.give(me)

    def _drive_once(self, share: Fetching) -> float:
        now = share.beat = self._handler.monotonic()
        self.make_whole()
        with self.lock, self.step:
            self.divide()
            plan = share.fetcher.poll(now, full=self.is_full)
            if plan.errors:
                self.tell(plan.errors)
        if plan.errors:
            self.filled.set()
        due = plan.deadline
        if plan.want_metadata:
            self.cluster.metadata.invalidate()
        if plan.want_metadata or self.cluster.metadata.due(now) <= now:
            due = min(due, self.cluster.poll())
        self._send_all(share, plan)
        return due

    def _send_all(self, share: Fetching, plan: Poll) -> None:
        requests: list[tuple[Callable[[Fetching, Any], None], Any]] = [(self._fetch, asked) for asked in plan.fetches]
        requests += [(self._look_up, lookup) for lookup in plan.lookups]
        requests += [(self._check, check) for check in plan.checks]
        for count, (send, request) in enumerate(requests, 1):
            send(share, request)
            if not count % SENT_AT_ONCE and share.turn.holder is share:
                self._handler.checkpoint()
                share.beat = self._handler.monotonic()

    def _fetch(self, share: Fetching, asked: Asked) -> None:
        me = weakref.ref(self)  # a consumer that was dropped must not be kept by a long poll

        def on_done(response: Any, error: KafkaException | None) -> None:
            driver = me()
            if driver is not None and not driver.stopped:
                driver._fetched(share, asked, response, error)

        timeout_s = (self.config.request_timeout_ms + asked.request.max_wait_ms) / 1000
        broker_id = asked.broker_id
        try:
            channel = self._broker(broker_id).channel(share.role)
            channel.send(asked.request, on_done, timeout_s=timeout_s, max_version=asked.max_version)
            share.under_way[broker_id] = asked, channel
        except KafkaException as exc:
            on_done(None, exc.with_traceback(None))

    def _broker(self, broker_id: int) -> Broker:
        broker = self.cluster.broker_by_id(broker_id)
        if broker is None:
            raise KafkaTimeoutError(f"broker {broker_id} is not known any more")
        return broker

    def _fetched(self, share: Fetching, asked: Asked, response: Any, error: KafkaException | None) -> None:
        try:
            self._take_in(share, asked, response, error)
        except BaseException:
            self.step.torn = True  # a half of an answer is none
            share.suspect()
            raise
        share.again = share.again or error is None
        self._kick_share(share, failed=error is not None)

    def _take_in(self, share: Fetching, asked: Asked, response: Any, error: KafkaException | None) -> None:
        """A large answer slice by slice: between two others run, under no lock, in the worker that reads the connection."""
        self.make_whole()
        slices = share.fetcher.on_fetched(asked, response, error, self._handler.monotonic())
        self.fetches += 1
        while not self.stopped:
            with self.lock, self.step:
                taken = next(slices, None)
                if taken is None:
                    break
                for fetched in taken.spans:
                    queue = self.queues.get(fetched.position.tp)
                    if queue is not None and queue.position is fetched.position:
                        queue.put(fetched)
                        self.held += fetched.size
                if taken.errors:
                    self.tell(taken.errors)
                if taken.stale:
                    self.cluster.metadata.invalidate()
                is_last = share.fetcher.busy.get(asked.broker_id) is not asked
                if is_last:
                    for tp in asked.partitions:
                        queue = self.queues.get(tp)
                        if queue is not None and queue.reader is None and not queue.spans:
                            queue.catch_up()
            if taken.spans or taken.errors:
                self.filled.set()  # who waits with OS threads wakes up when this one sends, and lets go of the interpreter
            if is_last:
                break
            self._handler.checkpoint()

    def _look_up(self, share: Fetching, lookup: Lookup) -> None:
        def take_in(response: Any, error: KafkaException | None) -> None:
            errors, stale = share.fetcher.on_looked_up(lookup, response, error, self._handler.monotonic())
            self._answered(errors, stale)

        self._ask(share, lookup, take_in)

    def _check(self, share: Fetching, check: EpochCheck) -> None:
        def take_in(response: Any, error: KafkaException | None) -> None:
            checked = share.fetcher.on_checked(check, response, error, self._handler.monotonic())
            for position in checked.void:
                queue = self.queues.get(position.tp)
                if queue is not None and queue.position is position:
                    self.empty(queue)
            self._answered(checked.errors, checked.stale)

        self._ask(share, check, take_in)

    def _ask(self, share: Fetching, question: Lookup | EpochCheck, take_in: Callable[[Any, KafkaException | None], None]) -> None:
        """take_in(response, error) is called under the lock."""

        def on_done(response: Any, error: KafkaException | None) -> None:
            try:
                self.make_whole()
                with self.lock, self.step:
                    take_in(response, error)
                if error is None or self.errors:  # else there is no news for who waits, and looking at all queues takes long
                    self.filled.set()
            except BaseException:
                share.suspect()
                raise
            self._kick_share(share, failed=error is not None)

        try:
            broker = self._broker(question.broker_id)
            broker.send(CONTROL, question.request, on_done, timeout_s=self.cluster.config.socket_timeout_ms / 1000)
        except KafkaException as exc:
            on_done(None, exc.with_traceback(None))

    def _answered(self, errors: list[KafkaException], stale: bool) -> None:
        self.tell(errors)
        if stale:
            self.cluster.metadata.invalidate()


def _verify(buffer: memoryview, header: records.BatchHeader) -> None:
    """Check the checksum of a batch of format 2 that is passed over. What it holds is not decompressed: nobody gets it."""
    stored, computed = (
        int.from_bytes(buffer[header.start + 17 : header.start + 21], "big"),
        records.crc32c(buffer[header.start + 21 : header.end]),
    )
    if stored != computed:
        raise corrupt(explain_crc(stored, computed), Place(None, None, header.base_offset, header.last_offset))


def _trust(buffer: Any, header: Any) -> None:
    """With check_crcs=False."""


def _failed(me: weakref.ref[FetchDriver], error: BaseException) -> None:
    """A fetch worker was killed, or met a bug: whoever consumes is told, nobody waits for it in silence."""
    driver = me()
    if driver is None or driver.stopped or isinstance(error, ForkedClientError):
        return
    log.error("a fetch worker ended by %s", type(error).__name__, exc_info=error)
    told = ConsumerStoppedException(
        f"a fetch worker of this consumer ended by {type(error).__name__}: {error}; stop() and start() it again"
    )
    told.__cause__ = error
    with driver.lock:
        driver.tell([told])
    driver.filled.set()


def _work(me: weakref.ref[FetchDriver], share: Fetching, its_cluster: weakref.ref[Cluster]) -> None:
    """A fetch worker: backoffs, metadata, and fetches that nobody else started. Ends with its consumer."""
    share.suspect(share)  # the one before may have been interrupted
    while True:
        driver = me()
        if driver is None or driver.stopped:
            cluster = its_cluster()
            if driver is None and cluster is not None:  # it was dropped without stop(): its connections are nobody's any more
                for broker in list(cluster._brokers.values()):
                    broker.drop_channel(share.role)
            return
        handler = driver._handler
        handler.check_fork()
        share.wake.clear()
        share.gathers = False  # before it looks: what comes from here on wakes it again
        if share.is_suspicious(handler.monotonic()):
            driver.mend(share)
        deadline = driver._drive(share, share)
        now = handler.monotonic()
        share.sleeps_until = min(deadline, handler.looks_at(now, driver._looks_every_s))
        driver.watch()
        del driver
        share.wake.wait(max(0.001, share.sleeps_until - now))
        if share.gathers:
            share.wake.clear()
            share.wake.wait(MERGED_S)
