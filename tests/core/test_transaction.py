"""The machine of a producer's transactions: states, errors of each kind at each request, lost answers, both kinds of transactions."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from gkafka.brokererrors import BrokerError
from gkafka.core.backoff import Backoff
from gkafka.core.transaction import MOVES, Ask, Event, GroupMetadata, Job, State, Transaction
from gkafka.exceptions import (
    ConnectionFailedError,
    FencedError,
    KafkaException,
    KafkaTimeoutError,
    MessageSizeTooLarge,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    SocketDisconnectedError,
    TlsError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionFatalError,
    TransactionStateError,
    UnsupportedVersion,
)
from gkafka.logs import LaterLines
from gkafka.wire.groups import Coordinator, FindCoordinatorResponse
from gkafka.wire.txn import (
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
    EndTxnResponse,
    InitProducerIdResponse,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from gkafka.wire.versions import Versions

LOADING, NOT_AVAILABLE, NOT_COORDINATOR, ILLEGAL_GENERATION, UNKNOWN_MEMBER, GROUP_DENIED, DENIED = 14, 15, 16, 22, 25, 30, 53
INVALID_EPOCH, INVALID_STATE, INVALID_ID, BAD_TIMEOUT, CONCURRENT, NOT_ATTEMPTED, UNKNOWN_PRODUCER = 47, 48, 49, 50, 51, 55, 59
FENCED_INSTANCE, FENCED, ABORTABLE, UNKNOWN_TOPIC, TOPIC_DENIED, TIMED_OUT, UNKNOWN_ERROR = 82, 90, 120, 3, 29, 7, -1
T0, T1 = ("t", 0), ("t", 1)
GROUP = GroupMetadata("g", 3, "m", None)


class Rig:
    """A transaction with the verbs of a test. v2: KIP-890's kind; resumes: KIP-360."""

    def __init__(self, *, v2: bool = False, resumes: bool = True) -> None:
        self.machine = Transaction("x", 60_000, backoff=Backoff(0.1, 1.0), chance=Random(1), lines=LaterLines())
        self.v2, self.now, self.epoch = v2, 0.0, 0
        release = "4.2" if v2 else "3.9" if resumes else "2.4"
        self.versions = Versions(Versions.for_broker(release).ranges, features={"transaction.version": 2} if v2 else {})

    def ask(self, *, idle: bool = True) -> Ask:
        """The request that the machine wants to send now."""
        ask, deadline = self.machine.poll(self.now, idle)
        if ask is None and deadline < float("inf"):
            self.now = deadline
            ask, _ = self.machine.poll(self.now, idle)
        assert ask is not None, f"nothing to send while {self.machine.state}"
        return ask

    def asks(self, *, idle: bool = True) -> str:
        """Its name, "" for none. What is asked stays unanswered."""
        ask, _ = self.machine.poll(self.now + 60, idle)
        return "" if ask is None else ask.request.API.name

    def answer(self, ask: Ask, code: int = 0, **about: Any) -> None:
        self.machine.on_answer(ask, self._response(ask, code, **about), None, self.now, self.versions)

    def _response(self, ask: Ask, code: int, **about: Any) -> Any:
        request: Any = ask.request
        name = request.API.name
        if name == "FindCoordinator":
            return FindCoordinatorResponse(coordinators=[Coordinator(key=request.key, node_id=1, host="h", port=9, error_code=code)])
        if name == "InitProducerId":
            self.epoch += not code
            return InitProducerIdResponse(error_code=code, producer_id=7, producer_epoch=self.epoch - 1)
        if name == "AddPartitionsToTxn":
            codes = about.get("codes", {})
            return AddPartitionsToTxnResponse(
                results_by_topic_v3_and_below=[
                    AddPartitionsToTxnTopicResult(
                        name=t.name,
                        results_by_partition=[
                            AddPartitionsToTxnPartitionResult(partition_index=p, partition_error_code=codes.get(p, code))
                            for p in t.partitions
                        ],
                    )
                    for t in request.v3_and_below_topics
                ]
            )
        if name == "AddOffsetsToTxn":
            return AddOffsetsToTxnResponse(error_code=code)
        if name == "TxnOffsetCommit":
            codes = about.get("codes", {})
            return TxnOffsetCommitResponse(
                topics=[
                    TxnOffsetCommitResponseTopic(
                        name=t.name,
                        partitions=[
                            TxnOffsetCommitResponsePartition(
                                partition_index=p.partition_index, error_code=codes.get(p.partition_index, code)
                            )
                            for p in t.partitions
                        ],
                    )
                    for t in request.topics
                ]
            )
        assert name == "EndTxn"
        if code or not self.v2:
            return EndTxnResponse(error_code=code)
        self.epoch += 1
        return EndTxnResponse(producer_id=7, producer_epoch=self.epoch - 1)

    def lose(self, ask: Ask, error: KafkaException | None = None) -> None:
        """No answer comes."""
        self.machine.on_answer(ask, None, error or SocketDisconnectedError("gone"), self.now, None)

    def serve(self, *names: str, idle: bool = True) -> None:
        """Answer these requests, which have to come in this order, with success."""
        for name in names:
            ask = self.ask(idle=idle)
            assert ask.request.API.name == name
            self.answer(ask)

    def finish(self) -> None:
        """Answer whatever is asked with success, until nothing is."""
        while True:
            self.now += 60
            ask, _ = self.machine.poll(self.now, True)
            if ask is None:
                return
            self.answer(ask)

    def ready(self) -> Rig:
        self.machine.initialize()
        self.serve("FindCoordinator", "InitProducerId")
        return self

    def begun(self) -> Rig:
        self.ready()
        self.machine.begin()
        return self

    def started(self) -> Rig:
        """In a transaction that has partition 0 of "t"."""
        self.begun()
        if not self.machine.may_send(T0):
            self.serve("AddPartitionsToTxn")
        assert self.machine.may_send(T0)
        return self

    def committing(self) -> tuple[Rig, Job]:
        self.started()
        return self, self.machine.end(commit=True)


def error(job: Job) -> KafkaException:
    assert job.done
    assert job.error is not None
    return job.error


# -- the table ---------------------------------------------------------------------------------------------------------
def test_a_move_that_the_table_does_not_have_raises() -> None:
    for state in State:
        for event in Event:
            machine = Rig().machine
            machine.state = state
            if (state, event) in MOVES:
                machine._move(event)
                assert machine.state is MOVES[state, event]
            else:
                with pytest.raises(KeyError):
                    machine._move(event)


def test_nothing_leads_out_of_fatal() -> None:
    assert {after for (before, _), after in MOVES.items() if before is State.FATAL} == {State.FATAL}


# -- the straight way --------------------------------------------------------------------------------------------------
def test_a_transaction_of_the_old_kind_adds_its_partitions_and_keeps_its_epoch() -> None:
    rig = Rig().begun()
    assert not rig.machine.may_send(T0)
    assert not rig.machine.may_send(T1)
    ask = rig.ask()
    request: Any = ask.request
    assert ask.to == (1, "h", 9)
    assert (request.v3_and_below_transactional_id, request.v3_and_below_producer_id, request.v3_and_below_producer_epoch) == ("x", 7, 0)
    assert [(t.name, t.partitions) for t in request.v3_and_below_topics] == [("t", [0, 1])]
    rig.answer(ask)
    assert rig.machine.may_send(T0)
    assert rig.machine.may_send(T1)
    job = rig.machine.end(commit=True)
    ask = rig.ask()
    assert ask.max_version == 4
    assert getattr(ask.request, "committed") is True  # noqa: B009
    rig.answer(ask)
    assert (job.done, job.error) == (True, None)
    assert rig.machine.producer == (7, 0)
    rig.machine.end(commit=True).told = True
    rig.machine.begin()
    assert not rig.machine.may_send(T0), "each transaction adds anew"


def test_a_transaction_of_the_new_kind_adds_nothing_and_ends_its_epoch() -> None:
    rig, job = Rig(v2=True).committing()
    ask = rig.ask()
    assert (ask.request.API.name, ask.max_version) == ("EndTxn", None)
    rig.answer(ask)
    assert job.done
    assert rig.machine.producer == (7, 1)


@pytest.mark.parametrize("v2", [False, True])
def test_an_empty_transaction_ends_without_a_word(v2: bool) -> None:
    for commit in (True, False):
        rig = Rig(v2=v2).begun()
        job = rig.machine.end(commit=commit)
        assert rig.asks() == ""
        assert (job.done, job.error, rig.machine.state) == (True, None, State.READY)


def test_the_end_waits_until_every_batch_is_settled() -> None:
    rig, job = Rig().committing()
    assert rig.machine.flushing
    assert rig.asks(idle=False) == ""
    assert not job.done
    assert rig.asks(idle=True) == "EndTxn"


def test_one_request_is_under_way_at_a_time() -> None:
    rig = Rig().begun()
    rig.machine.may_send(T0)
    ask = rig.ask()
    rig.machine.may_send(T1)
    assert rig.asks() == ""
    rig.answer(ask)
    assert rig.asks() == "AddPartitionsToTxn"


def test_offsets_of_the_old_kind_add_their_group_once() -> None:
    rig = Rig().begun()
    jobs = [rig.machine.add_offsets(GROUP, {T0: (n, "m", 7), T1: (n, "", -1)}) for n in (1, 2)]
    rig.serve("AddOffsetsToTxn", "FindCoordinator")
    ask = rig.ask()
    request: Any = ask.request
    assert ask.max_version == 4
    assert (request.group_id, request.generation_id, request.member_id, request.group_instance_id) == ("g", 3, "m", None)
    assert [
        (p.partition_index, p.committed_offset, p.committed_metadata, p.committed_leader_epoch) for p in request.topics[0].partitions
    ] == [
        (0, 1, "m", 7),
        (1, 1, "", -1),
    ]
    rig.answer(ask)
    assert [job.done for job in jobs] == [True, False]
    rig.serve("TxnOffsetCommit")
    assert jobs[1].done


def test_offsets_of_the_new_kind_need_no_other_request() -> None:
    rig = Rig(v2=True).begun()
    job = rig.machine.add_offsets(GroupMetadata("g"), {T0: (1, "", -1)})
    rig.serve("FindCoordinator", "TxnOffsetCommit")
    assert job.done
    rig.machine.end(commit=True)
    rig.serve("EndTxn")


def test_a_commit_waits_for_the_offsets() -> None:
    rig = Rig().started()
    rig.machine.add_offsets(GROUP, {T0: (1, "", -1)})
    rig.machine.end(commit=True)
    rig.serve("AddOffsetsToTxn", "FindCoordinator", "TxnOffsetCommit", "EndTxn")


def test_no_offsets_are_done_at_once() -> None:
    assert Rig().begun().machine.add_offsets(GROUP, {}).done


# -- calls that do not fit ---------------------------------------------------------------------------------------------
def calls(machine: Transaction) -> dict[str, Callable[[], Any]]:
    return {
        "init": machine.initialize,
        "begin": machine.begin,
        "produce": lambda: machine.check_open("produce()"),
        "offsets": lambda: machine.add_offsets(GROUP, {T0: (1, "", -1)}),
        "commit": lambda: machine.end(commit=True),
        "abort": lambda: machine.end(commit=False),
    }


ALLOWED = {
    State.UNINITIALIZED: {"init"},
    State.INITIALIZING: {"init"},
    State.READY: {"init", "begin"},
    State.IN_TRANSACTION: {"produce", "offsets", "commit", "abort"},
    State.COMMITTING: {"commit"},
    State.ABORTING: {"abort"},
    State.ABORTABLE: {"abort"},
    State.FATAL: set(),
}


def rig_in(state: State) -> Rig:
    rig = Rig()
    if state is State.INITIALIZING:
        rig.machine.initialize()
    elif state is State.READY:
        rig.ready()
    elif state not in (State.UNINITIALIZED, State.FATAL):
        rig.started()
    if state in (State.COMMITTING, State.ABORTING):
        rig.machine.end(commit=state is State.COMMITTING)
    elif state is State.ABORTABLE:
        rig.machine.batch_failed(MessageSizeTooLarge("big"), numbered=True)
    elif state is State.FATAL:
        rig.started().machine.batch_failed(ProducerFenced("fenced"), numbered=True)
    assert rig.machine.state is state
    return rig


@pytest.mark.parametrize("state", list(State))
def test_a_call_that_does_not_fit_says_so_and_changes_nothing(state: State) -> None:
    for name in calls(Rig().machine):
        rig = rig_in(state)
        call = calls(rig.machine)[name]
        if name in ALLOWED[state]:
            call()
            continue
        refused = (TransactionStateError, TransactionAbortableError) if state is not State.FATAL else (FencedError,)
        with pytest.raises(refused):
            call()
        assert rig.machine.state is state, name


def test_an_end_that_is_under_way_is_waited_for_by_whoever_asks_again() -> None:
    rig, job = Rig().committing()
    assert rig.machine.end(commit=True) is job
    rig.serve("EndTxn")
    assert rig.machine.end(commit=True) is job, "its caller was gone when the outcome came"
    job.told = True
    with pytest.raises(TransactionStateError, match="no transaction"):
        rig.machine.end(commit=True)


def test_a_commit_whose_outcome_nobody_was_told_stands_before_the_next_transaction() -> None:
    rig, job = Rig().committing()
    rig.serve("EndTxn")
    with pytest.raises(TransactionStateError, match=r"commit_transaction\(\) again"):
        rig.machine.begin()
    job.told = True
    rig.machine.begin()


def test_an_end_is_forsaken_when_nobody_waits_for_it_or_has_heard_of_it() -> None:
    rig, job = Rig().committing()
    for name, held in (("callers", {object(): None}), ("promised", True), ("told", True)):
        free = getattr(job, name)
        assert rig.machine.forsaken is job
        setattr(job, name, held)
        assert rig.machine.forsaken is None, name
        setattr(job, name, free)
    rig.serve("EndTxn")
    assert rig.machine.forsaken is job
    assert not rig.machine.was_aborted


# -- errors ------------------------------------------------------------------------------------------------------------
def to_init(rig: Rig) -> Ask:
    rig.machine.initialize()
    rig.serve("FindCoordinator")
    return rig.ask()


def to_add(rig: Rig) -> Ask:
    rig.begun().machine.may_send(T0)
    return rig.ask()


def to_add_offsets(rig: Rig) -> Ask:
    rig.begun().machine.add_offsets(GROUP, {T0: (1, "", -1)})
    return rig.ask()


def to_offsets(rig: Rig) -> Ask:
    to_find_group(rig)
    rig.answer(rig.machine._flying)  # type: ignore[arg-type]
    return rig.ask()


def to_find_group(rig: Rig) -> Ask:
    rig.answer(to_add_offsets(rig))
    return rig.ask()


def to_end(rig: Rig) -> Ask:
    rig.committing()
    return rig.ask()


def to_abort(rig: Rig) -> Ask:
    rig.started().machine.end(commit=False)
    return rig.ask()


WAYS: dict[str, Callable[[Rig], Ask]] = {
    "FindCoordinator": to_find_group,
    "InitProducerId": to_init,
    "AddPartitionsToTxn": to_add,
    "AddOffsetsToTxn": to_add_offsets,
    "TxnOffsetCommit": to_offsets,
    "EndTxn": to_end,
    "EndTxn (abort)": to_abort,
}
RETRIED = {name: {LOADING, NOT_AVAILABLE, NOT_COORDINATOR, CONCURRENT} for name in WAYS}
RETRIED["FindCoordinator"] = {LOADING, NOT_AVAILABLE}
RETRIED["AddPartitionsToTxn"] |= {UNKNOWN_TOPIC}
RETRIED["TxnOffsetCommit"] |= {UNKNOWN_TOPIC, TIMED_OUT}
FAILED = {
    "FindCoordinator": {GROUP_DENIED},
    "InitProducerId": set[int](),
    "AddPartitionsToTxn": {TOPIC_DENIED, UNKNOWN_PRODUCER, ABORTABLE, UNKNOWN_ERROR},
    "AddOffsetsToTxn": {GROUP_DENIED, UNKNOWN_PRODUCER, ABORTABLE, UNKNOWN_ERROR},
    "TxnOffsetCommit": {GROUP_DENIED, ILLEGAL_GENERATION, UNKNOWN_MEMBER, FENCED_INSTANCE, ABORTABLE, UNKNOWN_ERROR},
    "EndTxn": {ABORTABLE, UNKNOWN_PRODUCER},
    "EndTxn (abort)": set[int](),
}
BROKEN = {name: {FENCED, INVALID_EPOCH, DENIED, INVALID_STATE, INVALID_ID} for name in WAYS}
BROKEN["FindCoordinator"] = {DENIED}
BROKEN["InitProducerId"] |= {BAD_TIMEOUT, UNKNOWN_ERROR, ABORTABLE}
BROKEN["EndTxn"] |= {UNKNOWN_ERROR}
BROKEN["EndTxn (abort)"] |= {UNKNOWN_ERROR, ABORTABLE}


def cases(table: dict[str, set[int]]) -> list[Any]:
    return [
        pytest.param(name, code, id=f"{name} {BrokerError.by_code[code].__name__}")
        for name, codes in table.items()
        for code in sorted(codes)
    ]


@pytest.mark.parametrize(("name", "code"), cases(RETRIED))
def test_a_retriable_error_leads_to_the_same_request_after_a_pause(name: str, code: int) -> None:
    rig = Rig()
    ask = WAYS[name](rig)
    state = rig.machine.state
    rig.answer(ask, code)
    nothing, deadline = rig.machine.poll(rig.now, True)
    assert nothing is None
    assert rig.now < deadline < rig.now + (0.05 if code == CONCURRENT else 0.2)
    again = rig.ask()
    if code in (NOT_COORDINATOR, NOT_AVAILABLE, TIMED_OUT) and name != "FindCoordinator":
        assert again.request.API.name == "FindCoordinator", "the coordinator has moved"
        assert getattr(again.request, "key") == ask.where[1]  # noqa: B009
        rig.answer(again)
        again = rig.ask()
    assert again.request == ask.request
    assert rig.machine.state is state


@pytest.mark.parametrize(("name", "code"), cases(FAILED))
def test_an_abortable_error_leaves_nothing_but_the_abort(name: str, code: int) -> None:
    rig = Rig()
    ask = WAYS[name](rig)
    waiting = [*rig.machine._offsets, *([rig.machine._ending] if rig.machine._ending else [])]
    rig.answer(ask, code)
    assert rig.machine.state is State.ABORTABLE
    assert rig.machine.drops_unsent
    for job in waiting:
        assert isinstance(error(job), TransactionAbortableError)
        assert error(job).abortable
    with pytest.raises(TransactionAbortableError) as caught:
        rig.machine.check_open("produce()")
    assert getattr(caught.value.__cause__, "code", None) == code
    job = rig.machine.end(commit=False)
    rig.finish()
    assert (job.done, job.error) == (True, None)


@pytest.mark.parametrize(("name", "code"), cases(BROKEN))
def test_a_fatal_error_ends_everything(name: str, code: int) -> None:
    rig = Rig()
    ask = WAYS[name](rig)
    waiting: list[Job] = [*rig.machine._offsets, *([rig.machine._ending] if rig.machine._ending else [])]
    waiting += [rig.machine._initializing] if name == "InitProducerId" else []
    rig.answer(ask, code)
    assert rig.machine.state is State.FATAL
    kind = FencedError if code in (FENCED, INVALID_EPOCH) else TransactionFatalError
    assert {type(error(job)) for job in waiting} <= {kind}
    assert waiting or name == "AddPartitionsToTxn", "nobody waits for that"
    with pytest.raises(kind) as caught:
        rig.machine.check_open("produce()")
    assert caught.value.fatal
    assert getattr(rig.machine.fatal.__cause__, "code", None) == code  # type: ignore[union-attr]
    assert rig.asks() == ""


def test_a_partition_that_was_not_attempted_does_not_hide_why() -> None:
    rig = Rig().begun()
    rig.machine.may_send(T0)
    rig.machine.may_send(T1)
    rig.answer(rig.ask(), codes={0: NOT_ATTEMPTED, 1: TOPIC_DENIED})
    assert getattr(rig.machine.cause, "code", None) == TOPIC_DENIED
    assert getattr(rig.machine.cause, "partition", None) == 1


def test_a_partition_that_is_not_there_yet_makes_the_others_wait() -> None:
    rig = Rig().begun()
    rig.machine.may_send(T0)
    rig.machine.may_send(T1)
    rig.answer(rig.ask(), codes={0: NOT_ATTEMPTED, 1: UNKNOWN_TOPIC})
    assert not rig.machine.may_send(T0)
    rig.serve("AddPartitionsToTxn")
    assert rig.machine.may_send(T0)


def test_a_partition_that_the_answer_leaves_out_was_not_added() -> None:
    rig = Rig().begun()
    rig.machine.may_send(T0)
    rig.machine.on_answer(rig.ask(), AddPartitionsToTxnResponse(), None, 0.0, rig.versions)
    assert rig.machine.state is State.ABORTABLE
    assert not rig.machine.may_send(T0)


def test_only_the_offsets_that_were_refused_are_sent_again() -> None:
    rig = Rig()
    to_add_offsets(rig)
    job = rig.machine._offsets[0]
    job.left[T1] = (2, "", -1)
    rig.answer(rig.machine._flying)  # type: ignore[arg-type]
    rig.serve("FindCoordinator")
    rig.answer(rig.ask(), codes={1: LOADING})
    again: Any = rig.ask()
    assert [p.partition_index for p in again.request.topics[0].partitions] == [1]
    rig.answer(again)
    assert job.done


# -- batches -----------------------------------------------------------------------------------------------------------
def test_a_failed_batch_fails_the_commit() -> None:
    """B03: a commit without a record that the user has produced is no commit."""
    rig, job = Rig().committing()
    why = KafkaTimeoutError("not delivered within 120 s")
    rig.machine.batch_failed(why, numbered=True)
    assert isinstance(error(job), TransactionAbortableError)
    assert error(job).__cause__ is why
    assert rig.asks() == ""


@pytest.mark.parametrize("v2", [False, True])
def test_after_a_gap_in_the_numbers_the_next_transaction_has_a_new_epoch(v2: bool) -> None:
    """B02: and not this one. KIP-360; with KIP-890 each has one anyway."""
    rig = Rig(v2=v2).started()
    rig.machine.batch_failed(OutOfOrderSequenceNumber(), numbered=True)
    assert rig.machine.producer == (7, 0)
    job = rig.machine.end(commit=False)
    rig.serve("EndTxn")
    assert job.done
    if not v2:
        assert rig.machine.needs_initializing
        ask: Any = rig.ask()
        assert (ask.request.producer_id, ask.request.producer_epoch) == (7, 0)
        rig.answer(ask)
    assert rig.machine.producer == (7, 1)
    rig.machine.begin()


def test_a_batch_that_was_never_numbered_leaves_no_gap() -> None:
    rig = Rig().started()
    rig.machine.batch_failed(KafkaTimeoutError("no leader"), numbered=False)
    rig.machine.end(commit=False)
    rig.serve("EndTxn")
    assert rig.machine.state is State.READY


def test_brokers_that_cannot_close_a_gap_end_the_producer_after_the_abort() -> None:
    rig = Rig(resumes=False).started()
    rig.machine.batch_failed(MessageSizeTooLarge(), numbered=True)
    job = rig.machine.end(commit=False)
    rig.serve("EndTxn")
    assert (job.done, job.error) == (True, None)
    assert rig.machine.state is State.FATAL
    assert "2.5" in str(rig.machine.fatal)


def test_what_fails_while_it_is_aborted_changes_nothing() -> None:
    rig = Rig().started()
    job = rig.machine.end(commit=False)
    rig.machine.batch_failed(TransactionAbortedError("not sent"), numbered=False)
    rig.serve("EndTxn")
    assert (job.done, job.error) == (True, None)


@pytest.mark.parametrize(("code", "state"), [(FENCED, State.FATAL), (DENIED, State.FATAL), (INVALID_EPOCH, State.ABORTABLE)])
def test_a_leader_may_end_the_producer_but_the_last_word_on_its_epoch_is_the_coordinators(code: int, state: State) -> None:
    rig = Rig().started()
    rig.machine.batch_failed(BrokerError.by_code[code](), numbered=True)
    assert rig.machine.state is state


def test_batches_between_transactions_concern_nobody() -> None:
    rig = Rig().ready()
    rig.machine.batch_failed(MessageSizeTooLarge(), numbered=True)
    assert rig.machine.state is State.READY
    assert not rig.machine.may_send(T0)


def test_an_abort_drops_what_was_to_be_added() -> None:
    rig = Rig().started()
    rig.machine.may_send(T1)
    job = rig.machine.add_offsets(GROUP, {T0: (1, "", -1)})
    rig.machine.end(commit=False)
    assert isinstance(error(job), TransactionAbortedError)
    rig.serve("EndTxn")


# -- answers that are lost ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", WAYS)
def test_a_request_whose_answer_is_lost_is_sent_again(name: str) -> None:
    rig = Rig()
    ask = WAYS[name](rig)
    rig.lose(ask)
    again = rig.ask()
    if name != "FindCoordinator":
        assert again.request.API.name == "FindCoordinator", "the coordinator may be gone"
        rig.answer(again)
        again = rig.ask()
    assert again.request == ask.request


@pytest.mark.parametrize("commit", [True, False])
def test_after_an_end_that_got_no_answer_comes_a_new_epoch(commit: bool) -> None:
    """A late copy of it must not end the next transaction."""
    rig = Rig().started()
    job = rig.machine.end(commit=commit)
    rig.lose(rig.ask(), KafkaTimeoutError("no answer within 30 s"))
    assert not job.done, "nobody knows, so nobody is told"
    rig.serve("FindCoordinator", "EndTxn")
    assert (job.done, job.error) == (True, None)
    job.told = True
    with pytest.raises(TransactionStateError):
        rig.machine.begin()
    rig.serve("InitProducerId")
    rig.machine.begin()
    assert rig.machine.producer == (7, 1)


def test_with_an_epoch_for_each_transaction_a_late_end_is_harmless() -> None:
    rig, job = Rig(v2=True).committing()
    rig.lose(rig.ask())
    rig.serve("FindCoordinator", "EndTxn")
    assert job.done
    assert rig.machine.state is State.READY


def test_an_end_that_never_left_needs_no_new_epoch() -> None:
    rig, _ = Rig().committing()
    rig.lose(rig.ask(), ConnectionFailedError("refused"))
    rig.serve("FindCoordinator", "EndTxn")
    assert rig.machine.state is State.READY


def test_after_a_lost_end_somebody_elses_epoch_is_fatal() -> None:
    rig, job = Rig().committing()
    rig.lose(rig.ask())
    rig.serve("FindCoordinator")
    rig.answer(rig.ask(), FENCED)
    assert isinstance(error(job), FencedError)


def test_a_transaction_that_the_coordinator_may_have_opened_is_not_left_open() -> None:
    """The answer to AddPartitionsToTxn is lost and the user aborts: only a second answer tells whether there is something to abort."""
    rig = Rig().begun()
    rig.machine.may_send(T0)
    rig.lose(rig.ask())
    job = rig.machine.end(commit=False)
    rig.serve("FindCoordinator", "AddPartitionsToTxn", "EndTxn")
    assert job.done


@pytest.mark.parametrize("code", [UNKNOWN_TOPIC, TOPIC_DENIED])
def test_a_transaction_that_the_coordinator_did_not_open_needs_no_end(code: int) -> None:
    rig = Rig().begun()
    rig.machine.may_send(T0)
    rig.lose(rig.ask())
    job = rig.machine.end(commit=False)
    rig.serve("FindCoordinator")
    rig.answer(rig.ask(), code)
    rig.now += 10
    assert rig.asks() == "InitProducerId"
    assert (job.done, job.error) == (True, None)


def test_an_answer_that_is_none_is_like_no_answer() -> None:
    from gkafka.exceptions import ProtocolError

    rig, job = Rig().committing()
    rig.lose(rig.ask(), ProtocolError("bytes"))
    rig.serve("FindCoordinator", "EndTxn")
    assert job.done
    assert rig.machine.needs_initializing


def test_an_answer_to_a_request_that_is_not_under_way_is_left_aside() -> None:
    rig, job = Rig().committing()
    first = rig.ask()
    rig.lose(first)
    rig.serve("FindCoordinator")
    second = rig.ask()
    rig.answer(first, FENCED)
    assert rig.machine.state is State.COMMITTING
    rig.answer(second)
    assert job.error is None


def test_what_no_retry_can_heal_ends_the_producer() -> None:
    rig = Rig()
    job = rig.machine.initialize()
    rig.lose(rig.ask(), TlsError("certificate"))
    assert isinstance(error(job), TransactionFatalError)
    rig = Rig()
    job = rig.machine.initialize()
    rig.lose(rig.ask(), UnsupportedVersion("older than 0.11"))
    assert isinstance(error(job), TransactionFatalError)


def test_a_group_coordinator_that_cannot_check_members_is_told_with_what_to_do() -> None:
    rig = Rig()
    ask = to_offsets(rig)
    job = rig.machine._offsets[0]
    rig.lose(ask, UnsupportedVersion("generation_id at version 2"))
    assert rig.machine.state is State.ABORTABLE
    assert "plain group id" in str(error(job))


def test_a_coordinator_that_is_named_but_not_reached_is_not_asked_for_in_a_storm() -> None:
    rig, _ = Rig().committing()
    pauses = []
    for _ in range(6):
        rig.lose(rig.ask(), ConnectionFailedError("refused"))
        pauses.append(rig.machine.poll(rig.now, True)[1] - rig.now)
        rig.serve("FindCoordinator")
    assert pauses[0] < 0.2
    assert pauses[-1] > 0.7


# -- epochs, kinds -----------------------------------------------------------------------------------------------------
def test_the_first_id_is_asked_for_without_one_and_the_next_with_it() -> None:
    rig = Rig()
    first: Any = to_init(rig).request
    assert (first.transactional_id, first.transaction_timeout_ms, first.producer_id, first.producer_epoch) == ("x", 60_000, -1, -1)


def test_a_cluster_that_switches_to_the_new_kind_gives_the_next_transaction_a_new_epoch() -> None:
    rig, job = Rig().committing()
    rig.versions = Versions(Versions.for_broker("4.2").ranges, features={"transaction.version": 2})
    ask = rig.ask()
    assert ask.max_version == 4, "a transaction ends as it began"
    rig.answer(ask)
    job.told = True
    assert rig.machine.needs_initializing
    with pytest.raises(TransactionStateError):
        rig.machine.begin()
    job = rig.machine.initialize()
    rig.serve("InitProducerId")
    assert job.done
    rig.machine.begin()
    assert rig.machine.v2


def test_init_twice_is_one_init() -> None:
    rig = Rig()
    job = rig.machine.initialize()
    assert rig.machine.initialize() is job
    rig.serve("FindCoordinator", "InitProducerId")
    assert rig.machine.initialize().done
    assert rig.asks() == ""


def test_a_producer_that_closes_tells_all_who_wait() -> None:
    rig, job = Rig().committing()
    rig.machine.give_up(KafkaException("closed"))
    assert isinstance(error(job), TransactionFatalError)
    rig.machine.give_up(KafkaException("closed"))
