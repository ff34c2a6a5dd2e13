"""What a program does with its SparkSession before it reads or writes: make the format known, send gkafka along, name a view."""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gkafka
from gkafka.exceptions import ConfigurationError
from gkafka.logs import get_logger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["pyfiles_zip", "register", "sql_view"]

log = get_logger(__name__)


def register(spark: SparkSession) -> None:
    """Make format("gkafka") known to a session, classic or Connect. How many tasks a classic session works on at a time is noted, for the option `tasks`."""
    from pyspark.errors import AnalysisException

    from gkafka.spark.source import GKafkaDataSource

    seen = {"parallelism": _parallelism(spark), "__module__": GKafkaDataSource.__module__, "__doc__": GKafkaDataSource.__doc__}
    try:
        # A class of its own: Spark sends it to the process that plans as it is here, where one that can be imported would be the module's.
        spark.dataSource.register(type(GKafkaDataSource.__name__, (GKafkaDataSource,), seen))
    except AnalysisException as exc:
        # Spark 4.0 has found it by itself (pyspark_gkafka), and takes no other of that name then. Later ones do.
        if exc.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


def _parallelism(spark: SparkSession) -> int | None:
    """None on Connect, whose client has no SparkContext, and with dynamic allocation, where no executor has come yet."""
    try:
        context = spark.sparkContext
        if context.getConf().get("spark.dynamicAllocation.enabled", "false").lower() == "true":
            return None
        return int(context.defaultParallelism)
    except Exception as exc:  # PySparkAttributeError and others, by version
        log.debug("the session's parallelism is not known: %s", exc)
        return None


def pyfiles_zip(path: str | Path | None = None) -> str:
    """Write gkafka as a zip for spark.sparkContext.addPyFile() or, on Connect, spark.addArtifacts(..., pyfile=True). Returns its path.

    path: where; None is a new file in the system's directory for temporary files. For clusters on which gkafka is not installed. A zip holds Python
    alone: without the compiled part records are decoded by its twin in Python, which is slower. pyspark, pyarrow and the codecs' packages (lz4,
    zstandard, ...) have to be on the nodes.
    """
    target = Path(path) if path is not None else Path(tempfile.mkdtemp(prefix="gkafka-")) / "gkafka.zip"
    if target.suffix != ".zip":
        raise ConfigurationError(f"path={str(target)!r}: must end in .zip, or Spark does not put it on the path of the workers")
    root = Path(gkafka.__file__).parent.parent
    if not root.is_dir():
        raise ConfigurationError(f"gkafka is imported from {str(root)!r}, which is such a file already: hand that one to Spark")
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as out:
        for file in _sources(root):
            out.write(file, file.relative_to(root))
    return str(target)


def _sources(root: Path) -> Iterator[Path]:
    for package in ("gkafka", "pyspark_gkafka"):
        yield from sorted(file for file in (root / package).rglob("*.py") if "__pycache__" not in file.parts)
    yield root / "gkafka" / "py.typed"


def sql_view(spark: SparkSession, name: str, **options: Any) -> None:
    """A temporary view that reads topics, for SQL: `sql_view(spark, "orders", subscribe="orders", **{"kafka.bootstrap.servers": "h1:9092"})`.

    options: those of spark.read.format("gkafka"). Spark plans the view once: all queries read what is there when the first one begins. Call this again to read
    what came since; the name then means the new view. (CREATE TABLE ... USING gkafka OPTIONS (...) would not do: Spark
    does not hand the options on.)
    """
    register(spark)
    spark.read.format("gkafka").options(**options).load().createOrReplaceTempView(name)
