"""client.admin() while a partition, a topic, a group or a broker does not answer: what the others told is in AdminError.results, as the call returns it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.admin import Admin, FoundOffset, GroupOffset, OffsetReset
from gkafka.exceptions import (
    AdminError,
    ConfigurationError,
    GroupAuthorizationFailed,
    KafkaTimeoutError,
    LeaderNotAvailable,
    LeaderNotFoundError,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
    UnstableOffsetCommit,
)
from gkafka.testing import Drop, Edit, Error, MockCluster, Reply
from gkafka.wire import txnadmin
from tests.kit.clock import PATIENCE_S, now
from tests.public.conftest import Connect

Make = Callable[..., MockCluster]
SOON_S = 20.0
"""A busy machine's second; who waits for the whole of api_timeout_ms takes three times as long."""


@pytest.fixture
def cluster(make_cluster: Make) -> MockCluster:
    """Each of three brokers leads one partition of "t", and nobody else has a copy."""
    return make_cluster(3, {"t": 3, "u": 1}, replication_factor=1)


@pytest.fixture
def client(connect: Connect, cluster: MockCluster) -> KafkaClient:
    return connect(cluster)


@pytest.fixture
def admin(client: KafkaClient) -> Admin:
    return client.admin()


def failed(call: Callable[[], object]) -> AdminError:
    """The call's error, which comes soon."""
    began = now()
    with pytest.raises(AdminError) as caught:
        call()
    assert now() - began < SOON_S
    return caught.value


@pytest.fixture
def tries_once(client: KafkaClient, monkeypatch: pytest.MonkeyPatch) -> Admin:
    """What is to be tried again has no time left for it, at once, however long the first try may take."""
    monkeypatch.setattr(client.cluster, "pause", lambda seconds: None)
    return client.admin(retry_backoff_ms=1000 * PATIENCE_S)


def of_topic(name: str, code: int) -> Edit:
    """Tell this error of one topic's partitions, and what there is of the others."""

    def edit(request: Any, answer: Any) -> Any:
        for group in getattr(answer, "answers", [answer]):
            for topic in group.topics:
                for p in topic.partitions if topic.name == name else ():
                    p.error_code = code
        return answer

    return Edit(edit)


T = [("t", 0), ("t", 1), ("t", 2)]


# -- ends of logs ------------------------------------------------------------------------------------------------------
def test_a_partition_without_a_leader_hides_no_other_ones_offset(admin: Admin, cluster: MockCluster) -> None:
    down = cluster.leader("t", 1)
    admin.list_topics()
    cluster.stop_broker(down)
    error = failed(lambda: admin.list_offsets(dict.fromkeys(T, -1)))
    assert error.results == {("t", 0): 0, ("t", 2): 0}
    assert list(error.errors) == [("t", 1)]
    assert isinstance(error.errors["t", 1], LeaderNotFoundError)
    assert "t-1 has no leader" in str(error)
    told = failed(lambda: admin.find_offsets(dict.fromkeys(T, -1))).results
    assert told["t", 0] == FoundOffset(0, -1, told["t", 0].leader_epoch)


@pytest.mark.parametrize(("code", "kind"), [(5, LeaderNotAvailable), (29, TopicAuthorizationFailed), (3, UnknownTopicOrPartition)])
def test_what_a_leader_refuses_hides_no_other_ones_offset(code: int, kind: type[Exception], admin: Admin, cluster: MockCluster) -> None:
    cluster.on("ListOffsets", Error(code), broker=cluster.leader("t", 2), times=None)
    error = failed(lambda: admin.list_offsets(dict.fromkeys(T, -1)))
    assert error.results == {("t", 0): 0, ("t", 1): 0}
    assert isinstance(error.errors["t", 2], kind)


def test_a_leader_that_is_just_being_elected_is_waited_for(admin: Admin, cluster: MockCluster) -> None:
    cluster.on("ListOffsets", Error(5), times=2)
    assert admin.list_offsets({("t", 0): -1}) == {("t", 0): 0}


def test_a_reset_is_done_of_all_that_have_a_leader(admin: Admin, cluster: MockCluster) -> None:
    admin.alter_group_offsets("g", dict.fromkeys(T, 3))
    cluster.on("ListOffsets", Error(5), broker=cluster.leader("t", 1), times=None)
    error = failed(lambda: admin.reset_group_offsets("g", ["t"], to="latest", dry_run=False))
    assert error.results == {("t", 0): OffsetReset(3, 0, 0, 0), ("t", 2): OffsetReset(3, 0, 0, 0)}
    assert list(error.errors) == [("t", 1)]
    assert {tp: at.offset for tp, at in cluster.committed("g").items()} == {("t", 0): 0, ("t", 1): 3, ("t", 2): 0}


def test_what_cannot_be_shifted_keeps_nothing_else_from_it(admin: Admin, cluster: MockCluster) -> None:
    admin.alter_group_offsets("g", {("t", 0): 0})
    error = failed(lambda: admin.reset_group_offsets("g", ["t"], shift_by=3))
    assert error.results == {("t", 0): OffsetReset(0, 0, 0, 0)}
    assert {type(one) for one in error.errors.values()} == {ConfigurationError}


# -- what groups have committed ----------------------------------------------------------------------------------------
def test_a_group_with_an_open_transaction_is_looked_at_without_waiting(
    admin: Admin, tries_once: Admin, client: KafkaClient, cluster: MockCluster
) -> None:
    admin.alter_group_offsets("g", {("t", 0): 3, ("t", 1): 4})
    producer = client.get_producer(transactional_id="x")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send_offsets({("t", 0): 5}, "g")
    began = now()
    assert {tp: at.offset for tp, at in admin.list_group_offsets("g").items()} == {("t", 0): 3, ("t", 1): 4}
    assert admin.reset_group_offsets("g", to="latest")["t", 0].before == 3
    assert now() - began < SOON_S
    for call in (
        lambda: tries_once.list_group_offsets("g", require_stable=True, timeout=PATIENCE_S),
        lambda: tries_once.list_group_offsets("g", T, require_stable=True, timeout=PATIENCE_S),
    ):
        error = failed(call)
        assert isinstance(error.errors["t", 0], UnstableOffsetCommit)
        assert error.results["t", 1] == GroupOffset(4)
    producer.abort_transaction()
    assert admin.list_group_offsets("g", require_stable=True)["t", 0].offset == 3


def test_a_broker_that_says_unstable_to_everybody_is_not_asked_again_and_again(
    admin: Admin, tries_once: Admin, cluster: MockCluster
) -> None:
    cluster.on("OffsetFetch", Error(88), times=None)
    began = now()
    with pytest.raises(UnstableOffsetCommit):
        admin.list_group_offsets("g")
    assert now() - began < SOON_S
    with pytest.raises(KafkaTimeoutError, match="error 88"):
        tries_once.list_group_offsets("g", require_stable=True, timeout=PATIENCE_S)


def test_one_denied_topic_hides_no_other_ones_commit(admin: Admin, cluster: MockCluster) -> None:
    admin.alter_group_offsets("g", {("t", 0): 3, ("u", 0): 4})
    cluster.on("OffsetFetch", of_topic("u", 29), times=None)
    error = failed(lambda: admin.list_group_offsets("g", [("t", 0), ("u", 0)]))
    assert error.results == {("t", 0): GroupOffset(3)}
    assert isinstance(error.errors["u", 0], TopicAuthorizationFailed)


def test_several_groups_are_asked_together_and_one_that_fails_hides_no_other(admin: Admin, cluster: MockCluster) -> None:
    for name in ("a", "b", "c"):
        admin.alter_group_offsets(name, {("t", 0): 1, ("u", 0): 2})
    assert {name: told["t", 0].offset for name, told in admin.list_offsets_of_groups(["c", "a"]).items()} == {"c": 1, "a": 1}
    assert admin.list_offsets_of_groups([]) == {}
    cluster.on("OffsetFetch", Error(30), times=None, when=lambda request: "'b'" in str(request.message))
    cluster.on("OffsetFetch", of_topic("u", 29), times=None, when=lambda request: "'c'" in str(request.message))
    error = failed(lambda: admin.list_offsets_of_groups(["a", "b", "c"]))
    assert list(error.results) == ["a"]
    assert isinstance(error.errors["b"], GroupAuthorizationFailed)
    partly = error.errors["c"]
    assert isinstance(partly, AdminError)
    assert (partly.results, list(partly.errors)) == ({("t", 0): GroupOffset(1)}, [("u", 0)])


# -- brokers -----------------------------------------------------------------------------------------------------------
def test_a_coordinator_that_is_silent_hides_no_other_ones_group(admin: Admin, cluster: MockCluster) -> None:
    for number, name in enumerate(("a", "b"), 1):
        cluster.move_coordinator(name, number)
        admin.alter_group_offsets(name, {("t", 0): 1})
    admin.describe_groups(["a", "b"])  # both are connected
    cluster.on("ConsumerGroupDescribe", Drop(before=True), broker=2, times=None)
    error = failed(lambda: admin.describe_groups(["a", "b"], timeout=4))
    assert list(error.results) == ["a"]
    assert isinstance(error.errors["b"], KafkaTimeoutError)


def test_another_broker_is_asked_when_one_is_silent(admin: Admin, cluster: MockCluster) -> None:
    admin.alter_group_offsets("g", {("t", 0): 1})
    admin.list_offsets(dict.fromkeys(T, -1))  # all are connected
    cluster.on("FindCoordinator", Drop(before=True), times=1)
    assert admin.list_group_offsets("g", timeout=4) == {("t", 0): GroupOffset(1)}


def test_transactions_of_the_brokers_that_tell_are_told(make_cluster: Make, connect: Connect) -> None:
    cluster = make_cluster(2, limits={"ListTransactions": (0, 2)})
    state = txnadmin.TransactionState(transactional_id="x", producer_id=5, transaction_state="Ongoing")
    cluster.on("ListTransactions", Reply(lambda _: txnadmin.ListTransactionsResponse(transaction_states=[state])), broker=1, times=None)
    cluster.on("ListTransactions", Reply(lambda _: txnadmin.ListTransactionsResponse(error_code=31)), broker=2, times=None)
    error = failed(lambda: connect(cluster).admin().list_transactions())
    assert list(error.errors) == [2]
    assert error.results["x"].state == "Ongoing"
