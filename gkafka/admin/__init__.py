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

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gkafka.admin.acls import Acl, AclFilter
    from gkafka.admin.administrator import Admin
    from gkafka.admin.changes import Append, Subtract
    from gkafka.admin.clusters import BrokerNode, ClusterDescription, Features, QuorumDescription, QuorumReplica
    from gkafka.admin.configs import ConfigEntry, ConfigResource, ConfigSynonym
    from gkafka.admin.enums import AclOperation, ConfigResourceType, ConfigSource, PatternType, Permission, ResourceType, ScramMechanism
    from gkafka.admin.groups import GroupDescription, GroupListing, GroupMember
    from gkafka.admin.offsets import FoundOffset, GroupOffset, OffsetReset
    from gkafka.admin.placement import LogDir, Reassignment, ReplicaInDir, ReplicaOnBroker
    from gkafka.admin.quotas import Quota
    from gkafka.admin.topics import CreatedTopic, NewTopic, PartitionDescription, TopicDescription, TopicListing
    from gkafka.admin.transactions import ProducerState, TransactionDescription, TransactionListing
    from gkafka.admin.users import ScramCredential

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

_HOMES = {
    "Acl": "acls",
    "AclFilter": "acls",
    "AclOperation": "enums",
    "Admin": "administrator",
    "Append": "changes",
    "BrokerNode": "clusters",
    "ClusterDescription": "clusters",
    "ConfigEntry": "configs",
    "ConfigResource": "configs",
    "ConfigResourceType": "enums",
    "ConfigSource": "enums",
    "ConfigSynonym": "configs",
    "CreatedTopic": "topics",
    "Features": "clusters",
    "FoundOffset": "offsets",
    "GroupDescription": "groups",
    "GroupListing": "groups",
    "GroupMember": "groups",
    "GroupOffset": "offsets",
    "LogDir": "placement",
    "NewTopic": "topics",
    "OffsetReset": "offsets",
    "PartitionDescription": "topics",
    "PatternType": "enums",
    "Permission": "enums",
    "ProducerState": "transactions",
    "QuorumDescription": "clusters",
    "QuorumReplica": "clusters",
    "Quota": "quotas",
    "Reassignment": "placement",
    "ReplicaInDir": "placement",
    "ReplicaOnBroker": "placement",
    "ResourceType": "enums",
    "ScramCredential": "users",
    "ScramMechanism": "enums",
    "Subtract": "changes",
    "TopicDescription": "topics",
    "TopicListing": "topics",
    "TransactionDescription": "transactions",
    "TransactionListing": "transactions",
}


def __getattr__(name: str) -> Any:
    # Loaded when first used: whoever asks for topics alone waits for no tables of ACLs, quotas and transactions.
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'gkafka.admin' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"gkafka.admin.{home}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
