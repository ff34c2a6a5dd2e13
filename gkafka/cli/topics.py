"""`kafka-tools topics`: topics listed, described, created, deleted, given more partitions."""

from __future__ import annotations

from typing import Any

import click

from gkafka.cli.commands import group
from gkafka.cli.connection import connect, connection_options
from gkafka.cli.output import document, json_option, table, wants_json

__all__ = ["topics"]


@group("topics", invoke_without_command=True)
@json_option
@connection_options
@click.pass_context
def topics(ctx: click.Context) -> None:
    """Topics. Without a command: list them."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_topics)


@topics.command("list")
@click.option("--internal", is_flag=True, help="Also those that brokers keep for themselves.")
@json_option
@connection_options
@click.pass_context
def list_topics(ctx: click.Context, internal: bool = False) -> None:
    """All topics that you may describe."""
    with connect(ctx) as client:
        rows: list[dict[str, Any]] = [
            {"topic": t.name, "partitions": t.partitions, "internal": t.is_internal}
            for t in client.admin().list_topics(internal=internal).values()
        ]
    document(rows) if wants_json(ctx) else table(rows, ["topic", "partitions"])
