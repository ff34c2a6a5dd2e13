"""25: SIGINT and SIGTERM reach a program that has records pending. It ends, they are sent first, and no library worker fails aloud."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from gkafka.testing import Delay, MockCluster
from tests.gevent.harness import HANDLERS, LIMIT_S, PATCHED, THREADS, UNPATCHED, greenlets_and_threads
from tests.gevent.live.recipes import Program
from tests.live.kafka import KafkaCluster
from tests.live.peer import Peer

LINGER_S = EXIT_S = 600
"""So long pending records wait for others, and the end of the program for answers: what ends within LIMIT_S has waited for neither."""
PENDING = 1_000

BEGIN = """
import atexit, signal, sys
from gkafka import KafkaClient

signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
hosts, handler, topic = sys.argv[1:4]
LINGER_S = EXIT_S = 600
client = KafkaClient(hosts, handler=handler)
producer = client.get_producer(linger_ms=1000 * LINGER_S, delivery_timeout_ms=2000 * LINGER_S, exit_timeout_ms=1000 * EXIT_S)
for number in range(int(sys.argv[4])):
    producer.produce(topic, b"%d" % number)
"""
IDLE = "client.handler.sleep(3600)"
CONSUMING = """
consumer = client.get_consumer(topic)
print("ready", flush=True)
consumer.consume(3_600_000)
"""
# The worker for callbacks is nearly always on CPU; the program itself waits.
BUSY = """
from tests.kit.clock import busy

def burn(delivery):
    busy(0.02)

burning = client.get_producer(on_delivery=burn, exit_timeout_ms=1000)
for _ in range(5000):
    burning.produce(topic, b"burning")
client.handler.sleep(3600)
"""
STATES = {"idle": IDLE, "consuming": CONSUMING, "busy": BUSY}


def combinations() -> list[Any]:
    """Of signal, state and mode. In short each signal comes in each state, and to each mode; each mode in two states."""
    modes = (UNPATCHED, PATCHED, THREADS)
    every = itertools.product((signal.SIGINT, signal.SIGTERM), STATES, modes)
    quick = {
        (number, state, modes[(at + turn) % 3])
        for turn, number in enumerate((signal.SIGINT, signal.SIGTERM))
        for at, state in enumerate(STATES)
    }
    return [pytest.param(*one, id="-".join((one[0].name, *one[1:])), marks=() if one in quick else pytest.mark.thorough) for one in every]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """Starts a program and waits until it is where a signal is to find it."""
    started: list[Program] = []

    def run(mode: str, state: str, hosts: str, topic: str, pending: int = PENDING) -> Program:
        patch = "from gevent import monkey\nmonkey.patch_all()\n" if mode == PATCHED else ""
        ready = "" if '"ready"' in state else 'print("ready", flush=True)\n'
        source = patch + BEGIN + ready + dedent(state)
        program = Program([sys.executable, "-W", "error", "-c", source, hosts, HANDLERS[mode], topic, str(pending)], tmp_path)
        started.append(program)
        program.wait_until(lambda: "ready\n" in program.said(), "ready")  # where output is not buffered, the line's end comes by itself
        return program

    yield run
    for program in started:
        program.__exit__()


def ended(program: Program) -> None:
    try:
        program.process.wait(LIMIT_S)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"it goes on:\n{program.said()}") from None


@pytest.mark.parametrize(("number", "state", "mode"), combinations())
def test_25_a_signal_ends_the_program_and_what_is_pending_is_sent(
    number: signal.Signals, state: str, mode: str, start: Callable[..., Program], kafka: KafkaCluster, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    program = start(mode, STATES[state], kafka.hosts, topic)
    time.sleep(0.3)  # it is in the middle of what it does
    program.process.send_signal(number)
    ended(program)
    said = program.said()
    assert "failed with" not in said, said
    # The program's own KeyboardInterrupt, and nothing of a worker's.
    assert said.count("Traceback") == (number == signal.SIGINT), said
    assert program.process.returncode == (-signal.SIGINT if number == signal.SIGINT else 0), said
    peer = Peer(kafka.hosts, kafka.release)
    peer.wait_for(topic, PENDING)
    log = [record.value for record in peer.read_all(topic) if record.value != b"burning"]
    assert log == [b"%d" % at for at in range(PENDING)]


CLOSING = """
def end(*_):
    producer.close()
    sys.exit(0)

signal.signal(signal.SIGTERM, end)
count = int(sys.argv[4])
print("ready", flush=True)
try:
    while True:
        producer.produce(topic, b"%d" % count)
        count += 1
        LOOK
finally:
    print("accepted", count, flush=True)
"""
WHERE = {
    "produce": "0",
    "flush": "count % 10 or producer.flush()",
    "own code": "client.handler.sleep(0.005)",
}


def places() -> list[Any]:
    """Of place and mode; in short each of both once."""
    modes = (UNPATCHED, PATCHED, THREADS)
    quick = set(zip(WHERE, modes, strict=True))
    every = itertools.product(WHERE, modes)
    return [pytest.param(*one, id="-".join(one), marks=() if one in quick else pytest.mark.thorough) for one in every]


@pytest.mark.parametrize(("where", "mode"), places())
def test_25_a_handler_that_closes_the_producer_and_exits_loses_nothing(
    where: str, mode: str, start: Callable[..., Program], kafka: KafkaCluster, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    program = start(mode, CLOSING.replace("LOOK", WHERE[where]), kafka.hosts, topic)
    time.sleep(0.3)
    program.process.send_signal(signal.SIGTERM)
    ended(program)
    said = program.said()
    assert "Traceback" not in said, said
    assert program.process.returncode == 0, said
    count = int(said.split("accepted")[1].split()[0])
    assert count > PENDING
    peer = Peer(kafka.hosts, kafka.release)
    peer.wait_for(topic, count)
    log = [record.value for record in peer.read_all(topic)]
    assert log[:count] == [b"%d" % at for at in range(count)]
    assert len(log) <= count + 1


@greenlets_and_threads
def test_25_a_second_sigint_ends_it_at_once(mode: str, start: Callable[..., Program]) -> None:
    with MockCluster(topics={"t": 1}) as cluster:
        cluster.on("Produce", Delay(EXIT_S), times=None)
        state = 'atexit.register(print, "ending", flush=True)\nprint("ready", flush=True)\n' + IDLE
        program = start(mode, state, cluster.bootstrap, "t", 10)
        program.process.send_signal(signal.SIGINT)
        program.wait_until(lambda: "ending" in program.said(), "ending")
        time.sleep(0.3)
        assert program.process.poll() is None, program.said()
        program.process.send_signal(signal.SIGINT)
        ended(program)
        assert "failed with" not in program.said(), program.said()
        assert "10 undelivered record(s)" in program.said(), program.said()
