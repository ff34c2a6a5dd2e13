"""10: peers that are there and say nothing: each call ends at its configured time, and the hub is free meanwhile."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from typing import Any

import gevent
import pytest

from benchmarks.figures import stub_broker
from gkafka.exceptions import DeliveryError, KafkaException
from tests.gevent.harness import LIMIT_S, PATCHED, UNPATCHED, assert_free_hub, connect, in_children
from tests.kit.clock import now
from tests.net.servers import black_hole, serve

SILENT_S, LIMITED_S, EARLY_S, ENDED_S = 1.0, 3.0, 0.1, 30.0
"""SILENT_S: the limit where nobody has to answer in time. ENDED_S: when a call with either limit has ended at the latest."""


def ended_at(limit_s: float, call: Callable[[], Any]) -> None:
    began = now()
    with pytest.raises(KafkaException):
        call()
    took = now() - began
    assert limit_s - EARLY_S <= took, f"{call} ended after {took:.2f} s"
    assert took < ENDED_S, f"{call} ended after {took:.2f} s"


def unreachable(hosts: str) -> None:
    """A host that never answers, or never accepts."""

    def run() -> None:
        with connect(hosts, connect_timeout_ms=1000 * SILENT_S, socket_timeout_ms=1000 * SILENT_S) as client:
            producer = client.get_producer(max_block_ms=1000 * SILENT_S)
            calls = [
                lambda: client.connect(SILENT_S),
                lambda: client.list_offsets({("t", 0): -1}, timeout=SILENT_S),
                lambda: producer.produce("t", b"x"),
            ]
            gevent.joinall([gevent.spawn(ended_at, SILENT_S, call) for call in calls], raise_error=True, timeout=LIMIT_S)

    assert_free_hub(run)


def half_open() -> None:
    """A broker that worked, and now is a process that stands still while its connections live on."""
    for_all = {"socket_timeout_ms": 1000 * LIMITED_S, "connect_timeout_ms": 1000 * LIMITED_S}
    broker = stub_broker()
    with broker as hosts, connect(hosts, **for_all) as client:
        client.create_topic("t")

        def run() -> None:
            producer = client.get_producer(request_timeout_ms=2000, delivery_timeout_ms=1000 * LIMITED_S)
            producer.produce("t", b"warm").result(LIMIT_S)
            os.kill(broker.pid, signal.SIGSTOP)
            try:
                delivery = producer.produce("t", b"x")
                calls = [
                    lambda: delivery.result(LIMIT_S),
                    lambda: client.list_offsets({("t", 0): -1}, timeout=LIMITED_S),
                    lambda: client.fetch_raw("t", 0, 0, timeout=LIMITED_S),
                    lambda: producer.flush(LIMITED_S),
                ]
                gevent.joinall([gevent.spawn(ended_at, LIMITED_S, call) for call in calls], raise_error=True, timeout=LIMIT_S)
            finally:
                os.kill(broker.pid, signal.SIGCONT)
            producer.produce("t", b"after").result(LIMIT_S)
            with contextlib.suppress(DeliveryError):  # where flush() ended just before the record did, it has not told
                producer.close()

        assert_free_hub(run)


def test_10_a_server_that_accepts_and_never_answers() -> None:
    with serve(lambda conn: [None for _ in iter(lambda: conn.recv(4096), b"")]) as port:
        in_children([UNPATCHED, PATCHED], unreachable, f"127.0.0.1:{port}")


def test_10_a_host_that_never_accepts() -> None:
    with black_hole() as port:
        in_children([UNPATCHED, PATCHED], unreachable, f"127.0.0.1:{port}")


def test_10_a_broker_that_stands_still_while_its_connections_live() -> None:
    in_children([UNPATCHED, PATCHED], half_open)
