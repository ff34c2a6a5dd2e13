"""What plays the programs of this folder: their headers, the copy in which only the imports differ, a broker with their topics, and what came of one."""

from __future__ import annotations

import ast
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from gkafka import KafkaClient
from gkafka.admin import NewTopic
from tests.kit.forks import LIMIT_S, PATCHING, Ended, Interpreter, Program

__all__ = ["HANDLERS", "NEEDS", "PROGRAMS", "SAME", "Outcome", "Place", "UserProgram", "by_forks", "by_python", "reasons"]

HERE = Path(__file__).resolve().parent
HANDLERS = ("threading", "gevent")
LIBRARIES = {"pykafka": ("pykafka", "gkafka"), "kafka_python": ("kafka", "gkafka.kafka")}
"""Library -> the name that a program imports, and what stands for it in the copy."""
HEADERS = ("topic", "expect", "committed", "original", "needs", "release")
NEEDS = ("zookeeper", "real")
SAME = "the same"
PATCHED = "from gevent import monkey; monkey.patch_all()\n"
IMPORTED = """
import gkafka.kafka.admin, gkafka.kafka.consumer, gkafka.kafka.legacy, gkafka.kafka.producer.kafka
import gkafka.client, gkafka.consumer, gkafka.deliveryreports, gkafka.handlers.greenlets, gkafka.managedbalancedconsumer, gkafka.ownedbroker
import gkafka.partitioners, gkafka.producermemory, gkafka.protocol, gkafka.simpleconsumer, gkafka.zookeeper
import kazoo.client, ssl
"""
BEFORE = {"threading": IMPORTED, "gevent": f"{PATCHING}\ngevent.monkey.patch_all()\n{IMPORTED}"}


class Outcome(NamedTuple):
    """What came of a program. printed: its lines, and how it ended if it failed. committed: of its group, "" if nothing is. stderr: for whoever reads why."""

    printed: tuple[str, ...]
    committed: str
    stderr: str

    @property
    def lines(self) -> list[str]:
        """What is compared."""
        return [*self.printed, *([f"committed: {self.committed}"] if self.committed else [])]


class UserProgram(NamedTuple):
    """A file of this folder and what its header says.

    topic: (partitions, messages) of the topic that it is given, None if the kit makes none. expect: the lines that it prints. committed: what its group has
    committed, None if that is not said. original: what is compared of the original library where it differs, else nothing.
    needs: of NEEDS. release: of the original library, "" for the usual one.
    """

    name: str
    source: str
    topic: tuple[int, int] | None
    expect: tuple[str, ...]
    committed: str | None
    original: tuple[str, ...]
    needs: frozenset[str]
    release: str

    @property
    def library(self) -> str:
        return next(library for library in LIBRARIES if self.name.startswith(f"{library}_"))

    def copy(self, handler: str) -> str:
        """The source for gkafka: only its imports differ, as the pages on migrating say. For greenlets gevent patches the process first."""
        theirs, ours = LIBRARIES[self.library]
        found = re.sub(rf"^(\s*from ){theirs}\b", rf"\1{ours}", self.source, flags=re.MULTILINE)
        found = re.sub(rf"^(\s*import ){theirs}$", rf"\1{ours} as {theirs}", found, flags=re.MULTILINE)
        left = [name for name in _imported(found) if name.partition(".")[0] == theirs]
        if left:
            raise ValueError(f"{self.name}: import {left[0]}: write 'from {theirs}... import ...' or 'import {theirs}'")
        return (PATCHED if handler == "gevent" else "") + found

    def as_expected(self, outcome: Outcome) -> bool:
        """Whether it printed what its header says and, where that is said, committed it."""
        return outcome.printed == self.expect and self.committed in (None, outcome.committed)


def _imported(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module or ""


def read(name: str, source: str) -> UserProgram:
    """A program with its header, which ends with the first line that is no such comment. Raises ValueError for what is none of HEADERS, or lacks what all have."""
    said: dict[str, list[str]] = {header: [] for header in HEADERS}
    for line in source.splitlines():
        found = re.fullmatch(r"# (\w+):(?: (.*))?", line)
        if not found:
            break
        if found[1] not in said:
            raise ValueError(f"{name}: {line!r}: a header is one of {', '.join(HEADERS)}")
        said[found[1]].append(found[2] or "")
    needs = frozenset(" ".join(said["needs"]).split())
    if not said["expect"] or not needs <= set(NEEDS):
        raise ValueError(f"{name}: needs lines '# expect: ...', and 'needs' is one of {', '.join(NEEDS)}")
    topic = None
    if said["topic"]:
        numbers = {"partitions": 1, "messages": 0} | {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", said["topic"][0])}
        topic = numbers["partitions"], numbers["messages"]
    committed = " ".join(said["committed"]) if said["committed"] else None
    return UserProgram(name, source, topic, tuple(said["expect"]), committed, tuple(said["original"]), needs, " ".join(said["release"]))


PROGRAMS = tuple(
    read(file.stem, file.read_text(encoding="utf-8")) for library in LIBRARIES for file in sorted(HERE.glob(f"{library}_*.py"))
)


def reasons() -> dict[str, str]:
    """Program -> the last column of README.md's table: why it differs from the original, or SAME."""
    text = (HERE / "README.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if line.startswith("| `")]
    return {row[0].strip("`"): row[3] for row in rows if len(row) == 4}


# -- where they are played -----------------------------------------------------------------------------------------------
class Place:
    """A broker on which programs are played, with gkafka's own client of it. Each play has a topic and a group of its own. A context manager."""

    def __init__(self, bootstrap: str, zookeeper: str | None = None) -> None:
        self._bootstrap, self._zookeeper = bootstrap, zookeeper
        self._client = KafkaClient(bootstrap, handler="threading")

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def arguments(self, program: UserProgram, how: str) -> list[str]:
        """The program's arguments, once its topic is there. how: with what it is played, each time another word."""
        topic, group = (f"{program.name}-{how}-{what}".replace("_", "-") for what in ("topic", "group"))
        if program.topic:
            self._make(topic, *program.topic)
        return [self._bootstrap, topic, group, self._zookeeper or "-"]

    def outcome(self, arguments: Sequence[str], ended: Ended) -> Outcome:
        """What is compared: the lines printed, how it ended if it failed, and what its group has committed if there is any."""
        _, topic, group, _ = arguments
        lines = ended.stdout.replace(topic, "TOPIC").replace(group, "GROUP").splitlines()
        if ended.returncode:
            raised = re.findall(r"^([A-Za-z_][\w.]*)(?::.*)?$", ended.stderr, re.MULTILINE)
            lines.append(f"exit {ended.returncode}: {raised[-1].rpartition('.')[2]}" if raised else f"exit {ended.returncode}")
        committed = self._client.admin().list_group_offsets(group, timeout=60)
        places = sorted((place.topic.replace(topic, ""), place.partition, found.offset) for place, found in committed.items())
        told = [f"{name and name + '/'}{partition}={offset}" for name, partition, offset in places if offset >= 0]
        return Outcome(tuple(lines), " ".join(told), ended.stderr)

    def _make(self, topic: str, partitions: int, messages: int) -> None:
        self._client.admin().create_topics([NewTopic(topic, partitions, 1)], timeout=60)
        if messages:
            with self._client.get_producer() as producer:
                for number in range(messages):
                    producer.produce(topic, b"%d" % number, partition=number % partitions)


# -- how they are played -------------------------------------------------------------------------------------------------
_interpreters: dict[str, Interpreter] = {}


def by_forks(place: Place, programs: Sequence[UserProgram], handler: str, folder: Path, *, at_once: int = 4) -> dict[str, Outcome]:
    """Name -> what came of it with gkafka. Each is a process of its own, the fork of one that has imported gkafka. folder: for the copies."""
    given, forks = [], []
    for program in programs:
        file = folder / f"{program.name}.py"
        file.write_text(program.copy(handler), encoding="utf-8")
        given.append(place.arguments(program, handler))
        forks.append(Program(program.copy(handler), str(file), given[-1]))
    if handler not in _interpreters or not _interpreters[handler].serves:
        _interpreters[handler] = Interpreter(BEFORE[handler], ())
    ended = _interpreters[handler].play(*forks, at_once=at_once)
    return {each.name: place.outcome(*played) for each, *played in zip(programs, given, ended, strict=True)}


def by_python(place: Place, program: UserProgram, how: str, source: str, python: str = sys.executable) -> Outcome:
    """What came of it as `python file.py`. One that has no end is ended, with all processes of its session, and told by a line."""
    arguments = place.arguments(program, how)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{program.name}.py"
        file.write_text(source, encoding="utf-8")
        out, err = Path(folder) / "out", Path(folder) / "err"
        with out.open("w") as stdout, err.open("w") as stderr:
            command = [python, str(file), *arguments]
            run = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, cwd=folder, start_new_session=True)
            try:
                status = run.wait(LIMIT_S)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(run.pid, signal.SIGKILL)
                run.wait()
        printed = out.read_text(errors="replace") + ("" if status is not None else f"no end within {LIMIT_S:g} s\n")
        return place.outcome(arguments, Ended(status or 0, printed, err.read_text(errors="replace")))
