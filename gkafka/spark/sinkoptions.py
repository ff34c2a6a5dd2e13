"""The options of df.write.format("gkafka") and of writeStream. Nothing here imports pyspark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gkafka.checks import check_topic_name
from gkafka.exceptions import ConfigurationError
from gkafka.spark import values
from gkafka.spark.options import OPTIONS
from gkafka.spark.producerproperties import PROPERTIES, WriteProperties, translate_for_writing

__all__ = ["SINK_OPTIONS", "SinkOptions", "parse_sink", "sink_options_table"]

PREFIX = "gkafka-spark"
MAX_IN_FLIGHT = 5  # of a producer that keeps the order of what it sends again
SINK_OPTIONS = {
    "kafka.bootstrap.servers": ("", "host:port of one or more brokers, comma separated; required"),
    "topic": ("", "where all rows go; without it the column `topic` says it for each row"),
    "includeHeaders": ("true", "write the column `headers`, if there is one"),
    "exactlyOnce": (
        "none",
        "`transactional`: each Spark task writes in a Kafka transaction that also marks its micro-batch as done, so that a replay writes nothing twice; "
        "gkafka's own",
    ),
    "transactionalIdPrefix": (PREFIX, "how the transactional ids, and the groups that hold the marks, begin; gkafka's own"),
    "jobId": (
        "",
        "with `exactlyOnce` in a batch: the name of this job; running it again writes only what is missing. With `write_stream` on Spark Connect: the name of the query; "
        "gkafka's own",
    ),
}
"""Option -> default, meaning: the table of `kafka-tools docs spark` is made from it."""

OF_READS = tuple(option.name for option in OPTIONS.values() if option.name not in SINK_OPTIONS)
FROM_SPARK = ("checkpointLocation", "queryName", "batchId")
"""What Spark gives a sink of what it was told itself, and what `write_stream` gives it."""


@dataclass(frozen=True)
class SinkOptions:
    """What one write does. batch_id: of the micro-batch that `write_stream` writes. warnings: what the user should hear, once."""

    topic: str | None
    include_headers: bool
    transactional: bool
    prefix: str
    job_id: str | None
    batch_id: int | None
    kafka: WriteProperties

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.kafka.warnings


def parse_sink(options: Mapping[str, str]) -> SinkOptions:
    """The options of a write, checked. Keys in any case. Raises ConfigurationError naming the option, its value and what it may be."""
    names = [*SINK_OPTIONS, *FROM_SPARK]
    options = given = values.lowered(options, names, PROPERTIES)  # both: no traceback shows the secrets of what was given
    values.check_names(given, names, PROPERTIES, OF_READS, topic="topic")
    transactional = values.one_of(given, "exactlyOnce", ("none", "transactional"), "none") == "transactional"
    parsed = SinkOptions(
        topic=_topic(given),
        include_headers=values.boolean(given, "includeHeaders", "true"),
        transactional=transactional,
        prefix=values.text(given, "transactionalIdPrefix", PREFIX) or PREFIX,
        job_id=values.text(given, "jobId"),
        batch_id=values.whole(given, "batchId", "0", 0) if "batchid" in given else None,
        kafka=translate_for_writing(values.kafka_properties(given)),
    )
    _check_together(given, parsed)
    return parsed


def _topic(given: Mapping[str, str]) -> str | None:
    topic = values.text(given, "topic")
    return None if topic is None else check_topic_name(topic)


def _check_together(given: Mapping[str, str], parsed: SinkOptions) -> None:
    if parsed.kafka.producer.get("max_in_flight", 1) > MAX_IN_FLIGHT and _is_idempotent(parsed.kafka.producer):
        raise ConfigurationError(
            f"kafka.max.in.flight.requests.per.connection={parsed.kafka.producer['max_in_flight']}: must be {MAX_IN_FLIGHT} or less, or give "
            "kafka.enable.idempotence=false (KIP-98)"
        )
    if not parsed.transactional:
        for name in ("transactionalIdPrefix", "jobId"):
            if name.lower() in given:
                raise ConfigurationError(f"{name}={given[name.lower()]!r}: means nothing without exactlyOnce=transactional")
        if "transaction_timeout_ms" in parsed.kafka.producer:
            raise ConfigurationError("kafka.transaction.timeout.ms means nothing without exactlyOnce=transactional")
        return
    if not _is_idempotent(parsed.kafka.producer):
        raise ConfigurationError("exactlyOnce=transactional needs kafka.acks=all and kafka.enable.idempotence=true: leave both out")


def _is_idempotent(producer: Mapping[str, Any]) -> bool:
    return producer.get("acks", "all") in ("all", "-1", -1) and producer.get("enable_idempotence") is not False


def sink_options_table() -> str:
    """The Markdown table of `kafka-tools docs spark`."""
    rows: Iterator[str] = (f"| `{name}` | {f'`{default}`' if default else ''} | {doc} |" for name, (default, doc) in SINK_OPTIONS.items())
    return "\n".join(["| option | default | meaning |", "|---|---|---|", *rows])
