"""A broker that lies to a consumer costs neither a storm of requests nor a full log, and is forgiven when it tells the truth."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from gkafka import records
from gkafka.core.aborts import AbortFilter
from gkafka.core.backoff import Backoff
from gkafka.core.fetcher import Asked
from gkafka.core.metadata import Metadata
from gkafka.exceptions import CorruptRecordError
from gkafka.wire.fetch import LeaderIdAndEpoch
from gkafka.wire.metadata import MetadataRequest
from tests.core import fakes
from tests.core.fetchrig import EARLIEST, NOT_LEADER, OUT_OF_RANGE, UNKNOWN_EPOCH, Rig, bad_magic, data, offsets
from tests.kit.clock import PATIENCE_S, now
from tests.records.handmade import TRANSACTIONAL, values

NO_OFFSET = 2**63 - 1
LASTS_S = 60.0
MANY = 160
"""More answers than pauses that grow to a second leave room for in that time."""


def rig_of(start: int | None = 0) -> Rig:
    return Rig(start=start, backoff=Backoff(0.005, 1.0), reset_policy=EARLIEST)


def play(rig: Rig, lie: Callable[[Asked], object], found: int = NO_OFFSET, lasts_s: float = LASTS_S) -> int:
    """The broker answers whatever is asked at once. Returns how often it did, or MANY if there was no end to it."""
    end, answers = rig.now + lasts_s, 0
    while rig.now < end and answers < MANY:
        plan = rig.poll()
        for lookup in plan.lookups:
            rig.looked_up(lookup, {0: found})
        for asked in plan.fetches:
            lie(asked)
        answers += len(plan.lookups) + len(plan.fetches)
        if not (plan.lookups or plan.fetches):
            rig.now = min(end, plan.deadline)
    return answers


def told(caplog: pytest.LogCaptureFixture, level: int = logging.WARNING) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= level]


@pytest.mark.parametrize("found", [NO_OFFSET, 0], ids=["a start that is none", "a good start that is out of range"])
def test_an_offset_that_is_out_of_range_for_ever_is_asked_for_ever_more_rarely(found: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    rig = rig_of(start=None)
    answers = play(rig, lambda asked: rig.answer(asked, {0: OUT_OF_RANGE}), found)
    assert 20 < answers < MANY, "a pair of them every second"
    assert len(told(caplog)) == 1, "the first is told"
    play(rig, lambda asked: rig.answer(asked, {0: b""}), 0, lasts_s=0.001 + rig[0].retry.not_before - rig.now)
    assert "t-0: read again, after" in told(caplog, logging.INFO)[-1]
    assert rig[0].retry.failures == 0


def test_the_first_offset_that_is_out_of_range_costs_no_pause() -> None:
    rig = rig_of(start=700)
    rig.answer(rig.ask(), {0: OUT_OF_RANGE})
    rig.looked_up(rig.lookup(), {0: 5})
    assert offsets(rig.round(values(3, base_offset=5))) == [5, 6, 7]


@pytest.mark.parametrize("sessions", [False, True])
def test_a_fetch_that_is_answered_for_other_partitions_is_asked_ever_more_rarely(sessions: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    rig = rig_of()
    answers = play(rig, lambda asked: rig.answer(asked, {7: b""}, session_id=9 if sessions else 0))
    assert 20 < answers < MANY
    assert len(told(caplog)) == 1, "the first is told"
    rig.now = rig[0].retry.not_before
    asked = rig.ask()
    assert asked.request.topics, "what the broker believes to be the session is not ours: everything is named again"
    rig.answer(asked, {0: b""})
    assert f"after {answers} answers that did not" in " ".join(told(caplog, logging.INFO))


def test_leaders_that_send_to_each_other_for_ever_are_asked_ever_more_rarely() -> None:
    rig = rig_of()
    epochs = iter(range(10, 10_000))

    def elsewhere(asked: Asked) -> None:
        hint = LeaderIdAndEpoch(leader_id=3 - asked.broker_id, leader_epoch=next(epochs))
        rig.answer(asked, {0: data(0, NOT_LEADER, current_leader=hint)})

    assert 20 < play(rig, elsewhere) < MANY


def test_a_leader_that_is_named_is_asked_without_a_pause() -> None:
    rig = rig_of()
    rig.answer(rig.ask(), {0: data(0, NOT_LEADER, current_leader=LeaderIdAndEpoch(leader_id=2, leader_epoch=2))})
    assert rig.ask().broker_id == 2


def test_bytes_that_cannot_be_read_are_asked_for_ever_more_rarely() -> None:
    rig = rig_of()
    assert 20 < play(rig, lambda asked: rig.answer(asked, {0: bad_magic(0)})) < MANY
    assert all(isinstance(error, CorruptRecordError) for error in rig.errors)


def test_a_million_aborted_transactions_of_one_answer_take_a_moment() -> None:
    """Each was taken off the front of a list."""
    many = 1_000_000
    began = now()
    hidden = AbortFilter([(i, i) for i in range(many)], records.control_type)
    batch = values(1, base_offset=many, producer_id=many - 1, attributes=TRANSACTIONAL)
    span = records.span_at(batch)
    assert span is not None
    assert hidden.hides(memoryview(batch), span)
    assert now() - began < PATIENCE_S


# -- an epoch that never was -----------------------------------------------------------------------------------------------
LIE = 2**31 - 1


def tell(metadata: Metadata, epoch: int, now: float, leader: int = 1, **about: int) -> int:
    """A metadata answer. Returns the epoch that is believed after it."""
    metadata.on_response(MetadataRequest(topics=None), fakes.told({0: leader}, epoch=epoch, **about), now)
    return metadata.topics["t"].partitions[0].leader_epoch


@pytest.mark.parametrize("written_in", [1, -1], ids=["what was read has an epoch", "it has none"])
def test_an_epoch_that_its_own_leader_refuses_for_long_was_a_lie(written_in: int, caplog: pytest.LogCaptureFixture) -> None:
    """UNKNOWN_LEADER_EPOCH for ever: the partition was never read again. What was read last is checked under the epoch that is believed then."""
    rig = rig_of()
    rig.round(values(3))
    rig[0].fetch_epoch = rig[0].consumed_epoch = written_in
    tell(rig.metadata, LIE, rig.now)
    began, believed = rig.now, LIE
    while believed == LIE:
        assert rig.now < began + LASTS_S
        plan = rig.poll()
        for check in plan.checks:
            rig.checked(check, {0: (-1, -1)}, code=UNKNOWN_EPOCH)
        for asked in plan.fetches:
            rig.answer(asked, {0: UNKNOWN_EPOCH})
        rig.now = min(rig.now + 1, plan.deadline)
        believed = tell(rig.metadata, 5, rig.now)
    assert 30 <= rig.now - began <= 35
    rig.metadata.lines.write()
    assert [text for text in told(caplog) if "has refused that for 3" in text]
    rig.now = max(rig.now, rig[0].retry.not_before)
    if written_in >= 0:
        rig.checked(rig.check(), {0: (1, 3)})
    assert offsets(rig.round(values(1, base_offset=3))) == [3]


def test_a_producer_meets_such_an_epoch_too() -> None:
    rig = fakes.Rig()
    tell(rig.metadata, LIE, rig.now, leader=2)
    rig.full()
    began, believed = rig.now, LIE
    while believed == LIE:
        assert rig.now < began + LASTS_S
        for outgoing in rig.sent():
            assert outgoing.broker_id == 2
            rig.answer(outgoing, NOT_LEADER)
        rig.now += 1
        believed = tell(rig.metadata, 5, rig.now)
    assert rig.now - began >= 30
    rig.now += 2
    assert [outgoing.broker_id for outgoing in rig.sent()] == [1]


def test_an_epoch_whose_leader_is_no_broker_was_a_lie() -> None:
    metadata = fakes.metadata({0: 1})
    tell(metadata, LIE, 1.0, leader=99)
    believed = [tell(metadata, 5, now) for now in map(float, range(2, 40))]
    assert believed.index(5) == 30


@pytest.mark.parametrize("peace", ["nobody asks the leader", "it took the epoch", "another broker tells the epoch", "it says so rarely"])
def test_older_epochs_are_stale_as_long_as_the_newest_is_not_refused_for_long(peace: str) -> None:
    """A broker that lags behind would send a consumer back to a leader that was replaced (KIP-320)."""
    metadata = fakes.metadata({0: 1})
    tell(metadata, 7, 0.0, leader=2)
    for second in range(1, 100):
        now = float(second)
        if peace == "it says so rarely":
            if second % 11 == 0:
                metadata.dispute("t", 0, 7, now)
        elif peace != "nobody asks the leader":
            metadata.dispute("t", 0, 7, now)
        if second % 29 == 0 and peace == "it took the epoch":
            metadata.end_dispute("t", 0)
        if second % 29 == 0 and peace == "another broker tells the epoch":
            tell(metadata, 7, now, leader=2)
        assert tell(metadata, 6, now) == 7
    assert metadata.leader("t", 0) == (2, 7)


def test_a_refusal_of_another_epoch_disputes_nothing() -> None:
    metadata = fakes.metadata({0: 1})
    tell(metadata, 7, 0.0, leader=2)
    for second in range(1, 100):
        metadata.dispute("t", 0, 6, float(second))
        assert tell(metadata, 6, float(second)) == 7
