"""All of what a command prints is written, or the command fails; what was not written is never committed.

Pipes of 4 KiB that block or do not, readers that are slow, stand still or leave, disks that are full.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gkafka import KafkaClient
from gkafka.cli.app import main
from gkafka.cli.pipes import FullWriter
from gkafka.testing import MockCluster
from tests.cli.running import Outcome, failure, tool
from tests.cli.terminal import environment
from tests.kit.clock import now
from tests.kit.lacking import leave_out

LIMIT_S = 60.0
RECORDS = 3000
MANY = 300
PAGE = 4096
FORMATS = {"text": [], "json": ["--json"], "hex": ["--format", "hex", "--delimiter", r"\0\n"]}
AS_STARTED = pytest.mark.parametrize(
    ("form", "unbuffered"),
    [("json", True), ("text", False), *(pytest.param(form, True, marks=pytest.mark.thorough) for form in ("text", "hex"))],
    ids=["json", "buffered text", "text", "hex"],
)
BUFFERING = pytest.mark.parametrize("unbuffered", [True, False], ids=["unbuffered", "buffered"])


@pytest.fixture(scope="module")
def cluster() -> Iterator[MockCluster]:
    """ "t" has RECORDS records in one partition; of "wide", with many partitions, group "reader" has committed something."""
    with MockCluster(topics={"t": 1, "target": 1, "wide": MANY}) as made:
        with KafkaClient(made.bootstrap) as client:
            with client.get_producer() as producer:
                for i in range(RECORDS):
                    producer.produce("t", b"%06d of a record, " % i + b"x" * (i % 50), timestamp=1_700_000_000_000)
            client.admin().alter_group_offsets("reader", {("wide", p): 0 for p in range(MANY)})
        yield made


class Shown(NamedTuple):
    """What `consume` prints in a format. ends: of each record, its delimiter included."""

    data: bytes
    ends: list[int]

    def whole(self, size: int) -> int:
        """How many records are wholly within the first bytes."""
        return sum(end <= size for end in self.ends)


@pytest.fixture(scope="module")
def shown(cluster: MockCluster) -> Callable[[str], Shown]:
    known: dict[str, Shown] = {}

    def of(form: str) -> Shown:
        if form not in known:
            data = tool("consume", "t", "-b", cluster.bootstrap, *FORMATS[form]).out
            known[form] = Shown(data, [i + 1 for i, byte in enumerate(data) if byte == 10])
            assert len(known[form].ends) == RECORDS
        return known[form]

    return of


# -- programs, pipes, disks ------------------------------------------------------------------------------------------------
@contextlib.contextmanager
def program(words: list[str], out: Any, *, unbuffered: bool, before: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """kafka-tools, ended with the block. out: its standard output. before: what the shell that starts it does first."""
    python = [sys.executable, *(["-u"] if unbuffered else []), "-m", "gkafka.cli"]
    shell = ["sh", "-c", f'{before}; exec "$@"', "sh"] if before else []
    env = environment(PYTHONUNBUFFERED="", PYTHONDONTWRITEBYTECODE="1")
    process = subprocess.Popen([*shell, *python, *words], stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE, env=env)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def ended(process: subprocess.Popen[bytes]) -> Outcome:
    """How it ended, without what it wrote."""
    _, said = process.communicate(timeout=LIMIT_S)
    return Outcome(process.returncode, b"", said.decode())


class Pipe:
    """A pipe of one page. The program has the writer; the reader is the test."""

    def __init__(self, *, blocks: bool) -> None:
        self.reader, self.writer = os.pipe()
        self.size = fcntl.fcntl(self.reader, fcntl.F_SETPIPE_SZ, PAGE)
        os.set_blocking(self.writer, blocks)

    def started(self) -> None:
        """The program has the writer: close that of this process."""
        os.close(self.writer)
        self.writer = -1

    def leave(self) -> None:
        os.close(self.reader)
        self.reader = -1

    def close(self) -> None:
        for fd in (self.reader, self.writer):
            if fd >= 0:
                os.close(fd)

    def holds(self) -> int:
        """Bytes that are written and not read."""
        return int(struct.unpack("i", fcntl.ioctl(self.reader, termios.FIONREAD, b"\0" * 4))[0])

    def wait_full(self) -> None:
        deadline = now() + LIMIT_S
        while self.holds() < self.size:
            assert now() < deadline, f"{self.holds()} bytes came"
            time.sleep(0.005)

    def read(self, size: int) -> bytes:
        """Exactly so many bytes."""
        parts: list[bytes] = []
        while size:
            parts.append(os.read(self.reader, size))
            assert parts[-1], "it ends too early"
            size -= len(parts[-1])
        return b"".join(parts)

    def read_slowly(self) -> bytes:
        """All of it, a few bytes at a time."""
        return b"".join(iter(lambda: os.read(self.reader, 300), b""))


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe(blocks=True)
    yield made
    made.close()


@pytest.fixture
def no_wait_pipe() -> Iterator[Pipe]:
    made = Pipe(blocks=False)
    yield made
    made.close()


def committed(cluster: MockCluster, group: str) -> int:
    """Records of "t" that a group has committed."""
    found = cluster.committed(group).get(("t", 0))
    return 0 if found is None else found.offset


def consume(cluster: MockCluster, form: str, group: str) -> list[str]:
    return ["consume", "t", "-b", cluster.bootstrap, "--group", group, *FORMATS[form]]


def name_of(request: pytest.FixtureRequest) -> str:
    """A group for this test alone."""
    return request.node.name.translate({ord(c): "-" for c in "[] "})


# -- records, and what a group commits -------------------------------------------------------------------------------------
@AS_STARTED
def test_a_slow_reader_of_a_pipe_that_does_not_block_gets_all(
    form: str, unbuffered: bool, no_wait_pipe: Pipe, cluster: MockCluster, shown: Any, request: Any
) -> None:
    group = name_of(request)
    with program(consume(cluster, form, group), no_wait_pipe.writer, unbuffered=unbuffered) as process:
        no_wait_pipe.started()
        assert no_wait_pipe.read_slowly() == shown(form).data
        assert ended(process) == (0, b"", "")
    assert committed(cluster, group) == RECORDS


@AS_STARTED
def test_what_a_reader_that_leaves_did_not_take_is_not_committed(
    form: str, unbuffered: bool, pipe: Pipe, cluster: MockCluster, shown: Any, request: Any
) -> None:
    group = name_of(request)
    with program(consume(cluster, form, group), pipe.writer, unbuffered=unbuffered) as process:
        pipe.started()
        got = pipe.read(PAGE)
        pipe.wait_full()
        taken = PAGE + pipe.holds()
        pipe.leave()
        assert ended(process) == (0, b"", "")
    assert got == shown(form).data[:PAGE]
    assert shown(form).whole(PAGE) <= committed(cluster, group) <= shown(form).whole(taken)


@AS_STARTED
def test_what_a_file_that_may_grow_no_more_did_not_take_is_not_committed(
    form: str, unbuffered: bool, cluster: MockCluster, shown: Any, request: Any, tmp_path: Path
) -> None:
    group = name_of(request)
    with (
        open(tmp_path / "out", "wb") as out,
        program(consume(cluster, form, group), out, unbuffered=unbuffered, before="ulimit -f 20") as process,
    ):
        failure(ended(process), "standard output: File too large")
    written = (tmp_path / "out").read_bytes()
    assert written == shown(form).data[: len(written)]
    assert 0 < committed(cluster, group) <= shown(form).whole(len(written)) < RECORDS


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24k", "tmpfs", str(folder)], capture_output=True, check=False)
    if made.returncode:
        leave_out(("right to mount a file system", "run as root"))
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_what_a_full_disk_did_not_take_is_not_committed(cluster: MockCluster, shown: Any, request: Any, small_disk: Path) -> None:
    group = name_of(request)
    with open(small_disk / "out", "wb") as out, program(consume(cluster, "text", group), out, unbuffered=True) as process:
        failure(ended(process), "standard output: No space left on device")
    written = (small_disk / "out").read_bytes()
    assert written == shown("text").data[: len(written)]
    assert 0 < committed(cluster, group) <= shown("text").whole(len(written)) < RECORDS


@pytest.mark.parametrize("kind", ["pipe", "no_wait_pipe"])
def test_an_interrupt_ends_the_wait_for_a_reader_and_commits_no_more_than_was_taken(
    kind: str, cluster: MockCluster, shown: Any, request: Any
) -> None:
    group, pipe = name_of(request), request.getfixturevalue(kind)
    with program(consume(cluster, "text", group), pipe.writer, unbuffered=True) as process:
        pipe.started()
        pipe.wait_full()
        process.send_signal(signal.SIGINT)
        code, out, told = ended(process)
        whole = shown("text").whole(pipe.holds())
        assert (code, out) == (130, b"")
        assert told == f"kafka-tools: interrupted; {whole} records printed; group {group!r} goes on behind them\n"
        assert committed(cluster, group) <= whole


def test_of_records_that_match_those_behind_the_last_one_written_are_not_committed(
    no_wait_pipe: Pipe, cluster: MockCluster, shown: Any, request: Any
) -> None:
    group = name_of(request)
    matching = [line for line in shown("text").data.splitlines(keepends=True) if line[5:6] in b"05"]
    ends = list(accumulate(map(len, matching)))
    with program([*consume(cluster, "text", group), "--match", "[05] of"], no_wait_pipe.writer, unbuffered=True) as process:
        no_wait_pipe.started()
        assert no_wait_pipe.read(PAGE) == b"".join(matching)[:PAGE]
        no_wait_pipe.wait_full()
        taken = PAGE + no_wait_pipe.holds()
        no_wait_pipe.leave()
        assert ended(process) == (0, b"", "")
    first_missing = int(matching[sum(end <= taken for end in ends)][:6])
    assert 0 < committed(cluster, group) <= first_missing


# -- everything else that is printed ---------------------------------------------------------------------------------------
class Disk(io.RawIOBase):
    """A file on a disk that has room for so many bytes: write() takes what fits, and raises when nothing does."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room, self.data = room, b""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        taken = bytes(data[: self.room - len(self.data)])
        if not taken and len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.data += taken
        return len(taken)


def run(words: str, raw: io.RawIOBase, cluster: MockCluster, *, unbuffered: bool) -> Outcome:
    """Run a command in this process, whose standard output this file is, as Python has it with and without -u."""
    out = io.TextIOWrapper(raw if unbuffered else io.BufferedWriter(raw), encoding="utf-8", write_through=unbuffered)  # type: ignore[type-var]
    err = io.StringIO()
    before = sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(b"a line\n"), encoding="utf-8")
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(
                [*words.split(), *(() if words.startswith(("version", "completion", "docs", "--help")) else ("-b", cluster.bootstrap))]
            )
    finally:
        sys.stdin = before
    return Outcome(code, b"", err.getvalue())


PRINTING = [
    "--help",
    "version",
    "version --json",
    "completion bash",
    "topics list --long",
    "topics describe wide",
    "topics describe wide --json",
    "groups describe reader",
    "groups describe reader --json",
    "lag reader",
    "lag reader --json",
    "lag reader --watch --count 2 --interval 0.1",
    "lag reader --watch --count 2 --interval 0.1 --json",
    "offsets list wide",
    "offsets list wide --json",
    "offsets reset reader --topic wide --to-latest",
    "print_topics",
    "desc_topic wide",
    "print_offsets wide LATEST",
    "print_consumer_lag wide reader --json",
    "doctor --json",
    "produce target --json",
    "copy t target --json -n 10",
    "bench produce --records 10 --json",
    "consume t --json -n 5",
]
EACH_COMMAND = pytest.mark.parametrize("words", PRINTING)


@BUFFERING
@EACH_COMMAND
def test_output_that_is_cut_short_is_a_failure_in_one_line(words: str, unbuffered: bool, cluster: MockCluster) -> None:
    disk = Disk(60)
    outcome = run(words, disk, cluster, unbuffered=unbuffered)
    assert outcome.code == 1, outcome
    told = [line for line in outcome.err.splitlines() if line.startswith("kafka-tools: ")]
    assert told == ["kafka-tools: standard output: No space left on device"]
    assert "Traceback" not in outcome.err
    assert len(disk.data) == 60


@pytest.mark.parametrize(
    ("words", "unbuffered"),
    [(words, number % 2 == 0) for number, words in enumerate(w for w in PRINTING if "reader" in w or "offsets" in w)],
)
def test_a_pipe_that_does_not_block_and_is_slow_has_all_in_the_end(
    words: str, unbuffered: bool, no_wait_pipe: Pipe, cluster: MockCluster
) -> None:
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(no_wait_pipe.read_slowly()))
    reader.start()
    try:
        outcome = run(words, io.FileIO(no_wait_pipe.writer, "wb", closefd=False), cluster, unbuffered=unbuffered)
    finally:
        no_wait_pipe.started()
        reader.join(LIMIT_S)
    whole = tool(*words.split(), "-b", cluster.bootstrap).out
    assert outcome.code == 0, outcome
    assert len(whole) > PAGE
    assert len(got[0]) == len(whole)
    if "--watch" not in words:  # these lines have the time
        assert got[0] == whole


@pytest.mark.parametrize("words", ["lag reader --json", "offsets list wide"])
def test_a_program_without_a_buffer_whose_file_may_grow_no_more_fails_in_one_line(words: str, cluster: MockCluster, tmp_path: Path) -> None:
    with (
        open(tmp_path / "out", "wb") as out,
        program([*words.split(), "-b", cluster.bootstrap], out, unbuffered=True, before="ulimit -f 2") as process,
    ):
        failure(ended(process), "standard output: File too large")


def test_an_interrupt_ends_the_last_wait_for_a_reader(pipe: Pipe, cluster: MockCluster) -> None:
    with program(["offsets", "list", "wide", "--json", "-b", cluster.bootstrap], pipe.writer, unbuffered=False) as process:
        pipe.started()
        pipe.wait_full()
        process.send_signal(signal.SIGINT)
        assert ended(process) == (130, b"", "kafka-tools: interrupted; nothing was changed\n")


def test_an_outfile_that_cannot_be_written_is_named(cluster: MockCluster) -> None:
    done = threading.Event()

    def produce() -> None:
        with KafkaClient(cluster.bootstrap) as client, client.get_producer(linger_ms=0) as producer:
            while not done.wait(0.05):
                producer.produce("target", b"a line")

    producing = threading.Thread(target=produce)
    producing.start()
    try:
        failure(tool("consume_topic", "target", "-o", "/dev/full", "-b", cluster.bootstrap), "/dev/full: No space left on device")
    finally:
        done.set()
        producing.join(LIMIT_S)


# -- the writer ------------------------------------------------------------------------------------------------------------
class Moody(io.RawIOBase):
    """A file that takes so many bytes of each write(); None: it would block."""

    def __init__(self, moods: list[int | None], fd: int) -> None:
        super().__init__()
        self._moods, self._fd, self.data = list(moods), fd, b""

    def fileno(self) -> int:
        return self._fd

    def write(self, data: Any) -> int | None:
        mood = self._moods.pop() if self._moods else len(data)
        if mood is None:
            return None
        self.data += bytes(data[:mood])
        return min(mood, len(data))


@given(st.lists(st.binary(max_size=40)), st.lists(st.none() | st.integers(1, 9)))
def test_whatever_a_file_takes_at_once_all_is_written_in_order(pieces: list[bytes], moods: list[int | None]) -> None:
    with open(os.devnull, "wb") as always_ready:
        raw = Moody(moods, always_ready.fileno())
        writer = FullWriter(raw, "out")
        assert [writer.write(piece) for piece in pieces] == list(map(len, pieces))
    assert raw.data == b"".join(pieces)
    assert writer.taken == len(raw.data)


@given(st.lists(st.binary(min_size=1, max_size=40), min_size=1), st.integers(0, 30))
def test_behind_an_error_it_is_known_how_much_was_taken(pieces: list[bytes], room: int) -> None:
    disk = Disk(room)
    writer = FullWriter(disk, "out")
    with contextlib.suppress(Exception):
        for piece in pieces:
            writer.write(piece)
    assert writer.taken == len(disk.data) == min(room, len(b"".join(pieces)))


# -- what is read ----------------------------------------------------------------------------------------------------------
def test_standard_input_that_does_not_block_is_read_to_its_end(cluster: MockCluster) -> None:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    cluster.create_topic("lines")

    def has(count: int) -> bool:
        return len(cluster.log("lines", 0)) == count

    def write() -> None:
        for i in range(3):
            os.write(writer, b"line %d\n" % i)
            cluster.wait_for(partial(has, i + 1), LIMIT_S)
        os.close(writer)

    writing = threading.Thread(target=write)
    before, sys.stdin = sys.stdin, open(reader)  # noqa: SIM115
    writing.start()
    try:
        code = main(["produce", "lines", "-b", cluster.bootstrap])
    finally:
        sys.stdin.close()
        sys.stdin = before
        writing.join(LIMIT_S)
    assert code == 0
    assert [r.value for r in cluster.log("lines", 0)] == [b"line 0", b"line 1", b"line 2"]


def test_a_file_that_cannot_be_read_to_its_end_is_a_failure(cluster: MockCluster) -> None:
    failure(tool("produce", "target", "/proc/self/mem", "-b", cluster.bootstrap), "the lines cannot be read: Input/output error")
