"""KafkaAdminClient's calls about the cluster: brokers, features, the quorum, log directories."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Any

from gkafka.admin import ClusterDescription, LogDir, QuorumReplica
from gkafka.exceptions import KafkaException, UnsupportedVersion
from gkafka.kafka.admin.calls import Calls, class_of, code_of, id_of, member, outcomes_of
from gkafka.kafka.admin.results import Worded
from gkafka.kafka.arguments import listed, partitions_of
from gkafka.kafka.errors import IllegalArgumentError, WrongTypeError
from gkafka.kafka.structs import TopicPartitionReplica

__all__ = ["ClusterCalls", "UpdateFeatureType"]


class UpdateFeatureType(enum.IntEnum):
    """Whether a feature's level may go down, and whether metadata may be lost by that."""

    UNKNOWN = 0
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


DOWNGRADES = {
    UpdateFeatureType.UPGRADE: "no",
    UpdateFeatureType.SAFE_DOWNGRADE: "safe",
    UpdateFeatureType.UNSAFE_DOWNGRADE: "unsafe",
}


class ClusterCalls(Calls):
    """The calls about the cluster."""

    def describe_cluster(self) -> dict[str, Any]:
        """Its id, its controller, its brokers, and what the asker may do, as far as its release tells."""
        found = self._described_cluster()
        return {
            "cluster_id": found.cluster_id,
            "controller_id": found.controller,
            "brokers": [Worded(broker_id=b.id, host=b.host, port=b.port, rack=b.rack, is_fenced=b.is_fenced) for b in found.brokers],
            "authorized_operations": None if found.operations is None else [op.name for op in sorted(found.operations)],
        }

    def _described_cluster(self) -> ClusterDescription:
        for asked in ({"operations": True, "fenced": True}, {"operations": True}):
            try:
                return self._admin.describe_cluster(**asked, timeout=self._within())
            except UnsupportedVersion:  # fenced brokers: 4.0; operations: 2.8
                continue
        return self._admin.describe_cluster(timeout=self._within())

    def describe_features(self, send_request_to_controller: bool = False) -> dict[str, dict[str, Any]]:
        """What the cluster can, and what of that is switched on: {feature: {"supported", "finalized", "finalized_epoch"}} with (lowest, highest)."""
        told = self._admin.describe_features(from_controller=send_request_to_controller, timeout=self._within())
        shown: dict[str, dict[str, Any]] = {name: {"supported": levels} for name, levels in told.supported.items()}
        epoch = told.epoch if told.epoch >= 0 else None
        for name, level in told.finalized.items():
            shown.setdefault(name, {}).update(finalized=(level, level), finalized_epoch=epoch)
        return shown

    def update_features(self, feature_updates: Mapping[str, Any], validate_only: bool = False, timeout_ms: float = 60000) -> dict[str, str]:
        """Switch features on, up to a level: {feature: level} or {feature: (UpdateFeatureType, level)}; 0 switches one off.

        Returns "OK" or the error's text for each; from 4.0 on all of them are done, or none, and that error is raised.
        """
        if not isinstance(feature_updates, Mapping):
            raise WrongTypeError(f"feature_updates={feature_updates!r}: must be a dict of levels by feature")
        by_kind: dict[str, dict[str, int]] = {}
        for name, given in feature_updates.items():
            kind, level = given if isinstance(given, tuple) else (UpdateFeatureType.UPGRADE, given)
            by_kind.setdefault(_downgrade(kind), {})[name] = level
        shown: dict[str, str] = {}
        for downgrade, levels in by_kind.items():
            told = outcomes_of(
                self._admin.update_features,
                levels,
                downgrade=downgrade,
                validate_only=validate_only,
                timeout=self._within(timeout_ms),
            )
            shown |= {name: str(told.errors[name]) if name in told.errors else "OK" for name in levels}
        return shown

    def describe_metadata_quorum(self) -> dict[str, Any]:
        """Who votes on the cluster's metadata (KRaft, 3.3 and newer)."""
        told = self._admin.describe_quorum(timeout=self._within())
        state = {
            "partition_index": 0,
            "leader_id": told.leader,
            "leader_epoch": told.leader_epoch,
            "high_watermark": told.high_watermark,
            "current_voters": [_replica(r) for r in told.voters],
            "observers": [_replica(r) for r in told.observers],
            "error": None,
        }
        nodes = [
            {"node_id": id_, "listeners": [{"name": name, "host": host, "port": port} for name, (host, port) in at.items()]}
            for id_, at in told.endpoints.items()
        ]
        return {"topics": [{"topic_name": "__cluster_metadata", "partitions": [state]}], "nodes": nodes}

    def api_versions(self) -> dict[int, tuple[int, int]]:
        """What the first broker that answered speaks: {API key: (oldest version, newest)}."""
        versions = self._client.cluster.versions
        if versions is None:
            self._client.connect(self._within())
            versions = self._client.cluster.versions
        return dict(versions.ranges) if versions is not None else {}

    # -- log directories ---------------------------------------------------------------------------------------------------------
    def describe_log_dirs(self, topic_partitions: Any = None, brokers: Iterable[int] | None = None) -> list[dict[str, Any]]:
        """What lies in the directories of brokers. topic_partitions: {topic: numbers}, names of topics, None for all. brokers: only these."""
        wanted: dict[str, list[int]] | None = None
        if isinstance(topic_partitions, Mapping):
            wanted = {
                topic: [tp.partition for tp in partitions_of("topic_partitions", {topic: of})] for topic, of in topic_partitions.items()
            }
        named: Any = wanted if wanted is None else list(wanted)
        topics = named if topic_partitions is None or named is not None else listed("topic_partitions", topic_partitions)
        told = outcomes_of(self._admin.describe_log_dirs, brokers, topics, timeout=self._within())
        told.raise_first()
        return [
            {"broker": broker, "log_dirs": [_log_dir(path, found, wanted) for path, found in dirs.items()]}
            for broker, dirs in told.results.items()
        ]

    def alter_replica_log_dirs(
        self, replica_assignments: Mapping[tuple[str, int, int], str]
    ) -> dict[TopicPartitionReplica, type[KafkaException]]:
        """Begin to move replicas between the directories of their broker: {TopicPartitionReplica: path}. Returns NoError or the class of an error."""
        wanted = {_at(replica): path for replica, path in replica_assignments.items()}
        if not wanted:
            return {}
        told = outcomes_of(self._admin.alter_replica_log_dirs, wanted, timeout=self._within())
        return {replica: class_of(told.errors.get(tuple(replica))) for replica in wanted}


def _at(given: Any) -> TopicPartitionReplica:
    if not isinstance(given, tuple) or len(given) != 3:
        raise WrongTypeError(f"replica_assignments: {given!r} must be a TopicPartitionReplica(topic, partition, broker_id)")
    return TopicPartitionReplica(*given)


def _downgrade(kind: Any) -> str:
    wanted = member("upgrade_type", kind, UpdateFeatureType)
    if wanted not in DOWNGRADES:
        raise IllegalArgumentError("upgrade_type=UNKNOWN: must be UPGRADE, SAFE_DOWNGRADE or UNSAFE_DOWNGRADE")
    return DOWNGRADES[wanted]


def _replica(told: QuorumReplica) -> dict[str, Any]:
    return {
        "replica_id": told.id,
        "replica_directory_id": id_of(told.directory_id),
        "log_end_offset": told.log_end,
        "last_fetch_timestamp": told.last_fetch_ms,
        "last_caught_up_timestamp": told.last_caught_up_ms,
    }


def _log_dir(path: str, found: LogDir, wanted: Mapping[str, Iterable[int]] | None) -> dict[str, Any]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for tp, replica in found.replicas.items():
        if wanted is None or tp.partition in wanted[tp.topic]:
            topics.setdefault(tp.topic, []).append(
                {
                    "partition_index": tp.partition,
                    "partition_size": replica.size,
                    "offset_lag": replica.lag,
                    "is_future_key": replica.is_future,
                }
            )
    return {
        "error_code": code_of(found.error),
        "log_dir": path,
        "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
        "total_bytes": found.total,
        "usable_bytes": found.usable,
    }
