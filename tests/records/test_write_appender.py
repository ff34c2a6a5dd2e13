"""The appender: what the fast path takes, how batches grow, and where their memory goes."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import threading
import zlib
from typing import Any

import pytest

from gkafka.exceptions import BufferFull, RecordTooLarge, SerializationError
from tests.kit.clock import epoch_s
from tests.records.write_helpers import SLOW, Owner, fill, make_appender, some_rows


def fields(batch: Any) -> tuple[Any, ...]:
    return batch.count, batch.size, batch.base_timestamp, batch.max_timestamp, batch.has_headers, batch.sealed, batch.done


# -- the fast path -----------------------------------------------------------------------------------------------------
def test_the_fast_path_appends_and_answers_with_a_view(impl: Any) -> None:
    owner = Owner()
    appender = make_appender(impl, owner)
    batch = appender.open("t", 3, 12.5)
    deliveries = [appender.produce("t", b"v%d" % i, partition=3, timestamp=1000 + i) for i in range(10)]
    assert [d.index for d in deliveries] == list(range(10))
    assert all(d.batch is batch and d.topic == "t" and d.partition == 3 and not d.done() for d in deliveries)
    assert [d.record.value for d in deliveries] == [b"v%d" % i for i in range(10)]
    assert (batch.topic, batch.partition, batch.created, batch.owner) == ("t", 3, 12.5, owner)
    assert fields(batch) == (10, batch.size, 1000, 1009, False, False, False)
    assert batch.size == 61 + 10 * 9
    assert (batch.attempts, batch.extra, batch.waits, batch.error) == (0, None, None, None)
    assert owner.slow == []


def test_whether_a_batch_is_open_is_told(impl: Any) -> None:
    appender = make_appender(impl)
    assert not appender.is_open("t", 3)
    assert not appender.is_open("unknown", 0)
    appender.open("t", 3, 1.0)
    assert [appender.is_open("t", partition) for partition in (2, 3)] == [False, True]
    appender.roll("t", 3)
    assert not appender.is_open("t", 3)


def test_a_batch_begins_with_its_first_record_and_is_told_then_and_when_it_is_rolled(impl: Any) -> None:
    appender = make_appender(impl)
    first = appender.begin("t", 3, 12.5, 100, b"v", b"k", 1000, [("h", b"x")])
    batch = first.batch
    assert (first.index, batch.count, batch.created, batch.is_open) == (0, 1, 12.5, True)
    assert (first.record.value, first.record.key, first.record.headers) == (b"v", b"k", [("h", b"x")])
    assert appender.open_batch("t", 3) is batch
    assert list(appender.news) == [batch]
    assert appender.produce("t", b"w", partition=3).batch is batch
    assert appender.roll("t", 3) is batch
    assert not batch.is_open
    assert list(appender.news) == [batch, batch]
    assert appender.rolled_bytes == batch.size
    assert appender.open_batch("t", 3) is None
    assert appender.roll("t", 3) is None
    assert len(appender.news) == 2
    other = appender.begin("t", 4, 12.5, 100, b"v", None, 1, None).batch
    assert (appender.take("t", 4), other.is_open, appender.take("t", 4)) == (other, False, None)
    assert list(appender.news) == [batch, batch, other]  # whoever takes it to send it need not be told
    assert appender.rolled_bytes == batch.size


def test_a_batch_that_cannot_begin_leaves_nothing(impl: Any) -> None:
    appender = make_appender(impl, buffer_bytes=16384)
    for record in ((object(), None, 1, None), (b"v", object(), 1, None), (b"v", None, -5, None), (b"v", None, 1, [("a", 1)])):
        with pytest.raises(SerializationError):
            appender.begin("t", 0, 1.0, 100, *record)
    appender.open("t", 1, 1.0, 16384)
    with pytest.raises(BufferFull, match="bytes wanted"):
        appender.begin("t", 0, 1.0, 100, b"v", None, 1, None)
    with pytest.raises(ValueError, match="has an open batch"):
        appender.begin("t", 1, 1.0, 100, b"v", None, 1, None)
    with pytest.raises(ValueError, match="negative"):
        appender.begin("t", -1, 1.0, 100, b"v", None, 1, None)
    assert not appender.is_open("t", 0)
    assert list(appender.news) == []
    appender.release(appender.open_batch("t", 1))
    assert appender.own_available == 16384


def test_a_batch_begins_with_what_is_bytes_like(impl: Any) -> None:
    first = make_appender(impl).begin("t", 0, 1.0, 100, bytearray(b"v"), memoryview(b"k"), 1000, None)
    assert (first.record.value, first.record.key) == (b"v", b"k")


def test_no_timestamp_means_now(impl: Any) -> None:
    appender = make_appender(impl)
    batch = appender.open("t", 0, 1.0)
    before = epoch_s() * 1000 - 20  # a coarse clock may be a tick or two behind
    appender.produce("t", b"v", None, 0)
    assert before <= batch.base_timestamp <= epoch_s() * 1000


def test_a_topic_is_known_by_value_and_not_by_object(impl: Any) -> None:
    appender = make_appender(impl)
    appender.set_topic("other", 1, 0)
    appender.open("t", 0, 1.0)
    appender.open("other", 0, 1.0)
    for topic in ("t", "".join(["o", "ther"]), "t", "other", "".join(["ot", "her"])):
        assert appender.produce(topic, b"v", None, 0).topic == topic
    assert [b.count for b in appender.open_batches()] == [2, 3]


@pytest.mark.parametrize(
    "record",
    [
        ("unknown", b"v", None, 0, None, None),
        (None, b"v", None, 0, None, None),
        (["t"], b"v", None, 0, None, None),
        ("t", "v", None, 0, None, None),
        ("t", b"v", "k", 0, None, None),
        ("t", b"v", "k", None, None, None),
        ("t", b"v", None, 4, None, None),  # out of range
        ("t", b"v", None, -1, None, None),
        ("t", b"v", None, 1 << 70, None, None),
        ("t", b"v", None, True, None, None),
        ("t", b"v", None, 1.0, None, None),
        ("t", b"v", None, "1", None, None),
        ("t", b"v", None, 1, None, None),  # no open batch
        ("t", b"v", None, None, None, None),
        ("t", b"v", None, 0, -1, None),
        ("t", b"v", None, 0, 1 << 63, None),
        ("t", b"v", None, 0, 1.5, None),
        ("t", b"v", None, 0, None, {"a": b"b"}),
        ("t", b"v", None, 0, None, [("a", "b")]),
        ("t", b"v", None, 0, None, iter([("a", b"b")])),
        ("t", b"x" * 2000, None, 0, None, None),  # larger than one record may be
        ("t", None, b"x" * 2000, 0, None, None),
        ("t", None, None, 0, None, [("a", b"x" * 2000)]),
        ("t", None, None, 0, None, [("x" * 2000, None)]),
    ],
    ids=lambda r: repr(r).split(" object at ")[0][:60],
)
def test_what_the_fast_path_does_not_take_goes_to_the_owner_untouched(impl: Any, record: tuple[Any, ...]) -> None:
    owner = Owner()
    appender = make_appender(impl, owner, max_record_bytes=1000)
    batch = appender.open("t", 0, 1.0)
    appender.produce("t", b"first", None, 0, 5)
    before = fields(batch)
    assert appender.produce(*record) is SLOW
    assert owner.slow == [record]
    assert all(given is passed for given, passed in zip(owner.slow[0], record, strict=True))
    assert fields(batch) == before
    assert appender.produce("t", b"next", None, 0, 5).index == 1  # and it goes on as before


def test_the_owner_can_switch_the_fast_path_off_and_on(impl: Any) -> None:
    owner = Owner()
    appender = make_appender(impl, owner)
    appender.open("t", 2, 1.0)
    assert appender.fast is True
    appender.fast = False
    assert appender.produce("t", b"v") is SLOW
    appender.fast = True
    assert appender.produce("t", b"v").index == 0


def test_topics_come_and_go_and_their_open_batches_stay(impl: Any) -> None:
    owner = Owner()
    appender = make_appender(impl, owner)
    batch = appender.open("t", 2, 1.0)
    assert appender.sticky("t") == 2
    appender.set_sticky("t", 1)
    assert appender.sticky("t") == 1
    appender.drop_topic("t")
    assert appender.sticky("t") == -1
    assert appender.produce("t", b"v", None, 2) is SLOW
    assert appender.open_batches() == [batch]
    assert appender.append("t", 2, b"v", None, 5, None).batch is batch
    appender.set_topic("t", 3, 0)
    assert appender.produce("t", b"v", None, 2).batch is batch
    assert appender.produce("t", b"v", None, 3) is SLOW
    assert appender.roll("t", 2) is batch
    appender.drop_topic("t")
    appender.drop_topic("never known")
    assert appender.sticky("t") == appender.sticky("never known") == -1
    assert appender.produce("t", b"v", None, 2) is SLOW
    for wrong in ((0, 0), (3, 3), (3, -1)):
        with pytest.raises(ValueError, match="no sticky partition"):
            appender.set_topic("t", *wrong)
    with pytest.raises(ValueError, match="has no partition 0"):
        appender.set_sticky("t", 0)


def test_a_topic_that_the_fast_path_does_not_know_can_still_be_appended_to(impl: Any) -> None:
    owner = Owner()
    appender = make_appender(impl, owner)
    assert appender.append("custom", 7, b"v", None, 5, None) is None
    batch = appender.open("custom", 7, 1.0)
    assert appender.append("custom", 7, b"v", None, 5, None).batch is batch
    assert appender.produce("custom", b"v", None, 7) is SLOW
    assert appender.roll("custom", 6) is None
    assert appender.roll("custom", 7) is batch
    assert appender.roll("custom", 7) is None
    assert appender.append("custom", 7, b"v", None, 5, None) is None


def test_the_owner_may_re_enter_from_every_call_out(impl: Any) -> None:
    owner = Owner()
    appender = make_appender(impl, owner)
    inner: list[Any] = []

    class Reentrant(Owner):
        def produce_slow(self, topic: Any, value: Any, key: Any, partition: Any, timestamp: Any, headers: Any) -> Any:
            batch = again.roll(topic, partition)
            if batch is not None:
                again.release(batch)
            again.open(topic, partition, 1.0)
            inner.append(again.produce(topic, b"inner", None, partition))
            return again.append(topic, partition, value, key, 5, headers)

    again = make_appender(impl, Reentrant())
    outer = [again.produce("t", b"x" * 1000, None, 0) for _ in range(100)]
    assert len(inner) > 5
    assert all(d.index == 0 for d in inner)
    assert {d.index for d in outer if d.batch is inner[1].batch} == set(range(1, inner[1].batch.count))

    appender.checkpoint_every = 3
    appender.open("t", 0, 1.0)
    owner.on_checkpoint = lambda: (appender.drop_topic("t"), appender.release(appender.open_batches()[0]), gc.collect())
    for _ in range(3):
        assert appender.produce("t", b"v", None, 0) is not SLOW
    assert appender.produce("t", b"v", None, 0) is SLOW


def test_every_nth_call_goes_through_the_checkpoint_first(impl: Any) -> None:
    owner = Owner()
    appender = make_appender(impl, owner)
    batch = appender.open("t", 0, 1.0)
    for _ in range(50):
        appender.produce("t", b"v", None, 0)
    assert owner.checkpoints == 0
    appender.checkpoint_every = 10
    seen: list[int] = []
    owner.on_checkpoint = lambda: seen.append(batch.count)
    for _ in range(35):
        appender.produce("t", b"v", None, 0)
    assert seen == [60, 70, 80]
    assert owner.slow == []

    def switched_off() -> None:
        appender.fast = False

    owner.on_checkpoint = switched_off
    results = [appender.produce("t", b"v", None, 0) for _ in range(6)]
    assert results[-1] is SLOW  # the checkpoint's effect counts for the very call that made it
    assert results[-2] is not SLOW
    with pytest.raises(ValueError, match="checkpoint_every=-1"):
        appender.checkpoint_every = -1


def test_an_error_in_the_checkpoint_appends_nothing(impl: Any) -> None:
    owner = Owner()
    appender = make_appender(impl, owner)
    batch = appender.open("t", 0, 1.0)
    appender.checkpoint_every = 1

    class Killed(BaseException):
        pass

    def killed() -> None:
        raise Killed

    appender.produce("t", b"v", None, 0)
    owner.on_checkpoint = killed
    with pytest.raises(Killed):
        appender.produce("t", b"v", None, 0)
    assert batch.count == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_goes_to_the_owner(impl: Any) -> None:
    program = f"""
        import os, {impl.__name__} as impl
        class Owner:
            def produce_slow(self, *record): return "slow"
        appender = impl.Appender(Owner(), batch_bytes=16384, buffer_bytes=1 << 20, max_record_bytes=1000)
        appender.set_topic("t", 1, 0)
        batch = appender.open("t", 0, 1.0)
        assert appender.produce("t", b"v") != "slow"
        pid = os.fork()
        if not pid:
            os._exit(0 if appender.produce("t", b"v") == "slow" and batch.count == 1 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert appender.produce("t", b"v") != "slow"
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


# -- growth and limits -------------------------------------------------------------------------------------------------
def test_a_batch_grows_by_doubling_up_to_batch_bytes(impl: Any) -> None:
    owner = Owner()
    appender = make_appender(impl, owner)
    total = appender.available
    batch = appender.open("t", 0, 1.0)
    held = []
    while appender.produce("t", b"x" * 50, None, 0, 5) is not SLOW:
        held.append(total - appender.available)
    assert sorted(set(held)) == [256, 512, 1024, 2048, 4096, 8192, 16384]
    odd = make_appender(impl, owner, batch_bytes=1000, initial_bytes=300)
    odd.open("t", 0, 1.0)
    held = []
    while odd.produce("t", b"x" * 50, None, 0, 5) is not SLOW:
        held.append(total - odd.available)
    assert sorted(set(held)) == [300, 600, 1000]
    assert 16384 - 60 < batch.size <= 16384
    assert appender.produce("t", b"", None, 0, 5) is not SLOW  # a small one still fits
    assert appender.append("t", 0, b"x" * 50, None, 5, None) is None


def test_a_batch_takes_no_more_once_it_is_rolled_sealed_done_or_released(impl: Any) -> None:
    for end in (
        lambda a, b: a.roll("t", 0),
        lambda a, b: b.seal(0, None),
        lambda a, b: b.seal(1, None),
        lambda a, b: b.seal_legacy(1, 0, None),
        lambda a, b: b.complete(5),
        lambda a, b: b.fail(ValueError()),
        lambda a, b: a.release(b),
    ):
        appender = make_appender(impl)
        batch = appender.open("t", 0, 1.0)
        appender.produce("t", b"v", None, 0)
        end(appender, batch)
        assert appender.append("t", 0, b"v", None, 5, None) is None
        assert appender.produce("t", b"v", None, 0) is SLOW
        assert batch.count == 1


def test_a_batch_that_follows_a_full_one_starts_whole(impl: Any) -> None:
    appender = make_appender(impl, buffer_bytes=65536)
    total = appender.available
    appender.open("t", 0, 1.0)
    while appender.produce("t", b"x" * 100, None, 0, 5) is not SLOW:
        pass
    first = appender.roll("t", 0)
    second = appender.open("t", 0, 1.0)
    assert total - appender.available == 2 * 16384
    assert appender.roll("t", 0) is second  # empty: the next one starts small again
    appender.open("t", 0, 1.0)
    assert total - appender.available == 2 * 16384 + 256
    while appender.produce("t", b"x" * 100, None, 0, 5) is not SLOW:
        pass
    third = appender.roll("t", 0)
    appender.open("t", 0, 1.0)  # three are held: less than half is free, so this one must grow
    assert total - appender.available == 3 * 16384 + 256
    for batch in (first, second, third):
        appender.release(batch)


def test_memory_never_passes_buffer_bytes(impl: Any) -> None:
    owner = Owner()
    appender = make_appender(impl, owner, buffer_bytes=10_000)
    batches = [appender.open("t", p, 1.0) for p in range(4)]
    for p in range(4):
        while appender.produce("t", b"x" * 30, None, p, 5) is not SLOW:
            assert appender.available >= 0
    assert appender.available < 4096
    with pytest.raises(BufferFull, match=r"t-9: 4096 bytes wanted, \d+ of buffer_bytes=10000 are free") as caught:
        appender.open("t", 9, 1.0, 4096)
    assert (caught.value.topic, caught.value.partition, caught.value.retriable) == ("t", 9, True)
    for batch in batches:
        appender.release(batch)
    assert appender.available == 10_000
    assert appender.open_batches() == []
    appender.open("t", 9, 1.0, 4000)


def test_timestamps_that_differ_are_memory_too(impl: Any) -> None:
    appender = make_appender(impl)
    total = appender.available
    batch = appender.open("t", 0, 1.0)
    appender.append("t", 0, b"v", None, 5, None)
    assert appender.available == total - 256
    appender.append("t", 0, b"v", None, 6, None)
    assert appender.available == total - 256 - 8 * 16
    for i in range(8):
        appender.append("t", 0, b"v", None, 7 + i, None)
    assert appender.available == total - 256 - 16 * 16
    appender.release(batch)
    assert appender.available == total
    one = make_appender(impl, buffer_bytes=300)
    one.open("t", 0, 1.0)
    assert one.append("t", 0, b"v", None, 5, None) is not None
    assert one.append("t", 0, b"v", None, 6, None) is None  # no memory to remember it by
    assert one.append("t", 0, b"v", None, 5, None) is not None


def test_a_record_larger_than_a_batch_gets_one_of_its_own(impl: Any) -> None:
    owner = Owner()
    appender = make_appender(impl, owner)
    value, headers = b"x" * 100_000, [("h", b"v")]
    assert appender.open("t", 0, 1.0) is not None
    assert appender.produce("t", value, None, 0, 5, headers) is SLOW
    appender.roll("t", 0)
    need = impl.record_size(value, None, headers)
    total = appender.available
    batch = appender.open("t", 0, 1.0, need)
    assert total - appender.available == need
    assert appender.append("t", 0, value, None, 5, headers).index == 0
    assert batch.size == need
    assert appender.produce("t", b"", None, 0, 5) is SLOW
    batch.seal(0, None)
    assert len(batch.wire) == need


def test_capacity_is_what_fits(impl: Any) -> None:
    appender = make_appender(impl)
    for size in (0, 10, 300, 5000, 16_000, 16_384, 20_000):
        value = b"x" * size
        appender.open("t", 0, 1.0, impl.record_size(value))
        assert appender.append("t", 0, value, None, 5, None) is not None
        appender.release(appender.roll("t", 0))


@pytest.mark.parametrize("row", some_rows(30), ids=lambda _: "")
def test_record_size_is_that_of_a_batch_with_this_record_alone(impl: Any, row: Any) -> None:
    _, key, value, headers = row
    assert fill(impl, [row]).size == impl.record_size(value, key, headers)


def test_max_record_bytes_bounds_a_batch_of_one_record(impl: Any) -> None:
    owner = Owner()
    size = impl.record_size(b"x" * 500)
    appender = make_appender(impl, owner, max_record_bytes=size)
    appender.open("t", 0, 1.0)
    assert appender.produce("t", b"x" * 500, None, 0) is not SLOW
    assert appender.produce("t", b"x" * 501, None, 0) is SLOW
    assert appender.append("t", 0, b"x" * 501, None, 5, None) is not None  # the owner decides


def test_what_can_never_be_opened_is_refused(impl: Any) -> None:
    appender = make_appender(impl)
    with pytest.raises(RecordTooLarge, match=r"a record of 1048577 bytes for t-0 can never fit: buffer_bytes=1048576") as caught:
        appender.open("t", 0, 1.0, (1 << 20) + 1)
    assert (caught.value.topic, caught.value.partition) == ("t", 0)
    with pytest.raises(ValueError, match="partition -1 is negative"):
        appender.open("t", -1, 1.0)
    appender.open("t", 0, 1.0)
    with pytest.raises(ValueError, match="t-0 has an open batch: roll it first"):
        appender.open("t", 0, 1.0)
    assert len(appender.open_batches()) == 1
    for name, size in (("batch_bytes", 127), ("buffer_bytes", 0), ("max_record_bytes", (1 << 30) + 1), ("initial_bytes", 60)):
        with pytest.raises(ValueError, match=f"{name}={size}: must be between"):
            make_appender(impl, **{name: size})
    with pytest.raises(TypeError):
        impl.Batch()
    assert make_appender(impl, batch_bytes=128, initial_bytes=4096).initial_bytes == 128


# -- memory ------------------------------------------------------------------------------------------------------------
def test_a_released_batch_keeps_the_bytes_of_its_views(impl: Any) -> None:
    """KAFKA-19012: the buffer of an expired batch was reused while the socket still sent it."""
    appender = make_appender(impl, batch_bytes=4096, buffer_bytes=8192, initial_bytes=4096)
    batch = fill(impl, [(5, None, b"old " * 500, None)], appender=appender)
    batch.seal(0, None)
    view = batch.wire
    part = view[100:200]
    before = bytes(view)
    appender.release(batch)
    del view
    gc.collect()
    assert appender.available == 4096  # deferred: a view of it is alive
    others = [fill(impl, [(5, None, b"NEW " * 500, None)], appender=appender)]
    with pytest.raises(BufferFull):
        appender.open("t", 2, 1.0)
    assert bytes(part) == before[100:200]
    part.release()
    del part
    gc.collect()
    assert appender.available == 4096
    others.append(fill(impl, [(5, None, b"MORE" * 500, None)], appender=appender))
    assert [b.record(0).value[:4] for b in others] == [b"NEW ", b"MORE"]


def test_a_view_is_read_only_and_outlives_everything(impl: Any) -> None:
    batch = fill(impl, some_rows(30))
    batch.seal(3, None)
    view = batch.wire
    assert view.readonly
    assert (view.format, view.ndim, view.itemsize, view.contiguous) == ("B", 1, 1, True)
    with pytest.raises(TypeError):
        view[0] = 1
    before = bytes(view)
    batch.extra = None
    del batch
    gc.collect()
    assert bytes(view) == before


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_compressing_gives_the_raw_buffer_back(impl: Any, codec: int) -> None:
    appender = make_appender(impl, batch_bytes=1 << 18)
    total = appender.available
    batch = fill(impl, [(5, None, b"same" * 250, None)] * 200, appender=appender)
    raw = total - appender.available
    assert raw == 1 << 18
    batch.seal(codec, None)
    assert total - appender.available == (raw if not codec else len(batch.wire))
    appender.release(batch)
    gc.collect()
    assert appender.available == total


def test_what_cannot_be_compressed_is_counted_in_full(impl: Any) -> None:
    appender = make_appender(impl, buffer_bytes=4096, initial_bytes=4096, batch_bytes=4096)
    batch = fill(impl, [(5, None, os.urandom(4000), None)], appender=appender)
    batch.seal(1, None)
    if len(batch.wire) > 4096:
        assert appender.available == 0
    appender.release(batch)
    gc.collect()
    assert appender.available == 4096


def test_release_is_for_this_appenders_batches_and_may_be_repeated(impl: Any) -> None:
    appender, other = make_appender(impl), make_appender(impl)
    batch = fill(impl, some_rows(5, headers=False), appender=appender)
    with pytest.raises(ValueError, match="not of this appender"):
        other.release(batch)
    for _ in range(3):
        appender.release(batch)
    assert appender.available == 1 << 20
    for use in (lambda: batch.seal(0, None), lambda: batch.seal_legacy(1, 0, None), lambda: batch.restamp(1, 1, 1)):
        with pytest.raises(ValueError, match=r"released its memory|still has its memory"):
            use()


@pytest.mark.parametrize("sealed", [None, 0, 3, "legacy"])
def test_what_is_set_apart_can_be_read_and_is_counted_no_more(impl: Any, sealed: Any) -> None:
    appender, other = make_appender(impl), make_appender(impl)
    rows = [(5 + i, b"k%d" % i, b"v" * i, None) for i in range(50)]
    batch = fill(impl, rows, appender=appender)
    if sealed == "legacy":
        batch.seal_legacy(1, 0, None)
    elif sealed is not None:
        batch.seal(sealed, None)
    wire = batch.wire if batch.sealed else b""
    with pytest.raises(ValueError, match="not of this appender"):
        other.set_apart(batch)
    for _ in range(3):
        appender.set_apart(batch)
        assert [(r.timestamp, r.key, r.value, None) for r in map(batch.record, range(50))] == rows
    assert (appender.available < 1 << 20) == bool(wire), "what a socket may still send is counted as long"
    del wire
    assert appender.available == 1 << 20
    again = appender.open("t", 0, 1.0)
    assert again is not batch
    for use in (
        lambda: batch.seal(0, None),
        lambda: batch.seal_legacy(1, 0, None),
        lambda: batch.restamp(1, 1, 1),
        lambda: batch.split(100),
    ):
        with pytest.raises(ValueError, match=r"released its memory|still has its memory|cannot be split|is sealed already"):
            use()
    before = impl.live_buffers()
    appender.release(batch)
    assert impl.live_buffers() == before - 1
    assert batch.record(0) is None
    assert appender.available == (1 << 20) - 256


def test_what_is_released_is_not_set_apart(impl: Any) -> None:
    appender = make_appender(impl)
    batch = fill(impl, some_rows(5), appender=appender)
    appender.release(batch)
    appender.set_apart(batch)
    assert batch.record(0) is None
    assert appender.available == 1 << 20


def test_nothing_leaks(impl: Any) -> None:
    def one_life(i: int) -> None:
        owner = Owner()
        appender = make_appender(impl, owner, batch_bytes=2048, buffer_bytes=1 << 16)
        for n in range(40):
            batch = fill(impl, some_rows(5), appender=appender, partition=n % 4)
            batch.extra = None
            delivery = impl.Delivery(batch, 2)
            delivery.add_done_callback(lambda d: d.batch)
            if n % 5:
                batch.seal(n % 5, None)
                batch.restamp(n, 0, 0)
            view = batch.wire if batch.sealed else None
            if n % 2:
                batch.complete(n)
            if n % 4:
                appender.release(batch)
            elif n % 8:
                appender.set_apart(batch)
            owner.on_wait = lambda batch, d=delivery, v=view: (d, v)
            if not n % 2:
                batch.fail(ValueError("x"))
                with pytest.raises(ValueError, match="x"):
                    delivery.result()

    one_life(0)
    gc.collect()
    before = impl.live_buffers()
    for i in range(5):
        one_life(i)
    gc.collect()
    assert impl.live_buffers() == before


def test_full_size_buffers_are_used_again(impl: Any) -> None:
    appender = make_appender(impl, batch_bytes=4096, initial_bytes=4096, buffer_bytes=1 << 16)
    for _ in range(200):
        batch = fill(impl, [(5, None, b"v", None)], appender=appender)
        batch.seal(0, None)
        appender.release(batch)
    del batch
    gc.collect()
    before = impl.live_buffers()
    batches = [fill(impl, [(5, None, b"v", None)], appender=appender) for _ in range(10)]
    assert impl.live_buffers() <= before + 10
    for batch in batches:
        appender.release(batch)
    del batch, batches
    gc.collect()
    assert appender.available == 1 << 16


# -- threads -----------------------------------------------------------------------------------------------------------
def test_threads_lose_and_duplicate_nothing(impl: Any) -> None:
    lock = threading.Lock()
    rolled: list[Any] = []

    class Rolling(Owner):
        turn = threading.RLock()

        def produce_slow(self, topic: Any, value: Any, key: Any, partition: Any, timestamp: Any, headers: Any) -> Any:
            with self.turn:
                while True:
                    delivery = appender.append(topic, partition, value, key, 5, headers)
                    if delivery is not None:
                        return delivery
                    batch = appender.roll(topic, partition)
                    if batch is not None:
                        batch.seal(len(rolled) % 2, None)
                        rolled.append(batch)
                    appender.open(topic, partition, 1.0)

    appender = make_appender(impl, Rolling(), batch_bytes=2048, buffer_bytes=1 << 24, lock=lock)
    deliveries: dict[int, list[Any]] = {n: [] for n in range(4)}

    def work(n: int) -> None:
        for i in range(3000):
            deliveries[n].append(appender.produce("t", b"%d %d" % (n, i), None, i % 2))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        workers = [threading.Thread(target=work, args=(n,), daemon=True) for n in deliveries]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(60)
            assert not worker.is_alive()
    finally:
        sys.setswitchinterval(interval)
    batches = [*rolled, *appender.open_batches()]
    values = [b.record(i).value for b in batches for i in range(b.count)]
    assert sorted(values) == sorted(b"%d %d" % (n, i) for n in deliveries for i in range(3000))
    for n, own in deliveries.items():
        assert [d.record.value for d in own[::97]] == [b"%d %d" % (n, i) for i in range(0, 3000, 97)]


def test_keys_choose_by_crc32_where_the_owner_says_so(impl: Any) -> None:
    appender = make_appender(impl)
    appender.crc32 = True
    for partition in range(4):
        appender.open("t", partition, 1.0)
    for key in (b"a", b"123456789", b"\xff" * 40):
        assert appender.produce("t", b"v", key).partition == zlib.crc32(key) % 4
    assert appender.produce("t", b"v", b"").partition == appender.produce("t", b"v").partition == 2, "the sticky one"
    assert appender.produce("t", b"v", bytearray(b"a")).partition == zlib.crc32(b"a") % 4
    appender.drop_topic("t")
    assert appender.produce("t", b"v", b"a") is SLOW
