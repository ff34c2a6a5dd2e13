"""A group's committed offsets: what is asked, and what the answers mean."""

from __future__ import annotations

import pytest

from gkafka.common import TopicPartition
from gkafka.core.offsets import commit_request, coordinator_of, coordinator_request, fetch_request, read_commit, read_fetch
from gkafka.exceptions import (
    GroupAuthorizationFailed,
    GroupCoordinatorNotAvailable,
    GroupLoadInProgress,
    NotCoordinatorForGroup,
    OffsetMetadataTooLarge,
    ProtocolError,
    Stale,
    UnknownTopicOrPartition,
)
from gkafka.wire.apis import decode_request, decode_response, encode_request, encode_response
from gkafka.wire.groups import Coordinator, FindCoordinatorResponse
from gkafka.wire.offsets import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def committed(code: int) -> OffsetCommitResponse:
    rows = [
        OffsetCommitResponsePartition(partition_index=0, error_code=code),
        OffsetCommitResponsePartition(partition_index=1, error_code=0),
    ]
    return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="a", partitions=rows)])


def test_a_commit_names_each_topic_once_with_its_partitions() -> None:
    request = commit_request("g", {A0: (5, ""), B0: (7, "note"), A1: (6, "")})
    assert [(t.name, [(p.partition_index, p.committed_offset, p.committed_metadata) for p in t.partitions]) for t in request.topics] == [
        ("a", [(0, 5, ""), (1, 6, "")]),
        ("b", [(0, 7, "note")]),
    ]
    assert (request.group_id, request.generation_id_or_member_epoch, request.member_id) == ("g", -1, "")


def test_a_member_commits_under_its_generation() -> None:
    request = commit_request("g", {A0: (5, "")}, generation_id=3, member_id="m")
    assert (request.generation_id_or_member_epoch, request.member_id) == (3, "m")


@pytest.mark.parametrize("version", range(10))
def test_a_commit_can_be_said_in_every_version_that_names_topics(version: int) -> None:
    frame = b"".join(encode_request(commit_request("g", {A0: (5, "x")}), version, 1, "c"))
    read = decode_request(memoryview(frame)[4:]).message
    assert [(t.name, t.partitions[0].committed_offset, t.partitions[0].committed_metadata) for t in read.topics] == [("a", 5, "x")]


def test_each_partition_of_a_commit_has_its_own_outcome() -> None:
    outcome = read_commit(committed(12))
    assert isinstance(outcome[A0], OffsetMetadataTooLarge)
    assert (outcome[A0].topic, outcome[A0].partition, outcome[A0].api) == ("a", 0, "OffsetCommit")
    assert outcome[A1] is None


@pytest.mark.parametrize(("code", "kind"), [(14, GroupLoadInProgress), (15, GroupCoordinatorNotAvailable), (16, NotCoordinatorForGroup)])
def test_errors_of_a_coordinator_that_moves_are_retried(code: int, kind: type) -> None:
    error = read_commit(committed(code))[A0]
    assert isinstance(error, kind)
    assert error.retriable
    assert code == 14 or error.stale is Stale.COORDINATOR


@pytest.mark.parametrize("version", range(8))
def test_committed_offsets_are_asked_and_told_in_every_version_that_names_topics(version: int) -> None:
    frame = b"".join(encode_request(fetch_request("g", [A0, B0, A1]), version, 1, "c"))
    read = decode_request(memoryview(frame)[4:]).message
    assert isinstance(read, OffsetFetchRequest)
    assert [(t.name, list(t.partition_indexes)) for t in read.topics] == [("a", [0, 1]), ("b", [0])]
    rows = [
        OffsetFetchResponsePartition(partition_index=0, committed_offset=5, metadata=None),
        OffsetFetchResponsePartition(partition_index=1, committed_offset=-1, metadata="", error_code=3),
    ]
    answer = OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name="a", partitions=rows)])
    told = b"".join(encode_response(answer, version, 1))
    found = read_fetch(decode_response(OffsetFetchRequest.API, version, memoryview(told)[4:])[1], [A0, A1])
    assert (found[A0].offset, found[A0].metadata, found[A0].error) == (5, "", None)
    assert found[A1].offset == -1
    assert isinstance(found[A1].error, UnknownTopicOrPartition)


def test_an_error_of_the_whole_group_is_raised() -> None:
    with pytest.raises(GroupAuthorizationFailed):
        read_fetch(OffsetFetchResponse(error_code=30, topics=[]), [A0])


def test_a_coordinator_is_asked_for_by_the_groups_name() -> None:
    assert coordinator_request("g").key == "g"
    found = Coordinator(key="g", node_id=2, host="h", port=9092)
    assert coordinator_of(FindCoordinatorResponse(coordinators=[found])) == (2, "h", 9092)
    assert coordinator_of(FindCoordinatorResponse(node_id=2, host="h", port=9092)) == (2, "h", 9092)
    with pytest.raises(GroupCoordinatorNotAvailable, match="no leader"):
        coordinator_of(FindCoordinatorResponse(error_code=15, error_message="no leader", node_id=-1, host="", port=-1))


def test_a_partition_that_the_answer_leaves_out_is_not_taken_for_one_without_a_commit() -> None:
    """G12: it would start anew at auto_offset_reset."""
    rows = [OffsetFetchResponsePartition(partition_index=0, committed_offset=5, metadata="")]
    answer = OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name="a", partitions=rows)])
    with pytest.raises(ProtocolError, match="a-1") as caught:
        read_fetch(answer, [A0, A1])
    assert (caught.value.topic, caught.value.partition) == ("a", 1)
    told = b"".join(encode_response(OffsetFetchResponse(groups=[]), 8, 1))
    with pytest.raises(ProtocolError):
        read_fetch(decode_response(OffsetFetchRequest.API, 8, memoryview(told)[4:])[1], [A0])


def test_an_answer_that_names_no_coordinator_is_retried() -> None:
    with pytest.raises(GroupCoordinatorNotAvailable):
        coordinator_of(FindCoordinatorResponse())
