"""Fetch: what a log gives, the wait for it to have more (long poll), and what is left out of the answer (sessions)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gkafka.wire import fetch
from gkafka.wire.apis import Message

if TYPE_CHECKING:
    from gkafka.testing.answers import Answers
    from gkafka.testing.server import Call
    from gkafka.testing.sessions import Session
    from gkafka.testing.state import Partition

__all__ = ["answer_fetch", "fetch_session", "refused_fetch"]

OFFSET_OUT_OF_RANGE, NOT_LEADER, UNSUPPORTED_VERSION = 1, 6, 35


def fetch_session(answers: Answers, call: Call) -> tuple[Session | None, int, list[Any]]:
    """The session that a request belongs to, an error code, and all the topics that are asked for."""
    request: Any = call.request.message
    if call.request.version < 7 or (not answers.gives_sessions and not request.session_id):
        return None, 0, request.topics
    session, code = answers.sessions[call.broker_id].of(request)
    return session, code, session.topics if session is not None else request.topics


def answer_fetch(answers: Answers, call: Call, then: Callable[[Message], object]) -> None:
    """Answer when min_bytes are there, something is wrong, or max_wait_ms is over; again after every change of the cluster."""
    request: Any = call.request.message
    session, code, topics = fetch_session(answers, call)
    if code:
        then(fetch.FetchResponse(error_code=code))
        return
    done = False

    def finish() -> None:
        nonlocal done
        if not done and not call.closed:
            done = True
            then(_response(answers, call, topics, session))

    def look() -> bool:
        if not (done or call.closed) and _ready(answers, call, topics):
            finish()
        return done or call.closed

    if request.max_wait_ms <= 0 or not topics or look():
        finish()
        return
    answers.wait_for_change(look)
    answers.after(request.max_wait_ms / 1000, finish)


def refused_fetch(answers: Answers, call: Call, code: int) -> fetch.FetchResponse:
    """The same error code for every partition that is asked for, named or not."""
    session, wrong, topics = fetch_session(answers, call)
    if wrong:
        return fetch.FetchResponse(error_code=wrong)
    response = fetch.FetchResponse(session_id=0 if session is None else session.id)
    for topic in topics:
        refused = [
            fetch.PartitionData(partition_index=p.partition, error_code=code, high_watermark=-1, aborted_transactions=None, records=b"")
            for p in topic.partitions
        ]
        response.responses.append(fetch.FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=refused))
    return response


def _ready(answers: Answers, call: Call, topics: list[Any]) -> bool:
    request: Any = call.request.message
    size = 0
    for topic in topics:
        for asked in topic.partitions:
            partition, code = _look_up(answers, call, topic, asked)
            if partition is None or code or _preferred(answers, call, partition) >= 0:
                return True
            size += partition.log.available(asked.fetch_offset, _end(partition, request.isolation_level), request.min_bytes - size)
    return bool(size >= request.min_bytes)


def _look_up(answers: Answers, call: Call, topic: Any, asked: Any) -> tuple[Partition | None, int]:
    partition, code = answers.led_here(call, topic.topic, topic.topic_id, asked.partition, asked.current_leader_epoch)
    near = answers.state.racks and call.request.version >= 11
    if near and code == NOT_LEADER and partition is not None and call.broker_id in partition.isr:
        code = answers.epoch_error(partition, asked.current_leader_epoch)  # KIP-392: followers are fetched from, too
    if code or partition is None:
        return partition, code
    if not partition.log.start <= asked.fetch_offset <= partition.log.end:
        return partition, OFFSET_OUT_OF_RANGE
    if partition.log.newest_magic(asked.fetch_offset) > newest_magic(call.request.version):
        return partition, UNSUPPORTED_VERSION
    return partition, 0


def _preferred(answers: Answers, call: Call, partition: Partition) -> int:
    """The follower in the client's rack, if there is one and the leader is not there itself; else -1 (RackAwareReplicaSelector)."""
    request: Any = call.request.message
    racks = answers.state.racks
    rack = request.rack_id if call.request.version >= 11 else ""
    if not rack or partition.leader != call.broker_id or racks.get(call.broker_id) == rack:
        return -1
    return next((replica for replica in partition.isr if racks.get(replica) == rack and replica in answers.state.up), -1)


def newest_magic(version: int) -> int:
    """The newest message format that a Fetch version may carry. Nothing is converted to an older one here."""
    return 2 if version >= 4 else 1 if version >= 2 else 0


def _end(partition: Partition, isolation: int) -> int:
    return partition.log.last_stable if isolation else partition.log.end


def _response(answers: Answers, call: Call, topics: list[Any], session: Session | None) -> fetch.FetchResponse:
    request: Any = call.request.message
    whole = session is None or request.session_epoch <= 0
    whole_first = call.request.version >= 3  # KIP-74
    left = request.max_bytes
    response = fetch.FetchResponse(session_id=0 if session is None else session.id)
    leaders: set[int] = set()
    for topic in topics:
        entry = fetch.FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id)
        for asked in topic.partitions:
            partition, code = _look_up(answers, call, topic, asked)
            data = _data(call, partition, code, asked, left if left > 0 else 0, whole_first, answers)
            if data.records:
                left -= len(data.records)
                whole_first = False
            if data.current_leader.leader_id >= 0:
                leaders.add(data.current_leader.leader_id)
            if session is None or session.is_news(topic.topic, topic.topic_id, data) or whole:
                entry.partitions.append(data)
        if entry.partitions:
            response.responses.append(entry)
    if call.request.version >= 16:
        for broker in sorted(leaders):
            host, port = answers.endpoint(broker)
            response.node_endpoints.append(fetch.NodeEndpoint(node_id=broker, host=host, port=port))
    return response


def _data(
    call: Call, partition: Partition | None, code: int, asked: Any, left: int, whole_first: bool, answers: Answers
) -> fetch.PartitionData:
    request: Any = call.request.message
    data = fetch.PartitionData(partition_index=asked.partition, error_code=code, high_watermark=-1, aborted_transactions=None, records=b"")
    if partition is None:
        return data
    log = partition.log
    if code == NOT_LEADER and call.request.version >= 12:
        data.current_leader = fetch.LeaderIdAndEpoch(leader_id=partition.leader, leader_epoch=partition.epoch)
    if code:
        return data
    data.high_watermark, data.last_stable_offset, data.log_start_offset = log.end, log.last_stable, log.start
    data.preferred_read_replica = _preferred(answers, call, partition)
    if data.preferred_read_replica >= 0:
        return data
    if asked.last_fetched_epoch >= 0:
        epoch, ended = partition.end_of_epoch(asked.last_fetched_epoch)
        if ended < asked.fetch_offset:  # KIP-595: what the client has read past that epoch's end is not in this log
            data.diverging_epoch = fetch.EpochEndOffset(epoch=epoch, end_offset=ended)
            return data
    limit = min(asked.partition_max_bytes, left) if call.request.version >= 3 else asked.partition_max_bytes
    chunks = log.read(asked.fetch_offset, limit, end=_end(partition, request.isolation_level), whole_first=whole_first)
    data.records = b"".join(chunks)
    if request.isolation_level:
        data.aborted_transactions = [
            fetch.AbortedTransaction(producer_id=producer_id, first_offset=first)
            for producer_id, first in log.aborted_from(asked.fetch_offset)
        ]
    return data
