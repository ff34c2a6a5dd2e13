"""A producer's options in kafka-python and in gkafka, and errors by the former."""

from __future__ import annotations

from gkafka.exceptions import KafkaException
from gkafka.kafka import options

__all__ = ["NAMES", "OTHER_NAMES", "retold"]

NAMES = {
    "compression_type": "compression",
    "linger_ms": "linger_ms",
    "buffer_memory": "buffer_bytes",
    "max_block_ms": "max_block_ms",
    "max_request_size": "max_request_bytes",
    "request_timeout_ms": "request_timeout_ms",
    "retry_backoff_ms": "retry_backoff_ms",
    "delivery_timeout_ms": "delivery_timeout_ms",
    "max_in_flight_requests_per_connection": "max_in_flight",
    "transactional_id": "transactional_id",
    "transaction_timeout_ms": "transaction_timeout_ms",
}
OTHER_NAMES = {
    **{ours: theirs for theirs, ours in NAMES.items() if ours != theirs},
    "batch_bytes": "batch_size",
    "socket_timeout_ms": "request_timeout_ms",
    "offsets_channel_socket_timeout_ms": "request_timeout_ms",
}


def retold(error: KafkaException) -> None:
    """An error about one of gkafka's options names kafka-python's."""
    options.retold(error, OTHER_NAMES)
