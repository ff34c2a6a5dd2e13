"""A member of a KIP-848 group: the coordinator assigns, the member tells what it has, heartbeat by heartbeat.

What every member is stands in `groupmachine`; `consumergroupstate.MOVES` is the picture of this one's states. The coordinator gives it up
also when it has not let go in time of what is taken back. What is let go of is free when a heartbeat says so: after its callback has
returned and the commits of it are over.

The member makes up its own id (KIP-1082) and keeps it when it is fenced. After a good-bye that may have been late or lost it goes on under
another one: a good-bye that arrives in the end must not end the new membership. A static member's cannot, so it keeps its id.

Source: KIP-848, KIP-1082; AbstractMembershipManager.java, AbstractHeartbeatRequestManager.java, ConsumerHeartbeatRequestManager.java;
what the coordinator makes of it: GroupMetadataManager.java, CurrentAssignmentBuilder.java
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar
from uuid import UUID

from gkafka.brokererrors import (
    FencedMemberEpoch,
    GroupIdNotFound,
    IllegalGeneration,
    KafkaException,
    StaleMemberEpoch,
    TopicAuthorizationFailed,
    UnknownMemberId,
    UnreleasedInstanceId,
    UnsupportedVersion,
)
from gkafka.core.backoff import Backoff, Chance
from gkafka.core.consumergrouprequests import JOIN, Heartbeats, explained, goodbye, names_of, read_target
from gkafka.core.consumergroupstate import IN_GROUP, MOVES, ConsumerGroupOptions
from gkafka.core.groupleader import Election, Made
from gkafka.core.groupmachine import Answer, GroupMachine, Kind, Readers, passes
from gkafka.core.groupstate import NO_GENERATION, Ask, Event, State, Ticket
from gkafka.core.reconciliation import Reconciliation
from gkafka.exceptions import ProtocolError
from gkafka.logs import get_logger
from gkafka.wire.consumergroups import ConsumerGroupAssignment

__all__ = ["ConsumerGroup"]

log = get_logger(__name__)

FIRST_INTERVAL_S = 5.0
FENCES = (UnknownMemberId, FencedMemberEpoch, GroupIdNotFound, IllegalGeneration)
UNSUPPORTED = 'the cluster does not have the groups of KIP-848, or not this feature of them: use group_protocol="classic", or brokers of Kafka 4.0 or newer'
NOT_OURS = 'the group has members of the classic protocol and cannot be converted now: use group_protocol="classic", or another group'


class ConsumerGroup(GroupMachine):
    """The machine. generation: the member's epoch. is_leader: never; the coordinator divides."""

    options: ConsumerGroupOptions
    _moves = MOVES
    _in_group = IN_GROUP
    _committing = (*IN_GROUP, State.LEAVING)
    _fences = FENCES
    _passing = (StaleMemberEpoch,)  # the answer that tells the next epoch is on its way, or has come meanwhile

    def __init__(self, options: ConsumerGroupOptions, topics: Iterable[str], *, backoff: Backoff, chance: Chance) -> None:
        self._chance = chance
        super().__init__(options, topics, backoff=backoff, chance=chance, name=self._new_id())
        self._road = Reconciliation(self._have)
        self._heartbeats = Heartbeats(options)
        self._interval_s = FIRST_INTERVAL_S
        self._unanswered_since: float | None = None
        self._first_epoch = NO_GENERATION  # of this membership
        self._may_be_known = False  # the coordinator may have heard of it under this id
        self._refused_since: float | None = None  # somebody has its instance id
        self._reason = ""
        self._last_problem: int | None = None

    @property
    def member_id(self) -> str:
        return self._name if self.generation != NO_GENERATION else ""

    def _new_id(self) -> str:
        return str(UUID(int=self._chance.getrandbits(128), version=4))

    # -- what the application and its driver say ---------------------------------------------------------------------------
    def subscribe(self, topics: Iterable[str]) -> None:
        """Other topics from now on. The coordinator takes back what is not among them."""
        self._topics = frozenset(topics)

    def rejoin(self, reason: str) -> None:
        """Tell the coordinator everything at once. It divides anew by itself when topics grow: no member can have it do so."""
        if self.state in IN_GROUP:
            self._heartbeats.forget()

    @property
    def election(self) -> None:
        return None  # the coordinator divides

    def divided(self, election: Election, made: Made) -> None:
        pass

    def _prepare_farewell(self, reason: str, *, static: bool) -> None:
        self._road.stop()
        if self._may_be_known:
            self._farewell = goodbye(self.options, self._name, for_good=static)

    def _is_in_force(self, ticket: Ticket) -> bool:
        return ticket.member_id == self._name and NO_GENERATION < self._first_epoch <= ticket.generation

    # -- what to do --------------------------------------------------------------------------------------------------------
    def _go_on(self, now: float) -> None:
        if self.state is State.PREPARING and self._have.settled and self._farewell is None and Kind.LEAVE not in self._flying:
            log.info("group %r, member %r: joining, %s", self.options.group, self._name, self._reason)
            self._heartbeats.forget()
            self._beat_at = now
            self._move(Event.READY)
        super()._go_on(now)

    def _begin(self, reason: str) -> None:
        self._reason = reason

    # -- requests
    def _asks(self, now: float) -> list[Ask | None]:
        return [self._find(now), self._names(now), self._say_farewell(now), self._beat(now)]

    def _names(self, now: float) -> Ask | None:
        nameless = self._road.nameless
        if nameless and self.state is State.RECONCILING and self._flying.may_send(Kind.NAMES, now):
            return self._send(Kind.NAMES, names_of(nameless), now)
        return None

    def _say_farewell(self, now: float, *, at_once: bool = False) -> Ask | None:
        ask = super()._say_farewell(now, at_once=at_once)
        if ask is not None and self.state is State.LEAVING and not at_once:
            self._lose()  # there is nothing left
        return ask

    def _beat(self, now: float) -> Ask | None:
        committing = [tp for ticket in self._commits for tp in ticket.partitions]
        # A heartbeat that is not answered yet says that the member does not have what it could gain now: it may be others' by then.
        acknowledges = self._road.step(committing, may_gain=self._unanswered_since is None and now < self._lease.ends_at)
        if not self._beats or not self._may_ask(Kind.BEAT, now):
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
        if self.state is State.LEAVING:
            return self.generation != NO_GENERATION and not self._has_finished
        return self.state in (State.JOINING, State.RECONCILING, State.STABLE)

    # -- Metadata
    def _named(self, answer: Answer) -> None:
        self._road.learn({topic.topic_id: topic.name for topic in answer.response.topics if topic.name and not topic.error_code})
        if self._road.nameless:
            self._flying.pause(Kind.NAMES, answer.sent_at)

    def _not_named(self, answer: Answer, error: KafkaException) -> None:
        self._road.learn({})
        self._pause(Kind.NAMES, error, answer.now)

    # -- ConsumerGroupHeartbeat
    def _beaten(self, answer: Answer) -> None:
        response, sent_at = answer.response, answer.sent_at
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

    def _not_beaten(self, answer: Answer, error: KafkaException) -> None:
        self._heartbeats.forget()
        joined = self.generation != NO_GENERATION
        if isinstance(error, UnsupportedVersion):
            self._break(explained(error, UNSUPPORTED))
        elif isinstance(error, UnreleasedInstanceId) and not joined:
            self._refused(error, answer.now)
        elif isinstance(error, GroupIdNotFound) and not joined:
            self._break(explained(error, NOT_OURS))
        elif isinstance(error, FENCES):
            self._fenced(error)
            self._pause(Kind.BEAT, error, answer.now)
        elif passes(error):
            self._look_at_coordinator(error, answer.ask.to)
            self._pause(Kind.BEAT, error, answer.now)
        elif isinstance(error, TopicAuthorizationFailed):
            if self._last_problem != error.code:
                self._report(error)
            self._last_problem = error.code
            self._pause(Kind.BEAT, error, answer.now)
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

    # -- the end of a membership -------------------------------------------------------------------------------------------
    def _put_out(self, error: KafkaException) -> None:
        was_joining = self.generation == NO_GENERATION
        self._lose()
        if self.state is State.LEAVING:
            self._farewell = None
            return
        if was_joining:  # before KAFKA-19233 a member that is known under some epoch cannot begin again with another one
            self._part(type(error).__name__)
        self._reset(type(error).__name__)

    def _lapsed(self, reason: str) -> None:
        self._part(reason)
        self._reset(reason)

    def _part(self, reason: str) -> None:
        self._lose()
        if self._may_be_known:
            self._farewell = goodbye(self.options, self._name, for_good=False)
            self._may_be_known = False
            if self.options.instance_id is None:
                self._name = self._new_id()

    def _lose(self) -> None:
        super()._lose()
        self._road.lose()
        self._first_epoch = NO_GENERATION
        self._unanswered_since = None
        self._flying.forget(Kind.BEAT)  # what its answer says is of this membership

    _readers: ClassVar[Readers] = {
        Kind.FIND: (GroupMachine._found, GroupMachine._not_found),
        Kind.NAMES: (_named, _not_named),
        Kind.BEAT: (_beaten, _not_beaten),
        Kind.LEAVE: (GroupMachine._left, GroupMachine._not_left),
    }
