"""What one broker remembers of a consumer's fetches, so that a fetch names only the partitions that have changed (KIP-227).

no session --full fetch, answered with an id--> session --incremental fetches--> session
session --an error, or no answer--> no session: the next fetch is full again, and ends what the broker may still remember
no session --three sessions that ended early--> off: every fetch is full and asks for no session
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from gkafka.brokererrors import BrokerError, FetchSessionIdNotFound, FetchSessionTopicId, InconsistentTopicId, InvalidFetchSessionEpoch
from gkafka.common import TopicPartition
from gkafka.wire.primitives import ZERO_UUID

__all__ = ["Delta", "FetchSession", "Wanted"]

NO_SESSION, FIRST, NEVER = 0, 0, -1
LAST = (1 << 31) - 1
SHORT = 10
"""Incremental fetches that a session is good for, at least: one that ends earlier costs more than it saves."""
PATIENCE = 3
SESSION_ERRORS = (FetchSessionIdNotFound, InvalidFetchSessionEpoch, FetchSessionTopicId, InconsistentTopicId)


class Wanted(NamedTuple):
    """What is asked of a partition. topic_id: zero where brokers know none. leader_epoch: of the leader as the metadata tell it, or -1."""

    topic_id: UUID
    offset: int
    leader_epoch: int
    max_bytes: int


class Delta(NamedTuple):
    """What the next fetch says. named: the partitions to name, in order; forgotten: (partition, topic id) to take out of the session;
    by_id: topics go by their ids.
    """

    session_id: int
    session_epoch: int
    named: list[TopicPartition]
    forgotten: list[tuple[TopicPartition, UUID]]
    by_id: bool

    @property
    def is_full(self) -> bool:
        """Does it name everything that is asked for?"""
        return self.session_epoch <= FIRST


class FetchSession:
    """The session with one broker. One fetch at a time: `ask`, then one of `answered`, `refused` and `lost`."""

    def __init__(self) -> None:
        self.id = NO_SESSION
        self.epoch = FIRST
        self.is_off = False
        self._held: dict[TopicPartition, Wanted] = {}
        self._by_id = True
        self._asked: dict[TopicPartition, Wanted] = {}
        self._served = 0
        self._short_lived = 0

    # -- asking ----------------------------------------------------------------------------------------------------------
    def ask(self, wanted: Mapping[TopicPartition, Wanted]) -> Delta:
        """The next fetch. wanted: all that is asked of the broker, in the order in which it is to fill its answer."""
        by_id = _all_have_ids(wanted)
        if by_id != self._by_id:
            self.lost()  # a session goes by names or by ids, never by both
            self._by_id = by_id
        if self._held and any(tp in wanted and _are_two(wanted[tp].topic_id, part.topic_id) for tp, part in self._held.items()):
            # A topic was made again. By name (before Fetch v13) the new one would be taken in and, as the old one, put out again: a broker does
            # it in this order, and says nothing of the partition from then on.
            self.lost()
        self._asked = dict(wanted)
        if self.is_off:
            return Delta(self.id, NEVER, list(wanted), [], by_id)
        if self.epoch == FIRST:
            return Delta(self.id, FIRST, list(wanted), [], by_id)
        held = self._held
        named = [tp for tp, part in wanted.items() if held.get(tp) != part]
        gone = [(tp, part.topic_id) for tp, part in held.items() if tp not in wanted]
        return Delta(self.id, self.epoch, named, gone, by_id)

    # -- what came -------------------------------------------------------------------------------------------------------
    def answered(self, session_id: int) -> bool:
        """An answer without an error. session_id: what it says, 0 for no session. Returns whether it may leave out what has not changed."""
        was_full = self.is_off or self.epoch == FIRST
        if self.is_off or session_id == NO_SESSION:
            self._start_over(NO_SESSION)
            return not was_full
        if was_full:
            self._served = 0
        else:
            self._served += 1
        self.id, self._held = session_id, self._asked
        self.epoch = self.epoch + 1 if self.epoch < LAST else 1
        return not was_full

    def refused(self, error: BrokerError) -> bool:
        """An answer that is an error as a whole. Returns whether it was about the session: then the same may be asked again at once."""
        if self.is_off or not isinstance(error, SESSION_ERRORS):
            self.lost()
            return False
        self._short_lived = self._short_lived + 1 if self._served < SHORT else 1
        # A broker that has forgotten the session (it was restarted, or others took its place) has nothing to end.
        self._start_over(NO_SESSION if isinstance(error, FetchSessionIdNotFound) else self.id)
        if self._short_lived >= PATIENCE:
            self.is_off = True
        return True

    def lost(self) -> None:
        """No answer: nobody knows what the broker took in. It may still hold the session, so the next fetch ends that."""
        self._start_over(self.id)

    def _start_over(self, session_id: int) -> None:
        self.id, self.epoch = session_id, FIRST
        self._held = {}
        self._served = 0


def _all_have_ids(wanted: Mapping[TopicPartition, Wanted]) -> bool:
    """Does each topic have an id? To compare two takes long: not once for each partition."""
    last: UUID | None = None
    for part in wanted.values():
        if part.topic_id is not last:
            last = part.topic_id
            if last is ZERO_UUID or last == ZERO_UUID:
                return False
    return True


def _are_two(one: UUID, other: UUID) -> bool:
    return one is not other and one != other
