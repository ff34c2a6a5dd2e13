"""What a person writes for times, partitions and names, made into what the client takes; and the nearest name to one that is not there."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gkafka.cli.failures import ToolError
from gkafka.cli.output import quoted
from gkafka.cli.quantities import MAX_INT64, ParamType, is_number

if TYPE_CHECKING:
    from gkafka.admin import Admin

__all__ = [
    "GROUP",
    "TIME",
    "TOPIC",
    "as_time",
    "near_groups",
    "near_topics",
    "pairs",
    "parse_time",
    "partitions",
    "raise_unknown_group",
    "yes_option",
]

F = TypeVar("F", bound=Callable[..., Any])
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
AGO = re.compile(r"(\d+)([smhdw])")


# -- times ---------------------------------------------------------------------------------------------------------------------
def parse_time(text: str, now: datetime | None = None) -> int:
    """Milliseconds since the epoch of "2026-01-31T08:00:00Z", "2026-01-31", "1h" (ago; s m h d w), "now" or milliseconds. UTC without a zone.

    Raises ValueError, also for what lies before 1970: brokers take -1 and -2 for the ends of a log.
    """
    found = _milliseconds(text, now)
    if not 0 <= found <= MAX_INT64:
        raise ValueError(f"{text!r}: must be from 1970 on, and at most 2**63 - 1 ms behind it")
    return found


def _milliseconds(text: str, now: datetime | None) -> int:
    moment = datetime.now(timezone.utc) if now is None else now
    if text == "now":
        return int(moment.timestamp() * 1000)
    ago = AGO.fullmatch(text)
    if ago is not None:
        return int((moment.timestamp() - int(ago[1]) * UNITS[ago[2]]) * 1000)
    if text.isascii() and text.isdecimal():
        return int(text)
    told = datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith(("Z", "z")) else text)
    return int((told if told.tzinfo is not None else told.replace(tzinfo=timezone.utc)).timestamp() * 1000)


def as_time(ms: int) -> str:
    """A time in ms as ISO 8601 in UTC, to the millisecond; the number itself where no calendar reaches."""
    try:
        return datetime.fromtimestamp(ms / 1000, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return str(ms)


class _Time(ParamType):
    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_time(value)
        except (ValueError, OverflowError, OSError):
            self.fail(
                f"{value!r}: must be as 2026-01-31T08:00:00Z, 2026-01-31, 1h (ago; s m h d w), now, or ms since the epoch; 1970 or later",
                param,
                ctx,
            )


TIME = _Time()
"""Type of an option or argument that is a time: gives ms since the epoch."""


# -- names -----------------------------------------------------------------------------------------------------------------------
class _Topic(ParamType):
    name = "topic"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from gkafka.checks import TOPIC_RULE, is_topic_name

        if not is_topic_name(value):
            self.fail(f"{value!r}: {TOPIC_RULE}", param, ctx)
        return str(value)


class _Group(ParamType):
    name = "group"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from gkafka.checks import check_name
        from gkafka.exceptions import ConfigurationError

        try:
            return check_name(self.name, value)
        except ConfigurationError as exc:
            self.fail(str(exc).removeprefix(f"{self.name}="), param, ctx)


TOPIC, GROUP = _Topic(), _Group()
"""Types of names: of a topic, which there can be; of a group, which Kafka can carry. Whether it is there is for the cluster to say."""


# -- partitions and pairs ------------------------------------------------------------------------------------------------------
def partitions(where: str, texts: Iterable[str]) -> tuple[list[str], list[tuple[str, int]]]:
    """(whole topics, single partitions) of "orders", "orders:0" and "orders:0,1". where: the option, for the error's text."""
    from gkafka.checks import TOPIC_RULE, is_topic_name

    whole: list[str] = []
    single: list[tuple[str, int]] = []
    for text in texts:
        topic, sign, numbers = text.partition(":")
        if not is_topic_name(topic):
            raise click.UsageError(f"{where} {text!r}: a topic's name {TOPIC_RULE}", click.get_current_context(silent=True))
        if not sign:
            whole.append(topic)
            continue
        for number in numbers.split(","):
            if not is_number(number):
                raise click.UsageError(f"{where} {text!r}: must be TOPIC or TOPIC:PARTITION,...", click.get_current_context(silent=True))
            single.append((topic, int(number)))
    return whole, single


def pairs(where: str, texts: Iterable[str]) -> dict[str, str]:
    """{name: value} of "name=value", each name once."""
    found: dict[str, str] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise click.UsageError(f"{where} {text!r}: must be NAME=VALUE", click.get_current_context(silent=True))
        if name in found:
            raise click.UsageError(f"{where}: {name!r} is given twice", click.get_current_context(silent=True))
        found[name] = value
    return found


def yes_option(what: str) -> Callable[[F], F]:
    """--yes: without it a command that cannot be taken back shows what it would do. what: "delete them"."""
    return click.option("--yes", is_flag=True, help=f"Do {what}; without it, only show what would be done.")


# -- names that are not there --------------------------------------------------------------------------------------------------
@contextmanager
def near_topics(admin: Admin, left: Callable[[], float] | None = None, *, more: str = "") -> Iterator[None]:
    """Turns "unknown topic" into an error with the nearest name that there is. left: seconds that looking for that may take, None for any.

    more: behind the next step.
    """
    from gkafka.exceptions import AdminError, UnknownTopicOrPartition

    try:
        yield
    except UnknownTopicOrPartition as exc:
        _raise_near("topic", [exc.topic or ""], _known_topics(admin, left), exc, more)
        raise
    except AdminError as exc:
        missing = [name for key, error in exc.errors.items() if isinstance(error, UnknownTopicOrPartition) for name in [_name_of(key)]]
        if len(missing) == len(exc.errors):
            _raise_near("topic", missing, _known_topics(admin, left), exc, more)
        raise


@contextmanager
def near_groups(admin: Admin, left: Callable[[], float] | None = None) -> Iterator[None]:
    """Turns "unknown group" into an error with the nearest name that there is. left: as of near_topics()."""
    from gkafka.exceptions import AdminError, GroupIdNotFound

    try:
        yield
    except GroupIdNotFound as exc:
        _raise_near("group", [exc.group or ""], _known_groups(admin, left), exc)
        raise
    except AdminError as exc:
        missing = [str(key) for key, error in exc.errors.items() if isinstance(error, GroupIdNotFound)]
        if len(missing) == len(exc.errors):
            _raise_near("group", missing, _known_groups(admin, left), exc)
        raise


def _known_topics(admin: Admin, left: Callable[[], float] | None) -> list[str] | None:
    """Those that there are; None where nobody tells."""
    from gkafka.exceptions import KafkaException

    try:
        return list(admin.list_topics(internal=True, timeout=None if left is None else left()))
    except KafkaException:
        return None


def _known_groups(admin: Admin, left: Callable[[], float] | None) -> list[str] | None:
    from gkafka.exceptions import AdminError, KafkaException

    try:
        return list(admin.list_groups(timeout=None if left is None else left()))
    except AdminError as exc:
        return list(exc.results)
    except KafkaException:
        return None


def raise_unknown_group(admin: Admin, name: str, more: str = "") -> None:
    """Raise ToolError for a group that nobody knows, with the nearest name that there is. more: behind the next step."""
    _raise_near("group", [name], [known for known in _known_groups(admin, None) or [] if known != name], None, more)


def _name_of(key: Any) -> str:
    """The topic of what an AdminError's errors are by: a name, a partition, or a resource."""
    return key if isinstance(key, str) else str(key[0] if isinstance(key[0], str) else key[1])


def _raise_near(kind: str, missing: list[str], there: list[str] | None, cause: Exception | None, more: str = "") -> None:
    """Raises unless all that is missing is there after all: then it is something of it, such as a partition. there: None where that is not known."""
    if there is None:
        return
    unknown = [name for name in dict.fromkeys(missing) if name not in there]
    if not unknown:
        return
    near = [quoted(match) for name in unknown for match in difflib.get_close_matches(name, there, n=1)]
    hint = f"did you mean {', '.join(near)}? " if near else ""
    names = ", ".join(map(quoted, unknown))
    plural = "s" if len(unknown) > 1 else ""
    raise ToolError(f"no {kind}{plural} {names} in this cluster", hint=f"{hint}kafka-tools {kind}s lists what there is{more}") from cause
