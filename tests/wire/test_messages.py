"""Messages as callers see them: made by keyword, and written whatever the version, or refused by name."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from gkafka.exceptions import SerializationError, UnsupportedVersion
from gkafka.wire.admin import CreatableTopic, CreateTopicsRequest, DeleteTopicsRequest, DeleteTopicState
from gkafka.wire.apis import APIS, Versions, decode_request, decode_response, encode_request, encode_response
from gkafka.wire.clusteradmin import FeatureUpdateKey, UpdateFeaturesRequest
from gkafka.wire.fetch import FetchPartition, FetchRequest, FetchTopic
from gkafka.wire.groups import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
)
from gkafka.wire.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from gkafka.wire.offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from gkafka.wire.primitives import UNCOPIED_FROM
from gkafka.wire.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gkafka.wire.schema import Message, Struct, array, int32, message, string
from tests.wire.recorded import EVERY_API, golden


def over_the_wire(sent: Message, version: int) -> Any:
    if sent.API.request is type(sent):
        return decode_request(b"".join(encode_request(sent, version, 1, "me"))[4:]).message
    return decode_response(sent.API, version, b"".join(encode_response(sent, version, 1))[4:])[1]


# -- objects -----------------------------------------------------------------------------------------------------------
def test_a_message_is_made_by_keyword_with_kafkas_defaults() -> None:
    """Kafka gives ListOffsets' replica_id no default; a client always says -1."""
    for one in golden():
        if one.kind == "default" and one.cls is not ListOffsetsRequest:
            assert one.message == one.cls(), str(one)
    assert ListOffsetsRequest().replica_id == -1


def test_an_unknown_field_is_refused() -> None:
    make: Callable[..., FetchTopic] = FetchTopic
    with pytest.raises(TypeError, match="FetchTopic has no field topics; it has topic, topic_id, partitions"):
        make(topics=[])
    with pytest.raises(AttributeError):
        FetchTopic().topics = []  # type: ignore[attr-defined]  # what is tested


def test_a_table_that_was_never_used_makes_objects_of_itself_and_of_what_is_made_of_it() -> None:
    class Fresh(Struct):
        number: int = int32(default=7)
        numbers: list[int] = array(int32())

    class Child(Fresh):
        pass

    make: Callable[..., Child] = Child
    assert (make(number=3).number, make().number, make().numbers) == (3, 7, [])
    assert (Fresh(number=3).number, Fresh().number) == (3, 7)
    with pytest.raises(TypeError, match="has no field size"):
        make(size=1)


def test_messages_are_equal_by_value_and_share_no_list() -> None:
    assert FetchTopic(topic="t") == FetchTopic(topic="t") != FetchTopic(topic="u")
    assert FetchTopic() != CreatableTopic()
    FetchTopic().partitions.append(FetchPartition())
    assert FetchTopic().partitions == []
    assert copy.deepcopy(FetchTopic(topic="t", partitions=[FetchPartition()])) == FetchTopic(topic="t", partitions=[FetchPartition()])
    with pytest.raises(TypeError, match="unhashable"):
        hash(FetchTopic())


def test_a_repr_shows_what_is_set_and_never_the_users_data() -> None:
    request = ProduceRequest(
        acks=-1, topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(index=3, records=b"secret")])]
    )
    assert repr(request) == (
        "ProduceRequest(acks=-1, topic_data=[TopicProduceData(name='t', partition_data=[PartitionProduceData(index=3, records=<6 bytes>)])])"
    )
    assert repr(PartitionProduceData(records=[b"sec", b"ret"])) == "PartitionProduceData(records=<6 bytes>)"


def test_requests_and_responses_know_their_api() -> None:
    assert FetchRequest.API is APIS[1]
    assert (APIS[1].name, APIS[1].key, APIS[1].request, str(APIS[1].versions)) == ("Fetch", 1, FetchRequest, "0-18")
    assert repr(APIS[1]) == "<Api Fetch (1) v0-18>"


def test_an_api_key_belongs_to_one_pair_of_messages() -> None:
    with pytest.raises(TypeError, match="OtherRequest: API 1 is <Api Fetch"):

        @message(key=1, versions="0-18", flexible="12+")
        class OtherRequest(Message):
            name: str = string()


# -- writing -----------------------------------------------------------------------------------------------------------
def test_large_payloads_are_not_copied() -> None:
    small, large = b"s" * (UNCOPIED_FROM - 1), bytearray(b"l" * UNCOPIED_FROM)
    data = [PartitionProduceData(index=0, records=small), PartitionProduceData(index=1, records=[large, memoryview(large), b"tail"])]
    request = ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=data)])
    buffers = encode_request(request, 9, 1, "me")
    assert sum(b is large for b in buffers) == 1
    assert sum(isinstance(b, memoryview) and b.obj is large for b in buffers) == 1
    assert len(buffers) == 4
    decoded = over_the_wire(request, 9)
    assert [p.records for p in decoded.topic_data[0].partition_data] == [small, bytes(large) * 2 + b"tail"]


def test_a_buffer_of_another_format_counts_its_bytes() -> None:
    numbers = memoryview(bytes(8)).cast("q")
    data = TopicProduceData(name="t", partition_data=[PartitionProduceData(records=numbers)])
    assert over_the_wire(ProduceRequest(topic_data=[data]), 3).topic_data[0].partition_data[0].records == bytes(8)


def test_a_value_that_the_version_cannot_hold_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedVersion, match=r"ProduceRequest\.transactional_id does not exist at version 2") as caught:
        encode_request(ProduceRequest(transactional_id="t"), 2, 1, "me")
    assert caught.value.api == "Produce"
    with pytest.raises(UnsupportedVersion, match=r"FetchPartition\.last_fetched_epoch does not exist at version 11"):
        encode_request(FetchRequest(topics=[FetchTopic(partitions=[FetchPartition(last_fetched_epoch=3)])]), 11, 1, "me")


def test_a_value_that_is_ignorable_is_dropped() -> None:
    request = FetchRequest(rack_id="r1", topics=[FetchTopic(topic="t", partitions=[FetchPartition(current_leader_epoch=9)])])
    assert over_the_wire(request, 8) == FetchRequest(topics=[FetchTopic(topic="t", partitions=[FetchPartition()])])


def test_two_fields_are_ignorable_that_kafka_refuses_to_leave_out() -> None:
    """Brokers that lack them behave as if they were said, or cannot be told."""
    assert over_the_wire(MetadataRequest(allow_auto_topic_creation=False), 3) == MetadataRequest()
    assert over_the_wire(ListOffsetsRequest(isolation_level=1), 1) == ListOffsetsRequest()


def test_null_where_the_version_has_no_null_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedVersion, match=r"OffsetFetchRequest\.topics cannot be null at version 1") as caught:
        encode_request(OffsetFetchRequest(group_id="g", topics=None), 1, 1, "me")
    assert caught.value.api == "OffsetFetch"
    with pytest.raises(UnsupportedVersion, match=r"MetadataRequestTopic\.name cannot be null at version 9"):
        encode_request(MetadataRequest(topics=[MetadataRequestTopic(name=None)]), 9, 1, "me")


@pytest.mark.parametrize(
    ("topic", "text"),
    [
        ({"num_partitions": 2**31}, "CreatableTopic.num_partitions=2147483648 is not a Kafka int32"),
        ({"replication_factor": "3"}, "CreatableTopic.replication_factor='3' is not a Kafka int16"),
        ({"name": b"t"}, "CreatableTopic.name=b't' is not a Kafka string"),
        ({"name": None}, "CreatableTopic.name cannot be null"),
        ({"name": "x" * 32768}, r"CreatableTopic.name='x+ is not a Kafka string \(a string of 32768 bytes; Kafka's limit is 32767\)"),
        ({"name": "\ud800"}, r"CreatableTopic.name='\\ud800' is not a Kafka string"),
        ({"configs": [3]}, "CreatableTopic.configs=list is not a Kafka array"),
        ({"configs": None}, "CreatableTopic.configs cannot be null"),
    ],
)
@pytest.mark.parametrize("version", [2, 5])
def test_a_value_of_a_wrong_type_is_refused_by_name(topic: dict[str, Any], version: int, text: str) -> None:
    with pytest.raises(SerializationError, match=text) as caught:
        encode_request(CreateTopicsRequest(topics=[CreatableTopic(name="good"), CreatableTopic(**topic)]), version, 1, "me")
    assert caught.value.api == "CreateTopics"


def test_a_wrong_payload_is_refused_without_showing_it() -> None:
    data: Any = "secret"
    request = ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(records=data)])])
    with pytest.raises(SerializationError, match=r"PartitionProduceData\.records=str is not a Kafka bytes") as caught:
        encode_request(request, 3, 1, "me")
    assert "secret" not in str(caught.value)


def test_a_version_that_the_tables_lack_is_refused() -> None:
    with pytest.raises(UnsupportedVersion, match="Metadata v14: gkafka speaks v0-13"):
        encode_request(MetadataRequest(), 14, 1, "me")
    with pytest.raises(UnsupportedVersion, match="Metadata v-1"):
        encode_response(MetadataResponse(), -1, 1)


# -- one meaning, whatever the version ---------------------------------------------------------------------------------
@pytest.mark.parametrize("version", MetadataRequest.API.versions.each())
def test_all_topics_are_asked_for_by_none_at_every_version(version: int) -> None:
    assert over_the_wire(MetadataRequest(topics=None), version).topics is None


@pytest.mark.parametrize("version", FindCoordinatorRequest.API.versions.each())
def test_one_coordinator_is_asked_for_and_answered_alike_at_every_version(version: int) -> None:
    for request in (FindCoordinatorRequest(key="g"), FindCoordinatorRequest(coordinator_keys=["g"])):
        received = over_the_wire(request, version)
        assert received.coordinator_keys + [received.key] * (received.key != "") == ["g"]
    answer = over_the_wire(FindCoordinatorResponse(coordinators=[Coordinator(key="g", node_id=3, host="h", port=9)]), version)
    (coordinator,) = answer.answers
    assert (coordinator.node_id, coordinator.host, coordinator.port) == (3, "h", 9)
    failed = over_the_wire(FindCoordinatorResponse(coordinators=[Coordinator(key="g", node_id=-1, error_code=15)]), version)
    assert [c.error_code for c in failed.answers] == [15]
    assert over_the_wire(FindCoordinatorResponse(), version).answers == []


@pytest.mark.parametrize("version", LeaveGroupRequest.API.versions.each())
def test_one_member_leaves_alike_at_every_version(version: int) -> None:
    for request in (
        LeaveGroupRequest(group_id="g", member_id="m"),
        LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="m")]),
    ):
        received = over_the_wire(request, version)
        assert [received.member_id] * (received.member_id != "") + [m.member_id for m in received.members] == ["m"]


def test_a_sync_without_the_protocol_goes_in_a_version_that_needs_none() -> None:
    newest = Versions.for_broker("4.2")
    assert newest.pick_for(SyncGroupRequest(group_id="g")) == 4
    assert newest.pick_for(SyncGroupRequest(group_id="g", protocol_type="consumer", protocol_name="range")) == 5


def test_a_static_member_does_not_leave_by_its_member_id_alone() -> None:
    static = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="m", group_instance_id="i")])
    with pytest.raises(UnsupportedVersion, match="members"):
        over_the_wire(static, 2)


@pytest.mark.parametrize("version", DeleteTopicsRequest.API.versions.each())
def test_topics_are_deleted_by_name_at_every_version(version: int) -> None:
    for request in (DeleteTopicsRequest(topic_names=["a", "b"]), DeleteTopicsRequest(topics=[DeleteTopicState(name=n) for n in "ab"])):
        received = over_the_wire(request, version)
        assert received.topic_names + [t.name for t in received.topics] == ["a", "b"]


@pytest.mark.parametrize("version", range(10))
def test_one_groups_offsets_are_asked_for_and_answered_alike_at_every_version(version: int) -> None:
    flat = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[1, 2])])
    group = OffsetFetchRequestGroup(group_id="g", topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[1, 2])])
    for request in (flat, OffsetFetchRequest(groups=[group])):
        assert over_the_wire(request, version) == (OffsetFetchRequest(groups=[group]) if version >= 8 else flat)
    found = OffsetFetchResponsePartitions(partition_index=1, committed_offset=70, metadata="m")
    sent = OffsetFetchResponseGroup(group_id="g", topics=[OffsetFetchResponseTopics(name="t", partitions=[found])])
    (answer,) = over_the_wire(OffsetFetchResponse(groups=[sent]), version).answers
    assert answer.topics == sent.topics


@pytest.mark.parametrize("version", range(2, 8))
def test_all_offsets_of_a_group_are_asked_for_by_none(version: int) -> None:
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    assert over_the_wire(request, version) == OffsetFetchRequest(group_id="g", topics=None)
    assert over_the_wire(OffsetFetchRequest(group_id="g", topics=None), 8).groups == request.groups


@pytest.mark.parametrize("version", ListOffsetsRequest.API.versions.each())
def test_a_found_offset_is_read_alike_at_every_version(version: int) -> None:
    def answer(offset: int) -> int:
        partition = ListOffsetsPartitionResponse(partition_index=1, offset=offset)
        response = ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[partition])])
        found: int = over_the_wire(response, version).topics[0].partitions[0].found
        return found

    assert [answer(70), answer(0), answer(-1)] == [70, 0, -1]


def test_a_downgrade_of_a_feature_is_said_as_each_version_says_it() -> None:
    """KIP-778: version 0 knows one kind of downgrade, and has no word for an unsafe one."""
    safe = UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey(feature="f", max_version_level=1, upgrade_type=2)])
    unsafe = UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey(feature="f", max_version_level=1, upgrade_type=3)])
    assert over_the_wire(safe, 1) == safe
    assert over_the_wire(safe, 0).feature_updates == [FeatureUpdateKey(feature="f", max_version_level=1, allow_downgrade=True)]
    with pytest.raises(UnsupportedVersion, match="upgrade_type"):
        over_the_wire(unsafe, 0)


def test_tables_of_administration_are_read_when_one_is_asked_for() -> None:
    code = """if True:
        import sys
        from gkafka.wire import apis
        assert "gkafka.wire.access" not in sys.modules
        assert apis.api_of(29).name == "DescribeAcls"
        assert "gkafka.wire.access" in sys.modules
    """
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_every_default_request_can_be_sent_to_every_release() -> None:
    """A request made without a thought for versions finds one on every broker that has its API."""
    for release in ("0.8.2", "0.9.0", "0.10.0", "0.11.0", "1.1", "2.8", "3.9", "4.2"):
        versions = Versions.for_broker(release)
        for api in EVERY_API.values():
            if api.key in versions.ranges:
                request = api.request()
                encode_request(request, versions.pick_for(request), 1, "me")
