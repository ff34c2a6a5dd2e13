"""Files of properties: as Java's clients read them, or with sections, as the files of Python's configparser have them; and NAME=VALUE.

A file with a line such as [consumer] has sections. In it a backslash is a backslash; in the others it begins an escape.
Source: java.util.Properties.load, https://docs.python.org/3/library/configparser.html#supported-ini-file-structure
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from gkafka.exceptions import ConfigurationError

__all__ = ["CONSUMER", "PRODUCER", "Line", "is_pair", "parse_pair", "parse_properties", "read_lines", "split_section", "wanted_sections"]

KEY = re.compile(r"(?:\\.|[^\\\s=:])*", re.DOTALL)
SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}
MEANT_AS_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|[\\:=#! ])")
"""Escapes that Java's own Properties.store() writes, and a backslash that was doubled."""
SECTION = re.compile(r"\[([\w .-]{1,60})\]\s*(?:[#;].*)?")
PRODUCER, CONSUMER = "producer", "consumer"
OF_ALL, OF_ROLES = ("", "default"), (PRODUCER, CONSUMER, "admin")
"""Names of sections that say whom they are for: everybody, or one kind of client."""


class Line(NamedTuple):
    """number: where it begins in its file, from 1. is_pair: a sign stands between name and value, and not at the end, as that of base64 does.
    section: in lower case, "" before the first. lost: a backslash of the value was taken for an escape that nobody may have meant."""

    number: int
    name: str
    value: str
    is_pair: bool
    section: str = ""
    lost: bool = False


def parse_properties(text: str) -> dict[str, str]:
    """{name: value} of a file's text: comments by # and !, lines that a backslash continues, \\uXXXX. A name's last value counts."""
    return {line.name: line.value for line in read_lines(text)}


def read_lines(text: str) -> Iterator[Line]:
    """Each property of a file's text, as it stands there."""
    lines = re.split(r"\r\n|\r|\n", text)
    if any(SECTION.fullmatch(line.strip()) for line in lines):
        yield from _of_sections(lines)
        return
    for number, line in _logical_lines(lines):
        key = KEY.match(line)
        assert key is not None  # it matches nothing, too
        separator = SEPARATOR.match(line, key.end())
        assert separator is not None
        raw = line[separator.end() :]
        value = _unescaped(raw)
        lost = "\\" in MEANT_AS_ESCAPE.sub("", raw)
        yield Line(number, _unescaped(key[0]), value, is_pair(separator[0], value), lost=lost)


def _of_sections(lines: list[str]) -> Iterator[Line]:
    section = ""
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text[0] in "#;!":
            continue
        named = SECTION.fullmatch(text)
        if named is not None:
            section = named[1].strip().lower()
            continue
        name, sign, value = text.partition("=") if "=" in text else text.partition(":")
        yield Line(number, name.strip(), value.strip(), is_pair(sign, value.strip()), section)


def split_section(path: str) -> tuple[str, str]:
    """("client.ini", "consumer") of "client.ini:consumer"; the section is "" where none is named, or a file has the whole as its name."""
    before, sign, section = path.rpartition(":")
    if not sign or os.path.exists(path) or not os.path.exists(before):
        return path, ""
    return before, section.strip().lower()


def wanted_sections(path: str, there: list[str], section: str) -> dict[str, tuple[str, ...]]:
    """Which sections of a file say something for whom, later ones before earlier ones: {"": of everybody, "producer": ..., "consumer": ...}.

    there: the file's sections. section: the one that was named, "" for none. Raises ConfigurationError for one that is not there, and where one must be
    named.
    """
    named = [name for name in there if name]
    if section and section not in named:
        raise ConfigurationError(f"{path}: has no section {section!r}; there are: {', '.join(named) or 'none'}")
    if section:
        return {"": tuple(dict.fromkeys((*OF_ALL, section)))}
    others = [name for name in named if name not in OF_ALL + OF_ROLES]
    if others:
        raise ConfigurationError(f"{path}: has the sections {', '.join(named)}: which one? Name it behind the file, as {path}:{others[0]}")
    return {"": OF_ALL, PRODUCER: (PRODUCER,), CONSUMER: (CONSUMER,)}


def is_pair(separator: str, value: str) -> bool:
    """Is it meant as a name and a value?"""
    return ":" in separator or ("=" in separator and bool(value.strip("= ")))


def _logical_lines(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Numbers and lines with their continuations joined, without comments and empty ones."""
    held, begun = "", 1
    for number, line in enumerate(lines, 1):
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
