"""Puts a text that no log and no terminal should see into the string fields of answers, wherever the wire tables have one."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from typing import Any

from gkafka.exceptions import AdminError
from gkafka.testing import Edit, MockCluster
from gkafka.wire.apis import Api, Request
from gkafka.wire.consumerprotocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    MemberPartitions,
)
from gkafka.wire.schema import Struct

EVIL = "evil\n\x1b[31m\u202e"
REFUSED = 42
"""INVALID_REQUEST: with it a broker's own message is read."""
Path = tuple[str, ...]


def string_paths(cls: type[Struct], before: Path = ()) -> Iterator[Path]:
    """Names of the fields that lead to each string of a message."""
    for field in cls.FIELDS:
        here, of = (*before, field.name), field.of
        if isinstance(of, type):
            yield from string_paths(of, here)
        elif field.kind == "string" or (of is not None and of.kind == "string"):
            yield here


def poison(part: Struct, path: Path, version: int) -> bool:
    """Put EVIL where the path leads. False: this version of the message has no such field."""
    field = next(f for f in part.FIELDS if f.name == path[0])
    if version not in field.versions and version not in field.tagged:
        return False
    value = getattr(part, field.name)
    if len(path) > 1:
        inside = value if field.kind == "array" else [value]
        if not inside and field.kind == "array":  # an entry that nobody asked for
            inside = [field.of()]  # type: ignore[operator,misc]
            setattr(part, field.name, inside)
        return [poison(one, path[1:], version) for one in inside].count(True) > 0
    setattr(part, field.name, [EVIL] if field.kind == "array" else f"{value or ''}{EVIL}")
    if field.name == "error_message" and any(f.name == "error_code" for f in part.FIELDS):
        part.error_code = REFUSED  # type: ignore[attr-defined]
    return True


def filled(cls: type[Struct], code: int = 0) -> Any:
    """A struct with EVIL in every string, one entry in every array, and this error code."""
    values: dict[str, Any] = {}
    for field in cls.FIELDS:
        of = field.of
        inner = filled(of, code) if isinstance(of, type) else EVIL if of is not None and of.kind == "string" else None
        if field.kind == "string":
            values[field.name] = EVIL
        elif field.name == "error_code":
            values[field.name] = code
        elif inner is not None:
            values[field.name] = [inner] if field.kind == "array" else inner
    return cls(**values)


class Poisoner:
    """Poisons one string field in each answer, each field of each API once, and then answers as a good broker does."""

    def __init__(self, cluster: MockCluster, apis: list[Api]) -> None:
        self.left = {api.name: deque(string_paths(api.response)) for api in apis}
        self.done: list[tuple[str, Path]] = []
        for name in self.left:
            cluster.on(name, Edit(self._edit), times=None)

    def _edit(self, request: Request, answer: Any) -> Any:
        left = self.left[request.api.name]
        while left:
            path = left.popleft()
            if poison(answer, path, request.version):
                self.done.append((request.api.name, path))
                break
        return answer


def poison_assignment(request: Request, answer: Any) -> Any:
    """The group's leader, another member, gives this one a topic of its own invention."""
    answer.assignment = ConsumerProtocolAssignment(assigned_partitions=[MemberPartitions(topic=f"other{EVIL}", partitions=[0])]).to_bytes()
    return answer


def poison_members(request: Request, answer: Any) -> Any:
    """Another member, which does not exist, subscribes to a topic and names a rack."""
    for member in answer.members[:1]:
        told = ConsumerProtocolSubscription(topics=[EVIL], rack_id=EVIL)
        answer.members.append(type(member)(member_id=EVIL, group_instance_id=EVIL, metadata=told.to_bytes()))
    return answer


# -- what was told ----------------------------------------------------------------------------------------------------
def texts_of(error: BaseException) -> Iterator[str]:
    """The text of an error, of all that it comes from, and of the errors that it lists."""
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield str(one)
        yield from getattr(one, "__notes__", ())
        left += [one.__cause__, one.__context__]
        if isinstance(one, AdminError):
            left += one.errors.values()
        left += [entry.error for entry in getattr(one, "records", ())]


def logged(records: list[logging.LogRecord]) -> Iterator[str]:
    """The messages of gkafka's own loggers, and the errors that they show."""
    for record in records:
        if record.name.startswith("gkafka") and not record.name.startswith("gkafka.testing"):
            yield record.getMessage()
            if record.exc_info and record.exc_info[1] is not None:
                yield from texts_of(record.exc_info[1])
