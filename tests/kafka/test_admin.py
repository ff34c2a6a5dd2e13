"""KafkaAdminClient in this process: its options, whom it reaches, what it does with what it cannot use. tests/live/test_kafka_admin.py compares it with
kafka-python's."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

from gkafka.exceptions import ClientClosedError
from gkafka.kafka import KafkaAdminClient, OffsetAndMetadata, TopicPartition
from gkafka.kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    AlterConfigOp,
    ConfigResource,
    ConfigResourceType,
    MemberToRemove,
    NewPartitions,
    NewTopic,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
    UserScramCredentialUpsertion,
)
from gkafka.kafka.admin.results import (
    CreatePartitionsResponse,
    ElectLeadersResponse,
    PartitionElection,
    TopicElections,
    TopicPartitionsResult,
)
from gkafka.kafka.errors import (
    IllegalArgumentError,
    InvalidTopicError,
    KafkaConfigurationError,
    KafkaProtocolError,
    KafkaTimeoutError,
    NoBrokersAvailable,
    NotCoordinatorError,
    NotLeaderForPartitionError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from gkafka.testing import Delay, Error, MockCluster, Reply
from gkafka.wire import configs, groups
from gkafka.wire.consumerprotocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription, MemberPartitions
from tests.kit.ports import refused_port
from tests.net.servers import serve

Make = Callable[..., KafkaAdminClient]
FIRST = TopicPartition("t", 0)


@pytest.fixture
def make(handler: str) -> Iterator[Make]:
    """Makes administrators: make(cluster, **options)."""
    made: list[KafkaAdminClient] = []

    def admin(cluster: MockCluster, **options: Any) -> KafkaAdminClient:
        made.append(KafkaAdminClient(**{"bootstrap_servers": cluster.bootstrap, "handler": handler, **options}))
        return made[-1]

    yield admin
    for one in made:
        one.close()


@pytest.fixture
def admin(make: Make, cluster: MockCluster) -> KafkaAdminClient:
    return make(cluster)


# -- options -----------------------------------------------------------------------------------------------------------
OBSERVED = {
    "bootstrap_servers": "test_it_says_who_it_is_and_whom_it_reaches",
    "client_id": "test_it_says_who_it_is_and_whom_it_reaches",
    "handler": "test_it_waits_by_its_handler",
    "request_timeout_ms": "test_request_timeout_ms_bounds_a_call_and_timeout_ms_goes_before_it",
    "retry_backoff_ms": "test_retry_backoff_ms_is_the_pause_before_what_may_heal_is_tried_again",
    "receive_message_max_bytes": "test_receive_message_max_bytes_bounds_an_answer",
    "bootstrap_timeout_ms": "test_without_a_broker_the_constructor_raises_in_time",
    "api_version_auto_timeout_ms": "test_without_a_broker_the_constructor_raises_in_time",
    "api_version": "test_api_version_is_taken_at_its_word",
    "metadata_max_age_ms": "tests/kafka/test_consumer_options.py",
}
"""Option -> the test that observes it. All others go the way that the consumer's and the producer's go, where they are observed."""
SHARED = (
    "ssl_",
    "tls_",
    "sasl_",
    "reconnect_",
    "allow_",
    "socket_options",
    "receive_buffer",
    "send_buffer",
    "security_protocol",
    "proxy_url",
)
REFUSED = ("selector", "metric")


def test_for_every_option_it_is_known_what_observes_it() -> None:
    rest = [name for name in KafkaAdminClient.DEFAULT_CONFIG if name not in OBSERVED and not name.startswith(SHARED + REFUSED)]
    assert rest == []
    assert all(name in KafkaAdminClient.DEFAULT_CONFIG for name in OBSERVED)
    assert all(where in globals() for where in OBSERVED.values() if where.startswith("test_"))


@pytest.mark.parametrize(
    ("name", "near"),
    [("bootstrap_server", "bootstrap_servers"), ("request_timeout", "request_timeout_ms"), ("retry_backof_ms", "retry_backoff_ms")],
)
def test_an_unknown_option_is_refused_with_what_was_meant(make: Make, cluster: MockCluster, name: str, near: str) -> None:
    with pytest.raises(KafkaConfigurationError, match=rf"KafkaAdminClient\(\): there is no option '{name}'; did you mean '{near}'\?"):
        make(cluster, **{name: "x"})


@pytest.mark.parametrize(
    "option",
    [
        {"request_timeout_ms": 0},
        {"request_timeout_ms": "1"},
        {"retry_backoff_ms": 0},
        {"retry_backoff_ms": "1"},
        {"receive_message_max_bytes": 5},
        {"bootstrap_timeout_ms": -1},
        {"api_version_auto_timeout_ms": "soon"},
        {"client_id": 5},
        {"security_protocol": "SSH"},
        {"metadata_max_age_ms": -1},
        {"api_version": "two"},
    ],
    ids=lambda option: "-".join(f"{name}={value!r}" for name, value in option.items()),
)
def test_a_value_that_an_option_cannot_have_is_refused_by_name(make: Make, cluster: MockCluster, option: dict[str, Any]) -> None:
    with pytest.raises(KafkaConfigurationError, match="=") as caught:
        make(cluster, **option)
    assert str(caught.value).startswith(f"{next(iter(option))}=")


def test_what_would_have_no_effect_is_refused(make: Make, cluster: MockCluster) -> None:
    with pytest.raises(KafkaConfigurationError, match="metrics_num_samples=5 would have no effect"):
        make(cluster, metrics_num_samples=5)


@pytest.mark.parametrize("servers", ["", "host:port", [], 5, None, b"h:1", "h:70000"])
def test_bootstrap_servers_that_are_none_are_refused(handler: str, servers: Any) -> None:
    with pytest.raises((KafkaConfigurationError, NoBrokersAvailable)):
        KafkaAdminClient(bootstrap_servers=servers, handler=handler, bootstrap_timeout_ms=500)


@pytest.mark.parametrize("option", ["bootstrap_timeout_ms", "api_version_auto_timeout_ms"])
def test_without_a_broker_the_constructor_raises_in_time(handler: str, option: str) -> None:
    """By both names that kafka-python's versions have for it."""
    with pytest.raises(NoBrokersAvailable, match="no connection") as caught:
        KafkaAdminClient(bootstrap_servers=f"127.0.0.1:{refused_port()}", handler=handler)
    assert isinstance(caught.value, KafkaTimeoutError)

    def silent(conn: socket.socket) -> None:
        while conn.recv(1000):
            pass

    with serve(silent) as port, pytest.raises(NoBrokersAvailable, match=f"within {option}=300: ") as caught:
        KafkaAdminClient(bootstrap_servers=f"127.0.0.1:{port}", handler=handler, **{option: 300})
    assert isinstance(caught.value, KafkaTimeoutError)


def test_it_says_who_it_is_and_whom_it_reaches(make: Make, cluster: MockCluster) -> None:
    admin = make(cluster, client_id="the administrator", bootstrap_servers=["127.0.0.1:1", cluster.bootstrap])
    assert admin.list_topics() == ["t"]
    assert {request.client_id for request in cluster.requests("Metadata")} == {"the administrator"}
    assert repr(admin) == "<KafkaAdminClient client_id='the administrator'>"
    assert admin.config["client_id"] == "the administrator"


def test_it_waits_by_its_handler(make: Make, cluster: MockCluster, handler: str) -> None:
    assert type(make(cluster)._client.handler).__name__ == {"threading": "ThreadingHandler", "gevent": "GEventHandler"}[handler]


def test_request_timeout_ms_bounds_a_call_and_timeout_ms_goes_before_it(make: Make, cluster: MockCluster) -> None:
    admin = make(cluster, request_timeout_ms=300)
    cluster.on("CreateTopics", Delay(30), times=2)
    with pytest.raises(KafkaTimeoutError):
        admin.create_topics(["slow"])
    with pytest.raises(KafkaTimeoutError):
        make(cluster, request_timeout_ms=20000).create_topics(["slow"], timeout_ms=300)


def test_retry_backoff_ms_is_the_pause_before_what_may_heal_is_tried_again(make: Make, cluster: MockCluster) -> None:
    admin = make(cluster, retry_backoff_ms=700)
    cluster.on("ListGroups", Error(14), times=1)
    assert admin.list_groups() == []
    first, second = (request.time for request in cluster.requests("ListGroups"))
    assert second - first >= 0.8 * 0.7


def test_receive_message_max_bytes_bounds_an_answer(make: Make, make_cluster: Callable[..., MockCluster]) -> None:
    many = make_cluster(topics={f"topic-{n:0>200}": 1 for n in range(20)})
    assert len(make(many, receive_message_max_bytes=100_000).list_topics()) == 20
    with pytest.raises(KafkaProtocolError, match="more than the 1024 that are accepted"):
        make(many, receive_message_max_bytes=1024, request_timeout_ms=10_000).list_topics()


def test_api_version_is_taken_at_its_word(make: Make, make_cluster: Callable[..., MockCluster]) -> None:
    admin = make(make_cluster(versions="0.9.0"), api_version=(0, 9))
    assert admin.list_topics() == ["t"]
    with pytest.raises(UnsupportedVersionError, match="CreateTopics"):
        admin.create_topics(["new"])


# -- its life ----------------------------------------------------------------------------------------------------------
def test_a_closed_one_says_so_and_may_be_closed_again(make: Make, cluster: MockCluster) -> None:
    with make(cluster) as admin:
        admin.list_topics()
    admin.close()
    assert repr(admin).endswith(" closed>")
    for call in (admin.list_topics, admin.describe_cluster, lambda: admin.create_topics(["new"])):
        with pytest.raises(ClientClosedError, match=r"make a new KafkaAdminClient$"):
            call()


def test_it_is_imported_when_it_is_used_and_not_before() -> None:
    program = (
        "import sys, gkafka.kafka; heavy = ('gkafka.admin', 'gkafka.client', 'gkafka.kafka.'); "
        "assert not [m for m in sys.modules if m.startswith(heavy)]; "
        "from gkafka.kafka import KafkaConsumer, KafkaProducer; assert not [m for m in sys.modules if '.admin.' in m or m == 'gkafka.admin']; "
        "from gkafka.kafka import KafkaAdminClient; assert 'gkafka.kafka.admin.client' in sys.modules; "
        "from gkafka.kafka.admin import NewTopic; from gkafka.kafka.admin.client import KafkaAdminClient as again; assert again is KafkaAdminClient"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})


# -- what it is given --------------------------------------------------------------------------------------------------
def test_topics_are_made_described_and_deleted(admin: KafkaAdminClient, cluster: MockCluster) -> None:
    made = admin.create_topics([NewTopic("a", 2, 1), "b"], wait_for_metadata=True)
    assert [(t["name"], t["error_code"]) for t in made["topics"]] == [("a", 0), ("b", 0)]
    assert sorted(admin.list_topics()) == ["a", "b", "t"]
    (a,) = admin.describe_topics(["a"])
    assert [p["partition_index"] for p in a["partitions"]] == [0, 1]
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics(["a"])
    (again,) = admin.create_topics(["a"], raise_errors=False)["topics"]
    assert again["error_code"] == TopicAlreadyExistsError.code
    assert "a" in again["error_message"]
    assert [t["name"] for t in admin.delete_topics([UUID(a["topic_id"]), "b"])["topics"]] == ["a", "b"]
    assert admin.list_topics() == ["t"]


@pytest.mark.parametrize("name", ["", "a b", "x" * 250, ".", None, 5])
def test_a_name_that_no_topic_can_have_is_told_by_both_names(admin: KafkaAdminClient, name: Any) -> None:
    for call in (admin.create_topics, admin.delete_topics, admin.describe_topics):
        with pytest.raises(KafkaConfigurationError) as caught:
            call([name])
        assert isinstance(caught.value, (InvalidTopicError, IllegalArgumentError))


@pytest.mark.parametrize(
    "call", ["delete_groups", "delete_consumer_groups", "describe_groups", "describe_consumer_groups", "describe_topics"]
)
def test_a_name_is_not_taken_for_a_list_of_letters(admin: KafkaAdminClient, cluster: MockCluster, call: str) -> None:
    """delete_groups("ab") deleted the groups "a" and "b"."""
    with pytest.raises(IllegalArgumentError, match="='ab': must be a list, also for one"):
        getattr(admin, call)("ab")
    assert cluster.count("DeleteGroups") == 0


def test_what_is_not_there_is_told(admin: KafkaAdminClient) -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match="nowhere"):
        admin.delete_topics(["nowhere"])
    assert [t["error_code"] for t in admin.describe_topics(["nowhere"])] == [UnknownTopicOrPartitionError.code]
    with pytest.raises(UnknownTopicOrPartitionError, match="no topic has the id"):
        admin.delete_topics([UUID(int=5)])
    with pytest.raises(KafkaTimeoutError, match="nowhere"):
        admin.wait_for_topics(["nowhere"], timeout_ms=200)
    with pytest.raises(UnknownTopicOrPartitionError, match="7"):
        admin.delete_records({TopicPartition("t", 7): 0}, partition_leader_id=1)


def test_a_leader_or_coordinator_that_is_another_is_told(admin: KafkaAdminClient) -> None:
    with pytest.raises(NotLeaderForPartitionError, match="partition_leader_id=9: broker 1 leads t-0"):
        admin.delete_records({FIRST: 0}, partition_leader_id=9)
    for call in (
        lambda: admin.describe_groups(["g"], group_coordinator_id=9),
        lambda: admin.describe_consumer_groups(["g"], group_coordinator_id=9),
        lambda: admin.delete_groups(["g"], group_coordinator_id=9),
        lambda: admin.list_consumer_group_offsets("g", group_coordinator_id=9),
        lambda: admin.alter_group_offsets("g", {FIRST: OffsetAndMetadata(1, "")}, group_coordinator_id=9),
        lambda: admin.delete_group_offsets("g", [FIRST], group_coordinator_id=9),
        lambda: admin.reset_group_offsets("g", {FIRST: 1}, group_coordinator_id=9),
        lambda: admin.remove_group_members("g", [MemberToRemove("m")], group_coordinator_id=9),
    ):
        with pytest.raises(NotCoordinatorError, match="group_coordinator_id=9: group 'g' is with broker 1"):
            call()


def _acl_filter(**changes: Any) -> ACLFilter:
    pattern = ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY)
    given = {"operation": ACLOperation.ANY, "permission_type": ACLPermissionType.ANY, "resource_pattern": pattern, **changes}
    return ACLFilter(None, None, **given)


WRONG: list[Callable[[KafkaAdminClient], Any]] = [
    lambda a: a.create_topics("t"),
    lambda a: a.create_topics([5]),
    lambda a: a.create_topics([]),
    lambda a: a.create_topics({"a": {"partitions": 5}}),
    lambda a: a.create_topics({"a": 5}),
    lambda a: a.create_topics([NewTopic("a", 0, 1)]),
    lambda a: a.create_topics([NewTopic("a", 1, 1, {0: [1]})]),
    lambda a: a.create_topics(["a"], validate_only=True, wait_for_metadata=True),
    lambda a: a.create_topics(["a"], timeout_ms="soon"),
    lambda a: a.create_topics(["a"], timeout_ms=-5),
    lambda a: a.delete_topics("t"),
    lambda a: a.describe_topics("t"),
    lambda a: a.create_partitions(["t"]),
    lambda a: a.create_partitions({"t": "5"}),
    lambda a: a.create_partitions({"t": True}),
    lambda a: a.create_partitions({"t": {"number": 5}}),
    lambda a: a.create_partitions({"t": NewPartitions(5, [[1, 1]])}),
    lambda a: a.delete_records([FIRST]),
    lambda a: a.delete_records({FIRST: "1"}),
    lambda a: a.elect_leaders("BEST", {"t": [0]}),
    lambda a: a.elect_leaders(0, "t"),
    lambda a: a.list_partition_offsets({FIRST: "latest"}),
    lambda a: a.list_partition_offsets({FIRST: 1}, isolation_level="none"),
    lambda a: a.alter_partition_reassignments({FIRST: []}),
    lambda a: a.describe_topic_partitions(["t"], response_partition_limit=0),
    lambda a: a.describe_configs(ConfigResource("topic", "t")),
    lambda a: a.describe_configs(["t"]),
    lambda a: a.describe_configs([ConfigResource("topic", "t")], config_filter="new"),
    lambda a: a.describe_configs([ConfigResource("broker", "first")]),
    lambda a: a.alter_configs([ConfigResource("topic", "t")]),
    lambda a: a.alter_configs([ConfigResource("topic", "t", ["retention.ms"])]),
    lambda a: a.alter_configs([ConfigResource("topic", "t", {"retention.ms": None})]),
    lambda a: a.alter_configs([ConfigResource("topic", "t", {"retention.ms": ("ADD", "1")})]),
    lambda _: ConfigResource("tpoic", "t"),
    lambda a: a.list_groups(states_filter=["sleepy"]),
    lambda a: a.alter_group_offsets("g", {FIRST: 5}),  # type: ignore[dict-item]
    lambda a: a.reset_group_offsets("g", {FIRST: "earliest"}),  # type: ignore[dict-item]
    lambda a: a.remove_group_members("g", [MemberToRemove()]),
    lambda a: a.create_acls([_acl_filter()]),  # type: ignore[list-item]
    lambda a: a.describe_acls("t"),  # type: ignore[arg-type]
    lambda a: a.delete_acls(["t"]),  # type: ignore[list-item]
    lambda _: _acl_filter(operation="READ"),
    lambda _: _acl_filter(permission_type=3),
    lambda _: _acl_filter(resource_pattern="t"),
    lambda _: ResourcePattern(ResourceType.ANY, "t"),
    lambda _: ResourcePattern(ResourceType.TOPIC, "t", ACLResourcePatternType.MATCH),
    lambda _: ACL("User:a", "*", ACLOperation.ANY, ACLPermissionType.ALLOW, ResourcePattern(ResourceType.TOPIC, "t")),
    lambda a: a.update_features(["f"]),  # type: ignore[arg-type]
    lambda a: a.update_features({"f": ("UNKNOWN", 1)}),
    lambda a: a.alter_user_scram_credentials(["u"]),  # type: ignore[list-item]
    lambda _: UserScramCredentialUpsertion("u", "PLAIN", "secret"),
    lambda _: UserScramCredentialUpsertion("u", 0, "secret"),
    lambda a: a.describe_producers([FIRST], broker_id=1),
    lambda a: a.list_transactions(state_filters=["Sleepy"]),
]


@pytest.mark.parametrize("at", range(len(WRONG)))
def test_what_cannot_be_used_is_refused_before_anything_is_changed(admin: KafkaAdminClient, cluster: MockCluster, at: int) -> None:
    with pytest.raises(KafkaConfigurationError) as caught:
        WRONG[at](admin)
    assert len(str(caught.value)) > 10
    assert not {request.api for request in cluster.requests()} - {"ApiVersions", "Metadata"}


def test_a_password_is_shown_by_nothing() -> None:
    made = UserScramCredentialUpsertion("u", "SCRAM-SHA-512", "open sesame")
    assert "sesame" not in f"{made!r} {made.password!r} {made.password} {vars(made)}"


# -- groups ------------------------------------------------------------------------------------------------------------
def test_members_that_are_no_consumers_are_told_with_their_bytes(admin: KafkaAdminClient, cluster: MockCluster) -> None:
    connect = groups.DescribedGroupMember(
        member_id="m", client_id="c", client_host="h", member_metadata=b"\x00", member_assignment=b"\xff\xff"
    )
    group = groups.DescribedGroup(
        group_id="g", group_state="Stable", protocol_type="connect", protocol_data="sessioned", members=[connect], authorized_operations=8
    )
    cluster.on("DescribeGroups", Reply(lambda _: groups.DescribeGroupsResponse(groups=[group])))
    shown = admin.describe_groups(["g"])["g"]
    assert shown["authorized_operations"] == ["READ"]
    assert [(m["member_metadata"], m["member_assignment"]) for m in shown["members"]] == [(b"\x00", b"\xff\xff")]


def test_members_are_told_by_2_x_s_attributes_and_by_3_0_s_keys(admin: KafkaAdminClient, cluster: MockCluster) -> None:
    said = ConsumerProtocolSubscription(topics=["t", "u"], user_data=b"\xff", generation_id=4).to_bytes(2)
    has = ConsumerProtocolAssignment(assigned_partitions=[MemberPartitions(topic="t", partitions=[0, 2])]).to_bytes()
    member = groups.DescribedGroupMember(member_id="m", client_id="c", client_host="h", member_metadata=said, member_assignment=has)
    joining = groups.DescribedGroupMember(member_id="n")
    group = groups.DescribedGroup(
        group_id="g", group_state="Stable", protocol_type="consumer", protocol_data="range", members=[member, joining]
    )
    cluster.on("DescribeGroups", Reply(lambda _: groups.DescribeGroupsResponse(groups=[group])), times=None)
    (told,) = admin.describe_consumer_groups(["g"])
    one, other = told.members
    assert (one.member_metadata.version, one.member_metadata.subscription, one.member_metadata.user_data) == (2, ["t", "u"], b"\xff")
    assert one.member_assignment.assignment == [("t", [0, 2])]
    assert one.member_assignment.partitions() == [TopicPartition("t", 0), TopicPartition("t", 2)]
    assert (one.member_metadata["topics"], one.member_metadata["generation_id"]) == (["t", "u"], 4)
    assert one.member_assignment["assigned_partitions"] == [{"topic": "t", "partitions": [0, 2]}]
    assert (one.member_metadata.topics, one.member_assignment.assigned_partitions[0]["topic"]) == (["t", "u"], "t")
    assert not hasattr(one.member_metadata, "rack_id")  # it is of version 3
    assert repr(one.member_metadata) == "ConsumerProtocolMemberMetadata(version=2, subscription=['t', 'u'], user_data=b'\\xff')"
    assert (other.member_metadata, other.member_assignment) == (b"", b"")
    (shown, _) = admin.describe_groups(["g"])["g"]["members"]
    assert (shown["member_metadata"], type(shown["member_metadata"])) == (one.member_metadata, dict)


# -- rows of both versions ---------------------------------------------------------------------------------------------
def test_topics_answer_to_the_names_of_both_versions(admin: KafkaAdminClient) -> None:
    made = admin.create_topics([NewTopic("made", 2, 1)])
    assert made["topics"][0]["name"] == "made"
    assert [(topic, code) for topic, code, _ in made.topic_errors] == [("made", 0)]
    (topic,) = admin.describe_topics(["made"])
    assert (topic["name"], topic["topic"], topic.get("topic"), "topic" in topic) == ("made", "made", "made", True)
    partition = topic["partitions"][1]
    assert (partition["partition"], partition["leader"], partition["replicas"], partition.get("isr")) == (1, 1, [1], [1])
    assert (topic.copy()["topic"], partition.copy().get("leader"), topic.copy() == topic) == ("made", 1, True)
    assert (partition.get("nothing", 5), "nothing" in partition, "topic" in dict(topic)) == (5, False, False)
    with pytest.raises(KeyError, match="nothing"):
        partition["nothing"]
    assert [broker["node_id"] for broker in admin.describe_cluster()["brokers"]] == [1]
    assert admin.delete_topics(["made"]).topic_error_codes == [("made", 0)]


def test_values_answer_to_the_names_of_both_versions(make: Make, make_cluster: Callable[..., MockCluster]) -> None:
    cluster = make_cluster(limits={"DescribeConfigs": (0, 4)})
    cluster.on("DescribeConfigs", Reply(lambda _: _described(retention_ms="5", cleanup_policy="delete")), times=None)
    told = make(cluster).describe_configs([ConfigResource(ConfigResourceType.TOPIC, "t")])
    assert told["topic"]["t"]["retention.ms"]["value"] == "5"
    for response in (*told, told[0]):
        ((error, message, kind, name, values),) = response.resources
        assert (error, message, kind, name) == (0, None, ConfigResourceType.TOPIC, "t")
        assert {value[0]: value[1] for value in values} == {"retention.ms": "5", "cleanup.policy": "delete"}
    with pytest.raises(KeyError):
        told["broker"]


def test_rows_of_more_partitions_and_of_elections_are_tuples_of_both_names() -> None:
    grown = CreatePartitionsResponse(0, [TopicPartitionsResult("t", 37, "no")])
    ((name, code, message),) = grown.topic_errors
    assert (name, code, message) == ("t", 37, "no")
    assert (grown.results[0].error_code, grown.results[0][1]) == (37, 37)
    elected = ElectLeadersResponse(0, 0, [TopicElections("t", [PartitionElection(3, 84, "not needed")])])
    ((topic, rows),) = elected.replication_election_results
    assert (topic, rows[0][:2], rows[0].partition_id, elected.replica_election_results[0].topic) == ("t", (3, 84), 3, "t")


# -- configurations of brokers that know no increments -----------------------------------------------------------------
def _described(**values: str) -> configs.DescribeConfigsResponse:
    told = [configs.DescribeConfigsResourceResult(name=n.replace("_", "."), value=v, config_source=1) for n, v in values.items()]
    result = configs.DescribeConfigsResult(resource_type=2, resource_name="t", configs=told)
    return configs.DescribeConfigsResponse(results=[result])


def test_before_2_3_all_that_is_set_goes_along_with_a_change(make: Make, make_cluster: Callable[..., MockCluster]) -> None:
    old = make_cluster(limits={"DescribeConfigs": (0, 2), "AlterConfigs": (0, 1)})
    admin = make(old)
    old.on("DescribeConfigs", Reply(lambda _: _described(retention_ms="5", cleanup_policy="delete")), times=2)
    answer = configs.AlterConfigsResourceResponse(error_code=0, error_message=None, resource_type=2, resource_name="t")
    old.on("AlterConfigs", Reply(lambda _: configs.AlterConfigsResponse(responses=[answer])))
    told = admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, "t", {"retention.ms": "6"})])
    assert told == {"topic": {"t": "OK"}}
    (request,) = old.requests("AlterConfigs")
    assert {c.name: c.value for c in request.message.resources[0].configs} == {"retention.ms": "6", "cleanup.policy": "delete"}
    old.on("DescribeConfigs", Reply(lambda _: _described(cleanup_policy="delete")))
    with pytest.raises(IllegalArgumentError, match=r"2\.3"):
        admin.alter_configs([ConfigResource("topic", "t", {"cleanup.policy": (AlterConfigOp.APPEND, "compact")})])
