"""Who is told of metrics as they come and go (metric_reporters)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from gkafka.kafka.errors import WrongTypeError
from gkafka.logs import get_logger

__all__ = ["KafkaMetric", "MetricName", "Reporters"]

log = get_logger(__name__)

Read = Callable[[], Mapping[str, Mapping[str, float]]]
"""What metrics() gives: {group: {name: number}}."""


class MetricName(NamedTuple):
    """Which metric it is. tags: the client's."""

    name: str
    group: str
    description: str
    tags: dict[str, str]


class KafkaMetric:
    """A number that can be asked for at any time."""

    def __init__(self, metric_name: MetricName, read: Read) -> None:
        self.metric_name, self._read = metric_name, read

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.metric_name.group}:{self.metric_name.name}>"

    def value(self, time_ms: float | None = None) -> float:
        """The number now, 0.0 for what is there no more. time_ms: as in kafka-python, without an effect: it is told as of now."""
        return self._read().get(self.metric_name.group, {}).get(self.metric_name.name, 0.0)


class Reporters:
    """The reporters of one client: classes, of which each is made without arguments, or objects. A reporter that raises is logged, and told no less of what follows.

    read: the metrics. Each reporter is told configure(config), init([]), and metric_change(metric) for each metric that comes.
    """

    def __init__(self, given: Any, config: Mapping[str, Any], read: Read) -> None:
        self._read, self._client_id = read, config["client_id"] or ""
        self._known: dict[tuple[str, str], KafkaMetric] = {}
        self._told = [_made(one) for one in _listed(given)]
        self._tell("configure", dict(config))
        self._tell("init", [])

    def look(self) -> None:
        """Tell of what has come and gone."""
        if not self._told:
            return
        there = {(group, name) for group, numbers in self._read().items() for name in numbers}
        for key in sorted(there - self._known.keys()):
            group, name = key
            metric = self._known[key] = KafkaMetric(MetricName(name, group, "", {"client-id": self._client_id}), self._read)
            self._tell("metric_change", metric)
        for key in sorted(self._known.keys() - there):
            self._tell("metric_removal", self._known.pop(key))

    def close(self) -> None:
        """The client ends."""
        while self._told:  # each once, also where this is cut short
            _tell(self._told.pop(0), "close")

    def _tell(self, call: str, *args: Any) -> None:
        for reporter in self._told:
            _tell(reporter, call, *args)


def _tell(reporter: Any, call: str, *args: Any) -> None:
    try:
        getattr(reporter, call)(*args)
    except Exception:
        log.exception("%s() of a metrics reporter failed", call)


def _listed(given: Any) -> list[Any]:
    if given is None:
        return []
    if isinstance(given, (list, tuple)):
        return list(given)
    raise WrongTypeError(f"metric_reporters={given!r}: must be a list of classes with what AbstractMetricsReporter has")


def _made(given: Any) -> Any:
    calls = ("init", "metric_change", "metric_removal", "configure", "close")
    lacking = [call for call in calls if not callable(getattr(given, call, None))]
    if lacking:
        raise WrongTypeError(
            f"metric_reporters: {given!r} has no {', '.join(f'{call}()' for call in lacking)}: see AbstractMetricsReporter"
        )
    return given() if isinstance(given, type) else given
