"""A member of a classic group at work: drives `gkafka.core.group` with connections, a worker for requests and another for what users are called for.

The first worker does nothing that takes long: a callback that runs, a parked JoinGroup, a long poll delay no heartbeat. JoinGroup and SyncGroup
have a connection of their own, since coordinators park them.

Under gevent a signal handler's exception may end either at any step. The next one goes on: a request that may not have gone out is asked again, a callback
that has not returned is called again.
"""

from __future__ import annotations

import logging
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from gkafka.broker import CONTROL
from gkafka.common import TopicPartition
from gkafka.core.assignors import Topics
from gkafka.core.backoff import Backoff
from gkafka.core.consumergroupstate import ConsumerGroupOptions
from gkafka.core.group import Group
from gkafka.core.groupmachine import MakeMachine
from gkafka.core.groupstate import Ask, GroupOptions, Lane, State, Tell, Ticket, Verdict
from gkafka.escaping import escaped
from gkafka.exceptions import ClientClosedError, ForkedClientError, KafkaException, SocketDisconnectedError
from gkafka.lifetime import watch_member
from gkafka.logs import get_logger
from gkafka.wire.groups import JoinGroupRequest, has_rebalance_timeout

if TYPE_CHECKING:
    from gkafka.broker import Broker
    from gkafka.cluster import Cluster
    from gkafka.handlers import Handler
    from gkafka.net.channel import Channel

__all__ = ["Member", "rebalance_timeout_s"]

log = get_logger(__name__)

TICK_S = 4.0
UNANSWERED_S = 1.0
"""How often a worker looks that may be interrupted, while a request is under way: two looks find one whose answer was lost."""
TOPICS_S = 10.0
"""How long the leader looks for the partitions of a topic that others subscribed to; what is not known by then is nobody's in this generation."""
FAILED_S = 0.5
"""When a division is tried again that failed for a reason of ours: it is still to be done, and may fail again."""
AGAIN_S = 0.5
"""How long for those that were not there the last time: the whole group stands still meanwhile."""


_STATES = {
    State.AWAY: "not in the group: the application does not ask for messages",
    State.PREPARING: "about to join: what it gives up is being finished",
    State.JOINING: "joining: waiting for the coordinator, which may wait for the other members",
    State.ASSIGNING: "joining: dividing the partitions, as the leader",
    State.SYNCING: "joining: waiting for the leader to divide the partitions",
    State.RECONCILING: "in the group: giving up and taking what the coordinator says",
    State.STABLE: "in the group",
    State.LEAVING: "leaving",
    State.LEFT: "has left",
}


class Member:
    """One member. on_change(tell, generation, member_id): a change of what it has, on the callbacks' worker, one at a time; on_problem(error): for
    the user. Both are called under no lock, and whatever they raise goes to on_problem. max_pause_s: the longest between two tries of a request.
    machine: which protocol it speaks; ConsumerGroup for KIP-848, with its options.

    Leaving is for good. A member that is dropped without it ends when its owner does, or the interpreter: see `abandon`.
    """

    def __init__(
        self,
        cluster: Cluster,
        options: GroupOptions | ConsumerGroupOptions,
        topics: list[str],
        *,
        on_change: Callable[[Tell, int, str], None],
        on_problem: Callable[[BaseException], None],
        max_pause_s: float = 1.0,
        machine: MakeMachine = Group,
    ) -> None:
        self._cluster, self._handler = cluster, cluster.handler
        self._on_change, self._on_problem = on_change, on_problem
        self._lock = self._handler.Mutex()
        self._group = machine(options, topics, backoff=Backoff(0.1, max_pause_s), chance=self._handler.random())
        self._group.is_interruption = self._handler.interrupted
        self._role = ("group", object())
        self._at: Broker | None = None  # where its own connection is
        self._wake = self._handler.Event()
        self._watchers: list[Any] = []  # an event for each caller in wait_for(): one that all shared would be cleared by one for another
        self._jobs: Any = self._handler.Queue()  # what wakes the callbacks' worker; None ends it
        self._due: deque[Any] = deque()  # what it has to do, until it is done
        self._sent: list[tuple[Ask, Channel]] = []  # requests under way, each with the connection that has it
        self._doubtful: list[Ask] = []  # those whose connection had nothing to answer when that was looked at last
        self._look_at = 0.0
        self._calling: Any = None
        self._abandoned = self._ended = self._over = self._looking = False
        self._divided: dict[str, int] = {}  # by this member as the leader: how many partitions each topic had
        self._absent: set[str] = set()  # topics that were not there then
        cluster.sleepers.add(self._wake)
        self._worker = self._handler.spawn_lasting(_work, [self], self._wake, _name="gkafka-group")
        self._caller = self._handler.spawn_lasting(_call, weakref.ref(self), self._jobs, _name="gkafka-rebalance")
        watch_member(self)

    @property
    def handler(self) -> Handler:
        """What runs its workers."""
        return self._handler

    @property
    def group(self) -> str:
        """The name of its group."""
        return self._group.options.group

    # -- what its owner uses -------------------------------------------------------------------------------------------------
    def polled(self) -> None:
        """The application asks for messages: the member joins, if it is not there."""
        with self._lock:
            away = self._group.state is State.AWAY
            self._group.polled(self._handler.monotonic())
        if away:
            self._wake.set()

    def delivered(self) -> Mapping[TopicPartition, int]:
        """The partitions that are this member's for sure at this moment, each with its term."""
        with self._lock:
            return dict(self._group.delivered(self._handler.monotonic()))

    @property
    def delivers(self) -> bool:
        """Are there any? Asked at each delivery: it takes no lock."""
        return bool(self._group.delivered(self._handler.monotonic()))

    def delivery_check(self) -> Callable[[], bool]:
        """`delivers` as a function, which holds this member and not the consumer that has it."""
        return lambda: self.delivers

    def delivery_end(self) -> Callable[[], float]:
        """When that ends if no answer comes, as a function like that."""
        return lambda: self._group.delivers_until

    @property
    def terms(self) -> Mapping[TopicPartition, int]:
        """The partitions that it may commit for, when it may, each with its term: what is being given up is among them until its callback returns."""
        with self._lock:
            return self._group.terms

    @property
    def identity(self) -> tuple[int, str]:
        """Generation and member id; (-1, "") while it is none."""
        with self._lock:
            return self._group.generation, self._group.member_id

    @property
    def is_leader(self) -> bool:
        """Does it divide the partitions of this generation?"""
        return self._group.is_leader

    @property
    def is_outdated(self) -> bool:
        """Has a topic other partitions than when this member divided it, as the leader? Members of other clients leave it to the leader to notice,
        also of topics that it does not read.
        """
        known = {name: self._cluster.metadata.topic(name) for name in self._divided} if self.is_leader else {}
        return any(info is not None and len(info.partitions) != self._divided.get(name) for name, info in known.items())

    def rejoin(self, reason: str) -> None:
        """Have the partitions divided anew."""
        with self._lock:
            self._group.rejoin(reason)
        self._wake.set()

    def subscribe(self, topics: Iterable[str]) -> None:
        """Share these topics from now on."""
        with self._lock:
            self._group.subscribe(topics)
        self._wake.set()

    def grant(self, ticket: Ticket, partitions: Mapping[TopicPartition, int]) -> tuple[bool, bool]:
        """Make it the right to commit what was delivered under these terms: whether it is, and whether this is a moment for commits: if so, what is not
        granted is not this member's. The caller sets the ticket's `is_over` whatever comes of it, and tells so by `commit_is_over`.
        """
        with self._lock:
            now = self._handler.monotonic()
            return self._group.grant(ticket, partitions, now), self._group.takes_commits(now)

    @property
    def takes_commits(self) -> bool:
        """Is this a moment for commits? Between two generations it is not."""
        with self._lock:
            return self._group.takes_commits(self._handler.monotonic())

    def on_commit(self, ticket: Ticket, error: KafkaException | None) -> Verdict:
        """What came of it."""
        with self._lock:
            verdict = self._group.on_commit(ticket, error, self._handler.monotonic())
        if error is not None:
            self._wake.set()
        return verdict

    def commit_is_over(self) -> None:
        """What waits for the end of a ticket goes on. The worker that has not looked since the ticket was granted waits for nothing."""
        if self._group.waits_for_commits:
            self._wake.set()

    def explain(self) -> str:
        """Where it stands, in plain words."""
        with self._lock:
            group = self._group
            if group.error is not None:
                return f"this can be no member any more: {type(group.error).__name__}: {group.error}"
            text = _STATES.get(group.state, group.state.value)
            where = "" if group.coordinator is not None else "; the coordinator is being looked for"
            last = "" if group.trouble is None else f"; tried again after {type(group.trouble).__name__}: {group.trouble}"
            member = escaped(group.member_id) or "not named yet"
            return f"{text}, generation {group.generation}, member {member}{where}{last}"

    def stats(self) -> dict[str, Any]:
        """Where it stands, and how often that has changed."""
        with self._lock:
            group = self._group
            return {"state": group.state.value, "generation": group.generation, "rebalances": group.rebalances, "losses": group.losses}

    @property
    def error(self) -> KafkaException | None:
        """Why it can be no member any more."""
        return self._group.error

    @property
    def is_abandoned(self) -> bool:
        """Does it leave, or has it left, without its consumer: at the end of the interpreter?"""
        return self._abandoned

    @property
    def may_leave(self) -> bool:
        """Is its worker there to leave the group, with connections to say so?"""
        return not self._ended and not self._cluster.closed and self._worker.is_alive()

    @property
    def ended(self) -> bool:
        """Has it left, or can it be none any more?"""
        return self._ended

    @property
    def state(self) -> str:
        """Where it stands, as a word."""
        return self._group.state.value

    @property
    def trouble(self) -> KafkaException | None:
        """What is tried again, None if nothing has failed: the coordinator may hold an answer until others have joined again."""
        return self._group.trouble

    def wait_for(self, true: Callable[[], bool], seconds: float) -> bool:
        """Wait until something holds that an answer or a callback makes true. Returns whether it does."""
        deadline = self._handler.monotonic() + seconds
        mine = self._handler.Event()
        try:
            self._watchers.append(mine)
            while not true() and (left := deadline - self._handler.monotonic()) > 0:
                mine.wait(min(left, TICK_S))
                mine.clear()
        finally:
            if mine in self._watchers:
                self._watchers.remove(mine)
        return true()

    def look_again(self) -> None:
        """Whoever waits for something looks whether it holds now."""
        for watcher in list(self._watchers):
            watcher.set()

    def leave(self, reason: str, timeout_s: float) -> bool:
        """Give everything up in order, tell the coordinator, end the workers. False: not within timeout_s; then the session's end does it, and the
        workers end by themselves.
        """
        deadline = self._handler.monotonic() + timeout_s
        with self._lock:
            self._group.leave(reason)
        self._wake.set()
        if self.in_callback:
            self._cluster.leaves_later(self)
            return False  # it goes on when that has returned
        gone = self.wait_for(lambda: self._ended, timeout_s)
        self.abandon()
        for worker in (self._worker, self._caller):
            worker.join(min(TICK_S, max(0.0, deadline - self._handler.monotonic())))
        return gone

    def leave_at_once(self, timeout_s: float) -> None:
        """Tell the coordinator now what leave() has begun inside on_change: whoever called that closes the connections before it returns."""
        with self._lock:
            ask = self._group.farewell(self._handler.monotonic())
        if ask is not None:
            self._send(ask)
            self.wait_for(lambda: self._is_answered(ask), timeout_s)

    def _is_answered(self, ask: Ask) -> bool:
        with self._lock:
            return not self._group.is_under_way(ask)

    @property
    def in_callback(self) -> bool:
        """Is the caller inside on_change?"""
        return bool(self._calling == self._handler.current_id())

    def abandon(self) -> None:
        """For finalizers and the interpreter's end: only flags. The workers say good-bye, without a commit, and end."""
        self._abandoned = True
        self._wake.set()

    # -- requests --------------------------------------------------------------------------------------------------------------
    def _drive(self) -> float:
        """Send what is due, hand out what is to be told. Returns when to come again (monotonic seconds)."""
        while True:
            with self._lock:
                plan = self._group.poll(self._handler.monotonic())
            for problem in plan.problems:
                self._on_problem(problem)
            if plan.tell is not None:
                self._due.append(plan.tell)
                self._jobs.put_nowait(plan.tell)
            if plan.topics is not None and not self._looking:
                self._looking = True  # the plan says so until it is answered; whoever is called behind it would wait for each look
                self._due.append(plan.topics)
                self._jobs.put_nowait(plan.topics)
            for ask in plan.asks:
                self._send(ask)
            if not plan.asks or self._group.state in (State.LEFT, State.FATAL):
                break
        self._ended = self._group.is_over
        self.look_again()
        return plan.wake_at

    def _send(self, ask: Ask) -> None:
        try:
            broker = self._cluster.some_broker() if ask.to is None else self._cluster.know_broker(*ask.to)
            role: object = CONTROL
            if ask.lane is Lane.GROUP:
                role, before, self._at = self._role, self._at, broker
                if before is not None and before is not broker:
                    before.drop_channel(role)
            channel = broker.send(role, ask.request, partial(self._answered, ask), timeout_s=ask.timeout_s)
            with self._lock:
                self._sent = [one for one in (*self._sent, (ask, channel)) if self._group.is_under_way(one[0])]
        except KafkaException as exc:
            self._answered(ask, None, exc)

    def _mend(self) -> None:
        """The worker before may have been interrupted between any two steps."""
        with self._lock:
            sent = [id(ask) for ask, _ in self._sent]
            running = self._group.restore(lambda ask: id(ask) in sent, self._handler.monotonic())
            if running is not None and not any(job is running for job in self._due):
                self._due.append(running)
            self._looking = any(not isinstance(job, Tell) for job in self._due)
        if self._due:
            self._jobs.put_nowait(running)

    def _look_for_stranded(self) -> None:
        """At each look: what its connection will never answer any more was lost there, because signals came one right behind the other."""
        now = self._handler.monotonic()
        if not self._handler.cooperative or now < self._look_at:
            return
        self._look_at = now + UNANSWERED_S / 2
        with self._lock:
            self._sent = [one for one in self._sent if self._group.is_under_way(one[0])]
            silent = [ask for ask, channel in self._sent if channel.is_done]
            stranded = [ask for ask in silent if any(ask is other for other in self._doubtful)]
        self._doubtful = silent
        for ask in stranded:
            self._answered(ask, None, SocketDisconnectedError("a worker was interrupted while it took the answer"))

    def _answered(self, ask: Ask, response: Any, error: KafkaException | None) -> None:
        with self._lock:
            self._group.on_answer(ask, response, error, self._handler.monotonic())
        self._wake.set()

    def _depart(self) -> None:
        """Nobody is there any more to be told anything."""
        deadline = self._handler.monotonic() + TICK_S
        with self._lock:
            self._group.leave("the consumer was dropped, or the program ends")
        while self._handler.monotonic() < deadline and not self._cluster.closed:
            self._wake.clear()
            with self._lock:
                plan = self._group.poll(self._handler.monotonic())
                if plan.tell is not None:
                    self._group.told(plan.tell)
            for ask in plan.asks:
                self._send(ask)
            if self._group.state in (State.LEFT, State.FATAL):
                return
            if plan.tell is None:
                self._wake.wait(min(plan.wake_at, deadline) - self._handler.monotonic())

    def _end(self) -> None:
        if self._at is not None:
            self._at.drop_channel(self._role)
        self._ended = self._over = True
        self.look_again()
        self._jobs.put_nowait(None)

    # -- what takes long -------------------------------------------------------------------------------------------------------
    def _do_all(self) -> None:
        """Each stays where it is until it is done, so that the next worker finds it if this one is interrupted."""
        while self._due:
            self._handler.check_fork()
            self._do(self._due[0])
            self._due.popleft()

    def _do(self, job: Any) -> None:
        try:
            if not isinstance(job, Tell):
                self._divide(job)
            elif self._group.is_telling(job):
                self._tell(job)
        except Exception as exc:  # the next job is another's
            if self._handler.interrupted(exc):
                raise
            log.exception("group %r: a job of its callbacks' worker failed", self._group.options.group)
            self._on_problem(exc)
            if not isinstance(job, Tell):
                self._handler.sleep(FAILED_S)
        self._wake.set()

    def _tell(self, tell: Tell) -> None:
        self._calling = self._handler.current_id()
        self._worker.hold(self._calling)  # it leaves the group behind this: whoever ends the client in here shall not wait for that
        is_told = True
        try:
            self._on_change(tell, self._group.generation, self._group.member_id)
        except BaseException as exc:
            is_told = not self._handler.interrupted(exc)
            if not is_told or not isinstance(exc, Exception):
                raise
            self._on_problem(exc)
        finally:
            self._calling = None
            self._worker.hold(None)
            if is_told:
                with self._lock:
                    self._group.told(tell)
            self.look_again()

    def know_absent(self, names: Iterable[str]) -> None:
        """These topics are not there: whoever subscribes to them was told, and nobody has to wait for them."""
        self._absent |= set(names)

    def _divide(self, names: frozenset[str]) -> None:
        """As the leader. The assignor may be the user's, and take long: heartbeats go on meanwhile."""
        try:
            found = self._partitions_of(names)
            with self._lock:
                election = self._group.election
            if election is not None and election.topics == names:  # else the next plan asks for others
                made = election._replace(is_interruption=self._came_before).make(found)
                with self._lock:
                    self._group.divided(election, made)
        finally:
            self._looking = False

    def _came_before(self, error: BaseException) -> bool:
        """Did a signal come before the assignor began? Then it is asked again; what it raised itself, or a signal in it, costs it this assignment."""
        return not self._handler.hands_on(error) and self._handler.interrupted(error)

    def _partitions_of(self, names: frozenset[str]) -> Topics:
        begun = self._handler.monotonic()
        found = {}
        known = self._cluster.metadata.topic
        # One that is not there costs no other its time.
        for name in sorted(names, key=lambda name: (known(name) is None, name not in self._absent, name)):
            try:
                info = self._cluster.wait_for_topic(name, begun + (AGAIN_S if name in self._absent else TOPICS_S), anew=False)
            except KafkaException as exc:
                told = name in self._absent or isinstance(exc, ClientClosedError)
                log.log(
                    logging.DEBUG if told else logging.WARNING,
                    "group %r: the partitions of topic %r are not known, they are nobody's now: %s",
                    self._group.options.group,
                    name,
                    exc,
                )
                continue
            found[name] = self._cluster.metadata.racks(info)
        self._divided = {name: len(racks) for name, racks in found.items()}
        self._absent = {name for name in names if name not in found}
        return found


def rebalance_timeout_s(cluster: Cluster, wanted_s: float, session_s: float) -> float:
    """How long the coordinator will wait for a member to join again: brokers before 0.10.1 are told of the session alone.

    Raises UnsupportedVersion for those that keep no groups (0.8).
    """
    cluster.connect()
    versions = cluster.versions
    return wanted_s if versions is None or has_rebalance_timeout(versions.pick(JoinGroupRequest.API)) else session_s


def _work(held: list[Member], wake: Any) -> None:
    """Requests, until the member has left, was abandoned, or can be none any more. held: the member, and no one afterwards: whoever called this is
    held by the member, and both would stay until Python looks for cycles, and with them the client.
    """
    if not held:
        return
    member = held[0]
    try:
        member._mend()
        while not member._abandoned:
            member._handler.check_fork()
            wake.clear()
            member._look_for_stranded()
            until = member._drive()
            if member._ended:
                break
            now = member._handler.monotonic()
            tick_s = UNANSWERED_S if member._sent and member._handler.cooperative else TICK_S
            wake.wait(max(0.0, min(member._handler.looks_at(now, tick_s), until) - now))
        if not member._ended:
            member._handler.check_fork()  # the membership is the parent's
            member._depart()
    except ForkedClientError:
        pass
    except BaseException as exc:
        if not member._handler.interrupted(exc):
            member._on_problem(exc)  # no heartbeat is sent any more: whoever consumes shall not wait in silence
            member._end()
        raise
    member._end()
    held.clear()


def _call(me: weakref.ref[Member], jobs: Any) -> None:
    """Callbacks, one at a time; None ends it."""
    while (member := me()) is not None:
        member._do_all()
        if member._over and not member._due:
            return
        del member
        if jobs.get() is None and ((member := me()) is None or not member._due):
            return
