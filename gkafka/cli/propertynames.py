"""Properties by their names: which option of gkafka one is, which commands it is for, and which have no effect in any.

A file may be that of an application, or of Kafka's own scripts. What is in it takes effect, belongs to other commands, says what is so here
anyway, or is refused: nothing that was meant to change a command is passed over.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable
from typing import Any

from gkafka.cli.connection import CONSUMER, MEMBER, POSITION, PRODUCER
from gkafka.config import ClientConfig, NativeConsumerConfig, ProducerConfig
from gkafka.javanames import CLIENT_NAMES

__all__ = [
    "BESIDE_OPTIONS",
    "BUFFERS",
    "COMMIT_OPTIONS",
    "FACTORS",
    "MEMBER_OPTIONS",
    "PREFERRED",
    "SECRETS",
    "canonical",
    "is_from_text",
    "is_so_here",
    "may_be_told",
    "meant",
    "roles_of",
]

# -- for which commands -----------------------------------------------------------------------------------------------------------
COMMIT_OPTIONS = ("auto_commit", "auto_commit_interval_ms")
POSITION_OPTIONS = ("group", "auto_offset_reset", *COMMIT_OPTIONS)
MEMBER_OPTIONS = (
    *("session_timeout_ms", "heartbeat_interval_ms", "max_poll_interval_ms", "assignors", "group_protocol", "group_remote_assignor"),
    "group_instance_id",
)
WHO = {PRODUCER: "produce", CONSUMER: "consume", POSITION: "consume", MEMBER: "consume"}

# -- other names ------------------------------------------------------------------------------------------------------------------
JAVA_NAMES = {
    **CLIENT_NAMES,
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.crl.location": "ssl_crlfile",
    "broker.version.fallback": "broker_version",
    "max.in.flight.requests.per.connection": "max_in_flight",
    "max.in.flight": "max_in_flight",
    "compression.type": "compression",
    "compression.codec": "compression",
    "batch.size": "batch_bytes",
    "buffer.memory": "buffer_bytes",
    "max.request.size": "max_request_bytes",
    "queue.buffering.max.kbytes": "buffer_bytes",
    "message.max.bytes": "max_request_bytes",
    "delivery.timeout.ms": "delivery_timeout_ms",
    "message.timeout.ms": "delivery_timeout_ms",
    "queue.buffering.max.ms": "linger_ms",
    "request.required.acks": "acks",
    "message.send.max.retries": "retries",
    "partitioner.class": "partitioner",
    "transaction.timeout.ms": "transaction_timeout_ms",
    "fetch.max.wait.ms": "fetch_wait_max_ms",
    "isolation.level": "isolation_level",
    "enable.auto.commit": "auto_commit",
    "partition.assignment.strategy": "assignors",
    "group.id": "group",
    "allow.auto.create.topics": "auto_create_topics",
}
"""Names of the Java clients and of librdkafka whose options have another name here."""
FACTORS = {"queue.buffering.max.kbytes": 1024}
"""Name -> how many of its option's unit one of its own is."""
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
BUFFERS = {
    "receive.buffer.bytes": "receive",
    "socket.receive.buffer.bytes": "receive",
    "send.buffer.bytes": "send",
    "socket.send.buffer.bytes": "send",
}
"""Sizes of a socket's buffers."""
SECRETS = {
    "sasl_password": "KAFKA_{}SASL_PASSWORD",
    "ssl_password": "KAFKA_{}SSL_PASSWORD",
    "sasl_oauth_client_secret": "KAFKA_{}OAUTH_CLIENT_SECRET",
}
"""Option -> the variable of the environment that may have it; {} is the prefix of another cluster ("TO_")."""

# -- other values -----------------------------------------------------------------------------------------------------------------
MEANT = {
    "auto_offset_reset": {"beginning": "earliest", "smallest": "earliest", "end": "latest", "largest": "latest", "error": "none"},
    "partitioner": {
        "murmur2_random": "murmur2",
        "consistent_random": "crc32",
        "org.apache.kafka.clients.producer.internals.DefaultPartitioner": "murmur2",
    },
    "assignors": {
        "org.apache.kafka.clients.consumer.RangeAssignor": "range",
        "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
        "org.apache.kafka.clients.consumer.StickyAssignor": "sticky",
        "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
    },
}
"""Option -> what Java or librdkafka call one of its values -> its name here."""
SO_HERE = {
    "auto_create_topics": "false",
    "client.dns.lookup": "use_all_dns_ips",
    "ssl.endpoint.identification.algorithm": "(?i)https",
    "ssl.truststore.type": "(?i) *pem *",
    "ssl.keystore.type": "(?i) *pem *",
    "ssl.protocol": r"TLS(v1\.3)?",
    "ssl.enabled.protocols": r" *(TLSv1\.2 *, *TLSv1\.3|TLSv1\.3 *, *TLSv1\.2) *",
    "key.serializer": r".*\.(String|ByteArray|Bytes)Serializer",
    "value.serializer": r".*\.(String|ByteArray|Bytes)Serializer",
    "key.deserializer": r".*\.(String|ByteArray|Bytes)Deserializer",
    "value.deserializer": r".*\.(String|ByteArray|Bytes)Deserializer",
    "sasl.login.callback.handler.class": r".*\.OAuthBearerLoginCallbackHandler",
    "metric.reporters": r"(.*\.JmxReporter)?",
    "interceptor.classes": "",
    "security.providers": "",
}
"""What needs no option, because it is so: name -> the values of which that is true."""
BESIDE_OPTIONS = {"group", "max_poll_records", *(name.replace(".", "_") for name in (*BUFFERS, *SO_HERE) if not name.startswith("sasl"))}
"""What a property may mean that is no option of a client, a producer or a consumer, and no secret."""
NONE_HERE = {
    "queue.buffering.max.messages": "records are bounded by their bytes here, not by their number: leave it out; buffer_bytes, in bytes, or "
    "queue.buffering.max.kbytes is that bound",
}
"""What the option with the nearest name is another thing than: name -> why it is refused."""
NAME, LONGEST_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]*"), 60
"""What the names of options look like."""
NOT_FROM_TEXT = ("ssl_context", "socket_options", "sasl_oauth_token_provider", "interceptors")
NOTHING_HERE = ("on_fork", "exit_timeout_ms", "consume_timeout_ms", "on_deserialize_error", "dead_letter", "hub_stall_meter")
"""Options of programs that a command has no use for."""


# -- questions --------------------------------------------------------------------------------------------------------------------
def canonical(name: str) -> str:
    """The name of the option that a spelling means; the spelling itself, with underscores, if it is none."""
    for _, f in _fields():
        if name in f.metadata["aliases"]:
            return f.name
    return JAVA_NAMES.get(name.replace("_", "."), name.replace(".", "_").replace("-", "_"))


def meant(option: str, text: str) -> str:
    """A value by the name that it has here."""
    return MEANT.get(option, {}).get(text, text)


def is_from_text(config: type[Any], option: str) -> bool:
    """Can an option of this dataclass be given as text, and has it an effect? What takes a callable alone cannot."""
    field = {f.name: f for f in dataclasses.fields(config)}.get(option)
    if field is None or option in NOT_FROM_TEXT or option in NOTHING_HERE:
        return False
    return field.metadata["types"] != (Callable,) or bool(field.metadata["names"])


def roles_of(option: str) -> tuple[str, ...]:
    """What a command must do with records for the option to be about it; () for one of the connection, or none."""
    if option in POSITION_OPTIONS:
        return (POSITION,)
    if option in MEMBER_OPTIONS:
        return (MEMBER,)
    configs = ((PRODUCER, ProducerConfig), (CONSUMER, NativeConsumerConfig))
    return tuple(role for role, config in configs if is_from_text(config, option))


def is_so_here(name: str, option: str, text: str) -> bool:
    """Does the property say what is so anyway?"""
    pattern = SO_HERE.get(option, SO_HERE.get(name))
    return pattern is not None and re.fullmatch(pattern, text) is not None


def may_be_told(name: str, *, is_pair: bool) -> bool:
    """Is it the name of an option, or meant as one? Else it may be a line of a key, or a password, that stands where a name is read."""
    if len(name) > LONGEST_NAME or NAME.fullmatch(name) is None:
        return False
    return is_pair or name in SO_HERE or any(canonical(name) == f.name for _, f in _fields()) or bool(_near(name, _spellings()))


def why_refused(name: str, option: str, text: str, uses: tuple[str, ...]) -> str:
    """What to say of a property that does nothing."""
    if name == "ssl.endpoint.identification.algorithm":
        return "the broker's name is checked; ssl.check.hostname=false with allow.unverified.tls=true gives that up"
    if name.replace("_", ".") in NONE_HERE:
        return NONE_HERE[name.replace("_", ".")]
    if option == "auto_create_topics":
        return "kafka-tools makes no topic by asking for it: leave it out; kafka-tools topics create makes one"
    roles = roles_of(option)
    if roles and not set(roles) & set(uses):
        return f"is an option of {WHO[roles[0]]}: here it would do nothing, leave it out"
    if name in SO_HERE or any(option == f.name for _, f in _fields()):
        shown = "its value" if name.startswith("sasl") else repr(text)  # where a secret is given by mistake
        return f"{shown} has no effect here: leave it out"
    known = [spelling for spelling in _spellings() if not (set(roles_of(canonical(spelling))) - set(uses))]
    near = _near(name, known)
    return f"unknown option; did you mean {near[0]!r}?" if near else "unknown option: leave it out; docs/options.md lists all"


def _near(name: str, known: list[str]) -> list[str]:
    return difflib.get_close_matches(name.replace("_", "."), known, n=1, cutoff=0.7)


def _spellings() -> list[str]:
    """The names that a file may have, with dots."""
    own = [f.name.replace("_", ".") for config, f in _fields() if is_from_text(config, f.name)]
    return [*own, *JAVA_NAMES, *BUFFERS, "bootstrap.servers", "max.poll.records", "sasl.jaas.config"]


def _fields() -> list[tuple[type[Any], dataclasses.Field[Any]]]:
    return [(config, f) for config in (ClientConfig, ProducerConfig, NativeConsumerConfig) for f in dataclasses.fields(config)]
