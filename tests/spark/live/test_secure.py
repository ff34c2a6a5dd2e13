"""A Kafka behind SASL_SSL: what connects is Spark's driver and its workers, with nothing but the options, which are the JVM connector's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Message
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import gkafka.spark
from gkafka import KafkaClient
from gkafka.spark.update import STATELESS_AQE
from tests.live.kafka import KafkaCluster
from tests.live.saslkafka import PASSWORD, USER, SaslKafka
from tests.spark.live.test_oracle import NewTopic, write

COUNT = 600
PATIENCE_S = 90
LOGIN = {"PLAIN": "plain.PlainLoginModule", "SCRAM-SHA-512": "scram.ScramLoginModule"}
pytestmark = [pytest.mark.timeout(600), pytest.mark.thorough]  # test_sasl.py says the same of what a worker does, without Spark

Options = dict[str, str]


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslKafka]:
    with ExitStack() as stack:
        yield SaslKafka(tmp_path_factory.mktemp("sasl"), stack)


@pytest.fixture
def kafka(secure: SaslKafka) -> KafkaCluster:
    """Its listener without SASL, for those who prepare and compare."""
    return secure.cluster


@pytest.fixture(params=["PLAIN", "SCRAM-SHA-512"])
def options(secure: SaslKafka, request: pytest.FixtureRequest) -> Options:
    """As they are pasted from a job of the JVM connector: with one mechanism the authority is a file, with the other a text."""
    login = f'org.apache.kafka.common.security.{LOGIN[request.param]} required username="{USER}" password="{PASSWORD}";'
    authority = {"location": secure.certs.ca} if request.param == "PLAIN" else {"certificates": Path(secure.certs.ca).read_text()}
    return {
        "kafka.bootstrap.servers": f"127.0.0.1:{secure.port('SECURE')}",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": request.param,
        "kafka.sasl.jaas.config": login,
        "kafka.ssl.truststore.type": "PEM",
        **{f"kafka.ssl.truststore.{name}": value for name, value in authority.items()},
    }


@pytest.fixture(autouse=True)
def _ready(spark: SparkSession) -> Iterator[None]:
    gkafka.spark.register(spark)
    spark.conf.set(STATELESS_AQE, "false")
    yield
    spark.conf.unset(STATELESS_AQE)


def of(spark: SparkSession, source: str, topic: str, options: Options) -> DataFrame:
    return spark.read.format(source).options(**options).option("subscribe", topic).option("includeHeaders", "true").load()


def test_both_connectors_read_the_same_with_the_same_options_and_a_batch_is_written(
    spark: SparkSession, kafka: KafkaCluster, topic: NewTopic, options: Options
) -> None:
    name, copy = topic(), topic()
    write(kafka, name, count=COUNT)
    theirs, ours = (of(spark, source, name, options) for source in ("kafka", "gkafka"))
    assert (ours.count(), theirs.exceptAll(ours).count(), ours.exceptAll(theirs).count()) == (COUNT, 0, 0)
    columns = ("key", "value", "headers", "partition")
    ours.select(*columns).write.format("gkafka").options(**options).option("topic", copy).mode("append").save()
    copied = of(spark, "kafka", copy, options).select(*columns)
    assert (copied.count(), copied.exceptAll(ours.select(*columns)).count()) == (COUNT, 0)


def test_a_stream_is_read_written_in_transactions_and_committed_to_a_group(
    spark: SparkSession,
    kafka: KafkaCluster,
    topic: NewTopic,
    options: Options,
    read: Callable[..., list[Message]],
    tmp_path: Path,
) -> None:
    name, copy = topic(), topic()
    write(kafka, name, count=COUNT)
    stream = spark.readStream.format("gkafka").options(**options).option("subscribe", name).option("startingOffsets", "earliest")
    rows = stream.option("commitGroup", f"{name}-group").load().selectExpr("concat_ws(':', partition, offset) as value", "partition")
    writer = rows.writeStream.format("gkafka").options(**options).option("topic", copy).option("exactlyOnce", "transactional")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE_S), query.status
    found = Counter(bytes(message.value() or b"") for message in read(copy))
    assert found == Counter(b"%d:%d" % (i % 2, i // 2) for i in range(COUNT))
    with KafkaClient(kafka.hosts) as client:
        committed = client.admin().list_group_offsets(f"{name}-group")
    assert {at[1]: offset.offset for at, offset in committed.items()} == {0: COUNT // 2, 1: COUNT // 2}


def test_a_password_stands_in_no_plan_and_a_wrong_one_is_told_without_it(
    spark: SparkSession, kafka: KafkaCluster, topic: NewTopic, options: Options
) -> None:
    name = topic()
    write(kafka, name, count=2)
    assert PASSWORD not in of(spark, "gkafka", name, options)._jdf.queryExecution().toString()
    wrong = {**options, "kafka.sasl.jaas.config": options["kafka.sasl.jaas.config"].replace(PASSWORD, "wr0ng-one")}
    with pytest.raises(PySparkException, match="SaslAuthenticationFailed") as caught:
        of(spark, "gkafka", name, wrong).count()
    assert "wr0ng-one" not in str(caught.value)
