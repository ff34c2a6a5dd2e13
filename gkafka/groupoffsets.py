"""Offsets that a group has committed: asking for them and committing, with retries."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from gkafka.broker import OFFSETS
from gkafka.brokererrors import UnknownTopicId, UnknownTopicOrPartition
from gkafka.common import TopicPartition
from gkafka.core.commitqueue import GRACE_S, Commit, CommitQueue, Request, Terms
from gkafka.core.metadata import NO_TOPIC_ID
from gkafka.core.offsets import Committed, commit_request, fetch_request, read_commit, read_fetch
from gkafka.exceptions import (
    ConfigurationError,
    KafkaException,
    KafkaTimeoutError,
    NoOffsetForPartitionError,
    NoPartitionsForConsumerException,
    ProtocolError,
    Stale,
)
from gkafka.logs import get_logger

if TYPE_CHECKING:
    from gkafka.cluster import Cluster
    from gkafka.handlers import Event, Handler
    from gkafka.nativeconsumer import NativeConsumer

__all__ = ["GroupOffsets", "absent", "is_final", "no_place", "starts_of"]

log = get_logger(__name__)

DELETED = "its topic was deleted"
LOOK_S = 0.1
"""How often a caller that waits looks by itself: whoever was to wake it may have been interrupted."""
MOST_AT_ONCE = 500
"""Partitions in one request with greenlets, which have the hub between an answer and the next."""


class _Line:
    """The commits of one group in one client. lock: held while the queue is read or changed.

    order: held while a commit decides what its offsets are, and joins: of two commits the one that decides later is the later one.
    wakes: an event for each caller that waits for a try; listening: for those who wait for the answer that is under way.
    """

    def __init__(self, handler: Handler) -> None:
        self.queue = CommitQueue()
        self.lock, self.order = handler.Mutex(), handler.Mutex()
        self.wakes: dict[Commit, Event] = {}
        self.listening: list[Event] = []

    def tell(self) -> None:
        """Wake the callers whose try is over, and the one that is to send next."""
        following = self.queue.next_to_send()
        for commit, wake in list(self.wakes.items()):
            if commit is following or not commit.is_trying:
                wake.set()
        for event in list(self.listening):
            event.set()


class GroupOffsets:
    """Of one group, "" or None for none: then every call raises ConfigurationError.

    At most one OffsetCommit of a group is under way (`core/commitqueue.py`). A caller that finds none
    sends the next, with the offsets of all that wait on the same terms, and reads the answer if it
    can; the others wait for it. The answer is taken in by whoever reads it. Between two tries a
    caller holds up nobody: who joins meanwhile sends.
    """

    def __init__(self, cluster: Cluster, group: str | None) -> None:
        self._cluster, self._handler, self._group = cluster, cluster.handler, group
        handler = self._handler
        self._line: _Line = cluster.commit_line(group, lambda: _Line(handler)) if group else _Line(handler)

    def _group_name(self) -> str:
        if not self._group:
            raise ConfigurationError("this needs a consumer group: give group= (consumer_group= to pykafka's)")
        return self._group

    def commit(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        timeout_s: float,
        epochs: Mapping[TopicPartition, int] | None = None,
        topic_ids: Mapping[TopicPartition, UUID] | None = None,
        notes: Mapping[TopicPartition, str] | None = None,
        allowed: Callable[[], bool] | None = None,
        **how: Any,
    ) -> None:
        """Commit offsets: the next ones to consume. epochs: of the leaders that wrote what stands before them, by which whoever goes on there
        learns of a log that was cut (KIP-320). topic_ids: of the topics that the offsets belong to, where they are known. notes: texts that the
        group keeps with offsets. allowed(): may they still be committed? Asked before each request. how: as of finish(), which tells what it raises.
        """
        commit = Commit(self._handler.monotonic() + timeout_s, allowed=allowed)
        try:
            self.join(commit, lambda: commit.wants(offsets, epochs=epochs, topic_ids=topic_ids, notes=notes))
            self.finish(commit, **how)
        finally:
            commit.is_over = True  # first: that much is done even if what follows is interrupted
            self.leave(commit)

    def join(self, commit: Commit, decide: Callable[[], object]) -> None:
        """Put a commit behind all others of the group. decide(): calls commit.wants(); meanwhile no other commit joins.

        The caller calls leave() at the end, whatever comes of it.
        """
        self._group_name()
        with self._line.order:
            decide()
            with self._line.lock:
                self._line.queue.join(commit)

    def leave(self, commit: Commit) -> None:
        """The caller of a commit returns."""
        with self._line.lock:
            self._line.queue.leave(commit)
        if self._line.wakes:
            self._line.tell()  # it may have been the one to send next

    def asked_for(self) -> set[TopicPartition]:
        """Return the partitions for which commits of the application are under way."""
        with self._line.lock:
            return self._line.queue.asked_for()

    def finish(self, commit: Commit, *, terms: Terms | None = None, tries: int | None = None, backoff_s: float = 0.1) -> None:
        """Wait until the group has each offset of a commit that has joined, or a later one of the partition.

        tries: how often to try again, None until the commit's deadline. terms: as whom it is committed, None: as nobody's member.

        A later commit's offset of a partition is never taken back. If the group has it, this commit's is not sent any more. If the group may have
        it, as its answer was lost, requests carry that offset in place of this commit's.

        Raises NoPartitionsForConsumerException where it is not allowed; when all else is committed, UnknownTopicOrPartition for a topic that is not
        there, or not any more, or is another one of the name, and for a partition that the topic does not have.
        """
        if not commit.left:
            return
        who = terms or Terms()
        what = f"committing offsets of group {self._group!r}"
        self._with_tries(what, lambda: self._attempt(commit, who, commit.left.copy()), commit.deadline, tries, backoff_s)

    def attempt(self, commit: Commit, terms: Terms, partitions: Iterable[TopicPartition]) -> None:
        """Try once to commit these partitions of a commit that has joined. Raises what finish() does, and errors that may pass."""
        try:
            self._attempt(commit, terms, partitions)
        except KafkaException as exc:
            self._note(exc)
            raise

    def _attempt(self, commit: Commit, terms: Terms, partitions: Iterable[TopicPartition]) -> None:
        ids = commit.topic_ids
        gone = {tp: DELETED for tp in partitions if self._is_another(tp.topic, ids.get(tp, NO_TOPIC_ID))} if ids else {}
        with self._line.lock:
            self._line.queue.ask(commit, terms, [tp for tp in partitions if tp not in gone] if gone else partitions)
        try:
            self._await_try(commit)
        finally:
            if commit.is_trying:
                with self._line.lock:
                    self._line.queue.rest(commit)
        if commit.left:
            self._judge(commit, gone)

    def _await_try(self, commit: Commit) -> None:
        """Wait until a try is over. Send the next request whenever none is under way."""
        line, handler = self._line, self._handler
        try:
            while commit.is_trying:
                wake = line.wakes.get(commit)
                if wake is not None:
                    wake.clear()
                now = handler.monotonic()
                limit = commit.deadline if commit.unsent else commit.deadline + GRACE_S
                if now >= limit:
                    raise self._too_late(commit)
                if line.queue.is_free(now):
                    self._send_next(commit, limit)
                elif wake is None:
                    line.wakes[commit] = handler.Event()
                elif commit.is_trying:
                    self._cluster.check_open()
                    wake.wait(min(limit - now, LOOK_S))
        finally:
            line.wakes.pop(commit, None)

    def _too_late(self, commit: Commit) -> KafkaTimeoutError:
        what = "another commit of the group is under way" if commit.unsent else "the coordinator has not answered"
        return KafkaTimeoutError(f"{what}, and the time of this one is over", group=self._group, api="OffsetCommit")

    def _send_next(self, commit: Commit, limit: float) -> None:
        """Send the next request, if there is one, and with OS threads read answers until the try of the commit is over."""
        line, queue, group = self._line, self._line.queue, self._group_name()
        broker, _ = self._cluster.reach_coordinator(group, commit.deadline)
        self._handler.checkpoint()  # of many partitions a part after the other: the hub turns between two requests
        request = Request()
        try:
            now = self._handler.monotonic()
            with line.lock:
                begun = queue.begin(request, now, self._cluster.config.offsets_channel_socket_timeout_ms / 1000)
            if not begun:
                return
            # Whoever ends what may be committed waits for the request that is under way, see await_answers().
            permitted = [each for each in request.commits if each.allowed is None or each.allowed()]
            with line.lock:
                if len(permitted) < len(request.commits):
                    self._refuse_others(request, permitted)
                queue.fill(request, dict.fromkeys(permitted), MOST_AT_ONCE if self._handler.cooperative else None)
            if not request.carried:
                line.tell()
                return
            terms = request.terms
            message = commit_request(
                group,
                request.offsets(),
                generation_id=terms.generation_id,
                member_id=terms.member_id,
                epochs=request.epochs(),
                topic_ids=request.ids,
            )
            message.group_instance_id = terms.instance_id
            answered = partial(self._answered, request, f"{broker.host}:{broker.port}")
            channel = broker.send(OFFSETS, message, answered, timeout_s=max(0.001, request.until - now))
        except BaseException as exc:
            with line.lock:
                queue.put_back(request)
            if isinstance(exc, KafkaException):
                self._cluster.forget_coordinator(group)
            line.tell()
            raise
        if not self._handler.cooperative:
            channel.stand_in.read_until(lambda: queue.under_way is not request, limit)

    def _refuse_others(self, request: Request, permitted: Collection[Commit]) -> None:
        text = f"nothing more is committed for group {self._group!r}: the partitions may be another member's by now"
        for commit in request.commits:
            if commit not in permitted:
                self._line.queue.rest(commit, NoPartitionsForConsumerException(text, group=self._group))

    def _answered(self, request: Request, broker: str, response: Any, error: KafkaException | None) -> None:
        """Called by whoever reads the answer to a request. Again, with an error, if it was interrupted."""
        line, group = self._line, self._group
        answers: dict[TopicPartition, KafkaException | None] = {}
        if error is None:
            answers.update(read_commit(response, request.ids, group=group, broker=broker))
            for tp in request.carried.keys() - answers.keys():
                text = f"the answer to an offset commit leaves {tp.topic}-{tp.partition} out"
                answers[tp] = ProtocolError(text, topic=tp.topic, partition=tp.partition, group=group, broker=broker, api="OffsetCommit")
        else:
            self._cluster.forget_coordinator(self._group_name())
        try:
            with line.lock:
                if error is None:
                    line.queue.answer(request, answers)
                else:
                    line.queue.lose(request, error)
        finally:
            line.tell()

    def _judge(self, commit: Commit, gone: dict[TopicPartition, str]) -> None:
        """Raise what keeps the rest of a commit from being committed, in the last try. gone: partitions that do not exist any more, and why."""
        if commit.trouble is not None:
            raise copy(commit.trouble)
        errors = {tp: error for tp, error in commit.refused.items() if tp in commit.left}
        unknown = [tp for tp, error in errors.items() if isinstance(error, (UnknownTopicOrPartition, UnknownTopicId))]
        gone |= dict.fromkeys((tp for tp in unknown if self._is_missing(tp.topic)), DELETED)
        gone |= absent(self._cluster, (tp for tp in unknown if tp not in gone), commit.deadline)
        with self._line.lock:
            commit.unsure.difference_update(gone)
        for error in (error for tp, error in errors.items() if tp not in gone):
            raise copy(error)
        for tp, why in gone.items():
            text = f"{tp.topic}-{tp.partition}: offset {commit.offsets[tp]} is not committed: {why}"
            raise UnknownTopicOrPartition(text, topic=tp.topic, partition=tp.partition, group=self._group, api="Metadata")

    def _parts(self, partitions: Sequence[TopicPartition]) -> Iterator[Sequence[TopicPartition]]:
        """As they go into requests: all at once, or with greenlets a part after the other."""
        size = MOST_AT_ONCE if self._handler.cooperative else max(1, len(partitions))
        for at in range(0, len(partitions), size):
            self._handler.checkpoint()
            yield partitions[at : at + size]

    def await_answers(self, timeout_s: float) -> None:
        """Wait until the request that is under way is answered."""
        line, request = self._line, self._line.queue.under_way
        deadline = self._handler.monotonic() + timeout_s
        heard = self._handler.Event()
        line.listening.append(heard)
        try:
            while request is not None:
                heard.clear()
                now = self._handler.monotonic()
                if now >= deadline or line.queue.under_way is not request or line.queue.is_free(now):
                    return
                heard.wait(min(deadline - now, LOOK_S))
        finally:
            if heard in line.listening:
                line.listening.remove(heard)

    def _is_missing(self, topic: str) -> bool:
        return isinstance(self._cluster.metadata.topic_error(topic), UnknownTopicOrPartition)

    def _is_another(self, topic: str, id_: UUID) -> bool:
        """Was the topic of that id made again? Brokers before 4.1 would take its offsets for those of the new one."""
        return NO_TOPIC_ID != id_ != self._cluster.metadata.topic_id(topic) != NO_TOPIC_ID

    def committed(
        self, partitions: Iterable[TopicPartition], *, timeout_s: float, tries: int | None = None, backoff_s: float = 0.1
    ) -> dict[TopicPartition, Committed]:
        """What is committed for each partition; offset -1 where there is nothing."""
        group = self._group_name()
        wanted = list(partitions)

        def attempt() -> dict[TopicPartition, Committed]:
            known: dict[TopicPartition, Committed] = {}
            for part in self._parts(wanted):
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

    def _note(self, error: KafkaException) -> None:
        if error.stale is Stale.COORDINATOR:
            self._cluster.forget_coordinator(self._group_name())
        elif error.stale is Stale.METADATA:
            self._cluster.metadata.invalidate()

    def _with_tries(self, what: str, attempt: Any, deadline: float, tries: int | None, backoff_s: float) -> Any:
        def noted() -> Any:
            try:
                return attempt()
            except KafkaException as exc:
                self._note(exc)
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


def is_final(error: KafkaException) -> bool:
    """Does no retry bring back what the metadata do not have?"""
    return isinstance(error, UnknownTopicOrPartition) and error.api == "Metadata"


def starts_of(
    engine: NativeConsumer, given: Mapping[TopicPartition, int | None], policy: int | None, timeout_s: float
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int], list[KafkaException]]:
    """Where partitions start: at the offset given, else where the group has committed, else by the policy (-2 earliest, -1 latest).

    Returns the offsets, the epochs of the leaders that wrote what stands before committed ones, and for each partition of which nothing is
    committed, where there is no policy, what to tell the user. Raises what keeps the committed offsets from being known.
    """
    open_ends = [tp for tp, offset in given.items() if offset is None]
    found = engine.committed(open_ends, timeout_s=timeout_s) if open_ends and engine.group else {}
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
