"""The base of metrics reporters, for metric_reporters."""

from __future__ import annotations

import abc
from typing import Any

__all__ = ["AbstractMetricsReporter"]


class AbstractMetricsReporter(abc.ABC):
    """Told of metrics as they come and go: a producer's when it is made, a consumer's when it begins to read; later ones with each call of metrics().

    Called in the thread that makes, subscribes, asks or closes the client. A metric is a KafkaMetric: metric_name and value().
    """

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
