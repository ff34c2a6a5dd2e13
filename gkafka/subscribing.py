"""What a consumer was given as its topics: names, or a pattern that topics match, now or later."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from gkafka.checks import check_topic_name
from gkafka.common import TopicPartition
from gkafka.exceptions import ConfigurationError
from gkafka.logs import get_logger

if TYPE_CHECKING:
    from gkafka.cluster import Cluster
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
        self._matched: set[str] = set()

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

    def has_news(self) -> bool:
        """Is there anything to be told that was not there the last time? Topics of a pattern are looked for every metadata_max_age_ms, those that are
        awaited about once a second."""
        metadata, now = self._cluster.metadata, self._handler.monotonic()
        if self._awaits or (self._is_patient and metadata.version != self._seen_version):
            missing = self.missing()
            self._awaits = bool(missing)
            metadata.add_topics(missing)
        if self._pattern is not None and now - self._listed_at > self._cluster.config.metadata_max_age_ms / 1000:
            self._listed_at = now
            metadata.want_everything()
        seen, self._seen_version = self._seen_version, metadata.version
        return seen != self._seen_version

    @property
    def is_behind(self) -> bool:
        """Are there metadata that has_news() was not asked about yet?"""
        return self._cluster.metadata.version != self._seen_version

    def patience_s(self) -> float:
        """When to ask has_news() at the latest, though nobody heard of new metadata: it looks for what is not known yet."""
        if self._awaits:
            return AWAITED_S
        if self._pattern is None:
            return float("inf")
        return max(SOONEST_S, self._listed_at + self._cluster.config.metadata_max_age_ms / 1000 - self._handler.monotonic())

    def look_again(self) -> None:
        """What has_news() told of was not taken up: the caller was interrupted."""
        self._seen_version = -1

    def topics(self) -> list[str]:
        """All names, or the topics that match now; internal ones do if the client shows them."""
        if self._pattern is None:
            return list(self._names)
        metadata = self._cluster.metadata
        usable = {
            name for name, info in list(metadata.topics.items()) if self._cluster.topics.shows(info) and metadata.topic(name) is not None
        }
        matching = {name for name in usable if self._pattern.fullmatch(name)}
        self._tell_of_lost(matching)
        return sorted(matching)

    def _tell_of_lost(self, matching: set[str]) -> None:
        """The log tells once of a topic that is not read any more; one that this client never might describe is in no list."""
        known = self._cluster.metadata.topics
        passing = {name for name in self._matched - matching if name in known and not _is_refused(known[name].error)}
        lost, self._matched = self._matched - matching - passing, matching | passing
        for name in sorted(lost):
            log.warning(
                "topic %s, which the pattern %s matches, is read no more: it was deleted, or this client may not describe it (an ACL for Describe)",
                name,
                self,
            )

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
