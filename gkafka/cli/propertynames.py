"""Properties in commands: for which of them an option is, and which have no effect in any. gkafka/javanames.py has the names.

A file may be that of an application, or of Kafka's own scripts. What is in it takes effect, belongs to other commands, says what is so here
anyway, or is refused; what means nothing outside of Java, librdkafka or a program is passed over, with a note.
"""

from __future__ import annotations

from typing import Any

from gkafka.cli.connection import CONSUMER, MEMBER, POSITION, PRODUCER
from gkafka.clientproperties import unknown
from gkafka.config import NativeConsumerConfig, ProducerConfig
from gkafka.exceptions import ConfigurationError
from gkafka.javanames import OPTIONS, canonical, is_from_text, spellings

__all__ = ["COMMIT_OPTIONS", "MEMBER_OPTIONS", "PREFERRED", "SECRETS", "commands_take", "of_other_commands", "roles_of", "why_not_here"]

COMMIT_OPTIONS = ("auto_commit", "auto_commit_interval_ms")
POSITION_OPTIONS = ("group", "auto_offset_reset", *COMMIT_OPTIONS)
MEMBER_OPTIONS = (
    *("session_timeout_ms", "heartbeat_interval_ms", "max_poll_interval_ms", "assignors", "group_protocol", "group_remote_assignor"),
    "group_instance_id",
)
WHO = {PRODUCER: "produce", CONSUMER: "consume", POSITION: "consume", MEMBER: "consume"}
PREFERRED = {
    "socket_timeout_ms": "request.timeout.ms",
    "request_timeout_ms": "request.timeout.ms",
    "api_timeout_ms": "--timeout",
    "connect_timeout_ms": "socket.connection.setup.timeout.ms",
    "compression": "compression.type",
    "batch_bytes": "batch.size",
    "buffer_bytes": "buffer.memory",
    "max_request_bytes": "max.request.size",
    "max_in_flight": "max.in.flight.requests.per.connection",
    "fetch_wait_max_ms": "fetch.max.wait.ms",
    "fetch_message_max_bytes": "max.partition.fetch.bytes",
    "auto_commit": "enable.auto.commit",
    "assignors": "partition.assignment.strategy",
}
"""Option -> the name that most files have, where it is not the option's own."""
SECRETS = {
    "sasl_password": "KAFKA_{}SASL_PASSWORD",
    "ssl_password": "KAFKA_{}SSL_PASSWORD",
    "sasl_oauth_client_secret": "KAFKA_{}OAUTH_CLIENT_SECRET",
}
"""Option -> the variable of the environment that may have it; {} is the prefix of another cluster ("TO_")."""

NOTHING_HERE = ("on_fork", "exit_timeout_ms", "consume_timeout_ms", "on_deserialize_error", "dead_letter", "hub_stall_meter")
"""Options of programs that a command has no use for."""


def commands_take(config: type[Any], option: str) -> bool:
    """Can an option of this dataclass be given as text, and has it an effect in commands?"""
    return option not in NOTHING_HERE and is_from_text(config, option)


def roles_of(option: str) -> tuple[str, ...]:
    """What a command must do with records for the option to be about it; () for one of the connection, or none."""
    if option in POSITION_OPTIONS:
        return (POSITION,)
    if option in MEMBER_OPTIONS:
        return (MEMBER,)
    configs = ((PRODUCER, ProducerConfig), (CONSUMER, NativeConsumerConfig))
    return tuple(role for role, config in configs if commands_take(config, option))


def of_other_commands(option: str) -> str:
    """What to say of an option that was meant for a command that is not about it."""
    roles = roles_of(option) or (CONSUMER,)
    return f"is an option of {WHO[roles[0]]}: here it would do nothing, leave it out"


def why_not_here(where: str, name: str, option: str, uses: tuple[str, ...] | None) -> str:
    """Why an option has no effect in any command. Raises ConfigurationError, with the name that may be meant, for what is no option.

    uses: what the command does with records, where only its own options can be meant; None: those of all commands can.
    """
    if option == "auto_create_topics":
        return "kafka-tools makes no topic by asking for it; kafka-tools topics create makes one"
    if option in OPTIONS:
        return "it is an option of programs"
    known = [spelling for spelling in spellings() if uses is None or not set(roles_of(canonical(spelling))) - set(uses)]
    raise ConfigurationError(f"{where}: {unknown(name, known)}")
