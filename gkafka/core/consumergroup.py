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
from gkafka.core.coordinatorrequests import Answer, Kind
from gkafka.core.groupleader import Election, Made
from gkafka.core.groupmachine import GroupMachine, Readers, Rules
from gkafka.core.groupstate import NEVER, NO_GENERATION, Ask, Event, State, Ticket
from gkafka.core.memberids import MemberIds
from gkafka.core.reconciliation import Reconciliation
from gkafka.exceptions import ProtocolError
from gkafka.logs import get_logger
from gkafka.wire.consumergroups import ConsumerGroupAssignment, ConsumerGroupHeartbeatRequest
from gkafka.wire.groups import FindCoordinatorRequest
from gkafka.wire.metadata import MetadataRequest

__all__ = ["ConsumerGroup"]

log = get_logger(__name__)

JOINED = (State.RECONCILING, State.STABLE)
FENCES = (UnknownMemberId, FencedMemberEpoch, GroupIdNotFound, IllegalGeneration)
UNSUPPORTED = 'the cluster does not have the groups of KIP-848, or not this feature of them: use group_protocol="classic", or brokers of Kafka 4.0 or newer'
NOT_OURS = 'the group has members of the classic protocol and cannot be converted now: use group_protocol="classic", or another group'


class ConsumerGroup(GroupMachine):
    """The machine. generation: the member's epoch. is_leader: never; the coordinator divides."""

    options: ConsumerGroupOptions
    # StaleMemberEpoch: the answer that tells the next epoch is on its way, or has come meanwhile.
    _rules = Rules(MOVES, IN_GROUP, JOINED, (*IN_GROUP, State.LEAVING), FENCES, passing=(StaleMemberEpoch,))

    def __init__(self, options: ConsumerGroupOptions, topics: Iterable[str], *, backoff: Backoff, chance: Chance) -> None:
        self._ids = MemberIds(chance, is_static=options.instance_id is not None)
        super().__init__(options, topics, backoff=backoff, chance=chance, name=self._ids.new())
        self._road = Reconciliation(self.ownership)
        self._heartbeats = Heartbeats(options)
        self._first_epoch = NO_GENERATION  # of this membership
        self._refused_since: float | None = None  # somebody has its instance id
        self._last_problem: int | None = None

    def restart(self, now: float) -> None:
        super().restart(now)
        self._heartbeats.forget()
        if self.state in (State.JOINING, State.STABLE) and self.generation != NO_GENERATION and not self._road.is_done:
            self._move(Event.TARGET)

    @property
    def member_id(self) -> str:
        return self._name if self.generation != NO_GENERATION else ""

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
        if self._ids.may_be_known:
            self._farewell.request = goodbye(self.options, self._name, for_good=static)

    def _is_in_force(self, ticket: Ticket) -> bool:
        return ticket.member_id == self._name and NO_GENERATION < self._first_epoch <= ticket.generation

    # -- what to do --------------------------------------------------------------------------------------------------------
    def _go_on(self, now: float) -> None:
        if self.state is State.PREPARING and self.ownership.settled and self._has_taken_leave:
            self._heartbeats.forget()
            self._move(Event.READY)
        super()._go_on(now)

    def _begin(self, reason: str) -> None:
        log.info("group %r, member %r: joining, %s", self.options.group, self._name, reason)

    # -- requests
    def _asks(self, now: float) -> list[Ask | None]:
        return [self._find(now), self._names(now), self._say_farewell(now), self._beat(now)]

    def _names(self, now: float) -> Ask | None:
        nameless = self._road.nameless
        if nameless and self.state is State.RECONCILING and self.requests.may_send(Kind.NAMES, now):
            return self.requests.send(Kind.NAMES, names_of(nameless), now)
        return None

    def _say_farewell(self, now: float, *, at_once: bool = False) -> Ask | None:
        ask = super()._say_farewell(now, at_once=at_once)
        if ask is not None and self.state is State.LEAVING and not at_once:
            self._lose()  # there is nothing left
        return ask

    def _beat(self, now: float) -> Ask | None:
        # A heartbeat that is not answered yet says that the member does not have what it could gain now: it may be others' by then.
        may_gain = self._heartbeats.unanswered_since is None and now < self.lease.ends_at
        acknowledges = self._road.step(self.tickets.partitions, may_gain=may_gain)
        if not self._beats or not self.requests.may_send(Kind.BEAT, now):
            return None
        if not (acknowledges or self._heartbeats.is_due(self._topics, now)):
            return None
        epoch = JOIN if self.generation == NO_GENERATION else self.generation
        request = self._heartbeats.next(self._name, epoch, self._topics, self._road.held, now, acknowledges=acknowledges)
        if acknowledges:
            self._road.acknowledged()
        self._ids.may_be_known = True
        return self.requests.send(Kind.BEAT, request, now)

    @property
    def _beats(self) -> bool:
        if self.state is State.LEAVING:
            return self.generation != NO_GENERATION and not self._has_finished
        return self.state in (State.JOINING, State.RECONCILING, State.STABLE)

    @property
    def _beats_at(self) -> float:
        return self._heartbeats.due_at if self._beats else NEVER

    # -- Metadata
    def _named(self, answer: Answer) -> None:
        self._road.learn({topic.topic_id: topic.name for topic in answer.response.topics if topic.name and not topic.error_code})
        if self._road.nameless:
            self.requests.rest(Kind.NAMES, answer.sent_at)

    def _not_named(self, answer: Answer, error: KafkaException) -> None:
        self._road.learn({})
        self.requests.pause(Kind.NAMES, error, answer.now)

    # -- ConsumerGroupHeartbeat
    def _beaten(self, answer: Answer) -> None:
        response, sent_at = answer.response, answer.sent_at
        since = self._heartbeats.answered(response.heartbeat_interval_ms / 1000, sent_at)
        self._refused_since = self._last_problem = None
        if response.member_epoch <= max(0, self.generation - 1):
            text = f"epoch {response.member_epoch} of member {self._name!r} cannot be, after {self.generation}"
            problem = ProtocolError(text, group=self.options.group, api="ConsumerGroupHeartbeat")
            self._report(problem)
            self.requests.rest(Kind.BEAT, sent_at)
            self._fenced(problem)
            return
        is_new = self.generation == NO_GENERATION
        has_moved = response.member_epoch != self.generation
        if is_new:
            self._name = response.member_id or self._name
            self._first_epoch = response.member_epoch
            self.lease.joined(sent_at)
        self.generation = response.member_epoch
        if self.state is not State.LEAVING:
            self._take(response.assignment, is_new=is_new)
        # What is to be given up is waited for from when this epoch began: with the first request since the last answer, at the earliest.
        if self.state is not State.LEAVING and not (self._road.owes and self._road.held):
            self.lease.settled(sent_at)
        elif has_moved and since is not None:
            self.lease.settled(since)
        self.lease.alive(sent_at)

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
        else:
            if isinstance(error, TopicAuthorizationFailed) and self._last_problem != error.code:
                self._last_problem = error.code
                self._report(error)
            self._failed(answer, error, TopicAuthorizationFailed)

    def _refused(self, error: KafkaException, now: float) -> None:
        """Another member has the instance id: this one's own last life, for which a good-bye is said; or one that was killed, whose session
        has to end first. If it is still there after that it is somebody else, who lives.
        """
        if self._refused_since is None:
            self._refused_since = now
            log.warning("group %r, member %r: waiting for a session to end: %s", self.options.group, self._name, error)
        if now >= self._refused_since + self.options.session_timeout_s + self._heartbeats.interval_s:
            self._break(error)
            return
        self._farewell.request = goodbye(self.options, self._name, for_good=False)
        self.requests.pause(Kind.BEAT, error, now)
        self._reset("its instance id was not free")

    # -- ConsumerGroupHeartbeat, also the last one
    def _heard(self, answer: Answer) -> None:
        read = self._beaten if answer.kind is Kind.BEAT else self._left
        read(answer)

    def _not_heard(self, answer: Answer, error: KafkaException) -> None:
        read = self._not_beaten if answer.kind is Kind.BEAT else self._not_left
        read(answer, error)

    # -- the end of a membership -------------------------------------------------------------------------------------------
    def _put_out(self, error: KafkaException) -> None:
        was_joining = self.generation == NO_GENERATION
        self._lose()
        if self.state is State.LEAVING:
            self._farewell.request = None
            return
        if was_joining:  # before KAFKA-19233 a member that is known under some epoch cannot begin again with another one
            self._part(type(error).__name__)
        self._reset(type(error).__name__)

    def _lapsed(self, reason: str) -> None:
        self._part(reason)
        self._reset(reason)

    def _part(self, reason: str) -> None:
        self._lose()
        if self._ids.may_be_known:
            self._farewell.request = goodbye(self.options, self._name, for_good=False)
            self._name = self._ids.after_farewell(self._name)

    def _lose(self) -> None:
        super()._lose()
        self._road.lose()
        self._first_epoch = NO_GENERATION
        self._heartbeats.unanswered_since = None
        self.requests.forget(Kind.BEAT)  # what its answer says is of this membership

    _readers: ClassVar[Readers] = {
        FindCoordinatorRequest: (GroupMachine._found, GroupMachine._not_found),
        MetadataRequest: (_named, _not_named),
        ConsumerGroupHeartbeatRequest: (_heard, _not_heard),
    }
