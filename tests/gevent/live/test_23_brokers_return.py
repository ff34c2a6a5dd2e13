"""23: with all brokers down and nothing but the library's waits left, the program waits on, and goes on when a broker returns."""

from __future__ import annotations

import shlex
import subprocess
from time import monotonic

from benchmarks.figures import stub_broker
from tests.gevent.harness import LIMIT_S, PATCHED, UNPATCHED, connect, in_children

DOWN_S = 8.0
"""A wait of the library is cut into slices of a second, each with a timer: what could end in LoopExit does so within the first ones."""
BACKOFF_S = 1.0


def brokers_return() -> None:
    broker = stub_broker()
    with broker as hosts:
        client = connect(hosts, reconnect_backoff_max_ms=1000 * BACKOFF_S)
        producer = client.get_producer()
        producer.produce("t", b"before").result(LIMIT_S)
        consumer = client.get_consumer()
        consumer.assign({("t", 0): 0})
        assert consumer.consume(1000 * LIMIT_S) is not None
        command = [*broker.command, "--port", hosts.rpartition(":")[2]]
    down = monotonic()
    # Nobody in this process brings it back: there is no greenlet and no watcher but gkafka's.
    again = subprocess.Popen(["sh", "-c", f"sleep {DOWN_S}; exec {shlex.join(command)}"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        offset = producer.produce("t", b"after").result(LIMIT_S).offset
        back = monotonic() - down
        assert DOWN_S <= back <= DOWN_S + BACKOFF_S * 1.2 + 2, f"it took {back:.1f} s"
        consumer.assign({("t", 0): offset})
        message = consumer.consume(1000 * LIMIT_S)
        assert message is not None
        assert message.value == b"after"
        client.close()
    finally:
        assert again.stdin is not None
        again.stdin.close()
        again.wait(10)


def test_23_there_is_no_loop_exit_while_all_brokers_are_down() -> None:
    in_children([UNPATCHED, PATCHED], brokers_return)
