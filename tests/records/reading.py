"""Reads buffers with either implementation into plain values that can be compared."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from types import ModuleType, SimpleNamespace
from typing import Any

from gkafka.exceptions import KafkaException

CONTEXT = SimpleNamespace(topic="t", partition_id=3, partition="the partition")
HEADER_FIELDS = [
    "start",
    "end",
    "magic",
    "base_offset",
    "last_offset",
    "next_offset",
    "count",
    "codec",
    "timestamp_type",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "is_control",
    "is_transactional",
    "leader_epoch",
]


def fields(header: Any) -> dict[str, Any]:
    return {name: getattr(header, name) for name in HEADER_FIELDS}


def row(m: Any) -> tuple[Any, ...]:
    return m.offset, m.timestamp, m.timestamp_type, m.key, m.value, m.headers, m.compression_type, m.size


def records(impl: ModuleType, buffer: Any, index: int = 0, **options: Any) -> Any:
    header = impl.scan(buffer, topic="t", partition=3)[index]
    return impl.Records(buffer, header, CONTEXT, **options)


def read(impl: ModuleType, buffer: Any, step: int = 1000, **options: Any) -> list[Any]:
    """All messages of all batches."""
    messages = []
    for header in impl.scan(buffer, topic="t", partition=3):
        taker = impl.Records(buffer, header, CONTEXT, **options)
        while taken := taker.take(step):
            messages += taken
    return messages


def said(error: KafkaException) -> tuple[Any, ...]:
    return type(error).__name__, str(error), error.topic, error.partition, error.offset


def outcome(impl: ModuleType, buffer: Any, step: int, **options: Any) -> list[Any]:
    """Everything that can be seen of reading a buffer to its end or its first error, batch by batch, `step` records at a time."""
    seen: list[Any] = []
    rest = memoryview(buffer)
    try:
        while len(rest):
            headers = impl.scan(rest, topic="t", partition=3)
            if not headers:
                return [*seen, "cut", len(rest)]
            for header in headers:
                seen.append(fields(header))
                _take(impl, rest, header, step, seen, options)
            rest = rest[headers[-1].end :]
    except KafkaException as error:
        seen.append(said(error))
    return seen


def _take(impl: ModuleType, buffer: Any, header: Any, step: int, seen: list[Any], options: dict[str, Any]) -> None:
    taker = impl.Records(buffer, header, CONTEXT, **options)
    while True:
        seen.append((taker.remaining, taker.next_offset))
        messages = taker.take(step)
        if not messages:
            seen.append((taker.remaining, taker.next_offset))
            return
        seen += [row(m) for m in messages]


def columns(impl: ModuleType, buffer: Any, **options: Any) -> Any:
    """What decode_columns gives, as plain values; the error's words if it raises."""
    try:
        raw = impl.decode_columns(buffer, topic="t", partition=3, **options)
    except KafkaException as error:
        return said(error)
    return {
        "count": raw.count,
        "next_offset": raw.next_offset,
        "complete": raw.complete,
        "error": raw.error and said(raw.error),
        "offsets": list(raw.offsets),
        "timestamps": list(raw.timestamps),
        "types": list(raw.timestamp_types),
        "keys": raw.keys and strings(raw.keys),
        "values": raw.values and strings(raw.values),
        "headers": raw.headers and (list(raw.headers.offsets), strings(raw.headers.keys), strings(raw.headers.values)),
    }


def strings(column: Any) -> list[bytes | None]:
    offsets, data, bits = list(column.offsets), bytes(column.data), column.validity
    null = [bits is not None and not bits[i >> 3] >> (i & 7) & 1 for i in range(len(offsets) - 1)]
    assert sum(null) == column.null_count
    assert (bits is None) == (column.null_count == 0)
    return [None if null[i] else data[offsets[i] : offsets[i + 1]] for i in range(len(offsets) - 1)]


def consumed(impl: ModuleType, buffer: Any, sizes: Sequence[int], *, offset: int = 0, most: int | None = None, **options: Any) -> list[Any]:
    """All that a consumer sees of a fetched buffer: its records, where it stands, and what ends it.

    sizes: of the takes, in turn. offset: the first that is wanted. most: batches of a span, None for
    as many as there may be.
    """
    bound = {} if most is None else {"most": most}
    seen: list[Any] = []
    turn = cycle(sizes)
    end, start, stands = -1, 0, offset
    try:
        while (span := impl.span_at(buffer, start, offset=offset, topic="t", partition=3, **bound)) is not None:
            start = span.end
            if span.base_offset < end:
                return [*seen, stands, "out of order"]
            end = span.next_offset
            if span.first.is_control or span.next_offset <= offset:
                continue
            reader = impl.Records(buffer, span, CONTEXT, min_offset=offset, **options)
            while reader.remaining:
                stood = reader.next_offset
                got = reader.take(next(turn))
                seen += [row(m) for m in got]
                stands = reader.next_offset
                assert got or stands > stood or not reader.remaining, "a take that neither gives nor moves"
            assert (span.count, span.batches) != (0, 0)
            assert stands >= max(span.next_offset, offset)
    except KafkaException as error:
        return [*seen, stands, said(error), getattr(error, "next_offset", None)]
    return [*seen, stands, len(buffer) - start]
