"""The demo ends what it started, whatever happens."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import processes
import pytest
import run as demo

from tests.examples.conftest import PIPELINE
from tests.examples.marked import MARK, marked
from tests.kit.clock import now

# A program that starts another one in a process group of its own, as Spark's Python workers are, and ignores SIGTERM.
STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], preexec_fn=lambda: os.setpgid(0, 0))
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> str:
    """In the environment of every process that the test starts, and of those that they start."""
    value = uuid.uuid4().hex
    monkeypatch.setenv(MARK, value)
    return value


def test_a_child_ends_with_all_of_its_session(mark: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "GRACE_S", 1)
    children = processes.Children()
    child = children.start([sys.executable, "-c", STUBBORN])
    assert child.stdout
    assert child.stdout.readline() == "ready\n"
    assert len(marked(mark)) == 2
    children.end_all()
    assert marked(mark) == []


def test_a_program_that_does_not_start_is_an_error_that_names_it(tmp_path: Path) -> None:
    children = processes.Children()
    try:
        run = demo.Demo(argparse.Namespace(max_pages=None, hosts=None, start="/index.html"), children, tmp_path)
        with pytest.raises(demo.StepFailed, match=r"serve\.py"):
            run.background([demo.script("serve.py"), str(tmp_path)])
    finally:
        children.end_all()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_no_process_and_no_file(mark: str, site: Path, tmp_path: Path, number: int) -> None:
    """While the stream waits for a Kafka that never answers."""
    out = tmp_path / "out"
    out.mkdir()
    (out / "report.html").write_text("of an earlier run")
    command = [sys.executable, str(PIPELINE / "run.py"), "--site", str(site), "--hosts", "127.0.0.1:9", "--out", str(out)]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert run.stdout
    for line in run.stdout:
        if line.startswith("4/8"):
            break
    wait_for(lambda: any("stream.py" in command for command in marked(mark)))
    os.kill(run.pid, number)
    os.kill(run.pid, number)  # an impatient user changes nothing
    rest = run.stdout.read()
    assert run.wait(60) == 128 + number, rest
    run.stdout.close()
    assert marked(mark) == []
    assert sorted(path.name for path in out.iterdir()) == [".lock", "report.html"]
    assert (out / "report.html").read_text() == "of an earlier run"


def test_a_step_that_fails_ends_the_demo_and_leaves_nothing(mark: str, site: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [sys.executable, str(PIPELINE / "run.py"), "--site", str(site / "a" / "deep"), "--hosts", "127.0.0.1:9", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "website.py ended with status 1" in done.stderr
    assert "no index.html" in done.stderr
    assert marked(mark) == []
    assert [path.name for path in out.iterdir()] == [".lock"]


def test_a_step_that_says_nothing_tells_how_long_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kafka's first start downloads its jars, and the terminal stood still for minutes."""
    monkeypatch.setattr(demo, "QUIET_S", 0.01)
    run = demo.Demo(argparse.Namespace(max_pages=None, hosts=None, start="/index.html"), processes.Children(), tmp_path)
    run.step("wait", lambda: wait_for(lambda: "s so far" in capsys.readouterr().out))


def wait_for(ready: object, timeout: float = 60) -> None:
    assert callable(ready)
    deadline = now() + timeout
    while not ready():
        assert now() < deadline
        time.sleep(0.02)


def test_files_of_a_killed_batch_are_not_published(tmp_path: Path) -> None:
    folder = tmp_path / "archive.parquet"
    (folder / "_spark_metadata").mkdir(parents=True)
    for name in ("kept-1.parquet", "kept-2.parquet", "cut-short.parquet"):
        (folder / "topic=x").mkdir(exist_ok=True)
        (folder / "topic=x" / name).write_text(name)
    (folder / "_spark_metadata" / "0.compact").write_text('v1\n{"path":"file:///elsewhere/topic=x/kept-1.parquet","size":1}\n')
    (folder / "_spark_metadata" / "1").write_text('v1\n{"path":"file:///elsewhere/topic=x/kept-2.parquet","size":1}\n')
    demo.only_what_counts(folder)
    assert sorted(path.name for path in folder.rglob("*.parquet")) == ["kept-1.parquet", "kept-2.parquet"]
    assert not (folder / "_spark_metadata").exists()
