"""What users reported of other clients and tools, as it would meet the native API and pykafka's clients. The table is tests/reports.md."""

from __future__ import annotations

import asyncio
import concurrent.futures
import queue
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.common import OffsetType
from gkafka.exceptions import ConfigurationError, InvalidRecord, LeaderNotFoundError, TopicAuthorizationFailed
from gkafka.kafka.future import Future
from gkafka.testing import Edit, Error, MockCluster, Sasl
from tests.kit.clock import now
from tests.kit.refusing import Refuse
from tests.public.aids import LIMIT_S, Runner, stored_values
from tests.public.conftest import Connect
from tests.public.test_exit import run_to_its_end

MakeCluster = Callable[..., MockCluster]
CLEAR: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "allow_plaintext_credentials": True}
FOREVER_MS = int(LIMIT_S * 1000)


# -- 1 -------------------------------------------------------------------------------------------------------------------
def test_pykafkas_offsets_name_the_partition_without_a_leader(connect: Connect, make_cluster: MakeCluster) -> None:
    cluster = make_cluster(3, {"t": 3}, replication_factor=1)
    topic = connect(cluster, api_timeout_ms=600_000).topics["t"]
    assert set(topic.latest_available_offsets()) == {0, 1, 2}
    down = cluster.leader("t", 1)
    cluster.stop_broker(down)
    began = now()
    for ask in (topic.partitions[1].latest_available_offset, topic.latest_available_offsets, topic.earliest_available_offsets):
        with pytest.raises(LeaderNotFoundError, match=rf"t-1 has no leader at the moment: .* \[{down}\] are down") as caught:
            ask()
        assert (caught.value.topic, caught.value.partition) == ("t", 1)
    assert now() - began < LIMIT_S, "brokers have told it: nobody waits for the call's time"
    assert topic.partitions[2].latest_available_offset() == 0


# -- 3, 4, 12, 14 --------------------------------------------------------------------------------------------------------
def test_a_file_that_windows_wrote_hands_on_no_carriage_return(run: Runner, make_cluster: MakeCluster, tmp_path: Path) -> None:
    sasl = Sasl({"alice": "geheim"})
    cluster = make_cluster(topics={"t": 1}, sasl=sasl)
    lines = [
        f"bootstrap.servers=PLAINTEXT://{cluster.bootstrap}".replace("PLAINTEXT", "SASL_PLAINTEXT"),
        *("security.protocol=SASL_PLAINTEXT", "allow.plaintext.credentials=true", "sasl.mechanism=PLAIN", "schema.registry.url=https://r"),
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\",
        '  username="alice" \\',
        '  serviceName="kafka" password="geheim";',
    ]
    path = tmp_path / "client.properties"
    path.write_bytes("\ufeff".encode() + "\r\n".join(lines).encode())
    with KafkaClient.from_properties(path, handler=run.name) as client:
        assert client.partitions("t") == [0]
    assert sasl.refused == 0


@pytest.fixture
def signed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What Amazon's signer was asked for."""
    asked: list[Any] = []
    signer = ModuleType("aws_msk_iam_sasl_signer.MSKAuthTokenProvider")
    for name in ("generate_auth_token", "generate_auth_token_from_profile", "generate_auth_token_from_role_arn"):
        signer.__dict__[name] = lambda *given: (asked.append(given), ("signed", 1 << 60))[1]
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", ModuleType("aws_msk_iam_sasl_signer"))
    monkeypatch.setitem(sys.modules, signer.__name__, signer)
    return asked


def test_amazons_lines_as_a_mapping_with_the_region_of_the_environment(
    run: Runner, make_cluster: MakeCluster, signed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    monkeypatch.delenv("AWS_REGION", raising=False)
    iam = "software.amazon.msk.auth.iam"
    given = {
        "bootstrap.servers": make_cluster(3, {"t": 3}, sasl=Sasl(tokens=["signed"])).bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "allow.plaintext.credentials": "true",
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.jaas.config": f'{iam}.IAMLoginModule required awsProfileName="p" awsDebugCreds=true;',
        "sasl.client.callback.handler.class": f"{iam}.IAMClientCallbackHandler",
    }
    with KafkaClient.from_properties(given, handler=run.name) as client, client.get_producer() as producer:
        for partition in range(3):
            producer.produce("t", b"x", partition=partition).result(LIMIT_S)
    assert signed == [("eu-central-1", "p")]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('x.PlainLoginModule required username="a" password=Endpoint=sb://x/;Key=hush;', "put a value that holds one in double quotes"),
        ('x.Krb5LoginModule required useKeyTab=true keyTab="/k" serviceName="kafka";', "KRB5_CLIENT_KTNAME"),
    ],
)
def test_a_pasted_line_that_cannot_be_is_told_by_from_properties(line: str, says: str) -> None:
    given = {"bootstrap.servers": "h:1", "security.protocol": "SASL_SSL", "sasl.jaas.config": line}
    with pytest.raises(ConfigurationError, match=says) as caught:
        KafkaClient.from_properties({**given, "sasl.mechanism": "GSSAPI" if "Krb5" in line else "PLAIN"})
    assert "hush" not in str(caught.value)


# -- 5 -------------------------------------------------------------------------------------------------------------------
def test_pykafkas_sync_producer_raises_for_the_bad_message_and_goes_on(connect: Connect, make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    cluster.on("Produce", Refuse(), times=None)
    producer = connect(cluster).topics["t"].get_sync_producer(linger_ms=1)
    producer.produce(b"a", partition_key=b"k")
    with pytest.raises(InvalidRecord, match="Compacted topic cannot accept message without key"):
        producer.produce(b"b")
    producer.produce(b"c", partition_key=b"k")
    producer.stop()
    assert stored_values(cluster) == [b"a", b"c"]


# -- 6 -------------------------------------------------------------------------------------------------------------------
@pytest.fixture
def sidecar() -> Iterator[int]:
    """The port of a token endpoint on [::1]."""
    try:
        listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("this machine has no [::1]")

    def answer() -> None:
        while True:
            try:
                conn, _ = listener.accept()
            except OSError:
                return
            with conn:
                conn.recv(8000)
                conn.sendall(b'HTTP/1.0 200 OK\r\n\r\n{"access_token": "t0ken", "expires_in": 60}')

    worker = threading.Thread(target=answer, daemon=True)
    worker.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    worker.join(LIMIT_S)


def test_a_sidecar_on_ipv6s_loopback_is_asked_itself_whatever_the_environment_says_of_proxies(
    connect: Connect, make_cluster: MakeCluster, sidecar: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    url = f"http://[::1]:{sidecar}/token"
    cluster = make_cluster(topics={"t": 1}, sasl=Sasl(tokens=["t0ken"]))
    client = connect(cluster, **CLEAR, sasl_mechanism="OAUTHBEARER", sasl_oauth_token_endpoint_url=url)
    assert client.partitions("t") == [0]


# -- 7 -------------------------------------------------------------------------------------------------------------------
def test_a_balanced_consumer_goes_on_where_all_brokers_refuse_for_a_moment(connect: Connect, make_cluster: MakeCluster) -> None:
    cluster = make_cluster(2, {"t": 2}, sasl=Sasl({"alice": "geheim"}))
    client = connect(
        cluster, **CLEAR, sasl_mechanism="SCRAM-SHA-256", sasl_username="alice", sasl_password="geheim", reconnect_backoff_ms=10
    )
    with client.get_producer() as producer:
        consumer = client.topics["t"].get_balanced_consumer(
            "g", managed=True, auto_offset_reset=OffsetType.EARLIEST, consumer_timeout_ms=FOREVER_MS
        )
        for value in (b"1", b"2"):
            for partition in (0, 1):
                producer.produce("t", value, partition=partition).result(LIMIT_S)
            assert [consumer.consume().value for _ in range(2)] == [value] * 2
            for broker in cluster.brokers:
                cluster.on("SaslAuthenticate", Error(58), broker=broker, times=1)
            cluster.close_connections()
        consumer.stop()


# -- 10 ------------------------------------------------------------------------------------------------------------------
def test_a_consumer_that_waits_makes_no_topic_again(connect: Connect, make_cluster: MakeCluster, run: Runner) -> None:
    cluster = make_cluster()
    consumer = connect(cluster, metadata_max_age_ms=100).topics["t"].get_simple_consumer(consumer_timeout_ms=100)
    cluster.delete_topic("t")
    since = cluster.count("Metadata")
    while cluster.count("Metadata") < since + 4:
        assert consumer.consume() is None
    consumer.stop()
    assert "t" not in connect(cluster, auto_create_topics=False).topics


# -- 25 ------------------------------------------------------------------------------------------------------------------
WAYS = {
    "wrap_future": asyncio.wrap_future,
    "ensure_future": asyncio.ensure_future,
    "gather": asyncio.gather,
    "wait_for": lambda what: asyncio.wait_for(what, LIMIT_S),
}


async def await_it(what: Any) -> Any:
    return await what


def test_await_and_wait_say_what_to_do_with_a_delivery(cluster: MockCluster) -> None:
    async def main() -> None:
        with KafkaClient(cluster.bootstrap, handler="threading") as client, client.get_producer() as producer:
            delivery: Any = await asyncio.to_thread(producer.produce, "t", b"x")
            for ask in (await_it, lambda what: asyncio.wait([what], timeout=LIMIT_S)):
                with pytest.raises(TypeError, match=r"await asyncio\.to_thread\(delivery\.result\); .* kafka-tools docs recipes"):
                    await ask(delivery)
            for wait in (concurrent.futures.wait, lambda these: list(concurrent.futures.as_completed(these))):
                with pytest.raises(TypeError, match=r"delivery\.result\(\) waits for one, producer\.flush\(\) for all"):
                    wait([delivery])
            assert (await asyncio.to_thread(delivery.result)).offset == 0
            told = asyncio.Event()
            loop = asyncio.get_running_loop()
            delivery.add_done_callback(lambda _: loop.call_soon_threadsafe(told.set))
            await asyncio.wait_for(told.wait(), LIMIT_S)

    asyncio.run(main())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("skin", ["native", "pykafka", "kafka-python", "Future"])
def test_asyncio_is_told_how_a_delivery_is_awaited(cluster: MockCluster, skin: str, way: str) -> None:
    from gkafka.kafka import KafkaProducer

    async def main() -> None:
        ask: Any = WAYS[way]
        with KafkaClient(cluster.bootstrap, handler="threading") as client, client.get_producer() as producer:
            other = KafkaProducer(bootstrap_servers=cluster.bootstrap, handler="threading")
            documented = client.topics["t"].get_producer(linger_ms=1)
            what: dict[str, Any] = {
                "native": lambda: producer.produce("t", b"x"),
                "pykafka": lambda: documented.produce(b"x"),
                "kafka-python": lambda: other.send("t", b"x"),
                "Future": lambda: Future(client.handler),
            }
            waiting = await asyncio.to_thread(what[skin])
            wait = "delivery.result" if skin in ("native", "pykafka") else "future.get"
            with pytest.raises(TypeError, match=rf"await asyncio\.to_thread\({wait}\); .* kafka-tools docs recipes"):
                await ask(waiting)
            if skin != "Future":
                found = await asyncio.to_thread(waiting.get if skin == "kafka-python" else waiting.result)
                assert found.offset == 0
            await asyncio.to_thread(documented.stop)
            await asyncio.to_thread(other.close)

    asyncio.run(main())


def test_pykafkas_reports_are_taken_on_the_loop_that_produced(cluster: MockCluster) -> None:
    """They are those of its thread: another one, of to_thread(), has none. What produce() returns may be awaited anywhere."""

    async def main() -> None:
        with KafkaClient(cluster.bootstrap, handler="threading") as client:
            topic = await asyncio.to_thread(client.topics.__getitem__, "t")
            producer = await asyncio.to_thread(lambda: topic.get_producer(delivery_reports=True, linger_ms=1))
            delivery: Any = producer.produce(b"x")
            assert (await asyncio.to_thread(delivery.result)).offset == 0
            with pytest.raises(queue.Empty):
                await asyncio.to_thread(producer.get_delivery_report, block=False)
            message, error = producer.get_delivery_report(block=False)
            assert (message.value, error) == (b"x", None)
            await asyncio.to_thread(producer.stop)

    asyncio.run(main())


# -- 29 ------------------------------------------------------------------------------------------------------------------
def deny(_: Any, answer: Any) -> Any:
    """As a broker that names a topic and does not describe it."""
    for told in answer.topics:
        if told.name == "secret":
            told.error_code, told.partitions = 29, []
    return answer


def test_pykafkas_clients_name_the_topic_that_is_denied(connect: Connect, make_cluster: MakeCluster) -> None:
    cluster = make_cluster(topics={"t": 1, "secret": 1})
    cluster.on("Metadata", Edit(deny), times=None)
    client = connect(cluster)
    assert list(client.topics) == ["t"]
    with pytest.raises(TopicAuthorizationFailed, match="Metadata secret: error 29"):
        client.topics["secret"].get_balanced_consumer("g", managed=True)


# -- 32 ------------------------------------------------------------------------------------------------------------------
KAFKA_PYTHON = """
from gkafka.kafka import KafkaProducer
producer = KafkaProducer(bootstrap_servers=HOSTS, handler=HANDLER, linger_ms=60_000)
for i in range(100):
    producer.send("t", b"%d" % i)
"""
OLDEST = """
from gkafka.kafka import legacy
producer = legacy.SimpleProducer(legacy.KafkaClient(HOSTS, handler=HANDLER), async_send=True, batch_send_every_n=1000, batch_send_every_t=60)
for i in range(100):
    producer.send_messages(b"t", b"%d" % i)
"""


@pytest.mark.parametrize("source", [KAFKA_PYTHON, OLDEST], ids=["kafka-python", "the oldest"])
@pytest.mark.parametrize(("handler", "patched"), [("threading", False), ("gevent", True)])
def test_a_worker_that_ends_without_a_close_has_sent_what_its_producer_took(
    cluster: MockCluster, source: str, handler: str, patched: bool
) -> None:
    said, _ = run_to_its_end(cluster, f"HOSTS, HANDLER = {cluster.bootstrap!r}, {handler!r}\nclient.close()\n{source}", handler, patched)
    assert stored_values(cluster) == [b"%d" % i for i in range(100)]
    assert said == ""
