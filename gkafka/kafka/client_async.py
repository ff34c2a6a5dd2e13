"""The client beneath kafka-python's consumer and producer (kafka.client_async), as far as it is documented: it finds out what brokers speak."""

from __future__ import annotations

from types import TracebackType
from typing import Any, ClassVar

from gkafka import client as native
from gkafka.broker import CONTROL
from gkafka.checks import check_seconds
from gkafka.exceptions import KafkaTimeoutError, NoBrokersAvailableError
from gkafka.kafka import options as o
from gkafka.kafka.errors import UnrecognizedBrokerVersion
from gkafka.oneprocess import OfOneProcess
from gkafka.sasloptions import hide_secrets

__all__ = ["KafkaClient"]


class KafkaClient(OfOneProcess):
    """A client that asks brokers for their version. Keyword arguments: DEFAULT_CONFIG. Reference: kafka-python 1.4, Protocol."""

    DEFAULT_CONFIG: ClassVar[dict[str, Any]] = {name: value for name, value in o.CLIENT.items() if name != "retry_backoff_ms"}

    def __init__(self, **configs: Any) -> None:
        configs = hide_secrets(configs, self.DEFAULT_CONFIG)
        self.config = o.merge(self.DEFAULT_CONFIG, configs, "KafkaClient()")
        with o.told_as({}):
            self._client = native.KafkaClient(**o.client_options(self.config, named="kafka-python-%d"))

    def check_version(self, node_id: int | None = None, timeout: float = 2, strict: bool = False) -> tuple[int, ...]:
        """The release of Kafka that a broker runs, as (2, 8), told by what it speaks: the newest release that spoke no more than that.

        node_id: which broker, None is any. timeout: seconds. Raises NoBrokersAvailable if none answers in time; with strict=True
        UnrecognizedBrokerVersion for one that says nothing of itself, which else is taken for the oldest that it may be.
        """
        deadline = self._client.handler.monotonic() + check_seconds("timeout", timeout)
        try:
            self._client.connect(timeout)
        except KafkaTimeoutError as exc:
            raise NoBrokersAvailableError(f"no broker answered within {timeout:g} s: {exc}") from exc
        except o.UNUSABLE as exc:
            raise o.unusable(exc) from exc
        brokers = self._client.cluster.brokers
        if node_id is not None and node_id not in brokers:
            raise NoBrokersAvailableError(f"there is no broker {node_id!r}: there are {', '.join(map(str, sorted(brokers)))}")
        chosen = brokers[node_id] if node_id is not None else next(iter(brokers.values()))
        channel = chosen.channel(CONTROL)
        channel.wait_open(deadline)
        versions = channel.versions
        assert versions is not None  # it is open
        if strict and versions.release < (0, 10):
            raise UnrecognizedBrokerVersion(f"{channel.peer}: the broker does not tell what it speaks: it is older than 0.10")
        return versions.release

    def close(self) -> None:
        """End the connections."""
        self._client.close()

    def __enter__(self) -> KafkaClient:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()
