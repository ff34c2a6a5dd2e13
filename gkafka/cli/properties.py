"""Files of properties, as Java's clients read them, and NAME=VALUE of a command line.

Source: java.util.Properties.load
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gkafka.exceptions import ConfigurationError

__all__ = ["parse_pair", "parse_properties"]

KEY = re.compile(r"(?:\\.|[^\\\s=:])*", re.DOTALL)
SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """{name: value} of a file's text: comments by # and !, lines that a backslash continues, \\uXXXX. A name's last value counts."""
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        key = KEY.match(line)
        assert key is not None  # it matches nothing, too
        separator = SEPARATOR.match(line, key.end())
        assert separator is not None
        found[_unescaped(key[0])] = _unescaped(line[separator.end() :])
    return found


def _logical_lines(text: str) -> Iterator[str]:
    """Lines with their continuations joined, without comments and empty ones."""
    held = ""
    for line in re.split(r"\r\n|\r|\n", text):
        part = line.lstrip(" \t\f")
        if not held and (not part or part[0] in "#!"):
            continue
        held += part
        if (len(held) - len(held.rstrip("\\"))) % 2:
            held = held[:-1]
            continue
        yield held
        held = ""
    if held:
        yield held


def _unescaped(text: str) -> str:
    return ESCAPE.sub(lambda m: chr(int(m[1][1:], 16)) if len(m[1]) == 5 else ESCAPES.get(m[1], m[1]), text)


def parse_pair(option: str, text: str) -> tuple[str, str]:
    """("linger.ms", "5") of "linger.ms=5". option: where it was given, for the error's text."""
    name, sign, value = text.partition("=")
    if not sign or not name.strip():
        raise ConfigurationError(f"{option} {text!r}: must be NAME=VALUE")
    return name.strip(), value.strip()
