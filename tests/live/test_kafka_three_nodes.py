"""gkafka.kafka on a Kafka of three nodes (behaviours 248, 304-308): what acks and retries mean where a replica is missing, and a node that is silent."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from gkafka.kafka import KafkaConsumer, KafkaProducer
from gkafka.kafka.errors import NotEnoughReplicasError
from tests.kit.clock import now
from tests.live.facade import QUICK, read
from tests.live.inside import alter_topic, frozen
from tests.live.kafka import KafkaCluster
from tests.live.peer import Peer
from tests.live.pool import POOL

LIMIT_S = 60.0


def test_brokers_are_fetched_from_in_parallel(whole_cluster: KafkaCluster, new_name: Callable[[str], str], handler: str) -> None:
    """Behaviour 248."""
    topic = new_name("parallel")
    whole_cluster.create_topic(topic, 3, replication_factor=1)
    leaders = whole_cluster.nodes[0].leaders(topic)
    assert len(set(leaders.values())) == 3
    options: dict[str, Any] = {"bootstrap_servers": whole_cluster.hosts, "handler": handler}
    with KafkaProducer(**options, retries=100) as producer:
        for partition in range(3):
            producer.send(topic, b"%d" % partition, partition=partition)
    # Whoever is asked for metadata is not the one that is silent.
    asked = ",".join(node.address for node in whole_cluster.nodes if node.id != leaders[0])
    with contextlib.ExitStack() as silence:
        silence.enter_context(frozen(whole_cluster, leaders[0]))  # first: with threads a consumer fetches as soon as it is made
        with KafkaConsumer(topic, **{**QUICK, **options, "bootstrap_servers": asked}) as consumer:
            assert sorted(r.partition for r in read(consumer, 2)) == [1, 2]
            assert consumer.poll(0) == {}
            silence.close()
            assert [r.partition for r in read(consumer, 1)] == [0]


# -- with a node missing from here on, and at the end back again ---------------------------------------------------------------
class Lame(NamedTuple):
    """Two nodes of three. Of topics that want three replicas in sync, one for each test and handler."""

    hosts: str
    topics: dict[str, str]
    peer: Peer


@pytest.fixture(scope="module")
def lame() -> Iterator[Lame]:
    cluster = POOL.get("4.2.0", brokers=3)
    topics = {f"{test}-{handler}": f"lame-{test}-{handler}" for test in ("acks", "retries") for handler in ("threading", "gevent")}
    for topic in topics.values():
        cluster.create_topic(topic, 1, configs={"min.insync.replicas": 3})
    cluster.kill(3, signal.SIGTERM)
    yield Lame(",".join(node.address for node in cluster.nodes[:2]), topics, Peer(cluster.hosts, cluster.release))
    cluster.restart(3)


@pytest.fixture
def producer(lame: Lame, handler: str) -> Iterator[Callable[..., KafkaProducer]]:
    """Makes KafkaProducers of the two nodes."""
    made: list[KafkaProducer] = []

    def make(**options: Any) -> KafkaProducer:
        made.append(KafkaProducer(**{"bootstrap_servers": lame.hosts, "handler": handler, **options}))
        return made[-1]

    yield make
    for each in made:
        each.close(5)


def test_acks_are_what_the_broker_waits_for(lame: Lame, producer: Callable[..., KafkaProducer], handler: str) -> None:
    """Behaviours 304, 305, 306: where a replica is missing only acks='all' is refused."""
    topic = lame.topics[f"acks-{handler}"]
    for acks in ("all", -1):
        with pytest.raises(NotEnoughReplicasError):
            producer(acks=acks).send(topic, b"all").get(LIMIT_S)
    assert producer(acks=1).send(topic, b"1").get(LIMIT_S).offset == 0
    assert producer().send(topic, b"default").get(LIMIT_S).offset == 1
    assert producer(acks=0, retries=5).send(topic, b"0").get(LIMIT_S).offset == -1
    alter_topic(lame.hosts, topic, min_insync_replicas=2)  # before that nobody is shown any of them (KIP-966)
    everything, seen = producer(acks="all", retries=100), []
    deadline = now() + LIMIT_S
    while b"0" not in seen:  # nobody says when it is there
        assert now() < deadline, seen
        everything.send(topic, b"all").get(LIMIT_S)
        seen = [record.value for record in lame.peer.read_all(topic)]
    assert [value for value in seen if value != b"all"] == [b"1", b"default", b"0"]


def test_a_refusal_that_may_pass_is_tried_again_only_where_retries_says_so(
    lame: Lame, producer: Callable[..., KafkaProducer], handler: str
) -> None:
    """Behaviours 237, 250, 253, 307, 308: with one request in flight the order stays."""
    topic = lame.topics[f"retries-{handler}"]
    failed = producer(acks="all").send(topic, b"never")
    with pytest.raises(NotEnoughReplicasError):
        failed.get(LIMIT_S)
    assert failed.retriable()
    begun = now()
    with pytest.raises(NotEnoughReplicasError):
        producer(acks="all", retries=2, retry_backoff_ms=250).send(topic, b"never").get(LIMIT_S)
    assert now() - begun > 2 * 0.25 * 0.75, "each retry waits for retry_backoff_ms"
    again = producer(acks="all", retries=1000, retry_backoff_ms=100, max_in_flight_requests_per_connection=1)
    futures = []
    for n in range(5):
        futures.append(again.send(topic, b"%d" % n))
        again._client.handler.sleep(0.03)
    assert not any(future.is_done for future in futures)
    alter_topic(lame.hosts, topic, min_insync_replicas=2)
    assert [future.get(LIMIT_S).offset for future in futures] == list(range(5))
    assert [record.value for record in lame.peer.read(topic, 5)] == [b"%d" % n for n in range(5)]
