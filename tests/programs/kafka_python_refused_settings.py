# topic: partitions=1
# release: 1.4.7
# expect: session 30000, request 10000: KafkaConfigurationError
# expect: session 10000, request 10000: KafkaConfigurationError
# expect: session 10000, request 15000: made
# expect: session 60000: made
# expect: no group, request 5000: made
# expect: another option: KafkaConfigurationError or AssertionError
# expect: a text: refused
# expect: bytes: 0
# committed:
"""Settings and values that cannot be used, as a program meets them when it is deployed with the wrong ones."""

import sys

from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaConfigurationError

bootstrap, topic, group = sys.argv[1:4]


def attempt(what, **settings):
    try:
        KafkaConsumer(bootstrap_servers=bootstrap, api_version_auto_timeout_ms=30000, **settings).close()
        print("%s: made" % what)
    except KafkaConfigurationError:
        print("%s: KafkaConfigurationError" % what)


attempt("session 30000, request 10000", group_id=group, session_timeout_ms=30000, request_timeout_ms=10000)
attempt("session 10000, request 10000", group_id=group, request_timeout_ms=10000)
attempt("session 10000, request 15000", group_id=group, request_timeout_ms=15000)
attempt("session 60000", group_id=group, session_timeout_ms=60000)
attempt("no group, request 5000", request_timeout_ms=5000)
try:
    KafkaConsumer(topic, bootstrap_servers=bootstrap, zookeeper="localhost")
except (AssertionError, KafkaConfigurationError):
    print("another option: KafkaConfigurationError or AssertionError")

producer = KafkaProducer(bootstrap_servers=bootstrap, api_version_auto_timeout_ms=30000)
try:
    producer.send(topic, "a text")
except Exception as error:
    hints = [name for name in ("partition_key", "set_serializer", "serializer of a topic") if name in str(error)]
    print("a text: refused", *hints)
print("bytes:", producer.send(topic, b"bytes").get(timeout=30).offset)
producer.close()
