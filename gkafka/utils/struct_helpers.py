"""`struct.unpack_from` with Kafka's arrays, strings and byte arrays (reference: pykafka.utils.struct_helpers)."""

from __future__ import annotations

import re
import struct
from functools import lru_cache
from typing import Any, NamedTuple

from gkafka.exceptions import ConfigurationError, ProtocolError

__all__ = ["unpack_from"]

Buffer = bytes | bytearray | memoryview
_TOKEN = re.compile(r"\d*[xcbB?hHiIlLqQefdsp]|[SY\[\]]")
_SHORT, _INT = struct.Struct(">h"), struct.Struct(">i")


def unpack_from(fmt: str, buff: Buffer, offset: int = 0) -> Any:
    """The values that stand in buff from offset on, always in network order: a tuple, or the list alone if fmt is one array.

    fmt: as for `struct.unpack_from`, spaces ignored, and `[...]` for an array (int32 count; a list of tuples, of plain values if it holds one
    letter; a count of -1 is an empty one), `S` for a string (int16 length) and `Y` for a byte array (int32 length), both bytes, None for -1.
    Raises ProtocolError, with the position, where the buffer does not hold that; ConfigurationError for a format that is none.
    """
    values, _ = unpack_with_end(fmt, buff, offset)
    return values[0] if len(values) == 1 and fmt.lstrip("!<>=@ ").startswith("[") else values


def unpack_with_end(fmt: str, buff: Buffer, offset: int) -> tuple[tuple[Any, ...], int]:
    """The values as a tuple, and the position behind them."""
    view = memoryview(buff).cast("B")
    if not 0 <= offset <= len(view):
        raise ProtocolError(f"unpacking {fmt!r}: position {offset} is not in a buffer of {len(view)} bytes")
    try:
        return _take(_parsed(fmt), view, offset)
    except struct.error as exc:
        raise ProtocolError(f"unpacking {fmt!r} from byte {offset} of {len(view)}: {exc}") from None


class Array(NamedTuple):
    """The format inside of brackets. plain: it is one letter."""

    parts: tuple[Any, ...]
    plain: bool


@lru_cache(maxsize=256)
def _parsed(fmt: str) -> tuple[Any, ...]:
    """A format's parts: a struct.Struct, "S", "Y" or an Array."""
    text = fmt.replace(" ", "").lstrip("!<>=@")
    tokens = _TOKEN.findall(text)
    if not text or "".join(tokens) != text:
        raise ConfigurationError(f"fmt={fmt!r}: must be letters of struct, S, Y and [...], as 'i[Sh]'")
    open_: list[list[Any]] = [[]]
    for token in tokens:
        if token == "[":
            open_.append([])
        elif token != "]":
            open_[-1].append(token if token in ("S", "Y") else struct.Struct(">" + token))
        elif len(open_) == 1 or not open_[-1]:
            raise ConfigurationError(f"fmt={fmt!r}: a bracket closes nothing")
        else:
            parts = tuple(open_.pop())
            open_[-1].append(Array(parts, len(parts) == 1 and not isinstance(parts[0], Array)))
    if len(open_) > 1:
        raise ConfigurationError(f"fmt={fmt!r}: a bracket is not closed")
    return tuple(open_[0])


def _take(parts: tuple[Any, ...], view: memoryview, at: int) -> tuple[tuple[Any, ...], int]:
    values: list[Any] = []
    for part in parts:
        if isinstance(part, struct.Struct):
            values += part.unpack_from(view, at)
            at += part.size
        elif isinstance(part, Array):
            items, at = _take_array(part, view, at)
            values.append(items)
        else:
            blob, at = _take_blob(_SHORT if part == "S" else _INT, view, at)
            values.append(blob)
    return tuple(values), at


def _take_array(array: Array, view: memoryview, at: int) -> tuple[list[Any], int]:
    (count,) = _INT.unpack_from(view, at)
    at += _INT.size
    # An element takes at least a byte: no count outruns the buffer.
    if count < -1 or count > len(view) - at:
        raise ProtocolError(f"an array of {count} elements at byte {at - _INT.size}, where {len(view) - at} bytes are left")
    items: list[Any] = []
    for _ in range(count):
        item, at = _take(array.parts, view, at)
        items.extend(item) if array.plain else items.append(item)
    return items, at


def _take_blob(length: struct.Struct, view: memoryview, at: int) -> tuple[bytes | None, int]:
    (size,) = length.unpack_from(view, at)
    start = at + length.size
    if size == -1:
        return None, start
    if size < 0 or size > len(view) - start:
        raise ProtocolError(f"{size} bytes at byte {at}, where {len(view) - start} are left")
    return bytes(view[start : start + size]), start + size
