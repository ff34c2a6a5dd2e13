"""KafkaConsumer's sasl_ options (behaviour 274), on brokers that ask who it is."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import gkafka
from gkafka.config import ClientConfig
from gkafka.kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, legacy
from gkafka.kafka.client_async import KafkaClient as VersionClient
from gkafka.kafka.errors import KafkaConfigurationError, KafkaError, SaslAuthenticationFailedError
from gkafka.testing import Error, MockCluster, Sasl
from tests.kafka.conftest import Make
from tests.net.certificates import Certificates
from tests.net.proxies import FakeProxy, running
from tests.net.servers import serve

OTHERS = ("security_protocol", "proxy_url")

PLAIN = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_plain_username": "alice",
    "sasl_plain_password": "s3same",
    "allow_plaintext_credentials": True,
}


@pytest.fixture
def guarded(make_cluster: Make) -> MockCluster:
    made: MockCluster = make_cluster(sasl=Sasl({"alice": "s3same"}, tokens=["token"]))
    return made


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_sasl_mechanism_and_the_name_and_password_let_in(consumer: Make, guarded: MockCluster, mechanism: str) -> None:
    """Behaviour 274: sasl_mechanism, sasl_plain_username, sasl_plain_password."""
    own: dict[str, Any] = {**PLAIN, "sasl_mechanism": mechanism}
    if mechanism != "PLAIN":
        del own["allow_plaintext_credentials"]  # the password is not sent
    assert consumer(guarded, **own).topics() == {"t"}
    with pytest.raises(SaslAuthenticationFailedError, match="error 58"):
        consumer(guarded, **{**own, "sasl_plain_password": "wrong"})
    with pytest.raises(KafkaError):
        consumer(guarded, api_version_auto_timeout_ms=500)


def test_sasl_oauth_token_provider_gives_the_token(consumer: Make, guarded: MockCluster) -> None:
    """Behaviour 274."""
    own = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER", "allow_plaintext_credentials": True}
    assert consumer(guarded, **own, sasl_oauth_token_provider=lambda: "token").topics() == {"t"}


def test_tokens_may_come_from_an_endpoint(consumer: Make, make_cluster: Make, tmp_path: Path) -> None:
    sasl = Sasl(tokens=["token"])
    guarded: MockCluster = make_cluster(sasl=sasl)
    certs = Certificates(tmp_path)
    asked: list[bytes] = []

    def answer(conn: Any) -> None:
        asked.append(conn.recv(8000))
        body = b'{"access_token": "token", "expires_in": 60}'
        conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

    context = certs.server()
    with serve(answer, wrap=lambda conn: context.wrap_socket(conn, server_side=True)) as port:
        own = {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "OAUTHBEARER",
            "allow_plaintext_credentials": True,
            "sasl_oauth_token_endpoint_url": f"https://localhost:{port}/token",
            "sasl_oauth_client_id": "id",
            "sasl_oauth_client_secret": lambda: "hush",
            "sasl_oauth_scope": "kafka",
            "sasl_oauth_cafile": certs.ca,
            "sasl_oauth_extensions": {"logicalCluster": "lkc-1"},
        }
        assert consumer(guarded, **own).topics() == {"t"}
    assert b"scope=kafka" in asked[0]
    assert b"Authorization: Basic aWQ6aHVzaA==" in asked[0]
    assert sasl.extensions == {"logicalCluster": "lkc-1"}


@pytest.fixture
def asked() -> list[bytes]:
    """What a token endpoint on this machine was asked."""
    return []


@pytest.fixture
def sidecar(asked: list[bytes]) -> Iterator[int]:
    """The port of one, without TLS."""

    def answer(conn: Any) -> None:
        asked.append(conn.recv(8000))
        conn.sendall(b'HTTP/1.0 200 OK\r\n\r\n{"access_token": "token", "expires_in": 60}')

    with serve(answer) as port:
        yield port


BEARER: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER", "allow_plaintext_credentials": True}


def test_a_sidecar_gives_tokens_by_http_and_is_asked_as_it_wants(
    consumer: Make, guarded: MockCluster, sidecar: int, asked: list[bytes]
) -> None:
    """sasl_oauth_audience, sasl_oauth_form_fields, sasl_oauth_client_auth."""
    own = {**BEARER, "sasl_oauth_token_endpoint_url": f"localhost:{sidecar}"}
    assert consumer(guarded, **own).topics() == {"t"}
    more = {"sasl_oauth_audience": "kafka", "sasl_oauth_form_fields": {"resource": "r"}, "sasl_oauth_client_auth": "client_secret_post"}
    assert consumer(guarded, **own, **more, sasl_oauth_client_id="id", sasl_oauth_client_secret="hush").topics() == {"t"}
    assert [request.partition(b"\r\n\r\n")[2] for request in (asked[0], asked[-1])] == [
        b"grant_type=client_credentials",
        b"grant_type=client_credentials&audience=kafka&resource=r&client_id=id&client_secret=hush",
    ]


def test_http_and_a_proxy_to_an_endpoint_elsewhere(consumer: Make, guarded: MockCluster, sidecar: int, asked: list[bytes]) -> None:
    """sasl_oauth_allow_http, sasl_oauth_proxy_url."""
    url = "http://login.example/token"
    own = {**BEARER, "sasl_oauth_token_endpoint_url": url, "sasl_oauth_client_id": "id", "sasl_oauth_client_secret": "hush"}
    with pytest.raises(KafkaConfigurationError, match="sasl_oauth_allow_http=True"):
        consumer(guarded, **own)
    proxy = FakeProxy({"login.example": ("127.0.0.1", sidecar)})
    with running(proxy, "http") as port:
        through = {"sasl_oauth_proxy_url": f"http://127.0.0.1:{port}", "sasl_oauth_allow_http": True}
        assert consumer(guarded, **own, **through).topics() == {"t"}
    assert (len(proxy.asked), proxy.asked[0], b"Host: login.example\r\n" in asked[0]) == (len(asked), ("login.example", 80), True)


@pytest.mark.parametrize("patience_ms", [30000, 0])
def test_sasl_retry_timeout_ms_is_how_long_a_refusal_is_not_believed(
    consumer: Make, producer: Make, guarded: MockCluster, patience_ms: int
) -> None:
    own = {**PLAIN, "sasl_retry_timeout_ms": patience_ms, "reconnect_backoff_max_ms": 100}
    made = producer(guarded, **own, retries=5)  # a request may be under way when the connection ends
    made.send("t", b"1").get(60)
    reader = consumer(guarded, "t", **own, auto_offset_reset="earliest")
    assert next(reader).value == b"1"
    guarded.on("SaslAuthenticate", Error(58), times=4 if patience_ms else None)  # other connections are opened, too
    guarded.close_connections()
    if patience_ms:
        made.send("t", b"2").get(60)
        assert next(reader).value == b"2"
    else:
        with pytest.raises(SaslAuthenticationFailedError):
            made.send("t", b"2").get(60)


def test_sasl_aws_region_is_what_amazons_signer_signs_for(consumer: Make, guarded: MockCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    signer = types.SimpleNamespace(generate_auth_token=lambda region: ("token" if region == "eu-west-1" else "wrong", 1))
    monkeypatch.setattr("gkafka.net.credentials._load", lambda mechanism: signer)
    own = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "AWS_MSK_IAM", "allow_plaintext_credentials": True}
    with pytest.raises(KafkaConfigurationError, match="without sasl_aws_region"):
        consumer(guarded, **own)
    assert consumer(guarded, **own, sasl_aws_region="eu-west-1").topics() == {"t"}


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ({"sasl_aws_profile": "me"}, ("profile", "eu-west-1", "me")),
        ({"sasl_aws_role_arn": "arn:r", "sasl_aws_role_session_name": "s"}, ("role", "eu-west-1", "arn:r", "s")),
    ],
)
def test_sasl_aws_profile_or_role_says_as_whom_amazons_signer_signs(
    consumer: Make, guarded: MockCluster, monkeypatch: pytest.MonkeyPatch, options: dict[str, str], asked: tuple[str, ...]
) -> None:
    def of(kind: str) -> Callable[..., tuple[str, int]]:
        return lambda *given: ("token" if (kind, *given) == asked else "wrong", 1)

    signer = types.SimpleNamespace(generate_auth_token_from_profile=of("profile"), generate_auth_token_from_role_arn=of("role"))
    monkeypatch.setattr("gkafka.net.credentials._load", lambda mechanism: signer)
    own = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "AWS_MSK_IAM", "allow_plaintext_credentials": True}
    made = consumer(guarded, **own, sasl_aws_region="eu-west-1", **options)
    assert made.topics() == {"t"}
    assert {name: made.config[name] for name in ("sasl_aws_profile", "sasl_aws_role_arn", "sasl_aws_role_session_name")} == {
        "sasl_aws_profile": options.get("sasl_aws_profile"),
        "sasl_aws_role_arn": options.get("sasl_aws_role_arn"),
        "sasl_aws_role_session_name": options.get("sasl_aws_role_session_name"),
    }


SECURITY = [f.name for f in dataclasses.fields(ClientConfig) if f.name.startswith(("ssl_", "tls_", "sasl_", "allow_")) or f.name in OTHERS]
SKINS: dict[str, Callable[..., Any]] = {
    "KafkaConsumer": KafkaConsumer,
    "KafkaProducer": KafkaProducer,
    "KafkaAdminClient": KafkaAdminClient,
    "client_async.KafkaClient": VersionClient,
    "legacy.KafkaConsumer": lambda **given: legacy.KafkaConsumer("t", **given),
    "legacy.KafkaClient": lambda bootstrap_servers, **given: legacy.KafkaClient(bootstrap_servers, **given),
    "gkafka.KafkaClient": lambda bootstrap_servers, **given: gkafka.KafkaClient(bootstrap_servers, **given),
}


class Reached(Exception):
    """The options have been taken."""


@pytest.mark.parametrize("name", SECURITY)
@pytest.mark.parametrize("skin", SKINS)
def test_every_class_takes_every_native_option_of_security(skin: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[dict[str, Any]] = []

    def stop(self: Any, *hosts: Any, **options: Any) -> None:
        taken.append(options)
        raise Reached

    monkeypatch.setattr(gkafka.KafkaClient, "__init__", stop)
    with pytest.raises(Reached):
        SKINS[skin](bootstrap_servers="127.0.0.1:1", handler="threading", **{name: "given"})
    assert taken[0][name] == "given"


@pytest.mark.parametrize("skin", [name for name in SKINS if name != "gkafka.KafkaClient"])
def test_a_password_under_both_names_is_refused(skin: str) -> None:
    with pytest.raises(KafkaConfigurationError, match="'sasl_plain_password' is given twice, once by gkafka's own name"):
        SKINS[skin](bootstrap_servers="127.0.0.1:1", sasl_password="a", sasl_plain_password="b")


def test_allow_plaintext_credentials_is_the_word_that_a_password_in_clear_text_takes(consumer: Make, guarded: MockCluster) -> None:
    """Behaviour 274."""
    assert KafkaConsumer.DEFAULT_CONFIG["allow_plaintext_credentials"] is False
    without = {name: value for name, value in PLAIN.items() if name != "allow_plaintext_credentials"}
    for options in (without, {**without, "allow_plaintext_credentials": False}):
        with pytest.raises(KafkaConfigurationError, match=r"or, where nobody can listen, allow_plaintext_credentials=True"):
            consumer(guarded, **options)
    assert not guarded.requests(), "nothing was sent"
    assert consumer(guarded, **without, allow_plaintext_credentials=True).topics() == {"t"}
    assert guarded.count("SaslAuthenticate") > 0
    with pytest.raises(KafkaConfigurationError, match="allow_plaintext_credentials='yes'"):
        consumer(guarded, **without, allow_plaintext_credentials="yes")


@pytest.mark.parametrize(
    "wrong",
    [
        {"sasl_plain_username": "alice"},
        {"sasl_mechanism": "PLAIN"},
        {**PLAIN, "sasl_mechanism": "NTLM"},
        {**PLAIN, "sasl_plain_password": None},
        {**PLAIN, "sasl_kerberos_service_name": "other"},
        {**PLAIN, "sasl_kerberos_domain_name": "other"},
    ],
    ids=str,
)
def test_sasl_options_that_could_have_no_effect_are_refused(consumer: Make, guarded: MockCluster, wrong: dict[str, Any]) -> None:
    """Behaviour 274: sasl_kerberos_service_name and sasl_kerberos_domain_name are of another mechanism."""
    assert KafkaConsumer.DEFAULT_CONFIG["sasl_kerberos_service_name"] == "kafka"
    with pytest.raises(KafkaConfigurationError) as caught:
        consumer(guarded, **wrong)
    assert "s3same" not in str(caught.value)
