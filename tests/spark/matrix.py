"""`make spark-matrix`: the tests of reading, streams and sinks on other versions of Spark than the one of requirements.txt, as a table.

    python -m tests.spark.matrix [4.1.4 ...]

Each version is fetched by pip into a folder of its own in the cache of tests/live/maven.py, about 900 MB each, and lies before the environment's packages on
the path; the JVM connector that belongs to it comes from Maven. What is left out on a version is printed with the reason. Brokers and Spark may take their
time to start: only the tests themselves have limits.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.kit.clock import now
from tests.live.kafka import RELEASES
from tests.live.maven import cache_folder
from tests.spark.connector import connector_jars

ROOT = Path(__file__).resolve().parents[2]
VERSIONS = ("4.0.4", "4.1.4", "4.2.1")
BESIDE = ("pandas<3",)  # PySpark 4.0 and 4.1 stumble over 3
KAFKA = "4.2.0"  # as the tests' fixtures have it
VERSION_S = 3600
STREAM, SINK, ORACLE, VERSION = (f"tests/spark/live/test_{name}.py" for name in ("stream", "sink", "oracle", "versions"))
SUITE = (VERSION, STREAM, SINK, ORACLE)

WITH_LIMITS = (
    f"{STREAM}::test_available_now_reads_in_capped_batches_what_was_there",
    f"{STREAM}::test_a_cap_holds_in_a_running_query_and_the_lag_is_told",
    f"{STREAM}::test_progress_is_committed_to_a_group_up_to_the_last_batch",
    f"{STREAM}::test_transactions_leave_gaps_and_their_end_is_reached",
    f"{STREAM}::test_compaction_leaves_gaps",
)
BEFORE_4_2 = {
    "one capped batch with AvailableNow, no lag in the progress (test_versions.py asserts both)": WITH_LIMITS,
}
BEFORE_4_1 = {
    "no filters are handed to a Python source": (f"{ORACLE}::test_the_same_rows_where_filters_cut_what_is_read",),
    "each action plans anew: what is gone by then was never planned": (
        f"{ORACLE}::test_a_topic_that_was_made_again_is_not_read_in_place_of_the_one_that_was_planned",
    ),
}
# Sockets of its own that PySpark leaves to the garbage collector there: not what these tests are about. All other warnings are errors there, too.
# (A dot stands for a colon, which would end the pattern.)
SOCKETS_BEFORE_4_2 = (
    "ignore:unclosed <socket:ResourceWarning",
    "ignore:(?s)Exception ignored.*ResourceWarning. unclosed <socket:pytest.PytestUnraisableExceptionWarning",
)


class Outcome(NamedTuple):
    """The tests of a version. left_out: how many groups of tests were not tried, by their reasons."""

    version: str
    passed: int
    failed: list[str]
    skipped: int
    left_out: int
    seconds: float

    @property
    def verdict(self) -> str:
        return "passed" if self.passed and not self.failed and not self.skipped else "FAILED"

    def cells(self) -> Iterator[str]:
        yield from map(
            str, (self.version, self.passed, len(self.failed), self.skipped, self.left_out, f"{self.seconds:.0f} s", self.verdict)
        )


HEAD = ("Spark", "passed", "failed", "skipped", "left out", "took", "verdict")


def packages(version: str) -> Path:
    """The folder of a PySpark, fetched the first time: whole, or not there."""
    place = cache_folder() / "pyspark" / version
    if not place.is_dir():
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f"{version}-", dir=place.parent) as work:
            target = Path(work, "packages")
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", str(target)]
            subprocess.run([*command, f"pyspark=={version}", *BESIDE], check=True)
            target.rename(place)
    return place


def fetched(version: str) -> Path:
    """The same, and the jars of Kafka and of the JVM connector are there, too: no test's time goes into fetching them."""
    RELEASES[KAFKA].jars()
    connector_jars(version)
    return packages(version)


def run(version: str) -> Outcome:
    """Plays the suite on a version, and prints what pytest prints."""
    number = tuple(map(int, version.split(".")))[:2]
    is_old = number < (4, 2)
    left_out = {**(BEFORE_4_1 if number < (4, 1) else {}), **(BEFORE_4_2 if is_old else {})}
    print(f"== Spark {version}", flush=True)
    for reason, tests in left_out.items():
        print(f"left out: {reason}", *tests, sep="\n  ", flush=True)
    deselected = [word for tests in left_out.values() for test in tests for word in ("--deselect", test)]
    place, began = fetched(version), now()
    with tempfile.NamedTemporaryFile(suffix=".xml") as report:
        options = ["-q", "-p", "no:cacheprovider", "-m", "not soak", "-o", "timeout_func_only=true", f"--junit-xml={report.name}"]
        settings = ["-o", "filterwarnings=" + "\n".join(("error", *SOCKETS_BEFORE_4_2))] if is_old else []
        command = [sys.executable, "-m", "pytest", *options, *settings, *SUITE, *deselected]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(place), str(ROOT)]), "PYTHONUNBUFFERED": "1"}
        status = subprocess.run(command, cwd=ROOT, env=environment, check=False, timeout=VERSION_S).returncode
        found = Path(report.name).read_text()
    return outcome(version, found, status, sum(map(len, left_out.values())), now() - began)


def outcome(version: str, report: str, status: int, left_out: int, seconds: float) -> Outcome:
    """What pytest's report says. status: pytest's own; one that is not 0 without a failed test is a failure of its own."""
    cases = list(ET.fromstring(report).iter("testcase")) if report else []
    failed = [name_of(case) for case in cases if case.find("failure") is not None or case.find("error") is not None]
    skipped = sum(case.find("skipped") is not None for case in cases)
    if status and not failed:
        failed = [f"pytest itself: status {status}"]
    names = set(failed)  # a test that fails, and then its fixture's end, is there twice
    passed = sum(name_of(case) not in names and case.find("skipped") is None for case in cases)
    return Outcome(version, passed, sorted(names), skipped, left_out, seconds)


def name_of(case: ET.Element) -> str:
    return f"{case.get('classname')}::{case.get('name')}"


def table(outcomes: Iterable[Outcome]) -> str:
    rows = [HEAD, *(tuple(each.cells()) for each in outcomes)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)


def main(versions: list[str]) -> int:
    outcomes = [run(version) for version in versions or VERSIONS]
    print(f"\n{table(outcomes)}")
    for each in outcomes:
        for name in each.failed:
            print(f"Spark {each.version}: {name} failed")
    return 0 if all(each.verdict == "passed" for each in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
