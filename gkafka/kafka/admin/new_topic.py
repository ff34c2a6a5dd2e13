"""A topic to be made (kafka.admin.new_topic)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gkafka import admin as native
from gkafka.admin.changes import hide_configs
from gkafka.kafka.admin.calls import topic_name
from gkafka.kafka.errors import IllegalArgumentError

__all__ = ["NewTopic", "native_topics"]


class NewTopic:
    """num_partitions, replication_factor: -1 leaves it to the brokers (2.4 and newer). replica_assignments: instead of both, the brokers of each
    partition. topic_configs: values by name."""

    def __init__(
        self,
        name: str,
        num_partitions: int = -1,
        replication_factor: int = -1,
        replica_assignments: Mapping[int, Sequence[int]] | None = None,
        topic_configs: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.num_partitions = num_partitions
        self.replication_factor = replication_factor
        self.replica_assignments = replica_assignments or {}
        self.topic_configs = topic_configs

    @property
    def topic_configs(self) -> Any:
        """As they were given, with Secrets for what may be one."""
        return self._topic_configs

    @topic_configs.setter
    def topic_configs(self, given: Any) -> None:
        self._topic_configs = hide_configs(given or {})

    def __repr__(self) -> str:
        return f"NewTopic({self.name!r}, {self.num_partitions}, {self.replication_factor})"


def native_topics(given: Any) -> list[native.NewTopic]:
    """Of names, NewTopics, or {name: {"num_partitions": ..., "replication_factor": ..., "assignments": ..., "configs": ...}}."""
    if isinstance(given, Mapping):
        topics = [_of_mapping(name, options) for name, options in given.items()]
    elif isinstance(given, (str, bytes)) or not hasattr(given, "__iter__"):
        raise IllegalArgumentError(f"new_topics={given!r}: must be a list of names or of NewTopics, or a dict")
    else:
        topics = [_of_topic(one) for one in given]
    if not topics:
        raise IllegalArgumentError("new_topics: there is none; name one at least")
    return topics


def _of_mapping(name: str, options: Any) -> native.NewTopic:
    known = {"num_partitions": -1, "replication_factor": -1, "assignments": None, "configs": None}
    if not isinstance(options, Mapping) or options.keys() - known.keys():
        raise IllegalArgumentError(f"new_topics[{name!r}]={options!r}: must be a dict with some of {', '.join(known)}")
    taken = {**known, **options}
    return native.NewTopic(
        topic_name(name), taken["num_partitions"], taken["replication_factor"], taken["configs"], taken["assignments"] or None
    )


def _of_topic(one: Any) -> native.NewTopic:
    if isinstance(one, str):
        return native.NewTopic(topic_name(one))
    if isinstance(one, NewTopic):
        return native.NewTopic(
            topic_name(one.name), one.num_partitions, one.replication_factor, one.topic_configs, one.replica_assignments or None
        )
    raise IllegalArgumentError(f"new_topics: {one!r} must be a name or a NewTopic")
