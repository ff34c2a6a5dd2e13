"""2: ten thousand greenlets, each with one record and a wait for its own delivery."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.gevent.harness import LIMIT_S, assert_no_stall, connect, even_late, in_child, results, slowness, spawn_all
from tests.live.kafka import KafkaCluster
from tests.live.peer import Peer

GREENLETS = 10_000
ALL_WITHIN_S = 1.0
"""Of the client's own work: by the clock it is `benchmarks/run.py --only greenlets`, on a machine that does nothing else."""


def own_deliveries(producer: Any, topic: str) -> list[tuple[int, int]]:
    """(partition, offset) of the records b"0" to b"9999"."""

    def one(n: int) -> tuple[int, int]:
        sent = producer.produce(topic, b"%d" % n).result(LIMIT_S)
        return sent.partition, sent.offset

    return list(results(spawn_all(lambda n=n: one(n) for n in range(GREENLETS))))  # type: ignore[misc]


def stalls(hosts: str, topic: str) -> float:
    """Returns the seconds of CPU that the best run took, on a machine of usual speed."""
    with connect(hosts) as client:
        producer = client.get_producer()
        producer.produce(topic, b"warm").result(LIMIT_S)
        places: list[list[tuple[int, int]]] = []  # kept: to drop ten thousand at once takes milliseconds of this test's own
        runs = assert_no_stall(lambda: places.append(own_deliveries(producer, topic)), 20)
        assert {len(set(each)) for each in places} == {GREENLETS}
        return min(each.cpu_s for each in runs) / slowness()


def offsets(hosts: str, topic: str) -> list[tuple[int, int]]:
    with connect(hosts) as client:
        return own_deliveries(client.get_producer(), topic)


@even_late
def test_02_ten_thousand_greenlets_that_wait_for_their_own_record(mode: str, stub: str, stub_topic: Callable[..., str]) -> None:
    assert in_child(mode, stalls, stub, stub_topic(4, keeps=False)) <= ALL_WITHIN_S


@even_late
def test_02_each_is_told_the_place_of_its_own_record(mode: str, kafka: KafkaCluster, new_topic: Callable[..., str]) -> None:
    topic = new_topic(4)
    told = {tuple(place): b"%d" % n for n, place in enumerate(in_child(mode, offsets, kafka.hosts, topic))}
    log = {(r.partition, r.offset): r.value for r in Peer(kafka.hosts, kafka.release).read(topic, GREENLETS, 4)}
    assert told == log
