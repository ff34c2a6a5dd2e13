"""No property of librdkafka or of Java's clients is unknown: it is an option, is passed over with the reason, or is refused with the next step."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gkafka.cli.connection import CONSUMER, MEMBER, POSITION, PRODUCER
from gkafka.cli.settings import settle
from gkafka.clientproperties import hide_properties, read_properties
from gkafka.exceptions import ConfigurationError
from gkafka.spark.options import parse
from gkafka.spark.sinkoptions import parse_sink

NAMES = json.loads(Path(__file__).with_name("client_names.json").read_text())
ALL = sorted(
    {*NAMES["librdkafka"]["names"], *(name for kind in ("client", "producer", "consumer", "admin") for name in NAMES["java"][kind])}
)
VALUES = ("x", "1", "true")
UNKNOWN = ("unknown", "did you mean 'kafka.", "no option's name")


def said(take: object, *given: object, **more: object) -> str:
    try:
        take(*given, **more)  # type: ignore[operator]
    except ConfigurationError as error:
        return str(error)
    return ""


def test_the_lists_are_whole() -> None:
    assert len(NAMES["librdkafka"]["names"]) > 180
    assert [len(NAMES["java"][kind]) > least for kind, least in (("client", 80), ("producer", 40), ("consumer", 40), ("admin", 20))] == [
        True
    ] * 4


def test_kafka_tools_knows_each_name_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    for name in ALL:
        for value in VALUES:
            file.write_text(f"{name}={value}\n")
            for uses in ((), (PRODUCER,), (CONSUMER, POSITION, MEMBER)):
                text = said(settle, {"config": str(file)}, uses=uses)
                assert not any(word in text for word in UNKNOWN), text


def test_from_properties_knows_each_name() -> None:
    for name in ALL:
        for value in (*VALUES, 1, True):
            text = said(read_properties, hide_properties({name: value}))
            assert not any(word in text for word in UNKNOWN), text


@pytest.mark.parametrize("take", [parse, parse_sink])
def test_spark_knows_each_name(take: object) -> None:
    for name in ALL:
        for value in VALUES:
            given = {"kafka.bootstrap.servers": "h:1", **({"subscribe": "t"} if take is parse else {}), f"kafka.{name}": value}
            text = said(take, given)
            assert not any(word in text for word in UNKNOWN), text
