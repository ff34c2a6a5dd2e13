"""KafkaConsumer.poll(): a signal handler raises while it makes what it returns."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from gkafka.kafka import KafkaConsumer
from gkafka.kafka.consumer import group
from gkafka.testing import MockCluster
from tests.kafka.conftest import Make
from tests.kafka.consuming import QUICK, put
from tests.kit.clock import now
from tests.public.aids import LIMIT_S

COUNT, MANY, SIGNALS = 40, 20_000, 150


class Alarm(KeyboardInterrupt):
    """What the handler raises."""


@pytest.mark.parametrize("most", [COUNT, 5])
@pytest.mark.parametrize("options", [{}, {"value_deserializer": bytes.upper}], ids=["plain", "deserializing"])
def test_what_a_poll_had_taken_the_next_one_returns(
    consumer: Make, cluster: MockCluster, monkeypatch: pytest.MonkeyPatch, most: int, options: dict[str, Any]
) -> None:
    put(cluster, *(b"%d" % n for n in range(COUNT)))
    shots = 0

    def interrupted(taken: list[Any]) -> dict[Any, list[Any]]:
        nonlocal shots
        if taken and not shots % 2:
            shots += 1
            raise Alarm
        shots += bool(taken)
        return by_partition(taken)

    by_partition = group.by_partition
    monkeypatch.setattr(group, "by_partition", interrupted)
    made = consumer(cluster, "t", **QUICK, **options)
    got: list[int] = []
    while len(got) < COUNT:
        try:
            for records in made.poll(20_000, most).values():
                got.extend(record.offset for record in records)
        except Alarm:
            pass
    assert got == list(range(COUNT))
    assert shots >= 2 * COUNT / most


@pytest.fixture
def alarm() -> Iterator[Callable[[float], None]]:
    """alarm(seconds): Alarm is raised after that, wherever the program is."""

    def ring(*_: object) -> None:
        raise Alarm

    before = signal.signal(signal.SIGALRM, ring)
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds) and None
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_real_signals_while_poll_is_called_skip_no_record(
    make_cluster: Any, alarm: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python looks for signals behind each call of a compiled function, and behind each call with *args."""
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)  # a finalizer may be hit
    chance, caught, begun, due = Random(1), 0, now(), 0
    cluster: MockCluster = make_cluster(topics={"t": 1})
    put(cluster, *(b"%d" % n for n in range(MANY)))
    reading = KafkaConsumer("t", bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", max_poll_records=20)
    while caught < SIGNALS:
        assert now() - begun < LIMIT_S
        if due == MANY:
            reading.seek_to_beginning()
            due = 0
        kept: list[Any] = []
        got: Any = None
        try:
            alarm(chance.uniform(0.00002, 0.002))
            while due + sum(map(len, kept)) < MANY:
                got = None
                got = reading.poll(1000)
                kept += got.values()
            alarm(0)
        except Alarm:
            caught += 1
        if got and not any(records is kept[-1] for records in got.values() if kept):
            kept += got.values()
        offsets = [record.offset for records in kept for record in records]
        assert offsets == list(range(due, due + len(offsets)))
        due += len(offsets)
    reading.close()
