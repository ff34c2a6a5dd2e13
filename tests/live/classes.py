"""The classes that a broker loads, as an archive that the JVM maps into memory (CDS): a broker starts with half the processor time, and so does a script.

It stands in the cache, made by the first broker of its release, one that starts and ends at once, or by the first script, one that lists topics.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from tests.live.maven import cache_folder, locked, tool

__all__ = ["archive_flags"]

SILENT = "-Xlog:disable"  # a JVM that cannot use an archive says so on its output, and starts without


def archive_flags(name: str, record: Callable[[str], None]) -> list[str]:
    """Flags of java that use the archive. name: of what is started.

    record: runs it once with one more flag, which has the JVM write the archive when it ends by itself or by SIGTERM.
    """
    java = Path(tool("java")).resolve()
    made_by = sha256(f"{java} {java.stat().st_mtime_ns}".encode()).hexdigest()[:12]
    place = cache_folder() / "classes" / f"{name}-{made_by}.jsa"
    place.parent.mkdir(exist_ok=True)
    if not place.exists():
        with locked(place.with_suffix(".lock")):
            if not place.exists():
                _make(place, record)
    return [f"-XX:SharedArchiveFile={place}", SILENT] if place.stat().st_size else []


def _make(place: Path, record: Callable[[str], None]) -> None:
    """An empty file where the JVM can write none: nobody tries again."""
    beside = place.with_name(f"{place.name}.{os.getpid()}")
    record(f"-XX:ArchiveClassesAtExit={beside}")
    beside.touch()
    beside.rename(place)
