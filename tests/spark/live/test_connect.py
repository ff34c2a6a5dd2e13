"""format("gkafka") where it is not installed: as a zip that the program hands to Spark, classic and Connect. Each in a process of its own.

Each starts a Spark or two; the last one stands for all in `make test`.

Spark hands such files to everything but the process that plans a stream (PythonStreamingSourceRunner looks for them in a folder of another name).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import gkafka.spark
from tests.live.kafka import KafkaCluster
from tests.spark.live.conftest import PYTHON
from tests.spark.live.test_oracle import NewTopic, write

ROOT = Path(gkafka.__file__).parent.parent
pytestmark = pytest.mark.timeout(540)

USE = """
def use(spark, servers, topic, copy, folder, *, rows, streams=True):
    def read(name):
        return spark.read.format("gkafka").option("kafka.bootstrap.servers", servers).option("subscribe", name).load()

    sink = {"kafka.bootstrap.servers": servers, "topic": copy}
    once = {**sink, "exactlyOnce": "transactional"}
    found = read(topic).select("key", "value", "partition")
    assert found.count() == rows
    found.write.format("gkafka").options(**sink).mode("append").save()
    for _ in range(2):
        found.write.format("gkafka").options(**once, jobId=topic).mode("append").save()
    assert read(copy).count() == 2 * rows
    gkafka.spark.sql_view(spark, "records", subscribe=topic, **{"kafka.bootstrap.servers": servers})
    assert spark.sql("select count(*) from records where offset < 5").collect()[0][0] == 10
    if not streams:
        return
    stream = spark.readStream.format("gkafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    stream = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", str(rows // 2)).load()
    query = stream.writeStream.format("parquet").option("path", folder + "/out").option("checkpointLocation", folder + "/checkpoint")
    query = query.trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert spark.read.parquet(folder + "/out").select("partition", "offset").distinct().count() == rows
    assert gkafka.spark.lag(query.lastProgress)["maxOffsetsBehindLatest"] == 0
    spark.conf.set("spark.sql.adaptive.streaming.stateless.enabled", "false")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    writer = stream.select("key", "value", "partition").writeStream.format("gkafka").options(**once)
    query = writer.option("checkpointLocation", folder + "/copying").trigger(availableNow=True).start()
    assert query.awaitTermination(120) and read(copy).count() == 3 * rows
    counts = stream.groupBy("partition").count().selectExpr("cast(count as string) as value", "partition")
    given = {"checkpointLocation": folder + "/counting", "trigger": {"availableNow": True}}
    query = gkafka.spark.write_stream(counts, once, mode="update", jobId=topic + "-counts", **given)
    assert query.awaitTermination(120)
    last = [row.value for row in read(copy).orderBy("offset").collect()][-4:]
    assert sorted(map(bytes, last)) == [b"25", b"25", b"50", b"50"]
"""

CLASSIC = """
import os, sys
servers, topic, copy, folder, path = sys.argv[1:]
sys.path.insert(0, path)
from pyspark.sql import SparkSession
import gkafka.spark
assert gkafka.__file__.startswith(path)
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1").getOrCreate()
spark.sparkContext.addPyFile(path)
gkafka.spark.register(spark)
use(spark, servers, topic, copy, folder, rows=100, streams=path in os.environ["PYTHONPATH"])
spark.stop()
print("USED")
"""

CONNECT = """
import os, sys
servers, topic, copy, folder, path = sys.argv[1:]
if path:
    sys.path.insert(0, path)
from pyspark.sql import SparkSession
import gkafka.spark
builder = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1")
os.environ["SPARK_TESTING"] = "1"  # Spark's own word for: a free port
spark = builder.getOrCreate()
if path:
    spark.addArtifacts(path, pyfile=True)
gkafka.spark.register(spark)
use(spark, servers, topic, copy, folder, rows=100, streams=not path)
spark.stop()
print("USED")
"""


NOT_INSTALLED = """
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in repr(finder).lower()]
"""
"""A sitecustomize: every Python that is started with it finds no gkafka by an editable installation."""


@pytest.fixture
def used(kafka: KafkaCluster, topic: NewTopic, tmp_path: Path) -> Callable[..., None]:
    """Runs a program that reads 100 records in a batch, in a stream and by SQL, and writes them in a batch and in streams."""

    def run(program: str, path: str, python_path: str) -> None:
        name, copy = topic(), topic()
        write(kafka, name, count=100)
        (tmp_path / "sitecustomize.py").write_text(NOT_INSTALLED)
        environment = {
            **os.environ,
            **PYTHON,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYTHONPATH": os.pathsep.join(filter(None, [str(tmp_path), python_path])),
        }
        done = subprocess.run(
            [sys.executable, "-c", USE + program, kafka.hosts, name, copy, str(tmp_path), path],
            env=environment,
            cwd=tmp_path,
            timeout=500,
            capture_output=True,
            text=True,
        )
        assert done.stdout.rstrip().endswith("USED"), done.stderr[-6000:]

    return run


@pytest.mark.thorough
def test_a_zip_that_is_added_is_all_that_a_classic_session_needs_for_batches(used: Callable[..., None], tmp_path: Path) -> None:
    used(CLASSIC, gkafka.spark.pyfiles_zip(tmp_path / "gkafka.zip"), "")


@pytest.mark.thorough
def test_streams_of_a_classic_session_need_the_zip_on_the_drivers_path_too(used: Callable[..., None], tmp_path: Path) -> None:
    path = gkafka.spark.pyfiles_zip(tmp_path / "gkafka.zip")
    used(CLASSIC, path, path)


@pytest.mark.thorough
def test_connect_with_gkafka_installed_at_the_server(used: Callable[..., None]) -> None:
    used(CONNECT, "", str(ROOT))


def test_connect_with_a_zip_as_an_artifact_reads_and_writes_batches(used: Callable[..., None], tmp_path: Path) -> None:
    used(CONNECT, gkafka.spark.pyfiles_zip(tmp_path / "gkafka.zip"), "")
