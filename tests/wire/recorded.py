"""The golden frames: what Kafka's own classes wrote (golden/Record.java), as frames and as messages of ours."""

from __future__ import annotations

import base64
import gzip
import json
import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from gkafka.wire.adminapis import ADMIN_APIS
from gkafka.wire.apis import APIS, Message
from gkafka.wire.consumerprotocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from gkafka.wire.schema import Field, Struct

CLIENT_ID = "golden-é"
RECORDS = bytes(i * 7 & 0xFF for i in range(300))
S = TypeVar("S", bound=Struct)
NAMES = {"Enable2Pc": "enable_2pc"}
EVERY_API = {**APIS, **ADMIN_APIS}
MESSAGES: dict[str, type[Message]] = {cls.__name__: cls for api in EVERY_API.values() for cls in (api.request, api.response)}
EMBEDDED = {cls.__name__: cls for cls in (ConsumerProtocolSubscription, ConsumerProtocolAssignment)}


class Golden(NamedTuple):
    """One recorded frame. values: as Kafka's JsonConverter wrote them. frame: with its size."""

    cls: type[Message]
    version: int
    kind: str
    values: dict[str, Any]
    frame: bytes

    @property
    def is_request(self) -> bool:
        return self.cls is self.cls.API.request

    @property
    def correlation_id(self) -> int:
        return 1000 + self.version

    @property
    def message(self) -> Message:
        """The recorded values in our class."""
        return build(self.cls, self.values)

    def __str__(self) -> str:
        return f"{self.cls.__name__}-v{self.version}-{self.kind}"


class Embedded(NamedTuple):
    """A recording of what stands inside another message. data: its version and itself."""

    version: int
    kind: str
    value: ConsumerProtocolSubscription | ConsumerProtocolAssignment
    data: bytes


@cache
def _rows() -> list[dict[str, Any]]:
    with gzip.open(Path(__file__).parent / "golden" / "golden.jsonl.gz", "rt") as lines:
        return [json.loads(line) for line in lines]


@cache
def golden() -> list[Golden]:
    rows = (r for r in _rows() if r["message"] not in EMBEDDED)
    return [Golden(MESSAGES[r["message"]], r["version"], r["kind"], r["values"], bytes.fromhex(r["frame"])) for r in rows]


@cache
def embedded() -> list[Embedded]:
    rows = (r for r in _rows() if r["message"] in EMBEDDED)
    return [Embedded(r["version"], r["kind"], build(EMBEDDED[r["message"]], r["values"]), bytes.fromhex(r["frame"])) for r in rows]


def build(cls: type[S], values: dict[str, Any]) -> S:
    """One of our structs from Kafka's JSON. A value without a field of ours is an error; fields without a value stay at their default."""
    fields = {f.name: f for f in cls.FIELDS}
    given = {}
    for key, value in values.items():
        if key == "recordsSizeInBytes":
            key, value = "records", RECORDS[:value]
        name = snake_case(key)
        given[name] = convert(fields[name], value)
    return cls(**given)


def convert(field: Field, value: Any) -> Any:
    if value is None or field.kind in ("number", "string"):
        return value
    if field.kind == "bytes":
        return base64.b64decode(value) if isinstance(value, str) else value
    if field.kind == "uuid":
        return UUID(bytes=_base64url(value))
    if field.kind == "struct":
        return build(struct_of(field), value)
    if isinstance(field.of, Field):
        return [convert(field.of, item) for item in value]
    return [build(struct_of(field), item) for item in value]


def struct_of(field: Field) -> type[Struct]:
    assert isinstance(field.of, type)
    return field.of


def snake_case(name: str) -> str:
    name = name[0].upper() + name[1:]
    return NAMES.get(name) or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _base64url(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "==")
