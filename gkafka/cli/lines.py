"""Lines of a file or a pipe, by any delimiter, as soon as they are there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

from gkafka.cli.failures import ToolError
from gkafka.cli.pipes import read_some

__all__ = ["LONGEST", "lines_of"]

CHUNK = 1 << 16
LONGEST = 64 << 20
"""Bytes of a line. A record has 1 MiB in most clusters, and hex or escapes make a few of it: what is longer has another delimiter."""


def lines_of(stream: IO[bytes], delimiter: bytes = b"\n", longest: int = LONGEST) -> Iterator[bytes]:
    """Lines without their delimiter; the last one need not have it. Raises ToolError for a line that is longer."""
    parts: list[bytes] = []
    held = number = 0
    while chunk := _read(stream):
        if len(delimiter) > 1 and parts:  # it may begin in what is held
            chunk, parts, held = b"".join([*parts, chunk]), [], 0
        first, *others = chunk.split(delimiter)
        parts.append(first)
        held += len(first)
        for following in others:
            number += 1
            yield b"".join(parts)
            parts, held = [following], len(following)
        if held > longest:
            raise ToolError(
                f"line {number + 1}: longer than {longest} bytes without a delimiter ({delimiter!r})",
                hint="give the one that ends the records: --delimiter",
            )
    if held:
        yield b"".join(parts)


def _read(stream: IO[bytes]) -> bytes:
    try:
        return read_some(stream, CHUNK)
    except OSError as exc:
        raise ToolError(f"the lines cannot be read: {exc.strerror or exc}", hint="check the file, or what is on standard input") from exc
