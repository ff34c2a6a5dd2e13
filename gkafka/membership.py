"""A member of a group: drives the machine of its protocol with connections and two workers.

The worker for requests does nothing that takes long: no callback, parked JoinGroup or long poll
delays a heartbeat. The worker for callbacks calls listeners, and divides partitions as the leader.

An interruption is fail-stop. A worker or caller that is interrupted leaves a mark (`Mark`), and the
worker for requests begins anew (`Member.restart`): it asks again for what the machine's state needs.
A callback that has not returned is called again.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from gkafka.common import TopicPartition
from gkafka.core.backoff import Backoff
from gkafka.core.consumergroupstate import ConsumerGroupOptions
from gkafka.core.group import Group
from gkafka.core.groupleader import Election
from gkafka.core.groupmachine import MakeMachine
from gkafka.core.groupstate import Ask, GroupOptions, Plan, State, Tell, Ticket, Verdict
from gkafka.escaping import escaped
from gkafka.exceptions import ForkedClientError, KafkaException
from gkafka.grouptopics import GroupTopics
from gkafka.guarding import guarded
from gkafka.lifetime import watch_member
from gkafka.logs import get_logger
from gkafka.marks import EngineMark
from gkafka.memberrequests import UNANSWERED_S, MemberRequests
from gkafka.wire.groups import JoinGroupRequest, has_rebalance_timeout

if TYPE_CHECKING:
    from gkafka.cluster import Cluster
    from gkafka.handlers import Handler
    from gkafka.handlers.primitives import Event

__all__ = ["Member", "rebalance_timeout_s"]

log = get_logger(__name__)

TICK_S = 4.0
FAILED_S = 0.5
"""When a division is tried again that failed for a reason of ours: it is still to be done, and may fail again."""

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

    `with self._lock` guards the machine. `with self._mark` is around steps that belong together: an
    interruption between them costs a restart.
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
        self._wake = self._handler.Event()
        self._mark = EngineMark(self._handler, self._wake)
        self._requests = MemberRequests(cluster, self._answered)
        self._topics = GroupTopics(cluster, options.group)
        self._watchers: list[Any] = []  # an event for each caller in wait_for(): one that all shared would be cleared by one for another
        self._jobs = self._handler.Event()  # wakes the callbacks' worker
        self._calling: Any = None
        self._abandoned = self._ended = False
        self._restarts = 0
        cluster.sleepers.add(self._wake)
        held = [self]
        self._worker = self._handler.spawn_lasting(_work, held, self._wake, _name="gkafka-group", _on_failure=partial(_failed, held))
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
        return lambda: self._group.lease.ends_at

    @property
    def terms(self) -> Mapping[TopicPartition, int]:
        """The partitions that it may commit for, when it may, each with its term: what is being given up is among them until its callback returns."""
        with self._lock:
            return self._group.ownership.terms

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
        return self.is_leader and self._topics.is_outdated

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
        with self._lock, self._mark:
            verdict = self._group.on_commit(ticket, error, self._handler.monotonic())
        if error is not None:
            self._wake.set()
        return verdict

    def commit_is_over(self) -> None:
        """What waits for the end of a ticket goes on. A worker that has not looked since it was granted
        waits for nothing: each commit would wake it in vain.
        """
        if self._group.tickets.awaited:
            self._wake.set()

    def explain(self) -> str:
        """Where it stands, in plain words."""
        with self._lock:
            group = self._group
            if group.error is not None:
                return f"this can be no member any more: {type(group.error).__name__}: {group.error}"
            text = _STATES.get(group.state, group.state.value)
            trouble = group.requests.trouble
            where = "" if group.requests.coordinator is not None else "; the coordinator is being looked for"
            last = "" if trouble is None else f"; tried again after {type(trouble).__name__}: {trouble}"
            member = escaped(group.member_id) or "not named yet"
            return f"{text}, generation {group.generation}, member {member}{where}{last}"

    def stats(self) -> dict[str, Any]:
        """Where it stands, and how often that has changed."""
        with self._lock:
            group = self._group
            return {
                "state": group.state.value,
                "generation": group.generation,
                "rebalances": group.rebalances,
                "losses": group.ownership.losses,
                "restarts": self._restarts,
            }

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
        return self._group.requests.trouble

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
        with self._lock, self._mark:
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
        with self._mark:
            with self._lock:
                ask = self._group.farewell(self._handler.monotonic())
            if ask is not None:
                self._requests.send(ask)
        if ask is not None:
            self.wait_for(lambda: not self._is_under_way(ask), timeout_s)

    def _is_under_way(self, ask: Ask) -> bool:
        with self._lock:
            return self._group.requests.is_under_way(ask)

    def know_absent(self, names: Iterable[str]) -> None:
        """These topics are not there: whoever subscribes to them was told, and nobody has to wait for them."""
        self._topics.know_absent(names)

    @property
    def in_callback(self) -> bool:
        """Is the caller inside on_change?"""
        return bool(self._calling == self._handler.current_id())

    def abandon(self) -> None:
        """For finalizers and the interpreter's end: only flags. The workers say good-bye, without a commit, and end."""
        self._abandoned = True
        self._wake.set()

    # -- on the worker for requests ----------------------------------------------------------------
    def turn(self) -> float:
        """Do all that is due. Return when to do so again at the latest (monotonic seconds)."""
        self._look()
        with self._mark:
            until = self._drive()
        tick_s = UNANSWERED_S if self._handler.cooperative and self._awaits_answers() else TICK_S
        return min(until, self._handler.looks_at(self._handler.monotonic(), tick_s))

    def _look(self) -> None:
        """Begin anew if a step was interrupted or an answer lost. Clear the event before that."""
        self._handler.check_fork()
        self._wake.clear()
        lost = self._handler.cooperative and self._awaits_answers() and self._requests.has_lost(self._handler.monotonic())
        if lost or self._mark.cause is not None:
            self.restart()

    def _awaits_answers(self) -> bool:
        with self._lock:
            return self._requests.await_answers(self._group.requests.is_under_way)

    def restart(self) -> None:
        """Begin anew after an interruption: ask, and tell, again what the machine's state needs.

        Nobody knows how far the interrupted step came. Raises the error if it was a bug.
        """
        cause = self._mark.cause
        if self._mark.bug is not None:  # it stays: a member that met one does not begin anew
            raise self._mark.bug
        self._restarts += 1
        level, why = logging.WARNING, "an answer was lost"
        if cause is not None:  # as the program's own signal handlers do, at its end, too
            level, why = logging.INFO, f"{type(cause).__name__} interrupted one of its workers or callers"
        with self._lock:
            self._group.restart(self._handler.monotonic())
        log.log(level, "group %r, member %r begins anew, %s: %s", self.group, self._group.member_id, self._group.state.value, why)
        self._requests.restart()
        self._jobs.set()
        with self._lock:
            if self._mark.cause is cause:  # else somebody else has been interrupted meanwhile
                self._mark.cause = None

    def _drive(self) -> float:
        while True:
            with self._lock:
                plan = self._group.poll(self._handler.monotonic())
            for problem in plan.problems:
                self._on_problem(problem)
            if plan.tell is not None or plan.topics is not None:
                self._jobs.set()
            for ask in plan.asks:
                self._requests.send(ask)
            if not plan.asks or self._group.state in (State.LEFT, State.FATAL):
                break
        self._ended = self._group.is_over
        self.look_again()
        return plan.wake_at

    def _answered(self, ask: Ask, response: Any, error: KafkaException | None) -> None:
        """On a connection's worker, or on this one."""
        with self._mark, self._lock:
            self._group.on_answer(ask, response, error, self._handler.monotonic())
        self._wake.set()

    def depart(self) -> None:
        """Leave the group in a moment: nobody is there any more to be told anything."""
        deadline = self._handler.monotonic() + TICK_S
        while self._handler.monotonic() < deadline and not self._cluster.closed:
            self._look()
            with self._mark:
                plan = self._give_up()
                for ask in plan.asks:
                    self._requests.send(ask)
            if self._group.state in (State.LEFT, State.FATAL):
                return
            if plan.tell is None:
                self._wake.wait(min(plan.wake_at, deadline) - self._handler.monotonic())

    def _give_up(self) -> Plan:
        with self._lock:
            self._group.leave("the consumer was dropped, or the program ends")
            plan = self._group.poll(self._handler.monotonic())
            if plan.tell is not None:
                self._group.ownership.told(plan.tell)
            return plan

    def end(self) -> None:
        """Nothing is sent any more."""
        self._requests.drop_connection()
        self._ended = True
        self.look_again()
        self._jobs.set()

    def fail(self, error: BaseException) -> None:
        """Tell the user of a bug, which has ended the worker."""
        self._on_problem(error)
        self.end()

    # -- on the worker for callbacks ---------------------------------------------------------------
    def do_jobs(self) -> None:
        """Call and divide what the machine wants, one thing after the other.

        The machine wants each until it is done. So a worker that takes over after an interruption
        finds what was under way.
        """
        while (job := self._next_job()) is not None:
            self._handler.check_fork()
            self._do(job)

    def _next_job(self) -> Tell | Election | None:
        with self._lock:
            return self._group.ownership.running or self._group.election

    def _do(self, job: Tell | Election) -> None:
        if isinstance(job, Tell):
            self._tell(job)
        else:
            self._divide(job)
        self._wake.set()

    def _tell(self, tell: Tell) -> None:
        try:
            self._calling = self._handler.current_id()
            self._worker.hold(self._calling)  # it leaves the group behind this: whoever ends the client in here shall not wait for that
            guarded(self._on_change, tell, self._group.generation, self._group.member_id, failed=self._change_failed)
        finally:
            self._calling = None
            self._worker.hold(None)
        with self._lock, self._mark:
            self._group.ownership.told(tell)
        self.look_again()

    def _change_failed(self, error: BaseException) -> bool:
        if self._handler.from_outside(error):
            return True  # the worker that takes over calls it again
        self._on_problem(error)
        return False

    def _divide(self, election: Election) -> None:
        """As the leader. The assignor may be the user's, and take long: heartbeats go on meanwhile."""
        try:
            found = self._topics.partitions_of(election.topics)
            made = election._replace(is_interruption=self._came_before).make(found)
        except Exception as exc:
            if self._handler.interrupted(exc):
                raise
            log.exception("group %r: its partitions could not be divided", self.group)
            self._on_problem(exc)
            self._handler.sleep(FAILED_S)
            return
        with self._lock, self._mark:
            self._group.divided(election, made)

    def _came_before(self, error: BaseException) -> bool:
        """Did a signal come before the assignor began? Then it is asked again; what it raised itself, or a signal in it, costs it this assignment."""
        return not self._handler.hands_on(error) and self._handler.interrupted(error)


def rebalance_timeout_s(cluster: Cluster, wanted_s: float, session_s: float) -> float:
    """How long the coordinator will wait for a member to join again: brokers before 0.10.1 are told of the session alone.

    Raises UnsupportedVersion for those that keep no groups (0.8).
    """
    cluster.connect()
    versions = cluster.versions
    return wanted_s if versions is None or has_rebalance_timeout(versions.pick(JoinGroupRequest.API)) else session_s


def _work(held: list[Member], wake: Event) -> None:
    """Requests, until the member has left, was abandoned, or can be none any more. held: the member, and no one afterwards: whoever called this is
    held by the member, and both would stay until Python looks for cycles, and with them the client.
    """
    if not held:
        return
    member = held[0]
    try:
        while not member.is_abandoned:
            until = member.turn()
            if member.ended:
                break
            wake.wait(max(0.0, until - member.handler.monotonic()))
        if not member.ended:
            member.depart()
    except ForkedClientError:
        pass  # the membership is the parent's
    member.end()
    held.clear()


def _failed(held: list[Member], error: BaseException) -> None:
    """Tell the user that the worker for requests has ended: no heartbeat is sent any more."""
    if held:
        member = held.pop()
        log.error("group %r: its member has failed and ends by %s", member.group, type(error).__name__, exc_info=error)
        member.fail(error)


def _call(me: weakref.ref[Member], jobs: Event) -> None:
    """Callbacks and divisions, one at a time, until the member has ended."""
    while (member := me()) is not None:
        jobs.clear()
        ended = member.ended  # first: what is to be told last is there before that
        member.do_jobs()
        if ended:
            return
        del member
        jobs.wait()
