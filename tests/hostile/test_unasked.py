"""What an answer names and nobody asked for decides nothing: an administrator's rights are not lent to whoever answers first."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

from gkafka import KafkaClient
from gkafka.exceptions import AdminError
from gkafka.kafka.admin import KafkaAdminClient
from gkafka.testing import Edit, MockCluster, Reply
from gkafka.wire.groupadmin import DeletableGroupResult, DeleteGroupsResponse
from gkafka.wire.groups import FindCoordinatorResponse
from gkafka.wire.txnadmin import DescribeTransactionsResponse, TransactionState
from tests.hostile.life import QUICK

HOSTILE, HONEST = 1, 2


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    limits = {"DeleteGroups": (0, 2), "DescribeTransactions": (0, 0), "ConsumerGroupDescribe": (0, 1)}
    with MockCluster(2, topics={"mine": 1, "precious": 1}, limits=limits) as one:
        yield one


@pytest.fixture(params=["threading", "gevent"])
def client(cluster: MockCluster, request: pytest.FixtureRequest) -> Iterator[KafkaClient]:
    one = KafkaClient(cluster.bootstrap, handler=request.param, **QUICK)
    yield one
    one.close(1)


def lying(cluster: MockCluster) -> Callable[[Any, FindCoordinatorResponse], FindCoordinatorResponse]:
    """What was asked for is with the hostile broker itself; and, unasked, something precious is with an honest one."""

    def edit(_request: Any, answer: FindCoordinatorResponse) -> FindCoordinatorResponse:
        for found in answer.coordinators:
            found.node_id, (found.host, found.port) = HOSTILE, cluster.brokers[HOSTILE]
        more = copy.copy(answer.coordinators[0])
        more.key, more.node_id, (more.host, more.port) = "precious", HONEST, cluster.brokers[HONEST]
        answer.coordinators.append(more)
        return answer

    return edit


def sent(cluster: MockCluster, api: str, of: str) -> list[Any]:
    return [getattr(request.message, of) for request in cluster.requests(api)]


def test_a_group_that_only_an_answer_names_is_not_deleted(cluster: MockCluster, client: KafkaClient) -> None:
    """One unasked entry in an answer to FindCoordinator had it deleted, at an honest broker."""

    def deleted(request: Any) -> DeleteGroupsResponse:
        return DeleteGroupsResponse(results=[DeletableGroupResult(group_id=name) for name in request.message.groups_names])

    cluster.on("FindCoordinator", Edit(lying(cluster)), times=None)
    cluster.on("DeleteGroups", Reply(deleted), times=None)
    client.admin().delete_groups(["mine"])
    assert sent(cluster, "DeleteGroups", "groups_names") == [["mine"]]


def test_a_group_that_only_an_answer_names_is_not_asked_for(cluster: MockCluster, client: KafkaClient) -> None:
    cluster.on("FindCoordinator", Edit(lying(cluster)), times=None)
    with pytest.raises(AdminError) as caught:
        client.admin().describe_groups(["mine"], timeout=2)
    assert list(caught.value.errors) == ["mine"]
    named = sent(cluster, "ConsumerGroupDescribe", "group_ids") + sent(cluster, "DescribeGroups", "groups")
    assert [names for names in named if names != ["mine"]] == []


def test_nor_is_one_that_the_answer_about_a_group_names(cluster: MockCluster, client: KafkaClient) -> None:
    """It was a KeyError."""

    def of_two(_request: Any, answer: Any) -> Any:
        more = copy.copy(answer.groups[0])
        more.group_id = "precious"
        answer.groups.append(more)
        return answer

    cluster.on("ConsumerGroupDescribe", Edit(of_two), times=None)
    with pytest.raises(AdminError) as caught:
        client.admin().describe_groups(["mine"])
    assert list(caught.value.errors) == ["mine"]
    assert [names for names in sent(cluster, "DescribeGroups", "groups") if names != ["mine"]] == []


def test_a_transactional_id_that_only_an_answer_names_is_not_asked_for(cluster: MockCluster, client: KafkaClient) -> None:
    def described(request: Any) -> DescribeTransactionsResponse:
        states = [TransactionState(transactional_id=name, transaction_state="Empty") for name in request.message.transactional_ids]
        return DescribeTransactionsResponse(transaction_states=states)

    cluster.on("FindCoordinator", Edit(lying(cluster)), times=None)
    cluster.on("DescribeTransactions", Reply(described), times=None)
    assert list(client.admin().describe_transactions(["mine"])) == ["mine"]
    assert sent(cluster, "DescribeTransactions", "transactional_ids") == [["mine"]]


def test_a_topic_that_only_the_metadata_name_is_not_reset(cluster: MockCluster, client: KafkaClient) -> None:
    def more(request: Any, answer: Any) -> Any:
        asked = request.message.topics
        if asked and [topic.name for topic in asked] == ["mine"]:
            other = copy.copy(answer.topics[0])
            other.name = "precious"
            answer.topics.append(other)
        return answer

    admin = client.admin()
    admin.alter_group_offsets("group", {("precious", 0): 0, ("mine", 0): 0})
    committed = cluster.count("OffsetCommit")
    cluster.on("Metadata", Edit(more), times=None)
    assert list(admin.reset_group_offsets("group", ["mine"], to="latest", dry_run=False)) == [("mine", 0)]
    names = [topic.name for request in cluster.requests("OffsetCommit")[committed:] for topic in request.message.topics]
    assert names == ["mine"]


def test_nor_is_one_whose_offsets_nobody_asked_for(cluster: MockCluster, client: KafkaClient) -> None:
    def more(_request: Any, answer: Any) -> Any:
        topics = answer.groups[0].topics if answer.groups else answer.topics
        other = copy.copy(topics[0])
        other.name = "precious"
        topics.append(other)
        return answer

    admin = client.admin()
    admin.alter_group_offsets("group", {("precious", 0): 0, ("mine", 0): 0})
    committed = cluster.count("OffsetCommit")
    cluster.on("OffsetFetch", Edit(more), times=None)
    assert list(admin.list_group_offsets("group", [("mine", 0)])) == [("mine", 0)]
    assert list(admin.reset_group_offsets("group", ["mine"], to="latest", dry_run=False)) == [("mine", 0)]
    names = [topic.name for request in cluster.requests("OffsetCommit")[committed:] for topic in request.message.topics]
    assert names == ["mine"]


@pytest.mark.parametrize("handler", ["threading", "gevent"])
def test_a_topic_is_deleted_by_the_id_that_was_given_not_by_the_name_that_is_told(cluster: MockCluster, handler: str) -> None:
    """kafka-python's delete_topics() takes ids: whoever told that one is "precious" chose what the controller deleted."""

    def swapped(_request: Any, answer: Any) -> Any:
        other = {"mine": "precious", "precious": "mine"}
        for topic in answer.topics:
            topic.name = other.get(topic.name, topic.name)
        return answer

    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap, handler=handler) as admin:
        id_ = UUID(admin.describe_topics(["mine"])[0]["topic_id"])
        cluster.on("Metadata", Edit(swapped), times=None)
        told = admin.delete_topics([id_])["topics"]
        cluster.clear_script()
        assert [(topic["topic_id"], topic["error_code"]) for topic in told] == [(str(id_), 0)]
        assert admin.list_topics() == ["precious"]
