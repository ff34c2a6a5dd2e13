# topic: partitions=2 messages=200
# expect: 200 messages
# expect: 100 more, read again: 0
# committed: 0=150 1=150
"""A second member joins while the first one, which never commits by itself, has read what there is. They share the topic by the group's coordinator."""

import sys
import time

from pykafka import KafkaClient
from pykafka.common import OffsetType

hosts, name, group, zookeeper = sys.argv[1:5]
client = KafkaClient(hosts=hosts)
topic = client.topics[name.encode()]


def join():
    return topic.get_balanced_consumer(
        group.encode(), auto_offset_reset=OffsetType.EARLIEST, consumer_timeout_ms=500, managed=True, heartbeat_interval_ms=300
    )


first = join()
seen = []
while len(seen) < 200:
    message = first.consume()
    if message is not None:
        seen.append(message.value)
first.consume(block=False)
print(len(set(seen)), "messages")

second = join()
while not len(first.partitions) == len(second.partitions) == 1:
    first.consume(block=False)
    time.sleep(0.05)
with topic.get_producer(linger_ms=10) as producer:
    for number in range(200, 300):
        producer.produce(b"%d" % number)

more = []
while len(set(more) - set(seen)) < 100:
    for member in (first, second):
        message = member.consume(block=False)
        if message is not None:
            more.append(message.value)
print(len(set(more) - set(seen)), "more, read again:", len(set(more) & set(seen)))
first.commit_offsets()
second.commit_offsets()
second.stop()
first.stop()
