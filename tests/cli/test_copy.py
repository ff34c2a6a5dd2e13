"""kafka-tools copy, on brokers in this process."""

from __future__ import annotations

import itertools
import signal
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.testing import Close, Delay, Edit, Error, MockCluster, StoredRecord
from tests.cli.running import failure, program, stop, tool
from tests.kit.refusing import Refuse


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    with MockCluster(topics={"from": 3, "to": 3, "narrow": 2, "wide": 4}, auto_create=False) as made:
        yield made


@pytest.fixture
def other() -> Iterator[MockCluster]:
    """Another cluster: with an id of its own."""
    with MockCluster(topics={"from": 3, "to": 3}, auto_create=False) as made:
        rename(made)
        yield made


def rename(cluster: MockCluster) -> None:
    def named(_: Any, answer: Any) -> Any:
        answer.cluster_id = "another-cluster"
        return answer

    cluster.on("Metadata", Edit(named), times=None)


def write(cluster: MockCluster, count: int, topic: str = "from", first: int = 0) -> None:
    with KafkaClient(cluster.bootstrap) as client, client.get_producer() as producer:
        for i in range(first, first + count):
            headers: list[tuple[str, bytes | None]] = [("i", b"%d" % i), ("n", None)]
            value = None if i % 5 == 4 else b"value %d" % i
            producer.produce(topic, value, key=b"%d" % (i % 7), partition=i % 3, timestamp=1_700_000_000_000 + i, headers=headers)


def copied(cluster: MockCluster, topic: str = "to", partitions: int = 3) -> list[list[StoredRecord]]:
    """Without their offsets, which a transaction's marks move."""
    return [[r._replace(offset=0) for r in cluster.log(topic, p, committed=True)] for p in range(partitions)]


def values(cluster: MockCluster, topic: str, partitions: int = 3) -> list[bytes | None]:
    return [r.value for log in copied(cluster, topic, partitions) for r in log]


# -- what is copied --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("group", [[], ["-g", "g"]])
def test_a_copy_has_all_that_a_record_has_in_the_same_partitions(cluster: MockCluster, group: list[str]) -> None:
    write(cluster, 50)
    outcome = tool("copy", "from", "to", "-b", cluster.bootstrap, "--json", *group)
    assert outcome.code == 0, outcome
    assert copied(cluster) == copied(cluster, "from")
    told = outcome.document
    assert (told["copied"], told["unsure"], told["exactly_once"], told["partitions_kept"]) == (50, 0, bool(group), True)
    assert [(row["partition"], row["copied"], row["next_offset"]) for row in told["partitions"]] == [(0, 17, 17), (1, 17, 17), (2, 16, 16)]


def test_to_another_cluster(cluster: MockCluster, other: MockCluster) -> None:
    write(cluster, 50)
    outcome = tool("copy", "from", "from", "-b", cluster.bootstrap, "--to-bootstrap-server", other.bootstrap, "-g", "g", "--json")
    assert outcome.code == 0, outcome
    assert copied(other, "from") == copied(cluster, "from")
    assert outcome.document["exactly_once"] is False
    assert {tp: c.offset for tp, c in cluster.committed("g").items()} == {("from", 0): 17, ("from", 1): 17, ("from", 2): 16}
    assert other.committed("g") == {}


def test_where_the_numbers_of_partitions_differ_the_key_decides(cluster: MockCluster) -> None:
    write(cluster, 70)
    assert tool("copy", "from", "narrow", "-b", cluster.bootstrap).code == 0
    homes: dict[bytes | None, set[int]] = {}
    for p, log in enumerate(copied(cluster, "narrow", 2)):
        for record in log:
            homes.setdefault(record.key, set()).add(p)
    assert sum(map(len, copied(cluster, "narrow", 2))) == 70
    assert len(homes) == 7
    assert all(len(partitions) == 1 for partitions in homes.values())
    assert len({next(iter(partitions)) for partitions in homes.values()}) == 2


def test_partitions_are_kept_where_the_target_has_more_if_that_is_said(cluster: MockCluster) -> None:
    write(cluster, 12)
    assert tool("copy", "from", "wide", "-b", cluster.bootstrap, "--partition-by", "number").code == 0
    assert copied(cluster, "wide") == copied(cluster, "from")
    failure(tool("copy", "from", "narrow", "-b", cluster.bootstrap, "--partition-by", "number"), "has 2 partitions, and 'from' has 3")


def test_some_of_it(cluster: MockCluster) -> None:
    write(cluster, 30)
    assert tool("copy", "from", "to", "-b", cluster.bootstrap, "-p", "1", "--from", "4", "-n", "3").code == 0
    assert copied(cluster) == [[], copied(cluster, "from")[1][4:7], []]


def test_aborted_records_are_not_copied(cluster: MockCluster) -> None:
    with KafkaClient(cluster.bootstrap) as client, client.get_producer(transactional_id="x") as producer:
        producer.init_transactions()
        for value, end in ((b"gone", producer.abort_transaction), (b"kept", producer.commit_transaction)):
            producer.begin_transaction()
            producer.produce("from", value, partition=0)
            producer.flush()
            end()
    assert tool("copy", "from", "to", "-b", cluster.bootstrap).code == 0
    assert values(cluster, "to") == [b"kept"]


# -- going on --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("options", [[], ["--no-transactions"]])
def test_a_group_goes_on_where_it_stands(cluster: MockCluster, options: list[str]) -> None:
    write(cluster, 20)
    command = ("copy", "from", "to", "-b", cluster.bootstrap, "-g", "g", "--json", *options)
    assert tool(*command, "-n", "7").document["copied"] == 7
    assert tool(*command).document["copied"] == 13
    assert tool(*command).document["copied"] == 0
    write(cluster, 10, first=20)
    assert tool(*command).document["copied"] == 10
    assert copied(cluster) == copied(cluster, "from")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_copy_that_is_ended_by_anything_goes_on_without_loss_or_doubles(cluster: MockCluster, number: int) -> None:
    write(cluster, 3000)
    command = ("copy", "from", "to", "-b", cluster.bootstrap, "-g", "g")
    for _ in range(2):
        before = cluster.count("EndTxn")
        with program(*command, "--follow", "--json") as process:
            cluster.wait_for(lambda before=before: cluster.count("EndTxn") > before, 60)
            write(cluster, 900, first=3000)
            code = stop(process, number)
            assert code == (0 if number != signal.SIGKILL else -signal.SIGKILL)
            assert process.stderr is not None
            assert b"Traceback" not in process.stderr.read()
    assert tool(*command).code == 0
    assert copied(cluster) == copied(cluster, "from")


@pytest.mark.parametrize(("more", "code"), [(["--follow"], 0), ([], 130)], ids=["follow", "once"])
@pytest.mark.parametrize(("number", "which"), [(signal.SIGINT, "-b"), (signal.SIGTERM, "--to-bootstrap-server")])
def test_it_may_be_ended_while_no_broker_answers(cluster: MockCluster, number: int, which: str, more: list[str], code: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        hosts = {"-b": cluster.bootstrap, which: f"127.0.0.1:{silent.getsockname()[1]}"}
        with program("copy", "from", "to", *itertools.chain(*hosts.items()), *more) as process:
            silent.accept()[0].close()
            assert stop(process, number) == code
            assert process.stderr is not None
            assert code or process.stderr.read() == b""


def test_following_without_a_group_tells_what_was_under_way_when_it_ended(cluster: MockCluster) -> None:
    write(cluster, 30)
    cluster.on("Produce", Delay(3600), times=None)
    before = cluster.count("Produce")
    with program("copy", "from", "to", "-p", "0", "-b", cluster.bootstrap, "--follow") as process:  # of one partition they come at once
        cluster.wait_for(lambda: cluster.count("Produce") > before, 60)
        assert stop(process) == 0
        assert process.stderr is not None
        assert b"10 more were under way when it ended" in process.stderr.read()


def test_between_clusters_nothing_is_lost_by_a_kill(cluster: MockCluster, other: MockCluster) -> None:
    write(cluster, 3000)
    command = ("copy", "from", "to", "-b", cluster.bootstrap, "--to-bootstrap-server", other.bootstrap, "-g", "g")
    with program(*command, "--follow") as process:
        other.wait_for(lambda: other.count("Produce") > 0, 60)
        stop(process, signal.SIGKILL)
    assert tool(*command).code == 0
    assert set(values(other, "to")) == set(values(cluster, "from"))
    for theirs, ours in zip(copied(other), copied(cluster, "from"), strict=True):  # each in its place, some perhaps once more
        assert list(dict.fromkeys(r.headers[0] for r in theirs)) == [r.headers[0] for r in ours]


def test_nothing_is_committed_that_was_not_acknowledged(cluster: MockCluster, other: MockCluster) -> None:
    write(cluster, 30)
    other.on("Produce", Error(29), times=None)
    command = ("copy", "from", "to", "-b", cluster.bootstrap, "--to-bootstrap-server", other.bootstrap, "-g", "g")
    outcome = tool(*command, "--json")
    assert outcome.code == 1
    assert "ACL" in outcome.err
    assert (outcome.document["copied"], outcome.document["unsure"]) == (0, 30)
    assert cluster.committed("g") == {}
    other.clear_script()
    rename(other)
    assert tool(*command).code == 0
    assert copied(other) == copied(cluster, "from")


def test_a_second_copy_with_the_same_group_ends_the_first_and_nothing_is_there_twice(cluster: MockCluster) -> None:
    write(cluster, 300)
    command = ("copy", "from", "to", "-b", cluster.bootstrap, "-g", "g")
    with program(*command, "--follow") as first:
        cluster.wait_for(lambda: cluster.count("EndTxn") > 0, 60)
        before = cluster.count("InitProducerId")
        with program(*command, "--follow") as second:
            cluster.wait_for(lambda: cluster.count("InitProducerId") > before, 60)
            write(cluster, 300, first=300)
            assert first.wait(60) == 1
            assert first.stderr is not None
            assert "another producer has taken over" in first.stderr.read().decode()
            cluster.wait_for(lambda: sum(map(len, copied(cluster))) == 600, 60)
            assert stop(second) == 0
    assert copied(cluster) == copied(cluster, "from")


def test_the_group_is_asked_where_it_stands_when_nobody_else_can_move_it_any_more(cluster: MockCluster) -> None:
    write(cluster, 30)
    assert tool("copy", "from", "to", "-b", cluster.bootstrap, "-g", "g").code == 0
    order = [request.api for request in cluster.requests() if request.api in ("InitProducerId", "OffsetFetch")]
    assert order.index("InitProducerId") < order.index("OffsetFetch")


def test_progress_is_part_of_the_transactions_and_of_nothing_else(cluster: MockCluster) -> None:
    write(cluster, 30)
    assert tool("copy", "from", "to", "-b", cluster.bootstrap, "-g", "g").code == 0
    assert cluster.count("TxnOffsetCommit") > 0
    assert cluster.count("OffsetCommit") == 0


def test_connections_that_break_change_nothing(cluster: MockCluster) -> None:
    write(cluster, 200)
    cluster.on("Produce", Close(before=False), times=2)
    cluster.on("Fetch", Close(before=True), times=1)
    assert tool("copy", "from", "to", "-b", cluster.bootstrap, "-g", "g").code == 0
    assert copied(cluster) == copied(cluster, "from")


def test_records_that_are_gone_where_it_was_to_go_on_are_told_and_not_skipped(cluster: MockCluster) -> None:
    write(cluster, 30)
    assert tool("copy", "from", "to", "-b", cluster.bootstrap, "-g", "g", "-n", "3").code == 0
    cluster.on("Fetch", Error(1), times=None)
    outcome = tool("copy", "from", "to", "-b", cluster.bootstrap, "-g", "g")
    assert outcome.code == 1
    assert "error 1" in outcome.err or "out of range" in outcome.err


# -- what cannot be --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "said", "code"),
    [
        (["from", "nowhere"], "no topic 'nowhere' in this cluster", 1),
        (["nowhere", "to"], "no topic 'nowhere' in this cluster", 1),
        (["from", "from"], "both the topic that is read and the one that is written", 2),
        (["from", "to", "-p", "9"], "no partition 9", 1),
        (["from", "to", "--from", "latest"], "give --follow, too", 2),
        (["from", "to", "--transactions"], "--transactions needs --group", 2),
        (["from", "to", "--to-bootstrap-server", "a:b:c"], "a:b:c", 2),
        (["from"], "TARGET", 2),
    ],
)
def test_what_cannot_be_is_told_in_a_line(cluster: MockCluster, options: list[str], said: str, code: int) -> None:
    failure(tool("copy", "-b", cluster.bootstrap, *options), said, code=code)


def test_no_transaction_spans_two_clusters(cluster: MockCluster, other: MockCluster) -> None:
    command: list[Any] = [
        "copy",
        "from",
        "to",
        "-b",
        cluster.bootstrap,
        "--to-bootstrap-server",
        other.bootstrap,
        "-g",
        "g",
        "--transactions",
    ]
    failure(tool(*command), "no transaction spans two")


# -- a record that the target does not take ----------------------------------------------------------------------------------
@pytest.mark.parametrize("more", [["--no-group"], ["-g", "g"], ["-g", "g", "--no-transactions"]])
def test_a_record_that_the_target_refuses_is_named_by_its_offset_in_the_source(cluster: MockCluster, more: list[str]) -> None:
    """One without a key, and the target is compacted."""
    with KafkaClient(cluster.bootstrap, handler="threading") as client, client.get_producer() as producer:
        for number in range(5):
            producer.produce("from", b"%d" % number, None if number == 2 else b"k", partition=0)
    cluster.on("Produce", Refuse(), times=None)
    told = tool("copy", "from", "to", *more, "-b", cluster.bootstrap)
    assert told.code == 1
    assert "kafka-tools: offset 2 of from-0 cannot be written to to: Produce to-0: error 87: Compacted topic cannot accept" in told.err
    assert "next: to see it: kafka-tools consume from --partition 0 --from 2 -n 1 --json" in told.err
    assert cluster.committed("g") == {}


def test_a_record_that_is_too_large_for_the_target_is_named_so_too(cluster: MockCluster) -> None:
    with KafkaClient(cluster.bootstrap, handler="threading") as client, client.get_producer() as producer:
        for number in range(3):
            producer.produce("from", b"v" * (3000 if number == 1 else 10), partition=0)
    told = tool("copy", "from", "to", "--no-group", "--set", "max.request.size=2048", "-b", cluster.bootstrap)
    assert told.code == 1
    assert "offset 1 of from-0 cannot be written to to: " in told.err
