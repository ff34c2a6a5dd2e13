"""kafka-python 0.9's API on real brokers (behaviours 315-349)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import gkafka
from gkafka.kafka.legacy import (
    ConsumerFetchSizeTooSmall,
    ConsumerProcessError,
    ConsumerTimeout,
    KafkaClient,
    KafkaConsumer,
    KeyedProducer,
    MultiProcessConsumer,
    SimpleConsumer,
    SimpleProducer,
)
from tests.kit.clock import epoch_s, now
from tests.live.kafka import KafkaCluster

old = pytest.mark.parametrize("version", ["2.8.2"])
both = pytest.mark.parametrize("version", ["2.8.2", "4.2.0"])
NewTopic = Callable[..., str]
NewName = Callable[[str], str]


@pytest.fixture
def legacy(kafka: KafkaCluster, handler: str) -> Iterator[KafkaClient]:
    with KafkaClient(kafka.hosts, handler=handler) as client:
        yield client


def send(client: KafkaClient, topic: str, given: dict[int, list[bytes]]) -> None:
    """Each message in a batch of its own."""
    with client._client.get_producer(linger_ms=0) as producer:
        for partition, values in given.items():
            for value in values:
                producer.produce(topic, value, partition=partition).result(60)


def values(messages: list[Any]) -> list[bytes]:
    return [m.message.value for m in messages]


def committed(client: KafkaClient, group: str, topic: str, partition: int = 0) -> int:
    """What the group has committed, as gkafka's own consumer sees it."""
    with client._client.get_consumer(None, group, auto_commit=False) as consumer:
        return int(consumer.committed((topic, partition)))


@old
def test_a_simple_consumer(version: str, legacy: KafkaClient, new_topic: NewTopic, new_name: NewName) -> None:
    """Behaviours 315-321, 324-328."""
    topic, group = new_topic(2), new_name("group")
    send(legacy, topic, {0: [b"0", b"1", b"2", b"3"], 1: [b"a", b"b"]})
    consumer = SimpleConsumer(legacy, group, topic, partitions=[0], auto_commit_every_n=3, auto_commit_every_t=3_600_000, iter_timeout=3)
    assert consumer.pending() == 4
    assert values(consumer.get_messages(2, block=False)) == [b"0", b"1"]
    assert committed(legacy, group, topic) == -1
    assert consumer.get_message(timeout=60).message.value == b"2"
    assert committed(legacy, group, topic) == 3
    consumer.commit()
    assert values(list(consumer)) == [b"3"]
    consumer.seek(1, 0)
    assert consumer.get_message(timeout=60).message.value == b"1"
    consumer.seek(1, 1)
    assert consumer.get_message(timeout=60).message.value == b"3"
    consumer.seek(-1, 2)
    assert consumer.get_message(timeout=60).message.value == b"3"
    assert consumer.get_message() is None
    consumer.provide_partition_info()
    send(legacy, topic, {0: [b"4"]})
    partition, message = consumer.get_message(timeout=60)
    assert (partition, message.offset) == (0, 4)
    consumer.stop()
    assert committed(legacy, group, topic) == 5
    with SimpleConsumer(legacy, group, topic) as other:
        assert other.pending([0]) == 0
        assert values(other.get_messages(2, timeout=60)) == [b"a", b"b"]
        other.commit([1])
        assert committed(legacy, group, topic, 1) == 2


@old
def test_auto_commit_by_time(version: str, legacy: KafkaClient, new_topic: NewTopic, new_name: NewName) -> None:
    """Behaviour 318."""
    topic, group = new_topic(1), new_name("group")
    send(legacy, topic, {0: [b"a"]})
    with SimpleConsumer(legacy, group, topic, auto_commit_every_t=300) as consumer:
        consumer.get_message(timeout=60)
        deadline = now() + 60
        while committed(legacy, group, topic) != 1:
            assert now() < deadline
            legacy._client.handler.sleep(0.05)


@old
def test_one_trigger_puts_the_other_off(version: str, legacy: KafkaClient, new_topic: NewTopic, new_name: NewName) -> None:
    """Behaviour 319."""
    topic, group = new_topic(1), new_name("group")
    send(legacy, topic, {0: [b"a", b"b", b"c"]})
    with SimpleConsumer(legacy, group, topic, auto_commit_every_n=2, auto_commit_every_t=60000) as consumer:
        consumer._triggers._due -= 30  # half of the time is over
        consumer.get_messages(2, timeout=60)
        assert committed(legacy, group, topic) == 2
        assert consumer._triggers._due > now() + 31
        consumer.get_message(timeout=60)
        consumer.commit()
        assert committed(legacy, group, topic) == 3
        assert consumer._triggers._count == 0


@old
def test_the_buffer_doubles_up_to_its_limit(version: str, legacy: KafkaClient, new_topic: NewTopic, new_name: NewName) -> None:
    """Behaviours 322, 323."""
    topic = new_topic(1)
    send(legacy, topic, {0: [b"a", b"x" * 10_000, b"y" * 40_000, b"z"]})
    with SimpleConsumer(legacy, new_name("group"), topic, fetch_size_bytes=1) as consumer:
        assert [len(v) for v in values(consumer.get_messages(2, timeout=60))] == [1, 10_000]
        assert consumer.buffer_size == 16384
        with pytest.raises(ConsumerFetchSizeTooSmall):
            consumer.get_message(timeout=60)
        consumer.seek(1, 1)
        assert consumer.get_message(timeout=60).message.value == b"z"
    with SimpleConsumer(legacy, None, topic, max_buffer_size=None) as consumer:
        assert [len(v) for v in values(consumer.get_messages(4, timeout=60))] == [1, 10_000, 40_000, 1]


@old
def test_a_kafka_consumer(
    version: str, legacy: KafkaClient, kafka: KafkaCluster, handler: str, new_topic: NewTopic, new_name: NewName
) -> None:
    """Behaviours 333-338, 341-343, 345, 347-349."""
    topic, other, group = new_topic(2), new_topic(2), new_name("group")
    send(legacy, topic, {0: [b"0", b"1", b"2"], 1: [b"3"]})
    settings: dict[str, Any] = {"metadata_broker_list": kafka.hosts, "handler": handler, "consumer_timeout_ms": 60_000}
    with KafkaConsumer(topic, **settings) as tail:
        send(legacy, topic, {1: [b"new"]})
        assert tail.next().value == b"new"
    with KafkaConsumer((topic, 0), {other: [1]}, group_id=group, auto_offset_reset="smallest", **settings) as consumer:
        messages = [consumer.next() for _ in range(2)]
        assert [m.value for m in messages] == [b"0", b"1"]
        assert [m.value for m in consumer.fetch_messages()] == [b"2"]
        assert consumer.task_done(messages[1])
        assert consumer.commit()
        assert consumer.offsets("commit") == {(topic, 0): 2, (other, 1): None}
        assert consumer.offsets("highwater")[topic, 0] == 3
    assert committed(legacy, group, topic) == 2
    automatic = {"auto_commit_enable": True, "auto_commit_interval_messages": 1}
    with KafkaConsumer(topic, group_id=group, auto_offset_reset="smallest", **automatic, **settings) as consumer:
        found = {(m.partition, m.value): m for m in (consumer.next() for _ in range(3))}
        assert set(found) == {(0, b"2"), (1, b"3"), (1, b"new")}
        consumer.task_done(found[0, b"2"])
        assert committed(legacy, group, topic) == 3
        consumer.set_topic_partitions((topic, 0, 1), {(topic, 1): 1}, other)
        assert {consumer.next().value for _ in range(3)} == {b"1", b"2", b"new"}
    with KafkaConsumer((topic, 0, 99), auto_offset_reset="smallest", **settings) as consumer:
        assert consumer.next().value == b"0"
    with pytest.raises(ConsumerTimeout), KafkaConsumer(topic, **{**settings, "consumer_timeout_ms": 200}) as consumer:
        consumer.next()


@both
def test_get_partition_offsets(version: str, kafka: KafkaCluster, handler: str, new_topic: NewTopic) -> None:
    """Behaviour 344."""
    topic = new_topic(1)
    with KafkaConsumer(metadata_broker_list=kafka.hosts, handler=handler) as consumer, KafkaClient(kafka.hosts, handler=handler) as client:
        send(client, topic, {0: [b"a", b"b", b"c"]})
        assert consumer.get_partition_offsets(topic, 0, -1, 1) == [3]
        assert consumer.get_partition_offsets(topic, 0, -2, 5) == [0]
        assert consumer.get_partition_offsets(topic, 0, int(epoch_s() * 1000) + 60_000, 5) == [3, 0]
        assert consumer.get_partition_offsets(topic, 0, 1000, 5) == []


@both
def test_producers(version: str, kafka: KafkaCluster, handler: str, new_topic: NewTopic) -> None:
    """Behaviour 241."""
    topic = new_topic(2)
    with KafkaClient(kafka.hosts, handler=handler) as client:
        send(client, topic, {0: [b"0"], 1: [b"0"]})  # with retries: the topic is new
        with SimpleProducer(client, random_start=False) as producer:
            assert [(r.partition, r.error, r.offset) for r in producer.send_messages(topic, b"a", b"b")] == [(0, 0, 1)]
            assert [(r.partition, r.error, r.offset) for r in producer.send_messages(topic, b"c")] == [(1, 0, 1)]
        with SimpleProducer(client, async_send=True) as producer:
            producer.send_messages(topic, b"d")
        with KeyedProducer(client) as keyed:
            first = keyed.send(topic, b"k", b"e")
            assert keyed.send(topic, b"k", b"f")[0].partition == first[0].partition
        with SimpleConsumer(client, None, topic) as consumer:
            assert sorted(values(consumer.get_messages(8, timeout=60))) == [b"0", b"0", b"a", b"b", b"c", b"d", b"e", b"f"]


@both
def test_several_processes(version: str, kafka: KafkaCluster, handler: str, new_topic: NewTopic, new_name: NewName) -> None:
    """Behaviours 330-332."""
    topic, group = new_topic(3), new_name("group")
    with KafkaClient(kafka.hosts, handler=handler) as client:
        send(client, topic, {p: [b"%d%d" % (p, i) for i in range(5)] for p in range(3)})
        with MultiProcessConsumer(client, group, topic, num_procs=2) as consumer:
            pids = [process.pid for process in consumer.procs]
            assert [process.partitions for process in consumer.procs] == [[0, 2], [1]]
            found = consumer.get_messages(10, timeout=60) + list(consumer)
            assert sorted(values(found)) == [b"%d%d" % (p, i) for p in range(3) for i in range(5)]
        assert [committed(client, group, topic, p) for p in range(3)] == [5, 5, 5]
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
        with MultiProcessConsumer(client, group, topic, partitions_per_proc=3) as consumer:
            assert consumer.get_messages(1, block=False) == []
            os.kill(consumer.procs[0].pid, signal.SIGKILL)
            with pytest.raises(ConsumerProcessError, match="SIGKILL"):
                consumer.get_messages(1, timeout=60)


@old
def test_no_process_outlives_its_parent(version: str, kafka: KafkaCluster, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    program = textwrap.dedent(f"""
        import time
        from gkafka.kafka.legacy import KafkaClient, MultiProcessConsumer
        consumer = MultiProcessConsumer(KafkaClient({kafka.hosts!r}), None, {topic!r})
        consumer.get_messages(1, block=False)
        print(consumer.procs[0].pid, flush=True)
        time.sleep(60)
        """)
    environment = {**os.environ, "PYTHONPATH": str(Path(gkafka.__file__).parent.parent)}
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout is not None
        child = Path(f"/proc/{int(parent.stdout.readline())}/stat")
        assert child.exists()
        parent.kill()
        parent.wait(60)
        deadline = now() + 60
        while child.exists() and child.read_text().rpartition(")")[2].split()[0] != "Z":
            assert now() < deadline
            time.sleep(0.02)
