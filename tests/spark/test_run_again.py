"""A micro-batch that is run again has the tasks that it had, under the same numbers, whatever the cluster has lost meanwhile: an exactly-once sink knows by a
task's number what it has written."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gkafka.exceptions import ConfigurationError
from gkafka.spark.connections import close_all
from gkafka.spark.driver import divided
from gkafka.spark.exactlyonce import Task, write_once
from gkafka.spark.offsets import DataLossError, from_spark, starts_of, tasks_of, to_spark
from gkafka.spark.options import parse
from gkafka.spark.planner import Group, OffsetRange, grouped
from gkafka.spark.sinkoptions import parse_sink
from gkafka.testing import MockCluster
from tests.records.handmade import batch, record
from tests.spark.streaming import Checkpoint, OldQuery, Query
from tests.spark.test_stream_calls import Streaming, _partitions_are_looked_for_each_time, streaming

__all__ = ["_partitions_are_looked_for_each_time", "streaming"]

KINDS = [Query, OldQuery]
PLANS = ["2", "partitions"]
pytestmark = pytest.mark.usefixtures("short_patience")


@pytest.fixture(autouse=True)
def _little_is_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gkafka.spark.planner.LITTLE", 10)


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    """Topics to read, all empty but for "big", and one to write to."""
    with MockCluster(topics={"big": 2, "a": 1, "b": 1, "c": 1, "out": 1}, auto_create=False) as running:
        fill(running, "big", 100)
        fill(running, "big", 90, partition=1)
        yield running


def fill(cluster: MockCluster, topic: str, count: int, *, first: int = 0, partition: int = 0) -> None:
    """So many records, ten in a batch. Each says where it is."""
    for base in range(first, first + count, 10):
        records = [record(i, b"%s-%d-%d" % (topic.encode(), partition, base + i)) for i in range(10)]
        cluster.append(topic, partition, batch(records, base_offset=base, base_timestamp=1000 + base, max_timestamp=1000 + base))


def tasks_of_batch(query: Query) -> list[Group]:
    """Of the batch that is planned, or to be run again."""
    assert query.plan()
    start = query._committed()
    begin = start if start is not None else json.loads(json.dumps(query.reader.initialOffset()))
    return [task.value for task in query.reader.partitions(begin, json.loads(query.checkpoint.offsets[-1]))]


def write(cluster: MockCluster, query: Query, tasks: list[Group], number: int, micro_batch: int) -> None:
    """As that task of an exactly-once sink."""
    from pyspark.sql.datasource import InputPartition

    options = {"kafka.bootstrap.servers": cluster.bootstrap, "topic": "out", "exactlyonce": "transactional"}
    rows = [b.select(["key", "value"]) for b in pickle.loads(query.in_workers).read(InputPartition(tasks[number]))]
    write_once(parse_sink(options), rows, Task("gkafka-spark", "query", number, micro_batch))


def written(cluster: MockCluster) -> Counter[bytes]:
    return Counter(bytes(each.value or b"") for each in cluster.log("out", 0, committed=True))


def named(topic: str, offsets: range, partition: int = 0) -> set[bytes]:
    return {b"%s-%d-%d" % (topic.encode(), partition, offset) for offset in offsets}


# -- the first batch -----------------------------------------------------------------------------------------------------------
FROM = [
    {"startingOffsets": "earliest"},
    {"startingOffsets": '{"big":{"0":-2,"1":3}}'},
    {"startingTimestamp": "1010"},
    {"startingOffsetsByTimestamp": '{"big":{"0":1000,"1":1020}}'},
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tasks", PLANS)
@pytest.mark.parametrize("start", FROM, ids=lambda options: " ".join(options.values()))
def test_the_first_batch_has_its_tasks_again_where_its_first_records_are_gone(
    cluster: MockCluster, streaming: Streaming, kind: type[Query], tasks: str, start: dict[str, str]
) -> None:
    given = {"subscribe": "big", "tasks": tasks, "kind": kind, **start}
    first = streaming(**given)
    planned = tasks_of_batch(first)
    assert len(planned) == 2
    cluster.delete_records("big", 0, 50)
    assert tasks_of_batch(streaming(first.checkpoint, **given)) == planned


@pytest.mark.parametrize("tasks", PLANS)
@pytest.mark.parametrize("done", [0, 1])
def test_what_a_task_of_the_first_batch_wrote_is_not_written_by_another_once_records_are_gone(
    cluster: MockCluster, streaming: Streaming, tasks: str, done: int
) -> None:
    given = {"subscribe": "big", "tasks": tasks, "failOnDataLoss": "false"}
    first = streaming(**given)
    planned = tasks_of_batch(first)
    write(cluster, first, planned, done, 0)
    close_all()
    cluster.delete_records("big", planned[1 - done][0].partition, 20)  # the other one's, which was killed
    again = streaming(first.checkpoint, **given)
    tasks_now = tasks_of_batch(again)
    for number in range(len(tasks_now)):
        write(cluster, again, tasks_now, number, 0)
    left = named("big", range(100), 0) | named("big", range(90), 1)
    left -= named("big", range(20), planned[1 - done][0].partition)
    assert written(cluster) == Counter(left)


def test_records_that_are_gone_before_the_first_batch_runs_again_are_data_loss(cluster: MockCluster, streaming: Streaming) -> None:
    first = streaming(subscribe="big")
    assert first.plan()
    cluster.delete_records("big", 0, 20)
    with pytest.raises(DataLossError, match=r"Could not read records in offset \[0, 100\) for topic partition big-0"):
        streaming(first.checkpoint, subscribe="big").run()


def test_only_the_first_batch_and_new_partitions_have_their_starts_beside_the_end(cluster: MockCluster, streaming: Streaming) -> None:
    query = streaming(subscribe=None, subscribePattern="^(big|new)$", startingOffsets='{"big":{"0":7,"1":0}}')
    query.run()
    fill(cluster, "big", 10, first=100)
    query.run()
    cluster.create_topic("new", 1)
    fill(cluster, "new", 10)
    query.run()
    told = [starts_of(json.loads(end)) for end in query.checkpoint.offsets]
    assert told == [{("big", 0): 7, ("big", 1): 0}, {}, {("new", 0): 0}]


def test_a_first_batch_without_its_starts_is_asked_for_anew(cluster: MockCluster, streaming: Streaming) -> None:
    """As one that the JVM connector has planned."""
    first = streaming(subscribe="big")
    assert first.plan()
    told = json.loads(first.checkpoint.offsets[0])
    checkpoint = Checkpoint([json.dumps({name: found for name, found in told.items() if not name.startswith("gkafka:starts")})])
    cluster.delete_records("big", 0, 20)
    again = streaming(checkpoint, subscribe="big")
    again.run()
    assert set(again.values()) == named("big", range(20, 100)) | named("big", range(90), 1)


# -- later batches -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", KINDS)
def test_a_new_partition_begins_where_it_began_when_its_batch_is_run_again(
    cluster: MockCluster, streaming: Streaming, kind: type[Query]
) -> None:
    given = {"subscribe": None, "subscribePattern": "^(big|new)$", "tasks": "3", "failOnDataLoss": "false", "kind": kind}
    first = streaming(**given)
    first.run()
    cluster.create_topic("new", 3)
    for partition, count in enumerate((90, 80, 70)):
        fill(cluster, "new", count, partition=partition)
    second = streaming(first.checkpoint, **given)
    planned = tasks_of_batch(second)
    assert [task[0].partition for task in planned] == [0, 1, 2]
    cluster.delete_records("new", 0, 50)
    assert tasks_of_batch(streaming(second.checkpoint, **given)) == planned


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tasks", PLANS)
def test_a_topic_that_is_gone_leaves_the_tasks_of_the_others_their_numbers(
    cluster: MockCluster, streaming: Streaming, kind: type[Query], tasks: str
) -> None:
    given = {"subscribe": "a,b,c", "tasks": tasks, "failOnDataLoss": "false", "kind": kind}
    first = streaming(**given)
    first.run(1)
    for topic, count in (("a", 60), ("b", 50), ("c", 40)):
        fill(cluster, topic, count)
    second = streaming(first.checkpoint, **given)
    planned = tasks_of_batch(second)
    write(cluster, second, planned, len(planned) - 1, 1)
    close_all()
    cluster.delete_topic("a")
    again = streaming(second.checkpoint, **given)
    tasks_now = tasks_of_batch(again)
    assert tasks_now == [tuple(r for r in task if r.topic != "a") for task in planned]
    assert () in tasks_now
    for number in range(len(tasks_now)):
        write(cluster, again, tasks_now, number, 1)
    assert written(cluster) == Counter(named("b", range(50)) | named("c", range(40)))


# -- beside an end -------------------------------------------------------------------------------------------------------------
def test_where_a_batch_begins_stands_beside_its_end() -> None:
    told = to_spark({("t", 1): 5, ("t", 0): 7}, 3, {("t", 1): 2, ("t", 0): 0})
    assert json.dumps(told) == r'{"gkafka:tasks=3": {}, "gkafka:starts={\"t\":{\"0\":0,\"1\":2}}": {}, "t": {"0": 7, "1": 5}}'
    assert (from_spark(told), tasks_of(told), starts_of(told)) == ({("t", 0): 7, ("t", 1): 5}, 3, {("t", 1): 2, ("t", 0): 0})
    assert starts_of({"gkafka:tasks=3": {}, "t": {"0": 7}}) == {}


@pytest.mark.parametrize("text", ["", "x", "[]", '{"t":3}', '{"t":{"0":-1}}'])
def test_other_starts_in_a_checkpoint_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="checkpoint"):
        starts_of({f"gkafka:starts={text}": {}})


def test_a_number_that_a_newer_gkafka_divides_by_is_refused() -> None:
    with pytest.raises(
        ConfigurationError, match=r"'gkafka:tasks=2;by=time', which .* or is of a newer gkafka that divides a batch otherwise"
    ):
        tasks_of({"gkafka:tasks=2;by=time": {}, "t": {"0": 7}})


def test_the_groups_that_checkpoints_rely_on() -> None:
    """Whoever changes them has micro-batches run again in other tasks: grouped() says what that takes."""
    ranges = [OffsetRange("t", p, 0, size) for p, size in enumerate((2005, 1010, 495, *range(5, 17)))]
    groups, capped = ([[r.partition for r in group] for group in grouped(ranges, *how)] for how in ((3,), (2, 1000)))
    assert groups == [[0], [1, 3, 5, 7, 9, 11], [2, 4, 6, 8, 10, 12, 13, 14]]
    assert capped == [[0], [1], [2, 12, 13, 14], [6, 7, 8, 9, 10, 11], [3, 4, 5]]


# -- a partition that is cut ---------------------------------------------------------------------------------------------------
@given(
    st.lists(st.sampled_from([0, 1, 3, 10, 30, 50, 100]), max_size=5),
    st.none() | st.integers(1, 15),
    st.none() | st.integers(1, 120),
    st.integers(1, 9),
)
@example([30, 50], 4, None, 1)
def test_no_task_has_two_pieces_of_a_partition(sizes: list[int], least: int | None, most: int | None, count: int) -> None:
    """One that met an error would come behind the next."""
    numbers = {"minpartitions": least, "maxrecordsperpartition": most}
    given = {name: str(number) for name, number in numbers.items() if number is not None}
    options = parse({"kafka.bootstrap.servers": "h:1", "subscribe": "t", **given})
    tasks = divided(options, [OffsetRange("t", p, 0, size) for p, size in enumerate(sizes)], count)
    for task in tasks:
        assert len({r.partition for r in task}) == len(task) > 0
