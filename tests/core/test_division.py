"""Who has the partitions of a group divided anew, and when."""

from __future__ import annotations

from gkafka.core.division import LEADER_S, Division


def test_a_leader_asks_at_once_and_once() -> None:
    division = Division({"t": 4})
    division.count({"t": 4}, 1, 0.0)
    assert not division.is_due(1, 0.0, is_leader=True)
    division.count({"t": 5}, 1, 1.0)
    assert division.is_due(1, 1.0, is_leader=True)
    assert not division.is_due(1, 2.0, is_leader=True)


def test_another_member_leaves_the_leader_some_time() -> None:
    division = Division({"t": 4})
    division.count({"t": 5}, 1, 1.0)
    assert not division.is_due(1, 1.0 + LEADER_S - 0.1, is_leader=False)
    assert division.is_due(1, 1.0 + LEADER_S, is_leader=False)


def test_what_was_divided_anew_since_is_not_asked_for() -> None:
    division = Division({"t": 4})
    division.count({"t": 5}, 1, 1.0)
    assert not division.is_due(2, 1.0 + LEADER_S, is_leader=True)
    assert not division.is_due(1, 1.0 + LEADER_S, is_leader=True)


def test_a_topic_that_comes_back_with_other_partitions_is_noticed() -> None:
    division = Division({"t": 4})
    division.count({}, 1, 1.0)
    division.count({"t": 5}, 1, 2.0)
    assert division.is_due(1, 2.0, is_leader=True)


def test_a_topic_that_nobody_knew_of_is_divided_by_whoever_subscribes_to_it() -> None:
    division = Division({"t": 4})
    division.count({"t": 4, "other": 3}, 1, 1.0)
    assert not division.is_due(1, 1.0, is_leader=True)


def test_a_leader_that_divided_by_what_was_outdated_asks_once_in_a_generation() -> None:
    division = Division({"t": 4})
    for now in (1.0, 2.0):
        division.outdate(1, now)
        assert division.is_due(1, now, is_leader=True) is (now == 1.0)
    division.outdate(2, 3.0)
    assert division.is_due(2, 3.0, is_leader=True)
