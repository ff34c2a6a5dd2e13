"""`kafka-tools lag`: how far groups are behind, once or again and again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count as count_up
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from gkafka.cli.arguments import GROUP, TOPIC, as_time, near_groups, near_topics
from gkafka.cli.commands import command
from gkafka.cli.connection import connect, connection_options, settings_of
from gkafka.cli.failures import PartialError
from gkafka.cli.looking import HALF, Look, looking, patience, why
from gkafka.cli.output import (
    Column,
    clean,
    counted,
    document,
    json_line,
    json_option,
    lines_of,
    note,
    on_terminal,
    quoted,
    wants_json,
    write,
)
from gkafka.cli.pipes import stoppable
from gkafka.cli.progress import progress
from gkafka.cli.quantities import RECORDS, Quantity

if TYPE_CHECKING:
    from gkafka.admin import GroupDescription
    from gkafka.client import KafkaClient
    from gkafka.exceptions import KafkaException
    from gkafka.skins import Handler

__all__ = ["LAG_COLUMNS", "PartitionLag", "behind", "beyond", "lag", "total_of"]

HOME_AND_CLEAR = "\x1b[H\x1b[2J"
"""What was on the terminal before can still be scrolled back to."""
INTERVAL_S = 2.0
LATE_S = 3.0
"""How long a look of --watch may take before a line says that nobody answers."""
MOST = 5
"""Partitions beyond their end that are told one by one."""


def _colour(value: Any) -> str | None:
    return None if not isinstance(value, int) else "red" if value < 0 else "yellow" if value else "green"


LAG = Column("lag", colour=_colour)
LAG_COLUMNS: list[Column | str] = ["topic", "partition", "committed", "end", LAG, "client", "host", "member"]


# -- what groups are behind ------------------------------------------------------------------------------------------------------
class PartitionLag(NamedTuple):
    """What a group is behind on a partition. committed: None where nothing is; end: None where it cannot be told;
    lag: None for either, negative where what is committed lies beyond the end of the log. client, host, member: of the
    member that has the partition. problem: why something cannot be told.
    """

    topic: str
    partition: int
    committed: int | None
    end: int | None
    lag: int | None
    client: str | None
    host: str | None
    member: str | None
    problem: str | None

    @classmethod
    def of(cls, tp: Any, committed: int, end: int | None, owner: Any = None, problem: KafkaException | None = None) -> PartitionLag:
        """committed: -1 where nothing is. owner: the member that has the partition."""
        return cls(
            topic=tp[0],
            partition=tp[1],
            committed=committed if committed >= 0 else None,
            end=end,
            lag=end - committed if end is not None and committed >= 0 else None,
            client=owner.client_id if owner is not None else None,
            host=owner.host if owner is not None else None,
            member=owner.member_id if owner is not None else None,
            problem=why(problem),
        )


class GroupLag(NamedTuple):
    """What a group is behind. state, members: None where the group cannot be described. unknown: partitions of which something
    cannot be told, None where it is not known which partitions there are. problem: why the group cannot be looked at.
    """

    group: str
    state: str | None
    members: int | None
    lag: int | None
    unknown: int | None
    partitions: list[PartitionLag]
    problem: str | None

    @classmethod
    def of(cls, name: str, about: GroupDescription | None, rows: list[PartitionLag], problem: KafkaException | None) -> GroupLag:
        """about: None if the group cannot be described."""
        return cls(
            group=name,
            state=about.state if about is not None else None,
            members=len(about.members) if about is not None else None,
            lag=total_of(rows),
            unknown=sum(1 for row in rows if row.problem is not None) if problem is None else None,
            partitions=rows,
            problem=why(problem),
        )

    def told(self) -> dict[str, Any]:
        """As JSON has it."""
        return {**self._asdict(), "partitions": [row._asdict() for row in self.partitions]}


def behind(
    look: Look, groups: Iterable[GroupDescription], topics: tuple[str, ...] = ()
) -> tuple[dict[str, list[PartitionLag]], dict[str, KafkaException]]:
    """(rows of each group, why it cannot be told what a group has committed). A row for each partition of the topics that the group has committed
    anything of, or that a member has a part of. topics: only these.
    """
    about = {g.group: g for g in groups}
    committed, failed, unknown_of = _committed(look, list(about))  # before the ends: a group that is reading is never beyond them
    rows_of: dict[str, list[Any]] = {}
    for name, group in about.items():
        of_members = (tp for member in group.members for tp in member.partitions or ())
        rows_of[name] = [tp for tp in {*committed[name], *failed[name], *of_members} if not topics or tp[0] in topics]
    wanted = {tp for known in rows_of.values() for tp in known}
    # All partitions of these topics: of which of them a group has committed something depends on how it has read, and on when it ended.
    of_topic = _partitions(look, sorted({tp[0] for tp in wanted}))
    ends, unknown = _ends(look, sorted(wanted | {tp for those in of_topic.values() for tp in those}))
    found = {}
    for name, known in rows_of.items():
        owners = {tp: member for member in about[name].members for tp in member.partitions or ()}
        all_of = sorted({*known, *(tp for topic in {tp[0] for tp in known} for tp in of_topic.get(topic, ()))})
        why_not = dict.fromkeys(all_of, unknown_of[name]) if name in unknown_of else {**unknown, **failed[name]}
        found[name] = [PartitionLag.of(tp, committed[name].get(tp, -1), ends.get(tp), owners.get(tp), why_not.get(tp)) for tp in all_of]
    return found, unknown_of


def _committed(
    look: Look, names: list[str]
) -> tuple[dict[str, dict[Any, int]], dict[str, dict[Any, KafkaException]], dict[str, KafkaException]]:
    """(what each group has committed, why that cannot be told of a partition, and why not of a group at all)."""
    from gkafka.exceptions import AdminError

    found, failed = look.more(names, look.admin.list_offsets_of_groups, names, HALF)
    parts = {name: error for name, error in failed.items() if isinstance(error, AdminError)}
    told = {**found, **{name: error.results for name, error in parts.items()}}
    offsets = {name: {tp: at.offset for tp, at in told.get(name, {}).items() if at.offset >= 0} for name in names}
    errors = {name: parts[name].errors if name in parts else {} for name in names}
    return offsets, errors, {name: error for name, error in failed.items() if name not in parts}


def _partitions(look: Look, topics: list[str]) -> dict[str, list[Any]]:
    """All of each topic; of those alone that brokers tell of: that of the others is told by who looks for their ends."""
    from gkafka.common import TopicPartition
    from gkafka.exceptions import AdminError, KafkaException

    try:
        about = look.admin.describe_topics(topics, timeout=look.left(HALF)) if topics else {}
    except AdminError as exc:
        about = exc.results
    except KafkaException:
        return {}
    return {name: [TopicPartition(name, number) for number in topic.partitions] for name, topic in about.items()}


def _ends(look: Look, wanted: list[Any]) -> tuple[dict[Any, int], dict[Any, KafkaException]]:
    """(the next offset of partitions, why that is not told of the others: no leader, deleted, denied)."""
    return look.more(wanted, look.admin.list_offsets, dict.fromkeys(wanted, -1))


def total_of(rows: list[PartitionLag]) -> int | None:
    """How far all rows are behind together, None where none tells. One beyond its end takes nothing off the others."""
    known = [max(0, row.lag) for row in rows if row.lag is not None]
    return sum(known) if known else None


def beyond(group: str, rows: list[PartitionLag]) -> list[str]:
    """Lines about partitions whose committed offset lies beyond the end of the log, and what to do."""
    found = [row for row in rows if row.lag is not None and row.lag < 0]
    if not found:
        return []
    told = [
        f"{quoted(group)}: committed {row.committed} of {clean(row.topic)}:{row.partition}, beyond the end of the log, {row.end}"
        for row in found[:MOST]
    ]
    if len(found) > MOST:
        told.append(f"{quoted(group)}: ... and {len(found) - MOST} more partitions")
    numbers: dict[str, list[str]] = {}
    for row in found:
        numbers.setdefault(row.topic, []).append(str(row.partition))
    topics = " ".join(f"--topic {clean(topic)}:{','.join(those)}" for topic, those in numbers.items())
    return [
        *told,
        "  records were lost, or the topic was made anew: the group may miss what is written until the log gets there",
        f"  next: stop the group, and kafka-tools offsets reset {clean(group)} {topics} --to-latest, or --to-earliest",
    ]


# -- the command -----------------------------------------------------------------------------------------------------------------
@command("lag")
@click.argument("names", metavar="[GROUP]...", nargs=-1, type=GROUP)
@click.option("--topic", "topics", metavar="TOPIC", type=TOPIC, multiple=True, help="Only what is consumed of these.")
@click.option("-w", "--watch", is_flag=True, help="Look again and again, until Ctrl-C.")
@click.option("--interval", metavar="SECONDS", type=Quantity(0.1), help="With --watch: between two looks. [2]")
@click.option("--count", metavar="N", type=RECORDS, help="With --watch: end after so many looks.")
@json_option
@connection_options
@click.pass_context
def lag(
    ctx: click.Context, names: tuple[str, ...], topics: tuple[str, ...], watch: bool, interval: float | None, count: int | None
) -> None:
    """How far groups are behind. Without names: all groups, a line each; with names: each partition.

    With --watch a terminal is drawn anew at each look; elsewhere the looks follow each other, with --json one line each.
    """
    if count is not None and not watch:
        raise click.UsageError("--count is for --watch: give that, too", ctx)
    if interval is not None and not watch:
        raise click.UsageError("--interval is for --watch: give that, too", ctx)

    if not watch:
        with looking(ctx) as look:
            found = _look(look, names, topics)
        _show(found, wants_json(ctx), bool(names))
        look.end(found=_tells(found))
        return
    seconds = settings_of(ctx).timeout_s

    def show_again(client: KafkaClient, since: str) -> PartialError | None:
        look = Look(client, seconds)
        with _telling_of_silence(client.handler, since):
            found = _look(look.reach(), names, topics)
        _show_again(found, wants_json(ctx), bool(names))
        return look.partial(found=_tells(found))

    try:
        with stoppable(), connect(ctx, **patience(ctx)) as client:
            progress().hide()  # it shows itself, and who does not answer
            _watch(client, show_again, INTERVAL_S if interval is None else interval, count)
    except KeyboardInterrupt:
        if count is not None:  # else that is how it ends
            raise


def _watch(client: KafkaClient, show_again: Callable[[KafkaClient, str], PartialError | None], interval: float, count: int | None) -> None:
    from gkafka.cli.wording import in_tools_words
    from gkafka.exceptions import KafkaException

    since, told = None, None
    for number in count_up() if count is None else range(count):
        if number:
            client.handler.sleep(interval)
        since = since or _now()
        try:
            missing = show_again(client, since)
            since = None
        except KafkaException as exc:
            if not number:
                raise
            note(f"kafka-tools: {in_tools_words(str(exc))}")  # brokers may come back, and whoever watches waits for that
            continue
        if missing is not None and (missing != told or on_terminal()):  # a terminal was drawn anew
            for line in missing.lines():
                note(line)
        told = missing
    if told is not None:
        raise click.exceptions.Exit(told.code)


@contextmanager
def _telling_of_silence(handler: Handler, since: str) -> Iterator[None]:
    """A line says since when nobody answers, if the block takes long: what is shown is old by then."""
    done = handler.Event()

    def tell() -> None:
        if not done.wait(LATE_S):
            note(f"kafka-tools: the brokers do not answer since {since}; what is shown is from before")

    teller = handler.spawn(tell, _name="kafka-tools-lag")
    try:
        yield
    finally:
        done.set()
        teller.join()


def _look(look: Look, names: tuple[str, ...], topics: tuple[str, ...]) -> list[GroupLag]:
    from gkafka.exceptions import GroupIdNotFound

    admin = look.admin
    if names:
        about, failed = look.named(near_groups, admin.describe_groups, names, HALF)
    else:
        listed = [g.group for g in look.groups().values() if g.protocol_type in ("consumer", "")]
        about, failed = look.more(listed, admin.describe_groups, listed, HALF, gone=GroupIdNotFound)
    rows_of, unknown_of = behind(look, about.values(), topics)
    found = [GroupLag.of(name, about.get(name), rows_of.get(name, []), {**unknown_of, **failed}.get(name)) for name in (*about, *failed)]
    shown = [one for one in found if one.partitions or names or not topics or one.problem is not None]
    if topics and not any(one.partitions for one in shown):
        look.named(near_topics, admin.describe_topics, topics)  # raises for a name that is misspelt
    return sorted(shown, key=lambda one: one.group) if not names else shown


def _tells(found: list[GroupLag]) -> bool:
    """Is it known of any group what it has committed? Where it is of none, nothing was found out of what was asked for."""
    return not found or any(one.problem is None for one in found)


def _show(found: list[GroupLag], as_json: bool, each: bool) -> None:
    if as_json:
        document([one.told() for one in found])
    else:
        for line in _lines(found, each):
            write(line)


def _lines(found: list[GroupLag], each: bool) -> list[str]:
    more = [line for one in found for line in beyond(one.group, one.partitions)]
    if not each:
        unknown = ["unknown"] if any(one.unknown != 0 for one in found) else []
        return [*lines_of([one._asdict() for one in found], ["group", "state", "members", LAG, *unknown]), *more]
    rows = [{"group": one.group, **row._asdict()} for one in found for row in one.partitions]
    lines = lines_of(rows, ["group", *LAG_COLUMNS])
    return [*lines, *(f"{quoted(one.group)}: {_summed_up(one)}" for one in found), *more]


def _summed_up(one: GroupLag) -> str:
    if one.problem is not None:
        return "cannot be looked at" if one.state is None else "what it has committed cannot be told"
    without = sum(1 for row in one.partitions if row.committed is None and row.problem is None)
    if without == len(one.partitions):
        return "nothing committed"
    parts = [f"lag {one.lag}"] if one.lag is not None else []
    parts += [f"not known of {counted(one.unknown or 0, 'partition')}"] if one.unknown else []
    return "; ".join([*parts, *([f"nothing committed of {counted(without, 'partition')}"] if without else [])])


def _now() -> str:
    from time import time

    return as_time(int(time() * 1000))


def _show_again(found: list[GroupLag], as_json: bool, each: bool) -> None:
    now = _now()
    if as_json:
        json_line({"time": now, "groups": [one.told() for one in found]})
    else:
        lines = [now, *_lines(found, each)]
        drawn = on_terminal()
        write((HOME_AND_CLEAR if drawn else "") + "\n".join(lines) + ("" if drawn else "\n"), goes_on=True)
