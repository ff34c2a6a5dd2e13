"""What the calls of all subjects share: their time, what becomes of errors, and the names of members."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from gkafka.admin import Admin
from gkafka.checks import check_seconds, check_topic_name
from gkafka.client import KafkaClient
from gkafka.exceptions import AdminError, ConfigurationError, KafkaException, UnsupportedVersion
from gkafka.kafka import errors
from gkafka.kafka.errors import IllegalArgumentError, InvalidTopicError, NoError, NotCoordinatorError
from gkafka.oneprocess import OfOneProcess

__all__ = [
    "Calls",
    "Outcomes",
    "class_of",
    "code_of",
    "id_of",
    "member",
    "name_of",
    "outcomes_of",
    "text_of",
    "topic_name",
    "with_operations",
]

E = TypeVar("E", bound=enum.Enum)


class BadTopicNameError(IllegalArgumentError, InvalidTopicError):
    """A name that no topic can have: an argument that cannot be used, and what kafka-python has a broker say."""


class Outcomes(NamedTuple):
    """What a native call did of all that it was given: each thing's result, or its error."""

    results: Mapping[Any, Any]
    errors: Mapping[Any, KafkaException]

    def raise_first(self) -> None:
        """kafka-python raises the first error; all of them are in the AdminError that is its cause."""
        for error in self.errors.values():
            raise error from AdminError("; ".join(map(str, self.errors.values())), self.errors, self.results)

    def of(self, thing: Any) -> Any:
        """Its error, or its result, None for calls that have none."""
        return self.errors.get(thing, self.results.get(thing))


class Calls(OfOneProcess):
    """A part of KafkaAdminClient, which has these."""

    config: dict[str, Any]
    _client: KafkaClient
    _admin: Admin

    def _within(self, timeout_ms: Any = None) -> float:
        """A call's time in seconds. timeout_ms: None and 0 for request_timeout_ms."""
        return check_seconds("timeout_ms", timeout_ms or self.config["request_timeout_ms"]) / 1000

    def _check_coordinator(self, group_ids: Any, given: int | None) -> None:
        """The native client finds coordinators by itself: who gives one is told if it is another."""
        for group in group_ids if given is not None else ():
            found = self._client.cluster.get_group_coordinator(group)
            if found.id != given:
                raise NotCoordinatorError(f"group_coordinator_id={given!r}: group {group!r} is with broker {found.id}", group=group)


def outcomes_of(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Outcomes:
    """What the call returned, or tells in its AdminError. What it raises as a whole is raised."""
    try:
        return Outcomes(call(*args, **kwargs) or {}, {})
    except AdminError as exc:
        return Outcomes(exc.results, exc.errors)


def with_operations(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Outcomes:
    """Also what the asker may do, where brokers tell that (KIP-430, 2.3)."""
    try:
        return outcomes_of(call, *args, operations=True, **kwargs)
    except UnsupportedVersion:
        return outcomes_of(call, *args, **kwargs)


def member(name: str, value: Any, kind: type[E]) -> E:
    """A member of an enumeration: itself, its value, or its name in any case, with - for _."""
    if isinstance(value, kind):
        return value
    for one in kind if not isinstance(value, bool) else ():
        if value == one.value or (isinstance(value, str) and value.strip().upper().replace("-", "_") == one.name):
            return one
    raise IllegalArgumentError(f"{name}={value!r}: must be one of {', '.join(one.name for one in kind)}")


def code_of(error: Any) -> int:
    """The number that a broker's answer has for it, 0 for what is no error."""
    return getattr(error, "code", -1) if isinstance(error, KafkaException) else 0


def text_of(error: Any) -> str | None:
    """What an error says, None for what is none."""
    return str(error) if isinstance(error, KafkaException) else None


def name_of(kind: type[KafkaException]) -> str:
    """What kafka-python calls an error."""
    names = (name for name in dir(errors) if name.endswith("Error") and name not in errors.OLDER)
    return next((name for name in names if getattr(errors, name) is kind), kind.__name__)


def topic_name(given: Any) -> str:
    """A topic's name. Raises InvalidTopicError, as brokers would, for what cannot be one."""
    try:
        return check_topic_name(given)
    except ConfigurationError as exc:
        raise BadTopicNameError(str(exc)) from exc


def id_of(given: UUID) -> str | None:
    """An id as text, None for one that was not told."""
    return str(given) if given.int else None


def class_of(error: Any) -> type[KafkaException]:
    """An outcome as kafka-python gives it: the class of an error, NoError for what is none."""
    return type(error) if isinstance(error, KafkaException) else NoError
