# topic: partitions=1
# expect: b'customer-0' 0 0 b'order 0'
# expect: b'customer-1' 0 1 b'order 1'
# expect: b'customer-2' 0 2 b'order 2'
# expect: no such name: InvalidTopic
"""Sends orders one by one, and writes down where each of them is."""

import sys

from pykafka import KafkaClient
from pykafka.exceptions import InvalidTopic

client = KafkaClient(hosts=sys.argv[1])
topic = client.topics[sys.argv[2].encode()]
index = {}
with topic.get_sync_producer() as producer:
    for number in range(3):
        message = producer.produce(b"order %d" % number, partition_key=b"customer-%d" % number)
        index[message.partition_key] = (message.partition_id, message.offset, message.value)
for key, place in sorted(index.items()):
    print(key, *place)
try:
    client.topics[b"no such name"]
except InvalidTopic:
    print("no such name: InvalidTopic")
