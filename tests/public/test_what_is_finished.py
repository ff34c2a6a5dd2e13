"""What counts as finished when things go wrong: exceptions, deserializers, listeners and assignors that fail, bad arguments of the end."""

from __future__ import annotations

from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.common import TopicPartition
from gkafka.exceptions import AssignmentError, ConfigurationError, SerializationError
from gkafka.testing import MockCluster
from tests.public.aids import Clock, Runner, error_of, fill, read
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
        "g", auto_commit_enable=True, auto_commit_interval_ms=50, deserializer=deserialize, consumer_timeout_ms=1000
    )
    run.until(lambda: consumer._engine.buffered() == 20)  # type: ignore[union-attr]
    assert len(consumer.consume_batch()) == 15
    assert committed(cluster) <= 15
    assert isinstance(error_of(consumer.consume_batch), SerializationError)
    run.until(lambda: committed(cluster) == 15)
    consumer.stop()
    assert committed(cluster) == 15


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


def test_an_application_that_waits_in_a_call_is_not_silent(cluster: MockCluster, connect: Any) -> None:
    consumer = connect(cluster).get_consumer("t", "g", **{**MEMBER, "max_poll_interval_ms": 400})
    for _ in range(2):
        assert consumer.consume(1500) is None
    stats = consumer.stats()["group"]
    assert (stats["losses"], stats["generation"]) == (0, 1)
    consumer.stop()


@pytest.mark.parametrize("partition", [1, 99])
def test_a_partition_that_does_not_exist_is_refused_by_assign(client: KafkaClient, partition: int) -> None:
    consumer = client.get_consumer()
    with pytest.raises(ConfigurationError, match=f"topic 't' has no partition {partition}: it has 0 to 0"):
        consumer.assign([("t", partition)])
    consumer.assign([T0])


def test_a_listener_that_takes_long_does_not_hold_up_the_end_of_the_client(cluster: MockCluster, run: Runner) -> None:
    client = KafkaClient(cluster.bootstrap, handler=run.name)
    consumer = client.get_consumer("t", "g", on_assigned=lambda *_: run.sleep(3), **MEMBER)
    consumer.consume(300)
    with Clock() as clock:
        client.close(0.5)
    assert clock.seconds < 1.5
