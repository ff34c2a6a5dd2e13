"""How the consumers of kafka-python 0.9 read: gkafka's own consumer fetches ahead, and "nothing" means that there was nothing.

They asked a broker in each call, so what was written before the call came with it. Here it may still be under way: before a call says that
there is nothing, the ends of the logs are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from gkafka.client import KafkaClient
from gkafka.common import TopicPartition
from gkafka.consumer import Consumer
from gkafka.exceptions import KafkaException, KafkaTimeoutError
from gkafka.kafka.consumer.lookups import offsets_in_time
from gkafka.logs import get_logger

__all__ = ["Reader", "ends_of", "ends_now", "offsets_in_time"]

log = get_logger(__name__)

LOOK_S = 5.0
"""How long a call that finds nothing may take beyond its own timeout: to hear where the logs end, and to get what stands before that."""
SLICE_MS = 200.0
Keep: TypeAlias = Callable[[list[Any]], None]
POLICIES = {-2: "earliest", -1: "latest", None: "none"}


class Reader:
    """Reads the partitions that assign() names. reset: -2, -1 or None (raise) for an offset that is out of range. options: of get_consumer().

    What is taken goes to the caller's keep(messages) at once. An exception of a signal handler's may come between: then the next call goes back to
    where stands() says that the consumer is, with what it keeps.
    """

    def __init__(self, client: KafkaClient, *, reset: int | None, **options: Any) -> None:
        self._client, self._handler = client, client.handler
        self._torn = False
        self.consumer: Consumer = client.get_consumer(
            None, auto_offset_reset=POLICIES[reset], isolation_level="read_uncommitted", **options
        )

    def assign(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these offsets, and no others."""
        self.consumer.assign(offsets)

    def take_ready(self, keep: Keep) -> bool:
        """Have one message kept, if there is one already."""
        if self._torn:
            return False
        self._torn = True
        one = self.consumer.next_ready()
        if one is not None:
            keep([one])
        self._torn = False
        return one is not None

    def take(self, count: int, wait_s: float, keep: Keep, stands: Callable[[], Mapping[TopicPartition, int]]) -> int:
        """Have up to count messages kept, waiting wait_s for the first; how many. 0 if the brokers have none then. With none each call raises what a
        partition waits for the application with, as an offset that is out of range."""
        if self._torn:
            for tp, offset in stands().items():
                self.consumer.seek(tp, offset)
        self._torn = True
        try:
            found = self._find(count, wait_s)
            keep(found)
        except KafkaException:
            self._torn = False
            raise
        self._torn = False
        return len(found)

    def _find(self, count: int, wait_s: float) -> list[Any]:
        found = self.consumer.consume_batch(count, wait_s * 1000)
        if found or not (positions := self.consumer.positions()):
            return found
        deadline = self._handler.monotonic() + LOOK_S
        ends = ends_now(self._client, positions, deadline)
        while any(position < ends.get(tp, -1) for tp, position in self.consumer.positions().items()):
            left_ms = (deadline - self._handler.monotonic()) * 1000
            if left_ms <= 0:
                break
            if found := self.consumer.consume_batch(count, min(left_ms, SLICE_MS)):
                return found
            self.consumer.check_halted()
        self.consumer.check_halted()
        return []

    def stop(self) -> None:
        """End the fetching."""
        self.consumer.stop()


def ends_now(client: KafkaClient, partitions: Iterable[TopicPartition], deadline: float) -> dict[TopicPartition, int]:
    """Where the logs end, as far as that can be heard: {} from brokers that do not answer."""
    try:
        return ends_of(client, partitions, -1, deadline)
    except KafkaException as exc:
        if not exc.retriable and not isinstance(exc, KafkaTimeoutError):
            raise
        log.debug("where the logs end: %s", exc)
        return {}


def ends_of(
    client: KafkaClient, partitions: Iterable[TopicPartition], which: int, deadline: float, *, patient: bool = False
) -> dict[TopicPartition, int]:
    """The earliest (-2) or the next (-1) offset of each. deadline: monotonic seconds. patient: of who begins to read there, and waits for a leader."""
    asked = {(tp.topic, tp.partition): which for tp in partitions}
    found = offsets_in_time(client.cluster, asked, deadline, patient=patient) if asked else {}
    return {TopicPartition(*key): offsets[0] for key, offsets in found.items() if offsets}
