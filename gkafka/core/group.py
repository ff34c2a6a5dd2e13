"""A member of a classic group: when it joins, what it has, what it may commit, and what an answer, or none, means for that.

It waits for nothing and sends nothing: `poll(now)` returns a Plan, `on_answer` takes the outcome of a request, `told` that a callback has
returned. `groupstate.MOVES` is the picture of its states.

What it promises: a partition is delivered (`delivered`) only while no other member can have it. So what it has ends, by its own clock, when
the coordinator may have given up waiting for it: counted from when it sent the last request that was answered well, because the coordinator
counts from when that arrived. What ends in this way is told as lost; nothing of it can be committed any more. What is given up in order is
told as revoked: its offsets can be committed until the callback has returned, and only then the member joins again.

Heartbeats run beside everything else, also while a JoinGroup is parked: they say that the member is alive, and that the coordinator is.
A coordinator that moves, or cannot be reached for a while, takes nothing from a member; it is looked for until the session has ended.

Source: KIP-62, KIP-134, KIP-345, KIP-394, KIP-429, KIP-559, KIP-792, KIP-800, KIP-814; AbstractCoordinator.java, ConsumerCoordinator.java
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from gkafka.brokererrors import (
    COORDINATOR,
    BrokerError,
    FencedInstanceId,
    IllegalGeneration,
    InconsistentGroupProtocol,
    KafkaException,
    MemberIdRequired,
    RebalanceInProgress,
    RequestTimedOut,
    UnknownMemberId,
    error_for,
)
from gkafka.common import TopicPartition
from gkafka.core.assignors import Assignor, GroupMember, Topics
from gkafka.core.backoff import Backoff
from gkafka.core.flights import Flights
from gkafka.core.groupleader import make, read_members
from gkafka.core.grouprequests import Membership, commit, find, heartbeat, join, leave, sync
from gkafka.core.groupstate import (
    IN_GROUP,
    MOVES,
    NEVER,
    NO_GENERATION,
    Address,
    Ask,
    Event,
    GroupOptions,
    Lane,
    Plan,
    State,
    Tell,
    Ticket,
    Verdict,
)
from gkafka.core.lease import Lease
from gkafka.core.offsets import coordinator_of
from gkafka.core.ownership import Ownership
from gkafka.exceptions import ProtocolError
from gkafka.wire.consumerprotocol import flattened, read_assignment
from gkafka.wire.groups import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from gkafka.wire.offsets import OffsetCommitRequest
from gkafka.wire.schema import Message

if TYPE_CHECKING:
    from random import Random

__all__ = ["Group"]

log = logging.getLogger(__name__)

COMMITTING = (State.STABLE, State.PREPARING, State.LEAVING)
PARKED_LONGER_S = 5.0  # a join may be answered at the very end of the rebalance timeout: the answer needs a moment, too
FENCES = (UnknownMemberId, IllegalGeneration)


class Kind(enum.Enum):
    """What a request is for. ROUND: JoinGroup and SyncGroup, never two at a time (B55)."""

    FIND = "find"
    ROUND = "round"
    BEAT = "beat"
    LEAVE = "leave"


class Group:
    """The machine. generation, member_id: of the membership in force; NO_GENERATION and "" for none. error: why the state is FATAL.

    rebalances: generations that it was in. losses: how often everything was lost. is_leader: does it divide the partitions of the generation?
    """

    def __init__(self, options: GroupOptions, topics: Iterable[str], *, backoff: Backoff, chance: Random) -> None:
        self.options = options
        self.state = State.AWAY
        self.generation = NO_GENERATION
        self.member_id = ""
        self.error: KafkaException | None = None
        self.coordinator: Address | None = None
        self.rebalances = self.losses = 0
        self.is_leader = False
        self._topics = frozenset(topics)
        self._have = Ownership()
        self._last: tuple[TopicPartition, ...] | None = None  # the last assignment, for assignors that want to know, and its generation
        self._last_generation = NO_GENERATION
        self._claimed: frozenset[TopicPartition] = frozenset()  # what the last JoinGroup told that it had
        self._protocol: Assignor | None = None
        self._members: list[GroupMember] = []
        self._made: list[SyncGroupRequestAssignment] = []
        self._rejoin: str | None = None  # why the generation shall end, and what JoinGroup tells as its reason (KIP-800)
        self._problems: list[KafkaException] = []
        self._polled_at = 0.0
        self._prepared_by = NEVER
        self._lease = Lease(options.session_timeout_s, options.rebalance_timeout_s)
        self._beat_at = 0.0
        self._farewell: LeaveGroupRequest | None = None
        self._commits: list[Ticket] = []
        self._flying: Flights[Kind, Ask] = Flights(Kind, backoff, chance)

    def _move(self, event: Event) -> None:
        before, self.state = self.state, MOVES[self.state, event]
        if before is not self.state:
            log.debug("group %r, member %r: %s, %s", self.options.group, self.member_id, event.value, self.state.value)

    # -- what the application and its driver say ---------------------------------------------------------------------------
    def polled(self, now: float) -> None:
        """The application asks for messages. The first time, and after a silence, the member joins."""
        self._polled_at = now
        if self.state is State.AWAY:
            self._begin("the application asks for messages")
            self._move(Event.WANTED)

    def subscribe(self, topics: Iterable[str]) -> None:
        """Other topics from now on."""
        if frozenset(topics) != self._topics:
            self._topics = frozenset(topics)
            self.rejoin("the subscription has changed")

    def rejoin(self, reason: str) -> None:
        """The assignment is to be made anew: the number of a topic's partitions has changed, or the application wants it."""
        if self.state in IN_GROUP:
            self._rejoin = self._rejoin or reason

    def leave(self, reason: str, *, static: bool = False) -> None:
        """For good: partitions are given up in order, then the coordinator is told. static: also that of a static member, whose partitions
        otherwise wait for it to come back, for the length of the session (KIP-345).
        """
        if self.state not in (State.AWAY, *IN_GROUP):
            return
        self._move(Event.LEAVE)
        if self.generation == NO_GENERATION:
            self._have.lose()
        else:
            self._have.give_up(list(self._have.owned))
        self._rejoin = reason
        if self.options.instance_id is None or static:
            self._farewell = leave(self._membership(), reason) if self.member_id else None

    def told(self, tell: Tell) -> None:
        """The callback for it has returned."""
        self._have.told()

    def give_topics(self, topics: Topics) -> None:
        """The partitions of the topics that a plan asked for; those that do not exist are left out."""
        if self.state is not State.ASSIGNING:
            return
        assert self._protocol is not None  # ELECTED comes with it
        made = make(self._protocol, topics, self._members)
        if made.problem is not None:
            self._report(made.problem)
        self._made, self._members = made.assignments, []
        self._move(Event.ASSIGNED)

    # -- what it has -------------------------------------------------------------------------------------------------------
    def delivered(self, now: float) -> Mapping[TopicPartition, int]:
        """The partitions whose messages the application may have now, each with its term; to be asked for at each delivery."""
        return self._have.owned if now < self._lease.ends_at else {}

    @property
    def terms(self) -> Mapping[TopicPartition, int]:
        """The term of each partition that is the member's, or is being given up: what commit_ticket() may be asked for."""
        return {**self._have.leaving, **self._have.owned}

    def takes_commits(self, now: float) -> bool:
        """Is this a moment for commits? If not, there may be one after the rebalance; if so, what gets no ticket is not the member's any more."""
        return self.state in COMMITTING and self.generation != NO_GENERATION and now < self._lease.ends_at

    def commit_ticket(self, partitions: Mapping[TopicPartition, int], now: float) -> Ticket | None:
        """The right to commit what was delivered under these terms, as far as it is still the member's; None if not at this moment.

        Between JoinGroup and the assignment the coordinator takes no commits. Each ticket ends with `on_commit`.
        """
        allowed = self._have.may_commit(partitions) if self.takes_commits(now) else None
        if not allowed:
            return None
        ticket = Ticket(self.generation, self.member_id, allowed)
        self._commits.append(ticket)
        return ticket

    def commit_request(self, ticket: Ticket, offsets: Mapping[TopicPartition, tuple[int, str]]) -> OffsetCommitRequest:
        """offsets: (next offset, metadata); what the ticket does not hold is left out."""
        allowed = {tp: offset for tp, offset in offsets.items() if tp in ticket.partitions}
        return commit(self.options, ticket, allowed)

    def on_commit(self, ticket: Ticket, error: KafkaException | None, now: float) -> Verdict:
        """What the worst error of a commit's answer, or the lack of one, means."""
        self._commits.remove(ticket)
        if error is None:
            return Verdict.DONE
        if isinstance(error, (FencedInstanceId, *FENCES)):
            if (ticket.generation, ticket.member_id) != (self.generation, self.member_id):
                return Verdict.RETRY  # it was of an earlier generation; a new ticket tells what is still owned
            self._fenced(error)
            return Verdict.FAILED
        if isinstance(error, RebalanceInProgress):
            if self.state is State.STABLE and ticket.generation == self.generation:
                self.rejoin("an offset commit was told of a rebalance")
            return Verdict.RETRY
        self._look_at_coordinator(error, self.coordinator)
        return Verdict.RETRY if error.retriable else Verdict.FAILED

    # -- what to do --------------------------------------------------------------------------------------------------------
    def poll(self, now: float) -> Plan:
        """To be asked after every answer, callback and wish, and at wake_at."""
        self._watch_clock(now)
        self._go_on(now)
        asks = self._asks(now)
        topics = frozenset().union(*(m.topics for m in self._members)) if self.state is State.ASSIGNING else None
        problems, self._problems = self._problems, []
        return Plan(asks, self._have.next(), topics, problems, self._wake_at(now))

    def _watch_clock(self, now: float) -> None:
        if self.state in IN_GROUP and now >= self._polled_at + self.options.max_poll_interval_s:
            self._idle()
        # Who has nothing loses nothing: its JoinGroup may have been parked for longer than a session.
        if self._have.any and self.generation != NO_GENERATION and now >= self._lease.ends_at:
            self._lapse()

    def _idle(self) -> None:
        text = f"the application has not asked for messages for {self.options.max_poll_interval_s:g} s"
        log.warning("group %r, member %r: %s; leaving until it does (max.poll.interval)", self.options.group, self.member_id, text)
        if self.options.instance_id is None and self.member_id:
            self._farewell = leave(self._membership(), text)
            self.member_id = ""
        self._lose()
        self._flying.forget(Kind.ROUND)
        self._move(Event.IDLE)

    def _lapse(self) -> None:
        log.warning(
            "group %r, member %r: no word of the coordinator in time; its partitions may be others' now", self.options.group, self.member_id
        )
        self._lose()
        if self.state in (State.ASSIGNING, State.SYNCING, State.STABLE):
            self._reset("the session has ended by the member's own clock")
        elif self.state is State.LEAVING:
            self._farewell = None

    def _go_on(self, now: float) -> None:
        """The steps that wait for nothing but the application."""
        if self.state is State.STABLE and self._rejoin is not None:
            self._begin(self._rejoin)
            self._move(Event.REBALANCE)
        if self.state is State.PREPARING:
            self._prepare(now)
        if self.state is State.LEAVING and self._is_done:
            self.generation, self.member_id = NO_GENERATION, ""
            self._move(Event.GONE)

    @property
    def _is_done(self) -> bool:
        """Everybody knows that it leaves. Before KIP-394 the answer to the first JoinGroup tells by what name the coordinator knows it."""
        nameless = Kind.ROUND in self._flying and not self.member_id
        return self._have.settled and not (self._commits or nameless or self._farewell or Kind.LEAVE in self._flying)

    def _begin(self, reason: str) -> None:
        self._rejoin = reason
        self._prepared_by = NEVER

    def _prepare(self, now: float) -> None:
        """Give up what must be, and let commits under way come to their end: they would be refused once the generation has changed."""
        if self._prepared_by == NEVER:
            self._prepared_by = now + self.options.rebalance_timeout_s
            log.info("group %r, member %r: joining, %s", self.options.group, self.member_id, self._rejoin)
        given = [tp for tp in self._have.owned if not self._cooperative or tp.topic not in self._topics]
        self._have.give_up(given)
        if self._have.settled and (not self._commits or now >= self._prepared_by):
            self._move(Event.READY)

    @property
    def _cooperative(self) -> bool:
        return all(assignor.cooperative for assignor in self.options.assignors)

    # -- requests
    def _asks(self, now: float) -> list[Ask]:
        asks = [self._find(now), self._round(now), self._beat(now), self._say_farewell(now)]
        return [ask for ask in asks if ask is not None]

    def _send(self, kind: Kind, request: Message, now: float, *, lane: Lane = Lane.CONTROL, timeout_s: float | None = None) -> Ask:
        to = None if kind is Kind.FIND else self.coordinator
        ask = Ask(request, to, lane, timeout_s or max(self.options.session_timeout_s / 3, self.options.heartbeat_interval_s))
        return self._flying.sent(kind, ask, now)

    def _find(self, now: float) -> Ask | None:
        wanted = self.state in IN_GROUP or self._farewell is not None or (self.state is State.LEAVING and not self._have.settled)
        if self.coordinator is None and wanted and self._flying.may_send(Kind.FIND, now):
            return self._send(Kind.FIND, find(self.options), now)
        return None

    def _round(self, now: float) -> Ask | None:
        """JoinGroup or SyncGroup: never two at a time (B55)."""
        if self.coordinator is None or not self._flying.may_send(Kind.ROUND, now):
            return None
        if self.state is State.JOINING:
            request: Message = self._join()
        elif self.state is State.SYNCING:
            assert self._protocol is not None  # JOINED comes with it
            request = sync(self._membership(), self._protocol, self._made)
        else:
            return None
        return self._send(Kind.ROUND, request, now, lane=Lane.GROUP, timeout_s=self.options.rebalance_timeout_s + PARKED_LONGER_S)

    def _join(self) -> JoinGroupRequest:
        reason, self._rejoin = self._rejoin, None
        self._claimed = frozenset(self._have.owned)
        return join(self._membership(), self._topics, self._have.owned, self._last, self._last_generation, reason)

    def _membership(self) -> Membership:
        return Membership(self.options, self.generation, self.member_id)

    def _beat(self, now: float) -> Ask | None:
        if not self._beats or now < self._beat_at or not self._flying.may_send(Kind.BEAT, now):
            return None
        self._beat_at = now + self.options.heartbeat_interval_s
        return self._send(Kind.BEAT, heartbeat(self._membership()), now)

    @property
    def _beats(self) -> bool:
        """Does it send heartbeats, and has it somebody to send them to?"""
        is_there = self.state in IN_GROUP or (self.state is State.LEAVING and not self._have.settled)
        return is_there and self.generation != NO_GENERATION and self.coordinator is not None

    def _say_farewell(self, now: float) -> Ask | None:
        ready = self.state is not State.LEAVING or (self._have.settled and not self._commits)
        if self._farewell is None or not ready or self.coordinator is None or not self._flying.may_send(Kind.LEAVE, now):
            return None
        request, self._farewell = self._farewell, None
        return self._send(Kind.LEAVE, request, now)

    def _wake_at(self, now: float) -> float:
        times = self._flying.wakes_at(now)
        if self.state in IN_GROUP:
            times.append(self._polled_at + self.options.max_poll_interval_s)
        if self.generation != NO_GENERATION and self._have.any:
            times.append(self._lease.ends_at)
        if self._beats and Kind.BEAT not in self._flying:
            times.append(max(self._beat_at, self._flying.paused_until(Kind.BEAT)))
        if self.state is State.PREPARING and self._commits and self._prepared_by > now:
            times.append(self._prepared_by)
        return min(times, default=NEVER)

    # -- what came ---------------------------------------------------------------------------------------------------------
    def on_answer(self, ask: Ask, response: Any, error: KafkaException | None, now: float) -> None:
        """Take an answer, or why there is none. One to a request that does not matter any more is nothing."""
        landed = self._flying.landed(ask)
        if landed is None:
            return
        kind, sent_at = landed
        if self.state in (State.LEFT, State.FATAL):
            return
        if error is None:
            error = _error_of(ask, response, self.options.group)
        if error is None:
            self._flying.succeeded(kind)
            _READERS[type(ask.request)](self, ask, response, sent_at)
        else:
            _FAILURES[type(ask.request)](self, ask, response, error, sent_at, now)

    def _pause(self, kind: Kind, error: KafkaException, now: float) -> None:
        until = self._flying.pause(kind, now)
        log.debug("group %r, member %r: %s; again in %.3f s", self.options.group, self.member_id, error, until - now)

    def _look_at_coordinator(self, error: KafkaException, asked: Address | None) -> None:
        """Is it where it was? Unknown after a connection's end, too."""
        if asked != self.coordinator:
            return
        if not isinstance(error, BrokerError) or error.stale is COORDINATOR or isinstance(error, RequestTimedOut):
            self.coordinator = None

    # -- FindCoordinator
    def _found(self, ask: Ask, response: Any, sent_at: float) -> None:
        self.coordinator = coordinator_of(response)
        parked = self._flying.get(Kind.ROUND)
        if parked is not None and parked.to != self.coordinator:
            self._flying.forget(Kind.ROUND)  # at a broker that is it no more, or cannot be reached: nobody will complete it there

    def _not_found(self, ask: Ask, response: Any, error: KafkaException, sent_at: float, now: float) -> None:
        if error.retriable or not isinstance(error, BrokerError):
            self._pause(Kind.FIND, error, now)
            if self.state is State.LEAVING:
                self._farewell = None
        else:
            self._break(error)

    # -- JoinGroup
    def _joined(self, ask: Ask, response: Any, sent_at: float) -> None:
        if self.state is State.LEAVING and not self.member_id:
            self._farewell = leave(Membership(self.options, NO_GENERATION, response.member_id), self._rejoin or "")
        if self.state is not State.JOINING:
            return
        if response.generation_id < 0 or not response.member_id:
            text = f"generation {response.generation_id} of member {response.member_id!r} cannot be"
            self._break(ProtocolError(text, group=self.options.group, api="JoinGroup"))
            return
        self._protocol = next((a for a in self.options.assignors if a.name == response.protocol_name), None)
        if self._protocol is None or response.protocol_type not in (None, "consumer"):
            text = f"the coordinator chose protocol {response.protocol_name!r}, which is none of this member's"
            self._break(InconsistentGroupProtocol(text, group=self.options.group, api="JoinGroup"))
            return
        self.generation, self.member_id = response.generation_id, response.member_id
        self.is_leader = response.leader == response.member_id
        self.rebalances += 1
        self._lease.joined(sent_at)
        self._beat_at = 0.0
        self._made = []
        if response.leader != response.member_id or response.skip_assignment:
            self._move(Event.JOINED)
            return
        self._members, problems = read_members(response.members)
        for problem in problems:
            self._report(problem)
        self._move(Event.ELECTED)

    def _not_joined(self, ask: Ask, response: Any, error: KafkaException, sent_at: float, now: float) -> None:
        if self.state is not State.JOINING:
            return
        request: Any = ask.request
        self._rejoin = self._rejoin or request.reason
        if isinstance(error, MemberIdRequired) and response.member_id:
            self.member_id = response.member_id  # KIP-394: the same again, with it
        elif isinstance(error, FENCES):
            self._fenced(error)
            self._pause(Kind.ROUND, error, now)
        elif error.retriable or isinstance(error, (RebalanceInProgress, MemberIdRequired)) or not isinstance(error, BrokerError):
            self._look_at_coordinator(error, ask.to)
            self._pause(Kind.ROUND, error, now)
        else:
            self._break(error)

    # -- SyncGroup
    def _synced(self, ask: Ask, response: Any, sent_at: float) -> None:
        if self.state is not State.SYNCING or not self._is_mine(ask):
            return
        self._lease.settled(sent_at)
        self._made = []
        try:
            assigned = self._readable(response.assignment)
        except ProtocolError as error:
            self._report(error)
            assigned = [tp for tp in self._have.owned if tp.topic in self._topics]
        self._move(Event.SYNCED)
        self._take(assigned)

    def _readable(self, data: Any) -> list[TopicPartition]:
        """The assignment; what was not asked for, twice or impossible is left out, and told."""
        found = flattened(read_assignment(data, self.member_id).assigned_partitions)
        fit = [tp for tp in dict.fromkeys(found) if tp.topic in self._topics and tp.partition >= 0]
        if len(fit) < len(found) and self._rejoin is None:
            odd = next((tp for tp in found if tp not in fit), found[0])
            text = f"member {self.member_id!r}: its leader gave it {odd.topic}-{odd.partition}, which it did not ask for, or twice"
            self._report(ProtocolError(text, topic=odd.topic, partition=odd.partition, group=self.options.group, api="SyncGroup"))
        return fit

    def _take(self, assigned: Collection[TopicPartition]) -> None:
        """What is not assigned any more is given up first; then another round gives it to others (KIP-429)."""
        self._last, self._last_generation = tuple(assigned), self.generation
        kept = set(assigned)
        revoked = [tp for tp in self._have.owned if tp not in kept]
        self._have.give_up(revoked)
        if self._claimed - kept:  # also if it has lost them since: the leader has not, and keeps them from the others in this generation
            self.rejoin("some partitions were revoked")
        self._have.gain(tp for tp in assigned if tp not in self._have.owned)
        log.info("group %r, member %r, generation %d: %d partitions", self.options.group, self.member_id, self.generation, len(kept))

    def _not_synced(self, ask: Ask, response: Any, error: KafkaException, sent_at: float, now: float) -> None:
        if self.state is not State.SYNCING or not self._is_mine(ask):
            return
        if isinstance(error, FENCES):
            self._fenced(error)
        elif isinstance(error, RebalanceInProgress):
            self._again("the group is rebalancing")
        elif error.retriable or not isinstance(error, BrokerError):
            self._look_at_coordinator(error, ask.to)
            self._pause(Kind.ROUND, error, now)
        else:
            self._break(error)

    def _again(self, reason: str) -> None:
        self._begin(self._rejoin or reason)
        self._members, self._made = [], []
        self._flying.forget(Kind.ROUND)
        self._move(Event.REBALANCE)

    # -- Heartbeat
    def _beaten(self, ask: Ask, response: Any, sent_at: float) -> None:
        if self._is_mine(ask):
            heard = self._lease.settled if self.state is State.STABLE else self._lease.alive
            heard(sent_at)

    def _not_beaten(self, ask: Ask, response: Any, error: KafkaException, sent_at: float, now: float) -> None:
        if not self._is_mine(ask):
            return
        if isinstance(error, RebalanceInProgress):
            self._lease.alive(sent_at)
            if self.state is State.STABLE:
                self.rejoin("the group is rebalancing")
        elif isinstance(error, IllegalGeneration) and self.state is State.JOINING:
            self._beat_at = NEVER  # the answer to the JoinGroup, which tells the new one, is on its way
        elif isinstance(error, (FencedInstanceId, *FENCES)):
            self._fenced(error)
        else:
            self._look_at_coordinator(error, ask.to)
            self._pause(Kind.BEAT, error, now)
            self._beat_at = 0.0
            if isinstance(error, BrokerError) and not error.retriable:
                self._break(error)

    def _is_mine(self, ask: Ask) -> bool:
        """Was it sent by the membership in force?"""
        request: Any = ask.request
        return (request.generation_id, request.member_id) == (self.generation, self.member_id)

    # -- LeaveGroup
    def _left(self, ask: Ask, response: Any, sent_at: float) -> None:
        """It was the last word of a membership, whatever came of it: the session's end does the same."""

    def _not_left(self, ask: Ask, response: Any, error: KafkaException, sent_at: float, now: float) -> None:
        log.debug("group %r: %s; the coordinator will miss the heartbeats", self.options.group, error)

    # -- the end of a membership -------------------------------------------------------------------------------------------
    def _fenced(self, error: KafkaException) -> None:
        """The coordinator does not know the member, or not in this generation: others may have its partitions already."""
        if isinstance(error, FencedInstanceId):
            self._break(error)
            return
        self._lose()
        if isinstance(error, UnknownMemberId):
            self.member_id = ""
        if self.state is State.LEAVING:
            self._farewell = None
        elif self.state is not State.JOINING or Kind.ROUND not in self._flying:
            self._reset(f"{type(error).__name__}")

    def _reset(self, reason: str) -> None:
        if self.state in IN_GROUP:
            self._begin(reason)
            self._members, self._made = [], []
            self._flying.forget(Kind.ROUND)
            self._move(Event.RESET)

    def _lose(self) -> None:
        if self._have.any:
            self.losses += 1
            log.warning("group %r, member %r: its partitions are lost: %d", self.options.group, self.member_id, len(self._have.owned))
        self._have.lose()
        self._last, self._last_generation = None, NO_GENERATION
        self.generation, self.is_leader = NO_GENERATION, False

    def _break(self, error: KafkaException) -> None:
        self.error = error
        log.error("group %r, member %r: %s", self.options.group, self.member_id, error)
        self._lose()
        for kind in Kind:
            self._flying.forget(kind)
        self._farewell = None
        self._problems.append(error)
        self._move(Event.BROKEN)

    def _report(self, problem: KafkaException) -> None:
        log.error("group %r, member %r: %s", self.options.group, self.member_id, problem)
        self._problems.append(problem)


def _error_of(ask: Ask, response: Any, group: str) -> KafkaException | None:
    about: dict[str, Any] = {"group": group, "api": ask.request.API.name, "broker": None if ask.to is None else ask.to[0]}
    if isinstance(ask.request, FindCoordinatorRequest):
        try:
            coordinator_of(response, group=group, broker=about["broker"])
        except KafkaException as error:
            return error
        return None
    return error_for(response.error_code, **about)


_READERS: dict[type[Message], Callable[..., None]] = {
    FindCoordinatorRequest: Group._found,
    JoinGroupRequest: Group._joined,
    SyncGroupRequest: Group._synced,
    HeartbeatRequest: Group._beaten,
    LeaveGroupRequest: Group._left,
}
_FAILURES: dict[type[Message], Callable[..., None]] = {
    FindCoordinatorRequest: Group._not_found,
    JoinGroupRequest: Group._not_joined,
    SyncGroupRequest: Group._not_synced,
    HeartbeatRequest: Group._not_beaten,
    LeaveGroupRequest: Group._not_left,
}
