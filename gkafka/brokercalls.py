"""The documented calls of a Broker: one request to this broker, its answer returned as it came (reference: pykafka.broker).

Nothing is looked up and nothing tried again here: an answer's error codes are for the caller to read, and only what kept the answer from
coming is raised. Names may be str or bytes. The request objects are taken by their documented attributes; each call names those it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from gkafka.brokererrors import MemberIdRequired
from gkafka.common import CompressionType, TopicPartition
from gkafka.core.offsets import commit_request, fetch_request
from gkafka.exceptions import ConfigurationError, KafkaException, RecordTooLarge, UnsupportedCodec
from gkafka.records import Appender, Batch
from gkafka.wire.consumerprotocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription, MemberPartitions
from gkafka.wire.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from gkafka.wire.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from gkafka.wire.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from gkafka.wire.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    OffsetCommitResponse,
    OffsetFetchResponse,
)
from gkafka.wire.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    holds_zstd,
    record_format,
)

if TYPE_CHECKING:
    from gkafka.handlers import Handler
    from gkafka.net.channel import Channel

__all__ = ["BrokerCalls"]

Name = str | bytes
T = TypeVar("T")

CONTROL, OFFSETS, PRODUCE = "control", "offsets", "produce"
FETCH = ("fetch", "calls")
"""A fetch may park: it gets a connection on which nothing else waits."""
SESSION_TIMEOUT_MS = 30_000
"""What `join_group` asks for, as session and as rebalance timeout: the documented call has no parameter for it."""
MAX_BATCH_BYTES = 1 << 30


class DefaultProtocol(Protocol):
    """What `join_group` reads of its membership_protocol. metadata: bytes, or what bytes() makes them of."""

    protocol_type: Name
    protocol_name: Name
    metadata: Any


class BrokerCalls:
    """The calls. Whoever mixes it in has connections by role, as `gkafka.broker.Broker`."""

    if TYPE_CHECKING:
        _handler: Handler
        _socket_timeout_ms: float
        _offsets_timeout_ms: float

        def channel(self, role: object) -> Channel: ...
        def call(self, role: object, request: Any, *, timeout_s: float | None = None, max_version: int | None = None) -> Any: ...

    # -- records and offsets -------------------------------------------------------------------------------------------
    def fetch_messages(self, partition_requests: Iterable[Any], timeout: int = 30000, min_bytes: int = 1) -> FetchResponse:
        """Records of partitions that this broker leads; `gkafka.records` reads the batches of the answer.

        partition_requests: with topic_name, partition_id, offset and max_bytes. timeout: ms that the broker waits for min_bytes.
        """
        asked = list(partition_requests)
        topics = _by_topic(
            asked,
            lambda p: FetchPartition(partition=p.partition_id, fetch_offset=p.offset, partition_max_bytes=p.max_bytes),
        )
        request = FetchRequest(
            max_wait_ms=timeout,
            min_bytes=min_bytes,
            max_bytes=max(1, min(2**31 - 1, sum(p.max_bytes for p in asked))),
            topics=[FetchTopic(topic=name, partitions=partitions) for name, partitions in topics.items()],
        )
        answer: FetchResponse = self.call(FETCH, request, timeout_s=(timeout + self._socket_timeout_ms) / 1000)
        return answer

    def produce_messages(self, produce_request: Any) -> ProduceResponse | None:
        """Append messages, one batch for each partition in the order of the request. Returns None at once if required_acks is 0.

        produce_request: with compression_type, required_acks (-1 for all in-sync replicas), timeout (ms) and messages, each with value,
        partition_key, partition_id, the topic's name as topic or topic_name, and possibly timestamp (ms) and headers.
        Raises UnsupportedCodec, RecordTooLarge, UnsupportedVersion before anything is sent.
        """
        channel = self.channel(PRODUCE)
        channel.wait_open(self._handler.monotonic() + self._socket_timeout_ms / 1000)
        if channel.versions is None:
            raise KafkaException(f"{channel.peer}: the connection is gone")
        codec = CompressionType(produce_request.compression_type)
        version = channel.versions.pick(ProduceRequest.API)
        if codec is CompressionType.ZSTD and not holds_zstd(version):
            raise UnsupportedCodec(f"{channel.peer} does not take zstd, which came with Kafka 2.1 (KIP-110): choose another codec")
        acks = produce_request.required_acks
        request = ProduceRequest(
            acks=acks,
            timeout_ms=produce_request.timeout,
            topic_data=self._sealed(_messages_by_partition(produce_request.messages), codec, record_format(version)),
        )
        timeout_s = (produce_request.timeout + self._socket_timeout_ms) / 1000
        if acks != 0:
            answer: ProduceResponse = self.call(PRODUCE, request, timeout_s=timeout_s)
            return answer
        sent = self._handler.Future()
        channel.send(request, _tell(sent), timeout_s=timeout_s, expects_response=False)
        sent.result(timeout_s + 1.0)
        return None

    def _sealed(self, partitions: dict[tuple[str, int], list[Any]], codec: CompressionType, magic: int) -> list[TopicProduceData]:
        topics: dict[str, TopicProduceData] = {}
        for (topic, partition), messages in partitions.items():
            batch = _batch(topic, partition, messages, self._handler.time())
            if magic < 2:
                batch.seal_legacy(magic, codec, None)
            else:
                batch.seal(codec, None)
            data = topics.setdefault(topic, TopicProduceData(name=topic, partition_data=[])).partition_data
            data.append(PartitionProduceData(index=partition, records=batch.wire))
        return list(topics.values())

    def request_offset_limits(self, partition_requests: Iterable[Any]) -> ListOffsetsResponse:
        """Offsets of partitions that this broker leads.

        partition_requests: with topic_name, partition_id, offsets_before (ms since the epoch, -1 the end, -2 the beginning) and
        max_offsets, which only brokers before 0.10.1 know: newer ones tell one offset.
        """
        topics = _by_topic(
            partition_requests,
            lambda p: ListOffsetsPartition(partition_index=p.partition_id, timestamp=p.offsets_before, max_num_offsets=p.max_offsets),
        )
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=name, partitions=partitions) for name, partitions in topics.items()])
        answer: ListOffsetsResponse = self.call(CONTROL, request)
        return answer

    def request_metadata(self, topics: Iterable[Name] | None = None) -> MetadataResponse:
        """The cluster as this broker knows it. topics: names, None for all. A topic that is asked for is made where the broker allows it."""
        asked = None if topics is None else [MetadataRequestTopic(name=_text(name)) for name in topics]
        answer: MetadataResponse = self.call(CONTROL, MetadataRequest(topics=asked))
        return answer

    # -- a group's offsets ---------------------------------------------------------------------------------------------
    def commit_consumer_group_offsets(
        self, consumer_group: Name, consumer_group_generation_id: int, consumer_id: Name, preqs: Iterable[Any]
    ) -> OffsetCommitResponse:
        """Remember how far a group has come; this broker must be the group's coordinator.

        consumer_group_generation_id: -1, with consumer_id b"", outside of group membership. preqs: with topic_name, partition_id, offset
        (the next one to consume), metadata (str or bytes) and timestamp, which Kafka itself stopped to use with 0.9: it is not sent.
        """
        offsets = {_partition(p): (p.offset, _text(p.metadata or "")) for p in preqs}
        request = commit_request(_text(consumer_group), offsets, generation_id=consumer_group_generation_id, member_id=_text(consumer_id))
        answer: OffsetCommitResponse = self.call(OFFSETS, request)
        return answer

    def fetch_consumer_group_offsets(self, consumer_group: Name, preqs: Iterable[Any]) -> OffsetFetchResponse:
        """How far a group has come, offset -1 where nothing is known. preqs: with topic_name and partition_id."""
        answer: OffsetFetchResponse = self.call(OFFSETS, fetch_request(_text(consumer_group), [_partition(p) for p in preqs]))
        return answer

    # -- group membership ----------------------------------------------------------------------------------------------
    def _get_unique_req_handler(self, connection_id: Name) -> Channel:
        """The connection of one member. A join waits on the broker for the other members, and would hold up what stands behind it."""
        return self.channel(_member(connection_id))

    def join_group(
        self,
        connection_id: Name,
        consumer_group: Name,
        member_id: Name,
        topic_name: Name | None = None,
        membership_protocol: DefaultProtocol | None = None,
    ) -> JoinGroupResponse:
        """Become a member, or one of the next generation: the broker answers when every member has asked.

        member_id: b"" for a new member; a broker that gives the id in a first answer (KIP-394) is asked again with it. topic_name: what
        the member subscribes to. membership_protocol: with protocol_type, protocol_name and metadata; None: "range" of consumers.
        """
        protocol = JoinGroupRequestProtocol(name="range", metadata=_subscription(topic_name))
        protocol_type = "consumer"
        if membership_protocol is not None:
            protocol_type = _text(membership_protocol.protocol_type)
            protocol = JoinGroupRequestProtocol(
                name=_text(membership_protocol.protocol_name), metadata=_metadata(membership_protocol.metadata, topic_name)
            )
        request = JoinGroupRequest(
            group_id=_text(consumer_group),
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=SESSION_TIMEOUT_MS,
            member_id=_text(member_id),
            protocol_type=protocol_type,
            protocols=[protocol],
        )
        answer: JoinGroupResponse = self._group_call(connection_id, request, SESSION_TIMEOUT_MS)
        if answer.error_code == MemberIdRequired.code and not request.member_id:
            request.member_id = answer.member_id
            answer = self._group_call(connection_id, request, SESSION_TIMEOUT_MS)
        return answer

    def sync_group(
        self, connection_id: Name, consumer_group: Name, generation_id: int, member_id: Name, group_assignment: Iterable[Any]
    ) -> SyncGroupResponse:
        """Hand in who gets what, and ask for one's own share: the broker answers when the leader has asked.

        group_assignment: empty unless this member is the leader; things with member_id and partition_assignment, pairs of a topic's name
        and partition ids, or with member_id and their own bytes().
        """
        request = SyncGroupRequest(
            group_id=_text(consumer_group),
            generation_id=generation_id,
            member_id=_text(member_id),
            assignments=[
                SyncGroupRequestAssignment(member_id=_text(one.member_id), assignment=_assignment(one)) for one in group_assignment
            ],
        )
        answer: SyncGroupResponse = self._group_call(connection_id, request, SESSION_TIMEOUT_MS)
        return answer

    def heartbeat(self, connection_id: Name, consumer_group: Name, generation_id: int, member_id: Name) -> HeartbeatResponse:
        """Say that the member lives. The answer's error code tells when it must join again."""
        request = HeartbeatRequest(group_id=_text(consumer_group), generation_id=generation_id, member_id=_text(member_id))
        answer: HeartbeatResponse = self._group_call(connection_id, request)
        return answer

    def leave_group(self, connection_id: Name, consumer_group: Name, member_id: Name) -> LeaveGroupResponse:
        """Leave now, so that the others need not wait for the session timeout."""
        request = LeaveGroupRequest(group_id=_text(consumer_group), member_id=_text(member_id))
        answer: LeaveGroupResponse = self._group_call(connection_id, request)
        return answer

    def _group_call(self, connection_id: Name, request: Any, parked_ms: float = 0) -> Any:
        return self.call(_member(connection_id), request, timeout_s=(parked_ms + self._offsets_timeout_ms) / 1000)


# -- from documented objects to ours -----------------------------------------------------------------------------------
def _text(name: Any) -> str:
    if isinstance(name, str):
        return name
    if isinstance(name, (bytes, bytearray, memoryview)):
        return bytes(name).decode()
    raise ConfigurationError(f"{name!r}: must be str or bytes")


def _member(connection_id: Name) -> tuple[str, str]:
    return "group", _text(connection_id)


def _partition(request: Any) -> TopicPartition:
    return TopicPartition(_text(request.topic_name), request.partition_id)


def _by_topic(requests: Iterable[Any], make: Callable[[Any], T]) -> dict[str, list[T]]:
    topics: dict[str, list[T]] = {}
    for request in requests:
        topics.setdefault(_text(request.topic_name), []).append(make(request))
    return topics


def _tell(future: Any) -> Callable[[Any, KafkaException | None], None]:
    def done(response: Any, error: KafkaException | None) -> None:
        future.set(response) if error is None else future.set_exception(error)

    return done


# -- records
def _messages_by_partition(messages: Iterable[Any]) -> dict[tuple[str, int], list[Any]]:
    found: dict[tuple[str, int], list[Any]] = {}
    for message in messages:
        topic = getattr(message, "topic_name", None)
        topic = getattr(message, "topic", None) if topic is None else topic
        found.setdefault((_text(getattr(topic, "name", topic)), message.partition_id), []).append(message)
    return found


def _batch(topic: str, partition: int, messages: list[Any], now: float) -> Batch:
    """One batch of all the messages, not sealed. now: wall clock in seconds, for messages without a timestamp."""
    appender = Appender(
        None, batch_bytes=MAX_BATCH_BYTES, buffer_bytes=MAX_BATCH_BYTES, max_record_bytes=MAX_BATCH_BYTES, initial_bytes=4096
    )
    appender.open(topic, partition, 0.0)
    for message in messages:
        timestamp = getattr(message, "timestamp", None)
        stamp = int(now * 1000) if not timestamp or timestamp < 0 else int(timestamp)
        headers = getattr(message, "headers", None)
        if appender.append(topic, partition, message.value, message.partition_key, stamp, headers) is None:
            raise RecordTooLarge(f"more than {MAX_BATCH_BYTES} bytes for one partition in a request", topic=topic, partition=partition)
    batch: Batch | None = appender.roll(topic, partition)
    assert batch is not None
    return batch


# -- membership
def _subscription(topic_name: Name | None) -> bytes:
    topics = [] if topic_name is None else [_text(topic_name)]
    return ConsumerProtocolSubscription(topics=topics).to_bytes()


def _metadata(metadata: Any, topic_name: Name | None) -> bytes:
    return _subscription(topic_name) if metadata is None else bytes(metadata)


def _assignment(member: Any) -> bytes:
    if hasattr(member, "__bytes__"):
        return bytes(member)
    partitions = [MemberPartitions(topic=_text(topic), partitions=list(ids)) for topic, ids in member.partition_assignment]
    return ConsumerProtocolAssignment(assigned_partitions=partitions).to_bytes()
