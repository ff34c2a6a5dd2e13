#!/usr/bin/env python3
"""The whole path on one machine: a web site, a crawler of greenlets, a real Kafka, a stream in Spark that is killed midway, a check of every number.

Runs the programs beside it, each of which also runs alone: website.py, serve.py, stream.py (and in it batch.py), top.py, lag.py, crawl.py, verify.py, report.py;
and one real Kafka node on the loopback, unless --hosts names one that is there. While the crawl fills Kafka, the streaming queries are ended
by kill -9, once they have done a part, and started again: their lag falls to 0, and every count must still be exact.

Results go to the output folder when all is done; an interrupted run (Ctrl-C, SIGTERM, a closed terminal) ends every process that it started
and leaves the folder as it was. Ends with status 0 only if every record was acknowledged and every number is equal.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, TypeVar

from lag import as_text
from names import ARCHIVE, INLINKS, WINDOWS, positive
from processes import ROOT, Children, Interrupted, signal_group

T = TypeVar("T")

HERE = Path(__file__).resolve().parent
STAGE = ".run"  # inside the output folder, so that a finished result only needs to be renamed
STEPS = 8
READY_S = 900  # the first Kafka ever fetches its jars
QUIET_S = 8.0  # then a step says how long it takes already
STALLED_S = 120  # without any progress of the stream
SHOW_LAG_EVERY_S = 1.0
TOP_LINES = 21  # of top.py's last table: a heading and twenty paths
NOT_KEPT = ("checkpoints", "spark-scratch")


class StepFailed(Exception):
    """A step ended badly; the text says which and how."""


# -- steps --------------------------------------------------------------------------------------------------------------------------------
class Demo:
    def __init__(self, args: argparse.Namespace, children: Children, stage: Path) -> None:
        self.args = args
        self.children = children
        self.stage = stage
        self.number = 0
        self._said = threading.Event()
        self.pages = ["--start", args.start, *(["--max-pages", str(args.max_pages)] if args.max_pages else [])]
        # On a cluster that is not ours, topics of an earlier run would be counted again.
        self.prefix = f"demo-{int(time.time())}-" if args.hosts else ""

    def run(self) -> bool:
        """True if every number is equal. Raises StepFailed."""
        folder = self.step("find the site", self.find_site)
        address = self.step("serve it", lambda: self.background([script("serve.py"), folder]))
        hosts = self.step("start Kafka (the first time its jars are downloaded)", self.kafka)
        kafka = ["--hosts", hosts, "--prefix", self.prefix]
        stream = Streaming(self, kafka)
        self.step("start the stream in Spark", stream.start)
        self.step("crawl into Kafka, and kill -9 the stream midway", lambda: self.crawl(address, kafka, stream))
        counting = self.count(folder)  # Spark's end leaves a core to it
        self.step("let the stream come to its end, and compute by batch what a stream cannot", stream.finish)
        equal, comparison = self.step("compare it with what the files hold", lambda: self.compare(counting))
        versions = [] if self.args.hosts else ["--kafka", self.args.kafka]
        self.step("make the report", lambda: self.foreground([script("report.py"), str(self.stage), *versions], quiet=True))
        print(f"\n{comparison}")
        return equal

    def step(self, what: str, work: Callable[[], T]) -> T:
        self.number += 1
        print(f"{self.number}/{STEPS} {what}", flush=True)
        began = time.monotonic()
        over = threading.Event()
        watch = threading.Thread(target=self._reassure, args=(began, over), daemon=True)
        watch.start()
        try:
            result = work()
        finally:
            over.set()
            self._said.set()
            watch.join()
        print(f"      {time.monotonic() - began:.1f} s", flush=True)
        return result

    def say(self, line: str) -> None:
        """Print a line of the step."""
        print(f"      {line}", flush=True)
        self._said.set()

    def _reassure(self, began: float, over: threading.Event) -> None:
        """Say how long the step takes already whenever it has said nothing for QUIET_S: nobody shall take it for dead."""
        while not over.is_set():
            if not self._said.wait(QUIET_S):
                print(f"      {time.monotonic() - began:.0f} s so far", flush=True)
            self._said.clear()

    def find_site(self) -> str:
        site = ["--site", self.args.site] if self.args.site else ["--package", self.args.package]
        return self.foreground([script("website.py"), *site]).splitlines()[-1]

    def kafka(self) -> str:
        if self.args.hosts:
            return str(self.args.hosts)
        return self.background(["-m", "tests.live.kafka", "--version", self.args.kafka])

    def crawl(self, address: str, kafka: list[str], stream: Streaming) -> None:
        command = [script("crawl.py"), address, *kafka, "--greenlets", str(self.args.greenlets), *self.pages]
        child = self.children.start([sys.executable, *command, "--write", str(self.stage / "crawl.json")])
        lag = stream.wait(lambda lag: bool(lag["done"][INLINKS] >= self.args.kill_after) or has_all(child, lag), while_running=child)
        stream.kill_and_restart(lag["left"][INLINKS])
        self.result_of(child, "crawl.py")

    def count(self, folder: str) -> subprocess.Popen[str]:
        """Begin to count the files again, with a program of its own."""
        told = [f"--{name}={self.stage / name}.json" for name in ("crawl", "top")]
        written = ["--write", str(self.stage / "verify.json")]
        return self.children.start(
            [sys.executable, script("verify.py"), folder, str(self.stage / "tables.json"), "--wait", *told, *written, *self.pages]
        )

    def compare(self, counting: subprocess.Popen[str]) -> tuple[bool, str]:
        text = counting.communicate("\n")[0].rstrip()
        if counting.returncode not in (0, 1) or not text:
            raise StepFailed(f"verify.py ended with status {counting.returncode}")
        self.children.end(counting)
        return counting.returncode == 0, text

    def foreground(self, command: list[str], *, quiet: bool = False) -> str:
        """Run a program to its end, its output shown. Returns the output."""
        return self.result_of(self.children.start([sys.executable, *command]), Path(command[0]).name, quiet=quiet)

    def result_of(self, child: subprocess.Popen[str], name: str, *, quiet: bool = False) -> str:
        lines = []
        for line in child.stdout or ():
            lines.append(line)
            if not quiet:
                self.say(line.rstrip())
        status = child.wait()
        self.children.end(child)
        if status != 0:
            raise StepFailed(f"{name} ended with status {status}")
        return "".join(lines)

    def background(self, command: list[str]) -> str:
        """Start a program that runs until the end of the demo; returns the first line it prints: where it can be reached."""
        return self.first_line(self.children.start([sys.executable, *command]), " ".join(Path(part).name for part in command[:2]))

    def first_line(self, child: subprocess.Popen[str], name: str, errors: IO[str] | None = None) -> str:
        assert child.stdout
        # A program that neither answers nor ends: its end makes readline() return.
        watchdog = threading.Timer(READY_S, signal_group, (child.pid, signal.SIGKILL))
        watchdog.daemon = True
        watchdog.start()
        line = child.stdout.readline().strip()
        watchdog.cancel()
        if not line:
            raise StepFailed(f"{name} did not start (status {child.wait()}){tail(errors)}")
        self.say(line)
        return line


class Streaming:
    """stream.py, killed and started again, with lag.py and top.py beside it."""

    def __init__(self, demo: Demo, kafka: list[str]) -> None:
        self._demo = demo
        self._children = demo.children
        self._stage = demo.stage
        self._kafka = kafka
        self._errors = (demo.stage / "stream.log").open("w+", encoding="utf-8")
        self._child: subprocess.Popen[str] | None = None
        self._events: dict[str, Any] = {}

    def start(self) -> None:
        self._start_spark()
        with (self._stage / "top.txt").open("w", encoding="utf-8") as output:
            write = ["--write", str(self._stage / "top.json")]
            self._top = self._children.start([sys.executable, script("top.py"), *self._kafka, *write], output=output)
        self._lag = self._children.start([sys.executable, script("lag.py"), *self._kafka, "--json"])

    def _start_spark(self) -> None:
        cap = ["--cap", str(self._demo.args.cap), "--out", str(self._stage), "--then-batch"]
        self._child = self._children.start([sys.executable, script("stream.py"), *self._kafka, *cap], errors=self._errors)
        self._demo.first_line(self._child, "stream.py", self._errors)

    def wait(self, until: Callable[[dict[str, Any]], bool], *, while_running: subprocess.Popen[str] | None = None) -> dict[str, Any]:
        """Watch the lag, and show it, until it is as wanted. Raises StepFailed if the stream ends, or stands still."""
        shown_at = moved_at = time.monotonic()
        last: dict[str, int] = {}
        shown = ""
        for lag in self._lags():
            now = time.monotonic()
            if lag["done"] != last:
                last, moved_at = lag["done"], now
            if until(lag):
                self._demo.say(as_text(lag["done"], lag["left"]))
                return lag
            text = as_text(lag["done"], lag["left"])
            if now - shown_at >= SHOW_LAG_EVERY_S and text != shown and any(lag["left"].values()):
                shown_at, shown = now, text
                self._demo.say(text)
            if self._child and self._child.poll() is not None:
                raise StepFailed(f"stream.py ended with status {self._child.returncode}{tail(self._errors)}")
            if while_running and while_running.poll():
                raise StepFailed(f"crawl.py ended with status {while_running.returncode}")
            if now - moved_at > STALLED_S:
                raise StepFailed(f"the stream has not moved for {STALLED_S} s{tail(self._errors)}")
        raise StepFailed(f"lag.py ended with status {self._lag.wait()}")

    def _lags(self) -> Iterator[dict[str, Any]]:
        with (self._stage / "lag.jsonl").open("a", encoding="utf-8") as file:
            for line in self._lag.stdout or ():
                file.write(line)
                yield json.loads(line)

    def kill_and_restart(self, left: int) -> None:
        assert self._child
        self._events.update(killed_at=time.time(), left_at_kill=left)
        self._children.kill(self._child)
        self._demo.say("kill -9 of the stream: driver, JVM and workers; it is started again")
        self._start_spark()
        self._events["back_at"] = time.time()

    def finish(self) -> None:
        """The crawl has ended: wait until nothing is left in Kafka, then let each program finish."""
        assert self._child
        self.wait(lambda lag: all(lag["done"].values()) and not any(lag["left"].values()))
        self._events["caught_up_at"] = time.time()
        self._children.end(self._lag)
        os.kill(self._child.pid, signal.SIGTERM)  # Python alone: Spark's JVM is still needed
        for line in self._child.stdout or ():
            self._demo.say(line.rstrip())
        if status := self._child.wait():
            raise StepFailed(f"stream.py ended with status {status}{tail(self._errors)}")
        self._children.end(self._child)
        os.kill(self._top.pid, signal.SIGTERM)
        if status := self._top.wait():
            raise StepFailed(f"top.py ended with status {status}")
        self._children.end(self._top)
        self._errors.close()
        (self._stage / "stream.json").write_text(json.dumps(self._events, indent=1), encoding="utf-8")
        for line in (self._stage / "top.txt").read_text(encoding="utf-8").splitlines()[-TOP_LINES:]:
            self._demo.say(line)


def has_all(crawl: subprocess.Popen[str], lag: dict[str, Any]) -> bool:
    """Has the crawl ended, with less than should have been done before the kill?"""
    return crawl.poll() is not None and all(lag["done"].values()) and not any(lag["left"].values())


def only_what_counts(folder: Path) -> None:
    """Make the output of Spark's file sink a plain folder of Parquet files: without those of a micro-batch that was killed, and without the
    list of the others, which names them where they were written.
    """
    listed = set()
    for log in (folder / "_spark_metadata").glob("[0-9]*"):
        listed |= {Path(json.loads(line)["path"]).name for line in log.read_text(encoding="utf-8").splitlines()[1:]}
    for part in folder.rglob("*.parquet"):
        if part.name not in listed:
            part.unlink()
    shutil.rmtree(folder / "_spark_metadata")


def script(name: str) -> str:
    return str(HERE / name)


def tail(log: IO[str] | None, lines: int = 25) -> str:
    if log is None:
        return ""
    log.seek(0)
    return ". The end of its log:\n" + "".join(log.readlines()[-lines:]).rstrip()


def publish(stage: Path, out: Path) -> None:
    """Move the results to where they belong, the report last. Of the stream, what it has written stays, not what it would go on from."""
    for name in NOT_KEPT:
        shutil.rmtree(stage / name, ignore_errors=True)
    for name in (ARCHIVE, WINDOWS):
        only_what_counts(stage / f"{name}.parquet")
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
            print(f"run.py: another run is writing to {args.out}; name another folder with --out", file=sys.stderr)
            return 1
        children.watch_signals()
        try:
            shutil.rmtree(stage, ignore_errors=True)  # of a run that was killed
            stage.mkdir()
            equal = Demo(args, children, stage.resolve()).run()
            children.end_all()
            publish(stage, args.out)
        except StepFailed as exc:
            print(f"run.py: {exc}", file=sys.stderr)
            return 1
        except Interrupted as exc:
            print(f"\nrun.py: {exc}: ending what was started", file=sys.stderr)
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
    parser.add_argument("--package", default="python3.11-doc", help="the Debian package that holds the site (default: %(default)s)")
    parser.add_argument(
        "--max-pages",
        type=positive,
        default=os.environ.get("DEMO_PAGES") or None,
        metavar="N",
        help="only the first N paths, breadth first (default: $DEMO_PAGES, else all)",
    )
    parser.add_argument("--start", default="/index.html", metavar="PATH", help="of the site, where the crawl begins (default: %(default)s)")
    parser.add_argument("--greenlets", type=positive, default=500, help="of the crawler (default: %(default)s)")
    parser.add_argument("--cap", type=positive, default=40_000, metavar="RECORDS", help="of a query at once (default: %(default)s)")
    parser.add_argument(
        "--kill-after",
        type=positive,
        default=20_000,
        metavar="RECORDS",
        help="links that have been counted before kill -9 (default: %(default)s)",
    )
    parser.add_argument("--hosts", help="a Kafka that is there, host:port; topics get a prefix of their own (default: start one)")
    parser.add_argument("--kafka", default="4.2.0", metavar="VERSION", help="the Kafka to start (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=ROOT / "demo-out", metavar="FOLDER", help="(default: %(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
