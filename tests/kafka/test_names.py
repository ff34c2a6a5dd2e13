"""What `from gkafka import kafka` has: each name where kafka-python has it, loaded when it is used."""

from __future__ import annotations

import importlib
import pickle
import pkgutil
from pathlib import Path

import pytest

import gkafka.kafka
from gkafka.kafka.errors import KafkaConfigurationError
from gkafka.kafka.structs import OffsetAndMetadata, OffsetAndTimestamp, TopicPartitionReplica
from tests.handlers.hub import run_script

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "kafka-python.md"


def test_every_name_is_that_of_its_home() -> None:
    for name in gkafka.kafka.__all__:
        found = getattr(gkafka.kafka, name)
        home = importlib.import_module(found.__module__)
        assert getattr(home, found.__name__) is found, name
    assert set(gkafka.kafka.__all__) <= set(dir(gkafka.kafka))


def test_the_modules_that_import_kafka_brings_along_are_its_attributes() -> None:
    here = {module.name for module in pkgutil.iter_modules(gkafka.kafka.__path__)}
    assert here <= set(dir(gkafka.kafka))
    for name in here:
        assert getattr(gkafka.kafka, name).__name__ == f"gkafka.kafka.{name}"


def test_importing_the_two_clients_loads_no_engine_and_nothing_of_tls_http_or_greenlets() -> None:
    engines = ("gkafka.consumer", "gkafka.nativeconsumer", "gkafka.nativeproducer", "gkafka.membership", "gkafka.core.transaction")
    heavy = ("ssl", "http", "email", "urllib.request", "asyncio", "subprocess", "gevent", "kazoo", "numpy", "pyarrow", "lz4", "zstandard")
    out = run_script(f"""
        import sys
        from gkafka.kafka import KafkaConsumer, KafkaProducer
        print([name for name in {(*engines, *heavy)} if name in sys.modules])
    """)
    assert out.strip() == "[]"


def test_a_name_that_is_not_there_is_told() -> None:
    with pytest.raises(AttributeError, match=r"module 'gkafka\.kafka' has no attribute 'KafkaConsumers'"):
        gkafka.kafka.KafkaConsumers  # noqa: B018
    with pytest.raises(ImportError, match="KafkaConsumers"):
        importlib.import_module("gkafka.kafka.KafkaConsumers")


def test_small_types_are_pairs_as_1_4_documents_them_with_what_newer_versions_have_beside() -> None:
    offset, metadata = committed = OffsetAndMetadata(5, "note", 3)
    assert (offset, metadata, committed.leader_epoch) == (5, "note", 3)
    position, timestamp = found = OffsetAndTimestamp(5, 1000, 3)
    assert (position, timestamp, found.leader_epoch) == (5, 1000, 3)
    assert OffsetAndTimestamp(5, 1000) == (5, 1000)
    for one in (committed, found):
        again = pickle.loads(pickle.dumps(one))
        assert (again, again.leader_epoch, type(again)) == (one, 3, type(one))
    assert TopicPartitionReplica("t", 0, broker_id=1) == ("t", 0, 1)


LEFT_OUT = (
    "BrokerConnection",
    "RoundRobinPartitioner",
    "HashedPartitioner",
    "create_message",
    "create_gzip_message",
    "create_snappy_message",
)


def test_what_1_4_exports_is_here_or_the_page_says_that_it_is_left_out() -> None:
    """kafka.__all__ of 1.4.7."""
    for name in (
        *("KafkaAdminClient", "KafkaConsumer", "KafkaProducer", "KafkaClient", "SimpleClient", "SimpleProducer", "KeyedProducer"),
        *("SimpleConsumer", "MultiProcessConsumer", "ConsumerRebalanceListener"),
    ):
        assert isinstance(getattr(gkafka.kafka, name), type)
    page = PAGE.read_text(encoding="utf-8")
    for name in LEFT_OUT:
        assert f"`kafka.{name}`" in page
        assert not hasattr(gkafka.kafka, name)


def test_common_has_the_errors_and_the_small_types() -> None:
    from gkafka.kafka import common, errors, legacy

    assert common.TopicPartition is gkafka.kafka.TopicPartition
    assert common.OffsetAndMessage is legacy.OffsetAndMessage
    assert common.NotLeaderForPartitionError is errors.for_code(6)
    assert common.kafka_errors is errors.kafka_errors
    assert {"KafkaError", "LeaderNotAvailableError", "OffsetAndMetadata", "check_error"} <= set(common.__all__) & set(dir(common))
    assert [name for name in common.__all__ if not hasattr(common, name)] == []
    with pytest.raises(AttributeError, match=r"module 'gkafka\.kafka\.common' has no attribute 'BrokerMetadata'"):
        common.BrokerMetadata  # noqa: B018


def test_0_9s_common_has_every_error_of_it() -> None:
    from gkafka.kafka.legacy import common

    for code, name in enumerate(
        (
            *("OffsetOutOfRangeError", "InvalidMessageError", "UnknownTopicOrPartitionError", "InvalidFetchRequestError"),
            *("LeaderNotAvailableError", "NotLeaderForPartitionError", "RequestTimedOutError", "BrokerNotAvailableError"),
            *("ReplicaNotAvailableError", "MessageSizeTooLargeError", "StaleControllerEpochError", "OffsetMetadataTooLargeError"),
            *("StaleLeaderEpochCodeError", "OffsetsLoadInProgressCode", "ConsumerCoordinatorNotAvailableCode"),
            "NotCoordinatorForConsumerCode",
        ),
        1,
    ):
        assert getattr(common, name) is common.kafka_errors[code]
    for name in (
        *("BrokerResponseError", "UnknownError", "KafkaUnavailableError", "KafkaTimeoutError", "FailedPayloadsError", "ConnectionError"),
        *("BufferUnderflowError", "ChecksumError", "ConsumerFetchSizeTooSmall", "ConsumerNoMoreData", "ConsumerTimeout", "ProtocolError"),
        *("UnsupportedCodecError", "KafkaConfigurationError", "AsyncProducerQueueFull"),
    ):
        assert issubclass(getattr(common, name), common.KafkaError)


@pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")  # of kafka-python's tables
@pytest.mark.parametrize("kind", ["KafkaConsumer", "KafkaProducer", "KafkaAdminClient"])
def test_options_of_newer_versions_are_there_or_refused_as_the_page_says(kind: str) -> None:
    there = importlib.import_module("kafka")
    missing = set(getattr(there, kind).DEFAULT_CONFIG) - set(getattr(gkafka.kafka, kind).DEFAULT_CONFIG)
    page = PAGE.read_text(encoding="utf-8")
    for option in missing:
        assert f"`{option}`" in page, option
        with pytest.raises(KafkaConfigurationError, match=f"there is no option '{option}': .") as refused:
            getattr(gkafka.kafka, kind)(**{option: 1})
        assert "did you mean" not in str(refused.value)


@pytest.mark.parametrize("kind", ["KafkaConsumer", "KafkaProducer", "KafkaAdminClient"])
@pytest.mark.parametrize(
    "option", ["connections_max_idle_ms", "sock_chunk_bytes", "sock_chunk_buffer_count", "legacy_iterator", "bootstrap_topics_filter"]
)
def test_options_of_1_4_that_do_nothing_here_say_why_and_not_the_name_of_another(kind: str, option: str) -> None:
    """connections_max_idle_ms=540000 asked whether reconnect_backoff_max_ms was meant: that would have been nine minutes before a new attempt."""
    page = PAGE.read_text(encoding="utf-8")
    assert f"`{option}`" in page
    with pytest.raises(KafkaConfigurationError, match=f"there is no option '{option}': .*: leave it out$"):
        getattr(gkafka.kafka, kind)(**{option: 540000})
