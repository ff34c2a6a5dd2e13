"""26: what nobody closes. An interpreter that ends sends what is pending and says nothing; clients that are dropped give everything back.

Exits in each state, on brokers that are gone or silent: tests/public/test_exit.py. What is closed, and each kind of thing dropped alone:
tests/public/test_leaks.py.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.effort import quick_and_thorough
from tests.gevent.harness import HANDLERS, LIMIT_S, PATCHED, connect, greenlets_and_threads, in_child
from tests.gevent.live.recipes import environment
from tests.handlers.hub import ROOT
from tests.kit import clock
from tests.live.kafka import KafkaCluster
from tests.live.peer import Peer

PENDING = 1_000

PROGRAM = """
import sys
from gkafka import KafkaClient

client = KafkaClient(sys.argv[1], handler=sys.argv[2])
producer = client.get_producer(linger_ms=600_000, delivery_timeout_ms=1_200_000)  # longer than the program may take to end
producer.produce(sys.argv[3], b"0").result(60)
member = client.get_consumer(sys.argv[3], group="g-" + sys.argv[3], auto_offset_reset="earliest")
alone = client.get_consumer()
alone.assign({(sys.argv[3], 0): -2})
print(member.consume(60_000).value, alone.consume(60_000).value)
for number in range(1, int(sys.argv[4])):
    producer.produce(sys.argv[3], b"%d" % number)
"""


@greenlets_and_threads
def test_26_an_interpreter_that_ends_sends_what_is_pending_and_says_nothing(
    mode: str, kafka: KafkaCluster, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    patch = "from gevent import monkey\nmonkey.patch_all()\n" if mode == PATCHED else ""
    command = [sys.executable, "-W", "error", "-c", patch + PROGRAM, kafka.hosts, HANDLERS[mode], topic, str(PENDING)]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "b'0' b'0'\n"
    assert [record.value for record in Peer(kafka.hosts, kafka.release).read(topic, PENDING)] == [b"%d" % n for n in range(PENDING)]


# -- dropped ------------------------------------------------------------------------------------------------------------------------------
def held() -> dict[str, int]:
    gc.collect()
    greenlet: Any = sys.modules["gevent"].Greenlet if "gevent" in sys.modules else ()
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "greenlets": sum(isinstance(each, greenlet) and not each.dead for each in gc.get_objects()),
    }


def drop(hosts: str, topic: str, cycles: int) -> dict[str, dict[str, int]]:
    """What is held before and after so many clients that were used and dropped; the first one comes before."""

    def use() -> Any:
        client = connect(hosts)
        client.get_producer().produce(topic, b"v").result(LIMIT_S)
        consumer = client.get_consumer()
        consumer.assign({(topic, 0): -2})
        assert consumer.consume(1000 * LIMIT_S).value == b"v"
        return client.handler

    handler = use()
    sleep = handler.sleep
    deadline = clock.now() + LIMIT_S
    while handler.workers() and clock.now() < deadline:  # they notice within a second that nobody wants them any more
        gc.collect()
        sleep(0.1)
    assert not handler.workers()
    before = held()
    for _ in range(cycles):
        use()
    deadline = clock.now() + LIMIT_S
    while any(now > before[name] for name, now in held().items()) and clock.now() < deadline:
        sleep(0.1)
    return {"before": before, "after": held()}


@greenlets_and_threads
@pytest.mark.parametrize("cycles", quick_and_thorough(25, 100))
def test_26_clients_that_were_dropped_give_everything_back(
    mode: str, cycles: int, kafka: KafkaCluster, new_topic: Callable[..., str]
) -> None:
    told = in_child(mode, drop, kafka.hosts, new_topic(), cycles)
    assert all(now <= told["before"][name] for name, now in told["after"].items()), told
