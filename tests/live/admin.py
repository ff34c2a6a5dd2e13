"""What tests do to a cluster without gkafka: through confluent-kafka's admin client or, for old versions, in ZooKeeper."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.kit.clock import PATIENCE_S, now

__all__ = ["create", "create_in_zookeeper", "wait_until_unregistered"]


def create(hosts: str, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]) -> None:
    """Tried again where the controller answers that it does not know what happened, as one does whose session with ZooKeeper has just ended."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": hosts, "log_level": 0})
    topic = NewTopic(name, num_partitions=partitions, replication_factor=replication_factor, config=dict(configs))
    deadline, may_be_there = now() + PATIENCE_S, False
    while True:
        try:
            (made,) = admin.create_topics([topic], request_timeout=60).values()
            made.result(60)
            return
        except KafkaException as exc:
            code = exc.args[0].code()
            if may_be_there and code == KafkaError.TOPIC_ALREADY_EXISTS:
                return
            if code != KafkaError.UNKNOWN or now() > deadline:
                raise
            may_be_there = True
            time.sleep(0.5)


def create_in_zookeeper(zookeeper: str, name: str, partitions: int, brokers: Sequence[int], configs: Mapping[str, str]) -> None:
    """What kafka.admin.AdminUtils writes: the config node, then the assignment that the controller watches."""
    # Partition p is led by the p-th broker, round robin, and replicated on all of them.
    assignment = {str(p): [*brokers[p % len(brokers) :], *brokers[: p % len(brokers)]] for p in range(partitions)}
    with _connected(zookeeper) as client:
        client.create(f"/config/topics/{name}", json.dumps({"version": 1, "config": configs}).encode(), makepath=True)
        client.create(f"/brokers/topics/{name}", json.dumps({"version": 1, "partitions": assignment}).encode(), makepath=True)


def wait_until_unregistered(zookeeper: str, broker: int, timeout: float) -> None:
    """A killed broker is registered until its ZooKeeper session ends; before that its successor would refuse to start."""
    deadline = now() + timeout
    with _connected(zookeeper) as client:
        while client.exists(f"/brokers/ids/{broker}"):
            if now() > deadline:
                raise TimeoutError(f"broker {broker} is still registered in ZooKeeper after {timeout:g} s")
            time.sleep(0.05)


@contextlib.contextmanager
def _connected(zookeeper: str) -> Iterator[Any]:
    from kazoo.client import KazooClient

    client = KazooClient(zookeeper)
    client.start(timeout=60)
    try:
        yield client
    finally:
        client.stop()
        client.close()
