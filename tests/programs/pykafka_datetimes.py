# topic: partitions=1 messages=20
# expect: by 2100: 20
# expect: from 2100 on: behind 19
# expect: since 2001: 0, 1, 2
"""Looks for messages by their time: naive datetimes, which are UTC."""

import datetime
import sys

from pykafka import KafkaClient
from pykafka.common import OffsetType

client = KafkaClient(hosts=sys.argv[1])
topic = client.topics[sys.argv[2].encode()]
late = datetime.datetime(2100, 1, 1)  # noqa: DTZ001
print("by 2100:", topic.fetch_offset_limits(late)[0].offset[0])

consumer = topic.get_simple_consumer(auto_offset_reset=OffsetType.EARLIEST, consumer_timeout_ms=30000)
consumer.reset_offsets([(topic.partitions[0], late)])
print("from 2100 on: behind", consumer.held_offsets[0])
consumer.reset_offsets([(topic.partitions[0], datetime.datetime(2001, 1, 1))])  # noqa: DTZ001
print("since 2001:", ", ".join(consumer.consume().value.decode() for _ in range(3)))
consumer.stop()
