"""What SimpleConsumer and MultiProcessConsumer have in common (kafka.consumer.base): partitions, offsets, commits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gkafka.checks import check_flag, check_name, check_topic_name
from gkafka.common import TopicPartition
from gkafka.exceptions import KafkaException, UnknownTopicOrPartition
from gkafka.groupoffsets import GroupOffsets
from gkafka.kafka import options as o
from gkafka.kafka.errors import IllegalStateError
from gkafka.kafka.legacy.client import CLIENT_NAMES, KafkaClient, native_client
from gkafka.kafka.legacy.common import Message, OffsetAndMessage, check_partition_ids
from gkafka.kafka.legacy.keywords import hinting
from gkafka.kafka.legacy.reading import ends_of
from gkafka.kafka.legacy.triggers import Triggers, check_every
from gkafka.lifetime import ends
from gkafka.logs import get_logger
from gkafka.oneprocess import OfOneProcess

__all__ = ["AUTO_COMMIT_INTERVAL", "AUTO_COMMIT_MSG_COUNT", "Consumer", "telling"]

log = get_logger(__name__)

AUTO_COMMIT_MSG_COUNT = 100
AUTO_COMMIT_INTERVAL = 5000
NAMES = {**CLIENT_NAMES, "fetch_message_max_bytes": "buffer_size", "fetch_min_bytes": "fetch_size_bytes"}
telling = o.telling(NAMES, also=["__init__"])


@hinting
@telling
class Consumer(OfOneProcess):
    """Base of the consumers, not to be used directly: it knows the topic's partitions, where the group stands, and when to commit.

    offsets: by partition, the next one to be handed out. It begins with what the group has committed, and at the start of the log where it has
    committed nothing. group: None keeps no offsets: nothing is committed then. auto_commit: after auto_commit_every_n messages and after
    auto_commit_every_t ms, whichever comes first; None or 0: not by that.
    """

    _ended = True  # stop() has nothing to do

    def __init__(
        self,
        client: Any,
        group: str | bytes | None,
        topic: str,
        partitions: Iterable[int] | None = None,
        auto_commit: bool = True,
        auto_commit_every_n: int | None = AUTO_COMMIT_MSG_COUNT,
        auto_commit_every_t: float | None = AUTO_COMMIT_INTERVAL,
    ) -> None:
        self._stopped = True  # until it is complete
        self.client = client
        self._client = native_client(client)
        self._handler = self._client.handler
        self._patience_s = self._client.cluster.config.socket_timeout_ms / 1000
        self.topic = check_topic_name(topic)
        self.group = None if group is None else check_name("group", group)
        self.auto_commit = check_flag("auto_commit", auto_commit)
        check_every(auto_commit_every_n=auto_commit_every_n, auto_commit_every_t=auto_commit_every_t)
        self.auto_commit_every_n, self.auto_commit_every_t = auto_commit_every_n, auto_commit_every_t
        self.partition_info = False
        self._of_group = GroupOffsets(self._client.cluster, self.group)
        self.offsets: dict[int, int] = {}
        self._stored: dict[int, int] = {}
        self._waiting: list[tuple[int, int, bytes | None, bytes | None]] = []
        there = self._client.partitions(self.topic)
        chosen = there if partitions is None else check_partition_ids("partitions", partitions)
        for partition in chosen:
            if partition not in there:
                text = f"topic {self.topic!r} has no partition {partition}: it has {there[0]} to {there[-1]}"
                raise UnknownTopicOrPartition(text, topic=self.topic, partition=partition)
        self._load(chosen)
        automatic = self.auto_commit and self.group is not None
        every_n, every_t = (auto_commit_every_n, auto_commit_every_t) if automatic else (None, None)
        self._triggers = Triggers(self._handler, self.commit, every_n=every_n, every_ms=every_t)
        self._stopped = self._ended = False
        if isinstance(client, KafkaClient):
            client.stops(self)

    def __repr__(self) -> str:
        if "_stopped" not in self.__dict__:  # it could not be made, and a traceback shows it
            return f"<{type(self).__name__}>"
        state = " stopped" if self._stopped else ""
        return f"<{type(self).__name__} group={self.group!r}, topic={self.topic!r}, partitions={sorted(self.offsets)}{state}>"

    def _tp(self, partition: int) -> TopicPartition:
        return TopicPartition(self.topic, partition)

    def _chosen(self, partitions: Iterable[int] | None) -> list[int]:
        if partitions is None:
            return list(self.offsets)
        chosen = check_partition_ids("partitions", partitions)
        for partition in chosen:
            if partition not in self.offsets:
                text = f"partition {partition} of {self.topic!r} is not this consumer's: it has {sorted(self.offsets)}"
                raise UnknownTopicOrPartition(text, topic=self.topic, partition=partition)
        return chosen

    def _load(self, partitions: list[int]) -> None:
        tps = [self._tp(partition) for partition in partitions]
        found: dict[TopicPartition, int] = {}
        if self.group is not None:
            committed = self._of_group.committed(tps, timeout_s=self._patience_s)
            found = {tp: entry.offset for tp, entry in committed.items() if entry.offset >= 0}
        begin = ends_of(self._client, [tp for tp in tps if tp not in found], -2, self._handler.monotonic() + self._patience_s, patient=True)
        self._stored.update({tp.partition: (found | begin)[tp] for tp in tps})
        self.offsets.update({partition: self._stored[partition] for partition in partitions})

    def fetch_last_known_offsets(self, partitions: Iterable[int] | None = None) -> None:
        """Go on where the group has committed. partitions: None is all of them."""
        self._check_open()
        self._load(self._chosen(partitions))

    def provide_partition_info(self) -> None:
        """Have messages come with their partition from now on: as (partition, message)."""
        self.partition_info = True

    def commit(self, partitions: Iterable[int] | None = None) -> bool:
        """Commit where this consumer stands. partitions: None is all of them. True when it is done; raises KafkaErrors for what cannot be mended."""
        if self.group is None:
            raise IllegalStateError("commit() without a group: give group")
        self._handler.check_fork()
        wanted = {p: offset for p in self._chosen(partitions) if (offset := self.offsets[p]) != self._stored[p]}
        self._triggers.restart()
        if wanted:
            self._of_group.commit({self._tp(p): offset for p, offset in wanted.items()}, timeout_s=self._patience_s)
            self._stored.update(wanted)
        return True

    def _hand_out(self, count: int, with_partition: bool) -> list[Any]:
        """Up to count of those that wait, as messages or as (partition, message): offsets move, and a commit that is due is made. The last step of a call: whom an
        exception takes away before the end of it has been given nothing, and all of them still wait.
        """
        taken = self._waiting[:count]
        if not taken:
            return []
        try:
            found: list[Any] = [plain(offset, key, value) for _, offset, key, value in taken]
            if with_partition:
                found = [(one[0], message) for one, message in zip(taken, found, strict=True)]
            self.offsets.update({partition: offset + 1 for partition, offset, *_ in taken})
            self._triggers.count(len(found))
            del self._waiting[: len(taken)]
            return found
        except BaseException:  # the commit may have been cut short, and the broker may have it
            if not self._waiting or self._waiting[0] is not taken[0]:
                self._waiting[:0] = taken
            self.offsets.update({partition: offset for partition, offset, *_ in reversed(taken)})
            self._stored.update({partition: -1 for partition, *_ in taken})
            raise

    def pending(self, partitions: Iterable[int] | None = None) -> int:
        """How many messages wait in these partitions, in all of them by default: offsets between where this consumer stands and the end."""
        self._check_open()
        chosen = self._chosen(partitions)
        ends = ends_of(self._client, [self._tp(p) for p in chosen], -1, self._handler.monotonic() + self._patience_s)
        return sum(max(0, ends[self._tp(p)] - self.offsets[p]) for p in chosen)

    def _check_open(self) -> None:
        self._handler.check_fork()
        if self._stopped:
            raise IllegalStateError(f"{type(self).__name__} is stopped: make a new one")

    @ends
    def stop(self) -> None:
        """End, and with auto_commit and auto_commit_every_t commit what was handed out. Idempotent; what is cut short is finished by the next one."""
        self._stopped = True
        if self._ended:
            return
        if not self._handler.was_forked:  # else its worker and the offsets are the parent's
            self._triggers.stop(self._patience_s)
            try:
                if self._triggers.keeps_time:
                    self.commit()
            except KafkaException as exc:
                log.error("group %s: the last commit failed, messages may be consumed again: %s", self.group, exc)
        self._ended = True

    def end(self, patience_s: float) -> None:
        """stop() that waits no longer for one answer."""
        self._patience_s = min(self._patience_s, patience_s)
        self.stop()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()


def plain(offset: int, key: bytes | None, value: bytes | None) -> OffsetAndMessage:
    """A record as 0.9 hands it out."""
    return OffsetAndMessage(offset, Message(0, 0, key, value))
