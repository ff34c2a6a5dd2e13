# expect: consumer made, subscribed to {'orders'}
# expect: poll: {}
# expect: records: []
# expect: end_offsets: a KafkaTimeoutError
# expect: producer made
# expect: send: a KafkaTimeoutError
# expect: without api_version: NoBrokersAvailable
# committed:
"""A service that is started before its brokers are: with api_version its clients are made, and say when they are used that nobody is there."""

import socket

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaTimeoutError, NoBrokersAvailable

with socket.socket() as unused:
    unused.bind(("127.0.0.1", 0))
    nobody = "127.0.0.1:%d" % unused.getsockname()[1]

    consumer = KafkaConsumer(
        "orders",
        bootstrap_servers=nobody,
        api_version=(2, 5),
        request_timeout_ms=2000,
        fetch_max_wait_ms=500,
        consumer_timeout_ms=500,
    )
    print("consumer made, subscribed to", consumer.subscription())
    print("poll:", consumer.poll(timeout_ms=300))
    print("records:", list(consumer))
    try:
        consumer.end_offsets([TopicPartition("orders", 0)])
    except KafkaTimeoutError:
        print("end_offsets: a KafkaTimeoutError")
    consumer.close()

    producer = KafkaProducer(bootstrap_servers=nobody, api_version=(2, 5), max_block_ms=1000)
    print("producer made")
    try:
        producer.send("orders", b"first").get(timeout=10)
    except KafkaTimeoutError:
        print("send: a KafkaTimeoutError")
    producer.close(timeout=1)

    try:
        KafkaConsumer("orders", bootstrap_servers=nobody, api_version_auto_timeout_ms=1000)
    except NoBrokersAvailable:
        print("without api_version: NoBrokersAvailable")
