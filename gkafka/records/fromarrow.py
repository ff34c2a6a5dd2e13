"""pyarrow's arrays as the columns of records, without a copy of their bytes. pyarrow is imported by who calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from gkafka.exceptions import ConfigurationError
from gkafka.records._raw import BinaryColumn, HeaderColumn
from gkafka.records.recordcolumns import IntColumn, RecordColumns

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["record_columns"]

EMPTY = memoryview(b"")
NO_OFFSETS = memoryview(bytes(4))


def record_columns(value: Any, key: Any, headers: Any, partition: Any) -> RecordColumns:
    """See `RecordColumns.from_arrow`."""
    given = {"value": value, "key": key, "headers": headers, "partition": partition}
    sizes = {name: len(array) for name, array in given.items() if array is not None}
    if not sizes:
        raise ConfigurationError("no column is given: give value or key")
    if len(set(sizes.values())) > 1:
        raise ConfigurationError(f"columns of different lengths: {sizes}")
    for name, array in given.items():
        if array is not None and not isinstance(array, pa.Array):
            raise ConfigurationError(
                f"{name} is {type(array).__name__}: must be a pyarrow.Array; of a ChunkedArray give one chunk after another"
            )
    return RecordColumns(
        next(iter(sizes.values())),
        _read("value", value, strings),
        _read("key", key, strings),
        _read("headers", headers, header_column),
        _read("partition", partition, numbers),
    )


def _read(name: str, array: Any, reader: Callable[[str, Any], Any]) -> Any:
    return None if array is None else reader(name, array)


def strings(name: str, array: Any) -> BinaryColumn | None:
    """A column of binary or string; None if all of it is null."""
    if pa.types.is_null(array.type):
        return None
    if pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type) or _is_view(array.type):
        array = array.cast(pa.binary())
    if not (pa.types.is_binary(array.type) or pa.types.is_string(array.type)):
        raise ConfigurationError(f"{name} is {array.type}: must be binary or string; cast it")
    validity, offsets, data = array.buffers()
    return BinaryColumn(_view(offsets, NO_OFFSETS), _view(data, EMPTY), _validity(array, validity), array.null_count, array.offset)


def numbers(name: str, array: Any) -> IntColumn | None:
    """A column of int32; None if all of it is null."""
    if array.null_count == len(array):
        return None
    if not pa.types.is_int32(array.type):
        raise ConfigurationError(f"{name} is {array.type}: must be int32; cast it")
    validity, values = array.buffers()
    return IntColumn(_view(values, EMPTY), _validity(array, validity), array.offset)


def header_column(name: str, array: Any) -> HeaderColumn | None:
    """A column of list(struct(key, value)); None if all of it is null."""
    if array.null_count == len(array):
        return None
    if pa.types.is_large_list(array.type):
        array = array.cast(pa.list_(array.type.value_type))
    if not pa.types.is_list(array.type) or not pa.types.is_struct(array.type.value_type):
        raise ConfigurationError(f"{name} is {array.type}: must be a list of struct(key string, value binary)")
    pairs = array.values
    fields = {pairs.type.field(i).name.lower(): i for i in range(pairs.type.num_fields)}
    if set(fields) != {"key", "value"} or pairs.type.num_fields != 2:
        told = ", ".join(pairs.type.field(i).name for i in range(pairs.type.num_fields))
        raise ConfigurationError(f"{name}: its structs have the fields {told}: must be key and value")
    keys, values = (strings(f"{name}.{part}", _field(pairs, fields[part])) for part in ("key", "value"))
    none = BinaryColumn(memoryview(bytes(4 * (len(pairs) + 1))), EMPTY, memoryview(bytes(len(pairs) // 8 + 1)), len(pairs))
    validity = _validity(array, array.buffers()[0])
    return HeaderColumn(_view(array.buffers()[1], NO_OFFSETS), keys or none, values or none, validity, array.offset)


def _field(pairs: Any, number: int) -> Any:
    """A field of structs, null where its struct is."""
    return pairs.flatten()[number] if pairs.null_count else pairs.field(number)


def _is_view(kind: Any) -> bool:
    return any(test(kind) for name in ("is_binary_view", "is_string_view") if (test := getattr(pa.types, name, None)) is not None)


def _view(buffer: Any, otherwise: memoryview) -> memoryview:
    return otherwise if buffer is None or buffer.size == 0 else memoryview(buffer)


def _validity(array: Any, buffer: Any) -> memoryview | None:
    return None if buffer is None or not array.null_count else memoryview(buffer)
