"""Interceptors see every record go and come back, and can cost none; statistics say what they are documented to say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from gkafka import KafkaClient, ProducerInterceptor
from gkafka.exceptions import ConfigurationError, DeliveryError, RecordTooLarge, SerializationError
from gkafka.partitioners import hashing_partitioner
from gkafka.records import Record
from gkafka.testing import Close, Error, MockCluster
from tests.public.aids import LIMIT_S, Runner, error_of, stored, stored_values


class Noting(ProducerInterceptor):
    """Appends its name to values, and remembers."""

    def __init__(self, name: bytes = b"", told: list[Any] | None = None) -> None:
        self.name = name
        self.told: list[Any] = [] if told is None else told

    def on_send(self, record: Record) -> Record:
        self.told.append(("send", self.name, record.value))
        return record._replace(value=(record.value or b"") + self.name, headers=[*record.headers, ("by", self.name)])

    def on_acknowledgement(self, delivery: Any) -> None:
        self.told.append(("acknowledged", self.name, delivery.record.value, delivery.result(0).offset))

    def on_error(self, record: Record, error: BaseException, persisted: str) -> None:
        self.told.append(("error", self.name, record.value, type(error).__name__, persisted))


def test_interceptors_are_called_in_their_order(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    told: list[Any] = []
    with client.get_producer(interceptors=[Noting(b"1", told), Noting(b"2", told)]) as producer:
        producer.produce("t", b"v", b"k", timestamp=5, headers=[("h", b"0")])
        producer.flush(LIMIT_S)
        run.until(lambda: len(told) == 4)
    assert told == [("send", b"1", b"v"), ("send", b"2", b"v1"), ("acknowledged", b"1", b"v12", 0), ("acknowledged", b"2", b"v12", 0)]
    (record,) = stored(cluster)
    assert (record.key, record.value, record.timestamp) == (b"k", b"v12", 5)
    assert record.headers == [("h", b"0"), ("by", b"1"), ("by", b"2")]


def test_an_interceptor_may_send_a_record_elsewhere(connect: Any, make_cluster: Any) -> None:
    class Elsewhere(ProducerInterceptor):
        def on_send(self, record: Record) -> Record:
            assert (record.topic, record.partition, record.timestamp, record.headers) == ("t", None, None, [])
            return record._replace(topic="u", partition=1)

    cluster = make_cluster(topics={"t": 1, "u": 2})
    with connect(cluster).get_producer(interceptors=(Elsewhere(),), value_serializer=str.encode) as producer:
        assert producer.produce("t", "text").result(LIMIT_S)[:2] == ("u", 1)
    assert stored_values(cluster, "u", [1]) == [b"text"]


class Failing(ProducerInterceptor):
    def on_send(self, record: Record) -> Record:
        record.headers.append(("half", b"done"))
        raise ValueError("on_send")

    def on_acknowledgement(self, delivery: Any) -> None:
        raise ValueError("on_acknowledgement")

    def on_error(self, record: Record, error: BaseException, persisted: str) -> None:
        raise ValueError("on_error")


def test_one_that_raises_is_logged_once_and_skipped(
    client: KafkaClient, cluster: MockCluster, run: Runner, caplog: pytest.LogCaptureFixture
) -> None:
    second = Noting(b"2")
    producer = client.get_producer(interceptors=[Failing(), second])
    for value in (b"a", b"b"):
        assert producer.produce("t", value).result(LIMIT_S)
    run.until(lambda: len(second.told) == 4)
    assert stored_values(cluster) == [b"a2", b"b2"]
    assert stored(cluster)[0].headers == [("by", b"2")], "unchanged by the one that raised"
    logged = [r.getMessage() for r in caplog.records if "Failing." in r.getMessage()]
    assert len(logged) == 2
    assert "on_send" in logged[0]
    assert "on_acknowledgement" in logged[1]
    assert producer.stats()["interceptor_failures"] == 4


def test_an_on_error_that_raises_keeps_it_from_no_other(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    cluster.on("Produce", Error(29), times=None)
    second = Noting(b"2")
    producer = client.get_producer(interceptors=[Failing(), second])
    assert producer.produce("t", b"a").exception(LIMIT_S) is not None
    run.until(lambda: len(second.told) == 2)
    assert second.told[1][:4] == ("error", b"2", b"a2", "TopicAuthorizationFailed")
    assert producer.stats()["interceptor_failures"] == 2
    with pytest.raises(DeliveryError):
        producer.close()


@pytest.mark.parametrize("answer", [None, b"bytes", ("t", 0, None, b"v", [], 1)])
def test_an_on_send_that_returns_no_record_changes_nothing(client: KafkaClient, cluster: MockCluster, answer: Any) -> None:
    class Wrong(ProducerInterceptor):
        def on_send(self, record: Record) -> Any:
            return answer

    with client.get_producer(interceptors=[Wrong()]) as producer:
        producer.produce("t", b"v")
    assert stored_values(cluster) == [b"v"]


@pytest.mark.parametrize("headers", [0, {}, "", b"", False], ids=repr)
def test_what_is_no_list_of_headers_is_refused_as_without_interceptors(client: KafkaClient, cluster: MockCluster, headers: Any) -> None:
    with client.get_producer() as plain, client.get_producer(interceptors=[ProducerInterceptor()]) as producer:
        expected = error_of(plain.produce, "t", b"v", headers=headers)
        error = error_of(producer.produce, "t", b"v", headers=headers)
    assert isinstance(expected, SerializationError)
    assert (type(error), str(error)) == (type(expected), str(expected))
    assert stored(cluster) == []


@pytest.mark.parametrize("headers", [0, {}, ""], ids=repr)
def test_headers_that_an_interceptor_returns_are_looked_at_as_well(client: KafkaClient, cluster: MockCluster, headers: Any) -> None:
    class Wrong(ProducerInterceptor):
        def on_send(self, record: Record) -> Record:
            return record._replace(headers=headers)

    with client.get_producer(interceptors=[Wrong()]) as producer:
        assert isinstance(error_of(producer.produce, "t", b"v"), SerializationError)
    assert stored(cluster) == []


@pytest.mark.parametrize("headers", [None, [], ()], ids=repr)
def test_no_headers_are_an_empty_list_to_interceptors(client: KafkaClient, cluster: MockCluster, headers: Any) -> None:
    noting = Noting()
    with client.get_producer(interceptors=[noting]) as producer:
        producer.produce("t", b"v", headers=headers)
    assert stored(cluster)[0].headers == [("by", b"")]


def test_errors_are_told_with_whether_the_record_may_be_there(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    noting = Noting()
    producer = client.get_producer(interceptors=[noting], acks=1, retries=0, linger_ms=0)
    cluster.on("Produce", Error(29))
    producer.produce("t", b"refused").exception(LIMIT_S)
    cluster.on("Produce", Close(before=False))
    producer.produce("t", b"unknown").exception(LIMIT_S)
    error = error_of(producer.produce, "t", b"x" * 2_000_000)
    assert isinstance(error, RecordTooLarge)
    told = run.until(lambda: (lambda e: len(e) == 3 and e)([t for t in noting.told if t[0] == "error"]))
    told = sorted((value[:7], kind, persisted) for _, _, value, kind, persisted in told)
    assert [(t[0], t[2]) for t in told] == [(b"refused", "no"), (b"unknown", "maybe"), (b"xxxxxxx", "no")]
    assert (told[0][1], told[2][1]) == ("TopicAuthorizationFailed", "RecordTooLarge")
    error_of(producer.close)


def test_interceptors_run_under_no_lock_and_may_produce(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    class Auditing(ProducerInterceptor):
        def on_send(self, record: Record) -> Record:
            producer.stats()
            return record

        def on_acknowledgement(self, delivery: Any) -> None:
            client.stats()
            if delivery.record.value == b"v":
                producer.produce("t", b"audit").result(LIMIT_S)

    producer = client.get_producer(interceptors=[Auditing()], linger_ms=0)
    producer.produce("t", b"v")
    run.until(lambda: stored_values(cluster) == [b"v", b"audit"])
    producer.close()


def test_a_topics_producer_takes_interceptors_as_well(client: KafkaClient, cluster: MockCluster) -> None:
    with client.topics["t"].get_producer(interceptors=[Noting(b"!")]) as producer:
        producer.produce(b"v")
    assert stored_values(cluster) == [b"v!"]


@pytest.mark.parametrize("option", ["interceptors", "key_serializer"])
def test_a_topics_producer_chooses_by_the_key_that_goes_out(connect: Any, make_cluster: Any, option: str) -> None:
    class Renaming(ProducerInterceptor):
        def on_send(self, record: Record) -> Record:
            assert record.partition is None
            return record._replace(key=b"same")

    cluster = make_cluster(topics={"t": 6})
    options = {"interceptors": [Renaming()], "key_serializer": lambda key: b"same"}
    topic = connect(cluster).topics["t"]
    with topic.get_producer(partitioner=hashing_partitioner, **{option: options[option]}) as producer:
        for i in range(12):
            producer.produce(b"v", b"k%d" % i)
    assert sorted(len(cluster.log("t", p)) for p in range(6)) == [0, 0, 0, 0, 0, 12]


def test_a_topics_producer_with_interceptors_spreads_at_random_by_default(connect: Any, make_cluster: Any) -> None:
    cluster = make_cluster(topics={"t": 2})
    with connect(cluster).topics["t"].get_producer(interceptors=[ProducerInterceptor()]) as producer:
        for _ in range(100):
            producer.produce(b"v", b"k")
    assert min(len(cluster.log("t", p)) for p in range(2)) > 0


@pytest.mark.parametrize("wrong", [[object()], [Noting], [None], Noting(), "text", {1}])
def test_what_is_no_interceptor_is_told(client: KafkaClient, wrong: Any) -> None:
    error = error_of(client.get_producer, interceptors=wrong)
    assert isinstance(error, ConfigurationError)
    assert "interceptors" in str(error)


# -- statistics ------------------------------------------------------------------------------------------------------------
def documented() -> dict[str, set[str]]:
    page = (Path(__file__).resolve().parent.parent.parent / "docs" / "statistics.md").read_text()
    return {
        title: set(re.findall(r"^\| `(\w+)` \|", part, re.M))
        for title, part in re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", page, re.M | re.S)
    }


def test_statistics_have_the_documented_keys_and_no_others(client: KafkaClient, cluster: MockCluster) -> None:
    producer = client.topics["t"].get_producer()
    producer.produce(b"v").result(LIMIT_S)
    consumer = client.topics["t"].get_simple_consumer()
    assert consumer.consume() is not None
    stats = json.loads(json.dumps(client.stats()))
    page = documented()
    assert set(stats) == page["Client"]
    broker = next(b for b in stats["brokers"] if b["connections"])
    assert set(broker) == page["Broker"]
    assert {key for c in broker["connections"] for key in c} == page["Connection"]
    assert [set(p) for p in stats["producers"]] == [page["Producer"]]
    assert [set(c) for c in stats["consumers"]] == [page["Consumer"]]
    assert stats["producers"][0]["delivered_records"] == 1
    assert stats["workers"] >= 3
    consumer.stop()
    producer.stop()
    assert (client.stats()["producers"], client.stats()["consumers"]) == ([], [])


def test_statistics_tell_what_failed(client: KafkaClient, cluster: MockCluster) -> None:
    producer = client.get_producer()
    cluster.on("Produce", Error(29))
    producer.produce("t", b"refused").exception(LIMIT_S)
    producer.produce("t", b"taken").exception(LIMIT_S)
    assert (producer.stats()["failed_records"], producer.stats()["delivered_records"]) == (1, 1)
    error_of(producer.close)
