"""The way to the terminal: tables for people, JSON for programs, and nothing in either that a terminal would obey.

What comes from a cluster (names, metadata, records) was written by others: `clean()` shows their control characters, it never lets them act.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

import click

from gkafka.escaping import escaped

__all__ = [
    "Column",
    "clean",
    "coloured",
    "counted",
    "document",
    "json_line",
    "json_option",
    "note",
    "nobody_reads",
    "on_terminal",
    "quoted",
    "styled",
    "table",
    "wants_json",
    "write",
]

F = TypeVar("F", bound=Callable[..., Any])
GAP = "  "
NOTHING = "-"


class Column(NamedTuple):
    """A column: its key in the rows, its title (the key in capitals if ""), the colour of a value (or None), and whether numbers stand to the right."""

    key: str
    title: str = ""
    colour: Callable[[Any], str | None] | None = None


# -- text that is safe ---------------------------------------------------------------------------------------------------------
def clean(text: object, *, keep: str = "") -> str:
    """Return a text whose control characters, escape sequences, and marks that reorder or hide letters, are shown as escapes (\\x1b).

    keep: characters that may stay, such as "\\n".
    """
    shown = str(text)
    if not keep:
        return escaped(shown, len(shown))
    return "".join(c if c in keep else escaped(c) for c in shown)


def quoted(text: str) -> str:
    """The same between quotes. repr() would escape a second time: what clean() has made of it, and each backslash."""
    return f"'{clean(text)}'"


def on_terminal() -> bool:
    """Is standard output a terminal that can do more than print lines?"""
    return os.environ.get("TERM") != "dumb" and sys.stdout is not None and sys.stdout.isatty()


def coloured() -> bool:
    """May standard output have colours? Only a terminal; never with NO_COLOR (https://no-color.org)."""
    return not os.environ.get("NO_COLOR") and on_terminal()


def styled(text: str, colour: str | None, **style: Any) -> str:
    """A text in a colour of click.style(), where colours may be."""
    return click.style(text, fg=colour, **style) if (colour or style) and coloured() else text


def write(text: str, *, goes_on: bool = False) -> None:
    """A line on standard output, as it is: clean() what came from elsewhere. Raises OSError where there is none.

    A reader that has left, as head does, has had enough: the command goes on to its end, whose exit code says whether something failed.
    goes_on: of a command that has no end; its line is out at once, and a reader that has left is a BrokenPipeError.
    """
    if sys.stdout is None:  # what Python makes of a descriptor that is closed
        raise OSError(errno.EBADF, "standard output is closed")
    try:
        sys.stdout.write(text + "\n")
        if goes_on:
            sys.stdout.flush()
    except BrokenPipeError:
        if goes_on:
            raise
        nobody_reads()


def nobody_reads() -> None:
    """Have standard output go nowhere: what Python holds for a reader that has left it would write again, and complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def note(text: str, *, keep: str = "") -> None:
    """A line for the person, on standard error, so that pipes do not see it. keep: as clean() has it."""
    with suppress(OSError):  # nobody is left who could be told that it cannot be told
        if sys.stderr is not None:  # what Python makes of a descriptor that is closed
            sys.stderr.write(clean(text, keep=keep) + "\n")


def counted(number: int, what: str) -> str:
    """ "1 record", "2 records"."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


# -- tables --------------------------------------------------------------------------------------------------------------------
def table(rows: Iterable[Mapping[str, Any]], columns: Sequence[Column | str]) -> None:
    """Print rows, aligned. columns: keys of the rows, in order; numbers stand to the right, None is "-", lists are joined by commas."""
    for line in lines_of(rows, columns):
        write(line)


def lines_of(rows: Iterable[Mapping[str, Any]], columns: Sequence[Column | str]) -> list[str]:
    """The lines of a table, its titles first."""
    wanted = [Column(c) if isinstance(c, str) else c for c in columns]
    values = [[row.get(c.key) for c in wanted] for row in rows]
    texts = [[cell(value) for value in row] for row in values]
    titles = [c.title or c.key.replace("_", " ").upper() for c in wanted]
    right = [
        any(_is_number(row[i]) for row in values) and all(_is_number(row[i]) or row[i] is None for row in values)
        for i in range(len(wanted))
    ]
    widths = [max(width(text) for text in (titles[i], *(row[i] for row in texts))) for i in range(len(wanted))]
    lines = [styled(_joined(titles, widths, right, [None] * len(wanted)), None, **({"bold": True} if coloured() else {}))]
    for row, shown in zip(values, texts, strict=True):
        colours = [c.colour(value) if c.colour is not None else None for c, value in zip(wanted, row, strict=True)]
        lines.append(_joined(shown, widths, right, colours))
    return lines


def cell(value: Any) -> str:
    """How a table shows a value."""
    if value is None or value == "":
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple, set, frozenset)):
        return ",".join(clean(part) for part in value) or NOTHING
    return clean(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _joined(texts: Sequence[str], widths: Sequence[int], right: Sequence[bool], colours: Sequence[str | None]) -> str:
    parts = []
    for text, size, to_right, colour in zip(texts, widths, right, colours, strict=True):
        space = " " * (size - width(text))
        parts.append(space + styled(text, colour) if to_right else styled(text, colour) + space)
    return GAP.join(parts).rstrip()


def width(text: str) -> int:
    """How many columns of a terminal a clean text takes: letters of East Asia take two, marks above others none."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


# -- JSON ----------------------------------------------------------------------------------------------------------------------
def json_option(command: F) -> F:
    """The option --json of a command; `wants_json(ctx)` says whether it was given."""

    def keep(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        if value:
            ctx.ensure_object(dict)["json"] = True

    return click.option("--json", is_flag=True, expose_value=False, callback=keep, help="Print JSON, for programs.")(command)


def wants_json(ctx: click.Context) -> bool:
    """Was --json given?"""
    return bool(ctx.ensure_object(dict).get("json"))


def document(value: Any) -> None:
    """Print one JSON document, indented."""
    from json import dumps

    write(dumps(value, indent=2, default=_plain))


def json_line(value: Any) -> None:
    """Print one line of JSON Lines, at once: what a command writes that goes on. Raises BrokenPipeError."""
    from json import dumps

    write(dumps(value, separators=(",", ":"), default=_plain), goes_on=True)


def _plain(value: Any) -> Any:
    """Sets become sorted lists, and whatever has no JSON of its own its text."""
    return sorted(value) if isinstance(value, (set, frozenset)) else str(value)
