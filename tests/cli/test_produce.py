"""kafka-tools produce, on a broker in this process."""

from __future__ import annotations

import io
import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gkafka.cli.failures import ToolError
from gkafka.cli.lines import blocks_of
from gkafka.cli.recordtext import BadLine, reader, unescaped
from gkafka.testing import Edit, MockCluster, StoredRecord
from tests.cli.running import Outcome, failure, program, stop, tool
from tests.cli.terminal import TOOL, Terminal, environment
from tests.kit.clock import now
from tests.kit.refusing import Refuse


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    with MockCluster(topics={"t": 1, "many": 4}, auto_create=False) as made:
        yield made


def stored(cluster: MockCluster, topic: str = "t", partition: int = 0) -> list[StoredRecord]:
    return cluster.log(topic, partition)


# -- formats ---------------------------------------------------------------------------------------------------------------
def test_each_line_is_a_record_whatever_its_bytes(cluster: MockCluster) -> None:
    outcome = tool("produce", "t", "-b", cluster.bootstrap, stdin=b"one\n\n\xff\x00\r\nlast")
    assert (outcome.code, outcome.out) == (0, b"")
    assert outcome.err == "4 records delivered to t\n"
    assert [r.value for r in stored(cluster)] == [b"one", b"", b"\xff\x00\r", b"last"]


def test_lines_come_from_a_file(cluster: MockCluster, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"a\nb\n")
    assert tool("produce", "t", str(file), "-b", cluster.bootstrap).code == 0
    assert [r.value for r in stored(cluster)] == [b"a", b"b"]


def test_the_key_stands_before_a_separator_and_null_is_what_is_said_to_be(cluster: MockCluster) -> None:
    outcome = tool("produce", "t", "-b", cluster.bootstrap, "--key-separator", r"\t", "--null", "-", stdin=b"k\tv\tw\n-\tv\nk\t-\n\t\n")
    assert outcome.code == 0
    assert [(r.key, r.value) for r in stored(cluster)] == [(b"k", b"v\tw"), (None, b"v"), (b"k", None), (b"", b"")]


def test_a_json_document_is_the_value_and_one_of_its_fields_the_key(cluster: MockCluster) -> None:
    lines = [
        b'{"id": "a", "x": 1}',
        b'{"id": 7}',
        b'{"id": null}',
        b'{"id": {"b":[1, 2]}}',
        b'{"id": 1.0 }',
        b'{"id":12345678901234567.89}',
    ]
    assert tool("produce", "t", "-b", cluster.bootstrap, "--key-field", "id", stdin=b"\n".join(lines)).code == 0
    assert [(r.key, r.value) for r in stored(cluster)] == list(
        zip([b"a", b"7", None, b'{"b":[1, 2]}', b"1.0", b"12345678901234567.89"], lines, strict=True)
    )


def test_hex_gives_any_bytes(cluster: MockCluster) -> None:
    assert tool("produce", "t", "-b", cluster.bootstrap, "-f", "hex", "--key-separator", ":", stdin=b"00ff:0A 0b\n:\n").code == 0
    assert [(r.key, r.value) for r in stored(cluster)] == [(b"\x00\xff", b"\n\x0b"), (b"", b"")]


def test_json_lines_have_all_of_a_record(cluster: MockCluster) -> None:
    line = {
        "topic": "elsewhere",
        "partition": 2,
        "offset": 77,
        "timestamp": 1_600_000_000_123,
        "key_base64": "/w==",
        "value": None,
        "headers": [{"name": "h", "value": "ü"}, {"name": "h", "value_base64": "AA=="}, {"name": "", "value": None}],
    }
    outcome = tool("produce", "many", "-b", cluster.bootstrap, "-f", "json", stdin=json.dumps(line).encode() + b"\n\n")
    assert (outcome.code, outcome.err) == (0, "1 record delivered to many\n")
    (record,) = stored(cluster, "many", 2)
    assert (record.key, record.value, record.timestamp) == (b"\xff", None, 1_600_000_000_123)
    assert record.headers == [("h", "ü".encode()), ("h", b"\x00"), ("", None)]


@pytest.mark.parametrize(
    "value",
    [
        '12345678901234567.89',
        '{"a":1.10,"b":1e400,"a":2}',
        "1E5",
        "-0",
        "9" * 5000,
        '[ 1.0 ,{"z": 1, "a":\t"\\u00fc/\\/"}]',
        "true",
    ],
)  # fmt: skip
def test_other_json_than_a_text_keeps_its_characters(cluster: MockCluster, value: str) -> None:
    line = f'{{ "key" : {value} , "value":{value}, "headers": [{{"name":"h", "value":  {value} }}]}}\n{{"value":"x", "headers":{{"h":{value}}}}}\n'
    assert tool("produce", "t", "-b", cluster.bootstrap, "-f", "json", stdin=line.encode()).code == 0
    first, second = stored(cluster)
    assert (first.key, first.value, first.headers) == (value.encode(), value.encode(), [("h", value.encode())])
    assert second.headers == [("h", value.encode())]


def test_headers_of_one_name_are_all_kept(cluster: MockCluster) -> None:
    lines = b'{"value": "", "headers": {"a": "1", "b": null, "a": "2"}}\n'
    assert tool("produce", "t", "-b", cluster.bootstrap, "-f", "json", stdin=lines).code == 0
    assert stored(cluster)[0].headers == [("a", b"1"), ("b", None), ("a", b"2")]


BLANKS = st.text(" \t\r", max_size=2)
NUMBERS = st.from_regex(r"-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,9})?([eE][+-]?[0-9]{1,4})?", fullmatch=True)
SCALARS = NUMBERS | st.sampled_from(["true", "false", "null"]) | st.text(max_size=8).map(json.dumps)


def _lists(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    item = st.tuples(BLANKS, inner, BLANKS).map("".join)
    member = st.tuples(BLANKS, st.text(max_size=3).map(json.dumps), BLANKS, st.just(":"), item).map("".join)
    return st.lists(item, max_size=4).map(lambda found: f"[{','.join(found)}]") | st.lists(member, max_size=4).map(
        lambda found: f"{{{','.join(found)}}}"
    )


DOCUMENTS = st.recursive(SCALARS, _lists, max_leaves=12)
"""JSON as somebody may have written it: names that repeat, blanks, numbers of any form."""


@given(DOCUMENTS, DOCUMENTS, BLANKS)
def test_the_bytes_of_a_json_value_are_those_of_the_line(value: str, key: str, blank: str) -> None:
    line = (
        f'{blank}{{{blank}"value"{blank}:{blank}{value}{blank},{blank}"key":{key}{blank},"headers":[{{"name":"h","value":{key}}}]}}{blank}'
    )
    draft = reader("json")(line.encode())
    assert draft is not None
    assert (draft.value, draft.key, draft.headers) == (as_sent(value), as_sent(key), [("h", as_sent(key))])
    by_field = reader("text", key_field="id")(f'{{"id":{blank}{key}{blank}}}'.encode())
    assert by_field is not None
    assert by_field.key == as_sent(key)


def as_sent(text: str) -> bytes | None:
    """The bytes of a record for a JSON text."""
    value = json.loads(text) if text[0] in '"n' else text
    return value if value is None else value.encode()


@given(st.lists(st.binary(max_size=12), max_size=8), st.sampled_from([b"\n", b"\r\n", b"\0"]))
def test_the_bytes_of_a_text_value_are_those_of_the_line(lines: list[bytes], delimiter: bytes) -> None:
    lines = [line for line in lines if delimiter not in line and not (len(delimiter) > 1 and line.endswith(delimiter[:1]))]
    data = b"".join(line + delimiter for line in lines)
    read = reader("text")
    assert [read(line) for block in blocks_of(io.BytesIO(data), delimiter) for line in block] == [
        (line, None, None, None, None) for line in lines
    ]


@given(
    st.binary(max_size=40) | st.none(),
    st.binary(max_size=10) | st.none(),
    st.lists(st.tuples(st.text(max_size=5), st.binary(max_size=5) | st.none()), max_size=3),
)
def test_what_kcat_printed_is_read_byte_for_byte(value: bytes | None, key: bytes | None, headers: list[tuple[str, bytes | None]]) -> None:
    """kcat -J cannot write what is not UTF-8, and makes no line of it that is JSON."""

    def text(data: bytes | None) -> str | None:
        return None if data is None else data.decode("latin-1")

    line: dict[str, Any] = {"topic": "t", "partition": 3, "offset": 7, "tstype": "create", "ts": 1_600_000_000_123, "broker": 1}
    if headers:
        line["headers"] = [one for name, data in headers for one in (name, text(data))]
    draft = reader("kcat")(json.dumps(line | {"key": text(key), "payload": text(value)}, ensure_ascii=False).encode())
    assert draft is not None

    def sent(data: bytes | None) -> bytes | None:
        return None if data is None else data.decode("latin-1").encode()

    assert (draft.value, draft.key, draft.partition, draft.timestamp) == (sent(value), sent(key), 3, 1_600_000_000_123)
    assert draft.headers == ([(name, sent(data)) for name, data in headers] or None)


def test_lines_of_kcat_are_written_as_they_were(cluster: MockCluster) -> None:
    lines = (
        b'{"topic":"x","partition":2,"offset":0,"tstype":"create","ts":1600000000123,"broker":1,"headers":["a","b","a",null],"key":"k","payload":"v"}\n'
        b'{"topic":"x","partition":2,"offset":1,"tstype":"logappend","ts":1600000000124,"broker":1,"key":null,"payload":null}\n'
        b'{"topic":"x","partition":2,"offset":2,"tstype":"unknown","ts":0,"broker":-1,"headers":{"a":["1","2"]},"key":null,"payload":1.10}\n\n'
    )
    assert tool("produce", "many", "-b", cluster.bootstrap, "-f", "kcat", stdin=lines).code == 0
    found = stored(cluster, "many", 2)
    assert [(r.key, r.value, r.headers) for r in found] == [
        (b"k", b"v", [("a", b"b"), ("a", None)]),
        (None, None, []),
        (None, b"1.10", [("a", b"1"), ("a", b"2")]),
    ]
    assert [r.timestamp for r in found[:2]] == [1_600_000_000_123, 1_600_000_000_124]
    assert found[2].timestamp > 1_600_000_000_124, "nobody knows when it was: now"


def test_lines_of_kcat_are_told_of_where_another_format_is_given(cluster: MockCluster) -> None:
    outcome = tool("produce", "t", "-b", cluster.bootstrap, "-f", "json", stdin=b'{"topic":"t","key":null,"payload":"v"}\n')
    assert outcome.code == 1
    assert "line 1: " in outcome.err
    assert "--format kcat" in outcome.err
    outcome = tool("produce", "t", "-b", cluster.bootstrap, "-f", "kcat", stdin=b'{"value":"v"}\n')
    assert "--format json" in outcome.err
    outcome = tool(
        "produce", "many", "-b", cluster.bootstrap, "-f", "kcat", "--repartition", stdin=b'{"partition":99,"key":"k","payload":"v"}\n'
    )
    assert outcome.code == 0


def test_lines_that_end_in_carriage_returns_keep_them_and_that_is_said_once(cluster: MockCluster) -> None:
    outcome = tool("produce", "t", "-b", cluster.bootstrap, stdin=b"a\r\nb\rc\r\n")
    assert outcome.code == 0
    assert outcome.err.splitlines() == [
        r"the lines end in \r\n, and each \r is part of its record: --delimiter '\r\n' takes both off",
        "2 records delivered to t",
    ]
    assert [r.value for r in stored(cluster)] == [b"a\r", b"b\rc\r"]


@pytest.mark.parametrize(
    ("more", "data"),
    [
        (["--delimiter", r"\r\n"], b"a\r\nb\r\n"),
        (["--delimiter", r"\n"], b"a\r\n"),
        (["--format", "json"], b'{"value":"a"}\r\n'),
        ([], b"a\nb\r\n"),
    ],
)
def test_nothing_is_said_of_carriage_returns_that_are_known_or_matter_not(cluster: MockCluster, more: list[str], data: bytes) -> None:
    outcome = tool("produce", "t", "-b", cluster.bootstrap, *more, stdin=data)
    assert outcome.code == 0
    assert "end in" not in outcome.err


def test_carriage_returns_that_end_lines_by_themselves_are_told_as_such(cluster: MockCluster) -> None:
    data = b"a\rb\rc\r"
    outcome = tool("produce", "t", "-b", cluster.bootstrap, stdin=data)
    assert outcome.err.splitlines() == [
        r"the first line holds several \r, which are part of its record: if they end lines, --delimiter '\r' splits there",
        "1 record delivered to t",
    ]
    assert tool("produce", "t", "-b", cluster.bootstrap, "--delimiter", r"\r", stdin=data).err == "3 records delivered to t\n"
    assert [r.value for r in stored(cluster)] == [data, b"a", b"b", b"c"]


def test_values_in_hex_have_no_carriage_return_and_none_is_told(cluster: MockCluster) -> None:
    outcome = tool("produce", "t", "-b", cluster.bootstrap, "-f", "hex", stdin=b"61\r\n")
    assert (outcome.code, "\\r" in outcome.err) == (0, False), outcome.err
    assert tool("consume", "t", "-b", cluster.bootstrap).out.strip() == b"a"


def test_what_a_null_or_a_key_would_be_without_the_carriage_return_is_told_before(cluster: MockCluster) -> None:
    outcome = tool("produce", "t", "-b", cluster.bootstrap, "--key-separator", ":", "--null", "", "--dry-run", stdin=b"k:\r\n")
    assert "--delimiter '\\r\\n'" in outcome.err


def test_a_byte_order_mark_is_said_and_kept(cluster: MockCluster) -> None:
    outcome = tool("produce", "t", "-b", cluster.bootstrap, stdin=b"\xef\xbb\xbfa\nb\n")
    assert "byte order mark" in outcome.err
    assert [r.value for r in stored(cluster)] == [b"\xef\xbb\xbfa", b"b"]
    outcome = tool("produce", "t", "-b", cluster.bootstrap, "-f", "json", stdin=b'\xef\xbb\xbf{"value":1.10}\n')
    assert (outcome.code, stored(cluster)[-1].value) == (0, b"1.10"), "JSON has it beside its text"


def test_other_json_than_a_text_is_sent_as_json(cluster: MockCluster) -> None:
    lines = b'{"value": {"a": [1, "\xc3\xbc"]}, "key": 5}\n{"value": true, "headers": {"a": "b"}}\n'
    assert tool("produce", "t", "-b", cluster.bootstrap, "-f", "json", stdin=lines).code == 0
    assert [(r.key, r.value, r.headers) for r in stored(cluster)] == [
        (b"5", '{"a": [1, "ü"]}'.encode(), []),
        (None, b"true", [("a", b"b")]),
    ]


def test_what_is_said_for_all_records_counts_before_their_lines(cluster: MockCluster) -> None:
    line = b'{"value": "v", "key": "k", "partition": 1, "timestamp": 5, "headers": {"a": "line"}}\n'
    more = ["--key", "all", "-p", "3", "--timestamp", "2020-01-01T00:00Z", "-H", "a=option", "-H", "b=x=y"]
    assert tool("produce", "many", "-b", cluster.bootstrap, "-f", "json", *more, stdin=line).code == 0
    (record,) = stored(cluster, "many", 3)
    assert (record.key, record.timestamp) == (b"all", 1_577_836_800_000)
    assert record.headers == [("a", b"option"), ("b", b"x=y"), ("a", b"line")]


def test_repartition_takes_the_key_whatever_partition_the_lines_name(cluster: MockCluster) -> None:
    lines = b"".join(b'{"value": "v", "key": "%d", "partition": 99}\n' % i for i in range(40))
    assert tool("produce", "many", "-b", cluster.bootstrap, "-f", "json", "--repartition", stdin=lines).code == 0
    assert all(stored(cluster, "many", p) for p in range(4))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_batches_are_compressed_as_asked(cluster: MockCluster, codec: str) -> None:
    assert tool("produce", "t", "-b", cluster.bootstrap, "-z", codec, stdin=b"a" * 500 + b"\n").code == 0
    (request,) = cluster.requests("Produce")
    batch = bytes(request.message.topic_data[0].partition_data[0].records)
    assert int.from_bytes(batch[21:23], "big") & 7 == ["none", "gzip", "snappy", "lz4", "zstd"].index(codec)
    assert [r.value for r in stored(cluster)] == [b"a" * 500]


@pytest.mark.parametrize(("options", "acks", "numbered"), [(["--acks", "1"], 1, False), (["--no-idempotent"], -1, False), ([], -1, True)])
def test_acks_and_idempotence_are_what_is_asked_for(cluster: MockCluster, options: list[str], acks: int, numbered: bool) -> None:
    assert tool("produce", "t", "-b", cluster.bootstrap, *options, stdin=b"x\n").code == 0
    (request,) = cluster.requests("Produce")
    assert request.message.acks == acks
    batch = bytes(request.message.topic_data[0].partition_data[0].records)
    assert (int.from_bytes(batch[43:51], "big", signed=True) >= 0) is numbered


def test_any_delimiter_ends_a_record(cluster: MockCluster) -> None:
    assert tool("produce", "t", "-b", cluster.bootstrap, "--delimiter", r"\r\n", stdin=b"a\nb\r\nc\r\n").code == 0
    assert [r.value for r in stored(cluster)] == [b"a\nb", b"c"]


class Dribble(io.RawIOBase):
    """Gives its bytes in pieces of a size."""

    def __init__(self, data: bytes, size: int) -> None:
        self.rest, self.size = data, size

    def read1(self, _: int) -> bytes:
        piece, self.rest = self.rest[: self.size], self.rest[self.size :]
        return piece


@given(st.lists(st.binary(max_size=6).filter(lambda b: b"<>" not in b and not b.endswith(b"<")), max_size=6), st.integers(1, 5))
def test_lines_are_the_same_however_their_bytes_arrive(lines: list[bytes], size: int) -> None:
    data = b"".join(line + b"<>" for line in lines)
    assert [line for block in blocks_of(Dribble(data, size), b"<>") for line in block] == lines  # type: ignore[arg-type]


@given(
    st.binary(max_size=30).map(lambda data: bytes(b"ab"[b % 2] for b in data)),
    st.sampled_from([b"ab", b"aab", b"aaa", b"abab"]),
    st.integers(1, 5),
)
def test_a_delimiter_of_several_bytes_may_come_in_pieces(data: bytes, delimiter: bytes, size: int) -> None:
    *lines, last = data.split(delimiter)
    found = [line for block in blocks_of(Dribble(data, size), delimiter) for line in block]  # type: ignore[arg-type]
    assert found == [*lines, *([last] if last else [])]


def test_a_line_without_end_is_told_before_it_fills_the_memory() -> None:
    with pytest.raises(ToolError, match="line 2: longer than 1000 bytes"):
        list(blocks_of(Dribble(b"a\n" + b"b" * 5000, 100), longest=1000))  # type: ignore[arg-type]


# -- what is no record -----------------------------------------------------------------------------------------------------
def test_bad_lines_are_named_by_number_and_the_others_are_written(cluster: MockCluster) -> None:
    lines = b'{"value": "a"}\nnonsense\n{"value": "b"}\n{"valeu": 1}\n{"value": "c", "partition": 7}\n'
    outcome = tool("produce", "t", "-b", cluster.bootstrap, "-f", "json", stdin=lines)
    assert outcome.code == 1
    told = outcome.err.splitlines()
    assert [line.split(":")[0] for line in told[:3]] == ["line 2", "line 4", "line 5"]
    assert "unknown field 'valeu'" in told[1]
    assert "has no partition 7; --repartition" in told[2]
    assert told[3] == "2 records delivered to t, 3 bad lines"
    assert [r.value for r in stored(cluster)] == [b"a", b"b"]


@pytest.mark.parametrize(
    ("form", "line", "why"),
    [
        ("json", b"[1]", "not an object"),
        ("json", b"{", "not JSON"),
        ("json", b'"\xff"', "not UTF-8"),
        ("json", b"[" * 100_000, "nested too deeply"),
        ("json", b'{"value": NaN}', "NaN is no JSON"),
        ("json", b'{"value": "", "timestamp": %s}' % (b"9" * 5000), "must be a whole number"),
        ("json", b'{"value": 1, "value": 2}', "'value' stands in it twice"),
        ("json", b'{"value": 1} x', "not JSON: Extra data, at character 14"),
        ("json", b'{"value": 1,}', "not JSON: "),
        ("json", b'{"value" 1}', "not JSON: Expecting ':' delimiter, at character 10"),
        ("kcat", b'{"payload": "", "headers": ["a"]}', "names and values in turn"),
        ("kcat", b'{"payload": {"a": 1}, "value_schema_id": 5}', "without -s"),
        ("kcat", b'{"key": "a"}', "no field 'payload'"),
        ("json", b"{}", "no field 'value'"),
        ("json", b'{"value": "a", "value_base64": "YQ=="}', "both 'value' and 'value_base64'"),
        ("json", b'{"value_base64": "a"}', "is not base64"),
        ("json", b'{"value_base64": 5}', "is not base64"),
        ("json", b'{"value": "\\ud800"}', "half of a character"),
        ("json", b'{"value": "", "timestamp": -5}', "'timestamp' is -5"),
        ("json", b'{"value": "", "timestamp": true}', "'timestamp' is true"),
        ("json", b'{"value": "", "partition": "1"}', "'partition' is \"1\""),
        ("json", b'{"value": "", "headers": 5}', "'headers' must be a list"),
        ("json", b'{"value": "", "headers": [1]}', "a header must be"),
        ("json", b'{"value": "", "headers": [{"name": "a", "other": 1}]}', "a header must be"),
        ("hex", b"abc", "not hexadecimal"),
        ("hex", b"zz\x1b[2J", "not hexadecimal: 'zz\\x1b[2J'"),
        ("hex", b"\xff", "not hexadecimal"),
    ],
)
def test_what_is_wrong_with_a_line_is_said(form: str, line: bytes, why: str) -> None:
    with pytest.raises(BadLine) as caught:
        reader(form)(line)
    assert why in str(caught.value)
    assert str(caught.value).isprintable()


@given(st.binary(max_size=60) | st.text(max_size=40).map(lambda t: json.dumps({"value": t, "headers": t}).encode()))
def test_no_line_does_more_than_be_refused(line: bytes) -> None:
    reader("text")(line)
    for form in ("json", "hex", "kcat"):
        why = ""
        try:
            reader(form)(line)
        except BadLine as exc:
            why = str(exc)
        assert why.isprintable()


def test_a_line_without_the_separator_or_the_field_is_bad() -> None:
    with pytest.raises(BadLine, match="no key"):
        reader("text", separator=b":")(b"value")
    with pytest.raises(BadLine, match="no field 'id'"):
        reader("text", key_field="id")(b'{"other": 1}')
    with pytest.raises(BadLine, match="not JSON"):
        reader("text", key_field="id")(b"other")


@pytest.mark.parametrize(("text", "data"), [(r"\t", b"\t"), (r"\x00\0\\", b"\x00\x00\\"), ("ü", "ü".encode()), ("", b"")])
def test_escapes_stand_for_bytes(text: str, data: bytes) -> None:
    assert unescaped(text) == data


@pytest.mark.parametrize("text", [r"\q", "a\\", r"\x1"])
def test_an_unknown_escape_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no escape"):
        unescaped(text)


def test_many_bad_lines_are_counted_and_the_first_are_told(cluster: MockCluster) -> None:
    outcome = tool("produce", "t", "-b", cluster.bootstrap, "-f", "hex", "--json", stdin=b"x\n" * 100)
    assert outcome.code == 1
    assert len(outcome.err.splitlines()) == 20
    assert outcome.document["bad_lines"]["count"] == 100
    assert len(outcome.document["bad_lines"]["first"]) == 20
    assert outcome.document["delivered"] == 0


def test_a_dry_run_reads_and_writes_nothing(cluster: MockCluster) -> None:
    outcome = tool("produce", "t", "-b", cluster.bootstrap, "-f", "hex", "--dry-run", stdin=b"00\nx\n")
    assert (outcome.code, outcome.err.splitlines()[-2]) == (1, "1 record would be written to t, 1 bad line")
    assert stored(cluster) == []


# -- what fails ------------------------------------------------------------------------------------------------------------
def refuse(_: Any, answer: Any) -> Any:
    """Partition 1 may not be written."""
    for partition in answer.responses[0].partition_responses:
        partition.error_code = 29 if partition.index == 1 else partition.error_code
    return answer


def test_records_that_are_not_delivered_are_listed_by_line(cluster: MockCluster) -> None:
    cluster.on("Produce", Edit(refuse), times=None)
    lines = b"".join(b'{"value": "v%d", "partition": %d}\n' % (i, i % 2) for i in range(4))
    outcome = tool("produce", "many", "-b", cluster.bootstrap, "-f", "json", "--no-idempotent", stdin=lines)
    assert outcome.code == 1
    told = outcome.err.splitlines()
    assert [line.split(":")[:2] for line in told[:2]] == [["line 2", " not delivered"], ["line 4", " not delivered"]]
    assert "ACL" in told[0]
    assert told[2] == "2 records delivered to many, 2 not delivered"


def test_one_bad_record_among_good_ones_is_named_by_its_line(cluster: MockCluster) -> None:
    """KIP-467: the others are written, though all were of one batch."""
    cluster.on("Produce", Refuse(), times=None)
    lines = b"".join(b"%s=v%d\n" % (b"-" if i in (2, 5) else b"k", i) for i in range(8))
    outcome = tool("produce", "t", "-b", cluster.bootstrap, "--key-separator", "=", "--null", "-", stdin=lines)
    assert outcome.code == 1
    told = [line for line in outcome.err.splitlines() if line.startswith("line")]
    assert [line.split(":")[:2] for line in told] == [["line 3", " not delivered"], ["line 6", " not delivered"]]
    assert "Compacted topic cannot accept message without key" in told[0]
    assert "6 records delivered to t, 2 not delivered" in outcome.err
    assert outcome.err.splitlines()[-1].startswith("  next: mend what the broker says of these records"), outcome.err
    assert [r.value for r in stored(cluster)] == [b"v%d" % i for i in range(8) if i not in (2, 5)]


def test_a_record_that_is_too_large_is_a_bad_line(cluster: MockCluster) -> None:
    outcome = tool("produce", "t", "-b", cluster.bootstrap, stdin=b"a" * 2_000_000 + b"\nb\n")
    assert outcome.code == 1
    assert outcome.err.startswith("line 1: a record of 2000")
    assert [r.value for r in stored(cluster)] == [b"b"]


def test_an_unknown_topic_is_told_at_once(cluster: MockCluster) -> None:
    begun = now()
    outcome = tool("produce", "nowhere", "-b", cluster.bootstrap, "--timeout", "120", stdin=b"x\n")
    failure(outcome, "no topic 'nowhere' in this cluster", "kafka-tools topics")
    assert now() - begun < 60


def test_a_partition_that_is_not_there_is_told(cluster: MockCluster) -> None:
    failure(tool("produce", "t", "-p", "5", "-b", cluster.bootstrap, stdin=b"x\n"), "topic 't' has no partition 5: it has 0 to 0")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--key", "a", "--key-separator", ":"], "--key and --key-separator both say"),
        (["-f", "json", "--key-separator", ":"], "--key-separator is not for --format json"),
        (["-f", "json", "--delimiter", ";"], "--delimiter is not for --format json"),
        (["-f", "hex", "--key-field", "a"], "--key-field is for --format text"),
        (["--repartition"], "--repartition is for --format json"),
        (["--key-separator", ""], "cannot be empty"),
        (["-H", "name"], "must be NAME=VALUE"),
        (["--timestamp", "yesterday"], "'yesterday': must be as"),
        (["--key", r"\q"], "is no escape"),
        (["-p", "-1"], "-1 is not in the range"),
        (["-z", "zip"], "'zip' is not one of"),
    ],
)
def test_options_that_make_no_sense_are_refused_before_anything_is_sent(cluster: MockCluster, options: list[str], said: str) -> None:
    outcome = tool("produce", "t", "-b", cluster.bootstrap, *options, stdin=b"x\n")
    failure(outcome, said, code=2)
    assert cluster.requests("Produce") == []


def test_a_file_that_is_not_there_is_told(cluster: MockCluster) -> None:
    failure(tool("produce", "t", "/no/such/file", "-b", cluster.bootstrap), "/no/such/file", code=2)


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("t <&-", 2, "standard input is closed"),
        ("t /proc/self/mem", 1, "the lines cannot be read: Input/output error"),
        ("t /", 2, "Is a directory"),
    ],
)
def test_lines_that_cannot_be_read_are_told(cluster: MockCluster, line: str, code: int, said: str) -> None:
    command = f"{' '.join(TOOL)} produce -b {cluster.bootstrap} {line}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, env=environment(), check=False)
    failure(Outcome(done.returncode, b"", done.stderr), said, code=code)


@pytest.mark.parametrize("hosts", ["kafka:99999", "http://kafka:9092", "a b:1", ",", "[::1"])
def test_garbage_for_bootstrap_servers_is_one_line(hosts: str) -> None:
    failure(tool("produce", "t", "-b", hosts, stdin=b"x\n"), "--bootstrap-server", code=2)


# -- as a program ----------------------------------------------------------------------------------------------------------
def test_records_go_out_while_the_pipe_stays_open(cluster: MockCluster) -> None:
    with program("produce", "t", "-b", cluster.bootstrap) as process:
        assert process.stdin is not None
        process.stdin.write(b"first\n")
        process.stdin.flush()
        cluster.wait_for(lambda: stored(cluster) or None, 60)
        assert process.poll() is None
        process.stdin.write(b"second")
        process.stdin.close()
        assert process.wait(60) == 0
    assert [r.value for r in stored(cluster)] == [b"first", b"second"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_delivers_what_was_read_and_says_how_much(cluster: MockCluster, number: int) -> None:
    with program("produce", "t", "-b", cluster.bootstrap) as process:
        assert process.stdin is not None
        process.stdin.write(b"first\nsecond\n")
        process.stdin.flush()
        cluster.wait_for(lambda: len(stored(cluster)) == 2 or None, 60)
        assert stop(process, number) == 130
        assert process.stderr is not None
        told = process.stderr.read().decode().splitlines()
    assert told == [
        "2 records delivered to t",
        "kafka-tools: interrupted; 2 records read, 2 delivered; lines that were not read are not written",
    ]


def test_a_person_types_records_and_ends_them_with_ctrl_d(cluster: MockCluster) -> None:
    with Terminal("produce", "t", "-b", cluster.bootstrap) as terminal:
        terminal.press("typed\n")
        cluster.wait_for(lambda: stored(cluster) or None, 60)
        terminal.press("\x04")
        code, shown = terminal.end()
    assert code == 0
    assert "1 record delivered to t" in shown
    assert [r.value for r in stored(cluster)] == [b"typed"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--set", "linger.ms=never"], "--set linger.ms='never'"),
        (["--set", "no.such.property=1"], "no.such.property"),
        (["--set", "transactional.id=x"], "produce writes without transactions"),
        (["--acks", "1", "--idempotent"], "enable.idempotence=true needs acks"),
        (["--set", "batch.size=9999999999"], "batch"),
        (["-b", "host:port"], "host:port"),
    ],
)
def test_a_dry_run_looks_at_all_options(given: list[str], said: str) -> None:
    """They are told as without --dry-run, before a line is read, and no broker is asked."""
    outcome = tool("produce", "t", "-b", "127.0.0.1:1", "--dry-run", *given, stdin=b"v\n")
    assert said in outcome.err
    assert "would be written" not in outcome.err
    assert (outcome.code, outcome.out) == (2, b"")


def test_a_dry_run_needs_no_broker() -> None:
    outcome = tool("produce", "t", "-b", "127.0.0.1:1", "--dry-run", "--set", "linger.ms=5", stdin=b"a\nb\n")
    assert (outcome.code, outcome.err.splitlines()[0]) == (0, "2 records would be written to t")


def test_a_topic_that_is_missing_is_told_with_the_command_that_makes_it() -> None:
    with MockCluster(auto_create=False) as empty:
        told = tool("produce", "bills", "-b", empty.bootstrap, stdin=b"x\n")
    assert (told.code, "bills" in told.err) == (1, True)
    assert told.err.endswith("\n  next: kafka-tools topics lists what there is; kafka-tools topics create bills makes it\n")
