"""The native consumer: any number of topics, a pattern of them, or partitions; positions, pauses, commits, deserializers.

A thin skin of `gkafka.nativeconsumer`: what it adds is which partitions are read, and what counts as finished.
"""

from __future__ import annotations

import logging
import re
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from gkafka.checks import (
    check_count,
    check_mapping,
    check_name,
    check_offset,
    check_partition,
    check_seconds,
    check_timestamp,
    check_topic_name,
    check_wait,
)
from gkafka.common import TopicPartition
from gkafka.config import NativeConsumerConfig
from gkafka.core.offsets import Committed
from gkafka.deserializing import Deserializers
from gkafka.exceptions import ConfigurationError, ConsumerStoppedException, KafkaException
from gkafka.nativeconsumer import NativeConsumer

if TYPE_CHECKING:
    from types import TracebackType

    from gkafka.cluster import Cluster

__all__ = ["Consumer"]

log = logging.getLogger(__name__)

EARLIEST, LATEST = -2, -1
POLICIES = {"earliest": EARLIEST, "latest": LATEST, "none": None}
TICK_S = 1.0
SNAPSHOT_S = 0.1
"""How often it is written down what is finished: not for each of a million messages."""
EXAMPLE = '{("topic", 0): 5}'


class Consumer:
    """Made by client.get_consumer(). Several workers may consume at once: each record goes to one of them.

    topics: a name, names, a compiled pattern (topics that match and are made later are read, too), or None: assign() says what to read.
    group: where positions are committed; partitions of an assignment start where the group has committed.
    """

    def __init__(self, cluster: Cluster, config: NativeConsumerConfig, *, topics: Any = None, group: str | bytes | None = None) -> None:
        self._cluster, self._config, self._handler = cluster, config, cluster.handler
        self._group = check_name("group", group) if group is not None else None
        self._names, self._pattern = _topics(topics)
        if topics is not None and self._group is not None:
            raise ConfigurationError(
                f"group={self._group!r} with topics: sharing topics among a group's members is not available in this consumer yet; leave group out, "
                "or assign() partitions yourself and commit for the group"
            )
        if config.auto_commit and self._group is None:
            raise ConfigurationError("auto_commit=True needs a group")
        self._policy = POLICIES[config.auto_offset_reset]
        self._deserializers = Deserializers(cluster, config)
        self._engine = NativeConsumer(cluster, config, reset_policy=self._policy, group=self._group)
        self._engine.on_close = weakref.WeakMethod(self.stop)
        self._following = self._handler.Lock()
        self._seen_version = -1
        self._listed_at = -float("inf")
        self._finished: dict[TopicPartition, int] = {}
        self._finished_at = -float("inf")
        self._committed: dict[TopicPartition, int] = {}
        self._error: KafkaException | None = None
        self._committer: Any = None
        self._wake = self._handler.Event()
        cluster.sleepers.add(self._wake)
        self._engine.start()
        if topics is not None:
            self._subscribe()

    def __repr__(self) -> str:
        what = self._pattern.pattern if self._pattern is not None else ",".join(self._names)
        return f"<{type(self).__module__}.{type(self).__name__} at {id(self):#x} (topics={what!r}, group={self._group!r})>"

    # -- what is read ----------------------------------------------------------------------------------------------------------
    def assign(self, partitions: Iterable[Any] | Mapping[Any, int], *, timeout: float | None = None) -> None:
        """Read these partitions and no others: (topic, partition) pairs, or pairs -> the offset to start from (-2 earliest, -1 latest).

        Without an offset a partition starts where the group has committed, else by auto_offset_reset. timeout: seconds, for that look-up.
        """
        if self._names or self._pattern is not None:
            raise ConfigurationError("assign() on a consumer that was given topics: make one without")
        given: dict[TopicPartition, int | None]
        if isinstance(partitions, Mapping):
            given = {_partition(key): check_offset("offset", offset, low=EARLIEST) for key, offset in partitions.items()}
        else:
            given = dict.fromkeys(_partitions(partitions))
        self._check_running()
        starts, epochs = self._starts(given, timeout)
        self._finished.clear()
        self._committed.clear()
        self._engine.assign(starts, epochs=epochs)
        self._start_committer()

    def _starts(
        self, given: Mapping[TopicPartition, int | None], timeout: float | None
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        open_ends = [tp for tp, offset in given.items() if offset is None]
        found: dict[TopicPartition, Committed] = {}
        if open_ends and self._group is not None:
            found = self._engine.committed(open_ends, timeout_s=self._timeout_s(timeout))
        starts: dict[TopicPartition, int] = {}
        for tp, offset in given.items():
            committed = found[tp].offset if tp in found else -1
            start = offset if offset is not None else committed if committed >= 0 else self._policy
            if start is None:
                text = (
                    f"{tp.topic}-{tp.partition}: nothing is committed and auto_offset_reset='none': give assign() the offset to start from"
                )
                raise ConfigurationError(text, topic=tp.topic, partition=tp.partition)
            starts[tp] = start
        return starts, {tp: found[tp].leader_epoch for tp in found if starts[tp] == found[tp].offset}

    def _subscribe(self) -> None:
        if self._policy is None:
            raise ConfigurationError("auto_offset_reset='none' with topics: there is no offset to start from; use assign({...: offset})")
        if self._pattern is not None:
            self._cluster.update()
            self._listed_at = self._handler.monotonic()
        for name in self._names:
            self._cluster.wait_for_topic(name)
        self._follow(first=True)

    def _follow(self, *, first: bool = False) -> None:
        """Read the partitions that have come into being since: from their start, whatever the policy, since all they hold is new."""
        if not self._names and self._pattern is None:
            return
        metadata = self._cluster.metadata
        now = self._handler.monotonic()
        if self._pattern is not None and now - self._listed_at > self._cluster.config.metadata_max_age_ms / 1000:
            self._listed_at = now
            metadata.want_everything()
        if metadata.version == self._seen_version or not self._following.acquire(blocking=False):
            return
        try:
            self._seen_version = metadata.version
            here = self._engine.positions()
            wanted = [TopicPartition(name, p) for name in self._wanted_topics() for p in sorted(metadata.topics[name].partitions)]
            news = [tp for tp in wanted if tp not in here]
            if news:
                self._engine.add(dict.fromkeys(news, self._policy if first and self._policy is not None else EARLIEST))
        finally:
            self._following.release()

    def _wanted_topics(self) -> list[str]:
        metadata = self._cluster.metadata
        if self._pattern is None:
            return [name for name in self._names if metadata.topic(name) is not None]
        usable = {name for name, info in list(metadata.topics.items()) if not info.is_internal and metadata.topic(name) is not None}
        return sorted(name for name in usable if self._pattern.fullmatch(name))

    def assignment(self) -> set[TopicPartition]:
        """The partitions that are read."""
        return set(self._engine.positions())

    # -- consuming -------------------------------------------------------------------------------------------------------------
    def consume(self, timeout_ms: float | None = None) -> Any | None:
        """The next message; None after timeout_ms (None: consume_timeout_ms) without one. Raises what consume_batch() raises."""
        messages = self.consume_batch(1, timeout_ms)
        return messages[0] if messages else None

    def consume_batch(self, max_messages: int | None = None, timeout_ms: float | None = None) -> list[Any]:
        """Up to max_messages (None: what is there), waiting up to timeout_ms (None: consume_timeout_ms) for the first; [] if none came.

        Calling it says that what earlier calls returned is finished: that is what the commits in the background commit. Raises errors that
        stand in the way of a partition, as CorruptRecordError, LogTruncationError and SerializationError, each with its place; nothing is
        skipped by that.
        """
        wanted = None if max_messages is None else check_count("max_messages", max_messages, high=(1 << 63) - 1)
        limit_ms = self._config.consume_timeout_ms if timeout_ms is None else check_seconds("timeout_ms", timeout_ms)
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        now = self._handler.monotonic()
        deadline = now + limit_ms / 1000
        while True:
            if self._committer is not None and now >= self._finished_at + SNAPSHOT_S:
                self._finished, self._finished_at = self._engine.positions(), now
            self._follow()
            left_ms = max(0.0, (deadline - self._handler.monotonic()) * 1000)
            # In steps, so that partitions that come into being are noticed.
            messages = self._engine.consume_batch(wanted, min(left_ms, TICK_S * 1000))
            if messages and self._deserializers.are_given:
                messages = self._deserializers.apply(self._engine, messages, self._timeout_s(None))
            now = self._handler.monotonic()
            if messages or now >= deadline:
                return messages

    def __iter__(self) -> Iterator[Any]:
        """Messages, until stop()."""
        while not self.closed:
            try:
                message = self.consume()
            except ConsumerStoppedException:
                if self.closed:
                    return
                raise
            if message is not None:
                yield message

    # -- positions -------------------------------------------------------------------------------------------------------------
    def position(self, partition: Any) -> int:
        """The offset of the next record of a (topic, partition), -1 while it is not known."""
        return self._engine.position(_partition(partition))

    def positions(self) -> dict[TopicPartition, int]:
        """The same for every partition."""
        return self._engine.positions()

    def seek(self, partition: Any, offset: int) -> None:
        """Go on from an offset, or from -2 / -1 for the earliest / latest one."""
        self._engine.seek(_partition(partition), check_offset("offset", offset, low=EARLIEST))

    def pause(self, partitions: Iterable[Any]) -> None:
        """Hand nothing of these out and fetch nothing of them until resume()."""
        self._engine.pause(_partitions(partitions))

    def resume(self, partitions: Iterable[Any]) -> None:
        """Go on with paused partitions from where they stand."""
        self._engine.resume(_partitions(partitions))

    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused."""
        return self._engine.paused()

    def lag(self) -> dict[TopicPartition, int]:
        """Records between the position and the end of each partition as its broker last told it, -1 where it was not told yet."""
        return self._engine.lag()

    def offsets_for_times(self, wanted: Mapping[Any, int], *, timeout: float | None = None) -> dict[TopicPartition, int]:
        """(topic, partition) -> ms since the epoch, to the offset of the first record at or after that; -1 where there is none."""
        asked = {_partition(key): check_timestamp("timestamp", at) for key, at in check_mapping("wanted", wanted, EXAMPLE).items()}
        level = 1 if self._config.isolation_level == "read_committed" else 0
        deadline = self._handler.monotonic() + self._timeout_s(timeout)
        found = self._cluster.list_offsets({(tp.topic, tp.partition): at for tp, at in asked.items()}, deadline, isolation_level=level)
        return {tp: offsets[0] if (offsets := found.get((tp.topic, tp.partition))) else -1 for tp in asked}

    # -- commits ---------------------------------------------------------------------------------------------------------------
    def commit(self, offsets: Mapping[Any, int] | None = None, *, timeout: float | None = None) -> None:
        """Commit where this consumer stands, or (topic, partition) -> the next offset to consume. timeout: seconds."""
        given = None
        if offsets is not None:
            given = {_partition(key): check_offset("offset", o) for key, o in check_mapping("offsets", offsets, EXAMPLE).items()}
        stands = self._engine.positions() if given is None else given
        # Before it goes out: a commit in the background must not take the group back to what was known to be finished before.
        self._finished = {**self._finished, **stands}
        self._engine.commit(stands, timeout_s=self._timeout_s(timeout))
        self._committed.update(stands)

    def committed(self, partition: Any, *, timeout: float | None = None) -> int:
        """The offset that the group has committed of a (topic, partition), -1 where there is none. timeout: seconds."""
        tp = _partition(partition)
        return self._engine.committed([tp], timeout_s=self._timeout_s(timeout))[tp].offset

    def _timeout_s(self, timeout: float | None) -> float:
        return self._cluster.config.api_timeout_ms / 1000 if timeout is None else check_wait("timeout", timeout)

    def _start_committer(self) -> None:
        if self._committer is None and self._group is not None and self._config.auto_commit is not False:
            self._committer = self._handler.spawn(_auto_commit, weakref.ref(self), _name="gkafka-autocommit")

    def _commit_finished(self, timeout_s: float) -> None:
        news = {tp: offset for tp, offset in self._finished.items() if offset >= 0 and self._committed.get(tp) != offset}
        if news:
            self._engine.commit(news, timeout_s=timeout_s)
            self._committed.update(news)

    # -- life ------------------------------------------------------------------------------------------------------------------
    def stop(self) -> None:
        """Commit what was handed out (with auto_commit), stop fetching, end the workers. Idempotent."""
        self._stop(all_finished=True)

    def _stop(self, *, all_finished: bool = False) -> None:
        if self._engine.closed:
            return
        self._engine.stop()  # first: what another worker takes behind the commit would be consumed again (B24)
        if all_finished:
            self._finished = self._engine.positions()
        if self._committer is not None:
            try:
                self._commit_finished(self._cluster.config.offsets_channel_socket_timeout_ms / 1000)
            except KafkaException as exc:
                log.error("group %s: the last commit failed, messages may be consumed again: %s", self._group, exc)
        self._wake.set()
        if self._committer is not None:
            self._committer.join(TICK_S * 2)
        self._deserializers.close(TICK_S)

    close = stop

    @property
    def closed(self) -> bool:
        """Is it stopped?"""
        return self._engine.closed

    def _check_running(self) -> None:
        self._handler.check_fork()
        if self._engine.closed:
            raise ConsumerStoppedException("the consumer was stopped: make a new one")

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None) -> None:
        if exc_type is None:
            self.stop()
        else:  # what the last call returned was not finished
            self._stop()

    def stats(self) -> dict[str, Any]:
        """Counters of the engine, and of records that no deserializer could read."""
        return {**self._engine.stats(), "undeserialized": self._deserializers.failed}


def _topics(given: Any) -> tuple[list[str], re.Pattern[str] | None]:
    if given is None:
        return [], None
    if isinstance(given, re.Pattern):
        if not isinstance(given.pattern, str):
            raise ConfigurationError(f"topics={given!r}: must be a pattern of text, as re.compile('logs-.*')")
        return [], given
    names = [given] if isinstance(given, (str, bytes)) else list(given) if isinstance(given, Iterable) else None
    if not names:
        raise ConfigurationError(f"topics={given!r}: must be a name, a list of names, or a compiled pattern")
    return list(dict.fromkeys(check_topic_name(name) for name in names)), None


def _partition(given: Any) -> TopicPartition:
    if not isinstance(given, tuple) or len(given) != 2:
        raise ConfigurationError(f"partition={given!r}: must be (topic, partition), as in {EXAMPLE}")
    return TopicPartition(check_topic_name(given[0]), check_partition("partition", given[1]))


def _partitions(given: Any) -> list[TopicPartition]:
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise ConfigurationError(f"partitions={given!r}: must be a list of (topic, partition)")
    return [_partition(one) for one in given]


def _auto_commit(me: weakref.ref[Consumer]) -> None:
    while True:
        consumer = me()
        if consumer is None or consumer.closed:
            return
        handler, wake, interval_s = consumer._handler, consumer._wake, consumer._config.auto_commit_interval_ms / 1000
        handler.check_fork()
        try:
            consumer._commit_finished(consumer._timeout_s(None))
        except KafkaException as exc:
            if not consumer.closed:
                log.error("group %s: auto commit failed: %s", consumer._group, exc)
                consumer._error = exc
        due = handler.monotonic() + interval_s
        del consumer
        # In steps: a consumer that was dropped without stop() is noticed. Whoever hears of fresh metadata wakes it, too.
        while (left := due - handler.monotonic()) > 0:
            wake.clear()
            found = me()
            if found is None or found.closed:
                return
            del found
            wake.wait(min(left, TICK_S))
