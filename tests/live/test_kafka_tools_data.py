"""kafka-tools' produce, consume, copy, doctor and bench on real Kafka, beside Kafka's own console producer and consumer: the same records."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.terminal import TOOL, environment, piped
from tests.effort import one_of
from tests.live.kafka import KafkaCluster
from tests.live.peer import Peer, Seen, read_with_kafka_python
from tests.live.scripts import java

pytestmark = pytest.mark.parametrize("version", one_of("4.2.0", "2.8.2"))  # 2.8 in short: test_kafka_tools_of_releases.py
LIMIT_S = 90
FIRST_MS = 1_700_000_000_000


def console(kafka: KafkaCluster, which: str, *words: str, stdin: bytes = b"") -> bytes:
    """kafka-console-<which>.sh of the broker's release: its standard output."""
    old = {"producer": "kafka.tools.ConsoleProducer", "consumer": "kafka.tools.ConsoleConsumer"}
    new = {name: f"org.apache.kafka.tools.{'consumer.' if name == 'consumer' else ''}{path.split('.')[-1]}" for name, path in old.items()}
    main = (new if kafka.release.number >= (4,) else old)[which]
    command = [*java(kafka), main, "--bootstrap-server", kafka.hosts, *words]
    told = subprocess.run(command, input=stdin, capture_output=True, timeout=LIMIT_S, check=False)
    assert told.returncode == 0, told.stderr[-2000:]
    return told.stdout


def tool(kafka: KafkaCluster, *words: object, stdin: bytes = b"") -> bytes:
    """Standard output of a command that succeeds."""
    command = [*TOOL, *map(str, words), "-b", kafka.hosts]
    told = subprocess.run(command, input=stdin, capture_output=True, timeout=LIMIT_S, env=environment(), check=False)
    assert told.returncode == 0, told.stderr
    return told.stdout


def seen(line: bytes) -> Seen:
    """A line of `consume --json` as the independent client shows the record."""
    import base64

    found = json.loads(line)

    def part(of: dict[str, Any], name: str) -> bytes | None:
        if f"{name}_base64" in of:
            return base64.b64decode(of[f"{name}_base64"])
        return None if of[name] is None else str(of[name]).encode()

    headers = [(header["name"], part(header, "value")) for header in found["headers"]]
    return Seen(found["partition"], found["offset"], part(found, "key"), part(found, "value"), headers, found["timestamp"])


def awkward(partitions: int = 2) -> list[Seen]:
    """Records that a line of text could not hold."""
    values: list[bytes | None] = [b"", None, bytes(range(256)), "später".encode(), b"a\nb\tc", b"\x1b[2J", b"x" * 100_000]
    return [
        Seen(
            i % partitions,
            i // partitions,
            None if i % 3 else b"\xff key %d" % i,
            value,
            [("h", b"%d" % i), ("h", b"\x00"), ("n", None)],
            FIRST_MS + i,
        )
        for i, value in enumerate(values)
    ]


# -- beside Kafka's own ----------------------------------------------------------------------------------------------------
def test_both_consumers_print_the_same_of_what_both_producers_wrote(
    version: str, kafka: KafkaCluster, new_topic: Callable[..., str]
) -> None:
    ours, theirs = new_topic(1), new_topic(1)
    lines = b"k1\tfirst\nk2\tsecond\twith tabs\nk3\t\n\tno key text\nk5\t\xc3\xbc\n"
    tool(kafka, "produce", ours, "--key-separator", r"\t", stdin=lines)
    console(kafka, "producer", "--topic", theirs, *_properties(kafka, "parse.key=true"), stdin=lines)
    printed = console(kafka, "consumer", "--topic", ours, "--from-beginning", "--max-messages", "5", *_printing(kafka))
    assert printed == lines
    for topic in (ours, theirs):
        assert tool(kafka, "consume", topic, "--show", "key") == lines
    records = [[seen(line)[2:5] for line in tool(kafka, "consume", topic, "--json").splitlines()] for topic in (ours, theirs)]
    assert records[0] == records[1]


def test_timestamps_offsets_and_headers_are_those_that_kafkas_consumer_prints(
    version: str, kafka: KafkaCluster, new_topic: Callable[..., str], peer: Peer
) -> None:
    topic = new_topic(1)
    peer.write(topic, [Seen(0, i, b"k%d" % i, b"v%d" % i, [("a", b"1"), ("b", b"x")], FIRST_MS + i) for i in range(5)])
    more = [
        word
        for name in ("timestamp", "partition", "offset", "headers", "key")
        for word in _properties(kafka, f"print.{name}=true", consumer=True)
    ]
    printed = console(kafka, "consumer", "--topic", topic, "--from-beginning", "--max-messages", "5", *more).decode().splitlines()
    for i, (theirs, ours) in enumerate(zip(printed, tool(kafka, "consume", topic, "--json").splitlines(), strict=True)):
        record = seen(ours)
        assert theirs.split("\t")[0] == f"CreateTime:{record.timestamp}"
        assert f"Partition:{record.partition}\tOffset:{record.offset}\ta:1,b:x\tk{i}\tv{i}" in theirs


def _properties(kafka: KafkaCluster, *pairs: str, consumer: bool = False) -> list[str]:
    option = ("--formatter-property" if consumer else "--reader-property") if kafka.release.number >= (4, 2) else "--property"
    return [word for pair in pairs for word in (option, pair)]


def _printing(kafka: KafkaCluster) -> list[str]:
    return _properties(kafka, "print.key=true", consumer=True)


# -- every record ----------------------------------------------------------------------------------------------------------
def test_any_record_of_another_client_goes_through_json_and_back(
    version: str, kafka: KafkaCluster, new_topic: Callable[..., str], peer: Peer
) -> None:
    source, target = new_topic(2), new_topic(2)
    wanted = awkward()
    peer.write(source, wanted)
    lines = tool(kafka, "consume", source, "--json")
    assert sorted(map(seen, lines.splitlines())) == sorted(wanted)
    tool(kafka, "produce", target, "-f", "json", "-z", "gzip", stdin=lines)
    assert sorted(peer.read(target, len(wanted), 2)) == sorted(wanted)


@pytest.mark.parametrize("group", one_of(["-g", "copy"], []))
def test_a_copy_is_what_another_client_reads(
    version: str, kafka: KafkaCluster, new_topic: Callable[..., str], peer: Peer, group: list[str], new_name: Callable[[str], str]
) -> None:
    source, target = new_topic(2), new_topic(2)
    wanted = awkward()
    peer.write(source, wanted)
    words = ["-g", new_name("copy")] if group else []
    told = json.loads(tool(kafka, "copy", source, target, "--json", *words))
    assert (told["copied"], told["exactly_once"]) == (len(wanted), bool(group))
    assert [r[2:] for r in sorted(read_with_kafka_python(kafka.hosts, kafka.release, target, len(wanted), 2))] == [
        r[2:] for r in sorted(wanted)
    ]
    if group:
        assert json.loads(tool(kafka, "copy", source, target, "--json", *words))["copied"] == 0


def test_a_copy_that_is_killed_goes_on_without_loss_or_doubles(
    version: str, kafka: KafkaCluster, new_topic: Callable[..., str], new_name: Callable[[str], str]
) -> None:
    source, target, group = new_topic(3), new_topic(3), new_name("copy")
    tool(kafka, "produce", source, stdin=b"".join(b"%d\n" % i for i in range(8_000)))
    words = ("copy", source, target, "-g", group)
    for _ in range(2):
        before = len(tool(kafka, "consume", target, "--json").splitlines())
        process = subprocess.Popen([*TOOL, *words, "--follow", "-b", kafka.hosts], env=environment(), stdout=subprocess.DEVNULL)
        try:
            tool(kafka, "consume", target, "--follow", "-n", before + 1)
            assert process.poll() is None
        finally:
            process.kill()
            process.wait(60)
        tool(kafka, "produce", source, stdin=b"".join(b"more %d\n" % i for i in range(500)))
    tool(kafka, *words)
    wanted, copied = (sorted(map(seen, tool(kafka, "consume", topic, "--json").splitlines())) for topic in (source, target))
    assert [(record.partition, record.value) for record in copied] == [(record.partition, record.value) for record in wanted]
    assert len(copied) == 9_000


# -- groups, ends, times ---------------------------------------------------------------------------------------------------
def test_a_group_shared_with_kafkas_consumer_goes_on_where_the_other_stopped(
    version: str, kafka: KafkaCluster, new_topic: Callable[..., str], new_name: Callable[[str], str]
) -> None:
    topic, group = new_topic(1), new_name("group")
    tool(kafka, "produce", topic, stdin=b"".join(b"%d\n" % i for i in range(9)))
    assert tool(kafka, "consume", topic, "-g", group, "-n", 3) == b"0\n1\n2\n"
    assert console(kafka, "consumer", "--topic", topic, "--group", group, "--max-messages", "3") == b"3\n4\n5\n"
    assert tool(kafka, "consume", topic, "-g", group) == b"6\n7\n8\n"
    assert tool(kafka, "consume", topic, "-g", group) == b""


def test_where_it_begins(version: str, kafka: KafkaCluster, new_topic: Callable[..., str], peer: Peer) -> None:
    topic = new_topic(2)
    peer.write(topic, [Seen(p, i, None, b"%d-%d" % (p, i), [], FIRST_MS + i * 1000) for p in range(2) for i in range(5)])
    assert sorted(tool(kafka, "consume", topic, "--from", "2023-11-14T22:13:23Z").split()) == [b"0-3", b"0-4", b"1-3", b"1-4"]
    assert sorted(tool(kafka, "consume", topic, "--last", 1).split()) == [b"0-4", b"1-4"]
    assert tool(kafka, "consume", topic, "-p", 1, "--from", 3).split() == [b"1-3", b"1-4"]
    assert tool(kafka, "consume", topic, "--from", "1h") == b""


def test_head_ends_it(version: str, kafka: KafkaCluster, new_topic: Callable[..., str]) -> None:
    topic = new_topic(1)
    tool(kafka, "produce", topic, stdin=b"".join(b"%d\n" % i for i in range(20_000)))
    line = f"{' '.join(TOOL)} consume {topic} --follow -b {kafka.hosts} | head -n 1; exit ${{PIPESTATUS[0]}}"
    told = subprocess.run(["bash", "-c", line], capture_output=True, timeout=LIMIT_S, env=environment(), check=False)
    assert (told.returncode, told.stdout, told.stderr) == (0, b"0\n", b"")


# -- doctor and bench ------------------------------------------------------------------------------------------------------
def test_the_doctor_finds_a_healthy_cluster_healthy(version: str, kafka: KafkaCluster, new_topic: Callable[..., str]) -> None:
    topic = new_topic(1, message_timestamp_type="LogAppendTime")
    found = json.loads(tool(kafka, "doctor", "--topic", topic, "--write", "--json"))
    status = {(step["step"], step["about"].partition(" ")[0]): step["status"] for step in found["steps"]}
    assert found["ok"]
    assert status["clock", "leader"] == "ok"
    assert status.get(("clock", "controller")) == ("ok" if version == "4.2.0" else None)
    assert any(f"speaks what Kafka {'.'.join(version.split('.')[:2])} does" in step["seen"] for step in found["steps"])


def test_the_doctor_tells_what_it_may(version: str, kafka: KafkaCluster, new_topic: Callable[..., str]) -> None:
    found = json.loads(tool(kafka, "doctor", "--topic", new_topic(1), "--json"))
    (produce,) = [step for step in found["steps"] if step["step"] == "produce"]
    assert (produce["status"], produce["seen"]) == ("ok", "allowed (--write tries it)")


def test_the_doctor_names_a_topic_that_is_not_there(version: str, kafka: KafkaCluster) -> None:
    told = piped("doctor", "--topic", "nowhere", "-b", kafka.hosts)
    assert told.returncode == 1
    assert "fail  topic" in told.stdout
    assert "next: kafka-tools topics create" in told.stdout


@pytest.mark.parametrize("what", one_of("produce", "consume", "latency"))
def test_a_bench_leaves_nothing_behind(version: str, kafka: KafkaCluster, what: str) -> None:
    before = tool(kafka, "topics", "--json")
    found = json.loads(tool(kafka, "bench", what, "--records", 500, "--seconds", 20, "--json"))
    assert {row["records"] for row in found["rows"]} == {500}
    assert json.loads(tool(kafka, "topics", "--json")) == json.loads(before)
