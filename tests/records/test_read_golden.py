"""Batches that other clients wrote."""

from __future__ import annotations

import itertools
from types import ModuleType
from typing import Any

import pytest

from gkafka.common import CompressionType, TimestampType
from tests.records.peers import AioBatch, AioSet, KafkaPythonBatch, KafkaPythonSet
from tests.records.reading import columns, read, records

NOW = 1_700_000_000_000
ROWS = [
    (0, NOW, b"key", b"value", [("a", b"1"), ("ü", None), ("", b"")]),
    (1, NOW + 5, None, b"x" * 300, []),
    (2, NOW - 3, b"", b"", []),
    (3, NOW + 100_000, b"k" * 200, None, [("a", b"2")] * 70),
    *((i, NOW + i, b"k%d" % i, b"v%d" % i * 20, []) for i in range(4, 300)),
]


def batch(builder: Any, codec: int) -> bytes:
    one = builder(
        magic=2, compression_type=codec, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=-1, batch_size=1 << 30
    )
    for offset, timestamp, key, value, headers in ROWS:
        assert one.append(offset, timestamp, key, value, headers)
    return bytes(one.build())


def message_set(builder: Any, magic: int, codec: int) -> bytes:
    one = builder(magic, codec, 1 << 30)
    for offset, timestamp, key, value, _ in ROWS:
        assert one.append(offset, timestamp, key, value)
    return bytes(one.build())


@pytest.mark.parametrize("codec", list(CompressionType))
@pytest.mark.parametrize("builder", [KafkaPythonBatch, AioBatch], ids=["kafka-python", "aiokafka"])
def test_batches_of_other_clients_are_read(impl: ModuleType, builder: Any, codec: CompressionType) -> None:
    messages = read(impl, batch(builder, codec), step=7)
    assert [(m.offset, m.timestamp, m.key, m.value, m.headers) for m in messages] == ROWS
    assert {m.compression_type for m in messages} == {codec}
    assert {m.timestamp_type for m in messages} == {TimestampType.CREATE_TIME}
    assert {(m.topic, m.partition_id, m.partition) for m in messages} == {("t", 3, "the partition")}


# Neither of them writes lz4 in format 0: test_read_batches makes one.
@pytest.mark.parametrize(("magic", "codec"), [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (1, 3)])
@pytest.mark.parametrize("builder", [KafkaPythonSet, AioSet], ids=["kafka-python", "aiokafka"])
def test_message_sets_of_other_clients_are_read(impl: ModuleType, builder: Any, magic: int, codec: int) -> None:
    if builder is KafkaPythonSet and codec and magic == 1:
        # kafka-python leaves the wrapper's offset at 0 and lets the broker set it: 0 is the offset "from certain librdkafkas" here.
        assert impl.scan(message_set(builder, magic, codec))[0].last_offset == 0
    messages = read(impl, message_set(builder, magic, codec), step=7)
    assert [(m.offset, m.key, m.value, m.headers) for m in messages] == [(o, k, v, []) for o, _, k, v, _ in ROWS]
    assert [m.timestamp for m in messages] == [row[1] if magic else -1 for row in ROWS]
    assert {m.timestamp_type for m in messages} == {TimestampType.CREATE_TIME if magic else TimestampType.NONE}
    assert {m.compression_type for m in messages} == {codec}


@pytest.mark.parametrize("codec", list(CompressionType))
def test_columns_say_the_same_as_messages(impl: ModuleType, codec: CompressionType) -> None:
    for headers in (False, True):
        got = columns(impl, batch(KafkaPythonBatch, codec), start_offset=0, headers=headers)
        assert list(zip(got["offsets"], got["timestamps"], got["keys"], got["values"], strict=True)) == [row[:4] for row in ROWS]
        assert got["types"] == [0] * len(ROWS)
        assert got["complete"] is True
        assert got["next_offset"] == 300
    starts, names, data = got["headers"]
    pairs = [(name.decode(), value) for name, value in zip(names, data, strict=True)]
    assert [pairs[a:b] for a, b in itertools.pairwise(starts)] == [row[4] for row in ROWS]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.GZIP])
def test_columns_of_message_sets(impl: ModuleType, magic: int, codec: CompressionType) -> None:
    got = columns(impl, message_set(AioSet, magic, codec), start_offset=0, headers=True)
    assert list(zip(got["offsets"], got["keys"], got["values"], strict=True)) == [(o, k, v) for o, _, k, v, _ in ROWS]
    assert got["types"] == [0 if magic else -1] * len(ROWS)
    assert got["headers"] == ([0] * (len(ROWS) + 1), [], [])


def test_a_header_says_what_the_batch_says(impl: ModuleType) -> None:
    one = KafkaPythonBatch(
        magic=2, compression_type=0, is_transactional=1, producer_id=2**40, producer_epoch=7, base_sequence=9, batch_size=1 << 20
    )
    for offset, timestamp, key, value, headers in ROWS:
        one.append(offset, timestamp, key, value, headers)
    data = bytes(one.build())
    header = impl.scan(data)[0]
    assert (header.start, header.end, header.magic, header.codec, header.count) == (0, len(data), 2, 0, 300)
    assert (header.base_offset, header.last_offset, header.next_offset) == (0, 299, 300)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (2**40, 7, 9)
    assert (header.is_transactional, header.is_control) == (True, False)
    assert (header.base_timestamp, header.max_timestamp) == (NOW, NOW + 100_000)


def test_records_come_as_they_are_asked_for(impl: ModuleType) -> None:
    taker = records(impl, batch(KafkaPythonBatch, CompressionType.NONE))
    assert (taker.remaining, taker.next_offset) == (300, 0)
    assert [m.offset for m in taker.take(2)] == [0, 1]
    assert (taker.remaining, taker.next_offset) == (298, 2)
    assert taker.take(0) == []
    assert [m.offset for m in taker.take(10_000)] == list(range(2, 300))
    assert (taker.remaining, taker.next_offset) == (0, 300)
    assert taker.take(5) == []
