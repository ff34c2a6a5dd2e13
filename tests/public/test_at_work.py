"""What deserializers are at work on: it is nobody's before they are done, whoever stops, seeks, kills, fails or takes the partition meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.atwork import AtWork
from gkafka.common import TopicPartition
from gkafka.exceptions import ConsumerStoppedException, SerializationError
from gkafka.nativeconsumer import NativeConsumer
from gkafka.taking import RecordTaker
from gkafka.testing import MockCluster
from tests.public.aids import LIMIT_S, Runner, fill, read
from tests.public.groupaids import QUICK, places
from tests.records.handmade import batch, values

T0 = TopicPartition("t", 0)
MEMBER: dict[str, Any] = {**QUICK, "auto_offset_reset": "earliest"}
KINDS = ["assigned", "member", "simple"]
WORTH = 20


class Slow:
    """A deserializer that stops at one of these numbers until it may go on, and fails there if it is told to."""

    def __init__(self, client: KafkaClient, *numbers: int) -> None:
        self._handler = client.handler
        self.entered = {n: self._handler.Event() for n in numbers}
        self.may_go_on = {n: self._handler.Event() for n in numbers}
        self.fails: set[int] = set()
        self.calls: dict[int, Callable[[], object]] = {}

    def __call__(self, value: bytes) -> int:
        number = int(value)
        if number in self.entered:
            self.entered[number].set()
            self.calls.pop(number, lambda: None)()
            assert self.may_go_on[number].wait(LIMIT_S)
            if number in self.fails:
                raise OSError("the registry is away")
        return number


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def make(client: KafkaClient, kind: str, deserialize: Callable[[bytes], Any], **options: Any) -> Any:
    """A consumer of the topic that commits as group g, with records to take."""
    if kind == "simple":
        simple: Any = client.topics["t"].get_simple_consumer(
            "g",
            auto_commit_enable=True,
            deserializer=lambda value, key: (deserialize(value), key),
            consumer_timeout_ms=LIMIT_S * 1000,
            **options,
        )
        return simple
    if kind == "member":
        return client.get_consumer("t", "g", value_deserializer=deserialize, **{**MEMBER, **options})
    consumer = client.get_consumer(group="g", value_deserializer=deserialize, auto_offset_reset="earliest", **options)
    consumer.assign({T0: 0})
    return consumer


def offsets(consumer: Any, count: int) -> list[int]:
    return [message.offset for message in consumer.consume_batch(count, timeout_ms=LIMIT_S * 1000)]


def outcome(consumer: Any, count: int) -> Any:
    """The offsets of a call, or the name of what it raises."""
    try:
        return offsets(consumer, count)
    except BaseException as exc:
        return type(exc).__name__


def committed(cluster: MockCluster) -> int:
    found = cluster.committed("g").get(("t", 0))
    return 0 if found is None else max(0, found.offset)


def full(consumer: Any, run: Runner) -> None:
    run.until(lambda: consumer._engine.buffered() == WORTH)


def at_work(client: KafkaClient, run: Runner, kind: str, slow: Slow, **options: Any) -> tuple[Any, Any]:
    """A consumer, and a call of it that has taken ten records and stands in the first of the deserializer's slow ones."""
    consumer = make(client, kind, slow, **options)
    full(consumer, run)
    worker = run.aside(lambda: outcome(consumer, 10))
    run.until(next(iter(slow.entered.values())).is_set)
    return consumer, worker


@pytest.fixture
def filled(client: KafkaClient) -> KafkaClient:
    fill(client, [b"%d" % n for n in range(WORTH)])
    return client


def test_what_is_behind_a_record_that_fails_is_handed_out_once_however_many_workers_ask(
    filled: KafkaClient, cluster: MockCluster, run: Runner, kind: str
) -> None:
    slow = Slow(filled, 5)
    slow.fails = {5}
    consumer, first = at_work(filled, run, kind, slow)
    assert consumer.consume_batch(10, timeout_ms=50) == [], "it is not known yet whether what is before them is handed out"
    second = run.aside(lambda: outcome(consumer, 10))
    slow.may_go_on[5].set()
    assert first.result() == [0, 1, 2, 3, 4]
    assert second.result() == SerializationError.__name__
    slow.fails.clear()
    assert [message.offset for message in read(consumer, 15)] == list(range(5, 20))
    consumer.stop()
    assert committed(cluster) == WORTH


def test_a_seek_and_other_partitions_do_not_wait_for_a_deserializer(filled: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    cluster.create_topic("u", 1)
    cluster.append("u", 0, values(1))
    slow = Slow(filled, 5)
    consumer, worker = at_work(filled, run, "assigned", slow)
    consumer._engine.add({TopicPartition("u", 0): 0})
    assert [message.topic for message in read(consumer, 1)] == ["u"]
    consumer.seek(T0, 15)
    assert offsets(consumer, 20) == [15, 16, 17, 18, 19]
    slow.may_go_on[5].set()
    assert worker.result() == list(range(10))
    consumer.stop()


def test_who_took_nothing_wakes_nobody(filled: KafkaClient, cluster: MockCluster, run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many that ask again and again would keep each other awake."""
    consumer = make(filled, "assigned", int)
    assert offsets(consumer, WORTH) == list(range(WORTH))
    take, me, looks = RecordTaker.take, filled.handler.current_id(), []

    def noted(taker: RecordTaker, *how: Any) -> Any:
        looks.append(filled.handler.current_id())
        return take(taker, *how)

    monkeypatch.setattr(RecordTaker, "take", noted)
    waiting = run.aside(lambda: outcome(consumer, 5))
    run.until(lambda: looks)
    for _ in range(100):
        assert consumer.consume_batch(1, timeout_ms=1) == []
    others = [each for each in looks if each != me]
    cluster.append("t", 0, values(1, base_offset=WORTH))
    assert waiting.result() == [WORTH]
    assert len(others) < 50
    consumer.stop()


def test_a_deserializer_may_consume_by_the_consumer_that_it_works_for(filled: KafkaClient, run: Runner) -> None:
    taken: list[int] = []
    consumer = make(filled, "assigned", slow := Slow(filled, 5))
    slow.may_go_on[5].set()
    slow.calls[5] = lambda: taken.extend(offsets(consumer, 3))
    full(consumer, run)
    assert offsets(consumer, 10) == list(range(10))
    assert taken == [10, 11, 12]
    consumer.stop()


@pytest.mark.parametrize("run", ["gevent"], indirect=True)
def test_who_is_killed_in_a_deserializer_while_another_stops_has_had_nothing(
    filled: KafkaClient, cluster: MockCluster, run: Runner, kind: str
) -> None:
    import gevent

    slow = Slow(filled, 5)
    consumer = make(filled, kind, slow)
    full(consumer, run)
    worker = gevent.spawn(outcome, consumer, 10)
    run.until(slow.entered[5].is_set)
    worker.kill(block=False)
    consumer.stop()
    assert worker.get() == "GreenletExit"
    assert committed(cluster) == 0


@pytest.mark.parametrize("kind", ["assigned", "simple"], indirect=True)
def test_a_failure_while_another_stops_is_committed_over_by_nobody(
    filled: KafkaClient, cluster: MockCluster, run: Runner, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(filled, 0)
    slow.fails = {0}
    consumer, worker = at_work(filled, run, kind, slow)
    stop, told = consumer._engine.stop, []

    def stop_while_it_fails(timeout: float) -> None:
        stop(timeout)
        slow.may_go_on[0].set()
        told.append(worker.result())

    monkeypatch.setattr(consumer._engine, "stop", stop_while_it_fails)
    consumer.stop()
    assert told[0] == SerializationError.__name__
    assert committed(cluster) == 0


def test_what_is_at_work_when_another_stops_is_not_handed_out_and_comes_to_whoever_goes_on(
    filled: KafkaClient, cluster: MockCluster, run: Runner, kind: str
) -> None:
    slow = Slow(filled, 5)
    consumer, worker = at_work(filled, run, kind, slow)
    ending = run.aside(consumer.stop)
    run.until(lambda: consumer._engine is None or not consumer._engine.at_work.calls)
    slow.may_go_on[5].set()
    assert worker.result() == ConsumerStoppedException.__name__
    ending.result()
    assert committed(cluster) == 0
    after = make(filled, "assigned", int)
    assert offsets(after, 3) == [0, 1, 2]
    after.stop()


@pytest.mark.parametrize("run", ["threading"], indirect=True)
def test_a_signal_handler_that_stops_and_exits_has_its_way(filled: KafkaClient, cluster: MockCluster, run: Runner, kind: str) -> None:
    """The end of the program was taken for the end of an iteration."""
    slow = Slow(filled, 5)
    slow.may_go_on[5].set()
    consumer = make(filled, kind, slow)
    full(consumer, run)

    def on_signal() -> None:
        consumer.stop()
        raise SystemExit(3)

    slow.calls[5] = on_signal
    with pytest.raises(SystemExit):
        for _ in consumer:
            pass
    assert committed(cluster) <= 5


@pytest.mark.parametrize("fails", [False, True])
def test_where_the_application_has_sought_meanwhile_nobody_goes_back_to(
    filled: KafkaClient, cluster: MockCluster, run: Runner, fails: bool
) -> None:
    slow = Slow(filled, 5)
    slow.fails = {5} if fails else set()
    consumer, worker = at_work(filled, run, "assigned", slow)
    consumer.seek(T0, 15)
    consumer.commit()
    assert committed(cluster) == 15
    slow.may_go_on[5].set()
    assert worker.result() == list(range(5 if fails else 10))
    assert consumer.position(T0) == 15
    assert offsets(consumer, 20) == [15, 16, 17, 18, 19]
    consumer.stop()


@pytest.mark.parametrize("run", ["gevent"], indirect=True)
@pytest.mark.parametrize("given", [{T0: 15}, {TopicPartition("u", 0): 0}])
def test_who_is_killed_after_another_has_assigned_sees_that_and_changes_nothing(
    filled: KafkaClient, cluster: MockCluster, run: Runner, given: dict[TopicPartition, int]
) -> None:
    import gevent

    cluster.create_topic("u", 1)
    slow = Slow(filled, 5)
    consumer = make(filled, "assigned", slow)
    full(consumer, run)
    worker = gevent.spawn(outcome, consumer, 10)
    run.until(slow.entered[5].is_set)
    consumer.assign(given)
    worker.kill(block=False)
    assert worker.get() == "GreenletExit"
    (assigned, offset), *_ = given.items()
    assert consumer.position(assigned) == offset
    consumer.stop()


def test_a_partition_that_goes_and_comes_back_is_not_committed_back(filled: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    """Another member has consumed and committed meanwhile; the call that was at work on it fails later."""
    slow = Slow(filled, 5)
    slow.fails = {5}
    consumer, worker = at_work(filled, run, "member", slow)
    engine: NativeConsumer = consumer._engine
    engine.remove([T0])
    engine.add({T0: 15})
    assert consumer.stands() == {T0: 15}
    slow.may_go_on[5].set()
    assert worker.result() == [0, 1, 2, 3, 4]
    assert consumer.position(T0) == 15
    consumer.commit()
    assert committed(cluster) == 15
    consumer.stop()


def test_a_failure_in_a_partition_that_is_being_given_up_is_committed_over_by_nobody(filled: KafkaClient, run: Runner) -> None:
    slow = Slow(filled, 5)
    slow.fails = {5}
    consumer, worker = at_work(filled, run, "member", slow, auto_commit=False)
    engine: NativeConsumer = consumer._engine
    assert engine.remove([T0])[T0][0] == 10
    assert engine.not_at_work({T0: 10}) == {T0: 0}
    slow.may_go_on[5].set()
    assert worker.result() == [0, 1, 2, 3, 4]
    assert engine.not_at_work({T0: 10}) == {T0: 5}
    engine.put_elsewhere(T0)
    assert engine.not_at_work({T0: 10}) == {T0: 10}, "where the application has sought, it is"
    consumer.stop()


@pytest.mark.parametrize("kind", ["assigned", "simple"], indirect=True)
def test_who_waits_behind_a_batch_without_records_is_at_work_on_nothing(
    client: KafkaClient, cluster: MockCluster, run: Runner, kind: str
) -> None:
    """What compaction leaves."""
    consumer = make(client, kind, int)
    waiting = run.aside(lambda: outcome(consumer, 5))
    run.until(lambda: consumer._engine.at_work.calls)
    cluster.append("t", 0, batch([], last_delta=9))
    run.until(lambda: consumer._engine.positions() == {T0: 10})
    assert consumer._engine.stands() == {T0: 10}
    cluster.append("t", 0, values(1, base_offset=10))
    assert waiting.result() == [10]
    consumer.stop()


@pytest.mark.parametrize("deserializes", [False, True])
def test_who_is_interrupted_behind_another_that_took_more_loses_nothing(
    filled: KafkaClient, run: Runner, monkeypatch: pytest.MonkeyPatch, deserializes: bool
) -> None:
    """A signal may strike between what a call takes and its end, where a thread that waits for its turn comes first."""
    options = {"value_deserializer": int} if deserializes else {}
    consumer = filled.get_consumer("t", auto_offset_reset="earliest", **options)
    full(consumer, run)
    take_back, others = RecordTaker._take_back, []

    def behind_another(taker: RecordTaker, taken: Any, cause: BaseException) -> None:
        monkeypatch.setattr(RecordTaker, "_take_back", take_back)
        others.extend(offsets(consumer, 5))
        take_back(taker, taken, cause)

    def interrupted(taker: RecordTaker, *how: Any) -> Any:
        monkeypatch.setattr(RecordTaker, "take", take)
        take(taker, *how)
        raise KeyboardInterrupt

    take = RecordTaker.take
    monkeypatch.setattr(RecordTaker, "_take_back", behind_another)
    monkeypatch.setattr(RecordTaker, "take", interrupted)
    with pytest.raises(KeyboardInterrupt):
        consumer.consume_batch(5, timeout_ms=LIMIT_S * 1000)
    assert others == [5, 6, 7, 8, 9]
    assert [message.offset for message in read(consumer, WORTH)] == list(range(WORTH)), "the others' come twice, rather than these never"
    consumer.stop()


class Shared:
    """Two workers of a member: one is at work on records of both partitions, the other one asks for more all the time. A second member has joined."""

    def __init__(self, connect: Callable[..., KafkaClient], cluster: MockCluster, run: Runner, **options: Any) -> None:
        client = connect(cluster)
        for partition in range(2):
            fill(client, [b"%d" % n for n in range(10)], partition=partition)
        self.told: list[str] = []
        self.slow, self._run, self._is_over = Slow(client, 0), run, False
        listeners = {f"on_{what}": lambda *_, what=what: self.told.append(what) for what in ("revoked", "lost")}
        self.consumer = make(client, "member", self.slow, **listeners, **options)
        full(self.consumer, run)
        self.got: list[tuple[int, int]] = []
        self.at_work = run.aside(lambda: self.got.extend(places(self.consumer.consume_batch(100, timeout_ms=LIMIT_S * 1000))))
        run.until(self.slow.entered[0].is_set)
        self._asking = run.aside(self._ask)
        self.second = connect(cluster).get_consumer("t", "g", value_deserializer=int, **MEMBER)
        self.seconds: list[tuple[int, int]] = []

    def _ask(self) -> None:
        while not self._is_over:
            self.got += places(self.consumer.consume_batch(timeout_ms=50))

    def second_reads(self) -> list[tuple[int, int]]:
        self.seconds += places(self.second.consume_batch(timeout_ms=100))
        return self.seconds

    def end_asking(self) -> None:
        self._is_over = True
        self._asking.result()

    def end(self) -> None:
        self.end_asking()
        self.consumer.stop()
        self.second.stop()


ALL = [(partition, offset) for partition in range(2) for offset in range(10)]


def test_a_partition_is_not_given_back_while_one_of_two_workers_is_at_work_on_it(connect: Any, make_cluster: Any, run: Runner) -> None:
    """Another worker's call said that this is finished; the other member had it, and then the worker handed it out."""
    cluster = make_cluster(1, {"t": 2})
    shared = Shared(connect, cluster, run)
    assert run.stays(lambda: not shared.second_reads() and not shared.told, 1.0)
    shared.end_asking()
    shared.slow.may_go_on[0].set()
    shared.at_work.result()
    assert sorted(shared.got) == ALL
    assert run.stays(lambda: not shared.told, 0.5), "it was handed out now: no call has said yet that it is finished"
    run.until(lambda: shared.consumer.consume_batch(timeout_ms=20) == [] and shared.told == ["revoked"])
    assert shared.second_reads() == []
    shared.end()
    assert {cluster.committed("g")[("t", partition)].offset for partition in range(2)} == {10}


def test_who_is_at_work_for_too_long_on_what_is_given_back_hands_out_the_rest(
    connect: Any, make_cluster: Any, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gkafka.sharing.OF_THE_INTERVAL", 0.001)
    cluster = make_cluster(1, {"t": 2})
    shared = Shared(connect, cluster, run, max_poll_interval_ms=300_000)
    run.until(lambda: len(shared.second_reads()) == 10)
    (given,) = {partition for partition, _ in shared.seconds}
    assert shared.told == ["revoked"]
    shared.slow.may_go_on[0].set()
    shared.at_work.result()
    shared.end()
    assert shared.got == [(1 - given, offset) for offset in range(10)]
    assert {cluster.committed("g")[("t", partition)].offset for partition in range(2)} == {10}


@pytest.mark.parametrize("fails", [False, True])
def test_what_is_lost_while_a_deserializer_is_at_work_on_it_is_not_handed_out(
    filled: KafkaClient, cluster: MockCluster, run: Runner, fails: bool
) -> None:
    told: list[str] = []
    slow = Slow(filled, 0)
    slow.fails = {0} if fails else set()
    consumer = make(filled, "member", slow, on_lost=lambda *_: told.append("lost"))
    full(consumer, run)
    worker = run.aside(lambda: [message.offset for message in consumer.consume_batch(10, timeout_ms=200)])
    run.until(slow.entered[0].is_set)
    (member,) = cluster.group("g").members
    cluster.remove_member("g", member)
    run.until(lambda: told == ["lost"])
    filled.handler.sleep(0.3)  # longer than the call may wait: it has joined again, and would go on with the same records
    slow.may_go_on[0].set()
    assert worker.result() == []
    slow.fails.clear()
    assert [message.offset for message in read(consumer, WORTH)] == list(range(WORTH)), "it has joined again: who has it then begins anew"
    consumer.stop()


def test_what_is_taken_after_a_stop_began_is_not_at_work_when_it_is_given_back(
    filled: KafkaClient, cluster: MockCluster, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(filled, 0)
    consumer = make(filled, "member", slow)
    full(consumer, run)
    end_all, workers = AtWork.end_all, []

    def and_then_another_takes(at_work: AtWork) -> Any:
        stands = end_all(at_work)
        workers.append(run.aside(lambda: outcome(consumer, 10)))
        run.until(slow.entered[0].is_set)
        return stands

    monkeypatch.setattr(AtWork, "end_all", and_then_another_takes)
    consumer.stop()
    slow.may_go_on[0].set()
    assert workers[0].result() in ([], "ConsumerStoppedException")
    assert committed(cluster) == 0


@pytest.mark.parametrize("at", [0, 5])
@pytest.mark.parametrize("kind", ["assigned", "member"], indirect=True)
def test_an_iteration_ends_in_order_when_another_stops_however_long_that_takes(
    filled: KafkaClient, run: Runner, kind: str, at: int
) -> None:
    """Also while its deserializer is at work: on the first record, which it takes itself, and on one that lies at hand."""
    slow = Slow(filled, at)

    def revoked(*_: Any) -> None:
        slow.may_go_on[at].set()
        assert run.stays(lambda: not consumer.closed, 0.4)

    consumer = make(filled, kind, slow, **({"on_revoked": revoked} if kind == "member" else {}))
    full(consumer, run)
    worker = run.aside(lambda: [message.offset for message in consumer])
    run.until(slow.entered[at].is_set)
    consumer.stop()
    slow.may_go_on[at].set()
    assert worker.result() == list(range(at))
