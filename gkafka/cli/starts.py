"""Where reading begins: "earliest", "latest", an offset, a time, or the last records before the end."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from gkafka.cli.arguments import near_topics, parse_time
from gkafka.cli.connection import HALF
from gkafka.cli.failures import ToolError
from gkafka.cli.quantities import ParamType
from gkafka.common import TopicPartition

if TYPE_CHECKING:
    from gkafka.client import KafkaClient
    from gkafka.exceptions import KafkaException

__all__ = [
    "EARLIEST",
    "LATEST",
    "Start",
    "StartType",
    "all_partitions",
    "ends_of",
    "ends_told",
    "parse_start",
    "parse_time",
    "partitions_of",
    "starts_of",
]

EARLIEST, LATEST = -2, -1
LARGEST = (1 << 63) - 1


class Start(NamedTuple):
    """kind: "end" (-2 earliest or -1 latest), "offset", "time" (ms since the epoch) or "last" (so many records of each partition, which
    lastrecords.last_of() looks for)."""

    kind: str
    value: int


def parse_start(text: str) -> Start:
    """Raises ValueError saying what it must be."""
    if text in ("earliest", "latest"):
        return Start("end", EARLIEST if text == "earliest" else LATEST)
    if text.isascii() and text.isdecimal():
        return Start("offset", _bounded(int(text[:20]), text))
    return Start("time", _parse_time(text))


def _parse_time(text: str) -> int:
    try:
        if match := re.fullmatch(r"@(\d{1,19})", text, re.ASCII):
            return _bounded(int(match[1]), text)
        return parse_time(text)
    except (ValueError, OverflowError, OSError):
        raise ValueError(
            f"{text!r}: must be earliest, latest, an offset, a time (2026-01-31T08:00:00Z, 2026-01-31; 1h ago: s m h d w; now) from 1970 on, or @MILLISECONDS"
        ) from None


def _bounded(number: int, text: str) -> int:
    if number > LARGEST:
        raise ValueError(f"{text!r}: must be 2**63 - 1 at most")
    return number


class StartType(ParamType):
    """For click.option(type=...)."""

    name = "WHERE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Start:
        if isinstance(value, Start):
            return value
        try:
            return parse_start(value)
        except ValueError as exc:
            self.fail(str(exc), param, ctx)


# -- asking the cluster ----------------------------------------------------------------------------------------------------
def partitions_of(client: KafkaClient, topic: str) -> list[int]:
    """The numbers of a topic's partitions. One that a broker does not know is told at once: client.partitions() would wait for it, since
    one that was just made takes a moment, but `topics create` has waited for that.
    """
    from gkafka.checks import check_topic_name
    from gkafka.exceptions import UnknownTopicOrPartition, error_for
    from gkafka.wire.metadata import MetadataRequest, MetadataRequestTopic

    request = MetadataRequest(topics=[MetadataRequestTopic(name=check_topic_name(topic))], allow_auto_topic_creation=False)
    deadline = client.handler.monotonic() + client.cluster.timeout_s()
    response, broker = client.cluster.call_any(request, deadline)
    for entry in response.topics:
        error = error_for(entry.error_code, topic=topic, broker=broker, api="Metadata")
        if isinstance(error, UnknownTopicOrPartition):
            with near_topics(client.admin(), more=f"; kafka-tools topics create {topic} makes it"):
                raise error
        if error is not None and not error.retriable:
            raise error
    return client.partitions(topic)


def all_partitions(client: KafkaClient, topics: Iterable[str], wanted: Iterable[int] = ()) -> list[TopicPartition]:
    """The partitions of these topics; of each only those that are wanted, if any are named. Raises for a topic or partition that is not there."""
    found = []
    for topic in dict.fromkeys(topics):
        there = partitions_of(client, topic)
        absent = sorted(set(wanted) - set(there))
        if absent:
            raise ToolError(
                f"topic {topic!r} has no partition {absent[0]}: it has {there[0]} to {there[-1]}",
                hint=f"kafka-tools topics describe {topic}",
            )
        found += [TopicPartition(topic, p) for p in sorted({*wanted} or there)]
    return found


def ends_of(client: KafkaClient, partitions: Iterable[TopicPartition], *, committed: bool = True) -> dict[TopicPartition, int]:
    """The offset behind the last record of each that a reader can have now. committed: one that leaves open transactions out."""
    return _offsets(client, dict.fromkeys(partitions, LATEST), committed=committed)


def ends_told(
    client: KafkaClient, partitions: Iterable[TopicPartition], *, committed: bool = True
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, KafkaException]]:
    """(ends_of() the partitions that tell it, why the others do not: one has no leader, or its leader is down). Raises if none tells it.

    Half of the time is for that, so that there is some left for where to begin.
    """
    from gkafka.admin.offsets import OffsetsAdmin
    from gkafka.cli.looking import as_far_as_it_goes

    asked: dict[tuple[str, int], int] = dict.fromkeys(partitions, LATEST)
    isolation, seconds = 1 if committed else 0, client.cluster.timeout_s() * HALF
    return as_far_as_it_goes(lambda: OffsetsAdmin(client.cluster).list_offsets(asked, isolation=isolation, timeout=seconds))


def starts_of(
    client: KafkaClient, partitions: Iterable[TopicPartition], start: Start, *, committed: bool = True
) -> dict[TopicPartition, int]:
    """The offset to begin at in each. An offset must be one that the partition has, or its end."""
    asked = list(partitions)
    if start.kind == "end":
        return _offsets(client, dict.fromkeys(asked, start.value), committed=committed)
    earliest = _offsets(client, dict.fromkeys(asked, EARLIEST), committed=committed)
    latest = _offsets(client, dict.fromkeys(asked, LATEST), committed=committed)
    if start.kind == "time":
        timed = _offsets(client, dict.fromkeys(asked, start.value), committed=committed)
        return {tp: timed[tp] if timed[tp] >= 0 else latest[tp] for tp in asked}
    for tp in asked:
        if not earliest[tp] <= start.value <= latest[tp]:
            raise ToolError(
                f"{tp.topic}-{tp.partition} has no offset {start.value}: it has {earliest[tp]} to {latest[tp]}, the end",
                hint="give one of these, with --partition if they differ; or --from earliest, or a time",
            )
    return dict.fromkeys(asked, start.value)


def _offsets(client: KafkaClient, wanted: dict[TopicPartition, int], *, committed: bool) -> dict[TopicPartition, int]:
    found = client.list_offsets({(tp.topic, tp.partition): at for tp, at in wanted.items()}, isolation=1 if committed else 0)
    return {tp: found[tp.topic, tp.partition] for tp in wanted}
