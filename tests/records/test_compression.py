"""gkafka.records.compression: what each codec writes and reads, against other implementations, damage and bombs."""

from __future__ import annotations

import gzip
import json
import pickle
import random
import struct
import subprocess
import sys
import threading
import warnings
import zlib
from collections.abc import Iterable, Iterator
from functools import cache

import cramjam
import lz4.frame
import pytest
import snappy
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from gkafka.common import CompressionType
from gkafka.exceptions import ConfigurationError, CorruptRecordError, KafkaException, UnsupportedCodec
from gkafka.records import compression, lz4frame, snappyframe, zstdframe
from gkafka.records.compression import available, check_level, codec_id, codec_name, compress, decompress, pick_auto
from tests.effort import quick_and_thorough, seeds, tried

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its own schemas by importlib.resources.read_text
    import kafka.codec

NONE, GZIP, SNAPPY, LZ4, ZSTD = CompressionType
CODECS = [GZIP, SNAPPY, LZ4, ZSTD]
MiB = 1 << 20
TEXT = b"".join(json.dumps({"id": i, "url": f"http://example.com/{i * 31}", "n": f"user{i * 7919 % 1000}"}).encode() for i in range(5000))
SIZES = [0, 1, 2, 100, 32767, 32768, 32769, 65535, 65536, 65537, 131072, 300_000]

codecs = pytest.mark.parametrize("codec", CODECS, ids=lambda c: c.name.lower())


def sample(size: int) -> bytes:
    return (TEXT * (size // len(TEXT) + 1))[:size]


@pytest.fixture
def fresh() -> Iterator[None]:
    """Packages are looked for anew, before and after the test."""
    look_anew()
    yield
    look_anew()


def look_anew() -> None:
    for cached in (compression._snappy_package, compression._lz4_package, compression._zstd_package):
        cached.cache_clear()


def hide(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    """What was found of them before, in this test too, is forgotten."""
    for module in modules:
        monkeypatch.setitem(sys.modules, module, None)
    look_anew()


# -- there and back ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("codec", list(CompressionType), ids=lambda c: c.name.lower())
def test_what_was_compressed_comes_back(codec: int, size: int) -> None:
    data = sample(size)
    assert bytes(decompress(codec, compress(codec, data), max_bytes=size)) == data


@codecs
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_is_taken(codec: int, kind: type) -> None:
    packed = compress(codec, kind(TEXT))
    assert isinstance(packed, bytes)
    assert decompress(codec, kind(packed), max_bytes=len(TEXT)) == TEXT


@codecs
def test_a_slice_of_a_larger_buffer_is_taken(codec: int) -> None:
    packed = compress(codec, memoryview(b"xxx" + TEXT + b"yyy")[3:-3])
    around = memoryview(bytearray(b"\x00" * 61 + packed + b"\xff" * 9))
    assert decompress(codec, around[61:-9], max_bytes=len(TEXT)) == TEXT


@codecs
@given(data=st.binary(max_size=5000))
def test_any_bytes_come_back(codec: int, data: bytes) -> None:
    assert decompress(codec, compress(codec, data), max_bytes=len(data)) == data


@codecs
def test_threads_share_the_codec(codec: int) -> None:
    wrong: list[int] = []

    def work(seed: int) -> None:
        for i in range(30):
            data = sample(40_000 + seed * 1000 + i)
            if decompress(codec, compress(codec, data), max_bytes=len(data)) != data:
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []


# -- independent eyes --------------------------------------------------------------------------------------------------
PEER_READS = {GZIP: gzip.decompress, SNAPPY: kafka.codec.snappy_decode, LZ4: kafka.codec.lz4_decode, ZSTD: kafka.codec.zstd_decode}
PEER_WRITES = {GZIP: kafka.codec.gzip_encode, SNAPPY: kafka.codec.snappy_encode, LZ4: kafka.codec.lz4_encode, ZSTD: kafka.codec.zstd_encode}


@codecs
@pytest.mark.parametrize("size", [1, 100, 70_000, 300_000])
def test_kafka_python_reads_it(codec: int, size: int) -> None:
    assert PEER_READS[codec](compress(codec, sample(size))) == sample(size)


@codecs
@pytest.mark.parametrize("size", [1, 100, 70_000, 300_000])
def test_what_kafka_python_writes_is_read(codec: int, size: int) -> None:
    assert decompress(codec, PEER_WRITES[codec](sample(size)), max_bytes=size) == sample(size)


OLD_LZ4_HEADER = bytes.fromhex("04224d1860401a")
"""What Kafka's Java classes write in format 0: the checksum is taken over the magic number too (KAFKA-3160)."""


def test_old_lz4_has_the_checksum_over_the_magic_number() -> None:
    new, old = compress(LZ4, TEXT), compress(LZ4, TEXT, legacy=True)
    assert old[:7] == OLD_LZ4_HEADER
    assert (new[:6], new[7:]) == (old[:6], old[7:])
    assert new[6] == 0x82, "of the two descriptor bytes alone, as the specification says"
    assert decompress(LZ4, old, max_bytes=len(TEXT), legacy=True) == TEXT


def test_a_wrong_lz4_checksum_is_an_error_except_in_old_frames() -> None:
    old = compress(LZ4, TEXT, legacy=True)
    with pytest.raises(CorruptRecordError, match="lz4"):
        decompress(LZ4, old, max_bytes=len(TEXT))
    # Java's client does not look at it in format 0: a right one is taken too
    assert decompress(LZ4, compress(LZ4, TEXT), max_bytes=len(TEXT), legacy=True) == TEXT


def test_lz4_is_written_as_java_writes_it() -> None:
    packed = compress(LZ4, TEXT)
    assert packed[:4] == bytes.fromhex("04224d18")
    assert packed[4] == 0x60, "version 1, independent blocks, no checksums, no content size"
    assert packed[5] == 0x40, "blocks of 64 KiB"


@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize("block_size", [4, 5, 6, 7])
@pytest.mark.parametrize("checks", [True, False])
@pytest.mark.parametrize("store_size", [True, False])
def test_every_kind_of_lz4_frame_is_read(linked: bool, block_size: int, checks: bool, store_size: bool) -> None:
    options = {"block_linked": linked, "block_size": block_size, "store_size": store_size}
    packed = lz4.frame.compress(TEXT, content_checksum=checks, block_checksum=checks, **options)
    assert decompress(LZ4, packed, max_bytes=len(TEXT)) == TEXT
    assert decompress(LZ4, packed, max_bytes=len(TEXT), legacy=True) == TEXT


XXH32 = [
    (b"", 0x02CC5D05),
    (b"a", 0x550D7456),
    (b"abc", 0x32D153FF),
    (b"abcd", 0xA3643705),
    (bytes(range(15)), 0x57C01ECE),
]


@pytest.mark.parametrize(("data", "value"), XXH32)
def test_xxh32_gives_the_known_values(data: bytes, value: int) -> None:
    assert lz4frame.xxh32(data) == value


def test_xxh32_of_more_than_a_header_is_refused() -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        lz4frame.xxh32(b"x" * 16)


def java_xerial(data: bytes, block_size: int = 32 * 1024) -> bytes:
    """What snappy-java's SnappyOutputStream writes, from its documentation."""
    out = bytearray(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    for at in range(0, len(data), block_size):
        block = snappy.compress(data[at : at + block_size])
        out += struct.pack(">i", len(block)) + block
    return bytes(out)


@pytest.mark.parametrize("size", SIZES)
def test_snappy_is_framed_as_java_frames_it(size: int) -> None:
    assert compress(SNAPPY, sample(size)) == java_xerial(sample(size))


@pytest.mark.parametrize("block_size", [1, 1000, 65536, 1 << 20])
def test_xerial_blocks_of_any_size_are_read(block_size: int) -> None:
    data = TEXT[:5000] if block_size == 1 else TEXT
    assert decompress(SNAPPY, java_xerial(data, block_size), max_bytes=len(data)) == data


def test_raw_snappy_is_read() -> None:
    assert decompress(SNAPPY, snappy.compress(TEXT), max_bytes=len(TEXT)) == TEXT
    assert decompress(SNAPPY, snappy.compress(b""), max_bytes=0) == b""


def test_a_xerial_header_with_little_endian_versions_is_read() -> None:
    packed = bytearray(java_xerial(TEXT))
    packed[8:16] = struct.pack("<ii", 1, 1)
    assert decompress(SNAPPY, packed, max_bytes=len(TEXT)) == TEXT


@pytest.mark.parametrize("level", [1, 3, 19])
@pytest.mark.parametrize("options", [{}, {"write_content_size": False}, {"write_checksum": True}], ids=str)
def test_every_kind_of_zstd_frame_is_read(level: int, options: dict[str, bool]) -> None:
    for data in (b"", b"a", b"\0" * 300_000, TEXT, bytes(range(256)) * 9):
        packed = zstandard.ZstdCompressor(level=level, **options).compress(data)
        assert decompress(ZSTD, packed, max_bytes=len(data)) == data


@pytest.mark.parametrize("level", quick_and_thorough(3, 22))
def test_a_zstd_stream_without_a_size_is_read(level: int) -> None:
    """Java's client writes a stream: no content size, a window as large as the level's."""
    writer = zstandard.ZstdCompressor(level=level).compressobj()
    packed = writer.compress(TEXT[:9000]) + writer.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK) + writer.compress(TEXT[9000:]) + writer.flush()
    assert decompress(ZSTD, packed, max_bytes=len(TEXT)) == TEXT


def streamed(pieces: Iterable[bytes], window_log: int) -> bytes:
    """zstd as a stream, with a window of 2**window_log bytes and no size."""
    parameters = zstandard.ZstdCompressionParameters.from_level(1, window_log=window_log)
    writer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return b"".join(map(writer.compress, pieces)) + writer.flush()


@pytest.mark.parametrize("window_log", [10, 17, 23, 24, 27])
@pytest.mark.parametrize("size", [1, 131_073, 20 * MiB])
def test_a_zstd_stream_with_any_window_that_java_reads_is_read(window_log: int, size: int) -> None:
    """Far matches, too: what comes again 19 MiB later is told by its distance."""
    noise = random.Random(1).randbytes(MiB)
    data = (noise + bytes(18 * MiB) + noise)[:size]
    packed = streamed([data], window_log)
    assert next(zstdframe.frames(memoryview(packed))).window == 1 << window_log
    assert decompress(ZSTD, packed, max_bytes=size) == data


def test_a_zstd_window_that_java_does_not_read_is_named() -> None:
    with pytest.raises(CorruptRecordError, match=f"asks for a window of {1 << 28} bytes; Kafka's clients use at most {1 << 27}"):
        decompress(ZSTD, zstd_frame(0x00, bytes([18 << 3]), (1, 10, b"a")), max_bytes=MiB)


# -- one after another -------------------------------------------------------------------------------------------------
@codecs
def test_frames_that_follow_one_another_are_read_as_one(codec: int) -> None:
    parts = [b"", b"one", TEXT, b"", sample(70_000), b"last"]
    packed = b"".join(compress(codec, part) for part in parts)
    whole = b"".join(parts)
    assert decompress(codec, packed, max_bytes=len(whole)) == whole
    with pytest.raises(CorruptRecordError, match="more than"):
        decompress(codec, packed, max_bytes=len(whole) - 1)


@pytest.mark.parametrize("codec", [LZ4, ZSTD])
def test_skippable_frames_are_left_out(codec: int) -> None:
    aside = struct.pack("<II", 0x184D2A53, 5) + b"aside"
    assert decompress(codec, aside + compress(codec, TEXT) + aside, max_bytes=len(TEXT)) == TEXT


def test_old_lz4_frames_that_follow_one_another_are_read() -> None:
    packed = compress(LZ4, b"one", legacy=True) + compress(LZ4, b"two", legacy=True)
    assert decompress(LZ4, packed, max_bytes=6, legacy=True) == b"onetwo"


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD])
def test_what_follows_the_data_is_not_overlooked(codec: int) -> None:
    with pytest.raises(CorruptRecordError):
        decompress(codec, compress(codec, TEXT) + b"\x00", max_bytes=MiB)


# -- bounds ------------------------------------------------------------------------------------------------------------
@codecs
@pytest.mark.parametrize("size", [1, 100, 65536, 200_000])
def test_one_byte_too_many_is_an_error(codec: int, size: int) -> None:
    packed = compress(codec, sample(size))
    with pytest.raises(CorruptRecordError, match=rf"{codec_name(codec)} .*more than"):
        decompress(codec, packed, max_bytes=size - 1)


def test_uncompressed_data_is_bounded_too() -> None:
    with pytest.raises(CorruptRecordError, match=r"none .*more than"):
        decompress(NONE, b"abc", max_bytes=2)


BOMB = 64 * MiB


def bombs() -> dict[str, tuple[int, bytes]]:
    zeros = b"\0" * BOMB
    stream = zstandard.ZstdCompressor(level=3, write_content_size=False)
    block = zstandard.ZstdCompressor(level=3, write_content_size=False).compress(b"\0" * 131072)
    raw = bytes(cramjam.snappy.compress_raw(zeros))
    return {
        "gzip": (GZIP, compress(GZIP, zeros)),
        "gzip of many members": (GZIP, compress(GZIP, b"\0" * MiB) * 64),
        "lz4": (LZ4, compress(LZ4, zeros)),
        "lz4 in large blocks with its size": (LZ4, lz4.frame.compress(zeros, block_size=7, store_size=True)),
        "lz4 of many frames": (LZ4, compress(LZ4, b"\0" * MiB) * 64),
        "zstd with its size": (ZSTD, compress(ZSTD, zeros)),
        "zstd without its size": (ZSTD, stream.compress(zeros)),
        "zstd of many frames": (ZSTD, block * 512),
        "zstd with a window of 128 MiB": (ZSTD, streamed((bytes(MiB) for _ in range(64)), 27)),
        "snappy": (SNAPPY, raw),
        "xerial": (SNAPPY, compress(SNAPPY, zeros)),
    }


@pytest.fixture(scope="module")
def all_bombs() -> dict[str, tuple[int, bytes]]:
    return bombs()


GROWTH = """
import pickle, sys
from gkafka.exceptions import CorruptRecordError
from gkafka.records.compression import compress, decompress

def peak():  # getrusage's would begin with what the parent had before exec
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))

for codec in range(1, 5):  # what the packages themselves take
    decompress(codec, compress(codec, bytes(300_000)), max_bytes=300_000)
grown = {}
for name, (codec, data, max_bytes) in pickle.load(sys.stdin.buffer).items():
    before = peak()
    try:
        decompress(codec, data, max_bytes=max_bytes)
        error = "none"
    except CorruptRecordError as exc:
        error = str(exc)
    grown[name] = (peak() - before, error)
sys.stdout.buffer.write(pickle.dumps(grown))
"""


def growth(cases: dict[str, tuple[int, bytes, int]]) -> dict[str, tuple[int, str]]:
    """KiB that a process of its own grew by while it decompressed each case, and the error's text."""
    given = pickle.dumps({name: (int(codec), data, most) for name, (codec, data, most) in cases.items()})
    done = subprocess.run([sys.executable, "-c", GROWTH], input=given, capture_output=True, timeout=60, check=True)
    grown: dict[str, tuple[int, str]] = pickle.loads(done.stdout)
    return grown


def test_the_growth_of_a_process_is_seen() -> None:
    assert growth({"zeros": (ZSTD, compress(ZSTD, b"\0" * BOMB), BOMB)})["zeros"][0] > 48 * 1024


def test_a_bomb_takes_no_more_memory_than_is_allowed(all_bombs: dict[str, tuple[int, bytes]]) -> None:
    grown = growth({name: (codec, packed, MiB) for name, (codec, packed) in all_bombs.items()})
    assert all("more than" in error for _, error in grown.values()), grown
    assert {name: kib for name, (kib, _) in grown.items() if kib > 6 * 1024} == {}


def test_a_window_stands_beside_neither_the_result_nor_another_window() -> None:
    """It is as large as the limit: result and window at once would be twice that."""
    packed = streamed((bytes(MiB) for _ in range(96)), 27)
    cases = {"data": (ZSTD, packed, 96 * MiB), "bomb": (ZSTD, packed, 64 * MiB)}
    for name, most, error in (("data", 96, "none"), ("bomb", 64, "more than the 67108864 bytes")):
        kib, told = growth({name: cases[name]})[name]
        assert error in told
        assert kib <= (most + 12) * 1024, f"{name}: {kib >> 10} MiB"


@pytest.mark.parametrize("name", ["gzip", "lz4", "zstd with its size", "zstd without its size", "snappy", "xerial"])
def test_the_same_bomb_is_data_where_that_much_is_allowed(all_bombs: dict[str, tuple[int, bytes]], name: str) -> None:
    codec, packed = all_bombs[name]
    assert len(decompress(codec, packed, max_bytes=BOMB)) == BOMB


def zstd_frame(descriptor: int, fields: bytes, *blocks: tuple[int, int, bytes]) -> bytes:
    """blocks: (kind, size, content)."""
    out = struct.pack("<IB", zstdframe.MAGIC, descriptor) + fields
    for i, (kind, size, content) in enumerate(blocks):
        out += ((size << 3) | (kind << 1) | (i == len(blocks) - 1)).to_bytes(3, "little") + content
    return out


LIES = {
    "zstd that claims 1 TiB": (ZSTD, zstd_frame(0xE0, struct.pack("<Q", 1 << 40), (1, 10, b"a"))),
    "zstd that claims 256 MiB": (ZSTD, zstd_frame(0xA0, struct.pack("<I", 256 * MiB), (1, 10, b"a"))),
    "zstd with a window of 2 TiB": (ZSTD, zstd_frame(0x00, b"\xff", (2, 2, b"ab"))),
    "zstd with a run longer than a block": (ZSTD, zstd_frame(0x00, b"\x58", (1, (1 << 21) - 1, b"a"))),
    "zstd with a reserved block": (ZSTD, zstd_frame(0x00, b"\x58", (3, 1, b"a"))),
    "zstd that wants a dictionary": (ZSTD, zstd_frame(0x03, b"\x58" + b"\x01\x02\x03\x04", (1, 1, b"a"))),
    "zstd skipping 4 GiB": (ZSTD, struct.pack("<II", 0x184D2A50, 0xFFFFFFFF) + b"x"),
    "snappy that claims 4 GiB": (SNAPPY, b"\xff\xff\xff\xff\x0f" + b"x" * 10),
    "snappy with an endless size": (SNAPPY, b"\xff" * 20),
    "snappy with a claim of 1000": (SNAPPY, b"\xe8\x07\x00a"),
    "xerial with a chunk of 2 GiB": (SNAPPY, snappyframe.HEADER + b"\x7f\xff\xff\xff" + b"abc"),
    "xerial with a negative chunk": (SNAPPY, snappyframe.HEADER + b"\xff\xff\xff\xff" + b"abc"),
    "xerial with an empty chunk": (SNAPPY, snappyframe.HEADER + b"\0\0\0\0"),
    "xerial with a lying chunk": (SNAPPY, snappyframe.HEADER + b"\0\0\0\x06\xff\xff\xff\xff\x0fx"),
    "lz4 that claims 1 TiB": (LZ4, b"\x04\x22\x4d\x18\x68\x40" + struct.pack("<Q", 1 << 40) + b"\x00" + b"\x00" * 4),
    "lz4 with a block of 2 GiB": (LZ4, b"\x04\x22\x4d\x18\x60\x40\x82" + b"\xff\xff\xff\x7f" + b"x"),
    "lz4 of version 3": (LZ4, b"\x04\x22\x4d\x18\xe0\x40\x82\0\0\0\0"),
    "lz4 with blocks of no size": (LZ4, b"\x04\x22\x4d\x18\x60\x30\x82\0\0\0\0"),
    "lz4 that wants a dictionary": (LZ4, b"\x04\x22\x4d\x18\x61\x40\0\0\0\0\x82\0\0\0\0"),
    "gzip that is zlib": (GZIP, zlib.compress(b"abc")),
}


def test_a_lie_is_a_corrupt_record_and_takes_no_memory() -> None:
    grown = growth({name: (codec, data, 512 * MiB) for name, (codec, data) in LIES.items()})
    assert {name: error for name, (_, error) in grown.items() if "cannot be decompressed" not in error} == {}
    assert {name: kib for name, (kib, _) in grown.items() if kib > 4096} == {}


@pytest.mark.parametrize(("place", "bits"), [(5, (0x10, 0x20, 0x30)), (6, (1, 2, 4, 8, 16, 32, 64, 128)), (-4, (1, 128)), (-1, (1, 128))])
def test_lz4_by_blocks_looks_at_the_checksum_of_the_header_and_at_the_end_mark(place: int, bits: tuple[int, ...]) -> None:
    """A frame of another block size than its checksum is of, of another checksum, and one that does not end where the buffer does."""
    kafkas = compress(LZ4, b"text " * 100)
    assert lz4frame.plain_blocks(memoryview(kafkas), 1 << 30)
    for flipped in bits:
        damaged = bytearray(kafkas)
        damaged[place] ^= flipped
        assert lz4frame.plain_blocks(memoryview(damaged), 1 << 30) is None, flipped
        with pytest.raises(CorruptRecordError):
            decompress(LZ4, bytes(damaged), max_bytes=1 << 20)


def test_lz4_by_blocks_is_what_lz4_by_frames_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Java's client writes is unpacked block by block; whatever else there is, and what is damaged, by the frame's own reader."""
    data = random.Random(7).randbytes(70_000) + b"text " * 40_000
    kafkas = compress(LZ4, data)
    others = [
        lz4.frame.compress(data, block_linked=True, store_size=False),
        lz4.frame.compress(data, block_linked=False, store_size=True),
        lz4.frame.compress(data, block_linked=False, store_size=False, content_checksum=True),
        lz4.frame.compress(data, block_linked=False, store_size=False, block_checksum=True),
        kafkas + kafkas,
    ]
    assert [lz4frame.plain_blocks(memoryview(other), 1 << 30) for other in others] == [None] * len(others)
    blocks = lz4frame.plain_blocks(memoryview(kafkas), 1 << 30)
    assert [room for _, room in blocks or ()][:3] == [0, 65536, 65536]  # the first block is not compressed
    assert lz4frame.plain_blocks(memoryview(kafkas), 100_000) is None
    by_blocks = compression.lz4_block_reader()
    for packed in [
        kafkas,
        *others,
        *(kafkas[:at] + b"\xff" + kafkas[at + 1 :] for at in range(0, len(kafkas), 997)),
        kafkas[:-1],
        kafkas[:10],
    ]:
        said = []
        for package in (by_blocks, None):
            monkeypatch.setattr(compression, "lz4_block_reader", lambda package=package: package)
            try:
                said.append(bytes(decompress(LZ4, packed, max_bytes=1 << 20)))
            except CorruptRecordError as exc:
                said.append(str(exc).encode())
        assert said[0] == said[1]
    assert by_blocks is not None, "cramjam is not installed: nothing was compared"


def crowds() -> dict[str, tuple[int, bytes, bytes, str]]:
    """Codec, start, and what costs a step each and holds nothing."""
    aside = struct.pack("<II", 0x184D2A50, 0)
    lz4_header = lz4.frame.compress(b"", store_size=False)[:7]
    return {
        "gzip members": (GZIP, b"", compress(GZIP, b""), "10000 frames"),
        "lz4 frames": (LZ4, b"", compress(LZ4, b""), "10000 frames"),
        "lz4 frames to skip": (LZ4, b"", aside, "10000 frames"),
        "lz4 blocks": (LZ4, lz4_header, b"\1\0\0\x80a", "30000 blocks"),
        "zstd frames": (ZSTD, b"", streamed([], 17), "10000 frames"),
        "zstd frames with a size": (ZSTD, b"", zstandard.compress(b"a"), "10000 frames"),
        "zstd frames to skip": (ZSTD, b"", aside, "10000 frames"),
        "zstd blocks": (ZSTD, zstd_frame(0x00, b"\x38"), b"\0\0\0", "30000 blocks"),
        "xerial blocks": (SNAPPY, snappyframe.HEADER, b"\0\0\0\1\0", "30000 blocks"),
        "xerial headers": (SNAPPY, b"", snappyframe.HEADER, "30000 blocks"),
    }


def crowd(name: str) -> tuple[int, bytes, str]:
    """Codec, 8 MiB of it, and what is said of that."""
    codec, start, unit, text = crowds()[name]
    return codec, start + unit * (8 * MiB // len(unit)), text


@pytest.mark.parametrize("name", crowds())
def test_a_crowd_of_empty_pieces_is_an_error_at_once(name: str) -> None:
    codec, packed, text = crowd(name)
    with pytest.raises(CorruptRecordError, match=f"cut into more than {text}"):
        decompress(codec, packed, max_bytes=64 * MiB)


# -- damage ------------------------------------------------------------------------------------------------------------
@codecs
def test_nothing_is_not_compressed_data(codec: int) -> None:
    with pytest.raises(CorruptRecordError, match=codec_name(codec)):
        decompress(codec, b"", max_bytes=MiB)


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD])
def test_data_that_is_cut_off_anywhere_is_an_error(codec: int) -> None:
    packed = compress(codec, TEXT[:2000])
    for size in range(len(packed)):
        with pytest.raises(CorruptRecordError, match=codec_name(codec)):
            decompress(codec, packed[:size], max_bytes=MiB)


def test_snappy_that_is_cut_off_inside_a_block_is_an_error() -> None:
    packed = compress(SNAPPY, TEXT[:2000])
    for size in [*range(1, 16), *range(17, len(packed))]:
        with pytest.raises(CorruptRecordError, match="snappy"):
            decompress(SNAPPY, packed[:size], max_bytes=MiB)


@codecs
@given(data=st.binary(max_size=300))
def test_garbage_is_only_ever_a_corrupt_record(codec: int, data: bytes) -> None:
    _only_corrupt(codec, data)


@cache
def packed_text(codec: int) -> bytes:
    return compress(codec, TEXT[:3000])


@codecs
@pytest.mark.parametrize("part", seeds(4))
def test_damage_is_only_ever_a_corrupt_record(codec: int, part: int) -> None:
    def damage(places: list[tuple[int, int]], cut: int) -> None:
        data = bytearray(packed_text(codec))
        for place, value in places:
            data[place % min(len(data), 64 if value & 1 else len(data))] = value
        _only_corrupt(codec, bytes(data[: len(data) - cut]))

    damage([(0, 0)], 0)
    places = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=6)
    tried(damage, places, st.integers(0, 40), seed=part, examples=75 if part else 40)


@pytest.mark.parametrize("codec", [LZ4, ZSTD, SNAPPY])
@given(body=st.binary(max_size=80))
def test_a_right_beginning_before_garbage_is_only_ever_a_corrupt_record(codec: int, body: bytes) -> None:
    start = {LZ4: b"\x04\x22\x4d\x18\x60\x40\x82", ZSTD: b"\x28\xb5\x2f\xfd", SNAPPY: snappyframe.HEADER}[codec]
    _only_corrupt(codec, start + body)


def _only_corrupt(codec: int, data: bytes) -> None:
    for legacy in (False, True):
        try:
            out = decompress(codec, data, max_bytes=100_000, legacy=legacy)
        except CorruptRecordError as exc:
            assert codec_name(codec) in str(exc)  # noqa: PT017  # any other exception fails the test
        else:
            assert len(out) <= 100_000


@pytest.mark.parametrize("walk", [lz4frame.frames, zstdframe.frames])
@given(data=st.binary(max_size=200))
def test_the_walk_over_frames_never_leaves_the_buffer(walk, data: bytes) -> None:  # type: ignore[no-untyped-def]
    for start in (b"", b"\x04\x22\x4d\x18\x60\x40\x82", b"\x28\xb5\x2f\xfd"):
        try:
            for frame in walk(memoryview(start + data)):
                assert 0 <= frame.start < frame.end <= len(start) + len(data)
        except ValueError:
            pass


# -- packages that are not there ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("codec", "modules", "extra"),
    [(SNAPPY, ("cramjam", "snappy"), "snappy"), (LZ4, ("lz4", "lz4.frame"), "lz4"), (ZSTD, ("zstandard",), "zstd")],
)
def test_a_missing_package_is_named_with_its_extra(
    codec: int, modules: tuple[str, ...], extra: str, monkeypatch: pytest.MonkeyPatch, fresh: None
) -> None:
    packed = packed_text(codec)
    hide(monkeypatch, *modules)
    for call in (lambda: compress(codec, b"x"), lambda: decompress(codec, packed, max_bytes=MiB)):
        with pytest.raises(UnsupportedCodec, match=rf"pip install 'gkafka\[{extra}\]'"):
            call()
    assert not available(codec)


def test_python_snappy_alone_is_enough(monkeypatch: pytest.MonkeyPatch, fresh: None) -> None:
    packed = compress(SNAPPY, TEXT)
    hide(monkeypatch, "cramjam")
    assert compression._snappy_package()[2] is snappy.UncompressError
    assert compress(SNAPPY, memoryview(TEXT)) == packed
    assert decompress(SNAPPY, memoryview(packed), max_bytes=len(TEXT)) == TEXT
    with pytest.raises(CorruptRecordError, match="snappy"):
        decompress(SNAPPY, b"\x05\x00", max_bytes=MiB)


def test_auto_takes_the_first_that_is_installed(monkeypatch: pytest.MonkeyPatch, fresh: None) -> None:
    assert (pick_auto(), codec_id("auto")) == (LZ4, LZ4)
    hide(monkeypatch, "lz4", "lz4.frame")
    assert pick_auto() == SNAPPY
    hide(monkeypatch, "cramjam", "snappy")
    assert pick_auto() == GZIP


def test_no_package_is_imported_with_the_module() -> None:
    code = "import sys, gkafka.records.compression; print(sorted({'lz4', 'zstandard', 'snappy', 'cramjam'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


# -- names and levels --------------------------------------------------------------------------------------------------
def test_names_and_ids() -> None:
    assert [codec_id(name) for name in (None, "none", "gzip", "snappy", "lz4", "zstd")] == [0, 0, 1, 2, 3, 4]
    assert [codec_name(codec) for codec in range(5)] == ["none", "gzip", "snappy", "lz4", "zstd"]
    assert all(available(codec) for codec in range(5))
    assert available("zstd")


def test_a_wrong_name_is_refused_with_the_right_ones() -> None:
    with pytest.raises(ConfigurationError, match=r"compression='ztsd': must be one of .*'zstd'.*did you mean 'zstd'"):
        codec_id("ztsd")


@pytest.mark.parametrize("codec", [-1, 5, 7])
def test_an_unknown_id_is_an_unsupported_codec(codec: int) -> None:
    for call in (lambda: compress(codec, b""), lambda: decompress(codec, b"", max_bytes=1), lambda: codec_name(codec)):
        with pytest.raises(UnsupportedCodec, match=f"codec {codec} is not known"):
            call()
    assert not available(codec)


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD])
def test_levels_are_taken_within_their_bounds(codec: int) -> None:
    low, high = compression.LEVELS[codec]
    for level in (low, 1, 5, high):
        assert check_level(codec, level) == level
        packed = compress(codec, TEXT[:5000], level)
        assert decompress(codec, packed, max_bytes=5000) == TEXT[:5000]
    assert len(compress(codec, TEXT, high)) < len(compress(codec, TEXT, low))
    for level in (low - 1, high + 1, True, "5", 1.5):
        with pytest.raises(ConfigurationError, match=rf"compression_level={level!r}: {codec_name(codec)} .* from {low} to {high}"):
            compress(codec, TEXT, level)  # type: ignore[arg-type]


@pytest.mark.parametrize("codec", [NONE, SNAPPY])
def test_a_level_for_a_codec_without_levels_is_refused(codec: int) -> None:
    assert check_level(codec, None) is None
    with pytest.raises(ConfigurationError, match="has no levels"):
        compress(codec, TEXT, 1)


def test_every_error_is_gkafkas() -> None:
    assert issubclass(CorruptRecordError, KafkaException)
    assert issubclass(UnsupportedCodec, KafkaException)
