"""Messages of format 0 and 1 that were compressed twice: kafka-python's producer did so up to 1.2.4."""

from __future__ import annotations

import zlib
from struct import pack_into, unpack_from
from typing import TYPE_CHECKING

from gkafka.common import TimestampType
from gkafka.exceptions import KafkaException
from gkafka.records._damage import Place
from gkafka.records._unwrap import base_of, decompress, room_for, survey, wrapped

if TYPE_CHECKING:
    from gkafka.records._pure_read import BatchHeader

__all__ = ["left_compressed"]

CODEC, LOG_APPEND = 7, 8


def left_compressed(
    buffer: memoryview, header: BatchHeader, topic: str | None, partition: int | None, *, check_crcs: bool = True
) -> bytes | None:
    """What a compressed message holds, as a plain message set: a message in it that is compressed once more is one message, whose value is the
    compressed bytes. None: there is none such, or something is damaged, which `Records` tells.
    """
    if header.magic > 1 or not header.codec:
        return None
    data = memoryview(buffer).cast("B")
    place = Place(topic, partition, header.base_offset, header.last_offset)
    try:
        payload = wrapped(data, header.start, header.end, place, check_crcs=check_crcs)
        plain = decompress(header.codec, payload, header.magic, room_for(len(data)), place)
        _, last, is_double = survey(plain, place)
        base = base_of(last, header.magic, header.last_offset, place) if is_double else 0
    except KafkaException:
        return None
    return bytes(_as_plain(bytearray(plain), base, header)) if is_double else None


def _as_plain(messages: bytearray, base: int, header: BatchHeader) -> bytearray:
    pos = 0
    is_brokers = header.timestamp_type == TimestampType.LOG_APPEND_TIME
    while pos < len(messages):
        offset, length, crc = unpack_from(">qiI", messages, pos)
        end = pos + 12 + length
        pack_into(">q", messages, pos, base + offset)
        if crc == zlib.crc32(messages[pos + 16 : end]):  # else it stays damaged
            messages[pos + 17] &= ~CODEC & 0xFF
            if is_brokers and messages[pos + 16]:  # its time stands in the outer message only (KIP-32)
                messages[pos + 17] |= LOG_APPEND
                pack_into(">q", messages, pos + 18, header.max_timestamp)
            pack_into(">I", messages, pos + 12, zlib.crc32(messages[pos + 16 : end]))
        pos = end
    return messages
