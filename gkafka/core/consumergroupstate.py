"""The states of a member of a KIP-848 group, and what it is told to be."""

from __future__ import annotations

import enum
from typing import NamedTuple

from gkafka.core.groupstate import State

__all__ = ["IN_GROUP", "MOVES", "ConsumerGroupOptions", "Event"]


class Event(enum.Enum):
    """WANTED: the application is there. READY: nothing stands in the way of joining. TARGET: the coordinator wants it to own something else.
    REACHED: it owns that, and has said so. RESET: the membership is gone. IDLE: the application does not poll.
    """

    WANTED = "wanted"
    READY = "ready"
    TARGET = "target"
    REACHED = "reached"
    RESET = "reset"
    IDLE = "idle"
    LEAVE = "leave"
    GONE = "gone"
    BROKEN = "broken"


IN_GROUP = (State.PREPARING, State.JOINING, State.RECONCILING, State.STABLE)
MOVES: dict[tuple[State, Event], State] = {
    (State.AWAY, Event.WANTED): State.PREPARING,
    (State.PREPARING, Event.READY): State.JOINING,
    **{(state, Event.TARGET): State.RECONCILING for state in (State.JOINING, State.RECONCILING, State.STABLE)},
    (State.RECONCILING, Event.REACHED): State.STABLE,
    **{(state, Event.RESET): State.PREPARING for state in IN_GROUP},
    **{(state, Event.IDLE): State.AWAY for state in IN_GROUP},
    **{(state, Event.LEAVE): State.LEAVING for state in (State.AWAY, *IN_GROUP)},
    (State.LEAVING, Event.GONE): State.LEFT,
    **{(state, Event.BROKEN): State.FATAL for state in (State.AWAY, *IN_GROUP, State.LEAVING)},
}


class ConsumerGroupOptions(NamedTuple):
    """pattern: a regular expression of the brokers' kind (RE2), for topics besides those that are named. assignor: the brokers' one to be
    used, "uniform" or "range"; None: their default. rebalance_timeout_s: how long the coordinator waits for what is to be given up.

    session_timeout_s: after what silence a member may lose what it has. The brokers' group.consumer.session.timeout.ms decides, and they do
    not tell it, so this must be no longer. How often to send a heartbeat they do tell.
    """

    group: str
    session_timeout_s: float = 45.0
    rebalance_timeout_s: float = 300.0
    max_poll_interval_s: float = 300.0
    pattern: str | None = None
    assignor: str | None = None
    instance_id: str | None = None
    rack: str | None = None
