"""OwnedPartition: a partition that is fetched by hand, on a broker inside the test's process."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.common import OffsetType
from gkafka.exceptions import ConfigurationError
from gkafka.handlers import GEventHandler, Handler, ThreadingHandler
from gkafka.protocol import Message
from gkafka.simpleconsumer import OwnedPartition
from gkafka.testing import MockCluster
from tests.kit.clock import soon


@pytest.fixture(params=["threading", "gevent"])
def handler(request: pytest.FixtureRequest) -> Iterator[Handler]:
    made: Handler = ThreadingHandler() if request.param == "threading" else GEventHandler()
    yield made
    made.stop(soon(60))


def owned(handler: Handler | None, **options: Any) -> OwnedPartition:
    return OwnedPartition(SimpleNamespace(id=3, topic=SimpleNamespace(name="t")), handler, **options)  # type: ignore[arg-type]


def message(offset: int, partition: int = 3) -> Message:
    return Message(b"v%d" % offset, offset=offset, partition_id=partition)


def test_a_partition_is_fetched_and_committed_by_hand(handler: Handler) -> None:
    with MockCluster(topics={"t": 1}) as cluster, KafkaClient(cluster.bootstrap, handler=handler) as client:
        topic = client.topics["t"]
        with topic.get_sync_producer() as producer:
            for n in range(6):
                producer.produce(b"v%d" % n)
        (broker,) = client.brokers.values()
        own = OwnedPartition(topic.partitions[0], handler, consumer_id=b"me")
        limits = broker.request_offset_limits([own.build_offset_request(OffsetType.LATEST)])
        assert limits.topics["t"][0].offset == [6]
        own.set_offset(1)
        own.enqueue_messages(broker.fetch_messages([own.build_fetch_request(1 << 20)], timeout=1000).topics["t"][0].messages)
        assert own.message_count == 4
        assert [own.consume().value for _ in range(3)] == [b"v2", b"v3", b"v4"]
        broker.commit_consumer_group_offsets(b"g", -1, b"", [own.build_offset_commit_request()])
        answer = broker.fetch_consumer_group_offsets(b"g", [own.build_offset_fetch_request()])
        assert answer.topics["t"][0] == (5, b'{"consumer_id": "me"}', 0)
        assert own.consume().partition is topic.partitions[0]
        assert own.consume() is None


def test_messages_before_the_next_offset_are_left_out_and_gaps_are_taken(handler: Handler) -> None:
    own = owned(handler)
    own.enqueue_messages([message(0), message(2), message(2), message(1), message(7)])
    assert [own.consume().offset for _ in range(3)] == [0, 2, 7]
    assert (own.last_offset_consumed, own.next_offset, own.message_count) == (7, 8, 0)
    with pytest.raises(ConfigurationError, match="partition 4"):
        own.enqueue_messages([message(9, partition=4)])


def test_a_semaphore_counts_what_is_there(handler: Handler) -> None:
    semaphore = handler.Semaphore(0)
    own = owned(handler, semaphore=semaphore)
    own.enqueue_messages([message(0), message(1), message(2)])
    assert semaphore.acquire(blocking=False)
    assert own.consume().offset == 0
    own.flush()
    assert (own.message_count, own.consume(), own.next_offset, own.last_offset_consumed) == (0, None, 3, 0)
    assert not semaphore.acquire(blocking=False)


def test_requests_say_where_it_stands() -> None:
    own = owned(None)
    assert own.build_fetch_request(100) == ("t", 3, 0, 100)
    assert own.build_offset_commit_request()[:3] == ("t", 3, 0)
    own.set_offset(41)
    assert own.build_fetch_request(100) == ("t", 3, 42, 100)
    assert own.build_offset_commit_request()[:3] == ("t", 3, 42)
    assert own.build_offset_commit_request(7)[:3] == ("t", 3, 7)
    assert own.build_offset_fetch_request() == ("t", 3)
    at = datetime(2023, 11, 14, 22, 13, 20, tzinfo=timezone.utc)
    for before, wanted in ((at, 1_700_000_000_000), (at.replace(tzinfo=None), 1_700_000_000_000), (-1, -1), (OffsetType.EARLIEST, -2)):
        assert own.build_offset_request(before) == ("t", 3, wanted, 1)
    for wrong in (5, "now", None):
        with pytest.raises(ConfigurationError, match="offsets_before="):
            own.build_offset_request(wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError):
        own.set_offset(-2)
    assert "next_offset=42" in repr(own)


def test_what_it_cannot_be_made_of_or_given_is_refused(handler: Handler) -> None:
    with pytest.raises(ConfigurationError, match="partition: 5 has no topic, id"):
        OwnedPartition(5, handler)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="handler: 'x' has no RLock, Queue"):
        owned("x")  # type: ignore[arg-type]
    own = owned(handler)
    for offset in ("x", None, -5, 1.5):
        with pytest.raises(ConfigurationError, match="last_offset_consumed="):
            own.set_offset(offset)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="messages: 'x' has no offset, partition_id"):
        own.enqueue_messages(["x"])
    assert (own.next_offset, own.message_count) == (0, 0)
