"""The options of the sink: what they may be, what they come to, and the words of the refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, LongType, MapType, StringType, StructField, StructType

from gkafka.exceptions import ConfigurationError
from gkafka.spark.sinkoptions import SinkOptions, parse_sink, sink_options_table
from gkafka.spark.sinkrows import check_written_columns
from gkafka.spark.sinktask import producer_options

ROOT = Path(__file__).resolve().parents[2]


TYPES = {
    "string": StringType(),
    "binary": BinaryType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "map": MapType(StringType(), BinaryType()),
}
TYPES["pairs"] = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
TYPES["PAIRS"] = ArrayType(StructType([StructField("Key", StringType()), StructField("VALUE", BinaryType())]))


def schema_of(text: str) -> StructType:
    """Of "name type, name type"."""
    return StructType([StructField(name, TYPES[kind]) for name, kind in (column.split() for column in text.split(","))])


def parsed(**more: str) -> SinkOptions:
    """A name's "__" stands for a dot."""
    return parse_sink({"kafka.bootstrap.servers": "h:9092", **{name.replace("__", ".").lower(): value for name, value in more.items()}})


def test_without_options_it_is_idempotent_and_waits_for_all_replicas() -> None:
    options = parsed()
    assert (options.topic, options.include_headers, options.transactional, options.job_id, options.batch_id) == (
        None,
        True,
        False,
        None,
        None,
    )
    assert producer_options(options) == {
        "max_block_ms": 180000,
        "linger_ms": 500.0,
    }  # the rest are the producer's defaults, acks=all with idempotence
    assert options.warnings == ()


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("acks", "all", {"acks": "all"}),
        ("acks", "1", {"acks": "1"}),
        ("batch.size", "1000", {"batch_bytes": 1000}),
        ("buffer.memory", "5000000", {"buffer_bytes": 5000000}),
        ("compression.type", "ZSTD", {"compression": "zstd"}),
        ("compression.type", "none", {"compression": None}),
        ("delivery.timeout.ms", "1000", {"delivery_timeout_ms": 1000}),
        ("enable.idempotence", "False", {"enable_idempotence": False}),
        ("linger.ms", "0", {"linger_ms": 0}),
        ("max.block.ms", "77", {"max_block_ms": 77}),
        ("max.in.flight.requests.per.connection", "1", {"max_in_flight": 1}),
        ("max.request.size", "2000000", {"max_request_bytes": 2000000}),
        ("request.timeout.ms", "500", {"request_timeout_ms": 500}),
        ("retries", "2147483647", {"retries": 2147483647}),
        ("retry.backoff.ms", "10", {"retry_backoff_ms": 10}),
        ("retry.backoff.max.ms", "20", {"retry_backoff_max_ms": 20}),
        ("ack.timeout.ms", "9", {"ack_timeout_ms": 9}),
    ],
)
def test_a_property_of_the_java_producer_is_an_option_of_ours(name: str, text: str, expected: dict[str, Any]) -> None:
    assert dict(parsed(**{f"kafka.{name}": text}).kafka.producer) == expected


def test_a_codecs_level_is_that_codecs() -> None:
    options = parsed(kafka__compression__type="gzip", kafka__compression__gzip__level="9", kafka__compression__lz4__level="3")
    assert options.kafka.producer == {"compression": "gzip", "compression_level": 9}
    assert options.warnings == ("kafka.compression.lz4.level has no effect: kafka.compression.type is gzip",)
    assert parsed(kafka__compression__type="gzip", kafka__compression__level="5").kafka.producer == {
        "compression": "gzip",
        "compression_level": 5,
    }


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("compression.codec", "gzip", {"compression": "gzip"}),
        ("queue.buffering.max.ms", "7", {"linger_ms": 7}),
        ("queue.buffering.max.kbytes", "10000", {"buffer_bytes": 10_240_000}),
        ("message.timeout.ms", "9000", {"delivery_timeout_ms": 9000}),
        ("message.max.bytes", "2048", {"max_request_bytes": 2048}),
    ],
)
def test_a_property_of_librdkafkas_producer_is_an_option_of_ours(name: str, text: str, expected: dict[str, Any]) -> None:
    assert dict(parsed(**{f"kafka.{name}": text}).kafka.producer) == expected


def test_properties_of_the_client_go_to_the_client() -> None:
    options = parsed(kafka__client__id="etl", kafka__request__timeout__ms="5000", kafka__metadata__max__idle__ms="100")
    assert options.kafka.client.client == {"client_id": "etl", "socket_timeout_ms": 5000, "metadata_max_idle_ms": 100}
    assert options.warnings == ()


@pytest.mark.parametrize(
    "name", ["group.id", "isolation.level", "auto.offset.reset", "max.poll.records", "fetch.max.bytes", "key.deserializer"]
)
def test_properties_of_consumers_may_stand_in_options_that_serve_both(name: str) -> None:
    assert parsed(**{f"kafka.{name}": "1"}).warnings == (f"kafka.{name} has no effect: it is a property of consumers, and this writes",)


def test_exactly_once_has_names() -> None:
    options = parsed(exactlyOnce="Transactional", transactionalIdPrefix="etl", jobId="nightly", kafka__transaction__timeout__ms="9000")
    assert (options.transactional, options.prefix, options.job_id) == (True, "etl", "nightly")
    assert options.kafka.producer == {"transaction_timeout_ms": 9000}
    assert parsed(exactlyOnce="transactional").prefix == "gkafka-spark"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"kafka.bootstrap.servers": " "}, "Option 'kafka.bootstrap.servers' must be specified for configuring Kafka consumer"),
        ({"topc": "t"}, "unknown option 'topc' for format('gkafka'); did you mean 'topic'?"),
        ({"linger.ms": "5"}, "unknown option 'linger.ms' for format('gkafka'); did you mean 'kafka.linger.ms'?"),
        ({"sasl_password": "x"}, "unknown option 'sasl_password' for format('gkafka'); did you mean 'kafka.sasl.password'?"),
        ({"path": "t"}, "save() take no path: name the topic by .option('topic', ...)"),
        ({"kafka.max.in.flight.requests.per.connection": "6"}, "=6: must be 5 or less, or give kafka.enable.idempotence=false (KIP-98)"),
        ({"topic": "a b"}, "'a b'"),
        ({"topic": ""}, "topic='': must not be empty"),
        ({"includeHeaders": "1"}, "includeHeaders='1': must be 'true' or 'false'"),
        ({"exactlyOnce": "yes"}, "exactlyOnce='yes': must be 'none' or 'transactional'"),
        ({"jobId": "j"}, "jobId='j': means nothing without exactlyOnce=transactional"),
        ({"transactionalIdPrefix": "p"}, "transactionalIdPrefix='p': means nothing"),
        ({"kafka.transaction.timeout.ms": "5"}, "kafka.transaction.timeout.ms means nothing"),
        ({"exactlyOnce": "transactional", "kafka.acks": "1"}, "needs kafka.acks=all"),
        ({"exactlyOnce": "transactional", "kafka.enable.idempotence": "false"}, "needs kafka.acks=all and kafka.enable.idempotence=true"),
        ({"kafka.key.serializer": "x"}, "Kafka option 'key.serializer' is not supported as keys are serialized with ByteArraySerializer."),
        (
            {"kafka.value.serializer": "x"},
            "Kafka option 'value.serializer' is not supported as value are serialized with ByteArraySerializer.",
        ),
        ({"kafka.partitioner.class": "x"}, "compute the column 'partition'"),
        ({"kafka.partitioner.ignore.keys": "true"}, "leave the column 'key' out"),
        ({"kafka.interceptor.classes": "x"}, "Kafka option 'interceptor.classes' is not supported"),
        ({"kafka.transactional.id": "x"}, "set exactlyOnce=transactional"),
        ({"kafka.linger": "5"}, "kafka.linger: unknown property; did you mean 'kafka.linger.ms'?"),
        ({"kafka.linger.ms": "5s"}, "kafka.linger.ms='5s': must be a whole number"),
        ({"kafka.acks": "2"}, "kafka.acks='2': must be one of"),
        ({"kafka.batch.size": "1"}, "kafka.batch.size=1: must be 128 or more"),
        ({"kafka.compression.type": "brotli"}, "kafka.compression.type='brotli': must be one of"),
        ({"kafka.enable.idempotence": "1"}, "kafka.enable.idempotence='1': must be 'true' or 'false'"),
    ],
)
def test_what_cannot_be_is_refused_by_name(given: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parsed(**given)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("schema", "topic", "text"),
    [
        ("value string", None, "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic."),
        ("value string, key string, value binary", "t", "3 columns, of which more than one is 'value': name or select the one"),
        ("key string", "t", "Required attribute 'value' not found; the columns are key"),
        ("value bigint", "t", "value attribute unsupported type bigint. value must be a(n) string or binary: select cast(value as string)"),
        ("value string, key int", "t", "key attribute unsupported type int. key must be a(n) string or binary"),
        ("value string, topic int", None, "topic attribute unsupported type int. topic must be a(n) string"),
        ("value string, partition bigint", "t", "partition attribute unsupported type bigint. partition must be a(n) int"),
        (
            "value string, headers map",
            "t",
            "headers attribute unsupported type map<string,binary>. headers must be a(n) array<",
        ),
    ],
)
def test_columns_that_no_record_is_made_of_are_refused_in_the_connectors_words(schema: str, topic: str | None, text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_written_columns(schema_of(schema), topic)
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize(
    "schema",
    [
        "value string",
        "value binary, key string, other map",
        "value binary, topic int",
        "value string, partition int, headers pairs",
        "value string, headers PAIRS",
    ],
)
def test_columns_that_a_record_is_made_of_pass(schema: str) -> None:
    check_written_columns(schema_of(schema), "t")


def test_the_documents_table_is_made_from_the_options() -> None:
    assert sink_options_table() in (ROOT / "docs" / "spark-writing.md").read_text()
