"""Shapes of use: how fast gkafka is where options, calls, batches and partitions are as users have them, beside confluent-kafka or beside itself.

    python benchmarks/shapes.py [--rounds 3] [--gate] [--list] [--json FILE] [SHAPE ...]
    python benchmarks/shapes.py --markdown FILE ...     (the table of docs/performance.md, of what --json has written)

Each measurement runs in a process of its own, on the stub broker, which is as fast as the wire; the two sides of a shape take turns. A shape is named in full,
or by its beginning with a "*" behind it. What confluent-kafka has nothing for, and what a skin adds, is measured beside plain gkafka. Any shape
with "+g" behind it ("send-plain+g", "send*+g") runs with gevent's patches, beside confluent-kafka on threads. Records have 100 bytes where the name does not say otherwise.

Prints both rates (medians, per second) and their ratio, and names what is below its gate. Exit status: 1 if a shape could not be
played, or if --gate is given and one is below.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

VALUE = b"x" * 100
OBJECT = {"id": 1, "name": "somebody", "tags": ["a", "b"]}
HEADERS = [("a", b"1"), ("trace", b"0123456789abcdef")]
KEYS = [b"user-%d" % i for i in range(1000)]
SECONDS = 2.0
FILLED = 200_000
PATIENCE_S = 60.0

Options = Mapping[str, Any]


# -- the clients, in the words that the shapes use ---------------------------------------------------------------------------
class Client:
    """producer(options) gives it send(topic, value, key, partition, headers) and flush(); consumer(topic, partitions, options) one(): a message, many(n): takes
    some and says how many, and iterate(). with_callback(done) sends a record and has its outcome told; wait(partition) sends one and waits for it.
    """

    def __init__(self, bootstrap: str, handler: str) -> None:
        self.bootstrap, self.handler = bootstrap, handler

    send: Callable[..., Any]
    flush: Callable[[], object]
    one: Callable[[], Any]
    many: Callable[[int], int]
    iterate: Callable[[], Iterator[Any]]
    producer: Callable[[Options], None]
    consumer: Callable[[str, int, Options], None]
    with_callback: Callable[[Callable[[Any], object]], None]
    wait: Callable[[int], None]


class Gkafka(Client):
    """The native API."""

    def producer(self, options: Options) -> None:
        producer = self._client().get_producer(**options)
        if "transactional_id" in options:
            producer.init_transactions()
            producer.begin_transaction()
        self.send, self.flush = producer.produce, lambda: producer.flush(PATIENCE_S)

    def consumer(self, topic: str, partitions: int, options: Options) -> None:
        consumer = self._client().get_consumer(topic, **options)
        self.one, self.many = lambda: consumer.consume(5000), lambda count: len(consumer.consume_batch(count, 5000))
        self.iterate = lambda: iter(consumer)

    def with_callback(self, done: Callable[[Any], object]) -> None:
        self.send("t12", VALUE, partition=0).add_done_callback(done)

    def wait(self, partition: int) -> None:
        self.send("t12", VALUE, partition=partition).result(PATIENCE_S)

    def _client(self) -> Any:
        from gkafka import KafkaClient

        return KafkaClient(self.bootstrap, handler=self.handler)


class Confluent(Client):
    """options: those of the native API, as far as confluent-kafka has them; callables are called by the loop that sends or reads, as its users do."""

    def producer(self, options: Options) -> None:
        import confluent_kafka

        conf = {"bootstrap.servers": self.bootstrap, "linger.ms": options.get("linger_ms", 5), "queue.buffering.max.messages": 1_000_000}
        conf |= {"acks": options.get("acks", "all"), "enable.idempotence": options.get("acks", "all") == "all"}
        conf |= {"compression.type": options["compression"]} if "compression" in options else {}
        self.inner = producer = confluent_kafka.Producer(conf)
        produce, poll, sent = producer.produce, producer.poll, itertools.count(1)

        def send(topic: str, value: Any, **given: Any) -> None:
            while True:
                try:
                    produce(topic, value, **given)
                    break
                except BufferError:
                    poll(0.05)
            if not next(sent) % 1000:
                poll(0)

        serialized, key_serialized = options.get("value_serializer"), options.get("key_serializer")
        partitioner = options.get("partitioner") if callable(options.get("partitioner")) else None
        told = {"on_delivery": options["on_delivery"]} if "on_delivery" in options else {}
        numbers = list(range(12))

        def send_with_own_code(topic: str, value: Any, key: Any = None, **given: Any) -> None:
            if serialized is not None:
                value = serialized(value)
            if key_serialized is not None:
                key = key_serialized(key)
            if partitioner is not None:
                given["partition"] = partitioner(numbers, key)
            send(topic, value, key=key, **told, **given)

        def flush() -> None:
            while producer.flush(30):
                pass

        own_code = serialized is not None or key_serialized is not None or partitioner is not None or told
        self.send, self.flush = send_with_own_code if own_code else send, flush

    def consumer(self, topic: str, partitions: int, options: Options) -> None:
        import confluent_kafka

        conf = {"bootstrap.servers": self.bootstrap, "group.id": options.get("group") or "none", "auto.offset.reset": "earliest"}
        conf |= {"enable.auto.commit": bool(options.get("auto_commit")), "queued.min.messages": 1_000_000}
        consumer = confluent_kafka.Consumer({**conf, "fetch.message.max.bytes": 4 << 20, "check.crcs": options.get("check_crcs", True)})
        if options.get("group"):
            consumer.subscribe([topic])
        else:
            consumer.assign([confluent_kafka.TopicPartition(topic, p, 0) for p in range(partitions)])
        deserialized, key_deserialized = options.get("value_deserializer"), options.get("key_deserializer")

        def read(message: Any) -> Any:
            if deserialized is not None:
                deserialized(message.value())
            if key_deserialized is not None:
                key_deserialized(message.key())
            return message

        deserializes = deserialized is not None or key_deserialized is not None
        self.one = (lambda: read(consumer.poll(5))) if deserializes else lambda: consumer.poll(5)
        self.many = (
            (lambda count: len([read(m) for m in consumer.consume(count, 5)]))
            if deserializes
            else lambda count: len(consumer.consume(count, 5))
        )
        self.iterate = lambda: iter(self.one, None)

    def with_callback(self, done: Callable[[Any], object]) -> None:
        self.send("t12", VALUE, partition=0, on_delivery=lambda error, message: done(message))

    def wait(self, partition: int) -> None:
        done: list[Any] = []
        self.inner.produce("t12", VALUE, partition=partition, on_delivery=lambda *_: done.append(1))
        while not done:
            self.inner.poll(1)


class Facade(Client):
    """gkafka.kafka: KafkaProducer and KafkaConsumer."""

    def producer(self, options: Options) -> None:
        from gkafka.kafka import KafkaProducer

        self.inner = producer = KafkaProducer(
            bootstrap_servers=self.bootstrap, handler=self.handler, linger_ms=5, batch_size=1 << 17, **options
        )
        self.send = producer.send
        self.flush = lambda: producer.flush(PATIENCE_S)

    def consumer(self, topic: str, partitions: int, options: Options) -> None:
        from gkafka.kafka import KafkaConsumer

        given = {"auto_offset_reset": "earliest", "consumer_timeout_ms": 5000, "handler": self.handler, **options}
        consumer = KafkaConsumer(topic, bootstrap_servers=self.bootstrap, **given)
        self.many = lambda count: sum(map(len, consumer.poll(5000, max_records=count).values()))
        self.iterate = lambda: iter(consumer)

    def with_callback(self, done: Callable[[Any], object]) -> None:
        self.inner.send("t12", VALUE, partition=0).add_callback(done)


class Pykafka(Client):
    """pykafka's Producer and SimpleConsumer."""

    def producer(self, options: Options) -> None:
        topic = self._topic("t12")
        producer = topic.get_producer(linger_ms=5, **options)
        self.send = lambda topic, value, key=None, partition=None: producer.produce(value, key)
        if options.get("delivery_reports"):  # as its users do: they are taken out now and then
            sent = itertools.count(1)

            def send(topic: str, value: Any, key: Any = None, partition: Any = None) -> None:
                producer.produce(value, key)
                if not next(sent) % 1000:
                    self._take_reports(producer)

            self.send = send
        self.flush = producer.stop

    @staticmethod
    def _take_reports(producer: Any) -> None:
        import queue

        while True:
            try:
                producer.get_delivery_report(block=False)
            except queue.Empty:
                return

    def consumer(self, topic: str, partitions: int, options: Options) -> None:
        consumer = self._topic(topic).get_simple_consumer(consumer_timeout_ms=5000, **options)
        self.one, self.iterate = consumer.consume, lambda: iter(consumer)

    def _topic(self, name: str) -> Any:
        from gkafka import KafkaClient

        self.client = KafkaClient(self.bootstrap, handler=self.handler)
        return self.client.topics[name.encode()]


class Member(Pykafka):
    """pykafka's BalancedConsumer."""

    def consumer(self, topic: str, partitions: int, options: Options) -> None:
        consumer = self._topic(topic).get_balanced_consumer("shapes", managed=True, consumer_timeout_ms=PATIENCE_S * 1000, **options)
        self.one, self.many = consumer.consume, lambda count: len(consumer.consume_batch(count, PATIENCE_S * 1000))
        self.iterate = lambda: iter(consumer)


CLIENTS: dict[str, type[Client]] = {"gkafka": Gkafka, "confluent": Confluent, "facade": Facade, "pykafka": Pykafka, "member": Member}


# -- what a shape does with a client: each returns a rate, per second -------------------------------------------------------------
Play = Callable[[Client], float]


def sending(call_of: Callable[[Client], Callable[[], object]], **options: Any) -> Play:
    """Send as fast as the client takes it, for SECONDS, and flush."""

    def play(client: Client) -> float:
        client.producer(options)
        call = call_of(client)
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
    "batch1": (4, 1),
    "batch10": (4, 10),
    "parts100": (100, 4),
    "parts1000": (1000, 2),
}
"""By topic: partitions, and records in each batch (None: as many as fit). Topics of many partitions have few records in a batch."""
EMPTY = {"t12": 12, "t1000": 1000}


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


def chosen(names: Sequence[str]) -> list[str]:
    """Raises SystemExit for a name that is none."""
    found = []
    for name in names or list(SHAPES):
        plain = name.removesuffix("+g") if name not in SHAPES else name
        fitting = [each for each in SHAPES if each == plain or (plain.endswith("*") and each.startswith(plain[:-1]))]
        if plain != name:
            fitting = [f"{each}+g" for each in fitting if not each.endswith("+g")]
        if not fitting:
            raise SystemExit(f"{name}: no such shape; --list names them")
        found += [each for each in fitting if each not in found]
    return found


def shape_of(name: str) -> Shape:
    """With greenlets it is the same shape, unless it has gates of its own there."""
    return SHAPES[name] if name in SHAPES else SHAPES[name.removesuffix("+g")]


def run(names: Sequence[str], rounds: int) -> list[dict[str, Any]]:
    """Measure these shapes and print a line for each. Returns the lines of those that could be played."""
    from benchmarks.figures import create, stub_broker

    rows = []
    print(f"{'shape':24} {'gkafka, /s':>12} {'peer, /s':>12} {'ratio':>6} {'gate':>5}  peer")
    for name in names:
        shape = shape_of(name)
        topic = getattr(shape.ours[1], "topic", None)
        rates: dict[str, list[float]] = {"peer": [], "ours": []}
        try:
            for _, (side, values) in itertools.product(range(rounds), rates.items()):
                with stub_broker() as bootstrap:  # a new one for each: it keeps what it gets, 8 GB of a partition at most
                    for each, partitions in {**EMPTY, **({topic: FILLS[topic][0]} if topic else {})}.items():
                        create(bootstrap, each, partitions)
                    fill(bootstrap, [topic] if topic else [])
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
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each side (default: %(default)s)")
    parser.add_argument("--gate", action="store_true", help="exit with 1 if one of these is below its gate")
    parser.add_argument("--list", action="store_true", help="only name them")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the lines there, too")
    given = parser.parse_args()
    names = chosen(given.shapes)
    if given.list:
        print("\n".join(names))
        return 0
    rows = run(names, given.rounds)
    below = [row["shape"] for row in rows if row["ratio"] < row["gate"]]
    failed = set(names) - {row["shape"] for row in rows}
    print(f"{len(below)} of {len(rows)} below their gate" + (f": {', '.join(below)}" if below else ""))
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1))
    return 1 if failed or (below and given.gate) else 0


if __name__ == "__main__":
    sys.exit(main())
