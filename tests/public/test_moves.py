"""Nothing moves a position or a group's offset too early: claims of DESIGN.md, section 5."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.common import TopicPartition
from gkafka.config import ClientConfig
from gkafka.exceptions import CorruptRecordError, NoOffsetForPartitionError
from gkafka.handlers import resolve_handler
from gkafka.net.channel import Channel
from gkafka.ownedpartition import OwnedPartition
from gkafka.testing import MockCluster
from gkafka.wire.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.kit.clock import soon
from tests.net.channel_peers import Conversation, peer
from tests.public.aids import LIMIT_S, Runner, error_of, fill, read
from tests.records.handmade import batch, marker, record, values

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def numbers(n: int) -> list[bytes]:
    return [b"%d" % i for i in range(n)]


def test_a_committed_offset_0_is_where_it_starts(client: KafkaClient, cluster: MockCluster) -> None:
    """A record that the group has seen and not finished was passed where the policy is "latest"."""
    fill(client, numbers(3))
    with client.get_consumer(group="g", auto_commit=False) as first:
        first.assign([T0])
        first.commit({T0: 0})
    with client.get_consumer(group="g", auto_offset_reset="latest", auto_commit=False) as second:
        second.assign([T0])
        assert [message.offset for message in read(second, 3)] == [0, 1, 2]


def test_auto_commit_false_commits_nothing_by_itself(
    client: KafkaClient, cluster: MockCluster, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(client, numbers(6), batches=2)
    member = client.get_consumer("t", "g", auto_commit=False)
    assert [message.offset for message in read(member, 3) + read(member, 3)] == list(range(6))
    run.sleep(0.15)  # what is finished is written down every 0.1 s
    assert member.consume_batch(timeout_ms=200) == []
    monkeypatch.setattr(client.handler, "monotonic", lambda: soon(6.0))  # a commit is due
    client.update_cluster()  # of which its worker hears, and looks around
    assert run.stays(lambda: not cluster.committed("g"), 0.3)
    member.stop()
    assert not cluster.committed("g")


def test_an_assign_that_is_refused_finishes_nothing(connect: Any, make_cluster: Any) -> None:
    cluster = make_cluster(topics={"t": 2})
    client = connect(cluster)
    fill(client, numbers(5))
    consumer = client.get_consumer(group="g", auto_offset_reset="none")
    consumer.assign({T0: 0})
    assert len(read(consumer, 2)) == 2
    assert isinstance(error_of(consumer.assign, [T1]), NoOffsetForPartitionError)
    consumer.abandon()
    committed = [entry.offset for entry in cluster.committed("g").values()]
    assert committed in ([], [0]), "nobody has said that what was read is finished"


def test_reset_offsets_commits_for_the_group_also_without_auto_commit_enable(
    client: KafkaClient,
    cluster: MockCluster,
) -> None:
    fill(client, numbers(5))
    consumer = client.topics["t"].get_simple_consumer("g", consumer_timeout_ms=int(LIMIT_S * 1000))
    consumer.reset_offsets([(0, 3)])
    assert cluster.committed("g")["t", 0].offset == 3
    message = consumer.consume()
    assert message is not None
    assert message.offset == 3
    consumer.stop()
    assert cluster.committed("g")["t", 0].offset == 3, "what was consumed is committed when the program says so"


def test_a_simple_consumer_starts_again_where_the_group_has_committed(client: KafkaClient) -> None:
    fill(client, numbers(5))
    consumer = client.topics["t"].get_simple_consumer("g", consumer_timeout_ms=int(LIMIT_S * 1000))
    read(consumer, 5)
    consumer.commit_offsets([(0, 2)])
    consumer.stop()
    consumer.start()
    assert [message.offset for message in read(consumer, 3)] == [2, 3, 4]
    consumer.stop()


def test_a_member_that_leaves_commits_what_was_handed_out(
    client: KafkaClient,
    cluster: MockCluster,
    run: Runner,
) -> None:
    fill(client, numbers(10))
    member = client.get_consumer("t", "g")
    assert len(read(member, 1)) == 1
    run.until(lambda: member.stats()["buffered"] == 9)
    assert len(read(member, 4)) == 4
    member.stop()
    assert cluster.committed("g")["t", 0].offset == 5


def test_a_rebalance_callbacks_offsets_are_where_it_goes_on(client: KafkaClient) -> None:
    fill(client, numbers(5))
    member: Any = client.topics["t"].get_balanced_consumer(
        "g",
        managed=True,
        heartbeat_interval_ms=50,
        post_rebalance_callback=lambda consumer, before, after: {0: 2},
    )
    assert [message.offset for message in read(member, 2)] == [3, 4], "2 counts as consumed"
    member.stop()


def test_an_owned_partition_commits_what_was_consumed(client: KafkaClient) -> None:
    owned = OwnedPartition(client.topics["t"].partitions[0])
    owned.enqueue_messages([SimpleNamespace(offset=n, partition_id=0) for n in range(5)])
    assert [owned.consume().offset for _ in range(2)] == [0, 1]
    assert owned.build_offset_commit_request().offset == 2


def test_acks_0_tells_nothing_while_bytes_wait_for_the_socket(run: Runner) -> None:
    go, told = threading.Event(), []

    def serve(talk: Conversation) -> None:
        talk.negotiate((18, 0, 4), (0, 3, 8))
        assert go.wait(LIMIT_S * 2)
        talk.read()

    handler = resolve_handler(run.name)
    part = PartitionProduceData(index=0, records=b"x" * (12 << 20))
    topic = TopicProduceData(name="t", partition_data=[part])
    request = ProduceRequest(acks=0, timeout_ms=1000, topic_data=[topic])
    with peer(serve) as server:
        channel = Channel(handler, "127.0.0.1", server.port, ClientConfig())
        channel.wait_open(soon(LIMIT_S))
        channel.send(
            request,
            lambda response, error: told.append(error),
            timeout_s=60,
            expects_response=False,
        )
        too_early = not run.stays(lambda: not told, 0.2)
        go.set()  # also where it fails: the peer ends
        run.until(lambda: told == [None])
        assert not too_early
        channel.close()
    assert handler.stop(soon(LIMIT_S))


def test_a_batch_that_is_read_moves_the_position_to_its_own_end(
    client: KafkaClient,
    cluster: MockCluster,
    run: Runner,
) -> None:
    cluster.append("t", 0, values(5) + marker(1, 5) + values(4, base_offset=6))
    consumer = client.get_consumer("t")
    assert len(read(consumer, 1)) == 1
    run.until(lambda: consumer.stats()["buffered"] == 8)
    assert len(read(consumer, 4)) == 4
    assert consumer.position(T0) == 5, "what stands behind it waits"
    assert [message.offset for message in read(consumer, 4)] == [6, 7, 8, 9]
    consumer.stop()


@pytest.mark.parametrize("most", [4, 100])
def test_records_behind_a_damaged_one_are_not_passed(
    client: KafkaClient,
    cluster: MockCluster,
    most: int,
) -> None:
    """The checksum is right: who gets less than was asked for is not at the end of the batch."""
    records = [record(0, b"a"), record(1, b"b"), record(2, b"c"), b"\x01" * 20, record(4, b"e")]
    cluster.append("t", 0, batch(records) + values(2, base_offset=5))
    consumer = client.get_consumer("t", fetch_error_backoff_ms=10)
    got = consumer.consume_batch(most, LIMIT_S * 1000)
    assert [message.offset for message in got] == [0, 1, 2]
    error = error_of(consumer.consume_batch, most, LIMIT_S * 1000)
    assert isinstance(error, CorruptRecordError)
    assert (error.offset, consumer.position(T0)) == (3, 3)
    consumer.stop()
