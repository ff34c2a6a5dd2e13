"""What callbacks of commits are given (kafka.protocol.commit)."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["OffsetCommitResponse"]


class OffsetCommitResponse(NamedTuple):
    """What the coordinator answered: (topic, [(partition, error code)]) for each topic; a code is 0, since a commit that failed is told as its
    exception."""

    topics: list[tuple[str, list[tuple[int, int]]]]
