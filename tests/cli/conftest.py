"""kafka-tools in the test's own process, on brokers in it: what it prints, and its exit code."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from gkafka.cli.app import main
from gkafka.testing import MockCluster


class Told(NamedTuple):
    """What a command came to."""

    code: int
    out: str
    err: str


Tool = Callable[..., Told]


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The log's level is the command's to set; the environment says nothing of clusters."""
    for name in ("KAFKA_BOOTSTRAP_SERVERS", "KAFKA_SASL_PASSWORD", "KAFKA_SSL_PASSWORD", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    logs = [logging.getLogger(name) for name in ("gkafka", "kazoo")]
    before = [log.level for log in logs]
    yield
    for log, level in zip(logs, before, strict=True):
        log.setLevel(level)


@pytest.fixture
def tool(capsys: pytest.CaptureFixture[str]) -> Tool:
    """Runs a command line without its first word."""

    def run(*words: object) -> Told:
        capsys.readouterr()
        code = main([str(word) for word in words])
        return Told(code, *capsys.readouterr())

    return run


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    """Three brokers; "orders" has four partitions, "payments" one. What is configured is told by described() alone."""
    with MockCluster(3, {"orders": 4, "payments": 1}, limits={"DescribeConfigs": (0, 4)}) as cluster:
        yield cluster
        assert not cluster.errors, cluster.errors


@pytest.fixture
def ask(tool: Tool, cluster: MockCluster) -> Tool:
    """Runs a command on the cluster."""
    return lambda *words: tool("-b", cluster.bootstrap, "--timeout", 60, *words)
