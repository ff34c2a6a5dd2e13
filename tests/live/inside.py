"""What can be seen of a broker, and done to it, from outside Kafka's protocol: its log on the disk, its process, its configuration."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from gkafka.common import CompressionType
from gkafka.records import scan
from tests.live.kafka import KafkaCluster

__all__ = ["alter_topic", "batches", "delete_records", "frozen", "log_file", "members"]


def log_file(kafka: KafkaCluster, topic: str, partition: int = 0) -> Path:
    """The first segment of a partition, of a cluster of one node."""
    (node,) = kafka.nodes
    return node.jvm.folder / "data" / f"{topic}-{partition}" / f"{0:020}.log"


def batches(kafka: KafkaCluster, topic: str, partition: int = 0) -> list[tuple[int, str]]:
    """(records, codec) of each batch as the broker stores it."""
    found = scan(log_file(kafka, topic, partition).read_bytes())
    return [(header.count, CompressionType(header.codec).name.lower()) for header in found]


@contextlib.contextmanager
def frozen(kafka: KafkaCluster, node: int = 1) -> Iterator[None]:
    """Meanwhile the node is stopped: its connections stay, and nothing is answered."""
    kafka.suspend(node)
    try:
        yield
    finally:
        kafka.resume(node)


def alter_topic(hosts: str, topic: str, **configs: object) -> None:
    """Set a topic's configuration, through another client."""
    from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource  # type: ignore[attr-defined]

    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    for name, value in configs.items():
        resource.add_incremental_config(ConfigEntry(name.replace("_", "."), str(value), incremental_operation=AlterConfigOpType.SET))
    admin = AdminClient({"bootstrap.servers": hosts})  # its answers come as long as it lives
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(60)


def delete_records(hosts: str, topic: str, partition: int, before: int) -> None:
    """Have the partition begin at this offset, through another client."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": hosts})
    for done in admin.delete_records([TopicPartition(topic, partition, before)]).values():
        done.result(60)


def members(hosts: str, group: str) -> list[str]:
    """The client ids of a group's members, as another client is told of them."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": hosts})
    return [str(member.client_id) for member in admin.describe_consumer_groups([group])[group].result(60).members]
