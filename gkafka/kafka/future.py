"""kafka-python's Future (kafka.future): a value or an exception that comes later."""

from __future__ import annotations

import abc
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from gkafka.checks import check_time_left
from gkafka.kafka.errors import KafkaTimeoutError, WrongTypeError
from gkafka.logs import get_logger
from gkafka.oneprocess import refuse_to_pickle
from gkafka.records._results import not_for_asyncio, not_for_executors
from gkafka.skins import Handler, resolve_handler

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Future", "Outcomes"]

log = get_logger(__name__)


def _log_failure(error: BaseException) -> None:
    log.error("a callback of a future failed", exc_info=error)  # whatever it was: those behind it are called, too


class Outcomes:
    """What can be asked of an outcome. `is_done`, `_error`, `_value` and how callbacks are added are those of the kind of future."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def is_done(self) -> bool: ...
        def _error(self) -> BaseException | None: ...
        def _value(self) -> Any: ...
        def add_callback(self, f: Callable[..., object], *args: Any, **kwargs: Any) -> Self: ...
        def add_errback(self, f: Callable[..., object], *args: Any, **kwargs: Any) -> Self: ...

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Raise a TypeError: the outcome comes to the process that asked for it."""
        refuse_to_pickle(self, "get()")

    def __await__(self) -> NoReturn:
        """Raise a TypeError that says what to do: a worker of the client's has the outcome, not an event loop."""
        raise not_for_asyncio("future.get")

    @property
    def _asyncio_future_blocking(self) -> NoReturn:
        """What asyncio looks at in whatever it is to wait for: wrap_future(), gather() and their like raise the same."""
        raise not_for_asyncio("future.get")

    @property
    def _condition(self) -> NoReturn:
        """What concurrent.futures takes of whatever it is to wait for."""
        raise not_for_executors("future.get")

    @property
    def value(self) -> Any:
        """The value, None without one."""
        return self._value() if self.succeeded() else None

    @property
    def exception(self) -> BaseException | None:
        """The exception, None without one."""
        return self._error() if self.is_done else None

    def succeeded(self) -> bool:
        """Is there a value?"""
        return self.is_done and self._error() is None

    def failed(self) -> bool:
        """Is there an exception?"""
        return self.is_done and self._error() is not None

    def retriable(self) -> bool:
        """Did it fail with what may be tried again?"""
        return bool(getattr(self.exception, "retriable", False))

    def add_both(self, f: Callable[..., object], *args: Any, **kwargs: Any) -> Self:
        """Call f(*args, value or exception, **kwargs) in either case."""
        return self.add_callback(f, *args, **kwargs).add_errback(f, *args, **kwargs)

    def chain(self, future: Future) -> Self:
        """Give the outcome to another future, too."""
        if not isinstance(future, Future):
            raise WrongTypeError(f"future={future!r}: must be a Future")
        return self.add_callback(future.success).add_errback(future.failure)


class Future(Outcomes, metaclass=abc.ABCMeta):
    """A value or an exception that comes later. Callbacks run in the worker that has the outcome, or at once if it is there.

    handler: of the client that it belongs to. Of those who set it at the same time the first counts. What `send()` returns counts as one, too.
    """

    error_on_callbacks = False  # a callback's error is logged, never raised in the worker that calls it

    def __init__(self, handler: Handler | None = None) -> None:
        self._handler = handler or resolve_handler("auto")
        self._outcome = self._handler.Future()

    @property
    def is_done(self) -> bool:
        """Is there an outcome?"""
        return bool(self._outcome.done())

    def _error(self) -> BaseException | None:
        error: BaseException | None = self._outcome.exception(0)
        return error

    def _value(self) -> Any:
        return self._outcome.result(0)

    def add_callback(self, f: Callable[..., object], *args: Any, **kwargs: Any) -> Self:
        """Call f(*args, value, **kwargs) when there is a value."""
        return self._add(True, f, args, kwargs)

    def add_errback(self, f: Callable[..., object], *args: Any, **kwargs: Any) -> Self:
        """Call f(*args, exception, **kwargs) when it fails."""
        return self._add(False, f, args, kwargs)

    def _add(self, good: bool, f: Callable[..., object], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Self:
        if not callable(f):
            raise WrongTypeError(f"f={f!r}: must be callable with {'the value' if good else 'the exception'}")
        fn = partial(f, *args, **kwargs) if args or kwargs else f

        def tell(_: Any) -> None:
            error = self._error()
            if (error is None) is not good:
                return
            self._handler.call_back(fn, self._value() if good else error, failed=_log_failure)

        self._outcome.add_done_callback(tell)
        return self

    def get(self, timeout: float | None = None) -> Any:
        """The value, when it is there. Raises the exception, or KafkaTimeoutError after timeout seconds; None waits as long as it takes."""
        try:
            return self._outcome.result(None if timeout is None else check_time_left("timeout", timeout))
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
            raise WrongTypeError(f"e={e!r}: must be an exception")
        self._outcome.set_exception(error)
        return self
