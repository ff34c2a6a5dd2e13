"""Each program with gkafka on MockCluster, with threads and with greenlets; and what plays them. On a real Kafka: tests/live/test_programs.py."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from gkafka.testing import MockCluster
from tests.programs.__main__ import judged
from tests.programs.kit import HANDLERS, PROGRAMS, SAME, Outcome, Place, UserProgram, by_forks, read, reasons

MOCKED = [program for program in PROGRAMS if not program.needs]


@pytest.fixture(scope="module", params=HANDLERS)
def played(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Outcome]]:
    """What came of each program that is wanted in this run, four at a time on one broker."""
    chosen = {item.callspec.params.get("program") for item in request.session.items if hasattr(item, "callspec")}
    with MockCluster() as cluster, Place(cluster.bootstrap) as place:
        programs = [program for program in MOCKED if program in chosen]
        yield by_forks(place, programs, request.param, tmp_path_factory.mktemp("programs"))
        assert not cluster.errors, cluster.errors


@pytest.mark.parametrize("program", MOCKED, ids=lambda program: program.name)
def test_a_program_prints_what_its_reader_expects(program: UserProgram, played: dict[str, Outcome]) -> None:
    outcome = played[program.name]
    assert program.as_expected(outcome), f"{outcome.lines}\n{outcome.stderr}"
    assert "Traceback" not in outcome.stderr, outcome.stderr


# -- the table ---------------------------------------------------------------------------------------------------------
def test_the_table_has_a_row_for_each_program_and_a_reason_for_each_difference() -> None:
    now = reasons()
    assert sorted(now) == sorted(program.name for program in PROGRAMS)
    assert [name for name, reason in now.items() if not reason] == []
    assert [program.name for program in PROGRAMS if bool(program.original) != (now[program.name] != SAME)] == []


# -- the kit -----------------------------------------------------------------------------------------------------------
HEADER = "# topic: partitions=2 messages=300\n# expect: one\n# expect:\n# committed: 0=1\n# needs: real\n# release: 1.4.7\nimport x\n# expect: two\n"


def test_the_header_ends_with_the_first_line_of_another_kind() -> None:
    program = read("kafka_python_x", HEADER)
    assert (program.topic, program.expect, program.committed) == ((2, 300), ("one", ""), "0=1")
    assert (program.needs, program.release, program.library) == ({"real"}, "1.4.7", "kafka_python")


@pytest.mark.parametrize("source", ["# expects: one\n", "import x\n", "# expect: one\n# needs: luck\n"])
def test_a_header_that_says_something_else_is_refused(source: str) -> None:
    with pytest.raises(ValueError, match="pykafka_x: "):
        read("pykafka_x", source)


@pytest.mark.parametrize(
    ("name", "line", "copied"),
    [
        ("pykafka_x", "from pykafka.common import OffsetType", "from gkafka.common import OffsetType"),
        ("pykafka_x", "import pykafka", "import gkafka as pykafka"),
        ("kafka_python_x", "from kafka import KafkaConsumer  # kafka", "from gkafka.kafka import KafkaConsumer  # kafka"),
        ("kafka_python_x", "    import kafka", "    import gkafka.kafka as kafka"),
        ("kafka_python_x", "from kafkaesque import trial", "from kafkaesque import trial"),
    ],
)
def test_in_the_copy_only_imports_differ(name: str, line: str, copied: str) -> None:
    block = "if True:\n" if line.startswith(" ") else ""
    program = read(name, f"# expect: x\n{block}{line}\nprint('import kafka')\n")
    assert program.copy("threading") == f"# expect: x\n{block}{copied}\nprint('import kafka')\n"
    assert program.copy("gevent") == "from gevent import monkey; monkey.patch_all()\n" + program.copy("threading")


@pytest.mark.parametrize("line", ["import kafka.errors", "import kafka as k", "import os, kafka"])
def test_an_import_that_would_stay_the_originals_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="kafka_python_x: import kafka"):
        read("kafka_python_x", f"# expect: x\n{line}\n").copy("threading")


def test_each_copy_is_a_program() -> None:
    for program in PROGRAMS:
        for handler in HANDLERS:
            ast.parse(program.copy(handler))


def test_a_program_is_told_with_how_it_ended_and_what_its_group_committed(tmp_path: Path) -> None:
    source = (
        "# topic: messages=1\n# expect: x\nimport sys\nfrom pykafka.exceptions import KafkaException\nprint(sys.argv[2], sys.argv[4])\n"
    )
    ends = {
        "pykafka_exits": "print(1)\nraise SystemExit(3)\n",
        "pykafka_raises": "raise KafkaException('a\\nb: c')\n",
        "pykafka_commits": "from gkafka import KafkaClient\nwith KafkaClient(sys.argv[1]) as client:\n"
        "    client.admin().alter_group_offsets(sys.argv[3], {(sys.argv[2], 0): 1, ('other', 0): 7})\n",
    }
    with MockCluster(topics={"other": 1}) as cluster, Place(cluster.bootstrap) as place:
        found = by_forks(place, [read(name, source + end) for name, end in ends.items()], "threading", tmp_path)
    assert {name: outcome.lines for name, outcome in found.items()} == {
        "pykafka_exits": ["TOPIC -", "1", "exit 3"],
        "pykafka_raises": ["TOPIC -", "exit 1: KafkaException"],
        "pykafka_commits": ["TOPIC -", "committed: 0=1 other/0=7"],
    }


@pytest.mark.parametrize(
    ("theirs", "ours", "original", "reason", "words", "is_wrong"),
    [
        ("x", "x", "", SAME, "same", False),
        ("y", "x", "# original: y\n", "because", "listed", False),
        ("y", "x", "", SAME, "DIFFERS", True),
        ("y", "x", "# original: y\n", SAME, "DIFFERS", True),
        ("z", "x", "# original: y\n", "because", "DIFFERS", True),
        ("y", "z", "# original: y\n", "because", "DIFFERS", True),
        ("x", "x", "# original: y\n", "because", "same", True),
    ],
)
def test_a_difference_needs_a_reason_and_a_reason_a_difference(
    theirs: str, ours: str, original: str, reason: str, words: str, is_wrong: bool
) -> None:
    program = read("pykafka_x", f"# expect: x\n{original}")
    outcomes = {"original": Outcome((theirs,), "", ""), "2.8.2 threading": Outcome((ours,), "", "")}
    told, wrong = judged(program, outcomes, reason)
    assert (told, bool(wrong)) == ({"2.8.2 threading": words}, is_wrong)
