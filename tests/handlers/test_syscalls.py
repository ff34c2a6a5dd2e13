"""What is compiled of a connection. receive_frame: what is in the stage and in the buffer afterwards, with whatever comes and stops to come. Alarm: what ends
a worker's sleep.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from gkafka.exceptions import SocketDisconnectedError
from gkafka.handlers import resolve_handler
from tests.kit.clock import busy, now, soon

_syscalls = pytest.importorskip("gkafka.handlers._syscalls", reason="gkafka is not compiled here")
receive_frame, receive_now, hand_over = _syscalls.receive_frame, _syscalls.receive_now, _syscalls.hand_over

HELD = 4096
"""Bytes: so many are sent without letting go of the interpreter's lock."""
STAGE, BUFFER = 1024, 64 * 1024
WAIT_S = 60.0  # SO_RCVTIMEO

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    wait_at_most(ours, WAIT_S)
    with ours, theirs:
        yield ours, theirs


def wait_at_most(ours: socket.socket, seconds: float) -> None:
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", int(seconds), int(seconds % 1 * 1e6)))


def send_now(fd: int, *buffers: bytes | bytearray | memoryview) -> int:
    return int(_syscalls.send_now(fd, list(buffers), sum(map(len, buffers))))


def sized(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


class Sending:
    """What the peer sends while the frame is received: pieces, with a pause before each until the block is left."""

    def __init__(self, theirs: socket.socket, *pieces: bytes, pause_s: float = 0.0) -> None:
        self._over = threading.Event()
        self._worker = threading.Thread(target=self._send, args=(theirs, pieces, pause_s))
        self._worker.start()

    def _send(self, theirs: socket.socket, pieces: tuple[bytes, ...], pause_s: float) -> None:
        for piece in pieces:
            if pause_s and self._over.wait(pause_s):
                return
            theirs.sendall(piece)

    def __enter__(self) -> Sending:
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._worker.join()


def receive(ours: socket.socket, *, seconds: float = 120.0) -> tuple[bytes, bytes]:
    stage, buffer = memoryview(bytearray(STAGE)), bytearray(BUFFER)
    staged, got = receive_frame(ours.fileno(), stage, buffer, seconds)
    assert staged >= 0
    assert not any(buffer[got:]), "nothing is written behind what came"
    return bytes(stage[:staged]), bytes(buffer[:got])


@pytest.mark.parametrize("size", [STAGE + 1, 5000, BUFFER - 1, BUFFER])
@pytest.mark.parametrize("chunk", [700, 4096, 1 << 20])
def test_a_frame_larger_than_the_stage_comes_whole(pair: Pair, size: int, chunk: int) -> None:
    body = random.Random(size).randbytes(size)
    data = sized(body) + b"next"
    with Sending(pair[1], *(data[i : i + chunk] for i in range(0, len(data), chunk))):
        staged, got = receive(pair[0])
        assert got == body
        assert data.startswith(staged)
    assert pair[0].recv(100) == b"next"


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\0\x10", sized(b"x" * 10), sized(b"x" * (STAGE - 4)), sized(b"x" * STAGE)])
def test_what_fits_into_the_stage_stays_there(pair: Pair, data: bytes) -> None:
    pair[1].sendall(data)
    pair[1].shutdown(socket.SHUT_WR)
    assert receive(pair[0]) == (data[:STAGE], b"")


@pytest.mark.parametrize("size", [BUFFER + 1, 1 << 31, 0xFFFFFFFF])
def test_a_size_beyond_the_buffer_is_left_to_the_caller(pair: Pair, size: int) -> None:
    pair[1].sendall(struct.pack(">I", size) + b"x" * 3000)
    begun = now()
    staged, got = receive(pair[0])
    assert (len(staged), got) == (STAGE, b"")
    assert now() - begun < WAIT_S


def test_nothing_comes(pair: Pair) -> None:
    wait_at_most(pair[0], 0.2)
    assert receive_frame(pair[0].fileno(), memoryview(bytearray(STAGE)), bytearray(BUFFER), 5.0) == (-1, 0)


@pytest.mark.parametrize("then", ["closed", "silent"])
def test_half_a_frame_is_kept(pair: Pair, then: str) -> None:
    body = b"x" * 3000
    pair[1].sendall(sized(body)[:2000])
    if then == "silent":
        wait_at_most(pair[0], 0.2)
    else:
        pair[1].shutdown(socket.SHUT_WR)
    _, got = receive(pair[0])
    assert got == body[:1996]


def test_a_frame_that_trickles_ends_the_call_in_time(pair: Pair) -> None:
    body = b"x" * 3000
    wait_at_most(pair[0], 0.2)
    pair[1].sendall(sized(body)[:1500])
    with Sending(pair[1], *([b"x"] * 1000), pause_s=0.02):
        begun = now()
        _, got = receive(pair[0], seconds=0.1)
        assert now() - begun < 15
        assert 1496 <= len(got) < 2496


def test_a_lost_connection_is_an_error_with_its_number() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        theirs.close()  # a reset
        with ours, pytest.raises(ConnectionResetError):
            receive(ours)


def test_a_signal_ends_the_call_with_what_came(pair: Pair) -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, _: seen.append(number))
    wait_at_most(pair[0], 1000)
    try:
        pair[1].sendall(sized(b"x" * 3000)[:2000])
        signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
        _, got = receive(pair[0], seconds=1000)
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert (len(got), set(seen)) == (1996, {signal.SIGALRM})
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_others_work_meanwhile(pair: Pair) -> None:
    """This thread gives the lock to nobody, and the frame is there all the same, however many pieces it comes in."""
    data = sized(b"x" * BUFFER)
    stage, buffer = memoryview(bytearray(STAGE)), bytearray(BUFFER)
    pair[1].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 * BUFFER)
    worker = threading.Thread(target=receive_frame, args=(pair[0].fileno(), stage, buffer, 120.0))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(60)
    try:
        worker.start()
        time.sleep(0.05)  # it has had the lock until it waits for bytes
        for n, at in enumerate(range(0, len(data), HELD)):
            piece = data[at : at + HELD]
            assert send_now(pair[1].fileno(), piece) == len(piece)
            busy(0.05 if n == 1 else 0.0)
        deadline = now() + 50
        while now() < deadline and not buffer[-1]:
            pass
        came = bytes(buffer)
    finally:
        sys.setswitchinterval(interval)
    worker.join()
    assert came == data[4:]


def test_a_full_socket_takes_a_part_and_then_nothing(pair: Pair) -> None:
    pair[1].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
    taken: list[int] = []

    def fill() -> None:
        while True:
            taken.append(send_now(pair[1].fileno(), b"x" * 1500))

    with pytest.raises(BlockingIOError):
        fill()
    sent = sum(taken)
    assert sent > 0
    pair[1].close()
    assert len(b"".join(iter(lambda: pair[0].recv(1 << 20), b""))) == sent


@pytest.mark.parametrize("data", [b"bytes", bytearray(b"array"), memoryview(b"a view")[2:]])
def test_any_bytes_are_sent_at_once(pair: Pair, data: bytes | bytearray | memoryview) -> None:
    assert send_now(pair[1].fileno(), data) == len(data)
    assert pair[0].recv(100) == data


@pytest.mark.parametrize("size", [1, HELD])
def test_many_buffers_go_in_their_order_and_what_does_not_fit_one_call_is_left(pair: Pair, size: int) -> None:
    pair[1].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    buffers = [bytes([n % 251]) * size for n in range(1500)]
    sent = send_now(pair[1].fileno(), *buffers)
    assert 0 < sent <= 1024 * size  # IOV_MAX
    pair[1].close()
    assert b"".join(iter(lambda: pair[0].recv(1 << 20), b"")) == b"".join(buffers)[:sent]


def test_what_has_come_is_received_and_nothing_is_waited_for(pair: Pair) -> None:
    view = memoryview(bytearray(10))
    with pytest.raises(BlockingIOError):
        receive_now(pair[0].fileno(), view)
    pair[1].sendall(b"twelve bytes")
    assert (receive_now(pair[0].fileno(), view), bytes(view)) == (10, b"twelve byt")
    assert (receive_now(pair[0].fileno(), view), bytes(view[:2])) == (2, b"es")
    pair[1].close()
    assert receive_now(pair[0].fileno(), view) == 0


# -- an alarm
class Sleeper:
    """A thread that sleeps on an alarm; `woke` has what each of its waits returned and found."""

    def __init__(self, alarm: Any, times: int = 1) -> None:
        self.alarm, self.woke = alarm, []  # type: tuple[Any, list[tuple[bool, list[int]]]]
        self._worker = threading.Thread(target=self._sleep, args=(times,))
        self._worker.start()

    def _sleep(self, times: int) -> None:
        for _ in range(times):
            self.woke.append((self.alarm.wait(60), self.alarm.ready))
            self.alarm.clear()

    def join(self) -> None:
        self._worker.join(30)
        assert not self._worker.is_alive()


@pytest.mark.parametrize("end", ["closed", "dropped"])
def test_an_alarm_has_no_descriptor_before_somebody_sleeps_on_it_nor_behind_its_end(end: str) -> None:
    before = set(os.listdir("/proc/self/fd"))
    alarm = _syscalls.Alarm()
    alarm.set()
    assert alarm.is_set()
    assert set(os.listdir("/proc/self/fd")) == before
    assert alarm.wait(60)
    assert len(set(os.listdir("/proc/self/fd")) - before) == 2
    if end == "closed":
        alarm.close()
        alarm.close()
        alarm.set()
    else:
        del alarm
    assert set(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("when", ["before", "while it sleeps"])
def test_an_alarm_that_is_set_ends_the_sleep_once(when: str) -> None:
    alarm = _syscalls.Alarm()
    if when == "before":
        alarm.set()
    sleeper = Sleeper(alarm)
    if when != "before":
        time.sleep(0.1)
        alarm.set()
    sleeper.join()
    assert sleeper.woke == [(True, [])]
    assert not alarm.is_set()
    assert alarm.wait(0.05) is False  # nor does what woke it come again
    assert alarm.wait(0) is False


@pytest.mark.parametrize("when", ["before", "while it sleeps"])
def test_bytes_for_a_connection_end_the_sleep_and_say_which(pair: Pair, when: str) -> None:
    alarm = _syscalls.Alarm()
    alarm.watch(pair[0].fileno())
    alarm.watch(pair[0].fileno())  # once more does nothing
    if when == "before":
        pair[1].sendall(b"x")
    sleeper = Sleeper(alarm)
    if when != "before":
        time.sleep(0.1)
        pair[1].sendall(b"x")
    sleeper.join()
    assert sleeper.woke == [(False, [pair[0].fileno()])]
    alarm.set()
    assert (alarm.wait(0), alarm.ready) == (True, [pair[0].fileno()])  # who is set looks, too, and until they are received they are there
    assert pair[0].recv(10) == b"x"
    alarm.clear()
    assert (alarm.wait(0.05), alarm.ready) == (False, [])


def test_a_connection_that_is_gone_cannot_be_watched(pair: Pair) -> None:
    alarm = _syscalls.Alarm()
    alarm.wait(0)  # it has its own descriptors by now
    number = pair[0].fileno()
    pair[0].close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        alarm.watch(number)


def test_the_lock_is_handed_to_who_was_woken_and_else_kept() -> None:
    """This thread gives the lock to nobody by itself."""
    alarm = _syscalls.Alarm()
    sleeper = Sleeper(alarm, 2)
    time.sleep(0.1)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(60)
    try:
        alarm.set()
        busy(0.1)
        assert not sleeper.woke
        deadline = now() + 30
        while not sleeper.woke and now() < deadline:
            hand_over(alarm)
        assert sleeper.woke
        hand_over(alarm)  # it sleeps, and nobody wants the lock
        alarm.set()
        busy(0.05)
    finally:
        sys.setswitchinterval(interval)
    sleeper.join()
    assert [is_set for is_set, _ in sleeper.woke] == [True, True]


def test_nobody_is_there_to_send_to(pair: Pair) -> None:
    pair[0].close()
    with pytest.raises(BrokenPipeError):  # and no SIGPIPE, which programs may have by default
        send_now(pair[1].fileno(), b"x")


def test_a_stream_sends_requests_of_every_size() -> None:
    handler = resolve_handler("threading")
    with socket.create_server(("127.0.0.1", 0)) as server:
        stream = handler.create_connection((socket.AF_INET, server.getsockname()), soon(60))
        theirs, _ = server.accept()
        with theirs:
            for parts in (
                [b"a"],
                [b"b", bytearray(b"c" * 100), memoryview(b"d")],
                [b"e" * 4096],
                [b"f" * 5000],
                [b"g" * 3000, b"h" * 3000],
            ):
                assert stream.try_send(parts) == sum(map(len, parts))
                assert theirs.recv(10_000) == b"".join(parts)
            stream.close()
            with pytest.raises(SocketDisconnectedError, match="closed by this client"):
                stream.try_send([b"x"])
    assert handler.stop()


@pytest.mark.parametrize("state", ["waiting for a frame", "waiting for its rest"])
def test_close_ends_it(state: str) -> None:
    handler = resolve_handler("threading")
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = (socket.AF_INET, server.getsockname())
        stream = handler.create_connection(address, soon(60))
        theirs, _ = server.accept()
        errors: list[BaseException] = []

        def read() -> None:
            try:
                stage, buffer = memoryview(bytearray(STAGE)), bytearray(BUFFER)
                while stream.recv_frame(stage, buffer, soon(1000)):
                    pass
            except BaseException as error:
                errors.append(error)

        with theirs:
            if state == "waiting for its rest":
                theirs.sendall(sized(b"x" * 3000)[:2000])
            worker = threading.Thread(target=read)
            worker.start()
            time.sleep(0.1)
            stream.close()
            worker.join(60)
            assert not worker.is_alive()
    assert [type(error) for error in errors] == [SocketDisconnectedError]
    assert "closed by this client" in str(errors[0])
    assert handler.stop()
