"""click's commands, with the help of kafka-tools: a command's own options first, those of reaching a cluster below them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from gkafka.cli.connection import Common

__all__ = ["Command", "Group", "command", "group"]


class _Help(click.Command):
    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        own: list[tuple[str, str]] = []
        common: list[tuple[str, str]] = []
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                (common if isinstance(parameter, Common) else own).append(record)
        for title, records in (("Options", own), ("Options of the connection", common)):
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class Command(_Help):
    """A command of kafka-tools."""


class Group(_Help, click.Group):
    """Commands about one subject."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)
        super().format_options(ctx, formatter)


def command(name: str | None = None, **settings: Any) -> Callable[[Callable[..., Any]], Command]:
    """@command(): a Command of the function below."""
    return click.command(name, cls=Command, **settings)


def group(name: str | None = None, **settings: Any) -> Callable[[Callable[..., Any]], Group]:
    """@group(): a Group; where no command follows, its function runs if it says invoke_without_command=True."""
    return click.group(name, cls=Group, **settings)
