"""Whatever a public method is given in place of one of its arguments, it takes it or says what is wrong: nothing comes from inside."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

from gkafka.kafka import ConsumerRebalanceListener, KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from gkafka.kafka.admin import (
    ACL,
    AbortTransactionSpec,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ConfigResource,
    ConfigResourceType,
    ElectionType,
    MemberToRemove,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourcePattern,
    ResourceType,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from gkafka.kafka.errors import IllegalArgumentError, KafkaConfigurationError, KafkaError, WrongTypeError
from gkafka.kafka.future import Future
from gkafka.kafka.structs import TopicPartitionReplica
from gkafka.testing import MockCluster

FIRST = TopicPartition("t", 0)
THERE = OffsetAndMetadata(0, "")
BAD: list[Any] = [None, 5, "x", b"x", [], {}, [5], {5: 5}, {FIRST: None}, {"t": 5}, float("inf"), -1, object()]
PATTERN = ResourcePattern(ResourceType.TOPIC, "t")
RULE = ("User:a", "*", ACLOperation.READ, ACLPermissionType.ALLOW, PATTERN)
OF_TOPIC = ConfigResource(ConfigResourceType.TOPIC, "t", {"retention.ms": "1"})


class Silent(ConsumerRebalanceListener):
    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        pass

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        pass


CONSUMER: dict[str, tuple[Any, ...]] = {
    "assign": ([FIRST],),
    "beginning_offsets": ([FIRST], 1000),
    "bootstrap_connected": (),
    "close": (True, 0),
    "commit": ({FIRST: THERE}, 1000),
    "commit_async": ({FIRST: THERE}, None),
    "committed": (FIRST, False, 1000),
    "end_offsets": ([FIRST], 1000),
    "group_metadata": (),
    "highwater": (FIRST,),
    "metrics": (False,),
    "offsets_for_times": ({FIRST: 1}, 1000),
    "partitions_for_topic": ("t",),
    "pause": (FIRST,),
    "poll": (0, 5),
    "position": (FIRST, 1000),
    "resume": (FIRST,),
    "seek": (FIRST, 0),
    "seek_to_beginning": (FIRST,),
    "seek_to_end": (FIRST,),
    "subscribe": (["t"], None, Silent()),
    "subscription": (),
    "topics": (),
    "unsubscribe": (),
    "assignment": (),
    "paused": (),
}
PRODUCER: dict[str, tuple[Any, ...]] = {
    "abort_transaction": (),
    "begin_transaction": (),
    "bootstrap_connected": (),
    "close": (1,),
    "commit_transaction": (),
    "flush": (1,),
    "init_transactions": (),
    "metrics": (False,),
    "partitions_for": ("t",),
    "send": ("t", b"v", b"k", [("h", b"v")], 0, 1),
    "send_offsets_to_transaction": ({FIRST: THERE}, "g"),
}
ADMIN: dict[str, tuple[Any, ...]] = {
    "abort_transaction": (AbortTransactionSpec(FIRST, 1, 1),),
    "alter_configs": ([OF_TOPIC],),
    "alter_group_offsets": ("g", {FIRST: THERE}),
    "alter_partition_reassignments": ({FIRST: [1]},),
    "alter_replica_log_dirs": ({TopicPartitionReplica("t", 0, 1): "/x"},),
    "alter_user_scram_credentials": ([UserScramCredentialDeletion("u", "SCRAM-SHA-256")],),
    "create_acls": ([ACL(*RULE)],),
    "create_partitions": ({"t": NewPartitions(3)},),
    "create_topics": ([NewTopic("n", 1, 1)],),
    "delete_acls": ([ACLFilter(*RULE)],),
    "delete_consumer_groups": (["g"],),
    "delete_group_offsets": ("g", [FIRST]),
    "delete_groups": (["g"],),
    "delete_records": ({FIRST: 0},),
    "delete_topics": (["n"],),
    "describe_acls": (ACLFilter(*RULE),),
    "describe_configs": ([OF_TOPIC],),
    "describe_consumer_groups": (["g"],),
    "describe_groups": (["g"],),
    "describe_producers": ([FIRST],),
    "describe_topic_partitions": (["t"],),
    "describe_transactions": (["x"],),
    "elect_leaders": (ElectionType.PREFERRED, {"t": [0]}),
    "list_consumer_group_offsets": ("g",),
    "list_group_offsets": ({"g": [FIRST]},),
    "list_partition_offsets": ({FIRST: OffsetSpec.EARLIEST},),
    "perform_leader_election": (ElectionType.PREFERRED, {"t": [0]}),
    "remove_group_members": ("g", [MemberToRemove("m")]),
    "reset_configs": ([OF_TOPIC],),
    "reset_group_offsets": ("g", {FIRST: OffsetSpec.EARLIEST}),
    "update_features": ({"f": 1},),
    "wait_for_topics": (["t"],),
}


def public(kind: Any) -> list[str]:
    return [name for name, _ in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")]


def test_every_method_is_tried() -> None:
    assert set(CONSUMER) == set(public(KafkaConsumer))
    assert set(PRODUCER) == set(public(KafkaProducer))
    assert set(ADMIN) <= set(public(KafkaAdminClient))
    with_arguments = {name for name in public(KafkaAdminClient) if len(inspect.signature(getattr(KafkaAdminClient, name)).parameters) > 1}
    may_be_left_out = {
        name
        for name in with_arguments
        if all(p.default is not p.empty for p in list(inspect.signature(getattr(KafkaAdminClient, name)).parameters.values())[1:])
    }
    assert set(ADMIN) >= with_arguments - may_be_left_out


def tried(client: Any, name: str, given: tuple[Any, ...], open_again: Callable[[], Any]) -> list[str]:
    """What the method raised of its own inside, with each bad value in place of each argument."""
    faults = []
    parameters = list(inspect.signature(getattr(type(client), name)).parameters.values())[1:]
    arguments = {p.name: p.default for p in parameters if p.kind is not p.VAR_POSITIONAL}
    arguments.update(zip((p.name for p in parameters), given, strict=False))
    for at, parameter in enumerate(arguments):
        for bad in BAD:
            if bad == float("inf") and "timeout" in parameter:
                continue  # that is a time, and a long one
            values = {**arguments, parameter: bad}
            try:
                if any(p.kind is p.VAR_POSITIONAL for p in parameters):
                    getattr(client, name)(bad)
                else:
                    getattr(client, name)(**values)
            except KafkaError:
                pass
            except Exception as exc:
                faults.append(f"{name}(): argument {at + 1} is {bad!r}: {exc!r}")
            if name in ("close", "assign", "subscribe", "unsubscribe"):
                client = open_again()
    return faults


@pytest.mark.parametrize("name", CONSUMER)
def test_a_consumers_arguments(cluster: MockCluster, name: str) -> None:
    made: list[KafkaConsumer] = []

    def new() -> KafkaConsumer:
        while made:
            made.pop().close(timeout_ms=500)
        made.append(
            KafkaConsumer(
                bootstrap_servers=cluster.bootstrap, group_id="g", handler="threading", api_version=(2, 8), auto_offset_reset="earliest"
            )
        )
        if name not in ("subscribe", "close"):
            made[0].assign([FIRST])
        return made[0]

    try:
        assert not tried(new(), name, CONSUMER[name], new)
    finally:
        made[0].close(timeout_ms=500)


@pytest.mark.parametrize("name", PRODUCER)
def test_a_producers_arguments(cluster: MockCluster, name: str) -> None:
    options = {"transactional_id": "x"} if name == "send_offsets_to_transaction" else {}

    made: list[KafkaProducer] = []

    def new() -> KafkaProducer:
        while made:
            made.pop().close(5)
        sending = KafkaProducer(bootstrap_servers=cluster.bootstrap, handler="threading", max_block_ms=2000, **options)
        if options:
            sending.init_transactions()
            sending.begin_transaction()
        made.append(sending)
        return sending

    try:
        assert not tried(new(), name, PRODUCER[name], new)
    finally:
        made[0].close(5)


@pytest.mark.parametrize("name", sorted(set(public(KafkaAdminClient)) - {"close"}))
def test_an_administrators_arguments(cluster: MockCluster, name: str) -> None:
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap, handler="threading", request_timeout_ms=1500) as admin:
        assert not tried(admin, name, ADMIN.get(name, ()), lambda: admin)


@pytest.mark.parametrize("name", ["add_callback", "add_errback", "add_both", "chain", "failure", "get"])
def test_a_futures_arguments(producer: Any, cluster: MockCluster, name: str) -> None:
    sending = producer(cluster, linger_ms=60_000)
    for future in (Future().success(1), sending.send("t", b"v")):
        for bad in ("x", [], {}, object(), {5: 5}):
            if hasattr(future, name):
                with pytest.raises(KafkaConfigurationError):
                    getattr(future, name)(bad)


def test_what_counts_as_true_is_no_flag(consumer: Any, cluster: MockCluster) -> None:
    """validate_only="no" changed nothing, and dry_run="no" everything."""
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap, handler="threading") as admin:
        for bad in ("no", 0, 1, []):
            with pytest.raises(KafkaConfigurationError, match=re.escape(f"validate_only={bad!r}: must be True or False")):
                admin.create_topics(["n"], validate_only=bad)
        assert admin.list_topics() == ["t"]
        with pytest.raises(IllegalArgumentError, match="isolation_level=True"):
            admin.list_partition_offsets({FIRST: -1}, isolation_level=True)
    reading = consumer(cluster)
    with pytest.raises(KafkaConfigurationError, match="raw='no': must be True or False"):
        reading.metrics(raw="no")
    with pytest.raises(KafkaConfigurationError, match="autocommit='no'"):
        reading.close(autocommit="no")


def test_a_text_and_a_dict_are_no_lists() -> None:
    with MockCluster(topics={"t": 1}) as cluster, KafkaAdminClient(bootstrap_servers=cluster.bootstrap, handler="threading") as admin:
        for call, argument in (
            (admin.wait_for_topics, "topic_names"),
            (admin.describe_topic_partitions, "topics"),
            (admin.describe_transactions, "transactional_ids"),
            (admin.create_acls, "acls"),
        ):
            for bad in ("t", {"t": 1}, 5, None):
                with pytest.raises(IllegalArgumentError, match=rf"^{argument}=.*: must be a list, also for one"):
                    call(bad)  # type: ignore[operator]
        with KafkaConsumer(bootstrap_servers=cluster.bootstrap, handler="threading") as reading:
            with pytest.raises(WrongTypeError, match=r"^topics=<dict>: must be a list of names"):
                reading.subscribe({"t": 1})  # type: ignore[arg-type]
            with pytest.raises(AssertionError, match="give either topics or a pattern"):
                reading.subscribe(None)


def test_a_password_in_the_wrong_place_is_not_shown() -> None:
    hidden = "correct horse"
    with MockCluster() as cluster, KafkaAdminClient(bootstrap_servers=cluster.bootstrap, handler="threading") as admin:
        for call in (
            lambda: admin.alter_user_scram_credentials([hidden]),  # type: ignore[list-item]
            lambda: admin.alter_user_scram_credentials(hidden),  # type: ignore[arg-type]
            lambda: admin.alter_user_scram_credentials({hidden: 1}),  # type: ignore[arg-type]
            lambda: UserScramCredentialUpsertion("u", hidden, "SCRAM-SHA-256"),
            lambda: UserScramCredentialDeletion("u", hidden),
            lambda: UserScramCredentialUpsertion("u", "SCRAM-SHA-256", [hidden]),  # type: ignore[arg-type]
            lambda: UserScramCredentialUpsertion("u", "SCRAM-SHA-256", hidden.encode() + b"\xff"),
            lambda: UserScramCredentialUpsertion("u", "SCRAM-SHA-256", "x", hidden),  # type: ignore[arg-type]
            lambda: UserScramCredentialUpsertion("u", "SCRAM-SHA-256", "x", 4096, hidden),  # type: ignore[arg-type]
        ):
            with pytest.raises(IllegalArgumentError) as caught:
                call()
            error: BaseException | None = caught.value
            while error is not None:
                assert hidden not in f"{error!r} {error.args}"
                error = error.__cause__ or error.__context__
