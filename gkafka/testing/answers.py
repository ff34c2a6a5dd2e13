"""What the brokers answer: one method for each API, from the shared state."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID

from gkafka.exceptions import ConfigurationError
from gkafka.testing.consumercoordinators import CONSUMER_GROUP_APIS, ConsumerGroups
from gkafka.testing.coordinators import GROUP_APIS, Groups
from gkafka.testing.fetches import answer_fetch
from gkafka.testing.logs import Refused
from gkafka.testing.sessions import Sessions
from gkafka.testing.state import LEGAL_NAME, NO_LEADER, Committed, Partition, State, Topic
from gkafka.testing.transactions import Transactions
from gkafka.wire import admin, apiversions, epochs, groups, metadata, offsets, produce, txn
from gkafka.wire.apis import Message
from gkafka.wire.primitives import ZERO_UUID

if TYPE_CHECKING:
    from gkafka.testing.server import Call, Listener

__all__ = ["Answers"]

UNKNOWN_TOPIC, LEADER_NOT_AVAILABLE, NOT_LEADER, INVALID_TOPIC, NOT_COORDINATOR = 3, 5, 6, 17, 16
INTERNAL = frozenset({"__consumer_offsets", "__transaction_state"})
COORDINATOR_NOT_AVAILABLE, INVALID_ACKS, ILLEGAL_GENERATION, TOPIC_EXISTS, INVALID_PARTITIONS = 15, 21, 22, 36, 37
INVALID_REPLICATION, NOT_CONTROLLER, INVALID_REQUEST, FENCED_EPOCH, UNKNOWN_EPOCH, UNKNOWN_TOPIC_ID = 38, 41, 42, 74, 75, 100
UNSUPPORTED_VERSION, METADATA_TOO_LARGE, UNSUPPORTED_FOR_FORMAT, GROUP_ID_NOT_FOUND, UNSTABLE = 35, 12, 43, 69, 88
MAX_METADATA = 4096
"""What a broker keeps beside an offset, its default of offset.metadata.max.bytes."""
EARLIEST, LATEST, LARGEST, EARLIEST_LOCAL = -2, -1, -3, -4
NEVER = 1 << 15  # no version is that new
REFUSES_UNKNOWN_TIMES = 9
"""The newest ListOffsets of Kafka 3.9. It is the first to refuse a special time that it does not know, or that the version of the request does not."""
Then = Callable[[Message | None], object]


class Answers:
    """The brokers' work. Every method takes a call and returns its answer; None where there is none (acks=0)."""

    def __init__(
        self,
        state: State,
        listeners: dict[int, Listener],
        served: dict[int, dict[int, tuple[int, int]]],
        *,
        cluster_id: str,
        auto_create: bool,
        default_partitions: int,
        max_message_bytes: int,
        newest_magic: int,
        transaction_version: int,
        gives_sessions: bool,
        has_consumer_groups: bool,
        consumer_session_s: float,
        consumer_heartbeat_s: float,
        changed: Callable[[], None],
        after: Callable[[float, Callable[[], object]], Any],
        wait_for_change: Callable[[Callable[[], bool]], None],
    ) -> None:
        self.state = state
        self.gives_sessions = gives_sessions
        self.sessions = {broker: Sessions() for broker in state.brokers}
        self.after = after
        self.wait_for_change = wait_for_change
        self._listeners = listeners
        self._served = served
        self._cluster_id = cluster_id
        self._auto_create = auto_create
        self._default_partitions = default_partitions
        self._max_message_bytes = max_message_bytes
        self._newest_magic = newest_magic
        self._changed = changed
        self._transaction_version = transaction_version
        self.groups = Groups(self)
        self.consumer_groups = ConsumerGroups(self, enabled=has_consumer_groups, session_s=consumer_session_s, beat_s=consumer_heartbeat_s)
        self.transactions = Transactions(self, changed=changed, version=transaction_version)

    def act(self, call: Call, then: Then) -> None:
        """then(answer), at once except for a Fetch that waits for records and what groups park."""
        name = call.request.api.name
        if name in GROUP_APIS:
            self.groups.act(call, then)
            return
        if name in CONSUMER_GROUP_APIS:
            then(self.consumer_groups.act(call))
            return
        if name == "Fetch":
            answer_fetch(self, call, then)
            return
        if name not in self._BY_NAME:
            raise ConfigurationError(f"the mock cluster has no answer to {name} of its own: give one by on({name!r}, Reply(...))")
        then(self._BY_NAME[name](self, call))

    def groups_of(self, name: str) -> Groups | ConsumerGroups:
        """Who keeps this group."""
        return self.consumer_groups if name in self.consumer_groups and not self.groups.has_members(name) else self.groups

    def coordinators_changed(self) -> None:
        """Brokers stopped or started, or a coordinator was moved."""
        self.groups.coordinators_changed()
        self.consumer_groups.coordinators_changed()

    # -- who leads
    def find(self, name: str, topic_id: UUID, index: int) -> tuple[Partition | None, int]:
        """A partition and 0, or None and why not. A topic is named by its id where its name is empty."""
        by_id = not name and topic_id != ZERO_UUID
        topic = self.state.by_id(topic_id) if by_id else self.state.topics.get(name)
        if topic is None:
            return None, UNKNOWN_TOPIC_ID if by_id else UNKNOWN_TOPIC
        if not 0 <= index < len(topic.partitions):
            return None, UNKNOWN_TOPIC
        return topic.partitions[index], 0

    def led_here(self, call: Call, name: str, topic_id: UUID, index: int, epoch: int = -1) -> tuple[Partition | None, int]:
        """As `find`, with the errors of a broker that does not lead it or is asked for another epoch (KIP-320). The partition comes along with them."""
        partition, code = self.find(name, topic_id, index)
        if partition is None:
            return None, code
        if partition.leader != call.broker_id:
            return partition, NOT_LEADER
        return partition, self.epoch_error(partition, epoch)

    @staticmethod
    def epoch_error(partition: Partition, epoch: int) -> int:
        """What is said to a client that believes in another epoch of the leader; 0 if it believes in this one, or in none."""
        if epoch < 0 or epoch == partition.epoch:
            return 0
        return FENCED_EPOCH if epoch < partition.epoch else UNKNOWN_EPOCH

    def endpoint(self, broker: int) -> tuple[str, int]:
        return "127.0.0.1", self._listeners[broker].port

    # -- the APIs
    def _api_versions(self, call: Call) -> Message:
        keys = [
            apiversions.ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in sorted(self._served[call.broker_id].items())
        ]
        features = [
            apiversions.FinalizedFeatureKey(name="transaction.version", max_version_level=level, min_version_level=level)
            for level in [self._transaction_version]
            if level
        ]
        return apiversions.ApiVersionsResponse(api_keys=keys, finalized_features=features, finalized_features_epoch=1 if features else -1)

    def _metadata(self, call: Call) -> Message:
        request: Any = call.request.message
        if request.topics is None:
            topics = [self._describe(topic) for topic in self.state.topics.values()]
        else:
            topics = [self._describe_asked(asked, request.allow_auto_topic_creation) for asked in request.topics]
        brokers = [
            metadata.MetadataResponseBroker(
                node_id=broker, host=self.endpoint(broker)[0], port=self.endpoint(broker)[1], rack=self.state.racks.get(broker)
            )
            for broker in sorted(self.state.up)
        ]
        return metadata.MetadataResponse(brokers=brokers, cluster_id=self._cluster_id, controller_id=self.state.controller, topics=topics)

    def _describe_asked(self, asked: Any, may_create: bool) -> metadata.MetadataResponseTopic:
        if asked.name is None:
            found = self.state.by_id(asked.topic_id)
            if found is None:
                return metadata.MetadataResponseTopic(error_code=UNKNOWN_TOPIC_ID, name=None, topic_id=asked.topic_id)
            return self._describe(found)
        known = self.state.topics.get(asked.name)
        if known is not None:
            return self._describe(known)
        if not LEGAL_NAME.fullmatch(asked.name):
            return metadata.MetadataResponseTopic(error_code=INVALID_TOPIC, name=asked.name)
        if not (self._auto_create and may_create):
            return metadata.MetadataResponseTopic(error_code=UNKNOWN_TOPIC, name=asked.name)
        # As in Kafka: whoever asks first is told that there are no leaders yet; the next to ask sees the topic.
        self.state.create(asked.name, self._default_partitions, 1)
        return metadata.MetadataResponseTopic(error_code=LEADER_NOT_AVAILABLE, name=asked.name)

    def _describe(self, topic: Topic) -> metadata.MetadataResponseTopic:
        partitions = [
            metadata.MetadataResponsePartition(
                error_code=LEADER_NOT_AVAILABLE if partition.leader == NO_LEADER else 0,
                partition_index=partition.index,
                leader_id=partition.leader,
                leader_epoch=partition.epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
                offline_replicas=[replica for replica in partition.replicas if replica not in self.state.up],
            )
            for partition in topic.partitions
        ]
        return metadata.MetadataResponseTopic(name=topic.name, topic_id=topic.id, is_internal=topic.name in INTERNAL, partitions=partitions)

    def _produce(self, call: Call) -> Message | None:
        request: Any = call.request.message
        responses = [
            produce.TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[self._append(call, topic, data) for data in topic.partition_data],
            )
            for topic in request.topic_data
        ]
        self._changed()
        if request.acks == 0:
            if any(p.error_code for t in responses for p in t.partition_responses):
                call.close()  # the only way to tell a producer that does not want to be answered
            return None
        return produce.ProduceResponse(responses=responses, node_endpoints=self._endpoints(responses))

    def _append(self, call: Call, topic: Any, data: Any) -> produce.PartitionProduceResponse:
        request: Any = call.request.message
        version = call.request.version
        partition, code = self.led_here(call, topic.name, topic.topic_id, data.index)
        response = produce.PartitionProduceResponse(index=data.index, error_code=code, base_offset=-1)
        if code:
            if code == NOT_LEADER and partition is not None and version >= 10:
                response.current_leader = produce.LeaderIdAndEpoch(leader_id=partition.leader, leader_epoch=partition.epoch)
            return response
        assert partition is not None
        if request.acks not in (-1, 0, 1):
            response.error_code = INVALID_ACKS
            return response
        magic = produce.record_format(version)
        try:
            done = partition.log.append(
                memoryview(data.records or b""),
                newest_magic=min(magic, self._newest_magic),
                oldest_magic=2 if magic == 2 else 0,
                zstd=produce.holds_zstd(version),
                epoch=partition.epoch,
                now_ms=int(time.time() * 1000),
                stamp=self.state.topics[partition.topic].stamps,
                max_bytes=self._max_message_bytes,
                admit=self.transactions.gate(call, partition),
            )
        except Refused as exc:
            response.error_code, response.error_message = exc.code, str(exc)
            return response
        response.base_offset, response.log_append_time_ms, response.log_start_offset = *done[:2], partition.log.start
        return response

    def _endpoints(self, responses: list[produce.TopicProduceResponse]) -> list[produce.NodeEndpoint]:
        """KIP-951: where the leaders are that the answer names."""
        named = {p.current_leader.leader_id for t in responses for p in t.partition_responses} - {NO_LEADER}
        return [
            produce.NodeEndpoint(node_id=broker, host=self.endpoint(broker)[0], port=self.endpoint(broker)[1]) for broker in sorted(named)
        ]

    def _list_offsets(self, call: Call) -> Message:
        request: Any = call.request.message
        topics = [
            offsets.ListOffsetsTopicResponse(
                name=topic.name, partitions=[self._offset(call, topic.name, asked, request.isolation_level) for asked in topic.partitions]
            )
            for topic in request.topics
        ]
        return offsets.ListOffsetsResponse(topics=topics)

    def _offset(self, call: Call, name: str, asked: Any, isolation: int) -> offsets.ListOffsetsPartitionResponse:
        partition, code = self.led_here(call, name, ZERO_UUID, asked.partition_index, asked.current_leader_epoch)
        response = offsets.ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=code)
        if code or partition is None:
            return response
        log = partition.log
        end = log.last_stable if isolation else log.end
        newest, since = self._served[call.broker_id][offsets.ListOffsetsRequest.API.key][1], _known_since(asked.timestamp)
        if newest >= REFUSES_UNKNOWN_TIMES and call.request.version < since:
            response.error_code = UNSUPPORTED_VERSION
            return response
        if call.request.version == 0:
            response.old_style_offsets = _segment_starts(log.start, end, asked.timestamp)[: asked.max_num_offsets]
            return response
        at, offset = -1, -1
        if newest < since:
            at, offset = log.find(asked.timestamp)  # as of a time before all records: so do Kafka 2.8 and older
        elif asked.timestamp in (EARLIEST, EARLIEST_LOCAL):
            offset = log.start
        elif asked.timestamp == LATEST:
            offset = end
        elif asked.timestamp == LARGEST:
            at, offset = log.newest()
        elif asked.timestamp >= 0:
            if self._newest_magic == 0:
                response.error_code = UNSUPPORTED_FOR_FORMAT
                return response
            at, offset = log.find(asked.timestamp)
        response.timestamp, response.offset = at, offset
        response.leader_epoch = partition.epoch if offset >= 0 and call.request.version >= 4 else -1
        return response

    def _epoch_ends(self, call: Call) -> Message:
        request: Any = call.request.message
        return epochs.OffsetForLeaderEpochResponse(
            topics=[
                epochs.OffsetForLeaderTopicResult(
                    topic=topic.topic, partitions=[self._epoch_end(call, topic.topic, asked) for asked in topic.partitions]
                )
                for topic in request.topics
            ]
        )

    def _epoch_end(self, call: Call, name: str, asked: Any) -> epochs.EpochEnd:
        partition, code = self.led_here(call, name, ZERO_UUID, asked.partition, asked.current_leader_epoch)
        if code or partition is None:
            return epochs.EpochEnd(partition=asked.partition, error_code=code)
        epoch, end = partition.end_of_epoch(asked.leader_epoch)
        return epochs.EpochEnd(partition=asked.partition, leader_epoch=epoch if call.request.version else -1, end_offset=end)

    def _find_coordinator(self, call: Call) -> Message:
        request: Any = call.request.message
        keys = request.coordinator_keys or ([request.key] if call.request.version < 4 else [])
        found = []
        for key in keys:
            broker = self.state.coordinator(key)
            if broker == NO_LEADER:
                found.append(groups.Coordinator(key=key, node_id=-1, host="", port=-1, error_code=COORDINATOR_NOT_AVAILABLE))
            else:
                host, port = self.endpoint(broker)
                found.append(groups.Coordinator(key=key, node_id=broker, host=host, port=port))
        return groups.FindCoordinatorResponse(coordinators=found)

    def _offset_commit(self, call: Call) -> Message:
        request: Any = call.request.message
        if self.state.coordinator(request.group_id) != call.broker_id:
            code = NOT_COORDINATOR
        else:
            code = self.groups.commit_error(
                request.group_id,
                request.member_id,
                request.group_instance_id,
                request.generation_id_or_member_epoch,
                missing=ILLEGAL_GENERATION if call.request.version < 9 else GROUP_ID_NOT_FOUND,
            )
        return offsets.OffsetCommitResponse(topics=[self._commit(request.group_id, topic, code) for topic in request.topics])

    def _commit(self, group: str, topic: Any, code: int) -> offsets.OffsetCommitResponseTopic:
        done = []
        for asked in topic.partitions:
            partition, missing = self.find(topic.name, topic.topic_id, asked.partition_index)
            refused = code or missing or (METADATA_TOO_LARGE if len(asked.committed_metadata or "") > MAX_METADATA else 0)
            if partition is not None and not refused:
                key = (partition.topic, partition.index)
                committed = Committed(asked.committed_offset, asked.committed_leader_epoch, asked.committed_metadata or "")
                self.state.committed.setdefault(group, {})[key] = committed
            done.append(offsets.OffsetCommitResponsePartition(partition_index=asked.partition_index, error_code=refused))
        return offsets.OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=done)

    def _offset_fetch(self, call: Call) -> Message:
        request: Any = call.request.message
        asked = request.groups
        if call.request.version < 8:
            topics = (
                None
                if request.topics is None
                else [offsets.OffsetFetchRequestTopics(name=t.name, partition_indexes=t.partition_indexes) for t in request.topics]
            )
            asked = [offsets.OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)]
        return offsets.OffsetFetchResponse(groups=[self._positions(call, group, request.require_stable) for group in asked])

    def _positions(self, call: Call, asked: Any, stable: bool) -> offsets.OffsetFetchResponseGroup:
        response = offsets.OffsetFetchResponseGroup(group_id=asked.group_id)
        if self.state.coordinator(asked.group_id) != call.broker_id:
            response.error_code = NOT_COORDINATOR
            if call.request.version >= 2:
                return response
        committed = self.state.committed.get(asked.group_id, {})
        unstable = self.transactions.pending(asked.group_id) if stable else set()
        topics = self._everything(committed) if asked.topics is None else asked.topics
        for topic in topics:
            name = topic.name
            if not name and (found := self.state.by_id(topic.topic_id)) is not None:
                name = found.name
            partitions = [
                _position(index, committed.get((name, index)), response.error_code or (UNSTABLE if (name, index) in unstable else 0))
                for index in topic.partition_indexes
            ]
            response.topics.append(offsets.OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
        return response

    def _everything(self, committed: dict[tuple[str, int], Committed]) -> list[offsets.OffsetFetchRequestTopics]:
        names = sorted({name for name, _ in committed})
        return [
            offsets.OffsetFetchRequestTopics(
                name=name,
                topic_id=self.state.topics[name].id if name in self.state.topics else ZERO_UUID,
                partition_indexes=sorted(index for n, index in committed if n == name),
            )
            for name in names
        ]

    def _init_producer_id(self, call: Call) -> Message:
        request: Any = call.request.message
        if request.transactional_id is not None:
            return self.transactions.init_producer_id(call)
        self.state.next_producer_id += 1
        return txn.InitProducerIdResponse(producer_id=self.state.next_producer_id, producer_epoch=0)

    def _create_topics(self, call: Call) -> Message:
        request: Any = call.request.message
        return admin.CreateTopicsResponse(topics=[self._create(call, topic, request.validate_only) for topic in request.topics])

    def _create(self, call: Call, asked: Any, validate_only: bool) -> admin.CreatableTopicResult:
        count = len(asked.assignments) or (self._default_partitions if asked.num_partitions == -1 else asked.num_partitions)
        factor = 1 if asked.replication_factor == -1 else asked.replication_factor
        result = admin.CreatableTopicResult(name=asked.name, error_message=None, configs=[])
        result.error_code = self._creation_error(call, asked.name, count, factor)
        if result.error_code or validate_only:
            return result
        topic = self.state.create(asked.name, count, factor, {config.name: config.value for config in asked.configs})
        for given in asked.assignments:
            partition = topic.partitions[given.partition_index]
            partition.replicas, partition.isr, partition.leader = list(given.broker_ids), list(given.broker_ids), given.broker_ids[0]
        result.topic_id, result.num_partitions, result.replication_factor = topic.id, count, factor
        self._changed()
        return result

    def _creation_error(self, call: Call, name: str, count: int, factor: int) -> int:
        if call.broker_id != self.state.controller:
            return NOT_CONTROLLER
        if name in self.state.topics:
            return TOPIC_EXISTS
        if not LEGAL_NAME.fullmatch(name):
            return INVALID_TOPIC
        if count < 1:
            return INVALID_PARTITIONS
        return 0 if 1 <= factor <= len(self.state.up) else INVALID_REPLICATION

    def _delete_topics(self, call: Call) -> Message:
        request: Any = call.request.message
        asked = request.topics or [admin.DeleteTopicState(name=name) for name in request.topic_names]
        return admin.DeleteTopicsResponse(responses=[self._delete(call, topic) for topic in asked])

    def _delete(self, call: Call, asked: Any) -> admin.DeletableTopicResult:
        topic = self.state.by_id(asked.topic_id) if asked.name is None else self.state.topics.get(asked.name)
        code = NOT_CONTROLLER if call.broker_id != self.state.controller else 0
        if topic is None:
            code = code or (UNKNOWN_TOPIC_ID if asked.name is None else UNKNOWN_TOPIC)
            return admin.DeletableTopicResult(name=asked.name, topic_id=asked.topic_id, error_code=code)
        if not code:
            del self.state.topics[topic.name]
            self._changed()
        return admin.DeletableTopicResult(name=topic.name, topic_id=topic.id, error_code=code)

    _BY_NAME: ClassVar[dict[str, Callable[[Answers, Call], Message | None]]] = {
        "ApiVersions": _api_versions,
        "AddOffsetsToTxn": lambda self, call: self.transactions.add_offsets(call),
        "AddPartitionsToTxn": lambda self, call: self.transactions.add_partitions(call),
        "CreateTopics": _create_topics,
        "DeleteTopics": _delete_topics,
        "EndTxn": lambda self, call: self.transactions.end(call),
        "FindCoordinator": _find_coordinator,
        "InitProducerId": _init_producer_id,
        "ListOffsets": _list_offsets,
        "Metadata": _metadata,
        "OffsetCommit": _offset_commit,
        "OffsetFetch": _offset_fetch,
        "OffsetForLeaderEpoch": _epoch_ends,
        "Produce": _produce,
        "TxnOffsetCommit": lambda self, call: self.transactions.commit_offsets(call),
    }


def _position(index: int, committed: Committed | None, code: int) -> offsets.OffsetFetchResponsePartitions:
    if committed is None or code:
        return offsets.OffsetFetchResponsePartitions(
            partition_index=index, committed_offset=-1, committed_leader_epoch=-1, metadata="", error_code=code
        )
    return offsets.OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )


def _known_since(timestamp: int) -> int:
    """The version of ListOffsets that knows a time."""
    return 0 if timestamp >= EARLIEST else offsets.SINCE.get(timestamp, NEVER)


def _segment_starts(start: int, end: int, timestamp: int) -> list[int]:
    """ListOffsets v0: a log of one segment. Newest first: the end, and the start of the segment."""
    if timestamp == EARLIEST:
        return [start]
    if timestamp == LATEST:
        return [end, start] if end > start else [end]
    return [start] if timestamp >= 0 else []


ANSWERED = frozenset({*Answers._BY_NAME, *GROUP_APIS, *CONSUMER_GROUP_APIS, "Fetch"})
"""Names of the APIs that the brokers answer by themselves."""
