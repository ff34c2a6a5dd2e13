"""How an administrator's requests find their brokers, are tried again, and what becomes of errors: the rule is in `gkafka.admin`."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from gkafka.admin.asking import Asking, Part
from gkafka.brokererrors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    GroupCoordinatorNotAvailable,
    LeaderNotAvailable,
    ListenerNotFound,
    PreferredLeaderNotAvailable,
    RequestTimedOut,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from gkafka.checks import check_seconds
from gkafka.cluster import ELECTION_S, address_of
from gkafka.common import TopicPartition
from gkafka.core.backoff import Backoff
from gkafka.core.offsets import coordinator_of
from gkafka.errortexts import not_in_time
from gkafka.exceptions import (
    AdminError,
    ConfigurationError,
    KafkaException,
    KafkaTimeoutError,
    LeaderNotFoundError,
    ProtocolError,
    Stale,
    UnsupportedVersion,
    error_for,
)
from gkafka.oneprocess import OfOneProcess
from gkafka.wire.groups import FindCoordinatorRequest, FindCoordinatorResponse
from gkafka.wire.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

if TYPE_CHECKING:
    from gkafka.broker import Broker
    from gkafka.cluster import Cluster

__all__ = ["GROUP", "RESOURCES", "TRANSACTION", "Requests", "made_of", "metadata_request", "parts_of"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
W = TypeVar("W")
GROUP, TRANSACTION = 0, 1
"""Kinds of coordinators, as FindCoordinator names them."""
RESOURCES = 250
"""Named in one request, where an answer tells much of each: 1,800 topics' configurations with their synonyms are 3.75 MB and over 100,000 entries."""
SHOWN = 10
"""Failures that an error's text tells; `errors` has all of them."""
_NO_RETRY_HEALS = (
    UnknownTopicOrPartition,
    UnknownTopicId,
    ElectionNotNeeded,
    PreferredLeaderNotAvailable,
    EligibleLeadersNotAvailable,
    RequestTimedOut,  # it may be done by now, and a second time is refused
)
NO_LEADER = (LeaderNotFoundError, LeaderNotAvailable, ListenerNotFound)
"""A broker has told that nobody who could be asked leads the partition."""
_MISSING: Any = object()


class Subject(OfOneProcess):
    """The calls about one subject, on a client's connections: it has nothing of its own to close."""

    def __init__(self, cluster: Cluster, retry_backoff_ms: float = 100) -> None:
        self._requests = Requests(cluster, retry_backoff_ms)


class Requests:
    """One client's way to its brokers."""

    def __init__(self, cluster: Cluster, retry_backoff_ms: float) -> None:
        self._cluster, self._handler = cluster, cluster.handler
        self._chance = self._handler.random()
        pause_s = check_seconds("retry_backoff_ms", retry_backoff_ms, low=1) / 1000
        self._backoff = Backoff(pause_s, 10 * pause_s)

    # -- time
    def begin(self, timeout: float | None) -> float:
        """The deadline of a call. Raises what keeps the cluster from being reached at all."""
        if timeout is not None:
            check_seconds("timeout", timeout)
        self._handler.check_fork()
        self._cluster.check_open()
        deadline = self._cluster._deadline(timeout)
        self._cluster.connect(max(0.0, deadline - self._handler.monotonic()))
        return deadline

    def left(self, deadline: float) -> float:
        """Seconds until then."""
        return max(0.0, deadline - self._handler.monotonic())

    def halfway(self, deadline: float) -> float:
        """When half of the time until then is over."""
        return deadline - self.left(deadline) / 2

    def aside(self, fn: Callable[..., V], *arguments: Any) -> V:
        """What takes long without waiting for anything: it must not keep other greenlets from running."""
        self._handler.check_fork()
        self._cluster.check_open()
        return self._handler.offload(fn, *arguments)

    def share_ms(self, deadline: float) -> int:
        """What a broker may take of its own, in ms: it shall answer before we stop to wait."""
        return max(1, int(self._cluster._share(deadline) * 900))

    # -- who
    def controller(self, request: Any, deadline: float, *, max_version: int | None = None) -> tuple[Any, str]:
        """The controller's answer, and who gave it."""
        answered: tuple[Any, str] = self._cluster.call_controller(request, deadline, max_version=max_version)
        return answered

    def anyone(self, request: Any, deadline: float, *, max_version: int | None = None) -> tuple[Any, str]:
        """Some broker's answer, and who gave it. One that is silent has half of the time: then another one is asked."""
        answered: tuple[Any, str]
        try:
            answered = self._cluster.call_any(request, self.halfway(deadline), max_version=max_version)
        except KafkaTimeoutError:
            answered = self._cluster.call_any(request, deadline, max_version=max_version)
        return answered

    def metadata(self, topics: Iterable[str] | None, deadline: float, *, operations: bool = False) -> MetadataResponse:
        """Fresh metadata of these topics, None for all. Never makes a topic."""
        first, *others = [None] if topics is None else in_parts(list(topics)) or [[]]
        response: MetadataResponse = self.anyone(metadata_request(first, operations=operations), deadline)[0]
        for some in others:
            more: MetadataResponse = self.anyone(metadata_request(some, operations=operations), deadline)[0]
            response.topics = [*response.topics, *more.topics]
            response.brokers = more.brokers
        return response

    def brokers(self, deadline: float) -> dict[int, Broker]:
        """All of them, by id."""
        return self._known(self.metadata([], deadline))

    def some_broker(self) -> Broker:
        """The least busy one."""
        return self._cluster.some_broker()

    def _known(self, response: MetadataResponse) -> dict[int, Broker]:
        return {b.node_id: self._cluster.know_broker(b.node_id, b.host, b.port) for b in response.brokers}

    def leaders(self, partitions: Iterable[TopicPartition], deadline: float) -> dict[TopicPartition, Broker | KafkaException]:
        """Who leads each partition, or why that cannot be told."""
        wanted = list(partitions)
        response = self.metadata(dict.fromkeys(tp.topic for tp in wanted), deadline)
        known = self._known(response)
        topics = {topic.name: topic for topic in response.topics}
        found: dict[TopicPartition, Broker | KafkaException] = {}
        for tp in wanted:
            about: dict[str, Any] = {"topic": tp.topic, "partition": tp.partition, "api": "Metadata"}
            topic = topics.get(tp.topic)
            error = error_for(3 if topic is None else topic.error_code, **about)
            leaders = {p.partition_index: p.leader_id for p in topic.partitions} if topic is not None else {}
            if error is not None:
                found[tp] = error
            elif tp.partition not in leaders:
                text = f"topic {tp.topic!r} has no partition {tp.partition}: it has 0 to {len(leaders) - 1}"
                found[tp] = UnknownTopicOrPartition(text, **about)
            else:
                leader = known.get(leaders[tp.partition])
                found[tp] = leader or LeaderNotFoundError(f"{tp.topic}-{tp.partition} has no leader at the moment", **about)
        return found

    def coordinators(self, keys: Iterable[str], kind: int, deadline: float) -> dict[str, Broker | KafkaException]:
        """Who coordinates each group or transactional id, or why that cannot be told. kind: GROUP or TRANSACTION."""
        wanted = list(keys)
        asked = frozenset(wanted)
        found: dict[str, Broker | KafkaException] = {}
        try:
            response, told_by = self.anyone(FindCoordinatorRequest(coordinator_keys=wanted, key_type=kind), deadline)
        except UnsupportedVersion:
            if len(wanted) < 2:
                raise
            for key in wanted:  # brokers before 3.0 tell one at a time (KIP-699)
                found.update(self.coordinators([key], kind, deadline))
            return found
        for answer in response.answers:
            key = answer.key or wanted[0]
            if key not in asked:
                continue
            about = {"group": key} if kind == GROUP else {}
            try:
                place = coordinator_of(FindCoordinatorResponse(coordinators=[answer]), broker=told_by, **about)
                found[key] = self._cluster.know_broker(*place)
            except KafkaException as exc:
                found[key] = exc
        for key in wanted:
            found.setdefault(key, GroupCoordinatorNotAvailable(f"the broker named no coordinator for {key!r}", broker=told_by))
        return found

    # -- asking several at once
    def by_broker(
        self,
        items: Iterable[K],
        places: Mapping[K, Broker | KafkaException],
        request_of: Callable[[list[K]], Any],
        read: Callable[[Any, list[K], str], Mapping[K, V | KafkaException]],
        deadline: float,
        *,
        max_version: int | None = None,
        most: int | None = None,
    ) -> dict[K, V | KafkaException]:
        """Ask each broker for what belongs to it, many at once. read: an answer, what was asked for, and who answered -> each one's outcome.

        items: of what a call was given or left with, never of what an answer names: a broker's answer must not choose what others are asked to do.
        What is told of anything else than a request asked for is left out, too.
        most: items of one request, None for all; a broker gets its requests one after the other.
        """
        outcomes: dict[K, V | KafkaException] = {}
        placed: dict[Broker, list[K]] = {}
        for item in items:
            place = places[item]
            if isinstance(place, KafkaException):
                outcomes[item] = place
            else:
                placed.setdefault(place, []).append(item)
        parts = [Part(broker, some, request_of(some)) for broker, mine in placed.items() for some in in_parts(mine, most or len(mine))]
        Asking[K](self._cluster, deadline, max_version).ask(parts)
        for part in parts:
            try:
                if isinstance(part.answer, KafkaException):
                    raise part.answer
                told = read(part.answer, part.items, address_of(part.broker))
                outcomes.update((item, told[item]) for item in part.items if item in told)
            except ConfigurationError:  # of what the call was given
                raise
            except KafkaException as exc:
                outcomes.update(dict.fromkeys(part.items, exc))
        return outcomes

    def of_each_broker(self, what: str, request: Any, read: Callable[[Any, int, str], V], deadline: float) -> dict[int, V]:
        """What each broker of the cluster tells, by its id; of one that leaves meanwhile nothing. read: an answer, the broker's id, its address."""

        def read_one(response: Any, mine: list[int], broker: str) -> dict[int, V | KafkaException]:
            return {id_: read(response, id_, broker) for id_ in mine}  # several, where they are said to be at the same address

        def attempt(left: list[int]) -> dict[int, V | KafkaException | None]:
            there = self.brokers(deadline)
            gone: dict[int, V | KafkaException | None] = {id_: None for id_ in left if id_ not in there}
            return gone | self.by_broker([id_ for id_ in left if id_ in there], there, lambda _: request, read_one, deadline)

        def those_there(told: dict[int, V | None]) -> dict[int, V]:
            return {id_: answer for id_, answer in told.items() if answer is not None}

        return made_of(lambda: self.settle(what, sorted(self.brokers(deadline)), attempt, deadline), those_there)

    # -- until it is done
    def settle(
        self,
        what: str,
        items: Iterable[K],
        attempt: Callable[[list[K]], Mapping[K, V | KafkaException]],
        deadline: float,
        *,
        final: tuple[type[KafkaException], ...] = (),
        repeatable: bool = False,
    ) -> dict[K, V]:
        """Each item's result. attempt: tries those that are left; each one's outcome, or it raises what keeps all of them from being tried.

        What a retry may heal is tried again until the deadline, but for `final`; what has no leader, for ELECTION_S. repeatable: a second time does no
        harm, so what a broker did not see the end of is tried again as well. Raises AdminError for items; what attempt raised, and what no broker speaks,
        as itself.
        """
        asked = left = list(dict.fromkeys(items))
        results: dict[K, V] = {}
        errors: dict[K, KafkaException] = {}
        tries, began = 0, self._handler.monotonic()
        while left:
            self._handler.check_fork()
            self._cluster.check_open()
            whole, outcomes = self._outcomes(attempt, left)
            if whole is not None and not heals(whole) and not (results or errors):
                raise whole
            past = final if self._handler.monotonic() - began < ELECTION_S else (*final, *NO_LEADER)
            again = self._sort(left, outcomes, results, errors, past, repeatable)
            tries += 1
            pause = self._backoff.pause_s(tries, self._chance)
            rest = deadline - self._handler.monotonic()
            if again and pause >= rest:
                self._cluster.pause(rest)
                if whole is not None and not (results or errors):
                    raise KafkaTimeoutError(not_in_time(what, whole), **whole.about) from whole
                errors.update({item: _too_late(what, error) for item, error in again.items()})
                break
            if again:
                self._cluster.pause(pause)
            left = list(again)
        unable = [error for error in errors.values() if isinstance(error, UnsupportedVersion)]
        if unable and len(unable) == len(asked):
            raise unable[0]
        return self.all_or_error(what, errors, {item: results[item] for item in asked if item in results})

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """For calls that take a single thing: its error is raised itself, not in an AdminError."""
        try:
            yield
        except AdminError as exc:
            (error,) = exc.errors.values()
            raise error from error.__cause__

    @staticmethod
    def all_or_error(what: str, errors: Mapping[K, KafkaException], results: dict[K, V]) -> dict[K, V]:
        """The results, or an AdminError if there is an error."""
        if errors:
            raise _listed(what, len(errors) + len(results), dict(errors), results)
        return results

    def _outcomes(
        self, attempt: Callable[[list[K]], Mapping[K, V | KafkaException]], left: list[K]
    ) -> tuple[KafkaException | None, Mapping[K, V | KafkaException]]:
        try:
            return None, attempt(left)
        except KafkaException as exc:
            return exc, dict.fromkeys(left, exc)

    def _sort(
        self,
        left: list[K],
        outcomes: Mapping[K, V | KafkaException],
        results: dict[K, V],
        errors: dict[K, KafkaException],
        final: tuple[type[KafkaException], ...],
        repeatable: bool,
    ) -> dict[K, KafkaException]:
        """Results to results, errors to errors; returns those that are to be tried again, which what is `final` is not."""
        again: dict[K, KafkaException] = {}
        for item in left:
            outcome = outcomes.get(item, _MISSING)
            if outcome is _MISSING:
                errors[item] = ProtocolError(f"the answer leaves {item!r} out")
            elif not isinstance(outcome, KafkaException):
                results[item] = outcome
            else:
                if outcome.stale is Stale.METADATA:
                    self._cluster.metadata.invalidate()
                healed = heals(outcome) or (repeatable and isinstance(outcome, RequestTimedOut))
                (again if healed and not isinstance(outcome, final) else errors)[item] = outcome
        return again


def metadata_request(topics: Iterable[str] | None, *, operations: bool = False) -> MetadataRequest:
    """Of these topics, None for all; none is made by it."""
    asked = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
    return MetadataRequest(topics=asked, allow_auto_topic_creation=False, include_topic_authorized_operations=operations)


def in_parts(items: list[V], most: int = RESOURCES) -> list[list[V]]:
    """So many at most in each, in their order."""
    return [items[at : at + most] for at in range(0, len(items), most)]


def made_of(call: Callable[[], dict[K, V]], made: Callable[[dict[K, V]], dict[Any, W]]) -> dict[Any, W]:
    """What a call returns that makes it of another one's results; in an AdminError `results` is made of those of the others."""
    try:
        found = call()
    except AdminError as exc:
        exc.results = made(exc.results)
        raise
    return made(found)


def parts_of(call: Callable[[], dict[K, V]]) -> tuple[dict[K, V], dict[K, KafkaException]]:
    """(results, errors) of a call. Raises what concerns it as a whole."""
    try:
        return call(), {}
    except AdminError as exc:
        return exc.results, exc.errors


def heals(error: KafkaException) -> bool:
    """May the same request succeed a moment later?"""
    return error.retriable and not isinstance(error, _NO_RETRY_HEALS)


def _too_late(what: str, last: KafkaException) -> KafkaException:
    error = KafkaTimeoutError(not_in_time(what, last), **last.about)
    error.__cause__ = last
    return error


def _listed(what: str, asked: int, errors: dict[K, KafkaException], results: dict[K, V]) -> AdminError:
    shown = [f"{_named(item)}: {error}" for item, error in list(errors.items())[:SHOWN]]
    more = f"; and {len(errors) - SHOWN} more" if len(errors) > SHOWN else ""
    error = AdminError(f"{what}: {len(errors)} of {asked} failed: {'; '.join(shown)}{more}", errors, results)
    error.__cause__ = next(iter(errors.values()))
    return error


def _named(item: Any) -> str:
    """A thing as an error's text names it: "orders-0", "topic orders"."""
    if isinstance(item, TopicPartition):
        return f"{item.topic}-{item.partition}"
    if isinstance(item, tuple):
        return " ".join(map(_named, item))
    return item.name.lower() if isinstance(item, enum.Enum) else str(item)
