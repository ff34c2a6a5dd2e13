"""`make bench`: gkafka beside the Kafka clients that are installed, and the figures that it has to reach.

    python benchmarks/run.py [--quick] [--only stub,real,pure,hub,memory,spark] [--json FILE]

Other load moves absolute rates by half: only ratios within a round count, and a figure is their median over the rounds. The stub
broker (stub_broker.c) answers as fast as the wire, so that the client is what is measured; `real` and the rest start Apache Kafka.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT))

from tests.live.kafka import KafkaNode  # noqa: E402

KAFKA = "4.2.0"
SPARK_ROWS = 2_000_000
PACKAGES = {"confluent": "confluent_kafka", "kafka-python": "kafka", "aiokafka": "aiokafka", "native": "gkafka"}
Row = Mapping[str, Any]  # one measurement of client_bench.py


@dataclasses.dataclass(frozen=True)
class Effort:
    """How long everything is measured. rounds: at least 3 for a figure; megabytes: payload of one run."""

    rounds: int
    megabytes: int
    seconds: float
    spark_runs: int


QUICK = Effort(rounds=3, megabytes=100, seconds=3, spark_runs=3)
FULL = Effort(rounds=5, megabytes=200, seconds=10, spark_runs=5)


@dataclasses.dataclass(frozen=True)
class Figure:
    """One line of the table. at_least: whether `floor` is a lower bound; measured: None if it could not be measured, `note` says why."""

    what: str
    measured: float | None
    floor: float
    unit: str
    rounds: int
    note: str = ""
    at_least: bool = True

    @property
    def verdict(self) -> str:
        if self.measured is None:
            return "NOT MEASURED"
        reached = self.measured >= self.floor if self.at_least else self.measured <= self.floor
        return "ok" if reached else "MISS"

    def cells(self) -> list[str]:
        sign = ">=" if self.at_least else "<="
        measured = "-" if self.measured is None else f"{self.measured:.2f} {self.unit}"
        return [self.what, measured, f"{sign} {self.floor:g} {self.unit}", self.verdict, str(self.rounds), self.note]


# -- client_bench.py -----------------------------------------------------------------------------------------------------
def compare(
    mode: str, clients: Iterable[str], effort: Effort, *, bootstrap: str | None = None, implementation: str = "cython"
) -> list[Row]:
    """Measurements of several clients in turn, 100-byte messages, uncompressed, acks=1, 4 partitions. Prints client_bench's own table."""
    present = [client for client in clients if importlib.util.find_spec(PACKAGES[client.split("+")[0]])]
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [sys.executable, str(HERE / "client_bench.py"), "run", "--modes", mode, "--clients", ",".join(present)]
        command += [
            "--sizes",
            "100",
            "--codecs",
            "none",
            "--rounds",
            str(effort.rounds),
            "--mb",
            str(effort.megabytes),
            "--json",
            file.name,
        ]
        if bootstrap:
            command += ["--bootstrap", bootstrap]
        print(f"\n{mode}, {'stub broker' if bootstrap is None else 'Kafka ' + KAFKA}, gkafka.records in {implementation}", flush=True)
        subprocess.run(command, check=True, env=environment(GKAFKA_IMPL=implementation))
        return [json.loads(line) for line in file.read().splitlines()]


def environment(**more: str) -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, **more}


def ratio(what: str, rows: Iterable[Row], client: str, to: str, floor: float) -> Figure:
    """The median over the rounds of the client's rate to the other's in the same round."""
    rates: dict[str, dict[int, float]] = {client: {}, to: {}}
    notes = []
    for row in rows:
        if row["client"] in rates:
            if row.get("ok"):
                rates[row["client"]][row["round"]] = row["rate"]
            else:
                notes.append(f"{row['client']}: {row.get('note')}")
    rounds = rates[client].keys() & rates[to].keys()
    if not rounds or notes:  # a wrong run is no rate, and a figure without it would flatter
        return Figure(what, None, floor, "x", len(rounds), "; ".join(notes) or f"{to} is not installed")
    median = statistics.median(rates[client][n] / rates[to][n] for n in rounds)
    absolute = f"{_rate(rates[client])} to {_rate(rates[to])} messages/s"
    return Figure(what, median, floor, "x", len(rounds), absolute)


def _rate(rates: Mapping[int, float]) -> str:
    rate = statistics.median(rates.values())
    return f"{rate / 1e6:.2f} M" if rate >= 1e6 else f"{rate / 1e3:.0f} k"


# -- the figures, section by section ---------------------------------------------------------------------------------------
def stub(effort: Effort) -> Iterator[Figure]:
    clients = ["confluent", "native", "native+gevent"]
    if effort is FULL:
        clients += ["kafka-python", "aiokafka"]
    for mode in ("produce", "consume"):
        rows = compare(mode, clients, effort)
        yield ratio(f"{mode} 100 B, to confluent-kafka", rows, "native", "confluent", 2)
        yield ratio(f"{mode} 100 B, gevent to threads", rows, "native+gevent", "native", 0.7)


def real(effort: Effort) -> Iterator[Figure]:
    with KafkaNode(KAFKA, fast=False) as kafka:
        for mode, floor in (("produce", 1.5), ("consume", 2.0)):
            rows = compare(mode, ["confluent", "native"], effort, bootstrap=kafka.hosts)
            yield ratio(f"{mode} 100 B on Kafka {KAFKA}, to confluent-kafka", rows, "native", "confluent", floor)


def pure(effort: Effort) -> Iterator[Figure]:
    for mode, floor in (("produce", 3.0), ("consume", 2.0)):
        rows = compare(mode, ["native", "kafka-python"], effort, implementation="python")
        yield ratio(f"{mode} 100 B, pure Python, to kafka-python", rows, "native", "kafka-python", floor)


def hub(effort: Effort) -> Iterator[Figure]:
    with stub_broker() as bootstrap:
        for topic in ("hub", "null-hub"):  # the stub forgets what a "null-" topic is sent
            create(bootstrap, topic, 4)
        fill(bootstrap, "hub", 4, 1_000_000)
        for mode, topic in (("produce", "null-hub"), ("consume", "hub")):
            runs = [
                worker("hub_stall.py", mode, "--bootstrap", bootstrap, "--topic", topic, "--seconds", str(effort.seconds))
                for _ in range(effort.rounds)
            ]
            note = failed(runs) or f"{_rate({n: run['messages'] / effort.seconds for n, run in enumerate(runs)})} messages/s"
            gap, ticks = (None, None) if failed(runs) else (max(r["max_cpu_gap_ms"] for r in runs), min(r["min_ticks_per_s"] for r in runs))
            yield Figure(f"{mode}, gevent: longest CPU gap of the hub", gap, 50, "ms", effort.rounds, note, at_least=False)
            yield Figure(f"{mode}, gevent: fewest ticks in a second", ticks, 100, "/s", effort.rounds, note)


def memory(effort: Effort) -> Iterator[Figure]:
    with KafkaNode(KAFKA, fast=False) as kafka:
        runs = []
        for n in range(effort.rounds):
            kafka.create_topic(f"memory-{n}")
            target = ["--bootstrap", kafka.hosts, "--topic", f"memory-{n}", "--pid", str(kafka.nodes[0].pid)]
            runs.append(worker("memory.py", *target, "--seconds", str(effort.seconds)))
    note = failed(runs)
    if not note and not all(run["refused"] for run in runs):
        note = "the buffer never filled"
    if not note and not all(run["delivered"] for run in runs):
        note = "records that were accepted were not delivered"
    grown = None if note else max(run["grown_mib"] - run["buffer_mib"] for run in runs)
    yield Figure("producer into a stopped broker: memory beyond its buffer", grown, 64, "MiB", effort.rounds, note, at_least=False)


def spark(effort: Effort) -> Iterator[Figure]:
    what = f"Spark batch read, {SPARK_ROWS // 1_000_000} M rows of 100 B, to the JVM connector"
    if importlib.util.find_spec("pyspark") is None:
        yield Figure(what, None, 0.8, "x", 0, "pyspark is not installed")
        return
    with KafkaNode(KAFKA, fast=False) as kafka:
        kafka.create_topic("rows", 2)
        fill(kafka.hosts, "rows", 2, SPARK_ROWS)
        run = worker("spark_read.py", "--bootstrap", kafka.hosts, "--topic", "rows", "--runs", str(effort.spark_runs), timeout=600)
    note = failed([run]) or ("" if run["same"] else f"the connectors read different rows: {run['seen']}")
    measured = None
    if not note:
        jvm, ours = (statistics.median(run["seconds"][name]) for name in ("kafka", "gkafka"))
        measured, note = jvm / ours, f"{SPARK_ROWS / ours / 1e6:.2f} M to {SPARK_ROWS / jvm / 1e6:.2f} M rows/s, warm"
    yield Figure(what, measured, 0.8, "x", effort.spark_runs, note)


SECTIONS: dict[str, Callable[[Effort], Iterator[Figure]]] = {
    "stub": stub,
    "real": real,
    "pure": pure,
    "hub": hub,
    "memory": memory,
    "spark": spark,
}


# -- tools -----------------------------------------------------------------------------------------------------------------
class stub_broker:
    """The address of a stub broker, while it runs."""

    def __enter__(self) -> str:
        sys.path.insert(0, str(HERE))
        import client_bench

        self._stub = client_bench.Stub(False)  # type: ignore[no-untyped-call]
        address: str = self._stub.addr
        return address

    def __exit__(self, *_: object) -> None:
        self._stub.stop()  # type: ignore[no-untyped-call]


def worker(program: str, *arguments: str, timeout: float = 300) -> dict[str, Any]:
    """The JSON line that a measuring program prints; {"failed": why} if there is none."""
    try:
        done = subprocess.run(
            [sys.executable, str(HERE / program), *arguments],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            env=environment(),
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"{program} has not ended after {timeout:g} s"}
    if done.returncode != 0:
        return {"failed": f"{program}: {(done.stderr.strip().splitlines() or ['no output'])[-1][:200]}"}
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def failed(runs: Iterable[Mapping[str, Any]]) -> str:
    return next((run["failed"] for run in runs if "failed" in run), "")


def create(bootstrap: str, topic: str, partitions: int) -> None:
    from tests.live import admin

    admin.create(bootstrap, topic, partitions, 1, {})


def fill(bootstrap: str, topic: str, partitions: int, count: int) -> None:
    """`count` records of a 16-byte key and a 100-byte value, by confluent-kafka."""
    from confluent_kafka import Producer

    settings = {
        "bootstrap.servers": bootstrap,
        "linger.ms": 5,
        "batch.size": 131072,
        "acks": "all",
        "queue.buffering.max.messages": 500_000,
    }
    producer = Producer(settings)
    for i in range(count):
        while True:
            try:
                producer.produce(topic, b"%016d" % i + b"v" * 84, key=b"%016d" % i, partition=i % partitions)
                break
            except BufferError:
                producer.poll(0.05)
        if not i % 1000:
            producer.poll(0)
    assert producer.flush(120) == 0


def machine() -> str:
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = names[0] if names else model
    return f"{os.cpu_count()} x {model}, {platform.system()} {platform.release().split('-')[0]}, Python {platform.python_version()}"


def versions() -> str:
    from importlib import metadata

    found = []
    for name in ("gkafka", "confluent-kafka", "kafka-python", "aiokafka", "gevent", "pyspark"):
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            if name == "gkafka":
                import gkafka

                found.append(f"{name} {gkafka.__version__}")
    return ", ".join(found)


def table(figures: Iterable[Figure]) -> str:
    rows = [["figure", "measured", "floor", "", "rounds", "what was seen"], *(figure.cells() for figure in figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="3 rounds of short runs")
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections, separated by commas")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    given = parser.parse_args()
    chosen = given.only.split(",")
    if unknown := set(chosen) - SECTIONS.keys():
        parser.error(f"--only: {', '.join(sorted(unknown))}: must be of {', '.join(SECTIONS)}")
    effort = QUICK if given.quick else FULL
    began = time.monotonic()
    figures = [figure for name in chosen for figure in SECTIONS[name](effort)]
    print(f"\n{table(figures)}\n\nMachine: {machine()}\nVersions: {versions()}\nTook {time.monotonic() - began:.0f} s", flush=True)
    if given.json:
        given.json.write_text(
            json.dumps({"machine": machine(), "figures": [dataclasses.asdict(f) | {"verdict": f.verdict} for f in figures]})
        )
    return 0 if all(figure.verdict == "ok" for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
