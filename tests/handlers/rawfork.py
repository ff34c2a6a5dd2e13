"""A fork of which the interpreter knows nothing, as uWSGI makes them: no hook runs in the child."""

from __future__ import annotations

import ctypes
import sys
import time

__all__ = ["fork_without_hooks"]

PATIENT_S = 1000.0
A_MOMENT_S = 0.05


def fork_without_hooks() -> int:
    """0 in the child. No other thread may have asked for the interpreter's lock just then: the child would wait for that one to take it, for ever."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(PATIENT_S)  # whoever waits for the lock from now on does not ask
    try:
        time.sleep(A_MOMENT_S)  # who takes the lock back behind this finds that nobody has asked
        return int(ctypes.PyDLL(None).fork())
    finally:
        sys.setswitchinterval(before)
