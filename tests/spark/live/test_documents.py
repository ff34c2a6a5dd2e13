"""The examples of docs/spark.md and docs/spark-writing.md run as they stand, but for their addresses, paths and topics."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import gkafka.spark
from gkafka import KafkaClient
from gkafka.spark.update import STATELESS_AQE
from gkafka.testing import MockCluster
from tests.live.kafka import KafkaCluster
from tests.spark.live.conftest import ROOT
from tests.spark.live.test_oracle import NewTopic, write

pytestmark = pytest.mark.timeout(300)

Run = Callable[..., dict[str, Any]]
Frame = Callable[..., DataFrame]


@pytest.fixture
def run(spark: SparkSession, kafka: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the examples of a page with these names, and its topics as given; waits until each stream that it started has read all. Returns the names."""
    monkeypatch.setenv("PYSPARK_PYTHON", os.environ["PYSPARK_PYTHON"])  # an example sets it

    def examples(page: str, topics: dict[str, str], **names: Any) -> dict[str, Any]:
        names.update(spark=spark, gkafka=gkafka)
        for number, source in enumerate(
            re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs" / page).read_text(), re.MULTILINE | re.DOTALL)
        ):
            source = re.sub(r"h1:9092(,h2:9092)?", kafka.hosts, source)
            source = re.sub(r'"/(data|checkpoints)/', f'"{tmp_path}/{number}-\\1/', source)
            for old, new in topics.items():
                source = re.sub(rf'((?:subscribe|topic)"?(?:, |=))"{old}"', rf'\1"{new}"', source)
            exec(source, names)
            query = names.pop("query", None)
            if query is not None:
                query.processAllAvailable()
                query.stop()
        return names

    return examples


def test_the_page_of_reading(kafka: KafkaCluster, topic: NewTopic, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = topic()
    write(kafka, name, count=40)
    names = run("spark.md", {"orders": name})
    names["spark"].conf.unset("spark.sql.python.filterPushdown.enabled")
    assert names["orders"].count() == 40
    assert names["spark"].read.parquet(f"{tmp_path}/0-data/orders").count() == 40
    assert re.search(rf"{name} *\| *40", capsys.readouterr().out)  # of the example in SQL


def test_the_page_of_writing(spark: SparkSession, kafka: KafkaCluster, topic: NewTopic, run: Run, frame: Frame) -> None:
    source, batch, stream, counts, paid = topic(), topic(), topic(), topic(), topic()
    write(kafka, source, count=40)
    clicks = (
        spark.readStream.schema("value binary").format("gkafka").options(**{"kafka.bootstrap.servers": kafka.hosts, "subscribe": source})
    )
    clicks = clicks.option("startingOffsets", "earliest").load()
    run(
        "spark-writing.md",
        {"orders": batch, "counts": counts, "paid": paid},
        df=spark.range(25),
        stream=clicks,
        clicks=clicks.selectExpr("cast(length(value) as string) as page"),
        options={"kafka.bootstrap.servers": kafka.hosts, "topic": stream},
    )
    spark.conf.unset(STATELESS_AQE)
    assert [frame("gkafka", subscribe=each).count() for each in (batch, stream)] == [25, 40]
    rows = [
        {(row.key, row.value) for row in frame("gkafka", subscribe=each, kafka__isolation__level="read_committed").collect()}
        for each in (batch, paid)
    ]
    assert rows[0] == rows[1]
    assert frame("gkafka", subscribe=paid).count() == 25
    told = frame("gkafka", subscribe=counts).selectExpr("cast(cast(value as string) as int) as count").collect()
    assert sum(row["count"] for row in told) == 40


def test_the_recipe_for_payloads_framed_for_a_schema_registry(spark: SparkSession) -> None:
    (line,) = re.findall(r"^framed = orders\.selectExpr\(.*\)$", (ROOT / "docs" / "recipes.md").read_text(), re.MULTILINE)
    payloads = [b"\x0aframe", b"", b"\x00\x01"]
    with MockCluster(topics={"framed": 1}) as cluster:
        with KafkaClient(cluster.bootstrap, handler="threading") as client, client.get_producer() as producer:
            for schema_id, payload in zip((1, 4711, 2**31 - 1), payloads, strict=True):
                producer.produce("framed", struct.pack(">bI", 0, schema_id) + payload)
        names: dict[str, Any] = {
            "orders": spark.read.format("gkafka").load(**{"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": "framed"})
        }
        exec(line, names)
        rows = names["framed"].collect()
    assert [(row["schema_id"], bytes(row["avro"])) for row in rows] == [
        ("1", payloads[0]),
        ("4711", payloads[1]),
        (str(2**31 - 1), payloads[2]),
    ]
