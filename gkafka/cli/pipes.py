"""Standard streams at their edges: all is written or it is an error, what waits can be ended, and a reader that has left is noticed."""

from __future__ import annotations

import contextlib
import io
import os
import select
import signal
import stat
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from gkafka.cli.failures import ToolError

if TYPE_CHECKING:
    from gkafka.cli.progress import Progress

__all__ = ["FullWriter", "Output", "check_reader", "full_streams", "read_some", "stoppable"]

AT_ONCE = 1 << 16
"""Bytes of one write() to a file."""
SLICE_MS = 250
"""Longest wait for a descriptor without a look at signals."""


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


# -- all of it, or an error ------------------------------------------------------------------------------------------------
class FullWriter(io.RawIOBase):
    """A file whose write() returns when all bytes are taken, and raises where they cannot be.

    The write() of a raw file, which is what `python -u` has for standard output, may take fewer bytes
    than it is given, and none of a descriptor that does not block.

    raw: the file, with a descriptor if its write() may answer None. name: of the file in errors, None where
    nobody can be told. progress: makes way for what is written to a terminal. taken: bytes that were taken so far; also right behind an error.
    """

    def __init__(self, raw: Any, name: str | None, progress: Progress | None = None) -> None:
        super().__init__()
        self._raw, self._name = raw, name
        self._progress = progress if raw.isatty() else None
        self._is_pipe = is_pipe(raw)
        self.taken = 0

    def write(self, data: Any) -> int:
        """Write all of it. Raises BrokenPipeError, and ToolError (without a name: OSError) where it cannot be written."""
        left = memoryview(data).cast("B")
        size = len(left)
        with self._way(left):
            while left:
                count = self._write_some(left[: select.PIPE_BUF if self._is_pipe else AT_ONCE])
                self.taken += count
                left = left[count:]
        return size

    def _way(self, data: memoryview) -> AbstractContextManager[None]:
        return nullcontext() if self._progress is None else self._progress.making_way(data)

    def _write_some(self, data: memoryview) -> int:
        """Bytes that were taken. A pipe that is ready takes PIPE_BUF at once, so that an interrupt meets the wait, and never a write() that has begun."""
        try:
            while self._is_pipe and not _wait_for(self._raw.fileno(), select.POLLOUT):
                pass
            while (count := self._raw.write(data)) is None:
                _wait_for(self._raw.fileno(), select.POLLOUT)
        except BrokenPipeError:
            raise
        except OSError as exc:
            if self._name is None:
                raise
            raise ToolError(f"{self._name}: {exc.strerror or exc}", hint="write it elsewhere, or make room") from exc
        return int(count)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return int(self._raw.fileno())

    def isatty(self) -> bool:
        return bool(self._raw.isatty())


def is_pipe(raw: Any) -> bool:
    """Has it a descriptor, and is that one of a pipe?"""
    try:
        return stat.S_ISFIFO(os.fstat(raw.fileno()).st_mode)
    except (OSError, AttributeError):
        return False


@contextlib.contextmanager
def full_streams(progress: Progress | None = None) -> Iterator[None]:
    """Within the block standard output and standard error are written by a FullWriter, whoever prints there. progress: as a FullWriter has it."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _full(sys.stdout, "standard output", progress), _full(sys.stderr, None, progress)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def _full(stream: Any, name: str | None, progress: Progress | None) -> Any:
    """The same text stream on a FullWriter; one that is closed, or has no bytes below it, as it is."""
    buffer = getattr(stream, "buffer", None)
    if buffer is None:
        return stream
    stream.flush()
    return io.TextIOWrapper(
        FullWriter(getattr(buffer, "raw", buffer), name, progress),
        encoding=getattr(stream, "encoding", None),
        errors="backslashreplace",  # a terminal that has no letter for a name shows it as an escape
        line_buffering=getattr(stream, "line_buffering", False),
        write_through=getattr(stream, "write_through", False),
    )


class Output:
    """Standard output for bytes, within full_streams(). `terminal`: whether a person looks at it."""

    def __init__(self) -> None:
        if sys.stdout is None:  # what Python makes of a closed descriptor
            raise ToolError("standard output is closed", hint="give it somewhere to go: a file, a pipe, /dev/null")
        sys.stdout.flush()
        self._out: Any = sys.stdout.buffer  # a FullWriter
        self.terminal = sys.stdout.isatty()

    @property
    def taken(self) -> int:
        """Bytes that were taken so far; also right behind an error."""
        return int(self._out.taken)

    def write(self, data: bytes) -> None:
        """Write all of it, and out to the reader. Raises BrokenPipeError, ToolError where it cannot be written (a full disk)."""
        self._out.write(data)


# -- reading ---------------------------------------------------------------------------------------------------------------
def read_some(stream: Any, size: int) -> bytes:
    """Some bytes of a binary stream, as soon as there are any. b"" is its end, never an empty pipe that does not block."""
    raw = getattr(stream, "raw", None)  # a buffered reader takes that pipe for ended
    read = getattr(stream, "read1", stream.read) if raw is None else raw.read
    while (data := read(size)) is None:
        _wait_for(stream.fileno(), select.POLLIN)
    return bytes(data)


def _wait_for(fd: int, event: int) -> bool:
    """Wait for a moment until a descriptor is ready, or can say why it never will be. Is it?"""
    looked = select.poll()
    looked.register(fd, event)
    return bool(looked.poll(SLICE_MS))
