# topic: partitions=2 messages=300
# expect: 300 messages, 0 to 299
# expect: partition 0 ends at 149
# expect: partition 1 ends at 149
# committed: 0=150 1=150
"""Reads a topic from its beginning to its end, as of now, and stores how far it came."""

import sys

from pykafka import KafkaClient
from pykafka.common import OffsetType

hosts, name, group = (word.encode() for word in sys.argv[1:4])
client = KafkaClient(hosts=hosts.decode())
topic = client.topics[name]
ends = {partition: found.offset[0] for partition, found in topic.latest_available_offsets().items()}

consumer = topic.get_simple_consumer(consumer_group=group, auto_offset_reset=OffsetType.EARLIEST)
values, last = [], {}
while len(values) < sum(ends.values()):
    message = consumer.consume()
    values.append(int(message.value))
    last[message.partition_id] = message.offset
consumer.commit_offsets()
consumer.stop()

values.sort()
print(f"{len(values)} messages, {values[0]} to {values[-1]}")
for partition in sorted(last):
    print("partition", partition, "ends at", last[partition])
