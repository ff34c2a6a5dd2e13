# topic: partitions=2 messages=30
# release: 2.2.15
# expect: read: 10
# expect: listed: ('GROUP', 'consumer')
# expect: GROUP is Stable, consumer, range
# expect: reporter wants ['TOPIC']
# expect: reporter has [('TOPIC', [0, 1])]
# expect: its partitions: [('TOPIC', 0), ('TOPIC', 1)]
# expect: committed: 10, behind: 20
# expect: afterwards it is Empty, with 0 members
# expect: another is Dead
# committed: 0=10 1=0
"""Reports a group as monitoring does: who is in it, what each member wants and has, and how far it is behind."""

import sys

from kafka import KafkaAdminClient, KafkaConsumer

bootstrap, topic, group = sys.argv[1:4]
consumer = KafkaConsumer(
    topic,
    bootstrap_servers=bootstrap,
    api_version_auto_timeout_ms=30000,
    client_id="reporter",
    group_id=group,
    auto_offset_reset="earliest",
    enable_auto_commit=False,
    max_poll_records=10,
)
got = []
for _ in range(300):
    for records in consumer.poll(timeout_ms=200, max_records=10 - len(got)).values():
        got.extend(records)
    if len(got) == 10:
        break
print("read: %d" % len(got))
consumer.commit()

admin = KafkaAdminClient(bootstrap_servers=bootstrap, api_version_auto_timeout_ms=30000)
print("listed:", next(tuple(row) for row in admin.list_consumer_groups() if row[0] == group))
(described,) = admin.describe_consumer_groups([group])
print("%s is %s, %s, %s" % (described.group, described.state, described.protocol_type, described.protocol))
for member in described.members:
    assert member.member_id
    print(member.client_id, "wants", member.member_metadata.subscription)
    print(member.client_id, "has", [(name, list(partitions)) for name, partitions in member.member_assignment.assignment])
    print("its partitions:", [(tp.topic, tp.partition) for tp in member.member_assignment.partitions()])
committed = admin.list_consumer_group_offsets(group)
ends = consumer.end_offsets(list(consumer.assignment()))
done = sum(entry.offset for entry in committed.values())
print("committed: %d, behind: %d" % (done, sum(ends.values()) - done))

consumer.close()
(described,) = admin.describe_consumer_groups([group])
print("afterwards it is %s, with %d members" % (described.state, len(described.members)))
(described,) = admin.describe_consumer_groups([group + "-none"])
print("another is", described.state)
admin.close()
