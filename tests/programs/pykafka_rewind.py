# topic: partitions=2 messages=60
# expect: the service reads 60, then nothing
# expect: rewound: 0, 0
# expect: the service reads 60, then nothing
# expect: at the end: 30, 30
# committed: 0=30 1=30
"""An operator's tool: sets a group back to the beginning of a topic while its service does not run. The service commits by itself, after its work."""

import sys

from pykafka import KafkaClient
from pykafka.common import OffsetType

hosts, name, group = sys.argv[1:4]
client = KafkaClient(hosts=hosts)
topic = client.topics[name.encode()]


def serve():
    consumer = topic.get_simple_consumer(
        consumer_group=group.encode(), auto_offset_reset=OffsetType.EARLIEST, consumer_timeout_ms=5000, fetch_wait_max_ms=100
    )
    count = sum(1 for _ in consumer)
    consumer.commit_offsets()
    more = consumer.consume(block=False)
    consumer.stop()
    print(f"the service reads {count}, then", "nothing" if more is None else more.offset)


def tool(offset_type=None):
    """Set the group's offsets if told to; return what is committed."""
    consumer = topic.get_simple_consumer(consumer_group=group.encode(), auto_commit_enable=False)
    if offset_type is not None:
        consumer.reset_offsets([(partition, offset_type) for partition in topic.partitions.values()])
    committed = {partition: found.offset for partition, found in consumer.fetch_offsets()}
    consumer.stop()
    return ", ".join(str(committed[partition]) for partition in sorted(committed))


serve()
print("rewound:", tool(OffsetType.EARLIEST))
serve()
print("at the end:", tool())
