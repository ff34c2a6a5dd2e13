"""A test that runs out of time fails alone: what it was in the middle of is brought to an end first."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live.maven import locked

ROOT = Path(__file__).resolve().parent.parent

JVM = """
# Stands for py4j and for the JVM: a call reads the answer that belongs to it, or ends because the JVM has.
import subprocess, sys
def linger():
    import time
    time.sleep(600)
class Gateway:
    def __init__(self):
        self.proc = subprocess.Popen(
            [sys.executable, "-u", "-c", "import sys, time\\nfor line in sys.stdin: time.sleep(float(line)); print(line.strip())"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    def call(self, seconds):
        self.proc.stdin.write(f"{seconds}\\n"); self.proc.stdin.flush()
        said = self.proc.stdout.readline().strip()
        if not said:
            raise ConnectionError("the JVM has ended")
        return said
"""

TESTS = """
import os, subprocess, sys, time
import pytest, py4j, pyspark
from pyspark import SparkContext
from tests.kit.clock import busy

@pytest.fixture
def gateway():
    if SparkContext._gateway is None or SparkContext._gateway.proc.poll() is not None:
        SparkContext._gateway = py4j.Gateway()
    return SparkContext._gateway

def test_before(gateway):
    assert gateway.call(0.1) == "0.1"

@pytest.mark.timeout(1)
def test_too_long(gateway):
    gateway.call(600)

def test_behind(gateway):
    assert gateway.call(0.1) == "0.1"
    gateway.proc.kill()
    gateway.proc.wait()

@pytest.mark.timeout(0.3)
def test_too_long_elsewhere():
    time.sleep(600)

@pytest.mark.timeout(0.3)
def test_too_long_behind_the_end_of_the_jvm():
    py4j.linger()

@pytest.mark.timeout(0.3, func_only=True)
def test_too_long_where_the_error_of_a_jvm_is_expected(gateway):
    with pytest.raises(ConnectionError):
        gateway.call(600)

@pytest.mark.timeout(0.3, func_only=True)
def test_too_long_where_it_goes_on_behind_the_error_of_a_jvm(gateway):
    with pytest.raises(ConnectionError):
        gateway.call(600)
    time.sleep(600)

@pytest.mark.timeout(0.3)
def test_too_long_where_everything_is_expected():
    with pytest.raises(BaseException):
        time.sleep(600)

@pytest.mark.timeout(0.3)
@pytest.mark.xfail
def test_too_long_where_a_failure_is_expected():
    time.sleep(600)

@pytest.mark.timeout(0.3)
def test_too_long_in_a_fork(monkeypatch):
    made = []
    slow = {"__name__": "subprocess", "fork": subprocess.Popen._execute_child, "made": made, "busy": busy}
    exec("def _execute_child(self, *args):\\n    fork(self, *args)\\n    made.append(self.pid)\\n    busy(0.6)", slow)
    monkeypatch.setattr(subprocess.Popen, "_execute_child", slow["_execute_child"])
    child = subprocess.Popen([sys.executable, "-c", ""])
    try:
        child.wait()
        while True: pass
    finally:
        print("child", made == [child.pid])

done = []

@pytest.fixture(scope="session")
def shared_by_all():
    done.append("begun")
    try:
        if done == ["begun"]:
            time.sleep(600)
        yield
    finally:
        done.append("ended")

@pytest.fixture(scope="module")
def shared(shared_by_all, request):
    request.addfinalizer(lambda: done.append("cleared"))
    if done == ["begun", "ended", "begun"]:
        SparkContext._gateway = py4j.Gateway()
        SparkContext._gateway.call(600)
    return SparkContext

@pytest.mark.timeout(0.5)
def test_too_long_in_a_fixture_of_the_session(shared):
    pass

@pytest.mark.timeout(0.5)
def test_too_long_in_a_fixture_of_the_module_in_a_call_of_a_jvm(shared):
    pass

def test_behind_both(shared):
    assert done == ["begun", "ended", "begun", "cleared"]
"""


def test_the_alarm_ends_the_jvm_waits_for_a_fork_and_breaks_no_neighbour(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "py4j.py").write_text(JVM)
    (tmp_path / "pyspark.py").write_text("class SparkContext:\n    _gateway = None\n")
    (tmp_path / "conftest.py").write_text(
        "import sys\nfrom tests.kit import limits\n\ndef pytest_configure(config):\n    config.pluginmanager.register(limits)\n"
    )
    (tmp_path / "test_it.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "-p", "no:xdist", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False, env=_plain())
    said = done.stdout
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, said
    results = {name: result for result, name in re.findall(r"^(PASSED|FAILED|ERROR) \S+::(\w+)", said, re.MULTILINE)}
    assert len(results) == 13, said
    assert {name for name, result in results.items() if result == "PASSED"} == {"test_before", "test_behind", "test_behind_both"}, said
    assert list(results.values()).count("ERROR") == 2, said
    assert "the JVM has ended" in said
    assert "test_too_long has run out of its 1 s in a call of this JVM" in said
    assert "child True" in said


ELSEWHERE = """
import time, gevent, pytest
from gevent.event import Event
from tests.kit import limits
limits.LATER_S = 1

@pytest.mark.timeout(1)
def test_while_another_greenlet_runs():
    def spin():
        while True:
            gevent.sleep(0)
    gevent.spawn(spin)
    gevent.spawn(gevent.sleep, 600)
    Event().wait()

@pytest.mark.timeout(1)
def test_while_the_loop_runs_alone():
    gevent.spawn(gevent.sleep, 600)
    Event().wait()

class Slow:
    def __del__(self):
        time.sleep(2)

@pytest.mark.timeout(1)
def test_in_a_finalizer():
    Slow()
    time.sleep(600)

def test_behind():
    gevent.sleep(0.01)
"""


def test_the_alarm_reaches_the_test_wherever_it_hits(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text(
        "from tests.kit import limits\n\ndef pytest_configure(config):\n    config.pluginmanager.register(limits)\n"
    )
    (tmp_path / "test_it.py").write_text(ELSEWHERE)
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "-p", "no:xdist", str(tmp_path)]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False, env=_plain()).stdout
    results = {name: result for result, name in re.findall(r"^(PASSED|FAILED) \S+::(\w+)", said, re.MULTILINE)}
    assert results.pop("test_behind") == "PASSED", said
    assert list(results.values()) == ["FAILED"] * 3, said


def test_what_is_fetched_once_for_all_tests_does_not_count(tmp_path: Path) -> None:
    with locked(tmp_path / "lock"):
        assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
    assert signal.getitimer(signal.ITIMER_REAL)[0] > 0


def _plain() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
