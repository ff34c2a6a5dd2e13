"""How members divide a topic, and what is refused before anybody hears of a member."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gkafka import KafkaClient, Partition
from gkafka.exceptions import ConfigurationError
from gkafka.membershipprotocol import GroupMembershipProtocol, RangeProtocol, RoundRobinProtocol, check_protocol, flaw_of, share_of
from gkafka.testing import MockCluster

Connect = Callable[..., KafkaClient]


class Topic:
    name = "t"


class Leader:
    def __init__(self, id: int) -> None:
        self.id = id


def partitions(leaders: list[int]) -> dict[int, Partition]:
    return {n: Partition(Topic(), n, Leader(leader), [], []) for n, leader in enumerate(leaders)}  # type: ignore[arg-type]


def ids(protocol: GroupMembershipProtocol, leaders: list[int], members: list[str]) -> list[list[int]]:
    known = partitions(leaders)
    return [sorted(share_of(protocol, members, known, member)) for member in members]


def test_behaviour_59_a_range_is_a_run_of_neighbours_in_the_order_of_leaders() -> None:
    assert ids(RangeProtocol, [1, 1, 1, 1, 1], ["a", "b"]) == [[0, 1, 2], [3, 4]]
    assert ids(RangeProtocol, [2, 1, 2, 1], ["a", "b"]) == [[1, 3], [0, 2]]
    assert ids(RangeProtocol, [1] * 11, ["a", "b"]) == [[0, 1, 2, 3, 4, 10], [5, 6, 7, 8, 9]], "compared as text, as pykafka does"


def test_behaviour_59_round_robin_deals_out_in_turn() -> None:
    assert ids(RoundRobinProtocol, [1, 1, 1, 1, 1], ["a", "b"]) == [[0, 2, 4], [1, 3]]


@pytest.mark.parametrize("protocol", [RangeProtocol, RoundRobinProtocol])
@given(leaders=st.lists(st.integers(0, 20), max_size=40), members=st.sets(st.text(min_size=1), min_size=1, max_size=10))
def test_all_partitions_have_one_owner_and_nobody_has_two_more_than_another(
    protocol: GroupMembershipProtocol, leaders: list[int], members: set[str]
) -> None:
    shares = ids(protocol, leaders, sorted(members))
    assert sorted(p for share in shares for p in share) == list(range(len(leaders)))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_a_division_that_leaves_out_or_gives_twice_is_named() -> None:
    known = partitions([1, 1, 1])

    def flaw(decide: Any) -> str:
        return flaw_of(GroupMembershipProtocol(b"consumer", b"mine", None, decide), ["a", "b"], known)

    assert flaw(RangeProtocol.decide_partitions) == ""
    assert flaw(lambda members, parts, me: [parts[0]] if me == "a" else [parts[2]]).endswith("gives partitions [1] to nobody")
    assert "[0, 1, 2] to more than one member" in flaw(lambda members, parts, me: parts.values())
    assert "ZeroDivisionError" in flaw(lambda members, parts, me: 1 / 0 if me == "b" else parts.values())


@pytest.mark.parametrize(
    "odd", [5, "range", GroupMembershipProtocol("consumer", b"x", None, len), RangeProtocol._replace(decide_partitions=None)]
)
def test_what_is_no_protocol_is_refused(odd: Any) -> None:
    with pytest.raises(ConfigurationError, match="membership_protocol="):
        check_protocol(odd)


@pytest.mark.parametrize("protocol", [RangeProtocol, RoundRobinProtocol])
def test_a_member_that_is_none_of_the_participants_is_named(protocol: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"consumer_id='b': is none of the participants \['a'\]"):
        protocol.decide_partitions(["a"], partitions([1]), "b")


def fails(*_: object) -> Any:
    raise RuntimeError("no")


@pytest.mark.parametrize(
    ("decide", "said"),
    [(fails, "failed: RuntimeError: no"), (lambda *_: None, "failed: TypeError"), (lambda *_: [3], "chose 3")],
)
def test_a_protocol_that_fails_is_named(decide: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=f"membership_protocol 'mine' {said}"):
        share_of(GroupMembershipProtocol(b"consumer", b"mine", None, decide), ["a"], partitions([1]), "a")


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        ({"consumer_group": ""}, "consumer_group=''"),
        ({"consumer_group": "a/b"}, "part of a path"),
        ({"post_rebalance_callback": 5}, "post_rebalance_callback=5"),
        ({"membership_protocol": 5}, "membership_protocol=5"),
        ({"zookeeper": object()}, "must be a kazoo.client.KazooClient"),
        ({"zookeeper_connection_timeout_ms": -1}, "zookeeper_connection_timeout_ms=-1"),
        ({"rebalance_max_retries": -1}, "rebalance_max_retries=-1"),
        ({"rebalance_backoff_ms": float("nan")}, "rebalance_backoff_ms=nan"),
        ({"queued_max_messages": 0}, "queued_max_messages"),
        ({"no_such_keyword": 1}, "no_such_keyword"),
        ({"consumer_timeout_ms": -2}, "consumer_timeout_ms=-2"),
    ],
)
def test_bad_keywords_are_refused_before_zookeeper_hears_of_them(
    connect: Connect, cluster: MockCluster, keywords: dict[str, Any], said: str
) -> None:
    topic = connect(cluster).topics["t"]
    with pytest.raises(ConfigurationError, match=said):
        topic.get_balanced_consumer(**{"consumer_group": "g", "zookeeper_connect": "127.0.0.1:1", **keywords})
