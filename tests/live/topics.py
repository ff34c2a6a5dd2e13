"""Topics made without gkafka: through confluent-kafka's admin client, or, for versions without CreateTopics, in ZooKeeper."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

__all__ = ["create", "create_in_zookeeper"]


def create(hosts: str, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": hosts, "log_level": 0})
    topic = NewTopic(name, num_partitions=partitions, replication_factor=replication_factor, config=dict(configs))
    for made in admin.create_topics([topic], request_timeout=30).values():
        made.result(30)


def create_in_zookeeper(zookeeper: str, name: str, partitions: int, brokers: Sequence[int], configs: Mapping[str, str]) -> None:
    """What kafka.admin.AdminUtils writes: the config node, then the assignment that the controller watches."""
    from kazoo.client import KazooClient  # type: ignore[import-untyped]

    # Partition p is led by the p-th broker, round robin, and replicated on all of them.
    assignment = {str(p): [*brokers[p % len(brokers) :], *brokers[: p % len(brokers)]] for p in range(partitions)}
    client = KazooClient(zookeeper)
    client.start(timeout=15)
    try:
        client.create(f"/config/topics/{name}", json.dumps({"version": 1, "config": configs}).encode(), makepath=True)
        client.create(f"/brokers/topics/{name}", json.dumps({"version": 1, "partitions": assignment}).encode(), makepath=True)
    finally:
        client.stop()
        client.close()
