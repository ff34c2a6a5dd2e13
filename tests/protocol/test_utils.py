"""gkafka.utils, behaviours 193 to 201."""

from __future__ import annotations

import contextlib
import gzip
import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import cramjam
import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gkafka.exceptions import (
    ConfigurationError,
    CorruptRecordError,
    NotLeaderForPartition,
    OffsetOutOfRangeError,
    ProtocolError,
    SocketDisconnectedError,
)
from gkafka.protocol import FetchResponse, OffsetCommitResponse, OffsetFetchResponse
from gkafka.utils import Serializable, deserialize_utf8, serialize_utf8
from gkafka.utils.compression import (
    decode_gzip,
    decode_lz4,
    decode_lz4_old_kafka,
    decode_snappy,
    encode_gzip,
    encode_lz4,
    encode_lz4_old_kafka,
    encode_snappy,
)
from gkafka.utils.error_handlers import build_parts_by_error, handle_partition_responses, raise_error
from gkafka.utils.socket import recvall_into
from gkafka.utils.struct_helpers import unpack_from

HEADER = b"\x82SNAPPY\0" + b"\0\0\0\1" * 2
DATA = bytes(range(256)) * 300


# -- compression -----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("data", [b"", b"x", DATA, memoryview(DATA), bytearray(b"ab")])
def test_behaviour_193_gzip_there_and_back(data: Any) -> None:
    packed = encode_gzip(data)
    assert gzip.decompress(packed) == bytes(data) == decode_gzip(packed)
    assert decode_gzip(gzip.compress(bytes(data)) + gzip.compress(b"!")) == bytes(data) + b"!", "members that follow one another are one"


@pytest.mark.parametrize("framed", [False, True])
@pytest.mark.parametrize("data", [b"", b"x", DATA, memoryview(DATA)])
def test_behaviours_194_197_snappy_there_and_back_framed_and_not(data: Any, framed: bool) -> None:
    packed = encode_snappy(data, xerial_compatible=framed)
    assert packed.startswith(HEADER) == framed
    assert decode_snappy(packed) == decode_snappy(memoryview(packed)) == bytes(data)
    if not framed:
        assert bytes(cramjam.snappy.decompress_raw(packed)) == bytes(data), "one raw block, however large"


@pytest.mark.parametrize("size", [None, 1, 1000, 32 * 1024, 100_000])
def test_behaviours_195_196_xerial_framing_is_a_header_and_blocks_of_so_many_uncompressed_bytes(size: int | None) -> None:
    data = DATA[:1500] if size == 1 else DATA
    packed = encode_snappy(data, True) if size is None else encode_snappy(data, True, size)
    assert packed[:16] == HEADER
    blocks, at = [], 16
    while at < len(packed):
        (length,) = struct.unpack_from(">i", packed, at)
        blocks.append(bytes(cramjam.snappy.decompress_raw(packed[at + 4 : at + 4 + length])))
        at += 4 + length
    size = size or 32768
    assert blocks == [data[i : i + size] for i in range(0, len(data), size)]


def test_lz4_of_new_and_of_old_brokers() -> None:
    assert lz4.frame.decompress(encode_lz4(DATA)) == DATA == decode_lz4(encode_lz4(DATA)) == decode_lz4(lz4.frame.compress(DATA))
    old = encode_lz4_old_kafka(DATA)
    assert decode_lz4_old_kafka(old) == DATA
    with pytest.raises(RuntimeError):
        lz4.frame.decompress(old)


@pytest.mark.parametrize("decode", [decode_gzip, decode_snappy, decode_lz4, decode_lz4_old_kafka])
@given(data=st.binary(max_size=60))
def test_bytes_that_are_not_compressed_are_a_protocol_error(decode: Callable[..., bytes], data: bytes) -> None:
    with contextlib.suppress(CorruptRecordError):
        assert isinstance(decode(data), bytes)
    assert issubclass(CorruptRecordError, ProtocolError)


def test_what_is_decoded_is_bounded() -> None:
    bomb = bytes(10_000_000)
    for encode, decode in ((encode_gzip, decode_gzip), (encode_snappy, decode_snappy), (encode_lz4, decode_lz4)):
        with pytest.raises(CorruptRecordError, match="more than the 100000 bytes"):
            decode(encode(bomb), max_bytes=100_000)
    for size in (0, -1, "x", True):
        with pytest.raises(ConfigurationError, match="xerial_blocksize"):
            encode_snappy(b"x", True, size)  # type: ignore[arg-type]


# -- partitions by error -----------------------------------------------------------------------------------------------------------
def recorder(calls: list[Any], name: str) -> Callable[[Any], None]:
    return lambda parts: calls.append((name, list(parts)))


def test_behaviour_198_each_groups_handler_is_called_with_its_partitions() -> None:
    calls: list[Any] = []
    handlers = {1: recorder(calls, "range"), 6: recorder(calls, "leader"), 3: recorder(calls, "unknown")}
    groups = {0: ["a", "b"], 6: ["c"], 1: iter(["d", "e"])}
    assert handle_partition_responses(handlers, groups, recorder(calls, "fine")) is groups
    assert calls == [("fine", ["a", "b"]), ("leader", ["c"]), ("range", ["d", "e"])]
    calls.clear()
    handle_partition_responses(handlers, {0: ["a"]})
    assert calls == []


def test_behaviour_198_a_response_is_sorted_by_the_codes_of_its_partitions() -> None:
    one = struct.Struct(">ih")
    response = OffsetCommitResponse(b"\0\0\0\1\0\1t" + b"\0\0\0\3" + one.pack(0, 0) + one.pack(1, 6) + one.pack(2, 6))
    owned = {0: "own 0", 2: "own 2"}
    calls: list[Any] = []
    found = handle_partition_responses(
        {6: recorder(calls, "leader")}, success_handler=recorder(calls, "fine"), response=response, partitions_by_id=owned
    )
    assert calls == [("fine", [("own 0", (0,))]), ("leader", [("own 2", (6,))])]
    assert found == build_parts_by_error(response, owned)
    assert build_parts_by_error(response, None) == {}
    assert build_parts_by_error(FetchResponse(bytes(4)), owned) == build_parts_by_error(OffsetFetchResponse(bytes(4)), owned) == {}


def test_a_code_without_a_handler_is_raised_before_anything_is_handled() -> None:
    calls: list[Any] = []
    with pytest.raises(NotLeaderForPartition):
        handle_partition_responses({1: recorder(calls, "range")}, {1: ["a"], 6: ["b"]}, recorder(calls, "fine"))
    assert calls == []
    with pytest.raises(ConfigurationError, match="parts_by_error"):
        handle_partition_responses({})


def test_behaviour_199_raise_error_raises_it() -> None:
    with pytest.raises(OffsetOutOfRangeError, match=r"^so it is$"):
        raise_error(OffsetOutOfRangeError, "so it is")
    with pytest.raises(OffsetOutOfRangeError):
        raise_error(OffsetOutOfRangeError)
    made = OffsetOutOfRangeError("as it is")
    with pytest.raises(OffsetOutOfRangeError) as caught:
        raise_error(made)
    assert caught.value is made


# -- sockets -----------------------------------------------------------------------------------------------------------------------
class Drip:
    """A socket that gives its bytes in small pieces, then ends or fails."""

    def __init__(self, data: bytes, piece: int, end: Exception | None = None) -> None:
        self.data, self.piece, self.end, self.asked = data, piece, end, 0

    def recv(self, size: int, /) -> bytes:
        assert size > 0
        self.asked = max(self.asked, size)
        if not self.data and self.end is not None:
            raise self.end
        taken, self.data = self.data[: min(size, self.piece)], self.data[min(size, self.piece) :]
        return taken


@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_behaviour_200_exactly_so_many_bytes_are_received_in_place(piece: int) -> None:
    buffer = bytearray(b"." * 120)
    socket = Drip(DATA[:100] + b"the next answer", piece)
    assert recvall_into(socket, buffer, 100) is buffer
    assert buffer == DATA[:100] + b"." * 20
    assert socket.data == b"the next answer"
    short = bytearray(3)
    assert recvall_into(Drip(DATA[:100], piece), short, 100) == DATA[:100]
    assert recvall_into(Drip(b"", 1), bytearray(), 0) == b""


@pytest.mark.parametrize("end", [None, OSError("reset"), TimeoutError("slow")])
def test_behaviour_200_a_socket_that_ends_before_is_disconnected(end: Exception | None) -> None:
    with pytest.raises(SocketDisconnectedError, match="5 of 10 bytes"):
        recvall_into(Drip(b"12345", 3, end), bytearray(10), 10)


def test_a_size_that_lies_takes_no_memory() -> None:
    buffer, socket = bytearray(), Drip(b"12345", 3)
    with pytest.raises(SocketDisconnectedError):
        recvall_into(socket, buffer, 2**31 - 1)
    assert (len(buffer), socket.asked <= 1 << 20) == (5, True)
    for size in (-1, 2**31, "4", None):
        with pytest.raises(ConfigurationError, match="size="):
            recvall_into(Drip(b"", 1), bytearray(), size)  # type: ignore[arg-type]


# -- struct ------------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("fmt", "data", "values"),
    [
        ("ihq", "00000001 ffff 0000000000000002", (1, -1, 2)),
        ("!i", "00000001", (1,)),
        (">i", "00000001", (1,)),
        ("<i", "00000001", (1,)),
        ("3i", "00000001 00000002 00000003", (1, 2, 3)),
        ("4s", "61626364", (b"abcd",)),
        ("iBB", "00000001 02 ff", (1, 2, 255)),
        ("S", "0003 616263", (b"abc",)),
        ("S", "ffff", (None,)),
        ("S", "0000", (b"",)),
        ("Y", "00000003 616263", (b"abc",)),
        ("Y", "ffffffff", (None,)),
        ("[i]", "00000002 00000001 00000002", [1, 2]),
        ("[i]", "00000000", []),
        ("[i]", "ffffffff", []),
        ("[S]", "00000002 0001 61 ffff", [b"a", None]),
        ("[ii]", "00000002 00000001 00000002 00000003 00000004", [(1, 2), (3, 4)]),
        ("[S [ihq] ]", "00000001 0001 74 00000001 00000000 0000 0000000000000005", [(b"t", [(0, 0, 5)])]),
        ("i[i]S", "00000009 00000001 00000002 0001 61", (9, [2], b"a")),
        ("[i] [h]", "00000001 00000002 00000001 0003", ([2], [3])),
        ("[S [ih [q] ] ]", "00000001 0001 74 00000001 00000000 0001 00000002" + "00" * 15 + "07", [(b"t", [(0, 1, [0, 7])])]),
    ],
)
def test_behaviour_201_formats(fmt: str, data: str, values: Any) -> None:
    buffer = bytes.fromhex(data)
    assert unpack_from(fmt, buffer) == values
    assert unpack_from(fmt, memoryview(b"___" + buffer + b"more"), 3) == values


@given(st.sampled_from(["ihq", "S", "Y", "[i]", "[S[ihqY]]", "[[[i]]]", "h[hSSSS[SSSYY]]", "[0s]", "16s"]), st.binary(max_size=80))
def test_any_bytes_are_values_or_a_protocol_error(fmt: str, data: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        unpack_from(fmt, data)


@pytest.mark.parametrize(
    ("fmt", "data"),
    [
        ("i", "0000"),
        ("S", "0003 6162"),
        ("S", "fffe"),
        ("Y", "7fffffff 61"),
        ("[i]", "7fffffff"),
        ("[i]", "fffffffe"),
        ("[[i]]", "00000005 00000000"),
        ("[0s]", "7fffffff 00"),
    ],
)
def test_hostile_lengths_are_a_protocol_error(fmt: str, data: str) -> None:
    with pytest.raises(ProtocolError):
        unpack_from(fmt, bytes.fromhex(data))


@pytest.mark.parametrize("fmt", ["", "  ", "i[", "]", "[]", "[i", "z", "S S [", "i,i", "!"])
def test_a_format_that_is_none_is_refused(fmt: str) -> None:
    with pytest.raises(ConfigurationError, match="fmt="):
        unpack_from(fmt, bytes(100))


def test_a_position_outside_of_the_buffer_is_refused() -> None:
    for offset in (-1, 5):
        with pytest.raises(ProtocolError, match="not in a buffer"):
            unpack_from("b", bytes(4), offset)


# -- the rest ------------------------------------------------------------------------------------------------------------------------
def test_text_is_serialized_as_utf_8() -> None:
    assert serialize_utf8("ü", None) == ("ü".encode(), None)
    assert serialize_utf8(b"\xff", "k") == (b"\xff", b"k")
    assert deserialize_utf8("ü".encode(), None) == ("ü", None)
    assert deserialize_utf8(None, b"k") == (None, "k")
    with pytest.raises(UnicodeDecodeError):
        deserialize_utf8(b"\xff", None)


def test_a_serializable_has_a_length_and_packs_itself() -> None:
    assert Serializable.__abstractmethods__ == {"__len__", "pack_into"}
    assert not isinstance(SimpleNamespace(), Serializable)
