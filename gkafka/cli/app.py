"""The frame of kafka-tools: which commands there are, where they live, and what becomes of what they raise.

A command's module is imported when the command is used: `--help` and `version` need none of the client.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

import click

from gkafka import __version__
from gkafka.cli.commands import Group
from gkafka.cli.connection import connection_options, keep_as
from gkafka.cli.failures import INTERRUPTED, ToolError, code_of, tell
from gkafka.cli.output import nobody_reads, note
from gkafka.cli.pipes import full_streams
from gkafka.cli.progress import Progress

__all__ = ["COMMANDS", "PROG", "Entry", "main", "tools"]

PROG = "kafka-tools"
COMPLETE = "_KAFKA_TOOLS_COMPLETE"


class Entry(NamedTuple):
    """A command: "module:name of its click command", and what --help says of it without importing that."""

    target: str
    summary: str


COMMANDS: dict[str, dict[str, Entry]] = {
    "Look": {
        "topics": Entry("gkafka.cli.topics:topics", "Topics: list, describe, create, delete, add partitions."),
        "groups": Entry("gkafka.cli.groups:groups", "Consumer groups: list, describe, members, delete."),
        "lag": Entry("gkafka.cli.lag:lag", "How far groups are behind; --watch keeps looking."),
        "offsets": Entry("gkafka.cli.offsets:offsets", "Offsets of topics and groups: list, reset, delete."),
        "acls": Entry("gkafka.cli.acls:acls", "Access rules: list, create, delete."),
        "configs": Entry("gkafka.cli.configs:configs", "Configurations of topics, brokers, groups: describe, alter."),
    },
    "Records": {
        "produce": Entry("gkafka.cli.produce:produce", "Write records from standard input, files or arguments."),
        "consume": Entry("gkafka.cli.consume:consume", "Print records of topics as text, JSON or hex."),
        "copy": Entry("gkafka.cli.copy:copy", "Copy records between topics or clusters."),
    },
    "Help": {
        "doctor": Entry("gkafka.cli.doctor:doctor", "Say at which step reaching the cluster fails, and what to try."),
        "bench": Entry("gkafka.cli.bench:bench", "Measure producing and consuming on this cluster."),
        "docs": Entry("gkafka.cli.docs:docs", "Show a page of gkafka's documentation, or list the pages."),
        "version": Entry("gkafka.cli.version:version_of_all", "Versions of gkafka, the accelerator, codecs, libraries."),
        "completion": Entry("gkafka.cli.completion:completion", "Print the completion script of a shell."),
    },
    "As pykafka has them": {
        "print_topics": Entry("gkafka.cli.pykafka:print_topics", "All topics with partitions and replication."),
        "desc_topic": Entry("gkafka.cli.pykafka:desc_topic", "A topic's partitions, leaders, replicas."),
        "print_offsets": Entry("gkafka.cli.pykafka:print_offsets", "Offsets of a topic: EARLIEST, LATEST or at a time."),
        "print_consumer_lag": Entry("gkafka.cli.pykafka:print_consumer_lag", "Lag of a consumer group on a topic."),
        "print_managed_consumer_groups": Entry("gkafka.cli.pykafka:print_managed_consumer_groups", "Groups that consume a topic."),
        "reset_offsets": Entry("gkafka.cli.pykafka:reset_offsets", "Set a group's offsets on a topic."),
        "consume_topic": Entry("gkafka.cli.pykafka:consume_topic", "Write new records of a topic to a file or stdout."),
        "create_topic": Entry("gkafka.cli.pykafka:create_topic", "Create a topic."),
        "delete_topic": Entry("gkafka.cli.pykafka:delete_topic", "Delete a topic."),
    },
}
"""Section of --help -> name -> entry."""


def _entries() -> dict[str, Entry]:
    return {name: entry for section in COMMANDS.values() for name, entry in section.items()}


class Tools(Group):
    """A group that imports a command when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_entries())

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self.commands:
            entry = _entries().get(name)
            if entry is None:
                return None
            module, _, attribute = entry.target.partition(":")
            self.add_command(getattr(import_module(module), attribute), name)
        return self.commands[name]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section, entries in COMMANDS.items():
            with formatter.section(section):
                formatter.write_dl([(name, entry.summary) for name, entry in entries.items()])

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if not ctx.resilient_parsing and args[0] not in _entries() and not args[0].startswith("-"):
            raise click.NoSuchCommand(args[0], possibilities=_entries(), ctx=ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=Tools, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name=PROG)
@click.option("-o", "broker_version", expose_value=False, hidden=True, callback=keep_as("broker_version"))
@connection_options
def tools() -> None:
    """Ask a Kafka cluster, and act on it.

    \b
    kafka-tools topics -b kafka1:9092              all topics
    kafka-tools lag billing --watch                how far a group is behind
    kafka-tools consume orders --from 1h --json    an hour of records
    kafka-tools doctor                             why can I not connect?
    """


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line. Returns the exit code: 0 fine, 1 failed, 2 not understood, 3 done or told in part, 130 interrupted before its end."""
    args = list(sys.argv[1:] if argv is None else argv)
    _open_standard_streams()
    progress = Progress()
    with full_streams(progress):
        try:
            return _flushed(_completing() if COMPLETE in os.environ else _run(args, progress))
        except KeyboardInterrupt:  # while the last of the output, or of what failed, waits for its reader
            return INTERRUPTED


def _open_standard_streams() -> None:
    """Have something behind descriptors 0 to 2 that the shell closed (`2>&-`): else the first socket gets the number, and what libraries
    write to standard error would go to a broker. Python's own streams stay None.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free


def _run(args: list[str], progress: Progress) -> int:
    state: dict[str, Any] = {"progress": progress}
    try:
        with tools.make_context(PROG, [*args], obj=state) as ctx:  # click takes what it has read out of its list
            tools.invoke(ctx)
    except click.exceptions.Exit as exc:
        return exc.exit_code
    except BrokenPipeError:
        return 0  # of what goes on without end: whoever read it has had enough, as head has, and nothing had failed
    except (KeyboardInterrupt, EOFError, click.Abort):
        note(progress.interrupted())
        return INTERRUPTED
    except Exception as exc:
        if state.get("connection:", {}).get("debug"):
            import traceback

            traceback.print_exc()
        tell(exc, state.get("command") or _command_of(exc, args), args)
        return code_of(exc)
    return 0


def _command_of(error: Exception, args: list[str]) -> str:
    """How the command is called that the arguments name, for an error that does not tell."""
    if not isinstance(error, click.UsageError) or error.ctx is not None:
        return PROG
    from gkafka.cli.misplaced import command_in

    return command_in(args, click.Context(tools, info_name=PROG), tools)[0]


def _flushed(code: int) -> int:
    """Write what is left of the output. The exit code, which a disk that is full makes a failure."""
    if sys.stdout is None:  # what Python makes of a descriptor that is closed
        return code
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        nobody_reads()
    except ToolError as exc:
        if code == 0:
            tell(exc)
            return code_of(exc)
    return code


def _completing() -> int:
    from click.shell_completion import shell_complete

    return shell_complete(tools, {}, PROG, COMPLETE, os.environ[COMPLETE])
