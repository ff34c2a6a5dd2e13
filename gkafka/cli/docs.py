"""`kafka-tools docs`: gkafka's documentation, which is installed with it."""

from __future__ import annotations

import os
import sys
from difflib import get_close_matches
from typing import Any

import click
from click.shell_completion import CompletionItem

from gkafka import pages
from gkafka.cli.commands import command
from gkafka.cli.output import Column, document, json_option, on_terminal, table, wants_json, write
from gkafka.cli.quantities import ParamType

__all__ = ["docs"]

PAGER = "FRX"
"""What `less` is told where LESS says nothing, as git tells it: end at once if all fits the screen, show colours, leave the text there."""


class Page(ParamType):
    """The name of a page, with or without .md."""

    name = "NAME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        known = pages.names()
        name = str(value).rpartition("/")[2].removesuffix(".md")
        if name == pages.INDEX:
            return ""
        if name not in known:
            near = get_close_matches(name, known, n=1)
            self.fail(f"{value!r}: there is no such page{f'; did you mean {near[0]!r}?' if near else ''}", param, ctx)
        return name

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(name) for name in pages.names() if name.startswith(incomplete)]


@command("docs")
@click.argument("name", type=Page(), required=False)
@json_option
@click.pass_context
def docs(ctx: click.Context, name: str | None) -> None:
    """Show the page NAME of gkafka's documentation; without NAME, which pages there are.

    On a terminal a pager shows it ($PAGER, or less), elsewhere it is printed as it is: Markdown.

    \b
    kafka-tools docs
    kafka-tools docs options
    """
    if not name:
        _list(as_json=wants_json(ctx))
    elif wants_json(ctx):
        document({"page": name, "text": pages.text(name)})
    elif on_terminal() and sys.stdin is not None and sys.stdin.isatty():
        os.environ.setdefault("LESS", PAGER)
        click.echo_via_pager(pages.text(name))
    else:
        write(pages.text(name).rstrip("\n"))


def _list(*, as_json: bool) -> None:
    found = [{"page": name, "about": pages.summary(name)} for name in pages.names()]
    if as_json:
        document(found)
    else:
        table(found, [Column("page"), Column("about")])
