# topic: partitions=2 messages=100
# expect: partitions: [0, 1]
# expect: first and next offsets: [(0, 0, 50), (1, 0, 50)]
# expect: last five: 0 [45, 46, 47, 48, 49]
# expect: last five: 1 [45, 46, 47, 48, 49]
# expect: positions: [(0, 50), (1, 50)]
# expect: paused: [0]
# expect: while 0 is paused: [1]
# expect: resumed: [0]
# expect: from 10: b'20'
# expect: read again: 100
# expect: committed: [(0, 50, 'done'), (1, None)]
# expect: not assigned: AssertionError
# committed: 0=50
"""Assigns partitions by hand: the last five records of each, one of them paused for a while, and everything once more from the start."""

import sys

from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition

bootstrap, topic, group = sys.argv[1:4]
consumer = KafkaConsumer(
    bootstrap_servers=bootstrap,
    api_version_auto_timeout_ms=30000,
    group_id=group,
    enable_auto_commit=False,
    auto_offset_reset="latest",
)
partitions = [TopicPartition(topic, p) for p in sorted(consumer.partitions_for_topic(topic))]
print("partitions:", [tp.partition for tp in partitions])
begins, ends = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
print("first and next offsets:", [(tp.partition, begins[tp], ends[tp]) for tp in partitions])


def read(wanted):
    """Records by partition, until each has as many as are wanted of it."""
    got = {tp: [] for tp in wanted}
    for _ in range(300):
        for tp, records in consumer.poll(timeout_ms=200, max_records=10).items():
            got.setdefault(tp, []).extend(records)
        if all(len(got[tp]) >= count for tp, count in wanted.items()):
            break
    return got


consumer.assign(partitions)
for tp in partitions:
    consumer.seek(tp, max(begins[tp], ends[tp] - 5))
got = read(dict.fromkeys(partitions, 5))
for tp in partitions:
    print("last five:", tp.partition, [record.offset for record in got[tp]])
print("positions:", [(tp.partition, consumer.position(tp)) for tp in partitions])

first, second = partitions
consumer.pause(first)
print("paused:", [tp.partition for tp in consumer.paused()])
consumer.seek(first, 10)
consumer.seek(second, 10)
got = read({second: 40})
print("while 0 is paused:", sorted(tp.partition for tp, records in got.items() if records))
consumer.resume(first)
got = read({first: 40})
print("resumed:", sorted(tp.partition for tp, records in got.items() if records))
print("from 10:", got[first][0].value)

consumer.seek_to_beginning()
got = read(dict.fromkeys(partitions, 50))
print("read again:", sum(len({record.offset for record in records}) for records in got.values()))
try:  # kafka-python 2.2 and newer have a third field
    entry = OffsetAndMetadata(consumer.position(first), "done")
except TypeError:
    entry = OffsetAndMetadata(consumer.position(first), "done", -1)
consumer.commit({first: entry})
found = consumer.committed(first, metadata=True)
print("committed:", [(0, found.offset, found.metadata), (1, consumer.committed(second))])
try:
    consumer.seek(TopicPartition(topic, 7), 0)
except AssertionError:
    print("not assigned: AssertionError")
consumer.close()
