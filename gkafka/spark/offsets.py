"""Where a read begins and ends: the options' forms of it, and the numbers that a broker's answers make of them.

The texts of the errors hold the JVM connector's own words, because users search for those. Nothing here imports pyspark.
Source: spark-sql-kafka-0-10, KafkaOffsetReaderAdmin, JsonUtils, kafka-error-conditions.json.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gkafka.common import OffsetType
from gkafka.exceptions import ConfigurationError, KafkaException
from gkafka.logs import get_logger
from gkafka.spark.planner import MOST_TASKS, Group, OffsetRange
from gkafka.spark.values import whole_number

__all__ = [
    "AtTimestamp",
    "AtTimestamps",
    "DataLossError",
    "Earliest",
    "Latest",
    "Limit",
    "Offsets",
    "Specific",
    "TopicPartition",
    "check_limits",
    "from_spark",
    "moves_with_the_end",
    "name_list",
    "parse_offsets",
    "parse_partitions",
    "parse_timestamp",
    "parse_timestamps",
    "present_groups",
    "ranges_between",
    "resolve",
    "starts_of",
    "stream_ranges",
    "tasks_of",
    "to_spark",
]

log = get_logger(__name__)

TopicPartition = tuple[str, int]
Offsets = dict[TopicPartition, int]
ListOffsets = Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, int]]
MAX_LONG = (1 << 63) - 1

LONGEST_SHOWN = 1000
"""Characters of an option's value that its error shows."""
PARTITIONS_EXAMPLE = '{"topicA":[0,1],"topicB":[0,1]}'
OFFSETS_EXAMPLE = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
TIMESTAMPS_EXAMPLE = '{"topicA": {"0": 123456789, "1": 123456789}, "topicB": {"0": 123456789, "1": 123456789}}'

DATA_LOSS = (
    "Some data may have been lost because they are not available in Kafka any more; either the data was aged out by Kafka or the topic may "
    "have been deleted before all the data in the topic was processed. If you don't want your query to fail on such cases, set the source "
    "option failOnDataLoss to false. Reason: "
)


class DataLossError(KafkaException):
    """Offsets that were to be read are not there any more, and failOnDataLoss is true."""


# -- the forms of an option --------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Earliest:
    """The beginning of each partition."""


@dataclass(frozen=True)
class Latest:
    """The end of each partition when the read is planned."""


@dataclass(frozen=True)
class Specific:
    """An offset for each partition; -2 is its beginning, -1 its end."""

    offsets: Offsets


@dataclass(frozen=True)
class AtTimestamps:
    """For each partition, the first record with this timestamp (ms) or a later one. latest: the end if there is none."""

    timestamps: Offsets
    latest: bool


@dataclass(frozen=True)
class AtTimestamp:
    """The same with one timestamp for all partitions."""

    timestamp: int
    latest: bool


Limit = Earliest | Latest | Specific | AtTimestamps | AtTimestamp


def parse_partitions(option: str, text: str) -> list[TopicPartition]:
    """`{"topic":[0,1]}` as pairs. Raises ConfigurationError."""
    found = _json_object(option, text, PARTITIONS_EXAMPLE)
    if not all(isinstance(ids, list) and all(_is_long(i, 0, (1 << 31) - 1) for i in ids) for ids in found.values()):
        raise _not_like(option, text, PARTITIONS_EXAMPLE)
    return [(topic, partition) for topic, ids in found.items() for partition in ids]


def parse_offsets(option: str, text: str) -> Offsets:
    """`{"topic":{"0":23}}` as offsets by partition. Raises ConfigurationError."""
    return _numbers(option, text, OFFSETS_EXAMPLE, low=OffsetType.EARLIEST)


def parse_timestamps(option: str, text: str) -> Offsets:
    """`{"topic":{"0":1700000000000}}` as timestamps by partition. Raises ConfigurationError."""
    return _numbers(option, text, TIMESTAMPS_EXAMPLE, low=0)


def parse_timestamp(option: str, text: str) -> int:
    """One timestamp in milliseconds. Raises ConfigurationError."""
    try:
        value = whole_number(text)
    except ValueError:
        value = -1
    if not 0 <= value <= MAX_LONG:
        raise ConfigurationError(
            f"{option}={text!r}: Expected a single long value, got {text}; give milliseconds since the epoch, 0 or more"
        )
    return value


def _numbers(option: str, text: str, example: str, *, low: int) -> Offsets:
    numbers: Offsets = {}
    for topic, by_partition in _json_object(option, text, example).items():
        if not isinstance(by_partition, dict):
            raise _not_like(option, text, example)
        for partition, number in by_partition.items():
            if not (partition.isascii() and partition.isdecimal() and int(partition) < 1 << 31 and _is_long(number, low, MAX_LONG)):
                raise _not_like(option, text, example)
            if (topic, int(partition)) in numbers:
                raise ConfigurationError(f"{option}={text!r}: partition {int(partition)} of {topic!r} stands there twice")
            numbers[topic, int(partition)] = number
    return numbers


def _json_object(option: str, text: str, example: str) -> dict[str, Any]:
    try:
        found = json.loads(text, object_pairs_hook=_without_repeats)
    except _Repeated as exc:
        raise ConfigurationError(
            f"{option}={text!r}: the key {exc.args[0]!r} stands there twice; name each topic and partition once"
        ) from exc
    except (ValueError, RecursionError) as exc:
        raise _not_like(option, text, example) from exc
    if not isinstance(found, dict):
        raise _not_like(option, text, example)
    return found


class _Repeated(Exception):
    """A key that one JSON object holds twice; Python's json would silently keep the last."""


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _Repeated(key)
        found[key] = value
    return found


def _not_like(option: str, text: str, example: str) -> ConfigurationError:
    words = "'earliest', 'latest' or JSON; " if option in ("startingOffsets", "endingOffsets") else ""
    shown = text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."  # the hint stands between the two
    return ConfigurationError(f"{option}={shown!r}: must be {words or 'JSON; '}Expected e.g. {example}, got {shown}")


def _is_long(value: Any, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


# -- the offsets of a checkpoint -----------------------------------------------------------------------------------------
TASKS = "gkafka:tasks="
"""No topic can have such a name; and the JVM connector sees a topic without partitions, of which it makes nothing."""
STARTS = "gkafka:starts="
"""In front of offsets as JSON, in one such name."""


def to_spark(
    offsets: Mapping[TopicPartition, int], tasks: int | None = None, starts: Mapping[TopicPartition, int] | None = None
) -> dict[str, dict[str, int]]:
    """`{"topic": {"0": 23}}`, in order: what the JVM connector writes to a checkpoint, and Spark as JSON.

    tasks, starts: of the batch that ends there, beside its end, so that it is divided in the same way when it is run again, wherever and whenever that
    is. tasks: into how many it is divided. starts: where it begins in partitions of which the end before says nothing.
    """
    found: dict[str, dict[str, int]] = {} if tasks is None else {f"{TASKS}{tasks}": {}}
    if starts:
        found[STARTS + json.dumps(to_spark(starts), separators=(",", ":"))] = {}
    for topic, partition in sorted(offsets):
        found.setdefault(topic, {})[str(partition)] = offsets[topic, partition]
    return found


def from_spark(found: Any) -> Offsets:
    """The reverse. Raises ConfigurationError where a checkpoint holds something else."""
    return _from_text(json.dumps(found))


def _from_text(text: str) -> Offsets:
    offsets = parse_offsets("an offset in the checkpoint", text)
    for at, offset in offsets.items():
        if offset < 0:
            raise ConfigurationError(
                f"the checkpoint holds offset {offset} for {_name(at)}, which no query writes: it was edited, or is damaged; put a whole one in its place, or "
                "begin with a new checkpointLocation"
            )
    return offsets


def tasks_of(found: Mapping[str, Any]) -> int | None:
    """The number that to_spark() was given; None where there is none, as in a checkpoint of the JVM connector. Raises ConfigurationError."""
    told = [name.removeprefix(TASKS) for name in found if name.startswith(TASKS)]
    if not told:
        return None
    if len(told) > 1 or not (told[0].isascii() and told[0].isdecimal() and 0 < int(told[0]) <= MOST_TASKS):
        raise ConfigurationError(
            f"the checkpoint says {', '.join(repr(TASKS + number) for number in told)}, which no query writes: it was edited, is damaged, or is of a newer gkafka "
            "that divides a batch otherwise; put a whole one in its place, go on with that gkafka, or begin with a new checkpointLocation"
        )
    return int(told[0])


def starts_of(found: Mapping[str, Any]) -> Offsets:
    """The starts that to_spark() was given; {} where there are none, as in most batches. Raises ConfigurationError."""
    told = [name.removeprefix(STARTS) for name in found if name.startswith(STARTS)]
    return {at: offset for text in told for at, offset in _from_text(text).items()}


def moves_with_the_end(start: Limit) -> bool:
    """Does it mean another offset each time it is resolved, because it looks at the end of a partition?"""
    if isinstance(start, Specific):
        return OffsetType.LATEST in start.offsets.values()
    return isinstance(start, Latest) or (isinstance(start, (AtTimestamp, AtTimestamps)) and start.latest)


# -- checks that need no broker ----------------------------------------------------------------------------------------
def check_limits(start: Limit, end: Limit) -> None:
    """What a batch read cannot do. Raises ConfigurationError with the JVM connector's words."""
    if isinstance(start, Latest):
        raise ConfigurationError("starting offset can't be latest for batch queries on Kafka")
    if isinstance(end, Earliest):
        raise ConfigurationError("ending offset can't be earliest for batch queries on Kafka")
    if isinstance(start, Specific):
        for at in (key for key, offset in start.offsets.items() if offset == OffsetType.LATEST):
            raise ConfigurationError(f"startingOffsets for {_name(at)} can't be latest for batch queries on Kafka")
    if isinstance(end, Specific):
        for at in (key for key, offset in end.offsets.items() if offset == OffsetType.EARLIEST):
            raise ConfigurationError(f"ending offset for {_name(at)} can't be earliest for batch queries on Kafka")
    if isinstance(start, Specific) and isinstance(end, Specific):
        _check_pair("offset", start.offsets, end.offsets)
    if isinstance(start, AtTimestamps) and isinstance(end, AtTimestamps):
        _check_pair("timestamp", start.timestamps, end.timestamps)


def _check_pair(kind: str, start: Offsets, end: Offsets) -> None:
    if start.keys() != end.keys():
        raise ConfigurationError(
            "The specified start offset and end offset should have the same topic-partitions. "
            f"Topic-partitions for start offset: {name_list(start)}, topic-partitions for end offset: {name_list(end)}."
        )
    for (topic, partition), first in start.items():
        last = end[topic, partition]
        if first > last and first >= 0 and last >= 0:
            raise ConfigurationError(
                f"The specified start {kind} {first} is greater than the end {kind} {last} for topic {topic} partition {partition}."
            )


# -- numbers from the broker -------------------------------------------------------------------------------------------
def resolve(limit: Limit, partitions: Iterable[TopicPartition], list_offsets: ListOffsets, *, starting: bool) -> Offsets:
    """An offset for each partition, none of them negative.

    list_offsets: timestamps (-2, -1 or ms) by partition -> offsets by partition, -1 where no record is that new.
    Raises ConfigurationError if the limit names other partitions than these, or no record has the timestamp and that is an error.
    """
    assigned = set(partitions)
    wanted = _wanted(limit, assigned, starting)
    offsets = {at: offset for at, offset in wanted.items() if isinstance(limit, Specific) and offset >= 0}
    asked = {at: timestamp for at, timestamp in wanted.items() if at not in offsets}
    if asked:
        offsets.update(list_offsets(asked))
    late = {at: asked[at] for at, offset in offsets.items() if offset < 0}
    if late:
        _check_no_match(limit, late, starting)
        offsets.update(list_offsets(dict.fromkeys(late, int(OffsetType.LATEST))))
    return offsets


def _wanted(limit: Limit, assigned: set[TopicPartition], starting: bool) -> Offsets:
    if isinstance(limit, Earliest):
        return dict.fromkeys(assigned, int(OffsetType.EARLIEST))
    if isinstance(limit, Latest):
        return dict.fromkeys(assigned, int(OffsetType.LATEST))
    if isinstance(limit, AtTimestamp):
        return dict.fromkeys(assigned, limit.timestamp)
    given = limit.offsets if isinstance(limit, Specific) else limit.timestamps
    if given.keys() != assigned:
        what = "start" if isinstance(limit, Specific) else f"timestamp based {'start' if starting else 'end'}"
        hint = "Use -1 for latest, -2 for earliest." if isinstance(limit, Specific) else ", or you didn't specify all the partitions."
        raise ConfigurationError(
            f"Partitions specified for Kafka {what} offsets don't match what are assigned. Maybe topic partitions are created or deleted "
            f"while the query is running{'. ' if isinstance(limit, Specific) else ''}{hint} "
            f"Specified: {name_list(given)} Assigned: {name_list(assigned)}"
        )
    return dict(given)


def _check_no_match(limit: Limit, late: Offsets, starting: bool) -> None:
    if starting and isinstance(limit, (AtTimestamp, AtTimestamps)) and not limit.latest:
        at, timestamp = min(late.items())
        raise ConfigurationError(
            f"No offset matched from request of topic-partition {_name(at)} and timestamp {timestamp}; "
            "startingOffsetsByTimestampStrategy='latest' would begin at the end of such a partition"
        )


def ranges_between(start: Offsets, end: Offsets, *, fail_on_data_loss: bool) -> list[OffsetRange]:
    """The range of each partition, by name. A partition that begins after its end is data loss: an error, or a warning and no range.

    Raises DataLossError.
    """
    ranges = []
    for topic, partition in sorted(start):
        first, last = start[topic, partition], end[topic, partition]
        if first <= last:
            ranges.append(OffsetRange(topic, partition, first, last))
            continue
        text = (
            f"The resolved start offset {first} is greater than the resolved end offset {last} for topic {topic} partition {partition}: "
            "check whether the start offset is set beyond the end offset or the latest available offset, "
            "and whether the topic was deleted and created again"
        )
        if fail_on_data_loss:
            raise DataLossError(text, topic=topic, partition=partition, offset=first)
        log.warning("%s. Nothing of it is read (failOnDataLoss is false)", text)
    return ranges


def stream_ranges(start: Offsets, end: Offsets, added: Offsets, *, fail_on_data_loss: bool) -> list[OffsetRange]:
    """The ranges of a stream's batch, by name. added: the first offsets of partitions that are in `end` alone, without those that are gone.

    What is lost is an error, or a warning and no range for it: partitions that are not in `end` any more, or gone before they were read, new ones
    that do not begin at 0, and partitions whose log ends before the start. Raises DataLossError in the JVM connector's words.
    """
    for text in _losses(start, end, added):
        report_loss(text, fail_on_data_loss=fail_on_data_loss)
    begin = {**start, **added}
    known = (
        OffsetRange(topic, partition, begin[topic, partition], end[topic, partition])
        for topic, partition in sorted(end.keys() & begin.keys())
    )
    return [r for r in known if r.size > 0]


def present_groups(groups: Iterable[Group], present: Iterable[TopicPartition], *, fail_on_data_loss: bool) -> list[Group]:
    """The same groups, some of them empty by now, with the ranges of partitions that are there. What was deleted since its end was found is lost, too.
    Raises DataLossError."""
    groups = list(groups)
    gone = {(r.topic, r.partition) for group in groups for r in group}.difference(present)
    if gone:
        report_loss(_deleted(gone), fail_on_data_loss=fail_on_data_loss)
    return [tuple(r for r in group if (r.topic, r.partition) not in gone) for group in groups]


def report_loss(text: str, *, fail_on_data_loss: bool) -> None:
    """Raises DataLossError, or warns."""
    if fail_on_data_loss:
        raise DataLossError(DATA_LOSS + text)
    log.warning("%s Some data may have been missed (failOnDataLoss is false)", text)


def _losses(start: Offsets, end: Offsets, added: Offsets) -> Iterator[str]:
    if unread := end.keys() - start.keys() - added.keys():
        yield f"Cannot find initial offsets for partitions {name_list(unread)}. They may have been deleted."
    for at in sorted(added):
        if added[at] != 0:
            yield f"Added partition {_name(at)} starts from {added[at]} instead of 0."
    if gone := start.keys() - end.keys():
        yield _deleted(gone)
    for at in sorted(end.keys() & start.keys()):
        if end[at] < start[at]:
            yield (
                f"Partition {_name(at)} offset was changed from {start[at]} to {end[at]}. This could either be a user error that the start offset "
                "is set too high and this is the first batch, or the kafka topic-partition is broken, and some data may have been missed."
            )


def _deleted(these: Iterable[TopicPartition]) -> str:
    """In the JVM connector's words, and what else it may be: a pattern finds nothing of a topic that the principal may not describe."""
    return (
        f"Partitions {name_list(these)} have been deleted, or the options do not name them any more, or the right to describe them is gone."
    )


def _name(at: TopicPartition) -> str:
    return f"{at[0]}-{at[1]}"


def name_list(these: Iterable[TopicPartition]) -> str:
    return ", ".join(map(_name, sorted(these)))
