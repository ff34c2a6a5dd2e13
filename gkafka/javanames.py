"""What Java's clients and librdkafka call options, in one table: for the files of kafka-tools, `KafkaClient.from_properties()` and Spark.

A property is an option of gkafka by another name (NAMES; also each option of `gkafka.config` with dots for underscores), says what is so here anyway
(SO_HERE), has no effect here (NO_EFFECT, with the reason), or cannot be had (REFUSED, with the next step). A name that is nothing of this is a mistake.
Source: librdkafka's CONFIGURATION.md, and the classes ...Config of kafka-clients; tests/reference/client_names.json has the names of both.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gkafka.config import ClientConfig, NativeConsumerConfig, ProducerConfig

__all__ = [
    "BUFFERS",
    "CLIENT_NAMES",
    "COMPRESSION_LEVELS",
    "FACTORS",
    "HANDLERS",
    "IAM_HANDLER",
    "NAMES",
    "NOT_FROM_TEXT",
    "NO_EFFECT",
    "OPTIONS",
    "REFUSED",
    "SO_HERE",
    "UNESCAPED",
    "canonical",
    "dotted",
    "fields_of",
    "is_from_text",
    "is_known",
    "is_so_here",
    "may_be_told",
    "meant",
    "nearest",
    "spellings",
    "why_no_effect",
    "why_refused",
]

# -- other names ------------------------------------------------------------------------------------------------------------------
CLIENT_NAMES = {
    "request.timeout.ms": "socket_timeout_ms",
    "default.api.timeout.ms": "api_timeout_ms",
    "socket.connection.setup.timeout.ms": "connect_timeout_ms",
    "ssl.truststore.location": "ssl_cafile",
    "ssl.truststore.certificates": "ssl_cafile",
    "ssl.keystore.location": "ssl_certfile",
    "ssl.keystore.certificate.chain": "ssl_certfile",
    "ssl.keystore.key": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
    "ssl.cipher.suites": "ssl_ciphers",
    "sasl.oauthbearer.client.credentials.client.id": "sasl_oauth_client_id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl_oauth_client_secret",
    # librdkafka's
    "ssl.ca.location": "ssl_cafile",
    "ssl.ca.pem": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.certificate.pem": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.pem": "ssl_keyfile",
    "ssl.crl.location": "ssl_crlfile",
    "enable.ssl.certificate.verification": "tls_verify",
    "https.ca.location": "sasl_oauth_cafile",
    "sasl.oauthbearer.extensions": "sasl_oauth_extensions",
    "socket.keepalive.enable": "keepalive",
    "topic.metadata.refresh.interval.ms": "metadata_max_age_ms",
    "receive.message.max.bytes": "max_response_bytes",
    "broker.version.fallback": "broker_version",
}
"""Of any client: property -> option of ClientConfig. Java's stores must be PEM, files or text."""
COMPRESSION_LEVELS = {f"compression.{codec}.level": codec for codec in ("gzip", "lz4", "zstd")}
NAMES = {
    **CLIENT_NAMES,
    **dict.fromkeys(COMPRESSION_LEVELS, "compression_level"),
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
    "auto.commit.enable": "auto_commit",
    "partition.assignment.strategy": "assignors",
    "group.id": "group",
    "allow.auto.create.topics": "auto_create_topics",
    "queued.min.messages": "queued_max_messages",
    "queued.max.messages.kbytes": "queued_max_bytes",
}
"""The same of producers and consumers, too; "group" is no option but an argument of get_consumer()."""
FACTORS = {"queue.buffering.max.kbytes": 1024, "queued.max.messages.kbytes": 1024}
"""Name -> how many of its option's unit one of its own is."""
BUFFERS = {
    "receive.buffer.bytes": "receive",
    "socket.receive.buffer.bytes": "receive",
    "send.buffer.bytes": "send",
    "socket.send.buffer.bytes": "send",
}
"""Sizes of a socket's buffers."""
UNESCAPED = (
    *(
        "sasl_username",
        "sasl_password",
        "ssl_password",
        "sasl_oauth_client_id",
        "sasl_oauth_client_secret",
        "proxy_url",
        "sasl_oauth_proxy_url",
    ),
    *("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_crlfile", "sasl_oauth_cafile"),
)
"""Options whose values librdkafka takes with their backslashes as they stand; by Java's rules one begins an escape, or continues the line."""

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
IN_ANY_CASE = ("isolation_level", "auto_offset_reset", "group_protocol", "compression")
"""Options whose values Java takes in capitals, too."""
PLAIN_SERIALIZERS = r".*\.(String|ByteArray|Bytes)(S|Des)erializer"
SO_HERE = {
    "client.dns.lookup": "use_all_dns_ips",
    "broker.address.family": "any",
    "ssl.endpoint.identification.algorithm": "(?i)https",
    "ssl.truststore.type": "(?i) *pem *",
    "ssl.keystore.type": "(?i) *pem *",
    "ssl.protocol": r"TLS(v1\.3)?",
    "ssl.enabled.protocols": r" *(TLSv1\.2 *, *TLSv1\.3|TLSv1\.3 *, *TLSv1\.2) *",
    **dict.fromkeys(("key.serializer", "value.serializer", "key.deserializer", "value.deserializer"), PLAIN_SERIALIZERS),
    **dict.fromkeys(
        ("sasl.login.callback.handler.class", "sasl.client.callback.handler.class"),
        r"(.*\.)?(IAMClientCallbackHandler|(IAM)?OAuthBearerLoginCallbackHandler|JaasClientOauthLoginCallbackHandler)",
    ),
    "sasl.login.class": r"org\.apache\.kafka\.common\.security\..*",
    "compression.level": "-1",
    "compression.codec": "inherit",
    "sasl.oauthbearer.method": "(?i)oidc",
    "sasl.oauthbearer.grant.type": "(?i)client_credentials",
    "sasl.oauthbearer.metadata.authentication.type": "(?i)none",
    "enable.sasl.oauthbearer.unsecure.jwt": "(?i)false",
    "socket.nagle.disable": "(?i)true",
    "api.version.request": "(?i)true",
    "group.protocol.type": "consumer",
    "metadata.recovery.strategy": "(?i)rebootstrap",
    "metric.reporters": r"(.*\.JmxReporter)?",
    "interceptor.classes": "",
    "security.providers": "",
    "ssl.cipher.suites": "",
    "config.providers": "",
    "statistics.interval.ms": "0",
    "debug": "",
    "partitioner.class": "",
    "partitioner.ignore.keys": "(?i)false",
    "transaction.two.phase.commit.enable": "(?i)false",
    "topic.metadata.refresh.interval.ms": "-1",
    "enable.partition.eof": "(?i)false",
}
"""What needs no option, because it is so: name -> the values of which that is true."""
IAM_HANDLER = "IAMOAuthBearerLoginCallbackHandler"
HANDLERS = ("IAMClientCallbackHandler", "OAuthBearerLoginCallbackHandler", IAM_HANDLER, "JaasClientOauthLoginCallbackHandler")
"""Classes of Java whose work gkafka does by itself."""

# -- names without a counterpart --------------------------------------------------------------------------------------------------
IN_CODE = "it is set in a program's code"
NO_GROUP_SETTING = "gkafka does that by itself"
METRICS = "gkafka has no such metrics"
LOGS = "gkafka logs by Python's logging"
REGISTRY = "gkafka asks no schema registry"
CONNECT, STREAMS, BROKERS = "it is of Kafka Connect's workers", "it is of Kafka Streams", "it is of brokers"
TICKETS = "tickets are those of the environment"
BOUNDED = (
    "records are bounded by their bytes here, not by their number: buffer_bytes, in bytes, or queue.buffering.max.kbytes is that bound"
)
NOTHING_ANY_MORE = "librdkafka itself makes no use of it"
PASSED: dict[tuple[str, ...], str] = {
    ("client.dns.lookup", "broker.address.family"): "all addresses of a name are tried",
    ("broker.address.ttl",): "a name is looked up for each connection",
    ("socket.connection.setup.timeout.max.ms",): "each attempt to connect has socket.connection.setup.timeout.ms",
    ("metadata.recovery.strategy", "metadata.recovery.rebootstrap.trigger.ms"): (
        "a client whose brokers are away asks the bootstrap servers, too, always"
    ),
    ("connections.max.idle.ms",): "a connection stays open until the broker closes it, and is opened again when it is needed",
    ("topic.metadata.refresh.fast.interval.ms", "topic.metadata.refresh.sparse", "topic.metadata.propagation.max.ms"): (
        "metadata are asked for when they are needed"
    ),
    ("topic.blacklist", "exclude.internal.topics"): "the topics that are named are used",
    ("ssl.protocol",): "TLS 1.2 and 1.3 are spoken",
    (
        *("ssl.provider", "ssl.providers", "ssl.keymanager.algorithm", "ssl.trustmanager.algorithm", "ssl.secure.random.implementation"),
        *("ssl.ca.certificate.stores", "security.providers"),
    ): "TLS is that of Python's ssl module",
    (
        *("sasl.oauthbearer.clock.skew.seconds", "sasl.oauthbearer.expected.audience", "sasl.oauthbearer.expected.issuer"),
        *("sasl.oauthbearer.jwks.endpoint.refresh.ms", "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"),
        *("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", "sasl.oauthbearer.jwks.endpoint.url"),
        *("sasl.oauthbearer.scope.claim.name", "sasl.oauthbearer.sub.claim.name"),
    ): "a broker checks tokens, a client does not",
    ("sasl.oauthbearer.header.urlencode",): "id and secret are URL-encoded, always, as RFC 6749 has it",
    ("sasl.oauthbearer.method", "sasl.oauthbearer.config", "enable.sasl.oauthbearer.unsecure.jwt"): (
        "tokens come from sasl.oauthbearer.token.endpoint.url; gkafka makes no unsigned ones"
    ),
    (
        *("sasl.login.refresh.window.factor", "sasl.login.refresh.window.jitter", "sasl.login.refresh.min.period.seconds"),
        *("sasl.login.refresh.buffer.seconds", "sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms"),
        *("sasl.login.retry.backoff.ms", "sasl.login.retry.backoff.max.ms"),
    ): "gkafka asks for a token when four fifths of the last one's life are over",
    (
        *("sasl.kerberos.kinit.cmd", "sasl.kerberos.min.time.before.relogin", "sasl.kerberos.ticket.renew.jitter"),
        "sasl.kerberos.ticket.renew.window.factor",
    ): TICKETS,
    ("sasl.kerberos.keytab", "sasl.kerberos.principal"): f"{TICKETS}: of kinit, or KRB5_CLIENT_KTNAME names the key table",
    (
        *("auto.include.jmx.reporter", "metric.reporters", "metrics.num.samples", "metrics.recording.level"),
        *("metrics.sample.window.ms", "enable.metrics.push"),
    ): METRICS,
    ("statistics.interval.ms", "enable.random.seed", "builtin.features", "plugin.library.paths"): (
        "it is librdkafka's own; client.stats() gives statistics at any time"
    ),
    ("debug", "log.level", "log.queue", "log.thread.name", "log.connection.close"): LOGS,
    (
        *("error.cb", "throttle.cb", "stats.cb", "log.cb", "background.event.cb", "socket.cb", "connect.cb", "closesocket.cb", "open.cb"),
        *("resolve.cb", "ssl.certificate.verify.cb", "consume.cb", "rebalance.cb", "offset.commit.cb", "dr.cb", "dr.msg.cb"),
        *("partitioner.cb", "msg.order.cmp", "opaque", "default.topic.conf", "enabled.events", "interceptors"),
        *("ssl.ca", "ssl.key", "ssl.certificate", "ssl.engine.callback.data", "internal.termination.signal"),
    ): IN_CODE,
    ("api.version.request", "api.version.request.timeout.ms", "api.version.fallback.ms"): "brokers are asked which versions they speak",
    ("client.software.name", "client.software.version"): "gkafka says what it is",
    (
        *("topic.metadata.refresh.fast.cnt", "socket.blocking.max.ms", "reconnect.backoff.jitter.ms", "produce.offset.report"),
        *("offset.store.path", "offset.store.sync.interval.ms", "offset.store.method"),
    ): NOTHING_ANY_MORE,
    ("message.copy.max.bytes", "socket.max.fails", "socket.nagle.disable", "consume.callback.max.messages"): NO_GROUP_SETTING,
    # of consumers
    ("max.poll.records", "enable.partition.eof", "fetch.queue.backoff.ms", "share.acknowledgement.mode", "share.acquire.mode"): (
        "who consumes says how many records it takes, and sees the end of a partition"
    ),
    ("enable.auto.offset.store",): "what is committed is what the program has finished",
    ("group.protocol.type", "coordinator.query.interval.ms", "internal.leave.group.on.close", "rebalance.timeout.ms"): NO_GROUP_SETTING,
    ("internal.throw.on.fetch.stable.offset.unsupported",): NO_GROUP_SETTING,
    ("key.deserializer", "value.deserializer", "key.serializer", "value.serializer"): (
        "gkafka loads no Java class; a program gives a callable for it, and what has none reads and writes bytes"
    ),
    ("interceptor.classes",): "gkafka loads no Java class",
    # of producers
    ("queue.buffering.max.messages", "batch.num.messages"): BOUNDED,
    (
        "queue.buffering.backpressure.threshold",
        "queuing.strategy",
        "delivery.report.only.error",
        "enable.gapless.guarantee",
    ): NO_GROUP_SETTING,
    ("partitioner.adaptive.partitioning.enable", "sticky.partitioning.linger.ms"): (
        "of two partitions the one with the shorter queue is taken, always"
    ),
    ("partitioner.availability.timeout.ms",): "partitions without a leader get no records without a key",
}
PREFIXES = {
    **dict.fromkeys(("schema.registry.", "basic.auth.", "bearer.auth.", "auto.register.", "use.latest.", "avro.", "json."), REGISTRY),
    **dict.fromkeys(
        ("specific.avro.", "specific.protobuf.", "normalize.schemas", "latest.compatibility.", "proxy.host", "proxy.port"), REGISTRY
    ),
    "confluent.": "it is of Confluent's own clients",
    **dict.fromkeys(("offset.storage.", "config.storage.", "status.storage.", "offset.flush.", "rest.", "plugin."), CONNECT),
    **dict.fromkeys(
        ("connector.client.", "key.converter", "value.converter", "internal.key.", "internal.value.", "header.converter"), CONNECT
    ),
    **dict.fromkeys(("default.key.", "default.value.", "default.deserialization.", "default.production.", "num.stream."), STREAMS),
    **dict.fromkeys(("rocksdb.", "state.", "processing.", "cache.max.", "statestore.", "num.standby.", "application.server"), STREAMS),
    **dict.fromkeys(("topology.", "commit.interval.ms", "replication.factor", "max.task.idle.ms", "poll.ms", "buffered.records."), STREAMS),
    **dict.fromkeys(("broker.id", "node.id", "process.roles", "controller.", "listeners", "listener.", "advertised."), BROKERS),
    **dict.fromkeys(("inter.broker.", "log.", "num.", "offsets.topic.", "transaction.state.log.", "group.initial.", "zookeeper."), BROKERS),
    **dict.fromkeys(("socket.request.", "delete.topic.enable", "super.users", "authorizer.", "sasl.enabled.mechanisms"), BROKERS),
    **dict.fromkeys(("sasl.mechanism.inter.broker.", "ssl.client.auth", "auto.create.topics.enable", "min.insync.replicas"), BROKERS),
    "application.id": f"{STREAMS}; a group is named by group.id",
}
"""How names begin that have no effect -> the reason."""
FOR_REGISTRY = re.compile(
    r"(key|value)\.(subject\.name\.strategy|schema\.id\.(de)?serializer|converter)(\..*)?|subject\.name\.strategy|context\.name\.strategy"
)
OPTIONS = {f.name for config in (ClientConfig, ProducerConfig, NativeConsumerConfig) for f in dataclasses.fields(config)}
NO_EFFECT = {
    name: why
    for names, why in PASSED.items()
    for name in names
    if name.replace(".", "_") not in OPTIONS or why == IN_CODE or name.endswith("serializer")
}
"""Properties that cannot change what is read or written, nor how safely, or that have no meaning outside of Java and librdkafka: name -> the reason. An
option of gkafka's with the same name counts before it."""

NO_STORE = "gkafka reads PEM, not Java key stores"
NO_CLASS = "gkafka loads no Java class: leave it out"
OPENSSL = "TLS offers what Python's OpenSSL is configured for: leave it out, or say it in OpenSSL's own configuration (OPENSSL_CONF)"
BY_SECRET = (
    "tokens are asked for by an id and its secret: give {0}sasl.oauthbearer.client.credentials.client.id and ...client.secret, or, in a program, "
    "sasl_oauth_token_provider"
)
ASSERTION = "sasl.oauthbearer.assertion."
REFUSED = {
    **dict.fromkeys(
        (
            *(f"{ASSERTION}{name}" for name in ("algorithm", "file", "template.file", "jwt.template.file")),
            *(f"{ASSERTION}private.key.{name}" for name in ("file", "passphrase", "pem")),
            *(f"{ASSERTION}claim.{name}" for name in ("aud", "exp.seconds", "iss", "jti.include", "nbf.seconds", "sub")),
            "sasl.oauthbearer.grant.type",
        ),
        BY_SECRET,
    ),
    "sasl.oauthbearer.metadata.authentication.type": "gkafka asks no cloud for tokens but Amazon's, with {0}sasl.mechanism=AWS_MSK_IAM; a program gives "
    "sasl_oauth_token_provider",
    **dict.fromkeys(
        (
            *("ssl.engine.factory.class", "sasl.login.class"),
            *("sasl.oauthbearer.jwt.retriever.class", "sasl.oauthbearer.jwt.validator.class"),
        ),
        NO_CLASS,
    ),
    **dict.fromkeys(("ssl.engine.location", "ssl.engine.id"), "gkafka reads keys from PEM files: give {0}ssl.keyfile"),
    **dict.fromkeys(("ssl.curves.list", "ssl.sigalgs.list"), OPENSSL),
    "config.providers": f"{NO_CLASS}, and give the values themselves",
    "metadata.broker.list": "the brokers are named by {0}bootstrap.servers",
    "bootstrap.controllers": "administration goes to the brokers here: give {0}bootstrap.servers",
    "https.ca.pem": "the authorities of the token endpoint are a file: give {0}https.ca.location",
    "oauthbearer.token.refresh.cb": "give sasl_oauth_token_provider, a callable that returns a token",
    "oauth.cb": "give sasl_oauth_token_provider, a callable that returns a token",
    **dict.fromkeys(("ssl.truststore.type", "ssl.keystore.type"), f"{NO_STORE}: export the store as PEM, and set the type to PEM"),
    "ssl.truststore.password": f"{NO_STORE}: a PEM file of certificates has no password; leave it out",
    "ssl.keystore.password": f"{NO_STORE}: give the pass phrase of the key in {{0}}ssl.key.password",
    "partitioner.ignore.keys": "a key says which partition a record goes to: leave the key out, or name the partition of each record",
    "transaction.two.phase.commit.enable": "gkafka has no part in commits of others: leave it out",
    "ssl.enabled.protocols": "TLS 1.2 and 1.3 are offered, and the broker chooses: leave it out, and let the brokers refuse what they must",
    "ssl.endpoint.identification.algorithm": "the broker's name is checked; {0}ssl.check.hostname=false with {0}allow.unverified.tls=true gives that up",
}
"""What cannot be had, and would change what is read or written, or how safely -> the next step; {0} stands before the names of properties."""
GOOGLE = "sasl.oauthbearer.token.endpoint.url=http://localhost:14293 says where; a program may give sasl_oauth_token_provider"
JAVA_CIPHERS = re.compile(r"\bTLS_|_WITH_")
NAME, LONGEST_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]*"), 60
"""What the names of options look like."""
NOT_FROM_TEXT = ("ssl_context", "socket_options", "sasl_oauth_token_provider", "interceptors")


# -- questions, each of a name as dotted() gives it -------------------------------------------------------------------------------
def fields_of(*configs: type[Any]) -> dict[str, dataclasses.Field[Any]]:
    """{option: field} of these, or of all dataclasses of options."""
    return {f.name: f for config in configs or (ClientConfig, ProducerConfig, NativeConsumerConfig) for f in dataclasses.fields(config)}


def dotted(name: str) -> str:
    """A name as all tables here have it, however it was spelled: whoever makes a source of properties takes this."""
    return name.replace("_", ".").replace("-", ".")


def is_known(name: str) -> bool:
    """Is it the name of a property: of an option, or of what has no effect, cannot be had, or is so here anyway?"""
    name, option = dotted(name), canonical(name)
    return option in {*OPTIONS, *NAMES.values(), "bootstrap_servers"} or name in {
        *SO_HERE,
        *NO_EFFECT,
        *REFUSED,
        *BUFFERS,
        "sasl.jaas.config",
    }


def canonical(name: str) -> str:
    """The name of the option that a spelling means; the spelling itself, with underscores, if it is none.

    A name that begins with "topic.", as kcat has it for options of topics, is the one without it.
    """
    if name in ALIASES:
        return ALIASES[name]
    name = dotted(name)
    if name in NAMES:
        return NAMES[name]
    if name.startswith("topic.") and name not in NO_EFFECT:
        inner = canonical(name.removeprefix("topic."))
        if inner in {*OPTIONS, *NAMES.values()}:
            return inner
    return name.replace(".", "_")


def meant(option: str, text: str) -> str:
    """A value by the name that it has here."""
    if option in IN_ANY_CASE:
        text = text.lower()
    return MEANT.get(option, {}).get(text, text)


def is_from_text(config: type[Any], option: str) -> bool:
    """Can an option of this dataclass be given as text? What takes a callable alone cannot."""
    field = {f.name: f for f in dataclasses.fields(config)}.get(option)
    if field is None or option in NOT_FROM_TEXT:
        return False
    return field.metadata["types"] != (Callable,) or bool(field.metadata["names"])


def is_so_here(name: str, text: str) -> bool:
    """Does the property say what is so anyway?"""
    pattern = SO_HERE.get(name)
    return pattern is not None and re.fullmatch(pattern, text) is not None


def why_no_effect(name: str, *, given: Mapping[str, Any] | None = None) -> str | None:
    """Why a property has no effect, whatever its value is; None for one that has, or that is unknown. given: what stands beside it."""
    if name in NO_EFFECT:
        return NO_EFFECT[name]
    if FOR_REGISTRY.fullmatch(name):
        return REGISTRY
    if name in COMPRESSION_LEVELS:
        codec = str((given or {}).get("compression.type", (given or {}).get("compression.codec", "none"))).lower()
        return None if codec == COMPRESSION_LEVELS[name] else f"compression.type is {codec}"
    return next((why for prefix, why in PREFIXES.items() if name.startswith(prefix) and canonical(name) not in OPTIONS), None)


def why_refused(name: str, text: Any, prefix: str = "") -> str | None:
    """Why a property cannot be had, with the next step; None for one that can. prefix: what stands before the names of properties, as "kafka."."""
    if name in ("sasl.client.callback.handler.class", "sasl.login.callback.handler.class"):
        if isinstance(text, str) and text.endswith("GcpLoginCallbackHandler"):
            return f"gkafka loads no Java class, leave it out: Google's server for tokens on this machine gives them; {prefix}{GOOGLE}"
        known = " and ".join(HANDLERS)
        return f"gkafka loads no Java class but does what {known} do; give the credentials by {prefix}sasl.jaas.config or the options of KafkaClient"
    if name == "ssl.cipher.suites":
        if not isinstance(text, str) or not JAVA_CIPHERS.search(text):
            return None
        return f"Java's names of cipher suites are not those of Python's TLS: give {prefix}ssl.ciphers, in OpenSSL's words"
    if name == "ssl.enabled.protocols" and isinstance(text, str) and re.search(r"\bTLSv1\.2\b", text):
        return None
    why = REFUSED.get(name)
    return None if why is None else why.format(prefix)


def may_be_told(name: str, *, is_pair: bool) -> bool:
    """Is it the name of an option, or meant as one? Else it may be a line of a key, or a password, that stands where a name is read."""
    if len(name) > LONGEST_NAME or NAME.fullmatch(name) is None:
        return False
    return is_pair or is_known(name) or bool(nearest(name, spellings()))


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The one of these names that may be meant."""
    return next(iter(difflib.get_close_matches(dotted(name), list(known), n=1, cutoff=0.7)), None)


def spellings() -> list[str]:
    """The names that a file may have, with dots."""
    own = [
        f.name.replace("_", ".")
        for config in (ClientConfig, ProducerConfig, NativeConsumerConfig)
        for f in dataclasses.fields(config)
        if is_from_text(config, f.name)
    ]
    return [*own, *NAMES, *BUFFERS, "bootstrap.servers", "max.poll.records", "sasl.jaas.config"]


ALIASES = {alias: f.name for f in fields_of().values() for alias in f.metadata["aliases"]}
