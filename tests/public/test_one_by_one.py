"""Messages taken one by one, by iteration or consume(): the short way to the next one is the long one, at each step."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable
from itertools import chain, islice
from typing import Any

import pytest

from gkafka import KafkaClient, taking
from gkafka.common import TopicPartition
from gkafka.exceptions import ConsumerStoppedException, CorruptRecordError, SerializationError
from gkafka.kafka import KafkaConsumer
from gkafka.queuereader import QueueReader
from gkafka.testing import MockCluster
from tests.public.aids import LIMIT_S, Runner, by_partition, fill, read
from tests.public.forking import script
from tests.public.groupaids import QUICK, places, read_all
from tests.public.test_consuming import Consume, consume, numbers
from tests.public.test_native_consumer import Make, make
from tests.records.handmade import batch, message, record, values

__all__ = ["consume", "make"]

T0 = TopicPartition("t", 0)


def offsets(messages: Any, count: int) -> list[int]:
    return [m.offset for m in islice(messages, count)]


def test_the_position_moves_with_each_message(client: KafkaClient, consume: Consume, make: Make) -> None:
    fill(client, numbers(40), batches=3)
    simple, native = consume("g"), make("t", "h", auto_commit=False, auto_offset_reset="earliest")
    for n, (one, other) in enumerate(zip(simple, islice(native, 40), strict=False)):
        assert (one.offset, one.value) == (other.offset, other.value) == (n, b"%d" % n)
        assert simple.held_offsets == {0: n}
        assert native.position(T0) == n + 1
        assert native.lag()[T0] == 39 - n
        if n in {0, 20, 39}:
            simple.commit_offsets()
            native.commit()
            assert (simple.fetch_offsets()[0][1].offset, native.committed(T0)) == (n + 1, n + 1)
        if n == 39:
            break


def test_what_was_not_handed_out_is_counted(client: KafkaClient, make: Make, run: Runner) -> None:
    fill(client, numbers(500))
    consumer = make("t")
    run.until(lambda: consumer.stats()["buffered"] == 500)
    for n, _ in enumerate(islice(consumer, 500), start=1):
        assert consumer.stats()["buffered"] == 500 - n
        assert consumer.explain().partitions[T0].buffered == 500 - n


def test_what_is_left_of_a_batch_comes_in_the_next_call_of_any_kind(client: KafkaClient, make: Make) -> None:
    fill(client, numbers(30))
    consumer = make("t")
    assert offsets(consumer, 3) == [0, 1, 2]
    assert [m.offset for m in consumer.consume_batch(5)] == [3, 4, 5, 6, 7]
    assert [consumer.consume().offset, consumer.consume().offset] == [8, 9]
    assert [m.offset for m in read(consumer, 20)] == list(range(10, 30))
    assert consumer.consume(0) is None


def test_seek_pause_and_another_assignment_take_effect_at_once(connect: Any, make_cluster: Any, make: Make) -> None:
    client = connect(make_cluster(topics={"t": 2}))
    for partition in range(2):
        fill(client, numbers(50), partition=partition)
    consumer = make(of=client)
    consumer.assign([T0])
    messages = iter(consumer)
    assert offsets(messages, 5) == [0, 1, 2, 3, 4]
    consumer.seek(T0, 30)
    assert offsets(messages, 5) == [30, 31, 32, 33, 34]
    consumer.pause([T0])
    assert consumer.consume(100) is None
    assert consumer.position(T0) == 35
    consumer.resume([T0])
    assert offsets(messages, 1) == [35]
    consumer.assign([("t", 1)])
    assert [(m.partition_id, m.offset) for m in islice(messages, 2)] == [(1, 0), (1, 1)]


def test_records_before_the_start_are_left_out(client: KafkaClient, consume: Consume) -> None:
    fill(client, numbers(20))
    consumer = consume()
    consumer.reset_offsets([(0, 7)])
    assert offsets(consumer, 6) == [7, 8, 9, 10, 11, 12]


def test_every_partition_has_its_turn(connect: Any, make_cluster: Any, make: Make, run: Runner) -> None:
    client = connect(make_cluster(topics={"t": 3}))
    for partition in range(3):
        fill(client, numbers(1500), partition=partition)
    consumer = make("t", of=client)
    run.until(lambda: consumer.stats()["buffered"] == 4500)
    seen = by_partition(islice(consumer, 3300))
    assert seen.keys() == {0, 1, 2}
    assert all(found == list(range(len(found))) for found in seen.values())


def test_damage_is_told_in_its_place(client: KafkaClient, cluster: MockCluster, consume: Consume) -> None:
    """The checksum is right, the seventh record is not."""
    good = [record(i, b"%d" % i) for i in range(6)]
    cluster.append("t", 0, values(5) + batch([*good, record(3, b"again")], base_offset=5, last_delta=6) + values(1, base_offset=12))
    consumer = consume(fetch_error_backoff_ms=10)
    messages = iter(consumer)
    assert offsets(messages, 11) == list(range(11))
    with pytest.raises(CorruptRecordError, match="offset") as caught:
        next(messages)
    assert (caught.value.topic, caught.value.partition) == ("t", 0)
    assert consumer.held_offsets == {0: 10}
    consumer.reset_offsets([(0, 12)])
    assert consumer.consume().offset == 12


def test_old_message_sets_are_iterated_too(client: KafkaClient, cluster: MockCluster, consume: Consume) -> None:
    cluster.append("t", 0, b"".join(message(i, b"%d" % i) for i in range(20)))
    assert [(m.offset, m.value) for m in islice(consume(), 20)] == [(i, b"%d" % i) for i in range(20)]


def test_a_deserializer_is_applied_to_each(client: KafkaClient, consume: Consume, make: Make) -> None:
    fill(client, numbers(20))
    simple = consume(deserializer=lambda value, key: (int(value), key))
    assert [m.value for m in islice(simple, 20)] == list(range(20))
    assert [m.value for m in islice(make("t", value_deserializer=int), 20)] == list(range(20))


@pytest.mark.parametrize("size", [1, 2, 5, 7, 100])
def test_small_batches_through_a_deserializer_have_each_record_once(client: KafkaClient, consume: Consume, make: Make, size: int) -> None:
    fill(client, numbers(300), batches=3)
    simple = consume(deserializer=lambda value, key: (int(value), key))
    for consumer in (simple, make("t", value_deserializer=int)):
        seen: list[int] = []
        while len(seen) < 300:
            seen += [m.value for m in consumer.consume_batch(min(size, 300 - len(seen)), 60_000)]
        assert seen == list(range(300))


@pytest.mark.parametrize("size", [1, 5])
def test_one_that_fails_is_met_behind_those_before_it(client: KafkaClient, consume: Consume, make: Make, size: int) -> None:
    fill(client, numbers(30))

    def fails(value: bytes) -> int:
        if value == b"12":
            raise ValueError(value)
        return int(value)

    simple, native = consume(deserializer=lambda value, key: (fails(value), key)), make("t", value_deserializer=fails)
    for consumer in (simple, native):
        seen: list[int] = []
        while len(seen) < 12:
            seen += [m.value for m in consumer.consume_batch(size, 60_000)]
        assert seen == list(range(12))
        with pytest.raises(SerializationError, match="offset 12"):
            consumer.consume_batch(size, 60_000)
    assert native.position(T0) == 12
    native.seek(T0, 13)
    assert [m.value for m in read(native, 17)] == list(range(13, 30))


@pytest.mark.parametrize("mode", ["skip", "dlq"])
def test_those_that_fail_are_passed_in_small_batches_too(client: KafkaClient, make: Make, mode: str) -> None:
    fill(client, numbers(59))
    letters: list[int] = []
    options = {"dead_letter": lambda message, error: letters.append(message.offset)} if mode == "dlq" else {}

    def fails(value: bytes) -> int:
        if int(value) % 7 == 3:
            raise ValueError(value)
        return int(value)

    consumer = make("t", value_deserializer=fails, on_deserialize_error=mode, **options)
    good = [n for n in range(59) if n % 7 != 3]
    assert [m.value for m in read(consumer, len(good), size=4)] == good
    assert mode == "skip" or letters == [n for n in range(59) if n % 7 == 3], "each once"


def test_one_that_fails_is_tried_twice_at_most(client: KafkaClient, make: Make) -> None:
    """Where nobody is to be told at once the short way leaves it to the long one, which decides."""
    fill(client, numbers(59))
    tried: Counter[int] = Counter()

    def fails(value: bytes) -> int:
        tried[int(value)] += 1
        if int(value) % 7 == 3:
            raise ValueError(value)
        return int(value)

    consumer = make("t", value_deserializer=fails, on_deserialize_error="skip")
    good = [n for n in range(59) if n % 7 != 3]
    assert [consumer.consume(60_000).value for _ in good] == good
    assert max(tried.values()) == 2
    assert {tried[n] for n in good} == {1}


@pytest.fixture
def long_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is."""
    for name in ("RUN_S", "TURN_S"):
        monkeypatch.setattr(taking, name, LIMIT_S)


@pytest.mark.usefixtures("long_runs")
@pytest.mark.parametrize("skin", ["native", "pykafka", "kafka-python"])
def test_two_workers_at_partitions_that_stand_alike_mix_nothing_up(skin: str, connect: Any, make_cluster: Any, run: Runner) -> None:
    """The one that is quicker lets the short way go on with the other partition, while the deserializer works on a record of the first."""
    cluster = make_cluster(topics={"t": 2})
    client = connect(cluster)
    produced = [[b"%d-%d" % (partition, i) for i in range(6)] for partition in (0, 1)]
    for partition, those in enumerate(produced):
        fill(client, those, partition=partition)
    there, go = client.handler.Event(), client.handler.Event()
    made: list[bytes] = []

    def slow_once(value: bytes) -> bytes:
        made.append(value)
        if len(made) == 2:
            there.set()
            go.wait(LIMIT_S)
        return value

    if skin == "kafka-python":
        facade = KafkaConsumer(
            "t", bootstrap_servers=cluster.bootstrap, handler=run.name, auto_offset_reset="earliest", value_deserializer=slow_once
        )
        with contextlib.closing(facade):
            took = two_workers(lambda ms: [m for part in facade.poll(ms, max_records=1).values() for m in part], there, go, run)
    elif skin == "native":
        native = client.get_consumer("t", value_deserializer=slow_once)
        took = two_workers(lambda ms: native.consume_batch(1, ms), there, go, run)
    else:
        simple = client.topics["t"].get_simple_consumer(deserializer=lambda value, key: (slow_once(value), key))
        took = two_workers(lambda ms: simple.consume_batch(1, ms), there, go, run)
    assert sorted(took) == sorted(chain(*produced))


def two_workers(one: Callable[[int], list[Any]], there: Any, go: Any, run: Runner) -> list[bytes]:
    """The values, of which a second worker has taken one meanwhile."""
    took = [m.value for m in one(60_000)]
    other = run.aside(one, 60_000)
    assert there.wait(LIMIT_S)
    took += [m.value for m in one(60_000)]
    go.set()
    took += [m.value for m in other.result()]
    while more := one(1000):
        took += [m.value for m in more]
    return took


@pytest.mark.usefixtures("long_runs")
def test_what_is_being_taken_is_behind_the_short_way(client: KafkaClient, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread would take what comes next by it, and a deserializer that fails would go back to there: what is between was lost."""
    fill(client, numbers(400))
    bad = {3}

    def fails_once(value: bytes) -> int:
        if int(value) in bad:
            bad.clear()
            raise ValueError(value)
        return int(value)

    consumer = make("t", value_deserializer=fails_once)
    seen = [m.value for m in read(consumer, 1, size=1)]
    settle = QueueReader._settle

    def another_thread_meanwhile(*args: Any) -> bool:
        seen.extend(m.value for m in consumer.few_ready(7))
        return settle(*args)

    monkeypatch.setattr(QueueReader, "_settle", another_thread_meanwhile)
    while True:
        try:
            more = consumer.consume_batch(101, 1000)
        except SerializationError:
            continue
        if not more:
            break
        seen += [m.value for m in more]
    assert sorted(seen) == list(range(400))
    assert not bad


def test_who_is_interrupted_in_a_small_batch_has_lost_nothing(client: KafkaClient, make: Make) -> None:
    fill(client, numbers(40))
    interrupts = [13, 22]

    def interrupted(value: bytes) -> int:
        if interrupts and int(value) == interrupts[0]:
            interrupts.pop(0)
            raise KeyboardInterrupt
        return int(value)

    consumer = make("t", value_deserializer=interrupted)
    seen: list[int] = []
    while len(seen) < 40:
        with contextlib.suppress(KeyboardInterrupt):
            seen += [m.value for m in consumer.consume_batch(5, 60_000)]
    assert seen == list(range(40))
    assert not interrupts


def test_a_position_that_moves_while_a_small_batch_is_made_wins(client: KafkaClient, make: Make) -> None:
    fill(client, numbers(40))
    seeks = [12]

    def moves(value: bytes) -> int:
        if seeks and int(value) == seeks[0]:
            consumer.seek(T0, seeks.pop() + 18)
        return int(value)

    consumer = make("t", value_deserializer=moves)
    seen = [m.value for m in read(consumer, 10, size=5)]
    while consumer.position(T0) < 40:
        seen += [m.value for m in consumer.consume_batch(5, 200)]
    told, behind = seen[:-10], seen[-10:]
    assert behind == list(range(30, 40))
    assert told in (list(range(10)), list(range(15))), "what was at work is handed out, or not"


def test_where_time_is_over_in_a_small_batch_what_was_made_is_handed_out(
    client: KafkaClient, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And made once."""
    monkeypatch.setattr("gkafka.taking.RUN_S", 0.05)
    monkeypatch.setattr("gkafka.taking.TURN_S", 0.05)
    fill(client, numbers(60))
    calls: list[int] = []

    def slow_at_times(value: bytes) -> int:
        calls.append(int(value))
        if int(value) % 20 > 12:
            client.handler.sleep(0.03)
        return int(value)

    consumer = make("t", value_deserializer=slow_at_times)
    assert [m.value for m in read(consumer, 60, size=10)] == list(range(60))
    assert calls == list(range(60))


def test_a_full_partition_is_fetched_again_when_there_is_room(client: KafkaClient, make: Make) -> None:
    fill(client, numbers(400), batches=40)
    consumer = make("t", queued_max_messages=20, fetch_message_max_bytes=300, fetch_max_bytes=300)
    assert offsets(consumer, 400) == list(range(400))


def test_what_is_in_the_loop_is_not_finished(connect: Any, make_cluster: Any) -> None:
    """The message that the body of the loop works on is not committed; those before it are."""
    cluster = make_cluster(topics={"t": 1})
    client = connect(cluster)
    fill(client, numbers(10))
    consumer = client.get_consumer("t", "g", **{**QUICK, "auto_offset_reset": "earliest", "auto_commit_interval_ms": 20})
    messages = iter(consumer)
    assert offsets(messages, 4) == [0, 1, 2, 3]
    handed_out, seen = consumer._engine.hand_outs, consumer._progress.seen
    assert handed_out == seen + 1
    consumer.stop()
    assert cluster.committed("g")["t", 0].offset == 4


def test_who_takes_a_partition_away_finds_what_is_just_handed_out(connect: Any, make_cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts before the step, wherever that is seen: here by whom the position asks."""
    client = connect(make_cluster())
    fill(client, numbers(3))
    consumer = client.get_consumer("t", "g", **QUICK, auto_offset_reset="earliest")
    engine = consumer._engine
    assert read(consumer, 1)
    queue = engine.run.queue
    seen: list[int] = []
    before = engine.hand_outs

    class Position:
        """Of the queue, which the step asks whether it is paused."""

        def __getattr__(self, name: str) -> Any:
            if name == "paused":
                seen.append(engine.hand_outs)
            return getattr(position, name)

    position = queue.position
    queue.position = Position()
    try:
        consumer.next_ready()
    finally:
        queue.position = position
    assert set(seen) == {before + 1}


def test_a_group_that_changes_hands_over_in_the_middle_of_a_loop(connect: Any, make_cluster: Any) -> None:
    cluster = make_cluster(topics={"t": 2})
    client = connect(cluster)
    for partition in range(2):
        fill(client, numbers(300), partition=partition)
    options = {**QUICK, "assignors": ["range"], "auto_offset_reset": "earliest", "auto_commit_interval_ms": 50}
    one = client.get_consumer("t", "g", **options)
    seen = places(islice(one, 100))
    two = connect(cluster).get_consumer("t", "g", **options)
    seen += read_all(one, 500, two)
    assert sorted(seen) == [(p, o) for p in range(2) for o in range(300)]
    one.stop()
    two.stop()


@pytest.mark.parametrize("kind", ["simple", "native"])
def test_threads_that_iterate_and_threads_that_take_batches_get_every_record_once(kind: str) -> None:
    with MockCluster(brokers=1, topics={"t": 3}) as brokers, KafkaClient(brokers.bootstrap, handler="threading") as client:
        for partition in range(3):
            fill(client, numbers(6000), partition=partition, batches=20)
        consumer = client.topics["t"].get_simple_consumer() if kind == "simple" else client.get_consumer("t")
        got: list[list[tuple[int, int]]] = [[] for _ in range(4)]

        def work(mine: list[tuple[int, int]], one_by_one: bool) -> None:
            messages = iter(consumer)
            with contextlib.suppress(ConsumerStoppedException, StopIteration):  # the end, for one that waits for the next
                while sum(map(len, got)) < 18_000:
                    taken = [next(messages)] if one_by_one else consumer.consume_batch(7, 100)
                    mine += [(m.partition_id, m.offset) for m in taken]

        threads = [threading.Thread(target=work, args=(mine, n % 2 == 0), daemon=True) for n, mine in enumerate(got)]
        for thread in threads:
            thread.start()
        for thread in threads[1::2]:
            thread.join(60)
        consumer.stop()
        for thread in threads:
            thread.join(60)
    assert sorted(place for mine in got for place in mine) == [(p, o) for p in range(3) for o in range(6000)]


@pytest.mark.parametrize("handler", ["threading", "gevent"])
@pytest.mark.parametrize("call", ["consumer.consume()", "next(messages)"])
def test_a_forked_child_is_told_at_once(handler: str, call: str) -> None:
    lines = script(
        f"""
    with MockCluster(1, {{"t": 1}}) as brokers, KafkaClient(brokers.bootstrap, handler=HANDLER) as client:
        with client.get_producer() as producer:
            for i in range(100):
                producer.produce("t", b"%d" % i)
        for consumer in (client.get_consumer("t"), client.topics["t"].get_simple_consumer()):
            messages = iter(consumer)
            print([{call}.offset for _ in range(5)])
            print("ForkedClientError" in in_child(lambda: str({call}.offset)))
            print({call}.offset)
            consumer.stop()
    """,
        handler,
    )
    assert lines == ["[0, 1, 2, 3, 4]", "True", "5"] * 2
