"""Numbers and epochs, case by case: brokers keep Kafka's rules, the producer loses, doubles and overtakes nothing that it calls delivered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gkafka.core.numbering import Idempotence
from gkafka.exceptions import KafkaTimeoutError, OutOfOrderSequenceNumber
from gkafka.wire.txn import InitProducerIdResponse
from tests.core.brokersim import DUPLICATE, INVALID_RECORD, NOT_LEADER, OUT_OF_ORDER, TIMED_OUT, TOO_FEW, SimBatch, World
from tests.core.fakes import Rig


def world(**options: Any) -> World:
    """Partition 0, on broker 1, has acknowledged a batch: records 0 and 1."""
    it = World(**options)
    it.produce()
    it.serve(1)
    return it


def log_of(it: World, partition: int = 0) -> list[int]:
    return it.partitions[partition].log.records


def on_the_way(it: World, broker: int = 1) -> list[tuple[Any, int]]:
    """(epoch, first number) of what is on the wire."""
    return [(copy.producer[1], copy.first) for flying in it.connections[broker] for copy in flying.copies]


def old_and_young(it: World) -> tuple[SimBatch, SimBatch]:
    """Two batches on the wire; the first will expire four seconds before the second."""
    old = it.produce()
    it.step(4.0)
    return old, it.produce()


# -- a batch whose time is over, and what is behind it ---------------------------------------------------------------------
def test_what_is_behind_an_expired_batch_that_was_written_is_found_again_under_its_number() -> None:
    it = world()
    old, young = old_and_young(it)
    it.arrive(1), it.arrive(1)
    it.cut(1)
    it.rig.metadata.topics.clear()  # nothing can be sent before the first expires
    it.step(6.5)
    assert it.told(old) == "maybe"
    it.tell()
    assert on_the_way(it) == [(0, 4)], "it may be written: another number would write it twice"
    it.finish()
    assert it.told(young) == "yes"
    assert log_of(it) == [0, 1, 2, 3, 4, 5]
    assert it.rig.sender.epoch_bumps == 0, "there was no gap"


def test_what_is_behind_an_expired_batch_that_was_not_written_fails_if_a_try_of_it_was_lost_as_well() -> None:
    """It was refused now. Its first copy may still reach the broker, behind that of the expired one: it is not sent under another number."""
    it = world()
    _, young = old_and_young(it)
    it.cut(1, late=True)
    it.step(6.5)
    it.serve(1)
    assert it.told(young) == "maybe"
    error = it.outcome[young.records[0]][0]
    assert isinstance(error, OutOfOrderSequenceNumber)
    assert (error.topic, error.partition) == ("t", 0)
    assert "may be in the log or not" in str(error)
    it.arrive_late(1), it.arrive_late(1)
    next_one = it.produce()
    assert on_the_way(it) == [(1, 0)]
    it.finish()
    assert it.told(next_one) == "yes"
    assert log_of(it) == [0, 1, 2, 3, 4, 5, 6, 7]


def test_what_was_refused_behind_an_expired_batch_is_numbered_anew() -> None:
    """Every try of it was answered: no copy of it is under way."""
    it = world()
    old, young = old_and_young(it)
    lost = it.connections[1].pop(0)
    it.step(6.5)
    assert it.told(old) == "maybe"
    it.serve(1)
    it.step(1.0)
    assert on_the_way(it) == [(1, 0)]
    it.connections[1].insert(0, lost)
    it.serve(1)  # the expired one comes after all, before
    it.finish()
    assert it.told(young) == "yes"
    assert log_of(it) == [0, 1, 2, 3, 4, 5]
    assert it.rig.sender.epoch_bumps == 1


def test_an_expired_batch_that_comes_after_the_new_epoch_is_refused() -> None:
    it = world()
    it.produce()
    it.cut(1, late=True)
    it.step(10.0)
    it.produce()
    assert on_the_way(it) == [(1, 0)]
    it.serve(1)
    it.arrive_late(1)
    assert log_of(it) == [0, 1, 4, 5]


def test_nothing_new_goes_while_the_numbers_have_a_gap() -> None:
    """Java's "unresolved sequences"."""
    it = world()
    old_and_young(it)
    it.step(6.5)
    fresh = it.produce()
    assert on_the_way(it) == [(0, 2), (0, 4)]
    it.serve(1), it.serve(1)
    assert on_the_way(it) == [(0, 6)], "the younger one was taken: the expired one had been written"
    it.finish()
    assert it.told(fresh) == "yes"
    assert it.rig.sender.epoch_bumps == 0


def test_behind_a_batch_that_will_never_be_written_all_are_numbered_anew_whatever_became_of_their_tries() -> None:
    it = world()
    bad, lost = it.produce(poison=True), it.produce()
    it.serve(1)
    it.cut(1, late=True)
    it.step(1.0)
    assert on_the_way(it) == [(1, 0)]
    it.arrive_late(1)
    it.finish()
    assert (it.told(bad), it.told(lost)) == ("no", "yes")
    assert log_of(it) == [0, 1, 4, 5]


def test_an_older_batch_keeps_its_number_when_a_younger_one_fails() -> None:
    it = world()
    older, bad = it.produce(), it.produce(poison=True)
    it.arrive(1, it.write_but_say(TIMED_OUT)), it.arrive(1)
    it.answer(1), it.answer(1)
    it.step(1.0)
    assert on_the_way(it) == [(0, 2)]
    it.finish()
    assert (it.told(older), it.told(bad)) == ("yes", "no")
    assert log_of(it) == [0, 1, 2, 3]


# -- an epoch that another partition ended -----------------------------------------------------------------------------------
@pytest.mark.parametrize("written", [True, False])
def test_batches_of_other_partitions_keep_the_epoch_that_they_were_sent_under(written: bool) -> None:
    it = world()
    it.produce(1)
    it.serve(2)
    other = it.produce(1)
    if written:
        it.arrive(2)
    it.cut(2)
    it.produce(0, poison=True)
    it.serve(1)
    assert it.rig.sender.epoch_bumps == 1
    it.step(1.0)
    assert on_the_way(it, 2) == [(0, 2)]
    it.serve(2)
    it.produce(1)
    assert on_the_way(it, 2) == [(1, 0)]
    it.finish()
    assert it.told(other) == "yes"
    assert len(log_of(it, 1)) == 6


# -- answers about numbers ---------------------------------------------------------------------------------------------------
def test_a_duplicate_that_is_not_the_newest_is_a_success_and_what_follows_keeps_its_number() -> None:
    it = world(duplicate=DUPLICATE)
    first, second = it.produce(), it.produce()
    it.arrive(1), it.arrive(1)
    it.cut(1)
    it.step(1.0)
    it.serve(1)
    assert (it.told(first), on_the_way(it)) == ("yes", [(0, 4)])
    it.finish()
    assert it.told(second) == "yes"
    assert log_of(it) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("lost_try", [False, True])
def test_a_leader_that_knows_the_producer_no_more_is_given_a_new_epoch(lost_try: bool) -> None:
    """Brokers before 2.5 drop a producer with its last record. Copies of the old numbers are refused, so even a lost try does no harm."""
    it = world(takes_any=False)
    it.partitions[0].log.forget()
    batches = [it.produce(), it.produce()]
    if lost_try:
        it.cut(1, late=True)
        it.step(1.0)
    it.serve(1), it.serve(1)
    it.step(1.0)
    assert on_the_way(it) == [(1, 0)], "nothing goes beside the first: the leader knows nothing of this producer"
    it.arrive_late(1)
    it.finish()
    assert [it.told(b) for b in batches] == ["yes", "yes"]
    assert log_of(it) == [0, 1, 2, 3, 4, 5]
    assert it.rig.sender.epoch_bumps == 1


def test_a_fresh_batch_that_is_out_of_order_is_numbered_anew() -> None:
    """The leader has lost what it acknowledged (an unclean election)."""
    it = world()
    it.produce()
    it.serve(1)
    log = it.partitions[0].log
    log.committed = 1
    log.lose(0)
    batch = it.produce()
    it.serve(1)
    it.step(1.0)
    assert on_the_way(it) == [(1, 0)]
    it.serve(1)
    assert it.told(batch) == "yes"
    assert log_of(it) == [0, 1, 4, 5]


def test_a_batch_whose_answer_was_lost_is_not_doubled_when_its_leader_forgot_it() -> None:
    """A broker that stops in order keeps one batch of each producer in its snapshot: the newest is found again, those before it are not."""
    it = world()
    first, second, newest = it.produce(), it.produce(), it.produce()
    for _ in range(3):
        it.arrive(1)
    it.cut(1)
    it.partitions[0].log.restart()
    it.finish()
    assert [it.told(b) for b in (first, second, newest)] == ["maybe", "maybe", "yes"]
    assert log_of(it) == [0, 1, 2, 3, 4, 5, 6, 7]


def test_parts_of_a_batch_that_may_be_written_are_not_written_beside_it() -> None:
    """The topic's limit was lowered between two tries."""
    it = world()
    batch = it.produce(count=4)
    it.arrive(1)
    it.cut(1)
    it.partitions[0].limit = 2
    it.finish()
    assert it.told(batch) == "maybe"
    assert log_of(it) == [0, 1, 2, 3, 4, 5]


def test_numbers_are_refused_without_harm_while_a_new_producer_id_is_asked_for() -> None:
    rig = Rig(idempotence=None)
    rig.grant(epoch=(1 << 15) - 1)
    rig.full(count=1), rig.full()
    first, second = rig.sent()
    rig.answer(first, INVALID_RECORD)
    assert rig.answer(second, OUT_OF_ORDER)[0] == []
    assert rig.poll().ask_producer_id
    assert rig.sender.state is Idempotence.ASKED
    rig.sender.on_producer_id(InitProducerIdResponse(producer_id=78, producer_epoch=0), None, rig.now)
    rig.now = 5.0
    (again,) = rig.sent()
    assert (again.batches[0].extra.producer, again.batches[0].extra.sequence) == ((78, 0), 0)


# -- what a leader knows of the producer -------------------------------------------------------------------------------------
def new_epoch_after_a_gap(it: World) -> None:
    it.produce(poison=True)
    it.serve(1)


def new_epoch_after_a_transaction(it: World) -> None:
    it.next_epoch(marked=True)


def new_epoch_after_a_transaction_without_this_partition(it: World) -> None:
    it.next_epoch(marked=False)


@pytest.mark.parametrize(
    "begin", [new_epoch_after_a_gap, new_epoch_after_a_transaction, new_epoch_after_a_transaction_without_this_partition]
)
def test_under_a_new_epoch_the_second_batch_goes_beside_the_first_where_the_producer_is_known(begin: Callable[[World], None]) -> None:
    """Its leader takes nothing but number 0 then: what follows a batch that it refused is refused, too. A round trip less for each
    partition of each transaction (KIP-890)."""
    it = world()
    begin(it)
    first, second = it.produce(), it.produce()
    assert on_the_way(it) == [(1, 0), (1, 2)]
    it.serve(1, lambda copy: TOO_FEW), it.serve(1)
    it.finish()
    assert [it.told(b) for b in (first, second)] == ["yes", "yes"]
    assert log_of(it)[-4:] == first.records + second.records
    assert it.rig.sender.producer == (77, 1)


def test_a_partition_that_is_new_to_the_producer_gets_its_first_batch_alone_under_any_epoch() -> None:
    it = world()
    it.next_epoch(marked=True)
    it.produce(1), it.produce(1)
    assert on_the_way(it, 2) == [(1, 0)]


def test_no_batch_is_left_so_far_behind_that_its_leader_would_not_know_it_again() -> None:
    """Five on the wire to the old leader, unanswered; behind five more at the new one it would be taken for a number out of order."""
    it = world()
    batches = [it.produce() for _ in range(5)]
    for _ in batches:
        it.arrive(1)
    it.move(0, 2)
    batches.append(it.produce())
    assert on_the_way(it, 2) == []
    it.answer(1)
    assert on_the_way(it, 2) == [(0, 12)]
    batches += [it.produce() for _ in range(4)]
    it.serve(2)
    assert len(on_the_way(it, 2)) == 0, "the second batch has no answer yet"
    it.cut(1)
    it.finish()
    assert [it.told(b) for b in batches] == ["yes"] * 10
    assert len(log_of(it)) == 22


# -- what is said of a batch that failed ---------------------------------------------------------------------------------------
def test_a_leader_that_was_replaced_while_it_waited_for_its_followers_may_have_passed_the_batch_on() -> None:
    it = world(retries=0)
    batch = it.produce()
    it.arrive(1, it.write_but_say(NOT_LEADER))
    it.move(0, 2, keep=1)
    it.answer(1)
    assert it.told(batch) == "maybe"
    assert log_of(it) == [0, 1, 2, 3]


@pytest.mark.parametrize(("acks", "said"), [(-1, "maybe"), (1, "no")])
def test_not_leader_is_no_doubt_where_nobody_waits_for_followers(acks: int, said: str) -> None:
    rig = Rig(acks=acks, retries=0, idempotence=acks == -1)
    batch = rig.full()
    (request,) = rig.sent()
    rig.answer(request, NOT_LEADER)
    assert batch.extra.persisted == said


def test_an_expired_batch_whose_every_try_was_refused_is_not_persisted() -> None:
    it = world()
    batch = it.produce()
    it.serve(1, lambda copy: TOO_FEW)
    it.rig.metadata.topics.clear()
    it.step(10.0)
    assert isinstance(it.outcome[batch.records[0]][0], KafkaTimeoutError)
    assert it.told(batch) == "no"


def test_partitions_whose_numbers_have_gaps_at_once_begin_one_epoch_together() -> None:
    rig = Rig({0: 1, 1: 1})
    for partition in (0, 1):
        rig.full(partition)
    rig.answer(*rig.sent())
    for partition in (0, 1):
        rig.full(partition)
    rig.answer(*rig.sent(), INVALID_RECORD)
    assert rig.sender.epoch_bumps == 1
    for partition in (0, 1):
        rig.full(partition)
    (request,) = rig.sent()
    assert [(b.extra.producer[1] - rig.sender.producer[1], b.extra.sequence) for b in request.batches] == [(0, 0), (0, 0)]
