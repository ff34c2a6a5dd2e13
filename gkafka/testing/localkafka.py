"""One node of real Apache Kafka on the loopback, from an unpacked download and a JDK: `python -m gkafka.testing kafka FOLDER`.

Nobody is told that it is up unless the node that answers is the one that was started: its process lives, and it answers with the
id that its data directory was given.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from gkafka.escaping import LONGEST_NAME, escaped

__all__ = ["Answering", "LocalKafkaError", "answering", "in_use", "main", "new_id"]

START_S, STOP_S, FORMAT_S = 120.0, 60.0, 120.0
LOOK_EVERY_S, ANSWER_S, QUIET_S = 0.1, 2.0, 8.0
TAIL = 20
METADATA, METADATA_VERSION = 3, 2  # the first version that tells the cluster's id
HOST = "127.0.0.1"
SETTINGS = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
offsets.topic.num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
"""


class LocalKafkaError(RuntimeError):
    """Kafka does not run; the text says why, and what to do."""


class Answering(NamedTuple):
    """Who answers on a port. cluster: the id of its cluster, "" if it tells none; brokers: how many serve."""

    cluster: str
    brokers: int


# -- who is there ----------------------------------------------------------------------------------------------------------
def answering(port: int) -> Answering | None:
    """The Kafka that answers on a port of the loopback; None if none does within 2 s."""
    request = struct.pack(">hhihi", METADATA, METADATA_VERSION, 1, -1, 0)
    with contextlib.suppress(OSError, struct.error, UnicodeError), socket.create_connection((HOST, port), ANSWER_S) as sock:
        sock.sendall(struct.pack(">i", len(request)) + request)
        with sock.makefile("rb") as file:
            size, correlation = struct.unpack(">ii", file.read(8))
            if correlation != 1 or not 8 < size < 1 << 20:
                return None
            return _answering(file.read(size - 4))
    return None


def _answering(answer: bytes) -> Answering:
    def text(at: int) -> tuple[str, int]:
        (length,) = struct.unpack_from(">h", answer, at)
        end = at + 2 + max(length, 0)
        return answer[at + 2 : end].decode(), end

    (brokers,), at = struct.unpack_from(">i", answer), 4
    for _ in range(brokers):
        _, at = text(at + 4)  # id, host
        _, at = text(at + 4)  # port, rack
    return Answering(text(at)[0], brokers)


def in_use(port: int) -> str:
    """That a port of the loopback is another's: what listens there, and what to do. "" if it is free. LocalKafkaError for a port below 1024."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Kafka does: connections that have ended are in nobody's way
        try:
            sock.bind((HOST, port))
            return ""
        except PermissionError:
            raise LocalKafkaError(f"port {port}: this user may not listen there; give one from 1024 on (--port)") from None
        except OSError:
            pass
    other = answering(port)
    what = "a program that does not answer as Kafka does"
    if other is not None:
        what = f"another Apache Kafka (cluster id {escaped(other.cluster, LONGEST_NAME) or 'unknown'})"
    processes = "".join(f", process {pid} ({command})" for pid, command in _listeners(port))
    return f"port {port} of {HOST} is in use, by {what}{processes}: give another one (--port), or end that first"


def _listeners(port: int) -> Iterator[tuple[str, str]]:
    """(pid, command line) of the processes of this user that listen on it, where /proc tells."""
    inodes = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path("/proc/net", table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                    inodes.add(f"socket:[{fields[9]}]")
    for process in Path("/proc").glob("[0-9]*") if inodes else ():
        with contextlib.suppress(OSError):
            if any(os.readlink(fd) in inodes for fd in (process / "fd").iterdir()):
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                yield process.name, escaped(command if len(command) <= 100 else f"{command[:50]} ... {command[-45:]}")


def new_id() -> str:
    """A cluster id, as Kafka makes them: 22 characters, the first of which is no dash."""
    while True:
        made = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not made.startswith("-"):
            return made


# -- one node --------------------------------------------------------------------------------------------------------------
class LocalKafka:
    """folder: of an unpacked download; data: the data directory, made if it is not there; port: of its listener."""

    def __init__(self, folder: Path, data: Path, port: int) -> None:
        self._data, self._port = data, port
        self.log = data / "kafka.log"
        self._settings = data / "server.properties"
        self._java = [_java(), "-Xmx512m", f"-Dkafka.logs.dir={data / 'logs'}", *_logging(folder), "-cp", f"{folder / 'libs'}/*"]
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    def start(self, ended: threading.Event) -> bool:
        """Return whether the node serves; False once `ended` is set. Raises LocalKafkaError."""
        with socket.create_server((HOST, 0)) as free:
            controller = free.getsockname()[1]
        logs = self._data / "log"
        self._data.mkdir(parents=True, exist_ok=True)
        self._settings.write_text(SETTINGS.format(host=HOST, port=self._port, controller=controller, data=logs), encoding="utf-8")
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        cluster = _formatted_as(logs)
        if not cluster:
            cluster = new_id()
            self._run("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self._settings))
            if not self._wait(ended, FORMAT_S, lambda: self._status == 0, "format its data directory"):
                return False
        self._run("kafka.Kafka", str(self._settings))

        def serves() -> bool:
            other = answering(self._port)
            return other is not None and other.cluster == cluster and other.brokers > 0 and self._status is None

        return self._wait(ended, START_S, serves, "serve")

    def wait(self, ended: threading.Event) -> None:
        """Return when `ended` is set. Raises LocalKafkaError if the process ends before."""
        while not ended.wait(1):
            if self._status is not None:
                raise self._failed(f"has ended, status {self._status}")

    def stop(self) -> None:
        """SIGTERM, and SIGKILL if that does not end it within 60 s. Nothing else is ended."""
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    @property
    def _status(self) -> int | None:
        return self._process.poll() if self._process is not None else None

    def _run(self, *main: str) -> None:
        with self.log.open("ab") as log:
            # A session of its own: Ctrl-C in the terminal reaches the program alone, which then ends the JVM.
            self._process = subprocess.Popen(
                [*self._java, *main], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._data, start_new_session=True
            )

    def _wait(self, ended: threading.Event, timeout: float, ready: Callable[[], bool], what: str) -> bool:
        began = said = time.monotonic()
        while (moment := time.monotonic()) < began + timeout:
            if moment - said >= QUIET_S:
                said = moment
                print(f"Apache Kafka did not {what} yet: {moment - began:.0f} s of {timeout:.0f} s are over", file=sys.stderr, flush=True)
            status = self._status  # before it is asked: one that has just ended well is ready
            if ready():
                return True
            if status is not None:
                if other := in_use(self._port):
                    raise LocalKafkaError(other)
                raise self._failed(f"did not {what}, status {status}")
            if ended.wait(LOOK_EVERY_S):
                return False
        raise self._failed(f"did not {what} within {timeout:g} s")

    def _failed(self, what: str) -> LocalKafkaError:
        with self.log.open("rb") as file:
            file.seek(self._log_start)
            lines = [escaped(line) for line in file.read().decode(errors="replace").splitlines()[-TAIL:]]
        return LocalKafkaError("\n".join([f"Apache Kafka {what}. The end of its log ({self.log}):", *(lines or ["(it is empty)"])]))


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=os.path.join(home, "bin") if home else None)
    if home and not found:
        raise LocalKafkaError(f"JAVA_HOME={home!r}: there is no bin/java in it: set it to the folder of a JDK 17, or unset it")
    if not found:
        raise LocalKafkaError(
            "java is not installed, and Apache Kafka needs it: install a JDK 17 (Debian: apt-get install openjdk-17-jdk-headless)"
        )
    return found


def _logging(folder: Path) -> Iterator[str]:
    """What the scripts of a download tell its logging."""
    for option, name in (("log4j2.configurationFile=", "log4j2.yaml"), ("log4j.configuration=file:", "log4j.properties")):
        if (folder / "config" / name).is_file():
            yield f"-D{option}{folder / 'config' / name}"


def _formatted_as(logs: Path) -> str:
    """The cluster id in a data directory; "" in one that is new."""
    with contextlib.suppress(FileNotFoundError):
        for line in (logs / "meta.properties").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition("=")
            if name.strip() == "cluster.id":
                return value.strip()
    return ""


# -- the program -----------------------------------------------------------------------------------------------------------
def main(arguments: Sequence[str] | None = None) -> int:
    """Run a node until Ctrl-C or SIGTERM. It prints the bootstrap string once the node serves. Returns the status: 0, or 1 after an error."""
    parser = argparse.ArgumentParser(prog="python -m gkafka.testing", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    kafka = commands.add_parser("kafka", help="run one node of real Apache Kafka (3.3 or newer) on 127.0.0.1 until Ctrl-C")
    kafka.add_argument("folder", type=Path, help="an unpacked download of Apache Kafka: the folder that has libs/")
    kafka.add_argument("--port", type=int, default=9092, help="to listen on (9092)")
    kafka.add_argument("--data", type=Path, help="a data directory to keep; without it, one that is removed at the end")
    given = parser.parse_args(arguments)
    ended = threading.Event()
    before = {number: signal.signal(number, lambda *_: ended.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        return _run(given.folder.resolve(), given.port, given.data, ended, sys.stderr)
    except LocalKafkaError as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _run(folder: Path, port: int, kept: Path | None, ended: threading.Event, told: IO[str]) -> int:
    if not any((folder / "libs").glob("kafka_*.jar")):
        raise LocalKafkaError(
            f"{folder} has no libs/kafka_*.jar: download Apache Kafka (kafka.apache.org/downloads), unpack it, and name its folder"
        )
    if not 0 < port < 1 << 16:
        raise LocalKafkaError(f"--port {port}: must be between 1 and 65535")
    if other := in_use(port):
        raise LocalKafkaError(other)
    _java()
    data = kept.resolve() if kept is not None else Path(tempfile.mkdtemp(prefix="gkafka-kafka-"))
    node = LocalKafka(folder, data, port)
    done = False
    try:
        print(f"Apache Kafka starts; its log is {node.log}", file=told, flush=True)
        if node.start(ended):
            print(f"{HOST}:{port}", flush=True)
            print("Apache Kafka is up, for programs of this machine alone; Ctrl-C ends it", file=told, flush=True)
            node.wait(ended)
        done = True
    finally:
        node.stop()
        if kept is None and done:
            shutil.rmtree(data, ignore_errors=True)
        fate = "is kept" if kept is not None else "is removed" if done else "is left there for you to look at"
        print(f"Apache Kafka has ended; its data directory {data} {fate}", file=told, flush=True)
    return 0
