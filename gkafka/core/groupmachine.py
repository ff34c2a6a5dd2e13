"""A member of a group, whichever protocol it speaks: what it has, what it may commit, where its coordinator is, and when all that ends.

It waits for nothing and sends nothing: `poll(now)` returns a Plan, `on_answer` takes the outcome of a request, `ownership.told` that a callback has
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
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, NamedTuple, Protocol

from gkafka.brokererrors import AuthenticationError, FencedInstanceId, KafkaException
from gkafka.common import TopicPartition
from gkafka.core.backoff import Backoff, Chance
from gkafka.core.consumergroupstate import ConsumerGroupOptions
from gkafka.core.coordinatorrequests import Answer, CoordinatorRequests, Kind, passes
from gkafka.core.farewell import Farewell
from gkafka.core.groupleader import Election, Made
from gkafka.core.groupstate import (
    NEVER,
    NO_GENERATION,
    Ask,
    Event,
    GroupOptions,
    Moves,
    Plan,
    State,
    Ticket,
    Verdict,
)
from gkafka.core.lease import Lease
from gkafka.core.offsets import coordinator_of
from gkafka.core.ownership import Ownership
from gkafka.core.tickets import Tickets
from gkafka.errortexts import partitions_named
from gkafka.exceptions import ConnectionFailedError
from gkafka.logs import get_logger
from gkafka.wire.schema import Message

__all__ = ["GroupMachine", "MakeMachine", "Readers", "Rules"]

log = get_logger(__name__)

Readers = Mapping[type[Message], tuple[Callable[..., None], Callable[..., None]]]
"""What to do with the answer to each request, and with a refusal or the lack of one."""


class Rules(NamedTuple):
    """What differs between the protocols.

    moves: the states. in_group: those of a member; joined: those of them that need a generation.
    committing: states in which the coordinator takes commits. fences: errors by which it is no member
    any more. passing: errors of a commit that need only be tried again.
    """

    moves: Moves
    in_group: tuple[State, ...]
    joined: tuple[State, ...]
    committing: tuple[State, ...]
    fences: tuple[type[KafkaException], ...]
    passing: tuple[type[KafkaException], ...]


class GroupMachine(abc.ABC):
    """generation, member_id: of the membership in force; NO_GENERATION and "" for none. error: why the state is FATAL.

    rebalances: how often it was given another assignment. is_leader: whether it divides the
    partitions of the generation. is_interruption(error): whether an assignor's error is a signal
    handler's.

    The driver asks three parts directly. ownership: what the member has, and what the application is
    to be told of that. lease: until when the member has it. requests: what the coordinator was
    asked, and where it is.

    What a protocol says of itself: _rules and _readers.

    How a membership ends, with the hooks of a protocol in the order in which they are called:

        the owner stops it    leave(): LEAVE, what it has is given up, _prepare_farewell(); then, by _go_on() and _asks(): callbacks and commits
                              come to their end, the farewell is sent and answered or given up, GONE
        the application is    _part(), IDLE; the farewell goes out while it is AWAY; polled(): _begin(), WANTED
        silent
        its own clock         _lapsed(): _lose() or _part(), then _reset(); of one that is LEAVING: _lose(), no farewell, and GONE as above
        the coordinator       _put_out(): _lose(), its name if that is gone, too, then _reset(); of one that is LEAVING: _lose(), no farewell, and
        does not know it      GONE as above
        nothing can be done   _break(): _lose(), no request or farewell counts any more, BROKEN, the error is reported

    _part() is _lose() with a farewell of the membership that ends; who writes it by what _lose() forgets, writes it first. _reset() is _begin(),
    then RESET. So in each of them what it has is lost before the state changes, and the move is the last step: whoever is asked in between
    (`delivered`, `grant`) gives nothing. A protocol that overrides _lose() calls the one here first. A member that is joining already,
    under no name of the membership that ended, goes on with that and is not reset.

    A driver may be interrupted between any two steps. Nothing mends the step: restart() asks and tells
    again what the state needs.
    """

    options: GroupOptions | ConsumerGroupOptions
    _rules: ClassVar[Rules]
    _readers: ClassVar[Readers]

    def __init__(
        self, options: Any, topics: Iterable[str], *, backoff: Backoff, chance: Chance, name: str = "", patience_s: float = 0.0
    ) -> None:
        """name: the id by which the coordinator knows the member, or will. patience_s: how long a
        request may take; a third of the session at least."""
        self.options = options
        self.state = State.AWAY
        self.generation = NO_GENERATION
        self.error: KafkaException | None = None
        self.rebalances = 0
        self.is_leader = False
        self.is_interruption: Callable[[BaseException], bool] = lambda _: False
        self._name = name
        self._topics = frozenset(topics)
        self.ownership = Ownership()
        self.lease = Lease(options.session_timeout_s, options.rebalance_timeout_s)
        self._polled_at = 0.0
        self.requests = CoordinatorRequests(options.group, max(options.session_timeout_s / 3, patience_s), backoff, chance)
        self._farewell = Farewell(options.group)
        self.tickets = Tickets()
        self._problems: list[KafkaException] = []

    @property
    def member_id(self) -> str:
        return self._name

    def _move(self, event: Event) -> None:
        before, self.state = self.state, self._rules.moves[self.state, event]
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
        if self.state not in (State.AWAY, *self._rules.in_group):
            return
        log.info("group %r, member %r: leaving, %s", self.options.group, self._name, reason)
        self._move(Event.LEAVE)
        self._give_all_up(reason, static=static)

    def _give_all_up(self, reason: str, *, static: bool = False) -> None:
        if self.generation == NO_GENERATION:
            self.ownership.lose()
        else:
            self.ownership.give_up(list(self.ownership.owned))
        self._prepare_farewell(reason, static=static)

    @property
    def is_over(self) -> bool:
        """Nothing is to be asked or told any more; what is told last may still be under way."""
        return self.state is State.LEFT or (self.state is State.FATAL and not self.ownership.is_waiting)

    def restart(self, now: float) -> None:
        """Begin anew from the state, after an interruption of a step here or of the driver.

        No request is under way any more, and answers to earlier ones do not count: poll() asks again
        for what the state needs. `ownership.running` is to be told again.
        """
        self.requests.restart(now)
        self.ownership.restart()
        if self.generation == NO_GENERATION:
            self._lose()
        if self.error is not None and self.state is not State.FATAL:
            self._break(self.error)
        elif self.state is State.LEAVING:
            self._give_all_up("it had begun to leave")
        elif self.state in self._rules.joined and self.generation == NO_GENERATION:
            self._reset("the membership had ended")

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
        return self.ownership.owned if now < self.lease.ends_at else {}

    def takes_commits(self, now: float) -> bool:
        """Is this a moment for commits? If not, there may be one after the rebalance; if so, what gets no ticket is not the member's any more."""
        return self.state in self._rules.committing and self.generation != NO_GENERATION and now < self.lease.ends_at

    def grant(self, ticket: Ticket, partitions: Mapping[TopicPartition, int], now: float) -> bool:
        """Make it the right to commit what was delivered under these terms, as far as it is still the member's. False: not at this moment.

        What is given up is not free before the ticket's end: `on_commit`, or its caller's `is_over`, or `until`.
        """
        allowed = self.ownership.may_commit(partitions) if self.takes_commits(now) else None
        if not allowed:
            return False
        self.tickets.grant(ticket, self.generation, self._name, allowed)
        return True

    def on_commit(self, ticket: Ticket, error: KafkaException | None, now: float) -> Verdict:
        """What the worst error of a commit's answer, or the lack of one, means."""
        self.tickets.end(ticket)
        if error is None:
            return Verdict.DONE
        if isinstance(error, self._rules.passing):
            return Verdict.RETRY
        if isinstance(error, (FencedInstanceId, *self._rules.fences)):
            if not self._is_in_force(ticket):
                return Verdict.RETRY  # it was of an earlier one; a new ticket tells what is still owned
            self._fenced(error)
            return Verdict.FAILED
        self.requests.doubt(error, self.requests.coordinator)
        return Verdict.RETRY if error.retriable else Verdict.FAILED

    @abc.abstractmethod
    def _is_in_force(self, ticket: Ticket) -> bool:
        """Is it of this membership, so that what its commit is told is meant for it?"""

    # -- what to do --------------------------------------------------------------------------------------------------------
    def poll(self, now: float) -> Plan:
        """To be asked after every answer, callback and wish, and at wake_at."""
        self._watch_clock(now)
        self._go_on(now)
        asks = [ask for ask in self._asks(now) if ask is not None]
        problems, self._problems = self._problems, []
        topics = election.topics if (election := self.election) is not None else None
        return Plan(asks, self.ownership.next(), topics, problems, self._wake_at(now))

    def _watch_clock(self, now: float) -> None:
        self.tickets.expire(now)
        if self.state in self._rules.in_group and now >= self._polled_at + self.options.max_poll_interval_s:
            self._idle()
        # Who has nothing loses nothing: it may have been parked, or without a coordinator, for longer than a session.
        if self.ownership.any and self.generation != NO_GENERATION and now >= self.lease.ends_at:
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
            self._farewell.request = None
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
        return self.ownership.settled and not self.tickets

    @property
    def _is_done(self) -> bool:
        """Everybody knows that it leaves."""
        return self._has_finished and self._has_taken_leave

    @property
    def _has_taken_leave(self) -> bool:
        """No farewell is to be said, or under way."""
        return self._farewell.request is None and Kind.LEAVE not in self.requests

    @abc.abstractmethod
    def _begin(self, reason: str) -> None:
        """It will join: nothing of the last try matters any more."""

    # -- requests
    @abc.abstractmethod
    def _asks(self, now: float) -> list[Ask | None]:
        """What is to be sent now."""

    def _find(self, now: float) -> Ask | None:
        is_there = self.state in self._rules.in_group or (self.state is State.LEAVING and not self.ownership.settled)
        return self.requests.find(now) if is_there or self._farewell.request is not None else None

    @abc.abstractmethod
    def _prepare_farewell(self, reason: str, *, static: bool) -> None:
        """What is to be said once everything is given up, if anything."""

    def farewell(self, now: float) -> Ask | None:
        """That of one that is leaving, before all is given up in order: the connections are about to be closed."""
        return self._say_farewell(now, at_once=True) if self.state is State.LEAVING else None

    def _say_farewell(self, now: float, *, at_once: bool = False) -> Ask | None:
        ready = at_once or self.state is not State.LEAVING or self._has_finished
        if self._farewell.request is None or not ready or not self.requests.may_send(Kind.LEAVE, now):
            return None
        return self.requests.send(Kind.LEAVE, self._farewell.request, now)

    @property
    @abc.abstractmethod
    def _beats_at(self) -> float:
        """When the next heartbeat is due; NEVER if none is."""

    def _wake_at(self, now: float) -> float:
        times = self.requests.wakes_at(now) + self.tickets.wakes_at()
        if self.state in self._rules.in_group:
            times.append(self._polled_at + self.options.max_poll_interval_s)
        if self.generation != NO_GENERATION and self.ownership.any:
            times.append(self.lease.ends_at)
        if self.requests.coordinator is not None and Kind.BEAT not in self.requests:
            times.append(max(self._beats_at, self.requests.paused_until(Kind.BEAT)))
        return min(times, default=NEVER)

    # -- what came ---------------------------------------------------------------------------------------------------------
    def on_answer(self, ask: Ask, response: Any, error: KafkaException | None, now: float) -> None:
        """Take an answer, or why there is none. One to a request that does not matter any more is nothing."""
        if isinstance(error, AuthenticationError) and self.requests.is_under_way(ask):
            error = self._turned_away(error)
        answer = self.requests.take(ask, response, error, now)
        if answer is not None and self.state not in (State.LEFT, State.FATAL):
            read, read_failure = self._readers[type(ask.request)]
            if answer.error is None:
                read(self, answer)
            else:
                read_failure(self, answer, answer.error)

    def _turned_away(self, error: AuthenticationError) -> KafkaException:
        """The application is told, but not more often than it listens. To the membership it is as no connection: the credentials may be right again."""
        if not any(isinstance(problem, AuthenticationError) for problem in self._problems):
            self._report(error)
        return ConnectionFailedError(str(error), broker=error.broker)

    def _failed(self, answer: Answer, error: KafkaException, *passing: type[KafkaException]) -> None:
        """End the membership, or try a request again, after this failure of it.

        passing: errors after which to try again, besides those that always pass.
        """
        if isinstance(error, (FencedInstanceId, *self._rules.fences)):
            self._fenced(error)
        elif not passes(error) and not isinstance(error, passing):
            self._break(error)
            return
        self.requests.doubt(error, answer.ask.to)
        self.requests.pause(answer.kind, error, answer.now)

    # -- FindCoordinator
    def _found(self, answer: Answer) -> None:
        self.requests.coordinator = coordinator_of(answer.response)

    def _not_found(self, answer: Answer, error: KafkaException) -> None:
        self._failed(answer, error)
        if self.state is State.LEAVING and not self._farewell.may_try(error):
            self._farewell.request = None

    # -- good-bye
    def _left(self, answer: Answer) -> None:
        """It was the last word of a membership, whatever came of it: the session's end does the same."""
        log.debug("group %r: the good-bye was heard", self.options.group)
        self._farewell.over(answer.ask.request)

    def _not_left(self, answer: Answer, error: KafkaException) -> None:
        """Who leaves says it again: its partitions would be nobody's until the session ends. The coordinator may be another one, or have ended."""
        log.debug("group %r: %s", self.options.group, error)
        self.requests.doubt(error, answer.ask.to)
        if self.state is State.LEAVING and passes(error) and self._farewell.may_repeat(error):
            self.requests.pause(Kind.LEAVE, error, answer.now)
        else:
            self._farewell.over(answer.ask.request)

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
        if self.state in self._rules.in_group:
            self._begin(reason)
            self._move(Event.RESET)

    def _lose(self) -> None:
        if self.ownership.any:
            named = partitions_named([*self.ownership.leaving, *self.ownership.owned])
            log.warning("group %r, member %r: it has lost %s", self.options.group, self._name, named)
        self.generation = NO_GENERATION  # first: who begins anew without one has lost everything
        self.ownership.lose()

    def _break(self, error: KafkaException) -> None:
        self.error = error
        self._lose()
        self.requests.forget(*Kind)
        self._farewell.request = None
        self._move(Event.BROKEN)
        self._report(error)

    def _report(self, problem: KafkaException) -> None:
        log.error("group %r, member %r: %s", self.options.group, self._name, problem)
        self._problems.append(problem)


class MakeMachine(Protocol):
    """How one is made."""

    def __call__(self, options: Any, topics: Iterable[str], *, backoff: Backoff, chance: Chance) -> GroupMachine: ...
