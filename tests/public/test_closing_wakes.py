"""close() of a client, or stop() of a consumer, while another worker waits in a call: that ends, and says why."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.common import TopicPartition
from gkafka.exceptions import ClientClosedError, CommitFailedError, ConsumerStoppedException
from gkafka.kafka import KafkaConsumer
from gkafka.kafka.errors import IllegalStateError
from gkafka.kafka.legacy import KafkaClient as LegacyClient
from gkafka.kafka.legacy import SimpleConsumer as LegacyConsumer
from gkafka.testing import Action, Close, Drop, Error, MockCluster
from tests.public.aids import LIMIT_S, Clock, Runner
from tests.public.zoo import zoo_client

Call = Callable[[], Any]
Make = Callable[[KafkaClient, Runner], Call]
CLOSE_S = 0.1
NOT_AVAILABLE, LOADING, NOT_LEADER = 15, 14, 6
SILENT, CLOSES = Drop(), Close()
ENDS = (ClientClosedError, ConsumerStoppedException, CommitFailedError)


def member(client: KafkaClient, **options: Any) -> Any:
    consumer = client.get_consumer("t", "g", auto_commit=False, **options)
    while not consumer.assignment():
        consumer.consume(50)
    return consumer


def balanced(client: KafkaClient, run: Runner) -> Call:
    return lambda: client.topics["t"].get_balanced_consumer("g", managed=True)


def balanced_by_zookeeper(client: KafkaClient, run: Runner) -> Call:
    zoo = zoo_client(run)
    return lambda: client.topics["t"].get_balanced_consumer("g", zookeeper=zoo)


def simple(client: KafkaClient, run: Runner) -> Call:
    return lambda: client.topics["t"].get_simple_consumer("g")


def share(client: KafkaClient, run: Runner) -> Call:
    return lambda: client.get_consumer("t", "g").consume(LIMIT_S * 1000)


def assign(client: KafkaClient, run: Runner) -> Call:
    consumer = client.get_consumer(group="g")
    return lambda: consumer.assign([("t", 0)])


def position(client: KafkaClient, run: Runner) -> Call:
    consumer = client.get_consumer("t")
    return lambda: consumer.wait_for_position(TopicPartition("t", 0), LIMIT_S)


def consume(client: KafkaClient, run: Runner) -> Call:
    consumer = client.get_consumer("t")
    return lambda: consumer.consume(LIMIT_S * 1000)


def consume_simple(client: KafkaClient, run: Runner) -> Call:
    return client.topics["t"].get_simple_consumer().consume


def consume_balanced(client: KafkaClient, run: Runner) -> Call:
    return client.topics["t"].get_balanced_consumer("g", managed=True).consume


def consume_as_member(client: KafkaClient, run: Runner) -> Call:
    consumer = member(client)
    return lambda: consumer.consume(LIMIT_S * 1000)


def commit(client: KafkaClient, run: Runner) -> Call:
    consumer = member(client)
    return lambda: consumer.commit({("t", 0): 0})


def commit_simple(client: KafkaClient, run: Runner) -> Call:
    consumer = client.topics["t"].get_simple_consumer("g")
    return lambda: consumer.commit_offsets([(0, 0)])


def commit_while_it_rebalances(client: KafkaClient, run: Runner) -> Call:
    consumer = member(client, heartbeat_interval_ms=50)

    def call() -> None:
        consumer._share._member.rejoin("a test")
        run.until(lambda: not consumer._share._member.takes_commits)
        consumer.commit({("t", 0): 0})

    return call


def fetch_offsets(client: KafkaClient, run: Runner) -> Call:
    return client.topics["t"].get_simple_consumer("g").fetch_offsets


def reset_offsets(client: KafkaClient, run: Runner) -> Call:
    return client.topics["t"].get_simple_consumer("g").reset_offsets


def committed(client: KafkaClient, run: Runner) -> Call:
    consumer = client.get_consumer(group="g")
    return lambda: consumer.committed(("t", 0))


def offsets_for_times(client: KafkaClient, run: Runner) -> Call:
    consumer = client.get_consumer("t")
    return lambda: consumer.offsets_for_times({("t", 0): 0})


def list_offsets(client: KafkaClient, run: Runner) -> Call:
    return lambda: client.list_offsets({("t", 0): -1})


def partitions(client: KafkaClient, run: Runner) -> Call:
    return lambda: client.partitions("t")


def topic(client: KafkaClient, run: Runner) -> Call:
    return lambda: client.topics["t"]


def update_cluster(client: KafkaClient, run: Runner) -> Call:
    return client.update_cluster


def fetch_raw(client: KafkaClient, run: Runner) -> Call:
    return lambda: client.fetch_raw("t", 0, 0, timeout=LIMIT_S)


def describe_groups(client: KafkaClient, run: Runner) -> Call:
    admin = client.admin()
    return lambda: admin.describe_groups(["g"])


def case(make: Make, api: str = "", action: Action | None = None, *, before: bool = True, quick: bool = True) -> Any:
    how = "" if action is None else f"{api}-{'Error' if isinstance(action, Error) else type(action).__name__}"
    marks = () if quick else pytest.mark.thorough
    return pytest.param(make, api, action, before, id=f"{make.__name__}-{how}".rstrip("-"), marks=marks)


seen: set[Make] = set()


def cases(make: Make, api: str, *actions: Action, before: bool = True) -> Iterable[Any]:
    """Of each call the first request with all actions; of its others the first action, the rest is thorough: they wait in the same places."""
    is_new = make not in seen
    seen.add(make)
    return [case(make, api, action, before=before, quick=is_new or action is actions[0]) for action in actions]


WAITS = [
    *cases(balanced, "FindCoordinator", SILENT, CLOSES, Error(NOT_AVAILABLE)),
    *cases(balanced, "JoinGroup", SILENT, CLOSES, Error(NOT_AVAILABLE)),
    *cases(balanced, "SyncGroup", SILENT, CLOSES),
    *cases(balanced, "OffsetFetch", SILENT, CLOSES, Error(LOADING)),
    *cases(balanced, "ListOffsets", SILENT, CLOSES),
    *cases(balanced, "Metadata", SILENT),
    *cases(balanced_by_zookeeper, "OffsetFetch", SILENT, CLOSES, Error(LOADING)),
    *cases(balanced_by_zookeeper, "ListOffsets", SILENT, CLOSES),
    *cases(simple, "FindCoordinator", SILENT, CLOSES, Error(NOT_AVAILABLE)),
    *cases(simple, "OffsetFetch", SILENT, CLOSES, Error(LOADING)),
    *cases(simple, "ListOffsets", SILENT, CLOSES, Error(NOT_LEADER)),
    *cases(simple, "Metadata", SILENT),
    *cases(share, "FindCoordinator", SILENT, CLOSES, Error(NOT_AVAILABLE)),
    *cases(share, "JoinGroup", SILENT, CLOSES),
    *cases(share, "SyncGroup", SILENT, CLOSES),
    *cases(share, "OffsetFetch", SILENT, CLOSES, Error(LOADING)),
    *cases(share, "Metadata", SILENT),
    *cases(assign, "FindCoordinator", SILENT, CLOSES, Error(NOT_AVAILABLE)),
    *cases(assign, "OffsetFetch", SILENT, CLOSES, Error(LOADING)),
    *cases(assign, "Metadata", SILENT),
    *cases(position, "ListOffsets", SILENT, CLOSES, Error(NOT_LEADER)),
    *map(case, (consume, consume_simple, consume_balanced, consume_as_member)),
    *cases(commit, "OffsetCommit", SILENT, CLOSES, before=False),
    *cases(commit_simple, "OffsetCommit", SILENT, CLOSES, Error(LOADING), before=False),
    *cases(commit_while_it_rebalances, "JoinGroup", SILENT, CLOSES, before=False),
    *cases(fetch_offsets, "OffsetFetch", SILENT, CLOSES, Error(LOADING), before=False),
    *cases(reset_offsets, "ListOffsets", SILENT, CLOSES, Error(NOT_LEADER), before=False),
    *cases(committed, "OffsetFetch", SILENT, CLOSES, Error(LOADING)),
    *cases(offsets_for_times, "ListOffsets", SILENT, CLOSES),
    *cases(list_offsets, "ListOffsets", SILENT, CLOSES, Error(NOT_LEADER)),
    *cases(partitions, "Metadata", SILENT),
    *cases(topic, "Metadata", SILENT),
    *cases(update_cluster, "Metadata", SILENT),
    *cases(fetch_raw, "Metadata", SILENT),
    *cases(describe_groups, "DescribeGroups", SILENT, CLOSES),
]


@pytest.mark.parametrize(("make", "api", "action", "before"), WAITS)
def test_the_close_of_a_client_ends_each_wait(
    client: KafkaClient, cluster: MockCluster, run: Runner, make: Make, api: str, action: Action | None, before: bool
) -> None:
    """api, action: what keeps the call waiting, from before the consumer is made or from after that."""
    if api != "Metadata":
        client.connect()
    if before and action is not None:
        cluster.on(api, action, times=None)
    call = make(client, run)
    if not before and action is not None:
        cluster.on(api, action, times=None)
    asked = cluster.count(api) if not before else 0
    waiting = run.aside(call)
    if action is None:
        run.sleep(0.1)
    else:
        run.until(lambda: cluster.count(api) > asked + (not isinstance(action, Drop)))  # two tries: it pauses between them
    assert waiting.running, waiting.error or waiting.value
    client.close(CLOSE_S)
    run.until(lambda: not waiting.running)
    assert isinstance(waiting.error, ENDS), waiting.error or waiting.value
    run.until(lambda: not any(w.is_alive() for w in client.handler.workers()))


@pytest.mark.parametrize("managed", [True, False])
def test_a_consumer_that_is_stopped_while_it_starts_says_so_and_can_start_again(
    client: KafkaClient, cluster: MockCluster, run: Runner, managed: bool
) -> None:
    how = {"managed": True} if managed else {"zookeeper": zoo_client(run)}
    consumer = client.topics["t"].get_balanced_consumer("g", auto_start=False, consumer_timeout_ms=100, **how)
    cluster.on("OffsetFetch", Error(LOADING), times=None)
    starting = run.aside(consumer.start)
    run.until(lambda: cluster.count("OffsetFetch") >= 1)
    with Clock() as clock:
        consumer.close(CLOSE_S)
        run.until(lambda: not starting.running)
    assert clock.seconds < 30
    assert isinstance(starting.error, ConsumerStoppedException), starting.error
    assert consumer.closed
    cluster.clear_script()
    run.until(lambda: consumer._member is None if managed else consumer._registry is None)
    consumer.stop()
    consumer.start()
    assert list(consumer.partitions) == [0]
    consumer.stop()


@pytest.mark.parametrize("managed", [True, False])
def test_a_consumer_that_its_own_callback_stops_while_it_starts_is_made(client: KafkaClient, run: Runner, managed: bool) -> None:
    how = {"managed": True} if managed else {"zookeeper": zoo_client(run)}
    consumer = client.topics["t"].get_balanced_consumer("g", post_rebalance_callback=lambda it, before, after: it.stop(), **how)
    assert consumer.closed
    consumer.stop()


def poll(consumer: KafkaConsumer) -> Any:
    return consumer.poll(LIMIT_S * 1000)


def records(consumer: KafkaConsumer) -> Any:
    return next(iter(consumer), None)


OF_KAFKA = {
    "poll": ("JoinGroup", poll),
    "iteration": ("JoinGroup", records),
    "partitions_for_topic": ("Metadata", lambda consumer: consumer.partitions_for_topic("t")),
    "topics": ("Metadata", KafkaConsumer.topics),
    "end_offsets": ("ListOffsets", lambda consumer: consumer.end_offsets([TopicPartition("t", 0)])),
    "committed": ("OffsetFetch", lambda consumer: consumer.committed(TopicPartition("t", 0))),
    "commit": ("OffsetCommit", lambda consumer: consumer.commit()),
}


@pytest.mark.parametrize("name", OF_KAFKA)
@pytest.mark.parametrize("action", [SILENT, CLOSES], ids=["Drop", "Close"])
def test_the_close_of_a_kafka_consumer_ends_each_wait(cluster: MockCluster, run: Runner, action: Action, name: str) -> None:
    api, call = OF_KAFKA[name]
    if (name, action) in (("partitions_for_topic", CLOSES), ("topics", CLOSES)):
        pytest.skip("that is an error, and no wait")
    consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap, group_id="g", handler=run.name, enable_auto_commit=False)
    try:
        if name in ("commit", "committed"):
            consumer.subscribe(["t"])
            while not consumer.assignment():
                consumer.poll(50)
            consumer.position(TopicPartition("t", 0))  # without one there is nothing to commit
        cluster.on(api, action, times=None)
        if name in ("poll", "iteration"):
            consumer.subscribe(["t"])
        waiting = run.aside(call, consumer)
        run.until(lambda: cluster.count(api) >= 1)
        run.sleep(0.1)
        assert waiting.running, waiting.error or waiting.value
        consumer.close(timeout_ms=CLOSE_S * 1000)
        run.until(lambda: not waiting.running)
        assert (
            waiting.error is None
            or re.search("closed|not this member's", str(waiting.error))
            or isinstance(waiting.error, IllegalStateError)
        ), waiting.error
        assert waiting.error is not None or name in ("poll", "iteration")
    finally:
        consumer.close(timeout_ms=0)


def test_the_close_of_a_legacy_client_ends_the_wait_for_messages(cluster: MockCluster, run: Runner) -> None:
    client = LegacyClient(cluster.bootstrap, handler=run.name)
    consumer = LegacyConsumer(client, "g", "t", auto_commit=False)
    waiting = run.aside(lambda: consumer.get_messages(1, block=True, timeout=LIMIT_S))
    run.sleep(0.2)
    assert waiting.running
    client.close()
    run.until(lambda: not waiting.running)
