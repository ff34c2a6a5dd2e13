"""A test that ran out of time in a call of Spark's JVM has had that ended: the next test gets a new session, which does all that the first one did.

(By its name this comes first: the JVM that it ends has not done much yet.)
"""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.sql import SparkSession

import gkafka.spark
from tests.kit.limits import end_jvm
from tests.live.kafka import KafkaCluster
from tests.spark.live.conftest import SESSION, is_alive
from tests.spark.live.test_oracle import NewTopic, write


def jvm() -> int:
    gateway = SparkContext._gateway
    assert gateway is not None
    pid: int = gateway.proc.pid
    return pid


def test_a_session_whose_jvm_was_ended_is_made_anew(spark: SparkSession, kafka: KafkaCluster, topic: NewTopic) -> None:
    assert is_alive(spark)
    before = jvm()
    end_jvm("the test wants it so")
    with pytest.raises((Py4JError, Py4JNetworkError, ConnectionError)):
        spark.range(3).count()
    again = SESSION.get()
    assert jvm() != before
    name = topic()
    write(kafka, name, count=20)
    gkafka.spark.register(again)
    assert again.read.format("gkafka").option("kafka.bootstrap.servers", kafka.hosts).option("subscribe", name).load().count() == 20
    assert SESSION.get() is again
    after = jvm()
    again.stop()
    assert not is_alive(again)
    other = SESSION.get()
    assert jvm() == after
    assert other.range(3).count() == 3
