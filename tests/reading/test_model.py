"""The model: what it says of the fixed log, and that seeking past damage loses no good record."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.reading.damagedlogs import CODECS, FIXED, FORMATS, Shape, shapes, written
from tests.reading.model import Entry, Fault, Form, Mark, Record, read

SEVEN = tuple(Record(i, None, b"%d" % i) for i in range(7))


def offsets(records: tuple[Record, ...]) -> list[int]:
    return [record.offset for record in records]


def test_of_the_fixed_log_records_0_to_6_come_and_then_damage_at_7_that_ends_with_its_batch() -> None:
    log = written(FIXED, "v2", "none").entries
    reading = read(log, 0, committed=False)
    assert reading.stop is not None
    assert offsets(reading.records) == [0, 1, 2, 3, 4, 5, 6]
    assert (reading.stop.named, reading.stop.stands, reading.stop.goes_on) == ((7, 7), 7, 12)
    assert reading.allowed(7) == (7, 7)
    assert offsets(read(log, 12, committed=False).records) == [12, 13]


def test_of_plain_messages_only_the_damaged_one_is_lost() -> None:
    log = written(FIXED, "v1", "none").entries
    reading = read(log, 0, committed=False)
    assert reading.stop is not None
    assert reading.stop.goes_on == 8
    assert offsets(read(log, 8, committed=False).records) == [8, 9, 10, 11, 12, 13]


def test_what_nobody_is_handed_is_passed_if_its_checksum_is_right() -> None:
    batch = Entry(Form.BATCH, 0, 6, SEVEN, producer=5, mark=Mark(Fault.RECORD, 2))
    log = [batch, Entry(Form.MARKER, 7, 7, producer=5, aborts=True)]
    assert read(log, 0, committed=True).stop is None
    assert offsets(read(log, 0, committed=False).records) == [0, 1]
    log[0] = batch._replace(mark=Mark(Fault.CHECKSUM))
    assert read(log, 0, committed=True).stop is not None


@given(shapes(), st.sampled_from(FORMATS), st.sampled_from([*CODECS]), st.booleans(), st.integers(0, 1000))
def test_who_seeks_past_each_damage_gets_every_good_record_once(shape: Shape, form: str, codec: str, committed: bool, base: int) -> None:
    log = written(shape, form, codec, base)
    assert [entry.last < after.base for entry, after in zip(log.entries, log.entries[1:], strict=False)].count(False) == 0
    start, got, stops = base, [], 0
    while True:
        reading = read(log.entries, start, committed=committed)
        got += offsets(reading.records)
        if reading.stop is None:
            break
        stops += 1
        assert start < reading.stop.goes_on
        assert reading.allowed(len(reading.records))[1] < reading.stop.goes_on
        start = reading.stop.goes_on
    hidden = {entry.producer for entry in log.entries if entry.aborts} if committed else set()
    shown = [entry for entry in log.entries if entry.producer < 0 or entry.producer not in hidden]
    good = [record.offset for entry in shown if entry.mark is None for record in entry.records]
    assert sorted(set(got)) == got
    assert set(good) <= set(got)
    assert stops <= sum(entry.mark is not None for entry in log.entries)
