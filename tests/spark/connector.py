"""The JVM connector's jars for a version of Spark, fetched through Maven: what gkafka is compared with, and never needs itself."""

from __future__ import annotations

from pathlib import Path

from tests.live.maven import jars

__all__ = ["connector_jars"]

RELEASES = {"4.0": "4.0.4", "4.1": "4.1.3"}
NEWEST = "4.2.0"  # works with Spark 4.2 and 4.3; Maven's central registry has none that is newer
BESIDE = (  # each alone, Spark brings the rest
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.0",
)


def connector_jars(spark: str) -> list[Path]:
    """spark: the version of PySpark. Raises MissingToolError, RuntimeError as `jars` does."""
    release = RELEASES.get(".".join(spark.split(".")[:2]), NEWEST)
    return jars(f"spark-kafka-{release}", (f"org.apache.spark:spark-sql-kafka-0-10_2.13:{release}", *BESIDE), transitive=False)
