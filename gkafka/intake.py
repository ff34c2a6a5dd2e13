"""What a user's own code does to each record on its way into a producer: interceptors, serializers, a partitioner. It stands in front of the one
way of a record, so that each costs its own call and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from gkafka.checks import find_index
from gkafka.exceptions import ConfigurationError, KafkaException, SerializationError
from gkafka.records import check_record
from gkafka.records._check import plain, plain_topic
from gkafka.unseen import described

if TYPE_CHECKING:
    from gkafka.config import ProducerConfig
    from gkafka.records import Delivery

__all__ = ["Intake", "chosen_by"]


class Intake:
    """The serializers and the partitioner of one producer.

    append: takes (topic, value, key, partition, timestamp, headers) as produce() does. slow: the same, and may wait for the topic; it asks the
    partitioner then. counts: how many partitions each known topic has. refused: is shown an error before it is raised.
    """

    def __init__(
        self,
        config: ProducerConfig,
        append: Callable[..., Delivery],
        slow: Callable[..., Delivery],
        counts: Mapping[str, int],
        refused: Callable[[KafkaException], None],
    ) -> None:
        self._value, self._key = config.value_serializer, config.key_serializer
        self._partitioner = config.partitioner if callable(config.partitioner) else None
        self._append, self._slow, self._counts, self._refused = append, slow, counts, refused

    @staticmethod
    def is_needed(config: ProducerConfig) -> bool:
        """Has a producer of these options any of them?"""
        return config.value_serializer is not None or config.key_serializer is not None or callable(config.partitioner)

    def produce(
        self, topic: Any, value: Any, key: Any = None, partition: Any = None, timestamp: Any = None, headers: Any = None
    ) -> Delivery:
        """Accept a record, as `NativeProducer.produce()` says."""
        if value is not None and self._value is not None:
            try:
                value = self._value(value)
            except Exception as error:
                self._raise(_not_serialized("value", value, error), error)
        if key is not None and self._key is not None:
            try:
                key = self._key(key)
            except Exception as error:
                self._raise(_not_serialized("key", key, error), error)
        if partition is None and self._partitioner is not None:
            if type(topic) is not str:
                topic = plain_topic(topic)
            count = self._counts.get(topic) if type(topic) is str else None
            if count is None:
                return self._slow(topic, value, key, partition, timestamp, headers)
            if key is not None and type(key) is not bytes and type(key := plain(key)) is not bytes:
                check_record(topic, value, key, headers)  # which says why not
            try:
                partition = self._partitioner(list(range(count)), key)
            except Exception as error:
                raise _not_chosen(topic, error) from error
            if type(partition) is not int or not 0 <= partition < count:
                partition = _found(partition, topic, count)
        return self._append(topic, value, key, partition, timestamp, headers)

    def _raise(self, error: KafkaException, cause: Exception) -> NoReturn:
        self._refused(error)
        raise error from cause


def chosen_by(partitioner: Callable[[list[int], Any], Any], topic: str, count: int, key: bytes | None) -> int:
    """The partition that a partitioner chooses. Raises ConfigurationError for what it raises, and for one that is not there."""
    try:
        chosen = partitioner(list(range(count)), key)
    except Exception as error:
        raise _not_chosen(topic, error) from error
    return _found(chosen, topic, count)


def _not_chosen(topic: str, error: Exception) -> ConfigurationError:
    return ConfigurationError(f"the partitioner failed for topic {topic!r}: {described(error)}", topic=topic)


def _found(chosen: Any, topic: str, count: int) -> int:
    number = find_index(chosen, count)
    if number is None:
        raise ConfigurationError(f"the partitioner chose {chosen!r}: topic {topic!r} has the partitions 0 to {count - 1}", topic=topic)
    return number


def _not_serialized(what: str, thing: Any, error: Exception) -> SerializationError:
    return SerializationError(f"{what}_serializer failed on {type(thing).__name__}: {described(error)}")
