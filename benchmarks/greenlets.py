"""What thousands of greenlets see of three Kafka clients: the stalls of gevent's hub, rates and waits, as a table.

    python benchmarks/greenlets.py [--rounds 3] [--only 1,3] [--json FILE]

Numbers are those of tests/gevent; Ticker and its gaps are those of stalls.py. Every cell is measured in a process of its own that gevent has patched, the clients in turn, on
stub_broker.c, which answers as fast as the wire; a fork (15) on real Kafka. A stall is the longest time between two turns of a greenlet that sleeps 1 ms, less what its
thread waited for a core; the worst of all rounds is shown, of all else the median. Python's garbage collector is at work as in any program: with
thousands of greenlets it makes the longest stalls of tests 1 and 2, whatever the client. Below the table gkafka's rates and waits are shown beside their gates; without
--only those of its rates with greenlets to those with threads, too. Stalls are judged without the collector, by `run.py --only greenlets`.

confluent-kafka is used as its users under gevent use it: a greenlet polls for deliveries every 5 ms, a tight loop polls and yields every 100
records, and what is consumed comes through the hub's thread pool.
"""

from __future__ import annotations

import sys

if "--worker" in sys.argv:
    from gevent import monkey

    monkey.patch_all()

import argparse
import contextlib
import dataclasses
import importlib.util
import json
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from benchmarks.figures import (  # noqa: E402
    KAFKA,
    PACKAGES,
    QUICK,
    Effort,
    Figure,
    Setting,
    compare,
    create,
    environment,
    failed,
    json_like,
    machine,
    ratio,
    stub_broker,
    versions,
)
from benchmarks.stalls import Ticker  # noqa: E402
from tests.live.kafka import KafkaNode  # noqa: E402

LIMIT_S = 120.0
VALUE = bytes(1024)
Cell = dict[str, Any]


# -- three clients, one way to use them --------------------------------------------------------------------------------------
class Gkafka:
    def __init__(self, hosts: str) -> None:
        import gkafka

        self.client = gkafka.KafkaClient(hosts)

    def producer(self, **options: Any) -> None:
        self._producer = self.client.get_producer(**options)

    def send(self, topic: str, value: bytes) -> Any:
        return self._producer.produce(topic, value)

    def wait(self, sent: Any) -> Any:
        return sent.result(LIMIT_S)

    def burst(self, topic: str, values: list[bytes], count: int) -> None:
        produce = self._producer.produce
        for n in range(count):
            produce(topic, values[n % len(values)])

    def flush(self, timeout: float) -> None:
        self._producer.flush(timeout)

    def consumer(self, topic: str, partitions: int) -> None:
        self._consumer = self.client.get_consumer(topic, fetch_max_bytes=50 << 20, fetch_message_max_bytes=16 << 20)

    def poll(self, timeout: float) -> list[bytes]:
        return [m.value for m in self._consumer.consume_batch(500, 1000 * timeout)]


class Confluent:
    def __init__(self, hosts: str) -> None:
        self.hosts = hosts

    def producer(self, **options: Any) -> None:
        import gevent
        from confluent_kafka import Producer

        names = {"compression": "compression.type", "batch_bytes": "batch.size", "linger_ms": "linger.ms"}
        given = {names[name]: value for name, value in options.items()}
        settings = {"bootstrap.servers": self.hosts, "log_level": 0, "linger.ms": 5, "message.max.bytes": 8 << 20, **given}
        self._producer = Producer({**settings, "queue.buffering.max.messages": 1_000_000})

        def poller() -> None:
            while True:
                self._producer.poll(0)
                gevent.sleep(0.005)

        gevent.spawn(poller)

    def send(self, topic: str, value: bytes) -> Any:
        from gevent.event import AsyncResult

        result = AsyncResult()
        self._producer.produce(topic, value, on_delivery=lambda error, message: result.set((error, message)))
        return result

    def wait(self, sent: Any) -> Any:
        error, message = sent.get(timeout=LIMIT_S)
        if error is not None:
            raise RuntimeError(error)
        return message

    def burst(self, topic: str, values: list[bytes], count: int) -> None:
        import gevent

        for n in range(count):
            while True:
                try:
                    self._producer.produce(topic, values[n % len(values)])
                    break
                except BufferError:
                    self._producer.poll(0)
                    gevent.sleep(0.001)
            if not n % 100:
                self._producer.poll(0)
                gevent.sleep(0)

    def flush(self, timeout: float) -> None:
        if left := self._producer.flush(timeout):
            raise TimeoutError(f"{left} records are left")

    def consumer(self, topic: str, partitions: int) -> None:
        from confluent_kafka import Consumer, TopicPartition

        settings = {"bootstrap.servers": self.hosts, "group.id": "bench", "log_level": 0, "enable.auto.commit": False}
        settings |= {"fetch.max.bytes": 50 << 20, "max.partition.fetch.bytes": 16 << 20, "queued.min.messages": 1_000_000}
        self._consumer = Consumer({**settings, "fetch.queue.backoff.ms": 2})
        self._consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])

    def poll(self, timeout: float) -> list[bytes]:
        from gevent import get_hub

        if timeout > 1:  # a call as users make it
            message = self._consumer.poll(timeout)
            return [] if message is None else [message.value()]
        return [m.value() for m in get_hub().threadpool.apply(self._consumer.consume, (500, timeout))]


class KafkaPython:
    def __init__(self, hosts: str) -> None:
        self.hosts = hosts

    def producer(self, **options: Any) -> None:
        from kafka import KafkaProducer

        names = {"compression": "compression_type", "batch_bytes": "batch_size", "linger_ms": "linger_ms"}
        given = {names[name]: value for name, value in options.items()}
        settings = {"acks": "all", "linger_ms": 5, "max_request_size": 8 << 20, **given}
        self._producer = KafkaProducer(bootstrap_servers=self.hosts, **settings)

    def send(self, topic: str, value: bytes) -> Any:
        return self._producer.send(topic, value)

    def wait(self, sent: Any) -> Any:
        return sent.get(LIMIT_S)

    def burst(self, topic: str, values: list[bytes], count: int) -> None:
        for n in range(count):
            self._producer.send(topic, values[n % len(values)])

    def flush(self, timeout: float) -> None:
        self._producer.flush(timeout)

    def consumer(self, topic: str, partitions: int) -> None:
        from kafka import KafkaConsumer, TopicPartition

        settings = {"group_id": None, "enable_auto_commit": False, "fetch_max_bytes": 50 << 20, "max_partition_fetch_bytes": 16 << 20}
        self._consumer = KafkaConsumer(bootstrap_servers=self.hosts, **settings)
        self._consumer.assign([TopicPartition(topic, p) for p in range(partitions)])
        self._consumer.seek_to_beginning()

    def poll(self, timeout: float) -> list[bytes]:
        found = self._consumer.poll(timeout_ms=int(1000 * timeout))
        return [record.value for records in found.values() for record in records]


CLIENTS: dict[str, Callable[[str], Any]] = {"native": Gkafka, "confluent": Confluent, "kafka-python": KafkaPython}
SHOWN = {"native": "gkafka", "confluent": "confluent-kafka", "kafka-python": "kafka-python"}


collecting = True
"""Whether stalls of Python's garbage collector count: the longest of thousands of greenlets, and any client's."""


# -- what is measured, in a worker --------------------------------------------------------------------------------------------
@contextlib.contextmanager
def ticking(cell: Cell) -> Iterator[None]:
    with Ticker(collecting=collecting) as ticker:  # it is, as in any program
        began = time.perf_counter()
        yield
        cell["seconds"] = time.perf_counter() - began
    cell["stall_ms"], cell["cpu_ms"] = ticker.longest["wall_ms"], ticker.longest["cpu_ms"]


def many_greenlets(client: Any, topic: str, greenlets: int, each: int) -> Cell:
    from tests.gevent.harness import results, spawn_all

    client.producer()
    client.wait(client.send(topic, b"warm"))
    waits: list[float] = []

    def write() -> None:
        for _ in range(each):
            began = time.perf_counter()
            client.wait(client.send(topic, VALUE))
            waits.append(time.perf_counter() - began)

    cell: Cell = {}
    with ticking(cell):
        for _ in results(spawn_all([write] * greenlets), LIMIT_S):
            pass
    return {**cell, "rate": len(waits) / cell["seconds"], "p99_ms": 1000 * statistics.quantiles(waits, n=100)[-1]}


def sync_sends(client: Any, topic: str) -> Cell:
    return many_greenlets(client, topic, 5000, 10)


def own_delivery(client: Any, topic: str) -> Cell:
    return many_greenlets(client, topic, 10_000, 1)


def tight_loop(client: Any, topic: str) -> Cell:
    client.producer()
    client.wait(client.send(topic, b"warm"))
    cell: Cell = {}
    with ticking(cell):
        client.burst(topic, [VALUE], 100_000)
    client.flush(LIMIT_S)
    return {**cell, "rate": 100_000 / cell["seconds"]}


def broker_down(client: Any, topic: str) -> Cell:
    client.producer()
    client.wait(client.send(topic, b"warm"))
    print("READY", flush=True)
    sys.stdin.readline()  # the broker is gone now
    client.send(topic, b"never")
    cell: Cell = {}
    with ticking(cell), contextlib.suppress(Exception):
        client.flush(3)
    return cell


def empty_poll(client: Any, topic: str) -> Cell:
    client.consumer(topic, 4)
    client.poll(0.5)
    cell: Cell = {}
    with ticking(cell):
        assert not client.poll(5)
    return cell


def consume(client: Any, topic: str) -> Cell:
    client.consumer(topic, 4)
    cell: Cell = {}
    with ticking(cell):
        count = size = 0
        while count < FILLED:
            values = client.poll(0.5)
            size += sum(map(len, values))
            count += len(values)
    assert size == FILLED * len(VALUE)
    return {**cell, "rate": FILLED / cell["seconds"]}


def compress(client: Any, topic: str) -> Cell:
    values = json_like(500, 1000)
    client.producer(compression="gzip", batch_bytes=1_000_000, linger_ms=50)
    client.wait(client.send(topic, b"warm"))
    cell: Cell = {}
    with ticking(cell):
        client.burst(topic, values, 8000)
        client.flush(LIMIT_S)
    return {**cell, "rate": 8000 / cell["seconds"]}


def fork(client: Any, topic: str) -> Cell:
    """Both sides of a fork send 300 records: what is acknowledged, what is in the log, and how soon the child knows."""
    client.producer()
    client.wait(client.send(topic, b"warm"))
    sys.stdout.flush()
    down, up = os.pipe()
    child = os.fork()
    if child == 0:
        acknowledged, began, said = 0, time.perf_counter(), ""
        try:
            waiting = [client.send(topic, b"child") for _ in range(300)]
            deadline = time.perf_counter() + 10
            for sent in waiting:
                import gevent

                with gevent.Timeout(max(0.01, deadline - time.perf_counter())):
                    client.wait(sent)
                acknowledged += 1
        except BaseException as error:
            said = type(error).__name__
        os.write(up, json.dumps([acknowledged, said, 1000 * (time.perf_counter() - began)]).encode())
        os._exit(0)
    parents = 0
    waiting = [client.send(topic, b"parent") for _ in range(300)]
    for sent in waiting:
        with contextlib.suppress(Exception):
            client.wait(sent)
            parents += 1
    childs, said, took = json.loads(os.read(down, 4096))
    return {"parent": parents, "child": childs, "said": said, "child_ms": took, "count": 1 + parents + childs}


FILLED = 500_000
TESTS: dict[int, tuple[str, Callable[[Any, str], Cell]]] = {
    1: ("5,000 greenlets, each sends 10 records of 1 KB and waits for each", sync_sends),
    2: ("10,000 greenlets, each sends one and waits for it", own_delivery),
    3: ("one greenlet, 100,000 records in a tight loop", tight_loop),
    4: ("flush with a timeout of 3 s, the broker is down", broker_down),
    5: ("poll of 5 s, an empty topic", empty_poll),
    6: ("500,000 records of 1 KB consumed in fetches of up to 50 MiB", consume),
    7: ("8 MB of JSON in gzip batches of 1 MB", compress),
    15: ("a fork, both sides send 300 records", fork),
}


def worker(given: argparse.Namespace) -> None:
    global collecting
    collecting = not given.uncollected
    cell = TESTS[given.test][1](CLIENTS[given.worker](given.bootstrap), given.topic)
    print(json.dumps(cell), flush=True)
    os._exit(0)  # what a client does at the end is not measured here


# -- the table -------------------------------------------------------------------------------------------------------------------
def measure(client: str, number: int, hosts: str, topic: str, stop: Callable[[], None], options: tuple[str, ...]) -> Cell:
    about = {"--worker": client, "--test": str(number), "--bootstrap": hosts, "--topic": topic}
    command = [sys.executable, str(HERE / "greenlets.py"), *(word for pair in about.items() for word in pair), *options]
    running = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
    try:
        if number == 4:
            assert running.stdout is not None
            running.stdout.readline()
            stop()
        out, err = running.communicate("\n", timeout=LIMIT_S + 30)
    except subprocess.TimeoutExpired:
        running.kill()
        running.communicate()
        return {"failed": f"not done after {LIMIT_S + 30:g} s"}
    if running.returncode != 0 or not out.strip():
        return {"failed": (err.strip().splitlines() or ["no output"])[-1][:120]}
    cell: Cell = json.loads(out.strip().splitlines()[-1])
    return cell


def stored(hosts: str, topic: str) -> int:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": hosts, "group.id": "count", "log_level": 0})
    count = sum(consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=10)[1] for p in range(4))
    consumer.close()
    return count


def one_round(client: str, number: int, round_number: int, *options: str) -> Cell:
    """One measurement. A fork is tried on real Kafka: the stub does not know a record that it has already."""
    topic = f"{'kept' if number in (5, 6) else 'null'}-{client}-{number}-{round_number}"
    if number == 15:
        with KafkaNode(KAFKA) as kafka:
            kafka.create_topic(topic, 4)
            cell = measure(client, number, kafka.hosts, topic, lambda: None, options)
            return cell if "failed" in cell else {**cell, "lost": cell["count"] - stored(kafka.hosts, topic)}
    broker = stub_broker()
    running = [broker]
    hosts = broker.__enter__()

    def stop() -> None:
        while running:
            running.pop().__exit__()

    try:
        create(hosts, topic, 4)
        if number == 6:
            fill_with_values(hosts, topic)
        return measure(client, number, hosts, topic, stop, options)
    finally:
        stop()


def fill_with_values(hosts: str, topic: str) -> None:
    import gkafka

    with gkafka.KafkaClient(hosts, handler="threading") as client, client.get_producer(acks=1, enable_idempotence=False) as producer:
        for n in range(FILLED):
            producer.produce(topic, VALUE, partition=n % 4)


def shown(number: int, cells: list[Cell]) -> str:
    for cell in cells:
        if "failed" in cell:
            return f"failed: {cell['failed']}"

    def median(key: str) -> float:
        return statistics.median(cell[key] for cell in cells)

    if number == 15:
        last = cells[-1]
        child = f"{last['said'] or 'no error'} after {median('child_ms'):.0f} ms" if last["child"] < 300 else "300 of 300"
        return f"parent {min(cell['parent'] for cell in cells)} of 300; child {child}; acknowledged and lost: {max(cell['lost'] for cell in cells)}"
    parts = [f"stall {max(cell['stall_ms'] for cell in cells):.0f} ms"]
    if "rate" in cells[0]:
        parts.append(f"{median('rate') / 1000:.0f} k/s")
    if "p99_ms" in cells[0]:
        parts.append(f"p99 {median('p99_ms'):.0f} ms")
    if number == 4:
        parts.append(f"returns after {median('seconds'):.1f} s")
    return ", ".join(parts)


# -- gates ---------------------------------------------------------------------------------------------------------------------
GATES: dict[int, dict[str, float]] = {
    1: {"stall_ms": 20, "rate": 20_000, "p99_ms": 300},
    2: {"stall_ms": 20, "seconds": 1},
    3: {"stall_ms": 10},
    6: {"stall_ms": 20, "rate": 60_000},
    7: {"stall_ms": 20},
}
"""What gkafka has to reach, by test. A rate is a lower bound, all else an upper one. Stalls: without the garbage collector."""
UNITS = {
    "stall_ms": ("longest stall", "ms"),
    "rate": ("rate", "/s"),
    "p99_ms": ("p99 of a wait", "ms"),
    "seconds": ("all of it", "s"),
}


def gated(number: int, cells: list[Cell], *, stalls: bool = True) -> Iterator[Figure]:
    """What was measured of a test beside each of its gates: the longest stall, of all else the median."""
    for key, gate in GATES.get(number, {}).items():
        if key == "stall_ms" and not stalls:
            continue
        what, unit = UNITS[key]
        note = failed(cells)
        best = max if key == "stall_ms" else statistics.median
        measured = None if note else best(cell[key] for cell in cells)
        yield Figure(f"{TESTS[number][0]}: {what}", measured, gate, unit, len(cells), note, at_least=key == "rate")


def to_threads(effort: Effort) -> Iterator[Figure]:
    """Rates with greenlets to those with threads, in the same rounds."""
    for mode in ("produce", "consume"):
        for size in (100, 1000):
            rows = compare(Setting(mode=mode, size=size), ["native", "native+gevent"], effort)
            yield ratio(f"{mode} {size} B, gevent to threads", rows, "native+gevent", "native", 0.7)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(map(str, TESTS)), help="numbers, separated by commas")
    parser.add_argument("--clients", default=",".join(CLIENTS))
    parser.add_argument("--json", type=Path, help="also write all that was measured to this file")
    for name in ("--worker", "--bootstrap", "--topic"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    parser.add_argument("--test", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--uncollected", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        worker(given)
    clients = [name for name in given.clients.split(",") if importlib.util.find_spec(PACKAGES[name])]
    seen: dict[int, dict[str, list[Cell]]] = {}
    for number in map(int, given.only.split(",")):
        seen[number] = {client: [] for client in clients}
        for round_number in range(given.rounds):
            for client in clients:
                seen[number][client].append(one_round(client, number, round_number))
                print(f"{number} {client}: {shown(number, seen[number][client][-1:])}", file=sys.stderr, flush=True)
    print(f"| | what | {' | '.join(SHOWN[client] for client in clients)} |\n|---|---|{'---|' * len(clients)}")
    for number, by_client in seen.items():
        print(f"| {number} | {TESTS[number][0]} | {' | '.join(shown(number, by_client[client]) for client in clients)} |")
    if "native" in clients:
        figures = [figure for number, by_client in seen.items() for figure in gated(number, by_client["native"], stalls=False)]
        if given.only == parser.get_default("only"):
            figures += to_threads(dataclasses.replace(QUICK, rounds=given.rounds))
        print("\n| gkafka | measured | gate | | rounds | note |\n|---|---|---|---|---|---|")
        for figure in figures:
            print(f"| {' | '.join(figure.cells())} |")
    print(f"\nMachine: {machine()}. Versions: {versions()}. Rounds: {given.rounds}.")
    if given.json:
        given.json.write_text(json.dumps({"machine": machine(), "seen": seen}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
