"""An option costs its own call: how many functions of ours a record enters on its way into an open batch, whatever is set.

Counted, not timed: a record that leaves the one fast path enters twenty and more.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import gkafka
from gkafka import KafkaClient
from gkafka.config import NativeConsumerConfig, ProducerConfig
from gkafka.interceptors import ProducerInterceptor
from gkafka.kafka import KafkaConsumer, KafkaProducer, legacy
from gkafka.records import IMPLEMENTATION
from gkafka.testing import MockCluster
from tests.public.aids import Runner
from tests.records.handmade import batch, record

OURS = str(Path(gkafka.__file__).parent) + os.sep
RECORDS = 1000
SKIN = 3 if IMPLEMENTATION == "cython" else 61
"""The same of the skins."""
LEGACY = 24 if IMPLEMENTATION == "cython" else 46
"""The same of kafka-python 0.9's, whose calls keep their offsets, their automatic commits and their turns themselves."""
ONE = 1
"""Of a record that is taken by itself: between this function and what it takes no signal handler raises."""
LOOKS, OWN_LOOKS = 0.7, 2.7
"""With greenlets every 64th record has a look at the time and the process, every fourth where the user's own code is called for each."""
DIRECT = 0 if IMPLEMENTATION == "cython" else 36
"""Of a record with which nothing of the user's is called."""
NATIVE = 2 if IMPLEMENTATION == "cython" else 50
"""Functions of ours for each record of the native producer, the user's own not counted. The Python twin has no compiled append. With greenlets
every fiftieth record or so has a look at the clock besides: less than one for each. In the twin it is
more of them on a busy machine, since a run of records ends after some milliseconds."""


class Plain(ProducerInterceptor):
    """One that changes nothing."""


SEEN: dict[str, Any] = {
    "key_serializer": lambda key: key,
    "value_serializer": lambda value: value,
    "partitioner": lambda partitions, key: partitions[-1],
    "on_delivery": lambda delivery: None,
    "interceptors": [Plain()],
    "compression": "gzip",
    "transactional_id": "t",
}
"""What the way of a record can see of the options, with a value that it must see."""
UNSEEN: dict[str, dict[str, Any]] = {
    "acks": {"acks": 0, "enable_idempotence": False},
    "enable_idempotence": {"enable_idempotence": False},
    "linger_ms": {"linger_ms": 50_000},
    "batch_bytes": {"batch_bytes": 2 << 20},
    "buffer_bytes": {"buffer_bytes": 16 << 20},
    "max_block_ms": {"max_block_ms": 50_000},
    "delivery_timeout_ms": {"delivery_timeout_ms": 500_000},
    "request_timeout_ms": {"request_timeout_ms": 20_000},
    "ack_timeout_ms": {"ack_timeout_ms": 20_000},
    "retries": {"retries": 3},
    "retry_backoff_ms": {"retry_backoff_ms": 50},
    "retry_backoff_max_ms": {"retry_backoff_max_ms": 500},
    "max_request_bytes": {"max_request_bytes": 2 << 20},
    "max_in_flight": {"max_in_flight": 1},
    "compression_level": {"compression": "gzip", "compression_level": 1},
    "transaction_timeout_ms": {"transactional_id": "t", "transaction_timeout_ms": 50_000},
    "on_fork": {"on_fork": "recreate"},
    "exit_timeout_ms": {"exit_timeout_ms": 1000},
}
"""What is looked at where a batch begins, ends, or is sent; each set to something."""


READ: dict[str, Any] = {
    "key_deserializer": lambda key: key,
    "value_deserializer": lambda value: value,
    "on_deserialize_error": "skip",
    "check_crcs": False,
    "isolation_level": "read_uncommitted",
    "auto_commit": True,
    "consume_max_bytes": 1 << 20,
    "queued_max_messages": 1,
}
"""What the way of a record can see of the options of a consumer, with a value that it must see."""
UNREAD: dict[str, dict[str, Any]] = {
    "fetch_message_max_bytes": {"fetch_message_max_bytes": 2 << 20},
    "fetch_max_bytes": {"fetch_max_bytes": 8 << 20},
    "fetch_min_bytes": {"fetch_min_bytes": 2},
    "fetch_wait_max_ms": {"fetch_wait_max_ms": 50},
    "fetch_error_backoff_ms": {"fetch_error_backoff_ms": 50},
    "queued_max_bytes": {"queued_max_bytes": 32 << 20},
    "num_consumer_fetchers": {"num_consumer_fetchers": 2},
    "client_rack": {"client_rack": "r"},
    "request_timeout_ms": {"request_timeout_ms": 20_000},
    "stall_warning_ms": {"stall_warning_ms": 50_000},
    "auto_offset_reset": {"group": "g", "auto_offset_reset": "earliest"},
    "auto_commit_interval_ms": {"group": "g", "auto_commit_interval_ms": 50_000},
    "consume_timeout_ms": {"consume_timeout_ms": 60_000},
    "dead_letter": {
        "value_deserializer": READ["value_deserializer"],
        "on_deserialize_error": "dlq",
        "dead_letter": lambda message, error: None,
    },
    "session_timeout_ms": {"group": "g", "session_timeout_ms": 40_000},
    "heartbeat_interval_ms": {"group": "g", "heartbeat_interval_ms": 2000},
    "max_poll_interval_ms": {"group": "g", "max_poll_interval_ms": 200_000},
    "assignors": {"group": "g", "assignors": ("range",)},
    "group_protocol": {"group": "g", "group_protocol": "consumer"},
    "group_remote_assignor": {"group": "g", "group_protocol": "consumer", "group_remote_assignor": "uniform"},
    "group_instance_id": {"group": "g", "group_instance_id": "i"},
    "on_assigned": {"group": "g", "on_assigned": lambda consumer, partitions: None},
    "on_revoked": {"group": "g", "on_revoked": lambda consumer, partitions: None},
    "on_lost": {"group": "g", "on_lost": lambda consumer, partitions: None},
}
"""What is looked at where a batch is fetched or opened, by the group, or where a record has failed; each set to something, but for
auto_offset_reset, whose other words begin where there is nothing to read."""


def own_looks(client: KafkaClient) -> float:
    return OWN_LOOKS if client.handler.cooperative else LOOKS


def entered(call: Callable[[], object]) -> Counter[str]:
    """The functions of ours that this thread enters in a call, each with how often."""
    found: Counter[str] = Counter()

    def look(frame: FrameType, event: str, arg: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(OURS):
            found[f"{frame.f_code.co_filename.removeprefix(OURS)}:{frame.f_code.co_qualname}"] += 1

    sys.setprofile(look)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found


def a_record(way: Callable[..., object], *given: Any, count: int = RECORDS) -> float:
    """How many of them each of many records enters, on the average."""

    def all_of_them() -> None:
        for _ in range(count):
            way(*given)

    found = entered(all_of_them)
    each = found.total() / RECORDS
    print(each, found.most_common(8))  # shown where a test fails
    return each


@pytest.fixture
def usual_topics() -> dict[str, int]:
    return {"t": 2}


def opened(client: KafkaClient, **options: Any) -> Any:
    """A producer with room for all of it in the batch that is open."""
    producer = client.get_producer(**{"linger_ms": 60_000, "delivery_timeout_ms": 600_000, "batch_bytes": 1 << 20, **options})
    if "transactional_id" in options:
        producer.init_transactions()
        producer.begin_transaction()
    for _ in range(20):  # its last batches had room for little
        producer.produce("t", b"first" * 100, b"key")
        producer.produce("t", b"first" * 100, None, 0)
    return producer


def test_each_option_of_a_producer_has_a_row_here() -> None:
    assert {field.name for field in dataclasses.fields(ProducerConfig)} == SEEN.keys() | UNSEEN.keys()
    assert not SEEN.keys() & UNSEEN.keys()


@pytest.mark.parametrize("option", sorted(SEEN))
def test_an_option_of_a_producer_costs_its_own_call(client: KafkaClient, option: str) -> None:
    producer = opened(client, **{option: SEEN[option]})
    assert a_record(producer.produce, "t", b"value", b"key") < NATIVE + own_looks(client)


@pytest.mark.parametrize("option", sorted(UNSEEN))
def test_an_option_that_no_record_sees_costs_nothing(client: KafkaClient, option: str) -> None:
    producer = opened(client, **UNSEEN[option])
    assert a_record(producer.produce, "t", b"value", b"key") < DIRECT + LOOKS


@pytest.mark.parametrize("acks", [1, "all"])
def test_each_kind_of_acks_costs_nothing(client: KafkaClient, acks: int | str) -> None:
    producer = opened(client, acks=acks, enable_idempotence=False)
    assert a_record(producer.produce, "t", b"value", b"key") < DIRECT + LOOKS


def test_measuring_the_hub_costs_a_record_nothing(cluster: MockCluster, run: Runner) -> None:
    with KafkaClient(cluster.bootstrap, handler=run.name, hub_stall_meter=True) as client:
        assert a_record(opened(client).produce, "t", b"value", b"key") < DIRECT + LOOKS


def test_all_options_together_cost_their_own_calls(client: KafkaClient) -> None:
    producer = opened(client, **SEEN)
    assert a_record(producer.produce, "t", b"value", b"key") < NATIVE + 1 + own_looks(client), (
        "the interceptor's, and one for each of two kinds of options"
    )


in_any_form = pytest.mark.parametrize(
    "record",
    [
        ("t", b"value"),
        (b"t", b"value"),
        ("t", bytearray(b"value"), memoryview(b"key")),
        ("t", memoryview(b"value"), None, 0),
        ("t", b"value", None, 0, 1_700_000_000_000),
        ("t", b"value", None, 0, None, [("h", b"1")]),
        ("t", b"value", None, 0, None, (["h", bytearray(b"1")],)),
    ],
    ids=["plain", "topic as bytes", "bytearray, memoryview", "memoryview", "timestamp", "headers", "headers of other types"],
)


@in_any_form
def test_a_record_in_any_documented_form_takes_the_same_way(client: KafkaClient, record: tuple[Any, ...]) -> None:
    assert a_record(opened(client).produce, *record) < DIRECT + LOOKS


@in_any_form
@pytest.mark.parametrize("option", ["partitioner", "value_serializer"])
def test_so_it_does_where_the_users_code_is_called_for_it(client: KafkaClient, option: str, record: tuple[Any, ...]) -> None:
    assert a_record(opened(client, **{option: SEEN[option]}).produce, *record) < NATIVE + 1 + own_looks(client)


def looks(client: KafkaClient, monkeypatch: pytest.MonkeyPatch, call: Callable[[], object]) -> int:
    """How often whoever makes 100 calls asks the client's handler to give others their turn."""
    seen: list[int] = []
    handler = client.handler
    checkpoint = handler.checkpoint
    monkeypatch.setattr(handler, "checkpoint", lambda: [seen.append(handler.current_id()), checkpoint()])
    for _ in range(100):
        call()
    return seen.count(handler.current_id())


@pytest.mark.parametrize("option", ["key_serializer", "value_serializer", "partitioner", "interceptors"])
def test_after_a_few_calls_of_the_users_code_others_may_have_their_turn(
    client: KafkaClient, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    producer = opened(client, **{option: SEEN[option]})
    seen = looks(client, monkeypatch, lambda: producer.produce("t", b"value", b"key"))
    assert seen >= 20 if client.handler.cooperative else seen <= 5, "threads have their turns anyway"


# -- reading -----------------------------------------------------------------------------------------------------------------
@pytest.fixture
def full(cluster: MockCluster, monkeypatch: pytest.MonkeyPatch) -> MockCluster:
    """A batch that no run over it ends before, however busy the machine is."""
    monkeypatch.setattr("gkafka.taking.RUN_S", 1000.0)
    monkeypatch.setattr("gkafka.taking.TURN_S", 1000.0)
    cluster.append("t", 0, batch([record(n, b"value", b"key") for n in range(RECORDS * 3)]))
    return cluster


def reading(client: KafkaClient, **options: Any) -> Any:
    """A consumer that is in the midst of the batch."""
    consumer = client.get_consumer("t", options.pop("group", None), **options)
    while consumer.consume(60_000) is None:
        pass
    consumer.consume(60_000)
    return consumer


def test_each_option_of_a_consumer_has_a_row_here() -> None:
    assert {field.name for field in dataclasses.fields(NativeConsumerConfig)} == READ.keys() | UNREAD.keys()
    assert not READ.keys() & UNREAD.keys()


@pytest.mark.parametrize("option", sorted(READ))
def test_an_option_of_a_consumer_costs_its_own_call(client: KafkaClient, full: MockCluster, option: str) -> None:
    options = {option: READ[option]}
    if option == "on_deserialize_error":
        options["value_deserializer"] = READ["value_deserializer"]
    if option == "auto_commit":
        options["group"] = "g"
    consumer = reading(client, **options)
    assert a_record(consumer.consume, 60_000) < NATIVE + ONE + LOOKS


@pytest.mark.parametrize("option", sorted(UNREAD))
def test_an_option_that_no_record_that_is_read_sees_costs_nothing(client: KafkaClient, full: MockCluster, option: str) -> None:
    consumer = reading(client, **UNREAD[option])
    assert a_record(consumer.consume, 60_000) < NATIVE + ONE + LOOKS
    assert a_record(consumer.consume_batch, 10, 60_000, count=RECORDS // 10) < NATIVE + LOOKS


@pytest.mark.parametrize("limit", [None, 0, 60_000])
def test_whatever_the_time_limit_a_record_takes_the_same_way(client: KafkaClient, full: MockCluster, limit: float | None) -> None:
    assert a_record(reading(client).consume, limit) < NATIVE + ONE + LOOKS


def test_iterating_and_small_batches_take_the_same_way(client: KafkaClient, full: MockCluster) -> None:
    consumer = reading(client)
    assert a_record(partial(next, iter(consumer))) < NATIVE + ONE + LOOKS
    assert a_record(consumer.consume_batch, 10, 60_000, count=RECORDS // 10) < NATIVE + LOOKS


@pytest.mark.parametrize("option", ["key_deserializer", "value_deserializer", "on_deserialize_error"])
def test_small_batches_through_a_deserializer_take_the_same_way(client: KafkaClient, full: MockCluster, option: str) -> None:
    consumer = reading(client, **{"value_deserializer": READ["value_deserializer"], option: READ[option]})
    assert a_record(consumer.consume_batch, 10, 60_000, count=RECORDS // 10) < NATIVE + LOOKS
    assert a_record(consumer.consume_batch, 1, 60_000) < NATIVE + 1 + LOOKS, "one takes back what a signal handler keeps from the caller"


# -- the skins ---------------------------------------------------------------------------------------------------------------
Sender = Callable[..., KafkaProducer]


@pytest.fixture
def sender(cluster: MockCluster, run: Runner) -> Iterator[Sender]:
    """Makes kafka-python's producers with room for all in the batch that is open."""
    made: list[KafkaProducer] = []

    def make(**options: Any) -> KafkaProducer:
        given = {"linger_ms": 60_000, "batch_size": 1 << 20, "handler": run.name, **options}
        made.append(KafkaProducer(bootstrap_servers=cluster.bootstrap, **given))
        for _ in range(20):
            made[-1].send("t", b"first" * 100, b"key")
            made[-1].send("t", b"first" * 100, partition=0)
        return made[-1]

    yield make
    for each in made:
        each.close(60)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"key_serializer": lambda key: key},
        {"value_serializer": lambda value: value},
        {"partitioner": lambda key, partitions, available: partitions[-1]},
        {"compression_type": "gzip"},
    ],
    ids=lambda options: next(iter(options), "nothing"),
)
def test_an_option_of_kafka_pythons_producer_costs_its_own_call(sender: Sender, options: dict[str, Any]) -> None:
    producer = sender(**options)
    assert a_record(producer.send, "t", b"value", b"key") < SKIN + own_looks(producer._client)


def test_a_callback_of_kafka_pythons_future_costs_its_own_call(sender: Sender) -> None:
    producer, done = sender(), []
    assert a_record(lambda: producer.send("t", b"value", partition=0).add_callback(done.append)) < SKIN + LOOKS
    producer.flush(60)
    future = producer.send("t", b"value", partition=0)
    producer.flush(60)
    assert a_record(future.add_callback, done.append) < SKIN + LOOKS, "it is called at once"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"serializer": lambda value, key: (value, key)},
        {"partitioner": lambda partitions, key: partitions[-1]},
        {"delivery_reports": True},
    ],
    ids=lambda options: next(iter(options), "nothing"),
)
def test_an_option_of_pykafkas_producer_costs_its_own_call(client: KafkaClient, options: dict[str, Any]) -> None:
    producer = client.topics["t"].get_producer(linger_ms=60_000, max_request_size=1 << 20, **options)
    for _ in range(40):
        producer.produce(b"first" * 100, b"key")
    assert a_record(producer.produce, b"value", b"key") < SKIN + own_looks(client)
    assert a_record(producer.produce, bytearray(b"value"), memoryview(b"key")) < SKIN + own_looks(client)
    assert a_record(producer.produce, b"value", b"key", datetime(2026, 11, 28, tzinfo=timezone.utc)) < SKIN + own_looks(client)


def test_who_takes_many_reports_lets_others_have_their_turn(client: KafkaClient, monkeypatch: pytest.MonkeyPatch, run: Runner) -> None:
    with client.topics["t"].get_producer(delivery_reports=True, linger_ms=0) as producer:
        for _ in range(100):
            producer.produce(b"value")
        run.until(lambda: len(producer._my_reports().known) == 100)
        assert looks(client, monkeypatch, producer.get_delivery_report) >= 1


@pytest.mark.parametrize("option", ["serializer", "partitioner"])
def test_after_a_few_calls_of_the_users_code_others_may_have_their_turn_in_skins_too(
    client: KafkaClient, sender: Sender, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    calls = {"serializer": lambda value, key: (value, key), "partitioner": lambda partitions, key: partitions[-1]}
    theirs = {"serializer": {"value_serializer": lambda value: value}, "partitioner": {"partitioner": lambda key, all_, there: all_[-1]}}
    producer = client.topics["t"].get_producer(linger_ms=60_000, **{option: calls[option]})
    other = sender(**theirs[option])
    ours = looks(client, monkeypatch, lambda: producer.produce(b"value", b"key"))
    theirs_too = looks(other._client, monkeypatch, lambda: other.send("t", b"value", b"key"))
    for seen in (ours, theirs_too):
        assert seen >= 20 if client.handler.cooperative else seen <= 5, "threads have their turns anyway"


Receiver = Callable[..., KafkaConsumer]


@pytest.fixture
def receiver(full: MockCluster, run: Runner) -> Iterator[Receiver]:
    """Makes kafka-python's consumers that are in the midst of the batch."""
    made: list[KafkaConsumer] = []

    def make(**options: Any) -> KafkaConsumer:
        given = {"auto_offset_reset": "earliest", "consumer_timeout_ms": 60_000, "handler": run.name, **options}
        made.append(KafkaConsumer("t", bootstrap_servers=full.bootstrap, **given))
        assert next(made[-1])
        assert next(made[-1])
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.mark.parametrize(
    "options",
    [{}, {"key_deserializer": lambda key: key}, {"value_deserializer": lambda value: value}, {"group_id": "g"}, {"check_crcs": False}],
    ids=lambda options: next(iter(options), "nothing"),
)
def test_an_option_of_kafka_pythons_consumer_costs_its_own_call(receiver: Receiver, options: dict[str, Any]) -> None:
    assert a_record(partial(next, receiver(**options))) < SKIN + ONE + LOOKS


@pytest.mark.parametrize("options", [{}, {"value_deserializer": lambda value: value}], ids=lambda options: next(iter(options), "nothing"))
def test_small_polls_of_kafka_pythons_consumer_take_the_same_way(receiver: Receiver, options: dict[str, Any]) -> None:
    assert a_record(partial(receiver(**options).poll, 60_000, max_records=10), count=RECORDS // 10) < SKIN + LOOKS


@pytest.mark.parametrize(
    "options", [{}, {"deserializer": lambda value, key: (value, key)}], ids=lambda options: next(iter(options), "nothing")
)
@pytest.mark.parametrize("way", ["consume", "iteration"])
def test_an_option_of_pykafkas_consumer_costs_its_own_call(
    client: KafkaClient, full: MockCluster, options: dict[str, Any], way: str
) -> None:
    consumer = client.topics["t"].get_simple_consumer(**options)
    assert consumer.consume()
    assert consumer.consume()
    assert a_record(consumer.consume if way == "consume" else partial(next, iter(consumer))) < SKIN + ONE + LOOKS
    assert a_record(consumer.consume_batch, 10, count=RECORDS // 10) < SKIN + LOOKS
    consumer.stop()


@pytest.mark.parametrize(
    "options", [{}, {"deserializer": lambda value, key: (value, key)}], ids=lambda options: next(iter(options), "nothing")
)
def test_a_member_of_pykafkas_groups_asks_before_each_record_whether_its_partitions_are_its_own(
    client: KafkaClient, full: MockCluster, options: dict[str, Any]
) -> None:
    with client.topics["t"].get_balanced_consumer("g", managed=True, **options) as consumer:
        assert consumer.consume()
        assert consumer.consume()
        assert a_record(consumer.consume) < SKIN + ONE + 4.7
        assert a_record(consumer.consume_batch, 10, count=RECORDS // 10) < SKIN + LOOKS


# -- kafka-python 0.9's ------------------------------------------------------------------------------------------------------
@pytest.fixture
def old_client(full: MockCluster, run: Runner) -> Iterator[legacy.KafkaClient]:
    with legacy.KafkaClient(full.bootstrap, handler=run.name) as client:
        yield client


@pytest.mark.parametrize("group", [None, "g"])
def test_ways_of_reading_of_an_old_consumer_cost_their_own_calls(old_client: legacy.KafkaClient, group: str | None) -> None:
    options = {"auto_commit_every_n": None, "max_buffer_size": None, "buffer_size": 1 << 20}
    consumer = legacy.SimpleConsumer(old_client, group, "t", iter_timeout=60, **options)
    assert consumer.get_message(timeout=60)
    assert consumer.get_message(timeout=60)
    assert a_record(partial(consumer.get_message, timeout=60)) < LEGACY
    assert a_record(partial(next, iter(consumer))) < LEGACY
    assert a_record(partial(consumer.get_messages, 9, timeout=60), count=RECORDS // 10) < LEGACY, "nine of ten are there"


@pytest.mark.parametrize("options", [{}, {"deserializer_class": lambda value: value}], ids=lambda options: next(iter(options), "nothing"))
def test_an_option_of_an_old_group_consumer_costs_its_own_call(full: MockCluster, run: Runner, options: dict[str, Any]) -> None:
    given = {"auto_offset_reset": "smallest", "consumer_timeout_ms": 60_000, "fetch_wait_max_ms": 60_000, **options}
    with legacy.KafkaConsumer("t", bootstrap_servers=full.bootstrap, handler=run.name, **given) as consumer:
        assert consumer.next()
        assert a_record(consumer.next) < LEGACY


@pytest.mark.parametrize("kind", ["Producer", "SimpleProducer", "KeyedProducer"])
def test_an_old_producer_that_does_not_wait_costs_its_own_call(old_client: legacy.KafkaClient, kind: str) -> None:
    place = {"Producer": [0], "SimpleProducer": [], "KeyedProducer": [b"key"]}[kind]
    producer = getattr(legacy, kind)(old_client, async_send=True, batch_send_every_n=10 * RECORDS, batch_send_every_t=60)
    for _ in range(20):
        producer.send_messages("t", *place, b"first")
    assert a_record(producer.send_messages, "t", *place, b"value") < LEGACY
    producer.stop()
