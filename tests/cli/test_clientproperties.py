"""A file of --config, as applications have it: what it says of records takes effect in produce, consume, copy and bench, or is refused by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.testing import MockCluster
from tests.cli.running import failure, tool

File = Callable[[str], str]


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    with MockCluster(topics={"t": 1, "to": 1}, auto_create=False) as made:
        yield made


@pytest.fixture
def file(tmp_path: Path) -> File:
    def write(text: str) -> str:
        (tmp_path / "app.properties").write_text(text)
        return str(tmp_path / "app.properties")

    return write


def write(cluster: MockCluster, count: int = 10) -> None:
    with KafkaClient(cluster.bootstrap) as client, client.get_producer() as producer:
        for number in range(count):
            producer.produce("t", b"%d" % number, partition=0)


def committed(cluster: MockCluster, group: str) -> int:
    with KafkaClient(cluster.bootstrap) as client:
        found = client.admin().list_group_offsets(group)
    return found["t", 0].offset if ("t", 0) in found else -1


def codec(cluster: MockCluster) -> int:
    """The codec of the batch that was written last."""
    return bytes(cluster.requests("Produce")[-1].message.topic_data[0].partition_data[0].records)[22] & 7


# -- writing -------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("words", "acks", "number"), [([], 1, 1), (["--acks", "all"], -1, 1), (["-z", "lz4"], 1, 3), (["-z", "none"], 1, 0)]
)
def test_the_file_says_how_to_write_and_the_command_line_counts_before_it(
    words: list[str], acks: int, number: int, cluster: MockCluster, file: File
) -> None:
    config = file("acks=1\ncompression.type=gzip\nenable.idempotence=false\n")
    assert tool("produce", "t", "-b", cluster.bootstrap, "-c", config, *words, stdin=b"a\n").code == 0
    assert {r.message.acks for r in cluster.requests("Produce")} == {acks}
    assert codec(cluster) == number


def test_set_counts_before_the_file(cluster: MockCluster, file: File) -> None:
    config = file("compression.type=gzip\n")
    assert tool("produce", "t", "-b", cluster.bootstrap, "-c", config, "--set", "compression.type=lz4", stdin=b"a\n").code == 0
    assert codec(cluster) == 3


def test_the_largest_record_is_the_files(cluster: MockCluster, file: File) -> None:
    config = file("max.request.size=1024\nbatch.size=512\nbuffer.memory=8192\n")
    outcome = tool("produce", "t", "-b", cluster.bootstrap, "-c", config, stdin=b"x" * 2000 + b"\nshort\n")
    assert outcome.code == 1
    assert "line 1: " in outcome.err
    assert "1 record delivered to t, 1 bad line" in outcome.err


def test_bench_writes_as_the_file_says(cluster: MockCluster, file: File) -> None:
    config = file("compression.type=gzip\nlinger.ms=1\nacks=1\ngroup.id=billing\n")
    assert tool("bench", "produce", "-b", cluster.bootstrap, "-c", config, "--topic", "t", "--records", "50").code == 0
    assert codec(cluster) == 1
    assert {r.message.acks for r in cluster.requests("Produce")} == {1}


def test_bench_reads_as_the_file_says(cluster: MockCluster, file: File) -> None:
    write(cluster)
    config = file("fetch.min.bytes=5\nfetch.max.wait.ms=77\nmax.poll.records=3\n")
    outcome = tool("bench", "consume", "-b", cluster.bootstrap, "-c", config, "--topic", "t", "--records", "4", "--json")
    assert outcome.document["rows"][0]["records"] == 4
    assert {(r.message.min_bytes, r.message.max_wait_ms) for r in cluster.requests("Fetch")} == {(5, 77)}


@pytest.mark.parametrize("command", [["produce", "t"], ["bench", "produce", "--topic", "t"], ["copy", "t", "to"]])
def test_a_name_of_transactions_is_refused_where_there_are_none(command: list[str], cluster: MockCluster, file: File) -> None:
    config = file("transactional.id=app-1\n")
    failure(
        tool(*command, "-b", cluster.bootstrap, "-c", config, stdin=b"a\n"),
        "app.properties: transactional.id='app-1'",
        "leave it out",
        code=2,
    )
    assert cluster.count("Produce") == 0


# -- reading -------------------------------------------------------------------------------------------------------------------
def test_consume_is_of_the_files_group_and_says_so(cluster: MockCluster, file: File) -> None:
    write(cluster)
    config = file("group.id=billing\nmax.poll.records=3\nsession.timeout.ms=12000\npartition.assignment.strategy=range\n")
    outcome = tool("consume", "t", "-b", cluster.bootstrap, "-c", config, "-n", "4")
    assert outcome.lines == [b"0", b"1", b"2", b"3"]
    assert "reads for group 'billing', and commits, as " in outcome.err
    assert "app.properties: group.id says; --no-group reads alone" in outcome.err
    assert committed(cluster, "billing") == 4
    (joined, *_) = cluster.requests("JoinGroup")
    assert (joined.message.session_timeout_ms, [p.name for p in joined.message.protocols]) == (12000, ["range"])


def test_a_group_of_the_command_line_counts_before_the_files(cluster: MockCluster, file: File) -> None:
    write(cluster)
    outcome = tool("consume", "t", "-b", cluster.bootstrap, "-c", file("group.id=billing\n"), "-g", "other", "-n", "4")
    assert (outcome.code, outcome.err) == (0, "")
    assert (committed(cluster, "billing"), committed(cluster, "other")) == (-1, 4)


def test_no_group_reads_alone(cluster: MockCluster, file: File) -> None:
    write(cluster)
    outcome = tool("consume", "t", "-b", cluster.bootstrap, "-c", file("group.id=billing\n"), "--no-group", "--last", "2")
    assert (outcome.code, outcome.lines, outcome.err) == (0, [b"8", b"9"], "")
    assert cluster.count("OffsetCommit") == 0
    failure(tool("consume", "t", "-b", cluster.bootstrap, "-g", "x", "--no-group"), "give one of them", code=2)


MEMBER = (
    "session.timeout.ms=12000\nmax.poll.interval.ms=60000\ngroup.instance.id=one\nenable.auto.commit=true\nauto.commit.interval.ms=50\n"
)


@pytest.mark.parametrize("words", [[], ["--no-group"], ["-g", "x", "-p", "0"]])
def test_what_a_file_says_of_members_is_left_where_there_are_none(words: list[str], cluster: MockCluster, file: File) -> None:
    write(cluster)
    outcome = tool("consume", "t", "-b", cluster.bootstrap, "-c", file(MEMBER), *words)
    assert (outcome.code, len(outcome.lines), outcome.err) == (0, 10, "")
    failure(
        tool("consume", "t", "-b", cluster.bootstrap, "--set", "session.timeout.ms=9000"),
        "session.timeout.ms=9000 has nothing to do",
        code=2,
    )


def test_nothing_is_committed_where_the_file_says_so(cluster: MockCluster, file: File) -> None:
    write(cluster)
    config = file("group.id=billing\nenable.auto.commit=false\n")
    assert tool("consume", "t", "-b", cluster.bootstrap, "-c", config, "-n", "4").lines == [b"0", b"1", b"2", b"3"]
    assert committed(cluster, "billing") == -1


@pytest.mark.parametrize(("words", "level"), [([], 0), (["--read-committed"], 1)])
def test_the_file_says_which_records_are_read(words: list[str], level: int, cluster: MockCluster, file: File) -> None:
    write(cluster)
    config = file("isolation.level=read_uncommitted\n")
    assert len(tool("consume", "t", "-b", cluster.bootstrap, "-c", config, *words).lines) == 10
    assert {r.message.isolation_level for r in cluster.requests("Fetch")} == {level}


def test_the_file_says_where_to_begin(cluster: MockCluster, file: File) -> None:
    write(cluster)
    latest, none = "auto.offset.reset=latest\n", "auto.offset.reset=none\n"
    failure(tool("consume", "t", "-b", cluster.bootstrap, "-c", file(latest)), "auto.offset.reset='latest'", "--from earliest", code=2)
    failure(tool("consume", "t", "-b", cluster.bootstrap, "-c", file(none)), "auto.offset.reset='none'", "--from earliest", code=2)
    assert len(tool("consume", "t", "-b", cluster.bootstrap, "-c", file(latest), "--from", "earliest").lines) == 10
    assert len(tool("consume", "t", "-b", cluster.bootstrap, "-c", file("auto.offset.reset=earliest\n")).lines) == 10
    grouped = tool("consume", "t", "-b", cluster.bootstrap, "-c", file(latest), "-g", "new")
    assert (grouped.code, grouped.lines) == (0, [])


# -- copying -------------------------------------------------------------------------------------------------------------------
def test_copy_reads_and_writes_as_the_file_says(cluster: MockCluster, file: File) -> None:
    write(cluster)
    config = file("compression.type=gzip\nfetch.max.wait.ms=77\nmax.poll.records=3\n")
    assert tool("copy", "t", "to", "-b", cluster.bootstrap, "-c", config).code == 0
    assert codec(cluster) == 1
    assert {r.message.max_wait_ms for r in cluster.requests("Fetch")} == {77}
    assert len(cluster.log("to", 0)) == 10


def test_a_copy_does_not_move_an_applications_group(cluster: MockCluster, file: File) -> None:
    write(cluster)
    config = file("group.id=billing\nauto.offset.reset=latest\n")
    failure(tool("copy", "t", "to", "-b", cluster.bootstrap, "-c", config), "group.id='billing'", "--group NAME", "--no-group", code=2)
    assert tool("copy", "t", "to", "-b", cluster.bootstrap, "-c", config, "--no-group", "--from", "earliest").code == 0
    assert committed(cluster, "billing") == -1
    assert tool("copy", "t", "to", "-b", cluster.bootstrap, "-c", config, "-g", "mine", "--from", "7").code == 0
    assert (committed(cluster, "billing"), committed(cluster, "mine")) == (-1, 10)
    assert len(cluster.log("to", 0, committed=True)) == 13


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("isolation.level=read_uncommitted", "committed records only"),
        ("enable.auto.commit=true", "commits what the target has"),
        ("auto.commit.interval.ms=5", "with each of its steps"),
        ("auto.offset.reset=none", "--from earliest"),
    ],
)
def test_what_a_copy_does_in_its_own_way_is_refused_by_name(line: str, why: str, cluster: MockCluster, file: File) -> None:
    failure(tool("copy", "t", "to", "-b", cluster.bootstrap, "-c", file(line)), f"app.properties: {line.partition('=')[0]}=", why, code=2)


def test_of_two_clusters_each_file_says_what_is_done_there(cluster: MockCluster, file: File, tmp_path: Path) -> None:
    write(cluster)
    (tmp_path / "to.properties").write_text(f"bootstrap.servers={cluster.bootstrap}\ncompression.type=gzip\n")
    config = file("compression.type=lz4\nfetch.max.wait.ms=77\n")
    assert tool("copy", "t", "to", "-b", cluster.bootstrap, "-c", config, "--to-config", str(tmp_path / "to.properties")).code == 0
    assert codec(cluster) == 1
    refused: Any = tool("copy", "t", "to", "-b", cluster.bootstrap, "--to-set", "fetch.max.wait.ms=7")
    failure(refused, "--to-set fetch.max.wait.ms: is an option of consume", code=2)


# -- the others ----------------------------------------------------------------------------------------------------------------
def test_doctor_looks_for_the_coordinator_of_the_files_group(cluster: MockCluster, file: File) -> None:
    config = file("group.id=billing\nlinger.ms=5\n")
    assert "group 'billing'" in tool("doctor", "-b", cluster.bootstrap, "-c", config).out.decode()
    assert "group 'other'" in tool("doctor", "-b", cluster.bootstrap, "-c", config, "--group", "other").out.decode()


def test_commands_without_records_leave_what_is_about_records(cluster: MockCluster, file: File) -> None:
    assert tool("topics", "-b", cluster.bootstrap, "-c", file("group.id=billing\nlinger.ms=5\nauto.offset.reset=latest\n")).code == 0
    failure(tool("topics", "-b", cluster.bootstrap, "-c", file("lingerms=5\n")), "app.properties: lingerms: unknown option", code=2)
