"""F28, G28: TLS with a real Kafka whose certificates are good, bad or exchanged. What is refused is named, and no byte of Kafka's protocol was sent.

A relay between client and broker writes down what the client sends; it also shows the requests of a client in clear text, so it would show others.
"""

from __future__ import annotations

import ssl
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.exceptions import KafkaException, NoBrokersAvailableError, ProtocolError, TlsError
from gkafka.kafka import KafkaConsumer, KafkaProducer
from tests.kit.clock import now
from tests.live.jvm import free_ports
from tests.live.kafka import KafkaCluster, MissingToolError
from tests.live.pool import skip_if_told
from tests.net.certificates import PASS_PHRASE, Certificates
from tests.net.proxies import FakeProxy, running
from tests.net.recorder import Recorder, tls_records
from tests.net.servers import echo, serve

SHOWN = "f28-client-id"
"""In every request; so in what was sent, if that was not encrypted."""
BAD = ("wrong_host", "expired", "unknown_ca", "self_signed", "revoked")


class TlsKafka:
    """A broker with a listener for each of its certificates, behind recorders. The listener MUTUAL wants certificates of clients, at TLS 1.2."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.certs = Certificates(folder)
        names = ["good", "mutual", "plain", *BAD]
        plain, controller, *ports = free_ports(len(names) + 2)
        self.relays = {name: stack.enter_context(Recorder(port).running()) for name, port in zip(names, ports, strict=True)}
        self.hosts = f"127.0.0.1:{plain}"
        listeners = {name.upper().replace("_", ""): (name, port) for name, port in zip(names, ports, strict=True)}
        properties: dict[str, object] = {
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{plain},CONTROLLER://127.0.0.1:{controller},"
            + ",".join(f"{listener}://127.0.0.1:{port}" for listener, (_, port) in listeners.items()),
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{plain},"
            + ",".join(f"{listener}://127.0.0.1:{self.relays[name].port}" for listener, (name, _) in listeners.items()),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,"
            + ",".join(f"{listener}:{'PLAINTEXT' if name == 'plain' else 'SSL'}" for listener, (name, _) in listeners.items()),
        }
        for listener, (name, _) in listeners.items():
            if name != "plain":
                properties |= self._keystore(listener, "good" if name == "mutual" else name)
        properties |= {"listener.name.mutual.ssl.client.auth": "required", "listener.name.mutual.ssl.enabled.protocols": "TLSv1.2"}
        self.cluster = stack.enter_context(KafkaCluster("4.2.0", port=plain, properties=properties))

    def _keystore(self, listener: str, name: str) -> dict[str, object]:
        store = self.store(name)
        prefix = f"listener.name.{listener.lower()}.ssl"
        return {
            f"{prefix}.keystore.type": "PEM",
            f"{prefix}.keystore.location": store,
            f"{prefix}.truststore.type": "PEM",
            f"{prefix}.truststore.location": self.certs.ca,
        }

    def store(self, name: str) -> str:
        """A PEM file with key and certificate, as Kafka wants them."""
        (self.certs.folder / f"{name}.store").write_text(self.certs.text(f"{name}.key") + self.certs.text(f"{name}.pem"))
        return self.certs.path(f"{name}.store")


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsKafka]:
    skip_if_told()
    with ExitStack() as stack:
        try:
            yield TlsKafka(tmp_path_factory.mktemp("tls"), stack)
        except MissingToolError as error:
            pytest.fail(f"{error} (or set GKAFKA_LIVE=skip to leave out the tests on real Kafka)", pytrace=False)


@pytest.fixture
def dial(kafka: TlsKafka, handler: str) -> Iterator[Callable[..., KafkaClient]]:
    """Makes clients of one of the broker's listeners."""
    with ExitStack() as stack:

        def client(listener: str, **options: Any) -> KafkaClient:
            given = {"security_protocol": "SSL", "ssl_cafile": kafka.certs.ca, "client_id": SHOWN, "reconnect_backoff_ms": 20} | options
            made = KafkaClient(f"127.0.0.1:{kafka.relays[listener].port}", handler=handler, **given)
            stack.callback(made.close, 5)
            kafka.relays[listener].forget()
            return made

        yield client


def refusal(client: KafkaClient, kind: type[KafkaException] = TlsError) -> KafkaException:
    """What connect() says; long before its time is over."""
    began = now()
    with pytest.raises(kind) as caught:
        client.connect(120)
    assert now() - began < 60
    return caught.value


def assert_nothing_of_kafka(relay: Recorder) -> None:
    """What was sent is a ClientHello, and an alert at most."""
    assert relay.sent
    assert SHOWN.encode() not in relay.all_sent
    for sent in relay.sent:
        records = tls_records(bytes(sent))
        assert records[0][0] == 22
        assert sum(len(payload) for kind, payload in records[1:]) < 64


def round_trip(client: KafkaClient, topic: str, value: bytes) -> None:
    with client.get_producer() as producer:
        offset = producer.produce(topic, value).result(60).offset
    assert client.list_offsets({(topic, 0): -1})[topic, 0] == offset + 1
    with client.get_consumer() as consumer:
        consumer.assign([(topic, 0)])
        consumer.seek((topic, 0), offset)
        assert consumer.consume(timeout_ms=10000).value == value


# -- what works --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("form", ["files", "texts", "context"])
def test_records_go_there_and_back_and_nothing_of_them_is_seen_on_the_way(
    kafka: TlsKafka, dial: Callable[..., KafkaClient], new_name: Callable[[str], str], form: str
) -> None:
    topic = new_name("tls")
    kafka.cluster.create_topic(topic)
    options: dict[str, Any] = {"ssl_crlfile": kafka.certs.path("revoked.crl")}
    if form == "texts":
        options = {"ssl_cafile": kafka.certs.text("ca.pem"), "ssl_crlfile": kafka.certs.text("revoked.crl")}
    elif form == "context":
        options = {"ssl_cafile": None, "ssl_context": ssl.create_default_context(cafile=kafka.certs.ca)}
    round_trip(dial("good", **options), topic, b"a value to look for")
    relay = kafka.relays["good"]
    assert SHOWN.encode() not in relay.all_sent
    assert b"a value to look for" not in relay.all_sent
    for sent in relay.sent:
        tls_records(bytes(sent))


def test_the_recorder_sees_what_is_not_encrypted(kafka: TlsKafka, dial: Callable[..., KafkaClient], new_name: Callable[[str], str]) -> None:
    topic = new_name("plain")
    kafka.cluster.create_topic(topic)
    round_trip(dial("plain", security_protocol="PLAINTEXT", ssl_cafile=None), topic, b"a value to look for")
    assert SHOWN.encode() in kafka.relays["plain"].all_sent
    assert b"a value to look for" in kafka.relays["plain"].all_sent
    with pytest.raises(ValueError, match="no TLS record"):
        tls_records(bytes(kafka.relays["plain"].sent[0]))


@pytest.mark.parametrize("kind", ["socks5", "http"])
def test_a_proxy_finds_the_brokers_and_sees_nothing(kafka: TlsKafka, handler: str, new_name: Callable[[str], str], kind: str) -> None:
    topic, relay = new_name("proxied"), kafka.relays["good"]
    kafka.cluster.create_topic(topic)
    proxy = FakeProxy({"kafka.example": ("127.0.0.1", relay.port)}, ("me", "hush"))
    with (
        running(proxy, kind) as port,
        KafkaClient(
            "kafka.example:9093",
            handler=handler,
            client_id=SHOWN,
            security_protocol="SSL",
            ssl_cafile=kafka.certs.ca,
            proxy_url=f"{kind}://me:hush@127.0.0.1:{port}",
        ) as client,
    ):
        round_trip(client, topic, b"a value to look for")
    assert set(proxy.asked) == {("kafka.example", 9093), ("127.0.0.1", relay.port)}
    assert SHOWN.encode() not in proxy.passed
    assert b"a value to look for" not in proxy.passed


def test_kafka_pythons_ssl_options(kafka: TlsKafka, handler: str, new_name: Callable[[str], str]) -> None:
    """Behaviours 266, 268: of gkafka.kafka's KafkaProducer and KafkaConsumer, also with a client's certificate and its password."""
    topic = new_name("facade")
    kafka.cluster.create_topic(topic)
    own = {
        "ssl_certfile": kafka.certs.path("client.pem"),
        "ssl_keyfile": kafka.certs.path("client.locked.key"),
        "ssl_password": PASS_PHRASE,
    }

    def options(listener: str, **more: Any) -> dict[str, Any]:
        servers = f"127.0.0.1:{kafka.relays[listener].port}"
        return {"bootstrap_servers": servers, "handler": handler, "security_protocol": "SSL", "ssl_cafile": kafka.certs.ca, **more}

    for at, given in enumerate((options("good"), options("mutual", **own))):
        with KafkaProducer(**given, retries=100) as producer:
            assert producer.send(topic, b"v").get(60).offset == at
        with KafkaConsumer(topic, **given, auto_offset_reset="earliest", consumer_timeout_ms=60_000) as consumer:
            assert next(consumer).value == b"v"
    name = {"ssl_check_hostname": False, "allow_unverified_tls": True}
    with KafkaProducer(**options("wrong_host", **name)) as producer:
        assert producer.partitions_for(topic) == {0}
    for refused in (options("wrong_host"), options("good", ssl_cafile=None), options("mutual")):
        for kind in (KafkaProducer, KafkaConsumer):
            with pytest.raises(KafkaException):
                kind(**refused, api_version_auto_timeout_ms=1500)


# -- what is refused ---------------------------------------------------------------------------------------------------
SAYS = {
    "wrong_host": "IP address mismatch",
    "expired": "certificate has expired",
    "unknown_ca": "unable to get local issuer certificate",
    "self_signed": "self-signed certificate",
    "revoked": "certificate revoked",
}


@pytest.mark.parametrize("listener", BAD)
def test_f28_a_bad_certificate_is_refused_by_name_and_no_request_was_sent(
    kafka: TlsKafka, dial: Callable[..., KafkaClient], listener: str
) -> None:
    error = refusal(dial(listener, ssl_crlfile=kafka.certs.path("revoked.crl") if listener == "revoked" else None))
    assert SAYS[listener] in str(error)
    assert f"127.0.0.1:{kafka.relays[listener].port}" in str(error)
    assert_nothing_of_kafka(kafka.relays[listener])
    assert len(kafka.relays[listener].sent) <= 3


def test_f28_a_client_without_the_certificate_that_is_wanted_is_told(kafka: TlsKafka, dial: Callable[..., KafkaClient]) -> None:
    assert "ssl_certfile=" in str(refusal(dial("mutual")))
    assert SHOWN.encode() not in kafka.relays["mutual"].all_sent


def test_f28_tls_on_a_port_of_clear_text_is_called_that(kafka: TlsKafka, dial: Callable[..., KafkaClient]) -> None:
    assert "is this port a PLAINTEXT listener?" in str(refusal(dial("plain"), NoBrokersAvailableError))
    assert_nothing_of_kafka(kafka.relays["plain"])


def test_f28_clear_text_on_a_port_of_tls_is_called_that(dial: Callable[..., KafkaClient]) -> None:
    error = refusal(dial("good", security_protocol="PLAINTEXT", ssl_cafile=None), ProtocolError)
    assert "security_protocol" in str(error)


def test_f28_tls_1_1_is_refused(kafka: TlsKafka, handler: str) -> None:
    """Java's own TLS 1.1 is turned off in all that is current, so the server is one of this process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context = kafka.certs.server(minimum_version=ssl.TLSVersion.TLSv1, maximum_version=ssl.TLSVersion.TLSv1_1)
    context.set_ciphers("ALL:@SECLEVEL=0")
    with (
        serve(echo, wrap=lambda conn: context.wrap_socket(conn, server_side=True)) as port,
        Recorder(port).running() as relay,
        KafkaClient(
            f"127.0.0.1:{relay.port}", handler=handler, security_protocol="SSL", ssl_cafile=kafka.certs.ca, client_id=SHOWN
        ) as client,
    ):
        assert "gkafka speaks TLS 1.2 and newer" in str(refusal(client))
        assert_nothing_of_kafka(relay)


# -- what is exchanged -------------------------------------------------------------------------------------------------
def write(path: Path, text: str) -> None:
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").rename(path)


def test_f28_a_renewed_client_certificate_is_shown_without_a_restart(
    kafka: TlsKafka, dial: Callable[..., KafkaClient], new_name: Callable[[str], str], tmp_path: Path
) -> None:
    topic, relay = new_name("mutual"), kafka.relays["mutual"]
    kafka.cluster.create_topic(topic)
    own, certs = tmp_path / "me.pem", kafka.certs
    write(own, certs.text("client.pem") + certs.text("client.key"))
    client = dial("mutual", ssl_certfile=str(own))
    with client.get_producer() as producer:
        deliveries = [producer.produce(topic, b"%d" % i) for i in range(100)]
        assert deliveries[-1].result(60)
        assert b"client" in relay.all_sent.replace(SHOWN.encode(), b"")  # at TLS 1.2 certificates go in clear text
        assert b"renewed" not in relay.all_sent
        write(own, certs.text("renewed.pem") + certs.text("renewed.key"))
        relay.cut()
        deliveries += [producer.produce(topic, b"%d" % i) for i in range(100, 200)]
        assert [d.result(60).offset for d in deliveries] == list(range(200))
    assert b"renewed" in relay.all_sent


def test_f28_a_broker_that_shows_another_certificate_is_refused_until_its_authority_is_known(
    kafka: TlsKafka, dial: Callable[..., KafkaClient], new_name: Callable[[str], str], tmp_path: Path
) -> None:
    topic, authorities, certs = new_name("rotated"), tmp_path / "authorities.pem", kafka.certs
    kafka.cluster.create_topic(topic)
    write(authorities, certs.text("ca.pem"))
    client = dial("good", ssl_cafile=str(authorities))
    round_trip(client, topic, b"before")
    show(kafka, "reissued")
    try:
        kafka.relays["good"].cut()
        kafka.relays["good"].forget()
        with pytest.raises(KafkaException, match="unable to get local issuer certificate"):
            client.list_offsets({(topic, 0): -1}, timeout=3)
        assert_nothing_of_kafka(kafka.relays["good"])
        write(authorities, certs.text("ca.pem") + certs.text("other_ca.pem"))
        assert client.list_offsets({(topic, 0): -1}, timeout=60)[topic, 0] == 1
        round_trip(client, topic, b"after")
    finally:
        show(kafka, "good")


def show(kafka: TlsKafka, name: str) -> None:
    """Have the broker take another key and certificate for its good listener, and wait until it does."""
    from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

    admin = AdminClient({"bootstrap.servers": kafka.hosts})
    entry = ConfigEntry("listener.name.good.ssl.keystore.location", kafka.store(name), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(60)
    deadline, seen = now() + 60, 0
    while seen < 12:  # each of the broker's network threads takes it in its own time, and connections go round among them
        shown = ssl.get_server_certificate(("127.0.0.1", kafka.relays["good"].target)).strip()
        seen = seen + 1 if shown == kafka.certs.text(f"{name}.pem").strip() else 0
        assert now() < deadline
