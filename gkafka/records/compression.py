"""The codecs of record batches: gzip, snappy, lz4 and zstd, bounded and free of shared state.

Each package is imported when its codec is first used, here and nowhere else. What comes in is a peer's: the size of the result is
bounded from the data's own structure before memory is taken, and every way of being broken is a CorruptRecordError.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from gkafka.common import CompressionType
from gkafka.exceptions import ConfigurationError, CorruptRecordError, UnsupportedCodec
from gkafka.pages import install
from gkafka.records import lz4frame, snappyframe, zstdframe
from gkafka.records.pieces import Pieces

__all__ = [
    "LEVELS",
    "available",
    "check_level",
    "codec_id",
    "codec_name",
    "compress",
    "decompress",
    "lz4_block_reader",
    "pick_auto",
    "snappy_block",
    "unlz4_blocks",
]

Buffer = bytes | bytearray | memoryview
NAMES = {codec.value: codec.name.lower() for codec in CompressionType}
IDS = {name: codec for codec, name in NAMES.items()}
LEVELS: dict[int, tuple[int, int]] = {
    CompressionType.GZIP: (1, 9),
    CompressionType.LZ4: (-65537, 17),
    CompressionType.ZSTD: (-131072, 22),
}
"""The lowest and highest level of each codec that has levels; Kafka's own bounds (KIP-390), lz4's fast levels added."""
PACKAGES = {"snappy": "python-snappy", "lz4": "lz4", "zstandard": "zstandard"}
EXTRAS = {"snappy": "snappy", "lz4": "lz4", "zstandard": "zstd"}
ZSTD_LEVEL = 1  # 1.6 times the speed of Kafka's default of 3, at a better ratio on small JSON batches
ZSTD_WINDOW = 1 << 27  # what Java's reader takes: level 22 of a stream of unknown size asks for this much
ZSTD_SMALL_WINDOW = 1 << 23  # as much as that may stand beside the result: what levels up to 19 ask for
PIECE_IN = 1 << 16  # bytes handed to zlib or lz4 at once: what is left of them is copied, and a bomb may hold many members
PIECE_OUT = 1 << 20  # bytes taken from them at once: both have what they give twice for a moment
LARGE = 4 << 20  # bytes from which on pieces are put together as they come, and not held until they are joined
POOL = 8  # contexts that are kept for reuse


# -- names and levels --------------------------------------------------------------------------------------------------
def codec_id(name: str | None) -> int:
    """The id of a codec by name; None is "none", "auto" is the first of lz4, snappy and gzip that is installed.

    Raises ConfigurationError for a name that is not a codec's.
    """
    if name == "auto":
        return pick_auto()
    codec = IDS.get("none" if name is None else name)
    if codec is None:
        near = difflib.get_close_matches(str(name), [*IDS, "auto"], n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ConfigurationError(f"compression={name!r}: must be one of {', '.join(map(repr, IDS))} or 'auto'{hint}")
    return codec


def codec_name(codec: int) -> str:
    """The name of a codec by id. Raises UnsupportedCodec."""
    try:
        return NAMES[codec]
    except KeyError:
        known = ", ".join(f"{number} {name}" for number, name in NAMES.items())
        raise UnsupportedCodec(f"compression codec {codec} is not known ({known}); a newer gkafka may know it") from None


def available(codec: int | str) -> bool:
    """Whether a codec, by id or name, can be used with the packages that are installed."""
    number = codec_id(codec) if isinstance(codec, str) else codec
    try:
        LOADERS.get(codec_name(number), _nothing)()
    except UnsupportedCodec:
        return False
    return True


def pick_auto() -> int:
    """The codec that "auto" stands for: the first of lz4, snappy and gzip that is installed."""
    return next(c for c in (CompressionType.LZ4, CompressionType.SNAPPY, CompressionType.GZIP) if available(c)).value


def check_level(codec: int, level: int | None) -> int | None:
    """The level, if the codec has it. Raises ConfigurationError naming the codec's bounds."""
    if level is None:
        return None
    name = codec_name(codec)
    if codec not in LEVELS:
        raise ConfigurationError(f"compression_level={level!r}: {name} has no levels; leave it out")
    low, high = LEVELS[codec]
    if isinstance(level, bool) or not isinstance(level, int) or not low <= level <= high:
        raise ConfigurationError(f"compression_level={level!r}: {name} takes a whole number from {low} to {high}")
    return level


# -- the two functions -------------------------------------------------------------------------------------------------
def compress(codec: int, data: Buffer, level: int | None = None, *, legacy: bool = False) -> bytes:
    """`data` compressed. legacy: for message format 0, whose lz4 frames carry a wrong header checksum (KAFKA-3160).

    Raises ConfigurationError for a level that the codec does not have, UnsupportedCodec if its package is missing.
    """
    check_level(codec, level)
    return COMPRESSORS[codec_name(codec)](data, level, legacy)


def decompress(codec: int, data: Buffer, *, max_bytes: int, legacy: bool = False) -> bytes | memoryview:
    """What `data` holds, at most max_bytes of it: more is an error, found before the memory is taken.

    legacy: message format 0, see `compress`. Frames and members that follow one another are read as one.
    Raises CorruptRecordError for anything that is not whole compressed data, UnsupportedCodec if the package is missing.
    """
    name = codec_name(codec)
    view = memoryview(data).cast("B")
    try:
        return DECOMPRESSORS[name](view, max_bytes, legacy)
    except ValueError as exc:
        raise CorruptRecordError(f"{name} data of {len(view)} bytes cannot be decompressed: {exc}") from exc


class _TooLarge(ValueError):
    def __init__(self, max_bytes: int) -> None:
        super().__init__(f"it holds more than the {max_bytes} bytes that are allowed")


def _joined(pieces: list[Any]) -> bytes | memoryview:
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _gathered(pieces: Iterator[bytes], max_bytes: int) -> bytes | memoryview:
    """Small pieces as one; a batch that fills its limit is not held twice. Raises _TooLarge as soon as they have more than max_bytes."""
    held: list[bytes] = []
    whole: bytearray | None = None
    size = 0
    for piece in pieces:
        size += len(piece)
        if size > max_bytes:
            raise _TooLarge(max_bytes)
        if whole is None:
            held.append(piece)
            if size > LARGE:
                whole = bytearray().join(held)
        else:
            whole += piece
    return _joined(held) if whole is None else memoryview(whole)


# -- none --------------------------------------------------------------------------------------------------------------
def _nothing() -> None:
    return None


def _stored(data: Buffer, level: int | None, legacy: bool) -> bytes:
    return bytes(data)


def _unstored(data: memoryview, max_bytes: int, legacy: bool) -> memoryview:
    if len(data) > max_bytes:
        raise _TooLarge(max_bytes)
    return data


# -- gzip --------------------------------------------------------------------------------------------------------------
def _gzip(data: Buffer, level: int | None, legacy: bool) -> bytes:
    packer = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION if level is None else level, zlib.DEFLATED, 31)
    return packer.compress(data) + packer.flush()


def _gunzip(data: memoryview, max_bytes: int, legacy: bool) -> bytes | memoryview:
    return _gathered(_members(data), max_bytes)


def _members(data: memoryview) -> Iterator[bytes]:
    at, pieces = 0, Pieces()
    while at < len(data) or not at:
        pieces.frame()
        member = zlib.decompressobj(31)
        while not member.eof:
            given = data[at : at + PIECE_IN]
            try:
                piece = member.decompress(given, PIECE_OUT)
            except zlib.error as exc:
                raise ValueError(str(exc)) from exc
            at += len(given) - len(member.unconsumed_tail) - len(member.unused_data)
            if piece:
                yield piece
            elif not given and not member.eof:  # nothing came of what it still held either
                raise ValueError("the data ends in the middle of a member")


# -- snappy ------------------------------------------------------------------------------------------------------------
@functools.cache
def _snappy_package() -> tuple[Callable[[Buffer], Any], Callable[[Buffer, memoryview], Any], type[Exception]]:
    """Raw compress, raw decompress into memory of the right size, and the error of the latter: cramjam's own, else through python-snappy."""
    try:
        cramjam = importlib.import_module("cramjam")
    except ImportError:
        snappy = _package("snappy")
        return lambda b: snappy.compress(bytes(b)), functools.partial(_uncompressed_into, snappy), snappy.UncompressError
    return cramjam.snappy.compress_raw, cramjam.snappy.decompress_raw_into, cramjam.DecompressionError


def _uncompressed_into(snappy: Any, block: Buffer, memory: memoryview) -> None:
    memory[:] = snappy.uncompress(bytes(block))


def snappy_block(data: Buffer) -> bytes:
    """One raw snappy block, without the framing that `compress` puts around. Raises UnsupportedCodec if the package is missing."""
    return bytes(_snappy_package()[0](memoryview(data).cast("B")))


def _snappy(data: Buffer, level: int | None, legacy: bool) -> bytes:
    pack = _snappy_package()[0]
    view = memoryview(data).cast("B")
    out = [snappyframe.HEADER]
    for at in range(0, len(view), snappyframe.BLOCK_SIZE):
        block = bytes(pack(view[at : at + snappyframe.BLOCK_SIZE]))
        out += (len(block).to_bytes(4, "big"), block)
    return b"".join(out)


def _unsnappy(data: memoryview, max_bytes: int, legacy: bool) -> bytes | memoryview:
    unpack, error = _snappy_package()[1:]
    blocks = []
    size = 0
    for block, claim in snappyframe.blocks(data):
        size += claim
        if size > max_bytes:
            raise _TooLarge(max_bytes)
        blocks.append((block, claim))
    whole = memoryview(bytearray(size))
    at = 0
    try:
        for block, claim in blocks:
            unpack(block, whole[at : at + claim])
            at += claim
    except error as exc:
        raise ValueError(str(exc) or "a block is damaged") from exc
    return whole


# -- lz4 ---------------------------------------------------------------------------------------------------------------
@functools.cache
def _lz4_package() -> Any:
    _package("lz4")
    return importlib.import_module("lz4.frame")


def _lz4(data: Buffer, level: int | None, legacy: bool) -> bytes:
    """One frame as Java's client writes it: independent blocks of 64 KiB, neither content size nor checksum.

    Brokers before 0.10 refuse a content size and brokers of any age refuse blocks that depend on each other.
    """
    package = _lz4_package()
    options = {"block_size": package.BLOCKSIZE_MAX64KB, "block_linked": False, "store_size": False}
    packed: bytes = package.compress(data, compression_level=level or 0, **options)
    return lz4frame.broken_checksum(packed) if legacy else packed


@functools.cache
def lz4_block_reader() -> tuple[Callable[..., int], type[Exception]] | None:
    """What unpacks one block into given memory, and its error: cramjam's, as the lz4 package has none. None where one of the two is not installed."""
    try:
        _lz4_package()
        cramjam = importlib.import_module("cramjam")
        return cramjam.lz4.decompress_block_into, cramjam.DecompressionError
    except (ImportError, AttributeError, UnsupportedCodec):
        return None


def _unlz4(data: memoryview, max_bytes: int, legacy: bool) -> bytes | memoryview:
    package = _lz4_package()
    if legacy:
        data = memoryview(lz4frame.mended(data))
    elif (plain := unlz4_blocks(data, max_bytes)) is not None:
        return plain
    frames = [*lz4frame.frames(data)]
    if not frames:
        raise ValueError("there is no frame in it")
    return _gathered(_lz4_pieces(package.LZ4FrameDecompressor, data, frames), max_bytes)


def unlz4_blocks(data: memoryview, max_bytes: int) -> memoryview | None:
    """A frame as Java's client writes it, block by block into one memory, which takes a fifth less time. None: it is another one, a large one, or
    something is wrong with it, which the frame's own reader can say.
    """
    reader = lz4_block_reader()
    blocks = lz4frame.plain_blocks(data, min(max_bytes, LARGE)) if reader is not None else None
    if reader is None or blocks is None:
        return None
    unpack, error = reader
    whole = memoryview(bytearray(sum(room or len(block) for block, room in blocks)))
    size = 0
    try:
        for block, room in blocks:
            if room:
                size += unpack(block, whole[size : size + room], output_len=room)
            else:
                whole[size : size + len(block)] = block
                size += len(block)
    except (error, ValueError):
        return None
    return whole[:size]


def _lz4_pieces(decompressor: Callable[[], Any], data: memoryview, frames: list[lz4frame.Frame]) -> Iterator[bytes]:
    for frame in frames:
        context, at = decompressor(), frame.start
        most = min(frame.bound + 1, PIECE_OUT)
        while not context.eof:
            given = data[at : min(at + PIECE_IN, frame.end)] if context.needs_input else b""
            at += len(given)
            try:
                piece = context.decompress(given, max_length=most)
            except RuntimeError as exc:
                raise ValueError(str(exc)) from exc
            if piece:
                yield piece
            elif not given and not context.eof:
                raise ValueError("a frame does not hold what its blocks say")


# -- zstd --------------------------------------------------------------------------------------------------------------
@functools.cache
def _zstd_package() -> Any:
    return _package("zstandard")


_zstd_writers: dict[int, list[Any]] = {}
_zstd_readers: list[Any] = []


def _zstd(data: Buffer, level: int | None, legacy: bool) -> bytes:
    wanted = ZSTD_LEVEL if level is None else level
    make = functools.partial(_zstd_package().ZstdCompressor, level=wanted)
    # A context must not be used by two threads at once and costs 14 us and more to make: taken from the list, then put back.
    contexts = _zstd_writers.setdefault(wanted, [])
    context = _taken(contexts, make)
    out: bytes = context.compress(data)
    _put_back(contexts, context)
    return out


def _unzstd(data: memoryview, max_bytes: int, legacy: bool) -> bytes | memoryview:
    package = _zstd_package()
    context = _taken(_zstd_readers, functools.partial(package.ZstdDecompressor, max_window_size=ZSTD_SMALL_WINDOW))
    unpacked = functools.partial(_unzstd_frame, context, package, data)
    out = _frames_unpacked(zstdframe.frames(data), unpacked, max_bytes)
    _put_back(_zstd_readers, context)  # one that raised is not put back
    return out


def _unzstd_frame(context: Any, package: Any, data: memoryview, frame: zstdframe.Frame, room: int) -> bytes:
    if frame.stated and frame.bound > room:  # max_output_size is not looked at where the header states a size
        raise _TooLarge(room)
    if frame.window > ZSTD_WINDOW and not frame.stated:
        raise ValueError(f"a frame asks for a window of {frame.window} bytes; Kafka's clients use at most {ZSTD_WINDOW}")
    most = min(frame.bound, room) or 1
    whole: memoryview | bytes = data[frame.start : frame.end]
    try:
        if frame.window > ZSTD_SMALL_WINDOW and not frame.stated:
            whole = _sized(package, data, frame, room)
        out: bytes = context.decompress(whole, max_output_size=most, allow_extra_data=False)
    except package.ZstdError as exc:
        if frame.bound > room and "full frame" in str(exc):
            raise _TooLarge(room) from exc
        raise ValueError(str(exc)) from exc
    return out


def _sized(package: Any, data: memoryview, frame: zstdframe.Frame, room: int) -> bytes:
    """A frame with a large window, as one that needs none beside the result: it says how much it holds.

    To learn that it is read twice where it may hold more than a small window, in pieces that are not kept, so that window and
    result never stand side by side: both may be as large as the limit.
    """
    needed = min(frame.bound, room)
    narrow = zstdframe.narrowed(data, frame, needed)
    if needed <= ZSTD_SMALL_WINDOW:
        return narrow
    size = 0
    for piece in package.ZstdDecompressor(max_window_size=ZSTD_WINDOW).read_to_iter(narrow):
        size += len(piece)
        if size > room:
            raise _TooLarge(room)
    return zstdframe.stated(data, frame, size)


def _taken(contexts: list[Any], make: Callable[[], Any]) -> Any:
    try:
        return contexts.pop()  # atomic: no other thread gets the same one
    except IndexError:
        return make()


def _put_back(contexts: list[Any], context: Any) -> None:
    if len(contexts) < POOL:
        contexts.append(context)


# -- what the codecs share ---------------------------------------------------------------------------------------------
def _frames_unpacked(frames: Iterator[Any], unpacked: Callable[[Any, int], bytes], max_bytes: int) -> bytes | memoryview:
    """The contents of frames, joined. unpacked(frame, room) may give more than room bytes only to show that there are more."""
    pieces: list[bytes] = []
    size = 0
    for frame in frames:
        piece = unpacked(frame, max_bytes - size)
        size += len(piece)
        if size > max_bytes:
            raise _TooLarge(max_bytes)
        pieces.append(piece)
    if not pieces:
        raise ValueError("there is no frame in it")
    return _joined(pieces)


def _package(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as exc:
        extra = EXTRAS[module]
        raise UnsupportedCodec(f"{extra} compression needs the package {PACKAGES[module]} ({exc}): {install(extra)}") from exc


LOADERS: dict[str, Callable[[], Any]] = {"snappy": _snappy_package, "lz4": _lz4_package, "zstd": _zstd_package}
COMPRESSORS: dict[str, Callable[[Buffer, int | None, bool], bytes]] = {
    "none": _stored,
    "gzip": _gzip,
    "snappy": _snappy,
    "lz4": _lz4,
    "zstd": _zstd,
}
DECOMPRESSORS: dict[str, Callable[[memoryview, int, bool], bytes | memoryview]] = {
    "none": _unstored,
    "gzip": _gunzip,
    "snappy": _unsnappy,
    "lz4": _unlz4,
    "zstd": _unzstd,
}
