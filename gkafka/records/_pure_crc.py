"""CRC-32C for the Python implementation: the `crc32c` package if it is installed, else a table."""

from __future__ import annotations

__all__ = ["crc32c"]

try:
    from crc32c import crc32c
except ImportError:

    def _table() -> list[int]:
        table = []
        for crc in range(256):
            for _ in range(8):
                crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
            table.append(crc)
        return table

    _TABLE = _table()

    def crc32c(data: bytes | bytearray | memoryview, value: int = 0) -> int:  # type: ignore[misc]  # the other definition is imported from a package
        """CRC-32C of data, going on from value. A hundred times slower than a compiled one: `pip install 'gkafka[crc32c]'`."""
        crc, table = value ^ 0xFFFFFFFF, _TABLE
        for byte in bytes(data):
            crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
        return crc ^ 0xFFFFFFFF
