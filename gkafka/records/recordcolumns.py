"""Records to be written, as columns in Arrow's layout: what `choose_partitions`, `encode_columns` and `Producer.produce_columns` take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gkafka.exceptions import ConfigurationError, SerializationError
from gkafka.records._raw import BinaryColumn, HeaderColumn

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["IntColumn", "NoSuchPartition", "RecordColumns", "bad_partition", "checked_strings"]

AnyBuffer = Any
Headers = list[tuple[str, "bytes | None"]]


@dataclass(frozen=True)
class IntColumn:
    """int32 numbers. validity, first: as in BinaryColumn."""

    values: memoryview
    validity: memoryview | None = None
    first: int = 0


@dataclass(frozen=True)
class RecordColumns:
    """count records, a column each for what they hold; None: null in all of them. partitions: where a record has to go.

    The buffers are looked at when records are made of them, and must not change until then. Raises ValueError for one that is too small.
    """

    count: int
    values: BinaryColumn | None = None
    keys: BinaryColumn | None = None
    headers: HeaderColumn | None = None
    partitions: IntColumn | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.count < 1 << 31:
            raise ValueError(f"count={self.count}: must be between 0 and 2**31 - 1")
        for name, column in (("values", self.values), ("keys", self.keys)):
            if column is not None:
                checked_strings(name, column, self.count)
        if self.partitions is not None:
            _check_size("partitions", self.partitions.values, self.partitions.first, self.count, 4)
            _check_validity("partitions", self.partitions.validity, self.partitions.first, self.count)
        if self.headers is not None:
            _check_size("headers", self.headers.offsets, self.headers.first, self.count + 1, 4)
            _check_validity("headers", self.headers.validity, self.headers.first, self.count)

    @classmethod
    def from_arrow(
        cls, value: pa.Array | None = None, key: pa.Array | None = None, headers: pa.Array | None = None, partition: pa.Array | None = None
    ) -> RecordColumns:
        """Of pyarrow arrays of one length; their bytes are not copied. value, key: binary or string (large and view types are converted); headers:
        list of struct(key string, value binary), their names in any case; partition: int32. Raises ConfigurationError for other types, and for arrays of two lengths.
        """
        from gkafka.records.fromarrow import record_columns

        return record_columns(value, key, headers, partition)

    def row(self, index: int) -> tuple[bytes | None, bytes | None, Headers | None]:
        """Value, key and headers of one record. Raises SerializationError for headers that no record can have."""
        if not 0 <= index < self.count:
            raise IndexError(f"there is no row {index} among {self.count}")
        headers = None if self.headers is None else _headers(self.headers, index)
        return string_at("values", self.values, index), string_at("keys", self.keys, index), headers

    def partition(self, index: int) -> int | None:
        """The partition given for one record."""
        column = self.partitions
        if column is None or not is_valid(column.validity, column.first + index):
            return None
        number: int = _numbers(column.values)[column.first + index]
        return number


class NoSuchPartition(ConfigurationError):
    """A record is to go to a partition that its topic does not have. row: its number among the columns."""

    def __init__(self, text: str, *, row: int = -1, **about: Any) -> None:
        super().__init__(text, **about)
        self.row = row


def bad_partition(row: int, partition: int, count: int) -> NoSuchPartition:
    return NoSuchPartition(f"partition={partition}: the topic has the partitions 0 to {count - 1}", row=row)


def _numbers(buffer: memoryview) -> memoryview:
    """int32; what is behind the last whole one does not count."""
    octets = buffer.cast("B")
    return octets[: octets.nbytes // 4 * 4].cast("i")


def is_valid(validity: AnyBuffer, index: int) -> bool:
    return validity is None or bool(validity[index >> 3] >> (index & 7) & 1)


def string_at(name: str, column: BinaryColumn | None, index: int) -> bytes | None:
    """One string of a column. Raises ValueError if it is not within the column's bytes."""
    if column is None:
        return None
    index += column.first
    if not is_valid(column.validity, index):
        return None
    offsets = _numbers(column.offsets)
    begin, end = offsets[index], offsets[index + 1]
    if not 0 <= begin <= end <= column.data.nbytes:
        raise ValueError(f"{name}: row {index - column.first} has the bytes {begin} to {end} of {column.data.nbytes}")
    return bytes(column.data[begin:end])


def _headers(column: HeaderColumn, row: int) -> Headers | None:
    index = column.first + row
    if not is_valid(column.validity, index):
        return None
    offsets = _numbers(column.offsets)
    begin, end = offsets[index], offsets[index + 1]
    if not 0 <= begin <= end <= min(len_of(column.keys), len_of(column.values)):
        raise ValueError(f"headers: row {row} has the headers {begin} to {end} of {min(len_of(column.keys), len_of(column.values))}")
    found: Headers = []
    for number in range(begin, end):
        name = string_at("header keys", column.keys, number)
        if name is None:
            raise SerializationError(f"headers[{number - begin}] has no key: give it one, or leave the header out")
        try:
            found.append((name.decode(), string_at("header values", column.values, number)))
        except UnicodeDecodeError as exc:
            raise SerializationError(f"headers[{number - begin}]: its key is not UTF-8: {exc}") from exc
    return found or None


def len_of(column: BinaryColumn) -> int:
    """How many strings its offsets have room for."""
    return max(0, column.offsets.nbytes // 4 - 1 - column.first)


def checked_strings(name: str, column: BinaryColumn, count: int) -> BinaryColumn:
    """The column. Raises ValueError if it cannot hold so many strings."""
    _check_size(name, column.offsets, column.first, count + 1, 4)
    _check_validity(name, column.validity, column.first, count)
    return column


def _check_size(name: str, buffer: memoryview, first: int, count: int, width: int) -> None:
    if first < 0 or buffer.nbytes < (first + count) * width:
        raise ValueError(f"{name}: a buffer of {buffer.nbytes} bytes does not hold {count} numbers of {width} bytes from number {first} on")


def _check_validity(name: str, validity: memoryview | None, first: int, count: int) -> None:
    if validity is not None and validity.nbytes * 8 < first + count:
        raise ValueError(f"{name}: a validity of {validity.nbytes} bytes does not hold {count} bits from bit {first} on")
