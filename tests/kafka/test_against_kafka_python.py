"""Each public name, option and argument of the kafka-python that is installed is here, or docs/kafka-python.md says why not."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import gkafka.kafka
from gkafka.kafka import ConsumerGroupMetadata, DefaultSerializer, IsolationLevel, JsonSerializer, OffsetSpec, TopicPartition
from gkafka.kafka.errors import KafkaTimeoutError, WrongTypeError
from gkafka.testing import Delay, MockCluster
from tests.kafka.conftest import Make
from tests.kafka.consuming import FIRST, QUICK, consume, put

theirs = pytest.importorskip("kafka")
PAGE = (Path(__file__).resolve().parents[2] / "docs" / "kafka-python.md").read_text(encoding="utf-8")
CLASSES = ("KafkaConsumer", "KafkaProducer", "KafkaAdminClient", "ConsumerRebalanceListener")
OTHERS = ("Serializer", "Deserializer", "OffsetAndMetadata", "TopicPartition", "TopicPartitionReplica", "OffsetSpec", "IsolationLevel")
pytestmark = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")  # of kafka-python's tables


def public(of: Any) -> set[str]:
    return {name for name in dir(of) if not name.startswith("_") and not inspect.ismodule(getattr(of, name))}


def differences() -> Iterator[str]:
    """Names that are there and not here."""
    yield from set(theirs.__all__) - set(gkafka.kafka.__all__)
    yield from public(importlib.import_module("kafka.admin")) - public(importlib.import_module("gkafka.kafka.admin"))
    yield from public(importlib.import_module("kafka.errors")) - public(importlib.import_module("gkafka.kafka.errors"))
    for name in (*CLASSES, *OTHERS):
        there, here = getattr(theirs, name), getattr(gkafka.kafka, name)
        yield from public(there) - public(here)
        yield from set(getattr(there, "DEFAULT_CONFIG", ())) - set(getattr(here, "DEFAULT_CONFIG", ()))
        for method, function in inspect.getmembers(there, inspect.isfunction):
            if not method.startswith("_") and hasattr(here, method) and name in CLASSES:
                yield from set(inspect.signature(function).parameters) - set(inspect.signature(getattr(here, method)).parameters)


def defaults() -> Iterator[str]:
    """Options whose default is another one here."""
    for name in CLASSES[:3]:
        there, here = getattr(theirs, name).DEFAULT_CONFIG, getattr(gkafka.kafka, name).DEFAULT_CONFIG
        for option in there.keys() & here.keys():
            if isinstance(there[option], (int, float, str, bool, type(None))) and there[option] != here[option]:
                yield option


def test_what_is_there_and_not_here_is_on_the_page() -> None:
    found = set(differences())
    assert {"AsyncConsumerRebalanceListener", "bootstrap", "list_config_resources", "socks5_proxy"} <= found
    assert not [name for name in sorted(found) if name not in PAGE]


def test_a_default_that_is_another_is_on_the_page() -> None:
    found = set(defaults())
    assert {"acks", "session_timeout_ms"} <= found
    assert not [name for name in sorted(found) if f"`{name}`" not in PAGE and name != "client_id"]


def test_the_small_names_of_newer_versions_mean_the_same(consumer: Make, cluster: MockCluster) -> None:
    for mine in (OffsetSpec, IsolationLevel):
        assert {one.name: one.value for one in mine} == {one.name: one.value for one in getattr(theirs, mine.__name__)}
    group = consumer(cluster, group_id="g").group_metadata()
    assert isinstance(group, ConsumerGroupMetadata)
    assert [*ConsumerGroupMetadata._fields, "state"] == list(inspect.signature(theirs.ConsumerGroupMetadata).parameters)
    assert "without `state`" in PAGE


def test_serializers_of_newer_versions(consumer: Make, producer: Make, cluster: MockCluster) -> None:
    sending = producer(cluster, key_serializer=DefaultSerializer(), value_serializer=JsonSerializer())
    for key, value in (("k", {"a": [1, None]}), (b"\xff", "text"), (None, 5)):
        sending.send("t", value, key).get(60)
    reading = consumer(cluster, "t", **QUICK, value_deserializer=JsonSerializer())
    assert [(r.key, r.value) for r in consume(reading, 3)] == [(b"k", {"a": [1, None]}), (b"\xff", "text"), (None, 5)]
    assert DefaultSerializer("utf-16").deserialize("t", "x".encode("utf-16")) == "x"
    assert JsonSerializer().serialize("t", None) is JsonSerializer().deserialize("t", None) is None
    with pytest.raises(TypeError, match="a float for topic 't': must be a text or bytes"):
        sending.send("t", 5, 1.5)


def test_a_serializer_that_wants_headers_is_refused(consumer: Make, producer: Make, cluster: MockCluster) -> None:
    with pytest.raises(WrongTypeError, match=r"its serialize\(\) must take \(topic, value\)"):
        producer(cluster, value_serializer=theirs.JsonSerializer())
    with pytest.raises(WrongTypeError, match=r"its deserialize\(\) must take \(topic, value\)"):
        consumer(cluster, key_deserializer=theirs.JsonSerializer())


@pytest.mark.parametrize("call", ["beginning_offsets", "end_offsets", "offsets_for_times"])
def test_look_ups_take_a_time_of_their_own(consumer: Make, cluster: MockCluster, call: str) -> None:
    put(cluster, b"x")
    reading = consumer(cluster)
    given: Any = {FIRST: 1} if call == "offsets_for_times" else [FIRST]
    look_up: Callable[..., dict[TopicPartition, Any]] = getattr(reading, call)
    assert look_up(given, timeout_ms=60_000) == look_up(given)
    cluster.on("ListOffsets", Delay(3600), times=None)
    with pytest.raises(KafkaTimeoutError):
        look_up(given, timeout_ms=200)


def test_send_offsets_to_transaction_takes_the_group_by_either_name(producer: Make, cluster: MockCluster) -> None:
    sending = producer(cluster, transactional_id="x")
    sending.init_transactions()
    for how in ({"consumer_group_id": "one"}, {"group_metadata": ConsumerGroupMetadata("two")}):
        sending.begin_transaction()
        sending.send_offsets_to_transaction({FIRST: gkafka.kafka.OffsetAndMetadata(3, "")}, **how)
        sending.commit_transaction()
    assert [cluster.committed(group)["t", 0].offset for group in ("one", "two")] == [3, 3]
    sending.begin_transaction()
    for wrong in ({}, {"consumer_group_id": "one", "group_metadata": "two"}):
        with pytest.raises(WrongTypeError, match="give one of them"):
            sending.send_offsets_to_transaction({}, **wrong)
