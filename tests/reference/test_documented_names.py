"""Every documented name of what is built is there, with its parameters and their defaults."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def check(*arguments: str, family: str = "pykafka") -> tuple[list[str], int, int]:
    """Labels of missing rows, rows present, rows in all."""
    run = subprocess.run(
        [sys.executable, str(HERE / "check_api.py"), "--family", family, *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "PYTHONPATH": str(HERE.parent.parent)},
    )
    assert run.returncode in (0, 1), run.stderr
    assert "import failed" not in run.stdout, run.stdout
    summary = re.search(rf"^{re.escape(family)}: (\d+) of (\d+)$", run.stdout, re.MULTILINE)
    assert summary is not None, run.stdout
    missing = re.findall(rf"^missing  {re.escape(family)} +(\S.*)$", run.stdout, re.MULTILINE)
    return missing, int(summary[1]), int(summary[2])


def test_no_documented_name_of_pykafka_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    missing, present, rows = check("--defaults")
    with capsys.disabled():
        print(f"\n{present} of {rows} documented names and defaults of pykafka's family are present")
    assert missing == []
    assert present == rows > 600


def test_no_newer_name_of_pykafka_is_missing() -> None:
    """Not all its defaults: where ZooKeeper is was given by zookeeper_connect in the older page, and by zookeeper_hosts later."""
    assert check(family="pykafka-2.8")[0] == []
    missing, _, _ = check("--defaults", family="pykafka-2.8")
    assert [row.partition(" default ")[0] for row in missing] == [
        "gkafka.balancedconsumer.BalancedConsumer(zookeeper_connect)",
        "gkafka.balancedconsumer.BalancedConsumer(zookeeper_hosts)",
    ]


@pytest.mark.parametrize("family", ["kafka-python", "kafka-python-legacy"])
def test_no_documented_name_of_kafka_python_is_missing(family: str) -> None:
    missing, present, rows = check("--defaults", family=family)
    assert missing == []
    assert present == rows > 100


def test_documented_private_names_of_what_is_no_consumer_are_there() -> None:
    missing, _, _ = check("--private")
    built = ("gkafka.producer", "gkafka.balancedconsumer", "gkafka.protocol", "gkafka.handlers", "gkafka.connection", "gkafka.broker")
    assert [row for row in missing if row.startswith(built)] == []
