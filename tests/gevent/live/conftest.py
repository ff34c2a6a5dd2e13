"""Brokers of the acceptance tests: the wire-speed stub, and real Kafka."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.figures import stub_broker
from tests.gevent.live.slowtls import slow_door
from tests.live import admin
from tests.live.kafka import KafkaCluster
from tests.live.pool import POOL
from tests.net.certificates import Certificates

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def stub() -> Iterator[str]:
    """Address of a broker that answers as fast as the wire and checks nothing (benchmarks/stub_broker.c): rates and stalls are the client's own.

    It forgets what is written to topics whose names begin with "null-".
    """
    with stub_broker() as address:
        yield address


@pytest.fixture(scope="session", autouse=True)
def _brokers() -> Iterator[None]:
    yield
    POOL.stop()


@pytest.fixture
def kafka() -> KafkaCluster:
    """One real broker of Kafka 4.2."""
    return POOL.get("4.2.0")


@pytest.fixture
def new_topic(kafka: KafkaCluster) -> Callable[..., str]:
    """Makes a topic on the real broker, without gkafka."""

    def make(partitions: int = 1) -> str:
        name = f"gevent-{next(_numbers)}"
        kafka.create_topic(name, partitions)
        return name

    return make


@pytest.fixture
def stub_topic(stub: str) -> Callable[..., str]:
    """Makes a topic on the stub. keeps: what is written can be read."""

    def make(partitions: int = 1, *, keeps: bool = True) -> str:
        name = f"{'kept' if keeps else 'null'}-{next(_numbers)}"
        admin.create(stub, name, partitions, 1, {})
        return name

    return make


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(Path(tmp_path_factory.mktemp("certificates")))


@pytest.fixture(scope="session")
def slow_tls_broker(certificates: Certificates) -> Iterator[str]:
    """Address of a stub that speaks TLS and takes its time."""
    server, target = certificates.server(), [0]
    with (
        slow_door(lambda conn: server.wrap_socket(conn, server_side=True), target) as port,
        stub_broker("--advertise", str(port)) as behind,
    ):
        target[0] = int(behind.rpartition(":")[2])
        yield f"127.0.0.1:{port}"
