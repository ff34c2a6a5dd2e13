"""Error texts of KafkaConsumer and KafkaProducer name options as kafka-python does, never as gkafka's native ones are called."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gkafka.exceptions import KafkaException
from gkafka.kafka import KafkaConsumer, KafkaProducer
from gkafka.kafka.client_async import KafkaClient
from gkafka.kafka.errors import KafkaConfigurationError, NoBrokersAvailable
from gkafka.kafka.options import retold
from gkafka.testing import MockCluster
from tests.net.servers import refused_port

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
    with pytest.raises(KafkaConfigurationError, match=r"^api_version=\(0, 7\): not a release that is known here; give one of 0\.8\.2"):
        KafkaProducer(bootstrap_servers="127.0.0.1:1", api_version=(0, 7))


def test_only_names_of_options_are_put_in_the_others_place() -> None:
    error = KafkaException("the hosts of group g: hosts='x' and my_socket_timeout_ms, socket_timeout_ms=5", 7)
    retold(error, {"group": "group_id"})
    assert error.args == ("the hosts of group g: bootstrap_servers='x' and my_socket_timeout_ms, request_timeout_ms=5", 7)
