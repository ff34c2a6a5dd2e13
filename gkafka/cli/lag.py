"""`kafka-tools lag`: how far groups are behind, once or again and again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count as count_up
from typing import TYPE_CHECKING, Any

import click

from gkafka.cli.arguments import GROUP, TOPIC, as_time, near_groups, near_topics
from gkafka.cli.commands import command
from gkafka.cli.connection import connect, connection_options
from gkafka.cli.output import (
    Column,
    clean,
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
from gkafka.cli.quantities import RECORDS, Quantity

if TYPE_CHECKING:
    from gkafka.admin import Admin, GroupDescription
    from gkafka.client import KafkaClient
    from gkafka.skins import Handler

__all__ = ["LAG_COLUMNS", "behind", "beyond", "lag", "total_of"]

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
def behind(admin: Admin, about: GroupDescription, topics: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """A row for each partition that a group has committed or a member has. lag: None where nothing is committed, or the end is not known; negative
    where what is committed lies beyond the end of the log.

    topics: only these; their partitions that the group has nothing to do with are there, too.
    """
    committed = admin.list_group_offsets(about.group)  # before the ends: a group that is reading is never beyond them
    owners = {tp: member for member in about.members for tp in member.partitions or ()}
    wanted = sorted({*(tp for tp, at in committed.items() if at.offset >= 0), *owners})
    if topics:
        wanted = [tp for tp in wanted if tp[0] in topics]
    ends = _ends(admin, wanted)
    return [_row(tp, committed[tp].offset if tp in committed else -1, ends.get(tp), owners.get(tp)) for tp in wanted]


def _row(tp: Any, committed: int, end: int | None, owner: Any) -> dict[str, Any]:
    return {
        "topic": tp[0],
        "partition": tp[1],
        "committed": committed if committed >= 0 else None,
        "end": end,
        "lag": end - committed if end is not None and committed >= 0 else None,
        "client": owner.client_id if owner is not None else None,
        "host": owner.host if owner is not None else None,
        "member": owner.member_id if owner is not None else None,
    }


def _ends(admin: Admin, wanted: list[Any]) -> dict[Any, int]:
    """The next offset of partitions; those of which nobody tells (no leader, deleted) are left out."""
    from gkafka.exceptions import AdminError

    try:
        return dict(admin.list_offsets(dict.fromkeys(wanted, -1))) if wanted else {}
    except AdminError as exc:
        return dict(exc.results)


def total_of(rows: list[dict[str, Any]]) -> int | None:
    """How far all rows are behind together, None where none tells. One beyond its end takes nothing off the others."""
    known = [max(0, row["lag"]) for row in rows if row["lag"] is not None]
    return sum(known) if known else None


def beyond(group: str, rows: list[dict[str, Any]]) -> list[str]:
    """Lines about partitions whose committed offset lies beyond the end of the log, and what to do."""
    found = [row for row in rows if row["lag"] is not None and row["lag"] < 0]
    if not found:
        return []
    told = [
        f"{quoted(group)}: committed {row['committed']} of {clean(row['topic'])}:{row['partition']}, beyond the end of the log, {row['end']}"
        for row in found[:MOST]
    ]
    if len(found) > MOST:
        told.append(f"{quoted(group)}: ... and {len(found) - MOST} more partitions")
    numbers: dict[str, list[str]] = {}
    for row in found:
        numbers.setdefault(row["topic"], []).append(str(row["partition"]))
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

    def show(client: KafkaClient) -> None:
        _show(_look(client, names, topics), wants_json(ctx), bool(names))

    def show_again(client: KafkaClient, since: str) -> None:
        with _telling_of_silence(client.handler, since):
            found = _look(client, names, topics)
        _show_again(found, wants_json(ctx), bool(names))

    if not watch:
        with connect(ctx) as client:
            show(client)
        return
    try:
        with stoppable(), connect(ctx) as client:
            _watch(client, show_again, INTERVAL_S if interval is None else interval, count)
    except KeyboardInterrupt:
        if count is not None:  # else that is how it ends
            raise


def _watch(client: KafkaClient, show_again: Callable[[KafkaClient, str], None], interval: float, count: int | None) -> None:
    from gkafka.cli.wording import in_tools_words
    from gkafka.exceptions import KafkaException

    since = None
    for number in count_up() if count is None else range(count):
        if number:
            client.handler.sleep(interval)
        since = since or _now()
        try:
            show_again(client, since)
            since = None
        except KafkaException as exc:
            if not number:
                raise
            note(f"kafka-tools: {in_tools_words(str(exc))}")  # brokers may come back, and whoever watches waits for that


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


def _look(client: KafkaClient, names: tuple[str, ...], topics: tuple[str, ...]) -> list[dict[str, Any]]:
    admin = client.admin()
    with near_groups(admin):
        about = admin.describe_groups(names or [g.group for g in admin.list_groups().values() if g.protocol_type in ("consumer", "")])
    found = [
        {"group": g.group, "state": g.state, "members": len(g.members), "lag": total_of(rows), "partitions": rows}
        for g in about.values()
        for rows in [behind(admin, g, topics)]
        if rows or names or not topics
    ]
    if topics and not any(one["partitions"] for one in found):
        with near_topics(admin):
            admin.describe_topics(topics)  # raises for a name that is misspelt
    return found


def _show(found: list[dict[str, Any]], as_json: bool, each: bool) -> None:
    if as_json:
        document(found)
    else:
        for line in _lines(found, each):
            write(line)


def _lines(found: list[dict[str, Any]], each: bool) -> list[str]:
    more = [line for one in found for line in beyond(one["group"], one["partitions"])]
    if not each:
        return [*lines_of(found, ["group", "state", "members", LAG]), *more]
    rows = [{"group": one["group"], **row} for one in found for row in one["partitions"]]
    lines = lines_of(rows, ["group", *LAG_COLUMNS])
    return [
        *lines,
        *(f"{quoted(one['group'])}: " + ("nothing committed" if one["lag"] is None else f"lag {one['lag']}") for one in found),
        *more,
    ]


def _now() -> str:
    from time import time

    return as_time(int(time() * 1000))


def _show_again(found: list[dict[str, Any]], as_json: bool, each: bool) -> None:
    now = _now()
    if as_json:
        json_line({"time": now, "groups": found})
    else:
        lines = [now, *_lines(found, each)]
        drawn = on_terminal()
        write((HOME_AND_CLEAR if drawn else "") + "\n".join(lines) + ("" if drawn else "\n"), goes_on=True)
