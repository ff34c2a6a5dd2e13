"""Keys and values through the application's deserializers, and what becomes of records that they fail on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from gkafka.checks import check_topic_name
from gkafka.common import TopicPartition
from gkafka.config import ProducerConfig, build
from gkafka.exceptions import ConfigurationError, DeliveryError, KafkaTimeoutError, SerializationError
from gkafka.logs import get_logger
from gkafka.unseen import described

if TYPE_CHECKING:
    from gkafka.cluster import Cluster
    from gkafka.nativeproducer import NativeProducer
    from gkafka.records import Message

__all__ = ["Deserialized", "Deserializers", "by_both", "by_options", "by_topic"]

log = get_logger(__name__)

GoBack = Callable[[TopicPartition, int], object]
_new: Callable[..., Any] = object.__new__

Function = Callable[[str, bytes | None], Any]
"""(topic, bytes) -> what they mean."""

LOOKS = 4
"""Messages between two looks at whether others should have a turn."""


class Letter(NamedTuple):
    """A message that a deserializer failed on. at: its number; before: how many of those before it are handed out; delivery: what to wait for."""

    at: int
    before: int
    delivery: Any
    error: SerializationError


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


Make = Callable[[Any], Any]
"""What is handed out for a message. Raises SerializationError, with its place, where a deserializer fails on it."""


def by_options(key: Callable[[bytes], Any] | None, value: Callable[[bytes], Any] | None) -> Make | None:
    """By the options key_deserializer and value_deserializer, which are not called where there is nothing: a record may lack its key or, as a
    tombstone, its value. None without any."""
    if key is None and value is None:
        return None

    def make(message: Message) -> Any:
        made = _new(Deserialized)
        made._message = message
        try:
            data = message.key
            made.key = made.partition_key = data if key is None or data is None else key(data)
            data = message.value
            made.value = data if value is None or data is None else value(data)
        except Exception as exc:
            raise _error(message, exc) from exc
        return made

    return make


def by_both(deserializer: Callable[[Any, Any], tuple[Any, Any]]) -> Make:
    """By pykafka's deserializer, which takes and gives (value, partition key)."""

    def make(message: Message) -> Any:
        made = _new(Deserialized)
        made._message = message
        try:
            made.value, made.key = deserializer(message.value, message.partition_key)
        except Exception as exc:
            raise _error(message, exc) from exc
        made.partition_key = made.key
        return made

    return make


def by_topic(key: Function | None, value: Function | None, whole: Callable[[Any, Any, Any], Any]) -> Make:
    """By kafka-python's: whole(message, key, value)."""

    def make(message: Message) -> Any:
        topic, its_key, its_value = message.topic, message.key, message.value
        try:
            return whole(message, its_key if key is None else key(topic, its_key), its_value if value is None else value(topic, its_value))
        except Exception as exc:
            raise _error(message, exc) from exc

    return make


class Deserializers:
    """Applied in the caller of consume(), under no lock. make: None as long as there is nothing to make. mode, dead_letter: the options
    on_deserialize_error and dead_letter. `failed`: records that were skipped or handed to dead_letter."""

    def __init__(self, cluster: Cluster, make: Make | None, mode: str = "raise", dead_letter: Any = None) -> None:
        self._cluster, self.make, self.mode = cluster, make, mode
        self._dead_letter: str | Callable[[Any, Any], Any] | None = dead_letter
        if isinstance(dead_letter, str):
            check_topic_name(dead_letter, "dead_letter")
        if (mode == "dlq") != (dead_letter is not None):
            raise ConfigurationError(
                f"on_deserialize_error={mode!r} with dead_letter={dead_letter!r}: 'dlq' needs dead_letter=, a topic or a callable "
                "(message, error), and nothing else has a use for it"
            )
        if mode != "raise" and make is None:
            raise ConfigurationError(
                f"on_deserialize_error={mode!r} without key_deserializer or value_deserializer: there is no such error"
            )
        self._producer: NativeProducer | None = None
        self.failed = 0

    def apply(self, go_back: GoBack, messages: Sequence[Message], timeout_s: float) -> tuple[Sequence[Message], list[Any]]:
        """As far as that goes: the messages, and what is handed out for each.

        Where the first of them fails for good, raises, and the position is before it; what came before it is returned, and the next call
        meets the failure. With 'dlq' every record that failed is where it belongs when this returns. go_back(partition, offset): what was handed
        out from there on was not; who is interrupted in here goes back by itself. timeout_s: for a topic to take all of them.
        """
        assert self.make is not None
        make, checkpoint = self.make, self._cluster.handler.checkpoint
        kept: list[Message] = []
        made: list[Any] = []
        letters: list[Letter] = []
        at = 0
        while at < len(messages):
            part = messages[at : at + LOOKS]
            checkpoint()  # what a function of the application's takes nobody knows
            before = len(made)
            try:
                made.extend(map(make, part))  # what was made before one that fails is kept
            except SerializationError as error:
                passed = len(made) - before
                kept += part[:passed]
                at += passed
                if self.mode == "raise":
                    return self._stop_before(go_back, messages, at, kept, made, letters, error, timeout_s)
                try:
                    letters.append(Letter(at, len(kept), self._bury(messages[at], error), error))
                except Exception as trouble:
                    told = _undelivered(error, trouble)
                    return self._stop_before(go_back, messages, at, kept, made, letters, told, timeout_s)
                at += 1
            else:
                kept += part
                at += len(part)
        self._await(go_back, messages, kept, made, letters, timeout_s)
        return kept, made

    def _stop_before(
        self,
        go_back: GoBack,
        messages: Sequence[Message],
        at: int,
        kept: list[Message],
        made: list[Any],
        letters: list[Letter],
        error: SerializationError,
        timeout_s: float,
    ) -> tuple[Sequence[Message], list[Any]]:
        """The record there cannot be passed."""
        give_back(go_back, messages[at:])
        self._await(go_back, messages[:at], kept, made, letters, timeout_s)
        if not made and not letters:
            raise error
        return kept, made

    def _await(
        self,
        go_back: GoBack,
        messages: Sequence[Message],
        kept: list[Message],
        made: list[Any],
        letters: list[Letter],
        timeout_s: float,
    ) -> None:
        """Wait until the dead-letter topic has what it was given; what it has not by one deadline stays unconsumed, and all after it."""
        deadline = self._cluster.handler.monotonic() + timeout_s
        for at, before, delivery, error in letters:
            if delivery is None:
                self.failed += 1
                continue
            try:
                delivery.result(self._left(deadline))
                self.failed += 1
            except Exception as trouble:
                give_back(go_back, messages[at:])
                self._forget_failures(self._left(deadline))
                del kept[before:], made[before:]
                if not made:
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
        if self.mode == "skip":
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
    text = f"deserializer failed on {name}[{partition}] offset {offset}: {described(exc)}"
    error = SerializationError(text, topic=name, partition=partition, offset=offset)
    error.__cause__ = exc
    return error


def _undelivered(error: SerializationError, trouble: Exception) -> SerializationError:
    text = f"{error}; and dead_letter did not take it: {described(trouble)}"
    told = SerializationError(text, topic=error.topic, partition=error.partition, offset=error.offset)
    told.__cause__ = trouble
    return told


def _where(message: Message, error: SerializationError) -> list[tuple[str, bytes | None]]:
    """Headers of a dead letter: where it was, and what is wrong with it."""
    said = {"topic": message.topic, "partition": message.partition_id, "offset": message.offset, "error": error}
    return [(f"gkafka.dead_letter.{name}", str(value).encode()) for name, value in said.items()]
