"""Transactions of the native producer, on both kinds of transactions and both handlers: what is seen, what is told, what is survived."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.core.transaction import State
from gkafka.exceptions import (
    ConfigurationError,
    DeliveryError,
    FencedError,
    KafkaException,
    KafkaTimeoutError,
    MessageSizeTooLarge,
    ProducerStoppedException,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionFatalError,
    TransactionStateError,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from gkafka.nativeproducer import NativeProducer
from gkafka.producerdriver import ProducerDriver
from gkafka.testing import Close, Delay, Drop, Edit, Error, MockCluster
from gkafka.transactions import GroupMetadata
from tests.public.aids import LIMIT_S, Clock, Held, Runner, error_of, short_of_time

Make = Callable[..., MockCluster]
Connect = Callable[..., KafkaClient]
NOT_LEADER, TOO_LARGE, LOADING, NOT_COORDINATOR, OUT_OF_ORDER, ILLEGAL_GENERATION, CONCURRENT = 6, 10, 14, 16, 45, 22, 51
DENIED, FENCED, INVALID_EPOCH, TOPIC_DENIED, GROUP_DENIED = 53, 90, 47, 29, 30
OFFSETS = {("t", 0): 5, ("t", 1): (6, "note")}


@pytest.fixture(params=[0, 2], ids=["v1", "v2"])
def kind(request: pytest.FixtureRequest) -> int:
    """The level of transaction.version: 2 is KIP-890's kind."""
    level: int = request.param
    return level


@pytest.fixture
def cluster(make_cluster: Make, kind: int) -> MockCluster:
    """Two brokers with the topic "t" of two partitions."""
    return make_cluster(2, {"t": 2}, transaction_version=kind)


@pytest.fixture
def producer(client: KafkaClient) -> NativeProducer:
    return new_producer(client)


def new_producer(client: KafkaClient, **options: Any) -> NativeProducer:
    settings = {"transactional_id": "x", "retry_backoff_ms": 5, "retry_backoff_max_ms": 20, "linger_ms": 0}
    return client.get_producer(**{**settings, **options})


def committed(cluster: MockCluster) -> list[bytes | None]:
    """What read_committed consumers see, partition after partition."""
    return [record.value for p in (0, 1) for record in cluster.log("t", p, committed=True)]


def written(cluster: MockCluster) -> list[bytes | None]:
    return [record.value for p in (0, 1) for record in cluster.log("t", p)]


def put(producer: NativeProducer, *values: bytes, partition: int = 0) -> list[Any]:
    return [producer.produce("t", value, partition=partition) for value in values]


def works(producer: NativeProducer, cluster: MockCluster, value: bytes = b"after") -> bool:
    """Can the producer go on?"""
    with producer.transaction():
        put(producer, value)
    return value in committed(cluster)


def block_that_raises(producer: NativeProducer) -> None:
    with producer.transaction():
        put(producer, b"not to be seen")
        producer.flush(LIMIT_S)
        raise ValueError("mine")


# -- what is seen ------------------------------------------------------------------------------------------------------
def test_records_are_seen_once_their_transaction_is_committed(producer: NativeProducer, cluster: MockCluster) -> None:
    for n in range(3):
        with producer.transaction() as same:
            assert same is producer
            put(producer, b"a%d" % n)
            put(producer, b"b%d" % n, partition=1)
            producer.flush(LIMIT_S)
            assert b"a%d" % n in written(cluster)
            assert b"a%d" % n not in committed(cluster)
    assert committed(cluster) == [b"a0", b"a1", b"a2", b"b0", b"b1", b"b2"]


def test_records_that_the_worker_has_not_looked_for_yet_are_committed_too(
    producer: NativeProducer, cluster: MockCluster, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole transaction comes between its look for batches and its look at the transaction."""
    assert works(producer, cluster, b"first")
    assert producer._transactions is not None
    machine, finish = producer._transactions.machine, ProducerDriver.finish
    asked: list[None] = []
    looked: list[None] = []

    def late(driver: ProducerDriver) -> None:
        finish(driver)
        if asked and not looked:
            looked.append(None)
            run.until(lambda: machine.state is State.COMMITTING)

    monkeypatch.setattr(ProducerDriver, "finish", late)
    asked.append(None)
    producer._driver.worker.signal.set()
    run.until(lambda: looked)
    with producer.transaction():
        put(producer, b"late")
    assert committed(cluster) == [b"first", b"late"]


def test_gkafkas_own_consumer_sees_what_was_committed(producer: NativeProducer, client: KafkaClient, cluster: MockCluster) -> None:
    for n in range(6):
        producer.begin_transaction()
        put(producer, b"%d" % n)
        producer.flush(LIMIT_S)
        if n % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    consumer = client.topics["t"].get_simple_consumer(partitions=[client.topics["t"].partitions[0]], auto_offset_reset=-2)
    seen: list[Any] = []
    while len(seen) < 3:
        seen += [m.value for m in consumer.consume_batch(3 - len(seen), timeout_ms=1000)]
    assert seen == [b"0", b"2", b"4"]
    assert consumer.consume_batch(1, timeout_ms=50) == []
    consumer.stop()


def test_an_abort_leaves_nothing_and_tells_nothing(producer: NativeProducer, cluster: MockCluster) -> None:
    producer.begin_transaction()
    put(producer, b"sent")
    producer.flush(LIMIT_S)
    cluster.on("Produce", Error(NOT_LEADER), times=None)
    (late,) = put(producer, b"late")
    cluster.clear_script()
    producer.abort_transaction()
    assert committed(cluster) == []
    assert late.done()
    producer.flush(LIMIT_S)  # raises nothing: they went with the transaction
    assert works(producer, cluster)


def test_records_that_were_not_sent_fail_with_the_abort(client: KafkaClient, cluster: MockCluster) -> None:
    """KIP-654."""
    producer = new_producer(client, linger_ms=60_000)
    producer.begin_transaction()
    deliveries = put(producer, b"a", b"b")
    producer.abort_transaction()
    for delivery in deliveries:
        with pytest.raises(TransactionAbortedError, match="not sent: the transaction is aborted"):
            delivery.result(LIMIT_S)
    assert written(cluster) == []
    assert works(producer, cluster)


def test_a_commit_sends_what_lingers(client: KafkaClient, cluster: MockCluster) -> None:
    producer = new_producer(client, linger_ms=60_000)
    with Clock() as clock, producer.transaction():
        (delivery,) = put(producer, b"a")
    assert clock.seconds < 30
    assert delivery.result(0).offset == 0
    assert committed(cluster) == [b"a"]


def test_batches_that_may_be_on_a_broker_are_settled_before_the_abort(producer: NativeProducer, cluster: MockCluster, run: Runner) -> None:
    """One that arrived after the end would open the next transaction, or hang (KIP-890)."""
    producer.begin_transaction()
    put(producer, b"warm")
    producer.flush(LIMIT_S)
    cluster.on("Produce", Close(before=False))
    (delivery,) = put(producer, b"in doubt")
    run.until(lambda: cluster.count("Produce") >= 2)
    producer.abort_transaction(LIMIT_S)
    assert delivery.done()
    produced, ended = [[r.time for r in cluster.requests(api)] for api in ("Produce", "EndTxn")]
    assert len(produced) == 3
    assert max(produced) < min(ended)
    assert works(producer, cluster)
    assert committed(cluster) == [b"after"]


def test_the_example_of_the_documentation_runs(make_cluster: Make, kind: int, run: Runner) -> None:
    cluster = make_cluster(1, {"invoices": 2, "ledger": 1}, transaction_version=kind)
    page = (Path(__file__).resolve().parent.parent.parent / "docs" / "transactions.md").read_text()
    example = page.split("```python\n")[1].split("```")[0]
    exec(example.replace('"127.0.0.1:9092"', f'"{cluster.bootstrap}", handler={run.name!r}'), {})
    assert [r.value for r in cluster.log("ledger", 0, committed=True)] == [b"+100"]


def test_a_block_that_raises_is_aborted_and_its_error_raised(producer: NativeProducer, cluster: MockCluster) -> None:
    with pytest.raises(ValueError, match="mine"):
        block_that_raises(producer)
    assert committed(cluster) == []
    assert works(producer, cluster)


def test_a_block_may_end_its_transaction_by_itself(producer: NativeProducer, cluster: MockCluster) -> None:
    with producer.transaction():
        put(producer, b"a")
        producer.abort_transaction()
    with producer.transaction():
        put(producer, b"b")
        producer.commit_transaction()
    assert committed(cluster) == [b"b"]


def test_an_empty_transaction_is_no_matter(producer: NativeProducer, cluster: MockCluster) -> None:
    with producer.transaction():
        pass
    producer.begin_transaction()
    producer.abort_transaction()
    assert cluster.count("EndTxn") == 0
    assert works(producer, cluster)


def test_many_records_in_many_transactions_are_there_once_and_in_order(client: KafkaClient, cluster: MockCluster) -> None:
    producer = new_producer(client, batch_bytes=512, linger_ms=1)
    wanted: dict[int, list[bytes]] = {0: [], 1: []}
    for n in range(20):
        keep = n % 4 != 3
        producer.begin_transaction()
        for i in range(100):
            value = b"%d-%d" % (n, i)
            producer.produce("t", value, partition=i % 2)
            if keep:
                wanted[i % 2].append(value)
        if keep:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    assert {p: [r.value for r in cluster.log("t", p, committed=True)] for p in (0, 1)} == wanted


# -- offsets -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("group", ["g", b"g", GroupMetadata("g")], ids=["text", "bytes", "metadata"])
def test_offsets_are_committed_with_the_transaction(producer: NativeProducer, cluster: MockCluster, group: Any) -> None:
    for offsets, commit in ((OFFSETS, False), (OFFSETS, True), ({("t", 0): 9}, False)):
        producer.begin_transaction()
        producer.send_offsets(offsets, group)
        assert {key: c.offset for key, c in cluster.committed("g").items()} == ({} if commit else cluster_offsets(cluster))
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    assert {key: (c.offset, c.metadata) for key, c in cluster.committed("g").items()} == {("t", 0): (5, ""), ("t", 1): (6, "note")}


def test_offsets_are_committed_with_the_epoch_that_is_given(producer: NativeProducer, cluster: MockCluster) -> None:
    with producer.transaction():
        producer.send_offsets({("t", 0): (5, "note", 7), ("t", 1): (6, "note")}, "g")
        for epoch in (-2, 1 << 31):
            with pytest.raises(ConfigurationError, match=f"leader_epoch={epoch}"):
                producer.send_offsets({("t", 0): (5, "", epoch)}, "g")
    assert {key: (c.offset, c.leader_epoch) for key, c in cluster.committed("g").items()} == {("t", 0): (5, 7), ("t", 1): (6, -1)}


@pytest.mark.parametrize("partition", [("t", 99), ("none", 0)])
def test_offsets_of_what_does_not_exist_are_refused_at_once_and_the_transaction_goes_on(
    producer: NativeProducer, cluster: MockCluster, partition: tuple[str, int]
) -> None:
    producer.begin_transaction()
    put(producer, b"a")
    with Clock() as clock:
        error = error_of(producer.send_offsets, {("t", 0): 5, partition: 5}, "g")
    assert isinstance(error, UnknownTopicOrPartition), error
    assert f"{partition[0]}-{partition[1]}: offset 5 is not committed: the" in str(error)
    assert clock.seconds < 30
    assert cluster.count("TxnOffsetCommit") == 0
    producer.send_offsets({("t", 0): 5}, "g")
    producer.commit_transaction()
    assert cluster_offsets(cluster) == {("t", 0): 5}
    assert cluster.count("Metadata") <= 4, "what is known is not asked for again"


def cluster_offsets(cluster: MockCluster) -> dict[tuple[str, int], int]:
    return {key: c.offset for key, c in cluster.committed("g").items()}


def test_who_consumed_is_told_to_the_coordinator(producer: NativeProducer, cluster: MockCluster) -> None:
    """KIP-447. Nobody has joined the group: the coordinator answers ILLEGAL_GENERATION, which is for the user to abort."""
    producer.begin_transaction()
    with pytest.raises(TransactionAbortableError, match="error 22"):
        producer.send_offsets(OFFSETS, GroupMetadata("g", 4, "member", "instance"))
    sent = cluster.requests("TxnOffsetCommit")[0].message
    assert (sent.generation_id, sent.member_id, sent.group_instance_id) == (4, "member", "instance")
    producer.abort_transaction()
    assert works(producer, cluster)


def test_a_consumer_waits_for_offsets_of_an_open_transaction(
    producer: NativeProducer, client: KafkaClient, cluster: MockCluster, run: Runner
) -> None:
    """Else it would go on from what was committed before, and what the transaction made be made again."""
    producer.begin_transaction()
    put(producer, b"a", b"b", b"c")
    producer.commit_transaction()
    producer.begin_transaction()
    producer.send_offsets({("t", 0): 2}, "g")
    topic = client.topics["t"]

    def next_value() -> Any:
        consumer = topic.get_simple_consumer(
            consumer_group="g", partitions=[topic.partitions[0]], auto_offset_reset=-2, offsets_channel_backoff_ms=50
        )
        try:
            return consumer.consume(block=True).value
        finally:
            consumer.stop()

    aside = run.aside(next_value)
    cluster.wait_for(lambda: cluster.count("OffsetFetch") > 0) if not run.gevent else run.until(lambda: cluster.count("OffsetFetch"))
    producer.commit_transaction()
    assert aside.result() == b"c"


@pytest.mark.parametrize(
    ("offsets", "group"),
    [
        ([("t", 0)], "g"),
        ({"t": 5}, "g"),
        ({("t", 0): -1}, "g"),
        ({("t", 0): "5"}, "g"),
        ({("t", -1): 5}, "g"),
        ({("t", 0): (5, 6)}, "g"),
        ({("", 0): 5}, "g"),
        (OFFSETS, ""),
        (OFFSETS, None),
        (OFFSETS, GroupMetadata("g", -2)),
        (OFFSETS, GroupMetadata("g", 1, None)),  # type: ignore[arg-type]
    ],
    ids=repr,
)
def test_offsets_that_cannot_be_are_refused_at_the_call(producer: NativeProducer, cluster: MockCluster, offsets: Any, group: Any) -> None:
    producer.begin_transaction()
    with pytest.raises(ConfigurationError):
        producer.send_offsets(offsets, group)
    producer.commit_transaction()


# -- options -----------------------------------------------------------------------------------------------------------
def test_transactional_id_names_the_producer_to_the_coordinator(producer: NativeProducer, cluster: MockCluster, kind: int) -> None:
    producer.init_transactions(LIMIT_S)
    with producer.transaction():
        put(producer, b"a")
    (asked,) = (r.message for r in cluster.requests("InitProducerId"))
    assert asked.transactional_id == "x"
    (produced,) = cluster.requests("Produce")
    assert (produced.message.transactional_id, produced.message.acks) == ("x", -1)
    assert produced.version == (13 if kind else 11)
    assert producer.stats()["transaction"] == "ready"


def test_transaction_timeout_ms_is_how_long_a_transaction_may_be_open(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    producer = new_producer(client, transaction_timeout_ms=60_000)
    producer.begin_transaction()
    put(producer, b"a")
    producer.flush(LIMIT_S)
    broker = cluster._answers
    found = broker.state.transactional["x"]
    cluster._loop.call(lambda: broker.transactions._expire(found, found.number))  # as after a minute
    run.until(lambda: cluster.transaction("x").status == "CompleteAbort")  # type: ignore[union-attr]
    with pytest.raises(TransactionFatalError, match="transaction_timeout_ms"):
        producer.commit_transaction()
    assert cluster.requests("InitProducerId")[0].message.transaction_timeout_ms == 60_000
    assert committed(cluster) == []


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"transactional_id": ""}, "must not be empty"),
        ({"acks": 1}, "acks='all'"),
        ({"enable_idempotence": False}, "idempotence"),
        ({"transactional_id": None, "transaction_timeout_ms": 5}, "without transactional_id"),
        ({"max_in_flight": 6}, "5 or less"),
    ],
    ids=repr,
)
def test_options_that_contradict_each_other_are_refused(make_cluster: Make, connect: Connect, options: dict[str, Any], says: str) -> None:
    client = connect(make_cluster())
    with pytest.raises(ConfigurationError, match=says):
        new_producer(client, **options)


NEEDED = r"a transaction takes FindCoordinator v1, which Kafka has since 0.11.0; 127.0.0.1:\d+"


@pytest.mark.parametrize(("release", "options"), [("0.10.0", {}), ("0.10.2", {}), ("0.9.0", {"broker_version": "0.9.0.1"})])
def test_brokers_without_transactions_are_told_at_once(make_cluster: Make, connect: Connect, release: str, options: dict[str, Any]) -> None:
    client = connect(make_cluster(versions=release), **options)
    with Clock() as clock, pytest.raises(TransactionFatalError, match=NEEDED) as raised:
        new_producer(client).begin_transaction()
    assert clock.seconds < 30
    assert isinstance(raised.value.__cause__, UnsupportedVersion)


@pytest.mark.parametrize("release", ["0.8.2", "0.9.0"])
def test_brokers_that_do_not_say_that_they_have_none_are_asked_until_the_deadline(
    make_cluster: Make, connect: Connect, release: str
) -> None:
    client = connect(make_cluster(versions=release), connect_timeout_ms=1000)
    client.connect(LIMIT_S)
    with pytest.raises(UnsupportedVersion, match=rf"{NEEDED} \(it does not answer ApiVersions and is taken for Kafka {release}\)"):
        new_producer(client).init_transactions(2)


def test_brokers_that_answer_all_but_apiversions_for_a_while_are_asked_again(make_cluster: Make, connect: Connect) -> None:
    """The producer was of no use any more: FindCoordinatorRequest.key_type does not exist at version 0."""
    cluster = make_cluster(1, {"t": 2})
    cluster.on("ApiVersions", Close(before=True), times=8)
    producer = new_producer(connect(cluster, reconnect_backoff_ms=5))
    with producer.transaction():
        put(producer, b"a")
    assert committed(cluster) == [b"a"]


def test_a_producer_whose_brokers_are_taken_for_old_ones_is_of_use_when_they_answer_again(make_cluster: Make, connect: Connect) -> None:
    cluster = make_cluster(1, {"t": 2})
    cluster.on("ApiVersions", Close(before=True), times=None)
    producer = new_producer(connect(cluster, reconnect_backoff_ms=5))
    with pytest.raises(UnsupportedVersion, match=r"is taken for Kafka 0\.9\.0"):
        producer.begin_transaction(1)
    cluster.clear_script()
    with producer.transaction():
        put(producer, b"a")
    assert committed(cluster) == [b"a"]


@pytest.mark.parametrize("transactional", [True, False])
def test_a_leader_that_answers_all_but_apiversions_for_a_while_gets_numbered_records(
    make_cluster: Make, connect: Connect, run: Runner, transactional: bool
) -> None:
    """It was taken for a 0.9.0: a transaction broke, other records went out without their numbers, or failed when they were to be sent again."""
    cluster = make_cluster(2, {"t": 2})
    client = connect(cluster, reconnect_backoff_ms=5)
    client.connect(LIMIT_S)
    (silent,) = (broker for broker in client.cluster._brokers.values() if broker.told_versions is None)
    cluster.on("ApiVersions", Close(before=True), times=8, broker=silent.id)
    producer = client.get_producer(transactional_id="x" if transactional else None, linger_ms=0, retry_backoff_ms=5)
    with producer.transaction() if transactional else contextlib.nullcontext():
        for number in range(40):
            for partition in (0, 1):
                producer.produce("t", b"%d" % number, partition=partition)
            if number == 20 and not transactional:
                producer.flush(LIMIT_S)
                cluster.close_connections()
            run.sleep(0.005)
    producer.flush(LIMIT_S)
    for partition in (0, 1):
        assert [record.value for record in cluster.log("t", partition, committed=True)] == [b"%d" % number for number in range(40)]
    assert {request.version >= 3 for request in cluster.requests("Produce")} == {True}


@pytest.mark.parametrize("release", ["0.11.0", "1.1", "2.4", "2.5", "2.8", "3.9", "4.0", "4.2"])
def test_brokers_of_every_age_serve_transactions(make_cluster: Make, connect: Connect, release: str) -> None:
    cluster = make_cluster(1, {"t": 2}, versions=release)
    producer = new_producer(connect(cluster))
    with producer.transaction():
        put(producer, b"a")
        producer.send_offsets({("t", 0): 3}, "g")
    with pytest.raises(ValueError, match="mine"):
        block_that_raises(producer)
    assert works(producer, cluster)
    assert committed(cluster) == [b"a", b"after"]
    assert cluster_offsets(cluster) == {("t", 0): 3}


# -- calls that do not fit ---------------------------------------------------------------------------------------------
def test_calls_outside_of_a_transaction_say_so(producer: NativeProducer, cluster: MockCluster) -> None:
    def outside() -> None:
        for call in (
            lambda: put(producer, b"x"),
            lambda: producer.send_offsets(OFFSETS, "g"),
            producer.commit_transaction,
            producer.abort_transaction,
        ):
            with pytest.raises(TransactionStateError, match="begin_transaction"):
                call()

    outside()
    assert works(producer, cluster)
    outside()
    assert works(producer, cluster, b"again")


def test_transactions_are_not_nested(producer: NativeProducer, cluster: MockCluster) -> None:
    with producer.transaction():
        for call in (producer.begin_transaction, producer.init_transactions):
            with pytest.raises(TransactionStateError, match="in the middle of a transaction"):
                call()
        put(producer, b"a")
    assert committed(cluster) == [b"a"]


def test_a_producer_without_a_transactional_id_has_no_transactions(client: KafkaClient) -> None:
    producer = client.get_producer()
    for call in (producer.init_transactions, producer.begin_transaction, producer.commit_transaction, producer.abort_transaction):
        with pytest.raises(TransactionStateError, match="transactional_id"):
            call()
    with pytest.raises(TransactionStateError), producer.transaction():
        pass


def test_a_closed_producer_says_so(producer: NativeProducer) -> None:
    producer.begin_transaction()
    producer.close(LIMIT_S)
    for call in (producer.init_transactions, producer.begin_transaction, producer.commit_transaction, producer.abort_transaction):
        with pytest.raises(ProducerStoppedException):
            call()


def test_a_transaction_that_is_open_at_the_end_is_aborted(
    producer: NativeProducer, client: KafkaClient, cluster: MockCluster, caplog: pytest.LogCaptureFixture
) -> None:
    producer.begin_transaction()
    put(producer, b"a")
    producer.flush(LIMIT_S)
    with caplog.at_level(logging.WARNING, logger="gkafka"):
        producer.close(LIMIT_S)
    assert "in the middle of a transaction" in caplog.text
    assert cluster.transaction("x").status == "CompleteAbort"  # type: ignore[union-attr]
    assert works(new_producer(client), cluster)


def test_a_timeout_that_is_none_is_refused(producer: NativeProducer) -> None:
    producer.begin_transaction()
    for timeout in (-1, "1", float("nan")):
        with pytest.raises(ConfigurationError, match="timeout"):
            producer.commit_transaction(timeout)  # type: ignore[arg-type]
    producer.commit_transaction()


# -- errors ------------------------------------------------------------------------------------------------------------
ROUND = ("FindCoordinator", "InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn")


def requests_of(kind: int) -> list[str]:
    return [name for name in ROUND if not (kind and name.startswith("Add"))]


def full_round(producer: NativeProducer) -> None:
    with producer.transaction():
        put(producer, b"a")
        producer.send_offsets(OFFSETS, "g")


def test_retriable_errors_are_not_seen(producer: NativeProducer, cluster: MockCluster, kind: int) -> None:
    for name in requests_of(kind):
        cluster.on(name, Error(LOADING), times=2)
        if name != "FindCoordinator":
            cluster.on(name, Error(CONCURRENT))
            cluster.on(name, Error(NOT_COORDINATOR))
    full_round(producer)
    assert committed(cluster) == [b"a"]
    assert cluster_offsets(cluster) == {("t", 0): 5, ("t", 1): 6}


@pytest.mark.parametrize(
    "action", [Close(before=True), Close(before=False), Close(before=False, reset=True)], ids=["lost", "done", "reset"]
)
def test_connections_that_break_are_not_seen(producer: NativeProducer, cluster: MockCluster, kind: int, action: Any) -> None:
    for name in requests_of(kind):
        cluster.on(name, action)
    cluster.on("Produce", action)
    full_round(producer)
    assert works(producer, cluster)
    assert committed(cluster) == [b"a", b"after"]
    assert cluster_offsets(cluster) == {("t", 0): 5, ("t", 1): 6}


def test_silent_connections_are_given_up(client: KafkaClient, cluster: MockCluster, kind: int) -> None:
    producer = new_producer(client, request_timeout_ms=150)
    for name in requests_of(kind):
        cluster.on(name, Drop())
    full_round(producer)
    assert works(producer, cluster)
    assert committed(cluster) == [b"a", b"after"]


def test_coordinators_may_move_at_any_time(producer: NativeProducer, cluster: MockCluster) -> None:
    for n in range(6):
        with producer.transaction():
            put(producer, b"%d" % n)
            cluster.move_coordinator("x", 1 + n % 2)
            producer.send_offsets({("t", 0): n}, "g")
            cluster.move_coordinator("g", 1 + n % 2)
            cluster.move_coordinator("x", 2 - n % 2)
    assert committed(cluster) == [b"%d" % n for n in range(6)]
    assert cluster_offsets(cluster) == {("t", 0): 5}


def test_a_coordinator_that_goes_is_followed(producer: NativeProducer, cluster: MockCluster) -> None:
    cluster.move_leader("t", 0, 2)
    cluster.move_coordinator("x", 1)
    producer.begin_transaction()
    put(producer, b"a")
    producer.flush(LIMIT_S)
    cluster.move_coordinator("x", 2)
    cluster.stop_broker(1)
    producer.commit_transaction(LIMIT_S)
    assert committed(cluster) == [b"a"]


@pytest.mark.parametrize(
    ("api", "code", "kinds"),
    [
        ("AddPartitionsToTxn", TOPIC_DENIED, (0,)),
        ("AddOffsetsToTxn", GROUP_DENIED, (0,)),
        ("TxnOffsetCommit", ILLEGAL_GENERATION, (0, 2)),
        ("EndTxn", 120, (0, 2)),
        ("Produce", OUT_OF_ORDER, (0, 2)),
        ("Produce", INVALID_EPOCH, (0, 2)),
    ],
)
def test_abortable_errors_are_raised_aborted_and_survived(
    producer: NativeProducer, cluster: MockCluster, kind: int, api: str, code: int, kinds: tuple[int, ...]
) -> None:
    cluster.on(api, Error(code))
    if kind not in kinds:  # this kind does not send it
        full_round(producer)
        return
    with pytest.raises(TransactionAbortableError) as caught:
        full_round(producer)
    assert caught.value.abortable
    assert getattr(caught.value.__cause__, "code", None) == code
    assert committed(cluster) == []
    assert cluster_offsets(cluster) == {}
    assert works(producer, cluster)


@pytest.mark.parametrize("code", [DENIED, FENCED])
def test_a_block_whose_producer_has_ended_meanwhile_raises(producer: NativeProducer, cluster: MockCluster, run: Runner, code: int) -> None:
    cluster.on("Produce", Error(code))

    def block() -> None:
        with producer.transaction():
            put(producer, b"a")
            run.until(lambda: producer.stats()["transaction"] == "fatal")

    with pytest.raises(FencedError if code == FENCED else TransactionFatalError):
        block()
    assert committed(cluster) == []


@pytest.mark.parametrize("api", ["InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn", "Produce"])
@pytest.mark.parametrize("code", [DENIED, FENCED])
def test_fatal_errors_end_the_producer(producer: NativeProducer, cluster: MockCluster, kind: int, api: str, code: int) -> None:
    cluster.on(api, Error(code))
    if api not in (*requests_of(kind), "Produce"):  # this kind does not send it
        full_round(producer)
        return
    wanted = FencedError if code == FENCED else TransactionFatalError
    with pytest.raises((wanted, TransactionAbortableError)) as caught:
        full_round(producer)
    assert isinstance(caught.value, wanted)
    assert caught.value.fatal
    assert committed(cluster) == []
    for call in (producer.begin_transaction, producer.init_transactions, lambda: put(producer, b"x"), producer.commit_transaction):
        with pytest.raises(wanted):
            call()
    producer.close(LIMIT_S)


def test_a_second_producer_of_the_same_name_fences_the_first(producer: NativeProducer, cluster: MockCluster, connect: Connect) -> None:
    producer.begin_transaction()
    put(producer, b"old")
    producer.flush(LIMIT_S)
    second = new_producer(connect(cluster))
    assert works(second, cluster, b"new")
    with pytest.raises(FencedError):
        producer.commit_transaction()
    with pytest.raises(FencedError):
        put(producer, b"zombie")
    assert works(second, cluster, b"newer")
    assert committed(cluster) == [b"new", b"newer"]


def test_a_fenced_producer_says_so_in_a_block(producer: NativeProducer, cluster: MockCluster, connect: Connect) -> None:
    producer.init_transactions()
    new_producer(connect(cluster)).init_transactions()
    with pytest.raises(FencedError), producer.transaction():
        put(producer, b"zombie")
    assert committed(cluster) == []


def test_a_record_that_fails_fails_the_commit(producer: NativeProducer, cluster: MockCluster) -> None:
    """B03."""
    producer.begin_transaction()
    put(producer, b"good")
    producer.flush(LIMIT_S)
    cluster.on("Produce", Error(TOO_LARGE), times=None)
    (bad,) = put(producer, b"bad")
    assert isinstance(bad.exception(LIMIT_S), MessageSizeTooLarge)
    cluster.clear_script()
    error = error_of(producer.commit_transaction)
    assert isinstance(error, TransactionAbortableError)
    assert isinstance(error.__cause__, MessageSizeTooLarge)
    with pytest.raises(TransactionAbortableError):
        put(producer, b"more")
    with pytest.raises(TransactionAbortableError):
        producer.send_offsets(OFFSETS, "g")
    with pytest.raises(TransactionStateError, match=r"abort_transaction\(\) comes first"):
        producer.begin_transaction()
    producer.abort_transaction()
    assert committed(cluster) == []
    assert works(producer, cluster)


def test_a_record_that_times_out_fails_the_commit(client: KafkaClient, cluster: MockCluster) -> None:
    producer = new_producer(client)
    producer.begin_transaction()
    cluster.on("Produce", Error(NOT_LEADER), times=None)
    with short_of_time(producer, 1.0):
        put(producer, b"late")
        with pytest.raises(TransactionAbortableError, match="not delivered within"):
            producer.commit_transaction(LIMIT_S)
    cluster.clear_script()
    producer.abort_transaction(LIMIT_S)
    assert works(producer, cluster)
    assert committed(cluster) == [b"after"]


def test_flush_tells_of_a_failed_record_and_the_commit_fails_all_the_same(producer: NativeProducer, cluster: MockCluster) -> None:
    producer.begin_transaction()
    cluster.on("Produce", Error(TOO_LARGE))
    put(producer, b"bad")
    with pytest.raises(DeliveryError):
        producer.flush(LIMIT_S)
    with pytest.raises(TransactionAbortableError):
        producer.commit_transaction()
    producer.abort_transaction()
    assert works(producer, cluster)


def test_no_epoch_is_changed_inside_a_transaction(producer: NativeProducer, cluster: MockCluster) -> None:
    """B02: an epoch bump after OUT_OF_ORDER began a new transaction at the leaders, and the commit lost what came before."""
    producer.begin_transaction()
    put(producer, b"first")
    producer.flush(LIMIT_S)
    cluster.on("Produce", Error(OUT_OF_ORDER))
    put(producer, b"second")
    with pytest.raises(TransactionAbortableError):
        producer.commit_transaction()
    producer.abort_transaction()
    assert works(producer, cluster)
    assert committed(cluster) == [b"after"]


# -- ends that are not clear -------------------------------------------------------------------------------------------
def test_a_commit_whose_answer_is_late_is_told_by_the_next_call(producer: NativeProducer, cluster: MockCluster) -> None:
    producer.begin_transaction()
    put(producer, b"a")
    producer.flush(LIMIT_S)
    cluster.on("EndTxn", Delay(0.5))
    with pytest.raises(KafkaTimeoutError, match="make the same call again"):
        producer.commit_transaction(0.05)
    for call in (producer.begin_transaction, producer.abort_transaction):
        with pytest.raises(TransactionStateError, match=r"commit_transaction\(\) again"):
            call()
    producer.commit_transaction(LIMIT_S)
    assert committed(cluster) == [b"a"]
    assert works(producer, cluster)


def test_a_commit_that_ended_unheard_is_told_before_the_next_transaction(
    producer: NativeProducer, cluster: MockCluster, run: Runner
) -> None:
    producer.begin_transaction()
    put(producer, b"a")
    producer.flush(LIMIT_S)
    cluster.on("EndTxn", Delay(0.1))
    with pytest.raises(KafkaTimeoutError):
        producer.commit_transaction(0.01)
    run.until(lambda: producer.stats()["transaction"] == "ready")
    with pytest.raises(TransactionStateError, match=r"commit_transaction\(\) again"):
        producer.begin_transaction()
    producer.commit_transaction(LIMIT_S)
    assert works(producer, cluster)


@pytest.mark.parametrize("lost", [Close(before=False), Close(before=True)], ids=["done", "not done"])
def test_an_end_without_an_answer_is_asked_again_and_takes_a_new_epoch_before_the_next_transaction(
    producer: NativeProducer, cluster: MockCluster, kind: int, lost: Close
) -> None:
    """KIP-360; with KIP-890 each transaction has an epoch anyway."""
    cluster.on("EndTxn", lost)
    with producer.transaction():
        put(producer, b"a")
    assert cluster.count("EndTxn") == 2
    assert works(producer, cluster)
    assert [r.message.producer_epoch for r in cluster.requests("InitProducerId")] == ([-1] if kind else [-1, 0])
    assert committed(cluster) == [b"a", b"after"]


def test_an_abort_without_an_answer_is_asked_again(producer: NativeProducer, cluster: MockCluster) -> None:
    producer.begin_transaction()
    put(producer, b"a")
    producer.flush(LIMIT_S)
    cluster.on("EndTxn", Close(before=False))
    producer.abort_transaction(LIMIT_S)
    assert cluster.count("EndTxn") == 2
    assert committed(cluster) == []
    assert works(producer, cluster)


def test_an_unreachable_coordinator_takes_no_longer_than_the_timeout(producer: NativeProducer, cluster: MockCluster) -> None:
    producer.begin_transaction()
    put(producer, b"a")
    producer.flush(LIMIT_S)
    cluster.on("EndTxn", Error(LOADING), times=None)
    cluster.on("TxnOffsetCommit", Error(LOADING), times=None)
    calls: list[Callable[[], None]] = [
        lambda: producer.send_offsets(OFFSETS, "g", 0.1),
        lambda: producer.commit_transaction(0.1),
        lambda: producer.commit_transaction(0),
    ]
    for call in calls:
        with Clock() as clock, pytest.raises(KafkaTimeoutError):
            call()
        assert clock.seconds < 30
    cluster.clear_script()
    producer.commit_transaction(LIMIT_S)
    assert committed(cluster) == [b"a"]
    assert cluster_offsets(cluster) == {("t", 0): 5, ("t", 1): 6}, "what was asked for is done, or the commit fails"


def test_an_init_that_takes_too_long_goes_on_and_may_be_waited_for(producer: NativeProducer, cluster: MockCluster) -> None:
    cluster.on("InitProducerId", Delay(0.3))
    with pytest.raises(KafkaTimeoutError):
        producer.init_transactions(0.05)
    producer.init_transactions(LIMIT_S)
    assert cluster.count("InitProducerId") == 1
    assert works(producer, cluster)


def test_nobody_there_is_told_within_the_timeout(connect: Connect, cluster: MockCluster, run: Runner) -> None:
    client = connect(cluster)
    cluster.stop_broker(1)
    cluster.stop_broker(2)
    with Clock() as clock, pytest.raises(KafkaException):
        new_producer(client).init_transactions(1)
    assert clock.seconds < 30


# -- several at once ---------------------------------------------------------------------------------------------------
def test_a_waiting_commit_lets_others_work(producer: NativeProducer, client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    other = client.get_producer()
    other.produce("t", b"has an id", partition=1).result(LIMIT_S)
    producer.begin_transaction()
    put(producer, b"a")
    producer.flush(LIMIT_S)
    cluster.on("EndTxn", held := Held())
    aside = run.aside(producer.commit_transaction)
    run.until(lambda: cluster.count("EndTxn") == 1)
    other.produce("t", b"other", partition=1).result(LIMIT_S)
    assert aside.running
    held.released = True
    aside.result()


def test_records_of_several_workers_are_in_the_transaction_or_refused(producer: NativeProducer, cluster: MockCluster, run: Runner) -> None:
    taken: list[bytes] = []
    stopped = False

    def work(name: int) -> None:
        n = 0
        while not stopped:
            value = b"%d-%d" % (name, n)
            try:
                producer.produce("t", value, partition=name % 2)
            except TransactionStateError:
                return
            taken.append(value)
            n += 1
            if n % 10 == 0:
                run.sleep(0)

    producer.begin_transaction()
    workers = [run.aside(work, name) for name in range(3)]
    run.until(lambda: len(taken) > 300)
    producer.commit_transaction(LIMIT_S)
    at_commit = committed(cluster)
    stopped = True
    for worker in workers:
        worker.result()
    assert sorted(at_commit, key=str) == sorted(taken, key=str)
    assert committed(cluster) == at_commit


def test_a_caller_that_is_killed_leaves_the_commit_to_be_told(producer: NativeProducer, cluster: MockCluster, run: Runner) -> None:
    if not run.gevent:
        pytest.skip("threads are not killed")
    import gevent

    producer.begin_transaction()
    put(producer, b"a")
    producer.flush(LIMIT_S)
    cluster.on("EndTxn", held := Held())
    caller = gevent.spawn(producer.commit_transaction)
    run.until(lambda: held.holds)
    caller.kill()
    held.released = True
    producer.commit_transaction(LIMIT_S)
    assert cluster.count("EndTxn") == 1
    assert committed(cluster) == [b"a"]
    assert works(producer, cluster)


def test_an_answer_of_the_new_kind_names_the_next_epoch(make_cluster: Make, connect: Connect) -> None:
    """KIP-890: also a new producer id, once the epochs are used up."""

    def used_up(request: Any, answer: Any) -> Any:
        answer.producer_id, answer.producer_epoch = 4711, 0
        cluster._state.transactional["x"].producer_id, cluster._state.transactional["x"].epoch = 4711, 0
        return answer

    cluster = make_cluster(1, {"t": 2})
    producer = new_producer(connect(cluster))
    cluster.on("EndTxn", Edit(used_up))
    assert works(producer, cluster, b"a")
    assert works(producer, cluster, b"b")
    assert producer.stats()["producer_id"] == 4711
    assert committed(cluster) == [b"a", b"b"]


def test_what_a_close_gives_up_behind_a_commit_says_how_long_it_waited_in_all(
    producer: NativeProducer, cluster: MockCluster, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most of the time goes with the commit, which waits for the same record: it said 0 s."""
    producer.begin_transaction()
    cluster.on("Produce", Drop(before=True), times=None)
    delivery = put(producer, b"a")[0]
    assert producer._transactions is not None
    monkeypatch.setattr(producer._transactions.machine, "give_up", lambda error: None)  # else the worker may be first to fail the record
    committing = run.aside(error_of, producer.commit_transaction, 2)
    run.until(lambda: cluster.requests("Produce"))
    error_of(producer.close, 0.4)
    assert "close() waited 0.4 s for the record" in str(error_of(delivery.result, 1))
    committing.result()


def test_a_close_that_does_not_see_a_commits_end_says_so(connect: Connect, cluster: MockCluster) -> None:
    producer = new_producer(connect(cluster))
    producer.begin_transaction()
    put(producer, b"a")[0].result(LIMIT_S)
    cluster.on("EndTxn", Drop(), times=None)
    assert isinstance(error_of(producer.commit_transaction, 1), KafkaTimeoutError)
    error = error_of(producer.close, 0.2)
    assert isinstance(error, KafkaTimeoutError)
    assert "a commit was under way" in str(error)
    producer.close(0.2)
