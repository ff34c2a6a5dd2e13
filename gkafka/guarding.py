"""Call code that may raise anything: the application's, or what another worker is waiting for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["guarded"]

T = TypeVar("T")


def guarded(function: Callable[..., T], *args: object, failed: Callable[[BaseException], object]) -> T | None:
    """Return function(*args), or None if it raises and failed(error) has dealt with that.

    failed(error) is called with an exception of any kind, a signal handler's or a kill, too. If it
    returns True, the exception goes on. Any other answer ends it.
    """
    try:
        return function(*args)
    except BaseException as error:
        if failed(error) is True:
            raise
    return None
