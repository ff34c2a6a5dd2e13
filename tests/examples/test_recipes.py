"""What each recipe of docs/recipes.md says to --help, to a Kafka that is not there, and to options that make no sense. No broker is needed."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gkafka import KafkaClient
from gkafka.testing import MockCluster
from tests.gevent.live.recipes import LINES
from tests.handlers.hub import ROOT
from tests.kafka.consuming import until
from tests.kit.forks import Ended, Program, play

PROGRAMS = sorted({line.split()[1] for line in LINES})
NEEDS_KAFKA = [line for line in LINES if not line.endswith(" send")]


def run(line: str, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *shlex.split(line)[1:], *more]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60, check=False
    )


def test_every_recipe_is_in_readme() -> None:
    names = [Path(program).stem for program in PROGRAMS]
    assert names == ["arrow_pandas", "arrow_polars", "batch_threads", "celery_app", "flask_app", "greenlets", "spark_foreach"]


HELP = [f"python {program} --help" for program in PROGRAMS]
WITHOUT_KAFKA = {line: f"{line} --hosts 127.0.0.1:1" + (" --folder {folder}" if "celery" in line else "") for line in NEEDS_KAFKA}
REFUSED = [
    ("python examples/greenlets.py --greenlets 0", "argument --greenlets: '0': must be a whole number, 1 or more"),
    ("python examples/batch_threads.py no-such-file", "no-such-file: no such file"),
    ("python examples/batch_threads.py README.md --compression zip", "argument --compression: invalid choice: 'zip'"),
    ("python examples/flask_app.py --workers two", "argument --workers: 'two': must be a whole number, 1 or more"),
    ("python examples/celery_app.py worker --create init", "--create init: only a pool of processes"),
    (
        "python examples/flask_app.py --bind 127.0.0.1:99999",
        "argument --bind: '127.0.0.1:99999': must be host:port, the port 1 to 65535",
    ),
    ("python examples/flask_app.py --bind nonsense", "argument --bind: 'nonsense': must be host:port"),
    ("python examples/flask_app.py --bind :8000", "argument --bind: ':8000': must be host:port"),
    (
        "python examples/celery_app.py worker --folder /proc/nope",
        "argument --folder: cannot be made: [Errno 2] No such file or directory: '/proc/nope",
    ),
    ("python examples/celery_app.py send --folder README.md", "argument --folder: cannot be made: [Errno 20] Not a directory"),
    ("python examples/spark_foreach.py --rows -1", "argument --rows"),
    ("python examples/arrow_pandas.py --top 0", "argument --top: '0': must be a whole number, 1 or more"),
    ("python examples/arrow_polars.py --top no", "argument --top: 'no': must be a whole number, 1 or more"),
]
IMPORTED = """
import sys
sys.path.insert(0, "examples")
import celery, flask, gevent.pool, pandas, pyarrow.compute, pyspark.errors, pyspark.sql
import recipe, gkafka.client, gkafka.protocol
"""


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ended]:
    """How each of these lines ends."""
    lines = [*HELP, *WITHOUT_KAFKA.values(), *(line for line, _ in REFUSED)]
    commands = [shlex.split(line.format(folder=tmp_path_factory.mktemp("celery")))[1:] for line in lines]
    programs = [Program((ROOT / file).read_text(encoding="utf-8"), file, more) for file, *more in commands]
    return dict(zip(lines, play(programs, before=IMPORTED, python=(), at_once=4), strict=True))


@pytest.mark.parametrize("program", PROGRAMS)
def test_help_tells_what_it_is_for(program: str, played: dict[str, Ended]) -> None:
    done = played[f"python {program} --help"]
    first = (ROOT / program).read_text(encoding="utf-8").split('"""')[1].splitlines()[0]
    assert done.returncode == 0, done.stderr
    assert first in done.stdout
    assert "--hosts" in done.stdout


@pytest.mark.parametrize("line", NEEDS_KAFKA)
def test_without_kafka_it_says_what_to_do_and_ends_with_1(line: str, played: dict[str, Ended]) -> None:
    done = played[WITHOUT_KAFKA[line]]
    assert done.returncode == 1, done.stdout + done.stderr
    assert "NoBrokersAvailableError: none of the hosts answered; 127.0.0.1:1: " in done.stderr
    assert "--hosts HOST:PORT" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("line", "says"), REFUSED)
def test_what_makes_no_sense_is_refused(line: str, says: str, played: dict[str, Ended]) -> None:
    done = played[line]
    assert done.returncode != 0, done.stdout
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_what_kafka_refuses_is_told_without_the_advice_to_look_for_kafka() -> None:
    with MockCluster() as cluster:
        done = run("python examples/greenlets.py --topic a/b --hosts", cluster.bootstrap)
    assert done.returncode == 1
    assert "a/b" in done.stderr
    assert "Is Kafka there" not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("line", ["greenlets.py --each 100000", "batch_threads.py {lines} {lines}", "spark_foreach.py --rows 100000000"])
def test_ctrl_c_ends_it_soon_with_one_line_and_130(line: str, tmp_path: Path) -> None:
    """500 greenlets each printed that their producer was closed, and a job of threads went on to the end of its files."""
    lines = tmp_path / "lines"
    if "{lines}" in line:
        lines.write_bytes(b"a line\n" * 5_000_000)
    with MockCluster(topics={"greenlets": 4, "lines": 4, "rows": 4}) as cluster:
        command = [sys.executable, *shlex.split(f"examples/{line.format(lines=lines)} --hosts {cluster.bootstrap}")]
        with subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE, text=True) as program:
            try:
                until("threading", lambda: program.poll() is not None or len(cluster.requests("Produce")) > 20, 200)
                program.send_signal(signal.SIGINT)
                _, said = program.communicate(timeout=60)
            finally:
                program.kill()
    assert program.returncode == 130, said
    if "spark" in line:  # Java tells of its own end
        assert "interrupted" in said.splitlines()
        assert "KeyboardInterrupt" not in said
    else:
        assert said == "interrupted\n"


# -- Arrow ---------------------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def filled() -> Iterator[MockCluster]:
    with MockCluster(topics={"lines": 4}) as cluster:
        with KafkaClient(cluster.bootstrap, handler="threading") as client, client.get_producer() as producer:
            for i in range(1000):
                value = None if i % 100 == 0 else b"v" * (i % 50)
                producer.produce("lines", value, key=None if i % 10 == 0 else b"k%d" % (i % 3), partition=i % 4, timestamp=60_000 * (i % 2))
        yield cluster


def test_pandas_counts_each_key(filled: MockCluster) -> None:
    done = run("python examples/arrow_pandas.py --hosts", filled.bootstrap)
    said = done.stdout.splitlines()
    size = sum(0 if i % 100 == 0 else i % 50 for i in range(1000))
    assert said[0].startswith(f"1000 records, {size} bytes, 4 keys in "), done.stderr
    assert sorted((line.split()[-1], int(line.split()[0])) for line in said[1:]) == [("k0", 300), ("k1", 300), ("k2", 300), ("key)", 100)]
    assert all("1970-01-01 00:00:00 to 1970-01-01 00:01:00" in line for line in said[1:4])


def test_polars_counts_each_partition_and_minute(filled: MockCluster) -> None:
    done = run("python examples/arrow_polars.py --hosts", filled.bootstrap)
    said = done.stdout.splitlines()
    assert said[0].startswith(f"1000 records, {sum(0 if i % 100 == 0 else i % 50 for i in range(1000))} bytes in "), done.stderr
    rows = [line.split() for line in said[1:]]
    assert [(row[0], row[2], int(row[3])) for row in rows] == [(f"lines-{p}", f"00:0{p % 2}", 250) for p in range(4)]


@pytest.mark.parametrize(("program", "counts"), [("arrow_pandas", (30, 0, 20)), ("arrow_polars", (30, 20))])
def test_a_group_goes_on_where_the_run_before_has_ended(program: str, counts: tuple[int, ...]) -> None:
    with MockCluster(topics={"lines": 1}) as cluster:
        line = f"python examples/{program}.py --group g --hosts {cluster.bootstrap}"
        for count in counts:
            with KafkaClient(cluster.bootstrap, handler="threading") as client, client.get_producer() as producer:
                for i in range(count):
                    producer.produce("lines", b"%d" % i, key=b"k")
            done = run(line)
            assert done.stdout.startswith(f"{count} records, " if count else "lines: nothing to read"), done.stdout + done.stderr
        assert cluster.committed("g")["lines", 0].offset == 50


def test_what_is_not_installed_is_named() -> None:
    code = "import sys; sys.path.insert(0, 'examples'); import recipe; recipe.needs('os', 'no_such_package')"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr.strip()) == (1, "no_such_package missing: pip install no_such_package")
