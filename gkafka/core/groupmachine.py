"""What a driver of a group's member needs of its machine, whichever protocol that speaks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from gkafka.brokererrors import KafkaException
from gkafka.common import TopicPartition
from gkafka.core.assignors import Topics
from gkafka.core.backoff import Backoff
from gkafka.core.groupstate import Address, Ask, Plan, State, Tell, Ticket, Verdict
from gkafka.wire.offsets import OffsetCommitRequest

if TYPE_CHECKING:
    from random import Random

__all__ = ["GroupMachine", "MakeMachine"]


class GroupMachine(Protocol):
    """`gkafka.core.group.Group` and `gkafka.core.consumergroup.ConsumerGroup`, which say what each of these does."""

    options: Any
    state: State
    generation: int
    error: KafkaException | None
    coordinator: Address | None
    rebalances: int
    losses: int
    is_leader: bool

    @property
    def member_id(self) -> str: ...
    def polled(self, now: float) -> None: ...
    def subscribe(self, topics: Iterable[str]) -> None: ...
    def rejoin(self, reason: str) -> None: ...
    def leave(self, reason: str, *, static: bool = False) -> None: ...
    def told(self, tell: Tell) -> None: ...
    def give_topics(self, topics: Topics) -> None: ...
    def delivered(self, now: float) -> Mapping[TopicPartition, int]: ...
    @property
    def terms(self) -> Mapping[TopicPartition, int]: ...
    def takes_commits(self, now: float) -> bool: ...
    def commit_ticket(self, partitions: Mapping[TopicPartition, int], now: float) -> Ticket | None: ...
    def commit_request(self, ticket: Ticket, offsets: Mapping[TopicPartition, tuple[int, str]]) -> OffsetCommitRequest: ...
    def on_commit(self, ticket: Ticket, error: KafkaException | None, now: float) -> Verdict: ...
    def poll(self, now: float) -> Plan: ...
    def on_answer(self, ask: Ask, response: Any, error: KafkaException | None, now: float) -> None: ...


class MakeMachine(Protocol):
    """How one is made."""

    def __call__(self, options: Any, topics: Iterable[str], *, backoff: Backoff, chance: Random) -> GroupMachine: ...
