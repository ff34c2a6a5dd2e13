"""The cluster as a whole: its brokers, its metadata quorum, its features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import UUID

from gkafka.admin.enums import AclOperation, operations_of
from gkafka.admin.requests import Subject
from gkafka.checks import check_count, check_flag, check_mapping, check_name
from gkafka.exceptions import ConfigurationError, KafkaException, ProtocolError, UnsupportedVersion, error_for
from gkafka.wire.apiversions import ApiVersionsRequest
from gkafka.wire.clusteradmin import (
    DescribeClusterRequest,
    DescribeQuorumRequest,
    FeatureUpdateKey,
    QuorumPartition,
    QuorumTopic,
    UpdateFeaturesRequest,
)

__all__ = ["BrokerNode", "ClusterAdmin", "ClusterDescription", "Features", "QuorumDescription", "QuorumReplica"]

INT16 = (1 << 15) - 1
DOWNGRADES = {"no": 1, "safe": 2, "unsafe": 3}
METADATA_TOPIC = "__cluster_metadata"


class BrokerNode(NamedTuple):
    """is_fenced: registered, but not taking part (KIP-1073); False where that was not asked for."""

    id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool = False


class ClusterDescription(NamedTuple):
    """controller: a broker's id, -1 where none is told; KRaft brokers name any broker. operations: what the asker may do to the cluster."""

    cluster_id: str | None
    controller: int
    brokers: tuple[BrokerNode, ...]
    operations: frozenset[AclOperation] | None


class QuorumReplica(NamedTuple):
    """log_end: the offset that it has reached. Times in ms since the epoch, -1 where they are not told. directory_id: all zero before 3.9."""

    id: int
    directory_id: UUID
    log_end: int
    last_fetch_ms: int
    last_caught_up_ms: int


class QuorumDescription(NamedTuple):
    """Who votes on the cluster's metadata. endpoints: node id -> listener name -> (host, port), empty before 3.9."""

    leader: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    endpoints: dict[int, dict[str, tuple[str, int]]]


class Features(NamedTuple):
    """supported: what the broker that answered has, name -> (lowest, highest level). finalized: what is switched on, name -> level.

    epoch: of what is switched on, -1 where it is not told.
    """

    supported: dict[str, tuple[int, int]]
    finalized: dict[str, int]
    epoch: int


class ClusterAdmin(Subject):
    """The calls about the cluster."""

    def describe_cluster(self, *, operations: bool = False, fenced: bool = False, timeout: float | None = None) -> ClusterDescription:
        """Its id and its brokers. operations: also what the asker may do (2.8 and newer). fenced: brokers that are fenced, too (4.0 and newer)."""
        deadline = self._requests.begin(timeout)
        request = DescribeClusterRequest(include_cluster_authorized_operations=operations, include_fenced_brokers=fenced)
        try:
            response, broker = self._requests.anyone(request, deadline)
        except UnsupportedVersion:
            if operations or fenced:
                raise
            told = self._requests.metadata([], deadline)
            brokers = tuple(BrokerNode(b.node_id, b.host, b.port, b.rack) for b in sorted(told.brokers, key=lambda b: b.node_id))
            return ClusterDescription(told.cluster_id, told.controller_id, brokers, None)
        _raise(response, broker, "DescribeCluster")
        return ClusterDescription(
            response.cluster_id,
            response.controller_id,
            tuple(
                BrokerNode(b.broker_id, b.host, b.port, b.rack, b.is_fenced)
                for b in sorted(response.brokers, key=lambda b: int(b.broker_id))
            ),
            operations_of(response.cluster_authorized_operations) if operations else None,
        )

    def describe_quorum(self, *, timeout: float | None = None) -> QuorumDescription:
        """The quorum of a KRaft cluster (3.3 and newer). Raises UnsupportedVersion where ZooKeeper does its work."""
        deadline = self._requests.begin(timeout)
        request = DescribeQuorumRequest(topics=[QuorumTopic(topic_name=METADATA_TOPIC, partitions=[QuorumPartition()])])

        def attempt(_: list[str]) -> dict[str, QuorumDescription]:
            response, broker = self._requests.anyone(request, deadline)
            _raise(response, broker, "DescribeQuorum")
            if [len(t.partitions) for t in response.topics] != [1]:
                raise ProtocolError("the answer tells of no quorum", broker=broker, api="DescribeQuorum")
            (state,) = response.topics[0].partitions
            _raise(state, broker, "DescribeQuorum")
            return {"": _quorum(state, response.nodes)}

        return self._requests.settle("describing the quorum", [""], attempt, deadline)[""]

    def describe_features(self, *, from_controller: bool = False, timeout: float | None = None) -> Features:
        """What the cluster's releases can, and what of that is switched on (2.7 and newer; empty before). from_controller: ask none but it."""
        ask = self._requests.controller if check_flag("from_controller", from_controller) else self._requests.anyone
        response, broker = ask(_api_versions(), self._requests.begin(timeout))
        _raise(response, broker, "ApiVersions")
        return Features(
            {f.name: (f.min_version, f.max_version) for f in response.supported_features},
            {f.name: f.max_version_level for f in response.finalized_features},
            response.finalized_features_epoch,
        )

    def update_features(
        self, levels: Mapping[str, int], *, downgrade: str = "no", validate_only: bool = False, timeout: float | None = None
    ) -> None:
        """Switch features on, up to a level; 0 switches one off. downgrade: "no", "safe", or "unsafe" where metadata may be lost.

        Item errors: InvalidUpdateVersion, FeatureUpdateFailed, ...; from 4.0 on all of them are done, or none, and that error is raised itself.
        """
        wanted = {
            check_name("levels", name): check_count("levels", level, low=0, high=INT16)
            for name, level in check_mapping("levels", levels, '{"metadata.version": 29}').items()
        }
        if downgrade not in DOWNGRADES:
            raise ConfigurationError(f"downgrade={downgrade!r}: must be one of {', '.join(DOWNGRADES)}")
        deadline = self._requests.begin(timeout)

        def attempt(left: list[str]) -> dict[str, KafkaException | None]:
            updates = [FeatureUpdateKey(feature=f, max_version_level=wanted[f], upgrade_type=DOWNGRADES[downgrade]) for f in left]
            request = UpdateFeaturesRequest(
                timeout_ms=self._requests.share_ms(deadline), feature_updates=updates, validate_only=validate_only
            )
            response, broker = self._requests.controller(request, deadline)
            _raise(response, broker, "UpdateFeatures")
            told = {r.feature: error_for(r.error_code, r.error_message, broker=broker, api="UpdateFeatures") for r in response.results}
            return dict.fromkeys(left) | told

        self._requests.settle("updating features", wanted, attempt, deadline)


def _api_versions() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="gkafka", client_software_version="admin")


def _raise(answer: Any, broker: str, api: str) -> None:
    error = error_for(answer.error_code, getattr(answer, "error_message", None), broker=broker, api=api)
    if error is not None:
        raise error


def _quorum(state: Any, nodes: Any) -> QuorumDescription:
    def replicas(told: Any) -> tuple[QuorumReplica, ...]:
        return tuple(
            QuorumReplica(r.replica_id, r.replica_directory_id, r.log_end_offset, r.last_fetch_timestamp, r.last_caught_up_timestamp)
            for r in told
        )

    endpoints = {node.node_id: {at.name: (at.host, at.port) for at in node.listeners} for node in nodes}
    return QuorumDescription(
        state.leader_id, state.leader_epoch, state.high_watermark, replicas(state.current_voters), replicas(state.observers), endpoints
    )
