"""The classes that a JVM loads, as an archive that it maps into memory (CDS): a broker, a script or a Spark starts with half the processor time.

Those of Kafka stand in the cache, made by the first broker of its release, one that starts and ends at once, or by the first script, one that lists topics.
An archive is good for jars at one place only, so Spark's stands beside PySpark's jars.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.live.maven import MissingToolError, cache_folder, locked, tool

__all__ = ["archive_flags", "record_spark", "spark_options"]

RECORD_S = 120.0
SILENT = "-Xlog:disable"  # a JVM that cannot use an archive says so on its output, and starts without
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Of a JVM that lives for a minute: an optimising compiler and parallel collectors take more than they give."""
SPARK = """
import sys
from pyspark.sql import SparkSession

settings = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.sql.shuffle.partitions": "2"}
spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
numbers = spark.range(100).selectExpr("id % 7 as key", "cast(id as string) as value")
numbers.write.parquet(sys.argv[1] + "/numbers")
found = spark.read.parquet(sys.argv[1] + "/numbers").groupBy("key").count().orderBy("key")
found.collect()
spark.createDataFrame([(1, "a")], ["number", "text"]).mapInArrow(lambda batches: batches, "number long, text string").count()
stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load().groupBy("value").count()
writer = stream.writeStream.format("noop").outputMode("update").option("checkpointLocation", sys.argv[1] + "/checkpoint")
writer.trigger(once=True).start().awaitTermination(60)
jvm = spark.sparkContext._gateway.proc
spark.stop()
jvm.stdin.close()
jvm.wait()
"""
"""What Spark's tests do, in short."""


def archive_flags(name: str, record: Callable[[str], None]) -> list[str]:
    """Flags of java that use the archive. name: of what is started.

    record: runs it once with one more flag, which has the JVM write the archive when it ends by itself or by SIGTERM.
    """
    place = cache_folder() / "classes" / f"{name}-{_made_by()}.jsa"
    place.parent.mkdir(exist_ok=True)
    _once(place, record)
    return _flags(place) if place.stat().st_size else []


def spark_options() -> str:
    """SPARK_SUBMIT_OPTS of each Spark that tests start, here or in a program. It uses the archive as soon as there is one."""
    try:
        return " ".join([SHORT_LIVED, *_flags(_place_of_spark())])
    except (MissingToolError, PackageNotFoundError):
        return SHORT_LIVED


@cache
def record_spark() -> None:
    """Make the archive that `spark_options` names, once for each installed PySpark (20 s).

    Without it Spark starts as well: where this takes too long, the next process tries it.
    """
    with suppress(subprocess.TimeoutExpired):
        _once(_place_of_spark(), _record_spark)


def _place_of_spark() -> Path:
    return Path(sys.prefix) / f"spark-classes-{version('pyspark')}-{_made_by()}.jsa"


def _record_spark(flag: str) -> None:
    options = {"SPARK_SUBMIT_OPTS": f"{SHORT_LIVED} {flag} {SILENT}", "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    nothing = subprocess.DEVNULL
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        command = [sys.executable, "-c", SPARK, folder]
        run = subprocess.Popen(
            command, cwd=folder, env={**os.environ, **options}, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True
        )
        try:
            run.wait(RECORD_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)  # its JVM, too
            run.wait()


def _made_by() -> str:
    java = Path(tool("java")).resolve()
    return sha256(f"{java} {java.stat().st_mtime_ns}".encode()).hexdigest()[:12]


def _flags(place: Path) -> list[str]:
    return [f"-XX:SharedArchiveFile={place}", SILENT]


def _once(place: Path, record: Callable[[str], None]) -> None:
    if not place.exists():
        with locked(place.with_suffix(".lock")):
            if not place.exists():
                _make(place, record)


def _make(place: Path, record: Callable[[str], None]) -> None:
    """An empty file where the JVM can write none: nobody tries again."""
    beside = place.with_name(f"{place.name}.{os.getpid()}")
    try:
        record(f"-XX:ArchiveClassesAtExit={beside}")
        beside.touch()
        beside.rename(place)
    finally:
        beside.unlink(missing_ok=True)
