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
from gkafka.pages import page

__all__ = ["CONSUMER", "PRODUCER", "Line", "is_pair", "is_utf16", "kind_of", "parse_pair", "read_lines", "split_section", "wanted_sections"]

KEY = re.compile(r"(?:\\.|[^\\\s=:])*", re.DOTALL)
SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}
MEANT_AS_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|[\\:=#! ])")
"""Escapes that Java's own Properties.store() writes, and a backslash that was doubled."""
YAML = "is YAML: write lines NAME=VALUE, each name in full"
OTHER_KINDS = {
    r"[{\[]": "is JSON, or a dict of Python: write lines NAME=VALUE; in a program, KafkaClient.from_properties() takes what json.load() gives",
    r"<": "is XML: write lines NAME=VALUE",
    r"export$": f"has lines of a shell ('export NAME=VALUE'): write NAME=VALUE alone, by the names of {page('options')}",
    r"-$|---$": YAML,
}
"""How the name in a line of a text of another kind begins, and what to say of that text."""
SECTION = re.compile(r"\[([\w .-]{1,60})\]\s*(?:[#;].*)?")
PRODUCER, CONSUMER = "producer", "consumer"
OF_ALL, OF_ROLES = ("", "default"), (PRODUCER, CONSUMER, "admin")
"""Names of sections that say whom they are for: everybody, or one kind of client."""


class Line(NamedTuple):
    """number: where it begins in its file, from 1. is_pair: a sign stands between name and value, and not at the end, as that of base64 does.
    section: in lower case, "" before the first. lost: a backslash of the value was taken for an escape that nobody may have meant. more: the further
    lines of the value, as they stand there."""

    number: int
    name: str
    value: str
    is_pair: bool
    section: str = ""
    lost: bool = False
    more: tuple[str, ...] = ()


def is_utf16(text: str) -> bool:
    """Was it read from a file of UTF-16, as if that were UTF-8?"""
    return text.startswith(("\udcff\udcfe", "\udcfe\udcff")) or {"\0"} in (set(text[:40:2]), set(text[1:40:2]))


def kind_of(line: Line) -> str:
    """What a text is that is no file of properties, with the next step; "" if it may be one. line: one of it, that is no property."""
    if line.value == "{":
        return "is a login file of Java (JAAS): give the login module and its options in one line, sasl.jaas.config=... required ...;"
    if not line.value and line.is_pair:
        return YAML
    return next((why for pattern, why in OTHER_KINDS.items() if re.match(pattern, line.name)), "")


def read_lines(text: str) -> Iterator[Line]:
    """Each property of a file's text, as it stands there. Comments begin with # and !; a backslash continues a line, and begins \\uXXXX."""
    lines = re.split(r"\r\n|\r|\n", text)
    logical = list(_logical_lines(lines))
    if any(SECTION.fullmatch(parts[0].strip()) for _, parts in logical):  # not of a value that goes on, which may look so
        yield from _of_sections(lines)
        return
    for number, parts in logical:
        line = "".join(parts)
        key = KEY.match(line)
        assert key is not None  # it matches nothing, too
        separator = SEPARATOR.match(line, key.end())
        assert separator is not None
        raw = line[separator.end() :]
        value = _unescaped(raw)
        lost = "\\" in MEANT_AS_ESCAPE.sub("", raw)
        yield Line(number, _unescaped(key[0]), value, is_pair(separator[0], value), lost=lost, more=tuple(parts[1:]))


def _of_sections(lines: list[str]) -> Iterator[Line]:
    """As configparser reads them: lines that stand further to the right than a name belong to its value."""
    section, depth = "", 0
    held: Line | None = None
    for number, line in enumerate(lines, 1):
        text = line.strip()
        indent = len(line) - len(line.lstrip())
        if not text or text[0] in "#;!":
            continue
        named = SECTION.fullmatch(text)
        if held is not None and indent > depth and named is None:
            held = held._replace(value=f"{held.value}\n{text}".strip(), more=(*held.more, text), is_pair=True)
            continue
        if held is not None:
            yield held
        held, depth = None, indent
        if named is not None:
            section = named[1].strip().lower()
            continue
        name, sign, value = re.fullmatch(r"([^=:]*)([=:]?)(.*)", text).groups()  # type: ignore[union-attr]  # it matches any line
        held = Line(number, name.strip(), value.strip(), is_pair(sign, value.strip()), section)
    if held is not None:
        yield held


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


def _logical_lines(lines: list[str]) -> Iterator[tuple[int, list[str]]]:
    """Numbers and lines with their continuations, without comments and empty ones. A backslash at the end of all of it continues nothing: an empty part."""
    held: list[str] = []
    begun = 1
    for number, line in enumerate(lines, 1):
        part = line.lstrip(" \t\f")
        if not held and (not part or part[0] in "#!"):
            continue
        begun = begun if held else number
        if (len(part) - len(part.rstrip("\\"))) % 2:
            held.append(part[:-1])
            continue
        yield begun, [*held, part]
        held = []
    if held:
        yield begun, [*held, ""]


def _unescaped(text: str) -> str:
    return ESCAPE.sub(lambda m: chr(int(m[1][1:], 16)) if len(m[1]) == 5 else ESCAPES.get(m[1], m[1]), text)


def parse_pair(option: str, text: str) -> tuple[str, str]:
    """("linger.ms", "5") of "linger.ms=5". option: where it was given, for the error's text."""
    name, sign, value = text.partition("=")
    if not sign or not name.strip():
        raise ConfigurationError(f"{option} {text!r}: must be NAME=VALUE")
    return name.strip(), value.strip()
