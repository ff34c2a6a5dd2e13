"""What works for longer shows itself on a terminal and nowhere else; Ctrl-C leaves a sentence about what was done and what was not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gkafka.testing import Delay, Error, MockCluster
from tests.cli.running import program, stop, tool
from tests.cli.terminal import TOOL, Terminal, piped

TAKE_AWAY = "\r\x1b[K"


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    with MockCluster(1) as started:
        started.create_topic("t", 1)
        started.create_topic("copied", 1)
        yield started


def write(cluster: MockCluster, count: int) -> None:
    lines = b"".join(b"record %d\n" % i for i in range(count))
    assert tool("produce", "t", "-b", cluster.bootstrap, stdin=lines).code == 0


SILENT = {
    "topics": ("Metadata", ["topics"], "kafka-tools topics list: waiting for the brokers, "),
    "lag": ("DescribeGroups", ["lag"], "kafka-tools lag: describe groups (1), "),
    "reset": (
        "OffsetCommit",
        ["offsets", "reset", "g", "--topic", "t", "--to-latest", "--create", "--yes"],
        "kafka-tools offsets reset: waiting",
    ),
    "create": ("CreateTopics", ["topics", "create", "new"], "kafka-tools topics create: waiting"),
    "consume": ("Fetch", ["consume", "t"], "kafka-tools consume: 0 records of at most 20 printed, "),
    "copy": ("Fetch", ["copy", "t", "copied"], "kafka-tools copy: 0 records of at most 20 copied, "),
    "bench": ("Produce", ["bench", "produce"], "kafka-tools bench produce: measure, 10 s at most, "),
}
"""What a broker does not answer, the command that waits for it, and what the command shows meanwhile."""


@pytest.mark.parametrize("name", SILENT)
def test_who_waits_sees_for_what_and_it_goes_when_the_command_ends(cluster: MockCluster, name: str) -> None:
    api, words, shown = SILENT[name]
    write(cluster, 20)
    assert tool("consume", "t", "-g", "listed", "-b", cluster.bootstrap).code == 0
    cluster.on(api, Delay(3600), times=None)
    with Terminal(*words, "-b", cluster.bootstrap, "--timeout", "60") as terminal:
        terminal.wait_for(f"{TAKE_AWAY}{shown}")
        terminal.wait_for(shown, times=2)
        terminal.press("\x03")
        code, told = terminal.end()
    assert code == 130
    assert told.rpartition(TAKE_AWAY)[2].startswith("kafka-tools: interrupted; ")


def test_a_file_is_filled_under_a_line_of_how_far_it_is(cluster: MockCluster) -> None:
    write(cluster, 20)
    cluster.on("Fetch", Error(5), times=None)
    to_a_file = ["sh", "-c", '"$@" > /dev/null', "sh", *TOOL]
    with Terminal("consume", "t", "-b", cluster.bootstrap, command=to_a_file) as terminal:
        terminal.wait_for("kafka-tools consume: 0 records of at most 20 printed, ")
        cluster.clear_script()
        code, told = terminal.end()
    assert code == 0
    assert told.endswith(TAKE_AWAY)


def test_records_on_the_terminal_stand_on_lines_of_their_own(cluster: MockCluster) -> None:
    """The line makes way for what the command writes."""
    write(cluster, 1)
    with Terminal("consume", "t", "-b", cluster.bootstrap, "--follow") as terminal:
        terminal.wait_for("kafka-tools consume: 1 record printed, ")
        write(cluster, 1)
        told = terminal.wait_for("record 0\n", times=2)
        terminal.wait_for("kafka-tools consume: 2 records printed, ")  # it is counted a moment after it is there
        terminal.press("\x03")
        code, end = terminal.end()
    assert code == 0
    assert f"{TAKE_AWAY}record 0\n" in told
    assert end.endswith("kafka-tools: interrupted; 2 records printed; what comes behind them is not\n")


def test_nothing_is_drawn_where_somebody_types(cluster: MockCluster) -> None:
    with Terminal("produce", "t", "-b", cluster.bootstrap) as terminal:
        terminal.press("typed\n")
        cluster.wait_for(lambda: cluster.count("Produce") or None, 60)
        cluster.on("Produce", Delay(3), times=1)
        terminal.press("again\n")
        cluster.wait_for(lambda: cluster.count("Produce") > 1 or None, 60)
        terminal.press("\x04")
        code, told = terminal.end()
    assert code == 0
    assert TAKE_AWAY not in told
    assert "2 records delivered to t" in told


def test_a_pipe_and_a_terminal_that_only_prints_lines_see_nothing_of_it(cluster: MockCluster) -> None:
    write(cluster, 1)
    cluster.on("Fetch", Delay(3), times=1)
    told = piped("consume", "t", "-b", cluster.bootstrap)
    assert (told.returncode, told.stdout, told.stderr) == (0, "record 0\n", "")
    cluster.on("Fetch", Delay(3), times=1)
    with Terminal("consume", "t", "-b", cluster.bootstrap, env={"TERM": "dumb"}) as terminal:
        assert terminal.end() == (0, "record 0\n")


UNDONE = {
    "look": (["topics"], "Metadata", "nothing was changed"),
    "a plan": (["offsets", "reset", "g", "--topic", "t", "--to-latest", "--create"], "ListOffsets", "nothing was changed"),
    "act": (["topics", "delete", "t", "--yes"], "DeleteTopics", "what the brokers were asked for may be done all the same: look before"),
    "consume": (["consume", "t"], "Fetch", "0 records of at most 20 printed; what comes behind them is not"),
    "of a group": (["consume", "t", "-g", "g"], "Fetch", "0 records printed; group 'g' goes on behind them"),
    "copy": (["copy", "t", "copied"], "Fetch", "0 records of at most 20 copied; the others are not copied"),
    "bench": (["bench", "consume", "--topic", "t"], "Fetch", "what was measured until then does not count"),
    "doctor": (["doctor", "--topic", "t", "--write"], "Produce", "the one record may have been written to t"),
}


@pytest.mark.parametrize("name", UNDONE)
def test_ctrl_c_leaves_one_sentence(cluster: MockCluster, name: str) -> None:
    words, api, said = UNDONE[name]
    write(cluster, 20)
    before = cluster.count(api)
    cluster.on(api, Delay(3600), times=None)
    with program(*words, "-b", cluster.bootstrap, "--timeout", "60") as process:
        cluster.wait_for(lambda: cluster.count(api) > before, 60)
        assert stop(process) == 130
        assert process.stderr is not None
        told = process.stderr.read().decode().splitlines()
    assert len(told) == (2 if name == "doctor" else 1), "with --write it says first what it writes"
    assert told[-1].startswith(f"kafka-tools: interrupted; {said}")
