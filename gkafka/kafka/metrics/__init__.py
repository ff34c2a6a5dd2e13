"""kafka-python's metrics (kafka.metrics), as far as they are documented: numbers by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gkafka.kafka.metrics.metrics_reporter import AbstractMetricsReporter

__all__ = ["AbstractMetricsReporter", "flat"]


def flat(stats: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """The numbers of nested statistics, by their names joined with dots."""
    found: dict[str, float] = {}
    for name, value in stats.items():
        if isinstance(value, Mapping):
            found.update(flat(value, f"{prefix}{name}."))
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            found[f"{prefix}{name}"] = value
    return found
