"""Jars from Maven, in a folder that survives between runs.

The cache is $GKAFKA_CACHE, or ~/.cache/gkafka. A set of jars is either whole in `<cache>/jars/<name>/` or not there at all: it is
resolved beside and renamed, under a lock, so that several test runs may start at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

__all__ = ["INSTALL", "MissingToolError", "cache_folder", "jars", "locked", "tool"]

INSTALL = "apt-get install openjdk-17-jdk-headless maven"
RESOLVE_S = 600.0


class MissingToolError(RuntimeError):
    """java or mvn is not installed; the text has the line that installs them."""


def tool(name: str) -> str:
    """The path of `java` or `mvn`. Raises MissingToolError with the line to install."""
    home = os.environ.get("JAVA_HOME")
    if name == "java" and home and (found := shutil.which("java", path=f"{home}/bin")):
        return found
    found = shutil.which(name)
    if found is None:
        raise MissingToolError(f"{name} is not installed, and real Apache Kafka needs it. Install: {INSTALL}")
    return found


def cache_folder() -> Path:
    """$GKAFKA_CACHE, or ~/.cache/gkafka; made if it is not there."""
    folder = Path(os.environ.get("GKAFKA_CACHE") or "~/.cache/gkafka").expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def jars(name: str, artifacts: Sequence[str], *, transitive: bool = True) -> list[Path]:
    """The jars of a named set, fetched through mvn the first time.

    name: the set's folder; it has to change when the artifacts do, as in "kafka-4.2.0".
    artifacts: "group:artifact:version" each. transitive: what they depend on at run time, too.
    Raises MissingToolError without mvn (only if the set is not cached), RuntimeError with mvn's own words if it cannot resolve.
    """
    place = cache_folder() / "jars" / name
    if not place.is_dir():
        mvn = tool("mvn")
        place.parent.mkdir(parents=True, exist_ok=True)
        with locked(place.with_name(f"{name}.lock")):
            if not place.is_dir():  # another run may have brought it while this one waited for the lock
                _resolve(mvn, place, artifacts, transitive)
    found = sorted(place.glob("*.jar"))
    if not found:
        raise RuntimeError(f"{place} holds no jar: remove the folder, it will be fetched again")
    return found


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Let one process at a time make what is kept for all. A test's own time stands still meanwhile: to fetch what a new machine lacks may take minutes."""
    left, _ = signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        with path.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # released by the close, also by the kernel when the process is killed
            yield
    finally:
        if left:
            signal.setitimer(signal.ITIMER_REAL, left)


def _resolve(mvn: str, place: Path, artifacts: Sequence[str], transitive: bool) -> None:
    with tempfile.TemporaryDirectory(prefix=f"{place.name}-", dir=place.parent) as work:
        pom = Path(work, "pom.xml")
        pom.write_text(_pom(artifacts, transitive))
        fetched = Path(work, "jars")
        command = [mvn, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", "-DincludeScope=runtime"]
        done = subprocess.run(
            [*command, f"-DoutputDirectory={fetched}"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=RESOLVE_S,
            check=False,
        )
        if done.returncode != 0 or not fetched.is_dir():
            said = (done.stdout + done.stderr).strip()[-3000:]
            raise RuntimeError(f"mvn could not resolve {', '.join(artifacts)} (exit status {done.returncode}):\n{said}")
        fetched.rename(place)


def _pom(artifacts: Sequence[str], transitive: bool) -> str:
    alone = "" if transitive else "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    wanted = []
    for artifact in artifacts:
        group, name, version = artifact.split(":")
        wanted.append(
            f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>{alone}</dependency>"
        )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>gkafka.tests</groupId><artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{''.join(wanted)}</dependencies></project>"
    )
