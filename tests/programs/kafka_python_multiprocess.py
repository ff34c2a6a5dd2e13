# topic: partitions=4 messages=200
# release: 1.4.7
# expect: pending: 200
# expect: 200 messages, 200 different, from partitions [0, 1, 2, 3]
# expect: pending: 0
# expect: after a restart: []
# committed: 0=50 1=50 2=50 3=50
# original: pending: 200
# original: 0 messages, 0 different, from partitions []
# original: pending: 200
# original: after a restart: []
"""Reads a topic with two processes, as a nightly job does, and finds nothing left when it is started again."""

import sys

from kafka import MultiProcessConsumer, SimpleClient


def main(bootstrap, topic, group):
    client = SimpleClient(bootstrap)
    consumer = MultiProcessConsumer(client, group, topic, num_procs=2, auto_commit_every_n=20)
    print("pending:", consumer.pending())
    got = []
    for _ in range(20):
        got += consumer.get_messages(count=200 - len(got), block=True, timeout=2)
        if len(got) == 200:
            break
    places = {int(entry.message.value) % 4 for entry in got}
    print("%d messages, %d different, from partitions %s" % (len(got), len({entry.message.value for entry in got}), sorted(places)))
    consumer.commit()
    print("pending:", consumer.pending())
    consumer.stop()
    again = MultiProcessConsumer(client, group, topic, num_procs=2)
    print("after a restart:", again.get_messages(count=1, block=True, timeout=1))
    again.stop()
    client.close()


if __name__ == "__main__":
    main(*sys.argv[1:4])
