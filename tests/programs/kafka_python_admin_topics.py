# needs: real
# expect: created: [('TOPIC', 0), ('TOPIC-wide', 0)]
# expect: again: TopicAlreadyExistsError
# expect: listed: ['TOPIC', 'TOPIC-wide']
# expect: grown: ('TOPIC', 0)
# expect: not shrunk: InvalidPartitionsError
# expect: described: [('TOPIC', 0, 3), ('TOPIC-wide', 0, 2)]
# expect: cleanup.policy of TOPIC-wide: compact
# expect: leaders: [('TOPIC-wide', 0, 84), ('TOPIC-wide', 1, 84)]
# expect: deleted: [('TOPIC-wide', 0)]
# expect: not there: UnknownTopicOrPartitionError
"""Sets topics up as a deployment does: makes them, gives one more partitions, looks at them and takes one away."""

import sys
import time

from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic
from kafka.errors import InvalidPartitionsError, TopicAlreadyExistsError, UnknownTopicOrPartitionError

bootstrap, topic = sys.argv[1:3]
wide = topic + "-wide"
admin = KafkaAdminClient(bootstrap_servers=bootstrap, api_version_auto_timeout_ms=30000, client_id="deployment")
wanted = [
    NewTopic(name=topic, num_partitions=1, replication_factor=1),
    NewTopic(name=wide, num_partitions=2, replication_factor=1, topic_configs={"cleanup.policy": "compact"}),
]
response = admin.create_topics(new_topics=wanted, validate_only=False)
print("created:", sorted((row[0], row[1]) for row in response.topic_errors))
try:
    admin.create_topics(wanted[:1])
except TopicAlreadyExistsError:
    print("again: TopicAlreadyExistsError")


def until(look, wanted):
    """Brokers learn of a change a moment after the one that made it."""
    for _ in range(100):
        found = look()
        if found == wanted:
            break
        time.sleep(0.1)
    return found


print("listed:", until(lambda: sorted(name for name in admin.list_topics() if name in (topic, wide)), [topic, wide]))
response = admin.create_partitions({topic: NewPartitions(3)})
name, error_code, message = response.topic_errors[0]
print("grown:", (name, error_code))
try:
    admin.create_partitions({topic: NewPartitions(1)})
except InvalidPartitionsError:
    print("not shrunk: InvalidPartitionsError")


def described():
    return sorted((found["topic"], found["error_code"], len(found["partitions"])) for found in admin.describe_topics([topic, wide]))


print("described:", until(described, [(topic, 0, 3), (wide, 0, 2)]))
resource = ConfigResource(ConfigResourceType.TOPIC, wide)
for response in admin.describe_configs([resource]):
    for _, _, _, name, entries in response.resources:
        print("cleanup.policy of %s: %s" % (name, {entry[0]: entry[1] for entry in entries}["cleanup.policy"]))
response = admin.perform_leader_election(0, {wide: [0, 1]})
print("leaders:", [(name, row[0], row[1]) for name, rows in response.replication_election_results for row in sorted(rows)])
print("deleted:", [tuple(row[:2]) for row in admin.delete_topics([wide]).topic_error_codes])
try:
    for _ in range(100):
        admin.delete_topics([wide])
        time.sleep(0.1)
except UnknownTopicOrPartitionError:
    print("not there: UnknownTopicOrPartitionError")
admin.close()
