"""What a skin of gkafka takes from the floors below its own: how work is waited for, how groups divide, who a member is, what is known of
the cluster, what sockets can be told.

What is about groups is loaded when it is first used: Spark starts a process for each query, which has none.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from gkafka.core.metadata import BrokerInfo, Metadata
from gkafka.handlers import Handler, resolve_handler
from gkafka.handlers.selection import Selecting
from gkafka.handlers.sockets import NO_DELAY, buffer_options

if TYPE_CHECKING:
    from gkafka.core.assignors import (
        ASSIGNORS,
        Assignment,
        Assignor,
        CooperativeStickyAssignor,
        GroupMember,
        RangeAssignor,
        RoundRobinAssignor,
        StickyAssignor,
        Topics,
    )
    from gkafka.core.commitqueue import Terms
    from gkafka.core.txnrequests import GroupMetadata

__all__ = [
    "ASSIGNORS",
    "Assignment",
    "Assignor",
    "BrokerInfo",
    "CooperativeStickyAssignor",
    "GroupMember",
    "GroupMetadata",
    "Handler",
    "Metadata",
    "NO_DELAY",
    "RangeAssignor",
    "RoundRobinAssignor",
    "Selecting",
    "StickyAssignor",
    "Terms",
    "Topics",
    "buffer_options",
    "resolve_handler",
]

LAZY = {
    "ASSIGNORS": "gkafka.core.assignors",
    "Assignment": "gkafka.core.assignors",
    "Assignor": "gkafka.core.assignors",
    "CooperativeStickyAssignor": "gkafka.core.assignors",
    "GroupMember": "gkafka.core.assignors",
    "GroupMetadata": "gkafka.core.txnrequests",
    "RangeAssignor": "gkafka.core.assignors",
    "RoundRobinAssignor": "gkafka.core.assignors",
    "StickyAssignor": "gkafka.core.assignors",
    "Terms": "gkafka.core.commitqueue",
    "Topics": "gkafka.core.assignors",
}


def __getattr__(name: str) -> Any:
    if name not in LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(LAZY[name]), name)
    return found
