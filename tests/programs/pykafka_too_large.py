# topic: partitions=1
# expect: 3000 bytes: too large
# expect: 300 bytes: sent
# expect: the topic has 1 message
"""Sends a message that is larger than its producer allows, and one that is not."""

import sys

from pykafka import KafkaClient
from pykafka.exceptions import MessageSizeTooLarge

client = KafkaClient(hosts=sys.argv[1])
topic = client.topics[sys.argv[2].encode()]
with topic.get_sync_producer(max_request_size=2000, linger_ms=0) as producer:
    for size in (3000, 300):
        try:
            producer.produce(b"x" * size)
            print(size, "bytes: sent")
        except MessageSizeTooLarge:
            print(size, "bytes: too large")
print("the topic has", topic.latest_available_offsets()[0].offset[0], "message")
