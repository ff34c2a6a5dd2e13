"""A client that only frames and unframes: one request, one answer, on a plain blocking socket. And batches made by hand."""

from __future__ import annotations

import socket
import struct
import zlib
from typing import Any

from gkafka import records
from gkafka.testing import MockCluster
from gkafka.wire.apis import Message, decode_response, encode_request
from gkafka.wire.fetch import FetchPartition, FetchRequest, FetchTopic
from gkafka.wire.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from gkafka.wire.produce import PartitionProduceData, ProduceRequest, TopicProduceData


class PlainClient:
    def __init__(self, cluster: MockCluster, broker: int = 1) -> None:
        self.sock = socket.create_connection(cluster.brokers[broker], timeout=60)
        self._id = 0

    def __enter__(self) -> PlainClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def send(self, request: Message, version: int | None = None) -> None:
        self._id += 1
        version = request.API.stable.high if version is None else version
        self.sock.sendall(b"".join(encode_request(request, version, self._id, "plain")))

    def receive(self, request: Message, version: int | None = None) -> Any:
        version = request.API.stable.high if version is None else version
        (size,) = struct.unpack(">i", self.exactly(4))
        cid, answer = decode_response(request.API, version, memoryview(self.exactly(size)))
        self.answered = cid
        return answer

    def ask(self, request: Message, version: int | None = None) -> Any:
        self.send(request, version)
        return self.receive(request, version)

    def exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            chunk = self.sock.recv(size - len(data))
            if not chunk:
                raise EOFError
            data += chunk
        return data

    def closed(self) -> bool:
        """The broker closes the connection without another byte."""
        try:
            return self.sock.recv(1) == b""
        except ConnectionResetError:
            return True

    # -- short forms; the answer's only partition
    def produce(self, data: bytes | None, *, topic: str = "t", partition: int = 0, version: int = 9, acks: int = -1) -> Any:
        request = ProduceRequest(
            acks=acks,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=data)])],
        )
        if acks == 0:
            self.send(request, version)
            return None
        return self.ask(request, version).responses[0].partition_responses[0]

    def fetch(
        self,
        offset: int,
        *,
        topic: str = "t",
        partition: int = 0,
        version: int = 12,
        partition_max: int = 1 << 20,
        epoch: int = -1,
        **options: Any,
    ) -> Any:
        return (
            self.ask(fetch_request(offset, topic=topic, partition=partition, partition_max=partition_max, epoch=epoch, **options), version)
            .responses[0]
            .partitions[0]
        )

    def offset(self, timestamp: int, *, topic: str = "t", partition: int = 0, version: int = 8, **options: Any) -> Any:
        asked = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[asked])], **options)
        return self.ask(request, version).topics[0].partitions[0]


def fetch_request(
    offset: int,
    *,
    topic: str = "t",
    partition: int = 0,
    partition_max: int = 1 << 20,
    epoch: int = -1,
    max_wait_ms: int = 0,
    **options: Any,
) -> FetchRequest:
    asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=partition_max, current_leader_epoch=epoch)
    return FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=options.pop("min_bytes", 1), topics=[FetchTopic(topic=topic, partitions=[asked])], **options
    )


def varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def batch(
    *values: bytes, pid: int = -1, epoch: int = -1, sequence: int = -1, timestamp: int = 1_000, attributes: int = 0, base: int = 0
) -> bytes:
    """A v2 batch without keys; record i has timestamp + i."""
    body = b""
    for index, value in enumerate(values):
        record = b"\0" + varint(index) + varint(index) + varint(-1) + varint(len(value)) + value + varint(0)
        body += varint(len(record)) + record
    count = len(values)
    tail = struct.pack(">hiqqqhii", attributes, count - 1, timestamp, timestamp + count - 1, pid, epoch, sequence, count) + body
    return struct.pack(">qiibI", base, 9 + len(tail), -1, 2, records.crc32c(tail)) + tail


def message(value: bytes, *, magic: int = 0, offset: int = 0, attributes: int = 0, timestamp: int = 1_000) -> bytes:
    """One message of a message set, format 0 or 1, without a key."""
    body = struct.pack(">bb", magic, attributes)
    if magic:
        body += struct.pack(">q", timestamp)
    body += struct.pack(">ii", -1, len(value)) + value
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body
