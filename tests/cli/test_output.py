"""What reaches the terminal: aligned, coloured only there, and nothing that it would obey."""

from __future__ import annotations

import io
import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gkafka import KafkaClient
from gkafka.cli.output import Column, clean, document, json_line, lines_of, width
from gkafka.testing import MockCluster
from tests.cli.conftest import Tool


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@given(st.text())
def test_no_control_character_is_left_whatever_the_text(text: str) -> None:
    assert clean(text).isprintable()


@given(st.text(st.characters(categories=["L", "N", "P", "S"])))
def test_what_can_be_printed_stays_as_it_is(text: str) -> None:
    assert clean(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\x9b31m", "\\x9b31m"),
        ("a\r\nb\tc", "a\\r\\nb\\tc"),
        ("user\u202etxt.exe", "user\\u202etxt.exe"),
        ("\udcff", "\\udcff"),
        ("\U000e0041", "\\U000e0041"),
        ("\u2028", "\\u2028"),
    ],
)
def test_what_a_terminal_would_obey_is_shown(text: str, shown: str) -> None:
    assert clean(text) == shown


def test_what_may_stay_stays() -> None:
    assert clean("a\nb\x1b", keep="\n") == "a\nb\\x1b"


def test_numbers_stand_to_the_right_and_texts_to_the_left() -> None:
    rows = [{"topic": "orders", "lag": 5}, {"topic": "a", "lag": 12345}, {"topic": None, "lag": None}]
    assert lines_of(rows, ["topic", "lag"]) == ["TOPIC     LAG", "orders      5", "a       12345", "-           -"]


def test_lists_flags_and_nothing() -> None:
    rows = [{"isr": [1, 2], "internal": True, "note": ""}, {"isr": [], "internal": False, "note": "x"}]
    assert lines_of(rows, ["isr", "internal", Column("note", "SAYS")]) == ["ISR  INTERNAL  SAYS", "1,2  yes       -", "-    no        x"]


def test_a_name_with_an_escape_sequence_does_not_reach_the_terminal() -> None:
    assert "\x1b" not in "".join(lines_of([{"group": "\x1b[31mred", "members": ["\x07"]}], ["group", "members"]))


def test_wide_letters_are_aligned_by_the_room_they_take() -> None:
    lines = lines_of([{"a": "日本", "b": "x"}, {"a": "abcd", "b": "y"}], ["a", "b"])
    assert width("日本") == 4
    assert lines[1:] == ["日本  x", "abcd  y"]


def test_colours_are_for_terminals_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = [Column("state", colour=lambda value: "red")]
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert "\x1b" not in "".join(lines_of([{"state": "Dead"}], columns))
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert lines_of([{"state": "Dead"}], columns)[1] == "\x1b[31mDead\x1b[0m"


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_who_wants_no_colours_gets_none(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv(name, value)
    assert "\x1b" not in "".join(lines_of([{"state": "Dead"}], [Column("state", colour=lambda value: "red")]))


def test_json_is_one_document_or_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    document([{"a": {3, 1}, "b": "\x1b"}])
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert json.loads(shown) == [{"a": [1, 3], "b": "\x1b"}]
    json_line({"a": "ü"})
    assert capsys.readouterr().out == '{"a":"\\u00fc"}\n'


def test_an_odd_name_is_escaped_once_wherever_it_is_told(ask: Tool, cluster: MockCluster) -> None:
    odd, shown = "bill\\ing\x1b[31m", "bill\\ing\\x1b[31m"
    with KafkaClient(cluster.bootstrap, handler="threading") as client:
        client.admin().alter_group_offsets(odd, {("orders", 0): 0})
    assert ask("groups", "describe", odd).out.startswith(f"{shown}  Empty\n")
    told = ask("groups", "describe", odd + "x").err
    assert told.startswith(f"kafka-tools: no group '{shown}x' in this cluster\n  next: did you mean '{shown}'? ")
