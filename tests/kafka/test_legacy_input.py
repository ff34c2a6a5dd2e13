"""What gkafka.kafka.legacy does with arguments that it cannot use: an error that names them as they are called there, never by gkafka's own names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from gkafka.exceptions import KafkaException
from gkafka.kafka.client_async import KafkaClient as ProbingClient
from gkafka.kafka.errors import KafkaConfigurationError, NoBrokersAvailable, WrongTypeError
from gkafka.kafka.legacy import (
    KafkaClient,
    KafkaConsumer,
    KafkaMessage,
    KeyedProducer,
    MultiProcessConsumer,
    SimpleConsumer,
    SimpleProducer,
)
from gkafka.kafka.legacy.client import OPTIONS
from gkafka.testing import MockCluster
from tests.kit.ports import refused_port

BAD: list[Any] = [-1, "bad", b"x", [], {}, float("nan"), None]
NATIVE = (
    *(
        "sasl_username",
        "sasl_password",
        "auto_create_topics",
        "broker_version",
        "offsets_channel_socket_timeout_ms",
        "fetch_error_backoff_ms",
    ),
    *("ack_timeout_ms", "compression_level", "compression=", "acks=", "retries=", "retry_backoff_ms", "linger_ms", "request_timeout_ms"),
    *("every_n=", "every_ms=", "max_in_flight_per_connection"),
)
OF_CONSUMERS = ("auto_commit", "auto_commit_every_n", "auto_commit_every_t")
OF_SIMPLE = ("partitions", "fetch_size_bytes", "buffer_size", "max_buffer_size", "iter_timeout", *OF_CONSUMERS)
OF_PROCESSES = ("num_procs", "partitions_per_proc", *OF_CONSUMERS)
OF_PRODUCERS = (
    *("req_acks", "ack_timeout", "codec", "codec_compresslevel", "sync_fail_on_error", "async_send", "batch_send", "batch_send_every_n"),
    *("batch_send_every_t", "async_retry_limit", "async_retry_backoff_ms", "async_stop_timeout"),
)
ANY_VALUE = (
    "client_id",
    "handler",
    "auto_offset_reset",
    "socket_options",
    *(name for name in OPTIONS if name.startswith(("ssl_", "sasl_", "allow_un", "allow_pl"))),
)


def natives_in(text: str) -> list[str]:
    return [name for name in NATIVE if re.search(rf"(?<!\w){name}" + ("" if name.endswith("=") else r"\b"), text)]


@pytest.fixture
def client(cluster: MockCluster, handler: str) -> Iterator[KafkaClient]:
    with KafkaClient(cluster.bootstrap, handler=handler) as made:
        yield made


def told(make: Any, name: str, more: dict[str, Any]) -> None:
    """Of each bad value an error says which argument it is, by its own name, or there is none."""
    texts = []
    for bad in BAD:
        try:
            made = make(**{**more, name: bad})
        except NoBrokersAvailable:  # it was taken
            pass
        except KafkaException as exc:
            texts.append(str(exc))
        else:
            (made.stop if hasattr(made, "stop") else made.close)()
    assert len(texts) >= 3, texts
    for text in texts:
        assert re.search(rf"\b{name}\b", text), text
        assert not natives_in(text), text


@pytest.mark.parametrize(
    "name", [name for name in (*OPTIONS, "hosts", "timeout") if name not in ANY_VALUE and not name.startswith("metric")]
)
def test_a_clients_bad_options_are_told_by_their_names(name: str) -> None:
    told(KafkaClient, name, {"hosts": f"127.0.0.1:{refused_port()}", "timeout": 0.3})


@pytest.mark.parametrize(
    "name", [name for name in KafkaConsumer.DEFAULT_CONFIG if name not in (*ANY_VALUE, "metadata_broker_list", "bootstrap_servers")]
)
def test_a_kafka_consumers_bad_options_are_told_by_their_names(name: str) -> None:
    told(
        KafkaConsumer,
        name,
        {"metadata_broker_list": f"127.0.0.1:{refused_port()}", "group_id": "g", "socket_timeout_ms": 300, "auto_commit_enable": True},
    )


@pytest.mark.parametrize("name", ["metadata_broker_list", "bootstrap_servers"])
def test_a_kafka_consumers_brokers_are_told_by_the_name_that_they_were_given_by(name: str) -> None:
    told(KafkaConsumer, name, {"socket_timeout_ms": 300})
    with pytest.raises(NoBrokersAvailable, match=rf"check {name}=, the port"):
        KafkaConsumer(**{name: f"127.0.0.1:{refused_port()}"})
    with pytest.raises(NoBrokersAvailable, match=r"check hosts=, the port"):
        KafkaClient(f"127.0.0.1:{refused_port()}")


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *((SimpleProducer, name) for name in (*OF_PRODUCERS, "random_start")),
        *((KeyedProducer, name) for name in (*OF_PRODUCERS, "partitioner")),
    ],
)
@pytest.mark.parametrize("async_send", [False, True])
def test_a_producers_bad_arguments_are_told_by_their_names(client: KafkaClient, kind: Any, name: str, async_send: bool) -> None:
    def make(**given: Any) -> Any:
        return kind(client, **given)

    told(make, name, {"async_send": async_send})


@pytest.mark.parametrize(
    ("kind", "name"), [*((SimpleConsumer, name) for name in OF_SIMPLE), *((MultiProcessConsumer, name) for name in OF_PROCESSES)]
)
@pytest.mark.parametrize("group", ["g", None])
def test_a_consumers_bad_arguments_are_told_by_their_names(
    client: KafkaClient, monkeypatch: pytest.MonkeyPatch, kind: Any, name: str, group: Any
) -> None:
    monkeypatch.setattr(MultiProcessConsumer, "_begin", lambda self: None)  # what is right starts no process

    def make(**given: Any) -> Any:
        return kind(client, group, "t", **given)

    told(make, name, {})


def test_what_a_client_has_under_another_name_is_told(cluster: MockCluster) -> None:
    """It went to the brokers of bootstrap_servers, whatever hosts were given."""
    for options, said in (
        ({"bootstrap_servers": cluster.bootstrap}, "'bootstrap_servers': it is hosts here"),
        ({"request_timeout_ms": 5}, "'request_timeout_ms': it is timeout here, in seconds"),
        ({"retry_backoff_ms": 5}, "'retry_backoff_ms': producers have async_retry_backoff_ms"),
    ):
        with pytest.raises(KafkaConfigurationError, match=said):
            KafkaClient("x", **options)
    with pytest.raises(KafkaConfigurationError, match=r"^timeout=1e\+20: must be 2147483 seconds or less"):
        KafkaClient("x", timeout=1e20)
    with pytest.raises(KafkaConfigurationError, match="there is no option 'retry_backoff_ms'"):
        ProbingClient(retry_backoff_ms=5)  # it tries nothing again


@pytest.mark.parametrize(
    ("kind", "arguments", "name", "near"),
    [
        (SimpleProducer, (), "batch_sen", "batch_send"),
        (SimpleProducer, (), "random_stat", "random_start"),
        (KeyedProducer, (), "partitoner", "partitioner"),
        (KeyedProducer, (), "asynch", "async"),
        (SimpleConsumer, ("g", "t"), "auto_comit", "auto_commit"),
        (MultiProcessConsumer, ("g", "t"), "num_proc", "num_procs"),
        (SimpleProducer, (), "zzz", None),
        (SimpleConsumer, ("g", "t"), "linger_ms", None),
    ],
)
def test_a_keyword_that_there_is_not_is_told_with_the_nearest(
    kind: Any, arguments: tuple[str, ...], name: str, near: str | None, client: KafkaClient
) -> None:
    hint = "" if near is None else f"; did you mean '{near}'?"
    with pytest.raises(KafkaConfigurationError, match=re.escape(f"{kind.__name__}(): there is no option '{name}'{hint}") + "$") as caught:
        kind(client, *arguments, **{name: "geheim"})
    assert isinstance(caught.value, TypeError)


def test_arguments_of_calls_that_cannot_be_used_are_named(client: KafkaClient, cluster: MockCluster, handler: str) -> None:
    with SimpleConsumer(client, "g", "t") as simple, pytest.raises(KafkaConfigurationError, match="get_partition_info=5"):
        simple.get_message(block=False, get_partition_info=5)  # type: ignore[arg-type]
    with KafkaConsumer("t", metadata_broker_list=cluster.bootstrap, handler=handler) as consumer:
        for bad in (5, "x", None, ("t", 0, 1)):
            with pytest.raises(WrongTypeError, match=r"message=.*: must be a message"):
                consumer.task_done(bad)
        assert not consumer.task_done(KafkaMessage("another", 0, 1, None, b""))
