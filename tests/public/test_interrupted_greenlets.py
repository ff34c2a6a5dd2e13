"""Under gevent a signal handler's exception is raised in whatever greenlet is on CPU. If that is the producer's worker, another one goes on."""

from __future__ import annotations

import itertools
import os
import time
from collections import Counter
from collections.abc import Callable
from random import Random
from types import FrameType
from typing import Any, TypeVar

import gevent
import pytest

from gkafka import KafkaClient
from gkafka.producerdriver import ProducerDriver
from gkafka.testing import MockCluster
from tests.effort import seeds
from tests.public.aids import LIMIT_S, stored
from tests.public.test_interrupted import PARTITIONS, PROMPT_S, Gun

T = TypeVar("T")
LIVES = 10
NUMBERS = itertools.count()
"""Of records: one whose produce() was interrupted may be there or not, and the next try is another one."""


class CtrlC(KeyboardInterrupt):
    """What the handler raises; gevent takes it to the main greenlet, too."""


class WorkersGun(Gun):
    """Shoots only at the worker, and with what Ctrl-C raises. Not inside the handler: it comes between lines there that a real signal does not
    come between; those are in tests/handlers/test_signals.py.
    """

    raises = CtrlC

    def _line(self, frame: FrameType, event: str, arg: Any) -> Any:
        inside = os.sep + "handlers" + os.sep in frame.f_code.co_filename
        return self._line if inside or gevent.getcurrent().name != "gkafka-producer" else super()._line(frame, event, arg)


def through(call: Callable[[], T]) -> T:
    """What the call gives in the end, however often it is interrupted."""
    while True:
        try:
            return call()
        except CtrlC:
            continue


@pytest.mark.parametrize("seed", seeds(4))
def test_a_producer_whose_worker_is_interrupted_at_any_line_delivers_everything_once(
    make_cluster: Any, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    cluster: MockCluster = make_cluster(topics={"t": PARTITIONS})
    gun, chance = WorkersGun(), Random(seed)
    drive_once = ProducerDriver._drive_once

    def under_fire(driver: ProducerDriver) -> float:
        if chance.random() < 0.5 and getattr(gevent.getcurrent(), "name", "") == "gkafka-producer":
            with gun.aimed(chance.randrange(1, 150)):
                return drive_once(driver)
        return drive_once(driver)

    monkeypatch.setattr(ProducerDriver, "_drive_once", under_fire)
    for _ in range(LIVES):
        live(cluster, gun)
    assert len(set(gun.shots)) > LIVES, gun.shots


def live(cluster: MockCluster, gun: WorkersGun) -> None:
    first = len(gun.shots)
    client = KafkaClient(cluster.bootstrap, handler="gevent", reconnect_backoff_ms=1)
    producer: Any = client.get_producer(linger_ms=1, batch_bytes=512, max_request_bytes=4096, retry_backoff_ms=1)
    accepted: list[tuple[bytes, Any]] = []

    def produce(value: bytes) -> None:
        accepted.append((value, producer.produce("t", value, partition=len(accepted) % PARTITIONS)))

    for at in range(90):
        through(lambda: produce(b"%d" % next(NUMBERS) + b"." * 60))
        if at % 30 == 29:
            begun = time.monotonic()
            through(lambda: producer.flush(LIMIT_S))
            assert time.monotonic() - begun < PROMPT_S, f"after {gun.shots[first:]}"
    for value, delivery in accepted:
        assert delivery.result(0).offset >= 0, (value, gun.shots[first:])
    begun = time.monotonic()
    through(lambda: client.close(LIMIT_S))
    assert time.monotonic() - begun < PROMPT_S, f"after {gun.shots[first:]}"
    counts = Counter(record.value for record in stored(cluster, partitions=range(PARTITIONS)))
    assert all(counts[value] == 1 for value, _ in accepted), gun.shots[first:]
    assert not [w for w in client.handler.workers() if w.is_alive()]
