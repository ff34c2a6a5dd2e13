"""The consumer of a group: which partitions it reads is the group's word, carried out here.

`gkafka.membership` calls on a worker of its own, one thing at a time. What comes begins where the group has committed; what is revoked is
handed out no more, then it is committed as far as the application has finished it, then it is another's. What the application has, it may
finish first: a partition is given back when it asks for more, or has been silent for max_poll_interval_ms.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

from gkafka.checks import check_name
from gkafka.common import TopicPartition
from gkafka.config import NativeConsumerConfig
from gkafka.core.assignors import ASSIGNORS, Assignor
from gkafka.core.consumergroup import UNSUPPORTED, ConsumerGroup
from gkafka.core.consumergroupstate import ConsumerGroupOptions
from gkafka.core.division import Division
from gkafka.core.group import Group
from gkafka.core.groupmachine import MakeMachine
from gkafka.core.groupstate import Change, GroupOptions, Tell
from gkafka.core.standing import Reason
from gkafka.errortexts import partitions_named
from gkafka.exceptions import ConfigurationError, KafkaException, NoOffsetForPartitionError, UnsupportedVersion
from gkafka.explaining import Explanation, PartitionReport, not_ours, not_started
from gkafka.groupoffsets import no_place, starts_of
from gkafka.logs import get_logger
from gkafka.marks import Turn
from gkafka.membership import Member, rebalance_timeout_s
from gkafka.progress import MemberIdentity, Progress
from gkafka.wire.consumergroups import ConsumerGroupHeartbeatRequest

if TYPE_CHECKING:
    from gkafka.cluster import Cluster
    from gkafka.nativeconsumer import NativeConsumer
    from gkafka.subscribing import Subscription

__all__ = ["Share", "check_group_options"]

log = get_logger(__name__)

MOST_AT_ONCE = 200
"""Partitions that are begun with in a few milliseconds: the hub turns between them."""
PLACE_S = 10.0
"""How long partitions wait for their committed offsets before the group goes on; they are tried again beside it."""
POLL_S = 1.0
OF_GROUPS = (
    "session_timeout_ms",
    "heartbeat_interval_ms",
    "max_poll_interval_ms",
    "assignors",
    "group_protocol",
    "group_remote_assignor",
    "group_instance_id",
    "on_assigned",
    "on_revoked",
    "on_lost",
)
Stood = dict[TopicPartition, tuple[int, int]]


class Share:
    """One member. consumer: whom listeners are given; held weakly, its end is the member's. keeper: set when look_after() is to be called soon.

    terms: the partitions that it consumes, each with its term in the group. Where each stands:

    | | `_unplaced` | `_held_back` | `_paused_early` | in the engine |
    |---|---|---|---|---|
    | it waits for an offset | with what it met | until on_assigned has returned | if the application has paused it | no |
    | on_assigned has not returned | no | yes | if the application has paused it | paused |
    | it is consumed | no | no | no | paused if the application says so |
    | it is being revoked | no | no | no | no; `_leaving` has where it stood |
    """

    def __init__(
        self,
        consumer: Any,
        cluster: Cluster,
        config: NativeConsumerConfig,
        engine: NativeConsumer,
        progress: Progress,
        *,
        group: str,
        subscription: Subscription,
        policy: int | None,
        on_problem: Callable[[BaseException], None],
        keeper: Any,
    ) -> None:
        self._consumer = weakref.ref(consumer)
        self._cluster, self._config, self._engine, self._progress, self._handler = cluster, config, engine, progress, cluster.handler
        self._group, self._subscription, self._policy, self._on_problem = group, subscription, policy, on_problem
        self._keeper = keeper
        self._lock = self._handler.Mutex()
        self.terms: dict[TopicPartition, int] = {}
        self._unplaced: dict[TopicPartition, KafkaException | None] = {}  # they have no offset to start from yet, and why
        self._paused_early: set[TopicPartition] = set()  # before they had one, or were free
        self._held_back: set[TopicPartition] = set()  # until on_assigned has returned
        self._leaving: Stood = {}  # being revoked, and where they stood
        self._placing = Turn(is_over=True)
        self._leaves_later = False
        self._poll_at = 0.0
        self._division = Division({**dict.fromkeys(subscription.topics(), 0), **subscription.counts()})  # none of those that are awaited
        me = weakref.ref(self)
        options, machine = _machine(cluster, config, group)
        self._member = Member(
            cluster,
            options,
            subscription.topics(),
            on_change=_weakly(me, Share._changed),
            on_problem=on_problem,
            machine=machine,
        )
        self._member.know_absent(subscription.missing())
        engine.offsets.identity = MemberIdentity(group, self._member, self.terms.copy, config.group_instance_id)
        engine.taker.ask_before_delivery(self._member.delivery_check(), self._member.delivery_end())
        self._member.polled()

    # -- called by whoever consumes -----------------------------------------------------------------------------------------------
    def called(self, now: float) -> None:
        """The application asks for messages. Raises why this can be no member any more."""
        if self._member.error is not None:
            raise self._member.error
        if now >= self._poll_at:
            self._handler.check_fork()
            self._poll_at = now + min(POLL_S, self._config.max_poll_interval_ms / 10000)
            self._member.polled()

    @property
    def identity(self) -> tuple[int, str]:
        """Generation and member id, (-1, "") while there is none."""
        return self._member.identity

    def assignment(self) -> set[TopicPartition]:
        """The partitions that are consumed."""
        return {tp for tp in self.terms.copy() if tp not in self._leaving}

    def stood(self) -> dict[TopicPartition, int]:
        """Where those stood that are being revoked, and -1 for those that have no start yet."""
        unplaced, leaving = self._unplaced.copy(), self._leaving.copy()
        return {**dict.fromkeys(unplaced, -1), **{tp: offset for tp, (offset, _) in leaving.items()}} if unplaced or leaving else {}

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """NativeConsumer.seek, also for a partition that has no start yet, and for one that is being revoked: there others will begin."""
        if tp in self._unplaced:
            self._add([tp], {tp: offset}, {}, self.terms.copy())
        with self._lock:  # a partition that is revoked is either before this or behind it
            if tp in self._leaving:
                self._engine.put_elsewhere(tp)
                self._leaving[tp] = (max(offset, -1), -1)
                return
            parked = self._engine.place(tp, offset)
        self._engine.ask_anew(parked)

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """NativeConsumer.pause, also from on_assigned, and for partitions that have no start yet."""
        with self._lock:
            self._engine.pause(self._of_engine(partitions))
            self._paused_early.update((self._unplaced.keys() | self._held_back) & set(partitions))

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """NativeConsumer.resume; what is held back follows when on_assigned has returned."""
        with self._lock:
            parked = self._engine.unpause([tp for tp in self._of_engine(partitions) if tp not in self._held_back])
            self._paused_early.difference_update(partitions)
        self._engine.ask_anew(parked)

    def _of_engine(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Without those that it does not have yet, or not any more."""
        return [tp for tp in partitions if tp not in self._unplaced and tp not in self._leaving]

    def paused(self) -> set[TopicPartition]:
        """Those that the application has paused."""
        return (self._engine.paused() - self._held_back) | self._paused_early

    def leave(self, *, in_order: bool, timeout_s: float) -> None:
        """Give everything back, tell the coordinator. in_order: the application has finished what it has. timeout_s: for all of it."""
        deadline = self._handler.monotonic() + timeout_s
        self._progress.end(in_order=in_order)
        if self._config.auto_commit is not False and not self._member.in_callback:
            # Who leaves in the middle of a rebalance, as when all members stop at once, is of a generation that may not commit any more.
            try:
                self._progress.commit_finished(timeout_s / 2, patient=True)
            except KafkaException as exc:
                log.info("group %r: %s; the commit is tried again when the partitions are given back", self._group, exc)
        if not self._member.leave("the consumer is stopped", deadline - self._handler.monotonic()):
            self._leaves_later = self._member.in_callback
            if not self._leaves_later:
                log.warning("group %r: the coordinator was not told of this member's end, it will miss its heartbeats", self._group)

    def finish_leaving(self, timeout_s: float) -> None:
        """Wait for what leave() could only begin, as it was called by a listener: whoever closes the connections comes after that."""
        if self._leaves_later and not self._member.in_callback:
            self._handler.check_fork()
            self._leaves_later = False
            self._member.leave("the consumer is stopped", timeout_s)

    def explain(self, found: Explanation) -> Explanation:
        """What the engine knows, as the group changes it."""
        reports = dict(found.partitions)
        if not self._member.delivers:
            reports = not_ours(reports, self._member.explain())
        for tp in self._held_back.copy() & reports.keys():
            reports[tp] = reports[tp]._replace(text="waiting for on_assigned to return")
        for tp, trouble in self._unplaced.copy().items():
            reports[tp] = not_started(trouble or "the coordinator was not asked yet")
        for tp, (offset, _) in self._leaving.copy().items():
            text = f"being given up at offset {offset}: when the application asks for more messages, or on_revoked returns, another member gets it"
            reports[tp] = PartitionReport(Reason.LEAVING, text, offset)
        return Explanation(reports, f"group {self._group}: {self._member.explain()}")

    def stats(self) -> dict[str, Any]:
        """Where the member stands."""
        return self._member.stats()

    def __del__(self) -> None:
        member = getattr(self, "_member", None)
        if member is not None:
            member.abandon()

    @property
    def is_over(self) -> bool:
        """Does the member leave at the end of the interpreter? Nothing is to be committed any more."""
        return self._member.is_abandoned

    @property
    def has_unplaced(self) -> bool:
        """Are there partitions that could not begin yet?"""
        return bool(self._unplaced)

    # -- called now and then, by the consumer's own worker --------------------------------------------------------------------------
    def look_after(self) -> None:
        """Begin with what could not begin yet; notice topics and partitions that come into being."""
        if self._unplaced and self._place():
            self._tell_of_troubles()
        news = self._subscription.news()
        if news is not None:
            self._member.subscribe(self._subscription.topics())
            self._division.count(self._subscription.counts(), self._member.identity[0], self._handler.monotonic())
            self._subscription.took_up(news)
        generation, now = self._member.identity[0], self._handler.monotonic()
        if self._member.is_outdated:
            self._division.outdate(generation, now)
        if self._division.is_due(generation, now, is_leader=self._member.is_leader):
            self._member.rejoin("a topic has other partitions")

    # -- on the worker for callbacks -------------------------------------------------------------------------------------------------
    def _changed(self, tell: Tell, generation: int, member_id: str) -> None:
        if tell.change is Change.ASSIGNED:
            self._assigned(tell.partitions)
        elif tell.change is Change.REVOKED:
            self._revoked(tell.partitions)
        else:
            self._lost(tell.partitions)

    def _call(self, listener: Callable[..., object] | None, partitions: Collection[TopicPartition]) -> None:
        consumer = self._consumer()
        if listener is None or consumer is None:
            return
        self._handler.call_back(listener, consumer, sorted(partitions), failed=self._listener_failed)

    def _listener_failed(self, error: BaseException) -> None:
        log.error("group %r: a listener failed", self._group, exc_info=error)
        self._on_problem(error)

    def _assigned(self, partitions: Iterable[TopicPartition]) -> None:
        held = self._member.terms
        gained = [tp for tp in partitions if tp in held]
        with self._lock:
            self.terms.update((tp, held[tp]) for tp in gained)
            self._unplaced.update(dict.fromkeys(gained))
            if self._config.on_assigned is not None:
                self._held_back.update(gained)
        if gained:
            self._place()
        self._call(self._config.on_assigned, gained)
        self._tell_of_troubles()  # now: a listener that seeks has settled them
        for tps in _some_at_a_time(gained):
            self._handler.checkpoint()
            with self._lock:
                begun = [tp for tp in tps if tp in self._held_back and self._engine.has(tp)]
                self._held_back.difference_update(tps)
                parked = self._engine.unpause([tp for tp in begun if tp not in self._paused_early])
                self._paused_early.difference_update(begun)
            self._engine.ask_anew(parked)
        if self._policy is None and self._unplaced:
            self._engine.taker.wake_up()  # whoever waits is told now

    def _revoked(self, partitions: Iterable[TopicPartition]) -> None:
        with self._lock:
            leaving = [tp for tp in partitions if tp in self.terms]
            taken = self._take_out(leaving)
            nowhere = (-1, -1)
            # One that was interrupted had taken them out.
            self._leaving = {tp: taken.get(tp) or self._leaving.get(tp, nowhere) for tp in leaving}
            stood = {tp: offset for tp, (offset, _) in self._leaving.items() if self._leaving[tp] is not nowhere}
        try:
            self._handler.checkpoint()
            finished = self._progress.wait_until_finished(
                stood, self._config.max_poll_interval_ms / 1000, lambda: self._consumer() is not None and self._are_mine(stood)
            )
            self._engine.at_work.end_on(leaving)
            if self._config.auto_commit is not False and self._are_mine(leaving):
                self._commit_left(finished)
            kept = self._are_mine(leaving)  # those that were lost meanwhile others may have already
            if not kept:
                self._progress.lose(stood)
            if leaving:
                self._call(self._config.on_revoked if kept else self._config.on_lost, leaving)
        except BaseException as exc:
            if not self._handler.from_outside(exc):
                self._forget(leaving)
            raise
        self._forget(leaving)

    def _are_mine(self, partitions: Iterable[TopicPartition]) -> bool:
        return not self._member.terms.keys().isdisjoint(partitions)

    def _lost(self, partitions: Iterable[TopicPartition]) -> None:
        with self._lock:
            lost = [tp for tp in partitions if tp in self.terms]
            self._progress.lose({tp: offset for tp, (offset, _) in self._take_out(lost).items()})
        self._engine.at_work.end_on(lost)
        self._forget(lost)
        self._call(self._config.on_lost, lost)

    def _take_out(self, partitions: Iterable[TopicPartition]) -> Stood:
        """Under the lock: nothing of these is handed out from now on."""
        for tp in partitions:
            self._unplaced.pop(tp, None)
            self._held_back.discard(tp)
            self._paused_early.discard(tp)
        return self._engine.remove([tp for tp in partitions if self._engine.has(tp)])

    def _forget(self, partitions: Sequence[TopicPartition]) -> None:
        with self._lock:
            for tp in partitions:
                self.terms.pop(tp, None)
            self._leaving = {}
        self._progress.forget(dict.fromkeys(partitions))

    def _commit_left(self, finished: bool) -> None:
        stood = self._leaving.copy()
        known = self._progress.finished
        offsets = self._engine.not_at_work({tp: offset if finished else known.get(tp, -1) for tp, (offset, _) in stood.items()})
        news = self._progress.news(offsets)
        epochs = {tp: epoch for tp, (offset, epoch) in stood.items() if offset == offsets[tp]} if finished else {}
        try:
            if news:
                self._engine.offsets.finish(
                    self._progress.begin_commit(news, epochs=epochs),
                    timeout_s=self._cluster.config.offsets_channel_socket_timeout_ms / 1000,
                )
        except KafkaException as exc:
            log.error(
                "group %r: the last positions of the partitions that it gave up are not committed, and may be consumed again: %s",
                self._group,
                exc,
            )

    # -- where to begin --------------------------------------------------------------------------------------------------------------
    def _place(self) -> bool:
        """Begin with the partitions that have no start yet. What stands in the way is written down, and they stay where they are.

        False: another one is at it, and will say what came of it.
        """
        mine = Turn()
        waiting: list[TopicPartition] = []
        try:
            with self._lock:
                if not self._placing.is_over:
                    return False
                self._placing = mine
                waiting, terms = list(self._unplaced), self.terms.copy()
            starts, epochs, problems = starts_of(self._engine.offsets, dict.fromkeys(waiting), self._policy, PLACE_S)
            for problem in problems:
                self._is_stuck([tp for tp in waiting if tp == (problem.topic, problem.partition)], problem)
            known = self._cluster.metadata.topic
            for tps in _some_at_a_time([tp for tp in starts if known(tp.topic) is not None]):
                self._begin(tps, starts, epochs, terms)
                self._handler.checkpoint()
            gone: dict[str, list[TopicPartition]] = {}
            for tp in starts:
                if known(tp.topic) is None:
                    gone.setdefault(tp.topic, []).append(tp)
            for tps in gone.values():
                self._begin(tps, starts, epochs, terms)
        except KafkaException as exc:
            self._is_stuck(waiting, exc)
        finally:
            mine.is_over = True
        return True

    def _begin(
        self,
        partitions: Sequence[TopicPartition],
        starts: dict[TopicPartition, int],
        epochs: dict[TopicPartition, int],
        terms: dict[TopicPartition, int],
    ) -> None:
        try:
            self._add(partitions, starts, epochs, terms)
        except KafkaException as exc:  # a topic that is gone keeps no other waiting
            topics = dict.fromkeys(tp.topic for tp in partitions)
            if len(topics) == 1:
                self._is_stuck(partitions, exc)
                return
            for topic in topics:
                self._begin([tp for tp in partitions if tp.topic == topic], starts, epochs, terms)

    def _is_stuck(self, partitions: Sequence[TopicPartition], trouble: KafkaException) -> None:
        with self._lock:
            stuck = [tp for tp in partitions if tp in self._unplaced]
            news = [tp for tp in stuck if type(self._unplaced[tp]) is not type(trouble)]
            self._unplaced.update(dict.fromkeys(stuck, trouble))
        if stuck:
            self._keeper.set()
        if news:  # it is looked at again and again
            log.warning("group %r: %s cannot be consumed yet: %s", self._group, partitions_named(news), trouble)

    def _tell_of_troubles(self) -> None:
        """What keeps partitions waiting and does not pass by itself. Those without an offset check_placed() tells, as long as they are."""
        for trouble in dict.fromkeys(self._unplaced.copy().values()):
            if trouble is None or trouble.retriable or isinstance(trouble, NoOffsetForPartitionError):
                continue
            if not any(type(told) is type(trouble) and str(told) == str(trouble) for told in list(self._engine.taker.troubles)):
                self._on_problem(trouble)

    def check_placed(self, only: TopicPartition | None = None) -> None:
        """Raises NoOffsetForPartitionError for a partition, or that one, that waits for seek() because nobody said where to start; of that one
        also what else keeps it waiting and does not pass by itself. Who asks for none by name is told when on_assigned has returned, which may seek."""
        for tp, trouble in self._unplaced.copy().items():
            if only is None and isinstance(trouble, NoOffsetForPartitionError) and tp not in self._held_back:
                self._handler.checkpoint()  # who tries again at once would keep the hub from whoever could say it
                raise no_place(tp)
            if only == tp and trouble is not None and not trouble.retriable:
                self._handler.checkpoint()
                raise copy(trouble)

    def _add(
        self,
        partitions: Sequence[TopicPartition],
        starts: dict[TopicPartition, int],
        epochs: dict[TopicPartition, int],
        terms: dict[TopicPartition, int],
    ) -> None:
        """terms: as they were when it was asked where to begin. Of one that went and came back meanwhile others have committed more since."""
        # Paused until it is sure that they are still the member's: finding out where to begin takes its time.
        self._engine.add({tp: starts[tp] for tp in partitions}, epochs=epochs, paused=True)
        with self._lock:
            mine = [tp for tp in partitions if tp in self._unplaced and self.terms.get(tp) == terms.get(tp)]
            gone = [tp for tp in partitions if tp not in self.terms or (tp in self._unplaced and tp not in mine)]
            self._engine.remove([tp for tp in gone if self._engine.has(tp)])
            for tp in mine:
                del self._unplaced[tp]
            parked = self._engine.unpause([tp for tp in mine if tp not in self._held_back and tp not in self._paused_early])
            self._paused_early.difference_update(tp for tp in mine if tp not in self._held_back)
        self._engine.ask_anew(parked)


def _some_at_a_time(partitions: Sequence[TopicPartition]) -> Iterator[Sequence[TopicPartition]]:
    """So many as are begun with in a few milliseconds."""
    for at in range(0, len(partitions), MOST_AT_ONCE):
        yield partitions[at : at + MOST_AT_ONCE]


def _machine(cluster: Cluster, config: NativeConsumerConfig, group: str) -> tuple[GroupOptions | ConsumerGroupOptions, MakeMachine]:
    """What kind of member it is, and its options."""
    session_s, silence_s = config.session_timeout_ms / 1000, config.max_poll_interval_ms / 1000
    same: dict[str, Any] = {
        "session_timeout_s": session_s,
        "max_poll_interval_s": silence_s,
        "instance_id": config.group_instance_id,
        "rack": config.client_rack or None,
    }
    if config.group_protocol == "consumer":
        _check_supported(cluster)
        return ConsumerGroupOptions(group, rebalance_timeout_s=silence_s, assignor=config.group_remote_assignor, **same), ConsumerGroup
    return (
        GroupOptions(
            group,
            [ASSIGNORS[one] if isinstance(one, str) else one for one in config.assignors],
            rebalance_timeout_s=rebalance_timeout_s(cluster, silence_s, session_s),
            heartbeat_interval_s=config.heartbeat_interval_ms / 1000,
            **same,
        ),
        Group,
    )


def _check_supported(cluster: Cluster) -> None:
    """Raise UnsupportedVersion, with what to use instead, if the brokers have no groups of KIP-848."""
    cluster.connect()
    if cluster.versions is not None:
        try:
            cluster.versions.pick(ConsumerGroupHeartbeatRequest.API)
        except UnsupportedVersion as exc:
            raise UnsupportedVersion(f"{exc}: {UNSUPPORTED}", api=exc.api, broker=exc.broker) from None


def check_group_options(config: NativeConsumerConfig, *, group: str | None, sharing: bool) -> None:
    """Raise ConfigurationError for options of a group that do not go together, or have nothing to do. sharing: are topics shared?"""
    if group is None and config.auto_commit:
        raise ConfigurationError("auto_commit=True needs a group: give group=, or leave it out")
    if group is None or config.auto_commit is False:
        without = "without a group" if group is None else "with auto_commit=False"
        why = f"has nothing to do: nothing is committed in the background {without}; leave it out"
        _check_alone(config, ("auto_commit_interval_ms",), why)
    for name in ("group_instance_id", "group_remote_assignor"):
        if getattr(config, name) is not None:
            check_name(name, getattr(config, name))
    if not sharing:
        why = "has nothing to do: it is for consumers that share topics with others of their group; give topics and group, or leave it out"
        _check_alone(config, OF_GROUPS, why)
        return
    if config.group_protocol == "consumer":
        _check_alone(config, ("heartbeat_interval_ms", "assignors"), "is the coordinator's business with group_protocol='consumer'")
        return
    _check_alone(config, ("group_remote_assignor",), "needs group_protocol='consumer'")
    if config.heartbeat_interval_ms >= config.session_timeout_ms:
        text = f"heartbeat_interval_ms={config.heartbeat_interval_ms!r} with session_timeout_ms={config.session_timeout_ms!r}"
        raise ConfigurationError(f"{text}: must be lower, a third of it or less")
    if config.heartbeat_interval_ms * 3 > config.session_timeout_ms:
        log.warning(
            "heartbeat_interval_ms=%g with session_timeout_ms=%g: one heartbeat that is lost may cost the membership; a third of the session "
            "or less is safe",
            config.heartbeat_interval_ms,
            config.session_timeout_ms,
        )
    if not config.assignors:
        raise ConfigurationError(f"assignors={config.assignors!r}: must name one or more of {', '.join(ASSIGNORS)}")
    for one in config.assignors:
        if one not in ASSIGNORS if isinstance(one, str) else not isinstance(one, Assignor):
            raise ConfigurationError(
                f"assignors: {one!r} must be one of {', '.join(ASSIGNORS)}, or an object with what gkafka.core.assignors.Assignor has"
            )
        if not isinstance(one, str):
            if not isinstance(one.name, str):
                raise ConfigurationError(f"assignors: {one!r}: its name={one.name!r} must be a str, by which all members know it")
            check_name("assignors: a name", one.name)


def _check_alone(config: NativeConsumerConfig, names: Sequence[str], why: str) -> None:
    for field in dataclasses.fields(config):
        if field.name in names and getattr(config, field.name) != field.default:
            raise ConfigurationError(f"{field.name}={getattr(config, field.name)!r} {why}")


def _weakly(me: weakref.ref[Share], method: Callable[..., None]) -> Callable[..., None]:
    def call(*arguments: Any) -> None:
        share = me()
        if share is not None:
            method(share, *arguments)

    return call
