"""Fetched batches as numpy or Arrow columns, without a Python object per record.

The Arrow columns have the names and types of Spark's Kafka connector. numpy and pyarrow are imported when they are asked for:
`pip install 'gkafka[arrow]'` brings both.
"""

from __future__ import annotations

import functools
from array import array
from collections.abc import Callable, Container, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from gkafka import records
from gkafka.exceptions import ConfigurationError, KafkaException
from gkafka.pages import install

if TYPE_CHECKING:
    import pyarrow as pa

    from gkafka.records._raw import BinaryColumn, HeaderColumn, RawColumns

__all__ = ["ALL_COLUMNS", "COLUMNS", "Columns", "arrow_schema", "check_columns", "decode_columns"]

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
"""The columns of Spark's Kafka connector, in its order."""
ALL_COLUMNS = (*COLUMNS, "headers")
CACHED_ROWS = 1 << 17  # a constant column is kept for reuse up to this length


class Columns:
    """The records of fetched batches as columns. `len()` is how many.

    next_offset: where reading goes on. complete: all whole batches were read, or the end offset was reached; if not, call
    decode_columns again with the same input from next_offset. error: why the record at next_offset cannot be read; the next call
    raises it. raw: the plain buffers, in Arrow's layout.
    """

    __slots__ = ("partition", "raw", "topic")

    def __init__(self, raw: RawColumns, topic: str | None = None, partition: int | None = None) -> None:
        self.raw = raw
        self.topic = topic
        self.partition = partition

    def __len__(self) -> int:
        return self.raw.count

    @property
    def next_offset(self) -> int:
        return self.raw.next_offset

    @property
    def complete(self) -> bool:
        return self.raw.complete

    @property
    def error(self) -> KafkaException | None:
        return self.raw.error

    def to_numpy(self) -> dict[str, Any]:
        """Arrays by name: offset, timestamp (ms; int64), timestampType (int32), which share memory with `raw`; and key and value
        as object arrays of bytes or None, where they were decoded."""
        import numpy as np

        raw = self.raw
        arrays: dict[str, Any] = {
            "offset": np.frombuffer(raw.offsets, np.int64),
            "timestamp": np.frombuffer(raw.timestamps, np.int64),
            "timestampType": np.frombuffer(raw.timestamp_types, np.int32),
        }
        for name, column in (("key", raw.keys), ("value", raw.values)):
            if column is not None:
                arrays[name] = np.fromiter(_strings(column), dtype=object, count=raw.count)
        return arrays

    def to_arrow(self, columns: Sequence[str] | None = None, *, topic: str | None = None, partition: int | None = None) -> pa.RecordBatch:
        """The columns asked for, in that order, as a RecordBatch of `arrow_schema(columns)`. None: Spark's, without headers.

        topic, partition: what these columns hold, by default what decode_columns was told.
        Raises ConfigurationError for a name that is not a column, or one that was not decoded.
        """
        pa = _pyarrow()
        names = COLUMNS if columns is None else tuple(columns)
        schema = arrow_schema(names)
        topic = self.topic if topic is None else topic
        partition = self.partition if partition is None else partition
        arrays = [self._array(pa, name, schema.field(at).type, topic, partition) for at, name in enumerate(names)]
        if not arrays:  # a count of rows is all that is asked for, and only a table of no columns can say it
            return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), self.raw.count, [None]))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _array(self, pa: Any, name: str, kind: Any, topic: str | None, partition: int | None) -> Any:
        raw = self.raw
        if name == "topic":
            return _constant(_asked(topic, name), raw.count)
        if name == "partition":
            return _constant(_asked(partition, name), raw.count)
        if name == "key":
            return _binary(pa, kind, _asked(raw.keys, name))
        if name == "value":
            return _binary(pa, kind, _asked(raw.values, name))
        if name == "headers":
            return _headers(pa, kind, _asked(raw.headers, name))
        plain = {"offset": raw.offsets, "timestampType": raw.timestamp_types}
        data = records.microseconds(raw.timestamps) if name == "timestamp" else plain[name]
        return pa.Array.from_buffers(kind, raw.count, [None, pa.py_buffer(data)])


def decode_columns(
    batches: Any,
    *,
    start_offset: int,
    end_offset: int | None = None,
    keys: bool = True,
    values: bool = True,
    headers: bool = False,
    check_crcs: bool = True,
    skip: Container[int] | Callable[[Any], bool] | None = None,
    topic: str | None = None,
    partition: int | None = None,
    max_bytes: int | None = None,
    max_records: int | None = None,
    max_data_bytes: int | None = None,
) -> Columns:
    """The records of fetched batches from start_offset up to, not including, end_offset, as columns.

    batches: a buffer or several, in offset order. keys, values, headers: which of these to build. skip: the base offsets of batches
    to leave out (a set; aborted ones), or a callable that is given each BatchHeader. Control batches are always left out.
    max_bytes: what one batch may decompress to (64 MiB or 8 times its buffer, whichever is more); once all together passed it, reading
    stops at the next compressed batch. max_records, max_data_bytes (2**31 - 1 at most): reading stops before they are passed, after one
    record at least. Whatever stopped it, `next_offset` and `complete` of the result say where to go on.
    Raises CorruptRecordError or UnsupportedCodec if the first record cannot be read; a later one is the result's `error`.
    """
    raw = records.decode_raw(
        batches,
        start_offset=start_offset,
        end_offset=end_offset,
        keys=keys,
        values=values,
        headers=headers,
        check_crcs=check_crcs,
        skip=skip,
        topic=topic,
        partition=partition,
        max_bytes=max_bytes,
        max_records=max_records,
        max_data_bytes=max_data_bytes,
    )
    return Columns(raw, topic, partition)


def arrow_schema(columns: Sequence[str] = COLUMNS) -> pa.Schema:
    """The Arrow schema of these columns, exactly as Spark compares it: all nullable, no dictionaries, timestamps in microseconds of UTC."""
    pa = _pyarrow()
    unknown = [name for name in columns if name not in ALL_COLUMNS]
    if unknown:
        raise ConfigurationError(f"columns={unknown!r}: must be among {', '.join(ALL_COLUMNS)}")
    types = {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestampType": pa.int32(),
        "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    }
    return pa.schema([(name, types[name]) for name in columns])


def check_columns(columns: Any) -> tuple[str, ...]:
    """Names of columns, each once, one at least. Raises ConfigurationError."""
    if isinstance(columns, (str, bytes)) or not isinstance(columns, Iterable):
        raise ConfigurationError(f"columns={columns!r}: must be a list of names among {', '.join(ALL_COLUMNS)}")
    names = tuple(columns)
    if not names or any(name not in ALL_COLUMNS for name in names) or len(set(names)) < len(names):
        raise ConfigurationError(f"columns={list(names)!r}: must be one or more, each once, of {', '.join(ALL_COLUMNS)}")
    return names


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as exc:
        raise ConfigurationError(f"Arrow columns need the package pyarrow ({exc}): {install('arrow')}") from exc
    return pyarrow


def _asked(thing: Any, name: str) -> Any:
    if thing is None:
        hint = f"name it: to_arrow({name}=...)" if name in ("topic", "partition") else "decode it: decode_columns(headers=True, ...)"
        raise ConfigurationError(f"column {name!r} is not known here: {hint}")
    return thing


def _strings(column: BinaryColumn) -> Any:
    data, offsets, validity = bytes(column.data), column.offsets, column.validity
    for index in range(len(offsets) - 1):
        null = validity is not None and not validity[index >> 3] >> (index & 7) & 1
        yield None if null else data[offsets[index] : offsets[index + 1]]


def _binary(pa: Any, kind: Any, column: BinaryColumn) -> Any:
    validity = None if column.validity is None else pa.py_buffer(column.validity)
    buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(kind, len(column.offsets) - 1, buffers, column.null_count)


def _headers(pa: Any, kind: Any, column: HeaderColumn) -> Any:
    """Lists of (key, value); null for a record without headers, as the JVM connector gives it."""
    import pyarrow.compute as pc

    pairs = pa.StructArray.from_arrays([_text(pa, column.keys), _binary(pa, pa.binary(), column.values)], fields=list(kind.value_type))
    offsets = pa.Array.from_buffers(pa.int32(), len(column.offsets), [None, pa.py_buffer(column.offsets)])
    empty = pc.equal(offsets[1:], offsets[:-1])
    return pa.ListArray.from_arrays(offsets, pairs, type=kind, mask=empty if pc.any(empty).as_py() else None)


def _text(pa: Any, column: BinaryColumn) -> Any:
    """Keys as strings; one that is not UTF-8 gets U+FFFD in it, as in the Java client."""
    text = _binary(pa, pa.string(), column)
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array([key.decode("utf-8", "replace") for key in _strings(column)], pa.string())
    return text


def _constant(value: str | int, count: int) -> Any:
    """A column of one value, from those built before where it is not too long: a string, or an int32."""
    if count > CACHED_ROWS:
        return _repeated(value, count)
    return _cached(value, max(1 << (count - 1).bit_length(), 1024)).slice(0, count)


@functools.lru_cache(maxsize=32)
def _cached(value: str | int, count: int) -> Any:
    return _repeated(value, count)


def _repeated(value: str | int, count: int) -> Any:
    """Of buffers: pyarrow's scalars, and its arrays of Python objects, import pandas where it is installed, which no process here has asked for."""
    import pyarrow as pa

    if isinstance(value, int):
        return pa.Array.from_buffers(pa.int32(), count, [None, pa.py_buffer(array("i", [value]) * count)])
    text = value.encode()
    ends = array("i", range(0, (count + 1) * len(text), len(text)) if text else [0] * (count + 1))
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(ends), pa.py_buffer(text * count)])
