"""Messages and message sets of formats 0 and 1, to bytes and back (reference: pykafka.protocol Message, MessageSet).

Records of format 2 are `gkafka.records`' alone; `FetchResponse` hands them out as Messages, too.
Source: https://kafka.apache.org/documentation/#messageset
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from datetime import datetime, timezone
from typing import Any
from zlib import crc32

from gkafka import common
from gkafka.common import CompressionType, TimestampType
from gkafka.exceptions import ConfigurationError, MessageSetDecodeFailure, NoMessagesConsumedError, ProtocolError, UnsupportedCodec
from gkafka.records.compression import compress
from gkafka.utils import Serializable
from gkafka.utils.struct_helpers import unpack_with_end

__all__ = ["Message", "MessageSet"]

Buffer = bytes | bytearray | memoryview
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
CODEC, LOG_APPEND_TIME = 0x07, 0x08
_ENTRY = struct.Struct(">qi")
_HEADS = {0: struct.Struct(">Bb"), 1: struct.Struct(">Bbq")}
_LENGTH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_NULL = _LENGTH.pack(-1)
NOT_SET = -1


class Message(common.Message, Serializable):
    """One message. len(): its bytes without the offset and size that precede it in a set.

    value, partition_key: bytes or None. compression_type: of what value holds; 0 in whatever users see. partition_id: set in what was
    fetched; partition: the Partition it came from, set by consumers. produce_attempt: how often it was sent. protocol_version: the format, 0
    or 1, which is 1 only where there is a timestamp. timestamp: ms since the epoch or a datetime (naive: UTC), None for now in format 1 and
    for none in format 0. delivery_report_q: for whoever keeps one with it.
    """

    __slots__ = (
        "compression_type",
        "delivery_report_q",
        "headers",
        "offset",
        "partition",
        "partition_id",
        "partition_key",
        "produce_attempt",
        "protocol_version",
        "response_code",
        "timestamp",
        "timestamp_type",
        "topic",
        "value",
    )

    def __init__(
        self,
        value: bytes | None,
        partition_key: bytes | None = None,
        compression_type: int = CompressionType.NONE.value,
        offset: int = -1,
        partition_id: int = -1,
        produce_attempt: int = 0,
        protocol_version: int = 0,
        timestamp: datetime | float | None = None,
        delivery_report_q: Any = None,
    ) -> None:
        if protocol_version not in _HEADS:
            raise ConfigurationError(f"protocol_version={protocol_version!r}: a message is of format 0 or 1")
        self.value = value
        self.partition_key = partition_key
        self.compression_type = compression_type
        self.offset = offset
        self.partition_id = partition_id
        self.partition: Any = None
        self.produce_attempt = produce_attempt
        self.protocol_version = protocol_version
        self.delivery_report_q = delivery_report_q
        self.topic = ""
        self.headers: list[tuple[str, bytes | None]] = []
        self.response_code = 0
        self.timestamp_type = TimestampType.NONE
        self.set_timestamp(datetime.now(timezone.utc) if timestamp is None and protocol_version else timestamp)

    @property
    def key(self) -> bytes | None:  # type: ignore[override]  # an attribute of the base, by a second name
        """partition_key, under its other documented name."""
        return self.partition_key

    @property
    def payload(self) -> bytes | None:  # type: ignore[override]  # as above
        """value, under its other documented name."""
        return self.value

    @property
    def timestamp_dt(self) -> datetime | None:
        """The timestamp as a naive datetime in UTC, None where there is none."""
        if self.timestamp < 0:
            return None
        return datetime.fromtimestamp(self.timestamp / 1000, timezone.utc).replace(tzinfo=None)

    def set_timestamp(self, ts: datetime | float | None) -> None:
        """ms since the epoch, a datetime (naive: UTC), or None for none."""
        if isinstance(ts, datetime):
            ts = round(((ts if ts.tzinfo else ts.replace(tzinfo=timezone.utc)) - EPOCH).total_seconds() * 1000)
        elif ts is not None and (isinstance(ts, bool) or not isinstance(ts, (int, float))):
            raise ConfigurationError(f"timestamp={ts!r}: must be ms since the epoch, a datetime, or None")
        self.timestamp = -1 if ts is None else int(ts)
        self.timestamp_type = TimestampType.NONE if self.timestamp < 0 else TimestampType.CREATE_TIME

    @property
    def format(self) -> int:
        """The format that it is written in."""
        return 1 if self.protocol_version and self.timestamp >= 0 else 0

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} at {id(self):#x} (offset={self.offset}, partition_id={self.partition_id})>"

    def __len__(self) -> int:
        return _CRC.size + _HEADS[self.format].size + 2 * _LENGTH.size + len(self.partition_key or b"") + len(self.value or b"")

    def pack_into(self, buff: bytearray | memoryview, offset: int) -> None:
        """Write the message, its checksum included, into buff from offset on. struct.error if there is no room."""
        data = self._bytes(self.format)
        struct.pack_into(f"{len(data)}s", buff, offset, data)

    def _bytes(self, written_as: int) -> bytes:
        attributes = self.compression_type & CODEC
        head = _HEADS[1].pack(1, attributes, self.timestamp) if written_as else _HEADS[0].pack(0, attributes)
        body = head + _blob(self.partition_key) + _blob(self.value)
        return _CRC.pack(crc32(body)) + body

    @classmethod
    def decode(cls, buff: Buffer, msg_offset: int = -1, partition_id: int = -1) -> Message:
        """The message that buff holds. Raises MessageSetDecodeFailure, a ProtocolError, if it is none or does not match its checksum."""
        view = memoryview(buff).cast("B")
        try:
            (crc, written_as, attributes), at = unpack_with_end("IBB", view, 0)
            if written_as not in _HEADS:
                raise ProtocolError(f"format {written_as}, which message sets do not have")
            timestamp = -1
            if written_as:
                (timestamp,), at = unpack_with_end("q", view, at)
            (key, value), end = unpack_with_end("YY", view, at)
        except ProtocolError as exc:
            raise _failure(f"a message of {len(view)} bytes cannot be decoded: {exc}", msg_offset, partition_id) from exc
        if end != len(view):
            raise _failure(f"a message has {len(view) - end} bytes too many", msg_offset, partition_id)
        if crc32(view[_CRC.size :]) != crc:
            raise _failure("a message does not match its checksum", msg_offset, partition_id)
        made = cls(value, key, attributes & CODEC, msg_offset, partition_id, protocol_version=written_as, timestamp=timestamp)
        if attributes & LOG_APPEND_TIME and timestamp >= 0:
            made.timestamp_type = TimestampType.LOG_APPEND_TIME
        return made


class MessageSet(Serializable):
    """Messages one after the other, each behind its offset and size; with a compression_type one message that holds them.

    No count and no size stands in front: len() is that of the messages alone. Offsets are written as -1, as pykafka writes them: brokers set them. Those inside
    of a compressed message are 0, 1, ...: brokers refuse others.
    broker_version: brokers before 0.10 take lz4 with another checksum (KAFKA-3160), which format 0 always has.
    """

    def __init__(
        self,
        compression_type: int = CompressionType.NONE.value,
        messages: Iterable[Message] | None = None,
        broker_version: str = "0.9.0",
    ) -> None:
        try:
            self.compression_type = CompressionType(compression_type)
        except ValueError:
            known = ", ".join(f"{codec.value} {codec.name}" for codec in CompressionType)
            raise UnsupportedCodec(f"compression_type={compression_type!r}: must be one of {known}") from None
        if self.compression_type is CompressionType.ZSTD:
            raise UnsupportedCodec("message sets hold no zstd, which came with record batches of format 2 (KIP-110): choose another codec")
        self.broker_version = broker_version
        self._messages = [] if messages is None else list(messages)
        self._packed: bytes | None = None

    @property
    def messages(self) -> list[Message]:
        """The messages; what is done to the list counts for the next writing."""
        self._packed = None
        return self._messages

    def __len__(self) -> int:
        return len(self._bytes())

    def pack_into(self, buff: bytearray | memoryview, offset: int) -> None:
        """Write the set into buff from offset on. struct.error if there is no room."""
        data = self._bytes()
        struct.pack_into(f"{len(data)}s", buff, offset, data)

    def _bytes(self) -> bytes:
        """Compressed once for the length and the bytes."""
        if self._packed is None:
            if self.compression_type is CompressionType.NONE or not self._messages:
                self._packed = _entries(self._messages, None)
            else:
                wrapper = self._get_compressed()
                self._packed = _entry(len(self._messages) - 1, wrapper, wrapper.format)
        return self._packed

    def _get_compressed(self) -> Message:
        """One message, with the right headers and all the others compressed as its value."""
        if self.compression_type is CompressionType.NONE:
            raise ConfigurationError("compression_type=0: there is nothing to compress with")
        written_as = max((m.format for m in self._messages), default=0)
        data = compress(self.compression_type, _entries(self._messages, written_as), legacy=written_as == 0)
        newest = max((m.timestamp for m in self._messages), default=-1)
        return Message(data, compression_type=self.compression_type, protocol_version=written_as, timestamp=newest)

    @classmethod
    def decode(cls, buff: Buffer, partition_id: int = -1) -> MessageSet:
        """The messages of a set as they stand: a compressed one stays one message (`FetchResponse` takes those apart).

        A message at the end that is not whole, as brokers cut it, is left out. Raises NoMessagesConsumedError if it is the only one: more
        bytes have to be fetched; MessageSetDecodeFailure, a ProtocolError, for damaged bytes.
        """
        view = memoryview(buff).cast("B")
        messages: list[Message] = []
        at = size = 0
        while at + _ENTRY.size <= len(view):
            offset, size = _ENTRY.unpack_from(view, at)
            if size < 0:
                raise _failure(f"a message claims {size} bytes", offset, partition_id)
            start, at = at + _ENTRY.size, at + _ENTRY.size + size
            if at > len(view):
                break
            messages.append(Message.decode(view[start:at], offset, partition_id))
        if not messages and at:
            raise NoMessagesConsumedError(f"the first message has {size} bytes, more than were fetched: ask for more bytes")
        return cls(messages=messages)


def _blob(data: bytes | None) -> bytes:
    return _NULL if data is None else _LENGTH.pack(len(data)) + data


def _entry(offset: int, message: Message, written_as: int) -> bytes:
    data = message._bytes(written_as)
    return _ENTRY.pack(offset, len(data)) + data


def _entries(messages: list[Message], written_as: int | None) -> bytes:
    """written_as: of those inside of another message, which have one format and the offsets 0, 1, ...; None: of others, whose offset the broker sets."""
    if written_as is None:
        return b"".join([_entry(NOT_SET, m, m.format) for m in messages])
    return b"".join([_entry(n, m, written_as) for n, m in enumerate(messages)])


def _failure(why: str, offset: int, partition_id: int) -> MessageSetDecodeFailure:
    return MessageSetDecodeFailure(f"{why} (offset {offset})", offset=offset, partition=None if partition_id < 0 else partition_id)
