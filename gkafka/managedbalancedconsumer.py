"""pykafka's ManagedBalancedConsumer: consumers of a group divide a topic among themselves, and Kafka's coordinator keeps who has what.

Documented: pykafka 2.8 (named in the KafkaClient page of the reference). Needs brokers of Kafka 0.9 or newer, and no ZooKeeper.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from gkafka.balancing import OF_THE_GROUP, SLICE_S, Balancing, Callback
from gkafka.checks import check_seconds
from gkafka.common import OffsetType, TopicPartition
from gkafka.config import ConsumerConfig, check_keywords
from gkafka.core.assignors import ASSIGNORS, Assignment, Assignor, GroupMember, Topics
from gkafka.core.groupstate import Change, GroupOptions, Tell
from gkafka.exceptions import ConfigurationError, ConsumerStoppedException, KafkaException, KafkaTimeoutError
from gkafka.guarding import guarded
from gkafka.lifetime import ends
from gkafka.logs import get_logger
from gkafka.membership import Member, rebalance_timeout_s
from gkafka.membershipprotocol import GroupMembershipProtocol, RangeProtocol, RoundRobinProtocol, share_of
from gkafka.simpleconsumer import SimpleConsumer

if TYPE_CHECKING:
    from gkafka.cluster import Cluster
    from gkafka.topic import Topic

__all__ = ["ManagedBalancedConsumer"]

log = get_logger(__name__)

SESSION_S = 30.0
"""pykafka's session: so long the coordinator waits for a member that is silent."""
REBALANCE_S = 60.0
"""So long it waits for one that is alive, and has not joined a rebalance yet."""
STOP_S = 10.0


class ManagedBalancedConsumer(Balancing):
    """A member of a group that shares a topic by way of the group's coordinator.

    topic, cluster: what it was made from. heartbeat_interval_ms: how often it tells the coordinator that it is alive, whether anybody calls
    consume() or not. rebalance_max_retries, rebalance_backoff_ms: the longest pause between two tries to join, and after how many of those
    without an assignment consume() raises KafkaTimeoutError; joining goes on. While the coordinator waits for other members, as for one that was
    killed, that is 60 s later. membership_protocol: RangeProtocol, RoundRobinProtocol or one of the
    user's, whose metadata (bytes or None) go along as user data. Other keywords: see Balancing and SimpleConsumer.
    """

    def __init__(
        self,
        topic: Topic,
        cluster: Cluster,
        consumer_group: str | bytes,
        fetch_message_max_bytes: int = 1024 * 1024,
        num_consumer_fetchers: int = 1,
        auto_commit_enable: bool = False,
        auto_commit_interval_ms: int = 60 * 1000,
        queued_max_messages: int = 2000,
        fetch_min_bytes: int = 1,
        fetch_error_backoff_ms: int = 500,
        fetch_wait_max_ms: int = 100,
        offsets_channel_backoff_ms: int = 1000,
        offsets_commit_max_retries: int = 5,
        auto_offset_reset: int = OffsetType.EARLIEST.value,
        consumer_timeout_ms: int = -1,
        rebalance_max_retries: int = 5,
        rebalance_backoff_ms: int = 2 * 1000,
        auto_start: bool = True,
        reset_offset_on_start: bool = False,
        post_rebalance_callback: Callback | None = None,
        use_rdkafka: bool = False,
        compacted_topic: bool = True,
        heartbeat_interval_ms: int = 3000,
        membership_protocol: Any = None,
        deserializer: Callable[[Any, Any], tuple[Any, Any]] | None = None,
        reset_offset_on_fetch: bool = True,
        *,
        commit_on_rebalance: bool = True,
        **options: Any,
    ) -> None:
        check_keywords(ManagedBalancedConsumer, options, ConsumerConfig, beside=["managed", *OF_THE_GROUP])
        self._member: Member | None = None
        self._leaving: Member | None = None  # its callback called stop(), which had to return before it was gone
        self._generation, self._member_id = -1, ""
        self._revoking = self._has_share = False
        self._left_in = -1
        super().__init__(
            topic,
            cluster,
            consumer_group,
            auto_commit_enable=auto_commit_enable,
            consumer_timeout_ms=consumer_timeout_ms,
            rebalance_max_retries=rebalance_max_retries,
            rebalance_backoff_ms=rebalance_backoff_ms,
            auto_start=auto_start,
            reset_offset_on_start=reset_offset_on_start,
            post_rebalance_callback=post_rebalance_callback,
            use_rdkafka=use_rdkafka,
            membership_protocol=membership_protocol,
            commit_on_rebalance=commit_on_rebalance,
            keywords={
                "fetch_message_max_bytes": fetch_message_max_bytes,
                "num_consumer_fetchers": num_consumer_fetchers,
                "auto_commit_interval_ms": auto_commit_interval_ms,
                "queued_max_messages": queued_max_messages,
                "fetch_min_bytes": fetch_min_bytes,
                "fetch_error_backoff_ms": fetch_error_backoff_ms,
                "fetch_wait_max_ms": fetch_wait_max_ms,
                "offsets_channel_backoff_ms": offsets_channel_backoff_ms,
                "offsets_commit_max_retries": offsets_commit_max_retries,
                "auto_offset_reset": auto_offset_reset,
                "compacted_topic": compacted_topic,
                "deserializer": deserializer,
                "reset_offset_on_fetch": reset_offset_on_fetch,
                **options,
            },
        )
        self._heartbeat_s = check_seconds("heartbeat_interval_ms", heartbeat_interval_ms, low=1) / 1000
        if self._heartbeat_s * 3 > SESSION_S:
            raise ConfigurationError(
                f"heartbeat_interval_ms={heartbeat_interval_ms!r}: must be {SESSION_S * 1000 / 3:g} or less, a third of the session"
            )
        self._assignor = _assignor(self._membership_protocol, topic)
        self._waiting_since = 0.0
        cluster.adopt(self)  # whole: the client ends it
        if auto_start:
            guarded(self.start, failed=self._not_started)

    def _not_started(self, error: BaseException) -> bool:
        if not isinstance(error, ConsumerStoppedException):  # else whoever stopped it sees it through
            with contextlib.suppress(KafkaException):  # nobody will have it, to stop it
                self.close(0)
        return True

    # -- life ----------------------------------------------------------------------------------------------------------------
    def start(self) -> None:
        """Join the group; returns when this member has its share, or after rebalance_max_retries pauses: joining goes on then.

        In the callback of a rebalance, after stop(), it returns at once. Raises ConsumerStoppedException if another worker stops the consumer, or closes
        its client, meanwhile.
        """
        self._handler.check_fork()
        if self._running:
            return
        if self._member is not None:  # whoever stopped it was interrupted
            self.stop()
        me = weakref.ref(self)
        options = GroupOptions(
            self._group,
            [self._assignor],
            session_timeout_s=SESSION_S,
            rebalance_timeout_s=rebalance_timeout_s(self._cluster, REBALANCE_S, SESSION_S),
            heartbeat_interval_s=self._heartbeat_s,
            max_poll_interval_s=float("inf"),
        )
        self._on_start()
        self._running, self._waiting_since, self._has_share = True, self._handler.monotonic(), False
        member = self._member = Member(
            self._cluster,
            options,
            [self._topic.name],
            on_change=_weakly(me, ManagedBalancedConsumer._changed_share),
            on_problem=_weakly(me, ManagedBalancedConsumer._met),
            max_pause_s=min(max(0.1, self._rebalance_backoff_s), SESSION_S / 10),  # heartbeats pause no longer, too
        )
        member.polled()
        self._cluster.check_adopting()  # whoever closes it from here on finds the member
        if self._leaving is not None and self._leaving.in_callback:
            return  # started anew by its own callback: it can be a member again only when that has returned
        member.wait_for(
            lambda: self._has_share or self._error is not None or member.error is not None or member.ended or not self._running,
            self._patience_s(),
        )
        if member.error is not None:
            self._running = False
            self._error = None
            raise member.error
        self._check_not_stopped()

    def _patience_s(self) -> float:
        return max(1.0, self._rebalance_max_retries * self._rebalance_backoff_s)

    @ends
    def stop(self) -> None:
        """Stop consuming, commit if auto_commit_enable, leave the group. Idempotent; start() begins again.

        From the callback of a rebalance it takes effect when that returns.
        """
        self._handler.check_fork()  # the membership is the parent's
        self._handler.check_may_wait()
        self._on_stop()
        ending = [member for member in (self._leaving, self._member) if member is not None]
        for member in ending:
            member.look_again()  # for who waits in start()
        for member in ending:  # whoever is interrupted in here leaves the rest to the next stop()
            member.leave("the consumer is stopped", self._patience(STOP_S))
            if member.in_callback:
                self._leaving = member
            elif self._leaving is member:
                self._leaving = None
            if self._member is member:
                self._member = None
        if ending and self._leaving is None:  # else it is stopped when what it has is revoked
            self._lose()
        self._generation, self._member_id = -1, ""

    def __del__(self) -> None:
        super().__del__()
        member = getattr(self, "_member", None)
        if member is not None:
            member.abandon()

    # -- on the worker for callbacks ---------------------------------------------------------------------------------------------
    def _changed_share(self, tell: Tell, generation: int, member_id: str) -> None:
        if tell.change is Change.ASSIGNED:
            if generation != self._left_in + 1:
                self._left_at = {}  # there was a generation without this member: others may have gone on from there
            self._generation, self._member_id = generation, member_id
            self._begin([tp.partition for tp in tell.partitions])
            if self._consumer is not None or not tell.partitions:
                self._on_share()
            self._has_share = True
        elif tell.change is Change.REVOKED:
            self._revoking = True
            try:
                self._left_at, self._left_in = self._stop_inside(), self._generation
            finally:
                self._revoking = False
                self._waiting_since = self._handler.monotonic()
        else:
            self._lose()
            self._waiting_since = self._handler.monotonic()

    def _begin(self, mine: list[int]) -> None:
        """Consume these. What stands in the way is told, and tried again for as long as they are this member's: nobody else would consume them."""
        while True:
            try:
                self._switch(lambda: mine)
                return
            except KafkaException as exc:
                if not self._running:
                    return
                log.error("group %s: partitions %s cannot be consumed yet: %s", self._group, mine, exc)
                self._met(exc)
            until = self._handler.monotonic() + max(SLICE_S, self._rebalance_backoff_s)
            while self._handler.monotonic() < until:
                if not (self._running and self._may_deliver()):
                    return
                self._handler.sleep(SLICE_S)

    def _met(self, error: BaseException) -> None:
        self._error = error
        self._changed.set()

    def _stop_inside(self) -> dict[int, int]:
        # First: from here on whoever consumes finds that there is nothing, and counts since when.
        self._waiting_since = self._handler.monotonic()
        return super()._stop_inside()

    def _make_consumer(self, partitions: Iterable[int] | None) -> SimpleConsumer:
        self._keywords.update(generation_id=self._generation, consumer_id=self._member_id)
        return super()._make_consumer(partitions)

    # -- what is this member's -------------------------------------------------------------------------------------------------
    def _may_deliver(self) -> bool:
        member = self._member
        return member is not None and member.delivers

    def _who_may_deliver(self) -> Callable[[], bool]:
        member = self._member
        return (lambda: False) if member is None else member.delivery_check()

    def _may_commit(self) -> bool:
        # What is revoked is this member's until the callback for it returns.
        return self._revoking or self._may_deliver()

    def _standing(self) -> str:
        member = self._member
        return "no member" if member is None else member.explain()

    def _share(self) -> set[int]:
        member = self._member
        return set() if member is None else {tp.partition for tp in member.terms}

    def _divide_anew(self, reason: str) -> None:
        if self._member is not None:
            self._member.rejoin(reason)

    def _look_around(self) -> None:
        super()._look_around()
        member = self._member
        if member is None:
            return
        if member.error is not None:
            raise member.error
        # Where nothing has failed the coordinator waits for others: for a member that was killed, until its session is over.
        patience_s = self._patience_s() + (REBALANCE_S if member.trouble is None else 0)
        if self._consumer is None and member.state != "stable" and self._handler.monotonic() - self._waiting_since > patience_s:
            self._waiting_since = self._handler.monotonic()
            raise KafkaTimeoutError(
                f"group {self._group!r}: this member has got no assignment for {patience_s:g} s (rebalance_max_retries="
                f"{self._rebalance_max_retries}), it is {member.state}; it goes on trying",
                group=self._group,
            )


class _OfProtocol:
    """An assignor made of a membership protocol of the user's: the leader computes everybody's share."""

    cooperative = False

    def __init__(self, protocol: GroupMembershipProtocol, topic: Topic) -> None:
        self._protocol, self._topic = protocol, weakref.ref(topic)
        self.name = protocol.protocol_name.decode(errors="replace")

    def user_data(self, topics: Collection[str], assigned: Sequence[TopicPartition] | None, generation: int) -> bytes | None:
        metadata = self._protocol.metadata
        return None if metadata is None else bytes(metadata)

    def assign(self, topics: Topics, members: Sequence[GroupMember]) -> Assignment:
        topic = self._topic()
        if topic is None:
            raise ConfigurationError("the topic is gone")
        everybody = sorted(member.member_id for member in members if topic.name in member.topics)
        shares = {id_: share_of(self._protocol, everybody, topic.partitions, id_) for id_ in everybody}
        return {m.member_id: [TopicPartition(topic.name, p) for p in sorted(shares.get(m.member_id, ()))] for m in members}


def _assignor(protocol: GroupMembershipProtocol, topic: Topic) -> Assignor:
    if protocol.protocol_type != b"consumer":
        raise ConfigurationError(f"membership_protocol: protocol_type={protocol.protocol_type!r} must be b'consumer'")
    if protocol.metadata is not None and not isinstance(protocol.metadata, (bytes, bytearray, memoryview)):
        raise ConfigurationError(f"membership_protocol: metadata={protocol.metadata!r} must be bytes or None")
    if protocol in (RangeProtocol, RoundRobinProtocol):
        return ASSIGNORS[protocol.protocol_name.decode()]
    return _OfProtocol(protocol, topic)


def _weakly(me: weakref.ref[ManagedBalancedConsumer], method: Callable[..., None]) -> Callable[..., None]:
    def call(*arguments: Any) -> None:
        consumer = me()
        if consumer is not None:
            method(consumer, *arguments)

    return call
