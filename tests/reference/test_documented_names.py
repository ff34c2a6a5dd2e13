"""Every documented name of what is built is there, with its parameters and their defaults."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent

BUILT = (
    "gkafka.broker.Broker",
    "gkafka.client.KafkaClient",
    "gkafka.cluster.Cluster",
    "gkafka.cluster.TopicDict",
    "gkafka.common",
    "gkafka.connection.SslConfig",
    "gkafka.exceptions",
    "gkafka.handlers.Handler",
    "gkafka.balancedconsumer",
    "gkafka.handlers.ThreadingHandler",
    "gkafka.partition.Partition",
    "gkafka.partitioners",
    "gkafka.producer.OwnedBroker",
    "gkafka.producer.Producer",
    "gkafka.simpleconsumer.SimpleConsumer",
    "gkafka.topic.Topic",
)
"""Modules and classes that are built: none of their rows may be missing."""
BUILT_AS_NEWER = (
    "gkafka.membershipprotocol",
    "gkafka.managedbalancedconsumer",
    "gkafka.partition",
    "gkafka.partitioners",
    "gkafka.producer",
    "gkafka.topic",
)
"""Modules that have the names of pykafka 2.8 as well, with its defaults."""
LATER: tuple[str, ...] = ()
"""Rows below them that come with a class that is not built yet."""
LEAST = 295
"""Rows of the pykafka family that were there when this was written: fewer is a loss."""


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


def is_built(row: str, built: tuple[str, ...] = BUILT) -> bool:
    def below(prefixes: tuple[str, ...]) -> bool:
        return any(re.match(rf"{re.escape(prefix)}(?![A-Za-z0-9_])", row) for prefix in prefixes)

    return below(built) and not below(LATER)


def test_no_documented_name_of_what_is_built_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    missing, present, rows = check()
    with capsys.disabled():
        print(f"\n{present} of {rows} documented names of pykafka's family are present")
    assert [row for row in missing if is_built(row)] == []
    assert len(missing) == rows - present
    assert present >= LEAST


def test_documented_defaults_are_ours() -> None:
    missing, _, _ = check("--defaults")
    # -2 is the value of the enum's member that stands as a default here.
    enums = [
        "gkafka.balancedconsumer.BalancedConsumer(auto_offset_reset) default   (reference -2, here <OffsetType.EARLIEST: -2>)",
        "gkafka.simpleconsumer.SimpleConsumer(auto_offset_reset) default   (reference -2, here <OffsetType.EARLIEST: -2>)",
    ]
    assert [row for row in missing if is_built(row)] == enums


def test_newer_names_of_pykafkas_producers_topics_and_partitions_are_there() -> None:
    missing, present, _ = check("--defaults", family="pykafka-2.8")
    enum = (
        "gkafka.managedbalancedconsumer.ManagedBalancedConsumer(auto_offset_reset) default   (reference -2, here <OffsetType.EARLIEST: -2>)"
    )
    assert [row for row in missing if is_built(row, BUILT_AS_NEWER)] == [enum]
    assert present > 100


def test_newer_names_of_pykafkas_balanced_consumer_are_there() -> None:
    """Not its defaults: where ZooKeeper is was given by zookeeper_connect in the older page, and by zookeeper_hosts later."""
    missing, _, _ = check(family="pykafka-2.8")
    assert [row for row in missing if is_built(row, ("gkafka.balancedconsumer",))] == []


def test_documented_private_names_of_producer_and_balanced_consumer_are_there() -> None:
    missing, _, _ = check("--private")
    assert [row for row in missing if is_built(row, ("gkafka.producer", "gkafka.balancedconsumer"))] == []


def test_what_is_built_is_documented_under_that_name() -> None:
    """A name that the reference does not have would excuse nothing and hide that a class is not looked at."""
    modules = json.loads((HERE / "api.json").read_text())["families"]["pykafka"]["modules"]
    known = {name.replace("pykafka", "gkafka") for name in modules}
    known |= {f"{name}.{cls}".replace("pykafka", "gkafka") for name, module in modules.items() for cls in module.get("classes", {})}
    assert [name for name in BUILT if name not in known] == []


def test_what_comes_later_is_not_there_yet() -> None:
    missing, _, _ = check()
    assert [row for row in LATER if not any(m.startswith(row) for m in missing)] == [], "built now: take it out of LATER"
