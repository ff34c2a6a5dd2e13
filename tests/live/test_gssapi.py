"""GSSAPI: a client with Kerberos tickets, a real key server and a real Kafka. Left out, and it says so, where Kerberos is not installed."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.exceptions import AuthenticationError, SaslAuthenticationFailed
from gkafka.kafka import KafkaConsumer, KafkaProducer
from tests.frames import is_ours
from tests.kit.clock import PATIENCE_S, now
from tests.kit.lacking import leave_out
from tests.live.kafka import MissingToolError
from tests.live.kerberos import INSTALL, KerberosKafka, KeyServer, missing
from tests.live.pool import skip_if_told
from tests.net.recorder import Recorder

SESSION_MS = 4000


class Realm:
    """All that the tests ask: the broker, its key server, and alice's keytab with a ticket that is good and one that is not any more."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.keys = stack.enter_context(KeyServer(folder))
        self.keytab = self.keys.keytab("alice")
        self.keys.keytab("bus/127.0.0.1")
        self.expired = self.keys.ticket("alice", self.keytab, "1s")
        self.kafka = KerberosKafka(self.keys, stack, SESSION_MS)
        self.ticket = self.keys.ticket("alice", self.keytab)


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    skip_if_told()
    if lacking := missing():
        leave_out(*((name, INSTALL) for name in lacking))
    with ExitStack() as stack:
        try:
            made = Realm(tmp_path_factory.mktemp("kerberos"), stack)
        except MissingToolError as error:
            pytest.fail(f"{error} (or set GKAFKA_LIVE=skip to leave out the tests on real Kafka)", pytrace=False)
        yield made


@pytest.fixture
def holding(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """What this process has from now on: a cache of tickets, or a keytab, or neither."""

    def hold(cache: Path | None = None, keytab: Path | None = None, settings: Path | None = None) -> None:
        for name, value in realm.keys.env.items():
            monkeypatch.setenv(name, value)
        if settings is not None:
            monkeypatch.setenv("KRB5_CONFIG", str(settings))
        monkeypatch.setenv("KRB5CCNAME", str(cache or realm.folder / "none"))
        monkeypatch.setenv("KRB5_CLIENT_KTNAME", str(keytab or realm.folder / "none"))

    return hold


@pytest.fixture
def dial(realm: Realm, handler: str) -> Iterator[Callable[..., tuple[KafkaClient, Recorder]]]:
    """Makes clients, by a relay that writes down what they send."""
    with ExitStack() as stack:

        def client(**options: Any) -> tuple[KafkaClient, Recorder]:
            relay = stack.enter_context(Recorder(realm.kafka.port).running())
            made = KafkaClient(f"127.0.0.1:{relay.port}", handler=handler, **KERBEROS, reconnect_backoff_ms=100, **options)
            stack.callback(made.close, 5)
            return made, relay

        yield client


KERBEROS: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI"}


# -- who is let in -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("by", ["ticket", "keytab"])
def test_a_ticket_or_a_keytab_produces_and_consumes(
    realm: Realm, holding: Callable[..., None], dial: Callable[..., Any], new_name: Callable[[str], str], by: str
) -> None:
    holding(**{"ticket": {"cache": realm.ticket}, "keytab": {"cache": realm.folder / new_name("cache"), "keytab": realm.keytab}}[by])
    (client, _), topic = dial(), new_name("kerberos")
    realm.kafka.cluster.create_topic(topic)
    assert client.get_producer().produce(topic, b"x").result(60).offset == 0
    message = client.get_consumer(topic).consume(timeout_ms=60_000)
    assert message is not None
    assert message.value == b"x"


def test_the_host_of_the_principal_may_be_another_than_the_one_that_is_connected_to(
    realm: Realm, holding: Callable[..., None], handler: str
) -> None:
    holding(realm.ticket)
    hosts = f"localhost:{realm.kafka.port}"
    with KafkaClient(hosts, handler=handler, sasl_kerberos_domain_name="127.0.0.1", **KERBEROS) as client:
        client.connect(10)


def test_kafka_pythons_kerberos_options(realm: Realm, holding: Callable[..., None], handler: str, new_name: Callable[[str], str]) -> None:
    holding(realm.ticket)
    topic = new_name("facade")
    realm.kafka.cluster.create_topic(topic)
    options: dict[str, Any] = {**KERBEROS, "sasl_kerberos_service_name": "kafka", "sasl_kerberos_domain_name": "127.0.0.1"}
    options |= {"bootstrap_servers": f"127.0.0.1:{realm.kafka.port}", "handler": handler}
    with KafkaProducer(**options) as producer:
        assert producer.send(topic, b"v").get(60).offset == 0
    with KafkaConsumer(topic, **options, auto_offset_reset="earliest", consumer_timeout_ms=60_000) as consumer:
        assert next(consumer).value == b"v"


def test_sessions_are_renewed_with_tickets_on_the_same_connection(
    realm: Realm, holding: Callable[..., None], dial: Callable[..., Any]
) -> None:
    holding(realm.ticket)
    client, relay = dial()
    client.connect(10)
    first = len(relay.all_sent)
    deadline = now() + PATIENCE_S
    while relay.all_sent.count(b"GSSAPI") < 2:
        assert now() < deadline
        client.update_cluster()
        client.handler.sleep(0.1)
    client.update_cluster()
    assert len(relay.sent) == 1, "one connection all the time"
    assert relay.all_sent.count(b"GSSAPI") == 2, f"two handshakes, the second after {first} bytes"


# -- who is not ----------------------------------------------------------------------------------------------------------
def refused(dialled: tuple[KafkaClient, Recorder]) -> AuthenticationError:
    """What connect() says; long before its time is over, and by one connection."""
    client, relay = dialled
    began = now()
    with pytest.raises(AuthenticationError) as caught:
        client.connect(120)
    assert now() - began < 60
    assert len(relay.sent) == 1
    return caught.value


def test_without_a_ticket_the_error_says_how_to_get_one(holding: Callable[..., None], dial: Callable[..., Any]) -> None:
    holding()
    assert "kinit, or have KRB5_CLIENT_KTNAME" in str(refused(dial()))


def test_an_expired_ticket_is_told(realm: Realm, holding: Callable[..., None], dial: Callable[..., Any]) -> None:
    strict = realm.folder / "strict.conf"
    strict.write_text(realm.keys.settings.read_text().replace("[libdefaults]\n", "[libdefaults]\n clockskew = 1\n"))
    holding(realm.expired, settings=strict)
    error = refused(dial())
    assert "expired" in str(error)
    assert "kinit" in str(error)


def test_a_service_that_the_realm_has_not_is_told_with_the_option_that_names_it(
    realm: Realm, holding: Callable[..., None], dial: Callable[..., Any]
) -> None:
    holding(realm.ticket)
    error = refused(dial(sasl_kerberos_service_name="kafka2"))
    assert "kafka2/127.0.0.1" in str(error)
    assert "sasl_kerberos_service_name/host" in str(error)


def test_a_ticket_for_another_service_is_refused_by_the_broker(
    realm: Realm, holding: Callable[..., None], dial: Callable[..., Any]
) -> None:
    holding(realm.ticket)
    assert isinstance(refused(dial(sasl_kerberos_service_name="bus")), SaslAuthenticationFailed)


def test_a_key_server_that_is_gone_is_told(realm: Realm, holding: Callable[..., None], dial: Callable[..., Any]) -> None:
    holding(realm.keys.ticket("alice", realm.keytab, "2h"))  # without one for the broker
    realm.keys.stop()
    try:
        error = refused(dial())
    finally:
        realm.keys.start()
    assert "Cannot contact any KDC" in str(error)
    assert "krb5.conf" in str(error)


# -- secrets ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("good", [True, False], ids=["right", "wrong"])
def test_no_ticket_is_in_the_log_of_everything_nor_in_errors(
    realm: Realm, holding: Callable[..., None], dial: Callable[..., Any], caplog: pytest.LogCaptureFixture, good: bool
) -> None:
    holding(realm.ticket)
    texts = []
    with caplog.at_level(logging.DEBUG):
        client, relay = dial(sasl_kerberos_service_name="kafka" if good else "bus")
        try:
            client.connect(10)
        except AuthenticationError as error:
            assert not good
            trace = traceback.TracebackException.from_exception(error, capture_locals=True)
            ours = [repr(frame.locals) for frame in trace.stack if is_ours(frame)]
            assert ours
            texts = ours + list(trace.format_exception_only())
    texts += [caplog.text, repr(client.stats()), repr(client._config)]
    sent = relay.all_sent
    at = sent.index(b"GSSAPI") + 200  # inside the ticket, which is 500 bytes and more
    ticket = sent[at : at + 32]
    assert len(ticket) == 32
    assert "GSSAPI" in texts[-1]
    for shown in (repr(ticket)[2:-1], ticket.hex(), repr(bytearray(ticket))[12:-2]):
        assert shown not in "".join(texts)
