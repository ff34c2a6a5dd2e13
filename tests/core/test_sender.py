"""The producer's machine: order, numbers, retries, time. No socket, no clock: thousands of steps a second."""

from __future__ import annotations

import dataclasses
import uuid
from random import Random
from typing import Any

import pytest

from gkafka.core.numbering import MOVES, Event, Idempotence
from gkafka.core.sender import Outgoing
from gkafka.exceptions import (
    ClusterAuthorizationFailed,
    ConnectionFailedError,
    KafkaTimeoutError,
    LeaderNotFoundError,
    MessageSizeTooLarge,
    SocketDisconnectedError,
    UnsupportedVersion,
)
from gkafka.wire.metadata import MetadataRequest
from gkafka.wire.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from tests.core.fakes import Rig, told
from tests.effort import seeds

NOT_LEADER, OUT_OF_ORDER, DUPLICATE, TOO_LARGE, UNKNOWN_PID = 6, 45, 46, 10, 59


def sequences(requests: list[Outgoing]) -> list[int]:
    return [b.extra.sequence for r in requests for b in r.batches]


def test_a_batch_waits_for_its_linger_and_then_goes() -> None:
    rig = Rig()
    rig.open()
    assert rig.sent() == []
    assert rig.due() == pytest.approx(0.005)
    rig.now = 0.005
    assert [len(r.batches) for r in rig.sent()] == [1]


@pytest.mark.parametrize("press", ["flushing", "pressed"])
def test_flush_and_a_full_buffer_end_the_linger(press: str) -> None:
    rig = Rig()
    rig.open()
    setattr(rig.sender, press, True)
    assert len(rig.sent()) == 1


def test_somebody_who_waits_for_a_batch_ends_its_linger() -> None:
    rig = Rig()
    batch = rig.open()
    rig.accumulator.hurry(batch)
    assert rig.sent()[0].batches == [batch]


def test_a_partitions_first_batch_goes_alone_until_its_leader_knows_the_producer() -> None:
    """Kafka takes any sequence number from a producer that it does not know: a refused first batch would land behind the second."""
    rig = Rig(strangers=True)
    for _ in range(3):
        rig.full()
    (first,) = rig.sent()
    rig.answer(first, NOT_LEADER)
    rig.now = 5
    (again,) = rig.sent()
    assert sequences([again]) == [0]
    rig.answer(again)
    assert sequences(rig.sent()) == [10, 20]


def test_one_request_holds_at_most_one_batch_of_a_partition_and_all_partitions_of_the_broker() -> None:
    rig = Rig({0: 1, 1: 1, 2: 2})
    for partition in (0, 0, 1, 2):
        rig.full(partition)
    requests = rig.sent()
    assert sorted((r.broker_id, sorted(b.partition for b in r.batches)) for r in requests) == [(1, [0]), (1, [0, 1]), (2, [2])]


def test_a_batch_that_is_half_full_rides_along() -> None:
    rig = Rig({0: 1, 1: 1, 2: 1})
    rig.full(0)
    half, small = rig.open(1, size=2048), rig.open(2, size=100)
    batches = [b for r in rig.sent() for b in r.batches]
    assert half in batches
    assert small not in batches


def test_no_more_requests_than_max_in_flight_are_under_way() -> None:
    rig = Rig()
    for _ in range(9):
        rig.full()
    first = rig.sent()
    assert sequences(first) == [0, 10, 20, 30, 40]
    assert rig.sent() == []
    rig.answer(first[0])
    assert sequences(rig.sent()) == [50]


def test_while_a_broker_is_away_it_is_asked_who_leads_in_its_place() -> None:
    """A new leader is chosen seconds after the old one died: the pause before the old one is tried again must not hide it."""
    rig = Rig()
    rig.full()
    away = rig.sender.poll(0.0, lambda broker_id: 1.0)
    assert (away.requests, away.want_metadata) == ([], True)
    assert rig.sender.next_due(0.0, lambda broker_id: 1.0) == pytest.approx(1.0)
    back = rig.sender.poll(1.0, lambda broker_id: 1.0)
    assert (len(back.requests), back.want_metadata) == (1, False)


@pytest.mark.parametrize("told_by", ["metadata", "an answer"])
def test_a_batch_that_waits_for_its_broker_goes_to_the_new_leader(told_by: str) -> None:
    from tests.core.fakes import MetadataRequest, told

    rig = Rig({0: 1, 1: 1}, max_in_flight=1)
    rig.full(0)
    (first,) = rig.sent()
    waiting = rig.full(1)
    assert rig.sent() == [], "the broker's connection has no room"
    if told_by == "metadata":
        rig.metadata.on_response(MetadataRequest(topics=None), told({0: 1, 1: 2}, epoch=2), rig.now)
    else:
        rig.metadata.leader_moved("t", 1, 2, 2)
        rig.answer(first)
        rig.sent()  # finds out
    assert [(r.broker_id, r.batches) for r in rig.sent()] == [(2, [waiting])]


def test_a_request_stays_within_max_request_bytes() -> None:
    rig = Rig({0: 1, 1: 1, 2: 1}, max_request_bytes=2500)
    for partition in range(3):
        rig.full(partition)
    assert sorted(len(r.batches) for r in rig.sent()) == [1, 2]


def test_a_poll_takes_so_many_batches_at_most_and_the_next_one_is_due_at_once() -> None:
    """With greenlets, since the hub does not turn meanwhile."""
    rig = Rig(leaders=dict.fromkeys(range(7), 1), most_batches=3)
    for partition in range(7):
        rig.full(partition)
    counts = []
    for _ in range(3):
        counts.append([len(r.batches) for r in rig.sent()])
        assert (rig.sender.next_due(rig.now) == rig.now) is (len(counts) < 3)
    assert counts == [[3], [3], [1]]


def test_a_poll_that_had_enough_is_not_due_while_the_connection_has_no_room() -> None:
    rig = Rig(leaders=dict.fromkeys(range(7), 1), most_batches=3, max_in_flight=1)
    for partition in range(7):
        rig.full(partition)
    (first,) = rig.sent()
    assert rig.sender.next_due(rig.now) > rig.now
    rig.answer(first)
    assert [len(r.batches) for r in rig.sent()] == [3]


def test_an_acknowledged_batch_is_settled_with_its_offset() -> None:
    rig = Rig()
    batch = rig.full()
    (request,) = rig.sent()
    settled, stale = rig.answer(request, offset=42)
    assert [(s.batch, s.base_offset, s.error) for s in settled] == [(batch, 42, None)]
    assert not stale
    assert not rig.accumulator.unsettled
    assert batch.extra.persisted == "yes"


def test_a_failed_batch_goes_again_before_everything_younger() -> None:
    """B08, B10: the retry is sent alone, then the next ones, in the order in which they were rolled."""
    rig = Rig()
    batches = [rig.full() for _ in range(4)]
    sent = rig.sent()
    settled, stale = rig.answer(sent[0], NOT_LEADER)
    assert settled == []
    assert stale
    for request in sent[1:]:
        rig.answer(request, OUT_OF_ORDER)
    order: list[Any] = []
    while rig.accumulator.unsettled:
        rig.now += 2
        for request in rig.sent():
            order += request.batches
            rig.answer(request)
    assert order == batches
    assert [b.extra.sequence for b in order] == [0, 10, 20, 30]
    assert rig.sender.epoch_bumps == 0


def test_a_second_retry_waits_for_the_first_and_fresh_batches_follow_behind() -> None:
    rig = Rig()
    rig.full(), rig.full()
    first, second = rig.sent()
    rig.answer(first, NOT_LEADER)
    rig.answer(second, OUT_OF_ORDER)
    rig.full()
    assert rig.sent() == [], "the pause after the failure lasts"
    rig.now = 5
    (again,) = rig.sent()
    assert sequences([again]) == [0], "the younger retry could otherwise land first"
    rig.answer(again)
    assert sequences(rig.sent()) == [10, 20], "a fresh batch may follow a retry on the same connection"


def test_a_duplicate_is_a_success() -> None:
    rig = Rig()
    rig.full()
    (request,) = rig.sent()
    settled, _ = rig.answer(request, DUPLICATE, offset=-1)
    assert settled[0].error is None


def test_a_lost_connection_retries_with_the_same_number() -> None:
    rig = Rig()
    batch = rig.full()
    (request,) = rig.sent()
    settled, stale = rig.lose(request, SocketDisconnectedError("gone"))
    assert settled == []
    assert stale
    rig.now = 5
    (again,) = rig.sent()
    assert again.batches == [batch]
    assert batch.extra.sequence == 0
    assert batch.attempts == 2


def test_a_refused_batch_fails_and_the_gap_is_closed_by_a_new_epoch() -> None:
    """KIP-360: what follows a batch that will never arrive is numbered anew, once nothing is on the wire."""
    rig = Rig()
    refused, follower = rig.full(count=1), rig.full()
    first, second = rig.sent()
    settled, _ = rig.answer(first, TOO_LARGE)
    assert isinstance(settled[0].error, MessageSizeTooLarge)
    assert refused.extra.persisted == "no"
    assert rig.answer(second, OUT_OF_ORDER)[0] == []
    rig.now = 5
    (again,) = rig.sent()
    assert again.batches == [follower]
    assert (follower.extra.sequence, follower.extra.producer) == (0, (77, 1))
    assert rig.sender.epoch_bumps == 1


def test_a_head_that_is_out_of_order_starts_a_new_epoch() -> None:
    rig = Rig()
    rig.full()
    (request,) = rig.sent()
    rig.answer(request)
    batch = rig.full()
    (request,) = rig.sent()
    rig.answer(request, UNKNOWN_PID)
    rig.now = 5
    (again,) = rig.sent()
    assert again.batches == [batch]
    assert (batch.extra.sequence, batch.extra.producer) == (0, (77, 1))


def test_another_partition_ends_its_old_numbers_before_it_takes_the_new_epoch() -> None:
    rig = Rig({0: 1, 1: 2})
    rig.full(0, count=1), rig.full(1)
    by_partition = {r.batches[0].partition: r for r in rig.sent()}
    rig.answer(by_partition[0], TOO_LARGE)
    waiting = rig.full(1)
    assert rig.sent() == [], "partition 1 still has a batch of the old epoch on the wire"
    rig.answer(by_partition[1])
    (request,) = rig.sent()
    assert request.batches == [waiting]
    assert (waiting.extra.sequence, waiting.extra.producer) == (0, (77, 1))


def test_an_exhausted_epoch_asks_for_a_new_producer_id() -> None:
    rig = Rig(idempotence=None)
    rig.grant(epoch=(1 << 15) - 1)
    rig.full(count=1)
    (request,) = rig.sent()
    rig.answer(request, TOO_LARGE)
    batch = rig.full()
    assert rig.poll().ask_producer_id
    rig.sender.on_producer_id(_granted(78), None, rig.now)
    (request,) = rig.sent()
    assert request.batches == [batch]
    assert batch.extra.producer == (78, 0)


def _granted(producer_id: int) -> Any:
    from gkafka.wire.txn import InitProducerIdResponse

    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def test_sequence_numbers_survive_a_topic_that_vanishes_from_the_metadata() -> None:
    """B01: a topic that is missing for a moment must not start its numbers anew."""
    rig = Rig()
    rig.full()
    (request,) = rig.sent()
    rig.answer(request)
    rig.metadata.topics.clear()
    batch = rig.full()
    plan = rig.poll()
    assert plan.requests == []
    assert plan.want_metadata
    rig.metadata.on_response(MetadataRequest(topics=None), told({0: 1}), rig.now)
    assert [r.batches for r in rig.sent()] == [[batch]]
    assert batch.extra.sequence == 10


def test_sequence_numbers_wrap_at_31_bits() -> None:
    rig = Rig()
    rig.full()
    (request,) = rig.sent()
    queue = request.batches[0].extra.queue
    rig.answer(request)
    queue.next_sequence = (1 << 31) - 4
    rig.full()
    (request,) = rig.sent()
    assert sequences([request]) == [(1 << 31) - 4]
    assert queue.next_sequence == 6


def test_a_batch_that_never_left_fails_at_its_delivery_timeout_as_not_persisted() -> None:
    rig = Rig(delivery_timeout_s=10.0)
    rig.metadata.topics.clear()
    batch = rig.open()
    rig.now = 9.9
    assert rig.expired() == []
    rig.now = 10.0
    (settled,) = rig.expired()
    assert settled.batch is batch
    assert isinstance(settled.error, KafkaTimeoutError)
    assert "no known leader" in str(settled.error)
    assert batch.extra.persisted == "no"


@pytest.mark.parametrize("idempotence", [True, False])
def test_what_is_taken_back_was_never_tried(idempotence: bool) -> None:
    """It waited for its connection beside one that is late. retries=0 failed it although nothing of it had left."""
    rig = Rig({0: 1, 1: 1}, idempotence=idempotence, delivery_timeout_s=10.0, retries=0)
    late = rig.full(0)
    (first,) = rig.sent()
    rig.now = 8.0
    fresh = rig.full(1)
    (waiting,) = rig.sent()
    rig.now = 10.5
    for outgoing in (first, waiting):
        rig.sender.take_back(outgoing, KafkaTimeoutError("the connection did not open"), rig.now)
    assert rig.sender.in_flight == {1: 0}
    assert (rig.sender.sent_requests, fresh.attempts, fresh.extra.persisted) == (0, 0, "no")
    (settled,), poll = rig.settled_by(rig.poll)
    assert (settled.batch, settled.batch.extra.persisted) == (late, "no")
    assert "the connection did not open" in str(settled.error)
    (again,) = poll.requests
    assert again.batches == [fresh]
    assert [done.error for done in rig.answer(again)[0]] == [None]


@pytest.mark.parametrize("idempotence", [True, False])
def test_what_is_taken_back_goes_again_in_its_order_and_under_its_numbers(idempotence: bool) -> None:
    rig = Rig(idempotence=idempotence)
    batches = [rig.full() for _ in range(3)]
    before = rig.sent()
    for outgoing in reversed(before):
        rig.sender.take_back(outgoing, KafkaTimeoutError("the connection did not open"), rig.now)
    again = rig.sent()
    assert [b for r in again for b in r.batches] == batches
    assert sequences(again) == ([0, 10, 20] if idempotence else [-1, -1, -1])


def test_a_batch_on_the_wire_fails_at_its_delivery_timeout_as_maybe_persisted() -> None:
    rig = Rig(delivery_timeout_s=10.0)
    batch = rig.full()
    (request,) = rig.sent()
    rig.now = 10.0
    assert [s.batch for s in rig.expired()] == [batch]
    assert batch.extra.persisted == "maybe"
    assert rig.answer(request)[0] == [], "its late answer settles nothing twice"


def test_a_timeout_tells_why_the_last_try_failed_whether_it_ends_a_pause_or_comes_with_an_answer() -> None:
    for answered_at in (9.9, 10.1):
        rig = Rig(delivery_timeout_s=10.0)
        rig.full()
        (request,) = rig.sent()
        rig.now = answered_at
        settled = list(rig.answer(request, NOT_LEADER)[0])
        rig.now = 10.1
        settled += rig.expired()
        (error,) = [s.error for s in settled]
        assert "not delivered within 10 s" in str(error)
        assert "error 6" in str(error)
        assert isinstance(error, KafkaTimeoutError) == (answered_at < 10)


def test_a_connection_that_never_opened_leaves_no_doubt() -> None:
    rig = Rig(retries=0)
    batch = rig.full()
    (request,) = rig.sent()
    settled, _ = rig.lose(request, ConnectionFailedError("refused"))
    assert len(settled) == 1
    assert batch.extra.persisted == "no"


def test_tries_that_found_no_connection_need_not_count() -> None:
    rig = Rig(retries=1)
    rig.sender.delivery_limits.counts_unsent = False
    batch = rig.full()
    for problem in (ConnectionFailedError("refused"), LeaderNotFoundError("none")) * 2:
        (request,) = rig.sent()
        assert not rig.lose(request, problem)[0]
        rig.now += 1
    for n in range(2):
        (request,) = rig.sent()
        settled, _ = rig.lose(request, SocketDisconnectedError("closed"))
        rig.now += 1
        assert len(settled) == n, "that one was sent: one retry"
    assert (batch.attempts, batch.extra.unsent) == (6, 4)


def test_retries_are_counted_per_batch() -> None:
    rig = Rig(retries=2)
    rig.full()
    tries = 0
    settled: list[Any] = []
    while not settled:
        rig.now += 5
        for request in rig.sent():
            tries += 1
            settled, _ = rig.answer(request, NOT_LEADER)
    assert tries == 3


def test_the_machine_never_asks_to_be_polled_at_once_for_something_it_cannot_do() -> None:
    """B20: a lingered batch whose leader is unknown, or whose broker is busy, must not spin."""
    rig = Rig(max_in_flight=1)
    rig.full()
    rig.sent()
    rig.open()
    rig.now = 1.0
    assert rig.due() > rig.now + 10
    rig.metadata.topics.clear()
    assert rig.due() > rig.now + 10


def test_a_broker_in_backoff_is_polled_again_when_it_ends() -> None:
    rig = Rig()
    rig.full()
    plan = rig.sender.poll(0.0, lambda broker_id: 3.0)
    assert plan.requests == []
    assert rig.sender.next_due(0.0, lambda broker_id: 3.0) == 3.0


def test_a_throttled_broker_is_left_alone_for_a_bounded_while() -> None:
    rig = Rig()
    rig.full()
    (request,) = rig.sent()
    rig.answer(request, throttle_time_ms=(1 << 31) - 1)
    rig.full()
    assert rig.sent() == []
    rig.now = 30.0
    assert len(rig.sent()) == 1


def test_a_broker_that_knows_no_producer_ids_turns_idempotence_off_unless_it_was_asked_for() -> None:
    rig = Rig(idempotence=None)
    batch = rig.full()
    assert rig.poll().ask_producer_id
    assert rig.sender.on_producer_id(None, UnsupportedVersion("no such api"), 0.0) is None
    (request,) = rig.sent()
    assert request.batches == [batch]
    assert batch.extra.sequence == -1


def test_idempotence_that_was_asked_for_is_never_given_up() -> None:
    rig = Rig(idempotence=None)
    rig.sender.numbering.required = True
    rig.full()
    rig.poll()
    error = UnsupportedVersion("no such api")
    assert rig.sender.on_producer_id(None, error, 0.0) is error


def test_a_refused_producer_id_is_final_and_a_lost_one_is_asked_again() -> None:
    rig = Rig(idempotence=None)
    rig.full()
    rig.poll()
    assert rig.sender.on_producer_id(None, SocketDisconnectedError("gone"), 0.0) is None
    assert not rig.poll().ask_producer_id
    rig.now = 2.0
    assert rig.poll().ask_producer_id
    error = ClusterAuthorizationFailed()
    assert rig.sender.on_producer_id(None, error, 2.0) is error


def test_batches_that_fail_together_are_one_failure() -> None:
    """A lost connection takes five requests with it: the pause is that after one failure, 0.1 s, not that after five."""
    rig = Rig()
    for _ in range(5):
        rig.full()
    for request in rig.sent():
        rig.lose(request, SocketDisconnectedError("gone"))
    assert rig.sent() == []
    rig.now = 0.13
    (again,) = rig.sent()
    rig.lose(again, SocketDisconnectedError("gone"))
    rig.now += 0.13
    assert rig.sent() == [], "the second failure in a row doubles it"
    rig.now += 0.13
    assert sequences(rig.sent()) == [0]


def test_the_pause_after_a_failure_ends_when_another_leader_is_known() -> None:
    """KIP-951: the pause is for the broker that refused, not for its successor."""
    rig = Rig({0: 1})
    rig.full()
    (first,) = rig.sent()
    rig.answer(first, NOT_LEADER)
    assert rig.sent() == []
    rig.metadata.on_response(MetadataRequest(topics=None), told({0: 1}), rig.now)
    assert rig.sent() == [], "the same leader under the same epoch is no news"
    rig.metadata.on_response(MetadataRequest(topics=None), told({0: 2}, epoch=2), rig.now)
    assert [request.broker_id for request in rig.sent()] == [2]


def made_again(rig: Rig) -> None:
    """The metadata tells of another topic under the same name."""
    rig.metadata.on_response(MetadataRequest(topics=None), told({0: 1}, topic_id=uuid.UUID(int=8)), rig.now)


UNKNOWN_TOPIC, UNKNOWN_TOPIC_ID = 3, 100


@pytest.mark.parametrize("code", [UNKNOWN_TOPIC, UNKNOWN_TOPIC_ID])
def test_a_topic_that_a_broker_did_not_know_may_have_lost_its_numbers(code: int) -> None:
    """It was deleted and made again: its new log takes any number. A fresh batch that follows a retry could land where that was refused."""
    rig = Rig()
    rig.full()
    (first,) = rig.sent()
    rig.answer(first, code)
    rig.full()
    rig.now = 2
    (again,) = rig.sent()
    assert sequences([again]) == [0]
    assert rig.sent() == []
    rig.answer(again)
    assert sequences(rig.sent()) == [10]


def test_nothing_goes_to_a_topic_made_again_while_its_predecessor_owes_an_answer() -> None:
    rig = Rig()
    rig.full()
    (first,) = rig.sent()
    made_again(rig)
    rig.full()
    assert rig.sent() == [], "it would be written before the retry of the first"
    rig.answer(first, UNKNOWN_TOPIC_ID)
    rig.now = 2
    (again,) = rig.sent()
    assert sequences([again]) == [0]
    assert rig.sender.requests.build(again).topic_data[0].topic_id == uuid.UUID(int=8)


@pytest.mark.parametrize("now_known_as", [8, 0])
def test_an_answer_names_the_topic_that_the_batch_was_sent_to(now_known_as: int) -> None:
    """By its id alone (KIP-516): that of the topic as it was then, whatever the metadata says by now."""
    rig = Rig()
    batch = rig.full()
    (first,) = rig.sent()
    topic_id = rig.sender.requests.build(first).topic_data[0].topic_id
    rig.metadata.on_response(MetadataRequest(topics=None), told({0: 1}, topic_id=uuid.UUID(int=now_known_as)), rig.now)
    rows = [PartitionProduceResponse(index=0, base_offset=7)]
    response = ProduceResponse(responses=[TopicProduceResponse(name="", topic_id=topic_id, partition_responses=rows)])
    settled, _ = rig.settled_by(lambda: rig.sender.on_answer(first, response, None, rig.now))
    assert [(s.batch, s.base_offset, s.error) for s in settled] == [(batch, 7, None)]


def test_nothing_is_kept_of_topics_that_were_made_again() -> None:
    rig = Rig()

    def held() -> int:
        parts = (rig.sender, rig.sender.outcomes, rig.sender.requests, rig.sender.splitter)
        return sum(len(value) for part in parts for value in vars(part).values() if hasattr(value, "__len__"))

    sizes = set()
    for n in range(8, 28):
        rig.metadata.on_response(MetadataRequest(topics=None), told({0: 1}, topic_id=uuid.UUID(int=n)), rig.now)
        rig.full()
        (request,) = rig.sent()
        assert rig.sender.requests.build(request).topic_data[0].topic_id == uuid.UUID(int=n)
        rig.answer(request)
        assert len(rig.tell()) == 1
        sizes.add(held())
    assert len(sizes) == 1


def test_an_answer_that_leaves_a_partition_out_is_an_error_that_names_it() -> None:
    rig = Rig()
    rig.full()
    (request,) = rig.sent()
    settled, _ = rig.answer(Outgoing(request.broker_id, []), 0)
    assert settled == []
    from gkafka.wire.produce import ProduceResponse

    settled, _ = rig.settled_by(lambda: rig.sender.on_answer(request, ProduceResponse(responses=[]), None, 0.0))
    assert settled[0].error.partition == 0
    assert "t-0" in str(settled[0].error)


def test_abandon_fails_everything_wherever_it_is() -> None:
    rig = Rig({0: 1, 1: 2, 2: 3})
    on_wire, opened = rig.full(0), rig.open(1)
    rig.sent()
    pending = rig.full(0)
    error = KafkaTimeoutError("closing")
    assert {s.batch for s in rig.settled_by(lambda: rig.sender.abandon(error))[0]} == {on_wire, opened, pending}
    assert not rig.accumulator.unsettled


def test_an_impossible_move_of_idempotence_raises() -> None:
    rig = Rig()
    assert rig.sender.state is Idempotence.READY
    with pytest.raises(KeyError):
        rig.sender.numbering.move(Event.GRANTED)
    assert all(isinstance(state, Idempotence) and isinstance(event, Event) for state, event in MOVES)


@dataclasses.dataclass
class Log:
    """A partition leader's view of an idempotent producer: the last batches it has, and the next number it takes (KIP-98)."""

    producer: tuple[int, int] | None = None
    next_sequence: int = 0
    batches: list[Any] = dataclasses.field(default_factory=list)
    numbers: dict[int, Any] = dataclasses.field(default_factory=dict)

    def append(self, batch: Any) -> int:
        producer, sequence = batch.extra.producer, batch.extra.sequence
        if self.producer is None:  # an unknown producer may begin anywhere
            self.producer, self.next_sequence = producer, sequence
        elif producer[1] > self.producer[1]:
            if sequence != 0:
                return OUT_OF_ORDER
            self.producer, self.next_sequence, self.numbers = producer, 0, {}
        if self.numbers.get(sequence) is batch:
            return DUPLICATE
        if sequence != self.next_sequence:
            return OUT_OF_ORDER
        self.batches.append(batch)
        self.numbers[sequence] = batch
        self.next_sequence += batch.count
        return 0


@pytest.mark.parametrize("ten", seeds(30, quick=6))
def test_whatever_gets_lost_every_batch_arrives_once_and_in_order(ten: int) -> None:
    """Requests and answers are lost at random, leaders refuse at random: with idempotence nothing is lost, doubled or overtaken."""
    for seed in range(10 * ten, 10 * ten + 10):
        lose_at_random(seed)


def lose_at_random(seed: int) -> None:
    chance = Random(seed)
    rig = Rig({0: 1, 1: 1, 2: 2}, strangers=True)
    logs = {0: Log(), 1: Log(), 2: Log()}
    made: dict[int, list[Any]] = {0: [], 1: [], 2: []}
    flying: list[Outgoing] = []
    for step in range(400):
        rig.now += chance.choice([0.0, 0.001, 0.2])
        if step < 150:
            partition = chance.randrange(3)
            made[partition].append(rig.full(partition, count=chance.randint(1, 5)))
        flying += rig.sent()
        if not flying:
            continue
        # Answers of one connection come in order; a lost connection loses all that is on it.
        broker = chance.choice([r.broker_id for r in flying])
        request = next(r for r in flying if r.broker_id == broker)
        if chance.random() < 0.1 and step < 300:
            reached = chance.randint(0, sum(r.broker_id == broker for r in flying))
            for n, r in enumerate([r for r in flying if r.broker_id == broker]):
                if n < reached:
                    for b in r.batches:
                        logs[b.partition].append(b)
                rig.lose(r, SocketDisconnectedError("gone"))
            flying = [r for r in flying if r.broker_id != broker]
            continue
        flying.remove(request)
        refuses = chance.random() < 0.1 and step < 300
        rig.answer(request, {b.partition: NOT_LEADER if refuses else logs[b.partition].append(b) for b in request.batches})
    for _ in range(200):
        rig.now += 1.0
        flying += rig.sent()
        while flying:
            request = flying.pop(0)
            rig.answer(request, {b.partition: logs[b.partition].append(b) for b in request.batches})
    assert not rig.accumulator.unsettled
    assert {p: log.batches for p, log in logs.items()} == made


# -- outcomes ----------------------------------------------------------------------------------------------------------------
def test_an_outcome_is_owed_until_it_was_told() -> None:
    rig = Rig()
    batch = rig.full()
    assert rig.sender.owed() == [batch]
    settled, _ = rig.answer(rig.sent()[0])
    assert not rig.accumulator.unsettled
    assert (rig.sender.owed(), rig.sender.owes) == ([batch], True)
    assert rig.sender.outcomes.take_ended() == settled
    assert rig.sender.outcomes.take_ended() == []
    assert (rig.sender.owed(), rig.sender.owes) == ([batch], True)
    batch.done = True
    rig.sender.outcomes.told(settled)
    assert (rig.sender.owed(), rig.sender.owes, rig.sender.outcomes.take_ended()) == ([], False, [])


def test_an_outcome_whose_teller_was_stopped_before_it_is_left_to_the_next() -> None:
    rig = Rig({0: 1, 1: 1})
    first, second = rig.full(0), rig.full(1)
    settled, _ = rig.answer(rig.sent()[0])
    assert rig.sender.outcomes.take_ended() == settled
    first.done = True
    rig.sender.outcomes.told(settled)
    assert rig.sender.owed() == [second]
    assert rig.tell() == [second]
    assert not rig.sender.owes


# -- after an interruption -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("idempotence", [True, False])
def test_a_restart_sends_again_what_was_under_way_in_its_order_and_under_its_numbers(idempotence: bool) -> None:
    rig = Rig({0: 1, 1: 1}, idempotence=idempotence)
    first, second, other = rig.full(0), rig.full(0), rig.full(1)
    sent = rig.sent()
    assert [r.batches for r in sent] == [[first, other], [second]]
    third, lingers = rig.full(0), rig.open(1)
    numbers = [b.extra.sequence for b in (first, second, other)]
    rig.sender.restart([lingers])
    assert rig.sender.in_flight == {}
    assert list(rig.accumulator.unsettled) == [first, second, other, third, lingers]
    again = rig.sent()
    assert [r.batches for r in again] == [[first, other]], "what was sent before goes alone"
    assert len(rig.answer(again[0])[0]) == 2
    assert [r.batches for r in rig.sent()] == [[second], [third]]
    assert rig.accumulator.open == {("t", 1): lingers}
    assert [b.extra.sequence for b in (first, second, other)] == numbers


def test_a_restart_goes_on_behind_the_numbers_that_were_given() -> None:
    """Whoever numbered the first batch came no further."""
    rig = Rig()
    first, second = rig.full(count=3), rig.full()
    queue = rig.accumulator.queues["t", 0]
    rig.sender.numbering.number(queue, first)
    queue.next_sequence = 0
    rig.sender.restart(())
    sent = rig.sent()
    rig.answer(sent[0])
    sent += rig.sent()
    assert [(b.extra.sequence, b.count) for r in sent for b in r.batches] == [(0, 3), (3, second.count)]


def test_a_restart_knows_what_was_divided_as_its_worker_was_interrupted() -> None:
    rig = Rig()
    whole = rig.full(count=4, size=400)
    assert rig.sent()
    whole.parts = whole.split(200)
    rig.sender.restart(())
    assert list(rig.accumulator.unsettled) == whole.parts
    again = rig.sent()
    rig.answer(again[0])
    again += rig.sent()
    assert [b for r in again for b in r.batches] == whole.parts
    assert [b.extra.sequence for b in whole.parts] == [0, 2]
