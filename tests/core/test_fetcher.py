"""The consumer's machine: what it asks of whom, what it makes of the answers, and where it stands after each."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from gkafka import records
from gkafka.core.backoff import Backoff
from gkafka.core.fetcher import AbortFilter, Asked, Fetched
from gkafka.core.positions import Position, State
from gkafka.core.standing import Reason, reason_of
from gkafka.exceptions import (
    CorruptRecordError,
    OffsetOutOfRangeError,
    RecordTooLarge,
    SocketDisconnectedError,
    TopicAuthorizationFailed,
    UnsupportedVersion,
)
from gkafka.wire.fetch import FetchableTopicResponse, FetchResponse, LeaderIdAndEpoch
from gkafka.wire.offsets import ListOffsetsPartitionResponse, ListOffsetsResponse, ListOffsetsTopicResponse
from tests.core.fakes import TOPIC_ID
from tests.core.fetchrig import (
    EARLIEST,
    FENCED,
    LATEST,
    NEVER,
    NOT_LEADER,
    OUT_OF_RANGE,
    UNAUTHORIZED,
    UNKNOWN_EPOCH,
    UNKNOWN_ID,
    UNKNOWN_TOPIC,
    Context,
    Remembering,
    Rig,
    aborted,
    bad_magic,
    data,
    offsets,
    partitions,
    tp,
    txn,
)
from tests.effort import one_of
from tests.records.handmade import TRANSACTIONAL, batch, marker, message, record, values, wrapper


# -- what is asked ---------------------------------------------------------------------------------------------------------
def test_each_leader_is_asked_once_for_all_its_partitions() -> None:
    rig = Rig({0: 1, 1: 1, 2: 2, 3: 1})
    found = {asked.broker_id: sorted(partitions(asked)) for asked in rig.asked()}
    assert found == {1: [0, 1, 3], 2: [2]}
    assert rig.asked() == [], "one fetch is under way for each of them"


def test_the_next_fetch_of_a_broker_is_made_when_it_has_answered_and_not_before() -> None:
    rig = Rig({0: 1, 1: 2})
    first = {asked.broker_id: asked for asked in rig.asked()}
    rig.answer(first[1], {0: values(3)})
    (again,) = rig.asked()
    assert again.broker_id == 1
    assert again.request.topics[0].partitions[0].fetch_offset == 3


def test_partitions_take_turns_in_being_first() -> None:
    """The broker fills its answer from the first one on."""
    rig = Rig(dict.fromkeys(range(4), 1))
    firsts = []
    for _ in range(8):
        asked = rig.ask()
        firsts.append(partitions(asked)[0])
        rig.now += 0.5  # the broker has parked it
        rig.answer(asked, dict.fromkeys(range(4), b""))
    assert sorted(firsts) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_request_says_what_the_options_say() -> None:
    rig = Rig(min_bytes=7, max_bytes=1 << 19, wait_max_ms=321, partition_max_bytes=4096)
    request = rig.ask().request
    assert (request.min_bytes, request.max_bytes, request.max_wait_ms, request.isolation_level) == (7, 1 << 19, 321, 1)
    part = request.topics[0].partitions[0]
    assert (part.partition_max_bytes, part.current_leader_epoch, part.fetch_offset) == (4096, 1, 0)
    assert request.topics[0].topic_id == TOPIC_ID
    assert Rig(read_committed=False).ask().request.isolation_level == 0


def test_what_is_asked_for_can_change_from_one_fetch_to_the_next() -> None:
    rig = Rig({0: 1, 1: 1}, min_bytes=7, wait_max_ms=321, partition_max_bytes=100, biggest_partition_bytes=5000)
    asked = rig.ask()
    rig[1].max_bytes = 900  # it grew for a record
    rig.fetcher.tune(1, 50, 400)
    rig.answer(asked, {0: b"", 1: b""})
    request = rig.ask().request
    assert (request.min_bytes, request.max_wait_ms) == (1, 50)
    assert {p.partition: p.partition_max_bytes for p in request.topics[0].partitions} == {0: 400, 1: 900}
    rig.fetcher.tune(1, 50, 9000)
    assert [rig[p].max_bytes for p in (0, 1)] == [5000, 5000]


def test_a_partition_whose_queue_is_full_is_left_out_and_the_fetch_beside_it_does_not_park() -> None:
    rig = Rig({0: 1, 1: 1})
    rig[0].buffered = 100
    asked = rig.ask()
    assert partitions(asked) == [1]
    assert asked.request.max_wait_ms <= 20
    rig.answer(asked, {1: b""})
    rig[0].buffered = 99
    asked = rig.ask()
    assert sorted(partitions(asked)) == [0, 1]
    assert asked.request.max_wait_ms == 500


def test_when_every_queue_is_full_nothing_is_asked() -> None:
    rig = Rig()
    rig[0].buffered = 100
    plan = rig.poll()
    assert (plan.fetches, plan.lookups, plan.want_metadata, plan.deadline) == ([], [], False, NEVER)


def test_buffered_counts_what_was_fetched() -> None:
    rig = Rig()
    rig.round(values(3) + values(4, base_offset=3))
    assert rig[0].buffered == 7


def test_a_compressed_old_message_counts_for_the_offsets_that_it_may_hold() -> None:
    """It does not say how many records it has (B40)."""
    rig = Rig(start=10)
    inner = [message(i, b"v", magic=1) for i in range(20)]
    fetched = rig.round(wrapper(inner, 24))
    assert rig[0].buffered == 15
    assert fetched[0].messages == 15


def test_paused_and_halted_partitions_are_not_asked_for() -> None:
    rig = Rig({0: 1, 1: 1, 2: 1})
    rig[0].paused = True
    rig[1].halt(CorruptRecordError("x"))
    assert partitions(rig.ask()) == [2]


def test_a_partition_without_a_leader_wants_metadata_and_the_others_go_on() -> None:
    rig = Rig({0: 1, 1: -1})
    plan = rig.poll()
    assert plan.want_metadata
    assert [partitions(a) for a in plan.fetches] == [[0]]


def test_a_partition_that_moved_is_asked_of_its_new_leader() -> None:
    rig = Rig({0: 1})
    assert rig.ask().broker_id == 1
    rig.metadata.leader_moved("t", 0, 2, 5)
    asked = rig.ask()
    assert asked.broker_id == 2
    assert asked.request.topics[0].partitions[0].current_leader_epoch == 5


def test_both_leaders_may_answer_and_nothing_comes_twice() -> None:
    rig = Rig({0: 1})
    old = rig.ask()
    rig.metadata.leader_moved("t", 0, 2, 5)
    new = rig.ask()
    assert offsets(rig.answer(new, {0: values(5)})) == [0, 1, 2, 3, 4]
    assert offsets(rig.answer(old, {0: values(3)})) == []
    assert rig[0].fetch_offset == 5
    assert rig[0].buffered == 5


# -- what the answers hold -------------------------------------------------------------------------------------------------
def test_an_answer_is_split_into_batches_and_the_position_is_behind_the_last() -> None:
    rig = Rig()
    fetched = rig.round(values(3) + values(2, base_offset=3))
    assert offsets(fetched) == [0, 1, 2, 3, 4]
    assert rig[0].fetch_offset == 5
    assert rig[0].consumed == 0, "what is fetched is not consumed"
    assert rig[0].high_watermark == 1000


def sliced(rig: Rig, asked: Asked, parts: dict[int, bytes]) -> Iterator[list[tuple[int, int]]]:
    """An answer as it is taken in, slice by slice: the partition and first offset of each span."""
    rows = [data(partition, content) for partition, content in parts.items()]
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", topic_id=TOPIC_ID, partitions=rows)])
    for taken in rig.fetcher.on_fetched(asked, response, None, rig.now):
        yield [(fetched.position.tp.partition, fetched.span.base_offset) for fetched in taken.spans]


def five_batches() -> bytes:
    """Each of another leader, and so a span of its own."""
    return b"".join(values(1, base_offset=offset, leader_epoch=offset) for offset in range(5))


@pytest.fixture
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gkafka.core.fetcher.SLICE", 4)


@pytest.mark.usefixtures("small_slices")
def test_a_large_answer_is_taken_in_by_slices_and_the_broker_is_asked_again_behind_the_last() -> None:
    rig = Rig({0: 1, 1: 1})
    found = []
    for batches in sliced(rig, rig.ask(), {0: five_batches(), 1: five_batches()}):
        found.append(batches)
        assert len(batches) < 6
        assert (rig.asked() == []) == (len(found) < 4)
    assert [one for batches in found for one in batches] == [(p, offset) for p in (0, 1) for offset in range(5)]


@pytest.mark.usefixtures("small_slices")
def test_what_becomes_void_between_two_slices_is_left_out() -> None:
    rig = Rig({0: 1, 1: 1, 2: 1})
    slices = sliced(rig, rig.ask(), dict.fromkeys(range(3), five_batches()))
    assert next(slices) == [(0, 0), (0, 1), (0, 2)]
    rig[0].seek(1)
    del rig.fetcher.positions[tp(1)]
    assert [one for batches in slices for one in batches] == [(2, offset) for offset in range(5)]
    assert rig[0].fetch_offset == 1


@pytest.mark.usefixtures("small_slices")
def test_an_answer_of_which_somebody_has_hung_up_ends() -> None:
    rig = Rig()
    slices = sliced(rig, rig.ask(), {0: five_batches()})
    next(slices)
    rig.fetcher.forget_requests()
    assert list(slices) == []
    assert rig[0].fetch_offset == 3
    assert not rig[0].in_flight


def test_an_empty_answer_changes_nothing() -> None:
    rig = Rig(start=7)
    assert rig.round(b"") == []
    assert (rig[0].fetch_offset, rig[0].consumed, rig.errors) == (7, 7, [])
    assert rig.ask().request.topics[0].partitions[0].fetch_offset == 7


def test_records_before_the_position_are_not_handed_out() -> None:
    """A broker answers with whole batches."""
    rig = Rig(start=2)
    assert offsets(rig.round(values(5))) == [2, 3, 4]


def test_a_cut_tail_is_fetched_again() -> None:
    rig = Rig()
    assert offsets(rig.round(values(3) + values(5, base_offset=3)[:-1])) == [0, 1, 2]
    assert offsets(rig.round(values(5, base_offset=3))) == [3, 4, 5, 6, 7]


@pytest.mark.parametrize("version", [0, 1])
def test_old_messages_plain_and_compressed(version: int) -> None:
    rig = Rig(start=1)
    plain = b"".join(message(i, b"v", magic=version) for i in range(3))
    first = 0 if version else 3
    packed = wrapper([message(first + i, b"v", magic=version) for i in range(3)], 5, magic=version)
    assert offsets(rig.round(plain + packed)) == [1, 2, 3, 4, 5]
    assert rig[0].fetch_offset == 6


def test_formats_may_change_within_an_answer() -> None:
    rig = Rig()
    assert offsets(rig.round(message(0, b"v", magic=0) + message(1, b"v", magic=1) + values(2, base_offset=2))) == [0, 1, 2, 3]


def test_an_aborted_transaction_goes_on_in_the_next_answer() -> None:
    """Each answer lists the aborted transactions that reach into it."""
    rig = Rig()
    assert offsets(rig.round(data(0, txn(2, 0, 7), **aborted((7, 0))))) == []
    assert offsets(rig.round(data(0, txn(2, 2, 7) + marker(0, 4, producer_id=7) + txn(1, 5, 7), **aborted((7, 0))))) == [5]


def test_records_outside_transactions_are_never_hidden() -> None:
    rig = Rig()
    plain = values(2, base_offset=1, producer_id=7)
    assert offsets(rig.round(data(0, txn(1, 0, 7) + plain + marker(0, 3, producer_id=7), **aborted((7, 0))))) == [1, 2]


def test_read_uncommitted_hides_only_the_markers() -> None:
    rig = Rig(read_committed=False)
    assert offsets(rig.round(data(0, txn(2, 0, 7) + marker(0, 2, producer_id=7), **aborted((7, 0))))) == [0, 1]


@pytest.mark.parametrize("numbers", one_of(range(60), range(60, 150)), ids=["quick", "thorough"])
def test_whatever_transactions_a_log_holds_exactly_the_committed_records_come(numbers: range) -> None:
    """A random log of interleaved transactions, cut into answers at random batches; the aborted lists are shuffled."""
    for seed in numbers:
        _exactly_the_committed_records_come(seed)


def _exactly_the_committed_records_come(seed: int) -> None:
    chance = Random(seed)
    log: list[tuple[int, bytes]] = []  # (next offset, bytes)
    open_at: dict[int, int] = {}
    unsettled: dict[int, list[int]] = {}
    done: list[tuple[int, int, int]] = []  # (producer, first offset, offset of its abort marker)
    committed: list[int] = []
    offset = 0
    for _ in range(40):
        producer = chance.choice([-1, 7, 8, 9])
        offset += chance.choice([0, 0, 0, 3])  # compaction leaves gaps
        if producer in open_at and chance.random() < 0.4:
            kind = chance.randint(0, 1)
            log.append((offset + 1, marker(kind, offset, producer_id=producer)))
            if kind:
                committed += unsettled.pop(producer)
            else:
                done.append((producer, open_at[producer], offset))
                unsettled.pop(producer)
            del open_at[producer]
            offset += 1
            continue
        n = chance.randint(1, 4)
        kept = sorted(chance.sample(range(n), chance.randint(0, n)))
        attributes = (TRANSACTIONAL if producer >= 0 else 0) | chance.choice([0, 1])
        log.append(
            (
                offset + n,
                batch([record(i, b"v") for i in kept], base_offset=offset, last_delta=n - 1, producer_id=producer, attributes=attributes),
            )
        )
        if producer >= 0:
            open_at.setdefault(producer, offset)
            unsettled.setdefault(producer, []).extend(offset + i for i in kept)
        else:
            committed += [offset + i for i in kept]
        offset += n
    stable = min(open_at.values(), default=offset)
    log = [(end, bytes_) for end, bytes_ in log if end <= stable]
    rig = Rig(queued_max_messages=10_000)
    found: list[int] = []
    while rig[0].fetch_offset < (log[-1][0] if log else 0):
        at = rig[0].fetch_offset
        rest = [entry for entry in log if entry[0] > at]
        part = rest[: chance.randint(1, 8)]
        reach = [(p, first) for p, first, end in done if end >= at and first < part[-1][0]]
        chance.shuffle(reach)
        found += offsets(rig.round(data(0, b"".join(b for _, b in part), **aborted(*reach))))
    assert found == sorted(o for o in committed if o < stable)
    assert rig.errors == []


# -- damage (B44) ----------------------------------------------------------------------------------------------------------
def test_a_seek_past_the_damage_goes_on_at_once() -> None:
    rig = Rig()
    rig.round(bad_magic(0))
    rig[0].seek(2)
    assert offsets(rig.round(values(2, base_offset=2))) == [2, 3]


def test_a_damaged_marker_names_its_partition_and_comes_after_what_stands_before_it() -> None:
    spoiled = bytearray(marker(0, 3, producer_id=7))
    spoiled[-3] ^= 0xFF
    rig = Rig()
    assert offsets(rig.round(values(3) + bytes(spoiled))) == [0, 1, 2]
    assert rig[0].fetch_offset == 3
    (error,) = rig.errors
    assert isinstance(error, CorruptRecordError)
    assert (error.topic, error.partition, error.offset) == ("t", 0, 3)
    assert "t[0]" in str(error)


def test_damage_in_one_partition_does_not_touch_the_others() -> None:
    rig = Rig({0: 1, 1: 1, 2: 1})
    fetched = rig.answer(rig.ask(), {0: values(2), 1: bad_magic(0), 2: values(3)})
    assert [(f.position.tp.partition, len(offsets([f]))) for f in fetched] == [(0, 2), (2, 3)]
    assert partitions(rig.ask()) in ([0, 2], [2, 0])


@pytest.mark.parametrize("numbers", one_of(range(60), range(60, 100)), ids=["quick", "thorough"])
def test_no_byte_of_an_answer_can_make_it_skip_or_spin(numbers: range) -> None:
    """A flipped bit: a prefix of the true records, then an error or a wait; the position never passes what was handed out and checked.

    Not in the base offset, which no checksum covers: see the next test.
    """
    for seed in numbers:
        _does_not_skip_or_spin(seed)


def _does_not_skip_or_spin(seed: int) -> None:
    chance = Random(seed)
    one = len(values(3))
    batches = [values(3, base_offset=3 * n) for n in range(4)] + [marker(1, 12, producer_id=3), batch([], base_offset=13)]
    starts = [sum(map(len, batches[:n])) for n in range(6)]
    spoiled = bytearray(b"".join(batches))
    place = chance.choice([i for i in range(len(spoiled)) if all(not s <= i < s + 8 for s in starts)])
    spoiled[place] ^= 1 << chance.randrange(8)
    rig = Rig()
    found: list[int] = []
    content = bytes(spoiled)
    for _ in range(6):
        plan = rig.poll()
        if not plan.fetches:
            break
        for fetched in rig.answer(plan.fetches[0], {0: content}):
            reader = records.Records(fetched.buffer, fetched.span, Context(), min_offset=fetched.skip_to)
            try:
                while reader.remaining:
                    found += [message.offset for message in reader.take(100)]
                    rig[0].consumed = reader.next_offset
            except CorruptRecordError as error:  # met by whoever reads the batch: the checksum
                rig.errors.append(error)
                break
        if rig.errors:
            break
        content = b""
    assert found == list(range(len(found)))
    assert len(found) >= min(place // one * 3, 12), "everything before the damage comes"
    assert rig[0].consumed == len(found) if len(found) < 12 else rig[0].consumed <= 14


def test_a_batch_that_begins_within_the_one_before_it_is_damage() -> None:
    """A flipped bit of its base offset: no checksum covers it, and its records would come under others' offsets."""
    rig = Rig()
    spoiled = bytearray(values(3) + values(3, base_offset=3))
    spoiled[len(spoiled) // 2 + 7] = 2
    assert offsets(rig.round(bytes(spoiled))) == [0, 1, 2]
    (error,) = rig.errors
    assert isinstance(error, CorruptRecordError)
    assert (error.partition, error.offset, rig[0].fetch_offset) == (0, 3, 3)


def test_a_hidden_batch_is_checked_before_it_is_passed_over() -> None:
    """A flipped bit must not turn records into those of an aborted transaction."""
    rig = Rig()
    spoiled = bytearray(values(2, producer_id=7))
    spoiled[22] |= TRANSACTIONAL
    assert rig.round(data(0, bytes(spoiled), **aborted((7, 0)))) == []
    (error,) = rig.errors
    assert isinstance(error, CorruptRecordError)
    assert (error.topic, error.partition, error.offset, rig[0].fetch_offset) == ("t", 0, 0, 0)


# -- errors ----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("policy", [EARLIEST, LATEST])
def test_an_offset_out_of_range_is_looked_up_by_the_policy(policy: int) -> None:
    rig = Rig(start=50, reset_policy=policy)
    rig.round(OUT_OF_RANGE)
    assert rig.errors == []
    lookup = rig.lookup()
    assert lookup.request.topics[0].partitions[0].timestamp == policy
    assert rig.poll().lookups == [], "it is asked once"
    rig.looked_up(lookup, {0: 80})
    assert (rig[0].fetch_offset, rig[0].consumed, rig[0].state) == (80, 80, State.FETCHING)
    assert rig.ask().request.topics[0].partitions[0].fetch_offset == 80


@pytest.mark.parametrize("policy", [EARLIEST, LATEST])
def test_a_broker_that_denies_that_a_log_has_ends_is_not_asked_in_a_loop(policy: int) -> None:
    """It was asked 3,500 times a second."""
    rig = Rig(start=50, reset_policy=policy)
    rig.round(OUT_OF_RANGE)
    asked = 0
    for _ in range(100):
        for lookup in rig.poll().lookups:
            rig.looked_up(lookup, {0: -5})
            asked += 1
        rig.now += 0.01
    assert asked <= 3
    rig.now += 1.0
    rig.looked_up(rig.lookup(), {0: 80})
    assert rig[0].fetch_offset == 80


def test_without_a_policy_an_offset_out_of_range_is_an_error_that_halts() -> None:
    """B32."""
    rig = Rig(start=50, reset_policy=None)
    rig.round(OUT_OF_RANGE)
    (error,) = rig.errors
    assert isinstance(error, OffsetOutOfRangeError)
    assert (error.topic, error.partition, error.offset) == ("t", 0, 50)
    assert (rig[0].state, rig[0].consumed) == (State.HALTED, 50)
    rig.now += 100
    assert rig.asked() == []
    rig[0].seek(0)
    assert rig.ask().request.topics[0].partitions[0].fetch_offset == 0


@pytest.mark.parametrize("policy", [EARLIEST, LATEST, None])
def test_what_was_fetched_is_handed_out_before_an_offset_out_of_range_counts(policy: int | None) -> None:
    rig = Rig(reset_policy=policy)
    (fetched,) = rig.round(values(5))
    rig.round(OUT_OF_RANGE)
    assert (rig[0].state, rig[0].epoch, rig.errors) == (State.FETCHING, fetched.epoch, [])
    assert rig.asked() == [], "it is asked again after a pause"
    rig[0].consumed = 5
    rig.now += 2
    rig.round(OUT_OF_RANGE)
    assert rig[0].state is (State.HALTED if policy is None else State.RESETTING)


def test_an_error_for_good_is_told_and_the_partition_is_asked_for_again_after_a_pause() -> None:
    """The permission may be given; what was fetched is handed out meanwhile."""
    rig = Rig({0: 1, 1: 1})
    rig.answer(rig.ask(), {0: values(5), 1: b""})
    epoch = rig[0].epoch
    rig.answer(rig.ask(), {0: UNAUTHORIZED, 1: b""})
    (error,) = rig.errors
    assert isinstance(error, TopicAuthorizationFailed)
    assert (error.topic, error.partition) == ("t", 0)
    assert (rig[0].state, rig[0].epoch, rig[0].buffered, rig[0].trouble) == (State.FETCHING, epoch, 5, error)
    rig.answer(rig.ask(), {1: b""})
    rig.now += 5
    rig.answer(rig.ask(), {0: UNAUTHORIZED, 1: b""})
    assert [type(e) for e in rig.errors] == [TopicAuthorizationFailed] * 2, "told for as long as it lasts"
    rig.now += 5
    rig.answer(rig.ask(), {0: values(3, base_offset=5), 1: b""})
    assert (rig[0].fetch_offset, rig[0].trouble) == (8, None)


@pytest.mark.parametrize("code", [-1, 8, 10, 29, 42, 43, 44, 76, 87, 101, 31000])
def test_no_answer_but_those_that_only_the_application_can_settle_ends_a_partition(code: int) -> None:
    rig = Rig(start=7)
    rig.round(code)
    rig.now += 5
    rig.round(values(3, base_offset=7))
    assert rig[0].fetch_offset == 10


@pytest.mark.parametrize("code", [UNKNOWN_TOPIC, NOT_LEADER, FENCED, UNKNOWN_EPOCH, UNKNOWN_ID])
def test_errors_of_stale_metadata_keep_the_position_and_pause(code: int) -> None:
    rig = Rig(start=7)
    rig.round(code)
    assert rig.stale
    assert (rig.errors, rig[0].fetch_offset, rig[0].state) == ([], 7, State.FETCHING)
    plan = rig.poll()
    assert plan.fetches == []
    assert plan.deadline < rig.now + 0.7
    rig.now = plan.deadline
    assert rig.ask().request.topics[0].partitions[0].fetch_offset == 7


def test_a_new_leader_that_the_answer_names_is_asked_at_once() -> None:
    """KIP-951."""
    rig = Rig()
    part = data(0, NOT_LEADER)
    part.current_leader = LeaderIdAndEpoch(leader_id=2, leader_epoch=9)
    rig.round(part)
    assert not rig.stale
    asked = rig.ask()
    assert (asked.broker_id, asked.request.topics[0].partitions[0].current_leader_epoch) == (2, 9)


def test_pauses_grow_while_errors_go_on_and_end_with_a_success() -> None:
    rig = Rig()
    pauses = []
    for _ in range(3):
        rig.round(NOT_LEADER)
        pauses.append(rig.poll().deadline - rig.now)
        rig.now = rig.poll().deadline
    assert pauses[0] < 0.61
    assert pauses[2] > 0.79
    rig.round(b"")
    assert rig[0].retry.failures == 0


def test_a_lost_connection_keeps_the_positions_and_wants_metadata() -> None:
    rig = Rig({0: 1, 1: 1}, start=3)
    rig.take(rig.ask(), None, SocketDisconnectedError("gone"))
    assert rig.stale
    assert rig.errors == []
    assert [rig[p].fetch_offset for p in (0, 1)] == [3, 3]
    rig.now += 1
    assert sorted(partitions(rig.ask())) == [0, 1]


def test_an_error_of_the_whole_answer_that_no_retry_heals_is_told() -> None:
    rig = Rig()
    error = UnsupportedVersion("too old")
    rig.take(rig.ask(), None, error)
    assert rig.errors == [error]
    assert rig.asked() == [], "and it is not asked again at once"


def test_a_partition_that_an_answer_leaves_out_is_not_asked_for_in_a_loop() -> None:
    rig = Rig({0: 1, 1: 1})
    rig.answer(rig.ask(), {0: values(1)})
    assert partitions(rig.ask()) == [0]


def test_what_was_not_asked_for_and_what_comes_twice_is_dropped() -> None:
    rig = Rig({0: 1, 1: 2})
    asked = next(a for a in rig.asked() if a.broker_id == 1)
    rows = [data(0, values(2)), data(0, values(4)), data(1, values(2)), data(77, values(2))]
    fetched = rig.take(asked, FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=rows)]), None)
    assert offsets(fetched) == [0, 1]
    assert rig[1].fetch_offset == 0


def test_what_was_not_asked_for_is_told_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """A broker's name for it was a line of the log, and each partition one more."""
    rig = Rig()
    rows = [data(number, values(1)) for number in range(1, 50)]
    evil = FetchableTopicResponse(topic="evil\nERROR all is lost\x1b[31m" + "x" * 5000, partitions=rows)
    rig.take(rig.ask(), FetchResponse(responses=[evil]), None)
    (told,) = [record.getMessage() for record in caplog.records]
    assert told.isprintable()
    assert len(told) < 250
    assert "'evil\\nERROR" in told


def test_an_answer_by_topic_id_is_understood_also_when_the_topic_has_another_id_by_now() -> None:
    rig = Rig()
    asked = rig.ask()
    rig.metadata.forget_topic("t")
    rows = [data(0, UNKNOWN_ID)]
    rig.take(asked, FetchResponse(responses=[FetchableTopicResponse(topic="", topic_id=TOPIC_ID, partitions=rows)]), None)
    assert rig.stale
    asked_for = asked.request.topics[0].topic_id
    assert asked_for == TOPIC_ID != uuid.UUID(int=0)


def test_a_throttled_broker_is_left_alone_for_a_bounded_while() -> None:
    """KIP-219, F31."""
    rig = Rig({0: 1, 1: 2})
    first = next(a for a in rig.asked() if a.broker_id == 1)
    rig.answer(first, {0: b""}, throttle_time_ms=(1 << 31) - 1)
    plan = rig.poll()
    assert plan.fetches == []
    assert plan.deadline == pytest.approx(rig.now + 30)
    rig.now += 30
    assert rig.ask().broker_id == 1


def test_a_negative_throttle_is_none() -> None:
    rig = Rig()
    rig.round(b"", throttle_time_ms=-5)
    assert len(rig.asked()) == 1


# -- records that do not fit -------------------------------------------------------------------------------------------------
def test_a_record_that_does_not_fit_is_asked_for_with_more_room() -> None:
    """Brokers before 0.10.1 send a part of it."""
    rig = Rig(partition_max_bytes=100)
    whole = values(1, base_offset=0) + b""
    big = batch([record(0, b"x" * 1000)])
    sizes = []
    while True:
        asked = rig.ask()
        size = asked.request.topics[0].partitions[0].partition_max_bytes
        sizes.append(size)
        assert asked.request.max_bytes >= size
        fetched = rig.answer(asked, {0: big[:size]})
        if fetched:
            break
    assert sizes == [100, 200, 400, 800, len(big)]
    assert offsets(fetched) == [0]
    assert whole


def test_a_record_over_the_limit_is_an_error_that_names_it_and_halts_only_its_partition() -> None:
    rig = Rig({0: 1, 1: 1}, partition_max_bytes=100, biggest_partition_bytes=150)
    big = batch([record(0, b"x" * 1000)])
    while not rig.errors:
        asked = rig.ask()
        size = {p.partition: p.partition_max_bytes for p in asked.request.topics[0].partitions}
        rig.answer(asked, {0: big[: size[0]], 1: b""})
    (error,) = rig.errors
    assert isinstance(error, RecordTooLarge)
    assert (error.topic, error.partition, error.offset) == ("t", 0, 0)
    assert partitions(rig.ask()) == [1]


def test_a_partition_cut_by_what_was_left_of_the_answer_is_not_taken_for_a_large_record() -> None:
    """Behind others in an answer, a batch may be cut although it would fit: it will be first in its turn."""
    rig = Rig({0: 1, 1: 1}, partition_max_bytes=1000, biggest_partition_bytes=4000)
    log = values(20)
    for _ in range(20):
        asked = rig.ask()
        first, second = partitions(asked)
        rig.now += 0.5
        rig.answer(asked, {first: log if rig[first].fetch_offset == 0 else b"", second: log[:30] if rig[second].fetch_offset == 0 else b""})
    assert rig.errors == []
    assert [rig[p].max_bytes for p in (0, 1)] == [1000, 1000]
    assert [rig[p].fetch_offset for p in (0, 1)] == [20, 20]


def test_a_broker_that_answers_at_once_with_nothing_new_is_left_alone_ever_longer() -> None:
    rig = Rig(wait_max_ms=500)
    pauses = []
    for _ in range(12):
        asked = rig.ask()
        rig.answer(asked, {0: b""})
        began, poll = rig.now, rig.poll()
        if not poll.fetches:
            rig.now = poll.deadline
        else:
            rig.fetcher.forget_requests()
        pauses.append(rig.now - began)
    assert pauses[:3] == [0, 0, 0]
    assert 0 < pauses[3] < 0.02
    assert pauses[-1] >= 0.4
    rig.answer(rig.ask(), {0: values(1)})
    assert rig.asked(), "news are followed at once"


def test_a_broker_that_parks_its_answers_is_asked_again_at_once() -> None:
    rig = Rig(wait_max_ms=500)
    for _ in range(12):
        asked = rig.ask()
        rig.now += 0.5
        rig.answer(asked, {0: b""})


def test_records_from_before_the_position_only_are_nothing_new() -> None:
    rig = Rig(start=5)
    for _ in range(4):
        rig.answer(rig.ask(), {0: values(3)})
    assert not rig.asked()


# -- seeks and other assignments -----------------------------------------------------------------------------------------------
def test_an_answer_to_a_question_from_before_a_seek_is_dropped() -> None:
    rig = Rig()
    asked = rig.ask()
    rig[0].seek(100)
    assert rig.answer(asked, {0: values(5)}) == []
    assert (rig[0].fetch_offset, rig[0].buffered) == (100, 0)
    assert rig.ask().request.topics[0].partitions[0].fetch_offset == 100


def test_an_error_from_before_a_seek_is_dropped() -> None:
    for part in (UNAUTHORIZED, OUT_OF_RANGE, bad_magic(0)):
        rig = Rig(reset_policy=None)
        asked = rig.ask()
        rig[0].seek(100)
        rig.answer(asked, {0: part})
        assert rig.errors == []
        assert rig[0].state is State.FETCHING


def test_answers_and_errors_of_partitions_that_are_not_read_any_more_are_dropped() -> None:
    rig = Rig({0: 1, 1: 1})
    asked = rig.ask()
    old = rig[0]
    rig.fetcher.positions[tp(0)] = Position(tp(0), 1000)
    assert rig.answer(asked, {0: UNAUTHORIZED, 1: values(1)})
    assert rig.errors == []
    assert old.state is State.FETCHING


def test_after_a_stop_late_answers_count_for_nothing_and_every_broker_can_be_asked() -> None:
    rig = Rig()
    late = rig.ask()
    rig.fetcher.forget_requests()
    again = rig.ask()
    assert rig.answer(late, {0: values(5)}) == []
    assert rig.asked() == [], "the late answer has not ended the newer fetch"
    assert offsets(rig.answer(again, {0: values(5)})) == [0, 1, 2, 3, 4]


def test_a_parked_fetch_is_cancelled_by_a_seek_and_one_that_will_be_answered_is_not() -> None:
    rig = Rig({0: 1, 1: 1})
    rig.answer(rig.ask(), {0: data(0, values(3), high_watermark=3), 1: data(1, b"", high_watermark=0)})
    parked = rig.ask()
    assert rig.fetcher.cancel_parked([tp(9)]) == []
    assert rig.fetcher.cancel_parked([tp(9), tp(0)]) == [1]
    rig[0].seek(1)
    again = rig.ask()
    assert sorted(partitions(again)) == [0, 1]
    assert rig.answer(parked, {0: values(3), 1: b""}) == []
    assert rig.fetcher.cancel_parked([tp(0)]) == [], "the broker has what this one asks for"
    assert rig.answer(again, {0: values(3), 1: b""})


# -- look-ups ----------------------------------------------------------------------------------------------------------------
def test_positions_without_a_start_are_looked_up_of_their_leaders() -> None:
    rig = Rig({0: 1, 1: 1, 2: 2}, start=None)
    rig[1].reset(LATEST)
    plan = rig.poll()
    assert plan.fetches == []
    found = {x.broker_id: {p.partition_index: p.timestamp for p in x.request.topics[0].partitions} for x in plan.lookups}
    assert found == {1: {0: EARLIEST, 1: LATEST}, 2: {2: EARLIEST}}
    assert all(x.request.isolation_level == 1 for x in plan.lookups)


def test_a_look_up_that_gets_no_answer_is_made_again_after_a_pause() -> None:
    rig = Rig(start=None)
    lookup = rig.lookup()
    errors, stale = rig.fetcher.on_looked_up(lookup, None, SocketDisconnectedError("gone"), rig.now)
    assert (errors, stale) == ([], True)
    plan = rig.poll()
    assert plan.lookups == []
    rig.now = plan.deadline
    rig.looked_up(rig.lookup(), {0: 5})
    assert rig[0].consumed == 5


def test_a_look_up_that_fails_for_good_is_told() -> None:
    rig = Rig(start=None)
    error = UnsupportedVersion("no ListOffsets")
    errors, _ = rig.fetcher.on_looked_up(rig.lookup(), None, error, rig.now)
    assert errors == [error]
    rig.now += 5
    rig.looked_up(rig.lookup(), {0: -1}, code=UNAUTHORIZED)
    assert isinstance(rig.errors[0], TopicAuthorizationFailed)
    assert rig[0].trouble is rig.errors[0]
    rig.now += 5
    rig.looked_up(rig.lookup(), {0: 9})
    assert (rig[0].consumed, rig[0].trouble) == (9, None)


def test_a_look_up_that_meets_stale_metadata_is_made_again() -> None:
    rig = Rig(start=None)
    rig.looked_up(rig.lookup(), {0: -1}, code=NOT_LEADER)
    assert rig.stale
    assert (rig.errors, rig[0].state) == ([], State.RESETTING)
    assert rig.poll().lookups == []
    rig.now += 1
    assert len(rig.poll().lookups) == 1


def test_a_partition_that_a_look_up_leaves_out_is_not_asked_for_in_a_loop() -> None:
    rig = Rig({0: 1, 1: 1}, start=None)
    rig.looked_up(rig.lookup(), {0: 5})
    plan = rig.poll()
    assert plan.lookups == []
    assert rig.now < plan.deadline < rig.now + 1


def test_a_seek_during_a_look_up_wins() -> None:
    rig = Rig(start=None)
    lookup = rig.lookup()
    rig[0].seek(42)
    rig.looked_up(lookup, {0: 5})
    assert rig[0].fetch_offset == 42


def test_a_timestamp_after_the_last_record_starts_at_the_end() -> None:
    rig = Rig(start=None)
    rig[0].reset(1_700_000_000_000)
    rig.looked_up(rig.lookup(), {0: -1})
    lookup = rig.lookup()
    assert lookup.request.topics[0].partitions[0].timestamp == LATEST
    rig.looked_up(lookup, {0: 77})
    assert rig[0].consumed == 77


def test_offsets_of_old_brokers_come_as_a_list() -> None:
    rig = Rig(start=None)
    rows = [ListOffsetsPartitionResponse(partition_index=0, old_style_offsets=[9, 3])]
    answer = ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=rows)])
    rig.fetcher.on_looked_up(rig.lookup(), answer, None, rig.now)
    assert rig[0].consumed == 9


def test_the_machine_never_asks_to_be_polled_at_once_for_something_it_cannot_do() -> None:
    """B20, for consumers."""
    rig = Rig({0: 1, 1: 2, 2: -1, 3: 3})
    rig[1].buffered = 1000
    rig[3].halt(CorruptRecordError("x"))
    rig.asked()
    assert rig.poll().deadline == NEVER


def test_an_abort_filter_of_nothing_hides_only_control_batches() -> None:
    hides = AbortFilter([], records.control_type).hides
    for content, hidden in ((values(2), False), (txn(1, 0, 7), False), (marker(0), True), (marker(1), True), (marker(99), True)):
        span = records.span_at(content)
        assert span is not None
        assert hides(memoryview(content), span) is hidden


# -- everything at once --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("numbers", one_of(range(15), range(15, 60)), ids=["quick", "thorough"])
def test_whatever_happens_each_record_is_handed_out_once_and_in_order(numbers: range) -> None:
    """Answers are lost, late, cut, damaged once, refused; leaders move; sessions are forgotten; the application seeks now and then."""
    for seed in numbers:
        _each_is_handed_out_once_and_in_order(seed)


def _each_is_handed_out_once_and_in_order(seed: int) -> None:
    chance = Random(seed)
    rig = Rig({0: 1, 1: 1, 2: 2}, queued_max_messages=20, partition_max_bytes=400)
    logs = {p: [values(chance.randint(1, 4), base_offset=0)] for p in range(3)}
    ends = {}
    for p in range(3):
        offset = 0
        logs[p] = []
        for _ in range(15):
            n = chance.randint(1, 5)
            logs[p].append(values(n, base_offset=offset))
            offset += n
        ends[p] = offset
    handed: dict[int, list[int]] = {p: [] for p in range(3)}
    expected: dict[int, int] = dict.fromkeys(range(3), 0)
    queues: dict[int, list[Fetched]] = {p: [] for p in range(3)}
    flying: list[Asked] = []
    brokers = Remembering()
    epoch = 1
    for step in range(3000):
        rig.now += chance.choice([0.0, 0.0, 0.3])
        wild = step < 400
        plan = rig.poll()
        flying += plan.fetches
        for check in plan.checks:
            rig.checked(check, {p: (0, ends[p]) for _, p in check.partitions})
        busy = [a.broker_id for a in flying]
        assert len(busy) == len(set(busy)), "one fetch is under way for each broker"
        if wild and chance.random() < 0.05:
            epoch += 1
            rig.metadata.leader_moved("t", chance.randrange(3), chance.choice([1, 2, 3]), epoch)
        if wild and chance.random() < 0.03:
            p = chance.randrange(3)
            target = chance.randrange(ends[p])
            rig[p].seek(target)
            queues[p].clear()
            expected[p] = target
        if flying and chance.random() < 0.7:
            asked = flying.pop(chance.randrange(len(flying)))
            if wild and chance.random() < 0.1:
                brokers.forget(asked.broker_id)
            lost = wild and chance.random() < 0.15
            code, session_id, wanted = (0, 0, {}) if lost and chance.random() < 0.5 else brokers.take(asked)
            if lost:
                rig.take(asked, None, SocketDisconnectedError("gone"))
            elif code:
                assert wild, "sessions go on when nothing goes wrong"
                rig.answer(asked, {}, error_code=code)
            else:
                parts: dict[int, Any] = {}
                for p, part in wanted.items():
                    leader = rig.metadata.leader("t", p)
                    if leader is None or leader[0] != asked.broker_id:
                        parts[p] = NOT_LEADER
                        continue
                    rest = b"".join(b for b in logs[p] if records.scan(b)[0].next_offset > part.fetch_offset)
                    content = bytearray(rest[: part.partition_max_bytes])
                    if wild and content and chance.random() < 0.1:
                        content[16] = 9
                    if content or asked.request.session_epoch <= 0:
                        parts[p] = bytes(content)
                for fetched in rig.answer(asked, parts, session_id=session_id):
                    queues[fetched.position.tp.partition].append(fetched)
        p = chance.randrange(3)
        while queues[p] and chance.random() < 0.6:
            fetched = queues[p].pop(0)
            assert fetched.epoch == rig[p].epoch
            got = offsets([fetched])
            assert got == list(range(expected[p], expected[p] + len(got)))
            handed[p] += got
            expected[p] += len(got)
            rig[p].consumed = expected[p]
            rig[p].buffered -= fetched.messages
        assert all(rig[p].consumed <= rig[p].fetch_offset for p in range(3))
        if not wild and expected == ends:
            break
    assert expected == ends
    assert all(isinstance(e, CorruptRecordError) for e in rig.errors)


def test_a_partition_whose_fetch_failed_is_not_called_caught_up_before_one_has_an_answer() -> None:
    rig = Rig()
    rig[0].high_watermark = rig[0].fetch_offset
    assert reason_of(rig.fetcher, rig[0], rig.now, full=False) is Reason.CAUGHT_UP
    rig[0].retry.failed(Backoff(0.5, 1.0), rig.now, Random(1))
    assert reason_of(rig.fetcher, rig[0], rig.now, full=False) is Reason.FAILED
    rig.now += 5  # it is asked for again: who knows what came since
    assert reason_of(rig.fetcher, rig[0], rig.now, full=False) is Reason.NEXT
    rig[0].retry.succeeded()
    assert reason_of(rig.fetcher, rig[0], rig.now, full=False) is Reason.CAUGHT_UP
