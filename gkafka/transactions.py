"""Transactions of the native producer: the calls that wait, and the requests that the machine in `gkafka.core.transaction` wants sent.

The calls only say what is wanted and wait, up to their timeout. What they asked for is done by the producer's worker, so a caller that
is killed, or whose time is over, leaves nothing half done: the same call, made again, waits for the same outcome.
"""

from __future__ import annotations

import contextlib
import logging
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from gkafka.broker import CONTROL
from gkafka.checks import check_count, check_mapping, check_name, check_offset, check_seconds, check_text, check_topic_name
from gkafka.common import TopicPartition
from gkafka.config import ACKS, ProducerConfig
from gkafka.core.backoff import Backoff
from gkafka.core.transaction import Ask, GroupMetadata, Job, State, Transaction
from gkafka.exceptions import (
    ConfigurationError,
    KafkaException,
    KafkaTimeoutError,
    ProducerStoppedException,
    SocketDisconnectedError,
    TransactionAbortableError,
    TransactionStateError,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from gkafka.groupoffsets import absent
from gkafka.logs import get_logger
from gkafka.net.looks import LOST_S
from gkafka.undoing import Undoing

if TYPE_CHECKING:
    from gkafka.broker import Broker
    from gkafka.cluster import Cluster
    from gkafka.producerdriver import ProducerDriver
    from gkafka.records import Appender

__all__ = ["GroupMetadata", "TransactionCalls", "Transactions", "check_transactional"]

log = get_logger(__name__)

NEVER = float("inf")
TICK_S = 1.0
"""Longest wait of a caller between two looks at its process and its producer."""
P = TypeVar("P", bound="TransactionCalls")
Offsets = Mapping[tuple[str, int], Any]
EXAMPLE = '{("topic", 0): 42} or {("topic", 0): (42, "metadata")}'


def check_transactional(config: ProducerConfig) -> None:
    """What a transactional id asks of the other options. Raises ConfigurationError."""
    if config.transactional_id is None:
        if config.transaction_timeout_ms != ProducerConfig().transaction_timeout_ms:
            raise ConfigurationError(f"transaction_timeout_ms={config.transaction_timeout_ms}: means nothing without transactional_id")
        return
    check_name("transactional_id", config.transactional_id)
    if ACKS[config.acks] != -1:
        raise ConfigurationError(f"transactional_id={config.transactional_id!r} needs acks='all', not acks={config.acks!r}")
    if config.enable_idempotence is False:
        raise ConfigurationError(f"transactional_id={config.transactional_id!r} needs idempotence, not enable_idempotence=False")
    if config.on_fork == "recreate":
        raise ConfigurationError(
            f"transactional_id={config.transactional_id!r}: a child with on_fork='recreate' would fence its parent; make a producer there"
        )


class Transactions:
    """The transactions of one producer, from the outside.

    driver: of the producer, kept weakly. accepting: the lock under which records are accepted. The machine is
    guarded by the driver's lock.
    """

    def __init__(self, cluster: Cluster, config: ProducerConfig, driver: ProducerDriver, appender: Appender, *, accepting: Any) -> None:
        assert config.transactional_id is not None
        self._cluster, self._config, self._handler, self._appender = cluster, config, cluster.handler, appender
        self._driver_ref = weakref.ref(driver)
        self._lock, self._accepting = driver.lock, accepting
        self.machine = driver.sender.transaction = Transaction(
            config.transactional_id,
            config.transaction_timeout_ms,
            backoff=Backoff(config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000),
            chance=self._handler.random(),
            lines=driver.sender.lines,
        )
        driver.sender.set_gate(self.machine.may_send)
        self._seen = self.machine.moves
        self._lost_at = NEVER
        self._news = self._handler.Event()
        self._closed = False
        self.end_was_asked = False
        self._which: object = None  # whoever has begun the last transaction knows it by this
        self.unclear: KafkaException | None = None  # of a commit that close() did not see the end of
        self.failures_are_told = False  # by close(): the transaction has gone as somebody was told, or wanted it
        self._fatal_told = False

    # -- driving -----------------------------------------------------------------------------------------------------------
    def drive(self, now: float) -> float:
        """Send what the machine wants. Returns when to drive again at the latest."""
        driver = self._driver()
        if now >= self._lost_at:
            self._lost_at = NEVER
            if self.machine.flying is not None:
                log.warning("transactional id %r: an answer was lost, it is asked for again", self.machine.transactional_id)
                self.ask_again()
        with self._lock:
            # A batch whose time is over is settled, but a leader may yet act on its request: the end waits for the answer, too.
            # And what failed is told before it, else it would count as a later transaction's. So are
            # records that were accepted since the worker has looked for them: their batches are news.
            idle = not (self._appender.news or driver.sender.owes or any(driver.sender.in_flight.values()))
            ask, deadline = self.machine.poll(now, idle)
            changed = self._seen != self.machine.moves
        if changed:
            self._tell()
        if ask is not None:
            self._lost_at = now + self._config.request_timeout_ms / 1000 + LOST_S
            self._send(ask)
        return min(deadline, self._lost_at)

    def ask_again(self) -> None:
        """A worker was interrupted, or lost an answer: what is under way is asked once more, and its answer comes too late."""
        ask = self.machine.flying
        if ask is not None:
            self._on_answer(ask, None, None, SocketDisconnectedError(f"a caller was interrupted while it sent {ask.request.API.name}"))

    def _driver(self) -> ProducerDriver:
        driver = self._driver_ref()
        if driver is None:
            raise ProducerStoppedException("the producer of these transactions is gone")
        return driver

    def _send(self, ask: Ask) -> None:
        broker: Broker | None = None
        try:
            broker = self._cluster.some_broker() if ask.to is None else self._cluster.know_broker(*ask.to)
            broker.send(
                CONTROL,
                ask.request,
                lambda response, error: self._on_answer(ask, broker, response, error),
                timeout_s=self._config.request_timeout_ms / 1000,
                max_version=ask.max_version,
            )
        except KafkaException as exc:
            self._on_answer(ask, broker, None, exc)

    def _on_answer(self, ask: Ask, broker: Broker | None, response: Any, error: KafkaException | None) -> None:
        driver = self._driver_ref()
        if driver is None:
            return
        if isinstance(error, UnsupportedVersion) and broker is not None:
            error = broker.doubt_again(CONTROL, "transactions", error) or error
        versions = broker.versions if broker is not None else None
        with self._lock:
            if ask is self.machine.flying:
                self._lost_at = NEVER
            self.machine.on_answer(ask, response, error, self._handler.monotonic(), versions)
            if self.machine.producer is not None:
                driver.sender.adopt(self.machine.producer)
        self._tell()
        driver.worker.wake()

    def _tell(self) -> None:
        """Wake all who wait: something changed."""
        driver = self._driver()
        with self._lock:
            self._seen = self.machine.moves
            if self.machine.state is not State.IN_TRANSACTION:
                self._appender.fast = False
            news, self._news = self._news, self._handler.Event()
            fatal = self.machine.fatal
        driver.sender.lines.write()
        if fatal is not None and driver.fatal is None:
            driver.end_with(fatal)
        news.set()

    # -- waiting -----------------------------------------------------------------------------------------------------------
    def _wait(self, job: Job, call: str, timeout: float, deadline: float) -> None:
        """Wait for the outcome; raises what went wrong, KafkaTimeoutError if the time is over."""
        while True:
            with self._lock:
                news = self._news
                if job.done:
                    job.told = True
                    break
            left = deadline - self._handler.monotonic()
            if left <= 0:
                obstacle = self.machine.obstacle
                why = "" if obstacle is None else f"; what is in the way: {obstacle}"
                raise KafkaTimeoutError(
                    f"{call}: no outcome within {timeout:g} s ({self.machine.state.value}); it goes on, make the same call again to learn it{why}"
                ) from obstacle
            self._driver().hurry(deadline)
            news.wait(min(left, TICK_S))
            self._handler.check_fork()
        if job.error is not None:
            self._fatal_told |= job.error.fatal
            raise job.error

    def _deadline(self, timeout: float | None, default_ms: float) -> tuple[float, float]:
        """(seconds, when they are over). Raises if nothing can be asked of the producer any more."""
        seconds = default_ms / 1000 if timeout is None else check_seconds("timeout", timeout)
        self._check_usable()
        return seconds, self._handler.monotonic() + seconds

    def _check_usable(self) -> None:
        self._handler.check_fork()
        if self._closed:
            raise ProducerStoppedException("the producer was closed: make a new one with client.get_producer()")
        driver = self._driver()
        if driver.fatal is not None:
            self._fatal_told |= driver.fatal.fatal
            raise driver.fatal
        if driver.worker.task is None:
            driver.worker.start()

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        """Remember that the caller was told of what ended the producer."""
        try:
            yield
        except KafkaException as exc:
            self._fatal_told |= exc.fatal
            raise

    def _asked(self, ask: Callable[[], Job]) -> Job:
        """Tell the machine under the locks, and see that somebody looks after it."""
        with self._telling(), self._accepting, self._lock:
            job = ask()
            if self.machine.state is not State.IN_TRANSACTION:
                self._appender.fast = False  # before the end is decided every record has been accepted, or is refused
        self._driver().worker.wake()
        return job

    # -- calls -------------------------------------------------------------------------------------------------------------
    def initialize(self, timeout: float | None) -> None:
        self._initialize(*self._deadline(timeout, self._config.max_block_ms))

    def _initialize(self, seconds: float, deadline: float) -> None:
        self._cluster.connect(max(0.001, deadline - self._handler.monotonic()))
        try:
            self._wait(self._asked(self.machine.initialize), "init_transactions()", seconds, deadline)
        except KafkaTimeoutError as exc:
            doubted = None if self.machine.obstacle is None else self.machine.obstacle.__cause__
            if isinstance(doubted, UnsupportedVersion):  # asked again and again, it stayed what it was taken for
                raise UnsupportedVersion(*doubted.args, **doubted.about) from exc
            raise

    def begin(self, timeout: float | None, which: object = None) -> None:
        """which: what abort_after_failure() and commit_or_abort() shall know it by."""
        seconds, deadline = self._deadline(timeout, self._config.max_block_ms)
        self._see_the_last_end(seconds, deadline)
        if self.machine.needs_initializing:
            self._initialize(seconds, deadline)
        with self._telling(), self._accepting, self._lock:
            if self.machine.state is State.READY:  # else it cannot begin
                self._which, self.end_was_asked = which, False  # first: who is interrupted behind it finds that it is his
            self.machine.begin()
            self._appender.fast = True

    def _see_the_last_end(self, seconds: float, deadline: float) -> None:
        """Wait for an end whose caller was cut short; raises what went wrong with it."""
        with self._lock:
            job = self.machine.forsaken
        if job is not None:
            self._driver().worker.wake()  # whoever was cut short may not have come to that
            self._wait(job, "begin_transaction()", seconds, deadline)
            if self.machine.was_aborted:
                self._forget_failures()

    def send_offsets(self, offsets: Any, group: Any, timeout: float | None) -> None:
        checked, metadata = _offsets(offsets), _group(group)
        seconds, deadline = self._deadline(timeout, self._config.max_block_ms)
        self.machine.check_open("send_offsets()")
        for tp, why in absent(self._cluster, (TopicPartition(*key) for key in checked), deadline).items():
            text = f"{tp.topic}-{tp.partition}: offset {checked[tp][0]} is not committed: {why}"
            raise UnknownTopicOrPartition(text, topic=tp.topic, partition=tp.partition, group=metadata.group_id, api="Metadata")
        job = self._asked(lambda: self.machine.add_offsets(metadata, checked))
        self._wait(job, "send_offsets()", seconds, deadline)

    def end(self, timeout: float | None, *, commit: bool) -> None:
        seconds, deadline = self._deadline(timeout, self._config.delivery_timeout_ms + self._config.request_timeout_ms)
        job = self._asked(lambda: self.machine.end(commit=commit))
        self.end_was_asked = True
        me = object()
        try:
            job.callers[me] = None  # in single steps: whoever is interrupted would wait for ever
            job.promised = False
            self._wait(job, "commit_transaction()" if commit else "abort_transaction()", seconds, deadline)
        except KafkaTimeoutError:
            job.promised = not job.done  # who was told to ask again must not find another's transaction
            raise
        finally:
            job.callers.pop(me, None)
        if not commit:
            self._forget_failures()

    def _forget_failures(self) -> None:
        """Of an aborted transaction: they went with it, flush() and close() need not tell of them."""
        self._driver().failures.take()

    def abort_after_failure(self, which: object = None) -> None:
        """Abort because of an error that is raised anyway: one of the abort's own is only logged. which: that transaction, no later one."""
        if not self.is_open or which not in (None, self._which):
            return
        try:
            self.end(None, commit=False)
        except KafkaException as exc:
            log.warning("transactional id %r: the transaction could not be aborted: %s", self._config.transactional_id, exc)

    def commit_or_abort(self, which: object) -> None:
        """Commit; a transaction that cannot be committed is aborted, and the error raised. One that ends the producer outweighs it."""
        try:
            self.end(None, commit=True)
        except TransactionAbortableError as failure:
            self.abort_after_failure(which)
            if self.machine.fatal is not None:
                raise self.machine.fatal from failure
            raise

    @property
    def is_open(self) -> bool:
        """Is there a transaction whose end was not asked for?"""
        return self.machine.state in (State.IN_TRANSACTION, State.ABORTABLE)

    def check_producing(self) -> None:
        """Raises unless records may be produced now."""
        self.machine.check_open("produce()")

    @property
    def uncommitted(self) -> str | None:
        """The state of a transaction that was begun and is neither committed nor given up."""
        state = self.machine.state
        return state.value if state in (State.IN_TRANSACTION, State.ABORTABLE, State.COMMITTING) else None

    def close(self, timeout: float | None) -> float | None:
        """Abort what is open, or wait for the end that is under way; returns how much of the timeout is left."""
        self._closed = True
        begun = self._handler.monotonic()
        seconds = self._config.request_timeout_ms / 1000 if timeout is None else timeout
        self.failures_are_told = self._fatal_told
        try:
            self._wait(self._asked(self._last_job), "close()", seconds, begun + seconds)
            self.failures_are_told |= self.machine.fatal is None
        except KafkaException as exc:
            log.warning(
                "transactional id %r: closed, and the open transaction is left to the broker: %s", self._config.transactional_id, exc
            )
            if self.machine.state is State.COMMITTING:
                self.unclear = KafkaTimeoutError(
                    f"transactional id {self._config.transactional_id!r}: closed while a commit was under way, and nobody knows whether it was "
                    "done: read what is committed before doing it again"
                )
        with self._lock:
            self.machine.give_up(ProducerStoppedException("the producer was closed"))
        self._tell_closed()
        return None if timeout is None else max(0.0, timeout - (self._handler.monotonic() - begun))

    def _last_job(self) -> Job:
        machine = self.machine
        if machine.state in (State.IN_TRANSACTION, State.ABORTABLE):
            text = "transactional id %r: closed in the middle of a transaction, it is aborted"
            self._driver().sender.lines.add(log, logging.WARNING, text, self._config.transactional_id)
            return machine.end(commit=False)
        return machine.last_job()

    def _tell_closed(self) -> None:
        with self._lock:
            news, self._news = self._news, self._handler.Event()
        news.set()


class TransactionCalls:
    """The transactional part of a producer. All calls are bounded; they raise TransactionStateError where they do not fit the transaction's
    state, TransactionAbortableError (abort_transaction(), then again), FencedError or another TransactionFatalError (close the producer),
    KafkaTimeoutError (the same call, made again, goes on waiting), ForkedClientError and ProducerStoppedException.
    """

    _transactions: Transactions | None = None

    def init_transactions(self, timeout: float | None = None) -> None:
        """Get the producer id; ends what an earlier producer with this transactional_id left open, and fences it off.

        Needed once; the first begin_transaction() does it as well. timeout: seconds, None is max_block_ms.
        """
        self._transactional().initialize(timeout)

    def begin_transaction(self, timeout: float | None = None) -> None:
        """From here on, what is produced belongs to a transaction: read_committed consumers see all of it, once it is committed, or nothing.

        Waits for the end of the one before, if the caller of its commit or abort was cut short; a commit that failed is raised as
        TransactionAbortableError. timeout: seconds, None is max_block_ms.
        """
        self._transactional().begin(timeout)

    def send_offsets(self, offsets: Offsets, group_metadata: GroupMetadata | str, timeout: float | None = None) -> None:
        """Commit a group's positions with the transaction, so that what was consumed and what was made of it count together.

        offsets: {(topic, partition): next offset to consume, or (it, metadata), or (it, metadata, leader_epoch)}. group_metadata: a GroupMetadata, which lets the broker
        refuse a member that was replaced (KIP-447), or the group's id alone. timeout: seconds, None is max_block_ms.
        """
        self._transactional().send_offsets(offsets, group_metadata, timeout)

    def commit_transaction(self, timeout: float | None = None) -> None:
        """Send what is left, then commit. Nothing is committed if any record of the transaction could not be delivered.

        timeout: seconds, None is delivery_timeout_ms + request_timeout_ms. A KafkaTimeoutError leaves the outcome open: the call, made
        again, tells it.
        """
        self._transactional().end(timeout, commit=True)

    def abort_transaction(self, timeout: float | None = None) -> None:
        """Give the transaction up. Records that were not sent fail with TransactionAbortedError; flush() and close() do not tell of them.

        timeout: seconds, None is delivery_timeout_ms + request_timeout_ms.
        """
        self._transactional().end(timeout, commit=False)

    @contextlib.contextmanager
    def transaction(self: P) -> Iterator[P]:
        """`with producer.transaction():` begins one, commits it at the end of the block, and aborts it if the block raises.

        What the block raised is raised again. If the commit fails it is aborted, and the commit's error raised.
        """
        calls, which = self._transactional(), object()
        with Undoing(calls.abort_after_failure, which):  # a commit, too, that is cut short before it was asked for
            try:
                calls.begin(None, which)
            except TransactionAbortableError:  # the one before, whose commit was cut short
                calls.abort_after_failure()
                raise
            yield self
            if not calls.end_was_asked:  # by the block itself; what ended otherwise has failed, and the commit says so
                calls.commit_or_abort(which)

    def _transactional(self) -> Transactions:
        if self._transactions is None:
            raise TransactionStateError("no transactions without a name for them: make a producer with transactional_id=NAME")
        return self._transactions


def _offsets(offsets: Any) -> dict[tuple[str, int], tuple[int, str, int]]:
    checked = {}
    for key, given in check_mapping("offsets", offsets, EXAMPLE).items():
        if not isinstance(key, tuple) or len(key) != 2:
            raise ConfigurationError(f"offsets: the key {key!r} must be (topic, partition), as in {EXAMPLE}")
        parts = given if isinstance(given, tuple) and len(given) in (2, 3) else (given, "")
        offset, metadata, epoch = parts if len(parts) == 3 else (*parts, -1)
        target = check_topic_name(key[0]), check_count("partition", key[1], low=0)
        checked[target] = check_offset("offset", offset), check_text("metadata", metadata), check_count("leader_epoch", epoch, low=-1)
    return checked


def _group(group: Any) -> GroupMetadata:
    if not isinstance(group, GroupMetadata):
        return GroupMetadata(check_name("group_metadata", group))
    instance = group.group_instance_id
    return GroupMetadata(
        check_name("group_id", group.group_id),
        check_offset("generation_id", group.generation_id, low=-1),
        check_text("member_id", group.member_id),
        None if instance is None else check_name("group_instance_id", instance),
    )
