"""pykafka's helpers under their documented names: bytes that are packed, compressed and read from sockets (reference: pykafka.utils)."""

from __future__ import annotations

import abc

__all__ = ["Serializable", "deserialize_utf8", "serialize_utf8"]


class Serializable(abc.ABC):
    """What has a place in a request: it knows its size in bytes, and writes itself into a buffer."""

    __slots__ = ()

    @abc.abstractmethod
    def __len__(self) -> int:
        """Length of the bytes that will be sent."""
        raise NotImplementedError

    @abc.abstractmethod
    def pack_into(self, buff: bytearray | memoryview, offset: int) -> None:
        """Write len(self) bytes into buff, from offset on, as `struct.pack_into` does: struct.error if there is no room."""
        raise NotImplementedError


def serialize_utf8(value: str | bytes | None, partition_key: str | bytes | None) -> tuple[bytes | None, bytes | None]:
    """For `serializer=` of a producer: text becomes UTF-8, bytes and None stay. Raises UnicodeEncodeError."""
    return _encoded(value), _encoded(partition_key)


def deserialize_utf8(value: bytes | None, partition_key: bytes | None) -> tuple[str | None, str | None]:
    """For `deserializer=` of a consumer: UTF-8 becomes text, None stays. Raises UnicodeDecodeError."""
    return None if value is None else value.decode(), None if partition_key is None else partition_key.decode()


def _encoded(text: str | bytes | None) -> bytes | None:
    return text.encode() if isinstance(text, str) else text
