"""31: an application that computes without yielding keeps its partitions for less than a session, and is told what was measured; for longer
it loses them, and goes on."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from tests.gevent import harness
from tests.gevent.harness import LIMIT_S, PATCHED, UNPATCHED, connect, in_children
from tests.kit.clock import busy, now
from tests.live.kafka import KafkaCluster

SHORT_FORM = 8.0, 2.0, 10.0
FULL_FORM = 45.0, 10.0, 60.0
"""Seconds of a session, of work that it outlasts, and of work that outlasts it."""


class Told(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def computes(hosts: str, topic: str, session_s: float, short_s: float, long_s: float) -> None:
    log, events = Told(), list[str]()
    logging.getLogger("gkafka").addHandler(log)
    with connect(hosts, hub_stall_meter=True) as client:
        options = {"session_timeout_ms": 1000 * session_s, "heartbeat_interval_ms": 1000 * session_s / 6, "auto_commit_interval_ms": 100}
        consumer = client.get_consumer(
            topic,
            f"{topic}-{harness.mode}",
            **options,
            on_assigned=lambda *_: events.append("assigned"),
            on_lost=lambda *_: events.append("lost"),
            on_revoked=lambda *_: events.append("revoked"),
        )
        producer = client.get_producer()

        def next_record(value: bytes) -> None:
            producer.produce(topic, value).result(LIMIT_S)
            deadline = now() + LIMIT_S
            while True:
                assert now() < deadline, f"{value!r} was not consumed; {events}"
                message = consumer.consume(500)
                if message is not None and message.value == value:
                    return

        def finish() -> None:
            """The record is finished with, and committed: nothing is left that the coordinator could refuse later."""
            deadline = now() + LIMIT_S
            while any(max(0, consumer.committed(partition)) != offset for partition, offset in consumer.positions().items()):
                assert now() < deadline, f"{consumer.positions()} is not committed; {events}"
                consumer.consume(200)

        next_record(b"first")
        finish()
        busy(short_s)
        next_record(b"second")
        assert events == ["assigned"], f"less than a session costs nothing: {events}"
        stall = client.stats()["hub_stall_ms"]
        assert stall >= 1000 * short_s - 100
        told = [text for text in log.texts if f"gevent's hub stood still for {stall:.0f} ms" in text]
        assert len(told) == 1, f"{stall:.1f} ms were measured: {log.texts}"
        finish()
        busy(long_s)
        next_record(b"third")
        assert events == ["assigned", "lost", "assigned"], events
        assert client.stats()["hub_stalls"] >= 2


@pytest.mark.parametrize(
    ("session_s", "short_s", "long_s"),
    [SHORT_FORM, pytest.param(*FULL_FORM, marks=[pytest.mark.soak, pytest.mark.timeout(400)])],
    ids=["short", "full"],
)
def test_31_computing_is_told_and_more_than_a_session_of_it_costs_the_partitions(
    session_s: float, short_s: float, long_s: float, kafka: KafkaCluster, new_topic: Callable[..., str]
) -> None:
    in_children([UNPATCHED, PATCHED], computes, kafka.hosts, new_topic(), session_s, short_s, long_s, timeout=90 + 3 * long_s)
