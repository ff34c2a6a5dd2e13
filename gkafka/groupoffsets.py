"""Offsets that a group has committed: asking for them and committing, with retries."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import UUID

from gkafka.brokererrors import BrokerError, UnknownTopicId, UnknownTopicOrPartition
from gkafka.common import TopicPartition
from gkafka.core.commitorder import Commit, CommitOrder, Load, Outcome
from gkafka.core.metadata import NO_TOPIC_ID
from gkafka.core.offsets import Committed, commit_request, fetch_request, read_commit, read_fetch
from gkafka.exceptions import (
    ConfigurationError,
    KafkaException,
    NoOffsetForPartitionError,
    NoPartitionsForConsumerException,
    ProtocolError,
    Stale,
)
from gkafka.logs import get_logger
from gkafka.wire.offsets import OffsetCommitRequest

if TYPE_CHECKING:
    from gkafka.cluster import Cluster
    from gkafka.nativeconsumer import NativeConsumer

__all__ = ["GroupOffsets", "Outcome", "absent", "is_final", "no_place", "starts_of"]

log = get_logger(__name__)

DELETED = "its topic was deleted"
LOOK_S = 0.1
"""How often who waits for an answer looks whether its caller was interrupted as it was to tell."""
MOST_AT_ONCE = 500
"""Partitions in one request with greenlets, which have the hub between an answer and the next."""


class GroupOffsets:
    """Of one group, "" or None for none: then every call raises ConfigurationError.

    Commits may come at the same time, and none waits for another (those of `progress.py` do): a stop, or a member that gives partitions back,
    would stand behind all the retries of a commit in the background. So they are numbered, and what goes into a request is decided under the
    lock under which it is sent: of two requests for a partition the second never has the older offset (`core/commitorder.py`).
    """

    def __init__(self, cluster: Cluster, group: str | None) -> None:
        self._cluster, self._handler, self._group = cluster, cluster.handler, group
        self._numbers = itertools.count(1)
        self._order, self._lock = CommitOrder(), self._handler.Mutex()
        self._sent: list[Any] = []  # an event for each commit that waits for its answer

    def _group_name(self) -> str:
        if not self._group:
            raise ConfigurationError("this needs a consumer group: give group= (consumer_group= to pykafka's)")
        return self._group

    def next_number(self) -> int:
        """Of a commit that is about to come. It is of no account before that comes, so none need come."""
        return next(self._numbers)

    def commit(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        number: int | None = None,
        epochs: Mapping[TopicPartition, int] | None = None,
        timeout_s: float,
        tries: int | None = None,
        backoff_s: float = 0.1,
        generation_id: int = -1,
        member_id: str = "",
        allowed: Callable[[], bool] = lambda: True,
        instance_id: str | None = None,
        topic_ids: Mapping[TopicPartition, UUID] | None = None,
        notes: Mapping[TopicPartition, str] | None = None,
        outcome: Outcome | None = None,
    ) -> None:
        """Commit offsets: the next ones to consume. number: its next_number(), if that was asked for before. epochs: of the leaders that wrote what
        stands before them, by which whoever goes on there learns of a log that was cut (KIP-320). tries: None is until timeout_s. allowed: may it still
        be committed? Asked before each try. topic_ids: of the topics that the offsets belong to, where they are known. notes: texts that the group keeps with offsets. outcome: is told
        what became of each partition.

        A later call's offset of a partition is never taken back. If the group has it, nothing of this call's is sent any more for that partition. If it
        may have it (that call is under way, or ended without an answer: it was interrupted, its time was over), this call's requests carry that offset
        instead: it is what the application asked for last, and whoever returns from here knows that the group has its offset or a later one. An
        error would leave the application with a group of which nobody knows what it has.

        Raises NoPartitionsForConsumerException where it is not allowed; when all else is committed, UnknownTopicOrPartition for a topic that is not
        there, or not any more, or is another one of the name, and for a partition that the topic does not have.
        """
        group = self._group_name()
        wanted = {tp: offset for tp, offset in offsets.items() if offset >= 0}
        if not wanted:
            return

        own = self.next_number() if number is None else number
        mine = Commit(own, wanted.copy(), notes=notes, epochs=epochs, topic_ids=topic_ids, outcome=outcome)

        def check() -> None:
            if not allowed():
                text = f"nothing more is committed for group {group!r}: the partitions may be another member's by now"
                raise NoPartitionsForConsumerException(text, group=group)

        def attempt() -> None:
            gone = {tp: DELETED for tp in wanted if self._is_another(tp.topic, mine.topic_ids.get(tp, NO_TOPIC_ID))}
            coordinator, problem = "", None
            for part in self._parts([tp for tp in wanted if tp not in gone]):
                request = commit_request(group, {}, generation_id=generation_id, member_id=member_id)
                request.group_instance_id = instance_id
                sent = self._send(request, check, deadline, mine, wanted, part)
                if sent is None:
                    continue
                load, response, coordinator = sent
                found = read_commit(response, load.topic_ids, group=group, broker=coordinator)
                answers = {tp: error for tp, error in found.items() if tp in load}
                with self._lock:
                    self._order.answer(load, answers)
                try:
                    gone |= self._take(wanted, answers, deadline)
                except BrokerError as exc:  # of one partition: the others are committed all the same
                    problem = problem or exc
                mine.outcome.unsure.difference_update(gone)
            if problem is not None:
                raise problem
            for tp, why in gone.items():
                text = f"{tp.topic}-{tp.partition}: offset {mine.offsets[tp]} is not committed: {why}"
                raise UnknownTopicOrPartition(text, topic=tp.topic, partition=tp.partition, group=group, api="Metadata")
            for topic, partition in wanted:
                text = f"the answer to an offset commit leaves {topic}-{partition} out"
                raise ProtocolError(text, topic=topic, partition=partition, group=group, broker=coordinator, api="OffsetCommit")

        deadline = self._handler.monotonic() + timeout_s
        try:
            with self._lock:
                self._order.begin(mine)
            self._with_tries(f"committing offsets of group {group!r}", attempt, deadline, tries, backoff_s)
        finally:
            with self._lock:
                self._order.end(mine)

    def _parts(self, partitions: Sequence[TopicPartition]) -> Iterator[Sequence[TopicPartition]]:
        """As they go into requests: all at once, or with greenlets a part after the other."""
        size = MOST_AT_ONCE if self._handler.cooperative else max(1, len(partitions))
        for at in range(0, len(partitions), size):
            self._handler.checkpoint()
            yield partitions[at : at + size]

    def _send(
        self,
        request: OffsetCommitRequest,
        check: Callable[[], None],
        deadline: float,
        mine: Commit,
        wanted: dict[TopicPartition, int],
        part: Sequence[TopicPartition],
    ) -> tuple[Load, Any, str] | None:
        """What was sent of a part, the answer, and whose it is. None: the group has later ones of all of it, and nothing is sent. check: may it be sent?
        That and what to send is decided when the coordinator is reached.
        """
        answered = self._handler.Event()
        load: Load

        @contextmanager
        def filled() -> Iterator[None]:
            nonlocal load
            self._sent.append(answered)  # first: whoever ends what may be committed looks here afterwards
            check()
            with self._lock:
                load = self._order.load(mine, part)
                for tp in part if len(load) < len(part) else ():
                    if tp not in load:
                        del wanted[tp]
                if not load:
                    raise _NothingLeft
                request.topics = commit_request("", load.offsets, epochs=load.epochs, topic_ids=load.topic_ids).topics
                self._order.send(load)
                yield

        try:
            response, coordinator = self._cluster.call_coordinator(self._group_name(), request, deadline, around=filled)
            return load, response, coordinator
        except _NothingLeft:
            return None
        finally:  # first out of there, which is one step: who is interrupted behind it keeps nobody waiting
            if answered in self._sent:
                self._sent.remove(answered)
            answered.set()

    def await_answers(self, timeout_s: float) -> None:
        """Of commits that are sent."""
        deadline = self._handler.monotonic() + timeout_s
        for sent in self._sent.copy():
            while sent in self._sent and (left := deadline - self._handler.monotonic()) > 0:
                sent.wait(min(left, LOOK_S))

    def _take(
        self, wanted: dict[TopicPartition, int], answers: Mapping[TopicPartition, BrokerError | None], deadline: float
    ) -> dict[TopicPartition, str]:
        """Take what is committed out of what is wanted. Returns what never will be, and why; raises the first other error."""
        for tp in [tp for tp, error in answers.items() if error is None]:
            wanted.pop(tp, None)
        errors = {tp: error for tp, error in answers.items() if error is not None}
        unknown = [tp for tp, error in errors.items() if isinstance(error, (UnknownTopicOrPartition, UnknownTopicId))]
        gone = dict.fromkeys((tp for tp in unknown if self._is_missing(tp.topic)), DELETED)
        gone |= absent(self._cluster, (tp for tp in unknown if tp not in gone), deadline)
        for error in (error for tp, error in errors.items() if tp not in gone):
            raise error
        return gone

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


class _NothingLeft(Exception):
    """There is nothing to send."""


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
