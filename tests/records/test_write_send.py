"""Appender.send: the arguments in kafka-python's order, answers of a class that a skin gives, refusals that are no exceptions."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from gkafka.exceptions import ConfigurationError, MessageSizeTooLarge, RecordTooLarge
from gkafka.records._rows import ConsumerRecord
from tests.records.write_helpers import Owner, make_appender


def futures(impl: Any) -> type:
    class Future(impl.Delivery):  # type: ignore[misc, name-defined]
        __slots__ = ()

        def where(self) -> tuple[str, int]:
            return self.topic, self.index

    return Future


def test_send_appends_what_produce_does_and_answers_with_the_class(impl: Any) -> None:
    appender = make_appender(impl)
    batch = appender.open("t", 3, 1.0)
    kind = futures(impl)
    appender.answer_with(kind)
    sent = [appender.send("t", b"v", b"k", [("h", b"x")], 3, 1000), appender.send("t", key=b"k", partition=3, timestamp_ms=1001)]
    assert [type(one) for one in sent] == [kind, kind]
    assert [one.where() for one in sent] == [("t", 0), ("t", 1)]
    assert [tuple(one.record)[2:] for one in sent] == [(b"k", b"v", [("h", b"x")], 1000), (b"k", None, [], 1001)]
    other = make_appender(impl)
    same = other.open("t", 3, 1.0)
    other.produce("t", b"v", b"k", 3, 1000, [("h", b"x")])
    other.produce("t", None, b"k", 3, 1001)
    for one in (batch, same):
        one.seal(0, None)
    assert bytes(b"".join(map(bytes, [batch.wire]))) == bytes(b"".join(map(bytes, [same.wire])))


def test_what_the_owner_takes_is_answered_with_the_class_too(impl: Any) -> None:
    class Slow(Owner):
        def produce_slow(self, *record: Any) -> Any:
            super().produce_slow(*record)
            return impl.Delivery(batch, 0)

    owner = Slow()
    appender = make_appender(impl, owner)
    batch = appender.open("t", 3, 1.0)
    kind = futures(impl)
    appender.answer_with(kind)
    future = appender.send("unknown", b"v", b"k", [("h", None)], 5, 7)
    assert (type(future), future.batch, future.index) == (kind, batch, 0)
    assert owner.slow == [("unknown", b"v", b"k", 5, 7, [("h", None)])]


@pytest.mark.parametrize("error", [MessageSizeTooLarge("no"), RecordTooLarge("no")])
def test_a_refusal_is_what_the_skin_makes_of_it(impl: Any, error: Exception) -> None:
    class Refusing(Owner):
        def produce_slow(self, *record: Any) -> Any:
            raise error

    appender = make_appender(impl, Refusing())
    with pytest.raises(type(error)):
        appender.send("t", b"v")
    appender.answer_with(futures(impl), lambda refusal: ("told", refusal))
    assert appender.send("t", b"v") == ("told", error)


def test_any_other_error_is_raised(impl: Any) -> None:
    class Failing(Owner):
        def produce_slow(self, *record: Any) -> Any:
            raise ConfigurationError("no")

    appender = make_appender(impl, Failing())
    appender.answer_with(futures(impl), lambda refusal: "told")
    with pytest.raises(ConfigurationError):
        appender.send("t", b"v")


def test_a_record_of_nothing_is_refused_as_both_versions_of_kafka_python_do(impl: Any) -> None:
    appender = make_appender(impl)
    for kind in (AssertionError, ValueError):
        with pytest.raises(kind, match="'t' with neither a key nor a value"):
            appender.send("t")


@pytest.mark.parametrize("given", [int, object(), None, "Delivery"])
def test_only_a_delivery_can_be_answered_with(impl: Any, given: Any) -> None:
    with pytest.raises(TypeError):
        make_appender(impl).answer_with(given)


def test_messages_are_of_the_class_that_was_asked_for(impl: Any) -> None:
    class Row(impl.Message):  # type: ignore[misc, name-defined]
        __slots__ = ()
        where = impl.Message.partition_id

    appender = make_appender(impl)
    batch = appender.open("t", 3, 1.0)
    for n in range(5):
        appender.produce("t", b"v%d" % n, partition=3, timestamp=n)
    batch.seal(0, None)
    wire = bytes(batch.wire)
    (header,) = impl.scan(wire)
    context = _Context("t", 3)
    rows = impl.Records(wire, header, context, message_class=Row).take(10)
    assert [(type(row), row.value, row.where) for row in rows] == [(Row, b"v%d" % n, 3) for n in range(5)]
    assert isinstance(rows[0].detach(), Row)
    assert [type(m) for m in impl.Records(wire, header, context).take(10)] == [impl.Message] * 5
    with pytest.raises(TypeError, match="message_class"):
        impl.Records(wire, header, context, message_class=dict)


def test_a_row_behaves_as_the_documented_namedtuple(impl: Any) -> None:
    appender = make_appender(impl)
    batch = appender.open("t", 3, 1.0)
    appender.produce("t", b"v", b"k", 3, 1000, [("h", b"xy")])
    appender.produce("t", None, None, 3, 1001)
    batch.seal(0, None)
    wire = bytes(batch.wire)
    (header,) = impl.scan(wire)
    first, second = impl.Records(wire, header, _Context("t", 3), message_class=impl.Row).take(10)
    whole = ("t", 3, 0, 1000, 0, b"k", b"v", [("h", b"xy")], None, 1, 1, 3)
    assert tuple(first) == whole
    assert (first.partition, first.offset, first.key, first.value, first.headers, first.checksum) == (
        3,
        0,
        b"k",
        b"v",
        [("h", b"xy")],
        None,
    )
    assert tuple(second)[5:] == (None, None, [], None, -1, -1, -1)
    assert (first[0], first[-1], first[1:3], len(first), b"v" in first, first.index(b"k"), first.count(3)) == (
        "t",
        3,
        (3, 0),
        12,
        True,
        5,
        2,
    )
    assert first == whole and whole == first and first != second and first == first._replace()  # noqa: PT018
    assert first < second
    assert first._replace(value=b"w").value == b"w"
    assert list(first._asdict()) == list(first._fields) == list(ConsumerRecord._fields)
    assert isinstance(first, ConsumerRecord)
    assert isinstance(first._replace(), ConsumerRecord)
    assert not isinstance(whole, ConsumerRecord)
    assert repr(first) == "ConsumerRecord(topic='t', partition=3, offset=0, timestamp=1000, timestamp_type=0, key=b'k', value=b'v', " + (
        "headers=[('h', b'xy')], checksum=None, serialized_key_size=1, serialized_value_size=1, serialized_header_size=3)"
    )
    assert pickle.loads(pickle.dumps(first)) == whole
    assert type(first.detach()) is impl.Row
    assert hash(second._replace(headers=())) == hash(tuple(second._replace(headers=())))


class _Context:
    partition = None

    def __init__(self, topic: str, partition_id: int) -> None:
        self.topic, self.partition_id = topic, partition_id
