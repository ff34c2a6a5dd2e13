"""Which batches of an answer belong to aborted transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gkafka.records import BatchHeader

__all__ = ["AbortFilter"]


class AbortFilter:
    """Which batches of one answer belong to aborted transactions (KIP-98).

    aborted: (producer id, first offset) pairs of the answer, in any order (B38).
    """

    def __init__(self, aborted: Iterable[tuple[int, int]], control_type: Callable[[Any, Any], int]) -> None:
        self._waiting = sorted(aborted, key=lambda pair: pair[1], reverse=True)  # the next one is the last: a broker may name 100,000
        self._open: set[int] = set()
        self._control_type = control_type

    def hides(self, buffer: memoryview, header: BatchHeader) -> bool:
        """Must this batch not be delivered? Batches come in the order of the log. Control batches are always hidden."""
        while self._waiting and self._waiting[-1][1] <= header.last_offset:
            self._open.add(self._waiting.pop()[0])
        if header.is_control:
            if self._control_type(buffer, header) == 0:
                self._open.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._open
