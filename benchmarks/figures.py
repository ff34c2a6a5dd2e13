"""What `make bench` is made of: a figure beside its floor, measurements of several clients in turn, and how they are shown."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
KAFKA = "4.2.0"
FILL_S = 400
"""For what is still on its way when a topic is filled: 400,000 records in batches of two take minutes on a busy disk."""
PACKAGES = {
    "gkafka": "gkafka",
    "confluent": "confluent_kafka",
    "kafka-python": "kafka",
    "aiokafka": "aiokafka",
    "native": "gkafka",
    "gkafka-pk": "gkafka",
}
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
    """One line of the table. at_least: whether `floor` is a lower bound; measured: None if it could not be measured, `note` says why. floor: None
    if it is there for orientation.
    """

    what: str
    measured: float | None
    floor: float | None
    unit: str
    rounds: int
    note: str = ""
    at_least: bool = True

    @property
    def holds(self) -> bool:
        return self.verdict in ("ok", "-")

    @property
    def verdict(self) -> str:
        if self.measured is None:
            return "NOT MEASURED"
        if self.floor is None:
            return "-"
        reached = self.measured >= self.floor if self.at_least else self.measured <= self.floor
        return "ok" if reached else "MISS"

    def cells(self) -> list[str]:
        floor = "-" if self.floor is None else f"{'>=' if self.at_least else '<='} {self.floor:g} {self.unit}"
        measured = "-" if self.measured is None else f"{self.measured:.2f} {self.unit}"
        return [self.what, measured, floor, self.verdict, str(self.rounds), self.note]


# -- client_bench.py -----------------------------------------------------------------------------------------------------
@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """What is measured. size: bytes of a message; confirm: "each" asks for the outcome of every message; idempotent: with acks "all"; adapter: the
    class of native_adapter.py that is "native".
    """

    mode: str
    size: int = 100
    codec: str = "none"
    confirm: str = "flush"
    acks: str = "1"
    idempotent: bool = False
    bootstrap: str | None = None
    implementation: str = "cython"
    adapter: str = "Native"

    def arguments(self) -> list[str]:
        chosen = {
            "--modes": self.mode,
            "--sizes": str(self.size),
            "--codecs": self.codec,
            "--confirm": self.confirm,
            "--acks-list": self.acks,
        }
        if self.bootstrap:
            chosen["--bootstrap"] = self.bootstrap
        return [word for pair in chosen.items() for word in pair] + ["--idempotent"] * self.idempotent

    def __str__(self) -> str:
        broker = "stub broker" if self.bootstrap is None else f"Kafka {KAFKA}"
        return f"{self.mode}, {broker}, gkafka.records in {self.implementation}"


def compare(setting: Setting, clients: Iterable[str], effort: Effort, *, rounds: int | None = None) -> list[Row]:
    """Measurements of several clients in turn, 4 partitions. Prints client_bench's own table."""
    present = [client for client in clients if importlib.util.find_spec(PACKAGES[client.split("+")[0]])]
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [sys.executable, str(HERE / "client_bench.py"), "run", "--clients", ",".join(present), *setting.arguments()]
        command += ["--rounds", str(rounds or effort.rounds), "--mb", str(effort.megabytes), "--json", file.name]
        print(f"\n{setting}", flush=True)
        subprocess.run(
            command, check=True, env=environment(GKAFKA_IMPL=setting.implementation, BENCH_ADAPTER=f"native_adapter:{setting.adapter}")
        )
        return [json.loads(line) for line in file.read().splitlines()]


def environment(**more: str) -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, **more}


def ratio(what: str, rows: Iterable[Row], client: str, to: str, floor: float, *, of: str = "rate", at_least: bool = True) -> Figure:
    """The median over the rounds of the client's value to the other's in the same round. of: the measured value, say "cpu_s_per_M"."""
    values: dict[str, dict[int, float]] = {client: {}, to: {}}
    notes = []
    for row in rows:
        if row["client"] in values:
            if row.get("ok"):
                values[row["client"]][row["round"]] = row[of]
            else:
                notes.append(f"{row['client']}: {row.get('note')}")
    rounds = values[client].keys() & values[to].keys()
    if not rounds or notes:  # a wrong run is no rate, and a figure without it would flatter
        return Figure(what, None, floor, "x", len(rounds), "; ".join(notes) or f"{to} is not installed", at_least)
    median = statistics.median(values[client][n] / values[to][n] for n in rounds)
    seen = f"{shown(of, values[client].values())} to {shown(of, values[to].values())} {UNITS[of]}"
    return Figure(what, median, floor, "x", len(rounds), seen, at_least)


UNITS = {"rate": "messages/s", "cpu_s_per_M": "us of CPU a message", "ack_p50_us": "us", "e2e_p50_us": "us", "rss_grow_mb": "MB"}


def shown(of: str, values: Iterable[float]) -> str:
    """The median, as a reader wants it."""
    median = statistics.median(values)
    if of != "rate":
        return f"{median:.3g}"
    return f"{median / 1e6:.2f} M" if median >= 1e6 else f"{median / 1e3:.0f} k"


# -- tools -----------------------------------------------------------------------------------------------------------------
class stub_broker:
    """The address of a stub broker, while it runs. options: of its command line, say "--brokers", "20"."""

    def __init__(self, *options: str) -> None:
        self._options = options

    def __enter__(self) -> str:
        if str(HERE) not in sys.path:
            sys.path.append(str(HERE))
        import client_bench

        self._stub = client_bench.Stub(False, *self._options)  # type: ignore[no-untyped-call]  # client_bench.py has no annotations
        address: str = self._stub.addr
        return address

    @property
    def pid(self) -> int:
        return int(self._stub.p.pid)

    @property
    def command(self) -> list[str]:
        """The program and its arguments."""
        return list(self._stub.p.args)

    def __exit__(self, *_: object) -> None:
        self._stub.stop()  # type: ignore[no-untyped-call]  # the same


def worker(program: str, *arguments: str, timeout: float = 300, env: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The JSON line that a measuring program prints; {"failed": why} if there is none. env: more of the environment."""
    try:
        done = subprocess.run(
            [sys.executable, str(HERE / program), *arguments],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            env=environment(**(env or {})),
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


def fill(
    bootstrap: str,
    topic: str,
    partitions: int,
    count: int,
    *,
    codec: str = "none",
    values: Sequence[bytes] | None = None,
    batch_bytes: int = 131072,
) -> None:
    """`count` records of a 16-byte key and a value, by confluent-kafka. values: taken in turn, by default of 100 bytes, made of the key."""
    from confluent_kafka import Producer

    settings = {
        "bootstrap.servers": bootstrap,
        "linger.ms": 5,
        "batch.size": batch_bytes,
        "acks": "all",
        "compression.type": codec,
        "queue.buffering.max.messages": 500_000,
    }
    producer = Producer(settings)
    for i in range(count):
        value = b"%016d" % i + b"v" * 84 if values is None else values[i % len(values)]
        while True:
            try:
                producer.produce(topic, value, key=b"%016d" % i, partition=i % partitions)
                break
            except BufferError:
                producer.poll(0.05)
        if not i % 1000:
            producer.poll(0)
    left = producer.flush(FILL_S)
    assert not left, f"{left} records were not written within {FILL_S} s"


def json_like(count: int, size: int) -> list[bytes]:
    """Values of so many bytes that compress as JSON of an application does: to a third."""
    chance = random.Random(7)
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(3, 9))) for _ in range(400)]

    def value() -> bytes:
        text = ""
        while len(text) < size:
            text += f'{{"{chance.choice(words)}": "{chance.choice(words)}", "id": {chance.randint(0, 99999)}}}, '
        return text[:size].encode()

    return [value() for _ in range(count)]


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
