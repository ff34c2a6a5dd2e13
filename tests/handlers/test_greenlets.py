"""What only greenlets can get wrong: starving the hub, kills, signals, other hubs."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Iterator
from time import perf_counter, thread_time
from typing import Any

import gevent
import gevent.event
import pytest

from gkafka.exceptions import HandlerThreadError
from gkafka.handlers import GEventHandler, hubs
from gkafka.handlers.greenlets import WRITE, GreenletStream
from gkafka.handlers.hubs import BUDGET_S
from tests.handlers.hub import Ticker, assert_no_stall, run_script


@pytest.fixture
def handler() -> Iterator[GEventHandler]:
    made = GEventHandler()
    yield made
    assert made.stop(made.monotonic() + 5)


def burn(seconds: float) -> None:
    end = thread_time() + seconds
    while thread_time() < end:
        pass


# -- sharing the hub ---------------------------------------------------------------------------------------------------
def test_checkpoints_let_the_ticker_run_beside_a_busy_loop(handler: GEventHandler) -> None:
    with Ticker() as ticker:
        busy = handler.spawn(lambda: [(burn(0.0005), handler.checkpoint()) for _ in range(600)])
        assert busy.join(30)
    assert ticker.worst_cpu <= 0.020
    assert len(ticker.gaps) >= 30  # 300 ms of work in quanta of 5 ms


def test_one_budget_is_shared_by_all_handlers_of_a_hub() -> None:
    handlers = [GEventHandler() for _ in range(20)]
    left = [30] * len(handlers)

    def work(n: int) -> None:
        while left[n]:
            burn(0.001)
            left[n] -= 1
            handlers[n].checkpoint()

    with Ticker() as ticker:
        workers = [h.spawn(work, n) for n, h in enumerate(handlers)]
        gevent.sleep(0.25)
        spread = max(left) - min(left)
        assert all(w.join(30) for w in workers)
    # 20 readers x 5 ms each would be 100 ms; the first turn is one millisecond for each of them.
    assert ticker.worst_cpu <= 0.040
    assert sorted(cpu for _, cpu in ticker.gaps)[-3] <= 0.020
    assert spread <= 18, "first come, first served: nobody is ahead by more than its first turn and a budget or two"
    assert all(h.stop() for h in handlers)


def test_yield_now_lets_timers_in_each_time(handler: GEventHandler) -> None:
    # gevent.sleep(0) in the same loop stalls for 50 quanta.
    with Ticker() as ticker:
        busy = handler.spawn(lambda: [(burn(0.003), handler.yield_now()) for _ in range(100)])
        assert busy.join(30)
    assert ticker.worst_cpu <= 0.010


def test_what_is_due_comes_before_who_waits_for_a_turn(handler: GEventHandler) -> None:
    """libev does not keep timers of one turn in order: the turnstile's came before others that had been due for longer, each time."""
    turns: dict[int, list[str]] = {}
    woken, done = handler.Event(), handler.Event()

    def note(name: str) -> None:
        turns.setdefault(handler.hub.loop.iteration, []).append(name)

    def tick() -> None:
        while not done.is_set():
            gevent.sleep(0.001)
            note("tick")

    def read() -> None:
        for _ in range(8):
            note("read")
            burn(0.006)
            woken.set()
            handler.checkpoint()

    def use() -> None:
        while woken.wait(5) and not done.is_set():
            woken.clear()
            burn(0.002)

    reader, *others = gevent.spawn(read), gevent.spawn(tick), gevent.spawn(use)
    reader.join(20)
    done.set()
    woken.set()
    gevent.joinall(others, timeout=5)
    both = [turn for turn in turns.values() if {*turn} == {"tick", "read"}]
    assert len(both) >= 5
    assert all(turn[0] == "tick" for turn in both), both


def test_who_is_woken_by_a_socket_and_who_waits_for_a_turn_share_a_budget(handler: GEventHandler) -> None:
    turns: dict[int, float] = {}
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    stream = GreenletStream(handler, ours, "a pair")

    def count(seconds: float) -> None:
        burn(seconds)
        turns[handler.hub.loop.iteration] = turns.get(handler.hub.loop.iteration, 0.0) + seconds

    def read() -> None:
        for _ in range(10):
            theirs.send(b"x")
            stream.recv_into(bytearray(1))
            stream.wait(WRITE, None, "room")
            for _ in range(4):
                count(0.001)
                handler.checkpoint()

    def use() -> None:
        for _ in range(10):
            for _ in range(6):
                count(0.001)
                handler.checkpoint()

    gevent.joinall([gevent.spawn(read), gevent.spawn(use), gevent.spawn(use)], timeout=20)
    stream.close()
    theirs.close()
    assert sum(turns.values()) == pytest.approx(0.160)
    assert max(turns.values()) <= BUDGET_S + 0.002


def test_a_client_works_on_libuv() -> None:
    """gevent's loop on Windows counts no turns."""
    script = """
        from gkafka import KafkaClient
        from gkafka.testing import MockCluster
        import gevent
        from gkafka.exceptions import ConfigurationError
        assert "libuv" in type(gevent.get_hub().loop).__module__
        try:
            KafkaClient("127.0.0.1:1", handler="gevent", hub_stall_meter=True)
        except ConfigurationError as error:
            assert "GEVENT_LOOP=libev" in str(error)
        else:
            raise AssertionError("it measures nothing there")
        with MockCluster(1, {"t": 1}) as cluster, KafkaClient(cluster.bootstrap, handler="gevent") as client:
            producer = client.get_producer()
            sent = [producer.produce("t", b"%d" % n) for n in range(1000)]
            assert [one.result(10).offset for one in sent] == list(range(1000))
            with client.get_consumer("t", auto_offset_reset="earliest") as consumer:
                got = []
                while len(got) < 1000:
                    got += consumer.consume_batch(100, 5000)
            print(len(got))
    """
    assert run_script(script, python=(), GEVENT_LOOP="libuv").strip() == "1000"


@pytest.mark.parametrize("loop", ["libev-cext", "libuv"])
def test_a_budget_begins_anew_with_each_turn_of_the_loop(loop: str) -> None:
    """libuv's loop does not number its turns: a checkpoint must not take them all for one, nor one for many."""
    script = """
        import time
        import gevent
        from gkafka.handlers import GEventHandler
        from gkafka.handlers.hubs import BUDGET_S
        assert (LOOP == "libuv") == ("libuv" in type(gevent.get_hub().loop).__module__)
        handler, others = GEventHandler(), []
        def other():
            while True:
                others.append(None)
                gevent.sleep(0)
        handler.yield_now()
        gevent.spawn(other)
        rested = []
        for _ in range(20):
            gevent.sleep(2 * BUDGET_S)
            before = len(others)
            handler.checkpoint()
            rested.append(len(others) - before)
        worked = []
        for _ in range(20):
            gevent.sleep(0.001)
            handler.checkpoint()
            before, until = len(others), time.perf_counter() + 1.5 * BUDGET_S
            while time.perf_counter() < until:
                pass
            handler.checkpoint()
            worked.append(len(others) - before)
        print(sum(map(bool, rested)), sum(map(bool, worked)))
    """
    assert run_script(f"    LOOP = {loop!r}\n" + script.replace("\n        ", "\n    "), python=(), GEVENT_LOOP=loop).split() == ["0", "20"]


def test_a_checkpoint_costs_little(handler: GEventHandler) -> None:
    def cost() -> float:
        started = perf_counter()
        for _ in range(1000):
            handler.checkpoint()
        return (perf_counter() - started) / 1000

    assert min(cost() for _ in range(5)) < 3e-6  # about 0.3 us; a yield is ten times that


def test_a_checkpoint_inside_a_callback_of_the_loop_does_not_wait(handler: GEventHandler) -> None:
    done = handler.Event()

    def callback() -> None:
        burn(BUDGET_S * 2)
        handler.checkpoint()
        handler.yield_now()
        done.set()

    handler.call_soon_threadsafe(callback)
    assert done.wait(5)


def test_a_greenlet_killed_in_the_turnstile_leaves_its_place(handler: GEventHandler) -> None:
    others: list[int] = []
    victims = [gevent.spawn(handler.yield_now) for _ in range(5)]
    later = gevent.spawn(lambda: (handler.yield_now(), others.append(1)))
    gevent.spawn(gevent.killall, victims, block=False)
    gevent.joinall([later, *victims], timeout=5)
    assert others == [1]
    assert not handler.turnstile._queue


def test_a_signal_in_the_turnstile_goes_to_the_main_greenlet_and_gevent_prints_nothing(
    handler: GEventHandler, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed: list[Any] = []
    monkeypatch.setattr(handler.hub, "print_exception", lambda *told: printed.append(told))
    hit: list[int] = []

    def clock() -> float:
        if gevent.getcurrent() is handler.hub and not hit:
            hit.append(1)
            raise KeyboardInterrupt
        return perf_counter()

    monkeypatch.setattr(hubs, "perf_counter", clock)
    admitted: list[int] = []
    others = [gevent.spawn(lambda: (handler.yield_now(), admitted.append(1))) for _ in range(3)]
    with pytest.raises(KeyboardInterrupt):
        handler.sleep(5)
    gevent.joinall(others, timeout=5)
    assert (hit, admitted, printed) == ([1], [1] * 3, [])


def test_a_herd_that_waits_for_one_event_is_woken_without_a_stall(handler: GEventHandler) -> None:
    event = handler.Event()
    woken: list[int] = []
    greenlets = []
    for n in range(5000):
        greenlets.append(gevent.spawn(lambda: (event.wait(30), woken.append(1))))
        if n % 50 == 0:
            handler.yield_now()
    handler.sleep(0.05)
    with Ticker() as ticker:
        event.set()
        gevent.joinall(greenlets, timeout=30)
    assert len(woken) == 5000
    assert ticker.worst_cpu <= 0.040  # gevent's own Event: 134 ms wall, 79 CPU, for 10,000


# -- offload -----------------------------------------------------------------------------------------------------------
def test_offloaded_work_runs_off_the_hub(handler: GEventHandler) -> None:
    def work() -> None:
        started = perf_counter()
        assert handler.offload(lambda: (time.sleep(0.3), threading.get_ident())[1]) != threading.get_ident()
        assert 0.29 <= perf_counter() - started <= 0.6

    assert_no_stall(work, 0.010, waits_s=0.3)


def test_offload_does_not_wait_for_the_users_thread_pool(handler: GEventHandler) -> None:
    release = threading.Event()
    pool = gevent.get_hub().threadpool
    held = [pool.spawn(release.wait, 20) for _ in range(10)]
    try:
        started = perf_counter()
        assert handler.offload(lambda: 7) == 7
        assert perf_counter() - started < 1
    finally:
        release.set()
        gevent.joinall(held, timeout=5)


def test_stop_does_not_wait_longer_for_offloaded_work_than_for_workers(handler: GEventHandler) -> None:
    """A library that waits for somebody else, as Kerberos for its key server."""
    held, began = threading.Event(), threading.Event()
    worker = handler.spawn(handler.offload, lambda: (began.set(), held.wait(5)))
    try:
        while not began.is_set():
            handler.sleep(0.001)
        started = perf_counter()
        assert not handler.stop(handler.monotonic() + 0.1)
        assert perf_counter() - started < 1
    finally:
        held.set()
        assert worker.join(5)


def test_offload_from_a_callback_or_another_thread_runs_there(handler: GEventHandler) -> None:
    got: list[Any] = []
    done = handler.Event()
    handler.call_soon_threadsafe(lambda: (got.append(handler.offload(lambda: 1)), done.set()))
    assert done.wait(5)
    assert gevent.get_hub().threadpool.apply(handler.offload, (lambda: 2,)) == 2
    assert got == [1]


def test_a_kill_during_offload_is_harmless(handler: GEventHandler) -> None:
    victim = gevent.spawn(handler.offload, lambda: time.sleep(0.1))
    gevent.sleep(0.02)
    victim.kill()
    assert handler.offload(lambda: 5) == 5


# -- kills -------------------------------------------------------------------------------------------------------------
def test_kills_and_timeouts_lose_no_permit(handler: GEventHandler) -> None:
    chance = random.Random(7)
    semaphore = handler.Semaphore(3)

    def use() -> None:
        with semaphore:
            gevent.sleep(chance.uniform(0, 0.002))

    greenlets = [gevent.spawn(use) for _ in range(300)]
    for greenlet in chance.sample(greenlets, 150):
        gevent.sleep(chance.choice((0, 0, 0.001)))
        greenlet.kill(block=False)

    def impatient() -> None:
        with gevent.Timeout(chance.uniform(0, 0.01), False):
            use()

    greenlets += [gevent.spawn(impatient) for _ in range(100)]
    gevent.joinall(greenlets, timeout=20)
    assert all(g.dead for g in greenlets)
    assert [semaphore.acquire(False) for _ in range(4)] == [True, True, True, False]
    assert semaphore._waiting == []


def test_a_permit_that_was_handed_to_a_killed_greenlet_goes_to_the_next(handler: GEventHandler) -> None:
    lock = handler.Lock()
    lock.acquire()
    got: list[str] = []
    first = gevent.spawn(lambda: (lock.acquire(), got.append("first")))
    second = gevent.spawn(lambda: (lock.acquire(), got.append("second")))
    gevent.sleep(0.01)
    first.kill(block=False)
    lock.release()  # handed to the first, which is killed before it can run
    second.join(5)
    assert got == ["second"]


def test_permits_are_given_in_the_order_they_were_asked_for(handler: GEventHandler) -> None:
    semaphore = handler.Semaphore(0)
    order: list[int] = []
    greenlets = [gevent.spawn(lambda n=n: (semaphore.acquire(), order.append(n))) for n in range(10)]
    gevent.sleep(0.01)
    for _ in range(10):
        semaphore.release()
        assert semaphore.acquire(False) is False  # it belongs to whoever waits, not to whoever comes now
    gevent.joinall(greenlets, timeout=5)
    assert order == list(range(10))


def test_a_handler_can_be_stopped_from_a_callback_of_the_loop(handler: GEventHandler) -> None:
    go, done = handler.Event(), handler.Event()
    worker = handler.spawn(go.wait)
    answers: list[bool] = []
    handler.call_soon_threadsafe(lambda: (answers.append(handler.stop()), done.set()))
    assert done.wait(5)
    assert answers == [False]
    assert worker.stop_requested
    go.set()
    assert worker.join(5)


def test_a_lock_in_a_loop_of_io_starves_nobody(handler: GEventHandler) -> None:
    lock = handler.Lock()
    served = handler.Event()

    def hog() -> None:
        while not served.is_set():
            with lock:
                gevent.sleep(0.001)

    hogs = [gevent.spawn(hog) for _ in range(2)]
    gevent.sleep(0.005)
    waiter = gevent.spawn(lambda: (lock.acquire(), served.set(), lock.release()))
    waiter.join(2)
    assert served.is_set()
    gevent.joinall(hogs, timeout=5)


def test_kills_lose_no_item_of_a_queue(handler: GEventHandler) -> None:
    chance = random.Random(3)
    q = handler.Queue(maxsize=2)
    got: list[int] = []

    def take() -> None:
        while True:
            got.append(q.get())

    consumers = [gevent.spawn(take) for _ in range(5)]
    producer = gevent.spawn(lambda: [q.put(i) for i in range(500)])
    while not producer.dead:
        gevent.sleep(0.001)
        victim = chance.randrange(5)
        consumers[victim].kill(block=False)
        consumers[victim] = gevent.spawn(take)
    while len(got) < 500 and not q.empty():
        gevent.sleep(0.001)
    gevent.sleep(0.02)
    gevent.killall(consumers)
    assert sorted(got) == list(range(500))
    assert q._room is not None
    assert len(q._room.permits) == 2


def test_a_waiter_killed_or_timed_out_by_its_user_leaves_the_future_clean(handler: GEventHandler) -> None:
    future = handler.Future()
    greenlets = [gevent.spawn(future.result) for _ in range(3)]
    gevent.sleep(0.005)
    gevent.killall(greenlets)
    with pytest.raises(gevent.Timeout), gevent.Timeout(0.02):
        future.result()  # the user's own Timeout passes through unchanged
    assert future._links == []
    future.set(1)
    assert future.result() == 1


def test_a_worker_killed_before_it_ran_still_ends_and_reports(handler: GEventHandler) -> None:
    failures: list[BaseException] = []
    worker = handler.spawn(lambda: None, _on_failure=failures.append)
    worker._greenlet.kill(block=False)
    assert worker.join(5)
    assert [type(f) for f in failures] == [gevent.GreenletExit]
    assert handler.workers() == []


def test_a_worker_killed_while_it_waits_reports(handler: GEventHandler) -> None:
    failures: list[BaseException] = []
    worker = handler.spawn(handler.Event().wait, _on_failure=failures.append)
    gevent.sleep(0.005)
    worker._greenlet.kill()
    assert worker.join(5)
    assert [type(f) for f in failures] == [gevent.GreenletExit]


def test_the_name_of_a_worker_is_its_greenlets(handler: GEventHandler) -> None:
    names: list[str] = []
    assert handler.spawn(lambda: names.append(gevent.getcurrent().name), _name="gkafka-produce").join(5)
    assert names == ["gkafka-produce"]


# -- other threads and hubs --------------------------------------------------------------------------------------------
def test_looking_up_and_connecting_belong_to_the_owner(handler: GEventHandler) -> None:
    errors: list[BaseException] = []

    def foreign() -> None:
        for call in (
            lambda: handler.getaddrinfo("a.name.invalid", 1, handler.monotonic() + 1),
            lambda: handler.create_connection((2, ("127.0.0.1", 9)), handler.monotonic() + 1),
        ):
            try:
                call()
            except BaseException as exc:
                errors.append(exc)

    thread = threading.Thread(target=foreign)
    thread.start()
    thread.join(5)
    assert [type(e) for e in errors] == [HandlerThreadError, HandlerThreadError]
    assert handler.in_owner()


def test_two_hubs_work_side_by_side_and_pass_things_over(handler: GEventHandler) -> None:
    there, back = handler.Queue(maxsize=3), handler.Queue()
    failures: list[BaseException] = []

    def other_hub() -> None:
        try:
            mine = GEventHandler()
            assert mine.hub is not handler.hub
            with Ticker() as ticker:
                worker = mine.spawn(lambda: [back.put(there.get(timeout=5) * 2) for _ in range(300)])
                assert worker.join(20)  # this hub runs while its greenlet waits for the other one
            assert len(ticker.gaps) >= 1
            assert mine.stop()
        except BaseException as exc:
            failures.append(exc)
        finally:
            gevent.get_hub().destroy()

    thread = threading.Thread(target=other_hub)
    thread.start()
    sender = handler.spawn(lambda: [there.put(i) for i in range(300)])
    assert [back.get(timeout=10) for _ in range(300)] == [i * 2 for i in range(300)]
    assert sender.join(5)
    while thread.is_alive():
        gevent.sleep(0.005)
    assert failures == []


def test_setting_from_an_os_thread_wakes_a_sleeping_hub_at_once(handler: GEventHandler) -> None:
    delays: list[float] = []
    for _ in range(20):
        future = handler.Future()
        timer = threading.Timer(0.01, lambda f=future: f.set(perf_counter()))
        timer.start()
        delays.append(-(future.result(5) - perf_counter()))
        timer.join()
    assert sorted(delays)[10] < 0.02  # gevent.queue's put() from a thread: not before the hub wakes for something else


# -- never a LoopExit, never an interrupt that vanishes -----------------------------------------------------------------
def test_waits_that_nothing_will_end_are_no_loop_exit() -> None:
    out = run_script("""
        import gevent
        from gkafka.handlers import GEventHandler
        handler = GEventHandler()
        lock = handler.Lock(); lock.acquire()
        waits = {"event": handler.Event().wait, "future": handler.Future().result, "lock": lock.acquire,
                 "queue": handler.Queue().get, "semaphore": handler.Semaphore(0).acquire}
        def waited(name, wait):
            try:
                with gevent.Timeout(1.3):
                    wait()
            except gevent.Timeout:
                print(name, "waited")
        gevent.joinall([gevent.spawn(waited, *item) for item in waits.items()])
    """)
    assert out.splitlines() == [f"{name} waited" for name in ("event", "future", "lock", "queue", "semaphore")]


def test_with_only_library_waits_left_the_program_waits_and_does_not_end_in_loop_exit() -> None:
    out = run_script("""
        import signal, sys
        from gkafka.handlers import GEventHandler
        handler = GEventHandler()
        signal.setitimer(signal.ITIMER_REAL, 1.5)   # longer than a slice of a wait; native: no timer of the loop
        signal.signal(signal.SIGALRM, lambda *_: (print("still waiting"), sys.exit(0)))
        handler.Event().wait()
    """)
    assert out == "still waiting"


@pytest.mark.parametrize("patch", ["", "from gevent import monkey; monkey.patch_all()"], ids=["unpatched", "patched"])
def test_an_interrupt_inside_a_worker_reaches_the_main_greenlet_and_fails_the_worker(patch: str) -> None:
    out = run_script(f"""
        {patch}
        import os, signal, gevent
        from gkafka.handlers import GEventHandler
        handler = GEventHandler()
        failures = []
        def busy():
            os.kill(os.getpid(), signal.SIGINT)
            while True: pass
        worker = handler.spawn(busy, _on_failure=failures.append)
        try:
            gevent.sleep(20)
        except KeyboardInterrupt:
            print("interrupted")
        print(type(failures[0]).__name__, worker.join(1))
        gevent.sleep(0.01)
        print("goes on")
    """)
    assert out.splitlines() == ["interrupted", "KeyboardInterrupt True", "goes on"]


def test_sys_exit_from_a_signal_inside_a_worker_ends_the_program() -> None:
    out = run_script("""
        import os, signal, sys, gevent
        from gkafka.handlers import GEventHandler
        handler = GEventHandler()
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        def busy():
            os.kill(os.getpid(), signal.SIGTERM)
            while True: pass
        handler.spawn(busy, _on_failure=lambda e: print(type(e).__name__))
        gevent.sleep(20)
        print("not reached")
    """)
    assert out == "SystemExit"


def test_a_dropped_handler_leaves_no_thread_and_no_greenlet_behind() -> None:
    out = run_script("""
        import gc, threading, weakref, gevent, time
        import gkafka.handlers.greenlets as g
        g.POOL_IDLE_S = 0.05
        handler = g.GEventHandler()
        handler.offload(lambda: None)
        assert handler.spawn(lambda: None).join(5)
        gone = weakref.ref(handler)
        del handler
        deadline = time.monotonic() + 10
        while gone() is not None and time.monotonic() < deadline:
            gevent.sleep(0.05); gc.collect()
        print(gone())
    """)
    assert out == "None"
