"""What every handler must do, on threads and on greenlets."""

from __future__ import annotations

import logging
import queue
import threading
import time
from typing import Any

import pytest

from gkafka.exceptions import ClientClosedError, KafkaTimeoutError
from gkafka.handlers import Handler
from tests.kit.clock import epoch_s, now


def within(seconds: float, started: float) -> bool:
    """A busy machine wakes a sleeper late; never early."""
    return seconds - 0.005 <= now() - started <= 30


# -- workers -----------------------------------------------------------------------------------------------------------
def test_a_worker_gets_its_arguments_and_its_name(handler: Handler) -> None:
    got: list[Any] = []
    worker = handler.spawn(lambda *a, **k: got.append((a, k)), 1, 2, x=3, _name="gkafka-fetch-1")
    assert worker.join(60)
    assert got == [((1, 2), {"x": 3})]
    assert worker.name == "gkafka-fetch-1"
    assert not worker.is_alive()


def test_a_worker_without_a_name_is_called_like_its_function(handler: Handler) -> None:
    def fetch() -> None: ...

    worker = handler.spawn(fetch)
    assert worker.name == "fetch"
    assert worker.join(60)


def test_join_says_whether_the_worker_has_ended(handler: Handler) -> None:
    go = handler.Event()
    worker = handler.spawn(go.wait, 60)
    started = now()
    assert worker.join(0.05) is False
    assert within(0.05, started)
    assert worker.is_alive()
    go.set()
    assert worker.join(60) is True


def test_a_worker_that_joins_itself_is_told_no_at_once(handler: Handler) -> None:
    answers: list[bool] = []
    ready = handler.Event()
    box: list[Any] = []

    def run() -> None:
        ready.wait(60)
        answers.append(box[0].join())

    box.append(handler.spawn(run))
    ready.set()
    assert box[0].join(60)
    assert answers == [False]


# (SystemExit and KeyboardInterrupt also reach the main greenlet: see test_greenlets.py.)
@pytest.mark.parametrize("error", [ValueError("x"), GeneratorExit()], ids=lambda e: type(e).__name__)
def test_whatever_ends_a_worker_goes_to_its_failure_hook(handler: Handler, error: BaseException) -> None:
    failures: list[BaseException] = []

    def fail() -> None:
        raise error

    assert handler.spawn(fail, _on_failure=failures.append).join(60)
    assert failures == [error]


def test_without_a_hook_the_error_is_logged_once_with_its_traceback(handler: Handler, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise ValueError("lost?")

    assert handler.spawn(fail, _name="w7").join(60)
    records = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert len(records) == 1
    assert "'w7'" in records[0].getMessage()
    assert records[0].exc_info is not None
    assert records[0].exc_info[2] is not None


def test_a_hook_that_fails_too_hides_nothing(handler: Handler, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise ValueError("the first")

    def hook(error: BaseException) -> None:
        raise RuntimeError("the second")

    assert handler.spawn(fail, _on_failure=hook).join(60)
    assert "the first" in caplog.text
    assert "the second" in caplog.text


def test_stop_asks_every_worker_and_waits_for_it(handler: Handler) -> None:
    seen: list[bool] = []
    started = handler.Event()

    def run() -> None:
        started.wait(60)
        while not worker.stop_requested:
            handler.sleep(0.005)
        seen.append(True)

    worker = handler.spawn(run)
    started.set()
    assert handler.stop(handler.monotonic() + 60) is True
    assert seen == [True]
    assert handler.workers() == []


def test_stop_is_bounded_and_idempotent(handler: Handler) -> None:
    go = handler.Event()
    worker = handler.spawn(go.wait)
    started = now()
    assert handler.stop(handler.monotonic() + 0.1) is False
    assert within(0.1, started)
    go.set()
    assert handler.stop(handler.monotonic() + 60) is True
    assert handler.stop() is True
    assert not worker.is_alive()


def test_a_worker_can_stop_its_own_handler(handler: Handler) -> None:
    answers: list[bool] = []
    worker = handler.spawn(lambda: answers.append(handler.stop(handler.monotonic() + 60)))
    assert worker.join(60)
    assert answers == [False]  # all but itself have ended
    assert handler.stop() is True


def test_a_worker_that_stops_its_handler_does_not_wait_for_those_that_it_holds(handler: Handler) -> None:
    gone, took = handler.Event(), list[bool]()
    held = handler.spawn(gone.wait)

    def stop() -> None:
        held.held_by = handler.current_id()
        began = now()
        handler.stop(handler.monotonic() + 200)
        took.append(now() - began < 50)
        gone.set()

    assert handler.spawn(stop).join(60)
    assert took == [True]
    assert held.join(60)


def test_after_stop_nothing_is_spawned(handler: Handler) -> None:
    handler.stop()
    with pytest.raises(ClientClosedError, match="stopped"):
        handler.spawn(print)


def test_spawn_of_the_base_class_is_not_implemented(handler: Handler) -> None:
    with pytest.raises(NotImplementedError):
        Handler.spawn(handler, print)


# -- events ------------------------------------------------------------------------------------------------------------
def test_an_event_wakes_everyone_who_waits(handler: Handler) -> None:
    event = handler.Event()
    got: list[bool] = []
    workers = [handler.spawn(lambda: got.append(event.wait(60))) for _ in range(20)]
    handler.sleep(0.02)
    assert not event.is_set()
    event.set()
    assert all(w.join(60) for w in workers)
    assert got == [True] * 20
    assert event.wait(0) is True
    event.clear()
    assert event.wait(0) is False


@pytest.mark.parametrize("timeout", [0.0, 0.02, 0.3])
def test_an_event_times_out_when_it_said(handler: Handler, timeout: float) -> None:
    started = now()
    assert handler.Event().wait(timeout) is False
    assert within(timeout, started)


def test_an_event_that_is_set_and_cleared_at_once_wakes_those_who_waited(handler: Handler) -> None:
    event = handler.Event()
    got: list[bool] = []
    worker = handler.spawn(lambda: got.append(event.wait(60)))
    deadline = now() + 60
    while not (getattr(event, "_waiters", None) or getattr(event, "_links", None)):
        assert now() < deadline, "it does not wait"
        handler.sleep(0.001)
    event.set()
    event.clear()
    assert worker.join(60)
    assert got == [True]


# -- locks and semaphores ----------------------------------------------------------------------------------------------
def test_a_lock_excludes(handler: Handler) -> None:
    lock = handler.Lock()
    with lock:
        assert lock.acquire(False) is False
        started = now()
        assert lock.acquire(True, 0.05) is False
        assert within(0.05, started)
    assert lock.acquire(False) is True
    lock.release()
    with pytest.raises(RuntimeError):
        lock.release()


def test_an_rlock_lets_its_holder_in_again_and_nobody_else(handler: Handler) -> None:
    lock = handler.RLock()
    tries: list[bool] = []
    with lock, lock:
        assert handler.spawn(lambda: tries.append(lock.acquire(False))).join(60)
    assert handler.spawn(lambda: tries.append(lock.acquire(False)) or lock.release()).join(60)
    assert tries == [False, True]
    with pytest.raises(RuntimeError):
        lock.release()


def test_a_semaphore_has_as_many_permits_as_it_was_given(handler: Handler) -> None:
    semaphore = handler.Semaphore(2)
    assert [semaphore.acquire(False) for _ in range(3)] == [True, True, False]
    started = now()
    assert semaphore.acquire(timeout=0.05) is False
    assert within(0.05, started)
    semaphore.release(2)
    assert [semaphore.acquire(False) for _ in range(3)] == [True, True, False]


def test_a_permit_wakes_one_waiter(handler: Handler) -> None:
    semaphore = handler.Semaphore(0)
    got: list[bool] = []
    workers = [handler.spawn(lambda: got.append(semaphore.acquire(timeout=60))) for _ in range(3)]
    handler.sleep(0.02)
    semaphore.release()
    handler.sleep(0.1)
    assert len(got) <= 1
    semaphore.release(2)
    assert all(w.join(60) for w in workers)
    assert got == [True] * 3


def test_under_contention_no_permit_is_lost_or_doubled(handler: Handler) -> None:
    semaphore = handler.Semaphore(3)
    inside = 0
    most = 0
    guard = handler.Lock()

    def work() -> None:
        nonlocal inside, most
        for _ in range(50):
            if not semaphore.acquire(timeout=60):
                raise AssertionError("starved")
            with guard:
                inside += 1
                most = max(most, inside)
            handler.sleep(0)
            with guard:
                inside -= 1
            semaphore.release()

    failures: list[BaseException] = []
    workers = [handler.spawn(work, _on_failure=failures.append) for _ in range(10)]
    assert all(w.join(60) for w in workers)
    assert failures == []
    assert most <= 3
    assert [semaphore.acquire(False) for _ in range(4)] == [True, True, True, False]


# -- queues ------------------------------------------------------------------------------------------------------------
def test_a_queue_is_first_in_first_out(handler: Handler) -> None:
    q = handler.Queue()
    for i in range(1000):
        q.put(i)
    assert q.qsize() == 1000
    assert [q.get() for _ in range(1000)] == list(range(1000))
    assert q.empty()


def test_a_queue_keeps_the_order_of_each_producer(handler: Handler) -> None:
    q = handler.Queue(maxsize=5)
    got: list[tuple[int, int]] = []
    producers = [handler.spawn(lambda n=n: [q.put((n, i)) for i in range(200)]) for n in range(4)]
    consumer = handler.spawn(lambda: [got.append(q.get(timeout=60)) for _ in range(800)])
    assert consumer.join(60)
    assert all(p.join(60) for p in producers)
    for n in range(4):
        assert [i for p, i in got if p == n] == list(range(200))


def test_a_full_queue_raises_full_and_an_empty_one_empty(handler: Handler) -> None:
    q = handler.Queue(maxsize=1)
    q.put("a")
    assert q.full()
    for put in (lambda: q.put("b", block=False), lambda: q.put_nowait("b"), lambda: q.put("b", timeout=0.02)):
        with pytest.raises(handler.QueueFullError):
            put()
    assert q.get() == "a"
    for get in (lambda: q.get(block=False), q.get_nowait, lambda: q.get(timeout=0.02)):
        with pytest.raises(handler.QueueEmptyError):
            get()
    assert handler.QueueEmptyError is queue.Empty
    assert handler.QueueFullError is queue.Full


def test_a_queue_without_a_size_is_unbounded(handler: Handler) -> None:
    for q in (handler.Queue(), handler.Queue(0), handler.Queue(maxsize=-1)):
        for i in range(100):
            q.put_nowait(i)
        assert not q.full()
    with pytest.raises(ValueError, match="non-negative"):
        q.get(timeout=-1)


def test_join_waits_until_every_item_is_done(handler: Handler) -> None:
    q = handler.Queue()
    done: list[int] = []

    def consume() -> None:
        for _ in range(3):
            item = q.get(timeout=60)
            handler.sleep(0.005)
            done.append(item)
            q.task_done()

    for i in range(3):
        q.put(i)
    worker = handler.spawn(consume)
    q.join()
    assert done == [0, 1, 2]
    assert worker.join(60)
    with pytest.raises(ValueError, match="task_done"):
        q.task_done()


# -- futures -----------------------------------------------------------------------------------------------------------
def test_a_future_gives_its_value_to_everyone_who_waits(handler: Handler) -> None:
    future = handler.Future()
    got: list[Any] = []
    workers = [handler.spawn(lambda: got.append(future.result(60))) for _ in range(5)]
    handler.sleep(0.01)
    assert not future.done()
    assert future.set({"a": 1}) is True
    assert all(w.join(60) for w in workers)
    assert got == [{"a": 1}] * 5
    assert future.done()
    assert future.exception() is None


def test_a_future_raises_the_error_it_was_given(handler: Handler) -> None:
    future = handler.Future()
    error = ValueError("no")
    handler.spawn(future.set_exception, error)
    with pytest.raises(ValueError, match="no") as caught:
        future.result(60)
    assert caught.value is error
    assert future.exception() is error


def test_the_first_result_of_a_future_stays(handler: Handler) -> None:
    future = handler.Future()
    assert future.set(1) is True
    assert future.set(2) is False
    assert future.set_exception(ValueError()) is False
    assert future.result() == 1


@pytest.mark.parametrize("timeout", [0.0, 0.02, 0.3])
def test_a_future_without_a_result_times_out(handler: Handler, timeout: float) -> None:
    future = handler.Future()
    started = now()
    with pytest.raises(KafkaTimeoutError, match=f"within {timeout:g} s"):
        future.result(timeout)
    assert within(timeout, started)
    with pytest.raises(KafkaTimeoutError):
        future.exception(0)
    future.set(1)
    assert future.result(0) == 1


def test_a_none_is_a_result(handler: Handler) -> None:
    future = handler.Future()
    future.set()
    assert future.result(0) is None


def test_callbacks_run_once_each_in_order_and_errors_stop_none(handler: Handler, caplog: pytest.LogCaptureFixture) -> None:
    future = handler.Future()
    ran: list[str] = []

    def fails(_: Any) -> None:
        ran.append("b")
        raise ValueError("callback trouble")

    future.add_done_callback(lambda f: ran.append("a"))
    future.add_done_callback(fails)
    future.add_done_callback(lambda f: ran.append(f"c{f.result()}"))
    assert ran == []
    future.set(1)
    future.set(2)
    future.add_done_callback(lambda f: ran.append("late"))
    assert ran == ["a", "b", "c1", "late"]
    assert "callback trouble" in caplog.text


def test_what_interrupts_a_callback_goes_on_behind_those_that_come_after_it(handler: Handler) -> None:
    """Ctrl-C in time.sleep, say: it cannot be told whether that had begun. It is not called again, and nobody would have called the others."""
    future = handler.Future()
    ran: list[str] = []

    def interrupted(_: Any) -> None:
        ran.append("a")
        raise KeyboardInterrupt

    future.add_done_callback(interrupted)
    future.add_done_callback(lambda f: ran.append("b"))
    with pytest.raises(KeyboardInterrupt):
        future.set(1)
    assert ran == ["a", "b"]
    assert future.set(2) is False
    assert ran == ["a", "b"]


def test_callbacks_that_race_with_the_result_run_exactly_once(handler: Handler) -> None:
    for _ in range(300):
        future = handler.Future()
        ran: list[int] = []
        worker = handler.spawn(future.set, 1)
        for n in range(5):
            future.add_done_callback(lambda _, n=n, ran=ran: ran.append(n))
        assert worker.join(60)
        assert sorted(ran) == [0, 1, 2, 3, 4]


def test_a_waiter_that_gave_up_leaves_nothing_behind(handler: Handler) -> None:
    future = handler.Future()
    for _ in range(3):
        with pytest.raises(KafkaTimeoutError):
            future.result(0.001)
    assert future._links == []


# -- time, chance, identity --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seconds", [0.01, 0.2])
def test_sleep_sleeps(handler: Handler, seconds: float) -> None:
    started = now()
    handler.sleep(seconds)
    assert within(seconds, started)


def test_clocks_chance_and_identity(handler: Handler) -> None:
    assert abs(handler.monotonic() - now()) < 30
    assert abs(handler.time() - epoch_s()) < 30
    assert 0 <= handler.random().random() < 1
    assert handler.random() is handler.random()
    ids: list[int] = []

    def tell() -> None:
        ids.append(handler.current_id())
        while len(ids) < 3:  # the id of one that has ended may be given again
            handler.sleep(0.01)

    workers = [handler.spawn(tell) for _ in range(3)]
    assert all(w.join(60) for w in workers)
    assert len({*ids, handler.current_id()}) == 4
    assert handler.in_owner()


def test_yielding_returns(handler: Handler) -> None:
    for _ in range(100):
        handler.checkpoint()
        handler.yield_now()
    handler.sleep(0)


# -- other threads -----------------------------------------------------------------------------------------------------
def test_call_soon_threadsafe_runs_in_the_owner_from_any_thread(handler: Handler) -> None:
    done = handler.Event()
    got: list[tuple[int, bool]] = []

    def note(n: int) -> None:
        got.append((n, handler.in_owner()))
        if len(got) == 200:
            done.set()

    threads = [threading.Thread(target=lambda: [handler.call_soon_threadsafe(note, i) for i in range(100)]) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert done.wait(60)
    assert sorted(n for n, _ in got) == sorted([*range(100), *range(100)])
    assert all(owner for _, owner in got)
    for thread in threads:
        thread.join()


def test_an_error_in_a_call_is_logged(handler: Handler, caplog: pytest.LogCaptureFixture) -> None:
    done = handler.Event()
    handler.call_soon_threadsafe(lambda: 1 // 0)
    handler.call_soon_threadsafe(done.set)
    assert done.wait(60)
    assert "ZeroDivisionError" in caplog.text


def test_an_os_thread_can_spawn_wait_put_and_get(handler: Handler) -> None:
    requests, answers = handler.Queue(), handler.Queue()
    future, event = handler.Future(), handler.Event()
    failures: list[BaseException] = []

    def serve() -> None:
        item = requests.get(timeout=60)
        handler.sleep(0.02)
        answers.put(item + 1)
        future.set("from the worker")
        event.set()

    def foreign() -> None:
        try:
            worker = handler.spawn(serve)
            requests.put(41)
            assert answers.get(timeout=60) == 42
            assert future.result(60) == "from the worker"
            assert event.wait(60)
            assert worker.join(60)
        except BaseException as exc:
            failures.append(exc)

    thread = threading.Thread(target=foreign)
    thread.start()
    deadline = now() + 60
    while thread.is_alive() and now() < deadline:
        handler.sleep(0.005)  # the owner's hub runs
    assert not thread.is_alive()
    assert failures == []


def test_a_lock_excludes_between_os_threads_and_workers(handler: Handler) -> None:
    lock = handler.Lock()
    count = 0

    def add() -> None:
        nonlocal count
        for _ in range(2000):
            with lock:
                seen = count
                if seen % 50 == 0:
                    time.sleep(0)  # lets another OS thread run in the middle
                count = seen + 1

    threads = [threading.Thread(target=add) for _ in range(2)]
    for thread in threads:
        thread.start()
    workers = [handler.spawn(add) for _ in range(2)]
    assert all(w.join(60) for w in workers)
    for thread in threads:
        while thread.is_alive():
            handler.sleep(0.005)
    assert count == 8000
    assert lock.acquire(False)


# -- offload -----------------------------------------------------------------------------------------------------------
def test_offload_gives_the_result_or_raises_the_error(handler: Handler, capfd: pytest.CaptureFixture[str]) -> None:
    assert handler.offload(lambda a, b: a + b, 1, 2) == 3
    error = ValueError("bad block")

    def fail() -> None:
        raise error

    with pytest.raises(ValueError, match="bad block") as caught:
        handler.offload(fail)
    assert caught.value is error
    assert capfd.readouterr().err == ""


# -- names on the class (pykafka's) ------------------------------------------------------------------------------------
def test_the_documented_names_work_on_the_class(handler: Handler) -> None:
    cls = type(handler)
    q = cls.Queue(maxsize=1)
    q.put(1)
    with pytest.raises(cls.QueueFullError):
        q.put_nowait(2)
    assert q.get() == 1
    with pytest.raises(cls.QueueEmptyError):
        q.get_nowait()
    event = cls.Event()
    event.set()
    assert event.wait(60)
    with cls.Lock(), cls.RLock(), cls.Semaphore(1):
        cls.sleep(0.001)
        cls.sleep()


def test_joining_a_thread_that_is_just_being_started_says_that_it_has_not_ended() -> None:
    from gkafka.handlers.threads import ThreadWorker

    worker = ThreadWorker("late", lambda: None, None, set())
    assert worker.join(0) is False
    worker.start()
    assert worker.join(60) is True


def test_stop_may_see_a_thread_between_its_ident_and_its_start() -> None:
    """Thread.join() raises there."""
    from gkafka.handlers.threads import ThreadWorker

    worker = ThreadWorker("late", lambda: None, None, set())
    started, at_it, go_on = worker._thread._started.set, threading.Event(), threading.Event()  # type: ignore[attr-defined]

    def held() -> None:
        at_it.set()
        assert go_on.wait(60)
        started()

    worker._thread._started.set = held  # type: ignore[attr-defined]
    starter = threading.Thread(target=worker.start)
    starter.start()
    try:
        assert at_it.wait(60)
        assert worker._thread.ident is not None
        assert worker.join(0) is False
    finally:
        go_on.set()
        starter.join(60)
    assert worker.join(60) is True
