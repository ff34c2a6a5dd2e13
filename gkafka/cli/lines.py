"""Lines of a file or a pipe, by any delimiter, as soon as they are there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

from gkafka.cli.failures import ToolError
from gkafka.cli.pipes import read_some

__all__ = ["LONGEST", "blocks_of"]

CHUNK = 1 << 16
LONGEST = 64 << 20
"""Bytes of a line. A record has 1 MiB in most clusters, and hex or escapes make a few of it: what is longer has another delimiter."""


def blocks_of(stream: IO[bytes], delimiter: bytes = b"\n", longest: int = LONGEST) -> Iterator[list[bytes]]:
    """Lines without their delimiter, as many at once as are there; the last one need not have it. Raises ToolError for a line that is longer."""
    parts: list[bytes] = []
    held = number = 0
    overlap = len(delimiter) - 1
    while chunk := _read(stream):
        if overlap and parts:  # a delimiter may begin at the end of what is held
            tail = b""
            while parts and len(tail) < overlap:
                tail = parts.pop() + tail
            if len(tail) > overlap:
                parts.append(tail[:-overlap])
                tail = tail[-overlap:]
            held -= len(tail)
            chunk = tail + chunk
        lines = chunk.split(delimiter)
        rest = lines.pop()
        if lines:
            lines[0] = b"".join([*parts, lines[0]])
            number += len(lines)
            parts, held = [], 0
            yield lines
        parts.append(rest)
        held += len(rest)
        if held > longest:
            raise ToolError(
                f"line {number + 1}: longer than {longest} bytes without a delimiter ({delimiter!r})",
                hint="give the one that ends the records: --delimiter",
            )
    if held:
        yield [b"".join(parts)]


def _read(stream: IO[bytes]) -> bytes:
    try:
        return read_some(stream, CHUNK)
    except OSError as exc:
        raise ToolError(f"the lines cannot be read: {exc.strerror or exc}", hint="check the file, or what is on standard input") from exc
