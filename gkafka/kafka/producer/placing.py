"""Which partition a record goes to, where the application brings its own partitioner."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from gkafka.exceptions import ConfigurationError
from gkafka.kafka.cluster import ClusterMetadata
from gkafka.kafka.partitioner import DefaultPartitioner, Partitioner, StickyPartitioner, partitions_of
from gkafka.kafka.producer.future import FutureRecordMetadata

if TYPE_CHECKING:
    from gkafka.nativeproducer import NativeProducer

__all__ = ["Placing", "Record", "chooser"]

_COMPILED = (DefaultPartitioner, StickyPartitioner)
_NAMES = ("topic", "key", "serialized_key", "value", "serialized_value", "cluster")


class Record(NamedTuple):
    """What a partitioner is told of, before and after serialization."""

    topic: str
    key: Any
    serialized_key: Any
    value: Any
    serialized_value: Any


Choose = Callable[[Record, ClusterMetadata], Any]


def chooser(given: Any) -> tuple[Choose, Any] | None:
    """What asks a partitioner, and its on_new_batch() if it has one; None for those that are compiled. Raises ConfigurationError for what is none."""
    if given is None or type(given) in _COMPILED or given in _COMPILED:
        return None
    ask = None if isinstance(given, type) else _asking(given)
    if ask is None:
        text = "must be callable with (key bytes, all partitions, available partitions), or an object with what gkafka.kafka.partitioner.Partitioner has"
        raise ConfigurationError(f"partitioner={given!r}: {text}")
    return ask, getattr(given, "on_new_batch", None)


def _asking(given: Any) -> Choose | None:
    if callable(given) and not isinstance(given, Partitioner):
        return lambda record, cluster: given(_bytes(record.serialized_key), *partitions_of(cluster, record.topic))
    partition = getattr(given, "partition", None)
    if not callable(partition):
        return None
    if _takes_all(partition):
        return lambda r, cluster: partition(r.topic, r.key, _bytes(r.serialized_key), r.value, r.serialized_value, cluster)
    # As kafka-python 3.0 calls what is no Partitioner of its own.
    return lambda record, cluster: partition(record.topic, _bytes(record.serialized_key), cluster)


def _takes_all(partition: Callable[..., Any]) -> bool:
    try:
        inspect.signature(partition).bind(*_NAMES)
    except TypeError:
        return False
    return True


def _bytes(key: Any) -> bytes | None:
    return None if key is None else bytes(key)


class Placing:
    """A partitioner at work: how to ask it, what to tell of new batches, if it wants that, and who makes those."""

    def __init__(self, choose: Choose, on_new_batch: Any, producer: NativeProducer, cluster: ClusterMetadata) -> None:
        self._choose, self._on_new_batch = choose, on_new_batch
        self._producer, self._cluster = producer, cluster
        self._moved: set[str] = set()  # topics of which it was told when a batch was full

    def send(self, record: Record, partitions: set[int], headers: Any, timestamp_ms: Any) -> Any:
        """Send it where the partitioner says, whose exceptions are the caller's. Raises ConfigurationError for a partition that is not there."""
        topic, number = record.topic, self._chosen(record, partitions)
        told = self._on_new_batch is None or record.serialized_key is not None
        if not told and not self._producer.has_open_batch(topic, number):
            told = True
            if topic in self._moved:
                self._moved.discard(topic)
            else:
                self._on_new_batch(topic, self._cluster, number)
                number = self._chosen(record, partitions)
        future = self._producer.send(topic, record.serialized_value, record.serialized_key, headers, number, timestamp_ms)
        if not told and isinstance(future, FutureRecordMetadata) and not future.index:  # the batch was full: the next ones go elsewhere
            self._moved.add(topic)
            self._on_new_batch(topic, self._cluster, number)
        return future

    def _chosen(self, record: Record, partitions: set[int]) -> int:
        chosen = self._choose(record, self._cluster)
        if not isinstance(chosen, int) or chosen not in partitions:
            text = f"the partitioner chose {chosen!r}: topic {record.topic!r} has the partitions 0 to {len(partitions) - 1}"
            raise ConfigurationError(text, topic=record.topic)
        return int(chosen)
