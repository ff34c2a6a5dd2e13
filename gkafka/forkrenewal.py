"""How a producer goes on by itself in a forked child, with on_fork="recreate"."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gkafka import lifetime
from gkafka.logs import get_logger
from gkafka.undoing import Undoing

if TYPE_CHECKING:
    from gkafka.producerdriver import ProducerDriver

    Held = tuple[ProducerDriver, Any]

__all__ = ["ForkRenewal"]

log = get_logger(__name__)


class ForkRenewal:
    """The renewals of one producer: one caller in a child makes all anew, the others wait for it.

    held: the producer's driver and the lock of its appender, which a child disowns. pid: the process
    that the producer works in.
    """

    def __init__(self, held: Held) -> None:
        self.held = held
        self._inherited: Held | None = None  # the parent's, until a child has disowned it
        self._turns: dict[int, list[None]] = {}  # by process; empty while a caller renews
        self.pid = os.getpid()

    def run(self, begin: Callable[[], Held], watch: Callable[[], object], sleep: Callable[[float], object]) -> None:
        """Renew the producer, or wait until another caller has done so or was interrupted.

        begin: makes what belongs to one process, and returns what a child of that disowns; watch:
        called when it is made, and nothing of the parent's is left.
        """
        turn = self._turns.setdefault(os.getpid(), [None])
        try:
            turn.pop()  # atomic: no lock that was made before the fork can be trusted
        except IndexError:
            while self.pid != os.getpid() and not turn:
                sleep(0.001)
            return
        with Undoing(turn.append, None):
            if self._inherited is None:  # else the first try ended half-way, and what is here now is not the parent's any more
                self._inherited = self.held
            self.held = begin()
            counts = lifetime.disown(*self._inherited)
            if counts:
                log.warning("forked: %d record(s) that the parent accepted are left to it: %s", sum(counts.values()), lifetime.told(counts))
            self._inherited = None
            watch()
            self.pid = os.getpid()  # last: other threads wait for it
