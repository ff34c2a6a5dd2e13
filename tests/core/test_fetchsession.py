"""Fetch sessions (KIP-227): what is said again, what is not, and when it is given up."""

from __future__ import annotations

import uuid

import pytest

from gkafka.brokererrors import (
    BrokerError,
    FetchSessionIdNotFound,
    FetchSessionTopicId,
    InvalidFetchSessionEpoch,
    KafkaStorageError,
)
from gkafka.common import TopicPartition
from gkafka.core.fetchsession import Delta, FetchSession, Wanted

ID, OTHER = uuid.UUID(int=7), uuid.UUID(int=8)
NO_ID = uuid.UUID(int=0)


def tp(partition: int) -> TopicPartition:
    return TopicPartition("t", partition)


def wanted(*offsets: int, topic_id: uuid.UUID = ID) -> dict[TopicPartition, Wanted]:
    """Partition -> what is asked of it, by the offsets of partitions 0, 1, ...; -1 leaves one out."""
    return {tp(p): Wanted(topic_id, offset, 1, 1000) for p, offset in enumerate(offsets) if offset >= 0}


def begun(*offsets: int) -> FetchSession:
    """A session that the broker has given."""
    session = FetchSession()
    assert session.ask(wanted(*offsets)).is_full
    assert not session.answered(77)
    return session


def test_the_first_fetch_is_full_and_asks_for_a_session() -> None:
    assert FetchSession().ask(wanted(0, 0)) == Delta(0, 0, [tp(0), tp(1)], [], True)


def test_the_next_ones_name_what_has_changed() -> None:
    session = begun(0, 0, 0)
    assert session.ask(wanted(0, 5, 0)) == Delta(77, 1, [tp(1)], [], True)
    assert session.answered(77)
    assert session.ask(wanted(0, 5, 0)) == Delta(77, 2, [], [], True)


@pytest.mark.parametrize("field", ["offset", "leader_epoch", "max_bytes"])
def test_whatever_changes_is_said(field: str) -> None:
    session = begun(0, 0)
    changed = wanted(0, 0)
    changed[tp(1)] = changed[tp(1)]._replace(**{field: 2})
    assert session.ask(changed).named == [tp(1)]


def test_partitions_come_and_go() -> None:
    session = begun(0, 0)
    delta = session.ask(wanted(-1, 0, 9))
    assert (delta.named, delta.forgotten) == ([tp(2)], [(tp(0), ID)])
    session.answered(77)
    assert session.ask(wanted(4, 0, 9)).named == [tp(0)]


def test_a_topic_that_was_made_again_begins_another_session() -> None:
    """Named and put out in one fetch by name, a broker would forget it after taking it in, and never speak of it again."""
    session = begun(3, 3)
    delta = session.ask(wanted(0, 3, topic_id=OTHER))
    assert delta == Delta(77, 0, [tp(0), tp(1)], [], True)


def test_a_broker_that_gives_no_session_is_asked_for_one_again_and_for_everything() -> None:
    session = FetchSession()
    for _ in range(3):
        assert session.ask(wanted(0, 0)) == Delta(0, 0, [tp(0), tp(1)], [], True)
        assert not session.answered(0)


def test_a_broker_may_end_the_session_with_an_answer() -> None:
    session = begun(0, 0)
    session.ask(wanted(0, 0))
    assert session.answered(0), "that answer may still leave out what has not changed"
    assert session.ask(wanted(0, 0)) == Delta(0, 0, [tp(0), tp(1)], [], True)


def test_what_a_lost_request_said_is_said_again_and_the_old_session_ended() -> None:
    session = begun(0, 0)
    session.ask(wanted(1, 0))
    session.lost()
    assert session.ask(wanted(1, 0)) == Delta(77, 0, [tp(0), tp(1)], [], True)
    assert not session.answered(78)
    assert session.ask(wanted(1, 1)) == Delta(78, 1, [tp(1)], [], True)


def test_b43_a_wrong_epoch_begins_the_session_anew() -> None:
    session = begun(0, 0)
    session.ask(wanted(1, 0))
    assert session.refused(InvalidFetchSessionEpoch())
    assert session.ask(wanted(1, 0)) == Delta(77, 0, [tp(0), tp(1)], [], True)


def test_a_forgotten_session_is_not_ended_but_made_anew() -> None:
    session = begun(0)
    session.ask(wanted(1))
    assert session.refused(FetchSessionIdNotFound())
    assert session.ask(wanted(1)) == Delta(0, 0, [tp(0)], [], True)


@pytest.mark.parametrize("error", [FetchSessionIdNotFound, InvalidFetchSessionEpoch, FetchSessionTopicId])
def test_sessions_that_end_early_again_and_again_are_done_without(error: type[BrokerError]) -> None:
    session = FetchSession()
    for _ in range(3):
        assert not session.is_off
        session.ask(wanted(0))
        session.answered(77)
        session.ask(wanted(1))
        assert session.refused(error())
    assert session.is_off
    for _ in range(3):
        delta = session.ask(wanted(1, 1))
        assert (delta.session_epoch, delta.named, delta.is_full) == (-1, [tp(0), tp(1)], True)
        assert not session.answered(0)
    assert session.ask(wanted(1)).session_id == 0
    assert not session.refused(error()), "there is no session that this could be about: it is an error like others"


def test_a_session_that_served_for_long_may_end() -> None:
    session = FetchSession()
    for _ in range(8):
        session.ask(wanted(0))
        session.answered(77)
        for n in range(10):
            session.ask(wanted(n))
            assert session.answered(77)
        session.ask(wanted(5))
        assert session.refused(FetchSessionIdNotFound())
    assert not session.is_off


def test_other_errors_begin_anew_and_count_for_nothing() -> None:
    session = begun(0)
    for _ in range(5):
        session.ask(wanted(0))
        assert not session.refused(KafkaStorageError())
    assert not session.is_off
    assert session.ask(wanted(0)).is_full


def test_names_and_ids_are_never_mixed_in_one_session() -> None:
    session = begun(0, 0)
    mixed = {**wanted(0), tp(1): Wanted(NO_ID, 0, 1, 1000)}
    assert session.ask(mixed) == Delta(77, 0, [tp(0), tp(1)], [], False)
    session.answered(78)
    assert session.ask(mixed) == Delta(78, 1, [], [], False)
    session.answered(78)
    assert session.ask(wanted(0, 0)) == Delta(78, 0, [tp(0), tp(1)], [], True)


def test_epochs_go_round_and_leave_out_zero() -> None:
    session = begun(0)
    session.epoch = 2**31 - 1
    session.ask(wanted(0))
    session.answered(77)
    assert session.ask(wanted(0)).session_epoch == 1
