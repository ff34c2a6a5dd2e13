"""The classes of Spark's JVM as an archive that it maps into memory: a Spark comes to its first job with half the processor time (tests/live/classes.py).

SPARK_SUBMIT_OPTS says so to each driver, here and in the programs that tests start, and spark.executor.extraJavaOptions to executors of a cluster. The archive
is of the jars of one PySpark, with the flags of one JVM; the first test that needs a Spark makes it, by a run of this module as a program.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.live.classes import archive_flags

__all__ = ["QUICK", "archive", "use_archive"]

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Of each Spark that tests start: it lives shortly, so an optimising compiler and parallel collectors take more than they give."""
OPTIONS = "SPARK_SUBMIT_OPTS"
ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 200.0


def use_archive() -> None:
    """Have each Spark that this process starts from now on, or a program of its, map the archive; make it if it is not there."""
    given = os.environ.get(OPTIONS, QUICK)
    if "-XX:SharedArchiveFile" not in given:
        os.environ[OPTIONS] = " ".join([given, *map(shlex.quote, archive())])


@cache
def archive() -> list[str]:
    """Flags of java; none where there is no archive: all goes on as well, only slower."""
    try:
        return archive_flags(f"spark-{_jars()}", _record)
    except subprocess.TimeoutExpired:  # of a busy machine: another process may try again
        return []


def _jars() -> str:
    """Another word for other jars, or the same in another place: the JVM compares both."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent / "jars"
    found = sorted(f"{jar.name} {jar.stat().st_mtime_ns}" for jar in folder.iterdir())
    return sha256("\n".join([str(folder), *found]).encode()).hexdigest()[:12]


def _record(flag: str) -> None:
    """Whatever its status: what cannot be played here fails in a test. Raises TimeoutExpired."""
    options = f"{os.environ.get(OPTIONS, QUICK)} {shlex.quote(flag)} -Xlog:disable"
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, OPTIONS: options, "PYTHONPATH": path, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment["PYSPARK_PYTHON"] = str(ROOT / "examples" / "spark_python.sh")
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    command = [sys.executable, "-m", "tests.spark.classes"]
    with tempfile.TemporaryDirectory() as folder:
        with open(os.devnull, "r+b") as nothing:
            program = subprocess.Popen(
                [*command, folder], env=environment, cwd=folder, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True
            )
        try:
            program.wait(LIMIT_S)
        except BaseException:
            os.killpg(program.pid, signal.SIGKILL)  # its JVM, too
            program.wait()
            Path(flag.partition("=")[2]).unlink(missing_ok=True)
            raise


# -- what loads the classes of a batch, of a stream and of their Python -----------------------------------------------------
def load(folder: Path) -> None:
    """Play a little of all on a Kafka in this process; then end the JVM, which writes its archive, and wait for that."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    import gkafka.spark
    from gkafka.testing import MockCluster

    builder = SparkSession.builder.master("local[2]").config("spark.driver.host", "127.0.0.1").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "2").config("spark.ui.showConsoleProgress", "false")
    spark = builder.config("spark.log.level", "OFF").getOrCreate()
    gateway = SparkContext._gateway
    assert gateway is not None
    try:
        with MockCluster(topics={"read": 2, "written": 2}) as cluster:
            options = {"kafka.bootstrap.servers": cluster.bootstrap}
            gkafka.spark.register(spark)
            rows = spark.sql("select concat('k', id) as key, concat('v', id) as value from range(0, 20, 1, 2)")
            rows.write.format("gkafka").options(**options).option("topic", "read").mode("append").save()
            batch = spark.read.format("gkafka").options(**options).option("subscribe", "read").load()
            assert len(batch.collect()) == 20
            assert batch.exceptAll(batch).count() == 0
            stream = spark.readStream.format("gkafka").options(**options).option("subscribe", "read").option("startingOffsets", "earliest")
            writers: list[Callable[[Any], Any]] = [
                lambda writer: writer.foreachBatch(lambda frame, number: frame.collect()),
                lambda writer: writer.format("gkafka").options(**options).option("topic", "written"),
            ]
            for number, of in enumerate(writers):
                writer = of(stream.load().select("key", "value", "partition").writeStream)
                query = writer.option("checkpointLocation", str(folder / f"checkpoint-{number}")).trigger(availableNow=True).start()
                assert query.awaitTermination(60)
    finally:
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()


if __name__ == "__main__":
    load(Path(sys.argv[1]))
