"""How many frames and blocks one batch may be cut into: each costs a step of the interpreter, also those that hold nothing.

8 MiB of empty frames took 6 s. What Kafka's clients write is one frame of blocks of 32 KiB and more; who flushes after each record writes
some thousand small ones.
"""

from __future__ import annotations

__all__ = ["MOST_BLOCKS", "MOST_FRAMES", "Pieces"]

MOST_FRAMES = 10_000
MOST_BLOCKS = 30_000


class Pieces:
    """Counts what has been met of one batch. Raises ValueError as soon as it is more than any encoder makes."""

    __slots__ = ("_blocks", "_frames")

    def __init__(self) -> None:
        self._frames, self._blocks = MOST_FRAMES, MOST_BLOCKS

    def frame(self) -> None:
        self._frames -= 1
        if self._frames < 0:
            raise ValueError(f"it is cut into more than {MOST_FRAMES} frames, most of them empty or nearly so: no client writes that")

    def block(self) -> None:
        self._blocks -= 1
        if self._blocks < 0:
            raise ValueError(f"it is cut into more than {MOST_BLOCKS} blocks, most of them empty or nearly so: no client writes that")
