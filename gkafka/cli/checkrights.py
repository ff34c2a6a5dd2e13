"""What `kafka-tools doctor` looks at once it is connected: clocks, the group coordinator, and what may be done with a topic."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from gkafka.admin import AclOperation, TopicDescription
from gkafka.cli.checkups import FAIL, OK, SKIP, WARN, Begin, Finding, Limit
from gkafka.exceptions import AdminError, KafkaException, UnknownTopicOrPartition, UnsupportedVersion, error_for
from gkafka.wire.groups import FindCoordinatorRequest

if TYPE_CHECKING:
    from gkafka.client import KafkaClient

__all__ = ["clock", "coordinator", "topic"]

VALUE = b"kafka-tools doctor"
APPEND_TIME = 1
SEE_LOG = "see the broker's log"


# -- the clocks ------------------------------------------------------------------------------------------------------------
def clock(client: KafkaClient, limit: Limit, far_ms: float) -> Iterator[Finding]:
    """The clock of the quorum's leader: it tells of itself that it is up to date now (KIP-836, Kafka 3.3 and newer)."""
    now = client.handler.time
    before = now()
    try:
        quorum = client.admin().describe_quorum(timeout=limit.left())
    except UnsupportedVersion:
        yield Finding("clock", "cluster", SKIP, "brokers without KRaft do not tell the time; --write to a topic with LogAppendTime would")
        return
    except KafkaException as exc:
        yield Finding("clock", "cluster", SKIP, f"the quorum, which tells the time, may not be seen: {exc}")
        return
    after = now()
    told = [voter.last_caught_up_ms for voter in quorum.voters if voter.id == quorum.leader]
    if not told or told[0] <= 0:
        yield Finding("clock", "cluster", SKIP, "the quorum's leader does not tell the time")
        return
    yield compared("clock", f"controller {quorum.leader}", told[0], before, after, far_ms)


def compared(step: str, about: str, theirs_ms: int, before_s: float, after_s: float, far_ms: float) -> Finding:
    """Their clock and ours. before_s, after_s: ours when they were asked and had answered."""
    apart_ms = max(before_s * 1000 - theirs_ms, theirs_ms - after_s * 1000, 0.0)
    if apart_ms < 1:
        return Finding(step, about, OK, f"within the {(after_s - before_s) * 1000:.0f} ms that the question took")
    way = "behind" if theirs_ms < before_s * 1000 else "ahead of"
    seen = f"{apart_ms / 1000:.3f} s {way} this machine's"
    if apart_ms < far_ms:
        return Finding(step, about, OK, seen)
    return Finding(step, about, WARN, seen, "set both clocks by NTP: certificates, tokens, and reading from a time go wrong")


# -- the group -------------------------------------------------------------------------------------------------------------
def coordinator(client: KafkaClient, group: str, limit: Limit) -> Iterator[Finding]:
    """Who coordinates the group, and may its offsets be seen?"""
    about = f"group {group!r}"
    try:
        offsets = client.admin().list_group_offsets(group, timeout=limit.left())  # waits for a coordinator that is just changing
        where = _where(client, group, limit)
    except KafkaException as exc:
        cause = _first(exc)
        yield Finding(
            "group", about, FAIL, str(cause), _advice(cause, "the brokers' log says why there is no coordinator", f"Describe on {about}")
        )
        return
    yield Finding("group", about, OK, f"coordinated by {where}, which answers: offsets of {len(offsets)} partition(s)")


def _where(client: KafkaClient, group: str, limit: Limit) -> str:
    response, broker = client.cluster.call_any(FindCoordinatorRequest(key=group, key_type=0), limit.after(1))
    found = response.answers[0]
    error = error_for(found.error_code, found.error_message, api="FindCoordinator", broker=broker, group=group)
    if error is not None:
        raise error
    return f"broker {found.node_id} at {found.host}:{found.port}"


# -- the topic -------------------------------------------------------------------------------------------------------------
def topic(client: KafkaClient, name: str, begin: Begin, far_ms: float, *, writes: bool, say: Callable[[str], None]) -> Iterator[Finding]:
    """Is it there, has each partition a leader, may it be read and written? say: tells the user, at once, what is about to be written."""
    about, limit = f"topic {name!r}", begin()
    try:
        found = client.admin().describe_topics([name], operations=True, timeout=limit.left())[name]
    except UnsupportedVersion:  # brokers before 2.3 do not tell what may be done
        try:
            found = client.admin().describe_topics([name], timeout=limit.left())[name]
        except KafkaException as exc:
            yield _no_topic(about, _first(exc))
            return
    except KafkaException as exc:
        yield _no_topic(about, _first(exc))
        return
    without = [p.partition for p in found.partitions.values() if p.leader < 0]
    if without:
        yield Finding(
            "topic", about, FAIL, f"{len(without)} of {len(found.partitions)} partitions have no leader", "see which brokers are down"
        )
    else:
        yield Finding("topic", about, OK, f"{len(found.partitions)} partition(s), each has a leader")
    led = [p for p in found.partitions if p not in without]
    if led:
        yield _may_consume(client, found, led[0], begin())
        if writes:
            say(
                f"--write: a record of {len(VALUE)} bytes goes to topic {name!r}, partition {led[0]}, and stays there until retention removes it"
            )
        yield from _wrote(client, found, led[0], begin, far_ms) if writes else [_may_produce(found)]


def _no_topic(about: str, exc: KafkaException) -> Finding:
    if isinstance(exc, UnknownTopicOrPartition):
        return Finding(
            "topic",
            about,
            FAIL,
            str(exc),
            "kafka-tools topics create makes it; one that this client may not see looks the same: check its ACLs",
        )
    return Finding("topic", about, FAIL, str(exc), _advice(exc, SEE_LOG, f"Describe on {about}"))


def _may_consume(client: KafkaClient, found: TopicDescription, partition: int, limit: Limit) -> Finding:
    about = f"topic {found.name!r}"
    right = "Describe"
    try:
        earliest = client.list_offsets({(found.name, partition): -2}, timeout=limit.left())[found.name, partition]
        right = "Read"
        client.fetch_raw(found.name, partition, earliest, 1, max_wait_ms=0, min_bytes=0, timeout=limit.left())
    except KafkaException as exc:
        return Finding("consume", about, FAIL, str(exc), _advice(exc, SEE_LOG, f"{right} on {about}"))
    return Finding("consume", about, OK, f"partition {partition} was fetched from")


def _may_produce(found: TopicDescription) -> Finding:
    about = f"topic {found.name!r}"
    if found.operations is None:
        return Finding("produce", about, SKIP, "the broker does not tell what is allowed; --write tries it")
    if AclOperation.WRITE in found.operations:
        return Finding("produce", about, OK, "allowed (--write tries it)")
    return Finding(
        "produce", about, FAIL, "this client may not write to it", f"an ACL that allows Write on topic {found.name!r} to this client"
    )


def _wrote(client: KafkaClient, found: TopicDescription, partition: int, begin: Begin, far_ms: float) -> Iterator[Finding]:
    """One record, there and back."""
    about, now, limit = f"topic {found.name!r}", client.handler.time, begin()
    limit_ms = limit.left() * 1000
    producer = client.get_producer(linger_ms=0, delivery_timeout_ms=limit_ms, max_block_ms=limit_ms)
    before = now()
    try:
        delivery = producer.produce(found.name, VALUE, partition=partition, key=VALUE)
        offset = delivery.result(limit.left()).offset
        after = now()
    except KafkaException as exc:
        yield Finding("produce", about, FAIL, str(exc), _advice(exc, SEE_LOG, f"Write on {about}"))
        return
    finally:
        with contextlib.suppress(KafkaException):  # it was told
            producer.close(limit.left())
    yield Finding("produce", about, OK, f"a record was written to partition {partition}, offset {offset}; it stays there")
    limit = begin()
    try:
        with client.get_consumer() as consumer:
            consumer.assign({(found.name, partition): offset}, timeout=limit.left())
            message = consumer.consume(limit.left() * 1000)
    except KafkaException as exc:
        yield Finding("read back", about, FAIL, str(exc), _advice(exc, SEE_LOG, f"Read on {about}"))
        return
    if message is None or message.offset != offset or message.value != VALUE:
        yield Finding("read back", about, FAIL, f"offset {offset} did not come back in time", "see the log of the partition's leader")
        return
    yield Finding("read back", about, OK, f"offset {offset} came back as it was written")
    if message.timestamp_type == APPEND_TIME:
        yield compared("clock", f"leader of {found.name}-{partition}", message.timestamp, before, after, far_ms)


def _first(exc: KafkaException) -> KafkaException:
    """What went wrong with the one thing that was asked for."""
    return next(iter(exc.errors.values()), exc) if isinstance(exc, AdminError) else exc


def _advice(exc: KafkaException, otherwise: str, right: str) -> str:
    """right: what this client lacks, if it is refused."""
    if "Authorization" in type(exc).__name__:
        return f"this client needs an ACL that allows {right}: kafka-tools acls list shows which there are"
    return otherwise
