"""Notice that topics have got other partitions since they were divided among a group's members."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["Division"]

LEADER_S = 10.0
"""How long other members wait for the leader, which may not read that topic."""


class Division:
    """counts: how many partitions each topic has; 0 for one that was told to be there and has none yet."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        self._counts = dict(counts)
        self._noticed: tuple[int, float] | None = None  # in which generation, and when
        self._outdated_in = -1  # the generation whose leader has asked for the next

    def count(self, counts: Mapping[str, int], generation: int, now: float) -> None:
        """Take in how many partitions topics have now.

        Topics that are not in counts keep their number: they may come back with another one.
        """
        before, self._counts = self._counts, {**self._counts, **counts}
        if any(before.get(topic, count) != count for topic, count in counts.items()):
            self._noticed = generation, now

    def outdate(self, generation: int, now: float) -> None:
        """Note that the leader, this member, has divided by what was outdated already."""
        if generation != self._outdated_in:
            self._outdated_in = generation
            self._noticed = generation, now

    def is_due(self, generation: int, now: float, *, is_leader: bool) -> bool:
        """Return whether this member has to rejoin now. True is returned once for each change."""
        if self._noticed is None:
            return False
        noticed_in, since = self._noticed
        is_ours = is_leader or now - since >= LEADER_S
        if is_ours or noticed_in != generation:  # else it was decided anew since
            self._noticed = None
        return is_ours and noticed_in == generation
