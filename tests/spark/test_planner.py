"""How ranges become tasks: numbers worked from KafkaOffsetRangeCalculator."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gkafka.spark.offsets import tasks_of, to_spark
from gkafka.spark.planner import LITTLE, MUCH, OffsetRange, grouped, one_each, split, task_count


def r(topic: str, start: int, end: int) -> OffsetRange:
    return OffsetRange(topic, 0, start, end)


def sizes(ranges: list[OffsetRange]) -> list[int]:
    return [each.size for each in ranges]


def test_without_options_each_partition_is_a_task() -> None:
    ranges = [r("a", 0, 10), r("b", 5, 6)]
    assert split(ranges) == ranges


def test_empty_ranges_are_left_out() -> None:
    assert split([r("a", 3, 3), r("b", 0, 1)]) == [r("b", 0, 1)]
    assert split([r("a", 3, 3)], min_partitions=4, max_records=1) == []


def test_fewer_minimum_partitions_than_there_are_change_nothing() -> None:
    ranges = [r("a", 1, 2), r("b", 1, 2), r("c", 1, 200)]
    assert split(ranges, min_partitions=3) == ranges


def test_one_partition_is_cut_into_as_many_as_asked() -> None:
    assert split([r("a", 1, 5)], min_partitions=4) == [r("a", 1, 2), r("a", 2, 3), r("a", 3, 4), r("a", 4, 5)]


def test_the_last_part_takes_what_does_not_divide() -> None:
    assert sizes(split([r("a", 0, 10)], min_partitions=3)) == [3, 3, 4]


def test_a_range_of_fewer_offsets_than_parts_gives_no_empty_parts() -> None:
    assert sizes(split([r("a", 0, 2)], min_partitions=5)) == [1, 1]


def test_as_many_parts_as_there_are_numbers_for_are_no_more_than_offsets() -> None:
    assert sizes(split([r("a", 0, 3), r("b", 7, 9)], min_partitions=(1 << 63) - 1)) == [1] * 5


def test_small_ranges_stay_whole_and_out_of_the_proportion() -> None:
    # 10001 offsets, 4 asked: a is 0.0004 of 4 parts, so whole; b gets the other 3 (not round(3.9996) = 4).
    assert split([r("a", 0, 1), r("b", 0, 10000)], min_partitions=4) == [
        r("a", 0, 1),
        r("b", 0, 3333),
        r("b", 3333, 6666),
        r("b", 6666, 10000),
    ]


def test_two_small_and_one_large_are_cut_in_proportion() -> None:
    # 120 offsets, 4 asked: round(10 / 120 * 4) = 0, so a and b stay whole and c gets 2 parts of what is left.
    assert sizes(split([r("a", 0, 10), r("b", 0, 10), r("c", 0, 100)], min_partitions=4)) == [10, 10, 50, 50]


def test_halves_round_up_as_in_java() -> None:
    # 2 equal ranges, 3 asked: 1.5 rounds to 2 each, so 4 tasks.
    assert sizes(split([r("a", 0, 10), r("b", 0, 10)], min_partitions=3)) == [5, 5, 5, 5]


def test_no_task_passes_the_most_records() -> None:
    assert sizes(split([r("a", 0, 10), r("b", 0, 3)], max_records=4)) == [3, 3, 4, 3]


def test_the_most_records_count_before_the_minimum_partitions() -> None:
    # a becomes 3 + 3 + 4, which is enough for 3; for 6 each part is cut in two.
    assert sizes(split([r("a", 0, 10)], min_partitions=3, max_records=4)) == [3, 3, 4]
    assert sizes(split([r("a", 0, 10)], min_partitions=6, max_records=4)) == [1, 2, 1, 2, 2, 2]


ranges = st.lists(st.tuples(st.integers(0, 1 << 60), st.integers(0, 5000)), max_size=8)


@given(ranges, st.none() | st.integers(1, 50), st.none() | st.integers(1, 500))
def test_tasks_cover_every_offset_once(given: list[tuple[int, int]], least: int | None, most: int | None) -> None:
    whole = [OffsetRange("t", i, start, start + size) for i, (start, size) in enumerate(given)]
    tasks = split(whole, least, most)
    assert all(task.size > 0 for task in tasks)
    assert most is None or all(task.size <= most for task in tasks)
    for range_ in whole:
        parts = [task for task in tasks if task.partition == range_.partition]
        at = range_.start
        for part in parts:
            assert part.start == at
            at = part.end
        assert at == range_.end


def test_a_range_says_what_it_is() -> None:
    assert str(OffsetRange("t", 3, 10, 20)) == "t-3 [10, 20)"


# -- tasks that share ----------------------------------------------------------------------------------------------------
def test_a_number_of_tasks_is_kept_to_where_there_is_neither_little_nor_much() -> None:
    assert [task_count(offsets, 4) for offsets in (0, 1, LITTLE, LITTLE + 1, 3 * LITTLE, 4 * MUCH, 4 * MUCH + 1)] == [1, 1, 1, 2, 3, 4, 5]


def test_no_number_of_tasks_is_more_than_a_checkpoint_may_hold() -> None:
    count = task_count(2 * 10**12 + 1, 8)
    assert tasks_of(to_spark({("t", 0): 2 * 10**12 + 1}, count)) == count == task_count(1 << 62, 1 << 62)


def test_one_each_is_the_jvm_connectors_plan() -> None:
    assert one_each([r("a", 0, 1), r("b", 0, 2)]) == [(r("a", 0, 1),), (r("b", 0, 2),)]


def test_groups_are_about_as_large() -> None:
    ranges = [OffsetRange("t", n, 0, 1000) for n in range(200)]
    groups = grouped(ranges, 4)
    assert [len(group) for group in groups] == [50] * 4
    uneven = [OffsetRange("t", n, 0, 10_000 if n < 3 else 1000) for n in range(33)]
    assert sorted(sum(each.size for each in group) for group in grouped(uneven, 3)) == [20_000] * 3


def test_there_are_never_more_groups_than_ranges() -> None:
    assert grouped([r("a", 0, 9)], 7) == [(r("a", 0, 9),)]
    assert grouped([], 7) == []


def test_no_group_passes_the_most_records_of_a_task() -> None:
    ranges = [OffsetRange("t", n, 0, 400) for n in range(7)]
    assert sorted(sum(each.size for each in group) for group in grouped(ranges, 2, max_records=1000)) == [400, 800, 800, 800]
    assert grouped([r("a", 0, 5000)], 2, max_records=1000) == [(r("a", 0, 5000),)], "it is split() that cuts"


def test_a_group_of_many_ranges_is_not_added_up_anew_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0

    def size(each: OffsetRange) -> int:
        nonlocal looks
        looks += 1
        return each.end - each.start

    monkeypatch.setattr(OffsetRange, "size", property(size))
    ranges = [OffsetRange("t", n, 0, 1) for n in range(500)]
    assert [len(group) for group in grouped(ranges, 1, max_records=499)] == [499, 1]
    assert looks < 10 * len(ranges)


@given(st.lists(st.integers(1, 5000), max_size=60), st.integers(1, 9), st.none() | st.integers(1, 9000))
def test_every_range_is_in_one_group_and_the_same_call_gives_the_same(sizes: list[int], count: int, most: int | None) -> None:
    ranges = [OffsetRange("t", n, 5, 5 + size) for n, size in enumerate(sizes)]
    groups = grouped(ranges, count, most)
    assert sorted(each for group in groups for each in group) == ranges
    assert grouped(list(reversed(ranges)), count, most) == groups
    assert all(groups)
    if most is not None:
        assert all(len(group) == 1 or sum(each.size for each in group) <= most for group in groups)
