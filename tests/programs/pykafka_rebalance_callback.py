# topic: partitions=2 messages=20
# expect: 20 messages, 20 places
# expect: 20 more, 20 new places
# committed: 0=20 1=20
"""Two members of a group. A callback has the last word on where each goes on: where it is."""

import sys
import time

from pykafka import KafkaClient

hosts, name, group = sys.argv[1:4]
client = KafkaClient(hosts=hosts)
topic = client.topics[name.encode()]


def after_rebalance(consumer, old_offsets, new_offsets):
    return new_offsets


def join():
    return topic.get_balanced_consumer(
        group.encode(), managed=True, heartbeat_interval_ms=300, consumer_timeout_ms=500, post_rebalance_callback=after_rebalance
    )


def read(count, *members):
    places = []
    while len(places) < count:
        for member in members:
            message = member.consume(block=False)
            if message is not None:
                places.append((message.partition_id, message.offset))
        time.sleep(0.005)
    for member in members:
        member.consume(block=False)
    return places


first = join()
before = read(20, first)
print(len(before), "messages,", len(set(before)), "places")

second = join()
while not len(first.partitions) == len(second.partitions) == 1:
    time.sleep(0.05)
with topic.get_sync_producer() as producer:
    for number in range(20):
        producer.produce(b"%d" % number)
after = read(20, first, second)
print(len(after), "more,", len(set(after) - set(before)), "new places")
first.commit_offsets()
second.commit_offsets()
second.stop()
first.stop()
