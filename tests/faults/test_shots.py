"""A signal that cuts a call off is raised where the caller hears of it, and what F24 measures."""

from __future__ import annotations

import random
import sys
import weakref

from tests.faults.guns import Cut, SignalGun, spared
from tests.faults.ledger import Ledger
from tests.faults.shots import first_answers
from tests.kit.clock import busy


def test_a_finalizer_does_not_pass_on_what_is_raised_in_it() -> None:
    told: list[bool] = []

    class Dropped:
        def __del__(self) -> None:
            told.append(spared(sys._getframe()))

    Dropped()
    assert told == [True]


def test_the_callback_of_a_weak_set_does_not_pass_it_on() -> None:
    told: list[bool] = []

    class Watched(set[object]):
        def discard(self, item: object) -> None:
            told.append(spared(sys._getframe()))
            super().discard(item)

    class Item:
        pass

    item, items = Item(), weakref.WeakSet[Item]()
    items.data = Watched()  # type: ignore[attr-defined]
    items.add(item)
    del item
    assert told == [True]


def test_any_other_call_does() -> None:
    assert not spared(sys._getframe())
    assert not spared(None)


def test_a_signal_hits_a_call_once_and_nothing_behind_it() -> None:
    gun = SignalGun("threading", random.Random(1), lambda: 0.0)
    hits = 0
    with gun.firing():
        for _ in range(50):
            try:
                gun.call(busy, 0.001)
            except Cut:
                hits += 1
            busy(0.0005)  # raises nothing
    assert hits == gun.shots == gun.at["callers"] > 0


def test_the_wait_for_the_first_acknowledgement_is_that_of_the_next_one_that_succeeded() -> None:
    ledger = Ledger(10.0)
    for resolved, error in ((1.0, ""), (2.5, "KafkaTimeoutError"), (4.0, ""), (3.0, "")):
        entry = ledger.offer("t", 0, 0.0)
        entry.accepted_at = 0.0
        ledger.resolve(entry, resolved, error=error)
    assert first_answers([0.5, 1.0, 2.0, 3.5, 5.0], ledger.entries) == [0.5, 0.0, 1.0, 0.5]
