"""A handler of the user's own is enough: every worker, socket, lock and wait of gkafka is asked of it, and no lock is held across a wait.

Here everything happens once. With GKAFKA_HANDLERS=recording all suites run like this (`make test`).
"""

from __future__ import annotations

import _thread
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.exceptions import KafkaException, KafkaTimeoutError, TopicAlreadyExists
from gkafka.handlers import ThreadingHandler
from gkafka.testing import Close, Delay, Error, MockCluster
from tests.kit.clock import now
from tests.public.aids import LIMIT_S, Runner, error_of, read, stored_values
from tests.public.recording import Recorders, RecordingGEventHandler, RecordingHandler, Watch, judge, until

QUICK: dict[str, Any] = {"retry_backoff_ms": 10, "retry_backoff_max_ms": 50}
AGAIN: dict[str, Any] = {"reconnect_backoff_ms": 5, "reconnect_backoff_max_ms": 20}
CLOSE_S = 20.0


@pytest.fixture
def connect(run: Runner, make_cluster: Callable[..., MockCluster]) -> Iterator[Callable[..., KafkaClient]]:
    """As the suite's, with a recording handler for each client; what was recorded is judged at the end."""
    made: list[KafkaClient] = []
    recorders = Recorders()

    def make(hosts: MockCluster | str, **options: Any) -> KafkaClient:
        handler = RecordingGEventHandler() if run.gevent else RecordingHandler()
        recorders.all.append(handler.recorder)
        made.append(KafkaClient(hosts if isinstance(hosts, str) else hosts.bootstrap, **{**options, "handler": handler}))
        return made[-1]

    with Watch(recorders) as watch:
        yield make
        for client in made:
            close(client)
        judge(watch)


def close(client: KafkaClient) -> None:
    begun = now()
    with contextlib.suppress(KafkaException):  # what was not delivered is the business of the test
        client.close(CLOSE_S)
    assert now() - begun < CLOSE_S + 20
    # A handler that was given is its maker's to stop, so close() waits for none of its workers: they end by themselves.
    handler: Any = client.handler
    assert until(lambda: not handler.recorder.alive(), LIMIT_S, handler.sleep), f"workers that outlive close(): {handler.recorder.alive()}"
    assert handler.workers() == []
    assert handler.stop(0), "nothing was left to wait for"


# -- everything, once ------------------------------------------------------------------------------------------------------------
def produce(client: KafkaClient, brokers: MockCluster) -> None:
    called: list[Any] = []
    with client.get_producer(linger_ms=2, on_delivery=called.append, **QUICK) as producer:
        deliveries = [producer.produce("t", b"%d" % i, partition=i % 2) for i in range(50)]
        deliveries[0].add_done_callback(called.append)
        producer.flush(LIMIT_S)
        assert all(d.result(LIMIT_S).offset >= 0 for d in deliveries)
    with client.get_producer(enable_idempotence=False, acks=1, linger_ms=0) as producer:
        producer.produce("t", b"one").result(LIMIT_S)
    with client.topics["t"].get_producer(delivery_reports=True, linger_ms=1) as old:
        old.produce(b"reported")
        assert old.get_delivery_report(timeout=LIMIT_S)[1] is None
    with client.topics["t"].get_sync_producer() as old:
        old.produce(b"sync")
    assert len(stored_values(brokers, "t", (0, 1))) == 53
    assert len(called) == 51


def consume_in_a_group(client: KafkaClient, brokers: MockCluster) -> None:
    topic = client.topics["t"]
    with topic.get_simple_consumer(consumer_group="g", num_consumer_fetchers=2, fetch_wait_max_ms=50) as consumer:
        read(consumer, 20)
        consumer.commit_offsets()
        consumer.reset_offsets([(topic.partitions[0], 0)])
    with topic.get_simple_consumer(consumer_group="h", auto_commit_enable=True, auto_commit_interval_ms=20) as consumer:
        read(consumer, 10)
        assert until(lambda: bool(brokers.committed("h")), LIMIT_S, client.handler.sleep)
    with topic.get_simple_consumer(consumer_timeout_ms=60_000) as consumer:
        assert len(list(islice(consumer, 53))) == 53
    with topic.get_balanced_consumer(consumer_group="m", managed=True, consumer_timeout_ms=60_000) as consumer:
        assert len(list(islice(consumer, 10))) == 10
    assert brokers.committed("g")


def read_raw(client: KafkaClient, brokers: MockCluster) -> None:
    end = client.list_offsets({("t", 0): -1})["t", 0]
    assert client.fetch_raw("t", 0, 0).high_watermark == end
    assert list(client.fetch_stream("t", 0, 0, end, max_bytes=300))[-1].next_offset >= end
    next(left := client.fetch_stream("t", 0, 0, end, max_bytes=300))
    left.close()
    client.fetch_raw("t", 0, end, max_wait_ms=20)


def administer(client: KafkaClient, brokers: MockCluster) -> None:
    client.create_topic("new", 2)
    assert isinstance(error_of(client.create_topic, "new"), TopicAlreadyExists)
    assert client.partitions("new") == [0, 1]
    client.delete_topic("new")
    client.update_cluster()


def live_through_faults(client: KafkaClient, brokers: MockCluster) -> Any:
    """Its producer, with a record that the close of the client has to deliver."""
    producer = client.get_producer(linger_ms=1, **QUICK)
    consumer = client.topics["f"].get_simple_consumer(fetch_wait_max_ms=50)
    for n, fault in enumerate((Error(6), Close(before=True), Close(before=False), Delay(0.05))):
        brokers.on("Produce", fault)
        brokers.on("Fetch", fault)
        producer.produce("f", b"%d" % n, partition=0)
    brokers.move_leader("f", 0, 3 - brokers.leader("f", 0))
    producer.produce("f", b"moved", partition=0).result(LIMIT_S)
    leader = brokers.leader("f", 0)
    brokers.stop_broker(leader)
    producer.produce("f", b"stopped", partition=0).result(LIMIT_S)
    brokers.start_broker(leader)
    brokers.close_connections(reset=True)
    producer.produce("f", b"reset", partition=0).result(LIMIT_S)
    assert [m.value for m in read(consumer, 7)] == [b"0", b"1", b"2", b"3", b"moved", b"stopped", b"reset"]
    assert isinstance(error_of(lambda: client.fetch_raw("t", 9, 0)), KafkaException)
    consumer.stop()
    producer.produce("f", b"lingers", partition=0)
    return producer


EVERYTHING = (produce, consume_in_a_group, read_raw, administer, live_through_faults)


@pytest.fixture
def brokers(make_cluster: Any) -> MockCluster:
    return make_cluster(brokers=2, topics={"t": 2, "f": 1}, replication_factor=2)


def test_everything_is_asked_of_the_users_handler(connect: Any, brokers: MockCluster, run: Runner) -> None:
    client = connect(brokers, **AGAIN)
    recorder = client.handler.recorder
    with Watch(Recorders(recorder)) as watch:
        for part in EVERYTHING:
            kept = part(client, brokers)
            if not run.gevent:  # greenlets are no threads, and the pool of `offload` is gevent's
                assert until(lambda: not watch.running()), watch.running()
        close(client)
    assert kept.closed
    judge(watch)
    assert {port for port, _, _ in watch.connects} == {port for _, port in brokers.brokers.values()}, "none went unheard"
    assert len(recorder.connected) <= len(watch.connects), "a connection that was refused is none"
    assert len(brokers.log("f", 0)) == 8
    # Nothing above could fail in a recorder that gkafka passes by.
    assert recorder.spawned
    assert run.gevent or len([s for s in watch.started if s.inside == "spawn"]) == len(recorder.spawned)
    assert recorder.taken > 100
    assert {"Event", "Mutex", "Future", "create_connection"} <= set(recorder.made)
    assert {"Event.wait", "Future.result", "Stream.recv_into", "checkpoint", "create_connection", "getaddrinfo"} <= set(recorder.waits)


def test_workers_are_threads_of_the_handler_one_each(connect: Any, brokers: MockCluster, run: Runner) -> None:
    if run.gevent:
        pytest.skip("greenlets share a thread")
    client = connect(brokers, **AGAIN)
    with Watch(Recorders(client.handler.recorder)) as watch:
        produce(client, brokers)
        close(client)
    spawned = client.handler.recorder.spawned
    assert [s.inside for s in watch.started] == ["spawn"] * len(spawned)
    assert all(len(s.threads) == 1 for s in spawned)
    assert {s.name.rpartition("-")[0] or s.name for s in spawned if s.name} >= {"gkafka"}


def test_a_host_name_is_looked_up_inside_the_handler(connect: Any, brokers: MockCluster, run: Runner) -> None:
    """The thread that asks the C library's resolver may outlive its deadline, so it is the handler's own and not a worker."""
    client = connect(brokers.bootstrap.replace("127.0.0.1", "localhost"))
    client.connect()
    assert client.handler.recorder.waits["getaddrinfo"] >= 1


def test_a_client_reports_the_users_handler_by_its_name(connect: Any, brokers: MockCluster, run: Runner) -> None:
    client = connect(brokers)
    assert client.stats()["handler"] == ("gevent" if run.gevent else "recording")
    assert client.handler.name != ThreadingHandler.name


def test_a_caller_with_many_leaders_asks_for_more_behind_its_locks(connect: Any, make_cluster: Any) -> None:
    """To so many a fetch worker lets others run while it sends: within a call that was between taking records and returning them, which a commit of
    another worker then covered, and with the lock of a group's member held. No kill may come there either.
    """
    leaders = 20
    client = connect(make_cluster(brokers=leaders, topics={"t": leaders}, replication_factor=1), **AGAIN)
    with client.get_producer(linger_ms=5) as producer:
        for n in range(40 * leaders):
            producer.produce("t", b"x" * 200, partition=n % leaders)
            if not n % (5 * leaders):
                producer.flush(LIMIT_S)
    small: dict[str, Any] = {"queued_max_bytes": 4000, "fetch_message_max_bytes": 3000, "auto_offset_reset": "earliest"}
    with client.get_consumer("t", "g", **small) as member:
        assert len(read(member, 40 * leaders)) == 40 * leaders
        for partition in range(leaders):
            member.pause([("t", partition)])
            member.seek(("t", partition), 30)
            member.resume([("t", partition)])
        assert len(read(member, 10 * leaders)) == 10 * leaders


# -- the recorder can fail -----------------------------------------------------------------------------------------------------
def parked(future: Any) -> None:
    with contextlib.suppress(KafkaTimeoutError):
        future.result(0.001)


def filled(queue: Any) -> Any:
    queue.put(1)
    return queue


WAITS: dict[str, Callable[[Any], object]] = {
    "Event.wait": lambda h: h.Event().wait(0.001),
    "Future.result": lambda h: parked(h.Future()),
    "Queue.get": lambda h: filled(h.Queue()).get(timeout=60),
    "Queue.put": lambda h: h.Queue(1).put(1),
    "Semaphore.acquire": lambda h: h.Semaphore().acquire(),
    "Worker.join": lambda h: h.spawn(int, _name="gkafka-x").join(60),
    "checkpoint": lambda h: h.checkpoint(),
    "getaddrinfo": lambda h: h.getaddrinfo("127.0.0.1", 1),
    "offload": lambda h: h.offload(int),
    "sleep": lambda h: h.sleep(0.001),
    "yield_now": lambda h: h.yield_now(),
}


def recording(run: Runner) -> Any:
    return RecordingGEventHandler() if run.gevent else RecordingHandler()


@pytest.mark.parametrize("what", WAITS)
@pytest.mark.parametrize("kind", ["Lock", "RLock"])
def test_a_wait_with_a_lock_held_is_a_violation_and_without_it_is_none(run: Runner, what: str, kind: str) -> None:
    handler = recording(run)
    lock = getattr(handler, kind)()
    WAITS[what](handler)
    assert handler.recorder.violations == []
    with lock:
        WAITS[what](handler)
    (violation,) = handler.recorder.violations
    assert violation.startswith(f"{what} at tests/public/test_recording.py:")
    assert "the lock made at tests/public/test_recording.py:" in violation
    WAITS[what](handler)
    assert len(handler.recorder.violations) == 1
    assert handler.stop()


def test_a_stream_that_waits_with_a_lock_held_is_a_violation(run: Runner, cluster: MockCluster) -> None:
    handler = recording(run)
    (address,) = handler.getaddrinfo("127.0.0.1", cluster.brokers[1][1])
    with handler.create_connection(address) as stream, handler.Lock():
        stream.send_all([b"\0\0\0\0"])  # no size that a broker believes: it closes the connection
        assert stream.recv_into(bytearray(1)) == 0
    assert [v.split()[0] for v in handler.recorder.violations] == ["Stream.send_all", "Stream.recv_into"]


def test_a_lock_held_by_another_worker_is_no_violation(run: Runner) -> None:
    handler = recording(run)
    lock, taken, go = handler.Lock(), handler.Event(), handler.Event()

    def hold() -> None:
        with lock:
            taken.set()
            go.wait(LIMIT_S)  # the violation: only this one

    worker = handler.spawn(hold, _name="gkafka-holder")
    assert taken.wait(LIMIT_S)
    assert not lock.acquire(False)
    handler.sleep(0.001)
    assert handler.recorder.held() == []
    assert len(handler.recorder.all_held()) == 1
    go.set()
    assert worker.join(LIMIT_S)
    assert [v.split()[0] for v in handler.recorder.violations] == ["Event.wait"]
    assert handler.recorder.all_held() == []


def test_calls_that_do_not_wait_are_no_violations(run: Runner) -> None:
    handler = recording(run)
    event, queue, other = handler.Event(), handler.Queue(), handler.Lock()
    with handler.Lock():
        event.wait(0)
        queue.put(1)
        assert queue.get(block=False) == 1
        assert handler.Semaphore().acquire(blocking=False)
        assert other.acquire(False)
        other.release()
    assert handler.recorder.violations == []


def test_locks_taken_in_both_orders_are_seen(run: Runner) -> None:
    handler = recording(run)
    a = handler.Lock()
    b = handler.Lock()
    with a, b:
        pass
    assert not handler.recorder.inversions()
    with b, a:
        pass
    assert len(handler.recorder.inversions()) == 1


def test_threads_and_sockets_past_the_handler_are_heard(cluster: MockCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """By code that calls itself gkafka's: the test's own threads and sockets are the test's."""
    monkeypatch.setattr("tests.public.recording._of_gkafka", lambda where: not where.startswith("gkafka/testing/"))
    handler, port, end = RecordingHandler(), cluster.brokers[1][1], threading.Event()
    with Watch(Recorders(handler.recorder)) as watch:
        thread = threading.Thread(target=end.wait)
        thread.start()
        _thread.start_new_thread(end.wait, ())
        socket.create_connection(("127.0.0.1", port)).close()
        time.sleep(0.001)
        assert until(lambda: len(watch.running()) == 2), watch.running()
        (address,) = handler.getaddrinfo("127.0.0.1", port)
        handler.create_connection(address).close()
        handler.spawn(int, _name="nobody").join(LIMIT_S)
        end.set()
        thread.join()
    assert len(watch.strangers()) == 2
    assert len(watch.stray_connects({port})) == 1
    assert len(watch.connects) == 2
    assert watch.stray_sleeps()
    assert handler.recorder.badly_named() == ["nobody"]
