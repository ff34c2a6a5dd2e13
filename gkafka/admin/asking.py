"""Many brokers asked for an administrator: so many at once and no more, however many the metadata name, and all by one deadline."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from gkafka.cluster import address_of
from gkafka.exceptions import KafkaException, KafkaTimeoutError

if TYPE_CHECKING:
    from gkafka.broker import Broker
    from gkafka.cluster import Cluster
    from gkafka.handlers import Future

__all__ = ["Asking", "Part"]

K = TypeVar("K")
ADMIN = "admin"
"""The role of the connection: what is asked for here may park."""
AT_ONCE = 32
"""Brokers that are asked at the same time: each costs a connection and a worker, and whoever answers for the metadata may invent thousands."""
GRACE_S = 1.0
"""Who tells that a request's time is over may be as late."""
LATE_S = 0.3
"""And so late once the call's own time is over."""


class Part(Generic[K]):
    """What a broker is asked for in one request. answer: its response, or the error in place of it, once it was asked."""

    __slots__ = ("answer", "broker", "items", "request")

    def __init__(self, broker: Broker, items: list[K], request: Any) -> None:
        self.broker = broker
        self.items = items
        self.request = request
        self.answer: Any = None


class _UnderWay(Generic[K]):
    """A broker that is being asked for the first of its parts. until: when it is not waited for any longer."""

    __slots__ = ("future", "parts", "until")

    def __init__(self, parts: deque[Part[K]], future: Future, until: float) -> None:
        self.parts = parts
        self.future = future
        self.until = until


class Asking(Generic[K]):
    """One round of questions. A broker has one of them at a time; AT_ONCE brokers are asked at once, and the next when one is done."""

    def __init__(self, cluster: Cluster, deadline: float, max_version: int | None) -> None:
        self._cluster, self._handler = cluster, cluster.handler
        self._deadline, self._max_version = deadline, max_version
        self._news = self._handler.Event()
        self._waiting: deque[deque[Part[K]]] = deque()
        self._under_way: list[_UnderWay[K]] = []
        self._is_many = False
        self._opened: set[Broker] = set()  # for this round

    def ask(self, parts: Sequence[Part[K]]) -> None:
        """Give each part its answer."""
        of_each: dict[Broker, deque[Part[K]]] = {}
        for part in parts:
            of_each.setdefault(part.broker, deque()).append(part)
        self._waiting.extend(of_each.values())
        self._is_many = len(of_each) > AT_ONCE
        self._fill(in_time=True)
        while self._under_way:
            now = self._handler.monotonic()
            self._news.wait(max(0.0, min(asked.until for asked in self._under_way) - now))
            self._news.clear()
            self._collect()
            self._fill(in_time=self._handler.monotonic() < self._deadline)

    def _fill(self, *, in_time: bool) -> None:
        while self._waiting and len(self._under_way) < AT_ONCE:
            parts = self._waiting.popleft()
            if in_time:
                self._begin(parts)
            else:
                self._settle(parts, self._never_asked(parts[0]))

    def _begin(self, parts: deque[Part[K]]) -> None:
        broker, timeout_s = parts[0].broker, self._cluster._share(self._deadline)
        if not broker.has_channel(ADMIN):
            self._opened.add(broker)
        try:
            future = broker.channel(ADMIN).request(parts[0].request, timeout_s=timeout_s, max_version=self._max_version)
        except KafkaException as exc:
            self._settle(parts, exc)
            return
        until = min(self._handler.monotonic() + timeout_s + GRACE_S, max(self._deadline, self._handler.monotonic()) + LATE_S)
        self._under_way.append(_UnderWay(parts, future, until))
        future.add_done_callback(lambda _: self._news.set())

    def _collect(self) -> None:
        now = self._handler.monotonic()
        asked, self._under_way = self._under_way, []
        for one in asked:
            if one.future.done() or now >= one.until:
                self._settle(one.parts, _outcome(one.future, one.parts[0]))
            else:
                self._under_way.append(one)

    def _settle(self, parts: deque[Part[K]], answer: Any) -> None:
        """The first part's answer is here. What keeps a broker from being asked holds for its other parts, too."""
        broker = parts[0].broker
        parts.popleft().answer = answer
        if isinstance(answer, KafkaException) and answer.retriable:
            for part in parts:
                part.answer = answer
            parts.clear()
        if parts:
            self._waiting.appendleft(parts)
        elif self._is_many and broker in self._opened:
            broker.drop_idle(ADMIN)

    def _never_asked(self, part: Part[K]) -> KafkaTimeoutError:
        api = part.request.API.name
        text = f"{address_of(part.broker)}: {api} was not sent in time: {AT_ONCE} brokers are asked at once, and others did not answer"
        return KafkaTimeoutError(text, broker=part.broker.id, api=api)


def _outcome(future: Future, part: Part[Any]) -> Any:
    """What the broker answered, or the error."""
    if not future.done():
        api = part.request.API.name
        return KafkaTimeoutError(f"{address_of(part.broker)}: no answer to {api} in time", broker=part.broker.id, api=api)
    try:
        return future.result()
    except KafkaException as exc:
        return exc
