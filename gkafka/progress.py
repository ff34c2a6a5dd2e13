"""What a consumer's application has finished, and its commits.

Finished is what was handed out before the application's last call: by asking for more it says that it is done with what it has. A commit of
its own says so, too, of what it commits, up or down, if the group takes it; one that is refused changes nothing. The consumer of a group
commits as its member: with a ticket of the group's machine, which tells what is still the member's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Set
from typing import TYPE_CHECKING, Any

from gkafka.brokererrors import (
    FencedInstanceId,
    FencedMemberEpoch,
    GroupIdNotFound,
    IllegalGeneration,
    RebalanceInProgress,
    UnknownMemberId,
    UnknownTopicOrPartition,
)
from gkafka.common import TopicPartition
from gkafka.core.backoff import Backoff
from gkafka.core.commitqueue import GRACE_S, Commit, Terms
from gkafka.core.groupstate import Ticket, Verdict
from gkafka.errortexts import not_in_time
from gkafka.exceptions import CommitFailedError, KafkaException, KafkaTimeoutError
from gkafka.groupoffsets import is_final
from gkafka.logs import get_logger

if TYPE_CHECKING:
    from gkafka.cluster import Cluster
    from gkafka.membership import Member
    from gkafka.nativeconsumer import NativeConsumer

__all__ = ["Progress"]

log = get_logger(__name__)

SNAPSHOT_S = 0.1
"""How often it is written down what is finished: not for each of a million messages."""
PAUSES = Backoff(0.05, 1.0)
FENCES = (FencedInstanceId, FencedMemberEpoch, GroupIdNotFound, IllegalGeneration, UnknownMemberId)
TermsOf = Callable[[], Mapping[TopicPartition, int]]


class Progress:
    """finished: the next offset of each partition. committed: what this consumer has committed last."""

    def __init__(self, cluster: Cluster, engine: NativeConsumer, group: str | None) -> None:
        self._cluster, self._handler, self._engine, self._group = cluster, cluster.handler, engine, group
        self._member: Member | None = None
        self._terms: TermsOf = dict
        self._instance_id: str | None = None
        self._asking: dict[Commit, Mapping[TopicPartition, int]] = {}  # the application's commits, with what `finished` was
        self._at = -float("inf")
        self.told: Callable[[Mapping[TopicPartition, int], KafkaException | None], object] | None = None  # of each commit in the background
        self.finished: dict[TopicPartition, int] = {}
        self.committed: dict[TopicPartition, int] = {}
        self._noted = 0  # `finished` has what was handed out up to there
        self._lost: dict[TopicPartition, int] = {}  # with something that was not committed; each with `hand_outs` at that time

    def commit_as(self, member: Member, terms: TermsOf, instance_id: str | None) -> None:
        """From now on commit as a member. terms: those of the partitions that are consumed."""
        self._member, self._terms, self._instance_id = member, terms, instance_id

    # -- what is finished ------------------------------------------------------------------------------------------------------
    def called(self, now: float) -> None:
        """The application asks for more."""
        if self._group is not None and now >= self._at + SNAPSHOT_S:  # without a group there is nowhere to commit it
            self._handler.check_fork()  # below are locks, which a child may find taken
            self._noted = self._engine.hand_outs
            self.finished, self._at = self._engine.stands_unless_committed(), now
        self._engine.run.seen = self._engine.hand_outs

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
            self.finished, self._at = finished, now

    def finish(self) -> None:
        """All that was handed out is finished: the application says that it needs no more."""
        self.finished = self._engine.stands()
        self._engine.run.seen = self._engine.hand_outs

    def lose(self, stood: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """The group has taken these away; each stood at this offset. A commit() that was to cover them says so."""
        gone = {tp: self._engine.hand_outs for tp, (offset, _) in stood.items() if offset >= 0 and self.committed.get(tp) != offset}
        self._lost = {**self._lost, **gone}

    def forget(self, partitions: Mapping[TopicPartition, object] | None = None) -> None:
        """These partitions, or all, are consumed no more."""
        for tp in list(self.finished) + list(self.committed) if partitions is None else partitions:
            self.finished.pop(tp, None)
            self.committed.pop(tp, None)

    # -- commits ---------------------------------------------------------------------------------------------------------------
    def commit_finished(self, timeout_s: float, *, is_last: bool = False) -> None:
        """Commit what is finished and was not committed yet, but nothing of what the application commits at this moment. What fails while the
        group is rebalancing is left: there will be another time. is_last: there will be none, the end of a rebalance is waited for.
        """

        def news() -> dict[TopicPartition, int]:
            under_way = self._asked_since if is_last else self._engine.group_offsets.asked_for()
            wanted = self.finished.copy()
            return {tp: o for tp, o in wanted.items() if o >= 0 and tp not in under_way and self.committed.get(tp) != o}

        if not news():
            return
        commit = Commit(self._handler.monotonic() + timeout_s, is_background=True)
        problem: KafkaException | None = None
        try:
            self._carry_out(commit, news, patient=is_last)
        except KafkaException as exc:
            problem = exc
            if not isinstance(exc, UnknownTopicOrPartition) or not is_final(exc):
                raise
            log.info("group %r: %s", self._group, exc)
        finally:
            # What is left for another time nobody is told of.
            done = commit.offsets if problem is not None else {tp: commit.offsets[tp] for tp in commit.taken}
            if self.told is not None and done:
                self.told(done, problem)

    def commit(
        self,
        offsets: Mapping[TopicPartition, int] | Callable[[], Mapping[TopicPartition, int]],
        timeout_s: float,
        *,
        epochs: Mapping[TopicPartition, int] | None = None,
        notes: Mapping[TopicPartition, str] | None = None,
    ) -> None:
        """Commit these: the next offsets to consume. A function is called when this commit gets its place behind the others. epochs: of the leaders
        that wrote what stands before them, of partitions that are not consumed any more. notes: texts that are kept with offsets.

        Raises CommitFailedError for partitions that are not this member's any more.
        """
        commit = Commit(self._handler.monotonic() + timeout_s)
        self._carry_out(commit, offsets if callable(offsets) else lambda: offsets, epochs=epochs, notes=notes)

    def commit_all(self, where: Callable[[], Mapping[TopicPartition, int]], timeout_s: float, **beside: Any) -> None:
        """commit() of all that the application has. Raises CommitFailedError also for what the group took away since messages were handed out
        last, and whatever has ended the membership.
        """

        def decide() -> Mapping[TopicPartition, int]:
            """Nobody else commits what is a member's: without what the group has, if that is not all. Then the request says whether this is a member."""
            stands = where()
            return (self._engine.news(stands) or stands) if self._member is not None and not beside.get("notes") else stands

        self.commit(decide, timeout_s, **beside)
        if self._member is not None and self._member.error is not None:
            raise self._member.error
        lost, self._lost = self._lost, {}
        if lost and max(lost.values()) == self._engine.hand_outs:
            raise self._not_mine(lost)

    def _carry_out(
        self, commit: Commit, decide: Callable[[], Mapping[TopicPartition, int]], *, patient: bool = True, **beside: Any
    ) -> None:
        """beside: `epochs` and `notes` for engine.join(). patient: wait for the end of a rebalance that is under way, else leave it."""
        engine, finished = self._engine, self.finished

        def first() -> Mapping[TopicPartition, int]:
            nonlocal finished
            offsets, finished = decide(), self.finished
            if not commit.is_background:
                self._asking[commit] = finished
            return offsets

        def taken(tp: TopicPartition, offset: int) -> None:
            """If the application has asked for more meanwhile, `finished` is another one by now: what is changed here is of no account."""
            self.committed[tp] = offset
            if tp in finished:
                finished[tp] = offset

        commit.listeners.append(taken)
        try:
            engine.join(commit, first, **beside)
            if self._member is None:
                engine.group_offsets.finish(commit)
            else:
                self._commit_as(self._member, commit, patient)
        finally:
            commit.is_over = True  # first: that much is done even if what follows is interrupted
            engine.group_offsets.leave(commit)
            self._asking.pop(commit, None)
            if commit.unsure:
                self._doubt(commit, finished)

    @property
    def _asked_since(self) -> set[TopicPartition]:
        """The partitions that the application has asked to commit since it said last what is finished, and that are not done."""
        return {tp for commit, finished in self._asking.copy().items() if finished is self.finished for tp in commit.left.copy()}

    def _commit_as(self, member: Member, commit: Commit, patient: bool) -> None:
        failures = 0
        before = {tp for tp in commit.left.copy() if self.committed.get(tp) == commit.offsets[tp]}
        last: KafkaException | None = None
        while left := commit.left.copy():
            terms = self._terms()
            mine = {tp: terms[tp] for tp in left if tp in terms}
            ticket = Ticket(commit.deadline + GRACE_S)
            try:
                granted, is_moment = member.grant(ticket, mine)
                if granted:
                    last = self._send(member, ticket, commit, left & ticket.partitions)
            finally:  # whoever is interrupted anywhere in here keeps no ticket
                ticket.is_over = True
                member.commit_is_over()
            if not granted and (is_moment or not mine or member.error is not None or member.ended):
                raise member.error or self._not_mine(left)
            if granted:
                if last is None:
                    # What is given back while the commit waits for a rebalance has nothing to lose if all of it was committed before.
                    rest = left - ticket.partitions - before
                    if rest:
                        raise self._not_mine(rest)
                    return
                failures += 1
            if not patient and (not granted or isinstance(last, RebalanceInProgress)):
                return
            until = commit.deadline - self._handler.monotonic()
            if until <= 0:
                text = not_in_time(f"committing offsets of group {self._group!r}", last or "the group is rebalancing")
                raise KafkaTimeoutError(text, group=self._group) from last
            if not granted:
                member.wait_for(lambda: member.takes_commits or member.error is not None or member.ended, until)
            else:
                self._cluster.pause(min(until, PAUSES.pause_s(failures, self._handler.random())))

    def _send(self, member: Member, ticket: Ticket, commit: Commit, part: Set[TopicPartition]) -> KafkaException | None:
        """One try. Returns the error of one that is to be tried again."""
        error: KafkaException | None = None
        try:
            self._engine.group_offsets.attempt(commit, Terms(ticket.generation, ticket.member_id, self._instance_id), part)
        except KafkaException as exc:
            error = exc
        verdict = member.on_commit(ticket, error)
        if error is None or (verdict is Verdict.RETRY and not is_final(error)):
            return error
        if isinstance(error, FENCES):
            raise self._not_mine(part) from error
        raise error

    def _doubt(self, commit: Commit, finished: dict[TopicPartition, int]) -> None:
        """The group may have these."""
        offsets, here = commit.offsets, self._engine.positions()
        for tp in commit.unsure:
            self.committed.pop(tp, None)  # the next commit makes it sure
            if tp in finished and finished[tp] < offsets[tp] <= here.get(tp, -1):
                finished[tp] = offsets[tp]  # the application has finished that; if the group has it, less would take the group back

    def _not_mine(self, partitions: Collection[TopicPartition]) -> CommitFailedError:
        named = ", ".join(f"{tp.topic}-{tp.partition}" for tp in sorted(partitions)[:10]) + (", ..." if len(partitions) > 10 else "")
        tp = min(partitions)
        return CommitFailedError(
            f"group {self._group!r}: not this member's any more, or not yet: {named}. Whoever has them goes on from what was committed before; if the "
            "application was silent for max_poll_interval_ms, ask for fewer messages at a time or raise it",
            topic=tp.topic,
            partition=tp.partition,
            group=self._group,
        )
