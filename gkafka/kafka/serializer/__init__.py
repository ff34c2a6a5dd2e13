"""Base classes of serializers that want the topic beside the value (kafka.serializer); plain callables do as well."""

from __future__ import annotations

import abc
import inspect
import json
from collections.abc import Callable
from typing import Any

from gkafka.exceptions import SerializationError
from gkafka.kafka.errors import WrongTypeError

__all__ = ["DefaultSerializer", "Deserializer", "JsonSerializer", "Serializer"]


class Serializer(abc.ABC):
    """serialize(topic, value) gives bytes. config: whatever keywords it was made with."""

    def __init__(self, **config: Any) -> None:
        self.config = config

    @abc.abstractmethod
    def serialize(self, topic: str, value: Any) -> bytes | None:
        """The bytes to send for a key or value."""

    def close(self) -> None:  # noqa: B027  # nothing to give back, unless a subclass has something
        """Called when the producer is closed."""


class Deserializer(abc.ABC):
    """deserialize(topic, bytes_) gives what the application sees. config: whatever keywords it was made with."""

    def __init__(self, **config: Any) -> None:
        self.config = config

    @abc.abstractmethod
    def deserialize(self, topic: str, bytes_: bytes | None) -> Any:
        """What a key or value means."""

    def close(self) -> None:  # noqa: B027
        """Called when the consumer is closed."""


class DefaultSerializer(Serializer, Deserializer):
    """Texts as bytes, and back. Bytes and None stay what they are."""

    def __init__(self, encoding: str = "utf-8") -> None:
        super().__init__(encoding=encoding)
        self.encoding = encoding

    def serialize(self, topic: str, value: Any) -> bytes | None:
        """The bytes of a text."""
        if value is None or isinstance(value, (bytes, bytearray, memoryview)):
            return value  # type: ignore[return-value]  # what is bytes-like can be sent as bytes can
        if not isinstance(value, str):
            raise SerializationError(f"a {type(value).__name__} for topic {topic!r}: must be a text or bytes")
        return value.encode(self.encoding)

    def deserialize(self, topic: str, bytes_: bytes | None) -> Any:
        """The text of bytes."""
        return None if bytes_ is None else bytes(bytes_).decode(self.encoding)


class JsonSerializer(DefaultSerializer):
    """Values as JSON, and back. None stays None."""

    def serialize(self, topic: str, value: Any) -> bytes | None:
        """The JSON of a value."""
        return None if value is None else super().serialize(topic, json.dumps(value))

    def deserialize(self, topic: str, bytes_: bytes | None) -> Any:
        """The value of JSON."""
        return None if bytes_ is None else json.loads(super().deserialize(topic, bytes_))


def as_function(given: Any, method: str) -> Callable[[str, Any], Any] | None:
    """A function (topic, value) of what was given: a callable (value), or an object with serialize() or deserialize(). None stays None."""
    if given is None:
        return None
    named: Callable[[str, Any], Any] | None = getattr(given, method, None)
    if named is None:
        return lambda topic, value: given(value)
    try:
        inspect.signature(named).bind("topic", b"value")
    except TypeError as exc:
        raise WrongTypeError(f"{given!r}: its {method}() must take (topic, value), as in kafka-python 1.4 and 2, but: {exc}") from exc
    except ValueError:  # a builtin does not tell
        pass
    return named


def end(given: Any) -> None:
    """Close a serializer that can be closed."""
    if given is not None and callable(close := getattr(given, "close", None)):
        close()
