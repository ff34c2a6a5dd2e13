"""Messages and message sets, behaviours 166 to 171, against pykafka's bytes and kafka-python's message sets."""

from __future__ import annotations

import gzip
import json
import struct
from datetime import datetime, timedelta, timezone
from typing import Any

import cramjam
import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gkafka.protocol
from gkafka import common
from gkafka.common import CompressionType, TimestampType
from gkafka.exceptions import ConfigurationError, CorruptRecordError, NoMessagesConsumedError, ProtocolError, UnsupportedCodec
from gkafka.protocol import FetchResponse, Message, MessageSet
from gkafka.records import crc32c
from gkafka.utils import Serializable
from tests.kit.clock import epoch_ms
from tests.protocol import cases
from tests.protocol.test_requests import GOLDEN
from tests.records.peers import KafkaPythonBatch, KafkaPythonSet

NOW = 1_700_000_000_000
MESSAGES = [
    pytest.param(version, kind, name, id=f"{version} {name}")
    for version, kind in (("2.0.4", "messages"), ("2.8.0", "stamped"))
    for name in json.loads(GOLDEN.read_text())[version][kind]
]


def packed(thing: Message | MessageSet) -> bytes:
    buffer = bytearray(len(thing))
    thing.pack_into(buffer, 0)
    return bytes(buffer)


def unpacked(data: bytes) -> list[Message]:
    """As a fetched partition's messages."""
    response = FetchResponse(struct.pack(">ih1siihqi", 1, 1, b"t", 1, 4, 0, 99, len(data)) + data)
    return response.topics[b"t"][4].messages


@pytest.mark.parametrize(("version", "kind", "name"), MESSAGES)
def test_behaviours_166_168_a_message_is_written_as_pykafka_writes_it_and_read_again(version: str, kind: str, name: str) -> None:
    theirs = bytes.fromhex(json.loads(GOLDEN.read_text())[version][kind][name])
    message = getattr(cases, kind)(gkafka.protocol)[name]
    assert packed(message) == theirs
    assert len(message) == len(theirs)
    buffer = bytearray(b"\xaa" * (len(theirs) + 5))
    message.pack_into(buffer, 3)
    assert buffer == b"\xaa" * 3 + theirs + b"\xaa" * 2
    read = Message.decode(theirs, 7, 3)
    assert (read.value, read.partition_key, read.compression_type) == (message.value, message.partition_key, message.compression_type)
    assert (read.offset, read.partition_id, read.timestamp, read.protocol_version) == (7, 3, message.timestamp, message.protocol_version)


def test_behaviour_168_without_room_it_is_an_error_as_in_struct() -> None:
    for thing in (Message(b"v"), MessageSet(messages=[Message(b"v")])):
        with pytest.raises(struct.error):
            thing.pack_into(bytearray(len(thing)), 1)


def test_behaviours_85_166_167_what_a_message_has() -> None:
    message = Message(b"v", b"k")
    assert isinstance(message, common.Message)
    assert isinstance(message, Serializable)
    assert (message.key, message.payload, message.response_code, message.topic) == (b"k", b"v", 0, "")
    assert (message.compression_type, message.offset, message.partition_id, message.partition) == (0, -1, -1, None)
    assert (message.produce_attempt, message.delivery_report_q, message.timestamp, message.timestamp_dt) == (0, None, -1, None)
    message.partition_key = b"other"
    assert message.key == b"other"
    assert "b'v'" not in repr(message)


def test_timestamps_are_ms_or_datetimes() -> None:
    at = datetime(2023, 11, 14, 22, 13, 20, 5000)  # noqa: DTZ001  # naive ones are taken as UTC
    for given_ in (
        at,
        at.replace(tzinfo=timezone.utc),
        at.replace(tzinfo=timezone.utc).astimezone(timezone(timedelta(hours=5))),
        NOW + 5,
        NOW + 5.4,
    ):
        message = Message(b"v", protocol_version=1, timestamp=given_)
        assert (message.timestamp, message.timestamp_dt, message.timestamp_type) == (NOW + 5, at, TimestampType.CREATE_TIME)
    assert abs(Message(b"v", protocol_version=1).timestamp - epoch_ms()) < 60_000
    for wrong in ("now", True, b""):
        with pytest.raises(ConfigurationError, match="timestamp="):
            Message(b"v", timestamp=wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="protocol_version=2"):
        Message(b"v", protocol_version=2)


# -- sets ----------------------------------------------------------------------------------------------------------------------
ROWS: list[tuple[bytes | None, bytes | None]] = [(b"key", b"value"), (None, b"x" * 300), (b"", b""), (b"k", None), (None, None)]


def kafka_pythons(written_as: int, codec: int, rows: list[tuple[bytes | None, bytes | None]]) -> bytes:
    builder = KafkaPythonSet(written_as, codec, 1 << 30)
    for offset, (key, value) in enumerate(rows):
        assert builder.append(offset, NOW + offset, key, value)
    return bytes(builder.build())


def messages(written_as: int) -> list[Message]:
    return [
        Message(value, key, protocol_version=written_as, timestamp=NOW + n if written_as else None) for n, (key, value) in enumerate(ROWS)
    ]


@pytest.mark.parametrize("written_as", [0, 1])
def test_behaviour_169_a_set_is_its_messages_behind_offset_and_size(written_as: int) -> None:
    made = MessageSet(messages=messages(written_as))
    assert packed(made) == b"".join(b"\xff" * 8 + len(m).to_bytes(4, "big") + packed(m) for m in made.messages), "brokers set the offset"
    assert [m.offset for m in MessageSet.decode(packed(made)).messages] == [-1] * len(ROWS)
    assert len(made) == len(packed(made)) == sum(12 + len(m) for m in made.messages)
    assert (len(MessageSet()), packed(MessageSet())) == (0, b"")
    buffer = bytearray(len(made) + 4)
    made.pack_into(buffer, 4)
    assert buffer == bytes(4) + packed(made)


@pytest.mark.parametrize("written_as", [0, 1])
@pytest.mark.parametrize("codec", [1, 2, 3])
def test_behaviour_170_a_compressed_set_is_one_message_with_the_others_as_its_value(written_as: int, codec: int) -> None:
    made = MessageSet(codec, messages(written_as))
    (wrapper,) = MessageSet.decode(packed(made)).messages
    assert wrapper.compression_type == codec
    assert packed(wrapper) == packed(made._get_compressed()) == packed(made)[12:]
    plain = kafka_pythons(written_as, 0, ROWS)
    value = wrapper.value or b""
    if codec == CompressionType.GZIP:
        assert gzip.decompress(value) == plain
    elif codec == CompressionType.SNAPPY:
        assert value[:16] == b"\x82SNAPPY\0\0\0\0\1\0\0\0\1"
        assert bytes(cramjam.snappy.decompress_raw(value[20:])) == plain
    elif written_as == 1:
        assert lz4.frame.decompress(value) == plain
    else:
        with pytest.raises(RuntimeError, match=r"header|checksum"):  # KAFKA-3160: format 0 has the wrong checksum
            lz4.frame.decompress(value)


# kafka-python writes lz4 in format 0 with a further package alone.
@pytest.mark.parametrize(("written_as", "codec"), [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (1, 3)])
def test_behaviours_161_171_another_clients_sets_are_read(written_as: int, codec: int) -> None:
    data = kafka_pythons(written_as, codec, ROWS)
    assert len(MessageSet.decode(data, partition_id=9).messages) == (1 if codec else len(ROWS))
    assert {m.partition_id for m in MessageSet.decode(data, partition_id=9).messages} == {9}
    for read in (unpacked(data), FetchResponse._unpack_message_set(FetchResponse(bytes(4)), data, 4)):
        assert [(m.offset, m.partition_key, m.value) for m in read] == [(n, k, v) for n, (k, v) in enumerate(ROWS)]
        assert {(m.compression_type, m.partition_id) for m in read} == {(0, 4)}
        assert [m.timestamp for m in read] == [NOW + n if written_as else -1 for n in range(len(ROWS))]


@pytest.mark.parametrize("codec", [0, 1, 2, 3])
def test_behaviours_161_170_171_what_a_set_writes_it_reads(codec: int) -> None:
    for written_as in (0, 1):
        written = packed(MessageSet(codec, messages(written_as)))
        read = unpacked(written) if codec else MessageSet.decode(written).messages
        assert [(m.partition_key, m.value) for m in read] == ROWS
        assert [m.offset for m in read] == (list(range(len(ROWS))) if codec else [-1] * len(ROWS))


def test_behaviour_161_batches_of_format_2_are_messages_too() -> None:
    batch = KafkaPythonBatch(
        magic=2, compression_type=1, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=-1, batch_size=1 << 20
    )
    for offset, (key, value) in enumerate(ROWS):
        assert batch.append(offset, NOW + offset, key, value, [("h", b"1")])
    read = unpacked(bytes(batch.build()))
    assert all(type(m) is Message for m in read)
    assert [(m.partition_key, m.value, m.headers, m.timestamp, m.topic) for m in read] == [
        (k, v, [("h", b"1")], NOW + n, "t") for n, (k, v) in enumerate(ROWS)
    ]


def test_control_records_are_no_messages() -> None:
    batches = []
    for offset, is_control in ((0, False), (1, True), (2, False)):
        batch = KafkaPythonBatch(
            magic=2, compression_type=0, is_transactional=1, producer_id=1, producer_epoch=0, base_sequence=-1, batch_size=1 << 20
        )
        assert batch.append(offset, NOW, b"\0\0\0\1", b"v%d" % offset, [])
        data = bytearray(batch.build())
        data[22] |= 0x20 * is_control
        data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
        batches.append(bytes(data))
    assert [(m.offset, m.value) for m in unpacked(b"".join(batches))] == [(0, b"v0"), (2, b"v2")]


def test_what_is_added_to_a_set_counts() -> None:
    made = MessageSet(CompressionType.GZIP, [Message(b"one")])
    before = len(made)
    made.messages.append(Message(b"two, which makes it longer"))
    assert len(made) > before
    assert [m.value for m in unpacked(packed(made))] == [b"one", b"two, which makes it longer"]


def test_codecs_that_message_sets_do_not_have() -> None:
    for codec, why in ((4, "KIP-110"), (9, "must be one of")):
        with pytest.raises(UnsupportedCodec, match=why):
            MessageSet(codec)
    with pytest.raises(ConfigurationError, match="nothing to compress with"):
        MessageSet()._get_compressed()


# -- bytes that are cut or damaged ---------------------------------------------------------------------------------------------
def test_behaviours_97_171_a_set_that_was_cut_loses_its_tail_and_says_so_when_nothing_is_left() -> None:
    data = kafka_pythons(0, 0, ROWS[:2])
    first = 12 + int.from_bytes(data[8:12], "big")
    for end in range(len(data) + 1):
        cut = data[:end]
        if 12 <= end < first:
            with pytest.raises(NoMessagesConsumedError, match="ask for more bytes"):
                MessageSet.decode(cut)
            with pytest.raises(NoMessagesConsumedError, match="max_bytes"):
                unpacked(cut)
            continue
        whole = (end >= first) + (end == len(data))
        assert len(MessageSet.decode(cut).messages) == len(unpacked(cut)) == whole


def test_what_a_broker_fills_up_with_when_it_converts_is_no_damage() -> None:
    """LazyDownConversionRecordsSend: offset -1 and a size beyond the end, where the older format took fewer bytes than were promised."""
    data = kafka_pythons(0, 1, ROWS)
    for behind in (1, 100):
        filler = struct.pack(">qi", -1, max(behind + 1, 61)) + bytes(behind)
        assert [(m.partition_key, m.value) for m in unpacked(data + filler)] == ROWS
        with pytest.raises(NoMessagesConsumedError):
            unpacked(filler)
    with pytest.raises(CorruptRecordError):
        unpacked(data + struct.pack(">qi", -1, 61) + bytes(100))


def test_behaviour_93_a_message_that_does_not_match_its_checksum_is_refused() -> None:
    good = packed(Message(b"value", b"key"))
    for at in range(len(good)):
        for bit in (0x01, 0x80):
            bad = bytearray(good)
            bad[at] ^= bit
            with pytest.raises(ProtocolError):
                Message.decode(bad)
    with pytest.raises(ProtocolError, match="1 bytes too many"):
        Message.decode(good + b"\0")
    entry = struct.pack(">qi", 0, -1)
    with pytest.raises(ProtocolError, match="claims -1 bytes"):
        MessageSet.decode(entry + good)
    with pytest.raises(CorruptRecordError):
        unpacked(entry + good)


@given(st.binary(max_size=200))
def test_any_bytes_are_messages_or_a_protocol_error(data: bytes) -> None:
    for read in (Message.decode, MessageSet.decode, unpacked):
        try:
            read(data)  # type: ignore[operator]
        except (ProtocolError, NoMessagesConsumedError):
            continue


@given(st.integers(0, 3), st.integers(0, 1), st.data())
def test_damage_anywhere_in_a_set_is_never_a_wrong_message(codec: int, written_as: int, data: Any) -> None:
    good = kafka_pythons(1 if codec == CompressionType.LZ4 else written_as, codec, ROWS)
    bad = bytearray(good)
    at = data.draw(st.integers(8, len(bad) - 1))
    bad[at] ^= data.draw(st.integers(1, 255))
    try:
        read = unpacked(bytes(bad))
    except (ProtocolError, NoMessagesConsumedError, UnsupportedCodec):
        return
    rows = [(m.partition_key, m.value) for m in read]
    assert rows == ROWS[: len(rows)]
