"""Receive buffers: reused when nothing refers to them, never before; frames cut from any chunking; memory by what arrived."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gkafka.net import buffers
from gkafka.net.buffers import FIRST_CLAIM, LARGEST_POOLED, SMALL, STAGE, BufferPool, FrameReader
from tests.kit.memory import traced

pooling = pytest.mark.skipif(buffers.IDLE < 0, reason="this interpreter does not count references: nothing is pooled")


def pool(max_bytes: int = 16 << 20) -> BufferPool:
    return BufferPool(threading.Lock(), max_bytes)


def source(data: bytes, chunks: Callable[[], int]) -> Callable[[memoryview], int]:
    """A receive() that hands out the data in pieces of at most chunks() bytes."""
    at = 0

    def receive(view: memoryview) -> int:
        nonlocal at
        n = min(len(view), max(1, chunks()), len(data) - at)
        if n == 0:
            raise EOFError
        view[:n] = data[at : at + n]
        at += n
        return n

    return receive


def whole_frames(receive: Callable[[memoryview], int], stop_at: int = 1 << 62) -> Callable[[memoryview, bytearray], tuple[int, int]]:
    """Stream.recv_frame as the compiled one does it. stop_at: bytes after which it gives back what it has."""

    def receive_frame(stage: memoryview, buffer: bytearray) -> tuple[int, int]:
        staged = receive(stage)
        size = int.from_bytes(stage[:4], "big") if staged >= 4 else 0
        if not len(stage) < size <= len(buffer):
            return staged, 0
        buffer[: staged - 4] = stage[4:staged]
        got = staged - 4
        while got < min(size, stop_at):
            got += receive(memoryview(buffer)[got:size])
        return staged, got

    return receive_frame


def size_of(prefix: memoryview) -> int:
    return int(struct.unpack(">i", prefix)[0])


def reader(frames: list[bytes], chunk: int = 1 << 30, into: BufferPool | None = None) -> FrameReader:
    data = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
    return FrameReader(source(data, lambda: chunk), size_of, into or pool())


def body(size: int, seed: int = 1) -> bytes:
    return bytes((seed + i) % 251 for i in range(251)) * (size // 251 + 1)


SIZES = [4, 5, 100, SMALL - 1, SMALL, SMALL + 1, STAGE - 4, STAGE, STAGE + 1, 200_000, FIRST_CLAIM, FIRST_CLAIM + 1, LARGEST_POOLED + 5]


@pytest.mark.parametrize("chunk", [1000, 4096, 65536, 1 << 30])
def test_frames_of_every_size_come_out_whole(chunk: int) -> None:
    frames = [body(size, index)[:size] for index, size in enumerate(SIZES)]
    cut = reader(frames, chunk)
    for frame in frames:
        assert cut.read() == frame
    assert cut.pristine


@pytest.mark.parametrize("stop_at", [1, 100_000, 1 << 62])
@pytest.mark.parametrize("chunk", [1000, 65536, 1 << 30])
def test_frames_that_are_received_whole_are_the_same(chunk: int, stop_at: int) -> None:
    """Large ones behind large ones, of any sizes, with small ones between."""
    sizes = [
        200_000,
        180_000,
        5,
        190_000,
        190_000,
        200_000,
        3 << 20,
        3 << 20,
        200_000,
        200_000,
        STAGE,
        STAGE,
        STAGE + 1,
        SMALL,
        *SIZES,
        *SIZES,
    ]
    frames = [body(size, index)[:size] for index, size in enumerate(sizes)]
    data = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
    receive = source(data, lambda: chunk)
    calls: list[int] = []

    def receive_frame(stage: memoryview, buffer: bytearray) -> tuple[int, int]:
        staged, got = whole_frames(receive, stop_at)(stage, buffer)
        calls.append(got)
        return staged, got

    cut = FrameReader(receive, size_of, pool(), STAGE, receive_frame)
    for frame in frames:
        assert cut.read() == frame
    assert cut.pristine
    assert buffers.IDLE < 0 or sum(got > 0 for got in calls) >= 5


@given(st.lists(st.integers(4, 3000), max_size=20), st.integers(0, 2**32))
def test_chunking_does_not_matter(sizes: list[int], seed: int) -> None:
    frames = [body(size, index)[:size] for index, size in enumerate(sizes)]
    data = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
    state = seed

    def chunks() -> int:
        nonlocal state
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        return state % 700 + 1

    cut = FrameReader(source(data, chunks), size_of, pool())
    assert [bytes(cut.read()) for _ in frames] == frames


@pytest.mark.parametrize("size", [100, 50_000, 3 << 20])
def test_a_frame_that_is_held_stays_as_it_is(size: int) -> None:
    frames = [body(size, index)[:size] for index in range(8)]
    cut = reader(frames)
    held = cut.read()[10:90]
    for _ in frames[1:]:
        cut.read()
    assert held == frames[0][10:90]
    assert held.readonly


@pooling
@pytest.mark.parametrize("size", [50_000, (1 << 20) + 200, 3 << 20, (4 << 20) + 200, LARGEST_POOLED])
def test_a_buffer_is_used_again_once_nothing_refers_to_it(size: int) -> None:
    memory = pool()
    cut = reader([body(size)[:size]] * 6, into=memory)
    seen = {id(cut.read().obj) for _ in range(6)}
    assert len(seen) == 1
    assert memory.pooled_bytes <= 2 * size + STAGE
    assert memory.pooled_bytes < 1.1 * size or size < 1 << 20 or size == 3 << 20, "records of 1 or 4 MiB fit their class"


@pooling
def test_a_buffer_is_not_used_again_while_a_slice_of_it_lives() -> None:
    cut = reader([body(100_000)[:100_000]] * 3)
    first = cut.read()
    slice_ = first[5:10]
    del first
    second = cut.read()
    assert second.obj is not slice_.obj
    del slice_
    assert cut.read().obj is not second.obj


@pooling
def test_the_pool_remembers_no_more_than_its_bound() -> None:
    memory = pool(max_bytes=1 << 20)
    cut = reader([body(300_000)[:300_000]] * 10 + [body(3 << 20)[: 3 << 20]], into=memory)
    held = []
    for _ in range(11):
        held.append(cut.read())
        assert memory.pooled_bytes <= 1 << 20
    memory.clear()
    assert memory.pooled_bytes == 0


def test_a_claim_takes_memory_for_what_arrives_not_for_what_it_says() -> None:
    """G17: 2 GiB are claimed, 3 MB come."""
    data = struct.pack(">i", 0x7FFFFFFF) + body(3_000_000)[:3_000_000]
    cut = FrameReader(source(data, lambda: 65536), size_of, pool())
    with traced() as peak:
        with pytest.raises(EOFError):
            cut.read()
        assert peak() < 12 << 20
