"""What consumers cannot use is refused at the call: an error that names the value and says what to do, and no wait for what never comes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.brokererrors import UnknownTopicOrPartition
from gkafka.exceptions import CommitFailedError, ConfigurationError, ConsumerStoppedException
from gkafka.hosts import parse_zookeeper
from gkafka.membershipprotocol import GroupMembershipProtocol
from gkafka.testing import Error, MockCluster
from tests.public.aids import LIMIT_S, Clock, Runner, error_of
from tests.public.zoo import Zoo, zoo_client

Make = Callable[..., Any]
NO_ADDRESS = [
    "localhost:port", "", ",", "/chroot", "h:0", "h:-1", "h:99999", "a:b:c", "::1:2181", "[::1", "zk://h:1", "u@h:1", "h?x:1", "h h:1", "h:2181,h2:x",
    "h:1/a//b", "h:1/a,h2:1/a", "h:1/..", "h:1/\x00", b"\xff", 5, ["h:1"],
]  # fmt: skip


@pytest.fixture
def make(client: KafkaClient, run: Runner) -> Make:
    """make(kind, ...): one of the three documented consumers, or the native one."""

    def consumer(kind: str, group: Any = "g", **options: Any) -> Any:
        topic = client.topics["t"]
        if kind == "simple":
            return topic.get_simple_consumer(group, **options)
        if kind == "managed":
            return topic.get_balanced_consumer(group, managed=True, **options)
        if kind == "balanced":
            return topic.get_balanced_consumer(group, **{"zookeeper": zoo_client(run, Zoo()), **options})
        return client.get_consumer("t", group, **options)

    return consumer


def refused(call: Callable[..., Any], *args: Any, **about: Any) -> str:
    error = error_of(call, *args, **about)
    assert isinstance(error, ConfigurationError), error
    return str(error)


# -- where ZooKeeper is --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("hosts", NO_ADDRESS)
def test_what_is_no_address_of_a_zookeeper_is_named_with_what_one_looks_like(client: KafkaClient, hosts: Any) -> None:
    topic = client.topics["t"]
    shown = repr("...@h:1" if hosts == "u@h:1" else hosts)  # what stands before it may be a password
    if hosts in ("h?x:1", "h:1/\0"):
        shown = f"*** ({len(hosts)} characters)"  # it is no address, and may be one
    for option in ("zookeeper_connect", "zookeeper_hosts"):
        for auto_start in (True, False):
            text = refused(topic.get_balanced_consumer, "g", auto_start=auto_start, **{option: hosts})
            assert text.startswith(f"{option}={shown}"), text
            assert "host:port" in text or "UTF-8" in text, text
    text = refused(KafkaClient, zookeeper_hosts=hosts, handler=client.handler.name)
    assert text.startswith(f"zookeeper_hosts={shown}"), text


def test_zookeeper_connect_must_be_there_and_is_ignored_beside_a_client_of_the_users(client: KafkaClient, make: Make) -> None:
    assert "zookeeper_connect=None" in refused(client.topics["t"].get_balanced_consumer, "g", zookeeper_connect=None)
    make("balanced", zookeeper_connect="localhost:port").stop()


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ("h", ("h", "")),
        (b"h:1", ("h:1", "")),
        (" h1:1 , h2 ,", ("h1:1,h2", "")),
        ("h1:1,[::1]:2/a/b/", ("h1:1,[::1]:2", "a/b")),
        ("h:65535/", ("h:65535", "")),
    ],
)
def test_addresses_of_a_zookeeper_as_users_write_them(hosts: Any, expected: tuple[str, str]) -> None:
    assert parse_zookeeper("zookeeper_connect", hosts) == expected


@pytest.mark.parametrize(
    "bad", [{"zookeeper_connect": ""}, {"managed": True, "heartbeat_interval_ms": 60_000}], ids=["balanced", "managed"]
)
def test_a_client_that_has_refused_a_member_can_be_closed(client: KafkaClient, bad: dict[str, Any]) -> None:
    error = error_of(client.topics["t"].get_balanced_consumer, "g", **bad)
    assert error.__traceback__ is not None, "which keeps what was made"
    client.close()


# -- groups --------------------------------------------------------------------------------------------------------------------
class OfMine:
    cooperative = False

    def __init__(self, name: Any) -> None:
        self.name = name

    def user_data(self, *_: Any) -> None:
        return None

    def assign(self, *_: Any) -> Any:
        return {}


@pytest.mark.parametrize("name", [3, None, "", "x" * 40_000, "\udc80"])
def test_a_name_that_no_member_could_say_is_refused_before_anybody_joins(client: KafkaClient, name: Any) -> None:
    """JoinGroup was tried again for ever, without a word."""
    assert "assignor" in refused(client.get_consumer, "t", "g", assignors=[OfMine(name)])


@pytest.mark.parametrize("name", [b"x" * 40_000, b"\xff"])
def test_a_protocols_name_is_one_that_can_be_said(make: Make, name: bytes) -> None:
    protocol = GroupMembershipProtocol(b"consumer", name, None, lambda *_: set())
    assert "protocol_name" in refused(make, "managed", membership_protocol=protocol)


@pytest.mark.parametrize("kind", ["simple", "managed", "balanced", "native"])
@pytest.mark.parametrize("group", ["", b""])
def test_an_empty_group_is_not_taken_for_none(make: Make, kind: str, group: Any) -> None:
    assert f"group={group!r}: must not be empty" in refused(make, kind, group)


@pytest.mark.parametrize(
    ("kind", "given", "meant"),
    [
        ("simple", {"auto_comit_enable": True}, "auto_commit_enable"),
        ("simple", {"use_rdkafkaa": True}, "use_rdkafka"),
        ("balanced", {"zookeper_connect": "z:1"}, "zookeeper_connect"),
        ("balanced", {"rebalance_max_retrys": 5}, "rebalance_max_retries"),
        ("managed", {"heartbeat_intervall_ms": 5}, "heartbeat_interval_ms"),
        ("managed", {"isolation_levl": "x"}, "isolation_level"),
        ("managed", {"deserialiser": "hunter2"}, "deserializer"),
    ],
)
def test_a_mistyped_keyword_is_told_with_the_nearest_name_and_without_its_value_which_may_be_secret(
    make: Make, kind: str, given: dict[str, Any], meant: str
) -> None:
    (name,) = given
    with pytest.raises(TypeError, match=rf"^\w+Consumer\(\): unknown option '{name}'; did you mean '{meant}'\?$") as told:
        make(kind, **given)
    assert isinstance(told.value, ConfigurationError)
    assert kind in str(told.value).lower()


def test_a_mistyped_keyword_of_a_client_or_a_producer_may_be_any_of_its_names(client: KafkaClient) -> None:
    with pytest.raises(TypeError, match="did you mean 'zookeeper_hosts'"):
        KafkaClient("127.0.0.1:1", zookeper_hosts="s3cret")
    with pytest.raises(TypeError, match="did you mean 'delivery_reports'"):
        client.topics["t"].get_producer(delivery_report=True)


@pytest.mark.parametrize("name", ["consumer_group", "group_id", "group.id"])
def test_a_group_under_the_name_that_other_clients_give_it_is_told_its_name_here(client: KafkaClient, name: str) -> None:
    assert f"unknown option {name!r}; it is called group here: group='g'" in refused(client.get_consumer, "t", **{name: "g"})


@pytest.mark.parametrize("option", ["group_instance_id", "group_remote_assignor"])
def test_an_empty_name_of_a_member_or_an_assignor_is_not_taken_for_none(make: Make, option: str) -> None:
    protocol = "consumer" if option == "group_remote_assignor" else "classic"
    assert f"{option}='': must not be empty" in refused(make, "native", group_protocol=protocol, **{option: ""})


def test_an_interval_of_commits_that_never_come_is_refused(client: KafkaClient) -> None:
    given = {"auto_commit_interval_ms": 77}
    assert "auto_commit_interval_ms=77 has nothing to do" in refused(client.get_consumer, "t", **given)
    assert "auto_commit=False" in refused(client.get_consumer, "t", "g", auto_commit=False, **given)
    assert "without a group" in refused(client.get_consumer, **given)
    client.get_consumer(group="g", **given).stop()
    client.get_consumer("t", auto_commit_interval_ms=5000).stop()  # the default says nothing


@pytest.mark.parametrize("kind", ["simple", "managed", "balanced"])
def test_of_pykafkas_consumers_it_is_told_once_in_the_log(
    make: Make, client: KafkaClient, cluster: MockCluster, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """35: documented as ignored."""
    caplog.set_level(logging.WARNING)
    with make(kind, auto_commit_interval_ms=77, consumer_timeout_ms=100) as consumer:
        consumer.consume()
        consumer.stop()
        consumer.start()
        consumer.consume()
    told = [record.getMessage() for record in caplog.records if "auto_commit" in record.getMessage()]
    assert len(told) == 1
    assert "auto_commit_interval_ms=77: nothing is committed in the background without auto_commit_enable=True" in told[0]
    caplog.clear()
    make(kind, consumer_timeout_ms=100).stop()
    make(kind, auto_commit_enable=True, auto_commit_interval_ms=77, consumer_timeout_ms=100).stop()
    assert not [record for record in caplog.records if "auto_commit" in record.getMessage()]


@pytest.mark.parametrize("kind", ["managed", "balanced"])
@pytest.mark.parametrize("keyword", [{"partitions": [0]}, {"generation_id": 5}, {"consumer_id": "x"}], ids=lambda given: next(iter(given)))
def test_what_the_group_says_is_not_said_to_it(make: Make, kind: str, keyword: dict[str, Any]) -> None:
    ((name, value),) = keyword.items()
    assert refused(make, kind, **keyword).startswith(f"{name}={value!r}: the group says that")


def test_no_partitions_are_not_all_and_not_none(make: Make) -> None:
    """pykafka took them for all; a consumer of none waits for ever."""
    for none in ([], (), {}):
        assert "partitions=[]: name at least one partition; None is all of them" in refused(make, "simple", partitions=none)


@pytest.mark.parametrize("kind", ["simple", "managed", "balanced", "native"])
@pytest.mark.parametrize("rack", ["x" * 40_000, "\ud800"])
def test_a_text_that_no_request_can_carry(make: Make, kind: str, rack: str) -> None:
    assert "client_rack=" in refused(make, kind, client_rack=rack)


def test_a_dead_letters_topic_is_named_as_it_was_given(make: Make) -> None:
    error = refused(make, "native", on_deserialize_error="dlq", value_deserializer=int, dead_letter="a b")
    assert error.startswith("dead_letter='a b': must be 1 to 249 of the characters")


# -- calls ---------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["simple", "managed", "balanced"])
@pytest.mark.parametrize("block", ["no", 0, None])
def test_block_is_true_or_false(make: Make, kind: str, block: Any) -> None:
    with make(kind, consumer_timeout_ms=100) as consumer:
        assert refused(consumer.consume, block) == f"block={block!r}: must be True or False"


def test_unblock_event_is_an_event(make: Make, client: KafkaClient) -> None:
    with make("simple", consumer_timeout_ms=100) as consumer:
        assert "unblock_event='x': must be an event" in refused(consumer.consume, unblock_event="x")
        event = client.handler.Event()
        event.set()
        assert consumer.consume(unblock_event=event) is None


@pytest.mark.parametrize("group", [None, "g"])
def test_a_consumer_that_was_stopped_says_so(client: KafkaClient, group: str | None) -> None:
    consumer = client.get_consumer("t", group)
    consumer.stop()
    for call in (consumer.pause, consumer.resume):
        assert isinstance(error_of(call, [("t", 0)]), ConsumerStoppedException)
    assert isinstance(error_of(consumer.seek, ("t", 0), 0), ConsumerStoppedException)


# -- commits of what is not there ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("partition", "said"),
    [
        (("t", 99), "t-99: offset 5 is not committed: the topic has no such partition, only 0 to 0"),
        (("t", -1), "t--1: offset 5 is not committed: the topic has no such partition"),
        (("none", 0), "none-0: offset 5 is not committed: there is no such topic; create it, or check the name"),
    ],
)
def test_a_commit_for_what_does_not_exist_is_told_after_one_fresh_look(
    client: KafkaClient, cluster: MockCluster, partition: tuple[str, int], said: str
) -> None:
    with client.get_consumer(group="g") as consumer:
        client.update_cluster()
        looks = cluster.count("Metadata")
        with Clock() as clock:
            error = error_of(consumer.commit, {partition: 5}, timeout=LIMIT_S)
        assert isinstance(error, UnknownTopicOrPartition), error
        assert said in str(error)
        assert (error.topic, error.partition, error.group) == (*partition, "g")
        assert clock.seconds < 30
        assert cluster.count("Metadata") == looks + 1
    client.update_cluster()
    assert list(client.topics) == ["t"], "a look creates nothing"


@pytest.mark.parametrize("partition", [("t", 99), ("none", 0)])
def test_a_member_of_a_group_does_not_have_what_does_not_exist(
    client: KafkaClient, cluster: MockCluster, run: Runner, partition: tuple[str, int]
) -> None:
    with client.get_consumer("t", "g") as consumer:
        run.until(lambda: consumer.consume_batch(1, timeout_ms=10) or consumer.assignment())
        with Clock() as clock:
            assert isinstance(error_of(consumer.commit, {partition: 5}), CommitFailedError)
        assert clock.seconds < 30
        assert cluster.count("OffsetCommit") == 0


@pytest.mark.parametrize("kind", ["simple", "managed", "balanced"])
def test_so_it_is_of_pykafkas_consumers(make: Make, cluster: MockCluster, kind: str) -> None:
    with make(kind, consumer_timeout_ms=100, offsets_channel_backoff_ms=60_000) as consumer:
        consumer.consume()
        with Clock() as clock:
            error = error_of(consumer.commit_offsets, [(99, 5)])
        assert isinstance(error, UnknownTopicOrPartition), error
        assert "t-99: offset 5 is not committed: the topic has no such partition, only 0 to 0" in str(error)
        assert clock.seconds < 30, "before offsets_channel_backoff_ms"


def test_what_else_such_a_commit_holds_is_committed(client: KafkaClient, cluster: MockCluster) -> None:
    with client.get_consumer(group="g") as consumer:
        assert isinstance(error_of(consumer.commit, {("t", 0): 0, ("t", 99): 5}), UnknownTopicOrPartition)
    assert cluster.committed("g")["t", 0].offset == 0


def test_a_partition_that_has_just_come_into_being_is_committed_as_soon_as_the_coordinator_knows_it(
    client: KafkaClient, cluster: MockCluster
) -> None:
    """The coordinator lags behind the broker that was asked for metadata."""
    cluster.on("OffsetCommit", Error(3), times=2)
    with client.get_consumer(group="g") as consumer:
        consumer.commit({("t", 0): 0}, timeout=LIMIT_S)
    assert cluster.committed("g")["t", 0].offset == 0


@pytest.mark.parametrize("kind", ["simple", "managed", "balanced"])
def test_a_partition_object_of_another_topic_is_not_taken_for_one_of_this(make_cluster: Any, connect: Any, run: Runner, kind: str) -> None:
    client = connect(make_cluster(1, {"t": 1, "other": 1}))
    stranger = client.topics["other"].partitions[0]
    options = {"simple": {}, "managed": {"managed": True}, "balanced": {"zookeeper": zoo_client(run, Zoo())}}[kind]
    get = client.topics["t"].get_simple_consumer if kind == "simple" else client.topics["t"].get_balanced_consumer
    with get("g", consumer_timeout_ms=100, **options) as consumer:
        consumer.consume()
        for call in (consumer.commit_offsets, consumer.reset_offsets):
            assert "is of another topic, this consumer consumes 't'" in refused(call, [(stranger, 5)])
        assert consumer.held_offsets == {0: -2}
    assert "of another topic" in refused(client.topics["t"].get_simple_consumer, partitions=[stranger])


@pytest.mark.parametrize("kind", ["managed", "balanced"])
def test_a_member_commits_nothing_for_another(make_cluster: Any, connect: Any, run: Runner, kind: str) -> None:
    cluster = make_cluster(1, {"t": 2})
    zoo, topic = Zoo(), connect(cluster).topics["t"]
    options: dict[str, Any] = {"consumer_timeout_ms": 100, "rebalance_backoff_ms": 50, "rebalance_max_retries": 1000}

    def join() -> Any:
        of = {"managed": True, "heartbeat_interval_ms": 50} if kind == "managed" else {"zookeeper": zoo_client(run, zoo)}
        return topic.get_balanced_consumer("g", **of, **options)

    first, second = join(), run.aside(join).result()
    run.until(lambda: [c.consume() for c in (first, second)] and {*first.partitions} ^ {*second.partitions} == {0, 1})
    (theirs,) = second.partitions
    error = error_of(first.commit_offsets, [(theirs, 5)])
    assert isinstance(error, CommitFailedError), error
    assert f"partition(s) [{theirs}] of 't' are not this member's of group 'g'" in str(error)
    assert {at.offset for at in cluster.committed("g").values()} <= {0}, "a rebalance commits where they stand"
    second.commit_offsets([(theirs, 5)])
    assert cluster.committed("g")["t", theirs].offset == 5
    first.stop()
    second.stop()
