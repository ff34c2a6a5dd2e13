# topic: partitions=2 messages=50
# expect: handled 50, the last one is 49
# expect: stopped while it waits: ConsumerStoppedException
# expect: the thread has ended: True
# expect: after that: ConsumerStoppedException
# expect: a second run begins behind: 50, 51
# committed: 0=26 1=26
"""A service whose consumer runs in a thread of its own, is stopped from the main thread while it waits, and is started again."""

import queue
import sys
import threading

from pykafka import KafkaClient
from pykafka.common import OffsetType
from pykafka.exceptions import ConsumerStoppedException

LIMIT = 60


class Reader(threading.Thread):
    """Hands the values of a topic to a queue until it is stopped."""

    def __init__(self, topic, group):
        threading.Thread.__init__(self, daemon=True)
        self.consumer = topic.get_simple_consumer(
            consumer_group=group, auto_commit_enable=True, auto_commit_interval_ms=60000, auto_offset_reset=OffsetType.EARLIEST
        )
        self.handled = queue.Queue()
        self.ended_by = "the end of the iteration"

    def run(self):
        try:
            for message in self.consumer:
                self.handled.put(int(message.value))
        except ConsumerStoppedException as stopped:
            self.ended_by = type(stopped).__name__

    def take(self, count):
        return sorted(self.handled.get(timeout=LIMIT) for _ in range(count))

    def stop(self):
        self.consumer.stop()
        self.join(LIMIT)


client = KafkaClient(hosts=sys.argv[1])
topic = client.topics[sys.argv[2]]
group = sys.argv[3].encode()

reader = Reader(topic, group)
reader.start()
values = reader.take(50)
print(f"handled {len(values)}, the last one is {values[-1]}")
reader.stop()
print("stopped while it waits:", reader.ended_by)
print("the thread has ended:", not reader.is_alive())
try:
    print("after that:", reader.consumer.consume())
except ConsumerStoppedException as stopped:
    print("after that:", type(stopped).__name__)

with topic.get_sync_producer(partitioner=lambda partitions, key: sorted(partitions, key=lambda each: each.id)[int(key) % 2]) as producer:
    for number in (50, 51):
        producer.produce(b"%d" % number, partition_key=b"%d" % number)
again = Reader(topic, group)
again.start()
print("a second run begins behind:", ", ".join(map(str, again.take(2))))
again.stop()
