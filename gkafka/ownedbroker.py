"""pykafka's OwnedBroker: what a producer holds for one broker. Documented by name in pykafka-2.0.4; its members are those of pykafka 2.8.

gkafka has no queue for each broker: messages wait by partition, and follow its leader. An OwnedBroker looks at those partitions that its
broker leads now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gkafka.oneprocess import OfOneProcess

if TYPE_CHECKING:
    from gkafka.broker import Broker
    from gkafka.nativeproducer import NativeProducer
    from gkafka.producer import Producer

__all__ = ["OwnedBroker"]


class OwnedBroker(OfOneProcess):
    """producer: the Producer it belongs to; broker: the one that leads some of its topic's partitions."""

    def __init__(self, producer: Producer, engine: NativeProducer, broker: Broker) -> None:
        self.producer, self.broker, self._engine = producer, broker, engine

    def __repr__(self) -> str:
        return (
            f"<{type(self).__module__}.{type(self).__name__} at {id(self):#x} (broker={self.broker.id}, pending={self.messages_pending})>"
        )

    @property
    def running(self) -> bool:
        """Does its producer accept messages?"""
        return not self._engine.closed

    @property
    def messages_pending(self) -> int:
        """Messages for partitions that the broker leads which have no outcome yet."""
        return self._engine.unsettled_records_of(self.broker.id)

    def message_is_pending(self) -> bool:
        """Is there such a message?"""
        return self.messages_pending > 0

    def enqueue(self, message: tuple[tuple[Any, Any], int]) -> None:
        """Accept ((partition_key, message), partition id); it goes to that partition's leader."""
        self.producer._produce(message)

    def flush(self) -> None:
        """Let no message linger any longer."""
        self._engine.send_now()
