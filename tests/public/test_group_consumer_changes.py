"""client.get_consumer(topics, group): partitions that move while something else goes on, that come into being and vanish; explain()."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.common import TopicPartition
from gkafka.core.standing import Reason
from gkafka.exceptions import ConsumerStoppedException, KafkaException, KafkaTimeoutError, SerializationError, UnknownTopicOrPartition
from gkafka.groupoffsets import GroupOffsets
from gkafka.membership import Member
from gkafka.testing import Delay, Drop, Error, MockCluster
from tests.public.aids import Held, Runner, fill
from tests.public.groupaids import (
    FOUR,
    Join,
    cluster,
    commits,
    committed,
    errors_of,
    filled,
    goes_back,
    join,
    places,
    read_all,
    settle,
    share,
)

__all__ = ["cluster", "join"]

REBALANCING, UNSTABLE = 27, 88
Connect = Callable[..., KafkaClient]


# -- deserializers -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("mode", ["raise", "skip", "dlq"])
def test_a_deserializer_that_fails_while_the_partition_is_given_up_loses_nothing(
    cluster: MockCluster, connect: Connect, join: Join, run: Runner, mode: str
) -> None:
    client = connect(cluster)
    fill(client, [b"1", b"2", b"bad", b"4"], partition=0)
    entered, gate = threading.Event(), threading.Event()

    def read(value: bytes) -> int:
        if value == b"bad":
            entered.set()
            run.until(gate.is_set)
        return int(value)

    buried: list[int] = []
    options: dict[str, Any] = {"on_deserialize_error": mode} if mode != "raise" else {}
    if mode == "dlq":
        options["dead_letter"] = lambda message, error: buried.append(message.offset)
    first = join(assignors=["range"], value_deserializer=read, **options)
    got: list[int] = []

    def work() -> None:
        while not entered.is_set() or len(got) < 2:
            got.extend(message.value for message in first.consume_batch(timeout_ms=100))

    working = run.aside(work)
    run.until(entered.is_set)
    cluster.rebalance("g")
    run.until(lambda: first.assignment() == set())
    gate.set()
    working.result()
    assert got[:2] == [1, 2]
    if mode == "raise":
        assert got == [1, 2]
        assert isinstance(errors_of(first, run)[0], SerializationError)
        assert committed(cluster).get(0, 0) == 2
    else:
        rest = got[2:]
        run.until(lambda: rest.extend(m.value for m in first.consume_batch(timeout_ms=10)) or committed(cluster).get(0) == 4)
        assert rest == [4]
        assert buried == ([2] if mode == "dlq" else [])
    assert goes_back(cluster) == []


def test_a_seek_back_in_a_partition_that_is_given_up_is_where_it_is_committed(
    cluster: MockCluster, connect: Connect, join: Join, run: Runner
) -> None:
    """To try again what was not finished: the next owner does."""
    filled(connect, cluster, 10, [0])
    member = join(assignors=["range"], auto_commit_interval_ms=60_000)
    read_all(member, 10)
    fill(connect(cluster), [b"x"] * 5, partition=0)
    run.until(lambda: member.stats()["buffered"] == 5)
    assert len(member.consume_batch(5, 60_000)) == 5
    cluster.rebalance("g")
    run.until(lambda: member.assignment() == set())
    assert member.position(FOUR[0]) == 15
    member.seek(FOUR[0], 12)
    member.pause(FOUR[:1])
    member.resume(FOUR[:1])
    assert read_all(member, 3) == [(0, 12), (0, 13), (0, 14)]
    assert commits(cluster)[0][0] == 12


# -- what comes into being -----------------------------------------------------------------------------------------------------
def test_partitions_that_are_added_are_divided_by_one_rebalance_that_the_leader_asks_for(
    cluster: MockCluster, connect: Connect, join: Join, run: Runner
) -> None:
    fresh = {"metadata_max_age_ms": 100}
    members = [join(of=fresh) for _ in range(3)]
    settle(run, lambda: sorted(map(len, share(*members))) == [1, 1, 2], *members)
    before, asked = cluster.group("g").generation, cluster.count("JoinGroup")  # type: ignore[union-attr]
    cluster.add_partitions("t", 6)
    settle(run, lambda: sorted(map(len, share(*members))) == [2, 2, 2], *members)
    run.sleep(1.5)
    settle(run, lambda: True, *members)
    after = cluster.group("g")
    assert after is not None
    assert after.generation <= before + 2, "one, and another if what moves is to be given up first"
    assert cluster.count("JoinGroup") - asked <= 6


def test_a_topic_that_comes_back_with_other_partitions_is_shared_whole(
    cluster: MockCluster, connect: Connect, join: Join, run: Runner
) -> None:
    member = join(of={"metadata_max_age_ms": 100, "auto_create_topics": False})
    settle(run, lambda: len(member.assignment()) == 4, member)
    cluster.delete_topic("t")

    def gone() -> bool:
        with contextlib.suppress(KafkaException):
            member.consume_batch(timeout_ms=10)
        return member._cluster.metadata.topic("t") is None

    run.until(gone)
    run.sleep(1.2)
    cluster.create_topic("t", 6)

    def back() -> bool:
        with contextlib.suppress(KafkaException):
            member.consume_batch(timeout_ms=10)
        return len(member.assignment()) == 6

    run.until(back)


def test_a_topic_that_comes_back_is_shared_whole_also_where_the_leader_does_not_notice(
    cluster: MockCluster, connect: Connect, join: Join, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader of another client does not know that the topic was another one when it divided it."""
    monkeypatch.setattr("gkafka.core.division.LEADER_S", 1000.0)
    monkeypatch.setattr("gkafka.membership.Member.is_outdated", False)
    cluster.create_topic("u", 1)
    fresh = {"metadata_max_age_ms": 100, "auto_create_topics": False}
    leader = join("u", of=fresh)
    settle(run, lambda: len(leader.assignment()) == 1, leader)
    other = join("t", of=fresh)
    settle(run, lambda: len(other.assignment()) == 4, leader, other)
    assert leader._share._member.is_leader  # type: ignore[union-attr]

    def quiet(wanted: Callable[[], Any]) -> Callable[[], Any]:
        def asked() -> Any:
            for member in (leader, other):
                with contextlib.suppress(KafkaException):
                    member.consume_batch(timeout_ms=10)
            return wanted()

        return asked

    cluster.delete_topic("t")
    run.until(quiet(lambda: other._cluster.metadata.topic("t") is None))
    run.sleep(1.2)
    cluster.create_topic("t", 6)
    # Whoever leads divides what it knows: the group goes on when that is the new topic.
    run.until(quiet(lambda: (info := leader._cluster.metadata.topic("t")) is not None and len(info.partitions) == 6))
    monkeypatch.setattr("gkafka.core.division.LEADER_S", 0.0)
    run.until(quiet(lambda: len(other.assignment()) == 6))


def test_a_pattern_shares_topics_that_come_and_go(cluster: MockCluster, connect: Connect, join: Join, run: Runner) -> None:
    cluster.create_topic("log-a", 2)
    members = [join(re.compile("log-.*"), of={"metadata_max_age_ms": 100, "auto_create_topics": False}) for _ in range(2)]

    def quiet(wanted: Callable[[], Any]) -> Callable[[], Any]:
        def asked() -> Any:
            for member in members:
                with contextlib.suppress(KafkaException):
                    member.consume_batch(timeout_ms=10)
            return wanted()

        return asked

    run.until(quiet(lambda: sum(map(len, share(*members))) == 2))
    cluster.create_topic("log-b", 2)
    run.until(quiet(lambda: sum(map(len, share(*members))) == 4))
    cluster.delete_topic("log-a")
    run.until(quiet(lambda: {tp.topic for m in members for tp in m.assignment()} == {"log-b"}))
    run.until(quiet(lambda: sum(map(len, share(*members))) == 2))


def test_a_leader_that_does_not_read_a_topic_still_shares_its_new_partitions(
    cluster: MockCluster, connect: Connect, join: Join, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gkafka.core.division.LEADER_S", 0.5)
    cluster.create_topic("u", 1)
    fresh = {"metadata_max_age_ms": 100}
    leader = join("t", of=fresh)
    settle(run, lambda: len(leader.assignment()) == 4, leader)
    other = join("u", of=fresh)
    settle(run, lambda: len(other.assignment()) == 1 and len(leader.assignment()) == 4, leader, other)
    assert leader._share._member.is_leader  # type: ignore[union-attr]
    cluster.add_partitions("u", 3)
    settle(run, lambda: len(other.assignment()) == 3, leader, other)


def test_several_workers_consume_from_one_member_each_record_once(cluster: MockCluster, connect: Connect, join: Join, run: Runner) -> None:
    filled(connect, cluster, 200)
    member = join(auto_commit_interval_ms=10)
    got: list[tuple[int, int]] = []

    def work() -> None:
        while len(got) < 800:
            got.extend(places(member.consume_batch(7, 20)))

    workers = [run.aside(work) for _ in range(4)]
    for _ in range(3):
        run.sleep(0.05)
        with contextlib.suppress(Exception):
            cluster.rebalance("g")
    for worker in workers:
        worker.result()
    assert sorted(got) == [(p, o) for p in range(4) for o in range(200)]
    assert goes_back(cluster) == []


# -- explain -------------------------------------------------------------------------------------------------------------------
def test_explain_and_stats_say_where_a_member_stands(
    cluster: MockCluster, connect: Connect, join: Join, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gkafka.sharing.PLACE_S", 0.2)
    filled(connect, cluster)
    cluster.on("OffsetFetch", Error(UNSTABLE), times=None)
    member = join(
        of={"offsets_channel_socket_timeout_ms": 1000}, assignors=["range"], session_timeout_ms=2000, auto_commit_interval_ms=60_000
    )

    def report() -> Any:
        return member.explain().partitions[FOUR[0]]

    settle(run, lambda: member.assignment() and "88" in report().text, member)
    assert report().reason is Reason.NO_START
    assert isinstance(report().error, KafkaTimeoutError)
    cluster.clear_script()
    assert len(read_all(member, 40)) == 40
    stats = member.stats()["group"]
    assert stats == {"state": "stable", "generation": 1, "rebalances": 1, "losses": 0, "restarts": 0}
    assert "in the group, generation 1" in str(member.explain())
    fill(connect(cluster), [b"x"], partition=0)
    assert member.consume(60_000) is not None
    cluster.rebalance("g")
    run.until(lambda: member.assignment() == set())
    assert (report().reason, report().position) == (Reason.LEAVING, 11)
    assert "being given up at offset 11" in report().text
    assert "about to join" in str(member.explain())
    generation = stats["generation"]
    settle(run, lambda: member.stats()["group"]["generation"] > generation and len(member.assignment()) == 4, member)
    entered, gate = threading.Event(), threading.Event()
    monkeypatch.setattr(type(member._share), "_lost", lambda self, partitions: (entered.set(), run.until(gate.is_set)))
    for api in ("Heartbeat", "FindCoordinator", "JoinGroup"):
        cluster.on(api, Drop(before=True), times=None)
    run.until(entered.is_set)
    assert report().reason is Reason.NOT_OURS
    assert "nothing is handed out while others may have the partition" in report().text
    assert member.stats()["group"]["losses"] == 1
    monkeypatch.undo()
    gate.set()


# -- commits that wait for a rebalance -------------------------------------------------------------------------------------------
def test_a_commit_that_waited_for_a_rebalance_is_no_failure_for_partitions_of_which_all_was_committed_before(
    cluster: MockCluster, connect: Connect, join: Join, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited = Member.wait_for

    def wait_and_be_late(member: Member, *given: Any) -> Any:
        found = waited(member, *given)
        run.sleep(0.3)  # the partitions are given back meanwhile
        return found

    filled(connect, cluster, 5)
    one = join(auto_commit=False)
    read_all(one, 20)
    one.commit()
    fill(connect(cluster), [b"more"], partition=0)
    read_all(one, 1)
    run.sleep(0.15)
    one.consume_batch(timeout_ms=10)  # that is finished, too
    two = join(auto_commit=False)
    joins = cluster.count("SyncGroup")
    cluster.on("SyncGroup", Delay(0.5), times=2)
    two.consume_batch(timeout_ms=10)
    run.until(lambda: cluster.count("SyncGroup") > joins)
    monkeypatch.setattr(Member, "wait_for", wait_and_be_late)
    one.commit(timeout=60)
    assert committed(cluster) == {0: 6, 1: 5, 2: 5, 3: 5}


# -- topics that are deleted ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("made_again", [False, True])
def test_a_deleted_topic_holds_up_no_commit_of_another_and_its_offsets_are_not_those_of_one_of_its_name(
    make_cluster: Callable[..., MockCluster], connect: Connect, made_again: bool
) -> None:
    cluster = make_cluster(1, {"t": 1, "u": 1})
    filled(connect, cluster, 5, [0])
    filled(connect, cluster, 5, [0], topic="u")
    client = connect(cluster, auto_create_topics=False)
    with client.get_consumer(["t", "u"], "g", auto_commit=False) as member:
        read_all(member, 10)
        cluster.delete_topic("t")
        if made_again:
            cluster.create_topic("t", 1)
        told = ""
        try:
            member.commit(timeout=60)
        except UnknownTopicOrPartition as exc:
            told = str(exc)
        if told:
            assert "t-0: offset 5 is not committed: its topic was deleted" in told
        else:  # the fetcher has found the new one first, and perhaps already where it begins there
            assert made_again
            assert member.position(FOUR[0]) != 5
        assert committed(cluster) in ([{}, {0: 0}] if made_again and not told else [{}])
        assert committed(cluster, "u") == {0: 5}


def test_while_the_start_of_a_topic_that_was_made_again_is_looked_up_nothing_is_committed_for_it(
    make_cluster: Callable[..., MockCluster], connect: Connect, run: Runner
) -> None:
    cluster = make_cluster(1, {"t": 1})
    filled(connect, cluster, 5, [0])
    client = connect(cluster, auto_create_topics=False)
    with client.get_consumer("t", "g", auto_commit=False) as member:
        read_all(member, 5)
        asked = cluster.count("ListOffsets")
        cluster.on("ListOffsets", held := Held())
        cluster.delete_topic("t")
        cluster.create_topic("t", 1)
        settle(run, lambda: cluster.count("ListOffsets") > asked, member)
        member.commit(timeout=60)
        assert (committed(cluster), member.position(FOUR[0])) == ({}, -1)
        held.released = True
        filled(connect, cluster, 2, [0])
        assert read_all(member, 2) == [(0, 0), (0, 1)]
        member.commit(timeout=60)
        assert committed(cluster) == {0: 2}


def test_to_a_broker_that_cannot_tell_topics_of_one_name_apart_nothing_of_an_old_one_is_committed(
    make_cluster: Callable[..., MockCluster], connect: Connect, run: Runner
) -> None:
    cluster = make_cluster(1, {"t": 1, "u": 1}, limits={"OffsetCommit": (0, 9)})
    client = connect(cluster)
    ids = {TopicPartition(name, 0): client.cluster.wait_for_topic(name).topic_id for name in ("t", "u")}
    cluster.delete_topic("t")
    cluster.create_topic("t", 1)
    client.update_cluster()
    with pytest.raises(UnknownTopicOrPartition, match="t-0: offset 5 is not committed: its topic was deleted"):
        GroupOffsets(client.cluster, "g").commit(dict.fromkeys(ids, 5), topic_ids=ids, timeout_s=60)
    assert (committed(cluster), committed(cluster, "u")) == ({}, {0: 5})


def test_what_is_finished_of_a_deleted_topic_is_nobodys_error(
    make_cluster: Callable[..., MockCluster], connect: Connect, run: Runner
) -> None:
    cluster = make_cluster(1, {"t": 1, "u": 1})
    filled(connect, cluster, 5, [0])
    filled(connect, cluster, 5, [0], topic="u")
    client = connect(cluster, auto_create_topics=False)
    with client.get_consumer(["t", "u"], "g", auto_commit_interval_ms=100) as member:
        run.until(lambda: member.assignment())
        cluster.on("OffsetCommit", Drop(), times=None)
        read_all(member, 10)
        cluster.delete_topic("t")
        cluster.clear_script()
        settle(run, lambda: committed(cluster, "u") == {0: 5}, member)
        fill(client, [b"more"], topic="u")
        settle(run, lambda: committed(cluster, "u") == {0: 6}, member)  # and no call has raised what came of the commit before


@pytest.mark.parametrize("how", ["stop", "commit"])
def test_what_a_deserializer_is_at_work_on_is_not_committed(
    cluster: MockCluster, connect: Connect, join: Join, run: Runner, how: str
) -> None:
    """Nobody was given it, and it may fail."""
    filled(connect, cluster)
    entered, gate = threading.Event(), threading.Event()

    def read(value: bytes) -> bytes:
        entered.set()
        run.until(gate.is_set)
        raise ValueError(value)

    member = join(assignors=["range"], value_deserializer=read, auto_commit_interval_ms=50)

    def consume() -> None:
        with contextlib.suppress(SerializationError, ConsumerStoppedException):
            while not entered.is_set():
                member.consume_batch(20, 100)

    worker = run.aside(consume)
    run.until(entered.is_set)
    member.stop() if how == "stop" else member.commit()
    assert all(offset == 0 for commit in commits(cluster) for offset in commit.values())
    gate.set()
    worker.result()


def test_a_consumer_that_was_stopped_commits_no_more(cluster: MockCluster, connect: Connect) -> None:
    """What others have committed since would be taken back."""
    filled(connect, cluster)
    client = connect(cluster)
    first = client.get_consumer(group="g", auto_commit=False)
    first.assign([FOUR[0]])
    assert first.consume_batch(5, 60_000)
    first.stop()
    with client.get_consumer(group="g", auto_commit=False) as second:
        second.assign([FOUR[0]])
        second.commit({FOUR[0]: 9})
    with pytest.raises(ConsumerStoppedException, match=r"commit\(\) before stop\(\)"):
        first.commit()
    assert committed(cluster)[0] == 9
