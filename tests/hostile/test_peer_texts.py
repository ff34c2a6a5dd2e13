"""Nothing that a peer sent gets into the text of an error, a log line or explain() as it came: every string field of every answer is tried."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.admin import Acl, AclFilter, AclOperation, Admin, ConfigResource, ConfigResourceType, ResourceType, ScramMechanism
from gkafka.exceptions import KafkaException
from gkafka.testing import Edit, MockCluster, Reply
from gkafka.wire.adminapis import ADMIN_APIS
from gkafka.wire.apis import APIS, Api, Request
from tests.hostile.life import GROUP, NEW_GROUP, QUICK, REQUESTS, TOPIC, cluster_for_life, create_and_delete, produce, transact
from tests.hostile.poison import REFUSED, Poisoner, filled, logged, poison_assignment, poison_members, texts_of

OPTIONS: dict[str, Any] = {**QUICK, "api_timeout_ms": 400, "socket_timeout_ms": 1500}
MOST_TRIES = 60
"""Of each step, until no answer to it was poisoned and it works. Each try meets one poisoned answer of each of its APIs, or more."""
SEEN = "\\x1b[31m\\u202e"
"""What a reader gets to see of EVIL."""


class Told:
    """All texts that came out of a client."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self.explained: list[str] = []

    def failing(self, step: Callable[[], object]) -> bool:
        """Did it fail, by one of gkafka's errors?"""
        try:
            step()
        except KafkaException as error:
            self.errors += texts_of(error)
            return True
        return False


def assert_clean(texts: list[str]) -> None:
    assert [text for text in texts if not text.isprintable()] == []


@pytest.fixture(autouse=True)
def _all_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "gkafka")


def read(client: KafkaClient, told: Told, group: str, **options: Any) -> None:
    """A member that joins, fetches, explains itself and commits."""
    options = {"auto_commit": False, "fetch_error_backoff_ms": 5, "auto_offset_reset": "earliest", **options}
    with client.get_consumer([TOPIC], group=group, **options) as consumer:
        try:
            message = None
            for _ in range(30):
                message = consumer.consume(timeout_ms=50)
                told.explained.append(str(consumer.explain()))
                if message is not None:
                    break
            consumer.commit()
        finally:
            told.explained.append(str(consumer.explain()))


def steps(client: KafkaClient, told: Told) -> Iterator[Callable[[], object]]:
    """What a client does in its life, and the calls that its topics' and groups' owners make."""
    admin = client.admin()
    yield lambda: client.connect(1)
    yield client.update_cluster
    yield lambda: produce(client)
    yield lambda: client.list_offsets({(TOPIC, 0): -1}, timeout=0.4)
    yield lambda: read(client, told, GROUP, heartbeat_interval_ms=30, session_timeout_ms=600)
    yield lambda: read(client, told, NEW_GROUP, group_protocol="consumer")
    yield lambda: transact(client)
    yield lambda: create_and_delete(client)
    yield lambda: admin.list_groups(timeout=0.4)
    yield lambda: admin.describe_groups([GROUP, NEW_GROUP], timeout=0.4)
    yield lambda: admin.list_group_offsets(GROUP, timeout=0.4)
    yield lambda: admin.remove_members(GROUP, ["nobody"], timeout=0.4)


def test_each_string_of_each_answer_in_a_clients_life_is_escaped(caplog: pytest.LogCaptureFixture) -> None:
    told = Told()
    with cluster_for_life() as cluster, KafkaClient(cluster.bootstrap, **OPTIONS) as client:
        apis = [api for api in APIS.values() if api.name in REQUESTS | {"ConsumerGroupDescribe"}]
        poisoner = Poisoner(cluster, apis)
        for step in steps(client, told):
            in_vain = 0  # failed, and nothing was poisoned: the time was over
            for _ in range(MOST_TRIES):
                before = len(poisoner.done)
                failed = told.failing(step)
                in_vain = in_vain + 1 if failed and len(poisoner.done) == before else 0
                if len(poisoner.done) == before and (not failed or in_vain > 3):
                    break
    assert {name for name, left in poisoner.left.items() if left} == set()
    lines = [line for text in told.explained for line in text.split("\n")]
    assert_clean([*told.errors, *lines, *logged(caplog.records)])
    assert any(SEEN in text for text in told.errors)
    assert any(SEEN in text for text in logged(caplog.records))


PARTITION = (TOPIC, 0)
ADMIN_CALLS: dict[str, Callable[[Admin], object]] = {
    "DeleteRecords": lambda a: a.delete_records({PARTITION: 1}),
    "DescribeAcls": lambda a: a.list_acls(),
    "CreateAcls": lambda a: a.create_acls([Acl(ResourceType.TOPIC, TOPIC, "User:a", AclOperation.READ)]),
    "DeleteAcls": lambda a: a.delete_acls([AclFilter()], dry_run=False),
    "DescribeConfigs": lambda a: a.describe_configs([ConfigResource(ConfigResourceType.TOPIC, TOPIC)]),
    "AlterConfigs": lambda a: a.replace_configs({("topic", TOPIC): {"retention.ms": 1}}),
    "IncrementalAlterConfigs": lambda a: a.alter_configs({("topic", TOPIC): {"retention.ms": 1}}),
    "AlterReplicaLogDirs": lambda a: a.alter_replica_log_dirs({(TOPIC, 0, 1): "/dir"}),
    "DescribeLogDirs": lambda a: a.describe_log_dirs(),
    "CreatePartitions": lambda a: a.create_partitions({TOPIC: 2}),
    "DeleteGroups": lambda a: a.delete_groups([GROUP]),
    "ElectLeaders": lambda a: a.elect_leaders([PARTITION]),
    "AlterPartitionReassignments": lambda a: a.alter_reassignments({PARTITION: [1]}),
    "ListPartitionReassignments": lambda a: a.list_reassignments(),
    "OffsetDelete": lambda a: a.delete_group_offsets(GROUP, [PARTITION]),
    "DescribeClientQuotas": lambda a: a.describe_quotas(),
    "AlterClientQuotas": lambda a: a.alter_quotas([({"user": "a"}, {"consumer_byte_rate": 1})]),
    "DescribeUserScramCredentials": lambda a: a.describe_users(["a"]),
    "AlterUserScramCredentials": lambda a: a.delete_user("a", ScramMechanism.SCRAM_SHA_256),
    "DescribeQuorum": lambda a: a.describe_quorum(),
    "UpdateFeatures": lambda a: a.update_features({"metadata.version": 1}),
    "DescribeCluster": lambda a: a.describe_cluster(),
    "DescribeProducers": lambda a: a.describe_producers([PARTITION]),
    "DescribeTransactions": lambda a: a.describe_transactions(["t"]),
    "ListTransactions": lambda a: a.list_transactions(),
    "DescribeTopicPartitions": lambda a: a.describe_topics([TOPIC]),
}
"""By the API whose answer is poisoned."""
UNCALLED = {"WriteTxnMarkers"}
"""An administrator aborts a transaction with it, after another call."""


def _filled(api: Api, code: int, _: Request) -> Any:
    return filled(api.response, code)


def test_each_answer_to_an_administrator_is_escaped(caplog: pytest.LogCaptureFixture) -> None:
    assert {*ADMIN_CALLS, *UNCALLED} == {api.name for api in ADMIN_APIS.values()}
    told = Told()
    limits = {api.name: (api.stable.low, api.stable.high) for api in ADMIN_APIS.values()}
    with MockCluster(topics={TOPIC: 1}, limits=limits) as cluster, KafkaClient(cluster.bootstrap, **OPTIONS) as client:
        admin = client.admin()
        for api in ADMIN_APIS.values():
            for code in (0, REFUSED) if api.name in ADMIN_CALLS else ():
                cluster.on(api.name, Reply(partial(_filled, api, code)), times=None)
                told.failing(partial(ADMIN_CALLS[api.name], admin))
                assert cluster.count(api.name), api.name
                cluster.clear_script()
    assert_clean([*told.errors, *logged(caplog.records)])
    assert sum(SEEN in text for text in told.errors) > len(ADMIN_CALLS) / 2


@pytest.mark.parametrize(("api", "edit"), [("SyncGroup", poison_assignment), ("JoinGroup", poison_members)])
def test_what_another_member_of_a_group_says_is_escaped(api: str, edit: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Members speak to each other in bytes that the broker does not read: a topic or a rack may have any name."""
    told = Told()
    with cluster_for_life() as cluster, KafkaClient(cluster.bootstrap, **OPTIONS) as client:
        cluster.on(api, Edit(edit), times=3)
        told.failing(lambda: read(client, told, GROUP, heartbeat_interval_ms=30, session_timeout_ms=600))
    texts = [*told.errors, *(line for text in told.explained for line in text.split("\n")), *logged(caplog.records)]
    assert_clean(texts)
    assert any(SEEN in text for text in texts)
