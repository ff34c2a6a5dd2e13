"""KafkaAdminClient (kafka.admin.client): kafka-python's administrator on gkafka's native one."""

from __future__ import annotations

from types import TracebackType
from typing import Any, ClassVar

from gkafka.checks import check_seconds
from gkafka.client import KafkaClient
from gkafka.kafka import options as o
from gkafka.kafka.admin.acls import AclCalls
from gkafka.kafka.admin.cluster import ClusterCalls
from gkafka.kafka.admin.configs import ConfigCalls
from gkafka.kafka.admin.groups import GroupCalls
from gkafka.kafka.admin.hidden import HIDES
from gkafka.kafka.admin.partitions import PartitionCalls
from gkafka.kafka.admin.topics import TopicCalls
from gkafka.kafka.admin.transactions import TransactionCalls
from gkafka.kafka.admin.users import UserCalls
from gkafka.kafka.arguments import hiding
from gkafka.lifetime import ends
from gkafka.sasloptions import hide_secrets
from gkafka.undoing import Undoing

__all__ = ["KafkaAdminClient"]

_NOT_OURS = ("allow_auto_create_topics", "api_version_auto_timeout_ms", "max_in_flight_requests_per_connection")
_OTHER_NAMES = {
    "socket_timeout_ms": "request_timeout_ms",
    "offsets_channel_socket_timeout_ms": "request_timeout_ms",
    "max_response_bytes": "receive_message_max_bytes",
}


@o.telling(_OTHER_NAMES)
@hiding(HIDES)
class KafkaAdminClient(TopicCalls, PartitionCalls, ConfigCalls, GroupCalls, AclCalls, ClusterCalls, TransactionCalls, UserCalls):
    """A cluster's administrator. Thread safe; greenlets may share it as well.

    Keyword arguments: DEFAULT_CONFIG, as kafka-python documents them. request_timeout_ms: how long a call may take in all, unless it is given
    timeout_ms. retry_backoff_ms: before what a retry may heal is tried again, the double each time up to ten times as much. bootstrap_timeout_ms: how long
    to wait for the first broker; api_version_auto_timeout_ms, as older versions call it, goes before it. handler: "auto", "threading",
    "gevent" or a Handler. Raises ConfigurationError for an option that is none or would have no effect, NoBrokersAvailable, which is a
    KafkaTimeoutError, too, if no broker answers (without api_version).

    Results are those of kafka-python 3; calls that only 2.x names have 2.x's results. Reference: kafka-python 3.0, KafkaAdminClient.
    """

    DEFAULT_CONFIG: ClassVar[dict[str, Any]] = {
        **{name: value for name, value in o.CLIENT.items() if name not in _NOT_OURS},
        "request_timeout_ms": 30000,
        "reconnect_backoff_max_ms": 30000,
        "receive_message_max_bytes": 100_000_000,
        "bootstrap_timeout_ms": 30000,
        "api_version_auto_timeout_ms": None,
    }

    def __init__(self, **configs: Any) -> None:
        self._closed = True  # until it is complete
        configs = hide_secrets(configs, self.DEFAULT_CONFIG)
        self.config = o.merge(self.DEFAULT_CONFIG, configs, "KafkaAdminClient()")
        within = "bootstrap_timeout_ms" if self.config["api_version_auto_timeout_ms"] is None else "api_version_auto_timeout_ms"
        options = {**self.config, "allow_auto_create_topics": False, "api_version_auto_timeout_ms": self.config[within]}
        check_seconds(within, options[within])
        with o.told_as(_OTHER_NAMES):
            taken = o.client_options(options, named="kafka-python-admin-%d")
            self._name = taken["client_id"]
            self._client = KafkaClient(**taken, max_response_bytes=self.config["receive_message_max_bytes"])
        self._client.cluster.called = type(self).__name__
        with Undoing(self._client.close, 0):
            self._admin = self._client.admin(retry_backoff_ms=self.config["retry_backoff_ms"])
            o.reach(self._client, options, within=within)
        self._closed = False

    def __repr__(self) -> str:
        if not hasattr(self, "_client"):  # where a traceback shows the arguments of a call that failed
            return f"<{type(self).__name__} that was not made>"
        return f"<{type(self).__name__} client_id={self._name!r}{' closed' if self._closed else ''}>"

    @ends
    def close(self) -> None:
        """End the connections. Idempotent; every other call raises ClientClosedError afterwards."""
        if not self._closed:
            self._client.close()  # which goes on with what another one left
            self._closed = True

    def __enter__(self) -> KafkaAdminClient:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()
