# topic: partitions=1
# expect: 0 0 b'0'
# expect: 0 1 b'1'
# expect: 0 2 b'2'
# committed: 0=3
"""Sends three records, waits for each, and reads them back in a group."""

import sys

from kafka import KafkaConsumer, KafkaProducer

bootstrap, topic, group = sys.argv[1:4]
producer = KafkaProducer(bootstrap_servers=[bootstrap])
for i in range(3):
    producer.send(topic, b"%d" % i).get(timeout=60)
producer.close()

consumer = KafkaConsumer(topic, bootstrap_servers=[bootstrap], group_id=group, auto_offset_reset="earliest", enable_auto_commit=False)
for _ in range(3):
    record = next(consumer)
    print(record.partition, record.offset, record.value)
consumer.commit()
consumer.close()
