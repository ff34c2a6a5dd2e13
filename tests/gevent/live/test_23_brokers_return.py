"""23: with all brokers down and nothing but the library's waits left, the program waits on, and goes on when a broker returns."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable
from typing import Any

import gevent

from benchmarks.figures import stub_broker
from tests.gevent.harness import LIMIT_S, PATCHED, UNPATCHED, connect, in_children
from tests.kit.clock import Span, now

DOWN_S, BACKOFF_S = 10.0, 1.0
ON_WITHIN_S = 40.0
"""Of the broker's return; calls may wait for LIMIT_S in all."""


def brokers_return() -> None:
    """Nobody in this process brings the broker back: the main greenlet and all others wait inside gkafka, and there is no watcher but gkafka's."""
    broker = stub_broker()
    with broker as hosts:
        client = connect(hosts, reconnect_backoff_max_ms=1000 * BACKOFF_S)
        producer, flushed = client.get_producer(), client.get_producer()
        for each in (producer, flushed):
            each.produce("t", b"before").result(LIMIT_S)
        consumer = client.get_consumer()
        consumer.assign({("t", 0): 0})
        for _ in range(2):
            assert consumer.consume(1000 * LIMIT_S) is not None
        command = [*broker.command, "--port", hosts.rpartition(":")[2]]
    down = now()
    again = subprocess.Popen(["sh", "-c", f"sleep {DOWN_S}; exec {shlex.join(command)}"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    ended: dict[str, Span] = {}

    def waits(what: str, call: Callable[[], Any]) -> Callable[[], None]:
        def run() -> None:
            call()
            ended[what] = now() - down

        return run

    try:
        flushed.produce("t", b"after")
        calls = {
            "flush": lambda: flushed.flush(LIMIT_S),
            "list_offsets": lambda: client.list_offsets({("t", 0): -1}, timeout=LIMIT_S),
        }
        beside = [gevent.spawn(waits(*item)) for item in calls.items()]
        empty = gevent.spawn(consumer.consume, 1000 * DOWN_S / 2)
        offset = producer.produce("t", b"after").result(LIMIT_S).offset
        ended["result"] = now() - down
        gevent.joinall(beside, timeout=LIMIT_S, raise_error=True)
        assert empty.get(timeout=LIMIT_S) is None
        for what, seconds in ended.items():
            assert seconds >= DOWN_S, f"{what} took {seconds:.1f} s"
            assert seconds < DOWN_S + ON_WITHIN_S, f"{what} took {seconds:.1f} s"
        consumer.assign({("t", 0): offset})
        message = consumer.consume(1000 * LIMIT_S)
        assert message is not None
        assert message.value == b"after"
        client.close()
    finally:
        assert again.stdin is not None
        again.stdin.close()
        again.wait(LIMIT_S)


def test_23_there_is_no_loop_exit_while_all_brokers_are_down() -> None:
    in_children([UNPATCHED, PATCHED], brokers_return, timeout=150)
