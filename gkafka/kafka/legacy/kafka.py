"""kafka-python 0.9's KafkaConsumer (kafka.consumer.kafka): messages are committed when task_done() has marked them."""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

from gkafka import client as native
from gkafka.checks import check_count, check_flag, check_name, check_offset, check_partition, check_topic_name
from gkafka.common import TopicPartition
from gkafka.config import NativeConsumerConfig, build
from gkafka.exceptions import ForkedClientError, KafkaException, UnknownTopicOrPartition
from gkafka.groupoffsets import GroupOffsets
from gkafka.kafka import options as o
from gkafka.kafka.ending import Turns
from gkafka.kafka.errors import IllegalStateError, KafkaConfigurationError, WrongTypeError
from gkafka.kafka.legacy.client import connect
from gkafka.kafka.legacy.common import ConsumerTimeout, KafkaMessage, start_of
from gkafka.kafka.legacy.reading import Reader, ends_of, offsets_in_time
from gkafka.kafka.legacy.triggers import Triggers, check_every
from gkafka.logs import get_logger
from gkafka.oneprocess import OfOneProcess
from gkafka.sasloptions import hide_secrets
from gkafka.undoing import Undoing
from gkafka.unseen import hide_options, refusal

__all__ = ["KafkaConsumer", "OffsetsStruct"]

log = get_logger(__name__)

LOCAL = "localhost:9092"
BATCH = 500
STEP_S = 1.0
FORMS = "a name, (topic, partition), (topic, partition, offset), {topic: partition or partitions} or {(topic, partition): offset}"
OF_CLIENTS = (
    "security_protocol",
    "api_version",
    "proxy_url",
    "handler",
    *o.SECURITY,
)
NAMES = {
    "fetch_message_max_bytes": "fetch_message_max_bytes",
    "fetch_min_bytes": "fetch_min_bytes",
    "fetch_wait_max_ms": "fetch_wait_max_ms",
    "refresh_leader_backoff_ms": "fetch_error_backoff_ms",
    "socket_timeout_ms": "request_timeout_ms",
}


OTHER_NAMES = {
    **{ours: theirs for theirs, ours in NAMES.items() if ours != theirs},
    "socket_timeout_ms": "socket_timeout_ms",
    "offsets_channel_socket_timeout_ms": "socket_timeout_ms",
    "hosts": "metadata_broker_list",
}
"""gkafka's names and the newer clients' -> those of this one."""


class OffsetsStruct(NamedTuple):
    """Offsets by (topic, partition), None where there is none. fetch: the next to be handed out; highwater: the end of the log, as the last fetch
    told it; commit: what the group has committed, the next to be consumed; task_done: the last that was marked."""

    fetch: Any
    highwater: Any
    commit: Any
    task_done: Any


def _same(message: Any) -> Any:
    return message


@o.telling(OTHER_NAMES, also=["__init__"])
class KafkaConsumer(OfOneProcess):
    """Consumes topics, or partitions of them; shares them with nobody. For one worker.

    topics: as set_topic_partitions() takes them. Keyword arguments: DEFAULT_CONFIG, as kafka-python 0.9 documents them; bootstrap_servers is a newer
    name of metadata_broker_list, without which it is localhost:9092; and of newer clients security_protocol, ssl_ ..., api_version, handler. Raises
    KafkaConfigurationError for what cannot be used, NoBrokersAvailable if no broker answers. Reference: kafka-python 0.9, KafkaConsumer.
    """

    DEFAULT_CONFIG: ClassVar[dict[str, Any]] = {
        **{name: o.CLIENT[name] for name in OF_CLIENTS},
        "client_id": "kafka.consumer.kafka",
        "group_id": None,
        "fetch_message_max_bytes": 1024 * 1024,
        "fetch_min_bytes": 1,
        "fetch_wait_max_ms": 100,
        "refresh_leader_backoff_ms": 200,
        "metadata_broker_list": None,
        "bootstrap_servers": None,
        "socket_timeout_ms": 30 * 1000,
        "auto_offset_reset": "largest",
        "deserializer_class": _same,
        "auto_commit_enable": False,
        "auto_commit_interval_ms": 60 * 1000,
        "auto_commit_interval_messages": None,
        "consumer_timeout_ms": -1,
    }

    def __init__(self, *topics: Any, **configs: Any) -> None:
        configs = hide_secrets(configs, self.DEFAULT_CONFIG)
        topics = tuple(map(_hidden, topics))
        for form in topics:
            list(_places(form))  # before anything connects
        self._client: native.KafkaClient | None = None
        self._reader: Reader | None = None
        self._triggers: Triggers | None = None
        self._waiting: deque[Any] = deque()
        self._offsets = OffsetsStruct({}, {}, {}, {})
        self._turns = Turns()
        self.configure(**configs)
        with Undoing(self.close):
            self.set_topic_partitions(*topics)

    def __repr__(self) -> str:
        if "_config" not in self.__dict__:  # it could not be made, and a traceback shows it
            return f"<{type(self).__name__}>"
        of = [f"{tp.topic}-{tp.partition}" for tp in self._offsets.fetch]
        return f"<{type(self).__name__} group_id={self._config['group_id']!r} {of}{' closed' if self._client is None else ''}>"

    # -- options ---------------------------------------------------------------------------------------------------------------
    def configure(self, **configs: Any) -> None:
        """Take these settings, and the defaults for all others: DEFAULT_CONFIG. What is consumed, and where this consumer stands, stays."""
        configs = hide_secrets(configs, self.DEFAULT_CONFIG)
        c = o.merge(self.DEFAULT_CONFIG, configs, "KafkaConsumer()")
        _check(c)
        with _told(c):
            made = native.KafkaClient(**_client_options(c))
        with Undoing(made.close, 0):
            with _told(c):
                connect(made, min(c["socket_timeout_ms"] / 1000, made.cluster.config.api_timeout_ms / 1000))
            self._turns.run(self._end)
            if self._client is not None:
                raise IllegalStateError("KafkaConsumer is being closed: make a new one")
        self._config, self._client, self._handler = c, made, made.handler
        self._patience_s = c["socket_timeout_ms"] / 1000
        self._of_group = GroupOffsets(made.cluster, c["group_id"])
        automatic = c["auto_commit_enable"]
        self._triggers = Triggers(
            self._handler,
            self.commit,
            every_n=c["auto_commit_interval_messages"] if automatic else None,
            every_ms=c["auto_commit_interval_ms"] if automatic else None,
        )
        if self._offsets.fetch:
            self._read(dict(self._offsets.fetch))

    def _read(self, offsets: dict[TopicPartition, int]) -> None:
        """Go on with these partitions from these offsets."""
        self._waiting.clear()
        if self._reader is not None:
            self._reader.stop()
        self._reader = Reader(self._opened(), reset=start_of(self._config["auto_offset_reset"]), **o.native(self._config, NAMES))
        self._reader.assign(offsets)

    def _opened(self) -> native.KafkaClient:
        if self._client is None:
            raise IllegalStateError("KafkaConsumer is closed: make a new one")
        self._handler.check_fork()
        return self._client

    # -- what is read ----------------------------------------------------------------------------------------------------------
    def set_topic_partitions(self, *topics: Any) -> None:
        """Consume these and no others: names (of which all partitions are meant), (topic, partition), {topic: partition}, {topic: [partitions]}; and
        where to start: (topic, partition, offset), {(topic, partition): offset}. The forms may be mixed.

        Without an offset a partition starts where the group has committed, else by auto_offset_reset. Raises UnknownTopicOrPartitionError for
        what is not there.
        """
        client = self._opened()
        topics = tuple(map(_hidden, topics))
        given: dict[TopicPartition, int | None] = {}
        for form in topics:
            for topic, partition, offset in _places(form):
                there = client.partitions(topic)
                for one in there if partition is None else [partition]:
                    if one not in there:
                        text = f"topic {topic!r} has no partition {one}: it has {there[0]} to {there[-1]}"
                        raise UnknownTopicOrPartition(text, topic=topic, partition=one)
                    given[TopicPartition(topic, one)] = offset
        commit: dict[TopicPartition, int | None] = dict.fromkeys(given)
        if self._config["group_id"] is not None and given:
            found = self._of_group.committed(given, timeout_s=self._patience_s)
            commit = {tp: entry.offset if entry.offset >= 0 else None for tp, entry in found.items()}
        fetch = self._starts(given, commit)
        self._offsets = OffsetsStruct(fetch, dict.fromkeys(given), commit, dict.fromkeys(given))
        self._read(dict(fetch))

    def _starts(self, given: dict[TopicPartition, int | None], commit: dict[TopicPartition, int | None]) -> dict[TopicPartition, int]:
        starts = {tp: commit[tp] if offset is None else offset for tp, offset in given.items()}
        policy = start_of(self._config["auto_offset_reset"])
        open_ends = [tp for tp, offset in starts.items() if offset is None]
        if open_ends and policy is None:
            text = f"auto_offset_reset={self._config['auto_offset_reset']!r} does not say where {open_ends[0]} starts: give 'smallest', 'largest' or an offset"
            raise KafkaConfigurationError(text)
        wanted = {which: [tp for tp in open_ends if which == policy] for which in (-2, -1)}
        for tp, offset in starts.items():
            if offset in (-2, -1):
                wanted[offset].append(tp)
        for which, tps in wanted.items():
            starts.update(ends_of(self._opened(), tps, which, self._handler.monotonic() + self._patience_s, patient=True))
        return {tp: offset for tp, offset in starts.items() if offset is not None}

    # -- consuming -------------------------------------------------------------------------------------------------------------
    def fetch_messages(self) -> Iterator[KafkaMessage]:
        """One batch: the messages that there are, as they are asked for; waits up to fetch_wait_max_ms for some. What is left when the iteration is
        given up comes with the next batch. Raises what deserializer_class raises: the message comes again then."""
        self._fill(self._config["fetch_wait_max_ms"] / 1000)
        return self._batch(len(self._waiting))

    def _batch(self, count: int) -> Iterator[KafkaMessage]:
        for _ in range(count):
            if not self._waiting:
                return
            yield self._take()

    def next(self) -> KafkaMessage:
        """The next message. Raises ConsumerTimeout if there is none within consumer_timeout_ms; -1 waits for ever."""
        patience_ms = self._config["consumer_timeout_ms"]
        until = float("inf") if patience_ms < 0 else self._handler.monotonic() + patience_ms / 1000
        while not self._waiting:
            self._fill(max(0.0, min(until - self._handler.monotonic(), STEP_S)))
            if not self._waiting and self._handler.monotonic() >= until:
                raise ConsumerTimeout(f"no message came within consumer_timeout_ms={patience_ms:g}")
        return self._take()

    def __next__(self) -> KafkaMessage:
        if self._client is None:  # closed, perhaps by what the loop did with the message before
            raise StopIteration
        return self.next()

    def __iter__(self) -> KafkaConsumer:
        return self

    def _fill(self, wait_s: float) -> None:
        self._opened()
        if not self._offsets.fetch or self._reader is None:
            raise KafkaConfigurationError("no topics or partitions are set: call set_topic_partitions()")
        if not self._waiting:
            self._reader.take(BATCH, wait_s, self._waiting.extend, lambda: self._offsets.fetch)
            for tp in self._offsets.highwater:
                self._offsets.highwater[tp] = self._reader.consumer.high_watermark(tp)

    def _take(self) -> KafkaMessage:
        self._opened()
        m = self._waiting[0]
        value = self._config["deserializer_class"](m.value)
        made = KafkaMessage(m.topic, m.partition_id, m.offset, m.key, value)
        self._offsets.fetch[TopicPartition(m.topic, m.partition_id)] = m.offset + 1
        if self._waiting and self._waiting[0] is m:
            self._waiting.popleft()
        return made

    # -- offsets ---------------------------------------------------------------------------------------------------------------
    def offsets(self, group: str | None = None) -> dict[Any, Any]:
        """A copy of the offsets: those of 'fetch', 'commit', 'task_done' or 'highwater', or all of them by these names."""
        if not group:
            return {name: self.offsets(name) for name in OffsetsStruct._fields}
        if group not in OffsetsStruct._fields:
            raise KafkaConfigurationError(f"group={group!r}: must be one of {', '.join(OffsetsStruct._fields)}")
        return dict(getattr(self._offsets, group))

    def get_partition_offsets(self, topic: str, partition: int, request_time_ms: int, max_num_offsets: int) -> list[int]:
        """Up to max_num_offsets offsets in descending order, from which on messages were written before a time in ms since the epoch; -1: the end, -2: the
        start of the log, which is always one.

        Brokers before 4.0 tell the starts of the log's files, as they did then. Newer ones tell where the messages of that time begin (or
        the log's end, if all are older), and the start of the log; [] if all messages are newer.
        """
        cluster = self._opened().cluster
        wanted = check_count("max_num_offsets", max_num_offsets)
        key = (check_topic_name(topic), check_partition("partition", partition))
        at = check_offset("request_time_ms", request_time_ms, low=-2)
        deadline = self._handler.monotonic() + self._patience_s
        if at == -2:
            return offsets_in_time(cluster, {key: at}, deadline)[key]
        records: dict[tuple[str, int], tuple[int, int]] = {}
        found = offsets_in_time(cluster, {key: at}, deadline, max_offsets=max(2, wanted), records=records)[key]
        if key in records:  # a broker that tells one offset
            found = found or offsets_in_time(cluster, {key: -1}, deadline)[key]
            begin = offsets_in_time(cluster, {key: -2}, deadline)[key]
            found = [] if at >= 0 and found == begin else sorted({*found, *begin}, reverse=True)
        return found[:wanted]

    def task_done(self, message: Any) -> bool:
        """Mark a message, and with it all before it in its partition, as consumed: that is what commit() stores. False for a message of a partition that is
        not consumed."""
        if any(not hasattr(message, field) for field in ("topic", "partition", "offset")):
            raise WrongTypeError(f"message={message!r}: must be a message that this consumer handed out")
        tp = TopicPartition(message.topic, message.partition)
        if tp not in self._offsets.task_done:
            log.warning("task_done() for a message of %s-%d, which is not consumed", *tp)
            return False
        before = self._offsets.task_done[tp]
        if before is not None and message.offset <= before:
            log.warning("task_done() for offset %d of %s-%d, after offset %d", message.offset, *tp, before)
        self._offsets.task_done[tp] = message.offset
        if self._triggers is not None:
            self._triggers.count(1)
        return True

    def commit(self) -> bool:
        """Store what task_done() has marked for the group. False if there is nothing new. Raises KafkaConfigurationError without a group_id."""
        self._opened()
        if self._config["group_id"] is None:
            raise KafkaConfigurationError("commit() without a group: give group_id")
        marked = {tp: offset + 1 for tp, offset in self._offsets.task_done.items() if offset is not None}
        news = {tp: offset for tp, offset in marked.items() if offset != self._offsets.commit[tp]}
        if self._triggers is not None:
            self._triggers.restart()
        if not news:
            return False
        stored = self._offsets.commit
        self._of_group.commit(news, timeout_s=self._patience_s)
        stored.update(news)
        return True

    # -- the end ---------------------------------------------------------------------------------------------------------------
    def _end(self) -> None:
        if self._client is None:
            return
        if self._triggers is not None:
            self._triggers.stop(self._patience_s)
        try:
            if self._config["auto_commit_enable"]:
                self.commit()
        except ForkedClientError:
            pass
        except KafkaException as exc:
            log.error("group %s: the last commit failed, messages may be consumed again: %s", self._config["group_id"], exc)
        if self._reader is not None:
            self._reader.stop()
        self._waiting.clear()
        self._client.close(self._patience_s)
        self._client = self._reader = None  # last: whoever is cut short leaves the rest to the next one

    def close(self) -> None:
        """End; with auto_commit_enable commit what was marked. Idempotent; what is cut short is finished by the next one. A call that comes while another is
        at it returns at once."""
        self._turns.run(self._end)

    def __enter__(self) -> KafkaConsumer:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def _hidden(form: Any) -> Any:
    """A dict in which a text stands for partitions, as those of options are, as what nothing shows."""
    return hide_options(form) if isinstance(form, dict) and any(isinstance(one, (str, bytes)) for one in form.values()) else form


def _places(form: Any) -> Iterator[tuple[str, int | None, int | None]]:
    """(topic, partition or None for all of them, offset or None) of one argument."""
    if isinstance(form, (str, bytes)):
        yield check_topic_name(form), None, None
    elif isinstance(form, tuple) and len(form) in (2, 3):
        yield _place(form[0], form[1], *form[2:])
    elif isinstance(form, dict):
        for key, value in form.items():
            if isinstance(key, tuple) and len(key) == 2:
                yield _place(*key, value)
            elif isinstance(key, (str, bytes)) and isinstance(value, (list, tuple)):
                for one in value:
                    yield _place(key, one)
            else:
                yield _place(key, value)
    else:
        raise WrongTypeError(refusal("topic", form, f"must be {FORMS}"))


def _place(topic: Any, partition: Any, offset: Any = None) -> tuple[str, int, int | None]:
    if not isinstance(topic, (str, bytes)) or isinstance(partition, bool) or not isinstance(partition, int):
        raise WrongTypeError(f"topic {topic!r}, partition {partition!r}: must be {FORMS}")
    place = check_topic_name(topic), check_partition("partition", partition)
    return *place, None if offset is None else check_offset("offset", offset, low=-2)


def _check(c: dict[str, Any]) -> None:
    check_flag("auto_commit_enable", c["auto_commit_enable"])
    check_every(auto_commit_interval_messages=c["auto_commit_interval_messages"], auto_commit_interval_ms=c["auto_commit_interval_ms"])
    if c["group_id"] is not None:
        c["group_id"] = check_name("group_id", c["group_id"])
    if c["auto_commit_enable"] and c["group_id"] is None:
        raise KafkaConfigurationError("auto_commit_enable=True needs a group: give group_id")
    if not callable(c["deserializer_class"]):
        raise KafkaConfigurationError(f"deserializer_class={c['deserializer_class']!r}: must be callable with the bytes of a message")
    for name in ("socket_timeout_ms", "fetch_wait_max_ms", "consumer_timeout_ms"):
        if isinstance(c[name], bool) or not isinstance(c[name], (int, float)) or math.isnan(c[name]):
            raise KafkaConfigurationError(f"{name}={c[name]!r}: must be a number of milliseconds")
    with o.told_as(OTHER_NAMES):
        build(NativeConsumerConfig, o.native(c, NAMES), where="KafkaConsumer()")
    if c["metadata_broker_list"] is not None and c["bootstrap_servers"] is not None:
        raise KafkaConfigurationError("metadata_broker_list and bootstrap_servers are two names of one setting: give one of them")


def _told(c: dict[str, Any]) -> contextlib.AbstractContextManager[None]:
    """Errors name the brokers as they were given."""
    name = "bootstrap_servers" if c["bootstrap_servers"] is not None else "metadata_broker_list"
    return o.told_as({**OTHER_NAMES, "hosts": name, "bootstrap_servers": name})


def _client_options(c: dict[str, Any]) -> dict[str, Any]:
    hosts = c["metadata_broker_list"] if c["metadata_broker_list"] is not None else c["bootstrap_servers"]
    taken = {name: c[name] for name in OF_CLIENTS}
    client_id = c["client_id"].decode() if isinstance(c["client_id"], bytes) else c["client_id"]
    options = {
        **o.CLIENT,
        **taken,
        "bootstrap_servers": LOCAL if hosts is None else hosts,
        "client_id": client_id,
        "request_timeout_ms": c["socket_timeout_ms"],
    }
    return o.client_options(options, named="kafka.consumer.kafka-%d")
