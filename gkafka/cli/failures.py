"""What becomes of an error: one line that says what, one that says what to do next, and an exit code."""

from __future__ import annotations

import sys
from errno import EBADF, ENOSPC
from typing import Any

import click

from gkafka.cli.output import clean

__all__ = ["FAILED", "INTERRUPTED", "NOT_UNDERSTOOD", "ToolError", "code_of", "tell"]

FAILED = 1
NOT_UNDERSTOOD = 2
INTERRUPTED = 130
MOST = 5
"""Errors of one call that are told one by one."""


class ToolError(click.ClickException):
    """A command failed, or cannot be done. hint: the next thing to try, as a sentence or a command line."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


NEXT = {
    "NoBrokersAvailableError": "kafka-tools doctor, with the same options, says at which step it fails",
    "KafkaTimeoutError": "a larger --timeout, or kafka-tools doctor, with the same options",
    "AuthenticationError": "check the user, the password and --sasl-mechanism; kafka-tools doctor shows what the broker offers",
    "TlsError": "give the authority that signed the brokers' certificates: --ssl-cafile FILE; kafka-tools doctor shows the certificate",
    "ConnectionFailedError": "kafka-tools doctor, with the same options, says at which step it fails",
    "TopicAuthorizationFailed": "have a principal that may: kafka-tools acls list --topic NAME",
    "GroupAuthorizationFailed": "have a principal that may: kafka-tools acls list --group NAME",
    "ClusterAuthorizationFailed": "have a principal that may: kafka-tools acls list --cluster",
    "UnknownTopicOrPartition": "kafka-tools topics lists the topics that there are",
    "GroupIdNotFound": "kafka-tools groups lists the groups that there are",
    "NonEmptyGroup": "stop its members first: kafka-tools groups members NAME lists them",
    "TopicAlreadyExists": "kafka-tools topics describe NAME shows the one that is there",
    "SecurityDisabled": "the brokers have no authorizer: set authorizer.class.name there",
    "UnsupportedVersion": "kafka-tools doctor says what these brokers speak",
}
"""Name of an error's class, or of one it comes from -> what to try."""


def code_of(error: BaseException) -> int:
    """The exit code that an error comes to."""
    return NOT_UNDERSTOOD if isinstance(error, click.UsageError) else FAILED


def tell(error: Exception) -> None:
    """Say on stderr what failed, and the next step, without anything that a terminal would obey."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        print(error.format_message(), file=sys.stderr)
        return
    for line in _lines(error):
        print(clean(line), file=sys.stderr)


def _lines(error: Exception) -> list[str]:
    if isinstance(error, click.UsageError):
        place = error.ctx.command_path if error.ctx is not None else "kafka-tools"
        return [f"{place}: {error.format_message()}", f"  next: {place} --help"]
    if isinstance(error, click.ClickException):
        hint = error.hint if isinstance(error, ToolError) else ""
        return [f"kafka-tools: {error.format_message()}", *([f"  next: {hint}"] if hint else [])]
    return _of_kafka(error) or _of_system(error)


def _of_kafka(error: Exception) -> list[str]:
    from gkafka.exceptions import AdminError, KafkaException

    if not isinstance(error, KafkaException):
        return []
    parts: list[Any] = list(error.errors.values()) if isinstance(error, AdminError) else []
    told = [f"kafka-tools: {part}" for part in parts[:MOST] or [error]]
    if len(parts) > MOST:
        told.append(f"  ... and {len(parts) - MOST} more")
    first = parts[0] if parts else error
    hints = [NEXT[kind.__name__] for kind in type(first).__mro__ if kind.__name__ in NEXT]
    return told + [f"  next: {hint}" for hint in hints[:1]]


def _of_system(error: Exception) -> list[str]:
    if isinstance(error, OSError) and error.filename is not None:
        return [f"kafka-tools: {error.filename}: {error.strerror}", "  next: check the path and its permissions"]
    if isinstance(error, OSError) and error.errno == ENOSPC:
        return [f"kafka-tools: {error.strerror}", "  next: make room where the output goes"]
    if isinstance(error, OSError) and error.errno == EBADF:  # output.write()
        return [f"kafka-tools: {error.strerror}", "  next: give it somewhere to go: a file, a pipe, /dev/null"]
    return [
        f"kafka-tools: unexpected {type(error).__name__}: {error}",
        "  next: the same with --debug shows where; that is a defect of gkafka, please report it",
    ]
