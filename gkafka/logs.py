"""The place that every module of gkafka has its logger from.

Each logger has one filter. It escapes what a record is made of. It puts the text of a Kafka error into
the line: the traceback of such an error shows gkafka alone, so it stays only if the logger is at DEBUG.
Tracebacks of other errors, such as those of an application's callback, always stay.

The filter of a logger runs once for each record that is emitted, before any handler. A call below the
level costs nothing more, and `%` formatting stays with the handlers.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Any

from gkafka.brokererrors import KafkaException
from gkafka.escaping import escaped

__all__ = ["LaterLines", "get_logger"]


def get_logger(name: str) -> logging.Logger:
    """Return logging.getLogger(name), whose records hold no text that forges a line or steers a terminal."""
    logger = logging.getLogger(name)
    logger.addFilter(_ESCAPE)  # once, however often it is called
    return logger


class LaterLines:
    """The log lines of a machine that works under a lock.

    Log handlers are code of the application's: they may be slow, and may call the client. So the
    machine adds its lines here, and its driver writes them when it has let go of the lock.
    """

    def __init__(self) -> None:
        self._lines: deque[tuple[logging.Logger, int, str, tuple[Any, ...]]] = deque()

    def add(self, logger: logging.Logger, level: int, text: str, *args: Any) -> None:
        """Keep a line until it is written. args: as of a log call."""
        self._lines.append((logger, level, text, args))

    def write(self) -> None:
        """Write the lines, under no lock."""
        while self._lines:
            try:
                logger, level, text, args = self._lines.popleft()
            except IndexError:
                return  # another worker has written them
            logger.log(level, text, *args)


class _Escape(logging.Filter):
    """Let every record pass, with its message and its arguments escaped."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, KafkaException) and isinstance(record.args, tuple):
            _say(record, error)
        record.msg = escaped(record.msg)
        # logging unpacks a call's only argument if that is a dict.
        record.args = tuple(map(_fit, record.args)) if isinstance(record.args, tuple) else _fit(record.args)
        return True


def _say(record: logging.LogRecord, error: KafkaException) -> None:
    """Put the error into the line, in place of its traceback."""
    assert isinstance(record.args, tuple)  # a dict's names would be lost
    record.msg = f"{record.msg if record.args else str(record.msg).replace('%', '%%')}: %s"
    record.args = (*record.args, error)
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
