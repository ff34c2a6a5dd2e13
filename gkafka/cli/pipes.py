"""How a command that goes on for long is ended from outside: its reader leaves, or somebody asks it to stop."""

from __future__ import annotations

import contextlib
import io
import select
import signal
import sys
from collections.abc import Iterator
from typing import Any

from gkafka.cli.failures import ToolError

__all__ = ["Output", "check_reader", "stoppable"]


def check_reader() -> None:
    """Raises BrokenPipeError if standard output is a pipe that nobody will read from any more: one that writes nothing would not notice."""
    try:
        fd = sys.stdout.fileno()
    except (OSError, ValueError, AttributeError, io.UnsupportedOperation):
        return
    looked = select.poll()
    looked.register(fd, 0)
    if any(event & select.POLLERR for _, event in looked.poll(0)):
        raise BrokenPipeError("nobody reads the output any more")


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Within the block SIGTERM is what Ctrl-C is: KeyboardInterrupt, so that groups are left and what was begun is finished."""

    def stop(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, stop)
    except ValueError:  # not the main thread: whoever runs us there has signals of its own
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class Output:
    """Standard output for bytes. `terminal`: whether a person looks at it."""

    def __init__(self) -> None:
        if sys.stdout is None:  # what Python makes of a closed descriptor
            raise ToolError("standard output is closed", hint="give it somewhere to go: a file, a pipe, /dev/null")
        sys.stdout.flush()
        self._out = sys.stdout.buffer
        self.terminal = sys.stdout.isatty()

    def write(self, data: bytes) -> None:
        """Write all of it, and out to the reader. Raises BrokenPipeError, ToolError where it cannot be written (a full disk)."""
        try:
            self._out.write(data)
            self._out.flush()
        except BrokenPipeError:
            raise
        except OSError as exc:
            raise ToolError(f"standard output: {exc.strerror or exc}", hint="write it elsewhere, or make room") from exc
