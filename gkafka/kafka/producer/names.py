"""A producer's options in kafka-python and in gkafka, and errors by the former; which codecs go with which brokers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gkafka.checks import check_count
from gkafka.exceptions import KafkaException
from gkafka.kafka import options
from gkafka.kafka.errors import UnusableCodecError
from gkafka.wire.produce import ProduceRequest, holds_zstd
from gkafka.wire.versions import Versions

__all__ = ["NAMES", "OTHER_NAMES", "check_codec", "raised", "retold", "sizes"]

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

SMALLEST_BATCH, SMALLEST_REQUEST, SMALLEST_BUFFER = 128, 1024, 4096
LARGEST_REQUEST, LARGEST = 1 << 30, 1 << 40


def sizes(config: Mapping[str, Any]) -> dict[str, int]:
    """What buffer_memory, max_request_size and batch_size come to. 1.4 has no order among them: neither a batch nor a record is larger than the
    buffer that it lies in, so that more than that means: as much as it holds."""
    room = max(SMALLEST_BUFFER, _size(config, "buffer_memory"))
    request, batch = max(SMALLEST_REQUEST, _size(config, "max_request_size")), max(SMALLEST_BATCH, _size(config, "batch_size", low=0))
    most = min(room, LARGEST_REQUEST)
    return {"buffer_bytes": room, "max_request_bytes": min(request, most), "batch_bytes": min(batch, most)}


def _size(config: Mapping[str, Any], name: str, *, low: int = 1) -> int:
    given = config[name]
    return check_count(name, int(given) if isinstance(given, float) and given.is_integer() else given, low=low, high=LARGEST)


def check_codec(config: Mapping[str, Any], release: str | None, said: Versions | None) -> None:
    """Raises UnusableCodecError for a codec that came later than the brokers. release: of api_version; said: what a broker speaks, if one was asked."""
    codec, given = config["compression_type"], config["api_version"]
    whose = f"api_version={given!r}" if release is not None else said.broker if said is not None else ""
    if codec == "lz4" and isinstance(given, tuple) and given[:3] < (0, 8, 2):
        raise UnusableCodecError(f"compression_type='lz4' with {whose}: needs brokers of Kafka 0.8.2 or newer: choose gzip or snappy")
    versions = Versions.for_broker(release) if release is not None else said
    if codec == "zstd" and versions is not None and not holds_zstd(versions.pick(ProduceRequest.API)):
        raise UnusableCodecError(
            f"compression_type='zstd' with {whose}: needs brokers of Kafka 2.1 or newer (KIP-110): choose lz4, snappy or gzip"
        )


def retold(error: KafkaException) -> None:
    """An error about one of gkafka's options names kafka-python's."""
    options.retold(error, OTHER_NAMES)


def raised(error: KafkaException) -> None:
    """The same for an error that send() is about to raise, or raise what kafka-python has in its place."""
    retold(error)
    if (missed := options.not_reached(error)) is not None:
        raise missed from error
