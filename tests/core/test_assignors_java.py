"""Assignors against Java's: the recorded groups of golden/Assignments.java, partition by partition."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gkafka.core.assignors import ASSIGNORS, GroupMember, Topics
from gkafka.wire.consumerprotocol import flattened, read_cooperative_user_data, read_sticky_user_data, read_subscription


class Recorded(NamedTuple):
    """assigned: member id -> its partitions as "topic:number", sorted."""

    assignor: str
    topics: Topics
    members: list[GroupMember]
    assigned: dict[str, list[str]]


@cache
def recorded() -> list[Recorded]:
    with gzip.open(Path(__file__).parent / "golden" / "assignments.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [_read(json.loads(line)) for line in lines]


def _read(row: dict[str, Any]) -> Recorded:
    members = [_member(*told) for told in row["members"]]
    assigned = {member.member_id: partitions for member, partitions in zip(members, row["assigned"], strict=True)}
    return Recorded(row["assignor"], row["topics"], members, assigned)


def _member(name: str, instance: str | None, data: str) -> GroupMember:
    told = read_subscription(bytes.fromhex(data), name)
    owned = flattened(told.owned_partitions)
    return GroupMember(name, told.topics, instance, told.user_data, owned, told.generation_id, told.rack_id)


def assigned(case: Recorded) -> dict[str, list[str]]:
    made = ASSIGNORS[case.assignor].assign(case.topics, case.members)
    return {name: sorted(f"{topic}:{number}" for topic, number in partitions) for name, partitions in made.items()}


@pytest.mark.parametrize("name", ASSIGNORS)
def test_java_gives_the_same_partitions_to_the_same_members(name: str) -> None:
    cases = [case for case in recorded() if case.assignor == name]
    assert len(cases) >= 90
    different = [n for n, case in enumerate(cases) if assigned(case) != case.assigned]
    assert different == []


def test_the_recorded_groups_are_of_all_kinds() -> None:
    """Else the sameness above would say little."""
    kinds: Counter[str] = Counter()
    for case in recorded():
        alike = len({frozenset(member.topics) for member in case.members}) == 1
        kinds["topics alike" if alike else "topics that differ"] += 1
        kinds["racks"] += any(member.rack for member in case.members)
        kinds["static"] += any(member.instance_id for member in case.members)
        kinds["no topic of that name"] += any("missing" in member.topics for member in case.members)
        kinds["more than 20 members"] += len(case.members) > 20
        kinds["members of several generations"] += len({member.generation for member in case.members if member.generation > 0}) > 1
        kinds["letters beyond ASCII"] += not all(member.member_id.isascii() for member in case.members)
    assert len(recorded()) == 1260
    assert all(count >= 20 for count in kinds.values()), kinds


def test_user_data_and_metadata_are_java_s_bytes() -> None:
    """Written anew from what was read: the same bytes, in the order of Java's hash tables where Java has them."""
    compared: Counter[str] = Counter()
    with gzip.open(Path(__file__).parent / "golden" / "assignments.jsonl.gz", "rt", encoding="utf-8") as lines:
        told = [(row["assignor"], bytes.fromhex(data)) for row in map(json.loads, lines) for _, _, data in row["members"]]
    for name, data in told:
        subscription = read_subscription(data, "m")
        assert subscription.to_bytes(data[1]) == data
        if subscription.user_data is None or len(subscription.user_data) == 3:  # damaged by the recorder
            continue
        if name == "sticky" and (sticky := read_sticky_user_data(subscription.user_data)) is not None and sticky.generation > 0:
            had = flattened(sticky.previous_assignment)
            assert ASSIGNORS[name].user_data((), had, sticky.generation) == subscription.user_data
            compared[name] += 1
        if name == "cooperative-sticky" and (cooperative := read_cooperative_user_data(subscription.user_data)) is not None:
            assert ASSIGNORS[name].user_data((), (), cooperative.generation) == subscription.user_data
            compared[name] += 1
    assert all(compared[name] > 200 for name in ("sticky", "cooperative-sticky")), compared
