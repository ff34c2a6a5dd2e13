"""`make bench`: gkafka beside the Kafka clients that are installed, and the figures that it has to reach.

    python benchmarks/run.py [--quick] [--only stub,real,pure,memory,spark,producing,consuming,greenlets,facade,shapes] [--json FILE]

Other load moves absolute rates by half: only ratios within a round count, and a figure is their median over the rounds. The stub
broker (stub_broker.c) answers as fast as the wire, so that the client is what is measured; `real` and the rest start Apache Kafka.
How long gevent's hub is kept from turning is measured by stalls.py (`make stalls`).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import shapes as shapes_of_use
from benchmarks.codec_pool import RECORDS
from benchmarks.figures import (
    FULL,
    KAFKA,
    QUICK,
    Effort,
    Figure,
    Setting,
    compare,
    create,
    environment,
    failed,
    fill,
    machine,
    ratio,
    shown,
    stub_broker,
    table,
    versions,
    worker,
)
from benchmarks.greenlets import GATES, gated, one_round, to_threads
from benchmarks.spark import SPARK_ROWS, consume_arrow
from benchmarks.spark import figures as spark_figures
from tests.live.kafka import KafkaNode

IDLE_S = 15.0
"""So long who idles is looked at, whatever the effort: of 3 seconds the commit in them is a fifth."""


# -- the figures, section by section ---------------------------------------------------------------------------------------
def stub(effort: Effort) -> Iterator[Figure]:
    clients = ["confluent", "native", "native+gevent"]
    if effort is FULL:
        clients += ["kafka-python", "aiokafka"]
    for mode in ("produce", "consume"):
        rows = compare(Setting(mode=mode), clients, effort)
        yield ratio(f"{mode} 100 B, to confluent-kafka", rows, "native", "confluent", 2)
        yield ratio(f"{mode} 100 B, gevent to threads", rows, "native+gevent", "native", 0.7)


def real(effort: Effort) -> Iterator[Figure]:
    with KafkaNode(KAFKA, fast=False) as kafka:
        for mode, floor in (("produce", 1.5), ("consume", 2.0)):
            rows = compare(Setting(mode=mode, bootstrap=kafka.hosts), ["confluent", "native"], effort)
            yield ratio(f"{mode} 100 B on Kafka {KAFKA}, to confluent-kafka", rows, "native", "confluent", floor)


def pure(effort: Effort) -> Iterator[Figure]:
    for mode, floor in (("produce", 3.0), ("consume", 2.0)):
        rows = compare(Setting(mode=mode, implementation="python"), ["native", "kafka-python"], effort)
        yield ratio(f"{mode} 100 B, pure Python, to kafka-python", rows, "native", "kafka-python", floor)


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
    """The rest of the figures of Spark by benchmarks/spark.py."""
    yield from spark_figures(effort, SPARK_ROWS, ["read"])


def producing(effort: Effort) -> Iterator[Figure]:
    """The send path: codecs and sizes, what a message costs, how it is confirmed, and pykafka's skin of it."""
    for size, codec, floor in ((100, "lz4", 1.4), (1000, "none", 1.0), (1000, "lz4", 0.9)):
        rows = compare(Setting(mode="produce", size=size, codec=codec), ["confluent", "native"], effort)
        yield ratio(f"produce {size} B {codec}, to confluent-kafka", rows, "native", "confluent", floor)
    stub_rows = compare(Setting(mode="produce"), ["confluent", "native", "gkafka-pk"], effort)
    cpu = "CPU of a message, produce 100 B, to confluent-kafka"
    yield ratio(cpu, stub_rows, "native", "confluent", 0.5, of="cpu_s_per_M", at_least=False)
    yield ratio("memory, produce 100 B, to confluent-kafka", stub_rows, "native", "confluent", 1.0, of="rss_grow_mb", at_least=False)
    yield ratio("topic.get_producer().produce 100 B, to confluent-kafka", stub_rows, "gkafka-pk", "confluent", 1.0)
    rows = compare(Setting(mode="produce", confirm="each"), ["confluent", "native"], effort)
    yield ratio("produce 100 B and confirm each, to confluent-kafka", rows, "native", "confluent", 2.0)
    rows = compare(Setting(mode="latency"), ["confluent", "native"], effort)
    what = "one message at a time: acknowledged after (median), to confluent-kafka"
    yield ratio(what, rows, "native", "confluent", 2.0, of="ack_p50_us", at_least=False)
    yield idempotence(effort)
    yield from idle(effort)


def consuming(effort: Effort) -> Iterator[Figure]:
    """The fetch path: codecs and sizes, what a message costs, one at a time, from end to end; groups, and very many partitions."""
    for size, codec, floor in ((100, "lz4", 2.0), (1000, "none", 1.3), (1000, "lz4", 1.1)):
        rows = compare(Setting(mode="consume", size=size, codec=codec), ["confluent", "native"], effort)
        yield ratio(f"consume {size} B {codec}, to confluent-kafka", rows, "native", "confluent", floor)
    rows = compare(Setting(mode="consume"), ["confluent", "native"], effort)
    cpu = "CPU of a message, consume 100 B, to confluent-kafka"
    yield ratio(cpu, rows, "native", "confluent", 0.5, of="cpu_s_per_M", at_least=False)
    yield ratio("memory, consume 100 B, to confluent-kafka", rows, "native", "confluent", 0.3, of="rss_grow_mb", at_least=False)
    rows = compare(Setting(mode="consume", adapter="NativeIteration"), ["confluent", "native"], effort)
    yield ratio("iteration over messages, 100 B, to confluent-kafka's consume(1000)", rows, "native", "confluent", 0.7)
    yield consume_arrow(effort)
    rows = compare(Setting(mode="latency"), ["confluent", "native"], effort)
    what = "one message from end to end (median), to confluent-kafka"
    yield ratio(what, rows, "native", "confluent", 4.0, of="e2e_p50_us", at_least=False)
    with KafkaNode(KAFKA, fast=False) as kafka:
        yield joining(kafka.hosts, effort)
        yield idling("member", "an idle member of a group", kafka, effort)
    runs = [worker("many_partitions.py", "--seconds", "1") for _ in range(effort.rounds)]
    taken = None if failed(runs) else statistics.median(run["seconds"] for run in runs)
    note = failed(runs) or f"{max(run['grown_mib'] for run in runs):.0f} MiB of memory"
    yield Figure("one consumer of 10,000 partitions: all of them read", taken, 5, "s", effort.rounds, note, at_least=False)


def facade(effort: Effort) -> Iterator[Figure]:
    """kafka-python's API: beside kafka-python itself, confluent-kafka and the native API."""
    for mode, gates in (("produce", (20, 1.5, 0.6)), ("consume", (12, 1.5, 0.6))):
        rows = compare(Setting(mode=mode), ["kafka-python", "confluent", "native", "gkafka"], effort)
        for peer, gate in zip(("kafka-python", "confluent", "native"), gates, strict=True):
            named = {"confluent": "confluent-kafka", "native": "the native API"}.get(peer, peer)
            yield ratio(f"gkafka.kafka: {mode} 100 B, to {named}", rows, "gkafka", peer, gate)
    for code in ("import gkafka.kafka", "from gkafka.kafka import KafkaConsumer, KafkaProducer"):
        seconds = [_import_s(code) for _ in range(max(5, effort.rounds))]
        yield Figure(code, statistics.median(seconds) * 1000, 100, "ms", len(seconds), at_least=False)


def _import_s(statement: str) -> float:
    code = f"import time; begun = time.perf_counter(); {statement}; print(time.perf_counter() - begun)"
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment()).stdout)


def joining(hosts: str, effort: Effort) -> Figure:
    create(hosts, "joining", 64)
    fill(hosts, "joining", 64, 64)
    runs = [worker("joining.py", *_on(hosts, "joining")) for _ in range(effort.rounds)]
    what = "group of 3, 64 partitions: a message of each, from the start"
    taken = None if failed(runs) else statistics.median(run["seconds"] for run in runs)
    return Figure(what, taken, 3, "s", effort.rounds, failed(runs), at_least=False)


def _on(hosts: str, topic: str) -> list[str]:
    return ["--bootstrap", hosts, "--topic", topic]


def idempotence(effort: Effort) -> Figure:
    """acks=all with idempotence beside acks=1 without, in turns. A fresh JVM grows faster from run to run, twofold: each comes first as often as
    second, and the first pair only warms it up.
    """
    what, ratios, seen = "acks=all idempotent to acks=1, produce 100 B on Kafka " + KAFKA, [], {"all": [], "1": []}
    with KafkaNode(KAFKA, fast=False) as kafka:
        for n in range(2 * -(-effort.rounds // 2) + 1):
            for acks in sorted(seen, reverse=n % 2 == 1):
                setting = Setting(mode="produce", acks=acks, idempotent=acks == "all", bootstrap=kafka.hosts)
                (row,) = compare(setting, ["native"], effort, rounds=1)
                if not row.get("ok"):
                    return Figure(what, None, 0.8, "x", len(ratios), str(row.get("note")))
                seen[acks].append(row["rate"])
            ratios.append(seen["all"][-1] / seen["1"][-1])
    ratios, seen = ratios[1:], {acks: rates[1:] for acks, rates in seen.items()}
    return Figure(
        what, statistics.median(ratios), 0.8, "x", len(ratios), f"{shown('rate', seen['all'])} to {shown('rate', seen['1'])} messages/s"
    )


def idle(effort: Effort) -> Iterator[Figure]:
    with KafkaNode(KAFKA, fast=False) as kafka:
        yield idling("producer", "an idle producer", kafka, effort)


def idling(of: str, name: str, kafka: KafkaNode, effort: Effort) -> Figure:
    """Of both handlers the one that takes more."""
    kafka.create_topic("idle")
    target = ["--measure", f"idle {of}", "--seconds", str(max(IDLE_S, effort.seconds)), *_on(kafka.hosts, "idle")]
    runs = [worker("stalls.py", *target, "--handler", handler) for handler in ("threading", "gevent")]
    used = None if failed(runs) else max(run["percent"] for run in runs)
    return Figure(f"CPU of {name}, threads and gevent", used, 0.5, "%", len(runs), failed(runs), at_least=False)


def greenlets(effort: Effort) -> Iterator[Figure]:
    """What thousands of greenlets see of gkafka; beside other clients by benchmarks/greenlets.py. As in tests/gevent, without the garbage collector."""
    for number in GATES:
        cells = [one_round("native", number, n, "--uncollected") for n in range(effort.rounds)]
        yield from gated(number, cells)

    yield from to_threads(effort)
    yield from codecs(effort)


def codecs(effort: Effort) -> Iterator[Figure]:
    """Codec work in the handler's own threads beside the same in the hub, in turn: what the stalls that are not there cost."""
    with stub_broker() as bootstrap:
        for codec in RECORDS:
            for mode in ("produce", "consume"):
                topic = f"null-{codec}" if mode == "produce" else f"kept-{codec}"
                create(bootstrap, topic, 2)
                target = ["--bootstrap", bootstrap, "--topic", topic, "--codec", codec]
                runs: dict[str, list[dict[str, float]]] = {"": [], "--inline": []}
                filled = [worker("codec_pool.py", "produce", *target)] if mode == "consume" else []
                for _ in range(effort.rounds):
                    for where, seen in runs.items():
                        seen.append(worker("codec_pool.py", mode, *target, *filter(None, [where])))
                pooled, inline = runs.values()
                note, measured = failed([*filled, *pooled, *inline]), None
                if not note:
                    measured = statistics.median(a["rate"] / b["rate"] for a, b in zip(pooled, inline, strict=True))
                    note = (
                        f"{shown('rate', [run['rate'] for run in pooled])} to {shown('rate', [run['rate'] for run in inline])} messages/s"
                    )
                yield Figure(f"{mode} 1 MB batches of {codec}, in threads to in the hub", measured, 0.9, "x", effort.rounds, note)


def shapes(effort: Effort) -> Iterator[Figure]:
    """Options, calls, batches and partitions as users have them: benchmarks/shapes.py, which also runs alone."""
    for row in shapes_of_use.run(list(shapes_of_use.SHAPES), 3):
        seen = f"{shown('rate', [row['ours']])} to {shown('rate', [row['peer']])} messages/s"
        yield Figure(f"{row['shape']}, to {row['beside']}", row["ratio"], row["gate"], "x", 3, seen)


SECTIONS: dict[str, Callable[[Effort], Iterator[Figure]]] = {
    "stub": stub,
    "real": real,
    "pure": pure,
    "memory": memory,
    "spark": spark,
    "producing": producing,
    "consuming": consuming,
    "greenlets": greenlets,
    "facade": facade,
    "shapes": shapes,
}


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
    return 0 if all(figure.holds for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
