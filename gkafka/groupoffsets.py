"""Offsets that a group has committed: asking for them and committing, with retries."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from typing import TYPE_CHECKING, Any

from gkafka.broker import OFFSETS, Broker
from gkafka.brokererrors import UnknownTopicId, UnknownTopicOrPartition
from gkafka.common import TopicPartition
from gkafka.core.commitqueue import Commit, CommitQueue, Passing
from gkafka.core.groupstate import Ticket
from gkafka.core.metadata import NO_TOPIC_ID
from gkafka.core.offsets import Committed, commit_request, fetch_request, read_commit, read_fetch
from gkafka.exceptions import (
    CommitFailedError,
    ConfigurationError,
    KafkaException,
    KafkaTimeoutError,
    NoOffsetForPartitionError,
    NoPartitionsForConsumerException,
    ProtocolError,
    Stale,
)
from gkafka.logs import get_logger
from gkafka.marks import Turn

if TYPE_CHECKING:
    from gkafka.cluster import Cluster
    from gkafka.handlers import Event

__all__ = ["GroupOffsets", "Identity", "absent", "is_final", "no_place", "not_mine", "starts_of"]

log = get_logger(__name__)

DELETED = "its topic was deleted"
LOOK_S = 0.1
"""How often a waiting caller looks by itself, as the sender may have been interrupted."""
GRACE_S = 1.0
"""How long after its deadline a request is taken for one whose sender was interrupted."""
MOST_AT_ONCE = 500
"""Partitions in one request with greenlets, which have the hub between an answer and the next."""
ALL_AT_ONCE = 1 << 31


class Identity:
    """The member that commits: none, or one whose membership is managed elsewhere.

    allowed(): may anything be committed now?
    """

    instance_id: str | None = None

    def __init__(
        self,
        group: str | None,
        generation_id: int = -1,
        member_id: str = "",
        *,
        instance_id: str | None = None,
        allowed: Callable[[], bool] = lambda: True,
    ) -> None:
        self.group, self.instance_id = group, instance_id
        self._generation_id, self._member_id, self._allowed = generation_id, member_id, allowed

    def check(self, partitions: Collection[TopicPartition], patience_s: float = 0.0) -> None:
        """Raise the error if none of these can be committed now.

        This is called before the coordinator is looked up. patience_s: how long to wait until the
        group takes commits.
        """

    def grant(self, ticket: Ticket, partitions: Sequence[TopicPartition]) -> None:
        """Fill in the ticket for those partitions that may be committed. Raise if none may.

        This is called just before each request is sent.
        """
        if not self._allowed():
            text = f"nothing more is committed for group {self.group!r}: the partitions may be another member's by now"
            raise NoPartitionsForConsumerException(text, group=self.group)
        ticket.generation, ticket.member_id, ticket.partitions = self._generation_id, self._member_id, frozenset(partitions)

    def heard(self, ticket: Ticket, answers: dict[TopicPartition, KafkaException | None], trouble: KafkaException | None) -> None:
        """Take in the outcome of a request. Replace errors by what they mean for the member."""


class GroupOffsets:
    """The committed offsets of one group, for one member or one consumer without membership.

    group: if it is "" or None, every call raises ConfigurationError.

    At most one OffsetCommit is under way (`core/commitqueue.py`). A caller that finds none sends the
    next one, with the offsets of all callers that wait, and reads the answer. The others wait for
    that. A caller that pauses between two tries holds up nobody. If a request fails, only its
    sender gets the error; the others send again.
    """

    def __init__(self, cluster: Cluster, group: str | None) -> None:
        self._cluster, self._handler, self.group = cluster, cluster.handler, group
        self.identity = Identity(group)
        self.queue = CommitQueue()
        self._lock = self._handler.Mutex()  # of the queue
        self._sender = Turn(is_over=True)
        self._waiting: list[Event] = []
        self._most = MOST_AT_ONCE if self._handler.cooperative else ALL_AT_ONCE

    def _group_name(self) -> str:
        if not self.group:
            raise ConfigurationError("this needs a consumer group: give group= (consumer_group= to pykafka's)")
        return self.group

    def commit(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        timeout_s: float,
        tries: int | None = None,
        backoff_s: float = 0.1,
        **beside: Any,
    ) -> None:
        """Commit offsets: the next ones to consume. beside: as Commit takes it."""
        self.finish(self.begin(offsets, **beside), timeout_s=timeout_s, tries=tries, backoff_s=backoff_s)

    def begin(self, offsets: Mapping[TopicPartition, int], **beside: Any) -> Commit:
        """join() with these. beside: what Commit takes."""
        return self.join(lambda: Commit(offsets, **beside))

    def join(self, make: Callable[[], Commit], under: AbstractContextManager[object] | None = None) -> Commit:
        """Put a commit behind all others. The caller has to call finish() with it.

        make(): makes the commit; meanwhile no other one joins. under: a lock to hold meanwhile.
        """
        self._group_name()
        with under or nullcontext(), self._lock:
            commit = make()
            self.queue.join(commit)
        return commit

    def finish(self, commit: Commit, *, timeout_s: float, tries: int | None = None, backoff_s: float = 0.1, patient: bool = True) -> None:
        """Wait until the group has each offset of a commit that has joined, or a later one of the partition.

        tries: how often to try again; None: until timeout_s. patient: False gives the commit up
        without an error if the group takes no commits now, or if it fails while another one waits.

        A later commit's offset of a partition is never taken back. If the group has that offset,
        this commit's is not sent any more. If the group may have it, because its answer was lost,
        requests carry it in place of this commit's offset.

        Raise NoPartitionsForConsumerException if the commit is not allowed. When all else is
        committed, raise UnknownTopicOrPartition for topics and partitions that do not exist, and
        for a topic that was deleted and made again.
        """
        deadline = self._handler.monotonic() + timeout_s

        def attempt() -> None:
            try:
                self._attempt(commit, deadline, patient)
            except KafkaException as exc:
                if not patient and (isinstance(exc, Passing) or self.queue.commits[-1] is not commit):
                    return
                raise

        stays = commit.stays
        try:
            commit.is_begun = True
            if commit.left:
                self._with_tries(f"committing offsets of group {self.group!r}", attempt, deadline, tries, backoff_s)
            stays = False
        except KafkaException:
            stays = False
            raise
        finally:
            commit.is_over = not stays  # first: that much is done even if what follows is interrupted
            with self._lock:
                self.queue.drop()

    def _attempt(self, commit: Commit, deadline: float, patient: bool) -> None:
        """Try once: until requests have carried all that is left."""
        ids, id_of = commit.topic_ids, self._cluster.metadata.topic_id
        with self._lock:
            self.queue.ask(commit)
            # Brokers before 4.1 would take the offsets of a topic for those of another one of the name.
            made_again = [tp for tp in commit.left if NO_TOPIC_ID != ids.get(tp, NO_TOPIC_ID) != id_of(tp.topic) != NO_TOPIC_ID]
            commit.errors.update((tp, self._never(tp, commit, DELETED)) for tp in made_again)
        while unsent := commit.unsent:
            self.identity.check(unsent, deadline - self._handler.monotonic() if patient else 0.0)
            broker, until = self._cluster.reach_coordinator(self._group_name(), deadline)
            mine = Turn()
            try:
                with self._lock:
                    if self._sender.is_over:
                        self._sender = mine
                if self._sender is mine:
                    self._send(broker, until)
                elif (left := deadline - self._handler.monotonic()) > 0:
                    self.await_answers(left)
                else:
                    raise KafkaTimeoutError(
                        "the commit was not begun in time: another one of this consumer is still under way", group=self.group
                    )
            finally:
                mine.is_over = True
                if self._sender is mine:
                    for event in self._waiting.copy():
                        event.set()
        if commit.errors:
            self._judge(commit, deadline)

    def await_answers(self, timeout_s: float) -> None:
        """Wait until the request that is under way is answered."""
        sender, deadline = self._sender, self._handler.monotonic() + timeout_s
        answered = self._handler.Event()
        self._waiting.append(answered)
        try:
            while sender is self._sender and not sender.is_over and (left := deadline - self._handler.monotonic()) > 0:
                answered.wait(min(left, LOOK_S))
        finally:
            self._waiting.remove(answered)

    def _send(self, broker: Broker, until: float) -> None:
        """Send the next request and take in its answer. Raise if it cannot be sent or answered."""
        queue, identity, group = self.queue, self.identity, self._group_name()
        answers: dict[TopicPartition, KafkaException | None] = {}
        trouble: KafkaException | None = None
        ticket = Ticket(until + GRACE_S)
        try:
            wanted = queue.to_send(self._most)
            identity.grant(ticket, wanted)
            with self._lock:
                queue.refuse({tp: not_mine(group, [tp]) for tp in wanted if tp not in ticket.partitions})
                carried = queue.fill(ticket.partitions)
            if not carried:
                return
            ids = {tp: commit.topic_ids.get(tp, NO_TOPIC_ID) for tp, commit in carried.items()}
            request = commit_request(
                group,
                {tp: (commit.offsets[tp], commit.notes.get(tp, "")) for tp, commit in carried.items()},
                generation_id=ticket.generation,
                member_id=ticket.member_id,
                epochs={tp: commit.epochs.get(tp, -1) for tp, commit in carried.items()},
                topic_ids=ids,
            )
            request.group_instance_id = identity.instance_id
            response = broker.call(OFFSETS, request, timeout_s=max(0.001, until - self._handler.monotonic()))
            about: dict[str, Any] = {"group": group, "broker": f"{broker.host}:{broker.port}"}
            answers.update(read_commit(response, ids, **about))
            for tp in carried.keys() - answers.keys():
                text = f"the answer to an offset commit leaves {tp.topic}-{tp.partition} out"
                answers[tp] = ProtocolError(text, topic=tp.topic, partition=tp.partition, api="OffsetCommit", **about)
        except KafkaException as exc:
            trouble = exc
            if ticket.partitions:
                self._cluster.forget_coordinator(group)
            raise
        finally:
            ticket.is_over = True  # first: nothing waits for a ticket that is over
            identity.heard(ticket, answers, trouble)
            with self._lock:
                queue.end(answers)

    def _judge(self, commit: Commit, deadline: float) -> None:
        """Raise what keeps the rest of a commit from being committed."""
        errors = commit.errors
        unknown = [
            tp for tp, error in errors.items() if isinstance(error, (UnknownTopicOrPartition, UnknownTopicId)) and not is_final(error)
        ]
        told = self._cluster.metadata.topic_error
        gone = dict.fromkeys((tp for tp in unknown if isinstance(told(tp.topic), UnknownTopicOrPartition)), DELETED)
        gone |= absent(self._cluster, (tp for tp in unknown if tp not in gone), deadline)
        with self._lock:
            self.queue.forget(gone)
            errors.update((tp, self._never(tp, commit, why)) for tp, why in gone.items())
        worst = min(errors.values(), key=_rank)
        if type(worst) is CommitFailedError:
            raise not_mine(self.group, [tp for tp, error in errors.items() if type(error) is CommitFailedError]) from worst.__cause__
        raise copy(worst) from worst.__cause__

    def _never(self, tp: TopicPartition, commit: Commit, why: str) -> UnknownTopicOrPartition:
        text = f"{tp.topic}-{tp.partition}: offset {commit.offsets[tp]} is not committed: {why}"
        return UnknownTopicOrPartition(text, topic=tp.topic, partition=tp.partition, group=self.group, api="Metadata")

    def committed(
        self, partitions: Iterable[TopicPartition], *, timeout_s: float, tries: int | None = None, backoff_s: float = 0.1
    ) -> dict[TopicPartition, Committed]:
        """What is committed for each partition; offset -1 where there is nothing."""
        group = self._group_name()
        wanted = list(partitions)

        def attempt() -> dict[TopicPartition, Committed]:
            known: dict[TopicPartition, Committed] = {}
            for at in range(0, len(wanted), self._most):
                self._handler.checkpoint()
                part = wanted[at : at + self._most]
                response, coordinator = self._cluster.call_coordinator(group, fetch_request(group, part, stable=True), deadline)
                found = read_fetch(response, part, group=group, broker=coordinator)
                for entry in found.values():
                    if entry.error is not None and not _means_none(entry.error):
                        raise entry.error
                known.update((tp, found[tp] if found[tp].error is None else Committed(-1, "", None)) for tp in part)
            return known

        deadline = self._handler.monotonic() + timeout_s
        result: dict[TopicPartition, Committed] = self._with_tries(f"offsets of group {group!r}", attempt, deadline, tries, backoff_s)
        return result

    def _with_tries(self, what: str, attempt: Any, deadline: float, tries: int | None, backoff_s: float) -> Any:
        def noted() -> Any:
            try:
                return attempt()
            except KafkaException as exc:
                if exc.stale is Stale.COORDINATOR:
                    self._cluster.forget_coordinator(self._group_name())
                elif exc.stale is Stale.METADATA:
                    self._cluster.metadata.invalidate()
                raise

        if tries is None:
            return self._cluster.retrying(what, noted, deadline)
        for n in range(tries + 1):
            try:
                return noted()
            except KafkaException as exc:
                if not exc.retriable or is_final(exc) or n == tries or self._handler.monotonic() >= deadline:
                    raise
                log.info("%s: try %d of %d failed: %s", what, n + 1, tries + 1, exc)
                self._cluster.pause(backoff_s)
        return None


def absent(cluster: Cluster, partitions: Iterable[TopicPartition], deadline: float) -> dict[TopicPartition, str]:
    """Those that do not exist, and what there is instead.

    What nobody has told of yet nobody will ask for again: it is settled by one fresh list of all topics, which creates nothing.
    """
    unknown = [tp for tp in partitions if _is_absent(cluster, tp)]
    if unknown:
        cluster.list_topics(deadline)
    return {tp: _what_there_is(cluster, tp.topic) for tp in unknown if _is_absent(cluster, tp)}


def _is_absent(cluster: Cluster, tp: TopicPartition) -> bool:
    info = cluster.metadata.topics.get(tp.topic)
    if info is None or isinstance(info.error, UnknownTopicOrPartition):
        return True
    return info.error is None and tp.partition not in info.partitions


def _what_there_is(cluster: Cluster, topic: str) -> str:
    info = cluster.metadata.topic(topic)
    if info is None:
        return "there is no such topic; create it, or check the name"
    return f"the topic has no such partition, only {min(info.partitions)} to {max(info.partitions)}"


def not_mine(group: str | None, partitions: Collection[TopicPartition]) -> CommitFailedError:
    """What to tell of partitions that are not the member's."""
    named = ", ".join(f"{tp.topic}-{tp.partition}" for tp in sorted(partitions)[:10]) + (", ..." if len(partitions) > 10 else "")
    tp = min(partitions)
    return CommitFailedError(
        f"group {group!r}: not this member's any more, or not yet: {named}. Whoever has them goes on from what was committed before; if the "
        "application was silent for max_poll_interval_ms, ask for fewer messages at a time or raise it",
        topic=tp.topic,
        partition=tp.partition,
        group=group,
    )


def _rank(error: KafkaException) -> int:
    """Return the rank of an error. Of several errors of a commit the lowest is raised."""
    return 3 if is_final(error) else 2 if type(error) is CommitFailedError else 1 if error.retriable else 0


def is_final(error: KafkaException) -> bool:
    """Does no retry bring back what the metadata do not have?"""
    return isinstance(error, UnknownTopicOrPartition) and error.api == "Metadata"


def starts_of(
    offsets: GroupOffsets, given: Mapping[TopicPartition, int | None], policy: int | None, timeout_s: float
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int], list[KafkaException]]:
    """Where partitions start: at the offset given, else where the group has committed, else by the policy (-2 earliest, -1 latest).

    Returns the offsets, the epochs of the leaders that wrote what stands before committed ones, and for each partition of which nothing is
    committed, where there is no policy, what to tell the user. Raises what keeps the committed offsets from being known.
    """
    open_ends = [tp for tp, offset in given.items() if offset is None]
    found = offsets.committed(open_ends, timeout_s=timeout_s) if open_ends and offsets.group else {}
    starts: dict[TopicPartition, int] = {}
    problems: list[KafkaException] = []
    for tp, offset in given.items():
        committed = found[tp].offset if tp in found else -1
        start = offset if offset is not None else committed if committed >= 0 else policy
        if start is None:
            problems.append(no_place(tp))
        else:
            starts[tp] = start
    return starts, {tp: found[tp].leader_epoch for tp in found if starts.get(tp) == found[tp].offset}, problems


def no_place(tp: TopicPartition) -> NoOffsetForPartitionError:
    """What to tell of a partition without a start."""
    text = f"{tp.topic}-{tp.partition}: nothing is committed and auto_offset_reset='none': say where to start, by assign() or seek()"
    return NoOffsetForPartitionError(text, topic=tp.topic, partition=tp.partition)


def _means_none(error: KafkaException) -> bool:
    """Brokers before 0.9 answer "unknown topic or partition" where nothing is committed."""
    return getattr(error, "code", None) == 3
