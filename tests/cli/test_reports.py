"""What users reported of other clients and tools, as it would meet kafka-tools. The table is tests/reports.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from gkafka import KafkaClient
from gkafka.testing import MockCluster, Sasl
from tests.cli.running import tool
from tests.net.proxies import FakeProxy, running
from tests.net.servers import serve


def fill(cluster: MockCluster, values: list[bytes], topic: str = "t", partition: int = 0) -> None:
    with KafkaClient(cluster.bootstrap, handler="threading") as client, client.get_producer() as producer:
        for value in values:
            producer.produce(topic, value, partition=partition)


# -- 8 -------------------------------------------------------------------------------------------------------------------
NUMBERS = [b'{"id":12345678901234567.89,"a":1.10,"b":1e400}', b"1E5", b"-0", b"12345678901234567890123", b'"1.0"', b'{"a":1,"a":2}']


def test_numbers_survive_consume_and_produce_by_json() -> None:
    with MockCluster(topics={"t": 1, "u": 1}) as cluster:
        fill(cluster, NUMBERS)
        told = tool("consume", "t", "--json", "-b", cluster.bootstrap)
        assert tool("produce", "u", "--format", "json", "-b", cluster.bootstrap, stdin=told.out).code == 0
        assert [record.value for record in cluster.log("u", 0)] == NUMBERS


def test_a_number_that_is_the_key_has_the_characters_of_its_document() -> None:
    lines = [b'{"id":1.0,"v":1}', b'{"id":1e2}', b'{"id":12345678901234567890.10}']
    with MockCluster(topics={"t": 1}) as cluster:
        assert tool("produce", "t", "--key-field", "id", "-b", cluster.bootstrap, stdin=b"\n".join(lines)).code == 0
        found = [(record.key, record.value) for record in cluster.log("t", 0)]
    assert found == list(zip((b"1.0", b"1e2", b"12345678901234567890.10"), lines, strict=True))


# -- 14 ------------------------------------------------------------------------------------------------------------------
def test_a_plan_of_offsets_that_windows_wrote_is_read(tmp_path: Path) -> None:
    plan = tmp_path / "plan.csv"
    plan.write_bytes(b"t,0,1\r\nt,1,2\r\n")
    with MockCluster(topics={"t": 2}) as cluster:
        for partition in (0, 1):
            fill(cluster, [b"x"] * 3, partition=partition)
        told = tool("offsets", "reset", "g", "--from-file", str(plan), "--create", "--yes", "-b", cluster.bootstrap)
        assert told.code == 0, told
        assert {at: found.offset for at, found in cluster.committed("g").items()} == {("t", 0): 1, ("t", 1): 2}


# -- 21 ------------------------------------------------------------------------------------------------------------------
def test_a_token_endpoint_that_only_a_proxy_reaches_is_reached_by_a_command(tmp_path: Path) -> None:
    config = tmp_path / "client.properties"

    def answer(conn: object) -> None:
        conn.recv(8000)  # type: ignore[attr-defined]
        conn.sendall(b'HTTP/1.0 200 OK\r\n\r\n{"access_token": "t0ken", "expires_in": 60}')  # type: ignore[attr-defined]

    with MockCluster(topics={"t": 1}, sasl=Sasl(tokens=["t0ken"])) as cluster, serve(answer) as port:
        proxy = FakeProxy({"login.example": ("127.0.0.1", port)})
        with running(proxy, "http") as through:
            config.write_text(
                "security.protocol=SASL_PLAINTEXT\nallow.plaintext.credentials=true\nsasl.mechanism=OAUTHBEARER\n"
                "sasl.oauthbearer.token.endpoint.url=http://login.example/token\nsasl.oauth.allow.http=true\n"
                "sasl.oauthbearer.client.credentials.client.id=me\nsasl.oauthbearer.client.credentials.client.secret=geheim\n"
                f"sasl.oauth.proxy.url=http://127.0.0.1:{through}\n"
            )
            told = tool("topics", "list", "-b", cluster.bootstrap, "-c", str(config))
    assert (told.code, told.lines[-1].split()) == (0, [b"t", b"1"]), told
    assert proxy.asked[0] == ("login.example", 80)


# -- 23 ------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("command", ["consume", "copy"])
def test_a_command_that_goes_on_reads_partitions_that_were_added_from_their_beginning(command: str) -> None:
    with MockCluster(topics={"t": 1, "u": 3}) as cluster:
        fill(cluster, [b"1", b"2", b"3"])
        words = ["consume", "t"] if command == "consume" else ["copy", "t", "u", "--partition-by", "number"]
        first = tool(*words, "-g", "g", "-n", "2", "-b", cluster.bootstrap)
        cluster.add_partitions("t", 2)
        fill(cluster, [b"new"], partition=1)
        second = tool(*words, "-g", "g", "-b", cluster.bootstrap)
        assert (first.code, second.code) == (0, 0)
        if command == "consume":
            assert (first.lines, sorted(second.lines)) == ([b"1", b"2"], [b"3", b"new"])
        else:
            found = [[record.value for record in cluster.log("u", partition, committed=True)] for partition in range(3)]
            assert found == [[b"1", b"2", b"3"], [b"new"], []]


# -- 27 ------------------------------------------------------------------------------------------------------------------
def test_the_last_record_is_the_one_before_the_mark() -> None:
    with MockCluster(topics={"t": 1}) as cluster:
        with KafkaClient(cluster.bootstrap, handler="threading") as client, client.get_producer(transactional_id="x") as producer:
            for value in (b"a", b"b"):
                with producer.transaction():
                    producer.produce("t", value)
        assert tool("consume", "t", "--last", "1", "-b", cluster.bootstrap).lines == [b"b"]


# -- 31 ------------------------------------------------------------------------------------------------------------------
def test_kcats_lines_may_hold_documents_tombstones_and_records_of_elsewhere() -> None:
    """`kcat -J -s value=avro` prints the value as a document."""
    lines = [
        b'{"topic":"t","partition":0,"offset":7,"tstype":"create","ts":5,"broker":0,"key":null,"payload":{"a":1.10}}',
        b'{"topic":"t","partition":0,"offset":8,"tstype":"create","ts":6,"broker":0,"key":"k","payload":null}',
        b'{"topic":"elsewhere","partition":0,"offset":1,"ts":7,"key":"k","payload":"v"}\r',
    ]
    with MockCluster(topics={"t": 1}) as cluster:
        told = tool("produce", "t", "--format", "kcat", "-b", cluster.bootstrap, stdin=b"\n".join(lines))
        assert told.code == 0, told
        found = [(record.key, record.value, record.timestamp) for record in cluster.log("t", 0)]
    assert found == [(None, b'{"a":1.10}', 5), (b"k", None, 6), (b"k", b"v", 7)]


def test_kcats_line_of_a_partition_that_is_not_there_is_told_with_the_way_out() -> None:
    line = b'{"topic":"t","partition":5,"offset":0,"ts":1,"key":"k","payload":"v"}'
    with MockCluster(topics={"t": 1}) as cluster:
        told = tool("produce", "t", "--format", "kcat", "-b", cluster.bootstrap, stdin=line)
        assert "topic 't' has no partition 5; --repartition takes the key instead" in told.err
        assert tool("produce", "t", "--format", "kcat", "--repartition", "-b", cluster.bootstrap, stdin=line).code == 0


# -- 34 ------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("old", ["0.11.0", "2.7"])
def test_commands_look_at_a_cluster_in_the_middle_of_its_upgrade(old: str) -> None:
    with MockCluster(2, {"t": 2}, versions={1: "4.2", 2: old}, replication_factor=2) as cluster:
        for partition in (0, 1):
            cluster.move_leader("t", partition, partition + 1)
            fill(cluster, [b"x"], partition=partition)
        for number in (1, 2):
            cluster.move_coordinator("g", number)
            host, port = cluster.brokers[3 - number]
            address = f"{host}:{port}"
            assert tool("consume", "t", "-g", "g", "-b", address).code == 0
            told = tool("lag", "g", "--json", "-b", address)
            assert (told.code, [row["lag"] for row in told.document[0]["partitions"]]) == (0, [0, 0]), told
            assert tool("topics", "describe", "t", "--offsets", "-b", address).code == 0
