"""The documented single calls of a Broker, on brokers inside the test's process."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from gkafka import KafkaClient
from gkafka.broker import Broker
from gkafka.exceptions import (
    BrokerError,
    ConfigurationError,
    ConsumerCoordinatorNotAvailable,
    RequestTimedOut,
    SocketDisconnectedError,
    UnknownTopicOrPartition,
    UnsupportedCodec,
    UnsupportedVersion,
)
from gkafka.handlers import Handler
from gkafka.protocol import (
    ConsumerGroupProtocolMetadata,
    CreateTopicRequest,
    FetchResponse,
    MemberAssignment,
    OffsetPartitionResponse,
    PartitionFetchRequest,
    ProducePartitionResponse,
    ProduceRequest,
)
from gkafka.protocol import Message as ProtocolMessage
from gkafka.testing import Delay, Error, MockCluster, Reply
from gkafka.wire.apis import Request, Versions
from gkafka.wire.groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
    HeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupResponse,
    ListedGroup,
    ListGroupsResponse,
    SyncGroupResponse,
)
from gkafka.wire.offsets import OffsetFetchResponse, OffsetFetchResponseGroup
from tests.kit.clock import now

GROUP_APIS: dict[str, Any] = {"JoinGroup": (0, 9), "SyncGroup": (0, 5), "Heartbeat": (0, 4), "LeaveGroup": (0, 5)}


def broker_of(cluster: MockCluster, handler: Handler, **options: Any) -> Broker:
    ((id_, (host, port)),) = cluster.brokers.items()
    return Broker(id_, host, port, handler, 10_000, 10_000, **options)


class Message(NamedTuple):
    value: bytes | None
    partition_key: bytes | None
    partition_id: int
    topic: bytes


def produce_request(*messages: Message, required_acks: int = 1, compression_type: int = 0) -> Any:
    return SimpleNamespace(compression_type=compression_type, required_acks=required_acks, timeout=5000, messages=list(messages))


def asked(topic: bytes | str = b"t", partition: int = 0, **more: Any) -> Any:
    return SimpleNamespace(topic_name=topic, partition_id=partition, **more)


def values(response: FetchResponse) -> list[list[bytes | None]]:
    return [[m.value for m in p.messages] for partitions in response.topics.values() for p in partitions.values()]


# -- records -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("release", [None, "0.8.2", "0.10.2"])
def test_messages_that_are_produced_are_fetched(handler: Handler, release: str | None) -> None:
    with MockCluster(topics={"t": 2}, versions=release) as cluster:
        broker = broker_of(cluster, handler, api_versions=None if release is None else Versions.for_broker(release))
        produced = broker.produce_messages(
            produce_request(Message(b"a", b"k", 0, b"t"), Message(b"b", None, 1, b"t"), Message(None, b"k", 0, b"t"))
        )
        assert produced is not None
        assert produced.topics == {b"t": {0: ProducePartitionResponse(0, 0), 1: ProducePartitionResponse(0, 0)}}
        wanted = [asked(offset=0, max_bytes=1 << 20), asked("t", 1, offset=0, max_bytes=1 << 20)]
        assert values(broker.fetch_messages(wanted, timeout=1000)) == [[b"a", None], [b"b"]]
        broker.close()


def test_with_required_acks_0_nothing_is_waited_for(handler: Handler) -> None:
    with MockCluster(topics={"t": 1}) as cluster:
        broker = broker_of(cluster, handler)
        assert broker.produce_messages(produce_request(Message(b"a", None, 0, b"t"), required_acks=0)) is None
        assert cluster.wait_for(lambda: cluster.log("t", 0))[0].value == b"a"
        broker.close()


def test_what_a_broker_cannot_take_is_refused_before_it_is_sent(handler: Handler) -> None:
    with MockCluster(topics={"t": 1}, versions="2.0") as cluster:
        broker = broker_of(cluster, handler)
        with pytest.raises(UnsupportedCodec, match="KIP-110"):
            broker.produce_messages(produce_request(Message(b"a", None, 0, b"t"), compression_type=4))
        assert cluster.count("Produce") == 0
        broker.close()


def test_a_fetch_waits_for_min_bytes_as_long_as_it_is_told(handler: Handler) -> None:
    with MockCluster(topics={"t": 1}) as cluster:
        broker = broker_of(cluster, handler)
        started = now()
        assert values(broker.fetch_messages([asked(offset=0, max_bytes=1000)], timeout=300, min_bytes=1)) == [[]]
        assert 0.29 <= now() - started < 30
        (request,) = cluster.requests("Fetch")
        assert (request.message.max_wait_ms, request.message.min_bytes) == (300, 1)
        broker.close()


def test_the_limits_of_a_log_are_told(handler: Handler) -> None:
    with MockCluster(topics={"t": 1}) as cluster:
        broker = broker_of(cluster, handler)
        broker.produce_messages(produce_request(*[Message(b"a", None, 0, b"t")] * 3))
        for before, offset in ((-1, 3), (-2, 0)):
            answer = broker.request_offset_limits([asked(offsets_before=before, max_offsets=1)])
            assert answer.topics[b"t"][0] == OffsetPartitionResponse([offset], 0)
        broker.close()


def test_metadata_is_asked_for_some_topics_or_all(handler: Handler) -> None:
    with MockCluster(topics={"t": 2, "u": 1}) as cluster:
        broker = broker_of(cluster, handler)
        assert sorted(broker.request_metadata().topics) == sorted(broker.request_metadata([]).topics) == [b"t", b"u"]
        ((name, one),) = broker.request_metadata([b"t"]).topics.items()
        assert (name, one.name, sorted(one.partitions)) == (b"t", b"t", [0, 1])
        broker.close()


# -- offsets ---------------------------------------------------------------------------------------------------------------
def test_committed_offsets_are_fetched_on_the_offsets_channel(handler: Handler) -> None:
    with MockCluster(topics={"t": 2}) as cluster:
        broker = broker_of(cluster, handler)
        commit = asked(offset=7, timestamp=123, metadata=b"note")
        response = broker.commit_consumer_group_offsets(b"g", -1, b"", [commit])
        assert response.topics[b"t"][0].err == 0
        fetched = broker.fetch_consumer_group_offsets("g", [asked(), asked("t", 1)])
        assert [(p.offset, p.metadata, p.err) for p in fetched.topics["t"].values()] == [(7, b"note", 0), (-1, b"", 0)]
        assert broker.offsets_channel_connected
        assert not broker.connected
        broker.close()


# -- membership ------------------------------------------------------------------------------------------------------------
def group_cluster() -> MockCluster:
    return MockCluster(topics={"t": 1}, limits=GROUP_APIS)


def test_a_new_member_takes_the_id_that_it_is_given(handler: Handler) -> None:
    """KIP-394: a broker answers MEMBER_ID_REQUIRED and the id to come back with."""

    def join(request: Request) -> JoinGroupResponse:
        message: Any = request.message
        if not message.member_id:
            return JoinGroupResponse(error_code=79, member_id="m-1", protocol_name="")
        return JoinGroupResponse(generation_id=4, protocol_name="range", leader="m-1", member_id=message.member_id)

    with group_cluster() as cluster:
        cluster.on("JoinGroup", Reply(join), times=None)
        broker = broker_of(cluster, handler)
        joined = broker.join_group(b"c", b"g", b"", b"t")
        assert (joined.error_code, joined.generation_id, joined.member_id) == (0, 4, b"m-1")
        first, second = (r.message for r in cluster.requests("JoinGroup"))
        assert (first.member_id, second.member_id) == ("", "m-1")
        assert (second.group_id, second.protocol_type, second.protocols[0].name) == ("g", "consumer", "range")
        assert bytes(second.protocols[0].metadata) == b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff", "version, topics, no user data"
        broker.close()


def test_a_membership_protocol_of_ones_own_is_sent(handler: Handler) -> None:
    protocol = SimpleNamespace(protocol_type=b"mine", protocol_name=b"sticky", metadata=b"\x01\x02")
    with group_cluster() as cluster:
        cluster.on("JoinGroup", Reply(lambda r: JoinGroupResponse(protocol_name="sticky")))
        broker = broker_of(cluster, handler)
        broker.join_group("c", "g", "m", membership_protocol=protocol)
        sent: Any = cluster.requests("JoinGroup")[0].message
        assert (sent.protocol_type, sent.protocols[0].name, bytes(sent.protocols[0].metadata)) == ("mine", "sticky", b"\x01\x02")
        broker.close()


def test_a_leader_hands_in_assignments_and_a_follower_none(handler: Handler) -> None:
    with group_cluster() as cluster:
        cluster.on("SyncGroup", Reply(lambda r: SyncGroupResponse(assignment=b"mine")), times=None)
        broker = broker_of(cluster, handler)
        members = [SimpleNamespace(member_id=b"m-1", partition_assignment=[(b"t", [0, 2])]), SelfMade()]
        assert broker.sync_group(b"c", b"g", 4, b"m-1", members).member_assignment == b"mine"
        broker.sync_group(b"c", b"g", 4, b"m-2", [])
        leader, follower = (r.message for r in cluster.requests("SyncGroup"))
        assert [a.member_id for a in leader.assignments] == ["m-1", "m-2"]
        partitions = b"\0\1t\0\0\0\2\0\0\0\0\0\0\0\2"
        assert bytes(leader.assignments[0].assignment) == b"\0\0\0\0\0\1" + partitions + b"\xff\xff\xff\xff"
        assert bytes(leader.assignments[1].assignment) == b"as it is"
        assert follower.assignments == []
        broker.close()


class SelfMade:
    member_id = "m-2"

    def __bytes__(self) -> bytes:
        return b"as it is"


def test_a_member_beats_and_leaves(handler: Handler) -> None:
    with group_cluster() as cluster:
        cluster.on("Heartbeat", Reply(lambda r: HeartbeatResponse(error_code=27)))
        cluster.on("LeaveGroup", Reply(lambda r: LeaveGroupResponse()))
        broker = broker_of(cluster, handler)
        assert broker.heartbeat(b"c", b"g", 4, b"m").error_code == 27
        assert broker.leave_group(b"c", b"g", b"m").error_code == 0
        beat, left = cluster.requests("Heartbeat")[0].message, cluster.requests("LeaveGroup")[0].message
        assert (beat.group_id, beat.generation_id, beat.member_id) == ("g", 4, "m")
        assert [m.member_id for m in left.members] == ["m"]
        broker.close()


def test_a_join_that_waits_holds_up_no_other_connection_id(handler: Handler) -> None:
    with group_cluster() as cluster:
        cluster.on("JoinGroup", Delay(120))
        cluster.on("Heartbeat", Reply(lambda r: HeartbeatResponse()))
        broker = broker_of(cluster, handler)
        failed = handler.Event()

        def join() -> None:
            with pytest.raises(SocketDisconnectedError):
                broker.join_group(b"one", b"g", b"m")
            failed.set()

        handler.spawn(join)
        deadline = now() + 60
        while cluster.count("JoinGroup") == 0:
            assert now() < deadline
            handler.sleep(0.01)
        started = now()
        assert broker.heartbeat(b"two", b"g", 4, b"m-2").error_code == 0
        assert now() - started < 60
        assert broker._get_unique_req_handler(b"one") is broker._get_unique_req_handler("one")
        assert broker._get_unique_req_handler(b"one") is not broker._get_unique_req_handler(b"two")
        broker.close()
        assert failed.wait(60)


# -- options of a Broker ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("buffer_size", [4, 100, 64 * 1024, 1 << 20])
def test_answers_of_any_size_are_received_whole_whatever_the_buffer(handler: Handler, buffer_size: int) -> None:
    sizes = [0, 10, 90, 5000, 300_000]
    with MockCluster(topics={"t": 1}) as cluster:
        broker = broker_of(cluster, handler, buffer_size=buffer_size)
        for offset, size in enumerate(sizes):
            broker.produce_messages(produce_request(Message(b"x" * size, None, 0, b"t")))
            answer = broker.fetch_messages([asked(offset=offset, max_bytes=1 << 20)])
            assert values(answer) == [[b"x" * size]]
        broker.close()


def test_the_buffer_that_answers_start_in_has_the_size_that_is_given(handler: Handler) -> None:
    with MockCluster(topics={"t": 1}) as cluster:
        for buffer_size in (64, 1 << 20):
            broker = broker_of(cluster, handler, buffer_size=buffer_size)
            broker.connect()
            assert len(broker.channel("control")._inbox.frames._stage) == buffer_size
            broker.close()


@pytest.mark.parametrize("buffer_size", [0, -1, 3, "1024"])
def test_a_buffer_that_is_none_is_refused(handler: Handler, buffer_size: Any) -> None:
    with pytest.raises(ConfigurationError, match="buffer_size="):
        Broker(1, "h", 9, handler, 1000, 1000, buffer_size)


@pytest.mark.parametrize("spoken", [Versions.for_broker("0.10.2"), {3: (0, 2), 18: (0, 0)}, {3: (3, 0, 2)}])
def test_a_broker_whose_versions_are_given_is_not_asked(handler: Handler, spoken: Any) -> None:
    with MockCluster(topics={"t": 1}) as cluster:
        broker = broker_of(cluster, handler, api_versions=spoken)
        broker.request_metadata()
        assert cluster.count("ApiVersions") == 0
        assert [r.version for r in cluster.requests("Metadata")] == [2]
        broker.close()


@pytest.mark.parametrize("given", [7, "2.8", {3: 1}, {"Metadata": (0, 1)}])
def test_versions_that_are_none_are_refused(handler: Handler, given: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"api_versions=.*for_broker"):
        Broker(1, "h", 9, handler, 1000, 1000, api_versions=given)


def test_the_brokers_of_a_client_have_the_calls_too(handler: Handler) -> None:
    with MockCluster(topics={"t": 1}) as cluster, KafkaClient(cluster.bootstrap, handler=handler) as client:
        (broker,) = client.brokers.values()
        assert list(broker.request_metadata().topics) == [b"t"]


# -- administration (pykafka 2.8) ------------------------------------------------------------------------------------------
def test_groups_are_listed_and_described(handler: Handler) -> None:
    told = ConsumerGroupProtocolMetadata(0, [b"t"], None).get_bytes()
    share = MemberAssignment([(b"t", [0])]).get_bytes()
    member = DescribedGroupMember(member_id="m", client_id="c", client_host="/h", member_metadata=told, member_assignment=share)
    garbage = DescribedGroupMember(member_id="n", member_metadata=b"\x01", member_assignment=b"\x01")
    group = DescribedGroup(group_id="g", group_state="Stable", protocol_type="consumer", protocol_data="range", members=[member, garbage])
    limits: dict[str, Any] = {"ListGroups": (0, 4), "DescribeGroups": (0, 5)}
    with MockCluster(topics={"t": 1}, limits=limits) as cluster, KafkaClient(cluster.bootstrap, handler=handler) as client:
        cluster.on(
            "ListGroups", Reply(lambda r: ListGroupsResponse(groups=[ListedGroup(group_id="g", protocol_type="consumer")])), times=None
        )
        cluster.on("DescribeGroups", Reply(lambda r: DescribeGroupsResponse(groups=[group])), times=None)
        (broker,) = client.brokers.values()
        assert broker.list_groups().groups == {b"g": (b"g", b"consumer")}
        for described in (broker.describe_groups([b"g"]).groups, client.cluster.get_managed_group_descriptions()):
            found = described[b"g"]
            assert found[:5] == (0, b"g", b"Stable", b"consumer", b"range")
            assert list(found.members) == [b"m", b"n"]
            assert found.members[b"m"].member_metadata.topic_names == [b"t"]  # type: ignore[union-attr]
            assert found.members[b"m"].member_assignment.partition_assignment == [(b"t", [0])]  # type: ignore[union-attr]
            assert found.members[b"n"][3:] == (b"\x01", b"\x01"), "another one's garbage hides nothing"
        cluster.clear_script()
        cluster.on("ListGroups", Reply(lambda r: ListGroupsResponse(error_code=15)))
        with pytest.raises(ConsumerCoordinatorNotAvailable):
            client.cluster.get_managed_group_descriptions()


def test_topics_are_made_and_deleted(handler: Handler) -> None:
    with MockCluster(topics={"t": 1}) as cluster:
        broker = broker_of(cluster, handler)
        broker.create_topics([CreateTopicRequest(b"made", 3, 1, [], [(b"cleanup.policy", b"compact")])], timeout=5000)
        assert len(broker.request_metadata([b"made"]).topics["made"].partitions) == 3
        with pytest.raises(BrokerError) as caught:
            broker.create_topics([CreateTopicRequest("made", 1, 1, [], [])], timeout=5000)
        assert caught.value.code == 36
        broker.delete_topics([b"made"], timeout=5000)
        assert "made" not in broker.request_metadata().topics
        with pytest.raises(UnknownTopicOrPartition):
            broker.delete_topics(["made"], 5000)
        broker.close()


def test_without_a_timeout_topics_are_only_begun(handler: Handler) -> None:
    """That the time is over means then that it was begun: nothing to raise, but for anything else. 0 itself is nothing to tell a broker."""
    with MockCluster(topics={"t": 1}) as cluster:
        broker = broker_of(cluster, handler)
        topic = CreateTopicRequest(b"made", 3, 1, [], [])
        for api, call in (
            ("CreateTopics", lambda **o: broker.create_topics([topic], **o)),
            ("DeleteTopics", lambda **o: broker.delete_topics([b"t"], **o)),
        ):
            cluster.on(api, Error(7), times=2)
            call()
            with pytest.raises(RequestTimedOut):
                call(timeout=1)
            cluster.on(api, Error(41))
            with pytest.raises(BrokerError):
                call()
            assert [r.message.timeout_ms for r in cluster.requests(api)] == [1000, 1, 1000]
        broker.close()


@pytest.mark.parametrize("release", ["0.9.0", "0.10.2", "2.8", None])
def test_what_a_broker_speaks_is_told(handler: Handler, release: str | None) -> None:
    with MockCluster(topics={"t": 1}, versions=release) as cluster:
        options = {"broker_version": release} if release == "0.9.0" else {}
        with KafkaClient(cluster.bootstrap, handler=handler, **options) as client:  # type: ignore[arg-type]
            spoken = client.cluster.fetch_api_versions()
            (broker,) = client.brokers.values()
            assert broker.versions is not None
            assert {key: (one.min, one.max) for key, one in spoken.items()} == broker.versions.ranges
            assert all(key == one.key for key, one in spoken.items())
            if release == "0.9.0":
                with pytest.raises(UnsupportedVersion):
                    broker.fetch_api_versions()
            else:
                assert broker.fetch_api_versions().api_versions == spoken


def test_a_groups_coordinator_is_told(handler: Handler) -> None:
    with MockCluster(topics={"t": 1}) as cluster:
        broker = broker_of(cluster, handler)
        told = broker.get_consumer_group_metadata(b"g")
        assert (told.coordinator_id, told.coordinator_host.decode(), told.coordinator_port) == (broker.id, broker.host, broker.port)
        cluster.on("FindCoordinator", Error(15))
        with pytest.raises(ConsumerCoordinatorNotAvailable):
            broker.get_consumer_group_metadata("g")
        broker.close()


def test_a_documented_request_is_produced_by_the_partitions_it_names(handler: Handler) -> None:
    """Its messages do not know where they go, as pykafka's producer sets it: the request does."""
    with MockCluster(topics={"t": 2}) as cluster:
        broker = broker_of(cluster, handler)
        request = ProduceRequest(compression_type=1, required_acks=-1, timeout=5000)
        for n in range(4):
            request.add_message(ProtocolMessage(b"v%d" % n, b"k", timestamp=1_700_000_000_000 + n), b"t", n % 2)
        produced = broker.produce_messages(request)
        assert produced is not None
        assert produced.topics == {b"t": {0: (0, 0), 1: (0, 0)}}
        answer = broker.fetch_messages([PartitionFetchRequest(b"t", p, 0) for p in (0, 1)], timeout=1000)
        assert values(answer) == [[b"v0", b"v2"], [b"v1", b"v3"]]
        assert [m.timestamp for m in answer.topics["t"][1].messages] == [1_700_000_000_001, 1_700_000_000_003]
        broker.close()


def test_what_is_refused_for_a_group_as_a_whole_stands_at_each_partition(handler: Handler) -> None:
    with MockCluster(topics={"t": 2}) as cluster:
        broker = broker_of(cluster, handler)
        cluster.on("OffsetFetch", Reply(lambda r: OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", error_code=16)])))
        answer = broker.fetch_consumer_group_offsets(b"g", [asked(), asked("t", 1)])
        assert (answer.err, answer.topics) == (16, {b"t": {0: (-1, b"", 16), 1: (-1, b"", 16)}})
        broker.close()


def test_what_can_be_no_request_is_refused_before_anything_is_sent(cluster: MockCluster, handler: Handler) -> None:
    broker = broker_of(cluster, handler)
    calls: list[Any] = [
        lambda: broker.delete_topics("topic"),
        lambda: broker.delete_topics(["t"], timeout="x"),  # type: ignore[arg-type]
        lambda: broker.create_topics(["t"]),
        lambda: broker.fetch_messages(None),  # type: ignore[arg-type]
        lambda: broker.fetch_consumer_group_offsets("g", [5]),
        lambda: broker.join_group("c", "g", "", "t", 5),
        lambda: broker.produce_messages(5),
    ]
    for call in calls:
        with pytest.raises(ConfigurationError):
            call()
    assert cluster.count("DeleteTopics") == cluster.count("Fetch") == cluster.count("Produce") == 0


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda broker: broker.fetch_messages([asked(offset=0, max_bytes=1000)], timeout=-5), "timeout=-5: must be a whole number from 0"),
        (
            lambda broker: broker.request_offset_limits([asked(offsets_before=-1, max_offsets=0)]),
            "max_offsets=0: must be a whole number from 1",
        ),
        (lambda broker: broker.heartbeat(1, "g", 1, "m"), "connection_id=1: must be str or bytes"),
    ],
    ids=["timeout", "max_offsets", "connection_id"],
)
def test_a_value_that_cannot_be_is_named_by_its_argument(call: Any, said: str, cluster: MockCluster, handler: Handler) -> None:
    with pytest.raises(ConfigurationError, match=said):
        call(broker_of(cluster, handler))
