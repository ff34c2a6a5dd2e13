"""A line of the log, and an error's text, tells one fact once, and what it is about by name."""

from __future__ import annotations

import logging
import re
import sys

import pytest

from gkafka import KafkaClient
from gkafka.common import TopicPartition
from gkafka.errortexts import not_in_time, partitions_named
from gkafka.exceptions import ConfigurationError, KafkaTimeoutError, UnknownTopicError, ZooKeeperError
from gkafka.testing import MockCluster
from tests.kit.ports import refused_port
from tests.public.aids import LIMIT_S, error_of, limit_calls


def test_a_connection_that_never_was_is_not_called_closed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gkafka")
    address = f"127.0.0.1:{refused_port()}"
    with KafkaClient(address, handler="threading") as client:
        error_of(client.topics.keys)
    lines = [line for line in caplog.messages if "connection" in line and line.startswith(address)]
    assert lines
    assert all(line.startswith(f"{address}: control connection not opened: no connection: ") for line in lines), lines


def test_no_line_names_an_address_twice_and_closing_is_no_warning(cluster: MockCluster, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gkafka")
    with KafkaClient(cluster.bootstrap, handler="threading") as client:
        client.topics["t"].latest_available_offsets()
        limit_calls(client, 300)
        cluster.close()
        error_of(client.topics["t"].latest_available_offsets)
    assert any("connection closed: the broker closed the connection" in line for line in caplog.messages)
    assert not [line for line in caplog.messages if line.count(cluster.bootstrap) > 1]
    assert not [line for line in caplog.messages if "by the client" in line and "metadata" in line]


def test_a_call_that_waits_for_another_says_once_that_its_time_is_over(cluster: MockCluster) -> None:
    with KafkaClient(cluster.bootstrap, handler="threading") as client:
        client.cluster.wait_for_topic("t")
        limit_calls(client, 300)
        cluster.close()
        error = error_of(client.cluster.get_group_coordinator, "g")
    assert isinstance(error, KafkaTimeoutError)
    assert str(error).count("not done in time") == 1
    assert cluster.bootstrap in str(error), "which broker, and why"
    assert not_in_time("b", error) == str(error).replace("the coordinator of group 'g'", "b")


def test_a_record_that_is_not_delivered_is_told_of_once_in_a_line(cluster: MockCluster, caplog: pytest.LogCaptureFixture) -> None:
    with KafkaClient(cluster.bootstrap, handler="threading") as client:
        client.get_producer().produce("t", b"1").result(LIMIT_S)
        producer = client.get_producer(delivery_timeout_ms=300)
        cluster.close()
        error_of(producer.produce("t", b"2").result, LIMIT_S)
        error_of(producer.close)
    lines = [record.getMessage() for record in caplog.records if record.name == "gkafka.failures"]
    assert len(lines) == 1
    assert re.match(r"1 record\(s\) for t-\d not delivered \(persisted: (no|maybe)\) within 0\.3 s: ", lines[0]), lines
    assert lines[0].count("not delivered") == 1


def test_tries_that_ran_out_name_the_option(cluster: MockCluster) -> None:
    with KafkaClient(cluster.bootstrap, handler="threading") as client:
        producer = client.topics["t"].get_producer(linger_ms=0, retry_backoff_ms=1)
        producer.produce(b"1").result(LIMIT_S)
        cluster.close()
        error = error_of(producer.produce(b"2").result, LIMIT_S)
        error_of(producer.stop)
    assert "given up after 3 tries: " in str(error)
    assert str(error).endswith("; give it more than retries=2 (topic.get_producer(): max_retries=3)")


def test_partitions_that_are_lost_are_named() -> None:
    assert partitions_named([TopicPartition("pages", 1), TopicPartition("links", 0)]) == "2 partition(s): links-0, pages-1"
    assert partitions_named([("t", n) for n in range(13)]).endswith("t-8, t-9, 3 more")
    assert partitions_named([]) == "no partition"


def test_a_topic_that_this_client_has_nobody_create_is_not_laid_on_the_broker(cluster: MockCluster) -> None:
    with KafkaClient(cluster.bootstrap, handler="threading", auto_create_topics=False) as client:
        error = error_of(lambda: client.topics["nowhere"])
    assert isinstance(error, UnknownTopicError)
    assert "and with auto_create_topics=False this client has none created: create it, or check the name" in str(error)


def test_a_topic_that_comes_into_being_because_it_is_asked_for_is_told_once(cluster: MockCluster, caplog: pytest.LogCaptureFixture) -> None:
    with KafkaClient(cluster.bootstrap, handler="threading") as client, client.get_producer() as producer:
        client.create_topic("wanted")
        for _ in range(2):
            for topic in ("t", "wanted", "misspelt"):
                producer.produce(topic, b"1").result(LIMIT_S)
    told = [record.getMessage() for record in caplog.records if "was not there" in record.getMessage()]
    assert len(told) == 1
    assert told[0].startswith("topic 'misspelt' was not there when it was asked for, and is now, with ")
    assert "auto_create_topics=False" in told[0]


def test_where_there_is_no_zookeeper_the_error_names_the_other_way(cluster: MockCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    address = f"127.0.0.1:{refused_port()}"
    monkeypatch.setattr(
        "kazoo.client.KazooClient.start_async", lambda self: self.handler.event_object()
    )  # kazoo's threads are not judged here
    with KafkaClient(cluster.bootstrap, handler="threading") as client:
        topic = client.topics["t"]
        ask = {"zookeeper_connect": address, "zookeeper_connection_timeout_ms": 100}
        error = error_of(topic.get_balanced_consumer, "g", **ask)
        assert isinstance(error, ZooKeeperError)
        assert "managed=True" in str(error)
        monkeypatch.setitem(sys.modules, "kazoo.client", None)
        error = error_of(topic.get_balanced_consumer, "g", **ask)
        assert isinstance(error, ConfigurationError)
        assert "pip install 'gkafka[zookeeper]'" in str(error)
        assert "managed=True" in str(error)
    with KafkaClient(zookeeper_hosts=address, handler="threading") as client:
        error = error_of(client.topics.keys)
    assert "hosts='host:port,...'" in str(error)
