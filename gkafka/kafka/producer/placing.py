"""Which partition a record goes to, where the application brings its own partitioner."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from gkafka.checks import find_index
from gkafka.exceptions import ConfigurationError
from gkafka.kafka.cluster import ClusterMetadata
from gkafka.kafka.partitioner import DefaultPartitioner, Partitioner, StickyPartitioner, partitions_of
from gkafka.kafka.producer.future import FutureRecordMetadata

if TYPE_CHECKING:
    from gkafka.nativeproducer import NativeProducer

__all__ = ["Placing", "chooser"]

_COMPILED = (DefaultPartitioner, StickyPartitioner)
_NAMES = ("topic", "key", "serialized_key", "value", "serialized_value", "cluster")


Given = tuple[Any, Any, Any, Any]
"""What a partitioner is told of a record: its key and value, each before and after serialization."""


class Known(NamedTuple):
    """A topic's partitions, and those that have a leader, as this version of the metadata told them."""

    version: int
    every: list[int]
    led: list[int]


Choose = Callable[[str, Given, Known, ClusterMetadata], Any]


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
        return lambda topic, of, known, cluster: given(of[1] if of[1] is None else bytes(of[1]), known.every[:], known.led[:])
    partition = getattr(given, "partition", None)
    if not callable(partition):
        return None
    if _takes_all(partition):
        return lambda topic, of, known, cluster: partition(topic, of[0], of[1] if of[1] is None else bytes(of[1]), of[2], of[3], cluster)
    # As kafka-python 3.0 calls what is no Partitioner of its own.
    return lambda topic, of, known, cluster: partition(topic, of[1] if of[1] is None else bytes(of[1]), cluster)


def _takes_all(partition: Callable[..., Any]) -> bool:
    try:
        inspect.signature(partition).bind(*_NAMES)
    except TypeError:
        return False
    return True


class Placing:
    """A partitioner at work: how to ask it, what to tell of new batches, if it wants that, and who makes those.

    partitions_for: waits for a topic that is not known.
    """

    def __init__(
        self, choose: Choose, on_new_batch: Any, producer: NativeProducer, metadata: Any, partitions_for: Callable[[str], set[int]]
    ) -> None:
        self._choose, self._on_new_batch = choose, on_new_batch
        self._producer, self._metadata, self._cluster = producer, metadata, ClusterMetadata(metadata)
        self._partitions_for = partitions_for
        self._known: dict[str, Known] = {}
        self._moved: set[str] = set()  # topics of which it was told when a batch was full

    def send(self, topic: str, of: Given, headers: Any, timestamp_ms: Any) -> Any:
        """Send a record where the partitioner says, whose exceptions are the caller's. Raises ConfigurationError for a partition that is not there."""
        known = self._known.get(topic)
        if known is None or known.version != self._metadata.version:
            known = self._look_up(topic)
        number = self._choose(topic, of, known, self._cluster)
        if type(number) is not int or not 0 <= number < len(known.every):
            number = _checked(number, topic, known)
        if self._on_new_batch is None or of[1] is not None:
            return self._producer.send(topic, of[3], of[1], headers, number, timestamp_ms)
        return self._send_sticky(topic, of, known, number, headers, timestamp_ms)

    def _look_up(self, topic: str) -> Known:
        version = self._metadata.version  # first: what is newer is looked up again
        self._partitions_for(topic)
        known = self._known[topic] = Known(version, *partitions_of(self._cluster, topic))
        return known

    def _send_sticky(self, topic: str, of: Given, known: Known, number: int, headers: Any, timestamp_ms: Any) -> Any:
        """The same of a record without a key, for a partitioner that wants to be told where a batch begins."""
        told = False
        if not self._producer.has_open_batch(topic, number):
            told = True
            if topic in self._moved:
                self._moved.discard(topic)
            else:
                self._on_new_batch(topic, self._cluster, number)
                number = _checked(self._choose(topic, of, known, self._cluster), topic, known)
        future = self._producer.send(topic, of[3], of[1], headers, number, timestamp_ms)
        if not told and isinstance(future, FutureRecordMetadata) and not future.index:  # the batch was full: the next ones go elsewhere
            self._moved.add(topic)
            self._on_new_batch(topic, self._cluster, number)
        return future


def _checked(chosen: Any, topic: str, known: Known) -> int:
    number = find_index(chosen, len(known.every))
    if number is None:
        text = f"the partitioner chose {chosen!r}: topic {topic!r} has the partitions 0 to {len(known.every) - 1}"
        raise ConfigurationError(text, topic=topic)
    return number
