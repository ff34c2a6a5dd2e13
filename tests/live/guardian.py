"""Ends what a killed test run leaves behind. Run as a program, it reads its standard input until the other side is gone.

Lines: `process <pid> <mark>`, `ended <pid>`, `folder <path>`, `removed <path>`. At the end of the input, which also comes when the
run was killed with SIGKILL, every process still listed is killed (if its command line still holds its mark: process ids are used
again) and every folder still listed is removed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading

__all__ = ["Guardian"]


class Guardian:
    """The run's end of the pipe; the program starts with the first thing to guard."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._program: subprocess.Popen[str] | None = None

    def process(self, pid: int, mark: str) -> None:
        self._say(f"process {pid} {mark}")

    def ended(self, pid: int) -> None:
        self._say(f"ended {pid}")

    def folder(self, path: str) -> None:
        self._say(f"folder {path}")

    def removed(self, path: str) -> None:
        self._say(f"removed {path}")

    def close(self) -> None:
        """Lets the program finish; it finds nothing to do if everything was taken back."""
        with self._lock:
            program, self._program = self._program, None
        if program is not None:
            assert program.stdin is not None
            program.stdin.close()
            program.wait(60)

    def _say(self, line: str) -> None:
        with self._lock:
            if self._program is None:
                # A session of its own: Ctrl-C in the terminal must not end the one that cleans up after it.
                self._program = subprocess.Popen(
                    [sys.executable, "-I", "-S", __file__], stdin=subprocess.PIPE, text=True, start_new_session=True
                )
            assert self._program.stdin is not None
            self._program.stdin.write(line + "\n")
            self._program.stdin.flush()


def _command_line(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode(errors="replace")
    except FileNotFoundError:
        if os.path.isdir("/proc/self"):
            return ""
    return subprocess.run(["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout


def _main() -> None:
    processes: dict[int, str] = {}
    folders: set[str] = set()
    for line in sys.stdin:
        what, _, about = line.rstrip("\n").partition(" ")
        if what == "process":
            pid, _, mark = about.partition(" ")
            processes[int(pid)] = mark
        elif what == "ended":
            processes.pop(int(about), None)
        elif what == "folder":
            folders.add(about)
        elif what == "removed":
            folders.discard(about)
    for pid, mark in processes.items():
        if mark in _command_line(pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _main()
