"""One Spark session that measures one thing, for benchmarks/spark.py: format("gkafka") beside format("kafka"), in turn, on the same broker.

The first runs of each are thrown away: a cold run costs several warm ones. What was read or written is compared first. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])  # Spark's workers too
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

import pyspark  # noqa: E402
from pyspark.sql import DataFrame, SparkSession  # noqa: E402

from tests.spark.connector import connector_jars  # noqa: E402

QUERY_S = 300
MICRO_ROWS = 1000
_numbers = itertools.count(1)
Result = dict[str, Any]


def session(*, connector: bool = True) -> SparkSession:
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("gkafka-bench")
        .config("spark.driver.memory", "2g")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "OFF")
        .config("spark.sql.streaming.numRecentProgressUpdates", "1000")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
    )
    if connector:
        builder = builder.config("spark.jars", ",".join(map(str, connector_jars(pyspark.__version__))))
    return builder.getOrCreate()


# -- reading -----------------------------------------------------------------------------------------------------------------
def frame(spark: SparkSession, source: str, bootstrap: str, topic: str, **options: str) -> DataFrame:
    if source == "confluent":
        from benchmarks.confluent_source import ConfluentSource

        spark.dataSource.register(ConfluentSource)
    reader = spark.read.format(source).option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic).options(**options)
    return (reader if source == "confluent" else reader.option("startingOffsets", "earliest")).load()


def summary(df: DataFrame, *, with_times: bool = True) -> Result:
    row = df.selectExpr(
        "count(*) as rows",
        "count(distinct partition, offset) as places",
        "sum(crc32(value)) as checksum",
        "sum(length(key)) as key_bytes",
        *(["sum(unix_millis(timestamp) % 1000003) as times"] if with_times else []),
    ).first()
    assert row is not None
    return row.asDict()


def to_noop(df: DataFrame) -> float:
    began = time.perf_counter()
    df.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def read_once(spark: SparkSession, bootstrap: str, topic: str, source: str) -> float:
    return to_noop(frame(spark, source, bootstrap, topic))


def in_turn(given: argparse.Namespace, runs: dict[str, Callable[[], float]]) -> Result:
    """seconds of each, in turn, each as often first as another; without the cold runs. cpu: of Spark and its Python workers, in seconds."""
    seen: dict[str, list[float]] = {name: [] for name in runs}
    used: dict[str, list[float]] = {name: [] for name in runs}
    names = list(runs)
    for n in range(given.cold + given.runs):
        for name in names[n % len(names) :] + names[: n % len(names)]:
            before = cpu_s()
            seen[name].append(runs[name]())
            used[name].append(cpu_s() - before)
    return {what: {name: of[given.cold :] for name, of in rows.items()} for what, rows in (("seconds", seen), ("cpu", used))}


def read(spark: SparkSession, given: argparse.Namespace) -> Result:
    """Sources side by side on one topic."""
    seen = {name: summary(frame(spark, name, given.bootstrap, given.topic)) for name in given.sources}
    same = all(what == seen[given.sources[0]] for what in seen.values())
    times = in_turn(given, {name: partial(read_once, spark, given.bootstrap, given.topic, name) for name in given.sources})
    return {"same": same, "seen": seen, **times}


def first_rows(spark: SparkSession, given: argparse.Namespace) -> Result:
    """limit(10) of all there is."""

    def run(name: str) -> float:
        df = frame(spark, name, given.bootstrap, given.topic)
        began = time.perf_counter()
        assert len(df.limit(10).collect()) == 10
        return time.perf_counter() - began

    return {"same": True, **in_turn(given, {name: partial(run, name) for name in given.sources})}


def tasks(spark: SparkSession, given: argparse.Namespace) -> Result:
    """A task for each partition of few rows, beside as many tasks of a source that hands out nothing."""
    from benchmarks.toy_source import ToySource

    spark.dataSource.register(ToySource)
    ours = frame(spark, "gkafka", given.bootstrap, given.topic, tasks="partitions")
    empty = spark.read.format("toy").options(rows=0, tasks=given.partitions).load()
    assert ours.rdd.getNumPartitions() == empty.rdd.getNumPartitions() == given.partitions
    return {"same": True, **in_turn(given, {"gkafka": partial(to_noop, ours), "toy": partial(to_noop, empty)})}


def same(spark: SparkSession, given: argparse.Namespace) -> Result:
    """How many rows one has that the other one has not, headers included: read in a batch, and by gkafka in a stream of several batches."""
    frames = {
        name: spark.read.format(name)
        .option("kafka.bootstrap.servers", given.bootstrap)
        .option("subscribe", given.topic)
        .option("includeHeaders", "true")
        .load()
        for name in ("kafka", "gkafka")
    }
    with folder() as files, folder() as checkpoint:
        options = {"includeHeaders": "true", **({"maxOffsetsPerTrigger": given.per_trigger} if given.per_trigger else {})}
        run_stream(
            stream_frame(spark, "gkafka", given, **options)
            .writeStream.format("parquet")
            .option("path", files)
            .option("checkpointLocation", checkpoint)
        )
        frames["gkafka in a stream"] = spark.read.parquet(files)
        theirs = frames.pop("kafka").cache()
        found = {}
        for name, df in frames.items():
            ours = df.select(theirs.columns)
            found[f"{name} only"], found[f"not in {name}"] = ours.exceptAll(theirs).count(), theirs.exceptAll(ours).count()
    return {"rows": theirs.count(), "differences": found}


def codecs(spark: SparkSession, given: argparse.Namespace) -> Result:
    """gkafka on several topics that hold the same, compressed in several ways."""
    topics = given.topic.split(",")
    seen = {topic: summary(frame(spark, "gkafka", given.bootstrap, topic), with_times=False) for topic in topics}
    same = all(what == seen[topics[0]] for what in seen.values())
    times = in_turn(given, {topic: partial(read_once, spark, given.bootstrap, topic, "gkafka") for topic in topics})
    return {"same": same, "seen": seen, **times}


def cold(spark: SparkSession, given: argparse.Namespace) -> Result:
    """The first read of a session."""
    return {"seconds": to_noop(frame(spark, given.sources[0], given.bootstrap, given.topic))}


# -- writing -----------------------------------------------------------------------------------------------------------------
def new_topic(given: argparse.Namespace) -> str:
    """Each partition has a leader that answers: what Java's producer was told without one, it may not look for again before its records are too old."""
    from gkafka import KafkaClient
    from gkafka.common import OffsetType

    name = f"written-{os.getpid()}-{next(_numbers)}"
    with KafkaClient(given.bootstrap) as client:
        client.create_topic(name, given.partitions)
        client.list_offsets({(name, p): OffsetType.LATEST for p in range(given.partitions)})
    return name


def end_of(given: argparse.Namespace, topic: str) -> None:
    """The topic has as many records as were to be written, and is deleted."""
    from gkafka import KafkaClient
    from gkafka.common import IsolationLevel, OffsetType

    with KafkaClient(given.bootstrap) as client:
        places: Any = {(topic, p): OffsetType.LATEST for p in range(given.partitions)}
        ends = client.list_offsets(places, isolation=IsolationLevel.READ_COMMITTED)
        client.admin().delete_topics([topic])
    written = sum(ends.values())
    assert given.rows <= written <= given.rows + 16, f"{topic}: {written} offsets are taken by {given.rows} rows"  # markers take some


def source_rows(spark: SparkSession, given: argparse.Namespace) -> DataFrame:
    """key (16 B) and value (100 B) as the topic has them, in memory."""
    rows = frame(spark, "gkafka", given.bootstrap, given.topic).select("key", "value").cache()
    assert rows.count() == given.rows
    return rows


def write(spark: SparkSession, given: argparse.Namespace) -> Result:
    rows = source_rows(spark, given)

    def run(name: str) -> float:
        topic = new_topic(given)
        writer = rows.write.format(name).option("kafka.bootstrap.servers", given.bootstrap).option("topic", topic).mode("append")
        began = time.perf_counter()
        writer.save()
        took = time.perf_counter() - began
        end_of(given, topic)
        return took

    for name in given.sources:
        _same_rows(spark, given, rows, name)
    return {"same": True, **in_turn(given, {name: partial(run, name) for name in given.sources})}


def _same_rows(spark: SparkSession, given: argparse.Namespace, rows: DataFrame, name: str) -> None:
    """What this sink writes is what the JVM connector reads."""
    topic = new_topic(given)
    rows.write.format(name).option("kafka.bootstrap.servers", given.bootstrap).option("topic", topic).mode("append").save()
    sums = ("count(*)", "sum(crc32(value))", "sum(crc32(key))")
    found, wanted = (df.selectExpr(*sums).first() for df in (frame(spark, "kafka", given.bootstrap, topic), rows))
    assert found == wanted, f"{name} wrote {found}, not {wanted}"
    end_of(given, topic)


# -- streams -----------------------------------------------------------------------------------------------------------------
@contextlib.contextmanager
def folder() -> Iterator[str]:
    name = tempfile.mkdtemp(prefix="gkafka-bench-")
    try:
        yield name
    finally:
        shutil.rmtree(name, ignore_errors=True)


def run_stream(writer: Any) -> tuple[float, list[dict[str, Any]]]:
    """Seconds from start() to the end of AvailableNow, and the progress of each batch."""
    began = time.perf_counter()
    query = writer.trigger(availableNow=True).start()
    if not query.awaitTermination(QUERY_S):
        query.stop()
        raise TimeoutError(f"the query has not ended after {QUERY_S} s")
    return time.perf_counter() - began, [json.loads(p.json) if not isinstance(p, dict) else p for p in query.recentProgress]


def stream_frame(spark: SparkSession, source: str, given: argparse.Namespace, **options: object) -> DataFrame:
    if source == "toy":
        from benchmarks.toy_source import ToySource

        spark.dataSource.register(ToySource)
        rows = int(str(options["maxOffsetsPerTrigger"]))
        return spark.readStream.format(source).options(rows=rows, batches=given.rows // rows).load()
    reader = spark.readStream.format(source).option("kafka.bootstrap.servers", given.bootstrap).option("subscribe", given.topic)
    for name, value in {"startingOffsets": "earliest", **options}.items():
        reader = reader.option(name, str(value))
    return reader.load()


def stream(spark: SparkSession, given: argparse.Namespace) -> Result:
    """A new query reads what there is, into noop."""
    batch_s: dict[str, list[float]] = {name: [] for name in given.sources}

    def run(name: str) -> float:
        with folder() as checkpoint:
            capped = {"maxOffsetsPerTrigger": given.per_trigger} if given.per_trigger else {}
            writer = stream_frame(spark, name, given, **capped).writeStream.format("noop").option("checkpointLocation", checkpoint)
            took, progress = run_stream(writer)
        rows = sum(p["numInputRows"] for p in progress)
        assert rows == given.rows, f"{name}: {rows} rows were read"
        batch_s[name].append(sum(p["durationMs"]["addBatch"] for p in progress if "addBatch" in p["durationMs"]) / 1000)
        return took

    times = in_turn(given, {name: partial(run, name) for name in given.sources})
    return {"same": True, **times, "add_batch": {name: seen[given.cold :] for name, seen in batch_s.items()}}


def micro(spark: SparkSession, given: argparse.Namespace) -> Result:
    """Milliseconds of each micro-batch of 1,000 rows, the first third of a query left out, and the first query of each source."""
    found: dict[str, list[float]] = {name: [] for name in given.sources}
    for n in range(1 + given.runs):
        for name in given.sources:
            with folder() as checkpoint:
                df = stream_frame(spark, name, given, maxOffsetsPerTrigger=MICRO_ROWS)
                _, progress = run_stream(df.writeStream.format("noop").option("checkpointLocation", checkpoint))
            full = [p["durationMs"]["triggerExecution"] for p in progress if p["numInputRows"] == MICRO_ROWS]
            found[name] += full[len(full) // 3 :] if n else []
    return {"ms": found}


def transactional(spark: SparkSession, given: argparse.Namespace) -> Result:
    """A stream of Parquet files into a topic, plain and exactly once; seconds of the batch itself."""
    with folder() as files:
        source_rows(spark, given).repartition(2).write.mode("overwrite").parquet(files)

        def run(mode: str) -> float:
            topic = new_topic(given)
            with folder() as checkpoint:
                df = spark.readStream.schema("key binary, value binary").parquet(files)
                writer = df.writeStream.format("gkafka").option("kafka.bootstrap.servers", given.bootstrap).option("topic", topic)
                _, progress = run_stream(writer.option("exactlyOnce", mode).option("checkpointLocation", checkpoint))
            end_of(given, topic)
            return sum(float(p["durationMs"].get("addBatch", 0)) for p in progress) / 1000

        # Files come in any order into the same task partitions only without adaptive execution; the sink asks for it.
        spark.conf.set("spark.sql.adaptive.streaming.stateless.enabled", "false")
        return {"same": True, **in_turn(given, {mode: partial(run, mode) for mode in ("none", "transactional")})}


# -- memory ------------------------------------------------------------------------------------------------------------------
def memory(spark: SparkSession, given: argparse.Namespace) -> Result:
    """Peak resident MB of the largest Python worker, after reads of these topics."""
    topics = given.topic.split(",")
    for topic in [*topics, topics[0]]:
        if given.sources == ["toy"]:
            from benchmarks.toy_source import ToySource

            spark.dataSource.register(ToySource)
            df = spark.read.format("toy").option("rows", given.rows).load()
        else:
            df = frame(spark, given.sources[0], given.bootstrap, topic)
        to_noop(df)
    return {"peak_mb": max(peak_kb(pid) for pid in descendants(os.getpid()) if b"pyspark.daemon" in command_of(pid)) / 1024}


def descendants(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            children.setdefault(int(path.read_text().rsplit(")", 1)[1].split()[1]), []).append(int(path.parent.name))
    found, left = [], [pid]
    while left:
        news = children.get(left.pop(), [])
        found += news
        left += news
    return found


def cpu_s() -> float:
    """Of this process and all below it, those that have ended included."""
    ticks = 0
    for pid in [os.getpid(), *descendants(os.getpid())]:
        with contextlib.suppress(OSError):
            ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def command_of(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def peak_kb(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
    return 0


MODES: dict[str, Callable[[SparkSession, argparse.Namespace], Result]] = {
    "read": read,
    "codecs": codecs,
    "first_rows": first_rows,
    "tasks": tasks,
    "same": same,
    "cold": cold,
    "write": write,
    "stream": stream,
    "micro": micro,
    "transactional": transactional,
    "memory": memory,
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--partitions", type=int, default=2, help="of topics that are written, or of the one that is read")
    parser.add_argument("--per-trigger", type=int, default=0, help="maxOffsetsPerTrigger of a stream; 0: none")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--cold", type=int, default=4, help="runs that are thrown away")
    parser.add_argument("--sources", default="kafka,gkafka", type=lambda text: text.split(","))
    given = parser.parse_args(arguments)
    spark = session(connector="kafka" in given.sources)
    try:
        result = MODES[given.mode](spark, given)
    finally:
        spark.stop()
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
