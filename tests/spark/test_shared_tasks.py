"""Tasks that read several partitions: every row once, in order, whatever one of the partitions meets; and the plan of a stream's batch, kept with its end."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

from gkafka.exceptions import (
    ConfigurationError,
    CorruptRecordError,
    KafkaException,
    KafkaTimeoutError,
    TopicAuthorizationFailed,
    UnknownTopicError,
)
from gkafka.spark.connections import close_all
from gkafka.spark.offsets import DataLossError, from_spark, tasks_of, to_spark
from gkafka.spark.options import DEFAULT_TASKS
from gkafka.spark.session import register
from gkafka.spark.source import GKafkaDataSource
from gkafka.testing import Close, Edit, Error, MockCluster
from tests.records.handmade import GZIP, TRANSACTIONAL, batch, marker, record, values
from tests.spark.conftest import Read
from tests.spark.streaming import Checkpoint, OldQuery, Query
from tests.spark.test_source_calls import damaged
from tests.spark.test_stream_calls import Streaming, streaming

__all__ = ["streaming"]

Reading = Callable[..., Read]
PARTITIONS = 20
SMALL = {"kafka__max__partition__fetch__bytes": "200"}
"""A batch an answer, of each partition."""


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    """Three brokers, and a topic of many partitions with 30 records each."""
    with MockCluster(brokers=3, topics={"t": 1, "many": PARTITIONS}, auto_create=False) as running:
        for partition in range(PARTITIONS):
            for first in range(0, 30, 10):
                running.append("many", partition, values(10, base_offset=first))
        yield running


def places(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(row["partition"], row["offset"]) for row in rows]


def check_all(rows: list[dict[str, Any]], *, but: int = -1) -> None:
    """Every row once, those of a partition in order."""
    wanted = {(p, o) for p in range(PARTITIONS) for o in range(30) if p != but}
    found = [place for place in places(rows) if place[0] != but]
    assert Counter(found) == Counter(wanted)
    last: dict[int, int] = {}
    for partition, offset in found:
        assert offset > last.get(partition, -1)
        last[partition] = offset


# -- which tasks -----------------------------------------------------------------------------------------------------------
def test_little_is_read_by_one_task_and_by_one_for_each_partition_where_that_is_asked(reading: Reading) -> None:
    (task,) = reading(subscribe="many").tasks()
    assert len(task.value) == PARTITIONS
    assert [len(task.value) for task in reading(subscribe="many", tasks="Partitions").tasks()] == [1] * PARTITIONS


def test_as_many_tasks_as_the_option_says_where_there_is_enough(reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gkafka.spark.planner.LITTLE", 10)
    assert len(reading(subscribe="many", tasks="3").tasks()) == 3
    assert len(reading(subscribe="many").tasks()) == DEFAULT_TASKS
    assert len(reading(subscribe="many", minPartitions="12").tasks()) >= 12
    assert all(sum(each.size for each in task.value) <= 70 for task in reading(subscribe="many", maxRecordsPerPartition="70").tasks())


@pytest.mark.parametrize("given", ["0", "-1", "some", "1.5", ""])
def test_another_number_of_tasks_is_refused(reading: Reading, given: str) -> None:
    with pytest.raises(ConfigurationError, match=r"tasks.*'partitions' for one task for each partition"):
        reading(tasks=given).tasks()


class Session:
    """As much of a SparkSession as register() needs."""

    class sparkContext:
        defaultParallelism = 5
        getConf = dict[str, str]  # none but Spark's own

    def __init__(self) -> None:
        self.registered: list[type[GKafkaDataSource]] = []
        self.dataSource = self

    def register(self, source: type[GKafkaDataSource]) -> None:
        self.registered.append(source)


class Connect(Session):
    """One whose client has no SparkContext."""

    @property
    def sparkContext(self) -> Any:  # type: ignore[override]
        raise AttributeError("JVM_ATTRIBUTE_NOT_SUPPORTED")


class Growing(Session):
    """One that asks for executors as there is work. There are none yet: Spark says 2."""

    class sparkContext:
        defaultParallelism = 2

        @staticmethod
        def getConf() -> dict[str, str]:
            return {"spark.dynamicAllocation.enabled": "true"}


@pytest.mark.parametrize(("kind", "tasks"), [(Session, 5), (Connect, DEFAULT_TASKS), (Growing, DEFAULT_TASKS)])
def test_register_notes_what_the_session_does_at_a_time(
    cluster: MockCluster, monkeypatch: pytest.MonkeyPatch, kind: type[Session], tasks: int
) -> None:
    from pyspark.serializers import CloudPickleSerializer

    monkeypatch.setattr("gkafka.spark.planner.LITTLE", 10)
    session = kind()
    register(session)  # type: ignore[arg-type]
    wire = CloudPickleSerializer()
    source = wire.loads(wire.dumps(session.registered[0]))(options={"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": "many"})
    assert source.name() == "gkafka"
    assert len(source.reader(schema=source.schema()).partitions()) == tasks


# -- what they read ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "options",
    [{}, {"batchRows": "7"}, SMALL, {"batchRows": "7", **SMALL}, {"kafka__isolation__level": "read_committed"}],
    ids=lambda options: " ".join(options) or "none",
)
def test_a_task_reads_all_of_its_partitions(reading: Reading, options: dict[str, str]) -> None:
    check_all(reading(subscribe="many", **options).rows())


def test_partitions_share_requests_and_arrow_batches(cluster: MockCluster, reading: Reading) -> None:
    (batch,) = reading(subscribe="many").batches()
    assert batch.num_rows == PARTITIONS * 30
    assert cluster.count("Fetch") <= 3 * 2, "one for each broker, and its successor"


def test_an_answer_holds_no_more_than_is_asked_for(cluster: MockCluster, reading: Reading) -> None:
    check_all(reading(subscribe="many", kafka__fetch__max__bytes="1000").rows())
    assert {request.message.max_bytes for request in cluster.requests("Fetch")} == {1000}


@pytest.mark.parametrize(("batch_bytes", "partitions_in_a_batch"), [(100_000, 1), (600_000, 3), (10_000_000, PARTITIONS)])
def test_a_batch_ends_at_its_bytes_though_its_rows_are_few_and_were_compressed(
    cluster: MockCluster, reading: Reading, batch_bytes: int, partitions_in_a_batch: int
) -> None:
    for partition in range(PARTITIONS):
        cluster.append("many", partition, batch([record(i, bytes(10_000)) for i in range(20)], attributes=GZIP, base_offset=30))
    batches = reading(subscribe="many", batchBytes=str(batch_bytes)).batches()
    found = [len(set(each["partition"].to_pylist())) for each in batches]
    assert found[:-1] == [partitions_in_a_batch] * ((PARTITIONS - 1) // partitions_in_a_batch)
    assert sum(each.num_rows for each in batches) == PARTITIONS * (30 + 20)


@pytest.mark.parametrize("fault", [None, Error(6)], ids=["no fault", "code 6"])
def test_parts_of_one_partition_may_meet_in_a_task(
    cluster: MockCluster, reading: Reading, monkeypatch: pytest.MonkeyPatch, fault: Any
) -> None:
    monkeypatch.setattr(
        "gkafka.spark.driver.grouped", lambda ranges, *_: [tuple(r._replace(start=a, end=a + 15) for r in ranges for a in (0, 15))]
    )
    (task,) = reading(subscribe="many").tasks()
    assert len(task.value) == 2 * PARTITIONS
    if fault is not None:
        cluster.on("Fetch", fault)
    check_all(reading(subscribe="many").rows())


def test_gaps_and_aborted_records_are_no_rows(cluster: MockCluster, reading: Reading) -> None:
    cluster.create_topic("odd", 3)
    cluster.append("odd", 0, values(3) + values(2, base_offset=50))
    own = {"attributes": TRANSACTIONAL, "producer_epoch": 0}
    cluster.append("odd", 1, values(2, producer_id=7, **own) + marker(0, 2, producer_id=7, producer_epoch=0) + values(1, base_offset=3))
    cluster.set_transactions("odd", 1, aborted=[(7, 0)])
    cluster.append("odd", 2, batch([record(0, b"a")], last_delta=9))
    read = reading(subscribe="odd", kafka__isolation__level="read_committed")
    assert sorted(places(read.rows())) == [(0, 0), (0, 1), (0, 2), (0, 50), (0, 51), (1, 3), (2, 0)]
    assert len(read.tasks()) == 1


@pytest.mark.parametrize(
    "fault", [Error(6), Error(1), Close(before=True), Close(before=False)], ids=["code 6", "code 1", "cut before", "cut after"]
)
def test_a_partition_that_meets_an_error_is_read_all_the_same(cluster: MockCluster, reading: Reading, fault: Any) -> None:
    cluster.on("Fetch", fault, times=2)
    check_all(reading(subscribe="many").rows())


def test_a_leader_that_moves_meanwhile(cluster: MockCluster, reading: Reading) -> None:
    reader = reading(subscribe="many", kafka__max__partition__fetch__bytes="200").reader
    (task,) = reader.partitions()
    found = reader.read(partition=task)
    first = next(found).to_pylist()
    for partition in range(PARTITIONS):
        cluster.move_leader("many", partition, 1 + (cluster.leader("many", partition) % 3))
    check_all([*first, *(row for batch in found for row in batch.to_pylist())])


# -- what one partition of a task meets ----------------------------------------------------------------------------------------
def planned(reading: Reading, **options: str) -> tuple[Any, Any]:
    reader = reading(subscribe="many", **options).reader
    (task,) = reader.partitions()
    return reader, task


def rows_of(reader: Any, task: Any) -> list[dict[str, Any]]:
    return [row for batch in reader.read(partition=task) for row in batch.to_pylist()]


def take(batches: Iterator[Any], rows: list[dict[str, Any]]) -> None:
    """Adds their rows, also those before an error."""
    for each in batches:
        rows += each.to_pylist()


def test_records_that_are_gone_name_their_partition(cluster: MockCluster, reading: Reading) -> None:
    reader, task = planned(reading)
    cluster.delete_records("many", 7, 20)
    with pytest.raises(DataLossError, match=r"Could not read records in offset \[0, 30\) for topic partition many-7"):
        rows_of(reader, task)
    reader, task = planned(reading, failOnDataLoss="false")
    found = rows_of(reader, task)
    check_all(found, but=7)
    assert [place for place in places(found) if place[0] == 7] == [(7, o) for o in range(20, 30)]


def test_a_partition_that_shrank_names_itself(cluster: MockCluster, reading: Reading) -> None:
    reader, task = planned(reading, kafkaConsumer__pollTimeoutMs="2000")
    task.value = tuple(r._replace(end=40) if r.partition == 4 else r for r in task.value)
    with pytest.raises(DataLossError, match="many-4"):
        rows_of(reader, task)


def _without_a_leader(request: Any, answer: Any) -> Any:
    for topic in answer.topics:
        for partition in topic.partitions:
            if (topic.name, partition.partition_index) == ("many", 3):
                partition.leader_id = -1
    return answer


def test_a_partition_without_a_leader_names_itself(cluster: MockCluster, reading: Reading) -> None:
    _, task = planned(reading)
    reader = reading(subscribe="many", kafkaConsumer__pollTimeoutMs="1500", kafka__default__api__timeout__ms="1500").reader
    close_all()  # tasks run in other processes than the driver
    cluster.on("Metadata", Edit(_without_a_leader), times=None)
    with pytest.raises(KafkaTimeoutError, match="many-3"):
        rows_of(reader, task)


def test_damage_names_its_place(cluster: MockCluster, reading: Reading) -> None:
    damaged(cluster)
    with pytest.raises(CorruptRecordError) as error:
        reading(subscribe="t,many").rows()
    assert (error.value.topic, error.value.partition, error.value.offset) == ("t", 0, 2)


@pytest.mark.usefixtures("short_patience")
def test_a_topic_that_was_deleted_names_itself(cluster: MockCluster, reading: Reading) -> None:
    cluster.append("t", 0, values(3))
    reader = reading(subscribe="t,many", kafkaConsumer__pollTimeoutMs="2000").reader
    (task,) = reader.partitions()
    cluster.delete_topic("t")
    with pytest.raises((UnknownTopicError, DataLossError), match=r"topic 't' does not exist|\bt-0\b"):
        rows_of(reader, task)


# -- what happens to a partition between the plan and the read -------------------------------------------------------------------
def _truncate(cluster: MockCluster, _: Any) -> None:
    cluster.truncate("t", 0, 10)


def _grow(cluster: MockCluster) -> None:
    for first in (10, 20):
        cluster.append("t", 0, values(10, base_offset=first))


def _delete(cluster: MockCluster, _: Any) -> None:
    cluster.delete_topic("t")


def _make_again(cluster: MockCluster, _: Any) -> None:
    cluster.delete_topic("t")
    cluster.create_topic("t", 1)
    cluster.append("t", 0, batch([record(i, b"new") for i in range(30)]))


def _take_the_leader(cluster: MockCluster, _: Any) -> None:
    def edit(_: Any, answer: Any) -> Any:
        for topic in answer.topics:
            if topic.name == "t":
                topic.partitions[0].leader_id = -1
        return answer

    cluster.on("Metadata", Edit(edit), times=None)


def _deny_reading(cluster: MockCluster, topic_id: UUID) -> None:
    def edit(_: Any, answer: Any) -> Any:
        for topic in answer.responses:
            if topic.topic_id == topic_id:
                data = topic.partitions[0]
                data.error_code, data.high_watermark, data.records = 29, -1, None
        return answer

    cluster.on("Fetch", Edit(edit), times=None)


def _deny_describing(cluster: MockCluster, _: Any) -> None:
    def edit(_: Any, answer: Any) -> Any:
        for topic in answer.topics:
            if topic.name == "t":
                topic.error_code, topic.partitions = 29, []
        return answer

    cluster.on("Metadata", Edit(edit), times=None)


@pytest.mark.usefixtures("short_patience")
@pytest.mark.parametrize(
    ("happens", "heals", "patience", "error"),
    [
        pytest.param(_delete, None, {}, DataLossError, id="deleted"),
        pytest.param(_make_again, None, {}, DataLossError, id="made again"),
        pytest.param(
            _take_the_leader,
            MockCluster.clear_script,
            {"kafka__default__api__timeout__ms": "5000"},
            KafkaTimeoutError,
            id="without a leader",
        ),
        pytest.param(_deny_reading, MockCluster.clear_script, {}, TopicAuthorizationFailed, id="not to be read"),
        pytest.param(_deny_describing, MockCluster.clear_script, {}, TopicAuthorizationFailed, id="not to be described"),
        pytest.param(_truncate, _grow, {}, DataLossError, id="shrunk"),
    ],
)
def test_a_partition_that_cannot_be_read_names_itself_and_no_attempt_hands_out_a_row_of_the_others_twice(
    cluster: MockCluster,
    reading: Reading,
    happens: Callable[[MockCluster, UUID], None],
    heals: Callable[[MockCluster], None] | None,
    patience: dict[str, str],
    error: type[KafkaException],
) -> None:
    for first in range(0, 30, 10):
        cluster.append("t", 0, values(10, base_offset=first))
    (task,) = reading(subscribe="t,many").tasks()
    close_all()  # tasks run in other processes than the driver
    happens(cluster, task.topic_ids["t"])
    rows: list[dict[str, Any]] = []
    with pytest.raises(error, match=r"\bt-0\b"):
        take(reading(subscribe="t,many", kafkaConsumer__pollTimeoutMs="5000", **patience, **SMALL).reader.read(partition=task), rows)
    assert max(Counter((row["topic"], row["partition"], row["offset"]) for row in rows).values(), default=0) <= 1
    assert all(row["value"] != b"new" for row in rows)
    if heals is not None:
        heals(cluster)
    rows = rows_of(reading(subscribe="t,many", failOnDataLoss="true" if heals is not None else "false", **SMALL).reader, task)
    check_all([row for row in rows if row["topic"] == "many"])
    assert [row["offset"] for row in rows if row["topic"] == "t"] == ([] if heals is None else list(range(30)))


# -- the plan of a micro-batch -------------------------------------------------------------------------------------------------
def test_how_a_batch_is_divided_stands_beside_its_end() -> None:
    told = to_spark({("t", 1): 5, ("t", 0): 7}, 3)
    assert json.dumps(told) == '{"gkafka:tasks=3": {}, "t": {"0": 7, "1": 5}}'
    assert (from_spark(told), tasks_of(told)) == ({("t", 0): 7, ("t", 1): 5}, 3)
    assert tasks_of({"t": {"0": 7}}) is None, "a checkpoint of the JVM connector, or of a plan by partitions"


@pytest.mark.parametrize("name", ["gkafka:tasks=", "gkafka:tasks=0", "gkafka:tasks=-1", "gkafka:tasks=x", "gkafka:tasks=99999999999"])
def test_another_number_in_a_checkpoint_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"the checkpoint says 'gkafka:tasks=.*begin with a new checkpointLocation"):
        tasks_of({name: {}, "t": {"0": 7}})


@pytest.mark.parametrize("kind", [Query, OldQuery])
def test_a_batch_that_runs_again_is_divided_as_it_was(streaming: Streaming, monkeypatch: pytest.MonkeyPatch, kind: type[Query]) -> None:
    monkeypatch.setattr("gkafka.spark.planner.LITTLE", 10)
    checkpoint = Checkpoint()
    first = streaming(checkpoint, kind=kind, subscribe="many", tasks="4")
    assert first.plan()
    end = json.loads(checkpoint.offsets[-1])
    assert tasks_of(end) == 4
    begin = json.loads(json.dumps(first.reader.initialOffset()))
    tasks = [task.value for task in first.reader.partitions(begin, end)]
    assert len(tasks) == 4
    for other in ("2", "9", "partitions"):
        again = streaming(checkpoint, kind=kind, subscribe="many", tasks=other)
        assert again.plan()
        assert [task.value for task in again.reader.partitions(json.loads(json.dumps(again.reader.initialOffset())), end)] == tasks


@pytest.mark.parametrize("kind", [Query, OldQuery])
def test_a_checkpoint_of_the_plan_by_partitions_goes_on_by_it_and_then_by_its_own(
    cluster: MockCluster, streaming: Streaming, kind: type[Query]
) -> None:
    checkpoint = Checkpoint()
    old = streaming(checkpoint, kind=kind, subscribe="many", tasks="partitions")
    assert old.plan()
    assert tasks_of(json.loads(checkpoint.offsets[-1])) is None
    new = streaming(checkpoint, kind=kind, subscribe="many", tasks="2")
    new.run()
    check_all([row for rows in new.rows for row in rows])
    for partition in range(PARTITIONS):
        cluster.append("many", partition, values(10, base_offset=30))
    (rows,) = new.run()
    assert len(rows) == PARTITIONS * 10
    assert tasks_of(json.loads(checkpoint.offsets[-1])) == 1
    assert new.run() == [], "nothing new is no batch"


def test_what_was_read_leaves_nothing_new(streaming: Streaming) -> None:
    query = streaming(subscribe="many", tasks="3")
    query.run()
    check_all([row for rows in query.rows for row in rows])
    again = streaming(query.checkpoint, subscribe="many", tasks="7")
    assert again.run() == []
