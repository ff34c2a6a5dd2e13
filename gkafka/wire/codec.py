"""From the tables of `schema` to bytes and back.

For each struct and version that is used, one decoding and one encoding function is written from the table and compiled, as dataclasses
does for `__init__`. Numbers that stand together are read in one step, strings and arrays of structs without a call of their own. What the
decoder of a struct with a number and a string looks like:

    def decode(frame, position):
        self = new(cls)
        limit = len(frame)
        try:
            self.id, = read_id(frame, position)
            position += 4
            length, = read_int16(frame, position)
            if length >= 0 and position + 2 + length * 1 <= limit:
                self.host = str(frame[position + 2:position + 2 + length], 'utf-8')
                position = position + 2 + length
            else:
                self.host, position = read_host(frame, position)
        except damage as error:
            raise malformed(position, error) from None
        return self, position
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NoReturn, TypeAlias

from gkafka.exceptions import KafkaException, SerializationError, UnsupportedVersion
from gkafka.wire import primitives
from gkafka.wire.primitives import Malformed, Reader, Write, Writer, read_uvarint, spend, spend_asked, write_uvarint
from gkafka.wire.schema import Field, Struct

__all__ = ["decoder", "encoder", "explain"]

Damage = (struct.error, IndexError, UnicodeDecodeError)
NUMBERS = {"b": "int8", "h": "int16", "i": "int32", "q": "int64", "H": "uint16", "d": "float64", "?": "boolean"}
_PACKS = {"pack_int16": struct.Struct(">h").pack, "pack_int32": struct.Struct(">i").pack}
_LENGTHS = {"read_int16": struct.Struct(">h").unpack_from, "read_int32": struct.Struct(">i").unpack_from}
_SPENDING = {"spend": spend, "spend_asked": spend_asked}
Step: TypeAlias = Field | list[Field]  # one field, or numbers that stand together


# -- what a version of a struct consists of ----------------------------------------------------------------------------
def _split(cls: type[Struct], version: int) -> tuple[list[Field], list[Field], list[Field]]:
    """The fields that stand in order, the tagged ones by tag, and those that this version does not have."""
    there = [f for f in cls.FIELDS if version in f.versions]
    plain = [f for f in there if version not in f.tagged]
    tagged = sorted((f for f in there if version in f.tagged), key=lambda f: f.tag or 0)
    return plain, tagged, [f for f in cls.FIELDS if version not in f.versions]


def _steps(fields: list[Field]) -> Iterator[Step]:
    """The fields, with neighbouring numbers in one list."""
    numbers: list[Field] = []
    for field in fields:
        if field.kind == "number":
            numbers.append(field)
            continue
        if numbers:
            yield numbers
            numbers = []
        yield field
    if numbers:
        yield numbers


def _run(fields: list[Field]) -> struct.Struct:
    return struct.Struct(">" + "".join(f.code for f in fields))


@cache
def _least_size(cls: type[Struct], version: int, flexible: bool) -> int:
    """Bytes that the smallest struct of this class takes."""
    return sum(_least_field_size(f, version, flexible) for f in _split(cls, version)[0]) + flexible


def _least_field_size(field: Field, version: int, flexible: bool) -> int:
    match field.kind:
        case "number":
            return struct.calcsize(">" + field.code)
        case "uuid":
            return 16
        case "struct":
            return 1 if version in field.nullable else _least_size(_struct_of(field), version, flexible)
        case "string":
            return 1 if flexible else 2
        case _:
            return 1 if flexible else 4


def _struct_of(field: Field) -> type[Struct]:
    assert isinstance(field.of, type)
    return field.of


# -- decoding ----------------------------------------------------------------------------------------------------------
@cache
def decoder(cls: type[Struct], version: int, flexible: bool) -> Reader:
    """The function that reads one `cls` at a version: (frame, position) -> (struct, position after it).

    Raises Malformed, and nothing else, on any bytes. To be called by `read_within`: without it there is a small bound.
    """
    plain, tagged, absent = _split(cls, version)
    scope: dict[str, Any] = {"cls": cls, "new": cls.__new__, "damage": Damage, "malformed": _malformed, **_SPENDING, **_LENGTHS}
    lines = ["self = new(cls)"]
    if any(isinstance(step, Field) and _is_read_inline(step, version) for step in _steps(plain)):
        lines.append("limit = len(frame)")
    for field in [*absent, *tagged]:
        # An answer is read, never changed: its structs at their defaults are one, for all answers. Lists are not.
        is_list = field.made_anew and field.kind == "array"
        scope[f"default_{field.name}"] = field.default if is_list else field.fresh()
        lines.append(f"self.{field.name} = default_{field.name}" + ("()" if is_list else ""))
    lines.append("try:")
    lines += ["    " + line for step in _steps(plain) for line in _decode_lines(step, version, flexible, scope)]
    if flexible:
        known = {field.tag: (field.name, _reader(field, version, flexible)) for field in tagged}
        scope["read_tags"] = _tag_reader(known)
        lines.append("    position = read_tags(self, frame, position) if frame[position] else position + 1")
    lines += ["    pass", "except damage as error:", "    raise malformed(position, error) from None", "return self, position"]
    decode: Reader = _compiled(f"decode_{cls.__name__}_v{version}", "frame, position", lines, scope)
    return decode


def _decode_lines(step: Step, version: int, flexible: bool, scope: dict[str, Any]) -> list[str]:
    if isinstance(step, list):
        run, first = _run(step), step[0].name
        scope[f"read_{first}"] = run.unpack_from
        targets = "".join(f"self.{f.name}, " for f in step)
        return [f"{targets.rstrip()} = read_{first}(frame, position)", f"position += {run.size}"]
    scope[f"read_{step.name}"] = _reader(step, version, flexible)
    general = f"self.{step.name}, position = read_{step.name}(frame, position)"
    return _inline_decode_lines(step, version, flexible, scope, general) if _is_read_inline(step, version) else [general]


def _is_read_inline(field: Field, version: int) -> bool:
    return field.kind == "bytes" or _is_inlined(field, version)


def _is_inlined(field: Field, version: int) -> bool:
    """Strings and arrays of structs are read and written without a call of their own: there are many."""
    return field.kind == "string" or (field.kind == "array" and isinstance(field.of, type) and version not in field.empty_is_null)


def _inline_decode_lines(field: Field, version: int, flexible: bool, scope: dict[str, Any], general: str) -> list[str]:
    """What is null, damaged, or long in a flexible message goes the general way."""
    if flexible:  # a length of one byte, one more than what it stands for
        length, start, short = "length = frame[position] - 1", "position + 1", " and length < 127"
    elif field.kind == "string":
        length, start, short = "length, = read_int16(frame, position)", "position + 2", ""
    else:
        length, start, short = "length, = read_int32(frame, position)", "position + 4", ""
    if field.kind == "string":
        size = 1
        taken = [f"self.{field.name} = str(frame[{start}:{start} + length], 'utf-8')", f"position = {start} + length"]
    elif field.kind == "bytes":
        size = 1
        taken = [f"self.{field.name} = frame[{start}:{start} + length]", f"position = {start} + length"]
    else:
        size = max(1, _least_size(_struct_of(field), version, flexible))
        scope[f"item_of_{field.name}"] = decoder(_struct_of(field), version, flexible)
        taken = [
            f"position = {start}",
            f"self.{field.name} = items = []",
            f"if length: {'spend_asked' if field.asked else 'spend'}(length, position)",
            "for _ in range(length):",
            f"    item, position = item_of_{field.name}(frame, position)",
            "    items.append(item)",
        ]
    fits = f"if length >= 0{short} and {start} + length * {size} <= limit:"
    return [length, fits, *("    " + line for line in taken), "else:", "    " + general]


def _malformed(position: int, error: Exception) -> Malformed:
    if isinstance(error, UnicodeDecodeError):
        return Malformed(position, f"a string is not UTF-8 ({error.reason})")
    return Malformed(position, "it ends too early")


def _reader(field: Field, version: int, flexible: bool) -> Reader:
    nullable = version in field.nullable
    match field.kind:
        case "number":
            return _number_reader(field.code)
        case "uuid":
            return primitives.read_uuid
        case "string":
            return primitives.string_reader(compact=flexible, nullable=nullable)
        case "bytes":
            return primitives.bytes_reader(compact=flexible, nullable=nullable)
        case "struct":
            read = decoder(_struct_of(field), version, flexible)
            return primitives.nullable_reader(read) if nullable else read
    read = _array_reader(field, version, flexible, nullable)
    return _null_if_empty(read) if version in field.empty_is_null else read


def _number_reader(code: str) -> Reader:
    number = struct.Struct(">" + code)

    def read_number(frame: memoryview, position: int) -> tuple[Any, int]:
        return number.unpack_from(frame, position)[0], position + number.size

    return read_number


def _array_reader(field: Field, version: int, flexible: bool, nullable: bool) -> Reader:
    of = field.of
    if isinstance(of, Field):
        if of.kind == "number":
            return primitives.number_array_reader(of.code, compact=flexible, nullable=nullable)
        read, size = _reader(of, version, flexible), _least_field_size(of, version, flexible)
    else:
        read, size = decoder(_struct_of(field), version, flexible), _least_size(_struct_of(field), version, flexible)
    return primitives.array_reader(read, compact=flexible, nullable=nullable, element_size=size, asked=field.asked)


def _null_if_empty(read: Reader) -> Reader:
    def read_null_if_empty(frame: memoryview, position: int) -> tuple[Any, int]:
        items, position = read(frame, position)
        return items or None, position

    return read_null_if_empty


def _tag_reader(known: dict[int | None, tuple[str, Reader]]) -> Callable[[Struct, memoryview, int], int]:
    """Reader of a struct's tagged fields (KIP-482). Unknown ones are skipped: a newer broker may send them."""

    def read_tags(self: Struct, frame: memoryview, position: int) -> int:
        start = position
        count, position = read_uvarint(frame, position)
        if 2 * count > len(frame) - position:
            raise Malformed(start, f"{count} tagged fields where {len(frame) - position} bytes are left")
        spend(count, start)
        for _ in range(count):
            start = position
            tag, position = read_uvarint(frame, position)
            size, position = read_uvarint(frame, position)
            end = position + size
            if end > len(frame):
                raise Malformed(start, f"tagged field {tag} of {size} bytes where {len(frame) - position} are left")
            if tag in known:
                name, read = known[tag]
                value, position = read(frame, position)
                if position != end:
                    raise Malformed(start, f"tagged field {tag} claims {size} bytes and takes {size + position - end}")
                setattr(self, name, value)
            position = end
        return position

    return read_tags


# -- encoding ----------------------------------------------------------------------------------------------------------
@cache
def encoder(cls: type[Struct], version: int, flexible: bool) -> Write:
    """The function that writes one `cls` at a version: (out, struct) -> None.

    Raises UnsupportedVersion for a value that the version cannot hold, and the errors of struct.pack and the like for a value that is
    not of its field's type: `explain` makes a sentence of those.
    """
    plain, tagged, absent = _split(cls, version)
    scope: dict[str, Any] = {"absent": _absent, "cls": cls, "version": version, **_PACKS}
    lines = []
    for field in absent:
        if not field.ignorable:
            scope[f"default_{field.name}"] = field.fresh()
            lines.append(f"if self.{field.name} != default_{field.name}: absent(cls, '{field.name}', version)")
    lines += [line for step in _steps(plain) for line in _encode_lines(step, version, flexible, scope)]
    if tagged:
        scope["write_tags"] = _tag_writer(tagged, version, flexible)
        lines.append("write_tags(out, self)")
    elif flexible:
        lines.append("out.tail.append(0)")
    encode: Write = _compiled(f"encode_{cls.__name__}_v{version}", "out, self", lines or ["pass"], scope)
    return encode


def _encode_lines(step: Step, version: int, flexible: bool, scope: dict[str, Any]) -> list[str]:
    if isinstance(step, list):
        first = step[0].name
        scope[f"pack_{first}"] = _run(step).pack
        return [f"out.tail += pack_{first}({', '.join(f'self.{f.name}' for f in step)})"]
    scope[f"write_{step.name}"] = _writer(step, version, flexible)
    general = f"write_{step.name}(out, self.{step.name})"
    return _inline_encode_lines(step, version, flexible, scope, general) if _is_inlined(step, version) else [general]


def _inline_encode_lines(field: Field, version: int, flexible: bool, scope: dict[str, Any], general: str) -> list[str]:
    """What is null or long goes the general way, which refuses what cannot be."""
    if flexible:
        limit, length = 127, "out.tail.append(len(items) + 1)"
    elif field.kind == "string":
        limit, length = 1 << 15, "out.tail += pack_int16(len(items))"
    else:
        limit, length = 1 << 31, "out.tail += pack_int32(len(items))"
    if field.kind == "string":
        items = f"None if self.{field.name} is None else self.{field.name}.encode()"
        lines = [length, "out.tail += items"]
    else:
        scope[f"item_of_{field.name}"] = encoder(_struct_of(field), version, flexible)
        items = f"self.{field.name}"
        lines = [length, "for item in items:", f"    item_of_{field.name}(out, item)"]
    fits = f"if items is not None and len(items) < {limit}:"
    return [f"items = {items}", fits, *("    " + line for line in lines), "else:", "    " + general]


def _absent(cls: type[Struct], name: str, version: int) -> NoReturn:
    api = getattr(getattr(cls, "API", None), "name", None)
    raise UnsupportedVersion(f"{cls.__name__}.{name} does not exist at version {version}", api=api)


def _writer(field: Field, version: int, flexible: bool) -> Write:
    nullable = version in field.nullable
    match field.kind:
        case "number":
            return _number_writer(field.code)
        case "uuid":
            return primitives.write_uuid
        case "string":
            return primitives.string_writer(compact=flexible, nullable=nullable)
        case "bytes":
            return primitives.bytes_writer(compact=flexible, nullable=nullable)
        case "struct":
            write = encoder(_struct_of(field), version, flexible)
            return primitives.nullable_writer(write) if nullable else write
    write = _array_writer(field, version, flexible, nullable)
    return (lambda out, items: write(out, items or ())) if version in field.empty_is_null else write


def _number_writer(code: str) -> Write:
    pack = struct.Struct(">" + code).pack

    def write_number(out: Writer, value: Any) -> None:
        out.tail += pack(value)

    return write_number


def _array_writer(field: Field, version: int, flexible: bool, nullable: bool) -> Write:
    of = field.of
    if isinstance(of, Field) and of.kind == "number":
        return primitives.number_array_writer(of.code, compact=flexible, nullable=nullable)
    write = _writer(of, version, flexible) if isinstance(of, Field) else encoder(_struct_of(field), version, flexible)
    return primitives.array_writer(write, compact=flexible, nullable=nullable)


def _tag_writer(fields: list[Field], version: int, flexible: bool) -> Write:
    """Writer of a struct's tagged fields: those that are not at their default, in the order of their tags."""
    tagged = [(field.tag or 0, field.name, field.fresh(), _writer(field, version, flexible)) for field in fields]

    def write_tags(out: Writer, self: Struct) -> None:
        present = [(tag, getattr(self, name), write) for tag, name, default, write in tagged if getattr(self, name) != default]
        write_uvarint(out, len(present))
        for tag, value, write in present:
            field = Writer()
            write(field, value)
            parts = field.finish()
            write_uvarint(out, tag)
            write_uvarint(out, sum(map(len, parts)))
            for part in parts:
                out.payload(part)

    return write_tags


def _compiled(name: str, arguments: str, lines: list[str], scope: dict[str, Any]) -> Any:
    source = f"def {name}({arguments}):\n" + "".join(f"    {line}\n" for line in lines)
    exec(compile(source, f"<gkafka {name}>", "exec"), scope)
    return scope[name]


# -- what was wrong with a value ---------------------------------------------------------------------------------------
def explain(value: Struct, version: int, flexible: bool) -> KafkaException:
    """Which field of a message could not be written, and why. Called after the encoder failed: takes its time."""
    for field in _split(type(value), version)[0] + _split(type(value), version)[1]:
        item = getattr(value, field.name)
        try:
            _writer(field, version, flexible)(Writer(), item)
        except KafkaException as error:
            return error
        except Exception as error:
            for inner in item if isinstance(item, list | tuple) else [item]:
                if isinstance(inner, Struct) and isinstance(field.of, type) and _fails(inner, version, flexible):
                    return explain(inner, version, flexible)
            return _unfit(value, field, item, version, error)
    return SerializationError(f"{type(value).__name__} cannot be written at version {version}")


def _fails(value: Struct, version: int, flexible: bool) -> bool:
    try:
        encoder(type(value), version, flexible)(Writer(), value)
    except Exception:
        return True
    return False


def _unfit(value: Struct, field: Field, item: Any, version: int, error: Exception) -> KafkaException:
    name = f"{type(value).__name__}.{field.name}"
    if item is None:
        if field.nullable.low <= field.nullable.high:
            return UnsupportedVersion(f"{name} cannot be null at version {version}")
        return SerializationError(f"{name} cannot be null")
    shown = type(item).__name__ if field.kind in ("bytes", "array", "struct") else repr(item)[:80]
    wanted = NUMBERS[field.code] if field.kind == "number" else field.kind
    return SerializationError(f"{name}={shown} is not a Kafka {wanted} ({error})")
