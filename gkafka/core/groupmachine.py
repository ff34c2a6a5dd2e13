"""A member of a group, whichever protocol it speaks: what it has, what it may commit, where its coordinator is, and when all that ends.

It waits for nothing and sends nothing: `poll(now)` returns a Plan, `on_answer` takes the outcome of a request, `told` that a callback has
returned. How a member joins, what it is assigned and what its heartbeats say, each protocol rules in a room of its own: `group`, `consumergroup`.

What it promises: a partition is delivered (`delivered`) only while no other member can have it. So what it has ends, by its own clock, when
the coordinator may have given it up: counted from when it sent the last request that was answered well, because the coordinator counts from
when that arrived. What ends in this way is told as lost; nothing of it can be committed any more. What is given up in order is told as
revoked: its offsets can be committed until the callback has returned, and only then the coordinator hears that it is free.

A coordinator that moves, or cannot be reached for a while, takes nothing from a member; it is looked for until the session has ended.

Source: KIP-62, KIP-345; AbstractCoordinator.java, AbstractMembershipManager.java
"""

from __future__ import annotations

import abc
import enum
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, NamedTuple, Protocol

from gkafka.brokererrors import (
    COORDINATOR,
    AuthenticationError,
    BrokerError,
    FencedInstanceId,
    KafkaException,
    RequestTimedOut,
    UnknownError,
    error_for,
)
from gkafka.common import TopicPartition
from gkafka.core.backoff import Backoff, Chance
from gkafka.core.consumergroupstate import ConsumerGroupOptions
from gkafka.core.flights import Flights
from gkafka.core.groupleader import Election, Made
from gkafka.core.groupstate import (
    NEVER,
    NO_GENERATION,
    Address,
    Ask,
    Event,
    GroupOptions,
    Lane,
    Moves,
    Plan,
    State,
    Tell,
    Ticket,
    Verdict,
)
from gkafka.core.lease import Lease
from gkafka.core.offsets import commit_request, coordinator_of, coordinator_request
from gkafka.core.ownership import Ownership
from gkafka.errortexts import partitions_named
from gkafka.exceptions import ConnectionFailedError, KafkaTimeoutError, SerializationError, SocketDisconnectedError
from gkafka.logs import get_logger
from gkafka.wire.groups import FindCoordinatorRequest
from gkafka.wire.metadata import MetadataRequest
from gkafka.wire.offsets import OffsetCommitRequest
from gkafka.wire.schema import Message

__all__ = ["Answer", "GroupMachine", "Kind", "MakeMachine", "Readers", "passes"]

log = get_logger(__name__)

FAREWELL_TRIES = 4
"""With the pauses in between a second at most: where no broker is left, nobody waits for more."""


class Kind(enum.Enum):
    """What a request is for. ROUND: JoinGroup and SyncGroup, never two at a time (B55). NAMES: of topics that are known by id (KIP-848)."""

    FIND = "find"
    ROUND = "round"
    BEAT = "beat"
    LEAVE = "leave"
    NAMES = "names"


class Answer(NamedTuple):
    """What came of a request. response: None if nothing did. sent_at, now: when the request went and this came."""

    ask: Ask
    response: Any
    sent_at: float
    now: float


Readers = Mapping[Kind, tuple[Callable[..., None], Callable[..., None]]]


class GroupMachine(abc.ABC):
    """generation, member_id: of the membership in force; NO_GENERATION and "" for none. error: why the state is FATAL.

    rebalances: how often it was given another assignment. losses: how often everything was lost. is_leader: does it divide the partitions of
    the generation?

    What a protocol says of itself: _moves, its states; _in_group, those of a member; _committing, those in which its coordinator takes commits;
    _fences, the errors by which it is none any more; _passing, those of a commit that need only be tried again. _readers: what to do
    with the answer to each kind of request, and with a refusal or the lack of one.

    How a membership ends, with the hooks of a protocol in the order in which they are called:

        the owner stops it    leave(): LEAVE, what it has is given up, _prepare_farewell(); then, by _go_on() and _asks(): callbacks and commits
                              come to their end, the farewell is sent and answered or given up, GONE
        the application is    _part(), IDLE; the farewell goes out while it is AWAY; polled(): _begin(), WANTED
        silent
        its own clock         _lapsed(): _lose() or _part(), then _reset(); of one that is LEAVING: _lose(), no farewell, and GONE as above
        the coordinator       _put_out(): _lose(), its name if that is gone, too, then _reset(); of one that is LEAVING: _lose(), no farewell, and
        does not know it      GONE as above
        nothing can be done   _break(): the error is reported, _lose(), no request or farewell counts any more, BROKEN

    _part() is _lose() with a farewell of the membership that ends; who writes it by what _lose() forgets, writes it first. _reset() is _begin(),
    then RESET. So in each of them what it has is lost before the state changes, and the move is the last step: whoever is asked in between
    (`delivered`, `grant`) gives nothing. A protocol that overrides _lose() calls the one here first. A member that is joining already,
    under no name of the membership that ended, goes on with that and is not reset.
    """

    options: GroupOptions | ConsumerGroupOptions
    _moves: ClassVar[Moves]
    _in_group: ClassVar[tuple[State, ...]]
    _committing: ClassVar[tuple[State, ...]]
    _fences: ClassVar[tuple[type[KafkaException], ...]]
    _passing: ClassVar[tuple[type[KafkaException], ...]]
    _readers: ClassVar[Readers]

    def __init__(self, options: Any, topics: Iterable[str], *, backoff: Backoff, chance: Chance, name: str = "") -> None:
        self.options = options
        self.state = State.AWAY
        self.generation = NO_GENERATION
        self.error: KafkaException | None = None
        self.coordinator: Address | None = None
        self.rebalances = self.losses = 0
        self.is_leader = False
        self._name = name  # under which the coordinator knows it, or will
        self._topics = frozenset(topics)
        self._have = Ownership()
        self._lease = Lease(options.session_timeout_s, options.rebalance_timeout_s)
        self._patience_s: float = options.session_timeout_s / 3
        self._polled_at = self._beat_at = 0.0
        self._farewell: Message | None = None
        self._farewell_failures = 0
        self._commits: list[Ticket] = []
        self.waits_for_commits = False  # there were tickets at the last poll()
        self._problems: list[KafkaException] = []
        self._flying: Flights[Kind, Ask] = Flights(Kind, backoff, chance)
        self._reading: tuple[Ask, Kind, float] | None = None  # whose answer is being taken in
        self._troubles: dict[Kind, KafkaException] = {}  # what the last request of a kind met, until one succeeds
        self.is_interruption: Callable[[BaseException], bool] = lambda _: False  # did what an assignor raised come from outside?

    @property
    def member_id(self) -> str:
        return self._name

    def _move(self, event: Event) -> None:
        before, self.state = self.state, self._moves[self.state, event]
        if before is not self.state:
            log.debug("group %r, member %r: %s, %s", self.options.group, self._name, event.value, self.state.value)

    # -- what the application and its driver say ---------------------------------------------------------------------------
    def polled(self, now: float) -> None:
        """The application asks for messages. The first time, and after a silence, the member joins."""
        self._polled_at = now
        if self.state is State.AWAY:
            self._begin("the application asks for messages")
            self._move(Event.WANTED)

    @abc.abstractmethod
    def subscribe(self, topics: Iterable[str]) -> None:
        """Other topics from now on."""

    @abc.abstractmethod
    def rejoin(self, reason: str) -> None:
        """The assignment is to be made anew: the number of a topic's partitions has changed, or the application wants it."""

    def leave(self, reason: str, *, static: bool = False) -> None:
        """For good: partitions are given up in order, then the coordinator is told. static: also that of a static member, whose partitions
        otherwise wait for it to come back, for the length of the session (KIP-345).
        """
        if self.state not in (State.AWAY, *self._in_group):
            return
        log.info("group %r, member %r: leaving, %s", self.options.group, self._name, reason)
        self._move(Event.LEAVE)
        if self.generation == NO_GENERATION:
            self._have.lose()
        else:
            self._have.give_up(list(self._have.owned))
        self._prepare_farewell(reason, static=static)

    def told(self, tell: Tell) -> None:
        """The callback for it has returned."""
        if self.is_telling(tell):
            self._have.told()

    def is_telling(self, tell: Tell) -> bool:
        """Has its callback not returned yet?"""
        return tell is self._have.running

    @property
    def is_over(self) -> bool:
        """Nothing is to be asked or told any more; what is told last may still be under way."""
        return self.state is State.LEFT or (self.state is State.FATAL and not self._have.is_waiting)

    def is_under_way(self, ask: Ask) -> bool:
        """Is its answer waited for, or half taken in?"""
        return any(other is ask for other in self._unread())

    def _unread(self) -> list[Ask]:
        reading = self._reading
        return self._flying.all() if reading is None else [*self._flying.all(), reading[0]]

    def restore(self, is_under_way: Callable[[Ask], bool], now: float) -> Tell | None:
        """Whoever was to send, or to take an answer in, was interrupted: requests that are with no connection have failed.

        Returns what the callback is under way for, or about to be.
        """
        for ask in self._unread():
            if not is_under_way(ask):
                self.on_answer(ask, None, SocketDisconnectedError("its sender was interrupted"), now)
        self._have.restore()
        return self._have.running

    @property
    @abc.abstractmethod
    def election(self) -> Election | None:
        """What is to be divided by this member, as the leader. The assignor may be the user's and take long: it runs where nothing waits for it."""

    @abc.abstractmethod
    def divided(self, election: Election, made: Made) -> None:
        """What was made of that; nothing if there has been another election, or none is wanted any more."""

    # -- what it has -------------------------------------------------------------------------------------------------------
    def delivered(self, now: float) -> Mapping[TopicPartition, int]:
        """The partitions whose messages the application may have now, each with its term; to be asked for at each delivery."""
        return self._have.owned if now < self._lease.ends_at else {}

    @property
    def delivers_until(self) -> float:
        """When there will be none any more, if no answer comes."""
        return self._lease.ends_at

    @property
    def terms(self) -> Mapping[TopicPartition, int]:
        """The term of each partition that is the member's, or is being given up: what grant() may be asked for."""
        return {**self._have.leaving, **self._have.owned}

    def takes_commits(self, now: float) -> bool:
        """Is this a moment for commits? If not, there may be one after the rebalance; if so, what gets no ticket is not the member's any more."""
        return self.state in self._committing and self.generation != NO_GENERATION and now < self._lease.ends_at

    def grant(self, ticket: Ticket, partitions: Mapping[TopicPartition, int], now: float) -> bool:
        """Make it the right to commit what was delivered under these terms, as far as it is still the member's. False: not at this moment.

        What is given up is not free before the ticket's end: `on_commit`, or its caller's `is_over`, or `until`.
        """
        allowed = self._have.may_commit(partitions) if self.takes_commits(now) else None
        if not allowed:
            return False
        ticket.generation, ticket.member_id, ticket.partitions = self.generation, self._name, allowed
        self._commits.append(ticket)
        return True

    def commit_request(self, ticket: Ticket, offsets: Mapping[TopicPartition, tuple[int, str]]) -> OffsetCommitRequest:
        """offsets: (next offset, metadata); what the ticket does not hold is left out. A KIP-848 member's epoch needs version 9."""
        allowed = {tp: offset for tp, offset in offsets.items() if tp in ticket.partitions}
        request = commit_request(self.options.group, allowed, generation_id=ticket.generation, member_id=ticket.member_id)
        request.group_instance_id = self.options.instance_id
        return request

    def on_commit(self, ticket: Ticket, error: KafkaException | None, now: float) -> Verdict:
        """What the worst error of a commit's answer, or the lack of one, means."""
        if ticket in self._commits:
            self._commits.remove(ticket)
        if error is None:
            return Verdict.DONE
        if isinstance(error, self._passing):
            return Verdict.RETRY
        if isinstance(error, (FencedInstanceId, *self._fences)):
            if not self._is_in_force(ticket):
                return Verdict.RETRY  # it was of an earlier one; a new ticket tells what is still owned
            self._fenced(error)
            return Verdict.FAILED
        self._look_at_coordinator(error, self.coordinator)
        return Verdict.RETRY if error.retriable else Verdict.FAILED

    @abc.abstractmethod
    def _is_in_force(self, ticket: Ticket) -> bool:
        """Is it of this membership, so that what its commit is told is meant for it?"""

    # -- what to do --------------------------------------------------------------------------------------------------------
    def poll(self, now: float) -> Plan:
        """To be asked after every answer, callback and wish, and at wake_at."""
        self._watch_clock(now)
        self.waits_for_commits = bool(self._commits)
        self._go_on(now)
        asks = [ask for ask in self._asks(now) if ask is not None]
        problems, self._problems = self._problems, []
        topics = election.topics if (election := self.election) is not None else None
        return Plan(asks, self._have.next(), topics, problems, self._wake_at(now))

    def _watch_clock(self, now: float) -> None:
        self._commits = [ticket for ticket in self._commits if now < ticket.until and not ticket.is_over]
        if self.state in self._in_group and now >= self._polled_at + self.options.max_poll_interval_s:
            self._idle()
        # Who has nothing loses nothing: it may have been parked, or without a coordinator, for longer than a session.
        if self._have.any and self.generation != NO_GENERATION and now >= self._lease.ends_at:
            self._lapse()

    def _idle(self) -> None:
        text = f"the application has not asked for messages for {self.options.max_poll_interval_s:g} s"
        log.warning("group %r, member %r: %s; leaving until it does (max.poll.interval)", self.options.group, self._name, text)
        self._part(text)
        self._move(Event.IDLE)

    def _lapse(self) -> None:
        text = "no word of the coordinator in time; its partitions may be others' now"
        log.warning("group %r, member %r: %s", self.options.group, self._name, text)
        if self.state is State.LEAVING:
            self._lose()
            self._farewell = None
        else:
            self._lapsed("the session has ended by the member's own clock")

    @abc.abstractmethod
    def _lapsed(self, reason: str) -> None:
        """It goes on without what it had."""

    def _go_on(self, now: float) -> None:
        """The steps that wait for nothing but the application."""
        if self.state is State.LEAVING and self._is_done:
            self._move(Event.GONE)
            self.generation, self._name = NO_GENERATION, ""

    @property
    def _has_finished(self) -> bool:
        """Nothing of what it had keeps it from saying good-bye."""
        return self._have.settled and not self._commits

    @property
    def _is_done(self) -> bool:
        """Everybody knows that it leaves."""
        return self._has_finished and self._farewell is None and Kind.LEAVE not in self._flying

    @abc.abstractmethod
    def _begin(self, reason: str) -> None:
        """It will join: nothing of the last try matters any more."""

    @property
    def trouble(self) -> KafkaException | None:
        """What a request met that is tried again."""
        return next(iter(self._troubles.values()), None)

    # -- requests
    @abc.abstractmethod
    def _asks(self, now: float) -> list[Ask | None]:
        """What is to be sent now."""

    def _may_ask(self, kind: Kind, now: float) -> bool:
        """Is there a coordinator, and may such a request be sent to it?"""
        return self.coordinator is not None and self._flying.may_send(kind, now)

    def _send(self, kind: Kind, request: Message, now: float, *, lane: Lane = Lane.CONTROL, timeout_s: float | None = None) -> Ask:
        to = None if kind in (Kind.FIND, Kind.NAMES) else self.coordinator
        return self._flying.sent(kind, Ask(request, to, lane, timeout_s or self._patience_s), now)

    def _find(self, now: float) -> Ask | None:
        wanted = self.state in self._in_group or self._farewell is not None or (self.state is State.LEAVING and not self._have.settled)
        if self.coordinator is None and wanted and self._flying.may_send(Kind.FIND, now):
            return self._send(Kind.FIND, coordinator_request(self.options.group), now)
        return None

    @abc.abstractmethod
    def _prepare_farewell(self, reason: str, *, static: bool) -> None:
        """What is to be said once everything is given up, if anything."""

    def farewell(self, now: float) -> Ask | None:
        """That of one that is leaving, before all is given up in order: the connections are about to be closed."""
        return self._say_farewell(now, at_once=True) if self.state is State.LEAVING else None

    def _say_farewell(self, now: float, *, at_once: bool = False) -> Ask | None:
        ready = at_once or self.state is not State.LEAVING or self._has_finished
        if self._farewell is None or not ready or not self._may_ask(Kind.LEAVE, now):
            return None
        request, self._farewell = self._farewell, None
        return self._send(Kind.LEAVE, request, now)

    @property
    @abc.abstractmethod
    def _beats(self) -> bool:
        """Does it send heartbeats?"""

    def _wake_at(self, now: float) -> float:
        times = self._flying.wakes_at(now)
        times += [ticket.until for ticket in self._commits]
        if self.state in self._in_group:
            times.append(self._polled_at + self.options.max_poll_interval_s)
        if self.generation != NO_GENERATION and self._have.any:
            times.append(self._lease.ends_at)
        if self._beats and self.coordinator is not None and Kind.BEAT not in self._flying:
            times.append(max(self._beat_at, self._flying.paused_until(Kind.BEAT)))
        return min(times, default=NEVER)

    # -- what came ---------------------------------------------------------------------------------------------------------
    def on_answer(self, ask: Ask, response: Any, error: KafkaException | None, now: float) -> None:
        """Take an answer, or why there is none. One to a request that does not matter any more is nothing.

        Whoever is interrupted meanwhile says it again, as a failure: what was taken in by half is asked once more.
        """
        reading = self._reading
        if reading is None or reading[0] is not ask:
            found = self._flying.find(ask)
            if found is None:
                return
            reading = self._reading = ask, *found
        _, kind, sent_at = reading
        newer = self._flying.get(kind)
        if newer is None or newer is ask:
            self._flying.forget(kind)
            if self.state not in (State.LEFT, State.FATAL):
                self._read(kind, sent_at, ask, response, error, now)
        self._reading = None

    def _read(self, kind: Kind, sent_at: float, ask: Ask, response: Any, error: KafkaException | None, now: float) -> None:
        if error is None:
            error = _error_of(ask, response, self.options.group)
        elif isinstance(error, AuthenticationError):
            error = self._turned_away(error)
        answer = Answer(ask, response, sent_at, now)
        read, read_failure = self._readers[kind]
        if error is None:
            self._flying.succeeded(kind)
            self._troubles.pop(kind, None)
            read(self, answer)
        else:
            read_failure(self, answer, error)

    def _turned_away(self, error: AuthenticationError) -> KafkaException:
        """The application is told, but not more often than it listens. To the membership it is as no connection: the credentials may be right again."""
        if not any(isinstance(problem, AuthenticationError) for problem in self._problems):
            self._report(error)
        return ConnectionFailedError(str(error), broker=error.broker)

    def _pause(self, kind: Kind, error: KafkaException, now: float) -> None:
        until = self._flying.pause(kind, now)
        if isinstance(error, UnknownError) and not isinstance(self._troubles.get(kind), UnknownError):
            log.warning("group %r, member %r: %s; it is tried again for as long as that lasts", self.options.group, self._name, error)
        self._troubles[kind] = error
        log.debug("group %r, member %r: %s; again in %.3f s", self.options.group, self._name, error, until - now)

    def _look_at_coordinator(self, error: KafkaException, asked: Address | None) -> None:
        """Is it where it was? Unknown after a connection's end, too."""
        if asked != self.coordinator:
            return
        if not isinstance(error, BrokerError) or error.stale is COORDINATOR or isinstance(error, RequestTimedOut):
            self.coordinator = None

    # -- FindCoordinator
    def _found(self, answer: Answer) -> None:
        self.coordinator = coordinator_of(answer.response)

    def _not_found(self, answer: Answer, error: KafkaException) -> None:
        if passes(error):
            self._pause(Kind.FIND, error, answer.now)
            if self.state is State.LEAVING and not self._may_try_farewell(error):
                self._farewell = None
        else:
            self._break(error)

    # -- good-bye
    def _left(self, answer: Answer) -> None:
        """It was the last word of a membership, whatever came of it: the session's end does the same."""
        log.debug("group %r: the good-bye was heard", self.options.group)

    def _not_left(self, answer: Answer, error: KafkaException) -> None:
        """Who leaves says it again: its partitions would be nobody's until the session ends. The coordinator may be another one, or have ended."""
        log.debug("group %r: %s", self.options.group, error)
        self._look_at_coordinator(error, answer.ask.to)
        is_silent = isinstance(error, KafkaTimeoutError)  # whoever waits for this has waited long enough
        if self.state is not State.LEAVING or not passes(error):
            return
        if is_silent:
            self._nobody_heard(error)
        elif self._may_try_farewell(error):
            self._farewell = answer.ask.request
            self._pause(Kind.LEAVE, error, answer.now)

    def _may_try_farewell(self, error: KafkaException) -> bool:
        """After a failure: was it not the last try? The session's end does the same, and nobody waits for ever."""
        self._farewell_failures += 1
        if self._farewell_failures < FAREWELL_TRIES:
            return True
        self._nobody_heard(error)
        return False

    def _nobody_heard(self, error: KafkaException) -> None:
        log.warning(
            "group %r: nobody heard that a member leaves, its partitions are nobody's until its session ends: %s", self.options.group, error
        )

    # -- the end of a membership -------------------------------------------------------------------------------------------
    def _fenced(self, error: KafkaException) -> None:
        """The coordinator does not know the member, or not in this generation: others may have its partitions already."""
        if isinstance(error, FencedInstanceId):
            self._break(error)
        else:
            self._put_out(error)

    @abc.abstractmethod
    def _put_out(self, error: KafkaException) -> None:
        """It is no member any more, and may become one again."""

    @abc.abstractmethod
    def _part(self, reason: str) -> None:
        """Everything is lost, and the coordinator is told, in case it still counts on the member."""

    def _reset(self, reason: str) -> None:
        if self.state in self._in_group:
            self._begin(reason)
            self._move(Event.RESET)

    def _lose(self) -> None:
        if self._have.any:
            self.losses += 1
            log.warning(
                "group %r, member %r: it has lost %s",
                self.options.group,
                self._name,
                partitions_named([*self._have.leaving, *self._have.owned]),
            )
        self._have.lose()
        self.generation = NO_GENERATION

    def _break(self, error: KafkaException) -> None:
        self.error = error
        self._report(error)
        self._lose()
        for kind in Kind:
            self._flying.forget(kind)
        self._farewell = None
        self._move(Event.BROKEN)

    def _report(self, problem: KafkaException) -> None:
        log.error("group %r, member %r: %s", self.options.group, self._name, problem)
        self._problems.append(problem)


def passes(error: KafkaException) -> bool:
    """May the same request be answered well later? So may what the coordinator does not know how to answer: another member's metadata, which it
    cannot read, are in the way until that member is gone (Kafka 4: UNKNOWN_SERVER_ERROR). What cannot be written down never can be.
    """
    return error.retriable or isinstance(error, UnknownError) or not isinstance(error, (BrokerError, SerializationError))


def _error_of(ask: Ask, response: Any, group: str) -> KafkaException | None:
    """What an answer refuses."""
    about: dict[str, Any] = {"group": group, "api": ask.request.API.name, "broker": None if ask.to is None else ask.to[0]}
    if isinstance(ask.request, MetadataRequest):
        return None  # each topic has its own
    if isinstance(ask.request, FindCoordinatorRequest):
        try:
            coordinator_of(response, group=group, broker=about["broker"])
        except KafkaException as error:
            return error
        return None
    return error_for(response.error_code, getattr(response, "error_message", None), **about)


class MakeMachine(Protocol):
    """How one is made."""

    def __call__(self, options: Any, topics: Iterable[str], *, backoff: Backoff, chance: Chance) -> GroupMachine: ...
