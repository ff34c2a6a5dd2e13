"""A leader's part, here and now."""

from __future__ import annotations

from gkafka.core.assignors import Topics
from gkafka.core.groupmachine import GroupMachine

__all__ = ["divide"]


def divide(group: GroupMachine, topics: Topics) -> None:
    """Divide what is to be divided, if anything is; topics that are not given are left out."""
    election = group.election
    if election is not None:
        group.divided(election, election.make(topics))
