"""consumer.explain() and the watchdog: why a partition is, or is not, being delivered."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.brokererrors import error_for
from gkafka.common import TopicPartition
from gkafka.consumer import Consumer
from gkafka.core.standing import Reason
from gkafka.exceptions import OffsetOutOfRangeError, TopicAuthorizationFailed
from gkafka.managedbalancedconsumer import ManagedBalancedConsumer
from gkafka.testing import Delay, Error, MockCluster
from tests.public.aids import Runner, fill, read

T0 = TopicPartition("t", 0)
Make = Callable[..., Consumer]


@pytest.fixture
def make(client: KafkaClient) -> Any:
    made: list[Consumer] = []

    def consumer(topics: Any = "t", **options: Any) -> Consumer:
        made.append(client.get_consumer(topics, **{"fetch_error_backoff_ms": 10, "fetch_wait_max_ms": 50, **options}))
        return made[-1]

    yield consumer
    for each in made:
        each.stop()


def reason(consumer: Consumer) -> Reason:
    return consumer.explain().partitions[T0].reason


def becomes(run: Runner, consumer: Consumer, wanted: Reason) -> str:
    """The sentence that goes with it."""
    return run.until(lambda: (report := consumer.explain().partitions[T0]).reason is wanted and report.text)


def test_what_is_there_what_was_handed_out_and_what_is_paused(client: KafkaClient, make: Make, run: Runner) -> None:
    fill(client, [b"%d" % i for i in range(5)])
    consumer = make()
    assert "5 messages from offset 0 on" in becomes(run, consumer, Reason.READY)
    report = consumer.explain().partitions[T0]
    assert (report.position, report.end, report.lag, report.buffered) == (0, 5, 5, 5)
    read(consumer, 5)
    assert "up to offset 5" in becomes(run, consumer, Reason.CAUGHT_UP)
    assert consumer.explain().partitions[T0].lag == 0
    consumer.pause([T0])
    assert "resume()" in becomes(run, consumer, Reason.PAUSED)
    assert str(consumer.explain()).startswith("t-0: paused by the application at offset 5")
    assert str(client.get_consumer().explain()) == "no partition is read"


def test_errors_are_named_with_what_goes_on(client: KafkaClient, cluster: MockCluster, make: Make, run: Runner) -> None:
    fill(client, [b"x"] * 5)
    cluster.on("Fetch", Error(56), times=1000)
    consumer = make(fetch_error_backoff_ms=5000)
    text = becomes(run, consumer, Reason.FAILED)
    assert "KafkaStorageError" in text
    assert "trying again in" in text


def test_a_partition_without_a_leader(client: KafkaClient, make_cluster: Any, connect: Any, run: Runner) -> None:
    cluster = make_cluster(brokers=2, topics={})
    client = connect(cluster)
    client.create_topic("t", 1, replication_factor=1)
    consumer = client.get_consumer("t", fetch_error_backoff_ms=10)
    run.until(lambda: reason(consumer) is Reason.CAUGHT_UP)
    cluster.stop_broker(cluster.leader("t", 0))
    assert "no leader" in becomes(run, consumer, Reason.NO_LEADER)
    consumer.stop()


def test_what_is_damaged_or_out_of_range_says_what_the_next_call_raises(
    client: KafkaClient, cluster: MockCluster, make: Make, run: Runner
) -> None:
    fill(client, [b"x"] * 10, batches=10)
    consumer = make(None, auto_offset_reset="none")
    cluster.delete_records("t", 0, 5)
    consumer.assign({T0: 2})
    text = becomes(run, consumer, Reason.HALTED)
    assert "seek()" in text
    assert isinstance(consumer.explain().partitions[T0].error, OffsetOutOfRangeError)


def test_a_partition_that_is_refused_is_told_of_as_long_as_that_lasts_and_goes_on_afterwards(
    client: KafkaClient, cluster: MockCluster, make: Make, run: Runner, caplog: pytest.LogCaptureFixture
) -> None:
    fill(client, [b"x"])
    consumer = make(stall_warning_ms=300)
    assert read(consumer, 1)[0].value == b"x"
    cluster.on("Fetch", Error(29), times=None)
    for _ in range(3):
        with pytest.raises(TopicAuthorizationFailed):
            consumer.consume(60_000)
    error = consumer.explain().partitions[T0].error
    assert isinstance(error, TopicAuthorizationFailed)
    run.until(lambda: any("has stood still" in r.getMessage() and "TopicAuthorizationFailed" in r.getMessage() for r in caplog.records))
    cluster.clear_script()
    fill(client, [b"y"])
    run.until(lambda: reason(consumer) is Reason.READY)
    assert read(consumer, 1)[0].value == b"y"
    with contextlib.suppress(TopicAuthorizationFailed):  # what was met before that
        consumer.consume(0)
    assert consumer.explain().partitions[T0].error is None


def test_what_keeps_a_member_from_joining_is_named(client: KafkaClient, cluster: MockCluster, make: Make, run: Runner) -> None:
    cluster.on("JoinGroup", Error(14), times=None)
    consumer = make("t", group="g")
    consumer.consume(0)
    run.until(lambda: "tried again after GroupLoadInProgress" in consumer.explain().group)
    cluster.clear_script()
    fill(client, [b"x"])
    assert read(consumer, 1)[0].value == b"x"
    assert "tried again" not in consumer.explain().group


def test_an_open_transaction_that_hides_what_is_behind_it(client: KafkaClient, connect: Any, make_cluster: Any, run: Runner) -> None:
    cluster = make_cluster(topics={"t": 1})
    with connect(cluster) as other:
        fill(other, [b"before"])
        producer = other.get_producer(transactional_id="x")
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("t", b"open", partition=0).result(60)
        consumer = other.get_consumer("t", fetch_wait_max_ms=50)
        read(consumer, 1)
        assert "an open transaction hides everything from offset 1 on" in becomes(run, consumer, Reason.OPEN_TRANSACTION)
        producer.commit_transaction()
        read(consumer, 1)
        assert becomes(run, consumer, Reason.CAUGHT_UP)
        consumer.stop()
        producer.close()


def test_a_consumer_that_holds_as_much_as_it_may(client: KafkaClient, make_cluster: Any, connect: Any, run: Runner) -> None:
    client = connect(make_cluster(topics={"t": 2}))
    fill(client, [b"x" * 1000] * 50, batches=50, partition=1)
    consumer = client.get_consumer("t", queued_max_bytes=4000, fetch_max_bytes=2000, fetch_message_max_bytes=2000, fetch_wait_max_ms=50)
    assert "queued_max_bytes" in becomes(run, consumer, Reason.QUEUE_FULL)
    consumer.stop()


def test_stall_warning_ms_tells_once_of_a_partition_that_has_stood_still(
    client: KafkaClient, cluster: MockCluster, make: Make, run: Runner, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="gkafka.explaining")
    consumer, quiet = make(stall_warning_ms=200), make(stall_warning_ms=0)
    fill(client, [b"0"])
    read(consumer, 1)  # what this took may have been told as well
    caplog.clear()
    before = consumer.stats()["stall_warnings"]
    fill(client, [b"x"] * 5)
    run.until(lambda: consumer.stats()["stall_warnings"] == before + 1)
    assert run.stays(lambda: consumer.stats()["stall_warnings"] == before + 1, 2.2), "once"
    told = [record.getMessage() for record in caplog.records if "stood still" in record.getMessage()]
    (line,) = told
    assert line.startswith(
        "t-0 has stood still for 0.2 s: 5 messages from offset 1 on are here and wait for the application to ask for them"
    )
    read(consumer, 5)
    run.until(lambda: reason(consumer) is Reason.CAUGHT_UP)
    assert run.stays(lambda: consumer.stats()["stall_warnings"] == before + 1, 2.2), "there is nothing to read"
    cluster.on("Fetch", Delay(60))
    fill(client, [b"y"])
    consumer.seek(T0, 2)
    run.until(lambda: consumer.stats()["stall_warnings"] == before + 2)
    assert quiet.stats()["stall_warnings"] == 0


# -- pykafka's consumers -----------------------------------------------------------------------------------------------------------
def test_a_simple_consumer_explains_itself_running_and_stopped(client: KafkaClient, run: Runner) -> None:
    fill(client, [b"%d" % i for i in range(5)])
    consumer = client.topics["t"].get_simple_consumer(consumer_timeout_ms=1000)
    assert "5 messages from offset 0 on" in becomes(run, consumer, Reason.READY)
    assert consumer.explain().group == ""
    read(consumer, 3)
    consumer.stop()
    report = consumer.explain().partitions[T0]
    assert (report.reason, report.position) == (Reason.STOPPED, 3)
    assert str(consumer.explain()) == "t-0: the consumer is stopped at offset 3"
    consumer.start()
    read(consumer, 5)
    assert "up to offset 5" in becomes(run, consumer, Reason.CAUGHT_UP)
    consumer.stop()


def test_a_consumer_that_was_never_started_says_so(client: KafkaClient) -> None:
    topic = client.topics["t"]
    assert str(topic.get_simple_consumer(auto_start=False).explain()) == "t-0: the consumer is stopped"
    managed = topic.get_balanced_consumer("g", managed=True, auto_start=False)
    assert str(managed.explain()) == "group g: the consumer is not running: start() joins\nno partition is read"


def test_the_watchdog_tells_of_a_simple_consumers_partition(client: KafkaClient, run: Runner, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="gkafka.explaining")
    with client.topics["t"].get_simple_consumer(stall_warning_ms=200) as consumer:
        fill(client, [b"0"])
        read(consumer, 1)  # what this took may have been told, too, but as something else
        fill(client, [b"x"] * 5)
        run.until(lambda: "t-0 has stood still for 0.2 s: 5 messages from offset 1 on" in caplog.text)


def test_a_managed_member_explains_where_it_stands_and_what_it_waits_for(
    client: KafkaClient, cluster: MockCluster, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(client, [b"x"] * 5)
    cluster.on("OffsetFetch", Error(14), times=None)
    topic = client.topics["t"]
    options = {"rebalance_max_retries": 0, "rebalance_backoff_ms": 50, "offsets_commit_max_retries": 0, "consumer_timeout_ms": 100}
    consumer = topic.get_balanced_consumer("g", managed=True, **options)
    run.until(lambda: "OffsetFetch of group 'g'" in becomes(run, consumer, Reason.NO_START))
    assert consumer.explain().group.startswith("group g: in the group, generation 1, member ")
    run.until(lambda: f"; the next call raises {type(error_for(14)).__name__}: OffsetFetch" in consumer.explain().group)
    cluster.clear_script()
    run.until(lambda: reason(consumer) is Reason.READY)
    with monkeypatch.context() as patch:
        patch.setattr(ManagedBalancedConsumer, "_may_deliver", lambda self: False)
        assert "nothing is handed out while others may have the partition: in the group" in becomes(run, consumer, Reason.NOT_OURS)
    consumer.stop()
    assert str(consumer.explain()).startswith("group g: the consumer is not running: start() joins")
    assert not consumer.explain().partitions


def test_a_native_consumer_that_was_stopped_says_so(make: Make, run: Runner) -> None:
    consumer = make(None)
    consumer.assign({T0: 0})
    consumer.stop()
    assert reason(consumer) is Reason.STOPPED


def test_the_watchdog_does_not_blame_an_application_that_is_given_nothing(
    client: KafkaClient, run: Runner, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="gkafka.explaining")
    fill(client, [b"x"] * 5)
    consumer = client.topics["t"].get_simple_consumer(auto_start=False, stall_warning_ms=200)
    consumer._may_deliver = lambda: False
    consumer.start()
    run.until(lambda: "t-0 has stood still for 0.2 s: nothing is handed out while others may have the partition" in caplog.text)
    consumer.stop()
