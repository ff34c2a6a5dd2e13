"""Records without a key: all partitions alike by bytes, and less for a broker that does not keep up."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

from gkafka.core.sticky import Sticky, choose
from tests.core.fakes import FakeBatch


def batch(size: int = 61) -> Any:
    return FakeBatch(0, size=size)


def test_a_partition_is_spent_when_a_batch_of_bytes_went_there_however_many_batches_that_were() -> None:
    sticky = Sticky(3)
    for n in range(9):
        assert not sticky.is_spent(161, 1000), n
        small = batch()
        sticky.follow(small, small.size)
        small.size += 100
    assert sticky.produced == 900
    assert sticky.is_spent(161, 1000)


def test_a_full_batch_is_always_enough() -> None:
    sticky = Sticky(0)
    full = batch()
    sticky.follow(full, full.size)
    full.size = 1000 - 99
    assert sticky.is_spent(61 + 100, 1000)


def test_what_was_in_a_batch_before_the_partition_was_chosen_does_not_count() -> None:
    begun = batch(size=800)
    sticky = Sticky(0, begun)
    begun.size = 900
    assert sticky.produced == 100


def test_the_next_partition_is_another_one_and_all_others_alike() -> None:
    chance = Random(5)
    seen = Counter(choose([0, 1, 2, 3, 4], 2, lambda p: 0, chance) for _ in range(8000))
    assert set(seen) == {0, 1, 3, 4}
    assert max(seen.values()) < 1.1 * min(seen.values())
    assert choose([7], 7, lambda p: 0, chance) == 7
    assert choose([7], 3, lambda p: 0, chance) == 7


def test_in_the_long_run_each_partition_has_its_share() -> None:
    chance, present, seen = Random(6), 0, Counter[int]()
    for _ in range(12000):
        present = choose(range(6), present, lambda p: 0, chance)
        seen[present] += 1
    assert max(seen.values()) < 1.1 * min(seen.values())


def test_a_partition_whose_batches_pile_up_gets_less() -> None:
    chance = Random(7)
    seen = Counter(choose(range(4), 0, lambda p: 50 if p == 3 else 2, chance) for _ in range(9000))
    assert 0 < seen[3] < 0.5 * min(seen[1], seen[2])
