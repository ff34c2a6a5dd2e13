"""Calls and options of other clients, on an API that calls them otherwise: the error names what it has."""

from __future__ import annotations

import importlib
import re
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.config import ClientConfig, ConsumerConfig, NativeConsumerConfig, ProducerConfig, keywords_of
from gkafka.exceptions import UnknownOptionError
from gkafka.othernames import CALLS, NO_OPTION, SAME
from gkafka.producer import Producer
from gkafka.records import Delivery
from gkafka.simpleconsumer import SimpleConsumer
from gkafka.testing import MockCluster
from tests.public.aids import error_of


def class_of(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


@pytest.mark.parametrize("path", CALLS)
def test_a_call_of_another_client_is_told_by_what_it_is_here(path: str) -> None:
    owner = class_of(path)
    for name, ours in CALLS[path].items():
        assert not hasattr(owner, name), f"{path} has {name}, and needs no hint"
        thing = object.__new__(type("Whole", (owner,), dict.fromkeys(getattr(owner, "__abstractmethods__", ()))))
        with pytest.raises(AttributeError, match=re.escape(f"{owner.__name__} has no {name}(): ")) as caught:
            getattr(thing, name)
        assert ours in str(caught.value)


@pytest.mark.parametrize("path", CALLS)
def test_what_is_named_is_there(path: str) -> None:
    owner = class_of(path)
    for name, ours in CALLS[path].items():
        first = re.match(r"(?:client\.|topics\[name\]\.|topic\.|a call of client\.)?(\w+)", ours)
        assert first is not None
        places = [owner, KafkaClient, class_of("gkafka.topic.Topic"), class_of("gkafka.consumer.Consumer"), Delivery]
        assert any(hasattr(place, first[1]) for place in places) or ours.startswith("it is not needed"), (name, ours)


def test_a_class_that_has_the_call_gives_it() -> None:
    class Mine(Producer):
        def send(self) -> int:
            return 1

    assert object.__new__(Mine).send() == 1
    assert not hasattr(object.__new__(Mine), "flush")
    assert "flush" not in dir(object.__new__(Mine))
    with pytest.raises(AttributeError, match="'Mine' object has no attribute 'nothing'"):
        _ = object.__new__(Mine).nothing


@pytest.fixture
def calls(cluster: MockCluster) -> Any:
    with KafkaClient(cluster.bootstrap, handler="threading") as client:
        topic = client.topics["t"]
        yield {
            "client": lambda **given: KafkaClient(cluster.bootstrap, **given),
            "producer": client.get_producer,
            "consumer": client.get_consumer,
            "pykafka's producer": topic.get_producer,
            "pykafka's consumer": topic.get_simple_consumer,
        }


@pytest.mark.parametrize(
    ("call", "option", "says"),
    [
        ("producer", "delivery_reports", "on_delivery=callable gets each outcome"),
        ("producer", "sync", r"result\(\) of what produce\(\) returns waits"),
        ("producer", "max_retries", "retries are the tries after the first"),
        ("producer", "bootstrap_servers", r"KafkaClient\(hosts=...\) names the brokers"),
        ("client", "bootstrap_servers", "it is hosts here"),
        ("producer", "client_id", r"it is an option of KafkaClient\(\)"),
        ("producer", "auto_offset_reset", r"it is an option of get_consumer\(\)"),
        ("consumer", "enable_auto_commit", "it is auto_commit here"),
        ("consumer", "auto_commit_enable", "it is auto_commit here"),
        ("consumer", "consumer_timeout_ms", "it is consume_timeout_ms here"),
        ("consumer", "max_poll_records", r"consume_batch\(max_messages\)"),
        ("consumer", "deserializer", "give key_deserializer and value_deserializer"),
        ("consumer", "managed", "with group=... the group's coordinator keeps the members"),
        ("client", "acks", r"it is an option of get_producer\(\)"),
        ("pykafka's consumer", "group_id", "it is consumer_group here"),
        ("pykafka's consumer", "enable_auto_commit", "it is auto_commit_enable here"),
        ("pykafka's consumer", "value_deserializer", r"give deserializer=, a callable"),
        ("producer", "linger", "did you mean 'linger_ms'"),
        ("consumer", "grop", "did you mean 'group'"),
    ],
)
def test_an_option_of_another_call_or_client_is_told_by_what_it_is_here(calls: Any, call: str, option: str, says: str) -> None:
    error = error_of(lambda: calls[call](**{option: "x"}))
    assert isinstance(error, UnknownOptionError)
    assert re.search(rf"unknown option '{option}'; .*{says}", str(error)), error


def test_each_name_of_an_option_stands_for_one_that_there_is() -> None:
    known = {
        name for config in (ClientConfig, ProducerConfig, ConsumerConfig, NativeConsumerConfig) for name in config.__dataclass_fields__
    }
    known |= {*keywords_of(Producer), *keywords_of(SimpleConsumer), "hosts", "group"}
    assert [names for names in SAME if names[0] not in known] == []
    assert set(NO_OPTION) & {name for names in SAME for name in names} == set()


def test_a_consumer_to_which_nothing_was_assigned_says_so_instead_of_waiting(cluster: MockCluster) -> None:
    with KafkaClient(cluster.bootstrap, handler="threading") as client:
        consumer = client.get_consumer()
        for call in (consumer.consume, consumer.consume_batch, lambda: next(iter(consumer))):
            assert "nothing is read: call assign() first, or give topics to client.get_consumer()" in str(error_of(call))
        consumer.assign([])
        assert consumer.consume_batch(timeout_ms=0) == []
