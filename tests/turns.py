"""Which tests are there with both handlers; in which order those on real Kafka run in several processes, and what stays in one process.

What is long begins first, brokers start once: pytest-xdist hands out a file at a time, those of many tests first; a file of four tests that take minutes
would be the last one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest

__all__ = ["ALSO_WITH_GREENLETS", "NEWEST", "OLD_RELEASES", "by_turn", "scheduler", "together", "told_apart"]

HANDLERS = ("threading", "gevent")
ALSO_WITH_GREENLETS = "also_with_greenlets"

OLD_RELEASES = ("2.8.2", "0.8.2.2", "0.9.0.1", "0.10.2.2", "0.11.0.3", "1.1.1", "3.9.1")
"""Of Kafka: all that the tests start but the newest one. Whatever tests have one of them as their parameter share a process, which starts it once."""
NEWEST = "4.2.0"
RELEASE = re.compile(rf"(?<=[\[-])({'|'.join(map(re.escape, OLD_RELEASES))})(?=[\]-])")
THREE_NODES, SASL, GUARDED, SPARK = "three nodes", "sasl", "guarded", "spark"
TOGETHER = {
    "tests/gevent/live/test_29_kazoo.py": "2.8.2",
    "tests/live/test_failover.py": THREE_NODES,
    "tests/live/test_client.py": THREE_NODES,
    "tests/live/test_consumer_groups.py": THREE_NODES,
    "tests/live/test_fetching.py": THREE_NODES,
    "tests/live/test_group_members.py": THREE_NODES,
    "tests/live/test_kafka_three_nodes.py": THREE_NODES,
    "tests/live/test_transactions.py": THREE_NODES,
    "tests/live/test_administration_of_releases.py": THREE_NODES,
    "tests/live/test_offsets.py": THREE_NODES,
    "tests/spark/live/test_cluster.py": THREE_NODES,
    "tests/live/test_sasl.py": SASL,
    "tests/live/test_kafka_tools_sasl.py": SASL,
    "tests/live/test_kafka_tools_doctor.py": SASL,
    "tests/live/test_administration.py": GUARDED,
    "tests/live/test_kafka_admin.py": GUARDED,
    "tests/live/test_kafka_tools_acls.py": GUARDED,
    "tests/spark/live/test_another_session.py": SPARK,
    "tests/spark/live/test_documents.py": SPARK,
    "tests/spark/live/test_kills.py": SPARK,
    "tests/spark/live/test_oracle.py": SPARK,
    "tests/spark/live/test_secure.py": SPARK,
    "tests/spark/live/test_sink.py": SPARK,
    "tests/spark/live/test_sink_exactly_once.py": SPARK,
    "tests/spark/live/test_stream.py": SPARK,
    "tests/spark/live/test_stream_oracle.py": SPARK,
    "tests/spark/live/test_versions.py": SPARK,
}
"""File -> which brokers it shares with others: those of a release, a cluster of three nodes that leaves room for no other, or one that asks who its
clients are; or which Spark."""

LONGEST = (
    SPARK,
    "tests/faults/live/test_faults.py",
    THREE_NODES,
    *OLD_RELEASES,
    "tests/live/test_kafka_tools_data.py",
    "tests/live/test_kafka_tools.py",
    SASL,
    "tests/spark/live/test_connect.py",
    "tests/examples/live/test_flights_live.py",
    GUARDED,
    "tests/live/test_managed_consumer.py",
    "tests/examples/live/test_demo_live.py",
    "tests/gevent/live/test_30_soak.py",
    "tests/gevent/live/test_25_signals.py",
    "tests/gevent/live/test_16_gunicorn.py",
    "tests/gevent/live/test_32_interpreters.py",
    "tests/gevent/live/test_33_spark.py",
    "tests/gevent/live/test_26_exit.py",
    "tests/gevent/live/test_23_brokers_return.py",
    "tests/live/test_kafka_differential.py",
)
"""What is handed out first, the longest ones in front. The others follow as they are found."""


def together(nodeid: str) -> str:
    """What a test shares a process with: others of the same brokers, or only those of its file."""
    file, _, test = nodeid.partition("::")
    if file.startswith("tests/live/") and (found := RELEASE.search(test)):
        return found[0]
    return TOGETHER.get(file, file)


def by_turn(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The tests in the order in which they are handed out. Within a file, or what shares a process, they stay as they were."""
    turns = {name: at for at, name in enumerate(LONGEST)}
    return sorted(items, key=lambda item: turns.get(together(item.nodeid), len(turns)))


def scheduler(config: pytest.Config, log: Any) -> Any:
    """pytest-xdist's loadfile, with some files as one; None for any other --dist."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Together(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return together(nodeid)

    return Together(config, log)


def told_apart(items: Sequence[pytest.Item]) -> None:
    """Mark each test with threads that is there with greenlets, too.

    Of these the Python twin plays those with greenlets: it differs in how records are read and written, not in how anybody waits.
    """
    tests = {item.nodeid: _but_its_handler(item.nodeid, getattr(item, "callspec", None)) for item in items}
    having = set(tests.values())
    for item in items:
        test = tests[item.nodeid]
        if test is not None and test[1] == "threading" and (test[0], "gevent") in having:
            item.add_marker(ALSO_WITH_GREENLETS)


def _but_its_handler(name: str, call: Any) -> tuple[str, str] | None:
    """What a test has in common with that of the other handler, and its own handler; None if it has not one of both."""
    found = [value for value in call.params.values() if isinstance(value, str) and value in HANDLERS] if call is not None else []
    if len(found) != 1:
        return None
    function, _, parameters = name.partition("[")
    return f"{function}[{parameters.replace(found[0], '')}", found[0]
