"""A producer that is faster than its brokers: it keeps little memory while they answer, and all its buffer for when they do not."""

from __future__ import annotations

from typing import Any

import pytest

from gkafka.testing import Delay
from tests.public.aids import Runner

MIB = 1 << 20
OPTIONS: dict[str, Any] = {"batch_bytes": 128 << 10, "linger_ms": 0}


def held(producer: Any) -> int:
    """Bytes of the buffer that are in use."""
    return int(producer.config.buffer_bytes - producer.stats()["buffer_bytes_free"])


def count_rests(client: Any, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The rests that are taken from now on."""
    rests: list[float] = []
    sleep = client.handler.sleep
    monkeypatch.setattr(client.handler, "sleep", lambda seconds: (rests.append(seconds), sleep(seconds)))
    return rests


def test_while_the_brokers_answer_memory_follows_what_they_take(connect: Any, make_cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("ANSWERING_S", "REST_S"):  # they do answer, also where this process stands still for a moment
        monkeypatch.setattr(f"gkafka.producerpace.{limit}", 3600.0)
    cluster = make_cluster()
    cluster.on("Produce", Delay(0.01), times=None)
    with connect(cluster).get_producer(**OPTIONS) as producer:
        most = 0
        for n in range(20 * MIB // 4000):
            producer.produce("t", b"x" * 4000)
            if n % 100 == 0:
                most = max(most, held(producer))
    assert MIB < most < 12 * MIB, "of a buffer of 32"


def test_while_they_do_not_records_gather_without_a_rest(
    connect: Any, make_cluster: Any, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = make_cluster()
    client = connect(cluster)
    producer = client.get_producer(**OPTIONS)
    producer.produce("t", b"answered").result(60)
    cluster.on("Produce", Delay(60), times=None)
    producer.produce("t", b"not answered")
    run.sleep(0.3)
    rests = count_rests(client, monkeypatch)
    for _ in range(20 * MIB // 4000):
        producer.produce("t", b"x" * 4000)
    assert held(producer) > 19 * MIB
    assert rests == []
    cluster.close()


def test_a_rest_ends_also_when_the_brokers_stop_to_answer(connect: Any, make_cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = make_cluster()
    client = connect(cluster)
    producer = client.get_producer(**OPTIONS)
    producer.produce("t", b"answered").result(60)
    cluster.on("Produce", Delay(60), times=None)
    monkeypatch.setattr("gkafka.producerpace.ANSWERING_S", 3600.0)
    rests = count_rests(client, monkeypatch)
    for _ in range(6 * MIB // 4000):
        producer.produce("t", b"x" * 4000)
    begun = 2 * MIB // OPTIONS["batch_bytes"]  # batches that were begun while it was ahead
    assert 0 < len(rests) <= (begun + 2) * 10, "at most 10 ms for each of them"
    cluster.close()
