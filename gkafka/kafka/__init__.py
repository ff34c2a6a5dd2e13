"""kafka-python's API: `from gkafka.kafka import KafkaConsumer, KafkaProducer`, or `from gkafka import kafka`, is the whole migration.

The names, arguments, defaults and results of kafka-python 1.4 as it is documented, and those of its newer versions where they mean something
here. Beneath is gkafka's native API: what fails raises gkafka's exceptions, under kafka-python's names (`gkafka.kafka.errors`). What differs is
listed by `kafka-tools docs kafka-python`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gkafka.kafka.admin.client import KafkaAdminClient
    from gkafka.kafka.admin.partitions import OffsetSpec
    from gkafka.kafka.client_async import KafkaClient
    from gkafka.kafka.consumer.group import KafkaConsumer
    from gkafka.kafka.consumer.subscription_state import ConsumerRebalanceListener
    from gkafka.kafka.legacy.client import KafkaClient as SimpleClient
    from gkafka.kafka.legacy.multiprocess import MultiProcessConsumer
    from gkafka.kafka.legacy.producer import KeyedProducer, SimpleProducer
    from gkafka.kafka.legacy.simple import SimpleConsumer
    from gkafka.kafka.producer.kafka import KafkaProducer
    from gkafka.kafka.serializer import DefaultSerializer, Deserializer, JsonSerializer, Serializer
    from gkafka.kafka.structs import (
        ConsumerGroupMetadata,
        IsolationLevel,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        TopicPartition,
        TopicPartitionReplica,
    )

__all__ = [
    "ConsumerGroupMetadata",
    "ConsumerRebalanceListener",
    "DefaultSerializer",
    "Deserializer",
    "IsolationLevel",
    "JsonSerializer",
    "KafkaAdminClient",
    "KafkaClient",
    "KafkaConsumer",
    "KafkaProducer",
    "KeyedProducer",
    "MultiProcessConsumer",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetSpec",
    "Serializer",
    "SimpleClient",
    "SimpleConsumer",
    "SimpleProducer",
    "TopicPartition",
    "TopicPartitionReplica",
]

_HOMES = {
    "ConsumerGroupMetadata": "structs",
    "ConsumerRebalanceListener": "consumer.subscription_state",
    "DefaultSerializer": "serializer",
    "Deserializer": "serializer",
    "IsolationLevel": "structs",
    "JsonSerializer": "serializer",
    "KafkaAdminClient": "admin",
    "KafkaClient": "client_async",
    "KafkaConsumer": "consumer.group",
    "KafkaProducer": "producer.kafka",
    "KeyedProducer": "legacy.producer",
    "MultiProcessConsumer": "legacy.multiprocess",
    "OffsetAndMetadata": "structs",
    "OffsetAndTimestamp": "structs",
    "OffsetSpec": "admin",
    "Serializer": "serializer",
    "SimpleClient": "legacy.client",
    "SimpleConsumer": "legacy.simple",
    "SimpleProducer": "legacy.producer",
    "TopicPartition": "structs",
    "TopicPartitionReplica": "structs",
}
_NAMED = {"SimpleClient": "KafkaClient"}
_ROOMS = (
    *(
        "admin",
        "arguments",
        "client_async",
        "cluster",
        "common",
        "consumer",
        "coordinator",
        "errors",
        "future",
        "legacy",
        "metrics",
        "options",
    ),
    *("partitioner", "producer", "protocol", "serializer", "structs"),
)
"""What `import kafka` brings along as its attributes."""


def __getattr__(name: str) -> Any:
    # Loaded when first used: who imports this module pays for what is used of it.
    import importlib

    if name in _ROOMS:
        return importlib.import_module(f"gkafka.kafka.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = importlib.import_module(f"gkafka.kafka.{_HOMES[name]}")
    except AttributeError as exc:
        # Python would take it for this module's own and say no more than "cannot import name".
        raise ImportError(f"gkafka.kafka.{_HOMES[name]} does not load: {exc}") from exc
    return getattr(module, _NAMED.get(name, name))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_ROOMS})
