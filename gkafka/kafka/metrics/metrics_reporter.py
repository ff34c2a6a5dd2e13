"""The base of kafka-python's metrics reporters: for programs that import it. There is nothing here that would call one."""

from __future__ import annotations

import abc
from typing import Any

__all__ = ["AbstractMetricsReporter"]


class AbstractMetricsReporter(abc.ABC):
    """Told of metrics as they come and go. KafkaConsumer and KafkaProducer refuse metric_reporters: their metrics() gives all there are."""

    @abc.abstractmethod
    def init(self, metrics: list[Any]) -> None:
        """The metrics that are there at the beginning."""

    @abc.abstractmethod
    def metric_change(self, metric: Any) -> None:
        """One came, or was changed."""

    @abc.abstractmethod
    def metric_removal(self, metric: Any) -> None:
        """One went."""

    @abc.abstractmethod
    def configure(self, configs: dict[str, Any]) -> None:
        """The client's options."""

    @abc.abstractmethod
    def close(self) -> None:
        """The client ends."""
