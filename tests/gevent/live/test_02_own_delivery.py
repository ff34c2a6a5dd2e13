"""2: ten thousand greenlets, each with one record and a wait for its own delivery."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.effort import one_of
from tests.gevent.harness import LATE, LIMIT_S, PATCHED, UNPATCHED, assert_free_hub, connect, even_late, in_child, results, spawn_all
from tests.live.kafka import KafkaCluster
from tests.live.peer import Peer

GREENLETS, FEWER = 10_000, 2_000


def own_deliveries(producer: Any, topic: str, count: int) -> list[tuple[int, int]]:
    """(partition, offset) of the records b"0", b"1" and so on."""

    def one(n: int) -> tuple[int, int]:
        sent = producer.produce(topic, b"%d" % n).result(LIMIT_S)
        return sent.partition, sent.offset

    return list(results(spawn_all(lambda n=n: one(n) for n in range(count))))  # type: ignore[misc]


def free_hub(hosts: str, topic: str) -> None:
    with connect(hosts) as client:
        producer = client.get_producer()
        producer.produce(topic, b"warm").result(LIMIT_S)
        places: list[list[tuple[int, int]]] = []
        assert_free_hub(lambda: places.append(own_deliveries(producer, topic, FEWER)))
        assert {len(set(each)) for each in places} == {FEWER}


def offsets(hosts: str, topic: str) -> list[tuple[int, int]]:
    with connect(hosts) as client:
        return own_deliveries(client.get_producer(), topic, GREENLETS)


@even_late
def test_02_greenlets_that_wait_for_their_own_record_leave_the_hub_free(mode: str, stub: str, stub_topic: Callable[..., str]) -> None:
    in_child(mode, free_hub, stub, stub_topic(4, keeps=False))


@pytest.mark.parametrize("mode", one_of(UNPATCHED, PATCHED, LATE))
def test_02_each_is_told_the_place_of_its_own_record(mode: str, kafka: KafkaCluster, new_topic: Callable[..., str]) -> None:
    topic = new_topic(4)
    told = {tuple(place): b"%d" % n for n, place in enumerate(in_child(mode, offsets, kafka.hosts, topic))}
    log = {(r.partition, r.offset): r.value for r in Peer(kafka.hosts, kafka.release).read(topic, GREENLETS, 4)}
    assert told == log
