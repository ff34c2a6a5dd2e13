"""Ends of clients that meet: by several workers at once, by a signal handler on top of one, and behind one that is cut short at any line."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from gkafka.kafka import legacy
from gkafka.kafka.ending import Ending, Turns
from gkafka.kafka.errors import IllegalStateError
from gkafka.kafka.legacy import multiprocess
from gkafka.testing import Delay, MockCluster
from tests.kafka.conftest import Make
from tests.kafka.consuming import committed, put
from tests.kafka.test_cut_short import Counted, Cut
from tests.kit.clock import now
from tests.public.aids import Runner

HERE = "kafka/ending.py", "legacy/multiprocess.py", "multiprocessing/connection.py"
LINES = 25
"""So far apart are the lines that are tried where each try takes processes."""
NO_MORE_THAN_ENDS = "import os\nwhile os.read({orders}, 65536): pass"
"""A process that does nothing until its parent wants it no more: it has nothing to import."""


def is_deleting(frame: FrameType | None) -> bool:
    return frame is not None and frame.f_code.co_name == "__del__"


@contextlib.contextmanager
def at_line(number: int, then: Callable[[], object]) -> Iterator[list[int]]:
    """then() is called before the number-th line of ours that runs in the block, but for those of a __del__(), whose errors nobody can hear. What is yielded
    is empty once that was so.
    """
    left = [number]

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        if not frame.f_code.co_filename.endswith(HERE) or is_deleting(frame) or is_deleting(frame.f_back):
            return None
        if event == "line" and left:
            left[0] -= 1
            if left[0] == 0:
                left.clear()
                then()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield left
    finally:
        sys.settrace(before)


def cut() -> None:
    raise Cut


def in_a_thread(fn: Callable[[], object]) -> None:
    thread = threading.Thread(target=fn)
    thread.start()
    thread.join(60)


# -- whose turn it is -----------------------------------------------------------------------------------------------------------
def each_line(then: Callable[[Callable[[], None]], object]) -> Iterator[tuple[list[int], Counted, Ending]]:
    """An end, beside each line of which then(the same end) is called: how often its steps ran, its serializer and itself."""
    for number in range(1, 100):
        ran, last = [0], Counted()
        ending = Ending(last)

        def steps(ran: list[int] = ran) -> None:
            ran[0] += 1

        def call(ending: Ending = ending, steps: Callable[[], None] = steps) -> None:
            ending.run(steps)

        with at_line(number, lambda call=call: then(call)) as left, contextlib.suppress(Cut):  # type: ignore[misc]
            call()
        yield ran, last, ending
        if left:
            return
        call()
        assert ending.is_done
    raise AssertionError("it has no end")


def test_two_that_end_at_once_do_it_once_wherever_they_meet() -> None:
    """Both saw that nobody was at it, and closed a serializer twice."""
    for ran, last, _ in each_line(in_a_thread):
        assert (ran, last.ends) == ([1], 1)


def test_an_end_that_is_cut_short_at_any_line_is_finished_by_the_next_one() -> None:
    found = [last for _, last, _ in each_line(lambda _: cut())]
    assert len(found) > 5
    assert all(last.ends <= 1 for last in found)


def test_a_turn_is_over_while_what_ended_it_is_still_looked_at() -> None:
    """As in `except KeyboardInterrupt: client.close()`: the traceback keeps the frames of the call."""
    turns, ran = Turns(), []
    try:
        turns.run(cut)
    except Cut:
        turns.run(lambda: ran.append(1))
    assert ran == [1]


# -- processes ------------------------------------------------------------------------------------------------------------------
@pytest.fixture
def processes(make_cluster: Make, handler: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Any]]:
    """Makes consumers of one message each, which wait to be stopped. Those of tests/kafka/test_legacy_processes.py have all that a process does."""
    monkeypatch.setattr(multiprocess, "COMMAND", NO_MORE_THAN_ENDS)
    cluster = make_cluster(topics={"t": 3})
    put(cluster, b"a")
    with contextlib.ExitStack() as ends:

        def make() -> Any:
            client = ends.enter_context(legacy.KafkaClient(cluster.bootstrap, handler=handler))
            return legacy.MultiProcessConsumer(client, None, "t", num_procs=2)

        yield make


def test_processes_are_ended_once_by_several_at_once(processes: Callable[[], Any], handler: str) -> None:
    """OSError: [Errno 9] Bad file descriptor, or ValueError: list.remove(x): x not in list."""
    run = Runner(handler)
    for _ in range(2):
        consumer = processes()
        pids = [process.pid for process in consumer.procs]
        for one in [run.aside(consumer.stop) for _ in range(4)]:
            one.result()
        assert not consumer.procs
        assert all(multiprocess._has_ended(pid) for pid in pids)


@pytest.mark.parametrize(
    ("how", "first"),
    [
        ("stops, too", 1),
        ("raises", 9),
        *(pytest.param(*pair, marks=pytest.mark.thorough) for pair in [("raises", 1), ("stops, too", 9), ("raises", 17)]),
    ],
)
def test_processes_are_ended_wherever_a_signal_handler_comes_between(
    processes: Callable[[], Any], how: str, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left is ended by the next one at once: also where the close() of a pipe was cut short, by which a process learns that it is to end."""
    monkeypatch.setattr(multiprocess, "STOP_S", 120.0)
    for number in range(first, 150, LINES):
        consumer = processes()
        pids = [process.pid for process in consumer.procs]
        with at_line(number, consumer.stop if how == "stops, too" else cut), contextlib.suppress(Cut):
            consumer.stop()
        began = now()
        consumer.stop()
        assert now() - began < 60, number
        assert not consumer.procs
        assert all(multiprocess._has_ended(pid) for pid in pids)


def test_the_end_of_a_pipe_closes_its_number_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut short, and called once more when another file has that number."""
    for number in range(1, 10):
        there, here = multiprocess._pipe()
        fd = here.fileno()
        with at_line(number, cut) as left, contextlib.suppress(Cut):
            here.close()
        here.close()
        with contextlib.ExitStack() as files:  # more than one: the collector may just have closed one of a lower number
            others = (files.enter_context(open("/dev/null", "rb")) for _ in range(100))
            other = next(one for one in others if one.fileno() == fd)
            here.close()
            assert other.read() == b""
        assert there.poll(1)
        there.close()
        if left:
            return
    raise AssertionError("it has no end")


def test_processes_that_are_started_while_it_is_stopped_are_ended(processes: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """By a signal handler between two of them, which knows only the first."""
    consumer, start, pids = processes(), multiprocess._start, []

    def stopped(*args: Any) -> Any:
        process = start(*args)
        pids.append(process.pid)
        consumer.stop()
        return process

    monkeypatch.setattr(multiprocess, "_start", stopped)
    with pytest.raises(IllegalStateError, match="stopped"):
        consumer.fetch_last_known_offsets()
    assert len(pids) == 2
    assert not consumer.procs
    assert all(multiprocess._has_ended(pid) for pid in pids)


# -- the consumer of 0.9 --------------------------------------------------------------------------------------------------------
def of_kafka(cluster: MockCluster, handler: str, **options: Any) -> Any:
    found = legacy.KafkaConsumer(
        "t",
        bootstrap_servers=cluster.bootstrap,
        group_id="g",
        auto_commit_enable=True,
        auto_offset_reset="smallest",
        handler=handler,
        **options,
    )
    found.task_done(found.next())
    return found


def test_closes_at_once_commit_once_and_none_of_them_fails(make_cluster: Make, handler: str, caplog: pytest.LogCaptureFixture) -> None:
    """AttributeError, and the log said that the commit had failed, which was made."""
    run = Runner(handler)
    for pause in (0.02, 0.1):
        cluster = make_cluster(topics={"t": 1})
        put(cluster, b"a", b"b")
        consumer = of_kafka(cluster, handler)
        cluster.on("OffsetCommit", Delay(0.2))
        begun = [run.aside(consumer.close) for _ in range(3)]
        run.sleep(pause)
        for one in [*begun, run.aside(consumer.close)]:
            one.result()
        assert committed(cluster) == {0: 1}
        assert len(cluster.requests("OffsetCommit")) == 1
        assert consumer._client is None
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_configure_beside_a_close_makes_nothing_that_nobody_closes(make_cluster: Make, handler: str) -> None:
    cluster = make_cluster(topics={"t": 1})
    put(cluster, b"a")
    consumer, run = of_kafka(cluster, handler), Runner(handler)
    cluster.on("OffsetCommit", Delay(0.5))
    closing = run.aside(consumer.close)
    run.until(lambda: cluster.requests("OffsetCommit"))
    with pytest.raises(IllegalStateError, match="closed"):
        consumer.configure(bootstrap_servers=cluster.bootstrap, handler=handler)
    closing.result()
    assert consumer._client is None


@pytest.mark.parametrize("of", ["consumer", "producer"])
def test_others_of_that_client_end_at_once_beside_their_client(make_cluster: Make, handler: str, of: str) -> None:
    cluster = make_cluster(topics={"t": 1})
    put(cluster, b"a", b"b")
    client, run = legacy.KafkaClient(cluster.bootstrap, handler=handler), Runner(handler)
    if of == "consumer":
        made: Any = legacy.SimpleConsumer(client, "g", "t")
        assert made.get_message(timeout=60) is not None
        cluster.on("OffsetCommit", Delay(0.2))
    else:
        made = legacy.SimpleProducer(client, async_send=True)
        made.send_messages("t", b"c")
        cluster.on("Produce", Delay(0.2))
    for one in [run.aside(end) for end in (made.stop, made.stop, client.close, made.stop)]:
        one.result()
    assert committed(cluster) == {0: 1} if of == "consumer" else len(cluster.log("t", 0)) == 3
