"""`make first-minutes` without its play: what it finds on a page, what it sees on a terminal, and what it calls a defect."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import firstminutes
from tests.firstminutes import Line, Newcomer, Played, Step, Terminal, defects, main, pages, report, shown, steps_of

ROOT = Path(__file__).resolve().parent.parent
PAGE = """# A page

Say `pip install .` and wait, or `client.flush()`. A sentence may break a `make
demo` in two, and `make` alone is no command. Outside
of the clone, `python -c "print(1)"` prints 1.

```
pip install .
$ make test         # lint, types, all tests
kafka-tools lag GROUP
| no command |
```

```python
import gkafka  # `make not-this`
```

```text
make not-this
```

No blank line is needed: outside of the clone is
```sh
tar xzf a.tgz
```
"""


def step(text: str = "make demo", *, is_program: bool = False) -> Step:
    return Step("README.md", 7, text, is_program=is_program)


def on_a_terminal(script: str) -> Terminal:
    return Terminal(step(script), ["bash", "--norc", "-c", script], ROOT, os.environ)


def test_each_command_and_program_of_a_page_is_found_once_in_its_order() -> None:
    found = steps_of("a.md", PAGE)
    assert [(one.line, one.text, one.is_program) for one in found] == [
        (3, "pip install .", False),
        (3, "make demo", False),
        (5, 'python -c "print(1)"', False),
        (9, "make test", False),
        (10, "kafka-tools lag GROUP", False),
        (15, "import gkafka  # `make not-this`\n", True),
        (24, "tar xzf a.tgz", False),
    ]


def test_a_command_is_played_outside_of_the_clone_where_its_sentence_says_so() -> None:
    found = steps_of("a.md", "`python -c 1`, outside\nof the clone, prints\n\n`python -c 2`")
    assert [(one.text, one.outside) for one in found] == [("python -c 1", True), ("python -c 2", False)]


def test_what_is_not_played_says_why() -> None:
    assert step("make demo").left_out == ""
    assert "half an hour" in step("make test").left_out
    assert step("kafka-tools lag GROUP -b HOST:PORT").left_out == "has a placeholder, GROUP"
    assert step("python -m gkafka.testing kafka FOLDER").left_out == ""
    assert step('python -c "import gkafka as r; print(r.IMPLEMENTATION)"').left_out == ""
    assert step("print(HELLO)", is_program=True).left_out == ""


def test_every_tutorial_is_a_page_to_play(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    for name in ("tutorial-b.md", "tutorial-a.md", "other.md"):
        (tmp_path / "docs" / name).touch()
    assert pages(tmp_path) == ["README.md", "docs/local-kafka.md", "docs/tutorial-a.md", "docs/tutorial-b.md"]


def test_what_a_program_of_the_readme_needs_stands_before_it() -> None:
    found = steps_of("README.md", (ROOT / "README.md").read_text(encoding="utf-8"))
    order = ["program" if one.is_program else one.text for one in found]
    needed = ["pip install .", "python -m gkafka.testing kafka FOLDER", "program", 'pip install ".[gevent]"', "program"]
    assert order[: len(needed)] == needed


@pytest.mark.parametrize(
    "line",
    [
        "/usr/lib/a.py:3: DeprecationWarning: old",
        "Traceback (most recent call last):",
        "26/01/01 00:00:00 WARN NativeCodeLoader: no native library",
        "gcc: warning: unused",
        "ERROR: no matching distribution",
        "gkafka.exceptions.KafkaTimeoutError: too late",
        "WARNING: You are using pip",
    ],
)
def test_a_line_that_warns_is_a_defect_unless_the_page_announces_it(line: str) -> None:
    played = Played(step(), status=0, lines=[Line(0.1, f"  {line}")])
    assert defects(played, "a page") == [f"not announced: {line}"]
    assert defects(played, f"a page\n\n    {line}\n") == []


@pytest.mark.parametrize("line", ["errors and warnings: 0", "docs/errors.md  Errors", "compared, all equal", "WARNINGS_ARE_OFF=1"])
def test_a_line_that_only_speaks_of_errors_is_none(line: str) -> None:
    assert defects(Played(step(), status=0, lines=[Line(0.1, line)]), "") == []


def test_a_bad_end_no_end_and_a_silence_are_defects() -> None:
    assert defects(Played(step(), status=2), "") == ["it ended with status 2"]
    assert defects(Played(step(), status=None, seconds=120.0), "") == ["it did not end in 120 s"]
    assert defects(Played(step(), status=130), "") == ["it ended with status 130"]
    assert defects(Played(step(), status=130, ended_by_us=True), "") == []
    assert defects(Played(step(), status=0, silence=10.5, silent_after="3/8 start Kafka"), "") == [
        "nothing moved for 10 s after: 3/8 start Kafka"
    ]
    assert defects(Played(step(), status=0, silence=10.5), "", silence_s=11.0) == []


def test_a_line_is_what_is_left_on_the_screen() -> None:
    assert shown("  Building wheel ... -\b \b\\\b \bdone\r") == "  Building wheel ... done"
    assert shown("10 %\r\x1b[32m100 %\x1b[0m\x1b[K\r\r") == "100 %"
    assert shown("\r\x1b[2K") == ""


def test_a_command_has_a_terminal_and_its_status_and_lines_are_kept() -> None:
    played = on_a_terminal("test -t 0 -a -t 1 -a -t 2 && stty size && printf 'no end of line'; exit 3").wait(60)
    assert ([line.text for line in played.lines], played.status) == (["40 100", "no end of line"], 3)
    assert defects(played, "") == ["it ended with status 3"]


def test_a_command_that_does_not_end_is_ended() -> None:
    played = on_a_terminal("echo begun; sleep 1000").wait(0.5)
    assert played.status is None
    assert defects(played, "")[0].startswith("it did not end in")


def test_a_server_serves_until_ctrl_c() -> None:
    terminal = on_a_terminal("trap 'echo ended; exit 0' INT; echo 127.0.0.1:9092; while :; do sleep 0.1; done")
    assert terminal.wait_until_ready(60)
    played = terminal.interrupt()
    assert [line.text for line in played.lines if line.text] == ["127.0.0.1:9092", "ended"]
    assert defects(played, "") == []


def test_ctrl_c_is_heard_also_where_the_play_itself_ignores_it() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        terminal = on_a_terminal("echo 127.0.0.1:9092; sleep 1000")
        assert terminal.wait_until_ready(60)
        assert terminal.interrupt().status == -signal.SIGINT
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_bar_that_is_drawn_anew_is_one_line() -> None:
    played = on_a_terminal("printf '1/2\\n1/2\\n2/2\\n1/2\\n'").wait(60)
    assert [line.text for line in played.lines] == ["1/2", "2/2", "1/2"]


def test_a_server_that_ends_at_once_is_not_waited_for() -> None:
    terminal = on_a_terminal("echo no Java; exit 1")
    assert not terminal.wait_until_ready(60)
    assert defects(terminal.interrupt(), "") == ["it ended with status 1"]


def test_who_stops_the_play_leaves_no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: None)  # no clone, no virtual environment
    server = step("echo $$ > pid; echo 127.0.0.1:9092; sleep 1000 # -m gkafka.testing kafka")
    play = Newcomer(tmp_path).play("README.md", [server, step("echo one"), step("echo two")])
    assert [line.text for line in next(play).lines] == ["one"]
    pid = int((tmp_path / "gkafka" / "pid").read_text())
    os.kill(pid, 0)
    play.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_the_report_has_the_table_the_defects_what_was_left_out_and_every_line() -> None:
    played = Played(step("a | b"), status=1, seconds=3.25, silence=1.5, lines=[Line(0.5, "one"), Line(1.5, "two")])
    text = report([(played, ["it ended with status 1"])], [step("make test")], "v1")
    assert "| README.md:7 | `a \\| b` | 3.2 | 1.5 | 2 | 1 |" in text
    assert "- README.md:7, `a | b`: it ended with status 1" in text
    assert f"- README.md:7, `make test`: {firstminutes.NOT_PLAYED['make test']}" in text
    assert "    0.5  one\n    1.5  two\n" in text


def test_nothing_is_played_while_something_else_listens_where_the_pages_start_kafka(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(firstminutes, "taken", lambda port: port == 9092)
    monkeypatch.setattr(firstminutes.signal, "signal", lambda *_: None)
    assert main([]) == 1
    assert "port 9092" in capsys.readouterr().err


def test_on_a_terminal_make_lets_pip_show_what_it_does_and_in_a_log_not() -> None:
    command = ["make", "--dry-run", "--what-if=requirements.txt", "venv"]
    seen = Terminal(step(), command, ROOT, os.environ).wait(60)
    logged = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True).stdout
    assert "--quiet" in logged
    assert not [line.text for line in seen.lines if "--quiet" in line.text]
    assert any("pip install" in line.text for line in seen.lines)


def test_the_demo_does_not_wait_for_what_only_tests_need_and_the_tests_do() -> None:
    for target, wanted in (("demo", False), ("venv", True), ("test", True), ("thorough", True)):
        command = ["make", "--dry-run", "--what-if=requirements.txt", target]
        said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True).stdout
        assert ("gssapi" in said) == wanted, target


def test_a_package_that_could_not_be_built_is_tried_again(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / ".ready").touch()
    for program in ("krb5-config", "cc", "python"):
        (venv / "bin" / program).write_text("#!/bin/sh\nexit $STATUS\n")
        (venv / "bin" / program).chmod(0o755)
    for status, tried in (("1", True), ("0", True), ("0", False)):
        environment = {**os.environ, "PATH": f"{venv}/bin:{os.environ['PATH']}", "STATUS": status}
        command = ["make", f"VENV={venv}", f"{venv}/.gssapi"]
        said = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=True)
        assert ("building gssapi" in said.stdout, "could not be built" in said.stderr) == (tried, status == "1")


def test_an_installation_moves_while_the_compiler_says_nothing() -> None:
    """pip's wheel turns with each line of the build, and one that printed none stood still for a minute."""
    program = """
import setuptools
from pathlib import Path
setuptools.setup = lambda **_: input()
source = Path("setup.py").read_text().replace("SIGN_EVERY_S = 5.0", "SIGN_EVERY_S = 0.05")
exec(compile(source, "setup.py", "exec"), {"__name__": "__main__"})
"""
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "GKAFKA_BUILD": "pure"},
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as build:
        assert build.stderr is not None
        for _ in range(2):
            assert re.fullmatch(r"gkafka: building, \d+ s so far\n", build.stderr.readline())
        build.communicate("\n", timeout=60)
    assert build.returncode == 0
