# topic: partitions=3 messages=100
# expect: brokers: 1
# expect: known topic: True
# expect: partition 0: leader True, 1 in sync, 34 messages, committed 10, lag 24
# expect: partition 1: leader True, 1 in sync, 33 messages, committed -, lag 33
# expect: partition 2: leader True, 1 in sync, 33 messages, committed 33, lag 0
# expect: lag in all: 57
# committed: 0=10 2=33
# original: brokers: 1
# original: known topic: True
# original: partition 0: leader True, 1 in sync, 34 messages, committed 10, lag 24
# original: partition 1: leader True, 1 in sync, 33 messages, committed 0, lag 33
# original: partition 2: leader True, 1 in sync, 33 messages, committed 33, lag 0
# original: lag in all: 57
# original: committed: 0=10 1=0 2=33
"""A script for a monitoring system: how far a group is behind, by the offsets that it has committed."""

import sys

from pykafka import KafkaClient
from pykafka.common import OffsetType

hosts, name, group = sys.argv[1:4]
client = KafkaClient(hosts=hosts, socket_timeout_ms=20000)
topic = client.topics[name.encode()]


def read_some(partition, count):
    """Another program of the group has read so far."""
    consumer = topic.get_simple_consumer(
        consumer_group=group.encode(), partitions=[topic.partitions[partition]], auto_offset_reset=OffsetType.EARLIEST
    )
    for _ in range(count):
        consumer.consume()
    consumer.commit_offsets()
    consumer.stop()


read_some(0, 10)
read_some(2, 33)

print("brokers:", len(client.brokers))
print("known topic:", name.encode() in client.topics)
watching = topic.get_simple_consumer(consumer_group=group.encode(), auto_start=False)
watching.start()
committed = {partition: found.offset for partition, found in watching.fetch_offsets()}
watching.stop()
first, last = topic.earliest_available_offsets(), topic.latest_available_offsets()
total = 0
for number, partition in sorted(topic.partitions.items()):
    begin, end = first[number].offset[0], last[number].offset[0]
    lag = end - max(committed[number], begin)
    told = committed[number] if committed[number] >= 0 else "-"
    leader = partition.leader.id in client.brokers
    print(f"partition {number}: leader {leader}, {len(partition.isr)} in sync, {end - begin} messages, committed {told}, lag {lag}")
    total += lag
print("lag in all:", total)
