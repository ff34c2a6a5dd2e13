"""`kafka-tools groups`: groups listed, described with what they are behind, their members, deleted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from gkafka.cli.arguments import GROUP, near_groups, yes_option
from gkafka.cli.commands import group
from gkafka.cli.connection import acting, connection_options
from gkafka.cli.lag import LAG_COLUMNS, behind, beyond, total_of
from gkafka.cli.looking import HALF, Look, as_far_as_it_goes, end_in_part, looking, why
from gkafka.cli.output import Column, clean, counted, document, json_option, styled, table, wants_json, write
from gkafka.cli.topics import finish

if TYPE_CHECKING:
    from gkafka.admin import Admin, GroupDescription
    from gkafka.cli.lag import PartitionLag

__all__ = ["groups"]

STATES = {"Stable": "green", "Empty": None, "Dead": "red"}
ALL_STATES = ("Stable", "Empty", "Dead", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "NotReady")
TYPES = ("classic", "consumer", "share", "streams")
MEMBERS = ["member", "instance", "client", "host", "count", "partitions", "target"]


@group("groups", invoke_without_command=True)
@json_option
@connection_options
@click.pass_context
def groups(ctx: click.Context) -> None:
    """Consumer groups. Without a command: list them."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_groups)


@groups.command("list")
@click.option(
    "--state",
    "states",
    metavar="NAME",
    type=click.Choice(ALL_STATES, case_sensitive=False),
    multiple=True,
    help="Only these: Stable, Empty, PreparingRebalance, ... (Kafka 2.6)",
)
@click.option(
    "--type",
    "types",
    metavar="NAME",
    type=click.Choice(TYPES, case_sensitive=False),
    multiple=True,
    help="Only these: classic, consumer, ... (Kafka 3.8)",
)
@json_option
@connection_options
@click.pass_context
def list_groups(ctx: click.Context, states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> None:
    """All groups that you may describe."""
    with looking(ctx) as look:
        listed = look.groups(states=states, types=types)
    rows = [
        {
            "group": g.group,
            "state": g.state or None,
            "type": g.type or None,
            "protocol": g.protocol_type or None,
            "coordinator": g.broker,
        }
        for g in listed.values()
    ]
    document(rows) if wants_json(ctx) else table(rows, ["group", Column("state", colour=_colour), "type", "protocol", "coordinator"])
    look.end()


def _colour(state: Any) -> str | None:
    return STATES.get(state, "yellow") if state else None


@groups.command("describe")
@click.argument("names", metavar="[GROUP]...", nargs=-1, type=GROUP)
@json_option
@connection_options
@click.pass_context
def describe(ctx: click.Context, names: tuple[str, ...]) -> None:
    """State, coordinator, and each partition: what is committed, what the group is behind, who has it. Without names: all groups."""
    with looking(ctx) as look:
        about = described(look, names)
        rows_of, unknown_of = behind(look, about.values())
    if wants_json(ctx):
        document(
            [
                {
                    **_head(g),
                    "partitions": [row._asdict() for row in rows_of[g.group]],
                    "problem": why(unknown_of.get(g.group)),
                }
                for g in about.values()
            ]
        )
    else:
        _show(about.values(), rows_of)
    look.end()


def described(look: Look, names: tuple[str, ...]) -> dict[str, GroupDescription]:
    """The groups that are named, or all; without those that cannot be described, of which the look knows."""
    from gkafka.exceptions import GroupIdNotFound

    if names:
        return look.named(near_groups, look.admin.describe_groups, names, HALF)[0]
    listed = look.groups()
    return look.more(listed, look.admin.describe_groups, listed, HALF, gone=GroupIdNotFound)[0]


def _show(about: Iterable[GroupDescription], rows_of: Mapping[str, list[PartitionLag]]) -> None:
    for position, g in enumerate(about):
        rows = rows_of[g.group]
        if position:
            write("")
        _show_head(_head(g), total_of(rows))
        if rows:
            table([row._asdict() for row in rows], LAG_COLUMNS)
        for line in beyond(g.group, rows):
            write(line)


def _head(about: GroupDescription) -> dict[str, Any]:
    return {
        "group": about.group,
        "state": about.state,
        "type": about.type,
        "protocol": about.protocol_type,
        "assignor": about.assignor or None,
        "coordinator": about.coordinator,
        "members": len(about.members),
    }


def _show_head(told: dict[str, Any], lag: int | None) -> None:
    write(styled(clean(told["group"]), None, bold=True) + "  " + styled(clean(told["state"]), _colour(told["state"])))
    more = [f"{name} {clean(told[name])}" for name in ("type", "assignor", "coordinator", "members") if told[name] is not None]
    write("  " + "  ".join([*more, *([f"lag {lag}"] if lag is not None else [])]))


@groups.command("members")
@click.argument("names", metavar="[GROUP]...", nargs=-1, type=GROUP)
@json_option
@connection_options
@click.pass_context
def members(ctx: click.Context, names: tuple[str, ...]) -> None:
    """Who is in a group, from where, and what each one has. Without names: of all groups."""
    with looking(ctx) as look:
        about = described(look, names)
    rows = [row for g in about.values() for row in _members(g)]
    if wants_json(ctx):
        document(rows)
    else:
        keys = [key for key in MEMBERS if key in ("member", "client", "host", "count") or any(row[key] for row in rows)]
        table([{**row, "partitions": _short(row["partitions"]), "target": _short(row["target"])} for row in rows], ["group", *keys])
    look.end()


def _members(about: GroupDescription) -> list[dict[str, Any]]:
    return [
        {
            "group": about.group,
            "member": m.member_id,
            "instance": m.instance_id,
            "client": m.client_id,
            "host": m.host,
            "count": None if m.partitions is None else len(m.partitions),
            "partitions": _by_topic(m.partitions),
            "target": _by_topic(m.target) if m.target != m.partitions else None,
        }
        for m in about.members
    ]


def _by_topic(partitions: Any) -> dict[str, list[int]] | None:
    if partitions is None:
        return None
    found: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        found.setdefault(topic, []).append(number)
    return found


def _short(partitions: dict[str, list[int]] | None) -> str | None:
    """ "orders(0,1,5) payments(2)"."""
    return None if partitions is None else " ".join(f"{topic}({','.join(map(str, numbers))})" for topic, numbers in partitions.items())


@groups.command("delete")
@click.argument("names", metavar="GROUP...", nargs=-1, required=True, type=GROUP)
@yes_option("delete them, with what they have committed")
@json_option
@connection_options
@click.pass_context
def delete(ctx: click.Context, names: tuple[str, ...], yes: bool) -> None:
    """Delete groups that have no members, with their offsets."""
    with acting(ctx) as client:
        admin = client.admin()
        with near_groups(admin):
            about = admin.describe_groups(names)
        refuse_active(about)
        rows = [{"group": g.group, "state": g.state, "partitions": _committed(admin, g.group)} for g in about.values()]
        failed = as_far_as_it_goes(lambda: admin.delete_groups(names))[1] if yes else {}
    finish(ctx, [row for row in rows if row["group"] not in failed], ["group", "state", "partitions"], done=yes, what="deleted")
    end_in_part(failed)


def _committed(admin: Admin, name: str) -> int | None:
    """Of how many partitions; None where that is not told, which keeps nobody from deleting the group."""
    from gkafka.exceptions import KafkaException

    try:
        return len(admin.list_group_offsets(name))
    except KafkaException:
        return None


def refuse_active(about: dict[str, GroupDescription]) -> None:
    """Raise NonEmptyGroup, with where its members run, for the first group that has some."""
    from gkafka.exceptions import NonEmptyGroup

    for name, told in about.items():
        if told.members:
            hosts = ", ".join(sorted({f"{m.client_id} on {m.host}" for m in told.members}))
            raise NonEmptyGroup(f"group {name!r} has {counted(len(told.members), 'member')}: stop them first ({hosts})", group=name)
