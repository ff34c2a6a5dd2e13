"""What members say to each other: Kafka's own bytes, and bytes that no client should have written."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from functools import partial

import pytest

from gkafka.common import TopicPartition
from gkafka.exceptions import ProtocolError
from gkafka.wire.consumerprotocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    CooperativeUserData,
    MemberPartitions,
    StickyUserData,
    by_topic,
    flattened,
    read_assignment,
    read_cooperative_user_data,
    read_sticky_user_data,
    read_subscription,
)
from tests.effort import quick_and_thorough
from tests.kit.memory import traced
from tests.wire.recorded import EMBEDDED, Embedded, embedded

Value = ConsumerProtocolSubscription | ConsumerProtocolAssignment
READERS = {ConsumerProtocolSubscription: read_subscription, ConsumerProtocolAssignment: read_assignment}
every_recording = pytest.mark.parametrize("one", embedded(), ids=lambda one: f"{type(one.value).__name__}-v{one.version}-{one.kind}")


def read(one: Embedded, data: bytes) -> Value:
    found: Value = READERS[type(one.value)](data, "m-1")
    return found


def refusal(reading: Callable[[], object]) -> str:
    """The ProtocolError's text; the member's name where there was none."""
    try:
        reading()
    except ProtocolError as error:
        return str(error)
    return "'m-1'"


def test_every_version_of_both_is_recorded_in_three_kinds() -> None:
    recorded = sorted((type(one.value).__name__, one.version, one.kind) for one in embedded())
    assert recorded == sorted((name, v, kind) for name in EMBEDDED for v in range(4) for kind in ("default", "nulls", "rich"))


@every_recording
def test_gkafka_writes_and_reads_what_kafka_writes(one: Embedded) -> None:
    assert one.value.to_bytes(one.version) == one.data
    assert read(one, one.data) == one.value


@every_recording
def test_a_newer_version_is_read_as_the_newest_that_is_known(one: Embedded) -> None:
    if one.version == 3:
        newer = struct.pack(">h", 9) + one.data[2:] + b"what is new in it"
        assert read(one, newer) == one.value


@every_recording
def test_metadata_that_are_cut_off_name_the_member(one: Embedded) -> None:
    partitions = getattr(one.value, "assigned_partitions", None)
    pykafkas = None if partitions is None else len(ConsumerProtocolAssignment(assigned_partitions=partitions).to_bytes()) - 4
    for cut in set(range(1, len(one.data))) - {pykafkas}:
        with pytest.raises(ProtocolError, match="'m-1'"):
            read(one, one.data[:cut])


@pytest.mark.parametrize("data", [b"\xff\xff", b"\x80\x00\x00\x00\x00\x00", b"\x00", b""], ids=repr)
def test_a_version_that_cannot_be_names_the_member(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="'m-1'"):
        read_subscription(data, "m-1")


def test_an_assignment_that_ends_with_its_partitions_is_pykafkas() -> None:
    """pykafka's leaders leave the user data out, which its own document has; its members and gkafka's share groups."""
    written = bytes.fromhex("0001 00000002 0001 74 00000002 00000000 00000002 0001 75 00000000")
    read = read_assignment(written, "m")
    assert [(one.topic, one.partitions) for one in read.assigned_partitions] == [("t", [0, 2]), ("u", [])]
    assert read.user_data is None
    for end in range(1, len(written)):
        with pytest.raises(ProtocolError, match="'m'"):
            read_assignment(written[:end], "m")
    for more in (b"\0", b"\0\0", b"\xff\xff\xff"):
        with pytest.raises(ProtocolError, match="'m'"):
            read_assignment(written + more, "m")


def test_no_bytes_are_an_assignment_of_nothing() -> None:
    """A coordinator gives them to a member that its leader did not mention."""
    assert read_assignment(b"", "m-1") == ConsumerProtocolAssignment()


@pytest.mark.parametrize("lie", [b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff\xff\xff\xff"], ids=bytes.hex)
@every_recording
def test_counts_that_lie_cost_no_memory(one: Embedded, lie: bytes) -> None:
    read(one, one.data)
    with traced() as peak:
        for at in range(2, len(one.data) - 3):
            assert "'m-1'" in refusal(partial(read, one, one.data[:at] + lie + one.data[at + 4 :]))
        assert peak() < 1 << 20


@pytest.mark.parametrize("count", quick_and_thorough(2000, 20_000, 200_000))
def test_garbage_is_read_or_refused_by_name(count: int) -> None:
    chance = random.Random(7)
    recorded = [one.data for one in embedded()]
    for _ in range(count):
        data = bytearray(chance.choice(recorded))
        for _ in range(chance.randint(1, 4)):
            if data:
                data[chance.randrange(len(data))] = chance.randrange(256)
        data = data[: chance.randint(0, len(data))] if chance.random() < 0.3 else data
        for reader in (read_subscription, read_assignment):
            assert "'m-1'" in refusal(partial(reader, bytes(data), "m-1"))
        read_sticky_user_data(bytes(data))
        read_cooperative_user_data(bytes(data))


# -- user data ---------------------------------------------------------------------------------------------------------
def test_sticky_user_data_are_read_in_both_forms() -> None:
    had = [MemberPartitions(topic="t", partitions=[0, 3])]
    new = StickyUserData(previous_assignment=had, generation=7)
    assert read_sticky_user_data(new.to_bytes()) == new
    assert read_sticky_user_data(new.to_bytes()[:-4]) == StickyUserData(previous_assignment=had)
    assert read_sticky_user_data(None) is None
    assert read_sticky_user_data(b"") is None
    assert read_sticky_user_data(b"\x7f\xff\xff\xff") == StickyUserData()


def test_cooperative_user_data_hold_a_generation() -> None:
    assert CooperativeUserData(generation=5).to_bytes() == b"\0\0\0\5"
    assert read_cooperative_user_data(b"\0\0\0\5") == CooperativeUserData(generation=5)
    assert read_cooperative_user_data(None) is None
    assert read_cooperative_user_data(b"\0\0") == CooperativeUserData()


def test_partitions_are_grouped_by_topic_and_taken_apart() -> None:
    partitions = [TopicPartition("b", 1), TopicPartition("a", 0), TopicPartition("b", 0)]
    assert by_topic(partitions) == [MemberPartitions(topic="b", partitions=[1, 0]), MemberPartitions(topic="a", partitions=[0])]
    assert sorted(flattened(by_topic(partitions))) == sorted(partitions)


@pytest.mark.parametrize("cut", [0, 1])
def test_what_a_leader_gives_has_a_bounded_number_of_entries(cut: int) -> None:
    """3 million topics without a partition: 9 s and 300 MiB; damaged, 27 s and 700."""
    data = struct.pack(">hi", 1, 3_000_000) + bytes(6) * 3_000_000 + struct.pack(">i", -1)
    with pytest.raises(ProtocolError, match=r"more than 100000 entries \(no member needs so many\)"):
        read_assignment(data[: len(data) - cut], "m")
