"""What a consumer's application has finished, and its commits: one at a time, so that an older one never comes after a newer one.

Finished is what was handed out before the application's last call: by asking for more it says that it is done with what it has. A commit of
its own says so, too, of what it commits, up or down, if the group takes it; one that is refused changes nothing. The consumer of a group
commits as its member: with a ticket of the group's machine, which tells what is still the member's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
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
from gkafka.core.groupstate import Ticket, Verdict
from gkafka.errortexts import not_in_time
from gkafka.exceptions import CommitFailedError, KafkaException, KafkaTimeoutError
from gkafka.groupoffsets import Outcome, is_final
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
LOOK_S = 1.0
GRACE_S = 1.0
"""So long after its deadline a commit is taken for one that was interrupted."""
FENCES = (FencedInstanceId, FencedMemberEpoch, GroupIdNotFound, IllegalGeneration, UnknownMemberId)
Terms = Callable[[], Mapping[TopicPartition, int]]


class Progress:
    """finished: the next offset of each partition. committed: what this consumer has committed last."""

    def __init__(self, cluster: Cluster, engine: NativeConsumer, group: str | None) -> None:
        self._cluster, self._handler, self._engine, self._group = cluster, cluster.handler, engine, group
        self._member: Member | None = None
        self._terms: Terms = dict
        self._instance_id: str | None = None
        self._line: deque[Any] = deque()  # an event for each commit: the first has its turn
        self._at = -float("inf")
        self.told: Callable[[Mapping[TopicPartition, int], KafkaException | None], object] | None = None  # of each commit in the background
        self.finished: dict[TopicPartition, int] = {}
        self.committed: dict[TopicPartition, int] = {}
        self._noted = 0  # `finished` has what was handed out up to there
        self._lost: dict[TopicPartition, int] = {}  # with something that was not committed; each with `hand_outs` at that time

    def commit_as(self, member: Member, terms: Terms, instance_id: str | None) -> None:
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
    def commit_finished(self, timeout_s: float, *, patient: bool = False) -> None:
        """Commit what is finished and was not committed yet. What fails while the group is rebalancing, or while another commit waits, is left:
        there will be another time. patient: there will be none, the end of a rebalance is waited for.
        """

        taken: dict[TopicPartition, int] = {}

        def news() -> dict[TopicPartition, int]:
            nonlocal taken
            taken = {tp: offset for tp, offset in self.finished.copy().items() if offset >= 0 and self.committed.get(tp) != offset}
            return taken

        if not news():
            return
        problem: KafkaException | None = None
        try:
            self._in_turn(news, {}, timeout_s, patient=patient)
        except KafkaException as exc:
            problem = exc
            if not isinstance(exc, UnknownTopicOrPartition) or not is_final(exc):
                raise
            log.info("group %r: %s", self._group, exc)
        finally:
            # What is left for another time nobody is told of.
            done = taken if problem is not None else {tp: offset for tp, offset in taken.items() if self.committed.get(tp) == offset}
            if self.told is not None and done:
                self.told(done, problem)

    def commit(
        self,
        offsets: Mapping[TopicPartition, int] | Callable[[], Mapping[TopicPartition, int]],
        timeout_s: float,
        *,
        epochs: Mapping[TopicPartition, int] | None = None,
        notes: Mapping[TopicPartition, str] | None = None,
        patient: bool = True,
    ) -> None:
        """Commit these: the next offsets to consume. A function is called when it is this commit's turn: one before it may have committed more
        than what stood when it was called. epochs: of the leaders that wrote what stands before them, of partitions that are not
        consumed any more. notes: texts that are kept with offsets. patient: wait for the end of a rebalance that is under way, else leave it.

        Raises CommitFailedError for partitions that are not this member's any more.
        """

        def given() -> dict[TopicPartition, int]:
            wanted = offsets() if callable(offsets) else offsets
            return {tp: offset for tp, offset in wanted.items() if offset >= 0}

        self._in_turn(given, {"epochs": epochs or {}, "notes": notes or {}}, timeout_s, patient=patient)

    def commit_all(self, where: Callable[[], Mapping[TopicPartition, int]], timeout_s: float, **beside: Any) -> None:
        """commit() of all that the application has. Raises CommitFailedError also for what the group took away since messages were handed out
        last, and whatever has ended the membership.
        """
        self.commit(where, timeout_s, **beside)
        if self._member is not None and self._member.error is not None:
            raise self._member.error
        lost, self._lost = self._lost, {}
        if lost and max(lost.values()) == self._engine.hand_outs:
            raise self._not_mine(lost)

    def _in_turn(
        self, what: Callable[[], dict[TopicPartition, int]], beside: Mapping[str, Any], timeout_s: float, *, patient: bool
    ) -> None:
        """beside: `epochs` and `notes` for engine.commit()."""
        deadline = self._handler.monotonic() + timeout_s
        mine = self._handler.Event()
        try:
            self._line.append(mine)
            self._await_turn(mine, deadline)
            offsets = what()
            finished = self.finished

            def attempt(part: Mapping[TopicPartition, int], **of_member: Any) -> None:
                self._try(part, finished, deadline, **beside, **of_member)

            if self._member is None:
                attempt(offsets)
            else:
                self._commit_as(self._member, offsets, attempt, deadline, patient)
        finally:  # whoever is interrupted anywhere in here leaves no turn taken
            if mine in self._line:
                self._line.remove(mine)
            if self._line:
                self._line[0].set()

    def _await_turn(self, mine: Any, deadline: float) -> None:
        while self._line[0] is not mine:
            left = deadline - self._handler.monotonic()
            if left <= 0:
                raise KafkaTimeoutError(
                    "the commit was not begun in time: another one of this consumer is still under way", group=self._group
                )
            mine.wait(min(left, LOOK_S))

    def _commit_as(
        self, member: Member, offsets: dict[TopicPartition, int], attempt: Callable[..., None], deadline: float, patient: bool
    ) -> None:
        failures = 0
        last: KafkaException | None = None
        before = {tp for tp, offset in offsets.items() if self.committed.get(tp) == offset}
        while offsets:
            terms = self._terms()
            mine = {tp: terms[tp] for tp in offsets if tp in terms}
            ticket = Ticket(deadline + GRACE_S)
            try:
                granted, is_moment = member.grant(ticket, mine)
                if granted:
                    part = {tp: offset for tp, offset in offsets.items() if tp in ticket.partitions}
                    last = self._send(member, ticket, part, attempt)
            finally:  # whoever is interrupted anywhere in here keeps no ticket
                ticket.is_over = True
                member.commit_is_over()
            if not granted and (is_moment or not mine or member.error is not None or member.ended):
                raise member.error or self._not_mine(offsets)
            if granted:
                if last is None:
                    # What is given back while the commit waits for a rebalance has nothing to lose if all of it was committed before.
                    rest = {tp: offset for tp, offset in offsets.items() if tp not in part and tp not in before}
                    if rest:
                        raise self._not_mine(rest)
                    return
                failures += 1
            if not patient and (not granted or isinstance(last, RebalanceInProgress) or len(self._line) > 1):
                return
            left = deadline - self._handler.monotonic()
            if left <= 0:
                text = not_in_time(f"committing offsets of group {self._group!r}", last or "the group is rebalancing")
                raise KafkaTimeoutError(text, group=self._group) from last
            if not granted:
                member.wait_for(lambda: member.takes_commits or member.error is not None or member.ended, left)
            else:
                self._cluster.pause(min(left, PAUSES.pause_s(failures, self._handler.random())))

    def _send(self, member: Member, ticket: Ticket, part: dict[TopicPartition, int], attempt: Callable[..., None]) -> KafkaException | None:
        """One try. Returns the error of one that is to be tried again."""
        error: KafkaException | None = None
        try:
            attempt(part, tries=0, generation_id=ticket.generation, member_id=ticket.member_id, instance_id=self._instance_id)
        except KafkaException as exc:
            error = exc
        verdict = member.on_commit(ticket, error)
        if error is None or (verdict is Verdict.RETRY and not is_final(error)):
            return error
        if isinstance(error, FENCES):
            raise self._not_mine(part) from error
        raise error

    def _try(self, offsets: Mapping[TopicPartition, int], finished: dict[TopicPartition, int], deadline: float, **how: Any) -> None:
        """engine.commit(), and what is learnt from it even if it fails. finished: as it was when it was this commit's turn."""
        outcome = Outcome()
        try:
            self._engine.commit(offsets, timeout_s=max(0.0, deadline - self._handler.monotonic()), outcome=outcome, **how)
        finally:
            self._learn(offsets, outcome, finished)

    def _learn(self, offsets: Mapping[TopicPartition, int], outcome: Outcome, finished: dict[TopicPartition, int]) -> None:
        """If the application has asked for more meanwhile, `finished` is another one by now: what is changed here is of no account."""
        self.committed.update((tp, offsets[tp]) for tp in outcome.taken)
        finished.update((tp, offsets[tp]) for tp in outcome.taken if tp in finished)
        here = self._engine.positions() if outcome.unsure else {}
        for tp in outcome.unsure:
            self.committed.pop(tp, None)  # the next commit makes it sure
            if tp in finished and finished[tp] < offsets[tp] <= here.get(tp, -1):
                finished[tp] = offsets[tp]  # the application has finished that; if the group has it, less would take the group back

    def _not_mine(self, offsets: Mapping[TopicPartition, object]) -> CommitFailedError:
        named = ", ".join(f"{tp.topic}-{tp.partition}" for tp in sorted(offsets)[:10]) + (", ..." if len(offsets) > 10 else "")
        tp = min(offsets)
        return CommitFailedError(
            f"group {self._group!r}: not this member's any more, or not yet: {named}. Whoever has them goes on from what was committed before; if the "
            "application was silent for max_poll_interval_ms, ask for fewer messages at a time or raise it",
            topic=tp.topic,
            partition=tp.partition,
            group=self._group,
        )
