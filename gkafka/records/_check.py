"""What may be in a record, said in words: the slow half of producing, shared by both implementations."""

from __future__ import annotations

from typing import Any

from gkafka.exceptions import BufferFull, ConfigurationError, RecordTooLarge, SerializationError, UnsupportedCodec

__all__ = ["check_record", "record_size"]

HEADER_BYTES = 61  # of a v2 batch, before its first record (KIP-98)
MIN_BATCH_BYTES = 128
LEAST_BEYOND = 256  # memory of a batch that is beyond the limits: one record, or a few small ones
MAX_BATCH_BYTES = 1 << 30  # sizes are int32 on the wire, and a codec may add to them

Headers = list[tuple[str, "bytes | None"]]


class NothingToSend(ConfigurationError, AssertionError):
    """A record without a key and without a value, where kafka-python takes none (its 1.4 says AssertionError, newer ones ValueError)."""


class UnknownPartition(ConfigurationError, AssertionError):
    """A record for a partition that its topic has not (kafka-python 1.4 says AssertionError)."""


def nothing_to_send(topic: Any) -> NothingToSend:
    return NothingToSend(f"a record for {topic!r} with neither a key nor a value: give one of them")


def check_record(topic: str, value: Any, key: Any = None, headers: Any = None) -> tuple[bytes | None, bytes | None, Headers | None]:
    """value, key and headers as they are appended: exact bytes, and a list of (str, bytes or None), None for no headers.

    value, key: anything bytes-like, or None. headers: a list or tuple of pairs.
    Raises SerializationError that names what is wrong and what to give instead, never the data.
    """
    return _payload("value", value, topic), _payload("key", key, topic), _headers(headers, topic)


def plain(data: Any) -> Any:
    """What is bytes-like, as bytes. Raises nothing: what is not stays what it is, and `check_record` says why."""
    if data is None or type(data) is bytes:
        return data
    try:
        return bytes(memoryview(data))
    except (TypeError, ValueError, BufferError):
        return data


def plain_topic(topic: Any) -> Any:
    """The same for a topic's name, as a str."""
    if type(topic) is str:
        return topic
    try:
        return str.__str__(topic) if isinstance(topic, str) else topic.decode() if isinstance(topic, bytes) else topic
    except UnicodeDecodeError:
        return topic


def plain_headers(headers: Any) -> Any:
    """The same for headers, as a list of pairs."""
    return [_plain_header(pair) for pair in headers] if isinstance(headers, (list, tuple)) else headers


def _plain_header(pair: Any) -> Any:
    if not isinstance(pair, (list, tuple)) or len(pair) != 2:
        return pair
    name, value = pair
    return str.__str__(name) if isinstance(name, str) else name, plain(value)


def _payload(what: str, data: Any, topic: str) -> bytes | None:
    if data is None or type(data) is bytes:
        return data
    if isinstance(data, str):
        raise SerializationError(f"{what} for {topic} is a str: encode it, or set {what}_serializer", topic=topic)
    try:
        return bytes(memoryview(data))
    except (TypeError, ValueError, BufferError) as exc:
        text = f"{what} for {topic} is {_a(data)}: must be bytes, bytes-like or None; encode it, or set {what}_serializer"
        raise SerializationError(text, topic=topic) from exc


def _headers(headers: Any, topic: str) -> Headers | None:
    if headers is None:
        return None
    if not isinstance(headers, (list, tuple)):
        raise SerializationError(f"headers for {topic} are {_a(headers)}: must be a list of (str, bytes or None)", topic=topic)
    return [_header(number, pair, topic) for number, pair in enumerate(headers)]


def _header(number: int, pair: Any, topic: str) -> tuple[str, bytes | None]:
    if not isinstance(pair, (list, tuple)) or len(pair) != 2:
        raise SerializationError(f"headers[{number}] for {topic} is not a pair: must be (str, bytes or None)", topic=topic)
    key, value = pair
    if not isinstance(key, str):
        raise SerializationError(f"headers[{number}] for {topic}: its key is {_a(key)}, must be a str", topic=topic)
    text = str.__str__(key)  # str() of a member of an enum is its name
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        raise SerializationError(f"headers[{number}] for {topic}: its key cannot be encoded as UTF-8", topic=topic) from exc
    if value is None or type(value) is bytes:
        return text, value
    if isinstance(value, str):
        raise SerializationError(f"headers[{number}] for {topic}: its value is a str, encode it", topic=topic)
    try:
        return text, bytes(memoryview(value))
    except (TypeError, ValueError, BufferError) as exc:
        raise SerializationError(f"headers[{number}] for {topic}: its value is {_a(value)}, must be bytes or None", topic=topic) from exc


def _a(thing: object) -> str:
    name = type(thing).__name__
    return f"an {name}" if name[0] in "aeiou" else f"a {name}"


def check_timestamp(timestamp: Any, topic: str) -> None:
    """Raises SerializationError for what is not a timestamp in ms; -1 is none."""
    if not isinstance(timestamp, int) or not -1 <= timestamp < 1 << 63:
        raise SerializationError(f"timestamp {timestamp!r} for {topic}: must be a whole number of ms since the epoch", topic=topic)


def record_size(value: bytes | None, key: bytes | None = None, headers: Headers | None = None) -> int:
    """Bytes of an uncompressed batch that holds just this record, its 61-byte header included: the `capacity` it needs, and what
    `max_record_bytes` bounds. The arguments are `check_record`'s results."""
    body = 3 + _blob_size(key) + _blob_size(value)  # attributes, and two deltas of 0
    body += varint_size(len(headers)) if headers else 1
    for name, data in headers or ():
        body += _blob_size(name.encode()) + _blob_size(data)
    return HEADER_BYTES + varint_size(body) + body


def _blob_size(data: bytes | None) -> int:
    return 1 if data is None else varint_size(len(data)) + len(data)


def varint_size(n: int) -> int:
    """Bytes of n >= 0 as a zigzag varint."""
    return max(1, -(-(n << 1).bit_length() // 7))


def check_sizes(batch_bytes: int, buffer_bytes: int, max_record_bytes: int, initial_bytes: int) -> None:
    """Raises ValueError for sizes that no batch can have."""
    for name, size, low, high in (
        ("batch_bytes", batch_bytes, MIN_BATCH_BYTES, MAX_BATCH_BYTES),
        ("buffer_bytes", buffer_bytes, 128, 1 << 62),
        ("max_record_bytes", max_record_bytes, 1, MAX_BATCH_BYTES),
        ("initial_bytes", initial_bytes, 128, MAX_BATCH_BYTES),
    ):
        if not low <= size <= high:
            raise ValueError(f"{name}={size}: must be between {low} and {high}")


def too_large(topic: str, partition: int) -> RecordTooLarge:
    return RecordTooLarge(f"a record for {topic}-{partition} takes more than 1 GiB", topic=topic, partition=partition)


def no_memory(topic: str, partition: int, wanted: int, free: int, buffer_bytes: int) -> BufferFull:
    return BufferFull(
        f"{topic}-{partition}: {wanted} bytes wanted, {free} of buffer_bytes={buffer_bytes} are free", topic=topic, partition=partition
    )


def check_capacity(need: int, buffer_bytes: int, topic: str, partition: int) -> None:
    """Raises RecordTooLarge for a record of need bytes that can never be taken."""
    if need > MAX_BATCH_BYTES:
        raise too_large(topic, partition)
    if need > buffer_bytes:
        text = f"a record of {need} bytes for {topic}-{partition} can never fit: buffer_bytes={buffer_bytes}"
        raise RecordTooLarge(text, topic=topic, partition=partition)


def check_seal(codec: int, producer_id: int = -1, producer_epoch: int = -1, base_sequence: int = -1) -> None:
    """Raises for what a batch's header cannot hold."""
    if not 0 <= codec <= 4:
        raise UnsupportedCodec(f"codec {codec}: must be 0 (none), 1 (gzip), 2 (snappy), 3 (lz4) or 4 (zstd)")
    for name, number, bits in (
        ("producer_id", producer_id, 63),
        ("producer_epoch", producer_epoch, 15),
        ("base_sequence", base_sequence, 31),
    ):
        if not -1 <= number < 1 << bits:
            raise ValueError(f"{name}={number}: must be between -1 and 2**{bits} - 1")
