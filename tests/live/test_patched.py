"""The main job's way of running: a process that gevent patched, started as a user would start it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.live.kafka import KafkaCluster
from tests.live.peer import Peer

PROGRAM = """
import sys
if sys.argv[3] == "gkafka first":
    import gkafka
from gevent import monkey
monkey.patch_all()
import gevent
import gkafka
from gkafka.common import OffsetType

client = gkafka.KafkaClient(sys.argv[1])
assert client.handler.name == "gevent", client.handler.name
producer = client.get_producer(compression="lz4")

def write(number):
    deliveries = [producer.produce(sys.argv[2], b"%d %d" % (number, i), key=b"%d" % number) for i in range(50)]
    return [delivery.result(60).offset for delivery in deliveries]

jobs = [gevent.spawn(write, number) for number in range(200)]
gevent.joinall(jobs, timeout=60, raise_error=True)
producer.close(60)
consumer = client.topics[sys.argv[2]].get_simple_consumer(auto_offset_reset=OffsetType.EARLIEST)
count = 0
while count < 10000:
    count += len(consumer.consume_batch(5000, timeout_ms=10000))
consumer.stop()
client.close(10)
print(count, sum(len(set(job.value)) for job in jobs))
"""


@pytest.mark.parametrize("first", ["gevent first", "gkafka first"])
def test_two_hundred_greenlets_share_one_producer_in_a_patched_process(
    first: str, kafka: KafkaCluster, peer: Peer, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(4)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, kafka.hosts, topic, first], capture_output=True, text=True, timeout=100, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == ("10000 10000\n", "", 0)
    by_writer: dict[bytes, list[int]] = {}
    for record in peer.read(topic, 10_000, 4):
        assert record.value is not None
        writer, number = record.value.split()
        by_writer.setdefault(writer, []).append(int(number))
    assert len(by_writer) == 200
    assert all(numbers == list(range(50)) for numbers in by_writer.values())
