"""`KafkaClient.from_properties()`: files and mappings with the names of Java's clients, of librdkafka, and of gkafka."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.cli.settings import settle
from gkafka.clientproperties import hide_properties, read_properties
from gkafka.config import Secret
from gkafka.exceptions import ConfigurationError
from gkafka.testing import MockCluster, Sasl
from tests.public.aids import Runner
from tests.public.test_secrets import told_by

File = Callable[..., str]
LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="KEY" password="s3cret" serviceName="kafka";'


@pytest.fixture
def file(tmp_path: Path) -> File:
    def write(text: str, name: str = "client.properties") -> str:
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write


def codec(cluster: MockCluster) -> int:
    """The codec of the batch that was written last."""
    return bytes(cluster.requests("Produce")[-1].message.topic_data[0].partition_data[0].records)[22] & 7


def test_a_file_says_how_to_connect_to_write_and_to_read(run: Runner, cluster: MockCluster, file: File) -> None:
    path = file(
        f"bootstrap.servers=PLAINTEXT://{cluster.bootstrap}\nclient.id=app\nacks=1\ncompression.type=gzip\nenable.idempotence=false\n"
        "group.id=readers\nsession.timeout.ms=12000\nauto.offset.reset=earliest\n"
    )
    with KafkaClient.from_properties(path, handler=run.name) as client:
        with client.get_producer() as producer:
            producer.produce("t", b"x").result(60)
        assert (codec(cluster), cluster.requests("Produce")[-1].message.acks) == (1, 1)
        with client.get_producer(**{"compression.type": None}) as producer:  # what a call says counts before the file
            producer.produce("t", b"y").result(60)
        assert codec(cluster) == 0
        with client.get_consumer(["t"], fetch_min_bytes=1) as consumer:
            message = consumer.consume(timeout_ms=60000)
            assert message is not None
            assert consumer.group_metadata().group_id == "readers"
        with client.get_consumer(["t"], "others") as consumer:
            assert consumer.consume(timeout_ms=60000) is not None
            assert consumer.group_metadata().group_id == "others"
    assert {request.message.session_timeout_ms for request in cluster.requests("JoinGroup")} == {12000}
    assert {request.client_id for request in cluster.requests("Metadata")} == {"app"}


def test_what_confluents_console_gives_is_read_with_one_warning(run: Runner, file: File, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    with MockCluster(topics={"t": 1}, sasl=Sasl({"KEY": "s3cret"})) as guarded:
        path = file(
            f"bootstrap.servers={guarded.bootstrap}\nsecurity.protocol=SASL_PLAINTEXT\nallow.plaintext.credentials=true\nsasl.mechanism=PLAIN\n"
            f"sasl.jaas.config={LOGIN}\nclient.dns.lookup=use_all_dns_ips\nacks=all\nschema.registry.url=https://r\nbasic.auth.user.info=A:hunter2\n"
        )
        with KafkaClient.from_properties(path, handler=run.name) as client:
            assert list(client.topics) == ["t"]
    (warning,) = [record.getMessage() for record in caplog.records if record.name == "gkafka.client"]
    assert "client.properties: no effect here: schema.registry.url, basic.auth.user.info (gkafka asks no schema registry)" in warning
    assert "serviceName in sasl.jaas.config" in warning
    assert "hunter2" not in caplog.text


def test_a_mapping_has_texts_or_what_the_options_take(run: Runner, cluster: MockCluster, caplog: pytest.LogCaptureFixture) -> None:
    """As the dictionaries of confluent-kafka's users have them."""
    caplog.set_level(logging.WARNING)
    given: dict[str, Any] = {
        "bootstrap.servers": [cluster.bootstrap],
        "queue.buffering.max.ms": 7,
        "compression.codec": "gzip",
        "enable.auto.commit": False,
        "enable.partition.eof": False,
        "api.version.request": True,
        "auto.offset.reset": "smallest",
        "partitioner": "consistent_random",
        "partition.assignment.strategy": "range,roundrobin",
        "value.serializer": str.encode,
        "error_cb": print,
        "statistics.interval.ms": 5000,
        "group.id": None,
    }
    with KafkaClient.from_properties(given, handler=run.name, client_id="me") as client:
        with client.get_producer() as producer:
            producer.produce("t", "text").result(60)
        assert codec(cluster) == 1
        with client.get_consumer(["t"]) as consumer:
            message = consumer.consume(timeout_ms=60000)
            assert message is not None
            assert bytes(message.value) == b"text"
    assert "no effect here: error_cb (it is set in a program's code); statistics.interval.ms (" in caplog.text


def test_sections_are_for_those_that_they_name(run: Runner, cluster: MockCluster, file: File) -> None:
    text = f"[default]\nbootstrap.servers={cluster.bootstrap}\n[consumer]\ngroup.id=g\nrequest.timeout.ms=7000\n[producer]\ncompression.type=gzip\n"
    with KafkaClient.from_properties(file(text, "client.ini"), handler=run.name) as client:
        with client.get_producer() as producer:
            producer.produce("t", b"x").result(60)
        with client.get_consumer(["t"]) as consumer:
            assert consumer.consume(timeout_ms=60000) is not None
            assert consumer.group_metadata().group_id == "g"
    assert codec(cluster) == 1
    path = file(text.replace("group.id=g", "client.id=r").replace("compression.type=gzip", "client.id=w"), "two.ini")
    with pytest.raises(ConfigurationError, match=r"client.id: \[\w+\] and \[\w+\] differ: make a client of each, of .*two.ini:\w+ and of"):
        KafkaClient.from_properties(path)
    KafkaClient.from_properties(f"{path}:consumer", handler=run.name).close()


def test_what_a_file_says_of_members_is_left_where_there_is_none(run: Runner, cluster: MockCluster, file: File) -> None:
    path = file(
        f"bootstrap.servers={cluster.bootstrap}\nsession.timeout.ms=12000\nenable.auto.commit=true\nauto.commit.interval.ms=50\n"
        "partition.assignment.strategy=range\ngroup.protocol=consumer\nheartbeat.interval.ms=1000\n"
    )
    with KafkaClient.from_properties(path, handler=run.name) as client:
        with client.get_producer() as producer:
            producer.produce("t", b"x").result(60)
        with client.get_consumer("t") as alone:
            assert alone.consume(timeout_ms=60000) is not None
        with client.get_consumer(group="g") as assigned:
            assigned.assign([("t", 0)])
            assert assigned.consume(timeout_ms=60000) is not None
        with client.get_consumer("t", "h", group_protocol="classic") as member:
            assert member.consume(timeout_ms=60000) is not None
    (joined, *_) = cluster.requests("JoinGroup")
    assert (joined.message.session_timeout_ms, [p.name for p in joined.message.protocols]) == (12000, ["range"])


def test_arguments_count_before_the_file_by_whatever_name(file: File) -> None:
    path = file(
        "bootstrap.servers=h:1\nsocket.timeout.ms=5\nsasl.username=u\nsasl.password=p\nsasl.mechanism=PLAIN\nsecurity.protocol=SASL_SSL\n"
    )
    client = KafkaClient.from_properties(path, hosts="k:2", **{"socket.timeout.ms": 7000, "sasl_plain_username": "v"})
    assert "hosts=k:2" in repr(client)
    assert (client.cluster.config.socket_timeout_ms, client.cluster.config.sasl_username) == (7000, "v")
    client.close()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"lingr.ms": "5", "bootstrap.servers": "h:1"}, r"^lingr.ms: unknown option; did you mean 'linger.ms'\?"),
        ({"linger.ms": "soon", "bootstrap.servers": "h:1"}, r"^linger.ms='soon': must be a number"),
        ({"linger.ms": -1, "bootstrap.servers": "h:1"}, r"^linger.ms=-1: must be 0 or more"),
        ({"linger.ms": "5"}, "no bootstrap.servers: name the brokers there, or give hosts="),
        ({"bootstrap.servers": "SSL://h:1"}, "set security_protocol='SSL'"),
        (
            {"bootstrap.servers": "h:1", "config.providers": "env"},
            "^config.providers: gkafka loads no Java class: leave it out, and give the values",
        ),
        ({"bootstrap.servers": "h:1", "oauth_cb": print}, "^oauth_cb: give sasl_oauth_token_provider"),
        ({"bootstrap.servers": "h:1", "ssl.keystore.location": "/k.jks"}, "reads PEM files, not Java key stores"),
        (
            {
                "bootstrap.servers": "h:1",
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.client.id": "a",
                "sasl.oauthbearer.client.secret": "b",
                "sasl.oauthbearer.token.endpoint.url": "login.example:443/oauth2/token",
            },
            "sasl_oauth_token_endpoint_url: has no scheme: must be an https URL",
        ),
        ({5: "x"}, "a name must be a text, not int"),
        (5, "must be the path of a file, or a mapping"),
    ],
)
def test_what_cannot_be_is_told_with_the_next_step(given: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        KafkaClient.from_properties(given)


@pytest.mark.parametrize(
    "given",
    [
        {"bootstrap.servers": "h:1", "sasl.pasword": "hunter2", "no.such": "1"},
        {"bootstrap.servers": "u:hunter2@h:1"},
        {"bootstrap.servers": "h:1", "basic.auth.user.info": "A:hunter2", "no.such": "1"},
        {"bootstrap.servers": "h:1", "sasl.password": "hunter2", "linger.ms": "soon"},
        {"bootstrap.servers": "h:1", "sasl.jaas.config": "x.PlainLoginModule required password=hunter2", "sasl.mechanism": "PLAIN"},
        {5: "hunter2"},
        "sasl.password=hunter2",
        "bootstrap.servers=h:1\nsasl.password=hunter2\n",
    ],
    ids=str,
)
@pytest.mark.parametrize("as_file", [False, True])
def test_no_secret_is_in_an_error_or_its_traceback(given: Any, as_file: bool, file: File) -> None:
    if as_file and isinstance(given, dict):
        given = file("".join(f"{name}={value}\n" for name, value in given.items()))
    with pytest.raises(ConfigurationError) as told:
        KafkaClient.from_properties(given)
    assert "hunter2" not in told_by(told.value)


def test_a_file_that_is_not_there_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        KafkaClient.from_properties(tmp_path / "nope")


STRIMZI = (
    'x.OAuthBearerLoginModule required oauth.client.id="c" oauth.client.secret="x1y2" oauth.scope="s" oauth.audience="a" '
    'oauth.token.endpoint.uri="https://h/t" oauth.ssl.truststore.type="PEM" ;'
)


def of_login(line: str, mechanism: str, **more: str) -> dict[str, str]:
    start = {"bootstrap.servers": "h:1", "security.protocol": "SASL_SSL", "sasl.mechanism": mechanism, "sasl.jaas.config": line}
    return {**start, **{name.replace("_", "."): value for name, value in more.items()}}


def test_a_login_line_of_strimzi_says_where_tokens_come_from() -> None:
    handler = "io.strimzi.kafka.oauth.client.JaasClientOauthLoginCallbackHandler"
    given = of_login(STRIMZI, "OAUTHBEARER", sasl_login_callback_handler_class=handler)
    found = read_properties(hide_properties(given))
    names = ("client_id", "client_secret", "scope", "audience", "token_endpoint_url")
    values = [found.client[f"sasl_oauth_{name}"] for name in names]
    assert [v.reveal() if isinstance(v, Secret) else v for v in values] == ["c", "x1y2", "s", "a", "https://h/t"]
    assert "oauth.ssl.truststore.type in sasl.jaas.config" in found.notes[0]
    with KafkaClient.from_properties(given) as client:
        assert client.cluster.config.sasl_oauth_audience == "a"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (of_login("x.PlainLoginModule required username='u' password='x1y2';;", "PLAIN"), "ends with more than one semicolon"),
        (of_login("x.PlainLoginModule required username='u' password='x1y2';", "PLAIN", sasl_username="v"), "sasl_username differ"),
        (of_login(STRIMZI.replace("oauth.scope", "clientId"), "OAUTHBEARER"), "differs from another one that means the same"),
        (of_login(STRIMZI.replace("oauth.scope", "oauth.access.token"), "OAUTHBEARER"), "give the token by sasl_oauth_token_provider"),
        (
            of_login(
                "x.OAuthBearerLoginModule required;", "OAUTHBEARER", sasl_login_callback_handler_class="com.google.GcpLoginCallbackHandler"
            ),
            "token.endpoint.url=http://localhost:14293",
        ),
    ],
    ids=lambda one: None if isinstance(one, dict) else one,
)
def test_a_login_line_that_cannot_be_had_is_told_with_the_next_step(given: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says) as told:
        KafkaClient.from_properties(given)
    assert "x1y2" not in told_by(told.value)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("BOOTSTRAP_SERVERS", "bootstrap.servers"),
        ("KAFKA_BOOTSTRAP_SERVERS", "bootstrap.servers"),
        ("KAFKA_SASL_PASSWORD", "sasl.password"),
        ("spring.kafka.bootstrap-servers", "bootstrap.servers"),
        ("spring.kafka.consumer.group-id", "group.id"),
        ("kafka.acks", "acks"),
    ],
)
def test_the_name_of_a_variable_or_of_a_frameworks_property_is_told_by_its_own(name: str, meant: str, file: File) -> None:
    path = file(f"{name}=x1y2\n")
    for read in (
        lambda: KafkaClient.from_properties({name: "x1y2"}),
        lambda: KafkaClient.from_properties(path),
        lambda: settle({"config": path}),
    ):
        with pytest.raises(ConfigurationError, match=f"{name}: unknown option; write it as '{meant}'"):
            read()


@pytest.mark.parametrize(
    ("text", "whose"),
    [
        (
            "application.id=a\nnum.stream.threads=2\nstate.dir=/s\ndefault.key.serde=x\nprocessing.guarantee=at_least_once\n",
            "of Kafka Streams",
        ),
        ("offset.storage.topic=t\nplugin.path=/p\nkey.converter=x\nconfig.storage.topic=c\nrest.port=1\n", "of Kafka Connect's workers"),
        ("broker.id=1\nlisteners=PLAINTEXT://:9092\nlog.dirs=/d\nnum.partitions=3\nadvertised.listeners=x\n", "of brokers"),
    ],
    ids=["streams", "connect", "brokers"],
)
def test_a_file_of_another_program_of_kafkas_is_taken_with_one_note(text: str, whose: str, file: File) -> None:
    path = file(f"bootstrap.servers=h:1\n{text}")
    for notes in (settle({"config": path}).notes, read_properties(path).notes):
        assert len(notes) == 1
        assert whose in notes[0]


def test_addresses_that_are_none_are_told_with_the_file_and_bytes_are_taken(file: File) -> None:
    path = file("bootstrap.servers=h:1;k:2\n")
    with pytest.raises(ConfigurationError, match=r"client\.properties: bootstrap.servers: 'h:1;k:2'.*as 'h:1,k:2'"):
        KafkaClient.from_properties(path)
    with pytest.raises(ConfigurationError, match=r"bootstrap.servers: 'SSL://h:1' with security_protocol='PLAINTEXT'"):
        KafkaClient.from_properties({"bootstrap.servers": "SSL://h:1", "security.protocol": "PLAINTEXT"})
    assert read_properties(hide_properties({"bootstrap.servers": [b"h:1", "k:2"]})).hosts == "h:1,k:2"
