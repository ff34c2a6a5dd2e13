"""benchmarks/suite_removed.md tells which test holds what one that left the suite has claimed: those it names are there, and so is each file on real Kafka."""

from __future__ import annotations

import re

from tests.near import ROOT, WITH_KAFKA, all_tests

LIST = (ROOT / "benchmarks" / "suite_removed.md").read_text()
NAMED = re.compile(r"(?<![\w/.])(?:::)?(test_\w+)(?![\w*.]|\[.*\]\.py)")
"""The whole name of a test: no path, and not cut short."""


def test_whoever_holds_a_claim_now_is_there() -> None:
    known = {name for file in all_tests() for name in re.findall(r"^\s*def (test_\w+)", file.read_text(), re.MULTILINE)}
    rows = [line.strip("| ").split(" | ") for line in LIST.splitlines() if line.startswith("| ")]
    missing = [name for row in rows if len(row) == 3 for name in NAMED.findall(row[2]) if name not in known]
    assert len(rows) > 50
    assert missing == []


def test_each_file_on_real_kafka_has_its_row() -> None:
    names = [file.relative_to(ROOT).as_posix() for file in all_tests()]
    wanted = {
        name.removeprefix("tests/") for name in names if name.startswith(tuple(f"{room}/" for room in WITH_KAFKA)) and "/live/" in name
    }
    rows = set(re.findall(r"^\| (\S+\.py) (?:\|[^|\n]*){9}\|$", LIST, re.MULTILINE))
    assert len(rows) > 50
    assert sorted(wanted - rows) == []
