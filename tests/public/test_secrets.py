"""A secret is in no error, nor in the variables of its traceback, nor in a repr or a pickle, whichever class was given it and whatever else was wrong."""

from __future__ import annotations

import base64
import copy
import enum
import pickle
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import gkafka
from gkafka import KafkaClient, SslConfig, jaas, sasloptions
from gkafka.admin import Append, NewTopic, Subtract
from gkafka.broker import Broker
from gkafka.checks import check_count
from gkafka.cli.settings import settle
from gkafka.cluster import Cluster
from gkafka.config import Secret
from gkafka.connection import BrokerConnection
from gkafka.consumer import Consumer
from gkafka.exceptions import AuthenticationError, ConfigurationError, KafkaException
from gkafka.handlers import ThreadingHandler
from gkafka.hosts import parse_proxy_url
from gkafka.kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, legacy
from gkafka.kafka.admin import AlterConfigOp, ConfigResource, UserScramCredentialDeletion, UserScramCredentialUpsertion
from gkafka.kafka.admin import NewTopic as KafkaNewTopic
from gkafka.kafka.client_async import KafkaClient as VersionClient
from gkafka.simpleconsumer import SimpleConsumer
from gkafka.spark.options import parse
from gkafka.spark.sinkoptions import parse_sink
from gkafka.testing import MockCluster, Reply, Sasl
from gkafka.wire.configs import AlterConfigsResourceResponse, AlterConfigsResponse, IncrementalAlterConfigsResponse
from tests.public.conftest import Connect

OURS = str(Path(gkafka.__file__).parent)
SECRET = "s3cret-of-alice"
HALF = SECRET + "\udcff"  # of a file in Latin-1 that was read as UTF-8
KEY = base64.b64encode(bytes(range(256))).decode()
SKINS = (KafkaProducer, KafkaConsumer, KafkaAdminClient)
LEGACY = (
    lambda hosts, given: legacy.KafkaClient(hosts, handler="threading", timeout=60, **given),
    lambda hosts, given: VersionClient(bootstrap_servers=hosts, handler="threading", **given),
)
"""What kafka-python has, or had, beside its three classes."""
SAYS_WHO = {
    "security_protocol": "SASL_PLAINTEXT",
    "allow_plaintext_credentials": True,
    "sasl_mechanism": "PLAIN",
    "sasl_plain_username": "alice",
    "sasl_plain_password": SECRET,
}


def told_by(error: BaseException | None) -> str:
    """All that can be read off an error: its texts, those of what it comes from, and the variables of gkafka's frames."""
    return "\n".join(_parts(error))


def _parts(error: BaseException | None) -> Iterator[str]:
    while error is not None:
        yield f"{error} {error!r}"
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename.startswith(OURS):
                yield from (f"{name}={_shown(value)}" for name, value in trace.tb_frame.f_locals.items())
            trace = trace.tb_next
        error = error.__cause__ or error.__context__


def _shown(value: Any) -> str:
    try:
        return repr(value)
    except AttributeError:  # of what was not made
        return f"<{type(value).__name__}>"


def failing(call: Callable[[], Any]) -> str:
    """What the call's error tells, which must have come through gkafka."""
    with pytest.raises(KafkaException) as caught:
        call()
    told = told_by(caught.value)
    assert told.count("\n") > 3
    return told


# -- kafka-python's classes ----------------------------------------------------------------------------------------------
@pytest.fixture
def guarded(make_cluster: Callable[..., MockCluster]) -> MockCluster:
    return make_cluster(sasl=Sasl({"alice": SECRET, "bob": "another"}))


@pytest.mark.parametrize("skin", SKINS)
@pytest.mark.parametrize(
    "wrong",
    [
        {"no_such_option": 1},
        {"allow_plaintext_credentials": False},
        {"sasl_plain_username": "bob"},
        {"security_protocol": "PLAINTEXT"},
        {"sasl_mechanism": "PLANE"},
        {"api_version_auto_timeout_ms": "soon"},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_kafka_pythons_classes_show_no_password_when_they_cannot_be_made(guarded: MockCluster, skin: Any, wrong: dict[str, Any]) -> None:
    assert SECRET not in failing(lambda: skin(bootstrap_servers=guarded.bootstrap, handler="threading", **{**SAYS_WHO, **wrong}))


class Shows:
    """An object of somebody else's, which shows what it holds."""

    def __repr__(self) -> str:
        return SECRET


@pytest.mark.parametrize(
    "given",
    [SECRET.encode(), bytearray(SECRET.encode()), (SECRET,), [SECRET], {"a": SECRET}, Shows()],
    ids=lambda given: type(given).__name__,
)
@pytest.mark.parametrize(
    "option",
    [
        "sasl_plain_password",
        "ssl_password",
        "proxy_url",
        "ssl_keyfile",
        "ssl_certfile",
        "ssl_cafile",
    ],
)
def test_a_secret_that_is_no_text_is_refused_and_not_shown(option: str, given: Any) -> None:
    tls = {"security_protocol": "SSL"} if option.startswith("ssl_") else {}
    for skin in (*SKINS, KafkaClient):
        hosts = {"hosts": "127.0.0.1:1"} if skin is KafkaClient else {"bootstrap_servers": "127.0.0.1:1"}
        told = failing(partial(skin, **hosts, handler="threading", **tls, **{option: given}))
        assert SECRET not in told, skin
        assert f"not {type(given).__name__}" in told, skin


MISNAMED = (
    "sasl.jaas.config",
    "ssl.keystore.password",
    "ssl-key-password",
    "sasl_pasword",
    "sasl_passwrd",
    "sasl_oauth_client_secrt",
    "passphrase",
    "oauth_token",
    "api_key",
    "SASL_PASSWORD",
)
"""Names that no option has, and what may stand behind them."""


@pytest.mark.parametrize("given", [SECRET, SECRET.encode(), [SECRET]], ids=lambda given: type(given).__name__)
@pytest.mark.parametrize("name", MISNAMED)
def test_a_secret_under_a_name_that_is_no_options_is_not_shown(name: str, given: Any) -> None:
    for skin in (*SKINS, KafkaClient):
        told = failing(partial(skin, **{name: given}))
        assert SECRET not in told, skin
        assert name in told, skin


@pytest.mark.parametrize("name", ["sasl_password", "sasl_pasword", "sasl.jaas.config"])
def test_a_secret_for_a_producer_or_consumer_that_takes_none_is_not_shown(connect: Connect, cluster: MockCluster, name: str) -> None:
    for taker in _takers(connect(cluster)):
        assert SECRET not in failing(lambda taker=taker: taker(**{name: SECRET}))  # type: ignore[misc]


def _takers(client: KafkaClient) -> tuple[Callable[..., Any], ...]:
    topic = client.topics["t"]
    return (
        client.get_producer,
        client.get_consumer,
        topic.get_producer,
        topic.get_sync_producer,
        topic.get_simple_consumer,
        lambda **options: topic.get_balanced_consumer("g", managed=True, **options),
    )


@pytest.mark.parametrize("given", [SECRET, SECRET.encode()], ids=["str", "bytes"])
@pytest.mark.parametrize("skin", [*SKINS, KafkaClient])
def test_a_token_in_place_of_what_gives_one_is_not_shown(skin: Any, given: Any) -> None:
    oauth = {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": given}
    told = failing(lambda: skin(**oauth))
    assert SECRET not in told
    assert "sasl_oauth_token_provider must be a callable that returns a token" in told


USED_ELSEWHERE = {
    "socks5_proxy": f"socks5://u:{SECRET}@h:1080",
    "http_proxy": f"http://u:{SECRET}@h:1080",
    "proxies": {"http": f"http://u:{SECRET}@h:1080"},
    "proxy": f"socks5://u:{SECRET}@h:1080",
    "basic_auth_user_info": f"u:{SECRET}",
    "auth": ("u", SECRET),
    "zookeeper_auth": [("digest", f"u:{SECRET}")],
    "sasl_scram_pass": SECRET,
    "sasl_pw": SECRET,
    "aws_access_key_id": SECRET,
    "config": {"sasl.password": SECRET},
}
"""Options of other clients, or nobody's, whose names alone tell nothing."""


@pytest.mark.parametrize("name", USED_ELSEWHERE)
def test_whatever_stands_behind_a_name_that_is_no_options_is_not_shown(name: str) -> None:
    for skin in (*SKINS, KafkaClient, legacy.KafkaClient, legacy.KafkaConsumer, VersionClient):
        hosts = ("127.0.0.1:1",) if skin is legacy.KafkaClient else ()
        told = failing(partial(skin, *hosts, **{name: USED_ELSEWHERE[name]}))
        assert SECRET not in told, skin
        assert name in told, skin


@pytest.mark.parametrize("name", USED_ELSEWHERE)
def test_nor_is_it_where_producers_and_consumers_are_made(connect: Connect, cluster: MockCluster, name: str) -> None:
    for taker in _takers(connect(cluster)):
        assert SECRET not in failing(lambda taker=taker: taker(**{name: USED_ELSEWHERE[name]}))  # type: ignore[misc]


def test_a_url_with_a_user_is_shown_behind_no_name() -> None:
    told = failing(lambda: KafkaClient("127.0.0.1:1", handler="threading", client_id=f"kafka://u:{SECRET}@h", linger_ms=1))
    assert SECRET not in told


@pytest.mark.parametrize("skin", [*SKINS, KafkaClient])
def test_an_extension_of_a_token_that_cannot_be_sent_is_not_shown(skin: Any) -> None:
    given = {**ENDPOINT, "sasl_oauth_token_endpoint_url": "https://h/token", "sasl_oauth_extensions": {"key": SECRET + "\x01"}}
    told = failing(lambda: skin(handler="threading", **given))
    assert SECRET not in told
    assert "sasl_oauth_extensions: 'key': its value" in told


@pytest.mark.parametrize("skin", [*SKINS, KafkaClient])
@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"sasl_mechanism": SECRET}, f"sasl_mechanism, a text of {len(SECRET)} characters: must be one of None, 'PLAIN'"),
        ({"sasl_mechanism": (SECRET,)}, "sasl_mechanism, of type tuple: must be one of"),
        ({"sasl_username": ("alice", SECRET)}, "username: must be str, not tuple"),
        ({"sasl_oauth_client_id": {"a": SECRET}}, "sasl_oauth_client_id: must be str, not dict"),
        ({"sasl_oauth_extensions": SECRET}, "sasl_oauth_extensions: must be Mapping, not str"),
    ],
    ids=str,
)
def test_a_secret_in_place_of_what_stands_beside_it_is_not_shown(skin: Any, wrong: dict[str, Any], says: str) -> None:
    told = failing(lambda: skin(handler="threading", security_protocol="SASL_SSL", **wrong))
    assert SECRET not in told
    assert says in told


@pytest.mark.parametrize("given", ["SCRAM-SHA256", "plain", "OAUTHBEARR"])
def test_a_mechanism_that_is_mistyped_is_shown(given: str) -> None:
    told = failing(lambda: KafkaClient("h:1", handler="threading", security_protocol="SASL_SSL", sasl_mechanism=given))
    assert f"sasl_mechanism={given!r}: must be one of" in told


@pytest.mark.parametrize("given", [{"password": SECRET}, SECRET, ("ca.pem", SECRET)], ids=lambda given: type(given).__name__)
def test_what_is_no_ssl_config_is_not_shown(given: Any) -> None:
    told = failing(lambda: KafkaClient("h:1", handler="threading", ssl_config=given))
    assert SECRET not in told
    assert f"ssl_config: must be a gkafka.connection.SslConfig, not {type(given).__name__}" in told


def test_what_an_option_is_called_is_shown_unless_it_may_be_a_secret() -> None:
    shown = {"key_serializer": "x", "sasl_username": "x", "sasl_plain_username": "x", "acks": 1, "assignors": ("range",), "group_id": "g"}
    assert repr(sasloptions.hide_secrets(shown, ["group_id"])) == repr(shown)
    for kind in (*SKINS, legacy.KafkaConsumer):
        usual = {name: value for name, value in kind.DEFAULT_CONFIG.items() if name not in sasloptions.SECRETS}
        assert repr(sasloptions.hide_secrets(usual, kind.DEFAULT_CONFIG)) == repr(usual)
    for kind in SKINS:
        assert [name for name in kind.DEFAULT_CONFIG if sasloptions.seems_secret(name)] == []


def test_a_files_path_of_a_wrong_type_is_still_shown() -> None:
    with pytest.raises(ConfigurationError, match=r"ssl_cafile=PosixPath\('ca.pem'\): must be str, not PosixPath"):
        KafkaClient("127.0.0.1:1", security_protocol="SSL", ssl_cafile=Path("ca.pem"))  # type: ignore[arg-type]


@pytest.mark.parametrize("skin", SKINS)
def test_kafka_pythons_classes_show_no_password_while_they_live(guarded: MockCluster, skin: Any) -> None:
    made = skin(bootstrap_servers=guarded.bootstrap, handler="threading", **SAYS_WHO)
    try:
        assert SECRET not in repr(made) + repr(vars(made)) + repr(made.config)
        assert made.config["sasl_plain_password"] == SECRET  # as documented: the options in force
        with pytest.raises(TypeError, match="not pickled"):
            pickle.dumps(made.config)
        copied = copy.deepcopy(made.config["sasl_plain_password"])
        assert SECRET not in f"{copied}{copied!r}%s%r" % (copied, copied)
    finally:
        made.close()


@pytest.mark.parametrize("skin", [*SKINS, KafkaClient, Consumer, legacy.KafkaClient, legacy.KafkaConsumer])
def test_what_was_not_made_can_be_shown(skin: Any) -> None:
    """Where a traceback shows the arguments of the call that failed, it is among them."""
    assert skin.__name__ in repr(skin.__new__(skin))


def test_nor_does_it_matter_how_far_a_simple_consumer_came() -> None:
    """Its group is looked at when its topic is there already."""
    half = SimpleConsumer.__new__(SimpleConsumer)
    half._topic = object()  # type: ignore[assignment]
    assert "SimpleConsumer that was not made" in repr(half)


@pytest.mark.parametrize("skin", LEGACY, ids=["client", "version client"])
def test_older_clients_of_kafka_python_show_no_password(guarded: MockCluster, skin: Any) -> None:
    made = skin(guarded.bootstrap, SAYS_WHO)
    try:
        assert SECRET not in repr(made) + repr(vars(made))
    finally:
        if hasattr(made, "close"):
            made.close()
    for wrong in ({"no_such_option": 1}, {"sasl_plain_username": "bob"}, {"sasl_plain_password": SECRET.encode()}):
        assert SECRET not in failing(lambda wrong=wrong: _connected(skin(guarded.bootstrap, {**SAYS_WHO, **wrong})))


@pytest.mark.parametrize("wrong", [{"no_such_option": 1}, {"sasl_plain_username": "bob"}])
def test_an_older_consumer_that_cannot_be_made_shows_no_password(guarded: MockCluster, wrong: dict[str, Any]) -> None:
    assert SECRET not in failing(lambda: legacy.KafkaConsumer("t", metadata_broker_list=[guarded.bootstrap], **{**SAYS_WHO, **wrong}))


@pytest.mark.parametrize("made_of", [legacy.SimpleProducer, legacy.KeyedProducer])
def test_a_password_for_a_producer_that_takes_none_is_not_shown(guarded: MockCluster, made_of: Any) -> None:
    client = legacy.KafkaClient(guarded.bootstrap, handler="threading", **SAYS_WHO)
    try:
        assert SECRET not in failing(lambda: made_of(client, **SAYS_WHO))
    finally:
        client.close()


def _connected(made: Any) -> None:
    made.check_version(timeout=60)


def test_processes_of_a_client_are_told_its_password_by_a_pipe_alone(guarded: MockCluster) -> None:
    with KafkaProducer(bootstrap_servers=guarded.bootstrap, handler="threading", **SAYS_WHO) as producer:
        producer.send("t", b"v").get(60)
    client = legacy.KafkaClient(guarded.bootstrap, handler="threading", **SAYS_WHO)
    consumer = legacy.MultiProcessConsumer(client, None, "t", auto_commit=False, num_procs=1)
    try:
        assert SECRET not in repr(vars(consumer))
        commands = [Path(f"/proc/{process.pid}/{file}").read_bytes() for process in consumer.procs for file in ("cmdline", "environ")]
        assert commands
        assert SECRET.encode() not in b"".join(commands)
        assert [message.message.value for message in consumer.get_messages(count=1, block=True, timeout=60)] == [b"v"]
    finally:
        consumer.stop()
        client.close()


@pytest.mark.parametrize(("more", "mechanism"), [("x", "PLAIN"), ("", "SCRAM-SHA-256")])
def test_a_login_line_that_is_wrong_is_not_shown(more: str, mechanism: str) -> None:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    with pytest.raises(ConfigurationError) as caught:
        jaas.read_login(f'{module} required username="alice" password="{SECRET}" {more};', mechanism)
    assert SECRET not in told_by(caught.value)


# -- pass phrases and keys -----------------------------------------------------------------------------------------------
def test_pykafkas_ssl_config_shows_no_pass_phrase() -> None:
    for ours in (SslConfig("ca.pem", password=SECRET), SslConfig("ca.pem", password=SECRET.encode())):
        assert SECRET not in repr(ours) + repr(vars(ours)) + repr(ours.client_options())
        assert ours.client_options()["ssl_password"]().reveal() == SECRET
        with pytest.raises(TypeError, match="not pickled"):
            pickle.dumps(ours)


MADE_WITH_TLS: dict[str, Callable[[Any], object]] = {
    "BrokerConnection": lambda ssl_config: BrokerConnection("h", 1, ssl_config=ssl_config),
    "Broker": lambda ssl_config: Broker(0, "h", 1, ThreadingHandler(), 1000, 1000, ssl_config=ssl_config),
    "Cluster": lambda ssl_config: Cluster("h:1", ThreadingHandler(), ssl_config=ssl_config),
    "KafkaClient": lambda ssl_config: KafkaClient("h:1", handler="threading", ssl_config=ssl_config),
}


@pytest.mark.parametrize("made", MADE_WITH_TLS)
@pytest.mark.parametrize(
    "given", [{"password": SECRET}, SECRET, SECRET.encode(), (SECRET,), Shows()], ids=lambda given: type(given).__name__
)
def test_what_is_no_ssl_config_is_refused_by_all_that_take_one_and_not_shown(made: str, given: Any) -> None:
    """A dict was an AttributeError, with the pass phrase in the variables."""
    told = failing(lambda: MADE_WITH_TLS[made](given))
    assert SECRET not in told
    assert f"ssl_config: must be a gkafka.connection.SslConfig, not {type(given).__name__}" in told


@pytest.mark.parametrize(
    "given", [b"\xff" + SECRET.encode(), HALF, [SECRET], {"password": SECRET}, Shows()], ids=lambda given: type(given).__name__
)
def test_a_pass_phrase_that_is_no_text_is_not_shown(given: Any) -> None:
    """It was a UnicodeDecodeError, which holds the bytes."""
    with pytest.raises(ConfigurationError, match=r"^password: ") as caught:
        SslConfig("ca.pem", "cert.pem", "key.pem", given)
    assert SECRET not in told_by(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


@pytest.mark.parametrize("made", MADE_WITH_TLS)
def test_tls_that_cannot_be_used_is_refused_before_anything_connects(made: str) -> None:
    for wrong, says in (
        (SslConfig("/no/ca.pem"), "ssl_cafile='/no/ca.pem': there is no such file"),
        (SslConfig(5), "ssl_cafile=5: must be str, not int"),  # type: ignore[arg-type]
        (SslConfig("/no/ca.pem", password=SECRET), "ssl_password without ssl_certfile"),
    ):
        told = failing(lambda wrong=wrong: MADE_WITH_TLS[made](wrong))  # type: ignore[misc]
        assert says in told
        assert SECRET not in told


@pytest.mark.parametrize("option", ["ssl_certfile", "ssl_keyfile", "ssl_cafile"])
@pytest.mark.parametrize("form", ["one line", "lines"])
def test_a_key_whose_first_line_was_left_out_is_not_taken_for_a_files_name_and_shown(option: str, form: str) -> None:
    text = KEY if form == "one line" else "\n".join(KEY[at : at + 64] for at in range(0, len(KEY), 64))
    given = {"ssl_certfile": text, **({option: text} if option != "ssl_certfile" else {})}
    told = failing(lambda: KafkaClient("localhost:1", handler="threading", security_protocol="SSL", **given))
    assert f"(a text of {len(text)} characters): neither a file nor PEM text" in told
    assert KEY[:40] not in told


@pytest.mark.parametrize("skin", [*SKINS, KafkaClient])
@pytest.mark.parametrize("more", [{}, {"ssl_certfile": "ca.pem"}, {"no_such_option": 1}], ids=["alone", "with a certificate", "misnamed"])
def test_the_body_of_a_short_key_is_not_shown(skin: Any, more: dict[str, Any]) -> None:
    """One of Ed25519 in PKCS8 is a line of 64 characters, and may be taken for a file's name."""
    body = "MC4CAQAwBQYDK2VwBCIEI" + KEY[:43]
    hosts = {"hosts": "127.0.0.1:1"} if skin is KafkaClient else {"bootstrap_servers": "127.0.0.1:1"}
    for text in (body, f"-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n"):
        told = failing(lambda text=text: skin(**hosts, handler="threading", security_protocol="SSL", ssl_keyfile=text, **more))
        assert body not in told


def test_a_files_name_that_is_wrong_is_still_shown() -> None:
    assert "ssl_cafile='/no/such/ca.pem': there is no such file" in failing(
        lambda: KafkaClient("localhost:1", handler="threading", security_protocol="SSL", ssl_cafile="/no/such/ca.pem")
    )


# -- passwords that others get -------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "wrong",
    [
        {"user": ""},
        {"mechanism": "ROT13"},
        {"mechanism": SECRET},
        {"iterations": 1},
        {"salt": "grains"},
        {"password": SECRET.encode()},
        {"timeout": -1},
    ],
)
def test_set_user_shows_no_password_when_something_else_is_wrong(connect: Connect, cluster: MockCluster, wrong: dict[str, Any]) -> None:
    admin = connect(cluster).admin()
    assert SECRET not in failing(lambda: admin.set_user(**{"user": "u", "password": SECRET, **wrong}))


# -- and by kafka-python's classes -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "make",
    [
        lambda: UserScramCredentialUpsertion("u", "ROT13", SECRET),
        lambda: UserScramCredentialUpsertion("u", SECRET, "SCRAM-SHA-256"),
        lambda: UserScramCredentialUpsertion("u", 0, SECRET.encode()),
        lambda: UserScramCredentialUpsertion("u", 1, SECRET, iterations="many"),  # type: ignore[arg-type]
        lambda: UserScramCredentialUpsertion("u", 1, "x", iterations=SECRET),  # type: ignore[arg-type]
        lambda: UserScramCredentialUpsertion("u", 1, SECRET, salt="grains"),  # type: ignore[arg-type]
        lambda: UserScramCredentialUpsertion("u", 1, "x", salt=SECRET),  # type: ignore[arg-type]
        lambda: UserScramCredentialUpsertion("u", 1, [SECRET]),  # type: ignore[arg-type]
        lambda: UserScramCredentialUpsertion("u", 1, b"\xff" + SECRET.encode()),
        lambda: UserScramCredentialUpsertion("u", 1, HALF),
        lambda: UserScramCredentialDeletion("u", SECRET),
        lambda: ConfigResource("NOPE", "1", {"ssl.keystore.password": SECRET}),
        lambda: ConfigResource({"ssl.keystore.password": SECRET}, "1"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_made_shows_no_password_and_can_be_shown(make: Callable[[], Any]) -> None:
    """The constructors' arguments stood in their frames, and repr() of what was half made raised an AttributeError."""
    with pytest.raises(ConfigurationError) as caught:
        make()
    assert SECRET not in told_by(caught.value)
    shown = "".join(traceback.TracebackException.from_exception(caught.value, capture_locals=True).format())
    assert "that was not made>" in shown


@pytest.mark.parametrize(
    "given",
    [
        [("u", "SCRAM-SHA-256", SECRET)],
        [{"u": SECRET}],
        {"u": SECRET},
        [SECRET],
        SECRET,
        SECRET.encode(),
        [Shows()],
        Shows(),
        iter([("u", SECRET)]),
    ],
    ids=lambda given: type(given).__name__,
)
def test_what_gives_no_user_a_password_is_not_shown(cluster: MockCluster, given: Any) -> None:
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap, handler="threading") as admin:
        assert SECRET not in failing(lambda: admin.alter_user_scram_credentials(given))
        with pytest.raises(TypeError) as caught:
            admin.alter_user_scram_credentials(changes=given)  # type: ignore[call-arg]
        assert SECRET not in told_by(caught.value)


def test_a_topic_of_kafka_pythons_shows_no_password_among_its_attributes() -> None:
    new = KafkaNewTopic("t", 1, 1, topic_configs={"ssl.keystore.password": SECRET, "retention.ms": 5})
    assert SECRET not in f"{vars(new)}"
    assert new.topic_configs == {"ssl.keystore.password": SECRET, "retention.ms": 5}
    new.topic_configs = {"a.token": SECRET}
    assert SECRET not in f"{vars(new)}"


@pytest.mark.parametrize("wrong", [{"partitions": "x"}, {"name": "a b"}, {"replication_factor": 0}, {"timeout": -1}])
def test_a_password_for_a_topic_that_cannot_be_made_is_not_shown(connect: Connect, cluster: MockCluster, wrong: dict[str, Any]) -> None:
    client = connect(cluster)
    for configs in ({"ssl.keystore.password": SECRET}, [("ssl.keystore.password", SECRET)], f"ssl.keystore.password={SECRET}"):
        assert SECRET not in failing(lambda configs=configs: client.create_topic(**{"name": "t9", "configs": configs, **wrong}))  # type: ignore[misc]


def test_a_topics_password_arrives_as_it_is(connect: Connect, cluster: MockCluster) -> None:
    connect(cluster).create_topic("t9", configs={"a.token": SECRET, "retention.ms": "5"})
    (request,) = cluster.requests("CreateTopics")
    message: Any = request.message
    assert [config.value for config in message.topics[0].configs] == [SECRET, "5"]


# -- what is no text -----------------------------------------------------------------------------------------------------
HALF = SECRET + "\udcff"  # of a file in Latin-1 that was read as UTF-8


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_password_that_is_no_utf8_is_refused_before_anything_connects(cluster: MockCluster, mechanism: str) -> None:
    given = {**SAYS_WHO, "sasl_mechanism": mechanism, "sasl_plain_password": HALF}
    told = failing(lambda: KafkaClient(cluster.bootstrap, handler="threading", **given))
    assert "sasl_password: it holds halves of characters" in told
    assert SECRET not in told
    assert cluster.connections() == 0


@pytest.mark.parametrize(("gives", "says"), [(HALF, "halves of characters"), (f"a\0{SECRET}", "a NUL character")])
def test_a_function_that_gives_such_a_password_is_told(connect: Connect, guarded: MockCluster, gives: str, says: str) -> None:
    given = {name: value for name, value in SAYS_WHO.items() if name != "sasl_plain_password"}
    client = connect(guarded, **given, sasl_password=lambda: gives)
    with pytest.raises(AuthenticationError, match=says) as caught:
        client.connect()
    assert SECRET not in told_by(caught.value)
    assert guarded.count("SaslAuthenticate") == 0


def test_a_user_gets_no_password_that_is_no_utf8(connect: Connect, cluster: MockCluster) -> None:
    admin = connect(cluster).admin()
    told = failing(lambda: admin.set_user("u", HALF))
    assert "password: it holds halves of characters" in told
    assert SECRET not in told


def test_a_client_secret_that_is_no_utf8_is_refused() -> None:
    given = {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_endpoint_url": "https://localhost/token",
        "sasl_oauth_client_id": "me",
        "sasl_oauth_client_secret": HALF,
    }
    with pytest.raises(ConfigurationError, match="sasl_oauth_client_secret: it holds halves") as caught:
        KafkaClient("localhost:1", handler="threading", **given)
    assert SECRET not in told_by(caught.value)


# -- addresses -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("skin", [*SKINS, KafkaClient, *LEGACY])
@pytest.mark.parametrize(
    "hosts",
    [
        f"kafka://u:{SECRET},zz@h:1",
        f"u:{SECRET}/x@h:1",
        f"u:p,{SECRET}@h:1",
        f"u:{SECRET}@h:1,h2:2",
        [f"u:{SECRET}@h:1", b"x"],
        [f"kafka://u:{SECRET},zz@h:1"],
        [f"kafka://u:{SECRET}", "zz@h:1"],
        {f"u:{SECRET}@h:1": 1},
        f"u:{SECRET}@h:1".encode(),
    ],
    ids=str,
)
def test_a_password_before_an_address_is_not_shown(skin: Any, hosts: Any) -> None:
    if skin in LEGACY:
        told = failing(lambda: skin(hosts, {}))
    else:
        name = "hosts" if skin is KafkaClient else "bootstrap_servers"
        told = failing(lambda: skin(**{name: hosts}, handler="threading"))
    assert SECRET not in told


@pytest.mark.parametrize(
    "place", ["u:{}@h:2181", "digest:u:{}@h:2181", "u:{}/x@h:2181", "h:2181,u:{},zz@h:2181/chroot", "u:{}@h:2181/a//b"]
)
def test_a_password_before_an_address_of_zookeeper_is_not_shown(place: str) -> None:
    told = failing(lambda: KafkaClient(zookeeper_hosts=place.format(SECRET), handler="threading"))
    assert SECRET not in told
    assert "zookeeper_hosts='...@h:2181" in told


ENDPOINT = {
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "OAUTHBEARER",
    "sasl_oauth_client_id": "id",
    "sasl_oauth_client_secret": "hush",
}


@pytest.mark.parametrize("skin", [*SKINS, KafkaClient])
@pytest.mark.parametrize(
    ("url", "more"),
    [
        (f"https://u:{SECRET}@h/token", {}),
        (f"http://h/token?code={SECRET}", {}),
        (f"https://h:port/token?code={SECRET}", {}),
        (f"https://h/token?code={SECRET}#x", {}),
        (f"https://h/token?code={SECRET}\u00fc", {}),
        (f"{SECRET}://h/token", {}),
        (f"https://h/token?code={SECRET}", {"sasl_oauth_cafile": "/no/such/file.pem"}),
        (f"https://h/token?code={SECRET}", {"sasl_oauth_scope": 5}),
    ],
    ids=str,
)
def test_no_part_of_a_token_endpoints_url_that_may_be_secret_is_shown(skin: Any, url: str, more: dict[str, Any]) -> None:
    hosts = {"hosts": "127.0.0.1:1"} if skin is KafkaClient else {"bootstrap_servers": "127.0.0.1:1"}
    assert SECRET not in failing(lambda: skin(**hosts, handler="threading", **ENDPOINT, sasl_oauth_token_endpoint_url=url, **more))


def test_the_query_of_a_token_endpoint_is_in_no_repr() -> None:
    url = f"https://h/token?code={SECRET}"
    with KafkaClient("127.0.0.1:1", handler="threading", **ENDPOINT, sasl_oauth_token_endpoint_url=url) as client:
        assert SECRET not in repr(client.cluster.config)


# -- a dict of options in place of an argument ---------------------------------------------------------------------------
CONF = {"bootstrap.servers": "127.0.0.1:1", "sasl.username": "alice", "sasl.password": SECRET}
"""As confluent-kafka takes them."""
HINT = "options are given as keyword arguments: **conf"


@pytest.mark.parametrize("skin", [KafkaConsumer, legacy.KafkaConsumer])
@pytest.mark.parametrize("given", [(CONF,), ("t", CONF)], ids=["alone", "beside a topic"])
def test_options_given_in_place_of_topics_are_not_shown_and_nothing_connects(
    cluster: MockCluster, skin: Any, given: tuple[Any, ...]
) -> None:
    """They were printed with the password, and that after the client had connected to the default host."""
    told = failing(lambda: skin(*given, bootstrap_servers=cluster.bootstrap, handler="threading"))
    assert SECRET not in told
    assert HINT in told
    assert cluster.connections() == 0


def test_nor_are_they_in_subscribe(cluster: MockCluster) -> None:
    with KafkaConsumer(bootstrap_servers=cluster.bootstrap, handler="threading") as consumer:
        for given in (CONF, ["t", CONF]):
            told = failing(lambda given=given: consumer.subscribe(given))  # type: ignore[misc]
            assert SECRET not in told
            assert HINT in told


def test_options_given_in_place_of_an_argument_are_not_shown(connect: Connect, cluster: MockCluster) -> None:
    client = connect(cluster)
    topic = client.topics["t"]
    calls: list[Callable[[], Any]] = [
        lambda: client.get_consumer("t", CONF),  # type: ignore[arg-type]
        lambda: topic.get_simple_consumer(CONF),  # type: ignore[arg-type]
        lambda: topic.get_simple_consumer("g", CONF),  # type: ignore[arg-type]
        lambda: topic.get_balanced_consumer(CONF),  # type: ignore[arg-type]
        lambda: topic.get_balanced_consumer("g", CONF),  # type: ignore[arg-type]
        lambda: topic.get_producer(CONF),  # type: ignore[arg-type]
        lambda: client.admin().set_user(CONF, "x"),  # type: ignore[arg-type]
        lambda: legacy.KafkaClient(cluster.bootstrap, CONF),  # type: ignore[arg-type]
        lambda: legacy.KafkaClient(cluster.bootstrap, "me", CONF),  # type: ignore[arg-type]
    ]
    for call in calls:
        told = failing(call)
        assert SECRET not in told
        assert HINT in told
    told = failing(lambda: client.get_consumer(CONF))
    assert SECRET not in told


@pytest.mark.parametrize("place", range(1, 10))
def test_options_given_to_a_client_by_position_are_not_shown(place: int) -> None:
    given: list[Any] = ["127.0.0.1:1", None, 1000, 1000, False, True, "", None, "0.9.0", False]
    given[place] = CONF
    told = failing(lambda: KafkaClient(*given, handler="threading"))
    assert SECRET not in told
    assert "must be" in told


@pytest.mark.parametrize("skin", [*SKINS, KafkaClient])
@pytest.mark.parametrize("option", ["client_id", "reconnect_backoff_ms", "security_protocol", "sasl_kerberos_service_name"])
def test_a_dict_in_place_of_an_option_is_not_shown(skin: Any, option: str) -> None:
    hosts = {"hosts": "127.0.0.1:1"} if skin is KafkaClient else {"bootstrap_servers": "127.0.0.1:1"}
    told = failing(lambda: skin(**hosts, handler="threading", **{option: CONF}))
    assert SECRET not in told
    assert "dict" in told


def test_a_value_that_is_no_text_nor_number_is_told_by_its_type() -> None:
    for value in ([SECRET], (SECRET,), Shows(), {SECRET}):
        with pytest.raises(ConfigurationError) as caught:
            check_count("partition", value)
        assert str(caught.value).startswith(f"partition=<{type(value).__name__}>: must be a whole number")
    with pytest.raises(ConfigurationError, match="partition='x': must be a whole number"):
        check_count("partition", "x")


def test_a_password_before_a_clusters_address_is_not_shown() -> None:
    told = failing(lambda: Cluster(f"u:{SECRET}@h:1", ThreadingHandler()))
    assert SECRET not in told


# -- what brokers are configured with ------------------------------------------------------------------------------------
OF_BROKERS = ("ssl.keystore.password", "listener.name.x.plain.sasl.jaas.config", "ssl.keystore.key", "sasl.oauthbearer.client.secret")
OF_ONE = ("broker", "1")


@pytest.mark.parametrize("call", ["alter_configs", "replace_configs"])
@pytest.mark.parametrize("key", OF_BROKERS)
def test_a_brokers_password_is_not_shown_where_it_cannot_be_set(connect: Connect, cluster: MockCluster, call: str, key: str) -> None:
    """It stood in the variables of four frames, requests among them."""
    admin = connect(cluster).admin()
    for given in (SECRET, SECRET.encode(), HALF, b"\xff" + SECRET.encode(), [SECRET], {"a": SECRET}, SECRET * 3000):
        told = failing(lambda given=given: getattr(admin, call)({OF_ONE: {key: given}}, timeout=2))  # type: ignore[misc]
        assert SECRET not in told


class Text(str):
    """As text that some library marks."""


class Member(str, enum.Enum):
    PASSWORD = SECRET


KEPT_AS = (Append(SECRET), Subtract(SECRET), Text(SECRET), Member.PASSWORD)
LINE = f"{OF_BROKERS[0]}={SECRET}"
IN_PLACE_OF_A_MAPPING = ([(OF_BROKERS[0], SECRET)], ((OF_BROKERS[0], SECRET),), LINE, LINE.encode(), [LINE], SECRET, {SECRET})


@pytest.mark.parametrize("call", ["alter_configs", "replace_configs"])
@pytest.mark.parametrize("given", KEPT_AS, ids=lambda given: type(given).__name__)
def test_a_text_of_another_class_is_hidden_as_well(connect: Connect, cluster: MockCluster, call: str, given: str) -> None:
    """`type(value) is str` was asked: a change of a list stood in four frames."""
    for of in ({OF_BROKERS[0]: given}, {OF_BROKERS[0].encode(): given}):
        told = failing(lambda of=of: getattr(connect(cluster).admin(), call)({OF_ONE: of}, timeout=2))  # type: ignore[misc]
        assert SECRET not in told


@pytest.mark.parametrize("call", ["alter_configs", "replace_configs"])
@pytest.mark.parametrize("given", IN_PLACE_OF_A_MAPPING, ids=repr)
def test_what_is_no_mapping_is_refused_and_not_shown(connect: Connect, cluster: MockCluster, call: str, given: Any) -> None:
    admin = connect(cluster).admin()
    kind = type(given).__name__
    for changes in ({OF_ONE: given}, given):
        told = failing(lambda changes=changes: getattr(admin, call)(changes))  # type: ignore[misc]
        assert SECRET not in told
        assert f"=<{kind}>: must be a mapping such as" in told


@pytest.mark.parametrize("call", ["alter_configs", "replace_configs"])
@pytest.mark.parametrize("given", [SECRET, *KEPT_AS, SECRET.encode(), [SECRET]], ids=lambda given: type(given).__name__)
def test_a_password_of_no_resource_is_not_shown(connect: Connect, cluster: MockCluster, call: str, given: Any) -> None:
    told = failing(lambda: getattr(connect(cluster).admin(), call)({OF_BROKERS[0]: given}))
    assert SECRET not in told
    assert f"resource='{OF_BROKERS[0]}': must be a ConfigResource" in told


def test_a_number_may_be_a_password(connect: Connect, cluster: MockCluster) -> None:
    for given in (4711471147, Append("4711471147"), 4711471147.0):
        assert "4711471147" not in failing(lambda given=given: connect(cluster).admin().alter_configs({OF_ONE: {OF_BROKERS[0]: given}}))  # type: ignore[misc]


@pytest.mark.parametrize("given", [{OF_BROKERS[0]: SECRET}, *({OF_BROKERS[0]: one} for one in KEPT_AS), *IN_PLACE_OF_A_MAPPING], ids=repr)
def test_a_password_among_a_topics_configurations_is_not_shown(connect: Connect, cluster: MockCluster, given: Any) -> None:
    admin = connect(cluster).admin()
    new = NewTopic("a b", 1, 1, given)
    assert SECRET not in repr(new)
    for topics in ([new], [NewTopic("t1", 0, 1, given)], [{"name": "t1", "configs": given}], [("t1", 1, 1, given)]):
        assert SECRET not in failing(lambda topics=topics: admin.create_topics(topics))  # type: ignore[misc]
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap, handler="threading") as skin:
        for wrong in (
            [KafkaNewTopic("a b", 1, 1, topic_configs=given)],
            [KafkaNewTopic("t1", 0, 1, topic_configs=given)],
            {"t1": {"num_partitions": 0, "configs": given}},
            {"t1": {"config": given}},
            {"t1": given},
            [{"t1": given}],
        ):
            assert SECRET not in failing(lambda wrong=wrong: skin.create_topics(wrong))  # type: ignore[misc]
            assert SECRET not in failing(lambda wrong=wrong: skin.create_topics(new_topics=wrong))  # type: ignore[misc]


def test_a_new_topic_shows_what_it_is_made_of() -> None:
    new = NewTopic("t", 2, configs={"retention.ms": 5, OF_BROKERS[0]: SECRET})
    configs = f"{{'retention.ms': 5, '{OF_BROKERS[0]}': '***'}}"
    assert repr(new) == f"NewTopic(name='t', partitions=2, replication_factor=-1, configs={configs}, replicas=None)"
    assert new.configs is not None
    assert type(new.configs[OF_BROKERS[0]]) is str


@pytest.mark.parametrize("given", [*IN_PLACE_OF_A_MAPPING[:-2], [SECRET, 1]], ids=repr)
def test_a_resource_of_kafka_pythons_with_no_mapping_shows_no_password(cluster: MockCluster, given: Any) -> None:
    resource = ConfigResource("broker", "1", given)
    assert SECRET not in repr(resource)
    later = ConfigResource("broker", "1")
    later.configs = given
    assert SECRET not in repr(later)
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap, handler="threading") as admin:
        for call in (admin.alter_configs, admin.describe_configs, admin.reset_configs):
            told = failing(lambda call=call: call([resource]))  # type: ignore[misc]
            assert SECRET not in told
            assert f"configs=<{type(given).__name__}>: must be" in told


@pytest.mark.parametrize("given", [*KEPT_AS, ("APPEND", Text(SECRET)), ("SET", SECRET, SECRET), (SECRET, "SET")], ids=repr)
def test_a_text_of_another_class_is_hidden_in_a_resource_of_kafka_pythons(cluster: MockCluster, given: Any) -> None:
    resource = ConfigResource("broker", "1", {OF_BROKERS[0]: given})
    assert SECRET not in repr(resource)
    later = ConfigResource("broker", "1", {})
    later.configs[OF_BROKERS[0]] = given
    assert SECRET not in repr(later)
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap, handler="threading") as admin:
        for one in (resource, later):
            assert SECRET not in failing(lambda one=one: admin.alter_configs([one], raise_on_unknown=False))  # type: ignore[misc]


@pytest.mark.parametrize("name", ["ssl.key.pass", "ssl-key-pass", "listener.name.x.ssl.pass.phrase", "PASS"])
def test_a_name_that_says_pass_is_a_secrets(name: str) -> None:
    assert SECRET not in repr(ConfigResource("broker", "1", {name: SECRET}))
    assert "shown" in repr(ConfigResource("broker", "1", {"bypass": "shown", "ssl.passes": "shown", "compass.ms": "shown"}))


@pytest.mark.parametrize(
    "given", [{OF_BROKERS[0]: SECRET}, [{OF_BROKERS[0]: SECRET}], [(OF_BROKERS[0], SECRET)], LINE, LINE.encode(), [LINE]], ids=repr
)
def test_what_is_no_resource_of_kafka_pythons_is_not_shown(cluster: MockCluster, given: Any) -> None:
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap, handler="threading") as admin:
        for call in (admin.alter_configs, admin.describe_configs, admin.reset_configs):
            assert SECRET not in failing(lambda call=call: call(given))  # type: ignore[misc]
            assert SECRET not in failing(lambda call=call: call(config_resources=given))  # type: ignore[misc]
            assert SECRET not in failing(lambda call=call: call(iter(given)))  # type: ignore[misc]
            with pytest.raises(TypeError) as caught:
                call(given, no_such=1)
            assert SECRET not in told_by(caught.value)


def test_names_alone_stay_as_they_were_given() -> None:
    for names in (["retention.ms"], ("retention.ms",), {"retention.ms"}):
        assert ConfigResource("topic", "t", names).configs is names
    assert ConfigResource("topic", "t", iter(["retention.ms"])).configs == ["retention.ms"]
    assert ConfigResource("topic", "t", {"retention.ms": "1"}).configs == {"retention.ms": "1"}


def test_nor_is_it_by_kafka_pythons_client(cluster: MockCluster) -> None:
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap, handler="threading") as admin:
        for given in (SECRET, ("SET", SECRET), SECRET.encode()):
            resource = ConfigResource("broker", "1", {OF_BROKERS[0]: given})
            assert SECRET not in repr(resource)
            for incremental in (True, False):
                told = failing(lambda one=resource, way=incremental: admin.alter_configs([one], raise_on_unknown=False, incremental=way))  # type: ignore[misc]
                assert SECRET not in told


def test_a_brokers_password_arrives_as_it_is(connect: Connect, make_cluster: Callable[..., MockCluster]) -> None:
    cluster = make_cluster(limits={"IncrementalAlterConfigs": (0, 1), "AlterConfigs": (0, 2)})

    def altered(request: Any) -> Any:
        kind = IncrementalAlterConfigsResponse if request.api.name == "IncrementalAlterConfigs" else AlterConfigsResponse
        of = {"resource_type": 4, "resource_name": "1"}
        return kind(responses=[AlterConfigsResourceResponse(**of)])

    for api in ("IncrementalAlterConfigs", "AlterConfigs"):
        cluster.on(api, Reply(altered), times=None)
    admin = connect(cluster).admin()
    for call in (admin.alter_configs, admin.replace_configs):
        call({OF_ONE: {OF_BROKERS[0]: SECRET, "log.cleaner.threads": 2, "sasl.login.password": Member.PASSWORD, "a.token": True}})
    for api in ("IncrementalAlterConfigs", "AlterConfigs"):
        (request,) = cluster.requests(api)
        message: Any = request.message
        assert [config.value for config in message.resources[0].configs] == [SECRET, "2", SECRET, "true"]


def test_a_list_that_may_be_secret_arrives_and_is_appended_to(connect: Connect, make_cluster: Callable[..., MockCluster]) -> None:
    """kafka-python's APPEND of a password was one of `***`."""
    cluster = make_cluster(limits={"IncrementalAlterConfigs": (0, 1)})
    answer = IncrementalAlterConfigsResponse(responses=[AlterConfigsResourceResponse(resource_type=4, resource_name="1")])
    cluster.on("IncrementalAlterConfigs", Reply(lambda _: answer), times=None)
    key = OF_BROKERS[1]
    for given in (Append(SECRET), Append(Secret(SECRET)), Subtract(SECRET), Subtract(Secret(SECRET))):
        connect(cluster).admin().alter_configs({OF_ONE: {key: given}})
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap, handler="threading") as skin:
        for one in (Append(SECRET), ("APPEND", SECRET), (AlterConfigOp.SUBTRACT, SECRET.encode()), (2, Text(SECRET))):
            skin.alter_configs([ConfigResource("broker", "1", {key: one})], raise_on_unknown=False)
    messages: list[Any] = [request.message for request in cluster.requests("IncrementalAlterConfigs")]
    sent = [(config.config_operation, config.value) for message in messages for config in message.resources[0].configs]
    assert sent == [(operation, SECRET) for operation in (2, 2, 3, 3, 2, 2, 3, 2)]


def test_a_list_of_no_texts_is_not_appended(cluster: MockCluster) -> None:
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap, handler="threading") as skin:
        for key in (OF_BROKERS[1], "cleanup.policy"):
            resource = ConfigResource("broker", "1", {key: ("APPEND", [SECRET])})
            with pytest.raises(ConfigurationError, match="configs=<list>: must be a text, not list"):
                skin.alter_configs([resource], raise_on_unknown=False)


# -- where sockets come from, and through which proxy --------------------------------------------------------------------
WITH_USER = (f"u:{SECRET}@h:1", f"{SECRET}@h", f"u:{SECRET}@h", f"http://u:{SECRET}@h:1", (f"u:{SECRET}@h", "x"), (f"u:{SECRET}@h", 1))


@pytest.mark.parametrize("given", [*WITH_USER, WITH_USER[0].encode()], ids=repr)
def test_a_password_before_a_source_address_is_not_shown(given: Any) -> None:
    handler = ThreadingHandler()
    of: dict[str, Any] = {
        "id_": 1,
        "host": "h",
        "port": 1,
        "handler": handler,
        "socket_timeout_ms": 1,
        "offsets_channel_socket_timeout_ms": 1,
    }
    entry = SimpleNamespace(id=1, host="h", port=1)
    makers: tuple[Callable[[], Any], ...] = (
        lambda: KafkaClient("h:1", handler="threading", source_address=given),
        lambda: Cluster("h:1", handler, source_address=given),
        lambda: BrokerConnection("h", 1, handler, source_host=given),
        lambda: BrokerConnection("h", 1, handler, source_port=given),
        lambda: BrokerConnection("h", 1, 65536, 0, given),  # type: ignore[arg-type]
        lambda: Broker(**of, source_host=given),
        lambda: Broker(**of, source_port=given),
        lambda: Broker.from_metadata(entry, handler, 1, 1, source_host=given),
        lambda: Broker.from_metadata(entry, handler, 1, 1, source_port=given),
    )
    for maker in makers:
        with pytest.raises(ConfigurationError, match="source_") as caught:
            maker()
        assert SECRET not in told_by(caught.value)


@pytest.mark.parametrize("given", [f"u:{SECRET}@h", f"{SECRET}@h", f"u:{SECRET}@h".encode(), (f"u:{SECRET}@h", 1)], ids=repr)
def test_a_password_before_a_brokers_host_is_not_shown(given: Any) -> None:
    handler = ThreadingHandler()
    makers = (lambda: Broker(1, given, 1, handler, 1, 1), lambda: BrokerConnection(given, 1, handler))
    for maker in makers:
        with pytest.raises(ConfigurationError, match="host=") as caught:
            maker()
        assert SECRET not in told_by(caught.value)


@pytest.mark.parametrize("escape", ["%zz", "%", "%4", "%4g", "%%41", "%ff", "%C3%28"])
@pytest.mark.parametrize("place", ["u:{}", "{}:p"])
def test_what_is_no_percent_escape_in_a_proxys_url_is_refused_and_not_shown(place: str, escape: str) -> None:
    """It was taken as it stood, or sent as U+FFFD."""
    url = f"http://{place.format(SECRET + escape)}@h:1"
    told = failing(lambda: KafkaClient("h:1", handler="threading", proxy_url=url))
    assert SECRET not in told
    assert "proxy_url='http://***': a % in a user name or a password begins an escape" in told


def test_a_percent_escape_in_a_proxys_url_is_what_it_stands_for() -> None:
    assert parse_proxy_url("http://u:p%25%c3%a4%C3%A4@h:1").credentials == ("u", "p%\u00e4\u00e4")


PASTED = {
    "a connection string": f"Endpoint=sb://ns.example/;SharedAccessKeyName=x;SharedAccessKey={SECRET}",
    "a line of a file": f"sasl.password={SECRET}",
    "such a line, in another form": f"b:1\nsasl.password: {SECRET}",
    "a file": f"bootstrap.servers=b:1\nsasl.password={SECRET}",
    "a login line": f'x.PlainLoginModule required username="u" password="{SECRET}";',
    "a user and a password": f"alice:{SECRET}",
    "a path": f"https://h.example/{SECRET}",
    "no word": f"{SECRET}!x",
}


@pytest.mark.parametrize("pasted", PASTED)
def test_what_is_pasted_in_place_of_addresses_is_not_shown(pasted: str, tmp_path: Path) -> None:
    text = PASTED[pasted]
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=" + text.replace("\n", "\\n"))
    makers: list[Callable[[], Any]] = [
        *(partial(skin, bootstrap_servers=given, handler="threading") for skin in SKINS for given in (text, [text])),
        *(partial(maker, text, {}) for maker in LEGACY),
        lambda: KafkaClient(text, handler="threading"),
        lambda: KafkaClient.from_properties(file),
        lambda: KafkaClient.from_properties({"bootstrap.servers": text}),
        lambda: KafkaClient.from_properties({"bootstrap.servers": [text]}),
        lambda: settle({"config": str(file)}),
        lambda: parse({"kafka.bootstrap.servers": text, "subscribe": "t"}),
        lambda: parse_sink({"kafka.bootstrap.servers": text, "topic": "t"}),
        lambda: Broker(1, text, 1, ThreadingHandler(), 1, 1),
        lambda: KafkaClient("h:1", source_address=text, handler="threading"),
    ]
    for maker in makers:
        error = failing(maker)
        assert SECRET not in (error if isinstance(error, str) else told_by(error))


@pytest.mark.parametrize(
    "word", ["h" + ":1234" * 5000 + "!", "h" + ":a" * 5000 + "!", "%" * 5000 + "!", "/" * 5000 + "!", "1:" * 5000 + "!"], ids=range(5)
)
def test_to_look_for_addresses_takes_no_time_that_grows_beyond_the_text(word: str) -> None:
    """It doubled with each colon: 22 of them took 3.5 s."""
    with pytest.raises(ConfigurationError):
        KafkaClient(word)


@pytest.mark.parametrize("pasted", [name for name in PASTED if "=" in PASTED[name]])
@pytest.mark.parametrize("option", ["security_protocol", "sasl_mechanism", "compression", "auto_offset_reset", "isolation_level"])
def test_what_is_pasted_in_place_of_a_choice_is_not_shown(pasted: str, option: str) -> None:
    given = {option: PASTED[pasted]}
    for maker in (
        lambda: KafkaClient.from_properties({"bootstrap.servers": "h:1", **given}),
        *((lambda: KafkaClient("h:1", handler="threading", **given),) if "s" in option[:3] else ()),
    ):
        error = failing(maker)
        assert SECRET not in (error if isinstance(error, str) else told_by(error))
