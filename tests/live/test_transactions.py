"""Transactions on real Kafka: of the new kind (4.2: KIP-890's second part), verified by the broker (3.9) and of the old kind (2.8)."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from gkafka.common import OffsetType
from gkafka.exceptions import FencedError, KafkaTimeoutError, TransactionAbortableError, TransactionFatalError, TransactionStateError
from tests.effort import one_of
from tests.kit.clock import now
from tests.live.kafka import KafkaCluster
from tests.live.peer import Peer

if TYPE_CHECKING:
    from gkafka import KafkaClient
    from gkafka.nativeproducer import NativeProducer

DEADLINE_S = 60.0
PARTITIONS = 2
KINDS = pytest.mark.parametrize("version", ["2.8.2", *one_of("4.2.0", "3.9.1")])
Topics = Callable[..., str]
Names = Callable[[str], str]


def seen(hosts: str, topic: str, partitions: int = PARTITIONS, *, committed: bool = True) -> dict[int, list[bytes]]:
    """What confluent-kafka reads of a topic now: partition -> values."""
    consumer = Consumer(
        {
            "bootstrap.servers": hosts,
            "group.id": "eyes",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        }
    )
    consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
    values: dict[int, list[bytes]] = {p: [] for p in range(partitions)}
    open_ones = set(values)
    deadline = now() + DEADLINE_S
    while open_ones:
        assert now() < deadline, f"no end of {topic} after {DEADLINE_S:g} s"
        message = consumer.poll(0.5)
        if message is None:
            continue
        partition = message.partition()
        assert partition is not None
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            open_ones.discard(partition)
        else:
            values[partition].append(message.value() or b"")
    consumer.close()
    return values


def put(producer: NativeProducer, topic: str, name: str, count: int = 10) -> None:
    for i in range(count):
        producer.produce(topic, f"{name} {i}".encode(), partition=i % PARTITIONS)


def named(*names: str, count: int = 10) -> dict[int, list[bytes]]:
    return {p: [f"{name} {i}".encode() for name in names for i in range(p, count, PARTITIONS)] for p in range(PARTITIONS)}


@KINDS
def test_read_committed_sees_what_was_committed_and_nothing_else(
    version: str, kafka: KafkaCluster, client: KafkaClient, new_topic: Topics, new_name: Names
) -> None:
    topic = new_topic(PARTITIONS)
    producer = client.get_producer(transactional_id=new_name("writer"))
    for n in range(12):
        producer.begin_transaction()
        put(producer, topic, f"t{n}")
        if n % 3 == 1:
            producer.flush()
        if n % 3:
            producer.abort_transaction(DEADLINE_S)
        else:
            producer.commit_transaction(DEADLINE_S)
    producer.close(60)
    wanted = named(*(f"t{n}" for n in range(0, 12, 3)))
    assert seen(kafka.hosts, topic) == wanted
    uncommitted = seen(kafka.hosts, topic, committed=False)
    assert all(set(wanted[p]) < set(uncommitted[p]) for p in wanted), "some of what was aborted had been written"


@KINDS
def test_an_open_transaction_is_not_seen(
    version: str, kafka: KafkaCluster, client: KafkaClient, new_topic: Topics, new_name: Names
) -> None:
    topic = new_topic(PARTITIONS)
    producer = client.get_producer(transactional_id=new_name("writer"))
    with producer.transaction():
        put(producer, topic, "open")
        producer.flush()
        assert seen(kafka.hosts, topic) == named()
        assert seen(kafka.hosts, topic, committed=False) == named("open")
    assert seen(kafka.hosts, topic) == named("open")


@KINDS
def test_what_is_consumed_and_what_is_made_of_it_count_together(
    version: str, kafka: KafkaCluster, client: KafkaClient, peer: Peer, new_topic: Topics, new_name: Names
) -> None:
    """Every third transaction is aborted, and its input read again from what the group has committed: each record comes out once."""
    source, target, group = new_topic(1), new_topic(PARTITIONS), new_name("group")
    with client.get_producer(batch_bytes=512) as writer:
        for i in range(300):
            writer.produce(source, b"%d" % i, partition=0)
    producer = client.get_producer(transactional_id=new_name("transformer"))
    position, rounds = 0, 0
    while position < 300:
        consumer = client.topics[source].get_simple_consumer(auto_offset_reset=OffsetType.EARLIEST, consumer_group=group)
        messages: list[Any] = []
        while len(messages) < min(30, 300 - position):
            messages += consumer.consume_batch(30 - len(messages), timeout_ms=1000)
        consumer.stop()
        assert messages[0].offset == position, "the group goes on where its last committed transaction ended"
        rounds += 1
        producer.begin_transaction()
        for message in messages:
            producer.produce(target, b"made of " + message.value, partition=message.offset % PARTITIONS)
        producer.send_offsets({(source, 0): messages[-1].offset + 1}, group)
        if rounds % 3 == 0:
            producer.abort_transaction(DEADLINE_S)
        else:
            producer.commit_transaction(DEADLINE_S)
            position = messages[-1].offset + 1
    assert seen(kafka.hosts, target) == {p: [b"made of %d" % i for i in range(p, 300, PARTITIONS)] for p in range(PARTITIONS)}
    assert peer.committed(group, source) == {0: 300}


@KINDS
def test_a_newer_producer_of_the_same_name_fences_the_older(
    version: str, kafka: KafkaCluster, client: KafkaClient, connect: Callable[..., KafkaClient], new_topic: Topics, new_name: Names
) -> None:
    topic, name = new_topic(PARTITIONS), new_name("writer")
    old, new = client.get_producer(transactional_id=name), connect().get_producer(transactional_id=name)
    old.begin_transaction()
    put(old, topic, "old")
    old.flush()
    with new.transaction():
        put(new, topic, "new")
    with pytest.raises(FencedError) as caught:
        old.commit_transaction(DEADLINE_S)
    assert caught.value.fatal
    for call in (old.begin_transaction, old.init_transactions, lambda: old.produce(topic, b"x", partition=0)):
        with pytest.raises(FencedError):
            call()
    with new.transaction():
        put(new, topic, "again")
    assert seen(kafka.hosts, topic) == named("new", "again")


CHILD = """
import sys, time
from gkafka import KafkaClient
client = KafkaClient(sys.argv[1], handler=sys.argv[4])
producer = client.get_producer(transactional_id=sys.argv[2])
producer.begin_transaction()
for i in range(10):
    producer.produce(sys.argv[3], b"killed %d" % i, partition=i % 2)
producer.flush()
print("written", flush=True)
time.sleep(60)
"""


@KINDS
def test_a_killed_client_is_followed_by_one_of_the_same_name(
    version: str, kafka: KafkaCluster, client: KafkaClient, handler: str, new_topic: Topics, new_name: Names
) -> None:
    topic, name = new_topic(PARTITIONS), new_name("writer")
    child = subprocess.Popen([sys.executable, "-c", CHILD, kafka.hosts, name, topic, handler], stdout=subprocess.PIPE)
    assert child.stdout is not None
    try:
        assert child.stdout.readline() == b"written\n"
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait(60)
        child.stdout.close()
    producer = client.get_producer(transactional_id=name)
    producer.init_transactions(DEADLINE_S)
    with producer.transaction():
        put(producer, topic, "after")
    assert seen(kafka.hosts, topic) == named("after")
    assert seen(kafka.hosts, topic, committed=False) == named("killed", "after")


@KINDS
def test_a_transaction_that_is_open_too_long_is_ended_by_the_broker(
    version: str, kafka: KafkaCluster, client: KafkaClient, new_topic: Topics, new_name: Names
) -> None:
    topic = new_topic(PARTITIONS)
    producer = client.get_producer(transactional_id=new_name("writer"), transaction_timeout_ms=500)
    producer.begin_transaction()
    put(producer, topic, "late")
    producer.flush()
    deadline = now() + DEADLINE_S
    probe = client.get_producer()
    while True:  # what comes after it is read only once it has ended
        probe.produce(topic, b"probe", partition=0).result(60)
        if b"probe" in seen(kafka.hosts, topic)[0]:
            break
        assert now() < deadline, "the broker did not end the transaction"
    with pytest.raises(TransactionFatalError, match="transaction_timeout_ms"):
        producer.commit_transaction(DEADLINE_S)
    assert seen(kafka.hosts, topic)[1] == []


@KINDS
def test_the_kind_of_the_transactions_is_the_brokers(version: str, client: KafkaClient, new_topic: Topics, new_name: Names) -> None:
    """KIP-890: with transaction.version 2 each transaction has an epoch of its own, before an epoch lasts."""
    producer = client.get_producer(transactional_id=new_name("writer"))
    epochs = []
    for _ in range(3):
        with producer.transaction():
            producer.produce("kinds", b"x", partition=0)
            transactions = producer._transactions
            assert transactions is not None
            epochs.append(transactions.machine.producer)
    assert len(set(epochs)) == (3 if version == "4.2.0" else 1)
    with pytest.raises(TransactionStateError):
        producer.produce("kinds", b"x", partition=0)


# -- three nodes -------------------------------------------------------------------------------------------------------
def test_a_killed_coordinator_loses_nothing_and_doubles_nothing(
    whole_cluster: KafkaCluster, client: KafkaClient, new_topic: Topics, new_name: Names
) -> None:
    """F25. The broker that keeps the transaction is killed in the middle of one; whatever failed is done again, as the errors say."""
    topic = new_topic(PARTITIONS)
    producer = client.get_producer(transactional_id=new_name("writer"), transaction_timeout_ms=120_000)
    for n in range(30):
        while True:
            try:
                with producer.transaction():
                    put(producer, topic, f"t{n}", 20)
                    if n == 10 and all(node.alive for node in whole_cluster.nodes):
                        producer.flush()
                        whole_cluster.kill(coordinator(producer))
                break
            except TransactionAbortableError:
                continue
            except KafkaTimeoutError:
                producer.commit_transaction()
                break
    assert sum(node.alive for node in whole_cluster.nodes) == 2
    producer.close(60)
    assert seen(whole_cluster.hosts, topic) == named(*(f"t{n}" for n in range(30)), count=20)


def coordinator(producer: NativeProducer) -> int:
    """The id of the broker that keeps the producer's transactions."""
    assert producer._transactions is not None
    machine = producer._transactions.machine
    return machine._known[1, machine.transactional_id][0]
