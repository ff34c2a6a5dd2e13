"""`kafka-tools consume`: records of topics on standard output."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from gkafka.cli.arguments import GROUP, TOPIC
from gkafka.cli.connection import CONSUMER, MEMBER, POSITION, connect, connection_options, in_time, lift, settings_of
from gkafka.cli.lastrecords import last_of
from gkafka.cli.looking import end_in_part
from gkafka.cli.output import note
from gkafka.cli.pipes import Output, check_reader, stoppable
from gkafka.cli.progress import Progress, progress, so_far
from gkafka.cli.quantities import PARTITION, RECORDS
from gkafka.cli.recordtext import (
    FIELDS,
    FORMATS,
    BytesType,
    Lines,
    Message,
    hex_lines,
    json_lines,
    shown_on_terminal,
    text_lines,
    value_lines,
)
from gkafka.cli.starts import EARLIEST, LATEST, Start, StartType, all_partitions, ends_of, ends_told, starts_of
from gkafka.common import TopicPartition
from gkafka.exceptions import CorruptRecordError
from gkafka.undoing import Undoing

if TYPE_CHECKING:
    from gkafka.cli.settings import Settings
    from gkafka.client import KafkaClient
    from gkafka.consumer import Consumer
    from gkafka.exceptions import KafkaException

__all__ = ["consume"]

USES = (CONSUMER, POSITION, MEMBER)
SLICE_MS = 250
"""Longest wait between two looks at whether somebody still reads the output, and whether the end is reached."""
AT_ONCE = 2000
"""Records that are formatted, and written, together."""
SHARE_S = 30.0
"""How long a member of a group waits for a share of the partitions before it takes it that there is none for it."""


class Wanted(NamedTuple):
    """What is to be consumed. most: messages that are printed, None for all. group: None reads alone and commits nothing. options: of the
    consumer; at_once: messages that are taken together.
    """

    topics: tuple[str, ...]
    partitions: tuple[int, ...]
    start: Start | None
    group: str | None
    most: int | None
    follow: bool
    committed: bool
    options: dict[str, Any]
    at_once: int


@click.command(name="consume", short_help="Print records of topics as text, JSON or hex.")
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...", type=TOPIC)
@click.option("-f", "--format", "form", type=click.Choice(FORMATS), default="text", show_default=True, help="How a record is printed.")
@click.option("--json", "as_json", is_flag=True, help="The same as --format json: a line for each record, as `produce` takes it.")
@click.option(
    "--from",
    "start",
    type=StartType(),
    help="earliest (the default), latest, an offset, 1h ago (s m h d w), a time (2026-01-31T08:00:00Z), or @MILLISECONDS.",
)
@click.option("--last", type=RECORDS, metavar="N", help="Begin with the last N records of each partition.")
@click.option("-p", "--partition", "partitions", type=PARTITION, multiple=True, help="Only this one; may be given again.")
@click.option("-g", "--group", type=GROUP, help="Go on where this group stands, share with its members, and commit what was printed.")
@click.option("--no-group", is_flag=True, help="Read alone, whatever group.id the file of --config has.")
@click.option("-n", "--max-messages", type=RECORDS, metavar="N", help="Stop after so many that match.")
@click.option("--until-end/--follow", "until_end", default=True, help="Stop at the present end (the default), or go on until Ctrl-C.")
@click.option("--match", metavar="REGEX", help="Only records whose value has this regular expression in it.")
@click.option("--match-key", metavar="REGEX", help="Only records whose key has.")
@click.option("--show", metavar="FIELD,...", default="", help=f"text, hex: print these before the value: {', '.join(FIELDS)}.")
@click.option("--separator", type=BytesType(), help="With --show: stands between them. [\\t]")
@click.option("--delimiter", type=BytesType(), help="text, hex: stands behind each record. [\\n]")
@click.option("--null", type=BytesType(), help="text, hex: stands for a key or value that is null. [null]")
@click.option("--raw", is_flag=True, help="text: write bytes as they are also on a terminal, which may obey them.")
@click.option(
    "--read-uncommitted/--read-committed",
    default=None,
    help="Also records of transactions that are open or were aborted, or not (the default).",
)
@connection_options
@click.pass_context
def consume(
    ctx: click.Context,
    *,
    topics: tuple[str, ...],
    form: str,
    as_json: bool,
    start: Start | None,
    last: int | None,
    partitions: tuple[int, ...],
    group: str | None,
    no_group: bool,
    max_messages: int | None,
    until_end: bool,
    match: str | None,
    match_key: str | None,
    show: str,
    separator: bytes | None,
    delimiter: bytes | None,
    null: bytes | None,
    raw: bool,
    read_uncommitted: bool | None,
) -> None:
    """Print records of topics, to the present end or, with --follow, as they come.

    Text is the value as it is; on a terminal what would steer it is shown as an escape. JSON has all of a record on one line: what is
    not UTF-8 stands in base64, and `kafka-tools produce --format json` writes the same record again.

    \b
    kafka-tools consume orders --last 10
    kafka-tools consume orders --from 1h --json | jq .value
    kafka-tools consume orders --follow --match 'error|fail' --show timestamp,key
    kafka-tools consume orders -g billing -n 100
    """
    form = "json" if as_json else form
    settings = settings_of(ctx, uses=USES)
    group = _group(settings, group, no_group)
    begin = _start(settings, start, last, group, until_end)
    options = _options(settings, begin, read_uncommitted, group, shares=group is not None and not partitions)
    wanted = Wanted(
        topics,
        partitions,
        begin,
        group,
        max_messages,
        not until_end,
        committed=options["isolation_level"] == "read_committed",
        options=options,
        at_once=settings.at_once(AT_ONCE),
    )
    fields = _fields(show, form)
    if raw and form != "text":
        raise click.UsageError(f"--raw is for --format text: {form} has nothing that a terminal obeys")
    _check_layout(form, fields, separator=separator, delimiter=delimiter, null=null)
    fits = _filter(match, match_key)
    output = Output()
    null = b"null" if null is None else null
    lines = _lines(form, fields, b"\t" if separator is None else separator, null, harmless=output.terminal and not raw)
    behind = b"\n" if delimiter is None or (output.terminal and not raw) else delimiter
    with stoppable():
        try:
            with connect(ctx, uses=USES, auto_create_topics=False) as client, in_time(client):
                missing = _consume(client, wanted, fits, lines, behind, output)
            end_in_part(missing)
        except KeyboardInterrupt:
            if until_end:  # what was printed is not all: whoever reads it is told
                raise
            if output.terminal:
                note(progress().interrupted())


# -- what the options come to ----------------------------------------------------------------------------------------------
def _group(settings: Settings, said: str | None, no_group: bool) -> str | None:
    """--group before the file's group.id, of which the user is told: what is printed is committed for that group."""
    if said is not None and no_group:
        raise click.UsageError("--group and --no-group: give one of them")
    if said is not None or no_group:
        return said
    found: str | None = settings.records.get("group")
    if found is not None:
        note(f"kafka-tools: reads for group {found!r}, and commits, as {settings.where['group']} says; --no-group reads alone")
    return found


def _options(settings: Settings, start: Start | None, read_uncommitted: bool | None, group: str | None, *, shares: bool) -> dict[str, Any]:
    """Of the consumer: the command line's before the file's. What a file says of groups is for those who read with one."""
    from gkafka.cli.propertynames import COMMIT_OPTIONS, MEMBER_OPTIONS
    from gkafka.config import NativeConsumerConfig

    idle = (*(() if shares else MEMBER_OPTIONS), *(() if group is not None else COMMIT_OPTIONS))
    found = settings.of(NativeConsumerConfig)
    options = {"isolation_level": "read_committed", **{name: found[name] for name in found if name not in idle or settings.is_set(name)}}
    if read_uncommitted is not None:
        options["isolation_level"] = "read_uncommitted" if read_uncommitted else "read_committed"
    if start is not None and start.kind == "end":
        options["auto_offset_reset"] = "latest" if start.value == LATEST else "earliest"
    return options


def _start(settings: Settings, start: Start | None, last: int | None, group: str | None, until_end: bool) -> Start | None:
    """Where to begin; None: where the group stands, or at the beginning."""
    if start is not None and last is not None:
        raise click.UsageError("--from and --last both say where to begin: give one of them")
    start = Start("last", last) if last is not None else start
    if group is not None and start is not None and start.kind != "end":
        raise click.UsageError(
            "with --group it begins where the group stands, also with a file's group.id; --from is earliest or latest, for partitions of which it "
            "has committed nothing (--no-group reads alone; to move the group: kafka-tools offsets reset)"
        )
    if start is None and group is None:
        settings.refuse("say where to begin: --from earliest, an offset, a time", "auto_offset_reset", unless=("earliest", "latest"))
        if until_end:
            settings.refuse(
                "there is nothing to read before the end: give --from earliest, or --follow", "auto_offset_reset", unless=("earliest",)
            )
        elif settings.records.get("auto_offset_reset") == "latest":
            return Start("end", LATEST)
    if start == Start("end", LATEST) and until_end and group is None:
        raise click.UsageError("--from latest is the end: there is nothing to read before it; give --follow, too")
    return start


def _fields(show: str, form: str) -> list[str]:
    names = [name.strip() for name in show.split(",") if name.strip()]
    unknown = [name for name in names if name not in FIELDS]
    if unknown:
        raise click.UsageError(f"--show {unknown[0]!r}: must be one of {', '.join(FIELDS)}")
    if names and form == "json":
        raise click.UsageError("--show is for text and hex: JSON has all fields")
    return names


def _check_layout(form: str, show: Sequence[str], **given: bytes | None) -> None:
    """What would have no effect is refused."""
    for name, value in given.items():
        if value is not None and form == "json":
            raise click.UsageError(f"--{name} is for text and hex: JSON has a line for each record, and names for its fields")
    if given["separator"] is not None and not show:
        raise click.UsageError("--separator is for --show: give that, too")


def _filter(match: str | None, match_key: str | None) -> Callable[[Message], bool] | None:
    value, key = (_pattern(option, text) for option, text in (("--match", match), ("--match-key", match_key)))

    def fits(message: Message) -> bool:
        return (value is None or (message.value is not None and value.search(message.value) is not None)) and (
            key is None or (message.key is not None and key.search(message.key) is not None)
        )

    return None if value is None and key is None else fits


def _pattern(option: str, text: str | None) -> re.Pattern[bytes] | None:
    """Of bytes, which values are; letters beyond ASCII stand for their UTF-8."""
    if text is None:
        return None
    try:
        return re.compile(text.encode("utf-8", "surrogateescape"))
    except re.error as exc:
        raise click.UsageError(f"{option} {text!r} is no regular expression: {exc}") from exc


def _lines(form: str, show: Sequence[str], separator: bytes, null: bytes, *, harmless: bool) -> Lines:
    if form == "json":
        return json_lines
    if form == "text" and not show and not harmless:
        return value_lines(null)
    if form == "hex":
        return hex_lines(show=show, separator=separator, null=null)
    return text_lines(show=show, separator=separator, null=null, shown=shown_on_terminal if harmless else bytes)


# -- consuming -------------------------------------------------------------------------------------------------------------
def _consume(
    client: KafkaClient, wanted: Wanted, fits: Callable[[Message], bool] | None, lines_of: Lines, behind: bytes, output: Output
) -> dict[TopicPartition, KafkaException]:
    """Why partitions were left out."""
    here = progress()
    reading = Reading(client, wanted, here)
    left = wanted.most

    def handled_in_part(messages: list[Message], chosen: Sequence[int], lines: Sequence[bytes], before: int) -> None:
        """Up to the first one that is not wholly out. chosen: their places, and that behind the last one."""
        whole = _count_whole(lines, len(behind), output.taken - before)
        reading.handled(messages[: chosen[whole]], whole)

    try:
        while left != 0 and not reading.over():
            messages = reading.take(left if fits is None else None)
            if not messages:
                check_reader()
                continue
            chosen, used = _chosen(messages, fits, left)
            lines = lines_of(messages[:used] if len(chosen) == used else [messages[i] for i in chosen])
            with Undoing(handled_in_part, messages, [*chosen, used], lines, output.taken):
                output.write(behind.join([*lines, b""]))
            reading.handled(messages[:used], len(chosen))
            left = None if left is None else left - len(chosen)
            if used == len(messages):
                reading.all_handled()
    finally:
        reading.end()
        here.rest = reading.rest()
    return reading.missing


def _chosen(messages: list[Message], fits: Callable[[Message], bool] | None, most: int | None) -> tuple[Sequence[int], int]:
    """The places of those that are to be printed, `most` at most, and how many of the messages were looked at for that."""
    if fits is None:
        used = len(messages[:most])
        return range(used), used
    chosen: list[int] = []
    for place, message in enumerate(messages):
        if fits(message):
            chosen.append(place)
            if len(chosen) == most:
                return chosen, place + 1
    return chosen, len(messages)


def _count_whole(lines: Sequence[bytes], more: int, taken: int) -> int:
    """How many of the lines, each with so many bytes behind it, are wholly within their first `taken` bytes."""
    return bisect_right(list(accumulate(len(line) + more for line in lines)), taken)


def runs_of(messages: list[Message]) -> Iterator[list[Message]]:
    """The messages of each partition: what is taken at once has those of a partition in one piece."""
    start = 0
    while start < len(messages):
        place = messages[start].topic, messages[start].partition_id
        stop = bisect_right(messages, False, start + 1, key=lambda m: (m.topic, m.partition_id) != place)
        yield messages[start:stop] if stop - start < len(messages) else messages
        start = stop


class Reading:
    """A consumer, how far it is to go, and how far the output has come. missing: the partitions that are not read to their end, and why. here: is told so
    before anything is fetched."""

    def __init__(self, client: KafkaClient, wanted: Wanted, here: Progress) -> None:
        partitions = all_partitions(client, wanted.topics, wanted.partitions)
        self._ends, self.missing = ({}, {}) if wanted.follow else ends_told(client, partitions, committed=wanted.committed)
        self._follow = wanted.follow
        self._now = client.handler.monotonic
        self._idle_since = self._now()
        self._shares = wanted.group is not None and not wanted.partitions
        self._group = wanted.group
        self._commits = wanted.options.get("auto_commit") is not False
        self._at_once = wanted.at_once
        self._done: dict[TopicPartition, int] = {}
        self._whole = True
        self._looked_at = self._printed = 0
        self._refused = False
        self._most: int | None = None
        here.counted, here.rest = self.told, self.rest()
        self._consumer = self._made(client, wanted, [tp for tp in partitions if tp not in self.missing])
        lift(client)

    def _made(self, client: KafkaClient, wanted: Wanted, partitions: list[TopicPartition]) -> Consumer:
        if self._shares:
            return client.get_consumer(list(dict.fromkeys(wanted.topics)), group=wanted.group, **wanted.options)
        consumer = client.get_consumer(group=wanted.group, **wanted.options)
        if wanted.group is not None:
            consumer.assign(partitions)
            return consumer
        start = wanted.start or Start("end", EARLIEST)
        if start.kind == "last":
            ends = self._ends or ends_of(client, partitions, committed=wanted.committed)
            starts = last_of(client, consumer, ends, start.value)
        elif wanted.follow and start == Start("end", EARLIEST):  # of a partition without a leader, as soon as it has one
            starts = dict.fromkeys(partitions, EARLIEST)
        else:
            starts = starts_of(client, partitions, start, committed=wanted.committed)
        if not wanted.follow:
            starts = {tp: offset for tp, offset in starts.items() if offset < self._ends[tp]}
            self._ends = {tp: self._ends[tp] for tp in starts}
            self._most = sum(self._ends[tp] - starts[tp] for tp in starts)
        consumer.assign(starts)
        return consumer

    def told(self) -> str:
        """What is done, in words."""
        looked_at = "" if self._looked_at == self._printed else f", {self._looked_at} looked at"
        return f"{so_far(self._printed, self._most)} printed{looked_at}"

    def rest(self) -> str:
        """What an interrupt leaves, in words."""
        if self._group is None:
            return "what comes behind them is not"
        if not self._commits:
            return "nothing was committed"
        return f"group {self._group!r} goes on {'before' if self._refused else 'behind'} them"

    def over(self) -> bool:
        """Has every partition been read to where its end was at the beginning?"""
        if self._follow:
            return False
        positions = self._consumer.positions()
        if not self._shares:
            reached = [tp for tp, end in self._ends.items() if positions.get(tp, -1) >= end]
            return len(reached) == len(self._ends)
        if not positions:
            return self._is_idle()
        self._idle_since = self._now()
        return all(at >= self._ends.get(tp, 0) for tp, at in positions.items() if tp not in self.missing)

    def _is_idle(self) -> bool:
        if self._now() < self._idle_since + SHARE_S:
            return False
        note(f"kafka-tools: other members of group {self._group!r} have all partitions: kafka-tools groups describe {self._group}")
        return True

    def take(self, most: int | None) -> list[Message]:
        """What comes next; [] after a moment without anything."""
        self._whole = False  # first: behind an error, or a signal as this returns, nothing is committed but what is out
        try:
            messages = self._consumer.consume_batch(self._at_once if most is None else min(most, self._at_once), SLICE_MS)
        except CorruptRecordError as exc:
            exc.group = self._group  # for the command that goes on behind it
            raise
        self._whole = not messages
        if self._group is not None or self._follow:
            return messages
        # Somebody produces meanwhile: what is behind the end of the beginning is left. A group would lose it.
        return [m for run in runs_of(messages) for m in self._before_the_end(run)]

    def _before_the_end(self, run: list[Message]) -> list[Message]:
        last, end = run[-1], self._ends[TopicPartition(run[-1].topic, run[-1].partition_id)]
        return run if last.offset < end else [m for m in run if m.offset < end]

    def handled(self, messages: list[Message], printed: int) -> None:
        """These are out, or did not match."""
        self._looked_at += len(messages)
        self._printed += printed
        if self._group is None:
            return  # nothing is committed
        for run in runs_of(messages):
            self._done[TopicPartition(run[-1].topic, run[-1].partition_id)] = run[-1].offset + 1

    def all_handled(self) -> None:
        """Nothing of what was taken is left."""
        self._whole = True

    def end(self) -> None:
        """Commit what is out, not what was only taken, and leave."""
        if self._group is None or self._whole:
            self._consumer.stop()
            return
        if self._commits:
            self._commit_done()
        self._consumer.abandon()

    def _commit_done(self) -> None:
        from gkafka.exceptions import CommitFailedError

        mine = self._consumer.assignment()
        done = {tp: offset for tp, offset in self._done.items() if tp in mine}
        if not done:
            return
        try:
            self._consumer.commit(done)
        except CommitFailedError as exc:
            self._refused = True
            note(f"kafka-tools: some records that were printed will be consumed again: {exc}")
