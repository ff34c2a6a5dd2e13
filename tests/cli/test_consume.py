"""kafka-tools consume, on a broker in this process."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import strategies as st

from gkafka import KafkaClient
from gkafka.cli.recordtext import json_lines, reader
from gkafka.cli.starts import Start, parse_start
from gkafka.common import TimestampType
from gkafka.consumer import Consumer
from gkafka.exceptions import KafkaException
from gkafka.testing import Close, Edit, Error, MockCluster
from tests.cli.running import Outcome, failure, program, stop, tool
from tests.cli.terminal import PLAIN, TOOL, Terminal, environment
from tests.effort import quick_and_thorough, tried
from tests.kit.clock import now
from tests.kit.ports import refused_port
from tests.records.handmade import batch, message, record, values, varint

FIRST_MS = 1_700_000_000_000
ESCAPES = b"\x1b[2J\x1b]0;pwned\x07\xc2\x9b31m\xff\r\n\xe2\x80\xae"


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    with MockCluster(topics={"t": 1, "many": 3}, auto_create=False) as made:
        yield made


def write(cluster: MockCluster, values: list[bytes | None], topic: str = "t", **more: Any) -> None:
    with KafkaClient(cluster.bootstrap) as client, client.get_producer() as producer:
        for i, value in enumerate(values):
            arguments = {"partition": 0, "timestamp": FIRST_MS + i * 1000, **more}
            producer.produce(topic, value, **arguments)


# -- formats ---------------------------------------------------------------------------------------------------------------
def test_text_in_a_pipe_is_the_value_byte_for_byte(cluster: MockCluster) -> None:
    write(cluster, [b"one", ESCAPES, b"", None])
    outcome = tool("consume", "t", "-b", cluster.bootstrap)
    assert (outcome.code, outcome.out, outcome.err) == (0, b"one\n" + ESCAPES + b"\n\nnull\n", "")


def test_fields_stand_before_the_value_in_the_order_asked_for(cluster: MockCluster) -> None:
    write(cluster, [b"v"], key=b"k", headers=[("a", b"1"), ("b\x1b", None)])
    shown = tool("consume", "t", "-b", cluster.bootstrap, "--show", "key,topic,partition,offset,timestamp,headers", "--separator", "|").out
    assert shown == b"k|t|0|0|2023-11-14T22:13:20.000Z|a=1,b\\x1b=null|v\n"


def test_hex_and_what_stands_for_null(cluster: MockCluster) -> None:
    write(cluster, [b"\x00\xffa", None])
    shown = tool("consume", "t", "-b", cluster.bootstrap, "-f", "hex", "--show", "key", "--null", "-", "--separator", ":").out
    assert shown == b"-:00ff61\n-:-\n"


def test_json_has_all_of_a_record_and_base64_where_it_is_no_text(cluster: MockCluster) -> None:
    write(cluster, ["ü\x1b".encode(), b"\xff", None], key=b"\xfe", headers=[("h", b"\xfd"), ("g", None), ("f", b"x")])
    outcome = tool("consume", "t", "-b", cluster.bootstrap, "--json")
    assert b"\x1b" not in outcome.out
    assert "ü".encode() in outcome.out
    first, second, third = map(json.loads, outcome.lines)
    assert first == {
        "topic": "t",
        "partition": 0,
        "offset": 0,
        "timestamp": FIRST_MS,
        "timestamp_type": "create",
        "key_base64": "/g==",
        "value": "ü\x1b",
        "headers": [{"name": "h", "value_base64": "/Q=="}, {"name": "g", "value": None}, {"name": "f", "value": "x"}],
    }
    assert second["value_base64"] == "/w=="
    assert "value" not in second
    assert third["value"] is None
    assert tool("consume", "t", "-b", cluster.bootstrap, "-f", "json").out == outcome.out


class Made:
    """A message of any content."""

    topic, partition_id, offset, timestamp_type = "t", 3, 7, TimestampType.CREATE_TIME

    def __init__(self, key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]], timestamp: int) -> None:
        self.key, self.value, self.headers, self.timestamp = key, value, headers, timestamp


DATA = st.none() | st.binary(max_size=20) | st.text(max_size=10).map(str.encode)


HEADERS = st.lists(st.tuples(st.text(st.characters(codec="utf-8"), max_size=5), DATA), max_size=3)


@pytest.mark.parametrize("examples", quick_and_thorough(30, 500))
def test_a_line_of_json_is_one_line_that_no_terminal_obeys_and_becomes_the_same_record(examples: int) -> None:
    def check(key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]], timestamp: int) -> None:
        [line] = json_lines([Made(key, value, headers, timestamp)])
        assert line.decode().isprintable()
        draft = reader("json")(line)
        assert draft is not None
        assert (draft.key, draft.value, draft.headers, draft.timestamp, draft.partition) == (key, value, headers, timestamp, 3)

    tried(check, DATA, DATA, HEADERS, st.integers(0, 1 << 62), seed=0, examples=examples)


def test_what_consume_printed_produce_writes_again(cluster: MockCluster) -> None:
    cluster.create_topic("copy", 3)
    write(cluster, [b"a", ESCAPES, None, b""], "many", partition=2, key=b"\xff", headers=[("h", b"\x00"), ("n", None)])
    write(cluster, [b"b"], "many", partition=1)
    lines = tool("consume", "many", "-b", cluster.bootstrap, "--json").out
    assert tool("produce", "copy", "-b", cluster.bootstrap, "-f", "json", stdin=lines).code == 0
    assert [cluster.log("copy", p) for p in range(3)] == [cluster.log("many", p) for p in range(3)]


def test_a_delimiter_that_no_value_has_keeps_records_apart(cluster: MockCluster) -> None:
    write(cluster, [b"a\nb", b"c"])
    shown = tool("consume", "t", "-b", cluster.bootstrap, "--delimiter", r"\0").out
    assert shown == b"a\nb\0c\0"
    cluster.create_topic("copy")
    assert tool("produce", "copy", "-b", cluster.bootstrap, "--delimiter", r"\0", stdin=shown).code == 0
    assert [r.value for r in cluster.log("copy", 0)] == [b"a\nb", b"c"]


# -- from where to where ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "values"),
    [
        ([], "0 1 2 3 4"),
        (["--from", "earliest"], "0 1 2 3 4"),
        (["--from", "3"], "3 4"),
        (["--from", "5"], ""),
        (["--from", f"@{FIRST_MS + 1500}"], "2 3 4"),
        (["--from", "2023-11-14T22:13:23Z"], "3 4"),
        (["--from", "2023-11-14T23:13:23+01:00"], "3 4"),
        (["--from", "1s"], ""),
        (["--from", "19000d"], "0 1 2 3 4"),
        (["--last", "2"], "3 4"),
        (["--last", "50"], "0 1 2 3 4"),
        (["-n", "2"], "0 1"),
        (["--match", "[13]"], "1 3"),
        (["--match", "[13]", "-n", "1"], "1"),
        (["--match-key", "k"], ""),
    ],
)
def test_it_begins_and_ends_where_it_is_said(cluster: MockCluster, options: list[str], values: str) -> None:
    write(cluster, [b"%d" % i for i in range(5)])
    outcome = tool("consume", "t", "-b", cluster.bootstrap, *options)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.decode().split() == values.split()


def test_the_last_records_are_those_of_each_partition(cluster: MockCluster) -> None:
    for p in range(3):
        write(cluster, [b"%d-%d" % (p, i) for i in range(p + 1)], "many", partition=p)
    shown = tool("consume", "many", "-b", cluster.bootstrap, "--last", "2").lines
    assert sorted(shown) == [b"0-0", b"1-0", b"1-1", b"2-1", b"2-2"]
    assert sorted(tool("consume", "many", "-b", cluster.bootstrap, "-p", "0", "-p", "2", "-n", "9").lines) == [
        b"0-0",
        b"2-0",
        b"2-1",
        b"2-2",
    ]


def transactions(cluster: MockCluster, values: list[bytes], *, aborted: int = 0, partition: int = 0) -> None:
    """Each value in a transaction of its own, then so many records in one that is aborted."""
    with KafkaClient(cluster.bootstrap) as client, client.get_producer(transactional_id="x") as producer:
        producer.init_transactions()
        for value in values:
            producer.begin_transaction()
            producer.produce("many", value, partition=partition)
            producer.commit_transaction()
        if aborted:
            producer.begin_transaction()
            for _ in range(aborted):
                producer.produce("many", b"gone", partition=partition)
            producer.flush()
            producer.abort_transaction()


@pytest.mark.parametrize("aborted", [0, 1, 50])
def test_the_last_records_are_found_behind_markers_and_aborted_ones(cluster: MockCluster, aborted: int) -> None:
    transactions(cluster, [b"0-%d" % i for i in range(4)], aborted=aborted)
    transactions(cluster, [b"1-%d" % i for i in range(8)], partition=1)
    write(cluster, [b"2-%d" % i for i in range(8)], "many", partition=2)
    for last in (1, 2, 3, 6, 100):
        shown = tool("consume", "many", "-b", cluster.bootstrap, "--last", str(last))
        assert (shown.code, shown.err) == (0, "")
        expected = [b"%d-%d" % (p, i) for p, size in ((0, 4), (1, 8), (2, 8)) for i in range(max(0, size - last), size)]
        assert sorted(shown.lines) == expected
    assert tool("consume", "many", "-b", cluster.bootstrap, "-p", "0", "--last", "1", "--follow", "-n", "1").lines == [b"0-3"]


def test_the_last_records_are_looked_for_at_the_end_alone(cluster: MockCluster) -> None:
    write(cluster, [b"%d" % i for i in range(100)])
    assert tool("consume", "t", "-b", cluster.bootstrap, "--last", "2").lines == [b"98", b"99"]
    asked = [p.fetch_offset for r in cluster.requests("Fetch") for t in r.message.topics for p in t.partitions]
    assert asked
    assert min(asked) == 98


def test_the_last_of_nothing_is_nothing(cluster: MockCluster) -> None:
    transactions(cluster, [], aborted=5)
    shown = tool("consume", "many", "-b", cluster.bootstrap, "--last", "3")
    assert (shown.code, shown.out, shown.err) == (0, b"", "")


def test_several_topics_are_read_together(cluster: MockCluster) -> None:
    write(cluster, [b"a"])
    write(cluster, [b"b"], "many")
    assert sorted(tool("consume", "t", "many", "-b", cluster.bootstrap, "--show", "topic").lines) == [b"many\tb", b"t\ta"]


def test_what_is_written_meanwhile_is_not_of_the_present_end(cluster: MockCluster) -> None:
    write(cluster, [b"before"])

    def more(request: Any, answer: Any) -> Any:
        for topic in answer.responses:
            for partition in topic.partitions:
                partition.high_watermark += 1
        return answer

    cluster.on("Fetch", Edit(more), times=None)
    assert tool("consume", "t", "-b", cluster.bootstrap).out == b"before\n"


def test_a_misspelt_topic_is_told_with_the_nearest(cluster: MockCluster) -> None:
    failure(tool("consume", "manny", "-b", cluster.bootstrap), "many")


def test_keys_are_matched_as_bytes(cluster: MockCluster) -> None:
    write(cluster, [b"a"], key=b"\xffuser")
    write(cluster, [b"b"], key="größe".encode())
    write(cluster, [None])
    assert tool("consume", "t", "-b", cluster.bootstrap, "--match-key", r"^\xff").out == b"a\n"
    assert tool("consume", "t", "-b", cluster.bootstrap, "--match-key", "größe$").out == b"b\n"
    assert tool("consume", "t", "-b", cluster.bootstrap, "--match", "").out == b"a\nb\n"


def test_aborted_records_are_hidden_unless_they_are_asked_for(cluster: MockCluster) -> None:
    with KafkaClient(cluster.bootstrap) as client, client.get_producer(transactional_id="x") as producer:
        producer.init_transactions()
        for value, end in ((b"gone", producer.abort_transaction), (b"kept", producer.commit_transaction)):
            producer.begin_transaction()
            producer.produce("t", value)
            producer.flush()
            end()
    assert tool("consume", "t", "-b", cluster.bootstrap).out == b"kept\n"
    assert tool("consume", "t", "-b", cluster.bootstrap, "--read-uncommitted").out == b"gone\nkept\n"


def test_an_open_transaction_does_not_hold_up_the_end(cluster: MockCluster) -> None:
    write(cluster, [b"before"])
    with KafkaClient(cluster.bootstrap) as client, client.get_producer(transactional_id="x") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("t", b"open")
        producer.flush()
        assert tool("consume", "t", "-b", cluster.bootstrap).out == b"before\n"
        producer.abort_transaction()


@pytest.mark.parametrize(("text", "ms"), [("1970-01-02", 86_400_000), ("@17", 17), ("1970-01-01T00:00:01+00:00", 1000)])
def test_a_time_without_a_zone_is_in_utc_and_none_is_before_the_epoch(text: str, ms: int) -> None:
    assert parse_start(text) == Start("time", ms)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "99999w",
        "1969-12-31",
        "-5",
        "5 m",
        "@",
        "@-1",
        "1e3",
        "2026-13-01",
        "２",
        "9" * 30,
        "@" + "9" * 19,
        "1m30s",
        "latest ",
        "\x1b[2J",
    ],
)
def test_what_is_no_place_to_begin_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        parse_start(text)


# -- groups ----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("alone", [[], ["-p", "0"]])
def test_a_group_goes_on_where_it_stands(cluster: MockCluster, alone: list[str]) -> None:
    write(cluster, [b"%d" % i for i in range(6)])
    again = ("consume", "t", "-b", cluster.bootstrap, "-g", "g", *alone)
    assert tool(*again, "-n", "2").out == b"0\n1\n"
    assert cluster.committed("g")["t", 0].offset == 2
    assert tool(*again, "--match", "3", "-n", "1").out == b"3\n"
    assert cluster.committed("g")["t", 0].offset == 4
    assert tool(*again).out == b"4\n5\n"
    assert tool(*again).out == b""
    assert cluster.committed("g")["t", 0].offset == 6


def test_a_new_group_begins_where_it_is_said(cluster: MockCluster) -> None:
    write(cluster, [b"old"])
    assert tool("consume", "t", "-b", cluster.bootstrap, "-g", "g", "--from", "latest").out == b""
    write(cluster, [b"new"])
    assert tool("consume", "t", "-b", cluster.bootstrap, "-g", "g").out == b"new\n"
    assert tool("consume", "t", "-b", cluster.bootstrap, "-g", "other", "--from", "earliest").out == b"old\nnew\n"


def test_what_a_closed_pipe_did_not_take_is_not_committed(cluster: MockCluster) -> None:
    write(cluster, [b"%05d" % i + b"x" * 1000 for i in range(3000)])
    with program("consume", "t", "-b", cluster.bootstrap, "-g", "g") as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"00000")
        process.stdout.close()
        assert process.wait(60) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""
    committed = cluster.committed("g").get(("t", 0))
    assert committed is None or committed.offset < 3000
    first = tool("consume", "t", "-b", cluster.bootstrap, "-g", "g", "-n", "1").out
    assert int(first[:5]) == (0 if committed is None else committed.offset)


# -- ends ------------------------------------------------------------------------------------------------------------------
def test_head_ends_it_without_a_word(cluster: MockCluster) -> None:
    write(cluster, [b"line %d" % i for i in range(20_000)])
    command = f"{sys.executable} -m gkafka.cli consume t -b {cluster.bootstrap} | head -n 2; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"line 0\nline 1\n", b"")


@pytest.mark.parametrize(("where", "said"), [("> /dev/full", "No space left on device"), (">&-", "standard output is closed")])
def test_output_that_cannot_be_written_is_told(cluster: MockCluster, where: str, said: str) -> None:
    write(cluster, [b"one"])
    command = f"{' '.join(TOOL)} consume t -b {cluster.bootstrap} {where}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, env=environment(), check=False)
    failure(Outcome(done.returncode, b"", done.stderr), said)


def test_a_reader_that_leaves_while_nothing_comes_is_noticed(cluster: MockCluster) -> None:
    write(cluster, [b"one"])
    with program("consume", "t", "-b", cluster.bootstrap, "--follow") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"one\n"
        process.stdout.close()
        assert process.wait(60) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_following_ends_with_a_signal_and_leaves_the_group(cluster: MockCluster, number: int) -> None:
    write(cluster, [b"one"])
    with program("consume", "t", "-b", cluster.bootstrap, "-g", "g", "--follow") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"one\n"
        for line in (b"two\n", b"three\n"):
            write(cluster, [line.strip()])
            assert process.stdout.readline() == line
        assert stop(process, number) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert cluster.group("g").members == {}
    assert cluster.committed("g")["t", 0].offset in (2, 3)  # a signal at once behind the last line: it comes again


def test_an_interrupt_before_the_end_is_an_exit_code_of_its_own(cluster: MockCluster) -> None:
    cluster.on("Fetch", Error(5), times=None)
    write(cluster, [b"one"])
    with program("consume", "t", "-b", cluster.bootstrap) as process:
        cluster.wait_for(lambda: cluster.requests("Fetch"), 60)
        assert stop(process) == 130


def test_following_prints_what_comes_at_once(cluster: MockCluster) -> None:
    with program("consume", "t", "-b", cluster.bootstrap, "--follow", "--from", "latest", "--json") as process:
        cluster.wait_for(lambda: cluster.requests("Fetch"), 60)
        write(cluster, [b"new"])
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["value"] == "new"


# -- damage ----------------------------------------------------------------------------------------------------------------
def spoiled(data: bytes) -> bytes:
    """A batch, or a message, whose checksum does not fit."""
    return data[:-1] + bytes([data[-1] ^ 0xFF])


DAMAGED_LOGS = {
    "a batch": values(7) + spoiled(values(3, base_offset=7)) + values(4, base_offset=10),
    "a record": batch([varint(3) + b"\xff\xff\xff" if i == 7 else record(i, b"%d" % i) for i in range(10)]) + values(4, base_offset=10),
    "a message of format 1": b"".join(message(i, b"%d" % i) if i != 7 else spoiled(message(i, b"7")) for i in range(14)),
}
"""Logs whose offset 7 is damaged; before it stand the values 0 to 6, behind it some more."""


@pytest.mark.parametrize("log", DAMAGED_LOGS.values(), ids=DAMAGED_LOGS)
@pytest.mark.parametrize("options", [[], ["-g", "g"], ["-g", "g", "-p", "0", "--json"], ["-g", "g", "--match", "[1-9]"]])
def test_what_is_before_the_damage_is_printed_and_committed_and_the_way_on_is_told(
    cluster: MockCluster, log: bytes, options: list[str]
) -> None:
    cluster.append("t", 0, log)
    outcome = tool("consume", "t", "-b", cluster.bootstrap, *options)
    failure(outcome, "t[0] offset 7: ")
    told = outcome.err.splitlines()[-1]
    assert told.startswith("  next: go on behind the damage: kafka-tools consume t -p 0 --from ")
    assert f"kafka-tools offsets reset {'g' if options else 'GROUP'} --topic t:0 --to-offset " in told
    printed = [json.loads(line)["value"].encode() if "--json" in options else line for line in outcome.lines]
    assert printed == [b"%d" % i for i in range(1 if "--match" in options else 0, 7)]
    if options:
        assert cluster.committed("g")["t", 0].offset == 7
    following = re.findall(r"kafka-tools (consume t -p 0 --from \d+)", told)
    assert following, told
    assert tool(*following[0].split(), "-b", cluster.bootstrap).lines


@pytest.mark.parametrize("alone", [[], ["-p", "0"]])
def test_behind_an_error_nothing_is_committed_but_what_is_out(
    cluster: MockCluster, alone: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(cluster, [b"%d" % i for i in range(6)])
    consume_batch, got = Consumer.consume_batch, list[Any]()

    def fails_with_what_it_took(*arguments: Any) -> list[Any]:
        got.extend(consume_batch(*arguments))
        if len(got) > 2:
            raise KafkaException("broken off")
        return got[:]

    monkeypatch.setattr(Consumer, "consume_batch", fails_with_what_it_took)
    outcome = tool("consume", "t", "-b", cluster.bootstrap, "-g", "g", "--set", "max.poll.records=2", *alone)
    failure(outcome, "broken off")
    assert outcome.out == b"0\n1\n"
    assert cluster.committed("g")["t", 0].offset == 2


# -- terminals -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("options", [[], ["--json"], ["-f", "hex", "--show", "headers,key"], ["--show", "key,headers,topic"]])
def test_no_escape_sequence_of_a_record_reaches_a_terminal(cluster: MockCluster, options: list[str]) -> None:
    write(cluster, [ESCAPES], key=ESCAPES, headers=[("\x1b[31m", ESCAPES)])
    with Terminal("consume", "t", "-b", cluster.bootstrap, *options, env=PLAIN) as terminal:
        code, shown = terminal.end()
    assert code == 0
    text = shown.replace("\n", "").replace("\t", "")  # the separator
    assert text.isprintable(), text
    assert text


def test_raw_bytes_reach_a_terminal_when_they_are_asked_for(cluster: MockCluster) -> None:
    write(cluster, [b"\x1b[1mbold\x1b[0m"])
    with Terminal("consume", "t", "-b", cluster.bootstrap, "--raw", env=PLAIN) as terminal:
        assert terminal.end() == (0, "\x1b[1mbold\x1b[0m\n")
    with Terminal("consume", "t", "-b", cluster.bootstrap, env=PLAIN) as terminal:
        assert terminal.end() == (0, "\\x1b[1mbold\\x1b[0m\n")


def test_ctrl_c_ends_following_on_a_terminal(cluster: MockCluster) -> None:
    write(cluster, [b"one"])
    with Terminal("consume", "t", "-b", cluster.bootstrap, "--follow") as terminal:
        terminal.wait_for("one")
        terminal.press("\x03")
        code, shown = terminal.end()
    assert code == 0
    assert "Traceback" not in shown


# -- what cannot be --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--from", "1", "--last", "2"], "--from and --last both say"),
        (["--from", "latest"], "give --follow, too"),
        (["-g", "g", "--last", "2"], "with --group it begins where the group stands"),
        (["-g", "g", "--from", "1h"], "kafka-tools offsets reset"),
        (["--show", "colour"], "--show 'colour': must be one of"),
        (["--show", "key", "--json"], "JSON has all fields"),
        (["--raw", "--json"], "--raw is for --format text"),
        (["--separator", "x", "--json"], "--separator is for text and hex"),
        (["--null", "N", "-f", "json"], "--null is for text and hex"),
        (["--delimiter", r"\0", "--json"], "--delimiter is for text and hex"),
        (["--separator", r"\t"], "--separator is for --show"),
        (["--separator", "x", "-f", "hex"], "--separator is for --show"),
        (["--match", "("], "is no regular expression"),
        (["--from", "soon"], "'soon': must be earliest"),
        (["-n", "0"], "0 is not in the range"),
        (["--last", "0"], "0 is not in the range"),
        (["-f", "xml"], "'xml' is not one of"),
        (["--folow"], "--folow"),
    ],
)
def test_options_that_make_no_sense_are_refused(cluster: MockCluster, options: list[str], said: str) -> None:
    failure(tool("consume", "t", "-b", cluster.bootstrap, *options), said, code=2)
    assert cluster.requests() == []


@pytest.mark.parametrize(
    ("options", "said", "code"),
    [
        (["nowhere"], "no topic 'nowhere' in this cluster", 1),
        (["t", "nowhere"], "no topic 'nowhere' in this cluster", 1),
        (["bad name"], "bad name", 2),
        (["t", "-p", "7"], "topic 't' has no partition 7: it has 0 to 0", 1),
        (["t", "--from", "7"], "t-0 has no offset 7: it has 0 to 0, the end", 1),
        (["t", "-g", ""], "group", 2),
    ],
)
def test_what_is_not_there_is_told_in_a_line(cluster: MockCluster, options: list[str], said: str, code: int) -> None:
    begun = now()
    failure(tool("consume", "-b", cluster.bootstrap, "--timeout", "120", *options), said, code=code)
    assert now() - begun < 60


@pytest.mark.parametrize(("api", "code", "options"), [("ListOffsets", 29, []), ("Fetch", 29, []), ("JoinGroup", 30, ["-g", "g"])])
def test_who_may_not_is_told_so(cluster: MockCluster, api: str, code: int, options: list[str]) -> None:
    write(cluster, [b"one"])
    cluster.on(api, Error(code), times=None)
    failure(tool("consume", "t", "-b", cluster.bootstrap, *options), "ACL")


def test_a_broker_that_is_not_there_is_told_within_the_timeout() -> None:
    begun = now()
    failure(tool("consume", "t", "-b", f"127.0.0.1:{refused_port()}", "--timeout", "1"), "127.0.0.1")
    assert now() - begun < 30


def test_a_connection_that_breaks_is_made_again(cluster: MockCluster) -> None:
    write(cluster, [b"%d" % i for i in range(100)])
    cluster.on("Fetch", Close(before=True), times=2)
    assert len(tool("consume", "t", "-b", cluster.bootstrap).lines) == 100
