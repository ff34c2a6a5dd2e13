"""What counts as finished when things go wrong: exceptions, deserializers, listeners and assignors that fail, bad arguments of the end."""

from __future__ import annotations

from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.common import TopicPartition
from gkafka.exceptions import AssignmentError, ConfigurationError, ConsumerStoppedException, SerializationError
from gkafka.groupoffsets import GroupOffsets
from gkafka.nativeconsumer import NativeConsumer
from gkafka.taking import RecordTaker
from gkafka.testing import MockCluster
from tests.public.aids import LIMIT_S, Clock, Held, Runner, error_of, fill, read
from tests.public.groupaids import QUICK, places, read_all

T0 = TopicPartition("t", 0)
MEMBER: dict[str, Any] = {**QUICK, "auto_offset_reset": "earliest"}


def committed(cluster: MockCluster, group: str = "g") -> int:
    found = cluster.committed(group).get(("t", 0))
    return -1 if found is None else found.offset


def numbers(n: int) -> list[bytes]:
    return [b"%d" % i for i in range(n)]


def test_a_client_that_is_left_by_an_exception_commits_nothing_that_was_at_work(cluster: MockCluster, connect: Any, run: Runner) -> None:
    fill(connect(cluster), numbers(20))

    def work() -> None:
        with KafkaClient(cluster.bootstrap, handler=run.name) as client:
            for message in client.get_consumer("t", "g", **MEMBER):
                if message.offset == 5:
                    raise LookupError("this one cannot be processed")

    with pytest.raises(LookupError):
        work()
    assert committed(cluster) <= 5
    with KafkaClient(cluster.bootstrap, handler=run.name) as client:
        consumer = client.get_consumer("t", "h", **MEMBER)
        read(consumer, 7)
    assert committed(cluster, "h") == 7, "left in order, everything is"


def test_what_a_deserializer_has_not_done_is_not_committed(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    fill(client, numbers(20))

    def deserialize(value: bytes, key: bytes | None) -> tuple[bytes, bytes | None]:
        if value == b"15":
            run.sleep(0.4)
            raise ValueError("no number of mine")
        return value, key

    consumer = client.topics["t"].get_simple_consumer(
        "g", auto_commit_enable=True, auto_commit_interval_ms=50, deserializer=deserialize, consumer_timeout_ms=60_000
    )
    run.until(lambda: consumer._engine.buffered() == 20)  # type: ignore[union-attr]
    assert len(consumer.consume_batch()) == 15
    assert committed(cluster) <= 15
    assert isinstance(error_of(consumer.consume_batch), SerializationError)
    run.until(lambda: committed(cluster) == 15)
    consumer.stop()
    assert committed(cluster) == 15


def test_what_is_taken_and_not_handed_out_yet_is_nobodys_to_finish(
    client: KafkaClient, cluster: MockCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another worker's calls may come as soon as the position has moved, before the deserializers have begun."""
    fill(client, numbers(20))
    seen: list[dict[TopicPartition, int]] = []
    take = RecordTaker.consume

    def taken_while_another_calls(taker: RecordTaker, *args: Any, **named: Any) -> Any:
        messages = take(taker, *args, **named)
        if messages:
            consumer._progress.called(float("inf"))
            seen.append(consumer._progress.finished.copy())  # the commit below changes it
            consumer.commit()
        return messages

    def deserialize(value: bytes) -> bytes:
        raise ValueError("no number of mine")

    with client.get_consumer("t", "g", **MEMBER, value_deserializer=deserialize, auto_commit=False) as consumer:
        monkeypatch.setattr(RecordTaker, "consume", taken_while_another_calls)
        assert isinstance(error_of(lambda: [consumer.consume_batch(timeout_ms=500) for _ in range(20)]), SerializationError)
        assert seen == [{T0: 0}]
        assert consumer.position(T0) == 0
    assert committed(cluster) <= 0


def test_what_workers_have_met_is_told_one_after_the_other(client: KafkaClient, cluster: MockCluster) -> None:
    fill(client, numbers(20))
    with client.get_consumer("t", auto_offset_reset="earliest") as consumer:
        for trouble in (IndexError("the first"), LookupError("the second")):
            consumer._engine.taker.tell(trouble)
        with pytest.raises(IndexError, match="the first"):
            consumer.consume_batch()
        with pytest.raises(LookupError, match="the second"):
            consumer.consume()
        assert len(read(consumer, 20)) == 20


def test_who_waits_for_messages_keeps_none_from_being_committed(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    """Of two workers that wait one gets the message; the other one waits on."""
    consumer = client.topics["t"].get_simple_consumer("g", deserializer=lambda value, key: (value, key), consumer_timeout_ms=10_000)
    handed_out: list[Any] = []

    def work() -> None:
        try:
            handed_out.append(consumer.consume())
        except ConsumerStoppedException:
            handed_out.append("stopped")

    workers = [run.aside(work) for _ in range(2)]
    run.until(lambda: len(consumer._engine.at_work.calls) == 2)  # type: ignore[union-attr]
    fill(client, numbers(1))
    run.until(lambda: len(handed_out) == 1)
    consumer.commit_offsets()
    assert committed(cluster) == 1
    consumer.stop()
    for worker in workers:
        worker.result()
    assert handed_out[1] in ("stopped", None)


def test_what_a_deserializer_is_at_work_on_at_the_end_is_not_handed_out(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    """Else whoever goes on from where the consumer stood would have it a second time."""
    fill(client, numbers(20))
    entered, gate = client.handler.Event(), client.handler.Event()

    def deserialize(value: bytes, key: bytes | None) -> tuple[bytes, bytes | None]:
        entered.set()
        gate.wait(60)
        return value, key

    simple = client.topics["t"].get_simple_consumer
    consumer = simple("g", auto_commit_enable=True, deserializer=deserialize)
    worker = run.aside(lambda: error_of(lambda: consumer.consume_batch(7)))
    run.until(entered.is_set)
    consumer.stop()
    gate.set()
    assert "while the deserializer was at work" in str(worker.result())
    assert consumer.held_offsets == {0: -2}
    assert committed(cluster) <= 0
    with simple("g", consumer_timeout_ms=60_000) as after:
        assert after.consume().offset == 0  # type: ignore[union-attr]


def test_of_two_commits_the_one_that_stands_further_is_the_later_one(
    client: KafkaClient, cluster: MockCluster, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the other one is sent later."""
    fill(client, numbers(20))
    commit, reached, gate = GroupOffsets.commit, client.handler.Event(), client.handler.Event()

    def held_up(offsets: GroupOffsets, *args: Any, **named: Any) -> None:
        if not reached.is_set():
            reached.set()
            gate.wait(60)
        commit(offsets, *args, **named)

    with client.topics["t"].get_simple_consumer("g", consumer_timeout_ms=60_000) as consumer:
        assert len(consumer.consume_batch(5)) == 5
        monkeypatch.setattr(GroupOffsets, "commit", held_up)
        first = run.aside(consumer.commit_offsets)
        run.until(reached.is_set)
        assert len(consumer.consume_batch(5)) == 5
        consumer.commit_offsets()
        assert committed(cluster) == 10
        gate.set()
        first.result()
        assert committed(cluster) == 10


class Stopped(BaseException):
    """As gevent.Timeout is."""


@pytest.mark.parametrize("error", [Stopped, SystemExit])
def test_whatever_a_listener_raises_is_told_and_the_group_goes_on(connect: Any, make_cluster: Any, error: type[BaseException]) -> None:
    cluster = make_cluster(topics={"t": 2})
    client = connect(cluster)
    for partition in range(2):
        fill(client, numbers(5), partition=partition)
    calls: list[int] = []

    def listener(*_: Any) -> None:
        calls.append(1)
        if len(calls) == 1:
            raise error("out of here")

    one = client.get_consumer("t", "g", on_assigned=listener, **MEMBER)
    seen: list[tuple[int, int]] = []

    def ask() -> None:
        while True:
            seen.extend(places(one.consume_batch(timeout_ms=100)))

    with pytest.raises(error, match="out of here"):
        ask()
    two = connect(cluster).get_consumer("t", "g", **MEMBER)
    seen += read_all(one, 10 - len(seen), two)
    assert sorted(seen) == [(p, o) for p in range(2) for o in range(5)]
    one.stop()
    two.stop()


class Mine:
    """An assignor of the user's."""

    name, cooperative = "mine", False

    def user_data(self, *_: Any) -> Any:
        return None

    def assign(self, topics: Any, members: Any) -> Any:
        return {m.member_id: (("t", p) for p in range(len(topics["t"]))) for m in members}


def test_an_assignor_may_give_its_shares_as_iterators(connect: Any, make_cluster: Any) -> None:
    cluster = make_cluster(topics={"t": 2})
    client = connect(cluster)
    fill(client, numbers(3), partition=1)
    consumer = client.get_consumer("t", "g", assignors=[Mine()], **MEMBER)
    assert len(read_all(consumer, 3)) == 3
    consumer.stop()


@pytest.mark.parametrize("data", ["text", 7, ZeroDivisionError("division by zero")])
def test_an_assignor_without_user_data_is_named_by_every_call(client: KafkaClient, data: Any) -> None:
    class Bad(Mine):
        def user_data(self, *_: Any) -> Any:
            if isinstance(data, Exception):
                raise data
            return data

    consumer = client.get_consumer("t", "g", assignors=[Bad()], **QUICK)
    for _ in range(2):
        error = None
        while error is None:
            try:
                consumer.consume(200)
            except AssignmentError as exc:
                error = exc
        assert "assignor 'mine': user_data()" in str(error)
    assert "can be no member any more" in str(consumer.explain())
    consumer.stop()


def test_a_stop_that_is_refused_has_stopped_nothing(client: KafkaClient, cluster: MockCluster) -> None:
    fill(client, numbers(10))
    consumer = client.get_consumer(group="g")
    consumer.assign({T0: 0})
    read(consumer, 10)
    with pytest.raises(ConfigurationError, match="timeout=-1"):
        consumer.stop(-1)
    assert not consumer.closed
    consumer.stop()
    assert committed(cluster) == 10


def test_an_application_that_waits_in_a_call_is_not_silent(
    client: KafkaClient, cluster: MockCluster, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks for messages again and again, thrice in the interval."""
    consumer = client.get_consumer("t", "g", **{**MEMBER, "max_poll_interval_ms": 90_000})
    monkeypatch.setattr("gkafka.sharing.POLL_S", 0.0)
    assert consumer._slice_ms == 30_000
    consumer._slice_ms, asked, member = 10, [], consumer._share._member
    polled = member.polled
    monkeypatch.setattr(member, "polled", lambda: (asked.append(None), polled()))
    waiting = run.aside(lambda: consumer.consume(LIMIT_S * 1000))
    run.until(lambda: len(asked) >= 5)
    fill(client, numbers(1))
    assert waiting.result().value == b"0"
    consumer.stop()


@pytest.mark.parametrize("partition", [1, 99])
def test_a_partition_that_does_not_exist_is_refused_by_assign(client: KafkaClient, partition: int) -> None:
    consumer = client.get_consumer()
    with pytest.raises(ConfigurationError, match=f"topic 't' has no partition {partition}: it has 0 to 0"):
        consumer.assign([("t", partition)])
    consumer.assign([T0])


def test_a_listener_that_takes_long_does_not_hold_up_the_end_of_the_client(cluster: MockCluster, run: Runner) -> None:
    client = KafkaClient(cluster.bootstrap, handler=run.name)
    entered, gate = client.handler.Event(), client.handler.Event()

    def on_assigned(*_: Any) -> None:
        entered.set()
        gate.wait(LIMIT_S)

    consumer = client.get_consumer("t", "g", on_assigned=on_assigned, **MEMBER)
    run.until(lambda: (consumer.consume(50), entered.is_set())[-1])
    with Clock() as clock:
        client.close(0.5)
    gate.set()
    assert clock.seconds < 30


class AtWork:
    """A simple consumer that commits in the background; from begin() on a call for ten records is at work on the sixth until `gate` is set."""

    def __init__(self, client: KafkaClient, run: Runner) -> None:
        fill(client, numbers(20))
        self._run = run
        self.entered, self.gate = client.handler.Event(), client.handler.Event()
        self.consumer = client.topics["t"].get_simple_consumer(
            "g", auto_commit_enable=True, auto_commit_interval_ms=20, deserializer=self._deserialize, consumer_timeout_ms=60_000
        )
        run.until(lambda: self.consumer._engine.buffered() == 20)

    def _deserialize(self, value: bytes, key: bytes) -> tuple[bytes, bytes]:
        if value == b"5":
            self.entered.set()
            self.gate.wait(60)
        return value, key

    def begin(self) -> None:
        self._worker = self._run.aside(lambda: len(self.consumer.consume_batch(10)))
        self._run.until(self.entered.is_set)

    def end(self) -> None:
        self.gate.set()
        assert self._worker.result() == 10
        self.consumer.stop()


def test_nor_is_it_by_simple_consumers_commits_in_the_background(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    work = AtWork(client, run)
    work.begin()
    work.consumer.commit_offsets([(0, 10)])
    assert run.stays(lambda: committed(cluster) == 10, 0.5)
    work.end()
    assert committed(cluster) == 10


def test_nor_by_one_that_begins_while_the_applications_own_is_under_way(
    client: KafkaClient, cluster: MockCluster, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until that is answered it is not known whether the group has taken it."""
    work, held = AtWork(client, run), Held()
    commit, began = NativeConsumer.commit, []

    def noted(self: NativeConsumer, *args: Any, **options: Any) -> None:
        began.append(options.get("background", False))
        commit(self, *args, **options)

    work.begin()
    cluster.on("OffsetCommit", held, when=lambda request: request.message.topics[0].partitions[0].committed_offset == 10)
    own = run.aside(lambda: work.consumer.commit_offsets([(0, 10)]))
    run.until(lambda: held.holds)
    monkeypatch.setattr(NativeConsumer, "commit", noted)
    run.until(lambda: True in began)
    held.released = True
    own.result()
    assert run.stays(lambda: committed(cluster) == 10, 0.3)
    work.end()


def test_nor_by_one_that_is_noted_behind_the_applications_own(
    client: KafkaClient, cluster: MockCluster, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are answered, in their order, but a thread may go on with its answer later than another one does."""
    work = AtWork(client, run)
    answered, noted = client.handler.Event(), client.handler.Event()
    commit = GroupOffsets.commit

    def held(self: GroupOffsets, offsets: Any, **options: Any) -> None:
        commit(self, offsets, **options)
        if 10 not in offsets.values() and work.entered.is_set() and not answered.is_set():
            answered.set()
            noted.wait(60)

    monkeypatch.setattr(GroupOffsets, "commit", held)
    work.begin()
    run.until(answered.is_set)
    work.consumer.commit_offsets([(0, 10)])
    noted.set()
    assert run.stays(lambda: committed(cluster) == 10, 0.3)
    work.end()


@pytest.mark.parametrize("seeks", [False, True])
def test_what_was_committed_is_not_taken_back_for_who_is_at_work_before_it(
    client: KafkaClient, cluster: MockCluster, run: Runner, seeks: bool
) -> None:
    """By a commit in the background. The application that seeks back has the group go back, all the same."""
    fill(client, numbers(20))
    entered, gate = client.handler.Event(), client.handler.Event()

    def deserialize(value: bytes) -> bytes:
        if value == b"5":
            entered.set()
            gate.wait(60)
        return value

    consumer = client.get_consumer("t", "g", **MEMBER, value_deserializer=deserialize, auto_commit_interval_ms=20)
    run.until(lambda: consumer._engine.buffered() == 20)
    worker = run.aside(lambda: len(consumer.consume_batch(10, LIMIT_S * 1000)))
    run.until(entered.is_set)
    consumer.commit({T0: 10})
    workers = [worker]
    if seeks:
        consumer.seek(T0, 3)
        run.until(lambda: consumer._engine.buffered() >= 17)
        workers.append(run.aside(lambda: len(consumer.consume_batch(20, LIMIT_S * 1000))))
        run.until(lambda: consumer.position(T0) == 20)
        run.until(lambda: consumer.consume_batch(1, 20) == [] and committed(cluster) == 3)
    else:
        assert run.stays(lambda: consumer.consume_batch(1, 20) == [] and committed(cluster) == 10, 0.5)
    gate.set()
    assert [each.result() for each in workers] == [10, 17][: len(workers)]
    consumer.stop()
    assert committed(cluster) == (20 if seeks else 10)


@pytest.mark.parametrize("shares", [False, True])
@pytest.mark.parametrize("waits_ms", [100_000, 20])
def test_what_is_finished_is_committed_however_long_the_next_call_waits(
    client: KafkaClient, cluster: MockCluster, run: Runner, shares: bool, waits_ms: int
) -> None:
    """Also if it came right behind the one before; and if it was a short one, behind which no other comes."""
    fill(client, numbers(20))
    consumer = client.get_consumer("t" if shares else None, "g", **(MEMBER if shares else {}), auto_commit_interval_ms=20)
    if not shares:
        consumer.assign({T0: 0})
    run.until(lambda: consumer._engine.buffered() == 20)

    def work() -> None:
        for _ in range(4):
            assert len(consumer.consume_batch(5, LIMIT_S * 1000)) == 5
        assert consumer.consume_batch(5, waits_ms) == []

    worker = run.aside(work)
    run.until(lambda: committed(cluster) == 20)
    assert worker.running or waits_ms == 20
    consumer.stop()


def test_what_another_worker_was_handed_while_a_call_waits_is_not_finished(client: KafkaClient, cluster: MockCluster) -> None:
    fill(client, numbers(20))
    consumer = client.get_consumer(group="g", auto_commit_interval_ms=60_000)
    consumer.assign({T0: 0})
    read(consumer, 5)
    progress = consumer._progress
    progress.called(0.0)
    assert len(consumer._engine.consume_batch(5, LIMIT_S * 1000)) == 5
    before = progress.finished.get(T0, 0)
    progress.waited(float("inf"))
    assert progress.finished.get(T0, 0) == before < 10
    assert progress.patience_ms(1000.0, float("inf")) == 1000.0, "nor is it asked again and again"
    consumer.stop()
