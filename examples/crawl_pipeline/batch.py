#!/usr/bin/env python3
"""What a stream cannot know before its end: read the crawl's topics in PySpark by batch, through format("gkafka"), and compute the site's figures.

Dead links are a left-anti join of `links` with the pages that were answered; digests, outside hosts, latencies and all the rest come with them.
What stream.py wrote meanwhile is held against the topics: is each record once in its archive, and how long did it take to get there?

Writes into the output folder: dead.parquet, inlinks.parquet, and tables.json: every figure of the report, under the names that verify.py
compares. Status and depth are taken from the records' headers, paths from their keys, all else from their values: so the comparison covers
each part of a record.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from names import ARCHIVE, WINDOWS, Names, parser_of, positive
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from records import LINK, PAGE, decoded, is_inside, session

PERCENTILES = (0.5, 0.9, 0.95, 0.99, 1.0)
BIN_MS = 250  # of the timeline


# -- from Kafka --------------------------------------------------------------------------------------------------------------------------
def read_topic(spark: SparkSession, hosts: str, topic: str, starting_offsets: str = "earliest") -> DataFrame:
    """The records of a topic as they are: binary key and value, headers, offsets."""
    return (
        spark.read.format("gkafka")
        .option("kafka.bootstrap.servers", hosts)
        .option("subscribe", topic)
        .option("startingOffsets", starting_offsets)
        .option("includeHeaders", "true")
        .load()
    )


# -- the figures ------------------------------------------------------------------------------------------------------------------------
def is_page() -> Column:
    return (F.col("status") == 200) & F.lower("path").rlike(r"\.html?$")


def inlinks(pages: DataFrame, links: DataFrame) -> DataFrame:
    """path, inlinks: of each path that was fetched, 0 included."""
    counted = (
        links.where(is_inside("dst") & (F.col("src") != F.col("dst")))
        .groupBy(F.col("dst").alias("path"))
        .agg(F.count("*").alias("inlinks"))
    )
    return pages.select("path", "title").join(counted, "path", "left").fillna(0, ["inlinks"])


def dead_links(pages: DataFrame, links: DataFrame) -> DataFrame:
    """src, dst, times: the links to paths that were fetched and not found."""
    fetched = pages.select(F.col("path").alias("dst"))
    found = pages.where("status <> 404").select(F.col("path").alias("dst"))
    to_nothing = links.where(is_inside("dst")).join(fetched, "dst", "left_semi").join(found, "dst", "left_anti")
    return to_nothing.groupBy("src", "dst").agg(F.count("*").alias("times"))


def per_page(pages: DataFrame, links: DataFrame) -> DataFrame:
    """path, outlinks, digest: of each page."""
    line = F.concat("dst", F.lit("\t"), "anchor")
    counted = links.groupBy(F.col("src").alias("path")).agg(
        F.count_if(is_inside("dst") & (F.col("src") != F.col("dst"))).alias("outlinks"),
        F.sha2(F.concat_ws("\n", F.sort_array(F.collect_list(line))), 256).alias("digest"),
    )
    nothing = F.sha2(F.lit(""), 256)
    joined = pages.where(is_page()).select("path").join(counted, "path", "left")
    return joined.select("path", F.coalesce("outlinks", F.lit(0)).alias("outlinks"), F.coalesce("digest", nothing).alias("digest"))


def totals(pages: DataFrame, links: DataFrame, dead: DataFrame) -> dict[str, int]:
    of_pages = pages.agg(F.count("*"), F.count_if(is_page()), F.coalesce(F.sum("bytes"), F.lit(0))).first()
    to_self = is_inside("dst") & (F.col("src") == F.col("dst"))
    of_links = links.agg(F.count("*"), F.count_if(is_inside("dst")), F.count_if(~is_inside("dst")), F.count_if(to_self)).first()
    of_dead = dead.agg(F.coalesce(F.sum("times"), F.lit(0))).first()
    names = ("fetched", "pages", "bytes", "links", "links_inside", "links_outside", "links_to_self", "links_dead")
    return dict(zip(names, [*(of_pages or ()), *(of_links or ()), *(of_dead or ())], strict=True))


def outside_hosts(links: DataFrame) -> DataFrame:
    host = F.regexp_extract("dst", r"(?i)^(?:https?:)?//([^/]*)", 1)
    has_host = F.col("dst").rlike(r"(?i)^(?:https?:)?//")
    scheme = F.regexp_extract("dst", r"^([^:]*:)", 1)
    return links.where(~is_inside("dst")).groupBy(F.lower(F.when(has_host, host).otherwise(scheme)).alias("host")).count()


def latency(pages: DataFrame) -> dict[str, Any]:
    """Milliseconds from the request to the last byte, in the crawler."""
    row = pages.agg(F.count("ms"), F.expr(f"percentile(ms, array{PERCENTILES})"), F.avg("ms"), F.collect_list("ms")).first()
    assert row
    slowest = pages.orderBy(F.desc("ms")).select("path", "ms", "bytes").limit(10)
    values = {f"p{share * 100:g}": value for share, value in zip(PERCENTILES, row[1] or [], strict=False)}
    return {"count": row[0], "percentiles": values, "mean": row[2], "values": sorted(row[3]), "slowest": rows(slowest)}


def timeline(records: DataFrame) -> list[list[Any]]:
    """Per bin of BIN_MS since the first record, by the time it was produced: milliseconds, pages, links, bytes of keys and values."""
    produced = F.unix_millis("stored")
    first = records.agg(F.min(produced)).first()
    at = (F.floor((produced - (first[0] if first else 0)) / BIN_MS) * BIN_MS).alias("at")
    counted = records.groupBy(at).agg(F.count_if("of_pages"), F.count_if(~F.col("of_pages")), F.sum("size"))
    return rows(counted.orderBy("at"))


def partitions(records: DataFrame) -> list[list[Any]]:
    """topic, partition, records, first offset, last offset, bytes of keys and values."""
    spread = records.groupBy("topic", "partition").agg(F.count("*"), F.min("offset"), F.max("offset"), F.sum("size"))
    return rows(spread.orderBy("topic", "partition"))


def rows(frame: DataFrame) -> list[list[Any]]:
    return [list(row) for row in frame.collect()]


def mapping(frame: DataFrame) -> dict[str, Any]:
    """A frame of two columns as a JSON object."""
    return {str(key): value for key, value in frame.collect()}


def tables(pages: DataFrame, links: DataFrame, into: DataFrame, dead: DataFrame) -> dict[str, Any]:
    """Every figure, ready for JSON. pages, links: as `decoded` gives them; into, dead: what `inlinks` and `dead_links` make of them."""
    each_page = per_page(pages, links).cache()
    stored = ["topic", "partition", "offset", "stored", "size"]
    records = pages.select(F.lit(True).alias("of_pages"), *stored).unionAll(links.select(F.lit(False).alias("of_pages"), *stored)).cache()
    described = pages.select("path", "status", "depth", "bytes", "title").collect()
    return {
        "totals": totals(pages, links, dead),
        "status": mapping(pages.groupBy("header_status").count()),
        "depth": mapping(pages.groupBy("header_depth").count()),
        "links_by_depth": mapping(links.groupBy("header_depth").count()),
        "paths": {path: [status, depth, size, title] for path, status, depth, size, title in described},
        "inlinks": mapping(into.select("path", "inlinks")),
        "outlinks": mapping(each_page.select("path", "outlinks")),
        "digests": mapping(each_page.select("path", "digest")),
        "dead": rows(dead.orderBy("src", "dst")),
        "outside": mapping(outside_hosts(links)),
        "inlink_degrees": mapping(into.groupBy("inlinks").count()),
        "latency": latency(pages),
        "timeline": timeline(records),
        "timeline_bin_ms": BIN_MS,
        "partitions": partitions(records),
    }


# -- what the stream has written -----------------------------------------------------------------------------------------------------------
def windows(spark: SparkSession, out: Path) -> list[list[Any]]:
    """Of each window of stream.py: ms since the epoch, pages, bytes, answers with 200, p95 of latency in ms."""
    closed = spark.read.parquet(str(out / f"{WINDOWS}.parquet")).where("pages > 0")
    return rows(closed.select(F.unix_millis("start").alias("at"), "pages", "bytes", "ok", "p95_ms").orderBy("at"))


def archive(spark: SparkSession, out: Path, records: DataFrame) -> dict[str, Any]:
    """Is each record of the topics once in stream.py's archive? And the delay from the producer's time until its Parquet file was whole.

    records: of both topics, with topic, partition, offset. Per second since the first record: ms, records, p50 and worst of the delay in ms.
    """
    delay = (F.unix_millis("_metadata.file_modification_time") - F.unix_millis("produced")).alias("delay")
    kept = spark.read.parquet(str(out / f"{ARCHIVE}.parquet")).select("topic", "partition", "offset", "produced", delay).cache()
    where = ["topic", "partition", "offset"]
    once = kept.select(where).distinct().cache()
    count, different = kept.count(), once.count()
    first = kept.agg(F.min(F.unix_millis("produced"))).first()
    second = (F.floor((F.unix_millis("produced") - (first[0] if first else 0)) / 1000) * 1000).alias("at")
    shares = kept.agg(F.expr(f"percentile(delay, array{PERCENTILES})")).first()
    return {
        "records": count,
        "duplicates": count - different,
        "lost": records.select(where).join(once, where, "left_anti").count(),
        "foreign": once.join(records.select(where), where, "left_anti").count(),
        "delay": {f"p{share * 100:g}": value for share, value in zip(PERCENTILES, (shares[0] if shares else None) or [], strict=False)},
        "delays": rows(kept.groupBy(second).agg(F.count("*"), F.expr("percentile(delay, 0.5)"), F.max("delay")).orderBy("at")),
    }


# -- the program --------------------------------------------------------------------------------------------------------------------------
def store(frame: DataFrame, path: Path) -> None:
    frame.write.mode("overwrite").parquet(str(path))


def compute(spark: SparkSession, hosts: str, names: Names, out: Path, links_from: str = "earliest") -> None:
    """Write tables.json and the Parquet files, and say how long it took."""
    began = time.monotonic()
    pages = decoded(read_topic(spark, hosts, names.pages), PAGE).cache()
    links = decoded(read_topic(spark, hosts, names.links, links_from), LINK).cache()
    records = pages.count() + links.count()
    read_s = time.monotonic() - began
    into, dead = inlinks(pages, links).cache(), dead_links(pages, links).cache()
    figures = tables(pages, links, into, dead)
    if (out / f"{ARCHIVE}.parquet").is_dir():
        where = ["topic", "partition", "offset"]
        figures["archive"] = archive(spark, out, pages.select(where).unionAll(links.select(where)))
        figures["windows"] = windows(spark, out)
    store(into, out / "inlinks.parquet")
    store(dead, out / "dead.parquet")
    compute_s = time.monotonic() - began - read_s
    figures["batch"] = {"spark": spark.version, "read_s": round(read_s, 2), "compute_s": round(compute_s, 2), "records": records}
    (out / "tables.json").write_text(json.dumps(figures, indent=1, ensure_ascii=False), encoding="utf-8")
    print(f"{records:,} records read again by batch in {read_s:.1f} s, figures in {compute_s:.1f} s", flush=True)


def main() -> int:
    args = arguments()
    args.out.mkdir(parents=True, exist_ok=True)
    spark = session("crawl-batch", args.cores, args.out / "spark-scratch")
    try:
        compute(spark, args.hosts, Names(args.prefix), args.out, args.links_from)
    finally:
        spark.stop()
    return 0


def arguments() -> Any:
    parser = parser_of(__doc__ or "")
    parser.add_argument(
        "--links-from",
        default="earliest",
        metavar="OFFSETS",
        help='startingOffsets of the links: earliest, or JSON like \'{"links": {"0": 1, "1": -2}}\'',
    )
    parser.add_argument("--cores", type=positive, default=min(4, os.cpu_count() or 1), help="Spark's workers (default: %(default)s)")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("demo-out"),
        metavar="FOLDER",
        help="stream.py's folder; results go there, too (default: %(default)s)",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
