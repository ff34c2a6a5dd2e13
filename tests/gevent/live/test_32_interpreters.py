"""32: the handlers' contract on each other interpreter of this machine that gkafka supports. Needs no broker; gevent is fetched for each once."""

from __future__ import annotations

import glob
import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.effort import one_of
from tests.gevent.live.recipes import environment
from tests.handlers.hub import ROOT
from tests.kit.lacking import reason
from tests.live.maven import cache_folder, locked

NAMES = ("python3.10", "python3.11", "python3.12", "python3.13", "python3.14", "python3.13t", "python3.14t", "pypy3")
NEEDED = ("gevent", "cffi", "pytest", "pytest-timeout", "hypothesis")
ASK = """
import json, platform, sys
gil = getattr(sys, "_is_gil_enabled", lambda: True)()
print(json.dumps([sys.implementation.name, sys.version_info[:2], gil]))
"""


def others() -> dict[str, str]:
    """Name -> program, of each kind of interpreter from 3.10 on but this one: on the path, and pyenv's."""
    pyenv = os.environ.get("PYENV_ROOT") or os.path.expanduser("~/.pyenv")
    programs = [program for name in NAMES if (program := shutil.which(name))]
    for name in NAMES:
        programs += sorted(glob.glob(f"{pyenv}/versions/*/bin/{name}"), reverse=True)
    found: dict[str, str] = {}
    for program in programs:
        name = kind(program)
        if name is not None and name != kind(sys.executable):
            found.setdefault(name, program)
    return found


def kind(program: str) -> str | None:
    """As "cpython-3.12" or "cpython-3.14t"; None for what does not start (a shim of pyenv's without its version) or is too old."""
    asked = subprocess.run([program, "-c", ASK], capture_output=True, text=True, check=False, timeout=60)
    if asked.returncode != 0:
        return None
    implementation, version, gil = json.loads(asked.stdout)
    return f"{implementation}-{version[0]}.{version[1]}{'' if gil else 't'}" if tuple(version) >= (3, 10) else None


def prepared(name: str, program: str) -> str:
    """The interpreter of an environment with what the suite needs, kept from run to run and from clone to clone."""
    folder = cache_folder() / "interpreters" / name
    python = str(folder / "bin" / "python")
    packages = [line.split("#")[0].strip() for line in (ROOT / "requirements.txt").read_text().splitlines()]
    wanted = [package for package in packages if re.split(r"[<>=]", package)[0] in NEEDED]
    assert len(wanted) == len(NEEDED)
    ready = folder / "ready"
    folder.parent.mkdir(exist_ok=True)
    with locked(folder.with_name(f"{name}.lock")):
        if not ready.exists() or ready.read_text() != " ".join(wanted):
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run([program, "-m", "venv", str(folder)], check=True, timeout=120)
            pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted]
            fetched = subprocess.run(pip, capture_output=True, text=True, timeout=300, check=False)
            assert fetched.returncode == 0, fetched.stderr
            ready.write_text(" ".join(wanted))
    return python


INTERPRETERS = others()


@pytest.mark.timeout(500)
@pytest.mark.parametrize(
    "name",
    one_of(*INTERPRETERS)
    if INTERPRETERS
    else [
        pytest.param(
            "none", marks=pytest.mark.skip(reason(("other interpreter of 3.10 or newer", "apt-get install python3.12-venv, for example")))
        )
    ],
)
@pytest.mark.parametrize("suite", ["tests/handlers/test_contract.py", pytest.param("tests/handlers", marks=pytest.mark.soak)])
def test_32_the_handlers_keep_their_contract_on_another_interpreter(name: str, suite: str) -> None:
    """Without the GIL the suite's gevent half is not there, and test_32_without_the_gil.py says what is told instead."""
    python = prepared(name, INTERPRETERS[name])
    options = ["-q", "-p", "no:cacheprovider", *(["-k", "threading"] if name.endswith("t") else [])]
    done = subprocess.run(
        [python, "-m", "pytest", *options, suite], cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) > 40, done.stdout
