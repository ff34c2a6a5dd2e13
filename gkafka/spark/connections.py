"""Clients that outlive a task: Spark reuses its Python workers, so the next task of the same cluster finds its connections open.

A client is used by one task at a time. Which partition a worker gets next cannot be known, so clients are kept by cluster and options,
never by partition.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from gkafka.client import KafkaClient
from gkafka.spark.kafkaproperties import KafkaProperties
from gkafka.undoing import Undoing

__all__ = ["close_all", "connected"]


class Key(NamedTuple):
    """What a client can be used again for. After a fork no client of the parent can be: sockets must not be shared."""

    hosts: str
    options: tuple[tuple[str, Any], ...]
    creates: bool
    pid: int


class Idle(NamedTuple):
    """A client that no task uses. until: when it counts as too old, by its handler's clock."""

    client: KafkaClient
    until: float

    @property
    def expired(self) -> bool:
        return self.client.handler.monotonic() >= self.until


_idle: dict[Key, list[Idle]] = {}
"""Two threads of a driver use it. A list is never replaced, since the other thread may be about to add to it. Adding and removing a client are atomic."""


@contextlib.contextmanager
def connected(properties: KafkaProperties, *, auto_create_topics: bool = False) -> Iterator[KafkaClient]:
    """A client for these properties, from those that are idle or new. One that saw an error is not used again.

    auto_create_topics: a topic that is named and not there is created, where the broker allows it, as writing in Java does.
    """
    key = Key(properties.hosts, _frozen(properties.client), auto_create_topics, os.getpid())
    _drop_old(key.pid)
    client = _take(key) or _new(properties, auto_create_topics)
    with Undoing(client.close):  # by GeneratorExit too: Spark stopped reading in the middle
        yield client
    _idle.setdefault(key, []).append(Idle(client, client.handler.monotonic() + properties.idle_ms / 1000))


def close_all() -> None:
    """Close the clients that are idle in this process."""
    for key in list(_idle):
        while (idle := _pop(key)) is not None:
            if key.pid == os.getpid():
                idle.client.close()


def _new(properties: KafkaProperties, auto_create_topics: bool) -> KafkaClient:
    # Threads always: in a worker nothing runs a hub between two tasks, and a patched socket would be the JVM's, too.
    client = KafkaClient(properties.hosts, handler="threading", auto_create_topics=auto_create_topics, **properties.client)
    # A query that has run for weeks gets a new one with each task, maybe while the brokers start again.
    client._cluster.waits_for_hosts = True
    return client


def _take(key: Key) -> KafkaClient | None:
    idle = _pop(key)
    return None if idle is None else idle.client


def _pop(key: Key) -> Idle | None:
    try:
        return _idle.get(key, []).pop()  # atomic: no other thread gets the same one
    except IndexError:
        return None


def _drop_old(pid: int) -> None:
    """Brokers close what is silent for long, and finding that out costs the next task a round trip."""
    for key in list(_idle):
        if key.pid != pid:
            _idle.pop(key, None)
            continue
        for idle in [idle for idle in _idle[key] if idle.expired]:
            try:
                _idle[key].remove(idle)
            except ValueError:  # another thread has taken it
                continue
            idle.client.close()


def _frozen(options: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    plain = {name: tuple(sorted(value.items())) if isinstance(value, Mapping) else value for name, value in options.items()}
    return tuple(sorted(plain.items()))
