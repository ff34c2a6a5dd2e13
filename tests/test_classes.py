"""The archive of Spark's classes: whatever comes of it, no test fails."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.live import classes


def test_where_it_takes_too_long_there_is_none_and_nothing_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "java").touch(mode=0o755)
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    (tmp_path / "venv").mkdir()
    monkeypatch.setattr(classes, "RECORD_S", 0.5)
    begins = (
        "import os, pathlib, time; pathlib.Path(os.environ['SPARK_SUBMIT_OPTS'].split('AtExit=')[1].split()[0]).touch(); time.sleep(600)"
    )
    monkeypatch.setattr(classes, "SPARK", begins)
    classes.record_spark.__wrapped__()
    (left,) = (tmp_path / "venv").iterdir()
    assert left.suffix == ".lock"
    assert left.name.startswith(f"spark-classes-{version('pyspark')}-"), "each PySpark has an archive of its own"
