"""Assignors: who of a classic group gets which partitions. Its leader runs one; the names are what members agree upon when they join.

The results are those of the Java client's assignors, to the partition: a group may be led by either. They are functions of what members
told: nothing is kept between two calls, nothing of what a member says is believed without a look at the topics.

Source: org.apache.kafka.clients.consumer.{Range,RoundRobin,Sticky,CooperativeSticky}Assignor of Kafka 4.2; KIP-54, KIP-341, KIP-345, KIP-429,
KIP-792, KIP-881
"""

from __future__ import annotations

from gkafka.core.assignors.base import Assignment, Assignor, GroupMember, Topics
from gkafka.core.assignors.ranges import RangeAssignor, RoundRobinAssignor
from gkafka.core.assignors.sticky import CooperativeStickyAssignor, StickyAssignor

__all__ = [
    "ASSIGNORS",
    "Assignment",
    "Assignor",
    "CooperativeStickyAssignor",
    "GroupMember",
    "RangeAssignor",
    "RoundRobinAssignor",
    "StickyAssignor",
    "Topics",
]

ASSIGNORS: dict[str, Assignor] = {
    assignor.name: assignor for assignor in (RangeAssignor(), RoundRobinAssignor(), StickyAssignor(), CooperativeStickyAssignor())
}
"""By the name that goes over the wire."""
