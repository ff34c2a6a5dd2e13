"""How a thread waits until a socket can be read from, or written to."""

from __future__ import annotations

import select
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from gkafka.exceptions import ConfigurationError

if TYPE_CHECKING:
    from selectors import BaseSelector

__all__ = ["Readiness", "WaitingFor", "by_kernel", "by_selector", "check_selector"]

READ, WRITE = 1, 2
"""selectors.EVENT_READ and EVENT_WRITE."""


class Readiness(Protocol):
    """Waits for one event of one socket. For one worker at a time."""

    def __call__(self, seconds: float) -> bool: ...
    def close(self) -> None: ...


WaitingFor = Callable[[int, bool], Readiness]
"""(descriptor, for room to write rather than for bytes) -> what waits for that."""


class _Polled:
    __slots__ = ("_poll",)

    def __init__(self, new_poll: Callable[[], select.poll], fd: int, write: bool) -> None:
        poll = new_poll()
        poll.register(fd, select.POLLOUT if write else select.POLLIN)
        self._poll = poll.poll

    def __call__(self, seconds: float) -> bool:
        return bool(self._poll(seconds * 1000))

    def close(self) -> None:
        pass


class _BySelect:
    """Windows, whose select() takes any descriptor; a failed connect() shows in the third set there."""

    __slots__ = ("_read", "_write")

    def __init__(self, fd: int, write: bool) -> None:
        self._read, self._write = ([], [fd]) if write else ([fd], [])

    def __call__(self, seconds: float) -> bool:
        return any(select.select(self._read, self._write, self._read + self._write, seconds))

    def close(self) -> None:
        pass


class _Selected:
    __slots__ = ("_selector",)

    def __init__(self, selector: BaseSelector) -> None:
        self._selector = selector

    def __call__(self, seconds: float) -> bool:
        return bool(self._selector.select(seconds))

    def close(self) -> None:
        self._selector.close()


def by_kernel() -> WaitingFor:
    """poll(), or select() where there is none: as it is now, if the process is patched later."""
    return partial(_Polled, select.poll) if hasattr(select, "poll") else _BySelect


def by_selector(make: Callable[[], BaseSelector]) -> WaitingFor:
    """A selector for each event of each socket."""

    def waiting_for(fd: int, write: bool) -> Readiness:
        selector = make()
        selector.register(fd, WRITE if write else READ)
        return _Selected(selector)

    return waiting_for


def check_selector(given: object) -> Callable[[], BaseSelector]:
    """What makes selectors. Raises ConfigurationError for anything else."""
    from selectors import BaseSelector

    try:
        made = given() if callable(given) else None
    except Exception as exc:
        raise ConfigurationError(f"selector={given!r}: makes no selector: {type(exc).__name__}: {exc}") from exc
    if not isinstance(made, BaseSelector):
        raise ConfigurationError(f"selector={given!r}: must be a class of selectors, as selectors.EpollSelector, or what makes one")
    made.close()
    make: Callable[[], BaseSelector] = given  # type: ignore[assignment]  # it was called above, and made one
    return make
