"""kafka-python's administration (kafka.admin): KafkaAdminClient, and what its calls are given and give."""

from gkafka.kafka.admin.acl_resource import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)
from gkafka.kafka.admin.client import KafkaAdminClient
from gkafka.kafka.admin.cluster import UpdateFeatureType
from gkafka.kafka.admin.config_resource import (
    AlterConfigOp,
    ConfigFilterType,
    ConfigResource,
    ConfigResourceType,
    ConfigSourceType,
    ConfigType,
)
from gkafka.kafka.admin.groups import GroupState, GroupType, MemberToRemove
from gkafka.kafka.admin.new_partitions import NewPartitions
from gkafka.kafka.admin.new_topic import NewTopic
from gkafka.kafka.admin.partitions import ElectionType, OffsetSpec, OffsetTimestamp
from gkafka.kafka.admin.transactions import (
    AbortTransactionSpec,
    PartitionProducerState,
    ProducerState,
    TransactionDescription,
    TransactionListing,
    TransactionState,
)
from gkafka.kafka.admin.users import ScramMechanism, UserScramCredentialDeletion, UserScramCredentialUpsertion

__all__ = [
    "ACL",
    "ACLFilter",
    "ACLOperation",
    "ACLPermissionType",
    "ACLResourcePatternType",
    "AbortTransactionSpec",
    "AlterConfigOp",
    "ConfigFilterType",
    "ConfigResource",
    "ConfigResourceType",
    "ConfigSourceType",
    "ConfigType",
    "ElectionType",
    "GroupState",
    "GroupType",
    "KafkaAdminClient",
    "MemberToRemove",
    "NewPartitions",
    "NewTopic",
    "OffsetSpec",
    "OffsetTimestamp",
    "PartitionProducerState",
    "ProducerState",
    "ResourcePattern",
    "ResourcePatternFilter",
    "ResourceType",
    "ScramMechanism",
    "TransactionDescription",
    "TransactionListing",
    "TransactionState",
    "UpdateFeatureType",
    "UserScramCredentialDeletion",
    "UserScramCredentialUpsertion",
]
