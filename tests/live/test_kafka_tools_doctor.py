"""kafka-tools doctor at the listeners of a real Kafka with TLS and SASL: which of the ways in which clients get it wrong it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.terminal import piped
from tests.live.saslkafka import PASSWORD, USER, SaslKafka, sasl_kafka


@pytest.fixture
def kafka() -> SaslKafka:
    return sasl_kafka()


def examined(kafka: SaslKafka, listener: str, protocol: str, *words: str, password: str = PASSWORD) -> dict[str, Any]:
    """What the doctor says of a listener that is spoken to as `protocol` has it."""
    options = ["--security-protocol", protocol, *words]
    if "SASL" in protocol:
        options += ["--sasl-mechanism", "SCRAM-SHA-256", "--sasl-username", USER]
    if "SSL" in protocol:
        options += ["--ssl-cafile", kafka.certs.ca]
    told = piped("doctor", "--json", "-b", f"127.0.0.1:{kafka.port(listener)}", *options, KAFKA_SASL_PASSWORD=password)
    assert told.stderr == ""
    found: dict[str, Any] = json.loads(told.stdout)
    assert found["ok"] is (told.returncode == 0)
    return found


def failures(found: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(step["step"], step["seen"], step["next"]) for step in found["steps"] if step["status"] == "fail"]


@pytest.mark.parametrize(("listener", "protocol"), [("SASL", "SASL_PLAINTEXT"), ("SECURE", "SASL_SSL")])
def test_who_gets_it_right_is_told_so(kafka: SaslKafka, listener: str, protocol: str) -> None:
    found = examined(kafka, listener, protocol)
    assert failures(found) == []
    assert {step["step"] for step in found["steps"] if step["status"] == "ok"} >= {
        "versions",
        "sasl",
        "metadata",
        "advertised",
        "clock",
        "group",
    }


@pytest.mark.parametrize(("listener", "protocol"), [("SASL", "SASL_PLAINTEXT"), ("SECURE", "SASL_SSL")])
def test_a_wrong_password(kafka: SaslKafka, listener: str, protocol: str) -> None:
    ((step, _, advice),) = failures(examined(kafka, listener, protocol, password="not-the-password"))
    assert step == "sasl"
    assert "the listener offers" in advice
    assert "SCRAM-SHA-256" in advice


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SASL_PLAINTEXT"])
def test_a_tls_listener_spoken_to_in_clear_text(kafka: SaslKafka, protocol: str) -> None:
    ((step, seen, advice),) = failures(examined(kafka, "SECURE", protocol))
    assert (step, "speaks TLS" in seen, "gkafka test ca" in seen) == ("versions", True, True)
    assert "SSL" in advice


@pytest.mark.parametrize(("protocol", "better"), [("SSL", "PLAINTEXT"), ("SASL_SSL", "SASL_PLAINTEXT")])
def test_a_clear_text_listener_spoken_to_in_tls(kafka: SaslKafka, protocol: str, better: str) -> None:
    ((step, seen, advice),) = failures(examined(kafka, "SASL", protocol))
    assert (step, "speaks no TLS" in seen) == ("tls", True)
    assert advice.startswith(f"give --security-protocol {better},")


@pytest.mark.parametrize(("listener", "protocol", "better"), [("SASL", "PLAINTEXT", "SASL_PLAINTEXT"), ("SECURE", "SSL", "SASL_SSL")])
def test_a_listener_that_wants_to_know_who_the_client_is(kafka: SaslKafka, listener: str, protocol: str, better: str) -> None:
    ((step, seen, advice),) = failures(examined(kafka, listener, protocol))
    assert (step, "wants to know who the client is" in seen) == ("metadata", True)
    assert advice.startswith(f"--security-protocol {better} --sasl-mechanism")


def test_an_authority_that_is_not_the_brokers(kafka: SaslKafka, tmp_path: Path) -> None:
    other = kafka.certs.path("other_ca.pem")
    words = ("--security-protocol", "SSL", "--ssl-cafile", other)
    told = piped("doctor", "-b", f"127.0.0.1:{kafka.port('SECURE')}", *words)
    assert told.returncode == 1
    assert "fail  tls" in told.stdout
    assert "next: give the certificate of its authority, 'gkafka test ca': --ssl-cafile FILE" in told.stdout
