"""Fetching from a follower nearby (KIP-392), and back from it; hints on who leads now (KIP-951)."""

from __future__ import annotations

from typing import Any

import pytest

from gkafka.exceptions import SocketDisconnectedError
from gkafka.wire.fetch import LeaderIdAndEpoch, NodeEndpoint
from tests.core.fetchrig import EARLIEST, NOT_LEADER, OUT_OF_RANGE, Rig, data, offsets
from tests.records.handmade import values

NOT_AVAILABLE, STORAGE = 78, 56


def near(**options: Any) -> Rig:
    return Rig(rack="r2", lease_s=60.0, **options)


def sent_to_follower(rig: Rig, replica: int = 2) -> None:
    rig.round(data(0, b"", preferred_read_replica=replica))


def test_the_rack_is_told_and_the_follower_that_is_named_is_fetched_from() -> None:
    rig = near()
    asked = rig.ask()
    assert (asked.broker_id, asked.request.rack_id) == (1, "r2")
    rig.answer(asked, {0: data(0, b"", preferred_read_replica=2)})
    asked = rig.ask()
    assert (asked.broker_id, asked.request.topics[0].partitions[0].current_leader_epoch) == (2, 1)
    assert offsets(rig.answer(asked, {0: values(3)})) == [0, 1, 2]
    assert rig.ask().broker_id == 2


def test_without_a_rack_nothing_is_told() -> None:
    assert Rig().ask().request.rack_id == ""


def test_after_the_lease_the_leader_is_asked_again() -> None:
    rig = near()
    sent_to_follower(rig)
    rig.now += 59
    rig.round(values(1))
    rig.now += 2
    asked = rig.ask()
    assert (asked.broker_id, asked.request.rack_id) == (1, "r2")


@pytest.mark.parametrize("code", [OUT_OF_RANGE, NOT_LEADER, NOT_AVAILABLE, STORAGE])
def test_b42_whatever_a_follower_refuses_the_leader_is_asked_and_nothing_is_reset(code: int) -> None:
    rig = near(reset_policy=EARLIEST)
    sent_to_follower(rig)
    rig.round(code)
    plan = rig.poll()
    (asked,) = plan.fetches
    assert (asked.broker_id, asked.request.rack_id, plan.lookups, rig.errors) == (1, "", [], []), "the leader would send us there again"
    assert rig[0].fetch_offset == 0
    rig.answer(asked, {0: values(3)})
    rig.now += 11
    assert rig.ask().request.rack_id == "r2"


def test_b42_an_offset_out_of_range_counts_when_the_leader_says_so() -> None:
    rig = near()
    sent_to_follower(rig)
    rig.round(OUT_OF_RANGE)
    rig.round(OUT_OF_RANGE)
    rig.now += 2
    assert rig.lookup().broker_id == 1


def test_a_follower_that_cannot_be_reached_is_left() -> None:
    rig = near()
    sent_to_follower(rig)
    rig.take(rig.ask(), None, SocketDisconnectedError("gone"))
    rig.now = rig.poll().deadline
    asked = rig.ask()
    assert (asked.broker_id, asked.request.rack_id) == (1, "")


def test_a_follower_that_is_not_known_strands_nobody() -> None:
    """The leader would send us there again and again, and no record with it."""
    rig = near()
    sent_to_follower(rig, 9)
    assert rig.stale
    asked = rig.ask()
    assert (asked.broker_id, asked.request.rack_id) == (1, "")


def test_a_follower_that_leaves_the_cluster_is_left() -> None:
    rig = near()
    sent_to_follower(rig)
    rig.metadata.brokers = {i: b for i, b in rig.metadata.brokers.items() if i != 2}
    assert rig.ask().broker_id == 1


def test_epochs_and_starts_are_asked_of_the_leader() -> None:
    rig = near()
    sent_to_follower(rig)
    rig.round(values(3, leader_epoch=1))
    rig.metadata.leader_moved("t", 0, 3, 5)
    check = rig.check()
    assert check.broker_id == 3
    rig.checked(check, {0: (1, 3)})
    assert rig.ask().broker_id == 2, "the follower follows the new leader"
    rig[0].reset(-1)
    assert rig.lookup().broker_id == 3


def test_a_hint_names_a_leader_that_the_metadata_do_not_have() -> None:
    rig = Rig()
    asked = rig.ask()
    refused = data(0, NOT_LEADER, current_leader=LeaderIdAndEpoch(leader_id=8, leader_epoch=7))
    rig.answer(asked, {0: refused}, node_endpoints=[NodeEndpoint(node_id=8, host="h8", port=9008)])
    asked = rig.ask()
    assert asked.broker_id == 8
    assert rig.metadata.brokers[8].host == "h8"


def test_partitions_of_one_leader_may_be_fetched_from_several_brokers() -> None:
    rig = Rig({0: 1, 1: 1}, rack="r2")
    rig.answer(rig.ask(), {0: data(0, b"", preferred_read_replica=2), 1: data(1, b"")})
    assert sorted(asked.broker_id for asked in rig.asked()) == [1, 2]
