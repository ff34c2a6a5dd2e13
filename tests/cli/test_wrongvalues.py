"""What is wrong whatever the cluster says: exit code 2, in one line that names the option and the value, with the next step, and nobody is asked.

Every parameter of every command has its row here: a value that is wrong, or the reason why none is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from gkafka.cli.app import tools
from gkafka.cli.connection import Common
from tests.cli.conftest import Tool
from tests.kit.ports import refused_port

Words = tuple[str, ...]

GOOD = {
    **dict.fromkeys(("topic", "name", "names", "topics", "source"), "orders"),
    **dict.fromkeys(("group_name", "consumer_group"), "billing"),
    "target": "payments",
    "offset": "LATEST",
    "total": "9",
    "kind": "topic",
    "values": "a=1",
    "operations": "read",
}
"""A value that is right, of what a command must have beside."""
BESIDE = {"offsets reset": ["--to-earliest"], "acls create": ["--topic", "orders", "--principal", "User:a"]}
TOPIC, PARTITIONS, GROUP, FILE = ("a b", "", "x" * 250, ".."), ("a b", "orders:x", "orders:99999999999"), ("", "\udcff"), ("/nope",)
WRONG: dict[str, tuple[str, ...]] = {
    "topics describe names": TOPIC,
    "topics config name": TOPIC,
    "topics create names": TOPIC,
    "topics create assign": ("a", "1,1", "", "9999999999"),
    "topics create configs": ("retention.ms", "=1"),
    "topics delete names": TOPIC,
    "topics partitions name": TOPIC,
    "groups describe names": GROUP,
    "groups members names": GROUP,
    "groups delete names": GROUP,
    "lag names": GROUP,
    "lag topics": TOPIC,
    "offsets list names": PARTITIONS,
    "offsets list group_name": GROUP,
    "offsets reset group_name": GROUP,
    "offsets reset topics": PARTITIONS,
    "offsets reset from_file": (*FILE, "{binary}", "{empty}"),
    "offsets delete group_name": GROUP,
    "offsets delete topics": PARTITIONS,
    "docs name": ("option", "no-such-page"),
    "acls list principal": ("alice",),
    "acls list operation": ("foo", "read,write"),
    "acls list pattern": ("foo",),
    "acls create principal": ("alice",),
    "acls create operations": ("foo", "any"),
    "acls delete principal": ("alice",),
    "acls delete operation": ("foo",),
    "acls delete pattern": ("foo",),
    "configs describe name": TOPIC,
    "configs alter name": TOPIC,
    "configs alter values": ("a", "=1", "sasl.jaas.config=x", "a=@/nope", "a=@{binary}"),
    "configs alter appended": ("a", "sasl.jaas.config=x", "a=@/nope"),
    "configs alter subtracted": ("a", "sasl.jaas.config=x", "a=@/nope"),
    "produce topic": TOPIC,
    "produce source": FILE,
    "consume topics": TOPIC,
    "consume group": GROUP,
    "consume match": ("(",),
    "consume match_key": ("(",),
    "consume show": ("foo",),
    "copy source": (*TOPIC, "payments"),
    "copy target": (*TOPIC, "orders"),
    "copy group": GROUP,
    "doctor topic": TOPIC,
    "doctor group": GROUP,
    "bench produce topic": TOPIC,
    "bench consume topic": TOPIC,
    "bench latency topic": TOPIC,
    "print_offsets topic": TOPIC,
    "desc_topic topic": TOPIC,
    "print_consumer_lag topic": TOPIC,
    "print_consumer_lag consumer_group": GROUP,
    "print_managed_consumer_groups topic": TOPIC,
    "reset_offsets topic": TOPIC,
    "reset_offsets consumer_group": GROUP,
    "consume_topic topic": TOPIC,
    "create_topic topic": TOPIC,
    "create_topic replica_assignment": ("foo", "[1]", '{"0": 1}', '{"x": [1]}'),
    "create_topic config_entries": ("foo", "[1]"),
    "delete_topic topic": TOPIC,
}
"""Command and parameter -> values that cannot be right; of those whose type says it (a number, one of a few words), nothing need stand here."""
ANYTHING: dict[str, str] = {
    "acls list topic": "a rule may be about any name",
    "acls list group": "a rule may be about any name",
    "acls list transactional_id": "a rule may be about any name",
    "acls list user": "a rule may be about any name",
    "acls list host": "a rule may be about any address",
    "configs alter deleted": "brokers know the names",
    "produce key_field": "a field may have any name",
    "consume_topic outfile": "is opened when there is something to write",
}
OF_CONNECTION: dict[str, tuple[str, ...]] = {
    "hosts": ("garbage:port", "a b:1", "h:0", "http://h:1/", "", ","),
    "zookeeper": ("a:b", "h:1/a,h:2/b"),
    "config": ("/nope", "{folder}", "{binary}", "{properties}"),
    "set": ("foo", "sasl.password", "sasl.password=x", "linger.mz=1", "request.timeout.ms=x", "acks=1", "bootstrap.servers=h:x"),
    "broker_version": ("x",),
    "security_protocol": ("TLS",),
    "sasl_mechanism": ("FOO",),
    "sasl_username": ("x",),
    "sasl_password_file": ("/nope", "{binary}", "{empty}"),
    "ssl_cafile": ("/nope",),
    "ssl_certfile": ("/nope",),
    "ssl_keyfile": ("/nope",),
    "ssl_password_file": ("/nope", "{empty}"),
}
SECURE = {"ssl_cafile": "SSL", "ssl_certfile": "SSL", "ssl_keyfile": "SSL", "sasl_mechanism": "SASL_SSL"}
BY_TYPE: list[tuple[Any, tuple[str, ...]]] = [
    (click.types.Choice, ("zzz",)),
    (click.types.IntRange, ("x", "1.5", "nan", "inf", "9" * 19 + "9")),
    (click.types.FloatRange, ("x", "nan", "inf", "-1", "2000000")),
]
NO_TIME = ("yesterday", "1969-12-31T23:59:59.999Z", "9999w")
BY_NAME = {
    "time": (*NO_TIME, "9" * 20),
    "WHERE": (*NO_TIME, "@x", "9" * 20),
    "TEXT": ("\\q",),
    "NAME=VALUE": ("x",),
    "offset": (*NO_TIME, "9" * 20),
}


def commands(command: click.Command = tools, path: Words = ()) -> Iterator[tuple[Words, click.Command]]:
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from commands(found, (*path, name))


def judged(path: Words, parameter: click.Parameter) -> tuple[str, ...] | None:
    """Values that are wrong; None where the table has no row."""
    key = f"{' '.join(path)} {parameter.name}"
    if isinstance(parameter, Common) or (isinstance(parameter, click.Option) and parameter.is_flag) or key in ANYTHING:
        return ()
    for kind, values in BY_TYPE:
        if isinstance(parameter.type, kind):
            return values
    if key not in WRONG and path[0] == "acls" and " ".join(("acls list", str(parameter.name))) in ANYTHING:
        return ()
    return WRONG.get(key, BY_NAME.get(parameter.type.name))


def line(path: Words, command: click.Command, parameter: click.Parameter, value: str) -> list[str]:
    words = [*path, *(BESIDE.get(" ".join(path), []) if parameter.name != "from_file" else [])]
    for one in command.params:
        if one is parameter or one.required or (one.name == "values" and path[-1] == "alter"):
            given = value if one is parameter else GOOD[str(one.name)]
            words += [one.opts[0], given] if isinstance(one, click.Option) else [given]
    return words


CASES = [
    (path, command, parameter, value)
    for path, command in commands()
    for parameter in command.params
    for value in judged(path, parameter) or ()
]


def refused(told: Any, *names: str, value: str) -> None:
    lines = told.err.splitlines()
    assert (told.code, told.out, len(lines)) == (2, "", 2), told
    assert lines[0].startswith("kafka-tools")
    assert re.search("|".join(map(re.escape, names)), lines[0], re.IGNORECASE), (names, lines[0])
    assert not value or repr(value)[1:-1] in lines[0] or (re.match("([a-z.]+)=", value) and value.partition("=")[0] in lines[0]), lines[0]
    assert lines[1].startswith("  next: ")


def filled(text: str, folder: Path) -> str:
    for name, data in (("binary", b"\xfe\xed\0\0"), ("empty", b""), ("properties", b"linger.mz=1\n")):
        if f"{{{name}}}" in text:
            (folder / name).write_bytes(data)
            text = text.replace(f"{{{name}}}", str(folder / name))
    return text.replace("{folder}", str(folder))


def test_each_parameter_is_judged_or_may_be_anything() -> None:
    parameters = [(path, parameter) for path, command in commands() for parameter in command.params]
    assert [(path, parameter.name) for path, parameter in parameters if judged(path, parameter) is None] == []
    there = {f"{' '.join(path)} {parameter.name}" for path, parameter in parameters}
    assert {*WRONG, *ANYTHING} - there == set()


@pytest.mark.parametrize(
    ("path", "command", "parameter", "value"), CASES, ids=[f"{'_'.join(path)}-{p.name}-{value[:20]!r}" for path, _, p, value in CASES]
)
def test_a_wrong_value_is_not_understood(
    path: Words, command: click.Command, parameter: click.Parameter, value: str, tool: Tool, tmp_path: Path
) -> None:
    value = filled(value, tmp_path)
    nobody = ["-b", f"127.0.0.1:{refused_port()}", "--timeout", "0.2"] if any(isinstance(p, Common) for p in command.params) else []
    told = tool(*nobody, *line(path, command, parameter, value))
    named = [*parameter.opts, (parameter.metavar or "").strip("[]."), str(parameter.name), path[0].rstrip("s")]
    refused(told, *filter(None, named), value=value)


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in OF_CONNECTION.items() for value in values])
def test_a_wrong_value_of_the_connection_is_not_understood(name: str, value: str, tool: Tool, tmp_path: Path) -> None:
    value = filled(value, tmp_path)
    option = f"--{name.replace('_', '-')}" if name != "hosts" else "-b"
    beside = ["--security-protocol", SECURE[name]] if name in SECURE else []
    if name == "ssl_password_file":
        beside = ["--security-protocol", "SSL"]
    nobody = [] if name in ("hosts", "zookeeper") or "servers" in value else ["-b", f"127.0.0.1:{refused_port()}"]
    told = tool("topics", option, value, *beside, *nobody)
    refused(told, option, "--bootstrap-server", value.partition("=")[0], name.replace("_", "."), value="")


def test_each_option_of_the_connection_has_a_wrong_value() -> None:
    (command,) = [command for path, command in commands() if path == ("topics", "list")]
    there = {str(p.name).removeprefix("_connection_") for p in command.params if isinstance(p, Common) and not p.is_flag}
    assert there - set(OF_CONNECTION) == {"timeout"}  # a number


@pytest.mark.parametrize(
    "words",
    [
        "topics describe nowhere",
        "consume orders -p 9",
        "produce orders -p 9",
        "copy orders nowhere",
        "lag nobody",
        "configs describe broker 99",
    ],
)
def test_what_the_cluster_does_not_have_is_a_failure(words: str, ask: Tool) -> None:
    told = ask(*words.split())
    assert (told.code, told.out) == (1, "")
