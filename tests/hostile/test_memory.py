"""F29, G24: what a producer that is faster than its broker, and a consumer that is slower, hold in memory; and that work leaves none of it behind.

The client is alone in its process: the mock's logs are another's.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator

import pytest

from tests.effort import one_of

BROKERS = """
    import sys
    from gkafka.testing import Delay, MockCluster
    from tests.records.handmade import batch, record

    with MockCluster(topics={"slow": 1}) as slow, MockCluster(topics={"full": 1, "busy": 1}) as cluster:
        large = record(0, b"x" * (1 << 20))
        for offset in range(128):
            cluster.append("full", 0, batch([large], base_offset=offset, attributes=0))
        slow.on("Produce", Delay(0.5), times=None)
        print(slow.bootstrap, cluster.bootstrap, flush=True)
        sys.stdin.read()
"""
CLIENT = """
    import gc, json, sys
    from gkafka import KafkaClient
    from gkafka.exceptions import BufferFull
    from tests.kit.clock import now

    slow_hosts, hosts, handler = sys.argv[1:]
    MiB = 1 << 20

    def memory(name):  # MiB
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith(name)) / 1024

    def peak_of(work):
        gc.collect()
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # the peak counts from here
        before = memory("VmRSS")
        told = work()
        return memory("VmHWM") - before, told

    def produce_too_fast():
        refused, accepted, deadline = 0, [], now() + 30
        slow.topics["slow"]  # max_block_ms is for the buffer alone
        with slow.get_producer(buffer_bytes=8 * MiB, batch_bytes=MiB // 4, max_block_ms=20) as producer:
            while refused < 20 and now() < deadline:
                try:
                    accepted.append(producer.produce("slow", b"x" * 1000))
                except BufferFull:
                    refused += 1
            producer.flush(60)
        return refused, len(accepted), sum(one.exception(0) is None for one in accepted)

    def consume_too_slowly():
        with client.get_consumer(["full"], fetch_max_bytes=4 * MiB, queued_max_bytes=8 * MiB) as consumer:
            read = 0
            for _ in range(10):
                read += consumer.consume(timeout_ms=60000) is not None
                client.handler.sleep(0.1)
        return read

    def work():
        with client.get_producer() as producer:
            for _ in range(1000):
                last = producer.produce("busy", b"x" * 500)
            at = last.result(60).offset
        with client.get_consumer(["busy"]) as consumer:
            consumer.seek(("busy", 0), at - 999)
            for _ in range(1000):
                assert consumer.consume(timeout_ms=60000) is not None

    def leftover():
        for _ in range(5):
            work()
        gc.collect()
        before = memory("VmRSS")
        for _ in range(10):
            work()
        gc.collect()
        return memory("VmRSS") - before

    with KafkaClient(hosts, handler=handler) as client, KafkaClient(slow_hosts, handler=handler) as slow:
        work()  # what is loaded at its first use is loaded
        print(json.dumps([peak_of(produce_too_fast), peak_of(consume_too_slowly), leftover()]))
"""


def program(text: str, *args: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(text), *args]


@contextlib.contextmanager
def brokers() -> Iterator[list[str]]:
    with subprocess.Popen(program(BROKERS), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        try:
            yield running.stdout.readline().split()
        finally:
            running.stdin.close()
            running.wait(60)


@pytest.mark.parametrize("handler", one_of("gevent", "threading"))
def test_f29_g24_memory_is_what_was_configured_and_64_mib_and_does_not_grow(handler: str) -> None:
    with brokers() as hosts:
        done = subprocess.run(program(CLIENT, *hosts, handler), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    (producing, (refused, accepted, delivered)), (consuming, read), leftover = json.loads(done.stdout)
    assert refused > 0, "the buffer was full"
    assert delivered == accepted > 0, "and what was accepted was delivered"
    assert producing <= 8 + 64, "MiB: buffer_bytes"
    assert read == 10
    assert consuming <= 4 + 8 + 64, "MiB: fetch_max_bytes, queued_max_bytes; 128 were there"
    assert leftover <= 4, "MiB, after 10,000 records more"
