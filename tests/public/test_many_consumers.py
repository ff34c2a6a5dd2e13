"""Several workers may consume from one consumer: each record goes to exactly one of them."""

from __future__ import annotations

import threading

import pytest

from gkafka import KafkaClient
from gkafka.testing import MockCluster

RECORDS = 20_000


@pytest.mark.parametrize("one_by_one", [True, False])
def test_threads_that_share_a_consumer_get_every_record_once(one_by_one: bool) -> None:
    with MockCluster(brokers=1, topics={"t": 3}) as brokers, KafkaClient(brokers.bootstrap, handler="threading") as client:
        with client.get_producer(batch_bytes=4096, linger_ms=0) as producer:
            for i in range(RECORDS):
                producer.produce("t", b"%d" % i, partition=i % 3)
        consumer = client.topics["t"].get_simple_consumer(consumer_timeout_ms=100)
        got: list[list[int]] = [[] for _ in range(4)]

        def work(mine: list[int]) -> None:
            while sum(map(len, got)) < RECORDS:
                messages = [m for m in [consumer.consume()] if m is not None] if one_by_one else consumer.consume_batch(50)
                mine += [int(m.value) for m in messages]

        threads = [threading.Thread(target=work, args=(mine,)) for mine in got]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        consumer.stop()
    assert sorted(value for mine in got for value in mine) == list(range(RECORDS))
