"""Which batches of an answer belong to aborted transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gkafka.records import Span

__all__ = ["AbortFilter"]


class AbortFilter:
    """Which batches of one answer belong to aborted transactions (KIP-98).

    aborted: (producer id, first offset) pairs of the answer, in any order (B38).
    """

    def __init__(self, aborted: Iterable[tuple[int, int]], control_type: Callable[[Any, Any], int]) -> None:
        self._waiting = sorted(aborted, key=lambda pair: pair[1], reverse=True)  # the next one is the last: a broker may name 100,000
        self._open: set[int] = set()
        self._control_type = control_type

    @property
    def is_watching(self) -> bool:
        """May a batch from here on belong to an aborted transaction? Then each is asked about."""
        return bool(self._waiting or self._open)

    def hides(self, buffer: memoryview, span: Span) -> bool:
        """Must these batches not be delivered? Spans come in the order of the log. Control batches are always hidden."""
        while self._waiting and self._waiting[-1][1] <= span.last_offset:
            self._open.add(self._waiting.pop()[0])
        header = span.first
        if header.is_control:
            if self._control_type(buffer, header) == 0:
                self._open.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._open
