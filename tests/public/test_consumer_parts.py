"""The parts of a consumer, each alone: what deserializers have, and queues that are emptied and moved back."""

from __future__ import annotations

from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.assignment import Assignment
from gkafka.atwork import AtWork, stands_at
from gkafka.common import TopicPartition
from gkafka.config import ConsumerConfig
from gkafka.consumerqueues import Context, Queue
from gkafka.core.positions import Position
from gkafka.exceptions import ConfigurationError, CorruptRecordError
from gkafka.fetchdriver import FetchDriver

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ME, OTHER = 1, 2


class Parts:
    """A driver that does not run, with partitions that stand at 10, and what a call of ME has taken: 10 to 19 of each."""

    def __init__(self, cluster: Any) -> None:
        self.driver = FetchDriver(cluster, ConsumerConfig(), None)
        self.assignment = Assignment(self.driver)
        self.at_work = AtWork(self.driver, self.assignment)
        self.positions = {tp: Position(tp, 1000) for tp in (T0, T1)}
        for position in self.positions.values():
            position.seek(10, 3)
        self.driver.add([Queue(position, Context(*position.tp, None)) for position in self.positions.values()])
        self.call = self.at_work.begin(ME)
        for tp, position in self.positions.items():
            self.call.stood[tp] = stands_at(position)
            position.consumed, position.consumed_epoch = 20, 4

    def stands(self) -> dict[TopicPartition, tuple[int, int]]:
        return {tp: (position.consumed, position.consumed_epoch) for tp, position in self.positions.items()}


@pytest.fixture
def parts(client: KafkaClient) -> Parts:
    return Parts(client.cluster)


def test_only_the_worker_of_a_deserializer_may_take_behind_it(parts: Parts) -> None:
    position = parts.positions[T0]
    assert parts.at_work.may_take(position, ME)
    assert not parts.at_work.may_take(position, OTHER)
    assert parts.at_work.has([T0])
    position.term += 1  # as a seek does
    assert parts.at_work.may_take(position, OTHER)
    assert parts.at_work.end(parts.call)
    assert parts.at_work.may_take(parts.positions[T1], OTHER)
    assert not parts.at_work.has([T1])


def test_commits_stand_before_what_a_deserializer_has_unless_the_partition_was_put_elsewhere(parts: Parts) -> None:
    parts.positions[T1].term += 1
    assert parts.at_work.before({T0: 20, T1: 20}) == {T0: 10, T1: 20}
    assert parts.at_work.before({T1: 20}) == {T1: 20}


def test_a_failure_moves_its_partition_back_to_the_record_and_voids_what_was_fetched(parts: Parts) -> None:
    before = parts.positions[T0].epoch
    parts.at_work.go_back(parts.call, T0, 15)
    assert parts.stands() == {T0: (15, -1), T1: (20, 4)}, "of the record before it the epoch is not known"
    assert parts.positions[T0].epoch > before
    parts.at_work.go_back(parts.call, T1, 5)
    assert parts.stands()[T1] == (10, 3), "never further than where the call began"


def test_a_failure_after_a_seek_moves_nothing(parts: Parts) -> None:
    parts.positions[T0].term += 1
    parts.at_work.go_back(parts.call, T0, 15)
    assert parts.stands()[T0] == (20, 4)


def test_the_end_of_all_work_goes_back_and_the_call_is_told(parts: Parts) -> None:
    assert parts.at_work.end_all() == {T0: 10, T1: 10}
    assert parts.stands() == {T0: (10, 3), T1: (10, 3)}
    assert not parts.at_work.end(parts.call)
    assert not parts.call.stood


def test_the_end_of_work_on_a_partition_that_is_given_up_leaves_the_other_one(parts: Parts) -> None:
    queue = parts.assignment.queue(T0)
    parts.driver.remove([queue])
    parts.assignment.left[T0] = queue.position
    parts.at_work.end_on([T0])
    assert parts.stands() == {T0: (10, 3), T1: (20, 4)}
    assert parts.call.ended == {T0}
    assert set(parts.call.stood) == {T1}
    assert parts.assignment.position_of(T0) is queue.position
    with pytest.raises(ConfigurationError, match="t-0 is not assigned"):
        parts.assignment.queue(T0)


def test_an_error_is_raised_when_nothing_is_left_before_it_and_is_forgotten_with_what_was_fetched(parts: Parts) -> None:
    queue = parts.assignment.queue(T0)
    error = CorruptRecordError("damaged", topic="t", partition=0, offset=20)
    parts.driver.errors.append(error)
    queue.spans.append(None)  # type: ignore[arg-type]
    parts.assignment.raise_errors()
    queue.spans.clear()
    parts.assignment.raise_errors(starting=True)
    with pytest.raises(CorruptRecordError):
        parts.assignment.raise_errors()
    parts.driver.errors.append(error)
    parts.assignment.void(queue)
    parts.assignment.raise_errors()
