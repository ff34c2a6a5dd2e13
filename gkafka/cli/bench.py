"""`kafka-tools bench`: how fast are producing, consuming and a round trip, from this machine, on this cluster?"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from uuid import uuid4

import click

from gkafka.cli.arguments import TOPIC
from gkafka.cli.connection import CONSUMER, PRODUCER, close_quietly, connect, connection_options, in_time, lift, settings_of
from gkafka.cli.failures import ToolError
from gkafka.cli.output import document, json_option, note, table, wants_json
from gkafka.cli.pipes import stoppable
from gkafka.cli.progress import progress
from gkafka.cli.quantities import PARTITIONS, RECORDS, REPLICAS, VALUE_BYTES, Quantity
from gkafka.cli.starts import EARLIEST, Start, all_partitions, ends_of, partitions_of, starts_of
from gkafka.undoing import Undoing

if TYPE_CHECKING:
    from gkafka.client import KafkaClient
    from gkafka.nativeproducer import NativeProducer

__all__ = ["bench"]

F = TypeVar("F", bound=Callable[..., Any])
USES = (PRODUCER, CONSUMER)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
DISTINCT = 500
"""Different values: half of each is random, so that codecs have something to do."""
DISTINCT_BYTES = 64 << 20
"""Memory for them; large values are fewer."""
EACH = 100
"""One delivery of so many has its time taken."""
AT_ONCE = 5000
SLICE_MS = 200
DRAIN_S = 30.0
PERCENTILES = (50, 90, 99, 99.9)


class Load(NamedTuple):
    """What is sent. records, seconds: whichever is reached first. topic: None makes one and removes it."""

    records: int
    seconds: float
    size: int
    topic: str | None
    partitions: int
    replication_factor: int


@click.group(name="bench", short_help="Measure producing and consuming on this cluster.")
@json_option
@connection_options
def bench() -> None:
    """Measure this cluster from this machine. What is measured is both, and what else they do just now.

    Without --topic a topic is made for it, and removed afterwards.
    """


def _load(records: int, seconds: float) -> Callable[[F], F]:
    """The options that say how much."""
    options = (
        click.option("--topic", metavar="NAME", type=TOPIC, help="Use this topic, which stays; else one is made and removed."),
        click.option("--records", type=RECORDS, default=records, show_default=True, help="So many at most."),
        click.option("--seconds", type=Quantity(above=True), default=seconds, show_default=True, help="So long at most."),
        click.option("--size", type=VALUE_BYTES, default=100, show_default=True, help="Bytes of a value."),
        click.option("--partitions", type=PARTITIONS, default=4, show_default=True, help="Of a topic that is made."),
        click.option("--replication-factor", type=REPLICAS, default=1, show_default=True, help="Of a topic that is made."),
    )

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


@bench.command(name="produce", short_help="Records per second until they are acknowledged.")
@_load(1_000_000, 10)
@click.option("--acks", type=click.Choice(["all", "1", "0"]), help="Which replicas must have a record. [all]")
@click.option("-z", "--compression", type=click.Choice(CODECS), help="Of the batches. [none]")
@click.option("--linger-ms", type=Quantity(), help="A batch waits so long for more records. [5]")
@json_option
@connection_options
@click.pass_context
def produce(ctx: click.Context, /, *, acks: str | None, compression: str | None, linger_ms: float | None, **load: Any) -> None:
    """Produce as fast as the brokers acknowledge. The times are those from produce() to the acknowledgement, waiting in line included."""
    with _topic(ctx, Load(**load)) as (client, topic):
        _tell(ctx, topic, [_produce(client, topic, Load(**load), _producer(ctx, acks=acks, compression=compression, linger_ms=linger_ms))])


@bench.command(name="consume", short_help="Records per second that are read.")
@_load(1_000_000, 10)
@json_option
@connection_options
@click.pass_context
def consume(ctx: click.Context, /, **load: Any) -> None:
    """Consume from the beginning of the topic. One that was made for it is filled first, which is not measured."""
    wanted = Load(**load)
    with _topic(ctx, wanted) as (client, topic):
        if wanted.topic is None:
            _produce(client, topic, wanted, _producer(ctx))
        _tell(ctx, topic, [_consume(client, topic, wanted, _consumer(ctx), settings_of(ctx, uses=USES).at_once(AT_ONCE))])


@bench.command(name="latency", short_help="Milliseconds of a record's round trip.")
@_load(1000, 10)
@click.option("--acks", type=click.Choice(["all", "1"]), help="Which replicas must have a record. [all]")
@json_option
@connection_options
@click.pass_context
def latency(ctx: click.Context, /, *, acks: str | None, **load: Any) -> None:
    """Send one record at a time, and wait until it was acknowledged and has come back to a consumer."""
    with _topic(ctx, Load(**load)) as (client, topic):
        _tell(ctx, topic, _latency(client, topic, Load(**load), {"linger_ms": 0, **_producer(ctx, acks=acks)}, _consumer(ctx)))


# -- options of the file and of the command line ----------------------------------------------------------------------------
def _producer(ctx: click.Context, **said: Any) -> dict[str, Any]:
    """Of the producer; said: by the command line, which counts before the file."""
    from gkafka.config import ProducerConfig

    settings = settings_of(ctx, uses=USES)
    settings.refuse("bench measures without transactions: leave it out", "transactional_id", "transaction_timeout_ms")
    return {**settings.of(ProducerConfig), **{name: value for name, value in said.items() if value is not None}}


def _consumer(ctx: click.Context) -> dict[str, Any]:
    from gkafka.config import NativeConsumerConfig

    return settings_of(ctx, uses=USES).of(NativeConsumerConfig)


# -- the topic -------------------------------------------------------------------------------------------------------------
@contextlib.contextmanager
def _topic(ctx: click.Context, load: Load) -> Iterator[tuple[KafkaClient, str]]:
    """A client, and the topic: the user's, or one that is removed at the end, whatever that is."""
    here = progress()
    here.rest = "what was measured until then does not count"
    with stoppable(), connect(ctx, uses=USES) as client, in_time(client), here.doing(f"measure, {load.seconds:g} s at most"):
        if load.topic is not None:
            partitions_of(client, load.topic)
            lift(client)
            yield client, load.topic
            return
        name = f"kafka-tools-bench-{uuid4().hex[:12]}"
        client.create_topic(name, load.partitions, load.replication_factor)
        lift(client)
        try:
            yield client, name
        finally:
            _remove(client, name)


def _remove(client: KafkaClient, name: str) -> None:
    from gkafka.exceptions import KafkaException

    try:
        client.delete_topic(name)
    except KafkaException as exc:
        note(f"kafka-tools: topic {name} could not be removed: {exc}\n  next: kafka-tools topics delete {name}")


# -- measuring -------------------------------------------------------------------------------------------------------------
def _values(size: int) -> list[bytes]:
    chance = Random(size)
    return [chance.randbytes(size // 2) + b"x" * (size - size // 2) for _ in range(max(1, min(DISTINCT, DISTINCT_BYTES // size)))]


def _produce(client: KafkaClient, topic: str, load: Load, options: dict[str, Any]) -> dict[str, Any]:
    now = client.handler.monotonic
    values, times = _values(load.size), Times(now)
    with _ended(client.get_producer(**options)) as producer:
        sent, until = 0, now() + load.seconds
        begun = now()
        while sent < load.records and now() < until:
            for i in range(min(EACH, load.records - sent)):
                delivery = producer.produce(topic, values[(sent + i) % len(values)])
            delivery.add_done_callback(times.since(now()))
            sent += min(EACH, load.records - sent)
        producer.flush(DRAIN_S)
        took = now() - begun
    return {**_rate("produce", sent, sent * load.size, took), **times.row()}


@contextlib.contextmanager
def _ended(producer: NativeProducer) -> Iterator[NativeProducer]:
    """Close it at the end; of a measurement that was broken off nobody asks what became of its records."""
    with Undoing(close_quietly, producer, 0):
        yield producer
    producer.close(DRAIN_S)


def _consume(client: KafkaClient, topic: str, load: Load, options: dict[str, Any], at_once: int) -> dict[str, Any]:
    now = client.handler.monotonic
    partitions = all_partitions(client, [topic])
    ends = ends_of(client, partitions)
    starts = starts_of(client, partitions, Start("end", EARLIEST))
    there = sum(ends[tp] - starts[tp] for tp in partitions)
    if not there:
        raise ToolError(f"topic {topic!r} is empty: there is nothing to consume", hint="the same without --topic makes and fills one")
    records = size = 0
    begun = now()
    with client.get_consumer(**options) as consumer:
        consumer.assign(starts)
        while records < load.records and now() < begun + load.seconds:
            messages = consumer.consume_batch(min(at_once, load.records - records), SLICE_MS)
            records += len(messages)
            size += sum(len(m.value or b"") for m in messages)
            positions = consumer.positions()
            if all(positions.get(tp, -1) >= end for tp, end in ends.items()):
                break
        took = now() - begun
        consumer.abandon()
    return _rate("consume", records, size, took)


def _latency(client: KafkaClient, topic: str, load: Load, producing: dict[str, Any], consuming: dict[str, Any]) -> list[dict[str, Any]]:
    now = client.handler.monotonic
    acknowledged, round_trip = Times(now), Times(now)
    run, value = uuid4().bytes, _values(load.size)[0]
    partition = client.partitions(topic)[0]
    with client.get_consumer(**consuming) as consumer, _ended(client.get_producer(**producing)) as producer:
        position = producer.produce(topic, value, partition=partition, key=run).result(DRAIN_S).offset  # connects, and is not measured
        consumer.assign({(topic, partition): position + 1})
        consumer.consume(SLICE_MS)
        begun, sent = now(), 0
        while sent < load.records and now() < begun + load.seconds:
            at = now()
            offset = producer.produce(topic, value, partition=partition, key=run).result(DRAIN_S).offset
            acknowledged.took(at)
            _wait_for(consumer, offset, now)
            round_trip.took(at)
            sent += 1
        took = now() - begun
        consumer.abandon()
    return [
        {**_rate("acknowledged", sent, sent * load.size, took), **acknowledged.row()},
        {**_rate("round trip", sent, sent * load.size, took), **round_trip.row()},
    ]


def _wait_for(consumer: Any, offset: int, now: Callable[[], float]) -> None:
    until = now() + DRAIN_S
    while now() < until:
        message = consumer.consume(SLICE_MS)
        if message is not None and message.offset >= offset:
            return
    raise ToolError(
        f"a record was acknowledged at offset {offset} and did not come back within {DRAIN_S:g} s", hint="see the brokers' logs"
    )


class Times:
    """How long things took, in ms."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._ms: list[float] = []

    def took(self, began: float) -> None:
        """Something that began then is done."""
        self._ms.append((self._now() - began) * 1000)

    def since(self, began: float) -> Callable[[object], None]:
        """A callback for a delivery that was made then."""
        return lambda _: self.took(began)

    def row(self) -> dict[str, float | None]:
        """Percentiles, and the longest."""
        found = {f"p{p:g}_ms": percentile(self._ms, p) for p in PERCENTILES}
        return {**found, "max_ms": round(max(self._ms), 3) if self._ms else None}


def percentile(values: Sequence[float], p: float) -> float | None:
    """The smallest value that p percent of the values do not pass; None of none."""
    if not values:
        return None
    ordered = sorted(values)
    return round(ordered[max(0, math.ceil(len(ordered) * p / 100) - 1)], 3)


def _rate(what: str, records: int, size: int, took: float) -> dict[str, Any]:
    return {
        "what": what,
        "records": records,
        "seconds": round(took, 3),
        "records_per_s": round(records / took) if took else 0,
        "mb_per_s": round(size / took / 1e6, 2) if took else 0.0,
    }


def _tell(ctx: click.Context, topic: str, rows: list[dict[str, Any]]) -> None:
    if wants_json(ctx):
        document({"topic": topic, "rows": rows})
        return
    table(rows, list(rows[0]))
