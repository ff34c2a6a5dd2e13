"""Apache Kafka in Spark without a jar: format("gkafka") for reading and writing, batches and streams. `pip install 'gkafka[spark]'`; `kafka-tools docs spark`.

    gkafka.spark.register(spark)
    df = spark.read.format("gkafka").option("kafka.bootstrap.servers", "h1:9092").option("subscribe", "t").load()

Spark also finds the format by itself where the package `pyspark_gkafka` can be imported. What is here is loaded when it is first used: importing this
costs neither pyspark nor pyarrow.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gkafka.spark.exactlyonce import RowsChangedError
    from gkafka.spark.offsets import DataLossError
    from gkafka.spark.progress import Lag, LagListener, lag
    from gkafka.spark.session import pyfiles_zip, register, sql_view
    from gkafka.spark.source import GKafkaDataSource
    from gkafka.spark.update import write_stream

__all__ = [
    "DataLossError",
    "GKafkaDataSource",
    "Lag",
    "LagListener",
    "RowsChangedError",
    "lag",
    "pyfiles_zip",
    "register",
    "sql_view",
    "write_stream",
]

LAZY = {
    "DataLossError": "gkafka.spark.offsets",
    "GKafkaDataSource": "gkafka.spark.source",
    "Lag": "gkafka.spark.progress",
    "LagListener": "gkafka.spark.progress",
    "RowsChangedError": "gkafka.spark.exactlyonce",
    "lag": "gkafka.spark.progress",
    "pyfiles_zip": "gkafka.spark.session",
    "register": "gkafka.spark.session",
    "sql_view": "gkafka.spark.session",
    "write_stream": "gkafka.spark.update",
}


def __getattr__(name: str) -> Any:
    if name not in LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(LAZY[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *LAZY])


def default_source(name: str) -> Any:
    """The module attribute by which Spark finds the format (`pyspark_gkafka.DefaultSource`)."""
    if name != "DefaultSource":
        raise AttributeError(f"module 'pyspark_gkafka' has no attribute {name!r}")
    return __getattr__("GKafkaDataSource")
