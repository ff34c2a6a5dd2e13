"""Fetch sessions: what each broker remembers of its clients' fetches (KIP-227)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from gkafka.wire import fetch

__all__ = ["Session", "Sessions"]

NO_SESSION, FIRST = 0, 0
SESSION_NOT_FOUND, INVALID_SESSION_EPOCH = 70, 71
Key = tuple[str, UUID, int]


class Session:
    """The partitions of one session, in the order in which answers are filled, and the epoch that comes next."""

    def __init__(self, id: int) -> None:
        self.id = id
        self.epoch = 1
        self.asked: dict[Key, Any] = {}
        self.told: dict[Key, int] = {}  # the high watermarks that the client knows

    def update(self, request: Any) -> None:
        for topic in request.topics:
            for part in topic.partitions:
                self.asked[topic.topic, topic.topic_id, part.partition] = part
        # In this order, as Kafka does: what is named and forgotten in one fetch is forgotten.
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                self.asked.pop((topic.topic, topic.topic_id, index), None)
                self.told.pop((topic.topic, topic.topic_id, index), None)

    @property
    def topics(self) -> list[Any]:
        """All that it asks for, as a request without a session has it."""
        found: dict[tuple[str, UUID], Any] = {}
        for (name, topic_id, _), part in self.asked.items():
            found.setdefault((name, topic_id), fetch.FetchTopic(topic=name, topic_id=topic_id, partitions=[])).partitions.append(part)
        return list(found.values())

    def is_news(self, name: str, topic_id: UUID, data: Any) -> bool:
        """Must an answer name this partition? Those with records go behind the others, so that each has its turn."""
        key = (name, topic_id, data.partition_index)
        known = self.told.get(key)
        self.told[key] = data.high_watermark
        if data.records and key in self.asked:
            self.asked[key] = self.asked.pop(key)
        redirected = data.preferred_read_replica >= 0 or data.diverging_epoch.end_offset >= 0
        return bool(data.records or data.error_code or redirected or known != data.high_watermark)


class Sessions:
    """Of one broker."""

    def __init__(self) -> None:
        self._open: dict[int, Session] = {}
        self._made = 0

    def __len__(self) -> int:
        return len(self._open)

    def forget(self) -> None:
        """As if other clients had taken the place of all of them."""
        self._open.clear()

    def of(self, request: Any) -> tuple[Session | None, int]:
        """The session that a request goes on with or begins, and 0; None where it wants none, or with an error code."""
        if request.session_epoch <= FIRST:
            self._open.pop(request.session_id, None)
            if request.session_epoch < FIRST:
                return None, 0
            self._made += 1
            begun = self._open[self._made] = Session(self._made)
            begun.update(request)
            return begun, 0
        known = self._open.get(request.session_id)
        if known is None:
            return None, SESSION_NOT_FOUND
        if known.epoch != request.session_epoch:
            return None, INVALID_SESSION_EPOCH
        known.epoch += 1
        known.update(request)
        return known, 0
