"""Where a consumer stands in each partition, and how it finds its start.

Two offsets matter: `fetch_offset`, from which the next request asks, and `consumed`, the next one that the application will get. What
lies between them is in the consumer's queue. Only a broker's definite answer resets a position (reliability rule B25, B26).

Two epochs go with each: that of the leader who wrote the batch before it, by which a new leader tells whether it has that batch, too, and
`leader_epoch`, that of the leader who was last found to have it (KIP-320).
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from gkafka.common import TopicPartition
from gkafka.core.backoff import Chance, Retry
from gkafka.core.metadata import NO_TOPIC_ID

if TYPE_CHECKING:
    from uuid import UUID

    from gkafka.brokererrors import KafkaException
    from gkafka.core.backoff import Backoff

__all__ = ["Position", "Rests", "State"]

NOBODY = -1
FREE_STEPS = 3
"""Failures in a row after which it is gone on at once, where it was told how."""


class State(enum.Enum):
    """RESETTING: the start is to be looked up by `reset_to`; CHECKING: a new leader is to be asked whether its log was cut; FETCHING: the
    position is known and right; HALTED: an error waits for the application.
    """

    RESETTING = "resetting"
    CHECKING = "checking"
    FETCHING = "fetching"
    HALTED = "halted"


class Position:
    """One partition of a consumer.

    buffered: messages in the queue that were not handed out. in_flight: a fetch that asks for it is under way. epoch: counts seeks, so
    that an answer to an older question is dropped. term: counts the places that the application has put it to, so that nobody goes back to one
    before that. max_bytes: what is asked of it; grows when a record does not fit. fetch_epoch,
    consumed_epoch: of the leader that wrote what stands before the offset, -1 where it is not known. topic_id: of the topic that the offsets
    are of. replica: the follower to fetch from until `replica_until` (KIP-392), -1 is the leader. stable: where the oldest open transaction
    begins, as the broker last told it. trouble: what the last try met, None if nothing.
    """

    __slots__ = (
        "buffered",
        "consumed",
        "consumed_epoch",
        "epoch",
        "fetch_epoch",
        "fetch_offset",
        "high_watermark",
        "in_flight",
        "leader_epoch",
        "max_bytes",
        "paused",
        "replica",
        "replica_until",
        "reset_to",
        "retry",
        "stable",
        "state",
        "term",
        "topic_id",
        "tp",
        "trouble",
    )

    def __init__(self, tp: TopicPartition, max_bytes: int) -> None:
        self.tp = tp
        self.state = State.RESETTING
        self.reset_to = -2
        self.fetch_offset = -1
        self.fetch_epoch = -1
        self.consumed = -1
        self.consumed_epoch = -1
        self.leader_epoch = -1
        self.topic_id = NO_TOPIC_ID
        self.high_watermark = self.stable = -1
        self.buffered = 0
        self.in_flight = False
        self.paused = False
        self.replica = NOBODY
        self.replica_until = 0.0
        self.epoch = self.term = 0
        self.max_bytes = max_bytes
        self.retry = Retry()
        self.trouble: KafkaException | None = None

    def seek(self, offset: int, epoch: int = -1, leader_epoch: int = -1) -> None:
        """Start from this offset, at once: somebody wants it so. What was fetched before is void.

        epoch: of the leader that wrote what stands before it, if that is known: it is checked before the first fetch, unless leader_epoch says
        whose word it is.
        """
        self.move(offset, epoch, leader_epoch)
        self.retry.succeeded()

    def move(self, offset: int, epoch: int = -1, leader_epoch: int = -1) -> None:
        """The same because a broker says so: what failed before is not forgotten by that."""
        self.state = State.FETCHING
        self.fetch_offset = self.consumed = offset
        self.fetch_epoch = self.consumed_epoch = epoch
        self.leader_epoch = leader_epoch
        self.epoch += 1
        self.buffered = 0
        self.trouble = None

    def reset(self, timestamp: int) -> None:
        """Start from what ListOffsets answers for this timestamp (-2 earliest, -1 latest, else ms), at once: somebody wants it so."""
        self.look_up(timestamp)
        self.trouble = None
        self.retry.succeeded()

    def look_up(self, timestamp: int) -> None:
        """The same because a broker says so: what failed before is not forgotten by that."""
        self.state = State.RESETTING
        self.reset_to = timestamp
        self.epoch += 1
        self.buffered = 0

    def begin_anew(self, topic_id: UUID) -> None:
        """The offset was one of another topic: in this one it says nothing, and must not be committed."""
        self.topic_id = topic_id
        self.term += 1
        self.fetch_offset = self.consumed = -1
        self.fetch_epoch = self.consumed_epoch = -1
        self.leave_replica()

    def halt(self, error: KafkaException) -> None:
        """Stop fetching: asking again changes nothing, the application has to decide (seek, or drop the partition). What was fetched before is
        still handed out.
        """
        self.state = State.HALTED
        self.trouble = error

    def may_be_cut(self, leader_epoch: int) -> bool:
        """Is there a leader that was not asked yet whether it has what was read? Whoever wrote the last batch itself has it.

        A leader without an epoch, as while there is none, settles nothing: the one after it is asked (B29). Neither does one whose epoch was a lie.
        """
        return 0 <= self.fetch_epoch < leader_epoch and self.leader_epoch != leader_epoch

    def follow(self, replica: int, until: float) -> None:
        """Fetch from this follower until then."""
        self.replica, self.replica_until = replica, until

    def leave_replica(self) -> None:
        """Back to the leader."""
        self.replica = NOBODY

    @property
    def is_drained(self) -> bool:
        """Was everything that was fetched handed out?"""
        return self.consumed >= self.fetch_offset


class Rests:
    """How long positions rest after failures: the one place that says so.

    Only what shows that a partition can be read ends the row of its failures: the answer of a fetch, and the application, which seeks. What only
    says where to go on (a start that was looked up, a leader that was named, a log that was found whole) does not: two such answers can lead to each
    other for ever. The first few of them cost no rest.
    """

    def __init__(self, backoff: Backoff, chance: Chance) -> None:
        self._backoff, self.chance = backoff, chance

    def failed(self, position: Position, error: KafkaException, now: float) -> None:
        """The last try came to nothing."""
        position.trouble = error
        position.retry.failed(self._backoff, now, self.chance)

    def was_shown_on(self, position: Position) -> None:
        """It failed, and was told where to go on: at once, unless that has led to nothing some times."""
        if position.retry.failures <= FREE_STEPS:
            position.retry.not_before = 0.0

    def was_read(self, position: Position) -> int:
        """Returns how many failures there were before."""
        failures = position.retry.failures
        position.trouble = None
        position.retry.succeeded()
        return failures
