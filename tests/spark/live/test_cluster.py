"""format("gkafka") on more than one machine, as far as one can play them: a standalone Spark with two workers, a Kafka of three nodes, and gkafka sent to the
executors as a zip. A node of Kafka dies while a stream runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message

import gkafka.spark
from tests.kit.clock import now
from tests.live.kafka import KafkaCluster
from tests.live.pool import POOL
from tests.spark.live.conftest import PYTHON
from tests.spark.live.standalone import StandaloneSpark
from tests.spark.live.test_connect import NOT_INSTALLED
from tests.spark.live.test_kills import copied, done
from tests.spark.live.test_oracle import NewTopic, write

PARTITIONS, COUNT = 3, 1500
"""Each node leads one. Of the stream ten micro-batches."""
PATIENCE_S = 400
# Six JVMs: in `make test` test_connect.py hands over the zip, and test_kills.py kills what reads and writes.
pytestmark = [pytest.mark.timeout(900), pytest.mark.thorough]

PROGRAM = """
import os, sys
master, servers, topic, stream_copy, batch_copy, folder, path = sys.argv[1:]
from pyspark.sql import SparkSession
import gkafka.spark
assert gkafka.__file__.startswith(path), gkafka.__file__
settings = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "600m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": os.environ["SPARK_SUBMIT_OPTS"],
    "spark.cores.max": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # no task before both workers have an executor
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "200s",
    "spark.sql.adaptive.streaming.stateless.enabled": "false",
}
spark = SparkSession.builder.master(master).config(map=settings).getOrCreate()
spark.sparkContext.addPyFile(path)
gkafka.spark.register(spark)


def where(batches):
    import os, gkafka, pyarrow
    for batch in batches:
        yield pyarrow.RecordBatch.from_pydict({
            "executor": [os.getppid()] * batch.num_rows,  # each has one Python that forks its workers
            "gkafka": [gkafka.__file__] * batch.num_rows,
            "partition": batch.column("partition"),
        })


reader = spark.read.format("gkafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
reader = reader.option("tasks", "partitions").load()  # so few rows would be one task for one of the workers
found = reader.mapInArrow(where, "executor long, gkafka string, partition int").collect()
assert len(found) == 1500 and {row.partition for row in found} == set(range(3))
assert len({row.executor for row in found}) == 2, "one of the workers had nothing to do"
files = {row.gkafka for row in found}
assert all("gkafka.zip/" in file and not file.startswith(path) for file in files), files

place = "concat_ws(':', partition, offset) as value"
writer = reader.selectExpr(place, "partition").write.format("gkafka").option("kafka.bootstrap.servers", servers)
writer.option("topic", batch_copy).mode("append").save()

stream = spark.readStream.format("gkafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
stream = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "150").option("tasks", "partitions").load()
query = stream.selectExpr(place, "partition").writeStream.format("gkafka").option("kafka.bootstrap.servers", servers)
query = query.option("topic", stream_copy).option("exactlyOnce", "transactional").option("checkpointLocation", folder + "/checkpoint")
query = query.trigger(availableNow=True).start()
query.awaitTermination()
spark.stop()
print("USED")
"""


@pytest.fixture
def kafka(_pool: None) -> KafkaCluster:
    return POOL.get("4.2.0", brokers=3)


def test_two_workers_read_and_write_a_kafka_of_three_nodes_of_which_one_dies(
    kafka: KafkaCluster, topic: NewTopic, read: Callable[..., list[Message]], tmp_path: Path
) -> None:
    source, stream_copy, batch_copy = (topic(PARTITIONS) for _ in range(3))
    write(kafka, source, count=COUNT, partitions=PARTITIONS)
    path = gkafka.spark.pyfiles_zip(tmp_path / "gkafka.zip")
    (tmp_path / "sitecustomize.py").write_text(NOT_INSTALLED)
    with StandaloneSpark(tmp_path / "spark", environment={**PYTHON, "PYTHONPATH": str(tmp_path)}) as spark:
        program = start(spark.url, kafka.hosts, source, stream_copy, batch_copy, tmp_path, path)
        try:
            wait_for_the_stream(tmp_path, program)
            kafka.kill(1)
            said, _ = program.communicate(timeout=PATIENCE_S)
        finally:
            program.kill()
            program.wait()
            if not kafka.node(1).alive:
                kafka.restart(1)
        assert said.rstrip().endswith("USED"), (tmp_path / "driver.txt").read_text()[-6000:] + spark.logs
    assert done(tmp_path) > 5, "the stream had too few batches to see a node die"
    expected = Counter((i % PARTITIONS, i // PARTITIONS) for i in range(COUNT))
    assert copied(read(stream_copy, partitions=PARTITIONS)) == expected
    assert copied(read(batch_copy, partitions=PARTITIONS)) == expected


def start(master: str, hosts: str, source: str, stream_copy: str, batch_copy: str, folder: Path, path: str) -> subprocess.Popen[str]:
    """The driver: gkafka is nowhere but in its zip."""
    environment: dict[str, Any] = {**os.environ, **PYTHON, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(folder), path])
    command = [sys.executable, "-c", PROGRAM, master, hosts, source, stream_copy, batch_copy, str(folder), path]
    with (folder / "driver.txt").open("w") as complaints:
        return subprocess.Popen(command, env=environment, cwd=folder, stdout=subprocess.PIPE, stderr=complaints, text=True)


def wait_for_the_stream(folder: Path, program: subprocess.Popen[str]) -> None:
    """Returns after its third micro-batch, or when the program has ended."""
    deadline = now() + PATIENCE_S
    while done(folder) < 3 and program.poll() is None:
        assert now() < deadline, "the stream does not move"
        time.sleep(0.05)
