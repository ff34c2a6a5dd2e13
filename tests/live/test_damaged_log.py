"""One damaged log, as a real Spark and a real pipe read it.

A broker in this process serves it over TCP: a real one takes no damaged batch.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gkafka.testing import MockCluster
from tests.cli.terminal import ROOT, TOOL, environment
from tests.live.pool import skip_if_told
from tests.reading.damagedlogs import FIXED, written

LIMIT_S = 240
LOGS = {"plain": ("v2", "none", 12), "gzip": ("v2", "gzip", 12), "old": ("v1", "none", 8)}
"""Topic -> format, codec, and where it goes on behind the damage."""
JOB = """
import json, sys
import gkafka.spark
from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.master("local[2]").config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.ui.enabled", "false").config("spark.log.level", "OFF").getOrCreate()
)
gkafka.spark.register(spark)
for starts, ends in json.loads(sys.argv[2]):
    reader = spark.read.format("gkafka").option("kafka.bootstrap.servers", sys.argv[1]).option("subscribe", ",".join(starts))
    for name, offsets in (("startingOffsets", starts), ("endingOffsets", ends)):
        reader = reader.option(name, json.dumps({topic: {"0": offset} for topic, offset in offsets.items()}))
    try:
        print(json.dumps(sorted([row.topic, row.offset] for row in reader.load().select("topic", "offset").collect())), flush=True)
    except Exception as error:
        print(json.dumps(str(error)), flush=True)
spark.stop()
"""


@pytest.fixture
def hosts() -> Iterator[str]:
    skip_if_told()
    with MockCluster(topics=dict.fromkeys(LOGS, 1), auto_create=False) as cluster:
        for topic, (form, codec, _) in LOGS.items():
            cluster.append(topic, 0, written(FIXED, form, codec).data)
        yield cluster.bootstrap


@pytest.mark.thorough  # a Spark of its own; its reader at a damaged record: tests/spark/test_source_calls.py
@pytest.mark.timeout(300)
def test_a_spark_job_fails_at_the_damaged_record_and_reads_what_is_around_it(hosts: str) -> None:
    start, damage, end = dict.fromkeys(LOGS, 0), dict.fromkeys(LOGS, 7), dict.fromkeys(LOGS, 14)
    behind = {topic: offset for topic, (_, _, offset) in LOGS.items()}
    asked = [(start, damage), (behind, end), ({"gzip": 0}, {"gzip": 14}), ({"old": 0}, {"old": 14})]
    program = [sys.executable, "-c", JOB, hosts, json.dumps(asked)]
    settings = {"PYSPARK_PYTHON": str(ROOT / "examples" / "spark_python.sh"), "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(ROOT)}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environ = {**os.environ, **settings, "PATH": path}
    job = subprocess.run(program, capture_output=True, text=True, timeout=LIMIT_S, env=environ, check=False)
    assert job.returncode == 0, job.stderr[-2000:]
    before, after, *errors = [json.loads(line) for line in job.stdout.splitlines()]
    assert before == sorted([topic, offset] for topic in LOGS for offset in range(7))
    assert after == sorted([topic, offset] for topic in LOGS for offset in range(behind[topic], 14))
    for error, topic in zip(errors, ("gzip", "old"), strict=True):
        assert isinstance(error, str), f"{topic}: no error, but {error}"
        assert f"{topic}[0] offset 7: " in error


def consume(hosts: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*TOOL, "consume", *words, "-b", hosts], capture_output=True, text=True, timeout=LIMIT_S, env=environment(), check=False
    )


@pytest.mark.parametrize("topic", LOGS)
def test_a_pipe_gets_what_is_before_the_damage_and_the_group_commits_no_more(hosts: str, topic: str) -> None:
    behind = LOGS[topic][2]
    for printed in (list(range(7)), []):  # the second run goes on where the group stands
        told = consume(hosts, topic, "--json", "-g", "g", "-p", "0")
        assert [json.loads(line)["offset"] for line in told.stdout.splitlines()] == printed
        assert told.returncode == 1
        assert f"{topic}[0] offset 7: " in told.stderr
        assert "Traceback" not in told.stderr
    told = consume(hosts, topic, "--json", "--from", str(behind))
    assert [json.loads(line)["offset"] for line in told.stdout.splitlines()] == list(range(behind, 14))
    assert (told.returncode, told.stderr) == (0, "")
