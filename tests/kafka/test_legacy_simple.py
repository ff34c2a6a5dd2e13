"""SimpleConsumer as kafka-python 0.9 documents it (behaviours 241, 315-329)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import gevent
import pytest

import gkafka
from gkafka import kafka
from gkafka.exceptions import ConsumerStoppedException
from gkafka.kafka import legacy
from gkafka.kafka.errors import (
    IllegalStateError,
    KafkaConfigurationError,
    KafkaError,
    NoBrokersAvailable,
    UnknownTopicOrPartitionError,
    WrongTypeError,
)
from gkafka.kafka.legacy import ConsumerFetchSizeTooSmall, FetchContext, KafkaClient, SimpleConsumer
from gkafka.kafka.legacy.base import Consumer
from gkafka.testing import Delay, Error, MockCluster
from tests.handlers.hub import run_script
from tests.kafka.legacy import Make, committed, eventually, fetches, fill, values
from tests.kit.clock import now


@pytest.fixture
def client(cluster: MockCluster, handler: str) -> Iterator[KafkaClient]:
    with KafkaClient(cluster.bootstrap, handler=handler) as made:
        yield made


@pytest.fixture
def two(make_cluster: Callable[..., MockCluster]) -> MockCluster:
    """The topic "t" with two partitions."""
    return make_cluster(topics={"t": 2})


@pytest.fixture
def make(handler: str) -> Iterator[Make]:
    """Makes SimpleConsumers of topic "t" and group "g": make(cluster, **options)."""
    made: list[Any] = []

    def consumer(cluster: MockCluster, group: str | None = "g", topic: str = "t", **options: Any) -> SimpleConsumer:
        made.append(KafkaClient(cluster.bootstrap, handler=handler))
        made.append(SimpleConsumer(made[-1], group, topic, **options))
        found: SimpleConsumer = made[-1]
        return found

    yield consumer
    for one in reversed(made):
        one.close() if isinstance(one, KafkaClient) else one.stop()


def sleeper(consumer: Any) -> Callable[[float], object]:
    sleep: Callable[[float], object] = consumer._handler.sleep
    return sleep


# -- client and base -------------------------------------------------------------------------------------------------------
def test_the_classes_are_kept_in_the_newer_package() -> None:
    """Behaviour 241."""
    assert kafka.SimpleConsumer is legacy.SimpleConsumer
    assert kafka.SimpleProducer is legacy.SimpleProducer
    assert kafka.SimpleClient is legacy.KafkaClient
    assert legacy.KafkaConsumer is not kafka.KafkaConsumer
    with pytest.raises(AttributeError):
        _ = kafka.SimpleThing


def test_the_client_is_connected_and_knows_its_topics(client: KafkaClient, cluster: MockCluster) -> None:
    """Behaviour 320."""
    assert client.topics == ["t"]
    assert client.topic_partitions == {"t": [0]}
    assert client.get_partition_ids_for_topic("t") == [0]
    assert client.has_metadata_for_topic("t")
    cluster.create_topic("later", 3)
    client.load_metadata_for_topics("later")
    client.ensure_topic_exists("later")
    assert client.get_partition_ids_for_topic("later") == [0, 1, 2]


def test_a_client_without_a_broker_says_so(handler: str) -> None:
    with pytest.raises(NoBrokersAvailable):
        KafkaClient("127.0.0.1:1", timeout=0.3, handler=handler)
    with pytest.raises(KafkaConfigurationError, match="did you mean 'ssl_cafile'"):
        KafkaClient("127.0.0.1:1", ssl_cafil="x")


def test_the_base_knows_partitions_offsets_and_what_is_pending(two: MockCluster, handler: str) -> None:
    """Behaviour 315."""
    fill(two, {0: [b"a", b"b"], 1: [b"c"]})
    with KafkaClient(two.bootstrap, handler=handler) as client, Consumer(client, "g", "t", None, True, 100, 5000) as base:
        assert base.offsets == {0: 0, 1: 0}
        assert base.pending() == 3
        assert isinstance(base, Consumer)
        assert not hasattr(base, "get_message")
    with KafkaClient(two.bootstrap, handler=handler) as client:
        assert Consumer(client, None, "t", [1]).offsets == {1: 0}


def test_what_cannot_be_used_is_refused(client: KafkaClient, cluster: MockCluster) -> None:
    with pytest.raises(WrongTypeError, match="client='127"):
        SimpleConsumer("127.0.0.1:9092", "g", "t")
    with pytest.raises(UnknownTopicOrPartitionError, match="no partition 7"):
        SimpleConsumer(client, "g", "t", partitions=[7])
    with pytest.raises(KafkaConfigurationError, match="partitions='01'"):
        SimpleConsumer(client, "g", "t", partitions="01")
    with pytest.raises(KafkaConfigurationError, match="buffer_size"):
        SimpleConsumer(client, "g", "t", buffer_size=10, max_buffer_size=5)
    with pytest.raises(ValueError, match="auto_commit='no'"):
        SimpleConsumer(client, "g", "t", auto_commit="no")  # type: ignore[arg-type]
    consumer = SimpleConsumer(gkafka.KafkaClient(cluster.bootstrap, handler=client._client.handler), "g", "t")
    consumer.stop()
    with pytest.raises(IllegalStateError, match="stopped"):
        consumer.get_message()
    consumer._client.close()
    with pytest.raises(IllegalStateError, match="closed"):
        SimpleConsumer(consumer._client, "g", "t")


# -- commits -----------------------------------------------------------------------------------------------------------------
def test_commit_stores_the_given_partitions_or_all(two: MockCluster, make: Make) -> None:
    """Behaviour 316."""
    fill(two, {0: [b"a", b"b"], 1: [b"c"]})
    consumer = make(two, auto_commit=False)
    assert len(consumer.get_messages(3, timeout=60)) == 3
    assert consumer.commit([0]) is True
    assert committed(two) == {0: 2}
    consumer.commit()
    assert committed(two) == {0: 2, 1: 1}
    with pytest.raises(UnknownTopicOrPartitionError):
        consumer.commit([5])


def test_pending_counts_what_waits(two: MockCluster, make: Make) -> None:
    """Behaviour 317."""
    fill(two, {0: [b"a", b"b", b"c"], 1: [b"d"]})
    consumer = make(two, partitions=[0, 1])
    assert (consumer.pending(), consumer.pending([0]), consumer.pending([1])) == (4, 3, 1)
    consumer.get_messages(4, timeout=60)
    assert consumer.pending() == 0
    fill(two, {1: [b"e"]})
    assert consumer.pending() == 1


def test_auto_commit_by_number(cluster: MockCluster, make: Make) -> None:
    """Behaviour 318: the number."""
    fill(cluster, {0: [b"%d" % i for i in range(7)]})
    consumer = make(cluster, auto_commit_every_n=3, auto_commit_every_t=None)
    assert len(consumer.get_messages(2, timeout=60)) == 2
    assert committed(cluster) == {}
    consumer.get_message(timeout=60)
    assert committed(cluster) == {0: 3}
    consumer.get_messages(2, timeout=60)
    assert committed(cluster) == {0: 3}
    consumer.get_message(timeout=60)
    assert committed(cluster) == {0: 6}


def test_auto_commit_by_time(cluster: MockCluster, make: Make) -> None:
    """Behaviour 318: the time."""
    fill(cluster, {0: [b"a", b"b"]})
    begun = now()
    consumer = make(cluster, auto_commit_every_n=None, auto_commit_every_t=300)
    consumer.get_message(timeout=60)
    eventually(lambda: committed(cluster) == {0: 1}, sleep=sleeper(consumer))
    assert now() - begun >= 0.25
    consumer.get_message(timeout=60)
    eventually(lambda: committed(cluster) == {0: 2}, sleep=sleeper(consumer))


def test_without_auto_commit_nothing_is_stored(cluster: MockCluster, make: Make) -> None:
    fill(cluster, {0: [b"a", b"b"]})
    consumer = make(cluster, auto_commit=False, auto_commit_every_n=1, auto_commit_every_t=50)
    consumer.get_messages(2, timeout=60)
    consumer._handler.sleep(0.3)
    consumer.stop()
    assert committed(cluster) == {}


@pytest.mark.parametrize(("every_t", "stored"), [(None, {0: 3}), (0, {0: 3}), (3_600_000, {0: 4})])
def test_stop_commits_what_was_handed_out_if_commits_are_due_by_time(
    cluster: MockCluster, make: Make, every_t: float | None, stored: dict[int, int]
) -> None:
    """As in 0.9, whose stop() commits where a timer does: a program that commits by number alone gets the rest of its last batch again."""
    fill(cluster, {0: [b"%d" % i for i in range(4)]})
    consumer = make(cluster, auto_commit_every_n=3, auto_commit_every_t=every_t)
    assert len(consumer.get_messages(3, timeout=60)) == 3
    assert consumer.get_message(timeout=60)
    consumer.stop()
    assert committed(cluster) == stored


def test_one_trigger_puts_the_other_off(cluster: MockCluster, make: Make) -> None:
    """Behaviour 319."""
    fill(cluster, {0: [b"%d" % i for i in range(10)]})
    consumer = make(cluster, auto_commit_every_n=3, auto_commit_every_t=60000)
    triggers = consumer._triggers
    triggers._due -= 30  # half of the time is over
    consumer.get_messages(3, timeout=60)
    assert committed(cluster) == {0: 3}
    assert triggers._due > now() + 31  # the number has put it off
    consumer.get_messages(2, timeout=60)
    consumer.commit()
    assert committed(cluster) == {0: 5}
    consumer.get_messages(2, timeout=60)
    assert committed(cluster) == {0: 5}  # the count began anew with the commit by hand
    triggers._due -= 60
    triggers._wake.set()
    eventually(lambda: committed(cluster) == {0: 7}, sleep=sleeper(consumer))
    consumer.get_messages(2, timeout=60)
    assert committed(cluster) == {0: 7}  # and with the one by time


def test_a_failed_automatic_commit_is_logged_and_tried_again(cluster: MockCluster, make: Make, caplog: pytest.LogCaptureFixture) -> None:
    fill(cluster, {0: [b"%d" % i for i in range(4)]})
    consumer = make(cluster, auto_commit_every_n=2, auto_commit_every_t=None)
    cluster.on("OffsetCommit", Error(30), times=1)  # GROUP_AUTHORIZATION_FAILED
    assert len(consumer.get_messages(2, timeout=60)) == 2
    assert "automatic commit failed" in caplog.text
    assert committed(cluster) == {}
    consumer.get_messages(2, timeout=60)
    assert committed(cluster) == {0: 4}


def test_the_group_goes_on_where_it_has_committed(cluster: MockCluster, make: Make) -> None:
    """Behaviour 320: group is the name under which offsets are kept."""
    fill(cluster, {0: [b"a", b"b", b"c"]})
    first = make(cluster)
    assert values(first.get_messages(2, timeout=60)) == [b"a", b"b"]
    first.stop()
    assert committed(cluster) == {0: 2}
    assert make(cluster).get_message(timeout=60).message.value == b"c"
    assert make(cluster, group="other").get_message(timeout=60).message.value == b"a"
    without = make(cluster, group=None)
    assert without.get_message(timeout=60).message.value == b"a"
    with pytest.raises(IllegalStateError, match="give group"):
        without.commit()


def test_fetch_last_known_offsets_goes_back_to_the_commit(cluster: MockCluster, make: Make) -> None:
    fill(cluster, {0: [b"a", b"b", b"c"]})
    consumer = make(cluster, auto_commit=False)
    consumer.get_message(timeout=60)
    consumer.commit()
    consumer.get_messages(2, timeout=60)
    consumer.fetch_last_known_offsets()
    assert consumer.offsets == {0: 1}
    assert consumer.get_message(timeout=60).message.value == b"b"


# -- consuming -----------------------------------------------------------------------------------------------------------------
def test_all_partitions_or_those_of_a_list(two: MockCluster, make: Make) -> None:
    """Behaviour 321."""
    fill(two, {0: [b"a"], 1: [b"b"]})
    for partitions, found in ((None, [b"a", b"b"]), ([1], [b"b"])):
        consumer = make(two, partitions=partitions)
        assert sorted(values(consumer.get_messages(len(found), timeout=60))) == found
        assert consumer.get_messages(5, timeout=0.3) == []
    assert make(two, partitions=[]).get_messages(5, timeout=0.1) == []


def test_fetch_size_bytes_is_asked_for(cluster: MockCluster, make: Make) -> None:
    """Behaviour 322."""
    consumer = make(cluster, fetch_size_bytes=777)
    eventually(lambda: fetches(cluster), sleep=sleeper(consumer))
    request, _ = fetches(cluster)[0]
    assert (request.min_bytes, request.max_wait_ms) == (777, 100)


def test_the_buffer_doubles_up_to_its_limit(cluster: MockCluster, make: Make) -> None:
    """Behaviour 323, and C10: the limit is that of the signature, 32768."""
    fill(cluster, {0: [b"a", b"x" * 5000, b"y" * 20000, b"z" * 40000, b"b"]})
    consumer = make(cluster)
    assert (consumer.buffer_size, consumer.max_buffer_size) == (4096, 32768)
    consumer.get_message(timeout=60)
    assert consumer.buffer_size == 4096
    assert fetches(cluster)[0][1].partition_max_bytes == 4096
    assert len(consumer.get_message(timeout=60).message.value) == 5000
    assert consumer.buffer_size == 8192
    assert len(consumer.get_message(timeout=60).message.value) == 20000
    assert consumer.buffer_size == 32768
    for _ in range(2):
        with pytest.raises(ConsumerFetchSizeTooSmall, match="offset 3 has 40026 bytes, more than max_buffer_size=32768") as caught:
            consumer.get_message(timeout=60)
        assert (caught.value.partition, caught.value.offset) == (0, 3)
    assert consumer.offsets == {0: 3}
    eventually(lambda: fetches(cluster)[-1][1].partition_max_bytes == 32768, sleep=sleeper(consumer))
    consumer.seek(1, 1)
    assert consumer.get_message(timeout=60).message.value == b"b"


def test_what_comes_before_a_message_that_is_too_large_is_handed_out(two: MockCluster, make: Make) -> None:
    fill(two, {0: [b"a", b"x" * 900, b"b"], 1: [b"c", b"d"]})
    consumer = make(two, buffer_size=256, max_buffer_size=512)
    found = values(consumer.get_messages(5, timeout=60))
    while len(found) < 3:
        found += values(consumer.get_messages(5, timeout=60))
    assert sorted(found) == [b"a", b"c", b"d"]
    with pytest.raises(ConsumerFetchSizeTooSmall):
        consumer.get_messages(5, timeout=60)
    assert consumer.offsets == {0: 1, 1: 2}


def test_without_a_limit_every_message_comes(cluster: MockCluster, make: Make) -> None:
    """Behaviour 323: None is no limit."""
    fill(cluster, {0: [b"x" * 300_000]})
    consumer = make(cluster, max_buffer_size=None)
    assert len(consumer.get_message(timeout=60).message.value) == 300_000
    assert consumer.buffer_size == 524288


def test_iter_timeout_ends_the_iteration(cluster: MockCluster, make: Make) -> None:
    """Behaviour 324."""
    fill(cluster, {0: [b"a", b"b"]})
    consumer = make(cluster, iter_timeout=1)
    assert values(consumer.get_messages(1, timeout=60)) == [b"a"]
    assert values(list(consumer)) == [b"b"]
    fill(cluster, {0: [b"c"]})
    begun = now()
    assert values(eventually(lambda: list(consumer), sleep=sleeper(consumer))) == [b"c"]
    assert 1 <= now() - begun < 30


def test_without_iter_timeout_an_iteration_waits(cluster: MockCluster, make: Make) -> None:
    """Behaviour 324."""
    consumer = make(cluster)
    begun = now()

    def later() -> None:
        consumer._handler.sleep(1.3)
        fill_by(consumer, b"late")

    consumer._handler.spawn(later)
    assert next(iter(consumer)).message.value == b"late"
    assert now() - begun >= 1.3


def fill_by(consumer: Any, value: bytes) -> None:
    producer = legacy.SimpleProducer(consumer.client)
    producer.send_messages("t", value)
    producer.stop()


def test_get_messages_waits_for_so_many_or_for_so_long(cluster: MockCluster, make: Make) -> None:
    """Behaviour 325."""
    fill(cluster, {0: [b"a", b"b", b"c"]})
    consumer = make(cluster)
    assert values(consumer.get_messages()) == [b"a"]
    begun = now()
    assert values(consumer.get_messages(count=5, timeout=0.5)) == [b"b", b"c"]
    assert 0.5 <= now() - begun < 30
    begun = now()
    assert consumer.get_messages(count=5, block=False) == []
    assert now() - begun < 30


def test_get_messages_collects_no_more_bytes_than_the_bound(cluster: MockCluster, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """It went on until it had `count`, for ever here, whatever they held."""
    monkeypatch.setattr("gkafka.kafka.legacy.simple.MOST_BYTES", 1)
    fill(cluster, {0: [b"0", b"1", b"2"]})
    consumer = make(cluster)
    got: list[bytes] = []
    while len(got) < 3:
        got += values(consumer.get_messages(1000, timeout=None))
    assert got == [b"0", b"1", b"2"]


def test_get_messages_with_timeout_none_waits_until_they_are_there(cluster: MockCluster, make: Make) -> None:
    """Behaviour 325: None is for ever."""
    consumer = make(cluster)

    def later() -> None:
        for value in (b"a", b"b"):
            consumer._handler.sleep(0.7)
            fill_by(consumer, value)

    consumer._handler.spawn(later)
    assert values(consumer.get_messages(2, timeout=None)) == [b"a", b"b"]


def test_a_call_finds_what_was_written_before_it(cluster: MockCluster, make: Make) -> None:
    """A fetch may be parked, or not be there yet: a call that waits for nothing waits for that."""
    fill(cluster, {0: [b"a"]})
    consumer = make(cluster)
    assert values(consumer.get_messages(5, block=False)) == [b"a"]
    for i in range(10):
        fill_by(consumer, b"%d" % i)
        assert consumer.get_message(block=False).message.value == b"%d" % i


def test_get_message_gives_one_or_none(cluster: MockCluster, make: Make) -> None:
    """Behaviour 326."""
    fill(cluster, {0: [b"a", b"b"]})
    consumer = make(cluster)
    message = consumer.get_message()
    assert (message.offset, message.message.key, message.message.value) == (0, None, b"a")
    partition, message = consumer.get_message(get_partition_info=True)
    assert (partition, message.offset) == (0, 1)
    assert consumer.get_message() is None
    assert consumer.get_message(block=False) is None


def test_messages_come_with_their_partition_when_that_is_asked_for(two: MockCluster, make: Make) -> None:
    """Behaviour 327."""
    fill(two, {1: [b"a", b"b", b"c"]})
    consumer = make(two, iter_timeout=2)
    assert consumer.get_message(timeout=60).offset == 0
    consumer.provide_partition_info()
    partition, message = consumer.get_message(timeout=60)
    assert (partition, message.offset) == (1, 1)
    assert consumer.get_message(timeout=60, get_partition_info=False).offset == 2
    consumer.seek(0, 0)
    assert [(p, m.offset) for p, m in consumer.get_messages(3, timeout=60)] == [(1, 0), (1, 1), (1, 2)]
    consumer.seek(0, 0)
    assert [p for p, _ in consumer] == [1, 1, 1]


def test_seek_by_whence(cluster: MockCluster, make: Make) -> None:
    """Behaviour 328."""
    fill(cluster, {0: [b"%d" % i for i in range(10)]})
    cluster.delete_records("t", 0, 2)
    consumer = make(cluster)

    def after(offset: int, whence: int | None) -> bytes | None:
        consumer.seek(offset, whence)
        message = consumer.get_message(timeout=60 if whence is None or offset != 0 or whence != 2 else 0.1)
        return message.message.value if message else None

    assert after(0, 0) == b"2"
    assert after(3, 0) == b"5"
    assert after(1, 1) == b"7"  # it stands at 6 now
    assert after(-2, 1) == b"6"
    assert after(-1, 2) == b"9"
    assert after(-3, 2) == b"7"
    assert after(0, 2) is None
    assert after(4, None) == b"4"
    assert after(-100, 2) == b"2"  # never before what there is
    assert after(-100, 1) == b"2"
    with pytest.raises(KafkaConfigurationError, match="whence=3"):
        consumer.seek(0, 3)
    with pytest.raises(WrongTypeError):
        consumer.seek("5", 0)


def test_seek_of_several_partitions(two: MockCluster, make: Make) -> None:
    fill(two, {0: [b"a"] * 10, 1: [b"b"] * 10})
    consumer = make(two)
    consumer.seek(-5, 2)
    assert sum(10 - offset for offset in consumer.offsets.values()) == 5
    consumer.seek(1, 1)
    assert sum(10 - offset for offset in consumer.offsets.values()) == 3
    consumer.seek(3, None, partition=1)
    assert consumer.offsets[1] == 3


def test_out_of_range_goes_by_auto_offset_reset(cluster: MockCluster, make: Make) -> None:
    fill(cluster, {0: [b"%d" % i for i in range(5)]})
    consumer = make(cluster, auto_offset_reset="smallest", auto_commit=False)
    cluster.delete_records("t", 0, 3)
    consumer._reader.consumer.seek(("t", 0), 1)
    assert consumer.get_message(timeout=60).message.value == b"3"


@pytest.fixture
def passed_by(make_cluster: Callable[..., MockCluster]) -> MockCluster:
    """Two partitions of two brokers with five records each; the group stands at 0 and at 1, where partition 1 has nothing any more."""
    cluster = make_cluster(brokers=2, topics={"t": 2})
    cluster.move_leader("t", 0, 1)
    cluster.move_leader("t", 1, 2)
    fill(cluster, {p: [b"%d-%d" % (p, i) for i in range(5)] for p in (0, 1)})
    with KafkaClient(cluster.bootstrap, handler="threading") as client, SimpleConsumer(client, "g", "t", partitions=[1]) as consumer:
        assert values(consumer.get_messages(1, timeout=60)) == [b"1-0"]
    cluster.delete_records("t", 1, 4)
    return cluster


def told(consumer: SimpleConsumer, calls: int = 1, count: int = 10) -> list[bytes | str]:
    """The values of so many get_messages(), or the name of what a call raises."""
    found: list[bytes | str] = []
    for _ in range(calls):
        try:
            found += values(consumer.get_messages(count, timeout=60))
        except KafkaError as exc:
            found.append(type(exc).__name__)
    return found


def test_what_a_call_found_before_an_error_is_handed_out_and_the_error_with_the_next_call(passed_by: MockCluster, make: Make) -> None:
    passed_by.on("Fetch", Delay(1.5), broker=2, times=1)  # the other one's records are there first
    consumer = make(passed_by, auto_offset_reset="none")
    begun = now()
    assert told(consumer, calls=4) == [*(b"0-%d" % i for i in range(5)), *["OffsetOutOfRangeError"] * 3]
    assert now() - begun < 60
    consumer.stop()
    assert committed(passed_by) == {0: 5, 1: 1}


def test_an_error_that_waits_for_the_next_call_is_gone_with_a_seek(passed_by: MockCluster, make: Make) -> None:
    passed_by.on("Fetch", Delay(1.5), broker=2, times=1)
    consumer = make(passed_by, auto_offset_reset="none", auto_commit=False)
    assert told(consumer) == [b"0-%d" % i for i in range(5)]
    consumer.seek(4, None, partition=1)
    assert told(consumer, count=1) == [b"1-4"]


class Cut(BaseException):
    """What takes a call away: a gevent.Timeout, a kill(), Ctrl-C."""


def test_a_call_that_is_cut_short_loses_nothing(cluster: MockCluster, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(cluster, {0: [b"%d" % i for i in range(5)]})
    consumer = make(cluster, auto_commit_every_n=None)
    take = consumer._reader.take

    def cut(count: int, *more: Any) -> Any:
        if count < 10:
            raise Cut
        return take(count, *more)

    monkeypatch.setattr(consumer._reader, "take", cut)
    for _ in range(2):
        with pytest.raises(Cut):
            consumer.get_messages(10, timeout=60)
        assert consumer.offsets == {0: 0}
    monkeypatch.undo()
    assert values(consumer.get_messages(2, timeout=60)) == [b"0", b"1"]
    consumer.commit()
    assert committed(cluster) == {0: 2}
    assert consumer.get_message().message.value == b"2"
    consumer.seek(1, 0)
    assert values(consumer.get_messages(4, timeout=60)) == [b"1", b"2", b"3", b"4"]


def test_what_waits_when_it_stops_is_not_committed(cluster: MockCluster, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(cluster, {0: [b"a", b"b", b"c"]})
    consumer = make(cluster)
    take = consumer._reader.take

    def stopping(count: int, *more: Any) -> Any:
        if count < 10:
            consumer.stop()  # as another worker may
        return take(count, *more)

    monkeypatch.setattr(consumer._reader, "take", stopping)
    with pytest.raises(ConsumerStoppedException):
        consumer.get_messages(10, timeout=60)
    assert committed(cluster) == {}


def test_messages_whose_commit_is_cut_short_come_with_the_next_call(
    cluster: MockCluster, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker may have it nevertheless: the next one puts that right."""
    fill(cluster, {0: [b"a", b"b", b"c"]})
    consumer = make(cluster, auto_commit_every_n=3, auto_commit_every_t=None)
    commit = consumer._of_group.commit

    def cut(*args: Any, **options: Any) -> None:
        commit(*args, **options)
        raise Cut

    monkeypatch.setattr(consumer._of_group, "commit", cut)
    with pytest.raises(Cut):
        consumer.get_messages(3, timeout=60)
    assert committed(cluster) == {0: 3}
    monkeypatch.undo()
    assert consumer.offsets == {0: 0}
    consumer.commit()
    assert committed(cluster) == {0: 0}
    assert values(consumer.get_messages(3, timeout=60)) == [b"a", b"b", b"c"]
    assert committed(cluster) == {0: 3}


def test_a_gevent_timeout_loses_nothing(cluster: MockCluster) -> None:
    fill(cluster, {0: [b"%d" % i for i in range(5)]})
    with KafkaClient(cluster.bootstrap, handler="gevent") as client, SimpleConsumer(client, "g", "t") as consumer:
        with pytest.raises(gevent.Timeout), gevent.Timeout(0.7):
            consumer.get_messages(10, timeout=60)
        assert values(consumer.get_messages(5, timeout=60)) == [b"%d" % i for i in range(5)]


# -- the fetch context -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("block", "timeout", "within"), [(True, 3, (3000, 1)), (True, None, (1000, 1)), (False, 3, (100, 0))])
def test_the_fetch_context_sets_values_and_restores_them(block: bool, timeout: float | None, within: tuple[float, int]) -> None:
    """Behaviour 329."""
    consumer = SimpleNamespace(fetch_max_wait_time=100, fetch_min_bytes=4096)
    context = FetchContext(consumer, block, timeout)
    with context:
        assert (consumer.fetch_max_wait_time, consumer.fetch_min_bytes) == within
    assert (consumer.fetch_max_wait_time, consumer.fetch_min_bytes) == (100, 4096)
    context.__enter__()
    context.__exit__(RuntimeError, RuntimeError(), None)
    assert (consumer.fetch_max_wait_time, consumer.fetch_min_bytes) == (100, 4096)


def test_a_fetch_within_a_waiting_call_asks_for_a_first_byte(cluster: MockCluster, make: Make) -> None:
    """Behaviour 329: the values are those of the requests."""
    consumer = make(cluster)
    assert consumer.get_message(timeout=2) is None
    assert (1, 2000) in {(r.message.min_bytes, r.message.max_wait_ms) for r in cluster.requests("Fetch")}
    assert (consumer.fetch_min_bytes, consumer.fetch_max_wait_time) == (4096, 100)


# -- cut short -------------------------------------------------------------------------------------------------------------
OWN = tuple(module.__file__ for module in (legacy.base, legacy.simple, legacy.reading))


def cut_at(line: int, call: Callable[[], object]) -> bool:
    """Whether the call was ended by a KeyboardInterrupt, as of Ctrl-C, before that line of those that it runs in gkafka.kafka.legacy."""
    left = line

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename not in OWN:
            return None
        if event == "line":
            left -= 1
            if not left:
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        call()
        return False
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)


@pytest.mark.parametrize("line", [1, 4, *(pytest.param(line, marks=pytest.mark.thorough) for line in (2, 3, 5))])
def test_a_call_that_is_cut_short_anywhere_loses_nothing(cluster: MockCluster, make: Make, line: int) -> None:
    """1,289 of 1,500 came, and all were committed. line: where it begins; together the five of them cut before each line."""
    fill(cluster, {0: [b"%d" % n for n in range(30)]})
    consumer = make(cluster, auto_commit_every_n=7 if line % 2 else None, auto_commit_every_t=None, fetch_size_bytes=1)
    consumer.fetch_max_wait_time = 10
    cut = True
    while cut:
        consumer.seek(0, 0)
        got: list[Any] = consumer.get_messages(3, timeout=60)
        cut = cut_at(line, lambda got=got: got.extend(consumer.get_messages(10, timeout=60)))  # type: ignore[misc]
        assert consumer.offsets == {0: len(got)}
        while len(got) < 30 and (more := consumer.get_messages(min(10, 30 - len(got)), timeout=60)):
            got += more
        assert [m.offset for m in got] == list(range(30)), f"cut short at line {line}"
        line += 5
    assert line > 40
    consumer.commit()
    assert committed(cluster) == {0: 30}


# -- the end -----------------------------------------------------------------------------------------------------------------
def test_close_of_the_client_stops_its_consumers_which_commit(cluster: MockCluster, client: KafkaClient) -> None:
    """It waited for the commits' worker until that came by itself, after 5 s, and what was handed out came again."""
    fill(cluster, {0: [b"a", b"b"]})
    consumer = SimpleConsumer(client, "g", "t", auto_commit_every_t=3_600_000)
    assert values(consumer.get_messages(2, timeout=60)) == [b"a", b"b"]
    began = now()
    client.close()
    assert now() - began < 60
    assert committed(cluster) == {0: 2}
    with pytest.raises(IllegalStateError):
        consumer.get_messages(1)


def test_close_of_the_client_ends_while_the_coordinator_is_silent(
    cluster: MockCluster, client: KafkaClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gkafka.kafka.legacy.client.LAST_COMMIT_S", 0.5)
    fill(cluster, {0: [b"a"]})
    consumer = SimpleConsumer(client, "g", "t")
    assert values(consumer.get_messages(1, timeout=60)) == [b"a"]
    cluster.on("OffsetCommit", Delay(3600), times=None)
    began = now()
    client.close()
    assert now() - began < 60


def test_stop_in_a_forked_child_without_hooks_waits_for_nobody() -> None:
    """uWSGI forks so. It waited for the parent's commits' worker for `timeout`, two minutes."""
    out = run_script(
        """
        import os, signal
        from gkafka.kafka.legacy import KafkaClient, SimpleConsumer
        from gkafka.testing import MockCluster
        from tests.handlers.rawfork import fork_without_hooks
        with MockCluster(1, {"t": 1}) as cluster:
            client = KafkaClient(cluster.bootstrap, handler="threading")
            consumer = SimpleConsumer(client, "g", "t")
            pid = fork_without_hooks()
            if pid == 0:
                signal.alarm(60)
                consumer.stop()
                os._exit(0)
            print(os.waitpid(pid, 0)[1])
            client.close()
        """,
        timeout=120,
    )
    assert out == "0"
