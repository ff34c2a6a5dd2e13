"""Fetch: what a log gives, and the wait for it to have more (long poll)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gkafka.wire import fetch
from gkafka.wire.apis import Message

if TYPE_CHECKING:
    from gkafka.testing.answers import Answers
    from gkafka.testing.server import Call
    from gkafka.testing.state import Partition

__all__ = ["answer_fetch"]

OFFSET_OUT_OF_RANGE, NOT_LEADER, UNSUPPORTED_VERSION, SESSION_NOT_FOUND = 1, 6, 35, 70


def answer_fetch(answers: Answers, call: Call, then: Callable[[Message], object]) -> None:
    """Answer when min_bytes are there, something is wrong, or max_wait_ms is over; again after every change of the cluster."""
    request: Any = call.request.message
    if request.session_id:
        then(fetch.FetchResponse(error_code=SESSION_NOT_FOUND))  # sessions are declined: none was ever given out (KIP-227)
        return
    done = False

    def finish() -> None:
        nonlocal done
        if not done and not call.closed:
            done = True
            then(_response(answers, call))

    def look() -> bool:
        if not (done or call.closed) and _ready(answers, call):
            finish()
        return done or call.closed

    if request.max_wait_ms <= 0 or not request.topics or look():
        finish()
        return
    answers.wait_for_change(look)
    answers.after(request.max_wait_ms / 1000, finish)


def _ready(answers: Answers, call: Call) -> bool:
    request: Any = call.request.message
    size = 0
    for topic in request.topics:
        for asked in topic.partitions:
            partition, code = _look_up(answers, call, topic, asked)
            if partition is None or code:
                return True
            size += partition.log.available(asked.fetch_offset, _end(partition, request.isolation_level), request.min_bytes - size)
    return bool(size >= request.min_bytes)


def _look_up(answers: Answers, call: Call, topic: Any, asked: Any) -> tuple[Partition | None, int]:
    partition, code = answers.led_here(call, topic.topic, topic.topic_id, asked.partition, asked.current_leader_epoch)
    if code or partition is None:
        return partition, code
    if not partition.log.start <= asked.fetch_offset <= partition.log.end:
        return partition, OFFSET_OUT_OF_RANGE
    if partition.log.newest_magic(asked.fetch_offset) > newest_magic(call.request.version):
        return partition, UNSUPPORTED_VERSION
    return partition, 0


def newest_magic(version: int) -> int:
    """The newest message format that a Fetch version may carry. Nothing is converted to an older one here."""
    return 2 if version >= 4 else 1 if version >= 2 else 0


def _end(partition: Partition, isolation: int) -> int:
    return partition.log.last_stable if isolation else partition.log.end


def _response(answers: Answers, call: Call) -> fetch.FetchResponse:
    request: Any = call.request.message
    whole_first = call.request.version >= 3  # KIP-74
    left = request.max_bytes
    response = fetch.FetchResponse()
    leaders: set[int] = set()
    for topic in request.topics:
        entry = fetch.FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id)
        for asked in topic.partitions:
            partition, code = _look_up(answers, call, topic, asked)
            data = _data(call, partition, code, asked, left if left > 0 else 0, whole_first)
            if data.records:
                left -= len(data.records)
                whole_first = False
            if data.current_leader.leader_id >= 0:
                leaders.add(data.current_leader.leader_id)
            entry.partitions.append(data)
        response.responses.append(entry)
    if call.request.version >= 16:
        for broker in sorted(leaders):
            host, port = answers.endpoint(broker)
            response.node_endpoints.append(fetch.NodeEndpoint(node_id=broker, host=host, port=port))
    return response


def _data(call: Call, partition: Partition | None, code: int, asked: Any, left: int, whole_first: bool) -> fetch.PartitionData:
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
    if asked.last_fetched_epoch >= 0 and (ended := partition.epoch_end(asked.last_fetched_epoch)) < asked.fetch_offset:
        # KIP-595: what the client has read past that epoch's end is not in this log.
        data.diverging_epoch = fetch.EpochEndOffset(epoch=asked.last_fetched_epoch, end_offset=max(ended, 0))
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
