"""What cannot be used is refused at the call, as a ConfigurationError that names the argument and its value."""

from __future__ import annotations

import re
import ssl
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest

from gkafka import KafkaClient
from gkafka.broker import Broker
from gkafka.checks import check_topic_name
from gkafka.cluster import Cluster
from gkafka.config import ClientConfig, build
from gkafka.connection import BrokerConnection, SslConfig
from gkafka.exceptions import ConfigurationError, KafkaException
from gkafka.handlers import ThreadingHandler
from gkafka.spark.options import parse
from gkafka.testing import MockCluster
from tests.net.certificates import PASS_PHRASE, Certificates
from tests.net.test_proxy import variables


class Incomparable:
    def __eq__(self, other: object) -> bool:
        raise RuntimeError("compared")


NAN, INF = float("nan"), float("inf")


@pytest.fixture(scope="module")
def client() -> Iterator[KafkaClient]:
    with (
        MockCluster(topics={"t": 2}, auto_create=False) as cluster,
        KafkaClient(cluster.bootstrap, handler="threading", api_timeout_ms=30_000) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def consumer(client: KafkaClient) -> Iterator[Any]:
    with client.topics["t"].get_simple_consumer(consumer_group="g", consumer_timeout_ms=50) as consumer:
        yield consumer


def refused(call: Callable[[], Any], *words: str) -> None:
    with pytest.raises(KafkaException) as caught:
        call()
    assert isinstance(caught.value, ConfigurationError), caught.value
    for word in words:
        assert word in str(caught.value), caught.value


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ssl_config": 1}, "ssl_config: must be a gkafka.connection.SslConfig, not int"),
        ({"ssl_config": "x"}, "ssl_config: must be a gkafka.connection.SslConfig, not str"),
        ({"ssl_config": object}, "ssl_config: must be"),
        ({"use_greenlets": "x"}, "use_greenlets='x'"),
        ({"use_greenlets": 0}, "use_greenlets=0"),
        ({"source_address": []}, "source_address=[]"),
        ({"source_address": 0}, "source_address=0"),
        ({"use_greenlets": None}, "use_greenlets=None"),
        ({"exclude_internal_topics": "no"}, "exclude_internal_topics='no'"),
        ({"ignore_rdkafka": "x"}, "ignore_rdkafka='x'"),
        ({"hosts": b"\xff"}, "hosts=b'\\xff'"),
        ({"keepalive_idle_s": 10**12}, "keepalive_idle_s="),
        ({"socket_timeout_ms": 10**400}, "socket_timeout_ms="),
        ({"client_id": "\ud800"}, "client_id="),
        ({"security_protocol": numpy.array([1, 2])}, "security_protocol=<ndarray>"),
        ({"security_protocol": Incomparable()}, "security_protocol="),
        ({"socket_options": ("",)}, "socket_options: ''"),
        ({"socket_options": ((1, 2),)}, "socket_options: (1, 2)"),
        ({"socket_options": ((1, 2, 3, 4),)}, "socket_options: (1, 2, 3, 4)"),
        ({"socket_options": ((1.5, 2, 3),)}, "socket_options: (1.5, 2, 3)"),
        ({"socket_options": ((1, 2, "x"),)}, "the value must be a number of 32 bits, or bytes"),
        ({"socket_options": ((1, 2, None),)}, "the value must be a number of 32 bits, or bytes"),
        ({"socket_options": ((1, 2, 1 << 40),)}, "the value must be a number of 32 bits, or bytes"),
        ({"client_id": "x" * 40000}, "40000 bytes"),
    ],
)
def test_of_a_client(options: dict[str, Any], words: str) -> None:
    refused(lambda: KafkaClient(**{"hosts": "localhost:1", "handler": "threading", **options}), words)


@pytest.mark.parametrize("handler", ["threading", "gevent"])
@pytest.mark.parametrize("protocol", [{}, {"security_protocol": "PLAINTEXT"}])
@pytest.mark.parametrize(
    "options",
    [
        {"ssl_cafile": "/ca.pem"},
        {"ssl_certfile": "/me.pem"},
        {"ssl_keyfile": "/me.key"},
        {"ssl_password": "hush"},
        {"ssl_password": lambda: "hush"},
        {"ssl_context": ssl.create_default_context()},
        {"ssl_context": "x"},
        {"ssl_crlfile": "/list.pem"},
        {"ssl_ciphers": "ECDHE"},
        {"ssl_check_hostname": False},
        {"tls_verify": False},
    ],
    ids=lambda given: next(iter(given)),
)
def test_of_tls_in_clear_text(handler: str, protocol: dict[str, str], options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        KafkaClient("localhost:1", handler=handler, **protocol, **options)
    assert next(iter(options)) in str(caught.value)
    assert "security_protocol='SSL'" in str(caught.value)
    assert "hush" not in str(caught.value)


def test_of_pykafkas_tls_in_clear_text() -> None:
    refused(
        lambda: KafkaClient("localhost:1", handler="threading", ssl_config=SslConfig("/ca.pem"), security_protocol="PLAINTEXT"),
        "security_protocol='SSL'",
    )


@pytest.mark.parametrize("handler", ["threading", "gevent"])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ssl_cafile": "missing.pem"}, "missing.pem': there is no such file"),
        ({"ssl_cafile": "good.key"}, "good.key': the file holds no certificate"),
        ({"ssl_cafile": "missing.pem", "tls_verify": False, "allow_unverified_tls": True}, "missing.pem': there is no such file"),
        ({"ssl_cafile": "client.p12"}, "client.p12': not a PEM file. PKCS12 and Java key stores have to be converted: keytool"),
        ({"ssl_certfile": "client.p12"}, "client.p12': not a PEM file. PKCS12 and Java key stores have to be converted: openssl pkcs12"),
        ({"ssl_certfile": "client.pem", "ssl_keyfile": "client.p12"}, "client.p12': not a PEM file"),
        ({"ssl_crlfile": "missing.crl"}, "missing.crl': there is no such file"),
        ({"ssl_crlfile": "good.pem"}, "good.pem': it holds no revocation list"),
        ({"ssl_ciphers": "NONE-OF-THESE"}, "ssl_ciphers='NONE-OF-THESE'"),
        ({"ssl_ciphers": ""}, "ssl_ciphers=''"),
        ({"tls_verify": False}, "allow_unverified_tls=True"),
        ({"ssl_check_hostname": False}, "ssl_check_hostname=False gives up"),
        ({"ssl_certfile": "missing.pem"}, "missing.pem': there is no such file"),
        ({"ssl_certfile": "client.pem", "ssl_keyfile": "missing.key"}, "missing.key': there is no such file"),
        ({"ssl_keyfile": "client.key"}, "client.key' without ssl_certfile"),
        ({"ssl_certfile": "client.pem", "ssl_keyfile": "good.key"}, "the key does not belong to the certificate"),
        ({"ssl_certfile": "client.pem", "ssl_keyfile": "good.key", "ssl_password": lambda: "x"}, "does not belong to the certificate"),
        ({"ssl_certfile": "client.pem", "ssl_keyfile": "client.locked.key"}, "client.locked.key' is encrypted: give ssl_password"),
        ({"ssl_certfile": "client.pem", "ssl_keyfile": "client.locked.key", "ssl_password": "hush"}, "ssl_password does not open the key"),
        ({"ssl_context": "x"}, "ssl_context='x'"),
    ],
)
def test_of_tls_files(certificates: Certificates, handler: str, options: dict[str, Any], words: str) -> None:
    paths = {k: certificates.path(v) if k.endswith("file") else v for k, v in options.items()}
    with pytest.raises(ConfigurationError) as caught:
        KafkaClient("localhost:1", handler=handler, security_protocol="SSL", **paths)
    assert words in str(caught.value)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("option", ["tls_verify", "ssl_check_hostname"])
def test_of_checks_that_are_turned_off_with_one_word(option: str) -> None:
    off = {"security_protocol": "SSL", option: False}
    refused(lambda: KafkaClient("localhost:1", handler="threading", **off), f"{option}=False", "allow_unverified_tls=True", "ssl_cafile=")
    refused(lambda: KafkaClient("localhost:1", handler="threading", **off, allow_unverified_tls=False), f"{option}=False")
    KafkaClient("localhost:1", handler="threading", **off, allow_unverified_tls=True).close()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("ssl_cafile", "/ca.pem"),
        ("ssl_certfile", "/me.pem"),
        ("ssl_keyfile", "/me.key"),
        ("ssl_password", "hush"),
        ("ssl_password", lambda: "hush"),
        ("ssl_crlfile", "/list.pem"),
        ("ssl_ciphers", "ECDHE"),
        ("ssl_check_hostname", False),
        ("tls_verify", False),
        ("allow_unverified_tls", True),
    ],
)
def test_of_tls_beside_a_context_that_is_used_unchanged(option: str, value: Any) -> None:
    given = {"security_protocol": "SSL", "ssl_context": ssl.create_default_context(), option: value}
    with pytest.raises(ConfigurationError) as caught:
        KafkaClient("localhost:1", handler="threading", **given)
    text = str(caught.value)
    assert f"ssl_context together with {option}" in text
    assert f"leave {option} out" in text
    assert "leave ssl_context out" in text
    assert "hush" not in text


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"ssl_password": "hush"}, "ssl_password without ssl_certfile, whose key it would open"),
        ({"ssl_password": lambda: "hush", "ssl_cafile": "/ca.pem"}, "leave ssl_password out"),
        ({"allow_unverified_tls": True}, "allow_unverified_tls=True alone turns no check off: set tls_verify=False"),
        ({"allow_unverified_tls": True, "security_protocol": "PLAINTEXT"}, "leave allow_unverified_tls out"),
    ],
    ids=["password", "password that is asked for", "one word", "one word in clear text"],
)
def test_of_tls_alone_where_it_does_nothing(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        KafkaClient("localhost:1", handler="threading", **{"security_protocol": "SSL", **given})
    assert says in str(caught.value)
    assert "hush" not in str(caught.value)


def test_a_context_beside_options_that_say_nothing_is_taken() -> None:
    nothing = {"ssl_cafile": None, "ssl_certfile": None, "ssl_keyfile": None, "ssl_password": None, "tls_verify": True}
    KafkaClient("localhost:1", handler="threading", security_protocol="SSL", ssl_context=ssl.create_default_context(), **nothing).close()


@pytest.mark.parametrize("option", ["ssl_context", "ssl_cafile", "ssl.cafile", "ssl_certfile", "ssl_password"])
def test_of_pykafkas_tls_beside_other_options_of_tls(option: str) -> None:
    given: dict[str, Any] = {option: ssl.create_default_context() if option == "ssl_context" else "hush"}
    with pytest.raises(ConfigurationError) as caught:
        KafkaClient("localhost:1", handler="threading", ssl_config=SslConfig("/ca.pem", password="hush"), **given)
    assert f"ssl_config together with {option}" in str(caught.value)
    assert "SslConfig(cafile" in str(caught.value)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ssl_cafile": "good.key"}, "ssl_cafile (PEM text): the file holds no certificate"),
        ({"ssl_crlfile": "good.pem"}, "ssl_crlfile (PEM text): it holds no revocation list"),
        ({"ssl_keyfile": "client.key"}, "ssl_keyfile (PEM text) without ssl_certfile"),
        ({"ssl_certfile": "client.pem", "ssl_keyfile": "good.key"}, "ssl_keyfile (PEM text): the key does not belong to the certificate"),
        ({"ssl_certfile": "client.pem", "ssl_keyfile": "client.locked.key"}, "ssl_keyfile (PEM text) is encrypted: give ssl_password"),
    ],
)
def test_of_tls_texts_that_are_not_shown(certificates: Certificates, options: dict[str, str], words: str) -> None:
    texts = {option: certificates.text(name) for option, name in options.items()}
    with pytest.raises(ConfigurationError) as caught:
        KafkaClient("localhost:1", handler="threading", security_protocol="SSL", **texts)
    told = "".join(traceback.format_exception(caught.value))
    assert words in told
    told += variables(caught.value, since="check_tls")
    for text in texts.values():
        assert text.splitlines()[1] not in told


def test_a_key_is_in_no_repr(certificates: Certificates) -> None:
    key, cert = certificates.text("client.key"), certificates.text("client.pem")
    config = build(ClientConfig, {"security_protocol": "SSL", "ssl_certfile": cert + key, "ssl_keyfile": key}, where="here")
    ours = SslConfig(certificates.ca, cert, key)
    for shown in (repr(config), str(config), repr(ours), repr(vars(ours)), str(ours.client_options())):
        assert key.splitlines()[1] not in shown


def test_of_a_pass_phrase() -> None:
    with pytest.raises(ConfigurationError) as caught:
        KafkaClient("localhost:1", security_protocol="SSL", ssl_password=1234567)
    assert "ssl_password: must be str or callable, not int" in str(caught.value)


def test_a_pass_phrase_of_the_users_function_is_asked_for_when_it_connects(certificates: Certificates) -> None:
    asked: list[None] = []
    client = KafkaClient(
        "localhost:1",
        handler="threading",
        security_protocol="SSL",
        ssl_certfile=certificates.path("client.pem"),
        ssl_keyfile=certificates.path("client.locked.key"),
        ssl_password=lambda: asked.append(None) or PASS_PHRASE,
    )
    assert not asked
    client.close()


@pytest.mark.parametrize(
    "wanted", [None, 1, [], "x", {"t": -1}, {("t",): -1}, {("t", "x"): -1}, {("t", None): -1}, {("t", 0.0): -1}, {(None, 0): -1}]
)
def test_of_list_offsets(client: KafkaClient, wanted: Any) -> None:
    refused(lambda: client.list_offsets(wanted))


@pytest.mark.parametrize("value", [None, "x", NAN, INF, 1.5, True, 2**70, -9])
def test_of_a_timestamp(client: KafkaClient, value: Any) -> None:
    refused(lambda: client.list_offsets({("t", 0): value}), f"timestamp={value!r}")


@pytest.mark.parametrize("name", [None, 1, "", b"", ".", "..", "a/b", "a b", "ä", b"\xff", "\ud800", "x" * 250, [], "t\n"])
def test_of_a_topics_name(client: KafkaClient, name: Any) -> None:
    refused(lambda: check_topic_name(name), "topic=")
    refused(lambda: client.create_topic(name), "topic=")
    refused(lambda: client.delete_topic(name), "topic=")
    refused(lambda: client.fetch_raw(name, 0, 0), "topic=")
    refused(lambda: client.topics[name], "topic=")
    refused(lambda: client.partitions(name), "topic=")
    with client.get_producer() as producer:
        refused(lambda: producer.produce(name, b"x"), "topic=")


def test_a_topics_name_that_kafka_takes() -> None:
    assert check_topic_name("a.B_c-9") == "a.B_c-9"
    assert check_topic_name(b"t") == "t"
    assert check_topic_name("x" * 249) == "x" * 249
    assert check_topic_name("...") == "..."


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"partitions": "x"}, "partitions='x'"),
        ({"partitions": 0}, "partitions=0"),
        ({"partitions": True}, "partitions=True"),
        ({"partitions": 2**70}, "partitions="),
        ({"replication_factor": None}, "replication_factor=None"),
        ({"replication_factor": 40000}, "replication_factor=40000"),
        ({"configs": 1}, "configs=<int>"),
        ({"configs": []}, "configs=<list>"),
        ({"configs": {"retention.ms": 1}}, "configs['retention.ms']=1"),
        ({"configs": {1: "x"}}, "configs=1"),
        ({"timeout": NAN}, "timeout=nan"),
        ({"timeout": "x"}, "timeout='x'"),
    ],
)
def test_of_create_topic(client: KafkaClient, options: dict[str, Any], words: str) -> None:
    refused(lambda: client.create_topic("new", **options), words)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"isolation": "x"}, "isolation='x'"),
        ({"isolation": NAN}, "isolation=nan"),
        ({"isolation": 2}, "isolation=2"),
        ({"max_bytes": -1}, "max_bytes=-1"),
        ({"max_bytes": 2**70}, "max_bytes="),
        ({"max_wait_ms": NAN}, "max_wait_ms=nan"),
        ({"offset": 1.5}, "offset=1.5"),
        ({"offset": None}, "offset=None"),
        ({"offset": -1}, "offset=-1"),
        ({"partition": "x"}, "partition='x'"),
        ({"timeout": INF}, "timeout=inf"),
    ],
)
def test_of_fetch_raw(client: KafkaClient, options: dict[str, Any], words: str) -> None:
    refused(lambda: client.fetch_raw(**({"topic": "t", "partition": 0, "offset": 0} | options)), words)


@pytest.mark.parametrize("value", [None, "x", NAN, INF, 1.5, True, 2**70])
def test_of_offsets_of_a_consumer(consumer: Any, value: Any) -> None:
    refused(lambda: consumer.commit_offsets([(0, value)]), f"offset={value!r}")
    refused(lambda: consumer.reset_offsets([(0, value)]), f"offset={value!r}")
    refused(lambda: consumer.reset_offsets([(value, 0)]), f"partition={value!r}")


@pytest.mark.parametrize("pairs", ["x", 1, [1], [(1,)], {0: 1}, [(0, 1, 2)]])
def test_of_pairs(consumer: Any, pairs: Any) -> None:
    refused(lambda: consumer.commit_offsets(pairs), "partition_offsets=")
    refused(lambda: consumer.reset_offsets(pairs), "partition_offsets=")


def test_a_negative_offset_is_not_committed(consumer: Any) -> None:
    refused(lambda: consumer.commit_offsets([(0, -1)]), "offset=-1")


@pytest.mark.parametrize("value", [1.5, "x", NAN, True, -1])
def test_of_consume_batch(consumer: Any, value: Any) -> None:
    refused(lambda: consumer.consume_batch(value), f"max_messages={value!r}")


@pytest.mark.parametrize("value", ["x", NAN, INF, True, -2])
def test_of_its_timeout(consumer: Any, value: Any) -> None:
    refused(lambda: consumer.consume_batch(1, value), f"timeout_ms={value!r}")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"partitions": 0}, "partitions=0"),
        ({"partitions": "x"}, "partitions='x'"),
        ({"consumer_group": 0}, "consumer_group=0"),
        ({"consumer_group": []}, "consumer_group=[]"),
        ({"consumer_group": {}}, "consumer_group={}"),
        ({"consumer_group": b"\xff"}, "consumer_group="),
        ({"consumer_id": None}, "consumer_id=None"),
        ({"generation_id": "x"}, "generation_id='x'"),
        ({"generation_id": 2**70}, "generation_id="),
        ({"consumer_timeout_ms": NAN}, "consumer_timeout_ms=nan"),
        ({"offsets_commit_max_retries": 1.5}, "offsets_commit_max_retries=1.5"),
        ({"offsets_commit_max_retries": "x"}, "offsets_commit_max_retries='x'"),
        ({"consumer_group": "g", "auto_commit_enable": "x"}, "auto_commit_enable='x'"),
        ({"auto_start": "x"}, "auto_start='x'"),
        ({"reset_offset_on_start": "x"}, "reset_offset_on_start='x'"),
        ({"reset_offset_on_fetch": 1}, "reset_offset_on_fetch=1"),
        ({"compacted_topic": "x"}, "compacted_topic='x'"),
        ({"use_rdkafka": "x"}, "use_rdkafka='x'"),
    ],
)
def test_of_get_simple_consumer(client: KafkaClient, options: dict[str, Any], words: str) -> None:
    refused(lambda: client.topics["t"].get_simple_consumer(**options), words)


def test_of_get_producer(client: KafkaClient) -> None:
    refused(lambda: client.get_producer(buffer_bytes=2**70), "buffer_bytes=", "or less")
    refused(lambda: client.get_producer(linger_ms=10**400), "linger_ms=", "finite")
    refused(lambda: client.get_producer(retries=10**400), "retries=", "number")
    refused(lambda: client.get_producer(compression=[]), "compression=[]")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sync": "no"}, "sync='no'"),
        ({"sync": 0}, "sync=0"),
        ({"block_on_queue_full": "x"}, "block_on_queue_full='x'"),
        ({"delivery_reports": "x"}, "delivery_reports='x'"),
        ({"auto_start": None}, "auto_start=None"),
        ({"use_rdkafka": "x"}, "use_rdkafka='x'"),
        ({"compression": []}, "compression=[]"),
        ({"compression": True}, "compression=True"),
        ({"compression": 5}, "compression=5"),
        ({"linger_ms": 10**400}, "linger_ms="),
        ({"linger_ms": "x"}, "linger_ms='x'"),
    ],
)
def test_of_the_documented_producer(client: KafkaClient, options: dict[str, Any], words: str) -> None:
    refused(lambda: client.topics["t"].get_producer(**options), words)


@pytest.mark.parametrize("timeout", ["x", NAN, [], True])
def test_of_a_delivery_reports_timeout(client: KafkaClient, timeout: Any) -> None:
    with client.topics["t"].get_producer(delivery_reports=True) as producer:
        refused(lambda: producer.get_delivery_report(timeout=timeout), f"timeout={timeout!r}")
        with pytest.raises(client.handler.QueueEmptyError):
            producer.get_delivery_report(timeout=-1)


@pytest.mark.parametrize("value", ["x", None, NAN, 1.5, True, -9])
def test_of_offset_limits(client: KafkaClient, value: Any) -> None:
    topic = client.topics["t"]
    refused(lambda: topic.fetch_offset_limits(value), f"offsets_before={value!r}")
    refused(lambda: topic.partitions[0].fetch_offset_limit(value), f"offsets_before={value!r}")
    refused(lambda: topic.fetch_offset_limits(-1, value), f"max_offsets={value!r}")


@pytest.mark.parametrize("name", ["", b"", None, 5, b"\xff", []])
def test_of_a_groups_name(client: KafkaClient, name: Any) -> None:
    refused(lambda: client.cluster.get_group_coordinator(name), "consumer_group=")
    refused(lambda: client.cluster.get_offset_manager(name), "consumer_group=")


class Whole:
    """A whole number of another library, as numpy's are."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


@pytest.mark.parametrize("handler", ["threading", "gevent"])
def test_whole_numbers_of_other_libraries_are_partitions(handler: str) -> None:
    with MockCluster(topics={"t": 2}) as cluster, KafkaClient(cluster.bootstrap, handler=handler) as client:
        with client.get_producer() as producer:
            assert producer.produce("t", b"x", partition=Whole(1)).result(60).partition == 1  # type: ignore[arg-type]
            refused(lambda: producer.produce("t", b"x", partition=Whole(2)), "partition=")  # type: ignore[arg-type]
        with client.get_producer(partitioner=lambda ids, key: Whole(1)) as producer:
            assert producer.produce("t", b"x").result(60).partition == 1
        with client.topics["t"].get_producer(partitioner=lambda partitions, key: Whole(1), linger_ms=1) as producer:
            assert {producer.produce(b"x").result(60).partition for _ in range(3)} == {1}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffsets": '{"t":{"0":1,"0":2}}'}, "'0' stands there twice"),
        ({"startingOffsets": '{"t":{"0":1},"t":{"1":2}}'}, "'t' stands there twice"),
        ({"startingOffsets": '{"t":{"0":1,"00":2}}'}, "partition 0 of 't'"),
        ({"kafka.bootstrap.servers": "h:70000"}, "h:70000"),
        ({"kafka.bootstrap.servers": "h:٩٠"}, "kafka.bootstrap.servers="),
        ({"kafka.request.timeout.ms": "soon"}, "kafka.request.timeout.ms='soon'"),
        ({"kafka.fetch.max.bytes": "1_000"}, "kafka.fetch.max.bytes='1_000'"),
        ({"minPartitions": "٣"}, "minPartitions='٣'"),
        ({"startingTimestamp": "٣"}, "startingTimestamp='٣'"),
        ({"batchRows": "1e3"}, "batchRows='1e3'"),
    ],
)
def test_of_a_spark_option(options: dict[str, str], words: str) -> None:
    refused(lambda: parse({"kafka.bootstrap.servers": "h:1", "subscribe": "t"} | options), words)


@pytest.mark.parametrize("host", ["", "a b", "kafka://h", "h\n", None, 5, b"", b"a b"])
def test_a_broker_and_a_connection_refuse_what_is_no_host(host: Any) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(f"host={host!r} is not the name or the address of a host")):
        Broker(0, host, 1, ThreadingHandler(), 1000, 1000)
    with pytest.raises(ConfigurationError, match=re.escape(f"host={host!r} is not the name or the address of a host")):
        BrokerConnection(host, 1)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("socket_timeout_ms", "x"),
        ("socket_timeout_ms", -1),
        ("offsets_channel_socket_timeout_ms", "x"),
        ("broker_version", "99x"),
        ("source_port", "x"),
        ("source_port", 65536),
        ("source_host", 5),
    ],
)
def test_a_broker_and_a_cluster_refuse_what_a_client_does(option: str, value: Any) -> None:
    """They were made, and failed with the first connection."""
    usual = {"socket_timeout_ms": 1000, "offsets_channel_socket_timeout_ms": 1000}
    with pytest.raises(ConfigurationError, match=f"{option}={value!r}"):
        Broker(0, "localhost", 1, ThreadingHandler(), **{**usual, option: value})
    if option.startswith("source_"):
        with pytest.raises(ConfigurationError, match=f"{option}={value!r}"):
            BrokerConnection("localhost", 1, **{option: value})
    else:
        with pytest.raises(ConfigurationError, match=f"{option}={value!r}"):
            Cluster("localhost:1", ThreadingHandler(), **{option: value})


@pytest.mark.parametrize(
    ("spelt", "name", "value"),
    [
        ("socket.timeout.ms", "socket_timeout_ms", 5000),
        ("offsets.channel.socket.timeout.ms", "offsets_channel_socket_timeout_ms", 5000),
        ("broker.version", "broker_version", "1.0.0"),
        ("client.id", "client_id", "x"),
    ],
)
def test_a_clients_options_may_be_spelt_with_dots_but_not_given_twice(spelt: str, name: str, value: Any) -> None:
    """What is in the signature was given twice by that alone."""
    with KafkaClient("localhost:1", handler="threading", **{spelt: value}) as client, KafkaClient("localhost:1", **{name: value}) as plain:
        assert getattr(client.cluster.config, name) == getattr(plain.cluster.config, name)
    with pytest.raises(ConfigurationError, match="is given twice"):
        KafkaClient("localhost:1", **{spelt: value, name: value})
