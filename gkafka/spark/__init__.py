"""Apache Kafka in Spark without a jar: spark.read.format("gkafka"). `pip install gkafka[spark]`; docs/spark.md.

    gkafka.spark.register(spark)
    df = spark.read.format("gkafka").option("kafka.bootstrap.servers", "h1:9092").option("subscribe", "t").load()

Spark also finds the format by itself where the package `pyspark_gkafka` can be imported. pyspark is imported when it is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from gkafka.spark.exactlyonce import RowsChangedError
    from gkafka.spark.offsets import DataLossError
    from gkafka.spark.source import GKafkaDataSource
    from gkafka.spark.update import write_stream

__all__ = ["DataLossError", "GKafkaDataSource", "RowsChangedError", "register", "write_stream"]

LAZY = {
    "DataLossError": "gkafka.spark.offsets",
    "GKafkaDataSource": "gkafka.spark.source",
    "RowsChangedError": "gkafka.spark.exactlyonce",
    "write_stream": "gkafka.spark.update",
}


def register(spark: SparkSession) -> None:
    """Make format("gkafka") known to a session, classic or Connect."""
    from gkafka.spark.source import GKafkaDataSource

    spark.dataSource.register(GKafkaDataSource)


def __getattr__(name: str) -> Any:
    if name not in LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(LAZY[name]), name)


def default_source(name: str) -> Any:
    """The module attribute by which Spark finds the format (`pyspark_gkafka.DefaultSource`)."""
    if name != "DefaultSource":
        raise AttributeError(f"module 'pyspark_gkafka' has no attribute {name!r}")
    return __getattr__("GKafkaDataSource")
