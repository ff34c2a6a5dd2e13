"""Whatever a version can hold comes back as it was: values by chance over the tables themselves, and in `make thorough` those of Hypothesis."""

from __future__ import annotations

import random
import uuid as uuids
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gkafka.wire.apis import decode_request, decode_response, encode_request, encode_response
from gkafka.wire.codec import decoder, encoder
from gkafka.wire.metadata import MetadataRequest
from gkafka.wire.primitives import UNCOPIED_FROM, Writer
from gkafka.wire.schema import (
    Field,
    Message,
    Struct,
    array,
    boolean,
    bytes_,
    float64,
    int8,
    int16,
    int32,
    int64,
    string,
    struct,
    uint16,
    uuid,
)
from tests.effort import quick_and_thorough
from tests.wire.recorded import MESSAGES, struct_of

NUMBERS: dict[str, st.SearchStrategy[Any]] = {
    "b": st.integers(-(2**7), 2**7 - 1),
    "h": st.integers(-(2**15), 2**15 - 1),
    "i": st.integers(-(2**31), 2**31 - 1),
    "q": st.integers(-(2**63), 2**63 - 1),
    "H": st.integers(0, 2**16 - 1),
    "d": st.floats(allow_nan=False),
    "?": st.booleans(),
}
OTHERS: dict[str, st.SearchStrategy[Any]] = {
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    "bytes": st.binary(max_size=60) | st.just(b"r" * UNCOPIED_FROM),
    "uuid": st.uuids(),
}


def values(field: Field, version: int) -> st.SearchStrategy[Any]:
    """What a field can hold at a version."""
    null = st.none() if version in field.nullable else st.nothing()
    return null | _not_null(field, version)


def _not_null(field: Field, version: int) -> st.SearchStrategy[Any]:
    if field.kind == "number":
        return NUMBERS[field.code]
    if field.kind == "struct":
        return structs(struct_of(field), version)
    if field.kind != "array":
        return OTHERS[field.kind]
    of = field.of
    return st.lists(values(of, version) if isinstance(of, Field) else structs(struct_of(field), version), max_size=3)


def structs(cls: type[Struct], version: int) -> st.SearchStrategy[Any]:
    fields = {f.name: values(f, version) for f in cls.FIELDS if version in f.versions}
    build: Callable[..., Any] = cls
    return st.builds(build, **fields)


LIMITS = {code: (low, high) for code, bits in (("b", 7), ("h", 15), ("i", 31), ("q", 63)) for low, high in [(-(2**bits), 2**bits - 1)]}
LIMITS["H"] = (0, 2**16 - 1)
TEXTS = ["", "a", "\0", "é€", "\U0001f600" * 10, "x" * 200]


class Chance(random.Random):
    """Makes up what a version can hold; often what is at a limit."""

    def struct(self, cls: type[Struct], version: int) -> Any:
        build: Callable[..., Any] = cls
        return build(**{f.name: self.value(f, version) for f in cls.FIELDS if version in f.versions})

    def value(self, field: Field, version: int) -> Any:
        if version in field.nullable and self.random() < 0.25:
            return None
        if field.kind == "number":
            return self.number(field.code)
        if field.kind == "struct":
            return self.struct(struct_of(field), version)
        if field.kind == "string":
            return self.choice(TEXTS)
        if field.kind == "bytes":
            return self.choice([b"", self.randbytes(self.randrange(60)), b"r" * UNCOPIED_FROM])
        if field.kind == "uuid":
            return uuids.UUID(int=self.choice([1, self.getrandbits(128), 2**128 - 1]))
        of = field.of
        each = range(self.choice([0, 1, 1, 2, 3]))
        return [self.value(of, version) if isinstance(of, Field) else self.struct(struct_of(field), version) for _ in each]

    def number(self, code: str) -> Any:
        if code == "d":
            return self.choice([0.0, -1.5, 1e300, self.random()])
        if code == "?":
            return self.random() < 0.5
        low, high = LIMITS[code]
        return self.choice([low, high, 0, self.randint(low, high)])


@pytest.mark.parametrize("cls", MESSAGES.values(), ids=lambda cls: cls.__name__)
def test_every_message_comes_back_as_it_was(cls: type[Message]) -> None:
    for version in cls.API.versions.each():
        for seed in range(4):
            chance = Chance(f"{cls.__name__} {version} {seed}")
            comes_back(version, chance.struct(cls, version), chance.number("i"), chance.choice([None, *TEXTS]))


@pytest.mark.thorough
@pytest.mark.parametrize("cls", MESSAGES.values(), ids=lambda cls: cls.__name__)
def test_every_message_that_hypothesis_makes_up_comes_back(cls: type[Message]) -> None:
    for version in cls.API.versions.each():
        round_trips(cls, version, 12)


def round_trips(cls: type[Message], version: int, examples: int) -> None:
    @settings(max_examples=examples, deadline=None, database=None)
    @given(structs(cls, version), st.integers(-(2**31), 2**31 - 1), st.none() | OTHERS["string"])
    def round_trip(message: Message, correlation_id: int, client_id: str | None) -> None:
        comes_back(version, message, correlation_id, client_id)

    round_trip()


def comes_back(version: int, message: Message, correlation_id: int, client_id: str | None) -> None:
    if isinstance(message, MetadataRequest) and version == 0:
        message.topics = message.topics or None
    cls = type(message)
    if cls is cls.API.request:
        frame = b"".join(encode_request(message, version, correlation_id, client_id))
        assert decode_request(frame[4:]) == (cls.API, version, correlation_id, client_id, message)
    else:
        frame = b"".join(encode_response(message, version, correlation_id))
        assert decode_response(cls.API, version, frame[4:]) == (correlation_id, message)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4


class Inner(Struct):
    number: int = uint16(default=7)
    ratio: float = float64()


class Everything(Struct):
    """Each kind of field, plain and tagged, in a struct that no Kafka message has."""

    small: int = int8("1+", default=-1)
    flag: bool = boolean(default=True)
    short: int = int16(tag=5)
    normal: int = int32()
    long: int = int64("0-2")
    port: int = uint16()
    ratio: float = float64(tag=1)
    name: str | None = string(nullable="0+", default=None, tag=2)
    data: bytes | None = bytes_(nullable="2+")
    tagged_data: bytes = bytes_(tag=9)
    id: object = uuid(tag=3)
    inner: Inner = struct(Inner)
    tagged_inner: Inner = struct(Inner, "1+", tag=0)
    names: list[str | None] = array(string(nullable="0+"), tag=4)
    inners: list[Inner] = array(Inner)
    numbers: list[float] = array(float64(), nullable="0+")
    ports: list[int] = array(uint16(), tag=6)
    matrix: list[list[int]] = array(array(int32()))
    late_tag: int = int32("0+", tag=7, tagged="2+")


@pytest.mark.parametrize("examples", quick_and_thorough(15, 60))
@pytest.mark.parametrize("version", range(4))
def test_every_kind_of_field_comes_back_as_it_was(version: int, examples: int) -> None:
    @settings(max_examples=examples, deadline=None, database=None)
    @given(structs(Everything, version))
    def round_trip(value: Everything) -> None:
        out = Writer()
        encoder(Everything, version, True)(out, value)
        frame = b"".join(out.finish())
        assert decoder(Everything, version, True)(memoryview(frame), 0) == (value, len(frame))

    round_trip()
