"""The states of a member of a KIP-848 group, and what it is told to be."""

from __future__ import annotations

from typing import NamedTuple

from gkafka.core.groupstate import Event, State, moves

__all__ = ["IN_GROUP", "MOVES", "ConsumerGroupOptions"]


IN_GROUP = (State.PREPARING, State.JOINING, State.RECONCILING, State.STABLE)
MOVES = moves(
    IN_GROUP,
    {
        **{(state, Event.TARGET): State.RECONCILING for state in (State.JOINING, State.RECONCILING, State.STABLE)},
        (State.RECONCILING, Event.REACHED): State.STABLE,
    },
)


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
