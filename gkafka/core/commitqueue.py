"""Queue a group's offset commits: at most one request is under way, later offsets join the next one.

    join() > ask() > [begin() > fill() > answer() or lose()] > leave()

A commit joins the queue when its offsets are determined, and leaves it when its caller returns.
Between the two it asks for each of its tries. A request carries the offsets of all commits that ask
for a try on the same terms; of a partition that several of them name it carries the last offset.
When the group takes an offset, all commits that joined before and name that partition are done with it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from gkafka.brokererrors import (
    BrokerError,
    InvalidCommitOffsetSize,
    OffsetMetadataTooLarge,
    RebalanceInProgress,
    StaleMemberEpoch,
)
from gkafka.common import TopicPartition
from gkafka.core.metadata import NO_TOPIC_ID
from gkafka.exceptions import KafkaException

__all__ = ["GRACE_S", "Commit", "CommitQueue", "Request", "Terms"]

GRACE_S = 1.0
"""How long after its deadline a commit is dropped whose caller did not leave the queue."""
OF_NOTES = (OffsetMetadataTooLarge, InvalidCommitOffsetSize)
"""Errors that are meant for the commit whose offset was sent, not for the others of its partition."""
PASSING = (RebalanceInProgress, StaleMemberEpoch)
"""Final errors of a request after which a member tries again."""
Listener = Callable[[TopicPartition, int], object]


class Terms(NamedTuple):
    """The member that commits, and its generation. Requests do not mix commits of different terms."""

    generation_id: int = -1
    member_id: str = ""
    instance_id: str | None = None


class Commit:
    """What one call wants to be committed, and what became of it.

    offsets: the next offsets to consume; notes, epochs, topic_ids: what is sent with them, where it is known.
    left: partitions of which the group does not have this offset or a later one yet.
    taken: partitions of which the group has taken this very offset. unsure: it may have, the answer is not there or was lost.
    delayed: it has not, as it was rebalancing, and the caller tries again.
    deadline: when its caller gives up (monotonic seconds). allowed(): may it be sent? Asked before each request; None: yes.
    is_trying: the commit waits for the outcome of a try. unsent: what the try still has to send.
    refused: errors of partitions in the last try; trouble: the error of that try as a whole.
    is_background: not asked for by the application. listeners: called under the queue's lock for each offset that is taken.
    """

    __slots__ = (
        *("offsets", "notes", "epochs", "topic_ids", "deadline", "allowed", "is_background", "listeners"),
        *("left", "taken", "unsure", "delayed", "terms", "is_trying", "unsent", "refused", "trouble", "is_over"),
    )

    def __init__(self, deadline: float, *, is_background: bool = False, allowed: Callable[[], bool] | None = None) -> None:
        self.deadline = deadline
        self.allowed = allowed
        self.is_background = is_background
        self.listeners: list[Listener] = []
        self.offsets: Mapping[TopicPartition, int] = {}
        self.notes: Mapping[TopicPartition, str] = {}
        self.epochs: Mapping[TopicPartition, int] = {}
        self.topic_ids: Mapping[TopicPartition, UUID] = {}
        self.left: set[TopicPartition] = set()
        self.taken: set[TopicPartition] = set()
        self.unsure: set[TopicPartition] = set()
        self.delayed: set[TopicPartition] = set()
        self.unsent: set[TopicPartition] = set()
        self.terms = Terms()
        self.refused: dict[TopicPartition, KafkaException] = {}
        self.trouble: KafkaException | None = None
        self.is_trying = self.is_over = False

    def wants(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        notes: Mapping[TopicPartition, str] | None = None,
        epochs: Mapping[TopicPartition, int] | None = None,
        topic_ids: Mapping[TopicPartition, UUID] | None = None,
    ) -> None:
        """Set what is to be committed. Offsets below 0 are left out."""
        self.offsets = {tp: offset for tp, offset in offsets.items() if offset >= 0}
        self.notes, self.epochs, self.topic_ids = notes or {}, epochs or {}, topic_ids or {}
        self.left = set(self.offsets)


class Request:
    """One OffsetCommit. commits: those that ask for a try; carried: partition -> the commit whose offset is sent.

    covered: the partitions that the request stands for, by commit. doubtful: those whose offset was sent before, without an answer.
    ids: of the topics, as they were sent. until: when its answer is given up.
    """

    __slots__ = ("carried", "commits", "covered", "doubtful", "ids", "terms", "until")

    def __init__(self) -> None:
        self.terms = Terms()
        self.commits: Collection[Commit] = ()
        self.until = 0.0
        self.carried: dict[TopicPartition, Commit] = {}
        self.covered: list[tuple[Commit, set[TopicPartition]]] = []
        self.doubtful: set[TopicPartition] = set()
        self.ids: dict[TopicPartition, UUID] = {}

    def offsets(self) -> dict[TopicPartition, tuple[int, str]]:
        """Return each offset with its note."""
        return {tp: (commit.offsets[tp], commit.notes.get(tp, "")) for tp, commit in self.carried.items()}

    def epochs(self) -> dict[TopicPartition, int]:
        """Return the leaders' epochs, -1 where they are not known."""
        return {tp: commit.epochs.get(tp, -1) for tp, commit in self.carried.items()}


class CommitQueue:
    """Of one group. commits: in the order in which they joined. under_way: the request without an answer.

    A commit whose caller has left stays as long as the group may have its offset and an earlier commit
    names the partition: that one sends the later offset in place of its own.
    """

    def __init__(self) -> None:
        self.commits: list[Commit] = []
        self.under_way: Request | None = None

    def join(self, commit: Commit) -> None:
        """Put a commit behind all that joined before."""
        self.commits.append(commit)

    def asked_for(self) -> set[TopicPartition]:
        """Return the partitions of the application's commits that are not done."""
        return {tp for commit in self.commits if not (commit.is_background or commit.is_over) for tp in commit.left}

    def ask(self, commit: Commit, terms: Terms, partitions: Iterable[TopicPartition]) -> None:
        """Begin a try of a commit: the next request on these terms carries these of its partitions."""
        commit.terms = terms
        commit.unsent = commit.left.intersection(partitions)
        commit.refused = {}
        commit.trouble = None
        commit.is_trying = bool(commit.unsent)

    # -- requests
    def is_free(self, now: float) -> bool:
        """Is no request under way? Assume that of one whose answer is overdue: whoever was to send it was interrupted."""
        request = self.under_way
        return request is None or now >= request.until + GRACE_S

    def begin(self, request: Request, now: float, patience_s: float) -> bool:
        """Let a new request be the next one, which is under way from now on. Return False if there is nothing to send yet.

        It is on the terms of the first commit that asks for a try. Its answer is waited for until
        the last deadline of these commits, and for patience_s at most.
        """
        if not self.is_free(now):
            return False
        if self.under_way is not None:
            self.put_back(self.under_way)
        self.commits = [commit for commit in self.commits if now < commit.deadline + GRACE_S]
        self._drop()
        terms = next((commit.terms for commit in self.commits if commit.unsent), None)
        if terms is None:
            return False
        request.terms = terms
        request.commits = {commit: None for commit in self.commits if commit.unsent and commit.terms == terms}
        request.until = min(now + patience_s, max(commit.deadline for commit in request.commits))
        self.under_way = request
        return True

    def fill(self, request: Request, permitted: Collection[Commit], most: int | None = None) -> None:
        """Decide what the request carries: of the commits that are permitted, up to `most` partitions.

        If that is nothing, the request is not under way any more.
        """
        carried = request.carried
        for commit in self.commits:
            if commit.unsent and commit in permitted:
                for tp in commit.unsent:
                    if most is None or tp in carried or len(carried) < most:
                        carried[tp] = commit
            for later in (commit.unsure, commit.delayed):
                for tp in later:
                    if tp in carried:
                        carried[tp] = commit
        if not carried:
            self._end()
            return
        for commit in permitted:
            covered = commit.unsent.intersection(carried)
            request.covered.append((commit, covered))
            commit.unsent -= covered
        for tp, commit in carried.items():
            request.ids[tp] = commit.topic_ids.get(tp, NO_TOPIC_ID)
            if tp in commit.unsure:
                request.doubtful.add(tp)
            commit.unsure.add(tp)

    def rest(self, commit: Commit, error: KafkaException | None = None) -> None:
        """End the try of a commit, as far as it is not under way: its caller waits no longer, or it is not permitted."""
        commit.trouble, commit.is_trying = error, False
        commit.unsent.clear()

    def put_back(self, request: Request) -> None:
        """The request may not have been sent: the next one carries its partitions again."""
        if request is self.under_way:
            for commit, covered in request.covered:
                if commit.is_trying:
                    commit.unsent |= covered & commit.left
            self._end()

    def answer(self, request: Request, answers: Mapping[TopicPartition, KafkaException | None]) -> None:
        """Take in the answer to a request. answers: the error of each partition, or None if the group has taken its offset."""
        if request is not self.under_way:
            return
        for tp, commit in request.carried.items():
            error = answers[tp]
            if error is None:
                self._take(tp, commit)
            else:
                self._refused(tp, commit, error, request)
        self._end()

    def lose(self, request: Request, error: KafkaException) -> None:
        """A request has failed: nobody knows whether the group has taken its offsets."""
        if request is not self.under_way:
            return
        for commit, _ in request.covered:
            commit.trouble = error
            commit.unsent.clear()
        self._end()

    def _take(self, tp: TopicPartition, taken: Commit) -> None:
        if taken in self.commits:
            for commit in self.commits:
                commit.left.discard(tp)
                commit.unsure.discard(tp)
                commit.unsent.discard(tp)
                commit.delayed.discard(tp)
                if commit is taken:
                    break
        taken.unsure.discard(tp)
        taken.taken.add(tp)
        for listener in taken.listeners:
            listener(tp, taken.offsets[tp])

    @staticmethod
    def _refused(tp: TopicPartition, sent: Commit, error: KafkaException, request: Request) -> None:
        """Tell it to the commits that the request stood for. If it was for the note of the one that was sent, the others send their own,
        unless the group may have taken that offset before.
        """
        is_certain = isinstance(error, BrokerError) and not error.retriable and tp not in request.doubtful
        if is_certain:
            sent.unsure.discard(tp)
        for commit, covered in request.covered:
            if commit.is_trying and tp in covered and tp in commit.left:
                if commit is sent or not (is_certain and isinstance(error, OF_NOTES)):
                    commit.refused[tp] = error
                    if isinstance(error, PASSING):
                        commit.delayed.add(tp)
                else:
                    commit.unsent.add(tp)

    def _end(self) -> None:
        """No request is under way: the tries that have nothing left to send are over."""
        self.under_way = None
        for commit in self.commits:
            if not commit.unsent:
                commit.is_trying = False
        self._drop()

    def next_to_send(self) -> Commit | None:
        """Return the first commit that waits for a request to be sent; None while one is under way."""
        return next((commit for commit in self.commits if commit.unsent), None) if self.under_way is None else None

    # -- the end
    def leave(self, commit: Commit) -> None:
        """The caller of a commit returns, whatever became of it. If it is interrupted in here, `is_over` is enough: the next step of the queue does the rest."""
        commit.is_over = True
        self._drop()

    def _drop(self) -> None:
        """Forget the commits that are over, unless an earlier one would take them back."""
        over = [commit for commit in self.commits if commit.is_over]
        if not over:
            return
        for commit in over:
            self.rest(commit)
            commit.delayed.clear()
        if self.under_way is None:  # else an answer may say that the later one was not taken
            later: set[TopicPartition] = set()
            for commit in reversed(self.commits):
                if commit.is_over:
                    commit.unsure -= later
                later |= commit.unsure
        earlier: set[TopicPartition] = set()
        kept: list[Commit] = []
        for commit in self.commits:
            if commit.is_over and earlier.isdisjoint(commit.unsure):
                continue
            kept.append(commit)
            if not commit.is_over:
                earlier |= commit.left
        self.commits = kept
