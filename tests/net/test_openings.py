"""So many connections of a client open at once; the others wait without a worker, and their requests' deadlines hold."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from gkafka.config import ClientConfig
from gkafka.exceptions import ConnectionFailedError, KafkaTimeoutError, SocketDisconnectedError
from gkafka.handlers import Handler
from gkafka.net.channel import Channel
from gkafka.net.openings import AT_ONCE, KEPT, Openings, Rank
from gkafka.net.stream import open_stream
from gkafka.testing import MockCluster, Sasl
from gkafka.wire.metadata import MetadataRequest
from tests.kit import clock
from tests.kit.clock import soon
from tests.net.servers import black_hole

FREE = AT_ONCE - KEPT


class Door:
    """An Opening that notes what is done with it."""

    def __init__(self, begun: list[Door], rank: Rank = Rank.NEW, *, raises: BaseException | None = None) -> None:
        self.rank, self.expires_at = rank, float("inf")
        self.begun, self.is_opening = False, True
        self.looked_at = 0
        self._begun, self._raises = begun, raises

    def begin(self) -> None:
        raises, self._raises = self._raises, None
        if raises is not None:
            raise raises
        self.begun = True
        self._begun.append(self)

    def look_while_waiting(self, now: float) -> None:
        self.looked_at += 1
        self.expires_at = float("inf")


@pytest.fixture
def openings(handler: Handler) -> Iterator[Openings]:
    one = Openings(handler)
    yield one
    for queue in one._waiting:
        queue.clear()  # who looks after them ends


def entered(openings: Openings, doors: list[Door]) -> list[Door]:
    for door in doors:
        openings.enter(door)
    return doors


def test_so_many_begin_at_once_and_the_next_in_turn(openings: Openings) -> None:
    begun: list[Door] = []
    doors = entered(openings, [Door(begun) for _ in range(FREE + 5)])
    assert begun == doors[:FREE]
    assert openings.waiting == 5
    openings.leave(doors[3])
    openings.leave(doors[3])
    assert begun == doors[: FREE + 1]


def test_brokers_that_are_known_wait_for_none_of_the_others(openings: Openings) -> None:
    begun: list[Door] = []
    entered(openings, [Door(begun) for _ in range(2 * AT_ONCE)])
    known = entered(openings, [Door(begun, Rank.KNOWN) for _ in range(KEPT + 1)])
    assert begun[FREE:] == known[:KEPT], "there are no more than AT_ONCE, all the same"
    openings.leave(begun[0])
    assert begun[-1] is known[-1]


def test_those_that_failed_come_behind_the_new_ones_and_still_come(openings: Openings) -> None:
    begun: list[Door] = []
    before = entered(openings, [Door(begun) for _ in range(FREE)])
    failing = entered(openings, [Door(begun, Rank.FAILING) for _ in range(4)])
    new = entered(openings, [Door(begun) for _ in range(8)])
    for door in before[:8]:
        openings.leave(door)
    after = begun[FREE:]
    assert [door for door in after if door in new] == new[: len(after) - 2]
    assert [door for door in after if door in failing] == failing[:2]


def test_who_was_closed_while_it_waited_never_begins(openings: Openings) -> None:
    begun: list[Door] = []
    doors = entered(openings, [Door(begun) for _ in range(FREE + 2)])
    assert openings.withdraw(doors[FREE])
    assert not openings.withdraw(doors[0])
    openings.leave(doors[0])
    assert begun[-1] is doors[-1]
    assert openings.waiting == 0


def test_a_place_whose_holder_could_not_give_it_back_is_found_empty(openings: Openings, handler: Handler) -> None:
    """Its reader was killed between two steps: whoever looks next sees that it opens no more."""
    begun: list[Door] = []
    doors = entered(openings, [Door(begun) for _ in range(FREE + 1)])
    doors[0].is_opening = False
    end = clock.now() + 60
    while not doors[-1].begun:
        assert clock.now() < end
        handler.sleep(0.01)


def test_who_was_interrupted_before_it_began_another_one_leaves_it_to_the_next(openings: Openings, handler: Handler) -> None:
    begun: list[Door] = []
    doors = entered(openings, [Door(begun) for _ in range(FREE)])
    last = [Door(begun, raises=KeyboardInterrupt()), Door(begun)]
    entered(openings, last)
    with pytest.raises(KeyboardInterrupt):
        openings.leave(doors[0])
    end = clock.now() + 60
    while not last[0].begun:
        assert clock.now() < end
        handler.sleep(0.01)
    assert not last[1].begun


# -- connections that wait -----------------------------------------------------------------------------------------------
@contextlib.contextmanager
def silent_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(2048)
        yield listener.getsockname()[1]


@pytest.fixture
def port() -> Iterator[int]:
    with silent_port() as one:
        yield one


def channel(handler: Handler, openings: Openings, port: int, **options: Any) -> Channel:
    return Channel(handler, "127.0.0.1", port, ClientConfig(**options), openings=openings)


@pytest.fixture
def opening(handler: Handler, port: int) -> Iterator[tuple[Openings, list[Channel]]]:
    """As many as open at once, at a port that says nothing."""
    openings = Openings(handler)
    channels = [channel(handler, openings, port, connect_timeout_ms=120_000) for _ in range(FREE)]
    for one in channels:
        one.start()
    yield openings, channels
    for one in channels:
        one.close()
    assert all(one.join(60) for one in channels)


def metadata() -> MetadataRequest:
    return MetadataRequest(topics=[])


def test_a_request_that_waits_for_its_turn_keeps_its_deadline(opening: tuple[Openings, list[Channel]], handler: Handler, port: int) -> None:
    openings, _channels = opening
    workers = len(handler.workers())
    late = [channel(handler, openings, port, connect_timeout_ms=120_000) for _ in range(50)]
    futures = [one.request(metadata(), timeout_s=0.3) for one in late]
    assert len(handler.workers()) <= workers + 1, "one looks after all that wait"
    began = clock.now()
    for future in futures:
        with pytest.raises(KafkaTimeoutError, match=f"{AT_ONCE} connections of a client are opened at once"):
            future.result(60)
    assert clock.now() - began < 60
    for one in late:
        with pytest.raises(KafkaTimeoutError):
            one.wait_open(soon(0))
        one.close()
        assert one.join(0), "there was no reader"
    assert openings.waiting == 0


def test_what_waits_fails_when_its_connection_is_closed(opening: tuple[Openings, list[Channel]], handler: Handler, port: int) -> None:
    openings, _ = opening
    one = channel(handler, openings, port)
    future = one.request(metadata(), timeout_s=60)
    one.close()
    with pytest.raises(SocketDisconnectedError):
        future.result(60)
    with pytest.raises(SocketDisconnectedError):
        one.request(metadata(), timeout_s=60).result(60)


def test_one_that_nobody_owns_any_more_leaves_the_line(opening: tuple[Openings, list[Channel]], handler: Handler, port: int) -> None:
    openings, _ = opening
    one = channel(handler, openings, port)
    one.start()
    one.abandon()
    assert one.join(60)
    assert one.closed
    assert openings.waiting == 0


def test_the_next_one_opens_when_one_has_failed(opening: tuple[Openings, list[Channel]], handler: Handler) -> None:
    openings, channels = opening
    with MockCluster(topics={"t": 1}) as cluster:
        one = channel(handler, openings, cluster.brokers[1][1])
        future = one.request(metadata(), timeout_s=60)
        handler.sleep(0.1)
        assert not one._place.begun
        channels[0].close()
        assert [broker.node_id for broker in future.result(60).brokers] == [1]
        one.close()
        assert one.join(60)


def test_what_is_open_keeps_no_other_from_opening(handler: Handler, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster may have a thousand brokers."""
    monkeypatch.setattr("gkafka.net.openings.AT_ONCE", 10)
    monkeypatch.setattr("gkafka.net.openings.KEPT", 2)
    openings = Openings(handler)
    with MockCluster(topics={"t": 1}) as cluster:
        channels = [channel(handler, openings, cluster.brokers[1][1]) for _ in range(40)]
        for one in channels:
            one.start()
        for one in channels:
            one.wait_open(soon(60))
        for one in channels:
            one.close()
        assert all(one.join(60) for one in channels)


def test_who_is_there_waits_for_no_hundred_that_are_silent(handler: Handler, port: int) -> None:
    """Two thirds of a large cluster may be away: fifteen brokers that answered waited 20 s behind thirty that did not."""
    openings = Openings(handler)
    silent = [channel(handler, openings, port) for _ in range(100)]
    for one in silent:
        one.start()
    with MockCluster(topics={"t": 1}) as cluster:
        there = channel(handler, openings, cluster.brokers[1][1])
        assert there.request(metadata(), timeout_s=60).result(60).brokers
        for one in (there, *silent):
            one.close()
        assert all(one.join(60) for one in (there, *silent))


def test_what_no_worker_can_be_started_for_is_told_and_who_made_room_goes_on(
    opening: tuple[Openings, list[Channel]], handler: Handler, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was the end of whichever connection had just opened or closed, and of the worker of those who wait."""
    openings, channels = opening
    waiting = [channel(handler, openings, port) for _ in range(3)]
    futures = [one.request(metadata(), timeout_s=timeout_s) for one, timeout_s in zip(waiting, (60, 0.5, 0.5), strict=True)]

    def none(*_: Any, **__: Any) -> Any:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(handler, "spawn", none)
        channels[0].close()
        with pytest.raises(ConnectionFailedError, match="no worker can be started to connect: RuntimeError: can't start new thread"):
            futures[0].result(60)
        at_once = channel(handler, Openings(handler), port)
        with pytest.raises(ConnectionFailedError, match="no worker can be started"):
            at_once.request(metadata(), timeout_s=60).result(60)
    for future in futures[1:]:
        with pytest.raises((ConnectionFailedError, KafkaTimeoutError)):
            future.result(60)
    for one in waiting:
        one.close()
        assert one.join(60)


def test_one_that_is_closed_on_top_of_who_opens_connections_is_told_all_the_same(
    opening: tuple[Openings, list[Channel]], handler: Handler, port: int
) -> None:
    """By a signal handler: what holds the line's lock is below it and cannot go on."""
    openings, _ = opening
    one, other = channel(handler, openings, port), channel(handler, openings, port)
    future, later = one.request(metadata(), timeout_s=60), other.request(metadata(), timeout_s=60)
    with openings._lock:
        one.close()
    with pytest.raises(SocketDisconnectedError):
        future.result(60)
    with other._link.lock:
        other.close()
    with pytest.raises(SocketDisconnectedError):
        later.result(60)


def test_a_place_is_held_while_a_function_of_the_users_is_asked(handler: Handler) -> None:
    """Else there would be no bound where a password is one."""
    openings = Openings(handler)
    held: list[int] = []

    def password() -> str:
        held.append(len(openings._inside))
        return "password"

    with MockCluster(sasl=Sasl({"user": "password"})) as cluster:
        options = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_username": "user", "sasl_password": password}
        one = channel(handler, openings, cluster.brokers[1][1], **options)
        one.wait_open(soon(60))
        assert held == [1]
        one.close()
        assert one.join(60)


def test_where_no_worker_can_be_started_a_connection_that_opens_is_watched_by_nobody(
    openings: Openings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asked for that has queued its request already, and must not hear that it failed."""
    begun: list[Door] = []
    (door,) = entered(openings, [Door(begun)])

    def no_thread(*_: Any, **__: Any) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(openings._handler, "spawn_lasting", no_thread)
        openings.watch(door)
        assert not openings._is_looked_after
    door.expires_at = 0.0
    openings.watch(door)
    deadline = clock.now() + 60
    while not door.looked_at and clock.now() < deadline:
        openings._handler.sleep(0.01)
    door.is_opening = False
    assert door.looked_at == 1


def on_its_way(handler: Handler, port: int, **options: Any) -> Channel:
    """A channel whose worker waits for a peer that does not answer."""
    channel = Channel(handler, "127.0.0.1", port, ClientConfig(connect_timeout_ms=120_000, **options))
    channel.start()
    end = clock.now() + 60
    while channel._link.stream is None and clock.now() < end:
        handler.sleep(0.005)
    handler.sleep(0.05)
    assert channel._place.is_opening
    return channel


def test_who_closes_a_connection_that_opens_ends_its_worker_at_once(handler: Handler) -> None:
    """While TCP connects, and while TLS is not answered: not when connect_timeout_ms is over."""
    with black_hole() as hole, socket.create_server(("127.0.0.1", 0)) as silent:
        for channel in (on_its_way(handler, hole), on_its_way(handler, silent.getsockname()[1], security_protocol="SSL")):
            errors: list[Any] = []
            channel.send(MetadataRequest(), lambda _, error, errors=errors: errors.append(error), timeout_s=60)
            channel.close()
            assert channel.join(60)
            (error,) = errors
            assert isinstance(error, SocketDisconnectedError)
            assert "closed by the client" in str(error)
            assert channel._link.stream is not None
            assert channel._link.stream.closed


def test_a_connection_that_is_closed_meanwhile_keeps_no_stream(handler: Handler) -> None:
    """It may be closed between two addresses of its host: whatever was begun with the peer ends at once."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()
        channel = Channel(handler, host, port, ClientConfig())
        channel.close()
        with pytest.raises(ConnectionFailedError):
            open_stream(handler, host, port, deadline=soon(60), config=ClientConfig(), made=channel._link.hold)
        assert channel._link.stream is None
        server.settimeout(60)
        peer, _ = server.accept()
        with peer:
            peer.settimeout(60)
            assert peer.recv(1) == b""
