"""A rebalance of a classic group, as one of its members takes part in it: what its JoinGroup was
answered, what its SyncGroup says, and what that was answered."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from gkafka.brokererrors import InconsistentGroupProtocol, KafkaException
from gkafka.common import TopicPartition
from gkafka.core.assignors import Assignor, GroupMember
from gkafka.core.groupleader import Election, Made, read_members
from gkafka.core.groupstate import NEVER, GroupOptions
from gkafka.escaping import LONGEST_NAME, escaped
from gkafka.exceptions import ProtocolError
from gkafka.wire.consumerprotocol import flattened, read_assignment
from gkafka.wire.groups import JoinGroupResponse, SyncGroupRequestAssignment

__all__ = ["Round", "divides", "read_share"]


class Round:
    """One rebalance, from its beginning to the answer of SyncGroup.

    prepared_by: when the member joins although commits are still under way; NEVER until it prepares
    itself. claimed: partitions that its JoinGroup says that it has. made: what its SyncGroup gives to
    each member, if it leads.
    """

    def __init__(self) -> None:
        self.prepared_by = NEVER
        self.claimed: frozenset[TopicPartition] = frozenset()
        self.made: list[SyncGroupRequestAssignment] = []
        self._assignor: Assignor | None = None
        self._members: Sequence[GroupMember] = ()

    def joined(self, response: JoinGroupResponse, options: GroupOptions) -> list[KafkaException]:
        """Take the answer to JoinGroup. Return what could not be read of what members told.

        Raises ProtocolError or InconsistentGroupProtocol for an answer that cannot be.
        """
        if response.generation_id < 0 or not response.member_id:
            text = f"generation {response.generation_id} of member {response.member_id!r} cannot be"
            raise ProtocolError(text, group=options.group, api="JoinGroup")
        self._assignor = next((a for a in options.assignors if a.name == response.protocol_name), None)
        if self._assignor is None or response.protocol_type not in (None, "consumer"):
            text = f"the coordinator chose protocol {response.protocol_name!r}, which is none of this member's"
            raise InconsistentGroupProtocol(text, group=options.group, api="JoinGroup")
        self.made = []
        self._members, problems = read_members(response.members if divides(response) else ())
        return problems

    @property
    def assignor(self) -> Assignor:
        """The assignor that the coordinator has chosen, after `joined`."""
        assert self._assignor is not None
        return self._assignor

    def election(self, is_interruption: Callable[[BaseException], bool]) -> Election:
        """Return what this member is to divide, as the leader."""
        topics = frozenset().union(*(member.topics for member in self._members))
        return Election(self.assignor, self._members, topics, is_interruption)

    def divided(self, election: Election, made: Made) -> bool:
        """Take what was made of this election. Return False if it was another round's."""
        if election.members is not self._members:
            return False
        self.made = made.assignments
        return True


def divides(response: JoinGroupResponse) -> bool:
    """Return whether the member that got this answer is to divide the partitions (KIP-814)."""
    return response.leader == response.member_id and not response.skip_assignment


def read_share(data: Any, member_id: str, topics: Collection[str], group: str) -> tuple[list[TopicPartition], ProtocolError | None]:
    """Return the partitions that a leader gave to the member, and what was wrong with them.

    Partitions that the member did not ask for, that come twice or that cannot be are left out.
    Raises ProtocolError if nothing can be read.
    """
    found = flattened(read_assignment(data, member_id).assigned_partitions)
    fit = [tp for tp in dict.fromkeys(found) if tp.topic in topics and tp.partition >= 0]
    if len(fit) == len(found):
        return fit, None
    wanted = set(fit)
    odd = next((tp for tp in found if tp not in wanted), found[0])
    place = f"{escaped(odd.topic, LONGEST_NAME)}-{odd.partition}"
    text = f"member {member_id!r}: its leader gave it {place}, which it did not ask for, or twice"
    return fit, ProtocolError(text, topic=odd.topic, partition=odd.partition, group=group, api="SyncGroup")
