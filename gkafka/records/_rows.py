"""Messages that behave as kafka-python's namedtuple of a record: what both implementations of `Row` share."""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

__all__ = ["ConsumerRecord", "compare", "row_of", "size_of"]


class _Fields(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: Any
    value: Any
    headers: list[tuple[str, bytes | None]]
    checksum: None
    serialized_key_size: int
    serialized_value_size: int
    serialized_header_size: int


class ConsumerRecord(_Fields, metaclass=abc.ABCMeta):
    """A record. timestamp: ms since the epoch, -1 for none; timestamp_type: 0 the producer's, 1 the broker's; sizes: bytes before
    deserializing, -1 for None. checksum: None (batches have one, records do not since Kafka 0.11).

    What a consumer without deserializers hands out is one, too: a `Row`, which cuts key and value out of the fetched bytes when they are asked for.
    """

    __slots__ = ()


def size_of(data: bytes | None) -> int:
    """Bytes, -1 for None."""
    return -1 if data is None else len(data)


def header_size(headers: list[tuple[str, bytes | None]]) -> int:
    """Bytes of all names and values, -1 without headers."""
    return sum(len(name.encode()) + len(value or b"") for name, value in headers) if headers else -1


def row_of(message: Any, key: Any, value: Any) -> ConsumerRecord:
    """A message as a tuple, with a key and a value that may be deserialized."""
    headers = message.headers
    sizes = (size_of(message.key), size_of(message.value), header_size(headers))
    place = (message.topic, message.partition_id, message.offset, message.timestamp, int(message.timestamp_type))
    return ConsumerRecord(*place, key, value, headers, None, *sizes)


def whole(row: Any) -> ConsumerRecord:
    """A row as a tuple."""
    return row_of(row, row.key, row.value)


def compare(row: Any, other: Any) -> Any:
    """(the row, the other) as tuples; None where the other is nothing of the kind."""
    return (tuple(whole(row)), tuple(other)) if isinstance(other, (tuple, ConsumerRecord)) else None


def as_dict(row: Any) -> dict[str, Any]:
    """The fields by name."""
    return whole(row)._asdict()


def replace(row: Any, **fields: Any) -> ConsumerRecord:
    """A tuple with some fields exchanged."""
    return whole(row)._replace(**fields)


def joined(first: Any, second: Any) -> Any:
    """A row and a tuple, or another row, as one tuple."""
    return tuple(first) + tuple(second) if isinstance(first, tuple) and isinstance(second, tuple) else NotImplemented


def index(row: Any, value: object, *bounds: Any) -> int:
    """As of a tuple."""
    return whole(row).index(value, *bounds)


def count(row: Any, value: object) -> int:
    """As of a tuple."""
    return whole(row).count(value)
