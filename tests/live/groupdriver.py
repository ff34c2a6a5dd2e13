"""Drives the machine of a group's member on a real broker: one worker, one socket for each lane, nothing but what the machine says."""

from __future__ import annotations

import itertools
import selectors
import socket
import struct
import threading
import time
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

from gkafka.common import TopicPartition
from gkafka.core.assignors import Assignor
from gkafka.core.backoff import Backoff
from gkafka.core.consumergroup import ConsumerGroup
from gkafka.core.consumergroupstate import ConsumerGroupOptions
from gkafka.core.group import Group
from gkafka.core.groupmachine import GroupMachine
from gkafka.core.groupstate import Address, Ask, Change, GroupOptions, Lane, State
from gkafka.exceptions import ConnectionFailedError, KafkaException, KafkaTimeoutError, SocketDisconnectedError, UnsupportedVersion
from gkafka.wire.apis import decode_response, encode_request
from gkafka.wire.versions import Versions
from tests.core.dividing import divide
from tests.kit import clock
from tests.live.kafka import Node

__all__ = ["ConsumerDriver", "Driver", "coordinating_first"]

_size = struct.Struct(">i")


def _addresses(hosts: str) -> list[Address]:
    pairs = [one.rpartition(":") for one in hosts.split(",")]
    return [(-1, host, int(port)) for host, _, port in pairs]


def coordinating_first(nodes: Iterable[Node], members: Iterable[Driver]) -> list[Node]:
    """The nodes of a cluster, in front those that coordinate the group of these members."""
    coordinating = {place[0] for member in members if (place := member.group.requests.coordinator)}
    return sorted(nodes, key=lambda node: node.id not in coordinating)


class Driver:
    """One member. topics: topic -> how many partitions it has. history: what the application was told. polls: does it ask for
    messages? lock: held while the worker works.
    """

    def __init__(self, hosts: str, version: str, group: str, assignors: Sequence[Assignor], topics: dict[str, int], **options: Any) -> None:
        self._bootstrap = itertools.cycle(_addresses(hosts))
        self._versions = Versions.for_broker(version)
        self._topics = topics
        self.group = self._machine(group, assignors, topics, {"session_timeout_s": 6.0, "rebalance_timeout_s": 20.0, **options})
        self.history: list[tuple[str, list[int]]] = []
        self.problems: list[KafkaException] = []
        self.polls = True
        self.lock = threading.Lock()
        self._selector = selectors.DefaultSelector()
        self._sockets: dict[tuple[Lane, Address], socket.socket] = {}
        self._received: dict[socket.socket, bytearray] = {}
        self._flying: dict[int, tuple[Ask, int, float, socket.socket]] = {}
        self._id = 0
        self._stops = threading.Event()
        self._killed = threading.Event()
        self._worker = threading.Thread(target=self._run, name=f"member of {group}")
        self._worker.start()

    def _machine(self, group: str, assignors: Sequence[Assignor], topics: dict[str, int], settings: dict[str, Any]) -> GroupMachine:
        options = GroupOptions(group, assignors, **{"heartbeat_interval_s": 0.5, **settings})
        return Group(options, topics, backoff=Backoff(0.05, 0.5), chance=Random(1))

    @property
    def owned(self) -> set[TopicPartition]:
        return set(self.group.delivered(clock.soon(0)))

    @property
    def was_told(self) -> bool:
        """Does the application know just what it has, of one topic? It is told a moment later."""
        told: set[int] = set()
        for change, partitions in list(self.history):
            told = told | set(partitions) if change == Change.ASSIGNED.value else told - set(partitions)
        return told == {tp.partition for tp in self.owned}

    def stop(self) -> None:
        """Leave in order."""
        self._stops.set()
        self._worker.join(60)
        assert not self._worker.is_alive()

    def kill(self) -> None:
        """Say nothing any more."""
        self._killed.set()
        self._worker.join(60)

    def _run(self) -> None:
        try:
            while not self._killed.is_set() and self.group.state not in (State.LEFT, State.FATAL):
                with self.lock:
                    self._round()
        finally:
            for sock in self._sockets.values():
                sock.close()
            self._selector.close()

    def _round(self) -> None:
        now = clock.soon(0)
        if self._stops.is_set():
            self.group.leave("the test is over")
        if self.polls:
            self.group.polled(now)
        plan = self.group.poll(now)
        for ask in plan.asks:
            self._send(ask, now)
        self.problems += plan.problems
        if plan.tell is not None:
            self.history.append((plan.tell.change.value, sorted(tp.partition for tp in plan.tell.partitions)))
            self.group.ownership.told(plan.tell)
        elif plan.topics is not None:
            divide(self.group, {topic: [()] * self._topics[topic] for topic in plan.topics if topic in self._topics})
        else:
            self._receive(0.02)

    # -- the wire ----------------------------------------------------------------------------------------------------------
    def _send(self, ask: Ask, now: float) -> None:
        try:
            sock = self._connection(ask)
            self._id += 1
            version = self._versions.pick_for(ask.request)
            sock.sendall(b"".join(encode_request(ask.request, version, self._id, "gkafka-test")))
            self._flying[self._id] = ask, version, now + ask.timeout_s, sock
        except OSError as error:
            self.group.on_answer(ask, None, ConnectionFailedError(str(error)), now)
        except UnsupportedVersion as error:
            self.group.on_answer(ask, None, error, now)

    def _connection(self, ask: Ask) -> socket.socket:
        address = ask.to or next(self._bootstrap)
        sock = self._sockets.get((ask.lane, address))
        if sock is None:
            sock = self._sockets[ask.lane, address] = socket.create_connection(address[1:], 5)
            self._received[sock] = bytearray()
            self._selector.register(sock, selectors.EVENT_READ)
        return sock

    def _receive(self, seconds: float) -> None:
        for key, _ in self._selector.select(seconds) if self._sockets else []:
            sock: Any = key.fileobj
            try:
                data = sock.recv(1 << 16)
            except OSError:
                data = b""
            if data:
                self._take(sock, data)
            else:
                self._lost(sock)
        for number in [n for n, (_, _, deadline, _) in self._flying.items() if clock.now() > deadline]:
            self.group.on_answer(self._flying.pop(number)[0], None, KafkaTimeoutError("no answer"), clock.soon(0))
        if not self._sockets:
            time.sleep(seconds)

    def _take(self, sock: socket.socket, data: bytes) -> None:
        received = self._received[sock]
        received += data
        while len(received) >= 4 and len(received) >= 4 + (size := _size.unpack_from(received)[0]):
            frame = bytes(received[4 : 4 + size])
            del received[: 4 + size]
            asked = self._flying.pop(_size.unpack_from(frame)[0], None)
            if asked is not None:  # else its time was over, and the group was told so
                ask, version, _, _ = asked
                self.group.on_answer(ask, decode_response(ask.request.API, version, frame)[1], None, clock.soon(0))

    def _lost(self, sock: socket.socket) -> None:
        self._selector.unregister(sock)
        self._sockets = {where: one for where, one in self._sockets.items() if one is not sock}
        sock.close()
        for number in [n for n, flight in self._flying.items() if flight[3] is sock]:
            self.group.on_answer(self._flying.pop(number)[0], None, SocketDisconnectedError("gone"), clock.soon(0))


class ConsumerDriver(Driver):
    """The same with the machine of KIP-848."""

    def _machine(self, group: str, assignors: Sequence[Assignor], topics: dict[str, int], settings: dict[str, Any]) -> GroupMachine:
        return ConsumerGroup(ConsumerGroupOptions(group, **settings), topics, backoff=Backoff(0.05, 0.5), chance=Random())
