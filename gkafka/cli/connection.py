"""The options by which every command reaches a cluster, and the client that they come to.

They may stand before the command or behind it (`kafka-tools -b host topics`, `kafka-tools topics -b host`); what stands later counts.
A command that has two clusters takes a second set: `connection_options_of("to")` gives --to-bootstrap-server and so on, `connect(ctx, "to")` the client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gkafka.cli.progress import progress
from gkafka.cli.quantities import Quantity
from gkafka.undoing import Undoing

if TYPE_CHECKING:
    from gkafka.cli.settings import Settings
    from gkafka.client import KafkaClient
    from gkafka.nativeproducer import NativeProducer

__all__ = [
    "CONSUMER",
    "MEMBER",
    "POSITION",
    "PRODUCER",
    "acting",
    "connect",
    "connection_options",
    "connection_options_of",
    "given",
    "in_time",
    "keep_as",
    "lift",
    "settings_of",
]

F = TypeVar("F", bound=Callable[..., Any])
CLOSE_S = 2.0
MAYBE_CHANGED = "what the brokers were asked for may be done all the same: look before you ask for it again"
HALF = 0.5
"""Of the time that is left: for a question behind which there are others, so that a broker that is silent leaves time for them."""
PRODUCER, CONSUMER, POSITION, MEMBER = "producer", "consumer", "position", "member"
"""What a command does with records: it writes them; reads them; reads from where a group stands, or auto.offset.reset says; is a group's member.
Of the properties for that each takes effect, or the command refuses it."""
Declared = tuple[tuple[str, ...], str, dict[str, Any]]

CONNECTION: list[Declared] = [
    (
        ("-b", "--bootstrap-server", "--broker"),
        "hosts",
        {"metavar": "HOST:PORT,...", "help": "Brokers to begin with. [KAFKA_BOOTSTRAP_SERVERS, localhost:9092]"},
    ),
    (("--zookeeper",), "zookeeper", {"metavar": "HOST:PORT/CHROOT", "help": "The ZooKeeper that knows the brokers, in place of -b."}),
    (
        ("-c", "--config", "--command-config"),
        "config",
        {"metavar": "FILE", "type": click.Path(), "help": "Properties, by Java's names or gkafka's; passwords may stand there."},
    ),
    (("--set",), "set", {"metavar": "NAME=VALUE", "multiple": True, "help": "One option, as in --config; no passwords."}),
    (("--timeout",), "timeout", {"metavar": "SECONDS", "type": Quantity(above=True), "help": "How long to try. [20]"}),
    (("--broker-version", "--broker_version"), "broker_version", {"metavar": "VERSION", "help": "What brokers older than 0.10 speak."}),
    (
        ("--security-protocol",),
        "security_protocol",
        {"metavar": "PROTOCOL", "help": "What the listener speaks: PLAINTEXT, SSL, SASL_SSL or SASL_PLAINTEXT."},
    ),
    (("--sasl-mechanism",), "sasl_mechanism", {"metavar": "NAME", "help": "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, ..."}),
    (("--sasl-username",), "sasl_username", {"metavar": "NAME", "help": "The password: a file, KAFKA_SASL_PASSWORD, or you are asked."}),
    (
        ("--sasl-password-file",),
        "sasl_password_file",
        {"metavar": "FILE", "type": click.Path(), "help": "Has the password as its only line."},
    ),
    (("--ssl-cafile",), "ssl_cafile", {"metavar": "FILE", "type": click.Path(), "help": "PEM of the authorities to trust."}),
    (("--ssl-certfile",), "ssl_certfile", {"metavar": "FILE", "type": click.Path(), "help": "PEM of this client's certificate."}),
    (
        ("--ssl-keyfile",),
        "ssl_keyfile",
        {"metavar": "FILE", "type": click.Path(), "help": "PEM of its key. Pass phrase: KAFKA_SSL_PASSWORD."},
    ),
    (("--ssl-password-file",), "ssl_password_file", {"metavar": "FILE", "type": click.Path(), "help": "Has the key's pass phrase."}),
]
"""Spellings, name, and the rest of click.option()."""
DEBUG = {"is_flag": True, "help": "Show tracebacks, and gkafka's log."}


class Common(click.Option):
    """An option that all commands have: --help shows them behind the command's own."""


def connection_options(command: F) -> F:
    """Give a command the options of reaching a cluster, and --debug. Its function gets none of them: it calls connect(ctx)."""
    return connection_options_of("")(command)


def connection_options_of(prefix: str, *, without: tuple[str, ...] = ()) -> Callable[[F], F]:
    """The same options for another cluster: with "to" they are --to-bootstrap-server, --to-config, ... without: spellings that the command needs."""

    def decorate(command: F) -> F:
        for spellings, name, more in reversed(CONNECTION):
            long = (
                tuple(f"--{prefix}-{s[2:]}" for s in spellings if s.startswith("--"))
                if prefix
                else tuple(s for s in spellings if s not in without)
            )
            command = _declare(command, long, prefix, name, more)
        return command if prefix else _declare(command, ("--debug",), "", "debug", DEBUG)

    return decorate


def _declare(command: F, spellings: tuple[str, ...], prefix: str, name: str, more: dict[str, Any]) -> F:
    parameter = f"{prefix}_connection_{name}"
    return click.option(*spellings, parameter, cls=Common, expose_value=False, callback=keep_as(name, prefix), **more)(command)


def keep_as(name: str, prefix: str = "") -> Callable[[click.Context, click.Parameter, Any], None]:
    """What click does with an option's value: it is kept for `given()`, beside those that stood before it."""

    def keep(ctx: click.Context, _: click.Parameter, value: Any) -> None:
        if value is None or value == () or value is False:
            return
        kept = ctx.ensure_object(dict).setdefault(f"connection:{prefix}", {})
        kept[name] = kept.get(name, ()) + value if isinstance(value, tuple) else value

    return keep


def given(ctx: click.Context, prefix: str = "") -> dict[str, Any]:
    """What was given of these options on the command line, by name."""
    return dict(ctx.ensure_object(dict).get(f"connection:{prefix}", {}))


def settings_of(ctx: click.Context, prefix: str = "", *, uses: tuple[str, ...] = ()) -> Settings:
    """What the options, the file and the environment come to; a password is asked for once. uses: what the command does with records, of
    PRODUCER and so on: what the file has for that takes effect.
    """
    from gkafka.cli.settings import settle

    kept = ctx.ensure_object(dict)
    kept["command"] = ctx.command_path
    key = f"settings:{prefix}:{','.join(uses)}"
    if key not in kept:
        kept[key] = settle(given(ctx, prefix), prefix=prefix, uses=uses)
        _tell(kept, kept[key].notes)
    found: Settings = kept[key]
    return found


def _tell(kept: dict[str, Any], notes: tuple[str, ...]) -> None:
    """Say each of these once in a command, however often it asks for its settings."""
    from gkafka.cli.output import note

    told = kept.setdefault("notes", set())
    for text in notes:
        if text not in told:
            told.add(text)
            note(text)


@contextmanager
def connect(ctx: click.Context, prefix: str = "", *, uses: tuple[str, ...] = (), **options: Any) -> Iterator[KafkaClient]:
    """A client of the cluster that the options name, closed at the end. options: of KafkaClient, in place of what is set otherwise.

    A host that takes a connection and then says nothing costs half of --timeout at most, so that there is time for the next one.
    """
    from gkafka.cli.settings import CONNECT_S, open_client

    settings = settings_of(ctx, prefix, uses=uses)
    if "connect_timeout_ms" not in settings.client:
        options.setdefault("connect_timeout_ms", min(settings.timeout_s * HALF, CONNECT_S) * 1000)
    client = open_client(settings, debug=bool(given(ctx).get("debug")), **options)
    with Undoing(close_quietly, client, CLOSE_S), progress().shown(ctx.command_path):
        yield client
    client.close(CLOSE_S)


def close_quietly(ended: KafkaClient | NativeProducer, timeout_s: float) -> None:
    """Close after an exception: it says what went wrong, and an error of close() does not."""
    from gkafka.exceptions import KafkaException

    with suppress(KafkaException):
        ended.close(timeout_s)


@contextmanager
def acting(ctx: click.Context) -> Iterator[KafkaClient]:
    """A client of a command that changes something: all that it asks, from the first connection on, shares --timeout."""
    if ctx.params.get("yes", True):  # without --yes it shows what it would do
        progress().rest = MAYBE_CHANGED
    with connect(ctx) as client, in_time(client):
        yield client


@contextmanager
def in_time(*clients: KafkaClient) -> Iterator[None]:
    """All that these clients are asked in the block, without a time of its own, shares --timeout, up to a lift()."""
    for client in clients:
        client.cluster.until = client.handler.monotonic() + client.cluster.timeout_s()
    try:
        yield
    finally:
        lift(*clients)


def lift(*clients: KafkaClient) -> None:
    """A command begins to read or write records, which takes as long as it takes: --timeout bounds each of its calls alone from here on."""
    for client in clients:
        client.cluster.until = None
