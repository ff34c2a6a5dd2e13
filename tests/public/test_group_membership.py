"""A member of a group at work, against a coordinator that the test scripts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest

from gkafka import KafkaClient, ManagedBalancedConsumer
from gkafka.brokererrors import GroupAuthorizationFailed
from gkafka.cluster import Cluster
from gkafka.common import TopicPartition
from gkafka.core.group import Group
from gkafka.exceptions import ConsumerStoppedException, KafkaTimeoutError, ProtocolError
from gkafka.simpleconsumer import SimpleConsumer
from gkafka.testing import Delay, MockCluster, Reply
from gkafka.wire.consumerprotocol import MemberPartitions, read_assignment
from gkafka.wire.groups import (
    HeartbeatResponse,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupResponse,
    SyncGroupResponse,
)
from tests.core.grouprig import assignment, metadata
from tests.public.aids import LIMIT_S, Clock, Runner, error_of, fill, read
from tests.public.zoo import zoo_client

GROUPS = {"JoinGroup": (0, 9), "SyncGroup": (0, 5), "Heartbeat": (0, 4), "LeaveGroup": (0, 5)}
NOT_AVAILABLE, REBALANCING, NOT_ALLOWED = 15, 27, 30


@pytest.fixture
def cluster(make_cluster: Callable[..., MockCluster]) -> MockCluster:
    return make_cluster(1, {"t": 2}, limits=GROUPS, auto_create=False)


def keep_group(
    cluster: MockCluster,
    *others: tuple[str, bytes],
    joining: int = 0,
    generations: Sequence[int] = (),
    leader: str = "a",
    given: bytes | None = None,
) -> list[int]:
    """A coordinator by whose word the member leads the group; others: (id, metadata) of members that are there, too. joining: what a JoinGroup is
    refused with. generations: of the first answers, 1 after them. given: what another leader gives it.

    Returns the error codes that the next heartbeats are to be answered with.
    """
    codes: list[int] = []
    numbers = list(generations)

    def join(request: Any) -> JoinGroupResponse:
        mine = request.message.protocols[0].metadata
        members = [JoinGroupResponseMember(member_id=name, metadata=data) for name, data in (("a", mine), *others)]
        if joining:
            return JoinGroupResponse(error_code=joining, protocol_name="", leader="", member_id="")
        return JoinGroupResponse(
            generation_id=numbers.pop(0) if numbers else 1,
            protocol_type="consumer",
            protocol_name="range",
            leader=leader,
            member_id="a",
            members=members if leader == "a" else [],
        )

    def sync(request: Any) -> SyncGroupResponse:
        mine = next((a.assignment for a in request.message.assignments if a.member_id == "a"), given or assignment(0, 1))
        return SyncGroupResponse(protocol_type="consumer", protocol_name="range", assignment=bytes(mine))

    cluster.on("JoinGroup", Reply(join), times=None)
    cluster.on("SyncGroup", Reply(sync), times=None)
    cluster.on("Heartbeat", Reply(lambda request: HeartbeatResponse(error_code=codes.pop(0) if codes else 0)), times=None)
    cluster.on("LeaveGroup", Reply(lambda request: LeaveGroupResponse()), times=None)
    return codes


def join(client: KafkaClient, **options: Any) -> ManagedBalancedConsumer:
    settings = {"heartbeat_interval_ms": 50, "rebalance_backoff_ms": 200, "consumer_timeout_ms": 200, **options}
    member = client.topics["t"].get_balanced_consumer("g", managed=True, **settings)
    assert isinstance(member, ManagedBalancedConsumer)
    return member


def test_a_topic_that_is_not_there_is_looked_up_once_for_a_generation(
    client: KafkaClient, cluster: MockCluster, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look takes seconds, heartbeats go on beside it, and what is told of partitions stands behind it."""
    looks: list[str] = []
    wait = Cluster.wait_for_topic

    def noted(self: Cluster, name: str, *args: Any, **options: Any) -> Any:
        looks.append(name)
        return wait(self, name, *args, **options)

    keep_group(cluster, ("b", metadata("nowhere", "t")), ("c", metadata("anywhere")))
    topic = client.topics["t"]
    assert topic.partitions
    monkeypatch.setattr(Cluster, "wait_for_topic", noted)
    member = join(client)
    run.until(lambda: sorted(member.partitions) == [0])
    assert cluster.count("Heartbeat") > 2
    assert [name for name in looks if name != "t"] == ["anywhere", "nowhere"], "and behind what is known"
    assert looks[0] == "t"
    member.stop()


def test_a_topic_that_is_still_not_there_holds_up_no_later_generation(
    client: KafkaClient, cluster: MockCluster, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member of another client asks for one that is not made yet, or was deleted: at each rebalance the whole group stood still for seconds."""
    codes = keep_group(cluster, ("b", metadata("nowhere", "t")), generations=[1, 2])
    member = join(client)
    run.until(lambda: sorted(member.partitions) == [0])
    for patience in ("gkafka.cluster.UNKNOWN_TOPIC_PATIENCE_S", "gkafka.grouptopics.TOPICS_S"):
        monkeypatch.setattr(patience, 10 * LIMIT_S)
    codes.append(REBALANCING)
    run.until(lambda: cluster.count("SyncGroup") == 2)
    member.stop()


def test_a_leader_notices_that_a_topic_has_grown_which_only_others_read(
    connect: Callable[..., KafkaClient], cluster: MockCluster, run: Runner
) -> None:
    """Members of other clients leave that to the leader: the new partitions were nobody's until there was another rebalance."""
    cluster.create_topic("others", 1)
    keep_group(cluster, ("b", metadata("others")), generations=[1, 2, 3])
    client = connect(cluster, metadata_max_age_ms=100)
    with client.get_consumer("t", "g", assignors=["range"], heartbeat_interval_ms=50) as member:
        run.until(lambda: (member.consume(10), len(member.assignment()) == 2)[-1])
        cluster.add_partitions("others", 3)
        run.until(lambda: (member.consume(10), cluster.count("SyncGroup") == 2)[-1])
        made = {each.member_id: each.assignment for each in cluster.requests("SyncGroup")[-1].message.assignments}
        assert read_assignment(made["b"], "b").assigned_partitions == [MemberPartitions(topic="others", partitions=[0, 1, 2])]
        run.until(lambda: (member.consume(10), len(member.assignment()) == 2)[-1])
        run.sleep(1.5)  # it looks once a second
        assert cluster.count("JoinGroup") == 2


def test_who_does_not_lead_asks_for_another_rebalance_too_if_the_leader_does_not(
    connect: Callable[..., KafkaClient], cluster: MockCluster, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader may be another client's member, that does not read the topic."""
    monkeypatch.setattr("gkafka.core.division.LEADER_S", 0.2)
    keep_group(cluster, generations=[1, 2, 3], leader="b")
    client = connect(cluster, metadata_max_age_ms=100)
    with client.get_consumer("t", "g", assignors=["range"], heartbeat_interval_ms=50) as member:
        run.until(lambda: (member.consume(10), len(member.assignment()) == 2)[-1])
        cluster.add_partitions("t", 3)
        run.until(lambda: (member.consume(10), cluster.count("SyncGroup") >= 2)[-1])


def test_partitions_that_the_leader_knew_first_are_begun_when_the_member_knows_them(
    client: KafkaClient, cluster: MockCluster, run: Runner
) -> None:
    """A member that was given nothing else fetches nothing, so that nobody asks for metadata."""
    given = assignment(2)
    cluster.on(
        "SyncGroup", Reply(lambda request: SyncGroupResponse(protocol_type="consumer", protocol_name="range", assignment=given)), times=None
    )
    keep_group(cluster)
    assert len(client.topics["t"].partitions) == 2
    cluster.add_partitions("t", 3)
    member = join(client, consumer_timeout_ms=50)
    run.until(lambda: (member.consume(), sorted(member.partitions) == [2])[-1])
    member.stop()


def test_a_membership_that_cannot_be_is_told_at_each_call(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    codes = keep_group(cluster)
    member = join(client)
    fill(client, [b"x"])
    read(member, 1)
    codes.append(NOT_ALLOWED)
    for _ in range(2):
        assert isinstance(until_error(member), GroupAuthorizationFailed)
    run.until(lambda: member.partitions == {})
    member.stop()


def test_what_is_lost_for_good_while_a_callback_runs_is_told_when_that_returns(
    client: KafkaClient, cluster: MockCluster, run: Runner
) -> None:
    """Nothing was told any more: the application went on as if it had the partitions."""
    codes = keep_group(cluster)
    told: list[str] = []

    def assigned(consumer: Any, partitions: Any) -> None:
        codes.append(NOT_ALLOWED)
        run.until(lambda: "no member any more" in str(consumer.explain().group))
        told.append("assigned")

    member = client.get_consumer(
        "t",
        "g",
        assignors=["range"],
        heartbeat_interval_ms=50,
        on_assigned=assigned,
        on_lost=lambda consumer, partitions: told.append("lost"),
    )
    assert isinstance(until_error(member), GroupAuthorizationFailed)
    run.until(lambda: told == ["assigned", "lost"])
    member.stop()


def until_error(member: Any) -> Any:
    for _ in range(int(LIMIT_S / 0.2)):
        try:
            member.consume()
        except Exception as error:
            return error
    raise AssertionError("no error came")


def test_a_worker_that_dies_is_told(client: KafkaClient, cluster: MockCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody sends heartbeats then, and the partitions are others' when the session is over."""
    keep_group(cluster)
    member = join(client)
    poll = Group.poll

    def broken(self: Group, now: float) -> Any:
        monkeypatch.setattr(Group, "poll", poll)
        raise ArithmeticError("a bug")

    monkeypatch.setattr(Group, "poll", broken)
    assert isinstance(until_error(member), ArithmeticError)
    member.stop()


def test_what_is_revoked_is_committed_before_anybody_else_can_have_it(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    member = join(client, auto_commit_enable=True)
    fill(client, [b"%d" % n for n in range(5)], partition=0)
    read(member, 5)
    assert cluster.committed("g") == {}
    cluster.rebalance("g")
    run.until(lambda: cluster.count("JoinGroup") > 2)
    assert cluster.committed("g")["t", 0].offset == 5
    member.stop()


@pytest.mark.parametrize(("then", "goes_on_at"), [(8, 5), (9, 7)])
def test_where_it_stood_counts_only_if_no_generation_was_without_it(
    client: KafkaClient, cluster: MockCluster, run: Runner, then: int, goes_on_at: int
) -> None:
    """Else another member may have gone on from there, and committed."""
    codes = keep_group(cluster, generations=[7, then])
    fill(client, [b"%d" % n for n in range(10)])
    member = join(client)
    run.until(lambda: sorted(member.partitions) == [0, 1])
    read(member, 5)
    with client.topics["t"].get_simple_consumer("g", partitions=[0], auto_start=False) as other:
        other.start()
        other.commit_offsets([(0, 7)])
    codes.append(REBALANCING)
    run.until(lambda: member._generation == then and sorted(member.partitions) == [0, 1])
    assert read(member, 1)[0].offset == goes_on_at
    member.stop()


def test_heartbeats_do_not_pause_for_as_long_as_joins_may(client: KafkaClient, cluster: MockCluster) -> None:
    keep_group(cluster)
    member = join(client, rebalance_backoff_ms=60_000)
    assert member._member is not None
    group = member._member._group
    assert max(group.requests._flying._backoff.pause_s(n, Random(n)) for n in range(1, 30)) * 5 < group.options.session_timeout_s
    member.stop()


def test_a_callback_that_consumes_sees_the_end_of_its_assignment(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    got: list[Any] = []

    def callback(consumer: ManagedBalancedConsumer, before: Any, after: Any) -> None:
        if not got:
            got.append("waits")
            got.append(consumer.consume())

    codes = keep_group(cluster)
    joining = run.aside(lambda: join(client, consumer_timeout_ms=-1, post_rebalance_callback=callback))
    run.until(lambda: got == ["waits"])
    codes.append(REBALANCING)
    member = None
    try:
        run.until(lambda: len(got) == 2)
        assert got == ["waits", None]
        member = joining.result()
        run.until(lambda: sorted(member.partitions) == [0, 1])
    finally:
        if member is not None:
            member.stop()


def test_what_cannot_join_says_so(client: KafkaClient, cluster: MockCluster) -> None:
    keep_group(cluster, joining=NOT_AVAILABLE)
    member = join(client, rebalance_max_retries=1)
    assert isinstance(error_of(lambda: [member.consume() for _ in range(20)]), KafkaTimeoutError)
    member.stop()


def test_a_member_that_others_keep_waiting_has_not_failed(client: KafkaClient, cluster: MockCluster) -> None:
    fill(client, [b"0", b"1"])
    cluster.on("JoinGroup", Delay(3), times=1)
    member = join(client, rebalance_max_retries=0)
    assert [message.value for message in read(member, 2)] == [b"0", b"1"]
    member.stop()


def test_how_long_a_member_is_without_partitions_counts_from_when_they_were_taken(
    client: KafkaClient, cluster: MockCluster, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counted from when the member had joined, until what it had consumed was committed: a for loop ended by an error half a second after a rebalance
    had begun."""
    codes = keep_group(cluster)
    member = join(client, rebalance_max_retries=0)
    run.until(lambda: sorted(member.partitions) == [0, 1])
    member._waiting_since = float("-inf")  # it has been there for long
    stop, reached, go_on = SimpleConsumer._stop, [], client.handler.Event()

    def stop_slowly(*given: Any, **named: Any) -> Any:
        reached.append(None)
        go_on.wait(LIMIT_S)
        return stop(*given, **named)

    monkeypatch.setattr(SimpleConsumer, "_stop", stop_slowly)
    codes.append(REBALANCING)
    try:
        run.until(lambda: reached)
        member._look_at = 0.0
        assert member.consume(block=False) is None
    finally:
        go_on.set()
    member.stop()


@pytest.mark.parametrize("way", ["coordinator", "zookeeper"])
@pytest.mark.parametrize("does", ["raises", "stops", "commits", "returns nonsense"])
def test_a_callback_may_do_what_it_likes(client: KafkaClient, cluster: MockCluster, run: Runner, way: str, does: str) -> None:
    """No call of it hangs, what it raises is told, and the partitions are consumed or given back."""
    fill(client, [b"%d" % n for n in range(5)])

    def callback(consumer: Any, before: Any, after: Any) -> Any:
        if does == "raises":
            raise ValueError("the user's own")
        if does == "stops":
            consumer.stop()
        if does == "commits":
            consumer.commit_offsets([(0, 3)])
        return 5 if does == "returns nonsense" else None

    options: dict[str, Any] = {"consumer_timeout_ms": 200, "post_rebalance_callback": callback, "rebalance_backoff_ms": 200}
    if way == "coordinator":
        options |= {"managed": True, "heartbeat_interval_ms": 50}
    else:
        options |= {"zookeeper": zoo_client(run)}
    with Clock() as clock:
        member = client.topics["t"].get_balanced_consumer("g", **options)
        if does == "stops":
            run.until(lambda: member.closed)
            assert isinstance(error_of(member.consume), ConsumerStoppedException)
            run.until(lambda: member.partitions == {})
        else:
            run.until(lambda: sorted(member.partitions) == [0, 1])
    assert clock.seconds < 30
    if does in ("raises", "returns nonsense"):
        assert isinstance(until_error(member), ValueError), "a ConfigurationError is one, too"
    if does == "commits":
        run.until(lambda: cluster.committed("g"))
        assert cluster.committed("g")["t", 0].offset == 3
    if does != "stops":
        assert [m.offset for m in read(member, 5)] == list(range(5))
    with Clock() as clock:
        member.stop()
    assert clock.seconds < 30
    run.until(lambda: way == "zookeeper" or cluster.group("g").members == {})  # from inside it takes effect when the callback returns


def test_metadata_of_another_member_that_are_garbage_leave_no_partition_alone(
    client: KafkaClient, cluster: MockCluster, run: Runner
) -> None:
    keep_group(cluster, ("b", b"\xff"), ("c", b""), ("d", b"\x00\x00\x7f\xff\xff\xff"))
    member = join(client)
    run.until(lambda: sorted(member.partitions) == [0, 1])
    assert isinstance(until_error(member), ProtocolError)
    fill(client, [b"x"])
    assert [m.value for m in read(member, 1)] == [b"x"]
    member.stop()


def test_the_callback_of_a_rebalance_is_told_what_was_held_before(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    told: list[tuple[dict[int, int], dict[int, int]]] = []
    member = join(client, post_rebalance_callback=lambda consumer, before, after: told.append((before, after)))
    for partition in (0, 1):
        fill(client, [b"x"] * 3, partition=partition)
    read(member, 6)
    held = member.held_offsets
    assert held == {0: 2, 1: 2}
    cluster.rebalance("g")
    run.until(lambda: len(told) == 2)
    assert told == [({}, {0: -2, 1: -2}), (held, held)]
    member.stop()
    member.start()
    run.until(lambda: len(told) == 3)
    assert told[2][0] == {}, "it begins anew"
    member.stop()


def test_a_start_over_is_for_what_the_start_leads_to_and_for_each_start(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    fill(client, [b"%d" % n for n in range(5)])
    member = join(client, reset_offset_on_start=True)
    read(member, 5)
    member.commit_offsets()
    before = member._generation
    cluster.rebalance("g")
    run.until(lambda: member._generation > before and member.partitions)
    assert member.consume() is None, "a rebalance is no start"
    member.stop()
    member.start()
    assert read(member, 1)[0].offset == 0
    member.stop()


def test_who_starts_idle_does_not_start_over_what_it_takes_over_later(
    connect: Callable[..., KafkaClient], make_cluster: Callable[..., MockCluster], run: Runner
) -> None:
    cluster = make_cluster(1, {"one": 1})
    clients = [connect(cluster), connect(cluster)]
    fill(clients[0], [b"%d" % n for n in range(5)], topic="one")
    options: dict[str, Any] = {"managed": True, "consumer_timeout_ms": 200, "rebalance_backoff_ms": 200, "heartbeat_interval_ms": 50}
    first: Any = clients[0].topics["one"].get_balanced_consumer("g", **options)
    read(first, 5)
    first.commit_offsets()
    second: Any = clients[1].topics["one"].get_balanced_consumer("g", reset_offset_on_start=True, auto_start=False, **options)
    starting = run.aside(second.start)
    run.until(lambda: not starting.running and len(cluster.group("g").members) == 2)
    run.until(lambda: list(first.partitions) == [0])
    assert list(second.partitions) == []
    first.stop()
    run.until(lambda: list(second.partitions) == [0])
    assert second.consume() is None, "it goes on where the group stands"
    assert cluster.committed("g")["one", 0].offset == 5
    second.stop()


def test_a_member_that_its_callback_starts_anew_does_not_wait_for_itself(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    took: list[float] = []

    def callback(consumer: Any, before: Any, after: Any) -> None:
        if not took:
            consumer.stop()
            with Clock() as clock:
                consumer.start()
            took.append(clock.seconds)

    fill(client, [b"x"])
    member = join(client, post_rebalance_callback=callback, rebalance_backoff_ms=2000, auto_start=False)
    run.aside(member.start)
    run.until(lambda: took)
    assert took[0] < 30
    assert read(member, 1)[0].value == b"x"
    member.stop()


def test_who_was_started_anew_by_its_callback_leaves_twice(connect: Callable[..., KafkaClient], cluster: MockCluster, run: Runner) -> None:
    """The client closes while the callback still runs: neither member may be left behind."""
    client, began = connect(cluster), []

    def callback(consumer: Any, before: Any, after: Any) -> None:
        if not began:
            consumer.stop()
            consumer.start()
            began.append(consumer)
            run.sleep(0.3)

    member = join(client, post_rebalance_callback=callback, auto_start=False)
    run.aside(member.start)
    run.until(lambda: began)
    client.close(60)
    assert cluster.group("g").members == {}


def test_a_division_that_fails_for_a_reason_of_ours_is_not_tried_in_a_loop(
    client: KafkaClient, cluster: MockCluster, monkeypatch: pytest.MonkeyPatch, run: Runner
) -> None:
    tries: list[None] = []

    def fails(*_: Any) -> None:
        tries.append(None)
        raise RuntimeError("ours")

    with monkeypatch.context() as patched:
        patched.setattr("gkafka.core.groupleader.Election.make", fails)
        member = join(client, auto_start=False)
        with Clock() as clock:
            starting = run.aside(member.start)
            run.until(lambda: len(tries) >= 3)
            made = len(tries)
        assert clock.seconds > 0.4 * (made - 1)
    run.until(lambda: not starting.running)
    run.until(lambda: sorted(member.partitions) == [0, 1])
    with pytest.raises(RuntimeError, match="ours"):
        member.consume()
    member.stop()


def test_a_partition_that_is_not_there_is_not_told_to_wait_for_a_rebalance(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    keep_group(cluster, leader="b", given=assignment(0, 7))
    member = join(client)
    run.until(lambda: list(member.partitions) == [0])
    assert "the topic has no such partition yet" in member.explain().partitions[TopicPartition("t", 7)].text
    member.stop()
