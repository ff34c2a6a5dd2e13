"""KafkaConsumer (kafka.consumer.group): kafka-python's consumer on gkafka's native one."""

from __future__ import annotations

import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from gkafka.checks import check_seconds, check_topic_name
from gkafka.client import KafkaClient
from gkafka.common import TopicPartition
from gkafka.exceptions import (
    ClientClosedError,
    ConsumerStoppedException,
    CorruptRecordError,
    ForkedClientError,
    KafkaException,
    KafkaTimeoutError,
    SerializationError,
    has_begun,
)
from gkafka.guarding import guarded
from gkafka.kafka import options as o
from gkafka.kafka.arguments import check_partition, check_partitions, flags
from gkafka.kafka.consumer.checks import (
    DEFAULTS,
    assignors,
    check_options,
    compiled,
    of_consumer,
    patience_s,
    retold,
    telling,
    told_by_name,
    without_effect,
)
from gkafka.kafka.consumer.commits import Commits, offsets_of
from gkafka.kafka.consumer.fetcher import Row
from gkafka.kafka.consumer.lookups import Lookups
from gkafka.kafka.consumer.subscription_state import ConsumerRebalanceListener
from gkafka.kafka.ending import Ending
from gkafka.kafka.errors import DamagedRecordError, IllegalArgumentError, IllegalStateError, NoOffsetForPartitionError, WrongTypeError
from gkafka.kafka.future import Future
from gkafka.kafka.metrics import flat
from gkafka.kafka.metrics.rates import Rates
from gkafka.kafka.metrics.reporters import Reporters
from gkafka.kafka.serializer import as_function
from gkafka.kafka.structs import OffsetAndMetadata, OffsetAndTimestamp
from gkafka.lifetime import ends
from gkafka.logs import get_logger
from gkafka.oneprocess import OfOneProcess
from gkafka.sasloptions import hide_secrets
from gkafka.skins import GroupMetadata
from gkafka.starter import weakly
from gkafka.subscribing import Awaited
from gkafka.undoing import Undoing
from gkafka.unseen import hide_options, refusal

if TYPE_CHECKING:
    from gkafka.consumer import Consumer  # loaded by client.get_consumer(): whoever only imports this class starts without it

__all__ = ["KafkaConsumer"]

log = get_logger(__name__)

TICK_MS = 1000.0
_place = lru_cache(1024)(TopicPartition)
"""The same for each call: making one costs as much as handing out ten records."""
_NUMBERS = (int, float)


def _check_poll(timeout_ms: Any, max_records: Any) -> None:
    """Of what poll() is given; it comes here with what it does not know by its type alone."""
    if isinstance(timeout_ms, bool) or not isinstance(timeout_ms, (int, float)) or not timeout_ms >= 0:
        raise IllegalArgumentError(f"timeout_ms={timeout_ms!r}: must be a number, 0 or more")
    if isinstance(max_records, bool) or not isinstance(max_records, int):
        raise WrongTypeError(f"max_records={max_records!r}: must be a whole number, 1 or more")
    if max_records < 1:
        raise IllegalArgumentError(f"max_records={max_records!r}: must be 1 or more")


@telling
@flags
class KafkaConsumer(OfOneProcess):
    """Consumes records of topics, alone or as the member of a group. Several workers may use it at once: each record goes to one of them.

    topics: to subscribe to; without, call subscribe() or assign(). Keyword arguments: DEFAULT_CONFIG, as kafka-python 1.4 documents them; of newer
    versions isolation_level, group_instance_id, client_rack, allow_auto_create_topics and the sasl_ options. handler: "auto", "threading", "gevent" or a Handler.
    consume_max_bytes: bytes of records, decompressed, that one poll() hands out at most.
    Raises ConfigurationError for an option that is none or would have no effect, NoBrokersAvailable, which is a
    KafkaTimeoutError, too, if no broker answers. With api_version nothing is asked here: the first poll() connects, and so does iterating.
    Reference: kafka-python 1.4, KafkaConsumer.
    """

    DEFAULT_CONFIG: ClassVar[dict[str, Any]] = DEFAULTS

    def __init__(self, *topics: str, **configs: Any) -> None:
        self._closed = True  # until it is complete
        topics = tuple(hide_options(topics))
        _names(topics)
        configs = hide_secrets(configs, self.DEFAULT_CONFIG)
        self.config = o.merge(self.DEFAULT_CONFIG, configs, "KafkaConsumer()", measured=True)
        check_options(self.config, configs)
        if idle := without_effect(configs, self.config):
            log.warning("KafkaConsumer(): %s: without a group_id this does nothing; give one, or leave it out", ", ".join(idle))
        self._rates = Rates(self.config, weakly(self._now, 0.0))
        self._assignors = assignors(self.config["partition_assignment_strategy"])
        self._key = as_function(self.config["key_deserializer"], "deserialize")
        self._value = as_function(self.config["value_deserializer"], "deserialize")
        self._consumer: Consumer | None = None
        self._leaving: Consumer | None = None
        self._half_left: Consumer | None = None  # who ended it was cut short
        self._due: deque[tuple[object, Callable[[], Consumer]]] = deque()  # a subscription, and what begins it: one call takes it
        self._autocommit = True  # at the end
        self._unread: set[TopicPartition] = set()  # assigned by hand, and neither read, placed nor asked for yet: a commit places them
        self._listener: ConsumerRebalanceListener | None = None
        self._ending = Ending(self.config["key_deserializer"], self.config["value_deserializer"])
        self._told_of_end = False  # the listener has heard what was given up since it last heard what was assigned
        self._subscribed: set[str] | re.Pattern[str] | None = None
        self._assigned = False
        self._reporters = Reporters(self.config["metric_reporters"], self.config, weakly(self._metrics, {}))
        with told_by_name():
            shown = {"exclude_internal_topics": self.config["exclude_internal_topics"]}
            bound = {"max_response_bytes": self.config["receive_message_max_bytes"]}
            self._client = KafkaClient(**shown, **bound, **o.client_options(self.config, named="kafka-python-%d"))
        self._client.cluster.called = type(self).__name__
        self._handler = self._client.handler
        self._lookups = Lookups(self._client, self.config)
        self._commits = Commits(self._handler, self.config["default_offset_commit_callback"])
        with Undoing(self._give_up):
            o.reach(self._client, self.config)
            self._closed = False
            if topics:
                self.subscribe(topics)

    def _give_up(self) -> None:
        self._closed = True
        self._client.close(0)
        self._reporters.close()

    def __repr__(self) -> str:
        if not hasattr(self, "_client"):  # where a traceback shows the arguments of a call that failed
            return f"<{type(self).__name__} that was not made>"
        of: list[Any] = sorted(self.subscription() or ()) or sorted(self.assignment())
        return f"<{type(self).__name__} group_id={self.config['group_id']!r} {of}{' closed' if self._closed else ''}>"

    # -- what is read ----------------------------------------------------------------------------------------------------------
    def _make(self, topics: Any) -> Consumer:
        group = self.config["group_id"]
        taken = of_consumer(self.config, member=group is not None and topics is not None, assignors=self._assignors)
        if group is not None and topics is not None:
            taken.update(on_assigned=weakly(self._on_assigned, None), on_revoked=weakly(self._on_revoked, None))
            taken["on_lost"] = weakly(self._on_lost, None)
        with told_by_name():
            made = self._prepared(self._client.get_consumer(topics, group, **taken))
        self._metrics()  # from here on rates count
        self._reporters.look()
        return made

    def _prepared(self, consumer: Consumer) -> Consumer:
        double = "skip" if self.config["skip_double_compressed_messages"] else "leave"
        consumer.hand_out(Row, self._key, self._value, Row.with_values, double_compressed=double)
        consumer.tell_of_commits(self._commits.done)
        self._few_ready, self._consume = consumer.shaping(by_partition)
        self._consumer = consumer
        return consumer

    def subscribe(
        self, topics: Iterable[str] | None = (), pattern: str | None = None, listener: ConsumerRebalanceListener | None = None
    ) -> None:
        """Read these topics, or those that a pattern matches (from their beginning, as re.match does), and no others. With a group_id the members of the group share their
        partitions. listener: told of rebalances, in place of an earlier one.

        Raises IllegalStateError after assign(), IllegalArgumentError (an AssertionError) without topics and pattern or with both, WrongTypeError for
        another listener than a ConsumerRebalanceListener.
        """
        self._check_open()
        if self._assigned:
            raise IllegalStateError("subscribe() after assign(): call unsubscribe() first")
        topics = hide_options(topics)
        names = _names(topics)
        if bool(names) == (pattern is not None):
            raise ImpossibleState(f"subscribe(topics={names!r}, pattern={pattern!r}): give either topics or a pattern")
        if listener is not None and not isinstance(listener, ConsumerRebalanceListener):
            raise WrongTypeError(f"listener={listener!r}: must be a ConsumerRebalanceListener")
        given: Any = compiled(pattern) if pattern is not None else Awaited(map(check_topic_name, names))
        wanted = given if pattern is not None else set(given)
        if self._consumer is not None and wanted == self._subscribed:
            self._listener = listener
            return
        stay = self._standing() if self.config["group_id"] is None else {}  # a group says itself where its members begin
        paused = self.paused()
        self._drop()
        self._subscribed, self._listener, self._told_of_end = wanted, listener, False

        def begin() -> Consumer:
            consumer = self._make(given)
            for tp in consumer.assignment() & stay.keys():
                consumer.seek(tp, stay[tp])
            consumer.pause(consumer.assignment() & stay.keys() & paused)
            return consumer

        if not o.asks(self.config):
            self._due.append((wanted, begin))
            return
        with Undoing(self._forget_subscription):
            begin()

    def _forget_subscription(self) -> None:
        self._subscribed = self._listener = None

    def _begun(self, timeout_s: float) -> Consumer | None:
        """What reads, for a call that needs it: with api_version, a subscription begins here. None while no broker is reached, or another worker is
        about to begin. Raises NoBrokersAvailable, a KafkaTimeoutError, too, where no broker can be used, and AuthenticationFailedError."""
        if self._consumer is not None or not self._due:
            return self._consumer
        try:
            wanted, begin = self._due.popleft()
        except IndexError:  # another worker has it
            return None
        try:
            o.connect(self._client, timeout_s)
            made = begin()
        except BaseException as exc:
            if self._subscribed is wanted:
                self._due.append((wanted, begin))
            if not self._may_pass(exc):
                raise
            return None
        if self._subscribed is not wanted:  # another worker has subscribed to something else, or to nothing
            self._consumer = None if self._consumer is made else self._consumer
            made.abandon(0.0)
        return self._consumer

    def _may_pass(self, error: BaseException) -> bool:
        """Does the next call that asks for records try again, and say nothing of this?"""
        if isinstance(error, ClientClosedError):
            return self._closed
        return isinstance(error, KafkaTimeoutError) and not isinstance(error, o.UnusableError)

    def _awaited(self, until: float) -> Consumer | None:
        """The same, as soon as there is one: another worker may subscribe meanwhile."""
        while (consumer := self._begun(max(0.0, until - self._handler.monotonic()))) is None:
            left = until - self._handler.monotonic()
            if left <= 0 or self._closed:
                return None
            self._handler.sleep(min(left, TICK_MS / 1000))
        return consumer

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions and no others, without sharing; those that were assigned already go on where they stand. An empty list reads none.
        Raises IllegalStateError after subscribe()."""
        self._check_open()
        if self._subscribed is not None:
            raise IllegalStateError("assign() after subscribe(): call unsubscribe() first")
        wanted = check_partitions(partitions)
        if not wanted:
            self.unsubscribe()
            return
        if self._consumer is None:
            self._drop()
        if self._consumer is None and self.config["group_id"] is not None:
            self._unread = set(wanted)
        consumer = self._consumer if self._consumer is not None else self._make(None)
        timeout_s = self._seconds(None)
        stay, paused = self._standing(), self.paused() & set(wanted)
        consumer.assign_what_may_wait({tp: stay.get(tp) for tp in wanted}, timeout_s)
        consumer.pause(paused)
        self._assigned = True

    def _standing(self) -> dict[TopicPartition, int]:
        """Where each partition that is read stands."""
        consumer = self._consumer
        if consumer is None:
            return {}
        found, ours = consumer.stands(), consumer.assignment()
        return {tp: offset for tp, offset in found.items() if offset >= 0 and tp in ours}

    def _no_place(self, topic: str | None, partition: int | None) -> NoOffsetForPartitionError:
        text = f"{topic}-{partition}: nothing is committed and auto_offset_reset={self.config['auto_offset_reset']!r}: seek() first"
        return NoOffsetForPartitionError(text, topic=topic, partition=partition)

    def _place(self, consumer: Consumer, tp: TopicPartition, offset: int) -> None:
        self._unread.discard(tp)
        consumer.seek(tp, offset)

    def unsubscribe(self) -> None:
        """Read nothing any more: leave the group, forget topics and partitions. The listener hears nothing of it, as it is no rebalance."""
        self._check_open()
        self._listener = None
        self._drop()
        self._subscribed, self._assigned = None, False

    def _drop(self, *, commit: bool = True, timeout: float | None = None) -> None:
        """Read nothing any more. Until the group is left, a listener can commit. Whoever is cut short leaves the rest to the next one."""
        consumer = self._consumer if self._consumer is not None else self._half_left
        self._half_left = consumer
        self._consumer = self._leaving = consumer
        try:
            if consumer is not None:
                consumer.stop(timeout) if commit else consumer.abandon(timeout)
            self._half_left = None
        finally:
            self._consumer = self._leaving = None
            self._few_ready = self._consume = _nothing  # they hold it
            self._unread.clear()
            self._due.clear()

    def assignment(self) -> set[TopicPartition]:
        """The partitions that are read: those of assign(), or this member's share, which is empty before it has one."""
        return set(self._consumer.assignment()) if self._consumer is not None else set()

    def subscription(self) -> set[str] | None:
        """The topics that are subscribed to: with a pattern those that match now; None without a subscription."""
        if isinstance(self._subscribed, re.Pattern):
            cluster = self._client.cluster
            known = [name for name, info in list(cluster.metadata.topics.items()) if cluster.topics.shows(info)]
            return {name for name in known if self._subscribed.fullmatch(name)}
        return None if self._subscribed is None else set(self._subscribed)

    def _on_assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if self._consumer is None and consumer is not self._half_left:  # the group was faster than the constructor
            self._prepared(consumer)
        for assignor in self._assignors:
            if (tell := getattr(assignor, "on_assignment", None)) is not None:
                tell(consumer.assignment(), consumer.group_metadata().generation_id)
        listener = self._listener
        if listener is not None:
            failed = None if self._told_of_end or self._is_cooperative() else self._revoke_nothing(listener)
            try:
                listener.on_partitions_assigned(set(partitions))
                self._told_of_end = False
            finally:
                if failed is not None and not isinstance(failed, Exception):
                    raise failed  # which is meant for the program
            if failed is not None:
                raise failed

    def _is_cooperative(self) -> bool:
        return all(getattr(assignor, "cooperative", False) for assignor in self._assignors)

    def _revoke_nothing(self, listener: ConsumerRebalanceListener) -> BaseException | None:
        """Documented is that a listener is called before and after each rebalance: also where this member had nothing to give up. Returns
        what it raised: it hears of what was assigned all the same."""
        raised: list[BaseException] = []

        def failed(error: BaseException) -> bool:
            if not has_begun(error) and self._handler.interrupted(error):
                return True
            if isinstance(error, Exception):
                log.error("on_partitions_revoked of %r failed", listener, exc_info=error)
            raised.append(error)
            return False

        guarded(listener.on_partitions_revoked, set(), failed=failed)
        if raised:
            return raised.pop()
        self._told_of_end = True
        return None

    def _on_revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if self._listener is not None:
            self._listener.on_partitions_revoked(set(partitions))
            self._told_of_end = True

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if self._listener is not None:
            self._listener.on_partitions_lost(set(partitions))
            self._told_of_end = True

    # -- consuming -------------------------------------------------------------------------------------------------------------
    def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> dict[TopicPartition, list[Any]]:
        """Records by partition, as soon as there are some; {} if none came within timeout_ms. max_records: at most so many, None is
        max_poll_records. The call says that what the last one returned is finished."""
        wanted = self.config["max_poll_records"] if max_records is None else max_records
        if type(timeout_ms) not in _NUMBERS or not timeout_ms >= 0 or type(wanted) is not int or wanted < 1:
            _check_poll(timeout_ms, wanted)
        found: dict[TopicPartition, list[Any]]
        if self._consumer is not None and not self._closed:
            found = self._few_ready(wanted)
            if found:
                return found
        self._check_open()
        until = self._handler.monotonic() + timeout_ms / 1000
        if (consumer := self._consumer) is None:
            if (consumer := self._awaited(until)) is None:
                return {}
            timeout_ms = max(0.0, 1000 * (until - self._handler.monotonic()))
        self._unread.clear()
        most_ms = min(timeout_ms, 1e9)
        found = self._asked(consumer, lambda: self._consume(wanted, most_ms))
        if not found:
            self._asked(consumer, consumer.check_halted)
            return {}
        return found

    def _asked(self, consumer: Consumer, consume: Callable[[], Any]) -> Any:
        """Return what consume() does. It must be a function of Python's own: behind a call of any other one a signal handler may raise."""
        try:
            return consume()
        except ConsumerStoppedException:
            if consumer is self._consumer and consumer is not self._leaving:
                raise
            return None  # another worker has closed it or subscribed to something else
        except CorruptRecordError as exc:
            place: dict[str, Any] = {"topic": exc.topic, "partition": exc.partition, "offset": exc.offset}
            raise DamagedRecordError(*exc.args, next_offset=exc.next_offset, **place) from exc
        except SerializationError as exc:
            failed = _of_deserializer(exc)
        except NoOffsetForPartitionError as exc:
            raise self._no_place(exc.topic, exc.partition) from None  # as after assign()
        except KafkaException as exc:
            retold(exc)
            raise
        raise failed  # out of the handler: what it was raised from stays as it was

    def __iter__(self) -> Iterator[Any]:
        # Faster than __next__, which is asked where it is somebody else's.
        return self._records() if type(self).__next__ is _NEXT else self

    def __next__(self) -> Any:
        consumer = self._consumer
        if consumer is not None and not self._closed and (record := consumer.next_ready()) is not None:
            return record
        return next(self._records())

    def _records(self) -> Iterator[Any]:
        """Records until none came for consumer_timeout_ms, or close(). Raises IllegalStateError (an AssertionError) where nothing can come."""
        if self._subscribed is None and not self._assigned and not self._closed:
            raise ImpossibleState("nothing is read: call subscribe() or assign() first, or give topics to KafkaConsumer()")
        patience = patience_s(self.config)
        clock = self._handler.monotonic
        until = clock() + patience
        while not self._closed:
            consumer = self._consumer
            record = consumer.next_ready() if consumer is not None else None
            if record is None:
                self._unread.clear()
                left = until - clock()
                if left <= 0:
                    return
                if consumer is None and (consumer := self._awaited(clock() + min(left, TICK_MS / 1000))) is None:
                    continue
                left_ms = min(left * 1000, TICK_MS)
                record = self._one_of(consumer, left_ms)
                if record is None:
                    self._asked(consumer, consumer.check_halted)
                    continue
            yield record
            if patience != float("inf"):
                until = clock() + patience

    def _one_of(self, consumer: Consumer, timeout_ms: float) -> Any:
        return self._asked(consumer, lambda: consumer.consume(timeout_ms))

    # -- positions -------------------------------------------------------------------------------------------------------------
    def position(self, partition: TopicPartition, timeout_ms: float | None = None) -> int | None:
        """The offset of the next record; None if it is not known within timeout_ms (None: request_timeout_ms)."""
        consumer, tp = self._of(partition)
        self._unread.discard(tp)
        try:
            return consumer.wait_for_position(tp, self._seconds(timeout_ms))
        except NoOffsetForPartitionError as exc:
            raise self._no_place(exc.topic, exc.partition) from None

    def highwater(self, partition: TopicPartition) -> int | None:
        """The offset that the next record produced gets, as the last fetch told it; None before."""
        consumer, tp = self._of(partition)
        return consumer.high_watermark(tp)

    def _of(self, partition: Any) -> tuple[Consumer, TopicPartition]:
        self._check_usable()
        tp = check_partition(partition)
        consumer = self._begun(self._seconds(None))
        if consumer is None or tp not in consumer.assignment():
            raise ImpossibleState(f"{tp.topic}-{tp.partition} is not assigned to this consumer")
        return consumer, tp

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on from an offset. Raises an AssertionError that is a ValueError, too, for an offset that is none and a partition that is not assigned."""
        if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
            raise IllegalArgumentError(f"offset={offset!r}: must be a whole number, 0 or more")
        consumer, tp = self._of(partition)
        self._place(consumer, tp, offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go on from the oldest record of these partitions, or of all that are assigned."""
        self._seek_all(partitions, -2)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go on behind the newest record of these partitions, or of all that are assigned."""
        self._seek_all(partitions, -1)

    def _seek_all(self, partitions: tuple[TopicPartition, ...], offset: int) -> None:
        self._begun(self._seconds(None))
        chosen = [self._of(one) for one in partitions or sorted(self.assignment())]
        if not chosen:
            raise ImpossibleState("no partitions are assigned to this consumer")
        for consumer, tp in chosen:
            self._place(consumer, tp, offset)

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out nothing of these until resume(). The group notices nothing."""
        for consumer, tp in [self._of(one) for one in partitions]:
            consumer.pause([tp])

    def paused(self) -> set[TopicPartition]:
        """What is paused."""
        return self._consumer.paused() if self._consumer is not None else set()

    def resume(self, *partitions: TopicPartition) -> None:
        """Go on with what was paused."""
        for consumer, tp in [self._of(one) for one in partitions]:
            consumer.resume([tp])

    # -- commits ---------------------------------------------------------------------------------------------------------------
    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None, timeout_ms: float | None = None) -> None:
        """Commit what was handed out, or {TopicPartition: OffsetAndMetadata}: the next offset to consume. Returns when it is done.

        Raises CommitFailedError for partitions of subscribed topics that are not this member's, or not any more, other KafkaErrors for what cannot be
        mended. timeout_ms: None is request_timeout_ms. Without subscribe() and assign() nothing was handed out; offsets that are given are committed
        for a group without members.
        """
        consumer = self._committing()
        timeout_s = self._seconds(timeout_ms)
        if offsets is not None:
            self._commit_of(consumer, offsets, timeout_s)()
            if consumer is not None:
                for tp in self._unread.intersection(offsets):
                    self._place(consumer, tp, offsets[tp][0])
        elif consumer is not None:
            consumer.commit(timeout=timeout_s)

    def _commit_of(self, consumer: Consumer | None, offsets: Any, timeout_s: float, *, stays: bool = False) -> Callable[[], object]:
        """Begin to commit these: no later commit can overtake them. Return the function that does the rest.

        The caller has to call that function. stays: and again, if it was interrupted.
        """
        plain, notes, epochs = offsets_of(offsets)
        beside: Any = {"notes": notes, "epochs": epochs, "stays": stays}
        if consumer is None:
            return self._lookups.begin_commit(plain, timeout_s=timeout_s, **beside)
        elsewhere = {tp: offset for tp, offset in plain.items() if self._is_elsewhere(tp.topic)}
        shared = {tp: offset for tp, offset in plain.items() if tp not in elsewhere}
        finish = consumer.begin_commit(shared, timeout=timeout_s, **beside)
        if not elsewhere:
            return finish
        member = consumer.group_metadata()
        finish_elsewhere = self._lookups.begin_commit(elsewhere, timeout_s=timeout_s, **beside, member=member)

        def commit() -> None:
            try:
                finish()
            finally:
                finish_elsewhere()

        return commit

    def _is_elsewhere(self, topic: str) -> bool:
        """Is it a topic that this member does not share with its group? Whatever is committed of that is the program's own affair."""
        if isinstance(self._subscribed, re.Pattern):
            return self._subscribed.fullmatch(topic) is None
        return self._subscribed is not None and topic not in self._subscribed

    def commit_async(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None, callback: Callable[[Any, Any], object] | None = None
    ) -> Future:
        """The same in the background, in the order of the calls. callback(offsets, response) and the future get an OffsetCommitResponse or the exception."""
        consumer = self._committing()
        given: Any = offsets
        if offsets is None:
            stands = consumer.stands() if consumer is not None else {}
            given = {tp: OffsetAndMetadata(offset, "") for tp, offset in stands.items() if offset >= 0}
        commit = self._commit_of(consumer, given, self._seconds(None), stays=True)
        return self._commits.later(dict(given), told_by_name()(commit), callback)

    def _committing(self) -> Consumer | None:
        self._check_usable()
        if self.config["group_id"] is None:
            raise ImpossibleState("commit() without a group: give group_id")
        return self._consumer

    def committed(self, partition: TopicPartition, metadata: bool = False, timeout_ms: float | None = None) -> Any:
        """The offset that the group has committed, None where there is none. metadata: as OffsetAndMetadata."""
        self._check_open()
        tp = check_partition(partition)
        if self.config["group_id"] is None:
            raise ImpossibleState("committed() without a group: give group_id")
        return self._lookups.committed(tp, with_metadata=metadata, timeout_ms=timeout_ms)

    def group_metadata(self) -> GroupMetadata:
        """For KafkaProducer.send_offsets_to_transaction()."""
        consumer = self._committing()
        return consumer.group_metadata() if consumer is not None else GroupMetadata(self.config["group_id"])

    # -- looking up ------------------------------------------------------------------------------------------------------------
    def beginning_offsets(self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None) -> dict[TopicPartition, int]:
        """The oldest offset of each. Positions stay. Raises KafkaTimeoutError after timeout_ms, None is request_timeout_ms."""
        self._check_open()
        return self._lookups.offsets(check_partitions(partitions), -2, timeout_ms)

    def end_offsets(self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None) -> dict[TopicPartition, int]:
        """The offset behind the last record of each. Positions stay. Raises KafkaTimeoutError after timeout_ms, None is request_timeout_ms."""
        self._check_open()
        return self._lookups.offsets(check_partitions(partitions), -1, timeout_ms)

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """{TopicPartition: ms} to the first record at or after that; None where there is none. Raises an error that is a ValueError for a negative time,
        UnsupportedVersionError for brokers before 0.10.1."""
        self._check_open()
        return self._lookups.for_times(timestamps, timeout_ms)

    def partitions_for_topic(self, topic: str) -> set[int]:
        """The partitions of a topic; an empty set for one that is not there."""
        self._check_open()
        return self._lookups.partitions(topic)

    def topics(self) -> set[str]:
        """The topics that there are, as far as this user may see them."""
        self._check_open()
        return self._lookups.topics()

    def bootstrap_connected(self) -> bool:
        """Did a broker answer?"""
        return self._client.cluster.versions is not None

    def metrics(self, raw: bool = False) -> dict[str, Any]:
        """Numbers by group, as {"consumer-metrics": {name: number}}: counters and positions, and of each how fast it grows, `<name>_rate` per second,
        in the last metrics_num_samples windows of metrics_sample_window_ms. raw: `stats()` of the native client instead."""
        self._reporters.look()
        return self._client.stats() if raw else self._metrics()

    def _now(self) -> float:
        return self._handler.monotonic()

    def _metrics(self) -> dict[str, dict[str, float]]:
        stats = self._client.stats()
        return {"consumer-metrics": self._rates.beside(flat(stats["consumers"][0])) if stats["consumers"] else {}}

    # -- the end ---------------------------------------------------------------------------------------------------------------
    def _check_open(self) -> None:
        self._handler.check_fork()
        if self._closed:
            raise IllegalStateError("KafkaConsumer is closed: make a new one")

    def _seconds(self, timeout_ms: float | None) -> float:
        return float(self.config["request_timeout_ms"] if timeout_ms is None else check_seconds("timeout_ms", timeout_ms)) / 1000

    def _check_usable(self) -> None:
        """A listener can commit while the consumer leaves its group for good."""
        if self._leaving is None:
            self._check_open()

    @ends
    def close(self, autocommit: bool = True, timeout_ms: float | None = None) -> None:
        """Commit what was handed out (with enable_auto_commit, unless autocommit=False), leave the group and end. Idempotent; what is cut
        short is finished by the next one. timeout_ms: None is request_timeout_ms."""
        timeout_s = self._seconds(timeout_ms)
        self._closed = True
        self._autocommit = self._autocommit and autocommit  # what the first one did not want the next one does not
        self._ending.run(lambda: self._end(timeout_s))

    def _end(self, timeout_s: float) -> None:
        deadline = self._handler.monotonic() + timeout_s
        try:
            self._commits.finish(timeout_s)
            self._drop(commit=self._autocommit, timeout=max(0.0, deadline - self._handler.monotonic()))
        except ForkedClientError:
            pass  # the membership is the parent's
        except KafkaException as exc:
            log.warning("close: %s", exc)
        self._client.close(max(0.0, deadline - self._handler.monotonic()))
        self._reporters.close()

    def __enter__(self) -> KafkaConsumer:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: Any) -> None:
        self.close(autocommit=exc_type is None)


_NEXT = KafkaConsumer.__next__


def _of_deserializer(error: SerializationError) -> BaseException:
    """What the application's deserializer raised, with a note that says for which record."""
    raised = error.__cause__
    if raised is None:
        return error
    note = f"{error.topic}-{error.partition} offset {error.offset}: its deserializer failed; seek() passes it"
    if sys.version_info >= (3, 11) and note not in getattr(raised, "__notes__", ()):
        raised.add_note(note)
    return raised


class ImpossibleState(IllegalArgumentError, IllegalStateError):
    """An argument that does not fit what this consumer is, as a partition that is not assigned to it."""


def _nothing(*_: object) -> Any:
    """What poll() finds where nothing is read."""
    return {}


def by_partition(taken: list[Any]) -> dict[TopicPartition, list[Any]]:
    """Return records by their partition. A batch holds those of each in one piece."""
    found: dict[TopicPartition, list[Any]] = {}
    start = 0
    while start < len(taken):
        first, last = taken[start], taken[-1]
        tp = _place(first.topic, first.partition)
        stop = len(taken) if tp == (last.topic, last.partition) else _end_of(taken, tp, start)
        found[tp] = taken if not start and stop == len(taken) else taken[start:stop]
        start = stop
    return found


def _end_of(taken: list[Any], tp: TopicPartition, start: int) -> int:
    """Where the run of a partition's records ends."""
    low, high = start, len(taken) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if (taken[middle].topic, taken[middle].partition) == tp:
            low = middle
        else:
            high = middle
    return high


def _names(topics: Any) -> list[Any]:
    """Names of topics, as they were given."""
    if isinstance(topics, (str, Mapping)) or not (topics is None or isinstance(topics, Iterable)):
        raise WrongTypeError(refusal("topics", topics, "must be a list of names"))
    names = [] if topics is None else list(topics)
    for name in names:
        if not isinstance(name, (str, bytes)):
            raise WrongTypeError(refusal("topics", name, "must be a list of names"))
    return names
