"""What the driver asks the cluster: which partitions there are, and their offsets. And the plan of a batch read."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar
from uuid import UUID

from gkafka.admin.requests import metadata_request
from gkafka.client import KafkaClient
from gkafka.common import OffsetType
from gkafka.errortexts import missing_topic
from gkafka.exceptions import (
    ConfigurationError,
    KafkaException,
    KafkaTimeoutError,
    TopicAuthorizationFailed,
    UnknownTopicError,
    UnknownTopicOrPartition,
    error_for,
)
from gkafka.logs import get_logger
from gkafka.spark.connections import connected
from gkafka.spark.offsets import Limit, Offsets, TopicPartition, ranges_between, resolve
from gkafka.spark.options import Assign, SourceOptions, Subscribe, SubscribePattern
from gkafka.spark.planner import Group, OffsetRange, grouped, one_each, split, task_count
from gkafka.spark.pushed import Comparison, cut
from gkafka.topicdict import KNOWN_INTERNAL
from gkafka.wire.metadata import MetadataResponse, MetadataResponseTopic

__all__ = ["Asked", "Start", "divided", "plan"]

log = get_logger(__name__)

T = TypeVar("T")
Named = str | TopicPartition


def plan(options: SourceOptions, comparisons: Sequence[Comparison] = ()) -> tuple[list[Group], dict[str, UUID]]:
    """The Spark tasks of a batch read, with offsets that are fixed from here on, and the ids of the topics. comparisons: that hold of all rows that count.

    Raises KafkaException.
    """
    for warning in options.warnings:
        log.warning("%s", warning)
    asked = Asked(options)
    start, end = asked.both_ends()
    ranges = ranges_between(start, end, fail_on_data_loss=options.fail_on_data_loss)
    if comparisons:
        ranges = cut(ranges, comparisons, asked.first_since)
    count = None if options.tasks is None else task_count(sum(r.size for r in ranges), options.tasks)
    tasks = divided(options, ranges, count)
    log.info("%d tasks for %d partitions: %s", len(tasks), len(ranges), "; ".join(", ".join(map(str, task[:100])) for task in tasks[:100]))
    return tasks, asked.topic_ids


def divided(options: SourceOptions, ranges: Iterable[OffsetRange], count: int | None) -> list[Group]:
    """The ranges as tasks: about so many, None for one each; those that minPartitions asks for at least.

    A task has at most one piece of a partition: one that met an error would come behind the next. (Two that maxRecordsPerPartition has cut pass it together.)
    """
    least, most = options.min_partitions or 1, options.max_records_per_partition
    whole = split(ranges, None, most)
    pieces = split(whole, least)
    if count is None:
        return one_each(pieces)
    return grouped(pieces, len(pieces) if least > len(whole) else max(count, least), most)


class Start(NamedTuple):
    """Where a stream without a checkpoint begins. ends: the partitions whose start is where they end now, and so elsewhere a moment later."""

    offsets: Offsets
    ends: frozenset[TopicPartition]


class Asked:
    """The cluster's answers for one read. Each call is tried again as fetchOffset.numRetries says, and raises KafkaException."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._gone: frozenset[Named] = frozenset()  # what the options name and is certain not to be there
        self.topic_ids: dict[str, UUID] = {}
        """Of the topics that were found last, where brokers know ids."""

    def both_ends(self) -> tuple[Offsets, Offsets]:
        """Where a batch read begins and ends."""

        def attempt(client: KafkaClient) -> tuple[Offsets, Offsets]:
            partitions = self._found(client)
            start = self._resolve(client, self._options.start, partitions, starting=True)
            return start, self._resolve(client, self._options.end, partitions, starting=False)

        return self._tried("partitions and offsets", attempt)

    def start(self) -> Start:
        """Where a stream without a checkpoint begins."""

        def attempt(client: KafkaClient) -> Start:
            ends: set[TopicPartition] = set()

            def list_offsets(wanted: Mapping[TopicPartition, int]) -> Offsets:
                ends.update(at for at, timestamp in wanted.items() if timestamp == OffsetType.LATEST)
                return self._list_offsets(client, wanted)

            found = resolve(self._options.start, self._found(client), list_offsets, starting=True)
            return Start(found, frozenset(ends))

        return self._tried("the first offsets", attempt)

    def partitions(self, *, missing_ok: bool) -> list[TopicPartition]:
        """Those that the options name. missing_ok: leave out what is not there (any more), once that is certain; else it is an error."""
        if missing_ok:
            found = self._tried("partitions", lambda client: self._found(client, missing_ok=True))
            missing = _missing(self._options.topics, found)
            if missing <= self._gone:  # nothing, but for what has been looked for in vain before
                self._gone = missing
                return found
        try:
            return self._tried("partitions", lambda client: self._found(client))
        except (UnknownTopicOrPartition, MissingPartitionsError):
            if not missing_ok:
                raise
        found = self._tried("partitions", lambda client: self._found(client, missing_ok=True))
        self._gone = _missing(self._options.topics, found)
        return found

    def latest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """The ends of these, those of committed transactions where they alone are read."""
        wanted = dict.fromkeys(partitions, int(OffsetType.LATEST))
        return self._tried("the latest offsets", lambda client: self._list_offsets(client, wanted)) if wanted else {}

    def first_since(self, wanted: Mapping[TopicPartition, int]) -> Offsets:
        """For each partition the offset of the first record with this timestamp (ms) or a later one, -1 where there is none."""
        return self._tried("offsets by timestamp", lambda client: self._list_offsets(client, wanted))

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """The beginnings of those of them that are there."""
        wanted = set(partitions)
        if not wanted:
            return {}
        there = wanted.intersection(self.partitions(missing_ok=True))
        return self._tried(
            "the earliest offsets", lambda client: self._list_offsets(client, dict.fromkeys(there, int(OffsetType.EARLIEST)))
        )

    # -- with a client -----------------------------------------------------------------------------------------------------
    def _found(self, client: KafkaClient, *, missing_ok: bool = False) -> list[TopicPartition]:
        topics = self._options.topics
        self.topic_ids, partitions = {}, []
        for described in _described(client, _names(topics)):
            if _matches(described, topics.pattern) if isinstance(topics, SubscribePattern) else _is_there(client, described, missing_ok):
                partitions += _all_of(described)
                if described.topic_id.int:
                    self.topic_ids[described.name or ""] = described.topic_id
        return _assigned(topics.partitions, partitions, missing_ok) if isinstance(topics, Assign) else partitions

    def _resolve(self, client: KafkaClient, limit: Limit, partitions: Collection[TopicPartition], *, starting: bool) -> Offsets:
        return resolve(limit, partitions, lambda wanted: self._list_offsets(client, wanted), starting=starting)

    def _list_offsets(self, client: KafkaClient, wanted: Mapping[TopicPartition, int]) -> Offsets:
        return client.list_offsets(wanted, isolation=self._options.kafka.isolation)

    def _tried(self, what: str, attempt: Callable[[KafkaClient], T]) -> T:
        options = self._options
        with connected(options.kafka) as client:
            for tries in range(1, options.offset_tries + 1):
                try:
                    return attempt(client)
                except KafkaTimeoutError:
                    raise  # the client has tried for as long as that may heal
                except KafkaException as exc:
                    if tries == options.offset_tries or not (
                        exc.retriable or isinstance(exc, (UnknownTopicOrPartition, MissingPartitionsError))
                    ):
                        raise
                    log.warning("try %d of %d to learn %s: %s", tries, options.offset_tries, what, exc)
                    client.handler.sleep(options.offset_retry_ms / 1000)
        raise AssertionError("offset_tries is 1 or more")


class MissingPartitionsError(ConfigurationError):
    """`assign` names partitions that are not there."""


# -- which partitions --------------------------------------------------------------------------------------------------
def _names(topics: Subscribe | SubscribePattern | Assign) -> Iterable[str] | None:
    """None: all are looked at."""
    if isinstance(topics, SubscribePattern):
        return None
    return topics.topics if isinstance(topics, Subscribe) else dict.fromkeys(topic for topic, _ in topics.partitions)


def _missing(topics: Subscribe | SubscribePattern | Assign, found: Iterable[TopicPartition]) -> frozenset[Named]:
    """Topics, or partitions, that are named and were not found."""
    if isinstance(topics, SubscribePattern):
        return frozenset()
    if isinstance(topics, Subscribe):
        return frozenset(topics.topics).difference(topic for topic, _ in found)
    return frozenset(topics.partitions).difference(found)


def _described(client: KafkaClient, names: Iterable[str] | None) -> list[MetadataResponseTopic]:
    """What a broker, any, knows of these topics, of all for None. Asked anew: partitions may have been added since the client last looked."""
    cluster = client.cluster
    response: MetadataResponse
    response, _ = cluster.call_any(metadata_request(names), cluster._deadline(None))
    return response.topics


def _all_of(described: MetadataResponseTopic) -> list[TopicPartition]:
    return [(described.name or "", number) for number in sorted(p.partition_index for p in described.partitions)]


def _matches(described: MetadataResponseTopic, pattern: str) -> bool:
    """As the JVM connector does it: the pattern may match anywhere in the name; internal topics are left out."""
    name = described.name or ""
    if described.is_internal or name in KNOWN_INTERNAL or re.search(pattern, name) is None:
        return False
    error = error_for(described.error_code, topic=name, api="Metadata")
    if error is None:
        return True
    if not isinstance(error, UnknownTopicOrPartition):  # that one is just being deleted
        right = f" (the right that is missing is Describe on topic {name!r})" if isinstance(error, TopicAuthorizationFailed) else ""
        _warn(f"subscribePattern: topic {name!r} matches and is left out: {error}{right}")
    return False


@functools.cache
def _warn(text: str) -> None:
    """Once in a process: a stream looks at all topics for each batch."""
    log.warning("%s", text)


def _is_there(client: KafkaClient, described: MetadataResponseTopic, missing_ok: bool) -> bool:
    error = error_for(described.error_code, topic=described.name, api="Metadata")
    if isinstance(error, UnknownTopicOrPartition):
        if missing_ok:
            return False
        name = described.name or ""
        text = f"topic {name!r} does not exist and a read does not create it: {missing_topic(name)}"
        raise UnknownTopicError(text, topic=described.name, api="Metadata")
    if error is not None:
        raise error
    return True


def _assigned(wanted: Sequence[TopicPartition], found: Collection[TopicPartition], missing_ok: bool) -> list[TopicPartition]:
    for topic in dict.fromkeys(topic for topic, _ in wanted):
        known = [partition for name, partition in found if name == topic]
        missing = sorted(partition for name, partition in wanted if name == topic and partition not in known)
        if missing and not missing_ok:
            raise MissingPartitionsError(f"assign: topic {topic!r} has the partitions {known}, not {missing}")
    return [at for at in wanted if at in found]
