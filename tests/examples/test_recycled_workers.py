"""Workers of gunicorn and uWSGI that end, with a producer that is never closed: what was answered is in Kafka, or it is said what is not."""

from __future__ import annotations

import contextlib
import http.client
import re
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gkafka.testing import MockCluster
from tests.effort import one_of
from tests.gevent.live.recipes import LIMIT_S, LINGER_S, Program
from tests.handlers.hub import ROOT
from tests.live.jvm import free_ports

PARTITIONS, REQUESTS, EACH = 4, 60, 10
ANSWERED, NOT_NOW = 202, 503
GRACEFULLY = "unix_signal:15 gracefully_kill_them_all"
"""uWSGI's hook. With --die-on-term a worker that is in the middle of a request ends at once, and runs nothing at its end."""


class Server:
    """gunicorn with examples/flask_app.py in two workers, or uWSGI with it in one, on threads."""

    def __init__(self, cluster: MockCluster, kind: str, folder: Path, *more: str, linger_s: float = 0.1) -> None:
        """Preloaded, its producer is made by the master, and goes on in the workers."""
        (self.port,) = free_ports(1)
        address = f"127.0.0.1:{self.port}"
        if kind == "uwsgi":
            options = "--master -p 1 --enable-threads --need-app --chdir examples --module flask_app:app --hook-master-start"
            command = [str(Path(sys.executable).with_name("uwsgi")), "--http-socket", address, *options.split(), GRACEFULLY, *more]
        else:
            threads = ["--threads", "4"] if kind == "gthread" else []
            command = [sys.executable, "-m", "gunicorn", "-k", kind, "-w", "2", "-b", address, "--chdir", "examples", *more]
            command += [*threads, "flask_app:app"]
        settings = {"KAFKA_HOSTS": cluster.bootstrap, "KAFKA_HANDLER": "auto", "KAFKA_LINGER_MS": f"{linger_s * 1000}"}
        settings["KAFKA_CREATE"] = "recreate" if "--preload" in more else "first-use"
        self.program = Program(command, folder, **settings)

    def is_up(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), LIMIT_S):
            return True
        return False

    def post(self, path: str, body: bytes) -> int:
        """The status; 0 if there was no answer, because a worker ended."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        try:
            connection.request("POST", path, body)
            response = connection.getresponse()
            response.read()
            return response.status
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            connection.close()

    def post_events(self, count: int) -> list[int]:
        """The statuses of so many requests, four at once, each with its number."""
        with ThreadPoolExecutor(4) as pool:
            return list(pool.map(lambda number: self.post("/events", b"%d" % number), range(count)))


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    with contextlib.ExitStack() as stack:

        def start(cluster: MockCluster, kind: str, *more: str, **about: float) -> Server:
            server = Server(cluster, kind, tmp_path, *more, **about)
            stack.enter_context(server.program)
            server.program.wait_until(server.is_up, "up")
            return server

        yield start


@pytest.mark.parametrize("worker", ["gthread --preload", *one_of("gthread", "sync", "gevent")])
def test_workers_that_are_replaced_lose_nothing(worker: str, serve: Callable[..., Server]) -> None:
    """--max-requests: each sends what it was told to, though it waits for more."""
    kind, *more = worker.split()
    with MockCluster(topics={"flask": PARTITIONS}) as cluster:
        server = serve(cluster, kind, "--max-requests", str(EACH), "--graceful-timeout", str(int(LIMIT_S)), *more)
        statuses = server.post_events(REQUESTS)
        server.program.end()
        values = [record.value or b"" for partition in range(PARTITIONS) for record in cluster.log("flask", partition)]
    said = server.program.said()
    assert "Autorestarting worker" in said, said  # with gevent it takes more requests until it looks again
    answered = {number for number, status in enumerate(statuses) if status == ANSWERED}
    assert len(answered) > REQUESTS // 2
    assert values.count(b"loaded") == len(more), "by the master"
    log = [int(value) for value in values if value != b"loaded"]
    assert len(log) == len(set(log)), "once"
    assert answered <= set(log), f"{answered - set(log)} of {len(answered)}\n{said}"
    assert "Traceback" not in said, said


@pytest.mark.parametrize("more", one_of([], ["--lazy-apps"]))
def test_a_worker_of_uwsgi_with_threads_sends_what_it_holds_as_it_ends(more: list[str], serve: Callable[..., Server]) -> None:
    """The last request may not be over yet. (With greenlets: tests/gevent/live/test_17_uwsgi.py.)"""
    assert f"`--hook-master-start '{GRACEFULLY}'`" in (ROOT / "docs" / "processes.md").read_text()
    with MockCluster(topics={"flask": PARTITIONS}) as cluster:
        server = serve(cluster, "uwsgi", *more, linger_s=LINGER_S)
        assert server.post_events(EACH) == [ANSWERED] * EACH
        server.program.end()
        values = [record.value or b"" for partition in range(PARTITIONS) for record in cluster.log("flask", partition)]
    assert sorted(map(int, values)) == list(range(EACH)), server.program.said()


@pytest.mark.parametrize("kind", one_of("gevent", "gthread", "sync"))
def test_workers_that_end_while_no_broker_is_there_say_how_many_records_are_lost(kind: str, serve: Callable[..., Server]) -> None:
    """At the end of exit_timeout_ms, 5 s. (Half-way, too, since a --graceful-timeout of 5 s kills them before: tests/public/test_exit.py.)"""
    with MockCluster(topics={"flask": PARTITIONS}) as cluster:
        server = serve(cluster, kind, "--graceful-timeout", str(int(LIMIT_S)))
        while server.post("/records", b"delivered") != 200:
            pass
        cluster.stop_broker(1)
        accepted = server.post_events(REQUESTS // 2).count(ANSWERED)  # a worker that never found a broker answers 503 after max_block_ms
        server.program.end(sign=signal.SIGTERM)
    said = server.program.said()
    left = re.findall(r"ends with (\d+) undelivered record\(s\)", said)
    assert accepted
    assert sum(map(int, left)) == accepted, said
