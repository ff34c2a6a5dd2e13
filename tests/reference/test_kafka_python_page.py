"""docs/kafka-python.md tells apart what 1.4 documents from what newer versions have, and the differential tests call all that 1.4 documents."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import NamedTuple

from tests.live import test_kafka_differential as of_consumers
from tests.live import test_kafka_differential_producer as of_producers

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent.parent / "docs" / "kafka-python.md"
CALLED_BY_BROKERS = {"on_partitions_revoked", "on_partitions_assigned"}
"""Documented methods that programs define, and do not call."""


def documented() -> dict[str, set[str]]:
    """Class -> its methods, options and fields."""
    family = json.loads((HERE / "api.json").read_text(encoding="utf-8"))["families"]["kafka-python"]["modules"]
    found: dict[str, set[str]] = {}
    for module in family.values():
        for name, told in module.get("classes", {}).items():
            options = {option["name"] for option in told.get("config", ())}
            found[name] = {name, *told.get("methods", ()), *options, *told.get("namedtuple_fields", ())}
    return found


class Rows(NamedTuple):
    """The three lists of differences, each a row's first column -> the row."""

    documented: dict[str, str]
    silent: dict[str, str]
    newer: dict[str, str]


def rows() -> Rows:
    changes = PAGE.read_text(encoding="utf-8").partition("## What changes")[2].partition("## What gets better")[0]
    _, *parts = re.split(r"^### (?:From|Where) .*$", changes, flags=re.MULTILINE)
    told = [[line for line in part.splitlines() if line.count(" | ") >= 2][1:] for part in parts]
    return Rows(*({line.split(" | ")[0].removeprefix("| "): line for line in part} for part in told))


def names_in(text: str) -> set[str]:
    """What stands in it as code."""
    return {name for code in re.findall(r"`([^`]+)`", text) for name in re.findall(r"\w+", code)}


def test_what_newer_versions_have_otherwise_is_here_as_1_4_documents_it() -> None:
    """A row of the last list that is about a name of 1.4 says what of 1.4 was kept."""
    known = set().union(*documented().values()) - {"topic", "partition", "key", "value", "offset"}  # words of many rows
    about = {where: row for where, row in rows().newer.items() if names_in(where) & known}
    assert len(about) > 10
    assert [where for where, row in about.items() if not re.search(r"1\.4|as documented", row)] == []


def test_each_difference_has_its_reason() -> None:
    told = rows()
    assert min(map(len, told)) > 3
    for where, row in (told.documented | told.silent | told.newer).items():
        columns = row.strip("| ").split(" | ")
        assert len(columns) >= 3, where
        assert len(columns[-1]) > 10 or columns[-1] == "the same" or columns[-1].startswith("as "), where
    assert len(told.documented | told.silent | told.newer) == sum(map(len, told))


def test_what_1_4_documents_is_not_otherwise_but_for_safety_and_speed() -> None:
    """Two options that turn safety off need a second word, greenlets wait in their own hub, and records are views."""
    assert list(rows().documented) == [
        "`selector`",
        "SASL without TLS",
        "`ssl_check_hostname=False`",
        "records, as long as there is no deserializer",
    ]


def test_of_what_the_differential_tests_see_nothing_is_documented() -> None:
    """The same calls on kafka-python 3: what comes out differently is what newer versions have made of it, or what 1.4's documentation leaves open."""
    told = rows()
    seen = {*of_consumers.DIFFERENT.values(), *of_producers.DIFFERENT.values()}
    assert seen <= told.silent.keys() | told.newer.keys()


def test_the_differential_tests_call_every_documented_method() -> None:
    called: set[str] = set()
    for module in (of_consumers, of_producers):
        tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
        called |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        called |= {"__next__"} if "next(" in ast.unparse(tree) else set()
        called |= {"__iter__"} if "iter(" in ast.unparse(tree) else set()
    for name in ("KafkaConsumer", "KafkaProducer", "Future"):
        family = json.loads((HERE / "api.json").read_text(encoding="utf-8"))["families"]["kafka-python"]["modules"]
        methods = {m for module in family.values() for m in module.get("classes", {}).get(name, {}).get("methods", ())}
        assert methods
        assert methods - called - CALLED_BY_BROKERS == set(), name
