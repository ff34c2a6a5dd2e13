"""The options of format("gkafka"): the JVM connector's names, checks and words, and kafka.* properties as gkafka's own options.

Each option is one row of OPTIONS; the table of `kafka-tools docs spark` is made from it. Nothing here imports pyspark.
Source: spark-sql-kafka-0-10, KafkaSourceProvider (4.2).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from gkafka.exceptions import ConfigurationError
from gkafka.spark import offsets, values
from gkafka.spark.hints import OF_WRITES
from gkafka.spark.kafkaproperties import PROPERTIES, KafkaProperties, translate
from gkafka.spark.offsets import Earliest, Latest, Limit, TopicPartition

__all__ = [
    "OPTIONS",
    "Assign",
    "SourceOptions",
    "StreamOptions",
    "Subscribe",
    "SubscribePattern",
    "options_table",
    "parse",
    "parse_either",
    "parse_stream",
]


DEFAULT_TASKS = 8
"""Where nobody has seen the session's parallelism: the process that plans has no session."""

LONGEST_PAUSE_MS = (1 << 31) - 1
"""24 days. Python cannot sleep for any length of time; the other times are only compared with a clock."""


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
        "startingOffsets",
        "",
        "`earliest` (the default of a batch), `latest` (that of a stream, and refused in a batch), or JSON that names every partition, "
        f"-2 for its beginning, -1 for its end: `{offsets.OFFSETS_EXAMPLE}`; a stream that goes on from a checkpoint begins there",
    )
    yield Option("endingOffsets", "latest", "batch only: `latest`, or such a JSON; an end itself is not read")
    yield Option("startingTimestamp", "", "ms since the epoch: begin at the first record that is as new; goes before the next two")
    yield Option(
        "endingTimestamp", "", "batch only: ms since the epoch: end before the first record that is as new, or at the end if there is none"
    )
    yield Option(
        "startingOffsetsByTimestamp",
        "",
        f"the same for each partition, as JSON: `{offsets.TIMESTAMPS_EXAMPLE}`; goes before startingOffsets",
    )
    yield Option("endingOffsetsByTimestamp", "", "batch only: the same for the end; goes before endingOffsets")
    yield Option(
        "startingOffsetsByTimestampStrategy",
        "error",
        "where no record is as new as a starting timestamp: `error`, or begin at the `latest`",
    )
    yield Option("failOnDataLoss", "true", "offsets that are gone are an error; `false`: a warning, and reading goes on where records are")
    yield Option(
        "tasks",
        "",
        "about how many Spark tasks a read or a micro-batch has, each with some partitions: fewer where there is little to read, more where there is much; "
        "`partitions`: one for each partition, as in the JVM connector; unset: the session's parallelism, as `register()` has seen it, else "
        f"{DEFAULT_TASKS}; gkafka's own",
    )
    yield Option("minPartitions", "", "at least about this many Spark tasks: large partitions are cut")
    yield Option("maxRecordsPerPartition", "", "no Spark task reads more offsets than this: large partitions are cut")
    yield Option(
        "pushFilters",
        "false",
        "batch only, Spark 4.1 and newer: comparisons of topic, partition, offset and timestamp with constants cut what is read before tasks are made of it. "
        "**One `load()` for each use**: another use of the same frame lacks rows, [see below](#filters-that-cut-what-is-read). Needs "
        "`spark.sql.python.filterPushdown.enabled=true`, without which Spark refuses such a source; gkafka's own",
    )
    yield Option("includeHeaders", "false", "a column `headers`")
    yield Option("kafkaConsumer.pollTimeoutMs", "120000", "a task that gets no record of a partition for so long fails")
    yield Option("fetchOffset.numRetries", "3", "tries of the driver to learn partitions and offsets")
    yield Option("fetchOffset.retryIntervalMs", "1000", "pause between them")
    yield Option("groupIdPrefix", "", "accepted for the JVM connector's sake: gkafka reads without a consumer group")
    yield Option(
        "maxOffsetsPerTrigger", "", "stream: a batch has no more offsets than this, shared among the partitions in proportion to what waits"
    )
    yield Option("minOffsetsPerTrigger", "", "stream: a batch waits for so many offsets, but not for longer than maxTriggerDelay")
    yield Option("maxTriggerDelay", "15m", "stream: the longest that minOffsetsPerTrigger waits, from one batch to the next")
    yield Option(
        "commitGroup", "", "stream: a consumer group to which the progress is committed, so that its lag shows in Kafka; gkafka's own"
    )
    yield Option("commitIntervalMs", "5000", "stream: commitGroup's offsets are committed no more often; gkafka's own")
    yield Option("offsetCacheMs", "100", "stream: an idle query asks for the ends of the partitions no more often; gkafka's own")
    yield Option("batchRows", "10000", "rows of an Arrow batch that is handed to Spark, about; gkafka's own")
    yield Option("batchBytes", "4194304", "bytes of keys and values in it, about: what comes first counts; gkafka's own")


OPTIONS = {option.name.lower(): option for option in _rows()}
TRIGGERS = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
STREAM_ONLY = (*TRIGGERS, "commitGroup", "commitIntervalMs", "offsetCacheMs")
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
class StreamOptions:
    """What a stream does from batch to batch. max_delay_ms: how long min_offsets may keep a batch waiting."""

    max_offsets: int | None
    min_offsets: int | None
    max_delay_ms: int
    commit_group: str | None
    commit_interval_ms: int
    offset_cache_ms: int


@dataclass(frozen=True)
class SourceOptions:
    """What one read does. tasks: how many Spark tasks may work at a time, None: one for each partition. warnings: what the user should hear, once, from
    the driver. end: Latest() in a stream, which has none."""

    topics: Subscribe | SubscribePattern | Assign
    start: Limit
    end: Limit
    fail_on_data_loss: bool
    tasks: int | None
    min_partitions: int | None
    max_records_per_partition: int | None
    push_filters: bool
    include_headers: bool
    poll_timeout_ms: int
    offset_tries: int
    offset_retry_ms: int
    batch_rows: int
    batch_bytes: int
    stream: StreamOptions
    kafka: KafkaProperties
    warnings: tuple[str, ...]


def parse(options: Mapping[str, str]) -> SourceOptions:
    """The options of a batch read, checked. Keys in any case. Raises ConfigurationError naming the option, its value and what it may be."""
    options = values.lowered(options, _names(), PROPERTIES)  # from here on no traceback shows the secrets of what was given
    given = _checked(options)
    start = _limit(given, "starting", Earliest())
    end = _limit(given, "ending", Latest())
    offsets.check_limits(start, end)
    return _parsed(given, start, end, _batch_warnings)


def parse_stream(options: Mapping[str, str]) -> SourceOptions:
    """The same for a stream, which has no end and begins at the latest offsets."""
    options = values.lowered(options, _names(), PROPERTIES)  # from here on no traceback shows the secrets of what was given
    given = _checked(options)
    for name, what in (("endingTimestamp", "timestamp"), ("endingOffsetsByTimestamp", "timestamp"), ("endingOffsets", "offset")):
        if name.lower() in given:
            raise ConfigurationError(f"ending {what} not valid in streaming queries: leave {name} out, or read in batches with spark.read")
    return _parsed(given, _limit(given, "starting", Latest()), Latest(), _stream_warnings)


def parse_either(options: Mapping[str, str]) -> SourceOptions:
    """The same where it is not known yet whether a batch or a stream will read: raises what either would."""
    options = values.lowered(options, _names(), PROPERTIES)  # from here on no traceback shows the secrets of what was given
    given = _checked(options)
    return _parsed(given, _limit(given, "starting", Earliest()), _limit(given, "ending", Latest()), lambda *_: iter(()))


def _names() -> list[str]:
    """The options as users write them."""
    return [option.name for option in OPTIONS.values()]


def _checked(options: Mapping[str, str]) -> dict[str, str]:
    values.check_names(options, _names(), PROPERTIES, OF_WRITES, topic="subscribe")
    return dict(options)


def _parsed(
    given: Mapping[str, str], start: Limit, end: Limit, warnings: Callable[[Mapping[str, str], KafkaProperties], Iterator[str]]
) -> SourceOptions:
    properties = translate(values.kafka_properties(given))
    return SourceOptions(
        topics=_topics(given),
        start=start,
        end=end,
        fail_on_data_loss=_boolean(given, "failOnDataLoss"),
        tasks=_tasks(given),
        min_partitions=values.positive(given, "minPartitions"),
        max_records_per_partition=values.positive(given, "maxRecordsPerPartition"),
        push_filters=_boolean(given, "pushFilters"),
        include_headers=_boolean(given, "includeHeaders"),
        poll_timeout_ms=_whole(given, "kafkaConsumer.pollTimeoutMs", 1),
        offset_tries=_whole(given, "fetchOffset.numRetries", 1),
        offset_retry_ms=_whole(given, "fetchOffset.retryIntervalMs", 0, LONGEST_PAUSE_MS),
        batch_rows=_whole(given, "batchRows", 1),
        batch_bytes=_whole(given, "batchBytes", 1),
        stream=_stream(given),
        kafka=properties,
        warnings=(*warnings(given, properties), *_group_warnings(given, properties), *properties.warnings),
    )


def _stream(given: Mapping[str, str]) -> StreamOptions:
    low, high = values.positive(given, "minOffsetsPerTrigger"), values.positive(given, "maxOffsetsPerTrigger")
    if low is not None and high is not None and low > high:
        raise ConfigurationError(f"The value of minOffsetPerTrigger({low}) is higher than the maxOffsetsPerTrigger({high}).")
    return StreamOptions(
        max_offsets=high,
        min_offsets=low,
        max_delay_ms=values.duration_ms(given, "maxTriggerDelay", OPTIONS["maxtriggerdelay"].default),
        commit_group=values.text(given, "commitGroup"),
        commit_interval_ms=_whole(given, "commitIntervalMs", 0),
        offset_cache_ms=_whole(given, "offsetCacheMs", 0),
    )


def options_table() -> str:
    """The Markdown table of `kafka-tools docs spark`."""
    rows = [f"| `{o.name}` | {f'`{o.default}`' if o.default else ''} | {o.doc.replace('|', chr(92) + '|')} |" for o in OPTIONS.values()]
    return "\n".join(["| option | default | meaning |", "|---|---|---|", *rows])


# -- what the user should hear -----------------------------------------------------------------------------------------
def _batch_warnings(given: Mapping[str, str], _properties: KafkaProperties) -> Iterator[str]:
    for name in STREAM_ONLY:
        if name.lower() in given:
            yield f"{name} option ignored in batch queries"


def _stream_warnings(given: Mapping[str, str], _properties: KafkaProperties) -> Iterator[str]:
    if _boolean(given, "pushFilters"):
        yield "pushFilters option ignored in streaming queries: Spark hands a stream no filters"


def _group_warnings(given: Mapping[str, str], properties: KafkaProperties) -> Iterator[str]:
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
    return values.one_of(given, "startingOffsetsByTimestampStrategy", ("error", "latest"), "error") == "latest"


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


def _tasks(given: Mapping[str, str]) -> int | None:
    if given.get("tasks", "").strip().lower() == "partitions":
        return None
    try:
        return values.positive(given, "tasks") or DEFAULT_TASKS
    except ConfigurationError as exc:
        raise ConfigurationError(f"{exc}, or 'partitions' for one task for each partition") from None


def _boolean(given: Mapping[str, str], name: str) -> bool:
    return values.boolean(given, name, OPTIONS[name.lower()].default)


def _whole(given: Mapping[str, str], name: str, low: int, high: int = values.MAX_LONG) -> int:
    return values.whole(given, name, OPTIONS[name.lower()].default, low, high)
