"""The documented calls of a Broker: one request to this broker, its answer parsed (reference: pykafka.broker; pykafka 2.8 where that is silent).

Nothing is looked up and nothing tried again here: an answer's error codes are for the caller to read, and only what kept the answer from
coming is raised. Requests and answers are those of `gkafka.protocol`, in the newest version that both sides speak. Names may be str or bytes;
request objects are taken by their documented attributes, and each call names those it reads.
"""

from __future__ import annotations

import importlib
import weakref
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

from gkafka.brokererrors import MemberIdRequired
from gkafka.checks import check_count
from gkafka.common import CompressionType
from gkafka.exceptions import ClientClosedError, ConfigurationError, KafkaException, UnsupportedCodec
from gkafka.handlers import RequestHandler, ResponseFuture
from gkafka.oneprocess import OfOneProcess
from gkafka.wire.produce import PartitionProduceData, TopicProduceData, holds_zstd, record_format
from gkafka.wire.produce import ProduceRequest as WireProduceRequest

if TYPE_CHECKING:
    from gkafka.handlers import Handler
    from gkafka.net.channel import Channel
    from gkafka.protocol import admin, base, fetch, groups, metadata, offsets, produce
    from gkafka.protocol.base import Name, Request, Response
else:

    class _Later:
        """A module that is read with the first call that needs it: most programs make none of these, and start faster without."""

        def __init__(self, module: str) -> None:
            self._module = module

        def __getattr__(self, name: str) -> Any:
            return getattr(importlib.import_module(self._module), name)

    admin, base, fetch, groups, metadata, offsets, produce = (
        _Later(f"gkafka.protocol.{name}") for name in ("admin", "base", "fetch", "groups", "metadata", "offsets", "produce")
    )

__all__ = ["BrokerCalls", "BrokerRequests"]

R = TypeVar("R", bound="Response")

CONTROL, OFFSETS, PRODUCE = "control", "offsets", "produce"
FETCH = ("fetch", "calls")
"""A fetch may park: it gets a connection on which nothing else waits."""
ADMIN = "admin"
"""Making and deleting topics may park."""
RANGE = SimpleNamespace(protocol_type="consumer", protocol_name="range", metadata=None)
"""What `join_group` joins with unless it is told."""


BEGUN_MS = 1000
"""What brokers are told instead of a timeout of 0: one without ZooKeeper would find the time over before it begins."""


class BrokerCalls(OfOneProcess):
    """The calls. Whoever mixes it in has connections by role, as `gkafka.broker.Broker`."""

    if TYPE_CHECKING:
        _handler: Handler
        _socket_timeout_ms: float
        _offsets_timeout_ms: float
        _request_handlers: dict[object, BrokerRequests]

        def channel(self, role: object) -> Channel: ...
        def drop_channel(self, role: object) -> None: ...
        def call(self, role: object, request: Any, *, timeout_s: float | None = None, max_version: int | None = None) -> Any: ...

    def _ask(self, role: object, request: Request, answer: type[R]) -> R:
        """Send a request on a role's connection, in the newest version; the answer, parsed."""
        return answer(self.call(role, request.to_message(), timeout_s=self._timeout_s(role, request)))

    def _timeout_s(self, role: object, request: Any) -> float:
        """The socket timeout of the role's connection, and what the broker may take of its own."""
        timeout_ms = self._offsets_timeout_ms if role == OFFSETS or _is_member(role) else self._socket_timeout_ms
        return float(timeout_ms + getattr(request, "parked_ms", 0)) / 1000

    # -- records and offsets -------------------------------------------------------------------------------------------
    def fetch_messages(self, partition_requests: Iterable[Any], timeout: int = 30000, min_bytes: int = 1) -> fetch.FetchResponse:
        """Messages of partitions that this broker leads.

        partition_requests: with topic_name, partition_id, offset and max_bytes. timeout: ms that the broker waits for min_bytes.
        """
        check_count("timeout", timeout, low=0)
        return self._ask(FETCH, fetch.FetchRequest(partition_requests, timeout, min_bytes), fetch.FetchResponse)

    def produce_messages(self, produce_request: Any) -> produce.ProduceResponse | None:
        """Append messages, one batch for each partition in the order of the request. Returns None at once if required_acks is 0.

        produce_request: a ProduceRequest; or anything with compression_type, required_acks (-1 for all in-sync replicas), timeout (ms) and
        messages, each with value, partition_key, partition_id, the topic's name as topic or topic_name, and possibly timestamp (ms) and headers.
        Raises UnsupportedCodec, RecordTooLarge, UnsupportedVersion before anything is sent.
        """
        base.check_has("produce_request", produce_request, "compression_type", "required_acks", "timeout")
        channel = self.channel(PRODUCE)
        channel.wait_open(self._handler.monotonic() + self._socket_timeout_ms / 1000)
        if channel.versions is None:
            raise KafkaException(f"{channel.peer}: the connection is gone")
        codec = CompressionType(produce_request.compression_type)
        version = channel.versions.pick(WireProduceRequest.API)
        if codec is CompressionType.ZSTD and not holds_zstd(version):
            raise UnsupportedCodec(f"{channel.peer} does not take zstd, which came with Kafka 2.1 (KIP-110): choose another codec")
        acks = produce_request.required_acks
        request = WireProduceRequest(
            acks=acks,
            timeout_ms=produce_request.timeout,
            topic_data=_sealed(_messages_by_partition(produce_request), codec, record_format(version), self._handler.time()),
        )
        timeout_s = (produce_request.timeout + self._socket_timeout_ms) / 1000
        if acks != 0:
            return produce.ProduceResponse(self.call(PRODUCE, request, timeout_s=timeout_s))
        sent = self._handler.Future()
        channel.send(request, _tell(sent), timeout_s=timeout_s, expects_response=False)
        sent.result(timeout_s + 1.0)
        return None

    def request_offset_limits(self, partition_requests: Iterable[Any]) -> offsets.OffsetResponse:
        """Offsets of partitions that this broker leads.

        partition_requests: with topic_name, partition_id, offsets_before (ms since the epoch, -1 the end, -2 the beginning) and
        max_offsets, which only brokers before 0.10.1 know: newer ones tell one offset.
        """
        return self._ask(CONTROL, offsets.OffsetRequest(partition_requests), offsets.OffsetResponse)

    def request_metadata(self, topics: Iterable[Name] | None = None) -> metadata.MetadataResponse:
        """The cluster as this broker knows it. topics: names, None or empty for all. A topic that is asked for is made where the broker
        allows it."""
        return self._ask(CONTROL, metadata.MetadataRequest(topics), metadata.MetadataResponse)

    # -- a group's offsets ---------------------------------------------------------------------------------------------
    def get_consumer_group_metadata(self, consumer_group: Name) -> offsets.ConsumerMetadataResponse:
        """Which broker coordinates a group. Raises the broker's error where it knows none."""
        return self._ask(CONTROL, offsets.ConsumerMetadataRequest(consumer_group), offsets.ConsumerMetadataResponse)

    def commit_consumer_group_offsets(
        self, consumer_group: Name, consumer_group_generation_id: int, consumer_id: Name, preqs: Iterable[Any]
    ) -> offsets.OffsetCommitResponse:
        """Remember how far a group has come; this broker must be the group's coordinator.

        consumer_group_generation_id: -1, with consumer_id b"", outside of group membership. preqs: with topic_name, partition_id, offset
        (the next one to consume), metadata (str or bytes) and timestamp, which Kafka itself stopped to use with 0.9: it is not sent.
        """
        request = offsets.OffsetCommitRequest(consumer_group, consumer_group_generation_id, consumer_id, preqs)
        return self._ask(OFFSETS, request, offsets.OffsetCommitResponse)

    def fetch_consumer_group_offsets(self, consumer_group: Name, preqs: Iterable[Any]) -> offsets.OffsetFetchResponse:
        """How far a group has come, offset -1 where nothing is known. preqs: with topic_name and partition_id.

        What newer brokers refuse for the group as a whole stands at each partition, as the document has it, and in the answer's err.
        """
        asked = base.listed("preqs", preqs, "topic_name", "partition_id")
        answer = self._ask(OFFSETS, offsets.OffsetFetchRequest(consumer_group, asked), offsets.OffsetFetchResponse)
        if answer.err != 0:
            refused = offsets.OffsetFetchPartitionResponse(-1, b"", answer.err)
            for p in asked:
                answer.topics.setdefault(base.text(p.topic_name).encode(), {}).setdefault(p.partition_id, refused)
        return answer

    # -- group membership ----------------------------------------------------------------------------------------------
    def _get_unique_req_handler(self, connection_id: Name) -> BrokerRequests:
        """The requests of one member. A join waits on the broker for the other members, and would hold up what stands behind it."""
        return self._requests_of(_member(connection_id))

    def join_group(
        self,
        connection_id: Name,
        consumer_group: Name,
        member_id: Name,
        topic_name: Name | None = None,
        membership_protocol: Any = None,
    ) -> groups.JoinGroupResponse:
        """Become a member, or one of the next generation: the broker answers when every member has asked.

        member_id: b"" for a new member; a broker that gives the id in a first answer (KIP-394) is asked again with it. topic_name: what
        the member subscribes to. membership_protocol: with protocol_type, protocol_name and metadata; None: "range" of consumers.
        """
        protocol = RANGE if membership_protocol is None else membership_protocol
        request = groups.JoinGroupRequest(consumer_group, member_id, topic_name, protocol)
        answer = self._ask(_member(connection_id), request, groups.JoinGroupResponse)
        if answer.error_code == MemberIdRequired.code and not member_id:
            request.member_id = answer.member_id
            answer = self._ask(_member(connection_id), request, groups.JoinGroupResponse)
        return answer

    def sync_group(
        self, connection_id: Name, consumer_group: Name, generation_id: int, member_id: Name, group_assignment: Iterable[Any]
    ) -> groups.SyncGroupResponse:
        """Hand in who gets what, and ask for one's own share: the broker answers when the leader has asked.

        group_assignment: empty unless this member is the leader; pairs of a member's id and its MemberAssignment, or things with member_id
        and partition_assignment, pairs of a topic's name and partition ids, or with member_id and their own bytes().
        """
        request = groups.SyncGroupRequest(consumer_group, generation_id, member_id, group_assignment)
        return self._ask(_member(connection_id), request, groups.SyncGroupResponse)

    def heartbeat(self, connection_id: Name, consumer_group: Name, generation_id: int, member_id: Name) -> groups.HeartbeatResponse:
        """Say that the member lives. The answer's error code tells when it must join again."""
        request = groups.HeartbeatRequest(consumer_group, generation_id, member_id)
        return self._ask(_member(connection_id), request, groups.HeartbeatResponse)

    def leave_group(self, connection_id: Name, consumer_group: Name, member_id: Name) -> groups.LeaveGroupResponse:
        """Leave now, so that the others need not wait for the session timeout."""
        return self._ask(_member(connection_id), groups.LeaveGroupRequest(consumer_group, member_id), groups.LeaveGroupResponse)

    # -- administration ------------------------------------------------------------------------------------------------
    def list_groups(self) -> admin.ListGroupsResponse:
        """The groups that this broker coordinates."""
        return self._ask(CONTROL, admin.ListGroupsRequest(), admin.ListGroupsResponse)

    def describe_groups(self, group_ids: Iterable[Name]) -> admin.DescribeGroupsResponse:
        """Who is in these groups, which this broker must coordinate."""
        return self._ask(CONTROL, admin.DescribeGroupsRequest(group_ids), admin.DescribeGroupsResponse)

    def create_topics(self, topic_reqs: Iterable[Any], timeout: int = 0) -> admin.CreateTopicsResponse:
        """Make topics: gkafka.protocol.CreateTopicRequest for each. With ZooKeeper this broker must be the controller.

        timeout: ms to wait until they are there; 0 or less only begins it, and waits a second at most. Raises the error of the first that is
        refused.
        """
        if check_count("timeout", timeout, low=base.MIN_INT32) > 0:
            return self._ask(ADMIN, admin.CreateTopicsRequest(topic_reqs, timeout), admin.CreateTopicsResponse)
        return self._ask(ADMIN, admin.CreateTopicsRequest(topic_reqs, BEGUN_MS), admin.CreationBegun)

    def delete_topics(self, topics: Iterable[Name], timeout: int = 0) -> admin.DeleteTopicsResponse:
        """Delete topics by name. With ZooKeeper this broker must be the controller.

        timeout: ms to wait until they are gone; 0 or less only begins it, and waits a second at most. Raises the error of the first that is
        refused.
        """
        if check_count("timeout", timeout, low=base.MIN_INT32) > 0:
            return self._ask(ADMIN, admin.DeleteTopicsRequest(topics, timeout), admin.DeleteTopicsResponse)
        return self._ask(ADMIN, admin.DeleteTopicsRequest(topics, BEGUN_MS), admin.DeletionBegun)

    def fetch_api_versions(self) -> admin.ApiVersionsResponse:
        """Which versions of which APIs this broker speaks. Raises UnsupportedVersion for one before 0.10, which cannot tell."""
        return self._ask(CONTROL, admin.ApiVersionsRequest(), admin.ApiVersionsResponse)

    # -- requests of one's own -----------------------------------------------------------------------------------------
    def _requests_of(self, role: object) -> BrokerRequests:
        if role not in self._request_handlers:
            self._request_handlers.setdefault(role, BrokerRequests(self, self._handler, role))
        return self._request_handlers[role]


class BrokerRequests(RequestHandler):
    """Requests of one's own on one of a broker's connections, which opens when it is first used. Several may be under way at once.

    What a future's get() returns without a response_cls is the decoded answer (`gkafka.wire`), in the version that the broker speaks.
    """

    def __init__(self, broker: BrokerCalls, handler: Handler, role: object) -> None:
        super().__init__(handler, None)
        self._broker, self._role = weakref.ref(broker), role

    def request(self, request: Any, has_response: bool = True) -> ResponseFuture | None:
        """Send a `gkafka.protocol` request; its future, None with has_response=False. What keeps it from being sent is its error."""
        self.handler.check_fork()
        broker = self._broker()
        if broker is None:
            raise ClientClosedError("the broker's client was dropped: make a new KafkaClient")
        future = ResponseFuture(self.handler)

        def done(response: Any, error: KafkaException | None) -> None:
            future.set_response(response) if error is None else future.set_error(error)

        try:
            channel = broker.channel(self._role)
            timeout_s = broker._timeout_s(self._role, request)
            channel.send(request.to_message(), done, timeout_s=timeout_s, expects_response=has_response)
        except KafkaException as exc:
            if not has_response:
                raise
            future.set_error(exc)
        return future if has_response else None

    def start(self) -> None:
        """Begin to connect."""
        broker = self._broker()
        if broker is not None:
            broker.channel(self._role)

    def stop(self) -> None:
        """Close the connection; the next request opens another one."""
        broker = self._broker()
        if broker is not None:
            broker.drop_channel(self._role)


def _member(connection_id: Name) -> tuple[str, str]:
    if not isinstance(connection_id, (str, bytes, bytearray, memoryview)):
        raise ConfigurationError(f"connection_id={connection_id!r}: must be str or bytes")
    return "group", base.text(connection_id)


def _is_member(role: object) -> bool:
    return isinstance(role, tuple) and role[:1] == ("group",)


def _tell(future: Any) -> Callable[[Any, KafkaException | None], None]:
    def done(response: Any, error: KafkaException | None) -> None:
        future.set(response) if error is None else future.set_exception(error)

    return done


# -- records
def _messages_by_partition(request: Any) -> dict[tuple[str, int], list[Any]]:
    """By topic and partition: where a ProduceRequest has them, else as each message says."""
    found: dict[tuple[str, int], list[Any]] = {}
    for topic, partitions in getattr(request, "msets", {}).items():
        for partition, mset in partitions.items():
            found.setdefault((base.text(topic), partition), []).extend(mset.messages)
    for message in () if hasattr(request, "msets") else request.messages:
        topic = getattr(message, "topic_name", None)
        topic = getattr(message, "topic", None) if topic is None else topic
        found.setdefault((base.text(getattr(topic, "name", topic)), message.partition_id), []).append(message)
    return found


def _sealed(partitions: dict[tuple[str, int], list[Any]], codec: CompressionType, written_as: int, now: float) -> list[TopicProduceData]:
    topics: dict[str, TopicProduceData] = {}
    for (topic, partition), messages in partitions.items():
        data = topics.setdefault(topic, TopicProduceData(name=topic, partition_data=[])).partition_data
        data.append(PartitionProduceData(index=partition, records=produce.sealed(topic, partition, messages, codec, written_as, now)))
    return list(topics.values())
