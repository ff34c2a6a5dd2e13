"""How ranges become tasks: numbers worked from KafkaOffsetRangeCalculator."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gkafka.spark.planner import OffsetRange, split


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
