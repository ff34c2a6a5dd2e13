"""One streaming query as its driver sees it between two calls of Spark: what there is to read, and what the next batch takes of it.

Nothing here imports pyspark; streamreader.py has the methods that Spark calls.
Source: spark-sql-kafka-0-10, KafkaMicroBatchStream and KafkaOffsetReaderAdmin (4.2).
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from gkafka.exceptions import KafkaException, UnknownTopicOrPartition
from gkafka.logs import get_logger
from gkafka.skins import Handler
from gkafka.spark.admission import TriggerDelay, rate_limit, waiting
from gkafka.spark.driver import Asked, Start, divided
from gkafka.spark.groupcommits import GroupCommits
from gkafka.spark.offsets import (
    AtTimestamp,
    AtTimestamps,
    Offsets,
    TopicPartition,
    moves_with_the_end,
    name_list,
    present_groups,
    stream_ranges,
)
from gkafka.spark.options import SourceOptions
from gkafka.spark.planner import Group, task_count

__all__ = ["AvailableNowError", "NextBatch", "StreamDriver"]

log = get_logger(__name__)

PARTITIONS_S = 1.0
"""How old the list of partitions may be: a partition that is added is found within that."""
RESTART = "The error could be transient - restart your query, and report if you still see the same issue."


class AvailableNowError(KafkaException):
    """The partitions changed under a query with Trigger.AvailableNow in a way that leaves it without an end to reach."""


class Partitions(NamedTuple):
    """What the options named at a time."""

    found: list[TopicPartition]
    at: float


class Ends(NamedTuple):
    """The latest offsets at a time."""

    found: Offsets
    at: float


class NextBatch(NamedTuple):
    """Where the next batch ends, and what is to stand beside that in the checkpoint: to_spark() says what it is."""

    end: Offsets
    tasks: int | None
    starts: Offsets


class StreamDriver:
    """Its state is the query's: what Spark does not hand over at each call."""

    def __init__(self, options: SourceOptions, handler: Handler) -> None:
        stream = options.stream
        self._options, self._stream, self._handler = options, stream, handler
        self._asked = Asked(options)
        self._delay = TriggerDelay(stream.min_offsets, stream.max_delay_ms / 1000) if stream.min_offsets is not None else None
        self._commits = GroupCommits(options, handler) if stream.commit_group is not None else None
        self._start: Start | None = None  # of a query without a checkpoint
        self._is_under_way = False  # a batch was planned, or its end was told
        self._position: Offsets | None = None  # the end of the last batch that was planned
        self._target: Offsets | None = None  # where Trigger.AvailableNow ends
        self._target_is_told = False
        self._partitions: Partitions | None = None
        self._ends: Ends | None = None

    # -- what Spark asks, in about this order --------------------------------------------------------------------------------
    def prepare_available_now(self) -> None:
        """Whatever comes from now on is for another run: new records, and new partitions."""
        self._target = self._latest({})

    def initial(self) -> Offsets:
        """Where a query without a checkpoint begins; the same each time."""
        if self._start is None:
            offsets, ends = self._asked.start()
            if self._target is not None:
                offsets = {
                    at: min(offset, self._target[at]) if at in ends else offset for at, offset in offsets.items() if at in self._target
                }
            self._start = Start(offsets, ends)
            log.info("initial offsets: %s", offsets)
        return self._start.offsets

    def next_batch(self, start: Offsets | None, *, everything: bool, limit: int | None = None) -> NextBatch:
        """The end of the next batch, which is `start` itself if there is none now; and how it is to be divided.

        start: the end of the last batch that Spark has committed; None on Spark 4.0 and 4.1, which do not say: there it is that of the last batch that was
        planned, since one that fails ends the query. everything: caps do not count. limit: a cap other than maxOffsetsPerTrigger.
        """
        begin = start if start is not None else self._own_position()
        self._note_progress(begin)
        is_first = self._first is not None
        first = self._first if moves_with_the_end(self._options.start) else None
        if first is not None and first.offsets.keys() <= first.ends:
            self._is_under_way = True
            return NextBatch(begin, None, {})
        ends = self._ends_for(begin) if first is None else _first_ends(first, self._ends_for(begin))
        self._is_under_way, self._target_is_told = True, self._target is not None
        if not everything and self._is_too_early(begin, ends):
            return NextBatch(begin, None, {})
        starts = self._asked.earliest(ends.keys() - begin.keys())
        begin = {**begin, **starts}
        limit = limit if limit is not None else self._stream.max_offsets
        if limit is not None and not everything:
            ends = rate_limit(limit, begin, ends)
        if is_first:
            starts = {at: begin[at] for at in ends.keys() & begin.keys()}
        return NextBatch(ends, self._task_count(begin, ends), starts)

    def latest_known(self) -> Offsets | None:
        """The latest offsets, as the last batch's end was found from them; None if there are none."""
        known = self._target or (self._ends.found if self._ends is not None else self._start and self._start.offsets)
        return known or None

    def _task_count(self, begin: Offsets, end: Offsets) -> int | None:
        """Into how many tasks a new batch is to be divided; None: one for each partition."""
        if self._options.tasks is None:
            return None
        return task_count(sum(max(0, offset - begin.get(at, 0)) for at, offset in end.items()), self._options.tasks)

    def tasks(self, start: Offsets, end: Offsets, count: int | None, starts: Offsets) -> list[Group]:
        """The Spark tasks of a batch. count, starts: what stands beside its end. Raises DataLossError, AvailableNowError, KafkaException.

        The ranges and their division are made of what the checkpoint says, not of what the cluster has by now: a batch that is run again has the same tasks
        with the same numbers, by which an exactly-once sink knows what they have written. What is lost by now is left out of its task. Where the checkpoint
        does not tell the starts (the JVM connector's, for one), the cluster is asked.
        """
        # Spark 4.0 and 4.1 begin a restart with tasks(x, x): x is the end of the last batch in the log, committed or not. That is no batch, and who
        # has not asked for the initial offsets may yet do so, for a first batch that is planned again.
        planned_again, self._position = self._first, end
        self._is_under_way = self._start is not None
        if planned_again is not None:
            log.info("the first batch is planned again after a restart, with the end %s", end)
            start = {**self._first_start(planned_again, end), **starts}
        if self._target_is_told:
            self._check_target(end)
        added = {at: starts[at] for at in (end.keys() - start.keys()) & starts.keys()}
        added.update(self._asked.earliest(end.keys() - start.keys() - added.keys()))
        fails = self._options.fail_on_data_loss
        ranges = stream_ranges(start, end, added, fail_on_data_loss=fails)
        groups = divided(self._options, ranges, count)
        if groups:  # a batch that is run again may be of a topic that is gone by now
            groups = present_groups(groups, self._present_partitions(), fail_on_data_loss=fails)
        return groups

    @property
    def topic_ids(self) -> dict[str, UUID]:
        """Those of the topics as they were last looked for."""
        return self._asked.topic_ids

    def close(self) -> None:
        if self._commits is not None:
            self._commits.close()

    # -- the first batch ---------------------------------------------------------------------------------------------------
    @property
    def _first(self) -> Start | None:
        """Where the query begins, if this call is about its first batch, as this process sees it first.

        A checkpoint keeps the end of batch 0, but not its start: after a crash in it Spark asks for the initial offsets again, which may be others by then,
        so that they stand beside the end. Of a partition that begins where it ends, batch 0 has nothing, and its end there is the start: so it is also
        in a checkpoint without them. (The JVM connector keeps its initial offsets in a file of its own; the Python API tells nobody where the checkpoint is.)
        """
        return None if self._is_under_way else self._start

    def _first_start(self, now: Start, end: Offsets) -> Offsets:
        """The start of the first batch, whose end is in the checkpoint. now: where the query would begin by now, partitions that came since included."""
        option = self._options.start
        # It began where it ended, for no record had the timestamp. The first that has it came later, and is for a later batch.
        may_come_later = isinstance(option, (AtTimestamp, AtTimestamps)) and option.latest
        return {
            at: end[at] if at in now.ends or (may_come_later and offset > end[at]) else offset
            for at, offset in now.offsets.items()
            if at in end
        }

    def _own_position(self) -> Offsets:
        return self._position if self._position is not None else self.initial()

    # -- what there is -----------------------------------------------------------------------------------------------------
    def _ends_for(self, begin: Offsets) -> Offsets:
        if self._target is not None:
            return self._target
        now, kept = self._handler.monotonic(), self._ends
        is_young = kept is not None and now - kept.at < self._stream.offset_cache_ms / 1000
        if kept is None or not is_young or _behind(kept.found, begin):
            kept = self._ends = Ends(self._latest(begin), now)
        return kept.found

    def _latest(self, known: Offsets) -> Offsets:
        """The latest offsets, asked again if they lie before what was read: for a moment a new leader may not know better (KAFKA-7703)."""
        for tries in range(1, self._options.offset_tries + 1):
            ends = self._latest_of_present_partitions()
            behind = _behind(ends, known)
            if not behind or tries == self._options.offset_tries:
                break
            log.warning("try %d: the latest offsets of %s lie before what was read, asking again", tries, name_list(behind))
            self._handler.sleep(self._options.offset_retry_ms / 1000)
        return ends

    def _latest_of_present_partitions(self) -> Offsets:
        try:
            return self._asked.latest(self._present_partitions())
        except UnknownTopicOrPartition:  # deleted since the list was made
            self._partitions = None
            return self._asked.latest(self._present_partitions())

    def _present_partitions(self) -> list[TopicPartition]:
        now = self._handler.monotonic()
        if self._partitions is None or now - self._partitions.at >= PARTITIONS_S:
            self._partitions = Partitions(self._asked.partitions(missing_ok=True), now)
        return self._partitions.found

    def _is_too_early(self, begin: Offsets, ends: Offsets) -> bool:
        """minOffsetsPerTrigger; not with AvailableNow, which would end with records unread."""
        if self._delay is None or self._target is not None:
            return False
        return self._delay.holds_back(waiting(begin, ends), self._handler.monotonic())

    # -- Trigger.AvailableNow ----------------------------------------------------------------------------------------------
    def _check_target(self, end: Offsets) -> None:
        target = self._target or {}
        if target.keys() != end.keys():
            raise AvailableNowError(
                "Kafka data source in Trigger.AvailableNow should provide the same topic partitions in pre-fetched offset to end offset for each "
                f"microbatch. {RESTART} topic-partitions for pre-fetched offset: {name_list(target)}, topic-partitions for end offset: {name_list(end)}."
            )
        latest = self._latest(end)
        if lost := end.keys() - latest.keys():
            raise AvailableNowError(
                f"Some of partitions in Kafka topic(s) have been lost during running query with Trigger.AvailableNow. {RESTART} "
                f"lost: {name_list(lost)}, topic-partitions for end offset: {name_list(end)}"
            )
        for topic, partition in _behind(latest, end):
            raise AvailableNowError(
                "Some of partitions in Kafka topic(s) report available offset which is less than end offset during running query with "
                f"Trigger.AvailableNow. {RESTART} {topic}-{partition}: latest offset: {latest[topic, partition]}, end offset: {end[topic, partition]}",
                topic=topic,
                partition=partition,
            )

    # -- lag in Kafka ------------------------------------------------------------------------------------------------------
    def _note_progress(self, reached: Offsets) -> None:
        if self._commits is not None:
            self._commits.offer(reached, wait=self._target is not None and reached == self._target)


def _first_ends(first: Start, ends: Offsets) -> Offsets:
    """The end of the first batch: nothing of partitions that begin where they end, or that came since."""
    return {at: first.offsets[at] if at in first.ends else offset for at, offset in ends.items() if at in first.offsets}


def _behind(found: Offsets, known: Offsets) -> list[TopicPartition]:
    """The partitions that end before what is known of them."""
    return sorted(at for at in found.keys() & known.keys() if found[at] < known[at])
