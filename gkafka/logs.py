"""The place that every module of gkafka has its logger from.

Each logger has one filter, which escapes what a record is made of, and says in the line itself what went wrong in Kafka: the traceback of that, which
tells of gkafka alone, is for whoever has the logger at DEBUG. Those of other errors, as of an application's callback, stay. A filter of a logger runs once for each record that is emitted, before any handler,
so a call that is below the level costs what it costs without one, and `%` formatting stays with the handlers.
"""

from __future__ import annotations

import logging
from typing import Any

from gkafka.brokererrors import KafkaException
from gkafka.escaping import escaped

__all__ = ["get_logger"]


def get_logger(name: str) -> logging.Logger:
    """Return logging.getLogger(name), whose records hold no text that forges a line or steers a terminal."""
    logger = logging.getLogger(name)
    logger.addFilter(_ESCAPE)  # once, however often it is called
    return logger


class _Escape(logging.Filter):
    """Let every record pass, with its message and its arguments escaped."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, KafkaException):
            _say(record, error)
        record.msg = escaped(record.msg)
        # logging unpacks a call's only argument if that is a dict.
        record.args = tuple(map(_fit, record.args)) if isinstance(record.args, tuple) else _fit(record.args)
        return True


def _say(record: logging.LogRecord, error: KafkaException) -> None:
    """Put the error into the line, in place of its traceback."""
    is_bare = not record.args
    record.msg = f"{str(record.msg).replace('%', '%%') if is_bare else record.msg}: %s"
    record.args = (error,) if is_bare or not isinstance(record.args, tuple) else (*record.args, error)
    if not logging.getLogger(record.name).isEnabledFor(logging.DEBUG):
        record.exc_info = None


class _Argument:
    """Stands for an argument of a log call, and shows it escaped."""

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        self._value = value

    def __str__(self) -> str:
        return escaped(self._value)

    def __repr__(self) -> str:
        return escaped(repr(self._value))

    def __getitem__(self, key: Any) -> Any:
        return _fit(self._value[key])


def _fit(value: Any) -> Any:
    """The argument itself if it is a number, which "%d" needs, or a text that may stand in a log."""
    if value is None or isinstance(value, (int, float)) or (type(value) is str and escaped(value) is value):
        return value
    return _Argument(value)


_ESCAPE = _Escape()
