# topic: partitions=2
# release: 1.4.7
# expect: acknowledged: [(0, 0)]
# expect: keyed: one partition for a key: True
# expect: pending: 6
# expect: messages: [b'a', b'b', b'c', b'k0', b'k1', b'k2']
# expect: nothing more: None
# expect: pending: 0
# expect: again, the last of each: 2
# expect: partition and message: True
# expect: topics: True
# committed: 0=2 1=4
# original: acknowledged: [(0, 0)]
# original: keyed: one partition for a key: True
# original: pending: 6
# original: messages: [b'a', b'b', b'c', b'k0', b'k1', b'k2']
# original: nothing more: None
# original: pending: 0
# original: again, the last of each: 2
# original: partition and message: True
# original: topics: True
"""The simple clients of 0.9, which 1.4 still has: messages sent and acknowledged one by one, read, counted and committed."""

import sys

from kafka import KeyedProducer, SimpleClient, SimpleConsumer, SimpleProducer


class ByLength:
    """Chooses a partition for a key, the same one in each process."""

    def __init__(self, partitions):
        self.partitions = partitions

    def partition(self, key):
        return self.partitions[len(key) % len(self.partitions)]


bootstrap, topic, group = sys.argv[1:4]
client = SimpleClient(bootstrap)
client.load_metadata_for_topics(topic)
producer = SimpleProducer(client, random_start=False)
first = producer.send_messages(topic, b"a")
print("acknowledged:", [(response.error, response.offset) for response in first])
producer.send_messages(topic, b"b")
producer.send_messages(topic, b"c")
keyed = KeyedProducer(client, partitioner=ByLength)
places = set()
for n in range(3):
    places.add(keyed.send_messages(topic, b"a key", b"k%d" % n)[0].partition)
print("keyed: one partition for a key:", len(places) == 1)

consumer = SimpleConsumer(client, group, topic, auto_commit=False)
print("pending:", consumer.pending())
got = consumer.get_messages(count=6, block=True, timeout=20)
print("messages:", sorted(entry.message.value for entry in got))
print("nothing more:", consumer.get_message(block=False))
print("pending:", consumer.pending())
consumer.commit()
consumer.seek(-1, 1)
print("again, the last of each:", len(consumer.get_messages(count=2, block=True, timeout=20)))
consumer.provide_partition_info()
consumer.seek(-1, 1)
partition, entry = consumer.get_message(block=True, timeout=20)
print("partition and message:", partition in client.get_partition_ids_for_topic(topic) and entry.offset >= 0)
consumer.stop()
print("topics:", topic in client.topics)
client.close()
