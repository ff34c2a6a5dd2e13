"""What somebody meant by an option that there is not: one that is misspelt, stands before its command, or is what Kafka's scripts call it."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

import click

__all__ = ["command_in", "meant"]

NEAR = 0.72
SHORTEST = 6
"""Of an option that what was given begins with."""
ALSO_CALLED = {
    "count": ("--max-messages",),
    "limit": ("--max-messages",),
    "num-records": ("--max-messages", "--records"),
    "offset": ("--from", "--to-offset"),
    "since": ("--from", "--to-time"),
    "start": ("--from",),
    "beginning": ("--from", "--to-earliest"),
    "earliest": ("--from", "--to-earliest"),
    "latest": ("--from", "--to-latest"),
    "execute": ("--yes",),
    "force": ("--yes",),
    "replication-factor": ("--replicas",),
    "property": ("--set",),
    "host": ("--bootstrap-server",),
    "hosts": ("--bootstrap-server",),
    "brokers": ("--bootstrap-server",),
    "broker-list": ("--bootstrap-server",),
    "compression-codec": ("--compression",),
    "consumer-group": ("--group",),
    "tail": ("--follow", "--last"),
}
"""What other tools call an option, without its dashes -> what it may be here."""


def command_in(words: Sequence[str], ctx: click.Context, command: click.Command) -> tuple[str, click.Command]:
    """The innermost command that words name, and how it is called. What an option is given is no command."""
    path, is_value = ctx.command_path, False
    for word in words:
        inner = command.get_command(ctx, word) if isinstance(command, click.Group) and not is_value else None
        is_value = not is_value and _takes_value(word, command)
        if inner is not None:
            path, command = f"{path} {word}", inner
    return path, command


def _takes_value(spelling: str, command: click.Command) -> bool:
    return any(isinstance(p, click.Option) and spelling in p.opts and not p.is_flag and not p.count for p in command.params)


def _readings(name: str, words: Sequence[str], ctx: click.Context) -> list[tuple[str, click.Command, bool]]:
    """The commands that an option before its command may be meant for, and whether it was given a value then: of `--from consume lag`
    that is consume, or else lag, with a value that is called like a command."""
    path, inner = command_in(words, ctx, ctx.command)
    behind = words[words.index(name) + 1 :] if name in words else ()
    if inner is ctx.command or not behind or command_in(behind[:1], ctx, ctx.command)[1] is ctx.command:
        return [(path, inner, True)]
    other, its = command_in(behind[1:], ctx, ctx.command)
    return [(path, inner, False)] if its is ctx.command else [(path, inner, False), (other, its, True)]


def meant(error: click.NoSuchOption, words: Sequence[str]) -> tuple[str, str]:
    """What to say of it, and the next step. words: the whole command line."""
    ctx = error.ctx
    assert ctx is not None  # click's parser has one
    name, place = error.option_name, ctx.command_path
    word = name.lstrip("-")
    if isinstance(ctx.command, click.Group) and ctx.command.get_command(ctx, word) is not None:
        return f"{error.message} It is a command: {place} {word}", f"{place} {word} --help"
    found = _near(name, ctx.command, ctx)
    if found:
        return f"{error.message} {_asked(found)}", f"{place} --help"
    readings = _readings(name, words, ctx)
    if len(readings) > 1:
        readings = [(p, c, valued) for p, c, valued in readings if name in _spellings(c, ctx) and _takes_value(name, c) == valued]
    path, inner, _ = readings[0] if readings else (place, ctx.command, False)
    found = [name] if name in _spellings(inner, ctx) else _near(name, inner, ctx)
    if found and inner is not ctx.command:
        return f"{error.message} {path} has {_listed(found)}", f"give it behind the command: {path} {_with_value(found[0], inner)}"
    for argument in (p for p in ctx.command.params if isinstance(p, click.Argument)):
        metavar = argument.make_metavar(ctx)
        if word in (argument.name, metavar.strip("[].").lower(), "name"):
            return f"{error.message} The {word} stands without one: {place} {metavar}", f"{place} --help"
    return error.message, f"{place} --help"


def _spellings(command: click.Command, ctx: click.Context) -> list[str]:
    shown = [p for p in command.get_params(ctx) if isinstance(p, click.Option) and not p.hidden]
    return [s for p in shown for s in (*p.opts, *p.secondary_opts) if s.startswith("--")]


def _near(name: str, command: click.Command, ctx: click.Context) -> list[str]:
    """The command's options that are called much the same, the nearest first."""
    known = _spellings(command, ctx)
    begun = [s for s in known if s.startswith(name) or (name.startswith(s) and len(s) >= SHORTEST)]
    also = [s for s in ALSO_CALLED.get(name.removeprefix("--"), ()) if s in known]
    return also or list(dict.fromkeys([*begun, *get_close_matches(name, known, 3, NEAR)]))


def _asked(found: list[str]) -> str:
    return f"Did you mean {found[0]!r}?" if len(found) == 1 else f"(Did you mean one of: {_listed(found)}?)"


def _listed(found: list[str]) -> str:
    return ", ".join(map(repr, found))


def _with_value(spelling: str, command: click.Command) -> str:
    """As it stands on a command line."""
    for parameter in command.params:
        if isinstance(parameter, click.Option) and spelling in parameter.opts and not parameter.is_flag:
            return f"{spelling} {parameter.metavar or 'VALUE'}"
    return spelling
