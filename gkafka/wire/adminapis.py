"""The APIs of administration, which most programs never use: their tables are read when one is asked for, not with the others."""

from __future__ import annotations

from gkafka.wire import access, clusteradmin, configs, groupadmin, placement, quotas, topicadmin, txnadmin
from gkafka.wire.schema import Api

__all__ = ["ADMIN_APIS"]

ADMIN_APIS: dict[int, Api] = {
    cls.API.key: cls.API
    for cls in (
        topicadmin.DeleteRecordsRequest,
        txnadmin.WriteTxnMarkersRequest,
        access.DescribeAclsRequest,
        access.CreateAclsRequest,
        access.DeleteAclsRequest,
        configs.DescribeConfigsRequest,
        configs.AlterConfigsRequest,
        placement.AlterReplicaLogDirsRequest,
        placement.DescribeLogDirsRequest,
        topicadmin.CreatePartitionsRequest,
        groupadmin.DeleteGroupsRequest,
        placement.ElectLeadersRequest,
        configs.IncrementalAlterConfigsRequest,
        placement.AlterPartitionReassignmentsRequest,
        placement.ListPartitionReassignmentsRequest,
        groupadmin.OffsetDeleteRequest,
        quotas.DescribeClientQuotasRequest,
        quotas.AlterClientQuotasRequest,
        access.DescribeUserScramCredentialsRequest,
        access.AlterUserScramCredentialsRequest,
        clusteradmin.DescribeQuorumRequest,
        clusteradmin.UpdateFeaturesRequest,
        clusteradmin.DescribeClusterRequest,
        txnadmin.DescribeProducersRequest,
        txnadmin.DescribeTransactionsRequest,
        txnadmin.ListTransactionsRequest,
        topicadmin.DescribeTopicPartitionsRequest,
    )
}
