"""Which of the commits of a group that are under way at the same time a request has to carry, so that none takes the group back.

A commit has a number from the moment at which it is made up. What decides is what became of the later ones: one that was committed is the group's word,
one that may have been is repeated, one that certainly was not is as if it had never been.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar
from uuid import UUID

from gkafka.brokererrors import BrokerError
from gkafka.common import TopicPartition

__all__ = ["Commit", "CommitOrder", "Load", "Outcome"]

T = TypeVar("T")


class Outcome:
    """What became of a commit, also of one that failed. taken: the group has these. unsure: it may have them, the answer was lost or is none for good.
    Of the others it is sure that the commit changed nothing.
    """

    def __init__(self) -> None:
        self.taken: set[TopicPartition] = set()
        self.unsure: set[TopicPartition] = set()

    def heard(self, answers: Mapping[TopicPartition, BrokerError | None]) -> None:
        """Of a try."""
        self.taken.update(tp for tp, error in answers.items() if error is None)
        self.unsure.difference_update(tp for tp, error in answers.items() if error is None or not error.retriable)


class Commit:
    """What one call wants to be committed: offsets, 0 or more, and what goes with them."""

    def __init__(
        self,
        number: int,
        offsets: Mapping[TopicPartition, int],
        *,
        notes: Mapping[TopicPartition, str] | None = None,
        epochs: Mapping[TopicPartition, int] | None = None,
        topic_ids: Mapping[TopicPartition, UUID] | None = None,
        outcome: Outcome | None = None,
    ) -> None:
        self.number, self.offsets, self.outcome = number, offsets, outcome or Outcome()
        self.notes, self.epochs, self.topic_ids = notes or {}, epochs or {}, topic_ids or {}
        self.is_over = False


class Load:
    """What a request of a commit carries: offsets of its own, and those of later commits in place of others."""

    def __init__(self, commit: Commit, own: Mapping[TopicPartition, int], others: Mapping[TopicPartition, Commit]) -> None:
        self.commit, self.own, self.others = commit, own, others

    def __contains__(self, tp: object) -> bool:
        return tp in self.own or tp in self.others

    def __len__(self) -> int:
        return len(self.own) + len(self.others)

    @property
    def offsets(self) -> dict[TopicPartition, tuple[int, str]]:
        """Each with its note."""
        notes = self.commit.notes
        found = {tp: (offset, notes.get(tp, "")) for tp, offset in self.own.items()}
        found.update((tp, (of.offsets[tp], of.notes.get(tp, ""))) for tp, of in self.others.items())
        return found

    @property
    def epochs(self) -> Mapping[TopicPartition, int]:
        """Where they are known."""
        return _merged(self.commit.epochs, {tp: of.epochs for tp, of in self.others.items()})

    @property
    def topic_ids(self) -> Mapping[TopicPartition, UUID]:
        """Where they are known."""
        return _merged(self.commit.topic_ids, {tp: of.topic_ids for tp, of in self.others.items()})


def _merged(own: Mapping[TopicPartition, T], others: Mapping[TopicPartition, Mapping[TopicPartition, T]]) -> Mapping[TopicPartition, T]:
    if not others:
        return own
    left = {tp: value for tp, value in own.items() if tp not in others}
    return left | {tp: values[tp] for tp, values in others.items() if tp in values}


class CommitOrder:
    """Of one group. Keeps for each partition the commits that are not answered, in the order of their numbers: those under way, and at most one that is
    over and may have been committed.
    """

    def __init__(self) -> None:
        self._asked: dict[TopicPartition, tuple[Commit, ...]] = {}
        self._taken: dict[TopicPartition, int] = {}  # the number of the last commit that the group has

    def begin(self, commit: Commit) -> None:
        """It is under way from now on."""
        asked, alone = self._asked, (commit,)
        for tp in commit.offsets:
            beside = asked.setdefault(tp, alone)
            if beside is not alone:
                asked[tp] = tuple(sorted((*beside, commit), key=lambda each: each.number))

    def load(self, commit: Commit, partitions: Iterable[TopicPartition]) -> Load:
        """What a request of this commit has to carry of these partitions. It leaves out those of which the group has this commit, or a later one."""
        taken, asked, number, alone = self._taken, self._asked, commit.number, (commit,)
        own: dict[TopicPartition, int] = {}
        others: dict[TopicPartition, Commit] = {}
        for tp in partitions:
            if taken.get(tp, 0) >= number:
                continue
            last = asked.get(tp, alone)[-1]
            if last.number > number:
                others[tp] = last
            else:
                own[tp] = commit.offsets[tp]
        return Load(commit, own, others)

    def send(self, load: Load) -> None:
        """It goes out."""
        load.commit.outcome.unsure.update(load.own)
        for tp, of in load.others.items():
            of.outcome.unsure.add(tp)

    def answer(self, load: Load, answers: Mapping[TopicPartition, BrokerError | None]) -> None:
        """To what was sent. A refusal need not be meant for the commits that were carried for others."""
        load.commit.outcome.heard({tp: error for tp, error in answers.items() if tp in load.own})
        for tp in [tp for tp, error in answers.items() if error is None]:
            of = load.others.get(tp, load.commit)
            if of is not load.commit:
                of.outcome.heard({tp: None})
                load.commit.outcome.unsure.discard(tp)
            self._take(tp, of)

    def _take(self, tp: TopicPartition, commit: Commit) -> None:
        if self._taken.get(tp, 0) < commit.number:
            self._taken[tp] = commit.number
        asked = self._asked.get(tp, ())
        if asked:
            self._keep(tp, [] if asked[-1] is commit else [each for each in asked if each.number > commit.number])

    def end(self, commit: Commit) -> None:
        """The call is over, by whatever. What may have been committed is kept until a later commit is."""
        commit.is_over = True
        for tp in commit.offsets:
            asked = self._asked.get(tp, ())
            if commit in asked:
                left = [each for each in asked if each is not commit or tp in commit.outcome.unsure]
                last_over = max((each.number for each in left if each.is_over), default=0)
                self._keep(tp, [each for each in left if not each.is_over or each.number == last_over])

    def _keep(self, tp: TopicPartition, commits: Sequence[Commit]) -> None:
        if commits:
            self._asked[tp] = tuple(commits)
        else:
            self._asked.pop(tp, None)
