"""Programs that tests start (tests/kit/forks.py): how they end, what is told of one that does not, and what is left then."""

from __future__ import annotations

import time
from collections.abc import Iterator
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import pytest

from tests.kit import forks
from tests.kit.clock import now
from tests.kit.forks import Ended, Interpreter, Program

STANDS_STILL = Program(
    "import os, sys, time\nprint('begun', file=sys.stderr)\nprint(os.getpid(), flush=True)\ntime.sleep(600)", "still.py", ["-x"]
)


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Interpreter]:
    made = Interpreter("")
    yield made
    made.end()


def test_each_is_a_main_module_and_has_its_own_end(interpreter: Interpreter, tmp_path: Path) -> None:
    meet = "import os, sys, time\nopen(sys.argv[1], 'w').close()\nwhile not os.path.exists(sys.argv[2]): time.sleep(0.01)\nprint(__name__, __file__)"
    one, other = str(tmp_path / "one"), str(tmp_path / "other")
    programs = [Program(meet, "one.py", [one, other]), Program(meet, "other.py", [other, one])]
    assert interpreter.play(*programs, at_once=2) == [Ended(0, "__main__ one.py\n", ""), Ended(0, "__main__ other.py\n", "")]
    source = "import os, signal, sys\nprint(sys.argv, file=sys.stderr)\nos.kill(os.getpid(), signal.SIGKILL)"
    assert interpreter.play(Program(source), Program("raise SystemExit(3)")) == [Ended(-9, "", "['-c']\n"), Ended(3, "", "")]


def heard(running: forks._Running) -> int:
    """The process of a program that stands still, once it has said so."""
    deadline = now() + 60
    while not (said := forks._text(running._out)).endswith("\n"):
        assert now() < deadline
        time.sleep(0.01)
    return int(said)


def is_gone(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


@pytest.mark.parametrize(("interrupted", "told"), [(False, "a program has no end within 110 s: still.py -x"), (True, "Ctrl-C")])
def test_one_that_does_not_end_is_ended_and_told_with_what_it_printed(
    interpreter: Interpreter, monkeypatch: pytest.MonkeyPatch, interrupted: bool, told: str
) -> None:
    processes: list[int] = []

    def over(running: list[forks._Running], limit: float) -> Any:
        """As soon as the programs have said something their time is over, or Ctrl-C comes."""
        processes.extend(map(heard, running))
        if interrupted:
            raise KeyboardInterrupt("Ctrl-C")
        return wait(running, 0)

    with monkeypatch.context() as patch:
        patch.setattr(forks, "wait", over)
        with pytest.raises(KeyboardInterrupt if interrupted else AssertionError, match=told) as raised:
            interpreter.play(STANDS_STILL, STANDS_STILL, at_once=2)
    assert interrupted or f"It printed:\n{processes[0]}\n\nbegun" in str(raised.value)
    deadline = now() + 60
    while not all(map(is_gone, processes)):
        assert now() < deadline
        time.sleep(0.01)
    assert interpreter.play(Program("print(1)")) == [Ended(0, "1\n", "")], "others are played all the same"


def test_what_cannot_be_imported_is_told() -> None:
    with pytest.raises(AssertionError, match="No module named 'nothing'"):
        forks.play([Program("")], before="import nothing")
