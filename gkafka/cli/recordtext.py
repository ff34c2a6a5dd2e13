"""Records as lines, and lines as records: text, JSON, hex.

A line of JSON has all of a record, so that what `consume` printed `produce` writes again, byte for byte: what is not UTF-8 stands in base64 under
the same name with `_base64` behind it. So has a line of `kcat -J`, which is read. Text and hex have the value, and what is asked for before it.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import click

from gkafka.cli.arguments import as_time
from gkafka.cli.jsontext import Member, Number, elements_of, members_of, text_of
from gkafka.cli.output import clean
from gkafka.cli.quantities import ParamType

__all__ = [
    "FIELDS",
    "FORMATS",
    "JSON_FORMATS",
    "READ_FORMATS",
    "BadLine",
    "BytesType",
    "Draft",
    "Message",
    "Lines",
    "hex_lines",
    "is_value",
    "json_lines",
    "reader",
    "shown_on_terminal",
    "text_lines",
    "unescaped",
    "value_lines",
]

FORMATS = ("text", "json", "hex")
JSON_FORMATS = ("json", "kcat")
"""Those whose lines are objects with fields."""
READ_FORMATS = (*FORMATS, "kcat")
FIELDS = ("topic", "partition", "offset", "timestamp", "headers", "key")
JSON_FIELDS = ("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "key_base64", "value", "value_base64", "headers")
KCAT_FIELDS = ("topic", "partition", "offset", "tstype", "ts", "broker", "headers", "key", "payload")
TIMESTAMP_TYPES = {-1: "none", 0: "create", 1: "append"}

_quoted = json.encoder.encode_basestring
"""A text as JSON has it, beyond ASCII as it is: json.dumps(text, ensure_ascii=False), without an encoder made for it."""

Header = tuple[str, "bytes | None"]
Message = Any  # gkafka.common.Message, whose fields the twins of records have as properties


class BadLine(ValueError):
    """A line that is no record: what is wrong with it, and what it must be."""


class Draft(NamedTuple):
    """A record to be written. partition, timestamp (ms since the epoch): None where the line does not say."""

    value: bytes | None
    key: bytes | None = None
    headers: list[Header] | None = None
    partition: int | None = None
    timestamp: int | None = None


# -- lines of records ------------------------------------------------------------------------------------------------------
Lines = Callable[[Sequence[Message]], list[bytes]]
"""A line for each of many records, without what stands behind it."""


def json_lines(messages: Sequence[Message]) -> list[bytes]:
    """All of a record on one line, UTF-8. No character of it moves a terminal's cursor: what cannot be printed is escaped."""
    lines = []
    of, head = (None, -1), ""
    for message in messages:
        place = message.topic, message.partition_id
        if place != of:
            of, head = place, f'{{"topic":{_quoted(place[0])},"partition":{place[1]},"offset":'
        timestamp, headers = message.timestamp, message.headers
        lines.append(
            f'{head}{message.offset},"timestamp":{timestamp if timestamp >= 0 else "null"},'
            f'"timestamp_type":"{TIMESTAMP_TYPES[int(message.timestamp_type)]}",{_json_bytes("key", message.key)},'
            f'{_json_bytes("value", message.value)},"headers":[{_json_headers(headers) if headers else ""}]}}'
        )
    if not "".join(lines).isprintable():
        lines = [line if line.isprintable() else "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in line) for line in lines]
    return [line.encode() for line in lines]


def _json_bytes(name: str, data: bytes | None) -> str:
    if data is None:
        return f'"{name}":null'
    try:
        return f'"{name}":{_quoted(data.decode())}'
    except UnicodeDecodeError:
        return f'"{name}_base64":"{base64.b64encode(data).decode()}"'


def _json_headers(headers: Sequence[Header]) -> str:
    return ",".join(f'{{"name":{_quoted(name)},{_json_bytes("value", value)}}}' for name, value in headers)


def value_lines(null: bytes) -> Lines:
    """Makes lines of the values, as they are."""
    return lambda messages: [null if (value := message.value) is None else value for message in messages]


def text_lines(*, show: Sequence[str], separator: bytes, null: bytes, shown: Callable[[bytes], bytes]) -> Lines:
    """Makes lines of the value, with what `show` names before it. shown: what becomes of bytes of the record, see `shown_on_terminal`."""

    def written(data: bytes | None) -> bytes:
        return null if data is None else shown(data)

    return _lines(show, separator, written)


def hex_lines(*, show: Sequence[str], separator: bytes, null: bytes) -> Lines:
    """The same with keys and values (those of headers, too) as hexadecimal digits."""

    def written(data: bytes | None) -> bytes:
        return null if data is None else binascii.hexlify(data)

    return _lines(show, separator, written)


def _lines(show: Sequence[str], separator: bytes, written: Callable[[bytes | None], bytes]) -> Lines:
    def header_text(message: Message) -> bytes:
        return b",".join(clean(name).encode("utf-8", "backslashreplace") + b"=" + written(value) for name, value in message.headers)

    fields: dict[str, Callable[[Message], bytes]] = {
        "key": lambda message: written(message.key),
        "headers": header_text,
        "timestamp": lambda message: _time(message.timestamp),
        "topic": lambda message: str(message.topic).encode(),
        "partition": lambda message: b"%d" % message.partition_id,
        "offset": lambda message: b"%d" % message.offset,
    }
    chosen = [fields[name] for name in show]
    if not chosen:
        return lambda messages: [written(message.value) for message in messages]
    return lambda messages: [separator.join([*[field(message) for field in chosen], written(message.value)]) for message in messages]


@lru_cache(4096)  # those of a batch are few
def _time(timestamp: int) -> bytes:
    return as_time(timestamp).encode() if timestamp >= 0 else b"-"


def shown_on_terminal(data: bytes) -> bytes:
    """Bytes of a record, harmless: what is not UTF-8, and what steers a terminal, stands there as an escape."""
    return clean(data.decode("utf-8", "backslashreplace")).encode("utf-8", "backslashreplace")


# -- records of lines ------------------------------------------------------------------------------------------------------
def reader(
    form: str, *, separator: bytes | None = None, key_field: str | None = None, null: bytes | None = None
) -> Callable[[bytes], Draft | None]:
    """Makes records of lines; None for a line that is none and need not be (an empty one of JSON). Raises BadLine.

    separator: between key and value. key_field: the line is a JSON object whose field is the key, and the whole line the value. null: the text of
    a key or value that is null.
    """
    if form in JSON_FORMATS:
        return _read_json if form == "json" else _read_kcat
    if key_field is not None:
        return lambda line: Draft(line, _key_of(line, key_field))
    part = _from_hex if form == "hex" else bytes

    def take(data: bytes) -> bytes | None:
        return None if data == null else part(data)

    def read(line: bytes) -> Draft:
        if separator is None:
            return Draft(take(line))
        key, found, value = line.partition(separator)
        if not found:
            raise BadLine(f"no key: {_shown(separator)} does not stand in it; a line must be KEY{_shown(separator, quotes=False)}VALUE")
        return Draft(take(value), take(key))

    return read


def is_value(form: str, *, separator: bytes | None = None, key_field: str | None = None, null: bytes | None = None) -> bool:
    """Is each line the value of a record that has nothing else?"""
    return form == "text" and separator is None and key_field is None and null is None


def _from_hex(data: bytes) -> bytes:
    try:
        return bytes.fromhex(data.decode("ascii"))
    except ValueError:
        raise BadLine(f"not hexadecimal: {_shown(data)}; a line must be pairs of the digits 0-9 a-f") from None


def _key_of(line: bytes, field: str) -> bytes | None:
    found = _members_of(line)
    of_the_key = [member for member in found or () if member.name == field]
    if len(of_the_key) > 1:
        raise BadLine(f"the field {field!r}, which is to be the key, stands in it {len(of_the_key)} times")
    if not of_the_key:
        raise BadLine(f"no field {field!r}, which is to be the key; a line must be a JSON object that has it")
    return _to_bytes(of_the_key[0])


Fields = dict[str, Member]
"""Those of an object, by their names."""


def _read_json(line: bytes) -> Draft | None:
    if not line.strip():
        return None
    found = _fields_of(line, "as `consume --format json` writes it (any other JSON: --format text)")
    unknown = [name for name in found if name not in JSON_FIELDS]
    if unknown:
        if "payload" in found:
            raise BadLine(
                "the field 'payload' is that of `kcat -J`, whose lines --format kcat reads (to send the line itself: --format text)"
            )
        raise BadLine(
            f"unknown field {_shown_name(unknown[0])}; known are {', '.join(JSON_FIELDS)} (to send the line itself: --format text)"
        )
    return Draft(
        _bytes_of(found, "value", needed=True),
        _bytes_of(found, "key"),
        _headers_of(found.get("headers")),
        _count(found, "partition"),
        _count(found, "timestamp"),
    )


def _read_kcat(line: bytes) -> Draft | None:
    """A line of `kcat -J`: https://github.com/edenhill/kcat, json.c."""
    if not line.strip():
        return None
    found = _fields_of(line, "as `kcat -J` writes it")
    unknown = [name for name in found if name not in KCAT_FIELDS]
    if unknown:
        cure = "; a line of `consume --format json` is one of --format json" if "value" in found else ""
        decoded = (
            " (of keys and values that kcat has decoded the bytes are lost: write the file without -s)" if "schema" in unknown[0] else ""
        )
        raise BadLine(f"unknown field {_shown_name(unknown[0])}; known are {', '.join(KCAT_FIELDS)}{decoded}{cure}")
    if "payload" not in found:
        raise BadLine("no field 'payload'; a line must be as `kcat -J` writes it")
    kind = found["tstype"].value if "tstype" in found else "create"
    return Draft(
        _to_bytes(found["payload"]),
        _to_bytes(found["key"]) if "key" in found else None,
        _kcat_headers_of(found.get("headers")),
        _count(found, "partition"),
        _count(found, "ts") if kind != "unknown" else None,
    )


def _fields_of(line: bytes, how: str) -> Fields:
    """The fields of a line that is an object; how: what it must be."""
    members = _members_of(line)
    if members is None:
        raise BadLine(f"not an object; a line must be one {how}")
    found: Fields = {}
    for member in members:
        if found.setdefault(member.name, member) is not member:
            raise BadLine(f"the field {_shown_name(member.name)} stands in it twice; give it once")
    return found


def _members_of(line: bytes) -> list[Member] | None:
    """None: the line is other JSON than an object."""
    try:
        return members_of(text_of(line))
    except json.JSONDecodeError as exc:
        raise BadLine(f"not JSON: {exc.msg}, at character {exc.pos + 1}") from None
    except UnicodeDecodeError:
        raise BadLine("not JSON: it is not UTF-8") from None
    except RecursionError:
        raise BadLine("JSON that is nested too deeply") from None
    except ValueError as exc:  # NaN and the like
        raise BadLine(str(exc)) from None


def _bytes_of(found: Fields, name: str, *, needed: bool = False) -> bytes | None:
    coded = f"{name}_base64"
    if name in found and coded in found:
        raise BadLine(f"both {name!r} and {coded!r}; give one of them")
    if coded not in found:
        if needed and name not in found:
            raise BadLine(f"no field {name!r}; give it, or {coded!r}, or {name!r}: null")
        return _to_bytes(found[name]) if name in found else None
    value = found[coded].value
    try:
        return base64.b64decode(value if type(value) is str else b"-", validate=True)
    except ValueError:
        raise BadLine(f"{coded!r} is not base64") from None


def _to_bytes(member: Member) -> bytes | None:
    """A text as UTF-8; other JSON than a text as the very characters of the line."""
    if member.value is None:
        return None
    return _utf8(member.value if type(member.value) is str else member.text, member.name)


def _utf8(text: str, name: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise BadLine(f"{_shown_name(name)} holds half of a character (a lone surrogate), which UTF-8 does not have") from None


def _headers_of(given: Member | None) -> list[Header] | None:
    if given is None or given.value is None:
        return None
    if isinstance(given.value, dict):
        return [(_named(one.name), _to_bytes(one)) for one in members_of(given.text) or ()]
    if not isinstance(given.value, list):
        raise BadLine('\'headers\' must be a list of {"name": ..., "value": ...}')
    return [_header_of(one) for one in elements_of(given.text)]


def _header_of(one: Member) -> Header:
    found = {member.name: member for member in (members_of(one.text) or ()) if isinstance(one.value, dict)}
    name = found["name"].value if "name" in found else None
    if type(name) is not str or set(found) - {"name", "value", "value_base64"}:
        raise BadLine('a header must be {"name": a text, "value": a text or null}, or have "value_base64"')
    return _named(name), _bytes_of(found, "value")


def _kcat_headers_of(given: Member | None) -> list[Header] | None:
    """kcat has names and values in turn, or an object whose names have lists of values."""
    if given is None or given.value is None:
        return None
    if isinstance(given.value, dict):
        return [
            (_named(name), _to_bytes(one))
            for name, value, text in members_of(given.text) or ()
            for one in (elements_of(text) if isinstance(value, list) else [Member(name, value, text)])
        ]
    found = list(elements_of(given.text)) if isinstance(given.value, list) else []
    if not isinstance(given.value, list) or len(found) % 2 or any(type(one.value) is not str for one in found[::2]):
        raise BadLine("'headers' must be a list of names and values in turn, as `kcat -J` writes it")
    return [(_named(name.value), _to_bytes(value)) for name, value in zip(found[::2], found[1::2], strict=True)]


def _named(name: str) -> str:
    _utf8(name, "name")
    return name


def _count(found: Fields, name: str) -> int | None:
    if name not in found or found[name].value is None:
        return None
    value, text = found[name].value, found[name].text
    if not isinstance(value, Number) or not text.isdecimal() or len(text) > 19 or int(text) >= 1 << 63:
        raise BadLine(f"{name!r} is {clean(text[:40])}; it must be a whole number of 0 or more")
    return int(text)


def _shown_name(name: str) -> str:
    return _shown(name.encode("utf-8", "replace"))


def _shown(data: bytes, *, quotes: bool = True) -> str:
    text = clean(data[:40].decode("utf-8", "backslashreplace")) + ("..." if len(data) > 40 else "")
    return f"'{text}'" if quotes else text


# -- texts of options ------------------------------------------------------------------------------------------------------
class BytesType(ParamType):
    """A text as UTF-8; \\t, \\n, \\r, \\0, \\\\ and \\xNN stand for bytes."""

    name = "TEXT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> bytes:
        if isinstance(value, bytes):
            return value
        try:
            return unescaped(value)
        except ValueError as exc:
            self.fail(str(exc), param, ctx)


def unescaped(text: str) -> bytes:
    """Raises ValueError for an escape that is none of these."""

    def byte(match: re.Match[bytes]) -> bytes:
        escape = match[1]
        if escape[:1] == b"x" and len(escape) == 3:
            return bytes.fromhex(escape[1:].decode())
        if escape in ESCAPES:
            return ESCAPES[escape]
        raise ValueError(f"{text!r}: \\{escape.decode('utf-8', 'replace')} is no escape; known are \\t \\n \\r \\0 \\\\ and \\xNN")

    return re.sub(rb"\\(x[0-9a-fA-F]{2}|.|$)", byte, text.encode("utf-8", "surrogateescape"), flags=re.DOTALL)


ESCAPES = {b"t": b"\t", b"n": b"\n", b"r": b"\r", b"0": b"\0", b"\\": b"\\"}
