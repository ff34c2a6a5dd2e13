"""Administration: what `client.admin()` gives. Topics, configurations, quotas, groups and their offsets, the cluster, replicas, ACLs, SCRAM
users, transactions.

Every call goes to the brokers that it belongs to (the controller, coordinators, leaders, each broker), and is tried again where that may help
until `timeout` seconds are over; None is the client's api_timeout_ms.

**Errors, one rule.** A call takes any number of things (a list, a mapping) and returns a result for each. If some fail, the others are done
all the same, and AdminError is raised: its `errors` has the error of each thing that failed, its `results` what the call would have returned
of the others. That is so for one thing, too. What concerns the call as a whole (no broker answers, none speaks the request, the client may
not do this at all, the answer of the group's coordinator about the group) is raised as itself, as is everything of a call that takes a single thing. What is given
wrong is a ConfigurationError before anything is sent. Descriptions may tell of what is wrong with the thing described (a partition without
a leader, a directory that is offline): that is no failure of the call.

Whatever cannot be taken back is planned first: reset_group_offsets() and delete_acls() change nothing unless dry_run=False says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gkafka.admin.acls import Acl, AclFilter, AclsAdmin
from gkafka.admin.clusters import BrokerNode, ClusterAdmin, ClusterDescription, Features, QuorumDescription, QuorumReplica
from gkafka.admin.configs import Append, ConfigEntry, ConfigResource, ConfigsAdmin, ConfigSynonym, Subtract
from gkafka.admin.enums import (
    AclOperation,
    ConfigResourceType,
    ConfigSource,
    PatternType,
    Permission,
    ResourceType,
    ScramMechanism,
)
from gkafka.admin.groups import GroupDescription, GroupListing, GroupMember
from gkafka.admin.offsets import FoundOffset, GroupOffset, OffsetReset, OffsetsAdmin
from gkafka.admin.placement import LogDir, PlacementAdmin, Reassignment, ReplicaInDir, ReplicaOnBroker
from gkafka.admin.quotas import Quota, QuotasAdmin
from gkafka.admin.requests import Requests
from gkafka.admin.topics import CreatedTopic, NewTopic, PartitionDescription, TopicDescription, TopicListing
from gkafka.admin.transactions import ProducerState, TransactionDescription, TransactionListing, TransactionsAdmin
from gkafka.admin.users import ScramCredential, UsersAdmin

if TYPE_CHECKING:
    from gkafka.cluster import Cluster

__all__ = [
    "Acl",
    "AclFilter",
    "AclOperation",
    "Admin",
    "Append",
    "BrokerNode",
    "ClusterDescription",
    "ConfigEntry",
    "ConfigResource",
    "ConfigResourceType",
    "ConfigSource",
    "ConfigSynonym",
    "CreatedTopic",
    "Features",
    "FoundOffset",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "GroupOffset",
    "LogDir",
    "NewTopic",
    "OffsetReset",
    "PartitionDescription",
    "PatternType",
    "Permission",
    "ProducerState",
    "QuorumDescription",
    "QuorumReplica",
    "Quota",
    "Reassignment",
    "ReplicaInDir",
    "ReplicaOnBroker",
    "ResourceType",
    "ScramCredential",
    "ScramMechanism",
    "Subtract",
    "TopicDescription",
    "TopicListing",
    "TransactionDescription",
    "TransactionListing",
]


class Admin(OffsetsAdmin, ConfigsAdmin, QuotasAdmin, ClusterAdmin, PlacementAdmin, AclsAdmin, UsersAdmin, TransactionsAdmin):
    """A client's administrator, on the client's connections: it has nothing of its own to close. Made by `client.admin()`."""

    def __init__(self, cluster: Cluster, retry_backoff_ms: float = 100) -> None:
        self._requests = Requests(cluster, retry_backoff_ms)
