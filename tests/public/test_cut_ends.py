"""A signal handler's exception comes at any step of an end, or of a commit: the next call does what is left, and nothing stays taken, on both handlers."""

from __future__ import annotations

import contextlib
import dis
import os
import signal
import sys
from collections.abc import Callable, Iterator
from functools import cache
from types import CodeType, FrameType
from typing import Any

import gevent
import pytest

import gkafka
from gkafka import KafkaClient
from gkafka.broker import Broker
from gkafka.brokererrors import MessageSizeTooLarge
from gkafka.common import TopicPartition
from gkafka.exceptions import DeliveryError, TransactionStateError
from gkafka.groupoffsets import GroupOffsets
from gkafka.testing import Error, MockCluster
from tests.handlers.test_hit_anywhere import Aim, steps
from tests.kit.lacking import reason
from tests.public.aids import Clock, Runner, fill, read
from tests.public.groupaids import QUICK
from tests.public.test_interrupted import is_in_finalizer

PACKAGE = os.path.dirname(gkafka.__file__) + os.sep
MOST = 2000  # steps of one call
APART = 6
"""Every so many steps there is a shot in the short form; which these are differs by what is raised and by the handler. In the thorough form at each."""
pytestmark = pytest.mark.skipif(
    sys.version_info[:2] == (3, 12),
    reason=reason(("test of interruptions at each step", "CPython 3.12: see tests/handlers/test_hit_anywhere.py")),
)


class Cut(BaseException):
    """What the handler raises."""


class Alarm(Exception):
    """The same of the kind that a broad `except` takes."""


@cache
def points(code: CodeType) -> frozenset[int]:
    """steps() without those behind a call whose value a with statement returns: a signal comes before the with is left, a tracer's exception behind that."""
    return steps(code) - {step.offset for step in dis.get_instructions(code) if step.opname in ("SWAP", "ROT_TWO")}


class Begun(Exception):
    """What the block raises."""


class Gun(Aim):
    """`gun.fire(n, call)` calls it, with the signal at step number n that it makes in functions of these files, or, with callees, that those call.

    shot: where that was, None if it has fewer steps. shots: those of all rounds().
    """

    def __init__(self, files: tuple[str, ...], raises: type[BaseException], callees: bool, first: int, apart: int) -> None:
        super().__init__(raises)
        self._first, self._apart = first, apart
        self._callees = callees
        self.shot: str | None = None
        self.shots: list[str] = []
        self._paths = tuple(PACKAGE + file for file in files)
        self._me: Any = None

    def rounds(self) -> Iterator[int]:
        """1, 2, 3 ... (or some of them) to fire() with, until two calls in a row had fewer steps: how many they have depends on when others are done."""
        misses = 0
        for n in range(self._first, MOST, self._apart):
            yield n
            misses = misses + 1 if self.shot is None else 0
            if misses == 2:
                return
            if self.shot is not None:
                self.shots.append(self.shot)
        raise AssertionError("more steps than were tried")

    def has_shot(self, *, at_least: int, at: tuple[str, ...] = ()) -> bool:
        """Whether there were so many shots; if at each step, also in all of these functions."""
        everywhere = all(any(place in shot for shot in self.shots) for place in at)
        return len(self.shots) > at_least // self._apart and (self._apart > 1 or everywhere)

    def fire(self, n: int, call: Callable[[], object]) -> None:
        self.shot, self.left, self._me = None, n, gevent.getcurrent()
        sys.settrace(self._call)
        try:
            with contextlib.suppress(self.raises):
                call()
        finally:
            sys.settrace(None)

    def _call(self, frame: FrameType, event: str, arg: Any) -> Any:
        caller = frame.f_back if self._callees and frame.f_code.co_filename.startswith(PACKAGE) else None
        if not any(each is not None and each.f_code.co_filename.startswith(self._paths) for each in (frame, caller)):
            return None
        follow = self._follow(frame)
        self._step(frame)
        return follow

    def _counts(self, frame: FrameType) -> bool:
        return gevent.getcurrent() is self._me and frame.f_lasti in points(frame.f_code) and not is_in_finalizer(frame)

    def _hit(self, frame: FrameType) -> None:
        self.shot = f"{frame.f_code.co_filename[len(PACKAGE) :]}:{frame.f_code.co_name}:{frame.f_lineno}"


@pytest.fixture(params=[APART, pytest.param(1, marks=pytest.mark.thorough)], ids=["some", "all"])
def apart(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(params=[Cut, Alarm], ids=lambda kind: kind.__name__)
def aim(request: pytest.FixtureRequest, run: Runner, apart: int) -> Iterator[Callable[..., Gun]]:
    before = signal.getsignal(signal.SIGUSR1)
    first = 1 + (2 * run.gevent + (request.param is Alarm)) % apart

    def make(*files: str, callees: bool = False, at_each: bool = False) -> Gun:
        made = Gun(files, request.param, callees, *((1, 1) if at_each else (first, apart)))
        signal.signal(signal.SIGUSR1, made.handle)
        return made

    yield make
    signal.signal(signal.SIGUSR1, before)


@pytest.fixture(params=["threading", "gevent"])
def run(request: pytest.FixtureRequest) -> Runner:
    return Runner(request.param)


def open_channels(client: KafkaClient) -> list[Any]:
    return [channel for broker in client.cluster._candidates() for channel in broker._channels.values()]


def test_a_client_whose_close_is_cut_short_anywhere_closes_all_in_the_next(
    cluster: MockCluster, run: Runner, aim: Callable[..., Gun]
) -> None:
    gun = aim("client.py", "cluster.py", "broker.py", "net/channel.py")
    for n in gun.rounds():
        client = KafkaClient(cluster.bootstrap, handler=run.name)
        client.get_producer(linger_ms=0).produce("t", b"x").result(60)
        channels = open_channels(client)
        assert len(channels) > 1
        gun.fire(n, client.close)
        with Clock() as clock:
            client.close()
        assert clock.seconds < 30, gun.shot
        assert all(channel.join(0) for channel in channels), gun.shot
        assert not client.handler.workers(), gun.shot
        assert not open_channels(client), gun.shot
    assert gun.has_shot(at_least=50)


def test_what_was_not_delivered_is_told_by_the_close_behind_one_that_was_cut_short(
    cluster: MockCluster, run: Runner, aim: Callable[..., Gun]
) -> None:
    gun = aim("client.py")
    cluster.on("Produce", Error(MessageSizeTooLarge.code), times=None)
    for n in gun.rounds():
        client = KafkaClient(cluster.bootstrap, handler=run.name)
        producer = client.get_producer(linger_ms=0)  # held: one that is dropped is not there to be closed
        producer.produce("t", b"x")
        told: list[DeliveryError] = []

        def close(client: KafkaClient = client, told: list[DeliveryError] = told) -> None:
            try:
                client.close()
            except DeliveryError as error:
                told.append(error)

        gun.fire(n, close)
        close()
        assert len(told) == 1, gun.shot
        assert producer.closed
    assert gun.has_shot(at_least=10)


def test_a_broker_that_was_replaced_is_closed_with_the_client_if_nobody_came_to_it(cluster: MockCluster, run: Runner) -> None:
    """Who replaced it, on another address, was cut short before he closed it; somebody holds it still."""
    client = KafkaClient(cluster.bootstrap, handler=run.name)
    client.cluster.update()
    broker: Broker = next(iter(client.cluster.brokers.values()))
    client.cluster._brokers.clear()
    client.cluster._bootstrap.clear()
    broker.connect()
    client.close()
    assert not broker.connected
    assert not client.handler.workers()


def test_a_commit_that_is_cut_short_anywhere_keeps_no_member(make_cluster: Any, run: Runner, aim: Callable[..., Gun]) -> None:
    """Not from leaving, though what has cut it short is held, and with it all that was under way."""
    gun = aim("progress.py", "membership.py", "core/group", "core/lease.py", "core/ownership.py")
    cluster = make_cluster(1, {"t": 1})
    with KafkaClient(cluster.bootstrap, handler=run.name) as client:
        fill(client, [b"x"])
        for n in gun.rounds():
            member = client.get_consumer("t", f"g{n}", **{**QUICK, "auto_commit": False})
            read(member, 1)

            def commit(member: Any = member, n: int = n) -> None:
                try:
                    member.commit(timeout=60)
                except gun.raises:
                    with Clock() as clock:
                        member.stop()
                    assert clock.seconds < 30, gun.shot
                    raise

            gun.fire(n, commit)
            member.stop()
            assert not cluster.group(f"g{n}").members, gun.shot
    assert gun.has_shot(at_least=30, at=("groupmachine.py:grant",))


def test_nobody_waits_for_the_answer_to_a_commit_that_was_cut_short_anywhere(
    cluster: MockCluster, run: Runner, aim: Callable[..., Gun]
) -> None:
    """Who gives partitions back by the classic protocol of pykafka does, for each commit that is under way."""
    gun = aim("groupoffsets.py", callees=True)
    with KafkaClient(cluster.bootstrap, handler=run.name, reconnect_backoff_ms=1) as client:
        offsets = GroupOffsets(client.cluster, "g")
        offsets.commit({TopicPartition("t", 0): 1}, timeout_s=60)
        for n in gun.rounds():
            gun.fire(n, lambda n=n: offsets.commit({TopicPartition("t", 0): n}, timeout_s=60))  # type: ignore[misc]
            with Clock() as clock:
                offsets.await_answers(120)
            assert clock.seconds < 60, gun.shot
    assert gun.has_shot(at_least=1, at=(":begin:", ":fill:"))


@contextlib.contextmanager
def transactional(cluster: MockCluster, run: Runner) -> Iterator[Any]:
    with (
        KafkaClient(cluster.bootstrap, handler=run.name, reconnect_backoff_ms=1) as client,
        client.get_producer(transactional_id="x", linger_ms=0) as producer,
    ):
        yield producer


def test_a_block_that_is_cut_short_anywhere_as_it_begins_a_transaction_leaves_none_open(
    cluster: MockCluster, run: Runner, aim: Callable[..., Gun]
) -> None:
    gun = aim("transactions.py", "core/transaction.py", at_each=True)
    with transactional(cluster, run) as producer:
        producer.begin_transaction(60)
        producer.abort_transaction(5)

        def begin() -> None:
            with contextlib.suppress(Begun), producer.transaction():
                raise Begun

        for n in gun.rounds():
            gun.fire(n, begin)
            if gun.shot is not None and "abort" in gun.shot:
                break
            assert not producer._transactions.is_open, gun.shot
    assert gun.has_shot(at_least=1, at=("core/transaction.py:_move",))


def test_a_block_that_is_cut_short_anywhere_leaves_no_transaction_open(cluster: MockCluster, run: Runner, aim: Callable[..., Gun]) -> None:
    """Between its last line and the commit, too."""
    gun = aim("transactions.py")
    with transactional(cluster, run) as producer:
        producer.begin_transaction(60)
        producer.abort_transaction(5)

        def block() -> None:
            with producer.transaction():
                producer.produce("t", b"x")

        for n in gun.rounds():
            gun.fire(n, block)
            assert not producer._transactions.is_open, gun.shot
    assert gun.has_shot(at_least=1, at=(":transaction:", ":commit_or_abort:", ":end:", ":_wait:"))


def test_a_transaction_begins_behind_a_commit_that_was_cut_short_anywhere(
    cluster: MockCluster, run: Runner, aim: Callable[..., Gun]
) -> None:
    gun = aim("transactions.py", "core/transaction.py")
    with transactional(cluster, run) as producer:
        for n in gun.rounds():
            try:
                producer.begin_transaction(60)
            except TransactionStateError as error:
                raise AssertionError(f"after a shot at {gun.shot}") from error
            producer.produce("t", b"x").result(60)
            gun.fire(n, producer.commit_transaction)
            if producer._transactions.is_open:
                producer.commit_transaction(60)
    assert gun.has_shot(at_least=10)
