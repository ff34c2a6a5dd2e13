"""Error texts of KafkaConsumer and KafkaProducer name options as kafka-python does, never as gkafka's native ones are called."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gkafka import KafkaClient as NativeClient
from gkafka.exceptions import KafkaException, ProtocolError, causes
from gkafka.kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from gkafka.kafka.client_async import KafkaClient
from gkafka.kafka.errors import KafkaConfigurationError, KafkaTimeoutError, NoBrokersAvailable
from gkafka.kafka.options import retold
from gkafka.testing import Delay, MockCluster
from tests.kafka.consuming import QUICK, consume, put
from tests.kit.ports import refused_port
from tests.net.servers import serve

BAD: list[Any] = [-1, "bad", b"x", object, [], {}, float("nan")]
NATIVE = (
    *("sasl_username", "sasl_password", "auto_create_topics", "broker_version", "socket_timeout_ms", "offsets_channel_socket_timeout_ms"),
    *("fetch_wait_max_ms", "fetch_message_max_bytes", "fetch_error_backoff_ms", "buffer_bytes", "max_request_bytes", "batch_bytes"),
    *("hosts=", "assignors=", "compression=", "max_in_flight=", "auto_commit=", "group="),
)
UNBOUND = (
    "auto_offset_reset",
    "client_id",
    "group_id",
    "handler",
    "socket_options",
    "bootstrap_servers",
    "allow_plaintext_credentials",
    "allow_unverified_tls",
)
OPTIONS = [(kind, name) for kind in (KafkaConsumer, KafkaProducer) for name in kind.DEFAULT_CONFIG if name not in UNBOUND]


def given(kind: Any, name: str, value: Any) -> dict[str, Any]:
    """Options with which that one counts, and no broker is asked."""
    options: dict[str, Any] = {"bootstrap_servers": "127.0.0.1:1", "api_version": (2, 8)}
    if kind is KafkaConsumer:
        options["group_id"] = "g"
    if name.startswith("sasl_"):
        options |= {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": "u",
            "sasl_plain_password": "p",
        }
    if name.startswith("ssl_"):
        options["security_protocol"] = "SSL"
    return {**options, name: value}


@pytest.mark.parametrize(("kind", "name"), OPTIONS, ids=lambda one: one if isinstance(one, str) else one.__name__)
def test_a_bad_value_is_told_by_the_options_own_name(kind: Any, name: str) -> None:
    told = []
    for bad in BAD:
        try:
            kind(**given(kind, name, bad)).close()
        except KafkaException as exc:
            told.append(str(exc))
    for text in told:
        assert re.search(rf"\b{name}\b", text), text
        assert not [native for native in NATIVE if re.search(rf"(?<!\w){native}" + ("" if native.endswith("=") else r"\b"), text)], text
    assert told, "no bad value is refused"


@pytest.mark.parametrize("kind", [KafkaConsumer, KafkaProducer, KafkaClient])
def test_hosts_are_bootstrap_servers(kind: Any) -> None:
    for bad in ("host:port", 5, "", ["h:70000"]):
        with pytest.raises(KafkaConfigurationError, match=r"^bootstrap_servers[=:]"):
            kind(bootstrap_servers=bad)
    if kind is not KafkaClient:
        with pytest.raises(NoBrokersAvailable, match=r"check bootstrap_servers=, the port"):
            kind(bootstrap_servers=f"127.0.0.1:{refused_port()}")


@pytest.mark.parametrize("kind", [KafkaConsumer, KafkaProducer, KafkaAdminClient])
def test_brokers_that_cannot_be_used_are_no_brokers_here_and_the_reason_is_the_cause(kind: Any, handler: str) -> None:
    """kafka-python has one name for it."""
    with serve(lambda conn: (conn.recv(1000), conn.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"))) as port:
        for protocol in ("PLAINTEXT", "SSL"):
            with pytest.raises(NoBrokersAvailable, match=r"no broker can be used: .*a web server answers there") as caught:
                kind(bootstrap_servers=f"127.0.0.1:{port}", handler=handler, security_protocol=protocol)
            assert any(isinstance(error, ProtocolError) for error in causes(caught.value))


@pytest.mark.parametrize("kind", [KafkaConsumer, KafkaProducer])
def test_credentials_that_are_half_given_are_told(kind: Any) -> None:
    safe = {"bootstrap_servers": "127.0.0.1:1", "sasl_mechanism": "PLAIN", "security_protocol": "SASL_SSL"}
    for options, lacks in (({"sasl_plain_username": "u"}, "sasl_plain_password"), ({}, "sasl_plain_username")):
        with pytest.raises(KafkaConfigurationError, match=f"without {lacks}: give both sasl_plain_username and sasl_plain_password"):
            kind(**safe, **options)


def test_releases_before_0_8_2_are_taken_without_a_group(cluster: MockCluster) -> None:
    """Behaviour 270: (0, 8, 0) enables basic functionality, with partitions and offsets by hand."""
    for version in ((0, 8, 0), (0, 8, 1)):
        KafkaConsumer(bootstrap_servers="127.0.0.1:1", api_version=version).close()
        KafkaProducer(bootstrap_servers="127.0.0.1:1", api_version=version).close(0)
        with pytest.raises(KafkaConfigurationError, match=rf"api_version={re.escape(repr(version))} with group_id='g': .* ZooKeeper"):
            KafkaConsumer(bootstrap_servers="127.0.0.1:1", api_version=version, group_id="g")
    with pytest.raises(KafkaConfigurationError, match=r"^api_version=\(0, 7\): must be \(0, 8, 2\) or newer"):
        KafkaProducer(bootstrap_servers="127.0.0.1:1", api_version=(0, 7))


def test_only_names_of_options_are_put_in_the_others_place() -> None:
    error = KafkaException("the hosts of group g: hosts='x' and my_socket_timeout_ms, socket_timeout_ms=5", 7)
    retold(error, {"group": "group_id"})
    assert error.args == ("the hosts of group g: bootstrap_servers='x' and my_socket_timeout_ms, request_timeout_ms=5", 7)


@pytest.mark.parametrize(
    "text",
    [
        "no topic 'batch_bytes' in this cluster",
        "batch_bytes-0 offset 5: its checksum is wrong",
        "batch_bytes:0: nothing is committed",
        "group 'socket_timeout_ms' is not there",
        "logs.batch_bytes, batch_bytes.dlq and batch_bytes-copy: not there",
        "topic 'batch_bytes=5'",
    ],
)
def test_topics_and_groups_that_are_called_as_an_option_keep_their_names(text: str) -> None:
    error = KafkaException(text)
    retold(error, {"batch_bytes": "batch_size"})
    assert str(error) == text
    error = KafkaException(f"{text}; batch_bytes=5: give less than batch_bytes, or raise batch_bytes.")
    retold(error, {"batch_bytes": "batch_size"})
    assert str(error) == f"{text}; batch_size=5: give less than batch_size, or raise batch_size."


def test_names_of_options_are_looked_for_with_a_pattern_that_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"one_of_these": "that"}
    retold(KafkaException("x"), names)
    monkeypatch.setattr(re, "compile", None)
    error = KafkaException("one_of_these=1")
    retold(error, dict(names))
    assert error.args == ("that=1",)


def natives_in(error: BaseException | None) -> list[str]:
    """The native names in an error's text and in those of its causes."""
    found, names = [], (*NATIVE, "max_response_bytes", "connect_timeout_ms")
    while error is not None:
        found += [name for name in names if re.search(rf"(?<!\w){name}" + ("" if name.endswith("=") else r"\b"), str(error))]
        error = error.__cause__
    return found


def calls_of(kind: Any, client: Any) -> dict[str, Any]:
    first = TopicPartition("t", 0)
    if kind is KafkaProducer:
        return {
            "send": lambda: client.send("t", b"v"),
            "partitions_for": lambda: client.partitions_for("t"),
        }
    if kind is KafkaAdminClient:
        return {
            "list_topics": client.list_topics,
            "create_topics": lambda: client.create_topics(["t"]),
            "describe_groups": lambda: client.describe_groups(["g"]),
            "list_group_offsets": lambda: client.list_group_offsets("g"),
        }
    return {
        "topics": client.topics,
        "assign": lambda: client.assign([first]),
        "end_offsets": lambda: client.end_offsets([first]),
        "offsets_for_times": lambda: client.offsets_for_times({first: 0}),
        "committed": lambda: client.committed(first),
        "commit": lambda: client.commit({first: OffsetAndMetadata(1, "")}),
        "commit_async": lambda: client.commit_async({first: OffsetAndMetadata(1, "")}).get(60),
    }


@pytest.mark.parametrize("kind", [KafkaConsumer, KafkaProducer, KafkaAdminClient])
def test_calls_that_reach_no_broker_name_no_native_option(kind: Any, handler: str) -> None:
    group = {"group_id": "g"} if kind is KafkaConsumer else {}
    with kind(bootstrap_servers=f"127.0.0.1:{refused_port()}", api_version=(2, 8), handler=handler, **group) as client:
        for call in calls_of(kind, client).values():
            with pytest.raises(NoBrokersAvailable, match=r"check bootstrap_servers=, the port") as caught:
                call()
            assert isinstance(caught.value, KafkaTimeoutError)
            assert not natives_in(caught.value)


def test_a_text_that_nothing_encodes_is_told_with_the_apis_own_option(producer: Any, cluster: MockCluster, handler: str) -> None:
    sending = producer(cluster)
    for what in ("value", "key"):
        with pytest.raises(TypeError, match=rf"^{what} for t is a str: encode it, or set {what}_serializer$"):
            sending.send("t", **{"value": b"v", what: "a text"})
    with NativeClient(cluster.bootstrap, handler=handler) as client, client.topics["t"].get_sync_producer() as pykafkas:
        with pytest.raises(TypeError, match=r"^value for t is a str: encode it, or give a serializer$"):
            pykafkas.produce("a text")
        with pytest.raises(TypeError, match=r"^key for t is a str: encode it, or give a serializer$"):
            pykafkas.produce(b"v", partition_key="a text")


def test_a_full_buffer_is_told_by_the_producers_own_options(producer: Any, cluster: MockCluster) -> None:
    """KafkaTimeoutError, and what send() raises for what can never fit."""
    sending = producer(
        cluster, buffer_memory=40_000, max_request_size=20_000, batch_size=16_000, max_block_ms=1000, linger_ms=60_000, acks="all"
    )
    sending.send("t", b"v").get(60)
    cluster.on("Produce", Delay(10), times=None)
    with pytest.raises(KafkaTimeoutError, match=r"within max_block_ms=1000: buffer_memory=40000 is taken") as caught:
        [sending.send("t", b"x" * 9000) for _ in range(9)]
    assert not natives_in(caught.value)


def test_the_outcome_of_a_batch_that_cannot_be_sent_names_compression_type(
    producer: Any, make_cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = make_cluster(versions="2.0.0")
    with pytest.raises(KafkaException, match=r"compression_type='zstd' with .* needs brokers of Kafka 2\.1") as refused:
        producer(cluster, compression_type="zstd")
    assert not natives_in(refused.value)
    monkeypatch.setattr("gkafka.kafka.producer.kafka.check_codec", lambda *_: None)  # as if another broker had been asked, a newer one
    future = producer(cluster, compression_type="zstd").send("t", b"v")
    with pytest.raises(KafkaException, match=r"compression_type='zstd' needs brokers of Kafka 2\.1") as caught:
        future.get(60)
    assert not natives_in(caught.value)
    assert not natives_in(future.exception)


def test_a_record_that_no_answer_can_hold_names_receive_message_max_bytes(consumer: Any, cluster: MockCluster) -> None:
    put(cluster, b"x" * 5000)
    reading = consumer(cluster, "t", receive_message_max_bytes=2000, **QUICK)
    with pytest.raises(KafkaException, match="receive_message_max_bytes") as caught:
        reading.poll(10_000)
    assert not natives_in(caught.value)
    assert len(consume(consumer(cluster, "t", receive_message_max_bytes=20_000, **QUICK), 1)) == 1
