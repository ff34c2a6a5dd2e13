"""The ids that a member of a KIP-848 group makes up for itself (KIP-1082)."""

from __future__ import annotations

from uuid import UUID

from gkafka.core.backoff import Chance

__all__ = ["MemberIds"]


class MemberIds:
    """may_be_known: the coordinator may have heard of the member under its present id."""

    def __init__(self, chance: Chance, *, is_static: bool) -> None:
        self._chance, self._is_static = chance, is_static
        self.may_be_known = False

    def new(self) -> str:
        """Return an id that nobody has had."""
        return str(UUID(int=self._chance.getrandbits(128), version=4))

    def after_farewell(self, member_id: str) -> str:
        """Return the id to go on with after a farewell under this one, which may arrive late.

        A farewell of a static member, whose partitions wait for it, cannot end its next membership.
        """
        self.may_be_known = False
        return member_id if self._is_static else self.new()
