"""Rows as Spark hands them to a sink: which columns they may have, and each topic's as columns of records.

Source: KafkaWriter.scala, KafkaWriteTask.scala (Spark 4.2), whose words the refusals keep.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from gkafka.checks import check_topic_name
from gkafka.exceptions import ConfigurationError
from gkafka.records import RecordColumns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["TopicRows", "check_written_columns", "topic_rows", "unwritten_columns"]

TYPES = {
    "topic": ("string",),
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "partition": ("int",),
}
"""Column -> what it may be, in Spark's words. Other columns are not written."""
CASTS = {
    "topic": "cast(topic as string)",
    "key": "cast(key as string), or to_json of a struct",
    "value": "cast(value as string), or to_json(struct(*)) for a whole row",
    "headers": "array(struct('name' as key, cast('text' as binary) as value))",
    "partition": "cast(partition as int)",
}


class TopicRows(NamedTuple):
    """Rows for one topic. numbers: what errors call them, counted from the first of the task."""

    topic: str
    columns: RecordColumns
    numbers: Sequence[int]


def check_written_columns(schema: StructType, topic: str | None) -> None:
    """topic: the option. Raises ConfigurationError in the JVM connector's words, and with the next step."""
    kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
    twice = [name for name in TYPES if sum(field.name == name for field in schema.fields) > 1]
    if twice:
        raise ConfigurationError(
            f"{len(schema.fields)} columns, of which more than one is {twice[0]!r}: name or select the one to be written"
        )
    if topic is None and "topic" not in kinds:
        raise ConfigurationError("topic option required when no 'topic' attribute is present. Use the topic option for setting a topic.")
    if "value" not in kinds:
        raise ConfigurationError(
            f"Required attribute 'value' not found; the columns are {', '.join(kinds) or 'none'}: name one of them so, or select {CASTS['value']}"
        )
    for name, allowed in TYPES.items():
        kind = kinds.get(name, "").lower() if name == "headers" else kinds.get(name)  # the case of a struct's fields does not count
        if name in kinds and kind not in allowed and not (name == "topic" and topic is not None):
            raise ConfigurationError(
                f"{name} attribute unsupported type {kinds[name]}. {name} must be a(n) {' or '.join(allowed)}: select {CASTS[name]} as {name}"
            )


def unwritten_columns(schema: StructType) -> Iterator[str]:
    """Warnings of columns that are not written, though they look like it: the case of a column's name counts, as in the JVM connector."""
    for name in (field.name for field in schema.fields):
        if name.lower() in TYPES and name not in TYPES:
            yield f"column {name!r} is not written: the case of names counts, and the one that is written is called {name.lower()!r}"


def topic_rows(batches: Iterable[pa.RecordBatch], topic: str | None, include_headers: bool) -> Iterator[TopicRows]:
    """The rows of a task, a batch after the other, those of one topic together. Raises ConfigurationError for a row without a topic."""
    first = 0
    for batch in batches:
        if batch.num_rows:
            names = {"value", "key", "partition", *(("headers",) if include_headers else ())}
            if topic is not None:
                yield TopicRows(topic, _columns(batch, names), range(first, first + batch.num_rows))
            else:
                yield from _by_topic(batch, names, first)
        first += batch.num_rows


def _columns(batch: pa.RecordBatch, names: set[str]) -> RecordColumns:
    return RecordColumns.from_arrow(**{name: batch.column(name) for name in batch.schema.names if name in names})


def _by_topic(batch: pa.RecordBatch, names: set[str], first: int) -> Iterator[TopicRows]:
    import pyarrow.compute as pc

    topics = batch.column("topic")
    if topics.null_count:
        row = pc.indices_nonzero(topics.is_null())[0].as_py()
        raise ConfigurationError(f"row {first + row}: null topic present in the data. Use the topic option for setting a default topic.")
    if pc.all(pc.equal(topics, topics[0])).as_py():
        yield TopicRows(_topic(topics[0], first), _columns(batch, names), range(first, first + batch.num_rows))
        return
    coded = topics.dictionary_encode()
    picked = pc.array_sort_indices(coded.indices)  # a stable sort: rows of a topic stay in order
    together, begin = batch.take(picked), 0
    for count in pc.value_counts(coded.indices.take(picked)):
        size = count["counts"].as_py()
        columns, numbers = _columns(together.slice(begin, size), names), _Numbers(picked.slice(begin, size), first)
        yield TopicRows(_topic(coded.dictionary[count["values"].as_py()], numbers[0]), columns, numbers)
        begin += size


def _topic(name: pa.StringScalar, row: int) -> str:
    return check_topic_name(name.as_py(), f"row {row}: topic")


class _Numbers(Sequence[int]):
    """Rows picked from a batch that begins with number `first`."""

    def __init__(self, picked: pa.Array, first: int) -> None:
        self._picked, self._first = picked, first

    def __len__(self) -> int:
        return len(self._picked)

    def __getitem__(self, index: Any) -> Any:
        number: int = self._picked[index].as_py()
        return self._first + number
