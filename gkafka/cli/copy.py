"""`kafka-tools copy`: the records of a topic into another one, of the same cluster or of another."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from gkafka.cli.arguments import GROUP, TOPIC
from gkafka.cli.connection import (
    CONSUMER,
    POSITION,
    PRODUCER,
    connect,
    connection_options,
    connection_options_of,
    given,
    in_time,
    lift,
    settings_of,
)
from gkafka.cli.failures import ToolError, UnusableError
from gkafka.cli.output import counted, document, json_option, note, table, wants_json
from gkafka.cli.pipes import stoppable
from gkafka.cli.progress import progress, so_far
from gkafka.cli.quantities import PARTITION, RECORDS
from gkafka.cli.starts import EARLIEST, LATEST, Start, StartType, all_partitions, ends_of, partitions_of, starts_of
from gkafka.common import TopicPartition
from gkafka.undoing import Undoing

if TYPE_CHECKING:
    from gkafka.cli.settings import Settings
    from gkafka.client import KafkaClient
    from gkafka.consumer import Consumer
    from gkafka.exceptions import KafkaException
    from gkafka.nativeproducer import NativeProducer
    from gkafka.records import Delivery

__all__ = ["copy"]

SLICE_MS = 200
AT_ONCE = 5000
"""Records that are taken together."""
STEP_RECORDS = 50_000
STEP_S = 1.0
"""Progress is committed after so many records, or after this time."""
ONTO_ITSELF = "SOURCE and TARGET {!r}: is both the topic that is read and the one that is written"
ELSEWHERE = "name another TARGET, or another cluster: --to-bootstrap-server"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Asked(NamedTuple):
    """What the command line says. start: where a partition begins of which the group has committed nothing. most: records, None for all.

    partitions: none for all. transactions: None for what the clusters allow.
    """

    source: str
    target: str
    group: str | None
    start: Start
    partitions: tuple[int, ...]
    most: int | None
    follow: bool
    partition_by: str
    transactions: bool | None


class Means(NamedTuple):
    """What it is done with. consumer, producer: their options; at_once: records that are taken together."""

    consumer: dict[str, Any]
    producer: dict[str, Any]
    at_once: int


class Plan(NamedTuple):
    """What is copied where. exact: each step is one transaction with the group's offsets. same: partitions stay as they are; else the key says which."""

    source: str
    target: str
    partitions: list[TopicPartition]
    group: str | None
    start: Start
    most: int | None
    follow: bool
    exact: bool
    same: bool
    means: Means


@click.command(name="copy", short_help="Copy records between topics or clusters.")
@click.argument("source", type=TOPIC)
@click.argument("target", type=TOPIC)
@click.option("-g", "--group", type=GROUP, help="Keeps how far the copy has come: the same command goes on there after any end.")
@click.option("--no-group", is_flag=True, help="Keep nothing, whatever group.id the file of --config has.")
@click.option("--from", "start", type=StartType(), help="Where it begins: earliest (the default), latest, an offset, a time ago, a time.")
@click.option("-p", "--partition", "partitions", type=PARTITION, multiple=True, help="Only this one; may be given again.")
@click.option("-n", "--max-messages", type=RECORDS, metavar="N", help="Copy so many at most.")
@click.option("--until-end/--follow", "until_end", default=True, help="Stop at the present end (the default), or go on until Ctrl-C.")
@click.option(
    "--partition-by",
    type=click.Choice(["auto", "number", "key"]),
    default="auto",
    show_default=True,
    help="Records keep the number of their partition, or the key decides; auto: the number where both topics have as many.",
)
@click.option(
    "--transactions/--no-transactions",
    default=None,
    help="Records and progress count together, or not at all; on with --group within one cluster of Kafka 0.11 or newer.",
)
@click.option("-z", "--compression", type=click.Choice(CODECS), help="Of the batches that are written. [none]")
@json_option
@connection_options_of("to")
@connection_options
@click.pass_context
def copy(
    ctx: click.Context,
    *,
    source: str,
    target: str,
    group: str | None,
    no_group: bool,
    start: Start | None,
    partitions: tuple[int, ...],
    max_messages: int | None,
    until_end: bool,
    partition_by: str,
    transactions: bool | None,
    compression: str | None,
) -> None:
    """Copy the records of topic SOURCE to topic TARGET: keys, values, headers, timestamps, and the order within partitions.

    TARGET is on the same cluster, or on the one that --to-bootstrap-server, --to-config ... name. Committed records only.

    With --group the copy can be ended by anything and goes on where it stands, without loss: progress is committed after the records are
    acknowledged, within one cluster in the same transaction, so that nothing is there twice either. Between clusters records that were
    acknowledged right before a crash may be there twice.

    \b
    kafka-tools copy orders orders-by-customer --partition-by key
    kafka-tools copy orders orders --to-bootstrap-server new:9092 -g move-orders --follow
    """
    if group is not None and no_group:
        raise click.UsageError("--group and --no-group: give one of them")
    two = bool(given(ctx, "to"))
    if source == target and not two:
        raise UnusableError(ONTO_ITSELF.format(source), hint=ELSEWHERE)
    read = (CONSUMER, POSITION) if two else (CONSUMER, POSITION, PRODUCER)
    start = _start(settings_of(ctx, uses=read), start, group, no_group)
    if start == Start("end", LATEST) and until_end and group is None:
        raise click.UsageError("--from latest is the end: there is nothing to copy before it; give --follow, too")
    if transactions and group is None:
        raise click.UsageError("--transactions needs --group: they keep records and its progress together")
    counts, here = Counts(), progress()
    here.counted, here.rest = counts.told, "the others are not copied"
    its_end = () if until_end else (KeyboardInterrupt,)
    with contextlib.suppress(*its_end), stoppable(), contextlib.ExitStack() as stack:
        reader = stack.enter_context(connect(ctx, uses=read, auto_create_topics=False))
        writer = stack.enter_context(connect(ctx, "to", uses=(PRODUCER,), auto_create_topics=False)) if two else reader
        stack.enter_context(in_time(reader, writer))
        settings = settings_of(ctx, uses=read)
        asked = Asked(source, target, group, start, partitions, max_messages, not until_end, partition_by, transactions)
        producer = _producer_options(settings_of(ctx, "to", uses=(PRODUCER,)) if two else settings, compression)
        plan = _plan(reader, writer, asked, Means(_consumer_options(settings), producer, settings.at_once(AT_ONCE)))
        tell = partial(_tell, plan, counts, as_json=wants_json(ctx))
        with Undoing(lambda: (counts.total or counts.unsure) and tell()):
            _copy(reader, writer, plan, counts)
        tell()


# -- what is to be done ----------------------------------------------------------------------------------------------------
def _plan(reader: KafkaClient, writer: KafkaClient, asked: Asked, means: Means) -> Plan:
    """Raises ToolError for what the two clusters, or the two topics, do not allow."""
    source, target = asked.source, asked.target
    from_ = all_partitions(reader, [source], asked.partitions)
    to = partitions_of(writer, target)
    one_cluster = writer is reader or _same_cluster(reader, writer)
    if one_cluster and source == target:
        raise ToolError(ONTO_ITSELF.format(source), hint=ELSEWHERE)
    if asked.transactions and not one_cluster:
        raise ToolError(
            "--transactions within one cluster only: no transaction spans two",
            hint="the same without --transactions: records may be there twice after a crash",
        )
    as_many = len(to) == len(reader.partitions(source))
    if asked.partition_by == "number" and not {tp.partition for tp in from_} <= set(to):
        raise ToolError(
            f"topic {target!r} has {counted(len(to), 'partition')}, and {source!r} has {len(reader.partitions(source))}",
            hint=f"the same with --partition-by key, or give the target as many: kafka-tools topics partitions {target} {len(reader.partitions(source))}",
        )
    same = asked.partition_by == "number" or (asked.partition_by == "auto" and as_many)
    if same:  # records for a partition without a leader would be waited for until their delivery timeout; a key may lead elsewhere
        ends_of(writer, [TopicPartition(target, tp.partition) for tp in from_])
    exact = asked.group is not None and one_cluster and (_has_transactions(writer) if asked.transactions is None else asked.transactions)
    return Plan(source, target, from_, asked.group, asked.start, asked.most, asked.follow, exact, same, means)


def _start(settings: Settings, said: Start | None, group: str | None, no_group: bool) -> Start:
    """Where it begins. Raises ConfigurationError for a group that the user has not named on the command line."""
    if group is None and not no_group:
        settings.refuse(
            "a copy with it would skip what this group has read, and move it: give --group NAME for the copy's own progress, or --no-group",
            "group",
        )
    if said is not None:
        return said
    settings.refuse("say where to begin: --from earliest, an offset, a time", "auto_offset_reset", unless=("earliest", "latest"))
    return Start("end", LATEST if settings.records.get("auto_offset_reset") == "latest" else EARLIEST)


def _consumer_options(settings: Settings) -> dict[str, Any]:
    """What the file says of reading."""
    from gkafka.config import NativeConsumerConfig

    settings.refuse("copy reads committed records only: leave it out", "isolation_level", unless=("read_committed",))
    settings.refuse("copy commits what the target has, and nothing before: leave it out", "auto_commit", unless=(False,))
    settings.refuse("copy commits with each of its steps: leave it out", "auto_commit_interval_ms")
    # "none": records that are not there any more, where the copy was to go on, are told and not skipped.
    return {**settings.of(NativeConsumerConfig), "auto_commit": False, "auto_offset_reset": "none"}


def _producer_options(settings: Settings, compression: str | None) -> dict[str, Any]:
    """What the file says of writing, and what the command line does."""
    from gkafka.config import ProducerConfig

    settings.refuse("the transactions of a copy have their name of --group: leave it out", "transactional_id")
    return {"linger_ms": 20, **settings.of(ProducerConfig), **({} if compression is None else {"compression": compression})}


def _same_cluster(one: KafkaClient, other: KafkaClient) -> bool:
    """By their ids; before Kafka 0.10.1 there are none, and then by their addresses."""
    here, there = one.cluster.metadata, other.cluster.metadata
    if here.cluster_id is not None and there.cluster_id is not None:
        return here.cluster_id == there.cluster_id
    return bool({(b.host, b.port) for b in here.brokers.values()} & {(b.host, b.port) for b in there.brokers.values()})


def _has_transactions(client: KafkaClient) -> bool:
    from gkafka.wire.txn import TxnOffsetCommitRequest

    versions = client.cluster.versions
    return versions is not None and TxnOffsetCommitRequest.API.key in versions.ranges


# -- doing it --------------------------------------------------------------------------------------------------------------
class Counts:
    """What is done, for certain. next: where each partition goes on. most: the records that there can be, None where nobody knows."""

    def __init__(self) -> None:
        self.written: dict[int, int] = {}
        self.next: dict[TopicPartition, int] = {}
        self.unsure = 0
        self.most: int | None = None

    @property
    def total(self) -> int:
        """Records that are written."""
        return sum(self.written.values())

    def told(self) -> str:
        """What is done, in words."""
        return f"{so_far(self.total, self.most)} copied"


def _copy(reader: KafkaClient, writer: KafkaClient, plan: Plan, counts: Counts) -> None:
    ends = {} if plan.follow else ends_of(reader, plan.partitions)
    # The producer first: it ends what a copy with the same group has open, or is just committing, and no more of that follows. What the group has
    # committed is asked for behind that; before, records that the other one still commits would be copied again.
    producer = _producer(writer, plan)
    try:
        consumer = _consumer(reader, plan, ends, counts)
        try:
            lift(reader, writer)
            step = Step(consumer, producer, plan, counts, ends, reader.handler.monotonic)
            while not step.over():
                step.run()
            step.settle()
        finally:
            consumer.abandon()
    finally:
        _close(producer)


def _most(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], asked: int | None) -> int | None:
    there = sum(max(0, end - starts.get(tp, end)) for tp, end in ends.items())
    return asked if not ends else there if asked is None else min(there, asked)


def _consumer(client: KafkaClient, plan: Plan, ends: Mapping[TopicPartition, int], counts: Counts) -> Consumer:
    consumer = client.get_consumer(group=plan.group, **plan.means.consumer)
    starts = starts_of(client, plan.partitions, plan.start)
    if plan.group is not None:
        committed = {tp: consumer.committed(tp) for tp in plan.partitions}
        starts = {tp: committed[tp] if committed[tp] >= 0 else offset for tp, offset in starts.items()}
    counts.most = _most(starts, ends, plan.most)  # before anything is fetched
    consumer.assign(starts)
    return consumer


def _producer(client: KafkaClient, plan: Plan) -> NativeProducer:
    if not plan.exact:
        return client.get_producer(**plan.means.producer)
    # Of the group's name: a second copy with the same group ends the first one, and nothing is there twice.
    producer = client.get_producer(transactional_id=f"kafka-tools-copy-{plan.group}", **plan.means.producer)
    producer.init_transactions(timeout=client.cluster.timeout_s())
    return producer


def _close(producer: NativeProducer) -> None:
    from gkafka.exceptions import KafkaException

    with contextlib.suppress(KafkaException):  # what was not delivered was told by the step that it belongs to
        producer.close(5)


class Step:
    """Records that are written together, and then counted and committed."""

    def __init__(
        self,
        consumer: Consumer,
        producer: NativeProducer,
        plan: Plan,
        counts: Counts,
        ends: dict[TopicPartition, int],
        now: Callable[[], float],
    ) -> None:
        self._consumer, self._producer, self._plan, self._counts, self._ends, self._now = consumer, producer, plan, counts, ends, now
        self._left = plan.most
        self._taken: dict[int, int] = {}
        self._positions: dict[TopicPartition, int] = {}
        self._sent: list[tuple[Delivery, TopicPartition, int]] = []  # with the offset in the source

    def over(self) -> bool:
        """Is all of it copied?"""
        if self._left == 0:
            return True
        if self._plan.follow:
            return False
        positions = self._consumer.positions()
        return all(positions.get(tp, -1) >= end for tp, end in self._ends.items())

    def run(self) -> None:
        """Copy some; a moment without any is none, and leaves nothing open."""
        first = self._take()
        if not first:
            self.settle()
            return
        self._taken, self._positions, self._sent = {}, {}, []
        with Undoing(self._doubt), self._naming(), self._transaction():
            self._write_all(first)
            self._acknowledged()
        for partition, count in self._taken.items():
            self._counts.written[partition] = self._counts.written.get(partition, 0) + count
        self._counts.next.update(self._positions)

    def _doubt(self) -> None:
        self._counts.unsure += sum(self._taken.values())

    def settle(self) -> None:
        """Commit the marks of transactions behind the last record, too: no record stands for them, and they would be lag for ever."""
        if self._plan.group is None:
            return
        at = {tp: min(offset, self._ends.get(tp, offset)) for tp, offset in self._consumer.positions().items()}
        behind = {tp: offset for tp, offset in at.items() if offset > self._counts.next.get(tp, offset)}
        if not behind:
            return
        self._positions = behind
        with self._transaction():
            self._acknowledged()
        self._counts.next.update(behind)

    @contextlib.contextmanager
    def _naming(self) -> Iterator[None]:
        """Say which record of the source it is that cannot be written."""
        from gkafka.exceptions import BatchRefusedError, KafkaException

        try:
            yield
        except KafkaException as exc:
            failed = ((tp, offset, delivery.exception(0)) for delivery, tp, offset in self._sent if delivery.done())
            for tp, offset, error in failed:
                if isinstance(error, KafkaException) and not (error.retriable or isinstance(error, BatchRefusedError)):
                    raise _not_written(self._plan, tp, offset, error) from exc
            raise

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        if not self._plan.exact:
            yield
            return
        with self._producer.transaction():
            yield

    def _write_all(self, messages: Sequence[Any]) -> None:
        until, written = self._now() + STEP_S, 0
        while messages:
            for message in messages:
                self._write(message)
            written += len(messages)
            if self._left == 0 or written >= STEP_RECORDS or self._now() >= until or self.over():
                return
            messages = self._take()

    def _take(self) -> list[Any]:
        most = self._plan.means.at_once if self._left is None else min(self._left, self._plan.means.at_once)
        messages = self._consumer.consume_batch(most, SLICE_MS)
        if self._ends:
            messages = [m for m in messages if m.offset < self._ends[TopicPartition(m.topic, m.partition_id)]]
        if self._left is not None:
            self._left -= len(messages)
        return messages

    def _write(self, message: Any) -> None:
        from gkafka.exceptions import RecordTooLarge

        tp = TopicPartition(message.topic, message.partition_id)
        try:
            delivery = self._producer.produce(
                self._plan.target,
                message.value,
                key=message.key,
                partition=message.partition_id if self._plan.same else None,
                timestamp=message.timestamp if message.timestamp >= 0 else None,
                headers=message.headers or None,
            )
        except RecordTooLarge as exc:
            raise _not_written(self._plan, tp, message.offset, exc) from exc
        self._sent.append((delivery, tp, message.offset))
        self._taken[message.partition_id] = self._taken.get(message.partition_id, 0) + 1
        self._positions[tp] = message.offset + 1

    def _acknowledged(self) -> None:
        """Nothing is committed that no broker has."""
        if self._plan.exact:
            self._producer.send_offsets(
                {(tp.topic, tp.partition): at for tp, at in self._positions.items()}, self._consumer.group_metadata()
            )
            return
        self._producer.flush()
        if self._plan.group is not None:
            self._consumer.commit(self._positions)


def _not_written(plan: Plan, tp: TopicPartition, offset: int, error: KafkaException) -> ToolError:
    return ToolError(
        f"offset {offset} of {tp.topic}-{tp.partition} cannot be written to {plan.target}: {error}",
        hint=f"to see it: kafka-tools consume {tp.topic} --partition {tp.partition} --from {offset} -n 1 --json",
    )


# -- what was done ---------------------------------------------------------------------------------------------------------
def _tell(plan: Plan, counts: Counts, *, as_json: bool) -> None:
    rows = [
        {
            "partition": tp.partition,
            "copied": counts.written.get(tp.partition, 0),
            "next_offset": counts.next.get(tp),
        }
        for tp in plan.partitions
    ]
    if as_json:
        document(
            {
                "source": plan.source,
                "target": plan.target,
                "copied": counts.total,
                "unsure": counts.unsure,
                "group": plan.group,
                "exactly_once": plan.exact,
                "partitions_kept": plan.same,
                "partitions": rows,
            }
        )
        return
    table(rows, ["partition", "copied", "next_offset"])
    how = "partition by partition" if plan.same else "to the partitions of their keys"
    note(f"{counted(counts.total, 'record')} copied from {plan.source} to {plan.target}, {how}")
    if counts.unsure:
        again = "the same command goes on there" if plan.group else "with --group the same command would go on there"
        note(f"{counts.unsure} more were under way when it ended: {again}")
