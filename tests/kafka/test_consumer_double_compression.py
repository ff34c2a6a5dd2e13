"""Messages that kafka-python's producer compressed twice, up to 1.2.4 (behaviour 265). Their bytes are put together by hand."""

from __future__ import annotations

import gzip
import logging
import struct

import pytest

from gkafka.kafka import KafkaConsumer
from gkafka.kafka.errors import CorruptRecordError
from gkafka.testing import MockCluster
from tests.kafka.conftest import Make
from tests.kafka.consuming import FIRST, QUICK, consume, until
from tests.records.handmade import LOG_APPEND, message, wrapper


def blob(magic: int) -> bytes:
    """What the application gave that producer: a whole message set, compressed."""
    return gzip.compress(b"".join(message(n, b"inner %d" % n, magic=magic) for n in range(3)), mtime=0)


def double(offset: int, magic: int, **more: int) -> bytes:
    """A compressed message at this offset that holds one, which holds three."""
    inner_offset = 0 if magic else offset
    return wrapper([message(inner_offset, blob(magic), b"key", magic=magic, attributes=1)], offset, magic=magic, **more)


def good(offset: int, magic: int) -> bytes:
    return wrapper([message(0 if magic else offset, b"good %d" % offset, magic=magic)], offset, magic=magic)


@pytest.mark.parametrize("magic", [0, 1])
def test_double_compressed_messages_are_left_as_one_blob(consumer: Make, cluster: MockCluster, magic: int) -> None:
    cluster.append("t", 0, good(0, magic) + double(1, magic) + good(2, magic))
    assert KafkaConsumer.DEFAULT_CONFIG["skip_double_compressed_messages"] is False
    reading = consumer(cluster, "t", **QUICK)
    read = consume(reading, 3)
    assert [(r.offset, r.key, r.value) for r in read] == [(0, None, b"good 0"), (1, b"key", blob(magic)), (2, None, b"good 2")]
    assert [r.timestamp for r in read] == ([1000] * 3 if magic else [-1] * 3)
    assert reading.position(FIRST) == 3


@pytest.mark.parametrize("magic", [0, 1])
def test_double_compressed_messages_are_skipped_with_a_warning(
    consumer: Make, cluster: MockCluster, magic: int, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.append("t", 0, good(0, magic) + double(1, magic) + good(2, magic) + double(3, magic))
    reading = consumer(cluster, "t", skip_double_compressed_messages=True, **QUICK)
    with caplog.at_level(logging.WARNING, "gkafka"):
        assert [(r.offset, r.value) for r in consume(reading, 2)] == [(0, b"good 0"), (2, b"good 2")]
        until("threading", lambda: reading.poll(50) == {} and reading.position(FIRST) == 4)
    told = [r.getMessage() for r in caplog.records if "compressed twice" in r.getMessage()]
    assert told == [f"t[0] offset {n}: the message is compressed twice, it is skipped" for n in (1, 3)]


def test_plain_messages_beside_a_double_compressed_one_keep_their_offsets(consumer: Make, cluster: MockCluster) -> None:
    inner = [message(0, b"a"), message(1, blob(1), attributes=1), message(2, b"c")]
    cluster.append("t", 0, wrapper(inner, 7))
    reading = consumer(cluster, **QUICK)
    reading.assign([FIRST])
    reading.seek(FIRST, 6)
    assert [(r.offset, r.value) for r in consume(reading, 2)] == [(6, blob(1)), (7, b"c")], "it was asked for the second one"


def test_the_brokers_time_is_that_of_what_was_left_compressed(consumer: Make, cluster: MockCluster) -> None:
    cluster.append("t", 0, double(0, 1, timestamp=5555, attributes=LOG_APPEND))
    (read,) = consume(consumer(cluster, "t", **QUICK), 1)
    assert (read.timestamp, read.timestamp_type, read.value) == (5555, 1, blob(1))


@pytest.mark.parametrize("skip", [False, True])
def test_a_damaged_message_is_told_and_not_skipped(consumer: Make, cluster: MockCluster, skip: bool) -> None:
    bad = bytearray(double(0, 1))
    bad[-1] ^= 1
    cluster.append("t", 0, bytes(bad))
    reading = consumer(cluster, "t", skip_double_compressed_messages=skip, **QUICK)
    with pytest.raises(CorruptRecordError, match=r"t\[0\] offset 0"):
        until("threading", lambda: reading.poll(50))
    inside = bytearray(message(0, blob(1), attributes=1))
    inside[12:16] = struct.pack(">I", 1)
    cluster.delete_topic("t")
    cluster.create_topic("t")
    cluster.append("t", 0, wrapper([bytes(inside)], 0))
    if not skip:
        with pytest.raises(CorruptRecordError, match=r"t\[0\] offset 0"):
            until("threading", lambda: consumer(cluster, "t", **QUICK).poll(100))
