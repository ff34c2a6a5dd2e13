"""The records of the crawl in PySpark: a session on this machine, and their values as columns. It is no program of its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

PAGE = "url string, status int, bytes long, ms double, title string, depth int, ts long"
LINK = "src string, dst string, anchor string"
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Of a JVM that runs for a minute: what its best compiler would do takes longer than what it would save."""
LAUNCHER = Path(__file__).resolve().parents[1] / "spark_python.sh"
TASK_TRIES = 4  # as on a cluster; Spark's default on one machine is one


def session(name: str, cores: int, scratch: Path | None = None) -> SparkSession:
    """scratch: the folder of Spark's temporary files; it may be removed when the program has ended, however it did."""
    os.environ.setdefault("PYSPARK_PYTHON", python_of_workers())
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = (
        SparkSession.builder.master(f"local[{cores},{TASK_TRIES}]")
        .appName(name)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.adaptive.streaming.stateless.enabled", "false")  # for exactlyOnce: a replayed task has the rows that it had
        .config("spark.python.authenticate.socketTimeout", "120s")  # on a busy machine a worker takes its time to start
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", cores)
        .config("spark.sql.adaptive.enabled", "false")  # so few partitions are as they should be
    )
    flags = SHORT_LIVED
    if scratch:
        scratch.mkdir(parents=True, exist_ok=True)
        builder, flags = builder.config("spark.local.dir", str(scratch)), f"{flags} -Djava.io.tmpdir={scratch}"
    return builder.config("spark.driver.extraJavaOptions", flags).getOrCreate()


def python_of_workers() -> str:
    """This Python, not the first `python3` on PATH; with the PySpark that pip installed, by the launcher that has it found compiled."""
    folder = Path(sys.executable).parent
    if "SPARK_HOME" in os.environ or not (folder / "python3").exists():
        return sys.executable
    os.environ["PATH"] = os.pathsep.join([str(folder), os.environ.get("PATH", os.defpath)])
    return str(LAUNCHER)


def header(name: str) -> Column:
    """A header that holds a number as decimal text."""
    return F.expr(f"cast(get(filter(headers, h -> h.key = '{name}'), 0).value as string)").cast("int")


def decoded(records: DataFrame, schema: str) -> DataFrame:
    """One column for each field of the value, and with the record's own: path (its key), its headers, where and when it was stored."""
    return records.select(
        F.col("key").cast("string").alias("path"),
        value_of(schema).alias("v"),
        header("status").alias("header_status"),
        header("depth").alias("header_depth"),
        "topic",
        "partition",
        "offset",
        F.col("timestamp").alias("stored"),
        (F.length("key") + F.length("value")).alias("size"),
    ).select("path", "v.*", "header_status", "header_depth", "topic", "partition", "offset", "stored", "size")


def value_of(schema: str) -> Column:
    """The value, JSON, as a struct; null for a record without one. What is no such JSON fails the query."""
    return F.from_json(F.col("value").cast("string"), schema, {"mode": "FAILFAST"})


def is_inside(target: str) -> Column:
    """Does this column hold a path of the site, not an address outside?"""
    return F.col(target).startswith("/") & ~F.col(target).startswith("//")
