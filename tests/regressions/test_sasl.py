"""Who the client is, and who answers: bugs B63, B64, B65, B68 of other clients."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from gkafka.exceptions import AuthenticationError, SaslAuthenticationFailed
from gkafka.testing import Edit, MockCluster, Sasl
from tests.kit.clock import now
from tests.public.aids import LIMIT_S, Runner
from tests.public.conftest import Connect

USER, PASSWORD = "alice", "s3cret-of-alice"


def as_alice(mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "allow_plaintext_credentials": True,
        "sasl_mechanism": mechanism,
        "sasl_username": USER,
        "sasl_password": password,
    }


@pytest.fixture
def sasl() -> Sasl:
    return Sasl({USER: PASSWORD}, grace_ms=5000)


@pytest.fixture
def cluster(make_cluster: Callable[..., MockCluster], sasl: Sasl) -> MockCluster:
    return make_cluster(sasl=sasl)


def test_b63_a_session_is_renewed_with_requests_under_way(run: Runner, connect: Connect, cluster: MockCluster, sasl: Sasl) -> None:
    """B63 aiokafka#1105: without KIP-368 MSK closed each connection once an hour; franz-go 1.21.4: the renewal came between pipelined requests.

    The broker here closes a connection on which anything comes between the handshake and the end of the exchange.
    """
    sasl.session_ms = 300
    producer = connect(cluster, **as_alice("SCRAM-SHA-256")).get_producer(linger_ms=0, batch_bytes=128)
    deadline, produced = now() + LIMIT_S, []
    while sasl.renewed < 3:
        assert now() < deadline
        produced += [producer.produce("t", b"x" * 50) for _ in range(3)]
        run.sleep(0.001)
    assert [delivery.exception(LIMIT_S) for delivery in produced] == [None] * len(produced)
    assert cluster.count("ApiVersions") == 2, "control and produce, each connected once"


def test_b64_each_rule_of_scram_that_a_broker_breaks_ends_the_exchange(connect: Connect, cluster: MockCluster, sasl: Sasl) -> None:
    """B64 cyrus-sasl#811, kafka-python#3026, Dekaf#3049, librdkafka#4895: one iteration, or a billion; an attribute twice; m=; another's nonce."""
    breaks: list[Callable[[bytes], bytes]] = [
        lambda said: said.replace(b"i=4096", b"i=1"),
        lambda said: said.replace(b"i=4096", b"i=1000000000"),
        lambda said: said + b",i=4096",
        lambda said: b"m=x," + said,
        lambda said: b"r=else" + said[said.index(b",") :],
    ]
    for break_it in breaks:

        def edited(request: Any, answer: Any, break_it: Callable[[bytes], bytes] = break_it) -> Any:
            answer.auth_bytes = break_it(bytes(answer.auth_bytes))
            return answer

        before = cluster.count("SaslAuthenticate")
        cluster.on("SaslAuthenticate", Edit(edited))
        begun = now()
        with pytest.raises(AuthenticationError, match="SCRAM-SHA-256: the broker"):
            connect(cluster, **as_alice("SCRAM-SHA-256")).connect()
        assert now() - begun < 30
        assert cluster.count("SaslAuthenticate") == before + 1, "no proof was sent"


def test_b65_the_log_of_everything_holds_no_password(connect: Connect, cluster: MockCluster, caplog: pytest.LogCaptureFixture) -> None:
    """B65 smallrye-reactive-messaging#769, strimzi-kafka-bridge#343, CMAK#688, apisix#13786: the password stood in the log; so in kafka-python's DEBUG."""
    with caplog.at_level(logging.DEBUG):
        client = connect(cluster, **as_alice("PLAIN"))
        client.get_producer().produce("t", b"x").result(LIMIT_S)
        with pytest.raises(AuthenticationError):
            connect(cluster, **as_alice("PLAIN", f"not-{PASSWORD}")).connect()
    assert "PLAIN" in caplog.text
    assert PASSWORD not in caplog.text + repr(client) + repr(client.cluster.config) + repr(client.stats())


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_b68_a_wrong_password_is_no_time_out(connect: Connect, cluster: MockCluster, sasl: Sasl, mechanism: str) -> None:
    """B68 kafka-python and aiokafka and librdkafka: the broker's definite refusal was tried again until the time was over, and told as "no brokers"."""
    client = connect(cluster, **as_alice(mechanism, "wrong"))
    for call in (client.connect, lambda: client.topics["t"]):
        begun = now()
        with pytest.raises(SaslAuthenticationFailed, match="error 58"):
            call()
        assert now() - begun < 30
    assert sasl.refused <= 2
