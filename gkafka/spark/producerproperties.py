"""kafka.* options of the sink: the Java producer's properties as keyword arguments of `client.get_producer()`; the rest is the client's.

Nothing here imports pyspark.
Source: https://kafka.apache.org/documentation/#producerconfigs, KafkaSourceProvider.kafkaParamsForProducer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gkafka.common import IsolationLevel
from gkafka.config import ProducerConfig
from gkafka.javanames import COMPRESSION_LEVELS, FACTORS, NAMES
from gkafka.spark import kafkaproperties as reading
from gkafka.spark.kafkaproperties import (
    CLIENT_NO_EFFECT,
    CLIENT_READERS,
    FETCH_BYTES,
    IDLE_MS,
    KafkaProperties,
    client_options,
    known_properties,
    typed,
)

__all__ = ["PRODUCER_NAMES", "PROPERTIES", "WriteProperties", "translate_for_writing"]

PRODUCER_NAMES = {
    "acks": "acks",
    "ack.timeout.ms": "ack_timeout_ms",
    "batch.size": "batch_bytes",
    "buffer.memory": "buffer_bytes",
    "compression.type": "compression",
    "delivery.timeout.ms": "delivery_timeout_ms",
    "enable.idempotence": "enable_idempotence",
    "linger.ms": "linger_ms",
    "max.block.ms": "max_block_ms",
    "max.in.flight.requests.per.connection": "max_in_flight",
    "max.request.size": "max_request_bytes",
    "retries": "retries",
    "retry.backoff.ms": "retry_backoff_ms",
    "retry.backoff.max.ms": "retry_backoff_max_ms",
    "transaction.timeout.ms": "transaction_timeout_ms",
}
"""Properties of the Java producer, and one of gkafka's own, as options of gkafka's producer."""

LEVELS = COMPRESSION_LEVELS
OTHER_NAMES = {name: option for name, option in NAMES.items() if option in set(PRODUCER_NAMES.values()) and name not in PRODUCER_NAMES}
"""librdkafka's for the same."""
NO_EFFECT = {
    **dict.fromkeys(
        {*reading.READERS, *reading.NO_EFFECT, *reading.REFUSED}
        - {*CLIENT_READERS, *CLIENT_NO_EFFECT, *reading.PRODUCERS, *OTHER_NAMES, "interceptor.classes"},
        "it is a property of consumers, and this writes",
    ),
    **{name: why for name, why in CLIENT_NO_EFFECT.items() if name not in PRODUCER_NAMES},
    "partitioner.adaptive.partitioning.enable": "of two partitions the one with the shorter queue is taken, always",
    "partitioner.availability.timeout.ms": "partitions without a leader get no records without a key",
}
COMPUTE = "gkafka loads no Java class; a key's partition is that of Java's default partitioner: for another compute the column 'partition'"
REFUSED = {
    "key.serializer": "Kafka option 'key.serializer' is not supported as keys are serialized with ByteArraySerializer. "
    "Cast the column 'key' to string or binary.",
    "value.serializer": "Kafka option 'value.serializer' is not supported as value are serialized with ByteArraySerializer. "
    "Cast the column 'value' to string or binary.",
    "interceptor.classes": "Kafka option 'interceptor.classes' is not supported",
    "partitioner.class": f"Kafka option 'partitioner.class' is not supported: {COMPUTE}",
    "partitioner": f"Kafka option 'partitioner' is not supported: {COMPUTE}",
    "partitioner.ignore.keys": "Kafka option 'partitioner.ignore.keys' is not supported: leave the column 'key' out, or compute the column 'partition'",
    "transactional.id": "Kafka option 'transactional.id' is not supported, tasks would fence each other: set exactlyOnce=transactional, and "
    "transactionalIdPrefix to choose how the ids begin",
    "transaction.two.phase.commit.enable": "Kafka option 'transaction.two.phase.commit.enable' is not supported: set exactlyOnce=transactional",
}


@dataclass(frozen=True)
class WriteProperties:
    """client: what a client is made of. producer: keyword arguments of get_producer(). warnings: for the user."""

    client: KafkaProperties
    producer: Mapping[str, Any]
    warnings: tuple[str, ...]


def translate_for_writing(given: Mapping[str, str]) -> WriteProperties:
    """given: the properties without their "kafka.". Raises ConfigurationError."""
    values, client, warnings = client_options(given, READERS, NO_EFFECT, REFUSED, "consumer")  # the JVM connector says so in its sink, too
    producer = {option: values[name] for name, option in {**OTHER_NAMES, **PRODUCER_NAMES}.items() if name in values}
    if "compression.level" in values and "compression" in producer:
        producer["compression_level"] = values["compression.level"]
    for name, codec in LEVELS.items():
        if name in values and producer.get("compression") == codec:
            producer["compression_level"] = values[name]
        elif name in values:
            warnings.append(f"kafka.{name} has no effect: kafka.compression.type is {producer.get('compression') or 'none'}")
    if "request.timeout.ms" in given:
        producer["request_timeout_ms"] = typed(ProducerConfig, "request_timeout_ms", "request.timeout.ms", given["request.timeout.ms"])
    properties = KafkaProperties(
        hosts=values["bootstrap.servers"],
        client=client,
        isolation=IsolationLevel.READ_UNCOMMITTED,
        check_crcs=True,
        fetch_bytes=FETCH_BYTES,
        fetch_wait_ms=500,
        idle_ms=values.get("connections.max.idle.ms", IDLE_MS),
        group_id=None,
        warnings=(),
    )
    return WriteProperties(properties, producer, tuple(warnings))


def _reader(option: str) -> Callable[[str, str], Any]:
    def read(name: str, text: str) -> Any:
        text = text.strip().lower()
        if option == "compression" and text in ("none", "inherit"):
            return None
        return typed(ProducerConfig, option, name, text, factor=FACTORS.get(name, 1))

    return read


READERS: dict[str, Callable[[str, str], Any]] = {
    **CLIENT_READERS,
    **{name: _reader(option) for name, option in {**PRODUCER_NAMES, **OTHER_NAMES}.items()},
    "compression.level": _reader("compression_level"),
    **{name: _reader("compression_level") for name in LEVELS},
}
PROPERTIES = known_properties(READERS, NO_EFFECT, REFUSED)
