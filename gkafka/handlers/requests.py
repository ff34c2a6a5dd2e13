"""Requests that wait in a queue for one worker, and futures for their answers (reference: pykafka.handlers).

gkafka's own connections pipeline (`net/channel.py`); this is the documented way to drive a connection of one's own, one request after the
other. It knows nothing of Kafka: a connection has `request(request)` and `response()`.
"""

from __future__ import annotations

import weakref
from queue import Empty
from typing import Any, NamedTuple

from gkafka.checks import check_seconds
from gkafka.exceptions import ClientClosedError, ConfigurationError
from gkafka.guarding import guarded
from gkafka.handlers.base import Handler, Worker
from gkafka.handlers.primitives import SLICE_S, Event, Queue

__all__ = ["RequestHandler", "ResponseFuture"]

STOP_S = 60.0
"""How long stop() waits for what is queued: each request's own wait is bounded by its connection."""


class ResponseFuture:
    """An answer that comes later. The first of set_response() and set_error() wins."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self._future = handler.Future()

    def set_response(self, response: Any) -> None:
        """Give the answer, and release whoever waits in get()."""
        self._future.set(response)

    def set_error(self, error: BaseException) -> None:
        """Give the error that get() raises, and release whoever waits there."""
        self._future.set_exception(error)

    def get(self, response_cls: Any = None, timeout: float | None = None, **response_kwargs: Any) -> Any:
        """Wait for the answer: response_cls(answer, **response_kwargs), or the answer itself without a class.

        timeout: seconds, None for as long as it takes. Raises the error that was set, KafkaTimeoutError after the timeout.
        """
        response = self._future.result(None if timeout is None else check_seconds("timeout", timeout))
        return response if response_cls is None else response_cls(response, **response_kwargs)


class RequestHandler:
    """Sends what is queued on a connection, by one worker. start() it; requests that were queued before wait for that.

    The worker ends after stop(), and within two seconds once nobody refers to the RequestHandler any more and its queue is empty.
    """

    class Shared(NamedTuple):
        """What the worker has of its RequestHandler. ending: set once nothing more is taken from the queue."""

        connection: Any
        requests: Queue
        ending: Event

    class Task(NamedTuple):
        """One request. future: a ResponseFuture, None if no answer is awaited."""

        request: Any
        future: ResponseFuture | None

    def __init__(self, handler: Handler, connection: Any) -> None:
        if not isinstance(handler, Handler):
            raise ConfigurationError(f"handler={handler!r}: must be a Handler, as ThreadingHandler()")
        self.handler = handler
        self.shared = self.Shared(connection, handler.Queue(), handler.Event())
        self._worker: Worker | None = None
        self._stopped = False

    def request(self, request: Any, has_response: bool = True) -> ResponseFuture | None:
        """Queue a request; its future, None with has_response=False, where nothing is awaited. Raises ClientClosedError after stop()."""
        self.handler.check_fork()
        if self._stopped:
            raise ClientClosedError("the request handler was stopped: make another one")
        future = ResponseFuture(self.handler) if has_response else None
        self.shared.requests.put(self.Task(request, future))
        if self._stopped and not self._is_working():  # stop() came between, and has emptied the queue
            _refuse_all(self.shared)
        return future

    def start(self) -> None:
        """Begin to send what is queued. A second call does nothing."""
        if self._worker is None and not self._stopped:
            self._worker = self._start_thread()

    def stop(self) -> None:
        """Send what is queued, for a minute at most, and end; futures of what could not be sent get an error. Idempotent."""
        if self._stopped:
            return
        self._stopped = True
        self.shared.requests.put(None)
        if self._worker is not None:
            self._worker.join(STOP_S)
        self.shared.ending.set()
        if not self._is_working():
            _refuse_all(self.shared)

    def _is_working(self) -> bool:
        return self._worker is not None and self._worker.is_alive()

    def _start_thread(self) -> Worker:
        return self.handler.spawn(_work, self.handler, self.shared, weakref.ref(self), _name="gkafka-requests")


def _work(handler: Handler, shared: RequestHandler.Shared, owner: weakref.ref[RequestHandler]) -> None:
    try:
        while not shared.ending.is_set():
            handler.check_fork()
            try:
                task = shared.requests.get(timeout=SLICE_S)
            except Empty:
                if owner() is None:
                    return
                continue
            if task is None:  # stop(): everything before it was sent
                return
            _send(shared, task)
    finally:
        shared.ending.set()
        _refuse_all(shared)


def _send(shared: RequestHandler.Shared, task: RequestHandler.Task) -> None:
    def send() -> None:
        shared.connection.request(task.request)
        if task.future is not None:
            task.future.set_response(shared.connection.response())

    def failed(error: BaseException) -> bool:
        own = error if isinstance(error, Exception) else ClientClosedError("the worker that sent the request was stopped")
        if task.future is not None:
            task.future.set_error(own)
        return own is not error

    try:
        guarded(send, failed=failed)
    finally:
        shared.requests.task_done()


def _refuse_all(shared: RequestHandler.Shared) -> None:
    """Tell whoever waits for what will not be sent any more."""
    while True:
        try:
            task = shared.requests.get_nowait()
        except Empty:
            return
        if task is not None and task.future is not None:
            task.future.set_error(ClientClosedError("the request handler was stopped before this request was sent"))
        shared.requests.task_done()
