"""pykafka's commands, by its names, arguments and answers; each is one of the others under an older name.

Source: pykafka 2, kafka_tools.py --help: consume_topic, desc_topic, print_managed_consumer_groups, print_consumer_lag, print_offsets,
print_topics, reset_offsets, create_topic, delete_topic
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from gkafka.cli.arguments import GROUP, TOPIC, near_groups, near_topics, parse_time
from gkafka.cli.commands import command
from gkafka.cli.connection import CONSUMER, acting, connect, connection_options, connection_options_of, in_time, lift, settings_of
from gkafka.cli.looking import HALF, Look, as_far_as_it_goes, end_in_part, looking, why
from gkafka.cli.output import clean, counted, document, json_option, note, table, wants_json, write
from gkafka.cli.pipes import FullWriter
from gkafka.cli.progress import progress
from gkafka.cli.quantities import MAX_INT32, PARTITIONS, RECORDS, REPLICAS, WAIT_MS, ParamType, is_number

if TYPE_CHECKING:
    from gkafka.admin import Admin
    from gkafka.common import TopicPartition

__all__ = [
    "consume_topic",
    "create_topic",
    "delete_topic",
    "desc_topic",
    "print_consumer_lag",
    "print_managed_consumer_groups",
    "print_offsets",
    "print_topics",
    "reset_offsets",
]

LOOK_MS = 200


class _Offset(ParamType):
    """EARLIEST, LATEST or a time: gives what ListOffsets takes."""

    name = "offset"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        ends = {"earliest": -2, "latest": -1}
        try:
            return ends[value.lower()] if value.lower() in ends else parse_time(value)
        except (ValueError, OverflowError, OSError):
            self.fail(f"{value!r}: must be EARLIEST, LATEST, or a time as 2026-01-31T08:00:00 (UTC), 1970 or later", param, ctx)


OFFSET = _Offset()


def _partitions(admin: Admin, topic: str) -> list[tuple[str, int]]:
    return [(topic, number) for number in admin.describe_topics([topic])[topic].partitions]


# -- look ------------------------------------------------------------------------------------------------------------------------
@command("print_topics")
@json_option
@connection_options
@click.pass_context
def print_topics(ctx: click.Context) -> None:
    """Information about all topics in the cluster. Newer: topics list --long."""
    from gkafka.exceptions import UnknownTopicOrPartition

    with looking(ctx) as look:
        names = look.all_of(look.admin.list_topics, share=HALF)
        about, failed = look.more(names, look.admin.describe_topics, names, gone=UnknownTopicOrPartition)
    rows = [
        {"topic": name, "partitions": len(t.partitions), "replication": max((len(p.replicas) for p in t.partitions.values()), default=0)}
        for name, t in about.items()
    ]
    rows += [{"topic": name, "partitions": names[name].partitions, "replication": None} for name in failed]
    document(rows) if wants_json(ctx) else table(rows, ["topic", "partitions", "replication"])
    look.end()


@command("desc_topic")
@click.argument("topic", type=TOPIC)
@json_option
@connection_options
@click.pass_context
def desc_topic(ctx: click.Context, topic: str) -> None:
    """Detailed information about a topic. Newer: topics describe."""
    from gkafka.cli.topics import described

    with looking(ctx) as look:
        (found,) = described(look, (topic,), configs=False)
    if wants_json(ctx):
        document(found)
    else:
        write(f"Topic: {clean(topic)}")
        write(f"Partitions: {len(found['partitions'])}")
        write(f"Replicas: {found['replicas']}")
        table(found["partitions"], ["partition", "leader", "replicas", "isr"])
    look.end()


@command("print_offsets")
@click.argument("topic", type=TOPIC)
@click.argument("offset", type=OFFSET)
@json_option
@connection_options
@click.pass_context
def print_offsets(ctx: click.Context, topic: str, offset: int) -> None:
    """Offsets of a topic. OFFSET: EARLIEST, LATEST, or a time (UTC): the first record at or after it. Newer: offsets list."""
    with looking(ctx) as look:
        wanted = _partitions_of(look, topic)
        found, failed = look.named(near_topics, look.admin.list_offsets, dict.fromkeys(wanted, offset))
    rows = [{"partition": tp[1], "offset": found[tp] if found.get(tp, -1) >= 0 else None, **_problem(why(failed.get(tp)))} for tp in wanted]
    document(rows) if wants_json(ctx) else table(rows, ["partition", "offset"])
    look.end()


def _partitions_of(look: Look, topic: str) -> list[TopicPartition]:
    from gkafka.common import TopicPartition

    about, _ = look.named(near_topics, look.admin.describe_topics, [topic], HALF)
    return [TopicPartition(topic, number) for number in about[topic].partitions]


def _problem(text: str | None) -> dict[str, str]:
    """Of the rows alone that have one: the others are as pykafka's users know them."""
    return {} if text is None else {"problem": text}


@command("print_consumer_lag")
@click.argument("topic", type=TOPIC)
@click.argument("consumer_group", type=GROUP)
@json_option
@connection_options
@click.pass_context
def print_consumer_lag(ctx: click.Context, topic: str, consumer_group: str) -> None:
    """What a group is behind on a topic. Newer: lag GROUP --topic TOPIC."""
    from functools import partial

    from gkafka.cli.lag import PartitionLag, beyond, total_of

    with looking(ctx) as look:
        wanted = _partitions_of(look, topic)
        ask = partial(look.admin.list_group_offsets, consumer_group)
        committed, failed = look.more(wanted, ask, wanted, HALF)  # before the ends: a group that is reading is never beyond them
        if not failed and all(at.offset < 0 for at in committed.values()):
            look.named(near_groups, look.admin.describe_groups, [consumer_group], HALF)  # raises where there is no such group
        latest, unknown = look.more(wanted, look.admin.list_offsets, dict.fromkeys(wanted, -1))
    problems = {**unknown, **failed}
    offsets = {tp: at.offset for tp, at in committed.items()}
    found = [PartitionLag.of(tp, offsets.get(tp, -1), latest.get(tp), problem=problems.get(tp)) for tp in wanted]
    rows = [
        {
            "partition": one.partition,
            "lag": one.lag,
            "latest_offset": one.end,
            "current_offset": one.committed,
            **_problem(one.problem),
        }
        for one in found
    ]
    total = total_of(found) or 0
    if wants_json(ctx):
        document({"topic": topic, "group": consumer_group, "lag": total, "partitions": rows})
    else:
        table(rows, ["partition", "lag", "latest_offset", "current_offset"])
        write(f"\n Total lag: {total:,} messages.")
        for line in beyond(consumer_group, found):
            note(line)
    look.end()


@command("print_managed_consumer_groups")
@click.argument("topic", type=TOPIC)
@json_option
@connection_options
@click.pass_context
def print_managed_consumer_groups(ctx: click.Context, topic: str) -> None:
    """Groups whose members consume a topic. Newer: groups describe."""
    from gkafka.cli.groups import described

    with looking(ctx) as look:
        look.named(near_topics, look.admin.describe_topics, [topic], HALF)
        about = described(look, ())
    rows = [
        {"group": g.group, "state": g.state, "protocol": g.assignor or None, "protocol_type": g.protocol_type}
        for g in about.values()
        if any(tp[0] == topic for m in g.members for tp in m.partitions or ())
    ]
    if wants_json(ctx):
        document(rows)
    else:
        write(f"Topic: {clean(topic)}")
        table(rows, ["group", "state", "protocol", "protocol_type"])
    look.end()


@command("consume_topic")
@click.argument("topic", type=TOPIC)
@click.option("-l", "--limit", type=RECORDS, default=10, show_default=True, help="How many records.")
@click.option("-o", "--outfile", type=click.Path(), help="Where to. [standard output]")
@connection_options
@click.pass_context
def consume_topic(ctx: click.Context, topic: str, limit: int, outfile: str | None) -> None:
    """Write the values of the next records of a topic, a line each, to a file or standard output. Newer: consume."""
    from gkafka.config import NativeConsumerConfig

    options = {**settings_of(ctx, uses=(CONSUMER,)).of(NativeConsumerConfig), "auto_offset_reset": "latest"}
    with connect(ctx, uses=(CONSUMER,)) as client, in_time(client):
        with near_topics(client.admin()):
            client.admin().describe_topics([topic])
        with client.get_consumer(**options) as consumer:
            here, texts = progress(), _values(consumer, limit)
            written = 0
            here.counted, here.rest = lambda: f"{counted(written, 'record')} of {limit} written", "others were not waited for"
            consumer.assign(_partitions(client.admin(), topic))
            lift(client)
            if outfile is None:
                for text in texts:
                    write(clean(text, keep="\t"), goes_on=True)
                    written += 1
            else:
                with open(outfile, "wb", buffering=0) as file:
                    whole = FullWriter(file, outfile)
                    for text in texts:
                        whole.write(f"{text}\n".encode())
                        written += 1


def _values(consumer: Any, limit: int) -> Iterator[str]:
    left = limit
    while left:
        message = consumer.consume(LOOK_MS)
        if message is not None and message.value is not None:
            left -= 1
            yield bytes(message.value).decode("utf-8", errors="replace")


# -- act -------------------------------------------------------------------------------------------------------------------------
@command("reset_offsets")
@click.argument("topic", type=TOPIC)
@click.argument("consumer_group", type=GROUP)
@click.argument("offset", type=OFFSET)
@json_option
@connection_options
@click.pass_context
def reset_offsets(ctx: click.Context, topic: str, consumer_group: str, offset: int) -> None:
    """Set a group's offsets on a topic, at once. OFFSET: EARLIEST, LATEST, or a time (UTC). Newer, with a plan first: offsets reset."""
    from gkafka.cli.offsets import PLAN, plan_rows

    ends: dict[int, str] = {-2: "earliest", -1: "latest"}
    rule: dict[str, Any] = {"to": ends[offset]} if offset in ends else {"to_time": offset}
    with acting(ctx) as client:
        admin = client.admin()
        with near_topics(admin):
            plan, failed = as_far_as_it_goes(lambda: admin.reset_group_offsets(consumer_group, [topic], dry_run=False, **rule))
    rows = plan_rows(plan)
    if wants_json(ctx):
        document({"done": True, "what": "reset", "group": consumer_group, "items": rows})
    else:
        table(rows, PLAN)
        note("reset" if any(row["before"] is not None for row in rows) else "reset; nothing was committed of this topic before")
    end_in_part(failed)


@command("create_topic")
@click.argument("topic", type=TOPIC)
@click.option("-p", "--num_partitions", type=click.IntRange(-1, PARTITIONS.max), help="How many partitions; -1 is unset. [1]")
@click.option("-r", "--replication_factor", type=click.IntRange(-1, REPLICAS.max), help="How many replicas; -1 is unset. [1]")
@click.option("-a", "--replica_assignment", metavar="JSON", help='Brokers by partition, in place of -p and -r: {"0": [1, 2]}.')
@click.option("-c", "--config_entries", metavar="JSON", help='The topic\'s configuration: {"retention.ms": "60000"}.')
@click.option("-t", "timeout_ms", metavar="MS", type=WAIT_MS, default=5000, show_default=True, help="How long to try.")
@connection_options_of("", without=("-c",))
@click.pass_context
def create_topic(
    ctx: click.Context,
    topic: str,
    num_partitions: int | None,
    replication_factor: int | None,
    replica_assignment: str | None,
    config_entries: str | None,
    timeout_ms: int,
) -> None:
    """Create a topic. Newer: topics create."""
    from gkafka.admin import NewTopic

    for option, given in (("--num_partitions", num_partitions), ("--replication_factor", replication_factor)):
        if given == 0:
            raise click.UsageError(f"{option} 0: must be 1 or more; -1 is unset", ctx)
    configs = _json("--config_entries", config_entries)
    placed = _placed("--replica_assignment", replica_assignment)
    unset = -1 if placed else 1
    partitions, replicas = ((unset if given is None else given) or -1 for given in (num_partitions, replication_factor))
    new = NewTopic(topic, partitions, replicas, configs, placed or None)
    with acting(ctx) as client:
        client.admin().create_topics([new], timeout=timeout_ms / 1000)
    note("created")


def _placed(option: str, text: str | None) -> dict[int, list[int]]:
    """The brokers of each partition."""
    given = _json(option, text)
    ids = [id_ for ids in given.values() for id_ in (ids if isinstance(ids, list) else [None])]
    if not all(map(is_number, given)) or not all(type(id_) is int and 0 <= id_ <= MAX_INT32 for id_ in ids):
        raise click.UsageError(f'{option} {text!r}: must be brokers by partition, as {{"0": [1, 2]}}', click.get_current_context())
    return {int(number): ids for number, ids in given.items()}


def _json(option: str, text: str | None) -> dict[str, Any]:
    """The JSON object that an option has, {} where it was not given."""
    from json import loads

    try:
        found = {} if text is None else loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise click.UsageError(f"{option} {text!r}: must be a JSON object", click.get_current_context())
    return found


@command("delete_topic")
@click.argument("topic", type=TOPIC)
@click.option("-t", "timeout_ms", metavar="MS", type=WAIT_MS, default=5000, show_default=True, help="How long to try.")
@connection_options
@click.pass_context
def delete_topic(ctx: click.Context, topic: str, timeout_ms: int) -> None:
    """Delete a topic with all that is in it, at once. Newer, with a look first: topics delete."""
    with acting(ctx) as client:
        admin = client.admin()
        with near_topics(admin):
            admin.delete_topics([topic], timeout=timeout_ms / 1000)
    note("deleted")
