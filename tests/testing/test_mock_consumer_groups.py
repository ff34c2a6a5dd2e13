"""The groups of KIP-848 in the mock cluster: the rules of Kafka's coordinator, by hand; then gkafka's members, and another client's."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.core.consumergroup import ConsumerGroup
from gkafka.core.consumergroupstate import ConsumerGroupOptions
from gkafka.core.groupstate import Change, Tell
from gkafka.exceptions import ConfigurationError, UnsupportedVersion
from gkafka.membership import Member
from gkafka.testing import Error, MockCluster, Reply
from gkafka.wire.consumergroups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from gkafka.wire.groups import JoinGroupRequest, JoinGroupRequestProtocol, ListGroupsRequest
from gkafka.wire.offsets import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from tests.kit.clock import now
from tests.public.aids import Runner
from tests.testing.client import PlainClient

NOT_COORDINATOR, INCONSISTENT, UNKNOWN_MEMBER, UNSUPPORTED_VERSION, INVALID_REQUEST, GROUP_ID_NOT_FOUND = 16, 23, 25, 35, 42, 69
FENCED_INSTANCE, FENCED_EPOCH, UNRELEASED, UNSUPPORTED_ASSIGNOR, STALE_EPOCH, INVALID_PATTERN = 82, 110, 111, 112, 113, 128
EVERYTHING = {("t", n) for n in range(4)}


CLIENTS: list[PlainClient] = []
MEMBERS: list[Member] = []


@pytest.fixture(autouse=True)
def _close_clients() -> Iterator[None]:
    yield
    while CLIENTS:
        CLIENTS.pop().sock.close()


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    with MockCluster(brokers=2, topics={"t": 4}, consumer_heartbeat_interval_ms=50, auto_create=False) as made:
        yield made


class Hand:
    """A member by hand, with a connection of its own. owned: what it says that it has."""

    def __init__(
        self, cluster: MockCluster, name: str, *, instance: str | None = None, topics: tuple[str, ...] = ("t",), **fields: Any
    ) -> None:
        self.cluster, self.name, self.instance, self.topics, self.fields = cluster, name, instance, topics, fields
        self.client = PlainClient(cluster, cluster.coordinator("g"))
        CLIENTS.append(self.client)
        self.epoch = 0
        self.owned: set[int] = set()
        self.given: set[int] | None = None

    def ask(self, **fields: Any) -> int:
        """A heartbeat. Returns the error code."""
        request = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id=self.name, member_epoch=fields.pop("epoch", self.epoch), instance_id=self.instance, **fields
        )
        answer = self.client.ask(request)
        if not answer.error_code:
            self.epoch = answer.member_epoch
        self.given = None if answer.assignment is None else {n for t in answer.assignment.topic_partitions for n in t.partitions}
        return int(answer.error_code)

    def join(self, **fields: Any) -> int:
        told: dict[str, Any] = {
            "rebalance_timeout_ms": 60_000,
            "subscribed_topic_names": list(self.topics),
            "topic_partitions": [],
            **self.fields,
            **fields,
        }
        code = self.ask(epoch=0, **told)
        self.owned = set(self.given or ())
        return code

    def own(self, *numbers: int, **fields: Any) -> int:
        """Tell what it has."""
        self.owned = set(numbers)
        topic_id = self.cluster._state.topics["t"].id
        return self.ask(topic_partitions=[TopicPartitions(topic_id=topic_id, partitions=sorted(numbers))] if numbers else [], **fields)

    def commit(self, epoch: int | None = None) -> int:
        topic = OffsetCommitRequestTopic(
            name="t", partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")]
        )
        request = OffsetCommitRequest(
            group_id="g", member_id=self.name, generation_id_or_member_epoch=self.epoch if epoch is None else epoch, topics=[topic]
        )
        return int(self.client.ask(request, 9).topics[0].partitions[0].error_code)


def seen(cluster: MockCluster) -> Any:
    group = cluster.group("g")
    assert group is not None
    return group


# -- by hand -----------------------------------------------------------------------------------------------------------
def test_partitions_move_when_they_are_given_up_and_not_before(cluster: MockCluster) -> None:
    first, second = Hand(cluster, "a"), Hand(cluster, "b")
    assert (first.join(), first.given, first.epoch) == (0, {0, 1, 2, 3}, 1)
    assert (second.join(), second.given, second.epoch) == (0, set(), 2)
    assert seen(cluster).state == "Reconciling"
    assert (first.ask(), first.given, first.epoch) == (0, {2, 3}, 1)
    assert (second.ask(), second.given) == (0, None), "the others are not free"
    assert (first.own(0, 1, 2, 3), first.given, first.epoch) == (0, None, 1), "it has not let go"
    assert (second.ask(), second.given) == (0, None)
    assert (first.own(2, 3), first.epoch) == (0, 2)
    assert (second.ask(), second.given, second.epoch) == (0, {0, 1}, 2)
    assert seen(cluster).state == "Stable"
    assert set(seen(cluster).owners) == EVERYTHING


def test_a_member_is_known_by_its_epoch_or_the_one_before_with_less(cluster: MockCluster) -> None:
    first, second = Hand(cluster, "a"), Hand(cluster, "b")
    first.join()
    second.join()
    first.ask()
    first.own(2, 3)
    assert first.epoch == 2
    assert first.ask(epoch=1) == FENCED_EPOCH, "it does not say what it has"
    assert first.own(0, 2, 3, epoch=1) == FENCED_EPOCH
    assert first.own(2, epoch=1) == 0
    assert first.ask(epoch=7) == FENCED_EPOCH
    assert Hand(cluster, "nobody").ask(epoch=2) == UNKNOWN_MEMBER


def test_who_is_silent_or_does_not_give_up_is_removed() -> None:
    with MockCluster(topics={"t": 4}, consumer_session_timeout_ms=1500) as cluster:
        first, second = Hand(cluster, "a"), Hand(cluster, "b")
        first.join(rebalance_timeout_ms=200)
        began = now()
        second.join()
        first.ask()
        while first.own(0, 1, 2, 3) == 0:
            assert second.ask() == 0
            assert now() - began < 60
            time.sleep(0.02)
        assert now() - began >= 0.2
        cluster.wait_for(lambda: not seen(cluster).members)
        assert seen(cluster).state == "Empty"


def test_a_static_member_that_leaves_for_a_while_finds_its_place(cluster: MockCluster) -> None:
    first, other = Hand(cluster, "a", instance="i"), Hand(cluster, "b")
    first.join()
    other.join()
    again = Hand(cluster, "c", instance="i")
    assert again.join() == UNRELEASED
    assert first.ask(epoch=-2) == 0
    assert (other.ask(), other.given) == (0, None)
    assert again.join() == 0
    assert again.given == {2, 3}
    assert first.ask(epoch=2) == FENCED_INSTANCE
    assert again.ask(epoch=-1) == 0
    assert (other.ask(), other.given) == (0, {0, 1, 2, 3})


def test_patterns_and_assignors_are_the_coordinators(cluster: MockCluster) -> None:
    cluster.create_topic("tt", 1)
    one = Hand(cluster, "a", topics=(), subscribed_topic_regex="t+", server_assignor="range")
    assert one.join() == 0
    assert set(seen(cluster).owners) == {*EVERYTHING, ("tt", 0)}
    assert seen(cluster).protocol == "range"
    cluster.add_partitions("tt", 2)
    assert one.ask() == 0
    assert ("tt", 1) in seen(cluster).owners
    assert Hand(cluster, "b", topics=(), subscribed_topic_regex="(").join() == INVALID_PATTERN
    assert Hand(cluster, "b", server_assignor="tombola").join() == UNSUPPORTED_ASSIGNOR
    assert Hand(cluster, "b", topics=()).join() == INVALID_REQUEST


def test_range_gives_everybody_a_piece_of_each_topic(cluster: MockCluster) -> None:
    first, second = (Hand(cluster, name, server_assignor="range") for name in "ab")
    first.join()
    second.join()
    first.ask()
    assert first.given == {0, 1}


def test_commits_are_taken_in_the_members_epoch(cluster: MockCluster) -> None:
    one = Hand(cluster, "a")
    assert one.commit(5) == GROUP_ID_NOT_FOUND
    one.join()
    assert one.commit() == 0
    assert one.commit(9) == STALE_EPOCH
    assert Hand(cluster, "b").commit(1) == UNKNOWN_MEMBER
    assert cluster.committed("g")["t", 0].offset == 7


def test_a_group_is_of_one_kind(cluster: MockCluster) -> None:
    one = Hand(cluster, "a")
    assert one.ask(epoch=3) == GROUP_ID_NOT_FOUND
    one.join()
    classic = JoinGroupRequest(
        group_id="g", session_timeout_ms=6000, protocol_type="consumer", protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")]
    )
    assert one.client.ask(classic).error_code == INCONSISTENT
    assert one.ask(epoch=-1) == 0
    assert one.client.ask(classic, 3).error_code == 0
    assert one.join() == GROUP_ID_NOT_FOUND


def test_groups_are_described_and_listed(cluster: MockCluster) -> None:
    one = Hand(cluster, "a", instance="i")
    one.join()
    (group, missing) = one.client.ask(ConsumerGroupDescribeRequest(group_ids=["g", "none"])).groups
    assert (group.group_state, group.group_epoch, group.assignor_name) == ("Stable", 1, "uniform")
    (member,) = group.members
    assert (member.member_id, member.instance_id, member.member_epoch, member.subscribed_topic_names) == ("a", "i", 1, ["t"])
    assert [(t.topic_name, t.partitions) for t in member.assignment.topic_partitions] == [("t", [0, 1, 2, 3])]
    assert missing.error_code in (GROUP_ID_NOT_FOUND, NOT_COORDINATOR)
    listed = one.client.ask(ListGroupsRequest(types_filter=["consumer"])).groups
    assert [(g.group_id, g.group_type, g.group_state) for g in listed] == [("g", "consumer", "Stable")]
    assert one.client.ask(ListGroupsRequest(types_filter=["classic"])).groups == []


def test_a_coordinator_that_moves_knows_everything(cluster: MockCluster) -> None:
    one = Hand(cluster, "a")
    one.join()
    cluster.move_coordinator("g", 3 - cluster.coordinator("g"))
    assert one.ask() == NOT_COORDINATOR
    one.client.sock.close()
    one.client = PlainClient(cluster, cluster.coordinator("g"))
    CLIENTS.append(one.client)
    assert (one.ask(), one.epoch) == (0, 1)


def test_members_are_removed_and_groups_divided_anew_by_the_test(cluster: MockCluster) -> None:
    one = Hand(cluster, "a", instance="i")
    one.join()
    cluster.rebalance("g")
    assert (one.ask(), one.epoch) == (0, 2)
    cluster.remove_member("g", "i")
    assert one.ask() == UNKNOWN_MEMBER
    with pytest.raises(ConfigurationError, match="group 'g' has no members"):
        cluster.remove_member("g", "i")


def test_the_script_goes_first_and_old_releases_refuse() -> None:
    with MockCluster(versions="3.9", topics={"t": 1}) as cluster:
        one = Hand(cluster, "a")
        one.client.sock.settimeout(60)
        request = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id="a", member_epoch=0, rebalance_timeout_ms=1, subscribed_topic_names=["t"], topic_partitions=[]
        )
        assert one.client.ask(request, 0).error_code == UNSUPPORTED_VERSION
        cluster.on("ConsumerGroupHeartbeat", Reply(lambda request: ConsumerGroupHeartbeatResponse(error_code=110)))
        assert one.client.ask(request, 0).error_code == FENCED_EPOCH


# -- members -----------------------------------------------------------------------------------------------------------
@pytest.fixture(params=["threading", "gevent"])
def run(request: pytest.FixtureRequest) -> Runner:
    return Runner(request.param)


@pytest.fixture
def connect(cluster: MockCluster, run: Runner) -> Iterator[Callable[..., KafkaClient]]:
    made: list[KafkaClient] = []

    def make() -> KafkaClient:
        made.append(KafkaClient(cluster.bootstrap, handler=run.name))
        return made[-1]

    yield make
    while MEMBERS:
        assert MEMBERS.pop().leave("the test is over", 10.0)
    for client in made:
        client.close()


class Driven:
    """A Member that speaks KIP-848, and what it was told."""

    def __init__(self, client: KafkaClient, **options: Any) -> None:
        self.told: list[tuple[Change, set[int]]] = []
        self.problems: list[BaseException] = []
        self.member = Member(
            client.topics["t"]._cluster,
            ConsumerGroupOptions("g", **options),
            ["t"],
            on_change=self._on_change,
            on_problem=self.problems.append,
            machine=ConsumerGroup,
        )
        self.member.polled()
        MEMBERS.append(self.member)

    def _on_change(self, tell: Tell, generation: int, member_id: str) -> None:
        self.told.append((tell.change, {tp.partition for tp in tell.partitions}))

    @property
    def has(self) -> set[int]:
        return {tp.partition for tp in self.member.delivered()}

    @property
    def heard_of(self) -> set[int]:
        """The same by what it was told, which comes a moment later."""
        heard: set[int] = set()
        for change, partitions in list(self.told):
            heard = heard | partitions if change is Change.ASSIGNED else heard - partitions
        return heard


def rests(cluster: MockCluster, *members: Driven) -> bool:
    """The group is stable, and these have divided everything, and heard of it."""
    group = cluster.group("g")
    if group is None or group.state != "Stable" or len(group.members) != len(members) or set(group.owners) != EVERYTHING:
        return False
    return sorted(n for m in members for n in m.has) == [0, 1, 2, 3] and all(m.has == m.heard_of for m in members)


def test_members_come_share_and_go(cluster: MockCluster, connect: Any, run: Runner) -> None:
    first = Driven(connect())
    run.until(lambda: rests(cluster, first))
    second = Driven(connect())
    run.until(lambda: rests(cluster, first, second) and len(first.has) == 2)
    assert (Change.REVOKED, {0, 1, 2, 3} - first.has) in first.told
    assert second.member.leave("done", 10.0)
    run.until(lambda: rests(cluster, first))
    assert first.member.leave("done", 10.0)
    assert not any(change is Change.LOST for change, _ in (*first.told, *second.told))
    assert first.problems == second.problems == []


def test_a_member_that_is_removed_has_lost_everything_and_joins_again(cluster: MockCluster, connect: Any, run: Runner) -> None:
    one = Driven(connect())
    run.until(lambda: rests(cluster, one))
    (name,) = seen(cluster).members
    cluster.remove_member("g", name)
    run.until(lambda: (Change.LOST, {0, 1, 2, 3}) in one.told and rests(cluster, one))
    assert set(seen(cluster).members) == {name}


def test_a_rolling_restart_of_the_coordinator_costs_nothing(cluster: MockCluster, connect: Any, run: Runner) -> None:
    members = Driven(connect()), Driven(connect())
    run.until(lambda: rests(cluster, *members))
    told = [list(m.told) for m in members]
    for _ in range(2):
        broker = cluster.coordinator("g")
        cluster.stop_broker(broker)
        before = cluster.count("ConsumerGroupHeartbeat")
        run.until(lambda before=before: cluster.count("ConsumerGroupHeartbeat") > before + 4)
        cluster.start_broker(broker)
    assert rests(cluster, *members)
    assert [m.told for m in members] == told


def test_a_consumer_of_such_a_group_goes_on_where_another_has_stopped(cluster: MockCluster, connect: Any, run: Runner) -> None:
    with connect().get_producer() as producer:
        for n in range(40):
            producer.produce("t", b"%d" % n, partition=n % 4)
    found: list[bytes] = []
    for last in (20, 40):
        consumer = connect().get_consumer("t", group="g", group_protocol="consumer", auto_offset_reset="earliest")
        deadline = now() + 60
        while len(found) < last and now() < deadline:
            found += [m.value for m in consumer.consume_batch(last - len(found), 100)]
        consumer.stop()
    assert sorted(found, key=int) == [b"%d" % n for n in range(40)]
    assert sum(c.offset for c in cluster.committed("g").values()) == 40


def test_a_consumer_where_there_are_no_such_groups_says_what_to_use(run: Runner) -> None:
    with MockCluster(topics={"t": 1}, versions="3.9") as cluster:
        cluster.on("ConsumerGroupHeartbeat", Error(UNSUPPORTED_VERSION), times=None)
        with KafkaClient(cluster.bootstrap, handler=run.name) as client:
            consumer = client.get_consumer("t", group="g", group_protocol="consumer")

            def refused() -> bool:
                try:
                    consumer.consume_batch(1, 50)
                except UnsupportedVersion as exc:
                    return 'group_protocol="classic"' in str(exc)
                return False

            run.until(refused)
            consumer.stop()


def test_another_clients_member_shares_with_ours(cluster: MockCluster, connect: Any, run: Runner) -> None:
    confluent = pytest.importorskip("confluent_kafka")
    ours = Driven(connect())
    run.until(lambda: rests(cluster, ours))
    other = confluent.Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", "group.protocol": "consumer"})
    other.subscribe(["t"])
    stops = threading.Event()
    theirs: list[set[int]] = [set()]

    def poll() -> None:
        while not stops.is_set():
            other.poll(0.02)
            theirs[0] = {tp.partition for tp in other.assignment()}
        other.close()

    worker = threading.Thread(target=poll)
    worker.start()
    try:
        run.until(lambda: len(ours.has) == 2 and ours.has | theirs[0] == {0, 1, 2, 3} and not ours.has & theirs[0])
    finally:
        stops.set()
        run.until(lambda: not worker.is_alive())
    run.until(lambda: rests(cluster, ours))
