"""Greenlets that are killed or timed out anywhere inside a call (F24, gevent acceptance 13 and 14): no record is skipped, lost or torn,
and producer and consumer go on. For threads, whose calls a signal handler's exception cuts off, see test_interrupted."""

from __future__ import annotations

import gc
import logging
from collections import Counter
from random import Random
from types import SimpleNamespace
from typing import Any

import gevent
import gevent.lock
import pytest

from gkafka import KafkaClient
from gkafka.exceptions import DeliveryError, KafkaException, KafkaTimeoutError, TransactionAbortableError, TransactionStateError
from gkafka.testing import Delay, Drop, Error, MockCluster
from tests.effort import seeds
from tests.kit.clock import now
from tests.public.aids import LIMIT_S, Clock, Held, Runner, error_of, fill, read, stored_values
from tests.public.test_consuming import numbers
from tests.public.test_flushing import SlowLog


@pytest.fixture
def run() -> Runner:
    """Only greenlets can be killed."""
    return Runner("gevent")


cuts = [0]  # how often cut_off() has cut off: a test in which that never happened proves nothing


def cut_off(fn: Any, seconds: float) -> Any:
    """What fn() gives, or None if a gevent.Timeout ended it."""
    with gevent.Timeout(seconds, False):
        return fn()
    cuts[0] += 1
    return None


@pytest.mark.parametrize("seed", seeds(3))
def test_produce_and_result_may_be_cut_off_anywhere(connect: Any, cluster: MockCluster, seed: int) -> None:
    """Each record that was accepted is in the log once, at the place that its delivery tells."""
    chance, before = Random(seed), cuts[0]
    cluster.on("Produce", Delay(0.003), times=None)
    producer = connect(cluster).get_producer(linger_ms=1, batch_bytes=600, buffer_bytes=4096, max_request_bytes=2048)
    accepted: dict[bytes, Any] = {}

    def work(n: int) -> None:
        for i in range(25):
            value = b"%d-%d" % (n, i) + b"." * 100

            def send(value: bytes = value) -> Any:
                delivery = accepted[value] = producer.produce("t", value)
                return delivery.result(LIMIT_S)

            cut_off(send, chance.random() * 0.02)

    workers = [gevent.spawn(work, n) for n in range(20)]
    for victim in chance.sample(workers, 5):
        gevent.sleep(chance.random() * 0.02)
        victim.kill()
    gevent.joinall(workers, timeout=LIMIT_S)
    producer.flush(LIMIT_S)
    log = cluster.log("t", 0)
    counts = Counter(r.value for r in log)
    assert max(counts.values()) == 1
    for value, delivery in accepted.items():
        assert delivery.done()
        assert log[delivery.result(0).offset].value == value
    unknown = set(counts) - set(accepted)
    assert not unknown, "a call that was cut off has accepted nothing"
    assert cuts[0] - before > 20
    stats = producer.stats()
    assert (stats["unsettled_records"], stats["buffer_bytes_free"]) == (0, 4096)
    assert producer.produce("t", b"after").result(LIMIT_S).offset == len(log)


@pytest.mark.parametrize("seed", seeds(3))
def test_consume_may_be_cut_off_anywhere(connect: Any, cluster: MockCluster, seed: int) -> None:
    """What was handed out and what comes next fit together: nothing between is skipped, nothing comes twice."""
    chance, before = Random(seed), cuts[0]
    client = connect(cluster)
    fill(client, numbers(1500), batches=75)
    cluster.on("Fetch", Delay(0.003), times=None)
    consumer = client.topics["t"].get_simple_consumer(consumer_group="g", fetch_message_max_bytes=2000, queued_max_messages=100)
    got: list[int] = []
    while len(got) < 1500 or cuts[0] - before <= 5:  # behind the last record each call is cut off
        size = chance.choice([1, 7, 200])
        batch = cut_off(lambda size=size: consumer.consume_batch(size, 1000), chance.random() * 0.004)
        if batch:
            got += [m.offset for m in batch]
        assert consumer.held_offsets[0] in (len(got) - 1, -2), "the position is what was handed out"
    assert got == list(range(1500))
    consumer.stop()


def test_a_consumer_that_is_killed_while_it_waits_leaves_the_next_one_everything(connect: Any, cluster: MockCluster) -> None:
    client = connect(cluster)
    consumer = client.topics["t"].get_simple_consumer()
    victims = [gevent.spawn(consumer.consume) for _ in range(5)]
    gevent.sleep(0.02)
    for victim in victims:
        victim.kill()
    fill(client, numbers(5))
    assert [m.offset for m in read(consumer, 5)] == [0, 1, 2, 3, 4]
    consumer.stop()


def test_a_killed_flush_leaves_the_next_one_everything_to_wait_for(connect: Any, cluster: MockCluster) -> None:
    cluster.on("Produce", held := Held())
    producer = connect(cluster).get_producer(linger_ms=60_000)
    delivery = producer.produce("t", b"x")
    flushing = gevent.spawn(producer.flush, LIMIT_S)
    gevent.sleep(0.05)
    flushing.kill()
    later = producer.produce("t", b"y")
    gevent.sleep(0.05)
    assert not later.done(), "the killed flush does not end anybody's linger any more"
    held.released = True
    producer.flush(LIMIT_S)
    assert delivery.done()
    assert later.done()


def test_a_failure_that_a_killed_close_was_about_to_tell_is_told_by_the_next(client: KafkaClient, cluster: MockCluster) -> None:
    """It has an outcome by then, and no delivery and no list knows it."""
    slow = SlowLog(client.handler)
    logging.getLogger("gkafka").addHandler(slow)
    try:
        cluster.on("Produce", Drop(), times=None)
        producer = client.get_producer(linger_ms=60_000)
        delivery = producer.produce("t", b"x")
        closing = gevent.spawn(producer.close, 0)
        Runner("gevent").until(lambda: slow.begun)
        closing.kill()
        assert not delivery.done()
        slow.released.set()
        error = error_of(producer.close)
    finally:
        logging.getLogger("gkafka").removeHandler(slow)
    assert isinstance(error, DeliveryError)
    assert [r.record.value for r in error.records] == [b"x"]
    assert delivery.done()


def test_a_killed_close_leaves_the_next_one_everything_to_wait_for(connect: Any, cluster: MockCluster) -> None:
    cluster.on("Produce", held := Held())
    client = connect(cluster)
    producer = client.get_producer()
    delivery = producer.produce("t", b"x")
    closing = gevent.spawn(producer.close)
    gevent.sleep(0.05)
    closing.kill()
    assert not delivery.done()
    gevent.spawn_later(0.05, setattr, held, "released", True)
    client.close()
    assert delivery.result(0).offset == 0


def test_calls_of_the_client_may_be_cut_off_and_made_again(connect: Any, make_cluster: Any) -> None:
    cluster = make_cluster(topics={"t": 2})
    client = connect(cluster)
    fill(client, numbers(20), batches=4)
    consumer = client.topics["t"].get_simple_consumer(consumer_group="g")
    calls = [
        client.update_cluster,
        lambda: client.list_offsets({("t", 0): -1, ("t", 1): -1}),
        lambda: client.fetch_raw("t", 0, 0),
        lambda: list(client.fetch_stream("t", 0, 0, 20, max_bytes=100)),
        lambda: consumer.commit_offsets([(0, 3)]),
        consumer.fetch_offsets,
        lambda: client.cluster.get_group_coordinator("g"),
    ]
    for api in ("Metadata", "ListOffsets", "Fetch", "OffsetCommit", "OffsetFetch", "FindCoordinator"):
        cluster.on(api, Delay(0.004), times=None)
    before = cuts[0]
    for call in calls:
        for n in range(8):
            cut_off(call, 0.001 * n)
    assert cuts[0] - before > 15
    cluster.clear_script()
    with Clock() as clock:
        for call in calls:
            call()
    assert clock.seconds < 30
    assert cluster.committed("g")["t", 0].offset == 3
    consumer.stop()


@pytest.fixture
def managed(client: KafkaClient, cluster: MockCluster) -> Any:
    """Has read the first of three records; its commit is answered when `held` is released."""
    fill(client, numbers(3))
    consumer: Any = client.topics["t"].get_balanced_consumer("g", managed=True, auto_commit_enable=True, consumer_timeout_ms=60_000)
    read(consumer, 1)
    cluster.on("OffsetCommit", held := Held())
    return SimpleNamespace(consumer=consumer, held=held)


def test_a_client_whose_close_is_cut_off_still_leaves_the_group(client: KafkaClient, cluster: MockCluster, managed: Any) -> None:
    """A managed consumer had forgotten its membership by then: its partitions were nobody's until the session ended."""
    cut_off(lambda: client.close(LIMIT_S), 0.1)
    managed.held.released = True
    client.close(LIMIT_S)
    assert cluster.group("g").members == {}
    assert cluster.count("LeaveGroup") == 1


def test_a_managed_consumer_whose_stop_is_cut_off_may_start_again(cluster: MockCluster, managed: Any) -> None:
    cut_off(managed.consumer.stop, 0.1)
    managed.held.released = True
    managed.consumer.start()
    assert [m.value for m in read(managed.consumer, 2)] == numbers(3)[1:]
    assert len(cluster.group("g").members) == 1


@pytest.mark.parametrize("at", ["JoinGroup", "SyncGroup", "OffsetFetch", "its end"])
def test_a_managed_consumer_that_was_never_had_is_no_member(make_cluster: Any, connect: Any, run: Runner, at: str) -> None:
    """Its constructor was killed while it waited for an answer, or what it made dropped, and Python's collector of cycles did not come by."""
    cluster = make_cluster(topics={"t": 2})
    client = connect(cluster)
    if at != "its end":
        cluster.on(at, Delay(0.1))
    gc.disable()
    try:
        making = gevent.spawn(lambda: client.topics["t"].get_balanced_consumer("g", managed=True) and None)
        run.until(lambda: cluster.count(at) if at != "its end" else making.dead)
        making.kill()
        run.until(lambda: cluster.count("LeaveGroup"))
        run.until(lambda: cluster.group("g").members == {})
    finally:
        gc.enable()


def test_a_client_whose_first_call_was_cut_off_works(connect: Any, cluster: MockCluster) -> None:
    for n in range(10):
        client = connect(cluster)
        cut_off(client.connect, 0.0005 * n)
        producer = client.get_producer()
        cut_off(lambda producer=producer: producer.produce("t", b"maybe"), 0.0005 * n)
        producer.produce("t", b"%d" % n).result(LIMIT_S)
        client.close()
    assert [v for v in stored_values(cluster) if v != b"maybe"] == numbers(10)


def test_workers_of_the_library_that_are_killed_are_told_and_nobody_waits_for_ever(connect: Any, cluster: MockCluster) -> None:
    """gevent.killall of everything, as some servers do at their end."""
    import gc

    from gevent import Greenlet

    client: KafkaClient = connect(cluster)
    producer = client.get_producer()
    producer.produce("t", b"x").result(LIMIT_S)
    producer._driver.sender.delivery_limits.timeout_s = 1.0
    cluster.on("Produce", Delay(120), times=None)
    delivery = producer.produce("t", b"y")
    mine = [g for g in gc.get_objects() if isinstance(g, Greenlet) and not g.dead and "gkafka" in (getattr(g, "name", "") or "")]
    assert mine
    gevent.killall(mine, timeout=LIMIT_S)
    begun = now()
    with pytest.raises(KafkaException):
        delivery.result(LIMIT_S)
    assert now() - begun < 30
    with pytest.raises(KafkaException):
        producer.close(2)


def transactional(connect: Any, cluster: MockCluster) -> Any:
    return connect(cluster).get_producer(transactional_id="x", linger_ms=0, retry_backoff_ms=5, retry_backoff_max_ms=20)


@pytest.mark.parametrize("how", ["timeout", "kill", "ctrl-c"])
def test_a_transaction_whose_block_is_cut_short_is_aborted(connect: Any, cluster: MockCluster, how: str) -> None:
    """The error goes on to whoever waits for it when the abort is done, and the producer has its next transaction at once."""
    producer = transactional(connect, cluster)
    reached = []

    def work() -> None:
        with producer.transaction():
            producer.produce("t", b"cut off", partition=0).result(LIMIT_S)
            producer.produce("t", b"not sent, perhaps", partition=0)
            reached.append(producer.stats()["transaction"])
            if how == "ctrl-c":
                raise KeyboardInterrupt
            if how == "timeout":
                gevent.Timeout.start_new(0.1)
            gevent.sleep(LIMIT_S)
            reached.append("the end of the block")

    if how == "timeout":
        with pytest.raises(gevent.Timeout):
            work()
    elif how == "ctrl-c":
        with pytest.raises(KeyboardInterrupt):
            work()
    else:
        victim = gevent.spawn(work)
        with gevent.Timeout(LIMIT_S):
            while not reached:
                gevent.sleep(0.01)
        victim.kill(timeout=LIMIT_S)
        assert isinstance(victim.value, gevent.GreenletExit)
    assert len(reached) == 1
    assert producer.stats()["transaction"] == "ready", "aborted, and ready for the next"
    with producer.transaction():
        producer.produce("t", b"the next", partition=0)
    assert [record.value for record in cluster.log("t", 0, committed=True)] == [b"the next"]


def test_a_commit_that_is_cut_short_goes_on_and_is_told_by_the_next_call(connect: Any, cluster: MockCluster) -> None:
    producer = transactional(connect, cluster)
    producer.init_transactions(LIMIT_S)
    cluster.on("EndTxn", held := Held())

    def work() -> None:
        with producer.transaction():
            producer.produce("t", b"whole", partition=0).result(LIMIT_S)
            gevent.Timeout.start_new(0.1)

    with pytest.raises(gevent.Timeout):
        work()
    held.released = True
    producer.commit_transaction(LIMIT_S)
    assert [record.value for record in cluster.log("t", 0, committed=True)] == [b"whole"]
    with producer.transaction():
        producer.produce("t", b"the next", partition=0)
    assert [record.value for record in cluster.log("t", 0, committed=True)] == [b"whole", b"the next"]


def test_an_abort_that_is_cut_short_goes_on_before_anything_begins(connect: Any, cluster: MockCluster) -> None:
    producer = transactional(connect, cluster)
    producer.init_transactions(LIMIT_S)
    cluster.on("EndTxn", held := Held())

    def work() -> None:
        with producer.transaction():
            producer.produce("t", b"not to be seen", partition=0).result(LIMIT_S)
            gevent.Timeout.start_new(0.1)
            raise ValueError("the block fails, and the abort takes longer than its greenlet has")

    with pytest.raises(gevent.Timeout):
        work()
    with pytest.raises(KafkaTimeoutError, match=r"begin_transaction\(\).*aborting"):
        producer.begin_transaction(0.05)
    held.released = True
    with producer.transaction():
        producer.produce("t", b"the next", partition=0)
    assert [record.value for record in cluster.log("t", 0, committed=True)] == [b"the next"]
    producer.close(LIMIT_S)


@pytest.mark.parametrize("settled", [False, True], ids=["under way", "over"])
@pytest.mark.parametrize("how", ["timeout", "kill", "ctrl-c"])
def test_the_next_transaction_waits_for_a_commit_that_was_cut_short(connect: Any, cluster: MockCluster, how: str, settled: bool) -> None:
    producer = transactional(connect, cluster)
    producer.init_transactions(LIMIT_S)
    cluster.on("EndTxn", held := Held())

    ended: list[BaseException] = []

    def work() -> None:
        try:
            with producer.transaction():
                producer.produce("t", b"whole", partition=0).result(LIMIT_S)
        except BaseException as end:
            ended.append(end)

    cut = {"timeout": gevent.Timeout(), "kill": gevent.GreenletExit(), "ctrl-c": KeyboardInterrupt()}[how]
    victim = gevent.spawn(work)
    Runner("gevent").until(lambda: producer.stats()["transaction"] == "committing")
    victim.kill(cut)
    assert ended == [cut]
    assert producer.stats()["transaction"] == "committing"
    if settled:
        held.released = True
        Runner("gevent").until(lambda: producer.stats()["transaction"] == "ready")
    else:
        with pytest.raises(KafkaTimeoutError, match=r"begin_transaction\(\).*committing"):
            producer.begin_transaction(0.05)
        held.released = True
    with producer.transaction():
        producer.produce("t", b"the next", partition=0)
    assert [record.value for record in cluster.log("t", 0, committed=True)] == [b"whole", b"the next"]
    assert cluster.count("EndTxn") == 2


def test_a_commit_that_was_cut_short_and_failed_is_told_to_whoever_begins_next(connect: Any, cluster: MockCluster) -> None:
    """A block has aborted it by then; begin_transaction() leaves that to its caller, as with a commit of its own."""
    for call in ("block", "begin"):
        producer = transactional(connect, cluster)
        producer.begin_transaction(LIMIT_S)
        cluster.on("Produce", held := Held(Error(10)))
        producer.produce("t", b"too large", partition=0)
        with gevent.Timeout(0.1, False):
            producer.commit_transaction()
        held.released = True
        begin = producer.begin_transaction if call == "begin" else producer.transaction().__enter__
        with pytest.raises(TransactionAbortableError):
            begin()
        if call == "begin":
            with pytest.raises(TransactionStateError, match="abort_transaction"):
                producer.begin_transaction()
            producer.abort_transaction(LIMIT_S)
        with producer.transaction():
            producer.produce("t", call.encode(), partition=0)
        producer.close(LIMIT_S)
    assert [record.value for record in cluster.log("t", 0, committed=True)] == [b"block", b"begin"]


def test_a_commit_whose_caller_waits_is_nobody_elses(connect: Any, cluster: MockCluster) -> None:
    producer = transactional(connect, cluster)
    producer.begin_transaction(LIMIT_S)
    producer.produce("t", b"a", partition=0).result(LIMIT_S)
    cluster.on("EndTxn", held := Held())
    caller = gevent.spawn(producer.commit_transaction, LIMIT_S)
    Runner("gevent").until(lambda: held.holds)
    with pytest.raises(TransactionStateError, match="a commit is under way"):
        producer.begin_transaction()
    held.released = True
    caller.get()


@pytest.mark.parametrize("seed", seeds(3))
def test_greenlets_that_share_a_producer_may_be_cut_off_anywhere_in_their_transactions(
    connect: Any, cluster: MockCluster, seed: int
) -> None:
    """Each transaction is seen whole or not at all, and once; whoever was not cut off has its own, and nobody has to ask for another's."""
    chance, before = Random(seed), cuts[0]
    cluster.on("EndTxn", Delay(0.003), times=None)
    producer = transactional(connect, cluster)
    mine = gevent.lock.RLock()
    done: set[bytes] = set()
    tried: list[bytes] = []

    def work(n: int) -> None:
        for i in range(8):
            value = b"%d-%d" % (n, i)

            def transact(value: bytes = value) -> None:
                with mine, producer.transaction():
                    tried.append(value)
                    for part in (b"a", b"b"):
                        producer.produce("t", value + part, partition=0)
                done.add(value)

            cut_off(transact, chance.random() * 0.06)

    workers = [gevent.spawn(work, n) for n in range(8)]
    for victim in chance.sample(workers, 3):
        gevent.sleep(chance.random() * 0.03)
        victim.kill()
    gevent.joinall(workers, timeout=LIMIT_S, raise_error=True)
    with producer.transaction():
        producer.produce("t", b"the lasta", partition=0)
        producer.produce("t", b"the lastb", partition=0)
    seen = [record.value for record in cluster.log("t", 0, committed=True)]
    whole = [value[:-1] for value in seen[::2]]
    assert seen == [value + part for value in whole for part in (b"a", b"b")], "whole, and never two mixed"
    assert len(set(whole)) == len(whole)
    assert done < set(whole) <= {*tried, b"the last"}
    assert cuts[0] - before > 5
