"""The source driven as Spark's runner drives it, without Spark: order of calls, pickles, processes, and what comes out."""

from __future__ import annotations

import inspect
import logging
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkNotImplementedError
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

import gkafka.spark
from gkafka import KafkaClient
from gkafka.exceptions import (
    ConfigurationError,
    CorruptRecordError,
    KafkaException,
    KafkaTimeoutError,
    OffsetOutOfRangeError,
    ProtocolError,
    UnknownTopicOrPartition,
)
from gkafka.handlers import ThreadingHandler
from gkafka.spark import connections
from gkafka.spark.offsets import DataLossError
from gkafka.spark.planner import OffsetRange
from gkafka.spark.source import FIELDS, GKafkaDataSource, kafka_schema
from gkafka.testing import Close, Delay, Edit, Error, MockCluster
from tests.kit.clock import soon
from tests.kit.ports import refused_port
from tests.records.handmade import LOG_APPEND, TRANSACTIONAL, batch, marker, message, record, values, wrapper
from tests.spark.conftest import Read

Reading = Callable[..., Read]
CODECS = [None, "gzip", "snappy", "lz4", "zstd"]


def produce(cluster: MockCluster, records: list[dict[str, Any]], topic: str = "t", **options: Any) -> None:
    """Written to a partition, they are one batch, however slow the machine is."""
    options = {"linger_ms": 60_000, **options}
    with KafkaClient(cluster.bootstrap, handler="threading") as client, client.get_producer(**options) as producer:
        for each in records:
            producer.produce(topic, **{"partition": 0, **each})
        producer.flush(60)


def numbers(cluster: MockCluster, count: int, topic: str = "t", partition: int = 0) -> None:
    produce(cluster, [{"value": b"%d" % i, "partition": partition} for i in range(count)], topic)


# -- the contract with Spark -------------------------------------------------------------------------------------------
def test_arguments_have_the_names_by_which_spark_gives_them() -> None:
    assert list(inspect.signature(GKafkaDataSource).parameters) == ["options"]
    assert list(inspect.signature(GKafkaDataSource.reader).parameters) == ["self", "schema"]
    assert GKafkaDataSource.name() == "gkafka"
    assert issubclass(GKafkaDataSource, DataSource)


def test_streams_are_read_by_the_workers_and_never_by_the_driver() -> None:
    with pytest.raises(PySparkNotImplementedError, match="simpleStreamReader"):
        GKafkaDataSource(options={}).simpleStreamReader(kafka_schema())


def test_constructors_never_raise_and_schema_does() -> None:
    source = GKafkaDataSource(options={"startingoffsets": "nonsense"})
    reader = source.reader(schema=kafka_schema())
    with pytest.raises(ConfigurationError, match="startingOffsets='nonsense'"):
        source.schema()
    with pytest.raises(ConfigurationError, match="startingOffsets='nonsense'"):
        reader.partitions()


def test_the_schema_is_the_jvm_connectors() -> None:
    assert kafka_schema().simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
    )
    assert kafka_schema(True).fields[-1].simpleString() == "headers:array<struct<key:string,value:binary>>"


@pytest.mark.parametrize("headers", [False, True])
def test_batches_have_the_very_schema_that_spark_compares_with(cluster: MockCluster, reading: Reading, headers: bool) -> None:
    produce(cluster, [{"value": b"v", "headers": [("a", b"1")]}])
    read = reading(includeHeaders=str(headers))
    (found,) = read.batches()
    assert to_arrow_schema(read.source.schema(), timezone="UTC").equals(found.schema)


def test_partitions_is_a_list_of_picklable_ranges(cluster: MockCluster, reading: Reading) -> None:
    numbers(cluster, 5)
    tasks = reading().tasks()
    assert type(tasks) is list
    assert [task.value for task in pickle.loads(pickle.dumps(tasks))] == [(OffsetRange("t", 0, 0, 5),)]


def test_an_empty_topic_gives_no_tasks_and_none_gives_no_rows(reading: Reading) -> None:
    assert reading().tasks() == []
    assert list(reading().reader.read(partition=InputPartition(None))) == []
    assert list(reading().reader.read(partition=None)) == []


WORKER = """
import pickle, sys
import pyarrow as pa
reader, task = pickle.load(sys.stdin.buffer)
batches = list(reader.read(partition=task))
with pa.ipc.new_stream(sys.stdout.buffer, batches[0].schema) as out:
    for batch in batches:
        out.write_batch(batch)
"""


def test_a_reader_works_in_another_process(cluster: MockCluster, reading: Reading) -> None:
    numbers(cluster, 300)
    reader = reading(includeHeaders="true").reader
    (task,) = reader.partitions()
    done = subprocess.run([sys.executable, "-c", WORKER], input=pickle.dumps((reader, task)), capture_output=True, timeout=60, check=True)
    assert pa.ipc.open_stream(done.stdout).read_all()["value"].to_pylist() == [b"%d" % i for i in range(300)]


def test_nothing_of_a_reader_shows_a_pass_phrase(reading: Reading) -> None:
    read = reading(kafka__security__protocol="SSL", kafka__ssl__key__password="hunter2")
    assert "hunter2" not in repr(read.reader) + repr(read.source)


# -- columns -----------------------------------------------------------------------------------------------------------
def test_every_column_of_a_record(cluster: MockCluster, reading: Reading) -> None:
    headers = [("a", b"1"), ("a", None), ("", b"")]
    produce(cluster, [{"value": b"v", "key": b"k", "timestamp": 1_700_000_000_123, "headers": headers}, {"value": None, "timestamp": 0}])
    full, bare = reading(includeHeaders="true").rows()
    assert full == {
        "key": b"k",
        "value": b"v",
        "topic": "t",
        "partition": 0,
        "offset": 0,
        "timestamp": datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=timezone.utc),
        "timestampType": 0,
        "headers": [{"key": key, "value": value} for key, value in headers],
    }
    assert (bare["key"], bare["value"], bare["headers"], bare["offset"]) == (None, None, None, 1)


def part(*names: str, not_null: tuple[str, ...] = ()) -> StructType:
    return StructType([StructField(name, FIELDS[name], name not in not_null) for name in names])


@pytest.mark.parametrize("names", [("value",), ("offset", "key"), ("headers", "topic"), tuple(FIELDS)])
def test_a_schema_of_the_users_may_be_any_part_in_any_order(cluster: MockCluster, reading: Reading, names: tuple[str, ...]) -> None:
    produce(cluster, [{"value": b"v", "key": b"k", "headers": [("h", b"x")]}])
    read = reading(part(*names))
    (found,) = read.batches()
    assert found.schema.names == list(names)
    assert to_arrow_schema(part(*names), timezone="UTC").equals(found.schema)


def test_columns_that_are_never_null_may_be_declared_so(cluster: MockCluster, reading: Reading) -> None:
    numbers(cluster, 3)
    schema = part("offset", "value", not_null=("offset",))
    (found,) = reading(schema).batches()
    assert to_arrow_schema(schema, timezone="UTC").equals(found.schema)
    with pytest.raises(ConfigurationError, match="column 'value' may be null in Kafka: leave NOT NULL out"):
        reading(part("value", not_null=("value",))).tasks()


def test_a_schema_that_is_not_a_part_of_ours_is_refused(reading: Reading) -> None:
    with pytest.raises(ConfigurationError, match="column 'val' is not one of key, value, topic"):
        reading(StructType([StructField("val", StringType())])).tasks()
    with pytest.raises(ConfigurationError, match="column 'offset' is there twice: name it once, and select it twice"):
        reading(part("offset", "value", "offset")).tasks()
    with pytest.raises(ConfigurationError, match="column 'value' is binary, not string: read it so and cast it"):
        reading(StructType([StructField("value", StringType())])).tasks()


# -- records of every kind ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_is_read(cluster: MockCluster, reading: Reading, codec: str | None) -> None:
    produce(cluster, [{"value": b"%d" % i * 50, "key": None if i % 3 else b"%d" % i} for i in range(2000)], compression=codec)
    rows = reading().rows()
    assert [row["value"] for row in rows] == [b"%d" % i * 50 for i in range(2000)]
    assert [row["key"] for row in rows] == [None if i % 3 else b"%d" % i for i in range(2000)]


def test_only_the_range_is_read_though_batches_begin_before_and_end_after_it(cluster: MockCluster, reading: Reading) -> None:
    numbers(cluster, 100)
    found = reading(startingOffsets='{"t":{"0":17}}', endingOffsets='{"t":{"0":42}}').column("offset")
    assert found == list(range(17, 42))


def test_gaps_end_a_task_where_its_range_ends(cluster: MockCluster, reading: Reading) -> None:
    cluster.append("t", 0, batch([record(0, b"a"), record(7, b"b")], base_offset=0, last_delta=9))
    cluster.append("t", 0, batch([record(0, b"c")], base_offset=20, last_delta=9))
    assert reading().column("offset") == [0, 7, 20]
    assert reading(endingOffsets='{"t":{"0":15}}').column("offset") == [0, 7]
    assert reading(startingOffsets='{"t":{"0":9}}', endingOffsets='{"t":{"0":19}}').rows() == []


def test_control_batches_are_no_rows(cluster: MockCluster, reading: Reading) -> None:
    cluster.append(
        "t", 0, values(3, attributes=TRANSACTIONAL, producer_id=7, producer_epoch=0) + marker(1, 3, producer_id=7, producer_epoch=0)
    )
    cluster.append("t", 0, values(2, base_offset=4))
    assert reading().column("offset") == [0, 1, 2, 4, 5]


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("given", [{}, {"minPartitions": "4"}, {"maxRecordsPerPartition": "1"}])
def test_an_end_that_is_a_marker_is_reached_and_is_no_loss(
    cluster: MockCluster, reading: Reading, level: str, given: dict[str, str]
) -> None:
    """A task of its own may have nothing but the marker."""
    more = {"failOnDataLoss": "true", "kafka__isolation__level": level, **given}
    cluster.append("t", 0, values(3, attributes=TRANSACTIONAL, producer_id=7, producer_epoch=0) + marker(1, 3, producer_id=7))
    assert reading(endingOffsets="latest", **more).column("offset") == [0, 1, 2]
    assert reading(endingOffsets='{"t":{"0":4}}', **more).column("offset") == [0, 1, 2]
    assert reading(startingOffsets='{"t":{"0":3}}', **more).rows() == []
    cluster.append("t", 0, marker(0, 4, producer_id=8) + marker(1, 5, producer_id=9))
    assert reading(startingOffsets='{"t":{"0":2}}', **more).column("offset") == [2]
    cluster.delete_records("t", 0, 3)
    assert reading(**more).rows() == [], "a log that begins with a marker, and has nothing else"
    assert reading(endingOffsets='{"t":{"0":5}}', **more).rows() == []


def transactions(cluster: MockCluster) -> None:
    """7 aborts 0-1, 8 commits 2-3 (interleaved), then 7 commits 6-7; 8's open transaction at 9-10 is beyond the stable offset."""
    own = {"attributes": TRANSACTIONAL, "producer_epoch": 0}
    cluster.append("t", 0, values(2, base_offset=0, producer_id=7, **own) + values(2, base_offset=2, producer_id=8, **own))
    cluster.append("t", 0, marker(0, 4, producer_id=7) + marker(1, 5, producer_id=8))
    cluster.append("t", 0, values(2, base_offset=6, producer_id=7, **own) + marker(1, 8, producer_id=7))
    cluster.append("t", 0, values(2, base_offset=9, producer_id=8, **own))
    cluster.set_transactions("t", 0, aborted=[(7, 0)], stable=9)


def test_aborted_transactions_are_read_as_the_jvm_connector_does_by_default(cluster: MockCluster, reading: Reading) -> None:
    transactions(cluster)
    assert reading().column("offset") == [0, 1, 2, 3, 6, 7, 9, 10]


def test_read_committed_leaves_out_aborted_and_open_transactions(cluster: MockCluster, reading: Reading) -> None:
    transactions(cluster)
    assert reading(kafka__isolation__level="read_committed").column("offset") == [2, 3, 6, 7]


def test_log_append_time_is_the_batchs_time(cluster: MockCluster, reading: Reading) -> None:
    cluster.append("t", 0, values(2, attributes=LOG_APPEND, base_timestamp=5, max_timestamp=1_700_000_000_000))
    rows = reading().rows()
    assert [row["timestampType"] for row in rows] == [1, 1]
    assert {row["timestamp"] for row in rows} == {datetime(2023, 11, 14, 22, 13, 20, tzinfo=timezone.utc)}


def test_messages_of_the_old_formats_are_read(cluster: MockCluster, reading: Reading) -> None:
    cluster.append("t", 0, message(0, b"a", b"k", magic=0) + message(1, None, magic=0))
    cluster.append("t", 0, wrapper([message(0, b"b", timestamp=5), message(1, b"c", timestamp=6)], 3, timestamp=6))
    rows = reading(includeHeaders="true").rows()
    assert [(row["offset"], row["value"]) for row in rows] == [(0, b"a"), (1, None), (2, b"b"), (3, b"c")]
    assert [row["timestampType"] for row in rows] == [-1, -1, 0, 0]
    assert rows[0]["timestamp"] == datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=timezone.utc), "-1 ms: as the JVM connector"
    assert rows[3]["timestamp"] == datetime(1970, 1, 1, 0, 0, 0, 6000, tzinfo=timezone.utc)


@pytest.mark.parametrize("versions", ["0.9.0", "0.10.2", "0.11.0", "1.0.0", "2.8"])
def test_brokers_of_every_age_are_read(versions: str) -> None:
    with MockCluster(topics={"t": 1}, versions=versions) as cluster:
        numbers(cluster, 50)
        read = Read({"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": "t"})
        assert read.column("value") == [b"%d" % i for i in range(50)]


# -- damage ------------------------------------------------------------------------------------------------------------
def damaged(cluster: MockCluster) -> None:
    broken = bytearray(values(3, base_offset=2))
    broken[-2] ^= 0xFF
    cluster.append("t", 0, values(2))
    cluster.append("t", 0, bytes(broken))


def test_a_corrupt_batch_names_topic_partition_and_offset(cluster: MockCluster, reading: Reading) -> None:
    damaged(cluster)
    reader = reading().reader
    found = reader.read(partition=reader.partitions()[0])
    assert next(found)["offset"].to_pylist() == [0, 1], "what is before it is not lost"
    with pytest.raises(CorruptRecordError) as error:
        next(found)
    assert (error.value.topic, error.value.partition, error.value.offset) == ("t", 0, 2)
    assert "t" in str(error.value)
    assert "2" in str(error.value)


def test_checksums_can_be_left_unchecked(cluster: MockCluster, reading: Reading) -> None:
    broken = bytearray(values(3))
    broken[17] ^= 0xFF  # the checksum itself
    cluster.append("t", 0, bytes(broken))
    with pytest.raises(CorruptRecordError):
        reading().rows()
    assert reading(kafka__check__crcs="false").column("value") == [b"0", b"1", b"2"]


def test_a_timestamp_that_spark_cannot_hold_is_named(cluster: MockCluster, reading: Reading) -> None:
    cluster.append("t", 0, values(2) + values(1, base_offset=2, base_timestamp=1 << 60, max_timestamp=1 << 60))
    with pytest.raises(ProtocolError, match="topic t partition 0 offset 2 has timestamp value 1152921504606846976 that overflows") as error:
        reading().rows()
    assert error.value.offset == 2
    assert reading(part("value", "offset")).column("offset") == [0, 1, 2]


# -- which partitions and offsets --------------------------------------------------------------------------------------
def test_the_ways_to_name_partitions(cluster: MockCluster, reading: Reading) -> None:
    for partition in (0, 1):
        numbers(cluster, 2 + partition, "pair", partition)
    numbers(cluster, 1)

    def ranges(**more: str | None) -> list[str]:
        return [str(one) for task in reading(**{"tasks": "partitions", **more}).tasks() for one in task.value]

    both = ["pair-0 [0, 2)", "pair-1 [0, 3)"]
    assert ranges(subscribe="pair") == both
    assert ranges(subscribe="t, pair") == [*both, "t-0 [0, 1)"]
    assert ranges(subscribe=None, assign='{"pair":[1]}') == both[1:]
    assert ranges(subscribe=None, subscribePattern="ai") == both, "a match anywhere in the name, as the JVM connector"
    assert ranges(subscribe=None, subscribePattern="^(t|pair)$") == [*both, "t-0 [0, 1)"]
    assert ranges(subscribe=None, subscribePattern="nothing") == []
    assert ranges(subscribe="pair", minPartitions="5") == [
        "pair-0 [0, 1)",
        "pair-0 [1, 2)",
        "pair-1 [0, 1)",
        "pair-1 [1, 2)",
        "pair-1 [2, 3)",
    ]
    assert ranges(subscribe="pair", maxRecordsPerPartition="2") == ["pair-0 [0, 2)", "pair-1 [0, 1)", "pair-1 [1, 3)"]


def test_partitions_that_do_not_exist_are_refused(reading: Reading) -> None:
    with pytest.raises(ConfigurationError, match=r"assign: topic 'pair' has the partitions \[0, 1\], not \[7\]"):
        reading(subscribe=None, assign='{"pair":[0,7]}').tasks()


def test_an_unknown_topic_is_named(reading: Reading) -> None:
    with pytest.raises(UnknownTopicOrPartition, match="nosuch") as error:
        reading(subscribe="nosuch").tasks()
    assert error.value.topic == "nosuch"


def test_partitions_that_were_added_are_seen_by_the_next_plan(cluster: MockCluster, reading: Reading) -> None:
    numbers(cluster, 1)
    assert len(reading().tasks()) == 1
    cluster.add_partitions("t", 2)
    numbers(cluster, 1, "t", 1)
    assert len(reading(tasks="partitions").tasks()) == 2


def test_timestamps_say_where_to_begin_and_end(cluster: MockCluster, reading: Reading) -> None:
    produce(cluster, [{"value": b"x", "timestamp": 1000 + i} for i in range(10)])
    assert reading(startingTimestamp="1003", endingTimestamp="1007").column("offset") == [3, 4, 5, 6]
    assert reading(startingOffsetsByTimestamp='{"t":{"0":1008}}', endingTimestamp="9999").column("offset") == [8, 9]
    with pytest.raises(ConfigurationError, match="No offset matched from request of topic-partition t-0 and timestamp 2000"):
        reading(startingTimestamp="2000").tasks()
    assert reading(startingTimestamp="2000", startingOffsetsByTimestampStrategy="latest").tasks() == []


def test_the_driver_warns_once_of_what_does_nothing(reading: Reading, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        reading(maxOffsetsPerTrigger="5").tasks()
    assert [r.message for r in caplog.records if "maxOffsetsPerTrigger" in r.message] == [
        "maxOffsetsPerTrigger option ignored in batch queries"
    ]


# -- data loss ---------------------------------------------------------------------------------------------------------
def aged(cluster: MockCluster, reading: Reading, before: int, **more: str) -> Iterator[Any]:
    """A read whose first records are deleted after it was planned."""
    for offset in range(0, 100, 10):
        cluster.append("t", 0, values(10, base_offset=offset))
    reader = reading(**more).reader
    (task,) = reader.partitions()
    cluster.delete_records("t", 0, before)
    return reader.read(partition=task)


def test_records_that_are_gone_are_an_error(cluster: MockCluster, reading: Reading) -> None:
    with pytest.raises(DataLossError, match="Some data may have been lost because they are not available in Kafka any more") as error:
        list(aged(cluster, reading, 40))
    assert (error.value.topic, error.value.partition, error.value.offset) == ("t", 0, 0)
    assert "Could not read records in offset [0, 100) for topic partition t-0" in str(error.value)


def test_records_that_are_gone_are_passed_over_where_that_is_allowed(
    cluster: MockCluster, reading: Reading, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        found = list(aged(cluster, reading, 40, failOnDataLoss="false"))
    assert [offset for each in found for offset in each["offset"].to_pylist()] == list(range(40, 100))
    assert "records in [0, 40) are skipped" in caplog.text


def test_deleted_records_that_are_still_in_a_batch_are_not_read(cluster: MockCluster, reading: Reading) -> None:
    for offset in range(0, 100, 10):
        cluster.append("t", 0, values(10, base_offset=offset))
    reader = reading(failOnDataLoss="false", kafka__max__partition__fetch__bytes="100").reader
    (task,) = reader.partitions()
    cluster.on("Fetch", Error(1), when=lambda request: request.message.topics[0].partitions[0].fetch_offset == 30)
    cluster.on("ListOffsets", Edit(lambda request, answer: _beginning(answer, 55)), times=1)
    found = [offset for each in reader.read(partition=task) for offset in each["offset"].to_pylist()]
    assert found == [*range(30), *range(55, 100)]


def _beginning(answer: Any, offset: int) -> Any:
    answer.topics[0].partitions[0].offset = offset
    return answer


def test_a_range_that_is_gone_as_a_whole_gives_nothing(cluster: MockCluster, reading: Reading) -> None:
    assert list(aged(cluster, reading, 100, failOnDataLoss="false")) == []


def test_a_leader_that_contradicts_itself_is_asked_with_pauses_and_told_of_once(
    cluster: MockCluster, reading: Reading, caplog: pytest.LogCaptureFixture
) -> None:
    numbers(cluster, 10)
    reader = reading(failOnDataLoss="false", kafkaConsumer__pollTimeoutMs="1000").reader
    (task,) = reader.partitions()
    cluster.on("Fetch", Error(1), times=None)
    with caplog.at_level(logging.WARNING), pytest.raises(OffsetOutOfRangeError, match="t-0"):
        list(reader.read(partition=task))
    assert cluster.count("Fetch") < 20
    assert [line.message.count("asking again") for line in caplog.records] == [1]


def test_an_end_beyond_the_log_is_data_loss_after_the_poll_timeout(cluster: MockCluster, reading: Reading) -> None:
    numbers(cluster, 10)
    beyond = {"endingOffsets": '{"t":{"0":500}}', "kafkaConsumer__pollTimeoutMs": "1500", "kafka__fetch__max__wait__ms": "50"}
    with pytest.raises(DataLossError, match=r"Could not read records in offset \[10, 500\) for topic partition t-0"):
        reading(**beyond).rows()
    assert len(reading(failOnDataLoss="false", **beyond).rows()) == 10


@pytest.mark.usefixtures("short_patience")
def test_a_topic_that_is_deleted_under_a_task_is_data_loss_after_the_poll_timeout(cluster: MockCluster, reading: Reading) -> None:
    numbers(cluster, 5)
    readers = [reading(kafkaConsumer__pollTimeoutMs="1500", failOnDataLoss=fail).reader for fail in ("true", "false")]
    tasks = [reader.partitions() for reader in readers]
    connections.close_all()  # tasks run in other processes than the driver
    cluster.delete_topic("t")
    with pytest.raises(DataLossError, match=r"Could not read records in offset \[0, 5\) for topic partition t-0: .*does not exist"):
        list(readers[0].read(partition=tasks[0][0]))
    assert list(readers[1].read(partition=tasks[1][0])) == []


def test_a_start_beyond_the_log_is_data_loss(cluster: MockCluster, reading: Reading) -> None:
    numbers(cluster, 10)
    with pytest.raises(DataLossError, match="resolved start offset 77 is greater than the resolved end offset 10"):
        reading(startingOffsets='{"t":{"0":77}}').tasks()
    assert reading(startingOffsets='{"t":{"0":77}}', failOnDataLoss="false").tasks() == []


# -- brokers in trouble ------------------------------------------------------------------------------------------------
def test_a_leader_that_moves_is_followed() -> None:
    with MockCluster(brokers=2, topics={"t": 1}, replication_factor=2) as cluster:
        for offset in range(0, 60, 10):
            cluster.append("t", 0, values(10, base_offset=offset))
        read = Read(
            {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": "t", "kafka.max.partition.fetch.bytes": "100", "batchrows": "1"}
        )
        reader = read.reader
        (task,) = reader.partitions()
        connections.close_all()  # tasks run in other processes than the driver
        found = reader.read(partition=task)
        offsets = next(found)["offset"].to_pylist()
        cluster.move_leader("t", 0, 3 - cluster.leader("t", 0))
        for each in found:
            offsets += each["offset"].to_pylist()
        assert offsets == list(range(60))


def test_a_connection_that_breaks_is_made_again(cluster: MockCluster, reading: Reading) -> None:
    numbers(cluster, 20)
    cluster.on("Fetch", Close(before=True))
    cluster.on("ListOffsets", Close(before=True))
    assert reading().column("offset") == list(range(20))


def test_a_broker_that_never_has_the_records_is_given_up(cluster: MockCluster, reading: Reading) -> None:
    numbers(cluster, 20)
    reader = reading(kafkaConsumer__pollTimeoutMs="400").reader
    (task,) = reader.partitions()
    cluster.on("Fetch", Error(6), times=None)  # NOT_LEADER_OR_FOLLOWER
    with pytest.raises(KafkaTimeoutError, match="t-0"):
        list(reader.read(partition=task))


def test_a_broker_that_does_not_say_either_where_its_log_ends_is_given_up_by_the_name_of_the_partition(
    cluster: MockCluster, reading: Reading
) -> None:
    numbers(cluster, 20)
    (task,) = reading().reader.partitions()
    reader = reading(kafkaConsumer__pollTimeoutMs="1500", kafka__default__api__timeout__ms="1500").reader
    cluster.on("Fetch", Error(6), times=None)
    cluster.on("ListOffsets", Error(6), times=None)
    with pytest.raises(KafkaTimeoutError, match="fetching t-0 from offset 0"):
        list(reader.read(partition=task))


def test_a_slow_spark_is_not_a_broker_without_progress(cluster: MockCluster, reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    for offset in range(0, 30, 10):
        cluster.append("t", 0, values(10, base_offset=offset))
    reader = reading(kafkaConsumer__pollTimeoutMs="10000", kafka__max__partition__fetch__bytes="100", batchRows="1").reader
    cluster.on("Fetch", Close(before=True), when=lambda request: request.message.topics[0].partitions[0].fetch_offset == 10)
    found = reader.read(partition=reader.partitions()[0])
    first = next(found)
    # The fetch that was sent ahead is lost, and Spark works on the first batch for longer than the poll timeout.
    monkeypatch.setattr(ThreadingHandler, "monotonic", staticmethod(lambda: soon(15)))
    assert first.num_rows + sum(each.num_rows for each in found) == 30


def test_a_broker_that_starts_again_is_waited_for_by_who_has_not_met_it_yet(cluster: MockCluster, reading: Reading) -> None:
    """Spark makes new clients all the time: with each worker, after each error."""
    numbers(cluster, 20)
    connections.close_all()
    broker = next(iter(cluster.brokers))
    cluster.stop_broker(broker)
    back = threading.Timer(3.0, cluster.start_broker, (broker,))
    back.start()
    assert reading().column("offset") == list(range(20))
    back.join()


def test_a_host_that_is_not_there_is_named() -> None:
    unused_port = refused_port()
    read = Read({"kafka.bootstrap.servers": f"127.0.0.1:{unused_port}", "subscribe": "t", "kafka.default.api.timeout.ms": "500"})
    with pytest.raises(KafkaTimeoutError, match=str(unused_port)):
        read.tasks()


def test_errors_that_may_heal_are_tried_as_often_as_told(reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def fails(client: KafkaClient, wanted: object, *, isolation: object) -> dict[tuple[str, int], int]:
        calls.append(1)
        raise Healing("for now")

    monkeypatch.setattr(KafkaClient, "list_offsets", fails)
    with pytest.raises(Healing):
        reading(fetchOffset__numRetries="4", fetchOffset__retryIntervalMs="1").tasks()
    assert len(calls) == 4


class Healing(KafkaException):
    retriable = True


# -- batches -----------------------------------------------------------------------------------------------------------
def test_small_fetches_become_large_batches(cluster: MockCluster, reading: Reading) -> None:
    for offset in range(0, 1000, 10):
        cluster.append("t", 0, values(10, base_offset=offset))
    found = reading(kafka__max__partition__fetch__bytes="200", batchRows="400").batches()
    assert len(found) <= 3
    assert [offset for each in found for offset in each["offset"].to_pylist()] == list(range(1000))


def test_the_bytes_of_a_batch_are_bounded_too(cluster: MockCluster, reading: Reading) -> None:
    for offset in range(20):
        cluster.append("t", 0, batch([record(0, b"x" * 1000)], base_offset=offset))
    found = reading(kafka__max__partition__fetch__bytes="1000", batchBytes="4000").batches()
    assert max(each.nbytes for each in found) < 8000
    assert sum(each.num_rows for each in found) == 20


def test_a_fetch_that_unpacks_to_much_is_handed_over_in_pieces(cluster: MockCluster, reading: Reading) -> None:
    produce(cluster, [{"value": b"x" * 1000} for _ in range(2000)], compression="gzip")
    found = reading(batchBytes="10000").batches()
    assert len(found) > 10
    assert max(each.num_rows for each in found) < 100
    assert sum(each.num_rows for each in found) == 2000


def test_the_next_fetch_is_under_way_before_a_batch_is_handed_over(cluster: MockCluster, reading: Reading) -> None:
    for offset in range(0, 30, 10):
        cluster.append("t", 0, values(10, base_offset=offset))
    reader = reading(kafka__max__partition__fetch__bytes="100", batchRows="1").reader
    found = reader.read(partition=reader.partitions()[0])
    next(found)
    cluster.wait_for(lambda: cluster.count("Fetch") == 2)
    assert sum(each.num_rows for each in found) == 20


# -- connections -------------------------------------------------------------------------------------------------------
def test_the_next_task_uses_the_same_connections(cluster: MockCluster, reading: Reading) -> None:
    numbers(cluster, 10)
    reading().rows()
    before = cluster.count("ApiVersions")
    reading().rows()
    assert cluster.count("ApiVersions") == before


def test_other_options_get_other_connections(cluster: MockCluster, reading: Reading) -> None:
    numbers(cluster, 10)
    reading().rows()
    reading(kafka__client__id="other").rows()
    assert len([key for key, idle in connections._idle.items() if idle]) == 2
    assert {request.client_id for request in cluster.requests("Fetch")} == {"gkafka", "other"}


def test_connections_that_were_idle_for_too_long_are_not_used_again(cluster: MockCluster, reading: Reading) -> None:
    numbers(cluster, 10)
    reading(kafka__connections__max__idle__ms="0").rows()
    before = cluster.count("ApiVersions")
    reading(kafka__connections__max__idle__ms="0").rows()
    assert cluster.count("ApiVersions") > before


def test_a_client_that_saw_an_error_is_closed(cluster: MockCluster, reading: Reading) -> None:
    damaged(cluster)
    with pytest.raises(CorruptRecordError):
        reading().rows()
    cluster.on("Fetch", Delay(0))
    reader = reading().reader
    (task,) = reader.partitions()
    with pytest.raises(CorruptRecordError):
        list(reader.read(partition=task))
    assert sum(map(len, connections._idle.values())) == 0


def test_a_reader_that_stops_early_leaves_no_client(cluster: MockCluster, reading: Reading) -> None:
    numbers(cluster, 10)
    reader = reading().reader
    found = reader.read(partition=reader.partitions()[0])
    next(found)
    found.close()
    assert sum(map(len, connections._idle.values())) == 0
    cluster.wait_for(lambda: cluster.connections() == 0)


def test_a_child_process_makes_its_own_client(cluster: MockCluster, reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers(cluster, 10)
    reading().rows()
    (kept,) = [idle for each in connections._idle.values() for idle in each]
    monkeypatch.setattr(os, "getpid", lambda: -1)  # as after a fork
    before = cluster.count("ApiVersions")
    assert len(reading().rows()) == 10
    assert cluster.count("ApiVersions") > before
    connections.close_all()
    monkeypatch.undo()
    kept.client.close()


# -- the package -------------------------------------------------------------------------------------------------------
def test_register_hands_the_source_to_spark() -> None:
    class Registry:
        registered: list[type[DataSource]] = []  # noqa: RUF012

        def register(self, source: type[DataSource]) -> None:
            self.registered.append(source)

    class Session:
        dataSource = Registry()

    gkafka.spark.register(Session())  # type: ignore[arg-type]
    (registered,) = Registry.registered
    assert issubclass(registered, GKafkaDataSource)
    assert (registered.__module__, registered.__name__) == (GKafkaDataSource.__module__, GKafkaDataSource.__name__)
