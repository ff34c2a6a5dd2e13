"""The proxy does to a connection what it is told, and nothing else."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tests.faults.proxy import PRODUCE, Cut, Delay, Door, Flip, Lose, Plan
from tests.kit.clock import PATIENCE_S, now

METADATA = 3
REPLY = b"x" * 100


class Broker:
    """Answers each frame with its correlation id and REPLY; counts what reached it, by API."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                self._threads.append(threading.Thread(target=self._serve, args=(sock,), daemon=True))
                self._threads[-1].start()

    def _serve(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError, struct.error), sock, sock.makefile("rb") as file:
            while True:
                (size,) = struct.unpack(">i", file.read(4))
                api, _, correlation = struct.unpack(">hhi", file.read(size)[:8])
                self.asked.append(api)
                sock.sendall(struct.pack(">ii", 4 + len(REPLY), correlation) + REPLY)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()


class Client:
    """One connection, as a client has it."""

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._correlation = 0

    def ask(self, api: int) -> None:
        self._correlation += 1
        self.sock.sendall(struct.pack(">ihhi", 8, api, 0, self._correlation))

    def read(self, size: int = 108) -> bytes:
        """So many bytes, or what came before the end of the connection."""
        data = b""
        with contextlib.suppress(ConnectionError):
            while len(data) < size and (more := self.sock.recv(size - len(data))):
                data += more
        return data

    def close(self) -> None:
        self.sock.close()


@pytest.fixture
def broker() -> Iterator[Broker]:
    broker = Broker()
    yield broker
    broker.close()


@pytest.fixture
def plan() -> Plan:
    return Plan(seed=1)


@pytest.fixture
def door(broker: Broker, plan: Plan) -> Iterator[Door]:
    with Door(plan, lambda: broker.address) as door:
        yield door


@pytest.fixture
def connect(door: Door) -> Iterator[Callable[[], Client]]:
    made: list[Client] = []

    def make() -> Client:
        made.append(Client(door.port))
        return made[-1]

    yield make
    for client in made:
        client.close()


Connect = Callable[[], Client]


def answer(correlation: int) -> bytes:
    return struct.pack(">ii", 104, correlation) + REPLY


def test_frames_pass_in_both_directions(connect: Connect, broker: Broker, plan: Plan) -> None:
    client = connect()
    for number in (1, 2, 3):
        client.ask(METADATA)
        assert client.read() == answer(number)
    assert broker.asked == [METADATA] * 3
    assert (plan.connections, plan.ended) == (1, 0)


def test_a_lost_reply_ends_the_connection_after_the_broker_acted(connect: Connect, broker: Broker, plan: Plan) -> None:
    rule = plan.add(PRODUCE, Lose(), times=1)
    client = connect()
    client.ask(METADATA)
    assert client.read() == answer(1), "only replies of the API that was named are lost"
    client.ask(PRODUCE)
    assert client.read() == b""
    assert broker.asked == [METADATA, PRODUCE]
    assert (rule.hits, plan.ended) == (1, 1)
    again = connect()
    again.ask(PRODUCE)
    assert again.read() == answer(1), "once was asked for"


@pytest.mark.parametrize("at", [0, 1, 3, 4, 7, 8, 50, 107])
def test_a_reply_is_cut_at_its_nth_byte(connect: Connect, plan: Plan, at: int) -> None:
    plan.add(None, Cut(at))
    client = connect()
    client.ask(METADATA)
    assert client.read() == answer(1)[:at]


def test_a_delayed_reply_comes_later(connect: Connect, plan: Plan) -> None:
    plan.add(METADATA, Delay(0.2), times=1)
    client, began = connect(), now()
    client.ask(METADATA)
    client.ask(METADATA)
    assert client.read(216) == answer(1) + answer(2), "and what comes after it does not overtake it"
    assert now() - began >= 0.2


def test_a_delay_with_a_longest_is_some_time_between(connect: Connect, plan: Plan) -> None:
    plan.add(METADATA, Delay(0.1, most=0.3))
    client, began = connect(), now()
    client.ask(METADATA)
    assert client.read() == answer(1)
    assert now() - began >= 0.1


def test_one_bit_of_a_reply_is_flipped_near_what_is_looked_for(connect: Connect, plan: Plan) -> None:
    plan.add(METADATA, Flip(near=b"xx", reach=2), times=1)
    client = connect()
    client.ask(METADATA)
    there, sent = client.read(), answer(1)
    changed = [at for at, (a, b) in enumerate(zip(there, sent, strict=True)) if a != b]
    assert len(changed) == 1
    assert changed[0] >= 8, "among the x"
    assert (there[changed[0]] ^ sent[changed[0]]).bit_count() == 1
    assert plan.flipped == 1


def test_a_reply_without_what_is_looked_for_arrives_whole(connect: Connect, plan: Plan) -> None:
    plan.add(METADATA, Flip(near=b"y", reach=1))
    client = connect()
    client.ask(METADATA)
    assert client.read() == answer(1)
    assert plan.flipped == 0


def test_replies_may_come_slowly_and_byte_by_byte(connect: Connect, plan: Plan) -> None:
    plan.drip, plan.rate = True, 540.0
    client, began = connect(), now()
    client.ask(METADATA)
    assert client.read() == answer(1)
    assert now() - began >= 0.15
    plan.clear()
    assert not plan.drip
    assert not plan.rate


def test_the_plan_remembers_who_asked_what_and_when(door: Door, plan: Plan) -> None:
    began = now()
    with socket.create_connection(("127.0.0.1", door.port), timeout=60) as sock:
        sock.sendall(struct.pack(">ihhih2s", 12, METADATA, 0, 1, 2, b"me"))
        assert len(sock.recv(108)) > 0
    ((key, times),) = plan.asked.items()
    assert key == ("me", METADATA)
    assert began <= times[0] <= now()


def test_replies_wait_while_the_brokers_are_silent(connect: Connect, broker: Broker, plan: Plan) -> None:
    client = connect()
    plan.silence()
    client.ask(PRODUCE)
    client.sock.settimeout(0.2)
    with pytest.raises(TimeoutError):
        client.sock.recv(1)
    deadline = now() + PATIENCE_S
    while not broker.asked and now() < deadline:
        time.sleep(0.005)
    assert broker.asked == [PRODUCE], "the broker acts all the same"
    client.sock.settimeout(60)
    plan.clear()
    assert client.read() == answer(1)


def test_connections_end_with_their_lifetime(connect: Connect, plan: Plan) -> None:
    plan.lifetime = (0.1, 0.3)
    began = now()
    client = connect()
    assert client.read() == b""
    assert now() - began >= 0.1
    assert plan.ended == 1


def test_a_door_that_is_down_ends_what_is_open_and_lets_nobody_in(connect: Connect, door: Door) -> None:
    client = connect()
    client.ask(METADATA)
    assert client.read() == answer(1)
    door.down()
    assert client.read() == b""
    with pytest.raises(ConnectionRefusedError):
        connect()
    door.up()
    after = connect()
    after.ask(METADATA)
    assert after.read() == answer(1)


def test_what_is_not_a_frame_of_kafka_ends_the_connection(connect: Connect) -> None:
    client = connect()
    client.sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
    assert client.read() == b""


def test_closing_a_door_ends_its_workers(broker: Broker, plan: Plan) -> None:
    before = set(threading.enumerate())
    with Door(plan, lambda: broker.address) as door:
        clients = [Client(door.port) for _ in range(5)]
        for client in clients:
            client.ask(METADATA)
            assert client.read() == answer(1)
        plan.silence()
        clients[0].ask(METADATA)
    for client in clients:
        client.close()
    doors = [t for t in threading.enumerate() if t not in before and "_accept" not in t.name and "_serve" not in t.name]
    assert not doors
