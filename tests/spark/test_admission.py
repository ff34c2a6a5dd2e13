"""How much of what waits a batch takes. The expected numbers are worked by hand; of delays from KafkaMicroBatchStream.delayBatch."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gkafka.spark.admission import TriggerDelay, rate_limit, waiting
from gkafka.spark.offsets import Offsets

A, B, C = ("t", 0), ("t", 1), ("u", 0)


@pytest.mark.parametrize(
    ("limit", "begin", "latest", "ends"),
    [
        # 10 * 90/100 = 9, 10 * 10/100 = 1
        (10, {A: 0, B: 0}, {A: 90, B: 10}, {A: 9, B: 1}),
        # 10 * 33/99 = 3.33 is rounded down, and what is left of the ten is the larger one's
        (10, {A: 0, B: 0}, {A: 66, B: 33}, {A: 7, B: 3}),
        # 100 * 1/3 = 33.33, and half of the 67 that are left
        (100, {A: 0, B: 0, C: 0}, {A: 500, B: 500, C: 500}, {A: 33, B: 33, C: 34}),
        # 10 * 1/1000 = 0.01 -> 1: a small partition is not starved, and the large one gives for it
        (10, {A: 0, B: 0}, {A: 999, B: 1}, {A: 9, B: 1}),
        (3, {A: 0, B: 0, C: 0}, {A: 998, B: 1, C: 1}, {A: 1, B: 1, C: 1}),
        # more partitions than the limit has offsets: it is passed by two
        (1, {A: 5, B: 5, C: 5}, {A: 6, B: 6, C: 6}, {A: 6, B: 6, C: 6}),
        (1, {A: 5, B: 5, C: 5}, {A: 9, B: 9, C: 9}, {A: 6, B: 6, C: 6}),
        # no share is more than what waits
        (1000, {A: 10, B: 0}, {A: 12, B: 3}, {A: 12, B: 3}),
        # nothing waits: the ends as they are
        (5, {A: 3}, {A: 3}, {A: 3}),
        # a log that was cut counts for nothing and ends where it ends; the loss is told when the batch is planned
        (4, {A: 50, B: 0}, {A: 20, B: 8}, {A: 20, B: 4}),
        # a partition without a beginning (deleted while it was looked up) is left to that, too
        (4, {B: 0}, {A: 20, B: 8}, {A: 20, B: 4}),
        # 2**62 offsets wait
        (1 << 62, {A: 1}, {A: 1 << 62}, {A: 1 << 62}),
    ],
)
def test_the_cap_is_shared_in_proportion_to_what_waits(limit: int, begin: Offsets, latest: Offsets, ends: Offsets) -> None:
    assert rate_limit(limit, begin, latest) == ends


@given(
    st.integers(1, 1 << 40),
    st.dictionaries(
        st.tuples(st.sampled_from("tuv"), st.integers(0, 9)), st.tuples(st.integers(0, 1 << 50), st.integers(0, 1 << 50)), max_size=12
    ),
)
def test_a_capped_batch_moves_on_in_every_partition_and_takes_what_the_cap_allows_to_the_last_offset(
    limit: int, sizes: dict[tuple[str, int], tuple[int, int]]
) -> None:
    begin = {at: start for at, (start, _) in sizes.items()}
    latest = {at: start + size for at, (start, size) in sizes.items()}
    ends = rate_limit(limit, begin, latest)
    assert all(begin[at] <= ends[at] <= latest[at] for at in latest)
    assert all(ends[at] > begin[at] for at, (_, size) in sizes.items() if size)
    waits = [size for _, size in sizes.values() if size]
    assert sum(ends[at] - begin[at] for at in ends) == min(sum(waits), max(limit, len(waits)))


def test_what_waits_is_counted_from_zero_in_new_partitions() -> None:
    assert waiting({A: 5}, {A: 9, B: 3}) == 4 + 3
    assert waiting({A: 5}, {A: 2}) == -3


def test_the_first_batch_never_waits_and_the_next_ones_until_there_is_enough_or_the_time_is_over() -> None:
    delay = TriggerDelay(10, 60.0)
    assert not delay.holds_back(1, now=1000.0)
    assert delay.holds_back(9, now=1001.0)
    assert not delay.holds_back(10, now=1002.0)
    assert delay.holds_back(9, now=1061.9)
    assert not delay.holds_back(0, now=1062.0)  # 60 s after the last batch
    assert delay.holds_back(0, now=1062.1)
