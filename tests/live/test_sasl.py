"""F28, G30: clients that say who they are to a real Kafka, with its own validators of passwords and tokens."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from gkafka import KafkaClient, SslConfig
from gkafka.exceptions import (
    AuthenticationError,
    IllegalSaslState,
    KafkaException,
    SaslAuthenticationFailed,
    SocketDisconnectedError,
    UnsupportedSaslMechanism,
)
from gkafka.kafka import KafkaConsumer, KafkaProducer
from tests.frames import is_ours
from tests.kit.clock import PATIENCE_S, now
from tests.live.renewals import play
from tests.live.saslkafka import ODD_PASSWORD, PASSWORD, SESSION_MS, USER, SaslKafka, sasl_kafka, unsigned_token
from tests.live.sharing import until
from tests.net.recorder import Recorder

SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = ("PLAIN", *SCRAM, "OAUTHBEARER")


@pytest.fixture
def kafka() -> SaslKafka:
    return sasl_kafka()


@pytest.fixture
def dial(kafka: SaslKafka, handler: str) -> Iterator[Callable[..., KafkaClient]]:
    """Makes clients of one of the broker's listeners, by a relay that counts and writes down."""
    with ExitStack() as stack:

        def client(listener: str, mechanism: str, **options: Any) -> KafkaClient:
            relay = stack.enter_context(Recorder(kafka.port(listener)).running())
            made = KafkaClient(f"127.0.0.1:{relay.port}", handler=handler, **given(kafka, listener, mechanism), **options)
            stack.callback(made.close, 5)
            relays[made] = relay
            return made

        yield client


relays: dict[KafkaClient, Recorder] = {}


def given(kafka: SaslKafka, listener: str, mechanism: str) -> dict[str, Any]:
    options: dict[str, Any] = {"sasl_mechanism": mechanism, "reconnect_backoff_ms": 100}
    if listener in ("SECURE", "SIGNED"):
        return options | {"security_protocol": "SASL_SSL", "ssl_cafile": kafka.certs.ca}
    clear = {} if mechanism in SCRAM else {"allow_plaintext_credentials": True}
    return options | {"security_protocol": "SASL_PLAINTEXT"} | clear


def who(mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
    if mechanism == "OAUTHBEARER":
        return {"sasl_oauth_token_provider": unsigned_token}
    return {"sasl_username": USER, "sasl_password": password}


def refusal(client: KafkaClient) -> AuthenticationError:
    """What connect() says; long before its time is over, and by one connection."""
    began = now()
    with pytest.raises(AuthenticationError) as caught:
        client.connect(120)
    assert now() - began < 60
    assert len(relays[client].sent) == 1
    return caught.value


# -- who is let in -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("listener", ["SASL", "SECURE"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_f28_every_mechanism_produces_and_consumes(
    kafka: SaslKafka, dial: Callable[..., KafkaClient], new_name: Callable[[str], str], mechanism: str, listener: str
) -> None:
    client, topic = dial(listener, mechanism, **who(mechanism)), new_name("sasl")
    kafka.cluster.create_topic(topic)
    client.get_producer().produce(topic, b"x").result(60)
    message = client.get_consumer(topic).consume(timeout_ms=60_000)
    assert message is not None
    assert message.value == b"x"


@pytest.mark.parametrize("mechanism", SCRAM)
def test_passwords_are_what_kafka_keeps_without_saslprep(dial: Callable[..., KafkaClient], mechanism: str) -> None:
    dial("SASL", mechanism, sasl_username="odd", sasl_password=ODD_PASSWORD).connect(10)
    with pytest.raises(SaslAuthenticationFailed):
        dial("SASL", mechanism, sasl_username="odd", sasl_password="fineas3cret").connect(10)


@pytest.mark.parametrize("mechanism", SCRAM)
def test_whom_an_administrator_gives_a_password_is_let_in_by_it(
    kafka: SaslKafka, dial: Callable[..., KafkaClient], new_name: Callable[[str], str], mechanism: str
) -> None:
    user, password = new_name("user"), "pencil-ü-✓"
    admin = dial("SASL", mechanism, **who(mechanism)).admin()
    admin.set_user(user, password, mechanism, iterations=4096)
    until(lambda: admin.describe_users().get(user))
    dial("SASL", mechanism, sasl_username=user, sasl_password=password).connect(10)
    other = AdminClient(
        {
            "bootstrap.servers": f"127.0.0.1:{kafka.port('SASL')}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
            "log_level": 0,
        }
    )
    assert other.list_topics(timeout=20).brokers
    admin.delete_user(user, mechanism)
    until(lambda: user not in admin.describe_users())
    with pytest.raises(SaslAuthenticationFailed):
        dial("SASL", mechanism, sasl_username=user, sasl_password=password).connect(10)


@pytest.mark.parametrize("mechanism", SCRAM)
def test_a_user_that_the_admin_api_made_is_let_in(kafka: SaslKafka, dial: Callable[..., KafkaClient], handler: str, mechanism: str) -> None:
    name, password = f"made=by,{handler}", "s3cret=of,ours"
    with KafkaClient(kafka.hosts, handler=handler) as client:
        client.admin().set_user(name, password, mechanism)
    dial("SECURE", mechanism, sasl_username=name, sasl_password=password).connect(10)


def test_kafka_pythons_sasl_options(kafka: SaslKafka, handler: str, new_name: Callable[[str], str]) -> None:
    """Behaviour 274: of gkafka.kafka's KafkaProducer and KafkaConsumer, with and without TLS."""
    topic = new_name("facade")
    kafka.cluster.create_topic(topic)
    plain = {"sasl_mechanism": "PLAIN", "sasl_plain_username": USER, "sasl_plain_password": PASSWORD, "handler": handler}
    clear = {"security_protocol": "SASL_PLAINTEXT", "allow_plaintext_credentials": True}
    for at, (listener, more) in enumerate((("SASL", clear), ("SECURE", {"security_protocol": "SASL_SSL", "ssl_cafile": kafka.certs.ca}))):
        options: dict[str, Any] = {"bootstrap_servers": f"127.0.0.1:{kafka.port(listener)}", **plain, **more}
        with KafkaProducer(**options, retries=100) as producer:
            assert producer.send(topic, b"v").get(60).offset == at
        with KafkaConsumer(topic, **options, auto_offset_reset="earliest", consumer_timeout_ms=60_000) as consumer:
            assert next(consumer).value == b"v"
        for kind in (KafkaProducer, KafkaConsumer):
            with pytest.raises(SaslAuthenticationFailed):
                kind(**{**options, "sasl_plain_password": "wrong"})


def test_pykafkas_ssl_config_goes_with_sasl(kafka: SaslKafka, handler: str) -> None:
    ssl_config = SslConfig(kafka.certs.ca)
    given = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}
    with KafkaClient(f"127.0.0.1:{kafka.port('SECURE')}", ssl_config=ssl_config, handler=handler, **given, **who("PLAIN")) as client:
        client.connect(10)
        assert client.brokers


def test_scram_sends_no_password(dial: Callable[..., KafkaClient]) -> None:
    client = dial("SASL", "SCRAM-SHA-512", **who("SCRAM-SHA-512"))
    client.connect(10)
    assert USER.encode() in relays[client].all_sent
    assert PASSWORD.encode() not in relays[client].all_sent


def test_tokens_of_an_issuer_are_taken_and_others_refused(kafka: SaslKafka, dial: Callable[..., KafkaClient]) -> None:
    dial("SIGNED", "OAUTHBEARER", sasl_oauth_token_provider=kafka.issuer.token).connect(10)
    for token in (kafka.issuer.token(-5), kafka.issuer.token(audience="another"), unsigned_token(), kafka.issuer.token()[:-8] + "AAAAAAAA"):
        error = refusal(dial("SIGNED", "OAUTHBEARER", sasl_oauth_token_provider=lambda token=token: token))
        assert isinstance(error, SaslAuthenticationFailed)
        assert "invalid_token" in str(error)
        assert token not in str(error)


def test_a_token_endpoint_is_asked_once_for_all_connections(
    kafka: SaslKafka, dial: Callable[..., KafkaClient], new_name: Callable[[str], str]
) -> None:
    topic, before = new_name("oidc"), kafka.issuer.given
    kafka.cluster.create_topic(topic)
    client = dial("SIGNED", "OAUTHBEARER", **endpoint(kafka))
    client.get_producer().produce(topic, b"x").result(60)
    assert client.get_consumer(topic).consume(timeout_ms=60_000) is not None
    assert kafka.issuer.given == before + 1
    with pytest.raises(AuthenticationError, match=r"token endpoint .*401: invalid_client"):
        dial("SIGNED", "OAUTHBEARER", **{**endpoint(kafka), "sasl_oauth_client_secret": "another"}).connect(10)


def endpoint(kafka: SaslKafka) -> dict[str, Any]:
    return {
        "sasl_oauth_token_endpoint_url": f"https://localhost:{kafka.issuer.port}/token",
        "sasl_oauth_client_id": kafka.issuer.CLIENT,
        "sasl_oauth_client_secret": kafka.issuer.SECRET,
        "sasl_oauth_cafile": kafka.certs.ca,
    }


# -- who is not ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("listener", ["SASL", "SECURE"])
@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAM])
def test_f28_b68_a_wrong_password_is_told_at_once_by_one_connection(
    dial: Callable[..., KafkaClient], mechanism: str, listener: str
) -> None:
    error = refusal(dial(listener, mechanism, **who(mechanism, "wr0ng-secret")))
    assert isinstance(error, SaslAuthenticationFailed)
    assert "invalid" in str(error).lower()
    assert "wr0ng" not in str(error)


def test_f28_an_expired_token_is_told_at_once(dial: Callable[..., KafkaClient]) -> None:
    error = refusal(dial("SASL", "OAUTHBEARER", sasl_oauth_token_provider=lambda: unsigned_token(-5)))
    assert isinstance(error, SaslAuthenticationFailed)
    assert "invalid_token" in str(error)


def test_f28_a_refused_client_comes_once_in_a_pause(dial: Callable[..., KafkaClient]) -> None:
    """Pauses of 0.1 s, doubling, with jitter: however often it is called."""
    client = dial("SASL", "PLAIN", **who("PLAIN", "wr0ng-secret"))
    began = now()
    while len(relays[client].sent) < 5:
        assert now() - began < PATIENCE_S
        with pytest.raises(AuthenticationError):
            client.connect(10)
        client.handler.sleep(0.01)
    assert now() - began >= (0.1 + 0.2 + 0.4 + 0.8) * 0.75


def test_a_mechanism_that_the_listener_has_not_is_told_with_those_that_it_has(dial: Callable[..., KafkaClient]) -> None:
    error = refusal(dial("SIGNED", "SCRAM-SHA-256", **who("SCRAM-SHA-256")))
    assert isinstance(error, UnsupportedSaslMechanism)
    assert "it offers OAUTHBEARER;" in str(error)


def test_sasl_to_the_listener_without_it(kafka: SaslKafka, handler: str) -> None:
    with (
        KafkaClient(kafka.hosts, handler=handler, **given(kafka, "SASL", "PLAIN"), **who("PLAIN")) as client,
        pytest.raises(IllegalSaslState, match="see whether the listener is one for SASL"),
    ):
        client.connect(10)


def test_no_sasl_to_a_listener_that_asks_for_it(kafka: SaslKafka, handler: str) -> None:
    with (
        KafkaClient(f"127.0.0.1:{kafka.port('SASL')}", handler=handler, api_timeout_ms=5000) as client,
        pytest.raises((KafkaException, SocketDisconnectedError), match="closed the connection"),
    ):
        client.connect()


# -- sessions ------------------------------------------------------------------------------------------------------------
def test_g30_sessions_of_five_seconds_are_renewed_under_load(kafka: SaslKafka, handler: str, new_name: Callable[[str], str]) -> None:
    """The long form: python -m tests.live.renewals."""
    topic = new_name("renewals")
    kafka.cluster.create_topic(topic)
    mechanism = {"threading": "SCRAM-SHA-512", "gevent": "OAUTHBEARER"}[handler]
    played = play(kafka.port("SHORT"), topic, handler=handler, mechanism=mechanism, seconds=3 * SESSION_MS / 1000, rate=2000)
    assert played.passed, played


def test_a_tokens_end_renews_the_session_with_a_new_token(kafka: SaslKafka, dial: Callable[..., KafkaClient]) -> None:
    given: list[str] = []

    def provider() -> str:
        given.append(kafka.issuer.token(3.0))
        return given[-1]

    client = dial("SIGNED", "OAUTHBEARER", sasl_oauth_token_provider=provider)
    client.connect(10)
    deadline = now() + PATIENCE_S
    while len(given) < 3:
        assert now() < deadline
        client.update_cluster()
        client.handler.sleep(0.05)
    client.update_cluster()
    assert len(set(given)) == len(given)
    assert len(relays[client].sent) == 1, "one connection all the time"


def test_a_user_whom_the_broker_does_not_know_for_a_moment_loses_no_record(
    kafka: SaslKafka, dial: Callable[..., KafkaClient], new_name: Callable[[str], str], caplog: pytest.LogCaptureFixture
) -> None:
    """As of a broker that serves before it has read its users. The session ends, and the next connections are refused until it knows the user again."""
    mechanism, user, topic = "SCRAM-SHA-512", new_name("user"), new_name("moment")
    kafka.cluster.create_topic(topic)
    admin = dial("SASL", mechanism, **who(mechanism)).admin()
    admin.set_user(user, "pencil", mechanism, iterations=4096)
    until(lambda: admin.describe_users().get(user))
    producer = dial("SHORT", mechanism, sasl_username=user, sasl_password="pencil", reconnect_backoff_max_ms=500).get_producer()
    producer.produce(topic, b"0").result(60)
    admin.delete_user(user, mechanism)
    deliveries: list[Any] = []

    def is_refused() -> bool:
        deliveries.append(producer.produce(topic, b"x"))
        return "this client got in before" in caplog.text

    until(is_refused)
    admin.set_user(user, "pencil", mechanism, iterations=4096)
    offsets = [delivery.result(60).offset for delivery in deliveries]
    assert offsets == list(range(1, len(deliveries) + 1))


# -- secrets ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("good", [True, False], ids=["right", "wrong"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_b65_no_secret_in_the_log_of_everything_nor_in_errors(
    dial: Callable[..., KafkaClient], caplog: pytest.LogCaptureFixture, mechanism: str, good: bool
) -> None:
    tokens: list[str] = []

    def provider() -> str:
        tokens.append(unsigned_token(3600 if good else -5))
        return tokens[-1]

    secret = PASSWORD if good else "wr0ng-" + PASSWORD
    options = {"sasl_oauth_token_provider": provider} if mechanism == "OAUTHBEARER" else who(mechanism, secret)
    texts = []
    with caplog.at_level(logging.DEBUG), suppress(AuthenticationError):
        client = dial("SECURE", mechanism, **options)
        try:
            client.connect(10)
            client.update_cluster()
        except AuthenticationError as error:
            assert not good
            trace = traceback.TracebackException.from_exception(error, capture_locals=True)
            ours = [repr(frame.locals) for frame in trace.stack if is_ours(frame)]
            assert ours
            texts += ours + list(trace.format_exception_only())
            raise
    texts += [caplog.text, repr(client.stats()), repr(client._config)]
    assert "SASL_SSL" in texts[-1]
    for hidden in (secret, "s3cret", *tokens):
        assert hidden not in "".join(texts)
