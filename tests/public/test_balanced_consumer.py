"""BalancedConsumer, step by step: what becomes of its partitions when a call to ZooKeeper fails half-way, and of its lease."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient

from gkafka import KafkaClient, balancedconsumer, zookeeper
from gkafka.balancedconsumer import BalancedConsumer
from gkafka.common import OffsetType, TopicPartition
from gkafka.core.standing import Reason
from gkafka.exceptions import ConfigurationError, NoPartitionsForConsumerException
from gkafka.membershipprotocol import GroupMembershipProtocol, decide_partitions_range
from gkafka.testing import Delay, Error, MockCluster
from tests.kit.clock import now, soon
from tests.public.aids import LIMIT_S, Runner, error_of, fill, read
from tests.public.zoo import Zoo, ZooClient, zoo_client

IDS, OWNERS = "/consumers/g/ids", "/consumers/g/owners/t"
COORDINATOR_NOT_AVAILABLE, LOADING = 15, 14
LAST = "zzz-after-all-others"
"""A member whose share is the last run of partitions."""
Join = Callable[..., BalancedConsumer]


@pytest.fixture
def cluster(make_cluster: Callable[..., MockCluster]) -> MockCluster:
    return make_cluster(1, {"t": 4})


@pytest.fixture
def zoo() -> Zoo:
    return Zoo()


@pytest.fixture
def keeper(zoo: Zoo, run: Runner) -> ZooClient:
    """The member's connection."""
    return zoo_client(run, zoo)


@pytest.fixture
def join(client: KafkaClient, keeper: ZooClient, monkeypatch: pytest.MonkeyPatch) -> Iterator[Join]:
    """Makes members that have no worker: the test says when they look at ZooKeeper, by `_beat()`."""
    made: list[BalancedConsumer] = []
    monkeypatch.setattr(BalancedConsumer, "_setup_checker_worker", lambda self: None)

    def make(**options: Any) -> BalancedConsumer:
        settings = {"zookeeper": keeper, "rebalance_backoff_ms": 0, "consumer_timeout_ms": 200, **options}
        made.append(client.topics["t"].get_balanced_consumer("g", **settings))
        return made[-1]

    yield make
    for member in made:
        member.stop()


def another(zoo: Zoo, name: str = LAST) -> int:
    """Another member comes; its session."""
    session = zoo.new_session()
    zoo.put(f"{IDS}/{name}", b"t", session)
    return session


def another_first(zoo: Zoo, keeper: ZooClient) -> int:
    keeper.ensure_path_async(IDS)
    return another(zoo)


def owners(zoo: Zoo, *, member: str | None = None) -> list[int]:
    """Whose owner stands there, or is this member."""
    names = zoo.children(OWNERS)
    return sorted(int(n.rpartition("-")[2]) for n in names if member is None or zoo.nodes[f"{OWNERS}/{n}"][0].decode() == member)


def beat(member: BalancedConsumer, times: int = 1) -> None:
    for _ in range(times):
        member._stale = True
        member._beat()


def test_b54_what_was_claimed_before_a_claim_failed_is_consumed(join: Join, zoo: Zoo, keeper: ZooClient) -> None:
    """pykafka#204: partitions owned by a member that does not consume them."""
    other = another_first(zoo, keeper)
    member = join()
    assert sorted(member.partitions) == [0, 1]
    zoo.end_session(other)
    keeper.fails("create", "-3", carried_out=False)
    beat(member)
    other = zoo.new_session()
    zoo.put(f"{OWNERS}/1-3", b"somebody", other)
    beat(member, 3)
    assert owners(zoo, member=member._consumer_id) == [0, 1, 2]
    assert sorted(member.partitions) == [0, 1, 2]
    zoo.end_session(other)
    beat(member)
    assert sorted(member.partitions) == [0, 1, 2, 3]


def test_b54_what_was_given_back_without_an_answer_is_not_consumed_beside_its_new_owner(join: Join, zoo: Zoo, keeper: ZooClient) -> None:
    member = join()
    assert sorted(member.partitions) == [0, 1, 2, 3]
    other = another(zoo)
    keeper.fails("delete", "-3", carried_out=True)
    beat(member)
    zoo.put(f"{OWNERS}/1-3", LAST.encode(), other)
    zoo.remove(f"{IDS}/{LAST}")  # it leaves, and has not given its partition back yet
    beat(member, 2)
    assert sorted(member.partitions) == [0, 1, 2]
    zoo.end_session(other)
    beat(member)
    assert sorted(member.partitions) == [0, 1, 2, 3]


def test_b54_what_was_claimed_without_an_answer_is_given_back(join: Join, zoo: Zoo, keeper: ZooClient) -> None:
    """Else nobody consumes it for as long as this member lives."""
    other = another_first(zoo, keeper)
    member = join()
    zoo.end_session(other)
    keeper.fails("create", "-3", carried_out=True)
    beat(member)
    another(zoo)
    beat(member, 2)
    assert owners(zoo) == sorted(member.partitions) == [0, 1]


def test_b54_what_another_has_taken_under_the_same_name_is_given_up_at_the_next_look(join: Join, zoo: Zoo) -> None:
    member = join()
    member._beat()
    zoo.remove(f"{OWNERS}/1-3")
    zoo.put(f"{OWNERS}/1-3", b"a thief", thief := zoo.new_session())
    member._beat()
    assert sorted(member.partitions) == [0, 1, 2]
    zoo.end_session(thief)
    member._beat()
    assert sorted(member.partitions) == [0, 1, 2, 3]


def test_b54_what_another_has_taken_is_not_given_back_in_its_place(join: Join, zoo: Zoo) -> None:
    """A member that has not noticed yet, and stops."""
    member = join()
    path = f"{OWNERS}/{next(name for name in zoo.children(OWNERS) if name.endswith('-3'))}"
    zoo.remove(path)
    zoo.put(path, b"the other", zoo.new_session())
    member.stop()
    assert {name: zoo.nodes[f"{OWNERS}/{name}"][0] for name in zoo.children(OWNERS)} == {path.rpartition("/")[2]: b"the other"}


def test_of_members_that_claim_at_once_under_different_leaders_the_first_one_owns(
    join: Join, zoo: Zoo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both had looked before, and had found nobody."""
    member = join()
    registry = member._registry
    assert registry is not None
    registry.release([3])
    zoo.put(f"{OWNERS}/77-3", b"the other", zoo.new_session())
    looks = [registry._claims, dict]
    monkeypatch.setattr(registry, "_claims", lambda: looks.pop()() if len(looks) > 1 else looks[0]())
    assert not registry.claim(5, 3)
    assert [name for name in zoo.children(OWNERS) if name.endswith("-3")] == ["77-3"]


def test_an_exchange_that_fails_half_way_forgets_no_position(client: KafkaClient, join: Join, zoo: Zoo, keeper: ZooClient) -> None:
    member = join()
    fill(client, [b"%d" % n for n in range(5)], partition=0)
    assert [m.offset for m in read(member, 5)] == list(range(5))
    another(zoo)
    keeper.fails("delete", "-3", carried_out=False)
    beat(member)
    assert member.partitions == {}
    fill(client, [b"more"], partition=0)
    beat(member, 2)
    assert sorted(member.partitions) == [0, 1]
    assert [m.offset for m in read(member, 1)] == [5], "nothing is committed, and nothing comes again"


def test_b27_a_partition_that_was_empty_at_the_start_skips_nothing_at_a_rebalance(client: KafkaClient, join: Join, zoo: Zoo) -> None:
    """It stands at 0, which is a position like any other; nothing is committed, and OffsetType.LATEST would begin behind the new messages."""
    member = join(auto_offset_reset=OffsetType.LATEST)
    fill(client, [b"%d" % n for n in range(5)], partition=0)
    another(zoo)
    beat(member)
    assert sorted(member.partitions) == [0, 1]
    assert [m.offset for m in read(member, 5)] == list(range(5))


def test_a_position_that_was_anothers_meanwhile_is_not_gone_back_to(client: KafkaClient, join: Join, zoo: Zoo, keeper: ZooClient) -> None:
    member = join(auto_commit_enable=True)
    fill(client, [b"%d" % n for n in range(5)], partition=3)
    read(member, 5)
    other = another(zoo)
    keeper.fails("delete", "-3", carried_out=True)
    beat(member)
    assert 3 not in owners(zoo)
    fill(client, [b"more"], partition=3)
    with client.topics["t"].get_simple_consumer("g", partitions=[3]) as elsewhere:
        read(elsewhere, 1)
        elsewhere.commit_offsets()
    zoo.end_session(other)
    beat(member, 2)
    assert sorted(member.partitions) == [0, 1, 2, 3]
    assert member.consume(block=False) is None
    assert member.held_offsets[3] == 5


def test_a_position_is_not_gone_back_to_either_by_who_had_nothing_meanwhile(
    client: KafkaClient, join: Join, zoo: Zoo, keeper: ZooClient
) -> None:
    member = join(auto_commit_enable=True)
    fill(client, [b"%d" % n for n in range(5)], partition=3)
    read(member, 5)
    others = [another(zoo, f"!{n}") for n in range(4)]
    beat(member)
    assert owners(zoo) == sorted(member.partitions) == []
    fill(client, [b"more"], partition=3)
    with client.topics["t"].get_simple_consumer("g", partitions=[3]) as elsewhere:
        read(elsewhere, 1)
        elsewhere.commit_offsets()
    for other in others:
        zoo.end_session(other)
    beat(member, 2)
    assert sorted(member.partitions) == [0, 1, 2, 3]
    assert member.consume(block=False) is None
    assert member.held_offsets[3] == 5


@pytest.mark.parametrize("how", ["the user's client", "ZooKeeper"])
def test_the_lease_is_no_longer_than_the_session_that_there_is(join: Join, keeper: ZooClient, client: KafkaClient, how: str) -> None:
    if how == "ZooKeeper":
        keeper._granted_s = 6.0  # maxSessionTimeout of the server
    else:
        keeper._session_timeout = 6000
    began = now()
    member = join(zookeeper_connection_timeout_ms=60_000)
    assert began <= member._lease_until - 4.0 <= now(), "two thirds of it"
    assert member._beat() <= 1.0


def test_the_lease_counts_from_the_question(join: Join, run: Runner, client: KafkaClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer may have waited in a server that stood still, and says how things were before that."""
    member = join()
    registry = member._registry
    assert registry is not None
    look, asked = registry.is_registered, []

    def slow() -> bool:
        asked.append(now())
        found = look()
        run.sleep(0.05)
        return found

    monkeypatch.setattr(registry, "is_registered", slow)
    began = now()
    member._beat()
    lease_s = registry.session_s * balancedconsumer.LEASE
    assert began <= member._lease_until - lease_s <= asked[0]


def test_after_its_connection_broke_a_member_waits_for_zookeepers_word(client: KafkaClient, join: Join, keeper: ZooClient) -> None:
    """The session may have ended before its time, and others be claiming the partitions; mostly it was the connection alone."""
    member = join(auto_commit_enable=True)
    fill(client, [b"0", b"1"], partition=0)
    read(member, 1)
    keeper._make_state_change("SUSPENDED")
    assert member.consume(block=False) is None
    assert isinstance(error_of(member.commit_offsets), NoPartitionsForConsumerException)
    assert "connection to ZooKeeper broke" in str(member.explain())
    keeper._make_state_change("CONNECTED")
    assert not member._may_deliver(), "the connection may be there without the session"
    member._beat()
    assert [m.value for m in read(member, 1)] == [b"1"]
    member.commit_offsets()


def test_a_zookeeper_that_is_away_is_not_waited_for(join: Join, keeper: ZooClient, run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody can ask it, nobody has been given the partitions either: they are the member's until the lease ends."""
    monkeypatch.setattr(balancedconsumer, "DOUBT_S", LIMIT_S)
    monkeypatch.setattr(balancedconsumer, "DOUBT", 1.0)
    member = join(zookeeper_connection_timeout_ms=30_000)
    keeper.is_silent = True
    keeper._make_state_change("SUSPENDED")
    member._beat()
    assert not member._may_deliver()
    member._doubt_until -= LIMIT_S
    assert member._may_deliver()


def test_a_member_that_has_nothing_yet_waits_for_a_slow_zookeeper_for_its_whole_session(join: Join, keeper: ZooClient) -> None:
    keeper.slow_s = 2.0
    member = join(zookeeper_connection_timeout_ms=4000)
    assert not member._may_deliver()
    keeper.slow_s = 0.5
    beat(member)
    assert member._may_deliver()
    assert len(member.held_offsets) == 4


def test_a_session_that_is_known_to_have_ended_is_over_at_once(
    join: Join, zoo: Zoo, keeper: ZooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = join()
    registry = member._registry
    assert registry is not None
    look = registry.is_registered

    def lost_meanwhile() -> bool:
        found = look()
        keeper._make_state_change("LOST")
        return found

    monkeypatch.setattr(registry, "is_registered", lost_meanwhile)
    keeper._make_state_change("CONNECTED")
    member._beat()
    assert not member._may_deliver(), "the answer was older than the news"
    assert member._wake.is_set()
    monkeypatch.undo()
    zoo.end_session(keeper.session)
    keeper.session = zoo.new_session()
    member._beat()
    assert sorted(member.partitions) == [0, 1, 2, 3]
    assert member._may_deliver()


def test_a_connection_of_the_users_is_listened_to_only_while_the_member_runs(join: Join, keeper: ZooClient) -> None:
    member = join()
    assert len(keeper.state_listeners) == 1
    member.stop()
    assert not keeper.state_listeners


def test_what_an_earlier_session_has_left_is_not_the_members(join: Join, zoo: Zoo, keeper: ZooClient) -> None:
    """It vanishes when that session is over, and others have the partitions then."""
    member = join()
    first, keeper.session = keeper.session, zoo.new_session()
    beat(member)
    assert (member.partitions, member._may_deliver()) == ({}, False)
    zoo.end_session(first)
    beat(member)
    assert sorted(member.partitions) == [0, 1, 2, 3]
    assert member._may_deliver()
    assert {stat.ephemeralOwner for path, (_, stat) in zoo.nodes.items() if path.startswith((f"{IDS}/", f"{OWNERS}/"))} == {keeper.session}


def test_what_zookeeper_grants_is_noted() -> None:
    kazoo = KazooClient(timeout=6.0)
    assert zookeeper._session_s(kazoo, 6.0) == 6.0
    kazoo._connection._connect = lambda *args: (800.0, 100.0)
    zookeeper._note_session(kazoo)
    assert kazoo._connection._connect("host", "127.0.0.1", 2181) == (800.0, 100.0)
    assert zookeeper._session_s(kazoo, 6.0) == pytest.approx(1.2)
    assert zookeeper._session_s(kazoo, 1.0) == 1.0


def test_a_rebalance_that_fails_does_not_end_the_lease(join: Join, zoo: Zoo, client: KafkaClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> Any:
        raise ConfigurationError("no idea")

    member = join(rebalance_backoff_ms=60_000, zookeeper_connection_timeout_ms=30_000)
    another(zoo)
    member._stale = True
    with monkeypatch.context() as patch:
        patch.setattr(member, "_decide_partitions", fail)
        assert member._beat() <= 5.0, "the lease is kept, while the rebalance is tried again later"
        assert "no idea" in str(error_of(member.consume))
        before = member._lease_until
        member._beat()
        assert member._lease_until > before
        assert sorted(member.partitions) == [0, 1, 2, 3]
    member._try_at = soon(0)
    member._beat()
    assert sorted(member.partitions) == [0, 1]


def no_share(participants: Any, partitions: Any, consumer_id: Any) -> Any:
    raise ValueError("no idea")


@pytest.mark.parametrize(
    ("decide", "said"),
    [
        (lambda *of: {p for p in decide_partitions_range(*of) if p.id != 2}, "gives partitions [2] to nobody"),
        (lambda *_: [], "gives partitions [0, 1, 2, 3] to nobody"),
        (lambda _, partitions, __: list(partitions.values()), "gives partitions [0, 1, 2, 3] to more than one member"),
        (lambda *_: [5, "x"], "chose 5, which is none of the partitions [0, 1, 2, 3]"),
        (no_share, "failed: ValueError: no idea"),
    ],
    ids=["one of nobody", "nothing", "everything", "nonsense", "raises"],
)
def test_a_protocol_that_leaves_partitions_to_nobody_is_told_and_range_divides(
    decide: Any, said: str, join: Join, zoo: Zoo, keeper: ZooClient, caplog: pytest.LogCaptureFixture
) -> None:
    session = another_first(zoo, keeper)
    member = join(membership_protocol=GroupMembershipProtocol(b"consumer", b"mine", None, decide))
    assert sorted(member.partitions) == [0, 1]
    error = error_of(member.consume)
    assert isinstance(error, ConfigurationError)
    assert str(error) == f"membership_protocol 'mine' {said}; range divides in its place"
    member._stale = True
    member._beat()
    assert caplog.text.count(f"'mine' {said}") == 1, "once"
    assert str(error) in member.explain().group
    assert member.consume(block=False) is None, "and goes on"
    zoo.end_session(session)
    member._beat()
    assert sorted(member.partitions) == [0, 1, 2, 3]


def test_a_callback_that_consumes_does_not_stand_still(join: Join, run: Runner) -> None:
    got: list[Any] = []

    def callback(consumer: BalancedConsumer, before: Any, after: Any) -> None:
        got.append(consumer.consume())

    joining = run.aside(lambda: join(consumer_timeout_ms=-1, post_rebalance_callback=callback, zookeeper_connection_timeout_ms=1500))
    member = joining.result(LIMIT_S)
    assert got == [None], "the lease ends while it waits, and only when it returns it can be kept"
    run.until(lambda: (member._beat(), member._may_deliver())[-1])


def test_what_arrives_when_the_lease_ended_while_the_caller_waited_is_not_handed_out(
    cluster: MockCluster, client: KafkaClient, join: Join, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F15: a process that stood still meanwhile finds messages in its buffers, and its partitions are others' by then."""
    monkeypatch.setattr("gkafka.balancing.SLICE_S", 1.0)
    member = join(consumer_timeout_ms=0)
    before = cluster.count("Fetch")
    waiting = run.aside(member.consume_batch, None, 1000)
    run.until(lambda: cluster.count("Fetch") > before)
    lease, member._lease_until = member._lease_until, 0.0
    fill(client, [b"a", b"b"])
    assert waiting.result() == []
    member._lease_until = lease + 60
    assert [message.value for message in read(member, 2)] == [b"a", b"b"], "nor is it lost"


def test_explain_tells_what_is_anothers_yet_what_is_lost_and_what_the_next_call_raises(join: Join, zoo: Zoo, keeper: ZooClient) -> None:
    other = another_first(zoo, keeper)
    zoo.nodes.update(dict.fromkeys(("/consumers/g/owners", OWNERS), (b"", zoo.nodes[IDS][1])))
    zoo.put(f"{OWNERS}/1-1", LAST.encode(), other)
    member = join(rebalance_max_retries=0, rebalance_backoff_ms=60_000)
    found = member.explain()
    assert found.group.startswith(
        f"group g: member {member._consumer_id} stands in ZooKeeper with 1 partitions; the next call raises PartitionOwnedError"
    )
    assert {tp.partition: report.reason for tp, report in found.partitions.items() if tp.partition != 0} == {1: Reason.NOT_OURS}
    assert "another member of group 'g' still owns it" in found.partitions[TopicPartition("t", 1)].text
    assert found.partitions[TopicPartition("t", 0)].reason is not Reason.NOT_OURS
    member._lease_until = 0.0
    found = member.explain()
    assert "ZooKeeper has not said in time" in found.partitions[TopicPartition("t", 0)].text
    assert found.partitions[TopicPartition("t", 0)].reason is Reason.NOT_OURS
    member.stop()
    assert str(member.explain()).startswith("group g: the consumer is not running: start() joins")
    assert not member.explain().partitions


@pytest.mark.parametrize("how", ["its session ended", "it gave a partition back"])
def test_a_commit_that_is_tried_again_ends_with_the_term_that_it_was_for(
    client: KafkaClient, cluster: MockCluster, join: Join, zoo: Zoo, keeper: ZooClient, run: Runner, how: str
) -> None:
    """F21: sent behind those of the next owner it would take the group back, and with ZooKeeper no broker knows better."""
    fill(client, [b"%d" % n for n in range(10)], partition=3)
    member = join(offsets_channel_backoff_ms=5, offsets_commit_max_retries=10_000)
    read(member, 5)
    cluster.on("OffsetCommit", Error(LOADING), times=None)
    waiting = run.aside(member.commit_offsets)
    run.until(lambda: cluster.count("OffsetCommit") > 1)
    if how == "its session ended":
        zoo.end_session(keeper.session)
        keeper.session = zoo.new_session()
    else:
        another(zoo)
    beat(member, 2)
    assert member.partitions
    cluster.clear_script()
    assert isinstance(error_of(waiting.result), NoPartitionsForConsumerException)
    assert cluster.committed("g") == {}


def test_whether_a_commit_is_still_the_members_is_asked_when_its_coordinator_is_reached(
    client: KafkaClient, cluster: MockCluster, join: Join, run: Runner
) -> None:
    fill(client, [b"%d" % n for n in range(10)], partition=3)
    member = join()
    read(member, 5)
    cluster.on("FindCoordinator", Error(COORDINATOR_NOT_AVAILABLE), times=None)
    client.cluster.forget_coordinator("g")
    before = cluster.count("FindCoordinator")
    waiting = run.aside(member.commit_offsets)
    run.until(lambda: cluster.count("FindCoordinator") > before)
    member._lease_until = 0.0
    cluster.clear_script()
    assert isinstance(error_of(waiting.result), NoPartitionsForConsumerException)
    assert cluster.count("OffsetCommit") == 0


def test_a_commit_that_is_under_way_is_waited_for_before_its_partition_is_given_back(
    client: KafkaClient, cluster: MockCluster, join: Join, zoo: Zoo, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(client, [b"%d" % n for n in range(10)], partition=3)
    member = join()
    read(member, 5)
    monkeypatch.setattr(member, "_set_watches", lambda: None)  # it asks brokers on the same connection, and would wait for the commit
    cluster.on("OffsetCommit", Delay(0.1))
    committing = run.aside(member.commit_offsets)
    run.until(lambda: cluster.count("OffsetCommit"))
    another(zoo)
    when_given_back: list[dict[tuple[str, int], int]] = []
    zoo.watch(OWNERS, lambda event: when_given_back.append({key: entry.offset for key, entry in cluster.committed("g").items()}))
    beat(member)
    assert when_given_back[0]["t", 3] == 5
    assert owners(zoo, member=member._consumer_id) == [0, 1]
    committing.result()


def test_what_is_no_owners_name_keeps_no_partition_unowned(
    join: Join, zoo: Zoo, keeper: ZooClient, caplog: pytest.LogCaptureFixture
) -> None:
    keeper.ensure_path_async(OWNERS)
    names = ["1--1", "x-1", "-1", "1-01", "1-+1", "1-1 ", "1-\u0661", "1", "1-99999999999"]
    for name in names:
        zoo.put(f"{OWNERS}/{name}", b"x")
    member = join()
    assert sorted(member.partitions) == [0, 1, 2, 3]
    beat(member)
    assert caplog.text.count("left alone") == 1
    member.stop()
    assert sorted(zoo.children(OWNERS)) == sorted(names), "they are left alone"


def test_an_owner_of_a_partition_without_a_leader_is_one(join: Join, zoo: Zoo, keeper: ZooClient) -> None:
    keeper.ensure_path_async(OWNERS)
    zoo.put(f"{OWNERS}/-1-2", b"somebody", zoo.new_session())
    assert sorted(join().partitions) == [0, 1, 3]


def test_who_starts_without_a_share_does_not_start_over_what_it_takes_over_later(
    join: Join, client: KafkaClient, cluster: MockCluster, zoo: Zoo, keeper: ZooClient
) -> None:
    fill(client, [b"%d" % n for n in range(5)])
    with client.topics["t"].get_simple_consumer("g", partitions=[0]) as before:
        before.commit_offsets([(0, 5)])
    keeper.ensure_path_async(IDS)
    sessions = [another(zoo, f"!{n}") for n in range(4)]
    member = join(reset_offset_on_start=True)
    assert member.partitions == {}
    for session in sessions:
        zoo.end_session(session)
    member._beat()
    assert sorted(member.partitions) == [0, 1, 2, 3]
    assert member.consume() is None, "it goes on where the group stands"
    assert cluster.committed("g")["t", 0].offset == 5
    member.stop()
    member.start()
    assert read(member, 1)[0].offset == 0, "and each start is one"
