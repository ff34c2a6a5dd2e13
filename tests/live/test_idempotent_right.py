"""What a producer without the right IdempotentWrite is told by a Kafka before 2.8, which wants it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from gkafka import KafkaClient
from gkafka.admin import Acl, AclOperation, Permission, ResourceType
from gkafka.exceptions import ClusterAuthorizationFailed, DeliveryError
from tests.live.kafka import KafkaCluster
from tests.live.pool import POOL
from tests.live.sharing import until


@pytest.fixture
def kafka() -> KafkaCluster:
    """A broker that lets everybody do what nobody forbids."""
    return POOL.get("1.1.1", kind="guarded of old")


def test_the_error_names_the_right_and_the_way_without_it(kafka: KafkaCluster, handler: str, new_name: Callable[[str], str]) -> None:
    topic, nobody = new_name("right"), ("kafka-cluster", "User:ANONYMOUS")
    kafka.create_topic(topic)
    with KafkaClient(kafka.hosts, handler=handler) as client:

        def refusal() -> str:
            producer = client.get_producer()
            try:
                producer.produce(topic, b"x").result(60)
            except ClusterAuthorizationFailed as error:
                return str(error)
            finally:
                with suppress(DeliveryError):
                    producer.close(10)
            return ""

        rules = [
            Acl(ResourceType.CLUSTER, *nobody, AclOperation.ALL),
            Acl(ResourceType.CLUSTER, *nobody, AclOperation.IDEMPOTENT_WRITE, Permission.DENY),
        ]
        client.admin().create_acls(rules)
        told = until(refusal)  # the authorizer hears of it from ZooKeeper
        assert "InitProducerId" in told
        assert "the right IdempotentWrite on the cluster" in told
        assert "enable_idempotence=False" in told
        assert client.get_producer(enable_idempotence=False).produce(topic, b"x").result(60).offset >= 0
        client.admin().delete_acls(rules, dry_run=False)
