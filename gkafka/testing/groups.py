"""A classic group as its coordinator keeps it: who is a member, of which generation, and what is parked. Time is given by its owner.

- A JoinGroup waits until every member has joined, or the longest rebalance timeout is over; who has not joined by then is removed.
- It is answered at once where nothing would change: a follower of a stable group that tells the same as before.
- A member without an id is given one, and has to join again with it (KIP-394). Static members come back under their instance id (KIP-345),
  and a leader that does is told not to assign (KIP-814).
- A member that sends nothing for its session timeout is removed, a parked JoinGroup or SyncGroup counts as something; so is one that does not
  ask for its assignment within the longest rebalance timeout.
- Commits are taken from the members of the generation alone, and not between its JoinGroup and its SyncGroup; from others while nobody is there.
- When the coordinator moves, what was not stored, a rebalance under way, is gone; members are known where they were when it was stored.

Left out: the first rebalance waits for nobody (Kafka's group.initial.rebalance.delay.ms is 0), a group has no largest size, a session no shortest
length. Source: org.apache.kafka.coordinator.group.GroupMetadataManager, its classic groups, and ClassicGroup
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from math import inf
from typing import Any

from gkafka.wire.groups import (
    HeartbeatResponse,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupResponse,
)

__all__ = ["COMPLETING", "EMPTY", "PREPARING", "STABLE", "ClassicGroup", "Seat"]

NOT_COORDINATOR, ILLEGAL_GENERATION, INCONSISTENT_PROTOCOL, UNKNOWN_MEMBER, REBALANCING = 16, 22, 23, 25, 27
MEMBER_ID_REQUIRED, FENCED_INSTANCE = 79, 82
MEMBER_ID_FROM, SKIP_ASSIGNMENT_FROM, NAMED_PROTOCOL_FROM = 4, 9, 5  # versions of JoinGroup (KIP-394, KIP-814) and of SyncGroup (KIP-559)
EMPTY, PREPARING, COMPLETING, STABLE = "Empty", "PreparingRebalance", "CompletingRebalance", "Stable"
Reply = Callable[[Any], object]


class Seat:
    """A member. expires: when its session ends, unless a request of it is parked: `joining`, `syncing` answer those."""

    def __init__(self, request: Any, client_id: str) -> None:
        self.instance: str | None = request.group_instance_id
        self.client_id = client_id
        self.assignment = b""
        self.expires = 0.0
        self.joining: Reply | None = None
        self.syncing: Reply | None = None
        self.update(request)

    def update(self, request: Any) -> None:
        """What a JoinGroup says. Before its version 1 the session timeout stands for the rebalance timeout."""
        self.session_s = request.session_timeout_ms / 1000
        self.rebalance_s = request.rebalance_timeout_ms / 1000 if request.rebalance_timeout_ms >= 0 else self.session_s
        self.protocols = _protocols(request)

    @property
    def parked(self) -> bool:
        return self.joining is not None or self.syncing is not None

    def refuse(self, code: int) -> None:
        """Answer what is parked."""
        joining, self.joining = self.joining, None
        syncing, self.syncing = self.syncing, None
        if joining is not None:
            joining(JoinGroupResponse(error_code=code))
        if syncing is not None:
            syncing(SyncGroupResponse(error_code=code))


class ClassicGroup:
    """members: member id -> seat. pending: ids given out and not yet joined with -> when they end. deadline: of the JoinGroups while the group
    is preparing, then of the SyncGroups. Whoever owns it sets `now` before each request and calls `pass_time` at `wake_at`.
    """

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self.state = EMPTY
        self.generation = 0
        self.members: dict[str, Seat] = {}
        self.pending: dict[str, float] = {}
        self.leader = ""
        self.protocol_type = ""
        self.protocol = ""
        self.deadline = 0.0
        self._unsynced: set[str] = set()
        self._initial = False  # the first members of a group that was empty wait for nobody
        self._names = 0
        self._stored: tuple[int, dict[str, tuple[Seat, bytes]], str, str] | None = None

    # -- JoinGroup
    def join(self, request: Any, version: int, reply: Reply, client_id: str = "") -> None:
        """reply(answer), now or when the group's JoinGroups end."""
        name, instance = request.member_id, request.group_instance_id
        if not self._takes(request):
            reply(JoinGroupResponse(error_code=INCONSISTENT_PROTOCOL, member_id=name))
        elif name and name not in self.pending:
            code = self._check_member(name, instance)
            if code:
                reply(JoinGroupResponse(error_code=code, member_id=name))
            else:
                self._join_again(name, request, reply)
        elif name:
            del self.pending[name]
            self._join_new(name, request, reply, client_id)
        elif instance is not None and (old := self._holder(instance)) is not None:
            self._join_instead(old, request, version, reply)
        elif instance is None and version >= MEMBER_ID_FROM:
            name = self._new_name(client_id)
            self.pending[name] = self.now + request.session_timeout_ms / 1000
            reply(JoinGroupResponse(error_code=MEMBER_ID_REQUIRED, member_id=name))
        else:
            self._join_new(self._new_name(instance or client_id), request, reply, client_id)

    def _takes(self, request: Any) -> bool:
        """Is there a protocol that the joining member and all others have?"""
        names = {name for name, _ in _protocols(request)}
        if not self.members:
            return bool(request.protocol_type and names)
        return request.protocol_type == self.protocol_type and bool(names & self._common())

    def _new_name(self, stem: str) -> str:
        self._names += 1
        return f"{stem}-{self._names}"

    def _holder(self, instance: str) -> str | None:
        return next((name for name, seat in self.members.items() if seat.instance == instance), None)

    def _join_new(self, name: str, request: Any, reply: Reply, client_id: str) -> None:
        if not self.members:
            self.protocol_type = request.protocol_type
        seat = self.members[name] = Seat(request, client_id)
        seat.expires = self.now + seat.session_s
        seat.joining = reply
        self._go_on()

    def _join_again(self, name: str, request: Any, reply: Reply) -> None:
        """A JoinGroup that was sent anew has the last word: an earlier one of the same member is never answered, as in Kafka."""
        seat = self.members[name]
        settled = self.state == COMPLETING or (self.state == STABLE and name != self.leader)
        if settled and seat.protocols == _protocols(request):
            reply(self._answer(name))
            return
        seat.update(request)
        seat.joining = reply
        self._go_on()

    def _join_instead(self, old: str, request: Any, version: int, reply: Reply) -> None:
        """A static member is back; whoever was there under its instance id is fenced."""
        name, leader = self._new_name(request.group_instance_id), self.leader
        seat = self._rename(old, name)
        seat.update(request)
        seat.expires = self.now + seat.session_s
        if self.state != STABLE or self._elect_protocol() != self.protocol:
            seat.joining = reply
            self._go_on()
        elif version >= SKIP_ASSIGNMENT_FROM:
            answer = self._answer(name)
            answer.skip_assignment = name == self.leader
            reply(answer)
        else:  # under its old name as the leader it takes itself for a follower, and assigns nothing
            answer = self._answer(name)
            answer.leader, answer.members = leader, []
            reply(answer)

    def _rename(self, old: str, name: str) -> Seat:
        seat = self.members.pop(old)
        seat.refuse(FENCED_INSTANCE)
        self._unsynced.discard(old)
        self.members[name] = seat
        self.leader = name if self.leader == old else self.leader
        if self._stored is not None and old in self._stored[1]:
            generation, stored, leader, protocol = self._stored
            stored[name] = stored.pop(old)
            self._stored = generation, stored, name if leader == old else leader, protocol
        return seat

    # -- from one generation to the next
    def _go_on(self) -> None:
        """Somebody came, went, or wants a rebalance."""
        if self.state != PREPARING:
            self._prepare()
        self._check_join()

    def _prepare(self) -> None:
        self._initial = self.state == EMPTY
        self.state = PREPARING
        self._unsynced.clear()
        self.deadline = self.now + self._rebalance_s()
        for seat in list(self.members.values()):
            if seat.syncing is not None:
                waiting, seat.syncing = seat.syncing, None
                seat.expires = self.now + seat.session_s
                waiting(SyncGroupResponse(error_code=REBALANCING))

    def _check_join(self) -> None:
        if self.state != PREPARING:
            return
        complete = self._initial or not (self.pending or any(seat.joining is None for seat in self.members.values()))
        if complete or self.now >= self.deadline:
            self._complete_join()

    def _complete_join(self) -> None:
        for name in [m for m, seat in self.members.items() if seat.joining is None and seat.instance is None]:
            del self.members[name]
        joined = [name for name, seat in self.members.items() if seat.joining is not None]
        if self.members and not joined:  # static members, each until its session ends
            self.deadline = self.now + self._rebalance_s()
            return
        self.generation += 1
        if not self.members:
            self.state, self.leader, self.protocol, self._stored = EMPTY, "", "", None
            return
        if self.leader not in joined:
            self.leader = joined[0]
        self.protocol = self._elect_protocol()
        self.state = COMPLETING
        self.deadline = self.now + self._rebalance_s()
        self._unsynced = set(self.members)
        for name, seat in list(self.members.items()):
            seat.expires = self.now + seat.session_s
            if seat.joining is not None:
                waiting, seat.joining = seat.joining, None
                waiting(self._answer(name))

    def _rebalance_s(self) -> float:
        return max((seat.rebalance_s for seat in self.members.values()), default=0.0)

    def _common(self) -> set[str]:
        names = [{name for name, _ in seat.protocols} for seat in self.members.values()]
        return set.intersection(*names) if names else set()

    def _elect_protocol(self) -> str:
        """Each member votes for the first of its own that all have."""
        common = self._common()
        votes = Counter(next(name for name, _ in seat.protocols if name in common) for seat in self.members.values())
        return votes.most_common(1)[0][0]

    def _answer(self, name: str) -> JoinGroupResponse:
        answer = JoinGroupResponse(
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            leader=self.leader,
            member_id=name,
        )
        if name == self.leader:
            answer.members = [
                JoinGroupResponseMember(member_id=m, group_instance_id=seat.instance, metadata=dict(seat.protocols)[self.protocol])
                for m, seat in self.members.items()
            ]
        return answer

    # -- SyncGroup
    def sync(self, request: Any, version: int, reply: Reply) -> None:
        """reply(answer), now or when the leader has handed in the assignments."""
        code = self._check(request) or self._check_protocol(request, version)
        if not code and self.state == PREPARING:
            code = REBALANCING
        if code:
            reply(SyncGroupResponse(error_code=code))
            return
        seat = self.members[request.member_id]
        seat.expires = self.now + seat.session_s
        self._unsynced.discard(request.member_id)
        if self.state == STABLE:
            reply(self._assigned(seat))
            return
        seat.syncing = reply
        if request.member_id == self.leader:
            self._assign({a.member_id: bytes(a.assignment) for a in request.assignments})

    def _check_protocol(self, request: Any, version: int) -> int:
        named = request.protocol_type, request.protocol_name
        if None in named and version >= NAMED_PROTOCOL_FROM:
            return INCONSISTENT_PROTOCOL
        same = all(name in (None, own) for name, own in zip(named, (self.protocol_type, self.protocol), strict=True))
        return 0 if same else INCONSISTENT_PROTOCOL

    def _assign(self, made: dict[str, bytes]) -> None:
        self.state = STABLE
        for name, seat in list(self.members.items()):
            seat.assignment = made.get(name, b"")
            if seat.syncing is not None:
                waiting, seat.syncing = seat.syncing, None
                seat.expires = self.now + seat.session_s
                waiting(self._assigned(seat))
        stored = {name: (seat, seat.assignment) for name, seat in self.members.items()}
        self._stored = self.generation, stored, self.leader, self.protocol

    def _assigned(self, seat: Seat) -> SyncGroupResponse:
        return SyncGroupResponse(protocol_type=self.protocol_type, protocol_name=self.protocol, assignment=seat.assignment)

    # -- Heartbeat, LeaveGroup, commits
    def heartbeat(self, request: Any) -> HeartbeatResponse:
        code = self._check(request)
        if not code:
            seat = self.members[request.member_id]
            seat.expires = self.now + seat.session_s
            code = REBALANCING if self.state == PREPARING else 0
        return HeartbeatResponse(error_code=code)

    def leave(self, request: Any) -> LeaveGroupResponse:
        """One member or many; a static one may be named by its instance id alone."""
        identities = request.members or [MemberIdentity(member_id=request.member_id)]
        gone = [
            MemberResponse(member_id=one.member_id, group_instance_id=one.group_instance_id, error_code=self._leave(one))
            for one in identities
        ]
        if any(not one.error_code for one in gone):
            self._after_removal()
        return LeaveGroupResponse(members=gone)

    def _leave(self, identity: MemberIdentity) -> int:
        name, instance = identity.member_id, identity.group_instance_id
        if self.pending.pop(name, None) is not None:
            return 0
        if not name and instance is not None:
            name = self._holder(instance) or ""
        code = self._check_member(name, instance)
        if not code:
            self._remove(name)
        return code

    def check_commit(self, member_id: str, instance: str | None, generation: int, *, transactional: bool = False) -> int:
        """Why positions are not taken, 0 if they are. A commit counts as a sign of life."""
        if generation < 0 and self.state == EMPTY:
            return 0
        if generation < 0 and not member_id and instance is None:
            return 0 if transactional else UNKNOWN_MEMBER
        code = self._check_member(member_id, instance)
        if code:
            return code
        if generation != self.generation:
            return ILLEGAL_GENERATION
        if self.state == COMPLETING and not transactional:
            return REBALANCING
        if not transactional:
            seat = self.members[member_id]
            seat.expires = self.now + seat.session_s
        return 0

    def _check_member(self, name: str, instance: str | None) -> int:
        if instance is not None:
            holder = self._holder(instance)
            if holder is not None and holder != name:
                return FENCED_INSTANCE
            if holder is None:
                return UNKNOWN_MEMBER
        return 0 if name in self.members else UNKNOWN_MEMBER

    def _check(self, request: Any) -> int:
        code = self._check_member(request.member_id, request.group_instance_id)
        return code or (0 if request.generation_id == self.generation else ILLEGAL_GENERATION)

    # -- what happens to groups
    def rebalance(self) -> None:
        """As if somebody had joined: members hear of it by their heartbeats. Nothing in a group that is empty."""
        if self.state in (STABLE, COMPLETING):
            self._go_on()

    def expel(self, names: Iterable[str]) -> None:
        """Remove members, as when their sessions end."""
        for name in names:
            self._remove(name)
        self._after_removal()

    def _remove(self, name: str) -> None:
        seat = self.members.pop(name)
        self._unsynced.discard(name)
        seat.refuse(UNKNOWN_MEMBER)

    def _after_removal(self) -> None:
        if self.state != EMPTY:
            self._go_on()

    @property
    def wake_at(self) -> float:
        """When time changes something, as far as is known now."""
        ends = [*self.pending.values(), *(seat.expires for seat in self.members.values() if not seat.parked)]
        if self.state == PREPARING or self._unsynced:
            ends.append(self.deadline)
        return min(ends, default=inf)

    def pass_time(self, now: float) -> None:
        self.now = now
        for name in [m for m, expires in self.pending.items() if now >= expires]:
            del self.pending[name]
        expired = [name for name, seat in self.members.items() if now >= seat.expires and not seat.parked]
        if self._unsynced and now >= self.deadline:
            expired += self._unsynced.difference(expired)
        if expired:
            self.expel(expired)
        self._check_join()

    def move(self) -> None:
        """To another broker, with what is stored."""
        for seat in self.members.values():
            seat.refuse(NOT_COORDINATOR)
        self.pending.clear()
        self._unsynced.clear()
        if self._stored is None:
            self.members, self.state, self.leader = {}, EMPTY, ""
            return
        # Left out: a static member that came back under a new name, which was not stored, is fenced by its own old one, and ends.
        names = {seat.instance: name for name, seat in self.members.items() if seat.instance is not None}
        self.generation, stored, self.leader, self.protocol = self._stored
        self.state, self.members = STABLE, {}
        for old, (seat, assignment) in stored.items():
            name = names.get(seat.instance, old) if seat.instance is not None else old
            seat.assignment, seat.expires = assignment, self.now + seat.session_s
            self.members[name] = seat


def _protocols(request: Any) -> list[tuple[str, bytes]]:
    return [(protocol.name, bytes(protocol.metadata)) for protocol in request.protocols]
