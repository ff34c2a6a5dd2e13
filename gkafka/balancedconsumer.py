"""pykafka's BalancedConsumer: consumers of a group divide a topic among themselves, and keep in ZooKeeper who owns which partition.

Documented: pykafka-2.0.4 BalancedConsumer; keywords that are newer are those of pykafka 2.8. The layout is in `gkafka.zookeeper`.

**When may messages be handed out?** ZooKeeper gives a member's partitions to others when it has not heard of it for the session's time, and the
member may learn of that much later: its connection may hang, its process may stand still. So a worker asks ZooKeeper now and then whether this
member still stands there, and from the moment before it asked, by this process's own clock, the partitions are this member's for two thirds of that
time. Without an answer in that time nothing is handed out and nothing committed.

A session can also end before its time: somebody closes it, or the server forgets it. All that its member sees is that the connection broke, as it
does when a server restarts, and the others may be claiming its partitions already. So nothing is handed out and nothing committed from then until
ZooKeeper has said that the member still stands there. If it says nothing for a moment, nobody can be told of an end either: the lease counts again.
"""

from __future__ import annotations

import contextlib
import platform
import uuid
import weakref
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from gkafka.balancing import OF_THE_GROUP, Balancing, Callback
from gkafka.checks import check_seconds
from gkafka.common import OffsetType
from gkafka.config import ConsumerConfig, check_keywords
from gkafka.exceptions import ConfigurationError, KafkaException, PartitionOwnedError, ZooKeeperError
from gkafka.hosts import parse_zookeeper
from gkafka.lifetime import ends, watch_member
from gkafka.logs import get_logger
from gkafka.membershipprotocol import RangeProtocol, flaw_of, leader_id, share_of
from gkafka.partition import Partition
from gkafka.starter import held_weakly
from gkafka.undoing import Undoing
from gkafka.zookeeper import NO_ZOOKEEPER, Registry, check_client, check_path, close_client, open_client

if TYPE_CHECKING:
    from gkafka.cluster import Cluster
    from gkafka.handlers import Handler
    from gkafka.topic import Topic

__all__ = ["BalancedConsumer"]

log = get_logger(__name__)

LEASE = 2 / 3
"""Of the session's time, for which an answer of ZooKeeper's counts. The client of ZooKeeper gives a silent connection up after as long."""
BEATS = 6
"""So often in a session ZooKeeper is asked."""
SUSPENDED, LOST = "SUSPENDED", "LOST"
"""kazoo's words for a connection that broke, and for a session that has ended."""
DOUBT_S, DOUBT = 1.0, 1 / 3
"""That moment, and how much of the session's time it takes at most."""
CHECK_EVERY_S = 120.0
"""How often the owners are compared one by one, with their data."""
STOP_S = 10.0


class BalancedConsumer(Balancing):
    """A member of a group that shares a topic by way of ZooKeeper.

    topic, cluster: what it was made from. rebalance_max_retries, rebalance_backoff_ms: how often, and after what pause, a partition that another
    member still owns is tried before consume() raises PartitionOwnedError; it is tried on after that. zookeeper_connection_timeout_ms: for the
    connection to ZooKeeper, and the time of the session. zookeeper_connect (newer: zookeeper_hosts): "host:port,host:port/chroot". zookeeper: a
    connected KazooClient in its place, which stays open. Other keywords: see Balancing and SimpleConsumer.
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
        fetch_wait_max_ms: int = 100,
        offsets_channel_backoff_ms: int = 1000,
        offsets_commit_max_retries: int = 5,
        auto_offset_reset: int = OffsetType.EARLIEST.value,
        consumer_timeout_ms: int = -1,
        rebalance_max_retries: int = 5,
        rebalance_backoff_ms: int = 2 * 1000,
        zookeeper_connection_timeout_ms: int = 6 * 1000,
        zookeeper_connect: str | None = "127.0.0.1:2181",
        zookeeper: Any = None,
        auto_start: bool = True,
        reset_offset_on_start: bool = False,
        zookeeper_hosts: str | None = None,
        post_rebalance_callback: Callback | None = None,
        use_rdkafka: bool = False,
        compacted_topic: bool = False,
        membership_protocol: Any = None,
        deserializer: Callable[[Any, Any], tuple[Any, Any]] | None = None,
        reset_offset_on_fetch: bool = True,
        fetch_error_backoff_ms: int = 500,
        *,
        commit_on_rebalance: bool = True,
        **options: Any,
    ) -> None:
        check_keywords(BalancedConsumer, options, ConsumerConfig, beside=["managed", *OF_THE_GROUP])
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
        check_path("consumer_group", self._group)
        self._hosts_option = "zookeeper_connect" if zookeeper_hosts is None else "zookeeper_hosts"
        self._hosts = zookeeper_connect if zookeeper_hosts is None else zookeeper_hosts
        if zookeeper is None:  # else they are ignored, as documented
            parse_zookeeper(self._hosts_option, self._hosts)
        self._session_s = check_seconds("zookeeper_connection_timeout_ms", zookeeper_connection_timeout_ms, low=1) / 1000
        self._given = zookeeper if zookeeper is None else check_client(zookeeper, self._handler)
        self._consumer_id = f"{platform.node()}:{uuid.uuid4()}"
        self._registry: Registry | None = None
        self._close: Callable[[], None] = lambda: None
        self._claimed: set[int] = set()
        self._unsure = False  # a call that failed may have been carried out: what is claimed is to be looked up
        self._session: Any = None
        self._lease_until = self._doubt_until = 0.0
        self._breaks = 0
        self._looked_at = 0.0
        self._owed_since: float | None = None
        self._tries = 0
        self._try_at = 0.0
        self._stale = True
        self._wake = self._handler.Event()
        cluster.sleepers.add(self._wake)
        self._flaw = ""  # of how the membership protocol divides, as it was told last
        self._worker: Any = None
        self._starting: Any = None  # who is in start()
        self._abandoned = False
        watch_member(self)
        cluster.adopt(self)  # whole: the client ends it
        if auto_start:
            self.start()

    # -- life ----------------------------------------------------------------------------------------------------------------
    def start(self) -> None:
        """Connect to ZooKeeper, join the group, begin to consume what is free now. Raises ZooKeeperError, ConsumerStoppedException if another worker
        stops the consumer, or closes its client, meanwhile.
        """
        self._handler.check_fork()
        if self._running:
            return
        client = self._setup_zookeeper(self._hosts, self._session_s * 1000)
        self._close = (lambda: None) if self._given is not None else partial(close_client, client)
        self._starting = self._handler.current_id()
        with Undoing(self._start_failed):
            self._registry = Registry(
                client,
                self._group,
                self._topic.name,
                self._consumer_id,
                session_s=self._session_s,
                on_event=self._build_watch_callback(_look_again, weakref.ref(self)),
                on_state=partial(_tell_state, weakref.ref(self)),
            )
            self._registry.prepare(self._session_s)  # it has nothing to lose yet
            self._on_start()
            self._running, self._stale, self._session = True, True, None
            self._cluster.check_adopting()  # whoever closes it from here on finds it running
            self._beat()
            self._worker = self._setup_checker_worker()
            self._starting = None
            self._check_not_stopped()

    def _start_failed(self) -> None:
        self._running, self._starting = False, None
        self._leave()

    def _setup_zookeeper(self, zookeeper_connect: Any, timeout: float) -> Any:
        """A connection to ZooKeeper, or the one that was given (documented)."""
        if self._given is not None:
            return self._given
        without = f"{NO_ZOOKEEPER} give get_balanced_consumer() managed=True: the group's coordinator, a broker, keeps its members then"
        check = self._cluster.check_adopting
        return open_client(zookeeper_connect, timeout, self._handler, what=self._hosts_option, without=without, check=check)

    @staticmethod
    def _build_watch_callback(fn: Callable[[Any], None], proxy: weakref.ref[Any]) -> Callable[[], None]:
        """A callback for watches that neither keeps the consumer nor fails after it is gone (documented; pykafka's issue 345)."""

        def on_event() -> None:
            consumer = proxy()
            if consumer is not None:
                fn(consumer)

        return on_event

    @ends
    def stop(self) -> None:
        """Stop consuming, commit if auto_commit_enable, give the partitions back, leave the group, close the connection that was made here.

        Idempotent; start() begins again. From the callback of a rebalance it takes effect when that ends.
        """
        self._handler.check_fork()  # the membership is the parent's
        self._handler.check_may_wait()
        self._on_stop()
        self._wake.set()
        if self._starting not in (None, self._handler.current_id()):
            return  # start() ends, and leaves
        worker, self._worker = self._worker, None
        if worker is not None and worker.is_alive() and not worker.join(self._patience(STOP_S)) and worker.is_alive():
            return  # it is this worker, or it still waits for an answer: it leaves when that ends
        self._leave()

    @property
    def handler(self) -> Handler:
        """What runs its workers."""
        return self._handler

    @property
    def group(self) -> str:
        """The name of its group."""
        return self._group

    @property
    def may_leave(self) -> bool:
        """Is its worker there, which leaves the group?"""
        return self._worker is not None and self._worker.is_alive()

    def abandon(self) -> None:
        """For the interpreter's end: only flags. The worker leaves the group, without a commit, and ends."""
        self._abandoned = True
        self._wake.set()

    def _leave(self) -> None:
        registry, self._registry = self._registry, None
        if registry is None:
            return
        try:
            if self._abandoned:
                self._lease_until = 0.0
            else:
                self._stop_inside()  # first: nobody gets a partition that is still consumed here
            self._left_at = {}
            with contextlib.suppress(ZooKeeperError):  # then the end of the session does it
                registry.release(self._claimed)
                registry.leave()
        finally:
            self._claimed, self._awaited = set(), set()
            self._lease_until = 0.0
            registry.forget()
            self._close()

    # -- the worker's ----------------------------------------------------------------------------------------------------------
    def _may_deliver(self) -> bool:
        return self._doubt_until <= self._handler.monotonic() < self._lease_until

    def _on_state(self, state: str) -> None:
        """On kazoo's worker: the connection came, broke, or its session has ended."""
        registry = self._registry
        if registry is None:
            return
        if state == SUSPENDED:
            self._doubt_until = self._handler.monotonic() + min(DOUBT_S, registry.session_s * DOUBT)
        if state == LOST:
            self._lease_until = 0.0
        self._breaks += 1
        self._wake.set()

    def _standing(self) -> str:
        if self._registry is None:
            return "away from ZooKeeper"
        if self._handler.monotonic() < self._doubt_until:
            return "the connection to ZooKeeper broke, and it has not said since that the session goes on"
        if not self._may_deliver():
            return f"ZooKeeper has not said in time that member {self._consumer_id} still stands there"
        flaw = f"; {self._flaw}" if self._flaw else ""
        return f"member {self._consumer_id} stands in ZooKeeper with {len(self._claimed)} partitions{flaw}"

    def _share(self) -> set[int]:
        return self._claimed.copy()

    def _divide_anew(self, reason: str) -> None:
        log.debug("group %s: %s", self._group, reason)
        self._stale = True
        self._wake.set()

    def _beat(self) -> float:
        """Ask ZooKeeper, balance if something changed. Returns seconds to the next beat."""
        registry = self._registry
        if registry is None:
            return self._session_s / BEATS
        beat_s = registry.session_s / BEATS
        try:
            self._keep_lease(registry)
            if not self._check_held_partitions() or self._stale or self._handler.monotonic() >= self._try_at:
                self._rebalance()
        except ZooKeeperError as exc:
            self._stale = True
            if self._owed_since is None:
                self._owed_since = self._handler.monotonic()
                log.warning("group %s: %s; messages are handed out for %.1f s more at most", self._group, exc, registry.session_s * LEASE)
            return beat_s / 2
        except KafkaException as exc:
            # The lease is kept meanwhile: what is consumed already goes on.
            self._try_at = self._handler.monotonic() + self._rebalance_backoff_s
            self._error = exc
            log.error("group %s: the rebalance failed, it is tried again: %s", self._group, exc)
            return min(beat_s, self._rebalance_backoff_s or beat_s)
        self._owed_since = None
        return min(beat_s, max(0.01, self._try_at - self._handler.monotonic()))

    def _keep_lease(self, registry: Registry) -> None:
        """Is this member still there, under the same session? If not, what it had may be others' already."""
        asked_at, breaks = self._handler.monotonic(), self._breaks
        session = registry.session
        if not registry.is_registered() or session != self._session:
            if self._session is not None:
                what = "the session has ended" if session != self._session else "its node in ZooKeeper was deleted"
                log.warning("group %s, member %s: %s, its partitions are given up", self._group, self._consumer_id, what)
            self._lease_until = 0.0
            self._claimed = set()
            self._lose()
            self._add_self()
            self._session, self._stale = session, True
        if breaks != self._breaks:  # the answer may be older than what the connection has told since: it is asked again at once
            return
        self._lease_until = asked_at + registry.session_s * LEASE
        if self._doubt_until:
            self._doubt_until = 0.0
            self._changed.set()

    def _add_self(self) -> None:
        """Register this consumer (documented). More members than partitions are welcome: those without one are idle."""
        registry = self._registry
        assert registry is not None
        if not registry.register():
            raise ZooKeeperError(f"{registry.path_self} is held by an earlier session of this member, which has not ended yet")

    def _rebalance(self) -> None:
        """Take this member's share, as far as others have given it back, and give back what is not in it (documented)."""
        registry = self._registry
        assert registry is not None
        has_changed = self._stale
        self._stale, self._try_at = False, float("inf")  # what changes from here on is looked at again
        self._set_watches()
        if self._unsure:
            self._claimed = registry.owned()
            self._left_at = {p: offset for p, offset in self._left_at.items() if p in self._claimed}
        self._unsure = True
        participants = self._get_participants()
        if self._consumer_id not in participants:
            self._stale = True
            raise ZooKeeperError(f"{registry.path_self} has vanished")
        mine = {p.id for p in self._decide_partitions(participants)}
        if self._claimed - mine:
            self._switch(lambda: self._exchange(mine))
        else:
            for partition in sorted(mine - self._claimed):
                self._claim(partition)
            # Compared with what is consumed: an earlier try may have claimed some, and failed then.
            if self.partitions.keys() != self._claimed & self._topic.partitions.keys():
                self._switch(lambda: self._claimed)
            elif has_changed:
                self._stay(registry.session_s / BEATS)
        self._unsure = False
        self._count_tries(mine - self._claimed)
        if not self._awaited:
            self._on_share()

    def _exchange(self, mine: set[int]) -> set[int]:
        known = self._topic.partitions
        self._remove_partitions(known[p] for p in self._claimed - mine if p in known)
        self._claimed &= mine
        for partition in sorted(mine - self._claimed):
            self._claim(partition)
        return self._claimed

    def _claim(self, partition: int) -> bool:
        assert self._registry is not None
        claimed = self._registry.claim(leader_id(self._topic.partitions[partition]), partition)
        if claimed:
            self._claimed.add(partition)
        return claimed

    def _count_tries(self, owned: set[int]) -> None:
        """Others still own a part of this member's share: it is tried again after the pause, and when they give it back."""
        self._awaited = owned
        if not owned:
            self._tries = 0
            return
        self._try_at = self._handler.monotonic() + self._rebalance_backoff_s
        self._tries += 1
        if self._tries > self._rebalance_max_retries:
            first = self._topic.partitions[min(owned)]
            text = (
                f"partition(s) {sorted(owned)} of {self._topic.name!r} are still owned by other members of group {self._group!r} after"
                f" rebalance_max_retries={self._rebalance_max_retries}; they are tried again"
            )
            self._error, self._tries = PartitionOwnedError(first, text), 0

    def _setup_internal_consumer(self, partitions: Iterable[Partition] | None = None, start: bool = True) -> None:
        """Stop the consumer inside and put another one in its place, for these partitions or for those that are owned (documented)."""
        ids = {p.id for p in (self._partitions if partitions is None else partitions)}
        self._switch(lambda: ids, start=start)

    def _setup_checker_worker(self) -> Any:
        """Start the worker that keeps the lease, compares the owners and balances (documented)."""
        return self._handler.spawn_lasting(_keep, held_weakly(self, self._wake), self._wake, self._close, _name="gkafka-balance")

    # -- documented steps ----------------------------------------------------------------------------------------------------
    def _set_watches(self) -> None:
        """Have changes of brokers, topic and members told, and take in what the cluster is like now (documented)."""
        assert self._registry is not None
        self._registry.watch_cluster()
        try:
            self._cluster.update()
        except KafkaException as exc:  # the brokers are away: what was known counts
            log.warning("group %s: the cluster could not be asked: %s", self._group, exc)

    def _get_participants(self) -> list[str]:
        """The ids of all members, sorted (documented)."""
        assert self._registry is not None
        return self._registry.participants()

    def _decide_partitions(self, participants: list[str]) -> set[Partition]:
        """This member's share (documented). A protocol that fails, or does not give each partition to one member, is told by consume(), and range
        divides in its place: each member computes all shares, so all of them come to the same.
        """
        known, everybody = self._topic.partitions, sorted(participants)
        flaw = flaw_of(self._membership_protocol, everybody, known)
        if flaw:
            flaw += "; range divides in its place"
        if flaw != self._flaw:
            self._flaw = flaw
            if flaw:
                self._error = ConfigurationError(flaw)
                log.error("group %s: %s; with members %s", self._group, flaw, everybody)
        mine = share_of(RangeProtocol if flaw else self._membership_protocol, everybody, known, self._consumer_id)
        return {known[p] for p in mine}

    def _get_held_partitions(self) -> set[Partition]:
        """The partitions that this member owns, as ZooKeeper has it (documented)."""
        assert self._registry is not None
        known = self._topic.partitions
        return {known[p] for p in self._registry.owned() if p in known}

    def _check_held_partitions(self) -> bool:
        """Does ZooKeeper have it that this member owns what it consumes (documented)? Mostly by name; when something has changed and else sometimes
        by each owner's data: another's may stand under the name of this member's.
        """
        assert self._registry is not None
        now = self._handler.monotonic()
        if not self._stale and now - self._looked_at < CHECK_EVERY_S:
            held = self._claimed & self._registry.owned_names()
        else:
            held = self._registry.owned()
            self._looked_at = now
        if held >= self._claimed:
            return True
        log.error("group %s: partition(s) %s were taken from %s", self._group, sorted(self._claimed - held), self._consumer_id)
        self._claimed &= held
        taken = self._claimed
        self._switch(lambda: taken)
        return False

    def _remove_partitions(self, partitions: Iterable[Partition]) -> None:
        """Give these back (documented)."""
        assert self._registry is not None
        self._registry.release(p.id for p in partitions)

    def _add_partitions(self, partitions: Iterable[Partition]) -> None:
        """Own these (documented). Raises PartitionOwnedError for the first that another member owns."""
        for partition in partitions:
            if not self._claim(partition.id):
                raise PartitionOwnedError(partition, f"partition {partition.id} of {self._topic.name!r} is owned by another member")

    def _path_from_partition(self, p: Partition) -> str:
        """Where its owner stands (documented)."""
        assert self._registry is not None
        return self._registry.path_of(leader_id(p), p.id)

    @property
    def _path_self(self) -> str:
        """Where this member stands (documented)."""
        assert self._registry is not None
        return self._registry.path_self

    @property
    def _partitions(self) -> set[Partition]:
        """The partitions that this member owns, as it knows (documented)."""
        known = self._topic.partitions
        return {known[p] for p in self._claimed if p in known}


def _look_again(consumer: BalancedConsumer) -> None:
    consumer._divide_anew("ZooKeeper told of a change")


def _tell_state(me: weakref.ref[BalancedConsumer], state: str) -> None:
    consumer = me()
    if consumer is not None:
        consumer._on_state(state)


def _keep(me: weakref.ref[BalancedConsumer], wake: Any, close: Callable[[], None]) -> None:
    while (consumer := me()) is not None and consumer._running and not consumer._abandoned:
        consumer._handler.check_fork()
        wake.clear()
        try:
            seconds = consumer._beat()
        except Exception as exc:
            if consumer._handler.interrupted(exc):
                raise  # the next one balances anew
            log.exception("group %s: the balancing worker met what it does not know", consumer._group)
            consumer._error, consumer._stale = exc, True
            seconds = 1.0
        del consumer
        wake.wait(seconds)
    if consumer is None:
        close()  # it was dropped without stop(): its partitions are others' from here on
    else:
        consumer._leave()
