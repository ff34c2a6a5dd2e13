"""KafkaAdminClient of kafka-python 3 and of gkafka.kafka on the same broker: equal values and exceptions, but for what is listed here."""

from __future__ import annotations

import enum
import importlib
import inspect
import re
import time
import uuid
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from gkafka.exceptions import KafkaException
from gkafka.kafka import KafkaAdminClient, errors
from tests.kit.clock import now
from tests.live.differential import Script, same
from tests.live.kafka import KafkaCluster
from tests.live.peer import Peer, Seen
from tests.live.pool import POOL

LIMIT_S = 60.0
pytestmark = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")  # of kafka-python's tables

LEFT_OUT = {"get_broker_version_data", "list_config_resources"}
"""Calls of kafka-python 3 that are not here: docs/kafka-python.md says why."""

DIFFERENT = {
    "describe configs of a topic that is not there": "there nothing is told; here it is told that the topic is not there",
    "describe a topic and one that is not there": "there all operations are told to be allowed on what is not there",
    "a resource that is none": "there a KeyError from inside, here a ValueError that names those that there are",
    "a password of another kind": "the same",
    "abort another epoch's": "there the broker's refusal is not told",
}
"""Step -> why it differs."""


@pytest.fixture
def kafka() -> KafkaCluster:
    """A broker that has ACLs; who says no name may do what nobody forbids."""
    return POOL.get(kind="guarded")


class Play(Script):
    """One run of the script with one library. stem: of the names that it makes, which are told as "N"."""

    def __init__(self, library: str, kafka: KafkaCluster, peer: Peer, stem: str, **options: Any) -> None:
        super().__init__(self.plain)
        self.k, self.a = importlib.import_module(library), importlib.import_module(f"{library}.admin")
        self.kafka, self.peer, self.stem = kafka, peer, stem
        self.options = {"bootstrap_servers": kafka.hosts, **options}
        self.admin = self.k.KafkaAdminClient(**self.options)

    def plain(self, value: Any) -> Any:
        """Results of both libraries as one."""
        kind = type(value).__name__
        if isinstance(value, str) and not isinstance(value, enum.Enum):
            return value.replace(self.stem, "N")
        if isinstance(value, enum.Enum):
            return f"{kind.lower().replace('acl', '')}.{value.name}" if isinstance(value, str) else value.value
        if isinstance(value, type):
            return ours(value).__name__
        if isinstance(value, uuid.UUID):
            return "an id" if value.int else "no id"
        if isinstance(value, Mapping):
            return {self.plain(key): self.shown(key, one) for key, one in value.items()}
        if hasattr(value, "resource_pattern"):
            of = value.resource_pattern
            parts = (
                value.principal,
                value.host,
                value.operation,
                value.permission_type,
                of.resource_type,
                of.resource_name,
                of.pattern_type,
            )
            return kind, *map(self.plain, parts)
        if kind in ("OffsetAndMetadata", "OffsetAndTimestamp"):
            return kind, *value[:2], value.leader_epoch if kind == "OffsetAndTimestamp" else None
        if hasattr(value, "_fields"):
            return kind, *map(self.plain, value)
        if isinstance(value, (set, frozenset)):
            return sorted(map(self.plain, value))
        if isinstance(value, (list, tuple)):
            return [self.plain(one) for one in value]
        return value

    def shown(self, key: Any, value: Any) -> Any:
        """What is told under this key: not which text an error has, nor in which order rights stand."""
        if key in ("error_message", "error"):
            return None if value is None else self.plain(value) if isinstance(value, type) else "an error"
        if key == "authorized_operations":
            return value and sorted(value)
        if key in ("topic_id", "replica_directory_id"):
            return value and "an id"
        if key in (
            "usable_bytes",
            "total_bytes",
            "last_fetch_timestamp",
            "last_caught_up_timestamp",
            "high_watermark",
            "log_end_offset",
            "finalized_epoch",
        ):
            return "a number"
        if key == "partitions" and value and isinstance(value[0], Mapping) and "partition_index" in value[0]:
            return sorted(map(self.plain, value), key=lambda p: p["partition_index"])
        return self.plain(value)

    def until(self, ready: Any) -> None:
        deadline = now() + LIMIT_S
        while not ready():
            assert now() < deadline
            time.sleep(0.05)

    def run(self) -> Any:
        for part in (self.of_topics, self.of_configs, self.of_partitions, self.of_groups, self.of_acls, self.of_users, self.of_the_cluster):
            part()
        self.of_transactions()
        self.step("close", self.admin.close)
        self.step("close twice", self.admin.close)
        return self.said

    def of_topics(self) -> None:
        a, step, name = self.admin, self.step, self.stem
        step("unknown option", lambda: self.k.KafkaAdminClient(**self.options, bootstrap_server="x"))
        made = {"num_partitions": 2, "replication_factor": 1, "configs": {"retention.ms": "600000"}}
        step("create as a dry run", lambda: a.create_topics({name: made}, validate_only=True))
        step("it was dry", lambda: name in a.list_topics())
        step("create", lambda: a.create_topics({name: made}, wait_for_metadata=True))
        step("create NewTopics", lambda: a.create_topics([self.a.NewTopic(f"{name}-2", 1, 1, topic_configs={"cleanup.policy": "compact"})]))
        step("create by name", lambda: a.create_topics([f"{name}-3"]))
        step("create on brokers", lambda: a.create_topics({f"{name}-4": {"assignments": {0: [1], 1: [1]}}}))
        a.wait_for_topics([name, *(f"{name}-{n}" for n in (2, 3, 4))])
        step("create again", lambda: a.create_topics([name]))
        step("create again without raising", lambda: a.create_topics([name], raise_errors=False))
        step("create nothing", lambda: a.create_topics([]))
        step("create a bad name", lambda: a.create_topics([f"{name}/"]))
        step("create with a bad value", lambda: a.create_topics({f"{name}-5": {"configs": {"retention.ms": "long"}}}))
        step("create on too many brokers", lambda: a.create_topics({f"{name}-5": {"num_partitions": 1, "replication_factor": 7}}))
        step("wait for what is not there", lambda: a.wait_for_topics([f"{name}-none"], timeout_ms=300))
        step("dry run and wait", lambda: a.create_topics([f"{name}-6"], validate_only=True, wait_for_metadata=True))
        step("list", lambda: sorted(t for t in a.list_topics() if t.startswith(name)))
        step("describe", lambda: a.describe_topics([name]))
        step("describe all", lambda: sorted(t["name"] for t in a.describe_topics() if t["name"].startswith(name)))
        step("describe by id", lambda: [t["name"] for t in a.describe_topics([uuid.UUID(a.describe_topics([name])[0]["topic_id"])])])
        step(
            "describe a topic and one that is not there",
            lambda: sorted(a.describe_topics([name, f"{name}-none"]), key=lambda t: str(t["name"])),
        )
        step("delete", lambda: a.delete_topics([f"{name}-3"]))
        step("delete by id", lambda: a.delete_topics([uuid.UUID(a.describe_topics([f"{name}-4"])[0]["topic_id"])]))
        step("delete what is not there", lambda: a.delete_topics([f"{name}-none"]))
        step(
            "delete without raising",
            lambda: sorted(a.delete_topics([f"{name}-2", f"{name}-none"], raise_errors=False)["topics"], key=lambda t: str(t["name"])),
        )

    def of_configs(self) -> None:
        a, step, name, resource = self.admin, self.step, self.stem, self.a.ConfigResource
        kind = self.a.ConfigResourceType
        step("describe configs", lambda: a.describe_configs([resource(kind.TOPIC, name)]))
        step(
            "describe configs with synonyms", lambda: a.describe_configs([resource("topic", name, ["retention.ms"])], include_synonyms=True)
        )
        step("describe all configs", lambda: sorted(a.describe_configs([resource("topic", name)], config_filter="all")["topic"][name]))
        step(
            "describe dynamic configs",
            lambda: sorted(a.describe_configs([resource("broker", "1")], config_filter="dynamic")["broker"]["1"]),
        )
        step(
            "describe static configs", lambda: sorted(a.describe_configs([resource("broker", "1")], config_filter="static")["broker"]["1"])
        )
        step(
            "describe default configs",
            lambda: sorted(a.describe_configs([resource("topic", name)], config_filter="default")["topic"][name]),
        )
        step("describe one of them", lambda: a.describe_configs([resource("topic", name, {"max.message.bytes": 1})], config_filter="all"))
        step("describe configs of a topic that is not there", lambda: a.describe_configs([resource("topic", f"{name}-none")]))
        step("describe with a filter that is none", lambda: a.describe_configs([resource("topic", name)], config_filter="new"))
        step("a resource that is none", lambda: type(resource("nothing", name)))
        step(
            "alter", lambda: a.alter_configs([resource("topic", name, {"retention.ms": "700000", "cleanup.policy": ("APPEND", "compact")})])
        )
        self.until(lambda: "cleanup.policy" in a.describe_configs([resource("topic", name)])["topic"][name])
        step("altered", lambda: a.describe_configs([resource("topic", name)]))
        step("alter dry", lambda: a.alter_configs([resource("topic", name, {"retention.ms": "1"})], validate_only=True))
        step("alter what is none", lambda: a.alter_configs([resource("topic", name, {"retention": "1"})]))
        step("alter to nonsense", lambda: sorted(a.alter_configs([resource("topic", name, {"retention.ms": "x"})])["topic"]))
        step("alter one whole", lambda: a.alter_configs([resource("topic", name, {"max.message.bytes": "2000"})], incremental=False))
        self.until(lambda: "max.message.bytes" in a.describe_configs([resource("topic", name)])["topic"][name])
        step("what is left", lambda: a.describe_configs([resource("topic", name)]))
        step("reset one", lambda: a.reset_configs([resource("topic", name, ["retention.ms"])]))
        step("reset all", lambda: a.reset_configs([resource("topic", name, [])]))
        self.until(lambda: not a.describe_configs([resource("topic", name)])["topic"][name])

    def of_partitions(self) -> None:
        a, step, name, spec = self.admin, self.step, self.stem, self.a.OffsetSpec
        tp = [self.k.TopicPartition(name, n) for n in range(4)]
        step("more partitions", lambda: _results(a.create_partitions({name: 3})))
        a.wait_for_topics([name])
        self.until(lambda: len(a.describe_topics([name])[0]["partitions"]) == 3)
        step("more partitions, placed", lambda: _results(a.create_partitions({name: self.a.NewPartitions(4, [[1]])}, validate_only=True)))
        step("fewer partitions", lambda: a.create_partitions({name: 1}))
        step("fewer without raising", lambda: [r[:2] for r in _results(a.create_partitions({name: 1}, raise_errors=False))])
        self.peer.write(name, [Seen(0, n, b"k", b"v", [], 1000 * (n + 1)) for n in range(4)])
        step("ends", lambda: a.list_partition_offsets({tp[0]: spec.LATEST, tp[1]: spec.EARLIEST}))
        step("at a time", lambda: a.list_partition_offsets({tp[0]: 1500, tp[1]: 5}))
        step("the newest", lambda: a.list_partition_offsets({tp[0]: spec.MAX_TIMESTAMP}))
        step("committed ends", lambda: a.list_partition_offsets({tp[0]: spec.LATEST}, isolation_level="read_committed"))
        step("ends of what is not there", lambda: a.list_partition_offsets({self.k.TopicPartition(name, 9): spec.LATEST}))
        step("ends at a text", lambda: a.list_partition_offsets({tp[0]: "latest"}))
        step("delete records", lambda: a.delete_records({tp[0]: 2, tp[1]: 0}))
        step("delete records of a leader", lambda: a.delete_records({tp[0]: 3}, partition_leader_id=1))
        step("delete too many records", lambda: a.delete_records({tp[0]: 99}))
        step("delete records of what is not there", lambda: a.delete_records({self.k.TopicPartition(name, 9): 0}))
        step("elect", lambda: _election(a.elect_leaders(0, {name: [0, 1]})))
        step("elect in a topic", lambda: _election(a.elect_leaders(0, [name])))
        step("elect what is not there", lambda: a.elect_leaders(0, {name: [9]}))
        step("elect in another way", lambda: a.elect_leaders(5, {name: [0]}))
        step("moving", a.list_partition_reassignments)
        step("moving of a topic", lambda: a.list_partition_reassignments({name: [0]}))
        step("stop moving", lambda: a.alter_partition_reassignments({tp[0]: None}))
        step("move", lambda: a.alter_partition_reassignments({tp[0]: [1]}))
        step("move to nobody", lambda: a.alter_partition_reassignments({tp[0]: []}))
        step("pages", lambda: a.describe_topic_partitions([name]))
        step("a page", lambda: a.describe_topic_partitions([name], response_partition_limit=1)["next_cursor"])
        cursor = {"topic_name": name, "partition_index": 1}
        step("the next", lambda: a.describe_topic_partitions([name], response_partition_limit=2, cursor=cursor))

    def of_groups(self) -> None:
        a, step, name, k = self.admin, self.step, self.stem, self.k
        tp = [k.TopicPartition(name, n) for n in range(3)]
        member = k.KafkaConsumer(
            name, group_id=name, client_id="member", enable_auto_commit=False, auto_offset_reset="earliest", **self.options
        )
        deadline = now() + LIMIT_S
        while len(member.assignment()) < 3 and now() < deadline:
            member.poll(1000)  # kafka-python joins within a call, or not
        member.commit({tp[0]: k.OffsetAndMetadata(3, "note", -1), tp[1]: k.OffsetAndMetadata(0, "", -1)})
        mine = [g for g in a.list_groups() if g["group_id"] == name]
        step("list groups", lambda: mine)
        step("list by state", lambda: [g["group_id"] for g in a.list_groups(states_filter=["stable"]) if g["group_id"] == name])
        step("list by another", lambda: [g["group_id"] for g in a.list_groups(states_filter=["EMPTY"]) if g["group_id"] == name])
        step("list by type", lambda: [g["group_id"] for g in a.list_groups(types_filter=["classic"]) if g["group_id"] == name])
        step("list by what is none", lambda: a.list_groups(states_filter=["sleepy"]))
        step("list of brokers", lambda: [g["group_id"] for g in a.list_groups(broker_ids=[1]) if g["group_id"] == name])
        step("describe a group", lambda: _of_member(a.describe_groups([name])[name]))
        step("describe none", lambda: a.describe_groups([f"{name}-none"]))
        step("busy: alter", lambda: a.alter_group_offsets(name, {tp[0]: k.OffsetAndMetadata(1, "", -1)}))
        step("busy: delete", lambda: a.delete_groups([name]))
        step("busy: forget", lambda: a.delete_group_offsets(name, [tp[0]]))
        step("remove a stranger", lambda: a.remove_group_members(name, [self.a.MemberToRemove("stranger")]))
        step("remove a static stranger", lambda: a.remove_group_members(name, [self.a.MemberToRemove(group_instance_id="st")]))
        step("remove nobody", lambda: a.remove_group_members(name, []))
        member.close(autocommit=False)
        step("committed", lambda: a.list_group_offsets(name))
        step("committed by partition", lambda: a.list_group_offsets({name: [tp[0], tp[2]], f"{name}-none": None}))
        step("committed by nobody", lambda: a.list_group_offsets([]))
        step("reset", lambda: a.reset_group_offsets(name, {tp[0]: self.a.OffsetSpec.EARLIEST, tp[1]: self.a.OffsetTimestamp(5), tp[2]: 70}))
        step("reset nothing", lambda: a.reset_group_offsets(name, {}))
        step("reset to a text", lambda: a.reset_group_offsets(name, {tp[0]: "earliest"}))
        step("after it", lambda: a.list_group_offsets(name))

        step("alter offsets", lambda: a.alter_group_offsets(name, {tp[0]: k.OffsetAndMetadata(3, "again", -1)}, group_coordinator_id=1))
        step("forget", lambda: a.delete_group_offsets(name, [tp[1]]))
        step("forget of nobody", lambda: a.delete_group_offsets(f"{name}-none", [tp[1]]))
        step("what is kept", lambda: sorted(a.list_group_offsets(name)[name]))
        step("delete groups", lambda: a.delete_groups([name, f"{name}-none"]))

    def of_acls(self) -> None:
        a, step, m = self.admin, self.step, self.a
        any_of = m.ResourcePatternFilter(m.ResourceType.TOPIC, self.stem, m.ACLResourcePatternType.ANY)
        which = m.ACLFilter(None, None, m.ACLOperation.ANY, m.ACLPermissionType.ANY, any_of)
        topic = m.ResourcePattern(m.ResourceType.TOPIC, self.stem)
        prefix = m.ResourcePattern(m.ResourceType.TOPIC, self.stem, m.ACLResourcePatternType.PREFIXED)
        acls = [
            m.ACL("User:alice", "*", m.ACLOperation.READ, m.ACLPermissionType.ALLOW, topic),
            m.ACL("User:bob", "127.0.0.1", m.ACLOperation.WRITE, m.ACLPermissionType.DENY, prefix),
        ]
        step("create ACLs", lambda: a.create_acls(acls))
        self.until(lambda: len(a.describe_acls(which)[0]) == 2)
        step("ACLs", lambda: (sorted(map(self.plain, a.describe_acls(which)[0])), a.describe_acls(which)[1]))
        step(
            "the same ACL",
            lambda: (acls[0] in a.describe_acls(which)[0], set(acls) == set(a.describe_acls(which)[0]), repr(acls[0])),
        )
        step("an ACL of any", lambda: m.ACL("User:x", "*", m.ACLOperation.ANY, m.ACLPermissionType.ALLOW, topic))
        step("an ACL of a filter", lambda: m.ACL("User:x", "*", m.ACLOperation.READ, m.ACLPermissionType.ALLOW, any_of))
        step("a filter of a text", lambda: m.ACLFilter(None, None, "read", m.ACLPermissionType.ANY, any_of))
        step("a pattern that matches", lambda: m.ResourcePattern(m.ResourceType.TOPIC, "x", m.ACLResourcePatternType.MATCH))
        step("create a filter", lambda: a.create_acls([which]))
        step("delete a topic's name", lambda: a.delete_acls([self.stem]))
        step("delete ACLs", lambda: [(f == which, sorted(map(self.plain, gone)), kind) for f, gone, kind in a.delete_acls([which])])

    def of_users(self) -> None:
        a, step, m, user = self.admin, self.step, self.a, self.stem
        made = m.UserScramCredentialUpsertion(user, "SCRAM-SHA-256", "secret", iterations=5000, salt=b"salt")
        step("salted", lambda: (made.salted_password, made.iterations, made.salt, made.mechanism, repr(made)))
        step("a user", lambda: a.alter_user_scram_credentials([made]))
        self.until(lambda: user in a.describe_user_scram_credentials())
        step("of a user", lambda: a.describe_user_scram_credentials([user]))
        step("of nobody", lambda: a.describe_user_scram_credentials([f"{user}-none"]))
        step("a password of another kind", lambda: m.UserScramCredentialUpsertion(user, "PLAIN", "secret"))
        step("alter by a text", lambda: a.alter_user_scram_credentials([user]))
        step("no user", lambda: a.alter_user_scram_credentials([m.UserScramCredentialDeletion(user, m.ScramMechanism.SCRAM_SHA_256)]))
        gone = m.UserScramCredentialDeletion(f"{user}-none", 1)
        step("not a user", lambda: {key: bool(text) for key, text in a.alter_user_scram_credentials([gone]).items()})

    def of_the_cluster(self) -> None:
        a, step = self.admin, self.step
        step("cluster", a.describe_cluster)
        step("quorum", a.describe_metadata_quorum)
        step("features", a.describe_features)
        step("features of the controller", lambda: a.describe_features(send_request_to_controller=True))
        step("update features", lambda: a.update_features({"group.version": 1}, validate_only=True))
        step("update features down", lambda: a.update_features({"group.version": ("SAFE_DOWNGRADE", 0)}, validate_only=True))
        step("update what is none", lambda: a.update_features({"nothing.version": 1}, validate_only=True))
        step("update a list", lambda: a.update_features(["group.version"]))
        step("speaks", a.api_versions)
        step("directories", lambda: a.describe_log_dirs({self.stem: [0]}))
        step("directories of a topic", lambda: _replicas(a.describe_log_dirs([self.stem])))
        step("directories of a broker", lambda: [one["broker"] for one in a.describe_log_dirs(brokers=[1])])
        step("move to a directory", lambda: a.alter_replica_log_dirs({(self.stem, 0, 1): "/not/there"}))
        step("move to no directory", lambda: a.alter_replica_log_dirs({}))

    def of_transactions(self) -> None:
        a, step, m, tp = self.admin, self.step, self.a, self.k.TopicPartition(self.stem, 0)
        producer = self.k.KafkaProducer(transactional_id=self.stem, **self.options)
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(self.stem, b"open", partition=0).get(LIMIT_S)
        listed = [t for of in a.list_transactions().values() for t in of if t.transactional_id == self.stem]
        step("transactions", lambda: [(type(t).__name__, t.state) for t in listed])
        step("ongoing", lambda: [t.transactional_id for of in a.list_transactions(state_filters=["Ongoing"]).values() for t in of])
        step(
            "of a pattern",
            lambda: [t.transactional_id for of in a.list_transactions(transactional_id_pattern=self.stem).values() for t in of],
        )
        step("for long", lambda: [t.transactional_id for of in a.list_transactions(duration_filter_ms=600000).values() for t in of])
        step("by broker", lambda: list(a.list_transactions(broker_ids=[1])))
        step(
            "describe a transaction",
            lambda: [part for at, part in enumerate(a.describe_transactions([self.stem])[self.stem]) if at not in (2, 5)],
        )
        step("describe no transaction", lambda: a.describe_transactions([f"{self.stem}-none"]))
        state = a.describe_producers([tp])[tp].active_producers[-1]
        step("producer", lambda: (type(state).__name__, state._fields, state.producer_epoch, state.last_sequence, state.coordinator_epoch))
        step("producers of what is not there", lambda: a.describe_producers([self.k.TopicPartition(self.stem, 9)]))
        step("hanging", a.find_hanging_transactions)
        wrong = m.AbortTransactionSpec(tp, state.producer_id, state.producer_epoch + 3)
        step("abort another epoch's", lambda: a.abort_transaction(wrong))
        producer.abort_transaction()
        producer.close()


def ours(kind: type) -> type:
    """The class that gkafka.kafka has for one of kafka-python's."""
    found: Any = getattr(errors, kind.__name__, kind)
    return found if isinstance(found, type) else kind


def _results(response: Any) -> Any:
    return [(r.name, r.error_code, r.error_message) for r in response.results]


def _election(response: Any) -> Any:
    return sorted((r.topic, sorted((p.partition_id, p.error_code) for p in r.partition_result)) for r in response.replica_election_results)


def _replicas(told: Any) -> Any:
    return [
        sorted((t["name"], p["partition_index"], p["is_future_key"]) for t in d["topics"] for p in t["partitions"])
        for d in told[0]["log_dirs"]
    ]


def _of_member(group: Any) -> Any:
    """Without what each library names itself."""
    for member in group["members"]:
        member["member_id"] = re.sub("[0-9a-f-]{36}$", "", member["member_id"])
        member["member_metadata"] = sorted(member["member_metadata"]["topics"])
        for topic in member["member_assignment"]["assigned_partitions"]:
            topic["partitions"] = sorted(topic["partitions"])
        member["member_assignment"]["user_data"] = None
    return group


@pytest.mark.usefixtures("quiet")
def test_a_script_of_an_administrators_calls_gives_what_kafka_python_gives(
    kafka: KafkaCluster, peer: Peer, new_name: Any, handler: str
) -> None:
    theirs = Play("kafka", kafka, peer, new_name("one")).run()
    mine = Play("gkafka.kafka", kafka, peer, new_name("two"), handler=handler).run()
    assert list(theirs) == list(mine)
    different = {name: SimpleNamespace(theirs=theirs[name], ours=mine[name]) for name in theirs if not same(theirs[name], mine[name])}
    assert set(different) == set(DIFFERENT), "\n".join(f"{name}: {both}" for name, both in different.items())


def test_every_call_of_kafka_pythons_administrator_is_there_with_its_arguments() -> None:
    theirs = importlib.import_module("kafka.admin").KafkaAdminClient
    missing = []
    for name, call in inspect.getmembers(theirs, inspect.isfunction):
        if name.startswith("_") or name in LEFT_OUT:
            continue
        own = getattr(KafkaAdminClient, name, None)
        if own is None or list(inspect.signature(own).parameters) != list(inspect.signature(call).parameters):
            missing.append(name)
    assert not missing
    assert not [name for name in LEFT_OUT if hasattr(KafkaAdminClient, name)]


def test_every_name_of_kafka_pythons_administration_is_there() -> None:
    theirs, here = importlib.import_module("kafka.admin"), importlib.import_module("gkafka.kafka.admin")
    assert set(theirs.__all__) <= set(here.__all__)
    for name in theirs.__all__:
        kind = getattr(theirs, name)
        if isinstance(kind, type) and issubclass(kind, enum.Enum):
            assert {one.name: one.value for one in kind}.items() <= {one.name: one.value for one in getattr(here, name)}.items(), name


@pytest.mark.usefixtures("quiet")
def test_calls_that_only_older_versions_name_give_what_these_gave(kafka: KafkaCluster, peer: Peer, new_topic: Any, handler: str) -> None:
    from gkafka.kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition

    name = new_topic(1)
    tp = TopicPartition(name, 0)
    peer.write(name, [Seen(0, 0, None, b"v", [], 5)])
    member = KafkaConsumer(name, group_id=name, client_id="m", bootstrap_servers=kafka.hosts, handler=handler, enable_auto_commit=False)
    deadline = now() + LIMIT_S
    while not member.assignment() and now() < deadline:
        member.poll(100)
    member.commit({tp: OffsetAndMetadata(1, "note")})
    with KafkaAdminClient(bootstrap_servers=kafka.hosts, handler=handler) as admin:
        assert (name, "consumer") in admin.list_consumer_groups()
        (group,) = admin.describe_consumer_groups([name])
        assert (group.error_code, group.group, group.state, group.protocol_type, group.protocol) == (0, name, "Stable", "consumer", "range")
        assert group.authorized_operations is None
        assert admin.describe_consumer_groups([name], include_authorized_operations=True)[0].authorized_operations
        (one,) = group.members
        assert (one.client_id, one.member_metadata["topics"]) == ("m", [name])
        assert one.member_assignment["assigned_partitions"] == [{"topic": name, "partitions": [0]}]
        assert (one.member_metadata.subscription, one.member_assignment.assignment) == ([name], [(name, [0])])
        assert one.member_assignment.partitions() == [tp]
        assert admin.list_consumer_group_offsets(name) == {tp: (1, "note")}
        assert admin.list_consumer_group_offsets(name, partitions=[TopicPartition(name, 7)])[TopicPartition(name, 7)].offset == -1
        assert admin.delete_consumer_groups([name]) == [(name, errors.NonEmptyGroupError)]
        with pytest.raises(errors.NotCoordinatorError, match="broker 1"):
            admin.delete_consumer_groups([name], group_coordinator_id=7)
        member.close(autocommit=False)
        assert admin.delete_consumer_groups([name]) == [(name, errors.NoError)]
        assert admin.describe_consumer_groups([name])[0].state == "Dead"
        response = admin.perform_leader_election("PREFERRED", {name: [0]})
        assert [p.error_code for r in response.replica_election_results for p in r.partition_result] == [errors.ElectionNotNeededError.code]
        assert [(topic, row[:2]) for topic, rows in response.replication_election_results for row in rows] == [(name, (0, 84))]
        assert [row[:2] for row in admin.create_partitions({name: 2}).topic_errors] == [(name, 0)]
        with pytest.raises(errors.NotLeaderForPartitionError, match="broker 1 leads"):
            admin.delete_records({tp: 0}, partition_leader_id=7)


def test_a_member_that_is_removed_joins_anew(kafka: KafkaCluster, new_topic: Any, handler: str) -> None:
    from gkafka.kafka import KafkaConsumer
    from gkafka.kafka.admin import MemberToRemove

    name = new_topic(1)
    options: dict[str, Any] = {"bootstrap_servers": kafka.hosts, "handler": handler}
    with KafkaAdminClient(**options) as admin:
        member = KafkaConsumer(name, group_id=name, group_instance_id="static", heartbeat_interval_ms=200, **options)
        deadline = now() + LIMIT_S
        first = ""
        while now() < deadline:
            member.poll(100)
            members = admin.describe_groups([name])[name]["members"]
            if first and members and members[0]["member_id"] != first:
                break
            if not first and member.assignment():
                first = members[0]["member_id"]
                assert admin.remove_group_members(name, [MemberToRemove(group_instance_id="static", reason="a test")]) == {
                    "static": errors.NoError
                }
        else:
            pytest.fail("the member did not come back")
        member.close()


def test_what_fails_of_several_is_all_in_the_cause(kafka: KafkaCluster, new_topic: Any, handler: str) -> None:
    there = new_topic(1)
    with KafkaAdminClient(bootstrap_servers=kafka.hosts, handler=handler) as admin:
        with pytest.raises(errors.UnknownTopicOrPartitionError) as caught:
            admin.delete_topics(["none-1", there, "none-2"])
        cause = caught.value.__cause__
        assert isinstance(cause, KafkaException)
        assert sorted(cause.errors) == ["none-1", "none-2"]  # type: ignore[attr-defined]
