"""What a consumer was given as its topics: names, or a pattern that topics match, now or later."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from gkafka.checks import check_topic_name
from gkafka.common import TopicPartition
from gkafka.exceptions import ConfigurationError, TopicAuthorizationFailed
from gkafka.logs import get_logger
from gkafka.topicdict import KNOWN_INTERNAL

if TYPE_CHECKING:
    from gkafka.cluster import Cluster
    from gkafka.core.metadata import TopicInfo
    from gkafka.exceptions import KafkaException

__all__ = ["Awaited", "Subscription", "look_for"]

log = get_logger(__name__)

PATIENCE_S = 1.0
"""For a topic that a broker makes because somebody asks for it."""
AWAITED_S = 1.0
"""How often topics that are awaited are asked for."""
SOONEST_S = 0.05


class Awaited(tuple[str, ...]):
    """Names of topics that need not be there yet: each is read as soon as it is."""

    __slots__ = ()


class Subscription:
    """given: a name, names, a compiled pattern, Awaited names, or None for nothing."""

    def __init__(self, cluster: Cluster, given: Any) -> None:
        self._cluster, self._handler = cluster, cluster.handler
        self._is_patient = isinstance(given, Awaited)
        self._names, self._pattern = _read(given)
        self._seen_version = -1
        self._awaits = self._is_patient  # for what was not there when the metadata changed last
        self._listed_at = -float("inf")
        self._read: set[str] = set()  # of those that match a pattern
        self._told: set[str] = set()  # of those that are left out

    def __str__(self) -> str:
        return self._pattern.pattern if self._pattern is not None else ",".join(self._names)

    def __bool__(self) -> bool:
        return bool(self._names) or self._pattern is not None

    def look_up(self) -> None:
        """Have the topics known. Raises UnknownTopicError for a name that is no topic's, unless it is awaited."""
        if self._pattern is not None:
            self._cluster.update()
            self._listed_at = self._handler.monotonic()
        if self._is_patient:
            look_for(self._cluster, self._names)
            return
        for name in self._names:
            self._cluster.wait_for_topic(name)

    def missing(self) -> set[str]:
        """Names of topics that are awaited."""
        return {name for name in self._names if self._cluster.metadata.topic(name) is None} if self._is_patient else set()

    def news(self) -> int | None:
        """Is there anything that was not there the last time? Then a number, for took_up() when that is done. Topics of a pattern are looked for every metadata_max_age_ms, those that are
        awaited about once a second."""
        metadata, now = self._cluster.metadata, self._handler.monotonic()
        if self._awaits or (self._is_patient and metadata.version != self._seen_version):
            missing = self.missing()
            self._awaits = bool(missing)
            metadata.add_topics(missing)
        if self._pattern is not None and now - self._listed_at > self._cluster.config.metadata_max_age_ms / 1000:
            self._listed_at = now
            metadata.want_everything()
        return metadata.version if metadata.version != self._seen_version else None

    def took_up(self, news: int) -> None:
        """All that came up to these news is done."""
        self._seen_version = news

    @property
    def is_behind(self) -> bool:
        """Are there metadata that took_up() was not told of yet?"""
        return self._cluster.metadata.version != self._seen_version

    def patience_s(self) -> float:
        """When to ask news() at the latest, though nobody heard of new metadata: it looks for what is not known yet."""
        if self._awaits:
            return AWAITED_S
        if self._pattern is None:
            return float("inf")
        return max(SOONEST_S, self._listed_at + self._cluster.config.metadata_max_age_ms / 1000 - self._handler.monotonic())

    def topics(self) -> list[str]:
        """All names, or the topics that match now; internal ones do if the client shows them."""
        if self._pattern is None:
            return list(self._names)
        metadata = self._cluster.metadata
        known = {name: info for name, info in list(metadata.topics.items()) if self._pattern.fullmatch(name)}
        read = {name for name, info in known.items() if self._cluster.topics.shows(info) and metadata.topic(name) is not None}
        self._tell_of_left_out(read, known)
        return sorted(read)

    def _tell_of_left_out(self, read: set[str], known: Mapping[str, TopicInfo]) -> None:
        """Log once each topic that is denied, or that was read and is gone. Kafka's own brokers leave a denied one out of a list of all topics."""
        denied = {name for name, info in known.items() if isinstance(info.error, TopicAuthorizationFailed) and name not in KNOWN_INTERNAL}
        passing = {name for name in self._read - read if name in known and not _is_refused(known[name].error)}
        left_out = denied | (self._read - read - passing)
        for name in sorted(left_out - self._told):
            why = (
                f"{known[name].error} (the right that is missing is Describe on it)"
                if name in denied
                else "it was read before; it was deleted, or this client may not describe it any more (an ACL for Describe)"
            )
            log.warning("topic %s, which the pattern %s matches, is left out: %s", name, self, why)
        self._read, self._told = read | passing, (self._told | left_out) - read

    def partitions(self) -> list[TopicPartition]:
        """Of those of the topics that are known."""
        metadata = self._cluster.metadata
        known = [(name, metadata.topic(name)) for name in self.topics()]
        return [TopicPartition(name, p) for name, info in known if info is not None for p in sorted(info.partitions)]

    def counts(self) -> dict[str, int]:
        """How many partitions each known topic has."""
        metadata = self._cluster.metadata
        return {name: len(info.partitions) for name in self.topics() if (info := metadata.topic(name)) is not None}


def _is_refused(error: KafkaException | None) -> bool:
    return error is not None and not error.retriable


def look_for(cluster: Cluster, names: Iterable[str]) -> None:
    """Have those of the topics known that are there, or are made because somebody asks for them; the log tells of the others."""
    for error in cluster.look_for_topics(names, PATIENCE_S if cluster.config.auto_create_topics else 0.0):
        log.warning("%s; it is read as soon as it is there", error)


def _read(given: Any) -> tuple[list[str], re.Pattern[str] | None]:
    if given is None:
        return [], None
    if isinstance(given, re.Pattern):
        if not isinstance(given.pattern, str):
            raise ConfigurationError(f"topics={given!r}: must be a pattern of text, as re.compile('logs-.*')")
        return [], given
    names = [given] if isinstance(given, (str, bytes)) else list(given) if isinstance(given, Iterable) else None
    if not names:
        raise ConfigurationError(f"topics={given!r}: must be a name, a list of names, or a compiled pattern")
    return list(dict.fromkeys(check_topic_name(name) for name in names)), None
