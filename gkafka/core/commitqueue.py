"""Queue the offset commits of one group member, so that at most one request is under way.

    join() > ask() > [to_send() > fill() > end()] > drop()

A commit joins when its offsets are determined, and is over when its caller returns. A request
carries the offsets of all commits that wait for a try. If several commits name a partition, it
carries the offset of the last one. If the group takes that offset, all commits that joined before
it are done with the partition.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any
from uuid import UUID

from gkafka.brokererrors import InvalidCommitOffsetSize, OffsetMetadataTooLarge
from gkafka.common import TopicPartition
from gkafka.exceptions import KafkaException, ProtocolError, RetriableError

__all__ = ["Commit", "CommitQueue", "Passing"]

OF_NOTES = (OffsetMetadataTooLarge, InvalidCommitOffsetSize)
"""Errors that are meant for the commit whose offset was sent, not for the others of its partition."""


class Passing(RetriableError):
    """The group takes no commits at this moment, and has not taken this one. Try again."""


class Commit:
    """What one call wants to be committed, and what became of it.

    offsets: the next offsets to consume; those below 0 are left out.
    notes: texts that the group keeps with offsets.
    epochs: leader epochs of the last consumed records; they reveal a truncated log (KIP-320).
    topic_ids: of the topics that the offsets belong to.
    known: partitions of which the group had this very offset when the commit joined.
    places: what the caller wants to find again in `CommitQueue.last`.
    is_asked: the application has asked for it; else it is one in the background.
    basis: what the application had finished when the commit was made.
    stays: if its caller is interrupted, it is called again and the commit keeps its place.
    left: partitions of which the group has neither this offset nor a later one.
    unsure: partitions of which the group may have this offset, as the answer was lost.
    errors: those of the last try, and final ones of the tries before.
    is_begun: its caller waits for it, or will certainly. If he was interrupted before that, no
        request carries it.
    is_over: its caller has returned, or is about to.
    """

    __slots__ = (
        "basis",
        "epochs",
        "errors",
        "is_asked",
        "is_begun",
        "is_over",
        "known",
        "left",
        "notes",
        "offsets",
        "places",
        "stays",
        "topic_ids",
        "unsure",
    )

    def __init__(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        notes: Mapping[TopicPartition, str] | None = None,
        epochs: Mapping[TopicPartition, int] | None = None,
        topic_ids: Mapping[TopicPartition, UUID] | None = None,
        places: Mapping[TopicPartition, Any] | None = None,
        basis: object = None,
        is_asked: bool = True,
        stays: bool = False,
    ) -> None:
        self.offsets = {tp: offset for tp, offset in offsets.items() if offset >= 0}
        self.notes, self.epochs, self.topic_ids, self.places = notes or {}, epochs or {}, topic_ids or {}, places or {}
        self.basis, self.is_asked, self.stays = basis, is_asked, stays
        self.known: Collection[TopicPartition] = ()
        self.left = set(self.offsets)
        self.unsure: set[TopicPartition] = set()
        self.errors: dict[TopicPartition, KafkaException] = {}
        self.is_begun, self.is_over = stays, False

    @property
    def unsent(self) -> list[TopicPartition]:
        """Partitions that the current try still has to send. The try ends when there are none."""
        return [] if self.is_over or not self.is_begun else [tp for tp in self.offsets if tp in self.left and tp not in self.errors]


class CommitQueue:
    """commits: in the order in which they joined. last: for each partition the commit whose offset
    the group has taken last, or may have taken since.

    A commit whose caller has left stays as long as the group may have its offset and an earlier
    commit names the partition: that one sends the later offset in place of its own.
    """

    def __init__(self) -> None:
        self.commits: list[Commit] = []
        self.last: dict[TopicPartition, Commit] = {}
        self._under_way: dict[TopicPartition, Commit] = {}

    def join(self, commit: Commit) -> None:
        """Put a commit behind all that joined before."""
        commit.known = {tp for tp, offset in commit.offsets.items() if self.has(tp, offset)}
        self.commits.append(commit)

    def asked(self, basis: object = None) -> set[TopicPartition]:
        """Return the partitions of the application's unfinished commits, or of those on one basis."""
        asked = [commit for commit in self.commits if commit.is_asked and commit.is_begun and not commit.is_over]
        return {tp for commit in asked if basis is None or commit.basis is basis for tp in commit.left.copy()}

    def has(self, tp: TopicPartition, offset: int) -> bool:
        """Is this, for sure, the offset that the group was given last?"""
        commit = self.last.get(tp)
        return commit is not None and commit.offsets[tp] == offset and tp not in commit.unsure

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget what was committed of these."""
        for tp in partitions:
            self.last.pop(tp, None)

    # -- requests
    def ask(self, commit: Commit) -> None:
        """Begin a try: requests carry all that the group may still take of the commit."""
        commit.errors = {tp: error for tp, error in commit.errors.items() if tp not in commit.left}

    def to_send(self, most: int) -> list[TopicPartition]:
        """Return what the next request is to carry, in the order of the commits."""
        return list(dict.fromkeys(tp for commit in self.commits for tp in commit.unsent))[:most]

    def fill(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Commit]:
        """Begin a request. Return the commit whose offset it carries, for each partition.

        partitions: those that may be sent now.
        """
        self.end({})  # whoever sent one before was interrupted
        carried = {tp: commit for commit in self.commits for tp in commit.unsent if tp in partitions}
        for commit in self.commits:
            named = commit.left if commit.is_begun and not commit.is_over else commit.unsure
            carried.update(dict.fromkeys(named & carried.keys(), commit))
        self._under_way = carried
        return carried

    def end(self, answers: Mapping[TopicPartition, KafkaException | None]) -> None:
        """Take in the answer: the error of each partition, or None for an offset that the group has taken.

        The answer was lost to a partition that is not there: the next request sends it again.
        """
        carried, self._under_way = self._under_way, {}
        for tp, commit in carried.items():
            error = answers.get(tp)
            if tp not in answers or (error is not None and not _is_certain(error)):
                commit.unsure.add(tp)
                self.last[tp] = commit
            elif error is None:
                self.last[tp] = commit
                for each in self._with_those_before(commit):
                    each.left.discard(tp)
                    each.unsure.discard(tp)
                    each.errors.pop(tp, None)
            if error is not None:
                self._refuse(tp, commit, error)
        self.drop()

    def refuse(self, answers: Mapping[TopicPartition, KafkaException]) -> None:
        """Tell commits why partitions are not sent.

        If the group had the same offset already when the commit joined, that is no error.
        """
        for tp, error in answers.items():
            for commit in self.commits:
                if tp in commit.known:
                    commit.left.discard(tp)
                elif tp in commit.unsent:
                    self._refuse(tp, commit, error)

    def _refuse(self, tp: TopicPartition, sent: Commit, error: KafkaException) -> None:
        for commit in self._with_those_before(sent):
            if tp in commit.left and (commit is sent or not isinstance(error, OF_NOTES)):
                commit.errors[tp] = error
                if _is_certain(error) and not isinstance(error, Passing) and tp not in commit.unsure:
                    commit.left.discard(tp)

    def _with_those_before(self, commit: Commit) -> list[Commit]:
        return self.commits[: self.commits.index(commit) + 1] if commit in self.commits else [commit]

    # -- the end
    def drop(self) -> None:
        """Forget the commits that are over, unless an earlier one would take them back."""
        earlier: set[TopicPartition] = set()
        kept: list[Commit] = []
        for commit in self.commits:
            if not (commit.left or commit.is_begun):
                continue
            if not commit.is_over:
                earlier |= commit.left
            else:
                may_be_taken = commit.unsure.union(tp for tp, sent in self._under_way.items() if sent is commit)
                if earlier.isdisjoint(may_be_taken):
                    continue
            kept.append(commit)
        self.commits = kept


def _is_certain(error: KafkaException) -> bool:
    """Does the error say that the group has not taken the offset?"""
    return isinstance(error, Passing) or not (error.retriable or isinstance(error, ProtocolError))
