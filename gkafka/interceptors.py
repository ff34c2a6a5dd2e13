"""Interceptors: a user's code that sees every record of a producer on its way out, and what became of it (KIP-42)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from gkafka.exceptions import ConfigurationError
from gkafka.logs import get_logger
from gkafka.records import Record

if TYPE_CHECKING:
    from gkafka.records import Delivery

__all__ = ["InterceptorChain", "ProducerInterceptor"]

log = get_logger(__name__)

HOOKS = ("on_send", "on_acknowledgement", "on_error")


class ProducerInterceptor:
    """Base of the `interceptors` of `client.get_producer()`; override what is wanted. Any object with these three methods will do.

    They are called in the order given, under no lock. One that raises is logged and skipped: it never costs a record.
    """

    def on_send(self, record: Record) -> Record:
        """In the caller of produce(): the record to send, the given one or another (`record._replace(...)`).

        Key and value are as the caller gave them, before serializers; partition and timestamp are None where the caller left them open,
        headers a list of their own.
        """
        return record

    def on_acknowledgement(self, delivery: Delivery) -> None:
        """The record is delivered: `delivery.record`, `delivery.result()`. On the worker of the producer's callbacks."""

    def on_error(self, record: Record, error: BaseException, persisted: str) -> None:
        """The record was not delivered. persisted: "no", or "maybe" where a broker may have written it all the same.

        On the worker of the producer's callbacks; in the caller if produce() itself raises the error.
        """


class InterceptorChain:
    """The interceptors of one producer.

    accept: takes (topic, value, key, partition, timestamp, headers) as produce() does, and has `done` called for each record that it takes.
    """

    def __init__(self, interceptors: Iterable[Any], accept: Callable[..., Delivery]) -> None:
        self._interceptors: list[ProducerInterceptor] = list(interceptors)
        self._accept = accept
        self._failures: Counter[tuple[int, str]] = Counter()
        for interceptor in self._interceptors:
            lacking = [hook for hook in HOOKS if not callable(getattr(interceptor, hook, None))]
            if lacking or isinstance(interceptor, type):
                why = "is a class: give an instance" if isinstance(interceptor, type) else f"has no {', '.join(lacking)}"
                raise ConfigurationError(f"interceptors: {interceptor!r} {why}; derive it from gkafka.interceptors.ProducerInterceptor")

    @property
    def failures(self) -> int:
        """Calls that raised."""
        return sum(self._failures.values())

    def produce(
        self, topic: Any, value: Any, key: Any = None, partition: Any = None, timestamp: Any = None, headers: Any = None
    ) -> Delivery:
        """Show the record to each on_send, then have it accepted."""
        if headers is None:
            headers = ()
        record = Record(topic, partition, key, value, list(headers) if isinstance(headers, (list, tuple)) else headers, timestamp)
        for number, interceptor in enumerate(self._interceptors):
            # A copy: one that raises half-way leaves the headers of the record that goes on as they were.
            mine = Record(*record[:4], list(record.headers), record.timestamp) if isinstance(record.headers, list) else record
            try:
                answer: Any = interceptor.on_send(mine)
                if not isinstance(answer, Record):
                    raise TypeError(f"on_send returned {type(answer).__name__}: it must return a Record")
            except Exception:
                self._failed(number, interceptor, "on_send")
            else:
                record = answer
        # Whatever else is empty is no list of headers, and is refused as without interceptors.
        told = None if isinstance(record.headers, (list, tuple)) and not record.headers else record.headers
        try:
            return self._accept(record.topic, record.value, record.key, record.partition, record.timestamp, told)
        except Exception as error:
            self._tell_error(record, error, "no")
            raise

    def done(self, delivery: Delivery) -> None:
        """A record that was accepted has its outcome."""
        error = delivery.exception(0)
        if error is not None:
            record = delivery.record or Record(delivery.topic, delivery.partition, None, None, [], -1)
            self._tell_error(record, error, delivery.batch.part(delivery.index).persisted or "maybe")
            return
        for number, interceptor in enumerate(self._interceptors):
            try:
                interceptor.on_acknowledgement(delivery)
            except Exception:
                self._failed(number, interceptor, "on_acknowledgement")

    def _tell_error(self, record: Record, error: BaseException, persisted: str) -> None:
        for number, interceptor in enumerate(self._interceptors):
            try:
                interceptor.on_error(record, error, persisted)
            except Exception:
                self._failed(number, interceptor, "on_error")

    def _failed(self, number: int, interceptor: ProducerInterceptor, hook: str) -> None:
        """The first failure of each hook is logged, the others are counted."""
        self._failures[number, hook] += 1
        if self._failures[number, hook] == 1:
            log.exception("%s.%s failed; further failures are only counted (stats: interceptor_failures)", type(interceptor).__name__, hook)
