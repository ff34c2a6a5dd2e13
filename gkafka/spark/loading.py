"""Imports that Spark waits for: it starts new processes for each session, query and job, and each of them loads gkafka first. No pyspark here."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

__all__ = ["nothing_collected"]


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
