"""Spark imports every top-level package named pyspark_* and takes its DefaultSource: that is how it finds format("gkafka")."""

from gkafka.spark import default_source as __getattr__  # noqa: F401  # lazy: pyspark is imported when DefaultSource is asked for
