"""A member of a KIP-848 group: the coordinator assigns, the member tells what it has, heartbeat by heartbeat.

It has the verbs of `gkafka.core.group`, waits for nothing and sends nothing: `poll(now)` returns a Plan, `on_answer` takes the outcome of a
request, `told` that a callback has returned. `consumergroupstate.MOVES` is the picture of its states.

What it promises is the same, too: a partition is delivered only while no other member can have it. What it has ends, by its own clock, when the
coordinator may have given it up; then, and when it is fenced, it is told as lost. What the coordinator takes back is told as revoked, its
offsets can be committed until the callback has returned and these commits are over, and only then a heartbeat says that it is free.

The member makes up its own id (KIP-1082) and keeps it when it is fenced. After a good-bye that may have been late or lost it goes on under
another one: a good-bye that arrives in the end must not end the new membership. A static member's cannot, so it keeps its id.

Source: KIP-848, KIP-1082; AbstractMembershipManager.java, AbstractHeartbeatRequestManager.java, ConsumerHeartbeatRequestManager.java;
what the coordinator makes of it: GroupMetadataManager.java, CurrentAssignmentBuilder.java
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from gkafka.brokererrors import (
    COORDINATOR,
    BrokerError,
    FencedInstanceId,
    FencedMemberEpoch,
    GroupIdNotFound,
    IllegalGeneration,
    KafkaException,
    RequestTimedOut,
    StaleMemberEpoch,
    TopicAuthorizationFailed,
    UnknownMemberId,
    UnreleasedInstanceId,
    UnsupportedVersion,
)
from gkafka.common import TopicPartition
from gkafka.core.assignors import Topics
from gkafka.core.backoff import Backoff
from gkafka.core.consumergrouprequests import JOIN, Heartbeats, error_of, explained, goodbye, names_of, read_target
from gkafka.core.consumergroupstate import IN_GROUP, MOVES, ConsumerGroupOptions, Event
from gkafka.core.flights import Flights
from gkafka.core.groupstate import NEVER, NO_GENERATION, Address, Ask, Lane, Plan, State, Tell, Ticket, Verdict
from gkafka.core.lease import Lease
from gkafka.core.offsets import commit_request, coordinator_of, coordinator_request
from gkafka.core.ownership import Ownership
from gkafka.core.reconciliation import Reconciliation
from gkafka.exceptions import ProtocolError
from gkafka.wire.consumergroups import ConsumerGroupAssignment, ConsumerGroupHeartbeatRequest
from gkafka.wire.offsets import OffsetCommitRequest
from gkafka.wire.schema import Message

if TYPE_CHECKING:
    from random import Random

__all__ = ["ConsumerGroup"]

log = logging.getLogger(__name__)

FIRST_INTERVAL_S = 5.0
FENCES = (UnknownMemberId, FencedMemberEpoch, GroupIdNotFound, IllegalGeneration)
UNSUPPORTED = 'the cluster does not have the groups of KIP-848, or not this feature of them: use group_protocol="classic", or brokers of Kafka 4.0 or newer'
NOT_OURS = 'the group has members of the classic protocol and cannot be converted now: use group_protocol="classic", or another group'


class Kind(enum.Enum):
    """What a request is for. NAMES: of topics that are known by id."""

    FIND = "find"
    BEAT = "beat"
    LEAVE = "leave"
    NAMES = "names"


class ConsumerGroup:
    """The machine. generation: the member's epoch, NO_GENERATION while it has none. error: why the state is FATAL.

    rebalances: how often it was given another assignment. losses: how often everything was lost. is_leader: never; the coordinator divides.
    """

    def __init__(self, options: ConsumerGroupOptions, topics: Iterable[str], *, backoff: Backoff, chance: Random) -> None:
        self.options = options
        self.state = State.AWAY
        self.generation = NO_GENERATION
        self.error: KafkaException | None = None
        self.coordinator: Address | None = None
        self.rebalances = self.losses = 0
        self.is_leader = False
        self._chance = chance
        self._name = self._new_id()
        self._topics = frozenset(topics)
        self._have = Ownership()
        self._road = Reconciliation(self._have)
        self._heartbeats = Heartbeats(options)
        self._lease = Lease(options.session_timeout_s, options.rebalance_timeout_s)
        self._interval_s = FIRST_INTERVAL_S
        self._beat_at = 0.0
        self._unanswered_since: float | None = None
        self._first_epoch = NO_GENERATION  # of this membership
        self._may_be_known = False  # the coordinator may have heard of it under this id
        self._refused_since: float | None = None  # somebody has its instance id
        self._reason = ""
        self._polled_at = 0.0
        self._farewell: ConsumerGroupHeartbeatRequest | None = None
        self._commits: list[Ticket] = []
        self._problems: list[KafkaException] = []
        self._last_problem: int | None = None
        self._flying: Flights[Kind, Ask] = Flights(Kind, backoff, chance)

    @property
    def member_id(self) -> str:
        """ "" while it is no member."""
        return self._name if self.generation != NO_GENERATION else ""

    def _new_id(self) -> str:
        return str(UUID(int=self._chance.getrandbits(128), version=4))

    def _move(self, event: Event) -> None:
        before, self.state = self.state, MOVES[self.state, event]
        if before is not self.state:
            log.debug("group %r, member %r: %s, %s", self.options.group, self._name, event.value, self.state.value)

    # -- what the application and its driver say ---------------------------------------------------------------------------
    def polled(self, now: float) -> None:
        """The application asks for messages. The first time, and after a silence, the member joins."""
        self._polled_at = now
        if self.state is State.AWAY:
            self._reason = "the application asks for messages"
            self._move(Event.WANTED)

    def subscribe(self, topics: Iterable[str]) -> None:
        """Other topics from now on. The coordinator takes back what is not among them."""
        self._topics = frozenset(topics)

    def rejoin(self, reason: str) -> None:
        """Tell the coordinator everything at once. It divides anew by itself when topics grow: no member can have it do so."""
        if self.state in IN_GROUP:
            self._heartbeats.forget()

    def leave(self, reason: str, *, static: bool = False) -> None:
        """For good: partitions are given up in order, then the coordinator is told. static: also that of a static member, whose partitions
        otherwise wait for it to come back, for the length of the session.
        """
        if self.state not in (State.AWAY, *IN_GROUP):
            return
        log.info("group %r, member %r: leaving, %s", self.options.group, self._name, reason)
        self._move(Event.LEAVE)
        if self.generation == NO_GENERATION:
            self._road.lose()
        else:
            self._road.give_everything_up()
        if self._may_be_known:
            self._farewell = goodbye(self.options, self._name, for_good=static)

    def told(self, tell: Tell) -> None:
        """The callback for it has returned."""
        self._have.told()

    def give_topics(self, topics: Topics) -> None:
        """No plan asks for them: the coordinator assigns."""

    # -- what it has -------------------------------------------------------------------------------------------------------
    def delivered(self, now: float) -> Mapping[TopicPartition, int]:
        """The partitions whose messages the application may have now, each with its term; to be asked for at each delivery."""
        return self._have.owned if now < self._lease.ends_at else {}

    @property
    def terms(self) -> Mapping[TopicPartition, int]:
        """The term of each partition that is the member's, or is being given up: what commit_ticket() may be asked for."""
        return {**self._have.leaving, **self._have.owned}

    def takes_commits(self, now: float) -> bool:
        """Is this a moment for commits? If so, what gets no ticket is not the member's any more."""
        return self.state in (*IN_GROUP, State.LEAVING) and self.generation != NO_GENERATION and now < self._lease.ends_at

    def commit_ticket(self, partitions: Mapping[TopicPartition, int], now: float) -> Ticket | None:
        """The right to commit what was delivered under these terms, as far as it is still the member's; None if not at this moment.

        Each ticket ends with `on_commit`: what is taken back is not free before.
        """
        allowed = self._have.may_commit(partitions) if self.takes_commits(now) else None
        if not allowed:
            return None
        ticket = Ticket(self.generation, self._name, allowed)
        self._commits.append(ticket)
        return ticket

    def commit_request(self, ticket: Ticket, offsets: Mapping[TopicPartition, tuple[int, str]]) -> OffsetCommitRequest:
        """offsets: (next offset, metadata); what the ticket does not hold is left out. The member's epoch needs version 9."""
        allowed = {tp: offset for tp, offset in offsets.items() if tp in ticket.partitions}
        request = commit_request(self.options.group, allowed, generation_id=ticket.generation, member_id=ticket.member_id)
        request.group_instance_id = self.options.instance_id
        return request

    def on_commit(self, ticket: Ticket, error: KafkaException | None, now: float) -> Verdict:
        """What the worst error of a commit's answer, or the lack of one, means."""
        self._commits.remove(ticket)
        if error is None:
            return Verdict.DONE
        if isinstance(error, StaleMemberEpoch):
            return Verdict.RETRY  # the answer that tells the next epoch is on its way, or has come meanwhile
        if isinstance(error, (FencedInstanceId, *FENCES)):
            if ticket.member_id != self._name or not NO_GENERATION < self._first_epoch <= ticket.generation:
                return Verdict.RETRY  # it was of an earlier membership; a new ticket tells what is still owned
            self._fenced(error)
            return Verdict.FAILED
        self._look_at_coordinator(error, self.coordinator)
        return Verdict.RETRY if error.retriable else Verdict.FAILED

    # -- what to do --------------------------------------------------------------------------------------------------------
    def poll(self, now: float) -> Plan:
        """To be asked after every answer, callback and wish, and at wake_at."""
        self._watch_clock(now)
        self._go_on(now)
        asks = [ask for ask in (self._find(now), self._names(now), self._say_farewell(now), self._beat(now)) if ask is not None]
        problems, self._problems = self._problems, []
        return Plan(asks, self._have.next(), None, problems, self._wake_at(now))

    def _watch_clock(self, now: float) -> None:
        if self.state in IN_GROUP and now >= self._polled_at + self.options.max_poll_interval_s:
            self._idle()
        # Who has nothing loses nothing: it may have been without a coordinator for longer than a session.
        if self._have.any and self.generation != NO_GENERATION and now >= self._lease.ends_at:
            self._lapse()

    def _idle(self) -> None:
        text = f"the application has not asked for messages for {self.options.max_poll_interval_s:g} s"
        log.warning("group %r, member %r: %s; leaving until it does (max.poll.interval)", self.options.group, self._name, text)
        self._part()
        self._move(Event.IDLE)

    def _lapse(self) -> None:
        text = "no word of the coordinator in time; its partitions may be others' now"
        log.warning("group %r, member %r: %s", self.options.group, self._name, text)
        if self.state is State.LEAVING:
            self._lose()
            self._farewell = None
        else:
            self._part()
            self._reset("the session has ended by the member's own clock")

    def _part(self) -> None:
        """Everything is lost, and the coordinator is told, in case it still counts on the member."""
        self._lose()
        if self._may_be_known:
            self._farewell = goodbye(self.options, self._name, for_good=False)
            self._may_be_known = False
            if self.options.instance_id is None:
                self._name = self._new_id()

    def _go_on(self, now: float) -> None:
        """The steps that wait for nothing but the application."""
        if self.state is State.PREPARING and self._have.settled and self._farewell is None and Kind.LEAVE not in self._flying:
            log.info("group %r, member %r: joining, %s", self.options.group, self._name, self._reason)
            self._heartbeats.forget()
            self._beat_at = now
            self._move(Event.READY)
        if (
            self.state is State.LEAVING
            and self._have.settled
            and not self._commits
            and self._farewell is None
            and Kind.LEAVE not in self._flying
        ):
            self.generation = NO_GENERATION
            self._move(Event.GONE)

    # -- requests
    def _send(self, kind: Kind, request: Message, now: float) -> Ask:
        to = self.coordinator if isinstance(request, ConsumerGroupHeartbeatRequest) else None
        return self._flying.sent(kind, Ask(request, to, Lane.CONTROL, self.options.session_timeout_s / 3), now)

    def _find(self, now: float) -> Ask | None:
        wanted = self.state in IN_GROUP or self._farewell is not None or (self.state is State.LEAVING and not self._have.settled)
        if self.coordinator is None and wanted and self._flying.may_send(Kind.FIND, now):
            return self._send(Kind.FIND, coordinator_request(self.options.group), now)
        return None

    def _names(self, now: float) -> Ask | None:
        nameless = self._road.nameless
        if nameless and self.state is State.RECONCILING and self._flying.may_send(Kind.NAMES, now):
            return self._send(Kind.NAMES, names_of(nameless), now)
        return None

    def _say_farewell(self, now: float) -> Ask | None:
        ready = self.state is not State.LEAVING or (self._have.settled and not self._commits)
        if self._farewell is None or not ready or self.coordinator is None or not self._flying.may_send(Kind.LEAVE, now):
            return None
        request, self._farewell = self._farewell, None
        if self.state is State.LEAVING:
            self._lose()  # there is nothing left
        return self._send(Kind.LEAVE, request, now)

    def _beat(self, now: float) -> Ask | None:
        committing = [tp for ticket in self._commits for tp in ticket.partitions]
        # A heartbeat that is not answered yet says that the member does not have what it could gain now: it may be others' by then.
        acknowledges = self._road.step(committing, may_gain=self._unanswered_since is None and now < self._lease.ends_at)
        if not self._beats or self.coordinator is None or not self._flying.may_send(Kind.BEAT, now):
            return None
        news = acknowledges or self._heartbeats.knows_nothing or self._heartbeats.is_news(self._topics)
        if not news and now < self._beat_at:
            return None
        epoch = JOIN if self.generation == NO_GENERATION else self.generation
        request = self._heartbeats.next(self._name, epoch, self._topics, self._road.held, acknowledges=acknowledges)
        if acknowledges:
            self._road.acknowledged()
        self._beat_at = now + self._interval_s
        if self._unanswered_since is None:
            self._unanswered_since = now
        self._may_be_known = True
        return self._send(Kind.BEAT, request, now)

    @property
    def _beats(self) -> bool:
        """Does it send heartbeats?"""
        if self.state is State.LEAVING:
            return self.generation != NO_GENERATION and not (self._have.settled and not self._commits)
        return self.state in (State.JOINING, State.RECONCILING, State.STABLE)

    def _wake_at(self, now: float) -> float:
        times = self._flying.wakes_at(now)
        if self.state in IN_GROUP:
            times.append(self._polled_at + self.options.max_poll_interval_s)
        if self.generation != NO_GENERATION and self._have.any:
            times.append(self._lease.ends_at)
        if self._beats and self.coordinator is not None and Kind.BEAT not in self._flying:
            times.append(max(self._beat_at, self._flying.paused_until(Kind.BEAT)))
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
            error = error_of(ask, response, self.options.group)
        if error is None:
            self._flying.succeeded(kind)
            _READERS[kind](self, ask, response, sent_at)
        else:
            _FAILURES[kind](self, ask, error, sent_at, now)

    def _pause(self, kind: Kind, error: KafkaException, now: float) -> None:
        until = self._flying.pause(kind, now)
        log.debug("group %r, member %r: %s; again in %.3f s", self.options.group, self._name, error, until - now)

    def _look_at_coordinator(self, error: KafkaException, asked: Address | None) -> None:
        """Is it where it was? Unknown after a connection's end, too."""
        if asked == self.coordinator and (
            not isinstance(error, BrokerError) or error.stale is COORDINATOR or isinstance(error, RequestTimedOut)
        ):
            self.coordinator = None

    # -- FindCoordinator
    def _found(self, ask: Ask, response: Any, sent_at: float) -> None:
        self.coordinator = coordinator_of(response)

    def _not_found(self, ask: Ask, error: KafkaException, sent_at: float, now: float) -> None:
        if error.retriable or not isinstance(error, BrokerError):
            self._pause(Kind.FIND, error, now)
            if self.state is State.LEAVING:
                self._farewell = None
        else:
            self._break(error)

    # -- Metadata
    def _named(self, ask: Ask, response: Any, sent_at: float) -> None:
        self._road.learn({topic.topic_id: topic.name for topic in response.topics if topic.name and not topic.error_code})
        if self._road.nameless:
            self._flying.pause(Kind.NAMES, sent_at)

    def _not_named(self, ask: Ask, error: KafkaException, sent_at: float, now: float) -> None:
        self._road.learn({})
        self._pause(Kind.NAMES, error, now)

    # -- ConsumerGroupHeartbeat
    def _beaten(self, ask: Ask, response: Any, sent_at: float) -> None:
        since, self._unanswered_since = self._unanswered_since, None
        self._refused_since = self._last_problem = None
        if response.heartbeat_interval_ms > 0:
            self._interval_s = min(response.heartbeat_interval_ms / 1000, self.options.session_timeout_s / 3)
            self._beat_at = sent_at + self._interval_s
        if response.member_epoch <= max(0, self.generation - 1):
            text = f"epoch {response.member_epoch} of member {self._name!r} cannot be, after {self.generation}"
            problem = ProtocolError(text, group=self.options.group, api="ConsumerGroupHeartbeat")
            self._report(problem)
            self._flying.pause(Kind.BEAT, sent_at)
            self._fenced(problem)
            return
        is_new = self.generation == NO_GENERATION
        has_moved = response.member_epoch != self.generation
        self.generation = response.member_epoch
        if is_new:
            self._name = response.member_id or self._name
            self._first_epoch = self.generation
            self._lease.joined(sent_at)
        if self.state is not State.LEAVING:
            self._take(response.assignment, is_new=is_new)
        # What is to be given up is waited for from when this epoch began: with the first request since the last answer, at the earliest.
        if self.state is not State.LEAVING and not (self._road.owes and self._road.held):
            self._lease.settled(sent_at)
        elif has_moved and since is not None:
            self._lease.settled(since)
        self._lease.alive(sent_at)

    def _take(self, assignment: ConsumerGroupAssignment | None, *, is_new: bool) -> None:
        if assignment is not None or is_new:
            target, odd = read_target(assignment)
            for topic_id, numbers in odd:
                text = f"member {self._name!r}: its coordinator gave it partitions {numbers} of topic {topic_id}"
                self._report(ProtocolError(text, group=self.options.group, api="ConsumerGroupHeartbeat"))
            if self._road.aim(target):
                self.rebalances += 1
                count = sum(map(len, target.values()))
                log.info("group %r, member %r, epoch %d: %d partitions", self.options.group, self._name, self.generation, count)
                self._move(Event.TARGET)
        if self.state is State.RECONCILING and self._road.is_done:
            self._move(Event.REACHED)

    def _not_beaten(self, ask: Ask, error: KafkaException, sent_at: float, now: float) -> None:
        self._heartbeats.forget()
        joined = self.generation != NO_GENERATION
        if isinstance(error, UnsupportedVersion):
            self._break(explained(error, UNSUPPORTED))
        elif isinstance(error, UnreleasedInstanceId) and not joined:
            self._refused(error, now)
        elif isinstance(error, GroupIdNotFound) and not joined:
            self._break(explained(error, NOT_OURS))
        elif isinstance(error, FENCES):
            self._fenced(error)
            self._pause(Kind.BEAT, error, now)
        elif error.retriable or not isinstance(error, BrokerError):
            self._look_at_coordinator(error, ask.to)
            self._pause(Kind.BEAT, error, now)
        elif isinstance(error, TopicAuthorizationFailed):
            if self._last_problem != error.code:
                self._report(error)
            self._last_problem = error.code
            self._pause(Kind.BEAT, error, now)
        else:
            self._break(error)

    def _refused(self, error: KafkaException, now: float) -> None:
        """Another member has the instance id: this one's own last life, for which a good-bye is said; or one that was killed, whose session
        has to end first. If it is still there after that it is somebody else, who lives.
        """
        if self._refused_since is None:
            self._refused_since = now
            log.warning("group %r, member %r: waiting for a session to end: %s", self.options.group, self._name, error)
        if now >= self._refused_since + self.options.session_timeout_s + self._interval_s:
            self._break(error)
            return
        self._farewell = goodbye(self.options, self._name, for_good=False)
        self._pause(Kind.BEAT, error, now)
        self._reset("its instance id was not free")

    # -- good-bye
    def _left(self, ask: Ask, response: Any, sent_at: float) -> None:
        """It was the last word of a membership, whatever came of it: the session's end does the same."""

    def _not_left(self, ask: Ask, error: KafkaException, sent_at: float, now: float) -> None:
        self._look_at_coordinator(error, ask.to)
        log.debug("group %r: %s; the coordinator will miss the heartbeats", self.options.group, error)

    # -- the end of a membership -------------------------------------------------------------------------------------------
    def _fenced(self, error: KafkaException) -> None:
        """The coordinator does not know the member, or in another epoch: others may have its partitions already."""
        if isinstance(error, FencedInstanceId):
            self._break(error)
            return
        was_joining = self.generation == NO_GENERATION
        self._lose()
        if self.state is State.LEAVING:
            self._farewell = None
        elif was_joining:  # before KAFKA-19233 a member that is known under some epoch cannot begin again with another one
            self._part()
            self._reset(type(error).__name__)
        else:
            self._reset(type(error).__name__)

    def _reset(self, reason: str) -> None:
        if self.state in IN_GROUP:
            self._reason = reason
            self._move(Event.RESET)

    def _lose(self) -> None:
        if self._have.any:
            self.losses += 1
            log.warning("group %r, member %r: its partitions are lost: %d", self.options.group, self._name, len(self._have.owned))
        self._road.lose()
        self.generation = self._first_epoch = NO_GENERATION
        self._unanswered_since = None
        self._flying.forget(Kind.BEAT)  # what its answer says is of this membership

    def _break(self, error: KafkaException) -> None:
        self.error = error
        log.error("group %r, member %r: %s", self.options.group, self._name, error)
        self._lose()
        for kind in Kind:
            self._flying.forget(kind)
        self._farewell = None
        self._problems.append(error)
        self._move(Event.BROKEN)

    def _report(self, problem: KafkaException) -> None:
        log.error("group %r, member %r: %s", self.options.group, self._name, problem)
        self._problems.append(problem)


_READERS: dict[Kind, Callable[..., None]] = {
    Kind.FIND: ConsumerGroup._found,
    Kind.NAMES: ConsumerGroup._named,
    Kind.BEAT: ConsumerGroup._beaten,
    Kind.LEAVE: ConsumerGroup._left,
}
_FAILURES: dict[Kind, Callable[..., None]] = {
    Kind.FIND: ConsumerGroup._not_found,
    Kind.NAMES: ConsumerGroup._not_named,
    Kind.BEAT: ConsumerGroup._not_beaten,
    Kind.LEAVE: ConsumerGroup._not_left,
}
