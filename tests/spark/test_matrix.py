"""`make spark-matrix` (tests/spark/matrix.py) plays its files on Spark 4.0 and 4.1, too."""

from __future__ import annotations

import subprocess
import sys

from tests.spark.matrix import ROOT, SUITE

PROGRAM = """
import importlib, sys
import pyspark.sql.datasource  # which imports it itself today
sys.modules["pyspark.sql.streaming.datasource"] = None
for name in sys.argv[1:]:
    importlib.import_module(name)
"""


def test_its_files_need_nothing_that_older_versions_of_spark_lack() -> None:
    modules = [file.removesuffix(".py").replace("/", ".") for file in SUITE]
    done = subprocess.run([sys.executable, "-c", PROGRAM, *modules], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
