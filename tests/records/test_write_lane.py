"""Lane: one topic's records evenly among its partitions, never more than its limit. Both implementations."""

from __future__ import annotations

import os
import threading
from collections import Counter
from typing import Any

import pytest

from tests.records.write_helpers import SLOW, make_appender


class Owner:
    def __init__(self) -> None:
        self.slow: list[tuple[Any, Any, Any]] = []

        self.chosen: list[Any] = []
        self.failed: list[Exception] = []

    def produce_slow(self, message: Any, key: Any, timestamp: Any, *chosen: Any) -> object:
        self.slow.append((message, key, timestamp))
        self.chosen += chosen
        return SLOW

    def milliseconds(self, timestamp: Any) -> Any:
        return 7 if timestamp == "seven" else timestamp

    def partitioner_failed(self, error: Exception) -> object:
        self.failed.append(error)
        return SLOW


def make_lane(impl: Any, *, limit: int = 1000, seed: int = 7, partitions: int = 4, **options: Any) -> Any:
    appender = make_appender(impl, **options)
    lane = impl.Lane(Owner(), appender, "t", seed=seed)
    for partition in range(4):
        appender.open("t", partition, 1.0)
    lane.spread(range(partitions))
    lane.open, lane.limit = True, limit
    return lane


def test_records_go_to_the_partitions_in_turn_and_come_out_as_they_were(impl: Any) -> None:
    lane = make_lane(impl)
    deliveries = [lane.produce(b"%d" % i, b"key", 1000 + i) for i in range(400)]
    assert Counter(d.partition for d in deliveries) == dict.fromkeys(range(4), 100), "whatever the key"
    assert {d.partition for d in deliveries[:4]} == {0, 1, 2, 3}
    assert [d.record[2:] for d in deliveries] == [(b"key", b"%d" % i, [], 1000 + i) for i in range(400)]
    assert lane.accepted == 400
    assert not lane.owner.slow


def test_only_the_partitions_it_is_told_are_chosen(impl: Any) -> None:
    lane = make_lane(impl)
    lane.spread([1, 3])
    assert {lane.produce(b"v").partition for _ in range(100)} == {1, 3}
    lane.spread([])
    assert lane.produce(b"v") is SLOW
    lane.spread([9])
    assert lane.produce(b"v") is SLOW, "a partition that the appender does not know"


def test_a_partition_without_an_open_batch_is_chosen_as_often_as_the_others(impl: Any) -> None:
    """Another turn by the owner would give most of its records to partitions with open batches."""
    lane = make_lane(impl)
    lane.appender.roll("t", 3)
    counts = Counter(lane.owner.chosen[-1] if (d := lane.produce(b"v")) is SLOW else d.partition for _ in range(400))
    assert set(lane.owner.chosen) == {3}
    assert counts == dict.fromkeys(range(4), 100)


def test_both_implementations_choose_alike(impl: Any, speed: Any) -> None:
    ours, theirs = make_lane(impl, seed=12345), make_lane(speed, seed=12345)
    assert [ours.produce(b"v").partition for _ in range(200)] == [theirs.produce(b"v").partition for _ in range(200)]


def test_turns_begin_where_the_seed_says_and_go_on_over_other_partitions(impl: Any) -> None:
    assert [make_lane(impl, seed=seed).next_turn() for seed in (0, 1, 2, 3, (1 << 64) - 1)] == [1, 2, 3, 0, 0]
    lane = make_lane(impl, seed=4)
    assert [lane.next_turn() for _ in range(3)] == [1, 2, 3]
    lane.spread([5, 6, 7])
    assert [lane.next_turn() for _ in range(3)] == [7, 5, 6]
    lane.spread([])
    with pytest.raises(ValueError, match=r"call spread\(\)"):
        lane.next_turn()


class Partition:
    def __init__(self, id_: Any) -> None:
        self.id = id_


def test_a_partitioner_is_asked_once_for_each_record_and_gets_a_list_of_its_own(impl: Any) -> None:
    lane = make_lane(impl)
    asked: list[Any] = []
    partitions = [Partition(i) for i in range(4)]

    def by_key(given: list[Any], key: Any) -> Any:
        asked.append(key)
        assert given == partitions
        given.clear()
        return partitions[int(key)]

    lane.partition_by(by_key, partitions)
    keys = [b"%d" % (i % 4) for i in range(100)]
    assert [lane.produce(b"v", key).partition for key in keys] == [int(key) for key in keys]
    assert asked == keys
    assert not lane.owner.slow


@pytest.mark.parametrize("chosen", [9, -1, None, "x", True, 1 << 70, Partition(9), Partition("x"), Partition(None)])
def test_what_a_partitioner_chose_is_handed_on_to_the_owner(impl: Any, chosen: Any) -> None:
    lane = make_lane(impl)
    lane.partition_by(lambda partitions, key: chosen, range(4))
    assert lane.produce(b"v", b"k", 5) is SLOW
    assert lane.owner.slow == [(b"v", b"k", 5)]
    assert lane.owner.chosen == [chosen], "so that nobody asks it twice"
    lane.partition_by(lambda partitions, key: 2, range(4))
    assert lane.produce(3, b"k", 5) is SLOW, "a value that is not bytes"
    assert lane.owner.chosen == [chosen, 2]


def test_a_partitioner_that_raises_or_closes_the_lane_takes_nothing_with_it(impl: Any) -> None:
    lane = make_lane(impl)

    def raises(partitions: list[Any], key: Any) -> Any:
        raise LookupError(key)

    def closes(partitions: list[Any], key: Any) -> Any:
        lane.open = False
        return 1

    lane.partition_by(raises, range(4))
    assert lane.produce(b"v", b"k") is SLOW
    assert [type(error) for error in lane.owner.failed] == [LookupError]
    lane.partition_by(closes, range(4))
    assert lane.produce(b"v", b"k") is SLOW
    assert lane.owner.chosen == [1]
    assert lane.accepted == 0
    lane.open = True
    lane.partition_by(closes, [])
    assert lane.produce(b"w") is SLOW, "without partitions the owner asks"
    assert lane.open


def test_what_passes_the_limit_goes_to_the_owner(impl: Any) -> None:
    lane = make_lane(impl, limit=3)
    for _ in range(3):
        lane.produce(b"v")
    assert lane.produce(b"fourth", b"k", 5) is SLOW
    assert lane.owner.slow == [(b"fourth", b"k", 5)]
    assert (lane.accepted, lane.take()) == (3, False)
    lane.limit = 4
    assert lane.take()
    assert (lane.accepted, lane.produce(b"v")) == (4, SLOW)
    lane.give_back()
    assert lane.produce(b"v") is not SLOW


def test_many_threads_never_pass_the_limit(impl: Any) -> None:
    lane = make_lane(impl, limit=2000, lock=threading.Lock(), batch_bytes=1 << 20, buffer_bytes=1 << 24)
    taken: list[object] = []

    def work() -> None:
        taken.extend(lane.take() if i % 3 == 0 else lane.produce(b"v") is not SLOW for i in range(1000))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(map(bool, taken)) == lane.accepted == 2000


@pytest.mark.parametrize(
    "record", [("text",), (b"v", "key"), (b"v", None, "now"), (b"v", None, -1), (b"v", None, 1 << 70), (b"x" * 20000,)]
)
def test_what_is_not_plain_goes_to_the_owner_and_is_not_counted(impl: Any, record: tuple[Any, ...]) -> None:
    lane = make_lane(impl)
    assert lane.produce(*record) is SLOW
    assert lane.owner.slow == [(*record, *(None,) * (3 - len(record)))]
    assert lane.accepted == 0


def test_a_timestamp_is_what_the_owner_makes_of_it(impl: Any) -> None:
    lane = make_lane(impl)
    assert lane.produce(b"v", b"key", "seven").record[2:] == (b"key", b"v", [], 7)
    assert lane.produce(b"v", b"key", 9).record[2:] == (b"key", b"v", [], 9), "a number is one already"


def test_a_closed_lane_and_an_appender_that_is_not_fast_take_nothing(impl: Any) -> None:
    lane = make_lane(impl)
    lane.open = False
    assert lane.produce(b"v") is SLOW
    lane.open, lane.appender.fast = True, False
    assert lane.produce(b"v") is SLOW
    lane.appender.fast = True
    assert lane.produce(b"v") is not SLOW


def test_the_appenders_owner_gets_its_checkpoints(impl: Any) -> None:
    lane = make_lane(impl)
    lane.appender.checkpoint_every = 10
    for _ in range(35):
        lane.produce(b"v")
    assert lane.appender.owner.checkpoints == 3


def test_a_forked_child_takes_nothing(impl: Any) -> None:
    lane = make_lane(impl)
    pid = os.fork()
    if pid == 0:
        os._exit(0 if lane.produce(b"v") is SLOW and lane.accepted == 0 else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert lane.produce(b"v") is not SLOW
