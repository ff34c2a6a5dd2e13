"""`kafka-tools topics`: topics listed, described, created, deleted, given more partitions; their configuration looked at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from gkafka.cli.arguments import TOPIC, near_topics, pairs, yes_option
from gkafka.cli.commands import group
from gkafka.cli.connection import acting, connection_options
from gkafka.cli.failures import ToolError
from gkafka.cli.looking import HALF, Look, as_far_as_it_goes, end_in_part, looking
from gkafka.cli.output import Column, clean, document, json_option, note, quoted, styled, table, wants_json, write
from gkafka.cli.quantities import PARTITIONS, REPLICAS, is_number

if TYPE_CHECKING:
    from gkafka.admin import Admin, TopicDescription

__all__ = ["described", "topics"]

PARTITION = ("partition", "leader", "replicas", "isr", "offline", "earliest", "latest", "problem")


@group("topics", invoke_without_command=True)
@click.option("--internal", is_flag=True, help="Of list.")
@click.option("-l", "--long", is_flag=True, help="Of list.")
@json_option
@connection_options
@click.pass_context
def topics(ctx: click.Context, internal: bool, long: bool) -> None:
    """Topics. Without a command: list them."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_topics, internal=internal, long=long)
    elif internal or long:
        raise click.UsageError("--internal and --long are for list: give them behind that word, or without any", ctx)


# -- look ----------------------------------------------------------------------------------------------------------------------
@topics.command("list")
@click.option("--internal", is_flag=True, help="Also those that brokers keep for themselves.")
@click.option("-l", "--long", is_flag=True, help="Also replicas, and how many partitions have a problem.")
@json_option
@connection_options
@click.pass_context
def list_topics(ctx: click.Context, internal: bool = False, long: bool = False) -> None:
    """All topics that you may describe."""
    from gkafka.admin.topics import TopicsAdmin  # the other subjects of client.admin() take longer to load than all the rest
    from gkafka.exceptions import UnknownTopicOrPartition

    with looking(ctx, TopicsAdmin) as look:
        listed = look.all_of(look.admin.list_topics, internal=internal)
        about = look.more(listed, look.admin.describe_topics, listed, gone=UnknownTopicOrPartition)[0] if long else {}
    rows: list[dict[str, Any]] = [{"topic": t.name, "partitions": t.partitions, "internal": t.is_internal} for t in listed.values()]
    for row in rows if long else ():
        row |= _summary(about[row["topic"]]) if row["topic"] in about else {"replicas": None, "problems": None}
    if wants_json(ctx):
        document(rows)
    else:
        more: list[Column | str] = ["replicas", Column("problems", colour=_alarm)]
        table(rows, ["topic", "partitions", *(more if long else [])])
    look.end()


def _alarm(value: Any) -> str | None:
    return "red" if value else None


def _summary(topic: TopicDescription) -> dict[str, Any]:
    """replicas: of the partition that has the most. problems: partitions with one."""
    return {
        "replicas": max((len(p.replicas) for p in topic.partitions.values()), default=0),
        "problems": sum(1 for p in topic.partitions.values() if problem_of(p)),
    }


def problem_of(partition: Any) -> str | None:
    """What is wrong with a partition, the worst first."""
    if partition.leader < 0:
        return "no leader"
    if len(partition.isr) < len(partition.replicas):
        return "under-replicated"
    return None


@topics.command("describe")
@click.argument("names", metavar="[TOPIC]...", nargs=-1, type=TOPIC)
@click.option("--offsets", is_flag=True, help="Also the first and the next offset of each partition.")
@click.option("--problems", is_flag=True, help="Only partitions with a problem: no leader, or replicas that are behind.")
@json_option
@connection_options
@click.pass_context
def describe(ctx: click.Context, names: tuple[str, ...], offsets: bool, problems: bool) -> None:
    """Partitions, leaders, replicas, and what is configured. Without names: of all topics."""
    with looking(ctx) as look:
        found = described(look, names, offsets=offsets)
    totals = {topic["topic"]: len(topic["partitions"]) for topic in found}
    if problems:
        for topic in found:
            topic["partitions"] = [p for p in topic["partitions"] if p["problem"] is not None]
        found = [topic for topic in found if topic["partitions"]]
    if wants_json(ctx):
        document(found)
    else:
        _show_topics(found, totals)
    look.end()


def described(look: Look, names: tuple[str, ...], *, offsets: bool = False, configs: bool = True) -> list[dict[str, Any]]:
    """What there is to say of topics, all if none is named, as JSON has it."""
    from gkafka.exceptions import UnknownTopicOrPartition

    admin = look.admin
    if names:
        about, _ = look.named(near_topics, admin.describe_topics, names, HALF)
    else:
        listed = look.all_of(admin.list_topics, share=HALF)
        about, _ = look.more(listed, admin.describe_topics, listed, HALF, gone=UnknownTopicOrPartition)
    configured = _configured(look, list(about)) if about and configs else {}
    rows_of = {name: [_partition(p) for p in topic.partitions.values()] for name, topic in sorted(about.items())}
    if offsets:
        _add_ends(look, rows_of)
    return [
        {
            "topic": name,
            "id": str(about[name].topic_id) if about[name].topic_id.int else None,
            "internal": about[name].is_internal,
            "replicas": _summary(about[name])["replicas"],
            "configs": configured.get(name),
            "partitions": rows,
        }
        for name, rows in rows_of.items()
    ]


def _configured(look: Look, names: list[str]) -> dict[str, dict[str, str | None]]:
    """What somebody has configured of topics; of those alone whose configuration brokers tell (Kafka 0.11), and tell the asker."""
    from gkafka.exceptions import TopicAuthorizationFailed, UnsupportedVersion

    def configs(asked: list[tuple[str, str]], timeout: float) -> dict[str, Any]:
        from gkafka.admin.requests import made_of

        def by_topic(found: dict[Any, Any]) -> dict[str, Any]:
            return {resource.name: entries for resource, entries in found.items()}

        try:
            return made_of(lambda: look.admin.describe_configs(asked, timeout=timeout), by_topic)
        except UnsupportedVersion:
            return {}

    told, _ = look.more(names, configs, [("topic", name) for name in names], HALF, gone=TopicAuthorizationFailed)
    own = ("TOPIC", "UNKNOWN")  # brokers before 1.1 tell no source
    return {
        name: {c.name: c.value for c in entries.values() if not c.is_default and c.source.name in own} for name, entries in told.items()
    }


def _partition(p: Any) -> dict[str, Any]:
    return {
        "partition": p.partition,
        "leader": p.leader if p.leader >= 0 else None,
        "replicas": list(p.replicas),
        "isr": list(p.isr),
        "offline": list(p.offline),
        "problem": problem_of(p),
    }


def _add_ends(look: Look, rows_of: dict[str, list[dict[str, Any]]]) -> None:
    """earliest, latest: of partitions that have a leader, None where it does not tell."""
    from gkafka.common import TopicPartition

    led = {TopicPartition(name, row["partition"]): row for name, rows in rows_of.items() for row in rows if row["leader"] is not None}
    earliest, failed = look.more(led, look.admin.list_offsets, dict.fromkeys(led, -2), HALF)
    there = [tp for tp in led if tp not in failed]
    latest, _ = look.more(there, look.admin.list_offsets, dict.fromkeys(there, -1))
    for tp, row in led.items():
        row["earliest"], row["latest"] = earliest.get(tp), latest.get(tp)


def _show_topics(found: list[dict[str, Any]], totals: Mapping[str, int]) -> None:
    """totals: how many partitions each topic has, whether they are shown or not."""
    for position, topic in enumerate(found):
        if position:
            write("")
        write(styled(clean(topic["topic"]), None, bold=True))
        told = [("id", topic["id"]), ("partitions", totals[topic["topic"]]), ("replicas", topic["replicas"])]
        write("  " + "  ".join(f"{name} {value}" for name, value in told if value is not None))
        for name, value in (topic["configs"] or {}).items():
            write(f"  {clean(name)}={clean(value)}")
        _show_partitions(topic["partitions"])


def _show_partitions(rows: list[dict[str, Any]]) -> None:
    always = ("partition", "leader", "replicas", "isr")
    keys = [key for key in PARTITION if key in always or any(row.get(key) not in (None, []) for row in rows)]
    table(rows, [Column(key, colour=_alarm if key in ("problem", "offline") else None) for key in keys])


@topics.command("config")
@click.argument("name", metavar="TOPIC", type=TOPIC)
@click.option("--all", "every", is_flag=True, help="Also what nobody has set.")
@json_option
@connection_options
@click.pass_context
def config(ctx: click.Context, name: str, every: bool) -> None:
    """A topic's configuration; to change it: kafka-tools configs alter topic TOPIC."""
    from gkafka.cli.configs import show_configs

    show_configs(ctx, "topic", name, every=every)


# -- act -----------------------------------------------------------------------------------------------------------------------
@topics.command("create")
@click.argument("names", metavar="TOPIC...", nargs=-1, required=True, type=TOPIC)
@click.option("-p", "--partitions", type=PARTITIONS, help="How many. [the brokers' default]")
@click.option("-r", "--replicas", type=REPLICAS, help="Copies of each. [the brokers' default]")
@click.option("--assign", metavar="IDS,...", multiple=True, help="Brokers of partition 0, again for 1, ..., in place of -p and -r.")
@click.option("--topic-config", "configs", metavar="NAME=VALUE", multiple=True, help="A configuration, as retention.ms=60000.")
@click.option("--if-not-exists", is_flag=True, help="A topic that is there already is fine.")
@click.option("--dry-run", is_flag=True, help="Only have the brokers say whether it could be.")
@json_option
@connection_options
@click.pass_context
def create(
    ctx: click.Context,
    names: tuple[str, ...],
    partitions: int | None,
    replicas: int | None,
    assign: tuple[str, ...],
    configs: tuple[str, ...],
    if_not_exists: bool,
    dry_run: bool,
) -> None:
    """Create topics."""
    from gkafka.admin import NewTopic
    from gkafka.admin.requests import parts_of
    from gkafka.exceptions import AdminError, TopicAlreadyExists

    values = pairs("--topic-config", configs)
    placed = _placed(assign)
    if placed and (partitions or replicas):
        raise click.UsageError("--assign says how many partitions and replicas there are: leave -p and -r out", ctx)
    new = [NewTopic(name, partitions or -1, replicas or -1, values, placed or None) for name in dict.fromkeys(names)]
    with acting(ctx) as client:
        made, failed = parts_of(lambda: client.admin().create_topics(new, validate_only=dry_run))
    if if_not_exists:
        failed = {name: error for name, error in failed.items() if not isinstance(error, TopicAlreadyExists)}
    if failed and not made:
        raise AdminError("creating topics", failed)
    rows = [
        {
            "topic": name,
            "created": name in made and not dry_run,
            "partitions": _or_none(made[name].partitions) if name in made else None,
            "replicas": _or_none(made[name].replication_factor) if name in made else None,
        }
        for name in dict.fromkeys(names)
    ]
    document(rows) if wants_json(ctx) else table(rows, ["topic", "created", "partitions", "replicas"])
    if dry_run:
        note("nothing was created: --dry-run")
    end_in_part(failed)


def _or_none(number: int) -> int | None:
    return number if number > 0 else None


def _placed(assign: tuple[str, ...]) -> dict[int, list[int]]:
    placed: dict[int, list[int]] = {}
    for number, text in enumerate(assign):
        ids = text.split(",")
        if not all(map(is_number, ids)) or len(set(ids)) < len(ids):
            raise click.UsageError(f"--assign {text!r}: must be brokers' ids, each once, as 1,2", click.get_current_context())
        placed[number] = list(map(int, ids))
    return placed


@topics.command("delete")
@click.argument("names", metavar="TOPIC...", nargs=-1, required=True, type=TOPIC)
@click.option("--if-exists", is_flag=True, help="A topic that is not there is fine.")
@yes_option("delete them, with all records")
@json_option
@connection_options
@click.pass_context
def delete(ctx: click.Context, names: tuple[str, ...], if_exists: bool, yes: bool) -> None:
    """Delete topics with all that is in them."""
    with acting(ctx) as client:
        admin = client.admin()
        there = admin.list_topics(internal=True)
        wanted = [name for name in dict.fromkeys(names) if name in there or not if_exists]
        with near_topics(admin):
            about = admin.describe_topics(wanted) if wanted else {}
            rows = [{"topic": name, "partitions": len(about[name].partitions), "records": _count(admin, about[name])} for name in wanted]
            failed = as_far_as_it_goes(lambda: admin.delete_topics(wanted))[1] if yes and wanted else {}
            rows = [row for row in rows if row["topic"] not in failed]
    absent = [name for name in dict.fromkeys(names) if name not in wanted]
    if absent:
        note(f"not there: {', '.join(map(quoted, absent))}")
    if wanted or wants_json(ctx):
        finish(ctx, rows, ["topic", "partitions", "records"], done=yes, what="deleted")
    else:
        note("nothing is to be deleted")
    end_in_part(failed)


def _count(admin: Admin, topic: TopicDescription) -> int | None:
    """About how many records there are: offsets, of which compaction and transactions use some up. None where a partition does not tell."""
    from gkafka.exceptions import KafkaException

    if any(p.leader < 0 for p in topic.partitions.values()):
        return None
    try:
        ends: dict[int, Mapping[Any, int]] = {end: admin.list_offsets({(topic.name, p): end for p in topic.partitions}) for end in (-2, -1)}
    except KafkaException:  # that keeps nobody from deleting it
        return None
    return sum(ends[-1].values()) - sum(ends[-2].values())


def finish(ctx: click.Context, rows: list[dict[str, Any]], columns: list[str], *, done: bool, what: str) -> None:
    """Show what was done, or would be: a table and a line, or a JSON document that says which of both it was."""
    if wants_json(ctx):
        document({"done": done, "what": what, "items": rows})
        return
    table(rows, columns)
    note(what if done else f"nothing is {what} yet: the same with --yes does it")


@topics.command("partitions")
@click.argument("name", metavar="TOPIC", type=TOPIC)
@click.argument("total", type=PARTITIONS)
@yes_option("it: there is no way back to fewer")
@json_option
@connection_options
@click.pass_context
def partitions_of(ctx: click.Context, name: str, total: int, yes: bool) -> None:
    """Have a topic get more partitions: TOTAL of them, old and new. Records with a key go to other partitions from then on."""
    with acting(ctx) as client:
        admin = client.admin()
        with near_topics(admin):
            before = len(admin.describe_topics([name])[name].partitions)
            if total <= before:
                raise ToolError(f"topic {name!r} has {before} partitions; there is no way to {total}", hint=f"give more than {before}")
            admin.create_partitions({name: total}, validate_only=not yes)
    finish(ctx, [{"topic": name, "before": before, "after": total}], ["topic", "before", "after"], done=yes, what="added")
