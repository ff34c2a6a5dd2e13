"""KafkaClient(zookeeper_hosts=...): the brokers are those that stand in a real ZooKeeper."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient

from gkafka import KafkaClient
from gkafka.exceptions import ZooKeeperError
from tests.kit.clock import now
from tests.live.jvm import free_ports
from tests.live.kafka import KafkaCluster

NOWHERE = "127.0.0.1:1"


@pytest.fixture(params=["0.8.2.2", "2.8.2"])
def version(request: pytest.FixtureRequest) -> str:
    """Releases that come with their ZooKeeper."""
    name: str = request.param
    return name


@pytest.fixture
def zookeeper(kafka: KafkaCluster) -> Iterator[KazooClient]:
    """Another client of the same ZooKeeper."""
    client = KazooClient(kafka.zookeeper)
    client.start()
    yield client
    client.stop()
    client.close()


def test_behaviours_211_212_brokers_are_found_in_zookeeper_whatever_hosts_says(
    version: str, kafka: KafkaCluster, handler: str, new_topic: Callable[..., str]
) -> None:
    new_topic()  # brokers of 0.8 know of each other from the first topic on
    with KafkaClient(NOWHERE, zookeeper_hosts=kafka.zookeeper, handler=handler) as client:
        assert "ZooKeeper" in repr(client), "nothing was asked yet"
        host, port = kafka.hosts.split(":")
        assert [(b.host, b.port) for b in client.brokers.values()] == [(host, int(port))]
        assert kafka.hosts in repr(client)
    with KafkaClient(kafka.hosts, handler=handler) as client:
        assert len(client.brokers) == 1


def test_what_is_no_broker_is_left_out_and_a_chroot_is_kept_to(
    version: str, kafka: KafkaCluster, zookeeper: KazooClient, handler: str
) -> None:
    ids = "/elsewhere/brokers/ids"
    there: dict[str, Any] = {
        "1": b"{",
        "2": b"[]",
        "3": json.dumps({"endpoints": ["SSL://127.0.0.1:9"], "host": None, "port": -1}).encode(),
        "4": json.dumps({"host": "a b", "port": "x"}).encode(),
    }
    for name, data in there.items():
        zookeeper.create(f"{ids}/{name}", data, makepath=True)
    try:
        with KafkaClient(zookeeper_hosts=f"{kafka.zookeeper}/elsewhere", handler=handler) as client:
            with pytest.raises(ZooKeeperError, match="no broker with a listener for PLAINTEXT stands in /brokers/ids"):
                client.connect()
            host, _, port = kafka.hosts.partition(":")
            told = {"listener_security_protocol_map": {"OUT": "PLAINTEXT"}, "endpoints": [f"OUT://{host}:{port}"], "host": None, "port": -1}
            zookeeper.create(f"{ids}/5", json.dumps(told).encode())
            client.connect()
    finally:
        zookeeper.delete("/elsewhere", recursive=True)
    with (
        KafkaClient(zookeeper_hosts=f"{kafka.zookeeper}/nowhere", handler=handler) as client,
        pytest.raises(ZooKeeperError, match="chroot"),
    ):
        client.connect()
    assert zookeeper.exists("/nowhere") is None, "a look-up makes nothing"


def test_a_zookeeper_that_is_not_there_is_told_in_time(handler: str) -> None:
    began = now()
    with KafkaClient(zookeeper_hosts=f"127.0.0.1:{free_ports(1)[0]}", handler=handler) as client:
        with pytest.raises(ZooKeeperError, match="zookeeper_hosts"):
            client.connect(1.0)
        assert now() - began < 30
