"""SASL of a Spark read: login lines of Java as they are pasted, Java's property names, and gkafka's own."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gkafka import KafkaClient
from gkafka.exceptions import AuthenticationError, ConfigurationError
from gkafka.jaas import read_login
from gkafka.spark.connections import connected
from gkafka.spark.kafkaproperties import translate
from gkafka.spark.options import parse, parse_either, parse_stream
from gkafka.spark.sinkoptions import parse_sink
from gkafka.testing import MockCluster, Sasl
from tests.net.servers import serve
from tests.public.test_secrets import told_by
from tests.spark.conftest import Read

PASSWORD = "s3cret-of-alice"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
USER = {"sasl_username": "alice", "sasl_password": PASSWORD}


def properties(**more: str) -> dict[str, str]:
    return {"bootstrap.servers": "h1:9092", **{name.replace("__", "."): value for name, value in more.items()}}


def refusal(**more: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        translate(properties(**more))
    assert PASSWORD not in str(caught.value)
    return str(caught.value)


# -- login lines -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("line", "mechanism", "options"),
    [
        (f'{PLAIN} required username="alice" password="{PASSWORD}";', "PLAIN", USER),
        (f'kafkashaded.{PLAIN} required username="alice" password="{PASSWORD}";', "PLAIN", USER),
        (f'\n  {SCRAM} REQUIRED\n  username = "alice"\n  password\t="{PASSWORD}" ;  ', "SCRAM-SHA-512", USER),
        (f"{SCRAM} required username=alice password={PASSWORD} tokenauth=false;", "SCRAM-SHA-256", USER),
        (
            f'{PLAIN} required username="$ConnectionString" password="Endpoint=sb://x/;Key=a=";',
            "PLAIN",
            {"sasl_username": "$ConnectionString", "sasl_password": "Endpoint=sb://x/;Key=a="},
        ),
        (f'{PLAIN} required username="a\\"b" password="c\\\\d=;e";', "PLAIN", {"sasl_username": 'a"b', "sasl_password": "c\\d=;e"}),
        (
            f'{OAUTH} required clientId="me" clientSecret="{PASSWORD}" scope="kafka" extension_logicalCluster="lkc-1";',
            "OAUTHBEARER",
            {
                "sasl_oauth_client_id": "me",
                "sasl_oauth_client_secret": PASSWORD,
                "sasl_oauth_scope": "kafka",
                "sasl_oauth_extensions": {"logicalCluster": "lkc-1"},
            },
        ),
        (
            'com.sun.security.auth.module.Krb5LoginModule required useTicketCache=true serviceName="bus";',
            "GSSAPI",
            {"sasl_kerberos_service_name": "bus"},
        ),
        ("software.amazon.msk.auth.iam.IAMLoginModule required;", "AWS_MSK_IAM", {}),
        ("shadedmskiam.software.amazon.msk.auth.iam.IAMLoginModule required;", "AWS_MSK_IAM", {}),
    ],
)
def test_a_pasted_line_is_read(line: str, mechanism: str, options: dict[str, Any]) -> None:
    assert read_login(line, mechanism, prefix="kafka.") == (options, ())


@pytest.mark.parametrize(
    ("line", "mechanism", "options", "passed"),
    [
        (
            f'{PLAIN} required serviceName="kafka" username="alice" password="{PASSWORD}" debug=true;',
            "PLAIN",
            USER,
            ("serviceName", "debug"),
        ),
        (f'{SCRAM} required username="alice" password="{PASSWORD}" hunter2="x";', "SCRAM-SHA-256", USER, ("another option",)),
        ("x.IAMLoginModule required awsDebugCreds=true;", "AWS_MSK_IAM", {}, ("awsDebugCreds",)),
        ('x.IAMLoginModule required awsProfileName="me";', "AWS_MSK_IAM", {"sasl_aws_profile": "me"}, ()),
        (
            'x.IAMLoginModule required awsRoleArn="arn:aws:iam::1:role/r" awsRoleSessionName="s" awsStsRegion="eu-west-1";',
            "AWS_MSK_IAM",
            {"sasl_aws_role_arn": "arn:aws:iam::1:role/r", "sasl_aws_role_session_name": "s"},
            ("awsStsRegion",),
        ),
        (f'{OAUTH} required awsProfileName="me";', "AWS_MSK_IAM", {"sasl_aws_profile": "me"}, ()),
        ("x.Krb5LoginModule required useKeyTab=false storeKey=true;", "GSSAPI", {}, ("storeKey",)),
    ],
)
def test_options_of_a_line_that_mean_nothing_here_are_passed_over(
    line: str, mechanism: str, options: dict[str, Any], passed: tuple[str, ...]
) -> None:
    """Java's modules ignore options that they do not know."""
    assert read_login(line, mechanism) == (options, passed)


@pytest.mark.parametrize(
    ("line", "mechanism", "words"),
    [
        (f'{PLAIN} required username="alice" password="{PASSWORD}"', "PLAIN", "must end with a semicolon"),
        (f'{PLAIN} required username="alice" password="{PASSWORD};', "PLAIN", "a quote that does not end"),
        (f'{PLAIN} username="alice" password="{PASSWORD}";', "PLAIN", "a login module and 'required'"),
        (f'{PLAIN} required username "alice";', "PLAIN", 'must be name="value"'),
        (f'{PLAIN} required username="alice" password="{PASSWORD}" {PASSWORD};', "PLAIN", "the one after 'password' is not"),
        (f'{PLAIN} required username="a" username="b";', "PLAIN", "an option 'username' is given twice"),
        (f"{PLAIN} required; {PLAIN} required;", "PLAIN", "one login module"),
        ("com.example.MyLoginModule required;", "PLAIN", "'MyLoginModule' is not known; these are: PlainLoginModule"),
        (
            f'{PLAIN} required username="alice" password="{PASSWORD}";',
            None,
            "kafka.sasl.mechanism is not given: set kafka.sasl.mechanism=PLAIN",
        ),
        (f'{PLAIN} required username="alice" password="{PASSWORD}";', "SCRAM-SHA-256", "set kafka.sasl.mechanism=PLAIN"),
        (
            f'{SCRAM} required username="alice" password="{PASSWORD}" tokenauth="true";',
            "SCRAM-SHA-256",
            "delegation tokens are not supported",
        ),
        ('x.Krb5LoginModule required useKeyTab=true keyTab="/k";', "GSSAPI", "KRB5_CLIENT_KTNAME"),
        (
            f"{PLAIN} required username=alice password=Endpoint=sb://x/;Key={PASSWORD};",
            "PLAIN",
            "put a value that holds one in double quotes",
        ),
        (f'"{PLAIN} required username=alice password={PASSWORD};"', "PLAIN", "the whole line stands in quotes: take the outer pair off"),
        (
            f'{PLAIN} required username="alice" passwort="{PASSWORD}";',
            "PLAIN",
            "'passwort' has no counterpart here; PlainLoginModule takes username, password",
        ),
        (
            f'{PLAIN} required user="alice" password="{PASSWORD}";',
            "PLAIN",
            "'user' has no counterpart here; PlainLoginModule takes username, password",
        ),
        (f'{OAUTH} required client_id="me" clientSecret="{PASSWORD}";', "OAUTHBEARER", "'client_id' has no counterpart here"),
        ("", "PLAIN", "must end with a semicolon"),
        (";", "PLAIN", "must begin with"),
    ],
)
def test_a_line_that_cannot_be_read_is_told_without_its_values(line: str, mechanism: str | None, words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_login(line, mechanism, prefix="kafka.")
    assert words in str(caught.value)
    assert PASSWORD not in str(caught.value)


@pytest.mark.parametrize(
    ("line", "password"),
    [
        (f"{PLAIN} required username='alice' password='p;w d';", "p;w d"),
        (f"""{PLAIN} required username='alice' password='say "no"';""", 'say "no"'),
        (f"""{PLAIN} required username="alice" password="it's";""", "it's"),
        (f"""{PLAIN} required username='alice' password='it\\'s';""", "it's"),
        (f'{PLAIN} required username="alice" password="a\\101b\\0";', "aAb\0"),
        (f'/* us */ {PLAIN} required // a comment "\n username="alice" /* = */ password="//no comment";', "//no comment"),
    ],
)
def test_a_line_is_read_as_java_reads_it(line: str, password: str) -> None:
    """java.io.StreamTokenizer, as JaasConfig sets it up: quotes of both kinds, octal escapes, comments."""
    options = read_login(line, "PLAIN").options
    assert str.__str__(options["sasl_username"]) == "alice"
    assert str.__str__(options["sasl_password"]) == password


@given(
    st.text(max_size=60) | st.text(alphabet="ab\"'/*\\=; \n", max_size=30).map(lambda text: f"{PLAIN} required {text}"),
    st.sampled_from(["PLAIN", None]),
)
def test_whatever_a_line_is_it_is_options_or_our_error(line: str, mechanism: str | None) -> None:
    try:
        options = read_login(line, mechanism, prefix="kafka.").options
    except ConfigurationError:
        return
    assert set(options) <= {"sasl_username", "sasl_password"}


# -- Amazon MSK --------------------------------------------------------------------------------------------------------
MSK = "b-1.demo.c2.kafka.eu-west-1.amazonaws.com:9098"
IAM = "software.amazon.msk.auth.iam"


@pytest.mark.parametrize(
    ("line", "handler", "more"),
    [
        (f"{IAM}.IAMLoginModule required;", f"{IAM}.IAMClientCallbackHandler", {}),
        (
            f'{IAM}.IAMLoginModule required awsProfileName="p" awsDebugCreds=true;',
            f"{IAM}.IAMClientCallbackHandler",
            {"sasl_aws_profile": "p"},
        ),
        (f'{OAUTH} required awsProfileName="p";', f"{IAM}.IAMOAuthBearerLoginCallbackHandler", {"sasl_aws_profile": "p"}),
    ],
)
def test_amazons_documented_lines_are_read(line: str, handler: str, more: dict[str, str]) -> None:
    found = translate(
        {
            "bootstrap.servers": MSK,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER" if "OAuth" in line else "AWS_MSK_IAM",
            "sasl.jaas.config": line,
            "sasl.client.callback.handler.class": handler,
        }
    )
    assert dict(found.client) == {"security_protocol": "SASL_SSL", "sasl_mechanism": "AWS_MSK_IAM", "sasl_aws_region": "eu-west-1", **more}


# -- properties --------------------------------------------------------------------------------------------------------
def test_the_properties_of_java_become_options() -> None:
    line = f'{PLAIN} required username="alice" password="{PASSWORD}";'
    found = translate(properties(security__protocol="sasl_ssl", sasl__mechanism="PLAIN", sasl__jaas__config=line))
    assert dict(found.client) == {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", **USER}
    assert PASSWORD not in repr(found)
    KafkaClient(found.hosts, handler="threading", **found.client).close()


def test_gkafkas_own_names_do_the_same() -> None:
    found = translate(
        properties(security__protocol="SASL_SSL", sasl__mechanism="SCRAM-SHA-512", sasl__username="alice", sasl__password=PASSWORD)
    )
    assert dict(found.client) == {"security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-512", **USER}


def test_librdkafkas_names_do_the_same() -> None:
    found = parse(
        {
            "kafka.bootstrap.servers": "h:1",
            "subscribe": "t",
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanisms": "OAUTHBEARER",
            "kafka.sasl.oauthbearer.method": "oidc",
            "kafka.sasl.oauthbearer.client.id": "me",
            "kafka.sasl.oauthbearer.client.secret": PASSWORD,
            "kafka.sasl.oauthbearer.token.endpoint.url": "https://login.example/token",
            "kafka.sasl.oauthbearer.extensions": "pool=p",
        }
    )
    client = found.kafka.client
    assert found.warnings == ()
    assert (str(client["sasl_mechanism"]), str(client["sasl_oauth_client_id"])) == ("OAUTHBEARER", "me")
    assert client["sasl_oauth_client_secret"].reveal() == PASSWORD
    assert client["sasl_oauth_extensions"] == {"pool": "p"}
    assert PASSWORD not in repr(client)


def test_a_token_endpoint_is_named_as_in_java() -> None:
    found = translate(
        properties(
            security__protocol="SASL_SSL",
            sasl__mechanism="OAUTHBEARER",
            sasl__login__callback__handler__class="org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
            sasl__oauthbearer__token__endpoint__url="https://login.example/token",
            sasl__jaas__config=f'{OAUTH} required clientId="me" clientSecret="{PASSWORD}" extension_pool="p";',
        )
    )
    assert found.client["sasl_oauth_token_endpoint_url"] == "https://login.example/token"
    assert found.client["sasl_oauth_extensions"] == {"pool": "p"}
    with connected(found) as client:
        assert isinstance(client, KafkaClient)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"security__protocol": "SASL_SSL"}, "without kafka.sasl.mechanism"),
        ({"security__protocol": "SASL_TLS"}, "did you mean 'SASL_SSL'"),
        ({"sasl__mechanism": "PLAIN", "sasl__username": "a", "sasl__password": PASSWORD}, "set kafka.security.protocol='SASL_SSL'"),
        (
            {"security__protocol": "SASL_SSL", "sasl__mechanism": "DIGEST-MD5"},
            "kafka.sasl.mechanism, a text of 10 characters: must be one of",
        ),
        (
            {"security__protocol": "SASL_SSL", "sasl__mechanism": "PLAIN", "sasl__username": "a"},
            "kafka.sasl.username without kafka.sasl.password",
        ),
        (
            {"security__protocol": "SASL_PLAINTEXT", "sasl__mechanism": "PLAIN", "sasl__username": "a", "sasl__password": PASSWORD},
            "kafka.allow.plaintext.credentials=True",
        ),
        (
            {
                "security__protocol": "SASL_SSL",
                "sasl__mechanism": "PLAIN",
                "sasl__password": PASSWORD,
                "sasl__jaas__config": f'{PLAIN} required username="a" password="b";',
            },
            "kafka.sasl.password is given in kafka.sasl.jaas.config, too",
        ),
        ({"sasl__login__callback__handler__class": "com.example.Mine"}, "gkafka loads no Java class"),
        ({"sasl__oauth__token__provider": "x"}, "unknown property"),
    ],
)
def test_what_cannot_be_had_is_refused_when_the_read_is_planned(given: dict[str, str], words: str) -> None:
    assert words in refusal(**given)


def test_a_read_says_who_it_is_in_the_driver_and_in_its_tasks(reading: Callable[..., Read], cluster: MockCluster) -> None:
    sasl = Sasl({"alice": PASSWORD})
    with MockCluster(topics={"t": 1}, sasl=sasl) as guarded:
        more = {
            "kafka__bootstrap__servers": guarded.bootstrap,
            "kafka__security__protocol": "SASL_PLAINTEXT",
            "kafka__sasl__mechanism": "SCRAM-SHA-256",
        }
        line = f'kafkashaded.{SCRAM} required username="alice" password="%s";'
        read = reading(**more, kafka__sasl__jaas__config=line % PASSWORD)
        with KafkaClient(
            guarded.bootstrap, handler="threading", security_protocol="SASL_PLAINTEXT", sasl_mechanism="SCRAM-SHA-256", **USER
        ) as client:
            client.get_producer().produce("t", b"x").result(60)
        assert [bytes(value) for value in read.column("value")] == [b"x"]
        assert sasl.refused == 0
        assert PASSWORD not in repr(read.reader) + repr(read.source) + repr(read.tasks())
        assert PASSWORD.encode() not in pickle.dumps(read.tasks()), "options travel with the reader, and in nothing else"
        with pytest.raises(AuthenticationError, match="SCRAM-SHA-256: Authentication failed"):
            reading(**more, kafka__sasl__jaas__config=line % "wrong").rows()


@pytest.mark.parametrize(
    "line",
    [
        "org.example.{} required a=b;",
        "{} required a=b;",
        'x.PlainLoginModule required {}="x" {}="y";',
        'x.PlainLoginModule required {}="x" y;',
        'x.PlainLoginModule required username="a" password="p"{}"q";',
    ],
)
def test_a_name_that_may_be_a_part_of_a_password_is_not_shown(line: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        read_login(line.replace("{}", "hunter2wxyz"), "PLAIN")
    assert "hunter2wxyz" not in told_by(refused.value)


@pytest.mark.parametrize(
    "name", ["kafka.sasl.pasword", "kafka.sasl.oauth.client.secrt", "sasl.passwrd", "kafka.api.key", "kafka.ssl.key.pasword"]
)
@pytest.mark.parametrize("read", [parse, parse_stream, parse_either])
def test_a_secret_under_a_mistyped_name_is_in_no_variable_of_the_traceback(read: Callable[[dict[str, str]], object], name: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        read({"kafka.bootstrap.servers": "h:1", "subscribe": "t", name: "hunter2wxyz"})
    assert "hunter2wxyz" not in told_by(refused.value)
    assert name.removeprefix("kafka.") in str(refused.value)


TOKENS = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "OAUTHBEARER"}


@pytest.mark.parametrize(
    "more",
    [
        {"kafka.socks5.proxy": "socks5://u:hunter2wxyz@h:1"},
        {"kafka.http.proxy": "http://u:hunter2wxyz@h:1"},
        {"kafka.ssl.key.pass": "hunter2wxyz"},
        {"kafka.sasl.oauth.extensions": "hunter2wxyz"},
        {"auth": "u:hunter2wxyz"},
        {**TOKENS, "kafka.sasl.oauthbearer.token.endpoint.url": "https://u:hunter2wxyz@h/t"},
        {**TOKENS, "kafka.sasl.oauthbearer.token.endpoint.url": "https://h/t?key=hunter2wxyz"},
        {"kafka.sasl.mechanism": "PLAIN hunter2wxyz"},
        {"kafka.sasl.login.callback.handler.class": "hunter2wxyz"},
        {"kafka.client.id": "x://u:hunter2wxyz@h", "no": "1"},
    ],
    ids=str,
)
@pytest.mark.parametrize("read", [parse, parse_stream, parse_either, parse_sink])
def test_nothing_that_may_be_a_secret_is_in_a_variable_of_a_traceback(
    read: Callable[[dict[str, str]], object], more: dict[str, str]
) -> None:
    topic = "topic" if read is parse_sink else "subscribe"
    with pytest.raises(ConfigurationError) as refused:
        read({"kafka.bootstrap.servers": "h:1", topic: "t", **more})
    assert "hunter2wxyz" not in told_by(refused.value)


# -- token endpoints -----------------------------------------------------------------------------------------------------
SIDECAR = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", "allow.plaintext.credentials": "true"}


def test_a_sidecar_and_what_else_an_endpoint_wants_are_named_as_the_other_properties() -> None:
    asked: list[bytes] = []

    def answer(conn: Any) -> None:
        asked.append(conn.recv(8000))
        conn.sendall(b'HTTP/1.0 200 OK\r\n\r\n{"access_token": "t0ken", "expires_in": 60}')

    with MockCluster(sasl=Sasl(tokens=["t0ken"]), topics={"t": 1}) as cluster, serve(answer) as port:
        given = {"bootstrap.servers": cluster.bootstrap, **SIDECAR, "sasl.oauthbearer.token.endpoint.url": f"http://localhost:{port}"}
        more = {"sasl.oauth.audience": "kafka", "sasl.oauth.form.fields": "resource=r&tenant=1"}
        for options in (given, {**given, **more}):
            with connected(translate(options)) as client:
                assert client.partitions("t") == [0]
    assert [request.partition(b"\r\n\r\n")[2] for request in (asked[0], asked[-1])] == [
        b"grant_type=client_credentials",
        b"grant_type=client_credentials&audience=kafka&resource=r&tenant=1",
    ]


def test_http_to_another_machine_names_the_property_that_allows_it() -> None:
    who = {"sasl.oauthbearer.client.credentials.client.id": "me", "sasl.oauthbearer.client.credentials.client.secret": PASSWORD}
    told = refusal(**SIDECAR, **who, **{"sasl.oauthbearer.token.endpoint.url": "http://login.example/token"})
    assert "kafka.sasl.oauthbearer.token.endpoint.url of 'http' scheme to 'login.example'" in told
    assert "kafka.sasl.oauth.allow.http=" in told
