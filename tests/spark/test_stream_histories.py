"""Any history of a query (records, partitions, batches, crashes, restarts, other Sparks, caps, numbers of tasks) reads every record once, and a batch that is run again
is the same, task by task."""

from __future__ import annotations

from typing import Any
from unittest import mock

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gkafka.spark.connections import close_all
from gkafka.spark.planner import Group
from gkafka.testing import MockCluster
from tests.records.handmade import values
from tests.spark.streaming import Checkpoint, OldQuery, Query

Place = tuple[int, int]
PARTITIONS = 3
TASKS = ("2", "partitions", "1", "3", "2")
STARTS = {
    "earliest": {"startingoffsets": "earliest"},
    "latest": {"startingoffsets": "latest"},
    "no record is as new": {"startingtimestamp": str(1 << 50), "startingoffsetsbytimestampstrategy": "latest"},
}

events = st.one_of(
    st.tuples(st.just("produce"), st.integers(0, PARTITIONS - 1), st.integers(1, 5)),
    st.tuples(st.just("produce everywhere"), st.just(0), st.integers(1, 5)),
    st.tuples(st.just("batch"), st.just(0), st.just(0)),
    st.tuples(st.just("crash after the plan"), st.integers(0, 1), st.integers(0, 4)),
    st.tuples(st.just("crash after the tasks"), st.integers(0, 1), st.integers(0, 4)),
    st.tuples(st.just("add a partition"), st.just(0), st.just(0)),
    st.tuples(st.just("restart"), st.integers(0, 1), st.integers(0, 4)),
)


class History:
    """A query, its cluster, and what each of its batches held."""

    def __init__(self, cluster: MockCluster, start: str, partitions: int) -> None:
        self.cluster, self.start, self.checkpoint = cluster, start, Checkpoint()
        self.partitions, self.ends = partitions, dict.fromkeys(range(PARTITIONS), 0)
        self.batches: dict[int, list[Place]] = {}
        self.tasks: dict[int, list[Group]] = {}
        self.first: dict[int, int] | None = None
        self.restart(0, 0)

    def restart(self, old: int, cap: int, tasks: int = 0, *, available_now: bool = False) -> None:
        options = {
            "tasks": TASKS[tasks],
            "subscribe": "t",
            "kafka.bootstrap.servers": self.cluster.bootstrap,
            "offsetcachems": "0",
            **STARTS[self.start],
        }
        if cap:
            options["maxoffsetspertrigger"] = str(cap)
        self.query = (OldQuery if old else Query)(options, self.checkpoint, available_now=available_now)
        reader, initial, partitions = self.query.reader, self.query.reader.initialOffset, self.query.reader.partitions

        def initial_offset() -> Any:
            """On a busy topic a record comes before the next call."""
            found = initial()
            if not available_now:
                self.produce(0, 1)
            return found

        def noted(start: Any, end: Any) -> Any:
            found = partitions(start, end)
            self.divided: list[Group] = [task.value for task in found]
            return found

        reader.initialOffset = initial_offset  # type: ignore[method-assign]
        reader.partitions = noted  # type: ignore[method-assign]

    def produce(self, partition: int, count: int) -> None:
        if partition < self.partitions:
            self.cluster.append("t", partition, values(count, base_offset=self.ends[partition]))
            self.ends[partition] += count

    def plan(self) -> bool:
        if self.first is None:  # where the query begins is settled now
            self.first = {p: self.ends[p] if self.start != "earliest" and p < self.partitions else 0 for p in range(PARTITIONS)}
        return self.query.plan()

    def batch(self, *, is_committed: bool = True) -> None:
        if not self.plan():
            return
        number = self.checkpoint.commits
        self.query.finish()
        found = sorted((row["partition"], row["offset"]) for row in self.query.rows[-1])
        assert self.batches.setdefault(number, found) == found, "a batch that is run again has other records"
        assert self.tasks.setdefault(number, self.divided) == self.divided, "a batch that is run again has other tasks"
        self.checkpoint.commits = number + is_committed

    def happen(self, event: str, a: int, b: int) -> None:
        if event == "produce":
            self.produce(a, b)
        elif event == "produce everywhere":
            for partition in range(self.partitions):
                self.produce(partition, b)
        elif event == "batch":
            self.batch()
        elif event == "crash after the plan":
            self.plan()
            self.restart(a, 0, b)
        elif event == "crash after the tasks":
            self.batch(is_committed=False)
            self.restart(a, 0, b)
        elif event == "add a partition" and self.partitions < PARTITIONS:
            self.partitions += 1
            self.cluster.add_partitions("t", self.partitions)
        elif event == "restart":
            self.restart(a, b, b)

    def read_to_the_end(self) -> list[Place]:
        self.restart(0, 3, 2, available_now=True)
        for _ in range(200):
            before = len(self.checkpoint.offsets), self.checkpoint.commits
            self.batch()
            if (len(self.checkpoint.offsets), self.checkpoint.commits) == before:
                return sorted(place for number in self.batches for place in self.batches[number])
        raise AssertionError("AvailableNow does not end")


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(start=st.sampled_from(list(STARTS)), partitions=st.integers(1, PARTITIONS), events=st.lists(events, max_size=14))
@example(start="earliest", partitions=2, events=[("produce everywhere", 0, 5), ("crash after the tasks", 0, 1)])
def test_every_record_is_read_once_whatever_happens(start: str, partitions: int, events: list[tuple[str, int, int]]) -> None:
    patches = mock.patch("gkafka.spark.streamdriver.PARTITIONS_S", 0.0), mock.patch("gkafka.spark.planner.LITTLE", 2)
    with MockCluster(topics={"t": partitions}, auto_create=False) as cluster, patches[0], patches[1]:
        try:
            history = History(cluster, start, partitions)
            for event in events:
                history.happen(*event)
            found: list[Any] = history.read_to_the_end()
            first = history.first or {}
            assert found == [(p, offset) for p in range(PARTITIONS) for offset in range(first[p], history.ends[p])]
        finally:
            close_all()
