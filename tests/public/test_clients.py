"""The client itself: made without a sound, told what is wrong in words, closed for good."""

from __future__ import annotations

import ast
import contextlib
import re
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gkafka import KafkaClient
from gkafka.exceptions import (
    ClientClosedError,
    ConfigurationError,
    KafkaException,
    KafkaTimeoutError,
    NoBrokersAvailableError,
    ProtocolError,
    ProxyError,
    TlsError,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from gkafka.hosts import parse_host, parse_hosts, parse_source_address
from gkafka.testing import Delay, Edit, Error, MockCluster
from gkafka.wire.apiversions import ApiVersionsRequest
from tests.handlers.hub import run_script
from tests.kit.clock import soon
from tests.kit.ports import refused_port
from tests.net.certificates import Certificates
from tests.net.channel_peers import Conversation, peer
from tests.net.servers import serve
from tests.public.aids import LIMIT_S, Clock, Runner, error_of, fill, read

FOREIGN = ("gevent", "kazoo", "numpy", "pyspark", "pyarrow", "ssl", "lz4", "zstandard", "snappy", "cramjam")


# -- import and construction -----------------------------------------------------------------------------------------------
def test_import_gkafka_loads_nothing_that_is_optional() -> None:
    """How long it takes is measured by `make stalls`."""
    run_script(f"""
        import sys
        import gkafka
        bad = [name for name in {FOREIGN!r} if name in sys.modules]
        assert not bad, bad
        gkafka.KafkaClient
        bad = [name for name in {FOREIGN!r} if name in sys.modules]
        assert not bad, bad
    """)


def test_a_client_is_made_without_a_worker_a_socket_or_a_broker() -> None:
    port = refused_port()
    out = run_script(f"""
        import os, threading
        from gkafka import KafkaClient
        before = set(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else set()
        client = KafkaClient("127.0.0.1:{port}")
        producer = client.get_producer()
        after = set(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else set()
        assert threading.active_count() == 1, threading.enumerate()
        assert len(after) == len(before), after - before
        repr(client), client.handler, client.cluster
        producer.close()
        client.close()
        assert threading.active_count() == 1
        print("quiet")
    """)
    assert out == "quiet"


def test_it_is_repr_that_shows_where_it_goes(client: KafkaClient, cluster: MockCluster) -> None:
    assert cluster.bootstrap in repr(client)
    assert repr(client.topics["t"]).startswith("<gkafka.topic.Topic at 0x")
    assert "(name=t)" in repr(client.topics["t"])


def test_a_client_is_a_context_that_closes_it(run: Runner, cluster: MockCluster) -> None:
    with KafkaClient(cluster.bootstrap, handler=run.name) as client:
        client.connect()
        assert client.handler.name == run.name
    assert isinstance(error_of(client.connect), ClientClosedError) or client.cluster.metadata.version
    assert isinstance(error_of(client.get_producer), ClientClosedError)
    assert isinstance(error_of(client.create_topic, "new"), ClientClosedError)
    assert isinstance(error_of(client.fetch_raw, "t", 0, 0), ClientClosedError)
    client.close()
    assert client.handler.workers() == []


def test_hosts_of_all_brokers_are_tried_until_one_answers(connect: Any, cluster: MockCluster) -> None:
    client = connect(f"127.0.0.1:{refused_port()},127.0.0.1:{refused_port(1)},{cluster.bootstrap}")
    assert list(client.topics) == ["t"]
    assert sorted(client.brokers) == [1]


def test_hosts_may_be_bytes(connect: Any, run: Runner, cluster: MockCluster) -> None:
    with KafkaClient(cluster.bootstrap.encode(), handler=run.name) as client:
        assert list(client.topics) == ["t"]


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ("h", [("h", 9092)]),
        ("h:1", [("h", 1)]),
        (" h1:1 , h2 ,", [("h1", 1), ("h2", 9092)]),
        ("[::1]:9093", [("::1", 9093)]),
        ("[::1]", [("::1", 9092)]),
        ("10.0.0.1:65535", [("10.0.0.1", 65535)]),
        ("PLAINTEXT://h:1", [("h", 1)]),
        ("sasl_ssl://h:1, SSL://[::1]:2,SASL_PLAINTEXT://k", [("h", 1), ("::1", 2), ("k", 9092)]),
        ("b1:1,\n  b2:2\n", [("b1", 1), ("b2", 2)]),
        ("under_score.svc:1", [("under_score.svc", 1)]),
    ],
)
def test_hosts_as_users_write_them(hosts: str, expected: Any) -> None:
    assert parse_hosts(hosts) == expected


@pytest.mark.parametrize(
    "hosts",
    ["", " , ", "h:0", "h:65536", "h:-1", "h:x", "h:", ":9092", "::1", "::1:9092", "[::1", "[::1]x", "[::1]9092", "[]:1", "http://h:1", "u@h:1",
     "h:1/path", "h:²", "h:١", "a b:1", "h\n:1", None, 5, ["h:1"]],
)  # fmt: skip
def test_hosts_that_cannot_be_are_named(hosts: Any) -> None:
    error = error_of(KafkaClient, hosts, handler="threading")
    assert isinstance(error, ConfigurationError)
    assert "hosts" in str(error)


@pytest.mark.parametrize(
    ("hosts", "cure"),
    [
        ("b1:9092 b2:9092", "separate addresses by commas, as 'b1:9092,b2:9092'"),
        ("b1:9092\nb2:9092\n", "separate addresses by commas, as 'b1:9092,b2:9092'"),
        ("- b1:9092\n- b2:9092\n", "separate addresses by commas, as 'b1:9092,b2:9092'"),
        ("b1:9092;b2:9092", "separate addresses by commas, as 'b1:9092,b2:9092'"),
        ("b1:9092\uff0cb2:9092", "separate addresses by commas, as 'b1:9092,b2:9092'"),
        ("SSL://b1:9092 SSL://b2:9092", "separate addresses by commas, as 'SSL://b1:9092,SSL://b2:9092'"),
        ("b1;b2", "separate addresses by commas, as 'b1,b2'"),
        ("b1:9092;", "';' belongs to no host"),
        ("SASL_SSL:// b1:9092", "give 'SASL_SSL://b1:9092'"),
        ("PLAINTEXT:\\/\\/b1:9092", "give 'PLAINTEXT://b1:9092'"),
        ("b1:9092 \\", "give 'b1:9092'"),
        ("bootstrap.servers=b1:9092", "give the value alone"),
        ("%BOOTSTRAP%", "a placeholder that nobody has filled in"),
        ("__BROKER__", "a placeholder that nobody has filled in"),
        ("None", "a placeholder that nobody has filled in"),
        ("null", "a placeholder that nobody has filled in"),
        ("b1..x", "must be host:port"),
        ("b-2...", "must be host:port"),
        (f"{'a' * 64}.x:1", "must be host:port"),
        ("['b1:9092']", "only an IPv6 address stands in brackets: give 'b1:9092'"),
        ("['b1:9092', 'b2:9092']", "separate addresses by commas, as 'b1:9092,b2:9092'"),
        ('["b1:9092"]', "give 'b1:9092'"),
        ("[b1:9092, b2:9092]", "as 'b1:9092,b2:9092'"),
        ("('b1:9092',)", "give 'b1:9092'"),
        ("'b1:9092'", "belongs to no host: give 'b1:9092'"),
        ('"b1:9092,b2:9092"', "as 'b1:9092,b2:9092'"),
        ("[b1:9092]", "only an IPv6 address stands in brackets: give 'b1:9092'"),
        ("[b1]:9092", "only an IPv6 address stands in brackets: give 'b1:9092'"),
        ("b1\uff1a9092", "'\uff1a' belongs to no host: give 'b1:9092'"),
        ("b1\u200b:9092", "'\\u200b' belongs to no host: give 'b1:9092'"),
        ("b1:9092\\nb2:9092", "separate addresses by commas, as 'b1:9092,b2:9092'"),
        ("b1:9092&b2:9092", "separate addresses by commas, as 'b1:9092,b2:9092'"),
        ("b1 9092", "give 'b1:9092'"),
        ("b1:9092 # prod", "give 'b1:9092'"),
        ("SASL_SSL:b1:9092", "give 'SASL_SSL://b1:9092', and set security_protocol='SASL_SSL'"),
        ("SASL_SSL://", "names no host: give host:port behind it"),
        ("9092", "must be host:port"),
        ("b1:9092:b2:9092", "must be host:port"),
        ('"b1:9092","b2:9092"', "belongs to no host"),
        ("${KAFKA_HOSTS}", "a placeholder that nobody has filled in"),
        ("{{ .Values.kafka }}", "a placeholder that nobody has filled in"),
        ("http://h:1", "of schemes only PLAINTEXT://"),
        ("EXTERNAL://h:1", "of schemes only PLAINTEXT://"),
        ("PLAINTEXT://h:1/", "no path or user"),
        ("SASL_SSL://h:1", "with security_protocol='PLAINTEXT': set security_protocol='SASL_SSL', or take SASL_SSL:// off"),
        (["h:1", "k:1"], "','.join(...) makes one of a list"),
    ],
    ids=str,
)
def test_hosts_that_were_made_for_something_else_are_refused_with_the_cure(hosts: Any, cure: str) -> None:
    error = error_of(KafkaClient, hosts, handler="threading")
    assert isinstance(error, ConfigurationError)
    assert cure in str(error)


@example("b1 b2")
@given(st.text(alphabet="b19:;,[]'\"# \\n&-/=", max_size=24) | st.text(max_size=12))
def test_a_cure_that_is_offered_parses(hosts: str) -> None:
    said = ""
    try:
        parse_hosts(hosts, "PLAINTEXT")
    except ConfigurationError as exc:
        said = str(exc)
    offered = re.search(r": (?:separate addresses by commas, as|give) ('[^']+')(?:, and set.*)?$", said)
    assert bool(offered) == ("separate addresses by commas, as" in said or ": give '" in said)
    assert offered is None or parse_hosts(ast.literal_eval(offered[1]))


def test_a_scheme_is_taken_off(connect: Any, cluster: MockCluster) -> None:
    assert list(connect(f"plaintext://{cluster.bootstrap}").topics) == ["t"]


@pytest.mark.parametrize("given", [["PLAINTEXT://{}"], "PLAINTEXT://{}", ["PLAINTEXT://{}", "PLAINTEXT://127.0.0.1:1"]], ids=str)
def test_a_scheme_is_taken_off_for_kafka_pythons_users(given: Any, cluster: MockCluster) -> None:
    from gkafka.kafka import KafkaConsumer

    addresses = given.format(cluster.bootstrap) if isinstance(given, str) else [one.format(cluster.bootstrap) for one in given]
    consumer = KafkaConsumer(bootstrap_servers=addresses)
    assert consumer.topics() == {"t"}
    consumer.close()
    with pytest.raises(ConfigurationError, match="separate addresses by commas"):
        KafkaConsumer(bootstrap_servers=["b1:1;b2:1"])


@pytest.mark.parametrize("host", ["b1;b2", "'b1'", '"b1"', "SSL://b1"])
def test_what_is_no_host_is_refused_for_pykafkas_broker_too(host: str) -> None:
    with pytest.raises(ConfigurationError, match="is not the name or the address of a host"):
        parse_host(host)


def test_source_addresses() -> None:
    assert parse_source_address("") is None
    assert parse_source_address("127.0.0.1:5") == ("127.0.0.1", 5)
    assert parse_source_address("127.0.0.1") == ("127.0.0.1", 0)
    assert parse_source_address("[::1]:5") == ("::1", 5)
    for bad in ("h:x", "h:65536", "h:²", ":5", "::1"):
        with pytest.raises(ConfigurationError, match="source_address"):
            parse_source_address(bad)


def test_sockets_come_from_the_source_address(connect: Any, cluster: MockCluster) -> None:
    assert list(connect(cluster, source_address="127.0.0.1").topics) == ["t"]
    client = connect(cluster, source_address="192.0.2.1", connect_timeout_ms=500)
    assert isinstance(error_of(client.connect, 5), NoBrokersAvailableError)


# -- who does not answer ---------------------------------------------------------------------------------------------------
def test_a_wrong_port_is_told_soon_and_named(connect: Any) -> None:
    port = refused_port()
    client = connect(f"127.0.0.1:{port}")
    with Clock() as clock:
        error = error_of(client.connect)
    assert isinstance(error, NoBrokersAvailableError)
    assert str(error).count(f"127.0.0.1:{port}") == 1
    assert "refused" in str(error)
    assert clock.seconds < 30


def test_a_host_that_cannot_be_found_is_told_soon_and_named(connect: Any) -> None:
    client = connect("no-such-host.invalid:9092")
    with Clock() as clock:
        error = error_of(client.connect)
    assert isinstance(error, NoBrokersAvailableError)
    assert "no-such-host.invalid" in str(error)
    assert clock.seconds < 30


def test_a_server_that_is_not_kafka_is_told_soon_with_a_hint(connect: Any) -> None:
    def http(conversation: Conversation) -> None:
        conversation.read_frame()
        conversation.send(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")

    with peer(http) as server, Clock() as clock:
        error = error_of(connect(f"127.0.0.1:{server.port}").connect)
    assert isinstance(error, ProtocolError)
    assert error.broker is not None
    assert "HTTP" in str(error)
    assert clock.seconds < 30


REFUSED: dict[str, tuple[dict[str, Any], type[KafkaException], str]] = {
    "a certificate that is not trusted": ({"security_protocol": "SSL"}, TlsError, "unable to get local issuer certificate"),
    "a proxy that refuses": ({"proxy_url": "http://{address}"}, ProxyError, "status 407"),
}


@pytest.mark.parametrize("hosts", [1, 2])
@pytest.mark.parametrize("case", REFUSED)
def test_what_no_further_try_heals_is_told_after_one_as_what_it_is(connect: Any, tmp_path: Path, case: str, hosts: int) -> None:
    context = Certificates(tmp_path).server("unknown_ca")
    connects: list[int] = []

    def refuse(conn: socket.socket) -> None:
        connects.append(1)
        if "proxy" in case:
            conn.recv(1000)
            conn.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
        else:
            with contextlib.suppress(OSError):
                context.wrap_socket(conn, server_side=True)

    options, kind, text = REFUSED[case]
    with serve(refuse) as port, serve(refuse) as other:
        addresses = ",".join(f"localhost:{p}" for p in (port, other)[:hosts])
        given = {name: value.format(address=f"127.0.0.1:{port}") for name, value in options.items()}
        # A host may be tried again while the other one has not answered yet; not before its pause is over.
        error = error_of(connect(addresses, reconnect_backoff_ms=100_000, reconnect_backoff_max_ms=100_000, **given).connect)
    assert type(error) is kind
    assert str(error).count(text) == hosts
    assert len(connects) == hosts


def test_a_broker_that_is_not_trusted_beside_one_that_is_not_there_is_the_cause(connect: Any, tmp_path: Path) -> None:
    context = Certificates(tmp_path).server("unknown_ca")

    def refuse(conn: socket.socket) -> None:
        with contextlib.suppress(OSError):
            context.wrap_socket(conn, server_side=True)

    with serve(refuse) as port:
        error = error_of(connect(f"localhost:{port},127.0.0.1:{refused_port()}", security_protocol="SSL").connect)
    assert type(error) is NoBrokersAvailableError
    assert "unable to get local issuer certificate" in str(error)
    assert "refused" in str(error)
    assert isinstance(error.__cause__, TlsError)


def test_a_server_that_accepts_and_stays_silent_costs_the_connect_timeout_and_no_more(connect: Any, run: Runner) -> None:
    with peer(lambda conversation: conversation.stay_silent()) as server:
        client = connect(f"127.0.0.1:{server.port}", connect_timeout_ms=300)
        with Clock() as clock:
            error = error_of(client.connect, 3)
        assert isinstance(error, (KafkaTimeoutError, NoBrokersAvailableError))
        assert f"127.0.0.1:{server.port}" in str(error)
        assert clock.seconds < 30
        client.close()


def test_a_call_ends_at_its_own_timeout_when_nothing_answers(connect: Any, cluster: MockCluster) -> None:
    cluster.on("Metadata", Delay(120), times=None)
    client = connect(cluster)
    for call in (
        lambda: client.connect(0.3),
        lambda: client.list_offsets({("t", 0): -1}, timeout=0.3),
        lambda: client.fetch_raw("t", 0, 0, timeout=0.3),
        lambda: client.create_topic("new", timeout=0.3),
    ):
        with Clock() as clock:
            assert isinstance(error_of(call), KafkaTimeoutError)
        assert clock.seconds < 30


def test_api_timeout_ms_bounds_calls_that_are_given_no_timeout(connect: Any, cluster: MockCluster) -> None:
    cluster.on("Metadata", Delay(120), times=None)
    client = connect(cluster, api_timeout_ms=300)
    with Clock() as clock:
        assert isinstance(error_of(lambda: client.topics["t"]), KafkaTimeoutError)
    assert clock.seconds < 30


def test_a_client_that_found_nobody_finds_the_brokers_once_they_are_there(connect: Any, cluster: MockCluster, run: Runner) -> None:
    cluster.stop_broker(1)
    client = connect(cluster)
    assert isinstance(error_of(lambda: list(client.topics)), NoBrokersAvailableError)
    cluster.start_broker(1)
    assert run.until(lambda: _names(client)) == ["t"]
    assert sorted(client.brokers) == [1]


def _names(client: KafkaClient) -> list[str]:
    try:
        return list(client.topics)
    except KafkaException:
        return []


def test_a_cluster_without_brokers_in_its_metadata_is_not_asked_in_a_loop(connect: Any, cluster: MockCluster, run: Runner) -> None:
    def nobody(request: Any, answer: Any) -> Any:
        answer.brokers = []
        return answer

    cluster.on("Metadata", Edit(nobody), times=None)
    client = connect(cluster)
    error = error_of(client.connect, 1.0)
    assert isinstance(error, (NoBrokersAvailableError, KafkaTimeoutError))
    assert "told of no broker" in str(error)
    with Clock() as clock:
        before = cluster.count("Metadata")
        run.sleep(0.5)
        asked = cluster.count("Metadata") - before
    assert clock.seconds >= 0.1 * (asked - 5)


# -- topics ------------------------------------------------------------------------------------------------------------------
def test_topics_are_a_dictionary_by_name(connect: Any, make_cluster: Any) -> None:
    cluster = make_cluster(topics={"b": 2, "a": 1, "__consumer_offsets": 1})
    client = connect(cluster)
    assert list(client.topics) == ["a", "b"]
    assert len(client.topics) == 2
    assert "a" in client.topics
    assert b"b" in client.topics
    assert "c" not in client.topics
    assert 5 not in client.topics
    assert client.topics["b"] is client.topics[b"b"]
    assert sorted(client.topics["b"].partitions) == [0, 1]
    assert client.topics.get("c") is None
    assert [name for name, _ in client.topics.items()] == ["a", "b"]
    assert [topic.name for topic in client.topics.values()] == ["a", "b"]
    assert isinstance(error_of_key(client, "__consumer_offsets"), KeyError)
    assert cluster.log("a", 0) == []


def error_of_key(client: KafkaClient, name: str) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: PT011
        client.topics[name]
    return caught.value


def test_internal_topics_are_shown_to_whoever_asks(connect: Any, make_cluster: Any) -> None:
    client = connect(make_cluster(topics={"t": 1, "__consumer_offsets": 1}), exclude_internal_topics=False)
    assert list(client.topics) == ["__consumer_offsets", "t"]
    assert client.topics["__consumer_offsets"].name == "__consumer_offsets"


def test_a_listing_is_whole_also_while_another_question_is_under_way(connect: Any, make_cluster: Any, run: Runner) -> None:
    cluster = make_cluster(topics={"a": 1, "b": 1, "c": 1})
    client = connect(cluster)
    client.connect()
    cluster.on("Metadata", Delay(0.3))
    one = run.aside(lambda: client.topics["b"].name)
    run.until(lambda: any(r.message.topics for r in cluster.requests("Metadata")))
    assert list(client.topics) == ["a", "b", "c"]
    assert one.result() == "b"


@pytest.mark.usefixtures("short_patience")
def test_an_unknown_topic_is_told_by_name(connect: Any, make_cluster: Any) -> None:
    client = connect(make_cluster(auto_create=False))
    with Clock() as clock:
        error = error_of(lambda: client.topics["missing"])
    assert isinstance(error, UnknownTopicOrPartition)
    assert "'missing'" in str(error)
    assert error.topic == "missing"
    assert clock.seconds < 30


def test_a_name_that_no_topic_can_have_is_told_at_once(client: KafkaClient) -> None:
    for name in ("no/slash", "a" * 300, "spa ce"):
        with Clock() as clock:
            error = error_of(lambda name=name: client.topics[name])
        assert isinstance(error, ConfigurationError)
        assert clock.seconds < 30
    for nothing in ("", None, 5):
        assert isinstance(error_of(lambda nothing=nothing: client.partitions(nothing)), ConfigurationError)


def test_asking_for_a_topic_creates_it_where_the_broker_and_the_option_allow_that(connect: Any, make_cluster: Any) -> None:
    cluster = make_cluster()
    assert connect(cluster).topics["fresh"].name == "fresh"
    careful = connect(cluster, auto_create_topics=False)
    careful.cluster.topic_patience_s = 0.5
    assert isinstance(error_of(lambda: careful.topics["fresher"]), UnknownTopicOrPartition)
    assert "fresher" not in connect(cluster).topics


def test_a_partition_that_is_not_there_is_told_soon(client: KafkaClient) -> None:
    for call in (lambda: client.fetch_raw("t", 7, 0), lambda: client.list_offsets({("t", 7): -1}), lambda: client.fetch_raw("t", -1, 0)):
        with Clock() as clock:
            error = error_of(call)
        assert isinstance(error, UnknownTopicOrPartition)
        assert (error.topic, error.partition) in (("t", 7), ("t", -1))
        assert clock.seconds < 30


def test_create_and_delete_topics(connect: Any, make_cluster: Any) -> None:
    cluster = make_cluster(brokers=3, auto_create=False)
    client = connect(cluster)
    client.create_topic("new", 3, replication_factor=2, configs={"cleanup.policy": "compact"})
    assert client.partitions("new") == [0, 1, 2]
    error = error_of(client.create_topic, "new")
    assert isinstance(error, TopicAlreadyExists)
    assert error.topic == "new"
    client.delete_topic("new")
    assert "new" not in list(connect(cluster).topics)
    assert isinstance(error_of(client.delete_topic, "new", timeout=2), (UnknownTopicOrPartition, KafkaTimeoutError))
    assert isinstance(error_of(client.create_topic, "no/slash"), ConfigurationError)


def test_update_cluster_learns_of_new_topics_partitions_and_leaders(connect: Any, make_cluster: Any) -> None:
    cluster = make_cluster(brokers=2)
    client = connect(cluster)
    topic = client.topics["t"]
    assert topic.partitions[0].leader.id == 1
    cluster.create_topic("later", 1)
    cluster.add_partitions("t", 3)
    cluster.move_leader("t", 0, 2)
    client.update_cluster()
    assert list(client.topics) == ["later", "t"]
    assert sorted(topic.partitions) == [0, 1, 2]
    assert topic.partitions[0].leader.id == 2
    assert [b.id for b in topic.partitions[0].replicas]
    assert topic.partitions[0].topic is topic


def test_metadata_is_asked_anew_when_it_is_old(connect: Any, cluster: MockCluster, run: Runner) -> None:
    client = connect(cluster, metadata_max_age_ms=200)
    producer = client.get_producer(linger_ms=0)
    producer.produce("t", b"x").result(60)
    before = cluster.count("Metadata")
    run.until(lambda: cluster.count("Metadata") > before + 1)


# -- options -----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("call", "wrong", "near"),
    [
        ("client", {"client_idd": "x"}, "client_id"),
        ("client", {"soket_timeout_ms": 1}, "socket_timeout_ms"),
        ("client", {"ssl_ca_file": "x"}, "ssl_cafile"),
        ("producer", {"linger": 5}, "linger_ms"),
        ("producer", {"lingerms": 5}, "linger_ms"),
        ("producer", {"batch_sise": 5}, "batch_size"),
        ("producer", {"compresion": "gzip"}, "compression"),
        ("topic producer", {"linger": 1}, "linger_ms"),
        ("consumer", {"isolation": "read_committed"}, "isolation_level"),
        ("consumer", {"fetch_max_byte": 5}, "fetch_max_bytes"),
        ("consumer", {"auto_commit_enabled": True}, "auto_commit_enable"),
    ],
)
def test_an_option_that_is_not_there_is_told_with_what_comes_near(client: KafkaClient, call: str, wrong: dict[str, Any], near: str) -> None:
    error = error_of(_calls(client)[call], **wrong)
    assert isinstance(error, ConfigurationError)
    assert repr(next(iter(wrong))) in str(error)
    assert near in str(error)


def _calls(client: KafkaClient) -> dict[str, Any]:
    return {
        "client": lambda **options: KafkaClient("h", **{"handler": client.handler.name, **options}),
        "producer": client.get_producer,
        "topic producer": lambda **options: client.topics["t"].get_producer(**options),
        "consumer": lambda **options: client.topics["t"].get_simple_consumer(**options),
    }


@pytest.mark.parametrize(
    ("call", "name", "value"),
    [
        ("client", "client_id", 5),
        ("client", "client_id", None),
        ("client", "socket_timeout_ms", 0),
        ("client", "socket_timeout_ms", "30000"),
        ("client", "socket_timeout_ms", float("inf")),
        ("client", "socket_timeout_ms", 1 << 40),
        ("client", "connect_timeout_ms", -1),
        ("client", "metadata_max_age_ms", float("nan")),
        ("client", "max_response_bytes", 1 << 31),
        ("client", "max_response_bytes", 1e6 + 0.5),
        ("client", "keepalive", 1),
        ("client", "keepalive_idle_s", 0),
        ("client", "broker_version", "twelve"),
        ("client", "security_protocol", "SASL"),
        ("client", "tls_verify", "no"),
        ("client", "handler", "threads"),
        ("client", "zookeeper_hosts", 2181),
        ("producer", "acks", 2),
        ("producer", "acks", "al"),
        ("producer", "acks", True),
        ("producer", "linger_ms", -1),
        ("producer", "batch_bytes", 10),
        ("producer", "batch_bytes", 1000.5),
        ("producer", "buffer_bytes", 5000),
        ("producer", "compression", "snapy"),
        ("producer", "compression", 1),
        ("producer", "compression_level", 100),
        ("producer", "max_in_flight", 6),
        ("producer", "max_in_flight", 0),
        ("producer", "max_in_flight", 2.5),
        ("producer", "retries", -1),
        ("producer", "delivery_timeout_ms", 1),
        ("producer", "request_timeout_ms", 1 << 40),
        ("producer", "partitioner", "murmur3"),
        ("producer", "key_serializer", "utf-8"),
        ("producer", "on_delivery", 5),
        ("topic producer", "required_acks", 2),
        ("topic producer", "compression", 9),
        ("topic producer", "min_queued_messages", 0),
        ("topic producer", "partitioner", 5),
        ("consumer", "isolation_level", "serializable"),
        ("consumer", "queued_max_messages", 0),
        ("consumer", "num_consumer_fetchers", 0),
        ("consumer", "num_consumer_fetchers", 1.5),
        ("consumer", "auto_offset_reset", 0),
        ("consumer", "partitions", [9]),
        ("consumer", "auto_commit_enable", True),
        ("consumer", "fetch_wait_max_ms", 1 << 31),
        ("consumer", "consumer_timeout_ms", "soon"),
        ("consumer", "deserializer", 5),
        ("consumer", "auto_commit_interval_ms", -5),
        ("consumer", "offsets_commit_max_retries", -1),
    ],
)
def test_a_value_that_cannot_be_is_told_with_its_name_and_what_may_be(client: KafkaClient, call: str, name: str, value: Any) -> None:
    error = error_of(_calls(client)[call], **{name: value})
    assert isinstance(error, ConfigurationError)
    assert name in str(error) or (name == "required_acks" and "acks" in str(error))


def test_an_option_given_twice_is_told(client: KafkaClient) -> None:
    error = error_of(lambda: client.get_producer(**{"linger_ms": 5, "linger.ms": 6}))
    assert isinstance(error, ConfigurationError)
    assert "twice" in str(error)


def test_other_spellings_mean_the_same(client: KafkaClient) -> None:
    producer = client.get_producer(
        **{"linger.ms": 7, "batch.size": 1000, "compression.type": "gzip", "max.in.flight.requests.per.connection": 2}
    )
    assert (producer.config.linger_ms, producer.config.batch_bytes, producer.config.compression, producer.config.max_in_flight) == (
        7,
        1000,
        "gzip",
        2,
    )


def test_whole_numbers_may_be_written_as_floats(client: KafkaClient) -> None:
    producer = client.get_producer(batch_bytes=1e5, linger_ms=0.5)
    assert producer.config.batch_bytes == 100_000
    assert type(producer.config.batch_bytes) is int
    assert producer.config.linger_ms == 0.5


# -- more than one -----------------------------------------------------------------------------------------------------------
def test_two_clients_share_a_handler_and_the_end_of_one_is_not_the_end_of_the_other(cluster: MockCluster, run: Runner) -> None:
    from gkafka.handlers import resolve_handler

    handler = resolve_handler(run.name)
    one, other = KafkaClient(cluster.bootstrap, handler=handler), KafkaClient(cluster.bootstrap, handler=handler)
    try:
        fill(one, [b"1"])
        one.close()
        fill(other, [b"2"])
        consumer = other.topics["t"].get_simple_consumer()
        assert [m.value for m in read(consumer, 2)] == [b"1", b"2"]
    finally:
        one.close()
        other.close()
        assert handler.stop(soon(LIMIT_S))


def test_close_ends_every_worker_of_the_client_soon(cluster: MockCluster, run: Runner) -> None:
    client = KafkaClient(cluster.bootstrap, handler=run.name)
    fill(client, [b"1"])
    consumer = client.topics["t"].get_simple_consumer()
    assert len(read(consumer, 1)) == 1
    producer = client.topics["t"].get_producer()
    producer.produce(b"2")
    client.fetch_raw("t", 0, 0)
    with Clock() as clock:
        client.close()
    assert clock.seconds < 30
    assert [w for w in client.handler.workers() if w.is_alive()] == []
    assert [r.value for r in cluster.log("t", 0)] == [b"1", b"2"], "what the producer held was delivered"
    assert cluster.wait_for(lambda: cluster.connections() == 0) is True


def test_errors_of_a_refused_listing_are_raised(client: KafkaClient, cluster: MockCluster) -> None:
    cluster.on("ListOffsets", Error(29), times=None)
    error = error_of(client.list_offsets, {("t", 0): -1})
    assert type(error).__name__ == "TopicAuthorizationFailed"
    assert (error.topic, error.partition) == ("t", 0)


def test_stats_are_plain_data(client: KafkaClient) -> None:
    import json

    fill(client, [b"x"])
    producer = client.get_producer()
    producer.produce("t", b"y").result(60)
    stats = json.loads(json.dumps(client.stats()))
    assert stats["handler"] == client.handler.name
    assert stats["producers"][0]["delivered_records"] == 1


def test_threads_of_a_client_are_daemons_and_named(cluster: MockCluster) -> None:
    before = set(threading.enumerate())
    with KafkaClient(cluster.bootstrap, handler="threading") as client:
        fill(client, [b"x"])
        consumer = client.topics["t"].get_simple_consumer()
        read(consumer, 1)
        mine = [t for t in threading.enumerate() if t not in before]
        assert mine
        assert all(t.daemon and t.name.startswith("gkafka-") for t in mine), mine
    assert socket.socket  # the mock's own thread is no threading.Thread


def test_what_a_broker_refuses_names_the_place_and_the_next_step(client: KafkaClient, cluster: MockCluster) -> None:
    consumer = client.topics["t"].get_simple_consumer(consumer_group="g", offsets_commit_max_retries=0)
    cluster.on("Produce", Error(32))
    cluster.on("OffsetCommit", Error(3))
    there = f"on broker {cluster.bootstrap}"
    told = {
        f"Fetch t-0 offset 50 {there}: error 1: ": (lambda: client.fetch_raw("t", 0, 50), "list_offsets()"),
        f"OffsetCommit t-0 of group 'g' {there}: error 3: ": (lambda: consumer.commit_offsets([(0, 1)]), "check the topic's name"),
        f"DeleteTopics nope {there}: error 3: ": (lambda: client.delete_topic("nope"), "check the topic's name"),
        f"CreateTopics t {there}: error 36: ": (lambda: client.create_topic("t"), "choose another name"),
        "Produce t-0: error 32: ": (lambda: client.get_producer().produce("t", b"x").result(60), "milliseconds since the epoch"),
    }
    for place, (call, next_step) in told.items():
        error = error_of(call)
        assert place in str(error), error
        assert next_step in str(error), error
    consumer.stop()


def test_a_password_in_an_address_is_not_told() -> None:
    with pytest.raises(ConfigurationError, match=r"hosts: '\.\.\.@broker:9092' is not host:port") as raised:
        KafkaClient("sasl://user:hunter2@broker:9092")
    assert "hunter2" not in str(raised.value)


def test_large_answers_are_decoded_off_the_hub(make_cluster: Any, connect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """0.2 us a byte: those of many partitions would stop every greenlet. Of a Fetch only views are made."""
    apart: list[Any] = []
    client = connect(make_cluster(topics={f"t{i}": 20 for i in range(100)}))
    offload = client.handler.offload

    def spy(fn: Any, *args: Any) -> Any:
        apart.append(getattr(fn, "__name__", ""))
        return offload(fn, *args)

    monkeypatch.setattr(client.handler, "offload", spy)
    assert len(client.topics) == 100
    assert "decode" in apart
    del apart[:]
    producer = client.get_producer()
    producer.produce("t0", b"x" * 100_000, partition=0).result(LIMIT_S)
    consumer = client.get_consumer("t0")
    assert len(consumer.consume(LIMIT_S * 1000).value) == 100_000
    assert "decode" not in apart


def test_metadata_of_many_partitions_let_others_in(make_cluster: Any, connect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    client = connect(make_cluster(topics={"t": 3000}))
    seen: list[str] = []
    checkpoint = client.handler.checkpoint

    def spy() -> None:
        seen.append(sys._getframe(1).f_code.co_name)
        checkpoint()

    monkeypatch.setattr(client.handler, "checkpoint", spy)
    assert len(client.topics["t"].partitions) == 3000
    assert seen.count("_on_metadata") >= 6


def test_a_fetch_of_many_partitions_is_decoded_off_the_hub(make_cluster: Any, connect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    apart: list[str] = []
    client = connect(make_cluster(topics={"t": 5000}))
    offload = client.handler.offload

    def spy(fn: Any, *args: Any) -> Any:
        apart.append(getattr(fn, "__name__", "") + getattr(args[0], "api", ApiVersionsRequest.API).name)
        return offload(fn, *args)

    monkeypatch.setattr(client.handler, "offload", spy)
    client.get_producer().produce("t", b"x", partition=4000).result(LIMIT_S)
    consumer = client.get_consumer()
    consumer.assign({("t", p): 0 for p in range(5000)})  # with starts that are known all are in the first fetch
    assert consumer.consume(LIMIT_S * 1000).value == b"x"
    assert "decodeFetch" in apart


@pytest.mark.parametrize(
    "hosts",
    ['tolist(["b1:9092"])', "b1:9092 and b2:9092", "b1:9092 (leader)", "b1.x or b2.x", "hosts b1:9092"],
    ids=lambda hosts: hosts.split(" ")[-1][:9],
)
def test_no_cure_makes_a_host_of_a_word_around_addresses(hosts: str) -> None:
    with pytest.raises(ConfigurationError, match="belongs to no host") as told:
        KafkaClient(hosts, handler="threading")
    assert not any(word in str(told.value) for word in ("as '", "give '"))
