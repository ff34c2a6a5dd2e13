# topic: partitions=3
# expect: 200 sent, 200 reports, 0 failed
# expect: orders of one customer stay together: True
# expect: first report: <class 'bytes'> <class 'bytes'>
# expect: nothing left: Empty
# expect: offsets of a report: [(0, True), (1, True), (2, True)]
# expect: customer-0: 20 in order True
# expect: customer-9: 20 in order True
"""Sends orders keyed by customer, and reads the delivery reports every fifty, as long as there are any."""

import queue
import sys
from collections import defaultdict

from pykafka import KafkaClient
from pykafka.partitioners import hashing_partitioner

client = KafkaClient(hosts=sys.argv[1])
topic = client.topics[sys.argv[2].encode()]
reports, failed = [], []


def drain(producer, wanted):
    """All that was reported: at least so many, however long that takes, then what is there."""
    while True:
        try:
            message, error = producer.get_delivery_report(block=len(reports) < wanted, timeout=60)
        except queue.Empty:
            return
        reports.append(message)
        if error is not None:
            failed.append((message.partition_key, error))


with topic.get_producer(delivery_reports=True, partitioner=hashing_partitioner, linger_ms=20, min_queued_messages=10) as producer:
    for number in range(1, 201):
        producer.produce(b"order %d" % number, partition_key=b"customer-%d" % (number % 10))
        if number % 50 == 0:
            drain(producer, number)
    try:
        producer.get_delivery_report(block=False)
    except queue.Empty as nothing:
        left = type(nothing).__name__

homes, orders, places = defaultdict(set), defaultdict(list), defaultdict(list)
for message in reports:
    homes[message.partition_key].add(message.partition_id)
    orders[message.partition_key].append((message.offset, int(message.value.split()[1])))
    places[message.partition_id].append(message.offset)

print(f"{number} sent, {len(reports)} reports, {len(failed)} failed")
print("orders of one customer stay together:", all(len(where) == 1 for where in homes.values()))
print("first report:", type(reports[0].value), type(reports[0].partition_key))
print("nothing left:", left)
print("offsets of a report:", [(partition, sorted(offsets) == list(range(len(offsets)))) for partition, offsets in sorted(places.items())])
for customer in (b"customer-0", b"customer-9"):
    numbers = [number for _, number in sorted(orders[customer])]
    print(f"{customer.decode()}: {len(numbers)} in order {numbers == sorted(numbers)}")
