"""kafka.* options: a Java client's properties, and gkafka's own, as keyword arguments of KafkaClient, and of its fetches what reads gives.

A property that does nothing here is named in a warning; one that would change what is read, or how safely, and cannot be had is
refused with what to give instead. Nothing here imports pyspark.
Source: https://kafka.apache.org/documentation/#consumerconfigs, KafkaSourceProvider.validateGeneralOptions.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gkafka import javanames
from gkafka.clientproperties import typed as typed_from_text
from gkafka.common import IsolationLevel
from gkafka.config import (
    ClientConfig,
    ConsumerConfig,
    NativeConsumerConfig,
    ProducerConfig,
    Secret,
    check,
    ineffective_tls_option,
    is_pem_text,
    unconfirmed_tls_option,
)
from gkafka.exceptions import ConfigurationError
from gkafka.hosts import parse_hosts
from gkafka.jaas import mechanism_of, read_login
from gkafka.javanames import BUFFERS, CLIENT_NAMES, HANDLERS, NAMES, canonical, fields_of, is_so_here, why_no_effect, why_refused
from gkafka.sasloptions import check_sasl, hide_secrets, is_of_addresses, with_region
from gkafka.spark.hints import meant_property
from gkafka.spark.values import whole_number

__all__ = [
    "CLIENT_NO_EFFECT",
    "CLIENT_READERS",
    "PROPERTIES",
    "KafkaProperties",
    "client_options",
    "known_properties",
    "translate",
    "typed",
]

FETCH_BYTES = 1 << 20
IDLE_MS = 300000  # brokers close a connection after 9 or 10 minutes

JAVA_NAMES = {
    **CLIENT_NAMES,
    "client.id": "client_id",
    "metadata.max.age.ms": "metadata_max_age_ms",
    "reconnect.backoff.ms": "reconnect_backoff_ms",
    "reconnect.backoff.max.ms": "reconnect_backoff_max_ms",
    "sasl.oauthbearer.token.endpoint.url": "sasl_oauth_token_endpoint_url",
    "sasl.oauthbearer.scope": "sasl_oauth_scope",
}
"""Properties of Java's clients and of librdkafka -> client options of gkafka."""

PROPERTY_OF = {option: name for name, option in reversed(JAVA_NAMES.items())}
"""The other way round: of several the first."""
CLIENT_OPTION = re.compile(r"\b((?:security|sasl)_[a-z_]+|allow_plaintext_credentials)\b")

NOT_FROM_TEXT = ("ssl_context", "source_address", "socket_options", "auto_create_topics", "sasl_oauth_token_provider")

NO_GROUP = "gkafka reads without a consumer group"
CLIENT_NO_EFFECT = {
    **{
        name: why
        for name, why in javanames.NO_EFFECT.items()
        if not re.search(r"serializer$|^interceptor\.classes$|^max\.poll\.records$", name)
    },
    **dict.fromkeys(("retry.backoff.ms", "retry.backoff.max.ms"), "gkafka has its own pauses between retries"),
    **dict.fromkeys(BUFFERS, "the system sizes the buffers of sockets"),
}
"""Properties of any Java client that cannot change what is read or written: warned of, with the reason."""
OF_PRODUCERS = fields_of(ProducerConfig).keys() - fields_of(NativeConsumerConfig, ClientConfig).keys()
OF_CONSUMERS = fields_of(NativeConsumerConfig).keys() - fields_of(ProducerConfig, ClientConfig).keys()
PRODUCERS = {
    *(name for name, option in NAMES.items() if option in OF_PRODUCERS),
    *("ack.timeout.ms", "acks", "enable.idempotence", "key.serializer", "linger.ms", "max.block.ms", "metadata.max.idle.ms", "partitioner"),
    *("partitioner.adaptive.partitioning.enable", "partitioner.availability.timeout.ms", "partitioner.ignore.keys", "retries"),
    *("compression.level", "transaction.two.phase.commit.enable", "transactional.id", "value.serializer"),
}
"""Properties of what writes alone: one set of options may serve both."""
NO_EFFECT = {
    **CLIENT_NO_EFFECT,
    **dict.fromkeys(sorted(PRODUCERS), "it is a property of producers, and this reads"),
    **dict.fromkeys(
        (
            *("session.timeout.ms", "heartbeat.interval.ms", "max.poll.interval.ms", "max.poll.records", "group.instance.id"),
            *("group.protocol", "group.remote.assignor", "partition.assignment.strategy", "auto.commit.interval.ms"),
            *("auto.commit.enable", "share.acknowledgement.mode", "share.acquire.mode"),
        ),
        NO_GROUP,
    ),
    "allow.auto.create.topics": "a read never creates a topic",
    "exclude.internal.topics": "internal topics are never read by pattern",
    "client.rack": "records are read from the partition's leader",
    "fetch.min.bytes": "a fetch is answered as soon as there are records",
    **dict.fromkeys(
        ("queued.min.messages", "queued.max.messages.kbytes", "fetch.error.backoff.ms"), "a task fetches what it is to read, and no more"
    ),
}
"""Those of what reads."""

REFUSED = {
    "auto.offset.reset": "Kafka option 'auto.offset.reset' is not supported. Instead set the source option 'startingOffsets' to 'earliest' or 'latest' "
    "to specify where to start. Structured Streaming manages which offsets are consumed internally, rather than relying on the "
    "kafkaConsumer to do it. This will ensure that no data is missed when new topics/partitions are dynamically subscribed. Note that "
    "'startingOffsets' only applies when a new Streaming query is started, and that resuming will always pick up from where the query left off. "
    "See the docs for more details.",
    "key.deserializer": "Kafka option 'key.deserializer' is not supported as keys are deserialized as byte arrays with ByteArrayDeserializer. "
    "Use DataFrame operations to explicitly deserialize the keys.",
    "value.deserializer": "Kafka option 'value.deserializer' is not supported as values are deserialized as byte arrays with "
    "ByteArrayDeserializer. Use DataFrame operations to explicitly deserialize the values.",
    "enable.auto.commit": "Kafka option 'enable.auto.commit' is not supported",
    "interceptor.classes": "Kafka option 'interceptor.classes' is not supported",
}
"""What the JVM connector refuses, in its words."""

NO_STORE = "gkafka reads PEM, not Java key stores"


@dataclass(frozen=True)
class KafkaProperties:
    """What the kafka.* options come to. client: keyword arguments of KafkaClient."""

    hosts: str
    client: Mapping[str, Any] = dataclasses.field(repr=False)  # may hold a pass phrase
    isolation: IsolationLevel
    check_crcs: bool
    fetch_bytes: int
    fetch_wait_ms: int
    idle_ms: int
    group_id: str | None
    warnings: tuple[str, ...]
    answer_bytes: int | None = None


def translate(given: Mapping[str, str]) -> KafkaProperties:
    """What reads: given: the properties without their "kafka.". Raises ConfigurationError."""
    values, client, warnings = client_options(given, READERS, NO_EFFECT, REFUSED, "consumer")
    if "group.id" in values:
        warnings.append(
            f"kafka.group.id={values['group.id']!r} is accepted and used for nothing: {NO_GROUP}; "
            "commitGroup names a group to which a stream commits its progress"
        )
    return KafkaProperties(
        hosts=values["bootstrap.servers"],
        client=client,
        isolation=values.get("isolation.level", IsolationLevel.READ_UNCOMMITTED),
        check_crcs=values.get("check.crcs", True),
        fetch_bytes=min(
            values.get("max.partition.fetch.bytes", values.get("fetch.message.max.bytes", FETCH_BYTES)),
            values.get("fetch.max.bytes", 1 << 30),
        ),
        fetch_wait_ms=values.get("fetch.max.wait.ms", values.get("fetch.wait.max.ms", 500)),
        idle_ms=values.get("connections.max.idle.ms", IDLE_MS),
        group_id=values.get("group.id"),
        warnings=tuple(warnings),
        answer_bytes=values.get("fetch.max.bytes"),
    )


def client_options(
    given: Mapping[str, str],
    readers: Mapping[str, Callable[[str, str], Any]],
    no_effect: Mapping[str, str],
    refused: Mapping[str, str],
    who: str,
) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """The properties as: what `readers` made of theirs, keyword arguments of KafkaClient, warnings of those in `no_effect`.

    refused: property -> what the error says. who: "consumer" or "producer", for the JVM connector's words. A property that is none of these and no
    option of KafkaClient is a ConfigurationError, and so are options of security that do not go together.
    """
    for name in given:
        if name in refused:
            raise ConfigurationError(refused[name])
    if not given.get("bootstrap.servers", "").strip():
        raise ConfigurationError(f"Option 'kafka.bootstrap.servers' must be specified for configuring Kafka {who}")
    _check_locations(given)
    values: dict[str, Any] = {}
    client: dict[str, Any] = {}
    spelled: dict[str, str] = {}
    warnings: list[str] = []
    for name, text in given.items():
        if name in readers:
            values[name] = readers[name](name, text)
        elif is_so_here(name, text):
            continue
        elif name in no_effect:
            warnings.append(f"kafka.{name} has no effect: {no_effect[name]}")
        elif (why := why_no_effect(name)) is not None:
            warnings.append(f"kafka.{name} has no effect: {why}")
        else:
            option = _client_option(name, text, [*readers, *no_effect])
            if option in client:
                raise ConfigurationError(f"kafka.{name} is given twice (it is another spelling of {option!r})")
            client[option] = typed(ClientConfig, option, name, text)
            spelled[option] = name
    mechanism = mechanism_of(client.get("sasl_mechanism"), *(values[name] for name in HANDLER_CLASSES if name in values))
    if mechanism is not None:
        client["sasl_mechanism"] = mechanism
    if "sasl.jaas.config" in given:
        warnings += _take_jaas(given["sasl.jaas.config"], client, spelled)
    _check_stores(given, values)
    if "security.protocol" in values:
        client["security_protocol"] = values["security.protocol"]
    _check_security(client, spelled)
    _check_schemes(values["bootstrap.servers"], client)
    if (region := with_region(ClientConfig(**client), values["bootstrap.servers"]).sasl_aws_region) is not None:
        client["sasl_aws_region"] = region
    _check_sasl(client)
    return values, client, warnings


def known_properties(readers: Iterable[str], no_effect: Mapping[str, str], refused: Mapping[str, str]) -> dict[str, str]:
    """All that have a meaning, or are refused by name: what an option may have been meant as whose "kafka." was forgotten. Each with the reason why it is
    not to be given, "" if it may be.
    """
    own = {field.name.replace("_", ".") for field in dataclasses.fields(ClientConfig)} - {name.replace("_", ".") for name in NOT_FROM_TEXT}
    plain = [
        name for name in (*readers, *JAVA_NAMES, *own) if not name.endswith(".extensions")
    ]  # of a token: they may be keys, which nothing shows
    return {
        **dict.fromkeys(plain, ""),
        **{name: f"kafka.{name} has no effect: {why}; leave it out" for name, why in no_effect.items()},
        **{name: f"kafka.{name}: {why.format('kafka.')}" for name, why in javanames.REFUSED.items() if name not in readers},
        **refused,
    }


# -- one property ------------------------------------------------------------------------------------------------------
def _client_option(name: str, text: str, others: Iterable[str]) -> str:
    """The field of ClientConfig that a property means. Raises ConfigurationError with what to do instead."""
    if (why := why_refused(name, text, "kafka.")) is not None:
        raise ConfigurationError(f"kafka.{name}: {why}")
    own = {field.name for field in dataclasses.fields(ClientConfig)} - set(NOT_FROM_TEXT)
    option = JAVA_NAMES.get(name) or canonical(name)
    if option not in own or name in ("auto.create.topics", "auto_create_topics"):
        known = [*JAVA_NAMES, *(spelling.replace("_", ".") for spelling in [*others, *own])]
        raise ConfigurationError(f"kafka.{name}: unknown property{meant_property(name, known)}")
    return option


def typed(config: type[Any], option: str, name: str, text: str, *, factor: int = 1) -> Any:
    """A property's text as the value of an option of this config class, checked. factor: how many of the option's unit one of the property's is.

    Raises ConfigurationError naming kafka.<name>.
    """
    if option == "sasl_oauth_extensions":
        return typed_from_text(config, option, f"kafka.{name}", text)
    meta = next(field for field in dataclasses.fields(config) if field.name == option).metadata
    value: Any = text
    if meta["low"] is not None:
        value = _number(name, text) * factor
    elif bool in meta["types"]:
        value = _boolean(name, text)
    found = check(f"kafka.{name}", value, meta)
    # Of a name that Spark's options did not know the value was hidden before anybody knew what it is.
    return hide_secrets({option: found.reveal()})[option] if isinstance(found, Secret) else found


def _number(name: str, text: str) -> int:
    try:
        return whole_number(text)
    except ValueError:
        raise ConfigurationError(f"kafka.{name}={text!r}: must be a whole number") from None


def _boolean(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ConfigurationError(f"kafka.{name}={text!r}: must be 'true' or 'false'")
    return text.lower() == "true"


def _text(name: str, text: str) -> str:
    return text.strip()


def _hosts(name: str, text: str) -> str:
    try:
        parse_hosts(text)
    except ConfigurationError as exc:  # told when the read is planned, under the name that the user wrote
        shown = f"={text!r}" if is_of_addresses(text) else ""
        raise ConfigurationError(f"kafka.{name}{shown}: {exc}") from exc
    return text.strip()


def _check_schemes(hosts: str, client: Mapping[str, Any]) -> None:
    try:
        parse_hosts(hosts, client.get("security_protocol", "PLAINTEXT"))
    except ConfigurationError as exc:
        raise ConfigurationError(f"kafka.bootstrap.servers: {by_properties(str(exc).removeprefix('hosts: '))}") from None


def _isolation(name: str, text: str) -> IsolationLevel:
    try:
        return IsolationLevel[text.upper()]
    except KeyError:
        raise ConfigurationError(f"kafka.isolation.level={text!r}: must be 'read_uncommitted' or 'read_committed'") from None


def _security_protocol(name: str, text: str) -> str:
    protocol: str = typed(ClientConfig, "security_protocol", name, text.upper())
    return protocol


def _endpoint_identification(name: str, text: str) -> str:
    if text.lower() != "https":
        raise ConfigurationError(
            f"kafka.{name}={text!r}: the broker's name is checked; kafka.ssl.check.hostname=false with kafka.allow.unverified.tls=true gives that up"
        )
    return text


def _tls_versions(name: str, text: str) -> str:
    if "TLSv1.2" not in [version.strip() for version in text.split(",")]:
        raise ConfigurationError(
            f"kafka.{name}={text!r}: gkafka offers TLS 1.2 and 1.3, and the broker chooses: leave it out, and let the brokers refuse what they must"
        )
    return text


def _bytes(name: str, text: str) -> int:
    value: int = typed(ConsumerConfig, "fetch_max_bytes", name, text)
    return value


def _wait_ms(name: str, text: str) -> int:
    value: int = typed(ConsumerConfig, "fetch_wait_max_ms", name, text)
    return value


def _idle_ms(name: str, text: str) -> int:
    value = _number(name, text)
    if value < 0:
        raise ConfigurationError(f"kafka.{name}={text!r}: must be 0 or more")
    return value


TEXTS = {"truststore": ("ssl.truststore.certificates",), "keystore": ("ssl.keystore.certificate.chain", "ssl.keystore.key")}
"""What a store may be given as, in place of its location: PEM text (KIP-651), all of it."""


def _check_stores(given: Mapping[str, str], values: Mapping[str, Any]) -> None:
    for store, texts in TEXTS.items():
        inline = [name for name in texts if name in given]
        if inline:
            _check_texts(given, values, store, inline)


def _check_locations(given: Mapping[str, str]) -> None:
    """First of all: what replaces a key store of Java's replaces its password, too."""
    for store, texts in TEXTS.items():
        location = f"ssl.{store}.location"
        if (
            location in given
            and not any(name in given for name in texts)
            and given.get(f"ssl.{store}.type", "JKS").strip().upper() != "PEM"
        ):
            raise ConfigurationError(
                f"kafka.{location}={given[location]!r}: {NO_STORE}: export it as PEM (keytool -exportcert -rfc, openssl pkcs12), "
                f"name that file, and set kafka.ssl.{store}.type=PEM"
            )


def _check_texts(given: Mapping[str, str], values: Mapping[str, Any], store: str, inline: list[str]) -> None:
    if values.get(f"ssl.{store}.type", "JKS").upper() != "PEM":
        raise ConfigurationError(f"kafka.{inline[0]}: text is PEM alone: set kafka.ssl.{store}.type=PEM")
    if f"ssl.{store}.location" in given:
        raise ConfigurationError(f"kafka.{inline[0]} beside kafka.ssl.{store}.location: both say what the {store} is; give one")
    for name in TEXTS[store]:
        if name not in given:
            raise ConfigurationError(f"kafka.{inline[0]} without kafka.{name}: a key belongs to its certificate; give both")
        if not is_pem_text(given[name]):
            raise ConfigurationError(
                f"kafka.{name}: must be PEM text, which begins with -----BEGIN; a file's name belongs in kafka.ssl.{store}.location"
            )


def _check_security(client: Mapping[str, Any], spelled: Mapping[str, str]) -> None:
    option = ineffective_tls_option(client)
    if option is not None:
        name = f"kafka.{spelled[option]}"
        raise ConfigurationError(
            f"{name} without TLS: kafka.security.protocol is PLAINTEXT, which sends everything in clear text; "
            f"set kafka.security.protocol=SSL, or leave {name} out"
        )
    option = unconfirmed_tls_option(client)
    if option is not None:
        name = f"kafka.{spelled[option]}"
        raise ConfigurationError(
            f"{name}=false gives up what makes TLS safe against whoever is in between: set kafka.allow.unverified.tls=true too if that is meant, "
            f"or leave {name} out and give the brokers' authority, kafka.ssl.truststore.location with kafka.ssl.truststore.type=PEM"
        )


def _take_jaas(text: str, client: dict[str, Any], spelled: dict[str, str]) -> list[str]:
    """Warnings of what has no effect in the line."""
    login = read_login(text, client.get("sasl_mechanism"), prefix="kafka.")
    for option, value in login.options.items():
        if option in client:
            raise ConfigurationError(f"kafka.{spelled[option]} is given in kafka.sasl.jaas.config, too: leave one out")
        client[option] = value
        spelled[option] = "sasl.jaas.config"
    return [f"kafka.sasl.jaas.config: {name} has no effect: the login modules of Java are not used" for name in login.passed]


def _check_sasl(client: Mapping[str, Any]) -> None:
    try:
        check_sasl(ClientConfig(**client))
    except ConfigurationError as exc:
        raise ConfigurationError(by_properties(str(exc))) from None


def by_properties(text: str) -> str:
    """What names options of KafkaClient, by the properties that Spark's users give; without those that no text can give."""
    text = text.replace("give sasl_oauth_token_provider, or ", "give ")
    return CLIENT_OPTION.sub(lambda found: f"kafka.{PROPERTY_OF.get(found[1], found[1].replace('_', '.'))}", text)


def _handler_class(name: str, text: str) -> str:
    """What Java needs a class for, gkafka does by itself. Another class does what nobody here knows."""
    if text.rpartition(".")[2] not in HANDLERS:
        raise ConfigurationError(f"kafka.{name}: {why_refused(name, text, 'kafka.')}")
    return text


HANDLER_CLASSES = ("sasl.client.callback.handler.class", "sasl.login.callback.handler.class")
CLIENT_READERS: dict[str, Callable[[str, str], Any]] = {
    "bootstrap.servers": _hosts,
    "security.protocol": _security_protocol,
    "sasl.jaas.config": lambda _name, text: text,  # as it is: it may be a Secret
    **dict.fromkeys(HANDLER_CLASSES, _handler_class),
    "connections.max.idle.ms": _idle_ms,
    "ssl.truststore.type": _text,
    "ssl.keystore.type": _text,
    "ssl.enabled.protocols": _tls_versions,
    "ssl.endpoint.identification.algorithm": _endpoint_identification,
}
"""Properties of any Java client that are more than a client option by another name."""
READERS: dict[str, Callable[[str, str], Any]] = {
    **CLIENT_READERS,
    "group.id": _text,
    "isolation.level": _isolation,
    "check.crcs": _boolean,
    "fetch.max.bytes": _bytes,
    "max.partition.fetch.bytes": _bytes,
    "fetch.message.max.bytes": _bytes,
    "fetch.max.wait.ms": _wait_ms,
    "fetch.wait.max.ms": _wait_ms,
}
"""Those of what reads."""
PROPERTIES = known_properties(READERS, NO_EFFECT, REFUSED)
