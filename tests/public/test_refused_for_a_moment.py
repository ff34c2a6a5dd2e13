"""Credentials with which a client got in are not wrong after one refusal; what a refusal says of secrets that were pasted; rights for idempotence."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.common import OffsetType
from gkafka.exceptions import (
    AuthenticationError,
    ClusterAuthorizationFailed,
    DeliveryError,
    KafkaException,
    SaslAuthenticationFailed,
    SocketDisconnectedError,
    causes,
)
from gkafka.testing import Error, MockCluster, Sasl
from tests.public.aids import LIMIT_S, Runner, short_of_time
from tests.public.conftest import Connect

USER, PASSWORD = "alice", "s3cret-of-alice"
CLEAR: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "allow_plaintext_credentials": True}
PLAIN: dict[str, Any] = {**CLEAR, "sasl_mechanism": "PLAIN", "sasl_username": USER, "sasl_password": PASSWORD}
SOON: dict[str, Any] = {"reconnect_backoff_ms": 10, "reconnect_backoff_max_ms": 50}


@pytest.fixture
def sasl() -> Sasl:
    return Sasl({USER: PASSWORD})


@pytest.fixture
def cluster(make_cluster: Callable[..., MockCluster], sasl: Sasl) -> MockCluster:
    """Three brokers, each the leader of one partition."""
    made = make_cluster(brokers=3, topics={"t": 3}, sasl=sasl)
    for partition in range(3):
        made.move_leader("t", partition, partition + 1)
    return made


def restarted(cluster: MockCluster, broker: int, times: int | None = 2) -> None:
    """It serves before it has read its users."""
    cluster.on("SaslAuthenticate", Error(58), broker=broker, times=times)
    cluster.close_connections(broker)


def values(cluster: MockCluster) -> list[list[bytes | None]]:
    return [[record.value for record in cluster.log("t", partition)] for partition in range(3)]


# -- 7: for a moment -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_broker_that_just_came_back_costs_a_producer_no_record(
    connect: Connect, cluster: MockCluster, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    producer = connect(cluster, **{**PLAIN, "sasl_mechanism": mechanism}, **SOON).get_producer()
    for partition in range(3):
        producer.produce("t", b"1", partition=partition).result(LIMIT_S)
    caplog.set_level(logging.WARNING)
    restarted(cluster, 2, times=3)
    deliveries = [producer.produce("t", b"2", partition=partition) for partition in (0, 1, 2)]
    for delivery in deliveries:
        delivery.result(LIMIT_S)
    producer.close(LIMIT_S)
    assert values(cluster) == [[b"1", b"2"]] * 3
    told = [record.getMessage() for record in caplog.records if "sasl_retry_timeout_ms" in record.getMessage()]
    assert len(told) == 1, "once, not for each try"
    assert "error 58" in told[0]
    assert PASSWORD not in caplog.text


def test_nor_a_transaction(connect: Connect, cluster: MockCluster) -> None:
    """Neither the coordinator nor a leader is given up."""
    producer = connect(cluster, **PLAIN, **SOON).get_producer(transactional_id="tx")
    for value in (b"1", b"2"):
        with producer.transaction():
            for partition in range(3):
                producer.produce("t", value, partition=partition)
            for broker in (1, 2, 3):
                restarted(cluster, broker)
    assert values(cluster) == [[b"1", b"2"]] * 3


@pytest.mark.parametrize("what", ["consumer", "member", "pykafka's"])
def test_nor_is_a_consumer_told(run: Runner, connect: Connect, cluster: MockCluster, what: str) -> None:
    client = connect(cluster, **PLAIN, **SOON)
    with client.get_producer() as producer:
        for partition in range(3):
            producer.produce("t", b"%d" % partition, partition=partition).result(LIMIT_S)
        take = taker(client, what)
        got = Counter(take() for _ in range(3))
        for broker in (1, 2, 3):
            restarted(cluster, broker)
        for partition in range(3):
            producer.produce("t", b"1%d" % partition, partition=partition).result(LIMIT_S)
        got += Counter(take() for _ in range(3))
    assert got == Counter([b"0", b"1", b"2", b"10", b"11", b"12"])


def taker(client: KafkaClient, what: str) -> Callable[[], bytes | None]:
    """Takes one record each time."""
    if what == "pykafka's":
        simple = client.topics["t"].get_simple_consumer(consumer_timeout_ms=LIMIT_S * 1000, auto_offset_reset=OffsetType.EARLIEST)
        return lambda: simple.consume().value
    consumer = client.get_consumer("t", **({"group": "g", "heartbeat_interval_ms": 50} if what == "member" else {}))

    def take() -> bytes | None:
        message = consumer.consume(timeout_ms=LIMIT_S * 1000)
        assert message is not None
        return message.value

    return take


def test_nor_is_an_administrator_or_who_fetches_once(connect: Connect, cluster: MockCluster) -> None:
    client = connect(cluster, **PLAIN, **SOON)
    client.connect()
    for broker in (1, 2, 3):
        restarted(cluster, broker)
    assert set(client.list_offsets({("t", partition): -1 for partition in range(3)}).values()) == {0}
    for broker in (1, 2, 3):
        restarted(cluster, broker)
    client.create_topic("new")
    client.admin().list_groups()
    restarted(cluster, 2)
    assert client.fetch_raw("t", 1, 0, max_wait_ms=10).high_watermark == 0


@pytest.mark.parametrize("code", [33, 34])
def test_nor_does_another_code_of_a_listener_that_is_not_ready_count(connect: Connect, cluster: MockCluster, code: int) -> None:
    producer = connect(cluster, **PLAIN, **SOON).get_producer()
    producer.produce("t", b"1", partition=1).result(LIMIT_S)
    cluster.on("SaslHandshake", Error(code), broker=2, times=2)
    cluster.close_connections(2)
    producer.produce("t", b"2", partition=1).result(LIMIT_S)


def test_a_provider_that_fails_for_a_moment_costs_nothing(connect: Connect, cluster: MockCluster, sasl: Sasl) -> None:
    """Its own service may be away, or a Kerberos ticket just over."""
    sasl.tokens.append("t0ken")
    fails: list[int] = []

    def provider() -> str:
        if fails and fails.pop():
            raise LookupError("no token today")
        return "t0ken"

    client = connect(cluster, **CLEAR, **SOON, sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=provider)
    producer = client.get_producer()
    producer.produce("t", b"1", partition=1).result(LIMIT_S)
    fails += [0, 1, 1, 1]
    cluster.close_connections()
    producer.produce("t", b"2", partition=1).result(LIMIT_S)
    assert not fails or 1 not in fails


@pytest.mark.parametrize("what", ["producer", "consumer", "admin"])
def test_a_refusal_that_lasts_is_told_as_what_it_is(run: Runner, connect: Connect, cluster: MockCluster, sasl: Sasl, what: str) -> None:
    """sasl_retry_timeout_ms: bounded."""
    client = connect(cluster, **PLAIN, **SOON, sasl_retry_timeout_ms=300)
    producer, consumer = client.get_producer(), client.get_consumer("t")
    producer.produce("t", b"1", partition=1).result(LIMIT_S)
    assert consumer.consume(timeout_ms=LIMIT_S * 1000) is not None
    before = sasl.refused
    sasl.users[USER] = "another"
    cluster.close_connections()
    work: dict[str, Callable[[], object]] = {
        "producer": lambda: producer.produce("t", b"2", partition=1).result(LIMIT_S),
        "consumer": lambda: consumer.consume(timeout_ms=LIMIT_S * 1000),
        "admin": lambda: client.list_offsets({("t", 1): -1}),
    }
    with pytest.raises(AuthenticationError, match="Invalid username or password"):
        work[what]()
    assert sasl.refused > before + 1, "it was tried again"
    run.until(lambda: told_at_once(client))


def told_at_once(client: KafkaClient) -> bool:
    """Once the refusal is believed no call waits for anything."""
    try:
        client.update_cluster()
    except AuthenticationError:
        return True
    except KafkaException:
        return False
    return False


def test_with_sasl_retry_timeout_ms_0_the_first_refusal_is_told(connect: Connect, cluster: MockCluster, sasl: Sasl) -> None:
    producer = connect(cluster, **PLAIN, **SOON, sasl_retry_timeout_ms=0).get_producer()
    producer.produce("t", b"1", partition=1).result(LIMIT_S)
    restarted(cluster, 2, times=None)
    with pytest.raises(AuthenticationError):
        producer.produce("t", b"2", partition=1).result(LIMIT_S)


def test_the_time_of_a_delivery_bounds_it_all_the_same(
    run: Runner, connect: Connect, cluster: MockCluster, caplog: pytest.LogCaptureFixture
) -> None:
    producer = connect(cluster, **PLAIN, **SOON).get_producer()
    producer.produce("t", b"1", partition=1).result(LIMIT_S)
    restarted(cluster, 2, times=None)
    delivery = producer.produce("t", b"2", partition=1)
    run.until(lambda: "this client got in before" in caplog.text)
    assert not delivery.done()
    with short_of_time(producer, 0.1), pytest.raises(KafkaException):
        delivery.result(LIMIT_S)


def test_a_broker_that_cannot_prove_itself_is_told_to_a_client_that_got_in_too(connect: Connect, cluster: MockCluster, sasl: Sasl) -> None:
    client = connect(cluster, **{**PLAIN, "sasl_mechanism": "SCRAM-SHA-256"}, **SOON)
    producer = client.get_producer()
    producer.produce("t", b"1", partition=1).result(LIMIT_S)
    sasl.forged_signature = True
    cluster.close_connections()
    with pytest.raises(AuthenticationError, match="not the right broker"):
        producer.produce("t", b"2", partition=1).result(LIMIT_S)


# -- 15: pasted secrets --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@pytest.mark.parametrize(
    ("user", "password", "text"),
    [
        (USER, f"{PASSWORD}\n", "the password ends in a line break"),
        (USER, lambda: f"{PASSWORD}\r\n", "the password ends in a line break"),
        (f"{USER}\n", PASSWORD, "the user name ends in a line break"),
        (USER, f'"{PASSWORD}"', "the password stands in quotes"),
        (f" {USER}", f"\ufeff{PASSWORD}", "the user name begins or ends with white space and the password begins with a byte order mark"),
    ],
    ids=["line", "callable", "user", "quotes", "both"],
)
def test_a_refusal_says_what_is_strange_at_the_edges_of_what_was_given(
    connect: Connect, cluster: MockCluster, mechanism: str, user: str, password: Any, text: str
) -> None:
    given = {**CLEAR, "sasl_mechanism": mechanism, "sasl_username": user, "sasl_password": password}
    with pytest.raises(SaslAuthenticationFailed, match=rf"\({text}: it is sent so; take that off if it is not meant\)") as caught:
        connect(cluster, **given).connect()
    assert PASSWORD not in str(caught.value)


def test_it_is_sent_as_it_was_given_and_nothing_is_said_where_it_is_right(
    connect: Connect, cluster: MockCluster, sasl: Sasl, caplog: pytest.LogCaptureFixture
) -> None:
    sasl.users[USER] = f"{PASSWORD}\n"
    connect(cluster, **{**PLAIN, "sasl_password": f"{PASSWORD}\n"}).connect()
    assert (sasl.accepted > 0, sasl.refused, "line break" in caplog.text) == (True, 0, False)


@pytest.mark.parametrize(
    ("token", "error", "text"),
    [
        ("t0ken\n", AuthenticationError, "the token ends in a line break: take that off"),
        ('"t0ken"', SaslAuthenticationFailed, "the token stands in quotes: it is sent so"),
    ],
)
def test_a_token_from_a_file_too(connect: Connect, cluster: MockCluster, token: str, error: type[Exception], text: str) -> None:
    client = connect(cluster, **CLEAR, sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=lambda: token)
    with pytest.raises(error, match=text) as caught:
        client.connect()
    assert "t0ken" not in str(caught.value)


def test_of_an_old_broker_too(connect: Connect, make_cluster: Callable[..., MockCluster], sasl: Sasl) -> None:
    cluster = make_cluster(versions="0.10.2", sasl=sasl)
    client = connect(cluster, **{**PLAIN, "sasl_password": f"{PASSWORD}\n"}, reconnect_backoff_ms=1)
    with pytest.raises(KafkaException, match="the password ends in a line break") as caught:
        client.connect()
    assert any(isinstance(error, SocketDisconnectedError) for error in causes(caught.value))


# -- 17: the right to write idempotently -----------------------------------------------------------------------------------
@pytest.mark.parametrize("api", ["InitProducerId", "Produce"])
def test_the_right_that_idempotence_takes_is_named_and_the_way_without_it(connect: Connect, api: str, make_cluster: Any) -> None:
    """Brokers before 2.8 and MSK Serverless want it; they refuse the number, or the batch that has one."""
    cluster: MockCluster = make_cluster(topics={"t": 1})
    cluster.on(api, Error(31), times=None, when=(lambda request: api == "InitProducerId" or is_idempotent(request)))
    client = connect(cluster)
    producer = client.get_producer()
    with pytest.raises(ClusterAuthorizationFailed, match=r"the right IdempotentWrite on the cluster .*enable_idempotence=False"):
        producer.produce("t", b"x").result(LIMIT_S)
    with pytest.raises(DeliveryError):
        producer.close(1)
    client.get_producer(enable_idempotence=False).produce("t", b"x").result(LIMIT_S)


def is_idempotent(request: Any) -> bool:
    (partition,) = request.message.topic_data[0].partition_data
    return bytes(partition.records)[43:51] != b"\xff" * 8


# -- 28: signed tokens -----------------------------------------------------------------------------------------------------
class Signer:
    """Stands in for aws_msk_iam_sasl_signer."""

    def __init__(self) -> None:
        self.signed = 0
        self.until_ms = 1 << 60

    def generate_auth_token(self, region: str) -> tuple[str, int]:
        self.signed += 1
        return "signed", self.until_ms


@pytest.fixture
def signer(monkeypatch: pytest.MonkeyPatch) -> Signer:
    made = Signer()
    package, module = ModuleType("aws_msk_iam_sasl_signer"), ModuleType("aws_msk_iam_sasl_signer.MSKAuthTokenProvider")
    module.__dict__["generate_auth_token"] = made.generate_auth_token
    monkeypatch.setitem(sys.modules, package.__name__, package)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return made


def test_a_signed_token_serves_all_connections_of_a_client(
    connect: Connect, make_cluster: Callable[..., MockCluster], signer: Signer
) -> None:
    """Three brokers for a producer, a consumer, a group and an administrator: STS is asked once."""
    sasl = Sasl(tokens=["signed"])
    cluster = make_cluster(brokers=3, topics={"t": 3}, sasl=sasl)
    client = connect(cluster, **CLEAR, sasl_mechanism="AWS_MSK_IAM", sasl_aws_region="eu-west-1")
    producer = client.get_producer()
    for partition in range(3):
        producer.produce("t", b"x", partition=partition).result(LIMIT_S)
    consumer = client.get_consumer("t", group="g")
    assert {consumer.consume(timeout_ms=LIMIT_S * 1000).value for _ in range(3)} == {b"x"}  # type: ignore[union-attr]
    client.list_offsets({("t", partition): -1 for partition in range(3)})
    assert sasl.accepted > 6
    assert signer.signed == 1


def test_a_signed_token_whose_time_is_over_is_used_once(connect: Connect, make_cluster: Callable[..., MockCluster], signer: Signer) -> None:
    sasl, signer.until_ms = Sasl(tokens=["signed"]), 1
    client = connect(make_cluster(sasl=sasl), **CLEAR, sasl_mechanism="AWS_MSK_IAM", sasl_aws_region="eu-west-1")
    client.get_producer().produce("t", b"x").result(LIMIT_S)
    assert signer.signed == sasl.accepted > 1
