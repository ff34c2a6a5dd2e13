"""A KIP-848 group as its coordinator keeps it: who is a member, in which epoch, what each has and shall have. Time is given by its owner.

- Each heartbeat moves its member towards the target: what it has and shall not have is taken back first; it moves to the next epoch when it
  tells that it has given that up; what others still have is given to it when they have let go.
- A member that is silent for a session, or does not give up within its rebalance timeout, is removed. Members are known by id and epoch: one
  that comes with the epoch before, and with nothing that it should not have, has missed an answer; any other epoch is fenced.
- Static members leave for a while with epoch -2: nobody gets their partitions until they come back or their session ends (KIP-345).
- All is stored: a coordinator that moves knows everything, only the clocks start anew.

Left out: members of the classic protocol in the same group. A pattern is Python's, not RE2's. Source: GroupMetadataManager.java,
CurrentAssignmentBuilder.java
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from math import inf
from uuid import UUID

from gkafka.wire.consumergroups import (
    ConsumerGroupAssignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

__all__ = ["ASSIGNORS", "CONSUMER", "EMPTY", "RECONCILING", "STABLE", "ConsumerGroup", "Key", "Partitions", "Seat"]

UNKNOWN_MEMBER, INVALID_REQUEST, FENCED_INSTANCE, FENCED_EPOCH, UNRELEASED_INSTANCE = 25, 42, 82, 110, 111
UNSUPPORTED_ASSIGNOR, STALE_EPOCH, INVALID_PATTERN = 112, 113, 128
JOIN, LEAVE, LEAVE_FOR_A_WHILE = 0, -1, -2
EMPTY, RECONCILING, STABLE = "Empty", "Reconciling", "Stable"
ASSIGNORS = ("uniform", "range")
CONSUMER = "consumer"
"""What ListGroups calls such groups, and the protocol that their members speak."""
Key = tuple[UUID, int]
Partitions = set[Key]


class Seat:
    """A member. assigned: what it has or may take. pending: what it must give up first. unreleased: others still have some of its target."""

    def __init__(self, instance: str | None, client_id: str) -> None:
        self.instance, self.client_id = instance, client_id
        self.epoch = self.previous = 0
        self.assigned: Partitions = set()
        self.pending: Partitions = set()
        self.unreleased = False
        self.topics: list[str] = []
        self.pattern: re.Pattern[str] | None = None
        self.assignor: str | None = None
        self.rebalance_s = 0.0
        self.expires = self.revoke_by = inf

    def move_to(self, epoch: int) -> None:
        self.previous, self.epoch = self.epoch, epoch

    def wants(self, name: str) -> bool:
        return name in self.topics or (self.pattern is not None and self.pattern.fullmatch(name) is not None)


class ConsumerGroup:
    """topics(): name -> (id, number of partitions), of all that there are. members: member id -> seat. target: member id -> what it shall have in
    the end. begins_again: a member that is known may join again with epoch 0 (KAFKA-19233). Whoever owns it sets `now` before each request and
    calls `pass_time` at `wake_at`.
    """

    def __init__(
        self, topics: Callable[[], Mapping[str, tuple[UUID, int]]], *, session_s: float = 45.0, beat_s: float = 5.0, now: float = 0.0
    ) -> None:
        self.now = now
        self.generation = 0
        self.members: dict[str, Seat] = {}
        self.target: dict[str, Partitions] = {}
        self.begins_again = True
        self._topics, self._session_s, self._beat_s = topics, session_s, beat_s
        self._known: Mapping[str, tuple[UUID, int]] = {}

    protocol_type = CONSUMER

    @property
    def state(self) -> str:
        if not self.members:
            return EMPTY
        settled = all(seat.epoch == self.generation and not (seat.pending or seat.unreleased) for seat in self.members.values())
        return STABLE if settled else RECONCILING

    @property
    def assignor(self) -> str:
        """What most members want; those that want none take the default."""
        wishes = [seat.assignor for seat in self.members.values() if seat.assignor]
        return max(ASSIGNORS, key=wishes.count)

    # -- ConsumerGroupHeartbeat
    def heartbeat(self, request: ConsumerGroupHeartbeatRequest, client_id: str = "") -> ConsumerGroupHeartbeatResponse:
        code = self._objection(request)
        if code:
            return ConsumerGroupHeartbeatResponse(error_code=code)
        if request.member_epoch < 0:
            return self._leave(request)
        owned = None if request.topic_partitions is None else {(t.topic_id, n) for t in request.topic_partitions for n in t.partitions}
        code = self._find_seat(request, owned, client_id)
        if code:
            return ConsumerGroupHeartbeatResponse(error_code=code)
        seat = self.members[request.member_id]
        if self._update(seat, request) or self._known != self._topics():
            self.rebalance()
        before = set(seat.assigned)
        self._reconcile(request.member_id, seat, owned)
        seat.expires = self.now + self._session_s
        answer = ConsumerGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=seat.epoch, heartbeat_interval_ms=round(self._beat_s * 1000)
        )
        told = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        is_full = request.rebalance_timeout_ms != -1 and told and owned is not None
        if request.member_epoch == JOIN or is_full or before != seat.assigned:
            answer.assignment = ConsumerGroupAssignment(topic_partitions=by_topic(seat.assigned))
        return answer

    def _objection(self, request: ConsumerGroupHeartbeatRequest) -> int:
        """What is wrong with the request itself."""
        nameless = not request.member_id or request.member_epoch < LEAVE_FOR_A_WHILE
        lacks_instance = request.member_epoch == LEAVE_FOR_A_WHILE and request.instance_id is None
        wants = request.subscribed_topic_names or request.subscribed_topic_regex
        joins_wrongly = request.member_epoch == JOIN and not (request.rebalance_timeout_ms > 0 and request.topic_partitions == [] and wants)
        if nameless or lacks_instance or joins_wrongly:
            return INVALID_REQUEST
        if request.server_assignor not in (None, *ASSIGNORS):
            return UNSUPPORTED_ASSIGNOR
        try:
            re.compile(request.subscribed_topic_regex or "")
        except re.error:
            return INVALID_PATTERN
        return 0

    def _find_seat(self, request: ConsumerGroupHeartbeatRequest, owned: Partitions | None, client_id: str) -> int:
        """Whose seat it is: the member's own, a new one, or that of its instance id. Returns why there is none for it."""
        name, joins = request.member_id, request.member_epoch == JOIN
        holder = None if request.instance_id is None else self._holder(request.instance_id)
        if request.instance_id is not None and not joins and holder != name:
            return UNKNOWN_MEMBER if holder is None else FENCED_INSTANCE
        if holder is not None and joins:
            if self.members[holder].epoch != LEAVE_FOR_A_WHILE:
                return UNRELEASED_INSTANCE
            seat = self.members[name] = self.members.pop(holder)
            self.target[name] = self.target.pop(holder)
            seat.epoch = seat.previous = 0
            return 0
        if name not in self.members:
            if not joins:
                return UNKNOWN_MEMBER
            self.members[name] = Seat(request.instance_id, client_id)
            return 0
        return 0 if self._may(self.members[name], request.member_epoch, owned) else FENCED_EPOCH

    def _holder(self, instance: str) -> str | None:
        return next((name for name, seat in self.members.items() if seat.instance == instance), None)

    def _may(self, seat: Seat, epoch: int, owned: Partitions | None) -> bool:
        if epoch == seat.epoch or (epoch == JOIN and self.begins_again):
            return True
        return epoch < seat.epoch and epoch == seat.previous and owned is not None and owned <= seat.assigned

    def _update(self, seat: Seat, request: ConsumerGroupHeartbeatRequest) -> bool:
        """What it tells of itself. Returns whether the partitions are to be divided anew."""
        before = seat.topics, seat.pattern, seat.assignor
        if request.rebalance_timeout_ms > 0:
            seat.rebalance_s = request.rebalance_timeout_ms / 1000
        if request.subscribed_topic_names is not None:
            seat.topics = sorted(request.subscribed_topic_names)
        if request.subscribed_topic_regex is not None:
            seat.pattern = re.compile(request.subscribed_topic_regex) if request.subscribed_topic_regex else None
        seat.assignor = request.server_assignor or seat.assignor
        return before != (seat.topics, seat.pattern, seat.assignor) or request.member_id not in self.target

    def _leave(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        holder = None if request.instance_id is None else self._holder(request.instance_id)
        if holder is not None and holder != request.member_id:
            return ConsumerGroupHeartbeatResponse(error_code=FENCED_INSTANCE)
        if request.member_id not in self.members:
            return ConsumerGroupHeartbeatResponse(error_code=UNKNOWN_MEMBER)
        if request.member_epoch == LEAVE:
            self.expel([request.member_id])
        else:
            seat = self.members[request.member_id]
            seat.move_to(LEAVE_FOR_A_WHILE)
            seat.pending, seat.revoke_by = set(), inf
        return ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)

    def expel(self, names: Iterable[str]) -> None:
        """They are members no more."""
        for name in names:
            del self.members[name]
            self.target.pop(name, None)
        self.rebalance()

    # -- who gets what
    def rebalance(self) -> None:
        """A new epoch and its target."""
        self.generation += 1
        self._known = dict(self._topics())
        wanted = {
            member: [(id_, n) for name, (id_, count) in sorted(self._known.items()) if seat.wants(name) for n in range(count)]
            for member, seat in self.members.items()
        }
        self.target = _range(wanted) if self.assignor == "range" else _uniform(wanted, self.target)

    def _reconcile(self, name: str, seat: Seat, owned: Partitions | None) -> None:
        if seat.epoch == self.generation and not (seat.pending or seat.unreleased):
            return
        epoch = seat.epoch
        if seat.pending:
            if owned is None or owned & seat.pending:
                return
            epoch += 1
        target = self.target[name]
        pending, missing = seat.assigned - target, target - seat.assigned
        if pending and (owned is None or owned & pending):
            seat.assigned, seat.pending = seat.assigned & target, pending
            seat.move_to(epoch)
            seat.revoke_by = self.now + seat.rebalance_s
            return
        taken = set().union(*(other.assigned | other.pending for other in self.members.values() if other is not seat))
        seat.unreleased = bool(missing & taken)
        seat.assigned = (seat.assigned & target) | (missing - taken)
        seat.pending, seat.revoke_by = set(), inf
        seat.move_to(self.generation)

    def check_commit(self, member_id: str, epoch: int) -> int:
        """Why positions are not taken, 0 if they are."""
        if epoch < 0 and not self.members:
            return 0
        if member_id not in self.members:
            return UNKNOWN_MEMBER
        return 0 if epoch == self.members[member_id].epoch else STALE_EPOCH

    # -- time and moves
    @property
    def wake_at(self) -> float:
        """When time changes something, as far as is known now."""
        return min((min(seat.expires, seat.revoke_by) for seat in self.members.values()), default=inf)

    def pass_time(self, now: float) -> None:
        self.now = now
        late = [name for name, seat in self.members.items() if now >= min(seat.expires, seat.revoke_by)]
        if late:
            self.expel(late)

    def move(self) -> None:
        """To another broker."""
        for seat in self.members.values():
            seat.expires = self.now + self._session_s
            seat.revoke_by = self.now + seat.rebalance_s if seat.pending else inf


def by_topic(partitions: Iterable[Key]) -> list[TopicPartitions]:
    found: dict[UUID, list[int]] = {}
    for topic_id, number in sorted(partitions):
        found.setdefault(topic_id, []).append(number)
    return [TopicPartitions(topic_id=topic_id, partitions=numbers) for topic_id, numbers in found.items()]


Wanted = Mapping[str, list[Key]]


def _range(wanted: Wanted) -> dict[str, Partitions]:
    """Of each topic a piece for everybody who wants it."""
    made: dict[str, Partitions] = {name: set() for name in wanted}
    for topic_id in {topic_id for keys in wanted.values() for topic_id, _ in keys}:
        names = sorted(name for name, keys in wanted.items() if (topic_id, 0) in keys)
        count = sum(1 for id_, _ in wanted[names[0]] if id_ == topic_id)
        for number in range(count):
            made[names[number * len(names) // count]].add((topic_id, number))
    return made


def _uniform(wanted: Wanted, before: Mapping[str, Partitions]) -> dict[str, Partitions]:
    """As many for everybody as the subscriptions allow; what can stay stays."""
    made: dict[str, Partitions] = {name: before.get(name, set()) & set(keys) for name, keys in wanted.items()}
    taken = set().union(*made.values()) if made else set()
    for key in sorted({key for keys in wanted.values() for key in keys} - taken):
        made[min((name for name in wanted if key in wanted[name]), key=lambda name: len(made[name]))].add(key)
    while True:
        moves = (
            (rich, poor, key)
            for rich in sorted(made, key=lambda name: -len(made[name]))
            for poor in sorted(made, key=lambda name: len(made[name]))
            if len(made[rich]) > len(made[poor]) + 1
            for key in sorted(made[rich].intersection(wanted[poor]))
        )
        move = next(moves, None)
        if move is None:
            return made
        rich, poor, key = move
        made[rich].remove(key)
        made[poor].add(key)
