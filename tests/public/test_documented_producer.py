"""pykafka's Producer: its keywords to the letter, its partitioners, what it says when it is misused."""

from __future__ import annotations

import datetime
from collections import Counter
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.exceptions import (
    ConfigurationError,
    DeliveryError,
    KafkaException,
    ProduceFailureError,
    ProducerQueueFullError,
    SerializationError,
)
from gkafka.partitioners import GroupHashingPartitioner, HashingPartitioner, RandomPartitioner, RoundRobinPartitioner, hashing_partitioner
from gkafka.producer import OwnedBroker, Producer
from gkafka.testing import Delay, Drop, Error, MockCluster
from tests.kit.clock import now
from tests.public.aids import LIMIT_S, Clock, Held, Runner, error_of, stored, stored_values


# -- how many wait ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("partitioner", [None, RoundRobinPartitioner()])
def test_never_more_than_max_queued_messages_wait_whoever_produces(connect: Any, make_cluster: Any, run: Runner, partitioner: Any) -> None:
    cluster = make_cluster(topics={"t": 3})
    cluster.on("Produce", Delay(0.05), times=None)
    producer = connect(cluster).topics["t"].get_producer(max_queued_messages=20, linger_ms=0, partitioner=partitioner)
    most = 0

    def work(n: int) -> None:
        nonlocal most
        for i in range(50):
            producer.produce(b"%d-%d" % (n, i))
            most = max(most, producer.pending)

    for worker in [run.aside(work, n) for n in range(4)]:
        worker.result()
    producer.stop()
    assert most <= 20
    assert producer.pending == 0
    assert len(set(stored_values(cluster, "t", range(3)))) == 200


def test_min_queued_messages_counts_what_is_not_sent_yet(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    producer = client.topics["t"].get_producer(min_queued_messages=10, linger_ms=60_000)
    for i in range(9):
        producer.produce(b"%d" % i)
    producer._engine.send_now()  # as a linger that is over would
    run.until(lambda: len(stored(cluster)) == 9)
    for i in range(9):
        producer.produce(b"again %d" % i)
    assert run.stays(lambda: len(stored(cluster)) == 9, 0.1), "those that went by themselves do not count"
    producer.produce(b"tenth")
    run.until(lambda: len(stored(cluster)) == 19)
    producer.stop()


def test_a_message_that_was_refused_takes_no_place(client: KafkaClient) -> None:
    producer = client.topics["t"].get_producer(max_queued_messages=2, block_on_queue_full=False, linger_ms=60_000)
    for _ in range(5):
        assert isinstance(error_of(producer.produce, "text"), SerializationError)
    producer.produce(b"1")
    producer.produce(b"2")
    assert isinstance(error_of(producer.produce, b"3"), ProducerQueueFullError)
    producer.stop()


def test_a_producer_may_be_derived_from(client: KafkaClient, cluster: MockCluster) -> None:
    class Loud(Producer):
        def produce(self, message: Any, partition_key: Any = None, timestamp: Any = None) -> Any:
            return super().produce(message.upper(), partition_key, timestamp)

    with Loud(client.cluster, client.topics["t"]) as producer:
        producer.produce(b"v")
    assert stored_values(cluster) == [b"V"]


# -- waiting ---------------------------------------------------------------------------------------------------------------
def test_a_sync_message_without_an_outcome_in_pending_timeout_ms_is_told(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    producer = client.topics["t"].get_sync_producer(pending_timeout_ms=200)
    cluster.on("Produce", held := Held(), times=1)
    with Clock() as clock:
        error = error_of(producer.produce, b"v")
    assert isinstance(error, ProduceFailureError)
    assert "pending_timeout_ms=200" in str(error)
    assert 0.15 < clock.seconds < 30
    held.released = True
    run.until(lambda: stored_values(cluster) == [b"v"])
    producer.stop()


def test_a_sync_message_that_was_still_being_delivered_is_told_by_stop_when_it_is_given_up(
    client: KafkaClient, cluster: MockCluster, run: Runner
) -> None:
    producer = client.topics["t"].get_sync_producer(pending_timeout_ms=200)
    cluster.on("Produce", Drop(before=True), times=None)
    assert isinstance(error_of(producer.produce, b"left behind"), ProduceFailureError)
    run.until(lambda: cluster.count("Produce"))
    told = error_of(producer.stop)
    assert isinstance(told, DeliveryError)
    assert [(entry.record.value, entry.persisted) for entry in told.records] == [(b"left behind", "maybe")]
    producer.stop()  # told once


def test_pending_timeout_ms_of_minus_one_waits_for_every_outcome(client: KafkaClient, cluster: MockCluster) -> None:
    cluster.on("Produce", Delay(0.3), times=2)
    with client.topics["t"].get_sync_producer(pending_timeout_ms=-1) as producer:
        producer.produce(b"sync")
    with client.topics["t"].get_producer(pending_timeout_ms=-1) as producer:
        producer.produce(b"stop")
    assert stored_values(cluster) == [b"sync", b"stop"]


class Rests:
    """The event that wakes a producer's worker; `asked`: how long the worker wanted to wait for it, each time. Nothing outside shows that."""

    def __init__(self, wake: Any) -> None:
        self._wake = wake
        self.asked: list[float] = []

    def wait(self, seconds: float) -> Any:
        self.asked.append(seconds)
        return self._wake.wait(seconds)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wake, name)


def rests_of(producer: Any) -> list[float]:
    """How long its worker rests, from now on."""
    worker = producer._engine._driver.worker
    worker.signal = rests = Rests(worker.signal)
    return rests.asked


@pytest.mark.parametrize(("queue_empty_timeout_ms", "rest_s"), [(0, 1.0), (20, 0.02)])
def test_queue_empty_timeout_ms_is_how_long_an_idle_worker_rests(
    client: KafkaClient, cluster: MockCluster, run: Runner, queue_empty_timeout_ms: int, rest_s: float
) -> None:
    producer = client.topics["t"].get_producer(linger_ms=0, queue_empty_timeout_ms=queue_empty_timeout_ms)
    producer.produce(b"v").result(LIMIT_S)
    rests = rests_of(producer)
    run.until(lambda: len(rests) >= 2)
    assert all(0.9 * rest_s <= rest <= 2 * rest_s for rest in rests[1:]), rests  # the first may be one after the message
    assert producer.produce(b"w").result(LIMIT_S).offset == 1, "what is produced wakes it"
    producer.stop()


def test_queue_empty_timeout_ms_of_minus_one_lets_an_idle_worker_rest(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    producer = client.topics["t"].get_producer(linger_ms=0, queue_empty_timeout_ms=-1)
    producer.produce(b"v").result(LIMIT_S)
    worker = producer._engine._driver.worker
    run.until(lambda: worker._sleeps_until > now() + 5)  # it was awake for the first message until now
    rests = rests_of(producer)
    assert run.stays(lambda: not rests, 1.3)
    assert producer.produce(b"w").result(LIMIT_S).offset == 1, "what is produced wakes it"
    producer.stop()


# -- reports ---------------------------------------------------------------------------------------------------------------
def test_delivery_reports_are_the_calling_workers_own(client: KafkaClient, run: Runner) -> None:
    producer = client.topics["t"].get_producer(delivery_reports=True, linger_ms=0)

    def work(name: bytes) -> list[bytes | None]:
        for _ in range(10):
            producer.produce(name)
        return [producer.get_delivery_report(timeout=LIMIT_S)[0].value for _ in range(10)]

    workers = {name: run.aside(work, name) for name in (b"a", b"b", b"c")}
    assert {name: set(worker.result()) for name, worker in workers.items()} == {b"a": {b"a"}, b"b": {b"b"}, b"c": {b"c"}}
    with pytest.raises(client.handler.QueueEmptyError):
        producer.get_delivery_report(block=False)
    producer.stop()


def test_a_report_of_what_was_settled_before_it_was_asked_for_holds_the_message(client: KafkaClient, monkeypatch: Any, run: Runner) -> None:
    producer = client.topics["t"].get_producer(delivery_reports=True, linger_ms=0)
    produce = producer._engine.produce

    def settled(*record: Any) -> Any:
        delivery = produce(*record)
        delivery.result(LIMIT_S)
        run.until(lambda: delivery.record is None)
        return delivery

    monkeypatch.setattr(producer._engine, "produce", settled)
    producer.produce(b"value", b"key", timestamp=77)
    message, error = producer.get_delivery_report(timeout=LIMIT_S)
    assert (message.value, message.partition_key, message.offset, message.timestamp, error) == (b"value", b"key", 0, 77, None)
    producer.stop()


@pytest.mark.parametrize("end", ["stop", "_wait_all"])
def test_what_a_report_tells_is_not_raised_once_more_at_the_end(client: KafkaClient, cluster: MockCluster, end: str) -> None:
    """Behaviour 144 has an error raised in the caller, 147 has stop() only mark the producer as stopped, and pykafka 2.8 gives "an Exception
    in case of failed delivery" in the report of its message: that is where it is told. What nobody has heard of the end alone can tell.
    """
    producer = client.topics["t"].get_producer(delivery_reports=True, linger_ms=0)
    cluster.on("Produce", Error(29))
    producer.produce(b"v")
    message, error = producer.get_delivery_report(timeout=LIMIT_S)
    getattr(producer, end)()
    assert (message.value, type(error).__name__) == (b"v", "TopicAuthorizationFailed")
    with pytest.raises(client.handler.QueueEmptyError):
        producer.get_delivery_report(block=False)
    producer.stop()


def test_the_end_raises_what_no_report_was_taken_of_and_the_reports_are_there_all_the_same(
    client: KafkaClient, cluster: MockCluster
) -> None:
    producer = client.topics["t"].get_producer(delivery_reports=True, linger_ms=60_000)
    cluster.on("Produce", Error(29))
    for value in (b"1", b"2", b"3"):
        producer.produce(value)
    producer._wait_all()
    assert producer.get_delivery_report(timeout=LIMIT_S)[0].value == b"1"
    error = error_of(producer.stop)
    assert isinstance(error, DeliveryError)
    assert [r.record.value for r in error.records] == [b"2", b"3"]
    assert str(error).startswith("2 record(s) were not delivered; the first: ")
    assert [producer.get_delivery_report(block=False)[0].value for _ in range(2)] == [b"2", b"3"]
    producer.stop()


def test_what_a_worker_has_not_asked_for_when_it_ended_is_raised_at_the_end(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    """Its reports went with it: the greenlet of a web request, say. stop() returned as if all was well."""
    producer = client.topics["t"].get_producer(delivery_reports=True, linger_ms=0, max_retries=1)
    producer.produce(b"delivered")
    assert producer.get_delivery_report(timeout=LIMIT_S)[1] is None
    cluster.on("Produce", Error(29), times=None)
    for number in range(5):
        run.aside(producer.produce, b"%d" % number).result()
    error = error_of(producer.stop)
    assert isinstance(error, DeliveryError)
    assert sorted(r.record.value for r in error.records) == [b"%d" % number for number in range(5)]


def test_who_has_produced_nothing_waits_for_no_report_for_ever(client: KafkaClient, run: Runner) -> None:
    producer = client.topics["t"].get_producer(delivery_reports=True, linger_ms=0)
    producer.produce(b"v")

    def ask() -> None:
        with pytest.raises(client.handler.QueueEmptyError, match="has produced nothing: reports are given to the one that called produce"):
            producer.get_delivery_report()

    run.aside(ask).result()
    assert producer.get_delivery_report()[0].value == b"v"
    producer.stop()


def test_what_stop_gives_up_has_its_report(client: KafkaClient, cluster: MockCluster) -> None:
    cluster.on("Produce", Drop(before=True), times=None)
    producer = client.topics["t"].get_producer(delivery_reports=True, linger_ms=0, pending_timeout_ms=50)
    producer.produce(b"v")
    assert isinstance(error_of(producer.stop), DeliveryError)
    message, error = producer.get_delivery_report(timeout=LIMIT_S)
    assert (message.value, type(error).__name__) == (b"v", "KafkaTimeoutError")


@pytest.mark.parametrize("end", ["stop", "_wait_all"])
def test_without_reports_the_end_raises_what_was_not_delivered(client: KafkaClient, cluster: MockCluster, end: str) -> None:
    producer = client.topics["t"].get_producer(linger_ms=0)
    cluster.on("Produce", Error(29))
    producer.produce(b"v")
    error = error_of(getattr(producer, end))
    assert isinstance(error, DeliveryError)
    assert [r.record.value for r in error.records] == [b"v"]
    producer.stop()


def test_a_sync_producer_has_no_reports(client: KafkaClient) -> None:
    with client.topics["t"].get_sync_producer(delivery_reports=True) as producer:
        producer.produce(b"v")
        assert isinstance(error_of(producer.get_delivery_report), ConfigurationError)


# -- tries -----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("max_retries", "tries"), [(0, 1), (1, 1), (3, 3)])
def test_max_retries_is_how_often_a_batch_is_tried(client: KafkaClient, cluster: MockCluster, max_retries: int, tries: int) -> None:
    cluster.on("Produce", Error(7), times=None)
    producer = client.topics["t"].get_producer(max_retries=max_retries, retry_backoff_ms=1)
    producer.produce(b"v")
    assert isinstance(error_of(producer.stop), DeliveryError)
    assert cluster.count("Produce") == tries


def test_ack_timeout_ms_is_the_brokers_time_and_not_the_clients(client: KafkaClient, cluster: MockCluster) -> None:
    cluster.on("Produce", Delay(0.3), times=1)
    with client.topics["t"].get_producer(ack_timeout_ms=50, required_acks=-1) as producer:
        producer.produce(b"v").result(LIMIT_S)
    assert [r.message.timeout_ms for r in cluster.requests("Produce")] == [50]
    assert stored_values(cluster) == [b"v"]


def test_what_ended_the_worker_is_raised_by_the_producer(client: KafkaClient) -> None:
    producer = client.topics["t"].get_producer()
    producer._raise_worker_exceptions()
    producer.produce(b"v").result(LIMIT_S)
    producer._engine._driver.died(ValueError("a bug"))
    for call in (producer._raise_worker_exceptions, producer.start, lambda: producer.produce(b"v", timestamp=1 << 70)):
        error = error_of(call)
        assert isinstance(error, ProduceFailureError)
        assert "a bug" in str(error)


# -- misuse ----------------------------------------------------------------------------------------------------------------
def fails(*_: Any) -> Any:
    raise LookupError("of the user's own")


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"partitioner": fails}, ConfigurationError, "LookupError: of the user's own"),
        ({"partitioner": lambda partitions, key: 7}, ConfigurationError, "the partitioner chose 7"),
        ({"partitioner": lambda partitions, key: None}, ConfigurationError, "the partitioner chose None"),
        ({"partitioner": HashingPartitioner()}, ValueError, "key cannot be None"),
        ({"partitioner": GroupHashingPartitioner(len, 5)}, ValueError, "only 1 partitions"),
        ({"serializer": fails}, SerializationError, "LookupError: of the user's own"),
        ({"serializer": lambda message, key: message}, SerializationError, "must return"),
        ({"serializer": lambda message, key: (1.5, key)}, SerializationError, "float"),
    ],
)
def test_user_code_that_fails_is_told_and_the_producer_goes_on(
    client: KafkaClient, cluster: MockCluster, options: Any, kind: type[Exception], text: str
) -> None:
    mended: list[bool] = []
    good = {"partitioner": RandomPartitioner(), "serializer": lambda message, key: (message, key)}

    def for_a_while(name: str, fn: Any) -> Any:
        return lambda *given: good[name](*given) if mended else fn(*given)

    producer = client.topics["t"].get_producer(**{name: for_a_while(name, fn) for name, fn in options.items()})
    error = error_of(producer.produce, b"v")
    assert isinstance(error, kind)
    assert text in str(error)
    mended.append(True)
    producer.produce(b"good")
    producer.stop()
    assert stored_values(cluster) == [b"good"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_queued_messages": 0},
        {"min_queued_messages": 0},
        {"max_retries": -1},
        {"ack_timeout_ms": "1"},
        {"queue_empty_timeout_ms": -2},
        {"pending_timeout_ms": -2},
        {"linger_ms": -1},
        {"compression": 9},
        {"compression": True},
        {"required_acks": 2},
        {"partitioner": 5},
        {"serializer": "json"},
    ],
)
def test_a_keyword_that_cannot_be_is_told_with_its_name(client: KafkaClient, wrong: dict[str, Any]) -> None:
    (name,) = wrong
    error = error_of(client.topics["t"].get_producer, **wrong)
    assert isinstance(error, ConfigurationError)
    assert f"{name}={wrong[name]!r}" in str(error)


# -- timestamps ------------------------------------------------------------------------------------------------------------
def test_timestamps_are_milliseconds_or_datetimes(client: KafkaClient, cluster: MockCluster) -> None:
    aware = datetime.datetime(2020, 5, 1, 12, tzinfo=datetime.timezone(datetime.timedelta(hours=2)))
    naive = aware.astimezone(datetime.timezone.utc).replace(tzinfo=None)
    with client.topics["t"].get_producer() as producer:
        for timestamp in (1588327200000, aware, naive):
            producer.produce(b"v", timestamp=timestamp)
        assert isinstance(error_of(producer.produce, b"v", timestamp="now"), SerializationError)
    assert [r.timestamp for r in stored(cluster)] == [1588327200000] * 3


# -- partitioners ----------------------------------------------------------------------------------------------------------
def test_round_robin_takes_each_partition_in_turn(connect: Any, make_cluster: Any) -> None:
    cluster = make_cluster(topics={"t": 4})
    with connect(cluster).topics["t"].get_producer(partitioner=RoundRobinPartitioner()) as producer:
        for i in range(40):
            producer.produce(b"%d" % i)
    assert [len(cluster.log("t", p)) for p in range(4)] == [10] * 4


def test_group_hashing_spreads_a_key_over_a_group(connect: Any, make_cluster: Any) -> None:
    cluster = make_cluster(topics={"t": 8})
    with connect(cluster).topics["t"].get_producer(partitioner=GroupHashingPartitioner(len, group_size=3)) as producer:
        for _ in range(200):
            producer.produce(b"v", partition_key=b"12345")
    assert {p for p in range(8) if cluster.log("t", p)} == {5, 6, 7}


def test_a_group_is_at_least_one_and_needs_a_function() -> None:
    assert isinstance(error_of(GroupHashingPartitioner, len, 0), ValueError)
    assert isinstance(error_of(GroupHashingPartitioner, None), ValueError)
    assert hashing_partitioner([3, 1, 2], b"k") == HashingPartitioner()([1, 2, 3], b"k")


def test_a_partition_without_a_leader_gets_nothing_at_random(connect: Any, make_cluster: Any) -> None:
    cluster = make_cluster(3, topics={"t": 6}, replication_factor=1)
    dead = cluster.leader("t", 0)
    lost = {p for p in range(6) if cluster.leader("t", p) == dead}
    assert 0 < len(lost) < 6
    client = connect(cluster)
    cluster.stop_broker(dead)
    client.update_cluster()
    with client.topics["t"].get_producer() as producer:
        assert {producer.produce(b"%d" % i).partition for i in range(200)} == set(range(6)) - lost


def test_partitions_are_ordered_by_id(connect: Any, make_cluster: Any) -> None:
    partitions = connect(make_cluster(topics={"t": 3})).topics["t"].partitions
    assert [p.id for p in sorted([partitions[2], partitions[0], partitions[1]])] == [0, 1, 2]


# -- brokers ---------------------------------------------------------------------------------------------------------------
def test_owned_brokers_tell_what_waits_for_each_broker(connect: Any, make_cluster: Any) -> None:
    cluster = make_cluster(2, {"t": 4})
    producer = connect(cluster).topics["t"].get_producer(linger_ms=60_000)
    producer._setup_owned_brokers()
    owned = producer._owned_brokers
    assert sorted(owned) == [1, 2]
    assert all(isinstance(o, OwnedBroker) and o.running and o.broker.id == id_ and not o.message_is_pending() for id_, o in owned.items())
    for partition in range(4):
        owned[1].enqueue(((b"k", b"v"), partition))
    led = Counter(cluster.leader("t", p) for p in range(4))
    assert {id_: o.messages_pending for id_, o in owned.items()} == led
    cluster.move_leader("t", 0, 3 - cluster.leader("t", 0))
    producer._update()
    owned[2].flush()
    producer._wait_all()
    assert [[(r.key, r.value) for r in cluster.log("t", p)] for p in range(4)] == [[(b"k", b"v")]] * 4
    assert not producer._owned_brokers[1].message_is_pending()
    producer.stop()
    assert not producer._owned_brokers[1].running


def test_a_batch_can_be_sent_at_once(client: KafkaClient, cluster: MockCluster) -> None:
    producer = client.topics["t"].get_producer(linger_ms=60_000)
    producer._produce(((None, b"queued"), 0))
    producer._send_request([((b"k", b"1"), 0), ((None, b"2"), 0)], None)
    assert stored_values(cluster) == [b"queued", b"1", b"2"]
    cluster.on("Produce", Error(10), times=1)
    with pytest.raises(KafkaException):
        producer._send_request([((None, b"3"), 0)], None)
    assert isinstance(error_of(producer.stop), DeliveryError)
