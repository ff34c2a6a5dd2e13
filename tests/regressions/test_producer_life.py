"""A producer's life: every record ends in an outcome, nobody waits for ever, nothing spins, and nothing is left behind."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import weakref
from collections import Counter
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.exceptions import DeliveryError, KafkaException
from gkafka.testing import Delay, Drop, Error, MockCluster
from tests.handlers.hub import run_script
from tests.public.aids import LIMIT_S, Clock, Runner, error_of, short_of_time, stored_values
from tests.regressions.aids import NOT_LEADER, QUICK, numbered

REFUSED = 29
FDS = "/proc/self/fd"


def open_files() -> int:
    return len(os.listdir(FDS)) if os.path.isdir(FDS) else 0


# -- every record has an outcome ---------------------------------------------------------------------------------------------
def test_b16_every_record_of_a_broker_that_died_is_told(connect: Any, make_cluster: Any, run: Runner) -> None:
    """B16 kafka-python#1579: one broker died, its messages were gone, and only a log line said so."""
    cluster = make_cluster(brokers=3, topics={"t": 3}, replication_factor=1)
    called: list[Any] = []
    producer = connect(cluster).get_producer(linger_ms=1, batch_bytes=200, on_delivery=called.append, **QUICK)
    for p in range(3):
        producer.produce("t", b"first", partition=p).result(LIMIT_S)
    dead = next(p for p in range(3) if cluster.leader("t", p) == 2)
    cluster.stop_broker(2)
    values = numbered(90)
    deliveries = [producer.produce("t", value, partition=i % 3) for i, value in enumerate(values)]
    run.until(lambda: sum(delivery.done() for delivery in deliveries) == 60)
    with short_of_time(producer, 0.5):
        error = error_of(producer.flush, LIMIT_S)
    assert isinstance(error, DeliveryError)
    assert [r.record.value for r in error.records] == values[dead::3]
    assert all(delivery.done() for delivery in deliveries)
    for p in {0, 1, 2} - {dead}:
        assert stored_values(cluster, "t", [p]) == [b"first", *values[p::3]]
    run.until(lambda: len(called) == 3 + 90)
    assert Counter(d.exception(0) is None for d in called) == {True: 3 + 60, False: 30}


def test_b16_pykafkas_producer_reports_every_message_of_a_broker_that_died(connect: Any, make_cluster: Any) -> None:
    """B16 pykafka#457, #1035: the same in the documented producer; each message has its report."""
    cluster = make_cluster(brokers=2, topics={"t": 2}, replication_factor=1)
    topic = connect(cluster).topics["t"]
    producer = topic.get_producer(
        delivery_reports=True,
        linger_ms=0,
        max_retries=1,
        partitioner=lambda ps, key: ps[int(key) % 2],
        retry_backoff_ms=10,
    )
    producer.produce(b"0", b"0")
    producer.produce(b"1", b"1")
    assert [producer.get_delivery_report(timeout=LIMIT_S)[1] for _ in range(2)] == [None, None]
    cluster.stop_broker(2)
    for i in range(2, 42):
        producer.produce(b"%d" % i, b"%d" % i)
    reports = [producer.get_delivery_report(timeout=LIMIT_S) for _ in range(20)]
    with short_of_time(producer._engine, 0.5):
        reports += [producer.get_delivery_report(timeout=LIMIT_S) for _ in range(20)]
    dead = [m.value for m, error in reports if error is not None]
    assert sorted(int(m.value) for m, _ in reports) == list(range(2, 42))
    assert {int(value) % 2 for value in dead} == {int(dead[0]) % 2}
    assert len(dead) == 20
    producer.stop()


# -- nobody waits for ever ---------------------------------------------------------------------------------------------------
def test_b18_whoever_waits_for_a_slot_goes_on_when_messages_fail(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    """B18 pykafka#739, #633: after an error the slots of the failed messages were never free, and produce() waited for ever."""
    producer = client.topics["t"].get_producer(max_queued_messages=3, linger_ms=0, max_retries=0)
    cluster.on("Produce", Error(REFUSED), times=None)

    def work() -> None:
        for i in range(10):
            producer.produce(b"%d" % i)

    for worker in [run.aside(work) for _ in range(4)]:
        worker.result()
    run.until(lambda: producer.pending == 0)
    cluster.clear_script()
    producer.produce(b"after")
    error = error_of(producer.stop)
    assert len(error.records) == 40  # type: ignore[attr-defined]
    assert stored_values(cluster) == [b"after"]


@pytest.mark.parametrize("fault", ["refused", "stopped"])
def test_b18_whoever_waits_for_memory_goes_on_when_records_fail(connect: Any, cluster: MockCluster, run: Runner, fault: str) -> None:
    """B18 pykafka#739, #633, for the buffer: what failed gives its memory to what is still to be sent."""
    client = connect(cluster, reconnect_backoff_ms=5, reconnect_backoff_max_ms=20)
    producer = client.get_producer(
        buffer_bytes=8192, batch_bytes=1024, max_request_bytes=4096, linger_ms=0, delivery_timeout_ms=1000, max_block_ms=60_000, **QUICK
    )
    producer.produce("t", b"first").result(LIMIT_S)
    if fault == "refused":
        cluster.on("Produce", Error(REFUSED), times=None)
    else:
        cluster.stop_broker(1)

    offered = {value: [] for value in (*numbered(40), b"after")}

    def offer(value: bytes) -> Any:
        offered[value].append(producer.produce("t", value, headers=[("filling", b"x" * 500)]))
        return offered[value][-1]

    def work(values: list[bytes]) -> None:
        for value in values:
            offer(value)

    for worker in [run.aside(work, numbered(10, 10 * n)) for n in range(4)]:
        worker.result()
    assert isinstance(error_of(producer.flush, LIMIT_S), DeliveryError)
    cluster.clear_script()
    cluster.start_broker(1)
    run.until(lambda: offer(b"after").exception(LIMIT_S) is None)
    stored = Counter(stored_values(cluster))
    assert stored.pop(b"first") == 1
    for value, deliveries in offered.items():
        # On a busy machine an answer may come after the delivery timeout: then the record is there, and "maybe" was said of it.
        told = Counter("yes" if (error := d.exception(0)) is None else error.persisted for d in deliveries)
        assert told["yes"] <= stored.pop(value, 0) <= told["yes"] + told["maybe"], (value, told)
    assert not stored
    assert all(d.exception(0) is not None for value in numbered(40) for d in offered[value]), "no broker has taken them"
    with contextlib.suppress(DeliveryError):
        producer.close()  # those that were tried before the connection was back


def test_b19_close_ends_while_batches_are_tried_again_and_others_still_produce(
    client: KafkaClient, cluster: MockCluster, run: Runner
) -> None:
    """B19 sarama#1187, #2133: close waited for retries that waited for somebody to take them."""
    cluster.on("Produce", Error(NOT_LEADER), times=None)
    producer = client.get_producer(linger_ms=0, batch_bytes=200, buffer_bytes=8192, max_request_bytes=2048, **QUICK)
    deliveries: list[Any] = []

    def stuff() -> None:
        while True:
            deliveries.append(producer.produce("t", b"x" * 150))

    stuffing = [run.aside(stuff) for _ in range(3)]
    run.until(lambda: producer.stats()["retried_batches"] > 3)
    with Clock() as clock:
        closing = [run.aside(lambda: error_of(producer.close, 0.3)), run.aside(lambda: producer.close(0.3))]
        for worker in stuffing:
            error_of(worker.result)
        run.until(lambda: not any(closer.running for closer in closing))
    assert clock.seconds < 15
    assert all(delivery.done() for delivery in deliveries)
    listed = [len(closer.value.records) for closer in closing if isinstance(closer.value, DeliveryError)]
    listed += [len(closer.error.records) for closer in closing if isinstance(closer.error, DeliveryError)]
    assert sum(listed) == len(deliveries)


def test_b19_close_inside_a_callback_of_a_batch_that_failed_ends(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    """B19 sarama#1187, #2133, from user code: the worker that calls it is one of those that close waits for."""
    cluster.on("Produce", Error(REFUSED))
    producer = client.get_producer(linger_ms=0, **QUICK)
    ended: list[Any] = []

    def callback(delivery: Any) -> None:
        try:
            producer.close(1.0)
        except KafkaException as error:
            ended.append(error)

    with Clock() as clock:
        producer.produce("t", b"x").add_done_callback(callback)
        run.until(lambda: ended)
    assert clock.seconds < 15
    assert isinstance(ended[0], DeliveryError)
    assert [r.record.value for r in ended[0].records] == [b"x"]


# -- nothing spins -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("state", ["idle", "linger", "busy", "silent", "no leader", "broker gone", "retrying"])
def test_b20_a_producer_that_can_do_nothing_does_nothing(
    connect: Any, make_cluster: Any, run: Runner, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B20 kafka-python#2616: with no batch to send, or none that could go, the sender ran in a busy loop."""
    cluster = make_cluster(brokers=2, topics={"t": 1}, replication_factor=1)
    producer = connect(cluster).get_producer(linger_ms=60_000 if state == "linger" else 0, max_in_flight=1, delivery_timeout_ms=60_000)
    producer.produce("t", b"first")
    producer.flush(LIMIT_S)
    leader = cluster.leader("t", 0)
    if state in ("busy", "silent"):
        cluster.on("Produce", Delay(120) if state == "busy" else Drop(), times=None)
    elif state in ("no leader", "broker gone"):
        cluster.stop_broker(leader)
    elif state == "retrying":
        cluster.on("Produce", Error(NOT_LEADER), times=None)
    if state != "idle":
        producer.produce("t", b"x")
        producer.produce("t", b"y")
    run.sleep(0.2)
    polls: list[None] = []
    poll = producer._driver.sender.poll

    def counted(*args: Any) -> Any:
        polls.append(None)
        return poll(*args)

    monkeypatch.setattr(producer._driver.sender, "poll", counted)
    with Clock() as clock:
        run.sleep(0.5)
        looks = len(polls)
    assert clock.seconds > (looks - 20) / 40, "a few looks a second, not thousands"
    with contextlib.suppress(DeliveryError):
        producer.close(0)


# -- nothing is left -------------------------------------------------------------------------------------------------------------
def test_b57_connections_that_break_leave_no_descriptors(connect: Any, make_cluster: Any, run: Runner) -> None:
    """B57 kafka-python#552, librdkafka#1170: each lost connection or failed attempt left a socket or a wake pipe open."""
    cluster = make_cluster(brokers=2, topics={"t": 2})
    producer = connect(cluster, reconnect_backoff_ms=2, reconnect_backoff_max_ms=5).get_producer(linger_ms=0, **QUICK)

    def use() -> None:
        for p in range(2):
            producer.produce("t", b"x", partition=p)
        producer.flush(LIMIT_S)

    def held() -> tuple[int, int]:
        return open_files(), len(producer._cluster.handler.workers())

    for _ in range(3):
        use()
    before = held()
    for n in range(30):
        if n % 3 == 2:
            cluster.stop_broker(2)
            producer.produce("t", b"y", partition=n % 2)
            run.sleep(0.02)  # attempts that are refused
            cluster.start_broker(2)
        else:
            cluster.close_connections(reset=n % 3 == 1)
        use()
    run.until(lambda: all(now <= then + 1 for now, then in zip(held(), before, strict=True)))


@pytest.mark.parametrize("closed", [True, False])
def test_b58_producers_that_are_done_are_collected(client: KafkaClient, cluster: MockCluster, run: Runner, closed: bool) -> None:
    """B58 kafka-python#323, #1569, #3077: a closed producer stayed alive in a registry, with its metrics and timers."""

    def made() -> weakref.ref[Any]:
        producer = client.get_producer(linger_ms=0, **QUICK)
        producer.produce("t", b"x", headers=[("h", b"1")]).add_done_callback(lambda delivery: None)
        producer.flush(LIMIT_S)
        if closed:
            producer.close()
        return weakref.ref(producer)

    made()
    workers = len(client.handler.workers())
    threads = threading.active_count()
    refs = [made() for _ in range(20)]
    run.until(lambda: gc.collect() >= 0 and not any(ref() for ref in refs))
    run.until(lambda: len(client.handler.workers()) <= workers + 1)
    run.until(lambda: threading.active_count() <= threads + 2)
    assert len(client.stats()["producers"]) == 0
    assert len(stored_values(cluster)) == 21


def test_b58_a_producer_that_works_for_long_grows_by_nothing(connect: Any, make_cluster: Any) -> None:
    """B58 kafka-python#3077: every request left a task, a timer or a metric behind."""
    producer = connect(make_cluster(history=1)).get_producer(linger_ms=0, **QUICK)

    def work() -> None:
        for _ in range(150):
            producer.produce("t", b"x").result(LIMIT_S)

    def objects() -> int:
        gc.collect()
        return sum(str(type(thing).__module__).startswith("gkafka.") for thing in gc.get_objects())

    work()
    before = objects()
    work()
    grown = objects() - before
    stored = 150  # the broker keeps an entry for each batch
    assert grown <= stored + 30


# -- forks -----------------------------------------------------------------------------------------------------------------------
FORKED = """
    import os
    from tests.kit.clock import now
    from gkafka import KafkaClient
    from gkafka.exceptions import ForkedClientError
    from gkafka.testing import MockCluster

    cluster = MockCluster(topics={"t": 1})
    client = KafkaClient(cluster.bootstrap, handler=HANDLER)
    producer = client.get_producer(linger_ms=300, **OPTIONS)
    producer.produce("t", b"0")
    producer.flush(60)
    producer.produce("t", b"1")          # lingers across the fork: it is the parent's
    r, w = os.pipe()
    if os.fork() == 0:
        told = []
        for call in (lambda: producer.produce("t", b"child"), lambda: producer.flush(60), lambda: producer.close(60)):
            begun = now()
            try:
                call()
                told.append("nothing")
            except ForkedClientError:
                told.append("told" if now() - begun < 30 else "late")
            except BaseException as error:
                told.append(repr(error))
        os.write(w, " ".join(told).encode())
        os._exit(0)
    print(os.read(r, 1000).decode())
    producer.produce("t", b"2")
    producer.flush(60)
    print([r.value for r in cluster.log("t", 0)])
    client.close()
    cluster.close()
"""


@pytest.mark.parametrize("handler", ["threading", "gevent"])
@pytest.mark.parametrize("options", ["{}", "{'acks': 1}"])
def test_b60_a_forked_child_is_told_and_the_parents_records_arrive_once(handler: str, options: str) -> None:
    """B60 confluent-kafka-python#172, kafka-python#1732: used after a fork it hung, or took records that nobody sent."""
    out = run_script(FORKED.replace("HANDLER", repr(handler)).replace("OPTIONS", options), timeout=110)
    assert out.splitlines() == ["told told told", "[b'0', b'1', b'2']"]
