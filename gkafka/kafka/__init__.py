"""kafka-python's API: `from gkafka.kafka import KafkaConsumer, KafkaProducer`, or `from gkafka import kafka`, is the whole migration.

The names, arguments, defaults and results of kafka-python 1.4 as it is documented, and those of its newer versions where they mean something
here. Beneath is gkafka's native API: what fails raises gkafka's exceptions, under kafka-python's names (`gkafka.kafka.errors`). What differs is
listed in docs/kafka-python.md.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from gkafka.kafka.client_async import KafkaClient
from gkafka.kafka.consumer.group import KafkaConsumer
from gkafka.kafka.consumer.subscription_state import ConsumerRebalanceListener
from gkafka.kafka.producer.kafka import KafkaProducer
from gkafka.kafka.serializer import Deserializer, Serializer
from gkafka.kafka.structs import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    from gkafka.kafka.admin.client import KafkaAdminClient
    from gkafka.kafka.legacy.client import KafkaClient as SimpleClient
    from gkafka.kafka.legacy.producer import SimpleProducer
    from gkafka.kafka.legacy.simple import SimpleConsumer

__all__ = [
    "ConsumerRebalanceListener",
    "Deserializer",
    "KafkaAdminClient",
    "KafkaClient",
    "KafkaConsumer",
    "KafkaProducer",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "Serializer",
    "SimpleClient",
    "SimpleConsumer",
    "SimpleProducer",
    "TopicPartition",
]

_LEGACY = {"SimpleClient": "KafkaClient", "SimpleConsumer": "SimpleConsumer", "SimpleProducer": "SimpleProducer"}


def __getattr__(name: str) -> Any:
    """The administrator, and what 1.4 keeps of 0.9, are imported when they are used."""
    if name == "KafkaAdminClient":
        return importlib.import_module("gkafka.kafka.admin").KafkaAdminClient
    if name not in _LEGACY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("gkafka.kafka.legacy"), _LEGACY[name])
