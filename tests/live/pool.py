"""The brokers of a test session: started when a test first asks, at most two at a time."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NamedTuple, TypeVar

import pytest

from tests.kit.lacking import leave_out
from tests.live.kafka import KafkaCluster, MissingToolError

__all__ = ["POOL", "Pool", "skip_if_told"]

LIMIT = 2
Given = TypeVar("Given")
KINDS: dict[str, dict[str, object]] = {
    # Its ZooKeeper stands still for a while.
    "shaken": {},
    # One that has ACLs, and lets everybody do what nobody forbids.
    "guarded": {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:nobody",
        "allow.everyone.if.no.acl.found": "true",
    },
    # The same before Kafka 3.3, with ZooKeeper.
    "guarded of old": {"authorizer.class.name": "kafka.security.auth.SimpleAclAuthorizer", "allow.everyone.if.no.acl.found": "true"},
    # The sessions of groups of KIP-848 are short: members cannot ask for that.
    "short sessions": {
        "group.consumer.min.session.timeout.ms": 10_000,
        "group.consumer.session.timeout.ms": 10_000,
        "group.consumer.min.heartbeat.interval.ms": 500,
        "group.consumer.heartbeat.interval.ms": 500,
    },
}
"""Brokers with settings of their own; or none, of tests alone that do to them what others would notice."""


REAL_KAFKA = ("real Kafka", "GKAFKA_LIVE=skip is set")


def skip_if_told() -> None:
    """The one way to leave out the tests on real Kafka."""
    if os.environ.get("GKAFKA_LIVE") == "skip":
        leave_out(REAL_KAFKA)


class Kept(NamedTuple):
    """What a test gets, the cluster in it, and what ends both."""

    given: Any
    cluster: KafkaCluster
    ends: ExitStack
    brokers: int


class Pool:
    """Clusters by version, size and kind. A cluster of three has the machine for itself."""

    def __init__(self) -> None:
        self._running: OrderedDict[object, Kept] = OrderedDict()

    def get(self, version: str = "4.2.0", *, brokers: int = 1, kind: str = "") -> KafkaCluster:
        """A running cluster, shared with every other test that asks for the same. kind: one of KINDS.

        Fails the test without java or mvn, naming the line that installs them; GKAFKA_LIVE=skip skips it instead.
        """
        properties = KINDS[kind] if kind else {}

        def start(ends: ExitStack) -> KafkaCluster:
            return ends.enter_context(KafkaCluster(version, brokers=brokers, properties=properties))

        return self.keep((version, brokers, kind), start, lambda cluster: cluster, brokers)

    def keep(self, key: object, start: Callable[[ExitStack], Given], cluster: Callable[[Given], KafkaCluster], brokers: int = 1) -> Given:
        """What `start` has given, the first time or since it had to make room. What it enters there ends with it; cluster: the one in it."""
        skip_if_told()
        if key in self._running and not self._running[key].cluster.answers():
            self._running.pop(key).ends.close()  # a test that failed has left it so
        if key not in self._running:
            self._make_room(brokers)
            with ExitStack() as ends:
                try:
                    given = start(ends)
                except MissingToolError as error:
                    pytest.fail(f"{error} (or set GKAFKA_LIVE=skip to leave out the tests on real Kafka)", pytrace=False)
                self._running[key] = Kept(given, cluster(given), ends.pop_all(), brokers)
        self._running.move_to_end(key)
        found: Given = self._running[key].given
        return found

    def stop(self) -> None:
        while self._running:
            self._running.popitem()[1].ends.close()

    def _make_room(self, brokers: int) -> None:
        room = LIMIT - 1 if brokers == 1 else 0
        while len(self._running) > room or any(kept.brokers > 1 for kept in self._running.values()):
            self._running.popitem(last=False)[1].ends.close()


POOL = Pool()
