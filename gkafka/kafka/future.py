"""kafka-python's Future (kafka.future): a value or an exception that comes later."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from gkafka.kafka.errors import KafkaTimeoutError
from gkafka.skins import Handler, resolve_handler

__all__ = ["Future"]

log = logging.getLogger(__name__)


class _WithViews(type):
    """What `send()` returns is a Future, too, though nothing is stored for it until somebody asks."""

    views: tuple[type, ...] = ()

    def __instancecheck__(cls, instance: object) -> bool:
        return super().__instancecheck__(instance) or (cls.__name__ == "Future" and isinstance(instance, _WithViews.views))


class Future(metaclass=_WithViews):
    """A value or an exception that comes later. Callbacks run in the worker that has the outcome, or at once if it is there.

    handler: of the client that it belongs to. Of those who set it at the same time the first counts.
    """

    error_on_callbacks = False  # a callback's error is logged, never raised in the worker that calls it

    def __init__(self, handler: Handler | None = None) -> None:
        self._outcome = (handler or resolve_handler("auto")).Future()

    @property
    def is_done(self) -> bool:
        """Is there an outcome?"""
        return bool(self._outcome.done())

    @property
    def value(self) -> Any:
        """The value, None without one."""
        return self._outcome.result(0) if self.succeeded() else None

    @property
    def exception(self) -> BaseException | None:
        """The exception, None without one."""
        error: BaseException | None = self._outcome.exception(0) if self.is_done else None
        return error

    def succeeded(self) -> bool:
        """Is there a value?"""
        return self.is_done and self.exception is None

    def failed(self) -> bool:
        """Is there an exception?"""
        return self.is_done and self.exception is not None

    def retriable(self) -> bool:
        """Did it fail with what may be tried again?"""
        return bool(getattr(self.exception, "retriable", False))

    def get(self, timeout: float | None = None) -> Any:
        """The value, when it is there. Raises the exception, or KafkaTimeoutError after timeout seconds; None waits as long as it takes."""
        try:
            return self._outcome.result(timeout)
        except TimeoutError as exc:
            if self.is_done:
                raise
            raise KafkaTimeoutError(f"no outcome within {timeout:g} s") from exc

    def success(self, value: Any) -> Future:
        """Set the value."""
        self._outcome.set(value)
        return self

    def failure(self, e: BaseException | type[BaseException]) -> Future:
        """Set the exception."""
        error = e() if isinstance(e, type) else e
        if not isinstance(error, BaseException):
            raise TypeError(f"failure({e!r}): must be an exception")
        self._outcome.set_exception(error)
        return self

    def add_callback(self, f: Callable[..., object], *args: Any, **kwargs: Any) -> Future:
        """Call f(*args, value, **kwargs) when there is a value."""
        return self._add(True, f, args, kwargs)

    def add_errback(self, f: Callable[..., object], *args: Any, **kwargs: Any) -> Future:
        """Call f(*args, exception, **kwargs) when it fails."""
        return self._add(False, f, args, kwargs)

    def add_both(self, f: Callable[..., object], *args: Any, **kwargs: Any) -> Future:
        """Call f(*args, value or exception, **kwargs) in either case."""
        return self.add_callback(f, *args, **kwargs).add_errback(f, *args, **kwargs)

    def chain(self, future: Future) -> Future:
        """Give the outcome to another one, too."""
        return self.add_callback(future.success).add_errback(future.failure)

    def _add(self, good: bool, f: Callable[..., object], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Future:
        fn = partial(f, *args, **kwargs) if args or kwargs else f

        def tell(outcome: Any) -> None:
            error = outcome.exception(0)
            if (error is None) is good:
                call(fn, outcome.result(0) if good else error)

        self._outcome.add_done_callback(tell)
        return self


def call(fn: Callable[[Any], object], outcome: Any) -> None:
    """Run a user's callback; what it raises is logged."""
    try:
        fn(outcome)
    except Exception:
        log.exception("a callback of a future failed")
