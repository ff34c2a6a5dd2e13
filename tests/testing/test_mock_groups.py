"""Classic groups in the mock cluster: the rules of Kafka's coordinator, by hand; then gkafka's members, and other people's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from gkafka.common import TopicPartition
from gkafka.exceptions import ConfigurationError
from gkafka.testing import Close, Delay, Error, MockCluster
from gkafka.wire.consumerprotocol import ConsumerProtocolAssignment, by_topic
from gkafka.wire.groups import (
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    ListGroupsRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from gkafka.wire.offsets import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from tests.kit.clock import now, soon
from tests.testing.client import PlainClient

NOT_COORDINATOR, ILLEGAL_GENERATION, INCONSISTENT, INVALID_GROUP_ID, UNKNOWN_MEMBER, REBALANCING = 16, 22, 23, 24, 25, 27
GROUP_ID_NOT_FOUND, MEMBER_ID_REQUIRED, FENCED = 69, 79, 82
LONG_MS = 60_000


class Hand:
    """A member by hand, with a connection of its own."""

    def __init__(self, cluster: MockCluster, *, instance: str | None = None, version: int = 9, broker: int | None = None) -> None:
        self.cluster = cluster
        self.client = PlainClient(cluster, cluster.coordinator("g") if broker is None else broker)
        self.instance, self.version = instance, version
        self.member_id, self.generation, self.leader = "", -1, ""

    def reconnect(self) -> None:
        """Where the coordinator is now."""
        self.client.sock.close()
        self.client = PlainClient(self.cluster, self.cluster.coordinator("g"))

    # -- JoinGroup
    def begin(self, *protocols: tuple[str, bytes], session_ms: int = LONG_MS, rebalance_ms: int = LONG_MS, **fields: Any) -> None:
        """A JoinGroup arrives; the group may park it."""
        self.asked = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type=fields.pop("protocol_type", "consumer"),
            protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols or [("range", b"m")]],
            **fields,
        )
        before = self.cluster.count("JoinGroup")
        self.client.send(self.asked, self.version)
        self.cluster.wait_for(lambda: self.cluster.count("JoinGroup") > before)

    def joined(self) -> Any:
        answer = self.client.receive(self.asked, self.version)
        self.member_id = answer.member_id or self.member_id
        if not answer.error_code:
            self.generation, self.leader = answer.generation_id, answer.leader
        return answer

    def enter(self, *protocols: tuple[str, bytes], **fields: Any) -> None:
        """As `begin`, with the id that a first one gives (KIP-394)."""
        if self.version >= 4 and not self.member_id and self.instance is None:
            self.begin(*protocols, **fields)
            assert self.joined().error_code == MEMBER_ID_REQUIRED
        self.begin(*protocols, **fields)

    def join(self, *protocols: tuple[str, bytes], **fields: Any) -> Any:
        self.enter(*protocols, **fields)
        return self.joined()

    # -- the rest
    def begin_sync(self, assignments: dict[str, bytes] | None = None, **fields: Any) -> None:
        made = [SyncGroupRequestAssignment(member_id=name, assignment=data) for name, data in (assignments or {}).items()]
        fields = {"protocol_type": "consumer", "protocol_name": "range", **fields}
        self.synced_by = SyncGroupRequest(
            group_id="g",
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            assignments=made,
            **fields,
        )
        self.client.send(self.synced_by, 5)

    def synced(self) -> Any:
        return self.client.receive(self.synced_by, 5)

    def sync(self, assignments: dict[str, bytes] | None = None, **fields: Any) -> Any:
        self.begin_sync(assignments, **fields)
        return self.synced()

    def beat(self) -> int:
        request = HeartbeatRequest(group_id="g", generation_id=self.generation, member_id=self.member_id, group_instance_id=self.instance)
        return int(self.client.ask(request, 4).error_code)

    def leave(self, version: int = 5) -> Any:
        return self.client.ask(LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=self.member_id)]), version)

    def commit(self, offset: int = 1, version: int = 8, **fields: Any) -> int:
        fields = {
            "generation_id_or_member_epoch": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
            **fields,
        }
        position = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        request = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=[position])], **fields)
        return int(self.client.ask(request, version).topics[0].partitions[0].error_code)


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    with MockCluster(brokers=2, topics={"t": 4}) as made:
        yield made


@pytest.fixture
def hands(cluster: MockCluster) -> Iterator[Callable[..., Hand]]:
    made: list[Hand] = []

    def make(**options: Any) -> Hand:
        made.append(Hand(cluster, **options))
        return made[-1]

    yield make
    for hand in made:
        hand.client.sock.close()


def stable_pair(hands: Callable[..., Hand]) -> tuple[Hand, Hand]:
    """A leader and a follower of a stable group."""
    leader, follower = hands(), hands()
    leader.join()
    follower.enter()
    assert leader.beat() == REBALANCING
    leader.join()
    follower.joined()
    share(leader, follower)
    return leader, follower


def share(leader: Hand, *others: Hand) -> None:
    leader.sync({member.member_id: member.member_id.encode() for member in (leader, *others)})
    for other in others:
        assert other.sync().assignment == other.member_id.encode()


def seen(cluster: MockCluster) -> Any:
    found = cluster.group("g")
    assert found is not None
    return found


# -- joining
def test_a_member_is_given_an_id_and_leads_alone(cluster: MockCluster, hands: Callable[..., Hand]) -> None:
    hand = hands()
    hand.begin()
    first = hand.joined()
    assert (first.error_code, first.generation_id, first.member_id[:6]) == (MEMBER_ID_REQUIRED, -1, "plain-")
    answer = hand.join()
    assert (answer.error_code, answer.generation_id, answer.leader, answer.protocol_name) == (0, 1, hand.member_id, "range")
    assert [(m.member_id, bytes(m.metadata)) for m in answer.members] == [(hand.member_id, b"m")]
    assert seen(cluster).state == "CompletingRebalance"
    assert hand.sync({hand.member_id: b"mine"}).assignment == b"mine"
    assert hand.beat() == 0
    assert seen(cluster)[:4] == ("Stable", 1, "consumer", "range")
    assert seen(cluster).members[hand.member_id].assignment == b"mine"


@pytest.mark.parametrize("version", range(10))
def test_every_version_of_joining(version: int, cluster: MockCluster, hands: Callable[..., Hand]) -> None:
    hand = hands(version=version)
    answer = hand.join()
    assert (answer.error_code, answer.generation_id, len(answer.members)) == (0, 1, 1)
    assert cluster.count("JoinGroup") == (2 if version >= 4 else 1), "KIP-394"
    sync = SyncGroupRequest(group_id="g", generation_id=1, member_id=hand.member_id, protocol_type="consumer", protocol_name="range")
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=hand.member_id)
    leave = LeaveGroupRequest(group_id="g", member_id=hand.member_id)
    for request, newest in ((sync, 5), (beat, 4), (leave, 5)):
        assert hand.client.ask(request, min(version, newest)).error_code == 0
    assert (seen(cluster).state, seen(cluster).generation) == ("Empty", 2)
    gone = hand.client.ask(leave, min(version, 5))
    assert UNKNOWN_MEMBER in (gone.error_code, *(one.error_code for one in gone.members)), "before version 3 there is one error"


def test_a_join_is_parked_until_all_have_joined(cluster: MockCluster, hands: Callable[..., Hand]) -> None:
    leader, follower = hands(), hands()
    leader.join()
    share(leader)
    follower.enter(("range", b"two"), ("other", b""))
    cluster.wait_for(lambda: seen(cluster).state == "PreparingRebalance")
    assert [member.joining for member in seen(cluster).members.values()] == [False, True]
    assert leader.sync().error_code == REBALANCING
    answer = leader.join()
    told = follower.joined()
    assert [bytes(m.metadata) for m in answer.members] == [b"m", b"two"]
    assert (told.members, told.leader, told.generation_id) == ([], leader.member_id, 2)


def test_a_member_that_does_not_join_in_time_is_removed(hands: Callable[..., Hand]) -> None:
    slow, quick = hands(), hands()
    slow.join(rebalance_ms=1000)  # and so long it has for this
    share(slow)
    began = now()
    answer = quick.join(rebalance_ms=100)
    assert now() - began > 0.9
    assert [m.member_id for m in answer.members] == [quick.member_id]
    assert slow.beat() == UNKNOWN_MEMBER


def test_a_member_that_does_not_ask_for_its_assignment_is_removed(cluster: MockCluster, hands: Callable[..., Hand]) -> None:
    hand = hands()
    hand.join(rebalance_ms=100)
    cluster.wait_for(lambda: seen(cluster).state == "Empty")
    assert hand.beat() == UNKNOWN_MEMBER


def test_an_id_that_nobody_comes_back_with_is_forgotten(cluster: MockCluster, hands: Callable[..., Hand]) -> None:
    """While it is not, a rebalance waits for it (KIP-394)."""
    leader, second, gone = hands(), hands(), hands()
    leader.join()
    share(leader)
    began = now()
    gone.begin(session_ms=300)
    gone.joined()
    second.enter()
    leader.enter()
    assert leader.joined().generation_id == 2
    assert now() - began > 0.2
    gone.begin()
    assert gone.joined().error_code == UNKNOWN_MEMBER


def test_a_follower_that_tells_nothing_new_disturbs_nobody_and_the_leader_does(cluster: MockCluster, hands: Callable[..., Hand]) -> None:
    leader, follower = stable_pair(hands)
    answer = follower.join()
    assert (answer.error_code, answer.generation_id, answer.leader) == (0, 2, leader.member_id)
    assert seen(cluster).state == "Stable"
    follower.enter(("range", b"new"))
    assert leader.beat() == REBALANCING
    leader.join()
    assert follower.joined().generation_id == 3
    share(leader, follower)
    leader.enter()
    assert follower.beat() == REBALANCING


def test_protocols_that_do_not_fit_are_refused(hands: Callable[..., Hand]) -> None:
    first, other = hands(), hands(version=3)
    first.join(("range", b""), ("sticky", b""))
    assert other.join(("mine", b"")).error_code == INCONSISTENT
    assert other.join(("range", b""), protocol_type="connect").error_code == INCONSISTENT
    assert first.sync(protocol_name="sticky").error_code == INCONSISTENT
    assert first.sync(protocol_type=None).error_code == INCONSISTENT, "KIP-559"
    empty = hands(version=3)
    empty.begin(protocol_type="")
    assert empty.joined().error_code == INCONSISTENT


def test_members_vote_for_a_protocol_that_all_have(hands: Callable[..., Hand]) -> None:
    first, second, third = hands(), hands(), hands()
    first.join(("a", b""), ("b", b""), ("c", b""))
    second.enter(("c", b""), ("b", b""))
    third.enter(("c", b""), ("b", b""))
    first.enter(("a", b""), ("b", b""), ("c", b""))
    assert {member.joined().protocol_name for member in (first, second, third)} == {"c"}, "two of three"


def test_the_first_member_waits_for_nobody(hands: Callable[..., Hand]) -> None:
    absent, first = hands(), hands()
    absent.begin()
    assert absent.joined().error_code == MEMBER_ID_REQUIRED
    assert first.join().generation_id == 1


# -- sessions, leaving
def test_a_silent_member_is_removed_and_a_beating_one_is_not(cluster: MockCluster, hands: Callable[..., Hand]) -> None:
    silent, alive = hands(), hands()
    silent.join()
    alive.enter(session_ms=LONG_MS)
    silent.enter(session_ms=1000)
    alive.joined()
    silent.joined()
    share(silent, alive)
    assert cluster.wait_for(lambda: alive.beat() == REBALANCING)
    assert alive.join().generation_id == 3
    assert list(seen(cluster).members) == [alive.member_id]
    assert silent.beat() == UNKNOWN_MEMBER


def test_heartbeats_and_commits_keep_a_session(hands: Callable[..., Hand], monkeypatch: pytest.MonkeyPatch) -> None:
    later = 0
    monkeypatch.setattr("gkafka.testing.groupkeeper.time", SimpleNamespace(monotonic=lambda: soon(later)))
    hand = hands()
    hand.join(session_ms=400_000)
    share(hand)
    for act in (hand.beat, hand.commit) * 3:
        later += 300
        assert act() == 0
    later += 500
    assert hand.beat() == UNKNOWN_MEMBER


def test_a_leader_that_leaves_hands_over(cluster: MockCluster, hands: Callable[..., Hand]) -> None:
    leader, follower = stable_pair(hands)
    assert [one.error_code for one in leader.leave().members] == [0]
    assert follower.beat() == REBALANCING
    answer = follower.join()
    assert (answer.generation_id, answer.leader, len(answer.members)) == (3, follower.member_id, 1)
    assert follower.leave(2).error_code == 0
    assert (seen(cluster).state, seen(cluster).generation) == ("Empty", 4)


def test_many_leave_at_once_and_who_is_not_there_is_told_so(cluster: MockCluster, hands: Callable[..., Hand]) -> None:
    leader, follower = stable_pair(hands)
    static = hands(instance="i")
    static.enter()
    cluster.wait_for(lambda: len(seen(cluster).members) == 3)
    names = [MemberIdentity(member_id=one.member_id) for one in (leader, follower)]
    request = LeaveGroupRequest(group_id="g", members=[*names, MemberIdentity(member_id="x"), MemberIdentity(group_instance_id="i")])
    assert [one.error_code for one in leader.client.ask(request).members] == [0, 0, UNKNOWN_MEMBER, 0]
    assert static.joined().error_code == UNKNOWN_MEMBER, "a parked request is answered"
    assert seen(cluster).members == {}


# -- static members
def test_a_static_member_comes_back_to_its_assignment_and_fences_its_older_self(cluster: MockCluster, hands: Callable[..., Hand]) -> None:
    """KIP-345"""
    leader, old = hands(), hands(instance="i")
    leader.join()
    old.enter()
    leader.join()
    old.joined()
    share(leader, old)
    assignment = seen(cluster).members[old.member_id].assignment
    new = hands(instance="i")
    answer = new.join()
    assert (answer.error_code, answer.generation_id, answer.leader) == (0, 2, leader.member_id)
    assert new.member_id != old.member_id
    assert new.sync().assignment == assignment
    assert leader.beat() == 0, "no rebalance"
    assert (old.beat(), old.commit(), old.sync().error_code, old.join().error_code) == (FENCED,) * 4
    assert new.commit(5) == 0
    stranger = hands(instance="unheard of")
    stranger.member_id = "x"
    assert stranger.join().error_code == UNKNOWN_MEMBER


@pytest.mark.parametrize("version", [8, 9])
def test_a_static_leader_that_comes_back_assigns_nothing(version: int, hands: Callable[..., Hand]) -> None:
    """KIP-814: it is told so; older ones are led to believe that another leads."""
    old, new = hands(instance="i"), hands(instance="i", version=version)
    old.join()
    share(old)
    answer = new.join()
    assert answer.generation_id == 1
    assert answer.skip_assignment == (version == 9)
    assert (answer.leader, len(answer.members)) == ((new.member_id, 1) if version == 9 else (old.member_id, 0))
    assert new.sync().assignment == old.member_id.encode()


def test_a_static_member_that_is_replaced_while_it_waits_is_told(cluster: MockCluster, hands: Callable[..., Hand]) -> None:
    leader, old, new = hands(), hands(instance="i"), hands(instance="i")
    leader.join()
    share(leader)
    old.enter()
    cluster.wait_for(lambda: len(seen(cluster).members) == 2)
    new.enter()
    assert old.joined().error_code == FENCED
    leader.join()
    assert new.joined().generation_id == 2


# -- commits
def test_commits_are_taken_from_members_of_the_generation_alone(cluster: MockCluster, hands: Callable[..., Hand]) -> None:
    leader, follower = stable_pair(hands)
    assert leader.commit(7) == 0
    assert leader.commit(8, generation_id_or_member_epoch=1) == ILLEGAL_GENERATION
    assert leader.commit(8, member_id="x") == UNKNOWN_MEMBER
    assert leader.commit(8, generation_id_or_member_epoch=-1, member_id="") == UNKNOWN_MEMBER, "strangers wait until nobody is there"
    leader.enter()
    cluster.wait_for(lambda: seen(cluster).state == "PreparingRebalance")
    assert follower.commit(8) == 0, "who has to give something up may say how far it came"
    follower.join()
    leader.joined()
    assert follower.commit(9) == REBALANCING
    assert follower.commit(9, generation_id_or_member_epoch=2) == ILLEGAL_GENERATION
    assert cluster.committed("g")["t", 0].offset == 8
    share(leader, follower)
    assert (leader.commit(10), leader.leave(), follower.leave())[0] == 0
    assert leader.commit(11) == UNKNOWN_MEMBER
    assert leader.commit(12, generation_id_or_member_epoch=-1, member_id="") == 0
    assert cluster.committed("g")["t", 0].offset == 12


def test_a_generation_of_a_group_that_never_was(hands: Callable[..., Hand]) -> None:
    hand = hands()
    hand.generation, hand.member_id = 3, "m"
    assert [hand.commit(version=version) for version in (1, 8, 9)] == [ILLEGAL_GENERATION, ILLEGAL_GENERATION, GROUP_ID_NOT_FOUND]
    assert (hand.beat(), hand.sync().error_code, hand.join().error_code) == (UNKNOWN_MEMBER,) * 3


# -- the coordinator
def test_only_the_coordinator_answers(cluster: MockCluster, hands: Callable[..., Hand]) -> None:
    other = 3 - cluster.coordinator("g")
    hand = hands(broker=other)
    hand.begin()
    assert hand.joined().error_code == NOT_COORDINATOR
    assert (hand.beat(), hand.sync().error_code, hand.leave().error_code) == (NOT_COORDINATOR,) * 3
    described = hand.client.ask(DescribeGroupsRequest(groups=["g"])).groups[0]
    assert described.error_code == NOT_COORDINATOR
    for request in (JoinGroupRequest(), HeartbeatRequest(), LeaveGroupRequest(), SyncGroupRequest()):
        assert hand.client.ask(request).error_code == INVALID_GROUP_ID


def test_a_group_that_moves_is_known_as_it_was_stored(cluster: MockCluster, hands: Callable[..., Hand]) -> None:
    leader, follower = stable_pair(hands)
    follower.enter(("range", b"new"))
    cluster.wait_for(lambda: seen(cluster).state == "PreparingRebalance")
    other = 3 - cluster.coordinator("g")
    cluster.move_coordinator("g", other)
    assert follower.joined().error_code == NOT_COORDINATOR
    assert leader.beat() == NOT_COORDINATOR
    assert (seen(cluster).state, seen(cluster).generation, len(seen(cluster).members)) == ("Stable", 2, 2)
    leader.reconnect()
    assert leader.beat() == 0
    leader.enter()
    follower.reconnect()
    follower.join()
    assert (leader.joined().generation_id, seen(cluster).state) == (3, "CompletingRebalance")
    cluster.move_coordinator("g", 3 - other)
    assert (seen(cluster).state, seen(cluster).generation) == ("Stable", 2)


def test_a_group_survives_its_coordinators_broker(cluster: MockCluster, hands: Callable[..., Hand]) -> None:
    hand = hands()
    hand.join(session_ms=2000)
    share(hand)
    first = cluster.coordinator("g")
    cluster.stop_broker(first)
    assert hand.client.closed()
    assert cluster.coordinator("g") == 3 - first
    hand.reconnect()
    assert (hand.beat(), hand.commit()) == (0, 0)
    cluster.wait_for(lambda: seen(cluster).state == "Empty")


# -- looking at groups
def test_groups_are_described_and_listed(cluster: MockCluster, hands: Callable[..., Hand]) -> None:
    cluster.move_coordinator("never", cluster.coordinator("g"))
    hand = hands()
    hand.join()
    for version in range(7):
        (group,) = hand.client.ask(DescribeGroupsRequest(groups=["g"]), version).groups
        assert (group.group_state, len(group.members), group.protocol_data) == ("CompletingRebalance", 1, "")
        assert bytes(group.members[0].member_assignment) == b""
    share(hand)
    for version in range(7):
        (group,) = hand.client.ask(DescribeGroupsRequest(groups=["g"]), version).groups
        assert (group.error_code, group.group_state, group.protocol_type, group.protocol_data) == (0, "Stable", "consumer", "range")
        (member,) = group.members
        assert (member.member_id, member.client_id, bytes(member.member_metadata)) == (hand.member_id, "plain", b"m")
        assert bytes(member.member_assignment) == hand.member_id.encode()
        (unknown,) = hand.client.ask(DescribeGroupsRequest(groups=["never"]), version).groups
        assert (unknown.group_state, unknown.error_code) == ("Dead", GROUP_ID_NOT_FOUND if version == 6 else 0)
    for version in range(6):
        (listed,) = hand.client.ask(ListGroupsRequest(), version).groups
        assert (listed.group_id, listed.protocol_type) == ("g", "consumer")
    assert (listed.group_state, listed.group_type) == ("Stable", "classic")
    for wanted, count in (({"states_filter": ["stable"]}, 1), ({"states_filter": ["Empty"]}, 0), ({"types_filter": ["consumer"]}, 0)):
        assert len(hand.client.ask(ListGroupsRequest(**wanted)).groups) == count


def test_assignments_of_consumers_are_read_and_others_are_not(cluster: MockCluster, hands: Callable[..., Hand]) -> None:
    assert cluster.group("g") is None
    hand = hands()
    hand.join()
    mine = ConsumerProtocolAssignment(assigned_partitions=by_topic([TopicPartition("t", n) for n in (2, 0)])).to_bytes()
    hand.sync({hand.member_id: mine})
    assert seen(cluster).members[hand.member_id].partitions == [("t", 0), ("t", 2)]
    assert seen(cluster).owners == {("t", 0): hand.member_id, ("t", 2): hand.member_id}
    hand.join()
    hand.sync({hand.member_id: b"garbage"})
    assert seen(cluster).owners == {}


# -- what tests do to groups
def test_a_rebalance_on_demand_and_a_member_that_is_kicked_out(cluster: MockCluster, hands: Callable[..., Hand]) -> None:
    with pytest.raises(ConfigurationError, match="group 'g' has no members"):
        cluster.rebalance("g")
    leader, follower = stable_pair(hands)
    cluster.rebalance("g")
    assert (leader.beat(), follower.beat()) == (REBALANCING,) * 2
    leader.enter()
    follower.enter()
    assert (leader.joined().generation_id, follower.joined().generation_id) == (3, 3)
    with pytest.raises(ConfigurationError, match=f"no member 'x'; these are: {leader.member_id}, {follower.member_id}"):
        cluster.remove_member("g", "x")
    cluster.remove_member("g", leader.member_id)
    assert (leader.beat(), follower.beat()) == (UNKNOWN_MEMBER, REBALANCING)


def test_a_static_member_is_kicked_out_by_its_instance_id(cluster: MockCluster, hands: Callable[..., Hand]) -> None:
    hand = hands(instance="i")
    hand.join()
    cluster.remove_member("g", "i")
    assert hand.beat() == UNKNOWN_MEMBER


def test_the_script_holds_for_groups_too(cluster: MockCluster, hands: Callable[..., Hand]) -> None:
    hand = hands()
    for request, code in (
        (JoinGroupRequest(group_id="g"), 15),
        (SyncGroupRequest(group_id="g"), 14),
        (LeaveGroupRequest(group_id="g"), 16),
    ):
        cluster.on(request.API.name, Error(code))
        assert hand.client.ask(request).error_code == code
    hand.join()
    cluster.on("SyncGroup", Delay(0.3, before=False))
    began = now()
    hand.begin_sync({hand.member_id: b"a"})
    cluster.wait_for(lambda: seen(cluster).state == "Stable")
    assert hand.synced().assignment == b"a"
    assert now() - began >= 0.3
    cluster.on("LeaveGroup", Close(before=False))
    hand.client.send(LeaveGroupRequest(group_id="g", member_id=hand.member_id))
    assert hand.client.closed()
    assert seen(cluster).state == "Empty"
