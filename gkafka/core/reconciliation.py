"""From what a member of a KIP-848 group has to what its coordinator wants it to have: give up first, take afterwards, then say so."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from uuid import UUID

from gkafka.common import TopicPartition
from gkafka.core.ownership import Ownership

__all__ = ["Reconciliation"]

Target = Mapping[UUID, frozenset[int]]


class Reconciliation:
    """held: what the coordinator must take for the member's, with the ids of the topics: what it owns, what it is giving up, and that of which
    a commit is still under way. owes: the coordinator waits to hear what became of the target. Topics are known by id; one whose name is not known yet waits for it, and is never dropped.
    """

    def __init__(self, have: Ownership) -> None:
        self.held: dict[TopicPartition, UUID] = {}
        self._have = have
        self._target: Target | None = None
        self._names: dict[UUID, str] = {}
        self._asked: set[UUID] = set()  # of those without a name: the brokers could not tell it so far
        self._fresh = self.owes = False

    @property
    def nameless(self) -> set[UUID]:
        """Topics of the target whose names are not known."""
        return {topic_id for topic_id in self._target or () if topic_id not in self._names}

    @property
    def is_done(self) -> bool:
        """Nothing is to be given up, taken or acknowledged any more."""
        return not self.owes and not self.nameless

    def aim(self, target: Target) -> bool:
        """What the coordinator wants. Returns whether it is news; then it waits to hear what became of it, even if that is nothing."""
        if target == self._target:
            return False
        self._target, self._fresh, self.owes = target, True, True
        return True

    def learn(self, names: Mapping[UUID, str]) -> None:
        """topic id -> name: what came of asking for the nameless ones."""
        news = {topic_id: name for topic_id, name in names.items() if topic_id in self.nameless}
        self._names.update(news)
        self._asked = self.nameless
        if news:
            self._fresh = self.owes = True

    def step(self, committing: Collection[TopicPartition], *, may_gain: bool) -> bool:
        """As far as it goes without waiting: what is given up is the member's until its callback has returned and the commits of it are over.

        committing: partitions of commits under way. may_gain: is it surely a member at this moment? Returns whether `held` is what shall be
        acknowledged now.
        """
        if self._target is None or not self._fresh:
            return self.owes
        wanted = self._wanted(self._target)
        self._have.give_up([tp for tp in self._have.owned if wanted.get(tp) != self.held.get(tp)])
        if self._have.leaving or any(tp not in self._have.owned for tp in committing if tp in self.held):
            return False
        if len(self.held) == len(self._have.owned) and not self.nameless <= self._asked:
            return False  # the answer is on its way, and nobody waits for what has been given up
        news = [tp for tp in wanted if tp not in self._have.owned]
        if news and not may_gain:
            self.held = {tp: wanted[tp] for tp in self._have.owned}
            return False
        self.held = {tp: wanted[tp] for tp in (*self._have.owned, *news)}  # first: what is owned has the id of its topic
        self._have.gain(sorted(news))
        self._fresh = False
        kept = {*self._target, *self.held.values()}
        self._names = {topic_id: name for topic_id, name in self._names.items() if topic_id in kept}
        self._asked &= kept
        return True

    def _wanted(self, target: Target) -> dict[TopicPartition, UUID]:
        return {
            TopicPartition(self._names[topic_id], number): topic_id
            for topic_id, numbers in target.items()
            if topic_id in self._names
            for number in numbers
        }

    def acknowledged(self) -> None:
        """A heartbeat tells `held` after a `step` that returned True."""
        self.owes = False

    def stop(self) -> None:
        """There is no target any more: what is given up is not told, and still held."""
        self._target = None
        self._fresh = self.owes = False

    def lose(self) -> None:
        """Nothing is held: the coordinator has taken it."""
        self.held = {}
        self.stop()
