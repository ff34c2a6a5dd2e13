"""Leaders move: whoever uses a topic follows, however it learnt of it."""

from __future__ import annotations

import pytest

from gkafka import KafkaClient
from gkafka.testing import MockCluster


@pytest.mark.parametrize("handler", ["threading", "gevent"])
def test_a_topic_known_from_the_list_of_all_topics_is_followed_when_its_leader_moves(handler: str) -> None:
    with (
        MockCluster(brokers=2, topics={"t": 1}, replication_factor=2) as brokers,
        KafkaClient(brokers.bootstrap, handler=handler) as client,
    ):
        client.update_cluster()
        with client.get_producer() as producer:
            producer.produce("t", b"before", partition=0).result(10)
            start = brokers.leader("t", 0)
            brokers.move_leader("t", 0, 3 - start)
            producer.produce("t", b"after", partition=0).result(10)
        raws = list(client.fetch_stream("t", 0, 0, 2, timeout=10))
        brokers.move_leader("t", 0, start)
        again = client.fetch_raw("t", 0, 0, timeout=10)
    assert raws[-1].next_offset == 2
    assert again.high_watermark == 2
