"""An interpreter that ends with records in a producer that nobody closed (B60, F23): a last flush, bounded, and a word on what was left."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import textwrap
import time
from typing import Any

import pytest

from gkafka import KafkaClient, lifetime
from gkafka.exceptions import KafkaException
from gkafka.handlers import ThreadingHandler
from gkafka.testing import Delay, Error, MockCluster
from tests.handlers.hub import ROOT
from tests.public.aids import LIMIT_S, Runner, error_of, stored_values
from tests.public.forking import script

NOT_LEADER = 6
HANDLERS = pytest.mark.parametrize(("handler", "patched"), [("threading", False), ("gevent", False), ("gevent", True)])


def run_to_its_end(cluster: MockCluster, source: str, handler: str, patched: bool, *, status: int = 0) -> tuple[str, float]:
    """What a program of its own process says to its standard error, and how long its end took."""
    head = "from gevent import monkey; monkey.patch_all()\n" if patched else ""
    begin = f"import time\nfrom gkafka import KafkaClient\nclient = KafkaClient({cluster.bootstrap!r}, handler={handler!r})\n"
    program = head + begin + textwrap.dedent(source) + "\nprint(time.monotonic(), flush=True)\n"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
        check=False,
        env=dict(os.environ),
    )
    took = time.monotonic() - float(done.stdout.split()[-1])
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stderr, took


PRODUCE = """
producer = client.get_producer(linger_ms=60_000, **OPTIONS)
for i in range(1000):
    producer.produce("t", b"%d" % i)
"""


@HANDLERS
def test_records_of_a_producer_that_was_not_closed_are_sent(cluster: MockCluster, handler: str, patched: bool) -> None:
    said, took = run_to_its_end(cluster, PRODUCE.replace("**OPTIONS", ""), handler, patched)
    assert stored_values(cluster) == [b"%d" % i for i in range(1000)]
    assert said == ""
    assert took < 5


@HANDLERS
def test_pykafkas_producer_is_flushed_too(cluster: MockCluster, handler: str, patched: bool) -> None:
    run_to_its_end(cluster, 'producer = client.topics["t"].get_producer(linger_ms=60_000)\nproducer.produce(b"v")', handler, patched)
    assert stored_values(cluster) == [b"v"]


@HANDLERS
def test_a_silent_broker_costs_exit_timeout_ms_and_what_was_left_is_said(cluster: MockCluster, handler: str, patched: bool) -> None:
    cluster.on("Produce", Delay(60), times=None)
    said, took = run_to_its_end(cluster, PRODUCE.replace("**OPTIONS", "exit_timeout_ms=700"), handler, patched)
    assert 0.4 < took < 6
    (line,) = said.strip().splitlines()
    assert re.search(r"1000 undelivered record\(s\) .*exit_timeout_ms=700\): t: 1000$", line), said


CUT = """
import signal, sys
signal.signal(signal.SIGALRM, lambda *_: sys.exit(7))
producer = client.get_producer(linger_ms=60_000, retry_backoff_ms=700, **OPTIONS)
for i in range(50):
    producer.produce("t", b"%d" % i)
signal.setitimer(signal.ITIMER_REAL, 0.2)
print(time.monotonic(), flush=True)
producer.close()
"""


@HANDLERS
def test_what_a_close_that_was_cut_short_has_left_is_sent(cluster: MockCluster, handler: str, patched: bool) -> None:
    cluster.on("Produce", Error(NOT_LEADER), times=1)  # a retry is due when the signal comes
    said, _ = run_to_its_end(cluster, CUT.replace("**OPTIONS", ""), handler, patched, status=7)
    assert stored_values(cluster) == [b"%d" % i for i in range(50)]
    assert said == ""


@HANDLERS
def test_what_a_close_that_was_cut_short_has_left_is_told_if_it_cannot_be_sent(cluster: MockCluster, handler: str, patched: bool) -> None:
    cluster.on("Produce", Delay(60), times=None)
    said, _ = run_to_its_end(cluster, CUT.replace("**OPTIONS", "exit_timeout_ms=500"), handler, patched, status=7)
    assert "50 undelivered record(s)" in said


def test_all_producers_share_the_time(cluster: MockCluster) -> None:
    cluster.on("Produce", Delay(60), times=None)
    program = """
    producers = [client.get_producer(linger_ms=60_000, exit_timeout_ms=800) for _ in range(5)]
    for producer in producers:
        producer.produce("t", b"v")
    """
    said, took = run_to_its_end(cluster, program, "threading", False)
    assert took < 3
    assert said.count("t: 1") == 5


@pytest.mark.parametrize("handler", ["threading", "gevent"])
def test_exit_timeout_ms_of_zero_waits_for_nothing(cluster: MockCluster, handler: str) -> None:
    cluster.on("Produce", Delay(60), times=None)
    said, took = run_to_its_end(cluster, PRODUCE.replace("**OPTIONS", "exit_timeout_ms=0"), handler, False)
    assert took < 3
    assert "t: 1000" in said


@HANDLERS
def test_brokers_that_are_gone_do_not_hold_the_end_up(cluster: MockCluster, handler: str, patched: bool) -> None:
    program = """
    from gkafka.testing import MockCluster
    gone = MockCluster(topics={"t": 1})
    client = KafkaClient(gone.bootstrap, handler=client.handler.name)
    producer = client.get_producer(linger_ms=60_000, exit_timeout_ms=500)
    producer.produce("t", b"first").result(5)
    gone.close()
    producer.produce("t", b"v")
    """
    said, took = run_to_its_end(cluster, program, handler, patched)
    assert took < 5
    assert "t: 1" in said


@HANDLERS
def test_a_program_that_ends_by_an_error_still_sends(cluster: MockCluster, handler: str, patched: bool) -> None:
    program = PRODUCE.replace("**OPTIONS", "") + "\nimport atexit\nprint(time.monotonic(), flush=True)\nraise SystemExit(3)\n"
    run_to_its_end(cluster, program, handler, patched, status=3)
    assert len(stored_values(cluster)) == 1000


def test_a_closed_producer_says_nothing(cluster: MockCluster) -> None:
    program = PRODUCE.replace("**OPTIONS", "") + "import atexit\natexit.register(client.close)\n"
    said, _ = run_to_its_end(cluster, program, "threading", False)
    assert said == ""
    assert len(stored_values(cluster)) == 1000


def test_a_hub_in_a_thread_of_its_own_goes_on_until_all_is_sent(cluster: MockCluster) -> None:
    program = """
    import threading
    ready = threading.Event()

    def work():
        import gevent
        client = KafkaClient(BOOTSTRAP, handler="gevent")
        producer = client.get_producer(linger_ms=60_000)
        for i in range(100):
            producer.produce("t", b"%d" % i)
        keep.append(producer)
        ready.set()
        gevent.sleep(3600)

    keep = []
    threading.Thread(target=work, daemon=True).start()
    ready.wait()
    """
    said, took = run_to_its_end(cluster, program.replace("BOOTSTRAP", repr(cluster.bootstrap)), "gevent", False)
    assert said == ""
    assert took < 5
    assert len(stored_values(cluster)) == 100


# -- processes that end without the interpreter's own end ------------------------------------------------------------------------
CHILD = """
    import multiprocessing
    cluster = MockCluster(topics={"t": 1})

    def work():
        client = KafkaClient(cluster.bootstrap, handler=HANDLER)
        producer = client.get_producer(linger_ms=60_000)
        for i in range(100):
            producer.produce("t", b"%d" % i)

    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join(20)
    print(child.exitcode, len(cluster.log("t", 0)))
    cluster.close()
"""


@HANDLERS
def test_a_process_of_multiprocessing_sends_what_its_producers_hold(handler: str, patched: bool) -> None:
    """It ends by os._exit(), after finalizers of its own."""
    assert script(CHILD, handler, patched) == ["0 100"]


@pytest.mark.parametrize("handler", ["threading", "gevent"])
def test_what_was_called_at_the_end_is_not_called_again_by_python(cluster: MockCluster, handler: str) -> None:
    """A process that multiprocessing has spawned calls both: it waited for exit_timeout_ms twice, and said twice what was left."""
    cluster.on("Produce", Delay(60), times=None)
    program = PRODUCE.replace("**OPTIONS", "exit_timeout_ms=700") + "\nfrom gkafka import lifetime\nlifetime._flush_at_exit()\n"
    said, took = run_to_its_end(cluster, program, handler, False)
    assert took < 0.6
    assert said.count("1000 undelivered record(s)") == 1


UWSGI = """
    import types
    uwsgi = sys.modules["uwsgi"] = types.ModuleType("uwsgi")
    called = []
    uwsgi.atexit = lambda: called.append(len(cluster.log("t", 0)))
    cluster = MockCluster(topics={"t": 1})
    client = KafkaClient(cluster.bootstrap, handler=HANDLER)
    producers = [client.get_producer(linger_ms=60_000) for _ in range(3)]
    for producer in producers:
        producer.produce("t", b"v")
    uwsgi.atexit()
    print(called, len(cluster.log("t", 0)))
    os._exit(0)
"""


@HANDLERS
def test_uwsgi_which_runs_no_exit_hooks_calls_what_it_finds(handler: str, patched: bool) -> None:
    """What the program put there is called first, once. (tests/gevent/live/test_17_uwsgi.py asks uWSGI itself.)"""
    assert script(UWSGI, handler, patched) == ["[0] 3"]


# -- what the last flush stands on -------------------------------------------------------------------------------------------
def test_the_connection_opens_while_the_first_batch_lingers(client: KafkaClient, run: Runner) -> None:
    producer = client.get_producer(linger_ms=60_000)
    producer.produce("t", b"v")
    run.until(lambda: any(c["role"] == "produce" and c["open"] for b in client.stats()["brokers"] for c in b["connections"]))
    assert producer.stats()["requests"] == 0


def test_a_thread_that_cannot_start_any_more_is_an_error_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.12 and newer start no thread once the interpreter ends."""

    def refuse(*_: Any) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    handler = ThreadingHandler()
    monkeypatch.setattr("threading.Thread.start", refuse)
    error = error_of(handler.spawn, lambda: None)
    assert "the interpreter ends" in str(error)
    assert not handler.workers()


def test_a_flush_that_can_start_no_thread_ends_in_time(
    client: KafkaClient, cluster: MockCluster, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    if run.gevent:
        pytest.skip("greenlets need no thread")
    producer = client.get_producer(linger_ms=60_000, exit_timeout_ms=300)
    producer.produce("t", b"v").result(LIMIT_S)
    producer.produce("t", b"w")
    cluster.close_connections()
    run.until(lambda: not any(c["open"] for b in client.stats()["brokers"] for c in b["connections"]))

    def refuse(*_: Any) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr("threading.Thread.start", refuse)
    begun = time.monotonic()
    lifetime._flush_at_exit()
    assert time.monotonic() - begun < 5
    assert producer.reported or producer.stats()["failed_records"] == 1
    monkeypatch.undo()
    with contextlib.suppress(KafkaException):
        producer.close(0)


@HANDLERS
@pytest.mark.parametrize("ended", [False, True])
def test_a_transaction_that_nobody_ended_is_told(cluster: MockCluster, handler: str, patched: bool, ended: bool) -> None:
    """Its records are sent, and all of them are acknowledged: still nobody will see them."""
    program = """
    producer = client.get_producer(linger_ms=60_000, transactional_id="x")
    producer.begin_transaction()
    producer.produce("t", b"v")
    producer.flush()
    """ + ("producer.commit_transaction()" if ended else "")
    said, _ = run_to_its_end(cluster, program, handler, patched)
    assert [r.value for r in cluster.log("t", 0, committed=True)] == ([b"v"] if ended else [])
    if ended:
        assert said == ""
    else:
        (line,) = said.strip().splitlines()
        assert re.search(r"transactional id 'x': the interpreter ends in the middle of a transaction \(in transaction\)", line), said
