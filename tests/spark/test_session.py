"""What a program gets from gkafka.spark before it reads: names, the zip for a cluster, views."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException

import gkafka.spark
from gkafka.exceptions import ConfigurationError

ROOT = Path(gkafka.__file__).parent.parent


class Session:
    """A session in which registering ends with an error of this condition."""

    def __init__(self, condition: str) -> None:
        self.condition, self.dataSource = condition, self

    def register(self, source: type) -> None:
        raise AnalysisException(source.__name__, errorClass=self.condition)


def test_a_format_that_spark_has_found_by_itself_is_registered() -> None:
    session: Any = Session("DATA_SOURCE_ALREADY_EXISTS")
    gkafka.spark.register(session)
    session.condition = "CANNOT_RENAME_ACROSS_CATALOG"
    with pytest.raises(AnalysisException):
        gkafka.spark.register(session)


def test_every_public_name_is_there_and_listed() -> None:
    assert set(gkafka.spark.__all__) == set(gkafka.spark.LAZY)
    for name in gkafka.spark.__all__:
        assert getattr(gkafka.spark, name).__doc__, name
        assert name in dir(gkafka.spark)


def test_the_zip_holds_the_packages_and_nothing_that_python_cannot_load_from_it(tmp_path: Path) -> None:
    names = zipfile.ZipFile(gkafka.spark.pyfiles_zip(tmp_path / "g.zip")).namelist()
    assert {"gkafka/__init__.py", "gkafka/spark/source.py", "gkafka/records/_pure.py", "pyspark_gkafka/__init__.py"} <= set(names)
    assert all(name.endswith((".py", "py.typed")) for name in names)
    assert len(names) == len(set(names))


def test_the_zip_goes_to_a_new_file_unless_told_where() -> None:
    first, second = gkafka.spark.pyfiles_zip(), gkafka.spark.pyfiles_zip()
    for path in (first, second):
        Path(path).unlink()
        Path(path).parent.rmdir()
    assert first != second


def test_a_zip_of_another_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"must end in \.zip"):
        gkafka.spark.pyfiles_zip(tmp_path / "gkafka.egg")


def test_gkafka_works_from_its_zip_and_says_so(tmp_path: Path) -> None:
    path = gkafka.spark.pyfiles_zip(tmp_path / "g.zip")
    code = f"""
import sys
sys.path[:] = [{path!r}] + [p for p in sys.path if p not in ('', {str(ROOT)!r})]
import gkafka.records, gkafka.spark
from gkafka.exceptions import ConfigurationError
from gkafka.spark.options import parse
assert gkafka.__file__.startswith({path!r}), gkafka.__file__
assert gkafka.records.IMPLEMENTATION == "python", gkafka.records.IMPLEMENTATION
assert gkafka.spark.GKafkaDataSource.name() == "gkafka"
assert parse({{"kafka.bootstrap.servers": "h", "subscribe": "t"}}).include_headers is False
try:
    gkafka.spark.pyfiles_zip()
except ConfigurationError as error:
    assert "is such a file already" in str(error)
else:
    raise AssertionError("a zip was made of nothing")
"""
    environment = {"PATH": "/usr/bin:/bin"}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, env=environment, cwd=tmp_path)
