"""What became of a record: deliveries, their results, errors and callbacks."""

from __future__ import annotations

import contextlib
import gc
import logging
import pickle
import threading
import weakref
from collections import deque
from typing import Any

import pytest

from gkafka.exceptions import KafkaException, KafkaTimeoutError, MessageSizeTooLarge, NotLeaderForPartition
from tests.records.write_helpers import Owner, fill, make_appender, some_rows


def delivered(impl: Any, stamps: list[int], base_offset: int = 100, log_append_time: int = -1) -> Any:
    batch = fill(impl, [(t, None, b"v", None) for t in stamps])
    batch.seal(0, None)
    assert batch.complete(base_offset, log_append_time) == []
    return batch


def test_the_result_says_where_the_record_is(impl: Any) -> None:
    batch = delivered(impl, [5, 5, 7])
    assert (batch.done, batch.error, batch.base_offset, batch.log_append_time) == (True, None, 100, -1)
    assert batch.owner is None
    results = [impl.Delivery(batch, i).result() for i in range(3)]
    assert results == [("t", 1, 100, 5), ("t", 1, 101, 5), ("t", 1, 102, 7)]
    assert results[2]._asdict() == {"topic": "t", "partition": 1, "offset": 102, "timestamp": 7}
    assert isinstance(results[0], impl.RecordMetadata)
    assert impl.Delivery(batch, 1).exception() is None
    assert impl.Delivery(batch, 1).exception(timeout=0) is None


def test_the_brokers_time_replaces_the_records(impl: Any) -> None:
    batch = delivered(impl, [5, 6, 7], log_append_time=99)
    assert [impl.Delivery(batch, i).result().timestamp for i in range(3)] == [99, 99, 99]


def test_without_acknowledgement_the_offset_is_not_known(impl: Any) -> None:
    batch = delivered(impl, [5, 6], base_offset=-1)
    assert [impl.Delivery(batch, i).result().offset for i in range(2)] == [-1, -1]


@pytest.mark.parametrize("stamps", [[1] * 50, list(range(50)), [9, 9, 1, 1, 1, 9, 9, 3, 9, -1, 1 << 62] * 5])
def test_timestamps_outlive_the_memory(impl: Any, stamps: list[int]) -> None:
    batch = delivered(impl, stamps)
    batch.extra.release(batch)
    assert [impl.Delivery(batch, i).result().timestamp for i in range(len(stamps))] == stamps
    assert impl.Delivery(batch, 0).record is None


def test_a_failed_batch_raises_its_error_for_each_record(impl: Any) -> None:
    batch = fill(impl, some_rows(3))
    error = NotLeaderForPartition("moved", topic="t", partition=1, broker="b:9092")
    error.__cause__ = OSError("reset")
    assert batch.fail(error) == []
    assert (batch.done, batch.error, batch.base_offset) == (True, error, -1)
    for i in range(3):
        delivery = impl.Delivery(batch, i)
        with pytest.raises(NotLeaderForPartition, match="moved") as caught:
            delivery.result()
        for seen in (caught.value, delivery.exception()):
            assert type(seen) is NotLeaderForPartition
            assert (seen.args, seen.topic, seen.partition, seen.broker) == (error.args, "t", 1, "b:9092")
            assert seen.__cause__ is error.__cause__
        assert delivery.done()
    assert error.__traceback__ is None  # what is raised is a copy: tracebacks of 1000 records would hang on one error


@pytest.mark.parametrize("told", ["no", "maybe"])
def test_an_error_knows_its_record_and_whether_that_may_be_persisted(impl: Any, told: str) -> None:
    batch = fill(impl, [(5, b"k%d" % i, b"v%d" % i, None) for i in range(3)])
    shared = NotLeaderForPartition("moved")
    batch.fail(shared, told)
    for i in range(3):
        with pytest.raises(NotLeaderForPartition) as caught:
            impl.Delivery(batch, i).result()
        for seen in (caught.value, impl.Delivery(batch, i).exception()):
            assert (seen.persisted, seen.record.key, seen.record.value) == (told, b"k%d" % i, b"v%d" % i)
    assert (shared.persisted, shared.record) == (None, None), "it is the error of all of them"


def test_an_error_of_a_part_knows_its_own_record_alone(impl: Any) -> None:
    batch = fill(impl, [(5, None, b"v%d" % i * 30, None) for i in range(10)])
    first, *others = batch.split(batch.size // 2)
    first.fail(MessageSizeTooLarge("refused"), "no")
    for part in others:
        part.fail(NotLeaderForPartition("moved"), "maybe")
    errors = [impl.Delivery(batch, i).exception() for i in range(10)]
    assert [e.persisted for e in errors] == ["no"] * first.count + ["maybe"] * (10 - first.count)
    del batch
    assert [e.record.value for e in errors] == [b"v%d" % i * 30 for i in range(10)]


def test_an_error_that_is_kept_keeps_no_record(impl: Any) -> None:
    batch = fill(impl, some_rows(2))
    batch.fail(KafkaException("why"), "no")
    error = impl.Delivery(batch, 0).exception()
    released = impl.Delivery(batch, 1).exception()
    assert released.record is not None
    batch.extra.release(batch)
    assert released.record is None
    alive = weakref.ref(batch)
    del batch
    assert alive() is None
    assert (error.record, error.persisted) == (None, "no")


def test_an_error_goes_to_another_process_without_its_record(impl: Any) -> None:
    batch = fill(impl, some_rows(1))
    batch.fail(NotLeaderForPartition("moved", topic="t", partition=1), "maybe")
    there = pickle.loads(pickle.dumps(impl.Delivery(batch, 0).exception()))
    assert (type(there), there.args, there.topic, there.persisted, there.record) == (NotLeaderForPartition, ("moved",), "t", "maybe", None)


def test_an_error_that_cannot_be_copied_is_raised_itself(impl: Any) -> None:
    class Odd(Exception):
        def __init__(self, one: int, two: int) -> None:
            super().__init__("odd")

    batch = fill(impl, some_rows(1))
    batch.fail(Odd(1, 2))
    with pytest.raises(Odd, match="odd"):
        impl.Delivery(batch, 0).result()
    assert type(impl.Delivery(batch, 0).exception()) is Odd


def test_a_batch_ends_once(impl: Any) -> None:
    calls: list[Any] = []
    batch = fill(impl, some_rows(2))
    impl.Delivery(batch, 0).add_done_callback(calls.append)
    assert len(batch.complete(7)) == 1
    assert batch.complete(9) == batch.fail(ValueError("late")) == []
    assert (batch.error, batch.base_offset) == (None, 7)
    failed = fill(impl, some_rows(2))
    failed.fail(ValueError("first"))
    assert failed.complete(9) == failed.fail(ValueError("second")) == []
    assert (str(failed.error), failed.base_offset) == ("first", -1)
    with pytest.raises(TypeError, match="must be an exception"):
        fill(impl, some_rows(1)).fail("no exception")


# -- callbacks ---------------------------------------------------------------------------------------------------------
def test_callbacks_come_back_in_the_order_of_the_records(impl: Any) -> None:
    batch = fill(impl, some_rows(5))
    fns = {name: (lambda d, name=name: name) for name in "abcde"}
    for index, name in ((3, "a"), (0, "b"), (3, "c"), (4, "d"), (0, "e")):
        impl.Delivery(batch, index).add_done_callback(fns[name])
    assert batch.complete(1) == [(0, fns["b"]), (0, fns["e"]), (3, fns["a"]), (3, fns["c"]), (4, fns["d"])]


def test_hooks_of_the_appender_come_before_a_records_own_callbacks(impl: Any) -> None:
    appender = make_appender(impl)
    hooks = (lambda d: 1, lambda d: 2)
    appender.hooks = hooks
    batch = fill(impl, some_rows(3), appender=appender)
    appender.hooks = None
    own = lambda d: 3  # noqa: E731
    impl.Delivery(batch, 1).add_done_callback(own)
    first, second = hooks
    assert batch.complete(1) == [(0, first), (0, second), (1, first), (1, second), (1, own), (2, first), (2, second)]
    assert batch.complete(1) == []
    assert fill(impl, some_rows(3), appender=appender).complete(1) == [], "those of batches that were open go on with them"


def test_callbacks_are_called_until_their_time_is_over_and_one_that_raises_not_again(impl: Any) -> None:
    batch = delivered(impl, [5, 6, 7, 8])
    called: list[int] = []

    def bad(delivery: Any) -> None:
        raise ValueError("bad")

    def good(delivery: Any) -> None:
        called.append(delivery.index)

    left: deque[Any] = deque([(0, good), (1, bad), (2, good), (3, good)])
    with pytest.raises(ValueError, match="bad"):
        impl.call_back(batch, left, lambda: 0.0, 1.0)
    assert (called, list(left)) == ([0], [None, (2, good), (3, good)])
    impl.call_back(batch, left, lambda: 0.0, 0.0)
    assert (called, list(left)) == ([0], [(2, good), (3, good)])
    impl.call_back(batch, left, lambda: 0.0, 0.0)
    assert (called, list(left)) == ([0, 2], [(3, good)])
    impl.call_back(batch, left, lambda: 0.0, 1.0)
    impl.call_back(batch, left, lambda: 0.0, 1.0)
    assert (called, list(left)) == ([0, 2, 3], [])


def test_a_late_callback_runs_at_once(impl: Any) -> None:
    for end in (lambda b: b.complete(1), lambda b: b.fail(ValueError("x"))):
        batch = fill(impl, some_rows(2))
        end(batch)
        seen: list[Any] = []
        delivery = impl.Delivery(batch, 1)
        delivery.add_done_callback(seen.append)
        assert seen == [delivery]


def test_a_callback_that_fails_is_logged_and_goes_no_further(impl: Any, caplog: pytest.LogCaptureFixture) -> None:
    batch = delivered(impl, [5])
    with caplog.at_level(logging.ERROR):
        impl.Delivery(batch, 0).add_done_callback(lambda d: 1 / 0)
    assert "a delivery callback for t-1 failed" in caplog.text
    assert "ZeroDivisionError" in caplog.text

    def killed(_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        impl.Delivery(batch, 0).add_done_callback(killed)
    with pytest.raises(TypeError, match="must be callable"):
        impl.Delivery(batch, 0).add_done_callback("no")


def test_no_callback_is_lost_between_threads(impl: Any) -> None:
    for _ in range(50):
        batch = fill(impl, some_rows(200), lock=threading.Lock())
        ran: list[int] = []
        started = threading.Event()

        def add(batch: Any = batch, ran: list[int] = ran, started: threading.Event = started) -> None:
            for i in range(200):
                impl.Delivery(batch, i).add_done_callback(lambda d: ran.append(d.index))
                started.set()

        worker = threading.Thread(target=add, daemon=True)
        worker.start()
        assert started.wait(60)
        left = batch.complete(1)
        worker.join(60)
        assert not worker.is_alive()
        for index, fn in left:
            fn(impl.Delivery(batch, index))
        assert sorted(ran) == list(range(200))


# -- waiting -----------------------------------------------------------------------------------------------------------
def test_waiting_is_the_owners(impl: Any) -> None:
    owner = Owner()
    appender = make_appender(impl, owner)
    batch = appender.open("t", 0, 1.0)
    delivery = appender.produce("t", b"v", None, 0, 5)
    owner.on_wait = lambda batch: batch.complete(7)
    assert delivery.result(60.5).offset == 7
    assert owner.waits == [(batch, 60.5)]
    assert delivery.result(0).offset == 7
    assert delivery.exception() is None
    assert len(owner.waits) == 1  # done: nobody waits


def test_a_wait_that_times_out_says_so(impl: Any) -> None:
    owner = Owner()
    appender = make_appender(impl, owner)
    appender.open("t", 0, 1.0)
    delivery = appender.produce("t", b"v", None, 0, 5)

    def late(_: Any) -> None:
        raise KafkaTimeoutError("not within 0 s")

    owner.on_wait = late
    for ask in (delivery.result, delivery.exception):
        with pytest.raises(KafkaTimeoutError, match="not within 0 s"):
            ask(timeout=0)
    owner.on_wait = lambda batch: None
    for ask in (delivery.result, delivery.exception):
        with pytest.raises(KafkaTimeoutError, match="a record for t-0 is not delivered yet"):
            ask()
    assert not delivery.done()
    assert owner.waits[-1][1] is None


# -- the view ----------------------------------------------------------------------------------------------------------
def test_deliveries_of_one_record_are_equal(impl: Any) -> None:
    appender = make_appender(impl)
    appender.open("t", 0, 1.0)
    first, second = appender.produce("t", b"v", None, 0), appender.produce("t", b"v", None, 0)
    again = impl.Delivery(first.batch, 0)
    assert first == again
    assert hash(first) == hash(again)
    assert first != second
    assert first != 5
    assert {first: 1}[again] == 1
    other = fill(impl, some_rows(1))
    assert impl.Delivery(other, 0) != impl.Delivery(first.batch, 0)


def test_no_repr_shows_what_is_in_a_record(impl: Any) -> None:
    batch = fill(impl, [(5, b"SECRET", b"SECRET", [("SECRET", b"SECRET")])])
    delivery = impl.Delivery(batch, 0)
    shown = [repr(delivery), repr(batch), repr(delivery.record)]
    batch.seal(1, None)
    batch.complete(5)
    shown += [repr(delivery), repr(batch), repr(delivery.result())]
    batch = fill(impl, some_rows(1))
    batch.fail(KafkaException("why"))
    shown.append(repr(impl.Delivery(batch, 0)))
    assert not [text for text in shown if "SECRET" in text]
    assert shown[0] == "<Delivery t-1 #0: pending>"
    assert shown[3] == "<Delivery t-1 #0: delivered>"
    assert shown[6] == "<Delivery t-1 #0: failed: KafkaException>"
    assert shown[4].startswith("<Batch t-1: 1 records, ")


def test_a_delivery_that_was_not_made_by_an_appender_does_no_harm(impl: Any) -> None:
    empty = impl.Delivery.__new__(impl.Delivery)
    for use in (empty.done, empty.result, empty.exception, lambda: empty.record, lambda: empty.topic, lambda: repr(empty)):
        with pytest.raises((TypeError, AttributeError)):
            use()
    with pytest.raises((TypeError, AttributeError)):
        impl.Delivery(None, 0).result()
    with pytest.raises(IndexError):
        _ = impl.Delivery(fill(impl, some_rows(2)), 2).record


# -- lifetimes ---------------------------------------------------------------------------------------------------------
def test_deliveries_outlive_everything_else(impl: Any) -> None:
    appender = make_appender(impl)
    batch = appender.open("t", 0, 1.0)
    deliveries = [appender.produce("t", b"v%d" % i, None, 0, i) for i in range(100)]
    batch.complete(1000)
    del appender, batch
    gc.collect()
    assert [d.result() for d in deliveries] == [("t", 0, 1000 + i, i) for i in range(100)]
    assert deliveries[50].record.value == b"v50"


def test_a_delivery_that_is_kept_lets_its_producer_go(impl: Any) -> None:
    owner = Owner()
    owner.appender = make_appender(impl, owner)  # type: ignore[attr-defined]
    batch = fill(impl, some_rows(3), appender=owner.appender)  # type: ignore[attr-defined]
    batch.extra = None
    owner.kept = impl.Delivery(batch, 0)  # type: ignore[attr-defined]
    batch.complete(1)
    batch_gone, owner_gone = weakref.ref(batch), weakref.ref(owner)
    del batch, owner
    gc.collect()
    assert (batch_gone(), owner_gone()) == (None, None)


def test_raising_a_batchs_error_ties_no_knot(impl: Any) -> None:
    def caller(fail: bool) -> Any:
        batch = fill(impl, some_rows(3))
        batch.extra = None
        delivery = impl.Delivery(batch, 0)
        delivery.add_done_callback(lambda d: delivery)
        batch.fail(NotLeaderForPartition("moved")) if fail else batch.complete(1)
        with contextlib.suppress(NotLeaderForPartition):
            delivery.result()
        kept = delivery.exception()
        assert (kept is not None) is fail
        return weakref.ref(batch)

    for fail in (True, False):
        gone = caller(fail)
        gc.collect()
        assert gone() is None


def test_compiled_deliveries_cost_the_garbage_collector_nothing() -> None:
    speed = pytest.importorskip("gkafka.records._speed")
    batch = fill(speed, some_rows(1))
    assert not gc.is_tracked(speed.Delivery(batch, 0))
    assert gc.is_tracked(batch)
