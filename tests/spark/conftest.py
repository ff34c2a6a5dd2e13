"""Fixtures of the Spark source's tests: brokers in this process, and no client left behind."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from gkafka.spark.connections import close_all
from gkafka.spark.source import GKafkaDataSource, GKafkaReader
from gkafka.testing import MockCluster


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    with MockCluster(topics={"t": 1, "pair": 2}, auto_create=False) as running:
        yield running


@pytest.fixture
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown topic is given up after less than the 5 s that a real cluster may need to tell all its brokers: for tests that want that error."""
    monkeypatch.setattr("gkafka.cluster.UNKNOWN_TOPIC_PATIENCE_S", 0.5)


@pytest.fixture(autouse=True)
def _short_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two questions for metadata, as they are spared a real cluster."""
    monkeypatch.setattr("gkafka.core.metadata.STORM_S", 0.01)


@pytest.fixture(autouse=True)
def _no_clients_left() -> Iterator[None]:
    yield
    close_all()


@dataclasses.dataclass
class Read:
    """One batch read, as the runner does it: the source, its reader, the tasks, their batches."""

    options: dict[str, str]
    schema: StructType | None = None

    @property
    def source(self) -> GKafkaDataSource:
        return GKafkaDataSource(options=self.options)

    @property
    def reader(self) -> GKafkaReader:
        source = self.source
        return source.reader(schema=self.schema if self.schema is not None else source.schema())

    def tasks(self) -> list[InputPartition]:
        return self.reader.partitions()

    def batches(self) -> list[pa.RecordBatch]:
        reader = self.reader
        return [batch for task in reader.partitions() for batch in reader.read(partition=task)]

    def rows(self) -> list[dict[str, Any]]:
        return [row for batch in self.batches() for row in batch.to_pylist()]

    def column(self, name: str) -> list[Any]:
        return [row[name] for row in self.rows()]


@pytest.fixture
def reading(cluster: MockCluster) -> Callable[..., Read]:
    """A read of topic "t" with more options; a name's "__" stands for a dot. Keys are lower case, as Spark gives them."""

    def make(schema: StructType | None = None, **more: str | None) -> Read:
        given = {"subscribe": "t", "kafka.bootstrap.servers": cluster.bootstrap, **{k.replace("__", "."): v for k, v in more.items()}}
        return Read({name.lower(): value for name, value in given.items() if value is not None}, schema)

    return make
