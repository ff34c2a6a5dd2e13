# topic: partitions=3
# expect: 40 delivered, 1 failed
# expect: one partition for each key: True
# expect: offsets without a gap: True
# expect: failed: the large one, MessageSizeTooLargeError
# expect: read back: 40, 820
"""Sends events as JSON, keyed by user, and keeps count of what was delivered and what was not, by callbacks."""

import json
import sys
from collections import defaultdict

from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError, MessageSizeTooLargeError

bootstrap, topic = sys.argv[1:3]
delivered, failed = [], []


def on_success(user, metadata):
    delivered.append((user, metadata.topic, metadata.partition, metadata.offset))


def on_error(user, error):
    failed.append((user, error))


producer = KafkaProducer(
    bootstrap_servers=bootstrap.split(","),
    api_version_auto_timeout_ms=30000,
    key_serializer=str.encode,
    value_serializer=lambda event: json.dumps(event).encode("utf-8"),
    acks="all",
    retries=3,
    linger_ms=20,
    max_request_size=100000,
)
for n in range(40):
    user = "user-%d" % (n % 7)
    future = producer.send(topic, key=user, value={"user": user, "amount": n + 1})
    future.add_callback(on_success, user)
    future.add_errback(on_error, user)
producer.send(topic, key="the large one", value="x" * 200000).add_callback(on_success, "the large one").add_errback(
    on_error, "the large one"
)
producer.flush()
producer.close()

print("%d delivered, %d failed" % (len(delivered), len(failed)))
partitions = defaultdict(set)
offsets = defaultdict(list)
for user, name, partition, offset in delivered:
    assert name == topic
    partitions[user].add(partition)
    offsets[partition].append(offset)
print("one partition for each key:", all(len(found) == 1 for found in partitions.values()))
print("offsets without a gap:", all(sorted(found) == list(range(len(found))) for found in offsets.values()))
for user, error in failed:
    assert isinstance(error, KafkaError)
    name = "MessageSizeTooLargeError" if isinstance(error, MessageSizeTooLargeError) else repr(error)
    print("failed: %s, %s" % (user, name))

consumer = KafkaConsumer(
    topic,
    bootstrap_servers=bootstrap.split(","),
    api_version_auto_timeout_ms=30000,
    auto_offset_reset="earliest",
    value_deserializer=lambda data: json.loads(data.decode("utf-8")),
    consumer_timeout_ms=10000,
)
amounts = []
for message in consumer:
    assert message.key.decode() == message.value["user"]
    amounts.append(message.value["amount"])
    if len(amounts) == 40:
        break
consumer.close()
print("read back: %d, %d" % (len(amounts), sum(amounts)))
