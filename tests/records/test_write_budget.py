"""Memory that several appenders share: never more together than the budget, however it is taken and given back."""

from __future__ import annotations

import gc
import threading
from random import Random
from typing import Any

import pytest

from gkafka.exceptions import BufferFull
from tests.records.write_helpers import make_appender


def pair(impl: Any, limit: int = 40_000, **options: Any) -> tuple[Any, Any, Any]:
    """A budget, and two appenders that share it, with 32,768 bytes of their own each."""
    budget = impl.Budget(limit, threading.Lock())
    first, second = (make_appender(impl, batch_bytes=16384, buffer_bytes=32768, budget=budget, **options) for _ in range(2))
    return budget, first, second


def test_what_one_takes_the_other_cannot_have(impl: Any) -> None:
    budget, first, second = pair(impl)
    batch = first.open("t", 0, 1.0, 30_000)
    assert (budget.reserved, budget.available) == (30_000, 10_000)
    assert (first.available, first.own_available) == (2768, 2768)
    assert (second.available, second.own_available) == (10_000, 32_768)
    with pytest.raises(BufferFull, match="10000 of buffer_bytes=32768 are free"):
        second.open("t", 0, 1.0, 10_001)
    assert second.open("t", 0, 1.0, 10_000) is not None
    first.release(batch)
    del batch
    assert second.available == 22_768
    assert budget.reserved == 10_000


def test_each_keeps_to_its_own_share_too(impl: Any) -> None:
    budget, first, _ = pair(impl, limit=1 << 20)
    first.open("t", 0, 1.0, 30_000)
    with pytest.raises(BufferFull):
        first.open("t", 1, 1.0, 5000)
    assert budget.reserved == 30_000


def test_batches_do_not_grow_beyond_the_budget(impl: Any) -> None:
    budget, first, second = pair(impl, limit=20_000)
    first.open("t", 0, 1.0, 16_000)
    second.open("t", 0, 1.0)
    while second.append("t", 0, b"x" * 100, None, 5, None) is not None:
        pass
    assert budget.reserved <= 20_000
    for stamp in range(300):
        second.append("t", 0, b"", None, stamp, None)
    assert budget.reserved <= 20_000


def test_a_batch_may_be_opened_beyond_both_limits_by_so_much_and_no_more(impl: Any) -> None:
    """It holds its record and little else: what is beyond the limits is for few."""
    budget, first, second = pair(impl)
    held = first.open("t", 0, 1.0, 30_000)
    inside = first.open("t", 1, 1.0, 2000, 5000)
    assert budget.reserved == 30_000 + 2048, "there is room for it"
    with pytest.raises(BufferFull):
        first.open("t", 2, 1.0, 2000, 1279)
    over = first.open("t", 2, 1.0, 2000, 1280)
    assert (first.own_available, first.available) == (-1280, 0)
    assert second.available == 40_000 - 34_048
    other = second.open("t", 0, 1.0, second.available)
    with pytest.raises(BufferFull):
        second.open("t", 1, 1.0, 100, 255)
    least = second.open("t", 1, 1.0, 100, 256)
    assert budget.reserved == 40_256
    for batch in (held, inside, over):
        first.release(batch)
    for batch in (other, least):
        second.release(batch)
    assert (first.own_available, second.own_available, budget.available) == (32_768, 32_768, 40_000)


def test_everything_comes_back_whatever_was_done_with_it(impl: Any) -> None:
    chance = Random(3)
    gc.collect()
    before = impl.live_buffers()
    budget, first, second = pair(impl, limit=60_000)
    kept: list[Any] = []
    for turn in range(300):
        appender, partition = chance.choice([first, second]), chance.randrange(4)
        batch = appender.take("t", partition)
        if batch is not None and batch.count:
            batch.seal(chance.choice([0, 1]), None)
            if chance.random() < 0.2 and batch.count > 1:
                kept += [(appender, part) for part in batch.split(batch.size // 2)]
            else:
                batch.restamp(7, 1, 0)
                kept.append((appender, batch))
        del batch
        while len(kept) > 3 or (kept and turn == 299):
            owner, old = kept.pop(0)
            owner.release(old)
            del owner, old
        try:
            appender.open("t", partition, 1.0, chance.choice([None, 500, 9000]))
            for stamp in range(chance.randrange(40)):
                appender.append("t", partition, b"v" * chance.randrange(300), None, stamp // 3, None)
        except BufferFull:
            pass
    for appender in (first, second):
        for batch in appender.open_batches():
            appender.release(batch)
            del batch
    kept.clear()
    assert budget.reserved == 0
    assert first.own_available == second.own_available == 32_768
    del first, second, appender
    gc.collect()
    assert impl.live_buffers() == before


def test_buffers_that_are_kept_for_use_again_fit_into_the_budget_too(speed: Any) -> None:
    gc.collect()
    before = speed.live_buffers()
    budget, first, second = pair(speed, limit=33_000)
    for appender in (first, second):
        for _ in range(3):
            for partition in range(2):
                batch = appender.open("t", partition, 1.0, 16384)
                appender.take("t", partition)
                appender.release(batch)
                del batch
    assert budget.reserved == 0
    assert speed.live_buffers() - before <= 2, "two of 16,384 bytes are as much as it allows"
    del first, second, appender
    gc.collect()
    assert speed.live_buffers() == before


def test_an_appender_that_is_gone_leaves_its_share_to_the_others(impl: Any) -> None:
    _, first, second = pair(impl)
    batch = first.open("t", 0, 1.0, 30_000)
    del first
    gc.collect()
    assert second.available == 10_000, "its batch lives on"
    del batch
    gc.collect()
    assert second.available == 32_768


def test_threads_lose_no_byte(impl: Any) -> None:
    budget = impl.Budget(1 << 20, threading.Lock())
    appenders = [make_appender(impl, budget=budget, lock=threading.Lock()) for _ in range(4)]

    def work(appender: Any) -> None:
        for i in range(150):
            batch = appender.open("t", i % 4, 1.0, 1000)
            appender.append("t", i % 4, b"v", None, 5, None)
            appender.take("t", i % 4)
            batch.seal(0, None)
            appender.release(batch)
            del batch

    workers = [threading.Thread(target=work, args=(appender,), daemon=True) for appender in appenders]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert not worker.is_alive()
    assert budget.reserved == 0
