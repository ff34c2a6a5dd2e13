"""`kafka-tools produce`: records from standard input or a file."""

from __future__ import annotations

import codecs
import json
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import repeat, starmap
from operator import methodcaller
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from gkafka.cli.arguments import TIME, TOPIC
from gkafka.cli.connection import PRODUCER, connect, connection_options, in_time, lift, settings_of
from gkafka.cli.lines import blocks_of
from gkafka.cli.output import counted, document, json_option, note, wants_json
from gkafka.cli.pipes import stoppable
from gkafka.cli.progress import NOTHING_CHANGED, progress
from gkafka.cli.quantities import PARTITION, ParamType, Quantity
from gkafka.cli.recordtext import JSON_FORMATS, READ_FORMATS, BadLine, BytesType, Draft, is_value, reader
from gkafka.cli.starts import all_partitions
from gkafka.cli.wording import in_tools_words
from gkafka.undoing import Undoing

if TYPE_CHECKING:
    from gkafka.cli.settings import Settings
    from gkafka.client import KafkaClient
    from gkafka.nativeproducer import NativeProducer
    from gkafka.records import Delivery

__all__ = ["produce"]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
DELIVERY_MS = 30_000.0
UNDER_WAY = 50_000
"""Records without an outcome that are remembered with the number of their line; beyond that the oldest are waited for."""
TOLD = 20
"""Bad lines, and failed deliveries, that are told one by one."""


Arguments = tuple[str, "bytes | None", "bytes | None", "int | None", "int | None", "list[tuple[str, bytes | None]] | None"]
"""Of produce()."""


class Rows(NamedTuple):
    """Records, and the numbers of their lines."""

    numbers: Sequence[int]
    records: Iterable[Arguments]


class Every(NamedTuple):
    """What all records get: it counts before what their line says. headers come before the line's."""

    key: bytes | None
    headers: list[tuple[str, bytes | None]]
    partition: int | None
    timestamp: int | None
    repartition: bool

    def of(self, topic: str, draft: Draft) -> Arguments:
        """What produce() is called with."""
        partition = None if self.repartition else draft.partition
        headers = [*self.headers, *draft.headers] if draft.headers else self.headers
        return (
            topic,
            draft.value,
            draft.key if self.key is None else self.key,
            partition if self.partition is None else self.partition,
            draft.timestamp if self.timestamp is None else self.timestamp,
            headers or None,
        )


class HeaderType(ParamType):
    """NAME=VALUE."""

    name = "NAME=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, bytes]:
        if isinstance(value, tuple):
            return value
        name, equals, text = value.partition("=")
        if not equals or not name:
            self.fail(f"{value!r}: must be NAME=VALUE", param, ctx)
        return name, text.encode("utf-8", "surrogateescape")


class Source(click.File):
    """A file of lines, "-" being standard input."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "-" and sys.stdin is None:  # what Python makes of a closed descriptor
            self.fail("standard input is closed: give a FILE", param, ctx)
        return super().convert(value, param, ctx)


@click.command(name="produce", short_help="Write records from standard input or a file.")
@click.argument("topic", type=TOPIC)
@click.argument("source", type=Source("rb"), default="-", metavar="[FILE]")
@click.option("-f", "--format", "form", type=click.Choice(READ_FORMATS), default="text", show_default=True, help="What a line is.")
@click.option("--key", type=BytesType(), help="The key of all records.")
@click.option("--key-separator", type=BytesType(), metavar="TEXT", help="text, hex: a line is KEY, this, VALUE.")
@click.option("--key-field", metavar="NAME", help="text: the line is a JSON object that has the key in this field.")
@click.option("--null", type=BytesType(), metavar="TEXT", help="text, hex: a key or value of just this is null.")
@click.option("--delimiter", type=BytesType(), default="\\n", show_default=True, help="text, hex: what ends a line.")
@click.option("-H", "--header", "headers", type=HeaderType(), multiple=True, help="A header of all records; may be given again.")
@click.option("-p", "--partition", type=PARTITION, help="The partition of all records; else the line's, or by the key.")
@click.option("--repartition", is_flag=True, help="json, kcat: by the key, whatever partition the lines name.")
@click.option("--timestamp", type=TIME, help="Of all records: 2026-01-31T08:00:00Z, 15m ago, now, milliseconds; else the line's, or now.")
@click.option("-z", "--compression", type=click.Choice(CODECS), help="Of the batches. [none]")
@click.option("--acks", type=click.Choice(["all", "1", "0"]), help="Which replicas must have a record. [all]")
@click.option("--idempotent/--no-idempotent", default=None, help="No duplicates by retries; on where the brokers allow it.")
@click.option("--delivery-timeout", type=Quantity(0.001), metavar="SECONDS", help="Tries of one record. [30]")
@click.option("--dry-run", is_flag=True, help="Only read options and lines, and say which are bad.")
@json_option
@connection_options
@click.pass_context
def produce(
    ctx: click.Context,
    *,
    topic: str,
    source: IO[bytes],
    form: str,
    key: bytes | None,
    key_separator: bytes | None,
    key_field: str | None,
    null: bytes | None,
    delimiter: bytes,
    headers: tuple[tuple[str, bytes], ...],
    partition: int | None,
    repartition: bool,
    timestamp: int | None,
    compression: str | None,
    acks: str | None,
    idempotent: bool | None,
    delivery_timeout: float | None,
    dry_run: bool,
) -> None:
    """Write a record for each line of FILE, or of standard input.

    A line that is no record is named with its number, and the others are written; so is a record that was not delivered. Either makes the
    exit code 1. What `consume --format json` printed is written as it was: keys, headers, timestamps and partitions, too; so is what `kcat -J`
    printed, with --format kcat.

    \b
    echo 'hello' | kafka-tools produce greetings
    kafka-tools produce orders orders.jsonl --key-field id
    kafka-tools consume orders --json | kafka-tools produce copy-of-orders --format json
    """
    _check_combination(form, key, key_separator, key_field, null, delimiter, partition, repartition)
    line: dict[str, Any] = {"separator": key_separator, "key_field": key_field, "null": null}
    every = Every(key, list(headers), partition, timestamp, repartition)
    report = Report(topic)
    blocks = blocks_of(source, delimiter)
    if wants_json(ctx) and ctx.get_parameter_source("form") is not ParameterSource.COMMANDLINE:
        blocks = _no_records(blocks)
    if form not in (*JSON_FORMATS, "hex") and ctx.get_parameter_source("delimiter") is not ParameterSource.COMMANDLINE:
        blocks = _telling_of_windows(blocks)
    rows = _values(blocks, topic, every) if is_value(form, **line) else _drafts(blocks, reader(form, **line), every, report)
    said = {
        "acks": acks,
        "compression": compression,
        "enable_idempotence": idempotent,
        "delivery_timeout_ms": None if delivery_timeout is None else delivery_timeout * 1000,
    }
    tell = partial(report.tell, as_json=wants_json(ctx), dry_run=dry_run)
    with Undoing(lambda: (report.accepted or report.bad) and tell()), stoppable():  # tells what came of the lines before it
        options = _options(settings_of(ctx, uses=(PRODUCER,)), said)
        here = progress()
        here.counted = report.told
        here.rest = NOTHING_CHANGED if dry_run else "lines that were not read are not written"
        with connect(ctx, uses=(PRODUCER,), auto_create_topics=False) as client, in_time(client):
            if sys.stdin is not None and sys.stdin.isatty():  # somebody may be typing the lines
                here.hide()
            if dry_run:
                client.get_producer(**options)  # it looks at the options, and asks no broker
                report.accepted += sum(len(block.numbers) for block in rows)
            else:
                _produce(client, topic, rows, every, report, options)
    tell()
    if report.is_bad:
        ctx.exit(1)


def _check_combination(
    form: str,
    key: bytes | None,
    key_separator: bytes | None,
    key_field: str | None,
    null: bytes | None,
    delimiter: bytes,
    partition: int | None,
    repartition: bool,
) -> None:
    """Options that say the same thing twice, or nothing for this format."""
    keys = [name for name, given in (("--key", key), ("--key-separator", key_separator), ("--key-field", key_field)) if given is not None]
    if len(keys) > 1:
        raise click.UsageError(f"{' and '.join(keys)} both say what the key is: give one of them")
    if form in JSON_FORMATS:
        for name, is_given in (("--key-separator", key_separator), ("--key-field", key_field), ("--null", null)):
            if is_given is not None:
                raise click.UsageError(
                    f"{name} is not for --format {form}, whose lines have fields: for lines that are the values, --format text"
                )
        if delimiter != b"\n":
            raise click.UsageError(f"--delimiter is not for --format {form}: its records stand on a line each")
    if form == "hex" and key_field is not None:
        raise click.UsageError("--key-field is for --format text, with lines that are JSON objects")
    if key_field is not None and null is not None:
        raise click.UsageError("--null is not for --key-field: the field's null is null")
    if key_separator == b"" or delimiter == b"":
        raise click.UsageError("--key-separator and --delimiter cannot be empty")
    if repartition and (partition is not None or form not in JSON_FORMATS):
        raise click.UsageError("--repartition is for --format json and kcat, whose lines name partitions, without --partition")


def _options(settings: Settings, said: dict[str, Any]) -> dict[str, Any]:
    """Of the producer: the command line's before the file's, that before what a command does by itself."""
    from gkafka.config import ProducerConfig

    settings.refuse("produce writes without transactions: leave it out", "transactional_id", "transaction_timeout_ms")
    options = {"acks": "all", "delivery_timeout_ms": DELIVERY_MS, **settings.of(ProducerConfig)}
    options |= {name: value for name, value in said.items() if value is not None}
    return {"max_block_ms": options["delivery_timeout_ms"], **options}


def _no_records(blocks: Iterator[list[bytes]]) -> Iterator[list[bytes]]:
    """`consume --json | produce --json` would make each record the value of another: --json is about what is printed."""
    for block in blocks:
        try:
            is_record = block[0].lstrip().startswith(b"{") and "value" in json.loads(block[0])
        except ValueError:
            is_record = False
        if is_record:
            text = "--json is how produce reports, and the first line looks like a record of consume --json: give --format json to write those records"
            raise click.UsageError(f"{text}, or --format text to write the lines as they are")
        yield block
        yield from blocks


def _telling_of_windows(blocks: Iterator[list[bytes]]) -> Iterator[list[bytes]]:
    """Lines are records as they are. What a file of Windows has beside them is said once, by the first line."""
    for block in blocks:
        if block[0].startswith(codecs.BOM_UTF8):
            note(
                "the first line begins with a byte order mark (EF BB BF), which is part of its record: take it off the file if it is not meant"
            )
        if block[0].endswith(b"\r") and b"\r" in block[0][:-1]:
            note("the first line holds several \\r, which are part of its record: if they end lines, --delimiter '\\r' splits there")
        elif block[0].endswith(b"\r"):
            note("the lines end in \\r\\n, and each \\r is part of its record: --delimiter '\\r\\n' takes both off")
        yield block
        yield from blocks


# -- reading ---------------------------------------------------------------------------------------------------------------
def _values(blocks: Iterator[list[bytes]], topic: str, every: Every) -> Iterator[Rows]:
    """The records of each block of lines that are values: no line is looked at."""
    _, _, *same = map(repeat, every.of(topic, Draft(None)))
    number = 1
    for block in blocks:
        yield Rows(range(number, number + len(block)), zip(repeat(topic), block, *same, strict=False))
        number += len(block)


def _drafts(blocks: Iterator[list[bytes]], parse: Callable[[bytes], Draft | None], every: Every, report: Report) -> Iterator[Rows]:
    """The records of each block of lines; bad lines go to the report."""
    number = 0
    for block in blocks:
        numbers: list[int] = []
        records: list[Arguments] = []
        for line in block:
            number += 1
            try:
                draft = parse(line)
            except BadLine as exc:
                report.bad_line(number, str(exc))
                continue
            if draft is not None:
                numbers.append(number)
                records.append(every.of(report.topic, draft))
        yield Rows(numbers, records)


# -- producing -------------------------------------------------------------------------------------------------------------
def _produce(client: KafkaClient, topic: str, blocks: Iterator[Rows], every: Every, report: Report, options: dict[str, Any]) -> None:
    there = {tp.partition for tp in all_partitions(client, [topic], () if every.partition is None else [every.partition])}
    lift(client)
    producer = client.get_producer(**options)
    under_way = UnderWay(report)
    try:
        for rows in blocks:
            under_way.send(
                producer.produce, rows if isinstance(rows.numbers, range) else _of_partitions(rows, {None, every.partition, *there}, report)
            )
            under_way.look()
    finally:  # also after Ctrl-C: what was accepted is delivered, and told
        _finish(producer, under_way, options["delivery_timeout_ms"] / 1000)


def _of_partitions(rows: Rows, there: set[int | None], report: Report) -> Rows:
    """Those for partitions that are there; the others go to the report."""
    good = []
    for number, record in zip(rows.numbers, rows.records, strict=True):
        if record[3] in there:
            good.append((number, record))
        else:
            report.bad_line(number, f"topic {record[0]!r} has no partition {record[3]}; --repartition takes the key instead")
    return Rows([number for number, _ in good], [record for _, record in good])


def _finish(producer: NativeProducer, under_way: UnderWay, timeout: float) -> None:
    from gkafka.exceptions import DeliveryError

    try:
        producer.close(timeout + 1)
    except DeliveryError:
        pass  # each of them is told with its line
    finally:
        under_way.settle()


class UnderWay:
    """Deliveries, with the numbers of their lines, until their outcome is known; those of a block of lines together."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self._blocks: deque[tuple[Sequence[int], list[Delivery]]] = deque()
        self._count = 0

    def send(self, produce: Callable[..., Delivery], rows: Rows) -> None:
        """Have them accepted; those that are not go to the report."""
        from gkafka.exceptions import RecordTooLarge, SerializationError

        records, at = iter(rows.records), 0
        while at < len(rows.numbers):
            taken: list[Delivery] = []
            try:
                taken.extend(starmap(produce, records))
            except (SerializationError, RecordTooLarge) as exc:
                self.report.bad_line(rows.numbers[at + len(taken)], str(exc))
            finally:
                self._add(rows.numbers[at : at + len(taken)], taken)
            at += len(taken) + 1

    def _add(self, numbers: Sequence[int], deliveries: list[Delivery]) -> None:
        if deliveries:
            self._blocks.append((numbers, deliveries))
            self._count += len(deliveries)
            self.report.accepted += len(deliveries)

    def look(self) -> None:
        """Tell of those that have an outcome; for what is beyond the limit that of the oldest is waited for."""
        while self._blocks:
            if self._count > UNDER_WAY:
                self._settle_block(OUTCOME)
            elif not self._blocks[0][1][-1].done() or not self._settle_block(OUTCOME_BY_NOW):
                return

    def settle(self) -> None:
        """Have the outcome of all."""
        while self._blocks:
            self._settle_block(OUTCOME)

    def _settle_block(self, outcome: Callable[[Delivery], BaseException | None]) -> bool:
        """Tell of the oldest block. False: not all of it has an outcome by now."""
        from gkafka.exceptions import KafkaTimeoutError

        numbers, deliveries = self._blocks[0]
        told = 0
        try:
            if not any(map(outcome, deliveries)):
                told = len(deliveries)
                self.report.delivered += told
            for error in map(outcome, deliveries[told:]):
                told += 1
                if error is None:
                    self.report.delivered += 1
                else:
                    self.report.not_delivered(numbers[told - 1], error)
        except KafkaTimeoutError:
            if outcome is OUTCOME:
                raise
            return False
        finally:  # Ctrl-C may come while one is waited for
            self._blocks[0] = numbers[told:], deliveries[told:]
            self._count -= told
        self._blocks.popleft()
        return True


OUTCOME, OUTCOME_BY_NOW = methodcaller("exception"), methodcaller("exception", 0)


class Report:
    """What became of the lines."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.accepted = self.delivered = self.bad = self.failed = self._refused = 0
        self._bad: list[dict[str, Any]] = []
        self._failed: list[dict[str, Any]] = []

    @property
    def is_bad(self) -> bool:
        """Was not every line a record that was delivered?"""
        return bool(self.bad or self.failed)

    def told(self) -> str:
        """What is done so far, in words."""
        return f"{counted(self.accepted, 'record')} read, {self.delivered} delivered"

    def bad_line(self, number: int, why: str) -> None:
        """A line is no record: told at once."""
        self.bad += 1
        if self.bad <= TOLD:
            self._bad.append({"line": number, "error": why})
            note(f"line {number}: {in_tools_words(why)}")

    def not_delivered(self, number: int, error: BaseException) -> None:
        """No broker has it, or nobody knows."""
        from gkafka.exceptions import InvalidRecord

        self.failed += 1
        self._refused += isinstance(error, InvalidRecord)
        if self.failed <= TOLD:
            self._failed.append({"line": number, "error": str(error)})
            note(f"line {number}: not delivered: {in_tools_words(str(error))}")

    def tell(self, *, as_json: bool, dry_run: bool) -> None:
        """The sums."""
        if as_json:
            document(
                {
                    "topic": self.topic,
                    "delivered": self.delivered,
                    "good_lines": self.accepted,
                    "bad_lines": {"count": self.bad, "first": self._bad},
                    "not_delivered": {"count": self.failed, "first": self._failed},
                }
            )
            return
        done = f"{counted(self.accepted, 'record')} would be written to {self.topic}"
        if not dry_run:
            done = f"{counted(self.delivered, 'record')} delivered to {self.topic}"
        beside = [counted(self.bad, "bad line") if self.bad else "", f"{self.failed} not delivered" if self.failed else ""]
        note(", ".join([done, *filter(None, beside)]))
        if self.bad:
            note("  next: mend the bad lines and give them alone: the others need not be written again")
        elif self.failed and self.failed == self._refused:
            note("  next: mend what the broker says of these records and give them alone: the others need not be written again")
        elif self.failed:
            note(f"  next: kafka-tools doctor --topic {self.topic} --write tries one record")
