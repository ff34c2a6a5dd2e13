"""What administrators give, made into what the requests are made of. Everything raises ConfigurationError with the name, the value and the rule."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from gkafka.checks import MAX_STRING, check_count, check_mapping, check_name, check_partition, check_text, check_topic_name
from gkafka.common import TopicPartition
from gkafka.config import NOT_UTF8, Secret, is_utf8
from gkafka.exceptions import ConfigurationError
from gkafka.unseen import refused

__all__ = [
    "by_topic",
    "check_config_value",
    "check_configs",
    "check_enum",
    "check_names",
    "check_partitions",
    "check_replicas",
    "check_topic_names",
    "items_of",
    "one_partition",
]

E = TypeVar("E", bound=enum.Enum)


def items_of(name: str, given: Any) -> list[Any]:
    """The things in an iterable; a text is none, as it would be taken apart."""
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise refused(name, given, "must be a list, also for one")
    return list(given)


def check_names(name: str, given: Any) -> list[str]:
    """Names that are not empty, each once."""
    return list(dict.fromkeys(check_name(name, one) for one in items_of(name, given)))


def check_topic_names(given: Any) -> list[str]:
    """Names of topics, each once."""
    return list(dict.fromkeys(check_topic_name(one) for one in items_of("topics", given)))


def one_partition(given: Any) -> TopicPartition:
    """A TopicPartition, or a pair like it."""
    if not isinstance(given, tuple) or len(given) != 2:
        raise ConfigurationError(f'partition={given!r}: must be (topic, partition), such as ("orders", 0)')
    return TopicPartition(check_topic_name(given[0]), check_count("partition", check_partition("partition", given[1]), low=0))


def check_partitions(given: Any) -> list[TopicPartition]:
    """Partitions, each once."""
    return list(dict.fromkeys(one_partition(one) for one in items_of("partitions", given)))


def check_replicas(name: str, given: Any) -> list[int]:
    """Broker ids, the preferred leader first; at least one, none twice."""
    ids = [check_count(name, one, low=0) for one in items_of(name, given)]
    if not ids or len(set(ids)) < len(ids):
        raise ConfigurationError(f"{name}={given!r}: must be one or more brokers' ids, each once")
    return ids


def check_configs(name: str, given: Any) -> dict[str, str]:
    """Texts by name; numbers and truth values are written as Kafka reads them."""
    return {
        check_name(name, key): check_config_value(f"{name}[{key!r}]", value)
        for key, value in check_mapping(name, given, '{"retention.ms": "60000"}').items()
    }


def check_config_value(name: str, value: Any) -> str:
    """A configuration's value as text. A Secret stays one."""
    if isinstance(value, Secret):
        if not is_utf8(value):
            raise ConfigurationError(f"{name}: {NOT_UTF8}")
        if len(value.encode()) > MAX_STRING:
            raise ConfigurationError(f"{name}: must hold {MAX_STRING} bytes or fewer")
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, (int, float)) else check_text(name, value)


def check_enum(name: str, value: Any, kind: type[E]) -> E:
    """A member of an enumeration, itself or by its name in any case ("read", "Describe-Configs")."""
    if isinstance(value, kind):
        return value
    if isinstance(value, str):
        wanted = value.upper().replace("-", "_").replace(" ", "_")
        for member in kind:
            if wanted in (member.name, str(member.value).upper().replace("-", "_")):
                return member
    raise refused(name, value, f"must be one of {', '.join(member.name.lower() for member in kind)}")


def by_topic(partitions: Iterable[TopicPartition]) -> Mapping[str, list[int]]:
    """Partitions by topic, as they come."""
    topics: dict[str, list[int]] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, []).append(tp.partition)
    return topics
