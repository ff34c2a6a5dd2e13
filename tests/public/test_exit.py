"""An interpreter that ends with records in a producer that nobody closed (B60, F23): a last flush, bounded, and a word on what was left."""

from __future__ import annotations

import contextlib
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from gkafka import KafkaClient, lifetime
from gkafka.exceptions import KafkaException
from gkafka.handlers import ThreadingHandler
from gkafka.testing import Delay, Error, MockCluster
from tests.kit.clock import Span, now
from tests.public.aids import LIMIT_S, Runner, error_of, stored_values
from tests.public.forking import script
from tests.public.programs import play

NOT_LEADER = 6
STARTS_THREADS = pytest.mark.skipif(sys.version_info >= (3, 12), reason="no thread can be started at the interpreter's end")
HANDLERS = pytest.mark.parametrize(("handler", "patched"), [("threading", False), ("gevent", False), ("gevent", True)])


def run_to_its_end(
    cluster: MockCluster, source: str, handler: str, patched: bool, *, status: int = 0, alone: bool = False
) -> tuple[str, float]:
    """What a program of its own process says to its standard error, and how long its end took. alone: in an interpreter of its own."""
    begin = f"import time\nfrom tests.kit.clock import now\nfrom gkafka import KafkaClient\nclient = KafkaClient({cluster.bootstrap!r}, handler={handler!r})\n"
    program = begin + textwrap.dedent(source) + "\nprint(now(), flush=True)\n"
    done = play(program, patched=patched, alone=alone)
    took = now() - float(done.stdout.split()[-1])
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stderr, took


PATIENT = "exit_timeout_ms=100_000"
PRODUCE = """
producer = client.get_producer(linger_ms=60_000, **OPTIONS)
for i in range(1000):
    producer.produce("t", b"%d" % i)
"""


@HANDLERS
def test_records_of_a_producer_that_was_not_closed_are_sent(cluster: MockCluster, handler: str, patched: bool) -> None:
    said, took = run_to_its_end(cluster, PRODUCE.replace("**OPTIONS", PATIENT), handler, patched, alone=True)
    assert stored_values(cluster) == [b"%d" % i for i in range(1000)]
    assert said == ""
    assert took < 30


@HANDLERS
def test_pykafkas_producer_is_flushed_too(cluster: MockCluster, handler: str, patched: bool) -> None:
    run_to_its_end(cluster, 'producer = client.topics["t"].get_producer(linger_ms=60_000)\nproducer.produce(b"v")', handler, patched)
    assert stored_values(cluster) == [b"v"]


@HANDLERS
def test_a_silent_broker_costs_exit_timeout_ms_and_what_was_left_is_said(cluster: MockCluster, handler: str, patched: bool) -> None:
    cluster.on("Produce", Delay(300), times=None)
    said, took = run_to_its_end(cluster, PRODUCE.replace("**OPTIONS", "exit_timeout_ms=200"), handler, patched)
    assert 0.1 < took < 30
    (line,) = said.strip().splitlines()
    assert re.search(r"1000 undelivered record\(s\) .*exit_timeout_ms=200\): t: 1000$", line), said


CUT = """
import signal, sys
signal.signal(signal.SIGALRM, lambda *_: sys.exit(7))
producer = client.get_producer(linger_ms=60_000, retry_backoff_ms=700, **OPTIONS)
for i in range(50):
    producer.produce("t", b"%d" % i)
print(now(), flush=True)
signal.setitimer(signal.ITIMER_REAL, 0.2)
producer.close()
"""


@HANDLERS
def test_what_a_close_that_was_cut_short_has_left_is_sent(cluster: MockCluster, handler: str, patched: bool) -> None:
    cluster.on("Produce", Error(NOT_LEADER), times=1)  # a retry is due when the signal comes
    said, _ = run_to_its_end(cluster, CUT.replace("**OPTIONS", PATIENT), handler, patched, status=7)
    assert stored_values(cluster) == [b"%d" % i for i in range(50)]
    assert "undelivered" not in said  # on a busy machine the signal may find a question for metadata, which is told


@HANDLERS
def test_what_a_close_that_was_cut_short_has_left_is_told_if_it_cannot_be_sent(cluster: MockCluster, handler: str, patched: bool) -> None:
    cluster.on("Produce", Delay(300), times=None)
    said, _ = run_to_its_end(cluster, CUT.replace("**OPTIONS", "exit_timeout_ms=200"), handler, patched, status=7)
    assert "50 undelivered record(s)" in said


def test_all_producers_share_the_time(cluster: MockCluster) -> None:
    cluster.on("Produce", Delay(300), times=None)
    program = """
    producers = [client.get_producer(linger_ms=60_000, exit_timeout_ms=800) for _ in range(40)]
    for producer in producers:
        producer.produce("t", b"v")
    """
    said, took = run_to_its_end(cluster, program, "threading", False)
    assert took < 20, "not 40 times 0.8 s"
    assert said.count("t: 1") == 40


@pytest.mark.parametrize("handler", ["threading", "gevent"])
def test_exit_timeout_ms_of_zero_waits_for_nothing(cluster: MockCluster, handler: str) -> None:
    cluster.on("Produce", Delay(300), times=None)
    said, took = run_to_its_end(cluster, PRODUCE.replace("**OPTIONS", "exit_timeout_ms=0"), handler, False)
    assert took < 30
    assert "exit_timeout_ms=0): t: 1000" in said


KILLED = """
    import logging, os
    from gkafka import lifetime

    class Kill(logging.Handler):
        def emit(self, record):
            print(record.levelname, record.getMessage(), flush=True)
            if "waits for up to" in record.getMessage():
                os._exit(9)

    logging.getLogger("gkafka").addHandler(Kill())
    producer = client.get_producer(linger_ms=60_000, exit_timeout_ms=100_000)
    for i in range(1000):
        producer.produce("t", b"%d" % i)
    lifetime._half_way = lambda producer, deadline: 0.0
"""


@HANDLERS
def test_what_waits_is_said_before_the_time_is_over_since_the_process_may_be_killed(
    cluster: MockCluster, handler: str, patched: bool
) -> None:
    """gunicorn kills its workers after --graceful-timeout: with 5 s nothing told of the records that were lost."""
    cluster.on("Produce", Delay(300), times=None)
    begin = f"from gkafka import KafkaClient\nclient = KafkaClient({cluster.bootstrap!r}, handler={handler!r})\n"
    done = play(begin + textwrap.dedent(KILLED), patched=patched, alone=True)
    assert done.returncode == 9, done.stderr
    line = done.stdout.splitlines()[-1]
    assert re.match(
        r"WARNING the interpreter ends, and waits for up to [\d.]+ s more \(exit_timeout_ms=100000\) for 1000 record\(s\)", line
    ), line
    assert line.endswith(" loses them: t: 1000")


@pytest.mark.parametrize(("timeout_ms", "silent_s"), [(5000, 2.5), (2000, 1.0), (1999, 1.999), (200, 0.2), (0, 0)])
def test_half_of_the_time_is_waited_for_in_silence_or_all_if_it_is_short(client: KafkaClient, timeout_ms: int, silent_s: float) -> None:
    producer = client.get_producer(exit_timeout_ms=timeout_ms)
    deadline = 1000 + timeout_ms / 1000
    assert lifetime._half_way(producer, deadline) == pytest.approx(1000 + silent_s)


@HANDLERS
def test_brokers_that_are_gone_do_not_hold_the_end_up(cluster: MockCluster, handler: str, patched: bool) -> None:
    program = """
    from gkafka.testing import MockCluster
    gone = MockCluster(topics={"t": 1})
    client = KafkaClient(gone.bootstrap, handler=client.handler.name)
    producer = client.get_producer(linger_ms=60_000, exit_timeout_ms=200)
    producer.produce("t", b"first").result(60)
    gone.close()
    producer.produce("t", b"v")
    """
    said, took = run_to_its_end(cluster, program, handler, patched)
    assert took < 30
    assert "t: 1" in said


@pytest.mark.parametrize(
    ("handler", "patched", "elsewhere"),
    [
        pytest.param("threading", False, False, marks=STARTS_THREADS),
        ("gevent", False, False),
        ("gevent", True, False),
        ("gevent", False, True),
    ],
)
def test_a_broker_that_is_back_is_tried_before_the_time_is_over(cluster: MockCluster, handler: str, patched: bool, elsewhere: bool) -> None:
    """It rested for longer than exit_timeout_ms after the last try that failed, and records were lost beside a healthy broker."""
    program = """
    import threading
    from gkafka.testing import MockCluster
    back = MockCluster(topics={"t": 1})
    keep, ready = [], threading.Event()

    def work():
        client = KafkaClient(back.bootstrap, handler=HANDLER, reconnect_backoff_ms=3_600_000, reconnect_backoff_max_ms=3_600_000)
        producer = client.get_producer(linger_ms=0, exit_timeout_ms=60_000)
        producer.produce("t", b"first").result(60)
        back.stop_broker(1)
        producer.produce("t", b"v")
        while not client.stats()["brokers"][0]["failures"]:
            client.handler.sleep(0.01)
        back.start_broker(1)
        keep.append(producer)
        ready.set()
        if ELSEWHERE:
            client.handler.sleep(3600)

    if ELSEWHERE:
        threading.Thread(target=work, daemon=True).start()
        ready.wait()
    else:
        work()
    """
    said, _ = run_to_its_end(cluster, program.replace("HANDLER", repr(handler)).replace("ELSEWHERE", repr(elsewhere)), handler, patched)
    assert "undelivered" not in said


@HANDLERS
def test_a_program_that_ends_by_an_error_still_sends(cluster: MockCluster, handler: str, patched: bool) -> None:
    program = PRODUCE.replace("**OPTIONS", PATIENT) + "\nimport atexit\nprint(now(), flush=True)\nraise SystemExit(3)\n"
    run_to_its_end(cluster, program, handler, patched, status=3)
    assert len(stored_values(cluster)) == 1000


EXITS_AGAIN = {
    "gevent": "import gevent\ngevent.spawn_later(0.1, sys.exit, 7)\n",  # as a worker of gunicorn's does for SIGINT
    "threading": "import atexit\nsignal.signal(signal.SIGALRM, lambda *_: sys.exit(7))\n"
    "atexit.register(signal.setitimer, signal.ITIMER_REAL, 0.2)\n",  # what was registered last is called first: the end has begun
}


@HANDLERS
def test_another_exit_in_the_middle_of_it_does_not_end_it(cluster: MockCluster, handler: str, patched: bool) -> None:
    """It was taken for a second Ctrl-C: records were lost that a healthy broker was about to take."""
    cluster.on("Produce", Delay(0.5), times=1)
    program = PRODUCE.replace("**OPTIONS", PATIENT) + "import signal, sys\n" + EXITS_AGAIN[handler]
    said, _ = run_to_its_end(cluster, program, handler, patched)
    assert stored_values(cluster) == [b"%d" % i for i in range(1000)]
    assert said == ""


GOES_ON = """
import atexit
import os
from gkafka import lifetime
from gkafka.exceptions import ProducerStoppedException

def note(told):
    os.write(accepted, told + b"\\n")

def work(number):
    sent = 0
    while True:
        value = b"%d.%d" % (number, sent)
        try:
            producer.produce("t", value)
        except ProducerStoppedException as exc:
            note(b"refused: " + str(exc).encode())
            return
        note(value)
        sent += 1
        client.handler.sleep(0.002)

def last():
    producer.produce("t", b"last").result(60)
    note(b"last")

accepted = os.open(FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
producer = client.get_producer(linger_ms=60_000, exit_timeout_ms=100_000)
producer.produce("t", b"first").result(60)
note(b"first")
atexit.unregister(lifetime._end_at_exit)
atexit.register(last)  # as if it had been there before gkafka was imported: it comes behind the last flush
atexit.register(lifetime._end_at_exit)
for number in range(5):
    client.handler.spawn(work, number)
client.handler.sleep(0.1)
"""


@HANDLERS
def test_what_goes_on_meanwhile_is_sent_or_refused(cluster: MockCluster, tmp_path: Path, handler: str, patched: bool) -> None:
    """Who went on for ever had records accepted that nobody sent. A hook of the program that comes behind may send, and waits for it."""
    cluster.on("Produce", Delay(0.1), times=None)
    file = tmp_path / "accepted"
    said, took = run_to_its_end(cluster, GOES_ON.replace("FILE", repr(str(file))), handler, patched)
    told = file.read_bytes().splitlines()
    refused = [line for line in told if line.startswith(b"refused: ")]
    assert sorted(stored_values(cluster)) == sorted(line for line in told if line not in refused)
    assert len(refused) == 5
    assert b"the interpreter ends" in refused[0]
    assert told[-1] == b"last"
    assert all("the interpreter ends, and waits for" in line for line in said.splitlines()), "at most that half of the time is over"
    assert took < 30


def test_a_closed_producer_says_nothing(cluster: MockCluster) -> None:
    program = PRODUCE.replace("**OPTIONS", PATIENT) + "import atexit\natexit.register(client.close)\n"
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
        producer = client.get_producer(linger_ms=60_000, exit_timeout_ms=100_000)
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
    assert took < 30
    assert len(stored_values(cluster)) == 100


# -- hubs that cannot send -----------------------------------------------------------------------------------------------------
IN_A_THREAD = """
    import gevent, threading
    keep, ready, ended = [], threading.Event(), threading.Event()

    def work():
        client = KafkaClient(BOOTSTRAP, handler="gevent")
        producer = client.get_producer(linger_ms=60_000, exit_timeout_ms=TIMEOUT)
        for _ in range(100):
            producer.produce("t", b"v")
        keep.append(producer)
        ready.set()
        THEN

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    ready.wait()
"""
THE_END = """
    from gkafka import lifetime
    begun = now()
    lifetime._end_at_exit()
    print(now() - begun, file=sys.stderr)
"""


def last_flush(cluster: MockCluster, then: str, timeout_ms: int, *, before: str = "pass", whole: str = IN_A_THREAD) -> tuple[str, float]:
    """What is said at the end, and how long that takes, of a program whose hub does this after its records were produced."""
    source = "    import sys\n" + whole.replace("THEN", then).replace("TIMEOUT", str(timeout_ms)).replace(
        "BOOTSTRAP", repr(cluster.bootstrap)
    )
    said, _ = run_to_its_end(cluster, source + "    " + before + THE_END, "gevent", False)
    *lines, seconds = said.splitlines()
    return "\n".join(lines), Span(seconds)


@pytest.mark.parametrize(
    ("then", "before"),
    [
        ("pass", "thread.join()"),
        ("gevent.get_hub().destroy(); ended.set(); time.sleep(100)", "ended.wait()"),
        ("gevent.sleep(0.5)", "pass"),
    ],
    ids=["its thread has ended", "it was destroyed", "its thread ends while we wait"],
)
def test_nobody_waits_for_a_hub_that_has_ended(cluster: MockCluster, then: str, before: str) -> None:
    cluster.on("Produce", Delay(300), times=None)
    said, took = last_flush(cluster, then, 100_000, before=before)
    assert "with 100 undelivered record(s)" in said
    assert said.endswith("t: 100 (nobody can send them, the hub of their client was destroyed, or its thread has ended)"), said
    assert took < 30


DESTROYED = """
    import gevent
    producer = client.get_producer(linger_ms=60_000, exit_timeout_ms=TIMEOUT)
    for _ in range(100):
        producer.produce("t", b"v")
    gevent.get_hub().destroy()
"""


def test_nobody_waits_for_the_main_threads_hub_either_when_that_was_destroyed(cluster: MockCluster) -> None:
    said, took = last_flush(cluster, "", 100_000, whole=DESTROYED)
    assert said.endswith("t: 100 (nobody can send them, the hub of their client was destroyed, or its thread has ended)"), said
    assert took < 30


@pytest.mark.parametrize("timeout_ms", [0, 300])
@pytest.mark.parametrize("then", ["time.sleep(60)", "gevent.sleep(3600)"], ids=["blocked", "turning"])
def test_a_hub_of_another_thread_costs_no_more_than_exit_timeout_ms(cluster: MockCluster, then: str, timeout_ms: int) -> None:
    cluster.on("Produce", Delay(300), times=None)
    said, took = last_flush(cluster, then, timeout_ms)
    assert re.search(rf"with 100 undelivered record\(s\) .*exit_timeout_ms={timeout_ms}\): t: 100", said), said
    assert said.endswith(" (the hub of their client does not turn, its thread is blocked)") == (then == "time.sleep(60)"), said
    assert took < 30


def test_many_hubs_that_are_blocked_cost_it_once(cluster: MockCluster) -> None:
    cluster.on("Produce", Delay(300), times=None)
    more = "[threading.Thread(target=work, daemon=True).start() for _ in range(29)]\n    while len(keep) < 30: time.sleep(0.01)"
    said, took = last_flush(cluster, "time.sleep(60)", 1000, before=more)
    assert said.count("its thread is blocked") == 30
    assert took < 15, "not 30 times a second"


INTERRUPTED = """
    import signal
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    from gkafka import lifetime
    began = now()
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        lifetime._end_at_exit()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    before = turns[-1]
    time.sleep(0.3)
    print(turns[-1] - before, file=sys.stderr)
"""


def test_ctrl_c_ends_the_wait_and_hubs_stand_still_all_the_same(cluster: MockCluster) -> None:
    cluster.on("Produce", Delay(300), times=None)
    then = "turns.append(0)\n        while True: gevent.sleep(0.001); turns[0] += 1"
    source = "    import sys\n    turns = []\n" + IN_A_THREAD.replace("THEN", then).replace("TIMEOUT", "100_000")
    said, took = run_to_its_end(cluster, source.replace("BOOTSTRAP", repr(cluster.bootstrap)) + INTERRUPTED, "gevent", False)
    assert re.fullmatch(r".*with 100 undelivered record\(s\) .*\ninterrupted\n0\n", said), said
    assert took < 30


def test_ctrl_c_ends_the_wait_for_a_hub_that_is_blocked(cluster: MockCluster) -> None:
    cluster.on("Produce", Delay(300), times=None)
    source = "    import sys\n    turns = [0]\n" + IN_A_THREAD.replace("THEN", "time.sleep(60)").replace("TIMEOUT", "100_000")
    timed = INTERRUPTED.replace("print(turns[-1] - before", "print(now() - began")
    said, _ = run_to_its_end(cluster, source.replace("BOOTSTRAP", repr(cluster.bootstrap)) + timed, "gevent", False)
    *_, word, seconds = said.split()
    assert word == "interrupted"
    assert Span(seconds) < 30


# -- processes that end without the interpreter's own end ------------------------------------------------------------------------
CHILD = """
    import multiprocessing
    cluster = MockCluster(topics={"t": 1})

    def work():
        client = KafkaClient(cluster.bootstrap, handler=HANDLER)
        producer = client.get_producer(linger_ms=60_000, exit_timeout_ms=100_000)
        for i in range(100):
            producer.produce("t", b"%d" % i)

    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join(60)
    print(child.exitcode, len(cluster.log("t", 0)))
    cluster.close()
"""


@HANDLERS
def test_a_process_of_multiprocessing_sends_what_its_producers_hold(handler: str, patched: bool) -> None:
    """It ends by os._exit(), after finalizers of its own."""
    assert script(CHILD, handler, patched) == ["0 100"]


WENT_ON = """
    import logging, multiprocessing
    cluster = MockCluster(topics={"t": 1})
    client = KafkaClient(cluster.bootstrap, handler=HANDLER)
    producer = MAKE(linger_ms=60_000, exit_timeout_ms=100_000, on_fork="recreate")
    idle = client.get_producer(linger_ms=60_000)
    said = logging.FileHandler(SAID)
    logging.getLogger("gkafka").addHandler(said)
    for one in (lambda value: producer.produce(*TO, value), lambda value: idle.produce("t", value)):
        one(b"parent")

    def work():
        for i in range(100):
            producer.produce(*TO, b"%d" % i)

    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join(60)
    print(child.exitcode, [r.value for r in cluster.log("t", 0)] == [b"%d" % i for i in range(100)])
    client.close()
    print(sorted(r.value for r in cluster.log("t", 0))[-2:])
    cluster.close()
"""
PRODUCERS = {"native": ("client.get_producer", '("t",)'), "pykafka": ('client.topics["t"].get_producer', "()")}


@HANDLERS
@pytest.mark.parametrize("skin", PRODUCERS)
def test_a_process_of_multiprocessing_sends_what_a_producer_took_that_went_on_in_it(
    tmp_path: Path, handler: str, patched: bool, skin: str
) -> None:
    """on_fork="recreate": the child's finalizers are its own, and its parent's records are none of its undelivered ones."""
    make, to = PRODUCERS[skin]
    program = WENT_ON.replace("MAKE", make).replace("TO", to).replace("SAID", repr(str(tmp_path / "said")))
    assert script(program, handler, patched) == ["0 True", "[b'parent', b'parent']"]
    assert "undelivered" not in (tmp_path / "said").read_text()


POOL = """
    import functools, multiprocessing
    cluster = MockCluster(topics={"t": 1})

    @functools.cache
    def producer(pid):
        return KafkaClient(cluster.bootstrap, handler=HANDLER).get_producer(linger_ms=60_000, exit_timeout_ms=100_000)

    def work(number):
        producer(os.getpid()).produce("t", b"%d" % number)
        return os.getpid()

    pool = multiprocessing.get_context("fork").Pool(2, maxtasksperchild=4)
    pids = pool.map(work, range(16), chunksize=1)
    pool.close()
    pool.join()
    print(len(set(pids)) > 2, sorted(int(record.value) for record in cluster.log("t", 0)) == list(range(16)))
    cluster.close()
"""


def test_workers_of_a_pool_that_are_replaced_send_what_their_producers_hold() -> None:
    """Each ends after four of 16 tasks, with records that would have waited for a minute."""
    assert script(POOL, "threading", False) == ["True True"]


ONCE_MORE = """
import sys
from gkafka import lifetime
lifetime._end_at_exit()
lifetime._flush = lambda *_: print("waited again", file=sys.stderr)
"""


@pytest.mark.parametrize("handler", ["threading", "gevent"])
def test_what_was_called_at_the_end_is_not_called_again_by_python(cluster: MockCluster, handler: str) -> None:
    """A process that multiprocessing has spawned calls both: it waited for exit_timeout_ms twice, and said twice what was left."""
    cluster.on("Produce", Delay(300), times=None)
    program = PRODUCE.replace("**OPTIONS", "exit_timeout_ms=200") + ONCE_MORE
    said, _ = run_to_its_end(cluster, program, handler, False)
    assert "waited again" not in said
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
    begun = now()
    lifetime._end_at_exit()
    assert now() - begun < 30
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
