"""metric_reporters (behaviour 272): told of metrics as they come and go, under kafka-python's interface."""

from __future__ import annotations

from typing import Any

import pytest

from gkafka.kafka import KafkaAdminClient
from gkafka.kafka.client_async import KafkaClient
from gkafka.kafka.errors import KafkaConfigurationError
from gkafka.kafka.metrics import AbstractMetricsReporter
from gkafka.testing import MockCluster
from tests.kafka.conftest import Make
from tests.kafka.consuming import QUICK, consume, put


class Reporter(AbstractMetricsReporter):
    """Keeps what it is told."""

    made: Any = None

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.metrics: dict[str, Any] = {}
        self.gone: list[str] = []
        self.configs: dict[str, Any] = {}
        type(self).made = self

    def init(self, metrics: list[Any]) -> None:
        self.calls.append("init")
        assert metrics == []

    def metric_change(self, metric: Any) -> None:
        self.metrics[metric.metric_name.name] = metric

    def metric_removal(self, metric: Any) -> None:
        self.gone.append(metric.metric_name.name)

    def configure(self, configs: dict[str, Any]) -> None:
        self.calls.append("configure")
        self.configs = configs

    def close(self) -> None:
        self.calls.append("close")


class Failing(Reporter):
    """Fails at everything."""

    def init(self, metrics: list[Any]) -> None:
        raise RuntimeError("init")

    def metric_change(self, metric: Any) -> None:
        raise RuntimeError("change")


def test_reporters_are_told_of_metrics_as_they_come_and_go(consumer: Make, producer: Make, cluster: MockCluster) -> None:
    sending = producer(cluster, metric_reporters=[Reporter], client_id="sender")
    told = Reporter.made
    assert told.calls == ["configure", "init"]
    assert told.configs["client_id"] == "sender"
    assert set(told.metrics) == set(sending.metrics()["producer-metrics"]) != set()
    records = next(metric for name, metric in told.metrics.items() if name == "delivered_records")
    assert (records.metric_name.group, records.metric_name.tags) == ("producer-metrics", {"client-id": "sender"})
    before = records.value()
    sending.send("t", b"v").get(10)
    assert records.value() == before + 1
    sending.close()
    assert told.calls == ["configure", "init", "close"]

    put(cluster, b"v")
    reading = consumer(cluster, metric_reporters=[Reporter], **QUICK)
    told = Reporter.made
    assert told.metrics == {}, "it reads nothing yet"
    reading.subscribe(["t"])
    consume(reading, 1)
    assert set(told.metrics) == set(reading.metrics()["consumer-metrics"]) != set()
    reading.unsubscribe()
    assert reading.metrics() == {"consumer-metrics": {}}
    assert set(told.gone) == set(told.metrics)
    reading.close()
    assert told.calls[-1] == "close"


def test_a_reporter_that_fails_hinders_nobody(producer: Make, cluster: MockCluster, caplog: pytest.LogCaptureFixture) -> None:
    sending = producer(cluster, metric_reporters=[Failing, Reporter])
    assert Reporter.made.metrics
    assert sending.send("t", b"v").get(10).offset == 0
    assert "init() of a metrics reporter failed" in caplog.text


def test_clients_without_metrics_refuse_reporters(handler: str, cluster: MockCluster) -> None:
    for kind in (KafkaClient, KafkaAdminClient):
        with pytest.raises(KafkaConfigurationError, match=r"metric_reporters=.*would have no effect: this client has no metrics"):
            kind(bootstrap_servers=cluster.bootstrap, handler=handler, metric_reporters=[Reporter])
