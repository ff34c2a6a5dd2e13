"""`python -m gkafka.testing kafka FOLDER`, with a program in the place of java. On real Apache Kafka: tests/live/test_launcher.py."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from gkafka.testing import MockCluster, localkafka
from gkafka.testing.localkafka import main
from tests.live.jvm import free_ports

ROOT = Path(__file__).resolve().parent.parent.parent
JAVA = """#!{python} -IS
import os, re, socket, struct, sys
settings = open(sys.argv[-1]).read()
place = re.search("log.dirs=(.*)", settings)[1]
if "kafka.tools.StorageTool" in sys.argv:
    os.mkdir(place)
    open(place + "/meta.properties", "w").write("cluster.id=" + sys.argv[sys.argv.index("-t") + 1])
    sys.exit()
{before}
cluster = open(place + "/meta.properties").read().partition("=")[2].encode()
port = int(re.search(r"=PLAINTEXT://127.0.0.1:(\\d+)", settings)[1])
with socket.create_server(("127.0.0.1", port)) as server:
    while True:
        with server.accept()[0] as sock:
            sock.recv(4096)
            broker = struct.pack(">ih9sih", 1, 9, b"127.0.0.1", port, -1)
            answer = struct.pack(">ii", 1, 1) + broker + struct.pack(">h", len(cluster)) + cluster + bytes(8)
            sock.sendall(struct.pack(">i", len(answer)) + answer)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As an unpacked download, with a java of its own beside it. The data directories of programs are in it, too."""
    free_ports(1)  # the file by which all runs share the ports is opened where they look for it
    (tmp_path / "libs").mkdir()
    (tmp_path / "libs" / "kafka_2.13-4.2.0.jar").touch()
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    java(tmp_path)
    return tmp_path


def java(folder: Path, before: str = "") -> None:
    """before: what it does in the place of serving, or before."""
    program = folder / "bin" / "java"
    program.parent.mkdir(exist_ok=True)
    program.write_text(JAVA.format(python=sys.executable, before=before))
    program.chmod(0o755)


def start(folder: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "gkafka.testing", "kafka", str(folder), *more]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(program: subprocess.Popen[str], number: int) -> str:
    """What it says when it was sent a signal, once it had said where it listens."""
    with program:
        assert program.stdout is not None
        assert program.stdout.readline().startswith("127.0.0.1:")
        program.send_signal(number)
        _, said = program.communicate(timeout=110)
    assert program.returncode == 0, said
    return said


def test_it_says_where_it_listens_and_ctrl_c_ends_its_own_process_and_the_data(folder: Path) -> None:
    (port,) = free_ports(1)
    said = ended(start(folder, "--port", str(port)), signal.SIGINT)
    assert "is up, for programs of this machine alone" in said
    assert "is removed" in said
    assert not list((folder / "tmp").glob("gkafka-kafka-*"))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_data_that_were_to_be_kept_are_there_for_the_next_start(folder: Path) -> None:
    (port,) = free_ports(1)
    ids = []
    for _ in range(2):
        said = ended(start(folder, "--port", str(port), "--data", str(folder / "data")), signal.SIGTERM)
        assert f"its data directory {folder / 'data'} is kept" in said
        ids.append((folder / "data" / "log" / "meta.properties").read_text())
    assert ids[0] == ids[1]


def test_a_port_of_another_kafka_is_told_and_nothing_starts(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with MockCluster() as other:
        port = other.bootstrap.rpartition(":")[2]
        assert main(["kafka", str(folder), "--port", port]) == 1
    said = capsys.readouterr()
    told = rf"port {port} of 127\.0\.0\.1 is in use, by another Apache Kafka \(cluster id \S+\), process {os.getpid()} .*--port"
    assert re.search(told, said.err)
    assert said.out == ""
    assert not list((folder / "tmp").glob("gkafka-kafka-*"))


def test_a_start_that_takes_long_says_so(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(localkafka, "QUIET_S", 0.0)
    java(folder, "import time; time.sleep(0.3); sys.exit(1)")
    (port,) = free_ports(1)
    assert main(["kafka", str(folder), "--port", str(port)]) == 1
    assert re.search(r"^Apache Kafka did not serve yet: \d+ s of 120 s are over$", capsys.readouterr().err, re.MULTILINE)


def test_who_answers_with_another_id_is_not_taken_for_ours(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also if it came while ours started, which has found its port taken then and has ended."""
    another = "import time; open(place + '/meta.properties', 'w').write('cluster.id=of-another'); "
    java(folder, another + "os.fork() or (time.sleep(1), os.kill(os.getppid(), 15), os._exit(0))")
    (port,) = free_ports(1)
    assert main(["kafka", str(folder), "--port", str(port)]) == 1
    said = capsys.readouterr()
    assert "did not serve, status -15" in said.err
    assert "is up" not in said.err
    assert said.out == ""


def test_a_kafka_that_does_not_start_shows_the_end_of_its_log_and_leaves_the_data(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    java(folder, "sys.exit('num.io.threads is wrong')")
    (port,) = free_ports(1)
    assert main(["kafka", str(folder), "--port", str(port)]) == 1
    said = capsys.readouterr().err
    assert "did not serve, status 1" in said
    assert "num.io.threads is wrong" in said
    (data,) = re.findall(r"its data directory (\S+) is left there", said)
    assert Path(data).is_dir()


def test_what_is_missing_is_named_with_the_next_step(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["kafka", str(folder / "bin")]) == 1
    assert "has no libs/kafka_*.jar: download Apache Kafka (kafka.apache.org/downloads)" in capsys.readouterr().err
    assert main(["kafka", str(folder), "--port", "70000"]) == 1
    assert "--port 70000: must be between 1 and 65535" in capsys.readouterr().err
    (port,) = free_ports(1)
    monkeypatch.setenv("JAVA_HOME", str(folder / "jdk"))
    assert main(["kafka", str(folder), "--port", str(port)]) == 1
    assert f"JAVA_HOME='{folder}/jdk': there is no bin/java in it" in capsys.readouterr().err
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(folder))
    assert main(["kafka", str(folder), "--port", str(port)]) == 1
    assert "java is not installed" in capsys.readouterr().err
    assert not list((folder / "tmp").glob("gkafka-kafka-*"))
