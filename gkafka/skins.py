"""What a skin of gkafka takes from the floors below its own: how work is waited for, how groups divide, who a member is, what sockets can be told."""

from gkafka.core.assignors import CooperativeStickyAssignor, RangeAssignor, RoundRobinAssignor, StickyAssignor
from gkafka.core.transaction import GroupMetadata
from gkafka.handlers import Handler, resolve_handler
from gkafka.handlers.sockets import NO_DELAY, buffer_options

__all__ = [
    "CooperativeStickyAssignor",
    "GroupMetadata",
    "Handler",
    "NO_DELAY",
    "RangeAssignor",
    "RoundRobinAssignor",
    "StickyAssignor",
    "buffer_options",
    "resolve_handler",
]
