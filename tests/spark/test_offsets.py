"""Where a read begins and ends."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gkafka.exceptions import ConfigurationError
from gkafka.spark.offsets import (
    AtTimestamp,
    AtTimestamps,
    DataLossError,
    Earliest,
    Latest,
    Limit,
    Specific,
    check_limits,
    from_spark,
    parse_offsets,
    parse_partitions,
    parse_timestamp,
    parse_timestamps,
    ranges_between,
    resolve,
)
from gkafka.spark.planner import OffsetRange

T0, T1 = ("t", 0), ("t", 1)
LOGS = {T0: range(5, 50), T1: range(80)}
"""Offsets of the records; the record at offset n has the timestamp 1000 + n."""


class Broker:
    """ListOffsets over LOGS."""

    def __init__(self) -> None:
        self.asked: list[dict[tuple[str, int], int]] = []

    def __call__(self, wanted: Mapping[tuple[str, int], int]) -> Mapping[tuple[str, int], int]:
        self.asked.append(dict(wanted))
        return {at: self.answer(LOGS[at], timestamp) for at, timestamp in wanted.items()}

    def answer(self, log: range, timestamp: int) -> int:
        if timestamp in (-1, -2):
            return log.stop if timestamp == -1 else log.start
        return next((offset for offset in log if 1000 + offset >= timestamp), -1)


@pytest.fixture
def broker() -> Broker:
    return Broker()


# -- JSON --------------------------------------------------------------------------------------------------------------
def test_json_becomes_numbers() -> None:
    assert parse_partitions("assign", '{"t": [0, 1], "u": []}') == [T0, T1]
    assert parse_offsets("startingOffsets", ' {"t":{"0":23,"1":-1},"u":{"7":-2}} ') == {T0: 23, T1: -1, ("u", 7): -2}
    assert parse_timestamps("startingOffsetsByTimestamp", '{"t":{"0":0}}') == {T0: 0}
    assert parse_timestamp("startingTimestamp", " 1700000000000 ") == 1700000000000


BAD_OFFSETS = ["nonsense", "", "{", "[]", "23", "null", '{"t":23}', '{"t":[0]}', '{"t":{"0":"1"}}', '{"t":{"0":1.5}}', '{"t":{"0":true}}']
BAD_OFFSETS += [
    '{"t":{"0":-3}}',
    '{"t":{"x":1}}',
    '{"t":{"-1":1}}',
    '{"t":{"0":null}}',
    '{"t":{"0":9223372036854775808}}',
    '{"t":{"4294967296":1}}',
]
BAD_OFFSETS += ['{"t":{"²":1}}', "[" * 100_000]


@pytest.mark.parametrize("text", BAD_OFFSETS, ids=lambda text: text[:30])
def test_offsets_that_are_not_such_json_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse_offsets("startingOffsets", text)
    said = str(refused.value)
    shown = text if len(text) <= 1000 else f"{text[:1000]}..."
    assert said.startswith(f"startingOffsets={shown!r}: must be 'earliest', 'latest' or JSON")
    assert f'Expected e.g. {{"topicA":{{"0":23,"1":-1}},"topicB":{{"0":-2}}}}, got {shown}' in said, "the JVM connector's words"


@pytest.mark.parametrize("text", ["x", '{"t":0}', '{"t":["0"]}', '{"t":[-1]}', '{"t":[true]}', '{"t":{"0":1}}'])
def test_partitions_that_are_not_such_json_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r'^assign=.*Expected e\.g\. \{"topicA":\[0,1\],"topicB":\[0,1\]\}, got '):
        parse_partitions("assign", text)


@pytest.mark.parametrize("text", ["x", '{"t":{"0":-1}}', '{"t":5}'])
def test_timestamps_that_are_not_such_json_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^endingOffsetsByTimestamp=.*Expected e\.g\. .*123456789"):
        parse_timestamps("endingOffsetsByTimestamp", text)


@pytest.mark.parametrize("text", ["", "abc", "1.5", "-1", "9223372036854775808", "1e3"])
def test_a_timestamp_that_is_not_a_number_of_ms_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"startingTimestamp=.*Expected a single long value, got"):
        parse_timestamp("startingTimestamp", text)


@given(st.text(max_size=60))
def test_any_text_is_numbers_or_a_configuration_error(text: str) -> None:
    for parse in (parse_offsets, parse_partitions, parse_timestamps):
        try:
            parse("option", text)
        except ConfigurationError as exc:
            assert "option=" in str(exc)  # noqa: PT017  # any other exception fails the test


# -- limits that a batch read cannot have ------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("start", "end", "words"),
    [
        (Latest(), Latest(), "starting offset can't be latest for batch queries on Kafka"),
        (Earliest(), Earliest(), "ending offset can't be earliest for batch queries on Kafka"),
        (Specific({T0: 0, T1: -1}), Latest(), "startingOffsets for t-1 can't be latest for batch queries on Kafka"),
        (Earliest(), Specific({T0: -2}), "ending offset for t-0 can't be earliest for batch queries on Kafka"),
        (
            Specific({T0: 1, T1: 1}),
            Specific({T0: 1}),
            "The specified start offset and end offset should have the same topic-partitions. "
            "Topic-partitions for start offset: t-0, t-1, topic-partitions for end offset: t-0.",
        ),
        (
            Specific({T0: 30}),
            Specific({T0: 3}),
            "The specified start offset 30 is greater than the end offset 3 for topic t partition 0.",
        ),
        (
            AtTimestamps({T0: 30}, False),
            AtTimestamps({T0: 3}, False),
            "The specified start timestamp 30 is greater than the end timestamp 3 for topic t partition 0.",
        ),
    ],
)
def test_the_refusals_have_the_jvm_connectors_words(start: Limit, end: Limit, words: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        check_limits(start, end)
    assert str(refused.value) == words


def test_ends_that_are_not_known_yet_are_not_compared() -> None:
    check_limits(Specific({T0: 30}), Specific({T0: -1}))
    check_limits(Specific({T0: -2}), Specific({T0: 0}))
    check_limits(Specific({T0: 3}), Specific({T0: 3}))


# -- resolve -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("limit", "starting", "expected"),
    [
        (Earliest(), True, {T0: 5, T1: 0}),
        (Latest(), False, {T0: 50, T1: 80}),
        (Specific({T0: 7, T1: -2}), True, {T0: 7, T1: 0}),
        (Specific({T0: 7, T1: -1}), False, {T0: 7, T1: 80}),
        (AtTimestamp(1020, False), True, {T0: 20, T1: 20}),
        (AtTimestamp(1060, True), True, {T0: 50, T1: 60}),
        (AtTimestamp(1060, False), False, {T0: 50, T1: 60}),
        (AtTimestamps({T0: 0, T1: 1003}, False), True, {T0: 5, T1: 3}),
        (AtTimestamps({T0: 9999, T1: 1003}, False), False, {T0: 50, T1: 3}),
    ],
)
def test_limits_become_offsets(broker: Broker, limit: Limit, starting: bool, expected: dict[tuple[str, int], int]) -> None:
    assert resolve(limit, [T0, T1], broker, starting=starting) == expected


def test_offsets_that_are_given_are_not_asked_for(broker: Broker) -> None:
    assert resolve(Specific({T0: 7, T1: 9}), [T0, T1], broker, starting=True) == {T0: 7, T1: 9}
    assert broker.asked == []
    resolve(Specific({T0: 7, T1: -2}), [T0, T1], broker, starting=True)
    assert broker.asked == [{T1: -2}]


def test_no_record_as_new_as_the_start_is_an_error_unless_told_otherwise(broker: Broker) -> None:
    with pytest.raises(ConfigurationError, match="No offset matched from request of topic-partition t-0 and timestamp 1060"):
        resolve(AtTimestamp(1060, False), [T0, T1], broker, starting=True)


@pytest.mark.parametrize("named", [{T0: 1}, {T0: 1, T1: 1, ("t", 2): 1}, {}])
def test_json_has_to_name_every_partition(broker: Broker, named: dict[tuple[str, int], int]) -> None:
    with pytest.raises(ConfigurationError, match=r"Partitions specified for Kafka start offsets don't match .* Assigned: t-0, t-1$"):
        resolve(Specific(named), [T0, T1], broker, starting=True)
    with pytest.raises(ConfigurationError, match=r"timestamp based end offsets don't match .* Assigned: t-0, t-1$"):
        resolve(AtTimestamps(named, False), [T0, T1], broker, starting=False)


# -- ranges ------------------------------------------------------------------------------------------------------------
def test_ranges_come_in_order_of_their_names() -> None:
    start, end = {T1: 1, T0: 5}, {T0: 5, T1: 9}
    assert ranges_between(start, end, fail_on_data_loss=True) == [OffsetRange("t", 0, 5, 5), OffsetRange("t", 1, 1, 9)]


def test_a_start_behind_the_end_is_data_loss() -> None:
    with pytest.raises(
        DataLossError, match="resolved start offset 9 is greater than the resolved end offset 5 for topic t partition 0"
    ) as lost:
        ranges_between({T0: 9}, {T0: 5}, fail_on_data_loss=True)
    assert (lost.value.topic, lost.value.partition, lost.value.offset) == ("t", 0, 9)


def test_a_start_behind_the_end_is_only_a_warning_where_data_may_be_lost(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert ranges_between({T0: 9, T1: 0}, {T0: 5, T1: 1}, fail_on_data_loss=False) == [OffsetRange("t", 1, 0, 1)]
    assert "resolved start offset 9" in caplog.text


@pytest.mark.parametrize("offset", [-1, -2])
def test_a_checkpoint_that_was_edited_is_told_as_one(offset: int) -> None:
    with pytest.raises(ConfigurationError, match=rf"^the checkpoint holds offset {offset} for t-1, .*checkpointLocation"):
        from_spark({"t": {"0": 5, "1": offset}})
