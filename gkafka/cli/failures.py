"""What becomes of an error: one line that says what, one that says what to do next, and an exit code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from errno import EBADF
from typing import Any

import click

from gkafka.cli.output import note

__all__ = ["FAILED", "INTERRUPTED", "NOT_UNDERSTOOD", "PARTIAL", "PartialError", "ToolError", "UnusableError", "code_of", "tell"]

FAILED = 1
NOT_UNDERSTOOD = 2
PARTIAL = 3
INTERRUPTED = 130
MOST = 5
"""Errors of one call that are told one by one."""


class ToolError(click.ClickException):
    """A command failed, or cannot be done. hint: the next thing to try, as a sentence or a command line."""

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


class UnusableError(ToolError):
    """What was given cannot be used, whatever the cluster says."""


class PartialError(click.ClickException):
    """A command has printed what it found out, and could not find out all that it was asked for. errors: (what it is of, why). code: the exit code."""

    def __init__(self, errors: Iterable[tuple[Any, Any]], code: int = PARTIAL) -> None:
        self.errors = list(errors)
        self.code = code
        super().__init__("; ".join(str(error) for _, error in self.errors))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartialError) and other.lines() == self.lines()

    __hash__ = click.ClickException.__hash__

    def lines(self) -> list[str]:
        """One for each reason, the first MOST of them, and the next step of the first. What fails alike in other partitions is named in its line."""
        from gkafka.cli.wording import in_tools_words

        reasons: list[tuple[str, list[Any]]] = []
        alike: dict[Any, list[Any]] = {}
        for item, error in self.errors:
            text = in_tools_words(" ".join(str(error).split()))
            kind = (item[0], type(error)) if isinstance(item, tuple) else text
            items = alike.get(text) or alike.get(kind)
            if items is None:
                reasons.append((_about(item, text), items := []))
            items.append(item)
            alike |= {text: items, kind: items}
        more = [f"  ... and {len(reasons) - MOST} more"] if len(reasons) > MOST else []
        told = [f"kafka-tools: {text}{_also(items)}" for text, items in reasons[:MOST]]
        return [*told, *more, _next_step(self.errors[0][1], "kafka-tools")]


def _shown(item: Any) -> str:
    """A partition, group, topic, or a broker by its id, as a text names it."""
    return "-".join(map(str, item)) if isinstance(item, tuple) else f"broker {item}" if isinstance(item, int) else str(item)


def _about(item: Any, text: str) -> str:
    """A reason that names what it is about."""
    return text if isinstance(item, int) or _shown(item) in text else f"{_shown(item)}: {text}"


def _also(items: Sequence[Any]) -> str:
    """Of which other things a reason holds, as " (the same of t:1,2, u:0)"; "" of none."""
    _, *others = dict.fromkeys(items)
    numbers: dict[str, list[str]] = {}
    for item in others:
        if isinstance(item, tuple):
            numbers.setdefault(str(item[0]), []).append(str(item[1]))
    listed = [f"{topic}:{','.join(those)}" for topic, those in numbers.items()]
    listed += [_shown(item) for item in others if not isinstance(item, tuple)]
    return f" (the same of {', '.join(listed[:MOST])}{', ...' if len(listed) > MOST else ''})" if listed else ""


NEXT = {
    "NoBrokersAvailableError": "kafka-tools doctor, with the same options, says at which step it fails",
    "KafkaTimeoutError": "a larger --timeout, or kafka-tools doctor, with the same options",
    "AuthenticationError": "check the user, the password and --sasl-mechanism; kafka-tools doctor shows what the broker offers",
    "TlsError": "give the authority that signed the brokers' certificates: --ssl-cafile FILE; kafka-tools doctor shows the certificate",
    "ConnectionFailedError": "kafka-tools doctor, with the same options, says at which step it fails",
    "TopicAuthorizationFailed": "have a principal that may: kafka-tools acls list --topic TOPIC",
    "GroupAuthorizationFailed": "have a principal that may: kafka-tools acls list --group GROUP",
    "ClusterAuthorizationFailed": "have a principal that may: kafka-tools acls list --cluster",
    "UnknownTopicOrPartition": "kafka-tools topics lists the topics that there are, kafka-tools topics describe TOPIC its partitions; kafka-tools topics create TOPIC makes one",
    "GroupIdNotFound": "kafka-tools groups lists the groups that there are",
    "NonEmptyGroup": "stop its members first: kafka-tools groups members GROUP lists them",
    "TopicAlreadyExists": "kafka-tools topics describe TOPIC shows the one that is there",
    "SecurityDisabled": "the brokers have no authorizer: set authorizer.class.name there",
    "UnsupportedVersion": "kafka-tools doctor says what these brokers speak",
    "NoOffsetForPartitionError": "say where it begins: kafka-tools offsets reset GROUP --topic TOPIC",
    "ConfigurationError": "mend that on the command line, or in the file of --config; {command} --help has the options",
    "ZooKeeperError": "check --zookeeper, or name the brokers themselves: --bootstrap-server HOST:PORT",
    "ProxyError": "check proxy.url, and whether the proxy lets connections to the brokers through",
    "SocketDisconnectedError": "kafka-tools doctor, with the same options, says at which step it fails",
    "LeaderNotAvailable": "kafka-tools topics describe --problems lists the partitions without a leader",
    "LeaderNotFoundError": "kafka-tools topics describe --problems lists the partitions without a leader",
    "NotEnoughReplicas": "kafka-tools topics describe --problems lists the partitions whose replicas are behind",
    "NotEnoughReplicasAfterAppend": "kafka-tools topics describe --problems lists the partitions whose replicas are behind",
    "OffsetOutOfRangeError": "kafka-tools offsets list TOPIC tells which offsets there are",
    "LogTruncationError": "kafka-tools offsets list TOPIC tells which offsets there are; --from says where to begin",
    "InvalidTopic": "give another name: 1 to 249 of the characters A-Z a-z 0-9 . _ -",
    "InvalidReplicationFactor": "give at most as many replicas as there are brokers: kafka-tools doctor shows them",
    "InvalidConfig": "kafka-tools configs describe topic TOPIC --all lists a topic's configurations",
    "TransactionalIdAuthorizationFailed": "have a principal that may: kafka-tools acls list --transactional-id NAME",
    "UnsupportedCodec": "kafka-tools version tells which codecs are installed",
    "FencedError": "another copy with the same --group has taken over: have one run at a time",
    "TransactionAbortableError": "the same again: nothing of what failed can be seen, and a copy with --group goes on where it stands",
    "CorruptRecordError": "go on behind the damage: kafka-tools consume TOPIC -p PARTITION --from OFFSET; a group: "
    "kafka-tools offsets reset GROUP --topic TOPIC:PARTITION --to-offset OFFSET",
    "ProtocolError": "kafka-tools doctor, with the same options, says whether that is a Kafka listener",
    "DeliveryError": "kafka-tools doctor --topic TOPIC --write tries one record",
    "BrokerError": "the broker's log may say more; kafka-tools doctor, with the same options, looks at each step",
    "KafkaException": "kafka-tools doctor, with the same options, looks at each step",
}
"""Name of an error's class, or of one it comes from -> what to try. Words of PLACEHOLDERS: what the error is about, if it tells."""
PLACEHOLDERS = {"TOPIC": "topic", "GROUP": "group", "PARTITION": "partition", "OFFSET": "next_offset"}
"""Word of a hint -> the error's attribute. next_offset: where reading goes on behind what is damaged."""
GENERAL = ("BrokerError", "KafkaException")
"""What nearly all come from: their step is for what has no other."""
NO_FILE = "--config names a file; one option is --set NAME=VALUE, and a topic's configuration --topic-config NAME=VALUE"


def code_of(error: BaseException) -> int:
    """The exit code that an error comes to: NOT_UNDERSTOOD for what was given, be it an option, a property or a file that it names, and cannot be used,
    FAILED for what the cluster answers."""
    if isinstance(error, PartialError):
        return error.code
    if isinstance(error, (click.UsageError, UnusableError)) or (isinstance(error, OSError) and error.filename is not None):
        return NOT_UNDERSTOOD
    return NOT_UNDERSTOOD if _is_misconfigured(error) else FAILED


def _is_misconfigured(error: BaseException) -> bool:
    from gkafka.exceptions import ConfigurationError, NoOffsetForPartitionError

    return isinstance(error, ConfigurationError) and not isinstance(error, NoOffsetForPartitionError)  # that is the group's state


def tell(error: Exception, command: str = "kafka-tools", words: Sequence[str] = ()) -> None:
    """Say on stderr what failed, and the next step, without anything that a terminal would obey. command: the words that it was asked by; words:
    the whole command line."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        note(error.format_message(), keep="\n")
        return
    for line in _lines(error, command, words):
        note(line)


def _lines(error: Exception, command: str, words: Sequence[str] = ()) -> list[str]:
    if isinstance(error, click.UsageError):
        place = error.ctx.command_path if error.ctx is not None else command
        if isinstance(error, click.NoSuchOption) and error.ctx is not None:
            from gkafka.cli.misplaced import meant

            text, hint = meant(error, words)
            return [f"{place}: {text}", f"  next: {hint}"]
        text = error.format_message().replace("\n\t", " ")  # click lists the choices of what is missing on lines of their own
        text = text.replace("is not a valid integer range", "is no whole number")
        return [f"{place}: {text}", f"  next: {place} --help"]
    if isinstance(error, PartialError):
        return error.lines()
    if isinstance(error, click.ClickException):
        hint = error.hint if isinstance(error, ToolError) else f"{command} --help"
        return [f"kafka-tools: {error.format_message()}", f"  next: {hint}"]
    return _of_kafka(error, command) or _of_system(error)


def _of_kafka(error: Exception, command: str) -> list[str]:
    from gkafka.cli.wording import in_tools_words
    from gkafka.exceptions import AdminError, KafkaException

    if not isinstance(error, KafkaException):
        return []
    parts: list[Any] = list(error.errors.values()) if isinstance(error, AdminError) else []
    told = [f"kafka-tools: {in_tools_words(' '.join(_without_hint(part).split()))}" for part in parts[:MOST] or [error]]
    if len(parts) > MOST:
        told.append(f"  ... and {len(parts) - MOST} more")
    return [*told, _next_step(parts[0] if parts else error, command)]


def _without_hint(error: Any) -> str:
    return str(error).removesuffix(f"; {_hint(error)}")


def _hint(error: Any) -> str:
    """What an error itself says to try."""
    return getattr(error, "hint", "")


def _next_step(error: Any, command: str) -> str:
    from gkafka.cli.wording import in_tools_words

    if own := _hint(error):
        return f"  next: {in_tools_words(own)}"
    kinds = [kind.__name__ for kind in type(error).__mro__ if kind.__name__ in NEXT]
    hints = [NEXT[name] for name in sorted(kinds, key=GENERAL.__contains__)]
    return "  next: " + _named(hints[0], error).replace("{command}", command)


def _named(hint: str, error: Any) -> str:
    def value(match: re.Match[str]) -> str:
        found = getattr(error, PLACEHOLDERS[match[0]], None)
        return match[0] if found in (None, "") else str(found)

    return re.sub(rf"\b({'|'.join(PLACEHOLDERS)})\b", value, hint)


def _of_system(error: Exception) -> list[str]:
    if isinstance(error, FileNotFoundError) and "=" in str(error.filename):
        return [f"kafka-tools: {error.filename}: {error.strerror}", f"  next: {NO_FILE}"]
    if isinstance(error, OSError) and error.filename is not None:
        return [f"kafka-tools: {error.filename}: {error.strerror}", "  next: check the path and its permissions"]
    if isinstance(error, OSError) and error.errno == EBADF:  # output.write()
        return [f"kafka-tools: {error.strerror}", "  next: give it somewhere to go: a file, a pipe, /dev/null"]
    return [
        f"kafka-tools: unexpected {type(error).__name__}: {error}",
        "  next: the same with --debug shows where; that is a defect of gkafka, please report it",
    ]
