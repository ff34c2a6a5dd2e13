"""PySpark's daemon, which loads before it forks what each of its workers would load behind the fork: `python -m tests.spark.daemon WORKER`."""

from __future__ import annotations

import importlib
import sys

from pyspark import daemon

IN_TASKS = ("pandas", "pyarrow.pandas_compat")
MODULES = ("numpy", "pyarrow", "pyspark.sql.pandas.types", "pyspark.sql.pandas.serializers")
GKAFKA = ("source", "streamreader", "sink", "sinktask", "exactlyonce", "connections")


def load() -> None:
    """A task of foreachBatch or of Arrow has pandas, too; what plans and writes has not."""
    for name in (
        sys.argv[1],
        *MODULES,
        *(f"gkafka.spark.{name}" for name in GKAFKA),
        *(IN_TASKS if sys.argv[1] == "pyspark.worker" else ()),
    ):
        importlib.import_module(name)


if __name__ == "__main__":
    if sys.argv[1] != "pyspark.sql.worker.lookup_data_sources":
        load()
    daemon.manager()
