"""The page for those who come from confluent-kafka says of its options and methods what is so: both sides are asked."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from gkafka import KafkaClient
from gkafka.config import ClientConfig, NativeConsumerConfig, ProducerConfig, build
from gkafka.consumer import Consumer
from gkafka.core.txnrequests import GroupMetadata
from gkafka.exceptions import ConfigurationError
from gkafka.nativeproducer import NativeProducer

PAGE = (Path(__file__).resolve().parent.parent.parent / "docs" / "migrating-from-confluent-kafka.md").read_text(encoding="utf-8")
CONFIGS: tuple[type[Any], ...] = (ClientConfig, ProducerConfig, NativeConsumerConfig)
FIELDS = {f.name: f for config in CONFIGS for f in dataclasses.fields(config)}
VALUES = {
    "acks": "all",
    "compression.type": "gzip",
    "enable.idempotence": True,
    "transactional.id": "x",
    "auto.offset.reset": "latest",
    "group.instance.id": "x",
    "group.protocol": "classic",
    "group.remote.assignor": "uniform",
    "isolation.level": "read_committed",
    "client.rack": "a",
    "security.protocol": "SASL_SSL",
    "client.id": "x",
    "sasl.mechanism": "PLAIN",
    "sasl.mechanisms": "PLAIN",
    "sasl.username": "x",
    "sasl.password": "x",
    "fetch.max.bytes": 52428800,
    "max.poll.interval.ms": 300000,
    "reconnect.backoff.ms": 50,
}
THEIRS = {"group.id": "g", "bootstrap.servers": "", "ssl.endpoint.identification.algorithm": "https", "log_level": 0}


def rows(title: str) -> list[tuple[str, str]]:
    """The first two cells of each row of the table with this title."""
    table = PAGE[PAGE.index(title) :].split("\n\n")[0]
    return [(cells[1].strip(), cells[2].strip()) for line in table.splitlines()[2:] if (cells := line.split("|"))]


OPTIONS = rows("| confluent-kafka | gkafka |")
NAMES = rows("| confluent_kafka | gkafka |")
SAME = [name for left, right in OPTIONS if right.startswith("the same") for name in re.findall(r"`([a-z.]+)`", left)]


def taken_by(name: str) -> list[type[Any]]:
    """The dataclasses of options that have this name, in its spelling with dots."""
    found = []
    for config in CONFIGS:
        spellings = {s for f in dataclasses.fields(config) for s in (f.name.replace("_", "."), *f.metadata["aliases"])}
        found += [config] if name in spellings else []
    return found


def test_every_option_on_the_left_is_one_of_confluent_kafka() -> None:
    names = {name for left, _ in OPTIONS for name in re.findall(r"`([a-z.]+)(?:=\w+)?`", left)}
    assert len(names) > 40
    assert {name for name in names if not is_known_there(name)} == set()
    assert not is_known_there("no.such.name")


def is_known_there(name: str) -> bool:
    """Has librdkafka this property? It says so before it looks at the value."""
    try:
        confluent_kafka.Consumer({**THEIRS, name: "?"}).close()
    except confluent_kafka.KafkaException as exc:
        return "No such configuration property" not in str(exc)
    return True


@pytest.mark.parametrize("name", SAME)
def test_an_option_that_is_the_same_is_taken_by_that_name_and_value(name: str) -> None:
    configs = taken_by(name)
    assert configs, name
    for config in configs:
        build(config, {name: VALUES.get(name, 12345)}, where="here")
    value = VALUES.get(name, 12345)
    login = {"sasl.mechanism": "PLAIN", "sasl.username": "x", "sasl.password": "x"} if name == "security.protocol" else {}
    confluent_kafka.Consumer({**login, name: value, **THEIRS}).close()


def test_every_option_on_the_right_is_one_of_gkafka() -> None:
    named = {name for _, right in OPTIONS for name in re.findall(r"`([a-z_]+)(?:=[^`]*)?`", right)}
    assert {name for name in named if name not in FIELDS} == set()
    assert len(named) > 15


def test_what_is_not_the_same_is_not_said_to_be() -> None:
    for config, given in (
        (NativeConsumerConfig, {"partition.assignment.strategy": "range,roundrobin"}),
        (NativeConsumerConfig, {"enable.auto.commit": True}),
        (ClientConfig, {"security.protocol": "sasl_ssl"}),
        (ProducerConfig, {"message.max.bytes": 1000000}),
    ):
        with pytest.raises(ConfigurationError):
            build(config, given, where="here")
        assert not set(given) & (set(SAME) - {"security.protocol"})


def test_defaults_that_are_told_are_those() -> None:
    told = dict(re.findall(r"`([a-z_]+)` ([\d.]+(?: MiB)?) \(", PAGE))
    assert len(told) == 7
    for name, text in told.items():
        assert FIELDS[name].default == (int(text.split()[0]) << 20 if "MiB" in text else int(text)), name
    assert FIELDS["assignors"].default == ("cooperative-sticky",)


def test_every_method_that_is_named_is_there() -> None:
    theirs = {"producer": confluent_kafka.Producer, "consumer": confluent_kafka.Consumer}
    ours = {"producer": NativeProducer, "consumer": Consumer, "client": KafkaClient}
    found = 0
    for left, right in NAMES:
        for cell, classes in ((left, theirs), (right, ours)):
            for who, method in re.findall(r"`(producer|consumer|client)\.(\w+)\(", cell):
                found += 1
                assert hasattr(classes[who], method), (who, method)
    assert found > 30
    assert "member_id" in GroupMetadata.__annotations__
