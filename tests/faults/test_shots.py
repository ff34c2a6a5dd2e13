"""A signal that cuts a call off is raised where the caller hears of it."""

from __future__ import annotations

import sys
import weakref

from tests.faults.guns import spared


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
