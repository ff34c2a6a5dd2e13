"""client.admin() on a real broker: what it does is looked at through kafka-python's administrator, too.

Brokers learn a moment later what the controller has done, so the first look after a change waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pytest

from gkafka.admin import (
    Acl,
    AclFilter,
    AclOperation,
    Append,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
    GroupOffset,
    NewTopic,
    PatternType,
    ResourceType,
    ScramCredential,
    ScramMechanism,
    Subtract,
)
from gkafka.exceptions import (
    AdminError,
    ConfigurationError,
    ElectionNotNeeded,
    GroupIdNotFound,
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidTxnState,
    InvalidUpdateVersion,
    KafkaException,
    LogDirNotFound,
    NonEmptyGroup,
    NoReassignmentInProgress,
    OffsetOutOfRangeError,
    ResourceNotFound,
    TopicAlreadyExists,
    TransactionalIdNotFound,
    UnknownTopicOrPartition,
)
from tests.kit.clock import now
from tests.live.kafka import KafkaCluster
from tests.live.otheradmin import OtherAdmin
from tests.live.peer import Peer, Seen
from tests.live.pool import POOL
from tests.live.sharing import until

if TYPE_CHECKING:
    from gkafka import KafkaClient
    from gkafka.admin import Admin

NO_TRANSACTION = -1
pytestmark = pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning")  # of kafka-python's tables


@pytest.fixture
def kafka() -> KafkaCluster:
    """A broker that has ACLs; who says no name may do what nobody forbids."""
    return POOL.get(kind="guarded")


@pytest.fixture
def admin(client: KafkaClient) -> Admin:
    return client.admin()


@pytest.fixture
def theirs(kafka: KafkaCluster) -> Iterator[OtherAdmin]:
    other = OtherAdmin(kafka.hosts)
    yield other
    other.close()


def error_of(item: object, call: Callable[[], object]) -> KafkaException:
    """The error that a call tells of one item."""
    with pytest.raises(AdminError) as caught:
        call()
    return caught.value.errors[item]


def fill(peer: Peer, topic: str, count: int, timestamp: int | None = None) -> None:
    peer.write(topic, [Seen(0, i, None, b"%d" % i, [], None if timestamp is None else timestamp + i) for i in range(count)])


# -- topics ------------------------------------------------------------------------------------------------------------
def test_topics_are_made_described_grown_and_deleted(admin: Admin, theirs: OtherAdmin, new_name: Callable[[str], str]) -> None:
    one, two, placed = new_name("made"), new_name("made"), new_name("made")
    tried = admin.create_topics([NewTopic(one, 3)], validate_only=True)
    assert tried[one].partitions == 3
    assert one not in theirs.topics()
    made = admin.create_topics([NewTopic(one, 3, configs={"retention.ms": 70000}), two, NewTopic(placed, replicas={0: [1], 1: [1]})])
    assert [(t.partitions, t.replication_factor) for t in made.values()] == [(3, 1), (1, 1), (2, 1)]
    assert made[one].configs is not None
    assert made[one].configs["retention.ms"] == "70000"
    until(lambda: {one, two, placed} <= theirs.topics())

    described = admin.describe_topics([one, placed], operations=True)
    assert described[one].topic_id == made[one].topic_id
    assert {p: (d.leader, d.replicas, d.isr, d.error) for p, d in described[one].partitions.items()} == dict.fromkeys(
        range(3), (1, (1,), (1,), None)
    )
    assert AclOperation.ALTER in (described[one].operations or ())
    assert admin.list_topics()[one] == (one, made[one].topic_id, 3, False)

    admin.create_partitions({one: 5})
    until(lambda: theirs.partitions(one) == 5)
    assert isinstance(error_of(one, lambda: admin.create_partitions({one: 2})), InvalidPartitions)
    admin.delete_topics([one, two])
    until(lambda: not {one, two} & theirs.topics())


def test_what_fails_is_told_beside_what_was_done(admin: Admin, theirs: OtherAdmin, new_name: Callable[[str], str]) -> None:
    there, new = new_name("there"), new_name("new")
    admin.create_topics([there])
    with pytest.raises(AdminError, match=rf"1 of 2 failed: {there}: ") as caught:
        admin.create_topics([there, new])
    assert isinstance(caught.value.errors[there], TopicAlreadyExists)
    assert caught.value.__cause__ is caught.value.errors[there]
    assert list(caught.value.results) == [new]
    until(lambda: new in theirs.topics())
    began = now()
    with pytest.raises(AdminError) as gone:
        admin.delete_topics(["nobody-made-this", new])
    assert isinstance(gone.value.errors["nobody-made-this"], UnknownTopicOrPartition)
    until(lambda: new not in theirs.topics())
    assert isinstance(error_of("nobody-made-this", lambda: admin.describe_topics(["nobody-made-this"])), UnknownTopicOrPartition)
    assert now() - began < 60, "no retry helps"
    assert "nobody-made-this" not in theirs.topics(), "asking makes none"


def test_records_are_deleted_up_to_an_offset(admin: Admin, peer: Peer, new_topic: Callable[..., str], theirs: OtherAdmin) -> None:
    topic = new_topic(2)
    fill(peer, topic, 10)
    assert admin.delete_records({(topic, 0): 4}) == {(topic, 0): 4}
    assert theirs.beginning(topic, 0) == 4
    assert admin.delete_records({(topic, 0): -1, (topic, 1): -1}) == {(topic, 0): 10, (topic, 1): 0}
    assert isinstance(error_of((topic, 0), lambda: admin.delete_records({(topic, 0): 11})), OffsetOutOfRangeError)
    assert isinstance(error_of((topic, 7), lambda: admin.delete_records({(topic, 7): 0})), UnknownTopicOrPartition)


# -- configurations ----------------------------------------------------------------------------------------------------
def test_configurations_are_described_and_changed_one_by_one(admin: Admin, theirs: OtherAdmin, new_topic: Callable[..., str]) -> None:
    topic = new_topic(retention_ms=70000)
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    admin.alter_configs({("topic", topic): {"max.message.bytes": 5000, "cleanup.policy": Append("compact")}})

    until(lambda: "'5000'" in theirs.configs(topic))
    entries = admin.describe_configs([("topic", topic)], synonyms=True, documentation=True)[resource]
    assert (entries["retention.ms"].value, entries["retention.ms"].source, entries["retention.ms"].is_default) == (
        "70000",
        ConfigSource.TOPIC,
        False,
    )
    assert entries["retention.ms"].type == "long"
    assert entries["retention.ms"].documentation
    assert entries["max.message.bytes"].value == "5000"
    assert [s.source for s in entries["max.message.bytes"].synonyms][:1] == [ConfigSource.TOPIC]
    assert set((entries["cleanup.policy"].value or "").split(",")) == {"compact", "delete"}
    assert entries["segment.bytes"].is_default
    admin.alter_configs({resource: {"retention.ms": None, "cleanup.policy": Subtract("delete")}})
    until(lambda: admin.describe_configs([resource])[resource]["cleanup.policy"].value == "compact")
    after = admin.describe_configs([resource], ["retention.ms", "cleanup.policy"])[resource]
    assert set(after) == {"retention.ms", "cleanup.policy"}
    assert after["retention.ms"].source is not ConfigSource.TOPIC
    admin.replace_configs({resource: {"min.insync.replicas": 1}})
    until(lambda: admin.describe_configs([resource])[resource]["max.message.bytes"].is_default)

    bad = {"max.message.bytes": "many"}
    assert isinstance(error_of(resource, lambda: admin.alter_configs({resource: bad}, validate_only=True)), InvalidConfig)
    broker = ConfigResource(ConfigResourceType.BROKER, "1")
    told = admin.describe_configs([("broker", 1), ("broker", "")])
    assert told[broker]["node.id"].value == "1"
    assert told[broker]["node.id"].is_read_only
    assert isinstance(
        error_of(ConfigResource(ConfigResourceType.BROKER, "77"), lambda: admin.describe_configs([("broker", 77)])), ConfigurationError
    )


def test_quotas_are_set_and_removed(admin: Admin, new_name: Callable[[str], str]) -> None:
    user = new_name("quota")
    admin.alter_quotas(
        [
            ({"user": user}, {"producer_byte_rate": 1000000, "consumer_byte_rate": 2000}),
            ({"user": user, "client-id": None}, {"request_percentage": 50}),
        ]
    )
    alone = until(lambda: admin.describe_quotas({"user": user}, strict=True))
    assert [(q.entity, q.values) for q in alone] == [({"user": user}, {"producer_byte_rate": 1000000.0, "consumer_byte_rate": 2000.0})]
    assert {len(q.entity) for q in admin.describe_quotas({"user": user})} == {1, 2}
    assert admin.describe_quotas({"user": user, "client-id": None})[0].values == {"request_percentage": 50.0}
    admin.alter_quotas([({"user": user}, {"producer_byte_rate": None, "consumer_byte_rate": None})])
    until(lambda: not admin.describe_quotas({"user": user}, strict=True))


# -- groups and offsets ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_are_listed_described_and_deleted(
    protocol: str,
    admin: Admin,
    client: KafkaClient,
    theirs: OtherAdmin,
    peer: Peer,
    new_topic: Callable[..., str],
    new_name: Callable[[str], str],
) -> None:
    topic, group = new_topic(2), new_name("group")
    fill(peer, topic, 3)
    consumer = client.get_consumer(topic, group, group_protocol=protocol)
    try:
        until(lambda: consumer.consume_batch(timeout_ms=100))
        listed = admin.list_groups()[group]
        assert (listed.state, listed.type, listed.broker) == ("Stable", protocol, 1)
        assert group in admin.list_groups(states=["Stable"], types=[protocol])
        assert group not in admin.list_groups(states=["Empty"])
        told = until(lambda: _with_partitions(admin, group, 2))
        assert (told.type, told.state, told.protocol_type) == (protocol, "Stable", "consumer")
        assert {tp for m in told.members for tp in m.partitions or ()} == {(topic, 0), (topic, 1)}
        assert isinstance(error_of(group, lambda: admin.delete_groups([group])), NonEmptyGroup)
        with pytest.raises(NonEmptyGroup, match="has 1 member: stop them first"):
            admin.alter_group_offsets(group, {(topic, 0): 1})
        with pytest.raises(NonEmptyGroup):
            admin.reset_group_offsets(group, [topic], to="earliest", dry_run=False)
    finally:
        consumer.stop()
    until(lambda: admin.describe_groups([group])[group].state == "Empty")
    assert admin.list_group_offsets(group)[topic, 0].offset == 3
    admin.delete_groups([group])
    assert group not in theirs.groups()
    assert isinstance(error_of(group, lambda: admin.describe_groups([group])), GroupIdNotFound)
    assert isinstance(error_of(group, lambda: admin.delete_groups([group])), GroupIdNotFound)


def _with_partitions(admin: Admin, group: str, count: int) -> Any:
    told = admin.describe_groups([group])[group]
    return told if sum(len(m.partitions or ()) for m in told.members) == count else None


def test_offsets_of_a_group_are_altered_listed_reset_and_deleted(
    admin: Admin, theirs: OtherAdmin, peer: Peer, new_topic: Callable[..., str], new_name: Callable[[str], str]
) -> None:
    topic, group = new_topic(2), new_name("group")
    fill(peer, topic, 10, timestamp=1_700_000_000_000)
    admin.delete_records({(topic, 0): 2})
    admin.alter_group_offsets(group, {(topic, 0): 5, (topic, 1): GroupOffset(0, "mine")})
    assert theirs.committed(group, topic, 2) == [5, 0]
    assert admin.list_group_offsets(group) == {(topic, 0): GroupOffset(5), (topic, 1): GroupOffset(0, "mine")}
    assert admin.list_group_offsets(group, [(topic, 1)]) == {(topic, 1): GroupOffset(0, "mine")}
    assert admin.list_group_offsets("nobody-committed-here") == {}

    def reset(**where: Any) -> list[int]:
        plan = admin.reset_group_offsets(group, [topic], **where)
        assert [(p.before, p.earliest, p.latest) for p in plan.values()] == [(5, 2, 10), (0, 0, 0)]
        return [p.after for p in plan.values()]

    assert reset(to="earliest") == [2, 0]
    assert reset(to="latest") == [10, 0]
    assert reset(to=7) == [7, 0]
    assert reset(shift_by=-100) == [2, 0]
    assert reset(shift_by=2) == [7, 0]
    assert reset(to_time=1_700_000_000_006) == [6, 0]
    assert reset(to_time=datetime.fromtimestamp(1_700_000_000.004, timezone.utc)) == [4, 0]
    assert reset(to_time=1_800_000_000_000) == [10, 0]
    assert theirs.committed(group, topic, 2) == [5, 0], "plans change nothing"
    done = admin.reset_group_offsets(group, partitions=[(topic, 0)], to=7, dry_run=False)
    assert list(done) == [(topic, 0)]
    assert theirs.committed(group, topic, 2) == [7, 0]
    assert list(admin.reset_group_offsets(group, to="earliest")) == [(topic, 0), (topic, 1)]
    with pytest.raises(GroupIdNotFound, match="name the topics"):
        admin.reset_group_offsets("nobody-committed-here", to="earliest")
    nothing = error_of((topic, 0), lambda: admin.reset_group_offsets("nobody-committed-here", [topic], shift_by=1))
    assert isinstance(nothing, ConfigurationError)
    with pytest.raises(UnknownTopicOrPartition):
        admin.reset_group_offsets(group, ["nobody-made-this"], to="latest")

    admin.delete_group_offsets(group, [(topic, 1)])
    assert theirs.committed(group, topic, 2) == [7, None]
    with pytest.raises(GroupIdNotFound):
        admin.delete_group_offsets("nobody-committed-here", [(topic, 1)])
    assert admin.list_offsets({(topic, 0): -2, (topic, 1): -1}) == {(topic, 0): 2, (topic, 1): 0}


# -- the cluster -------------------------------------------------------------------------------------------------------
def test_the_cluster_its_quorum_and_its_features_are_described(admin: Admin, theirs: OtherAdmin, kafka: KafkaCluster) -> None:
    told = admin.describe_cluster(operations=True, fenced=True)
    assert [(b.id, f"{b.host}:{b.port}", b.is_fenced) for b in told.brokers] == [(1, kafka.hosts, False)]
    assert told.cluster_id == theirs.client.describe_cluster()["cluster_id"]
    assert AclOperation.CLUSTER_ACTION in (told.operations or ())
    quorum = admin.describe_quorum()
    assert quorum.leader in [v.id for v in quorum.voters]
    assert quorum.high_watermark > 0
    features = admin.describe_features()
    assert features.finalized["transaction.version"] == 2
    assert features.supported["group.version"][1] >= 1
    admin.update_features({"transaction.version": 1}, downgrade="safe", validate_only=True)
    with pytest.raises(InvalidUpdateVersion):
        admin.update_features({"transaction.version": 99})
    assert admin.describe_features().finalized["transaction.version"] == 2


def test_leaders_replicas_and_directories(admin: Admin, theirs: OtherAdmin, peer: Peer, new_topic: Callable[..., str]) -> None:
    topic = new_topic(2)
    fill(peer, topic, 5)
    assert admin.elect_leaders([(topic, 0)]) == {(topic, 0): False}
    assert admin.elect_leaders().get((topic, 0), False) is False
    assert isinstance(error_of((topic, 9), lambda: admin.elect_leaders([(topic, 9)])), UnknownTopicOrPartition)
    assert not isinstance(error_of((topic, 9), lambda: admin.elect_leaders([(topic, 9)])), ElectionNotNeeded)
    admin.alter_reassignments({(topic, 0): [1]})
    assert admin.list_reassignments() == {}
    assert admin.list_reassignments([(topic, 0)]) == {}
    assert isinstance(error_of((topic, 0), lambda: admin.alter_reassignments({(topic, 0): [77]})), InvalidReplicaAssignment)
    assert isinstance(error_of((topic, 0), lambda: admin.alter_reassignments({(topic, 0): None})), NoReassignmentInProgress)
    ((path, found),) = admin.describe_log_dirs(topics=[topic])[1].items()
    assert found.error is None
    assert set(found.replicas) == {(topic, 0), (topic, 1)}
    assert found.replicas[topic, 0].size > 0
    assert 0 < found.usable <= found.total
    assert path in str(theirs.client.describe_log_dirs())
    assert isinstance(error_of((topic, 0, 1), lambda: admin.alter_replica_log_dirs({(topic, 0, 1): "/nowhere"})), LogDirNotFound)
    admin.alter_replica_log_dirs({(topic, 0, 1): path})


# -- who may -----------------------------------------------------------------------------------------------------------
def test_acls_are_made_found_and_deleted(admin: Admin, theirs: OtherAdmin, new_name: Callable[[str], str]) -> None:
    name = new_name("acl")
    plain = Acl(ResourceType.TOPIC, name, "User:alice", AclOperation.READ)
    prefixed = Acl(ResourceType.GROUP, name, "User:bob", AclOperation.ALL, pattern=PatternType.PREFIXED, host="10.0.0.1")
    admin.create_acls([plain, prefixed])
    until(lambda: "alice" in theirs.acls(name) and "bob" in theirs.acls(name))
    assert admin.list_acls(AclFilter(resource=name)) == [plain, prefixed]
    assert admin.list_acls(AclFilter(ResourceType.GROUP, f"{name}-of-it", pattern=PatternType.MATCH)) == [prefixed]
    assert admin.delete_acls([AclFilter(resource=name)]) == [plain, prefixed]
    assert len(admin.list_acls(AclFilter(resource=name))) == 2, "a plan deletes nothing"
    assert admin.delete_acls([plain], dry_run=False) == [plain]
    until(lambda: admin.list_acls(AclFilter(resource=name)) == [prefixed])
    assert admin.delete_acls([AclFilter(resource=name)], dry_run=False) == [prefixed]
    until(lambda: "bob" not in theirs.acls(name))


def test_scram_users_are_set_and_deleted(admin: Admin, theirs: OtherAdmin, new_name: Callable[[str], str]) -> None:
    user = new_name("user")
    admin.set_user(user, "pencil")
    admin.set_user(user, "pencil", "SCRAM-SHA-256", iterations=4096)
    wanted = [ScramCredential(ScramMechanism.SCRAM_SHA_256, 4096), ScramCredential(ScramMechanism.SCRAM_SHA_512, 8192)]
    until(lambda: (admin.describe_users()).get(user) == wanted)
    assert admin.describe_users([user]) == {user: wanted}
    assert "8192" in str(theirs.client.describe_user_scram_credentials([user]))
    admin.delete_user(user, ScramMechanism.SCRAM_SHA_512)
    until(lambda: admin.describe_users([user]) == {user: wanted[:1]})
    admin.delete_user(user, ScramMechanism.SCRAM_SHA_256)
    until(lambda: user not in admin.describe_users())
    assert isinstance(error_of(user, lambda: admin.describe_users([user])), ResourceNotFound)
    with pytest.raises(ResourceNotFound):
        admin.delete_user(user, ScramMechanism.SCRAM_SHA_256)


# -- transactions ------------------------------------------------------------------------------------------------------
def test_transactions_are_listed_described_and_ended(
    admin: Admin, client: KafkaClient, theirs: OtherAdmin, new_topic: Callable[..., str], new_name: Callable[[str], str]
) -> None:
    topic, name = new_topic(), new_name("txn")
    producer = client.get_producer(transactional_id=name)
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b"one").result(60)
    listed = admin.list_transactions(states=["Ongoing"])[name]
    assert name in str(theirs.client.list_transactions())
    assert name in admin.list_transactions(pattern=f"{name[:-1]}.*", producer_ids=[listed.producer_id])
    assert name not in admin.list_transactions(running_s=3600)
    told = admin.describe_transactions([name])[name]
    assert (told.state, told.producer_id, told.partitions) == ("Ongoing", listed.producer_id, {(topic, 0)})
    (writer,) = admin.describe_producers([(topic, 0)])[topic, 0]
    assert (writer.producer_id, writer.transaction_start) == (listed.producer_id, 0)

    with pytest.raises(InvalidTxnState, match="no transaction from offset 70 is open"):
        admin.abort_transaction((topic, 0), start_offset=70)
    assert admin.abort_transaction((topic, 0), start_offset=0).producer_id == listed.producer_id
    (after,) = admin.describe_producers([(topic, 0)])[topic, 0]
    assert after.transaction_start == NO_TRANSACTION

    fenced = admin.fence_producers([name])
    assert fenced[name][1] > told.producer_epoch or fenced[name][0] != told.producer_id
    assert until(lambda: admin.describe_transactions([name])[name].state != "Ongoing")
    with pytest.raises(KafkaException):
        producer.commit_transaction()
    assert isinstance(error_of("nobody-began-this", lambda: admin.describe_transactions(["nobody-began-this"])), TransactionalIdNotFound)
    with pytest.raises(ConfigurationError, match="the brokers know none"):
        admin.list_transactions(states=["Sleeping"])
