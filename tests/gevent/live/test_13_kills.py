"""13: greenlets that are killed or timed out at random inside send, poll and transactions, on real Kafka: nothing is lost, skipped, torn or leaked."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import gevent
import gevent.lock
from confluent_kafka import Consumer, TopicPartition

from gkafka.handlers.hubs import GreenletSemaphore
from tests.gevent.harness import LIMIT_S, connect, greenlets, in_child
from tests.live.kafka import KafkaCluster
from tests.live.peer import Peer

SENDERS, EACH = 50, 40
KILLED = SENDERS // 5
RECORDS = 3000
SHARING, TRANSACTIONS = 10, 10


def killed_sends(hosts: str, topic: str) -> list[list[Any]]:
    """[value, partition, offset] of each record that was accepted, as its delivery tells."""
    chance = Random(13)
    accepted: dict[str, Any] = {}
    tried, cut = [0], [0]
    with connect(hosts) as client:
        producer = client.get_producer(linger_ms=2, batch_bytes=2000, buffer_bytes=16_384, max_request_bytes=4096)

        def send(value: str) -> None:
            accepted[value] = delivery = producer.produce(topic, value.encode(), key=value.encode())
            delivery.result(LIMIT_S)

        def work(n: int) -> None:
            for i in range(EACH):
                tried[0] += 1
                with gevent.Timeout(chance.uniform(0, 0.02), False):
                    send(f"{n}-{i}" + "." * 100)
                    continue
                cut[0] += 1

        workers = [gevent.spawn(work, n) for n in range(SENDERS + KILLED)]
        for victim in chance.sample(workers, KILLED):
            gevent.sleep(chance.uniform(0, 0.01))
            victim.kill(block=False)
        gevent.joinall(workers, timeout=LIMIT_S)
        assert tried[0] >= SENDERS * EACH
        assert cut[0] > 100, f"only {cut[0]} sends were cut off: that proves nothing"
        producer.flush(LIMIT_S)
        told = [[value, *delivery.result(0)[1:3]] for value, delivery in accepted.items()]
        stats = producer.stats()
        assert (stats["unsettled_records"], stats["buffer_bytes_free"], stats["failed_records"]) == (0, 16_384, 0), stats
        in_flight = [c["in_flight"] for b in client.stats()["brokers"] for c in b["connections"] if c["role"] == "produce"]
        assert not any(in_flight), f"requests that nobody counts down: {in_flight}"
        assert_nothing_is_taken(client, producer)
        after = producer.produce(topic, b"after").result(LIMIT_S)
        return [*told, ["after", after.partition, after.offset]]


def assert_nothing_is_taken(client: Any, producer: Any) -> None:
    """No place in the line for memory, no lock of the producer's, and nobody waits at a semaphore who is not there any more."""
    assert not client.cluster.memory.contended, "somebody who was killed stands in the line for memory"
    assert producer.making.acquire(False), "a lock is left taken"
    producer.making.release()
    stuck = [one for one in gc.get_objects() if isinstance(one, GreenletSemaphore) and one._waiting and one.permits]
    assert not stuck, f"permits that nobody who waits for them gets: {stuck}"


def cut_off(client: Any, topic: str, chance: Random) -> int:
    """Reads all of it by calls that are cut off at random; returns how many were."""
    cut, got = 0, list[bytes]()
    with client.get_consumer(fetch_message_max_bytes=500, queued_max_messages=20) as consumer:
        consumer.assign({(topic, 0): 0})

        def poll(size: int) -> None:
            got.extend(m.value for m in consumer.consume_batch(size, 1000))

        while len(got) < RECORDS:
            if chance.random() < 0.5:
                with gevent.Timeout(chance.uniform(0, 0.0015), False):
                    poll(chance.choice([1, 7, 30]))
                    continue
            else:
                victim = gevent.spawn(poll, chance.choice([1, 7, 30]))
                victim.join(chance.uniform(0, 0.0015))
                if victim.successful():
                    continue
                victim.kill()
            cut += 1
            assert consumer.position((topic, 0)) in (len(got), -1), "the position is what was handed out"
        assert got == [b"%d" % n for n in range(RECORDS)]
        stats = consumer.stats()
        assert (stats["buffered"], stats["buffered_bytes"], stats["positions"]) == (0, 0, {f"{topic}-0": RECORDS}), stats
    return cut


def killed_polls(hosts: str, topic: str) -> None:
    chance = Random(14)
    cut = 0
    with connect(hosts) as client:
        with client.get_producer(batch_bytes=1000) as producer:
            for n in range(RECORDS):
                producer.produce(topic, b"%d" % n)
        while cut <= 5:  # a machine that gives this process little time cuts few
            cut += cut_off(client, topic, chance)


def killed_transactions(hosts: str, topic: str) -> list[list[str]]:
    """One producer for all: [values of the transactions that were tried, of those whose commit was told]; then a last one, of the value "last".

    Most are cut off at random, as a rule where they wait for their turn. The time of each third one begins with its commit.
    """
    chance = Random(15)
    tried: list[str] = []
    told: list[str] = []
    in_commit = [0]
    with connect(hosts) as client:
        producer = client.get_producer(transactional_id=topic, linger_ms=0)
        mine = gevent.lock.RLock()

        def transact(value: str, on_commit: Callable[[], None] = lambda: None) -> None:
            with mine:
                done = False
                try:
                    with producer.transaction():
                        tried.append(value)
                        for part in "ab":
                            producer.produce(topic, f"{value}{part}".encode(), partition=0)
                        done = True
                        on_commit()
                except BaseException:
                    in_commit[0] += done
                    raise
                told.append(value)

        def work(n: int) -> None:
            for i in range(TRANSACTIONS):
                if i % 3:
                    with gevent.Timeout(chance.uniform(0, 0.1), False):
                        transact(f"{n}-{i}")
                    continue
                late = gevent.Timeout(chance.choice([0, chance.uniform(0, 0.02)]))
                try:
                    transact(f"{n}-{i}", late.start)
                except gevent.Timeout as timeout:
                    if timeout is not late:
                        raise
                finally:
                    late.close()

        producer.init_transactions(LIMIT_S)
        workers = [gevent.spawn(work, n) for n in range(SHARING + SHARING // 5)]
        for victim in workers[:: len(workers) // 2]:
            gevent.sleep(chance.uniform(0, 0.1))
            victim.kill(block=False)
        gevent.joinall(workers, timeout=LIMIT_S, raise_error=True)
        assert in_commit[0] > 3, f"only {in_commit[0]} transactions were cut off in their commit: that proves nothing"
        transact("last")
        stats = producer.stats()
        assert (stats["unsettled_records"], stats["failed_records"], stats["transaction"]) == (0, 0, "ready"), stats
    return [tried, told]


@greenlets
def test_13_transactions_may_be_killed_anywhere(mode: str, kafka: KafkaCluster, new_topic: Callable[..., str]) -> None:
    """Each is in the log whole or not at all, and once; whoever was not cut off has its own, whatever became of the one before."""
    topic = new_topic()
    tried, told = in_child(mode, killed_transactions, kafka.hosts, topic)
    reader = Consumer({"bootstrap.servers": kafka.hosts, "group.id": "reader", "isolation.level": "read_committed"})
    reader.assign([TopicPartition(topic, 0, 0)])
    seen: list[str] = []
    while seen[-1:] != ["lastb"]:
        messages = reader.consume(10_000, LIMIT_S / 6)
        assert messages, seen[-1:]
        seen += [message.value().decode() for message in messages]
    reader.close()
    whole = [value[:-1] for value in seen[::2]]
    assert seen == [value + part for value in whole for part in "ab"], "whole, and never two mixed"
    assert max(Counter(whole).values()) == 1, "nothing is there twice"
    assert set(told) <= set(whole) <= set(tried)


@greenlets
def test_13_sends_may_be_killed_anywhere(mode: str, kafka: KafkaCluster, new_topic: Callable[..., str]) -> None:
    topic = new_topic(3)
    told = in_child(mode, killed_sends, kafka.hosts, topic)
    peer = Peer(kafka.hosts, kafka.release)
    log = {(r.partition, r.offset): (r.value or b"").decode() for r in peer.read_all(topic, 3)}
    assert max(Counter(log.values()).values()) == 1, "nothing is there twice"
    assert all(log.get((partition, offset)) == value for value, partition, offset in told), "each acknowledgement is of a record in the log"
    assert len(log) == len(told), "a call that was cut off has produced nothing"


@greenlets
def test_13_polls_may_be_killed_anywhere(mode: str, kafka: KafkaCluster, new_topic: Callable[..., str]) -> None:
    in_child(mode, killed_polls, kafka.hosts, new_topic())
