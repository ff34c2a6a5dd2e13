"""close(), stop(), unsubscribe() and subscribe() that are cut short: the next one finishes them (docs/gevent.md, 14)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gevent
import pytest

from gkafka.kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, legacy
from gkafka.kafka.errors import IllegalStateError
from gkafka.kafka.legacy import multiprocess
from gkafka.testing import Delay, MockCluster
from tests.kafka.conftest import Make
from tests.kafka.consuming import FIRST, GROUP, committed, consume, joined, put, until
from tests.kit.clock import now
from tests.public.aids import Runner


class Cut(BaseException):
    """What ends a call from outside, as Ctrl-C does."""


class Counted:
    """A serializer, or a metrics reporter, that counts its ends."""

    def __init__(self) -> None:
        self.ends = 0

    def serialize(self, topic: str, value: Any) -> Any:
        return value

    def deserialize(self, topic: str, value: Any) -> Any:
        return value

    def close(self) -> None:
        self.ends += 1


def once(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, *, behind: bool) -> None:
    """The next call of owner.name is cut short, before or behind what it does."""
    real, left = getattr(owner, name), [1]

    def call(*args: Any, **options: Any) -> Any:
        if left and not behind:
            left.pop()
            raise Cut
        found = real(*args, **options)
        if left:
            left.pop()
            raise Cut
        return found

    monkeypatch.setattr(owner, name, call)


# -- with greenlets: gevent.Timeout in the wait ---------------------------------------------------------------------------------
def read_one(consumer: Any) -> Any:
    assert consumer.get_message(timeout=60) is not None
    return consumer


def of_consumer(cluster: MockCluster) -> tuple[Any, Callable[[], Any]]:
    consumer = KafkaConsumer("t", bootstrap_servers=cluster.bootstrap, handler="gevent", **GROUP)
    consume(consumer, 1)
    return consumer, consumer.close


def of_consumer_with_commits(cluster: MockCluster) -> tuple[Any, Callable[[], Any]]:
    consumer = KafkaConsumer("t", bootstrap_servers=cluster.bootstrap, handler="gevent", **GROUP, enable_auto_commit=False)
    consume(consumer, 1)
    consumer.commit_async()
    return consumer, consumer.close


def of_producer(cluster: MockCluster) -> tuple[Any, Callable[[], Any]]:
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap, handler="gevent")
    producer.send("t", b"b")
    return producer, producer.close


def of_old_consumer(cluster: MockCluster) -> tuple[Any, Callable[[], Any]]:
    consumer = legacy.SimpleConsumer(legacy.KafkaClient(cluster.bootstrap, handler="gevent"), "g", "t")
    return consumer, read_one(consumer).stop


def of_old_client(cluster: MockCluster) -> tuple[Any, Callable[[], Any]]:
    client = legacy.KafkaClient(cluster.bootstrap, handler="gevent")
    consumer = read_one(legacy.SimpleConsumer(client, "g", "t"))
    return (client, consumer), client.close


def of_old_producer(cluster: MockCluster) -> tuple[Any, Callable[[], Any]]:
    producer = legacy.SimpleProducer(legacy.KafkaClient(cluster.bootstrap, handler="gevent"), async_send=True)
    producer.send_messages("t", b"b")
    return producer, producer.stop


def of_old_kafka_consumer(cluster: MockCluster) -> tuple[Any, Callable[[], Any]]:
    options: dict[str, Any] = {"group_id": "g", "auto_commit_enable": True, "auto_offset_reset": "smallest", "handler": "gevent"}
    consumer = legacy.KafkaConsumer("t", bootstrap_servers=cluster.bootstrap, **options)
    consumer.task_done(consumer.next())
    return consumer, consumer.close


@pytest.mark.parametrize(
    ("make", "api"),
    [
        (of_consumer, "OffsetCommit"),
        (of_consumer_with_commits, "OffsetCommit"),
        (of_producer, "Produce"),
        (of_old_consumer, "OffsetCommit"),
        (of_old_client, "OffsetCommit"),
        (of_old_producer, "Produce"),
        (of_old_kafka_consumer, "OffsetCommit"),
    ],
)
def test_an_end_that_a_gevent_timeout_cuts_short_is_finished_by_the_next_one(
    make_cluster: Make, make: Callable[[MockCluster], tuple[Any, Callable[[], Any]]], api: str
) -> None:
    """The next one did nothing: what was handed out came again, records were never sent, workers and members stayed."""
    cluster = make_cluster(topics={"t": 1})
    put(cluster, b"a")
    cluster.on(api, Delay(2))
    _, end = make(cluster)
    with pytest.raises(gevent.Timeout), gevent.Timeout(0.15):
        end()
    began = now()
    end()
    assert now() - began < 30
    if api == "Produce":
        assert len(cluster.log("t", 0)) == 2
    else:
        assert committed(cluster) == {0: 1}
    end()


@pytest.mark.parametrize("how", ["unsubscribe", "subscribe"])
def test_a_subscription_whose_end_is_cut_short_is_ended_by_the_next_call(make_cluster: Make, how: str) -> None:
    """What was handed out was not committed, and the old member stayed beside the new one."""
    cluster = make_cluster(topics={"t": 1, "u": 1})
    put(cluster, b"0", b"1")
    consumer = KafkaConsumer("t", bootstrap_servers=cluster.bootstrap, handler="gevent", **GROUP)
    consume(consumer, 2)
    cluster.on("OffsetCommit", Delay(2))
    call: Callable[[], Any] = consumer.unsubscribe if how == "unsubscribe" else lambda: consumer.subscribe(["u"])
    with pytest.raises(gevent.Timeout), gevent.Timeout(0.15):
        call()
    assert consumer.poll(10) == {}
    call()
    assert committed(cluster)[0] == 2
    until("gevent", lambda: len(cluster.group("g").members) == (how == "subscribe"))
    consumer.subscribe(["t"])
    joined(consumer, FIRST)
    consumer.close()


# -- both ways of concurrency: each step of an end ------------------------------------------------------------------------------
@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("step", ["commits", "consumer", "client", "reporters", "key", "value"])
def test_a_consumer_whose_end_is_cut_short_at_any_step_ends_with_the_next_one(
    make_cluster: Make, handler: str, monkeypatch: pytest.MonkeyPatch, step: str, behind: bool
) -> None:
    cluster = make_cluster(topics={"t": 1})
    put(cluster, b"a")
    key, value = Counted(), Counted()
    options = {**GROUP, "key_deserializer": key, "value_deserializer": value}
    reading = KafkaConsumer("t", bootstrap_servers=cluster.bootstrap, handler=handler, **options)
    consume(reading, 1)
    owner, name = {
        "commits": (reading._commits, "finish"),
        "consumer": (reading._consumer, "stop"),
        "client": (reading._client, "close"),
        "reporters": (reading._reporters, "close"),
        "key": (key, "close"),
        "value": (value, "close"),
    }[step]
    once(monkeypatch, owner, name, behind=behind)
    with pytest.raises(Cut):
        reading.close()
    with pytest.raises(IllegalStateError):
        reading.poll()
    reading.close()
    assert committed(cluster) == {0: 1}
    assert not cluster.group("g").members
    assert reading._client.cluster.closed
    hit = {"key": key, "value": value}.get(step)
    assert [one.ends for one in (key, value) if one is not hit] == [1] * (2 if hit is None else 1)
    reading.close()
    assert max(key.ends, value.ends) == 1


def test_what_the_first_close_does_not_commit_the_next_one_does_not(
    make_cluster: Make, handler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = make_cluster(topics={"t": 1})
    put(cluster, b"a")
    reading = KafkaConsumer("t", bootstrap_servers=cluster.bootstrap, handler=handler, **GROUP)
    consume(reading, 1)
    once(monkeypatch, reading._consumer, "abandon", behind=False)
    with pytest.raises(Cut):
        reading.close(autocommit=False)
    reading.close()
    assert 1 not in committed(cluster).values()
    assert not cluster.group("g").members


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("step", ["client", "reporters"])
def test_a_producer_whose_end_is_cut_short_at_any_step_ends_with_the_next_one(
    make_cluster: Make, handler: str, monkeypatch: pytest.MonkeyPatch, step: str, behind: bool
) -> None:
    cluster = make_cluster(topics={"t": 1})
    key, value = Counted(), Counted()
    sending = KafkaProducer(
        bootstrap_servers=cluster.bootstrap, handler=handler, linger_ms=60_000, key_serializer=key, value_serializer=value
    )
    future = sending.send("t", b"a")
    once(monkeypatch, sending._client if step == "client" else sending._reporters, "close", behind=behind)
    with pytest.raises(Cut):
        sending.close()
    with pytest.raises(IllegalStateError):
        sending.send("t", b"b")
    sending.close()
    assert future.succeeded()
    assert (key.ends, value.ends) == (1, 1)


def test_an_administrator_whose_end_is_cut_short_ends_with_the_next_one(
    make_cluster: Make, handler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = KafkaAdminClient(bootstrap_servers=make_cluster().bootstrap, handler=handler)
    once(monkeypatch, admin._client, "close", behind=False)
    with pytest.raises(Cut):
        admin.close()
    admin.close()
    assert admin._client.cluster.closed


@pytest.mark.parametrize("step", ["reader", "commit"])
def test_a_simple_consumer_whose_stop_is_cut_short_stops_with_the_next_one(
    make_cluster: Make, handler: str, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    cluster = make_cluster(topics={"t": 1})
    put(cluster, b"a")
    with legacy.KafkaClient(cluster.bootstrap, handler=handler) as client:
        consumer = read_one(legacy.SimpleConsumer(client, "g", "t"))
        once(monkeypatch, *((consumer._reader, "stop") if step == "reader" else (consumer._of_group, "commit")), behind=False)
        with pytest.raises(Cut):
            client.close() if step == "commit" else consumer.stop()
        with pytest.raises(IllegalStateError):
            consumer.get_message()
        consumer.stop()
        assert committed(cluster) == {0: 1}


def test_processes_whose_end_is_cut_short_are_ended_by_the_next_one(
    make_cluster: Make, handler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with legacy.KafkaClient(make_cluster(topics={"t": 2}).bootstrap, handler=handler) as client:
        consumer = legacy.MultiProcessConsumer(client, "g", "t", num_procs=2)
        pids = {process.pid for process in consumer.procs}
        once(monkeypatch, consumer._handler, "sleep", behind=False)
        with pytest.raises(Cut):
            consumer.stop()
        with pytest.raises(IllegalStateError):
            consumer.get_messages()
        assert {process.pid for process in consumer.procs} <= pids
        consumer.stop()
        assert not consumer.procs
        assert all(multiprocess._has_ended(pid) for pid in pids)


# -- several at once ------------------------------------------------------------------------------------------------------------
def test_closes_at_the_same_time_end_it_once(make_cluster: Make, handler: str) -> None:
    cluster = make_cluster(topics={"t": 1})
    put(cluster, b"a")
    value = Counted()
    reading = KafkaConsumer("t", bootstrap_servers=cluster.bootstrap, handler=handler, **GROUP, value_deserializer=value)
    consume(reading, 1)
    cluster.on("OffsetCommit", Delay(0.3))
    run = Runner(handler)
    for one in [run.aside(reading.close) for _ in range(4)]:
        one.result()
    assert committed(cluster) == {0: 1}
    assert not cluster.group("g").members
    assert value.ends == 1
