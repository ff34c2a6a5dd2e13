"""The base of assignors of one's own (kafka.coordinator.assignors.abstract), for partition_assignment_strategy."""

from __future__ import annotations

import abc
from typing import Any

__all__ = ["AbstractPartitionAssignor"]


class AbstractPartitionAssignor(abc.ABC):
    """name, assign(), metadata() and on_assignment() may belong to the class or to an instance; it is made once for a consumer."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """As it goes over the wire: what the members of a group agree upon."""

    @abc.abstractmethod
    def assign(self, cluster: Any, members: Any) -> Any:
        """{member id: ConsumerProtocolMemberAssignment}, asked of the group's leader.

        cluster: has topics() and partitions_for_topic(topic). members: {member id: ConsumerProtocolMemberMetadata}, as 1.4 gives it; the ids
        also have member_id, group_instance_id and metadata, for assignors of 3.0, which are given a list of such.
        """

    @abc.abstractmethod
    def metadata(self, topics: set[str]) -> Any:
        """A ConsumerProtocolMemberMetadata: its user_data go to the leader."""

    @abc.abstractmethod
    def on_assignment(self, assignment: Any, generation: int) -> None:
        """This member has a ConsumerProtocolMemberAssignment. As in 1.4 it may take the first argument only."""
