"""The two implementations of writing are held identical: same bytes, same memory, same errors."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gkafka.records._pure as pure
from tests.effort import quick_and_thorough, tried
from tests.records.write_helpers import SLOW, Owner, make_appender

speed = pytest.importorskip("gkafka.records._speed")

blobs = st.none() | st.binary(max_size=40) | st.builds(lambda n, b: b * n, st.integers(60, 9000), st.binary(min_size=1, max_size=1))
names = st.text(max_size=20) | st.sampled_from(["é" * 40, "\ud800", "h" * 70])
headers = st.none() | st.lists(st.tuples(names, blobs), max_size=4) | st.builds(tuple, st.lists(st.tuples(names, blobs), max_size=2))
stamps = st.sampled_from([0, 1, 5, 5, 5, 6, 1 << 40, (1 << 63) - 1]) | st.integers(0, (1 << 63) - 1)
odd = st.sampled_from([1, -1, 1.5, "text", bytearray(b"b"), memoryview(b"m"), [], {}, ("a",), [("a", "b")], [["a", b"b"]], True, 1 << 70])


def outcome(call: Any) -> Any:
    """The result of a call, or its error in words."""
    try:
        return call()
    except Exception as exc:
        return type(exc), str(exc)


def shown(thing: Any) -> Any:
    """A result that can be compared between the twins."""
    if hasattr(thing, "batch") and hasattr(thing, "index"):
        return "delivery", thing.topic, thing.partition, thing.index
    if hasattr(thing, "restamp"):
        return "batch", *(getattr(thing, name) for name in FIELDS)
    if isinstance(thing, list):
        return [shown(item) for item in thing]
    return thing


FIELDS = (
    "topic",
    "partition",
    "count",
    "size",
    "created",
    "base_timestamp",
    "max_timestamp",
    "has_headers",
    "sealed",
    "done",
    "base_offset",
    "log_append_time",
    "wire_size",
    "attempts",
)


class Pair:
    """Both twins, driven alike."""

    def __init__(self, **options: Any) -> None:
        self.owners = [Owner(), Owner()]
        self.appenders = [make_appender(impl, owner, **options) for impl, owner in zip((speed, pure), self.owners, strict=True)]
        self.batches: list[tuple[Any, Any]] = []

    def both(self, call: Any) -> Any:
        ours = [outcome(lambda a=a: call(a)) for a in self.appenders]
        assert shown(ours[0]) == shown(ours[1])
        assert self.appenders[0].available == self.appenders[1].available
        return ours

    def on_batch(self, number: int, call: Any) -> Any:
        if not self.batches:
            return None
        pair = self.batches[number % len(self.batches)]
        ours = [outcome(lambda a=a, b=b: call(a, b)) for a, b in zip(self.appenders, pair, strict=True)]
        assert shown(ours[0]) == shown(ours[1])
        assert shown(pair[0]) == shown(pair[1])
        return ours

    def check(self) -> None:
        assert len(self.owners[0].slow) == len(self.owners[1].slow)
        assert shown(self.appenders[0].open_batches()) == shown(self.appenders[1].open_batches())
        assert self.appenders[0].available == self.appenders[1].available


def make_the_same_bytes(rows: list[Any], codec: int, transactional: bool) -> None:
    pair = Pair(batch_bytes=1 << 18)
    pair.both(lambda a: a.open("t", 1, 1.0))
    for value, key, stamp, some in rows:
        pair.both(lambda a, r=(value, key, 1, stamp, some): a.produce("t", *r))
    pair.check()
    both = pair.both(lambda a: a.roll("t", 1))
    seal = [
        outcome(lambda b=b: b.seal(codec, None, producer_id=3, producer_epoch=2, base_sequence=1, transactional=transactional))
        for b in both
    ]
    assert seal[0] == seal[1]
    if both[0].count:
        assert bytes(both[0].wire) == bytes(both[1].wire)
        assert [both[0].record(i) for i in range(both[0].count)] == [both[1].record(i) for i in range(both[1].count)]


@pytest.mark.parametrize("examples", quick_and_thorough(30, 400))
def test_the_same_records_make_the_same_bytes(examples: int) -> None:
    tried(
        make_the_same_bytes,
        st.lists(st.tuples(blobs, blobs, stamps, headers), min_size=1, max_size=20),
        st.integers(0, 4),
        st.booleans(),
        seed=1,
        examples=examples,
    )


def make_the_same_message_set(rows: list[Any], form: tuple[int, int]) -> None:
    pair = Pair(batch_bytes=1 << 18)
    pair.both(lambda a: a.open("t", 1, 1.0))
    for value, key, stamp in rows:
        pair.both(lambda a, r=(value, key, 1, stamp): a.produce("t", *r))
    both = pair.both(lambda a: a.roll("t", 1))
    seal = [outcome(lambda b=b: b.seal_legacy(*form, None)) for b in both]
    assert seal[0] == seal[1]
    if seal[0] is None:
        assert bytes(both[0].wire) == bytes(both[1].wire)


@pytest.mark.parametrize("examples", quick_and_thorough(30, 400))
def test_the_same_records_make_the_same_message_set(examples: int) -> None:
    tried(
        make_the_same_message_set,
        st.lists(st.tuples(blobs, blobs, stamps), min_size=1, max_size=10),
        st.sampled_from([(0, 0), (0, 1), (0, 3), (1, 0), (1, 2), (1, 3), (1, 4), (3, 0)]),
        seed=2,
        examples=examples,
    )


def is_refused_alike(value: Any, key: Any, partition: Any, stamp: Any, some: Any) -> None:
    pair = Pair()
    for number in range(4):
        pair.both(lambda a, n=number: a.open("t", n, 1.0))
    pair.both(lambda a: a.produce("t", value, key, partition, 5 if stamp is None else stamp, some))
    pair.check()
    pair.both(lambda a: a.append("t", 1, value, key, 5 if stamp is None else stamp, some))
    pair.check()
    results = [outcome(lambda m=m: m.check_record("t", value, key, some)) for m in (speed, pure)]
    assert results[0] == results[1]


@pytest.mark.parametrize("examples", quick_and_thorough(60, 800))
def test_the_same_input_is_refused_alike(examples: int) -> None:
    tried(
        is_refused_alike,
        blobs | odd,
        blobs | odd,
        st.none() | st.integers(-1, 5) | odd,
        st.none() | stamps | odd,
        headers | odd,
        seed=3,
        examples=examples,
    )


operations = st.one_of(
    st.tuples(st.just("produce"), st.integers(0, 4), blobs, st.none() | st.binary(max_size=9), stamps, headers),
    st.tuples(st.just("append"), st.integers(0, 5), blobs, blobs, stamps, headers),
    st.tuples(st.just("open"), st.integers(0, 5), st.none() | st.integers(0, 70_000)),
    st.tuples(st.just("roll"), st.integers(0, 5)),
    st.tuples(st.just("sum_up"), st.integers(0, 5)),
    st.tuples(st.just("seal"), st.integers(0, 9), st.integers(-1, 5)),
    st.tuples(st.just("seal_legacy"), st.integers(0, 9), st.integers(0, 2), st.integers(0, 4)),
    st.tuples(st.just("restamp"), st.integers(0, 9), st.integers(-2, 1 << 15)),
    st.tuples(st.just("wire"), st.integers(0, 9)),
    st.tuples(st.just("view"), st.integers(0, 9)),
    st.tuples(st.just("complete"), st.integers(0, 9), st.integers(-1, 9)),
    st.tuples(st.just("fail"), st.integers(0, 9)),
    st.tuples(st.just("release"), st.integers(0, 9)),
    st.tuples(st.just("record"), st.integers(0, 9), st.integers(-1, 30)),
    st.tuples(st.just("result"), st.integers(0, 9), st.integers(0, 30)),
    st.tuples(st.just("topic"), st.integers(0, 6), st.integers(-1, 6)),
    st.tuples(st.just("drop_topic")),
)


def end_alike(calls: list[Any], batch_bytes: int, buffer_bytes: int) -> None:
    pair = Pair(batch_bytes=batch_bytes, buffer_bytes=buffer_bytes, max_record_bytes=8192)
    views: list[tuple[Any, Any, bytes]] = []
    for name, *args in calls:
        run(pair, views, name, args)
        assert all(bytes(ours) == bytes(theirs) == before for ours, theirs, before in views)
    pair.check()
    for one, other in pair.batches:
        pair.appenders[0].release(one)
        pair.appenders[1].release(other)
    views.clear()
    for batch in pair.appenders[0].open_batches():
        pair.appenders[0].release(batch)
    for batch in pair.appenders[1].open_batches():
        pair.appenders[1].release(batch)
    assert [a.available for a in pair.appenders] == [buffer_bytes, buffer_bytes]


@pytest.mark.parametrize("examples", quick_and_thorough(50, 600))
def test_any_order_of_calls_ends_alike(examples: int) -> None:
    tried(
        end_alike,
        st.lists(operations, max_size=60),
        st.sampled_from([2048, 3000, 16384]),
        st.sampled_from([9_000, 60_000]),
        seed=4,
        examples=examples,
    )


def run(pair: Pair, views: list[Any], name: str, args: list[Any]) -> None:
    number = args[0] if args else 0
    if name == "produce":
        partition, value, key, stamp, some = args
        answers = pair.both(lambda a: a.produce("t", value, key, None if partition == 4 else partition, stamp, some))
        assert (answers[0] is SLOW) == (answers[1] is SLOW)
    elif name == "append":
        partition, *rest = args
        pair.both(lambda a: a.append("t", partition, *rest))
    elif name == "open":
        answers = pair.both(lambda a: a.open("t", args[0], 1.5, args[1]))
        if hasattr(answers[0], "seal"):
            pair.batches.append(tuple(answers))
    elif name == "roll":
        pair.both(lambda a: a.roll("t", number))
    elif name == "sum_up":
        pair.both(lambda a: a.sum_up("t", number))
    elif name == "topic":
        pair.both(lambda a: a.set_topic("t", *args))
        pair.both(lambda a: a.sticky("t"))
    elif name == "drop_topic":
        pair.both(lambda a: a.drop_topic("t"))
    elif name == "view":
        answers = pair.on_batch(number, lambda a, b: bytes(b.wire))
        if answers and isinstance(answers[0], bytes):
            one, other = pair.batches[number % len(pair.batches)]
            views.append((one.wire, other.wire, answers[0]))
    else:
        on_batch = {
            "seal": lambda a, b: b.seal(args[1], None),
            "seal_legacy": lambda a, b: b.seal_legacy(args[1], args[2], None),
            "restamp": lambda a, b: b.restamp(args[1], args[1], args[1]),
            "wire": lambda a, b: bytes(b.wire),
            "complete": lambda a, b: b.complete(args[1], args[1] - 1),
            "fail": lambda a, b: b.fail(ValueError("x")),
            "release": lambda a, b: a.release(b),
            "record": lambda a, b: b.record(args[1]),
            "result": lambda a, b: tuple((speed if a is pair.appenders[0] else pure).Delivery(b, args[1]).result()),
        }
        pair.on_batch(number, on_batch[name])


@given(st.binary(max_size=300))
def test_keys_hash_alike(key: bytes) -> None:
    assert speed.murmur2(key) == pure.murmur2(key)
