"""What a skin of gkafka takes from the floors below its own: how work is waited for, how groups divide, who a member is, what is known of
the cluster, what sockets can be told."""

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
from gkafka.core.metadata import BrokerInfo, Metadata
from gkafka.core.transaction import GroupMetadata
from gkafka.handlers import Handler, resolve_handler
from gkafka.handlers.sockets import NO_DELAY, buffer_options

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
    "StickyAssignor",
    "Topics",
    "buffer_options",
    "resolve_handler",
]
