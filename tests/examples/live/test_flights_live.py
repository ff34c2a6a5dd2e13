"""Flights through a real Kafka, in windows that a watermark closes in a real Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.examples.conftest import EXAMPLES
from tests.examples.test_flights import write_flights
from tests.kit.lacking import reason
from tests.live.kafka import KafkaNode
from tests.live.pool import REAL_KAFKA

pytestmark = [
    pytest.mark.timeout(420),
    pytest.mark.skipif(os.environ.get("GKAFKA_LIVE") == "skip", reason=reason(REAL_KAFKA)),
]


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaNode]:
    with KafkaNode() as node:
        yield node


def run(kafka: KafkaNode, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLES / "flights.py"), "--hosts", kafka.hosts, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.thorough  # its windows are compared without Spark, too
def test_each_window_is_equal_in_spite_of_delays_of_many_hours(kafka: KafkaNode, tmp_path: Path) -> None:
    data = write_flights(tmp_path / "flights.csv", 300)
    for _ in range(2):  # a second run takes the topic as it is
        done = run(kafka, "--data", data, "--cap", 50, "--topic", "flights")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "all equal" in done.stdout
        assert "too late" not in done.stderr


@pytest.mark.thorough  # that a difference is told and fails is tried without Spark, too
def test_a_watermark_that_does_not_wait_loses_flights_and_says_so(kafka: KafkaNode, tmp_path: Path) -> None:
    data = write_flights(tmp_path / "flights.csv", 300)
    done = run(kafka, "--data", data, "--cap", 50, "--topic", "impatient", "--late-hours", 1)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "DIFFER" in done.stdout
    assert "came too late for their window" in done.stderr
