"""What a consumer's application has finished, and its commits.

Finished is what was handed out before the application's last call: by asking for more it says that it is done with what it has. A commit of
its own says so, too, of what it commits, up or down, if the group takes it; one that is refused changes nothing. The consumer of a group
commits as its member: with a ticket of the group's machine, which tells what is still the member's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gkafka.brokererrors import (
    FencedInstanceId,
    FencedMemberEpoch,
    GroupIdNotFound,
    IllegalGeneration,
    RebalanceInProgress,
    StaleMemberEpoch,
    UnknownMemberId,
    UnknownTopicOrPartition,
)
from gkafka.common import TopicPartition
from gkafka.core.commitqueue import Commit, Passing
from gkafka.core.groupstate import Ticket, Verdict
from gkafka.exceptions import KafkaException
from gkafka.groupoffsets import Identity, is_final, not_mine
from gkafka.logs import get_logger

if TYPE_CHECKING:
    from gkafka.handlers import Handler
    from gkafka.membership import Member
    from gkafka.nativeconsumer import NativeConsumer

__all__ = ["MemberIdentity", "Progress"]

log = get_logger(__name__)

SNAPSHOT_S = 0.1
"""How often it is written down what is finished: not for each of a million messages."""
SLICE_S = 0.2
OF_THE_INTERVAL = 0.66
"""So much of max_poll_interval_ms a deserializer may be at work on what is given up while other workers poll: the group waits for all of it, then goes on
without the member, which loses everything."""
FENCES = (FencedInstanceId, FencedMemberEpoch, GroupIdNotFound, IllegalGeneration, UnknownMemberId)
OF_THE_MEMBER = (*FENCES, RebalanceInProgress, StaleMemberEpoch)
"""What the coordinator tells a member, not a partition."""


class Progress:
    """told: is given the outcome of each commit in the background."""

    def __init__(self, handler: Handler, engine: NativeConsumer, group: str | None) -> None:
        self._handler, self._engine, self._group, self._offsets = handler, engine, group, engine.offsets
        self._at = -float("inf")
        self.told: Callable[[Mapping[TopicPartition, int], KafkaException | None], object] | None = None
        self._snapshot: dict[TopicPartition, int] = {}  # what was finished when it was written down last
        self._noted = 0  # `_snapshot` has what was handed out up to there
        self._lost: dict[TopicPartition, int] = {}  # with something that was not committed; each with `hand_outs` at that time
        self._ending: bool | None = None  # the application calls no more; True: it has finished what it has
        self._waiting = False
        self._back = handler.Event()

    # -- what is finished ------------------------------------------------------------------------------------------------------
    def called(self, now: float) -> None:
        """The application asks for more."""
        if self._group is not None and now >= self._at + SNAPSHOT_S:  # without a group there is nowhere to commit it
            self._handler.check_fork()  # below are locks, which a child may find taken
            self._noted = self._engine.hand_outs
            self._snapshot, self._at = self._engine.stands_unless_committed(), now
        self._engine.run.seen = self._engine.hand_outs
        if self._waiting:
            self._back.set()

    @property
    def finished(self) -> dict[TopicPartition, int]:
        """The next offset of each partition. What the application has committed since it asked for more counts. If the group may
        have that, it counts as far as it was handed out: a lower offset could take the group back.
        """
        snapshot, here = self._snapshot, self._engine.positions()
        found = snapshot.copy()
        for tp, commit in self._offsets.queue.last.copy().items():
            if commit.basis is snapshot and tp in found:
                said = commit.offsets[tp]
                if tp not in commit.unsure or found[tp] < said <= here.get(tp, -1):
                    found[tp] = said
        return found

    @property
    def seen(self) -> int:
        """`engine.hand_outs` at the application's last call: what was handed out since is not finished."""
        seen: int = self._engine.run.seen
        return seen

    def patience_ms(self, most_ms: float, now: float) -> float:
        """How long the call may wait before waited() is due."""
        if self._group is None or self._noted == self.seen:
            return most_ms
        return min(most_ms, max(0.0, (self._at + SNAPSHOT_S - now) * 1000))

    def waited(self, now: float) -> None:
        """In that time nothing came. It is written down now what was finished before the call, which may wait for long: unless another worker
        was handed something since, which is not.
        """
        if self._group is None or self._noted == self.seen:
            return
        seen = self.seen
        finished = self._engine.stands_since(seen)
        self._noted = seen
        if finished is not None:
            self._snapshot, self._at = finished, now

    def finish(self) -> None:
        """All that was handed out is finished: the application says that it needs no more."""
        self._snapshot = self._engine.stands()
        self._engine.run.seen = self._engine.hand_outs

    def end(self, *, in_order: bool) -> None:
        """The application calls no more. in_order: it has finished what it has."""
        self._ending = in_order
        self._back.set()

    def wait_until_finished(self, stood: Mapping[TopicPartition, int], silence_s: float, may_go_on: Callable[[], bool]) -> bool:
        """Wait until the application has finished what it has of these: its deserializers are done with them, and it asks for more.
        False: it has not. stood: at which offset each was taken out. may_go_on(): False ends the wait.

        A deserializer may be at it while other workers ask for more; it is waited for as long as that costs no more than its records.
        silence_s: max.poll.interval.
        """
        handed_out, finished = self._engine.hand_outs, self.finished
        is_at_work = self._engine.at_work.has(stood)
        if not is_at_work and all(finished.get(tp) == offset for tp, offset in stood.items()):
            return True
        until = self._handler.monotonic() + silence_s * OF_THE_INTERVAL
        self._waiting = True
        self._engine.run.left = 0
        try:
            while is_at_work or self.seen < handed_out:
                if self._ending is not None:
                    return self._ending
                if not may_go_on():
                    return False  # it was silent for too long, and they are lost
                if is_at_work and self._handler.monotonic() >= until:
                    return self.seen >= handed_out
                self._back.clear()
                if (is_at_work or self.seen < handed_out) and self._ending is None:
                    self._back.wait(SLICE_S)
                if is_at_work and not self._engine.at_work.has(stood):
                    is_at_work, handed_out = False, self._engine.hand_outs  # with what it was at: that was handed out now
        finally:
            self._waiting = False
        return True

    def lose(self, stood: Mapping[TopicPartition, int]) -> None:
        """The group has taken these away; each stood at this offset. A commit() that was to cover them says so."""
        self._lost = {**self._lost, **dict.fromkeys(self.news(stood), self._engine.hand_outs)}

    def forget(self, partitions: Mapping[TopicPartition, object] | None = None) -> None:
        """These partitions, or all, are consumed no more."""
        queue = self._offsets.queue
        gone = [*self._snapshot, *queue.last] if partitions is None else partitions
        queue.forget(gone)
        for tp in gone:
            self._snapshot.pop(tp, None)

    # -- commits ---------------------------------------------------------------------------------------------------------------
    def news(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Without those that this consumer has committed last."""
        return {tp: offset for tp, offset in offsets.items() if offset >= 0 and not self._offsets.queue.has(tp, offset)}

    def commit_finished(self, timeout_s: float, *, patient: bool = False) -> None:
        """Commit what is finished and not committed yet.

        Leave out the partitions that the application is committing itself since then. patient: as
        GroupOffsets.finish() takes it; False if there will be another time.
        """

        def make() -> Commit:
            asked = self._offsets.queue.asked(self._snapshot)
            news = {tp: offset for tp, offset in self.news(self.finished).items() if tp not in asked}
            return self._engine.planned(news, basis=self._snapshot, is_asked=False)

        commit = self._offsets.join(make)
        problem: KafkaException | None = None
        try:
            self._offsets.finish(commit, timeout_s=timeout_s, patient=patient)
        except KafkaException as exc:
            problem = exc
            if not isinstance(exc, UnknownTopicOrPartition) or not is_final(exc):
                raise
            log.info("group %r: %s", self._group, exc)
        finally:
            # What is left for another time nobody is told of.
            done = {tp: offset for tp, offset in commit.offsets.items() if problem is not None or tp not in commit.left}
            if self.told is not None and done:
                self.told(done, problem)

    def begin_commit(
        self,
        offsets: Mapping[TopicPartition, int] | Callable[[], Mapping[TopicPartition, int]],
        **beside: Any,
    ) -> Commit:
        """Put a commit behind all others. The caller has to call GroupOffsets.finish() with it.

        offsets: the next ones to consume, or a function that is called when the commit gets its
        place. beside: as Commit takes it.
        """

        def make() -> Commit:
            given = offsets() if callable(offsets) else offsets
            return self._engine.planned(given, basis=self._snapshot, **beside)

        return self._offsets.join(make)

    def finish_all(self, commit: Commit, *, timeout_s: float) -> None:
        """Wait for one of all that the application has. Raises CommitFailedError also for what the group took away since messages were handed
        out last, and whatever has ended the membership.
        """
        self._offsets.finish(commit, timeout_s=timeout_s)
        self._offsets.identity.check(())
        lost, self._lost = self._lost, {}
        if lost and max(lost.values()) == self._engine.hand_outs:
            raise not_mine(self._group, lost)


class MemberIdentity(Identity):
    """The member of a group commits with a ticket of the group's machine for each request: it tells what is still the member's.

    terms(): those of the partitions that are consumed.
    """

    def __init__(self, group: str, member: Member, terms: Callable[[], Mapping[TopicPartition, int]], instance_id: str | None) -> None:
        super().__init__(group, instance_id=instance_id)
        self._member, self._terms = member, terms

    def check(self, partitions: Collection[TopicPartition], patience_s: float = 0.0) -> None:
        member = self._member
        is_mine = not member.ended and not self._terms().keys().isdisjoint(partitions)
        if not (takes_commits := is_mine and member.takes_commits) and is_mine:
            member.wait_for(lambda: member.takes_commits or member.error is not None or member.ended, patience_s)
            takes_commits = member.takes_commits
        if member.error is not None:
            raise member.error
        if partitions and not is_mine:
            raise not_mine(self.group, partitions)
        if partitions and not takes_commits:
            raise self._not_now()

    def grant(self, ticket: Ticket, partitions: Sequence[TopicPartition]) -> None:
        terms = self._terms()
        granted, is_moment = self._member.grant(ticket, {tp: terms[tp] for tp in partitions if tp in terms})
        if not granted and not is_moment:
            self.check(partitions)
            raise self._not_now()

    def heard(self, ticket: Ticket, answers: dict[TopicPartition, KafkaException | None], trouble: KafkaException | None) -> None:
        errors = {tp: error for tp, error in answers.items() if isinstance(error, OF_THE_MEMBER)}
        worst = trouble or next(iter(errors.values()), None) or next((error for error in answers.values() if error is not None), None)
        may_pass = ticket.partitions and self._member.on_commit(ticket, worst) is Verdict.RETRY
        self._member.commit_is_over()
        for tp, error in errors.items():
            if may_pass:
                answers[tp] = self._not_now(str(error), error)
            elif isinstance(error, FENCES):
                answers[tp] = lost = not_mine(self.group, [tp])
                lost.__cause__ = error

    def _not_now(self, why: str = "the group is rebalancing", cause: KafkaException | None = None) -> Passing:
        passing = Passing(why, group=self.group)
        passing.__cause__ = cause
        return passing
