"""examples/spark_python.sh: the Python of Spark's workers, without the zip that Spark puts before its packages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

LAUNCHER = Path(__file__).resolve().parents[2] / "examples" / "spark_python.sh"
LIB = Path(pyspark.__file__).parent / "python" / "lib"
ZIPS = [*LIB.glob("pyspark.zip"), *LIB.glob("py4j-*-src.zip")]


@pytest.mark.parametrize("rest", ["/jars/spark-core.jar:/a b", "/a b"])
def test_the_zips_of_spark_are_taken_from_the_path_and_nothing_else(rest: str) -> None:
    assert [zipped.is_file() for zipped in ZIPS] == [True, True]
    zips = f"{ZIPS[0]}:{ZIPS[1]}"
    assert path_of(f"{zips}:{rest}:{zips}") == rest
    assert path_of(rest) == rest


def path_of(given: str) -> str:
    """The PYTHONPATH that Python has when Spark starts it so."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    command = [str(LAUNCHER), "-c", "import os, sys; print(sys.executable, os.environ['PYTHONPATH'], sep='\\n')"]
    done = subprocess.run(command, env={**os.environ, "PATH": path, "PYTHONPATH": given}, capture_output=True, text=True, check=True)
    executable, found = done.stdout.splitlines()
    assert Path(executable).parent == Path(sys.executable).parent
    return found
