"""Imports that Spark waits for: it starts new processes for each session, query and job, and each of them loads gkafka first. No pyspark here."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Iterator

__all__ = ["keep_loaded", "nothing_collected"]


@contextlib.contextmanager
def nothing_collected() -> Iterator[None]:
    """For imports: what they make stays, and to collect garbage meanwhile is to look through all of pyspark and pyarrow, a sixth to a third of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def keep_loaded() -> None:
    """In a Python worker of Spark: what is there by now stays, so that nobody need look through it again.

    Spark collects garbage behind every task. With pyspark, pandas, pyarrow and gkafka loaded that takes 35 ms, which was most of a small task; what is loaded never
    becomes garbage. What else is there when a process works for gkafka first is kept, too, if it becomes a cycle that nobody holds.
    """
    if os.environ.get("SPARK_REUSE_WORKER") and not gc.get_freeze_count():
        gc.freeze()
