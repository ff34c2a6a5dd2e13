"""A group's machine on a bench: the test is its driver, its coordinator and its clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any, TypeVar

from gkafka.brokererrors import KafkaException
from gkafka.common import TopicPartition
from gkafka.core.assignors import ASSIGNORS, Assignor
from gkafka.core.backoff import Backoff
from gkafka.core.group import Group
from gkafka.core.groupmachine import GroupMachine
from gkafka.core.groupstate import Ask, Change, GroupOptions, State, Tell, Ticket
from gkafka.core.offsets import commit_request
from gkafka.exceptions import SocketDisconnectedError
from gkafka.wire.consumerprotocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription, by_topic
from gkafka.wire.groups import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    SyncGroupRequest,
    SyncGroupResponse,
)
from gkafka.wire.offsets import OffsetCommitRequest
from gkafka.wire.schema import Message

__all__ = ["GONE", "RANGE", "Bench", "Rig", "assignment", "commit_of", "metadata", "partitions"]

RANGE = (ASSIGNORS["range"],)
COOPERATIVE = (ASSIGNORS["cooperative-sticky"],)
SESSION_S, REBALANCE_S, BEAT_S, POLL_S = 10.0, 60.0, 3.0, 100.0
GONE = SocketDisconnectedError("gone")
M = TypeVar("M", bound=Message)


def partitions(*numbers: int, topic: str = "t") -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]


def assignment(*numbers: int) -> bytes:
    """What a leader sends to a member."""
    return ConsumerProtocolAssignment(assigned_partitions=by_topic(partitions(*numbers))).to_bytes(1)


def metadata(*topics: str, owned: Iterable[TopicPartition] = (), generation: int = -1) -> bytes:
    """What a member tells its leader."""
    return ConsumerProtocolSubscription(topics=list(topics), owned_partitions=by_topic(owned), generation_id=generation).to_bytes(3)


def commit_of(ticket: Ticket, offsets: Mapping[TopicPartition, int]) -> OffsetCommitRequest:
    """The request that a ticket allows, as `groupoffsets` writes it."""
    allowed = {tp: (offset, "") for tp, offset in offsets.items() if tp in ticket.partitions}
    return commit_request("g", allowed, generation_id=ticket.generation, member_id=ticket.member_id)


class Bench:
    """A machine, whichever protocol it speaks. asks: what it wants to be sent, in order. tells: the callbacks that it wants to be called; the
    first may be running.
    """

    def __init__(self, group: GroupMachine) -> None:
        self.group = group
        self.now = 1000.0
        self.asks: list[Ask] = []
        self.tells: list[Tell] = []
        self.problems: list[KafkaException] = []
        self.topics: frozenset[str] | None = None
        self.wake_at = 0.0

    # -- the driver --------------------------------------------------------------------------------------------------------
    def poll(self, seconds: float = 0.0) -> None:
        self.now += seconds
        plan = self.group.poll(self.now)
        self.asks += plan.asks
        self.tells += [plan.tell] if plan.tell is not None else []
        self.problems += plan.problems
        self.topics, self.wake_at = plan.topics, plan.wake_at

    def polled(self) -> None:
        self.group.polled(self.now)
        self.poll()

    def told(self) -> Tell:
        """The running callback returns."""
        tell = self.tells.pop(0)
        self.group.ownership.told(tell)
        self.poll()
        return tell

    def take(self, cls: type[M]) -> tuple[Ask, M]:
        """The request of this class that the machine wants to be sent."""
        ask = next(ask for ask in self.asks if isinstance(ask.request, cls))
        self.asks.remove(ask)
        request: Any = ask.request
        return ask, request

    def wants(self, cls: type[Message]) -> bool:
        return any(isinstance(ask.request, cls) for ask in self.asks)

    def answer(self, ask: Ask, response: Any = None, error: KafkaException | None = None) -> None:
        self.group.on_answer(ask, response, error, self.now)
        self.poll()

    def lose(self, cls: type[M], error: KafkaException = GONE) -> M:
        """It is never answered."""
        ask, request = self.take(cls)
        self.answer(ask, None, error)
        return request

    def find(self, node: int = 1) -> None:
        ask, _ = self.take(FindCoordinatorRequest)
        self.answer(ask, FindCoordinatorResponse(node_id=node, host="b", port=9092))

    def owned(self) -> list[TopicPartition]:
        return sorted(self.group.delivered(self.now))

    def commit(self, *numbers: int, within: float = float("inf")) -> Any:
        """A ticket for what is the member's of these, under the terms in force."""
        terms = self.group.ownership.terms
        return self.ticket({tp: terms.get(tp, -1) for tp in partitions(*numbers)}, within=within)

    def ticket(self, terms: Mapping[TopicPartition, int], *, within: float = float("inf")) -> Any:
        """The same under these terms; None if it is not granted."""
        ticket = Ticket(self.now + within)
        return ticket if self.group.grant(ticket, terms, self.now) else None

    def changes(self) -> list[tuple[Change, list[int]]]:
        return [(tell.change, [tp.partition for tp in tell.partitions]) for tell in self.tells]


class Rig(Bench):
    """A member of a classic group."""

    group: Group

    def __init__(self, assignors: Sequence[Assignor] = RANGE, *, topics: Iterable[str] = ("t",), **options: Any) -> None:
        settings: dict[str, Any] = {
            "session_timeout_s": SESSION_S,
            "rebalance_timeout_s": REBALANCE_S,
            "heartbeat_interval_s": BEAT_S,
            "max_poll_interval_s": POLL_S,
        }
        group = Group(GroupOptions("g", assignors, **{**settings, **options}), topics, backoff=Backoff(0.1, 1.0), chance=Random(1))
        super().__init__(group)

    def refuse(self, cls: type[M], code: int, **fields: Any) -> M:
        """The request is answered with an error."""
        ask, request = self.take(cls)
        self.answer(ask, cls.API.response(error_code=code, **fields))
        return request

    def join(
        self, generation: int, *, member: str = "m", leader: str = "other", members: Sequence[tuple[str, bytes]] = (), **fields: Any
    ) -> JoinGroupRequest:
        ask, request = self.take(JoinGroupRequest)
        protocol = fields.pop("protocol_name", self.group.options.assignors[0].name)
        told = [JoinGroupResponseMember(member_id=name, metadata=data) for name, data in members]
        answer = JoinGroupResponse(
            generation_id=generation, protocol_name=protocol, leader=leader, member_id=member, members=told, **fields
        )
        self.answer(ask, answer)
        return request

    def sync(self, *numbers: int) -> SyncGroupRequest:
        ask, request = self.take(SyncGroupRequest)
        self.answer(ask, SyncGroupResponse(assignment=assignment(*numbers)))
        return request

    def beat(self, code: int = 0) -> None:
        """The next heartbeat of this generation, in its time."""
        for ask in [a for a in self.asks if isinstance(a.request, HeartbeatRequest) and a.request.generation_id != self.group.generation]:
            self.asks.remove(ask)
            self.answer(ask, HeartbeatResponse(error_code=22))
        if not self.wants(HeartbeatRequest):
            self.poll(max(0.0, self.wake_at - self.now))
        ask, _ = self.take(HeartbeatRequest)
        self.answer(ask, HeartbeatResponse(error_code=code))

    def stable(self, *numbers: int, generation: int = 1) -> None:
        """A member with these partitions; its callback has returned."""
        self.polled()
        self.find()
        self.join(generation)
        self.sync(*numbers)
        self.told()
        self.beat()
        assert self.group.state is State.STABLE
