"""The transactions of one producer: what may be sent when, and what an answer, or none, means for the transaction.

It waits for nothing and sends nothing: `poll(now)` returns the next request, `on_answer` takes its outcome. What a caller waits for is a
`Job`. One request is under way at a time, as in the Java client, whose TransactionManager also tells the errors apart.

What it never does is guess. A request that may have been acted upon is repeated until an answer says so; and since its first copy may
still be on its way, the producer then takes a new epoch, so that a late copy cannot end the next transaction (KIP-360; KIP-890 does it
with every transaction). A batch that failed makes the transaction one that can only be aborted.

Source: KIP-98, KIP-360, KIP-447, KIP-588, KIP-654, KIP-890
"""

from __future__ import annotations

import enum
import logging
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

from gkafka.brokererrors import (
    COORDINATOR,
    METADATA,
    BrokerError,
    ConcurrentTransactions,
    GroupCoordinatorNotAvailable,
    KafkaException,
    RequestTimedOut,
    UnknownProducerId,
    UnsupportedVersion,
    error_for,
)
from gkafka.core.accumulator import Key, ProducerId
from gkafka.core.backoff import Backoff, Chance, Retry
from gkafka.core.offsets import coordinator_of
from gkafka.core.txnrequests import (
    GroupMetadata,
    add_offsets_request,
    add_partitions_request,
    added_partitions,
    end_request,
    init_request,
    offset_errors,
    offsets_request,
    partition_errors,
)
from gkafka.core.verdicts import Verdict, breaks_by_produce, fatal_error, verdict
from gkafka.exceptions import (
    ConnectionFailedError,
    ProtocolError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionFatalError,
    TransactionStateError,
)
from gkafka.logs import LaterLines, get_logger
from gkafka.wire.groups import FindCoordinatorRequest
from gkafka.wire.schema import Api, Message
from gkafka.wire.txn import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    newest_without_v2,
    resumes_producers,
    speaks_v2,
)
from gkafka.wire.versions import Versions

__all__ = ["Ask", "GroupMetadata", "Job", "State", "Transaction"]

log = get_logger(__name__)

NEVER = float("inf")
CONCURRENT = Backoff(0.02, 0.5)
"""The transaction before this one is still being completed: that takes a coordinator milliseconds (KAFKA-5477)."""
GROUP, TRANSACTION = 0, 1  # what FindCoordinator looks for
ADDS = (AddPartitionsToTxnRequest, AddOffsetsToTxnRequest)

Address = tuple[int, str, int]
"""(broker id, host, port)."""
Where = tuple[int, str]
"""(GROUP or TRANSACTION, the group's or the transactional id)."""


class State(enum.Enum):
    """UNINITIALIZED: no producer id yet. INITIALIZING: one, or its next epoch, is being asked for. READY: between two transactions.
    COMMITTING, ABORTING: the end is decided on, what is under way is settled first. ABORTABLE: something failed, the transaction can only be
    aborted. FATAL: nothing more can be done with this producer.
    """

    UNINITIALIZED = "uninitialized"
    INITIALIZING = "initializing"
    READY = "ready"
    IN_TRANSACTION = "in transaction"
    COMMITTING = "committing"
    ABORTING = "aborting"
    ABORTABLE = "abortable"
    FATAL = "fatal"


class Event(enum.Enum):
    """INIT: an id, or an epoch, is needed. GRANTED: it came. ENDED: the coordinator has decided as it was asked to. FAILED: something of the
    transaction did. BROKEN: nothing can help."""

    INIT = "init"
    GRANTED = "granted"
    BEGIN = "begin"
    COMMIT = "commit"
    ABORT = "abort"
    ENDED = "ended"
    FAILED = "failed"
    BROKEN = "broken"


MOVES: dict[tuple[State, Event], State] = {
    (State.UNINITIALIZED, Event.INIT): State.INITIALIZING,
    (State.INITIALIZING, Event.GRANTED): State.READY,
    (State.READY, Event.INIT): State.INITIALIZING,
    (State.READY, Event.BEGIN): State.IN_TRANSACTION,
    (State.IN_TRANSACTION, Event.COMMIT): State.COMMITTING,
    (State.IN_TRANSACTION, Event.ABORT): State.ABORTING,
    (State.ABORTABLE, Event.ABORT): State.ABORTING,
    (State.COMMITTING, Event.ENDED): State.READY,
    (State.ABORTING, Event.ENDED): State.READY,
    (State.IN_TRANSACTION, Event.FAILED): State.ABORTABLE,
    (State.COMMITTING, Event.FAILED): State.ABORTABLE,
    (State.ABORTABLE, Event.FAILED): State.ABORTABLE,
    **{(state, Event.BROKEN): State.FATAL for state in State},
}
OPEN = frozenset({State.IN_TRANSACTION, State.COMMITTING, State.ABORTABLE, State.ABORTING})


# -- what callers and drivers hold -------------------------------------------------------------------------------------
class Job:
    """What a caller waits for. done: it is over, for better or, with `error`, for worse. told: a caller has heard of the outcome.

    callers: who waits for the end of a transaction. promised: one whose time was over will ask again.
    """

    __slots__ = ("callers", "done", "error", "promised", "told")

    def __init__(self) -> None:
        self.done = self.told = self.promised = False
        self.callers: dict[object, None] = {}
        self.error: KafkaException | None = None

    def finish(self, error: KafkaException | None = None) -> None:
        if not self.done:
            self.done, self.error = True, error


class OffsetsJob(Job):
    """Positions that the transaction shall commit; those that the coordinator took leave `left`."""

    __slots__ = ("group", "left")

    def __init__(self, group: GroupMetadata, offsets: Mapping[Key, tuple[int, str, int]]) -> None:
        super().__init__()
        self.group = group
        self.left = dict(offsets)


class Ask(NamedTuple):
    """A request to send. to: the coordinator, None for any broker. max_version: None is the newest that both sides speak."""

    request: Message
    to: Address | None
    max_version: int | None
    where: Where


M = TypeVar("M", bound=Message)


class Transaction:
    """The machine. moves: how often its state has changed. producer: the id and epoch in force. v2: the transaction is of the new kind (KIP-890): leaders and group coordinators add to
    it what they are sent, and each transaction has an epoch of its own.
    """

    def __init__(self, transactional_id: str, timeout_ms: int, *, backoff: Backoff, chance: Chance, lines: LaterLines) -> None:
        self.transactional_id, self._timeout_ms, self._backoff, self._chance = transactional_id, timeout_ms, backoff, chance
        self._lines = lines
        self.state = State.UNINITIALIZED
        self.moves = 0
        self.producer: ProducerId | None = None
        self.v2 = False
        self.fatal: TransactionFatalError | None = None
        self.cause: KafkaException | None = None  # why the open transaction cannot be committed
        self._offered_v2 = False
        self._resumes = False
        self._known: dict[Where, Address] = {}
        self._initializing = Job()
        self._ending: Job | None = None
        self._commits = False
        self._wanted: dict[Key, None] = {}
        self._added: set[Key] = set()
        self._groups: set[str] = set()
        self._offsets: deque[OffsetsJob] = deque()
        self._started = False
        self._unclear: Ask | None = None
        self._renews = False
        self._flying: Ask | None = None
        self._retry = Retry()
        self.obstacle: KafkaException | None = None  # why the last request is tried again

    def _say(self, level: int, text: str, *args: object) -> None:
        self._lines.add(log, level, text, *args)

    def _move(self, event: Event) -> None:
        before, self.state = self.state, MOVES[self.state, event]
        self.moves += 1
        if before is not self.state:
            self._say(logging.DEBUG, "transactional id %r: %s, %s", self.transactional_id, event.value, self.state.value)

    # -- what callers ask for ----------------------------------------------------------------------------------------------
    def initialize(self) -> Job:
        """Have a producer id and epoch that nobody else holds. Raises TransactionStateError in the middle of a transaction."""
        self._check_alive()
        if self.state in OPEN:
            raise TransactionStateError(f"init_transactions() in the middle of a transaction ({self.state.value})")
        if self.state is State.UNINITIALIZED or (self.state is State.READY and self._offered_v2 != self.v2):
            self._initializing = Job()
            self._move(Event.INIT)
        return self._initializing

    @property
    def needs_initializing(self) -> bool:
        """Must `initialize` come before the next `begin`? True also while it is under way."""
        idle = self.state in (State.UNINITIALIZED, State.INITIALIZING)
        return idle or (self.state is State.READY and self._offered_v2 != self.v2)

    def begin(self) -> None:
        """Open a transaction. Raises TransactionStateError if one is open, or the outcome of the last commit was not asked for."""
        self._check_alive()
        if self.state in OPEN:
            raise TransactionStateError(f"begin_transaction() in the middle of a transaction: {_ADVICE[self.state]}")
        if self._commits and self._ending is not None and not self._ending.told:
            raise TransactionStateError("the outcome of the last commit was not told to anyone: call commit_transaction() again, it tells")
        if self.needs_initializing:
            raise TransactionStateError("begin_transaction() before init_transactions()")
        self._ending = None
        self._move(Event.BEGIN)

    def add_offsets(self, group: GroupMetadata, offsets: Mapping[Key, tuple[int, str, int]]) -> Job:
        """Commit positions of a group with the transaction. offsets: (topic, partition) -> (next offset, metadata, leader's epoch or -1)."""
        self.check_open("send_offsets()")
        job = OffsetsJob(group, offsets)
        if job.left:
            self._offsets.append(job)
        else:
            job.finish()
        return job

    def end(self, *, commit: bool) -> Job:
        """Commit or abort. A second call while the end is under way, or after a commit whose caller gave up waiting, gives the same job."""
        self._check_alive()
        name = "commit_transaction()" if commit else "abort_transaction()"
        is_open = self.state in (State.IN_TRANSACTION, State.ABORTABLE)
        if self._ending is not None and not is_open and not (self._ending.told and self._ending.done):
            if commit is not self._commits:
                raise TransactionStateError(f"{name}: {_ADVICE[State.COMMITTING if self._commits else State.ABORTING]}")
            return self._ending
        if commit and self.state is State.ABORTABLE:
            raise self.abortable_error()
        if not is_open:
            raise TransactionStateError(f"{name}: there is no transaction, begin_transaction() opens one")
        self._commits, self._ending = commit, Job()
        self._move(Event.COMMIT if commit else Event.ABORT)  # last: who is interrupted before it has asked for nothing
        if not commit:
            self._drop_wishes(TransactionAbortedError("the transaction was aborted before the offsets were sent"))
        return self._ending

    @property
    def was_aborted(self) -> bool:
        """Was the end that was asked for last an abort?"""
        return self._ending is not None and not self._commits

    @property
    def forsaken(self) -> Job | None:
        """An end that nobody has heard of, waits for or was told to ask for again: its caller was cut short."""
        job = self._ending
        if job is None or (not job.done and self.state in (State.IN_TRANSACTION, State.ABORTABLE)):
            return None  # not asked for: whoever was to was interrupted
        return None if job.told or job.callers or job.promised else job

    def last_job(self) -> Job:
        """The end that is under way, or one that is done."""
        if self._ending is not None and self.flushing:
            return self._ending
        done = Job()
        done.finish()
        return done

    def check_open(self, call: str) -> None:
        """Raises unless a transaction is open that records and offsets may be added to."""
        if self.state is State.IN_TRANSACTION:
            return
        self._check_alive()
        if self.state is State.ABORTABLE:
            raise self.abortable_error()
        if self.state in OPEN:
            raise TransactionStateError(f"{call} while the transaction ends: {_ADVICE[self.state]}")
        raise TransactionStateError(f"{call} outside of a transaction: begin_transaction() comes first, or `with producer.transaction():`")

    def _check_alive(self) -> None:
        if self.fatal is not None:
            raise self.fatal

    def abortable_error(self) -> TransactionAbortableError:
        """The error of an ABORTABLE transaction."""
        error = TransactionAbortableError(f"the transaction can only be aborted, then done again; what went wrong: {self.cause}")
        error.__cause__ = self.cause
        return error

    # -- what the sender asks --------------------------------------------------------------------------------------------
    def may_send(self, key: Key) -> bool:
        """May a batch of this partition go out? If not yet, the partition is added to the transaction first (KIP-98)."""
        if self.v2 and self.state in OPEN:
            self._started = True
            return True
        if key in self._added:
            return True
        if self.state in (State.IN_TRANSACTION, State.COMMITTING):
            self._wanted[key] = None
        return False

    @property
    def flushing(self) -> bool:
        """The transaction ends: nothing lingers."""
        return self.state in (State.COMMITTING, State.ABORTING)

    @property
    def drops_unsent(self) -> bool:
        """Batches that were never sent fail at once: the transaction will be aborted (KIP-654). Those that were are repeated until their
        fate is clear: one that arrived after the transaction's end would open the next one, or hang (KIP-890)."""
        return self.state in (State.ABORTABLE, State.ABORTING)

    def dropped_error(self) -> TransactionAbortedError:
        """What such batches fail with."""
        why = f"; what went wrong: {self.cause}" if self.cause is not None else ""
        error = TransactionAbortedError(f"not sent: the transaction is aborted{why}")
        error.__cause__ = self.cause
        return error

    def batch_failed(self, error: KafkaException, *, numbered: bool) -> None:
        """A batch of the transaction was not delivered. numbered: it has used up sequence numbers."""
        if self.state not in OPEN:
            return
        if breaks_by_produce(error):
            self._break(error)
        else:
            self._fail(error, renews=numbered)

    # -- what to send ------------------------------------------------------------------------------------------------------
    def poll(self, now: float, idle: bool) -> tuple[Ask | None, float]:
        """The next request, and when to poll again at the latest. idle: every batch is settled."""
        if self._flying is not None:
            return None, NEVER
        if now < self._retry.not_before:
            return None, self._retry.not_before
        self._flying = self._next(idle)
        return self._flying, NEVER

    @property
    def flying(self) -> Ask | None:
        """The request that was given out and has no answer yet."""
        return self._flying

    def _next(self, idle: bool) -> Ask | None:
        if self.state is State.INITIALIZING:
            return self._to_coordinator(init_request(self.transactional_id, self._timeout_ms, self.producer))
        if self.state in (State.IN_TRANSACTION, State.COMMITTING):
            if self._wanted:
                return self._to_coordinator(add_partitions_request(self.transactional_id, self._id(), self._wanted))
            if self._offsets:
                return self._commit_offsets(self._offsets[0])
        if self.state is State.ABORTING and self._unclear is not None and not self._started:
            # Did the coordinator open the transaction? It refuses to abort one that it does not have.
            return self._to_coordinator(self._unclear.request)
        if self.flushing and idle:
            if self._started:
                return self._to_coordinator(end_request(self.transactional_id, self._id(), commit=self._commits))
            self._ended()
            return self._next(idle)  # a new epoch, if one is needed
        return None

    def newest(self, api: Api) -> int | None:
        """The newest version of an API that the open transaction may be served with, None for any."""
        return None if self.v2 else newest_without_v2(api)

    def _ask(self, request: Message, where: Where, *, at: bool = True) -> Ask:
        return Ask(request, self._known[where] if at else None, self.newest(request.API), where)

    def _to_coordinator(self, request: Message) -> Ask:
        return self._ask_coordinator(request, (TRANSACTION, self.transactional_id))

    def _ask_coordinator(self, request: Message, where: Where) -> Ask:
        if where not in self._known:
            return self._ask(FindCoordinatorRequest(key=where[1], key_type=where[0]), where, at=False)
        return self._ask(request, where)

    def _commit_offsets(self, job: OffsetsJob) -> Ask:
        group = job.group
        if not self.v2 and group.group_id not in self._groups:
            return self._to_coordinator(add_offsets_request(self.transactional_id, self._id(), group.group_id))
        self._started = True
        return self._ask_coordinator(offsets_request(self.transactional_id, self._id(), group, job.left), (GROUP, group.group_id))

    def _id(self) -> ProducerId:
        assert self.producer is not None  # READY comes before every transaction
        return self.producer

    # -- what came ---------------------------------------------------------------------------------------------------------
    def on_answer(self, ask: Ask, response: Any, error: KafkaException | None, now: float, versions: Versions | None = None) -> None:
        """Take an answer, or why there is none. versions: what the broker that answered speaks."""
        if ask is not self._flying:
            return
        self._flying = None
        if self.state is State.FATAL:
            return
        if response is None:
            assert error is not None
            self._unanswered(ask, error, now)
            return
        problems = _READERS[type(ask.request)](self, ask, response, versions)
        if problems:
            self._refused(ask, problems, now)
        elif not isinstance(ask.request, FindCoordinatorRequest):  # a coordinator that is named may still be unreachable
            self._retry.succeeded()
            self.obstacle = None

    def _unanswered(self, ask: Ask, error: KafkaException, now: float) -> None:
        """No answer came. Unless no connection was made, the request may have been acted upon, or may yet be."""
        if not (error.retriable or isinstance(error, ProtocolError)):
            self._impossible(ask, error)
            return
        if not isinstance(error, ConnectionFailedError):
            self._may_have_arrived(ask)
        if ask.to is not None:
            self._known.pop(ask.where, None)
        self._pause(error, now)

    def _impossible(self, ask: Ask, error: KafkaException) -> None:
        if isinstance(ask.request, TxnOffsetCommitRequest) and isinstance(error, UnsupportedVersion):
            text = f"{error}; the coordinator of group {ask.where[1]!r} is older than Kafka 2.5 and cannot check members (KIP-447): give send_offsets() the plain group id"
            self._fail(UnsupportedVersion(text, api="TxnOffsetCommit"), renews=False)
        else:
            self._break(error)

    def _may_have_arrived(self, ask: Ask) -> None:
        if self.v2:
            return  # its epoch ends with the transaction: a late copy is refused
        if isinstance(ask.request, ADDS):
            self._unclear = ask
            self._renews = True
        elif isinstance(ask.request, (EndTxnRequest, TxnOffsetCommitRequest)):
            self._renews = True

    def _refused(self, ask: Ask, problems: list[BrokerError], now: float) -> None:
        """The worst of the errors decides."""
        verdicts = [(verdict(ask.request, error), error) for error in problems]
        for worst in (Verdict.FATAL, Verdict.ABORT, Verdict.RETRY):
            error = next((error for what, error in verdicts if what is worst), None)
            if error is not None:
                break
        assert error is not None
        if isinstance(ask.request, ADDS) and (worst is not Verdict.RETRY or error.stale is METADATA):
            self._unclear = None  # it was answered: nothing was added
        if worst is Verdict.RETRY:
            if error.stale is COORDINATOR or isinstance(error, RequestTimedOut):
                self._known.pop(ask.where, None)
            self._pause(error, now)
        elif worst is Verdict.ABORT and self.state in OPEN and not self._refuses_abort(ask):
            self._fail(error, renews=isinstance(error, UnknownProducerId))
        else:
            self._break(error)

    def _refuses_abort(self, ask: Ask) -> bool:
        return isinstance(ask.request, EndTxnRequest) and not self._commits

    def _pause(self, error: KafkaException, now: float) -> None:
        self._retry.failed(CONCURRENT if isinstance(error, ConcurrentTransactions) else self._backoff, now, self._chance)
        self.obstacle = error
        self._say(logging.DEBUG, "transactional id %r: %s; again in %.3f s", self.transactional_id, error, self._retry.not_before - now)

    # -- what each answer says: the errors in it; none means that it was done
    def _read_coordinator(self, ask: Ask, response: Any, versions: Versions | None) -> list[BrokerError]:
        try:
            self._known[ask.where] = coordinator_of(response)
        except BrokerError as error:
            return [error]
        except ProtocolError as error:  # an address that is none: asked again, as where there is no coordinator
            return [GroupCoordinatorNotAvailable(str(error), api="FindCoordinator")]
        return []

    def _read_init(self, ask: Ask, response: Any, versions: Versions | None) -> list[BrokerError]:
        error = error_for(response.error_code, api="InitProducerId")
        if error is not None:
            return [error]
        self._learn(versions)
        self.v2 = self._offered_v2
        self.producer = (response.producer_id, response.producer_epoch)
        kind = "v2" if self.v2 else "v1"
        self._say(logging.INFO, "transactional id %r: producer id %d, epoch %d, %s", self.transactional_id, *self.producer, kind)
        self._move(Event.GRANTED)
        self._initializing.finish()
        return []

    def _learn(self, versions: Versions | None) -> None:
        if versions is not None:
            self._offered_v2, self._resumes = speaks_v2(versions), resumes_producers(versions)

    def _read_partitions(self, ask: Ask, response: Any, versions: Versions | None) -> list[BrokerError]:
        keys = added_partitions(ask.request)
        problems = partition_errors(keys, response)
        if problems:
            return problems
        self._added.update(keys)
        for key in keys:
            self._wanted.pop(key, None)
        self._started, self._unclear = True, None
        return []

    def _read_added_offsets(self, ask: Ask, response: Any, versions: Versions | None) -> list[BrokerError]:
        error = error_for(response.error_code, api="AddOffsetsToTxn")
        if error is not None:
            return [error]
        asked: Any = ask.request
        self._groups.add(asked.group_id)
        self._started, self._unclear = True, None
        return []

    def _read_offsets(self, ask: Ask, response: Any, versions: Versions | None) -> list[BrokerError]:
        if not self._offsets:  # the transaction is aborted meanwhile
            return []
        job = self._offsets[0]
        problems = offset_errors(job.left, response)
        for key in job.left.keys() - problems.keys():
            del job.left[key]
        if not job.left:
            self._offsets.popleft()
            job.finish()
        return list(problems.values())

    def _read_end(self, ask: Ask, response: Any, versions: Versions | None) -> list[BrokerError]:
        error = error_for(response.error_code, api="EndTxn")
        if error is not None:
            return [error]
        self._learn(versions)
        if response.producer_id >= 0:  # KIP-890: the next transaction has the next epoch, or a new id once the epochs are used up
            self.producer = (response.producer_id, response.producer_epoch)
        self._ended()
        return []

    def _ended(self) -> None:
        job, renews = self._ending, self._renews
        assert job is not None
        self._wanted.clear()
        self._added.clear()
        self._groups.clear()
        self._offsets.clear()
        self._started = self._renews = False
        self._unclear = self.cause = None
        self._move(Event.ENDED)
        job.finish()
        if not renews:
            return
        if not self._resumes:
            text = "a request of the last transaction got no answer, or a batch failed, and brokers before Kafka 2.5 have no safe way on (KIP-360)"
            self._break(UnsupportedVersion(text, api="InitProducerId"))
            return
        self._initializing = Job()
        self._move(Event.INIT)

    # -- failures ----------------------------------------------------------------------------------------------------------
    def _fail(self, cause: KafkaException, *, renews: bool) -> None:
        """The transaction can only be aborted from here on. renews: the producer's numbers have a gap that a new epoch has to close."""
        self._renews |= renews and not self.v2
        if self.state is State.ABORTING:
            return
        if self.cause is None:
            self.cause = cause
            self._say(logging.WARNING, "transactional id %r: the transaction has to be aborted: %s", self.transactional_id, cause)
        committing = self.state is State.COMMITTING
        self._move(Event.FAILED)
        error = self.abortable_error()
        self._drop_wishes(error)
        if committing and self._ending is not None:
            self._ending.finish(error)

    def _drop_wishes(self, error: KafkaException) -> None:
        """What was to be added to the transaction is not."""
        self._wanted.clear()
        for job in self._offsets:
            job.finish(error)
        self._offsets.clear()

    def _break(self, cause: KafkaException) -> None:
        self.fatal = fatal_error(self.transactional_id, cause)
        self._say(logging.ERROR, "%s", self.fatal)
        self._end_all(self.fatal)

    def _end_all(self, error: TransactionFatalError) -> None:
        self._move(Event.BROKEN)
        self._drop_wishes(error)
        self._initializing.finish(error)
        if self._ending is not None:
            self._ending.finish(error)

    def give_up(self, cause: KafkaException) -> None:
        """The producer ends: nobody will hear of anything any more."""
        if self.state is not State.FATAL:
            self.fatal = TransactionFatalError(f"transactional id {self.transactional_id!r}: {cause}")
            self.fatal.__cause__ = cause
            self._end_all(self.fatal)


_ADVICE = {
    State.IN_TRANSACTION: "commit_transaction() or abort_transaction() comes first",
    State.COMMITTING: "a commit is under way, call commit_transaction() again for its outcome",
    State.ABORTING: "an abort is under way, call abort_transaction() again to wait for it",
    State.ABORTABLE: "something failed in it, abort_transaction() comes first",
}
_READERS: dict[type[Message], Any] = {
    AddOffsetsToTxnRequest: Transaction._read_added_offsets,
    AddPartitionsToTxnRequest: Transaction._read_partitions,
    EndTxnRequest: Transaction._read_end,
    FindCoordinatorRequest: Transaction._read_coordinator,
    InitProducerIdRequest: Transaction._read_init,
    TxnOffsetCommitRequest: Transaction._read_offsets,
}
