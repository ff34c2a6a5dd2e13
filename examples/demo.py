#!/usr/bin/env python3
"""The whole path on one machine: a web site, a crawler of greenlets, a real Kafka, PySpark, a report, and a check of every number.

Runs the programs beside it, each of which also runs alone: website.py, serve.py, crawler.py, pipeline.py, verify.py, report.py; and one real
Kafka node on the loopback, unless --hosts names one that is there. Results go to the output folder when all is done; an interrupted run
(Ctrl-C, SIGTERM, a closed terminal) ends every process that it started and leaves the folder as it was. Ends with status 0 only if every
record was acknowledged and every number is equal.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import IO, TypeVar

T = TypeVar("T")

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
STAGE = ".run"  # inside the output folder, so that a finished result only needs to be renamed
STEPS = 7
READY_S = 900  # the first Kafka ever fetches its jars
GRACE_S = 20


class StepFailed(Exception):
    """A step ended badly; the text says which and how."""


class Interrupted(BaseException):
    """A signal asked for the end. Raised once, in the main thread; later signals change nothing: the end is on its way."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


# -- processes --------------------------------------------------------------------------------------------------------------------------
class Children:
    """Every process that the demo starts, each in a session of its own: it ends with all that it started itself."""

    def __init__(self) -> None:
        self._running: list[subprocess.Popen[str]] = []
        self._signal = 0
        self._starting = False
        self._ending = False

    def watch_signals(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._ending:
            return
        self._signal = number
        # Between fork and the list of children nothing may be raised: that child would never be ended.
        if not self._starting:
            self._ending = True
            raise Interrupted(number)

    def start(self, command: list[str], *, errors: IO[str] | None = None) -> subprocess.Popen[str]:
        self._starting = True
        try:
            child = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,  # held open: the Kafka node ends by itself when this program is no more
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))},
                start_new_session=True,
            )
            self._running.append(child)
        finally:
            self._starting = False
        if self._signal and not self._ending:
            self._on_signal(self._signal, None)
        return child

    def end(self, child: subprocess.Popen[str]) -> None:
        """SIGTERM to its group, and after GRACE_S seconds SIGKILL to whatever of its session is left."""
        deadline = time.monotonic() + GRACE_S
        signal_group(child.pid, signal.SIGTERM)
        while (child.poll() is None or session_members(child.pid)) and time.monotonic() < deadline:
            time.sleep(0.02)
        signal_group(child.pid, signal.SIGKILL)
        child.wait()
        deadline = time.monotonic() + GRACE_S
        # Spark's Python workers have process groups of their own. A killed process is gone a little later.
        while (left := session_members(child.pid)) and time.monotonic() < deadline:
            for pid in left:
                signal_process(pid, signal.SIGKILL)
            time.sleep(0.02)
        for pipe in (child.stdin, child.stdout):
            if pipe:
                pipe.close()
        if child in self._running:
            self._running.remove(child)

    def end_all(self) -> None:
        self._ending = True
        for child in reversed(self._running.copy()):
            self.end(child)


def signal_group(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return


def signal_process(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def session_members(session: int) -> list[int]:
    """The processes of a session. Where there is no /proc, none: the groups have been ended already."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            # pid (command) state parent group session ...; the command may hold blanks and brackets.
            fields = entry.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(entry.parent.name))
        except (OSError, IndexError):
            continue
    return found


# -- steps --------------------------------------------------------------------------------------------------------------------------------
class Demo:
    def __init__(self, args: argparse.Namespace, children: Children, stage: Path) -> None:
        self.args = args
        self.children = children
        self.stage = stage
        self.number = 0
        self.pages = ["--max-pages", str(args.max_pages)] if args.max_pages else []

    def run(self) -> bool:
        """True if every number is equal. Raises StepFailed."""
        folder = self.step("find the site", self.find_site)
        address = self.step("serve it", lambda: self.background([script("serve.py"), folder]))
        hosts = self.step("start Kafka", self.kafka)
        # On a cluster that is not ours, topics of an earlier run would be counted again.
        prefix = f"demo-{int(time.time())}-" if self.args.hosts else ""
        topics = ["--pages-topic", f"{prefix}pages", "--links-topic", f"{prefix}links"]
        crawl = [script("crawler.py"), address, "--hosts", hosts, "--greenlets", str(self.args.greenlets), *topics, *self.pages]
        self.step("crawl it into Kafka", lambda: self.foreground([*crawl, "--write", str(self.stage / "crawl.json")]))
        pipeline = [script("pipeline.py"), "--hosts", hosts, *topics, "--out", str(self.stage)]
        self.step("read it back in PySpark", lambda: self.foreground(pipeline, log="pipeline.log"))
        equal, comparison = self.step("count the files again", lambda: self.verify(folder))
        self.step("make the report", lambda: self.foreground([script("report.py"), str(self.stage)], quiet=True))
        print(f"\n{comparison}")
        return equal

    def step(self, what: str, work: Callable[[], T]) -> T:
        self.number += 1
        print(f"{self.number}/{STEPS} {what}", flush=True)
        began = time.monotonic()
        result = work()
        print(f"      {time.monotonic() - began:.1f} s", flush=True)
        return result

    def find_site(self) -> str:
        return self.foreground([script("website.py"), *(["--site", self.args.site] if self.args.site else [])]).splitlines()[-1]

    def kafka(self) -> str:
        if self.args.hosts:
            return str(self.args.hosts)
        return self.background(["-m", "tests.live.kafka", "--version", self.args.kafka])

    def verify(self, folder: str) -> tuple[bool, str]:
        told = ["--crawl", str(self.stage / "crawl.json"), "--write", str(self.stage / "verify.json")]
        command = [script("verify.py"), folder, str(self.stage / "tables.json"), *told, *self.pages]
        child = self.children.start([sys.executable, *command])
        text = child.communicate()[0].rstrip()
        if child.returncode not in (0, 1) or not text:
            raise StepFailed(f"verify.py ended with status {child.returncode}")
        self.children.end(child)
        return child.returncode == 0, text

    def foreground(self, command: list[str], *, log: str | None = None, quiet: bool = False) -> str:
        """Run a program to its end, its output shown; its error output goes to the terminal or into a log. Returns the output."""
        errors = (self.stage / log).open("w+", encoding="utf-8") if log else None
        try:
            child = self.children.start([sys.executable, *command], errors=errors)
            lines = []
            for line in child.stdout or ():
                lines.append(line)
                if not quiet:
                    print(f"      {line.rstrip()}", flush=True)
            status = child.wait()
            self.children.end(child)
            if status != 0:
                raise StepFailed(f"{Path(command[0]).name} ended with status {status}{tail(errors)}")
            return "".join(lines)
        finally:
            if errors:
                errors.close()

    def background(self, command: list[str]) -> str:
        """Start a program that runs until the end of the demo; returns the first line it prints: where it can be reached."""
        child = self.children.start([sys.executable, *command])
        assert child.stdout
        # A program that neither answers nor ends: its end makes readline() return.
        watchdog = threading.Timer(READY_S, signal_group, (child.pid, signal.SIGKILL))
        watchdog.daemon = True
        watchdog.start()
        line = child.stdout.readline().strip()
        watchdog.cancel()
        if not line:
            raise StepFailed(f"{' '.join(Path(part).name for part in command[:2])} did not start (status {child.wait()})")
        print(f"      {line}", flush=True)
        return line


def script(name: str) -> str:
    return str(HERE / name)


def tail(log: IO[str] | None, lines: int = 25) -> str:
    if log is None:
        return ""
    log.seek(0)
    return ". The end of its log:\n" + "".join(log.readlines()[-lines:]).rstrip()


def publish(stage: Path, out: Path) -> None:
    """Move the results to where they belong, the report last."""
    for each in sorted(stage.iterdir(), key=lambda path: path.name == "report.html"):
        target = out / each.name
        if target.is_dir():
            shutil.rmtree(target)
        each.replace(target)


def main() -> int:
    args = arguments()
    args.out.mkdir(parents=True, exist_ok=True)
    children = Children()
    stage = args.out / STAGE
    equal = False
    with (args.out / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"demo.py: another run is writing to {args.out}; name another folder with --out", file=sys.stderr)
            return 1
        children.watch_signals()
        try:
            shutil.rmtree(stage, ignore_errors=True)  # of a run that was killed
            stage.mkdir()
            equal = Demo(args, children, stage.resolve()).run()
            children.end_all()
            publish(stage, args.out)
        except StepFailed as exc:
            print(f"demo.py: {exc}", file=sys.stderr)
            return 1
        except Interrupted as exc:
            print(f"\ndemo.py: {exc}: ending what was started", file=sys.stderr)
            return 128 + exc.number
        finally:
            children.end_all()
            shutil.rmtree(stage, ignore_errors=True)
    print(f"\nThe report: {(args.out / 'report.html').resolve()}")
    return 0 if equal else 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--site",
        default=os.environ.get("SITE"),
        metavar="FOLDER",
        help="a folder with an index.html (default: $SITE, else Debian's python3.11-doc, else pydoc's pages)",
    )
    parser.add_argument(
        "--max-pages",
        type=int,
        default=os.environ.get("DEMO_PAGES") or None,
        metavar="N",
        help="only the first N paths, breadth first (default: $DEMO_PAGES, else all)",
    )
    parser.add_argument("--greenlets", type=int, default=256, help="of the crawler (default: %(default)s)")
    parser.add_argument("--hosts", help="a Kafka that is there, host:port; topics get a prefix of their own (default: start one)")
    parser.add_argument("--kafka", default="4.2.0", metavar="VERSION", help="the Kafka to start (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=ROOT / "demo-out", metavar="FOLDER", help="(default: demo-out beside examples)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
