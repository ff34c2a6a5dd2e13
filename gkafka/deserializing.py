"""Keys and values through the application's deserializers, and what becomes of records that they fail on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from gkafka.checks import check_topic_name
from gkafka.common import TopicPartition
from gkafka.config import NativeConsumerConfig, ProducerConfig, build
from gkafka.exceptions import ConfigurationError, DeliveryError, KafkaTimeoutError, SerializationError
from gkafka.logs import get_logger

if TYPE_CHECKING:
    from gkafka.cluster import Cluster
    from gkafka.nativeproducer import NativeProducer
    from gkafka.records import Message, Run

__all__ = ["Deserialized", "Deserializers"]

log = get_logger(__name__)

GoBack = Callable[[TopicPartition, int], object]
_new: Callable[..., Any] = object.__new__

Function = Callable[[str, bytes | None], Any]
"""(topic, bytes) -> what they mean."""


class Deserialized:
    """A message whose value and key went through deserializers; everything else is the message's."""

    __slots__ = ("_message", "key", "partition_key", "value")

    def __init__(self, message: Message, key: Any, value: Any) -> None:
        self._message = message
        self.key = self.partition_key = key
        self.value = value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # copy and pickle ask for how it is done: not as the message does it
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self._message, name)

    def __reduce__(self) -> Any:
        return type(self), (self._message, self.key, self.value)

    def __repr__(self) -> str:
        return repr(self._message)


class Deserializers:
    """Applied in the caller of consume(), under no lock. `failed`: records that were skipped or handed to dead_letter."""

    def __init__(self, cluster: Cluster, config: NativeConsumerConfig) -> None:
        self._cluster, self._mode = cluster, config.on_deserialize_error
        self._key, self._value = _of_data(config.key_deserializer), _of_data(config.value_deserializer)
        self._of_key, self._of_value = config.key_deserializer, config.value_deserializer  # the same as they were given
        self.are_given = self._key is not None or self._value is not None
        self._is_at_one = False
        self._make: Callable[[Message, Any, Any], Any] = Deserialized
        self._dead_letter: str | Callable[[Any, Any], Any] | None = config.dead_letter
        if isinstance(self._dead_letter, str):
            check_topic_name(self._dead_letter, "dead_letter")
        if (self._mode == "dlq") != (self._dead_letter is not None):
            raise ConfigurationError(
                f"on_deserialize_error={self._mode!r} with dead_letter={self._dead_letter!r}: 'dlq' needs dead_letter=, a topic or a callable "
                "(message, error), and nothing else has a use for it"
            )
        if self._mode != "raise" and not self.are_given:
            raise ConfigurationError(
                f"on_deserialize_error={self._mode!r} without key_deserializer or value_deserializer: there is no such error"
            )
        self._producer: NativeProducer | None = None
        self.failed = 0

    def use(self, key: Function | None, value: Function | None, make: Callable[[Message, Any, Any], Any]) -> None:
        """For skins: functions (topic, bytes or None) in place of the options, and what is made of a message, its key and its value."""
        self._key, self._value, self._make = key, value, make
        self._of_key = self._of_value = None
        self.are_given = True

    def one(self, run: Run) -> Any | None:
        """What is made of the next message that lies at hand, whose position moves behind it when that is done. None: consume_batch() is to be called.

        Raises SerializationError, and the position is before it. Of several callers one is served: the others' way claims what it takes.
        """
        if self._is_at_one or (message := run.peek()) is None:
            return None
        self._is_at_one = True
        try:
            key, value = message.key, message.value
            if self._make is not Deserialized:
                topic = message.topic
                key = key if self._key is None else self._key(topic, key)
                made = self._make(message, key, value if self._value is None else self._value(topic, value))
            else:
                made = _new(Deserialized)
                made._message = message
                made.key = made.partition_key = self._of_key(key) if self._of_key is not None and key is not None else key
                made.value = self._of_value(value) if self._of_value is not None and value is not None else value
        except Exception as exc:
            if self._mode != "raise" or self._make is not Deserialized:
                return None  # it is met again there, where it is known what becomes of it
            raise _error(message, exc) from exc
        finally:
            self._is_at_one = False
        return made if run.take(message) else None

    def apply(self, go_back: GoBack, messages: Sequence[Message], timeout_s: float) -> list[tuple[Message, Any]]:
        """The messages, each with what is made of its deserialized key and value, as far as that goes.

        Where the first of them fails for good, raises, and the position is before it; what came before it is returned, and the next call
        meets the failure. With 'dlq' every record that failed is where it belongs when this returns. go_back(partition, offset): what was handed
        out from there on was not; who is interrupted in here goes back by itself. timeout_s: for a topic to take all of them.
        """
        done: list[tuple[int, Any]] = []
        letters: list[tuple[int, Any, SerializationError]] = []
        checkpoint = self._cluster.handler.checkpoint
        for n, message in enumerate(messages):
            checkpoint()  # what a function of the application's takes nobody knows
            try:
                done.append((n, self._deserialized(message)))
            except Exception as exc:
                error = _error(message, exc)
                if self._mode == "raise":
                    return self._stop_before(go_back, messages, n, done, letters, error, timeout_s)
                try:
                    letters.append((n, self._bury(message, error), error))
                except Exception as trouble:
                    told = _undelivered(error, trouble)
                    return self._stop_before(go_back, messages, n, done, letters, told, timeout_s)
        self._await(go_back, messages, done, letters, timeout_s)
        return [(messages[n], item) for n, item in done]

    def _deserialized(self, message: Message) -> Any:
        key, value = message.key, message.value
        if self._key is not None:
            key = self._key(message.topic, key)
        if self._value is not None:
            value = self._value(message.topic, value)
        return self._make(message, key, value)

    def _stop_before(
        self,
        go_back: GoBack,
        messages: Sequence[Message],
        n: int,
        done: list[tuple[int, Any]],
        letters: list[tuple[int, Any, SerializationError]],
        error: SerializationError,
        timeout_s: float,
    ) -> list[tuple[Message, Any]]:
        """Record n cannot be passed."""
        give_back(go_back, messages[n:])
        self._await(go_back, messages[:n], done, letters, timeout_s)
        if not done and not letters:
            raise error
        return [(messages[at], item) for at, item in done]

    def _await(
        self,
        go_back: GoBack,
        messages: Sequence[Message],
        done: list[tuple[int, Any]],
        letters: list[tuple[int, Any, SerializationError]],
        timeout_s: float,
    ) -> None:
        """Wait until the dead-letter topic has what it was given; what it has not by one deadline stays unconsumed, and all after it."""
        deadline = self._cluster.handler.monotonic() + timeout_s
        for n, delivery, error in letters:
            if delivery is None:
                self.failed += 1
                continue
            try:
                delivery.result(self._left(deadline))
                self.failed += 1
            except Exception as trouble:
                give_back(go_back, messages[n:])
                self._forget_failures(self._left(deadline))
                done[:] = [(at, item) for at, item in done if at < n]
                if not done:
                    raise _undelivered(error, trouble) from trouble
                return

    def _left(self, deadline: float) -> float:
        return max(0.0, deadline - self._cluster.handler.monotonic())

    def _forget_failures(self, timeout_s: float) -> None:
        """Whoever consumes was told of them, and their records are still to be consumed: nobody need hear of them at the end."""
        with contextlib.suppress(DeliveryError, KafkaTimeoutError):
            if self._producer is not None:
                self._producer.flush(timeout_s)

    def _bury(self, message: Message, error: SerializationError) -> Any:
        """Skip it, or give it to dead_letter. Returns the delivery to wait for, None if there is none."""
        if self._mode == "skip":
            log.warning("%s: skipped", error)
            return None
        if not isinstance(self._dead_letter, str):
            assert self._dead_letter is not None
            self._dead_letter(message, error)
            return None
        if self._producer is None:
            from gkafka.nativeproducer import NativeProducer

            options = {"acks": "all", "linger_ms": 0, "max_block_ms": self._cluster.config.api_timeout_ms}
            self._producer = NativeProducer(self._cluster, build(ProducerConfig, options, where="dead_letter"))
        headers = [*message.headers, *_where(message, error)]
        timestamp = message.timestamp if message.timestamp >= 0 else None
        return self._producer.produce(self._dead_letter, message.value, message.key, timestamp=timestamp, headers=headers)

    def close(self, timeout: float | None = None) -> None:
        """End the producer of dead letters, if there is one."""
        producer, self._producer = self._producer, None
        if producer is not None:
            with contextlib.suppress(DeliveryError):  # told before
                producer.close(timeout)


def _of_data(deserializer: Callable[[bytes], Any] | None) -> Function | None:
    """Of an option, which is not called where there is nothing: a record may lack its key or, as a tombstone, its value."""
    return None if deserializer is None else lambda _, data: None if data is None else deserializer(data)


def give_back(go_back: GoBack, messages: Sequence[Message]) -> None:
    """Go back to the first of these in each partition."""
    for tp, offset in first_offsets(messages).items():
        go_back(tp, offset)


def first_offsets(messages: Sequence[Message]) -> dict[TopicPartition, int]:
    """The first of them in each partition."""
    first: dict[TopicPartition, int] = {}
    for message in messages:
        first.setdefault(TopicPartition(message.topic, message.partition_id), message.offset)
    return first


def _error(message: Message, exc: Exception) -> SerializationError:
    name, partition, offset = message.topic, message.partition_id, message.offset
    text = f"deserializer failed on {name}[{partition}] offset {offset}: {type(exc).__name__}: {exc}"
    error = SerializationError(text, topic=name, partition=partition, offset=offset)
    error.__cause__ = exc
    return error


def _undelivered(error: SerializationError, trouble: Exception) -> SerializationError:
    text = f"{error}; and dead_letter did not take it: {type(trouble).__name__}: {trouble}"
    told = SerializationError(text, topic=error.topic, partition=error.partition, offset=error.offset)
    told.__cause__ = trouble
    return told


def _where(message: Message, error: SerializationError) -> list[tuple[str, bytes | None]]:
    """Headers of a dead letter: where it was, and what is wrong with it."""
    said = {"topic": message.topic, "partition": message.partition_id, "offset": message.offset, "error": error}
    return [(f"gkafka.dead_letter.{name}", str(value).encode()) for name, value in said.items()]
