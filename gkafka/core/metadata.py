"""What is known of the cluster: brokers, topics, leaders; and when it must be asked again.

The machine never waits: `due(now)` says when a request is wanted, `request()` builds it, `on_response` / `on_failure` take the
outcome. Whoever needs a topic adds it to the interest and asks the owner to poll.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from gkafka.checks import is_topic_name
from gkafka.core.backoff import Backoff, Chance, Retry
from gkafka.exceptions import BrokerError, error_for
from gkafka.hosts import is_address
from gkafka.logs import LaterLines, get_logger
from gkafka.wire.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from gkafka.wire.primitives import ZERO_UUID

__all__ = ["NO_TOPIC_ID", "BrokerInfo", "Metadata", "PartitionInfo", "TopicInfo", "read_topics"]

log = get_logger(__name__)

NO_TOPIC_ID = ZERO_UUID
NEVER = float("inf")
CALM_S = 2.0
"""Refreshes that are this far apart have nothing to do with each other."""
STORM_S = 0.5
"""Longest pause after a refresh that settled everything."""
DISPUTED_S = 30.0
"""How long the leader that an epoch names must have refused it before an older one is believed: much longer than an election takes to get around."""
DISPUTE_ENDS_S = 10.0
"""A refusal this long after the one before it has nothing to do with it: whoever is refused asks again every second."""

SLICE = 500
"""Partitions of an answer that are looked at before others get their turn."""


class BrokerInfo(NamedTuple):
    """A broker as it advertises itself."""

    id: int
    host: str
    port: int
    rack: str | None = None


class PartitionInfo(NamedTuple):
    """leader: a broker id, -1 while there is none. leader_epoch: -1 where the broker does not tell (before KIP-320)."""

    id: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    error: BrokerError | None


class TopicInfo(NamedTuple):
    """A topic as the last answer told it. topic_id: NO_TOPIC_ID where brokers know none (before KIP-516)."""

    name: str
    topic_id: uuid.UUID
    is_internal: bool
    partitions: dict[int, PartitionInfo]
    error: BrokerError | None


class Dispute(NamedTuple):
    """An epoch that the leader it names has refused: since when, and when it last did."""

    epoch: int
    since: float
    last: float


class Metadata:
    """Brokers, topics and leaders, and the plan of refreshing them.

    max_age_s: a refresh is due when the last answer is this old. max_idle_s: a topic that only producers have asked for is forgotten when none has
    written to it for so long (KIP-526), and at once when it is gone. waiting: names that calls wait for; the owner's. lines: what there is to log. backoff: pauses between tries after a failure, and between refreshes
    that follow each other closely, so that an unknown topic or a storm of leader changes costs one or two requests a second. A topic that is
    new is asked for alone: with 5,000 of them, one after the other, each would cost the names of all before it.

    The owner calls it under a lock. Other workers call `dispute`, `end_dispute`, `add_brokers`, `leader_moved` and `invalidate` without
    that lock, with what an answer of a leader tells. Each of these changes one attribute or one entry in a single step, and whoever goes
    over the entries takes a copy first. Where two workers meet, the news of one may be lost. That costs one more refusal by a leader, or a
    leader without an address, and either has the metadata asked for again.
    """

    def __init__(self, *, max_age_s: float, max_idle_s: float, backoff: Backoff, chance: Chance, auto_create: bool) -> None:
        self.brokers: dict[int, BrokerInfo] = {}
        self.topics: Mapping[str, TopicInfo] = {}
        """Never changed: who reads it without a lock sees all of an answer, or nothing."""
        self.names_by_id: dict[uuid.UUID, str] = {}
        self.controller_id = -1
        self.cluster_id: str | None = None
        self.version = 0
        self._max_age_s, self._max_idle_s, self._backoff, self._chance, self._auto_create = (
            max_age_s,
            max_idle_s,
            backoff,
            chance,
            auto_create,
        )
        self.waiting: Collection[str] = ()
        self.lines = LaterLines()
        self._interest: set[str] = set()
        self._new: set[str] = set()  # of the interest: not answered yet
        self._written: dict[str, float] = {}  # of the interest, what only producers asked for: when one has written to it last
        self._awaited: set[str] = set()  # of the interest: records wait for it, as they did when the last answer came
        self._left_out = False  # the last request was for those topics alone that may be made
        self._known: set[str] = set()  # was there once
        self._partial: MetadataRequest | None = None
        self.listings = self._listings_asked = self._listing_wanted = 0  # answers that told all topics, and what they were to be
        self._disputes: dict[tuple[str, int], Dispute] = {}
        self._retry = Retry()
        self._updated_at = -NEVER
        self._wanted = False
        self._stale_rounds = 0
        self._rounds = 0

    # -- what is wanted ----------------------------------------------------------------------------------------------
    def add_topics(self, names: Iterable[str], *, written_at: float | None = None, awaited: bool = False, anew: bool = False) -> bool:
        """Add topics to the interest. True: at least one of them is not known yet, a refresh is wanted.

        written_at: a producer asks for them, which has written to them then; None: somebody else does, for whom they are kept. A topic that was there
        and was deleted is made again, where that is allowed, if records wait for it now (awaited), or if somebody asks for it by its name (anew);
        not because it was read, or written to once.
        """
        unknown = False
        for name in names:
            known = self.topics.get(name)
            if known is None and name not in self._interest and not self._retry.failures:
                self._retry.not_before = 0.0  # nobody has asked for it yet: the pause is for what was asked
            if written_at is None:
                self._written.pop(name, None)
            elif name not in self._interest or name in self._written:
                self._written[name] = written_at
            self._interest.add(name)
            if awaited:
                self._awaited.add(name)
            if anew:
                self._known.discard(name)
            if known is None or known.error is not None:
                self._new.add(name)
                unknown = True
        return unknown

    def forget_topic(self, name: str) -> None:
        """Take a topic out of the interest: it was deleted, or nobody uses it any more."""
        self._interest.discard(name)
        self._new.discard(name)
        self._written.pop(name, None)
        self._awaited.discard(name)
        topics = dict(self.topics)
        self._drop(topics, name)
        self.topics = topics

    def was_made(self, name: str) -> None:
        """Note that this client has created a topic, which may not be known yet: nobody has to make it because it is asked for."""
        self._known.add(name)

    def wrote(self, name: str, at: float) -> bool:
        """Note that a producer has written to a topic. False: the topic is not of interest (any more), add it."""
        if name in self._written:
            self._written[name] = at
            return True
        return name in self._interest

    def want_everything(self) -> int:
        """The next refresh asks for all topics of the cluster. It is answered once `listings` reaches the number that is returned."""
        self._wanted = True
        self._listing_wanted = self._listings_asked + 1
        return self._listing_wanted

    def invalidate(self) -> None:
        """Something said that this is out of date: refresh as soon as the backoff allows."""
        self._wanted = True

    def due(self, now: float) -> float:
        """When a request should go out: a time that has passed means now, infinity means not before something asks for it."""
        when = self._updated_at + self._max_age_s if self._interest or self.version else NEVER
        if self._wanted or self._new:
            when = now
        return max(when, self._retry.not_before)

    def request(self) -> MetadataRequest:
        """The refresh for the present interest; if all that is wanted are topics that nobody asked for yet, for these alone."""
        self._partial = None
        if self._listing_wanted > self.listings:
            self._listings_asked += 1
            return MetadataRequest(topics=None, allow_auto_topic_creation=False)
        partial = bool(self._new) and not self._wanted and self.version > 0
        names = set(self._new if partial else self._interest)
        made = {name for name in names if self._may_be_made(name)} if self._auto_create else set()
        # The right to make topics is a request's, not a topic's. So those that may be made go first and alone, and the others in the next request.
        self._left_out = bool(made) and made != names and not self._left_out
        if made and made != names:
            names = made if self._left_out else names - made
            partial = partial or self._left_out
        topics = [MetadataRequestTopic(name=name) for name in sorted(names)]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=bool(made) and made == names)
        if partial:
            self._partial = request
        return request

    def _may_be_made(self, name: str) -> bool:
        """Is it not there, and was it either never, or do records wait for it? What is read, or was written to, and was deleted stays so."""
        return self.topic(name) is None and (name in self._awaited or name not in self._known)

    # -- what came -----------------------------------------------------------------------------------------------------
    def on_response(
        self, asked: MetadataRequest, response: MetadataResponse, now: float, topics: Mapping[str, TopicInfo] | None = None
    ) -> None:
        """Take an answer in. A topic that the answer leaves out although it was asked for is unknown from now on.

        topics: what `read_topics` has made of it; None: to be made here.
        """
        if topics is None:
            *_, topics = read_topics(response)
        self.brokers = {b.node_id: BrokerInfo(b.node_id, b.host, b.port, b.rack) for b in response.brokers}
        self.controller_id = response.controller_id
        self.cluster_id = response.cluster_id or self.cluster_id
        wanted = self.topics.keys() if asked.topics is None else {topic.name for topic in asked.topics if topic.name is not None}
        told = {name: topic for name, topic in topics.items() if name in wanted or is_topic_name(name)}
        known = dict(self.topics)
        for name in wanted - told.keys():
            self._drop(known, name)
        for topic in told.values():
            self._take(known, topic, now)
        self._forget_unused(known, wanted, wanted if asked is self._partial else list(self._written), now)
        self._awaited -= wanted
        self.topics = known
        if asked.topics is None:
            self.listings = self._listings_asked  # behind the topics: who waits for it reads them then
        self.version += 1
        if asked is self._partial:
            self._new = {name for name in self._new if name not in wanted or self._unsettled(name)}
            self._plan_partial(now, troubled=any(self.topic(name) is None for name in wanted))
            return
        self._new -= wanted if asked.topics is not None else told.keys()
        self._rounds = self._rounds + 1 if now - self._updated_at < CALM_S else 0
        self._updated_at = now
        self._plan_next(now)

    def _forget_unused(self, known: dict[str, TopicInfo], wanted: Collection[str], names: Iterable[str], now: float) -> None:
        """Take those of the names out of the interest that only producers have asked for, if none has written to them for long or the answer, which was
        to tell of `wanted`, does not have them. Those that records or calls wait for stay.
        """
        for name in names:
            written_at = self._written.get(name)
            if written_at is None or name in self._awaited or name in self.waiting:
                continue
            gone = name in wanted and not _is_usable(known.get(name))
            if gone or now - written_at >= self._max_idle_s:
                self.lines.add(log, logging.DEBUG, "topic %s: forgotten, %s", name, "it is gone" if gone else "nobody writes to it")
                del self._written[name]
                for names_of in (self._interest, self._new, self._known):
                    names_of.discard(name)
                if gone or not self.listings:  # else it was in a list of all topics, which the client shows
                    self._drop(known, name)

    def _plan_partial(self, now: float, *, troubled: bool) -> None:
        self._stale_rounds = self._stale_rounds + 1 if troubled else 0
        self._retry.failures = 0
        self._retry.not_before = now + self._backoff.pause_s(self._stale_rounds, self._chance) if troubled else 0.0

    def on_failure(self, now: float) -> None:
        """No answer: try again after a pause."""
        self._wanted = self._wanted or self._partial is None
        self._retry.failed(self._backoff, now, self._chance)

    def _plan_next(self, now: float) -> None:
        unsettled = any(self._unsettled(name) for name in list(self._interest))
        self._wanted = unsettled or self._listing_wanted > self.listings
        self._stale_rounds = self._stale_rounds + 1 if unsettled else 0
        self._retry.failures = 0
        # Even a refresh that settled everything is followed by a short pause: stale answers of twenty partitions in a
        # moment of leader changes must not become twenty requests. If they go on, the pauses grow, but no further than STORM_S:
        # each of those leaders may be the one that somebody waits for.
        pause = min(self._backoff.pause_s(self._rounds, self._chance), STORM_S)
        if self._stale_rounds:
            pause = self._backoff.pause_s(self._stale_rounds, self._chance)
        self._retry.not_before = now + pause

    def _unsettled(self, name: str) -> bool:
        topic = self.topics.get(name)
        if topic is None:
            return True
        if topic.error is not None:
            return topic.error.retriable
        return any(p.leader < 0 for p in topic.partitions.values())

    def _take(self, known: dict[str, TopicInfo], topic: TopicInfo, now: float) -> None:
        name, old = topic.name, known.get(topic.name)
        if old is not None and topic.error is None and old.topic_id == topic.topic_id:
            topic = topic._replace(partitions=self._newest(name, old.partitions, topic.partitions, now))
        elif old is not None:
            self._drop(known, name)
        known[name] = topic
        if topic.error is None and topic.partitions:
            if old is not None and old.error is not None and old.error.retriable and self._auto_create and name not in self._known:
                self.lines.add(
                    log,
                    logging.WARNING,
                    "topic %r was not there when it was asked for, and is now, with %d partition(s): the broker has created it, if nobody else has. If the "
                    "name is misspelt, delete the topic; auto_create_topics=False has none created",
                    name,
                    len(topic.partitions),
                )
            self._known.add(name)
        if topic.topic_id != NO_TOPIC_ID:
            self.names_by_id[topic.topic_id] = name

    def _newest(
        self, name: str, before: Mapping[int, PartitionInfo], told: dict[int, PartitionInfo], now: float
    ) -> dict[int, PartitionInfo]:
        """A call for each of 10,000 partitions would hold up the others: only of those of which something older was told, or that are in dispute."""
        doubtful = [i for i, new in told.items() if (old := before.get(i)) is not None and old.leader_epoch > new.leader_epoch]
        doubtful += [i for topic, i in list(self._disputes) if topic == name and i in told]
        return {**told, **{i: self._newer(name, before.get(i), told[i], now) for i in dict.fromkeys(doubtful)}} if doubtful else told

    def _newer(self, name: str, old: PartitionInfo | None, new: PartitionInfo, now: float) -> PartitionInfo:
        # A broker that lags behind may still tell an older leader: the epoch decides (KIP-320). But a broker may once have told an epoch that never was.
        if old is None or old.leader < 0 or not 0 <= new.leader_epoch < old.leader_epoch:
            self._disputes.pop((name, new.id), None)  # somebody tells it, too, or a newer one
            return new
        if old.leader not in self.brokers:
            self.dispute(name, new.id, old.leader_epoch, now)
        dispute = self._disputes.get((name, new.id))
        if dispute is None or dispute.epoch != old.leader_epoch or now - dispute.last > DISPUTE_ENDS_S or now - dispute.since < DISPUTED_S:
            return old
        self._disputes.pop((name, new.id), None)
        text = "%s-%d: broker %d, said to lead since epoch %d, has refused that for %.0f s, and no broker says so any more: going on with epoch %d"
        lasted_s = now - dispute.since
        self.lines.add(log, logging.WARNING, text, name, new.id, old.leader, old.leader_epoch, lasted_s, new.leader_epoch)
        return new

    def dispute(self, topic: str, partition: int, epoch: int, now: float) -> None:
        """The leader that is named by this epoch says that it is not the leader, or knows of no such epoch.

        If it goes on to say so, and all metadata are older, the epoch was a lie. A leader that is not reached, or that took the epoch since, disputes
        nothing: then what is older is stale (KIP-320).
        """
        known = self.topics.get(topic)
        info = known.partitions.get(partition) if known is not None else None
        if info is None or info.leader_epoch != epoch:
            return
        before = self._disputes.get((topic, partition))
        goes_on = before is not None and before.epoch == epoch and now - before.last <= DISPUTE_ENDS_S
        self._disputes[topic, partition] = Dispute(epoch, before.since if before is not None and goes_on else now, now)

    def end_dispute(self, topic: str, partition: int) -> None:
        """A leader took its epoch, after all."""
        self._disputes.pop((topic, partition), None)

    def _drop(self, topics: dict[str, TopicInfo], name: str) -> None:
        old = topics.pop(name, None)
        if old is not None:
            for partition in old.partitions:
                self._disputes.pop((name, partition), None)
            self.names_by_id.pop(old.topic_id, None)

    # -- look-ups --------------------------------------------------------------------------------------------------------
    def topic(self, name: str) -> TopicInfo | None:
        """The topic if it is known and usable (no error, at least one partition), else None."""
        topic = self.topics.get(name)
        return topic if _is_usable(topic) else None

    def topic_error(self, name: str) -> BrokerError | None:
        """What the last answer said against the topic."""
        topic = self.topics.get(name)
        return topic.error if topic is not None else None

    def leader(self, topic: str, partition: int) -> tuple[int, int] | None:
        """(broker id, leader epoch) of a partition whose leader is known and reachable by address, else None."""
        known = self.topics.get(topic)
        info = known.partitions.get(partition) if known is not None else None
        if info is None or info.leader not in self.brokers:
            return None
        return info.leader, info.leader_epoch

    def racks(self, topic: TopicInfo) -> list[set[str]]:
        """For each partition of a topic, in order, the racks of its replicas, as far as brokers tell."""
        brokers = self.brokers
        return [
            {rack for id_ in topic.partitions[p].replicas if (broker := brokers.get(id_)) is not None and (rack := broker.rack)}
            for p in sorted(topic.partitions)
        ]

    def topic_id(self, name: str) -> uuid.UUID:
        """NO_TOPIC_ID where it is not known."""
        topic = self.topics.get(name)
        return topic.topic_id if topic is not None else NO_TOPIC_ID

    def add_brokers(self, named: Iterable[BrokerInfo]) -> None:
        """KIP-951: an answer that names new leaders tells where they are. What is known already stays; an address that is none is left out."""
        news = {broker.id: broker for broker in named if broker.id not in self.brokers and is_address(broker.host, broker.port)}
        if news:
            self.brokers = {**self.brokers, **news}

    def leader_moved(self, topic: str, partition: int, leader: int, epoch: int) -> bool:
        """KIP-951: a broker's answer names the new leader. True if it was news and its address is known."""
        known = self.topics.get(topic)
        info = known.partitions.get(partition) if known is not None else None
        if known is None or info is None or leader not in self.brokers or epoch <= info.leader_epoch:
            return False
        known.partitions[partition] = info._replace(leader=leader, leader_epoch=epoch)
        return True


def _is_usable(topic: TopicInfo | None) -> bool:
    return topic is not None and topic.error is None and bool(topic.partitions)


def read_topics(response: MetadataResponse, *, epochs: bool = True) -> Iterator[dict[str, TopicInfo]]:
    """An answer's topics by name, made in slices: the same dict again and again, whole with the last one.

    epochs: False does without the leader epochs that it tells: the broker is too old for them to be right.
    """
    found: dict[str, TopicInfo] = {}
    since = 0
    for topic in response.topics:
        if (name := topic.name) is None:
            continue
        partitions: dict[int, PartitionInfo] = {}
        for p in topic.partitions:
            partitions[p.partition_index] = PartitionInfo(
                p.partition_index,
                p.leader_id,
                p.leader_epoch if epochs else -1,
                tuple(p.replica_nodes),
                tuple(p.isr_nodes),
                error_for(p.error_code, topic=name, partition=p.partition_index, api="Metadata"),
            )
            since += 1
            if since >= SLICE:
                since = 0
                yield found
        error = error_for(topic.error_code, topic=name, api="Metadata")
        found[name] = TopicInfo(name, topic.topic_id, topic.is_internal, partitions, error)
    yield found
