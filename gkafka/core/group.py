"""A member of a classic group: when it joins, what its leader gives it, and what an answer, or none, means for that.

What every member is stands in `groupmachine`; `groupstate.MOVES` is the picture of this one's states. The coordinator may have given up waiting
for it also when it has not joined a rebalance in time.

Heartbeats run beside everything else, also while a JoinGroup is parked: they say that the member is alive, and that the coordinator is.

Source: KIP-62, KIP-134, KIP-345, KIP-394, KIP-429, KIP-559, KIP-792, KIP-800, KIP-814; AbstractCoordinator.java, ConsumerCoordinator.java
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, ClassVar

from gkafka.brokererrors import (
    FencedInstanceId,
    IllegalGeneration,
    InconsistentGroupProtocol,
    KafkaException,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
)
from gkafka.common import TopicPartition
from gkafka.core.assignors import Assignor, GroupMember
from gkafka.core.backoff import Backoff, Chance
from gkafka.core.groupleader import Election, Made, read_members
from gkafka.core.groupmachine import Answer, GroupMachine, Kind, Readers, passes
from gkafka.core.grouprequests import Membership, heartbeat, join, leave, sync
from gkafka.core.groupstate import IN_GROUP, MOVES, NEVER, NO_GENERATION, Ask, Event, GroupOptions, Lane, State, Ticket, Verdict
from gkafka.errortexts import partitions_named
from gkafka.escaping import LONGEST_NAME, escaped
from gkafka.exceptions import AssignmentError, ProtocolError
from gkafka.logs import get_logger
from gkafka.wire.consumerprotocol import flattened, read_assignment
from gkafka.wire.groups import JoinGroupRequest, SyncGroupRequestAssignment
from gkafka.wire.schema import Message

__all__ = ["Group"]

log = get_logger(__name__)

COMMITTING = (State.STABLE, State.PREPARING, State.LEAVING)
PARKED_LONGER_S = 5.0  # a join may be answered at the very end of the rebalance timeout: the answer needs a moment, too
FENCES = (UnknownMemberId, IllegalGeneration)


class Group(GroupMachine):
    """The machine. rebalances: generations that it was in. is_leader: of the generation."""

    options: GroupOptions
    _moves = MOVES
    _in_group = IN_GROUP
    _committing = COMMITTING  # between JoinGroup and the assignment the coordinator takes no commits
    _fences = FENCES
    _passing = (RebalanceInProgress,)

    def __init__(self, options: GroupOptions, topics: Iterable[str], *, backoff: Backoff, chance: Chance) -> None:
        super().__init__(options, topics, backoff=backoff, chance=chance)
        self._patience_s = max(self._patience_s, options.heartbeat_interval_s)
        self._last: tuple[TopicPartition, ...] | None = None  # the last assignment, for assignors that want to know, and its generation
        self._last_generation = NO_GENERATION
        self._claimed: frozenset[TopicPartition] = frozenset()  # what the last JoinGroup told that it had
        self._protocol: Assignor | None = None
        self._members: list[GroupMember] = []
        self._made: list[SyncGroupRequestAssignment] = []
        self._rejoin: str | None = None  # why the generation shall end, and what JoinGroup tells as its reason (KIP-800)
        self._prepared_by = NEVER

    # -- what the application and its driver say ---------------------------------------------------------------------------
    def subscribe(self, topics: Iterable[str]) -> None:
        """Other topics from now on."""
        if frozenset(topics) != self._topics:
            self._topics = frozenset(topics)
            self.rejoin("the subscription has changed")

    def rejoin(self, reason: str) -> None:
        """The assignment is to be made anew: the number of a topic's partitions has changed, or the application wants it."""
        if self.state in IN_GROUP:
            self._rejoin = self._rejoin or reason

    def _prepare_farewell(self, reason: str, *, static: bool) -> None:
        self._rejoin = reason
        if self.options.instance_id is None or static:
            self._farewell = leave(self._membership(), reason) if self._name else None

    @property
    def election(self) -> Election | None:
        if self.state is not State.ASSIGNING:
            return None
        assert self._protocol is not None  # ELECTED comes with it
        return Election(self._protocol, self._members, frozenset().union(*(m.topics for m in self._members)), self.is_interruption)

    def divided(self, election: Election, made: Made) -> None:
        if self.state is not State.ASSIGNING or election.members is not self._members:
            return
        if made.problem is not None:
            self._report(made.problem)
        self._made, self._members = made.assignments, []
        self._move(Event.ASSIGNED)

    # -- commits
    def on_commit(self, ticket: Ticket, error: KafkaException | None, now: float) -> Verdict:
        """What the worst error of a commit's answer, or the lack of one, means."""
        if isinstance(error, RebalanceInProgress) and self.state is State.STABLE and ticket.generation == self.generation:
            self.rejoin("an offset commit was told of a rebalance")
        return super().on_commit(ticket, error, now)

    def _is_in_force(self, ticket: Ticket) -> bool:
        return (ticket.generation, ticket.member_id) == (self.generation, self._name)

    # -- what to do --------------------------------------------------------------------------------------------------------
    def _go_on(self, now: float) -> None:
        if self.state is State.STABLE and self._rejoin is not None:
            self._begin(self._rejoin)
            self._move(Event.REBALANCE)
        if self.state is State.PREPARING:
            self._prepare(now)
        super()._go_on(now)

    @property
    def _is_done(self) -> bool:
        # Before KIP-394 the answer to the first JoinGroup tells by what name the coordinator knows it.
        nameless = Kind.ROUND in self._flying and not self._name
        return super()._is_done and not nameless

    def _begin(self, reason: str) -> None:
        self._rejoin = reason
        self._prepared_by = NEVER
        self._members, self._made = [], []
        self._flying.forget(Kind.ROUND)

    def _prepare(self, now: float) -> None:
        """Give up what must be, and let commits under way come to their end: they would be refused once the generation has changed."""
        if self._prepared_by == NEVER:
            self._prepared_by = now + self.options.rebalance_timeout_s
            log.info("group %r, member %r: joining, %s", self.options.group, self._name, self._rejoin)
        given = [tp for tp in self._have.owned if not self._cooperative or tp.topic not in self._topics]
        self._have.give_up(given)
        if self._have.settled and (not self._commits or now >= self._prepared_by):
            self._move(Event.READY)

    @property
    def _cooperative(self) -> bool:
        return all(assignor.cooperative for assignor in self.options.assignors)

    # -- requests
    def _asks(self, now: float) -> list[Ask | None]:
        return [self._find(now), self._round(now), self._beat(now), self._say_farewell(now)]

    def _round(self, now: float) -> Ask | None:
        """JoinGroup or SyncGroup: never two at a time (B55)."""
        if not self._may_ask(Kind.ROUND, now):
            return None
        if self.state is State.JOINING:
            try:
                request: Message = self._join()
            except AssignmentError as error:
                self._break(error)
                return None
        elif self.state is State.SYNCING:
            assert self._protocol is not None  # JOINED comes with it
            request = sync(self._membership(), self._protocol, self._made)
        else:
            return None
        return self._send(Kind.ROUND, request, now, lane=Lane.GROUP, timeout_s=self.options.rebalance_timeout_s + PARKED_LONGER_S)

    def _join(self) -> JoinGroupRequest:
        reason, self._rejoin = self._rejoin, None
        self._claimed = frozenset(self._have.owned)
        return join(self._membership(), self._topics, self._have.owned, self._last, self._last_generation, reason, self.is_interruption)

    def _membership(self) -> Membership:
        return Membership(self.options, self.generation, self._name)

    def _beat(self, now: float) -> Ask | None:
        if not self._beats or now < self._beat_at or not self._may_ask(Kind.BEAT, now):
            return None
        self._beat_at = now + self.options.heartbeat_interval_s
        return self._send(Kind.BEAT, heartbeat(self._membership()), now)

    @property
    def _beats(self) -> bool:
        is_there = self.state in IN_GROUP or (self.state is State.LEAVING and not self._have.settled)
        return is_there and self.generation != NO_GENERATION

    def _wake_at(self, now: float) -> float:
        waits_for_commits = self.state is State.PREPARING and self._commits and self._prepared_by > now
        return min(super()._wake_at(now), self._prepared_by if waits_for_commits else NEVER)

    # -- FindCoordinator
    def _found(self, answer: Answer) -> None:
        super()._found(answer)
        parked = self._flying.get(Kind.ROUND)
        if parked is not None and parked.to != self.coordinator:
            self._flying.forget(Kind.ROUND)  # at a broker that is it no more, or cannot be reached: nobody will complete it there

    # -- JoinGroup and SyncGroup
    def _round_ended(self, answer: Answer) -> None:
        read = self._joined if isinstance(answer.ask.request, JoinGroupRequest) else self._synced
        read(answer)

    def _round_failed(self, answer: Answer, error: KafkaException) -> None:
        read = self._not_joined if isinstance(answer.ask.request, JoinGroupRequest) else self._not_synced
        read(answer, error)

    def _joined(self, answer: Answer) -> None:
        response = answer.response
        self._leave_as(response.member_id)
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
        self.generation, self._name = response.generation_id, response.member_id
        self.is_leader = response.leader == response.member_id
        self.rebalances += 1
        self._lease.joined(answer.sent_at)
        self._beat_at = 0.0
        self._made = []
        if response.leader != response.member_id or response.skip_assignment:
            self._move(Event.JOINED)
            return
        self._members, problems = read_members(response.members)
        for problem in problems:
            self._report(problem)
        self._move(Event.ELECTED)

    def _leave_as(self, name: str) -> None:
        """Who left before it heard its name gives it back: the group's next round would wait a session for it."""
        if self.state is State.LEAVING and not self._name and name:
            self._farewell = leave(Membership(self.options, NO_GENERATION, name), self._rejoin or "")

    def _not_joined(self, answer: Answer, error: KafkaException) -> None:
        if isinstance(error, MemberIdRequired):
            self._leave_as(answer.response.member_id)
        if self.state is not State.JOINING:
            return
        request: Any = answer.ask.request
        self._rejoin = self._rejoin or request.reason
        if isinstance(error, MemberIdRequired) and answer.response.member_id:
            self._name = answer.response.member_id  # KIP-394: the same again, with it
        elif isinstance(error, FENCES):
            self._fenced(error)
            self._pause(Kind.ROUND, error, answer.now)
        elif passes(error) or isinstance(error, (RebalanceInProgress, MemberIdRequired)):
            self._look_at_coordinator(error, answer.ask.to)
            self._pause(Kind.ROUND, error, answer.now)
        else:
            self._break(error)

    def _synced(self, answer: Answer) -> None:
        if self.state is not State.SYNCING or not self._is_mine(answer.ask):
            return
        self._lease.settled(answer.sent_at)
        self._made = []
        try:
            assigned = self._readable(answer.response.assignment)
        except ProtocolError as error:
            self._report(error)
            assigned = [tp for tp in self._have.owned if tp.topic in self._topics]
        self._take(assigned)
        self._move(Event.SYNCED)

    def _readable(self, data: Any) -> list[TopicPartition]:
        """The assignment; what was not asked for, twice or impossible is left out, and told."""
        found = flattened(read_assignment(data, self._name).assigned_partitions)
        fit = [tp for tp in dict.fromkeys(found) if tp.topic in self._topics and tp.partition >= 0]
        if len(fit) < len(found) and self._rejoin is None:
            wanted = set(fit)
            odd = next((tp for tp in found if tp not in wanted), found[0])
            place = f"{escaped(odd.topic, LONGEST_NAME)}-{odd.partition}"
            text = f"member {self._name!r}: its leader gave it {place}, which it did not ask for, or twice"
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
        log.info("group %r, member %r, generation %d: %s", self.options.group, self._name, self.generation, partitions_named(kept))

    def _not_synced(self, answer: Answer, error: KafkaException) -> None:
        if self.state is not State.SYNCING or not self._is_mine(answer.ask):
            return
        if isinstance(error, FENCES):
            self._fenced(error)
        elif isinstance(error, RebalanceInProgress):
            self._begin(self._rejoin or "the group is rebalancing")
            self._move(Event.REBALANCE)
        elif passes(error):
            self._look_at_coordinator(error, answer.ask.to)
            self._pause(Kind.ROUND, error, answer.now)
        else:
            self._break(error)

    # -- Heartbeat
    def _beaten(self, answer: Answer) -> None:
        if self._is_mine(answer.ask):
            heard = self._lease.settled if self.state is State.STABLE else self._lease.alive
            heard(answer.sent_at)

    def _not_beaten(self, answer: Answer, error: KafkaException) -> None:
        if not self._is_mine(answer.ask):
            return
        if isinstance(error, RebalanceInProgress):
            self._lease.alive(answer.sent_at)
            if self.state is State.STABLE:
                self.rejoin("the group is rebalancing")
        elif isinstance(error, IllegalGeneration) and self.state is State.JOINING:
            self._beat_at = NEVER  # the answer to the JoinGroup, which tells the new one, is on its way
        elif isinstance(error, (FencedInstanceId, *FENCES)):
            self._fenced(error)
        else:
            self._look_at_coordinator(error, answer.ask.to)
            self._pause(Kind.BEAT, error, answer.now)
            self._beat_at = 0.0
            if not passes(error):
                self._break(error)

    def _is_mine(self, ask: Ask) -> bool:
        """Was it sent by the membership in force?"""
        request: Any = ask.request
        return (request.generation_id, request.member_id) == (self.generation, self._name)

    # -- the end of a membership -------------------------------------------------------------------------------------------
    def _put_out(self, error: KafkaException) -> None:
        self._lose()
        if isinstance(error, UnknownMemberId):
            self._name = ""
        if self.state is State.LEAVING:
            self._farewell = None
        elif self.state is not State.JOINING or Kind.ROUND not in self._flying:
            self._reset(type(error).__name__)

    def _lapsed(self, reason: str) -> None:
        self._lose()
        if self.state in (State.ASSIGNING, State.SYNCING, State.STABLE):
            self._reset(reason)

    def _part(self, reason: str) -> None:
        if self.options.instance_id is None and self._name:
            self._farewell = leave(self._membership(), reason)
            self._name = ""
        self._lose()
        self._flying.forget(Kind.ROUND)

    def _lose(self) -> None:
        super()._lose()
        self._last, self._last_generation = None, NO_GENERATION
        self.is_leader = False

    _readers: ClassVar[Readers] = {
        Kind.FIND: (_found, GroupMachine._not_found),
        Kind.ROUND: (_round_ended, _round_failed),
        Kind.BEAT: (_beaten, _not_beaten),
        Kind.LEAVE: (GroupMachine._left, GroupMachine._not_left),
    }
