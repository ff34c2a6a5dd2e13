"""What a KafkaConsumer is given, checked when it is given, and told by kafka-python's names."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gkafka.config import NativeConsumerConfig, build
from gkafka.exceptions import ConfigurationError, KafkaException
from gkafka.kafka import options
from gkafka.kafka.consumer.commits import default_callback
from gkafka.kafka.errors import IllegalArgumentError, WrongTypeError
from gkafka.kafka.options import CLIENT, at_least, native, told_as
from gkafka.skins import ASSIGNORS, Assignor, RangeAssignor, RoundRobinAssignor

__all__ = [
    "DEFAULTS",
    "NAMES",
    "assignors",
    "check_options",
    "compiled",
    "of_consumer",
    "patience_s",
    "policy",
    "retold",
    "telling",
    "told_by_name",
    "without_effect",
]

DEFAULTS: dict[str, Any] = {
    **CLIENT,
    "group_id": None,
    "group_instance_id": None,
    "key_deserializer": None,
    "value_deserializer": None,
    "fetch_min_bytes": 1,
    "fetch_max_wait_ms": 500,
    "fetch_max_bytes": 52428800,
    "max_partition_fetch_bytes": 1048576,
    "auto_offset_reset": "latest",
    "enable_auto_commit": True,
    "auto_commit_interval_ms": 5000,
    "default_offset_commit_callback": default_callback,
    "check_crcs": True,
    "isolation_level": "read_uncommitted",
    "client_rack": "",
    "partition_assignment_strategy": [RangeAssignor, RoundRobinAssignor],
    "max_poll_records": 500,
    "consume_max_bytes": 67108864,
    "max_poll_interval_ms": 300000,
    "session_timeout_ms": 10000,
    "heartbeat_interval_ms": 3000,
    "consumer_timeout_ms": float("inf"),
    "skip_double_compressed_messages": False,
    "exclude_internal_topics": True,
    "receive_message_max_bytes": 100_000_000,
}
"""kafka-python 1.4's, and of newer versions what has a meaning here. consume_max_bytes is gkafka's own."""

NAMES = {
    "fetch_min_bytes": "fetch_min_bytes",
    "fetch_max_wait_ms": "fetch_wait_max_ms",
    "fetch_max_bytes": "fetch_max_bytes",
    "max_partition_fetch_bytes": "fetch_message_max_bytes",
    "request_timeout_ms": "request_timeout_ms",
    "retry_backoff_ms": "fetch_error_backoff_ms",
    "auto_commit_interval_ms": "auto_commit_interval_ms",
    "check_crcs": "check_crcs",
    "isolation_level": "isolation_level",
    "client_rack": "client_rack",
    "consume_max_bytes": "consume_max_bytes",
    "max_poll_interval_ms": "max_poll_interval_ms",
}
OF_MEMBERS = {
    "session_timeout_ms": "session_timeout_ms",
    "heartbeat_interval_ms": "heartbeat_interval_ms",
    "group_instance_id": "group_instance_id",
}
OF_GROUPS = (
    *("session_timeout_ms", "heartbeat_interval_ms", "max_poll_interval_ms", "partition_assignment_strategy"),
    *("auto_commit_interval_ms", "default_offset_commit_callback"),
)
"""Options that do nothing without a group. Programs give them all the same, from settings that others of theirs share: so it is told, not refused."""
SHORTEST_INTERVAL_MS = 1
LONGEST_SESSION_MS = 305000
"""What the last releases of 1.4 wait for an answer if nothing else is said: a session must be shorter."""
OLD_POLICIES = {"smallest": "earliest", "largest": "latest"}
_OTHER_NAMES = {
    **{ours: theirs for theirs, ours in NAMES.items() if ours != theirs},
    "socket_timeout_ms": "request_timeout_ms",
    "offsets_channel_socket_timeout_ms": "request_timeout_ms",
    "group": "group_id",
    "assignors": "partition_assignment_strategy",
    "auto_create_topics": "allow_auto_create_topics",
    "auto_commit": "enable_auto_commit",
    "max_response_bytes": "receive_message_max_bytes",
}


telling = options.telling(_OTHER_NAMES)


def told_by_name() -> contextlib._GeneratorContextManager[None]:
    """An error about one of gkafka's options names kafka-python's."""
    return told_as(_OTHER_NAMES)


def retold(error: KafkaException) -> None:
    """The same for an error that is there."""
    options.retold(error, _OTHER_NAMES)


def check_options(c: Mapping[str, Any], given: Iterable[str]) -> None:
    """Raises ConfigurationError for what an option cannot be, also where nothing asks for it yet. given: names of the options that are no defaults."""
    with told_by_name():
        build(NativeConsumerConfig, {**_of_all(c), **native(c, OF_MEMBERS)}, where="KafkaConsumer()")
    if c["group_id"] is not None and c["heartbeat_interval_ms"] >= c["session_timeout_ms"]:
        text = f"heartbeat_interval_ms={c['heartbeat_interval_ms']} with session_timeout_ms={c['session_timeout_ms']}"
        raise ConfigurationError(f"{text}: must be lower, typically a third of it or less")
    longest = c["request_timeout_ms"] if "request_timeout_ms" in given else LONGEST_SESSION_MS
    if c["group_id"] is not None and c["session_timeout_ms"] >= longest:
        of_whom = "" if "request_timeout_ms" in given else ", the documented default of kafka-python 1.4.7"
        text = f"session_timeout_ms={c['session_timeout_ms']} with request_timeout_ms={longest}{of_whom}"
        raise ConfigurationError(f"{text}: must be lower; give a longer request_timeout_ms, or a shorter session_timeout_ms")
    for name in ("skip_double_compressed_messages", "enable_auto_commit"):
        if not isinstance(c[name], bool):
            raise ConfigurationError(f"{name}={c[name]!r}: must be True or False")
    for name in ("max_poll_records", "max_in_flight_requests_per_connection"):
        if not isinstance(c[name], int) or isinstance(c[name], bool) or c[name] < 1:
            raise ConfigurationError(f"{name}={c[name]!r}: must be a whole number, 1 or more")
    if (
        isinstance(c["consumer_timeout_ms"], bool)
        or not isinstance(c["consumer_timeout_ms"], (int, float))
        or c["consumer_timeout_ms"] != c["consumer_timeout_ms"]
    ):
        raise ConfigurationError(f"consumer_timeout_ms={c['consumer_timeout_ms']!r}: must be a number; -1 and float('inf') wait for ever")
    if c["group_instance_id"] is not None and c["group_id"] is None:
        raise ConfigurationError(f"group_instance_id={c['group_instance_id']!r} needs a group: give group_id")
    if not callable(c["default_offset_commit_callback"]):
        raise ConfigurationError(
            f"default_offset_commit_callback={c['default_offset_commit_callback']!r}: must be callable with (offsets, response)"
        )
    for name in ("key_deserializer", "value_deserializer"):
        if c[name] is not None and not callable(c[name]) and not callable(getattr(c[name], "deserialize", None)):
            raise WrongTypeError(f"{name}={c[name]!r}: must be callable with the bytes, or a Deserializer")


def _of_all(c: Mapping[str, Any]) -> dict[str, Any]:
    """1.4's auto_commit_interval_ms=0 commits whenever it can."""
    taken = native(c, NAMES)
    return {**taken, "auto_commit_interval_ms": at_least(SHORTEST_INTERVAL_MS, taken["auto_commit_interval_ms"])}


def patience_s(c: Mapping[str, Any]) -> float:
    """Of consumer_timeout_ms: less than nothing is no limit."""
    return float(c["consumer_timeout_ms"]) / 1000 if c["consumer_timeout_ms"] >= 0 else float("inf")


def without_effect(given: Mapping[str, Any], c: Mapping[str, Any]) -> list[str]:
    """The options that were given, and do nothing."""
    if c["group_id"] is not None:
        return []
    return [name for name in given if name in OF_GROUPS or (name == "enable_auto_commit" and c[name] is True)]


def of_consumer(c: Mapping[str, Any], *, member: bool, assignors: Sequence[Any]) -> dict[str, Any]:
    """The options of gkafka's native consumer. member: it shares topics with a group."""
    taken = _of_all(c)
    taken["auto_offset_reset"] = policy(c)
    taken["auto_commit"] = bool(c["enable_auto_commit"]) if c["group_id"] is not None else None
    taken["queued_max_messages"] = max(2000, c["max_poll_records"])
    if member:
        taken.update(native(c, OF_MEMBERS), assignors=list(assignors))
    else:
        del taken["max_poll_interval_ms"]
    if c["group_id"] is None or c["enable_auto_commit"] is False:
        del taken["auto_commit_interval_ms"]
    return taken


def policy(c: Mapping[str, Any]) -> str:
    """Where partitions start and go on: documented is that any other value raises the exception."""
    given = c["auto_offset_reset"]
    named = OLD_POLICIES.get(given, given) if isinstance(given, str) else given
    return named if named in ("earliest", "latest") else "none"


def assignors(given: Any) -> list[Any]:
    """Of partition_assignment_strategy: gkafka's and kafka-python's classes and objects, or names."""
    if not isinstance(given, (list, tuple)) or not given:
        raise WrongTypeError(f"partition_assignment_strategy={given!r}: must be a list of assignors, the best first")
    return [_assignor(one) for one in given]


def _assignor(given: Any) -> Any:
    if isinstance(given, str) and given in ASSIGNORS:
        return ASSIGNORS[given]
    made = given
    if isinstance(given, type) and hasattr(given, "name") and hasattr(given, "assign"):
        try:
            made = given()
        except TypeError as exc:
            raise WrongTypeError(f"partition_assignment_strategy: {given!r} cannot be made: {exc}") from exc
    if isinstance(made, Assignor):
        return made
    from gkafka.kafka.coordinator.adapter import Adapted, is_kafka_pythons

    if is_kafka_pythons(made):
        return Adapted(made)
    raise WrongTypeError(
        f"partition_assignment_strategy: {given!r} must be one of {', '.join(map(repr, ASSIGNORS))}, or have what AbstractPartitionAssignor has: "
        "name, assign(cluster, members) and metadata(topics)"
    )


def compiled(given: Any) -> re.Pattern[str]:
    """What matches the whole name of each topic that the pattern matches from its beginning."""
    text = given.pattern if isinstance(given, re.Pattern) else given
    flags = given.flags if isinstance(given, re.Pattern) else 0
    if not isinstance(text, str):
        raise IllegalArgumentError(f"pattern={given!r}: must be a text")
    try:
        re.compile(text, flags)
        return re.compile(f"(?:{text}).*", flags | re.DOTALL)
    except re.error as exc:
        raise IllegalArgumentError(f"pattern={given!r}: {exc}") from exc
