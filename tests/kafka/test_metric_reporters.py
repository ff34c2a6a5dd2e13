"""metric_reporters (behaviour 272): told of metrics as they come and go, under kafka-python's interface."""

from __future__ import annotations

from typing import Any

import pytest

from gkafka.kafka import KafkaAdminClient
from gkafka.kafka.client_async import KafkaClient
from gkafka.kafka.errors import KafkaConfigurationError
from gkafka.kafka.metrics import AbstractMetricsReporter
from gkafka.kafka.metrics.rates import Rates
from gkafka.testing import MockCluster
from tests.kafka.conftest import Make
from tests.kafka.consuming import QUICK, consume, put
from tests.kit.clock import soon


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
    sending.send("t", b"v").get(60)
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
    assert sending.send("t", b"v").get(60).offset == 0
    assert "init() of a metrics reporter failed" in caplog.text


def test_clients_without_metrics_refuse_reporters(handler: str, cluster: MockCluster) -> None:
    for kind in (KafkaClient, KafkaAdminClient):
        with pytest.raises(KafkaConfigurationError, match=r"metric_reporters=.*would have no effect: this client has no metrics"):
            kind(bootstrap_servers=cluster.bootstrap, handler=handler, metric_reporters=[Reporter])


def test_metrics_num_samples_windows_are_what_rates_are_of() -> None:
    now = 100.0
    rates = Rates({"metrics_num_samples": 2, "metrics_sample_window_ms": 10_000}, lambda: now)

    def rate(requests: float, after_s: float) -> float:
        nonlocal now
        now += after_s
        return rates.beside({"requests": requests, "buffered": 1})["requests_rate"]

    assert rate(0, 0) == 0
    assert rate(50, 5) == 10
    assert rate(60, 5) == 6, "a sample is taken: ten seconds are over"
    assert rate(80, 9) == pytest.approx(80 / 19)
    assert rate(160, 1) == 8, "20 s, which is all"
    assert rate(160, 9) == pytest.approx(100 / 19), "the first sample is forgotten"
    assert rate(160, 11) == 0
    assert rate(1160, 1000) == 1, "whoever asks seldom: since the last time"
    assert rate(0, 1) == 0, "another consumer's counter"
    assert rates.beside({"requests": 0, "buffered": 1}).keys() == {"requests", "requests_rate", "buffered"}


def test_rates_count_from_the_making_of_a_client(producer: Make, consumer: Make, cluster: MockCluster) -> None:
    sending = producer(cluster, metrics_num_samples=3, metrics_sample_window_ms=60_000)
    for _ in range(5):
        sending.send("t", b"v", partition=0).get(60)
    assert sending.metrics()["producer-metrics"]["delivered_records_rate"] > 0
    reading = consumer(cluster, "t", **QUICK)
    consume(reading, 5)
    numbers = reading.metrics()["consumer-metrics"]
    assert numbers["fetches_rate"] > 0
    assert {"positions.t-0", "positions.t-0_rate"} <= set(numbers)


@pytest.mark.parametrize(("samples", "window_ms", "forgets"), [(1, 1000, True), (100, 1000, False), (1, 1e6, False), (None, None, False)])
def test_metrics_num_samples_and_metrics_sample_window_ms_are_those_of_the_client(
    producer: Make, consumer: Make, cluster: MockCluster, samples: int | None, window_ms: float | None, forgets: bool
) -> None:
    """Behaviour 272: how long a rate remembers."""
    options = {} if samples is None else {"metrics_num_samples": samples, "metrics_sample_window_ms": window_ms}
    sending, reading = producer(cluster, **options), consumer(cluster, "t", **QUICK, **options)
    now = [soon(0)]
    sending._rates._clock = reading._rates._clock = lambda: now[0]

    def rates(after_s: float) -> list[float]:
        now[0] += after_s
        return [
            sending.metrics()["producer-metrics"]["delivered_records_rate"],
            reading.metrics()["consumer-metrics"]["positions.t-0_rate"],
        ]

    for round_s in (1.0, 2.0):
        for _ in range(10):
            sending.send("t", b"v").get(60)
        consume(reading, 10)
        rates(round_s)
    late = rates(20)
    assert late == [0.0, 0.0] if forgets else all(rate > 0 for rate in late), late
