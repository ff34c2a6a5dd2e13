"""format("gkafka") against the JVM connector on a real Kafka: the same rows, the same tasks, the same words."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import gkafka.spark
from tests.effort import one_of, quick_and_thorough
from tests.live.kafka import KafkaCluster
from tests.spark.live.conftest import SPARK

Frame = Callable[..., DataFrame]
Same = Callable[..., int]
NewTopic = Callable[..., str]
START = 1_700_000_000_000
COUNT = 600
thorough = partial(pytest.param, marks=pytest.mark.thorough)
ERRORS = (PySparkException, Py4JJavaError)  # Spark wraps some of the JVM's errors and not others


def write(kafka: KafkaCluster, topic: str, *, codec: str = "none", count: int = COUNT, partitions: int = 2, **options: Any) -> None:
    """Records of every kind, by another client: nulls, empty strings, headers, timestamps."""
    producer = Producer({"bootstrap.servers": kafka.hosts, "compression.type": codec, "linger.ms": 5, **options})
    for i in range(count):
        headers = [[], [("a", b"x"), ("a", None), ("", b"")], [("ключ", b"\x00\xff")]][i % 3]
        key = [None, b"", b"key-%d" % i][i % 3]
        value = None if i % 7 == 0 else b"value %d " % i * (i % 40)
        producer.produce(topic, value, key, partition=i % partitions, timestamp=START + i, headers=headers)
    assert producer.flush(60) == 0


@pytest.mark.parametrize("codec", ["none", *one_of("zstd", "gzip", "snappy", "lz4")])  # all of them at once: test_stream_oracle.py
def test_the_same_rows_in_every_codec(kafka: KafkaCluster, topic: NewTopic, same: Same, codec: str) -> None:
    name = topic()
    write(kafka, name, codec=codec)
    assert same(subscribe=name, includeHeaders="true") == COUNT


@pytest.mark.thorough  # test_stream_oracle.py says the same of more topics
def test_neither_has_a_row_that_the_other_lacks(kafka: KafkaCluster, topic: NewTopic, frame: Frame) -> None:
    name = topic()
    write(kafka, name, codec="zstd")
    theirs, ours = (frame(source, subscribe=name, includeHeaders="true") for source in ("kafka", "gkafka"))
    assert (theirs.exceptAll(ours).count(), ours.exceptAll(theirs).count(), ours.count()) == (0, 0, COUNT)


def test_the_same_rows_where_the_broker_sets_the_time(kafka: KafkaCluster, topic: NewTopic, same: Same, frame: Frame) -> None:
    name = topic(message_timestamp_type="LogAppendTime")
    write(kafka, name, codec="lz4")
    assert same(subscribe=name) == COUNT
    assert [row[0] for row in frame("gkafka", subscribe=name).select("timestampType").distinct().collect()] == [1]


def test_the_same_rows_of_an_empty_topic(topic: NewTopic, same: Same) -> None:
    assert same(subscribe=topic()) == 0


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        # The JVM connector looks at maxRecordsPerPartition alone only where both ends are numbers.
        ({"maxRecordsPerPartition": "70", "startingOffsets": '{"T":{"0":17,"1":0}}', "endingOffsets": '{"T":{"0":90,"1":290}}'}, 73 + 290),
        ({"subscribePattern": "T", "startingTimestamp": str(START + 100), "endingTimestamp": str(START + 151), "minPartitions": "7"}, 51),
        (
            {
                "assign": '{"T":[0,1]}',
                "startingOffsetsByTimestamp": f'{{"T":{{"0":{START + 100},"1":{START + 599}}}}}',
                "endingOffsetsByTimestamp": f'{{"T":{{"0":{START + 200},"1":{START + 9999}}}}}',
            },
            50 + 1,
        ),
        ({"startingTimestamp": str(START + 9999), "startingOffsetsByTimestampStrategy": "latest"}, 0),
        ({"startingOffsets": "earliest", "startingTimestamp": str(START + 599)}, None),
        # Each by itself.
        thorough({"startingOffsets": '{"T":{"0":17,"1":-2}}', "endingOffsets": '{"T":{"0":90,"1":-1}}'}, 73 + 300),
        thorough({"startingTimestamp": str(START + 100), "endingTimestamp": str(START + 151)}, 51),
        thorough({"startingOffsetsByTimestamp": f'{{"T":{{"0":{START + 100},"1":{START + 599}}}}}'}, 250 + 1),
        thorough({"endingOffsetsByTimestamp": f'{{"T":{{"0":{START + 100},"1":{START + 9999}}}}}'}, 50 + 300),
        thorough({"assign": '{"T":[1]}'}, 300),
        thorough({"subscribePattern": "T"}, COUNT),
        thorough({"minPartitions": "7"}, COUNT),
        thorough(
            {"maxRecordsPerPartition": "70", "startingOffsets": '{"T":{"0":0,"1":0}}', "endingOffsets": '{"T":{"0":300,"1":290}}'}, 590
        ),
        thorough({"maxRecordsPerPartition": "70", "minPartitions": "12"}, COUNT),
        thorough({"maxOffsetsPerTrigger": "5", "kafka.group.id": "g", "groupIdPrefix": "p"}, COUNT),
    ],
    ids=str,
)
def test_the_same_rows_and_tasks_for_the_same_options(
    kafka: KafkaCluster, topic: NewTopic, same: Same, frame: Frame, options: dict[str, str], rows: int | None
) -> None:
    name = topic()
    write(kafka, name)
    given = {key.replace(".", "__"): value.replace("T", name) for key, value in options.items()}
    if not {"assign", "subscribePattern"} & given.keys():
        given["subscribe"] = name
    if rows is None:  # partition 0 has no record as new: both refuse
        for source in ("kafka", "gkafka"):
            with pytest.raises(ERRORS, match="No offset matched from request of topic-partition"):
                frame(source, **given).count()
        return
    assert same(**given) == rows
    if rows:
        theirs = frame("kafka", **given).rdd.getNumPartitions()
        assert frame("gkafka", **given, tasks="partitions").rdd.getNumPartitions() == theirs
        assert frame("gkafka", **given).rdd.getNumPartitions() <= theirs


@pytest.mark.parametrize("isolation", one_of("read_committed", "read_uncommitted"))
def test_the_same_rows_of_transactions(kafka: KafkaCluster, topic: NewTopic, same: Same, isolation: str) -> None:
    name = topic(1)
    settings = {"bootstrap.servers": kafka.hosts, "linger.ms": 0}
    producers = [Producer({**settings, "transactional.id": f"{name}-{i}"}) for i in range(2)]
    for producer in producers:
        producer.init_transactions(30)
    for round_ in range(12):  # two producers interleaved; each third transaction is aborted
        for producer in producers:
            producer.begin_transaction()
        for i in range(20):
            producers[i % 2].produce(name, b"%d-%d" % (round_, i) * 50, partition=0)
        for number, producer in enumerate(producers):
            producer.flush(60)
            (producer.abort_transaction if (round_ + number) % 3 == 0 else producer.commit_transaction)(30)
    producers[0].begin_transaction()
    producers[0].produce(name, b"open", partition=0)
    producers[0].flush(60)
    options = {"subscribe": name, "kafka__isolation__level": isolation}
    expected = 16 * 10 if isolation == "read_committed" else 12 * 20 + 1
    assert same(**options) == expected
    assert same(**options, kafka__max__partition__fetch__bytes="2000") == expected
    producers[0].abort_transaction(30)


def delete_before(kafka: KafkaCluster, topic: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.hosts})
    for result in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        result.result(60)


def test_the_same_loss_of_data(kafka: KafkaCluster, topic: NewTopic, same: Same, frame: Frame) -> None:
    name = topic(1)
    write(kafka, name, partitions=1)
    delete_before(kafka, name, 250)
    assert same(subscribe=name) == COUNT - 250
    lost = {"subscribe": name, "startingOffsets": f'{{"{name}":{{"0":100}}}}', "kafkaConsumer__pollTimeoutMs": "3000"}
    for source in ("kafka", "gkafka"):
        with pytest.raises(ERRORS, match=r"Could not read records in offset \[100, 600\) for topic partition") as error:
            frame(source, **lost).count()
        assert "Some data may have been lost because they are not available in Kafka any more" in str(error.value)
    assert same(**lost, failOnDataLoss="false") == COUNT - 250
    beyond = {"subscribe": name, "endingOffsets": f'{{"{name}":{{"0":900}}}}', "kafkaConsumer__pollTimeoutMs": "2000"}
    for source in ("kafka", "gkafka"):
        with pytest.raises(ERRORS, match=r"Could not read records in offset \[600, 900\) for topic partition"):
            frame(source, **beyond).count()
    assert same(**beyond, failOnDataLoss="false") == COUNT - 250


def test_a_topic_that_was_made_again_is_not_read_in_place_of_the_one_that_was_planned(
    kafka: KafkaCluster, topic: NewTopic, frame: Frame
) -> None:
    name, other = topic(), topic()
    for each in (name, other):
        write(kafka, each, count=20)
    frames = [frame("gkafka", subscribe=f"{name},{other}", failOnDataLoss=fails) for fails in ("true", "false")]
    assert [each.rdd.getNumPartitions() for each in frames] == [1, 1], "planned, and nothing is read yet"
    admin = AdminClient({"bootstrap.servers": kafka.hosts})
    admin.delete_topics([name])[name].result(60)
    kafka.create_topic(name, 2)
    write(kafka, name, count=100)
    with pytest.raises(ERRORS, match=rf"for topic partition {name}-0: topic '{name}' was deleted and made again"):
        frames[0].count()
    assert [(row.topic, row["count"]) for row in frames[1].groupBy("topic").count().collect()] == [(other, 20)]


REFUSALS: list[tuple[dict[str, str], str]] = [
    ({"subscribe": ""}, "No topics to subscribe to as specified value for option 'subscribe' is ''"),
    (
        {},
        "One of the following options must be specified for Kafka source: subscribe, subscribepattern, assign. See the docs for more details.",
    ),
    (
        {"subscribe": "T", "assign": '{"T":[0]}'},
        "Only one of the following options can be specified for Kafka source: subscribe, subscribepattern, assign.",
    ),
    ({"assign": "x"}, "No topicpartitions to assign as specified value for option 'assign' is 'x'"),
    ({"assign": '{"T":0}'}, 'Expected e.g. {"topicA":[0,1],"topicB":[0,1]}, got {"T":0}'),
    ({"subscribePattern": " "}, "Pattern to subscribe is empty as specified value for option 'subscribePattern' is ' '"),
    ({"subscribe": "T", "startingOffsets": "latest"}, "starting offset can't be latest for batch queries on Kafka"),
    ({"subscribe": "T", "endingOffsets": "earliest"}, "ending offset can't be earliest for batch queries on Kafka"),
    ({"subscribe": "T", "startingOffsets": "nonsense"}, 'Expected e.g. {"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}, got nonsense'),
    ({"subscribe": "T", "startingOffsets": '{"T":{"0":-1,"1":0}}'}, "startingOffsets for T-0 can't be latest for batch queries on Kafka"),
    ({"subscribe": "T", "endingOffsets": '{"T":{"0":-2,"1":0}}'}, "ending offset for T-0 can't be earliest for batch queries on Kafka"),
    ({"subscribe": "T", "startingOffsets": '{"T":{"0":3}}'}, "Partitions specified for Kafka start offsets don't match what are assigned."),
    (
        {"subscribe": "T", "startingOffsetsByTimestamp": '{"T":{"0":3}}'},
        "Partitions specified for Kafka timestamp based start offsets don't match what are assigned.",
    ),
    (
        {"subscribe": "T", "startingOffsets": '{"T":{"0":3,"1":5}}', "endingOffsets": '{"T":{"0":3}}'},
        "Topic-partitions for start offset: T-0, T-1, topic-partitions for end offset: T-0.",
    ),
    (
        {"subscribe": "T", "startingOffsets": '{"T":{"0":30,"1":5}}', "endingOffsets": '{"T":{"0":3,"1":9}}'},
        "The specified start offset 30 is greater than the end offset 3 for topic T partition 0.",
    ),
    (
        {"subscribe": "T", "startingOffsets": '{"T":{"0":9999,"1":0}}'},
        "The resolved start offset 9999 is greater than the resolved end offset 1 for topic T partition 0",
    ),
    ({"subscribe": "T", "startingTimestamp": "abc"}, "Expected a single long value, got abc"),
    ({"subscribe": "T", "minPartitions": "0"}, "minPartitions must be positive"),
    (
        {"subscribe": "T", "kafka.auto.offset.reset": "earliest"},
        "Kafka option 'auto.offset.reset' is not supported. Instead set the source option",
    ),
    (
        {"subscribe": "T", "kafka.key.deserializer": "x"},
        "Kafka option 'key.deserializer' is not supported as keys are deserialized as byte arrays",
    ),
    ({"subscribe": "T", "kafka.value.deserializer": "x"}, "Kafka option 'value.deserializer' is not supported as values are deserialized"),
    ({"subscribe": "T", "kafka.enable.auto.commit": "true"}, "Kafka option 'enable.auto.commit' is not supported"),
    ({"subscribe": "T", "kafka.interceptor.classes": "x"}, "Kafka option 'interceptor.classes' is not supported"),
    (
        {"subscribe": "T", "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "3"},
        "The value of minOffsetPerTrigger(9) is higher than the maxOffsetsPerTrigger(3).",
    ),
]
WORDS_SINCE_4_1 = ("Topic-partitions for start offset", "The specified start offset", "The resolved start offset")
"""What the JVM connector of Spark 4.0 says otherwise."""


@pytest.mark.parametrize("each", quick_and_thorough(4, 1))  # the words of gkafka alone: test_options.py, test_source_calls.py
def test_refusals_have_the_same_words(kafka: KafkaCluster, topic: NewTopic, frame: Frame, each: int) -> None:
    name = topic()
    write(kafka, name, count=2)
    different = []
    for options, words in REFUSALS[::each]:
        given = {key.replace(".", "__"): value.replace("T", name) for key, value in options.items()}
        is_new = SPARK < (4, 1) and words.startswith(WORDS_SINCE_4_1)
        said = {source: refusal(frame, source, given) for source in (("gkafka",) if is_new else ("kafka", "gkafka"))}
        different += [
            (source, words, text[:2000])
            for source, text in said.items()
            if words.replace("T-", f"{name}-").replace(" T ", f" {name} ").replace('"T"', f'"{name}"') not in text
        ]
    assert different == []


def refusal(frame: Frame, source: str, options: dict[str, str]) -> str:
    """What a read that must fail says, its white space made single."""
    with pytest.raises(ERRORS) as error:
        frame(source, **options).count()
    return re.sub(r"\s+", " ", str(error.value))


# -- what only gkafka does ---------------------------------------------------------------------------------------------
def test_spark_finds_the_format_by_itself_and_by_register(kafka: KafkaCluster, topic: NewTopic, frame: Frame, spark: SparkSession) -> None:
    name = topic()
    write(kafka, name, count=10)
    assert frame("gkafka", subscribe=name).count() == 10
    gkafka.spark.register(spark)
    assert frame("gkafka", subscribe=name).count() == 10


def test_a_part_of_the_columns_by_schema_and_by_sql(kafka: KafkaCluster, topic: NewTopic, frame: Frame, spark: SparkSession) -> None:
    name = topic()
    write(kafka, name, count=10)
    rows = frame("gkafka", subscribe=name, schema="offset bigint not null, value binary").collect()
    assert sorted(row.offset for row in rows) == sorted([*range(5)] * 2)
    spark.sql(f"create temporary view v using gkafka options ('kafka.bootstrap.servers' '{kafka.hosts}', subscribe '{name}')")
    assert spark.sql("select count(*) from v where partition = 1").collect()[0][0] == 5
    assert frame("gkafka", subscribe=name).limit(1).count() == 1
    assert frame("gkafka", subscribe=name).drop("value").filter("offset > 2").count() == 4


@pytest.mark.skipif(SPARK < (4, 1), reason="Spark 4.0 hands no filters to a Python source")
def test_the_same_rows_where_filters_cut_what_is_read(kafka: KafkaCluster, topic: NewTopic, frame: Frame, spark: SparkSession) -> None:
    name = topic()
    write(kafka, name, count=60)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        for where in (
            "partition = 1 and offset between 5 and 9",
            f"topic = '{name}' and timestamp >= timestamp_millis({START + 40})",
            "offset > 99",
        ):
            theirs = frame("kafka", subscribe=name).where(where)
            ours = frame("gkafka", subscribe=name, pushFilters="true", tasks="partitions").where(where)
            assert sorted(ours.select("partition", "offset").collect()) == sorted(theirs.select("partition", "offset").collect())
        only = frame("gkafka", subscribe=name, pushFilters="true", tasks="partitions").where("partition = 1")
        assert only.rdd.getNumPartitions() == 1, "of two"
        theirs, ours = frame("kafka", subscribe=name), frame("gkafka", subscribe=name, pushFilters="true")
        for one, other in (("partition = 0", "partition = 1"), ("offset < 3", "offset > 25"), ("partition = 0", "partition = 0")):
            rows, wanted = (
                sorted(each.where(one).union(each.where(other)).select("partition", "offset").collect()) for each in (ours, theirs)
            )
            assert rows == wanted, "two uses of one frame share the plan that Spark keeps for it"
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_errors_reach_the_user_with_their_class_and_text(topic: NewTopic, frame: Frame) -> None:
    with pytest.raises(ERRORS, match=r"ConfigurationError: startingOffsets='x': must be 'earliest', 'latest' or JSON"):
        frame("gkafka", subscribe=topic(), startingOffsets="x")
    with pytest.raises(ERRORS, match=r"unknown option 'startingoffset' for format\('gkafka'\); did you mean 'startingOffsets'\?"):
        frame("gkafka", subscribe=topic(), startingOffset="earliest")
    with pytest.raises(ERRORS, match=r"schema: column 'val' is not one of"):
        frame("gkafka", subscribe=topic(), schema="val binary").count()
    with pytest.raises(ERRORS, match=r"schema: column 'value' is there twice"):
        frame("gkafka", subscribe=topic(), schema="value binary, offset long, value binary").count()
