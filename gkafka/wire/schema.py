"""How a Kafka message is written down: one class for all its versions, one line for each field.

    @message(key=1, versions="0-18", flexible="12+")
    class FetchRequest(Message):
        max_wait_ms: int = int32()
        isolation_level: int = int8("4+", ignorable=True)
        topics: list[FetchTopic] = array(FetchTopic)
        cluster_id: str | None = string("12+", nullable="12+", default=None, ignorable=True, tag=0)

Names are those of Kafka's JSON definitions, in snake_case. A version range is "4+", "0-12", "8" or "none". The arguments of a field:

versions    where the field exists.
nullable    where it may be None.
default     its value when it is not given, or when the version does not have it.
ignorable   a value that the version cannot hold is dropped; without it, UnsupportedVersion.
asked       of arrays in answers: it has no more elements than were asked for, see `Message.asked`.
tag         its number as a tagged field (KIP-482), and `tagged` the versions where it is one (as `versions`, when not given).

`gkafka.wire.codec` turns these tables into bytes and back.
Source: https://github.com/apache/kafka/tree/trunk/clients/src/main/resources/common/message (README.md there)
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cache
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple, NoReturn, TypeVar

from gkafka.wire.primitives import ZERO_UUID

if sys.version_info >= (3, 11):
    from typing import dataclass_transform
else:  # a hint for type checkers alone

    def dataclass_transform(**_: Any) -> Any:
        return lambda cls: cls


__all__ = [
    "Api",
    "Field",
    "Message",
    "Struct",
    "VersionRange",
    "array",
    "boolean",
    "bytes_",
    "float64",
    "int16",
    "int32",
    "int64",
    "int8",
    "message",
    "nullable_struct",
    "records_",
    "string",
    "struct",
    "uint16",
    "uuid",
]

T = TypeVar("T")
M = TypeVar("M", bound="Message")
NEWEST = 0x7FFF  # versions are int16


class VersionRange(NamedTuple):
    """Versions from `low` to `high`, both included; empty if high < low. `version in range` asks for membership."""

    low: int
    high: int

    @classmethod
    @cache  # the tables have a few dozen of them, thousands of times
    def parse(cls, text: str) -> VersionRange:
        """ "4+", "0-12", "8" or "none"."""
        if text == "none":
            return cls(0, -1)
        if text.endswith("+"):
            return cls(int(text[:-1]), NEWEST)
        low, _, high = text.partition("-")
        return cls(int(low), int(high or low))

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self[0] <= version <= self[1]

    def each(self) -> range:
        """The versions, oldest first."""
        return range(self.low, self.high + 1)

    def __str__(self) -> str:
        if self.high < self.low:
            return "none"
        if self.high == NEWEST:
            return f"{self.low}+"
        return f"{self.low}-{self.high}" if self.low < self.high else f"{self.low}"


# -- fields ------------------------------------------------------------------------------------------------------------
class Field:
    """One line of a table.

    kind: "number" (then `code` is the struct module's letter), "string", "bytes", "uuid", "array" or "struct" (then `of` is what it holds).
    """

    __slots__ = ("asked", "code", "default", "empty_is_null", "ignorable", "kind", "name", "nullable", "of", "tag", "tagged", "versions")

    def __init__(
        self,
        kind: str,
        versions: str,
        *,
        default: Any,
        nullable: str = "none",
        ignorable: bool = False,
        tag: int | None = None,
        tagged: str | None = None,
        code: str = "",
        of: Any = None,
        empty_is_null: str = "none",
        asked: bool = False,
    ) -> None:
        self.name = ""
        self.asked = asked
        self.kind = kind
        self.code = code
        self.of: Field | type[Struct] | None = of
        self.versions = VersionRange.parse(versions)
        self.nullable = VersionRange.parse(nullable)
        self.empty_is_null = VersionRange.parse(empty_is_null)
        self.default = default
        self.ignorable = ignorable
        self.tag = tag
        self.tagged = VersionRange.parse("none" if tag is None else tagged or versions)

    @property
    def made_anew(self) -> bool:
        """Is `default` what makes the default, an object of its own for each struct?"""
        return self.default is not None and self.kind in ("array", "struct")

    def fresh(self) -> Any:
        """The default, as an object of its own."""
        return self.default() if self.made_anew else self.default


def _number(code: str) -> Callable[..., Any]:
    def helper(
        versions: str = "0+", *, default: int = 0, ignorable: bool = False, tag: int | None = None, tagged: str | None = None
    ) -> Any:
        return Field("number", versions, default=default, ignorable=ignorable, tag=tag, tagged=tagged, code=code)

    return helper


int8, int16, int32, int64, uint16 = map(_number, "bhiqH")


def float64(
    versions: str = "0+", *, default: float = 0.0, ignorable: bool = False, tag: int | None = None, tagged: str | None = None
) -> Any:
    """An IEEE 754 double."""
    return Field("number", versions, default=default, ignorable=ignorable, tag=tag, tagged=tagged, code="d")


def boolean(
    versions: str = "0+", *, default: bool = False, ignorable: bool = False, tag: int | None = None, tagged: str | None = None
) -> Any:
    """One byte; any that is not 0 means True."""
    return Field("number", versions, default=default, ignorable=ignorable, tag=tag, tagged=tagged, code="?")


def string(
    versions: str = "0+",
    *,
    nullable: str = "none",
    default: str | None = "",
    ignorable: bool = False,
    tag: int | None = None,
    tagged: str | None = None,
) -> Any:
    """UTF-8 text of at most 32,767 bytes."""
    return Field("string", versions, nullable=nullable, default=default, ignorable=ignorable, tag=tag, tagged=tagged)


def bytes_(
    versions: str = "0+",
    *,
    nullable: str = "none",
    default: bytes | None = b"",
    ignorable: bool = False,
    tag: int | None = None,
    tagged: str | None = None,
) -> Any:
    """Bytes: any buffer, or a list of buffers, when written; a memoryview of the frame when read."""
    return Field("bytes", versions, nullable=nullable, default=default, ignorable=ignorable, tag=tag, tagged=tagged)


def records_(
    versions: str = "0+",
    *,
    nullable: str = "none",
    default: bytes | None = None,
    ignorable: bool = False,
    tag: int | None = None,
    tagged: str | None = None,
) -> Any:
    """Record batches: bytes to this room; `gkafka.records` knows what is in them."""
    return Field("bytes", versions, nullable=nullable, default=default, ignorable=ignorable, tag=tag, tagged=tagged)


def uuid(versions: str = "0+", *, ignorable: bool = False, tag: int | None = None, tagged: str | None = None) -> Any:
    """Sixteen bytes; all zero means "none"."""
    return Field("uuid", versions, default=ZERO_UUID, ignorable=ignorable, tag=tag, tagged=tagged)


def array(
    of: Any,
    versions: str = "0+",
    *,
    nullable: str = "none",
    default: Callable[[], list[Any]] | None = list,
    ignorable: bool = False,
    tag: int | None = None,
    tagged: str | None = None,
    empty_is_null: str = "none",
    asked: bool = False,
) -> Any:
    """A list of structs (`array(FetchTopic)`) or of primitives (`array(int32())`).

    empty_is_null: versions that have no null and mean it by an empty array; None is written as one and read from one.
    """
    return Field(
        "array",
        versions,
        nullable=nullable,
        default=default,
        ignorable=ignorable,
        tag=tag,
        tagged=tagged,
        of=of,
        empty_is_null=empty_is_null,
        asked=asked,
    )


def struct(of: type[T], versions: str = "0+", *, ignorable: bool = False, tag: int | None = None, tagged: str | None = None) -> T:
    """One struct inside another."""
    field: Any = Field("struct", versions, default=of, ignorable=ignorable, tag=tag, tagged=tagged, of=of)
    return field  # type: ignore[no-any-return]  # to a type checker a field is the value it will hold


def nullable_struct(of: type[T], versions: str = "0+", *, nullable: str = "0+", ignorable: bool = False) -> T | None:
    """One struct inside another that may be None, as it is when not given: a byte stands before it, below 0 for None (KIP-848)."""
    field: Any = Field("struct", versions, nullable=nullable, default=None, ignorable=ignorable, of=of)
    return field  # type: ignore[no-any-return]  # as above


# -- structs and messages ----------------------------------------------------------------------------------------------
class _StructType(type):
    """Takes the fields out of a class body and makes slots of them."""

    def __new__(mcs, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> _StructType:
        fields = {key: value for key, value in body.items() if isinstance(value, Field)}
        for key, field in fields.items():
            field.name = key
        body = {key: value for key, value in body.items() if key not in fields}
        body["__slots__"] = tuple(fields)
        body["FIELDS"] = tuple(fields.values())
        if fields:
            body["__init__"] = _init_when_used
            body["_VALUES"] = staticmethod(attrgetter(*fields))
        return super().__new__(mcs, name, bases, body)


def _init_when_used(self: Struct, **values: Any) -> None:
    """The __init__ of a class before its first object: most programs use few of the tables, and compiling all would take half of their import."""
    cls: Any = next((c for c in type(self).__mro__ if c.__dict__.get("__init__") is _init_when_used), None)
    if cls is not None:  # else another thread was faster
        cls.__init__ = _init(cls.FIELDS)
    type(self).__init__(self, **values)


def _init(fields: tuple[Field, ...]) -> Any:
    """The __init__ of a struct with these fields, written out and compiled as dataclasses does: requests are made for each batch."""
    scope: dict[str, Any] = {"missing": object(), "unknown": _unknown}
    arguments, lines = [], ["if others:", "    unknown(self, others)"]
    for field in fields:
        name, own = field.name, field.made_anew
        scope[f"default_{name}"] = field.default
        arguments.append(f"{name}={'missing' if own else f'default_{name}'}")
        lines.append(f"self.{name} = " + (f"default_{name}() if {name} is missing else {name}" if own else name))
    source = f"def __init__(self, *, {', '.join(arguments)}, **others):\n" + "".join(f"    {line}\n" for line in lines)
    exec(compile(source, "<gkafka struct>", "exec"), scope)
    return scope["__init__"]


def _unknown(self: Struct, others: dict[str, Any]) -> NoReturn:
    raise TypeError(f"{type(self).__name__} has no field {', '.join(others)}; it has {', '.join(f.name for f in self.FIELDS)}")


@dataclass_transform(kw_only_default=True)
class Struct(metaclass=_StructType):
    """A group of fields. Made with keyword arguments; equal when of one class and all fields are equal."""

    FIELDS: ClassVar[tuple[Field, ...]]
    _VALUES: ClassVar[Any] = staticmethod(lambda _: None)  # of all fields, in one call

    def __init__(self, **values: Any) -> None:
        """Each class has one of its own, made from its fields; this is that of a class without any."""
        if values:
            _unknown(self, values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return bool(self._VALUES(self) == self._VALUES(other))

    __hash__ = None  # type: ignore[assignment]  # the fields can change

    def __repr__(self) -> str:
        """Fields that are not at their default. Bytes are counted, not shown: they are users' data."""
        shown = (f"{field.name}={_shown(field, value)}" for field, value in self._items() if value != field.fresh())
        return f"{type(self).__name__}({', '.join(shown)})"

    def _items(self) -> Iterator[tuple[Field, Any]]:
        return ((field, getattr(self, field.name)) for field in self.FIELDS)


def _shown(field: Field, value: Any) -> str:
    if field.kind != "bytes" or value is None:
        return repr(value)
    return f"<{sum(map(len, value)) if isinstance(value, list | tuple) else len(value)} bytes>"


class Message(Struct):
    """A request or a response: what `@message` was put on."""

    API: ClassVar[Api]

    def for_version(self, version: int) -> Message:
        """The same message in the shape that `version` has, where the protocol moved things; what is encoded is this."""
        return self

    def newest_version(self) -> int:
        """The newest version that can carry what this message holds, where that is not the newest of its API."""
        return self.API.stable.high

    def oldest_version(self) -> tuple[int, str]:
        """The oldest version in which the message means what it says, and what of it does not do in older ones; they would take it for something else."""
        return 0, ""

    def asked(self, version: int) -> int | None:
        """How many topics, partitions, groups and the like a request names: its answer has no more. None: there may be any number of them."""
        return _count_elements(self)


@cache
def _arrays(cls: type[Struct]) -> tuple[tuple[str, bool], ...]:
    """Name of each array, and whether its elements have arrays, too."""
    return tuple((f.name, isinstance(f.of, type) and bool(_arrays(f.of))) for f in cls.FIELDS if f.kind == "array")


def _count_elements(part: Struct) -> int | None:
    """Of all arrays; None if one of them is None, which stands for all that there is."""
    total = 0
    for name, nested in _arrays(type(part)):
        items = getattr(part, name)
        if items is None:
            return None
        total += len(items)
        for item in items if nested else ():
            inner = _count_elements(item)
            if inner is None:
                return None
            total += inner
    return total


class Api:
    """One API: its key, its name as in Kafka, its two messages and the versions that our tables hold.

    versions: all of them. stable: those that a released broker offers without `unstable.api.versions.enable`.
    """

    __slots__ = ("flexible", "key", "name", "request", "response", "stable", "versions")

    request: type[Message]
    response: type[Message]

    def __init__(self, key: int, name: str, versions: VersionRange, stable: VersionRange, flexible: VersionRange) -> None:
        self.key = key
        self.name = name
        self.versions = versions
        self.stable = stable
        self.flexible = flexible

    def __repr__(self) -> str:
        return f"<Api {self.name} ({self.key}) v{self.versions}>"


_apis: dict[int, Api] = {}


def message(*, key: int, versions: str, flexible: str, unstable: str = "none") -> Callable[[type[M]], type[M]]:
    """Make a class the request or the response (by its name) of the API with this key.

    unstable: versions that exist in the tables but are not chosen, because Kafka may still change them.
    """
    known = VersionRange.parse(versions)
    stable = VersionRange(known.low, min(known.high, VersionRange.parse(unstable).low - 1) if unstable != "none" else known.high)

    def register(cls: type[M]) -> type[M]:
        name, part = cls.__name__.removesuffix("Request"), "request"
        if name == cls.__name__:
            name, part = cls.__name__.removesuffix("Response"), "response"
        api = _apis.setdefault(key, Api(key, name, known, stable, VersionRange.parse(flexible)))
        if (api.name, api.versions, hasattr(api, part)) != (name, known, False):
            raise TypeError(f"{cls.__name__}: API {key} is {api!r} already")
        setattr(api, part, cls)
        cls.API = api
        return cls

    return register
