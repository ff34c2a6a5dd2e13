"""The entry: `KafkaClient`, from which topics, producers and consumers come."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from gkafka.broker import Broker
from gkafka.checks import (
    check_count,
    check_flag,
    check_isolation,
    check_mapping,
    check_partition,
    check_seconds,
    check_text,
    check_timestamp,
    check_topic_name,
    check_wait,
)
from gkafka.cluster import Cluster, TopicDict
from gkafka.common import IsolationLevel
from gkafka.config import ClientConfig, NativeConsumerConfig, ProducerConfig, Secret, build
from gkafka.exceptions import ConfigurationError, DeliveryError, UnknownOptionError, error_for
from gkafka.handlers import Handler, resolve_handler
from gkafka.hosts import parse_source_address
from gkafka.lifetime import ends
from gkafka.logs import get_logger
from gkafka.oneprocess import OfOneProcess
from gkafka.sasloptions import UNSET, hide_hosts, hide_secrets, hide_tls, tls_options
from gkafka.unseen import hide_options
from gkafka.wire.admin import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest, DeleteTopicsRequest

if TYPE_CHECKING:
    from types import TracebackType
    from uuid import UUID

    from gkafka.admin import Admin
    from gkafka.clientproperties import Properties
    from gkafka.consumer import Consumer
    from gkafka.exceptions import UnknownTopicError
    from gkafka.nativeproducer import NativeProducer
    from gkafka.rawfetch import RawFetch, RawFetcher

__all__ = ["KafkaClient", "TopicEnds"]

log = get_logger(__name__)

STOP_S = 5.0
GRACE_S = 0.25
"""How long the workers of a client have for their end after the timeout of close()."""
GOOD_BYE_S = 1.0
"""How long a coordinator has for the answer to the good-bye that is said inside a listener."""
NO_METER = dict.fromkeys(("hub_stall_ms", "hub_stall_longest_ms", "hub_stalls"))
_no_hub_untold: list[None] = [None]


class TopicEnds(NamedTuple):
    """First and next offset of a partition."""

    earliest: int
    latest: int


OTHER_NAMES_OF_GROUP = ("consumer_group", "group_id", "group.id")


class KafkaClient(OfOneProcess):
    """A client of one Kafka cluster. Lazy: nothing connects and no worker starts before the first call that needs it.

    Documented parameters (reference: pykafka-2.x client; ignore_rdkafka: pykafka-2.0.4), in the documented order:
    hosts: comma-separated host:port. zookeeper_hosts: "host:port,host:port/chroot" of the ZooKeeper in which the brokers stand (before Kafka 4.0), in
    place of hosts. socket_timeout_ms: longest wait for an answer.
    offsets_channel_socket_timeout_ms: the same for offset commits and fetches. use_greenlets: True means handler="gevent".
    exclude_internal_topics: hide the offsets topic and its like. source_address: "host:port" of the sockets. ssl_config: an SslConfig,
    in place of the ssl_ options.
    broker_version: what the brokers speak if they cannot be asked; "0.9.0" means: ask, and fall back. ignore_rdkafka: do not use
    librdkafka even if it is installed; gkafka never does.

    handler: "auto" (greenlets where gevent has patched the process, else threads), "threading", "gevent" or a Handler.
    options: the fields of `gkafka.config.ClientConfig` (client_id, connect_timeout_ms, security_protocol, ssl_cafile, ...).

    The client owns its connections: close() it, or use it in a with block. Use it only in the process that made it.
    """

    def __init__(
        self,
        hosts: str | bytes = "127.0.0.1:9092",
        zookeeper_hosts: str | None = None,
        socket_timeout_ms: float = 30 * 1000,
        offsets_channel_socket_timeout_ms: float = 10 * 1000,
        use_greenlets: bool = False,
        exclude_internal_topics: bool = True,
        source_address: str = "",
        ssl_config: Any = None,
        broker_version: str = "0.9.0",
        ignore_rdkafka: bool = False,
        *,
        handler: str | Handler = "auto",
        **options: Any,
    ) -> None:
        options, ssl_config = hide_secrets(options), hide_tls(ssl_config)
        hosts, zookeeper_hosts, source_address = hide_hosts(hosts), hide_hosts(zookeeper_hosts), hide_hosts(source_address)
        socket_timeout_ms, offsets_channel_socket_timeout_ms = (
            hide_options(socket_timeout_ms),
            hide_options(offsets_channel_socket_timeout_ms),
        )
        use_greenlets, exclude_internal_topics = hide_options(use_greenlets), hide_options(exclude_internal_topics)
        broker_version, ignore_rdkafka, handler = hide_options(broker_version), hide_options(ignore_rdkafka), hide_options(handler)
        given: dict[str, Any] = {
            "socket_timeout_ms": socket_timeout_ms,
            "offsets_channel_socket_timeout_ms": offsets_channel_socket_timeout_ms,
            "broker_version": broker_version,
        }
        # Left at its default it may stand in the options by another spelling, as socket.timeout.ms.
        given = {name: value for name, value in given.items() if type(value) is not type(usual := getattr(UNSET, name)) or value != usual}
        if source_address != "":
            given["source_address"] = None if source_address is None else parse_source_address(source_address)
        if ssl_config is not None:
            given.update(_tls_options(ssl_config, options))
        self._config = build(ClientConfig, {**given, **options}, where="KafkaClient()", owner=KafkaClient)
        check_text("client_id", self._config.client_id)
        check_flag("use_greenlets", use_greenlets)
        check_flag("exclude_internal_topics", exclude_internal_topics)
        check_flag("ignore_rdkafka", ignore_rdkafka)
        self._handler = resolve_handler(handler, use_greenlets=use_greenlets)
        if self._handler.cooperative:
            load_all()  # of whom this module was imported without: at the first get_consumer() the hub would stand still for it
        self._owns_handler = self._handler is not handler
        self._cluster = Cluster(
            hosts, self._handler, exclude_internal_topics=exclude_internal_topics, zookeeper_hosts=zookeeper_hosts, config=self._config
        )
        self._topics = self._cluster.topics
        self._raw: RawFetcher | None = None
        self._stall_meter = self._handler.stall_meter() if self._config.hub_stall_meter else None
        if self._config.hub_stall_meter and self._stall_meter is None:
            _tell_no_hub(self._handler)
        self._closed = False
        self._undelivered: list[DeliveryError] = []
        self._properties: Properties | None = None

    @classmethod
    def from_properties(cls, properties: str | os.PathLike[str] | Mapping[str, Any], **options: Any) -> KafkaClient:
        """A client as a file of properties configures it, by the names of Java's clients, of librdkafka or of gkafka.

        properties: the path of a file, or a mapping of names to values. A file may have sections: [default] is for all, [producer] and [consumer] are for
        those, and one of others is named behind the path, as in "client.ini:staging". What it says of producers and consumers is the default of
        get_producer() and get_consumer(), group.id included; their keyword arguments count before it. options: keyword arguments of KafkaClient, which
        count before the file.

        What has no effect here, as the address of a schema registry, is passed over with one warning in the log. Raises ConfigurationError, naming the
        property, for what cannot be had and for unknown names, and OSError if the file cannot be read.
        """
        from gkafka.clientproperties import check_hosts, hide_properties, read_properties, without  # not where options are given

        options, properties = hide_secrets(options), hide_properties(properties)
        found = read_properties(properties)
        for note in found.notes:
            log.warning("%s", note)
        given = {**without(found.client, options), **options}
        if "hosts" not in given and given.get("zookeeper_hosts") is None:
            if not found.hosts:
                raise ConfigurationError("from_properties(): no bootstrap.servers: name the brokers there, or give hosts='host:port,...'")
            given["hosts"] = check_hosts(found.hosts_where, found.hosts, given.get("security_protocol"))
        client = cls(**given)
        client._properties = found
        return client

    def __repr__(self) -> str:
        cluster = getattr(self, "_cluster", None)  # not there yet where a traceback shows the arguments of a call that failed
        hosts = (
            cluster and ",".join(f"{b.host}:{b.port}" for b in cluster._bootstrap)
        ) or f"of ZooKeeper {cluster and cluster._zookeeper_hosts}"
        return f"<{type(self).__module__}.{type(self).__name__} at {id(self):#x} (hosts={hosts})>"

    # -- documented --------------------------------------------------------------------------------------------------------
    @property
    def topics(self) -> TopicDict:
        """Topics by name. A Topic, and what is made of it, works on when nothing else of the client is kept."""
        return self._topics

    @property
    def brokers(self) -> dict[int, Broker]:
        """Brokers by id."""
        self._handler.check_fork()
        return self._cluster.brokers

    @property
    def cluster(self) -> Cluster:
        """The cluster's machinery."""
        return self._cluster

    @property
    def handler(self) -> Handler:
        """What runs this client's workers."""
        return self._handler

    def update_cluster(self) -> None:
        """Refresh all known brokers and topics, and add new ones."""
        self._cluster.update()

    # -- native ------------------------------------------------------------------------------------------------------------
    def connect(self, timeout: float | None = None) -> None:
        """Reach the cluster now rather than at the first call that needs it. timeout: seconds.

        Raises NoBrokersAvailableError naming each host and why it did not answer; TlsError, ProxyError, ProtocolError, AuthenticationError if that
        is what they all fail with.
        """
        self._handler.check_fork()
        _check_timeout(timeout)
        self._cluster.connect(timeout)

    def get_producer(self, **options: Any) -> NativeProducer:
        """A producer for any number of topics. options: the fields of `gkafka.config.ProducerConfig` (acks, linger_ms, compression...)."""
        self._handler.check_fork()
        self._cluster.check_open()
        options = hide_secrets(options)
        if self._properties is not None:
            options = self._properties.of_producer(options)
        from gkafka.nativeproducer import NativeProducer  # whoever only consumes, or administers, starts faster without it

        return NativeProducer(self._cluster, build(ProducerConfig, options, where="get_producer()"))

    def get_consumer(self, topics: Any = None, group: str | bytes | None = None, **options: Any) -> Consumer:
        """A consumer of a topic, a list of topics, or those that a compiled pattern matches; of partitions that assign() names without topics.

        group: with topics, whom it shares them with (`kafka-tools docs groups`); without, where it commits what it has consumed of partitions that were
        assigned. options: the fields of
        `gkafka.config.NativeConsumerConfig` (auto_offset_reset, value_deserializer, ...) and `ConsumerConfig`.
        """
        self._handler.check_fork()
        self._cluster.check_open()
        options, topics, group = hide_secrets(options, OTHER_NAMES_OF_GROUP), hide_options(topics), hide_options(group)
        from gkafka.consumer import Consumer  # whoever only produces starts faster, and smaller, without it

        for name in OTHER_NAMES_OF_GROUP:
            if name in options:
                raise UnknownOptionError(f"get_consumer(): unknown option {name!r}; it is called group here: group={options[name]!r}")
        if self._properties is not None:
            options, group = self._properties.of_consumer(options, topics, group)
        return Consumer(
            self._cluster, build(NativeConsumerConfig, options, where="get_consumer()", owner=Consumer), topics=topics, group=group
        )

    def partitions(self, topic: str) -> list[int]:
        """The ids of a topic's partitions."""
        self._handler.check_fork()
        return sorted(self._cluster.wait_for_topic(check_topic_name(topic)).partitions)

    def list_offsets(
        self,
        wanted: Mapping[tuple[str, int], int],
        *,
        isolation: IsolationLevel | int = IsolationLevel.READ_UNCOMMITTED,
        timeout: float | None = None,
    ) -> dict[tuple[str, int], int]:
        """Offsets for timestamps: {(topic, partition): -2 earliest, -1 latest, or ms} -> {(topic, partition): offset}.

        -1 where no record has the timestamp or a later one. timeout: seconds. Raises LeaderNotFoundError as soon as brokers have said for a second,
        in which an election may end, that a partition has no leader; `admin().list_offsets()` also tells the offsets of the others.
        """
        asked = _wanted_offsets(wanted)
        level = int(check_isolation("isolation", isolation))
        found = self._cluster.list_offsets(asked, self._deadline(timeout), isolation_level=level)
        return {key: offsets[0] if offsets else -1 for key, offsets in found.items()}

    def fetch_raw(
        self,
        topic: str,
        partition: int,
        offset: int,
        max_bytes: int | None = None,
        isolation: IsolationLevel | int | None = None,
        *,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        timeout: float | None = None,
    ) -> RawFetch:
        """One fetch, undecoded: whole batches from the offset on (the first may begin before it), high watermark, aborted transactions.

        max_bytes: None is 1 MiB. isolation: None is READ_COMMITTED. Retries until `timeout` seconds. `gkafka.records.decode_columns`
        turns the batches into columns. Raises OffsetOutOfRangeError and other errors of the broker.
        """
        _check_timeout(timeout)
        return self._raw_fetcher().fetch(
            topic, partition, offset, max_bytes, isolation, max_wait_ms=max_wait_ms, min_bytes=min_bytes, timeout=timeout
        )

    def fetch_stream(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int,
        *,
        max_bytes: int | None = None,
        isolation: IsolationLevel | int | None = None,
        max_wait_ms: int = 500,
        timeout: float | None = None,
        topic_id: UUID | None = None,
    ) -> Iterator[RawFetch]:
        """fetch_raw() from start until the position reaches end; the next fetch is sent before an answer is handed out.

        topic_id: as `admin().describe_topics()` tells it; a topic that was deleted and made again is an UnknownTopicError then, where brokers know ids (2.8).
        """
        _check_timeout(timeout)
        return self._raw_fetcher().stream(
            topic, partition, start, end, max_bytes, isolation, max_wait_ms=max_wait_ms, timeout=timeout, topic_id=topic_id
        )

    def fetch_streams(
        self,
        spans: Sequence[tuple[str, int, int, int]],
        *,
        max_bytes: int | None = None,
        isolation: IsolationLevel | int | None = None,
        max_wait_ms: int = 500,
        timeout: float | None = None,
        max_total_bytes: int | None = None,
        topic_ids: Mapping[str, UUID] | None = None,
    ) -> Iterator[tuple[int, RawFetch | UnknownTopicError | None]]:
        """fetch_stream() of several ranges, (topic, partition, start, end), whose partitions share the requests to each broker.

        Yields (number of the range, what came); those of one range in order. Behind them (number, None) where a range met what needs more than the next fetch,
        as an error or a gap: fetch_stream() from where it stood goes on. (number, UnknownTopicError) where no broker knows the topic after some seconds, or none by
        its id in topic_ids. max_bytes: of a partition in an answer. max_total_bytes: of all of an answer, but for the first record; None is 8 MiB, or max_bytes if
        that is more. timeout: seconds for the topics to be known.
        """
        _check_timeout(timeout)
        return self._raw_fetcher().streams(
            spans,
            max_bytes,
            isolation,
            max_wait_ms=max_wait_ms,
            timeout=timeout,
            max_total_bytes=max_total_bytes,
            topic_ids={} if topic_ids is None else topic_ids,
        )

    def _deadline(self, timeout: float | None) -> float:
        _check_timeout(timeout)
        return self._cluster._deadline(timeout)

    def _raw_fetcher(self) -> RawFetcher:
        self._handler.check_fork()
        if self._raw is None:
            from gkafka.rawfetch import RawFetcher  # who reads no raw batches starts without what lies in them

            self._raw = RawFetcher(self._cluster)
        return self._raw

    def admin(self, *, retry_backoff_ms: float = 100) -> Admin:
        """Administration of the cluster: topics, configurations, groups, offsets, ACLs, users and more (`kafka-tools docs admin`).

        retry_backoff_ms: before what a retry may heal is tried again, the double each time up to ten times as much.
        """
        self._handler.check_fork()
        self._cluster.check_open()
        from gkafka.admin import Admin  # whoever only produces or consumes starts without its tables

        return Admin(self._cluster, retry_backoff_ms)

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = 1,
        configs: Mapping[str, str] | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """Create a topic and wait until it is known. Raises TopicAlreadyExists and other errors of the broker. timeout: seconds."""
        from gkafka.admin.changes import hide_configs  # as in admin()

        configs = hide_configs(configs)  # from here on no variable shows a password, nor does the request
        name = check_topic_name(name)
        topic = CreatableTopic(
            name=name,
            num_partitions=_count_or_default("partitions", partitions, (1 << 31) - 1),
            replication_factor=_count_or_default("replication_factor", replication_factor, (1 << 15) - 1),
            configs=_topic_configs(configs),
        )
        deadline = self._deadline(timeout)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=int(self._config.socket_timeout_ms))
        response, controller = self._cluster.call_controller(request, deadline)
        for entry in response.topics:
            error = error_for(entry.error_code, entry.error_message, topic=name, broker=controller, api="CreateTopics")
            if error is not None:
                raise error
        self._cluster.metadata.was_made(name)
        self._cluster.wait_for_topic(name, deadline, anew=False)

    def delete_topic(self, name: str, *, timeout: float | None = None) -> None:
        """Delete a topic. Raises UnknownTopicOrPartition and other errors of the broker. timeout: seconds."""
        name = check_topic_name(name)
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=int(self._config.socket_timeout_ms))
        response, controller = self._cluster.call_controller(request, self._deadline(timeout))
        for entry in response.responses:
            error = error_for(entry.error_code, getattr(entry, "error_message", None), topic=name, broker=controller, api="DeleteTopics")
            if error is not None:
                raise error
        self._cluster.metadata.forget_topic(name)

    def stats(self) -> dict[str, Any]:
        """One snapshot of the client, its brokers, producers and consumers, as plain data; `kafka-tools docs statistics` says what each key means."""
        self._handler.check_fork()
        engines = [e for e in list(self._cluster.engines) if not e.closed]
        from gkafka.nativeproducer import NativeProducer

        return {
            "client_id": self._config.client_id,
            "handler": self._handler.name,
            "workers": len(self._handler.workers()),
            **(NO_METER if self._stall_meter is None else self._stall_meter.stats()),
            **self._cluster.stats(),
            "producers": [e.stats() for e in engines if isinstance(e, NativeProducer)],
            "consumers": [e.stats() for e in engines if not isinstance(e, NativeProducer)],
        }

    @ends
    def close(self, timeout: float | None = None) -> None:
        """Close producers (delivering what they hold), consumers, connections and workers. Idempotent. timeout: seconds for all of it.

        Raises DeliveryError if a producer could not deliver everything; everything is closed all the same. If it is cut short (by a
        gevent.Timeout, by Ctrl-C) the next call goes on with what is left.
        """
        deadline = None if timeout is None else self._handler.monotonic() + check_wait("timeout", timeout)
        if self._closed:
            return
        self._handler.check_may_wait()
        self._cluster.stop_adopting()
        problem: Exception | None = None
        # Members of groups first: they commit what the consumers inside them have consumed.
        for engine in sorted(self._cluster.engines, key=lambda engine: not getattr(engine, "is_member", False)):
            try:
                engine.close(None if deadline is None else max(0.0, deadline - self._handler.monotonic()))
            except DeliveryError as exc:
                self._undelivered.append(exc)
            except Exception as exc:
                if self._handler.interrupted(exc):
                    raise
                problem = exc
        self._cluster.say_good_bye(GOOD_BYE_S if deadline is None else min(GOOD_BYE_S, max(0.0, deadline - self._handler.monotonic())))
        # Whoever is killed above leaves the rest to the next close(); one that comes meanwhile waits for the same.
        self._cluster.close()
        if self._stall_meter is not None:
            self._stall_meter.stop()
        if self._owns_handler:  # one that was given may serve others: whoever made it stops it
            # Whoever is in a listener or a callback ends when that returns.
            until = self._handler.monotonic() + STOP_S
            self._handler.stop(until if deadline is None else min(until, max(deadline, self._handler.monotonic() + GRACE_S)))
        problem = self._what_was_not_delivered() or problem
        self._undelivered, self._closed = [], True  # last: who is cut short before it tells that in the next close()
        if problem is not None:
            raise problem

    def _what_was_not_delivered(self) -> DeliveryError | None:
        failures = self._undelivered
        if len(failures) < 2:
            return failures[0] if failures else None
        text = f"{len(failures)} producers could not deliver everything; the first: {failures[0]}"
        return DeliveryError(text, lambda: [r for f in failures for r in f.records], unlisted=sum(f.unlisted for f in failures))

    def __enter__(self) -> KafkaClient:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None) -> None:
        if exc_type is not None:
            self._cluster.in_order = False
        self.close()


def load_all() -> None:
    """Import what clients, producers and consumers of any kind need beside this module, and of greenlets if there are any."""
    import gkafka.balancedconsumer
    import gkafka.consumer
    import gkafka.managedbalancedconsumer
    import gkafka.nativeproducer
    import gkafka.producer
    import gkafka.producermemory
    import gkafka.protocol
    import gkafka.simpleconsumer

    if "gevent" in sys.modules:
        import gkafka.handlers.greenlets  # noqa: F401


def _tell_no_hub(handler: Handler) -> None:
    """No error: a program whose handler is chosen elsewhere, by 'auto' or by a setting, is to run on either."""
    with contextlib.suppress(IndexError):
        _no_hub_untold.pop()
        log.warning(
            "hub_stall_meter=True: handler %r has no hub that could stand still, nothing is measured: give handler='gevent', or leave the option out",
            handler.name,
        )


def _check_timeout(timeout: float | None) -> None:
    if timeout is not None:
        check_seconds("timeout", timeout)


def _tls_options(ssl_config: Any, others: Mapping[str, Any]) -> dict[str, Any]:
    beside = [name for name in others if name.replace(".", "_").startswith("ssl_")]
    if beside:
        raise ConfigurationError(
            f"ssl_config together with {beside[0]}: both say how to use TLS; give one SslConfig(cafile, certfile, keyfile, password), or "
            "security_protocol='SSL' and the ssl_ options alone"
        )
    return tls_options(ssl_config)


def _wanted_offsets(wanted: Any) -> dict[tuple[str, int], int]:
    example = '{("topic", 0): -1}'
    asked = {}
    for key, timestamp in check_mapping("wanted", wanted, example).items():
        if not isinstance(key, tuple) or len(key) != 2:
            raise ConfigurationError(f"wanted: the key {key!r} must be (topic, partition), as in {example}")
        asked[check_topic_name(key[0]), check_partition("partition", key[1])] = check_timestamp("timestamp", timestamp)
    return asked


def _count_or_default(name: str, value: Any, high: int) -> int:
    """A number of partitions or replicas; -1 leaves it to the broker (KIP-464)."""
    return -1 if type(value) is int and value == -1 else check_count(name, value, high=high)


def _topic_configs(configs: Any) -> list[CreatableTopicConfig]:
    from gkafka.admin.arguments import check_config_value

    def text_of(key: str, value: Any) -> str | None:
        check_value = check_config_value if isinstance(value, Secret) else check_text
        return None if value is None else check_value(f"configs[{key!r}]", value)

    given = check_mapping("configs", {} if configs is None else configs, '{"retention.ms": "60000"}')
    return [CreatableTopicConfig(name=check_text("configs", key), value=text_of(key, value)) for key, value in given.items()]
