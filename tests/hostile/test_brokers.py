"""A broker that answers nonsense, once, to each thing that a client asks in its life (G17, B61): the error names broker and request,
the connection is closed, and the client goes on with the next one."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable

import pytest

from gkafka import KafkaClient
from gkafka.exceptions import KafkaException
from gkafka.testing import Corrupt, MockCluster
from tests.hostile.life import FRAMES, QUICK, REQUESTS, cluster_for_life, life
from tests.kit.clock import epoch_s, now

SLOWEST_STEP_S = 60.0


class Hostile:
    """Mangles the first answer of each API. done: API -> when its answer went out."""

    def __init__(self, cluster: MockCluster, damage: Callable[[bytes], bytes]) -> None:
        self.done: dict[str, float] = {}
        for api in REQUESTS:
            cluster.on(api, Corrupt(lambda frame, api=api: self._mangled(api, damage(frame))))

    def _mangled(self, api: str, frame: bytes) -> bytes:
        self.done[api] = epoch_s()
        return frame


@pytest.mark.parametrize("handler", ["threading", "gevent"])
@pytest.mark.parametrize("name", FRAMES)
def test_one_hostile_answer_to_each_request_is_named_and_survived(name: str, handler: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gkafka.net.channel")
    with cluster_for_life() as cluster, KafkaClient(cluster.bootstrap, handler=handler, **QUICK) as client:
        hostile = Hostile(cluster, FRAMES[name])
        for step in life(client):
            assert_survived(client, step)
        assert set(hostile.done) == REQUESTS
        told = [r for r in caplog.records if re.search("connection (closed|not opened): (?!by the client)", r.getMessage())]
        for api, sent in hostile.done.items():
            assert_named(api, sent, told, int(cluster.bootstrap.rpartition(":")[2]))


def assert_survived(client: KafkaClient, step: Callable[[], object]) -> None:
    """It works at once, or after errors of gkafka."""
    errors: list[KafkaException] = []
    for _ in range(12):
        began = now()
        try:
            step()
        except KafkaException as error:
            errors.append(error)
            client.handler.sleep(0.02)  # a broker rests after a failure
            continue
        finally:
            took = now() - began
            assert took < SLOWEST_STEP_S, f"{took:.1f} s: {errors}"
        return
    raise AssertionError(errors)


def assert_named(api: str, sent: float, told: list[logging.LogRecord], port: int) -> None:
    """A goodbye waits for 0.2 s only: on a slow machine it is given up, and named, before its answer goes out."""
    texts = [r.getMessage() for r in told if r.created >= sent - 0.05 or f"no answer to {api} " in r.getMessage()]
    assert any(api in text and f"127.0.0.1:{port}" in text for text in texts), (api, [r.getMessage() for r in told])
