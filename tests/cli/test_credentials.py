"""Credentials of a command: a sidecar for tokens, a refusal that lasts a moment, a secret that was pasted, a right that is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gkafka.testing import Error, MockCluster, Sasl
from tests.cli.running import failure, tool
from tests.net.servers import serve

PLAIN = "security.protocol=SASL_PLAINTEXT\nallow.plaintext.credentials=true\nsasl.mechanism=PLAIN\nsasl.username=alice\n"
BEARER = "security.protocol=SASL_PLAINTEXT\nallow.plaintext.credentials=true\nsasl.mechanism=OAUTHBEARER\n"


@pytest.fixture
def config(tmp_path: Path) -> Any:
    """Makes a file of properties and gives its path."""

    def write(text: str) -> str:
        path = tmp_path / "client.properties"
        path.write_text(text)
        return str(path)

    return write


def test_tokens_come_from_a_sidecar_on_this_machine(config: Any) -> None:
    """As for Google's Managed Kafka."""
    asked: list[bytes] = []

    def answer(conn: Any) -> None:
        asked.append(conn.recv(8000))
        conn.sendall(b'HTTP/1.0 200 OK\r\n\r\n{"access_token": "t0ken", "expires_in": 60}')

    with MockCluster(topics={"t": 1}, sasl=Sasl(tokens=["t0ken"])) as cluster, serve(answer) as port:
        text = f"{BEARER}sasl.oauthbearer.token.endpoint.url=localhost:{port}\n"
        for more in ("", "sasl.oauth.audience=kafka\nsasl.oauth.form.fields=resource=r&tenant=1\n"):
            outcome = tool("topics", "list", "-b", cluster.bootstrap, "-c", config(text + more))
            assert (outcome.code, outcome.lines[-1].split()) == (0, [b"t", b"1"])
    assert [request.partition(b"\r\n\r\n")[2] for request in (asked[0], asked[-1])] == [
        b"grant_type=client_credentials",
        b"grant_type=client_credentials&audience=kafka&resource=r&tenant=1",
    ]


def test_http_to_another_machine_names_the_property_that_allows_it(config: Any) -> None:
    text = f"{BEARER}sasl.oauthbearer.token.endpoint.url=http://login.example/\nsasl.oauthbearer.client.id=me\n"
    path = config(f"{text}sasl.oauthbearer.client.secret=geheim\n")
    failure(tool("topics", "list", "-b", "127.0.0.1:1", "-c", path), "sasl.oauth.allow.http=true", "http://localhost:14293", code=2)


def test_a_command_goes_on_where_one_broker_refuses_for_a_moment(config: Any) -> None:
    """It got in at the first broker; another one has just come back."""
    with MockCluster(brokers=3, topics={"t": 3}, sasl=Sasl({"alice": "geheim"})) as cluster:
        for partition in range(3):
            cluster.move_leader("t", partition, partition + 1)
        first = f"{cluster.brokers[1][0]}:{cluster.brokers[1][1]}"
        for broker in (2, 3):
            cluster.on("SaslAuthenticate", Error(58), broker=broker, times=2)
        outcome = tool("offsets", "list", "t", "-b", first, "-c", config(f"{PLAIN}sasl.password=geheim\n"))
    assert outcome.code == 0, outcome
    assert len([line for line in outcome.lines if line.startswith(b"t ")]) == 3


@pytest.mark.parametrize("by", ["environment", "file"])
def test_a_password_that_was_pasted_is_told(config: Any, by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret of Kubernetes made by `echo geheim | base64`, and the quotes of a shell in a file of properties."""
    with MockCluster(topics={"t": 1}, sasl=Sasl({"alice": "geheim"})) as cluster:
        if by == "environment":
            monkeypatch.setenv("KAFKA_SASL_PASSWORD", "geheim\n")
        path = config(PLAIN + ('sasl.password="geheim"\n' if by == "file" else ""))
        outcome = tool("topics", "list", "-b", cluster.bootstrap, "-c", path)
    failure(outcome, "the password ends in a line break" if by == "environment" else "the password stands in quotes")
    assert "geheim" not in outcome.err


def test_the_right_to_write_idempotently_is_named_with_the_property_that_does_without() -> None:
    with MockCluster(topics={"t": 1}) as cluster:
        cluster.on("InitProducerId", Error(31), times=None)
        told = tool("produce", "t", "-b", cluster.bootstrap, stdin=b"x\n")
        assert (told.code, told.err.count("the right IdempotentWrite on the cluster"), told.err.count("enable.idempotence=false")) == (
            1,
            1,
            1,
        )
        assert tool("produce", "t", "-b", cluster.bootstrap, "--set", "enable.idempotence=false", stdin=b"x\n").code == 0
