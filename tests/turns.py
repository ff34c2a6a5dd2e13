"""In which order the tests on real Kafka run in several processes, and what stays in one process: what is long begins first, brokers start once.

pytest-xdist hands out a file at a time, those of many tests first; a file of four tests that take minutes would be the last one.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import pytest

__all__ = ["by_turn", "in_turn", "scheduler", "together"]

HANDLERS = ("threading", "gevent")

RELEASES, THREE_NODES = "releases", "three nodes"
TOGETHER = {
    "tests/live/test_roundtrip.py": RELEASES,
    "tests/live/test_kafka_tools_of_releases.py": RELEASES,
    "tests/live/test_administration_of_releases.py": RELEASES,
    "tests/live/test_kafka_admin_of_releases.py": RELEASES,
    "tests/live/test_kafka_consumer.py": RELEASES,
    "tests/live/test_offsets.py": RELEASES,
    "tests/live/test_zookeeper_hosts.py": RELEASES,
    "tests/live/test_failover.py": THREE_NODES,
    "tests/live/test_client.py": THREE_NODES,
    "tests/live/test_consumer_groups.py": THREE_NODES,
    "tests/live/test_fetching.py": THREE_NODES,
    "tests/live/test_group_members.py": THREE_NODES,
    "tests/live/test_kafka_three_nodes.py": THREE_NODES,
    "tests/live/test_transactions.py": THREE_NODES,
}
"""File -> which brokers it shares with others: all releases of Kafka, or a cluster of three nodes that leaves room for no other."""

LONGEST = (
    "tests/faults/live/test_faults.py",
    RELEASES,
    "tests/spark/live/test_stream.py",
    THREE_NODES,
    "tests/spark/live/test_sink.py",
    "tests/live/test_kafka_tools_data.py",
    "tests/spark/live/test_oracle.py",
    "tests/spark/live/test_kills.py",
    "tests/live/test_balanced_consumer.py",
    "tests/spark/live/test_stream_oracle.py",
    "tests/live/test_kafka_tools.py",
    "tests/live/test_sasl.py",
    "tests/spark/live/test_connect.py",
    "tests/spark/live/test_cluster.py",
    "tests/examples/live/test_flights_live.py",
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


def together(path: str) -> str:
    """What a file's tests share a process with: others of the same brokers, or only themselves."""
    return TOGETHER.get(path, path)


def by_turn(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The tests in the order in which they are handed out. Within a file, or what shares a process, they stay as they were."""
    turns = {name: at for at, name in enumerate(LONGEST)}
    return sorted(items, key=lambda item: turns.get(together(_file(item.nodeid)), len(turns)))


def scheduler(config: pytest.Config, log: Any) -> Any:
    """pytest-xdist's loadfile, with some files as one; None for any other --dist."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Together(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return together(_file(nodeid))

    return Together(config, log)


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def in_turn(items: Sequence[pytest.Item], turn: str | None) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Those to run and those to leave out. turn: None for all, "first" for one of the two handlers of each test, "second" for the other one.

    What is not there with both, as a test of one handler is not, has both turns.
    """
    if turn not in (None, "first", "second"):
        raise pytest.UsageError(f"GKAFKA_IN_TURN={turn!r}: must be first or second")
    tests = [_but_its_handler(item.nodeid, getattr(item, "callspec", None)) for item in items]
    having = set(tests)
    halves: tuple[list[pytest.Item], list[pytest.Item]] = [], []
    for item, test in zip(items, tests, strict=True):
        left_out = turn is not None and test is not None and having >= {(test[0], handler) for handler in HANDLERS} and _turn(*test) != turn
        halves[left_out].append(item)
    return halves


def _but_its_handler(name: str, call: Any) -> tuple[str, str] | None:
    """What a test has in common with that of the other handler, and its own handler; None if it has not one of both."""
    found = [value for value in call.params.values() if isinstance(value, str) and value in HANDLERS] if call is not None else []
    if len(found) != 1:
        return None
    function, _, parameters = name.partition("[")
    return f"{function}[{parameters.replace(found[0], '')}", found[0]


def _turn(test: str, handler: str) -> str:
    """When it is this handler's turn in this test."""
    return "first" if HANDLERS[zlib.crc32(test.encode()) & 1] == handler else "second"
