"""Kafka brokers for tests, inside the test's own process: real sockets, scripted faults, no Java.

    from gkafka import KafkaClient
    from gkafka.testing import Close, MockCluster

    with MockCluster(brokers=3, topics={"orders": 4}) as cluster:
        cluster.on("Produce", Close(before=False))       # the batch is stored, its acknowledgement is lost
        with KafkaClient(cluster.bootstrap) as client:
            client.get_producer().produce("orders", b"hello", partition=0).result(10)
        assert [record.value for record in cluster.log("orders", 0)] == [b"hello"]     # retried, and not stored twice

`MockCluster` says what it serves and what it does not. It needs nothing beyond gkafka; any Kafka client can be tested on it.
"""

from gkafka.testing.actions import Action, Close, Corrupt, Delay, Drop, Edit, Error, Reply
from gkafka.testing.cluster import MockCluster, RecordedRequest, TransactionSeen
from gkafka.testing.groupkeeper import GroupMember, GroupSeen
from gkafka.testing.logs import StoredRecord
from gkafka.testing.sasl import Sasl
from gkafka.testing.state import Committed

__all__ = [
    "Action",
    "Close",
    "Committed",
    "Corrupt",
    "Delay",
    "Drop",
    "Edit",
    "Error",
    "GroupMember",
    "GroupSeen",
    "MockCluster",
    "RecordedRequest",
    "Reply",
    "Sasl",
    "StoredRecord",
    "TransactionSeen",
]
