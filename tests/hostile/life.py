"""What a client does in its life, as steps that each meet other requests; and the ways in which an answer can be hostile."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

from gkafka import KafkaClient
from gkafka.exceptions import KafkaException
from gkafka.testing import MockCluster

QUICK: dict[str, Any] = {
    "reconnect_backoff_ms": 1,
    "reconnect_backoff_max_ms": 5,
    "connect_timeout_ms": 3000,
    "socket_timeout_ms": 3000,
    "offsets_channel_socket_timeout_ms": 3000,
    "api_timeout_ms": 30_000,
}

# -- hostile answers ---------------------------------------------------------------------------------------------------
Damage = Callable[[bytes], bytes]


def _framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


FRAMES: dict[str, Damage] = {
    "2 GiB claimed": lambda frame: struct.pack(">i", 2**31 - 1) + frame[4:] + bytes(100_000),
    "a negative length": lambda frame: struct.pack(">i", -5) + frame[4:],
    "a body of zeros": lambda frame: _framed(bytes(8)),
    "another correlation id": lambda frame: frame[:4] + struct.pack(">I", struct.unpack(">I", frame[4:8])[0] ^ 0x40) + frame[8:],
    "HTTP": lambda frame: b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
    "TLS": lambda frame: b"\x15\x03\x03\x00\x02\x02\x50",
    "the header and nothing else": lambda frame: _framed(frame[4:8]),
    "all but its last byte": lambda frame: _framed(frame[4:-1]),
    "one byte too many": lambda frame: _framed(frame[4:] + b"\0"),
    "counts without end": lambda frame: _framed(frame[4:8] + b"\xff\xff\xff\xff\x07" * 40),
    "text that is none": lambda frame: _framed(frame[4:8] + b"\x00\x7f" + b"\xff\xfe" * 400),
}
"""What comes in place of a right frame (int32 size included). Each is a ProtocolError, whatever was asked."""


# -- a client's life ---------------------------------------------------------------------------------------------------
TOPIC, GROUP, NEW_GROUP, TRANSACTIONS = "life", "life-group", "life-new-group", "life-transactions"
REQUESTS = {
    "ApiVersions",
    "Metadata",
    "InitProducerId",
    "Produce",
    "ListOffsets",
    "Fetch",
    "FindCoordinator",
    "JoinGroup",
    "SyncGroup",
    "Heartbeat",
    "OffsetFetch",
    "OffsetCommit",
    "LeaveGroup",
    "ConsumerGroupHeartbeat",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "TxnOffsetCommit",
    "EndTxn",
    "CreateTopics",
    "DeleteTopics",
    "ListGroups",
    "DescribeGroups",
}
"""What the steps of a life ask."""


def life(client: KafkaClient, *, session_timeout_ms: int = 600) -> Iterator[Callable[[], object]]:
    """The steps. Each one can be repeated until it works, and works on any good cluster with TOPIC.

    session_timeout_ms: short where members vanish, which the next ones wait for. A busy machine may lose such a session: the step fails.
    """
    yield lambda: client.connect(60)
    yield lambda: client.update_cluster()
    yield lambda: produce(client)
    yield lambda: client.list_offsets({(TOPIC, 0): -1}, timeout=30)
    yield lambda: consume(client, GROUP, heartbeat_interval_ms=30, session_timeout_ms=session_timeout_ms)
    yield lambda: consume(client, NEW_GROUP, group_protocol="consumer")
    yield lambda: transact(client)
    yield lambda: create_and_delete(client)
    yield lambda: client.cluster.get_managed_group_descriptions()


def produce(client: KafkaClient, value: bytes = b"value", *, delivery_timeout_ms: int = 30_000) -> None:
    with client.get_producer(delivery_timeout_ms=delivery_timeout_ms, retry_backoff_ms=5, retry_backoff_max_ms=20) as producer:
        producer.produce(TOPIC, value, partition=0).result(60)


def consume(client: KafkaClient, group: str, *, tries: int = 600, delivery_timeout_ms: int = 30_000, **options: Any) -> None:
    """One message; then it commits, waits for a heartbeat or two, and leaves. tries: of a tenth of a second."""
    produce(client, delivery_timeout_ms=delivery_timeout_ms)
    with client.get_consumer([TOPIC], group=group, auto_commit=False, fetch_error_backoff_ms=5, **options) as consumer:
        message = None
        for _ in range(tries):
            message = message or consumer.consume(timeout_ms=100)
            if message is not None:
                break
        assert message is not None, f"{group}: no message came; {consumer.explain()}"
        consumer.commit()
        consumer.consume_batch(1000, timeout_ms=100)


def transact(client: KafkaClient, *, delivery_timeout_ms: int = 30_000) -> None:
    options: dict[str, Any] = {"delivery_timeout_ms": delivery_timeout_ms, "retry_backoff_ms": 5, "retry_backoff_max_ms": 20}
    with client.get_producer(transactional_id=TRANSACTIONS, **options) as producer, producer.transaction():
        producer.produce(TOPIC, b"value", partition=0)
        producer.send_offsets({(TOPIC, 0): 1}, "life-of-transactions")


def create_and_delete(client: KafkaClient, *, timeout: float = 30) -> None:
    for call in (client.create_topic, client.delete_topic):
        try:
            call("life-new-topic", timeout=timeout)
        except KafkaException as error:  # of the try before this one
            if type(error).__name__ not in ("TopicAlreadyExists", "UnknownTopicOrPartition", "UnknownTopicError"):
                raise


def cluster_for_life() -> MockCluster:
    return MockCluster(topics={TOPIC: 1}, transaction_version=0, consumer_heartbeat_interval_ms=30, consumer_session_timeout_ms=600)
