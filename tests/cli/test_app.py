"""The frame: commands that are loaded when used, exit codes, one line and the next step for what goes wrong."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest

import gkafka
from gkafka import KafkaClient
from gkafka.cli.app import COMMANDS, tools
from gkafka.exceptions import (
    AdminError,
    ConfigurationError,
    CorruptRecordError,
    GroupAuthorizationFailed,
    KafkaException,
    KafkaTimeoutError,
    NoBrokersAvailableError,
    SaslAuthenticationFailed,
    TlsError,
    UnknownTopicOrPartition,
)
from gkafka.testing import Error, MockCluster
from tests.cli.conftest import Tool

ROOT = Path(__file__).resolve().parent.parent.parent
TOOL = [sys.executable, "-m", "gkafka.cli"]
NAMES = [name for section in COMMANDS.values() for name in section]


def run(*command: str, **settings: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([*command], capture_output=True, text=True, timeout=60, env=environment, cwd="/", **settings)  # type: ignore[call-overload,no-any-return]


# -- the whole interface -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("command", [TOOL, [sys.executable, str(ROOT / "gkafka/cli/kafka_tools.py")]], ids=["module", "script"])
def test_behaviour_9_help_prints_the_full_interface(command: list[str]) -> None:
    told = run(*command, "--help")
    assert (told.returncode, told.stderr) == (0, "")
    for name in NAMES:
        assert f"  {name} " in told.stdout


def test_behaviour_9_a_command_is_installed() -> None:
    from importlib.metadata import entry_points

    (entry,) = entry_points(group="console_scripts", name="kafka-tools")
    assert entry.value == "gkafka.cli.kafka_tools:main"
    assert callable(entry.load())


def test_help_loads_no_client_and_no_command() -> None:
    code = "import sys; from gkafka.cli.app import main; main(['--help']); print([m for m in sys.modules if m.startswith('gkafka.')])"
    loaded = run(sys.executable, "-c", code).stdout.splitlines()[-1]
    assert "gkafka.client" not in loaded
    assert "gkafka.cli.topics" not in loaded


@pytest.mark.parametrize("name", NAMES)
def test_every_command_is_there_and_explains_itself(name: str, tool: Tool) -> None:
    told = tool(name, "--help")
    assert told.code == 0
    assert f"Usage: kafka-tools {name}" in told.out
    command = tools.get_command(click.Context(tools), name)
    assert isinstance(command, click.Group) or "--debug" in told.out or name in ("version", "completion", "docs")
    for sub in command.commands if isinstance(command, click.Group) else ():
        told = tool(name, sub, "--help")
        assert told.code == 0
        assert "-b, --bootstrap-server" in told.out


def test_topics_loads_no_table_that_it_needs_not(cluster: MockCluster) -> None:
    code = "import sys; from gkafka.cli.app import main; main(sys.argv[1:]); print([m for m in sys.modules if m.startswith('gkafka.')], file=sys.stderr)"
    told = run(sys.executable, "-c", code, "topics", "-b", cluster.bootstrap)
    assert "orders" in told.stdout
    loaded = told.stderr.split("'")
    assert "gkafka.admin.topics" in loaded
    for module in (
        "gkafka.admin.acls",
        "gkafka.admin.administrator",
        "gkafka.nativeproducer",
        "gkafka.consumer",
        "gkafka.wire.access",
        "gkafka.core.scram",
        "gkafka.producermemory",
        "gkafka.rawfetch",
        "gkafka.records",
    ):
        assert module not in loaded


def test_the_version(tool: Tool) -> None:
    assert tool("--version").out.strip().endswith(gkafka.__version__)
    told = tool("version")
    assert told.code == 0
    for what in ("gkafka", "python", "accelerator", "codecs", "click", "zstandard"):
        assert f"\n{what} " in f"\n{told.out}"


def test_the_version_starts_no_process_to_name_the_platform() -> None:
    code = "import sys; from gkafka.cli.app import main; main(['version', '--json']); print('subprocess' in sys.modules)"
    told, _, started = run(sys.executable, "-c", code).stdout.strip().rpartition("\n")
    assert started == "False" or not sys.platform.startswith("linux")
    assert json.loads(told)["platform"] == platform.platform()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_completion(shell: str, tool: Tool) -> None:
    told = tool("completion", shell)
    assert told.code == 0
    assert f"_KAFKA_TOOLS_COMPLETE={shell}_complete" in told.out


@pytest.mark.parametrize(
    ("words", "offered"), [("kafka-tools la", ["lag"]), ("kafka-tools topics cr", ["create"]), ("kafka-tools lag --wa", ["--watch"])]
)
def test_completion_offers_commands_and_options(words: str, offered: list[str]) -> None:
    environment = {"_KAFKA_TOOLS_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    told = subprocess.run(TOOL, capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHONPATH": str(ROOT), **environment})
    assert [line.partition(",")[2] for line in told.stdout.split()] == offered


# -- what is not understood ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["topic"], "kafka-tools: No such command 'topic'. (Did you mean one of: 'desc_topic', 'topics'?)\n  next: kafka-tools --help\n"),
        (["topics", "lst"], "kafka-tools topics: No such command 'lst'. Did you mean 'list'?\n  next: kafka-tools topics --help\n"),
        (
            ["lag", "--wach"],
            "kafka-tools lag: No such option '--wach'. Did you mean '--watch'?\n  next: kafka-tools lag --help\n",
        ),
        (["topics", "create"], "kafka-tools topics create: Missing argument 'TOPIC...'.\n  next: kafka-tools topics create --help\n"),
        (
            ["completion"],
            "kafka-tools completion: Missing argument '{bash|zsh|fish}'. Choose from: bash, zsh, fish\n  next: kafka-tools completion --help\n",
        ),
        (["lag", "--interval", "3"], "kafka-tools lag: --interval is for --watch: give that, too\n  next: kafka-tools lag --help\n"),
        (["lag", "--count", "2"], "kafka-tools lag: --count is for --watch: give that, too\n  next: kafka-tools lag --help\n"),
        (["topics", "--jsn"], "kafka-tools topics: No such option '--jsn'. Did you mean '--json'?\n  next: kafka-tools topics --help\n"),
        (
            ["--json", "topics"],
            "kafka-tools: No such option '--json'. kafka-tools topics has '--json'\n"
            "  next: give it behind the command: kafka-tools topics --json\n",
        ),
        (
            ["--jsn", "topics", "describe"],
            "kafka-tools: No such option '--jsn'. kafka-tools topics describe has '--json'\n"
            "  next: give it behind the command: kafka-tools topics describe --json\n",
        ),
        (
            ["--max", "5", "consume", "x"],
            "kafka-tools: No such option '--max'. kafka-tools consume has '--max-messages'\n"
            "  next: give it behind the command: kafka-tools consume --max-messages N\n",
        ),
        (
            ["consume", "x", "--max", "5"],
            "kafka-tools consume: No such option '--max'. Did you mean '--max-messages'?\n  next: kafka-tools consume --help\n",
        ),
        (
            ["offsets", "reset", "g", "--to", "earliest"],
            "kafka-tools offsets reset: No such option '--to'. (Did you mean one of: '--topic', '--to-earliest', '--to-latest', '--to-time', "
            "'--to-datetime', '--to-offset'?)\n  next: kafka-tools offsets reset --help\n",
        ),
        (
            ["consume", "x", "--from-beginning"],
            "kafka-tools consume: No such option '--from-beginning'. Did you mean '--from'?\n  next: kafka-tools consume --help\n",
        ),
        (
            ["consume", "x", "--limit", "5"],
            "kafka-tools consume: No such option '--limit'. Did you mean '--max-messages'?\n  next: kafka-tools consume --help\n",
        ),
        (
            ["topics", "--list"],
            "kafka-tools topics: No such option '--list'. It is a command: kafka-tools topics list\n  next: kafka-tools topics list --help\n",
        ),
        (
            ["consume", "--topic", "x"],
            "kafka-tools consume: No such option '--topic'. The topic stands without one: kafka-tools consume TOPIC...\n"
            "  next: kafka-tools consume --help\n",
        ),
        (
            ["consume", "x", "--last", "abc"],
            "kafka-tools consume: Invalid value for '--last': 'abc' is no whole number.\n  next: kafka-tools consume --help\n",
        ),
        (["--form", "consume", "lag"], "kafka-tools: No such option '--form'.\n  next: kafka-tools --help\n"),
        (["--from", "consume", "lag"], "kafka-tools: No such option '--from'.\n  next: kafka-tools --help\n"),
        (
            ["--interval", "consume", "lag"],
            "kafka-tools: No such option '--interval'. kafka-tools lag has '--interval'\n"
            "  next: give it behind the command: kafka-tools lag --interval SECONDS\n",
        ),
        (
            ["-b", "lag", "--format", "json", "consume"],
            "kafka-tools: No such option '--format'. kafka-tools consume has '--format'\n"
            "  next: give it behind the command: kafka-tools consume --format VALUE\n",
        ),
        (["--nothing", "topics"], "kafka-tools: No such option '--nothing'.\n  next: kafka-tools --help\n"),
        (["produce", "x", "--key"], "kafka-tools produce: Option '--key' requires an argument.\n  next: kafka-tools produce --help\n"),
        (["\x1b[31mtopics"], "kafka-tools: No such command '\\x1b[31mtopics'. Did you mean 'topics'?\n  next: kafka-tools --help\n"),
    ],
)
def test_what_is_not_understood_is_told_with_the_nearest_name(words: list[str], says: str, tool: Tool) -> None:
    assert tool(*words) == (2, "", says)


def test_no_command_prints_the_help_and_is_not_understood(tool: Tool) -> None:
    told = tool()
    assert (told.code, told.out) == (2, "")
    assert "Usage: kafka-tools" in told.err


# -- what fails ----------------------------------------------------------------------------------------------------------------
@contextmanager
def broken(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def fail(*_: object, **__: object) -> object:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr("gkafka.cli.looking.connect", fail)
        yield


@pytest.mark.parametrize(
    ("error", "lines"),
    [
        (NoBrokersAvailableError("none answered"), ["kafka-tools: none answered", "  next: kafka-tools doctor, with the same options"]),
        (KafkaTimeoutError("too late"), ["kafka-tools: too late", "  next: a larger --timeout"]),
        (SaslAuthenticationFailed("who?"), ["kafka-tools: who?", "  next: check the user, the password"]),
        (TlsError("not trusted"), ["kafka-tools: not trusted", "  next: give the authority"]),
        (GroupAuthorizationFailed("no"), ["kafka-tools: no", "  next: have a principal that may"]),
        (ConfigurationError("x=1: must be 2"), ["kafka-tools: x=1: must be 2", "  next: mend that on the command line"]),
        (KafkaException("no"), ["kafka-tools: no", "  next: kafka-tools doctor, with the same options"]),
        (PermissionError(13, "Permission denied", "/etc/x"), ["kafka-tools: /etc/x: Permission denied", "  next: check the path"]),
        (RuntimeError("\x1b[2Jboom"), ["kafka-tools: unexpected RuntimeError: \\x1b[2Jboom", "  next: the same with --debug shows where"]),
        (
            AdminError("2 failed", {"a": UnknownTopicOrPartition("no a"), "b": UnknownTopicOrPartition("no b")}),
            ["kafka-tools: no a", "kafka-tools: no b", "  next: kafka-tools topics lists"],
        ),
    ],
)
def test_a_failure_is_one_line_and_the_next_step(error: Exception, lines: list[str], tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    with broken(error, monkeypatch):
        told = tool("topics")
    assert (told.code, told.out) == (2 if isinstance(error, (ConfigurationError, PermissionError)) else 1, "")
    assert len(told.err.splitlines()) == len(lines)
    for said, line in zip(told.err.splitlines(), lines, strict=True):
        assert said.startswith(line)


@pytest.mark.parametrize(("behind", "shown"), [(12, "12"), (None, "OFFSET")])
def test_damage_is_told_with_the_way_to_go_on_behind_it(
    behind: int | None, shown: str, tool: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage = CorruptRecordError("TOPIC[0] offset 7: bad", topic="TOPIC", partition=0, offset=7)
    damage.next_offset = behind  # type: ignore[attr-defined, unused-ignore]
    with broken(damage, monkeypatch):
        told = tool("topics")
    assert told == (
        1,
        "",
        "kafka-tools: TOPIC[0] offset 7: bad\n"
        f"  next: go on behind the damage: kafka-tools consume TOPIC -p 0 --from {shown}; a group: kafka-tools offsets reset GROUP --topic "
        f"TOPIC:0 --to-offset {shown}\n",
    )


def test_many_failures_are_cut_short(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    with broken(AdminError("many", {n: UnknownTopicOrPartition(f"no {n}") for n in range(20)}), monkeypatch):
        assert "  ... and 15 more\n" in tool("topics").err


@pytest.mark.parametrize("words", [["--debug", "topics"], ["topics", "--debug"], ["topics", "list", "--debug"]])
def test_debug_shows_the_traceback(words: list[str], tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    with broken(RuntimeError("boom"), monkeypatch):
        told = tool(*words)
    assert "Traceback (most recent call last)" in told.err
    assert told.code == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt(), EOFError(), click.Abort()])
def test_who_interrupts_gets_130_and_one_sentence(error: BaseException, tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    with broken(error, monkeypatch):
        assert tool("topics") == (130, "", "kafka-tools: interrupted; nothing was changed\n")


def test_nobody_answers(tool: Tool) -> None:
    told = tool("topics", "-b", "127.0.0.1:1", "--timeout", 5)
    assert (told.code, told.out) == (1, "")
    assert told.err.startswith("kafka-tools: none of the hosts answered; 127.0.0.1:1: no connection")
    assert told.err.splitlines()[1].startswith("  next: kafka-tools doctor")


def test_an_empty_name_of_brokers_is_told(tool: Tool) -> None:
    told = tool("topics", "-b", "")
    assert told.code == 2
    assert "give at least one host:port" in told.err


def test_hosts_that_are_none(tool: Tool) -> None:
    told = tool("topics", "-b", "http://kafka:9092/")
    assert told.code == 2
    assert "is not host:port" in told.err


def test_without_click_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['click'] = None; from gkafka.cli.kafka_tools import main; sys.exit(main())"
    told = run(sys.executable, "-c", code)
    assert (told.returncode, told.stdout) == (1, "")
    assert told.stderr == "kafka-tools: needs the package click, which is not installed\n  next: pip install 'click>=8.4'\n"


# -- pipes and signals ---------------------------------------------------------------------------------------------------------
def test_a_reader_that_has_had_enough_is_no_failure(cluster: MockCluster) -> None:
    command = (
        f"{sys.executable} -m gkafka.cli lag --watch --interval 0.1 --json -b {cluster.bootstrap} | head -n 2; echo ${{PIPESTATUS[0]}}"
    )
    told = run("bash", "-c", command)
    assert told.stderr == ""
    assert [line[:9] for line in told.stdout.splitlines()] == ['{"time":"', '{"time":"', "0"]


def test_a_reader_that_closes_at_once_is_no_failure() -> None:
    told = run("bash", "-c", f"{sys.executable} -m gkafka.cli --help | true; echo ${{PIPESTATUS[0]}}")
    assert (told.stdout, told.stderr) == ("0\n", "")


@pytest.mark.parametrize(
    ("words", "reader", "code"),
    [
        ("doctor -b 127.0.0.1:1", "head -n 1 >&2", 1),
        ("doctor -b 127.0.0.1:1", "true", 1),
        ("doctor -b 127.0.0.1:1 --json", "true", 1),
        ("topics list -b {there}", "true", 0),
        ("doctor -b {there}", "true", 0),
    ],
)
def test_a_reader_that_leaves_hides_no_failure(words: str, reader: str, code: int, cluster: MockCluster) -> None:
    # Without a buffer each line finds out at once that nobody reads; with one it is what happens to long output.
    command = f"export PYTHONUNBUFFERED=1; {' '.join(TOOL)} {words.format(there=cluster.bootstrap)} | {reader}; echo ${{PIPESTATUS[0]}}"
    told = run("bash", "-c", command)
    assert told.stdout == f"{code}\n"
    assert "Traceback" not in told.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_records_that_were_not_delivered_are_a_failure_though_nobody_reads_it(unbuffered: str, cluster: MockCluster) -> None:
    cluster.on("Produce", Error(87), times=None)
    command = f"export PYTHONUNBUFFERED={unbuffered}; echo a | {' '.join(TOOL)} produce payments --json -b {cluster.bootstrap} | true"
    told = run("bash", "-c", command + "; echo ${PIPESTATUS[1]}")
    assert told.stdout == "1\n"
    assert told.stderr.count("not delivered") == 1


def test_what_was_to_be_done_is_done_though_nobody_reads_the_plan(cluster: MockCluster) -> None:
    words = f"offsets reset billing --topic payments --to-latest --create --yes -b {cluster.bootstrap}"
    told = run("bash", "-c", f"export PYTHONUNBUFFERED=1; {' '.join(TOOL)} {words} | true; echo ${{PIPESTATUS[0]}}")
    assert told.stdout == "0\n"
    with KafkaClient(cluster.bootstrap) as client:
        assert client.admin().list_group_offsets("billing")["payments", 0].offset == 0


@pytest.mark.parametrize("words", ["--help", "version --json"])
def test_a_disk_that_is_full_is_a_failure(words: str) -> None:
    told = run("bash", "-c", f"{sys.executable} -m gkafka.cli {words} > /dev/full; echo $?")
    assert (told.stdout, told.stderr) == (
        "1\n",
        "kafka-tools: standard output: No space left on device\n  next: write it elsewhere, or make room\n",
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(("more", "code"), [([], 0), (["--count", "1000000"], 130)], ids=["without end", "with an end"])
def test_who_ends_what_has_no_end_gets_0_and_no_word(more: list[str], code: int, number: int, cluster: MockCluster) -> None:
    watching = subprocess.Popen(
        [*TOOL, "lag", "--watch", "--interval", "0.1", "-b", cluster.bootstrap, *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert watching.stdout is not None
    watching.stdout.readline()
    watching.send_signal(number)
    _, said = watching.communicate(timeout=60)
    assert (watching.returncode, said) == (code, "" if code == 0 else "kafka-tools: interrupted; nothing was changed\n")


@pytest.mark.parametrize(
    ("arguments", "closed", "code"),
    [
        ("topics", "2>&-", 0),
        ("topics --bogus", "2>&-", 2),
        ("topics --sasl-username x", "0<&- 2>&-", 2),
        ("lag -w --count 1", "1>&- 2>&-", 1),
        ("consume orders", "0<&- 2>&-", 0),
        ("consume orders", "1>&- 2>&-", 1),
        ("produce orders", "1>&- 2>&-", 0),
        ("produce nowhere", "2>&-", 1),
        ("produce orders", "0<&- 1>&- 2>&-", 2),
    ],
)
def test_streams_that_are_closed_crash_nothing(arguments: str, closed: str, code: int, cluster: MockCluster) -> None:
    told = run("sh", "-c", f"echo a | {' '.join(TOOL)} {arguments} -b {cluster.bootstrap} {closed}; echo $? >&2")
    assert told.stderr == f"{code}\n"
    assert "kafka-tools" not in told.stdout
    written = sum(len(cluster.log("orders", partition)) for partition in range(4))
    assert written == (1 if (arguments, code) == ("produce orders", 0) else 0)


@pytest.mark.parametrize("arguments", ["version", "version --json", "topics -b 127.0.0.1:1 --timeout 1"])
def test_a_standard_output_that_is_closed_is_told(arguments: str) -> None:
    told = run("sh", "-c", f"{' '.join(TOOL)} {arguments} >&-")
    assert told.returncode == 1
    assert "standard output is closed" in told.stderr or "none of the hosts answered" in told.stderr
    assert "next: " in told.stderr
    assert "defect" not in told.stderr
    assert "Traceback" not in told.stderr
