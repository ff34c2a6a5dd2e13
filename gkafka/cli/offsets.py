"""`kafka-tools offsets`: offsets of topics and of groups looked at; those of groups reset, with the plan first, and forgotten."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from gkafka.cli.arguments import GROUP, TIME, as_time, near_groups, near_topics, partitions, raise_unknown_group, yes_option
from gkafka.cli.commands import group
from gkafka.cli.connection import acting, connection_options
from gkafka.cli.failures import ToolError, UnusableError
from gkafka.cli.groups import refuse_active
from gkafka.cli.looking import HALF, Look, as_far_as_it_goes, end_in_part, looking, why
from gkafka.cli.output import counted, document, json_option, note, table, wants_json
from gkafka.cli.quantities import MAX_INT64, is_number
from gkafka.cli.topics import finish

if TYPE_CHECKING:
    from gkafka.admin import Admin, OffsetReset
    from gkafka.common import TopicPartition
    from gkafka.exceptions import KafkaException

__all__ = ["offsets", "plan_rows"]

RULES = ("to_earliest", "to_latest", "to_time", "to_offset", "shift_by", "from_file")
PLAN = ["topic", "partition", "before", "after", "change", "earliest", "latest"]


@group("offsets")
@json_option
@connection_options
def offsets() -> None:
    """Offsets of topics and of groups."""


# -- look ------------------------------------------------------------------------------------------------------------------------
@offsets.command("list")
@click.argument("names", metavar="[TOPIC[:PARTITION,...]]...", nargs=-1)
@click.option("--group", "group_name", metavar="GROUP", type=GROUP, help="What this group has committed; without names all of it.")
@click.option("--time", "time_ms", metavar="TIME", type=TIME, help="Also the first offset at or after: 2026-01-31T08:00Z, 1h (ago).")
@json_option
@connection_options
@click.pass_context
def list_offsets(ctx: click.Context, names: tuple[str, ...], group_name: str | None, time_ms: int | None) -> None:
    """The first and the next offset of each partition of topics, at a time, or as a group has committed it."""
    if not names and group_name is None:
        raise click.UsageError("give topics, or --group", ctx)
    whole, single = partitions("TOPIC", names)
    with looking(ctx) as look:
        wanted = sorted({*single, *_partitions_of(look, whole)}) if names else None
        committed, failed = _committed(look, group_name, wanted) if group_name is not None else ({}, {})
        asked = sorted({*committed, *failed}) if wanted is None else wanted
        columns, problems = _columns(look, asked, time_ms, knows_more=group_name is not None)
        problems |= failed
    rows = [
        {
            "topic": tp[0],
            "partition": tp[1],
            **(_told(committed.get(tp)) if group_name is not None else {}),
            **{name: _or_none(found.get(tp, -1)) for name, found in columns.items()},
            "problem": why(problems.get(tp)),
        }
        for tp in asked
    ]
    if wants_json(ctx):
        document(rows)
    else:
        keys = ["topic", "partition", *(["committed"] if group_name is not None else []), *columns]
        table(rows, [*keys, *(["metadata"] if any(row.get("metadata") for row in rows) else [])])
        if time_ms is not None:
            note(f"at_time: the first offset at or after {as_time(time_ms)}; - where no record is that new")
    look.end()


def _partitions_of(look: Look, names: list[str]) -> list[tuple[str, int]]:
    about, _ = look.named(near_topics, look.admin.describe_topics, names, HALF) if names else ({}, {})
    return [(name, number) for name, topic in about.items() for number in topic.partitions]


def _committed(look: Look, group_name: str, wanted: list[Any] | None) -> tuple[dict[Any, Any], dict[Any, KafkaException]]:
    """(what a group has committed, of which partitions that is not told, and why). Raises where there is no such group."""
    from functools import partial

    ask = partial(look.admin.list_group_offsets, group_name)
    found, failed = look.named(near_groups, ask, None, HALF) if wanted is None else look.more(wanted, ask, wanted, HALF)
    if not failed and all(one.offset < 0 for one in found.values()):
        look.named(near_groups, look.admin.describe_groups, [group_name], HALF)
    return found, failed


def _columns(
    look: Look, asked: list[Any], time_ms: int | None, *, knows_more: bool
) -> tuple[dict[str, dict[Any, int]], dict[Any, KafkaException]]:
    """(the offsets of each column by partition, why some cannot be told)."""
    times = {name: time for name, time in (("earliest", -2), ("latest", -1), ("at_time", time_ms)) if time is not None}
    problems: dict[Any, KafkaException] = {}
    columns: dict[str, dict[Any, int]] = {}
    for name, time in times.items():
        left = [tp for tp in asked if tp not in problems]
        ask = dict.fromkeys(left, time)
        if left and not (columns or knows_more):  # nothing is known of them yet, so it is an error if nothing is found out
            columns[name], failed = look.named(near_topics, look.admin.list_offsets, ask, HALF)
        else:
            columns[name], failed = look.more(left, look.admin.list_offsets, ask, HALF)
        problems |= failed
    return columns, problems


def _told(committed: Any) -> dict[str, Any]:
    return (
        {"committed": None, "metadata": None}
        if committed is None
        else {"committed": _or_none(committed.offset), "metadata": committed.metadata or None}
    )


def _or_none(offset: int) -> int | None:
    return offset if offset >= 0 else None


# -- reset -----------------------------------------------------------------------------------------------------------------------
@offsets.command("reset")
@click.argument("group_name", metavar="GROUP", type=GROUP)
@click.option("--topic", "topics", metavar="TOPIC[:PARTITION,...]", multiple=True, help="Of these. [all that the group has committed]")
@click.option("--to-earliest", is_flag=True, help="To the first record that there is.")
@click.option("--to-latest", is_flag=True, help="To the end: only what is written from now on.")
@click.option("--to-time", "--to-datetime", metavar="TIME", type=TIME, help="To the first record at or after: 2026-01-31T08:00Z, 1h (ago).")
@click.option("--to-offset", metavar="N", type=click.IntRange(0, MAX_INT64), help="To this offset.")
@click.option("--shift-by", metavar="N", type=click.IntRange(-MAX_INT64, MAX_INT64), help="So many records on, or back if negative.")
@click.option(
    "--from-file", metavar="FILE", type=click.Path(), help="Lines topic,partition,offset, or what offsets list --group --json wrote."
)
@click.option("--create", is_flag=True, help="GROUP may be new: it begins there. [else a group that nobody knows is an error]")
@yes_option("it")
@json_option
@connection_options
@click.pass_context
def reset(ctx: click.Context, /, group_name: str, topics: tuple[str, ...], create: bool, yes: bool, **rules: Any) -> None:
    """Have GROUP go on elsewhere. Prints the plan; only with --yes is it done, and only while the group has no members.

    What lies outside of a partition is moved to its end. A name that no group has is most likely misspelt: --create says that it is meant.
    """
    chosen = {name: rules[name] for name in RULES if rules[name] is not None and rules[name] is not False}
    if len(chosen) != 1:
        raise click.UsageError(f"give one of {', '.join('--' + name.replace('_', '-') for name in RULES)}", ctx)
    with acting(ctx) as client:
        admin = client.admin()
        with near_topics(admin), near_groups(admin):
            plan, failed = as_far_as_it_goes(lambda: _plan(admin, group_name, topics, chosen))
            rows = plan_rows(plan)
            active = _members(admin, group_name)
            new = active is None and all(row["before"] is None for row in rows)
            if new and not create:
                raise_unknown_group(admin, group_name, "; --create makes a new one")
            if not wants_json(ctx):
                table(rows, PLAN)
            if yes:
                _, refused = as_far_as_it_goes(lambda: admin.alter_group_offsets(group_name, {tp: one.after for tp, one in plan.items()}))
                failed |= refused
                rows = plan_rows({tp: one for tp, one in plan.items() if tp not in refused})
    if wants_json(ctx):
        document({"done": yes, "what": "reset", "group": group_name, "new": new, "items": rows})
        end_in_part(failed)
        return
    note(("reset" if yes else "nothing is reset yet: the same with --yes does it") + (f"; {group_name!r} is a new group" if new else ""))
    if active and not yes:
        note(
            f"the group has {counted(active, 'member')}: stop them first, or it will be refused; kafka-tools groups members {group_name} lists them"
        )
    end_in_part(failed)


def _plan(admin: Admin, group_name: str, topics: tuple[str, ...], chosen: dict[str, Any]) -> dict[TopicPartition, OffsetReset]:
    whole, single = partitions("--topic", topics)
    if "from_file" in chosen:
        if topics:
            raise click.UsageError("--from-file says which partitions: leave --topic out", click.get_current_context())
        return _plan_of_file(admin, group_name, read_offsets(chosen["from_file"]))
    to = {"to_earliest": "earliest", "to_latest": "latest"}.get(next(iter(chosen)), chosen.get("to_offset"))
    return admin.reset_group_offsets(
        group_name,
        whole or None,
        partitions=single or None,
        to=to,
        to_time=chosen.get("to_time"),
        shift_by=chosen.get("shift_by"),
    )


def _plan_of_file(admin: Admin, group_name: str, wanted: dict[TopicPartition, int]) -> dict[TopicPartition, OffsetReset]:
    from gkafka.admin import OffsetReset
    from gkafka.admin.requests import Requests, parts_of

    before, errors = parts_of(lambda: admin.list_group_offsets(group_name, wanted))

    def offsets_at(end: int) -> dict[TopicPartition, int]:
        found, failed = parts_of(lambda: admin.list_offsets(dict.fromkeys((tp for tp in wanted if tp not in errors), end)))
        errors.update(failed)
        return found

    earliest, latest = offsets_at(-2), offsets_at(-1)
    plan = {
        tp: OffsetReset(before[tp].offset, min(max(offset, earliest[tp]), latest[tp]), earliest[tp], latest[tp])
        for tp, offset in wanted.items()
        if tp not in errors
    }
    return Requests.all_or_error("planning a reset", errors, plan)


def _members(admin: Admin, group_name: str) -> int | None:
    """How many members a group has; None of a group that nobody knows."""
    from gkafka.exceptions import AdminError, GroupIdNotFound

    try:
        return len(admin.describe_groups([group_name])[group_name].members)
    except AdminError as exc:
        if not all(isinstance(error, GroupIdNotFound) for error in exc.errors.values()):
            raise
        return None


def plan_rows(plan: Mapping[TopicPartition, OffsetReset]) -> list[dict[str, Any]]:
    """The rows of a plan. change: records that are read again (negative) or left out."""
    return [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "before": _or_none(one.before),
            "after": one.after,
            "change": one.after - one.before if one.before >= 0 else None,
            "earliest": one.earliest,
            "latest": one.latest,
        }
        for tp, one in sorted(plan.items())
    ]


def read_offsets(path: str) -> dict[TopicPartition, int]:
    """Offsets of a file: lines "topic,partition,offset" as Kafka's own script has them, or the JSON that `offsets list --group` prints."""
    from gkafka.common import TopicPartition

    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    found: dict[TopicPartition, int] = {}
    for place, (topic, partition, offset) in _entries(path, text):
        if not topic or not is_number(partition) or not is_number(offset, MAX_INT64):
            raise UnusableError(f"{path}: {place}: must be topic,partition,offset", hint="one partition a line, as orders,0,1500")
        key = TopicPartition(topic, int(partition))
        if key in found:
            raise UnusableError(f"{path}: {place}: {topic}:{partition} is there twice", hint="leave one of both out")
        found[key] = int(offset)
    if not found:
        raise UnusableError(f"{path}: has no offsets", hint="one partition a line, as orders,0,1500")
    return found


def _entries(path: str, text: str) -> list[tuple[str, tuple[str, str, str]]]:
    """(where it stands, the three texts) of each entry. JSON entries without a committed offset are left out."""
    if not text.lstrip().startswith("["):
        lines = [(f"line {number}", line.strip()) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
        return [(place, _three(line.replace('"', "").split(","))) for place, line in lines]
    from json import JSONDecodeError, loads

    try:
        entries = loads(text)
    except (JSONDecodeError, RecursionError) as exc:
        raise UnusableError(f"{path}: is no JSON: {exc}", hint="kafka-tools offsets list --group GROUP --json writes such a file") from None
    given = [(f"entry {number}", entry) for number, entry in enumerate(entries, 1)]
    return [
        (
            place,
            _three([str(entry.get("topic", "")), str(entry.get("partition")), str(entry["committed"])] if isinstance(entry, dict) else []),
        )
        for place, entry in given
        if not isinstance(entry, dict) or entry.get("committed") is not None
    ]


def _three(parts: list[str]) -> tuple[str, str, str]:
    return (parts[0].strip(), parts[1].strip(), parts[2].strip()) if len(parts) == 3 else ("", "", "")


# -- forget ----------------------------------------------------------------------------------------------------------------------
@offsets.command("delete")
@click.argument("group_name", metavar="GROUP", type=GROUP)
@click.option("--topic", "topics", metavar="TOPIC[:PARTITION,...]", multiple=True, required=True, help="Of these.")
@yes_option("it")
@json_option
@connection_options
@click.pass_context
def delete(ctx: click.Context, group_name: str, topics: tuple[str, ...], yes: bool) -> None:
    """Have GROUP forget what it has committed of topics."""
    whole, single = partitions("--topic", topics)
    with acting(ctx) as client:
        admin = client.admin()
        with near_groups(admin):
            about = admin.describe_groups([group_name])
            committed, failed = as_far_as_it_goes(lambda: admin.list_group_offsets(group_name))
            wanted = [tp for tp in committed if tp.topic in whole or tuple(tp) in single]
            if not wanted:
                raise ToolError(
                    f"group {group_name!r} has committed nothing of that", hint=f"kafka-tools offsets list --group {group_name}"
                )
            failed = {tp: error for tp, error in failed.items() if tp.topic in whole or tuple(tp) in single}
            if yes:
                refuse_active(about)
                failed |= as_far_as_it_goes(lambda: admin.delete_group_offsets(group_name, wanted))[1]
    rows = [{"topic": tp.topic, "partition": tp.partition, "committed": committed[tp].offset} for tp in wanted if tp not in failed]
    finish(ctx, rows, ["topic", "partition", "committed"], done=yes, what="forgotten")
    end_in_part(failed)
