"""kafka-python 0.9's KafkaClient, as far as its consumers and producers want one (kafka.client)."""

from __future__ import annotations

import weakref
from types import TracebackType
from typing import Any

from gkafka import client as native
from gkafka.checks import check_seconds, check_topic_name
from gkafka.config import INT32
from gkafka.exceptions import ConfigurationError, KafkaTimeoutError, NoBrokersAvailableError, UnknownTopicOrPartition
from gkafka.kafka import options as o
from gkafka.kafka.errors import IllegalStateError, WrongTypeError
from gkafka.lifetime import ends
from gkafka.oneprocess import OfOneProcess
from gkafka.sasloptions import hide_hosts, hide_secrets
from gkafka.undoing import Undoing
from gkafka.unseen import hide_options

__all__ = ["CLIENT_NAMES", "KafkaClient", "native_client"]

CLIENT_NAMES = {
    "bootstrap_servers": "hosts",
    "hosts": "hosts",
    "request_timeout_ms": "timeout",
    "socket_timeout_ms": "timeout",
    "offsets_channel_socket_timeout_ms": "timeout",
}
"""gkafka's names and the newer clients' -> those of this one."""
ELSEWHERE = {
    "bootstrap_servers": "it is hosts here",
    "request_timeout_ms": "it is timeout here, in seconds",
    "retry_backoff_ms": "producers have async_retry_backoff_ms, KafkaConsumer has refresh_leader_backoff_ms",
}
LAST_COMMIT_S = 5.0  # of all consumers
OPTIONS = {name: value for name, value in o.CLIENT.items() if name not in ELSEWHERE}


@o.telling({ours: theirs for ours, theirs in CLIENT_NAMES.items() if ours not in ELSEWHERE})
class KafkaClient(OfOneProcess):
    """A connected client: give it to SimpleConsumer, MultiProcessConsumer, SimpleProducer or KeyedProducer. Several may share one.

    hosts: "host:port,host:port" or a list. timeout: seconds for an answer. options: those of the newer clients (security_protocol, ssl_ ..., proxy_url,
    api_version) and handler: "auto", "threading", "gevent" or a Handler. Raises NoBrokersAvailable if no broker answers.
    """

    def __init__(self, hosts: Any, client_id: str | bytes = "kafka-python", timeout: float = 120, **options: Any) -> None:
        options, hosts = hide_secrets(options, OPTIONS, ELSEWHERE), hide_hosts(hosts)
        client_id, timeout = hide_options(client_id), hide_options(timeout)
        if isinstance(client_id, bytes):
            client_id = client_id.decode()
        patience_s = check_seconds("timeout", timeout, low=0.001)
        if patience_s * 1000 > INT32:
            raise ConfigurationError(f"timeout={timeout!r}: must be {INT32 // 1000} seconds or less")
        for name, ours in ELSEWHERE.items():
            if name in options:
                raise ConfigurationError(f"KafkaClient(): there is no option {name!r}: {ours}")
        merged = o.merge(OPTIONS, {**options, "client_id": client_id}, "KafkaClient()")
        self.config = {**merged, "bootstrap_servers": hosts, "request_timeout_ms": patience_s * 1000}
        self.client_id = client_id
        self.timeout = timeout
        self._consumers: weakref.WeakSet[Any] = weakref.WeakSet()
        with o.told_as(CLIENT_NAMES):
            self._client = native.KafkaClient(**o.client_options(self.config, named="kafka-python-%d"))
        with Undoing(self._client.close, 0):
            connect(self._client, min(patience_s, self._client.cluster.config.api_timeout_ms / 1000))

    def __repr__(self) -> str:
        if "_client" not in self.__dict__:  # it could not be made, and a traceback shows it
            return f"<{type(self).__name__}>"
        return f"<{type(self).__name__} client_id={self.client_id!r}{' closed' if self._client.cluster.closed else ''}>"

    @property
    def topics(self) -> list[str]:
        """The names of the topics that are known."""
        return sorted(self._client.topics)

    @property
    def topic_partitions(self) -> dict[str, list[int]]:
        """The same with the ids of their partitions."""
        return {name: sorted(self._client.topics[name].partitions) for name in self.topics}

    def has_metadata_for_topic(self, topic: str) -> bool:
        """Is the topic known?"""
        return check_topic_name(topic) in self.topics

    def get_partition_ids_for_topic(self, topic: str) -> list[int]:
        """The ids of a topic's partitions, [] for a topic that is not there."""
        try:
            return self._client.partitions(topic)
        except UnknownTopicOrPartition:
            return []

    def load_metadata_for_topics(self, *topics: str) -> None:
        """Ask for what there is. topics: to wait for, where a broker makes a topic that is asked for."""
        self._client.update_cluster()
        for topic in topics:
            self._client.partitions(topic)

    def ensure_topic_exists(self, topic: str, timeout: float = 30) -> None:
        """Wait until a topic is there: where the broker makes topics that are asked for, this makes it. timeout: seconds. Raises KafkaTimeoutError."""
        deadline = self._client.handler.monotonic() + check_seconds("timeout", timeout)
        name = check_topic_name(topic)
        while True:
            try:
                self._client.cluster.wait_for_topic(name, deadline)
                return
            except UnknownTopicOrPartition as exc:
                left = deadline - self._client.handler.monotonic()
                if left <= 0:
                    raise KafkaTimeoutError(f"topic {name!r} is not there after {timeout:g} s: {exc}", topic=name) from exc
                self._client.cluster.pause(min(left, 0.5))

    @ends
    def close(self) -> None:
        """End what was made with it, and the connections: consumers commit as their stop() does, for five seconds at most. Idempotent; what is cut short is
        finished by the next one."""
        clock = self._client.handler.monotonic
        until = clock() + LAST_COMMIT_S
        try:
            for consumer in list(self._consumers):
                consumer.end(max(0.0, until - clock()))
        except Exception as exc:
            if not self._client.handler.interrupted(exc):
                self._client.close()
            raise
        self._client.close()

    def stops(self, consumer: Any) -> None:
        """close() is to stop this one, too. Held weakly."""
        self._consumers.add(consumer)

    def __enter__(self) -> KafkaClient:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()


def connect(client: native.KafkaClient, timeout_s: float) -> None:
    """Reach the cluster. Raises NoBrokersAvailable."""
    try:
        client.connect(timeout_s)
    except KafkaTimeoutError as exc:
        raise NoBrokersAvailableError(f"no broker answered within {timeout_s:g} s: {exc}") from exc
    except o.UNUSABLE as exc:
        raise o.unusable(exc) from exc


def native_client(client: Any) -> native.KafkaClient:
    """What stands beneath a client of this package; a client of gkafka itself is taken, too. Raises WrongTypeError, IllegalStateError if closed."""
    found = client._client if isinstance(client, KafkaClient) else client
    if not isinstance(found, native.KafkaClient):
        raise WrongTypeError(f"client={client!r}: must be a gkafka.kafka.legacy.KafkaClient, as KafkaClient('host:9092')")
    if found.cluster.closed:
        raise IllegalStateError("the KafkaClient is closed: make a new one")
    return found
