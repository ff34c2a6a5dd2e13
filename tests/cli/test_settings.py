"""Options of the connection: where they come from, which one counts, and that no password stands on the command line."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.cli.connection import CONSUMER, MEMBER, POSITION, PRODUCER
from gkafka.cli.settings import open_client, settle
from gkafka.config import NativeConsumerConfig, ProducerConfig, Secret
from gkafka.exceptions import ConfigurationError
from gkafka.properties import read_lines
from tests.public.test_secrets import told_by


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KAFKA_BOOTSTRAP_SERVERS", "KAFKA_SASL_PASSWORD", "KAFKA_SSL_PASSWORD", "KAFKA_TO_SASL_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "stdin", io.StringIO())


@pytest.fixture
def file(tmp_path: Path) -> Any:
    def write(text: str, name: str = "client.properties") -> str:
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write


# -- files of properties -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a=1\nb : 2\nc 3\n", {"a": "1", "b": "2", "c": "3"}),
        ("# no\n! no\n\n  a = x y  \n", {"a": "x y  "}),
        ("a=one \\\n   two\nb=3", {"a": "one two", "b": "3"}),
        ("a=x\\\\\nb=2", {"a": "x\\", "b": "2"}),
        ("path=C:\\\\dir\\ttab", {"path": "C:\\dir\ttab"}),
        ("a\\=b=c", {"a=b": "c"}),
        ("a=\\u00fc", {"a": "ü"}),
        ("a=1\r\nb=2\ra=3", {"a": "3", "b": "2"}),
        ("empty\n", {"empty": ""}),
        ("a=1\\", {"a": "1"}),
        ("a=b=c", {"a": "b=c"}),
    ],
)
def test_files_are_read_as_java_reads_them(text: str, found: dict[str, str]) -> None:
    assert {line.name: line.value for line in read_lines(text)} == found


# -- which one counts ----------------------------------------------------------------------------------------------------------
def test_the_command_line_counts_before_the_file_and_that_before_the_environment(file: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert settle({}).hosts == "localhost:9092"
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "env:1")
    assert settle({}).hosts == "env:1"
    config = file("bootstrap.servers=file:1\n")
    assert settle({"config": config}).hosts == "file:1"
    assert settle({"config": config, "set": ("bootstrap.servers=set:1",)}).hosts == "set:1"
    assert settle({"config": config, "hosts": "line:1"}).hosts == "line:1"


def test_how_long_to_try_is_20_seconds_or_what_was_said(file: Any) -> None:
    assert settle({}).timeout_s == 20
    assert settle({"config": file("default.api.timeout.ms=3000")}).timeout_s == 3
    assert settle({"config": file("default.api.timeout.ms=3000"), "timeout": 7}).timeout_s == 7


def test_a_file_of_the_java_clients_is_understood(file: Any) -> None:
    config = file(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nssl.truststore.location=/ca.pem\nssl.truststore.type=PEM\n"
        'sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="s;x";\n'
        "ssl.endpoint.identification.algorithm=https\nrequest.timeout.ms=5000\nacks=all\nlinger.ms=7\ngroup.id=g\n"
        "key.serializer=org.apache.kafka.common.serialization.StringSerializer\n"
    )
    settings = settle({"config": config}, uses=(PRODUCER, POSITION))
    assert settings.client == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "ssl_cafile": "/ca.pem",
        "sasl_username": "alice",
        "sasl_password": "s;x",
        "socket_timeout_ms": 5000,
    }
    assert settings.of(ProducerConfig) == {"acks": "all", "linger_ms": 7, "request_timeout_ms": 5000}
    assert settings.records["group"] == "g"


# -- passwords -----------------------------------------------------------------------------------------------------------------
KEY = "-----BEGIN PRIVATE KEY-----\nx1y2\n-----END PRIVATE KEY-----"
SCRAM = {"sasl_username": "alice", "sasl_mechanism": "SCRAM-SHA-256", "security_protocol": "SASL_SSL"}


@pytest.mark.parametrize(
    "pair",
    [
        "sasl_password=x1y2",
        "sasl.password=x1y2",
        "sasl_plain_password=x1y2",
        "ssl.key.password=x1y2",
        "ssl_password=x1y2",
        'sasl.jaas.config=PlainLoginModule required password="x1y2";',
        "sasl_oauth_client_secret=x1y2",
        "proxy_url=socks5://me:x1y2@proxy:1080",
    ],
)
def test_a_password_on_the_command_line_is_refused_with_the_ways_to_give_it(pair: str) -> None:
    with pytest.raises(ConfigurationError, match=r"seen by everybody .* in a file that --config names") as told:
        settle({"set": (pair,)})
    assert "x1y2" not in str(told.value)


@pytest.mark.parametrize("given", [{"set": (f"ssl.keystore.key={KEY}",)}, {"set": (f"ssl_certfile={KEY}",)}, {"ssl_keyfile": KEY}], ids=str)
def test_a_key_on_the_command_line_is_refused_with_the_ways_to_give_it(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"seen by everybody .* the name of its file") as told:
        settle(given)
    assert "x1y2" not in str(told.value)


def test_a_proxy_without_a_password_may_be_set() -> None:
    assert settle({"set": ("proxy_url=socks5://proxy:1080",)}).client["proxy_url"].reveal() == "socks5://proxy:1080"


@pytest.mark.parametrize(
    "line", ["sasl.pw=x1y2", "http.proxy=http://u:x1y2@h:1", "basic.auth.user.info=u:x1y2\nno=1", "client.id=x://u:x1y2@h\nno=1"]
)
def test_nothing_of_a_file_that_may_be_a_secret_is_in_a_variable_of_a_traceback(line: str, file: Any) -> None:
    with pytest.raises(ConfigurationError, match="unknown option") as told:
        settle({"config": file(line + "\n", "client.properties")})
    assert "x1y2" not in told_by(told.value)


@pytest.mark.parametrize(
    ("text", "line", "length"),
    [
        ("security.protocol=SSL\n# a key\nssl.keystore.key=-----BEGIN PRIVATE KEY-----\nx1y2" + "M" * 60 + "\n", 4, 64),
        ("sasl.username=bob\nx1y2\n", 2, 4),
        ("sasl.username=\\\n  bob\nx1y2x1y2==\n", 3, 8),
        ("sasl.mechanism=PLAIN\nx1y2/+x = y\n", 2, 7),
        ('"x1y2"="v"\n', 1, 6),
        ("a" * 61 + "x1y2=v\n", 1, 65),
    ],
    ids=repr,
)
def test_what_stands_in_a_names_place_is_told_by_its_line_and_length(text: str, line: int, length: int, file: Any) -> None:
    """A key without backslashes at the ends of its lines, a password that is alone on its line."""
    with pytest.raises(ConfigurationError, match=rf"client.properties: line {line}: {length} characters that are no option's name") as told:
        settle({"config": file(text)})
    assert "x1y2" not in str(told.value) + told_by(told.value)


@pytest.mark.parametrize("text", ["lingr.ms\n", "sasl.pasword x1y2\n", "keepalive", "nosuch: x1y2", "nosuch = x1y2"])
def test_a_name_that_is_an_options_or_much_like_one_or_has_a_value_is_told(text: str, file: Any) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(re.split(r"\W*\s", text)[0])) as told:
        settle({"config": file(text)})
    assert "x1y2" not in str(told.value)


@pytest.mark.parametrize("text", ["x1y2SECRET", "x1y2SECRET=", "x1y2+/=y", "=x1y2", "-----BEGIN PRIVATE KEY----- x1y2"])
def test_what_is_set_without_a_name_is_told_by_its_length(text: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"--set, a text of {len(text)} characters: must be NAME=VALUE") as told:
        settle({"set": (text,)})
    assert "x1y2" not in str(told.value)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("sasl.oauth.extensions=x1y2", "its part 1, a text of 4 characters, must be NAME=VALUE"),
        ("sasl.oauth.extensions=pool=p,=x1y2", "its part 2"),
        ("sasl.login.callback.handler.class=x1y2", "gkafka loads no Java class but does what IAMClientCallbackHandler"),
        ("sasl.mechanism=PLAIN x1y2", "sasl.mechanism, a text of 10 characters: must be one of"),
    ],
)
def test_a_secret_in_place_of_what_stands_beside_it_is_not_shown(line: str, says: str, file: Any) -> None:
    with pytest.raises(ConfigurationError, match=says) as told:
        settle({"config": file(line + "\n", "client.properties")})
    assert "x1y2" not in told_by(told.value)


def test_extensions_of_a_token_may_be_set() -> None:
    assert settle({"set": ("sasl.oauth.extensions=pool=p, logicalCluster=l=1",)}).client["sasl_oauth_extensions"] == {
        "pool": "p",
        "logicalCluster": "l=1",
    }


def test_a_password_comes_from_a_file_of_its_own(file: Any) -> None:
    settings = settle({**SCRAM, "sasl_password_file": file("geheim\n", "password")})
    assert isinstance(settings.client["sasl_password"], Secret)
    assert settings.client["sasl_password"].reveal() == "geheim"
    assert "geheim" not in repr(settings)


@pytest.mark.parametrize("text", ["", "\n", "a\nb\n"])
def test_a_password_file_that_is_none_is_refused(text: str, file: Any) -> None:
    with pytest.raises(ConfigurationError, match="only line"):
        settle({"sasl_password_file": file(text, "password")})


def test_a_password_comes_from_the_environment_where_one_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_SASL_PASSWORD", "aus-der-umgebung")
    assert settle(SCRAM).client["sasl_password"].reveal() == "aus-der-umgebung"
    assert "sasl_password" not in settle({}).client


def test_another_cluster_has_a_variable_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_SASL_PASSWORD", "hier")
    monkeypatch.setenv("KAFKA_TO_SASL_PASSWORD", "dort")
    assert settle(SCRAM, prefix="to").client["sasl_password"].reveal() == "dort"


# -- bad input -----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("pair", "told"),
    [
        ("client.idd=x", r"--set client.idd: unknown option; did you mean 'client.id'\?"),
        ("zzz=x", "--set zzz: unknown option"),
        ("socket_timeout_ms", "--set 'socket_timeout_ms': must be NAME=VALUE"),
        ("=x", "must be NAME=VALUE"),
        ("socket_timeout_ms=soon", "--set socket_timeout_ms='soon': must be a number"),
        ("socket_timeout_ms=0", "must be 1 or more"),
        ("keepalive=maybe", "must be 'true' or 'false'"),
        ("linger.ms=5", "is an option of produce: here it would do nothing"),
        ("key.serializer=x", "has no effect here: leave it out"),
        ("bootstrap.server=x", r"unknown option; did you mean 'bootstrap.servers'\?"),
        ("lingerms=5", "--set lingerms: unknown option: leave it out"),
        ("allow.auto.create.topics=true", "makes no topic by asking for it"),
        ("hub.stall.meter=true", "has no effect here"),
        ("group.id=g", "is an option of consume"),
        ("group.id=", r"--set group.id='': must be a name"),
        ("client.id=", r"--set client.id='': must be a name"),
        ("bootstrap.servers=", r"--set bootstrap.servers='': must be a name"),
        ("bootstrap.servers=h:p", r"--set bootstrap.servers: 'h:p': must be host:port"),
        ("metadata.max.age.ms=1.5e400", "must be a finite number"),
        ("keepalive_idle_s=1.5", "must be a whole number"),
        ("ssl_context=x", "has no effect here: leave it out"),
        ("security.protocol=TLS", "must be one of"),
    ],
)
def test_what_cannot_be_set_is_told_with_the_next_step(pair: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        settle({"set": (pair,)})


def test_what_a_command_takes_beside_may_be_set() -> None:
    assert settle({"set": ("linger.ms=5",)}, uses=(PRODUCER,)).of(ProducerConfig) == {"linger_ms": 5}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("ssl.truststore.location=/a.jks", "PEM files, not Java key stores"),
        ("ssl.keystore.type=PEM\nssl.keystore.password=x", "ssl.key.password"),
        ("ssl.endpoint.identification.algorithm=", "ssl.check.hostname=false"),
        ("bootstrap.server=x", r"client.properties: bootstrap.server: unknown option"),
        ("bootstrap.servers=", r"client.properties: bootstrap.servers='': must be a name"),
        ("bootstrap.servers=h:p", r"client.properties: bootstrap.servers: 'h:p': must be host:port"),
    ],
)
def test_what_a_file_may_not_say_is_told_with_its_name(text: str, told: str, file: Any) -> None:
    with pytest.raises(ConfigurationError, match=told):
        settle({"config": file(text)})


def test_a_user_before_a_files_brokers_is_told_by_the_files_name_and_not_shown(file: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"client.properties: bootstrap.servers: '...@h:1' is not host:port") as told:
        settle({"config": file("bootstrap.servers=u:x1y2@h:1")})
    assert "x1y2" not in str(told.value) + told_by(told.value)
    assert settle({"config": file("bootstrap.servers=h:p"), "hosts": "h:1"}).hosts == "h:1", "which is not used"


def test_the_environments_brokers_are_told_by_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "h:p")
    with pytest.raises(ConfigurationError, match=r"^KAFKA_BOOTSTRAP_SERVERS: 'h:p': must be host:port"):
        settle({})


def test_an_empty_name_of_brokers_is_not_localhost() -> None:
    assert settle({"hosts": ""}).hosts == ""


def test_a_password_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "password").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match="in UTF-8"):
        settle({"sasl_password_file": str(tmp_path / "password")})


def test_what_libraries_log_is_for_debug_alone(capfd: pytest.CaptureFixture[str]) -> None:
    import logging

    loggers = [logging.getLogger(name) for name in ("gkafka", "kazoo")]
    before = [logger.level for logger in loggers]
    try:
        open_client(settle({"hosts": "127.0.0.1:1"})).close()
        logging.getLogger("kazoo.client").warning("Connection dropped")
        assert capfd.readouterr().err == ""
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


def test_brokers_and_zookeeper_both_are_one_too_many() -> None:
    with pytest.raises(ConfigurationError, match="leave one out"):
        settle({"hosts": "a:1", "zookeeper": "b:1"})


# -- what a file says of records -----------------------------------------------------------------------------------------------
EVERYTHING = (
    "acks=1\nlinger.ms=7\nbatch.size=4096\ncompression.type=gzip\nmax.request.size=2048\npartitioner.class=murmur2_random\n"
    "isolation.level=read_uncommitted\nfetch.min.bytes=3\nmax.poll.records=17\nrequest.timeout.ms=900\n"
    "group.id=billing\nauto.offset.reset=smallest\nenable.auto.commit=false\n"
    "session.timeout.ms=9000\npartition.assignment.strategy=org.apache.kafka.clients.consumer.RangeAssignor,roundrobin\n"
)
OF_PRODUCERS = {
    "acks": "1",
    "linger_ms": 7,
    "batch_bytes": 4096,
    "compression": "gzip",
    "max_request_bytes": 2048,
    "partitioner": "murmur2",
    "request_timeout_ms": 900,
}
OF_CONSUMERS = {"isolation_level": "read_uncommitted", "fetch_min_bytes": 3, "request_timeout_ms": 900}
OF_POSITIONS = {"auto_offset_reset": "earliest", "auto_commit": False}
OF_MEMBERS = {"session_timeout_ms": 9000, "assignors": ("range", "roundrobin")}


@pytest.mark.parametrize(
    ("uses", "producer", "consumer", "more"),
    [
        ((), {}, {}, {}),
        ((PRODUCER,), OF_PRODUCERS, {"request_timeout_ms": 900}, {}),
        ((CONSUMER,), {"request_timeout_ms": 900}, OF_CONSUMERS, {"max_poll_records": 17}),
        ((POSITION,), {}, OF_POSITIONS, {"group": "billing"}),
        ((MEMBER,), {}, OF_MEMBERS, {}),
    ],
)
def test_each_property_takes_effect_in_the_commands_that_it_is_about(uses: Any, producer: Any, consumer: Any, more: Any, file: Any) -> None:
    settings = settle({"config": file(EVERYTHING)}, uses=uses)
    assert settings.of(ProducerConfig) == producer
    assert settings.of(NativeConsumerConfig) == consumer
    assert {name: value for name, value in settings.records.items() if name in ("group", "max_poll_records")} == more


def test_sizes_of_buffers_are_the_sockets(file: Any) -> None:
    import socket

    config = file("receive.buffer.bytes=65536\nsend.buffer.bytes=-1\n")
    assert settle({"config": config}).client["socket_options"] == ((socket.SOL_SOCKET, socket.SO_RCVBUF, 65536),)
    assert "socket_options" not in settle({"config": file("send.buffer.bytes=-1\n")}).client


def test_a_buffer_in_librdkafkas_unit_is_as_large_as_it_says(file: Any) -> None:
    settings = settle({"config": file("queue.buffering.max.kbytes=10000\n")}, uses=(PRODUCER,))
    assert settings.of(ProducerConfig) == {"buffer_bytes": 10_240_000}
    assert settle({"set": ["queue.buffering.max.kbytes=4"]}, uses=(PRODUCER,)).records == {"buffer_bytes": 4096}
    assert settle({"config": file("queue.buffering.max.kbytes=10000\n")}, uses=(CONSUMER,)).records == {}
    for text, says in (("1", "kbytes=1, which is buffer_bytes=1024: must be"), ("many", "kbytes='many': must be a whole number")):
        with pytest.raises(ConfigurationError, match=says):
            settle({"config": file(f"queue.buffering.max.kbytes={text}\n")}, uses=(PRODUCER,))


def test_a_number_of_records_to_buffer_is_passed_over_in_a_file_and_refused_where_it_is_set(file: Any) -> None:
    for uses in ((PRODUCER,), (CONSUMER,), ()):
        settings = settle({"config": file("queue.buffering.max.messages=1000\n")}, uses=uses)
        assert settings.records == {}
        assert "queue.buffering.max.messages (records are bounded by their bytes here" in settings.notes[0]
    with pytest.raises(ConfigurationError, match=r"max\.messages: has no effect here: leave it out; .*buffer_bytes, in bytes"):
        settle({"set": ("queue.buffering.max.messages=1000",)}, uses=(PRODUCER,))


def test_what_is_so_anyway_may_stand_in_a_file(file: Any) -> None:
    config = file(
        "client.dns.lookup=use_all_dns_ips\nallow.auto.create.topics=false\nmetric.reporters=\nssl.protocol=TLSv1.3\n"
        "ssl.enabled.protocols=TLSv1.2,TLSv1.3\nvalue.deserializer=org.apache.kafka.common.serialization.ByteArrayDeserializer\n"
        "sasl.login.callback.handler.class=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler\n"
    )
    assert settle({"config": config}).client == {}


NOWHERE = (
    *("value.serializer=io.confluent.kafka.serializers.KafkaAvroSerializer", "ssl.protocol=TLSv1.1", "statistics.interval.ms=5"),
    *("client.dns.lookup=resolve_canonical_bootstrap_servers_only", "metric.reporters=com.example.Reporter", "consume.timeout.ms=5"),
    *("allow.auto.create.topics=true", "on.fork=recreate", "interceptor.classes=com.example.Spy", "security.providers=com.example.P"),
    *("schema.registry.url=https://r.example", "key.subject.name.strategy=TopicNameStrategy", "topic.message.timeout.msx=1"),
)


@pytest.mark.parametrize("line", NOWHERE[:-1])
def test_what_has_no_effect_in_any_command_is_passed_over_in_a_file_with_a_note(line: str, file: Any) -> None:
    name, _, value = line.partition("=")
    settings = settle({"config": file(line + "\n")}, uses=(CONSUMER, POSITION))
    assert (dict(settings.client), dict(settings.records)) == ({}, {})
    (note,) = settings.notes
    assert f"client.properties: no effect here: {name} (" in note
    assert len(value) < 3 or value not in note
    with pytest.raises(ConfigurationError, match=rf"--set {name}: .*has no effect here: leave it out"):
        settle({"set": (line,)}, uses=(CONSUMER, POSITION))


@pytest.mark.parametrize(
    "line",
    [
        *("ssl.enabled.protocols=TLSv1.3", "group.id=", "max.poll.records=0", "receive.buffer.bytes=many", "auto.offset.reset=tomorrow"),
        *("sasl.oauthbearer.grant.type=urn:ietf:params:oauth:grant-type:jwt-bearer", "config.providers=env", "ssl.curves.list=P-256"),
        *("bootstrap.controllers=h:1", "ssl.cipher.suites=TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", NOWHERE[-1]),
    ],
)
def test_what_cannot_be_had_is_refused_by_its_name(line: str, file: Any) -> None:
    with pytest.raises(ConfigurationError, match=rf"client.properties: {line.partition('=')[0]}[:=]"):
        settle({"config": file(line + "\n")}, uses=(CONSUMER, POSITION))


# -- files of other clients ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("line", "option", "value"),
    [
        ("ssl.ca.pem=-----BEGIN CERTIFICATE-----", "ssl_cafile", "-----BEGIN CERTIFICATE-----"),
        ("enable.ssl.certificate.verification=false", "tls_verify", False),
        ("topic.metadata.refresh.interval.ms=60000", "metadata_max_age_ms", 60000),
        ("socket.keepalive.enable=true", "keepalive", True),
        ("ssl.cipher.suites=ECDHE+AESGCM", "ssl_ciphers", "ECDHE+AESGCM"),
        ("receive.message.max.bytes=2000000", "max_response_bytes", 2000000),
        ("https.ca.location=/ca.pem", "sasl_oauth_cafile", "/ca.pem"),
        ("sasl.oauthbearer.extensions=logicalCluster=lkc-1", "sasl_oauth_extensions", {"logicalCluster": "lkc-1"}),
    ],
)
def test_a_property_of_librdkafka_is_an_option(line: str, option: str, value: Any, file: Any) -> None:
    settings = settle({"config": file(line + "\n")})
    found = settings.client[option]
    assert (found.reveal() if isinstance(found, Secret) else found) == value
    assert settings.notes == ()


def test_librdkafkas_file_for_tokens_is_read(file: Any) -> None:
    settings = settle(
        {
            "config": file(
                "metadata.broker.list=b:1\nsecurity.protocol=sasl_ssl\nsasl.mechanisms=OAUTHBEARER\nsasl.oauthbearer.method=oidc\n"
                "sasl.oauthbearer.client.id=me\nsasl.oauthbearer.client.secret=x1y2\nsasl.oauthbearer.token.endpoint.url=https://l/t\n"
                "topic.acks=1\nqueued.max.messages.kbytes=100\n"
            )
        },
        uses=(PRODUCER, CONSUMER),
    )
    assert settings.notes == ()
    assert settings.client["sasl_oauth_client_id"] == "me"
    assert settings.records == {"acks": "1", "queued_max_bytes": 102400}


SECTIONS = (
    "[default]\nbootstrap.servers=d:1\nsasl.password=a\\tb\n\n[consumer]\ngroup.id=readers\n; no\nauto.offset.reset=earliest\n"
    "[producer]\nacks = 1\nclient.id: writer\n"
)


@pytest.mark.parametrize(
    ("uses", "records", "client"),
    [
        ((), {}, {}),
        ((POSITION,), {"group": "readers", "auto_offset_reset": "earliest"}, {}),
        ((PRODUCER,), {"acks": "1"}, {"client_id": "writer"}),
    ],
)
def test_of_a_file_with_sections_each_command_reads_its_own(uses: Any, records: Any, client: Any, file: Any) -> None:
    settings = settle({"config": file(SECTIONS, "client.ini")}, uses=uses)
    assert settings.hosts == "d:1"
    assert settings.records == records
    assert settings.client.pop("sasl_password").reveal() == "a\\tb", "as configparser reads it"
    assert settings.client == client


def test_a_file_of_windows_is_read(tmp_path: Path) -> None:
    (tmp_path / "client.properties").write_bytes("\ufeffclient.id=win\r\nbootstrap.servers=h:1\r\n".encode())
    settings = settle({"config": str(tmp_path / "client.properties")})
    assert (settings.hosts, dict(settings.client)) == ("h:1", {"client_id": "win"})


def test_of_other_sections_one_is_named_behind_the_file(file: Any) -> None:
    path = file("[default]\nclient.id=d\n[staging]\nbootstrap.servers=s:1\n[prod]\nbootstrap.servers=p:1\n", "clusters.ini")
    with pytest.raises(
        ConfigurationError, match=r"has the sections default, staging, prod: which one\? Name it behind the file, as .*ini:staging"
    ):
        settle({"config": path})
    assert (settle({"config": f"{path}:prod"}).hosts, settle({"config": f"{path}:Staging"}).hosts) == ("p:1", "s:1")
    with pytest.raises(ConfigurationError, match=r"has no section 'test'; there are: default, staging, prod"):
        settle({"config": f"{path}:test"})


@pytest.mark.parametrize(
    ("line", "warned"),
    [
        ("sasl.password=ab\\cd", True),
        ("sasl.password=ab\\\\cd", False),
        ("sasl.password=ab\\=cd", False),
        ("sasl.password=ab\\u0041cd", False),
        ("ssl.ca.location=C:\\certs\\ca.pem", True),
        ("client.id=ab\\cd", False),
    ],
)
def test_a_backslash_that_librdkafka_would_keep_is_told(line: str, warned: bool, file: Any) -> None:
    notes = settle({"config": file(line + "\n")}).notes
    assert len(notes) == warned
    for note in notes:
        assert f"line 1: {line.partition('=')[0]}: a backslash begins an escape here" in note
        assert "write \\\\ for one" in note
        assert "cd" not in note.partition("client.properties")[2]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("PLAINTEXT://h:1", None),
        ("plaintext://h:1,PLAINTEXT://[::1]", None),
        ("SASL_SSL://h:1", "'SASL_SSL://h:1' with security_protocol='PLAINTEXT': set security_protocol='SASL_SSL'"),
        ("h:1;k:1", "separate addresses by commas, as 'h:1,k:1'"),
        ("['h:1']", "only an IPv6 address stands in brackets: give 'h:1'"),
    ],
)
def test_addresses_as_consoles_print_them(text: str, says: str | None, file: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", text)
    ways: list[tuple[str, dict[str, Any]]] = [
        ("KAFKA_BOOTSTRAP_SERVERS: ", {}),
        ("client.properties: bootstrap.servers: ", {"config": file(f"bootstrap.servers={text}\n")}),
        ("--set bootstrap.servers: ", {"set": (f"bootstrap.servers={text}",)}),
    ]
    for where, given in ways:
        if says is None:
            assert settle(given).hosts == text
        else:
            with pytest.raises(ConfigurationError) as told:
                settle(given)
            assert where in str(told.value)
            assert says in str(told.value)


# -- lines that go on, and other kinds of files ----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "sasl.password=x1y2\\\nacks=all\n",
            r"line 1: sasl.password: its value takes in the property acks below it, for a line ends in a backslash",
        ),
        ("sasl_password=x1y2\\\nsasl_mechanism=PLAIN\n", r"line 1: sasl_password: its value takes in the property sasl_mechanism"),
        ("ssl.key.password=x1y2\\\n\tlinger.ms 5\n", r"line 1: ssl.key.password: .* linger.ms"),
        ("client.id=C:\\dir\\\nschema.registry.url=http://r\n", r"line 1: client.id: .* schema.registry.url"),
        ("[default]\nclient.id=a\n  acks=1\n", r"line 2: client.id: .* acks below it, for it stands further to the right"),
    ],
)
def test_a_line_that_goes_on_swallows_no_other_property(text: str, says: str, file: Any) -> None:
    with pytest.raises(ConfigurationError, match=says) as told:
        settle({"config": file(text)})
    assert "x1y2" not in told_by(told.value)
    with pytest.raises(ConfigurationError, match=says):
        KafkaClient.from_properties(file(text))


@pytest.mark.parametrize(
    ("text", "option", "value", "notes"),
    [
        ("sasl.password=ab\\", "sasl_password", "ab", 1),
        ("sasl.password=ab\\\n\nacks=all", "sasl_password", "ab", 1),
        ("sasl_password=ab\\\n  cd\n", "sasl_password", "abcd", 1),
        ("sasl.password=ab\\\\\nacks=all", "sasl_password", "ab\\", 0),
        ("bootstrap.servers=h:1,\\\n  k:2\nclient.id=me", "client_id", "me", 0),
        ("ssl.keystore.key=-----BEGIN PRIVATE KEY-----\\n\\\n  MIIB\\\n", "ssl_keyfile", "-----BEGIN PRIVATE KEY-----\nMIIB", 0),
        ("[default]\nsasl.password=ab\\\nacks=all", "sasl_password", "ab\\", 0),
        ("[default]\nsasl.password=ab\n  cd", "sasl_password", "ab\ncd", 1),
        ("[default]\nbootstrap.servers:\n  h:1,\n  # other\n  k:2\nclient.id: a=b", "client_id", "a=b", 0),
    ],
)
def test_a_secret_that_goes_on_is_told(text: str, option: str, value: str, notes: int, file: Any) -> None:
    settings = settle({"config": file(text + "\n")})
    assert str.__str__(settings.client[option]) == value
    assert len(settings.notes) == notes
    assert "h:1" not in text or [one.strip() for one in settings.hosts.split(",")] == ["h:1", "k:2"]


def test_a_login_line_goes_on_as_in_java_and_as_in_configparser(file: Any) -> None:
    lines = ["sasl.jaas.config=x.PlainLoginModule required", 'username="u"', 'debug="true"', 'password="x1y2";']
    java, ini = " \\\n  ".join(lines), "[default]\n" + "\n  ".join(lines)
    for text in (java, ini):
        client = settle({"config": file(f"{text}\nsasl.mechanism=PLAIN\n")}).client
        assert (client["sasl_username"], client["sasl_password"].reveal(), client["sasl_mechanism"]) == ("u", "x1y2", "PLAIN")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("bootstrap.servers=h:1\n".encode("utf-16"), "is UTF-16: save it as UTF-8"),
        ("bootstrap.servers=h:1\n".encode("utf-16-be"), "is UTF-16: save it as UTF-8"),
        (b'{"bootstrap.servers": "h:1", "sasl.password": "x1y2"}', "is JSON, or a dict of Python: write lines NAME=VALUE"),
        (b"{'bootstrap.servers': 'h:1', 'sasl.password': 'x1y2'}", "is JSON, or a dict of Python"),
        (b'KafkaClient {\n  x.PlainLoginModule required\n  password="x1y2";\n};\n', "is a login file of Java"),
        (b"<?xml version='1.0'?><configuration/>", "is XML"),
        (b"# mine\nexport KAFKA_PASSWORD=x1y2\n", "has lines of a shell"),
        (b"spring:\n  kafka:\n    password: x1y2\n", "is YAML"),
        (b"---\nbootstrap.servers: h:1\n", "is YAML"),
        (b"bootstrap.servers:\n  - h:1\n  - k:1\n", "is YAML"),
        (b"[default]\nx1y2x1y2\n", "has its further lines further to the right"),
        (b"\xfe\xed\xfe\xed\0\0\0\2", "not Java key stores"),
    ],
    ids=lambda one: None if isinstance(one, bytes) else one,
)
def test_a_file_of_another_kind_is_told_as_what_it_is(text: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_bytes(text)
    for read in (lambda: settle({"config": str(path)}), lambda: KafkaClient.from_properties(path)):
        with pytest.raises(ConfigurationError, match=says) as told:
            read()
        assert "x1y2" not in told_by(told.value)


@pytest.mark.parametrize(
    "line",
    [
        "sasl.password=a{b",
        "sasl.password=x<abc",
        "# set by {{ ansible }}",
        "#\n---\n#",
        'client.id={"a":1}',
        "ssl.ca.location=",
        "\n" * 60,
        "#\n" * 60 + "!\n",
        "sasl.password=p\\\n[abc]",
    ],
)
@pytest.mark.parametrize("place", ["above", "below"])
def test_a_file_that_has_properties_is_one_whatever_else_stands_there(line: str, place: str, file: Any) -> None:
    text = f"{line}\nbootstrap.servers=h:1" if place == "above" else f"bootstrap.servers=h:1\n{line}"
    assert "---" in line or settle({"config": file(f"{text}\n")}).hosts == "h:1"
    if "[abc]" in line:
        assert settle({"config": file(f"{text}\n")}).client["sasl_password"].reveal() == "p[abc]"


@pytest.mark.parametrize(
    ("name", "value", "other", "another"),
    [
        ("security.protocol", "SSL", "security_protocol", "PLAINTEXT"),
        ("acks", "all", "request.required.acks", "1"),
        ("bootstrap.servers", "h:1", "metadata.broker.list", "k:1"),
        ("ssl.ca.location", "/a.pem", "ssl.cafile", "/b.pem"),
        ("receive.buffer.bytes", "1000", "socket.receive.buffer.bytes", "2000"),
        ("group.id", "g", "group_id", "h"),
        ("topic.acks", "1", "acks", "all"),
    ],
)
@pytest.mark.parametrize("section", ["", "[default]\n", "[staging]\n"])
def test_an_option_that_two_names_give_different_values_is_refused(
    name: str, value: str, other: str, another: str, section: str, file: Any
) -> None:
    config = file(f"{section}{name}={value}\n{other}={another}\n") + (":staging" if "staging" in section else "")
    for read in (
        lambda: settle({"config": config}),
        lambda: KafkaClient.from_properties(config),
        lambda: KafkaClient.from_properties({name: value, other: another}),
    ):
        with pytest.raises(ConfigurationError, match=f"{name} and {other} are one option, given twice"):
            read()
    settle({"config": file(f"{name}={value}\n{other}={value}\n")})


def test_two_names_of_which_one_has_no_effect_are_no_contradiction(file: Any) -> None:
    settle({"config": file("compression.type=zstd\ncompression.zstd.level=3\ncompression.gzip.level=9\n")})
    settle({"config": file("socket.timeout.ms=60000\nrequest.timeout.ms=30000\n")})
    client = settle(
        {"config": file("[default]\nacks=1\nsecurity.protocol=SSL\n[staging]\nsecurity_protocol=PLAINTEXT\n") + ":staging"}
    ).client
    assert client["security_protocol"] == "PLAINTEXT"  # a section counts before [default], whatever it calls the option


def test_a_login_line_of_several_lines_without_backslashes_is_told_so(file: Any) -> None:
    config = file('sasl.jaas.config=x.PlainLoginModule required\n  username="u"\n  password="x1y2";\n')
    for read in (lambda: settle({"config": config}), lambda: KafkaClient.from_properties(config)):
        with pytest.raises(ConfigurationError, match="ends without a semicolon: end each of its lines but the last in a backslash") as told:
            read()
        assert "x1y2" not in told_by(told.value)


# -- spellings -------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("ssl.truststore.location", "/k.jks", "reads PEM files, not Java key stores"),
        ("ssl.keystore.password", "x1y2", "a PEM file has none"),
        ("sasl.login.callback.handler.class", "com.example.Mine", "gkafka loads no Java class"),
        ("sasl.jaas.config", "x.PlainLoginModule required password=x1y2", "must end with a semicolon"),
        ("receive.buffer.bytes", "many", "must be a whole number"),
        ("ssl.endpoint.identification.algorithm", "none", "the broker's name is checked"),
    ],
)
@pytest.mark.parametrize("sign", ["_", "-"])
def test_a_name_with_underscores_is_checked_as_that_with_dots(name: str, value: str, says: str, sign: str, file: Any) -> None:
    spelled = name.replace(".", sign)
    config = file(f"{spelled}={value}\n")
    for read in (
        lambda: settle({"config": config}),
        lambda: KafkaClient.from_properties(config),
        lambda: KafkaClient.from_properties({spelled: value, "bootstrap_servers": "h:1"}),
    ):
        with pytest.raises(ConfigurationError, match=says) as told:
            read()
        assert "x1y2" not in told_by(told.value)


def test_a_login_line_on_the_command_line_is_refused_by_any_spelling() -> None:
    with pytest.raises(ConfigurationError, match="--set sasl_jaas_config: a password on the command line"):
        settle({"set": ("sasl_jaas_config=x.PlainLoginModule required password='x1y2';",)})


def test_sizes_of_buffers_and_pem_stores_have_any_spelling(file: Any) -> None:
    config = file("ssl_truststore_location=/ca.pem\nssl_truststore_type=PEM\nsecurity_protocol=SSL\nreceive_buffer_bytes=65536\n")
    client = settle({"config": config}).client
    assert (client["ssl_cafile"], len(client["socket_options"])) == ("/ca.pem", 1)
