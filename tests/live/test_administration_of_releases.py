"""client.admin() on older releases, and on a cluster where leaders and coordinators are spread."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from gkafka.admin import ConfigSource, NewTopic
from gkafka.exceptions import AdminError, GroupIdNotFound, UnknownTopicOrPartition, UnsupportedVersion
from tests.effort import one_of
from tests.live.kafka import KafkaCluster
from tests.live.peer import Peer, Seen
from tests.live.sharing import until

if TYPE_CHECKING:
    from gkafka import KafkaClient


@pytest.mark.parametrize("version", [*one_of("0.11.0.3", "1.1.1"), *one_of("2.8.2", "3.9.1")])
def test_a_release_does_what_it_can(
    version: str, client: KafkaClient, kafka: KafkaCluster, peer: Peer, new_name: Callable[[str], str]
) -> None:
    admin, topic, group = client.admin(), new_name("made"), new_name("group")
    number = kafka.release.number
    admin.create_topics([NewTopic(topic, 2, 1, configs={"retention.ms": "70000000"})])
    described = admin.describe_topics([topic])[topic]
    assert {p: d.leader for p, d in described.partitions.items()} == kafka.nodes[0].leaders(topic)
    peer.write(topic, [Seen(0, i, None, b"%d" % i, [], None) for i in range(10)])
    if number >= (1, 0):
        admin.create_partitions({topic: 3})
        until(lambda: len(kafka.nodes[0].leaders(topic)) == 3)

    (entries,) = admin.describe_configs([("topic", topic)]).values()
    assert (entries["retention.ms"].value, entries["retention.ms"].is_default) == ("70000000", False)
    assert entries["segment.bytes"].is_default
    assert entries["retention.ms"].source is (ConfigSource.TOPIC if number >= (1, 1) else ConfigSource.UNKNOWN)
    if number >= (2, 3):
        admin.alter_configs({("topic", topic): {"max.message.bytes": 5000}})
    else:
        with pytest.raises(UnsupportedVersion, match="IncrementalAlterConfigs"):
            admin.alter_configs({("topic", topic): {"max.message.bytes": 5000}})
        admin.replace_configs({("topic", topic): {"max.message.bytes": 5000}})
    until(lambda: next(iter(admin.describe_configs([("topic", topic)]).values()))["max.message.bytes"].value == "5000")

    assert admin.delete_records({(topic, 0): 3}) == {(topic, 0): 3}
    admin.alter_group_offsets(group, {(topic, 0): 5})
    assert admin.list_group_offsets(group)[topic, 0].offset == 5
    assert admin.reset_group_offsets(group, to="earliest", dry_run=False)[topic, 0].after == 3
    assert admin.list_group_offsets(group, [(topic, 0)])[topic, 0].offset == 3
    assert admin.describe_groups([group])[group].state == "Empty"
    assert group in admin.list_groups()
    with pytest.raises(AdminError) as caught:
        admin.describe_groups(["nobody-began-this"])
    assert isinstance(caught.value.errors["nobody-began-this"], GroupIdNotFound)
    if number >= (1, 1):
        admin.delete_groups([group])
        assert group not in admin.list_groups()

    assert [b.id for b in admin.describe_cluster().brokers] == [node.id for node in kafka.nodes]
    if number >= (1, 0):
        ((_, found_dirs),) = admin.describe_log_dirs(topics=[topic])[kafka.nodes[0].id].items()
        assert (topic, 0) in found_dirs.replicas
    if number >= (2, 4):
        assert admin.elect_leaders([(topic, 0)]) == {(topic, 0): False}
        assert admin.list_reassignments() == {}
    if number >= (3, 3):
        assert admin.describe_quorum().leader >= 0
    else:
        with pytest.raises(UnsupportedVersion):
            admin.describe_quorum()
    admin.delete_topics([topic])
    with pytest.raises(AdminError) as gone:
        until(lambda: not admin.describe_topics([topic]))
    assert isinstance(gone.value.errors[topic], UnknownTopicOrPartition)


def test_each_thing_is_done_where_it_is(cluster: KafkaCluster, client: KafkaClient, new_name: Callable[[str], str]) -> None:
    admin, topic = client.admin(), new_name("spread")
    groups = [new_name("group") for _ in range(6)]
    admin.create_topics([NewTopic(topic, replicas={0: [1, 2], 1: [2, 3], 2: [3, 1]})])
    until(lambda: all(node.leaders(topic) == {0: 1, 1: 2, 2: 3} for node in cluster.nodes))
    assert admin.delete_records({(topic, p): -1 for p in range(3)}) == {(topic, p): 0 for p in range(3)}
    for group in groups:
        admin.alter_group_offsets(group, {(topic, 0): 0})
    described = admin.describe_groups(groups)
    assert len({d.coordinator for d in described.values()}) > 1
    assert {name: g.broker for name, g in admin.list_groups().items() if name in groups}.keys() == set(groups)
    assert {id_: next(iter(told.values())).error for id_, told in admin.describe_log_dirs(topics=[topic]).items()} == dict.fromkeys(
        (1, 2, 3)
    )

    admin.alter_reassignments({(topic, 0): [3, 1]})
    until(lambda: admin.list_reassignments([(topic, 0)]) == {})
    until(lambda: admin.describe_topics([topic])[topic].partitions[0].replicas == (3, 1))
    admin.elect_leaders([(topic, 0)])
    until(lambda: all(node.leaders(topic)[0] == 3 for node in cluster.nodes))
    admin.delete_groups(groups)
    assert not set(groups) & set(admin.list_groups())
