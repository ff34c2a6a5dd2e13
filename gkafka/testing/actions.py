"""What a scripted broker does instead of simply answering: the actions that `MockCluster.on` takes.

"Before" and "after" are seen from the broker's own work: a broker that closes after acting has stored the batch, and the client does
not know it: the lost acknowledgement.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import TYPE_CHECKING

from gkafka.wire.apis import Message, Request

if TYPE_CHECKING:
    from gkafka.testing.server import Call

__all__ = ["Action", "Close", "Corrupt", "Delay", "Drop", "Edit", "Error", "Reply"]


class Action(abc.ABC):
    """One way to treat a request. Subclass it for your own: `run` is called in the cluster's thread and must not wait."""

    @abc.abstractmethod
    def run(self, call: Call) -> None:
        """Treat one request, by the methods of `call`: act, send, send_bytes, refuse, after, silence, close."""


class Error(Action):
    """Answer this error code, for every topic and partition that the request names, and do nothing else."""

    def __init__(self, code: int) -> None:
        self.code = code

    def run(self, call: Call) -> None:
        call.refuse(self.code)


class Delay(Action):
    """Act as usual, `seconds` late. before=False: act at once and answer late."""

    def __init__(self, seconds: float, *, before: bool = True) -> None:
        self.seconds = seconds
        self.before = before

    def run(self, call: Call) -> None:
        if self.before:
            call.after(self.seconds, lambda: call.act(call.send))
        else:
            call.act(lambda answer: call.after(self.seconds, lambda: call.send(answer)))


class Drop(Action):
    """Never answer. The connection stays open and silent from here on, as one to a frozen broker. before=True: not acted upon either."""

    def __init__(self, *, before: bool = False) -> None:
        self.before = before

    def run(self, call: Call) -> None:
        call.silence()
        if not self.before:
            call.act(lambda answer: None)


class Close(Action):
    """Close the connection. before=True: instead of acting; False: after acting, instead of answering. reset=True: with a TCP RST."""

    def __init__(self, *, before: bool = False, reset: bool = False) -> None:
        self.before = before
        self.reset = reset

    def run(self, call: Call) -> None:
        if self.before:
            call.close(reset=self.reset)
        else:
            call.act(lambda answer: call.close(reset=self.reset))


class Corrupt(Action):
    """Act, then send fn(frame) instead of the frame (its int32 size included)."""

    def __init__(self, fn: Callable[[bytes], bytes]) -> None:
        self.fn = fn

    def run(self, call: Call) -> None:
        call.act(lambda answer: call.send_bytes(self.fn(call.encode(answer))))


class Reply(Action):
    """Answer fn(request) and do nothing else."""

    def __init__(self, fn: Callable[[Request], Message]) -> None:
        self.fn = fn

    def run(self, call: Call) -> None:
        call.send(self.fn(call.request))


class Edit(Action):
    """Act, then answer fn(request, answer): the same object changed, or another."""

    def __init__(self, fn: Callable[[Request, Message], Message]) -> None:
        self.fn = fn

    def run(self, call: Call) -> None:
        call.act(lambda answer: call.send(None if answer is None else self.fn(call.request, answer)))
