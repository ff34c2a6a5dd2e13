"""The group's machine at a coordinator that keeps Kafka's rules (`gkafka.testing.groups`), in simulated time, and members that consume.

Requests and answers take their time, get lost, or arrive long after their sender has given up. Members stall, freeze, die and are born.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator
from random import Random
from types import FrameType
from typing import Any

from gkafka.common import TopicPartition
from gkafka.core.assignors import Assignor, Topics
from gkafka.core.backoff import Backoff
from gkafka.core.group import Group
from gkafka.core.groupmachine import GroupMachine
from gkafka.core.groupstate import Ask, Change, GroupOptions, State, Tell, Ticket
from gkafka.exceptions import KafkaException, KafkaTimeoutError, SocketDisconnectedError, error_for
from gkafka.testing.groups import ClassicGroup
from gkafka.wire.groups import (
    Coordinator as Named,
)
from gkafka.wire.groups import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    JoinGroupRequest,
    SyncGroupRequest,
)
from gkafka.wire.metadata import MetadataRequest
from tests.core.dividing import divide
from tests.core.grouprig import commit_of

__all__ = ["LOST", "Coordinator", "Member", "Node", "World", "interrupted_at"]

NOT_COORDINATOR = 16
SESSION_S, BEAT_S, POLL_S = 10.0, 1.0, 25.0
COMMIT_S = 8.0
"""So long a commit keeps what is given up from being free, if nobody says what became of it."""
Reply = Callable[[Any], None]
CORE = os.path.join("gkafka", "core") + os.sep


class Interruption(BaseException):
    """What a signal handler raises."""


@contextlib.contextmanager
def interrupted_at(line: int) -> Iterator[list[str]]:
    """Interrupt the driver who executes this line of the machines, counted from here. Yields the lines until then."""
    left, where = line, list[str]()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if CORE not in frame.f_code.co_filename or not driving:
            return None
        if event == "line":
            where.append(f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}")
            left -= 1
            if not left:
                sys.settrace(None)
                raise Interruption
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield where
    finally:
        sys.settrace(before)


driving: list[Member] = []
"""Members whose drivers are at work: they can be interrupted."""


def fail_stop(act: Callable[..., None]) -> Callable[..., None]:
    """Have a member whose driver is interrupted begin anew."""

    @functools.wraps(act)
    def acting(member: Member, *args: Any) -> None:
        driving.append(member)
        try:
            act(member, *args)
        except Interruption:
            member.restart()
        finally:
            driving.pop()

    return acting


class Node:
    """What a coordinator in simulated time has besides its group (the other base of its class): node, the broker it is on, and the offsets that
    it has taken. Time is set by `pass_time`.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.node = 1
        self.committed: dict[TopicPartition, int] = {}
        self.regressions: list[tuple[TopicPartition, int, int]] = []

    def handle(self, node: int, request: Any, reply: Reply) -> None:
        if isinstance(request, FindCoordinatorRequest):
            reply(FindCoordinatorResponse(coordinators=[Named(key=request.key, node_id=self.node, host="b", port=self.node)]))
        elif node != self.node and not isinstance(request, MetadataRequest):
            reply(type(request).API.response(error_code=NOT_COORDINATOR))
        else:
            self.serve(request, reply)

    def serve(self, request: Any, reply: Reply) -> None:
        raise NotImplementedError

    def commit(self, node: int, request: Any) -> int:
        code = NOT_COORDINATOR if node != self.node else self.objection(request)
        if not code:
            for topic in request.topics:
                for p in topic.partitions:
                    self.store(request, TopicPartition(topic.name, p.partition_index), p.committed_offset)
        return code

    def objection(self, request: Any) -> int:
        """Why the group takes no commit like this, 0 if it does."""
        raise NotImplementedError

    def store(self, request: Any, tp: TopicPartition, offset: int) -> None:
        if offset < self.committed.get(tp, 0):
            self.regressions.append((tp, self.committed[tp], offset))
        self.committed[tp] = offset

    def move(self) -> None:
        """To the other broker, with what is stored."""
        super().move()  # type: ignore[misc]
        self.node = 3 - self.node


class Coordinator(Node, ClassicGroup):
    """asks_again: a nameless member has to join again with its name (KIP-394)."""

    asks_again = True

    def serve(self, request: Any, reply: Reply) -> None:
        if isinstance(request, JoinGroupRequest):
            self.join(request, JoinGroupRequest.API.stable.high if self.asks_again else 3, reply)
        elif isinstance(request, SyncGroupRequest):
            self.sync(request, 0, reply)
        else:
            reply(self.heartbeat(request) if isinstance(request, HeartbeatRequest) else self.leave(request))

    def objection(self, request: Any) -> int:
        return self.check_commit(request.member_id, request.group_instance_id, request.generation_id_or_member_epoch)


# -- members -----------------------------------------------------------------------------------------------------------
class Member:
    """A machine, an application that consumes, and what is on the wire between it and the coordinator.

    skew: its clock is that far from the world's. positions: partition -> (term, next offset); those of partitions that are gone stay, and are
    committed with the others: the machine has to tell them apart. late: requests whose sender does not wait any more.
    """

    def __init__(self, world: World, name: str, assignors: list[Assignor], *, instance: str | None, skew: float, seed: int) -> None:
        self.world, self.name, self._skew = world, name, skew
        self.group: GroupMachine = self.machine(assignors, instance, Random(seed))
        self.group.is_interruption = lambda error: isinstance(error, Interruption)
        self.alive, self.frozen, self.stalled = True, False, False
        self.positions: dict[TopicPartition, tuple[int, int]] = {}
        self.telling: Tell | None = None
        self.flying: list[Flight] = []
        self.late: list[Flight] = []
        self.committing: list[Flight] = []
        self.history: list[str] = []
        self.group.polled(self.now)

    def machine(self, assignors: list[Assignor], instance: str | None, chance: Random) -> GroupMachine:
        options = GroupOptions("g", assignors, SESSION_S, self.world.rebalance_s, BEAT_S, POLL_S, instance)
        return Group(options, self.world.topics, backoff=Backoff(0.1, 1.0), chance=chance)

    @property
    def now(self) -> float:
        return self.world.now + self._skew

    @property
    def delivering(self) -> set[TopicPartition]:
        """What it would hand to its application at this moment; a process that is frozen hands out nothing, and asks again when it wakes."""
        return set(self.group.delivered(self.now)) if self.alive and not self.frozen else set()

    def restart(self) -> None:
        """Whoever drove it was interrupted: what is under way is forgotten, though it may arrive, and the callback is called again."""
        if not self.alive or self.frozen:
            return
        self.late += [f for f in self.flying if not f.arrived and not self.left_out(f.request)]
        self.flying.clear()
        self.group.restart(self.now)
        self.history.append("restart")
        self.telling = None
        if self.group.ownership.running is not None:
            self._called(self.group.ownership.running)
        self.step()

    @fail_stop
    def step(self) -> None:
        """The driver's round: send what is to be sent, call what is to be called."""
        if not self.alive or self.frozen:
            return
        if not self.stalled:
            self.group.polled(self.now)
        for _ in range(20):
            plan = self.group.poll(self.now)
            if self.telling is not None and self.telling.change is Change.REVOKED:
                assert not any(self.gives_up(ask.request, self.telling) for ask in plan.asks), "it tells before it has given up"
            self.flying += [Flight(ask) for ask in plan.asks]
            if plan.tell is not None:
                self._called(plan.tell)
            if plan.topics is not None:
                divide(self.group, {topic: self.world.topics[topic] for topic in plan.topics if topic in self.world.topics})
                continue
            if plan.tell is None:
                assert plan.wake_at > self.now, f"{self.group.state} wants to be polled again at once"
                return
        raise AssertionError("the machine does not come to rest")

    def _called(self, tell: Tell) -> None:
        assert self.telling is None, "one callback at a time"
        self.history.append(f"{tell.change.value} {len(tell.partitions)}")
        self.telling = tell
        if tell.change is Change.REVOKED:
            self.commit({tp: self.positions[tp] for tp in tell.partitions if tp in self.positions})

    def gives_up(self, request: Any, tell: Tell) -> bool:
        """Does it tell the coordinator that what the callback is for is free?"""
        return isinstance(request, JoinGroupRequest)

    @fail_stop
    def leave(self) -> None:
        self.group.leave("done")
        self.step()

    @fail_stop
    def return_from_callback(self) -> None:
        if self.telling is None or not self.alive or self.frozen:
            return
        tell, self.telling = self.telling, None
        for tp in tell.partitions if tell.change is Change.ASSIGNED else ():
            term = self.group.delivered(self.now).get(tp)
            if term is not None:
                self.positions[tp] = term, self.world.coordinator.committed.get(tp, 0)
        self.group.ownership.told(tell)
        self.step()

    @fail_stop
    def consume(self, count: int) -> None:
        """Messages of what is delivered, from where the positions are."""
        if self.stalled:
            return
        self.group.polled(self.now)
        for tp, term in self.group.delivered(self.now).items() if self.alive and not self.frozen else ():
            known, offset = self.positions.get(tp, (0, 0))
            if known == term:
                self.positions[tp] = term, offset + count

    @fail_stop
    def commit(self, positions: dict[TopicPartition, tuple[int, int]]) -> None:
        """One commit at a time, as a driver has it; two of one generation, of which no broker knows the order, do not overtake each other."""
        if not self.alive or self.frozen or self.committing or any(f.is_commit_of(self.group.generation) for f in self.late):
            return
        ticket = Ticket(self.now + COMMIT_S)
        if self.group.grant(ticket, {tp: term for tp, (term, _) in positions.items()}, self.now):
            request = commit_of(ticket, {tp: offset for tp, (_, offset) in positions.items()})
            request.group_instance_id = self.group.options.instance_id
            self.committing.append(Flight(ticket, request, self.group.requests.coordinator))

    # -- the wire ----------------------------------------------------------------------------------------------------------
    def arrive(self, at: int) -> None:
        """A request reaches its broker."""
        waiting = [f for f in (*self.flying, *self.committing) if not f.arrived]
        if waiting:
            self._arrived(waiting[at % len(waiting)])

    def arrive_late(self, at: int) -> None:
        """Also of a member that is dead by now."""
        if self.late:
            self._arrived(self.late.pop(at % len(self.late)))

    def _arrived(self, flight: Flight) -> None:
        flight.arrived = True
        coordinator = self.world.coordinator
        node = flight.to[0] if flight.to is not None else 1
        if isinstance(flight.what, Ticket):
            late = flight not in self.committing
            flight.answer = coordinator.commit(node, flight.request)
            if late:
                self.history.append(f"late commit {'refused' if flight.answer else 'taken'}")
            if not flight.answer:
                self.world.taken(self, flight.what)
        else:
            coordinator.handle(node, flight.request, flight.take)

    def answer(self, at: int) -> None:
        """An answer reaches the member."""
        answered = [f for f in (*self.flying, *self.committing) if f.answer is not None]
        if answered and self.alive and not self.frozen:
            self._deliver(answered[at % len(answered)])

    @fail_stop
    def _deliver(self, flight: Flight) -> None:
        if isinstance(flight.what, Ticket):
            self.committing.remove(flight)
            if flight.what.generation != self.group.generation:
                self.history.append("commit answered in another generation")
            self.judge(flight.what, error_for(flight.answer))
        else:
            self.flying.remove(flight)
            self.group.on_answer(flight.what, flight.answer, None, self.now)
        self.step()

    @fail_stop
    def judge(self, ticket: Ticket, error: KafkaException | None) -> None:
        self.history.append(f"commit {self.group.on_commit(ticket, error, self.now).value}")

    def lose(self, at: int, *, late: bool, error: KafkaException) -> None:
        """The member gives up waiting. late: what has not arrived may yet."""
        self._lose(at, late, error)

    @fail_stop
    def _lose(self, at: int, late: bool, error: KafkaException) -> None:
        waiting = [*self.flying, *self.committing]
        if not waiting or not self.alive or self.frozen:
            return
        flight = waiting[at % len(waiting)]
        if late and not flight.arrived and not self.left_out(flight.request):
            self.late.append(flight)
        if isinstance(flight.what, Ticket):
            self.committing.remove(flight)
            self.judge(flight.what, error)
        else:
            self.flying.remove(flight)
            self.group.on_answer(flight.what, None, error, self.now)
        self.step()

    def interrupt(self, at: int) -> None:
        """Whoever commits is killed and tells nobody: the machine is left with the ticket. What has not arrived may yet."""
        if not self.committing or self.frozen:
            return
        flight = self.committing.pop(at % len(self.committing))
        if not flight.arrived:
            self.late.append(flight)

    def time_out(self) -> None:
        """Requests that have waited too long."""
        for flight in [f for f in (*self.flying, *self.committing) if self.world.now - f.since > f.timeout_s]:
            at = [*self.flying, *self.committing].index(flight)
            self.lose(at, late=isinstance(flight.what, Ticket), error=KafkaTimeoutError("no answer"))

    def die(self) -> None:
        self.alive = False
        self.late += [f for f in (*self.flying, *self.committing) if not f.arrived and not self.left_out(f.request)]

    def left_out(self, request: Any) -> bool:
        """A static member's JoinGroup that arrives late fences the one that was sent after it; no member can tell that from another process
        with its instance id, and ends (KIP-345). So it does not arrive.
        """
        return isinstance(request, JoinGroupRequest) and request.group_instance_id is not None and not request.member_id


class Flight:
    """A request on the wire."""

    def __init__(self, what: Any, request: Any = None, to: Any = None) -> None:
        self.what = what
        self.request = what.request if isinstance(what, Ask) else request
        self.to = what.to if isinstance(what, Ask) else to
        self.timeout_s = what.timeout_s if isinstance(what, Ask) else 5.0
        self.arrived = False
        self.answer: Any = None
        self.since = NOW[0]

    def take(self, answer: Any) -> None:
        self.answer = answer

    def is_commit_of(self, generation: int) -> bool:
        return isinstance(self.what, Ticket) and self.what.generation == generation


NOW = [0.0]


class World:
    """A coordinator, members, and the partitions. After every verb: no partition is delivered by two, no committed offset has gone back."""

    def __init__(self, assignors: list[Assignor], *, topics: dict[str, int], seed: int, rebalance_s: float = 20.0) -> None:
        self.topics: Topics = {topic: [()] * count for topic, count in topics.items()}
        self.assignors, self.chance, self.rebalance_s = assignors, Random(seed), rebalance_s
        self.coordinator = self.new_coordinator()
        self.members: list[Member] = []
        self.now = NOW[0] = self.coordinator.now = 100.0
        self._born = 0

    def new_coordinator(self) -> Any:
        return Coordinator()

    def new_member(self, name: str, instance: str | None, skew: float, seed: int) -> Member:
        return Member(self, name, self.assignors, instance=instance, skew=skew, seed=seed)

    @property
    def living(self) -> list[Member]:
        return [m for m in self.members if m.alive]

    def born(self, *, static: bool = False) -> Member:
        self._born += 1
        instance = f"i{self._born}" if static else None
        member = self.new_member(f"p{self._born}", instance, self.chance.uniform(-50, 50), self._born)
        self.members.append(member)
        member.step()
        return member

    def pick(self, n: int) -> Member | None:
        return self.living[n % len(self.living)] if self.living else None

    def pass_time(self, seconds: float) -> None:
        self.now = NOW[0] = self.now + seconds
        self.coordinator.pass_time(self.now)
        for member in self.living:
            member.time_out()
            member.step()
        self.check()

    def check(self) -> None:
        seen: dict[TopicPartition, str] = {}
        for member in self.members:
            for tp in member.delivering:
                assert tp not in seen, f"{tp} is delivered by {seen[tp]} and {member.name}"
                seen[tp] = member.name
        assert self.coordinator.regressions == []

    def taken(self, member: Member, ticket: Ticket) -> None:
        """A commit of theirs was, at this moment."""
        for other in self.members:
            both = ticket.partitions & other.delivering if other is not member else ()
            assert not both, f"{member.name} commits {both}, which {other.name} delivers"

    def grow(self) -> None:
        """A topic has one more partition; the members' metadata tell, some time."""
        topic = sorted(self.topics)[0]
        self.topics = {**self.topics, topic: [*self.topics[topic], ()]}
        for member in self.living:
            member.group.rejoin("the topic has grown")

    # -- the end -----------------------------------------------------------------------------------------------------------
    def all_is_well(self) -> None:
        """Every request arrives and is answered, every callback returns."""
        for member in [m for m in self.living if not m.frozen]:
            member.return_from_callback()
            for _ in range(len(member.flying) + len(member.committing)):
                member.arrive(0)
            while any(f.answer is not None for f in (*member.flying, *member.committing)):
                member.answer(0)
        self.check()

    def finish(self) -> None:
        """From now on all goes well: the group comes to rest, and everything has one owner."""
        for member in self.living:
            member.frozen = member.stalled = False
            member.late.clear()
        if all(m.group.state in (State.LEFT, State.LEAVING) for m in self.living):
            self.born()
        quiet = 0
        for _ in range(400):
            self.all_is_well()
            for member in self.living:
                member.consume(1)
            quiet = quiet + 1 if self._rests() else 0
            if quiet == 8:
                break
            self.pass_time(0.5)
        wanted = {TopicPartition(topic, n) for topic, numbers in self.topics.items() for n in range(len(numbers))}
        has = {m.name: m.delivering for m in self.living}
        assert quiet == 8, f"no rest: {[(m.name, m.group.state, m.history[-6:]) for m in self.living]}, {self.coordinator.state}"
        assert set().union(*has.values()) == wanted, has
        assert {m.group.generation for m in self.living if m.group.state is State.STABLE} == {self.coordinator.generation}

    def _rests(self) -> bool:
        """Also in what they know: a dead member that had nothing may be missed only now."""
        active = [m for m in self.living if m.group.state is not State.LEFT]
        at_rest = all(m.group.state is State.STABLE and m.telling is None for m in active)
        know = {m.group.generation for m in active} == {self.coordinator.generation}
        return bool(active) and at_rest and know and self._covers(active)

    def _covers(self, active: list[Member]) -> bool:
        return sum(len(m.delivering) for m in active) == sum(map(len, self.topics.values()))


LOST = SocketDisconnectedError("gone")
