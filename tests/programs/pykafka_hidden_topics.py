# topic: messages=1
# expect: TOPIC is there
# expect: __TOPIC is hidden
# expect: __TOPIC is shown to a client that asks for it
"""Topics whose names begin with two underscores are Kafka's own, unless somebody wants them."""

import sys

from pykafka import KafkaClient

hosts, name = sys.argv[1:3]
client = KafkaClient(hosts=hosts)
for wanted in (name, "__" + name):
    try:
        print(client.topics[wanted.encode()].name and wanted, "is there")
    except KeyError:
        print(wanted, "is hidden")
everything = KafkaClient(hosts=hosts, exclude_internal_topics=False)
print(everything.topics[("__" + name).encode()].name and "__" + name, "is shown to a client that asks for it")
