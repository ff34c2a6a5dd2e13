"""KafkaConsumer's ssl_ options (behaviours 266 to 269), on a broker behind a door of TLS."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gkafka.kafka import KafkaConsumer
from gkafka.kafka.errors import KafkaConfigurationError, KafkaError
from gkafka.testing import Edit, MockCluster
from tests.kafka.conftest import Make
from tests.net.certificates import PASS_PHRASE, Certificates
from tests.net.servers import serve


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


class Behind:
    """A cluster whose only address is the door's."""

    def __init__(self, port: int) -> None:
        self.bootstrap = f"127.0.0.1:{port}"
        self.ciphers: list[str] = []


@pytest.fixture
def door(cluster: MockCluster) -> Iterator[Callable[[ssl.SSLContext], Behind]]:
    """Opens a door: who connects with TLS talks to the cluster, which tells the door's address as its own."""
    with contextlib.ExitStack() as stack:

        def open_(context: ssl.SSLContext) -> Behind:
            def talk(conn: Any) -> None:
                behind.ciphers.append(conn.cipher()[0])
                with socket.create_connection(("127.0.0.1", cluster.brokers[1][1])) as broker:
                    back = threading.Thread(target=_pump, args=(broker, conn), daemon=True)
                    back.start()
                    _pump(conn, broker)
                    back.join(5)

            port = stack.enter_context(serve(talk, wrap=lambda conn: context.wrap_socket(conn, server_side=True)))
            behind = Behind(port)

            def tell(request: Any, answer: Any) -> Any:
                for broker in answer.brokers:
                    broker.port = port
                return answer

            cluster.on("Metadata", Edit(tell), times=None)
            return behind

        yield open_


def _pump(source: Any, target: Any) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def refused(consumer: Make, behind: Any, **options: Any) -> str:
    """What the constructor says."""
    with pytest.raises(KafkaError) as caught:
        consumer(behind, security_protocol="SSL", api_version_auto_timeout_ms=10_000, **options)
    return str(caught.value)


def test_security_protocol_ssl_encrypts_and_checks_the_certificate(consumer: Make, door: Any, certs: Certificates) -> None:
    """Behaviours 266, 268."""
    assert KafkaConsumer.DEFAULT_CONFIG["security_protocol"] == "PLAINTEXT"
    behind = door(certs.server())
    assert consumer(behind, security_protocol="SSL", ssl_cafile=certs.ca).topics() == {"t"}
    assert behind.ciphers
    assert "certificate" in refused(consumer, behind), "the system's authorities do not know it"
    assert "certificate" in refused(consumer, door(certs.server("unknown_ca")), ssl_cafile=certs.ca)


def test_an_ssl_option_without_tls_is_refused(consumer: Make, cluster: MockCluster, certs: Certificates) -> None:
    with pytest.raises(KafkaConfigurationError, match="ssl_cafile with security_protocol='PLAINTEXT'"):
        consumer(cluster, ssl_cafile=certs.ca)
    consumer(cluster, ssl_check_hostname=True, ssl_cafile=None)


def test_ssl_context_makes_the_other_ssl_options_void(consumer: Make, door: Any, certs: Certificates) -> None:
    """Behaviour 267."""
    behind = door(certs.server())
    context = ssl.create_default_context(cafile=certs.ca)
    void = {"ssl_cafile": "/no/such/file.pem", "ssl_certfile": "/no/such/file.pem", "ssl_check_hostname": False, "ssl_ciphers": "none"}
    assert consumer(behind, security_protocol="SSL", ssl_context=context, **void).topics() == {"t"}
    assert "certificate" in refused(consumer, behind, ssl_context=ssl.create_default_context(), ssl_cafile=certs.ca)


def test_ssl_check_hostname_compares_the_name(consumer: Make, door: Any, certs: Certificates) -> None:
    """Behaviour 268."""
    assert KafkaConsumer.DEFAULT_CONFIG["ssl_check_hostname"] is True
    behind = door(certs.server("wrong_host"))
    assert "127.0.0.1" in refused(consumer, behind, ssl_cafile=certs.ca)
    off: dict[str, Any] = {"security_protocol": "SSL", "ssl_cafile": certs.ca, "ssl_check_hostname": False}
    with pytest.raises(KafkaConfigurationError, match="allow_unverified_tls"):
        consumer(behind, **off)
    assert consumer(behind, **off, allow_unverified_tls=True).topics() == {"t"}


def test_tls_verify_false_checks_nothing(consumer: Make, door: Any, certs: Certificates) -> None:
    behind = door(certs.server("self_signed"))
    with pytest.raises(KafkaConfigurationError, match=r"tls_verify=False .* allow_unverified_tls"):
        consumer(behind, security_protocol="SSL", tls_verify=False)
    assert consumer(behind, security_protocol="SSL", tls_verify=False, allow_unverified_tls=True).topics() == {"t"}


def test_ssl_certfile_keyfile_and_password_are_the_clients_certificate(consumer: Make, door: Any, certs: Certificates) -> None:
    """Behaviour 268."""
    behind = door(certs.asking_for_clients(maximum_version=ssl.TLSVersion.TLSv1_2))
    assert refused(consumer, behind, ssl_cafile=certs.ca)
    own = {"ssl_certfile": certs.path("client.pem"), "ssl_keyfile": certs.path("client.locked.key")}
    trusting = {"security_protocol": "SSL", "ssl_cafile": certs.ca}
    assert consumer(behind, **trusting, **own, ssl_password=PASS_PHRASE).topics() == {"t"}
    with pytest.raises(KafkaError):
        consumer(behind, **trusting, **own, ssl_password="wrong", api_version_auto_timeout_ms=1500)


def test_ssl_crlfile_refuses_what_was_revoked(consumer: Make, door: Any, certs: Certificates) -> None:
    """Behaviour 269: the leaf is looked for, and no list is asked for by default."""
    behind = door(certs.server("revoked"))
    assert "revoked" in refused(consumer, behind, ssl_cafile=certs.ca, ssl_crlfile=certs.path("revoked.crl"))
    trusting = {"security_protocol": "SSL", "ssl_cafile": certs.ca}
    assert consumer(behind, **trusting).topics() == {"t"}
    assert consumer(behind, **trusting, ssl_crlfile=certs.path("empty.crl")).topics() == {"t"}


def test_ssl_ciphers_are_those_that_are_offered(consumer: Make, door: Any, certs: Certificates) -> None:
    behind = door(certs.server(maximum_version=ssl.TLSVersion.TLSv1_2))
    chosen = "ECDHE-ECDSA-AES128-GCM-SHA256"
    assert consumer(behind, security_protocol="SSL", ssl_cafile=certs.ca, ssl_ciphers=chosen).topics() == {"t"}
    assert set(behind.ciphers) == {chosen}


def test_tls_to_a_broker_without_it_is_told(consumer: Make, cluster: MockCluster, certs: Certificates) -> None:
    """Behaviour 266."""
    assert refused(consumer, cluster, ssl_cafile=certs.ca)
    with pytest.raises(KafkaConfigurationError, match="security_protocol='TLS'"):
        consumer(cluster, security_protocol="TLS")
