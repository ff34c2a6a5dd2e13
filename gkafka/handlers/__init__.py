"""Concurrency that knows nothing of Kafka: workers, primitives, streams and clocks, on OS threads or on greenlets.

`import gkafka.handlers` imports neither gevent nor ssl; GEventHandler is loaded when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gkafka.handlers.base import Handler, Stream, Worker
from gkafka.handlers.primitives import Event, Future, Lock, Queue, Semaphore
from gkafka.handlers.requests import RequestHandler, ResponseFuture
from gkafka.handlers.selection import resolve_handler
from gkafka.handlers.threads import ThreadingHandler

if TYPE_CHECKING:
    from gkafka.handlers.greenlets import GEventHandler

__all__ = [
    "Event",
    "Future",
    "GEventHandler",
    "Handler",
    "Lock",
    "Queue",
    "RequestHandler",
    "ResponseFuture",
    "Semaphore",
    "Stream",
    "ThreadingHandler",
    "Worker",
    "resolve_handler",
]

_LAZY = {"GEventHandler": "gkafka.handlers.greenlets"}  # name -> the module it lives in


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
