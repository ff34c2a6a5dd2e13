"""Which version a request takes, and what a broker that cannot be asked speaks."""

from __future__ import annotations

import itertools
from uuid import UUID

import pytest

from gkafka.exceptions import ConfigurationError, UnsupportedVersion
from gkafka.wire import versions
from gkafka.wire.adminapis import ADMIN_APIS
from gkafka.wire.apis import Versions
from gkafka.wire.apiversions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse, FinalizedFeatureKey
from gkafka.wire.fetch import FetchRequest, FetchTopic, ForgottenTopic
from gkafka.wire.metadata import MetadataRequest
from gkafka.wire.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from gkafka.wire.produce import ProduceRequest, TopicProduceData, holds_zstd, record_format
from gkafka.wire.schema import Api, Message, VersionRange
from gkafka.wire.txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTransaction,
    InitProducerIdRequest,
    newest_without_v2,
    resumes_producers,
    speaks_v2,
)
from tests.wire.recorded import EVERY_API

METADATA, FETCH, PRODUCE = MetadataRequest.API, FetchRequest.API, ProduceRequest.API
RELEASES = [
    *("0.8.2", "0.9.0", "0.10.0", "0.10.1", "0.10.2", "0.11.0", "1.0", "1.1"),
    *(f"2.{minor}" for minor in range(9)),
    *(f"3.{minor}" for minor in range(10)),
    *("4.0", "4.1", "4.2"),
]


# -- ranges ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [("4+", [4, 5, 32767], [3, -1]), ("0-12", [0, 12], [13]), ("8", [8], [7, 9]), ("none", [], [-1, 0, 1])],
)
def test_a_version_range_reads_as_kafka_writes_it(text: str, inside: list[int], outside: list[int]) -> None:
    versions = VersionRange.parse(text)
    assert str(versions) == text
    assert all(v in versions for v in inside)
    assert not any(v in versions for v in outside)


# -- pick --------------------------------------------------------------------------------------------------------------
def test_the_newest_common_version_is_picked() -> None:
    assert Versions({3: (0, 7)}).pick(METADATA) == 7
    assert Versions({3: (0, 99)}).pick(METADATA) == METADATA.versions.high
    assert Versions({3: (5, 99)}).pick(METADATA, max_version=6) == 6
    assert Versions({3: (5, 7)}).pick(METADATA, max_version=99) == 7


@pytest.mark.parametrize(
    ("ranges", "max_version", "text"),
    [
        ({}, None, r"b1:9092 does not have Metadata \(API 3\); gkafka speaks v0-13"),
        ({3: (50, 60)}, None, "b1:9092 speaks Metadata v50-60, gkafka can send v0-13"),
        ({3: (5, 9)}, 4, "b1:9092 speaks Metadata v5-9, gkafka can send v0-4"),
    ],
)
def test_no_common_version_names_the_api_both_ranges_and_the_broker(
    ranges: dict[int, tuple[int, int]], max_version: int | None, text: str
) -> None:
    with pytest.raises(UnsupportedVersion, match=text) as caught:
        Versions(ranges, "b1:9092").pick(METADATA, max_version=max_version)
    assert (caught.value.api, caught.value.broker) == ("Metadata", "b1:9092")


def test_a_release_bounds_what_a_broker_speaks() -> None:
    """Not how a connection is opened: SaslHandshake, ApiVersions, SaslAuthenticate."""
    told = Versions({0: (0, 13), 3: (4, 13), 22: (0, 5), 17: (0, 1), 18: (0, 4), 36: (0, 2), 20_000: (0, 1)}, "b1:9092", {"f": 1})
    bounded = told.at_most("0.10.1")
    assert bounded.ranges == {0: (0, 2), 3: (4, 2), 17: (0, 1), 18: (0, 4), 36: (0, 2)}
    assert (bounded.broker, bounded.features, bounded.release) == ("b1:9092", {"f": 1}, (0, 8, 2))
    assert told.at_most("4.2").ranges == {key: ranges for key, ranges in told.ranges.items() if key != 20_000}
    assert Versions({0: (0, 1)}).at_most("4.2").ranges == {0: (0, 1)}  # it asks for nothing that the broker has not


@pytest.mark.parametrize("api", [METADATA, InitProducerIdRequest.API])
def test_what_a_release_leaves_nothing_of_is_told_by_its_option(api: Api) -> None:
    bounded = Versions({3: (4, 13), 22: (0, 5)}, "b1:9092").at_most("0.10.1")
    text = rf"max_broker_version='0.10.1' leaves nothing of {api.name} \(API {api.key}\) that b1:9092 and gkafka both speak: give a newer release"
    with pytest.raises(UnsupportedVersion, match=text):
        bounded.pick(api)


def test_an_unstable_version_is_picked_only_when_asked_for() -> None:
    both = Versions({22: (0, 6)})
    assert both.pick(InitProducerIdRequest.API) == 5
    assert both.pick(InitProducerIdRequest.API, max_version=6) == 5
    assert both.pick(InitProducerIdRequest.API, unstable=True) == 6
    assert Versions({22: (0, 5)}).pick(InitProducerIdRequest.API, unstable=True) == 5


def test_supports_asks_both_sides() -> None:
    versions = Versions({3: (4, 99)})
    assert versions.supports(METADATA, 4)
    assert not versions.supports(METADATA, 3)
    assert not versions.supports(METADATA, 14)
    assert not versions.supports(FETCH, 4)


ID = UUID(int=7)


@pytest.mark.parametrize(
    ("message", "newest"),
    [
        (ProduceRequest(topic_data=[TopicProduceData(name="t")]), 12),
        (ProduceRequest(topic_data=[TopicProduceData(name="t", topic_id=ID)]), 13),
        (FetchRequest(topics=[FetchTopic(topic_id=ID)], forgotten_topics_data=[ForgottenTopic(topic="u")]), 12),
        (FetchRequest(topics=[FetchTopic(topic_id=ID)]), 18),
        (OffsetCommitRequest(topics=[OffsetCommitRequestTopic(name="t")]), 9),
        (OffsetCommitRequest(topics=[OffsetCommitRequestTopic(topic_id=ID)]), 10),
        (OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(name="t")]), 9),
        (OffsetFetchRequest(group_id="g", topics=None), 10),
        (OffsetFetchRequest(groups=[OffsetFetchRequestGroup(topics=[OffsetFetchRequestTopics(topic_id=ID)])]), 10),
        (MetadataRequest(), 13),
        (AddPartitionsToTxnRequest(v3_and_below_transactional_id="x"), 3),
        (AddPartitionsToTxnRequest(transactions=[AddPartitionsToTxnTransaction(transactional_id="x")]), 5),
    ],
    ids=repr,
)
def test_what_a_request_holds_keeps_it_below_the_versions_that_cannot_carry_it(message: Message, newest: int) -> None:
    broker = Versions.for_broker("4.2")
    assert broker.pick_for(message) == newest
    assert broker.pick_for(message, max_version=newest - 1) == newest - 1


# -- what brokers say --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("time", "release", "since", "asked_by"),
    [(-3, "2.8", "v7, .* since 3.0", 6), (-4, "3.0", "v8, .* since 3.5", 7), (-5, "3.8", "v9, .* since 3.9", 8)],
)
def test_a_special_time_is_not_asked_of_a_broker_that_does_not_know_it(time: int, release: str, since: str, asked_by: int) -> None:
    """It would be one before all records."""
    asked = [ListOffsetsPartition(timestamp=1_700_000_000_000), ListOffsetsPartition(timestamp=time), ListOffsetsPartition(timestamp=-1)]
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="u", partitions=asked[:1]), ListOffsetsTopic(name="t", partitions=asked)])
    with pytest.raises(UnsupportedVersion, match=f"the time {time} takes ListOffsets {since}; Kafka {release} is asked by v{asked_by}"):
        Versions.for_broker(release).pick_for(request)
    assert Versions.for_broker("3.9").pick_for(request) == 9
    with pytest.raises(UnsupportedVersion, match=f"max_broker_version='{release}'"):
        Versions.for_broker("4.2").at_most(release).pick_for(request)


def test_a_broker_says_its_ranges_itself() -> None:
    answer = ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=3, min_version=1, max_version=9),
            ApiVersion(api_key=0, min_version=5, max_version=4),
            ApiVersion(api_key=1, min_version=-3, max_version=-1),
        ]
    )
    versions = Versions.from_response(answer, "b1:9092")
    assert (versions.ranges, versions.broker) == ({3: (1, 9)}, "b1:9092")


def test_0_8_2_and_0_9_0_are_exactly_what_those_brokers_serve() -> None:
    assert Versions.for_broker("0.8.2").ranges == {0: (0, 0), 1: (0, 0), 2: (0, 0), 3: (0, 0), 8: (0, 1), 9: (0, 1), 10: (0, 0)}
    groups = dict.fromkeys(range(10, 17), (0, 0))
    assert Versions.for_broker("0.9.0").ranges == {0: (0, 1), 1: (0, 1), 2: (0, 0), 3: (0, 0), 8: (0, 2), 9: (0, 1), **groups}


@pytest.mark.parametrize("release", RELEASES)
def test_brokers_from_0_10_0_on_can_be_asked(release: str) -> None:
    older = ("0.8.2", "0.9.0")
    assert Versions.for_broker(release).supports(ApiVersionsRequest.API, 0) == (release not in older)


def test_a_newer_release_serves_at_least_as_new_versions_and_kafka_4_dropped_old_ones() -> None:
    tables = [Versions.for_broker(release).ranges for release in RELEASES]
    for older, newer in itertools.pairwise(tables):
        assert all(newer[key][1] >= newest for key, (_, newest) in older.items())
    newest = Versions.for_broker("4.2")
    assert {key: newest.ranges[key][1] for key in EVERY_API} == {key: api.stable.high for key, api in EVERY_API.items()}
    assert newest.ranges[PRODUCE.key] == (3, 13)
    assert newest.ranges[FETCH.key] == (4, 18)


def test_the_table_of_administration_names_the_apis_by_their_keys() -> None:
    rows = [line.split()[:2] for line in versions._ADMIN_TABLE.strip().splitlines()]
    assert {int(key): name for key, name in rows} == {key: api.name for key, api in ADMIN_APIS.items()}


@pytest.mark.parametrize(
    ("release", "key", "newest"),
    [
        ("0.10.2", 32, None),
        ("0.11.0", 32, 0),
        ("1.1", 32, 1),
        ("2.8", 32, 4),
        ("2.3", 45, None),
        ("2.4", 45, 0),
        ("4.0", 45, 0),
        ("4.1", 45, 1),
        ("2.8", 61, 0),
        ("3.9", 27, 1),
        ("4.2", 27, 2),
    ],
)
def test_a_release_serves_administration_as_new_as_it_is(release: str, key: int, newest: int | None) -> None:
    """As ApiKeys of kafka-clients has it at each of these releases."""
    assert Versions.for_broker(release).ranges.get(key, (0, None))[1] == newest


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("0.8", "0.8.2"),
        ("0.8.2.2", "0.8.2"),
        ("0.9", "0.9.0"),
        ("0.9.0.1", "0.9.0"),
        ("0.10", "0.10.0"),
        ("0.10.2.2", "0.10.2"),
        ("0.11", "0.11.0"),
        ("1", "1.0"),
        ("1.1.1", "1.1"),
        ("2.8.2", "2.8"),
        ("3.9.1", "3.9"),
        ("4", "4.0"),
        ("4.2.0", "4.2"),
        ("4.3.1", "4.2"),
    ],
)
def test_a_release_may_be_written_shorter_or_longer(text: str, release: str) -> None:
    versions = Versions.for_broker(text)
    assert versions.ranges == Versions.for_broker(release).ranges
    assert versions.broker == f"Kafka {text}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "auto",
        "0.7",
        "0.8.1.1",
        "0.12",
        "1.2",
        "2.9",
        "5.0",
        "-1",
        "2.8.2.1.0",
        "2..8",
        "2.8.",
        "v2.8",
        " 2.8",
        "9" * 5000,
        "٢.٨",
    ],
)
def test_an_unknown_release_is_refused_with_those_that_are_known(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"broker_version=.*known here; give one of 0\.8\.2, 0\.9\.0, .*, 4\.2"):
        Versions.for_broker(text)


# -- what a Produce version can carry ----------------------------------------------------------------------------------
def test_a_produce_version_says_which_records_it_takes() -> None:
    assert [record_format(version) for version in (0, 1, 2, 3, 13)] == [0, 0, 1, 2, 2]
    assert [holds_zstd(version) for version in (6, 7)] == [False, True]


# -- transactions ------------------------------------------------------------------------------------------------------
def test_a_broker_says_which_kind_of_transactions_is_switched_on() -> None:
    """KIP-890: the versions alone do not say it, the cluster's feature does."""
    keys = [ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in Versions.for_broker("4.2").ranges.items()]
    for level, new in ((None, False), (1, False), (2, True), (3, True)):
        features = [] if level is None else [FinalizedFeatureKey(name="transaction.version", max_version_level=level)]
        assert speaks_v2(Versions.from_response(ApiVersionsResponse(api_keys=keys, finalized_features=features))) is new
    assert not speaks_v2(Versions({26: (0, 4)}, features={"transaction.version": 2})), "the versions are needed too"


def test_a_transaction_of_the_old_kind_keeps_to_the_versions_before_the_new_one() -> None:
    newest = {api.name: newest_without_v2(api) for api in EVERY_API.values() if newest_without_v2(api) is not None}
    assert newest == {"Produce": 11, "EndTxn": 4, "TxnOffsetCommit": 4}


@pytest.mark.parametrize(("release", "resumes"), [("0.11.0", False), ("2.4", False), ("2.5", True), ("4.2", True)])
def test_brokers_from_2_5_on_give_a_producer_the_next_epoch_of_its_id(release: str, resumes: bool) -> None:
    assert resumes_producers(Versions.for_broker(release)) is resumes
