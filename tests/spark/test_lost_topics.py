"""Topics of a task that are deleted, or deleted and made again, between its plan and its end: what is read is what was planned, and the error names the place."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gkafka.spark.connections import close_all
from gkafka.spark.offsets import DataLossError
from gkafka.spark.source import GKafkaDataSource
from gkafka.testing import MockCluster
from tests.kit.clock import now
from tests.records.handmade import batch, record, values
from tests.spark.conftest import Read
from tests.spark.test_shared_tasks import rows_of, take
from tests.spark.test_stream_calls import Streaming, streaming

__all__ = ["streaming"]

Reading = Callable[..., Read]
pytestmark = pytest.mark.usefixtures("short_patience")
NEW = batch([record(i, b"new") for i in range(30)])


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    with MockCluster(topics={"t": 2, "u": 1}, auto_create=False) as running:
        fill(running)
        yield running


def fill(cluster: MockCluster) -> None:
    for topic, partition in (("t", 0), ("t", 1), ("u", 0)):
        cluster.append(topic, partition, values(10))


def make_again(cluster: MockCluster) -> None:
    cluster.delete_topic("t")
    cluster.create_topic("t", 2)
    for partition in range(2):
        cluster.append("t", partition, NEW)


def planned(reading: Reading, **options: str) -> tuple[Any, list[Any]]:
    reader = reading(subscribe="t,u", **options).reader
    return reader, reader.partitions()


def read_all(reader: Any, tasks: list[Any]) -> list[tuple[str, int]]:
    rows = [row for task in tasks for row in rows_of(reader, task)]
    assert all(row["value"] != b"new" for row in rows)
    return [(row["topic"], row["partition"]) for row in rows]


@pytest.mark.parametrize("tasks", ["1", "partitions"])
@pytest.mark.parametrize("is_known", [True, False], ids=["the worker knew the old one", "a new worker"])
def test_a_topic_that_was_made_again_is_not_read_in_place_of_the_old_one(
    cluster: MockCluster, reading: Reading, caplog: pytest.LogCaptureFixture, tasks: str, is_known: bool
) -> None:
    reader, planned_tasks = planned(reading, tasks=tasks)
    kind, others = planned(reading, tasks=tasks, failOnDataLoss="false")
    if not is_known:
        close_all()
    make_again(cluster)
    with pytest.raises(DataLossError, match=r"for topic partition t-0: topic 't' was deleted and made again"):
        read_all(reader, planned_tasks)
    with caplog.at_level(logging.WARNING):
        assert read_all(kind, others) == [("u", 0)] * 10
    assert "topic partition t-1: topic 't' was deleted and made again" in caplog.text


def test_one_that_a_worker_knew_before_it_was_made_again_is_read_as_it_is_planned(cluster: MockCluster, reading: Reading) -> None:
    read_all(*planned(reading))
    make_again(cluster)
    for tasks in ("1", "partitions"):
        assert sum(value == b"new" for value in reading(subscribe="t,u", tasks=tasks).column("value")) == 60


def test_one_that_is_made_again_while_it_is_read(cluster: MockCluster, reading: Reading) -> None:
    for first in range(10, 100, 10):
        for partition in range(2):
            cluster.append("t", partition, values(10, base_offset=first))
    reader, (task,) = planned(reading, kafka__max__partition__fetch__bytes="200", batchRows="5")
    found = reader.read(partition=task)
    next(found)
    cluster.delete_topic("t")
    cluster.create_topic("t", 2)
    for partition in range(2):
        cluster.append("t", partition, batch([record(i, b"new") for i in range(200)]))
    rows: list[Any] = []
    with pytest.raises(DataLossError, match="t-0: topic 't' was deleted and made again"):
        take(found, rows)
    assert all(row["value"] != b"new" for row in rows)


@pytest.mark.parametrize("version", ["2.8", "2.7"])
def test_where_brokers_fetch_by_name_the_ids_count_if_there_are_any(reading: Reading, version: str) -> None:
    with MockCluster(topics={"t": 2, "u": 1}, auto_create=False, versions=version) as old:
        fill(old)
        options = {"kafka.bootstrap.servers": old.bootstrap, "subscribe": "t,u"}
        source = GKafkaDataSource(options=options)
        reader = source.reader(schema=source.schema())
        tasks = reader.partitions()
        close_all()
        make_again(old)
        if version == "2.8":
            with pytest.raises(DataLossError, match="t-0: topic 't' was deleted and made again"):
                read_all(reader, tasks)
        else:
            assert sum(row["value"] == b"new" for task in tasks for row in rows_of(reader, task)) == 20, "nobody can tell"


def test_a_batch_of_a_stream_reads_what_was_planned(cluster: MockCluster, streaming: Streaming) -> None:
    query = streaming(subscribe="t,u", startingOffsets="earliest")
    assert query.plan()
    begin, end = json.loads(json.dumps(query.reader.initialOffset())), json.loads(query.checkpoint.offsets[-1])
    tasks = query.reader.partitions(begin, end)
    make_again(cluster)
    with pytest.raises(DataLossError, match="t-0: topic 't' was deleted and made again"):
        read_all(query.reader, tasks)


def many(cluster: MockCluster, count: int) -> str:
    for number in range(count):
        cluster.create_topic(f"many{number:02}", 1)
        cluster.append(f"many{number:02}", 0, values(3))
    return ",".join(f"many{number:02}" for number in range(count))


@pytest.mark.parametrize("is_known", [True, False], ids=["the worker knew them", "a new worker"])
def test_topics_that_are_gone_are_waited_for_together(
    cluster: MockCluster, reading: Reading, monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    monkeypatch.setattr("gkafka.cluster.UNKNOWN_TOPIC_PATIENCE_S", 2.0)
    close_all()
    read = reading(subscribe=many(cluster, 20), failOnDataLoss="false")
    (task,) = read.tasks()
    if not is_known:
        close_all()
    for number in range(15):
        cluster.delete_topic(f"many{number:02}")
    began = now()
    assert sorted({row["topic"] for row in rows_of(read.reader, task)}) == [f"many{number}" for number in range(15, 20)]
    assert now() - began < 20, "each alone, once, would be 30 s"


def test_the_topics_of_a_task_are_asked_for_at_once(cluster: MockCluster, reading: Reading) -> None:
    read = reading(subscribe=many(cluster, 20))
    (task,) = read.tasks()
    close_all()
    before = cluster.count("Metadata")
    assert len(rows_of(read.reader, task)) == 60
    assert cluster.count("Metadata") - before <= 3
