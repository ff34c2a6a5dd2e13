# topic: partitions=2 messages=60
# expect: 10 messages
# expect: partition 0 from offset 24
# expect: partition 1 from offset 24
# original: 10 messages
# original: partition 0 from offset 25
# original: partition 1 from offset 25
"""Prints the last messages of a topic: the recipe of pykafka's documentation."""

import math
import sys
from itertools import islice

from pykafka import KafkaClient
from pykafka.common import OffsetType

LAST_N_MESSAGES = 10

client = KafkaClient(hosts=sys.argv[1])
topic = client.topics[sys.argv[2].encode()]
consumer = topic.get_simple_consumer(auto_offset_reset=OffsetType.LATEST, reset_offset_on_start=True)
rewind = math.ceil(LAST_N_MESSAGES / len(consumer._partitions))
offsets = [(partition, owned.last_offset_consumed - rewind) for partition, owned in consumer._partitions.items()]
offsets = [(partition, offset if offset > -1 else -2) for partition, offset in offsets]
consumer.reset_offsets(offsets)

found = {}
for message in islice(consumer, LAST_N_MESSAGES):
    found.setdefault(message.partition_id, []).append(message.offset)
consumer.stop()
print(sum(map(len, found.values())), "messages")
for partition in sorted(found):
    print("partition", partition, "from offset", found[partition][0])
