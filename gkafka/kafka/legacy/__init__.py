"""kafka-python 0.9's API: `from gkafka.kafka.legacy import KafkaClient, SimpleConsumer` in place of `from kafka import ...`.

Its KafkaConsumer is another one than that of newer versions, `gkafka.kafka.KafkaConsumer`, though both were kafka.KafkaConsumer in their time. What
differs from kafka-python is listed by `kafka-tools docs kafka-python-legacy`.
"""

from gkafka.kafka.legacy.base import Consumer
from gkafka.kafka.legacy.client import KafkaClient
from gkafka.kafka.legacy.common import (
    ConsumerFetchSizeTooSmall,
    ConsumerProcessError,
    ConsumerTimeout,
    KafkaMessage,
    Message,
    OffsetAndMessage,
    OffsetOutOfRange,
    OffsetOutOfRangeError,
    ProduceResponse,
    TopicPartition,
)
from gkafka.kafka.legacy.kafka import KafkaConsumer, OffsetsStruct
from gkafka.kafka.legacy.multiprocess import MultiProcessConsumer
from gkafka.kafka.legacy.producer import CODEC_GZIP, CODEC_NONE, CODEC_SNAPPY, KeyedProducer, Producer, SimpleProducer
from gkafka.kafka.legacy.simple import FetchContext, SimpleConsumer

__all__ = [
    "CODEC_GZIP",
    "CODEC_NONE",
    "CODEC_SNAPPY",
    "Consumer",
    "ConsumerFetchSizeTooSmall",
    "ConsumerProcessError",
    "ConsumerTimeout",
    "FetchContext",
    "KafkaClient",
    "KafkaConsumer",
    "KafkaMessage",
    "KeyedProducer",
    "Message",
    "MultiProcessConsumer",
    "OffsetAndMessage",
    "OffsetOutOfRange",
    "OffsetOutOfRangeError",
    "OffsetsStruct",
    "ProduceResponse",
    "Producer",
    "SimpleConsumer",
    "SimpleProducer",
    "TopicPartition",
]
