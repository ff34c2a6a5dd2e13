"""The launcher itself: what it says when it cannot start, and that it leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from gkafka import KafkaClient
from gkafka.testing import MockCluster
from gkafka.testing.localkafka import answering
from tests.effort import one_of
from tests.kit.clock import now
from tests.live import maven
from tests.live.jvm import Jvm, free_ports, wait_for
from tests.live.kafka import RELEASES, KafkaNode, MissingToolError, Node, StartError, main
from tests.live.pool import Pool, skip_if_told

ROOT = Path(__file__).parents[2]


def until(what: Callable[[], bool], seconds: float = 60) -> bool:
    deadline = now() + seconds
    while not what():
        if now() > deadline:
            return False
        time.sleep(0.02)
    return True


@pytest.fixture
def starts_kafka() -> None:
    skip_if_told()


@pytest.fixture
def no_tools(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("GKAFKA_LIVE", raising=False)
    monkeypatch.setenv("GKAFKA_CACHE", str(tmp_path / "cache"))


@pytest.mark.usefixtures("no_tools")
def test_without_java_or_mvn_the_error_has_the_line_that_installs_them(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(MissingToolError, match="apt-get install openjdk-17-jdk-headless maven"):
        KafkaNode().start()
    assert main([]) == 1
    assert "apt-get install openjdk-17-jdk-headless maven" in capsys.readouterr().err


@pytest.mark.usefixtures("no_tools")
def test_without_java_or_mvn_live_tests_fail_and_are_not_skipped() -> None:
    with pytest.raises(pytest.fail.Exception, match="apt-get install openjdk-17-jdk-headless maven"):
        Pool().get()


def test_only_the_word_skip_skips_live_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GKAFKA_LIVE", "skip")
    with pytest.raises(pytest.skip.Exception, match="NOT TESTED"):
        Pool().get()


FAKE_MVN = """#!/bin/sh
echo called >> "$GKAFKA_CACHE/calls"
for argument; do case "$argument" in -DoutputDirectory=*) folder="${argument#*=}";; esac; done
mkdir "$folder" && echo > "$folder/a.jar"
"""


def test_runs_that_start_together_fetch_a_set_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GKAFKA_CACHE", str(tmp_path))
    fake = tmp_path / "bin" / "mvn"
    fake.parent.mkdir()
    fake.write_text(FAKE_MVN)
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    with ThreadPoolExecutor(8) as runs:
        found = list(runs.map(lambda _: maven.jars("a-set", ["a:b:1"]), range(8)))
    assert found == [[tmp_path / "jars" / "a-set" / "a.jar"]] * 8
    assert (tmp_path / "calls").read_text() == "called\n"


def test_an_interrupted_download_leaves_no_half_filled_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GKAFKA_CACHE", str(tmp_path))
    bad = tmp_path / "bin"
    bad.mkdir()
    (bad / "mvn").write_text("#!/bin/sh\necho 'no such artifact'\nexit 1\n")
    (bad / "mvn").chmod(0o755)
    monkeypatch.setenv("PATH", f"{bad}:{os.environ['PATH']}")
    with pytest.raises(RuntimeError, match="no such artifact"):
        maven.jars("a-set", ["a:b:1"])
    assert [path.name for path in (tmp_path / "jars").iterdir()] == ["a-set.lock"]


@pytest.mark.usefixtures("starts_kafka")
def test_a_broker_that_does_not_start_shows_the_end_of_its_log() -> None:
    with pytest.raises(StartError, match=r"num\.io\.threads"):
        KafkaNode("0.9.0.1", properties={"num.io.threads": "many"}).start()


def test_a_port_of_another_program_is_told_before_anything_starts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(StartError, match=rf"in use, by a program that does not answer .* process {os.getpid()} .*--port") as caught:
            KafkaNode("0.9.0.1", port=taken.getsockname()[1]).start()
        assert caught.value.clash


def test_a_port_of_another_kafka_is_told_and_nobody_says_that_it_is_up(capsys: pytest.CaptureFixture[str]) -> None:
    with MockCluster() as other:
        assert main(["--port", other.bootstrap.rpartition(":")[2]]) == 1
    printed = capsys.readouterr()
    assert "in use, by another Apache Kafka (cluster id " in printed.err
    assert "is up" not in printed.err
    assert printed.out == ""


def test_a_node_is_believed_only_while_its_process_lives_and_answers_with_its_own_id() -> None:
    with MockCluster() as other:
        port = int(other.bootstrap.rpartition(":")[2])
        own = answering(port)
        lives, ended = (cast("Jvm", SimpleNamespace(alive=alive)) for alive in (True, False))
        assert own is not None
        assert Node(1, port, lives, cluster=own.cluster).is_itself
        assert not Node(1, port, ended, cluster=own.cluster).is_itself
        assert not Node(1, port, lives, cluster="of another").is_itself


def test_who_answers_in_the_place_of_a_process_that_has_ended_is_not_believed(tmp_path: Path) -> None:
    skip_if_told()
    with pytest.raises(StartError, match="ended with status None before serving"):
        wait_for(Jvm("Kafka", tmp_path, [], ["Main"]), lambda: True, what="serving", timeout=60)


PROGRAM = """
import os, signal, sys
from tests.live.kafka import KafkaNode
node = KafkaNode("0.9.0.1").start()
print(node.nodes[0].pid, node._folder, flush=True)
os.kill(os.getpid(), int(sys.argv[1]))
signal.pause()
"""


@pytest.mark.usefixtures("starts_kafka")
@pytest.mark.parametrize("number", one_of(signal.SIGKILL, signal.SIGINT, signal.SIGTERM))
def test_a_run_that_is_ended_by_a_signal_leaves_no_process_and_no_data(number: int) -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(int(number))], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    pid, folder = run.stdout.split()
    assert until(lambda: not _runs(int(pid)) and not Path(folder).exists()), run.stderr


@pytest.mark.usefixtures("starts_kafka")
def test_as_a_program_it_prints_where_it_listens_and_ends_with_its_input() -> None:
    command = [sys.executable, "-m", "tests.live.kafka", "--version", "0.9.0.1"]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as program:
        assert program.stdout is not None
        assert program.stdin is not None
        host, port = program.stdout.readline().strip().split(":")
        socket.create_connection((host, int(port))).close()
        program.stdin.close()
        assert program.wait(60) == 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)))


@pytest.mark.usefixtures("starts_kafka")
def test_a_download_is_run_by_the_program_of_the_package_on_the_loopback_alone(tmp_path: Path) -> None:
    """docs/local-kafka.md: the folder has the jars in libs/, as a download has them."""
    libs = tmp_path / "libs"
    libs.mkdir()
    for jar in RELEASES["4.2.0"].jars():
        (libs / jar.name).symlink_to(jar)
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "gkafka.testing", "kafka", str(tmp_path), "--port", str(port)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        try:
            assert program.stdout is not None
            assert program.stdout.readline() == f"127.0.0.1:{port}\n"
            with KafkaClient(f"127.0.0.1:{port}") as client:
                client.admin().create_topics(["orders"])
                assert client.get_producer().produce("orders", b"hello").result(60).offset == 0
        finally:
            program.send_signal(signal.SIGINT)
        _, said = program.communicate(timeout=110)
    assert program.returncode == 0, said
    (data,) = re.findall(r"its data directory (\S+) is removed", said)
    assert not Path(data).exists()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


@pytest.mark.usefixtures("starts_kafka")
def test_a_killed_node_comes_back_with_its_data() -> None:
    with KafkaNode("0.9.0.1") as kafka:
        kafka.create_topic("kept", 2)
        kafka.kill(1)
        assert not kafka.node(1).alive
        assert kafka.node(1).brokers() is None
        kafka.restart(1)
        assert until(lambda: sorted(kafka.node(1).leaders("kept")) == [0, 1])


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False
