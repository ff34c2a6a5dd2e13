"""What the consumers that share a topic have in common: one SimpleConsumer inside, for the partitions that are this member's now.

How members agree is their own: `gkafka.balancedconsumer` by ZooKeeper, `gkafka.managedbalancedconsumer` by the group's coordinator. Both tell it
here, on one worker: `_switch()` when this member's share is another one, `_lose()` when it may be somebody else's already.
"""

from __future__ import annotations

import abc
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from gkafka.checks import check_count, check_flag, check_name, check_offset, check_pairs, check_seconds, check_wait
from gkafka.common import TopicPartition
from gkafka.core.standing import Reason
from gkafka.exceptions import CommitFailedError, ConfigurationError, ConsumerStoppedException, NoPartitionsForConsumerException
from gkafka.explaining import Explanation, PartitionReport, not_ours, not_started
from gkafka.guarding import guarded
from gkafka.logs import get_logger
from gkafka.membershipprotocol import GroupMembershipProtocol, RangeProtocol, check_protocol
from gkafka.oneprocess import OfOneProcess
from gkafka.partition import Partition
from gkafka.simpleconsumer import PAIRS, SimpleConsumer, partition_id_of

if TYPE_CHECKING:
    from gkafka.cluster import Cluster
    from gkafka.records import Message
    from gkafka.topic import Topic

__all__ = ["Balancing"]

log = get_logger(__name__)

SLICE_S = 0.1
"""Longest wait for messages without a look whether the partitions are still this member's."""
ANSWER_S = 1.0
"""How long a commit that is under way is waited for before its partitions are given back: whoever waits keeps the lease, too."""
LOOK_EVERY_S = 1.0
"""How often whoever consumes looks around."""

OF_THE_GROUP = {"partitions", "generation_id", "consumer_id"}
"""SimpleConsumer's keywords that a member cannot be given."""

Offsets = Mapping[int, datetime | int]
Callback = Callable[[Any, dict[int, int], dict[int, int]], "Offsets | None"]


class Balancing(OfOneProcess, abc.ABC):
    """The documented keywords that both consumers share are SimpleConsumer's, but for these:

    consumer_group: whom the topic is shared with. rebalance_max_retries, rebalance_backoff_ms: tries to get a partition that another member
    still has before consume() raises, and the pause between them; they go on after that. post_rebalance_callback(consumer, before, after): called
    by a worker after each rebalance with the held offsets by partition id. What it returns, if anything, are held offsets, too: the consumer goes on behind
    them; OffsetType.EARLIEST, LATEST and datetimes are looked up.
    membership_protocol: how the partitions are divided. deserializer, compacted_topic, reset_offset_on_fetch: SimpleConsumer's.
    commit_on_rebalance: without auto_commit_enable, commit at each rebalance what the application has come back for: what was handed out before its last
    call. False commits only by commit_offsets().
    """

    is_member = True

    def __init__(
        self,
        topic: Topic,
        cluster: Cluster,
        consumer_group: str | bytes,
        *,
        auto_commit_enable: bool,
        consumer_timeout_ms: float,
        rebalance_max_retries: int,
        rebalance_backoff_ms: float,
        auto_start: bool,
        reset_offset_on_start: bool,
        post_rebalance_callback: Callback | None,
        use_rdkafka: bool,
        membership_protocol: Any,
        commit_on_rebalance: bool,
        keywords: dict[str, Any],
    ) -> None:
        for name in OF_THE_GROUP & keywords.keys():
            raise ConfigurationError(f"{name}={keywords[name]!r}: the group says that to its members; leave it out")
        check_flag("auto_start", auto_start)
        if check_flag("use_rdkafka", use_rdkafka):
            from gkafka.topic import require_compiled

            require_compiled()
        if post_rebalance_callback is not None and not callable(post_rebalance_callback):
            raise ConfigurationError(
                f"post_rebalance_callback={post_rebalance_callback!r}: must be a callable (consumer, offsets before, offsets after)"
            )
        self._topic, self._cluster, self._handler = topic, cluster, cluster.handler
        self._group = check_name("consumer_group", consumer_group)
        check_flag("auto_commit_enable", auto_commit_enable)
        self._timeout_ms = check_seconds("consumer_timeout_ms", consumer_timeout_ms, low=-1)
        self._rebalance_max_retries = check_count("rebalance_max_retries", rebalance_max_retries, low=0)
        self._rebalance_backoff_s = check_seconds("rebalance_backoff_ms", rebalance_backoff_ms) / 1000
        self._reset_offset_on_start = check_flag("reset_offset_on_start", reset_offset_on_start)
        self._starts_over = self._reset_offset_on_start  # until this member has the share that start() leads to
        self._callback = post_rebalance_callback
        self._membership_protocol: GroupMembershipProtocol = check_protocol(
            RangeProtocol if membership_protocol is None else membership_protocol
        )
        self._commits_at_rebalance = check_flag("commit_on_rebalance", commit_on_rebalance) and not auto_commit_enable
        if auto_commit_enable and not commit_on_rebalance:
            raise ConfigurationError(
                "commit_on_rebalance=False with auto_commit_enable=True, which commits at each rebalance, too: leave one of them out"
            )
        self._keywords = {**keywords, "auto_commit_enable": auto_commit_enable}
        self._consumer: SimpleConsumer | None = None
        self._held_before: dict[int, int] = {}  # what held_offsets was before the rebalance, for the callback
        self._left_at: dict[int, int] = {}  # partition -> next offset, of partitions that are still this member's and not consumed now
        self._in_hands: dict[int, int] = {}  # partition -> offset before what the application was handed by them and has not come back for
        self._awaited: set[int] = set()  # of its share, what another member still has
        self._error: BaseException | None = None
        self._calling: Any = None  # who runs the callback
        self._running = False
        self._ends_itself = False  # stop() was called by its own callback
        self._look_at = 0.0
        self._partition_count = 0
        self._changed = self._handler.Event()
        cluster.sleepers.add(self._changed)
        self._end_by: float | None = None  # when close() must be done
        self._make_consumer(None).stop()  # refuses keywords that cannot be, before anybody hears of this member
        if not auto_commit_enable:
            self._keywords.pop("auto_commit_interval_ms")  # that it has nothing to do was told now, and not at each rebalance

    def __repr__(self) -> str:
        if not hasattr(self, "_group"):  # where a traceback shows the arguments of a call that failed
            return f"<{type(self).__name__} that was not made>"
        return f"<{type(self).__module__}.{type(self).__name__} at {id(self):#x} (consumer_group={self._group})>"

    # -- documented properties -----------------------------------------------------------------------------------------------
    @property
    def topic(self) -> Topic:
        """The topic that is shared."""
        return self._topic

    @property
    def partitions(self) -> dict[int, Partition]:
        """The partitions that this member consumes now, by id."""
        self._handler.check_fork()
        consumer = self._consumer
        return consumer.partitions if consumer is not None else {}

    @property
    def _partitions(self) -> set[Partition]:
        """The partitions that this member consumes now (pykafka's name)."""
        return set(self.partitions.values())

    @property
    def held_offsets(self) -> dict[int, int]:
        """Partition id -> the offset of the last message consumed, of this member's partitions; -2 where there is none."""
        self._handler.check_fork()
        consumer = self._consumer
        return consumer.held_offsets if consumer is not None else {}

    def explain(self) -> Explanation:
        """For each partition of this member's share, in plain words and as data, why it is or is not being delivered, and where the member stands."""
        self._handler.check_fork()
        consumer, standing, error = self._consumer, self._standing(), self._error
        reports = {} if consumer is None else dict(consumer.explain().partitions)
        if self._running:
            if not self._may_deliver():
                reports = not_ours(reports, standing)
            known = self._topic.partitions
            for p in self._share():
                why = error or (
                    "a rebalance is under way" if p in known else "the topic has no such partition yet, as far as its brokers have told"
                )
                reports.setdefault(TopicPartition(self._topic.name, p), not_started(why))
            for p in self._awaited.copy():
                text = f"it is in this member's share, and another member of group {self._group!r} still owns it; it is tried again"
                reports[TopicPartition(self._topic.name, p)] = PartitionReport(Reason.NOT_OURS, text)
        else:
            standing = "the consumer is not running: start() joins"
        raised = "" if error is None else f"; the next call raises {type(error).__name__}: {error}"
        return Explanation(reports, f"group {self._group}: {standing}{raised}")

    # -- what is this member's -------------------------------------------------------------------------------------------------
    @abc.abstractmethod
    def _standing(self) -> str:
        """Where the member stands, in plain words."""

    @abc.abstractmethod
    def _share(self) -> Collection[int]:
        """The partitions that the group has as this member's, whether they are consumed yet or not."""

    @abc.abstractmethod
    def _may_deliver(self) -> bool:
        """Are the partitions this member's, for sure, at this moment?"""

    def _make_consumer(self, partitions: Iterable[int] | None) -> SimpleConsumer:
        consumer = SimpleConsumer(
            self._topic,
            self._cluster,
            consumer_group=self._group,
            partitions=None if partitions is None else list(partitions),
            consumer_timeout_ms=0,
            auto_start=False,
            reset_offset_on_start=self._starts_over,
            **self._keywords,
        )
        # Weakly: who drops a member would leave a cycle behind, and it would be one until Python looks for those.
        consumer._may_commit = _asked_weakly(self._may_commit)
        # Asked when messages are taken: the process may have stood still while it waited for them.
        consumer._may_deliver = self._who_may_deliver()
        return consumer

    def _who_may_deliver(self) -> Callable[[], bool]:
        """_may_deliver() for the consumer inside, which asks before each message."""
        return _asked_weakly(self._may_deliver)

    def _may_commit(self) -> bool:
        """Are commits of this member's still its own?"""
        return self._may_deliver()

    def _look_around(self) -> None:
        """Called by whoever consumes, once in LOOK_EVERY_S: has the topic got more partitions?"""
        self._cluster.poll()  # with no partition nobody else asks for metadata
        count, self._partition_count = self._partition_count, len(self._topic.partitions)
        if count not in (0, self._partition_count):
            self._divide_anew("the topic has other partitions")

    @abc.abstractmethod
    def _divide_anew(self, reason: str) -> None:
        """Have the members' shares decided again."""

    def _switch(self, change: Callable[[], Iterable[int]], *, start: bool = True) -> None:
        """On the worker: stop consuming, let change() say which partitions are this member's from now on, and consume those.

        What stays its own goes on where it stands; for the others, what is committed counts. Raises what stands in the way of a start; then
        nothing is consumed.
        """
        self._left_at = self._stop_inside()  # also if change() fails: the next try goes on from there
        mine = set(change())
        self._left_at = {p: offset for p, offset in self._left_at.items() if p in mine}
        known = self._topic.partitions
        self._partition_count = len(known)
        if mine - known.keys():  # whoever divided knows of new ones: they are begun when this member does, see _look_around
            self._cluster.metadata.want_everything()
            self._cluster.poll()
        if mine & known.keys():
            consumer = self._make_consumer(sorted(mine & known.keys()))
            consumer._resume_at = self._left_at
            consumer.in_hands = {p: offset for p, offset in self._in_hands.items() if p in self._left_at}
            if start:
                consumer.start()
            self._left_at = {}
            self._consumer = consumer
        before, self._held_before = self._held_before, {}
        self._call_back(before)
        self._changed.set()

    def _on_start(self) -> None:
        """What start() begins with: whatever was before the last stop() counts no more."""
        self._starts_over, self._held_before = self._reset_offset_on_start, {}

    def _on_stop(self) -> None:
        """What stop() begins with."""
        self._ends_itself = self._calling == self._handler.current_id()
        self._running = False
        self._changed.set()

    def _check_not_stopped(self) -> None:
        """What start() ends with. Raises if another worker has stopped the consumer, or closed its client, meanwhile."""
        if not self._running and not self._ends_itself:
            raise ConsumerStoppedException(
                "the consumer was stopped, or its client closed, while it was starting: call start(), or make a new one"
            )

    def _on_share(self) -> None:
        """This member has the share that its start led to, be it empty. Documented: reset_offset_on_start is for that one, not for later rebalances."""
        self._starts_over = False

    def _stop_inside(self) -> dict[int, int]:
        """End the consumer inside; what it consumed is committed, if that is its business, or this is a rebalance. Returns where it stood: the next
        offsets.
        """
        consumer, self._consumer = self._consumer, None
        if consumer is None:
            return self._left_at
        self._held_before = consumer.held_offsets
        engine = consumer._engine
        consumer._stop(
            None if self._end_by is None else self._patience(float("inf")),
            share=self._share() if self._running else None,
            finished=self._commits_at_rebalance,
        )
        self._in_hands = consumer.in_hands
        # What the application still commits: the next owner's commits would be taken back by it, and with ZooKeeper no broker knows better.
        consumer._may_commit = lambda: False
        if engine is not None:
            engine.offsets.await_answers(self._patience(ANSWER_S))
        return consumer._stood_at

    def _lose(self) -> None:
        """On the worker: others may have the partitions. Nothing of them is handed out or committed any more; where this member stood is void."""
        self._stop_inside()
        self._left_at = self._in_hands = {}
        self._changed.set()

    def _stay(self, timeout_s: float) -> None:
        """On the worker: a rebalance has left this member's share as it is."""
        consumer = self._consumer
        if consumer is not None and self._commits_at_rebalance:
            consumer.commit_finished(self._share(), timeout_s)

    def _call_back(self, before: dict[int, int]) -> None:
        if self._callback is None:
            return
        self._calling = self._handler.current_id()
        try:
            guarded(self._move_as_told, self._callback, before, failed=self._callback_failed)
        finally:
            self._calling = None

    def _move_as_told(self, callback: Callback, before: dict[int, int]) -> None:
        offsets = callback(self, before, self.held_offsets)
        if offsets is None:
            return
        if not isinstance(offsets, Mapping):
            raise ConfigurationError(f"post_rebalance_callback returned {offsets!r}: must be a dict of offsets by partition id, or None")
        self._go_on_behind({p: o if isinstance(o, datetime) else check_offset("offset", o, low=-2) for p, o in offsets.items()})

    def _callback_failed(self, error: BaseException) -> None:
        log.error("group %s: post_rebalance_callback failed", self._group, exc_info=error)
        self._error = error

    def _go_on_behind(self, offsets: Offsets) -> None:
        """offsets: held ones, by partition; times are looked up."""
        consumer = self._consumer
        mine, held = self.partitions, self.held_offsets
        for partition in offsets:
            if partition not in mine:
                raise ConfigurationError(
                    f"post_rebalance_callback returned an offset for partition {partition!r}, this member has {sorted(mine)}"
                )
        places = {p: o + 1 if isinstance(o, int) and o >= 0 else o for p, o in offsets.items() if o != held[p]}
        if consumer is not None and places:
            consumer.in_hands = {p: offset for p, offset in consumer.in_hands.items() if p not in places}
            consumer.go_on_from(places)

    # -- consuming -----------------------------------------------------------------------------------------------------------
    def consume(self, block: bool = True) -> Message | Any | None:
        """The next message of this member's partitions, or None: after consumer_timeout_ms, or at once with block=False.

        Waits while the group is being balanced and while this member has no partition. Raises ConsumerStoppedException after stop(), and what a
        worker met.
        """
        if block is not True:
            check_flag("block", block)
        consumer = self._consumer
        if consumer is not None and self._running and self._error is None and (message := consumer.next_ready()) is not None:
            return message
        messages = self._next(1, self._timeout_ms if block else 0)
        return messages[0] if messages else None

    def consume_batch(self, max_messages: int | None = None, timeout_ms: float | None = None) -> list[Any]:
        """Up to max_messages (None: what is there), waiting up to timeout_ms for the first (None: consumer_timeout_ms); [] if none came."""
        consumer = self._consumer if self._running and self._error is None else None
        if consumer is not None and type(max_messages) is int and max_messages > 0 and (messages := consumer.few_ready(max_messages)):
            return messages
        wanted = None if max_messages is None else check_count("max_messages", max_messages, high=(1 << 63) - 1)
        return self._next(wanted, self._timeout_ms if timeout_ms is None else check_seconds("timeout_ms", timeout_ms, low=-1))

    def _next(self, wanted: int | None, timeout_ms: float) -> list[Any]:
        self._handler.check_fork()
        now = self._handler.monotonic()
        deadline = float("inf") if timeout_ms < 0 else now + timeout_ms / 1000
        while True:
            self._raise_worker_exceptions()
            if not self._running:
                raise ConsumerStoppedException("the consumer is not running: call start(), or make a new one")
            if now >= self._look_at:
                self._look_at = now + LOOK_EVERY_S
                self._look_around()
            left = deadline - now
            self._changed.clear()
            consumer, self._in_hands = self._consumer, {}
            if consumer is not None:
                consumer.came_back()
            if consumer is not None and self._may_deliver():
                messages = self._take(consumer, wanted, max(0.0, min(left, SLICE_S)) * 1000)
                if messages:
                    return messages
            elif self._calling == self._handler.current_id():
                return []  # inside the callback: what it waits for can come only when it has returned
            elif left > 0:
                self._changed.wait(min(left, SLICE_S))
            if left <= 0:
                return []
            now = self._handler.monotonic()

    def _take(self, consumer: SimpleConsumer, wanted: int | None, timeout_ms: float) -> list[Any]:
        try:
            return consumer.consume_batch(wanted, timeout_ms)
        except ConsumerStoppedException:
            if consumer is self._consumer and self._running:
                raise
            return []  # a rebalance took its place

    def __iter__(self) -> Iterator[Any]:
        """Messages until consumer_timeout_ms passes without one."""
        while (message := self.consume()) is not None:
            yield message

    def _raise_worker_exceptions(self) -> None:
        """Raise what a worker met, once (documented)."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    # -- offsets -------------------------------------------------------------------------------------------------------------
    def _mine(self, what: str) -> SimpleConsumer:
        self._handler.check_fork()
        consumer = self._consumer
        if not self._running:
            raise ConsumerStoppedException("the consumer is not running: call start(), or make a new one")
        if consumer is None or not self._may_deliver():
            raise NoPartitionsForConsumerException(f"{what}: this member of group {self._group!r} has no partition at the moment")
        return consumer

    def commit_offsets(self, partition_offsets: Iterable[tuple[Partition | int, int]] | None = None) -> None:
        """Commit where this member stands, or (partition, next offset) pairs of its partitions.

        Raises NoPartitionsForConsumerException while it has none, CommitFailedError for one of the topic's that it has not: they may be another
        member's, whose commits must stand.
        """
        consumer = self._mine("commit_offsets")
        if partition_offsets is None:
            consumer.commit_offsets()
            return
        pairs = check_pairs("partition_offsets", partition_offsets, PAIRS)
        others = {partition_id_of(self._topic, p) for p, _ in pairs} & self._topic.partitions.keys() - consumer.partitions.keys()
        if others:
            text = f"partition(s) {sorted(others)} of {self._topic.name!r} are not this member's of group {self._group!r}: whoever has them commits them"
            raise CommitFailedError(text, topic=self._topic.name, partition=min(others), group=self._group)
        consumer.commit_offsets(pairs)

    def reset_offsets(self, partition_offsets: Iterable[tuple[Partition | int, datetime | int]] | None = None) -> None:
        """Go on from other offsets; see SimpleConsumer.reset_offsets."""
        self._mine("reset_offsets").reset_offsets(partition_offsets)

    # -- life ----------------------------------------------------------------------------------------------------------------
    @abc.abstractmethod
    def start(self) -> None:
        """Join the group and begin to consume. Called by the constructor unless auto_start=False."""

    @abc.abstractmethod
    def stop(self) -> None:
        """Leave the group. Idempotent."""

    def close(self, timeout: float | None = None) -> None:
        """The same as stop(). timeout: seconds for all of it; None: it is bounded by the other timeouts."""
        if timeout is not None:
            self._end_by = self._handler.monotonic() + check_wait("timeout", timeout)
        try:
            self.stop()
        finally:
            self._end_by = None

    def _patience(self, usual: float) -> float:
        """Seconds that one step of the end may take: usually so long, less where close() has to be done before."""
        return usual if self._end_by is None else min(usual, max(0.0, self._end_by - self._handler.monotonic()))

    @property
    def closed(self) -> bool:
        """Does it not run?"""
        return not self._running

    def stats(self) -> dict[str, Any]:
        """Whom it shares the topic with, and what its share is."""
        self._handler.check_fork()
        return {"group": self._group, "topic": self._topic.name, "partitions": sorted(self.partitions), "delivers": self._may_deliver()}

    def __enter__(self) -> Any:
        return self

    def __exit__(self, exc_type: Any, exc: Any, traceback: Any) -> None:
        self.stop()

    def __del__(self) -> None:
        # Only a flag: no wait, no lock, no network. Workers hold this object weakly, and end when it is gone.
        if getattr(self, "_running", False):
            self._running = False


def _asked_weakly(method: Callable[[], bool]) -> Callable[[], bool]:
    me = weakref.WeakMethod(method)

    def ask() -> bool:
        alive = me()
        return alive is not None and alive()

    return ask
