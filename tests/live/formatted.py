"""What Kafka's own tool writes into the folder of a new KRaft node, kept in the cache: the tool is a JVM of its own, for each node of each cluster."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path

from gkafka.testing.localkafka import new_id
from tests.live.maven import cache_folder, locked

__all__ = ["Formatted", "formatted"]

PROPERTIES, CHECKPOINT = "meta.properties", "bootstrap.checkpoint"


class Formatted:
    """A folder as the tool has left it: whose it is, and the records with which the metadata of a cluster begin (features and users)."""

    def __init__(self, place: Path) -> None:
        self._place = place

    def copy_to(self, data: Path, node: int, cluster: str) -> None:
        """The same for a node with this id, of a cluster with that one."""
        data.mkdir()
        shutil.copyfile(self._place / CHECKPOINT, data / CHECKPOINT)
        said = dict(line.split("=", 1) for line in (self._place / PROPERTIES).read_text().splitlines() if not line.startswith("#"))
        own = {**said, "node.id": node, "cluster.id": cluster, "directory.id": new_id()}
        (data / PROPERTIES).write_text("".join(f"{name}={value}\n" for name, value in own.items()))


def formatted(version: str, users: Sequence[str], make: Callable[[Path], None]) -> Formatted:
    """What the tool of a release writes, with such users. make: has it write into a folder that is not there yet; called once."""
    name = sha256("\n".join(users).encode()).hexdigest()[:12] if users else "nobody"
    place = cache_folder() / "formatted" / f"kafka-{version}-{name}"
    place.parent.mkdir(exist_ok=True)
    if not place.is_dir():
        with locked(place.with_name(f"{place.name}.lock")):
            if not place.is_dir():
                _keep(place, make)
    return Formatted(place)


def _keep(place: Path, make: Callable[[Path], None]) -> None:
    with tempfile.TemporaryDirectory(prefix=f"{place.name}.{os.getpid()}-", dir=place.parent) as folder:
        beside = Path(folder) / "data"
        make(beside)
        whole = Path(folder) / "whole"
        whole.mkdir()
        for name in (PROPERTIES, CHECKPOINT):
            shutil.copyfile(beside / name, whole / name)
        whole.rename(place)
