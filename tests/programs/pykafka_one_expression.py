# topic: partitions=1
# expect: 3 messages, the first is b'0'
# original: exit 1: AttributeError
"""Reads a topic of a client that nobody keeps: topic and client are made in one expression."""

import sys

from pykafka import KafkaClient

topic = KafkaClient(hosts=sys.argv[1]).topics[sys.argv[2].encode()]
with topic.get_sync_producer() as producer:
    for number in range(3):
        producer.produce(b"%d" % number)
consumer = KafkaClient(hosts=sys.argv[1]).topics[sys.argv[2].encode()].get_simple_consumer(consumer_timeout_ms=30000)
values = [consumer.consume().value for _ in range(3)]
consumer.stop()
print(len(values), "messages, the first is", values[0])
