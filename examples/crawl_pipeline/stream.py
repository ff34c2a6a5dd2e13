#!/usr/bin/env python3
"""Follow the crawl's topics in Spark Structured Streaming, until SIGTERM: then take in what Kafka has left, and end.

Three queries read Kafka through readStream.format("gkafka"), none takes more than --cap records at once, and each commits its progress to a group
of its own, so that anything that shows a group's lag shows theirs:

    archive   pages, links   every record as it is                                        -> Parquet, appended
    inlinks   links          in-links of each path so far, in Update mode, exactly once   -> the compacted topic `inlinks`
    windows   pages, clock   for each second of event time: pages, bytes, p95 of latency  -> Parquet, appended when the watermark has passed

Offsets, counts and open windows are in the checkpoints of the output folder. Whatever ends the program, kill -9 included: started again with the
same folder, it goes on where it was, and no record counts twice or not at all.

SIGTERM closes the windows, too: when all has been read, a record on `clock` says that nothing older will come. progress.jsonl holds Spark's own
figures of each batch.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import batch
from names import ARCHIVE, INLINKS, WINDOWS, Names, create_topics, parser_of, positive
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from records import LINK, PAGE, header, is_inside, session, value_of

import gkafka.spark
from gkafka import KafkaClient
from gkafka.exceptions import KafkaException

LATE_S = 30  # a record that is older than the newest by less than this still counts
POLL_S = 0.5
MOST_LATE = 20  # times: each is Spark's 10 s, which a machine with much else to do may pass in a row
LATE_PYTHON = "Python worker failed to connect back"
WINDOW_NEEDS = "value binary, timestamp timestamp"
BEGUN = ("Getting offsets", "Waiting", "Processing", "No new data")  # how Spark calls what a query does then
P95_ACCURACY = 10_000  # exact for windows of fewer pages


class QueryFailed(Exception):
    """A query has ended; the text is Spark's."""


# -- what is computed -----------------------------------------------------------------------------------------------------------------------
def as_it_is(records: DataFrame) -> DataFrame:
    """Every record of any topic: where it is, when it was produced, what it holds."""
    return records.select(
        "topic",
        "partition",
        "offset",
        F.col("timestamp").alias("produced"),
        F.col("key").cast("string").alias("key"),
        F.col("value").cast("string").alias("value"),
        header("status").alias("status"),
        header("depth").alias("depth"),
    )


def inlinks_so_far(links: DataFrame) -> DataFrame:
    """key: a path, value: the links to it from other pages, in decimal; as records for Kafka."""
    link = links.select(value_of(LINK).alias("link")).select("link.src", "link.dst")
    counted = link.where(is_inside("dst") & (F.col("src") != F.col("dst"))).groupBy("dst").count()
    return counted.select(F.col("dst").alias("key"), F.col("count").cast("string").alias("value"))


def per_window(pages: DataFrame, seconds: int) -> DataFrame:
    """start, pages, bytes, ok, p95_ms: of each window of event time. A record without a value only moves the time."""
    page = pages.select("timestamp", value_of(PAGE).alias("page")).withWatermark("timestamp", f"{LATE_S} seconds")
    window = F.window("timestamp", f"{seconds} seconds")
    counted = page.groupBy(window).agg(
        F.count("page.status").alias("pages"),
        F.coalesce(F.sum("page.bytes"), F.lit(0)).alias("bytes"),
        F.count_if(F.col("page.status") == 200).alias("ok"),
        F.percentile_approx("page.ms", 0.95, P95_ACCURACY).alias("p95_ms"),
    )
    return counted.select(F.col("window.start").alias("start"), "pages", "bytes", "ok", "p95_ms")


# -- the queries ----------------------------------------------------------------------------------------------------------------------------
class Stream:
    """The three queries, their checkpoints and what they write, under one folder."""

    def __init__(self, spark: SparkSession, args: Any, names: Names) -> None:
        self.spark = spark
        self.args = args
        self.names = names
        self.queries: dict[str, StreamingQuery] = {}
        self._starts: dict[str, Callable[[], StreamingQuery]] = {
            ARCHIVE: lambda: self._to_parquet(ARCHIVE, as_it_is(self._read(ARCHIVE)), by="topic"),
            INLINKS: lambda: self._to_kafka(INLINKS, inlinks_so_far(self._read(INLINKS, "value binary")), names.inlinks),
            WINDOWS: lambda: self._to_parquet(WINDOWS, per_window(self._read(WINDOWS, WINDOW_NEEDS), args.window)),
        }
        self._late: Counter[str] = Counter()

    def start(self) -> None:
        """One after the other: each starts Python processes, of which the machine may have enough to do. Raises QueryFailed."""
        for name, start in self._starts.items():
            self.queries[name] = start()
            while not self.queries[name].status["message"].startswith(BEGUN):
                self.check()
                time.sleep(0.05)

    def _read(self, query: str, schema: str | None = None) -> DataFrame:
        """schema: the columns that the query needs; the others are not even decoded. None: all, headers included."""
        reader = self.spark.readStream.format("gkafka").schema(schema) if schema else self.spark.readStream.format("gkafka")
        return (
            reader.option("kafka.bootstrap.servers", self.args.hosts)
            .option("subscribe", ",".join(self.names.read_by(query)))
            .option("startingOffsets", "earliest")
            .option("includeHeaders", str(schema is None).lower())
            .option("maxOffsetsPerTrigger", self.args.cap)
            .option("commitGroup", self.names.group(query))
            .option("commitIntervalMs", 200)
            .load()
        )

    def _to_parquet(self, query: str, frame: DataFrame, by: str | None = None) -> StreamingQuery:
        writer = frame.writeStream.format("parquet").outputMode("append").queryName(query).trigger(processingTime=self.args.trigger)
        writer = writer.partitionBy(by) if by else writer
        return writer.option("checkpointLocation", self._checkpoint(query)).start(str(self.args.out / f"{query}.parquet"))

    def _to_kafka(self, query: str, frame: DataFrame, topic: str) -> StreamingQuery:
        return gkafka.spark.write_stream(
            frame,
            {
                "kafka.bootstrap.servers": self.args.hosts,
                "topic": topic,
                "exactlyOnce": "transactional",
                "transactionalIdPrefix": self.names.group(query),
                "checkpointLocation": self._checkpoint(query),
            },
            mode="update",
            query_name=query,
            trigger={"processingTime": self.args.trigger},
        )

    def _checkpoint(self, query: str) -> str:
        return str(self.args.out / "checkpoints" / query)

    def check(self) -> None:
        """Start a query again whose Python process was late: Spark waits for it no longer than 10 s. Raises QueryFailed for any other end."""
        for name, query in self.queries.items():
            if not query.isActive:
                if LATE_PYTHON not in str(query.exception()) or self._late[name] == MOST_LATE:
                    raise QueryFailed(f"{name}: {query.exception() or 'has ended'}")
                self._late[name] += 1
                self.queries[name] = self._starts[name]()

    def finish(self) -> None:
        """Take in all that Kafka has, close the windows, end."""
        for query in self.queries.values():
            query.processAllAvailable()
        close_windows(self.args.hosts, self.names.clock, int((time.time() + LATE_S + self.args.window) * 1000) + 1)
        self.queries[WINDOWS].processAllAvailable()
        for query in self.queries.values():
            query.stop()


def close_windows(hosts: str, clock: str, at: int) -> None:
    """at: ms since the epoch, by the watermark's delay beyond the last window that shall close. All before it has been read: nothing is late."""
    with KafkaClient(hosts, handler="threading") as client, client.get_producer() as producer:
        producer.produce(clock, None, key=b"closed", timestamp=at)


class ProgressLog:
    """Spark's figures of each batch, a line of JSON for each; those of an earlier run of the program stay."""

    def __init__(self, path: Path) -> None:
        self._path = path
        if path.exists():  # whoever wrote it may have been killed within a line
            whole = path.read_bytes()
            path.write_bytes(whole[: whole.rfind(b"\n") + 1])
        self._seen: set[tuple[str, int]] = set()

    def take(self, queries: Mapping[str, StreamingQuery]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            for name, query in queries.items():
                for progress in query.recentProgress:
                    told = json.loads(progress.json)
                    if told["numInputRows"] and (told["runId"], told["batchId"]) not in self._seen:
                        self._seen.add((told["runId"], told["batchId"]))
                        file.write(json.dumps(line_of(name, told)) + "\n")


def line_of(query: str, told: Mapping[str, Any]) -> dict[str, Any]:
    """query, run, batch, at (when it began, ISO 8601), rows, ms, parts (ms of each step), late (rows that came too late for their window)."""
    states = told.get("stateOperators") or []
    return {
        "query": query,
        "run": told["runId"],
        "batch": told["batchId"],
        "at": told["timestamp"],
        "rows": told["numInputRows"],
        "ms": told["durationMs"].get("triggerExecution", 0),
        "parts": told["durationMs"],
        "late": sum(state.get("numRowsDroppedByWatermark", 0) for state in states),
    }


# -- the program ----------------------------------------------------------------------------------------------------------------------------
class Asked:
    """Whether SIGTERM has come."""

    def __init__(self) -> None:
        self.to_end = False
        signal.signal(signal.SIGTERM, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.to_end = True


def follow(stream: Stream, log: ProgressLog, asked: Asked) -> None:
    stream.start()
    print(f"Spark {stream.spark.version} follows {', '.join(stream.queries)}", flush=True)
    while not asked.to_end:
        time.sleep(POLL_S)
        log.take(stream.queries)
        stream.check()
    stream.finish()
    log.take(stream.queries)


def main() -> int:
    args = arguments()
    names = Names(args.prefix)
    asked = Asked()
    args.out.mkdir(parents=True, exist_ok=True)
    try:
        with KafkaClient(args.hosts, handler="threading") as client:
            create_topics(client, names, args.partitions)
        spark = session("crawl-stream", args.cores, args.out / "spark-scratch")
        try:
            follow(Stream(spark, args, names), ProgressLog(args.out / "progress.jsonl"), asked)
            if args.then_batch:
                batch.compute(spark, args.hosts, names, args.out)
        finally:
            spark.stop()
    except (KafkaException, PySparkException, QueryFailed) as exc:
        print(f"stream.py: {type(exc).__name__}: {exc}", file=sys.stderr)
        return 1
    return 0


def arguments() -> Any:
    parser = parser_of(__doc__ or "")
    parser.add_argument("--partitions", type=positive, default=4, help="of topics that are not there yet (default: %(default)s)")
    parser.add_argument("--cap", type=positive, default=50_000, metavar="RECORDS", help="of a query at once (default: %(default)s)")
    parser.add_argument("--trigger", default="200 milliseconds", help="how often a query looks for more (default: %(default)s)")
    parser.add_argument("--then-batch", action="store_true", help="after SIGTERM, do what batch.py does, in this Spark")
    parser.add_argument("--window", type=positive, default=1, metavar="SECONDS", help="of event time (default: %(default)s)")
    parser.add_argument("--cores", type=positive, default=min(4, os.cpu_count() or 1), help="Spark's workers (default: %(default)s)")
    parser.add_argument(
        "--out", type=Path, default=Path("demo-out"), metavar="FOLDER", help="results and checkpoints (default: %(default)s)"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
