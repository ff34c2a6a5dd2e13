# topic: partitions=2 messages=120
# expect: 40 + 40 + 40 moved
# expect: 60 from partition 0, 60 from partition 1
# expect: each once: True
# expect: nothing more: None
# expect: compressed values arrive whole: True
# committed: 0=60 1=60
"""Moves what is in a topic to another one, in batches of forty: a batch is committed once all of it has been written."""

import json
import sys
import time
from collections import Counter

from pykafka import KafkaClient
from pykafka.common import CompressionType, OffsetType
from pykafka.exceptions import LeaderNotAvailable, SocketDisconnectedError

hosts, source, group = sys.argv[1:4]
client = KafkaClient(hosts=hosts)


def find(name):
    """A topic that is made by being asked for has no leader for a moment."""
    while True:
        try:
            return client.topics[name]
        except LeaderNotAvailable:
            time.sleep(0.5)


incoming, outgoing = find(source.encode()), find(source.encode() + b"-moved")

consumer = incoming.get_simple_consumer(
    consumer_group=group.encode(), auto_offset_reset=OffsetType.EARLIEST, consumer_timeout_ms=20000, fetch_message_max_bytes=2000
)
producer = outgoing.get_producer(compression=CompressionType.GZIP, linger_ms=10, required_acks=1, max_retries=5)
moved = []
for _ in range(3):
    batch = []
    for message in consumer:
        document = {"number": int(message.value), "from": message.partition_id, "filler": "x" * 200}
        batch.append(json.dumps(document).encode())
        if len(batch) == 40:
            break
    for _ in range(3):
        try:
            for value in batch:
                producer.produce(value)
            break
        except (SocketDisconnectedError, LeaderNotAvailable):
            producer.stop()
            producer.start()
    moved.append(len(batch))
    producer._wait_all()
    consumer.commit_offsets()
producer.stop()
print(" + ".join(map(str, moved)), "moved")
left = consumer.consume(block=False)
consumer.stop()

check = outgoing.get_simple_consumer(auto_offset_reset=OffsetType.EARLIEST, consumer_timeout_ms=20000)
documents = []
while len(documents) < 120:
    documents.append(json.loads(check.consume().value))
check.stop()
origins = Counter(document["from"] for document in documents)
print(", ".join(f"{count} from partition {partition}" for partition, count in sorted(origins.items())))
print("each once:", sorted(document["number"] for document in documents) == list(range(120)))
print("nothing more:", left)
print("compressed values arrive whole:", all(document["filler"] == "x" * 200 for document in documents))
