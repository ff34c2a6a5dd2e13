"""kafka-python's consumer (kafka.consumer)."""

from gkafka.kafka.consumer.group import KafkaConsumer

__all__ = ["KafkaConsumer"]
