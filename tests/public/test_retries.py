"""Faults while producing: answers lost, leaders moved, brokers gone. Nothing lost, nothing doubled, nothing overtaken."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.exceptions import ClusterAuthorizationFailed, DeliveryError, KafkaException
from gkafka.sealing import Sealer
from gkafka.testing import Close, Delay, Drop, Error, MockCluster
from tests.effort import seeds
from tests.kit.clock import now
from tests.public.aids import LIMIT_S, Clock, Runner, error_of, short_of_time, stored, stored_values

NOT_LEADER, TOO_LARGE, TIMED_OUT, TOO_FEW_REPLICAS, STORAGE = 6, 10, 7, 19, 56
QUICK: dict[str, Any] = {"retry_backoff_ms": 10, "retry_backoff_max_ms": 50}


def numbered(n: int) -> list[bytes]:
    return [b"%05d" % i for i in range(n)]


def produce_all(producer: Any, values: list[bytes], **about: Any) -> None:
    for value in values:
        producer.produce("t", value, partition=0, **about)


# -- each fault alone --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("code", [NOT_LEADER, 3, 5, TIMED_OUT, TOO_FEW_REPLICAS, STORAGE, 2, 9, 13])
def test_errors_that_a_retry_heals_are_retried(client: KafkaClient, cluster: MockCluster, code: int) -> None:
    cluster.on("Produce", Error(code), times=2)
    producer = client.get_producer(**QUICK)
    delivery = producer.produce("t", b"x")
    assert delivery.result(LIMIT_S).offset == 0
    assert stored_values(cluster) == [b"x"]
    assert cluster.count("Produce") == 3
    assert producer.stats()["retried_batches"] == 2


@pytest.mark.parametrize(
    ("code", "name"), [(10, "MessageSizeTooLarge"), (17, "InvalidTopic"), (29, "TopicAuthorizationFailed"), (999, "UnknownBrokerError")]
)
def test_errors_for_good_fail_their_batch_and_no_other(client: KafkaClient, cluster: MockCluster, code: int, name: str) -> None:
    producer = client.get_producer(**QUICK)
    producer.produce("t", b"before").result(LIMIT_S)
    cluster.on("Produce", Error(code))
    bad = producer.produce("t", b"bad")
    assert type(bad.exception(LIMIT_S)).__name__ == name
    producer.produce("t", b"after").result(LIMIT_S)
    assert stored_values(cluster) == [b"before", b"after"]
    error_of(producer.flush)


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_broker_that_stood_still_when_it_was_asked_loses_neither_idempotence_nor_headers(
    connect: Callable[..., KafkaClient], cluster: MockCluster, idempotent: bool
) -> None:
    """Silent on ApiVersions twice, it was taken for a 0.9.0: records went out without idempotence, headers and administration were refused."""
    cluster.on("ApiVersions", Drop(before=True), times=2)
    client = connect(cluster, connect_timeout_ms=2000)
    client.connect(LIMIT_S)
    producer = client.get_producer(enable_idempotence=idempotent, **QUICK)
    assert producer.produce("t", b"x", headers=[("a", b"b")]).result(LIMIT_S).offset == 0
    assert cluster.count("InitProducerId") == idempotent
    assert client.admin().create_topics(["new"])
    consumer = client.get_consumer(topics="t")
    assert consumer.consume(timeout_ms=LIMIT_S * 1000).headers == [("a", b"b")]


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_broker_that_says_what_it_speaks_as_records_are_made_ready_loses_none(
    client: KafkaClient, cluster: MockCluster, monkeypatch: pytest.MonkeyPatch, idempotent: bool
) -> None:
    """Between the choice of a version by a guess and the question whether it was one: records failed for good, those with headers and those with a producer id."""
    guesses, choose = [1], Sealer.version
    monkeypatch.setattr(Sealer, "version", lambda *about: guesses.pop() if guesses else choose(*about))
    producer = client.get_producer(enable_idempotence=idempotent, **QUICK)
    assert producer.produce("t", b"x", headers=None if idempotent else [("a", b"b")]).result(LIMIT_S).offset == 0
    assert not guesses


def test_a_broker_that_says_what_it_speaks_is_not_doubted(
    connect: Callable[..., KafkaClient], make_cluster: Callable[..., MockCluster]
) -> None:
    """Its connection is being opened when the batch is made ready: what it said on another one is believed."""
    client = connect(make_cluster(versions="2.0.0"))
    delivery = client.get_producer(compression="zstd", retries=0, **QUICK).produce("t", b"x")
    assert type(delivery.exception(LIMIT_S)).__name__ == "UnsupportedCodec"


def test_retries_are_bounded_by_the_option(client: KafkaClient, cluster: MockCluster) -> None:
    cluster.on("Produce", Error(NOT_LEADER), times=None)
    producer = client.get_producer(retries=3, **QUICK)
    assert type(producer.produce("t", b"x").exception(LIMIT_S)).__name__ == "NotLeaderForPartition"
    assert cluster.count("Produce") == 4
    error_of(producer.flush)


def test_retries_pause_as_the_options_say(client: KafkaClient, cluster: MockCluster) -> None:
    cluster.on("Produce", Error(TOO_FEW_REPLICAS), times=10)
    producer = client.get_producer(retry_backoff_ms=80, retry_backoff_max_ms=160)
    with Clock() as clock:
        producer.produce("t", b"x").result(LIMIT_S)
    times = [r.time for r in cluster.requests("Produce")]
    pauses = [b - a for a, b in itertools.pairwise(times)]
    assert pauses[0] > 0.06
    assert all(pause > 0.12 for pause in pauses[1:])
    assert clock.seconds < 30, "doubled again and again it would be 80 s"


def test_delivery_timeout_ms_ends_the_retries(client: KafkaClient, cluster: MockCluster) -> None:
    cluster.on("Produce", Error(NOT_LEADER), times=None)
    producer = client.get_producer(delivery_timeout_ms=1000, **QUICK)
    with Clock() as clock:
        error = producer.produce("t", b"x").exception(LIMIT_S)
    assert isinstance(error, KafkaException)
    assert "1 record(s) for t-0 not delivered within 1 s" in str(error)
    assert "error 6" in str(error), "and what the broker said to the last try"
    assert 0.9 < clock.seconds < 30
    error_of(producer.flush)


def test_every_record_has_its_outcome_soon_after_delivery_timeout_ms_whatever_the_broker_does(
    connect: Any, make_cluster: Any, run: Runner
) -> None:
    """G04."""
    for fault in (Drop(), Delay(120), "stop"):
        cluster = make_cluster()
        client = connect(cluster)
        producer = client.get_producer(delivery_timeout_ms=400, linger_ms=0, batch_bytes=200, **QUICK)
        client.get_producer().produce("t", b"0").result(LIMIT_S)
        if fault == "stop":
            cluster.stop_broker(1)
        else:
            cluster.on("Produce", fault, times=None)
        with Clock() as clock:
            deliveries = [producer.produce("t", b"%d" % i * 30) for i in range(20)]
            errors = [d.exception(LIMIT_S) for d in deliveries]
        assert clock.seconds < 30
        assert all(errors)
        error = error_of(producer.flush)
        assert isinstance(error, DeliveryError)
        assert len(error.records) == 20
        assert {r.persisted for r in error.records} <= {"no", "maybe"}


def test_a_lost_answer_is_not_a_lost_nor_a_doubled_record(client: KafkaClient, cluster: MockCluster) -> None:
    """F06: the broker has it, and the retry is known by its number."""
    producer = client.get_producer(**QUICK)
    producer.produce("t", b"0").result(LIMIT_S)
    cluster.on("Produce", Close(before=False), times=3)
    assert producer.produce("t", b"1").result(LIMIT_S).offset in (1, -1)
    assert producer.produce("t", b"2").result(LIMIT_S).offset == 2
    assert stored_values(cluster) == [b"0", b"1", b"2"]


def test_without_idempotence_a_lost_answer_may_double_a_record_but_not_lose_it(client: KafkaClient, cluster: MockCluster) -> None:
    producer = client.get_producer(acks=1, **QUICK)
    producer.produce("t", b"0").result(LIMIT_S)
    cluster.on("Produce", Close(before=False))
    producer.produce("t", b"1").result(LIMIT_S)
    assert stored_values(cluster) == [b"0", b"1", b"1"]
    assert producer.stats()["idempotence"] == "off"


def test_a_request_that_gets_no_answer_is_sent_again_on_a_new_connection(client: KafkaClient, cluster: MockCluster) -> None:
    cluster.on("Produce", Drop())
    producer = client.get_producer(request_timeout_ms=200, **QUICK)
    with Clock() as clock:
        assert producer.produce("t", b"x").result(LIMIT_S).offset in (0, -1)
    assert 0.15 < clock.seconds < 30
    assert stored_values(cluster) == [b"x"]


def test_a_leader_that_moved_is_followed(connect: Any, make_cluster: Any, run: Runner) -> None:
    cluster = make_cluster(brokers=3)
    producer = connect(cluster).get_producer(**QUICK)
    for n in range(9):
        cluster.move_leader("t", 0, n % 3 + 1)
        producer.produce("t", b"%d" % n).result(LIMIT_S)
    assert stored_values(cluster) == [b"%d" % n for n in range(9)]


def test_a_broker_that_is_gone_for_a_while_loses_nothing(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    producer = client.get_producer(linger_ms=1, batch_bytes=200, **QUICK)
    produce_all(producer, numbered(50))
    cluster.stop_broker(1)
    produce_all(producer, [b"x%03d" % i for i in range(50)])
    run.sleep(0.2)
    cluster.start_broker(1)
    producer.flush(LIMIT_S)
    assert stored_values(cluster) == numbered(50) + [b"x%03d" % i for i in range(50)]


def test_another_broker_takes_over(connect: Any, make_cluster: Any) -> None:
    cluster = make_cluster(brokers=3, topics={"t": 3}, replication_factor=3)
    producer = connect(cluster).get_producer(linger_ms=1, **QUICK)
    for i in range(30):
        producer.produce("t", b"%d" % i, partition=i % 3).result(LIMIT_S)
    cluster.stop_broker(2)
    with Clock() as clock:
        for i in range(30, 60):
            producer.produce("t", b"%d" % i, partition=i % 3)
        producer.flush(LIMIT_S)
    assert clock.seconds < 30
    assert [int(v or b"") for p in range(3) for v in stored_values(cluster, "t", [p])] == [i for p in range(3) for i in range(p, 60, 3)]


def test_a_topic_that_is_deleted_fails_its_records_and_no_others(connect: Any, make_cluster: Any) -> None:
    """F14, B52."""
    cluster = make_cluster(topics={"t": 1, "gone": 1}, auto_create=False)
    producer = connect(cluster).get_producer(linger_ms=1, **QUICK)
    producer.produce("gone", b"1").result(LIMIT_S)
    cluster.delete_topic("gone")
    lost = producer.produce("gone", b"2")
    for i in range(20):
        producer.produce("t", b"%d" % i).result(LIMIT_S)
    with short_of_time(producer, 0.5):
        assert isinstance(lost.exception(LIMIT_S), KafkaException)
    assert len(stored(cluster)) == 20
    error_of(producer.flush)


def test_a_refused_batch_leaves_no_gap_that_stops_the_others(client: KafkaClient, cluster: MockCluster) -> None:
    """KIP-360: a new epoch closes it."""
    producer = client.get_producer(linger_ms=0, batch_bytes=200, **QUICK)
    producer.produce("t", b"0").result(LIMIT_S)
    cluster.on("Produce", Error(TOO_LARGE))
    produce_all(producer, [b"x" * 150 + b"%02d" % i for i in range(20)])
    error = error_of(producer.flush, LIMIT_S)
    assert isinstance(error, DeliveryError)
    lost = [r.record.value for r in error.records]
    assert 1 <= len(lost) <= 2
    assert [v for v in stored_values(cluster) if v != b"0"] == [v for i in range(20) if (v := b"x" * 150 + b"%02d" % i) not in lost]
    assert producer.stats()["epoch_bumps"] >= 1


# -- producer ids ------------------------------------------------------------------------------------------------------------
def test_a_producer_id_that_cannot_be_had_at_once_is_asked_for_again(client: KafkaClient, cluster: MockCluster) -> None:
    cluster.on("InitProducerId", Error(14), times=2)
    producer = client.get_producer(**QUICK)
    assert producer.produce("t", b"x").result(LIMIT_S).offset == 0
    assert cluster.count("InitProducerId") == 3


def test_a_producer_id_that_is_refused_fails_everything_and_says_why(client: KafkaClient, cluster: MockCluster) -> None:
    cluster.on("InitProducerId", Error(31), times=None)
    producer = client.get_producer(**QUICK)
    delivery = producer.produce("t", b"x")
    assert isinstance(delivery.exception(LIMIT_S), ClusterAuthorizationFailed)
    assert isinstance(error_of(producer.produce, "t", b"y"), ClusterAuthorizationFailed)
    error = error_of(producer.close)
    assert isinstance(error, DeliveryError)
    assert [(r.record.value, r.persisted) for r in error.records] == [(b"x", "no")]


def test_brokers_without_producer_ids_are_written_to_without_idempotence(connect: Any, make_cluster: Any) -> None:
    cluster = make_cluster(limits={"InitProducerId": None})
    producer = connect(cluster).get_producer()
    assert producer.produce("t", b"x").result(LIMIT_S).offset == 0
    assert producer.stats()["idempotence"] == "off"


def test_idempotence_that_was_asked_for_is_refused_where_it_cannot_be(connect: Any, make_cluster: Any) -> None:
    cluster = make_cluster(limits={"InitProducerId": None})
    producer = connect(cluster).get_producer(enable_idempotence=True)
    error = producer.produce("t", b"x").exception(LIMIT_S)
    assert type(error).__name__ == "UnsupportedVersion"
    error_of(producer.close)
    assert stored(cluster) == []


@pytest.mark.parametrize("version", ["0.8.2", "0.9.0", "0.10.0", "0.10.2", "0.11.0", "1.0.0", "2.8.0", "3.9.0", "4.2"])
def test_brokers_of_every_age_are_written_to_and_read_from(connect: Any, make_cluster: Any, version: str) -> None:
    cluster = make_cluster(versions=version)
    # 0.9.0 is silent on what it does not know: asking it costs seconds, and is tested where connections are.
    client = connect(cluster, broker_version="0.9.0.1") if version == "0.9.0" else connect(cluster)
    with client.get_producer(compression="gzip") as producer:
        for i in range(30):
            producer.produce("t", b"%d" % i, b"k")
    with client.topics["t"].get_simple_consumer(consumer_timeout_ms=60_000) as consumer:
        got: list[Any] = []
        while len(got) < 30:
            got += consumer.consume_batch(30)
    assert [(m.offset, m.key, m.value) for m in got] == [(i, b"k", b"%d" % i) for i in range(30)]


# -- faults together ---------------------------------------------------------------------------------------------------------
def storm(cluster: MockCluster, run: Runner, seed: int, stop: list[bool], done: list[int]) -> Callable[[], None]:
    """Does something bad every few milliseconds until stop is not empty, and notes in done what it was."""

    def rage() -> None:
        chance = Random(seed)
        brokers = sorted(cluster.brokers)
        while not stop:
            what = chance.randrange(6)
            if what == 0:
                cluster.close_connections(chance.choice(brokers), reset=chance.random() < 0.5)
            elif what == 1:
                cluster.move_leader("t", chance.randrange(2), chance.choice(brokers))
            elif what == 2:
                cluster.on("Produce", Close(before=False))
            elif what == 3:
                cluster.on("Produce", Close(before=True))
            elif what == 4:
                cluster.on("Produce", Error(chance.choice([NOT_LEADER, TIMED_OUT, TOO_FEW_REPLICAS, STORAGE])))
            else:
                cluster.on("Produce", Delay(0.02, before=chance.random() < 0.5))
            done.append(what)
            run.sleep(chance.random() * 0.03)
        cluster.clear_script()

    return rage


@pytest.mark.parametrize("seed", seeds(3))
def test_with_idempotence_nothing_is_lost_doubled_or_overtaken(connect: Any, make_cluster: Any, run: Runner, seed: int) -> None:
    """G01, G02: five requests in flight, leaders that move, connections that break before and after the broker acted."""
    cluster = make_cluster(brokers=3, topics={"t": 2}, replication_factor=3)
    producer = connect(cluster, reconnect_backoff_ms=5, reconnect_backoff_max_ms=20).get_producer(
        linger_ms=1, batch_bytes=1000, retry_backoff_ms=5, retry_backoff_max_ms=20
    )
    stop: list[bool] = []
    done: list[int] = []
    raging = run.aside(storm(cluster, run, seed, stop, done))
    deliveries: list[Any] = []
    deadline = now() + 60
    while len(deliveries) < 3000 or len(done) <= 10 or producer.stats()["retried_batches"] <= 5:
        assert now() < deadline, "a run in which nothing happened proves nothing"
        numbers = range(len(deliveries), len(deliveries) + 30)
        deliveries += [producer.produce("t", b"%05d" % i, partition=i % 2) for i in numbers]
        run.sleep(0.005)
    stop.append(True)
    raging.result()
    producer.flush(60)
    for p in range(2):
        assert stored_values(cluster, "t", [p]) == [b"%05d" % i for i in range(p, len(deliveries), 2)]
        log = cluster.log("t", p)
        told = [d.result(0).offset for d in deliveries[p::2]]
        assert all(offset in (-1, log[n].offset) for n, offset in enumerate(told)), "what is told is where it is"


@pytest.mark.parametrize("seed", seeds(2))
def test_one_request_in_flight_keeps_the_order_without_idempotence(connect: Any, make_cluster: Any, run: Runner, seed: int) -> None:
    """G03: records may come twice, but never out of order."""
    cluster = make_cluster(brokers=3, topics={"t": 2}, replication_factor=3)
    producer = connect(cluster, reconnect_backoff_ms=5, reconnect_backoff_max_ms=20).get_producer(
        acks=1, max_in_flight=1, linger_ms=1, batch_bytes=1000, retry_backoff_ms=5, retry_backoff_max_ms=20
    )
    stop: list[bool] = []
    raging = run.aside(storm(cluster, run, seed + 100, stop, []))
    for i in range(1500):
        producer.produce("t", b"%05d" % i, partition=0)
        if i % 30 == 0:
            run.sleep(0.005)
    stop.append(True)
    raging.result()
    producer.flush(60)
    values = [v or b"" for v in stored_values(cluster)]
    firsts = list(dict.fromkeys(values))
    assert firsts == numbered(1500), "none lost, and each first comes after the ones before it"
    assert max(Counter(values).values()) < 10


def test_leader_storms_do_not_become_metadata_storms(connect: Any, make_cluster: Any, run: Runner) -> None:
    """G26, F05: a few questions a second, however often leaders move."""
    cluster = make_cluster(brokers=3, topics={"t": 6}, replication_factor=3, limits={"Produce": (3, 9)})  # no news of leaders in answers
    producer = connect(cluster).get_producer(linger_ms=1, **QUICK)
    for p in range(6):
        producer.produce("t", b"x", partition=p).result(LIMIT_S)
    with Clock() as clock:
        before = cluster.count("Metadata")
        for n in range(10):
            for p in range(6):
                cluster.move_leader("t", p, (n + p) % 3 + 1)
                producer.produce("t", b"y", partition=p)
            run.sleep(0.1)
        producer.flush(LIMIT_S)
        asked = cluster.count("Metadata") - before
    assert clock.seconds >= (asked - 4) / 2.5
