"""What the options of the connection come to: the command line before --set, that before the file, that before the environment.

Passwords come from a file (--config, --sasl-password-file), the environment (KAFKA_SASL_PASSWORD), or are asked for on the terminal; never from
the command line, which everybody on the machine can read and the shell keeps.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

import click

from gkafka.cli.output import clean
from gkafka.cli.properties import parse_pair, parse_properties
from gkafka.client import KafkaClient
from gkafka.config import ClientConfig, NativeConsumerConfig, ProducerConfig, Secret, check
from gkafka.exceptions import ConfigurationError
from gkafka.hosts import parse_source_address
from gkafka.jaas import client_options as jaas_options

__all__ = ["Settings", "open_client", "settle"]

DEFAULT_HOSTS = "localhost:9092"
TIMEOUT_S = 20.0
CONNECT_S = 5.0
GROUP = ("group.id", "group_id")
JAVA_NAMES = {
    "request.timeout.ms": "socket_timeout_ms",
    "default.api.timeout.ms": "api_timeout_ms",
    "socket.connection.setup.timeout.ms": "connect_timeout_ms",
    "ssl.truststore.location": "ssl_cafile",
    "ssl.truststore.certificates": "ssl_cafile",
    "ssl.keystore.location": "ssl_certfile",
    "ssl.keystore.certificate.chain": "ssl_certfile",
    "ssl.keystore.key": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
    "sasl.oauthbearer.client.credentials.client.id": "sasl_oauth_client_id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl_oauth_client_secret",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "broker.version.fallback": "broker_version",
    "max.in.flight.requests.per.connection": "max_in_flight",
    "compression.type": "compression",
    "batch.size": "batch_bytes",
    "buffer.memory": "buffer_bytes",
    "max.request.size": "max_request_bytes",
    "delivery.timeout.ms": "delivery_timeout_ms",
    "transaction.timeout.ms": "transaction_timeout_ms",
    "fetch.max.wait.ms": "fetch_wait_max_ms",
    "isolation.level": "isolation_level",
}
"""Names of the Java clients and of librdkafka whose options have another name here."""
NOT_FROM_TEXT = ("ssl_context", "socket_options", "sasl_oauth_token_provider", "interceptors")
WITHOUT_EFFECT = (
    *("client.dns.lookup", "security.providers", "metric.reporters", "key.deserializer", "value.deserializer", "key.serializer"),
    *("value.serializer", "session.timeout.ms", "heartbeat.interval.ms", "max.poll.interval.ms", "max.poll.records", "enable.auto.commit"),
    *("partition.assignment.strategy", "receive.buffer.bytes", "send.buffer.bytes", "sasl.login.callback.handler.class"),
    *("sasl.client.callback.handler.class", "ssl.protocol", "ssl.enabled.protocols"),
)
"""Properties of applications that use the same file: they are about nothing that a command does."""
STORE_TYPES = ("ssl.truststore.type", "ssl.keystore.type")
NO_STORE = "gkafka reads PEM files, not Java key stores: export it (openssl pkcs12 -in STORE -nodes -out FILE.pem)"
SECRETS = {
    "sasl_password": "KAFKA_{}SASL_PASSWORD",
    "ssl_password": "KAFKA_{}SSL_PASSWORD",
    "sasl_oauth_client_secret": "KAFKA_{}OAUTH_CLIENT_SECRET",
}
"""Option -> the variable of the environment that may have it; {} is the prefix of another cluster ("TO_")."""
PASSWORD_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclasses.dataclass(frozen=True)
class Settings:
    """A cluster as the command line names it. client: keyword arguments of KafkaClient; beside: what the file has for producers and
    consumers, {option: value}; timeout_s: how long a command tries."""

    hosts: str
    zookeeper: str | None
    timeout_s: float
    client: Mapping[str, Any] = dataclasses.field(repr=False)
    beside: Mapping[str, Any] = dataclasses.field(repr=False)

    def of(self, config: type[Any]) -> dict[str, Any]:
        """What of `beside` a dataclass of options takes."""
        names = {f.name for f in dataclasses.fields(config)}
        return {name: value for name, value in self.beside.items() if name in names}


def open_client(settings: Settings, *, debug: bool = False, **options: Any) -> KafkaClient:
    """The client, which connects at its first call. It tells failures by raising, so its log is silent unless debug."""
    import logging

    logging.getLogger("gkafka").setLevel(logging.DEBUG if debug else logging.CRITICAL)
    if debug:
        logging.basicConfig(level=logging.DEBUG, format="%(asctime)s %(name)s %(message)s")
    timeout_ms = settings.timeout_s * 1000
    defaults: dict[str, Any] = {
        "client_id": "kafka-tools",
        "handler": "threading",
        "auto_create_topics": False,
        "exclude_internal_topics": False,
        "api_timeout_ms": timeout_ms,
        "connect_timeout_ms": min(timeout_ms, CONNECT_S * 1000),
    }
    return KafkaClient(settings.hosts, zookeeper_hosts=settings.zookeeper, **{**defaults, **settings.client, **options})


def settle(given: Mapping[str, Any], *, prefix: str = "", beside: tuple[type[Any], ...] = ()) -> Settings:
    """What the options (by the names of `connection.CONNECTION`), the file and the environment come to. Raises ConfigurationError."""
    found = _Found(prefix)
    if "config" in given:
        found.take_file(given["config"])
    for text in given.get("set", ()):
        found.take_pair(text, beside)
    for name in ("broker_version", "security_protocol", "sasl_mechanism", "sasl_username", "ssl_cafile", "ssl_certfile", "ssl_keyfile"):
        if name in given:
            found.check_not_a_key(f"--{name.replace('_', '-')}", given[name])
            found.client[name] = given[name].upper() if name == "security_protocol" else given[name]
    for name in ("sasl_password", "ssl_password"):
        if f"{name}_file" in given:
            found.client[name] = Secret(_only_line(given[f"{name}_file"]))
    found.take_environment()
    found.ask()
    # An empty -b is most likely a variable that is not set: it must not mean localhost.
    hosts = given["hosts"] if "hosts" in given else found.hosts or os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "").strip() or DEFAULT_HOSTS
    if "zookeeper" in given and "hosts" in given:
        raise ConfigurationError("--bootstrap-server and --zookeeper both say where the brokers are: leave one out")
    timeout_s = given.get("timeout") or found.client.get("api_timeout_ms", TIMEOUT_S * 1000) / 1000
    found.client.pop("api_timeout_ms", None)
    return Settings(hosts, given.get("zookeeper"), timeout_s, found.client, found.beside)


class _Found:
    """What has been found so far; whoever comes later overwrites it."""

    def __init__(self, prefix: str) -> None:
        self._dashed = f"--{prefix}-" if prefix else "--"
        self._variable = f"{prefix.upper()}_" if prefix else ""
        self.hosts = ""
        self.client: dict[str, Any] = {}
        self.beside: dict[str, Any] = {}

    # -- where options come from ---------------------------------------------------------------------------------------------
    def take_file(self, path: str) -> None:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            given = parse_properties(file.read())
        _check_stores(path, given)
        for name, text in given.items():
            if name != "sasl.jaas.config":
                self._take(f"{path}: {name}", name, text.strip(), (ProducerConfig, NativeConsumerConfig))
        if "sasl.jaas.config" in given:
            self.client |= jaas_options(given["sasl.jaas.config"], self.client.get("sasl_mechanism"))

    def take_pair(self, text: str, beside: tuple[type[Any], ...]) -> None:
        where = f"{self._dashed}set"
        name, value = parse_pair(where, text)
        option = _canonical(name)
        if name == "sasl.jaas.config" or option in SECRETS or (option == "proxy_url" and "@" in value):
            raise ConfigurationError(f"{where} {name}: {self._instead(option)}")
        self.check_not_a_key(f"{where} {name}", value)
        self._take(f"{where} {name}", name, value, beside, strict=True)

    def check_not_a_key(self, where: str, value: str) -> None:
        if "PRIVATE KEY-----" in value:
            raise ConfigurationError(
                f"{where}: a key on the command line is seen by everybody on this machine and kept by the shell; give the name of its file, or give "
                f"it in a file that {self._dashed}config names"
            )

    def _instead(self, option: str) -> str:
        ways = [f"in a file that {self._dashed}config names"]
        if option in SECRETS:
            ways.append("in " + SECRETS[option].format(self._variable))
        if option in ("sasl_password", "ssl_password"):
            ways.insert(0, f"in a file that {self._dashed}{option.replace('_', '-')}-file names")
        return f"a password on the command line is seen by everybody on this machine and kept by the shell; give it {', or '.join(ways)}"

    def take_environment(self) -> None:
        for option, variable in SECRETS.items():
            text = os.environ.get(variable.format(self._variable))
            if text and option not in self.client and self._needs(option):
                self.client[option] = Secret(text)

    def ask(self) -> None:
        """Ask for the password where a user has none, on a terminal."""
        if "sasl_username" in self.client and self._needs("sasl_password") and "sasl_password" not in self.client and sys.stdin.isatty():
            user = clean(self.client["sasl_username"])
            self.client["sasl_password"] = Secret(click.prompt(f"Password of {user}", hide_input=True, err=True))

    def _needs(self, option: str) -> bool:
        """Would a secret that lies in the environment be used? It is there for other commands, too."""
        if option == "ssl_password":
            return self.client.get("ssl_certfile") is not None
        if option == "sasl_password":
            return self.client.get("sasl_mechanism") in PASSWORD_MECHANISMS and "SASL" in self.client.get("security_protocol", "")
        return self.client.get("sasl_mechanism") == "OAUTHBEARER" and "sasl_oauth_token_endpoint_url" in self.client

    # -- one option ----------------------------------------------------------------------------------------------------------
    def _take(self, where: str, name: str, text: str, beside: tuple[type[Any], ...], *, strict: bool = False) -> None:
        """strict: what does nothing is refused, too; a file may be another program's as well."""
        option = _canonical(name)
        if option in ("bootstrap_servers", "metadata_broker_list"):
            self.hosts = text
        elif _is_from_text(ClientConfig, option):
            self.client[option] = _typed(ClientConfig, option, where, text)
        elif found := [config for config in beside if _is_from_text(config, option)]:
            self.beside[option] = _typed(found[0], option, where, text)
        elif name in GROUP and not strict:
            self.beside["group"] = text
        elif name not in STORE_TYPES and not self._is_name_check(where, name, text) and (strict or name not in WITHOUT_EFFECT):
            raise ConfigurationError(f"{where}: {_unknown(name, option, beside)}")

    def _is_name_check(self, where: str, name: str, text: str) -> bool:
        if name != "ssl.endpoint.identification.algorithm":
            return False
        if text.lower() != "https":
            raise ConfigurationError(
                f"{where}={text!r}: the broker's name is checked; ssl.check.hostname=false with allow.unverified.tls=true gives that up"
            )
        return True


def _fields(config: type[Any]) -> dict[str, dataclasses.Field[Any]]:
    return {f.name: f for f in dataclasses.fields(config)}


def _is_from_text(config: type[Any], option: str) -> bool:
    """Can an option of this dataclass be given as text? What takes a callable alone cannot."""
    field = _fields(config).get(option)
    return field is not None and option not in NOT_FROM_TEXT and field.metadata["types"] != (Callable,)


def _canonical(name: str) -> str:
    """The name of the option that a spelling means."""
    for config in (ClientConfig, ProducerConfig, NativeConsumerConfig):
        for f in dataclasses.fields(config):
            if name in f.metadata["aliases"]:
                return f.name
    return JAVA_NAMES.get(name.replace("_", "."), name.replace(".", "_").replace("-", "_"))


def _unknown(name: str, option: str, beside: tuple[type[Any], ...]) -> str:
    users: tuple[tuple[type[Any], str], ...] = ((ProducerConfig, "produce"), (NativeConsumerConfig, "consume"))
    for config, user in users:
        if _is_from_text(config, option) and config not in beside:
            return f"is an option of {user}: here it would do nothing, leave it out"
    if name in WITHOUT_EFFECT or option in NOT_FROM_TEXT:
        return "has no effect here: leave it out"
    here: tuple[type[Any], ...] = (ClientConfig, *beside)
    known = [*(f.replace("_", ".") for config in here for f in _fields(config)), *JAVA_NAMES]
    near = difflib.get_close_matches(name.replace("_", "."), known, n=1, cutoff=0.7)
    return f"unknown option; did you mean {near[0]!r}?" if near else "unknown option; docs/options.md lists all"


def _typed(config: type[Any], option: str, where: str, text: str) -> Any:
    """The value of an option that was given as text."""
    meta = _fields(config)[option].metadata
    value: Any = text
    if option == "source_address":
        return parse_source_address(text)
    if option == "security_protocol":
        value = text.upper()
    elif option == "sasl_oauth_extensions":
        return dict(parse_pair(where, part) for part in text.split(",") if part)
    elif meta["low"] is not None or meta["high"] is not None:
        value = _number(where, text)
    elif bool in meta["types"]:
        if text.lower() not in ("true", "false"):
            raise ConfigurationError(f"{where}={text!r}: must be 'true' or 'false'")
        value = text.lower() == "true"
    return check(where, value, meta) if not meta["secret"] else Secret(text)


def _number(where: str, text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        try:
            return float(text)
        except ValueError:
            raise ConfigurationError(f"{where}={text!r}: must be a number") from None


def _check_stores(path: str, given: Mapping[str, str]) -> None:
    for store in ("truststore", "keystore"):
        location, kind = f"ssl.{store}.location", given.get(f"ssl.{store}.type", "JKS").strip().upper()
        if location in given and kind != "PEM":
            raise ConfigurationError(f"{path}: {location}={given[location]!r}: {NO_STORE}, name that file, and set ssl.{store}.type=PEM")
        if f"ssl.{store}.password" in given:
            raise ConfigurationError(f"{path}: ssl.{store}.password: a PEM file has none; a key's pass phrase is ssl.key.password")


def _only_line(path: str) -> str:
    """The password that a file has: its only line, without the line's end."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path}: must have the password as its only line, in UTF-8") from None
    if len(lines) != 1 or not lines[0]:
        raise ConfigurationError(f"{path}: must have the password as its only line, and has {len(lines)} lines")
    return lines[0]
