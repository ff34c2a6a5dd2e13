"""What fails says in one line what, and below it the next step: which exists, and is in the words of the command line."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from gkafka import exceptions, javanames
from gkafka.cli import failures, propertynames
from gkafka.cli.app import tools
from gkafka.cli.wording import in_tools_words
from gkafka.config import ClientConfig, NativeConsumerConfig, ProducerConfig
from gkafka.testing import Error, MockCluster
from tests.cli.conftest import Tool

CLI = Path(failures.__file__).parent
PROSE = {
    "lists",
    "list",
    "says",
    "shows",
    "tells",
    "makes",
    "takes",
    "writes",
    "needs",
    "has",
    "is",
    "and",
    "may",
    "with",
    "there",
    "reads",
}
PROSE |= {"goes", "as", "it", "or", "in", "keeps", "whose", "looks"}
OF_BROKERS = {"authorizer.class.name", "advertised.listeners", "retention.ms", "broker.rack", "replica.selector.class"}


# -- what is suggested exists ----------------------------------------------------------------------------------------------------
def texts() -> Iterator[tuple[str, str]]:
    """(where, text) of each text in the sources of kafka-tools; what is filled in stands there as NAME."""
    for path in sorted(CLI.glob("*.py")):
        tree = ast.parse(path.read_text())
        parts = {id(value) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for value in node.values}
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                shown = (v.value if isinstance(v, ast.Constant) else "NAME" for v in node.values)
                yield f"{path.name}:{node.lineno}", "".join(map(str, shown))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
                yield f"{path.name}:{node.lineno}", node.value


def commands(command: click.Command = tools) -> Iterator[click.Command]:
    """All of them, kafka-tools itself first."""
    yield command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from commands(found)


def options(*found: click.Command) -> set[str]:
    """The spellings that these commands take."""
    return {s for c in found for p in c.get_params(click.Context(c)) if isinstance(p, click.Option) for s in (*p.opts, *p.secondary_opts)}


def wrong_in(suggestion: str) -> str | None:
    """What does not exist of a command line, which may end as a sentence; None if all does."""
    command: click.Command = tools
    at_command = True
    for word in suggestion.split():
        if word.startswith("-"):
            if word.partition("=")[0] not in options(command, tools):
                return word
        elif at_command and isinstance(command, click.Group):
            found = command.get_command(click.Context(command), word)
            if found is None:
                at_command = False
                if word not in PROSE and not (command is tools and word == "COMMAND") and not word.startswith("kafka"):
                    return word
            else:
                command = found
        elif at_command and word in PROSE:
            at_command = False
    return None


def test_each_command_line_in_a_text_is_one_that_there_is() -> None:
    found, wrong = 0, []
    for where, text in texts():
        for match in re.finditer(r"(?<![\w`'{])kafka-tools ([^;,:()'\"`|#\n\[]+)", text):
            found += 1
            bad = wrong_in(re.sub(r"  .*", "", match[1]))
            if bad is not None:
                wrong.append(f"{where}: {match[0]!r}: {bad}")
    assert wrong == []
    assert found > 50


@pytest.mark.parametrize(
    "bad", ["topics add-partitions", "topics create --config-entry", "lags", "topics lists --foo", "offsets rest NAME"]
)
def test_a_command_line_that_does_not_exist_is_found(bad: str) -> None:
    assert wrong_in(bad) is not None


def test_each_option_in_a_text_is_one_that_there_is() -> None:
    there = options(*commands())
    named = {(where, name) for where, text in texts() for name in re.findall(r"(?<![\w-])--[a-z][a-z_-]+", text) if not name.endswith("-")}
    assert {(where, name) for where, name in named if name not in there} == set()
    assert len(named) > 50


def test_each_property_in_a_text_is_one_that_there_is() -> None:
    named = {(where, name) for where, text in texts() for name in re.findall(r"(?<![\w.])([a-z]+(?:\.[a-z]+)+)=", text)}
    configs = (ClientConfig, ProducerConfig, NativeConsumerConfig)

    def exists(name: str) -> bool:
        option = propertynames.canonical(name)
        known = any(propertynames.is_from_text(config, option) for config in configs) or name in ("bootstrap.servers", "sasl.jaas.config")
        return known or name in javanames.SO_HERE or name in OF_BROKERS

    assert {(where, name) for where, name in named if not exists(name)} == set()
    assert len(named) > 1


def test_each_error_that_has_a_next_step_is_one_that_there_is() -> None:
    for name in failures.NEXT:
        assert issubclass(getattr(exceptions, name), Exception)


# -- in the words of the command line ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("sasl_username without sasl_password: give both", "--sasl-username without --sasl-password-file: give both"),
        ("hosts='a b': give at least one host:port", "--bootstrap-server='a b': give at least one host:port"),
        ("assignors: 'foo' must be one of range", "partition.assignment.strategy: 'foo' must be one of range"),
        ("max_in_flight=9, or give enable_idempotence=False", "max.in.flight.requests.per.connection=9, or give enable.idempotence=false"),
        ("set security_protocol='SASL_SSL', or leave ssl_cafile out", "set --security-protocol SASL_SSL, or leave --ssl-cafile out"),
        ("topic 'linger_ms' is not there", "topic 'linger_ms' is not there"),
        ("fetch_message_max_bytes=1 and batch_bytes", "max.partition.fetch.bytes=1 and batch.size"),
    ],
)
def test_options_of_python_are_told_as_flags_and_properties(said: str, told: str) -> None:
    assert in_tools_words(said) == told


# -- each way to fail ------------------------------------------------------------------------------------------------------------
CASES: list[tuple[str, int, str, str]] = [
    ("topics describe order", 1, "no topic 'order'", "did you mean 'orders'?"),
    ("topics delete order", 1, "no topic 'order'", "did you mean 'orders'?"),
    ("topics partitions order 9", 1, "no topic 'order'", "did you mean 'orders'?"),
    ("topics partitions orders 2", 1, "has 4 partitions", "give more than 4"),
    ("topics partitions orders x", 2, "'x' is no whole number", "kafka-tools topics partitions --help"),
    ("topics create a/b", 2, "'a/b': must be 1 to 249", "kafka-tools topics create --help"),
    ("topics create x --assign a", 2, "--assign 'a'", "kafka-tools topics create --help"),
    ("topics create x --assign 1,1", 2, "--assign '1,1'", "kafka-tools topics create --help"),
    ("topics create x --topic-config foo", 2, "must be NAME=VALUE", "kafka-tools topics create --help"),
    ("topics create x -c retention.ms=1", 2, "retention.ms=1: No such file", "--topic-config NAME=VALUE"),
    ("topics create orders", 1, "already exists", "kafka-tools topics describe"),
    ("topics create x -r 9", 1, "eplication factor", "kafka-tools doctor"),
    ("topics -c /nope/x", 2, "/nope/x: No such file", "check the path"),
    ("topics -c {folder}", 2, "Is a directory", "check the path"),
    ("topics -c {binary}", 2, "is no file of properties", "kafka-tools topics list --help"),
    ("topics --set sasl_mechanism=PLAIN --security-protocol SASL_SSL", 2, "--sasl-username", "kafka-tools topics list --help"),
    (
        "topics --sasl-mechanism PLAIN --sasl-username x --security-protocol SASL_SSL",
        2,
        "--sasl-password-file",
        "kafka-tools topics list --help",
    ),
    ("topics --sasl-username x", 2, "set --security-protocol SASL_SSL", "kafka-tools topics list --help"),
    ("topics --security-protocol TLS", 2, "must be one of 'PLAINTEXT'", "kafka-tools topics list --help"),
    ("topics --ssl-cafile {binary}", 2, "set --security-protocol SSL", "kafka-tools topics list --help"),
    ("topics --security-protocol SSL --ssl-cafile {binary}", 2, "not a PEM file", "kafka-tools topics list --help"),
    ("topics --security-protocol SSL --ssl-cafile /nope", 2, "there is no such file", "kafka-tools topics list --help"),
    ("topics --sasl-password-file /nope", 2, "/nope: No such file", "check the path"),
    ("topics --set proxy_url=foo", 2, "proxy.url: must be", "kafka-tools topics list --help"),
    ("topics --broker-version x", 2, "--broker-version x: not a release", "kafka-tools topics list --help"),
    ("topics --timeout nan", 2, "'nan': must be a number", "kafka-tools topics --help"),
    ("topics --timeout inf", 2, "inf is not in the range", "kafka-tools topics --help"),
    ("groups describe nope", 1, "no group 'nope'", "kafka-tools groups lists"),
    ("groups list --state foo", 2, "'foo' is not one of", "kafka-tools groups list --help"),
    ("groups list --type foo", 2, "'foo' is not one of", "kafka-tools groups list --help"),
    ("lag nope", 1, "no group 'nope'", "kafka-tools groups lists"),
    ("lag --topic order", 1, "no topic 'order'", "did you mean 'orders'?"),
    ("lag --watch --interval nan", 2, "'nan': must be a number", "kafka-tools lag --help"),
    ("lag --watch --interval inf", 2, "inf is not in the range", "kafka-tools lag --help"),
    ("lag --watch --interval -1", 2, "-1.0 is not in the range", "kafka-tools lag --help"),
    ("offsets list order", 1, "no topic 'order'", "did you mean 'orders'?"),
    ("offsets list orders:9", 1, "has no partition 9", "kafka-tools topics describe orders its"),
    ("offsets list orders:x", 2, "TOPIC:PARTITION", "kafka-tools offsets list --help"),
    ("offsets list --group nope", 1, "no group 'nope'", "kafka-tools groups lists"),
    ("offsets reset nope --topic payments --shift-by 1", 1, "give --to-offset, --to-time", "kafka-tools offsets reset --help"),
    ("offsets reset nope --from-file /nope", 2, "/nope: No such file", "check the path"),
    ("offsets reset nope --from-file {binary}", 2, "must be topic,partition,offset", "one partition a line"),
    ("acls list --operation foo", 2, "'--operation': 'foo': must be one of", "kafka-tools acls list --help"),
    ("acls create --topic a --principal alice --operation read", 2, "as User:alice", "kafka-tools acls create --help"),
    ("acls delete", 2, "that would be all rules", "kafka-tools acls delete --help"),
    ("configs describe topic", 2, "which topic?", "kafka-tools configs describe --help"),
    ("configs describe broker x", 2, "must be a broker's id", "kafka-tools configs describe --help"),
    ("configs describe broker 99", 1, "broker 99 is not in the cluster", "kafka-tools configs describe --help"),
    ("configs alter topic orders a=@/nope", 2, "/nope: No such file", "check the path"),
    ("produce order", 1, "no topic 'order'", "did you mean 'orders'?"),
    ("produce orders -p 99", 1, "has no partition 99", "kafka-tools topics describe orders"),
    ("produce orders /nope", 2, "No such file", "kafka-tools produce --help"),
    ("produce orders --set acks=1 --idempotent", 2, "enable.idempotence=true needs acks", "kafka-tools produce --help"),
    ("produce orders --set buffer.memory=4096", 2, "batch.size=262144", "kafka-tools produce --help"),
    ("produce orders --set partitioner=zzz", 2, "--set partitioner='zzz': must be one of", "kafka-tools produce --help"),
    ("produce orders --delivery-timeout nan", 2, "'nan': must be a number", "kafka-tools produce --help"),
    ("consume order", 1, "no topic 'order'", "did you mean 'orders'?"),
    ("consume orders --from 99999", 1, "has no offset 99999", "--from earliest"),
    ("consume orders --match (", 2, "is no regular expression", "kafka-tools consume --help"),
    ("consume orders -g x --set session.timeout.ms=1", 2, "heartbeat.interval.ms=3000 with session.timeout.ms=1", "kafka-tools consume"),
    (
        "consume orders -g x --set partition.assignment.strategy=foo",
        2,
        "partition.assignment.strategy: 'foo'",
        "kafka-tools consume --help",
    ),
    ("copy orders order", 1, "no topic 'order'", "did you mean 'orders'?"),
    ("copy orders orders", 2, "both the topic", "--to-bootstrap-server"),
    ("copy orders payments --partition-by number", 1, "has 1 partition,", "kafka-tools topics partitions payments 4"),
    ("copy orders payments -g x --set acks=1", 2, "needs acks='all'", "kafka-tools copy --help"),
    ("copy orders payments --to-sasl-username x", 2, "--sasl-username with", "kafka-tools copy --help"),
    ("bench produce --topic order", 1, "no topic 'order'", "did you mean 'orders'?"),
    ("bench produce --linger-ms nan", 2, "'nan': must be a number", "kafka-tools bench produce --help"),
    ("bench produce --seconds inf", 2, "inf is not in the range", "kafka-tools bench produce --help"),
    ("print_offsets orders foo", 2, "must be EARLIEST", "kafka-tools print_offsets --help"),
    ("create_topic x -a foo", 2, "must be a JSON object", "kafka-tools create_topic --help"),
    ("consume_topic orders -o /nope/x", 2, "/nope/x: No such file", "check the path"),
]


@pytest.mark.parametrize(("words", "code", "said", "following"), CASES, ids=[case[0].replace(" ", "_") for case in CASES])
def test_it_fails_in_one_line_with_the_next_step(words: str, code: int, said: str, following: str, ask: Tool, tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xfe\xed\0\0")
    filled = words.replace("{folder}", str(tmp_path)).replace("{binary}", str(tmp_path / "binary"))
    told = ask(*filled.split())
    lines = told.err.splitlines()
    assert (told.code, len(lines)) == (code, 2), told
    assert lines[0].startswith("kafka-tools")
    assert said in lines[0]
    assert lines[1].startswith("  next: ")
    assert following in lines[1]
    assert "Traceback" not in told.err


@pytest.mark.parametrize(
    ("api", "code", "words"),
    [
        ("Metadata", 29, "topics describe orders --timeout 5"),
        ("Metadata", 5, "topics list --timeout 1"),
        ("ListOffsets", 29, "offsets list payments"),
        ("CreateTopics", 29, "topics create x"),
        ("CreateTopics", 31, "topics create x"),
        ("CreateTopics", 44, "topics create x"),
        ("CreateTopics", 40, "topics create x --topic-config a=b"),
        ("DeleteTopics", 29, "topics delete orders --yes"),
        ("DeleteTopics", 73, "topics delete orders --yes"),
        ("ListGroups", 31, "groups"),
        ("FindCoordinator", 30, "lag billing"),
        ("OffsetFetch", 30, "offsets list --group billing"),
        ("OffsetCommit", 30, "offsets reset billing --topic payments --to-earliest --yes --create"),
        ("Fetch", 29, "consume payments --from earliest --follow -n 1"),
    ],
)
def test_what_brokers_refuse_has_a_next_step(api: str, code: int, words: str, ask: Tool, cluster: MockCluster) -> None:
    cluster.on(api, Error(code), times=None)
    told = ask(*words.split())
    lines = told.err.splitlines()
    assert (told.code, len(lines)) == (1, 4 if api == "ListGroups" else 2), told  # each broker is asked for its groups
    assert lines[-1].startswith("  next: ")


def test_a_bad_line_has_a_next_step(ask: Tool, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("{}\n")
    told = ask("produce", "orders", tmp_path / "lines", "--format", "json")
    assert told.code == 1
    assert told.err.splitlines()[-1].startswith("  next: mend the bad lines")
