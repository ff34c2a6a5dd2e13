"""The end of clients, called for or not: a forked child takes nothing of its parent's, and an exit is a last, bounded flush, behind which members leave
their groups."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast

from gkafka.exceptions import (
    ClientClosedError,
    DeliveryError,
    ForkedClientError,
    HandlerThreadError,
    KafkaException,
    KafkaTimeoutError,
    ReentrantCallError,
)
from gkafka.handlers import ThreadingHandler
from gkafka.handlers.signals import interrupted_frame, is_of
from gkafka.logs import get_logger

if TYPE_CHECKING:
    from gkafka.handlers import Handler
    from gkafka.handlers.base import Worker
    from gkafka.nativeproducer import NativeProducer
    from gkafka.producerdriver import ProducerDriver

__all__ = ["disown", "ends", "told", "watch", "watch_member"]

log = get_logger(__name__)
Method = TypeVar("Method", bound=Callable[..., Any])

LOOK_EVERY_S = 0.01
STILL_S, PATIENCE_S = 0.03, 2.0
"""From a hub's last call to where it stands still takes some 100 us of CPU; on a busy machine its thread may have to wait long for them."""
SHORTEST_HALF_S = 1.0
"""Half of exit_timeout_ms, if it is as long, is waited for in silence. Who waits for less is told at the end alone."""
LAST_S = 0.3
"""For that at least, also where exit_timeout_ms has passed; a hub whose thread is blocked gets there never."""
LEAVE_S, LEAVE_LAST_S = 5.0, 1.0
"""Seconds from the beginning of the end in which members may leave their groups, and how long they have at least if producers have taken that time."""
HEARD_S = 0.01
"""So long after a signal handler has asked for it something is ended: first the program gets what that handler raises, where it came into another greenlet."""
ENDED: Final = "nobody can send them, the hub of their client was destroyed, or its thread has ended"
BLOCKED: Final = "the hub of their client does not turn, its thread is blocked"


class Leaving(Protocol):
    """A member of a group. may_leave: is it in the group, and its worker there? abandon(): leave without a commit; only sets flags, the worker does the
    rest."""

    @property
    def handler(self) -> Handler: ...
    @property
    def group(self) -> str: ...
    @property
    def may_leave(self) -> bool: ...
    def abandon(self) -> None: ...


Ending = TypeVar("Ending", "NativeProducer", Leaving)
_living: weakref.WeakSet[NativeProducer] = weakref.WeakSet()
_members: weakref.WeakSet[Leaving] = weakref.WeakSet()
_enders: weakref.WeakSet[Worker] = weakref.WeakSet()  # that end what signal handlers have asked to end
_asked_in: set[int] = set()  # the processes of multiprocessing that will call the last flush


def watch(producer: NativeProducer) -> None:
    """Remember a producer, weakly."""
    _living.add(producer)
    _ask_others()


def watch_member(member: Leaving) -> None:
    """Have a member of a group leave it at the end of the interpreter. Kept weakly."""
    _members.add(member)
    _ask_others()


def told(counts: Mapping[str, int]) -> str:
    """Records by topic, as a text."""
    return ", ".join(f"{topic}: {count}" for topic, count in sorted(counts.items()))


def ends(method: Method) -> Method:
    """A method that ends something, of an object with a `_handler`, or a `_client` that has a `handler`.

    It works also where that handler refuses calls, see Handler.ending().

    From a signal handler that came in the middle of a call of the same client, which cannot go on
    before it returns, the method is handed to a worker of its own and returns at once. The end of
    the program waits for that worker.
    """

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        handler = getattr(self, "_handler", None) or getattr(getattr(self, "_client", None), "handler", None)
        if handler is None:  # it was not made in whole
            return method(self, *args, **kwargs)
        interrupted = interrupted_frame()
        if not is_of(handler, interrupted):
            try:
                if interrupted is not None:
                    handler.check_may_wait()  # before anything has begun
                with handler.ending():
                    return method(self, *args, **kwargs)
            except ReentrantCallError:
                if interrupted is None:
                    raise
        _hand_over(handler, functools.partial(call, self, *args, **kwargs), f"{type(self).__name__}.{method.__name__}()")
        return None

    return cast(Method, call)


def _hand_over(handler: Handler, end: Callable[[], object], name: str) -> None:
    def end_later() -> None:
        handler.sleep(HEARD_S)
        end()

    def failed(error: BaseException) -> None:
        log.error("%s, which a signal handler has called, failed: %s", name, error, exc_info=error)

    with contextlib.suppress(ClientClosedError):  # then nothing is left to end
        _enders.add(handler.spawn(end_later, _name="gkafka-closing", _on_failure=failed))


# -- forks -----------------------------------------------------------------------------------------------------------------
def disown(driver: ProducerDriver, append_lock: Any) -> Counter[str]:
    """In a forked child: fail what the parent has accepted, in this process only. Returns how many records by topic.

    append_lock: the appender's. Callbacks are not run (one that sends again would send twice), and nobody is woken: the threads that
    wait are the parent's, and greenlets look within two seconds.
    """
    reinit = getattr(append_lock, "_at_fork_reinit", None)
    if reinit is not None:
        reinit()  # a thread that does not exist here may hold it: that of the standard library is renewed as the library renews its own
    error = ForkedClientError("accepted before the fork: the parent process sends it, this one does not")
    counts: Counter[str] = Counter()
    for batch in driver.unsettled():
        counts[batch.topic] += batch.count
        batch.fail(error, "maybe")
    return counts


def _in_forked_child() -> None:
    """The fast path must not take a single record in a child: nobody there would send it. (Without hooks, as under uWSGI, the pid checks
    of the slow path and of every CHECKPOINT_EVERY records say so.)"""
    for producer in list(_living):
        producer._appender.fast = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_forked_child)


# -- the end of the interpreter ----------------------------------------------------------------------------------------------
@atexit.register
def _end_at_exit() -> None:
    """Send what producers hold that nobody closed, for exit_timeout_ms at most, and say what was left. Behind that, since callbacks of deliveries may
    commit, members that nobody stopped leave their groups.

    Half-way it is said what still waits: whoever asked the process to end may kill it before the end of that time (gunicorn's --graceful-timeout).
    The hook is older than those of the program, so that they run first; workers are daemons and still run.
    """
    leave_by = ThreadingHandler.monotonic() + LEAVE_S
    # Where somebody else has called it before Python does, it is over.
    deadlines = {p: p.handler.monotonic() + p.config.exit_timeout_ms / 1000 for p in list(_living) if not p.reported and not p.is_inherited}
    _in_spite_of_exits(lambda: _await_enders(leave_by))
    members = [member for member in list(_members) if member.may_leave and not member.handler.was_forked]
    holding = {producer for producer in deadlines if producer.holds_records}
    reasons: dict[Any, str] = {}
    warned: set[NativeProducer] = set()
    end = 0.0  # of who is interrupted: now
    try:
        _in_spite_of_exits(lambda: _flush_all(deadlines, holding, reasons, warned))
        _in_spite_of_exits(lambda: _leave_all(members, reasons, max(leave_by, ThreadingHandler.monotonic() + LEAVE_LAST_S)))
        end = max((deadlines[producer] for producer in holding), default=0.0)
    finally:  # a second Ctrl-C ends the wait, not the word on what is left
        try:
            _hold_still({*holding, *members}, max(end, ThreadingHandler.monotonic()) + LAST_S, reasons)
        finally:
            for producer in deadlines:
                _report(producer, reasons.get(producer))
            for producer in list(_living):
                _report_transaction(producer)
            for member in members:
                _report_member(member)


def _await_enders(deadline: float) -> None:
    """Of another thread's hub they are not waited for: what producers hold is sent all the same."""
    for worker in list(_enders):
        with contextlib.suppress(HandlerThreadError, ForkedClientError):
            worker.join(max(0.0, deadline - ThreadingHandler.monotonic()))


def _in_spite_of_exits(step: Callable[[], object]) -> None:
    """A SystemExit asks for what is being done already: gunicorn's greenlets raise one more for each signal, in the middle of this."""
    while True:
        with contextlib.suppress(SystemExit):
            step()
            return


def _ask_others() -> None:
    """Have those call the last flush who end a process without Python's atexit hooks."""
    _ask_uwsgi(sys.modules.get("uwsgi"))
    _ask_multiprocessing(sys.modules.get("multiprocessing.util"), sys.modules.get("multiprocessing.process"))


def _ask_uwsgi(uwsgi: Any) -> None:
    """Its workers of --gevent call only what stands at `uwsgi.atexit`, with the hub still turning. What the program put there goes first.

    The module is there in uWSGI's own processes only.
    """
    theirs = getattr(uwsgi, "atexit", None)
    if uwsgi is None or getattr(theirs, "flushes_gkafka", False):
        return

    def at_exit() -> None:
        try:
            if theirs is not None:
                theirs()
        finally:
            _end_at_exit()

    at_exit.flushes_gkafka = True  # type: ignore[attr-defined]  # a mark for the next call
    uwsgi.atexit = at_exit


def _ask_multiprocessing(util: Any, process: Any) -> None:
    """Its forked children, before Python 3.14, call only its own finalizers, of which they inherit none."""
    if util is None or process is None or process.parent_process() is None or os.getpid() in _asked_in:
        return
    _asked_in.add(os.getpid())
    util.Finalize(None, _end_at_exit, exitpriority=0)


def _flush_all(
    deadlines: Mapping[NativeProducer, float], holding: set[NativeProducer], reasons: dict[Any, str], warned: set[NativeProducer]
) -> None:
    """What is there, with what callbacks send meanwhile; then what came in the meantime, when nobody may send any more: whoever goes on for ever would
    otherwise have been told of each record that it is accepted, and the last ones would have been lost.

    holding: who held something, reasons: for what nobody waits, warned: of whom it was said what waits; all filled in.
    """
    for is_last in (False, True):
        if is_last:
            for producer in deadlines:
                producer.end_intake()
        waiting = [producer for producer in deadlines if producer.holds_records and producer not in reasons]
        holding.update(waiting)
        _each(waiting, reasons, lambda producer: producer.handler.call_soon_threadsafe(producer.send_now))
        _each(waiting, reasons, lambda producer: _flush(producer, _half_way(producer, deadlines[producer])))
        _each(waiting, reasons, lambda producer: _warn(producer, deadlines[producer], warned))
        _each(waiting, reasons, lambda producer: _flush(producer, deadlines[producer]))


def _leave_all(members: Iterable[Leaving], reasons: dict[Any, str], deadline: float) -> None:
    _each(members, reasons, lambda member: member.handler.call_soon_threadsafe(member.abandon))
    _each(members, reasons, lambda member: _wait_until_left(member, deadline))


def _wait_until_left(member: Leaving, deadline: float) -> None:
    handler = member.handler
    while member.may_leave and ThreadingHandler.monotonic() < deadline:
        handler.check_fork()  # its hub has not ended meanwhile
        (handler if handler.in_owner() else ThreadingHandler).sleep(LOOK_EVERY_S)


def _each(things: Iterable[Ending], reasons: dict[Any, str], step: Callable[[Ending], object]) -> None:
    """A step for each producer or member, but for those with a reason why it would be in vain."""
    for thing in things:
        if thing not in reasons:
            with _ending(thing, reasons):
                step(thing)


def _half_way(producer: NativeProducer, deadline: float) -> float:
    half = producer.config.exit_timeout_ms / 2000
    return deadline - half if half >= SHORTEST_HALF_S else deadline


def _warn(producer: NativeProducer, deadline: float, warned: set[NativeProducer]) -> None:
    """Say what still waits, while there is time left."""
    left, counts = deadline - producer.handler.monotonic(), producer.unsettled_by_topic()
    if left <= 0 or not counts or producer in warned:
        return
    warned.add(producer)
    log.warning(
        "the interpreter ends, and waits for up to %.1f s more (exit_timeout_ms=%g) for %d record(s) of a producer that was not closed; a process that "
        "is killed before loses them: %s",
        left,
        producer.config.exit_timeout_ms,
        sum(counts.values()),
        told(counts),
    )


@contextlib.contextmanager
def _ending(thing: NativeProducer | Leaving, reasons: dict[Any, str]) -> Iterator[None]:
    """A step for a producer or a member at the end of the program. That it is in vain is noted."""
    try:
        with thing.handler.ending():
            yield
    except HandlerThreadError:
        reasons[thing] = ENDED
    except Exception:
        log.exception("the end of %r failed", thing)


def _flush(producer: NativeProducer, deadline: float) -> None:
    handler = producer.handler
    left = deadline - handler.monotonic()
    if left <= 0:
        return
    if handler.in_owner():
        with contextlib.suppress(KafkaTimeoutError, DeliveryError):  # what was not delivered is logged, one by one or below
            producer.flush(left)
        return
    handler.call_soon_threadsafe(producer.hurry, deadline)
    waiting = {batch.parent or batch for batch in producer.unsettled()}
    while not all(batch.done for batch in waiting) and handler.monotonic() < deadline:  # its hub runs in a thread of its own
        handler.check_fork()  # that has not ended meanwhile
        ThreadingHandler.sleep(LOOK_EVERY_S)


def _hold_still(things: Iterable[NativeProducer | Leaving], deadline: float, reasons: dict[Any, str]) -> None:
    """Hold the hubs of other threads where they are. A thread that wants the interpreter back while that is going down is ended in the middle of its
    greenlets, and the process crashes: a hub that goes on turning wakes for one of its timers sooner or later.

    One that is kept from turning is not waited for beyond the deadline: it stands still when it turns again, which is the first that it does then.
    """
    elsewhere: dict[Any, Any] = {one: one.handler for one in things if one not in reasons and not one.handler.in_owner()}
    asked = {hub: _ask_to_stand_still(handler) for hub, handler in {handler.hub: handler for handler in elsewhere.values()}.items()}
    deadline = min(deadline, ThreadingHandler.monotonic() + PATIENCE_S)
    for thread, ready in asked.values():
        if ready.wait(max(0.0, deadline - ThreadingHandler.monotonic())):
            before, now = object(), _activity(thread)
            while before != now and ThreadingHandler.monotonic() < deadline:
                ThreadingHandler.sleep(STILL_S)
                before, now = now, _activity(thread)
    reasons.update((one, BLOCKED) for one, handler in elsewhere.items() if not asked[handler.hub][1].is_set())


def _ask_to_stand_still(handler: Any) -> tuple[list[int], Any]:
    """The system's number of the hub's thread, when it is known, and an Event: the hub is about to, or has ended."""
    thread: list[int] = []
    ready = ThreadingHandler.Event()
    try:
        handler.call_soon_threadsafe(handler.stand_still, thread.append, ready.set)
    except KafkaException:
        ready.set()
    return thread, ready


def _activity(thread: list[int]) -> object:
    """What changes while a thread, by its native id, is at work or waits for a processor: never equal then. Where that cannot be told, always equal."""
    try:
        with open(f"/proc/self/task/{thread[0]}/stat", encoding="ascii") as file:
            fields = file.read().rpartition(")")[2].split()
    except (IndexError, OSError):
        return None
    state, user, system = fields[0], fields[11], fields[12]
    return object() if state == "R" else (state, user, system)


def _report(producer: NativeProducer, reason: str | None) -> None:
    counts = producer.unsettled_by_topic()
    if counts:
        producer.reported = True
        log.error(
            "the interpreter ends with %d undelivered record(s) of a producer that was not closed (exit_timeout_ms=%g): %s%s",
            sum(counts.values()),
            producer.config.exit_timeout_ms,
            told(counts),
            "" if reason is None else f" ({reason})",
        )


def _report_transaction(producer: NativeProducer) -> None:
    state = producer.open_transaction
    if state is not None and not producer.transaction_reported:
        producer.transaction_reported = True
        log.error(
            "transactional id %r: the interpreter ends in the middle of a transaction (%s): what belongs to it is seen by nobody, unless a commit "
            "has reached the broker",
            producer.config.transactional_id,
            state,
        )


def _report_member(member: Leaving) -> None:
    if member.may_leave:
        log.warning(
            "group %r: the interpreter ends, and a member that was not stopped could not say that it leaves: its partitions are nobody's until its "
            "session ends (session_timeout_ms); stop() it before the program ends",
            member.group,
        )
