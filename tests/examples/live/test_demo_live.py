"""The demo on a real Kafka and in a real Spark, in a small form."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.effort import one_of
from tests.examples.conftest import PIPELINE
from tests.examples.marked import MARK, marked
from tests.kit.lacking import reason
from tests.live.kafka import KafkaNode
from tests.live.pool import REAL_KAFKA

pytestmark = [
    pytest.mark.timeout(420),
    pytest.mark.skipif(os.environ.get("GKAFKA_LIVE") == "skip", reason=reason(REAL_KAFKA)),
]


@pytest.fixture
def kafka() -> Iterator[KafkaNode]:
    with KafkaNode() as node:
        yield node


def run(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PIPELINE / program), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.thorough  # `make test` ends with such a demo
def test_every_number_is_equal_after_the_kill_until_one_link_is_left_out(kafka: KafkaNode, site: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = run("run.py", "--site", site, "--hosts", kafka.hosts, "--out", out, "--cap", "5", "--kill-after", "5")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kill -9 of the stream" in done.stdout
    assert "all equal" in done.stdout
    assert (out / "report.html").stat().st_size > 1e6
    assert all((out / f"{name}.parquet" / "_SUCCESS").exists() for name in ("inlinks", "dead"))
    assert all(list((out / f"{name}.parquet").rglob("*.parquet")) for name in ("archive", "windows"))
    assert not {path.name for path in out.iterdir()} & {"checkpoints", "spark-scratch"}
    runs = [json.loads(line)["run"] for line in (out / "progress.jsonl").read_text().splitlines() if '"archive"' in line]
    assert len(set(runs)) == 2, "the stream was to be killed midway: batches before and after it"

    stored = {(topic, number): last for topic, number, _, _, last, _ in json.loads((out / "tables.json").read_text())["partitions"]}
    links = next(topic for topic, _ in stored if topic.endswith("links"))
    first = next(number for topic, number in stored if topic == links)
    offsets = json.dumps({links: {str(number): 1 if number == first else -2 for number in range(4)}})
    done = run("batch.py", "--hosts", kafka.hosts, "--prefix", links.removesuffix("links"), "--links-from", offsets, "--out", out)
    assert done.returncode == 0, done.stderr

    done = run("verify.py", site, out / "tables.json")
    assert done.returncode == 1
    assert re.search(r"^links +26 +25 +DIFFERS$", done.stdout, re.MULTILINE), done.stdout


@pytest.mark.parametrize("step", one_of("5/8", "4/8", "3/8"))
def test_ctrl_c_at_any_step_leaves_no_process_and_no_half_report(site: Path, tmp_path: Path, step: str) -> None:
    out, mark = tmp_path / "out", uuid.uuid4().hex
    command = [sys.executable, str(PIPELINE / "run.py"), "--site", str(site), "--out", str(out)]
    demo = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, MARK: mark})
    assert demo.stdout
    try:
        for line in demo.stdout:
            if line.startswith(step):
                break
        assert marked(mark)
    finally:
        demo.send_signal(signal.SIGINT)
    rest = demo.stdout.read()
    assert demo.wait(60) == 128 + signal.SIGINT, rest
    demo.stdout.close()
    assert marked(mark) == []
    assert [path.name for path in out.iterdir()] == [".lock"]
