"""What a member says to its coordinator when a membership ends, and how often it tries."""

from __future__ import annotations

from gkafka.brokererrors import KafkaException
from gkafka.exceptions import KafkaTimeoutError
from gkafka.logs import get_logger
from gkafka.wire.schema import Message

__all__ = ["Farewell"]

log = get_logger(__name__)

TRIES = 4
"""With the pauses in between a second at most: where no broker is left, nobody waits for more."""


class Farewell:
    """request: what is to be said, None if nothing is. It stays until it is answered or given up, so
    that it is said again by a member that begins anew."""

    def __init__(self, group: str) -> None:
        self.request: Message | None = None
        self._group = group
        self._failures = 0

    def over(self, request: Message) -> None:
        """Forget this request, which was answered or is given up. (Another one may be due by now.)"""
        if self.request is request:
            self.request = None

    def may_repeat(self, error: KafkaException) -> bool:
        """Return whether to say it once more after this failure of the request itself.

        Whoever waits for an answer that does not come has waited long enough.
        """
        if isinstance(error, KafkaTimeoutError):
            self._nobody_heard(error)
            return False
        return self.may_try(error)

    def may_try(self, error: KafkaException) -> bool:
        """Return whether to go on after one more failure. Nobody waits for ever: the end of the
        session does the same."""
        self._failures += 1
        if self._failures < TRIES:
            return True
        self._nobody_heard(error)
        return False

    def _nobody_heard(self, error: KafkaException) -> None:
        log.warning(
            "group %r: nobody heard that a member leaves, its partitions are nobody's until its session ends: %s",
            self._group,
            error,
        )
