"""The states of a member of a group, how they follow each other in a classic one, and what callers and drivers of its machine hold."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gkafka.brokererrors import KafkaException
from gkafka.common import TopicPartition
from gkafka.core.assignors import Assignor
from gkafka.wire.schema import Message

__all__ = [
    "IN_GROUP",
    "MOVES",
    "NEVER",
    "Address",
    "Ask",
    "Change",
    "Event",
    "GroupOptions",
    "Lane",
    "Moves",
    "Plan",
    "State",
    "Tell",
    "Ticket",
    "Verdict",
    "moves",
]

NEVER = float("inf")
NO_GENERATION = -1

Address = tuple[int, str, int]
"""(broker id, host, port)."""


class State(enum.Enum):
    """AWAY: not in the group: not yet, or the application does not poll. PREPARING: will join; what must be given up before that is. JOINING,
    ASSIGNING (the leader alone), SYNCING: the steps of a classic rebalance. RECONCILING: that of KIP-848. STABLE: nothing is to be done but
    heartbeats. LEAVING, LEFT: for good. FATAL: nothing can be done.
    """

    AWAY = "away"
    PREPARING = "preparing"
    JOINING = "joining"
    ASSIGNING = "assigning"
    SYNCING = "syncing"
    RECONCILING = "reconciling"
    STABLE = "stable"
    LEAVING = "leaving"
    LEFT = "left"
    FATAL = "fatal"


class Event(enum.Enum):
    """WANTED: the application is there. READY: nothing stands in the way of joining. REBALANCE: the generation ends, the member goes on.
    TARGET: a KIP-848 coordinator wants it to own something else. REACHED: it owns that, and has said so. RESET: the membership is gone.
    IDLE: the application does not poll.
    """

    WANTED = "wanted"
    READY = "ready"
    JOINED = "joined"
    ELECTED = "elected"
    ASSIGNED = "assigned"
    SYNCED = "synced"
    REBALANCE = "rebalance"
    TARGET = "target"
    REACHED = "reached"
    RESET = "reset"
    IDLE = "idle"
    LEAVE = "leave"
    GONE = "gone"
    BROKEN = "broken"


Moves = Mapping[tuple[State, Event], State]


def moves(in_group: Sequence[State], own: Moves) -> Moves:
    """A protocol's own moves, and those of every member: it comes, is put out, rests and goes."""
    return {
        **own,
        (State.AWAY, Event.WANTED): State.PREPARING,
        (State.PREPARING, Event.READY): State.JOINING,
        **{(state, Event.RESET): State.PREPARING for state in in_group},
        **{(state, Event.IDLE): State.AWAY for state in in_group},
        **{(state, Event.LEAVE): State.LEAVING for state in (State.AWAY, *in_group)},
        (State.LEAVING, Event.GONE): State.LEFT,
        **{(state, Event.BROKEN): State.FATAL for state in (State.AWAY, *in_group, State.LEAVING)},
    }


IN_GROUP = (State.PREPARING, State.JOINING, State.ASSIGNING, State.SYNCING, State.STABLE)
MOVES = moves(
    IN_GROUP,
    {
        (State.JOINING, Event.JOINED): State.SYNCING,
        (State.JOINING, Event.ELECTED): State.ASSIGNING,
        (State.ASSIGNING, Event.ASSIGNED): State.SYNCING,
        (State.SYNCING, Event.SYNCED): State.STABLE,
        **{(state, Event.REBALANCE): State.PREPARING for state in (State.ASSIGNING, State.SYNCING, State.STABLE)},
    },
)


class GroupOptions(NamedTuple):
    """assignors: those that the member would accept, the best first; with only cooperative ones it keeps its partitions while it joins
    (KIP-429). rebalance_timeout_s: how long the coordinator waits for a member to join again; brokers before 0.10.1 take the session's.
    """

    group: str
    assignors: Sequence[Assignor]
    session_timeout_s: float = 45.0
    rebalance_timeout_s: float = 300.0
    heartbeat_interval_s: float = 3.0
    max_poll_interval_s: float = 300.0
    instance_id: str | None = None
    rack: str | None = None


# -- what the driver is to do --------------------------------------------------------------------------------------------
class Lane(enum.Enum):
    """CONTROL: answered at once. GROUP: a coordinator parks it; it needs a connection of its own."""

    CONTROL = "control"
    GROUP = "group"


class Ask(NamedTuple):
    """A request to send. to: the coordinator, None for any broker."""

    request: Message
    to: Address | None
    lane: Lane
    timeout_s: float


class Change(enum.Enum):
    """REVOKED: still the member's for as long as its callback runs; offsets can be committed. LOST: others may have it already."""

    ASSIGNED = "assigned"
    REVOKED = "revoked"
    LOST = "lost"


class Tell(NamedTuple):
    """Call the application's callback, then `Ownership.told`."""

    change: Change
    partitions: tuple[TopicPartition, ...]


class Plan(NamedTuple):
    """asks: to be sent. tell: a callback to be called, once. topics: their partitions are wanted, for `Group.election`. problems: to be shown
    to the user, once. wake_at: poll again then, if nothing happens before.
    """

    asks: list[Ask]
    tell: Tell | None
    topics: frozenset[str] | None
    problems: list[KafkaException]
    wake_at: float


# -- commits -----------------------------------------------------------------------------------------------------------
class Ticket:
    """The right to commit offsets of these partitions, as this member of this generation; of none, until it is granted. until: nothing waits for the commit
    from then on. is_over: nor once its caller has set this, which is a single step: whoever gives something back by a call may be interrupted in there.
    """

    __slots__ = ("generation", "is_over", "member_id", "partitions", "until")

    def __init__(self, until: float = NEVER) -> None:
        self.generation, self.member_id = NO_GENERATION, ""
        self.partitions: frozenset[TopicPartition] = frozenset()
        self.until = until
        self.is_over = False


class Verdict(enum.Enum):
    """What became of a commit. RETRY: with a new ticket, for what is still owned then. FAILED: the partitions belong to others."""

    DONE = "done"
    RETRY = "retry"
    FAILED = "failed"
