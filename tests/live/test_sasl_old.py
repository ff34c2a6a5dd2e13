"""SASL on a Kafka before 1.0, where the mechanism's messages stand in frames of their own, and a refusal is the end of the connection."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gkafka import KafkaClient
from gkafka.exceptions import NoBrokersAvailableError
from tests.live.jvm import free_ports
from tests.live.kafka import KafkaCluster, MissingToolError
from tests.live.pool import skip_if_told

PASSWORD = "s3cret-of-alice"
JAAS = f'KafkaServer {{ org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="{PASSWORD}"; }};'


@pytest.fixture(scope="module")
def listener(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port where a 0.10.2.2 asks who its clients are; it has the topic "t"."""
    skip_if_told()
    login: Path = tmp_path_factory.mktemp("sasl") / "jaas.conf"
    login.write_text(JAAS)
    plain, guarded = free_ports(2)
    listeners = f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{guarded}"
    properties = {"listeners": listeners, "advertised.listeners": listeners, "sasl.enabled.mechanisms": "PLAIN"}
    try:
        with KafkaCluster("0.10.2.2", port=plain, properties=properties, flags=[f"-Djava.security.auth.login.config={login}"]) as kafka:
            kafka.create_topic("t")
            yield guarded
    except MissingToolError as error:
        pytest.fail(f"{error} (or set GKAFKA_LIVE=skip to leave out the tests on real Kafka)", pytrace=False)


def dial(port: int, handler: str, password: str) -> KafkaClient:
    given = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_username": "alice",
        "allow_plaintext_credentials": True,
    }
    return KafkaClient(f"127.0.0.1:{port}", handler=handler, sasl_password=password, reconnect_backoff_ms=20, **given)


def test_who_is_let_in_produces_and_consumes(listener: int, handler: str) -> None:
    with dial(listener, handler, PASSWORD) as client:
        offset = client.get_producer(enable_idempotence=False).produce("t", b"x").result(60).offset
        assert client.fetch_raw("t", 0, offset).high_watermark > offset


def test_who_is_not_is_told_what_the_end_of_the_connection_may_mean(listener: int, handler: str) -> None:
    with (
        dial(listener, handler, "wr0ng-secret") as client,
        pytest.raises(
            NoBrokersAvailableError, match=r"lost during the authentication, after .*SaslHandshake v0 .*older than Kafka 1\.0"
        ) as caught,
    ):
        client.connect(10)
    assert "wr0ng" not in str(caught.value)
