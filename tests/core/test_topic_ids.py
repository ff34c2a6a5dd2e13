"""Topic ids (KIP-516): requests by id, and what it means when a name gets another one."""

from __future__ import annotations

import uuid

import pytest

from gkafka.core.metadata import NO_TOPIC_ID
from gkafka.core.positions import State
from gkafka.exceptions import TopicRecreatedError
from gkafka.wire.fetch import FetchableTopicResponse, FetchResponse
from gkafka.wire.metadata import MetadataRequest
from tests.core.fakes import TOPIC_ID, told
from tests.core.fetchrig import EARLIEST, LATEST, UNKNOWN_ID, Rig, data, offsets
from tests.records.handmade import values

NEW_ID, NO_ID = uuid.UUID(int=99), uuid.UUID(int=0)
WRONG_ID, SESSION_ID_ERROR = 103, 106


def made_anew(rig: Rig, topic_id: uuid.UUID = NEW_ID) -> None:
    rig.metadata.on_response(MetadataRequest(topics=None), told({0: 1}, topic_id=topic_id, epoch=0), rig.now)


def test_an_answer_names_topics_by_their_ids_alone() -> None:
    rig = Rig()
    asked = rig.ask()
    assert asked.max_version is None
    answer = FetchResponse(responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[data(0, values(2))])])
    assert offsets(rig.take(asked, answer, None)) == [0, 1]


def test_in_a_session_too_although_the_request_does_not_name_them() -> None:
    rig = Rig({0: 1, 1: 1})
    rig.answer(rig.ask(), {0: b"", 1: b""}, session_id=5)
    asked = rig.ask()
    assert asked.request.topics == []
    answer = FetchResponse(session_id=5, responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[data(1, values(2))])])
    assert offsets(rig.take(asked, answer, None)) == [0, 1]


def test_a_topic_without_an_id_holds_the_version_back_where_names_still_are() -> None:
    rig = Rig()
    made_anew(rig, NO_ID)
    asked = rig.ask()
    assert asked.max_version == 12
    rig.answer(asked, {0: b""}, session_id=5)
    asked = rig.ask()
    assert (asked.request.topics, asked.max_version) == ([], 12), "a request that names none could be of any version"


@pytest.mark.parametrize("policy", [EARLIEST, LATEST])
def test_a_topic_that_was_made_again_is_read_from_its_start(policy: int) -> None:
    rig = Rig(reset_policy=policy)
    rig.round(values(50))
    rig[0].consumed = 50
    rig.answer(rig.ask(), {0: UNKNOWN_ID})
    assert rig.stale
    made_anew(rig)
    rig.now = rig.poll().deadline
    lookup = rig.lookup()
    assert lookup.request.topics[0].partitions[0].timestamp == -2
    rig.looked_up(lookup, {0: 0})
    asked = rig.ask()
    assert (asked.request.topics[0].topic_id, asked.request.topics[0].partitions[0].fetch_offset) == (NEW_ID, 0)


def test_what_was_fetched_of_the_old_topic_is_handed_out_first() -> None:
    rig = Rig()
    rig.round(values(5))
    made_anew(rig)
    plan = rig.poll()
    assert (plan.fetches, plan.lookups) == ([], [])
    assert rig.poll().deadline < rig.now + 1
    rig[0].consumed = 5
    rig.now = rig.poll().deadline
    assert len(rig.poll().lookups) == 1


def test_without_a_policy_it_is_an_error_and_nothing_moves() -> None:
    rig = Rig(reset_policy=None, start=7)
    rig.round(b"")
    made_anew(rig)
    (error,) = rig.poll().errors
    assert isinstance(error, TopicRecreatedError)
    assert (error.topic, error.partition, error.offset) == ("t", 0, 7)
    assert (rig[0].state, rig[0].consumed) == (State.HALTED, 7)
    assert rig.poll().errors == []


def test_a_seek_after_that_is_in_the_new_topic() -> None:
    rig = Rig(reset_policy=None, start=7)
    rig.round(b"")
    made_anew(rig)
    rig.poll()
    assert rig[0].topic_id == TOPIC_ID  # the offset is still one of that: it must not be committed for the new one
    rig[0].topic_id = NO_TOPIC_ID  # as NativeConsumer.seek() does
    rig[0].seek(3)
    assert rig.ask().request.topics[0].topic_id == NEW_ID


def test_a_start_that_was_looked_up_belongs_to_the_topic_of_then() -> None:
    rig = Rig(start=None)
    lookup = rig.lookup()
    made_anew(rig)
    rig.looked_up(lookup, {0: 500})
    assert rig.lookup().request.topics[0].partitions[0].timestamp == -2


@pytest.mark.parametrize("code", [WRONG_ID, SESSION_ID_ERROR])
def test_errors_about_ids_begin_the_session_anew(code: int) -> None:
    rig = Rig()
    rig.answer(rig.ask(), {0: b""}, session_id=5)
    rig.answer(rig.ask(), {}, error_code=code)
    assert rig.errors == []
    asked = rig.ask()
    assert (asked.request.session_epoch, len(asked.request.topics)) == (0, 1)


def test_a_partition_of_an_unknown_id_pauses_and_is_asked_for_again() -> None:
    rig = Rig()
    rig.round(WRONG_ID)
    assert (rig.asked(), rig.stale, rig.errors) == ([], True, [])
    rig.now = rig.poll().deadline
    assert len(rig.asked()) == 1
