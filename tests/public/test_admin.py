"""client.admin() on the in-process broker: whom it asks, what it tries again and for how long, and what becomes of errors."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gkafka.admin import Acl, AclFilter, Admin, ConfigResource, GroupOffset, NewTopic, ScramMechanism
from gkafka.admin.users import salted_password
from gkafka.config import Secret
from gkafka.exceptions import (
    AdminError,
    ClientClosedError,
    ClusterAuthorizationFailed,
    ConfigurationError,
    GroupIdNotFound,
    InvalidPartitions,
    InvalidTxnState,
    KafkaException,
    KafkaTimeoutError,
    NoBrokersAvailableError,
    NonEmptyGroup,
    SecurityDisabled,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from gkafka.testing import Close, Edit, Error, MockCluster, Reply
from gkafka.wire import access, clusteradmin, configs, groups, placement, quotas, topicadmin, txnadmin
from gkafka.wire.apis import Request
from tests.kit.clock import now
from tests.public.aids import Runner, fill
from tests.public.conftest import Connect

Make = Callable[..., MockCluster]


@pytest.fixture
def admin_of(connect: Connect) -> Callable[[MockCluster], Admin]:
    return lambda cluster: connect(cluster).admin()


@pytest.fixture
def admin(admin_of: Callable[[MockCluster], Admin], cluster: MockCluster) -> Admin:
    return admin_of(cluster)


def messages(cluster: MockCluster, api: str) -> list[Any]:
    return [request.message for request in cluster.requests(api)]


def test_a_switch_is_a_word_of_kafkas_and_a_partition_is_a_pair(admin: Admin, cluster: MockCluster) -> None:
    admin.create_topics([NewTopic("switched", 1, configs={"unclean.leader.election.enable": True, "preallocate": False})])
    (created,) = messages(cluster, "CreateTopics")[-1].topics
    assert {c.name: c.value for c in created.configs} == {"unclean.leader.election.enable": "true", "preallocate": "false"}
    with pytest.raises(ConfigurationError, match=r"partition='orders': must be \(topic, partition\)"):
        admin.elect_leaders(["orders"])  # type: ignore[list-item]


# -- errors ------------------------------------------------------------------------------------------------------------
def test_what_fails_is_told_when_all_else_is_done(admin: Admin, cluster: MockCluster) -> None:
    with pytest.raises(AdminError, match=r"creating topics: 2 of 3 failed: t: .*already exists.*; bad: ") as caught:
        admin.create_topics(["t", NewTopic("new", 2), NewTopic("bad", 3, configs={}, replication_factor=9)])
    assert isinstance(caught.value.errors["t"], TopicAlreadyExists)
    assert list(caught.value.errors) == ["t", "bad"]
    assert caught.value.results["new"].name == "new"
    assert "new" in admin.list_topics()
    assert caught.value.__cause__ is caught.value.errors["t"]


def test_one_thing_that_fails_is_told_by_the_same_rule(admin: Admin) -> None:
    with pytest.raises(AdminError) as caught:
        admin.create_topics(["t"])
    assert isinstance(caught.value.errors["t"], TopicAlreadyExists)


def test_only_what_may_heal_is_tried_again(admin: Admin, cluster: MockCluster) -> None:
    def first_refusal(request: Request, answer: Any) -> Any:
        answer.topics[0].error_code = 41  # NOT_CONTROLLER
        return answer

    cluster.on("CreateTopics", Edit(first_refusal))
    cluster.on("CreateTopics", Edit(lambda request, answer: _with_code(answer, 0)))
    admin.create_topics(["a", "b"])
    assert [[t.name for t in m.topics] for m in messages(cluster, "CreateTopics")] == [["a", "b"], ["a"]]


def _with_code(answer: Any, code: int) -> Any:
    for topic in answer.topics:
        topic.error_code = code
    return answer


def test_a_new_topic_is_waited_for_until_every_broker_tells_of_it(make_cluster: Make, admin_of: Callable[[MockCluster], Admin]) -> None:
    cluster = make_cluster(3)

    def asks_for_new(request: Request) -> bool:
        message: Any = request.message
        return [t.name for t in message.topics or ()] == ["new"]

    cluster.on("Metadata", Edit(lambda request, answer: _with_code(answer, 3)), broker=2, times=2, when=asks_for_new)
    cluster.on("Metadata", Error(29), broker=3, times=None, when=asks_for_new)
    with pytest.raises(AdminError):
        admin_of(cluster).create_topics(["t", "new"])
    told = [r.broker for r in cluster.requests("Metadata") if [t.name for t in r.message.topics or ()] == ["new"]]
    assert [told.count(broker) for broker in (1, 2, 3)] == [1, 3, 1], "who may not know of it is not waited for"


def test_an_unknown_topic_is_told_at_once_and_not_made(admin: Admin, cluster: MockCluster) -> None:
    began = now()
    for call in (
        lambda: admin.describe_topics(["nope"]),
        lambda: admin.delete_topics(["nope"]),
        lambda: admin.list_offsets({("nope", 0): -1}),
    ):
        with pytest.raises(AdminError) as caught:
            call()
        (error,) = caught.value.errors.values()
        assert isinstance(error, UnknownTopicOrPartition)
    with pytest.raises(UnknownTopicOrPartition):
        admin.reset_group_offsets("g", ["nope"], to="latest")
    assert now() - began < 30
    assert "nope" not in admin.list_topics()
    assert not any(m.allow_auto_topic_creation for m in messages(cluster, "Metadata") if m.topics and m.topics[0].name == "nope")


def test_a_call_ends_with_its_timeout(admin: Admin, cluster: MockCluster) -> None:
    admin.list_topics()
    cluster.on("DeleteTopics", Error(41), times=None)
    began = now()
    with pytest.raises(AdminError, match=r"not done in time, last: .*error 41") as caught:
        admin.delete_topics(["t"], timeout=2)
    assert 1.9 < now() - began < 30
    assert isinstance(caught.value.errors["t"], KafkaTimeoutError)
    assert cluster.count("DeleteTopics") > 1


def test_a_lost_connection_is_no_end(admin: Admin, cluster: MockCluster) -> None:
    cluster.on("DeleteTopics", Close(before=True))
    admin.delete_topics(["t"])
    assert cluster.count("DeleteTopics") == 2
    assert "t" not in admin.list_topics()


def test_a_cluster_that_is_not_there_is_told_as_itself(connect: Connect) -> None:
    with pytest.raises((NoBrokersAvailableError, KafkaTimeoutError)):
        connect("127.0.0.1:1").admin().describe_topics(["t"], timeout=2)


def test_a_closed_client_administrates_nothing(connect: Connect, cluster: MockCluster) -> None:
    client = connect(cluster)
    admin = client.admin()
    client.close()
    with pytest.raises(ClientClosedError):
        admin.list_topics()
    with pytest.raises(ClientClosedError):
        client.admin()


def test_what_concerns_the_whole_is_raised_as_itself(make_cluster: Make, admin_of: Callable[[MockCluster], Admin]) -> None:
    cluster = make_cluster(limits={"DescribeAcls": (1, 3)})
    cluster.on("DescribeAcls", Reply(lambda _: access.DescribeAclsResponse(error_code=54, error_message="No Authorizer is configured")))
    with pytest.raises(SecurityDisabled, match="No Authorizer"):
        admin_of(cluster).list_acls()


# -- whom it asks ------------------------------------------------------------------------------------------------------
def _delete_records(low: int = 0) -> Callable[[Request], topicadmin.DeleteRecordsResponse]:
    def answer(request: Request) -> topicadmin.DeleteRecordsResponse:
        message: Any = request.message
        return topicadmin.DeleteRecordsResponse(
            topics=[
                topicadmin.DeleteRecordsTopicResult(
                    name=topic.name,
                    partitions=[
                        topicadmin.DeleteRecordsPartitionResult(partition_index=p.partition_index, low_watermark=p.offset)
                        for p in topic.partitions
                    ],
                )
                for topic in message.topics
            ]
        )

    return answer


def test_each_leader_is_asked_for_its_own_and_a_moved_one_again(make_cluster: Make, admin_of: Callable[[MockCluster], Admin]) -> None:
    cluster = make_cluster(3, {"t": 3}, limits={"DeleteRecords": (0, 2)})
    leaders = {p: cluster.leader("t", p) for p in range(3)}
    assert len(set(leaders.values())) == 3

    def not_leader(request: Request) -> topicadmin.DeleteRecordsResponse:
        response = _delete_records()(request)
        response.topics[0].partitions[0].error_code = 6
        return response

    cluster.on("DeleteRecords", Reply(not_leader), broker=leaders[1])
    cluster.on("DeleteRecords", Reply(_delete_records()), times=None)
    assert admin_of(cluster).delete_records({("t", p): p + 5 for p in range(3)}) == {("t", 0): 5, ("t", 1): 6, ("t", 2): 7}
    asked = sorted((r.broker, p.partition_index) for r in cluster.requests("DeleteRecords") for t in r.message.topics for p in t.partitions)
    assert asked == sorted([*((leader, p) for p, leader in leaders.items()), (leaders[1], 1)])


def test_a_brokers_configuration_is_asked_from_that_broker(make_cluster: Make, admin_of: Callable[[MockCluster], Admin]) -> None:
    cluster = make_cluster(3, limits={"DescribeConfigs": (1, 4)})

    def answer(request: Request) -> configs.DescribeConfigsResponse:
        message: Any = request.message
        entry = configs.DescribeConfigsResourceResult(name="a.list", value="x,y", config_source=5, config_type=7)
        return configs.DescribeConfigsResponse(
            results=[
                configs.DescribeConfigsResult(resource_type=r.resource_type, resource_name=r.resource_name, configs=[entry])
                for r in message.resources
            ]
        )

    cluster.on("DescribeConfigs", Reply(answer), times=None)
    told = admin_of(cluster).describe_configs([("broker", 3), ("topic", "t"), ("broker", "2")])
    assert [e["a.list"].type for e in told.values()] == ["list"] * 3
    by_name = {r.resource_name: request.broker for request in cluster.requests("DescribeConfigs") for r in request.message.resources}
    assert (by_name["3"], by_name["2"]) == (3, 2)
    with pytest.raises(AdminError, match="broker 9 is not in the cluster, which has 1, 2, 3") as caught:
        admin_of(cluster).describe_configs([("broker", 9), ("broker", 1)])
    assert list(caught.value.results) == [ConfigResource(*next(iter(told)))._replace(name="1")]


def _configs(entries: int, synonyms: int = 0) -> Callable[[Request], configs.DescribeConfigsResponse]:
    def answer(request: Request) -> configs.DescribeConfigsResponse:
        message: Any = request.message
        same = [configs.DescribeConfigsSynonym(name=f"log.{n}", value="1", source=5) for n in range(synonyms)]
        told = [configs.DescribeConfigsResourceResult(name=f"c{n}", value="1", config_source=5, synonyms=same) for n in range(entries)]
        return configs.DescribeConfigsResponse(
            results=[
                configs.DescribeConfigsResult(resource_type=r.resource_type, resource_name=r.resource_name, configs=told)
                for r in message.resources
            ]
        )

    return answer


@pytest.mark.parametrize(("values", "synonyms"), [(5, 0), pytest.param(40, 2, marks=pytest.mark.thorough)])
def test_configurations_of_many_topics_are_asked_for_in_parts(make_cluster: Make, connect: Connect, values: int, synonyms: int) -> None:
    """1,000 topics of 40 values with two synonyms each are 120,000 entries, and an answer of 20 MiB at most has 100,000."""
    cluster = make_cluster(limits={"DescribeConfigs": (1, 4)})
    cluster.on("DescribeConfigs", Reply(_configs(values, synonyms)), times=None)
    admin = connect(cluster, max_response_bytes=20 << 20).admin()
    names = [f"t{n}" for n in range(1000)]
    told = admin.describe_configs([("topic", name) for name in names], synonyms=True)
    assert [r.name for r in told] == names
    assert {len(entries) for entries in told.values()} == {values}
    assert [[r.resource_name for r in m.resources] for m in messages(cluster, "DescribeConfigs")] == [
        names[at : at + 250] for at in range(0, 1000, 250)
    ]


def test_a_part_that_is_lost_is_asked_for_again_alone_with_those_after_it(
    make_cluster: Make, admin_of: Callable[[MockCluster], Admin]
) -> None:
    cluster = make_cluster(limits={"DescribeConfigs": (1, 4)})
    wanted = [("topic", f"t{n}") for n in range(600)]

    def second(request: Request) -> bool:
        message: Any = request.message
        return bool(message.resources[0].resource_name == "t250")

    cluster.on("DescribeConfigs", Close(before=True), when=second)
    cluster.on("DescribeConfigs", Reply(_configs(1)), times=None)
    assert len(admin_of(cluster).describe_configs(wanted)) == 600
    assert [m.resources[0].resource_name for m in messages(cluster, "DescribeConfigs")] == ["t0", "t250", "t250", "t500"]


def test_a_part_that_is_refused_keeps_no_other_from_being_asked(make_cluster: Make, admin_of: Callable[[MockCluster], Admin]) -> None:
    def leaves_out(request: Request) -> configs.DescribeConfigsResponse:
        answer = _configs(1)(request)
        for result in answer.results:
            result.error_code = 29
        return answer

    cluster = make_cluster(limits={"DescribeConfigs": (1, 4)})
    cluster.on("DescribeConfigs", Reply(leaves_out))
    cluster.on("DescribeConfigs", Reply(_configs(1)), times=None)
    with pytest.raises(AdminError, match="250 of 600 failed") as caught:
        admin_of(cluster).describe_configs([("topic", f"t{n}") for n in range(600)])
    assert len(caught.value.results) == 350


def test_metadata_of_many_topics_are_asked_for_in_parts(make_cluster: Make, admin_of: Callable[[MockCluster], Admin]) -> None:
    names = [f"t{n}" for n in range(600)]
    cluster = make_cluster(topics=dict.fromkeys(names, 2), limits={"DescribeTopicPartitions": (-1, -1)})
    described = admin_of(cluster).describe_topics(names)
    assert sorted(described) == sorted(names)
    assert {len(one.partitions) for one in described.values()} == {2}
    assert [len(m.topics) for m in messages(cluster, "Metadata") if m.topics] == [250, 250, 100]


def test_log_directories_are_asked_for_in_parts_and_put_together(make_cluster: Make, admin_of: Callable[[MockCluster], Admin]) -> None:
    def answer(request: Request) -> placement.DescribeLogDirsResponse:
        message: Any = request.message
        return placement.DescribeLogDirsResponse(
            results=[
                placement.DescribeLogDirsResult(
                    log_dir="/d",
                    topics=[
                        placement.DescribeLogDirsTopic(
                            name=t.topic,
                            partitions=[placement.DescribeLogDirsPartition(partition_index=p, partition_size=7) for p in t.partitions],
                        )
                        for t in message.topics
                    ],
                )
            ]
        )

    names = [f"t{n}" for n in range(600)]
    cluster = make_cluster(topics=dict.fromkeys(names, 1), limits={"DescribeLogDirs": (0, 4)})
    cluster.on("DescribeLogDirs", Reply(answer), times=None)
    told = admin_of(cluster).describe_log_dirs(topics=names)
    assert {tp.topic for tp in told[1]["/d"].replicas} == set(names)
    assert [len(m.topics) for m in messages(cluster, "DescribeLogDirs")] == [250, 250, 100]


def test_every_broker_is_asked_for_groups(make_cluster: Make, admin_of: Callable[[MockCluster], Admin]) -> None:
    cluster = make_cluster(3)
    cluster.on("ListGroups", Reply(lambda _: groups.ListGroupsResponse(error_code=31)), broker=2, times=None)
    listed = groups.ListGroupsResponse(groups=[groups.ListedGroup(group_id="g", protocol_type="consumer", group_state="Empty")])
    cluster.on("ListGroups", Reply(lambda _: listed), broker=3)
    with pytest.raises(AdminError) as caught:
        admin_of(cluster).list_groups()
    assert list(caught.value.errors) == [2]
    assert {name: listing.broker for name, listing in caught.value.results.items()} == {"g": 3}
    cluster.clear_script()
    assert admin_of(cluster).list_groups() == {}


@pytest.mark.parametrize("newest", [3, 6])
def test_coordinators_of_many_groups_are_found_on_old_brokers_too(
    newest: int, make_cluster: Make, admin_of: Callable[[MockCluster], Admin]
) -> None:
    cluster = make_cluster(3, limits={"FindCoordinator": (0, newest)})
    admin = admin_of(cluster)
    for name in ("g1", "g2"):
        admin.alter_group_offsets(name, {("t", 0): 0})
    before = cluster.count("FindCoordinator")
    with pytest.raises(AdminError) as caught:
        admin.describe_groups(["g1", "g2", "nobody"])
    assert isinstance(caught.value.errors["nobody"], GroupIdNotFound)
    assert cluster.count("FindCoordinator") - before == (1 if newest >= 4 else 3)


# -- descriptions ------------------------------------------------------------------------------------------------------
def test_a_description_is_put_together_from_its_pages(make_cluster: Make, admin_of: Callable[[MockCluster], Admin]) -> None:
    cluster = make_cluster(limits={"DescribeTopicPartitions": (0, 0)})
    part, whole = topicadmin.DescribeTopicPartitionsResponsePartition, topicadmin.DescribeTopicPartitionsResponseTopic

    def page(name: str, *numbers: int) -> Any:
        partitions = [part(partition_index=n, leader_id=1, replica_nodes=[1], isr_nodes=[1], eligible_leader_replicas=[]) for n in numbers]
        return whole(name=name, partitions=partitions)

    after = topicadmin.Cursor(topic_name="b", partition_index=1)
    pages = iter(
        [
            topicadmin.DescribeTopicPartitionsResponse(topics=[page("a", 0), page("b", 0)], next_cursor=after),
            topicadmin.DescribeTopicPartitionsResponse(topics=[page("b", 1, 2), whole(name="c", error_code=3)]),
        ]
    )
    cluster.on("DescribeTopicPartitions", Reply(lambda _: next(pages)), times=2)
    with pytest.raises(AdminError) as caught:
        admin_of(cluster).describe_topics(["c", "b", "a"])
    assert {name: list(t.partitions) for name, t in caught.value.results.items()} == {"b": [0, 1, 2], "a": [0]}
    assert caught.value.results["a"].partitions[0].eligible_leaders == ()
    assert list(caught.value.errors) == ["c"]
    asked = messages(cluster, "DescribeTopicPartitions")
    assert [[t.name for t in m.topics] for m in asked] == [["a", "b", "c"], ["b", "c"]]
    assert asked[1].cursor == after


def test_a_leader_that_missed_a_followers_answer_is_asked_once_more(make_cluster: Make, admin_of: Callable[[MockCluster], Admin]) -> None:
    """It says so only when all of the time that it was given is over."""
    cluster = make_cluster(1, {"t": 1}, limits={"DeleteRecords": (0, 2)})

    def too_late(request: Request) -> topicadmin.DeleteRecordsResponse:
        response = _delete_records()(request)
        response.topics[0].partitions[0].error_code = 7
        return response

    cluster.on("DeleteRecords", Reply(too_late))
    cluster.on("DeleteRecords", Reply(_delete_records()), times=None)
    assert admin_of(cluster).delete_records({("t", 0): 5}, timeout=60) == {("t", 0): 5}
    first, second = (request.message.timeout_ms for request in cluster.requests("DeleteRecords"))
    assert 0 < second <= first <= 15_000, "half of what such a request is given (30 s at most)"


def test_an_old_broker_describes_topics_and_cluster_by_its_metadata(make_cluster: Make, admin_of: Callable[[MockCluster], Admin]) -> None:
    admin = admin_of(make_cluster(2, {"t": 2}, versions="1.1"))
    told = admin.describe_topics(["t"])["t"]
    assert list(told.partitions) == [0, 1]
    assert told.partitions[0].eligible_leaders is None
    assert [b.id for b in admin.describe_cluster().brokers] == [1, 2]
    with pytest.raises(UnsupportedVersion):
        admin.describe_cluster(operations=True)
    with pytest.raises(UnsupportedVersion):
        admin.list_acls()
    with pytest.raises(UnsupportedVersion, match="DeleteRecords"):
        admin.delete_records({("t", 0): 1, ("t", 1): 1})
    with pytest.raises(UnsupportedVersion, match="states_filter"):
        admin.list_groups(states=["Empty"])


def test_a_group_that_never_was_is_told_alike_by_old_and_new_brokers(make_cluster: Make, admin_of: Callable[[MockCluster], Admin]) -> None:
    """Before 4.0 it is described as dead, by no error (KIP-1043)."""
    for limits in ({"DescribeGroups": (0, 5), "ConsumerGroupDescribe": None}, {}):
        with pytest.raises(AdminError) as caught:
            admin_of(make_cluster(limits=limits)).describe_groups(["nobody"])
        assert isinstance(caught.value.errors["nobody"], GroupIdNotFound)


def test_a_state_that_brokers_do_not_know_is_told_as_bad_input(make_cluster: Make, admin_of: Callable[[MockCluster], Admin]) -> None:
    cluster = make_cluster(2, limits={"ListTransactions": (0, 2)})
    cluster.on("ListTransactions", Reply(lambda _: txnadmin.ListTransactionsResponse(unknown_state_filters=["Sleeping"])), times=None)
    with pytest.raises(ConfigurationError, match="states: the brokers know none that are called Sleeping"):
        admin_of(cluster).list_transactions(states=["Sleeping"])


@pytest.mark.parametrize("which", [{"start_offset": 40}, {"producer_id": 7}], ids=str)
def test_the_transaction_that_hangs_is_ended_at_the_leader(
    which: dict[str, int], make_cluster: Make, admin_of: Callable[[MockCluster], Admin]
) -> None:
    cluster = make_cluster(3, {"t": 3}, limits={"DescribeProducers": (0, 0), "WriteTxnMarkers": (1, 2)})
    state = txnadmin.ProducerState
    writers = [
        state(producer_id=6, producer_epoch=1, current_txn_start_offset=30, coordinator_epoch=2),
        state(producer_id=7, producer_epoch=3, current_txn_start_offset=40, coordinator_epoch=-1),
        state(producer_id=8, producer_epoch=5, current_txn_start_offset=-1, coordinator_epoch=2),
    ]
    told = txnadmin.PartitionResponse(partition_index=2, active_producers=writers)
    answer = txnadmin.DescribeProducersResponse(topics=[txnadmin.TopicResponse(name="t", partitions=[told])])
    cluster.on("DescribeProducers", Reply(lambda _: answer), times=None)
    ended = txnadmin.WritableTxnMarkerPartitionResult(partition_index=2)
    in_topic = txnadmin.WritableTxnMarkerTopicResult(name="t", partitions=[ended])
    done = txnadmin.WriteTxnMarkersResponse(markers=[txnadmin.WritableTxnMarkerResult(producer_id=7, topics=[in_topic])])
    cluster.on("WriteTxnMarkers", Reply(lambda _: done), times=None)
    admin = admin_of(cluster)
    assert admin.abort_transaction(("t", 2), **which).producer_id == 7
    (request,) = cluster.requests("WriteTxnMarkers")
    assert request.broker == cluster.leader("t", 2)
    (marker,) = request.message.markers
    assert (marker.producer_id, marker.producer_epoch, marker.transaction_result, marker.coordinator_epoch) == (7, 3, False, 0)
    for other in ({"start_offset": 41}, {"producer_id": 8}):
        with pytest.raises(InvalidTxnState, match="t-2: no transaction"):
            admin.abort_transaction(("t", 2), **other)
    ended.error_code = 31
    with pytest.raises(ClusterAuthorizationFailed):
        admin.abort_transaction(("t", 2), **which)
    assert cluster.count("WriteTxnMarkers") == 2


def test_an_election_that_was_not_needed_is_no_error(make_cluster: Make, admin_of: Callable[[MockCluster], Admin]) -> None:
    cluster = make_cluster(1, {"t": 3}, limits={"ElectLeaders": (0, 2)})
    results = [placement.PartitionResult(partition_id=p, error_code=code) for p, code in ((0, 0), (1, 84), (2, 80))]
    answer = placement.ElectLeadersResponse(replica_election_results=[placement.ReplicaElectionResult(topic="t", partition_result=results)])
    cluster.on("ElectLeaders", Reply(lambda _: answer), times=None)
    with pytest.raises(AdminError) as caught:
        admin_of(cluster).elect_leaders([("t", 0), ("t", 1), ("t", 2)])
    assert caught.value.results == {("t", 0): True, ("t", 1): False}
    assert list(caught.value.errors) == [("t", 2)]
    assert cluster.count("ElectLeaders") == 1


def test_quotas_and_features_are_told_by_the_broker_alone(make_cluster: Make, admin_of: Callable[[MockCluster], Admin]) -> None:
    cluster = make_cluster(limits={"AlterClientQuotas": (0, 1), "UpdateFeatures": (0, 2), "DescribeQuorum": (0, 2)})
    admin = admin_of(cluster)
    entity = [quotas.EntityData(entity_type="user", entity_name="u"), quotas.EntityData(entity_type="client-id", entity_name=None)]
    refused = quotas.AlterClientQuotasResponse(entries=[quotas.AlteredQuota(entity=entity, error_code=42, error_message="no such quota")])
    cluster.on("AlterClientQuotas", Reply(lambda _: refused))
    with pytest.raises(AdminError, match=r"1 of 1 failed: client-id None user u: .*no such quota"):
        admin.alter_quotas([({"user": "u", "client-id": None}, {"odd_rate": 1})])
    cluster.on("UpdateFeatures", Reply(lambda _: clusteradmin.UpdateFeaturesResponse(error_code=95, error_message="no level 9")))
    with pytest.raises(KafkaException, match="no level 9"):
        admin.update_features({"f": 9})
    cluster.on("DescribeQuorum", Reply(lambda _: clusteradmin.DescribeQuorumResponse()))
    with pytest.raises(KafkaException, match="tells of no quorum"):
        admin.describe_quorum()


# -- offsets of groups -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("versions", ["1.1", "2.8", "4.2"])
def test_offsets_are_planned_and_reset(versions: str, make_cluster: Make, connect: Connect) -> None:
    cluster = make_cluster(1, {"t": 2}, versions=versions)
    client = connect(cluster)
    fill(client, [b"x"] * 10)
    admin = client.admin()
    admin.alter_group_offsets("g", {("t", 0): GroupOffset(4, "note")})
    assert admin.list_group_offsets("g", [("t", 0), ("t", 1)]) == {("t", 0): GroupOffset(4, "note"), ("t", 1): GroupOffset(-1)}
    if versions != "1.1":  # asking for all came with OffsetFetch 2, as 1.1 has; the mock's group is the same
        assert list(admin.list_group_offsets("g")) == [("t", 0)]
    plan = admin.reset_group_offsets("g", ["t"], to="latest")
    assert {tp: (p.before, p.after) for tp, p in plan.items()} == {("t", 0): (4, 10), ("t", 1): (-1, 0)}
    assert cluster.committed("g")["t", 0].offset == 4
    admin.reset_group_offsets("g", partitions=[("t", 0)], shift_by=-1, dry_run=False)
    assert cluster.committed("g")["t", 0].offset == 3
    assert admin.reset_group_offsets("g", partitions=[("t", 0)], to=99)["t", 0].after == 10


def test_a_group_with_members_is_not_reset(connect: Connect, cluster: MockCluster) -> None:
    client = connect(cluster)
    consumer = client.get_consumer("t", "g", group_protocol="classic")
    try:
        cluster.wait_for(lambda: (consumer.consume_batch(timeout_ms=50) or True) and (found := cluster.group("g")) and found.members)
        with pytest.raises(NonEmptyGroup, match="group 'g' has 1 member: stop them first"):
            client.admin().reset_group_offsets("g", ["t"], to="earliest", dry_run=False)
        assert client.admin().reset_group_offsets("g", ["t"], to="earliest"), "a plan may be made"
    finally:
        consumer.stop()


# -- ACLs and users ----------------------------------------------------------------------------------------------------
def test_a_plan_to_delete_acls_deletes_none(make_cluster: Make, admin_of: Callable[[MockCluster], Admin]) -> None:
    cluster = make_cluster(limits={"DescribeAcls": (1, 3), "DeleteAcls": (1, 3)})
    one = access.AclDescription(principal="User:a", host="*", operation=99, permission_type=3)
    resource = access.DescribeAclsResource(resource_type=2, resource_name="t", pattern_type=3, acls=[one])
    cluster.on("DescribeAcls", Reply(lambda _: access.DescribeAclsResponse(resources=[resource])), times=None)
    (acl,) = admin_of(cluster).delete_acls([AclFilter(resource="t")])
    assert (acl.resource, acl.operation.name) == ("t", "UNKNOWN"), "what is newer than this client is no error"
    assert cluster.count("DeleteAcls") == 0


def test_a_salted_password_proves_what_rfc_7677_says() -> None:
    """The exchange of RFC 7677, section 3: user "user", password "pencil"."""
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = salted_password(Secret("pencil"), salt, 4096, ScramMechanism.SCRAM_SHA_256)
    said = (
        b"n=user,r=rOprNGfwEbeRWgbNEkqO,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,"
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    )
    key = hmac.digest(salted, b"Client Key", "sha256")
    proof = bytes(a ^ b for a, b in zip(key, hmac.digest(hashlib.sha256(key).digest(), said, "sha256"), strict=True))
    assert base64.b64encode(proof) == b"dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="


def test_a_password_is_sent_salted_and_shown_nowhere(
    make_cluster: Make, admin_of: Callable[[MockCluster], Admin], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    cluster = make_cluster(limits={"AlterUserScramCredentials": (0, 0)})
    results = [access.AlterUserScramCredentialsResult(user="u", error_code=93, error_message="no")]
    cluster.on("AlterUserScramCredentials", Reply(lambda _: access.AlterUserScramCredentialsResponse(results=results)))
    with pytest.raises(KafkaException) as caught:
        admin_of(cluster).set_user("u", "pencil-and-paper", iterations=5000)
    (request,) = messages(cluster, "AlterUserScramCredentials")
    (sent,) = request.upsertions
    wanted = hashlib.pbkdf2_hmac("sha512", b"pencil-and-paper", sent.salt, 5000)
    assert (sent.mechanism, sent.iterations, bytes(sent.salted_password)) == (2, 5000, wanted)
    ours = [f.f_locals for f, _ in traceback.walk_tb(caught.value.__traceback__) if "/gkafka/admin/" in f.f_code.co_filename]
    assert ours
    shown = f"{request!r} {caught.value} {caught.value!r} {caplog.text} {ours}"
    assert "pencil-and-paper" not in shown
    assert wanted.hex() not in shown
    assert repr(wanted) not in shown


# -- the page ----------------------------------------------------------------------------------------------------------
def test_the_page_of_administration_runs(make_cluster: Make, connect: Connect, run: Runner, capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "admin.md").read_text()
    whole, beside = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    cluster = make_cluster(3, {})
    admin = connect(cluster).admin()
    exec(whole.replace('"127.0.0.1:9092"', f"{cluster.bootstrap!r}, handler={run.name!r}"), {})
    assert capsys.readouterr().out.startswith("orders 0 -1 -> 0\norders 1 ")
    assert len(cluster.committed("billing")) == 12
    exec(beside, {"admin": admin})
    assert list(admin.list_topics()) == ["orders", "payments"]
    for call in re.findall(r"`(\w+)`", page.partition("| about |")[2].partition("Results are")[0]):
        assert callable(getattr(admin, call))


# -- bad input ---------------------------------------------------------------------------------------------------------
BAD: list[Callable[[Admin], object]] = [
    lambda a: a.create_topics([""]),
    lambda a: a.create_topics("t"),
    lambda a: a.create_topics([NewTopic("t", 0)]),
    lambda a: a.create_topics(["t", NewTopic("t", 3)]),
    lambda a: a.create_topics([NewTopic("t", -3)]),
    lambda a: a.create_topics([NewTopic("t", 1, replicas={0: [1]})]),
    lambda a: a.create_topics([NewTopic("t", replicas={1: [1]})]),
    lambda a: a.create_topics([NewTopic("t", replicas={0: [1, 1]})]),
    lambda a: a.delete_topics([""]),
    lambda a: a.delete_topics(["a/b"]),
    lambda a: a.describe_topics(5),  # type: ignore[arg-type]
    lambda a: a.create_partitions({"t": 0}),
    lambda a: a.create_partitions({"t": 2}, replicas={"u": [[1]]}),
    lambda a: a.delete_records({("t", 0): -2}),
    lambda a: a.delete_records({("t", -1): 0}),
    lambda a: a.delete_records({"t": 0}),  # type: ignore[dict-item]
    lambda a: a.describe_configs([("topics", "t")]),
    lambda a: a.describe_configs([("broker", "one")]),
    lambda a: a.describe_configs([("topic", "")]),
    lambda a: a.alter_configs({("topic", "t"): {"": "x"}}),
    lambda a: a.alter_configs({("topic", "t"): {"x": []}}),
    lambda a: a.alter_quotas([({}, {"x": 1})]),
    lambda a: a.alter_quotas([({"who": "u"}, {"x": 1})]),
    lambda a: a.alter_quotas([({"user": "u"}, {"x": -1})]),
    lambda a: a.describe_groups([""]),
    lambda a: a.delete_groups("g"),
    lambda a: a.list_group_offsets(""),
    lambda a: a.alter_group_offsets("g", {("t", 0): -1}),
    lambda a: a.reset_group_offsets("g", ["t"]),
    lambda a: a.reset_group_offsets("g", ["t"], to="latest", shift_by=1),
    lambda a: a.reset_group_offsets("g", ["t"], to="newest"),
    lambda a: a.reset_group_offsets("g", ["t"], to=-1),
    lambda a: a.reset_group_offsets("g", ["t"], to="latest", dry_run="no"),  # type: ignore[arg-type]
    lambda a: a.elect_leaders([("t",)]),  # type: ignore[list-item]
    lambda a: a.alter_reassignments({("t", 0): []}),
    lambda a: a.alter_replica_log_dirs({("t", 0): "/x"}),  # type: ignore[dict-item]
    lambda a: a.update_features({"f": -1}),
    lambda a: a.update_features({"f": 1}, downgrade="maybe"),
    lambda a: a.create_acls([Acl("topic", "t", "alice", "read")]),  # type: ignore[arg-type]
    lambda a: a.create_acls([Acl("topic", "t", "User:alice", "any")]),  # type: ignore[arg-type]
    lambda a: a.create_acls([Acl("cluster", "mine", "User:alice", "alter")]),  # type: ignore[arg-type]
    lambda a: a.create_acls([Acl("topic", "t", "User:alice", "reed")]),  # type: ignore[arg-type]
    lambda a: a.set_user("", "x"),
    lambda a: a.set_user("u", ""),
    lambda a: a.set_user("u", b"x"),  # type: ignore[arg-type]
    lambda a: a.set_user("u", "x", "SCRAM-SHA-1"),
    lambda a: a.set_user("u", "x", iterations=100),
    lambda a: a.describe_transactions([""]),
    lambda a: a.list_transactions(running_s=-1),
    lambda a: a.abort_transaction(("t", 0)),
    lambda a: a.abort_transaction(("t", 0), start_offset=1, producer_id=1),
    lambda a: a.list_topics(timeout=-1),
    lambda a: a.list_offsets({("t", 0): -1}, isolation=2),
]


@pytest.fixture(scope="module")
def untouched() -> Iterator[MockCluster]:
    with MockCluster() as cluster:
        yield cluster


@pytest.mark.parametrize("call", BAD, ids=range(len(BAD)))
def test_bad_input_is_refused_before_anything_is_sent(call: Callable[[Admin], object], connect: Connect, untouched: MockCluster) -> None:
    with pytest.raises(ConfigurationError, match=r"must|give|is for filters|name"):
        call(connect(untouched).admin())
    assert untouched.requests() == []


def test_what_a_broker_refuses_has_the_brokers_class(admin: Admin) -> None:
    with pytest.raises(AdminError) as caught:
        admin.create_topics([NewTopic("x", 1, 7)])
    assert isinstance(caught.value.errors["x"], KafkaException)
    assert not isinstance(caught.value.errors["x"], (ConfigurationError, InvalidPartitions))


# -- the room ------------------------------------------------------------------------------------------------------------
def test_every_name_of_the_room_is_there_when_it_is_asked_for() -> None:
    import gkafka.admin

    assert {name for name in gkafka.admin.__all__ if getattr(gkafka.admin, name, None) is None} == set()
    assert set(gkafka.admin.__all__) <= set(dir(gkafka.admin))
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = gkafka.admin.Nothing
