"""4: with all brokers down, every call that takes a timeout returns when that is over, and the hub is free meanwhile.

How soon behind its timeout a call returns is measured by `benchmarks/stalls.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gevent

from gkafka.exceptions import KafkaException
from gkafka.testing import MockCluster
from tests.gevent.harness import LATE, LIMIT_S, PATCHED, UNPATCHED, assert_free_hub, connect, in_children
from tests.kit.clock import Span, now

TIMEOUT_S, EARLY_S, ENDED_S = 2.0, 0.02, 30.0
Calls = dict[str, Callable[[], Any]]


def prepared(hosts: str) -> Calls:
    """Calls of a client that is at work, each of which waits for TIMEOUT_S if nobody answers."""
    client = connect(hosts, api_timeout_ms=1000 * TIMEOUT_S)
    flushed, closed = client.get_producer(), client.get_producer()
    for producer in (flushed, closed):
        producer.produce("t", b"warm", partition=0).result(LIMIT_S)
    consumer = client.get_consumer(group="g", auto_commit=False)
    consumer.assign({("t", 0): 0})
    assert consumer.consume(1000 * LIMIT_S) is not None
    consumer.commit(timeout=LIMIT_S)
    ending = connect(hosts)
    last = ending.get_producer()
    last.produce("t", b"warm", partition=0).result(LIMIT_S)

    def with_a_record(producer: Any, end: Callable[[float], object]) -> Callable[[], object]:
        def call() -> None:
            producer.produce("t", b"never", partition=0)
            end(TIMEOUT_S)

        return call

    return {
        "flush": with_a_record(flushed, flushed.flush),
        "close": with_a_record(closed, closed.close),
        "close of the client": with_a_record(last, ending.close),
        "commit": lambda: consumer.commit({("t", 0): 1}, timeout=TIMEOUT_S),
        "committed": lambda: consumer.committed(("t", 0), timeout=TIMEOUT_S),
        "offsets_for_times": lambda: consumer.offsets_for_times({("t", 0): 1}, timeout=TIMEOUT_S),
        "partitions": lambda: client.partitions("never-asked-for"),
        "update_cluster": client.update_cluster,
        "list_offsets": lambda: client.list_offsets({("t", 0): -1}, timeout=TIMEOUT_S),
        "fetch_raw": lambda: client.fetch_raw("t", 0, 0, timeout=TIMEOUT_S),
        "create_topic": lambda: client.create_topic("new", timeout=TIMEOUT_S),
        "delete_topic": lambda: client.delete_topic("t", timeout=TIMEOUT_S),
        "produce to a new topic": lambda: client.get_producer(max_block_ms=1000 * TIMEOUT_S).produce("another", b"x"),
    }


def broker_down() -> None:
    cluster = MockCluster(1, {"t": 1})
    sets = [prepared(cluster.bootstrap) for _ in range(2)]
    cluster.close()

    def run() -> None:
        took: dict[str, Span] = {}

        def timed(what: str, call: Callable[[], Any]) -> None:
            began = now()
            try:
                call()
            except KafkaException:
                took[what] = now() - began

        calls = sets.pop()
        gevent.joinall([gevent.spawn(timed, *item) for item in calls.items()], raise_error=True)
        assert took.keys() == calls.keys(), f"no error: {calls.keys() - took.keys()}"
        for what, seconds in took.items():
            assert seconds >= TIMEOUT_S - EARLY_S, f"{what}: {seconds:.2f} s"
            assert seconds < ENDED_S, f"{what}: {seconds:.2f} s"

    assert_free_hub(run)


def test_04_calls_end_at_their_timeout_when_all_brokers_are_down() -> None:
    in_children([UNPATCHED, PATCHED, LATE], broker_down)
