"""A newcomer's first minutes, played: `make first-minutes`, or `python -m tests.firstminutes [PAGE ...]`.

Takes the commands and programs out of README.md, docs/local-kafka.md and each docs/tutorial*.md as they stand there, and plays them in the order of the page, on a
terminal: in an empty folder with a fresh clone of what is committed, a new virtual environment that is active, and a home of its own, so that nothing is cached.
What a page takes from a browser, Kafka's download, lies there already. Where several pages are played, they share the environment.

The report has every line that the newcomer sees, with the seconds since the last one, and a table of all commands. These are defects, and the status is 1 then:
a command that does not end well, or not in time; a line that warns, or tells of an error, and does not stand on the page; and a terminal that stands still
for more than 10 s. It downloads some hundred MB and takes half an hour.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tarfile
import tempfile
import termios
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.kit.clock import figure, now

__all__ = ["NOT_PLAYED", "SILENCE_S", "Line", "Newcomer", "Played", "Step", "defects", "main", "pages", "play", "report", "steps_of"]

ROOT = Path(__file__).resolve().parent.parent
SILENCE_S = 10.0
"""For how long a terminal may stand still."""
FIRST_PAGES = ("README.md", "docs/local-kafka.md")
SHELLS = ("", "sh", "bash", "console")
COMMANDS = ("git", "kafka-tools", "make", "pip", "python", "tar")
"""What a line, or a text in backticks, begins with that is a command."""
PLACEHOLDER = re.compile(r"(?<![\w$./])(?!FOLDER\b)[A-Z][A-Z_:]{2,}(?![\w=./])")
"""What a reader has to fill in. FOLDER is filled in here: Kafka's unpacked download."""
NOT_PLAYED = {"make test": "takes half an hour by nature; each change is judged by it"}
"""Command -> why it is left out."""
LIMITS_S = {r"make demo\b": 2400.0, r"pip install\b": 1200.0}
LIMIT_S = 120.0
"""Of every other command."""
SERVES = re.compile(r"-m (gkafka\.testing |tests\.live\.)kafka\b")
"""A command that goes on until Ctrl-C. It is ended at the end of its page."""
READY = re.compile(r"\d+\.\d+\.\d+\.\d+:\d+")
"""The line by which it says that it serves."""
END_S = 60.0
BAD = re.compile(r"\b(Traceback|WARN(ING)?|ERROR|FATAL|\w*(Warning|Error|Exception)|[Ww]arning:|[Ee]rror:)(?!\w)")
ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07|[()][A-Z0-9]|[=>78])|[\x00-\x07\x0e-\x1a]")
KEPT = re.compile(r"(PIP_|SSL_|JAVA_HOME|MAVEN_|LANG|LC_|(https?|no)_proxy)", re.IGNORECASE)
"""What the machine needs to reach its package registries. Everything else of the environment is new."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
KAFKA = "kafka_2.13-4.2.0"
"""The download of which docs/local-kafka.md speaks."""
TERMINAL = (40, 100)
"""Lines and columns."""


# -- what stands on a page -------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Step:
    """One command, or one program. line: where it stands on its page, from 1; outside: to be run outside of the clone."""

    page: str
    line: int
    text: str
    is_program: bool = False
    outside: bool = False

    @property
    def name(self) -> str:
        return f"the program of line {self.line}" if self.is_program else self.text

    @property
    def left_out(self) -> str:
        """Why it is not played; "" if it is."""
        if found := PLACEHOLDER.search(re.sub(r"'[^']*'|\"[^\"]*\"", "", self.text)) if not self.is_program else None:
            return f"has a placeholder, {found[0]}"
        return NOT_PLAYED.get(self.text, "")


def pages(root: Path) -> list[str]:
    """The pages to play, in the order in which they are read."""
    return [*FIRST_PAGES, *sorted(path.relative_to(root).as_posix() for path in root.glob("docs/tutorial*.md"))]


def steps_of(page: str, text: str) -> list[Step]:
    """The commands and programs of a page, each command once. Commands are the lines of its blocks without a language, and what its sentences have in backticks."""
    found: dict[str, Step] = {}
    for line, language, block in blocks_of(text):
        if language == "python":
            step = Step(page, line, block, is_program=True)
            found.setdefault(block, step)
        elif language in SHELLS:
            for number, row in enumerate(block.splitlines()):
                if is_command(command := re.sub(r"\s+#.*", "", row.removeprefix("$ ")).strip()):
                    found.setdefault(command, Step(page, line + number, command))
        elif language == "text of the page":
            outside = "outside of the clone" in " ".join(block.split())
            for match in re.finditer(r"`([^`]+)`", block):
                if is_command(command := " ".join(match[1].split())):
                    found.setdefault(command, Step(page, line + block[: match.start()].count("\n"), command, outside=outside))
    return list(found.values())


def is_command(text: str) -> bool:
    first, _, rest = text.partition(" ")
    return first in COMMANDS and bool(rest)


def blocks_of(text: str) -> Iterator[tuple[int, str, str]]:
    """The line, the language and the content of each fenced block, and of each paragraph between them, of which the language is "text of the page"."""
    language, begun, held = None, 1, list[str]()
    for number, row in enumerate([*text.splitlines(), ""], 1):
        fence = row.startswith("```")
        if fence or (language is None and not row.strip()):
            if held:
                yield begun, "text of the page" if language is None else language, "\n".join(held) + "\n"
            begun, held = number + 1, []
            if fence:
                language = row[3:].strip() if language is None else None
        else:
            held.append(row)


# -- what is seen ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Line:
    """after: seconds since the line before, or since the command began."""

    after: float
    text: str


@dataclass
class Played:
    """What was seen of a step. status: None if it did not end in time; silence: the longest, in seconds, and the last line before it."""

    step: Step
    status: int | None = None
    seconds: float = 0.0
    silence: float = 0.0
    silent_after: str = ""
    lines: list[Line] = field(default_factory=list)
    ended_by_us: bool = False


def defects(played: Played, page: str, silence_s: float = SILENCE_S) -> list[str]:
    """What a newcomer should not have seen. page: its text, which may announce lines."""
    found = []
    if played.status is None:
        found.append(f"it did not end in {played.seconds:.0f} s")
    elif played.status not in ((0, 130) if played.ended_by_us else (0,)):
        found.append(f"it ended with status {played.status}")
    announced = {row.strip() for row in page.splitlines()}
    found += [
        f"not announced: {line.text.strip()}" for line in played.lines if BAD.search(line.text) and line.text.strip() not in announced
    ]
    if played.silence > silence_s:
        found.append(f"nothing moved for {played.silence:.0f} s after: {played.silent_after or 'its start'}")
    return found


def shown(text: str) -> str:
    """A line as a terminal shows it: what was written over by a carriage return is gone, and so are colours."""
    text = ESCAPES.sub("", text)
    while (less := re.sub(r"[^\b\r]\x08", "", text)) != text:  # pip's wheel that turns
        text = less
    parts = [part for part in text.split("\r") if part.strip("\b ")]
    return parts[-1].rstrip() if parts else ""


def report(all_played: Sequence[tuple[Played, list[str]]], left_out: Sequence[Step], commit: str) -> str:
    """The report as Markdown: the table, the defects, what was left out, and every line."""
    rows = [
        f"| {one.step.page}:{one.step.line} | {in_table(one.step.name)} | {one.seconds:.1f} | {one.silence:.1f} | {len(one.lines)} | {len(found)} |"
        for one, found in all_played
    ]
    told = [f"- {one.step.page}:{one.step.line}, {in_code(one.step.name)}: {each}" for one, found in all_played for each in found]
    not_played = [f"- {step.page}:{step.line}, `{step.name}`: {step.left_out}" for step in left_out]
    parts = [
        f"# First minutes, played at {commit}",
        "| page | command | seconds | longest silence | lines | defects |\n|---|---|---|---|---|---|\n" + "\n".join(rows),
        "## Defects\n\n" + ("\n".join(told) or "None."),
        "## Not played\n\n" + ("\n".join(not_played) or "Everything was played."),
        "## Every line, with the seconds since the last one",
        *(f"{one.step.page}:{one.step.line}, {in_code(one.step.name)}\n\n````text\n{as_listing(one)}````" for one, _ in all_played),
    ]
    return "\n\n".join(parts) + "\n"


def in_code(name: str) -> str:
    return name if name.startswith("the program") else f"`{name}`"


def in_table(name: str) -> str:
    return in_code(name).replace("|", "\\|")


def as_listing(played: Played) -> str:
    return "".join(f"{line.after:7.1f}  {line.text}\n" for line in played.lines)


# -- playing ---------------------------------------------------------------------------------------------------------------
class Terminal:
    """A command on a terminal of its own, read by a thread. What moves at all counts as a sign of life; a line counts when it is whole."""

    def __init__(self, step: Step, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        self.played = Played(step)
        self.ready = threading.Event()
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", *TERMINAL, 0, 0))
        self._began = self._moved = self._lined = now()
        self._process = subprocess.Popen(
            [sys.executable, "-c", CONTROLLING, *command],
            cwd=folder,
            env=environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        held = b""
        while True:
            try:
                read = os.read(self._ours, 65536)
            except OSError:  # the last one that had the terminal has closed it
                read = b""
            if not read:
                break
            self._note_movement()
            *whole, held = (held + read).split(b"\n")
            for line in whole:
                self._note_line(line)
        if shown(held.decode(errors="replace")):
            self._note_line(held)
        self._note_movement()
        os.close(self._ours)

    def _note_movement(self) -> None:
        at, serves = now(), self.ready.is_set() and not self.played.ended_by_us
        if (quiet := figure(at - self._moved)) > self.played.silence and not serves:
            self.played.silence, self.played.silent_after = quiet, self.played.lines[-1].text if self.played.lines else ""
        self._moved = at

    def _note_line(self, line: bytes) -> None:
        at = now()
        text = shown(line.decode(errors="replace"))
        if self.played.lines and text == self.played.lines[-1].text:  # a bar that is drawn anew
            return
        self.played.lines.append(Line(figure(at - self._lined), text))
        self._lined = at
        print(f"{self.played.lines[-1].after:7.1f}  {text}", flush=True)
        if READY.fullmatch(text):
            self.ready.set()

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def wait(self, limit_s: float) -> Played:
        """Let it end by itself; at the limit it is ended."""
        try:
            self.played.status = self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self._end()
            self.played.status = None
        return self._ended()

    def wait_until_ready(self, limit_s: float) -> bool:
        deadline = now() + limit_s
        while not self.ready.wait(0.1):
            if not self.runs or now() > deadline:
                return False
        return True

    def interrupt(self) -> Played:
        """End it by Ctrl-C, as its page says. That it was quiet while it served is no silence."""
        self._moved = now()
        self.played.ended_by_us = True
        self.played.status = self._end()
        return self._ended()

    def _end(self) -> int | None:
        """Ctrl-C, and if that does not help, a kill. Return the status, None if it took the kill."""
        status = None
        if self.runs:
            os.killpg(self._process.pid, signal.SIGINT)
        try:
            status = self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        return status

    def _ended(self) -> Played:
        self._reader.join(END_S)
        self.played.seconds = figure(now() - self._began)
        return self.played


CONTROLLING = """
import fcntl, os, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execvp(sys.argv[1], sys.argv[1:])
"""
"""Makes the terminal that of the session, and has Ctrl-C end what runs there: a play in the background has it ignored."""


class Newcomer:
    """A folder with a clone, an active virtual environment and an empty home. slow: by how many times the machine may take longer."""

    def __init__(self, folder: Path, slow: float = 1.0, *, caches: bool = False) -> None:
        self.folder, self.slow = folder, slow
        self.clone = folder / "gkafka"
        self.downloaded = folder / "downloads" / KAFKA
        self.home = folder / "home"
        self.home.mkdir()
        subprocess.run(["git", "clone", "-q", str(ROOT), str(self.clone)], check=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
        self.environment = {name: value for name, value in os.environ.items() if KEPT.match(name)} | {
            "HOME": str(self.home),
            "PATH": f"{folder / 'venv' / 'bin'}:{PATH}",
            "VIRTUAL_ENV": str(folder / "venv"),
            "TERM": "xterm-256color",
            "PAGER": "cat",  # nobody is there to press a key
        }
        if caches:
            kept = {"PIP_CACHE_DIR": "~/.cache/pip", "GKAFKA_CACHE": os.environ.get("GKAFKA_CACHE", "~/.cache/gkafka")}
            self.environment |= {name: os.path.expanduser(value) for name, value in kept.items()}

    def download_kafka(self) -> None:
        """Lay the archive that a browser would have downloaded, made of Maven's jars, and its folder, for FOLDER on a page."""
        from tests.live.kafka import RELEASES

        libs = self.downloaded / "libs"
        libs.mkdir(parents=True)
        for jar in RELEASES[KAFKA.rpartition("-")[2]].jars():
            os.symlink(jar, libs / jar.name)
        with tarfile.open(f"{self.downloaded}.tgz", "w:gz", compresslevel=1, dereference=True) as archive:
            archive.add(self.downloaded, KAFKA)

    def play(self, page: str, steps: Sequence[Step]) -> Iterator[Played]:
        """Play what is not left out. A server of the page serves until its end."""
        begun: list[Terminal] = []
        place = self.clone if page == "README.md" else self.folder / Path(page).stem
        place.mkdir(exist_ok=True)
        if any("tar " in step.text for step in steps):
            shutil.copy(f"{self.downloaded}.tgz", place)
        try:
            for step in steps:
                print(f"\n{step.page}:{step.line}  {step.name}", flush=True)
                begun.append(terminal := self._begin(step, self.folder if step.outside else place))
                if not SERVES.search(step.text):
                    yield terminal.wait(self._limit(step))
                elif not terminal.wait_until_ready(self._limit(step)):
                    yield terminal.interrupt()
        finally:
            ended = [terminal.interrupt() for terminal in reversed(begun) if terminal.runs]
        yield from ended

    def _begin(self, step: Step, place: Path) -> Terminal:
        if step.is_program:
            program = place / f"program{step.line}.py"
            program.write_text(step.text, encoding="utf-8")
            return Terminal(step, ["python", program.name], place, self.environment)
        command = re.sub(r"\bFOLDER\b", str(self.downloaded), step.text)
        return Terminal(step, ["bash", "--norc", "-c", command], place, self.environment)

    def _limit(self, step: Step) -> float:
        return self.slow * next((limit for what, limit in LIMITS_S.items() if re.match(what, step.text)), LIMIT_S)


def play(newcomer: Newcomer, names: Sequence[str]) -> Iterator[tuple[Played, list[str]]]:
    """What was seen of each step of these pages, and its defects."""
    for name in names:
        text = (newcomer.clone / name).read_text(encoding="utf-8")
        for played in newcomer.play(name, [step for step in steps_of(name, text) if not step.left_out]):
            found = defects(played, text, SILENCE_S * newcomer.slow)
            print("".join(f"  DEFECT  {each}\n" for each in found), end="", flush=True)
            yield played, found


def taken(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", nargs="*", default=pages(ROOT), help="a page of the clone (default: all of them)")
    parser.add_argument("--slow", type=float, default=1.0, metavar="N", help="allow N times the time and the silence, on a busy machine")
    parser.add_argument(
        "--caches", action="store_true", help="take what this machine has downloaded before: a shorter play, in which fewer waits are seen"
    )
    parser.add_argument(
        "--report", type=Path, default=ROOT / "demo-out" / "first-minutes.md", metavar="FILE", help="(default: %(default)s)"
    )
    args = parser.parse_args(given)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is ended then, as by Ctrl-C
    if taken(9092):
        print("port 9092 of 127.0.0.1 is in use, and the pages start their Kafka there: end what listens", file=sys.stderr)
        return 1
    commit = subprocess.run(["git", "describe", "--always"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    seen: list[tuple[Played, list[str]]] = []
    left_out = [step for name in args.page for step in steps_of(name, (ROOT / name).read_text(encoding="utf-8")) if step.left_out]
    with tempfile.TemporaryDirectory(prefix="first-minutes-", ignore_cleanup_errors=True) as folder:
        newcomer = Newcomer(Path(folder), args.slow, caches=args.caches)
        newcomer.download_kafka()
        try:
            seen.extend(play(newcomer, args.page))  # what was seen before a Ctrl-C is kept
        finally:
            args.report.parent.mkdir(parents=True, exist_ok=True)
            args.report.write_text(report(seen, left_out, commit), encoding="utf-8")
    count = sum(len(found) for _, found in seen)
    print(f"\n{len(seen)} commands and programs played, {len(left_out)} not, {count} defects: {args.report}")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
