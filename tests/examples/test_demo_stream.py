"""What stands beside the stream: the lag of its groups, the live table, the lines of its progress, and the figures of its batches."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import lag
import pytest
import stream
import top
from names import ARCHIVE, INLINKS, WINDOWS, Names, create_topics

from gkafka import KafkaClient
from gkafka.testing import MockCluster
from tests.examples.conftest import PIPELINE

NAMES = Names("x-")


@pytest.fixture
def cluster() -> Any:
    with MockCluster() as cluster, KafkaClient(cluster.bootstrap) as client:
        create_topics(client, NAMES, 2)
        yield cluster


def produce(cluster: MockCluster, topic: str, records: list[tuple[str, str]]) -> None:
    with KafkaClient(cluster.bootstrap) as client, client.get_producer() as producer:
        for key, value in records:
            producer.produce(topic, value.encode(), key=key.encode())


def test_topics_that_are_there_are_left_as_they_are(cluster: MockCluster) -> None:
    with KafkaClient(cluster.bootstrap) as client:
        create_topics(client, NAMES, 5)
        assert {topic: len(client.partitions(topic)) for topic in (NAMES.pages, NAMES.links, NAMES.inlinks, NAMES.clock)} == {
            "x-pages": 2,
            "x-links": 2,
            "x-inlinks": 2,
            "x-clock": 1,
        }


def test_no_two_queries_commit_to_one_group() -> None:
    assert len({NAMES.group(query) for query in lag.QUERIES} | {NAMES.top}) == 4


def test_the_lag_is_what_a_group_has_not_committed(cluster: MockCluster) -> None:
    produce(cluster, NAMES.links, [(f"/{number}", "x") for number in range(30)])
    produce(cluster, NAMES.pages, [(f"/{number}", "x") for number in range(5)])
    with KafkaClient(cluster.bootstrap) as client:
        began = lag.look(client, NAMES)
        assert (began.done, began.left) == ({ARCHIVE: 0, INLINKS: 0, WINDOWS: 0}, {ARCHIVE: 35, INLINKS: 30, WINDOWS: 5})
        admin = client.admin()
        ends = client.list_offsets({(NAMES.links, number): -1 for number in range(2)})
        admin.alter_group_offsets(NAMES.group(INLINKS), {tp: end - (tp[1] == 0) for tp, end in ends.items()})
        midway = lag.look(client, NAMES)
        assert (midway.done[INLINKS], midway.left) == (29, {ARCHIVE: 35, INLINKS: 1, WINDOWS: 5})
        assert not midway.caught_up
        for query in lag.QUERIES:
            partitions = [(topic, number) for topic in NAMES.read_by(query) for number in client.partitions(topic)]
            admin.alter_group_offsets(NAMES.group(query), client.list_offsets(dict.fromkeys(partitions, -1)))
        assert lag.look(client, NAMES).caught_up
    command = [sys.executable, str(PIPELINE / "lag.py"), "--hosts", cluster.bootstrap, "--prefix", "x-", "--until-caught-up"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == [
        "archive",
        "0",
        "left",
        "of",
        "35",
        "inlinks",
        "0",
        "left",
        "of",
        "30",
        "windows",
        "0",
        "left",
        "of",
        "5",
    ]


def test_nothing_done_is_not_caught_up() -> None:
    assert not lag.Lag(0.0, {ARCHIVE: 0, INLINKS: 0}, {ARCHIVE: 0, INLINKS: 0}).caught_up


def test_the_table_keeps_the_newest_count_and_counts_what_is_told_twice() -> None:
    table = top.Table()
    for path, count in (("/a", 1), ("/b", 3), ("/a", 4), ("/c", 3), ("/b", 3), ("/a", 3)):
        table.take(path, count)
    assert (table.top(2), table.records, table.repeats) == ([("/a", 3), ("/b", 3)], 6, 2)


def test_top_takes_in_all_that_there_is_before_it_ends(cluster: MockCluster, tmp_path: Path) -> None:
    produce(cluster, NAMES.inlinks, [(f"/{path}", str(count * (path + 1))) for count in (1, 2, 3) for path in range(40)])
    out = tmp_path / "top.json"
    command = [sys.executable, str(PIPELINE / "top.py"), "--hosts", cluster.bootstrap, "--prefix", "x-", "--write", str(out)]
    program = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert program.stdout
        first = program.stdout.readline()
        program.send_signal(signal.SIGTERM)
        rest, errors = program.communicate(timeout=60)
    finally:
        program.kill()
    assert program.returncode == 0, errors
    assert "/39 120" in first + rest
    assert rest.splitlines()[-20].split() == ["120", "/39"]
    told = json.loads(out.read_text())
    assert told["inlinks"] == {f"/{path}": 3 * (path + 1) for path in range(40)}
    assert told["top"][:2] == [["/39", 120], ["/38", 117]]
    assert (told["records"], told["repeats"]) == (120, 0)


class Progress:
    """What Spark tells of a batch."""

    def __init__(self, run: str, batch: int, rows: int) -> None:
        states = [{"numRowsDroppedByWatermark": 2}, {}]
        told = {"runId": run, "batchId": batch, "timestamp": "2026-01-01T00:00:00.000Z", "numInputRows": rows}
        self.json = json.dumps({**told, "durationMs": {"triggerExecution": 70}, "stateOperators": states})


class Query:
    def __init__(self, *progress: Progress) -> None:
        self.recentProgress = list(progress)


def test_each_batch_of_each_run_is_told_once(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    path.write_text('{"of an earlier": "run"}\n{"cut sh')
    log = stream.ProgressLog(path)
    query: Any = Query(Progress("a", 0, 5), Progress("a", 1, 0))
    log.take({INLINKS: query})
    query.recentProgress += [Progress("a", 1, 7), Progress("b", 1, 7)]
    log.take({INLINKS: query})
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines[0] == {"of an earlier": "run"}
    assert [(line["run"], line["batch"], line["rows"], line["late"], line["ms"]) for line in lines[1:]] == [
        ("a", 0, 5, 2, 70),
        ("a", 1, 7, 2, 70),
        ("b", 1, 7, 2, 70),
    ]
