"""What the driver asks the cluster before a read: which partitions there are, and their offsets."""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from gkafka.client import KafkaClient
from gkafka.exceptions import ConfigurationError, KafkaException, KafkaTimeoutError, NoBrokersAvailableError, UnknownTopicOrPartition
from gkafka.spark.connections import connected
from gkafka.spark.offsets import TopicPartition, ranges_between, resolve
from gkafka.spark.options import Assign, SourceOptions, Subscribe
from gkafka.spark.planner import OffsetRange, split

__all__ = ["plan"]

log = logging.getLogger(__name__)

T = TypeVar("T")


def plan(options: SourceOptions) -> list[OffsetRange]:
    """The Spark tasks of a batch read, with offsets that are fixed from here on. Raises KafkaException."""
    for warning in options.warnings:
        log.warning("%s", warning)
    with connected(options.kafka) as client:
        ranges = _tried(client, options, functools.partial(_ranges, client, options))
    tasks = split(ranges, options.min_partitions, options.max_records_per_partition)
    log.info("%d tasks for %d partitions: %s", len(tasks), len(ranges), ", ".join(map(str, tasks[:100])))
    return tasks


def _ranges(client: KafkaClient, options: SourceOptions) -> list[OffsetRange]:
    partitions = _partitions(client, options)
    list_offsets = functools.partial(client.list_offsets, isolation=options.kafka.isolation)
    start = resolve(options.start, partitions, list_offsets, starting=True)
    end = resolve(options.end, partitions, list_offsets, starting=False)
    return ranges_between(start, end, fail_on_data_loss=options.fail_on_data_loss)


def _tried(client: KafkaClient, options: SourceOptions, attempt: Callable[[], T]) -> T:
    for tries in range(1, options.offset_tries + 1):
        try:
            return attempt()
        except (KafkaTimeoutError, NoBrokersAvailableError, UnknownTopicOrPartition):
            raise  # the client has tried for as long as that may heal
        except KafkaException as exc:
            if not exc.retriable or tries == options.offset_tries:
                raise
            log.warning("try %d of %d to learn partitions and offsets: %s", tries, options.offset_tries, exc)
            client.handler.sleep(options.offset_retry_ms / 1000)
    raise AssertionError("offset_tries is 1 or more")


# -- which partitions --------------------------------------------------------------------------------------------------
def _partitions(client: KafkaClient, options: SourceOptions) -> list[TopicPartition]:
    client.update_cluster()  # this client may have been idle while partitions were added
    topics = options.topics
    if isinstance(topics, Assign):
        return _assigned(client, topics.partitions)
    names: Iterable[str] = topics.topics if isinstance(topics, Subscribe) else _matching(client, topics.pattern)
    return [(topic, partition) for topic in names for partition in client.partitions(topic)]


def _matching(client: KafkaClient, pattern: str) -> list[str]:
    """As the JVM connector does it: the pattern may match anywhere in the name; internal topics are left out."""
    return [name for name in client.topics if re.search(pattern, name)]


def _assigned(client: KafkaClient, wanted: Sequence[TopicPartition]) -> list[TopicPartition]:
    for topic in dict.fromkeys(topic for topic, _ in wanted):
        known = client.partitions(topic)
        missing = sorted(partition for name, partition in wanted if name == topic and partition not in known)
        if missing:
            raise ConfigurationError(f"assign: topic {topic!r} has the partitions {known}, not {missing}")
    return list(wanted)
