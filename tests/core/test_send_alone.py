"""`Sender.send_alone` answers what `poll` would, or nothing: the same schedules, with the one before the other and by poll() alone."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from gkafka.core.sender import Outgoing
from gkafka.exceptions import ConnectionFailedError, SocketDisconnectedError
from gkafka.wire.metadata import MetadataRequest
from tests.core.fakes import FakeBatch, Rig, told
from tests.effort import seeds

LEADERS = {0: 1, 1: 2, 2: 2}
READY_AT = {1: 0.0, 2: 0.0}


class Run:
    """One schedule of a producer that has mostly one record on its way. alone: how often send_alone() had the answer."""

    def __init__(self, seed: int, *, by_poll: bool) -> None:
        self.chance = Random(seed)
        idempotence = self.chance.choice([True, False])
        linger_s = self.chance.choice([0.0, 0.005])
        self.rig = Rig(LEADERS, idempotence=idempotence, strangers=self.chance.choice([True, False]), linger_s=linger_s)
        self.by_poll = by_poll
        self.ready_at = dict(READY_AT)
        self.flying: list[Outgoing] = []
        self.seen: list[Any] = []
        self.alone = 0
        self.names: dict[int, int] = {}
        self.batches: list[FakeBatch] = []

    def name(self, batch: Any) -> int:
        self.batches.append(batch)  # ids are not used again
        return self.names.setdefault(id(batch), len(self.names))

    def drive(self) -> None:
        rig = self.rig
        sent = None if self.by_poll else rig.sender.send_alone(rig.now, self.ready_at.__getitem__)
        if sent is not None:
            self.alone += 1
            requests = [sent]
            rest = rig.sender.poll(rig.now, self.ready_at.__getitem__)
            assert not rest.requests, "it left something that was to go with it"
        else:
            requests = rig.sender.poll(rig.now, self.ready_at.__getitem__).requests
        # Of two brokers, and of two partitions of a request, either may be first.
        requests = [
            Outgoing(r.broker_id, sorted(r.batches, key=lambda b: b.partition)) for r in sorted(requests, key=lambda r: r.broker_id)
        ]
        self.flying += requests
        self.seen += [
            (r.broker_id, [(self.name(b), b.extra.sequence, b.extra.order, b.attempts, b.extra.persisted) for b in r.batches])
            for r in requests
        ]

    def step(self) -> None:
        rig, chance = self.rig, self.chance
        what = chance.random()
        if what < 0.45:
            partition = chance.randrange(len(LEADERS))
            batch = rig.accumulator.open.get(("t", partition)) or rig.open(partition)
            self.name(batch)
            if chance.random() < 0.7:
                rig.accumulator.hurry(batch)
            if chance.random() < 0.1:
                rig.accumulator.rolled(batch)
        elif what < 0.85 and self.flying:
            outgoing = self.flying.pop(0)
            fate = chance.random()
            if fate < 0.8:
                rig.answer(outgoing, 0, throttle_time_ms=100 if fate > 0.75 else 0)
            elif fate < 0.9:
                rig.answer(outgoing, 6)
            elif fate < 0.95:
                rig.lose(outgoing, SocketDisconnectedError("gone"))
            else:
                rig.lose(outgoing, ConnectionFailedError("not there"))
            rig.tell()
        elif what < 0.9:
            rig.now += chance.choice([0.001, 0.01, 0.2])
        elif what < 0.93:
            moved = {p: chance.choice([1, 2]) for p in LEADERS}
            rig.metadata.on_response(MetadataRequest(topics=None), told(moved, epoch=chance.randrange(2, 99)), rig.now)
        elif what < 0.96:
            self.ready_at[chance.choice([1, 2])] = rig.now + chance.choice([0.0, 0.05])
        elif what < 0.98:
            rig.sender.flushing = not rig.sender.flushing
        self.drive()
        accumulator = rig.accumulator
        self.seen.append(
            (
                [self.name(b) for b in accumulator.unsettled],
                sorted(accumulator.open),
                sorted(accumulator.active),
                {broker: n for broker, n in rig.sender.in_flight.items() if n},
                {key: (q.next_sequence, q.known_to, len(q.on_wire)) for key, q in accumulator.queues.items()},
            )
        )


@pytest.mark.parametrize("seed", seeds(200, quick=20))
def test_it_answers_what_poll_answers(seed: int) -> None:
    quick, slow = Run(seed, by_poll=False), Run(seed, by_poll=True)
    for number in range(300):
        quick.step()
        slow.step()
        assert quick.seen == slow.seen, number
        quick.seen.clear()
        slow.seen.clear()


def test_who_waits_for_each_record_is_answered_by_it() -> None:
    run = Run(1, by_poll=False)
    rig = run.rig = Rig(LEADERS, linger_s=0.0)
    for number in range(100):
        rig.open(number % 3)
        run.drive()
        (outgoing,) = run.flying
        run.flying.clear()
        rig.answer(outgoing)
        rig.tell()
    assert run.alone == 100
