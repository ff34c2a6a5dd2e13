"""How far a command is: a line at the foot of the terminal while it works, nothing in a pipe; and the sentence behind Ctrl-C.

A timer's signal draws the line, so a call that waits for a silent broker shows itself, too, and there is neither a thread nor a lock. Whatever the command
writes takes the line away first: `pipes.full_streams()` asks for that.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any

import click

from gkafka.cli.output import clean, counted

__all__ = ["NOTHING_CHANGED", "Progress", "progress", "so_far"]

SOON_S = 1.0
"""A command that is done by then shows nothing, and what it has written itself is left alone for as long."""
EACH_S = 0.5
COLUMNS = 80
"""Of a terminal that does not say how wide it is."""
TAKE_AWAY = b"\r\x1b[K"
NOTHING_CHANGED = "nothing was changed"
WAITING = "waiting for the brokers"


class Progress:
    """What a command is doing, for the one who waits for it.

    counted: () -> what is done so far, as "12 of 100 records". rest: what Ctrl-C leaves undone, a part of a sentence.
    """

    def __init__(self) -> None:
        self.counted: Callable[[], str] | None = None
        self.rest = NOTHING_CHANGED
        self._command = ""
        self._doing: list[str] = []
        self._terminal: int | None = None
        self._hidden = False
        self._shown = self._line_is_open = self._writing = False
        self._began = self._wrote = monotonic()

    # -- what is told ------------------------------------------------------------------------------------------------------
    @contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """Within the block the command does this: "list groups"."""
        self._doing.append(what)
        try:
            yield
        finally:
            self._doing.pop()

    def line(self) -> str:
        """What stands at the foot of the terminal."""
        what = self.counted() if self.counted is not None else self._doing[-1] if self._doing else WAITING
        return clean(f"{self._command}: {what}, {monotonic() - self._began:.0f} s")

    def interrupted(self) -> str:
        """What was done and what was not, for one who ends the command."""
        done = f"{self.counted()}; " if self.counted is not None else ""
        return f"kafka-tools: interrupted; {done}{self.rest}"

    # -- the terminal ------------------------------------------------------------------------------------------------------
    @contextmanager
    def shown(self, command: str) -> Iterator[None]:
        """Within the block the line is drawn, if standard error is a terminal."""
        terminal = None if self._hidden or self._terminal is not None else _terminal()
        if terminal is None:  # nobody looks, nobody is to see it, or an outer block draws already
            yield
            return
        self._command, self._began = command, monotonic()
        try:
            before = signal.signal(signal.SIGALRM, self._draw)
        except ValueError:  # not the main thread: whoever runs us there has timers of its own
            yield
            return
        self._terminal = terminal
        signal.setitimer(signal.ITIMER_REAL, SOON_S, EACH_S)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            self._take_away()
            self._terminal = None

    def hide(self) -> None:
        """The command shows itself, or a person types at the terminal: no line from here on."""
        self._take_away()
        self._terminal, self._hidden = None, True

    @contextmanager
    def making_way(self, data: Any) -> Iterator[None]:
        """Around whatever is written to a terminal."""
        self._writing = True  # first: the signal may come in between
        self._take_away()
        try:
            yield
        finally:
            self._writing = False
            self._line_is_open = bytes(memoryview(data)[-1:]) != b"\n"  # a question, say, behind which somebody types
            self._wrote = monotonic()

    def _draw(self, *_: Any) -> None:
        if self._terminal is None or self._writing or self._line_is_open or monotonic() < self._wrote + SOON_S:
            return
        with suppress(OSError):
            columns = os.get_terminal_size(self._terminal).columns or COLUMNS
            text = self.line()[: columns - 1]
            self._shown = True
            os.write(self._terminal, TAKE_AWAY + text.encode(errors="replace"))

    def _take_away(self) -> None:
        if self._shown and self._terminal is not None:
            self._shown = False
            with suppress(OSError):
                os.write(self._terminal, TAKE_AWAY)


def _terminal() -> int | None:
    """The descriptor of standard error if it is a terminal on which a line can be drawn anew."""
    if os.environ.get("TERM") == "dumb" or sys.stderr is None or not sys.stderr.isatty():
        return None
    with suppress(OSError, ValueError):
        return sys.stderr.fileno()
    return None


def so_far(done: int, most: int | None) -> str:
    """ "12 records of at most 100"; most: None where nobody knows."""
    return counted(done, "record") + ("" if most is None else f" of at most {most}")


def progress() -> Progress:
    """That of the command that runs."""
    ctx = click.get_current_context(silent=True)
    if ctx is None:  # something of a command is used by itself
        return Progress()
    found: Progress = ctx.ensure_object(dict).setdefault("progress", Progress())
    return found
