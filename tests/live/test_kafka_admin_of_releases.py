"""gkafka.kafka's KafkaAdminClient on older brokers: what they can is done, and results have the same form."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from gkafka.kafka import KafkaAdminClient, OffsetAndMetadata, TopicPartition
from gkafka.kafka.admin import ConfigResource, NewTopic, OffsetSpec
from gkafka.kafka.errors import GroupIdNotFoundError, NoError, UnknownTopicOrPartitionError, UnsupportedVersionError
from tests.effort import one_of
from tests.kit.clock import now
from tests.live.kafka import KafkaCluster
from tests.live.peer import Peer, Seen

LIMIT_S = 60.0


def until(ready: Callable[[], Any]) -> None:
    deadline = now() + LIMIT_S
    while not ready():
        assert now() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("version", ["1.1.1", *one_of("3.9.1", "2.8.2")])
def test_a_release_does_what_it_can(version: str, kafka: KafkaCluster, peer: Peer, new_name: Callable[[str], str], handler: str) -> None:
    name, number = new_name("made"), kafka.release.number
    first = TopicPartition(name, 0)
    with KafkaAdminClient(bootstrap_servers=kafka.hosts, handler=handler) as admin:
        (made,) = admin.create_topics([NewTopic(name, 2, 1, topic_configs={"retention.ms": "70000000"})], wait_for_metadata=True)["topics"]
        assert (made["name"], made["error_code"], made["num_partitions"]) == (name, 0, 2 if number >= (2, 4) else -1)
        assert [p["leader_id"] for p in admin.describe_topics([name])[0]["partitions"]] == [kafka.nodes[0].id] * 2
        peer.write(name, [Seen(0, i, None, b"%d" % i, [], None) for i in range(10)])

        resource = ConfigResource("topic", name)
        assert admin.describe_configs([resource])["topic"][name]["retention.ms"]["value"] == "70000000"
        change = ConfigResource("topic", name, {"max.message.bytes": "5000"})
        assert admin.alter_configs([change]) == {"topic": {name: "OK"}}
        until(lambda: "max.message.bytes" in admin.describe_configs([resource])["topic"][name])
        assert sorted(admin.describe_configs([resource])["topic"][name]) == ["max.message.bytes", "retention.ms"], "what was set stays"
        assert admin.reset_configs([ConfigResource("topic", name, ["max.message.bytes"])]) == {"topic": {name: "OK"}}
        until(lambda: list(admin.describe_configs([resource])["topic"][name]) == ["retention.ms"])
        if number < (2, 3):
            with pytest.raises(UnsupportedVersionError, match="IncrementalAlterConfigs"):
                admin.alter_configs([change], incremental=True)
        told = admin.alter_configs([ConfigResource("topic", name, {"retention.ms": "long"})])["topic"][name]
        assert told != "OK"

        assert admin.delete_records({first: 3}) == {first: {"partition_index": 0, "low_watermark": 3, "error_code": 0}}
        assert admin.list_partition_offsets({first: OffsetSpec.LATEST})[first].offset == 10
        assert admin.alter_group_offsets(name, {first: OffsetAndMetadata(5, "note")}) == {first: NoError}
        assert admin.list_consumer_group_offsets(name) == {first: (5, "note")}
        assert admin.reset_group_offsets(name, {first: OffsetSpec.EARLIEST}) == {first: {"error": NoError, "offset": 3}}
        assert (name, "") in [(group, "") for group, _ in admin.list_consumer_groups()]
        assert admin.describe_groups([name])[name]["group_state"] == "Empty"
        assert admin.delete_consumer_groups([name, f"{name}-none"]) == [(name, NoError), (f"{name}-none", GroupIdNotFoundError)]

        cluster = admin.describe_cluster()
        assert [b["broker_id"] for b in cluster["brokers"]] == [node.id for node in kafka.nodes]
        assert (cluster["authorized_operations"] is None) == (number < (2, 8))
        assert [d["broker"] for d in admin.describe_log_dirs([name])] == [kafka.nodes[0].id]
        assert admin.api_versions()[3][1] >= 5
        if number >= (2, 4):
            response = admin.elect_leaders("preferred", {name: [0]})
            assert [(r.topic, len(r.partition_result)) for r in response.replica_election_results] == [(name, 1)]
        admin.delete_topics([name])
        until(lambda: admin.describe_topics([name])[0]["error_code"] == UnknownTopicOrPartitionError.code)
