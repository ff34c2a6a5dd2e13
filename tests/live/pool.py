"""The brokers of a test session: started when a test first asks, at most two at a time."""

from __future__ import annotations

import os
from collections import OrderedDict

import pytest

from tests.live.kafka import KafkaCluster, MissingToolError

__all__ = ["POOL", "Pool", "skip_if_told"]

LIMIT = 2


def skip_if_told() -> None:
    """The one way to leave out the tests on real Kafka."""
    if os.environ.get("GKAFKA_LIVE") == "skip":
        pytest.skip("NOT TESTED on real Kafka: GKAFKA_LIVE=skip is set")


class Pool:
    """Clusters by version and size. A cluster of three has the machine for itself."""

    def __init__(self) -> None:
        self._running: OrderedDict[tuple[str, int], KafkaCluster] = OrderedDict()

    def get(self, version: str = "4.2.0", *, brokers: int = 1) -> KafkaCluster:
        """A running cluster, shared with every other test that asks for the same.

        Fails the test without java or mvn, naming the line that installs them; GKAFKA_LIVE=skip skips it instead.
        """
        skip_if_told()
        key = (version, brokers)
        if key in self._running and not self._running[key].answers():
            self._running.pop(key).stop()  # a test that failed has left it so
        if key not in self._running:
            self._make_room(brokers)
            self._running[key] = self._start(version, brokers)
        self._running.move_to_end(key)
        return self._running[key]

    def stop(self) -> None:
        while self._running:
            self._running.popitem()[1].stop()

    def _make_room(self, brokers: int) -> None:
        room = LIMIT - 1 if brokers == 1 else 0
        while len(self._running) > room or any(size > 1 for _, size in self._running):
            self._running.popitem(last=False)[1].stop()

    def _start(self, version: str, brokers: int) -> KafkaCluster:
        try:
            return KafkaCluster(version, brokers=brokers).start()
        except MissingToolError as error:
            pytest.fail(f"{error} (or set GKAFKA_LIVE=skip to leave out the tests on real Kafka)", pytrace=False)


POOL = Pool()
