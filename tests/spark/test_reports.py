"""What users reported of other clients and tools, as it would meet them in Spark. The table is tests/reports.md."""

from __future__ import annotations

import sys
from types import ModuleType

import pyarrow as pa
import pytest

from gkafka import KafkaClient
from gkafka.exceptions import ClusterAuthorizationFailed, ConfigurationError, KafkaException, SaslAuthenticationFailed
from gkafka.spark.driver import plan
from gkafka.spark.options import parse
from gkafka.spark.sinkoptions import parse_sink
from gkafka.spark.sinktask import write_plainly
from gkafka.testing import Error, MockCluster, Sasl
from tests.spark.conftest import Read

PLAIN = {
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.allow.plaintext.credentials": "true",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.username": "alice",
    "kafka.sasl.password": "geheim",
}


def write(cluster: MockCluster, rows: int = 1, **more: str) -> None:
    """One task of a sink for topic "t"; a name's "__" stands for a dot."""
    given = {"kafka.bootstrap.servers": cluster.bootstrap, "topic": "t", "kafka.linger.ms": "0"}
    options = parse_sink({**given, **{name.replace("__", "."): value for name, value in more.items()}})
    write_plainly(options, [pa.RecordBatch.from_pydict({"value": ["v"] * rows})])


# -- 1 -------------------------------------------------------------------------------------------------------------------
def test_a_plan_names_the_partition_without_a_leader() -> None:
    with MockCluster(3, {"t": 3}, replication_factor=1) as cluster:
        down = cluster.leader("t", 1)
        options = parse({"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": "t", "kafka.default.api.timeout.ms": "3000"})
        assert plan(options)[0] == []
        cluster.stop_broker(down)
        with pytest.raises(KafkaException, match=rf"t-1 has no leader, and got none in time: .*\[{down}\] are down"):
            plan(options)


# -- 2 -------------------------------------------------------------------------------------------------------------------
def test_addresses_of_a_block_of_yaml_are_refused_with_the_cure_and_schemes_are_taken() -> None:
    with pytest.raises(ConfigurationError, match=r"kafka\.bootstrap\.servers.*separate addresses by commas, as 'b1:9092,b2:9092'"):
        parse({"kafka.bootstrap.servers": "b1:9092\nb2:9092\n", "subscribe": "t"})
    assert parse({"kafka.bootstrap.servers": "PLAINTEXT://b1:9092,PLAINTEXT://b2:9092", "subscribe": "t"}).warnings == ()


# -- 7, 15 ---------------------------------------------------------------------------------------------------------------
def test_a_worker_goes_on_where_brokers_refuse_for_a_moment_between_two_tasks() -> None:
    with MockCluster(2, {"t": 1}, sasl=Sasl({"alice": "geheim"})) as cluster:
        write(cluster, **PLAIN)
        for broker in cluster.brokers:
            cluster.on("SaslAuthenticate", Error(58), broker=broker, times=1)
        cluster.close_connections()
        write(cluster, **PLAIN)
        assert len(cluster.log("t", 0)) == 2


def test_a_password_of_a_login_line_with_a_line_break_is_told() -> None:
    line = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="geheim\\n";'
    given = {name: value for name, value in PLAIN.items() if "alice" not in value and "geheim" not in value}
    with (
        MockCluster(sasl=Sasl({"alice": "geheim"})) as cluster,
        pytest.raises(SaslAuthenticationFailed, match="the password ends in a line break") as caught,
    ):
        plan(parse({"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": "t", **given, "kafka.sasl.jaas.config": line}))
    assert "geheim" not in str(caught.value)


# -- 4, 28 ---------------------------------------------------------------------------------------------------------------
def test_the_tasks_of_a_worker_write_by_amazons_lines_with_one_signing(monkeypatch: pytest.MonkeyPatch) -> None:
    signed: list[str] = []
    signer = ModuleType("aws_msk_iam_sasl_signer.MSKAuthTokenProvider")
    signer.__dict__["generate_auth_token"] = lambda region: (signed.append(region), ("signed", 1 << 60))[1]
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", ModuleType("aws_msk_iam_sasl_signer"))
    monkeypatch.setitem(sys.modules, signer.__name__, signer)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    iam = "software.amazon.msk.auth.iam"
    lines = {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.allow.plaintext.credentials": "true",
        "kafka.sasl.mechanism": "AWS_MSK_IAM",
        "kafka.sasl.jaas.config": f"{iam}.IAMLoginModule required;",
        "kafka.sasl.client.callback.handler.class": f"{iam}.IAMClientCallbackHandler",
    }
    with MockCluster(3, {"t": 3}, sasl=Sasl(tokens=["signed"])) as cluster:
        for _ in range(3):
            write(cluster, 9, **lines)
        assert sum(len(cluster.log("t", partition)) for partition in range(3)) == 27
    assert signed == ["eu-west-1"]


# -- 17 ------------------------------------------------------------------------------------------------------------------
def test_a_task_without_the_right_to_idempotence_names_the_right_and_the_property() -> None:
    with MockCluster(topics={"t": 1}) as cluster:
        cluster.on("InitProducerId", Error(31), times=None)
        with pytest.raises(
            ClusterAuthorizationFailed, match=r"the right IdempotentWrite on the cluster .* kafka\.enable\.idempotence=False; "
        ):
            write(cluster)
        write(cluster, kafka__enable__idempotence="false")
        assert len(cluster.log("t", 0)) == 1


# -- 34 ------------------------------------------------------------------------------------------------------------------
def test_a_batch_is_read_from_brokers_of_different_releases() -> None:
    with MockCluster(2, {"t": 2}, versions={1: "4.2", 2: "0.11.0"}, replication_factor=2) as cluster:
        for partition in (0, 1):
            cluster.move_leader("t", partition, partition + 1)
        with KafkaClient(cluster.bootstrap, handler="threading") as client, client.get_producer() as producer:
            for number in range(10):
                producer.produce("t", b"%d" % number, partition=number % 2)
        read = Read({"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": "t"})
        assert sorted(bytes(value) for value in read.column("value")) == [b"%d" % number for number in range(10)]
