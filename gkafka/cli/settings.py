"""What the options of the connection come to: the command line before --set, that before the file, that before the environment.

Passwords come from a file (--config, --sasl-password-file), the environment (KAFKA_SASL_PASSWORD), or are asked for on the terminal; never from
the command line, which everybody on the machine can read and the shell keeps.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Mapping
from typing import Any

import click

from gkafka.cli.connection import CONSUMER, MEMBER, POSITION, PRODUCER
from gkafka.cli.output import clean
from gkafka.cli.propertynames import SECRETS, commands_take, of_other_commands, roles_of, why_not_here
from gkafka.client import KafkaClient
from gkafka.clientproperties import (
    HOSTS,
    buffers,
    check_hosts,
    check_stores,
    no_effect,
    note_of,
    read_file,
    settle_login,
    typed,
    typed_in_unit,
    whole,
)
from gkafka.config import ClientConfig, NativeConsumerConfig, ProducerConfig, Secret
from gkafka.exceptions import ConfigurationError
from gkafka.javanames import BUFFERS, canonical, dotted, may_be_told
from gkafka.properties import CONSUMER as OF_CONSUMERS
from gkafka.properties import PRODUCER as OF_PRODUCERS
from gkafka.properties import is_pair, parse_pair

__all__ = ["Settings", "open_client", "settle"]

DEFAULT_HOSTS = "localhost:9092"
HOSTS_VARIABLE = "KAFKA_BOOTSTRAP_SERVERS"
TIMEOUT_S = 20.0
CONNECT_S = 5.0
PASSWORD_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclasses.dataclass(frozen=True)
class Settings:
    """A cluster as the command line names it, and what was said of records. client: keyword arguments of KafkaClient; records: {option: value}
    of producers and consumers, "group" and "max_poll_records" among them; where: option -> what the user gave, as "client.properties: linger.ms";
    timeout_s: how long a command tries; notes: what to say of the file, a line each.
    """

    hosts: str
    zookeeper: str | None
    timeout_s: float
    client: Mapping[str, Any] = dataclasses.field(repr=False)
    records: Mapping[str, Any] = dataclasses.field(repr=False)
    where: Mapping[str, str] = dataclasses.field(repr=False)
    notes: tuple[str, ...] = ()

    def of(self, config: type[Any]) -> dict[str, Any]:
        """What of `records` a dataclass of options takes."""
        names = {f.name for f in dataclasses.fields(config)}
        return {name: value for name, value in self.records.items() if name in names}

    def at_once(self, most: int) -> int:
        """How many records to take together: so many, or max.poll.records if that is less."""
        return min(most, int(self.records.get("max_poll_records", most)))

    def is_set(self, option: str) -> bool:
        """Was it named on the command line, by --set? Then it was meant for this command."""
        return self.where.get(option, "").startswith("--")

    def refuse(self, why: str, *options: str, unless: tuple[Any, ...] = ()) -> None:
        """Raise ConfigurationError if one of these options was given, but for these values. why: with the next step."""
        for option in options:
            if option in self.records and self.records[option] not in unless:
                raise ConfigurationError(f"{self.where[option]}={self.records[option]!r}: {why}")


def open_client(settings: Settings, *, debug: bool = False, **options: Any) -> KafkaClient:
    """The client, which connects at its first call. It tells failures by raising, so its log is silent unless debug."""
    import logging

    for name in ("gkafka", "kazoo"):
        logging.getLogger(name).setLevel(logging.DEBUG if debug else logging.CRITICAL)
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


def settle(given: Mapping[str, Any], *, prefix: str = "", uses: tuple[str, ...] = ()) -> Settings:
    """What the options (by the names of `connection.CONNECTION`), the file and the environment come to. uses: what the command does with
    records, of connection.PRODUCER and so on. Raises ConfigurationError.
    """
    found = _Found(prefix, uses)
    if "config" in given:
        found.take_file(given["config"])
    for text in given.get("set", ()):
        found.take_pair(text)
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
    protocol = found.client.get("security_protocol", "PLAINTEXT")
    hosts = given["hosts"] if "hosts" in given else found.checked_hosts(protocol) or _hosts_of_environment(protocol) or DEFAULT_HOSTS
    if "zookeeper" in given and "hosts" in given:
        raise ConfigurationError("--bootstrap-server and --zookeeper both say where the brokers are: leave one out")
    timeout_s = given.get("timeout") or found.client.get("api_timeout_ms", TIMEOUT_S * 1000) / 1000
    found.client.pop("api_timeout_ms", None)
    return Settings(hosts, given.get("zookeeper"), timeout_s, found.client, found.records, found.where, tuple(found.notes))


def _hosts_of_environment(protocol: str) -> str:
    text = os.environ.get(HOSTS_VARIABLE, "").strip()
    return check_hosts(HOSTS_VARIABLE, text, protocol) if text else ""


class _Found:
    """What has been found so far; whoever comes later overwrites it."""

    def __init__(self, prefix: str, uses: tuple[str, ...]) -> None:
        self._uses = uses
        self._dashed = f"--{prefix}-" if prefix else "--"
        self._variable = f"{prefix.upper()}_" if prefix else ""
        self._hosts = self._hosts_where = ""
        self.client: dict[str, Any] = {}
        self.records: dict[str, Any] = {}
        self.where: dict[str, str] = {}
        self.notes: list[str] = []
        self._buffers: dict[str, int] = {}

    # -- where options come from ---------------------------------------------------------------------------------------------
    def take_file(self, path: str) -> None:
        source = read_file(path)
        given = source.of("", *self._sections())
        check_stores(source, given)
        passed: dict[str, str] = {}
        for name, text in given.items():
            if name != "sasl.jaas.config" and (why := self._take(source.where(name), name, text, beside=given)):
                passed[source.as_written(name)] = why
        settle_login(given, self.client, passed)
        self.notes += [*source.notes, *([note_of(source.path, passed)] if passed else [])]

    def _sections(self) -> list[str]:
        """Sections of a file beside those that are for everybody."""
        reads = {CONSUMER, POSITION, MEMBER} & set(self._uses)
        return [*([OF_PRODUCERS] if PRODUCER in self._uses else []), *([OF_CONSUMERS] if reads else [])]

    def take_pair(self, text: str) -> None:
        where = f"{self._dashed}set"
        told, sign, given = text.partition("=")
        if not may_be_told(told.strip(), is_pair=is_pair(sign, given)):
            raise ConfigurationError(f"{where}, a text of {len(text)} characters: must be NAME=VALUE, and begin with the name of an option")
        name, value = parse_pair(where, text)
        written, name, option = name, dotted(name), canonical(name)
        if name == "sasl.jaas.config" or option in SECRETS or (option == "proxy_url" and "@" in value):
            raise ConfigurationError(f"{where} {written}: {self._instead(option)}")
        self.check_not_a_key(f"{where} {written}", value)
        self._take(f"{where} {written}", name, value, strict=True)

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

    def checked_hosts(self, protocol: str) -> str:
        """The brokers that a file or --set names, "" for none. Raises ConfigurationError with the place where they are named."""
        return check_hosts(self._hosts_where, self._hosts, protocol) if self._hosts else ""

    def take_environment(self) -> None:
        for option, variable in SECRETS.items():
            text = os.environ.get(variable.format(self._variable))
            if text and option not in self.client and self._needs(option):
                self.client[option] = Secret(text)

    def ask(self) -> None:
        """Ask for the password where a user has none, on a terminal."""
        if "sasl_username" in self.client and self._needs("sasl_password") and "sasl_password" not in self.client and _at_terminal():
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
    def _take(self, where: str, name: str, text: str, *, beside: Mapping[str, str] | None = None, strict: bool = False) -> str:
        """Why the property has no effect in any command, "" for one that has. strict: such a one is refused, and what belongs to other commands, too; a file
        may be for all of them. beside: the other properties of the file.
        """
        option = canonical(name)
        roles = roles_of(option)
        if option in HOSTS:
            self._hosts, self._hosts_where = _name(where, text), where
        elif name in BUFFERS:
            self.client.update(buffers(self._buffers, BUFFERS[name], where, text))
        elif option == "group":
            self._keep(option, where, _name(where, text), roles, strict=strict)
        elif option == "max_poll_records":
            self._keep(option, where, whole(where, text), (CONSUMER,), strict=strict)
        elif option == "auto_create_topics" and text.lower() == "false":
            pass
        elif (why := no_effect(where, name, text, beside or {})) is not None:
            return self._passed(where, why, strict)
        elif option != "auto_create_topics" and commands_take(ClientConfig, option):
            self.client[option] = typed(ClientConfig, option, where, _name(where, text) if strict and option == "client_id" else text)
            if option == "socket_timeout_ms" and name == "request.timeout.ms":
                self._keep("request_timeout_ms", where, self.client[option], (PRODUCER, CONSUMER))
        elif roles:
            config = ProducerConfig if roles == (PRODUCER,) else NativeConsumerConfig
            self._keep(option, where, typed_in_unit(config, option, where, name, text), roles, strict=strict)
        else:
            return self._passed(where, why_not_here(where, name, option, self._uses if strict else None), strict)
        return ""

    def _passed(self, where: str, why: str, strict: bool) -> str:
        if why and strict:
            raise ConfigurationError(f"{where}: has no effect here: leave it out; {why}")
        return why

    def _keep(self, option: str, where: str, value: Any, roles: tuple[str, ...], *, strict: bool = False) -> None:
        """Have it take effect if the command is one that it is about."""
        if set(roles) & set(self._uses):
            self.records[option], self.where[option] = value, where
        elif strict:
            raise ConfigurationError(f"{where}: {of_other_commands(option)}")


def _name(where: str, text: str) -> str:
    if not text:
        raise ConfigurationError(f"{where}={text!r}: must be a name, or leave it out")
    return text


def _at_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


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
