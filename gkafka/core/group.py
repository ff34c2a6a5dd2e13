"""A member of a classic group: when it joins, what its leader gives it, and what an answer, or none, means for that.

What every member is stands in `groupmachine`; `groupstate.MOVES` is the picture of this one's states. The coordinator may have given up waiting
for it also when it has not joined a rebalance in time.

Heartbeats run beside everything else, also while a JoinGroup is parked: they say that the member is alive, and that the coordinator is.

Source: KIP-62, KIP-134, KIP-345, KIP-394, KIP-429, KIP-559, KIP-792, KIP-800, KIP-814; AbstractCoordinator.java, ConsumerCoordinator.java
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, ClassVar, NamedTuple

from gkafka.brokererrors import IllegalGeneration, KafkaException, MemberIdRequired, RebalanceInProgress, UnknownMemberId
from gkafka.common import TopicPartition
from gkafka.core.backoff import Backoff, Chance
from gkafka.core.coordinatorrequests import Answer, Kind
from gkafka.core.groupleader import Election, Made
from gkafka.core.groupmachine import GroupMachine, Readers, Rules
from gkafka.core.grouprequests import Membership, heartbeat, join, leave, sync
from gkafka.core.grouprounds import Round, divides, read_share
from gkafka.core.groupstate import IN_GROUP, MOVES, NEVER, NO_GENERATION, Ask, Event, GroupOptions, Lane, State, Ticket, Verdict
from gkafka.errortexts import partitions_named
from gkafka.exceptions import AssignmentError, ProtocolError
from gkafka.logs import get_logger
from gkafka.wire.groups import FindCoordinatorRequest, HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest
from gkafka.wire.schema import Message

__all__ = ["Group"]

log = get_logger(__name__)

JOINED = (State.ASSIGNING, State.SYNCING, State.STABLE)
COMMITTING = (State.STABLE, State.PREPARING, State.LEAVING)
"""Between JoinGroup and the assignment the coordinator takes no commits."""
PARKED_LONGER_S = 5.0  # a join may be answered at the very end of the rebalance timeout: the answer needs a moment, too
FENCES = (UnknownMemberId, IllegalGeneration)


class LastAssignment(NamedTuple):
    """The last assignment, for assignors that want to know, and its generation."""

    partitions: tuple[TopicPartition, ...] | None = None
    generation: int = NO_GENERATION


class Group(GroupMachine):
    """The machine. rebalances: generations that it was in. is_leader: of the generation."""

    options: GroupOptions
    _rules = Rules(MOVES, IN_GROUP, JOINED, COMMITTING, FENCES, passing=(RebalanceInProgress,))

    def __init__(self, options: GroupOptions, topics: Iterable[str], *, backoff: Backoff, chance: Chance) -> None:
        super().__init__(options, topics, backoff=backoff, chance=chance, patience_s=options.heartbeat_interval_s)
        self._last = LastAssignment()
        self._round = Round()
        self._rejoin: str | None = None  # why the generation shall end, and what JoinGroup tells as its reason (KIP-800)
        self._beat_at = 0.0

    def restart(self, now: float) -> None:
        super().restart(now)
        self._beat_at = now

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
            self._farewell.request = leave(self._membership(), reason) if self._name else None

    @property
    def election(self) -> Election | None:
        return self._round.election(self.is_interruption) if self.state is State.ASSIGNING else None

    def divided(self, election: Election, made: Made) -> None:
        if self.state is not State.ASSIGNING or not self._round.divided(election, made):
            return
        if made.problem is not None:
            self._report(made.problem)
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
        nameless = Kind.ROUND in self.requests and not self._name
        return super()._is_done and not nameless

    def _begin(self, reason: str) -> None:
        self._rejoin = reason
        self._round = Round()
        self.requests.forget(Kind.ROUND)

    def _prepare(self, now: float) -> None:
        """Give up what must be, and let commits under way come to their end: they would be refused once the generation has changed."""
        if self._round.prepared_by == NEVER:
            self._round.prepared_by = now + self.options.rebalance_timeout_s
            log.info("group %r, member %r: joining, %s", self.options.group, self._name, self._rejoin)
        is_cooperative = all(assignor.cooperative for assignor in self.options.assignors)
        given = [tp for tp in self.ownership.owned if not is_cooperative or tp.topic not in self._topics]
        self.ownership.give_up(given)
        if self.ownership.settled and (not self.tickets or now >= self._round.prepared_by):
            self._move(Event.READY)

    # -- requests
    def _asks(self, now: float) -> list[Ask | None]:
        return [self._find(now), self._take_part(now), self._beat(now), self._say_farewell(now)]

    def _take_part(self, now: float) -> Ask | None:
        """JoinGroup or SyncGroup: never two at a time (B55)."""
        if not self.requests.may_send(Kind.ROUND, now):
            return None
        if self.state is State.JOINING:
            try:
                request: Message = self._join()
            except AssignmentError as error:
                self._break(error)
                return None
        elif self.state is State.SYNCING:
            request = sync(self._membership(), self._round.assignor, self._round.made)
        else:
            return None
        return self.requests.send(Kind.ROUND, request, now, lane=Lane.GROUP, timeout_s=self.options.rebalance_timeout_s + PARKED_LONGER_S)

    def _join(self) -> JoinGroupRequest:
        reason, self._rejoin = self._rejoin, None
        self._round.claimed = frozenset(self.ownership.owned)
        return join(self._membership(), self._topics, self.ownership.owned, *self._last, reason, self.is_interruption)

    def _membership(self) -> Membership:
        return Membership(self.options, self.generation, self._name)

    def _beat(self, now: float) -> Ask | None:
        if now < self._beats_at or not self.requests.may_send(Kind.BEAT, now):
            return None
        self._beat_at = now + self.options.heartbeat_interval_s
        return self.requests.send(Kind.BEAT, heartbeat(self._membership()), now)

    @property
    def _beats_at(self) -> float:
        is_there = self.state in IN_GROUP or (self.state is State.LEAVING and not self.ownership.settled)
        return self._beat_at if is_there and self.generation != NO_GENERATION else NEVER

    def _wake_at(self, now: float) -> float:
        prepared_by = self._round.prepared_by
        waits_for_commits = self.state is State.PREPARING and self.tickets and prepared_by > now
        return min(super()._wake_at(now), prepared_by if waits_for_commits else NEVER)

    # -- FindCoordinator
    def _found(self, answer: Answer) -> None:
        super()._found(answer)
        parked = self.requests.get(Kind.ROUND)
        if parked is not None and parked.to != self.requests.coordinator:
            self.requests.forget(Kind.ROUND)  # at a broker that is it no more, or cannot be reached: nobody will complete it there

    # -- JoinGroup and SyncGroup
    def _joined(self, answer: Answer) -> None:
        response = answer.response
        self._leave_as(response.member_id)
        if self.state is not State.JOINING:
            return
        try:
            problems = self._round.joined(response, self.options)
        except KafkaException as error:
            self._break(error)
            return
        self.generation, self._name = response.generation_id, response.member_id
        self.is_leader = response.leader == response.member_id
        self.rebalances += 1
        self.lease.joined(answer.sent_at)
        self._beat_at = 0.0
        for problem in problems:
            self._report(problem)
        self._move(Event.ELECTED if divides(response) else Event.JOINED)

    def _leave_as(self, name: str) -> None:
        """Who left before it heard its name gives it back: the group's next round would wait a session for it."""
        if self.state is State.LEAVING and not self._name and name:
            self._farewell.request = leave(Membership(self.options, NO_GENERATION, name), self._rejoin or "")

    def _not_joined(self, answer: Answer, error: KafkaException) -> None:
        if isinstance(error, MemberIdRequired):
            self._leave_as(answer.response.member_id)
        if self.state is not State.JOINING:
            return
        request: Any = answer.ask.request
        self._rejoin = self._rejoin or request.reason
        if isinstance(error, MemberIdRequired) and answer.response.member_id:
            self._name = answer.response.member_id  # KIP-394: the same again, with it
        else:
            self._failed(answer, error, RebalanceInProgress, MemberIdRequired)

    def _synced(self, answer: Answer) -> None:
        if self.state is not State.SYNCING or not self._is_mine(answer.ask):
            return
        self.lease.settled(answer.sent_at)
        self._round.made = []
        try:
            assigned, odd = read_share(answer.response.assignment, self._name, self._topics, self.options.group)
        except ProtocolError as error:
            self._report(error)
            assigned, odd = [tp for tp in self.ownership.owned if tp.topic in self._topics], None
        if odd is not None and self._rejoin is None:  # else the leader may not know the subscription yet
            self._report(odd)
        self._take(assigned)
        self._move(Event.SYNCED)

    def _take(self, assigned: Collection[TopicPartition]) -> None:
        """What is not assigned any more is given up first; then another round gives it to others (KIP-429)."""
        self._last = LastAssignment(tuple(assigned), self.generation)
        kept = set(assigned)
        self.ownership.replace(assigned)
        # Also if it has lost them since: the leader has not, and keeps them from the others.
        if self._round.claimed - kept:
            self.rejoin("some partitions were revoked")
        log.info("group %r, member %r, generation %d: %s", self.options.group, self._name, self.generation, partitions_named(kept))

    def _not_synced(self, answer: Answer, error: KafkaException) -> None:
        if self.state is not State.SYNCING or not self._is_mine(answer.ask):
            return
        if isinstance(error, RebalanceInProgress):
            self._begin(self._rejoin or "the group is rebalancing")
            self._move(Event.REBALANCE)
        else:
            self._failed(answer, error)

    # -- Heartbeat
    def _beaten(self, answer: Answer) -> None:
        if self._is_mine(answer.ask):
            heard = self.lease.settled if self.state is State.STABLE else self.lease.alive
            heard(answer.sent_at)

    def _not_beaten(self, answer: Answer, error: KafkaException) -> None:
        if not self._is_mine(answer.ask):
            return
        if isinstance(error, RebalanceInProgress):
            self.lease.alive(answer.sent_at)
            if self.state is State.STABLE:
                self.rejoin("the group is rebalancing")
        elif isinstance(error, IllegalGeneration) and self.state is State.JOINING:
            self._beat_at = NEVER  # the answer to the JoinGroup, which tells the new one, is on its way
        else:
            self._beat_at = 0.0
            self._failed(answer, error)

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
            self._farewell.request = None
        elif self.state is not State.JOINING or Kind.ROUND not in self.requests:
            self._reset(type(error).__name__)

    def _lapsed(self, reason: str) -> None:
        self._lose()
        if self.state in JOINED:
            self._reset(reason)

    def _part(self, reason: str) -> None:
        if self.options.instance_id is None and self._name:
            self._farewell.request = leave(self._membership(), reason)
            self._name = ""
        self._lose()
        self.requests.forget(Kind.ROUND)

    def _lose(self) -> None:
        super()._lose()
        self._last = LastAssignment()
        self.is_leader = False

    _readers: ClassVar[Readers] = {
        FindCoordinatorRequest: (_found, GroupMachine._not_found),
        JoinGroupRequest: (_joined, _not_joined),
        SyncGroupRequest: (_synced, _not_synced),
        HeartbeatRequest: (_beaten, _not_beaten),
        LeaveGroupRequest: (GroupMachine._left, GroupMachine._not_left),
    }
