"""Batch read of one topic in PySpark: format("gkafka") beside the JVM connector, in turn, in one session, on the same broker.

The first runs of each are thrown away: a cold run costs several warm ones. What was read is compared first. Prints one JSON line:
seconds per run of each connector.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])  # Spark's workers too
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

from pyspark.sql import DataFrame, SparkSession  # noqa: E402

from tests.live.maven import jars  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Sequence

# The versions that are in Maven's central registry and work with PySpark 4.3; each alone, Spark brings the rest.
CONNECTOR = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.0",
)
COLD_RUNS = 4


def connector_jars() -> list[Path]:
    return jars("spark-kafka-4.2.0", CONNECTOR, transitive=False)


def session(classpath: Sequence[Path]) -> SparkSession:
    return (
        SparkSession.builder.master("local[2]")
        .appName("gkafka-bench")
        .config("spark.jars", ",".join(map(str, classpath)))
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )


def frame(spark: SparkSession, format: str, bootstrap: str, topic: str) -> DataFrame:
    reader = spark.read.format(format).option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    return reader.option("startingOffsets", "earliest").load()


def summary(df: DataFrame) -> dict[str, object]:
    row = df.selectExpr(
        "count(*) as rows",
        "count(distinct partition, offset) as places",
        "sum(crc32(value)) as checksum",
        "sum(length(key)) as key_bytes",
    ).first()
    assert row is not None
    return row.asDict()


def seconds(df: DataFrame) -> float:
    began = time.perf_counter()
    df.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--formats", default="kafka,gkafka")
    given = parser.parse_args()
    formats = given.formats.split(",")
    spark = session(connector_jars())
    spark.sparkContext.setLogLevel("ERROR")
    seen = {name: summary(frame(spark, name, given.bootstrap, given.topic)) for name in formats}
    times: dict[str, list[float]] = {name: [] for name in formats}
    for _ in range(COLD_RUNS + given.runs):
        for name in formats:
            times[name].append(seconds(frame(spark, name, given.bootstrap, given.topic)))
    spark.stop()
    same = all(what == seen[formats[0]] for what in seen.values())
    print(json.dumps({"same": same, "seen": seen, "seconds": {name: runs[COLD_RUNS:] for name, runs in times.items()}}), flush=True)


if __name__ == "__main__":
    main()
