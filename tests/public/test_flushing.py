"""flush, close, with, a full buffer: what they wait for, what they say, what they leave behind."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.exceptions import (
    BufferFull,
    DeliveryError,
    KafkaException,
    KafkaTimeoutError,
    ProducerStoppedException,
    TopicAuthorizationFailed,
)
from gkafka.testing import Close, Delay, Drop, Edit, Error, MockCluster, Sasl
from tests.public.aids import LIMIT_S, Clock, Held, Runner, error_of, short_of_time, stored, stored_values
from tests.public.conftest import Connect


def undelivered(fn: Any, *args: Any) -> DeliveryError:
    error = error_of(fn, *args)
    assert isinstance(error, DeliveryError)
    return error


class SlowLog(logging.Handler):
    """A log that takes its time for the first record that was not delivered: until `released`."""

    def __init__(self, handler: Any) -> None:
        super().__init__()
        self.begun, self.released = False, handler.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if "not delivered" in record.getMessage() and not self.begun:
            self.begun = True
            self.released.wait(LIMIT_S)


@pytest.fixture
def slow_log(client: KafkaClient) -> Iterator[SlowLog]:
    slow = SlowLog(client.handler)
    logging.getLogger("gkafka").addHandler(slow)
    yield slow
    slow.released.set()
    logging.getLogger("gkafka").removeHandler(slow)


# -- flush -----------------------------------------------------------------------------------------------------------------
def test_flush_covers_everything_that_was_produced_before_it(client: KafkaClient, cluster: MockCluster) -> None:
    producer = client.get_producer(linger_ms=60_000, batch_bytes=500)
    deliveries = [producer.produce("t", b"%d" % i * 20) for i in range(500)]
    with Clock() as clock:
        producer.flush(LIMIT_S)
    assert clock.seconds < 30
    assert all(d.done() for d in deliveries)
    assert len(stored(cluster)) == 500


def test_flush_of_nothing_returns_at_once(connect: Any, cluster: MockCluster) -> None:
    cluster.stop_broker(1)
    producer = connect(cluster).get_producer()
    with Clock() as clock:
        producer.flush()
        producer.close()
    assert clock.seconds < 30


def test_flush_does_not_wait_for_what_comes_after_it(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    producer = client.get_producer(linger_ms=0)
    producer.produce("t", b"0").result(LIMIT_S)
    cluster.on("Produce", Delay(0.3))
    producer.produce("t", b"1")
    flushing = run.aside(producer.flush, LIMIT_S)
    run.until(lambda: cluster.count("Produce") == 2)
    busy = [True]

    def go_on() -> None:
        while busy:
            producer.produce("t", b"x").result(LIMIT_S)

    others = run.aside(go_on)
    flushing.result()
    busy.clear()
    others.result()


def test_flush_that_runs_out_of_time_says_so_and_loses_nothing(client: KafkaClient, cluster: MockCluster) -> None:
    cluster.on("Produce", held := Held())
    producer = client.get_producer()
    delivery = producer.produce("t", b"x")
    with Clock() as clock:
        error = error_of(producer.flush, 0.1)
    assert isinstance(error, KafkaTimeoutError)
    assert "1 record" in str(error)
    assert clock.seconds < 30
    held.released = True
    assert delivery.result(LIMIT_S).offset == 0
    producer.flush(LIMIT_S)


def test_flush_lists_what_failed_since_the_last_one_and_only_once(client: KafkaClient, cluster: MockCluster) -> None:
    producer = client.get_producer(linger_ms=60_000)  # one batch, until flush() ends it
    cluster.on("Produce", Error(29))
    for i in range(3):
        producer.produce("t", b"bad%d" % i, b"k", headers=[("h", b"1")])
    error = undelivered(producer.flush, LIMIT_S)
    assert [r.record.value for r in error.records] == [b"bad0", b"bad1", b"bad2"]
    assert {type(r.error) for r in error.records} == {TopicAuthorizationFailed}
    assert {r.persisted for r in error.records} == {"no"}
    assert error.records[0].record[:3] == ("t", 0, b"k")
    assert isinstance(error.__cause__, TopicAuthorizationFailed)
    assert b"bad" not in str(error).encode()
    producer.flush(LIMIT_S)
    producer.produce("t", b"good")
    producer.flush(LIMIT_S)
    producer.close()
    assert stored_values(cluster) == [b"good"]


@pytest.mark.parametrize("call", ["flush", "close"])
@pytest.mark.parametrize("how", ["refused", "too late"])
def test_a_failure_that_is_being_told_meanwhile_is_not_missed(
    client: KafkaClient, cluster: MockCluster, run: Runner, slow_log: SlowLog, call: str, how: str
) -> None:
    """The machine has settled the batch, and who took the outcome is not done with it: a log line may wait for a disk."""
    cluster.on("Produce", Error(29) if how == "refused" else Drop(before=True), times=None)
    producer = client.get_producer(linger_ms=5, delivery_timeout_ms=10_000 if how == "refused" else 300)
    producer.produce("t", b"bad")
    run.until(lambda: slow_log.begun)
    asking = run.aside(getattr(producer, call), LIMIT_S)
    assert run.stays(lambda: asking.running, 0.1)
    slow_log.released.set()
    assert [r.record.value for r in undelivered(asking.result).records] == [b"bad"]


def test_flush_whose_time_is_over_while_a_failure_is_being_told_says_so_and_the_next_one_tells_it(
    client: KafkaClient, cluster: MockCluster, run: Runner, slow_log: SlowLog
) -> None:
    cluster.on("Produce", Error(29), times=None)
    producer = client.get_producer(linger_ms=5)
    producer.produce("t", b"bad")
    run.until(lambda: slow_log.begun)
    error = run.aside(error_of, producer.flush, 0.2).result()
    assert isinstance(error, KafkaTimeoutError), error
    assert "1 record" in str(error)
    slow_log.released.set()
    assert [r.record.value for r in undelivered(producer.flush, LIMIT_S).records] == [b"bad"]


def test_an_aborted_transaction_leaves_no_failure_to_be_told_later(
    connect: Connect, make_cluster: Any, run: Runner, client: KafkaClient, slow_log: SlowLog
) -> None:
    """Also if its failures are being told at that moment: they went with the transaction."""
    cluster = make_cluster(topics={"t": 2})
    producer = connect(cluster).get_producer(linger_ms=20, transactional_id="x")
    cluster.on("Produce", held := Held(Error(29)), times=None)
    producer.begin_transaction()
    for partition in range(2):
        producer.produce("t", b"bad", partition=partition)
    held.released = True
    run.until(lambda: slow_log.begun)
    aborting = run.aside(producer.abort_transaction, LIMIT_S)
    run.stays(lambda: aborting.running, 0.2)
    slow_log.released.set()
    aborting.result()
    run.until(lambda: producer.stats()["failed_records"] == 2)
    producer.flush(LIMIT_S)


def test_close_runs_the_callbacks_of_records_whose_failure_is_being_told_meanwhile(
    connect: Connect, make_cluster: Any, run: Runner, client: KafkaClient, slow_log: SlowLog
) -> None:
    cluster = make_cluster(topics={"t": 2})
    producer = connect(cluster).get_producer(linger_ms=20)
    called: list[int] = []
    producer.produce("t", b"good", partition=0).add_done_callback(lambda d: called.append(-1))
    producer.flush(LIMIT_S)
    cluster.on("Produce", Error(29), times=None)
    for partition in range(2):
        producer.produce("t", b"bad", partition=partition).add_done_callback(lambda d: called.append(d.partition))
    run.until(lambda: slow_log.begun)
    closing = run.aside(producer.close, LIMIT_S)
    run.stays(lambda: closing.running, 0.1)
    slow_log.released.set()
    assert len(undelivered(closing.result).records) == 2
    assert sorted(called) == [-1, 0, 1]


def test_a_record_whose_answer_never_came_may_be_persisted_and_is_said_to_be(
    client: KafkaClient, cluster: MockCluster, run: Runner
) -> None:
    producer = client.get_producer(request_timeout_ms=60_000)
    client.get_producer().produce("t", b"0").result(LIMIT_S)  # the connection is there
    cluster.on("Produce", Drop(), times=None)
    producer.produce("t", b"x")
    run.until(lambda: cluster.count("Produce") == 2)
    with short_of_time(producer, 1.0):
        error = undelivered(producer.flush, LIMIT_S)
    assert [r.persisted for r in error.records] == ["maybe"]
    assert isinstance(error.records[0].error, KafkaTimeoutError)
    assert stored_values(cluster) == [b"0", b"x"], "and indeed it is there"


def test_a_record_that_never_left_is_not_persisted_and_is_said_to_be(connect: Connect, cluster: MockCluster, run: Runner) -> None:
    client = connect(cluster, reconnect_backoff_ms=30_000, reconnect_backoff_max_ms=30_000)  # no connection is being tried at the timeout
    producer = client.get_producer(linger_ms=0)
    producer.produce("t", b"0").result(LIMIT_S)
    cluster.stop_broker(1)
    run.until(lambda: not any(c["open"] for b in client.stats()["brokers"] for c in b["connections"]))
    with short_of_time(producer, 1.0):
        producer.produce("t", b"x")
        error = undelivered(producer.flush, LIMIT_S)
    assert [r.persisted for r in error.records] == ["no"]


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_record_that_waited_for_a_connection_that_did_not_open_is_not_persisted(
    connect: Connect, cluster: MockCluster, idempotent: bool
) -> None:
    """It was "maybe", and "no answer came", though nobody but ApiVersions was ever asked."""
    with socket.create_server(("127.0.0.1", 0)) as silent:

        def elsewhere(_request: Any, answer: Any) -> Any:
            answer.brokers[0].port = silent.getsockname()[1]
            return answer

        client = connect(cluster, connect_timeout_ms=300)
        producer = client.get_producer(linger_ms=0, retry_backoff_ms=10, retry_backoff_max_ms=10, enable_idempotence=idempotent)
        producer.produce("t", b"0").result(LIMIT_S)
        cluster.on("Metadata", Edit(elsewhere), times=None)
        client.update_cluster()
        cluster.close_connections()
        with short_of_time(producer, 2.0), pytest.raises(KafkaTimeoutError, match="not delivered within 2 s") as caught:
            producer.produce("t", b"x").result(LIMIT_S)
        assert caught.value.persisted == "no"
        assert stored_values(cluster) == [b"0"]
        cluster.clear_script()
    client.update_cluster()  # the last record's time is not for finding out where its broker is
    assert producer.produce("t", b"y").result(LIMIT_S).offset == 1


def test_a_record_that_waited_for_room_on_a_connection_is_not_persisted(connect: Connect, cluster: MockCluster, run: Runner) -> None:
    cluster.on("Produce", Drop())
    client = connect(cluster, max_in_flight_per_connection=1)
    producer = client.get_producer(request_timeout_ms=5000, linger_ms=0)
    first = producer.produce("t", b"x")
    run.until(lambda: stored_values(cluster) == [b"x"])
    second = producer.produce("t", b"y")
    told = []
    with short_of_time(producer, 0.5):
        for delivery in (first, second):
            with pytest.raises(KafkaTimeoutError) as caught:
                delivery.result(LIMIT_S)
            told.append(caught.value.persisted)
    assert told == ["maybe", "no"]
    assert producer.produce("t", b"z").result(LIMIT_S).offset == 1
    assert stored_values(cluster) == [b"x", b"z"]


def test_a_deliverys_error_says_whether_its_record_may_be_persisted_and_which_it_is(client: KafkaClient, cluster: MockCluster) -> None:
    producer = client.get_producer(linger_ms=60_000, retries=0, enable_idempotence=False)
    for action, persisted in ((Error(29), "no"), (Close(before=False), "maybe")):
        cluster.on("Produce", action)
        deliveries = [producer.produce("t", b"%d" % i, b"k") for i in range(3)]
        producer.end_batch("t", 0)
        for i, delivery in enumerate(deliveries):
            for error in (delivery.exception(LIMIT_S), error_of(delivery.result)):
                assert isinstance(error, KafkaException)
                assert (error.persisted, error.record) == (persisted, delivery.record)
                assert error.record.value == b"%d" % i
        told = undelivered(producer.flush, LIMIT_S)
        assert [(r.record.value, r.persisted) for r in told.records] == [(b"%d" % i, persisted) for i in range(3)]
        assert (error.persisted, error.record) == (persisted, told.records[2].record), (
            "they are the deliveries' and the list's after flush()"
        )


def test_a_timeout_of_waiting_says_nothing_of_a_record_that_is_still_being_delivered(client: KafkaClient, cluster: MockCluster) -> None:
    cluster.on("Produce", held := Held())
    producer = client.get_producer()
    delivery = producer.produce("t", b"x")
    error = error_of(delivery.result, 0.01)
    assert (type(error), error.persisted, error.record) == (KafkaTimeoutError, None, None)
    held.released = True
    assert delivery.result(LIMIT_S).offset == 0


@pytest.mark.parametrize("ends", ["flush", "close", "commit_transaction"])
def test_a_broker_that_is_back_is_tried_before_the_time_is_over_however_long_it_would_have_rested(
    connect: Connect, cluster: MockCluster, run: Runner, ends: str
) -> None:
    client = connect(cluster, reconnect_backoff_ms=3_600_000, reconnect_backoff_max_ms=3_600_000)
    producer = client.get_producer(linger_ms=0, transactional_id="x" if ends == "commit_transaction" else None)
    if ends == "commit_transaction":
        producer.init_transactions()
        producer.begin_transaction()
    producer.produce("t", b"before").result(LIMIT_S)
    (broker,) = cluster.brokers
    cluster.stop_broker(broker)
    producer.produce("t", b"meanwhile")
    run.until(lambda: client.stats()["brokers"][0]["failures"])
    cluster.start_broker(broker)
    getattr(producer, ends)(LIMIT_S)
    assert stored_values(cluster) == [b"before", b"meanwhile"]


def test_a_broker_that_has_refused_the_client_is_not_tried_more_often_because_somebody_flushes(
    connect: Connect, make_cluster: Any, run: Runner
) -> None:
    """Others' accounts are locked after some tries."""
    cluster = make_cluster(topics={"t": 1}, sasl=Sasl({"alice": "geheim"}))
    who: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "allow_plaintext_credentials": True, "sasl_mechanism": "PLAIN"}
    rests: dict[str, Any] = dict.fromkeys(("reconnect_backoff_ms", "reconnect_backoff_max_ms"), 3_600_000)
    client = connect(cluster, **who, **rests, sasl_username="alice", sasl_password="geheim", sasl_retry_timeout_ms=0)
    producer = client.get_producer(linger_ms=0)
    producer.produce("t", b"before").result(LIMIT_S)
    cluster.on("SaslAuthenticate", Error(58), times=None)
    cluster.close_connections()
    (broker,) = client.brokers.values()

    def refused() -> Any:
        producer.produce("t", b"meanwhile")
        error_of(producer.flush, 1.0)  # until it has refused the client it was only away, and is tried
        return broker.refusal

    run.until(refused)
    run.until(lambda: not client.stats()["brokers"][0]["connections"])
    since = cluster.count("SaslAuthenticate")
    producer.produce("t", b"meanwhile")
    error_of(producer.close, 1.0)
    assert cluster.count("SaslAuthenticate") == since


def test_many_flushes_at_once_all_return(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    cluster.on("Produce", Delay(0.02), times=None)
    producer = client.get_producer(linger_ms=60_000)

    def work(n: int) -> None:
        for i in range(5):
            delivery = producer.produce("t", b"%d-%d" % (n, i))
            producer.flush(LIMIT_S)
            assert delivery.done()

    with Clock() as clock:
        for worker in [run.aside(work, n) for n in range(8)]:
            worker.result()
    assert clock.seconds < 30
    assert len(stored(cluster)) == 40


# -- close -----------------------------------------------------------------------------------------------------------------
def test_close_delivers_what_lingers(client: KafkaClient, cluster: MockCluster) -> None:
    producer = client.get_producer(linger_ms=60_000)
    delivery = producer.produce("t", b"x")
    with Clock() as clock:
        producer.close()
    assert clock.seconds < 30
    assert delivery.result(0).offset == 0
    assert isinstance(error_of(producer.produce, "t", b"y"), ProducerStoppedException)
    producer.close()
    producer.flush()
    assert len(stored(cluster)) == 1


def test_close_gives_up_at_its_timeout_and_lists_what_was_not_delivered(client: KafkaClient, cluster: MockCluster) -> None:
    cluster.on("Produce", Delay(120), times=None)
    producer = client.get_producer()
    deliveries = [producer.produce("t", b"%d" % i) for i in range(10)]
    with Clock() as clock:
        error = undelivered(producer.close, 0.3)
    assert clock.seconds < 30
    assert [r.record.value for r in error.records] == [b"%d" % i for i in range(10)]
    assert all(d.done() for d in deliveries)
    assert isinstance(error_of(deliveries[0].result, 0), KafkaTimeoutError)


def test_close_gives_up_in_time_although_callbacks_are_due(client: KafkaClient, cluster: MockCluster) -> None:
    cluster.on("Produce", Drop(), times=None)
    producer = client.get_producer(linger_ms=0)
    told: list[Any] = []
    for i in range(10):
        producer.produce("t", b"%d" % i).add_done_callback(told.append)
    with Clock() as clock:
        undelivered(producer.close, 0.3)
    assert clock.seconds < 30
    assert len(told) == 10


def test_close_refuses_whoever_waits_for_a_topic(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    cluster.on("Metadata", Drop(), times=None)
    producer = client.get_producer()
    waiting = run.aside(producer.produce, "t", b"x")
    run.until(lambda: cluster.count("Metadata"))
    assert waiting.running
    with Clock() as clock:
        producer.close(120)
        assert isinstance(error_of(waiting.result), ProducerStoppedException)
    assert clock.seconds < 60


def test_close_of_zero_fails_the_rest_at_once(client: KafkaClient, cluster: MockCluster) -> None:
    cluster.on("Produce", Delay(120))
    producer = client.get_producer(linger_ms=60_000)
    delivery = producer.produce("t", b"x")
    with Clock() as clock:
        undelivered(producer.close, 0)
    assert clock.seconds < 30
    assert delivery.done()


def test_with_raises_what_was_not_delivered(client: KafkaClient, cluster: MockCluster) -> None:
    cluster.on("Produce", Error(29))
    with pytest.raises(DeliveryError) as caught, client.get_producer() as producer:
        producer.produce("t", b"x")
    assert [r.record.value for r in caught.value.records] == [b"x"]


def test_with_does_not_hide_the_error_of_its_block(client: KafkaClient, cluster: MockCluster) -> None:
    cluster.on("Produce", Error(29))

    def block() -> None:
        with client.get_producer() as producer:
            producer.produce("t", b"x")
            raise ZeroDivisionError

    with pytest.raises((ZeroDivisionError, DeliveryError)) as caught:
        block()
    seen: list[BaseException | None] = [caught.value]
    for error in seen:
        if error is not None:
            seen += [e for e in (error.__cause__, error.__context__) if e not in seen]
    assert any(isinstance(e, ZeroDivisionError) for e in seen)


def test_closing_the_client_delivers_what_all_its_producers_hold(run: Runner, make_cluster: Any) -> None:
    cluster = make_cluster(topics={"a": 1, "b": 1, "c": 1}, limits={"Produce": (3, 12)})  # newer versions do not name topics
    client = KafkaClient(cluster.bootstrap, handler=run.name)
    one, two, three = client.get_producer(linger_ms=60_000), client.get_producer(linger_ms=60_000), client.topics["c"].get_producer()
    one.produce("a", b"1")
    two.produce("b", b"2")
    three.produce(b"3")
    cluster.on("Produce", Error(29), when=lambda request: request.message.topic_data[0].name == "a")
    error = undelivered(client.close)
    assert [r.record.value for r in error.records] == [b"1"]
    assert [stored_values(cluster, t) for t in "abc"] == [[], [b"2"], [b"3"]]


def test_a_second_close_while_the_first_waits_waits_too(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    cluster.on("Produce", Delay(0.3))
    producer = client.get_producer()
    delivery = producer.produce("t", b"x")
    first = run.aside(producer.close)
    run.until(lambda: producer.closed)
    producer.close()
    assert delivery.done()
    first.result()


def test_a_producer_that_is_dropped_with_records_in_it_says_so(client: KafkaClient, cluster: MockCluster, run: Runner, caplog: Any) -> None:
    import gc

    client.connect()
    cluster.on("Produce", Delay(120), times=None)
    caplog.set_level(logging.ERROR)
    producer = client.get_producer(linger_ms=60_000)
    producer.produce("t", b"x")
    del producer
    run.until(lambda: gc.collect() >= 0 and "without close()" in caplog.text)


# -- memory ----------------------------------------------------------------------------------------------------------------
def test_a_full_buffer_blocks_and_then_raises_and_what_was_accepted_is_kept(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    client.topics["t"]  # max_block_ms is for the buffer alone
    cluster.on("Produce", held := Held())
    producer = client.get_producer(
        buffer_bytes=40_000, batch_bytes=10_000, max_request_bytes=10_000, max_block_ms=200, linger_ms=0, max_in_flight=1
    )
    accepted = 0
    with Clock() as clock:
        while True:
            begun = clock.so_far
            try:
                producer.produce("t", b"x" * 1000)
            except BufferFull as error:
                refused = error
                break
            accepted += 1
            assert accepted < 1000
    assert "max_block_ms=200" in str(refused)
    assert "buffer_bytes=40000" in str(refused)
    assert 0.15 < clock.seconds - begun < 30
    assert 20 < accepted < 45
    held.released = True
    producer.flush(LIMIT_S)
    assert len(stored(cluster)) == accepted
    producer.produce("t", b"again").result(LIMIT_S)
    run.until(lambda: producer.stats()["buffer_bytes_free"] == 40_000)  # a moment after the result


def test_a_caller_that_waits_for_room_goes_on_when_there_is_some(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    cluster.on("Produce", Delay(0.02), times=None)
    producer = client.get_producer(buffer_bytes=20_000, batch_bytes=4_000, max_request_bytes=4_000)

    def work(n: int) -> None:
        for i in range(50):
            producer.produce("t", b"%d-%02d" % (n, i) + b"x" * 500)

    for worker in [run.aside(work, n) for n in range(4)]:
        worker.result()
    producer.flush(LIMIT_S)
    values = [(v or b"")[:4] for v in stored_values(cluster)]
    for n in range(4):
        assert [v for v in values if v.startswith(b"%d-" % n)] == [b"%d-%02d" % (n, i) for i in range(50)]


def test_a_caller_that_waits_for_room_is_woken_and_need_not_look(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    producer = client.get_producer(buffer_bytes=8192, batch_bytes=2048, max_request_bytes=4096, linger_ms=0)
    producer.produce("t", b"first").result(LIMIT_S)
    cluster.on("Produce", Delay(0.02), times=None)
    with Clock() as clock:
        for _ in range(80):
            producer.produce("t", b"x" * 900)
        producer.flush(LIMIT_S)
    assert clock.seconds < 20, "forty batches, not a second for each time the buffer was full"


def test_max_block_ms_of_zero_never_blocks(client: KafkaClient, cluster: MockCluster) -> None:
    client.topics["t"]
    cluster.on("Produce", held := Held())
    producer = client.get_producer(max_block_ms=0, buffer_bytes=4096, batch_bytes=1024, max_request_bytes=4096)
    for _ in range(100):
        try:
            producer.produce("t", b"x" * 300)
        except BufferFull:
            break
    else:
        raise AssertionError("the buffer never filled")
    held.released = True


def test_memory_comes_back_when_records_fail(client: KafkaClient, cluster: MockCluster) -> None:
    cluster.on("Produce", Error(29), times=None)
    producer = client.get_producer(buffer_bytes=20_000, batch_bytes=4_000, max_request_bytes=4_000, linger_ms=0, max_block_ms=5000)
    for _ in range(200):
        producer.produce("t", b"x" * 1000)
    error = undelivered(producer.flush, LIMIT_S)
    assert len(error.records) == 200 or "only logged" in str(error)
    del error
    assert producer.stats()["buffer_bytes_free"] == 20_000


# -- callbacks -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("ends", ["flush", "close"])
def test_the_callbacks_of_what_was_delivered_were_called(client: KafkaClient, run: Runner, ends: str) -> None:
    producer = client.get_producer()
    told: list[int] = []

    def slowly(delivery: Any) -> None:
        run.sleep(0.001)
        told.append(delivery.result().offset)

    for _ in range(300):
        producer.produce("t", b"x", partition=0).add_done_callback(slowly)
    getattr(producer, ends)(LIMIT_S)
    assert len(told) == 300


def test_flush_waits_for_callbacks_that_are_about_to_be_queued(client: KafkaClient, run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    producer = client.get_producer(linger_ms=0)
    queue = producer._driver.callbacks.add
    monkeypatch.setattr(producer._driver.callbacks, "add", lambda *callbacks: (run.sleep(0.2), queue(*callbacks)))
    told: list[Any] = []
    delivery = producer.produce("t", b"x")
    delivery.add_done_callback(told.append)
    run.until(delivery.done)
    producer.flush(LIMIT_S)
    assert len(told) == 1


def test_a_callback_may_flush(client: KafkaClient, run: Runner) -> None:
    producer = client.get_producer()
    flushed: list[bool] = []

    def flush(delivery: Any) -> None:
        producer.flush(LIMIT_S)
        flushed.append(True)

    producer.produce("t", b"x").add_done_callback(flush)
    with Clock() as clock:
        producer.flush(LIMIT_S)
    assert clock.seconds < LIMIT_S / 2
    run.until(lambda: flushed)


def test_callbacks_that_take_longer_than_close_may_are_counted_in_the_log(client: KafkaClient, run: Runner, caplog: Any) -> None:
    producer = client.get_producer(linger_ms=0)
    go_on = client.handler.Event()
    told: list[Any] = []
    deliveries = [producer.produce("t", b"x") for _ in range(3)]
    for each in deliveries:
        each.add_done_callback(lambda delivery: (go_on.wait(LIMIT_S), told.append(delivery)))
    run.until(lambda: all(each.done() for each in deliveries))
    with Clock() as clock:
        producer.close(0.2)
    assert clock.seconds < 30
    assert "close: 3 delivery callback(s) were not called in its time" in caplog.text
    go_on.set()
    run.until(lambda: len(told) == 3)


@pytest.mark.parametrize("ends", ["flush", "close"])
def test_every_record_that_was_not_delivered_is_listed_however_many_there_are(client: KafkaClient, cluster: MockCluster, ends: str) -> None:
    cluster.on("Produce", Drop(before=True), times=None)
    producer = client.get_producer(delivery_timeout_ms=500, request_timeout_ms=10_000)
    for i in range(30_000):
        producer.produce("t", b"%d" % i)
    error = undelivered(getattr(producer, ends), LIMIT_S)
    assert sorted(int(r.record.value) for r in error.records) == list(range(30_000))
