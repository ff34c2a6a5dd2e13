"""Clients that say who they are: each mechanism, what refuses them, sessions that are renewed, and that no secret is to be seen."""

from __future__ import annotations

import contextlib
import gc
import logging
import pickle
import re
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gkafka import Broker, KafkaClient
from gkafka.common import OffsetType
from gkafka.config import ClientConfig, build
from gkafka.exceptions import (
    AuthenticationError,
    ConfigurationError,
    DeliveryError,
    IllegalSaslState,
    KafkaException,
    NoBrokersAvailableError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanism,
)
from gkafka.handlers import resolve_handler
from gkafka.testing import Close, Drop, Error, MockCluster, Sasl
from tests.frames import is_ours
from tests.kit.clock import during, now, soon
from tests.public.aids import LIMIT_S, Clock, Held, Runner, error_of
from tests.public.conftest import Connect

USER, PASSWORD, TOKEN = "alice", "s3cret-of-alice", "eyJhbGciOiJub25lIn0.s3cret-claims."
BY_PASSWORD = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = (*BY_PASSWORD, "OAUTHBEARER")
CLEAR = {"security_protocol": "SASL_PLAINTEXT", "allow_plaintext_credentials": True}


def options(mechanism: str, secret: str | None = None) -> dict[str, Any]:
    """What a client is given. secret: another than the right one."""
    if mechanism == "OAUTHBEARER":
        return {**CLEAR, "sasl_mechanism": mechanism, "sasl_oauth_token_provider": lambda: secret or TOKEN}
    return {**CLEAR, "sasl_mechanism": mechanism, "sasl_username": USER, "sasl_password": secret or PASSWORD}


@pytest.fixture
def sasl() -> Sasl:
    return Sasl({USER: PASSWORD}, tokens=[TOKEN], grace_ms=5000)  # sessions of tests are short, and a busy machine is late


@pytest.fixture
def cluster(make_cluster: Callable[..., MockCluster], sasl: Sasl) -> MockCluster:
    return make_cluster(sasl=sasl)


# -- who is let in -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("sasl_mechanism", MECHANISMS)
def test_a_client_that_says_who_it_is_produces_and_consumes(
    connect: Connect, cluster: MockCluster, sasl: Sasl, sasl_mechanism: str
) -> None:
    client = connect(cluster, **options(sasl_mechanism))
    client.get_producer().produce("t", b"x").result(LIMIT_S)
    consumer = client.get_consumer("t")
    message = consumer.consume(timeout_ms=LIMIT_S * 1000)
    assert message is not None
    assert message.value == b"x"
    assert (sasl.refused, {request.message.mechanism for request in cluster.requests("SaslHandshake")}) == (0, {sasl_mechanism})
    assert sasl.accepted == cluster.connections()


def test_pykafkas_names_say_who_they_are_too(connect: Connect, cluster: MockCluster, sasl: Sasl) -> None:
    """Producer, SimpleConsumer, a managed BalancedConsumer, the calls of a Broker, each on connections of its own."""
    sasl.session_ms = 400
    client = connect(cluster, **options("SCRAM-SHA-256"))
    topic = client.topics["t"]
    with topic.get_sync_producer() as producer:
        for number in range(3):
            producer.produce(b"%d" % number)
    for make in (topic.get_simple_consumer, lambda **more: topic.get_balanced_consumer("g", managed=True, **more)):
        consumer = make(consumer_timeout_ms=LIMIT_S * 1000, auto_offset_reset=OffsetType.EARLIEST, reset_offset_on_start=True)
        assert [consumer.consume().value for _ in range(3)] == [b"0", b"1", b"2"]
        consumer.stop()
    (broker,) = client.brokers.values()
    assert list(broker.request_metadata([b"t"]).topics) == [b"t"]
    assert [group.group_id for group in broker.list_groups().groups.values()] == [b"g"]
    assert (sasl.refused, sasl.expired) == (0, 0)


@pytest.mark.parametrize("sasl_mechanism", MECHANISMS)
@pytest.mark.parametrize("release", ["0.10.2", "1.0", "2.4", "3.9"])
def test_brokers_of_every_age_let_it_in(
    connect: Connect, make_cluster: Callable[..., MockCluster], sasl: Sasl, release: str, sasl_mechanism: str
) -> None:
    """Before 1.0 the messages stand in frames of their own."""
    cluster = make_cluster(versions=release, sasl=sasl)
    connect(cluster, **options(sasl_mechanism)).get_producer(enable_idempotence=False).produce("t", b"x").result(LIMIT_S)
    assert bool(cluster.count("SaslAuthenticate")) is (release != "0.10.2")


def test_sasl_username_and_sasl_password_have_the_names_that_other_clients_give_them(
    connect: Connect, cluster: MockCluster, sasl: Sasl
) -> None:
    connect(cluster, **CLEAR, sasl_mechanism="PLAIN", sasl_plain_username=USER, sasl_plain_password=PASSWORD).connect()
    connect(cluster, **CLEAR, **{"sasl.mechanisms": "PLAIN", "sasl.username": USER, "sasl.password": PASSWORD}).connect()
    assert sasl.accepted == 2


def test_sasl_password_may_be_asked_for_by_each_connection(connect: Connect, cluster: MockCluster, sasl: Sasl) -> None:
    passwords = ["old", "new"]
    sasl.users[USER] = "old"
    client = connect(cluster, **CLEAR, sasl_mechanism="PLAIN", sasl_username=USER, sasl_password=lambda: passwords[0])
    client.connect()
    passwords.pop(0)
    sasl.users[USER] = "new"
    cluster.close_connections()
    client.update_cluster()
    assert (sasl.accepted, sasl.refused) == (2, 0)


def test_sasl_oauth_extensions_and_those_of_a_provider_go_with_the_token(connect: Connect, cluster: MockCluster, sasl: Sasl) -> None:
    class Provider:
        def token(self) -> str:
            return TOKEN

        def extensions(self) -> dict[str, str]:
            return {"pool": "p-1"}

    given = {**CLEAR, "sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": Provider()}
    connect(cluster, **given, sasl_oauth_extensions={"logicalCluster": "lkc-1"}).connect()
    assert sasl.extensions == {"logicalCluster": "lkc-1", "pool": "p-1"}


# -- who is not ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_f28_b68_a_refusal_is_told_by_the_call_itself_at_once(connect: Connect, cluster: MockCluster, sasl: Sasl, mechanism: str) -> None:
    client = connect(cluster, **options(mechanism, "wr0ng-secret"))
    begun = now()
    with pytest.raises(SaslAuthenticationFailed, match=f"{mechanism}: .*(Invalid|invalid)") as caught:
        client.connect()
    assert now() - begun < 30
    assert isinstance(caught.value, AuthenticationError)
    assert sasl.refused == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.topics["t"],
        lambda client: client.brokers,
        lambda client: client.update_cluster(),
        lambda client: client.partitions("t"),
        lambda client: client.list_offsets({("t", 0): -1}),
        lambda client: client.fetch_raw("t", 0, 0),
        lambda client: client.create_topic("new"),
        lambda client: client.get_producer().produce("t", b"x").result(LIMIT_S),
        lambda client: client.get_consumer("t").consume(timeout_ms=LIMIT_S * 1000),
        lambda client: client.get_consumer("t", group="g").consume(timeout_ms=LIMIT_S * 1000),
    ],
    ids=["topics", "brokers", "update", "partitions", "offsets", "raw", "create", "produce", "consume", "group"],
)
def test_f28_every_call_tells_the_refusal(connect: Connect, cluster: MockCluster, call: Callable[[KafkaClient], Any]) -> None:
    client = connect(cluster, **options("PLAIN", "wr0ng-secret"))
    begun = now()
    with pytest.raises((AuthenticationError, DeliveryError)) as caught:
        call(client)
    error: Any = caught.value
    assert isinstance(error.__cause__ if isinstance(error, DeliveryError) else error, AuthenticationError)
    assert now() - begun < 30


def test_f28_a_refused_client_does_not_come_in_a_storm(run: Runner, connect: Connect, cluster: MockCluster, sasl: Sasl) -> None:
    client = connect(cluster, **options("PLAIN", "wr0ng-secret"), reconnect_backoff_ms=200, reconnect_backoff_max_ms=400)
    with Clock() as clock:
        for _ in range(100):  # each call is told at once
            with pytest.raises(AuthenticationError):
                client.connect(LIMIT_S)
            run.sleep(0.01)
        refused = sasl.refused
    assert refused >= 3
    assert clock.seconds > 0.15 * (refused - 2), "and the broker hears of few of them"


def test_a_broker_that_rests_after_a_refusal_tells_it_again(run: Runner, cluster: MockCluster, sasl: Sasl) -> None:
    handler = resolve_handler(run.name)
    config = build(
        ClientConfig,
        {**options("PLAIN", "wr0ng-secret"), "reconnect_backoff_ms": 60_000, "reconnect_backoff_max_ms": 60_000},
        where="the test",
    )
    broker = Broker(1, *cluster.brokers[1], handler, 30000, 10000, config=config)
    with pytest.raises(AuthenticationError):
        broker.connect()
    run.until(lambda: broker.refusal is not None)
    for _ in range(20):
        with pytest.raises(AuthenticationError, match="Invalid username or password"):
            broker.list_groups()
    assert sasl.refused == 1
    broker.close()
    handler.stop(soon(LIMIT_S))


def test_a_password_that_is_set_right_lets_the_next_calls_in(run: Runner, connect: Connect, cluster: MockCluster, sasl: Sasl) -> None:
    sasl.users[USER] = "not yet"
    client = connect(cluster, **options("SCRAM-SHA-256"))
    with pytest.raises(AuthenticationError):
        client.connect()
    sasl.users[USER] = PASSWORD

    def connected() -> bool:
        with contextlib.suppress(AuthenticationError):
            client.connect()
            return True
        return False

    run.until(connected)


@pytest.mark.parametrize("what", ["producer", "consumer", "member"])
def test_who_is_at_work_when_the_password_changes_is_told(
    run: Runner, connect: Connect, cluster: MockCluster, sasl: Sasl, what: str
) -> None:
    client = connect(cluster, **options("PLAIN"), sasl_retry_timeout_ms=200)
    producer = client.get_producer()
    producer.produce("t", b"x").result(LIMIT_S)
    consumer = client.get_consumer("t", **({"group": "g"} if what == "member" else {}))
    if what != "producer":
        assert consumer.consume(timeout_ms=LIMIT_S * 1000) is not None
    sasl.users[USER] = "another"
    cluster.close_connections()
    begun = now()

    def work() -> None:
        if what == "producer":
            producer.produce("t", b"y").result(LIMIT_S)
        while now() - begun < LIMIT_S:
            consumer.consume(timeout_ms=100)

    with pytest.raises(AuthenticationError):
        work()
    assert now() - begun < 30
    with contextlib.suppress(KafkaException):
        producer.close(1)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("by", ["password", "provider"])
def test_who_is_at_work_goes_on_when_the_credentials_are_right_again(
    run: Runner, connect: Connect, make_cluster: Callable[..., MockCluster], sasl: Sasl, by: str, protocol: str
) -> None:
    """A refusal ends no producer, no consumer and no membership."""
    cluster = make_cluster(sasl=sasl, consumer_heartbeat_interval_ms=50)
    broken: list[int] = []

    def provider() -> str:
        if broken:
            raise LookupError("no token today")
        return TOKEN

    given = options("PLAIN") if by == "password" else {**CLEAR, "sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": provider}
    client = connect(cluster, **given, reconnect_backoff_max_ms=100, sasl_retry_timeout_ms=200)
    producer = client.get_producer()
    beat: dict[str, Any] = {"group_protocol": "consumer"} if protocol == "consumer" else {"heartbeat_interval_ms": 50}
    alone, member = client.get_consumer("t"), client.get_consumer("t", group="g", **beat)
    consumed: list[list[bytes]] = [[], []]

    def consume(index: int) -> bool:
        message = (alone, member)[index].consume(timeout_ms=100)
        if message is not None:
            consumed[index].append(bytes(message.value or b""))
        return message is not None

    producer.produce("t", b"1").result(LIMIT_S)
    run.until(lambda: consume(0))
    run.until(lambda: consume(1))
    broken.append(1)
    sasl.users[USER] = "another"
    cluster.close_connections()
    run.sleep(0.3)  # heartbeats are refused, too
    with pytest.raises(AuthenticationError):
        producer.produce("t", b"lost").result(LIMIT_S)
    for index in (0, 1):
        with pytest.raises(AuthenticationError):
            run.until(lambda index=index: consume(index))
    broken.clear()
    sasl.users[USER] = PASSWORD

    def right_again() -> bool:
        with contextlib.suppress(AuthenticationError):
            producer.produce("t", b"2").result(LIMIT_S)
            return True
        return False

    def consumes_again(index: int) -> bool:
        with contextlib.suppress(AuthenticationError):
            consume(index)
        return b"2" in consumed[index]

    run.until(right_again)
    run.until(lambda: consumes_again(0))
    run.until(lambda: consumes_again(1))
    assert consumed == [[b"1", b"2"]] * 2
    with contextlib.suppress(DeliveryError):
        producer.close(1)


def test_no_mechanism_but_the_one_that_was_asked_for_is_used(connect: Connect, make_cluster: Callable[..., MockCluster]) -> None:
    sasl = Sasl({USER: PASSWORD}, mechanisms=("PLAIN", "OAUTHBEARER"))
    cluster = make_cluster(sasl=sasl)
    with pytest.raises(UnsupportedSaslMechanism, match="it offers PLAIN, OAUTHBEARER"):
        connect(cluster, **options("SCRAM-SHA-256")).connect()
    assert (cluster.count("SaslAuthenticate"), cluster.count("Metadata")) == (0, 0)


def test_a_broker_that_cannot_prove_itself_gets_nothing(connect: Connect, cluster: MockCluster, sasl: Sasl) -> None:
    sasl.forged_signature = True
    with pytest.raises(AuthenticationError, match="not the right broker"):
        connect(cluster, **options("SCRAM-SHA-512")).connect()
    assert cluster.count("Metadata") == 0


@pytest.mark.parametrize("iterations", [4095, 1_000_001])
def test_b64_a_broker_that_asks_for_too_few_or_too_many_iterations_gets_no_proof(
    connect: Connect, cluster: MockCluster, sasl: Sasl, iterations: int
) -> None:
    sasl.iterations = iterations
    begun = now()
    with pytest.raises(AuthenticationError, match=f"{iterations} iterations"):
        connect(cluster, **options("SCRAM-SHA-256")).connect()
    assert cluster.count("SaslAuthenticate") == 1
    assert now() - begun < 30


def test_a_connection_without_sasl_tells_that_the_listener_wants_something_else(connect: Connect, cluster: MockCluster) -> None:
    with pytest.raises(KafkaException, match=r"close[sd] the connection"):
        connect(cluster, reconnect_backoff_ms=1, api_timeout_ms=5000).connect()


def test_sasl_to_a_listener_without_it_is_told(connect: Connect, make_cluster: Callable[..., MockCluster]) -> None:
    with pytest.raises(IllegalSaslState, match="see whether the listener is one for SASL"):
        connect(make_cluster(), **options("PLAIN")).connect()
    with pytest.raises(KafkaException, match="does not know SaslHandshake"):
        connect(make_cluster(limits={"SaslHandshake": None}), **options("PLAIN"), reconnect_backoff_ms=1, api_timeout_ms=5000).connect()


def test_an_old_broker_that_ends_the_connection_is_told_as_what_it_may_mean(
    connect: Connect, make_cluster: Callable[..., MockCluster], sasl: Sasl
) -> None:
    cluster = make_cluster(versions="0.10.2", sasl=sasl)
    with pytest.raises(NoBrokersAvailableError, match=r"lost during the authentication.*older than Kafka 1\.0"):
        connect(cluster, **options("PLAIN", "wr0ng-secret"), reconnect_backoff_ms=1).connect()


@pytest.mark.parametrize("api", ["SaslHandshake", "SaslAuthenticate"])
def test_a_broker_that_is_silent_or_gone_meanwhile_is_tried_again(connect: Connect, cluster: MockCluster, api: str) -> None:
    cluster.on(api, Close())
    cluster.on(api, Drop())
    connect(cluster, **options("SCRAM-SHA-256"), connect_timeout_ms=1000).connect()
    assert cluster.count(api) >= 3


def test_authentication_counts_against_connect_timeout_ms(connect: Connect, cluster: MockCluster) -> None:
    cluster.on("SaslAuthenticate", Drop(), times=None)
    client = connect(cluster, **options("PLAIN"), connect_timeout_ms=300, reconnect_backoff_ms=1)
    begun, error = now(), None
    while not cluster.count("SaslAuthenticate"):  # a busy machine may need more than 300 ms up to there
        error = error_of(client.connect)
    assert isinstance(error, NoBrokersAvailableError)
    assert re.search(r"no answer to .*SaslAuthenticate v2, round 1 within connect_timeout_ms=300", str(error))
    assert now() - begun < 30


@pytest.mark.parametrize("gives", [b"bytes", "", None, 7])
def test_a_provider_that_gives_no_token_is_told(connect: Connect, cluster: MockCluster, gives: Any) -> None:
    given = {**CLEAR, "sasl_mechanism": "OAUTHBEARER"}
    with pytest.raises(AuthenticationError, match="sasl_oauth_token_provider gave no text"):
        connect(cluster, **given, sasl_oauth_token_provider=lambda: gives).connect()


@pytest.mark.parametrize(
    ("option", "more"),
    [
        ("sasl_oauth_token_provider", {"sasl_mechanism": "OAUTHBEARER"}),
        ("sasl_password", {"sasl_mechanism": "SCRAM-SHA-256", "sasl_username": "alice"}),
    ],
)
def test_that_a_callable_raises_is_told_but_not_what_and_nothing_is_sent(
    connect: Connect, cluster: MockCluster, option: str, more: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Its text may be the endpoint's answer, with the token in it."""

    def fails() -> str:
        raise LookupError("what came is t0ken-of-alice")

    caplog.set_level(logging.DEBUG)
    client = connect(cluster, **CLEAR, **more, **{option: fails})
    for _ in range(2):  # while the broker rests it is told again
        with pytest.raises(AuthenticationError, match=f"{option} gave no credentials: it raised LookupError$") as caught:
            client.connect()
        assert isinstance(caught.value.__cause__, LookupError)
    assert "t0ken-of-alice" not in caplog.text
    assert cluster.count("SaslHandshake") == 0


# -- sessions ------------------------------------------------------------------------------------------------------------
def test_a_session_of_a_millisecond_is_no_storm(
    run: Runner, connect: Connect, cluster: MockCluster, sasl: Sasl, caplog: pytest.LogCaptureFixture
) -> None:
    sasl.session_ms, sasl.grace_ms = 1, 60_000
    client = connect(cluster, **options("PLAIN"))
    client.connect()
    with Clock() as clock:
        before = sasl.renewed
        run.until(lambda: sasl.renewed >= before + 8)
        renewed = sasl.renewed - before
    assert clock.seconds > 0.09 * (renewed - 1), "one each 100 ms"
    told = [record for record in caplog.records if "lasts 1 ms (session_lifetime_ms)" in record.getMessage()]
    assert [record.levelname for record in told if record.levelno > logging.DEBUG] == ["WARNING"]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"])
def test_f28_b63_a_session_is_renewed_on_the_open_connection_and_nothing_is_lost(
    run: Runner, connect: Connect, cluster: MockCluster, sasl: Sasl, mechanism: str
) -> None:
    sasl.session_ms = 300
    client = connect(cluster, **options(mechanism))
    producer, consumer = client.get_producer(linger_ms=0), client.get_consumer("t")
    produced, consumed, deadline = [], 0, now() + LIMIT_S
    while sasl.renewed < 3 * 2:
        assert now() < deadline
        produced.append(producer.produce("t", b"x" * 50))
        if consumer.consume(timeout_ms=0 if len(produced) % 3 else 5) is not None:
            consumed += 1
        run.sleep(0.003)
    assert [delivery.exception(LIMIT_S) for delivery in produced] == [None] * len(produced)
    while consumed < len(produced):
        assert consumer.consume(timeout_ms=LIMIT_S * 1000) is not None
        consumed += 1
    opened = cluster.count("ApiVersions")
    assert (sasl.expired, sasl.refused) == (0, 0)
    assert opened == 3, "control, produce and fetch, none of them twice"
    assert sasl.renewed >= 3 * 2
    assert [record.value for record in cluster.log("t", 0)] == [b"x" * 50] * len(produced)


def test_an_idle_connection_is_renewed_in_time(
    run: Runner, connect: Connect, cluster: MockCluster, sasl: Sasl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its reader sleeps for up to a second, or much longer here: a renewal tells it when the next one is due."""
    for longest in ("LONGEST_WAIT_S", "LONGEST_GREENLET_WAIT_S"):
        monkeypatch.setattr(f"gkafka.net.looks.{longest}", 100.0)
    sasl.session_ms = 400
    client = connect(cluster, **options("PLAIN"))
    client.connect()
    run.until(lambda: sasl.renewed >= 4)
    assert sasl.expired == 0


def test_each_renewal_has_a_token_of_its_own(run: Runner, connect: Connect, cluster: MockCluster, sasl: Sasl) -> None:
    given: list[str] = []

    def provider() -> str:
        given.append(f"t0ken-{len(given)}")
        sasl.tokens.append(given[-1])
        return given[-1]

    sasl.session_ms = 200
    client = connect(cluster, **CLEAR, sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=provider)
    client.connect()
    run.until(lambda: sasl.renewed >= 3)
    assert len(given) >= 4
    assert cluster.count("ApiVersions") == 1


def test_what_is_asked_during_a_renewal_waits_for_its_end(run: Runner, connect: Connect, cluster: MockCluster, sasl: Sasl) -> None:
    sasl.session_ms = 1000
    client = connect(cluster, **options("SCRAM-SHA-256"))
    client.connect()
    cluster.on("SaslAuthenticate", held := Held())
    run.until(lambda: held.holds)
    asking = run.aside(client.list_offsets, {("t", 0): -1})
    assert run.stays(lambda: asking.running, 0.1)
    held.released = True
    assert asking.result() == {("t", 0): 0}
    assert (sasl.expired, cluster.count("ApiVersions")) == (0, 1)
    in_order = [request.api for request in cluster.requests() if request.api in ("SaslHandshake", "SaslAuthenticate", "ListOffsets")]
    assert in_order[-4:] == ["SaslHandshake", "SaslAuthenticate", "SaslAuthenticate", "ListOffsets"]


def test_what_is_parked_at_the_broker_is_answered_before_a_renewal(run: Runner, connect: Connect, cluster: MockCluster, sasl: Sasl) -> None:
    """A long poll of two sessions: the renewal is sent behind it, and the broker takes that although the session is over."""
    sasl.session_ms, sasl.grace_ms = 300, 60_000
    client = connect(cluster, **options("PLAIN"))
    client.get_producer().produce("t", b"x").result(LIMIT_S)
    cluster.on("Fetch", held := Held())
    consumer = client.get_consumer("t")
    reading = run.aside(lambda: consumer.consume(timeout_ms=LIMIT_S * 1000))
    run.until(lambda: held.holds)
    before = sasl.renewed
    run.until(lambda: sasl.renewed >= before + 2 * 2)  # those of the control and of the producer, twice
    assert reading.running
    held.released = True
    message = reading.result()
    assert message is not None
    assert message.value == b"x"
    before = sasl.renewed
    run.until(lambda: sasl.renewed >= before + 2 * 3)
    assert (sasl.expired, cluster.count("ApiVersions")) == (0, 3), "none was made anew"


def test_credentials_that_are_late_do_not_end_the_session_early(
    run: Runner, connect: Connect, cluster: MockCluster, sasl: Sasl, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker is content until the session ends: a provider that fails for a moment costs nothing."""
    calls: list[int] = []

    def provider() -> str:
        calls.append(1)
        if len(calls) == 2:
            raise TimeoutError("the identity provider is busy")
        return TOKEN

    sasl.session_ms = 12000
    client = connect(cluster, **CLEAR, sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=provider)
    client.connect()
    (broker,) = client.brokers.values()
    session: Any = next(iter(broker._channels.values()))._session
    session.renew_at = 0.0  # rather than waiting for 85 % of it
    run.until(lambda: len(calls) == 2 and session.renew_at < float("inf"))
    assert "gave no credentials: it raised TimeoutError" in caplog.text
    run.until(lambda: sasl.renewed == 1)
    assert cluster.count("ApiVersions") == 1


def test_a_renewal_that_is_refused_ends_in_the_refusal_and_not_in_silence(
    run: Runner, connect: Connect, cluster: MockCluster, sasl: Sasl
) -> None:
    sasl.session_ms = 200
    client = connect(cluster, **options("PLAIN"))
    client.connect()
    sasl.users[USER] = "another"
    run.until(lambda: sasl.refused >= 1)

    def refused() -> bool:
        try:
            client.update_cluster()
        except AuthenticationError:
            return True
        return False

    run.until(refused)


@pytest.mark.parametrize("answer", [Error(58), Close(), Error(34)])
def test_a_renewal_that_fails_once_costs_a_connection_and_no_record(
    run: Runner, connect: Connect, cluster: MockCluster, sasl: Sasl, answer: Any
) -> None:
    sasl.session_ms = 300
    client = connect(cluster, **options("PLAIN"))
    producer = client.get_producer(linger_ms=0)
    producer.produce("t", b"0").result(LIMIT_S)
    renewed = sasl.renewed
    cluster.on("SaslAuthenticate", answer, when=lambda request: sasl.renewed > renewed)
    produced: list[Any] = []
    for _ in during(1.2, pause=0):
        produced.append(producer.produce("t", str(len(produced) + 1).encode()))
        run.sleep(0.005)
    assert [delivery.exception(LIMIT_S) for delivery in produced] == [None] * len(produced)
    assert [int(record.value or b"") for record in cluster.log("t", 0)] == list(range(len(produced) + 1))


def test_closing_during_a_renewal_waits_for_nothing(run: Runner, connect: Connect, cluster: MockCluster, sasl: Sasl) -> None:
    sasl.session_ms = 200
    client = connect(cluster, **options("PLAIN"))
    client.connect()
    cluster.on("SaslAuthenticate", held := Held())
    run.until(lambda: held.holds)
    begun = now()
    client.close()
    assert now() - begun < 30
    held.released = True


# -- options ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"sasl_mechanism": "PLAIN"}, "sasl_mechanism with security_protocol='PLAINTEXT'"),
        ({"sasl_mechanism": "PLAIN", "security_protocol": "SSL"}, "set security_protocol='SASL_SSL'"),
        ({"sasl_username": USER}, "sasl_username with security_protocol='PLAINTEXT'"),
        ({"allow_plaintext_credentials": True}, "allow_plaintext_credentials with"),
        ({"security_protocol": "SASL_SSL"}, "without sasl_mechanism: give one of PLAIN, "),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "PLANE"}, "did you mean 'PLAIN'"),
        ({"security_protocol": "SASL_SLS", "sasl_mechanism": "PLAIN"}, "did you mean 'SASL_SSL'"),
        ({**CLEAR, "sasl_mechanism": "PLAIN", "sasl_username": USER}, "sasl_username without sasl_password"),
        ({**CLEAR, "sasl_mechanism": "PLAIN", "sasl_password": PASSWORD}, "sasl_password without sasl_username"),
        ({**CLEAR, "sasl_mechanism": "SCRAM-SHA-256"}, "'SCRAM-SHA-256' without sasl_username"),
        ({**CLEAR, "sasl_mechanism": "PLAIN", "sasl_username": "a\0b", "sasl_password": PASSWORD}, "NUL"),
        ({**options("PLAIN"), "sasl_oauth_token_provider": lambda: TOKEN}, "sasl_oauth_token_provider with sasl_mechanism='PLAIN'"),
        ({**options("OAUTHBEARER"), "sasl_username": USER}, "sasl_username with sasl_mechanism='OAUTHBEARER'"),
        ({**CLEAR, "sasl_mechanism": "OAUTHBEARER"}, "without a source of tokens"),
        ({**CLEAR, "sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": TOKEN}, "must be a callable .*not str"),
        ({**options("OAUTHBEARER"), "sasl_oauth_scope": "kafka"}, "together with sasl_oauth_scope"),
        ({**options("OAUTHBEARER"), "sasl_oauth_extensions": {"auth": "x"}}, "sasl_oauth_extensions: 'auth': a name has letters alone"),
        ({**options("OAUTHBEARER"), "sasl_oauth_extensions": {"a b": "x"}}, "sasl_oauth_extensions: 'a b'"),
        ({**options("OAUTHBEARER"), "sasl_oauth_extensions": {1: "x"}}, "sasl_oauth_extensions: 1"),
        ({**options("OAUTHBEARER"), "sasl_oauth_extensions": {"a": 1}}, "sasl_oauth_extensions: 'a': its value is no text"),
        ({**options("OAUTHBEARER"), "sasl_oauth_extensions": {"a": "x\x01y"}}, "sasl_oauth_extensions: 'a'"),
        ({**options("OAUTHBEARER"), "sasl_oauth_extensions": {"a": ""}}, "sasl_oauth_extensions: 'a'"),
        ({**CLEAR, "sasl_mechanism": "AWS_MSK_IAM"}, "without sasl_aws_region"),
        ({**CLEAR, "sasl_mechanism": "AWS_MSK_IAM", "sasl_aws_region": "eu-west-1"}, r"pip install 'gkafka\[aws-msk-iam\]'"),
        ({**CLEAR, "sasl_mechanism": "GSSAPI", "sasl_kerberos_service_name": "kafka2"}, r"pip install 'gkafka\[gssapi\]'"),
        ({**CLEAR, "sasl_mechanism": "GSSAPI", "sasl_kerberos_domain_name": "kdc"}, r"pip install 'gkafka\[gssapi\]'"),
        ({**options("PLAIN"), "allow_plaintext_credentials": False}, "clear text: use 'SASL_SSL'"),
        ({**options("OAUTHBEARER"), "allow_plaintext_credentials": False}, "clear text: use 'SASL_SSL'"),
        ({**options("PLAIN"), "sasl_password": 7}, "sasl_password: must be str or callable, not int"),
        ({**options("PLAIN"), "ssl_cafile": "/ca.pem"}, "set security_protocol='SASL_SSL'"),
    ],
)
def test_options_that_make_no_sense_together_are_told_before_anything_connects(
    connect: Connect, cluster: MockCluster, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], text: str
) -> None:
    for library in ("gssapi", "aws_msk_iam_sasl_signer"):
        monkeypatch.setitem(__import__("sys").modules, library, None)
    with pytest.raises(ConfigurationError, match=text) as caught:
        connect(cluster, **given)
    assert PASSWORD not in str(caught.value)
    assert TOKEN not in str(caught.value)
    assert cluster.connections() == 0


def test_scram_proves_the_password_without_sending_it_so_clear_text_is_allowed(connect: Connect, cluster: MockCluster) -> None:
    given = {**options("SCRAM-SHA-256"), "allow_plaintext_credentials": False}
    connect(cluster, **given).connect()
    sent = b"".join(bytes(request.message.auth_bytes) for request in cluster.requests("SaslAuthenticate"))
    assert PASSWORD.encode() not in sent


# -- secrets ---------------------------------------------------------------------------------------------------------------
@pytest.fixture
def everything_logged(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.DEBUG):
        yield caplog


def shown(client: KafkaClient) -> str:
    """The reprs of all that the client holds, however deep."""
    seen: dict[int, Any] = {}
    waiting: list[Any] = [client]
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, type) or not _ours(one):
            continue
        seen[id(one)] = one
        waiting += gc.get_referents(one)
    texts = []
    for one in seen.values():
        with contextlib.suppress(Exception):
            texts.append(repr(one))
    return "\n".join(texts)


def _ours(one: Any) -> bool:
    plain = (dict, list, tuple, set, str, bytes, bytearray)
    return isinstance(one, plain) or type(one).__module__.startswith(("gkafka", "collections", "weakref"))


@pytest.mark.parametrize("good", [True, False], ids=["right", "wrong"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_b65_no_secret_is_in_logs_errors_or_objects(
    run: Runner, connect: Connect, cluster: MockCluster, sasl: Sasl, everything_logged: pytest.LogCaptureFixture, mechanism: str, good: bool
) -> None:
    secret = (TOKEN if mechanism == "OAUTHBEARER" else PASSWORD) if good else "wr0ng-" + PASSWORD
    sasl.session_ms = 300
    client = connect(cluster, **options(mechanism, secret))
    texts: list[str] = []
    try:
        client.connect()
        client.get_producer().produce("t", b"x").result(LIMIT_S)
        texts.append(repr(client.get_consumer("t").explain()))
        run.until(lambda: sasl.renewed >= 2)
    except AuthenticationError as error:
        assert not good
        trace = traceback.TracebackException.from_exception(error, capture_locals=True)
        ours = [frame for frame in trace.stack if is_ours(frame)]
        assert ours
        texts += ["".join(trace.format_exception_only()), *(repr(frame.locals) for frame in ours)]
        with contextlib.suppress(TypeError):
            texts.append(repr(pickle.dumps(error)))
    texts += [everything_logged.text, repr(client.stats()), repr(client), shown(client), repr(client._config)]
    assert len(everything_logged.records) >= 2
    assert len(shown(client)) > 1000
    encoded = "".join(texts)
    for hidden in (secret, "s3cret"):
        assert hidden not in encoded


@pytest.mark.parametrize("name", ["sasl_password", "sasl_plain_password", "sasl.password", "sasl_oauth_client_secret"])
def test_a_wrong_option_beside_a_secret_does_not_show_it(cluster: MockCluster, name: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        KafkaClient(cluster.bootstrap, **{name: PASSWORD, "no_such_option": 1})
    trace = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    shown_locals = [repr(frame.locals) for frame in trace.stack if is_ours(frame)]
    assert len(shown_locals) >= 2
    assert PASSWORD not in "".join(shown_locals) + str(caught.value)
