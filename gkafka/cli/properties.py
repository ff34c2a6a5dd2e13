"""Files of properties, as Java's clients read them, and NAME=VALUE of a command line.

Source: java.util.Properties.load
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from gkafka.exceptions import ConfigurationError

__all__ = ["Line", "is_pair", "parse_pair", "parse_properties", "read_lines"]

KEY = re.compile(r"(?:\\.|[^\\\s=:])*", re.DOTALL)
SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


class Line(NamedTuple):
    """number: where it begins in its file, from 1. is_pair: a sign stands between name and value, and not at the end, as that of base64 does."""

    number: int
    name: str
    value: str
    is_pair: bool


def parse_properties(text: str) -> dict[str, str]:
    """{name: value} of a file's text: comments by # and !, lines that a backslash continues, \\uXXXX. A name's last value counts."""
    return {line.name: line.value for line in read_lines(text)}


def read_lines(text: str) -> Iterator[Line]:
    """Each property of a file's text, as it stands there."""
    for number, line in _logical_lines(text):
        key = KEY.match(line)
        assert key is not None  # it matches nothing, too
        separator = SEPARATOR.match(line, key.end())
        assert separator is not None
        value = _unescaped(line[separator.end() :])
        yield Line(number, _unescaped(key[0]), value, is_pair(separator[0], value))


def is_pair(separator: str, value: str) -> bool:
    """Is it meant as a name and a value?"""
    return ":" in separator or ("=" in separator and bool(value.strip("= ")))


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Numbers and lines with their continuations joined, without comments and empty ones."""
    held, begun = "", 1
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        part = line.lstrip(" \t\f")
        if not held and (not part or part[0] in "#!"):
            continue
        begun = begun if held else number
        held += part
        if (len(held) - len(held.rstrip("\\"))) % 2:
            held = held[:-1]
            continue
        yield begun, held
        held = ""
    if held:
        yield begun, held


def _unescaped(text: str) -> str:
    return ESCAPE.sub(lambda m: chr(int(m[1][1:], 16)) if len(m[1]) == 5 else ESCAPES.get(m[1], m[1]), text)


def parse_pair(option: str, text: str) -> tuple[str, str]:
    """("linger.ms", "5") of "linger.ms=5". option: where it was given, for the error's text."""
    name, sign, value = text.partition("=")
    if not sign or not name.strip():
        raise ConfigurationError(f"{option} {text!r}: must be NAME=VALUE")
    return name.strip(), value.strip()
