"""How much memory Python's objects take in a test.

pytest's `faulthandler_timeout` starts a thread for each test, and that frees its first memory without the interpreter's lock. Where tracemalloc begins or ends
in the same moment, CPython crashes. So that thread has to be gone before; pytest-timeout's limit stays.
"""

from __future__ import annotations

import contextlib
import faulthandler
import tracemalloc
from collections.abc import Callable, Iterator

__all__ = ["traced"]


@contextlib.contextmanager
def traced() -> Iterator[Callable[[], int]]:
    """Yield what tells how many bytes were allocated at most, since this began."""
    faulthandler.cancel_dump_traceback_later()
    tracemalloc.start()  # noqa: TID251
    try:
        yield lambda: tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
