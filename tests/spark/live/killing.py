"""format("gkafka-killed"): gkafka's source and sink, in which one process ends by SIGKILL at a given place. The option `kill` says where: a Strike.

As a program it is a driver with three streams, or two where PLAIN is "", to be killed itself: `python -m tests.spark.live.killing HOSTS TOPIC PLAIN ONCE FOLDER`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition, WriterCommitMessage
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from gkafka.nativeproducer import NativeProducer
from gkafka.spark import planner, sinktask
from gkafka.spark.sink import GKafkaStreamWriter
from gkafka.spark.source import GKafkaDataSource
from gkafka.spark.streamreader import GKafkaStreamReader
from gkafka.spark.update import STATELESS_AQE

READING = ("latestOffset", "partitions", "partitions done", "reader")
WRITING = ("writer", "before the end", "during the end", "after the end", "commit")
"""The end: EndTxn and its answer, or, without a transaction, the flush."""
BEHIND = "task 0, behind the end of another"
LITTLE = 10  # offsets that are worth a task, so that a few records are several tasks
SENT_S = 0.2  # what a writer was given has left it by then


class Strike(NamedTuple):
    """The process that comes to `point` as the n-th, counted from 1 over all processes, ends; nobody else does. folder: a new one for each."""

    point: str
    n: int
    delay_ms: int
    folder: str

    @property
    def fallen(self) -> Path:
        """Is there when a process has been killed."""
        return Path(self.folder, "fallen")

    def at(self, point: str) -> None:
        if self._is_now(point):
            os.kill(os.getpid(), signal.SIGKILL)

    @contextlib.contextmanager
    def around(self, task: int) -> Iterator[None]:
        """The end of what a task writes: the kill comes before, a few milliseconds after its beginning, or behind it."""
        self.at("before the end")
        ended = Path(self.folder, "ended")
        if self.point == BEHIND and task == 0:
            while not ended.exists():
                time.sleep(0.01)
            self.at(BEHIND)
        soon = threading.Thread(target=self._soon) if self._is_now("during the end") else None
        if soon is not None:
            soon.start()
        yield
        if self.point == BEHIND:
            ended.touch()
        if soon is not None:
            soon.join()
        self.at("after the end")

    def _is_now(self, point: str) -> bool:
        if point != self.point:
            return False
        with Path(self.folder, "passed").open("ab") as file:
            file.write(b".")
            file.flush()
            if os.fstat(file.fileno()).st_size < self.n:
                return False
        with contextlib.suppress(FileExistsError):
            self.fallen.touch(exist_ok=False)
            return True
        return False

    def _soon(self) -> None:
        time.sleep(self.delay_ms / 1000)
        os.kill(os.getpid(), signal.SIGKILL)


NEVER = Strike("", 0, 0, "")


class KilledDataSource(GKafkaDataSource):
    def __init__(self, options: dict[str, str]) -> None:
        given = dict(options)
        words = given.pop("kill", "").split("|")
        self._strike = Strike(words[0], int(words[1]), int(words[2]), words[3]) if len(words) == 4 else NEVER
        super().__init__(given)

    @classmethod
    def name(cls) -> str:
        return "gkafka-killed"

    def streamReader(self, schema: StructType) -> GKafkaStreamReader:
        return KilledReader(self.options, schema, self._strike)

    def streamWriter(self, schema: StructType, overwrite: bool) -> GKafkaStreamWriter:
        return KilledWriter(self.options, schema, overwrite, self._strike)


class KilledReader(GKafkaStreamReader):
    def __init__(self, options: Mapping[str, str], schema: StructType, strike: Strike) -> None:
        super().__init__(options, schema)
        self._strike = strike
        planner.LITTLE = LITTLE  # in the process that plans, which nobody else uses

    def latestOffset(self, *given: Any) -> dict[str, dict[str, int]]:
        found = super().latestOffset(*given)
        self._strike.at("latestOffset")
        return found

    def partitions(self, start: dict[str, dict[str, int]], end: dict[str, dict[str, int]]) -> list[InputPartition]:
        self._strike.at("partitions")
        found = super().partitions(start, end)
        self._strike.at("partitions done")
        return found

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        yield from halved(super().read(partition), self._strike, "reader")


class KilledWriter(GKafkaStreamWriter):
    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool, strike: Strike) -> None:
        super().__init__(options, schema, overwrite)
        self._strike = strike

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        batches = halved(iterator, self._strike, "writer")
        transactional = self._options.get("exactlyonce") == "transactional"
        place, name = (NativeProducer, "commit_transaction") if transactional else (sinktask, "settle")
        real, number = getattr(place, name), TaskContext.get().partitionId()

        def end(*given: Any) -> None:
            with self._strike.around(number):
                real(*given)

        with patch.object(place, name, end):
            return super().write(batches)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        self._strike.at("commit")
        super().commit(messages, batchId)


def halved(batches: Iterator[pa.RecordBatch], strike: Strike, point: str) -> Iterator[pa.RecordBatch]:
    """Each batch in two; whoever is to be killed is killed between them."""
    for batch in batches:
        half = batch.num_rows // 2
        if half:
            yield batch.slice(0, half)
            if strike.point == point:
                time.sleep(SENT_S)
            strike.at(point)
        yield batch.slice(half)


# -- streams that copy a topic ----------------------------------------------------------------------------------------------
def from_topic(spark: SparkSession, hosts: str, topic: str, **options: str) -> DataFrame:
    reader = spark.readStream.format("gkafka-killed").option("kafka.bootstrap.servers", hosts).option("subscribe", topic)
    return reader.option("startingOffsets", "earliest").options(**options).load()


def to_parquet(frame: DataFrame, folder: Path, *, trigger: Mapping[str, Any]) -> StreamingQuery:
    """Spark's own sink, which is exact: what it holds, the source has read."""
    writer = frame.select("topic", "partition", "offset").writeStream.format("parquet").option("path", str(folder / "rows"))
    return writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(**trigger).start()


def to_topic(
    frame: DataFrame, folder: Path, hosts: str, topic: str, exactly_once: str, *, kill: str = "", trigger: Mapping[str, Any]
) -> StreamingQuery:
    """Each record tells where it was read from, as b"partition:offset"."""
    rows = frame.selectExpr("concat_ws(':', partition, offset) as value", "partition")
    writer = rows.writeStream.format("gkafka-killed").option("kafka.bootstrap.servers", hosts).option("topic", topic)
    writer = writer.option("exactlyOnce", exactly_once).option("kill", kill).option("checkpointLocation", str(folder / "checkpoint"))
    return writer.trigger(**trigger).start()


def begun(query: StreamingQuery) -> None:
    """Wait until it has a batch: each query starts Python processes, and Spark gives each only 10 s to come up."""
    while query.lastProgress is None and not query.awaitTermination(0.05):
        pass


def main() -> None:
    hosts, topic, plain, once, folder = sys.argv[1:]
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1")
    builder = (
        builder.config("spark.log.level", "OFF")
        .config("spark.ui.showConsoleProgress", "false")
        .config(STATELESS_AQE, "false")
        .config("spark.sql.shuffle.partitions", "2")
    )
    spark = builder.getOrCreate()
    spark.dataSource.register(KilledDataSource)
    trigger = {"processingTime": "300 milliseconds"}
    frame = from_topic(spark, hosts, topic, maxOffsetsPerTrigger="40", tasks="2")
    begun(to_topic(frame, Path(folder, "transactional"), hosts, once, "transactional", trigger=trigger))
    if plain:
        begun(to_topic(frame, Path(folder, "none"), hosts, plain, "none", trigger=trigger))
    begun(to_parquet(frame, Path(folder, "parquet"), trigger=trigger))
    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main()
