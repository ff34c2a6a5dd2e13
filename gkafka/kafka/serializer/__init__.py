"""Base classes of serializers that want the topic beside the value (kafka.serializer); plain callables do as well."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

__all__ = ["Deserializer", "Serializer"]


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


def as_function(given: Any, method: str) -> Callable[[str, Any], Any] | None:
    """A function (topic, value) of what was given: a callable (value), or an object with serialize() or deserialize(). None stays None."""
    if given is None:
        return None
    named: Callable[[str, Any], Any] | None = getattr(given, method, None)
    return named if named is not None else lambda topic, value: given(value)


def end(given: Any) -> None:
    """Close a serializer that can be closed."""
    if given is not None and callable(close := getattr(given, "close", None)):
        close()
