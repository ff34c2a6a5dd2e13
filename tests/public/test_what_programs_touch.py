"""What programs of pykafka use beside the documented calls, and what they rely on."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from hashlib import sha1
from itertools import islice
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.common import OffsetType
from gkafka.exceptions import ConfigurationError, InvalidTopic, MessageSizeTooLarge, RecordTooLarge
from gkafka.partitioners import HashingPartitioner, RandomPartitioner, hashing_partitioner
from gkafka.testing import MockCluster
from tests.public.aids import LIMIT_S, Runner, fill, stored_values

READ = {"consumer_timeout_ms": LIMIT_S * 1000}
NOON = datetime(2024, 5, 1, 12, tzinfo=timezone.utc)


@pytest.fixture
def cluster(make_cluster: Callable[..., MockCluster]) -> MockCluster:
    return make_cluster(1, {"t": 3, "__mine": 1})


@pytest.mark.parametrize("name", ["", "a b", b"a b", "x" * 250])
def test_a_name_that_no_topic_can_have_is_an_invalid_topic(client: KafkaClient, cluster: MockCluster, name: Any) -> None:
    with pytest.raises(InvalidTopic) as caught:
        client.topics[name]
    assert (isinstance(caught.value, ConfigurationError), caught.value.code) == (True, 17)
    assert "must be 1 to 249 of the characters" in str(caught.value)


def test_the_recipe_for_the_last_messages_finds_what_it_needs(client: KafkaClient) -> None:
    fill(client, [b"%d" % n for n in range(20)], partition=0)
    fill(client, [b"%d" % n for n in range(3)], partition=1)
    consumer: Any = client.topics["t"].get_simple_consumer(
        auto_offset_reset=OffsetType.LATEST, reset_offset_on_start=True, consumer_timeout_ms=LIMIT_S * 1000
    )
    assert {p.id: (op.last_offset_consumed, op.next_offset) for p, op in consumer._partitions.items()} == {
        0: (19, 20),
        1: (2, 3),
        2: (-1, 0),
    }
    assert {op.partition for op in consumer._partitions.values()} == set(consumer.partitions.values())
    offsets = [(p, op.last_offset_consumed - 5) for p, op in consumer._partitions.items()]
    consumer.reset_offsets([(p, (o if o > -1 else OffsetType.EARLIEST)) for p, o in offsets])
    found = [(message.partition_id, message.offset) for message in islice(consumer, 9)]
    assert sorted(found) == [(0, n) for n in range(14, 20)] + [(1, n) for n in range(3)]
    consumer.stop()


def test_where_a_partition_stands_is_told_anew_each_time(client: KafkaClient) -> None:
    fill(client, [b"0", b"1"], partition=1)
    topic = client.topics["t"]
    consumer: Any = topic.get_simple_consumer(partitions=[topic.partitions[1]], **READ)
    held = consumer._partitions[topic.partitions[1]]
    assert (held.last_offset_consumed, held.next_offset) == (-1, 0)
    assert consumer.consume().value == b"0"
    assert (held.last_offset_consumed, held.next_offset) == (0, 1)
    assert "next_offset=1" in repr(held)
    consumer.stop()
    assert held.next_offset == 1


def test_a_member_has_a_set_of_partitions(client: KafkaClient) -> None:
    member: Any = client.topics["t"].get_balanced_consumer("g", managed=True, heartbeat_interval_ms=50)
    assert member._partitions == set(client.topics["t"].partitions.values())
    member.stop()


@pytest.mark.parametrize(
    "options", [{}, {"sync": True}, {"delivery_reports": True}, {"serializer": lambda value, key: (value, key)}], ids=",".join
)
def test_a_message_that_is_too_large_is_refused_under_both_names(
    client: KafkaClient, cluster: MockCluster, options: dict[str, Any]
) -> None:
    with client.topics["t"].get_producer(max_request_size=2000, linger_ms=0, **options) as producer:
        for error in (MessageSizeTooLarge, RecordTooLarge, ValueError):
            with pytest.raises(error, match="max_request_size=2000"):
                producer.produce(b"x" * 3000)
        producer.produce(b"small")
    assert sorted(filter(None, stored_values(cluster, partitions=range(3)))) == [b"small"]


@pytest.mark.parametrize("zone", ["none", "its own"])
def test_times_may_be_datetimes_which_without_a_zone_are_utc(client: KafkaClient, zone: str) -> None:
    topic = client.topics["t"]
    with topic.get_producer(partitioner=lambda partitions, key: 0, linger_ms=0) as producer:
        for hour in range(4):
            producer.produce(b"%d" % hour, timestamp=NOON + timedelta(hours=hour))
    when = NOON + timedelta(hours=2)
    told = when.replace(tzinfo=None) if zone == "none" else when.astimezone(timezone(timedelta(hours=-7)))
    assert topic.fetch_offset_limits(told)[0].offset == [2]
    assert topic.partitions[0].fetch_offset_limit(told) == [2]
    consumer = topic.get_simple_consumer(**READ)
    consumer.reset_offsets([(topic.partitions[0], told)])
    assert consumer.consume().value == b"2"
    consumer.reset_offsets([(0, datetime(1995, 1, 1, tzinfo=timezone.utc))])
    assert consumer.consume().value == b"0", "a time, though its number is one that could be an offset"
    with pytest.raises(ConfigurationError, match="must be 1970 or later"):
        consumer.reset_offsets([(0, datetime(1969, 1, 1, tzinfo=timezone.utc))])
    consumer.stop()


def test_topics_with_two_underscores_are_hidden_from_topics_alone(
    client: KafkaClient, connect: Callable[..., KafkaClient], cluster: MockCluster
) -> None:
    assert list(client.topics) == ["t"]
    assert "__mine" not in client.topics
    assert client.topics.get("__mine") is None
    for name in ("__mine", b"__mine", "__new"):
        with pytest.raises(KeyError, match="exclude_internal_topics=False"):
            client.topics[name]
    shown = connect(cluster, exclude_internal_topics=False)
    assert sorted(shown.topics) == ["__mine", "t"]
    assert shown.topics["__mine"].name == "__mine"
    fill(client, [b"x"], topic="__mine")
    with client.get_consumer(["__mine"]) as consumer:
        message = consumer.consume(timeout_ms=LIMIT_S * 1000)
        assert message is not None
        assert message.value == b"x"


@pytest.mark.parametrize(
    "options",
    [{}, {"partitioner": RandomPartitioner()}, {"sync": True}, {"min_queued_messages": 1}],
    ids=["plain", "given", "sync", "one by one"],
)
def test_the_default_partitioner_gives_each_partition_as_much(client: KafkaClient, cluster: MockCluster, options: dict[str, Any]) -> None:
    with client.topics["t"].get_producer(linger_ms=1, **options) as producer:
        for _ in range(60):
            producer.produce(b"x", partition_key=b"the same")
    assert [len(stored_values(cluster, partitions=[p])) for p in range(3)] == [20, 20, 20]


def test_it_does_not_begin_at_the_same_partition_each_time() -> None:
    """So that many producers of one message each spread theirs, too."""
    firsts = Counter(RandomPartitioner()([0, 1, 2], None) for _ in range(300))
    assert set(firsts) == {0, 1, 2}


def test_the_hashing_partitioner_chooses_as_pykafkas_does_in_each_process() -> None:
    """pykafka 2.8 takes the SHA-1 of the key, and so do its users' other processes; hash() differs from one to the next."""
    keys = [b"customer-%d" % n for n in range(10)]
    assert [hashing_partitioner([0, 1, 2], key) for key in keys] == [int(sha1(key).hexdigest(), 16) % 3 for key in keys]
    assert hashing_partitioner([0, 1, 2], bytearray(keys[0])) == hashing_partitioner([0, 1, 2], keys[0])
    assert HashingPartitioner()([0], "a text") == 0


def test_what_a_client_made_keeps_it_alive(cluster: MockCluster, run: Runner) -> None:
    def made() -> KafkaClient:
        return KafkaClient(cluster.bootstrap, handler=run.name)

    topic = made().topics["t"]
    gc.collect()
    with topic.get_sync_producer() as producer:
        producer.produce(b"x")
    producer = made().topics["t"].get_sync_producer()
    producer.produce(b"y")
    producer.stop()
    consumer = made().topics["t"].get_simple_consumer(**READ)
    gc.collect()
    assert {consumer.consume().value for _ in range(2)} == {b"x", b"y"}
    consumer.stop()
    assert sorted(made().topics) == ["t"]
    assert sum(p.latest_available_offset() for p in made().topics["t"].partitions.values()) == 2
