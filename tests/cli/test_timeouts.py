"""--timeout of commands that change something, or read and write records: their calls share it, up to the first record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click
import pytest

from gkafka.cli.connection import acting, connect, connection_options, in_time, lift
from gkafka.testing import MockCluster
from tests.cli.running import failure, tool

TIMEOUT_S = 5.0


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    """Each partition has one replica."""
    with MockCluster(3, {"t": 3, "u": 3}, replication_factor=1, auto_create=False) as cluster:
        yield cluster


def seen_in(block: Any, cluster: MockCluster) -> dict[str, Any]:
    """What block(ctx) comes to, in a command that was given --timeout."""
    found: dict[str, Any] = {}

    @click.command
    @connection_options
    @click.pass_context
    def command(ctx: click.Context) -> None:
        found.update(block(ctx))

    command.main(["-b", cluster.bootstrap, "--timeout", str(TIMEOUT_S)], standalone_mode=False)
    return found


def test_what_a_command_asks_before_it_acts_shares_its_time(cluster: MockCluster) -> None:
    def block(ctx: click.Context) -> dict[str, Any]:
        with acting(ctx) as client:
            first = client.cluster.timeout_s()
            client.admin().list_topics()
            return {"first": first, "second": client.cluster.timeout_s()}

    found = seen_in(block, cluster)
    assert found["second"] < found["first"] <= TIMEOUT_S


def test_records_take_as_long_as_they_take(cluster: MockCluster) -> None:
    def block(ctx: click.Context) -> dict[str, Any]:
        with connect(ctx) as client, in_time(client):
            lift(client)
            client.partitions("t")
            return {"left": client.cluster.timeout_s()}

    assert seen_in(block, cluster) == {"left": TIMEOUT_S}


def test_a_host_that_says_nothing_costs_half_of_the_time(cluster: MockCluster) -> None:
    def block(ctx: click.Context) -> dict[str, Any]:
        with acting(ctx) as client:
            return {"ms": client.cluster.config.connect_timeout_ms}

    assert seen_in(block, cluster) == {"ms": TIMEOUT_S * 1000 / 2}


# -- a partition without a leader --------------------------------------------------------------------------------------------------
@pytest.fixture
def outage(cluster: MockCluster) -> MockCluster:
    told = tool("produce", "t", "-p", "0", "-b", cluster.bootstrap, stdin=b"a\nb\n")
    assert told.code == 0, told
    cluster.stop_broker(cluster.leader("t", 1))
    return cluster


def test_consume_prints_the_other_partitions_and_names_this_one(outage: MockCluster) -> None:
    for words in ((), ("--last", "5"), ("--from", "1h")):
        told = tool("consume", "t", *words, "-b", outage.bootstrap, "--timeout", "60")
        assert (told.code, told.lines) == (3, [b"a", b"b"]), told
        assert "t-1 has no leader at the moment" in told.err
    told = tool("consume", "t", "-p", "1", "-b", outage.bootstrap, "--timeout", "60")
    failure(told, "t-1 has no leader at the moment", "kafka-tools topics describe --problems")


def test_consume_goes_on_behind_one_that_comes_back(outage: MockCluster) -> None:
    told = tool("consume", "t", "--follow", "-n", "2", "-b", outage.bootstrap, "--timeout", "60")
    assert (told.code, told.lines) == (0, [b"a", b"b"])


@pytest.mark.parametrize("words", [("copy", "t", "u"), ("copy", "u", "t"), ("bench", "consume", "--topic", "t")])
def test_what_would_wait_for_it_says_so(words: tuple[str, ...], outage: MockCluster) -> None:
    failure(tool(*words, "-b", outage.bootstrap, "--timeout", "60"), " has no leader at the moment")
