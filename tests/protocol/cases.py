"""The same calls on any module that has the documented names: pykafka wrote what they give into golden/ (golden/record.py), gkafka must, too."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

CLIENT_ID = b"pykafka"


def documented(p: Any) -> dict[str, Any]:
    """Requests of pykafka 2.0.4. p: its module."""
    offsets = [
        p.PartitionOffsetRequest(b"t", 0, -1, 1),
        p.PartitionOffsetRequest(b"t", 7, -2, 9),
        p.PartitionOffsetRequest(b"u\xc3\xa9", 1, 5, 2),
    ]
    commits = [
        p.PartitionOffsetCommitRequest(b"t", 3, 68, 1_426_632_066_000, b"testmetadata"),
        p.PartitionOffsetCommitRequest(b"u", 0, 2**40, -1, b"x"),
    ]
    fetches = [
        p.PartitionFetchRequest(b"t", 0, 1),
        p.PartitionFetchRequest(b"t", 1, 2**33, 300 * 1024),
        p.PartitionFetchRequest(b"u", 0, 5, 1),
    ]
    late = p.FetchRequest(timeout=1, min_bytes=7)
    late.add_request(fetches[1])
    produce = {
        name: p.ProduceRequest(compression_type=codec, required_acks=acks, timeout=timeout)
        for name, codec, acks, timeout in [("plain", 0, 1, 10000), ("all", 0, -1, 1), ("none", 0, 0, 0)]
    }
    produce["plain"].add_message(p.Message(b"value", partition_key=b"key"), b"t", 0)
    produce["all"].add_message(p.Message(None), b"t", 2)
    produce["all"].add_message(p.Message(b"", partition_key=b""), b"u", 0)
    return {
        "metadata of all": p.MetadataRequest(),
        "metadata of two": p.MetadataRequest([b"t", b"u\xc3\xa9"]),
        "produce": produce["plain"],
        "produce to two topics, all replicas": produce["all"],
        "produce without an answer, nothing": produce["none"],
        "offsets": p.OffsetRequest(offsets),
        "no offsets": p.OffsetRequest([]),
        "commit": p.OffsetCommitRequest(b"group", -1, b"", commits),
        "commit of a member": p.OffsetCommitRequest(b"group", 17, b"consumer", commits[:1]),
        "commit of nothing": p.OffsetCommitRequest(b"g", 1, b"c"),
        "fetch": p.FetchRequest(fetches),
        "fetch of one that was added": late,
        "fetch of nothing": p.FetchRequest(),
        "committed": p.OffsetFetchRequest(
            b"group",
            [p.PartitionOffsetFetchRequest(b"t", 0), p.PartitionOffsetFetchRequest(b"t", 9), p.PartitionOffsetFetchRequest(b"u", 1)],
        ),
        "committed of nothing": p.OffsetFetchRequest(b"group"),
        "consumer metadata": p.ConsumerMetadataRequest(b"group"),
    }


def newer(p: Any) -> dict[str, Any]:
    """Requests of pykafka 2.8, which no document describes."""
    told = p.ConsumerGroupProtocolMetadata(0, [b"t", b"u"], b"data")
    protocol = SimpleNamespace(protocol_type=b"consumer", protocol_name=b"range", metadata=told)
    return {
        "join": p.JoinGroupRequest(b"group", b"", b"t", protocol),
        "join again": p.JoinGroupRequest(b"group", b"member", b"t", protocol, session_timeout=6000),
        "sync of a follower": p.SyncGroupRequest(b"group", 3, b"member", []),
        "heartbeat": p.HeartbeatRequest(b"group", 3, b"member"),
        "leave": p.LeaveGroupRequest(b"group", b"member"),
        "list groups": p.ListGroupsRequest(),
        "describe groups": p.DescribeGroupsRequest([b"a", b"b\xc3\xa9"]),
        "describe no group": p.DescribeGroupsRequest([]),
        "create topics": p.CreateTopicsRequest(
            [
                p.CreateTopicRequest(b"t", 3, 2, [], [(b"cleanup.policy", b"compact")]),
                p.CreateTopicRequest(b"u", -1, -1, [(0, [1, 2]), (1, [2])], []),
            ],
            timeout=1500,
        ),
        "delete topics": p.DeleteTopicsRequest([b"t", b"u"], timeout=7),
        "api versions": p.ApiVersionsRequest(),
    }


def messages(p: Any) -> dict[str, Any]:
    """Messages of format 0, as pykafka 2.0.4 writes them."""
    return {
        "value": p.Message(b"value"),
        "key and value": p.Message(b"value", partition_key=b"key"),
        "nulls": p.Message(None, None),
        "empty": p.Message(b"", b""),
        "compressed": p.Message(b"data", compression_type=2),
        "large": p.Message(bytes(range(256)) * 8, b"\x00\xff"),
    }


def stamped(p: Any) -> dict[str, Any]:
    """Messages of format 1, as pykafka 2.8 writes them."""
    return {
        "at a time": p.Message(b"value", b"key", protocol_version=1, timestamp=1_497_302_164_123),
        "nulls at a time": p.Message(None, protocol_version=1, timestamp=1, compression_type=1),
    }
