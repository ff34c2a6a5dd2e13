"""Drives the consumer's machine: its workers, what they send, and the queues that the answers fill.

A fetch worker sends, and on OS threads reads its connections itself; under gevent their readers
take the answers in, and wake it. A caller only takes from the queues, and wakes the worker where that
has made room. A signal handler's exception may end any of them between two steps. Whoever is hit
leaves one mark (`Step`, `EngineWorker.mark`), and the worker begins anew (`restart`): what was
not handed out is fetched once more.
"""

from __future__ import annotations

import logging
import weakref
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any

from gkafka import records
from gkafka.broker import CONTROL
from gkafka.common import TopicPartition
from gkafka.consumerqueues import Queue
from gkafka.core.backoff import Backoff
from gkafka.core.fetcher import FRAME_BYTES, Asked, EpochCheck, Fetcher, Lookup, Poll
from gkafka.core.positions import State
from gkafka.engineworker import EngineWorker
from gkafka.exceptions import ConsumerStoppedException, KafkaException, KafkaTimeoutError
from gkafka.explaining import Watchdog
from gkafka.logs import get_logger
from gkafka.marks import EngineMark, Mark
from gkafka.net.looks import LOST_S
from gkafka.records._damage import Place, corrupt, explain_crc

if TYPE_CHECKING:
    from gkafka.broker import Broker
    from gkafka.cluster import Cluster
    from gkafka.config import ConsumerConfig
    from gkafka.handlers import Handler
    from gkafka.net.reader import Taker

__all__ = ["FetchDriver", "Fetching"]

log = get_logger(__name__)

NEVER = float("inf")
TICK_S = 4.0
END_S = 2.0
"""How long who stops waits for all workers at most: they were told, and their connections are closed."""
MANY_LEADERS = 32
"""Of more, what they answer is looked at together: for each answer all partitions would be looked at, N times N in the end."""
MERGED_S = 0.02
"""For so long it is gathered."""
SENT_AT_ONCE = 16
"""Requests that are made in one go: the first to a broker takes some 0.2 ms."""
STARTS_AT_ONCE = 500
"""So many partitions of a leader are asked about in one request with greenlets: what an answer says is taken in by one step."""


class Fetching:
    """One fetch worker's share: the leaders whose id falls to it, and the machine that asks them.

    owner: held weakly, as a worker must not keep a consumer that was dropped. role: of its
    connections, a new one for each start. worker: None until the first start. again: something has
    come since the worker polled the machine last. done_at: when its last turn ended. questions:
    lookups and checks under way, and when the answer to each counts as lost.
    """

    __slots__ = ("__weakref__", "again", "done_at", "fetcher", "index", "owner", "questions", "role", "worker")

    def __init__(self, index: int, owner: weakref.ref[FetchDriver], fetcher: Fetcher) -> None:
        self.index = index
        self.owner = owner
        self.fetcher = fetcher
        self.role: object = None
        self.worker: EngineWorker | None = None
        self.done_at = 0.0
        self.again = False
        self.questions: dict[int, float] = {}

    def begin(self, handler: Handler, cluster: Cluster) -> None:
        """Start a worker. Its connections end with it."""
        self.role = role = object()  # not id(self): the next consumer may get the same one
        its_cluster = weakref.ref(cluster)

        def leave() -> tuple[()]:
            cluster = its_cluster()
            if cluster is not None:
                _drop_channels(cluster, role)
            return ()

        self.worker = EngineWorker(handler, self, f"gkafka-fetcher-{self.index}", leave)
        cluster.sleepers.add(self.worker.signal)
        self.worker.start()

    def forget_requests(self) -> None:
        """Under the driver's lock. Answers that come are dropped."""
        self.fetcher.forget_requests()
        self.questions.clear()

    @property
    def taker(self) -> Taker | None:
        """Takes the connections that are opened for it, see net/watched.py."""
        return None if self.worker is None else self.worker.taker

    def wake(self) -> None:
        """Something may have become fetchable, or has come."""
        if self.worker is not None and self.worker.is_here:
            self.again = True
        elif self.worker is not None:
            self.worker.wake()

    @property
    def mark(self) -> EngineMark:
        """Mark for whoever takes in an answer to what its worker asked."""
        assert self.worker is not None
        return self.worker.mark

    # -- on the worker
    def turn(self) -> float | None:
        """Do all that is to be done now. Return when to look again, or None at the end."""
        driver, worker = self.owner(), self.worker
        if driver is None or driver.stopped or worker is None:
            return None
        return driver.turn(self, worker)

    def died(self, error: BaseException) -> None:
        """The worker met a bug, or was killed and no other one can be started."""
        driver = self.owner()
        if driver is not None and not driver.stopped:
            driver.died(error)


class Step(Mark):
    """Mark of the machines and queues of a consumer: `with lock, step:`.

    With a cause a queue may lack what its position has passed. Nothing is read of any before
    `FetchDriver.restart`. A Kafka error cuts nothing short.
    """

    __slots__ = ()

    def tear(self, error: BaseException) -> None:
        if not isinstance(error, KafkaException):
            self.cause = error


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
        self.run = records.Run(self._handler.monotonic, None if records.STEPS_ARE_WHOLE else (self.taking, self.lock))
        self.stopped = False
        self.started = False
        self.held = 0
        self.step = Step()
        self.fetches = self.restarts = 0
        self.may_deliver: Callable[[], bool] | None = None  # see RecordTaker.ask_before_delivery
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
        return Fetching(index, weakref.ref(self), fetcher)

    # -- what is read, under the lock ------------------------------------------------------------------------------------------
    def clear(self) -> list[tuple[Fetching, int]]:
        """Read nothing any more. Returns whose fetches are under way: for hang_up()."""
        under_way: list[tuple[Fetching, int]] = [(share, broker_id) for share in self.shares for broker_id in share.fetcher.busy]
        for share in self.shares:
            share.forget_requests()
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

    def restart(self) -> None:
        """On a worker: fetch again what was not handed out. Connections of what is under way end."""
        with self.taking, self.lock:
            self.run.left = 0  # who takes one by one comes by a lock from now on
            states = Counter(queue.state for queue in self.queues.values())
            cause, under_way = self.step.cause, self._forget_fetched()
            self.restarts += 1
        was_lost = isinstance(cause, KafkaTimeoutError)
        why = str(cause) if was_lost else f"{type(cause).__name__} interrupted a step"
        text = "the consumer begins anew, its fetches end: %s; its partitions: %s"
        log.log(logging.WARNING if was_lost else logging.INFO, text, why, dict(states))
        self.hang_up(under_way)
        self.filled.set()  # who was interrupted may have been about to say so

    def _forget_fetched(self) -> list[tuple[Fetching, int]]:
        """Under the lock. Returns whose fetches are under way: for hang_up()."""
        queues = self.queues
        self.order.extend(queue for queue in queues.values() if queue not in self.order)
        for queue in list(self.order):
            if queues.get(queue.position.tp) is not queue:
                self.order.remove(queue)
        under_way = [(share, broker_id) for share in self.shares for broker_id in share.fetcher.busy]
        for queue in queues.values():
            queue.clear()
            position = queue.position
            if position.consumed < 0 and position.state is State.HALTED:
                continue  # nobody said where to begin, and the application has to
            if position.consumed < 0 or position.state is State.RESETTING:
                position.reset(position.reset_to)
            else:
                position.seek(position.consumed, position.consumed_epoch)
        for share in self.shares:
            share.fetcher.positions = {tp: queue.position for tp, queue in queues.items()}
            share.forget_requests()
        self.held = 0
        self.step.cause = None
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
        for share in self.shares:
            share.begin(self._handler, self.cluster)

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
                share.forget_requests()
        self.filled.set()
        workers = [(share.role, share.worker) for share in self.shares if share.worker is not None]
        for role, worker in workers:
            worker.signal.set()
            _drop_channels(self.cluster, role)
        deadline = self._handler.monotonic() + (END_S if timeout_s is None else min(timeout_s, END_S))
        for _, worker in workers:
            if not self._handler.was_forked:  # in a child it is a copy, which may look alive and never ends
                worker.end(deadline - self._handler.monotonic())

    def __del__(self) -> None:
        # Only a flag, for whoever still has it in hand: who sleeps is woken when it is gone.
        self.stopped = True

    def died(self, error: BaseException) -> None:
        """A fetch worker met a bug: whoever consumes is told, nobody waits for it in silence."""
        log.error("a fetch worker ended by %s", type(error).__name__, exc_info=error)
        told = ConsumerStoppedException(
            f"a fetch worker of this consumer ended by {type(error).__name__}: {error}; stop() and start() it again"
        )
        told.__cause__ = error
        with self.lock:
            self.tell([told])
        self.filled.set()

    # -- driving ---------------------------------------------------------------------------------------------------------------
    def kick(self) -> None:
        """Something may have become fetchable. Nothing here waits, or switches to another greenlet."""
        for share in self.shares:
            share.wake()

    def turn(self, share: Fetching, worker: EngineWorker) -> float:
        """On a worker: do all that is to be done now. Return when to look again."""
        handler, watched = self._handler, worker.watched
        woke, due = handler.monotonic(), NEVER
        if share.fetcher.leaders > MANY_LEADERS and woke - share.done_at < MERGED_S:
            handler.sleep(MERGED_S)
        if watched is not None:
            watched.read()
            due = watched.look(woke, self._looks_every_s)
        handler.check_fork()
        if worker.mark.cause is not None:
            self.step.cause, worker.mark.cause = worker.mark.cause, None
            worker.mark.raise_bug()
        if self.step.cause is None and woke >= self._lost_at(share):
            self.step.cause = KafkaTimeoutError("an answer was lost")
        if self.step.cause is not None:
            self.restart()
        share.again = False
        due = min(due, self._drive(share, handler.monotonic()))
        self.watch()
        share.done_at = now = handler.monotonic()
        if share.again:  # a request failed at once
            return now
        return min(due, self._lost_at(share), handler.looks_at(now, self._looks_every_s))

    def _lost_at(self, share: Fetching) -> float:
        """Return when an answer counts as lost: signals in a row may keep a connection from a word about its end."""
        timeout_s = self.config.request_timeout_ms / 1000 + LOST_S
        fetches = [asked.since + asked.request.max_wait_ms / 1000 + timeout_s for asked in list(share.fetcher.busy.values())]
        return min([*fetches, *list(share.questions.values())], default=NEVER)

    def _drive(self, share: Fetching, now: float) -> float:
        """Send what the machine wants. Return when to poll it again."""
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
            if not count % SENT_AT_ONCE:
                self._handler.checkpoint()

    def _fetch(self, share: Fetching, asked: Asked) -> None:
        its_share = weakref.ref(share)  # a consumer that was dropped must not be kept by a long poll

        def on_done(response: Any, error: KafkaException | None) -> None:
            share = its_share()
            driver = None if share is None else share.owner()
            if share is not None and driver is not None and not driver.stopped:
                driver._fetched(share, asked, response, error)

        timeout_s = (self.config.request_timeout_ms + asked.request.max_wait_ms) / 1000
        try:
            channel = self._broker(asked.broker_id).channel(share.role, share.taker)
            channel.send(asked.request, on_done, timeout_s=timeout_s, max_version=asked.max_version)
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
            share.wake()
        except BaseException as exc:
            share.mark.tear(exc)  # a half of an answer is none
            raise

    def _take_in(self, share: Fetching, asked: Asked, response: Any, error: KafkaException | None) -> None:
        """A large answer slice by slice: between two others run, under no lock, in the worker that reads the connection."""
        slices = share.fetcher.on_fetched(asked, response, error, self._handler.monotonic())
        self.fetches += 1
        while not self.stopped:
            with self.lock, self.step:
                if self.step.cause is not None:
                    return  # it is fetched again
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
        timeout_s = self.cluster.config.socket_timeout_ms / 1000
        share.questions[id(question)] = self._handler.monotonic() + timeout_s + LOST_S

        def on_done(response: Any, error: KafkaException | None) -> None:
            with share.mark:
                share.questions.pop(id(question), None)
                with self.lock, self.step:
                    if self.step.cause is None:  # else it is asked again
                        take_in(response, error)
                if error is None or self.errors:  # else there is no news for who waits, and looking at all queues takes long
                    self.filled.set()
                share.wake()

        try:
            broker = self._broker(question.broker_id)
            broker.send(CONTROL, question.request, on_done, timeout_s=timeout_s)
        except KafkaException as exc:
            on_done(None, exc.with_traceback(None))

    def _answered(self, errors: list[KafkaException], stale: bool) -> None:
        self.tell(errors)
        if stale:
            self.cluster.metadata.invalidate()


def _drop_channels(cluster: Cluster, role: object) -> None:
    for broker in list(cluster._brokers.values()):
        broker.drop_channel(role)


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
