"""Fixtures of the tests on real Kafka."""

from __future__ import annotations

import gc
import importlib
import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from gkafka.kafka import KafkaConsumer
from tests.live.facade import QUICK, Make
from tests.live.kafka import VERSIONS, KafkaCluster
from tests.live.peer import Peer
from tests.live.pool import POOL

if TYPE_CHECKING:
    from gkafka import KafkaClient

_numbers = itertools.count(1)

BOTH = ("test_client", "test_failover", "test_group_members", "test_kafka_producer", "test_patched")
"""Files in which the handler changes what the tests are about: who waits, who is woken, who closes. In the others it is what the API's users have most:
threads for kafka-python's, greenlets for the rest. `make thorough` plays the other one, too."""
WITH_THREADS = ("test_kafka_",)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of one broker run together: it starts once, although only two are kept alive."""
    for item in items:
        if "tests/live/" in item.path.as_posix() and _handler(item) not in (None, *_handlers(item.path.stem)):
            item.add_marker(pytest.mark.thorough)
    here = [at for at, item in enumerate(items) if "tests/live/" in item.path.as_posix()]
    for at, item in zip(here, sorted((items[at] for at in here), key=_turn), strict=True):
        items[at] = item


def _handler(item: pytest.Item) -> str | None:
    """The one of the fixture `handler` or of a parameter of this name."""
    handler = item.callspec.params.get("handler") if hasattr(item, "callspec") else None
    return handler if handler in ("threading", "gevent") else None


def _handlers(file: str) -> tuple[str, ...]:
    """With which handlers `make test` plays its tests."""
    if file in BOTH:
        return ("threading", "gevent")
    return ("threading",) if file.startswith(WITH_THREADS) else ("gevent",)


def _turn(item: pytest.Item) -> int:
    if not {"cluster", "lame"}.isdisjoint(getattr(item, "fixturenames", ())):
        return len(VERSIONS)
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    return VERSIONS.index(parameters.get("version", "4.2.0"))


@pytest.fixture(scope="session", autouse=True)
def _brokers() -> Iterator[None]:
    yield
    POOL.stop()


@pytest.fixture(scope="session", autouse=True)
def _kafka_python_closes_what_was_refused() -> Iterator[None]:
    """A socket that could not connect it leaves to the collector, whose warning would fail whatever test runs then."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        factory = importlib.import_module("kafka.net.inet").KafkaNetSocket
    connect = factory.sock_connect

    async def closing(self: Any, net: Any, sock: Any, *more: Any, **options: Any) -> Any:
        try:
            return await connect(self, net, sock, *more, **options)
        except BaseException:
            sock.close()
            raise

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(factory, "sock_connect", closing)
        yield


@pytest.fixture
def kafka(request: pytest.FixtureRequest) -> KafkaCluster:
    """One real broker of the test's `version`, or of 4.2.0."""
    parameters = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    return POOL.get(parameters.get("version", "4.2.0"))


@pytest.fixture
def cluster() -> KafkaCluster:
    """Three nodes of 4.2.0."""
    return POOL.get("4.2.0", brokers=3)


@pytest.fixture(params=["threading", "gevent"])
def handler(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def whole_cluster(cluster: KafkaCluster) -> Iterator[KafkaCluster]:
    """All three nodes alive, before the test and after it."""
    yield cluster
    for node in cluster.nodes:
        if not node.alive:
            cluster.restart(node)


@pytest.fixture
def new_name() -> Callable[[str], str]:
    """Names of topics and groups that no other test uses."""
    return lambda stem: f"{stem}-{next(_numbers)}"


@pytest.fixture
def new_topic(request: pytest.FixtureRequest, new_name: Callable[[str], str]) -> Callable[..., str]:
    """Makes a topic on the test's broker, without gkafka."""

    def make(partitions: int = 1, **configs: object) -> str:
        where: KafkaCluster = request.getfixturevalue("cluster" if "cluster" in request.fixturenames else "kafka")
        name = new_name("topic")
        where.create_topic(name, partitions, configs={key.replace("_", "."): value for key, value in configs.items()})
        return name

    return make


@pytest.fixture
def connect(request: pytest.FixtureRequest, handler: str) -> Iterator[Callable[..., KafkaClient]]:
    """Makes clients of the test's broker with the test's handler; they are closed after the test."""
    from gkafka import KafkaClient

    made: list[KafkaClient] = []

    def client(hosts: str | None = None, **options: Any) -> KafkaClient:
        where: KafkaCluster = request.getfixturevalue("cluster" if "cluster" in request.fixturenames else "kafka")
        if not where.release.asks_versions:
            options.setdefault("broker_version", where.version)
        made.append(KafkaClient(hosts or where.hosts, handler=handler, **options))
        return made[-1]

    yield client
    for each in made:
        each.close(10)


@pytest.fixture
def client(connect: Callable[..., KafkaClient]) -> KafkaClient:
    return connect()


@pytest.fixture
def peer(request: pytest.FixtureRequest) -> Peer:
    """The independent client: confluent-kafka on the test's broker."""
    where: KafkaCluster = request.getfixturevalue("cluster" if "cluster" in request.fixturenames else "kafka")
    return Peer(where.hosts, where.release)


@pytest.fixture
def consumer(kafka: KafkaCluster, handler: str) -> Iterator[Make]:
    """Makes gkafka.kafka's KafkaConsumers of the test's broker."""
    made: list[KafkaConsumer] = []

    def make(*topics: str, **options: Any) -> KafkaConsumer:
        found = {"bootstrap_servers": kafka.hosts, "handler": handler, "api_version_auto_timeout_ms": 60_000, **QUICK}
        made.append(KafkaConsumer(*topics, **{**found, **options}))
        return made[-1]

    yield make
    for each in made:
        each.close(timeout_ms=5000)


@pytest.fixture
def quiet() -> Iterator[None]:
    """The warnings of another library, and the sockets that it leaves in cycles, are not ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
        gc.collect()
