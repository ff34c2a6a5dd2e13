"""The independent administrator: kafka-python's, as few words as the tests need. What it tells is compared as text where its shapes are its own."""

from __future__ import annotations

import warnings
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its tables in a way that Python gives up
    from kafka import KafkaConsumer, TopicPartition  # type: ignore[import-untyped]
    from kafka.admin import (  # type: ignore[import-untyped]
        ACLFilter,
        ACLOperation,
        ACLPermissionType,
        ACLResourcePatternType,
        ConfigResource,
        ConfigResourceType,
        KafkaAdminClient,
        ResourcePatternFilter,
        ResourceType,
    )

__all__ = ["OtherAdmin"]


class OtherAdmin:
    """What another client sees."""

    def __init__(self, hosts: str) -> None:
        self._hosts = hosts
        self.client: Any = KafkaAdminClient(bootstrap_servers=hosts)

    def close(self) -> None:
        self.client.close()

    def topics(self) -> set[str]:
        return set(self.client.list_topics())

    def partitions(self, topic: str) -> int:
        (told,) = self.client.describe_topics([topic])
        return len(told["partitions"])

    def configs(self, topic: str) -> str:
        return str(self.client.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)]))

    def groups(self) -> str:
        return str(self.client.list_groups())

    def acls(self, name: str) -> str:
        pattern = ResourcePatternFilter(ResourceType.ANY, name, ACLResourcePatternType.ANY)
        wanted = ACLFilter(
            principal=None, host=None, operation=ACLOperation.ANY, permission_type=ACLPermissionType.ANY, resource_pattern=pattern
        )
        return str(self.client.describe_acls(wanted))

    def beginning(self, topic: str, partition: int) -> int:
        with_it = self._consumer()
        try:
            start: int = with_it.beginning_offsets([TopicPartition(topic, partition)])[TopicPartition(topic, partition)]
            return start
        finally:
            with_it.close()

    def committed(self, group: str, topic: str, partitions: int) -> list[int | None]:
        consumer = self._consumer(group_id=group, enable_auto_commit=False)
        try:
            return [consumer.committed(TopicPartition(topic, p)) for p in range(partitions)]
        finally:
            consumer.close()

    def _consumer(self, **options: Any) -> Any:
        return KafkaConsumer(bootstrap_servers=self._hosts, **options)
