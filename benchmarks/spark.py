"""`make bench-spark`: format("gkafka") in PySpark beside the JVM connector and a Data Source on confluent-kafka, and the figures it has to reach.

    python benchmarks/spark.py [--quick] [--rows N] [--only read,write,stream,many,task,codecs,transactional,micro,arrow,memory,cold] [--json FILE]

Rows of a 16-byte key and a 100-byte value that compresses as JSON does, in two partitions of a real Kafka on the same cores; Spark runs as
local[2]. Connectors run in turn in one session; a figure is the ratio of the medians of their warm runs. CRCs are checked.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.figures import (
    FULL,
    KAFKA,
    QUICK,
    Effort,
    Figure,
    create,
    environment,
    failed,
    fill,
    json_like,
    machine,
    stub_broker,
    table,
    versions,
    worker,
)
from tests.live.kafka import KafkaNode

SPARK_ROWS = 2_000_000
QUICK_ROWS = 400_000
MICRO_BATCHES = 45
ARROW_ROWS = {"gkafka": 6_000_000, "confluent": 1_000_000}  # about as many seconds
SESSION_S = 900
COLD = {QUICK: 2, FULL: 4}
COMPRESSED = ("lz4", "zstd")
VARIED = "varied"
LAUNCHER = Path(__file__).resolve().parent.parent / "examples" / "spark_python.sh"


class Bench(NamedTuple):
    """What the figures are measured on."""

    effort: Effort
    bootstrap: str
    rows: int

    def session(
        self, mode: str, topic: str = "rows", *, sources: str = "kafka,gkafka", env: Mapping[str, str] | None = None, **options: int
    ) -> dict[str, Any]:
        """What spark_session.py measures, in a process of its own."""
        more = {"cold": COLD[self.effort], "runs": self.effort.spark_runs, "rows": self.rows, **options}
        words = [word for name, value in more.items() for word in (f"--{name}", str(value))]
        target = ["--bootstrap", self.bootstrap, "--topic", topic, "--sources", sources]
        return worker("spark_session.py", mode, *target, *words, timeout=SESSION_S, env=env)

    def ratio(
        self, what: str, run: Mapping[str, Any], ours: str, theirs: str, gate: float | None, goal: float, *, of: str = "seconds"
    ) -> Figure:
        """How many times as fast `ours` is as `theirs`, by the medians."""
        note = failed([run]) or ("" if run["same"] else f"they read different rows: {run['seen']}")
        if note:
            return Figure(what, None, gate, "x", 0, note)
        us, them = (statistics.median(run[of][name]) for name in (ours, theirs))
        rates = " to ".join(f"{self.rows / s / 1e6:.2f} M" for s in (us, them))
        cpu = " to ".join(f"{statistics.median(run['cpu'][name]) / self.rows * 1e6:.2f}" for name in (ours, theirs))
        return Figure(what, them / us, gate, "x", len(run[of][ours]), f"goal {goal:g}; {rates} rows/s; Spark's CPU {cpu} us a row")


def read(bench: Bench) -> Iterator[Figure]:
    run = bench.session("read", sources="kafka,gkafka,confluent")
    yield bench.ratio("batch read, to the JVM connector", run, "gkafka", "kafka", 3, 4)
    yield bench.ratio("batch read, to an Arrow source on confluent-kafka", run, "gkafka", "confluent", 2.5, 3)


def write(bench: Bench) -> Iterator[Figure]:
    yield bench.ratio("batch write, to the JVM connector", bench.session("write"), "gkafka", "kafka", 2.7, 4)


def stream(bench: Bench) -> Iterator[Figure]:
    """The batch itself, and for orientation the whole query: to start one in Python takes a process, which a second of reading has to make up for.

    That process compiles PySpark before anything else, unless Spark is given a Python that finds it compiled (examples/spark_python.sh).
    """
    run = bench.session("stream")
    yield bench.ratio("stream read AvailableNow (addBatch), to the JVM connector", run, "gkafka", "kafka", 1.2, 1.5, of="add_batch")
    yield bench.ratio("the same with start and end of the query", run, "gkafka", "kafka", None, 1.5)
    run = bench.session("stream", env=found_compiled())
    yield bench.ratio("the same where PySpark is found compiled (examples/spark_python.sh)", run, "gkafka", "kafka", None, 1.5)


def found_compiled() -> dict[str, str]:
    """The environment of a session whose Python processes find PySpark compiled."""
    return {"PYSPARK_PYTHON": str(LAUNCHER), "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}


def many(bench: Bench) -> Iterator[Figure]:
    """Topics of many partitions, and batches of few rows."""
    few = 400_000
    for topic, partitions in (("parts200", 200), ("parts1000", 1000)):
        create(bench.bootstrap, topic, partitions)
        fill(bench.bootstrap, topic, partitions, few, batch_bytes=300)
    once = {"cold": 1, "runs": 1}  # the JVM connector takes four minutes each time
    for topic, gate, goal, runs in (("parts200", 2, 4, {}), ("parts1000", 2, 5, once)):
        yield bench._replace(rows=few).ratio(
            f"batch read of {topic[5:]} partitions, to the JVM connector",
            bench.session("read", topic, rows=few, **runs),
            "gkafka",
            "kafka",
            gate,
            goal,
        )
    run = bench.session("stream", "parts200", rows=few, **{"per-trigger": 40_000})
    yield bench._replace(rows=few).ratio("stream of 200 partitions, 10 batches", run, "gkafka", "kafka", 1.5, 3)
    run = bench.session("stream", sources="kafka,gkafka,toy", **{"per-trigger": bench.rows // 20})
    yield bench.ratio("stream of 2 partitions, 20 batches", run, "gkafka", "kafka", 1.1, 2)
    yield bench.ratio("the same by a Python source that reads nothing, to the JVM connector", run, "toy", "kafka", None, 2)
    run = bench.session("write", "parts200", rows=few, partitions=200)
    yield bench._replace(rows=few).ratio("batch write to 200 partitions", run, "gkafka", "kafka", 1.5, 2.5)
    yield bench.ratio("limit(10)", bench.session("first_rows"), "gkafka", "kafka", 0.4, 0.8)
    fill_varied(bench.bootstrap)
    for topic in ("rows", "parts200", "parts1000", VARIED):
        run = bench.session("same", topic, **{"per-trigger": {"rows": bench.rows // 4, VARIED: 7_000}.get(topic, 100_000)})
        differences = None if failed([run]) else float(sum(run["differences"].values()))
        note = failed([run]) or f"of {run['rows']}: {run['differences']}"
        yield Figure(f"rows of {topic} that one has and the other has not", differences, 0, "", 1, note, at_least=False)


def fill_varied(bootstrap: str) -> None:
    """40,000 records with and without key, value and headers, with timestamps of their own, in 20 partitions."""
    from gkafka import KafkaClient

    create(bootstrap, VARIED, 20)
    with KafkaClient(bootstrap) as client, client.get_producer() as producer:
        for i in range(40_000):
            number = b"%d" % i
            producer.produce(
                VARIED,
                number if i % 11 else None,
                number if i % 7 else None,
                partition=i % 20,
                timestamp=1_700_000_000_000 + 7 * i,
                headers=[("number", number), ("nothing", None)] if i % 3 else None,
            )


def task(bench: Bench) -> Iterator[Figure]:
    """What a Spark task costs beside what PySpark takes for it, by the clock, while two of them run at a time."""
    count = 200
    create(bench.bootstrap, "little", count)
    fill(bench.bootstrap, "little", count, 10 * count)
    run = bench.session("tasks", "little", rows=10 * count, partitions=count)
    note, measured, rounds = failed([run]), None, 0
    if not note:
        ours, empty = (1000 * statistics.median(run["seconds"][name]) / count for name in ("gkafka", "toy"))
        measured, rounds = ours - empty, len(run["seconds"]["gkafka"])
        cpu = " to ".join(f"{1000 * statistics.median(run['cpu'][name]) / count:.0f}" for name in ("gkafka", "toy"))
        note = f"goal 3; {ours:.1f} to {empty:.1f} ms a task; CPU {cpu} ms"
    yield Figure("a task, beyond one of a source that hands out nothing", measured, 10, "ms", rounds, note, at_least=False)


def codecs(bench: Bench) -> Iterator[Figure]:
    values = json_like(4096, 100)
    for codec in COMPRESSED:
        create(bench.bootstrap, f"rows-{codec}", 2)
        fill(bench.bootstrap, f"rows-{codec}", 2, bench.rows, codec=codec, values=values)
    run = bench.session("codecs", ",".join(["rows", *(f"rows-{codec}" for codec in COMPRESSED)]), sources="gkafka")
    for codec in COMPRESSED:
        yield bench.ratio(f"batch read of {codec}, to uncompressed", run, f"rows-{codec}", "rows", 0.7, 0.9)


def transactional(bench: Bench) -> Iterator[Figure]:
    run = bench.session("transactional", sources="gkafka")
    yield bench.ratio("stream write, transactional to plain", run, "transactional", "none", 0.8, 0.95)


def micro(bench: Bench) -> Iterator[Figure]:
    rows = MICRO_BATCHES * 1000
    create(bench.bootstrap, "micro", 2)
    fill(bench.bootstrap, "micro", 2, rows)
    run = bench.session("micro", "micro", sources="kafka,gkafka,toy", rows=rows)
    note, measured, ratio, rounds = failed([run]), None, None, 0
    if not note:
        measured, theirs, empty = (statistics.median(run["ms"][name]) for name in ("gkafka", "kafka", "toy"))
        note = f"goal 150; the JVM connector {theirs:.0f} ms, a Python source that reads nothing {empty:.0f}"
        rounds, ratio = len(run["ms"]["gkafka"]), theirs / measured
    yield Figure("micro-batch of 1,000 rows, median", measured, 200, "ms", rounds, note, at_least=False)
    yield Figure("the same, to the JVM connector", ratio, 1.0, "x", rounds, "goal 1.3")


def arrow(bench: Bench) -> Iterator[Figure]:
    yield consume_arrow(bench.effort)


def consume_arrow(effort: Effort) -> Figure:
    """Without Spark, from a broker that is as fast as the wire."""
    partitions, ratios, rates = 4, [], []
    what, note = "consume_arrow() 100 B on the stub broker, to confluent-kafka and pyarrow", ""
    with stub_broker() as bootstrap:
        create(bootstrap, "arrow", partitions)
        fill(bootstrap, "arrow", partitions, max(ARROW_ROWS.values()), values=json_like(4096, 100))
        target = ["--bootstrap", bootstrap, "--topic", "arrow", "--partitions", str(partitions)]
        for _ in range(effort.rounds):
            pair = {name: worker("consume_arrow.py", name, *target, "--count", str(count)) for name, count in ARROW_ROWS.items()}
            if note := failed(pair.values()) or _wrong_rows(pair, partitions):
                break
            ratios.append(pair["gkafka"]["rate"] / pair["confluent"]["rate"])
            rates.append(pair)
    if not note:
        seen = {name: statistics.median(pair[name]["rate"] for pair in rates) / 1e6 for name in ARROW_ROWS}
        note = f"goal 15; {seen['gkafka']:.2f} M to {seen['confluent']:.2f} M rows/s"
    return Figure(what, statistics.median(ratios) if ratios else None, 8, "x", len(ratios), note)


def _wrong_rows(runs: Mapping[str, Mapping[str, Any]], partitions: int) -> str:
    """gkafka reads all there is: each offset once. Either: values of 100 bytes."""
    rows = ARROW_ROWS["gkafka"] // partitions
    if runs["gkafka"]["rows"] != rows * partitions or runs["gkafka"]["checksum"] != partitions * rows * (rows - 1) // 2:
        return f"consume_arrow() did not read each record once: {runs['gkafka']}"
    return next((f"{name}: values are not whole: {run}" for name, run in runs.items() if run["bytes"] != 100 * run["rows"]), "")


def memory(bench: Bench) -> Iterator[Figure]:
    topics = [bench.session("memory", "rows", sources=source) for source in ("toy", "gkafka")]
    note, measured = failed(topics), None
    if not note:
        own, ours = (run["peak_mb"] for run in topics)
        measured, note = ours - own, f"goal 80; {ours:.0f} MB, PySpark's own {own:.0f} MB"
    yield Figure("peak memory of a Python worker, above PySpark's own", measured, 150, "MB", 1, note, at_least=False)


def cold(bench: Bench) -> Iterator[Figure]:
    runs = [bench.session("cold", sources="gkafka") for _ in range(bench.effort.rounds)]
    note = failed(runs)
    measured = None if note else statistics.median(run["seconds"] for run in runs)
    if not note:
        jvm = bench.session("cold", sources="kafka")
        note = failed([jvm]) or f"the JVM connector {jvm['seconds']:.1f} s"
    yield Figure("first read of a session", measured, 6, "s", len(runs), note, at_least=False)
    runs = [bench.session("cold", sources="gkafka", env=found_compiled()) for _ in range(bench.effort.rounds)]
    note = failed(runs)
    measured = None if note else statistics.median(run["seconds"] for run in runs)
    what = "the same where PySpark is found compiled (examples/spark_python.sh)"
    yield Figure(what, measured, None, "s", len(runs), note, at_least=False)
    seconds = [_import_s() for _ in range(max(5, bench.effort.rounds))]
    yield Figure("import gkafka.spark", statistics.median(seconds) * 1000, 150, "ms", len(seconds), at_least=False)


def _import_s() -> float:
    code = "import time; begun = time.perf_counter(); import gkafka.spark; print(time.perf_counter() - begun)"
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment()).stdout)


SECTIONS: dict[str, Callable[[Bench], Iterator[Figure]]] = {
    "read": read,
    "write": write,
    "stream": stream,
    "many": many,
    "task": task,
    "codecs": codecs,
    "transactional": transactional,
    "micro": micro,
    "arrow": arrow,
    "memory": memory,
    "cold": cold,
}


def figures(effort: Effort, rows: int, sections: Iterable[str]) -> Iterator[Figure]:
    if importlib.util.find_spec("pyspark") is None:
        yield Figure("Spark", None, 0, "", 0, "pyspark is not installed")
        return
    with KafkaNode(KAFKA, fast=False) as kafka:
        kafka.create_topic("rows", 2)
        fill(kafka.hosts, "rows", 2, rows, values=json_like(4096, 100))
        for name in sections:
            for figure in SECTIONS[name](Bench(effort, kafka.hosts, rows)):
                print(" | ".join(figure.cells()), flush=True)
                yield figure


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help=f"{QUICK_ROWS} rows, fewer runs: shows that everything runs, no figures to quote"
    )
    parser.add_argument("--rows", type=int, help=f"in the topic (default: {SPARK_ROWS})")
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections, separated by commas")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    given = parser.parse_args()
    chosen = given.only.split(",")
    if unknown := set(chosen) - SECTIONS.keys():
        parser.error(f"--only: {', '.join(sorted(unknown))}: must be of {', '.join(SECTIONS)}")
    effort, rows = (QUICK, QUICK_ROWS) if given.quick else (FULL, SPARK_ROWS)
    rows = given.rows or rows
    began = time.monotonic()
    found = list(figures(effort, rows, chosen))
    print(
        f"\n{rows} rows on Kafka {KAFKA}\n{table(found)}\n\nMachine: {machine()}\nVersions: {versions()}\nTook {time.monotonic() - began:.0f} s"
    )
    if given.json:
        given.json.write_text(
            json.dumps({"machine": machine(), "rows": rows, "figures": [dataclasses.asdict(f) | {"verdict": f.verdict} for f in found]})
        )
    return 0 if all(figure.holds for figure in found) else 1


if __name__ == "__main__":
    sys.exit(main())
