#!/usr/bin/env python3
"""Spark writes to Kafka from its Python workers: each partition of a DataFrame makes a client of its own, by foreachPartition.

    pip install 'gkafka[spark]'

The client is made inside the function that runs in the worker: one that is made on the driver cannot be sent there. Leaving its block
delivers what is on its way, so a task that ends well has delivered its rows, and one that could not fails and is tried again by Spark.
The handler is chosen by itself: Spark's workers are not monkey-patched and run OS threads.

(Whole DataFrames are read by format("gkafka"), see pipeline.py.)
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from recipe import kafka_is_there, parser_of, positive, run

from gkafka import KafkaClient


def session(cores: int) -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return (
        SparkSession.builder.master(f"local[{cores}]")
        .appName("spark-foreach")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )


def writer(hosts: str, topic: str) -> Any:
    """What foreachPartition calls in a worker, with the rows of one partition."""

    def write(rows: Iterable[Any]) -> None:
        with KafkaClient(hosts) as client, client.get_producer(acks="all", compression="lz4") as producer:
            for row in rows:
                producer.produce(topic, row.value.encode(), key=row.key.encode())

    return write


def deliver(spark: SparkSession, args: Any) -> str:
    numbers = spark.range(args.rows).selectExpr("cast(id % 100 as string) as key", "cast(id as string) as value")
    numbers.foreachPartition(writer(args.hosts, args.topic))
    return f"{args.rows} rows delivered from {numbers.rdd.getNumPartitions()} partitions"


def main() -> int:
    args = arguments()
    if not kafka_is_there(args):
        return 1
    with ThreadPoolExecutor(1) as beside:  # Ctrl-C hits the main thread, and is not to come in the middle of a call of Spark's
        spark = beside.submit(session, args.cores).result()
        try:
            print(beside.submit(deliver, spark, args).result())
        except PySparkException as exc:
            print(f"spark_foreach.py: {exc}", file=sys.stderr)
            return 1
        finally:
            spark.stop()
    return 0


def arguments() -> Any:
    parser = parser_of(__doc__ or "", "rows")
    parser.add_argument("--rows", type=positive, default=100_000, help="(default: %(default)s)")
    parser.add_argument("--cores", type=positive, default=2, help="of this machine (default: %(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    run(main)
