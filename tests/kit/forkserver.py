"""Inside an interpreter that forks for each program (tests/kit/forks.py).

Of C's sockets and posix alone: where gevent has patched the others they would make a hub, which no fork may inherit.
"""

from __future__ import annotations

import _socket
import gc
import json
import posix
import sys
from typing import Any

__all__ = ["next_program"]


def next_program(fd: int) -> tuple[str, str]:
    """Return a program and its file's name in a process of its own, for each one that is asked for. fd: of the socket that says so."""
    gc.freeze()
    asking = _socket.socket(fileno=fd)
    while True:
        asked, passed, _, _ = asking.recvmsg(1 << 20, 1024)
        if not asked:
            posix._exit(0)
        hubs: Any = sys.modules.get("gevent._hub_local")
        assert hubs is None or hubs.get_hub_if_exists() is None
        files = memoryview(passed[0][2]).cast("i")
        if posix.fork() == 0:
            asking.close()
            return _kept(*files, *json.loads(asked))
        for each in files:
            posix.close(each)
        _forget_the_ended()


def _kept(fd: int, out: int, err: int, source: str, name: str, arguments: list[str]) -> tuple[str, str]:
    """In the program's process: itself. This one stays beside it, to tell of its end, as the first of a group, by which both can be ended."""
    line = _socket.socket(fileno=fd)
    posix.setsid()
    line.send(b"%d" % posix.getpid())
    program = posix.fork()
    if program:
        line.send(b"%d" % posix.waitstatus_to_exitcode(posix.waitpid(program, 0)[1]))
        posix._exit(0)
    line.close()
    for number, file in ((1, out), (2, err)):
        posix.dup2(file, number)
        posix.close(file)
    if name != "<string>":
        vars(sys.modules["__main__"])["__file__"], sys.argv[:] = name, [name, *arguments]
    return source, name


def _forget_the_ended() -> None:
    try:
        while posix.waitpid(-1, posix.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
