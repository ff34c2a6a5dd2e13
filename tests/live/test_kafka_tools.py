"""kafka-tools on a real broker, as a person uses it; and beside Kafka's own scripts, which are asked the same questions."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gkafka import KafkaClient
from tests.cli.terminal import PLAIN, TOOL, Terminal, environment, piped
from tests.effort import one_of
from tests.live.kafka import KafkaCluster
from tests.live.peer import Peer, Seen
from tests.live.probe import metadata
from tests.live.scripts import Scripts
from tests.live.sharing import until

pytestmark = pytest.mark.parametrize("version", one_of("4.2.0", "2.8.2"))  # 2.8 in short: test_kafka_tools_of_releases.py
Tool = Callable[..., Any]


@pytest.fixture
def scripts(kafka: KafkaCluster) -> Scripts:
    return Scripts(kafka)


@pytest.fixture
def tool(kafka: KafkaCluster) -> Callable[..., str]:
    """Standard output of a command that succeeds."""

    def run(*words: object) -> str:
        told = piped(*words, "-b", kafka.hosts)
        assert told.returncode == 0, told.stderr
        return told.stdout

    return run


@pytest.fixture
def ask(tool: Callable[..., str]) -> Tool:
    """The JSON document that a command prints."""
    return lambda *words: json.loads(tool(*words, "--json"))


@pytest.fixture
def filled(new_topic: Callable[..., str], peer: Peer) -> str:
    """A topic of three partitions with 10, 20 and 30 records of another client."""
    topic = new_topic(3, retention_ms=7000000000000, cleanup_policy="compact,delete")
    peer.write(topic, [Seen(p, i, b"%d" % i, b"%d" % i, [], 1_700_000_000_000 + i * 1000) for p in range(3) for i in range(10 * (p + 1))])
    return topic


def whole(value: str) -> int | None:
    return None if value == "-" else int(value)


# -- the same questions --------------------------------------------------------------------------------------------------------
def test_the_same_topics_as_kafkas_script(version: str, filled: str, ask: Tool, tool: Callable[..., str], scripts: Scripts) -> None:
    every = scripts.run("topics", "--list").split()
    theirs = [name for name in every if not name.startswith("__")]
    assert [row["topic"] for row in ask("topics")] == sorted(theirs)
    assert [line.split()[0] for line in tool("topics").splitlines()[1:]] == sorted(theirs)
    internal = [row["topic"] for row in ask("topics", "list", "--internal")]
    assert internal == sorted(every)


def test_the_same_description_of_a_topic(version: str, filled: str, ask: Tool, scripts: Scripts) -> None:
    (ours,) = ask("topics", "describe", filled)
    head, *partitions = [line for line in scripts.run("topics", "--describe", "--topic", filled).splitlines() if "Topic:" in line]
    assert int(re.search(r"PartitionCount:\s*(\d+)", head)[1]) == len(ours["partitions"])  # type: ignore[index]
    assert int(re.search(r"ReplicationFactor:\s*(\d+)", head)[1]) == ours["replicas"]  # type: ignore[index]
    told = head.split("Configs:")[1].strip()  # "a=1,b=2,3": a comma may stand in a value
    configs = dict(pair.split("=") for pair in re.split(r",(?=[a-z.]+=)", told)) if told else {}
    assert ours["configs"].items() <= configs.items() | {("min.insync.replicas", "1")}
    assert {"retention.ms", "cleanup.policy"} <= ours["configs"].keys()
    if found := re.search(r"TopicId:\s*(\S+)", head):
        assert ours["id"] is not None
        assert len(found[1]) == 22
    theirs = [dict(re.findall(r"(Partition|Leader|Replicas|Isr):\s*(\S+)", line)) for line in partitions]
    assert [
        (str(p["partition"]), str(p["leader"]), ",".join(map(str, p["replicas"])), ",".join(map(str, p["isr"]))) for p in ours["partitions"]
    ] == [(t["Partition"], t["Leader"], t["Replicas"], t["Isr"]) for t in theirs]


def test_the_same_offsets(version: str, filled: str, ask: Tool, tool: Callable[..., str], scripts: Scripts, kafka: KafkaCluster) -> None:
    for column, time in (("earliest", "-2"), ("latest", "-1"), ("at_time", "1700000005000")):
        if time == "1700000005000" and version == "2.8.2":
            continue  # its script asks for that without a time
        theirs = [line.split(":") for line in scripts.run("offsets", "--topic", filled, "--time", time).split()]
        ours = ask("offsets", "list", filled, *(["--time", time] if column == "at_time" else []))
        assert [[row["topic"], str(row["partition"]), str(row[column])] for row in ours] == sorted(theirs)
    rows = [line.split() for line in tool("print_offsets", filled, "2023-11-14T22:13:25").splitlines()[1:]]
    assert rows == [["0", "5"], ["1", "5"], ["2", "5"]]


@pytest.fixture
def member(kafka: KafkaCluster, filled: str, new_name: Callable[[str], str]) -> Iterator[str]:
    """The name of a group with a member that has read, and committed, four records of each partition; it stays."""
    group = new_name("group")
    with KafkaClient(kafka.hosts, handler="threading", client_id="reader") as client:
        client.admin().alter_group_offsets(group, {(filled, p): 4 for p in range(3)})
        with client.get_consumer([filled], group, auto_commit=False) as consumer:
            until(lambda: len(consumer.assignment()) == 3 or (consumer.consume(100) is None and False))
            done = threading.Event()

            def stay() -> None:
                while not done.is_set():
                    consumer.consume(100)

            worker = threading.Thread(target=stay)
            worker.start()
            try:
                yield group
            finally:
                done.set()
                worker.join()


def test_the_same_groups_members_and_lag(version: str, member: str, filled: str, ask: Tool, scripts: Scripts) -> None:
    listed = scripts.run("groups", "--list").split()
    assert [g["group"] for g in ask("groups")] == sorted(listed)
    theirs = scripts.table("groups", "--describe", "--group", member)
    (ours,) = ask("groups", "describe", member)
    assert [(p["topic"], p["partition"], p["committed"], p["end"], p["lag"], p["member"]) for p in ours["partitions"]] == sorted(
        (t["TOPIC"], int(t["PARTITION"]), whole(t["CURRENT-OFFSET"]), whole(t["LOG-END-OFFSET"]), whole(t["LAG"]), t["CONSUMER-ID"])
        for t in theirs
    )
    assert {(p["client"], p["host"]) for p in ours["partitions"]} == {(t["CLIENT-ID"], t["HOST"]) for t in theirs}
    (state,) = scripts.table("groups", "--describe", "--group", member, "--state")
    assert (ours["state"], ours["members"]) == ("Stable", int(state["#MEMBERS"] if state["#MEMBERS"].isdecimal() else 1))
    (person,) = scripts.table("groups", "--describe", "--group", member, "--members")
    (seen,) = ask("groups", "members", member)
    assert (seen["member"], seen["client"], seen["count"]) == (person["CONSUMER-ID"], person["CLIENT-ID"], int(person["#PARTITIONS"]))
    (lag,) = ask("lag", member)
    assert lag["lag"] == sum(int(t["LAG"]) for t in theirs) == 6 + 16 + 26


def test_a_group_that_is_in_use_is_refused_as_by_kafkas_script(version: str, member: str, ask: Tool, kafka: KafkaCluster) -> None:
    assert ask("offsets", "reset", member, "--to-earliest")["done"] is False
    for words in (("offsets", "reset", member, "--to-earliest", "--yes"), ("groups", "delete", member, "--yes")):
        told = piped(*words, "-b", kafka.hosts)
        assert told.returncode == 1
        assert f"group {member!r} has 1 member: stop them first (reader on /127.0.0.1)" in told.stderr
        assert "\n  next: stop its members first" in told.stderr
    assert [row["committed"] for row in ask("offsets", "list", "--group", member)] == [4, 4, 4]


RULES = [
    (["--shift-by=9"], ["--shift-by", "9"]),
    (["--shift-by=-2"], ["--shift-by", "-2"]),
    (["--to-earliest"], ["--to-earliest"]),
    (["--to-latest"], ["--to-latest"]),
    (["--to-offset", "15"], ["--to-offset", "15"]),
    (["--to-time", "2023-11-14T22:13:27Z"], ["--to-datetime", "2023-11-14T22:13:27.000"]),
]
"""Ours and theirs. The first one goes over a partition's end, and stays in it; each alone, on brokers in this process: tests/cli."""


@pytest.mark.parametrize("rule", one_of(*RULES), ids=lambda rule: " ".join(rule[0]))
def test_a_reset_plans_and_does_the_same(
    version: str,
    rule: tuple[list[str], list[str]],
    filled: str,
    new_name: Callable[[str], str],
    ask: Tool,
    scripts: Scripts,
    kafka: KafkaCluster,
) -> None:
    ours, theirs = rule
    group = new_name("group")
    ask("offsets", "reset", group, "--topic", filled, "--to-offset", 5, "--create", "--yes")
    plan = scripts.table("groups", "--reset-offsets", "--group", group, "--topic", filled, *theirs, "--dry-run")
    wanted = sorted((t["TOPIC"], int(t["PARTITION"]), int(t["NEW-OFFSET"])) for t in plan)
    planned = ask("offsets", "reset", group, "--topic", filled, *ours)
    assert [(row["topic"], row["partition"], row["after"]) for row in planned["items"]] == wanted
    assert {row["committed"] for row in ask("offsets", "list", "--group", group)} == {5}
    ask("offsets", "reset", group, *ours, "--yes")
    told = scripts.table("groups", "--describe", "--group", group)
    assert sorted((t["TOPIC"], int(t["PARTITION"]), int(t["CURRENT-OFFSET"])) for t in told) == wanted


def test_the_scripts_file_of_offsets_is_understood(
    version: str, filled: str, new_name: Callable[[str], str], ask: Tool, scripts: Scripts, tmp_path: Path
) -> None:
    first, second, file = new_name("group"), new_name("group"), tmp_path / "offsets.csv"
    ask("offsets", "reset", first, "--topic", filled, "--to-offset", 7, "--create", "--yes")
    exported = scripts.run("groups", "--reset-offsets", "--group", first, "--topic", filled, "--to-current", "--dry-run", "--export")
    file.write_text(
        "\n".join(line for line in exported.splitlines() if line.count(",") == 2 and line.replace('"', "").split(",")[2].isdecimal())
    )
    ask("offsets", "reset", second, "--from-file", file, "--create", "--yes")
    assert [row["committed"] for row in ask("offsets", "list", "--group", second)] == [7, 7, 7]
    assert ask("offsets", "delete", second, "--topic", f"{filled}:0,1", "--yes")["done"] is True
    assert [t["PARTITION"] for t in scripts.table("groups", "--describe", "--group", second)] == ["2"]
    assert ask("groups", "delete", second, "--yes")["done"] is True
    assert second not in scripts.run("groups", "--list").split()


def test_the_same_configuration(version: str, filled: str, ask: Tool, scripts: Scripts) -> None:
    def theirs() -> dict[str, str]:
        told = scripts.run("configs", "--entity-type", "topics", "--entity-name", filled, "--describe")
        return dict(re.findall(r"^  ([\w.]+)=(\S*) sensitive=", told, re.MULTILINE))

    def ours() -> dict[str, str]:
        return {row["name"]: row["value"] for row in ask("configs", "describe", "topic", filled) if row["source"] == "topic"}

    assert ours() == theirs() != {}
    ask("configs", "alter", "topic", filled, "max.message.bytes=5000", "--delete", "retention.ms", "--subtract", "cleanup.policy=compact")
    until(lambda: ours() == {"max.message.bytes": "5000", "cleanup.policy": "delete"})
    assert theirs() == ours()


def known(kafka: KafkaCluster) -> set[str]:
    """The topics, as the broker tells whoever names none: one that is named is made."""
    told = metadata(kafka.nodes[0].host, kafka.nodes[0].port)
    assert told is not None
    return set(told.leaders)


def test_topics_are_made_grown_and_deleted(
    version: str, new_name: Callable[[str], str], ask: Tool, scripts: Scripts, kafka: KafkaCluster
) -> None:
    name = new_name("made")
    assert ask("topics", "create", name, "-p", 2, "-r", 1, "--topic-config", "retention.ms=60000", "--dry-run")[0]["created"] is False
    assert name not in known(kafka)
    assert ask("topics", "create", name, "-p", 2, "-r", 1, "--topic-config", "retention.ms=60000")[0]["partitions"] == 2
    assert "retention.ms=60000" in scripts.run("topics", "--describe", "--topic", name)
    assert ask("topics", "partitions", name, 5, "--yes")["done"] is True
    until(lambda: len(ask("topics", "describe", name)[0]["partitions"]) == 5)
    assert ask("topics", "delete", name)["done"] is False
    assert name in known(kafka)
    assert ask("topics", "delete", name, "--yes")["done"] is True
    until(lambda: name not in [row["topic"] for row in ask("topics")])
    assert name not in scripts.run("topics", "--list").split()


# -- as a person uses it -------------------------------------------------------------------------------------------------------
def test_behaviour_10_offsets_lag_and_topics_by_pykafkas_names(
    version: str, filled: str, new_name: Callable[[str], str], tool: Callable[..., str], scripts: Scripts
) -> None:
    group = new_name("group")
    assert [filled, "3", "1"] in [line.split() for line in tool("print_topics").splitlines()]
    assert tool("desc_topic", filled).startswith(f"Topic: {filled}\nPartitions: 3\nReplicas: 1\n")
    assert [line.split() for line in tool("print_offsets", filled, "LATEST").splitlines()[1:]] == [["0", "10"], ["1", "20"], ["2", "30"]]
    tool("reset_offsets", filled, group, "EARLIEST")
    assert tool("print_consumer_lag", filled, group).endswith("\n\n Total lag: 60 messages.\n")
    tool("reset_offsets", filled, group, "2023-11-14T22:13:25")
    told = scripts.table("groups", "--describe", "--group", group)
    assert {t["PARTITION"]: t["CURRENT-OFFSET"] for t in told} == {"0": "5", "1": "5", "2": "5"}
    assert tool("print_consumer_lag", filled, group).endswith("\n\n Total lag: 45 messages.\n")


def test_groups_of_a_topic_by_pykafkas_name(version: str, member: str, filled: str, tool: Callable[..., str]) -> None:
    told = [line.split() for line in tool("print_managed_consumer_groups", filled).splitlines()]
    assert told[0] == ["Topic:", filled]
    assert [member, "Stable"] in [line[:2] for line in told]


def test_a_topic_and_its_records_by_pykafkas_names(
    version: str, new_name: Callable[[str], str], tool: Callable[..., str], peer: Peer, kafka: KafkaCluster
) -> None:
    name = new_name("made")
    tool("create_topic", name, "-p", 1, "-r", 1)
    until(lambda: kafka.nodes[0].leaders(name).get(0, -1) >= 0)
    with Terminal("consume_topic", name, "-l", 1, "-b", kafka.hosts, env=PLAIN) as terminal:
        written = 0
        while terminal.running():
            peer.write(name, [Seen(0, written, None, b"\x1b[2J caf\xc3\xa9", [], None)])
            written += 1
        code, shown = terminal.end()
    assert (code, shown) == (0, "\\x1b[2J café\n")
    tool("delete_topic", name)


def test_lag_is_watched_on_a_terminal(version: str, member: str, kafka: KafkaCluster) -> None:
    with Terminal("lag", member, "--watch", "--interval", 0.2, "-b", kafka.hosts) as terminal:
        assert "lag 48" in terminal.wait_for("\x1b[H\x1b[2J", 3)
        terminal.press("\x03")
        assert terminal.end()[0] == 0


def test_a_reader_that_has_had_enough_ends_it(version: str, member: str, kafka: KafkaCluster) -> None:
    line = f"{' '.join(TOOL)} lag --watch --interval 0.1 --json -b {kafka.hosts} | head -n 2; echo ${{PIPESTATUS[0]}}"
    told = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=90, env=environment())
    *looks, code = told.stdout.splitlines()
    assert code == "0"
    assert all("do not answer since" in line for line in told.stderr.splitlines()), told.stderr  # on a busy machine they may be late
    assert [json.loads(look)["groups"] != [] for look in looks] == [True, True]


def test_what_is_not_there_is_told_with_the_nearest_name(version: str, member: str, filled: str, kafka: KafkaCluster) -> None:
    for words, name in ((("topics", "describe", filled + "x"), filled), (("lag", member + "x"), member)):
        told = piped(*words, "-b", kafka.hosts)
        assert (told.returncode, told.stdout) == (1, "")
        assert f"did you mean {name!r}?" in told.stderr.splitlines()[1]
        assert len(told.stderr.splitlines()) == 2
