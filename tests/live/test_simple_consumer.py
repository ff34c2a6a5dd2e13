"""SimpleConsumer on a real broker: the numbered promises of the reference documents on positions, commits and reading."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from gkafka.common import OffsetType
from tests.kit.clock import now
from tests.live.peer import Peer, Seen

if TYPE_CHECKING:
    from gkafka import KafkaClient

Fill = Callable[..., str]


@pytest.fixture
def fill(peer: Peer, new_topic: Callable[..., str]) -> Fill:
    """Makes a topic and has another client write `count` records b"0", b"1" ... into each partition."""

    def make(count: int, partitions: int = 1) -> str:
        topic = new_topic(partitions)
        add(peer, topic, 0, count, partitions)
        return topic

    return make


def add(peer: Peer, topic: str, first: int, count: int, partitions: int = 1) -> None:
    peer.write(topic, [Seen(p, first + i, None, b"%d" % (first + i), [], None) for p in range(partitions) for i in range(count)])


def consumer_of(client: KafkaClient, topic: str, group: str | None = None, **options: Any) -> Any:
    return client.topics[topic].get_simple_consumer(consumer_group=group, **options)


def read(consumer: Any, count: int) -> dict[int, list[int]]:
    """Offsets by partition of the next `count` messages."""
    seen: dict[int, list[int]] = {}
    got = 0
    deadline = now() + 60
    while got < count:
        assert now() < deadline, f"{got} of {count} messages after 60 s"
        for message in consumer.consume_batch(count - got, timeout_ms=1000):
            seen.setdefault(message.partition_id, []).append(message.offset)
            got += 1
    return seen


def nothing_comes(consumer: Any) -> bool:
    return not consumer.consume_batch(10, timeout_ms=300)


# -- where it starts (12 to 19) ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("reset_on_start", [False, True])
def test_a_new_group_starts_at_auto_offset_reset_whatever_reset_offset_on_start_says(
    reset_on_start: bool, client: KafkaClient, peer: Peer, fill: Fill, new_name: Callable[[str], str]
) -> None:
    topic = fill(5)
    options: dict[str, Any] = {"reset_offset_on_start": reset_on_start}
    early = consumer_of(client, topic, new_name("group"), auto_offset_reset=OffsetType.EARLIEST, **options)
    assert read(early, 5) == {0: [0, 1, 2, 3, 4]}
    early.stop()
    late = consumer_of(client, topic, new_name("group"), auto_offset_reset=OffsetType.LATEST, **options)
    assert nothing_comes(late)
    add(peer, topic, 5, 2)
    assert read(late, 2) == {0: [5, 6]}
    late.stop()


def test_a_group_with_a_commit_goes_on_right_after_it(client: KafkaClient, fill: Fill, new_name: Callable[[str], str]) -> None:
    topic, group = fill(10), new_name("group")
    first = consumer_of(client, topic, group)
    read(first, 5)
    first.commit_offsets()
    first.stop()
    second = consumer_of(client, topic, group, auto_offset_reset=OffsetType.LATEST)
    assert read(second, 5) == {0: [5, 6, 7, 8, 9]}
    second.stop()


def test_reset_offset_on_start_outweighs_the_commit(client: KafkaClient, fill: Fill, new_name: Callable[[str], str]) -> None:
    topic, group = fill(10), new_name("group")
    first = consumer_of(client, topic, group)
    read(first, 5)
    first.commit_offsets()
    first.stop()
    again = consumer_of(client, topic, group, auto_offset_reset=OffsetType.EARLIEST, reset_offset_on_start=True)
    assert read(again, 10) == {0: list(range(10))}
    again.stop()


def test_each_partition_of_a_group_starts_by_its_own_commit(
    client: KafkaClient, peer: Peer, fill: Fill, new_name: Callable[[str], str]
) -> None:
    topic, group = fill(6, partitions=2), new_name("group")
    peer.commit(group, topic, {1: 4})
    consumer = consumer_of(client, topic, group, auto_offset_reset=OffsetType.EARLIEST)
    assert read(consumer, 8) == {0: [0, 1, 2, 3, 4, 5], 1: [4, 5]}
    consumer.stop()


def test_without_a_group_every_start_is_at_auto_offset_reset(client: KafkaClient, fill: Fill) -> None:
    topic = fill(3)
    for _ in range(2):
        consumer = consumer_of(client, topic)
        assert read(consumer, 3) == {0: [0, 1, 2]}
        consumer.stop()


# -- what it reads (5, 6, 21, 22, 172, 173) ------------------------------------------------------------------------------
def test_it_reads_every_partition_whole_and_in_order(client: KafkaClient, fill: Fill) -> None:
    topic = fill(50, partitions=4)
    consumer = consumer_of(client, topic)
    assert sorted(consumer.partitions) == [0, 1, 2, 3]
    assert read(consumer, 200) == {p: list(range(50)) for p in range(4)}
    consumer.stop()


def test_two_consumers_of_one_group_each_receive_every_message(client: KafkaClient, fill: Fill, new_name: Callable[[str], str]) -> None:
    topic, group = fill(20), new_name("group")
    both = [consumer_of(client, topic, group) for _ in range(2)]
    assert [read(consumer, 20) for consumer in both] == [{0: list(range(20))}] * 2
    for consumer in both:
        consumer.stop()


def test_no_partition_is_starved_by_another(client: KafkaClient, peer: Peer, new_topic: Callable[..., str]) -> None:
    topic = new_topic(2)
    peer.write(topic, [Seen(p, i, None, b"%d" % i, [], None) for p in range(2) for i in range(3000)], batch=50)
    consumer = consumer_of(client, topic, fetch_message_max_bytes=4096, queued_max_messages=100)
    first = read(consumer, 3000)
    consumer.stop()
    assert min(len(first.get(p, [])) for p in (0, 1)) > 300


def test_it_reads_only_the_partitions_it_was_given(client: KafkaClient, fill: Fill) -> None:
    topic = client.topics[fill(5, partitions=3)]
    consumer = topic.get_simple_consumer(partitions=[topic.partitions[1]])
    assert read(consumer, 5) == {1: [0, 1, 2, 3, 4]}
    assert nothing_comes(consumer)
    consumer.stop()


def test_a_fetched_message_knows_its_partition(client: KafkaClient, fill: Fill) -> None:
    topic = client.topics[fill(1)]
    consumer = topic.get_simple_consumer(consumer_timeout_ms=10000)
    message = consumer.consume()
    assert message is not None
    assert message.partition_id == 0
    assert message.partition is topic.partitions[0]
    consumer.stop()


def test_a_message_larger_than_the_fetch_size_still_arrives(client: KafkaClient, peer: Peer, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    peer.write(topic, [Seen(0, 0, None, b"x" * 200_000, [], None), Seen(0, 1, None, b"after", [], None)])
    consumer = consumer_of(client, topic, fetch_message_max_bytes=1000)
    assert read(consumer, 2) == {0: [0, 1]}
    consumer.stop()


# -- waiting (174 to 178) ------------------------------------------------------------------------------------------------
def test_iteration_yields_messages_in_order_and_ends_when_nothing_comes(client: KafkaClient, fill: Fill) -> None:
    consumer = consumer_of(client, fill(4), consumer_timeout_ms=2000)
    assert [(m.offset, bytes(m.value)) for m in consumer] == [(0, b"0"), (1, b"1"), (2, b"2"), (3, b"3")]
    consumer.stop()


def test_consume_gives_none_after_consumer_timeout_ms(client: KafkaClient, new_topic: Callable[..., str]) -> None:
    consumer = consumer_of(client, new_topic(), consumer_timeout_ms=300)
    began = now()
    assert consumer.consume() is None
    assert 0.25 <= now() - began < 30
    consumer.stop()


def test_consume_without_blocking_gives_none_at_once(client: KafkaClient, new_topic: Callable[..., str]) -> None:
    consumer = consumer_of(client, new_topic())
    began = now()
    assert consumer.consume(block=False) is None
    assert now() - began < 30
    consumer.stop()


def test_without_auto_start_nothing_is_read_until_start(client: KafkaClient, fill: Fill) -> None:
    consumer = consumer_of(client, fill(2), auto_start=False)
    consumer.start()
    assert read(consumer, 2) == {0: [0, 1]}
    consumer.stop()


def test_the_queue_is_bounded_and_nothing_is_lost_by_it(client: KafkaClient, peer: Peer, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    add(peer, topic, 0, 5000)
    consumer = consumer_of(client, topic, queued_max_messages=10, fetch_message_max_bytes=1000)
    assert read(consumer, 5000) == {0: list(range(5000))}
    consumer.stop()


# -- offsets (23, 34, 180 to 184) ----------------------------------------------------------------------------------------
def test_a_commit_is_the_next_offset_to_read_as_other_clients_understand_it(
    client: KafkaClient, peer: Peer, fill: Fill, new_name: Callable[[str], str]
) -> None:
    topic, group = fill(10, partitions=2), new_name("group")
    topic_object = client.topics[topic]
    consumer = topic_object.get_simple_consumer(consumer_group=group, partitions=[topic_object.partitions[1]])
    read(consumer, 7)
    consumer.commit_offsets()
    assert peer.committed(group, topic, 2) == {1: 7}
    assert [(id, answer.offset) for id, answer in consumer.fetch_offsets()] == [(1, 7)]
    consumer.stop()


def test_messages_that_were_fetched_but_not_consumed_are_not_committed(
    client: KafkaClient, peer: Peer, fill: Fill, new_name: Callable[[str], str]
) -> None:
    topic, group = fill(100), new_name("group")
    consumer = consumer_of(client, topic, group, consumer_timeout_ms=10000)
    assert consumer.consume().offset == 0
    assert consumer.consume().offset == 1
    consumer.commit_offsets()
    assert peer.committed(group, topic) == {0: 2}
    consumer.stop()


def test_auto_commit_commits_what_was_consumed(client: KafkaClient, peer: Peer, fill: Fill, new_name: Callable[[str], str]) -> None:
    topic, group = fill(10), new_name("group")
    consumer = consumer_of(client, topic, group, auto_commit_enable=True, auto_commit_interval_ms=100)
    read(consumer, 6)
    deadline = now() + 60
    while peer.committed(group, topic) != {0: 6}:
        assert now() < deadline, f"committed: {peer.committed(group, topic)}"
        client.handler.sleep(0.05)  # the peer blocks this thread, and with it a hub: the committing worker needs its turn
    consumer.stop()


def test_stop_commits_what_auto_commit_has_not_yet(client: KafkaClient, peer: Peer, fill: Fill, new_name: Callable[[str], str]) -> None:
    topic, group = fill(10), new_name("group")
    consumer = consumer_of(client, topic, group, auto_commit_enable=True, auto_commit_interval_ms=600_000)
    read(consumer, 6)
    consumer.stop()
    assert peer.committed(group, topic) == {0: 6}


def test_held_offsets_are_those_of_the_messages_consumed_last(client: KafkaClient, fill: Fill) -> None:
    consumer = consumer_of(client, fill(5, partitions=2))
    seen = read(consumer, 7)
    assert consumer.held_offsets == {p: offsets[-1] for p, offsets in seen.items()}
    consumer.stop()


@pytest.mark.parametrize(("to", "expected"), [(OffsetType.EARLIEST, [0, 1, 2]), (2, [2, 3, 4]), (4, [4])])
def test_reset_offsets_moves_the_position(to: int, expected: list[int], client: KafkaClient, fill: Fill) -> None:
    topic = client.topics[fill(5)]
    consumer = topic.get_simple_consumer()
    read(consumer, 5)
    consumer.reset_offsets([(topic.partitions[0], to)])
    assert read(consumer, len(expected)) == {0: expected}
    consumer.stop()


def test_reset_offsets_to_the_latest_reads_only_what_comes_afterwards(client: KafkaClient, peer: Peer, fill: Fill) -> None:
    name = fill(5)
    topic = client.topics[name]
    consumer = topic.get_simple_consumer()
    read(consumer, 2)
    consumer.reset_offsets([(topic.partitions[0], OffsetType.LATEST)])
    assert nothing_comes(consumer)
    add(peer, name, 5, 1)
    assert read(consumer, 1) == {0: [5]}
    consumer.stop()


def test_a_position_out_of_range_is_reset_by_auto_offset_reset(
    client: KafkaClient, peer: Peer, fill: Fill, new_name: Callable[[str], str]
) -> None:
    topic, group = fill(5), new_name("group")
    peer.commit(group, topic, {0: 1000})
    consumer = consumer_of(client, topic, group, auto_offset_reset=OffsetType.EARLIEST)
    assert read(consumer, 5) == {0: [0, 1, 2, 3, 4]}
    consumer.stop()


def test_names_are_taken_as_bytes_and_as_text(client: KafkaClient, peer: Peer, fill: Fill, new_name: Callable[[str], str]) -> None:
    topic, group = fill(3), new_name("group")
    consumer = client.topics[topic.encode()].get_simple_consumer(consumer_group=group.encode())
    read(consumer, 3)
    consumer.commit_offsets()
    consumer.stop()
    assert peer.committed(group, topic) == {0: 3}
