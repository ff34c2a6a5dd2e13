"""What columns hold, as two numbers: the Python twin of `_speed_sums.pxi`."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from gkafka.records._pure_crc import crc32c

if TYPE_CHECKING:
    from gkafka.records.recordcolumns import RecordColumns

__all__ = ["measure_columns"]

_NUMBER = struct.Struct("<i")
_ALL = (1 << 64) - 1


def measure_columns(columns: RecordColumns, start: int = 0) -> tuple[int, int]:
    """Bytes of the keys and values, and the sum modulo 2**64 of a checksum for each record, a CRC-32C of its value, key, partition and headers, mixed.

    Neither the order of records nor how they are cut into columns makes a difference to the sum of the sums. start: the CRC-32C to go on from, as
    of the topic. Raises what `RecordColumns.row` raises for a record that cannot be one.
    """
    sizes = total = 0
    for number in range(columns.count):
        value, key, headers = columns.row(number)
        partition = columns.partition(number)
        parts = [*_string(value), *_string(key), _NUMBER.pack(-1 if partition is None else partition), _NUMBER.pack(len(headers or ()))]
        for name, data in headers or ():
            parts += (*_string(name.encode()), *_string(data))
        total += _mixed(crc32c(b"".join(parts), start))
        sizes += len(value or b"") + len(key or b"")
    return sizes, total & _ALL


def _mixed(n: int) -> int:
    """splitmix64's last steps. CRCs are linear: of two records that exchange a part the sum would often stay the same."""
    n = (n ^ n >> 30) * 0xBF58476D1CE4E5B9 & _ALL
    n = (n ^ n >> 27) * 0x94D049BB133111EB & _ALL
    return n ^ n >> 31


def _string(data: bytes | None) -> tuple[bytes, bytes]:
    """null is not the same as empty."""
    return (_NUMBER.pack(-1), b"") if data is None else (_NUMBER.pack(len(data)), data)
