# topic: partitions=3
# expect: 300 messages: 100 100 100
"""Sends messages without a partitioner: each partition gets as many."""

import sys

from pykafka import KafkaClient

client = KafkaClient(hosts=sys.argv[1])
topic = client.topics[sys.argv[2].encode()]
with topic.get_producer(linger_ms=20) as producer:
    for number in range(300):
        producer.produce(b"%d" % number)

ends = {partition: found.offset[0] for partition, found in topic.latest_available_offsets().items()}
print(sum(ends.values()), "messages:", *(ends[partition] for partition in sorted(ends)))
