"""JSON of which the characters stay: the members of an object, each with its value as it was written.

Who parses a value and writes it again changes it: 1.10 becomes 1.1, a number beyond 2**53 another one, 1e400 no JSON at all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

__all__ = ["Member", "Number", "elements_of", "members_of", "text_of"]

_blanks = re.compile(r"[ \t\n\r]*").match


class Number(str):
    """A number as its digits: however many there are, none is lost."""

    __slots__ = ()


class Member(NamedTuple):
    """A member of an object. value: texts as str, numbers as Number, all else as json has it; text: its very characters, without blanks around."""

    name: str
    value: Any
    text: str


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


_decoder = json.JSONDecoder(parse_float=Number, parse_int=Number, parse_constant=_refuse)


def text_of(data: bytes) -> str:
    """The characters of JSON, by the rules of json.loads(). Raises UnicodeDecodeError."""
    return data.decode(json.detect_encoding(data), "surrogatepass")


def members_of(text: str) -> list[Member] | None:
    """The members of the object that a JSON text is, in their order; None if it is something else. Raises ValueError for what is no JSON, and
    RecursionError for what is nested too deeply.
    """
    begin = _behind(text, 0)
    if text[begin : begin + 1] != "{":
        _decoder.decode(text)
        return None
    members, end = _members(text, begin)
    end = _behind(text, end)
    if end != len(text):
        raise json.JSONDecodeError("Extra data", text, end)
    return members


def elements_of(text: str) -> Iterator[Member]:
    """The elements of a list that was read already, each with its very characters; their names are empty."""
    at = _behind(text, 1)
    while text[at] != "]":
        value, end = _decoder.raw_decode(text, at)
        yield Member("", value, text[at:end])
        at = _behind(text, end)
        if text[at] == ",":
            at = _behind(text, at + 1)


def _members(text: str, begin: int) -> tuple[list[Member], int]:
    """Those of the object that begins there, and where it ends."""
    found: list[Member] = []
    at = _behind(text, begin + 1)
    if text[at : at + 1] == "}":
        return found, at + 1
    while True:
        if text[at : at + 1] != '"':
            raise json.JSONDecodeError("Expecting property name enclosed in double quotes", text, at)
        name, at = _decoder.raw_decode(text, at)
        at = _behind(text, at)
        if text[at : at + 1] != ":":
            raise json.JSONDecodeError("Expecting ':' delimiter", text, at)
        at = _behind(text, at + 1)
        value, end = _decoder.raw_decode(text, at)
        found.append(Member(name, value, text[at:end]))
        at = _behind(text, end)
        if text[at : at + 1] == "}":
            return found, at + 1
        if text[at : at + 1] != ",":
            raise json.JSONDecodeError("Expecting ',' delimiter", text, at)
        at = _behind(text, at + 1)


def _behind(text: str, at: int) -> int:
    """Where the blanks end that begin there."""
    found = _blanks(text, at)
    return at if found is None else found.end()
