"""The options of format("gkafka"): the JVM connector's names, checks and words, and kafka.* properties as gkafka's own options.

Each option is one row of OPTIONS; docs/spark.md's table is made from it. Nothing here imports pyspark.
Source: spark-sql-kafka-0-10, KafkaSourceProvider (4.2).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from gkafka.exceptions import ConfigurationError
from gkafka.spark import offsets
from gkafka.spark.kafkaproperties import KafkaProperties, translate
from gkafka.spark.offsets import Earliest, Latest, Limit, TopicPartition

__all__ = ["OPTIONS", "Assign", "SourceOptions", "Subscribe", "SubscribePattern", "options_table", "parse"]

T = TypeVar("T")


class Option(NamedTuple):
    """One option. name: as users write it; Spark hands it over in lower case."""

    name: str
    default: str
    doc: str


def _rows() -> Iterator[Option]:
    yield Option("kafka.bootstrap.servers", "", "host:port of one or more brokers, comma separated; required")
    yield Option("subscribe", "", "topics, comma separated; one of subscribe, subscribePattern and assign is required")
    yield Option("subscribePattern", "", "topics whose name holds a match of this regular expression (Python's `re`)")
    yield Option("assign", "", f"partitions, as JSON: `{offsets.PARTITIONS_EXAMPLE}`")
    yield Option(
        "startingOffsets", "earliest", f"`earliest`, or JSON that names every partition, -2 for its beginning: `{offsets.OFFSETS_EXAMPLE}`"
    )
    yield Option("endingOffsets", "latest", "`latest`, or such a JSON, -1 for the end of a partition; an end itself is not read")
    yield Option("startingTimestamp", "", "ms since the epoch: begin at the first record that is as new; goes before the next two")
    yield Option("endingTimestamp", "", "ms since the epoch: end before the first record that is as new, or at the end if there is none")
    yield Option(
        "startingOffsetsByTimestamp",
        "",
        f"the same for each partition, as JSON: `{offsets.TIMESTAMPS_EXAMPLE}`; goes before startingOffsets",
    )
    yield Option("endingOffsetsByTimestamp", "", "the same for the end; goes before endingOffsets")
    yield Option(
        "startingOffsetsByTimestampStrategy",
        "error",
        "where no record is as new as a starting timestamp: `error`, or begin at the `latest`",
    )
    yield Option("failOnDataLoss", "true", "offsets that are gone are an error; `false`: a warning, and reading goes on where records are")
    yield Option("minPartitions", "", "about this many Spark tasks: large partitions are cut; unset: one task for each partition")
    yield Option("maxRecordsPerPartition", "", "no Spark task reads more offsets than this")
    yield Option("includeHeaders", "false", "a column `headers`")
    yield Option("kafkaConsumer.pollTimeoutMs", "120000", "a task that gets no record for so long fails")
    yield Option("fetchOffset.numRetries", "3", "tries of the driver to learn partitions and offsets")
    yield Option("fetchOffset.retryIntervalMs", "1000", "pause between them")
    yield Option("groupIdPrefix", "", "accepted for the JVM connector's sake: gkafka reads without a consumer group")
    yield Option("batchRows", "10000", "rows of an Arrow batch that is handed to Spark, about; gkafka's own")
    yield Option("batchBytes", "4194304", "bytes of keys and values in it, about: what comes first counts; gkafka's own")


OPTIONS = {option.name.lower(): option for option in _rows()}
STREAMING_ONLY = {name.lower(): name for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")}
STRATEGIES = ("subscribe", "subscribepattern", "assign")


@dataclass(frozen=True)
class Subscribe:
    """All partitions of these topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True)
class SubscribePattern:
    """All partitions of the topics whose name holds a match."""

    pattern: str


@dataclass(frozen=True)
class Assign:
    """These partitions."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True)
class SourceOptions:
    """What one read does. warnings: what the user should hear, once, from the driver."""

    topics: Subscribe | SubscribePattern | Assign
    start: Limit
    end: Limit
    fail_on_data_loss: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    include_headers: bool
    poll_timeout_ms: int
    offset_tries: int
    offset_retry_ms: int
    batch_rows: int
    batch_bytes: int
    kafka: KafkaProperties
    warnings: tuple[str, ...]


def parse(options: Mapping[str, str]) -> SourceOptions:
    """The options of a batch read, checked. Keys in any case. Raises ConfigurationError naming the option, its value and what it may be."""
    given = {key.lower(): str(value) for key, value in options.items()}
    _check_names(given)
    start = _limit(given, "starting", Earliest())
    end = _limit(given, "ending", Latest())
    offsets.check_limits(start, end)
    topics = _topics(given)
    min_partitions = _positive(given, "minPartitions")
    max_records = _positive(given, "maxRecordsPerPartition")
    properties = translate({key[6:]: value for key, value in given.items() if key.startswith("kafka.")})
    return SourceOptions(
        topics=topics,
        start=start,
        end=end,
        fail_on_data_loss=_boolean(given, "failOnDataLoss"),
        min_partitions=min_partitions,
        max_records_per_partition=max_records,
        include_headers=_boolean(given, "includeHeaders"),
        poll_timeout_ms=_whole(given, "kafkaConsumer.pollTimeoutMs", 1),
        offset_tries=_whole(given, "fetchOffset.numRetries", 1),
        offset_retry_ms=_whole(given, "fetchOffset.retryIntervalMs", 0),
        batch_rows=_whole(given, "batchRows", 1),
        batch_bytes=_whole(given, "batchBytes", 1),
        kafka=properties,
        warnings=(*_batch_warnings(given, properties), *properties.warnings),
    )


def options_table() -> str:
    """The Markdown table of docs/spark.md."""
    rows = [f"| `{o.name}` | {f'`{o.default}`' if o.default else ''} | {o.doc.replace('|', chr(92) + '|')} |" for o in OPTIONS.values()]
    return "\n".join(["| option | default | meaning |", "|---|---|---|", *rows])


# -- names -------------------------------------------------------------------------------------------------------------
def _check_names(given: Mapping[str, str]) -> None:
    for key in given:
        if key not in OPTIONS and key not in STREAMING_ONLY and not key.startswith("kafka."):
            raise ConfigurationError(f"unknown option {key!r} for format('gkafka'){_near(key)}")


def _near(key: str) -> str:
    if f"kafka.{key}" in OPTIONS:
        return f"; did you mean {f'kafka.{key}'!r}?"
    near = difflib.get_close_matches(key, [*OPTIONS, *STREAMING_ONLY], n=1, cutoff=0.7)
    names = {**{k: o.name for k, o in OPTIONS.items()}, **STREAMING_ONLY}
    return f"; did you mean {names[near[0]]!r}?" if near else "; docs/spark.md lists them"


def _batch_warnings(given: Mapping[str, str], properties: KafkaProperties) -> Iterator[str]:
    for key, name in STREAMING_ONLY.items():
        if key in given:
            yield f"{name} option ignored in batch queries"
    if "minoffsetspertrigger" in given and "maxoffsetspertrigger" in given:
        low, high = (_number(STREAMING_ONLY[key], given[key], 0) for key in ("minoffsetspertrigger", "maxoffsetspertrigger"))
        if low > high:
            raise ConfigurationError(f"The value of minOffsetPerTrigger({low}) is higher than the maxOffsetsPerTrigger({high}).")
    if "groupidprefix" in given:
        reason = "option kafka.group.id has been set" if properties.group_id is not None else "gkafka reads without a consumer group"
        yield f"Option groupIdPrefix will be ignored as {reason}"


# -- values ------------------------------------------------------------------------------------------------------------
def _limit(given: Mapping[str, str], which: str, default: Limit) -> Limit:
    """The three ways to say where a read begins (which="starting") or ends, in the order in which they count."""
    latest = _no_match_latest(given)
    forms: list[tuple[str, Callable[[str, str], Limit]]] = [
        (f"{which}Timestamp", lambda name, text: offsets.AtTimestamp(offsets.parse_timestamp(name, text), latest)),
        (f"{which}OffsetsByTimestamp", lambda name, text: offsets.AtTimestamps(offsets.parse_timestamps(name, text), latest)),
        (f"{which}Offsets", _offsets_limit),
    ]
    for name, made in forms:
        if (text := given.get(name.lower())) is not None:
            return made(name, text.strip())
    return default


def _offsets_limit(name: str, text: str) -> Limit:
    words: dict[str, Limit] = {"earliest": Earliest(), "latest": Latest()}
    word = words.get(text.lower())
    return word if word is not None else offsets.Specific(offsets.parse_offsets(name, text))


def _no_match_latest(given: Mapping[str, str]) -> bool:
    text = given.get("startingoffsetsbytimestampstrategy", "error")
    if text.lower() not in ("error", "latest"):
        raise ConfigurationError(f"startingOffsetsByTimestampStrategy={text!r}: must be 'error' or 'latest'")
    return text.lower() == "latest"


def _topics(given: Mapping[str, str]) -> Subscribe | SubscribePattern | Assign:
    named = [key for key in STRATEGIES if key in given]
    if len(named) != 1:
        start = "Only one of the following options can" if named else "One of the following options must"
        raise ConfigurationError(f"{start} be specified for Kafka source: {', '.join(STRATEGIES)}. See the docs for more details.")
    value = given[named[0]]
    if named[0] == "subscribe":
        topics = tuple(dict.fromkeys(name for part in value.split(",") if (name := part.strip())))
        if not topics:
            raise ConfigurationError(f"No topics to subscribe to as specified value for option 'subscribe' is '{value}'")
        return Subscribe(topics)
    if named[0] == "assign":
        if not value.strip().startswith("{"):
            raise ConfigurationError(
                f"No topicpartitions to assign as specified value for option 'assign' is '{value}'. Expected e.g. {offsets.PARTITIONS_EXAMPLE}"
            )
        return Assign(tuple(dict.fromkeys(offsets.parse_partitions("assign", value))))
    return SubscribePattern(_pattern(value))


def _pattern(value: str) -> str:
    pattern = value.strip()
    if not pattern:
        raise ConfigurationError(f"Pattern to subscribe is empty as specified value for option 'subscribePattern' is '{value}'")
    try:
        re.compile(pattern)
    except re.error as exc:
        raise ConfigurationError(f"subscribePattern={pattern!r}: not a regular expression of Python's re module: {exc}") from exc
    return pattern


def _boolean(given: Mapping[str, str], name: str) -> bool:
    text = given.get(name.lower(), OPTIONS[name.lower()].default)
    if text.lower() not in ("true", "false"):
        raise ConfigurationError(f"{name}={text!r}: must be 'true' or 'false'")
    return text.lower() == "true"


def _positive(given: Mapping[str, str], name: str) -> int | None:
    if name.lower() not in given:
        return None
    value = _number(name, given[name.lower()], None)
    if value <= 0:
        raise ConfigurationError(f"{name} must be positive: {value} was given")
    return value


def _whole(given: Mapping[str, str], name: str, low: int) -> int:
    return _number(name, given.get(name.lower(), OPTIONS[name.lower()].default), low)


def _number(name: str, text: str, low: int | None) -> int:
    try:
        value = offsets.whole_number(text)
    except ValueError:
        raise ConfigurationError(f"{name}={text!r}: must be a whole number") from None
    if low is not None and value < low:
        raise ConfigurationError(f"{name}={text!r}: must be {low} or more")
    if value >= 1 << 63:
        raise ConfigurationError(f"{name}={text!r}: must be less than 2**63")
    return value
