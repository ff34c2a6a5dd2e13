"""Shapes of use: how fast gkafka is where options, calls, batches and partitions are as users have them, beside confluent-kafka or beside itself.

    python benchmarks/shapes.py [--real] [--rounds 3] [--gate] [--list] [--json FILE] [SHAPE ...]
    python benchmarks/shapes.py --markdown FILE ...     (the table of docs/performance.md, of what --json has written)

Each measurement runs in a process of its own, on the stub broker, which is as fast as the wire; the two sides of a shape take turns. A shape is named in full,
or by its beginning with a "*" behind it. What confluent-kafka has nothing for, and what a skin adds, is measured beside plain gkafka. Any shape
with "+g" behind it ("send-plain+g", "send*+g") runs with gevent's patches, beside confluent-kafka on threads. Records have 100 bytes where the name does not say otherwise.
--real: the shapes that need a real Kafka, which is started for them.

Prints both rates (medians, per second) and their ratio, and names what is below its gate. Exit status: 1 if a shape could not be
played, or if --gate is given and one is below.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.shape_clients import CLIENTS, PATIENCE_S, VALUE, Client, Confluent  # noqa: E402

OBJECT = {"id": 1, "name": "somebody", "tags": ["a", "b"]}
HEADERS = [("a", b"1"), ("trace", b"0123456789abcdef")]
KEYS = [b"user-%d" % i for i in range(1000)]
SECONDS = 2.0
FILLED = 200_000

# -- what a shape does with a client: each returns a rate, per second -------------------------------------------------------------
Play = Callable[[Client], float]


def sending(call_of: Callable[[Client], Callable[[], object]], **options: Any) -> Play:
    """Send as fast as the client takes it, for SECONDS, and flush."""

    def play(client: Client) -> float:
        client.producer(options)
        call = call_of(client)
        with client.transaction() if "transactional_id" in options else contextlib.nullcontext():
            for _ in range(200):
                call()
            count, began = 0, time.perf_counter()
            while time.perf_counter() - began < SECONDS:
                for _ in range(50):
                    call()
                count += 50
            client.flush()
            return count / (time.perf_counter() - began)

    return play


def record(value: Any = VALUE, **given: Any) -> Callable[[Client], Callable[[], object]]:
    """The same record again and again, in partition 0 if nothing else is given."""
    given = given or {"partition": 0}

    def call_of(client: Client) -> Callable[[], object]:
        send = client.send
        return lambda: send("t12", value, **given)

    return call_of


def spread(topic: str, partitions: int) -> Callable[[Client], Callable[[], object]]:
    def call_of(client: Client) -> Callable[[], object]:
        send, turn = client.send, itertools.cycle(range(partitions))
        return lambda: send(topic, VALUE, partition=next(turn))

    return call_of


def keyed(client: Client) -> Callable[[], object]:
    send, keys = client.send, itertools.cycle(KEYS)
    return lambda: send("t12", VALUE, key=next(keys))


def with_callbacks(client: Client) -> Callable[[], object]:
    done: list[Any] = []
    return lambda: client.with_callback(done.append)


def waiting(workers: int) -> Play:
    """So many workers that wait for each record."""

    def play(client: Client) -> float:
        import threading

        client.producer({"linger_ms": 0} if isinstance(client, Confluent) else {})
        client.wait(0)
        counts, end = [0] * workers, time.perf_counter() + SECONDS

        def work(number: int) -> None:
            while time.perf_counter() < end:
                client.wait(number % 12)
                counts[number] += 1

        working = [threading.Thread(target=work, args=(number,)) for number in range(workers)]
        for each in working:
            each.start()
        for each in working:
            each.join()
        return sum(counts) / SECONDS

    return play


def reading(topic: str, partitions: int = 1, *, how: str | int = 500, **options: Any) -> Play:
    """how: so many messages a call; "one", or "iter" for iteration."""

    def play(client: Client) -> float:
        client.consumer(topic, partitions, options)
        if how == "one":
            call = lambda: client.one() is not None  # noqa: E731
        elif how == "iter":
            messages = client.iterate()
            call = lambda: next(messages) is not None  # noqa: E731
        else:
            call = lambda: client.many(int(how))  # noqa: E731
        got = 0
        while got < 1000:
            got += call()
        got, began = 0, time.perf_counter()
        while got < FILLED - 20_000 and time.perf_counter() - began < 2 * SECONDS:
            got += call()
        return got / (time.perf_counter() - began)

    play.topic = topic  # type: ignore[attr-defined]  # a note on a function, for who plays it
    return play


def a_name() -> str:
    """Of a group or a transactional id that nobody has used."""
    return f"shapes-{uuid.uuid4().hex}"


def joining(client: Client) -> float:
    """From nothing to the first record as a member of a new group."""
    began = time.perf_counter()
    client.consumer("filled4", 4, {"group": a_name(), "auto_offset_reset": "earliest"})
    while not client.many(1):
        pass
    return 1 / (time.perf_counter() - began)


def in_group(size: int, *, commit: bool) -> Play:
    """A member takes so many records a call, and commits them; or they are committed in the background."""

    def play(client: Client) -> float:
        client.consumer("filled4", 4, {"group": a_name(), "auto_offset_reset": "earliest", "auto_commit": not commit})
        while not client.many(1):
            pass
        got, began = 0, time.perf_counter()
        while got < FILLED - 20_000 and time.perf_counter() - began < 2 * SECONDS:
            got += client.many(size)
            if commit:
                client.commit()
        return got / (time.perf_counter() - began)

    return play


def transactions(size: int) -> Play:
    """One after the other, of so many records each."""

    def play(client: Client) -> float:
        client.producer({"transactional_id": a_name()})
        count, began = -5, time.perf_counter()
        while count <= 0 or time.perf_counter() - began < SECONDS:
            with client.transaction():
                for _ in range(size):
                    client.send("t12", VALUE, partition=0)
            count += 1
            if count == 0:
                began = time.perf_counter()
        return count / (time.perf_counter() - began)

    return play


def exactly_once(client: Client) -> float:
    """Records of one topic go to another one in transactions of 500, with their offsets."""
    client.producer({"transactional_id": a_name()})
    client.consumer("filled4", 4, {"group": a_name(), "auto_offset_reset": "earliest"})
    got, began = 0, 0.0
    while got < FILLED - 20_000 and (not began or time.perf_counter() - began < 2 * SECONDS):
        values = client.take(500)
        with client.transaction():
            for value in values:
                client.send("t12", value, partition=0)
            client.send_offsets()
        if began:
            got += len(values)
        elif values:
            began = time.perf_counter()
    return got / (time.perf_counter() - began)


def end_to_end(client: Client) -> float:
    """One record after the other is sent and read."""
    client.producer({"linger_ms": 0})
    client.consumer("e2e", 1, {"group": a_name(), "auto_offset_reset": "earliest"})
    client.send("e2e", VALUE, partition=0)
    while client.take(1000):  # what earlier ones have left; the last call waits until nothing comes
        pass
    times = []
    for _ in range(400):
        began = time.perf_counter()
        client.send("e2e", VALUE, partition=0)
        if not client.take(1):
            raise RuntimeError("the record did not come within 5 s")
        times.append(time.perf_counter() - began)
    return 1 / statistics.median(times[100:])


# -- the shapes ------------------------------------------------------------------------------------------------------------------
@dataclasses.dataclass(frozen=True)
class Shape:
    """ours and peer: the client, and what it plays. gate: the least ratio of their rates."""

    ours: tuple[str, Play]
    peer: tuple[str, Play]
    gate: float


def beside(play: Play, gate: float = 1.0, *, peer: str = "confluent", plays: Play | None = None) -> Shape:
    return Shape(("gkafka", play), (peer, plays or play), gate)


def skin(client: str, play: Play, native: Play, gate: float = 0.6) -> Shape:
    """What a skin takes of the rate that the same option has on the native API."""
    return Shape((client, play), ("gkafka", native), gate)


def same(thing: Any) -> Any:
    return thing


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


def last_of(partitions: Sequence[Any], key: Any) -> Any:
    return partitions[len(key) % len(partitions)]


def ignored(*_: Any) -> None:
    pass


def plain_interceptors() -> list[Any]:
    from gkafka.interceptors import ProducerInterceptor

    return [ProducerInterceptor()]


class Intercepted:
    """Options that need gkafka where they are made, which the process of a peer does not load."""

    def __call__(self, client: Client) -> float:
        return sending(record(), interceptors=plain_interceptors())(client)


PLAIN = sending(record())
FREE = sending(record(key=None))
READ_ONE, READ_ITER, READ_10 = reading("filled1", how="one"), reading("filled1", how="iter"), reading("filled1", how=10)
READ_500 = reading("filled1")
READ_SKIPPING = reading("filled1", value_deserializer=same, on_deserialize_error="skip")
SERIALIZED = sending(record(), value_serializer=same)
SHAPES: dict[str, Shape] = {
    # one record after another
    "send-plain": beside(PLAIN),
    "send-key": beside(sending(keyed)),
    "send-headers": beside(sending(record(partition=0, headers=HEADERS))),
    "send-timestamp": beside(sending(record(partition=0, timestamp=1_700_000_000_000))),
    "send-acks1": beside(sending(record(), acks=1)),
    "send-lz4": beside(sending(record(), compression="lz4")),
    "send-1k": beside(sending(record(VALUE * 10))),
    "send-10k": beside(sending(record(VALUE * 100))),
    "send-parts12": beside(sending(spread("t12", 12))),
    "send-parts100": beside(sending(spread("t1000", 100))),
    "send-parts1000": beside(sending(spread("t1000", 1000)), 0.5),
    "send-parts100-lingering": beside(sending(spread("t1000", 100), linger_ms=500, batch_bytes=32768)),
    # with an option, or with another type
    "send-bytearray": beside(sending(record(bytearray(VALUE))), plays=PLAIN),
    "send-memoryview": beside(sending(record(memoryview(VALUE))), plays=PLAIN),
    "send-bytes-topic": beside(sending(lambda client: lambda: client.send(b"t12", VALUE, partition=0)), plays=PLAIN),
    "send-serializer": beside(SERIALIZED),
    "send-key-serializer": beside(sending(record(key=b"abc"), key_serializer=same)),
    "send-json": beside(sending(record(OBJECT), value_serializer=encoded), 0.8),
    "send-partitioner": beside(sending(record(key=b"abc"), partitioner=last_of)),
    "send-on-delivery": beside(sending(record(), on_delivery=ignored)),
    "send-callback": beside(sending(with_callbacks)),
    "send-interceptor": beside(Intercepted(), 0.1, peer="gkafka", plays=PLAIN),
    "send-transaction": beside(sending(record(), transactional_id="shapes"), 0.8, peer="gkafka", plays=PLAIN),
    # the skins' options beside the native API's
    "facade-send": skin("facade", PLAIN, PLAIN),
    "facade-serializer": skin("facade", SERIALIZED, SERIALIZED),
    "facade-callback": skin("facade", sending(with_callbacks), sending(with_callbacks)),
    "pykafka-send": skin("pykafka", FREE, FREE),
    "pykafka-serializer": skin(
        "pykafka", sending(record(key=None), serializer=lambda v, k: (v, k)), sending(record(key=None), value_serializer=same)
    ),
    "pykafka-partitioner": skin(
        "pykafka", sending(record(key=b"abc"), partitioner=last_of), sending(record(key=b"abc"), partitioner=last_of)
    ),
    "pykafka-reports": skin("pykafka", sending(record(key=None), delivery_reports=True), sending(record(key=None), on_delivery=ignored)),
    # each record is waited for
    "wait-1": beside(waiting(1), 0.7),
    "wait-8": beside(waiting(8), 0.8),
    # reading: how many records a call, what is done with them, how they lie in batches and partitions
    "read-one": beside(READ_ONE),
    "read-iter": beside(READ_ITER),
    "read-iter+g": beside(READ_ITER),
    "read-10": beside(READ_10),
    "read-500": beside(READ_500),
    "read-deserializer": beside(reading("filled1", value_deserializer=same)),
    "read-one-deserializer": beside(reading("filled1", how="one", value_deserializer=same)),
    "read-10-deserializer": beside(reading("filled1", how=10, value_deserializer=same)),
    "read-key-deserializer": beside(reading("filled1", key_deserializer=same)),
    "read-skip": beside(READ_SKIPPING, 0.8, peer="gkafka", plays=reading("filled1", value_deserializer=same)),
    "read-max-bytes": beside(reading("filled1", consume_max_bytes=1 << 20), 0.8, peer="gkafka", plays=READ_500),
    "read-few-queued": beside(reading("filled1", queued_max_messages=10_000), 0.5, peer="gkafka", plays=READ_500),
    "read-unchecked": beside(reading("filled1", check_crcs=False)),
    "read-uncommitted": beside(reading("filled1", isolation_level="read_uncommitted")),
    "read-group": beside(reading("filled1", group="shapes", auto_commit=True, auto_offset_reset="earliest")),
    "read-batches-of-1": beside(reading("batch1", 4), 0.7),
    "read-batches-of-10": beside(reading("batch10", 4)),
    "read-parts100": beside(reading("parts100", 100), 0.8),
    "read-parts1000": beside(reading("parts1000", 1000), 0.4),
    "facade-iter": skin("facade", READ_ITER, READ_ITER),
    "facade-iter+g": skin("facade", READ_ITER, READ_ITER),
    "facade-poll-10": skin("facade", READ_10, READ_10),
    "facade-deserializer": skin("facade", *[reading("filled1", how="iter", value_deserializer=same)] * 2),
    "pykafka-one": skin("pykafka", READ_ONE, READ_ONE),
    "pykafka-iter": skin("pykafka", READ_ITER, READ_ITER),
    "pykafka-member": skin("member", READ_ONE, READ_ONE, 0.4),
    "pykafka-deserializer": skin(
        "pykafka", reading("filled1", how="one", deserializer=lambda v, k: (v, k)), reading("filled1", how="one", value_deserializer=same)
    ),
}
FILLS: dict[str, tuple[int, int | None]] = {
    "filled1": (1, None),
    "filled4": (4, None),
    "batch1": (4, 1),
    "batch10": (4, 10),
    "parts100": (100, 4),
    "parts1000": (1000, 2),
}
"""By topic: partitions, and records in each batch (None: as many as fit). Topics of many partitions have few records in a batch."""
EMPTY = {"t12": 12, "t1000": 1000}
REAL: dict[str, Shape] = {
    "real-send": beside(PLAIN, 3),
    "real-send-1k": beside(sending(record(VALUE * 10)), 1.6),
    "real-send-10k": beside(sending(record(VALUE * 100)), 1.6),
    "real-wait-1": beside(waiting(1), 0.9),
    "real-wait-8": beside(waiting(8), 0.9),
    "real-transactions-of-1": beside(transactions(1)),
    "real-transactions-of-100": beside(transactions(100)),
    "real-exactly-once": beside(exactly_once, 1.3),
    "real-join": beside(joining),
    "real-group": beside(in_group(500, commit=False)),
    "real-group-commit-500": beside(in_group(500, commit=True)),
    "real-group-commit-each": beside(in_group(1, commit=True)),
    "real-end-to-end": beside(end_to_end, 0.56),
}
"""Those of a real Kafka, which has these topics: t12, filled4 with FILLED records, e2e."""


# -- playing them ----------------------------------------------------------------------------------------------------------------
def fill(bootstrap: str, topics: Iterable[str]) -> None:
    from gkafka import KafkaClient

    with KafkaClient(bootstrap) as client, client.get_producer() as producer:
        for topic in topics:
            partitions, size = FILLS[topic]
            for number in range(FILLED // (size or 1)):
                for _ in range(size or 1):
                    producer.produce(topic, VALUE, partition=number % partitions)
                if size:
                    producer.end_batch(topic, number % partitions)
            producer.flush(PATIENCE_S)


def measured(name: str, side: str, bootstrap: str) -> float:
    """A rate, from a process of its own. Raises RuntimeError with its last line if it fails."""
    done = subprocess.run(
        [sys.executable, __file__, "--measure", name, side, bootstrap], capture_output=True, text=True, timeout=180, check=False, cwd=ROOT
    )
    if done.returncode != 0:
        raise RuntimeError(f"{name}, {side}: {(done.stderr.strip().splitlines() or ['no output'])[-1]}")
    return float(done.stdout.splitlines()[-1])


def measure(name: str, side: str, bootstrap: str) -> None:
    shape = shape_of(name)
    client, play = shape.ours if side == "ours" else shape.peer
    gevent = name.endswith("+g") and client != "confluent"
    if gevent:
        from gevent import monkey

        monkey.patch_all()
    print(play(CLIENTS[client](bootstrap, "gevent" if gevent else "threading")), flush=True)
    os._exit(0)  # what is open is of no interest


def chosen(names: Sequence[str], shapes: Mapping[str, Shape]) -> list[str]:
    """Raises SystemExit for a name that is none."""
    found = []
    for name in names or list(shapes):
        plain = name.removesuffix("+g") if name not in shapes else name
        fitting = [each for each in shapes if each == plain or (plain.endswith("*") and each.startswith(plain[:-1]))]
        if plain != name:
            fitting = [f"{each}+g" for each in fitting if not each.endswith("+g")]
        if not fitting:
            raise SystemExit(f"{name}: no such shape; --list names them")
        found += [each for each in fitting if each not in found]
    return found


def shape_of(name: str) -> Shape:
    """With greenlets it is the same shape, unless it has gates of its own there."""
    shapes = SHAPES | REAL
    return shapes[name] if name in shapes else shapes[name.removesuffix("+g")]


@contextlib.contextmanager
def broker_for(shape: Shape) -> Iterator[str]:
    """The address of a stub with what the shape needs: a new one for each measurement, since it keeps what it gets, 8 GB of a partition at most."""
    from benchmarks.figures import create, stub_broker

    topic = getattr(shape.ours[1], "topic", None)
    with stub_broker() as bootstrap:
        for each, partitions in {**EMPTY, **({topic: FILLS[topic][0]} if topic else {})}.items():
            create(bootstrap, each, partitions)
        fill(bootstrap, [topic] if topic else [])
        yield bootstrap


@contextlib.contextmanager
def real_broker() -> Iterator[str]:
    """The same of a real Kafka with what all of REAL need."""
    from benchmarks.figures import create
    from tests.live.kafka import KafkaNode
    from tests.turns import NEWEST

    with KafkaNode(NEWEST, fast=False) as kafka:
        for topic, partitions in {"t12": 12, "filled4": FILLS["filled4"][0], "e2e": 1}.items():
            create(kafka.hosts, topic, partitions)
        fill(kafka.hosts, ["filled4"])
        yield kafka.hosts


def run(names: Sequence[str], rounds: int, address: str = "") -> list[dict[str, Any]]:
    """Measure these shapes and print a line for each. address: of a broker that has what they need. Returns the lines of those that could be played."""
    rows = []
    print(f"{'shape':24} {'gkafka, /s':>12} {'peer, /s':>12} {'ratio':>6} {'gate':>5}  peer")
    for name in names:
        shape = shape_of(name)
        rates: dict[str, list[float]] = {"peer": [], "ours": []}
        try:
            for _, (side, values) in itertools.product(range(rounds), rates.items()):
                with contextlib.nullcontext(address) if address else broker_for(shape) as bootstrap:
                    values.append(measured(name, side, bootstrap))
        except (RuntimeError, subprocess.TimeoutExpired) as exc:
            print(f"{name:24} could not be played: {exc}", flush=True)
            continue
        ours, peer = statistics.median(rates["ours"]), statistics.median(rates["peer"])
        row = {"shape": name, "ours": ours, "peer": peer, "ratio": ours / peer, "gate": shape.gate, "beside": shape.peer[0]}
        rows.append(row)
        below = "  BELOW" if row["ratio"] < shape.gate else ""
        print(f"{name:24} {ours:12,.0f} {peer:12,.0f} {row['ratio']:6.2f} {shape.gate:5.2g}  {shape.peer[0]}{below}", flush=True)
    return rows


def markdown(files: Sequence[str]) -> str:
    """The table of docs/performance.md: ratios by what is done and what it is beside, and what is not ahead."""
    rows = [row for file in files for row in json.loads(Path(file).read_text())]
    groups: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        kind, _, what = row["shape"].partition("-")
        groups.setdefault((kind, row["beside"]), []).append(f"{what} {row['ratio']:.2g}")
    lines = ["| what | beside | ratios |", "|---|---|---|"]
    lines += [f"| {kind} | {peer} | {', '.join(ratios)} |" for (kind, peer), ratios in groups.items()]
    behind = [f"{row['shape']} {row['ratio']:.2g}" for row in rows if row["beside"] == "confluent" and row["ratio"] < 1]
    return "\n".join([*lines, "", f"Not ahead of confluent-kafka: {', '.join(behind) or 'nothing of these'}."])


def main() -> int:
    if sys.argv[1:2] == ["--measure"]:
        measure(*sys.argv[2:5])
    if sys.argv[1:2] == ["--markdown"]:
        print(markdown(sys.argv[2:]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="*", metavar="SHAPE", help="default: all")
    parser.add_argument("--real", action="store_true", help="those that need a real Kafka")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each side (default: %(default)s)")
    parser.add_argument("--gate", action="store_true", help="exit with 1 if one of these is below its gate")
    parser.add_argument("--list", action="store_true", help="only name them")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the lines there, too")
    given = parser.parse_args()
    names = chosen(given.shapes, REAL if given.real else SHAPES)
    if given.list:
        print("\n".join(names))
        return 0
    with real_broker() if given.real else contextlib.nullcontext("") as address:
        rows = run(names, given.rounds, address)
    below = [row["shape"] for row in rows if row["ratio"] < row["gate"]]
    failed = set(names) - {row["shape"] for row in rows}
    print(f"{len(below)} of {len(rows)} below their gate" + (f": {', '.join(below)}" if below else ""))
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1))
    return 1 if failed or (below and given.gate) else 0


if __name__ == "__main__":
    sys.exit(main())
