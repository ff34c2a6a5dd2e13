"""The original libraries, each release in an environment of its own that is kept from run to run and from clone to clone."""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

from tests.live.maven import cache_folder, locked

__all__ = ["RELEASES", "python_of"]

RELEASES = {"pykafka": "2.8.0", "kafka_python": "2.3.3"}
"""Library -> the release that a program is compared with unless it names another."""
WANTED = ("python3.11", "python3.10", "python3.9")
"""Interpreters on which all releases run: kafka-python before 2.0.3 does not import on 3.12."""
BESIDE = ("setuptools<81", "gunicorn")
"""pykafka imports pkg_resources, which setuptools 81 and newer do not have; the other is imported by programs."""


def python_of(library: str, release: str = "") -> str:
    """The interpreter that imports this release of the library; made the first time, with the package from the index that pip knows."""
    package = f"{library.replace('_', '-')}=={release or RELEASES[library]}"
    folder = cache_folder() / "originals" / package.replace("==", "-")
    python, ready, wanted = folder / "bin" / "python", folder / "ready", (package, *BESIDE)
    folder.parent.mkdir(exist_ok=True)
    with locked(folder.with_name(f"{folder.name}.lock")):
        if not ready.exists() or ready.read_text() != " ".join(wanted):
            shutil.rmtree(folder, ignore_errors=True)
            _run([next(_interpreters()), "-m", "venv", str(folder)])
            _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted])
            ready.write_text(" ".join(wanted))
    return str(python)


def _interpreters() -> Iterator[str]:
    pyenv = os.environ.get("PYENV_ROOT") or os.path.expanduser("~/.pyenv")
    for name in WANTED:
        found = [
            f"{sys.base_prefix}/bin/{name}",
            *sorted(glob.glob(f"{pyenv}/versions/*/bin/{name}"), reverse=True),
            shutil.which(name) or "",
        ]
        yield from (python for python in found if os.access(python, os.X_OK) and "shims" not in python)
    raise SystemExit(f"the original libraries need one of {', '.join(WANTED)}")


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}:\n{done.stderr}")
