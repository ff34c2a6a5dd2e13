"""kafka-python's producer (kafka.producer)."""

from gkafka.kafka.producer.kafka import KafkaProducer

__all__ = ["KafkaProducer"]
