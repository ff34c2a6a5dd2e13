"""What KafkaConsumer hands out (kafka.consumer.fetcher): records that behave as the documented namedtuple."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from gkafka.records import Message

__all__ = ["ConsumerRecord", "LazyRecord"]


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


class _WithViews(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return super().__instancecheck__(instance) or (cls.__name__ == "ConsumerRecord" and isinstance(instance, LazyRecord))


class ConsumerRecord(_Fields, metaclass=_WithViews):
    """A record. timestamp: ms since the epoch, -1 for none; timestamp_type: 0 the producer's, 1 the broker's; sizes: bytes before
    deserializing, -1 for None. checksum: None (batches have one, records do not since Kafka 0.11).

    What a consumer without deserializers hands out is one, too: a view of the fetched bytes that cuts key and value when they are asked for.
    """

    __slots__ = ()


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _header_size(headers: list[tuple[str, bytes | None]]) -> int:
    return sum(len(name.encode()) + len(value or b"") for name, value in headers) if headers else -1


class LazyRecord(Message):
    """A record as a view of the fetched bytes, which it keeps in memory. It behaves as a ConsumerRecord: fields by name and by number, unpacking,
    equality, `_asdict()`, `_replace()`."""

    __slots__ = ()
    _fields = ConsumerRecord._fields
    partition = Message.partition_id
    checksum = None

    @property
    def serialized_key_size(self) -> int:
        """Bytes of the key, -1 for None."""
        return _size(self.key)

    @property
    def serialized_value_size(self) -> int:
        """Bytes of the value, -1 for None."""
        return _size(self.value)

    @property
    def serialized_header_size(self) -> int:
        """Bytes of the headers, -1 for none."""
        return _header_size(self.headers)

    def _whole(self) -> ConsumerRecord:
        return whole(self, self.key, self.value)

    def _asdict(self) -> dict[str, Any]:
        return self._whole()._asdict()

    def _replace(self, **fields: Any) -> ConsumerRecord:
        return self._whole()._replace(**fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._whole())

    def __getitem__(self, index: Any) -> Any:
        return self._whole()[index]

    def __contains__(self, value: object) -> bool:
        return value in self._whole()

    def index(self, value: object, *bounds: Any) -> int:
        """As of a tuple."""
        return self._whole().index(value, *bounds)

    def count(self, value: object) -> int:
        """As of a tuple."""
        return self._whole().count(value)

    def __eq__(self, other: object) -> bool:
        return tuple.__eq__(self._whole(), tuple(other)) if isinstance(other, (tuple, LazyRecord)) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._whole())

    def __lt__(self, other: Any) -> bool:
        return tuple(self) < tuple(other)

    def __repr__(self) -> str:
        return repr(self._whole())

    def __reduce__(self) -> Any:
        return ConsumerRecord, tuple(self._whole())


def whole(record: Any, key: Any, value: Any) -> ConsumerRecord:
    """The record as a tuple, with a key and a value that are deserialized. record: a message of the native consumer."""
    headers = record.headers
    sizes = (_size(record.key), _size(record.value), _header_size(headers))
    return ConsumerRecord(
        record.topic, record.partition_id, record.offset, record.timestamp, int(record.timestamp_type), key, value, headers, None, *sizes
    )
