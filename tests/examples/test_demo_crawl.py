"""The crawler as a program, its records on a broker, and the figures that they give."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import verify

from gkafka.testing import Error, MockCluster, StoredRecord
from tests.examples.conftest import EXAMPLES, PIPELINE
from tests.kit.forks import Ended, Program, play

PARTITIONS = 4


def crawl(address: str, cluster: MockCluster, out: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PIPELINE / "crawl.py"), address, "--hosts", cluster.bootstrap, "--write", str(out), *more]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)


def stored(cluster: MockCluster, topic: str) -> list[StoredRecord]:
    return [record for partition in range(PARTITIONS) for record in cluster.log(topic, partition)]


def text(data: bytes | None) -> str:
    assert data is not None
    return bytes(data).decode()


def rebuilt(cluster: MockCluster) -> dict[str, Any]:
    """The figures of a site that is known from its records alone."""
    site: dict[str, verify.Fetched] = {}
    for record in stored(cluster, "pages"):
        value, headers = json.loads(text(record.value)), dict(record.headers)
        path = text(record.key)
        site[path] = verify.Fetched(int(headers["status"]), int(headers["depth"]), value["bytes"], value["title"])
        assert value["status"] == site[path].status
        if value["status"] == 200 and path.endswith((".html", ".htm")):
            site[path].links = []
    for record in stored(cluster, "links"):
        value = json.loads(text(record.value))
        assert text(record.key) == value["src"]
        links = site[value["src"]].links
        assert links is not None
        links.append((value["dst"], value["anchor"]))
    return verify.count(site)


@pytest.mark.parametrize("bound", [None, 5])
def test_what_the_crawler_produces_is_what_the_files_hold(address: str, site: Path, tmp_path: Path, bound: int | None) -> None:
    with MockCluster() as cluster:
        done = crawl(address, cluster, tmp_path / "crawl.json", *(["--max-pages", str(bound)] if bound else []))
        assert done.returncode == 0, done.stderr
        figures = rebuilt(cluster)
    expected = verify.count(verify.Site(site).crawl(bound))
    assert figures == expected
    told = json.loads((tmp_path / "crawl.json").read_text())
    assert told["produced"] == told["acknowledged"] == {"pages": expected["totals"]["fetched"], "links": expected["totals"]["links"]}
    assert told["handler"] == "gevent"


def test_a_record_that_is_not_acknowledged_fails_the_crawl(address: str, tmp_path: Path) -> None:
    with MockCluster(topics={"pages": PARTITIONS, "links": PARTITIONS}) as cluster:
        cluster.on("Produce", Error(29), times=1)  # TopicAuthorizationFailed
        done = crawl(address, cluster, tmp_path / "crawl.json")
    assert done.returncode == 1
    told = json.loads((tmp_path / "crawl.json").read_text())
    assert sum(told["acknowledged"].values()) < sum(told["produced"].values())
    assert "not acknowledged" in done.stderr


@pytest.mark.parametrize("site_address", ["http://127.0.0.1:9/", "ftp://127.0.0.1/", "nonsense"])
def test_a_site_that_cannot_be_reached_is_an_error_without_a_traceback(site_address: str, tmp_path: Path) -> None:
    with MockCluster() as cluster:
        done = crawl(site_address, cluster, tmp_path / "crawl.json")
    assert done.returncode == 1
    assert "crawl.py: " in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unknown_codec_is_named(address: str, tmp_path: Path) -> None:
    with MockCluster() as cluster:
        done = crawl(address, cluster, tmp_path / "crawl.json", "--compression", "lz5")
    assert done.returncode == 1
    assert "lz5" in done.stderr
    assert "Traceback" not in done.stderr


def is_program(path: Path) -> bool:
    return path.read_text(encoding="utf-8").startswith("#!") or "It is no program of its own" not in path.read_text(encoding="utf-8")


PROGRAMS = sorted(path.relative_to(EXAMPLES).as_posix() for path in EXAMPLES.rglob("*.py") if is_program(path))
IMPORTED = f"""
import sys
sys.path[:0] = [{str(EXAMPLES)!r}, {str(PIPELINE)!r}]
import celery, flask, gevent.pool, pyspark.sql, recipe, gkafka.client
"""


@pytest.fixture(scope="module")
def helped() -> dict[str, Ended]:
    programs = [Program((EXAMPLES / program).read_text(encoding="utf-8"), str(EXAMPLES / program), ["--help"]) for program in PROGRAMS]
    return dict(zip(PROGRAMS, play(programs, before=IMPORTED, python=(), at_once=2), strict=True))


@pytest.mark.parametrize("program", PROGRAMS)
def test_each_piece_explains_itself(program: str, helped: dict[str, Ended]) -> None:
    done = helped[program]
    assert done.returncode == 0, done.stderr
    assert "usage:" in done.stdout
