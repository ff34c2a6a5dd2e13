"""kafka-python's API: `from gkafka.kafka import KafkaConsumer, KafkaProducer`, or `from gkafka import kafka`, is the whole migration.

The names, arguments, defaults and results of kafka-python 1.4 as it is documented, and those of its newer versions where they mean something
here. Beneath is gkafka's native API: what fails raises gkafka's exceptions, under kafka-python's names (`gkafka.kafka.errors`). What differs is
listed in docs/kafka-python.md.
"""

from gkafka.kafka.client_async import KafkaClient
from gkafka.kafka.consumer.group import KafkaConsumer
from gkafka.kafka.consumer.subscription_state import ConsumerRebalanceListener
from gkafka.kafka.producer.kafka import KafkaProducer
from gkafka.kafka.serializer import Deserializer, Serializer
from gkafka.kafka.structs import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

__all__ = [
    "ConsumerRebalanceListener",
    "Deserializer",
    "KafkaClient",
    "KafkaConsumer",
    "KafkaProducer",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "Serializer",
    "TopicPartition",
]
