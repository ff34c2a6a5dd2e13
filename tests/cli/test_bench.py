"""kafka-tools bench, on a broker in this process. What it measures is not judged here, only that it measures what it says."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.cli.bench import percentile
from gkafka.testing import Drop, Error, MockCluster
from tests.cli.running import failure, program, stop, tool


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    with MockCluster(topics={"t": 2}, auto_create=False) as made:
        yield made


def rows(*argv: str) -> list[dict[str, Any]]:
    outcome = tool("bench", *argv, "--json")
    assert outcome.code == 0, outcome
    found: list[dict[str, Any]] = outcome.document["rows"]
    for row in found:
        assert row["seconds"] > 0
        assert row["records_per_s"] > 0
    return found


def topics(cluster: MockCluster) -> set[str]:
    with KafkaClient(cluster.bootstrap) as client:
        return set(client.topics)


def test_produce_counts_what_was_acknowledged(cluster: MockCluster) -> None:
    (row,) = rows("produce", "-b", cluster.bootstrap, "--topic", "t", "--records", "1234", "--size", "50")
    stored = [r for p in range(2) for r in cluster.log("t", p)]
    assert len(stored) == row["records"] == 1234
    assert {len(r.value or b"") for r in stored} == {50}
    assert row["p50_ms"] <= row["p90_ms"] <= row["p99_ms"] <= row["p99.9_ms"] <= row["max_ms"]
    assert topics(cluster) == {"t"}


def test_consume_counts_what_is_there_and_stops_where_it_is_told(cluster: MockCluster) -> None:
    rows("produce", "-b", cluster.bootstrap, "--topic", "t", "--records", "500")
    assert rows("consume", "-b", cluster.bootstrap, "--topic", "t")[0]["records"] == 500
    assert rows("consume", "-b", cluster.bootstrap, "--topic", "t", "--records", "123")[0]["records"] == 123
    assert len([r for p in range(2) for r in cluster.log("t", p)]) == 500


def test_latency_is_of_single_records_there_and_back(cluster: MockCluster) -> None:
    acknowledged, round_trip = rows("latency", "-b", cluster.bootstrap, "--records", "20")
    assert (acknowledged["what"], round_trip["what"]) == ("acknowledged", "round trip")
    assert acknowledged["records"] == round_trip["records"] == 20
    assert acknowledged["max_ms"] <= round_trip["max_ms"]


@pytest.mark.parametrize("what", ["produce", "consume", "latency"])
def test_a_topic_that_was_made_is_removed(cluster: MockCluster, what: str) -> None:
    rows(what, "-b", cluster.bootstrap, "--records", "100", "--partitions", "3")
    assert cluster.count("CreateTopics") == cluster.count("DeleteTopics") == 1
    assert topics(cluster) == {"t"}


def test_time_ends_it_too(cluster: MockCluster) -> None:
    (row,) = rows("produce", "-b", cluster.bootstrap, "--seconds", "2", "--records", "1000000000")
    assert row["records"] < 1_000_000_000


def test_an_interrupt_removes_the_topic(cluster: MockCluster) -> None:
    with program("bench", "latency", "-b", cluster.bootstrap, "--seconds", "60", "--records", "1000000") as process:
        cluster.wait_for(lambda: cluster.count("Produce") > 5, 60)
        assert stop(process, signal.SIGINT) == 130
        assert process.stderr is not None
        assert process.stderr.read() == b"kafka-tools: interrupted; what was measured until then does not count\n"
    assert topics(cluster) == {"t"}


@pytest.mark.parametrize("what", ["produce", "consume", "latency"])
def test_ctrl_c_while_brokers_are_silent_ends_it_as_elsewhere(cluster: MockCluster, what: str) -> None:
    cluster.on("Produce", Drop(), times=None)
    with program("bench", what, "-b", cluster.bootstrap, "--seconds", "60", "--records", "1000000") as process:
        cluster.wait_for(lambda: cluster.count("Produce") > 0, 60)
        assert stop(process, signal.SIGINT) == 130
        assert process.stderr is not None
        assert process.stderr.read() == b"kafka-tools: interrupted; what was measured until then does not count\n"
    assert topics(cluster) == {"t"}


def test_for_people_it_is_a_table(cluster: MockCluster) -> None:
    outcome = tool("bench", "produce", "-b", cluster.bootstrap, "--records", "100")
    titles, values = outcome.out.decode().splitlines()
    assert titles.split("  ")[0] == "WHAT"
    assert values.split()[:2] == ["produce", "100"]


def test_options_reach_the_producer(cluster: MockCluster) -> None:
    rows("produce", "-b", cluster.bootstrap, "--topic", "t", "--records", "200", "--acks", "1", "-z", "gzip", "--linger-ms", "1")
    requests = cluster.requests("Produce")
    assert {r.message.acks for r in requests} == {1}
    assert {bytes(r.message.topic_data[0].partition_data[0].records)[22] & 7 for r in requests} == {1}


@pytest.mark.parametrize(
    ("options", "said", "code"),
    [
        (["consume", "--topic", "t"], "topic 't' is empty", 1),
        (["produce", "--topic", "nowhere"], "no topic 'nowhere' in this cluster", 1),
        (["produce", "--records", "0"], "0 is not in the range", 2),
        (["produce", "--seconds", "0"], "0.0 is not in the range", 2),
        (["swim"], "swim", 2),
    ],
)
def test_what_cannot_be_is_told_in_a_line(cluster: MockCluster, options: list[str], said: str, code: int) -> None:
    failure(tool("bench", *options, "-b", cluster.bootstrap), said, code=code)


def test_who_may_not_make_a_topic_is_told_so(cluster: MockCluster) -> None:
    cluster.on("CreateTopics", Error(29), times=None)
    failure(tool("bench", "produce", "-b", cluster.bootstrap), "ACL")


def test_who_may_not_write_is_told_so_and_the_topic_is_removed(cluster: MockCluster) -> None:
    cluster.on("Produce", Error(29), times=None)
    failure(tool("bench", "produce", "-b", cluster.bootstrap, "--records", "100"), "ACL")
    assert topics(cluster) == {"t"}


@pytest.mark.parametrize(("p", "value"), [(50, 5), (90, 9), (99, 10), (0.1, 1), (100, 10)])
def test_a_percentile_is_a_value_that_so_many_do_not_pass(p: float, value: float) -> None:
    assert percentile([3, 1, 2, 10, 9, 8, 7, 6, 5, 4], p) == value


def test_there_is_no_percentile_of_nothing() -> None:
    assert percentile([], 50) is None
