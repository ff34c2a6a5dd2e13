"""What a KafkaConsumer asks the cluster beside consuming."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from gkafka.checks import check_seconds, check_topic_name
from gkafka.client import KafkaClient
from gkafka.common import TopicPartition
from gkafka.exceptions import (
    CommitFailedError,
    IllegalGeneration,
    KafkaTimeoutError,
    LeaderNotFoundError,
    RebalanceInProgress,
    RetriableError,
    UnknownMemberId,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from gkafka.groupoffsets import GroupOffsets, Identity
from gkafka.kafka.arguments import check_partition
from gkafka.kafka.errors import IllegalArgumentError, UnknownPartitionError, WrongTypeError
from gkafka.kafka.structs import OffsetAndMetadata, OffsetAndTimestamp
from gkafka.skins import GroupMetadata
from gkafka.wire.offsets import ListOffsetsRequest

if TYPE_CHECKING:
    from gkafka.cluster import Cluster

__all__ = ["Lookups", "offsets_in_time"]


def offsets_in_time(
    cluster: Cluster, asked: Mapping[tuple[str, int], int], deadline: float, **more: Any
) -> dict[tuple[str, int], list[int]]:
    """Cluster.list_offsets(), whose error for a partition without a leader is a KafkaTimeoutError here, as documented. It comes
    as soon as that is known."""
    try:
        return cluster.list_offsets(asked, deadline, **more)
    except LeaderNotFoundError as exc:
        raise KafkaTimeoutError(*exc.args, **exc.about) from exc


class Lookups:
    """Each call ends after request_timeout_ms. options: a KafkaConsumer's."""

    def __init__(self, client: KafkaClient, options: Mapping[str, Any]) -> None:
        self._client, self._options = client, options
        self._offsets = GroupOffsets(client.cluster, options["group_id"])

    def _deadline(self, timeout_ms: float | None) -> float:
        wait_ms = self._options["request_timeout_ms"] if timeout_ms is None else check_seconds("timeout_ms", timeout_ms)
        return self._client.handler.monotonic() + float(wait_ms) / 1000

    @property
    def _level(self) -> int:
        return 1 if self._options["isolation_level"] == "read_committed" else 0

    def offsets(self, partitions: list[TopicPartition], which: int, timeout_ms: float | None) -> dict[TopicPartition, int]:
        """The earliest (-2) or the next (-1) offset of each."""
        asked = {(tp.topic, tp.partition): which for tp in partitions}
        found = self._listed(asked, timeout_ms)
        return {tp: found[tp][0] for tp in partitions if found.get(tp)}

    def _listed(
        self,
        asked: dict[tuple[str, int], int],
        timeout_ms: float | None,
        records: dict[tuple[str, int], tuple[int, int]] | None = None,
    ) -> dict[tuple[str, int], list[int]]:
        """Raises KafkaTimeoutError for what does not come in time, for whatever reason it does not."""
        deadline = self._deadline(timeout_ms)
        if not asked:
            return {}
        try:
            if records is not None:
                self._check_that_times_are_known(next(iter(asked))[0], deadline)
            return offsets_in_time(self._client.cluster, asked, deadline, isolation_level=self._level, records=records)
        except UnknownTopicOrPartition as exc:
            raise UnknownPartitionError(*exc.args, **exc.about) from exc
        except KafkaTimeoutError:
            raise
        except RetriableError as exc:
            given = "request_timeout_ms" if timeout_ms is None else "timeout_ms"
            within = self._options["request_timeout_ms"] if timeout_ms is None else timeout_ms
            raise KafkaTimeoutError(f"no offsets within {given}={within:g}: {exc}", **exc.about) from exc

    def for_times(self, timestamps: Any, timeout_ms: float | None) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after a time, for each."""
        if not isinstance(timestamps, Mapping):
            raise WrongTypeError(f"timestamps={timestamps!r}: must be {{TopicPartition: milliseconds}}")
        asked: dict[tuple[str, int], int] = {}
        for key, at in timestamps.items():
            tp = check_partition(key)
            if isinstance(at, bool) or not isinstance(at, (int, float)):
                raise WrongTypeError(f"timestamps[{tp}]={at!r}: must be milliseconds since the epoch")
            if not 0 <= at < 1 << 63:
                raise IllegalArgumentError(f"timestamps[{tp}]={at!r}: must be milliseconds since the epoch, 0 or more, of 63 bits")
            asked[tp] = int(at)
        records: dict[tuple[str, int], tuple[int, int]] = {}
        found = self._listed(asked, timeout_ms, records)
        return {
            TopicPartition(*key): OffsetAndTimestamp(found[key][0], *records.get(key, (-1, -1))) if found.get(key) else None
            for key in asked
        }

    def _check_that_times_are_known(self, topic: str, deadline: float) -> None:
        """Before 0.10.1 a broker answers with the beginnings of segments, whose files are that old."""
        cluster = self._client.cluster
        cluster.wait_for_topic(topic, deadline)  # then it is known what they speak
        api = ListOffsetsRequest.API
        if cluster.versions is not None and cluster.versions.ranges.get(api.key, (0, 0))[1] < 1:
            raise UnsupportedVersion(f"{cluster.versions.broker}: cannot look up offsets by time: that takes Kafka 0.10.1", api=api.name)

    def committed(self, tp: TopicPartition, *, with_metadata: bool, timeout_ms: float | None) -> Any:
        """What the group has committed, None where there is nothing."""
        wait_s = float(self._options["request_timeout_ms"] if timeout_ms is None else check_seconds("timeout_ms", timeout_ms)) / 1000
        entry = self._offsets.committed([tp], timeout_s=wait_s)[tp]
        if entry.offset < 0:
            return None
        return OffsetAndMetadata(entry.offset, entry.metadata, entry.leader_epoch) if with_metadata else entry.offset

    def begin_commit(
        self,
        offsets: dict[TopicPartition, int],
        *,
        timeout_s: float,
        member: GroupMetadata | None = None,
        **beside: Any,
    ) -> Callable[[], None]:
        """Begin to commit for the group, as this member, or as somebody who is none: the coordinator takes that as long as it has no members.
        Returns what does the rest, which has to be called. beside: as Commit takes it.
        """
        begun = self._offsets.begin(offsets, **beside)

        def finish() -> None:
            who = member or GroupMetadata(self._options["group_id"])
            self._offsets.identity = Identity(who.group_id, who.generation_id, who.member_id, instance_id=who.group_instance_id)
            try:
                self._offsets.finish(begun, timeout_s=timeout_s)
            except (UnknownMemberId, IllegalGeneration, RebalanceInProgress) as exc:
                what = "the group has members, who commit for it: subscribe() or assign() first"
                if member is not None:
                    what = "this member has no place in the group now: commit again once it has one"
                raise CommitFailedError(f"{what}: {exc}", **exc.about) from exc

        return finish

    def partitions(self, topic: str) -> set[int]:
        """A topic's partitions, an empty set without such a topic, which is not made by asking."""
        metadata, name = self._client.cluster.metadata, check_topic_name(topic)
        if metadata.topic(name) is None:
            self._client.update_cluster()
        known = metadata.topic(name)
        return set(known.partitions) if known is not None else set()

    def topics(self) -> set[str]:
        """All topics."""
        self._client.update_cluster()
        return set(self._client.topics)
