"""Arguments of public calls, checked where they come in: one converter per kind, each gives the value that the inside works with.

Every one takes the argument's name first and raises ConfigurationError with the name, the value and what it may be.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from math import isfinite, isnan
from numbers import Real
from operator import index
from typing import Any
from uuid import UUID

from gkafka.common import IsolationLevel
from gkafka.exceptions import ConfigurationError, InvalidTopic
from gkafka.unseen import refusal, refused, told

__all__ = [
    "check_count",
    "check_flag",
    "check_isolation",
    "check_mapping",
    "check_name",
    "check_offset",
    "check_pairs",
    "check_partition",
    "check_seconds",
    "check_text",
    "check_time",
    "check_time_left",
    "check_timestamp",
    "check_topic_id",
    "check_topic_name",
    "is_topic_name",
    "milliseconds",
    "check_wait",
    "find_index",
]

INT32 = (1 << 31) - 1
INT64 = (1 << 63) - 1
MAX_STRING = (1 << 15) - 1  # a text on the wire: an int16 of UTF-8 bytes
TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
TOPIC_RULE = "must be 1 to 249 of the characters A-Z a-z 0-9 . _ -, and not '.' or '..'"


class InvalidTopicName(ConfigurationError, InvalidTopic):
    """A name that no topic can have: an argument that cannot be used, and what the other clients have a broker say."""


def check_count(name: str, value: Any, *, low: int = 1, high: int = INT32) -> int:
    """A whole number from low to high (inclusive); True and False are none, numpy's integers are."""
    try:
        number = index(value)
    except TypeError:
        number = low - 1
    if isinstance(value, bool) or not low <= number <= high:
        raise refused(name, value, f"must be a whole number from {low} to {high}")
    return number


def check_flag(name: str, value: Any) -> bool:
    """True or False; not "no", which would count as true."""
    if not isinstance(value, bool):
        raise refused(name, value, "must be True or False")
    return value


def find_index(value: Any, count: int) -> int | None:
    """The whole number, 0 or more and less than count, that a value is (numpy's integers too), or None."""
    try:
        number = index(value)
    except TypeError:
        return None
    return number if not isinstance(value, bool) and 0 <= number < count else None


def check_offset(name: str, value: Any, *, low: int = 0) -> int:
    """An offset: 0 or more; low=-2 lets OffsetType.LATEST (-1) and EARLIEST (-2) pass."""
    return check_count(name, value, low=low, high=INT64)


def check_timestamp(name: str, value: Any) -> int:
    """Milliseconds since the epoch, or -1 (latest) or -2 (earliest); -3 and lower are the special times of newer brokers."""
    return check_count(name, value, low=-5, high=INT64)


def check_time(name: str, value: Any) -> int:
    """check_timestamp() of what may be a datetime, too: one of pykafka's, which without a zone is UTC."""
    if isinstance(value, datetime):
        if (found := milliseconds(value)) < 0:
            raise refused(name, value, "must be 1970 or later")
        return found
    return check_timestamp(name, value)


def milliseconds(when: datetime) -> int:
    """Since the epoch; without a zone it is UTC."""
    return round((when if when.tzinfo is not None else when.replace(tzinfo=timezone.utc)).timestamp() * 1000)


def check_partition(name: str, value: Any) -> int:
    """The id of a partition as the wire can hold it: whether the topic has that one (it has no -1) is for the cluster to say."""
    return check_count(name, value, low=-INT32 - 1)


def check_seconds(name: str, value: Any, *, low: float = 0.0) -> float:
    """A time: finite and low or more."""
    if isinstance(value, bool) or not isinstance(value, Real) or not isfinite(_float(value)) or value < low:
        raise refused(name, value, f"must be a finite number, {low:g} or more")
    return float(value)


def check_wait(name: str, value: Any) -> float:
    """How long a call may take, in seconds: 0 or more, for ever if it is infinite."""
    if isinstance(value, bool) or not isinstance(value, Real) or isnan(seconds := _float(value)) or seconds < 0:
        raise refused(name, value, "must be a number of seconds, 0 or more")
    return seconds


def check_time_left(name: str, value: Any) -> float:
    """How long to wait for a result, in seconds, for ever if it is infinite: 0 if it is negative, as for other futures and queues, because
    callers pass what is left until a deadline."""
    if type(value) in (int, float) and 0 <= value < INT32:
        return float(value)
    if isinstance(value, bool) or not isinstance(value, Real) or isnan(seconds := _float(value)):
        raise refused(name, value, "must be a number of seconds")
    return max(0.0, seconds)


def _float(number: Real) -> float:
    try:
        return float(number)
    except OverflowError:
        return float("inf")


def check_name(name: str, value: Any) -> str:
    """A text that Kafka can carry, such as a consumer group's name: bytes are decoded as UTF-8, at least one character."""
    text = check_text(name, value)
    if not text:
        raise refused(name, value, "must not be empty")
    return text


def is_topic_name(text: str) -> bool:
    """Whether a topic can have the name."""
    return TOPIC_NAME.fullmatch(text) is not None and text not in (".", "..")


def check_topic_name(name: Any, what: str = "topic") -> str:
    """A topic's name by Kafka's rule; bytes are decoded. what: the argument.

    Source: org.apache.kafka.common.internals.Topic.validate.
    """
    text = check_text(what, name)
    if not is_topic_name(text):
        raise InvalidTopicName(refusal(what, name, TOPIC_RULE), topic=text)
    return text


def check_text(name: str, value: Any) -> str:
    """A text of up to 32767 bytes of UTF-8, "" too; bytes are decoded, a member of an enum is the text that it stands for."""
    if not isinstance(value, (str, bytes)):
        raise refused(name, value, f"must be a text, not {type(value).__name__}")
    try:
        text = value.decode() if isinstance(value, bytes) else str.__str__(value)
        length = len(text.encode())
    except UnicodeError as exc:
        raise ConfigurationError(f"{name}={value!r}: is not UTF-8: {exc.reason if isinstance(exc, UnicodeDecodeError) else exc}") from exc
    if length > MAX_STRING:
        raise ConfigurationError(f"{name}={text[:40]!r}...: holds {length} bytes, must hold {MAX_STRING} or fewer")
    return text


def check_topic_id(name: str, value: Any) -> UUID:
    """The id of a topic, as admin().describe_topics() tells it."""
    if not isinstance(value, UUID):
        raise refused(name, value, f"must be a uuid.UUID, not {type(value).__name__}")
    return value


def check_mapping(name: str, value: Any, example: str) -> Mapping[Any, Any]:
    """A mapping. example: what one looks like, for the error's text."""
    if not isinstance(value, Mapping):
        raise refused(name, value, f"must be a mapping such as {example}, not {type(value).__name__}")
    return value


def check_pairs(name: str, value: Any, example: str) -> list[tuple[Any, Any]]:
    """The pairs of an iterable. example: what one looks like, for the error's text."""
    pairs = list(value) if isinstance(value, Iterable) and not isinstance(value, (str, bytes)) else None
    if pairs is None or not all(isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in pairs):
        raise ConfigurationError(f"{told(name, value)}: must be pairs such as {example}")
    return [(first, second) for first, second in pairs]


def check_isolation(name: str, value: Any) -> IsolationLevel:
    """READ_UNCOMMITTED (0) or READ_COMMITTED (1), of the enum or its number."""
    if isinstance(value, int) and not isinstance(value, bool) and value in (0, 1):
        return IsolationLevel(value)
    raise refused(name, value, "must be IsolationLevel.READ_UNCOMMITTED (0) or READ_COMMITTED (1)")
