"""Mechanisms that stand on a library: what it is asked for. The libraries are stand-ins; the missing ones are told in tests/public/test_sasl.py."""

from __future__ import annotations

import dataclasses
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from gkafka.config import ClientConfig
from gkafka.core.sasl import Gssapi, OAuthBearer
from gkafka.exceptions import AuthenticationError, ConfigurationError
from gkafka.handlers import Handler
from gkafka.net.authenticator import Authenticator
from gkafka.net.credentials import Credentials, make_credentials
from gkafka.sasloptions import check_sasl, with_region
from gkafka.wire.apis import Versions
from gkafka.wire.sasl import SaslHandshakeResponse
from tests.kit.clock import soon

SIGNER = "aws_msk_iam_sasl_signer.MSKAuthTokenProvider"  # a module, for all that its name looks like


def credentials(handler: Handler, mechanism: str, **options: Any) -> Credentials:
    made = make_credentials(handler, ClientConfig(security_protocol="SASL_SSL", sasl_mechanism=mechanism, **options))
    assert made is not None
    return made


def library(monkeypatch: pytest.MonkeyPatch, name: str, **members: Any) -> None:
    """A stand-in for a module, and for the packages that it is in."""
    made = ModuleType(name)
    made.__dict__.update(members)
    for package in (name[:at] for at, sign in enumerate(name) if sign == "."):
        monkeypatch.setitem(sys.modules, package, ModuleType(package))
    monkeypatch.setitem(sys.modules, name, made)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A library of Kerberos that notes what it is asked for."""
    calls: list[Any] = []

    class Name:
        def __init__(self, text: str, kind: str) -> None:
            calls.append((text, kind))

        def canonicalize(self, mechanism: str) -> Name:
            return self

    def context(name: Any, usage: str, mech: str) -> Any:
        calls.append((usage, mech))

        def step(token: bytes | None = None) -> bytes:
            raise RuntimeError("no Kerberos credentials available")

        return SimpleNamespace(step=step, complete=False)

    library(
        monkeypatch,
        "gssapi",
        Name=Name,
        NameType=SimpleNamespace(hostbased_service="service"),
        MechType=SimpleNamespace(kerberos="krb5"),
        SecurityContext=context,
    )
    return calls


def test_sasl_kerberos_service_name_and_the_host_make_the_brokers_principal(handler: Handler, asked: list[Any]) -> None:
    made = credentials(handler, "GSSAPI").mechanism("b1.example", soon(60))
    assert isinstance(made, Gssapi)
    assert asked == [("kafka@b1.example", "service"), ("initiate", "krb5")]
    credentials(handler, "GSSAPI", sasl_kerberos_service_name="bus", sasl_kerberos_domain_name="realm.example").mechanism("b1", 0)
    assert asked[2] == ("bus@realm.example", "service"), "sasl_kerberos_domain_name is used in place of the host"


def test_what_a_library_raises_is_an_authentication_error_without_frames(handler: Handler, asked: list[Any]) -> None:
    authenticator = Authenticator(handler, credentials(handler, "GSSAPI"), "b1", "b1:9092")
    with pytest.raises(AuthenticationError, match=r"b1:9092: GSSAPI: RuntimeError: no Kerberos credentials available") as caught:
        authenticator.authenticate(Versions.for_broker("4.2"), lambda said, authentication: SaslHandshakeResponse(), soon(60))
    assert caught.value.__cause__ is not None
    assert caught.value.__cause__.__traceback__ is None


def test_sasl_aws_region_is_what_the_signer_signs_for(handler: Handler, monkeypatch: pytest.MonkeyPatch) -> None:
    regions: list[str] = []

    def generate_auth_token(region: str) -> tuple[str, int]:
        regions.append(region)
        return f"signed-{len(regions)}", 1

    library(monkeypatch, SIGNER, generate_auth_token=generate_auth_token)
    made = credentials(handler, "AWS_MSK_IAM", sasl_aws_region="eu-west-1")
    first, second = (made.mechanism("b1", 0) for _ in range(2))
    assert isinstance(first, OAuthBearer)
    assert first.name == "OAUTHBEARER"
    assert (first.first(), second.first()) == (b"n,,\x01auth=Bearer signed-1\x01\x01", b"n,,\x01auth=Bearer signed-2\x01\x01")
    assert regions == ["eu-west-1"] * 2


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ({"sasl_aws_profile": "p"}, ("from_profile", "eu-west-1", "p")),
        ({"sasl_aws_role_arn": "arn:r"}, ("from_role_arn", "eu-west-1", "arn:r")),
        ({"sasl_aws_role_arn": "arn:r", "sasl_aws_role_session_name": "s"}, ("from_role_arn", "eu-west-1", "arn:r", "s")),
    ],
)
def test_sasl_aws_profile_and_sasl_aws_role_arn_are_handed_to_the_signer(
    options: dict[str, str], asked: tuple[str, ...], handler: Handler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As is the session's name, sasl_aws_role_session_name."""
    calls: list[tuple[str, ...]] = []

    def of(kind: str) -> Any:
        return lambda *given: calls.append((kind, *given)) or ("signed", 1)

    library(monkeypatch, SIGNER, generate_auth_token_from_profile=of("from_profile"), generate_auth_token_from_role_arn=of("from_role_arn"))
    credentials(handler, "AWS_MSK_IAM", sasl_aws_region="eu-west-1", **options).mechanism("b1", 0)
    assert calls == [asked]


@pytest.mark.parametrize(
    ("hosts", "environment", "region"),
    [
        (
            "b-1.demo.c2.kafka.eu-west-1.amazonaws.com:9098,b-2.demo.c2.kafka.eu-west-1.amazonaws.com:9098",
            {"AWS_REGION": "us-east-1"},
            "eu-west-1",
        ),
        ("SASL_SSL://boot-abc.c3.kafka-serverless.us-east-1.amazonaws.com:9098", {}, "us-east-1"),
        ("b-1.demo.kafka.cn-north-1.amazonaws.com.cn", {}, "cn-north-1"),
        (b"b-1.demo.kafka.us-gov-west-1.amazonaws.com:9098", {}, "us-gov-west-1"),
        ("kafka.internal:9098", {"AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "x"}, "us-east-1"),
        ("kafka.internal:9098", {"AWS_DEFAULT_REGION": "ap-south-1"}, "ap-south-1"),
        ("b.kafka.eu-west-1.amazonaws.com.evil.example:9098", {}, None),
        ("h:1", {"AWS_REGION": ""}, None),
    ],
)
def test_the_region_is_that_of_the_brokers_names_or_of_the_environment(
    hosts: Any, environment: dict[str, str], region: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    config = ClientConfig(security_protocol="SASL_SSL", sasl_mechanism="AWS_MSK_IAM")
    assert with_region(config, hosts).sasl_aws_region == region
    assert with_region(dataclasses.replace(config, sasl_aws_region="mine"), hosts).sasl_aws_region == "mine"
    assert with_region(ClientConfig(), hosts).sasl_aws_region is None


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"sasl_aws_profile": "p", "sasl_aws_role_arn": "r"}, "leave one out"),
        ({"sasl_aws_role_session_name": "s"}, "without sasl_aws_role_arn"),
    ],
)
def test_a_profile_and_a_role_are_one_too_many(options: dict[str, str], says: str) -> None:
    config = ClientConfig(security_protocol="SASL_SSL", sasl_mechanism="AWS_MSK_IAM", sasl_aws_region="eu-west-1", **options)
    with pytest.raises(ConfigurationError, match=says):
        check_sasl(config)


def test_a_signer_without_credentials_is_told(handler: Handler, monkeypatch: pytest.MonkeyPatch) -> None:
    def generate_auth_token(region: str) -> tuple[str, int]:
        raise ValueError("no credentials in the environment")

    library(monkeypatch, SIGNER, generate_auth_token=generate_auth_token)
    with pytest.raises(
        AuthenticationError,
        match=r"AWS_MSK_IAM, with what botocore finds .* gave no credentials: ValueError: no credentials in the environment",
    ):
        credentials(handler, "AWS_MSK_IAM", sasl_aws_region="eu-west-1").mechanism("b1", 0)


@pytest.mark.parametrize("error", [ImportError("libgssapi_krb5.so.2: cannot open shared object file"), OSError("no Kerberos library")])
def test_a_library_that_does_not_load_names_the_line_that_installs_it(
    handler: Handler, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails(name: str) -> Any:
        raise error

    monkeypatch.setattr("gkafka.net.credentials.importlib.import_module", fails)
    with pytest.raises(ConfigurationError, match=r"needs the package gssapi: pip install 'gkafka\[gssapi\]' \(.*\)"):
        credentials(handler, "GSSAPI")


@pytest.mark.parametrize(
    ("major", "minor", "text"),
    [
        (458752, 2529639053, "kinit"),
        (851968, 2529638919, "sasl_kerberos_service_name/host"),
        (851968, -1765328377, "sasl_kerberos_service_name/host"),
        (851968, 2529638944, "kinit"),
        (720896, 0, "kinit"),
        (851968, 2529638949, "clocks"),
        (851968, 2529639068, "krb5.conf"),
        (851968, 1, "KRB5_TRACE"),
        (None, None, "KRB5_TRACE"),
    ],
)
def test_what_kerberos_says_comes_with_the_next_step(handler: Handler, asked: list[Any], major: Any, minor: Any, text: str) -> None:
    class GSSError(Exception):
        maj_code, min_code = major, minor

    def step(token: bytes | None = None) -> bytes:
        raise GSSError("what it says")

    made = credentials(handler, "GSSAPI")
    made._library.SecurityContext = lambda **_: SimpleNamespace(step=step, complete=False)
    with pytest.raises(AuthenticationError, match=rf"b1:9092: GSSAPI: GSSError: what it says; .*{text}"):
        Authenticator(handler, made, "b1", "b1:9092").authenticate(
            Versions.for_broker("4.2"), lambda said, authentication: SaslHandshakeResponse(), soon(60)
        )
